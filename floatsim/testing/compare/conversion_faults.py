"""Faults of conversions: other roundings, formats on the way, special values, and codes that are stored wrongly.

`options_of`, `ROUTES` and `FACTORS` describe the conversions of another kernel, as data. `CODE_FAULTS` lists the faults
of the codes. A fault is named only if the emulated conversion with it has the bits of `actual` in all elements.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from floatsim._warnings import FloatsimWarning
from floatsim.arrays.array.conversion import as_float_array, convert
from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.elementwise.comparison import isnan
from floatsim.formats import FloatFormat, Specials, named_formats
from floatsim.formats.rounding import OVERFLOW, Overflow, Rounding, Tininess
from floatsim.formats.value_sets import contains

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Conversion", "Fault", "explain_conversion", "nibbles_swapped"]

_EXAMINED = 4096  # mismatches, and as many other elements: candidates differ there, or are evaluated on all elements
_FIRST = 128  # the same, before: most candidates differ there
_LISTED = 3  # faults with equal bits that the text names
_OPTION_KINDS = ("rounding", "overflow", "ftz", "daz")
_DETERMINISTIC = tuple(mode for mode in Rounding if mode is not Rounding.STOCHASTIC)


@dataclass(frozen=True)
class Conversion:
    """A conversion of x to a format.

    Attributes
    ----------
    x : FloatArray
        The source.
    format : FloatFormat
        The format of the result.
    options : dict
        The keywords of `fs.convert`.
    route : tuple of (FloatFormat, dict)
        The formats on the way, each with the keywords of its own rounding.
    exponent : int
        x is multiplied by 2**exponent first, exactly.
    """

    x: FloatArray
    format: FloatFormat
    options: dict[str, Any]
    route: tuple[tuple[FloatFormat, dict[str, Any]], ...] = ()
    exponent: int = 0

    @functools.cached_property
    def result(self) -> FloatArray:
        """The emulated conversion."""
        return self._rounded()

    @functools.cached_property
    def overflowed(self) -> NDArray[np.bool_]:
        """Where the rounded magnitude is beyond the largest finite number."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FloatsimWarning)
            flags = convert(self.x, self.format, **self.options, return_flags=True)[1]
        return np.asarray(flags & OVERFLOW, bool)

    @functools.cached_property
    def truncated(self) -> FloatArray:
        """The same conversion with the rounding mode toward zero."""
        return self.changed(rounding=Rounding.TOWARD_ZERO).result

    def changed(self, **options: Any) -> Conversion:
        """Return the conversion with other keywords."""
        kept = self.options if "rounding" not in options else without_draws(self.options)
        return replace(self, options={**kept, **options})

    def of(self, part: Any) -> Conversion:
        """Return the conversion of some elements, in one dimension."""
        return replace(self, x=FloatArray(self.x.codes.reshape(-1)[part], self.x.format))

    def _rounded(self) -> FloatArray:
        x = self.x
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore", FloatsimWarning)
            if self.exponent:
                x = as_float_array(np.ldexp(np.asarray(x.values), self.exponent), "x")
            for fmt, options in self.route:
                x = as_float_array(convert(x, fmt, **options), "x")
            return as_float_array(convert(x, self.format, **self.options), "the result")


def without_draws(options: dict[str, Any]) -> dict[str, Any]:
    """Return keywords without those of stochastic rounding."""
    return {name: value for name, value in options.items() if name not in ("seed", "random_bits")}


@dataclass(frozen=True)
class Fault:
    """A fault in words, its kind, and the codes of a conversion with it; None if the fault is not for the formats."""

    text: str
    kind: str
    codes: Callable[[Conversion], NDArray[Any] | None] = field(compare=False)


# -- other conversions -------------------------------------------------------------------------------------------------


def _changed(text: str, kind: str, change: Callable[[Conversion], Conversion]) -> Fault:
    return Fault(text, kind, lambda conversion: change(conversion).result.codes)


