"""A second implementation of the sums of GPUs' matrix units, for many dot products at once. FP64 is not included.

Fused blocks and blocks with a late accumulator are computed in int64, exact blocks in Python's integers, and models of
IEEE operations in NumPy's floats (without events).

It follows the same descriptions as `floatsim.reference.tensorcore.nvidia` and `amd`, and test_arrays.py
tests it equal to them, in codes and events. The long run in tests/exhaustive compares the kernels with it.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from floatsim.formats import FP16, FP32, FP64, TF32, FloatFormat
from floatsim.formats.rounding import (
    ABSORBED,
    FLUSHED,
    INEXACT,
    INVALID,
    OVERFLOW,
    SUBNORMAL,
    UNDERFLOW,
    Rounding,
    RoundingAttributes,
)
from floatsim.reference import Kind, Number, convert, decode, round_pack
from floatsim.reference.tensorcore import nvidia
from floatsim.tensorcore.instructions import (
    EvenAndOdd,
    ExactBlocks,
    FlushedTree,
    FmaChain,
    FusedBlocks,
    GroupedBlocks,
    LateAccumulator,
    RoundedSteps,
    TwoHalves,
)

NONE = -(1 << 20)  # the exponent of a zero
PLUS, MINUS, QUIET, SIGNALING = 1, 2, 4, 8  # what is not finite


class Terms(NamedTuple):
    """The numbers s * 2**(e - bits), as arrays of one shape. `special` is a bit of the above, or 0."""

    s: np.ndarray
    e: np.ndarray
    special: np.ndarray
    bits: int

    def __getitem__(self, at):
        return Terms(self.s[at], self.e[at], self.special[at], self.bits)


def can_do(row) -> bool:
    chain_in_half = isinstance(row.model, FmaChain) and row.output == FP16
    signed = isinstance(row.model, ExactBlocks) and row.model.signed_zero
    return row.output != FP64 and not signed and not isinstance(row.model, RoundedSteps) and not chain_in_half


# -- reading -----------------------------------------------------------------------------------------------------------


def terms(codes: np.ndarray, fmt: FloatFormat) -> Terms:
    codes = codes.astype(np.int64)
    if fmt.bits <= 8:
        return Terms(*(column[codes] for column in _table(fmt)), fmt.trailing_bits)
    t = fmt.trailing_bits
    field, trailing = codes >> t & (1 << fmt.exponent_bits) - 1, codes & (1 << t) - 1
    sign = 1 - 2 * (codes >> fmt.bits - 1)
    s = np.where(field > 0, trailing | 1 << t, trailing)
    e = np.where(s > 0, np.maximum(field, 1) - fmt.bias, NONE)
    nan = np.where(trailing >> t - 1, QUIET, SIGNALING)
    odd = field == (1 << fmt.exponent_bits) - 1
    special = np.where(odd, np.where(trailing == 0, np.where(sign < 0, MINUS, PLUS), nan), 0)
    return Terms(np.where(odd, 0, sign * s), np.where(odd, NONE, e), special, t)


@functools.cache
def _table(fmt: FloatFormat) -> tuple[np.ndarray, ...]:
    """(s, e, special) of every code of a narrow format, from its decoded numbers."""
    rows = []
    for code in range(1 << fmt.bits):
        x = decode(code, fmt)
        if x.is_nan:
            rows.append((0, NONE, SIGNALING if x.kind is Kind.SIGNALING_NAN else QUIET))
        elif x.is_infinite:
            rows.append((0, NONE, MINUS if x.sign else PLUS))
        else:
            e = x.exponent + fmt.trailing_bits
            rows.append(((-1) ** x.sign * x.significand, NONE if x.is_zero else e, 0))
    return tuple(np.array(column) for column in zip(*rows, strict=True))


def _through_fp16(codes: np.ndarray, fmt: FloatFormat) -> Terms:
    halves = np.array([convert(decode(code, fmt), FP16, RoundingAttributes())[0] for code in range(1 << fmt.bits)])
    return terms(halves[codes.astype(np.int64)], FP16)


def product(a: Terms, b: Terms) -> Terms:
    zero = (a.e == NONE) & (a.special == 0) | (b.e == NONE) & (b.special == 0)
    either = a.special | b.special
    infinite = np.where((_negative(a) != _negative(b)), MINUS, PLUS)
    special = np.where(either & SIGNALING, SIGNALING, np.where(either & QUIET, QUIET, infinite))
    special = np.where((either & (SIGNALING | QUIET)) == 0, np.where(zero, SIGNALING, special), special)
    special = np.where(either > 0, special, 0)
    none = zero | (either > 0)
    return Terms(np.where(none, 0, a.s * b.s), np.where(none, NONE, a.e + b.e), special, a.bits + b.bits)


def _negative(x: Terms) -> np.ndarray:
    return (x.s < 0) | (x.special == MINUS)


# -- cutting and rounding ----------------------------------------------------------------------------------------------


def down(x: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """x * 2**shift toward negative."""
    return np.where(shift >= 0, x << np.clip(shift, 0, 63), x >> np.clip(-shift, 0, 63))


def cut(x: Terms, quantum: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(in units of 2**quantum, toward zero; events of each row)."""
    shift = np.where(x.s == 0, 0, x.e - x.bits - quantum[..., np.newaxis])
    magnitude = down(np.abs(x.s), shift)
    lost = (shift < 0) & (magnitude << np.clip(-shift, 0, 62) != np.abs(x.s)) | (shift < -62) & (x.s != 0)
    absorbed = ((magnitude == 0) & (x.s != 0)).any(axis=-1)
    flushed = absorbed & (magnitude == 0).all(axis=-1)
    events = INEXACT * lost.any(axis=-1) | ABSORBED * absorbed | (FLUSHED | UNDERFLOW) * flushed
    return np.where(x.s < 0, -magnitude, magnitude), events


