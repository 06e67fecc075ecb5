"""The explanation of one addition, multiplication or fused multiply-add, step by step, for teaching.

The bits come from exact integers: `floatsim.reference` defines the result, and the steps show its way. The steps are
the ones of textbooks: align the significands, add or multiply them, normalize the result, and round it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, Inexact, localcontext
from fractions import Fraction
from html import escape
from typing import TYPE_CHECKING, Any, Unpack

from floatsim import reference
from floatsim._lazy import plot_function
from floatsim.analysis.explain import (
    RULES,
    Explanation,
    bits_of,
    code_text,
    explain_number,
    random_of,
    result_text,
    value_of_code,
)
from floatsim.arrays.array.conversion import exact_number, operand_codes
from floatsim.arrays.array.operands import no_scales, read_operands
from floatsim.arrays.call.options import RoundingOptions, resolve
from floatsim.formats import FP64, FloatFormat, FormatLike, as_format
from floatsim.formats.rounding import RoundingAttributes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["BitRow", "ExplainedOperand", "ExplainedOperation", "OperationStep", "explain_add", "explain_fma",
           "explain_multiply"]  # fmt: skip

_SIGNS = "+-"
_MORE_PLACES = 24  # places behind the precision of the result that the text shows


# -- the data --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BitRow:
    """The bits of one number in one step: a sign, a significand with a binary point, and a power of two.

    Attributes
    ----------
    name : str
        "a", "b", "c", "product", "sum", "rounded" or "result".
    sign : int
        The sign bit.
    bits : str
        All bits of the significand, without the point.
    first : int
        The place of the first bit: 0 is the last place before the point, 1 the place before it.
    exponent : int
        The number is the significand times 2**exponent.
    note : str
        Remarks: the value, the code of an operand, the decision of the rounding.
    kept : int or None
        The number of places behind the point that the rounding keeps; None if this row is not rounded.
    """

    name: str
    sign: int
    bits: str
    first: int
    exponent: int
    note: str = ""
    kept: int | None = None

    @property
    def places(self) -> int:
        """The number of places behind the point."""
        return len(self.bits) - self.first - 1

    @property
    def value(self) -> Fraction:
        """The exact value of the row."""
        magnitude = int(self.bits, 2) * Fraction(2) ** (self.exponent - self.places)
        return -magnitude if self.sign else magnitude

    def pattern(self, most: int) -> str:
        """Return sign and bits with the binary point, a bar behind the kept bits, and at most so many places."""
        whole, behind = self.bits[: self.first + 1], self.bits[self.first + 1 :]
        shown = behind[:most]
        if self.kept is not None and self.kept < len(behind):
            shown = f"{shown[: self.kept]}|{shown[self.kept :]}"
        return f"{_SIGNS[self.sign]}{whole}.{shown}{'...' if len(behind) > most else ''}"


@dataclass(frozen=True)
class OperationStep:
    """One step of an operation.

    Attributes
    ----------
    name : str
        "unpack", "multiply", "align", "add", "normalize", "round", "result", or "special values".
    words : str
        The step in words.
    rows : tuple of BitRow
        The step in bits.
    """

    name: str
    words: str
    rows: tuple[BitRow, ...] = ()


@dataclass(frozen=True)
class ExplainedOperand:
    """One operand.

    Attributes
    ----------
    name : str
        "a", "b" or "c".
    given : str
        The operand as it was given.
    format : FloatFormat
        Its format.
    code : int
        Its code.
    value : float
        The value that the operation reads: with `daz`, zero instead of a subnormal number.
    rounded : bool
        Whether it was a Python number or a text that the format does not contain, rounded first, ties to even.
    """

    name: str
    given: str
    format: FloatFormat
    code: int
    value: float
    rounded: bool


@dataclass(frozen=True)
class ExplainedOperation:
    """The steps of one operation. Prints as text; `plot` draws the bits; the fields are for programs.

    Attributes
    ----------
    operation : str
        "add", "multiply" or "fma".
    operands : tuple of ExplainedOperand
        a, b, and c of an fma.
    format : FloatFormat
        The format of the result.
    exact : Fraction or None
        The exact result before its rounding; None if an operand is infinite or NaN.
    aligned : int or None
        The number of places by which the significand with the smaller exponent is shifted right. None if nothing is
        aligned: in products, beside a zero, and for special values.
    normalized : int or None
        The number of places by which the exact significand is shifted right. Negative: shifted left. None for zeros
        and special values.
    rounding : Explanation or None
        The rounding of the exact result: its kept bits, guard bit, sticky bit and decision. None for zeros and special
        values.
    code : int
        The code of the result.
    value : float
        The value of the result.
    flags : int
        The IEEE exceptions of the operation, as a bit mask.
    steps : tuple of OperationStep
        The steps in words and in bits.

    Examples
    --------
    >>> import floatsim as fs
    >>> told = fs.explain_add(1.0, -0.9375, "e4m3")
    >>> told.equation, told.exact, told.aligned, told.normalized
    ('1 + (-0.9375)', Fraction(1, 16), 1, -4)
    >>> for row in told.steps[2].rows:
    ...     print(row.name, row.sign, row.bits, row.exponent)
    a 0 1000 0
    b 1 01111 0
    sum 0 00001 0
    """

    operation: str
    operands: tuple[ExplainedOperand, ...]
    format: FloatFormat
    exact: Fraction | None
    aligned: int | None
    normalized: int | None
    rounding: Explanation | None
    code: int
    value: float
    flags: int
    steps: tuple[OperationStep, ...]

    @property
    def equation(self) -> str:
        """The operation with the values of its operands, such as "1.5 + 0.25"."""
        a, b, *c = (f"({x.value:.9g})" if i and _is_negative(x.value) else f"{x.value:.9g}"
                    for i, x in enumerate(self.operands))  # fmt: skip
        return f"{a} {'+' if self.operation == 'add' else 'x'} {b}{''.join(f' + {x}' for x in c)}"

    def __str__(self) -> str:
        return "\n".join([f"{self.equation} in {self.format.name}", *self._lines()])

    __repr__ = __str__

    def _lines(self) -> Iterator[str]:
        for i, step in enumerate(self.steps, 1):
            yield f"  {i}. {step.name}: {step.words}"
            yield from (f"       {line}" for line in self.bit_lines(step))

    def bit_lines(self, step: OperationStep) -> list[str]:
        """Return the rows of a step as lines of text, with the binary points below each other."""
        rows = [row for each in self.steps for row in each.rows]
        if not step.rows:
            return []
        names, first = max(len(row.name) for row in rows), max(row.first for row in rows)
        most = self.format.precision + _MORE_PLACES
        patterns = [" " * (first - row.first) + row.pattern(most) for row in step.rows]
        width, powers = max(map(len, patterns)), max(len(f"{row.exponent}") for row in step.rows)
        return [
            f"{row.name:<{names}}  {pattern:<{width}}  x 2^{row.exponent:<{powers}}  {row.note}".rstrip()
            for row, pattern in zip(step.rows, patterns, strict=True)
        ]

    def _repr_html_(self) -> str:
        items = []
        for step in self.steps:
            bits = escape("\n".join(self.bit_lines(step)))
            items.append(f"<li>{step.name}: {escape(step.words)}{f'<pre>{bits}</pre>' if bits else ''}</li>")
        return f"<div><b>{self.equation}</b> in {self.format.name}<ol>{''.join(items)}</ol></div>"

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the bits of every step, with the binary points in one column.

        Parameters
        ----------
        ax : Axes, optional
            The axes to draw on. Default: a new figure.

        Returns
        -------
        Axes

        Raises
        ------
        ValueError
            If an operand is infinite or NaN: there are no bits to align.

        Examples
        --------
        >>> import floatsim as fs
        >>> ax = fs.explain_add(1.5, 0.1, "e4m3").plot()
        >>> [label.get_text() for label in ax.get_yticklabels()]
        ['a', 'b', 'a', 'b', 'a', 'b', 'sum', 'sum', 'sum', 'rounded', 'result']
        """
        drawn: Axes = plot_function("operation", "draw")(self, ax)
        return drawn


