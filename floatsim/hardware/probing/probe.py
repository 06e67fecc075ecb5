"""Probes: infer the model of a matrix instruction from its results, and compare it with the table.

`probe_dots` takes any callable that computes dot products: a GPU, the emulator, your own kernel. It runs the sums of
`experiments`, infers each parameter of the models of `floatsim.tensorcore`, and compares them with the results of the
table's row. Parameters that the formats cannot show are reported as not observable.

The experiments recognise fused blocks, alone and in chains, with block scales and in two halves, chains of fused
multiply-adds, and exact blocks. Of AMD's other models they measure the order, the kept bits and the roundings. They do
not measure how c is added late, where even and odd products are joined, and what is flushed to zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from floatsim.formats import FP16, FormatLike, as_format
from floatsim.formats.rounding import Rounding
from floatsim.hardware.probing.experiments import Bench, check_simple_sums
from floatsim.hardware.probing.inference import Observation, read_model, text_of
from floatsim.testing.vectors.dot_unit import DotProducts, Unit, units

if TYPE_CHECKING:
    from floatsim.tensorcore.instructions import Scales

__all__ = ["Observation", "Probe", "probe_dots", "rows_alike"]


@dataclass(frozen=True)
class Probe:
    """The measured parameters of an instruction, beside those of the table's row. Prints as text.

    Attributes
    ----------
    title : str
    observations : tuple of Observation
        The parameters in the order of their measurement.
    expected : tuple of Observation, or None
        The parameters of the table's row, measured on the emulator; None without a row.
    alike : tuple of str
        The rows of the table, for all GPUs, with the same parameters. They are listed if the GPU's own row differs.
    error : str
        The type and the message of the error, if the instruction could not run. Then there are no observations, and
        `equal` is None.
    """

    title: str
    observations: tuple[Observation, ...]
    expected: tuple[Observation, ...] | None = None
    alike: tuple[str, ...] = ()
    error: str = ""

    def __getitem__(self, name: str) -> Any:
        """Return the measured value of a parameter; None if it is not observable."""
        return self._by_name()[name].value

    def _by_name(self) -> dict[str, Observation]:
        return {each.name: each for each in self.observations}

    @property
    def different(self) -> tuple[str, ...]:
        """The names of the parameters that differ from the table's row."""
        values, expected = _compared(self.observations), _compared(self.expected or ())
        names = [*values, *(name for name in expected if name not in values)]
        return tuple(n for n in names if values.get(n) != expected.get(n)) if self.expected is not None else ()

    @property
    def equal(self) -> bool | None:
        """Return whether the table's row has the same parameters; None without a row, or if it could not run."""
        return None if self.expected is None else not self.different

    @property
    def unobservable(self) -> tuple[str, ...]:
        """The names of the parameters that are not observable in these formats."""
        return tuple(each.name for each in self.observations if each.value is None)

    @property
    def nan_other_bits(self) -> tuple[str, ...]:
        """The names of the observed NaNs whose bits differ from the emulator's, and which count as equal."""
        expected = {each.name: each.value for each in self.expected or ()}
        return tuple(
            each.name for each in self.observations if not each.compared and each.value != expected.get(each.name)
        )

    @property
    def model(self) -> str:
        """The measured model as in `floatsim.tensorcore.instructions`. "?" marks parameters that are not observable."""
        return _model(self)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    __repr__ = __str__

    def _lines(self) -> Iterator[str]:
        yield self.title
        if self.error:
            yield f"could not run: {self.error}"
            return
        expected = {each.name: each for each in self.expected or ()}
        width = max(len(each.name) for each in self.observations)
        for each in self.observations:
            line = f"  {each.name:<{width}}  {each}"
            if each.name in self.different:
                line += (
                    f"   <- the table has {expected[each.name]}" if each.name in expected else "   <- not in the table"
                )
            elif each.name in self.nan_other_bits:
                line += f"   <- NaN, other bits: the emulator has {expected[each.name]}"
            yield line
        yield f"  {'model':<{width}}  {self.model}"
        if self.equal is not None:
            observable = sum(each.value is not None for each in self.observations if each.compared)
            yield (
                f"equal to the table's row in all {observable} observable parameters" if self.equal else
                f"DIFFERENT from the table's row: {', '.join(self.different)}"
            )  # fmt: skip
        if self.alike:
            yield f"rows with equal parameters: {', '.join(self.alike)}"

    def to_dict(self) -> dict[str, Any]:
        """Return the probe in JSON types."""
        return {
            "instruction": self.title,
            "model": None if self.error else self.model,
            "equal": self.equal,
            "different": list(self.different),
            "alike": list(self.alike),
            "nan_other_bits": list(self.nan_other_bits),
            "error": self.error or None,
            "observations": {each.name: {"value": _plain(each.value), "why": each.why} for each in self.observations},
        }


def _compared(observations: Sequence[Observation]) -> dict[str, Any]:
    """Return the values of the observations that are compared with the table."""
    return {each.name: each.value for each in observations if each.compared}


def _plain(value: Any) -> Any:
    """Return a value in JSON types: numbers and booleans unchanged, rounding modes as text."""
    return value if value is None or isinstance(value, int) else text_of(value)