def _bit_length(x: np.ndarray) -> np.ndarray:
    length = np.frexp(x.astype(np.float64))[1].astype(np.int64)
    return np.where(x >> np.clip(length - 1, 0, 63) == 0, length - 1, length) * (x > 0)


def _at(magnitude: np.ndarray, shift: np.ndarray, to_even: bool) -> tuple[np.ndarray, np.ndarray]:
    """(in units of 2**shift, rounded; whether it is inexact)."""
    kept = down(magnitude, -shift)
    below = np.where(shift > 0, magnitude - (kept << np.clip(shift, 0, 62)) * (shift < 63), 0)
    if to_even:
        half = 1 << np.clip(shift - 1, 0, 62)
        kept += (shift > 0) & (shift < 64) & ((below > half) | (below == half) & (kept & 1 == 1))
    return kept, below != 0


def rounded(total: np.ndarray, quantum: np.ndarray, fmt: FloatFormat, to_even: bool) -> tuple[np.ndarray, np.ndarray]:
    """(codes, events) of total * 2**quantum. Beyond the largest number it is an infinity; zero is +0."""
    p, magnitude = fmt.precision, np.abs(total)
    e = _bit_length(magnitude) - 1 + quantum
    bounded = np.maximum(e, fmt.emin)
    kept, inexact = _at(magnitude, bounded - (p - 1) - quantum, to_even)
    unbounded, _ = _at(magnitude, e - (p - 1) - quantum, to_even)
    tiny = (e < fmt.emin) & ~((e == fmt.emin - 1) & (unbounded == 1 << p))
    code = np.where(magnitude > 0, (bounded + fmt.bias - 1 << fmt.trailing_bits) + kept, 0)
    over = code > fmt.max_code
    subnormal = (code > 0) & (code < 1 << fmt.trailing_bits)
    events = (
        INEXACT * inexact | UNDERFLOW * (inexact & tiny) | FLUSHED * (inexact & (kept == 0)) | SUBNORMAL * subnormal
    )
    events = np.where(magnitude > 0, np.where(over, OVERFLOW | INEXACT, events), 0)
    code = np.where(over, fmt.infinity_code, code)
    return code | np.where(total < 0, fmt.sign_mask, 0), events


def _special_sums(seen: np.ndarray, fmt: FloatFormat, nan: int) -> tuple[np.ndarray, np.ndarray]:
    """(codes, events) of sums with a term that is not finite."""
    is_nan = (seen & (QUIET | SIGNALING) > 0) | (seen == PLUS | MINUS)
    quiet = (seen & QUIET > 0) & (seen & SIGNALING == 0)
    infinite = np.where(seen & MINUS, fmt.sign_mask, 0) | (fmt.infinity_code or 0)
    return np.where(is_nan, nan, infinite), np.where(is_nan & ~quiet, INVALID, 0)


def _seen(products: Terms, c: Terms) -> np.ndarray:
    return np.bitwise_or.reduce(products.special, axis=-1) | c.special


def _with(products: Terms, c: Terms) -> Terms:
    """Both operands in the finer unit of the two."""
    bits = max(products.bits, c.bits)
    parts = [Terms(x.s << bits - x.bits, x.e, x.special, bits) for x in (products, c[..., np.newaxis])]
    return Terms(*(np.concatenate(columns, axis=-1) for columns in zip(*(p[:3] for p in map(tuple, parts)))), bits)


# -- blocks ------------------------------------------------------------------------------------------------------------


