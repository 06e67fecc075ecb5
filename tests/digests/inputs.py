"""Inputs of the digests: codes of a format from a counter hash, in styles that reach different parts of the kernels."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np

import floatsim as fs

__all__ = ["PAIR_STYLES", "STYLES", "bits", "codes", "floats", "pair", "terms"]


def bits(stream: str, size: int) -> np.ndarray:
    """Return `size` uint64 hashes of (stream, counter): SplitMix64, whose state starts at a hash of the name."""
    seed = int.from_bytes(hashlib.blake2b(stream.encode(), digest_size=8).digest(), "little")
    z = np.arange(1, size + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.full(size, seed, np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = (z ^ z >> np.uint64(shift)) * np.uint64(factor)
    return z ^ z >> np.uint64(31)


def _integers(stream: str, size: int, low: int, high: int) -> np.ndarray:
    """Return int64 numbers of low to high, both included."""
    return (bits(stream, size) % np.uint64(high - low + 1)).astype(np.int64) + low


# -- magnitudes: uint64 codes without a sign ---------------------------------------------------------------------------


def _of_exponents(fmt: fs.FloatFormat, exponent: np.ndarray, trailing: np.ndarray) -> np.ndarray:
    """Magnitude codes with these exponents, held within the finite numbers of the format."""
    field = np.clip(exponent + fmt.bias, 0, fmt.max_code >> fmt.trailing_bits).astype(np.uint64)
    code = field << np.uint64(fmt.trailing_bits) | trailing & np.uint64((1 << fmt.trailing_bits) - 1)
    return np.minimum(code, np.uint64(fmt.max_code))


def _near(fmt: fs.FloatFormat, stream: str, size: int, low: int, high: int) -> np.ndarray:
    return _of_exponents(fmt, _integers(f"{stream}/exponent", size, low, high), bits(f"{stream}/trailing", size))


def _easy(fmt: fs.FloatFormat, stream: str, size: int) -> np.ndarray:
    return _near(fmt, stream, size, -3, 1)


def _wide(fmt: fs.FloatFormat, stream: str, size: int) -> np.ndarray:
    return bits(stream, size) % np.uint64(fmt.max_code + 1)


def _spread(fmt: fs.FloatFormat, stream: str, size: int) -> np.ndarray:
    return _near(fmt, stream, size, -14, 10)


def _low(fmt: fs.FloatFormat, stream: str, size: int) -> np.ndarray:
    """Numbers whose products lie around the smallest normal number."""
    return _near(fmt, stream, size, fmt.emin // 2 - 3, fmt.emin // 2 + 2)


def _high(fmt: fs.FloatFormat, stream: str, size: int) -> np.ndarray:
    """Numbers whose products lie around the largest number."""
    return _near(fmt, stream, size, fmt.emax // 2 - 2, fmt.emax // 2 + 1)


def _ties(fmt: fs.FloatFormat, stream: str, size: int) -> np.ndarray:
    """Powers of two, some with the last trailing bit or with all of them: many sums lie half way."""
    exponent = _integers(f"{stream}/exponent", size, -fmt.trailing_bits - 2, 1)
    full = np.uint64((1 << fmt.trailing_bits) - 1)
    kinds = np.array([0, 0, 0, 1, full, full // np.uint64(2) + np.uint64(1)], np.uint64)
    return _of_exponents(fmt, exponent, kinds[_integers(f"{stream}/kind", size, 0, len(kinds) - 1)])


def _edges(fmt: fs.FloatFormat, stream: str, size: int) -> np.ndarray:
    """Zeros, subnormals, numbers around the smallest normal one, and numbers next to max."""
    normal, span = 1 << fmt.trailing_bits, np.uint64((1 << fmt.trailing_bits + 1) - 1)
    x = bits(f"{stream}/bits", size)
    kinds = [
        np.zeros(size, np.uint64), x & np.uint64(normal - 1), x & span,
        np.full(size, normal, np.uint64), np.full(size, max(normal - 1, 0), np.uint64), np.ones(size, np.uint64),
        np.uint64(fmt.max_code) - np.minimum(x & np.uint64(1), np.uint64(fmt.max_code)), _easy(fmt, stream, size),
    ]  # fmt: skip
    which = _integers(f"{stream}/kind", size, 0, len(kinds) - 1)
    return np.minimum(np.choose(which, kinds), np.uint64(fmt.max_code))


def _specials(fmt: fs.FloatFormat, stream: str, size: int) -> np.ndarray:
    """Easy numbers, and one in 24 that is infinite, NaN, zero, or max."""
    found = [0, fmt.max_code, 1]
    if fmt.has_infinity:
        found += [fmt.infinity_code, fmt.infinity_code, fmt.infinity_code | 1]
    if fmt.has_nan:
        found.append(fmt.canonical_nan)
    special = np.array(found, np.uint64)[_integers(f"{stream}/special", size, 0, len(found) - 1)]
    return np.where(_integers(f"{stream}/where", size, 0, 23) == 0, special, _easy(fmt, stream, size))


def _any_bits(fmt: fs.FloatFormat, stream: str, size: int) -> np.ndarray:
    return bits(stream, size) & np.uint64(fmt.magnitude_mask)


_MAGNITUDES: dict[str, Callable[[fs.FloatFormat, str, int], np.ndarray]] = {
    "easy": _easy, "wide": _wide, "spread": _spread, "low": _low, "high": _high, "ties": _ties, "edges": _edges,
    "specials": _specials, "bits": _any_bits,
}  # fmt: skip
STYLES = (*_MAGNITUDES, "cancelling", "positive")
PAIR_STYLES = tuple(style for style in STYLES if style != "bits")
"""Styles for sums: random bits make most results NaN."""


# -- arrays ------------------------------------------------------------------------------------------------------------


def codes(fmt: fs.FloatFormat, shape: tuple[int, ...], style: str, stream: str) -> fs.FloatArray:
    """Return a FloatArray of the style; a negative zero where the format has none becomes +0."""
    size = int(np.prod(shape, dtype=np.int64))
    magnitude = _MAGNITUDES.get(style, _easy)(fmt, stream, size)
    code = magnitude
    if fmt.signed and style != "positive":
        code = magnitude | np.where(bits(f"{stream}/sign", size) >> np.uint64(63), fmt.sign_mask, 0).astype(np.uint64)
        if not fmt.has_signed_zero and style not in ("bits", "specials"):
            code = np.where(magnitude == 0, np.uint64(0), code)
    return fs.from_codes(code.reshape(shape).astype(fmt.code_dtype), fmt)


def _cancel(x: fs.FloatArray, axis: int, stream: str) -> fs.FloatArray:
    """Make every second element along an axis the opposite of the one before; one in 12 differs in the last bit."""
    moved = np.moveaxis(x.codes.copy(), axis, 0)
    half = len(moved) // 2
    before, after = moved[: 2 * half : 2], moved[1 : 2 * half : 2]
    last = (_integers(f"{stream}/last", before.size, 0, 11) == 0).reshape(before.shape)
    if x.format.signed:
        after[...] = before ^ last.astype(x.codes.dtype) ^ x.codes.dtype.type(x.format.sign_mask)
    return fs.from_codes(np.ascontiguousarray(np.moveaxis(moved, 0, axis)), x.format)


def pair(
    a: fs.FloatFormat, b: fs.FloatFormat, m: tuple[int, ...], n: tuple[int, ...], style: str, stream: str
) -> tuple[fs.FloatArray, fs.FloatArray]:
    """Return the operands (shapes m and n) of a product. In "cancelling" the terms cancel along K, in pairs."""
    x, y = codes(a, m, style, f"{stream}/a"), codes(b, n, style, f"{stream}/b")
    if style != "cancelling":
        return x, y
    y = fs.from_codes(np.ascontiguousarray(np.repeat(y.codes, 2, axis=len(n) - 2 if len(n) > 1 else 0)), b)
    length = x.shape[-1]
    y = y[..., :length, :] if len(n) > 1 else y[:length]
    return _cancel(x, -1, stream), y


def terms(fmt: fs.FloatFormat, shape: tuple[int, ...], style: str, stream: str, axis: int = 0) -> fs.FloatArray:
    """Return the terms of a sum along an axis."""
    x = codes(fmt, shape, style, stream)
    return _cancel(x, axis, stream) if style == "cancelling" else x


def floats(dtype: type, shape: tuple[int, ...], style: str, stream: str) -> np.ndarray:
    """Return a float32 or float64 array."""
    fmt = fs.FP32 if dtype is np.float32 else fs.FP64
    return codes(fmt, shape, style, stream).codes.view(dtype)