def _is_negative(x: float) -> bool:
    return str(x).startswith("-")


# -- the public functions ----------------------------------------------------------------------------------------------


def explain_add(
    a: Any, b: Any, format: FormatLike | None = None, **options: Unpack[RoundingOptions]
) -> ExplainedOperation:  # fmt: skip
    """Explain a + b step by step, in words and bits: align, add, normalize, round.

    Parameters
    ----------
    a, b : number, text, or array of one element
        A FloatArray and an element of a float array have their own format. Python numbers and texts such as "0.1" take
        the format of the other operand, otherwise `format`, and are rounded to it first, ties to even.
    format : format, optional
        The format of the result. Required if the formats of the operands differ. Default: the format of the operands.
    **options
        The rounding options: `rounding`, `overflow`, `tininess`, `ftz`, `daz`, `random_bits`, `seed` and `offset`, with
        the meanings that they have for `fs.add`.

    Returns
    -------
    ExplainedOperation
        Its `code` and `flags` equal those of `fs.add`.

    Raises
    ------
    TypeError
        For different formats without `format`, and for scale formats.
    ValueError
        If an operand is not one number, for unknown names of options, and for stochastic rounding without a seed.

    Examples
    --------
    >>> import floatsim as fs
    >>> print(fs.explain_add(1.5, 0.1, "e4m3"))
    1.5 + 0.1015625 in E4M3
      1. unpack: sign, significand and exponent of each operand
           a        +1.100  x 2^0   1.5, code 0x3C, bits 0 0111 100
           b        +1.101  x 2^-4  0.1015625 (0.1 rounded to E4M3), code 0x1D, bits 0 0011 101
      2. align: shift b right by 4 places, from the exponent -4 to 0; all its bits are behind the last bit of a
           a        +1.100      x 2^0
           b        +0.0001101  x 2^0
      3. add: the signs are equal, so the significands are added
           a        +1.100      x 2^0
           b        +0.0001101  x 2^0
           sum      +1.1001101  x 2^0  exactly 1.6015625
      4. normalize: no shift: the leading 1 is before the point
           sum      +1.1001101  x 2^0
      5. round: p = 4 bits are kept; guard bit 1, sticky 1 (some later bit is set): 0.8125 of the way to the next number
           sum      +1.100|1101  x 2^0
           rounded  +1.101       x 2^0  to nearest, ties to even: more than half way, so up
      6. result: 1.625 = 1.101b x 2^0, bits 0 0111 101, code 0x3D; flags: inexact
           result   +1.101  x 2^0
    """
    return _explain("add", {"a": a, "b": b}, format, options)


