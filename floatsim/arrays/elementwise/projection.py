"""The projection of the IEEE draft P3109: one rounding to a format, with the draft's rules for overflow and parity."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from floatsim.arrays.array.conversion import array
from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.call.draw_arrays import draws
from floatsim.arrays.call.options import resolve
from floatsim.formats import FP64, FloatFormat, FormatLike, as_format, p3109
from floatsim.formats._validation import with_keyword_hints
from floatsim.formats.rounding import Overflow, OverflowLike, Rounding, RoundingLike

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from floatsim.arrays.array.types import Integers, Values
    from floatsim.arrays.call.random_stream import SeedLike

__all__ = ["StochasticRule", "project"]

StochasticRule: TypeAlias = Literal["A", "B", "C"]
_RULES = ("A", "B", "C")
_MAX_BITS = 16
_MAX_RANDOM_BITS = 32  # P + N + 2 <= 53: FP64 values rounded to odd round once more as the exact values do


class _Neighbours(NamedTuple):
    """The magnitudes around the exact ones: codes of the lower ones, and the discarded fractions, from 0 up to 1."""

    codes: NDArray[np.int64]
    fractions: NDArray[np.float64]


@functools.lru_cache(maxsize=64)
def _magnitudes(fmt: FloatFormat) -> NDArray[np.float64]:
    """Return the numbers from 0 to the largest, and the next one, which the format does not have."""
    codes = np.arange(fmt.max_code + 2)
    field, trailing = codes >> fmt.trailing_bits, codes & (1 << fmt.trailing_bits) - 1
    significand = trailing + np.where(field > 0, 1 << fmt.trailing_bits, 0)
    values: NDArray[np.float64] = np.ldexp(
        significand.astype(np.float64), np.maximum(field, 1) - fmt.bias - fmt.trailing_bits
    )
    return values


def _neighbours(magnitudes: NDArray[np.float64], fmt: FloatFormat) -> _Neighbours:
    """Return the numbers below. Beyond the number that follows the largest, its code and the fraction 0."""
    numbers = _magnitudes(fmt)
    codes = np.searchsorted(numbers, magnitudes, side="right") - 1
    lower = numbers[codes]
    spacing = numbers[np.minimum(codes + 1, len(numbers) - 1)] - lower
    outside = codes == len(numbers) - 1
    # both differences are exact: a lower number is 0, or at least half of the upper one; the spacing is a power of two
    rest = np.where(outside, 0.0, magnitudes - lower)
    return _Neighbours(codes, rest / np.where(outside, 1.0, spacing))


def _goes_away(
    near: _Neighbours, negative: NDArray[np.bool_], rounding: Rounding, random: NDArray[np.uint64], random_bits: int,
    rule: StochasticRule,
) -> NDArray[np.bool_]:  # fmt: skip
    """Return which magnitudes go up: clause 4.7.4 of the draft. The parity is the parity of the code."""
    codes, v = near
    even = codes % 2 == 0
    match rounding:
        case Rounding.TIES_TO_EVEN:
            away = (v > 0.5) | ((v == 0.5) & ~even)
        case Rounding.TIES_TO_AWAY:
            away = v >= 0.5
        case Rounding.TOWARD_ZERO:
            away = np.zeros(v.shape, np.bool_)
        case Rounding.TOWARD_POSITIVE:
            away = (v > 0) & ~negative
        case Rounding.TOWARD_NEGATIVE:
            away = (v > 0) & negative
        case Rounding.TO_ODD:
            away = (v > 0) & even
        case Rounding.STOCHASTIC:
            away = _goes_away_at_random(v, random, random_bits, rule)
    return np.asarray(away)


def _goes_away_at_random(
    v: NDArray[np.float64], random: NDArray[np.uint64], random_bits: int, rule: StochasticRule
) -> NDArray[np.bool_]:
    """Return which magnitudes go up: fractions of N bits, and a random number of N bits, sum to 1 or more."""
    bits = np.ldexp(v, random_bits)
    cut = {"A": np.floor(bits), "B": (np.floor(2 * bits) + 1) // 2, "C": np.rint(bits)}[rule]
    return np.asarray(cut + random >= 2.0**random_bits)


def _saturated(
    codes: NDArray[np.int64], x: NDArray[np.float64], fmt: FloatFormat, rounding: Rounding, overflow: Overflow
) -> NDArray[np.int64]:
    """Return codes with sign, after the saturation of clause 4.7.5. `codes` are rounded magnitudes of x."""
    high, low, nan = fmt.max_code, fmt.sign_mask and fmt.sign_mask | fmt.max_code, fmt.canonical_nan
    upper = high if fmt.infinity_code is None else fmt.infinity_code
    lower = nan if not fmt.signed else fmt.sign_mask | upper
    none = overflow is Overflow.INFINITY
    inward = Rounding.TOWARD_ZERO, Rounding.TOWARD_NEGATIVE, *([] if fmt.signed else [Rounding.TO_ODD])
    over = upper if none and rounding not in inward else high
    under = lower if none and rounding not in (Rounding.TOWARD_ZERO, Rounding.TOWARD_POSITIVE) else low
    negative, outside = (x < 0) & (codes != 0), codes > high
    out = np.asarray(np.where(negative, fmt.sign_mask | codes, codes))
    out[outside & ~negative] = over
    out[negative & (outside | (not fmt.signed))] = under
    finite = overflow is Overflow.SATURATE_FINITE
    out[x == np.inf] = high if finite else upper
    out[x == -np.inf] = low if finite or (not fmt.signed and not none) else lower
    out[np.isnan(x)] = nan
    return out


def _draft_format(fmt: FormatLike, argument: str) -> FloatFormat:
    """Return a format of P3109 with at most 16 bits, or raise an error."""
    named = as_format(fmt)
    try:
        draft = p3109(named.bits, named.precision, signed=named.signed, extended=named.has_infinity)
    except ValueError:
        draft = None
    if named != draft or named.bits > _MAX_BITS:
        raise ValueError(
            f"{argument}={named.name} is no format of P3109 with at most {_MAX_BITS} bits; use fs.p3109(8, 3), or "
            "fs.encode for other formats"
        )
    return draft


def _checked_random(random: Any, shape: tuple[int, ...], random_bits: int) -> NDArray[np.uint64]:
    """Return the given random integers, one for each element."""
    given = np.asarray(random)
    if given.dtype.kind not in "iu" or not np.all((given >= 0) & (given < 1 << random_bits)):
        raise ValueError(f"random must be integers from 0 to 2**random_bits - 1 = {(1 << random_bits) - 1}")
    try:
        return np.broadcast_to(given, shape).astype(np.uint64)
    except ValueError:
        raise ValueError(
            f"random has the shape {given.shape}, which does not broadcast to that of x, {shape}"
        ) from None


@with_keyword_hints
def project(
    x: Values, format: FormatLike, *, rounding: RoundingLike | None = None, overflow: OverflowLike | None = None,
    stochastic: StochasticRule = "A", seed: SeedLike | None = None, random: Integers | None = None,
    random_bits: int | None = None,
) -> FloatArray:  # fmt: skip
    """Round values to a format by the rules of the IEEE draft P3109, which differ from `fs.encode` in corner cases.

    Parameters
    ----------
    x : array_like
        Values as in `fs.encode`: arrays, FloatArrays, Python numbers, texts. Each is rounded once.
    format : format
        A format of P3109 with at most 16 bits: `fs.p3109(8, 3)`, "binary8p3se".
    rounding : Rounding or str, optional
        The rounding mode. Default: the context's.
    overflow : Overflow or str, optional
        "infinity" (the draft's SatNone), "saturate_finite" (SatFinite) or "saturate_propagate" (SatPropagate). Default:
        the context's.
    stochastic : "A", "B" or "C"
        The draft's rule of stochastic rounding, with N random bits. The discarded fraction is cut to N bits (A, the
        rule of `fs.encode`), rounded to N bits with ties up (B), or rounded to N bits with ties to even (C).
    seed : int, generator or RandomStream, optional
        The seed of stochastic rounding. The draws are those of `fs.encode`.
    random : array_like of int, optional
        The random integers R in place of a seed, from 0 to 2**random_bits - 1. They broadcast to the shape of x.
    random_bits : int, optional
        N, 1 to 32. Default: the context's.

    Returns
    -------
    FloatArray
        In the format and of the shape of x.

    Raises
    ------
    TypeError
        For an input that is not a number.
    ValueError
        For a format that is not in P3109, for unknown names, and for stochastic rounding without a seed.

    Notes
    -----
    Source: IEEE working group P3109, interim report 4.0 (June 2026, a draft), clauses 4.7.3 to 4.7.5. The page
    "Formats" of the documentation lists the differences from IEEE 754's rules.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.project([1e9, float("inf"), float("nan")], "binary8p3sf").values
    array([57344., 57344.,    nan])
    >>> fs.project([3, 1.5], fs.p3109(8, 1)), fs.project(-1, "binary8p2uf", overflow="saturate_finite")
    (FloatArray([4.0, 1.0], Binary8p1se), FloatArray(0.0, Binary8p2uf))
    """
    named = _draft_format(format, "format")
    if stochastic not in _RULES:
        raise ValueError(f"stochastic must be one of {', '.join(_RULES)}, not {stochastic!r}")
    options = resolve({
        "rounding": rounding, "overflow": overflow, "random_bits": random_bits,
        "seed": 0 if seed is None and random is not None else seed,
    })  # fmt: skip
    mode, bits = options.attributes.rounding, options.attributes.random_bits
    if mode is Rounding.STOCHASTIC and bits > _MAX_RANDOM_BITS:
        raise ValueError(f"random_bits must be at most {_MAX_RANDOM_BITS} here, not {bits}")
    exact = array(x, FP64, rounding="to_odd", overflow="infinity", daz=False, ftz=False).values
    drawn = np.zeros(exact.shape, np.uint64)
    if mode is Rounding.STOCHASTIC:
        if random is not None:
            drawn = _checked_random(random, exact.shape, bits)
        else:
            source = options.attributes.source
            drawn = draws(source, options.seed, 0, exact.size, bits).reshape(exact.shape).astype(np.uint64)
    magnitudes = np.where(np.isfinite(exact), np.abs(exact), 0.0)
    near = _neighbours(magnitudes, named)
    codes = near.codes + _goes_away(near, exact < 0, mode, drawn, bits, stochastic)
    return FloatArray(
        _saturated(codes, exact, named, mode, options.attributes.overflow).astype(named.code_dtype), named
    )
