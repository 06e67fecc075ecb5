"""Mathematical functions over whole input spaces: all codes of small formats by MPFR, and all of FP32.

For FP32, NumPy's float64 functions decide. Each value is split into a base of few bits and a rest, as 1 and expm1(x),
so that a relative error of the rest is far below the base's last bit. NumPy states errors of at most 4 ulp: both ends
of the rest, widened by 2**-46, must round alike. MPFR decides the others, and their number is part of the result.

That takes four microseconds for each value. `float32_ends` takes a twentieth of a microsecond. It compares what all
modes have in common: the two ends of the kernels, between which the value lies. `float32_nearest` takes less again:
it compares kernels of one float64 number with these ends.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import oracles as o
from floatsim_kernels.functions.loops import ends as ends_kernel

import floatsim as fs
from floatsim.arrays.call.options import resolve
from floatsim.emulator import backend as emulator

__all__ = ["FLOAT32_FUNCTIONS", "codes_by_mpfr", "float32_by_numpy", "float32_ends", "float32_nearest", "pairs_by_mpfr"]

_MARGIN = 2.0**-46
_TINY, _HUGE = 2.0**-1000, 2.0**1000
Parts = tuple[np.ndarray, np.ndarray]
Found = list[tuple[str, o.OracleRounding, tuple[np.ndarray, ...], tuple, tuple]]


def _series(x: np.ndarray, *coefficients: float) -> np.ndarray:
    """The odd or even power series x**2 * (c0 + c1 x**2 + ...)."""
    square, total = x * x, np.zeros_like(x)
    for c in reversed(coefficients):
        total = total * square + c
    return total * square


def _exp(x: np.ndarray) -> Parts:
    near = np.abs(x) < 0.3
    return np.where(near, 1.0, 0.0), np.where(near, np.expm1(x), np.exp(x))


def _sin(x: np.ndarray) -> Parts:
    near = np.abs(x) < 2.0**-8
    rest = x * _series(x, -1 / 6, 1 / 120, -1 / 5040)
    return np.where(near, x, 0.0), np.where(near, rest, np.sin(x))


def _cos(x: np.ndarray) -> Parts:
    near = np.abs(x) < 2.0**-8
    return np.where(near, 1.0, 0.0), np.where(near, _series(x, -1 / 2, 1 / 24, -1 / 720, 1 / 40320), np.cos(x))


def _tanh(x: np.ndarray) -> Parts:
    near, far = np.abs(x) < 2.0**-8, np.abs(x) > 8
    e = np.exp(-2 * np.abs(x))
    rest = np.where(near, x * _series(x, -1 / 3, 2 / 15, -17 / 315, 62 / 2835), np.tanh(x))
    base = np.where(near, x, np.where(far, np.sign(x), 0.0))
    return base, np.where(far, -np.sign(x) * np.maximum(2 * e / (1 + e), _TINY), rest)


def _sigmoid(x: np.ndarray) -> Parts:
    near, far, e = np.abs(x) < 2.0**-8, x > 8, np.exp(-np.abs(x))
    small = x * (1 / 4 + _series(x, -1 / 48, 1 / 480, -17 / 80640))
    rest = np.where(x < 0, e / (1 + e), np.where(far, -np.maximum(e / (1 + e), _TINY), 1 / (1 + e)))
    return np.where(near, 0.5, np.where(far, 1.0, 0.0)), np.where(near, small, rest)


def _base_of_zero(function: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], Parts]:
    return lambda x: (np.zeros_like(x), function(x))


FLOAT32_FUNCTIONS: dict[str, Callable[[np.ndarray], Parts]] = {
    "exp": _exp,
    "exp2": lambda x: tuple(
        np.where(np.abs(x) < 0.3, a, b)
        for a, b in ((np.ones_like(x), np.zeros_like(x)), (np.expm1(x * np.log(2)), np.exp2(x)))
    ),
    "log": _base_of_zero(np.log),
    "log2": _base_of_zero(np.log2),
    "sin": _sin,
    "cos": _cos,
    "tanh": _tanh,
    "rsqrt": _base_of_zero(lambda x: 1 / np.sqrt(x)),
    "reciprocal": _base_of_zero(lambda x: 1 / x),
    "sigmoid": _sigmoid,
}
_NEGATIVES_ARE_INVALID = {"log", "log2", "rsqrt"}


def _computed(name: str, operands: tuple[np.ndarray, ...], fmt: fs.FloatFormat, rounding: o.OracleRounding) -> tuple:
    """Codes and events with events, and codes without."""
    pairs = [(x, fmt) for x in operands]
    codes, events = emulator.function(name, pairs, fmt, resolve(rounding.keywords))
    plain, _ = emulator.function(name, pairs, fmt, resolve(rounding.keywords), False)
    return codes, events, plain


def _by_mpfr(
    name: str, operands: tuple[np.ndarray, ...], fmt: fs.FloatFormat, ways: list[o.OracleRounding]
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Codes and events of each way, with one evaluation of each row for all ways that read subnormals alike."""
    at, rows = o.layout(fmt), list(zip(*(x.tolist() for x in operands), strict=True))
    found: dict[tuple, o.Function] = {}
    results = []
    for way in ways:
        pairs = []
        for row in rows:
            values = tuple(at.decode(c, way.daz) for c in row)
            key = tuple((v.kind, v.sign, v.magnitude) for v in values)
            if key not in found:
                found[key] = o.Function(name, values, fmt)
            pairs.append(found[key](way))
        codes, events = np.array(pairs, np.uint64).reshape(-1, 2).T
        results.append((codes.astype(fmt.code_dtype), events.astype(np.uint8)))
    return results