def explain_multiply(
    a: Any, b: Any, format: FormatLike | None = None, **options: Unpack[RoundingOptions]
) -> ExplainedOperation:  # fmt: skip
    """Explain a * b step by step, in words and bits: multiply, normalize, round.

    Parameters
    ----------
    a, b : number, text, or array of one element
        The operands. Python numbers and texts are rounded to the format first.
    format : format, optional
        The format of the result. Default: the format of the operands.
    **options
        The rounding options of `fs.multiply`. `fs.explain_add` describes all arguments.

    Returns
    -------
    ExplainedOperation
        Its `code` and `flags` equal those of `fs.multiply`.

    Examples
    --------
    >>> import floatsim as fs
    >>> told = fs.explain_multiply(1.5, 1.75, "e4m3")
    >>> told.exact, told.value, [step.name for step in told.steps]
    (Fraction(21, 8), 2.5, ['unpack', 'multiply', 'normalize', 'round', 'result'])
    """
    return _explain("multiply", {"a": a, "b": b}, format, options)


def explain_fma(
    a: Any, b: Any, c: Any, format: FormatLike | None = None, **options: Unpack[RoundingOptions]
) -> ExplainedOperation:  # fmt: skip
    """Explain a * b + c with one rounding, in words and bits: multiply, align, add, normalize, round.

    Parameters
    ----------
    a, b, c : number, text, or array of one element
        The operands. Python numbers and texts are rounded to the format first.
    format : format, optional
        The format of the result. Default: the format of the operands.
    **options
        The rounding options of `fs.fma`. `fs.explain_add` describes all arguments.

    Returns
    -------
    ExplainedOperation
        Its `code` and `flags` equal those of `fs.fma`.

    Examples
    --------
    The product is not rounded before c is added:

    >>> import floatsim as fs
    >>> told = fs.explain_fma(1.125, 1.125, -1.25, "e4m3")
    >>> told.exact, told.value, told.normalized, fs.explain_multiply(1.125, 1.125, "e4m3").value
    (Fraction(1, 64), 0.015625, -6, 1.25)
    """
    return _explain("fma", {"a": a, "b": b, "c": c}, format, options)


