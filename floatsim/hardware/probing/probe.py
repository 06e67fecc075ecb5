"""Which model a matrix instruction follows, inferred from what it answers.

`probe_dots` takes anything that multiplies: a card, the emulator, a kernel of one's own. It puts the sums of
`experiments` to it, reads each parameter of the models of `floatsim.tensorcore` from the answers, and says whether the
row of the table answers alike. What the formats leave no way to see is said to be so.

The algorithms know fused blocks, alone and in chains, with block scales and in two halves, chains of fused
multiply-adds, and exact blocks. Of AMD's other models they see the order, the bits that are kept and the roundings, not
what is peculiar to them: how c joins late, where even and odd products meet, and what is flushed to zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from floatsim.formats import FP16, FormatLike, as_format
from floatsim.formats.rounding import Rounding
from floatsim.hardware.probing.experiments import Bench, wrong_sum
from floatsim.hardware.probing.inference import Observation, read_model, text_of
from floatsim.testing.dot_unit import DotProducts, Unit, units

if TYPE_CHECKING:
    from floatsim.tensorcore.instructions import Scales

__all__ = ["Observation", "Probe", "probe_dots", "rows_alike"]


@dataclass(frozen=True)
class Probe:
    """What was read of an instruction, and what the table's row answers to the same questions. Prints as text.

    Attributes
    ----------
    title : str
    observations : tuple of Observation
        In the order in which they were made.
    expected : tuple of Observation, or None
        Of the row, answered by the emulator; None where no row was named.
    alike : tuple of str
        Of the rows of the table, for all cards, those that answer every question alike; looked for where the card's own
        row does not.
    """

    title: str
    observations: tuple[Observation, ...]
    expected: tuple[Observation, ...] | None = None
    alike: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Any:
        """The value that was read; None where it cannot be observed."""
        return self._by_name()[name].value

    def _by_name(self) -> dict[str, Observation]:
        return {each.name: each for each in self.observations}

    @property
    def different(self) -> tuple[str, ...]:
        """The names of what differs from the table's row."""
        expected = {each.name: each.value for each in self.expected or ()}
        names = [*self._by_name(), *(name for name in expected if name not in self._by_name())]
        values = {each.name: each.value for each in self.observations}
        return tuple(n for n in names if values.get(n) != expected.get(n)) if self.expected is not None else ()

    @property
    def equal(self) -> bool | None:
        """Whether the table's row answers alike; None where no row was named."""
        return None if self.expected is None else not self.different

    @property
    def unobservable(self) -> tuple[str, ...]:
        """The names of what cannot be observed in these formats."""
        return tuple(each.name for each in self.observations if each.value is None)

    @property
    def model(self) -> str:
        """What was read, in the vocabulary of `floatsim.tensorcore.instructions`; "?" is what cannot be observed."""
        return _model(self)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    __repr__ = __str__

    def _lines(self) -> Iterator[str]:
        yield self.title
        expected = {each.name: each for each in self.expected or ()}
        width = max(len(each.name) for each in self.observations)
        for each in self.observations:
            line = f"  {each.name:<{width}}  {each}"
            if each.name in self.different:
                line += (
                    f"   <- the table has {expected[each.name]}" if each.name in expected else "   <- not the table's"
                )
            yield line
        yield f"  {'model':<{width}}  {self.model}"
        if self.equal is not None:
            seen = sum(each.value is not None for each in self.observations)
            yield (
                f"equal to the table's row in all {seen} parameters that can be observed" if self.equal else
                f"DIFFERENT from the table's row: {', '.join(self.different)}"
            )  # fmt: skip
        if self.alike:
            yield f"rows that answer alike: {', '.join(self.alike)}"

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "instruction": self.title,
            "model": self.model,
            "equal": self.equal,
            "different": list(self.different),
            "alike": list(self.alike),
            "observations": {each.name: {"value": _plain(each.value), "why": each.why} for each in self.observations},
        }


def _plain(value: Any) -> Any:
    """As JSON has it: numbers and truths stay, roundings are texts."""
    return value if value is None or isinstance(value, int) else text_of(value)


def probe_dots(
    dot: DotProducts, a_format: FormatLike, b_format: FormatLike | None = None, *, k: int, output: FormatLike = "fp32",
    scales: Scales | None = None, against: Unit | None = None, title: str | None = None,
) -> Probe:  # fmt: skip
    """Infer the model of what multiplies.

    Parameters
    ----------
    dot : callable
        dot(a, b, c) of codes: a and b (n, k), c (n,), unsigned integers; it returns (n,) codes of D, row by row. With
        `scales`, it is called as dot(a, b, c, (scales of a, scales of b)), each (n, k / every).
    a_format, b_format : format
        Of the operands; b's is a's if it is not given.
    k : int
        Products that it takes at a time.
    output : format
        Of c and D.
    scales : Scales, optional
        Of block-scaled operands.
    against : Unit, optional
        A row of the table with its formats: the emulator is asked the same questions. Whatever is answered is then
        printed, beside the row's answers.
    title : str, optional
        What to call it.

    Returns
    -------
    Probe

    Raises
    ------
    ValueError
        If `against` takes other formats, or another k; without it, if the sums of one or two ones are wrong, so that
        there is no sum to be read.

    Examples
    --------
    >>> import floatsim as fs
    >>> from floatsim.testing.dot_unit import named_unit
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
            f"against={str(against)!r} takes k = {against.k}; asked for are {a} x {b} to {bench.output}, k = {k}"
        )
    named = title or (str(against) if against else f"{a} x {b} to {bench.output}, k = {k}")
    # Beside a row's answers a card that answers nothing is seen; alone, it would be read as a model.
    if against is None and (wrong := wrong_sum(bench)):
        raise ValueError(wrong)
    expected = None if against is None else read_model(_bench(against))
    return Probe(named, read_model(bench), expected)


def _bench(unit: Unit) -> Bench:
    return Bench(unit.dots, unit.a, unit.b, unit.output, unit.k, unit.scales)


def rows_alike(found: Probe, unit: Unit) -> tuple[str, ...]:
    """The rows of the whole table, for such operands, that answer every question as it was answered."""
    same = (unit.a, unit.b, unit.output, unit.k, unit.scales)
    others = [u for u in units() if (u.a, u.b, u.output, u.k, u.scales) == same]
    models = {u.row.model: read_model(_bench(u)) for u in others}
    values = [each.value for each in found.observations]
    return tuple(f"{u.arch} {u.name}" for u in others if [o.value for o in models[u.row.model]] == values)


# -- in the vocabulary of the table ------------------------------------------------------------------------------------


def _model(found: Probe) -> str:
    values = {each.name: each.value for each in found.observations}
    if "terms" not in values:
        return f"none of the vocabulary: {values.get('order')}"
    if values["terms"] == 1:
        return "FmaChain()" if values.get("product") == "exact" else "a chain of rounded products"
    bits, of_c = values["fraction bits"], values["fraction bits of c"]
    late = values["c"] != "with the first block"
    if bits is None and of_c is None and not late:
        return f"ExactBlocks(terms={values['terms']}), or no end of the bits is seen"
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
        return f"none of the vocabulary: {values['chain']}, and c {values['c']}"
    return f"TwoHalves({block})" if late else block


def _written(name: str, fields: dict[str, Any]) -> str:
    texts = [f"{key}={'?' if value is None else value}" for key, value in fields.items()]
    return f"{name}({', '.join(texts)})"
