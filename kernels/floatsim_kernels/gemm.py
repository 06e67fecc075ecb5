"""Matrix products on codes, one multiply-add after the other. `events` counts event bytes, one row a rounding site.

a: (batch, M, K), b: (batch, K, N), out: (batch, M, N), all C-contiguous. `draws` holds the seed. The draw of stochastic
rounding belongs to the flat index of the result element and to the site 2*k (product) or 2*k + 1 (sum).
"""

import numpy as np

from . import arithmetic as op
from .jit import inline, kernel
from .random import draw
from .rounding import (
    ABSORBED,
    DAZ,
    INEXACT,
    INFINITE,
    INVALID,
    MAX,
    NAN,
    QUIET_NAN,
    RANDOM_BITS,
    ROUNDING,
    SIGN,
    SIGNALING_NAN,
    STOCHASTIC,
    TOWARD_NEGATIVE,
    U0,
    U1,
    ZERO,
    P,
    format_row,
    infinity_code,
    left,
    manner_row,
    nan_code,
    right,
    round_pack,
    unpack,
    zero_code,
)

PRODUCT, SUM = 0, 1


@inline
def random_of(m, draws, index, step, site):
    if m[ROUNDING] == STOCHASTIC:
        return draw(draws[0], np.uint64(2 * step + site), np.uint64(index), m[RANDOM_BITS])
    return U0


@inline
def magnitude_of(code, f, daz):
    """The code without its sign, 0 for what is read as zero, -1 for infinities and NaN."""
    magnitude = np.int64(code & (left(U1, f[SIGN]) - U1))
    if magnitude > f[MAX] or np.int64(code) == f[NAN]:
        return np.int64(-1)
    if daz and magnitude >> (f[P] - 1) == 0:
        return np.int64(0)
    return magnitude


@inline
def absorbed(before, term, after, f, daz):
    """Whether a finite accumulator kept its value although the term, a finite number, is not zero."""
    old, new = magnitude_of(before, f, daz), magnitude_of(after, f, np.int64(0))
    return magnitude_of(term, f, daz) > 0 and old == new and old >= 0 and (old == 0 or before == after)


@kernel
def sequential(a, fa, b, fb, out, f, manner, draws, events):
    """acc = round(acc + round(a * b)), k ascending."""
    fa, fb, f, m = format_row(fa), format_row(fb), format_row(f), manner_row(manner)
    batch, rows, depth = a.shape
    columns = b.shape[2]
    for n in range(batch):
        for i in range(rows):
            for j in range(columns):
                index = (n * rows + i) * columns + j
                acc = U0
                for k in range(depth):
                    term, happened = op.multiply(
                        a[n, i, k], fa, b[n, k, j], fb, f, m, random_of(m, draws, index, k, PRODUCT)
                    )
                    events[PRODUCT, happened] += 1
                    total, happened = op.add(acc, f, term, f, np.int64(0), f, m, random_of(m, draws, index, k, SUM))
                    happened &= ~ABSORBED
                    if happened & INEXACT and absorbed(acc, term, total, f, m[DAZ]):
                        happened |= ABSORBED
                    events[SUM, happened] += 1
                    acc = total
                out[n, i, j] = acc


@kernel
def sequential_fused(a, fa, b, fb, out, f, manner, draws, events):
    """acc = round(a * b + acc), k ascending."""
    fa, fb, f, m = format_row(fa), format_row(fb), format_row(f), manner_row(manner)
    batch, rows, depth = a.shape
    columns = b.shape[2]
    for n in range(batch):
        for i in range(rows):
            for j in range(columns):
                index = (n * rows + i) * columns + j
                acc = U0
                for k in range(depth):
                    acc, happened = op.fma(
                        a[n, i, k], fa, b[n, k, j], fb, acc, f, f, m, random_of(m, draws, index, k, SUM)
                    )
                    events[SUM, happened] += 1
                out[n, i, j] = acc


_LIMB = np.uint64(0xFFFFFFFF)


@inline
def add_to_limbs(limbs, position, sign, hi, lo):
    """Add (hi * 2**64 + lo) * 2**position, or subtract it, in limbs of 32 bits; carries wait."""
    first, off = position >> 5, position & 31
    w4 = right(hi, 64 - off) if off else U0
    w23 = left(hi, off) | (right(lo, 64 - off) if off else U0)
    w01 = left(lo, off)
    words = (w01 & _LIMB, right(w01, 32), w23 & _LIMB, right(w23, 32), w4)
    for w in range(5):
        limbs[first + w] += -np.int64(words[w]) if sign else np.int64(words[w])


