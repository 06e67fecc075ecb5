"""The text form of a trace: a table of terms for each block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import MAX_EMAX, MIN_EMIN, Decimal, localcontext
from fractions import Fraction

from floatsim.analysis.describe import facts
from floatsim.analysis.trace.steps import TracedBlock, TracedDot, TracedTerm, Value, leading_bit, lowest_bit, power
from floatsim.formats.rounding import Rounding
from floatsim.tensorcore.instructions import Instruction, RoundedSteps

__all__ = [
    "code_text",
    "heading",
    "lines",
    "number",
    "partial_name",
    "rounding_text",
    "sum_quantum",
    "table",
    "top_bit",
]

_MOST_BLOCKS, _FIRST, _LAST = 8, 5, 2
_MOST_LOST = 12  # the most discarded bits that are shown


def lines(trace: TracedDot) -> Iterator[str]:
    """Yield the lines of a trace, a table for each block; of more than 8 blocks, the first 5 and the last 2."""
    row = trace.instruction
    a, b = trace.formats
    arch = trace.accumulation.arch
    yield f"{arch} {row.name}: {a} x {b} to {trace.format}, K = {trace.length}, c = {number(trace.c)}"
    if row.fused is None:
        yield f"sum: {facts(row)['sum']}"
    hidden = range(_FIRST, len(trace.blocks) - _LAST) if len(trace.blocks) > _MOST_BLOCKS else range(0)
    for i, block in enumerate(trace.blocks):
        if i not in hidden:
            yield ""
            yield from _block_lines(block, trace)
        elif i == hidden[0]:
            yield f"\n... {len(hidden)} more blocks, in .blocks ..."
    yield ""
    yield f"D = {number(trace.value)}, {code_text(trace)}"
    if trace.exact is not None and trace.error is not None:
        yield f"exact sum {number(trace.exact)}, error {number(trace.error) if trace.error else 'none'}"


def code_text(trace: TracedDot) -> str:
    """Return the code of D in hexadecimal."""
    return f"0x{trace.code:0{trace.format.bits // 4}X}"


def number(x: Value) -> str:
    """Return a value in decimal, to nine digits.

    >>> from fractions import Fraction
    >>> number(Fraction(3, 1 << 20)), number(power(200)), number(float("-inf"))
    ('2.86102295e-6', '1.60693804e+60', '-inf')
    """
    if isinstance(x, float):
        return str(x)
    with localcontext(prec=9, Emin=MIN_EMIN, Emax=MAX_EMAX):
        decimal = Decimal(x.numerator) / Decimal(x.denominator)
        plain = Decimal(10) ** -5 <= abs(decimal) < Decimal(10) ** 9 or not decimal
        return f"{decimal.normalize():f}" if plain else f"{decimal.normalize():e}"


def heading(block: TracedBlock, trace: TracedDot) -> str:
    """Return the heading of a block: its instruction, its step, and its k."""
    several = trace.instruction.roundings > 1
    place = f"instruction {block.instruction}" + (f", step {block.number}" if several else "")
    return f"{place}: {_ks(block, trace.instruction.group)}"


def _ks(block: TracedBlock, group: int) -> str:
    ks = block.ks
    if not ks:
        return "c is added"
    if len(ks) == 1:
        return f"k = {ks[0]}"
    whole = f"k = {ks[0]} to {ks[-1] + group - 1}"
    return whole if isinstance(ks, range) else f"{whole}, k % 4 = {' or '.join(map(str, sorted({k % 4 for k in ks})))}"


def _block_lines(block: TracedBlock, trace: TracedDot) -> Iterator[str]:
    yield heading(block, trace)
    apart = len({term.quantum for term in block.terms if term.value != 0}) > 1
    if block.exponent is not None:
        lowest = "down to the place given" if apart else f"down to 2^{block.quantum}"
        yield f"largest exponent {block.exponent}, and {block.fraction_bits} bits below it are kept: {lowest}"
    elif any(isinstance(term.value, float) for term in block.terms):
        yield "infinities and NaN decide the result; finite terms have no effect"
    shown = [term for term in block.terms if term.value != 0]
    rows = [_term_cells(term, apart) | {"bits": _pattern(term.value, term.quantum, block)} for term in shown]
    rows += [{"term": partial_name(ks, trace.length), "value": number(value)} for ks, value in block.partials]
    if block.total is not None:
        rows.append(_cells("sum", block.total, block))
    name = "D" if block is trace.blocks[-1] else "acc"
    rows.append(_cells(f"{name}, {rounding_text(trace.instruction, block)}", block.value, block))
    if block.rounded_off:
        rows[-1]["lost"] = number(block.rounded_off)
    yield from table(rows, _HEADS)
    if zeros := len(block.terms) - len(shown) + block.padding:
        yield f"({zeros} {'terms are zeros' if zeros > 1 else 'term is zero'})"


def rounding_text(row: Instruction, block: TracedBlock) -> str:
    """Return how a block's sum is rounded, as "E8M13, toward zero"."""
    model = row.fused
    if model is None or not block.ks:
        mode = row.model.rounding if isinstance(row.model, RoundedSteps) else Rounding.TIES_TO_EVEN
        return f"{row.output}, {mode.name.lower().replace('_', ' ')}"
    return f"{model.grid}, {model.rounding.name.lower().replace('_', ' ')}"