def _all_ways(chunk: int) -> list[o.OracleRounding]:
    """One way to round for each mode, with policies that the chunk draws."""
    rng, every = np.random.default_rng(chunk), o.every_rounding()
    return [ways[rng.integers(len(ways))] for m in o.DETERMINISTIC for ways in [[w for w in every if w.rounding is m]]]


def _compared(name: str, operands: tuple[np.ndarray, ...], fmt: fs.FloatFormat, ways: list) -> Found:
    found: Found = []
    for way, (codes, events) in zip(ways, _by_mpfr(name, operands, fmt, ways), strict=True):
        got, happened, plain = _computed(name, operands, fmt, way)
        found.append((name, way, operands, (got, happened, plain), (codes, events, codes)))
    return found


def codes_by_mpfr(fmt: fs.FloatFormat, name: str, size: int, chunk: int) -> Found:
    """All codes of a chunk, in all six modes."""
    return _compared(name, (fmt.codes()[chunk * size : (chunk + 1) * size],), fmt, _all_ways(chunk))


def pairs_by_mpfr(fmt: fs.FloatFormat, name: str, chunk: int) -> Found:
    """All pairs whose first operand is the code `chunk`, in all six modes."""
    codes = fmt.codes()
    return _compared(name, (np.full_like(codes, chunk), codes), fmt, _all_ways(chunk))