@inline
def carry(limbs):
    """Bring every limb to 0 .. 2**32 - 1 by carrying upward; the top limb keeps the sign."""
    rest = np.int64(0)
    for i in range(limbs.size):
        rest += limbs[i]
        if i + 1 < limbs.size:
            limbs[i] = rest & 0xFFFFFFFF
            rest >>= 32
        else:
            limbs[i] = rest


@inline
def round_limbs(limbs, weight, f, m, random):
    """The sum in the limbs, in units of 2**weight, rounded once; limbs are used up. (code, events, is zero)"""
    carry(limbs)
    sign = np.int64(limbs[limbs.size - 1] < 0)
    if sign:
        for i in range(limbs.size):
            limbs[i] = -limbs[i]
        carry(limbs)
    top = limbs.size - 1
    while top >= 0 and limbs[top] == 0:
        top -= 1
    if top < 0:
        return U0, np.int64(0), True
    hi = left(np.uint64(limbs[top]), 32)
    lo, below = U0, U0
    if top >= 1:
        hi |= np.uint64(limbs[top - 1])
    if top >= 2:
        lo = left(np.uint64(limbs[top - 2]), 32)
    if top >= 3:
        lo |= np.uint64(limbs[top - 3])
    if top >= 4:
        below = np.uint64(limbs[top - 4])  # the top limb may have one bit only: 5 limbs hold at least 97 + 32 bits
    spare = np.int64(op.leading_zeros(hi))
    e = weight + 32 * (top + 1) - 1 - spare
    # bit 62 of hi is the leading one: shift left by spare - 1, or right by one
    if spare == 0:
        sticky = (lo & U1) | below
        lo = left(hi, 63) | right(lo, 1)
        hi = right(hi, 1)
    else:
        s = spare - 1
        sticky = U0
        if s:
            hi = left(hi, s) | right(lo, 64 - s)
            fill = left(below, 32)
            lo = left(lo, s) | right(fill, 64 - s)
            sticky = left(fill, s)
        else:
            sticky = below
    for i in range(top - 4):
        sticky |= np.uint64(limbs[i])
    code, happened = round_pack(sign, e, hi, lo | np.uint64(sticky != U0), f, m, random)
    return code, happened, False


@kernel
def exact(a, fa, b, fb, out, f, manner, draws, events, limbs, weight):
    """The exact sum of exact products, rounded once. `limbs`: scratch, 32 bits each from 2**weight; K below 2**31."""
    fa, fb, f, m = format_row(fa), format_row(fb), format_row(f), manner_row(manner)
    batch, rows, depth = a.shape
    columns = b.shape[2]
    for n in range(batch):
        for i in range(rows):
            for j in range(columns):
                index = (n * rows + i) * columns + j
                limbs[:] = 0
                nan, invalid, infinite, zeros, terms = False, False, 0, 0, False
                for k in range(depth):
                    ka, sa, ea, ha = unpack(a[n, i, k], fa, m[DAZ])
                    kb, sb, eb, hb = unpack(b[n, k, j], fb, m[DAZ])
                    sign = sa ^ sb
                    if (ka == INFINITE and kb == ZERO) or (ka == ZERO and kb == INFINITE):
                        invalid = True
                    elif ka >= QUIET_NAN or kb >= QUIET_NAN:
                        nan = True
                        invalid |= ka == SIGNALING_NAN or kb == SIGNALING_NAN
                    elif ka == INFINITE or kb == INFINITE:
                        infinite |= 2 if sign else 1
                    elif ka == ZERO or kb == ZERO:
                        zeros |= 2 if sign else 1
                    else:
                        terms = True
                        hi, lo = op.multiply_high(ha, hb), ha * hb
                        add_to_limbs(limbs, ea + eb - 124 - weight, sign, hi, lo)
                if nan or invalid or infinite == 3:
                    code, happened = nan_code(f, np.int64(INVALID if invalid or not nan else 0))
                elif infinite:
                    code, happened = infinity_code(np.int64(infinite == 2), f), np.int64(0)
                else:
                    code, happened, is_zero = round_limbs(limbs, weight, f, m, random_of(m, draws, index, 0, SUM))
                    if is_zero:
                        negative = zeros == 2 and not terms
                        negative |= m[ROUNDING] == TOWARD_NEGATIVE and (terms or zeros == 3)
                        code = zero_code(np.int64(negative), f)
                events[SUM, happened] += 1
                out[n, i, j] = code