def fused(model: FusedBlocks, products: Terms, c: np.ndarray, output: FloatFormat) -> tuple[np.ndarray, np.ndarray]:
    own = terms(c, output)
    everything = _with(products, own)
    top = np.maximum(everything.e.max(axis=-1), model.floor)
    quantum = top - model.fraction_bits
    kept, events = cut(everything, quantum)
    code, more = rounded(kept.sum(axis=-1), quantum, model.grid, model.rounding is Rounding.TIES_TO_EVEN)
    code = np.where(code & model.grid.magnitude_mask, code, 0) << output.trailing_bits - model.grid.trailing_bits
    seen = _seen(products, own)
    special, invalid = _special_sums(seen, output, nvidia.nan_of(output))
    return np.where(seen, special, code), np.where(seen, invalid, events | more)


def groups(model: GroupedBlocks, a: Terms, b: Terms, scales: Terms) -> Terms:
    """A term for each group: the exponents of FP4 are not negative, so the sums of its products are integers."""
    p = product(a, b)
    shape = (*p.s.shape[:-1], -1, model.group)
    whole = np.where(p.e == NONE, 0, p.s << np.maximum(p.e, 0)).reshape(shape).sum(axis=-1)
    scale = scales[..., :: model.group]
    none = ~(p.s != 0).reshape(shape).any(axis=-1) | (scale.e == NONE)
    return Terms(np.where(none, 0, whole * scale.s), np.where(none, NONE, scale.e), scale.special, p.bits + scale.bits)