# -- operands ----------------------------------------------------------------------------------------------------------


def _is_literal(x: Any) -> bool:
    return type(x) in (int, float, str, Fraction, Decimal)


def _read(arguments: dict[str, Any], asked: FloatFormat | None, daz: bool) -> list[ExplainedOperand]:
    """Return the operands, with the formats that `fs.add` gives them."""
    typed = {name: x for name, x in arguments.items() if not _is_literal(x)}
    read = dict(zip(typed, read_operands(typed, asked)[0], strict=True))
    formats = {fmt for _, fmt in read.values()}
    weak = formats.pop() if len(formats) == 1 else asked or FP64
    operands = []
    for name, x in arguments.items():
        codes, fmt = read[name] if name in read else (operand_codes(x, weak, name), weak)
        if codes.size != 1:
            raise ValueError(f"{name} must be one number, not an array of shape {codes.shape}")
        code = int(codes.item())
        value = _float(reference.decode(code, fmt, daz))
        rounded = name not in read and not _contains(fmt, code, exact_number(x, name))
        operands.append(ExplainedOperand(name, f"{value:.9g}" if name in read else str(x), fmt, code, value, rounded))
    return operands


def _contains(fmt: FloatFormat, code: int, x: reference.Number) -> bool:
    """Return whether a code has the value of x."""
    found = reference.decode(code, fmt)
    finite = x.kind is found.kind is reference.Kind.FINITE
    return not x.sticky and x.fraction == found.fraction if finite else x.kind is found.kind


def _float(x: reference.Number) -> float:
    if x.kind is reference.Kind.FINITE:
        return -0.0 if x.is_zero and x.sign else float(x.fraction)
    return float("nan") if x.is_nan else float("-inf" if x.sign else "inf")


def _unpacked(operand: ExplainedOperand, number: reference.Number) -> str:
    """Return an operand's code and bits in words, and how its value was read."""
    fmt = operand.format
    given = f"{operand.value:.9g}" + (f" ({operand.given} rounded to {fmt.name})" if operand.rounded else "")
    note = ""
    if number.is_zero and reference.decode(operand.code, fmt).significand:
        note = "; subnormal, read as zero (daz)"
    elif 0 < number.significand < 1 << fmt.trailing_bits:
        note = "; subnormal: 0 before the point"
    return f"{given}, code {code_text(operand.code, fmt)}, bits {bits_of(operand.code, fmt)}{note}"


# -- the steps ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Term:
    """A number as hardware holds it: an integer significand with `places` bits behind the point, and an exponent."""

    name: str
    sign: int
    significand: int
    places: int
    exponent: int
    whole: int = 1
    """The bits before the point: 1 in an operand, 2 in a product."""

    @property
    def last(self) -> int:
        """The exponent of the last bit."""
        return self.exponent - self.places

    @property
    def value(self) -> Fraction:
        magnitude = self.significand * Fraction(2) ** self.last
        return -magnitude if self.sign else magnitude

    def row(self, exponent: int | None = None, note: str = "") -> BitRow:
        """Return the bits, shifted right to an exponent that is not smaller."""
        exponent = self.exponent if exponent is None else exponent
        behind = exponent - self.last
        width = max(behind + self.whole, self.significand.bit_length())
        return BitRow(self.name, self.sign, f"{self.significand:0{width}b}", width - behind - 1, exponent, note)