def _ends(base: np.ndarray, rest: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Both ends of base + rest, each as a float64 number and the sign of what it lacks."""
    total, error = o.two_sum(base, rest)
    ends = []
    for margin in (-_MARGIN * np.abs(rest), _MARGIN * np.abs(rest)):
        tail = np.sign(error + margin)
        wide = np.abs(margin) > np.spacing(np.abs(total)) / 4
        ends.append((np.where(wide, total + 2 * margin, total), np.where(wide, np.sign(margin), tail)))
    return ends


def float32_by_numpy(name: str, size: int, chunk: int) -> tuple[Found, int]:
    """All float32 codes of a chunk, in all six modes, and how many MPFR decided."""
    codes = np.arange(chunk * size, (chunk + 1) * size, dtype=np.uint32)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        x = codes.view(np.float32).astype(np.float64)
    special = ~np.isfinite(x) | (x == 0)
    invalid = ((x < 0) & (name in _NEGATIVES_ARE_INVALID)) | (np.isinf(x) & (name in ("sin", "cos")))
    nan, signalling = np.isnan(x), np.isnan(x) & (codes & np.uint32(1 << 22) == 0)
    with np.errstate(all="ignore"):
        base, rest = FLOAT32_FUNCTIONS[name](np.where(special | invalid, 1.5, x))
        rest = np.clip(rest, -_HUGE, _HUGE)
        rest = np.where((base == 0) & (np.abs(rest) < _TINY), np.copysign(_TINY, rest), rest)
    ends = _ends(base, rest)
    ways = [o.OracleRounding(mode) for mode in o.DETERMINISTIC]
    wanted, open_to_all = [], np.zeros(codes.size, bool)
    for way in ways:
        both = [o.vector_round(y, y < 0, fs.FP32, way, tail) for y, tail in ends]
        open_to_all |= (both[0][0] != both[1][0]) | (both[0][1] != both[1][1])
        wanted.append((both[0][0].astype(np.uint32), both[0][1].astype(np.uint8)))
    low, high = (y for y, _ in ends)
    grid = o.vector_decode(wanted[0][0], fs.FP32)
    value = np.where(grid.negative, -np.abs(grid.value), np.abs(grid.value))
    open_to_all |= (low < value) & (value < high)  # the value may be exact, and raise no flag
    open_to_all |= special & ~nan
    open_to_all &= ~(invalid | nan)
    places = np.flatnonzero(open_to_all)
    of_mpfr = _by_mpfr(name, (codes[places],), fs.FP32, ways)
    found: Found = []
    for way, (want, events), (exact, of_exact) in zip(ways, wanted, of_mpfr, strict=True):
        want[invalid | nan], events[invalid], events[nan] = 0x7FC00000, fs.INVALID, 0
        events[signalling] = fs.INVALID
        want[places], events[places] = exact, of_exact
        got, happened, plain = _computed(name, (codes,), fs.FP32, way)
        found.append((name, way, (codes,), (got, happened, plain), (want, events, want)))
    return found, len(places)


_ENDS_MARGIN = dict.fromkeys(FLOAT32_FUNCTIONS, 2.0**-49) | dict.fromkeys(("rsqrt", "reciprocal"), 2.0**-51)
"""Relative error bounds of NumPy's rest: 4 ulp of one function, or of one function and two operations; for the last two
an operation or two."""
_FAR_BELOW, _FAR_ABOVE = 2.0**-300, 2.0**300
"""Beyond these magnitudes all values round alike, and the kernels need not hold them between their ends."""


def _within(y: np.ndarray) -> np.ndarray:
    return np.copysign(np.clip(np.abs(y), _FAR_BELOW, _FAR_ABOVE), y)


def float32_ends(name: str, size: int, chunk: int) -> tuple[Found, int, int]:
    """All float32 codes of a chunk: whether the kernel's ends hold the value, and the result to nearest.

    The ends do not depend on the rounding mode. If both round alike in a mode, this is the result; the kernels that
    round have tests of their own. All six modes with flags are compared with MPFR where the ends do not round alike in
    some mode, and at zeros and infinities.

    Returns
    -------
    (list, int, int)
        The comparisons; how many values are not between their ends; how many values MPFR decided.
    """
    codes = np.arange(chunk * size, (chunk + 1) * size, dtype=np.uint32)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        x = codes.view(np.float32).astype(np.float64)
    nan = np.isnan(x) | ((x < 0) & (name in _NEGATIVES_ARE_INVALID)) | (np.isinf(x) & (name in ("sin", "cos")))
    special = ~nan & (np.isinf(x) | (x == 0))
    low, high = np.empty_like(x), np.empty_like(x)
    ends_kernel(name)(x, low, high, False)
    margin = _ENDS_MARGIN[name]
    with np.errstate(all="ignore"):
        base, rest = FLOAT32_FUNCTIONS[name](np.where(special | nan, 1.5, x))
        at = base == 0
        rest, below, above = (np.where(at, _within(y), y) for y in (rest, low, high))
        error = margin * np.abs(rest)
        held = ((base - below) + (rest - error) > 0) & ((above - base) - (rest + error) > 0)
        huge = (np.abs(rest) >= _FAR_ABOVE) & (np.minimum(np.abs(below), np.abs(above)) >= _FAR_ABOVE)
        tiny = (np.abs(rest) <= _FAR_BELOW) & (np.maximum(np.abs(below), np.abs(above)) <= _FAR_BELOW)
        held |= at & (huge | tiny) & (np.signbit(rest) == np.signbit(below)) & (np.signbit(rest) == np.signbit(above))
        exact = (low == high) & (np.abs((base - low) + rest) <= error)
        if name == "exp2":
            exact &= x == np.floor(x)
        elif name == "log2":
            exact &= np.frexp(x)[0] == 0.5
        else:
            exact[:] = False
        nearest, other = low.astype(np.float32), high.astype(np.float32)
        alike = nearest.view(np.uint32) == other.view(np.uint32)
        touched = ((low < nearest) & (nearest < high)) | ((low < other) & (other < high))
    missed = ~(held | exact | special | nan)
    places = np.flatnonzero(~nan & (special | missed | ~alike | (touched & ~exact)))
    found = _compared(name, (codes[places],), fs.FP32, [o.OracleRounding(mode) for mode in o.DETERMINISTIC])
    got, _ = emulator.function(name, [(codes, fs.FP32)], fs.FP32, resolve({}), False)
    want = np.where(nan, np.uint32(0x7FC00000), nearest.view(np.uint32))
    want[places] = got[places]  # compared above
    nothing = np.zeros(codes.size, np.uint8)
    found.append((name, o.OracleRounding(o.DETERMINISTIC[0]), (codes,), (got, nothing, got), (want, nothing, want)))
    return found, int(np.count_nonzero(missed)), len(places)


def float32_nearest(name: str, size: int, chunk: int) -> Found:
    """All float32 codes of a chunk: results to nearest against both ends of the value, or MPFR where these differ.

    `float32_ends` tests the ends.
    """
    codes = np.arange(chunk * size, (chunk + 1) * size, dtype=np.uint32)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        x = codes.view(np.float32).astype(np.float64)
    low, high = np.empty_like(x), np.empty_like(x)
    ends_kernel(name)(x, low, high, False)
    with np.errstate(all="ignore"):
        want, other = low.astype(np.float32).view(np.uint32), high.astype(np.float32).view(np.uint32)
    want[np.isnan(low)] = fs.FP32.canonical_nan
    places = np.flatnonzero((want != other) & ~np.isnan(low))
    to_nearest = o.OracleRounding(o.DETERMINISTIC[0])
    found = _compared(name, (codes[places],), fs.FP32, [to_nearest])
    got, _ = emulator.function(name, [(codes, fs.FP32)], fs.FP32, resolve({}), False)
    want[places] = found[0][4][0]
    nothing = np.zeros(codes.size, np.uint8)
    found.append((name, to_nearest, (codes,), (got, nothing, got), (want, nothing, want)))
    return found