def late(model: LateAccumulator, products: Terms, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    own, bits = terms(c, FP32), model.fraction_bits
    large = products.e - products.bits + _bit_length(np.abs(products.s)) > FP32.emax + 1
    infinite = np.where(large, np.where(products.s < 0, MINUS, PLUS), products.special)
    products = Terms(np.where(large, 0, products.s), np.where(large, NONE, products.e), infinite, products.bits)
    apart = isinstance(model, EvenAndOdd)
    parts = [products[..., n :: 1 + apart] for n in range(1 + apart)]
    tops = [part.e.max(axis=-1) for part in parts]
    top, total, events = functools.reduce(np.maximum, tops), 0, 0
    for part, at in zip(parts, tops, strict=True):
        kept, lost = cut(part, at - bits)
        total, events = total + down(kept.sum(axis=-1), at - top), events | lost
    at = np.where(own.e == NONE, FP32.emin, own.e)
    highest = np.maximum(top, at)
    fine = highest - model.sum_bits - 1
    y = down(own.s, at - FP32.trailing_bits - (highest - bits))
    if apart:
        y = np.where(at < highest - bits - 1, 0, y)
    joined = down(total, np.maximum(top - bits - fine, -64)) + (y << model.sum_bits + 1 - bits)
    lowest = np.maximum(fine + _bit_length(np.abs(joined)) - 1, FP32.emin) - model.sum_bits
    code, more = rounded(down(joined, fine - lowest), lowest, FP32, True)
    seen = _seen(products, own)
    special, invalid = _special_sums(seen, FP32, FP32.canonical_nan)
    return np.where(seen, special, code), np.where(seen, invalid, events | more)


_LOW = -1200  # below every product


def exact(products: Terms, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    own = terms(c, FP32)
    everything = _with(products, own)
    at = np.where(everything.s == 0, 0, everything.e - everything.bits - _LOW)
    total = (everything.s.astype(object) << at.astype(object)).sum(axis=-1)

    def one(x: int) -> tuple[int, int]:
        return round_pack(Number(Kind.FINITE, int(x < 0), abs(x), _LOW), FP32, RoundingAttributes())

    code, events = _pairs(np.frompyfunc(one, 1, 1)(total))
    seen = _seen(products, own)
    special, invalid = _special_sums(seen, FP32, FP32.canonical_nan)
    return np.where(seen, special, code), np.where(seen, invalid, events)


def _pairs(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """An array of pairs as two arrays of integers."""
    first, second = (np.array([pair[n] for pair in x.ravel()], np.int64).reshape(x.shape) for n in (0, 1))
    return first, second


def _float32(codes: np.ndarray, fmt: FloatFormat = FP32) -> np.ndarray:
    return codes.astype(fmt.code_dtype).view(fmt.dtype).astype(np.float32)


def _codes_of(x: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(x), FP32.canonical_nan, x.view(np.uint32)).astype(np.int64)


def _flushed(x: np.ndarray, zero: np.ndarray | float) -> np.ndarray:
    return np.where(np.abs(x) < np.float32(2.0**-126), zero, x).astype(np.float32)


def _values(x: Terms, least: float) -> np.ndarray:
    """The values as float32; below `least`, +0. Products of these values have at most 16 bits, or are not subnormal."""
    special = np.select([x.special == PLUS, x.special == MINUS, x.special > 0], [np.inf, -np.inf, np.nan], 0)
    values = np.where(x.special > 0, special, np.ldexp(x.s.astype(np.float64), np.where(x.s == 0, 0, x.e - x.bits)))
    return np.where(np.abs(values) < least, 0, values).astype(np.float32)


def flushed_tree(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    level = a * b
    level = _flushed(level, np.copysign(np.float32(0), level))
    while level.shape[-1] > 1:
        level = level[..., ::2] + level[..., 1::2]
        level = _flushed(level, np.copysign(np.float32(0), level))
    acc = _flushed(_float32(c), 0) + level[..., 0]
    return _codes_of(_flushed(acc, np.copysign(np.float32(0), acc)))


def fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Computed in float64, which contains the product, with the sum rounded to odd."""
    p, acc = a.astype(np.float64) * b, _float32(c).astype(np.float64)
    s = p + acc
    back = s - p
    error = (p - (s - back)) + (acc - back)
    bits = s.view(np.int64).copy()
    bits += np.where(np.isfinite(s) & (error != 0) & (bits & 1 == 0), np.where((error > 0) == (s > 0), 1, -1), 0)
    return _codes_of(bits.view(np.float64).astype(np.float32))


# -- dot products ------------------------------------------------------------------------------------------------------


def _padded(codes: np.ndarray, k: int, axis: int) -> np.ndarray:
    """Append zeros to fill whole instructions."""
    width = [(0, 0)] * codes.ndim
    width[axis] = (0, -codes.shape[axis] % k)
    return np.pad(codes, width)


def _factors(scales, k: int) -> Terms:
    """The products of the scales of each k, (M, N, K). Past the end, the scales are 1."""
    fmt, every = scales.of.format, scales.of.every
    one = fmt.bias << fmt.trailing_bits
    sides = []
    for codes, axis in ((scales.a[0], 1), (scales.b[0], 0)):
        each = (codes.astype(np.int64) & fmt.magnitude_mask).repeat(every, axis)
        each = each.take(range(min(k, each.shape[axis])), axis)
        width = [(0, 0), (0, 0)]
        width[axis] = (0, k - each.shape[axis])
        sides.append(np.pad(each, width, constant_values=one))
    return product(terms(sides[0], fmt)[:, np.newaxis], terms(sides[1].T, fmt)[np.newaxis])


@np.errstate(all="ignore")
def by_arrays(case, a, b, c, scales) -> tuple[np.ndarray, np.ndarray | None]:
    """(codes, counts of event bytes or None) of every element, as `tensorcore_cases.by_reference`."""
    row, model, codes, counts = case.row, case.row.model, c[0, 0].astype(np.int64), np.zeros(256, np.int64)
    sides = []
    for x, fmt in ((_padded(a[0], row.k, 1), case.a), (_padded(b[0], row.k, 0).T, case.b)):
        if row.truncates and fmt == FP32:
            x, fmt = x >> np.uint64(FP32.trailing_bits - TF32.trailing_bits), TF32  # noqa: PLW2901
        sides.append(_through_fp16(x, fmt) if isinstance(model, TwoHalves) else terms(x, fmt))
    left, right = sides[0][:, np.newaxis], sides[1][np.newaxis]
    length = left.s.shape[-1]
    factors = None if scales is None else _factors(scales, length)

    def note(result: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        np.add.at(counts, result[1].ravel(), 1)
        return result[0]

    if isinstance(model, TwoHalves):
        for start in range(0, length, row.k):
            acc = np.zeros_like(codes)
            for half in (0, 2):
                at = np.array([k for k in range(start, start + row.k) if k % 4 - half in (0, 1)])
                acc = note(fused(model.block, product(left[..., at], right[..., at]), acc, row.output))
            step = np.frompyfunc(lambda x, y: nvidia._plus(int(x), int(y), row.output, 0)[:2], 2, 1)(acc, codes)
            codes = note(_pairs(step))
        return codes.astype(np.uint64), counts
    if isinstance(model, FmaChain):
        x, y = _float32(_padded(a[0], row.k, 1), case.a), _float32(_padded(b[0], row.k, 0), case.b)
        for k in range(length):
            codes = fma(x[:, k, np.newaxis], y[k], codes)
        return codes.astype(np.uint64), None
    if isinstance(model, FlushedTree):
        x, y = _values(left, 2.0**case.a.emin), _values(right, 2.0**case.b.emin)
        for start in range(0, length, row.block):
            at = (..., slice(start, start + row.block))
            codes = flushed_tree(x[at], y[at], codes)
        return codes.astype(np.uint64), None
    for start in range(0, length, row.block):
        at = (..., slice(start, start + row.block))
        if isinstance(model, GroupedBlocks):
            products = groups(model, left[at], right[at], factors[at])
        else:
            products = product(left[at], right[at])
            if factors is not None:
                products = product(products, factors[at])
        if isinstance(model, LateAccumulator):
            result = late(model, products, codes)
        elif isinstance(model, ExactBlocks):
            result = exact(products, codes)
        else:
            result = fused(model, products, codes, row.output)
        codes = note(result)
    return codes.astype(np.uint64), counts