def _term_of(name: str, x: reference.Number, fmt: FloatFormat) -> _Term:
    return _Term(name, x.sign, x.significand, fmt.trailing_bits, x.exponent + fmt.trailing_bits)


def _product_of(a: _Term, b: _Term) -> _Term:
    return _Term(
        "product", a.sign ^ b.sign, a.significand * b.significand, a.places + b.places, a.exponent + b.exponent, 2
    )  # fmt: skip


_OPERATIONS: dict[str, Callable[..., reference.Result]] = {
    "add": reference.add, "multiply": reference.multiply, "fma": reference.fma,
}  # fmt: skip


def _explain(
    operation: str, arguments: dict[str, Any], fmt: FormatLike | None, options: RoundingOptions
) -> ExplainedOperation:
    call = resolve(options)
    asked = None if fmt is None else as_format(fmt)
    operands = _read(arguments, asked, call.attributes.daz)
    result = asked or operands[0].format
    no_scales(f"explain_{operation}", result, *(x.format for x in operands))
    numbers = [reference.decode(x.code, x.format, call.attributes.daz) for x in operands]
    random = random_of(call)
    code, events = _OPERATIONS[operation](*numbers, result, call.attributes, random)
    told = _Told(operation, operands, numbers, result, call.attributes, random, code, events & 31)
    return told.finite() if all(x.kind is reference.Kind.FINITE for x in numbers) else told.special()


