"""Operands that are hard to round, and comparisons that say where two results differ."""

from __future__ import annotations

import numpy as np

import floatsim as fs

from .decode import layout, test_seed
from .vector import neighbours, vector_decode


def special_codes(fmt: fs.FloatFormat) -> np.ndarray:
    """Zeros, subnormal ends, powers of two and their neighbours, max, infinities, NaNs; both signs."""
    at = layout(fmt)
    one = at.bias << at.t if 0 < at.bias <= at.largest >> at.t else 1 << at.t
    first = 1 << at.t
    m = [0, 1, 2, 3, first // 2, first - 1, first, first + 1, 2 * first - 1, 2 * first, one - 1, one, one + 1, one + 2,
         one + first // 2, one + first, 2 * one - first, at.largest, at.largest - 1, at.largest - first,
         at.largest // 2, at.largest + 1, at.largest + 2, at.largest + 3]  # fmt: skip
    if at.nan is not None:
        m += [at.nan % (at.sign_bit or 2 * first + at.nan), (at.sign_bit or at.nan + 1) - 1]
    top = at.sign_bit or 1 << at.bits
    positive = sorted({k for k in m if 0 <= k < top})
    return np.array(positive + [k + at.sign_bit for k in positive if at.sign_bit], dtype=np.uint64)


def near_codes(x: np.ndarray, fmt: fs.FloatFormat) -> np.ndarray:
    """Codes of magnitudes close to |x| (truncated, clamped): good enough to aim with."""
    low, _, _ = neighbours(np.minimum(np.abs(x), float(layout(fmt).max)), fmt, False)
    return low


def _patterned(r: np.random.Generator, n: int, fmt: fs.FloatFormat, low: int, high: int) -> np.ndarray:
    """Codes with exponent fields in low..high and trailing bits that are few, many, alternating or random."""
    at = layout(fmt)
    span = (1 << at.t) - 1
    kind = r.integers(0, 6, n)
    trailing = r.integers(0, span + 1, n)
    single = np.int64(1) << r.integers(0, max(at.t, 1), n)
    trailing = np.select(
        [kind == 0, kind == 1, kind == 2, kind == 3, kind == 4],
        [np.zeros(n, np.int64), np.full(n, span), single & span, span - (single & span), trailing & ~(single - 1)],
        trailing,
    )
    field = r.integers(max(low, 0), min(high, at.largest >> at.t) + 1, n)
    sign = r.integers(0, 2, n).astype(np.uint64) * np.uint64(at.sign_bit)
    return np.minimum((field << at.t) + trailing, at.largest).astype(np.uint64) + sign


def structured(fmt: fs.FloatFormat, arity: int, n: int, r: np.random.Generator) -> tuple[np.ndarray, ...]:
    """About n tuples of codes: cancellation, ties, exponent gaps, near overflow, subnormal, and random bits."""
    at = layout(fmt)
    top, p = at.largest >> at.t, at.t + 1
    part = max(n // 12, 1)
    middle = top // 2
    groups: list[tuple[np.ndarray, ...]] = []

    def sign(codes: np.ndarray) -> np.ndarray:
        return codes.astype(np.uint64) ^ r.integers(0, 2, len(codes)).astype(np.uint64) * np.uint64(at.sign_bit)

    def jitter(magnitude: np.ndarray, spread: int = 2) -> np.ndarray:
        moved = magnitude + r.integers(-spread, spread + 1, len(magnitude))
        return np.clip(moved, 0, at.largest).astype(np.uint64)

    def bits(k: int) -> np.ndarray:
        return r.integers(0, (1 << at.bits) - 1, k, dtype=np.uint64, endpoint=True)

    def magnitude(codes: np.ndarray) -> np.ndarray:
        return (codes & np.uint64(~at.sign_bit & (2**64 - 1))).astype(np.int64)

    def values(codes: np.ndarray) -> np.ndarray:
        return vector_decode(codes, fmt).value

    specials = special_codes(fmt)
    groups.append(tuple(bits(2 * part) for _ in range(arity)))
    groups.append(tuple(r.choice(specials, part) for _ in range(arity)))
    groups.append(tuple(r.choice(specials, part) if i == part % arity else bits(part) for i in range(arity)))
    groups.append(tuple(_patterned(r, part, fmt, 0, top) for _ in range(arity)))
    groups.append(tuple(_patterned(r, part, fmt, 0, 2) for _ in range(arity)))
    groups.append(tuple(_patterned(r, part, fmt, top - 2, top) for _ in range(arity)))
    if arity >= 2:
        a = _patterned(r, part, fmt, 0, top)  # exponent gaps around the precision
        gap = r.integers(-p - 3, p + 4, part)
        field = np.clip((magnitude(a) >> at.t) + gap, 0, top)
        b = _patterned(r, part, fmt, 0, 0)
        b = np.minimum((magnitude(b) & ((1 << at.t) - 1)) + (field << at.t), at.largest).astype(np.uint64)
        more = tuple(_patterned(r, part, fmt, middle - p, middle + p) for _ in range(arity - 2))
        groups.append((a, sign(b), *more))
        a = bits(part)  # cancellation
        groups.append((a, sign(jitter(magnitude(a))), *(bits(part) for _ in range(arity - 2))))
        with np.errstate(all="ignore"):
            for target in (float(at.least_normal), float(at.max), float(at.worth(1)) / 2, 1.0):
                a = _patterned(r, part, fmt, 0, top)  # products and quotients that land on an edge
                aim = np.abs(target / np.where(values(a) == 0, 1.0, values(a)))
                b = sign(jitter(near_codes(np.where(np.isfinite(aim), aim, 0.0), fmt), 3))
                more = tuple(_patterned(r, part, fmt, 0, top) for _ in range(arity - 2))
                groups.append((a, b, *more))
    if arity == 3:
        for k in range(4):
            a, b = _patterned(r, part, fmt, 0, top), _patterned(r, part, fmt, 0, top)
            if k % 2:
                a, b = (_patterned(r, part, fmt, middle - p // 2, middle + p // 2) for _ in "ab")
            with np.errstate(all="ignore"):
                product = np.abs(values(a) * values(b))
                shift = np.zeros(part) if k < 2 else r.integers(-p - 3, p + 4, part)
                near = near_codes(np.ldexp(product, shift.astype(np.int32)), fmt)
            groups.append((a, b, sign(jitter(near, 1))))
    if arity == 1:
        roots = bits(2 * part)  # squares and their neighbours
        squares = np.minimum(values(roots) ** 2 if at.t < 27 else np.abs(values(roots)), float(at.max))
        groups.append((jitter(near_codes(squares, fmt), 1),))
        groups.append((bits(3 * part),))
    return tuple(np.concatenate(column) for column in zip(*groups, strict=True))


def report(
    what: str, fmt: fs.FloatFormat, options: object, operands: tuple[int, ...], got: object, want: object
) -> str:
    """One line that names everything needed to see a failure again."""
    digits = (fmt.bits + 3) // 4

    def show(x: object) -> str:
        if isinstance(x, tuple):
            return f"0x{int(x[0]):0{digits}X} flags {int(x[1])}"
        return str(x)

    given = " ".join(f"0x{int(c):0{digits}X}" for c in operands)
    return f"{what} {fmt.name} [{options}] {given}: got {show(got)}, expected {show(want)}"


def assert_equal_codes(
    what: str, fmt: fs.FloatFormat, options: object, operands: tuple[np.ndarray, ...], got: tuple, want: tuple
) -> None:
    """Exact equality of (codes, flags); the message shows the first few differences in hexadecimal."""
    differs = np.zeros(np.shape(got[0]), bool)
    for g, w in zip(got, want, strict=True):
        differs |= np.asarray(g).astype(np.int64) != np.asarray(w).astype(np.int64)
    if differs.any():
        shape = differs.shape
        where = np.flatnonzero(differs)
        columns = [np.broadcast_to(np.asarray(o), shape).ravel() for o in operands]

        def pick(arrays: tuple, i: int) -> tuple:
            return (*(np.ravel(x)[i] for x in arrays), 0)[:2]

        lines = [
            report(what, fmt, options, tuple(c[i] for c in columns), pick(got, i), pick(want, i)) for i in where[:5]
        ]
        raise AssertionError(f"{len(where)} of {differs.size} differ (seed {test_seed()}):\n" + "\n".join(lines))
