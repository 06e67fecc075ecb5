"""The explanation of one rounding, step by step, for teaching."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Unpack

from floatsim import reference
from floatsim.arrays.array.conversion import exact_number, float_codes, read
from floatsim.arrays.call.options import RoundingOptions, resolve
from floatsim.formats import FloatFormat, FormatLike, as_format, html_name
from floatsim.formats.call import CallOptions
from floatsim.formats.rounding import INEXACT, INVALID, OVERFLOW, UNDERFLOW, Rounding
from floatsim.reference.random_sources import source_draw

__all__ = [
    "RULES",
    "Explanation",
    "bits_of",
    "code_text",
    "explain_number",
    "explain_rounding",
    "flag_names",
    "random_of",
    "result_text",
    "value_of_code",
]

_FLAG_NAMES = {INVALID: "invalid", OVERFLOW: "overflow", UNDERFLOW: "underflow", INEXACT: "inexact"}

RULES = {
    Rounding.TIES_TO_EVEN: "to nearest, ties to even",
    Rounding.TIES_TO_AWAY: "to nearest, ties away from zero",
    Rounding.TOWARD_ZERO: "toward zero",
    Rounding.TOWARD_POSITIVE: "toward +infinity",
    Rounding.TOWARD_NEGATIVE: "toward -infinity",
    Rounding.TO_ODD: "to odd",
    Rounding.STOCHASTIC: "stochastic",
}


@dataclass(frozen=True)
class Explanation:
    """The steps of one rounding. Prints as text; the fields are for programs.

    Attributes
    ----------
    given : str
        The number as it was given.
    format : FloatFormat
        The target format.
    sign : int
        The sign bit.
    exponent : int or None
        The exponent of the leading bit. None for zeros, infinities and NaNs, as are the next three.
    kept : str or None
        The bits of the significand that are kept.
    guard : int or None
        The first discarded bit.
    sticky : int or None
        1 if any later bit is set, otherwise 0.
    decision : str
        Why the number was rounded up or down.
    rounded : str or None
        The bits of the significand after the rounding. A carry makes them "10.00"; None as above.
    code : int
        The code of the result.
    value : float
        The value of the result.
    flags : int
        The IEEE exceptions that the rounding raised, as a bit mask.
    steps : tuple of str
        The text, one line for each step.
    """

    given: str
    format: FloatFormat
    sign: int
    exponent: int | None
    kept: str | None
    guard: int | None
    sticky: int | None
    decision: str
    rounded: str | None
    code: int
    value: float
    flags: int
    steps: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([f"{self.given} to {self.format.name}", *(f"  {i}. {s}" for i, s in enumerate(self.steps, 1))])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        items = "".join(f"<li>{step}</li>" for step in self.steps)
        return f"<div><b>{self.given}</b> to {html_name(self.format)}<ol>{items}</ol></div>"


def _given(x: Any) -> tuple[reference.Number, str]:
    source = read(x, "x")
    if source.size != 1:
        raise ValueError(f"x must be one number, not an array of shape {source.shape}")
    if not hasattr(source, "codes") and source.dtype.kind in "Oiu":
        item = source.item()
        return exact_number(item, "x"), _shown(item)
    codes, fmt = float_codes(source, "x")
    number = reference.decode(int(codes.item()), fmt)
    return number, repr(x) if isinstance(x, float) else f"{fmt.name} code 0x{int(codes.item()):X}"


_SHOWN = 60  # characters of a given number


def _shown(item: Any) -> str:
    """Return a given number as text, without the middle of a long one. Python writes no integer of 4,300 digits."""
    try:
        text = str(item)
    except ValueError:
        parts = (item,) if isinstance(item, int) else (item.numerator, item.denominator)
        digits = " / ".join(f"{int(part.bit_length() * math.log10(2)) + 1}" for part in parts)
        return f"{type(item).__name__} of about {digits} digits"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN // 2]}...{text[-_SHOWN // 4 :]} ({len(text)} characters)"


def bits_of(code: int, fmt: FloatFormat) -> str:
    """Return the bits of a code, with spaces between sign, exponent and trailing significand."""
    bits = iter(f"{code:0{fmt.bits}b}")
    return " ".join("".join(next(bits) for _ in group) for group in fmt.layout.split())


def code_text(code: int, fmt: FloatFormat) -> str:
    """Return a code in hexadecimal, with all its digits."""
    return f"0x{code:0{(fmt.bits + 3) // 4}X}"


def flag_names(flags: int) -> list[str]:
    """Return the names of the IEEE exceptions of a bit mask."""
    return [name for bit, name in _FLAG_NAMES.items() if flags & bit]


def explain_rounding(x: Any, format: FormatLike, **options: Unpack[RoundingOptions]) -> Explanation:
    """Explain how x is rounded to a format, step by step, in words and bits.

    Parameters
    ----------
    x : float, int, str, Fraction, Decimal, or an array of one element
        The number. A text such as "0.1", "0x1.8p3" or "1/3" is taken exactly.
    format : format
        The target format.
    **options
        The rounding options: `rounding`, `overflow`, `tininess`, `ftz`, `daz`, `random_bits`, `seed` and `offset`, with
        the meanings that they have for `fs.encode`.

    Returns
    -------
    Explanation

    Raises
    ------
    ValueError
        If x is not one number.

    Examples
    --------
    >>> import floatsim as fs
    >>> print(fs.explain_rounding("0.1", "e4m3"))
    0.1 to E4M3
      1. sign + (bit 0); the value is 1.6 x 2^-4
      2. significand in binary: 1.1001100110011001..., of which p = 4 bits are kept: 1.100 | 1100110011001...
      3. guard bit 1, sticky 1 (some later bit is set): 0.8 of the way to the next number
      4. to nearest, ties to even: more than half way, so up: 1.101
      5. result 0.1015625 = 1.101b x 2^-4, bits 0 0011 101, code 0x1D; flags: inexact
    """
    format, call_options = as_format(format), resolve(options)
    number, given = _given(x)
    return explain_number(number, given, format, call_options.attributes, random_of(call_options))


def random_of(options: CallOptions) -> int:
    """Return the draw of the first element of a call; 0 if its rounding is not stochastic."""
    attributes = options.attributes
    if attributes.rounding is not Rounding.STOCHASTIC:
        return 0
    return source_draw(attributes.source, options.seed, options.offset, attributes.random_bits)


def explain_number(
    number: reference.Number, given: str, fmt: FloatFormat, attributes: reference.RoundingAttributes, random: int
) -> Explanation:
    """Explain how an exact number is rounded to a format. `given` is the number as text."""
    code, events = reference.convert(number, fmt, attributes, random)
    flags = events & 31
    value = float(value_of_code(code, fmt))
    result = result_text(code, fmt, flags)
    outside = fmt.is_scale and (number.sign or not fmt.has_zero)
    if number.kind is not reference.Kind.FINITE or number.is_zero or outside:
        kind = "zero" if number.is_zero else number.kind.value
        scale = "a scale format holds only powers of two" if not fmt.has_zero else f"{fmt.name} has no negative numbers"
        steps = (scale if outside else f"the value is {kind}", f"result {value}, {result}")
        return Explanation(given, fmt, number.sign, None, None, None, None, kind, None, code, value, flags, steps)
    return _explain_finite(number, fmt, attributes, random, given, code, value, flags, result)


def result_text(code: int, fmt: FloatFormat, flags: int) -> str:
    """Return the bits and the code of a result, and its flags."""
    return f"bits {bits_of(code, fmt)}, code {code_text(code, fmt)}; flags: {', '.join(flag_names(flags)) or 'none'}"


def value_of_code(code: int, fmt: FloatFormat) -> Fraction | float:
    """Return the exact value of a code; a float for infinities, NaN and -0."""
    number = reference.decode(code, fmt)
    if number.is_nan:
        return float("nan")
    if number.is_infinite:
        return float("-inf") if number.sign else float("inf")
    return -0.0 if number.is_zero and number.sign else number.fraction


def _explain_finite(
    number: reference.Number,
    fmt: FloatFormat,
    attributes: reference.RoundingAttributes,
    random: int,
    given: str,
    code: int,
    value: float,
    flags: int,
    result: str,
) -> Explanation:
    t = fmt.trailing_bits
    e = number.exponent + number.significand.bit_length() - 1
    scale = max(e, fmt.emin)  # a subnormal has the smallest normal's exponent and leading zeros
    shift = scale - t - number.exponent
    wide = number if shift > 0 else replace(number, significand=number.significand << 1 - shift, exponent=scale - t - 1)
    shift = max(shift, 1)
    kept, discarded = wide.significand >> shift, wide.significand & ((1 << shift) - 1)
    guard = discarded >> (shift - 1)
    sticky = int(number.sticky or discarded & ((1 << (shift - 1)) - 1) != 0)
    kept_bits = f"{kept >> t}.{kept & ((1 << t) - 1):0{t}b}" if t else f"{kept}."
    tail = f"{discarded:0{shift}b}"
    shown = tail[:13] + ("..." if len(tail) > 13 or number.sticky else "")
    binary = kept_bits + tail[: max(0, 16 - t)]
    dots = "..." if len(tail) > max(0, 16 - t) or number.sticky else ""
    delta = Fraction(discarded, 1 << shift)
    rounded, inexact = reference.round_significand(number, scale - t, attributes, random)
    up = rounded > kept
    rule = RULES[attributes.rounding]
    if not inexact:
        decision = "the value is exact"
    elif attributes.rounding is Rounding.STOCHASTIC:
        bits, draws = attributes.random_bits, 1 << attributes.random_bits
        upward = discarded * draws >> shift
        which = f", those from {draws - upward} on" if upward else ""
        decision = f"{upward} of the 2^{bits} draws round up{which}; this draw is {random}, so {'up' if up else 'down'}"
    else:
        position = "exactly half way" if guard and not sticky else f"{'more' if guard else 'less'} than half way"
        decision = f"{position}, so {'up' if up else 'down'}"
    rounded_bits = f"{rounded >> t:b}.{rounded & ((1 << t) - 1):0{t}b}" if t else f"{rounded:b}."
    fraction, cut = _exact(number, given)
    exact = f"{_decimal(abs(fraction) / Fraction(2) ** e, cut)} x 2^{e}"
    subnormal = "" if e >= fmt.emin else f"; below the smallest normal, 2^{fmt.emin}, the leading bits are 0"
    outcome = f"result {value:.17g} = {rounded_bits}b x 2^{scale}, {result}"
    if flags & OVERFLOW:
        beyond = f"{rounded_bits}b x 2^{scale} is beyond max = {fmt.max:.17g}"
        outcome = f"{beyond}: overflow policy {attributes.overflow.name.lower()!r} gives {value:.17g}, {result}"
    elif code & fmt.magnitude_mask == 0 and rounded:
        outcome = f"the result is tiny, and flush-to-zero (ftz) makes it {value:.17g}, {result}"
    steps = (
        f"sign {'-' if number.sign else '+'} (bit {number.sign}); the value is {exact}{subnormal}",
        f"significand in binary: {binary}{dots}, of which p = {fmt.precision} bits are kept: {kept_bits} | {shown}",
        f"guard bit {guard}, sticky {sticky} ({'some' if sticky else 'no'} later bit is set): "
        f"{float(delta):.6g} of the way to the next number",
        f"{rule}: {decision}: {rounded_bits}",
        outcome,
    )
    return Explanation(
        given, fmt, number.sign, e, kept_bits, guard, sticky, decision, rounded_bits, code, value, flags, steps
    )


def _exact(number: reference.Number, given: str) -> tuple[Fraction, bool]:
    """Return the value, and whether digits are missing. The text may have more digits than the number read from it."""
    if number.sticky:
        try:
            return Fraction(given), False
        except ValueError:  # a hexadecimal text, for example
            return number.fraction, True
    return number.fraction, False


def _decimal(x: Fraction, sticky: bool) -> str:
    """Return x in decimal, with all digits if it has at most 22 after the point."""
    digits = 22
    scaled = x * 10**digits
    text = f"{int(scaled):0{digits + 1}d}"
    text = f"{text[:-digits]}.{text[-digits:]}"
    if sticky or scaled.denominator != 1:
        return text[: digits + 1] + "..."
    return text.rstrip("0").rstrip(".")