def _or_empty(x: int | None) -> str:
    return "" if x is None else str(x)


def _term_cells(term: TracedTerm, apart: bool) -> dict[str, str]:
    return {
        "term": term.name,
        "factors": _factors(term),
        "scales": "" if term.scales is None else f"{term.scales[0]:.9g} * {term.scales[1]:.9g}",
        "value": number(term.value),
        "exponent": _or_empty(term.exponent),
        "shift": _or_empty(term.shift),
        "down to": f"2^{term.quantum}" if apart else "",
        "lost": number(term.lost) if term.lost else "",
        "bits lost": str(term.bits_lost or ""),
    }


def _factors(term: TracedTerm) -> str:
    """Return a product's factors, or the unscaled sum of a scaled group."""
    if term.factors is not None:
        return f"{term.factors[0]:.9g} * {term.factors[1]:.9g}"
    whole = None if term.scales is None else term.unscaled
    return "" if whole is None else f"sum {number(whole)}"


def partial_name(ks: range, length: int) -> str:
    """Return the name of a partial sum. Its k beyond the operands' end are products of zeros, and are not named.

    >>> partial_name(range(0, 2), 8), partial_name(range(0, 4), 8), partial_name(range(4, 8), 7)
    ('sum of k = 0, 1', 'sum of k = 0 to 3', 'sum of k = 4 to 6')
    """
    inside = [k for k in ks if k < length]
    if not inside:
        return "sum of zeros"
    if len(inside) <= 2:
        return f"sum of k = {', '.join(map(str, inside))}"
    return f"sum of k = {inside[0]} to {inside[-1]}"


def _cells(name: str, value: Value, block: TracedBlock) -> dict[str, str]:
    """Return the cells of the sum or of D."""
    bits = _pattern(value, sum_quantum(block), block)
    return {"term": name, "value": number(value), "exponent": _or_empty(leading_bit(value)), "bits": bits}


def top_bit(block: TracedBlock) -> int:
    """Return the highest exponent that a block's terms or sum need. A product may exceed the common exponent by one."""
    values = [*(term.value for term in block.terms), block.total or 0, block.value]
    bits = [bit for bit in map(leading_bit, values) if bit is not None]
    return max(bits, default=0)


def sum_quantum(block: TracedBlock) -> int | None:
    """Return the exponent of the sum's last bit, set or not; None if the block aligns nothing."""
    last = lowest_bit(block.total or Fraction(0))
    return block.quantum if block.quantum is None or last is None else min(block.quantum, last)


def _pattern(value: Value, quantum: int | None, block: TracedBlock) -> str:
    """Return the bits of a term from the block's highest exponent down, with the discarded bits behind a bar."""
    last = lowest_bit(value)
    if isinstance(value, float) or last is None or quantum is None:
        return ""
    first = leading_bit(value)
    assert first is not None
    sign = "-" if value < 0 else " "
    kept = sign + "." * (top_bit(block) - max(first, quantum - 1)) + _bits(value, min(first, top_bit(block)), quantum)
    if last >= quantum:
        return f"{kept}|"
    shown = max(last, quantum - _MOST_LOST)
    lead = "." * (quantum - 1 - max(first, shown - 1)) if first < quantum else ""
    return f"{kept}|{lead}{_bits(value, min(first, quantum - 1), shown)}{'...' if shown > last else ''}"


def _bits(value: Fraction, high: int, low: int) -> str:
    """Return the bits of a magnitude at the exponents from high down to low."""
    return "".join(str(abs(value) // power(place) % 2) for place in range(high, low - 1, -1))


_HEADS = ("term", "factors", "scales", "value", "exponent", "shift", "down to", "lost", "bits lost", "bits")
_TEXTS = ("term", "bits", "part", "rounding", "events")


def table(rows: list[dict[str, str]], heads: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a table, texts aligned left, numbers aligned right. Empty columns are omitted."""
    used = [head for head in heads if any(row.get(head) for row in rows)]
    widths = {head: max(len(row.get(head, "")) for row in [*rows, {head: head}]) for head in used}
    for row in [dict(zip(used, used, strict=True)), *rows]:
        cells = [f"{row.get(head, ''):{'<' if head in _TEXTS else '>'}{widths[head]}}" for head in used]
        yield "  " + "  ".join(cells)