@dataclass
class _Told:
    """The steps of one operation, in the order in which they are told."""

    operation: str
    operands: list[ExplainedOperand]
    numbers: list[reference.Number]
    format: FloatFormat
    attributes: RoundingAttributes
    random: int
    code: int
    flags: int

    def explained(
        self, steps: list[OperationStep], exact: Fraction | None = None, aligned: int | None = None,
        normalized: int | None = None, rounding: Explanation | None = None,
    ) -> ExplainedOperation:  # fmt: skip
        value = float(value_of_code(self.code, self.format))
        return ExplainedOperation(self.operation, tuple(self.operands), self.format, exact, aligned, normalized,
                                  rounding, self.code, value, self.flags, tuple(steps))  # fmt: skip

    @property
    def outcome(self) -> str:
        """The result, its code and the flags in words."""
        value = float(value_of_code(self.code, self.format))
        return f"{value:.17g}, {result_text(self.code, self.format, self.flags)}"

    def unpack(self, terms: list[_Term]) -> OperationStep:
        notes = list(map(_unpacked, self.operands, self.numbers))
        rows = tuple(term.row(note=note) for term, note in zip(terms, notes, strict=False))
        if rows:
            return OperationStep("unpack", "sign, significand and exponent of each operand", rows)
        named = (f"{x.name} = {note}" for x, note in zip(self.operands, notes, strict=True))
        return OperationStep("unpack", "; ".join(named))

    def special(self) -> ExplainedOperation:
        """Tell an operation with an infinity or a NaN."""
        steps = [
            self.unpack([]),
            OperationStep("special values", _special_words(self.operation, self.numbers, self.format)),
            OperationStep("result", self.outcome),
        ]
        return self.explained(steps)

    def finite(self) -> ExplainedOperation:
        """Tell an operation of finite numbers."""
        terms = [_term_of(x.name, number, x.format) for x, number in zip(self.operands, self.numbers, strict=True)]
        steps = [self.unpack(terms)]
        if self.operation != "add":
            a, b, *rest = terms
            product = _product_of(a, b)
            steps.append(_multiply_step(a, b, product))
            terms = [product, *rest]
        aligned = None
        if len(terms) == 1:
            whole, at = terms[0], terms[0].exponent
        else:
            large, small = sorted(terms, key=lambda term: (term.significand != 0, term.exponent), reverse=True)
            at = large.exponent
            rows = tuple(term.row(at) if term.significand else term.row() for term in terms)
            if small.significand:
                aligned = at - small.exponent
                steps.append(OperationStep("align", _align_words(large, small), rows))
            whole = self.sum_of(terms, at)
            words = self.add_words(terms, large, small, whole)
            steps.append(OperationStep("add", words, (*rows, whole.row(note=_exactly(whole)))))
        exact = reference.Number(reference.Kind.FINITE, whole.sign, whole.significand, whole.last)
        if exact.is_zero:
            steps.append(OperationStep("result", self.outcome))
            return self.explained(steps, Fraction(0), aligned)
        leading = exact.exponent + exact.significand.bit_length() - 1
        scale = max(leading, self.format.emin)
        places = max(scale - whole.last, self.format.trailing_bits)
        normal = _Term(whole.name, whole.sign, whole.significand << places - (scale - whole.last), places, scale)
        words = self.normalize_words(whole, scale - at, leading)
        steps.append(OperationStep("normalize", words, (normal.row(),)))
        rounding = explain_number(exact, self.operation, self.format, self.attributes, self.random)
        return self.explained(
            [*steps, *self.rounding_steps(normal, rounding)], exact.fraction, aligned, scale - at, rounding
        )

    def sum_of(self, terms: list[_Term], exponent: int) -> _Term:
        """Return the exact sum, at the exponent of the larger term. A zero has the sign of the result."""
        counted = [term for term in terms if term.significand] or terms
        last = min(term.last for term in counted)
        total = sum((-1) ** term.sign * term.significand << term.last - last for term in counted)
        sign = int(total < 0) if total else reference.decode(self.code, self.format).sign
        return _Term("sum", sign, abs(total), exponent - last, exponent)

    def add_words(self, terms: list[_Term], large: _Term, small: _Term, whole: _Term) -> str:
        """Return how the aligned significands are added, in words."""
        mode = RULES[self.attributes.rounding]
        if not large.significand:
            same = terms[0].sign == terms[1].sign
            return "both terms are zeros" + (
                "" if same else f" of different signs: {_zero(whole)} when rounding {mode}"
            )
        if not small.significand:
            return f"{small.name} is zero, so the sum is {large.name}"
        if large.sign == small.sign:
            return "the signs are equal, so the significands are added"
        if not whole.significand:
            return f"the signs differ, and the magnitudes are equal: {_zero(whole)} when rounding {mode}"
        return "the signs differ, so the smaller magnitude is subtracted from the larger"

    def normalize_words(self, whole: _Term, shift: int, leading: int) -> str:
        """Return how the leading bit comes before the point, in words."""
        scale = whole.exponent + shift
        direction = "right" if shift > 0 else "left"
        moved = f"shift {direction} by {_places(abs(shift))}, to the exponent {scale}" if shift else "no shift"
        if leading < self.format.emin:
            return (
                f"{moved}; the leading 1 is worth 2^{leading}, less than the smallest normal number 2^{scale}, so the "
                "number is subnormal and the bit before the point is 0"
            )
        if shift == 0:
            return f"{moved}: the leading 1 is before the point"
        if shift > 0:
            return f"{moved}, because the {whole.name} is 2 or more"
        return f"{moved}, because the leading {'bit is' if shift == -1 else f'{-shift} bits are'} 0"

    def rounding_steps(self, normal: _Term, rounding: Explanation) -> Iterator[OperationStep]:
        """Yield the rounding of the normalized significand, and the result."""
        t, scale = self.format.trailing_bits, normal.exponent
        assert rounding.rounded is not None
        whole, _, behind = rounding.rounded.partition(".")
        carry = f"; the carry makes the exponent {scale + 1}" if len(whole) > 1 else ""
        decision = f"{RULES[self.attributes.rounding]}: {rounding.decision}{carry}"
        rows = (
            replace(normal.row(), kept=t),
            BitRow("rounded", normal.sign, whole + behind, len(whole) - 1, scale, decision),
        )
        yield OperationStep("round", f"p = {t + 1} bits are kept; {rounding.steps[2]}", rows)
        number = reference.decode(self.code, self.format)
        finite = number.kind is reference.Kind.FINITE
        result = (_term_of("result", number, self.format).row(),) if finite else ()
        yield OperationStep("result", rounding.steps[4].removeprefix("result "), result)


