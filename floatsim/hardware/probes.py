"""Which model a matrix instruction follows, inferred from what it answers.

`probe_dots` takes anything that multiplies: a card, the emulator, a kernel of one's own. It puts the sums of
`experiments` to it, reads each parameter of the models of `floatsim.tensorcore` from the answers, and says whether the
row of the table answers alike. What the formats leave no way to see is said to be so.

The algorithms know fused blocks, alone and in chains, with block scales and in two halves, chains of fused
multiply-adds, and exact blocks. Of AMD's other models they see the order, the bits that are kept and the roundings, not
what is peculiar to them: how c joins late, where even and odd products meet, and what is flushed to zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from floatsim.formats import FP16, FP32, FormatLike, as_format
from floatsim.hardware import experiments as ask
from floatsim.hardware.experiments import Bench, C, Tree
from floatsim.hardware.units import DotProducts, Unit, units
from floatsim.rounding import Rounding

if TYPE_CHECKING:
    from floatsim.formats import FloatFormat
    from floatsim.tensorcore.instructions import Scales

__all__ = ["Observation", "Probe", "probe_dots", "read_model", "rows_alike"]


@dataclass(frozen=True)
class Observation:
    """One parameter: what was read, or why nothing could be.

    Attributes
    ----------
    name : str
    value : object
        None where it cannot be observed, or does not apply.
    why : str
        Why not.
    """

    name: str
    value: Any
    why: str = ""

    def __str__(self) -> str:
        return f"not observable: {self.why}" if self.value is None else _text(self.value)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value.name.lower().replace("_", " ") if isinstance(value, Rounding) else str(value)


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
            "observations": {
                each.name: {"value": None if each.value is None else _text(each.value), "why": each.why}
                for each in self.observations
            },
        }


def probe_dots(
    dot: DotProducts, a_format: FormatLike, b_format: FormatLike | None = None, *, k: int, output: FormatLike = FP32,
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
        A row of the table with its formats: the emulator is asked the same questions.
    title : str, optional
        What to call it.

    Returns
    -------
    Probe

    Raises
    ------
    ValueError
        If `against` takes other formats, or another k.

    Examples
    --------
    >>> import floatsim as fs
    >>> from floatsim.hardware.units import named_unit
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
            f"against={str(against)!r} takes k = {against.k}; asked for are {a} x {b} to {output}, k = {k}"
        )
    named = title or (str(against) if against else f"{a} x {b} to {bench.output}, k = {k}")
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


# -- reading -----------------------------------------------------------------------------------------------------------


def read_model(bench: Bench) -> tuple[Observation, ...]:
    """All that can be read of what multiplies, parameter by parameter."""
    return tuple(_read(bench))


def _read(bench: Bench) -> Iterator[Observation]:
    again = ask.repeats(bench)
    yield Observation("answers", None if again is None else "repeat" if again else "DO NOT REPEAT", "too narrow")
    tree = ask.tree_of(bench)
    blocks = ask.blocks_of(tree)
    if blocks is None:
        yield Observation("order", None if tree is None else _order(tree), "the formats are too narrow")
        yield from _of_d(bench, list(range(min(bench.k, 3))), True)
        yield from _of_specials(bench, [*range(bench.k)])
        return
    chain = [[k for k in block if isinstance(k, int)] for block in blocks]
    products = [block for block in chain if block]
    at = products[0]
    joined = C in blocks[0]
    yield Observation("terms", max(map(len, products)))
    yield Observation("chain", _chain(products))
    yield Observation("c", _place([C in block for block in blocks].index(True), len(blocks)))
    narrow = "no two numbers of these formats are far enough apart"
    bits = None
    if len(at) > 1:
        bits = ask.bits_of_products(bench, at) if len(at) > 2 or bench.scale_blocks > 1 else None
        of_c = ask.bits_of_c(bench, at)
        yield Observation("fraction bits", bits, narrow)
        yield Observation("fraction bits of c", of_c, narrow if joined else "c is in no block")
        yield from _of_terms(bench, at, bits, of_c if joined else None)
        bits = of_c if bits is None and joined else bits
    else:
        yield Observation("product", _exactness(ask.product_is_exact(bench, at[0])), narrow)
    yield from _of_d(bench, at, joined)
    if len(at) > 1:
        yield from _of_chains(bench, products, at, bits, joined)
    yield Observation("operand bits", ask.operand_bits(bench, at[0]), "D has too few bits")
    yield from _of_specials(bench, at)


def _order(tree: Tree) -> str:
    if isinstance(tree, tuple):
        return f"({' + '.join(_order(child) for child in tree)})"
    return str(tree) if tree == C else f"p{tree}"


def _place(block: int, blocks: int) -> str:
    return {blocks - 1: "after the last block", 0: "with the first block"}.get(block, f"with block {block}")


def _exactness(exact: bool | None) -> str | None:
    return None if exact is None else "exact" if exact else "rounded to D"


def _chain(products: Sequence[Sequence[int]]) -> str:
    """Which k make up each block: "0-7, 8-15"; strides where they leave gaps."""
    texts = []
    for block in products:
        runs = [[block[0]]]
        for k in block[1:]:
            if k == runs[-1][-1] + 1:
                runs[-1].append(k)
            else:
                runs.append([k])
        texts.append("+".join(f"{r[0]}-{r[-1]}" if len(r) > 1 else str(r[0]) for r in runs))
    return ", ".join(texts)


def _of_terms(bench: Bench, at: Sequence[int], bits: int | None, of_c: int | None) -> Iterator[Observation]:
    """How terms are aligned and cut."""
    kept = of_c if bits is None else bits
    nothing = "nothing is seen to be cut"
    by_scales, group = None, None
    if bench.scale_blocks > 1 and kept is not None:
        lower = ask.bits_of_c(bench, at, lower=2)
        by_scales = of_c is not None and lower is not None and lower != of_c
        group = ask.group_of(bench, at, kept)
        yield Observation("exponent of a term", "its scales'" if by_scales else "its product's")
        yield Observation("group", group, "D shows nothing of it")
    yield Observation(
        "cut", None if bits is None else ask.cut_of_products(bench, at, bits),
        nothing if bits is None else "products cannot be that small",
    )  # fmt: skip
    of_c_cut = None if of_c is None else ask.cut_of_c(bench, at, of_c)
    yield Observation("cut of c", of_c_cut, "c is in no block" if of_c is None else "c cannot be that small")
    large = None if kept is None else ask.products_normalised(bench, at, kept, of_c is not None)
    yield Observation("products are normalised", large, nothing if kept is None else "products cannot be that small")
    small = None
    if kept is not None and not by_scales:
        small = ask.subnormals_normalised(bench, at, kept, of_c is not None)
    why = nothing if kept is None else "a term has its scales' exponent" if by_scales else "D cannot be that small"
    yield Observation("subnormals are normalised", small, why)


def _of_d(bench: Bench, at: Sequence[int], joined: bool) -> Iterator[Observation]:
    """What becomes of the sum."""
    trailing = ask.kept_of_d(bench, at[0])
    yield Observation(
        "D", None if trailing is None else ask.grid_of(bench.output, trailing).name, "not even 1 + 2 is 3"
    )
    if trailing is None:
        return
    with_c = ask.rounding_of_d(bench, at, trailing, True)
    if joined:
        yield Observation("rounding", with_c, "no known one")
        return
    own = ask.rounding_of_d(bench, at, trailing, False) if len(at) > 2 else None
    yield Observation("rounding", own, "products cannot be that far apart")
    yield Observation("rounding with c", with_c, "no known one")


def _of_chains(
    bench: Bench, products: Sequence[Sequence[int]], at: Sequence[int], bits: int | None, joined: bool
) -> Iterator[Observation]:
    trailing = ask.kept_of_d(bench, at[0])
    if trailing is None or bits is None:
        yield Observation("least exponent", None, "nothing is seen to be cut")
        return
    grid = ask.grid_of(bench.output, trailing)
    rounding = ask.rounding_of_d(bench, at, trailing, joined) or Rounding.TIES_TO_EVEN
    if joined and rounding is Rounding.TIES_TO_EVEN:
        sticky = ask.sticky_bits(bench, at, trailing)
        yield Observation("bits that decide ties", sticky, "products cannot be that small")
    if joined and len(products) > 1:
        whole = ask.carried_whole(bench, products[0][0], products[1][0], trailing)
        text = None if whole is None else "whole" if whole else "rounded to D"
        yield Observation("carried between blocks", text, "too narrow")
    lowest = grid.emin - grid.trailing_bits
    least = ask.least_exponent(bench, at, bits, rounding, lowest)
    yield Observation(
        "least exponent", least, f"no products are small enough: the smallest is 2^{bench.smallest}"
    )  # fmt: skip


def _of_specials(bench: Bench, at: Sequence[int]) -> Iterator[Observation]:
    codes = ask.specials(bench, at)
    fmt = bench.output
    digits = -(-fmt.bits // 4)
    nans = {f"0x{codes[name]:0{digits}X}" for name in _NANS if name in codes}
    yield Observation("NaN", " or ".join(sorted(nans)) or None, "no operand has it")
    infinite = {name: codes[name] for name in _INFINITE if name in codes}
    right = all(code == ask.exact_code(_INFINITE[name], fmt) for name, code in infinite.items())
    yield Observation("infinity", None if not infinite else "wins" if right else "is lost", "no operand has it")
    yield Observation("zero", " or ".join(dict.fromkeys(_zero(codes[n], fmt) for n in _ZEROS if n in codes)) or None)
    over = ask.overflow(bench, at)
    text = None if over is None else "infinite" if over == fmt.infinity_code else f"0x{over:0{digits}X}"
    yield Observation("overflow", text, "no sum of such products is too large for D")


_NANS = ("NaN in a", "NaN in b", "NaN in c", "inf * 0", "inf - inf", "inf - inf, c's")
_INFINITE = {"inf": ask.INF, "-inf and a number": -ask.INF, "c = inf": ask.INF}
_ZEROS = ("-0 alone", "1 - 1")


def _zero(code: int, fmt: FloatFormat) -> str:
    return {0: "+0", fmt.sign_mask: "-0"}.get(code, f"0x{code:X}")


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