def probe_dots(
    dot: DotProducts, a_format: FormatLike, b_format: FormatLike | None = None, *, k: int, output: FormatLike = "fp32",
    scales: Scales | None = None, against: Unit | None = None, title: str | None = None,
) -> Probe:  # fmt: skip
    """Infer the model of a callable that computes dot products.

    Parameters
    ----------
    dot : callable
        dot(a, b, c) takes codes as unsigned integers, a and b (n, k), c (n,), and returns the (n,) codes of D, row by
        row. With `scales`, it is called as dot(a, b, c, (scales of a, scales of b)), each (n, k / every).
    a_format, b_format : format
        The formats of the operands. Default of `b_format`: `a_format`.
    k : int
        The number of products in one call.
    output : format
        The format of c and D.
    scales : Scales, optional
        The block scales of the operands.
    against : Unit, optional
        A row of the table with its formats. The emulator of this row is probed too, and the result shows both.
    title : str, optional
        The title of the result.

    Returns
    -------
    Probe

    Raises
    ------
    ValueError
        If `against` has other formats, or another k. Without it, if the sums of one or two ones are wrong, because such
        a callable has no model.

    Examples
    --------
    >>> import floatsim as fs
    >>> from floatsim.testing.vectors.dot_unit import named_unit
    >>> unit = named_unit("volta", None, fs.FP16, fs.FP16)
    >>> found = probe_dots(unit.dots, "fp16", k=4, against=unit)
    >>> found["terms"], found["fraction bits"], found["least exponent"]
    (4, 23, None)
    >>> found.model
    'FusedBlocks(terms=4, fraction_bits=23, floor=?, grid=FP32, rounding=TOWARD_ZERO)'
    >>> found.equal
    True
    """
    a = as_format(a_format)
    b = a if b_format is None else as_format(b_format)
    bench = Bench(dot, a, b, as_format(output), k, scales)
    taken = (bench.a, bench.b, bench.output, bench.k, bench.scales)
    if against is not None and taken != (against.a, against.b, against.output, against.k, against.scales):
        raise ValueError(
            f"against={str(against)!r} takes k = {against.k}; given are {a} x {b} to {bench.output}, k = {k}"
        )
    named = title or (str(against) if against else f"{a} x {b} to {bench.output}, k = {k}")
    # With a row, a callable that computes no sums shows as a difference. Alone, it would be read as a model.
    if against is None and (message := check_simple_sums(bench)):
        raise ValueError(message)
    expected = None if against is None else read_model(_bench(against))
    return Probe(named, read_model(bench), expected)


def _bench(unit: Unit) -> Bench:
    return Bench(unit.dots, unit.a, unit.b, unit.output, unit.k, unit.scales)


def rows_alike(found: Probe, unit: Unit) -> tuple[str, ...]:
    """Return the rows of the whole table that take such operands and have the same measured parameters."""
    same = (unit.a, unit.b, unit.output, unit.k, unit.scales)
    others = [u for u in units() if (u.a, u.b, u.output, u.k, u.scales) == same]
    models = {u.row.model: read_model(_bench(u)) for u in others}
    values = _compared(found.observations)
    return tuple(f"{u.arch} {u.name}" for u in others if _compared(models[u.row.model]) == values)


# -- the model as text -------------------------------------------------------------------------------------------------


def _model(found: Probe) -> str:
    values = {each.name: each.value for each in found.observations}
    if "terms" not in values:
        return f"no model of the table: {values.get('order')}"
    if values["terms"] == 1:
        return "FmaChain()" if values.get("product") == "exact" else "a chain of rounded products"
    if "fraction bits" not in values:  # the first block has one product, and others have more
        return f"no model of the table: {values['chain']}"
    bits, of_c = values["fraction bits"], values["fraction bits of c"]
    late = values["c"] != "with the first block"
    if bits is None and of_c is None and not late:
        return f"ExactBlocks(terms={values['terms']}), or more bits than can be observed"
    rounding = values["rounding"]
    fields = {
        "terms": values["terms"], "fraction_bits": of_c if bits is None else bits, "floor": values["least exponent"],
        "grid": values["D"], "rounding": rounding.name if rounding else None,
    }  # fmt: skip
    cuts = {values["cut"], values["cut of c"]} - {None, Rounding.TOWARD_ZERO}
    nearest_to_fp32 = values["rounding"] is Rounding.TIES_TO_EVEN and values["D"] != FP16.name
    if not late and (cuts or nearest_to_fp32):
        return (
            f"LateAccumulator(terms={fields['terms']}, fraction_bits={fields['fraction_bits']}, sum_bits=?), or alike"
        )
    group = values.get("group")
    if group is not None and values.get("exponent of a term") == "its scales'":
        return _written("GroupedBlocks", fields | {"group": group})
    block = _written("FusedBlocks", fields)
    if late and (bits is None or values["chain"].count(", ") != 1):
        return f"no model of the table: {values['chain']}, and c {values['c']}"
    return f"TwoHalves({block})" if late else block


def _written(name: str, fields: dict[str, Any]) -> str:
    texts = [f"{key}={'?' if value is None else value}" for key, value in fields.items()]
    return f"{name}({', '.join(texts)})"