def _zero(whole: _Term) -> str:
    return f"the sum is {_SIGNS[whole.sign]}0"


def _exactly(term: _Term) -> str:
    return f"exactly {_number(term.value)}"


def _number(x: Fraction) -> str:
    """Return an exact number in decimal, to 17 digits, with an ellipsis if there are more."""
    # a context of its own: that of the caller has flags of other operations
    with localcontext(Context(prec=17, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[])) as context:
        decimal = (Decimal(x.numerator) / Decimal(x.denominator)).normalize()
        plain = not decimal or Decimal(10) ** -5 <= abs(decimal) < Decimal(10) ** 17
        return (f"{decimal:f}" if plain else f"{decimal:e}") + "..." * bool(context.flags[Inexact])


def _multiply_step(a: _Term, b: _Term, product: _Term) -> OperationStep:
    rule = f"signs {_SIGNS[a.sign]} and {_SIGNS[b.sign]} give {_SIGNS[product.sign]}"
    if not product.significand:
        return OperationStep("multiply", f"{rule}; a factor is zero, so the product is zero", (product.row(),))
    words = f"{rule}, exponents {a.exponent} + {_signed(b.exponent)} = {product.exponent}; multiply the significands"
    return OperationStep("multiply", words, (product.row(note=_exactly(product)),))


def _signed(x: int) -> str:
    return f"({x})" if x < 0 else str(x)


def _align_words(large: _Term, small: _Term) -> str:
    shift = large.exponent - small.exponent
    if not shift:
        return f"no shift: both exponents are {large.exponent}"
    beyond = small.last + small.significand.bit_length() - 1 < large.last
    words = f"shift {small.name} right by {_places(shift)}, from the exponent {small.exponent} to {large.exponent}"
    return words + (f"; all its bits are behind the last bit of {large.name}" if beyond else "")


def _places(count: int) -> str:
    return f"{count} place{'s' * (count > 1)}"


def _special_words(operation: str, numbers: list[reference.Number], fmt: FloatFormat) -> str:
    """Return the rule for an operation with an infinity or a NaN, in the order in which the reference applies them."""
    names = "abc"
    nans = [name for name, x in zip(names, numbers, strict=False) if x.is_nan]
    signalling = any(x.kind is reference.Kind.SIGNALING_NAN for x in numbers)
    signs = [x.sign for x in numbers]
    infinite = [x.is_infinite for x in numbers]
    nan = "a NaN" if fmt.canonical_nan is not None else f"the largest number, because {fmt.name} has no NaN"
    invalid = f"has no value: the operation is invalid, and the result is {nan}"
    product = operation != "add"
    zero_times_infinity = product and any(infinite[:2]) and any(x.is_zero for x in numbers[:2])
    if zero_times_infinity and (operation == "fma" or not nans):
        return f"infinity times zero {invalid}"
    if nans:
        which = f"{' and '.join(nans)} {'is' if len(nans) == 1 else 'are'} NaN, so the result is {nan}"
        return which + ("; a signalling NaN is invalid" if signalling else "")
    sign, of_terms = (signs[0] ^ signs[1], [any(infinite[:2]), *infinite[2:]]) if product else (signs[0], infinite)
    last = signs[-1] if operation != "multiply" else sign
    if all(of_terms) and sign != last:
        return f"infinity minus infinity {invalid}"
    result = sign if of_terms[0] else last
    becomes = "" if fmt.infinity_code is not None else f"; {fmt.name} has no infinity"
    return f"an infinity decides the result: {_SIGNS[result]}infinity, without rounding{becomes}"