def options_of(conversion: Conversion) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the text, the kind and the keywords of conversions that differ in one option.

    >>> import floatsim as fs
    >>> [text for text, kind, _ in options_of(Conversion(fs.array([1.0], "fp32"), fs.BF16, {})) if kind == "overflow"]
    ["overflow='saturate_finite'", "overflow='saturate_propagate'"]
    """
    given = conversion.options.get("rounding", Rounding.TIES_TO_EVEN)
    for mode in _DETERMINISTIC:
        if mode is not given:
            yield f"rounding={mode.name.lower()!r}", "rounding", {"rounding": mode}
    policy = conversion.options.get("overflow", Overflow.INFINITY)
    for other in Overflow:
        if other is not policy:
            yield f"overflow={other.name.lower()!r}", "overflow", {"overflow": other}
    for name in ("ftz", "daz"):
        value = not conversion.options.get(name, False)
        yield f"{name}={value}", name, {name: value}
    before = conversion.options.get("tininess", Tininess.AFTER) is Tininess.AFTER
    tininess = Tininess.BEFORE if before else Tininess.AFTER
    text = f"tininess={tininess.name.lower()!r}"
    if conversion.options.get("ftz", False):
        yield text, "ftz", {"tininess": tininess}
    else:
        yield f"ftz=True, {text}", "ftz", {"ftz": True, "tininess": tininess}


ROUTES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("", {"rounding": Rounding.TIES_TO_EVEN}),
    (" toward zero", {"rounding": Rounding.TOWARD_ZERO}),
    (", saturated", {"rounding": Rounding.TIES_TO_EVEN, "overflow": Overflow.SATURATE_FINITE}),
    (" with FTZ", {"rounding": Rounding.TIES_TO_EVEN, "ftz": True}),
)
"""How an intermediate format rounds, in words and as keywords."""
FACTORS = (1, -1, 2, -2, 3, -3, 4, -4, 8, -8)
"""The exponents of factors by which x is scaled wrongly."""


def _conversions(conversion: Conversion) -> Iterator[Fault]:
    """Yield the conversions that differ in one step."""
    source, target = conversion.x.format, conversion.format
    for text, kind, keywords in options_of(conversion):
        yield _changed(text, kind, lambda x, keywords=keywords: x.changed(**keywords))  # type: ignore[misc]
    for fmt in sorted(named_formats(), key=lambda fmt: fmt.dtype is None):  # TF32 after FP16
        if fmt.is_scale or fmt in (source, target) or contains(fmt, source):
            continue
        for words, keywords in ROUTES:
            text = f"x is first rounded to {fmt.name}{words}: two roundings"
            step = (fmt, keywords)
            yield _changed(text, f"route {fmt.name}", lambda x, step=step: replace(x, route=(step,)))  # type: ignore[misc]
    for n in FACTORS:
        text = f"x is multiplied by {2.0**n:g} before the conversion"
        yield _changed(text, "factor", lambda x, n=n: replace(x, exponent=n))  # type: ignore[misc]


# -- faults of codes ---------------------------------------------------------------------------------------------------


def _signs(conversion: Conversion) -> NDArray[Any]:
    """Return the sign bit of x at its place in the result; 0 for scale formats."""
    x, target = conversion.x, conversion.format
    negative = (x.codes & x.codes.dtype.type(x.format.sign_mask)) != 0
    return np.where(negative, target.sign_mask, 0).astype(target.code_dtype)


def _special(where: str, fill: str, signed: bool) -> Callable[[Conversion], NDArray[Any] | None]:
    """Return the codes with another code for NaN, for infinity, or for finite numbers that overflow."""

    def codes(conversion: Conversion) -> NDArray[Any] | None:
        fmt = conversion.format
        code = {"0": 0, "max": fmt.max_code, "infinity": fmt.infinity_code, "NaN": fmt.canonical_nan}[fill]
        if code is None:
            return None
        values = np.asarray(conversion.x.values)
        places = {"NaN": np.isnan(values), "infinity": np.isinf(values), "overflow": conversion.overflowed}[where]
        filled = np.asarray(code, fmt.code_dtype) | (_signs(conversion) if signed else np.asarray(0, fmt.code_dtype))
        return np.where(places, filled, conversion.result.codes)

    return codes


def _early_overflow(conversion: Conversion) -> NDArray[Any] | None:
    """Test the range before the rounding: what exceeds the largest number overflows, though it would round to it."""
    fmt = conversion.format
    values = np.asarray(conversion.x.values)
    code = fmt.infinity_code if fmt.has_infinity else fmt.canonical_nan
    if code is None:
        return None
    filled = np.asarray(code, fmt.code_dtype) | (_signs(conversion) if fmt.has_infinity else 0)
    return np.where(np.abs(values) > fmt.max, filled, conversion.result.codes)


def _wrapped(conversion: Conversion) -> NDArray[Any] | None:
    """Do not test the range: the exponent field wraps."""
    fmt = conversion.format
    if fmt.is_scale or fmt.exponent_bits > 9:
        return None
    wide = FloatFormat("wide", fmt.exponent_bits + 2, fmt.trailing_bits, Specials.FINITE, fmt.bias)
    codes = replace(conversion, format=wide).result.codes & fmt.magnitude_mask
    finite = np.isfinite(np.asarray(conversion.x.values))
    return np.where(finite, codes.astype(fmt.code_dtype) | _signs(conversion), conversion.result.codes)


def _no_carry(kept: bool) -> Callable[[Conversion], NDArray[Any] | None]:
    """Drop the carry of the rounding from the significand into the exponent."""

    def codes(conversion: Conversion) -> NDArray[Any] | None:
        fmt, right, cut = conversion.format, conversion.result.codes, conversion.truncated.codes
        carried = (right >> fmt.trailing_bits) != (cut >> fmt.trailing_bits)
        carried &= np.isfinite(np.asarray(conversion.x.values))
        wrapped = cut & cut.dtype.type((fmt.sign_mask | fmt.magnitude_mask) >> fmt.trailing_bits << fmt.trailing_bits)
        return np.where(carried, cut if kept else wrapped, right)

    return codes


def _flushed(sign: bool) -> Callable[[Conversion], NDArray[Any] | None]:
    """Flush the results that are subnormal after the rounding."""

    def codes(conversion: Conversion) -> NDArray[Any] | None:
        fmt, right = conversion.format, conversion.result.codes
        if not fmt.has_subnormals:
            return None
        magnitude = right & fmt.magnitude_mask
        zero = right & right.dtype.type(fmt.sign_mask if sign and fmt.has_signed_zero else 0)
        return np.where((magnitude >> fmt.trailing_bits == 0) & (magnitude != 0), zero, right)

    return codes


def _sign_changed(change: str) -> Callable[[Conversion], NDArray[Any] | None]:
    """Drop or invert the sign of numbers, or drop the sign of zeros."""

    def codes(conversion: Conversion) -> NDArray[Any] | None:
        fmt, right = conversion.format, conversion.result.codes
        if not fmt.signed:
            return None
        sign = right.dtype.type(fmt.sign_mask)
        numbers = ~np.asarray(isnan(conversion.result))
        zeros = (right & fmt.magnitude_mask == 0) & fmt.has_signed_zero
        if change == "inverted":
            return np.where(numbers & (zeros | (right & fmt.magnitude_mask != 0)), right ^ sign, right)
        return np.where(numbers & (zeros if change == "of zeros" else True), right & ~sign, right)

    return codes


def _kept_nan(conversion: Conversion) -> NDArray[Any] | None:
    """Keep the sign of NaN."""
    if conversion.format.canonical_nan in (None, conversion.format.sign_mask):
        return None
    nan = np.asarray(isnan(conversion.x))
    return np.where(nan, conversion.result.codes | _signs(conversion), conversion.result.codes)


def _shares_exponents(conversion: Conversion) -> bool:
    """Return whether the codes of the result are the first bits of the codes of x."""
    x, fmt = conversion.x.format, conversion.format
    same = (x.exponent_bits, x.bias, x.specials, x.signed) == (fmt.exponent_bits, fmt.bias, fmt.specials, fmt.signed)
    return same and x.trailing_bits > fmt.trailing_bits


def _cut_code(conversion: Conversion) -> NDArray[Any] | None:
    """Take the first bits of the code, also of NaN."""
    if not _shares_exponents(conversion):
        return None
    dropped = conversion.x.format.trailing_bits - conversion.format.trailing_bits
    return (conversion.x.codes >> dropped).astype(conversion.format.code_dtype)


def _rounded_code(conversion: Conversion) -> NDArray[Any] | None:
    """Round the code as an integer, also that of NaN."""
    if not _shares_exponents(conversion):
        return None
    x, fmt = conversion.x.codes, conversion.format
    dropped = conversion.x.format.trailing_bits - fmt.trailing_bits
    kind = x.dtype.type
    with np.errstate(over="ignore"):
        rounded = x + kind((1 << dropped - 1) - 1) + (x >> dropped & kind(1))
    return np.where(np.asarray(isnan(conversion.x)), (rounded >> dropped), conversion.result.codes).astype(
        fmt.code_dtype
    )


def nibbles_swapped(codes: NDArray[Any], bits: int) -> NDArray[Any] | None:
    """Return codes of at most 4 bits in which the elements that share a byte are in the opposite order.

    >>> nibbles_swapped(np.uint8([[1, 2, 3, 4]]), 4)
    array([[2, 1, 4, 3]], dtype=uint8)
    """
    several = 8 // bits if bits in (1, 2, 4) else 0
    if several < 2 or codes.ndim == 0 or codes.size % several:
        return None
    return np.ascontiguousarray(codes.reshape(-1, several)[:, ::-1]).reshape(codes.shape)


def _nibbles(conversion: Conversion) -> NDArray[Any] | None:
    return nibbles_swapped(conversion.result.codes, conversion.format.bits)


def _bytes(conversion: Conversion) -> NDArray[Any] | None:
    codes = conversion.result.codes
    return codes.byteswap() if codes.dtype.itemsize > 1 and conversion.format.bits == 8 * codes.itemsize else None


WHOLE: tuple[Fault, ...] = (
    Fault("the codes of each byte are in the opposite order: the order of the nibbles", "layout", _nibbles),
    Fault("the bytes of each code are in the opposite order: the byte order", "layout", _bytes),
)
"""The faults whose elements depend on others: they are evaluated on all elements."""

CODE_FAULTS: tuple[Fault, ...] = (
    Fault("the rounding's carry into the exponent is dropped: the significand wraps to 0", "carry", _no_carry(False)),
    Fault("the rounding's carry into the exponent is dropped: the number is truncated", "carry", _no_carry(True)),
    Fault("results that are subnormal after the rounding are flushed to zero: FTZ", "flushed", _flushed(True)),
    Fault("subnormal results are flushed to +0, also negative ones: FTZ", "flushed", _flushed(False)),
    Fault("the range is tested before the rounding: numbers that would round to the largest number overflow",
          "range", _early_overflow),
    Fault("overflow is not tested: the exponent field wraps", "range", _wrapped),
    *(Fault(f"{words} become {'+-' if signed else ''}{fill}", where, _special(where, fill, signed))
      for where, words in (("NaN", "NaN rule: NaNs"), ("infinity", "infinities"),
                           ("overflow", "overflow: finite numbers beyond the range"))
      for fill in ("0", "max", "infinity", "NaN") for signed in (True, False)),
    Fault("NaN rule: NaNs keep their sign", "NaN", _kept_nan),
    Fault("the first bits of each code are taken, without a rounding and without a test for NaN", "NaN", _cut_code),
    Fault("NaN rule: the code of NaN is rounded as an integer", "NaN", _rounded_code),
    Fault("zeros lose their sign", "sign", _sign_changed("of zeros")),
    Fault("the sign is dropped", "sign", _sign_changed("dropped")),
    Fault("the sign is inverted", "sign", _sign_changed("inverted")),
)  # fmt: skip
"""The faults of single codes."""


def _as_written_for(fmt: FloatFormat) -> Callable[[Conversion], NDArray[Any] | None]:
    def codes(conversion: Conversion) -> NDArray[Any] | None:
        return replace(conversion, format=fmt).result.codes

    return codes


def _formats(conversion: Conversion) -> Iterator[Fault]:
    """Yield the codes of formats of the same width, and of the same fields with another bias."""
    fmt = conversion.format
    for other in named_formats():
        if other.bits == fmt.bits and other != fmt:
            yield Fault(f"the codes are those of {other.name}, not of {fmt.name}", "format", _as_written_for(other))
    for step in (-2, -1, 1, 2):
        try:
            other = FloatFormat(fmt.name, fmt.exponent_bits, fmt.trailing_bits, fmt.specials, fmt.bias + step)
        except ValueError:  # numbers beyond float64
            continue
        text = f"the exponent bias is {other.bias}, not {fmt.bias}"
        yield Fault(text, "bias", _as_written_for(other))


# -- the search --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Stage:
    """Some elements of a conversion, and the bits of the kernel there. NaNs are alike, unless their bits are compared.

    `changed` holds the conversion with one other option, by the text of the option.
    """

    conversion: Conversion
    actual: FloatArray
    nan_bits: bool

    @functools.cached_property
    def changed(self) -> dict[str, Conversion]:
        return {text: self.conversion.changed(**keywords) for text, _, keywords in options_of(self.conversion)}

    def agrees(self, codes: NDArray[Any] | None) -> bool:
        """Return whether codes are those of `actual`."""
        if codes is None:
            return False
        equal = codes == self.actual.codes
        if not self.nan_bits and not equal.all():
            equal = equal | (np.asarray(isnan(FloatArray(codes, self.actual.format))) & self._nan)
        return bool(equal.all())

    @functools.cached_property
    def _nan(self) -> NDArray[np.bool_]:
        return np.asarray(isnan(self.actual))

    def singles(self, fault: Fault) -> bool:
        return self.agrees(fault.codes(self.conversion))

    def pairs(self, pair: tuple[str, Fault]) -> bool:
        return self.agrees(pair[1].codes(self.changed[pair[0]]))


def explain_conversion(conversion: Conversion, actual: FloatArray, differs: NDArray[np.bool_]) -> str | None:
    """Return the fault that explains the mismatches of a conversion, or None.

    >>> import numpy as np
    >>> import floatsim as fs
    >>> x = fs.array(np.linspace(-2, 2, 1000), "fp32")
    >>> conversion = Conversion(x, fs.E4M3, {})
    >>> actual = fs.array(x, "e4m3", rounding="toward_zero")
    >>> explain_conversion(conversion, actual, actual.codes != conversion.result.codes)
    "actual has the bits of rounding='toward_zero'"
    """
    nan_bits = bool((np.asarray(isnan(actual)) & np.asarray(isnan(conversion.result)) & differs).any())
    whole = _Stage(conversion, actual, nan_bits)
    if found := list(filter(whole.singles, WHOLE)):
        return _text([fault.text for fault in found])
    draws = conversion.options.get("rounding") is Rounding.STOCHASTIC  # they belong to the places of the elements
    stages = [whole]
    for most in () if draws else (_EXAMINED, _FIRST):
        if (places := _examined(differs, most)).size < differs.size:
            part = FloatArray(actual.codes.reshape(-1)[places], actual.format)
            stages.insert(0, _Stage(conversion.of(places), part, nan_bits))
    singles = [*_conversions(conversion), *CODE_FAULTS, *_formats(conversion)]
    faults = [fault for fault in singles if all(stage.singles(fault) for stage in stages)]
    if faults:
        return _text(_listed(faults))
    if (text := _stochastic(whole)) is not None:
        return text
    pairs = [pair for pair in _pairs(conversion) if all(stage.pairs(pair) for stage in stages)]
    return _text(list(dict.fromkeys(f"{text}, and {fault.text}" for text, fault in pairs)))


def _pairs(conversion: Conversion) -> Iterator[tuple[str, Fault]]:
    """Yield conversions that differ in a rounding option and in one more step."""
    kinds = {text: kind for text, kind, _ in options_of(conversion)}
    order = {text: n for n, text in enumerate(kinds)}
    for text, fault in itertools.product(kinds, [*_conversions(conversion), *CODE_FAULTS]):
        if fault.kind != kinds[text] and order.get(fault.text, len(order)) > order[text]:
            yield text, fault


def _examined(differs: NDArray[np.bool_], most: int) -> NDArray[np.intp]:
    """Return the places of some mismatches, and of as many other elements, spread over the array."""
    chosen = []
    for places in (np.flatnonzero(differs), np.flatnonzero(~differs)):
        spread = np.linspace(0, len(places) - 1, min(len(places), most)).astype(np.intp)
        chosen.append(places[spread])
    return np.sort(np.concatenate(chosen))


def _listed(faults: list[Fault]) -> list[str]:
    """Return the texts of faults with equal bits: of each format on the way the simplest one.

    A format on the way is not listed if another rounding option alone gives the bits.
    """
    options = any(fault.kind in _OPTION_KINDS for fault in faults)
    simplest: dict[str, Fault] = {}
    for fault in faults:
        route = fault.kind.startswith("route")
        if not (route and options):
            simplest.setdefault(fault.kind if route else fault.text, fault)
    return [fault.text for fault in simplest.values()]


def _text(texts: list[str]) -> str | None:
    """Return faults that have equal bits here as a sentence."""
    if not texts:
        return None
    more = f"; or {len(texts) - _LISTED} more" if len(texts) > _LISTED else ""
    named = [f"actual has the bits of {text}" if re.match(r"\w+=", text) else text for text in texts[:_LISTED]]
    return "; or ".join(named) + more


_MANY = 64  # inexact results: fewer are no evidence of stochastic rounding
_SIGMAS = 5


def _stochastic(stage: _Stage) -> str | None:
    """Return a text if each result is a neighbour of x, up as often as stochastic rounding rounds up."""
    conversion, actual = stage.conversion, stage.actual
    if conversion.options.get("rounding") is Rounding.STOCHASTIC:
        return None
    down, up = (
        conversion.changed(rounding=mode).result for mode in (Rounding.TOWARD_NEGATIVE, Rounding.TOWARD_POSITIVE)
    )
    neighbour = (actual.codes == down.codes) | (actual.codes == up.codes) | (actual.codes == conversion.result.codes)
    inexact = (down.codes != up.codes) & np.isfinite(down.values) & np.isfinite(up.values)
    if inexact.sum() < _MANY or not neighbour[~np.asarray(isnan(conversion.x))].all():
        return None
    low, high = np.asarray(down.values)[inexact], np.asarray(up.values)[inexact]
    with np.errstate(all="ignore"):
        share = (np.asarray(conversion.x.values)[inexact] - low) / (high - low)
    went_up = (actual.codes == up.codes)[inexact]
    variance = float((share * (1 - share)).sum())
    if not math.isfinite(variance) or variance <= 0:
        return None
    # a deterministic mode rounds as the fraction says, too: the fractions of what was rounded away tell them apart
    away = float(np.where(went_up, 1 - share, share).sum())
    if abs(float(went_up.sum()) - float(share.sum())) > _SIGMAS * math.sqrt(variance):
        return None
    if abs(away - 2 * variance) > _SIGMAS * math.sqrt(variance):
        return None
    return "stochastic rounding: every result is a neighbour of x, the upper one as often as the fraction requires"
