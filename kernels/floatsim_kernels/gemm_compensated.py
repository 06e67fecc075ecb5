"""Compensated products in float32: Kahan's and Neumaier's sums, every operation rounded, ties to even, to FP16, BF16,
a narrow format, or as it is.

    kernel(a, b, out, ranges, index, seeds, kind, grid)

sums the terms a[i, k] * b[k, j], rounded, over each range (start, stop, step) of k into out[range, i, j], which holds
the start values on entry; all float32 *values* on their formats' grids. A term that is on the accumulator's grid is not
changed by its rounding. All sums are of two numbers of one format, so that rounding them to float32 first does not
matter (2 * p + 2 <= 24). `index` and `seeds` are not looked at. Needs `machine.environment_is_default()`, HALF
`machine.has_f16c()`.
"""

import numpy as np

from .grids import narrow_row, on_bfloat_grid, on_half_grid, on_narrow_grid
from .intrinsics import wide_vectors
from .jit import inline, kernel

PLAIN, HALF, BFLOAT, NARROW = range(4)
_ZERO, _INF = np.float32(0), np.float32(np.inf)


@inline
def kahan_plain(x, bs, s, c):
    for j in range(s.size):
        y = x * bs[j] - c[j]
        t = s[j] + y
        lost = (t - s[j]) - y
        c[j] = lost if abs(t) < _INF else _ZERO
        s[j] = t


@inline
def kahan_half(x, bs, s, c):
    for j in range(s.size):
        y = on_half_grid(on_half_grid(x * bs[j]) - c[j])
        t = on_half_grid(s[j] + y)
        lost = on_half_grid(on_half_grid(t - s[j]) - y)
        c[j] = lost if abs(t) < _INF else _ZERO
        s[j] = t


@inline
def kahan_bfloat(x, bs, s, c):
    for j in range(s.size):
        y = on_bfloat_grid(on_bfloat_grid(x * bs[j]) - c[j])
        t = on_bfloat_grid(s[j] + y)
        lost = on_bfloat_grid(on_bfloat_grid(t - s[j]) - y)
        c[j] = lost if abs(t) < _INF else _ZERO
        s[j] = t


@inline
def kahan_narrow(x, bs, s, c, g):
    for j in range(s.size):
        y = on_narrow_grid(on_narrow_grid(x * bs[j], g) - c[j], g)
        t = on_narrow_grid(s[j] + y, g)
        lost = on_narrow_grid(on_narrow_grid(t - s[j], g) - y, g)
        c[j] = lost if abs(t) < _INF else _ZERO
        s[j] = t


@kernel
def kahan(a, b, out, ranges, index, seeds, kind, grid):
    """s, comp = 0; y = x - comp; t = s + y; comp = (t - s) - y, but 0 where t is not finite; s = t. The result is s."""
    wide_vectors()
    g = narrow_row(grid)
    comp = np.empty(out.shape[2], np.float32)
    for part in range(ranges.shape[0]):
        for i in range(out.shape[1]):
            s = out[part, i]
            comp[:] = _ZERO
            for k in range(ranges[part, 0], ranges[part, 1], ranges[part, 2]):
                if kind == PLAIN:
                    kahan_plain(a[i, k], b[k], s, comp)
                elif kind == HALF:
                    kahan_half(a[i, k], b[k], s, comp)
                elif kind == BFLOAT:
                    kahan_bfloat(a[i, k], b[k], s, comp)
                else:
                    kahan_narrow(a[i, k], b[k], s, comp, g)


@inline
def neumaier_plain(x, bs, s, c):
    for j in range(s.size):
        old, p = s[j], x * bs[j]
        t = old + p
        first = abs(old) >= abs(p)
        larger, smaller = (old, p) if first else (p, old)
        more = c[j] + ((larger - t) + smaller)
        c[j] = more if abs(t) < _INF else c[j]
        s[j] = t


@inline
def neumaier_half(x, bs, s, c):
    for j in range(s.size):
        old, p = s[j], on_half_grid(x * bs[j])
        t = on_half_grid(old + p)
        first = abs(old) >= abs(p)
        larger, smaller = (old, p) if first else (p, old)
        more = on_half_grid(c[j] + on_half_grid(on_half_grid(larger - t) + smaller))
        c[j] = more if abs(t) < _INF else c[j]
        s[j] = t


@inline
def neumaier_bfloat(x, bs, s, c):
    for j in range(s.size):
        old, p = s[j], on_bfloat_grid(x * bs[j])
        t = on_bfloat_grid(old + p)
        first = abs(old) >= abs(p)
        larger, smaller = (old, p) if first else (p, old)
        more = on_bfloat_grid(c[j] + on_bfloat_grid(on_bfloat_grid(larger - t) + smaller))
        c[j] = more if abs(t) < _INF else c[j]
        s[j] = t


@inline
def neumaier_narrow(x, bs, s, c, g):
    for j in range(s.size):
        old, p = s[j], on_narrow_grid(x * bs[j], g)
        t = on_narrow_grid(old + p, g)
        first = abs(old) >= abs(p)
        larger, smaller = (old, p) if first else (p, old)
        more = on_narrow_grid(c[j] + on_narrow_grid(on_narrow_grid(larger - t, g) + smaller, g), g)
        c[j] = more if abs(t) < _INF else c[j]
        s[j] = t


@inline
def on_kind(kind, x, g):
    if kind == HALF:
        return on_half_grid(x)
    if kind == BFLOAT:
        return on_bfloat_grid(x)
    return on_narrow_grid(x, g) if kind == NARROW else x


@kernel
def neumaier(a, b, out, ranges, index, seeds, kind, grid):
    """s, comp = 0; t = s + x; comp += (larger of s and x - t) + the smaller, but not where t is not finite; s = t.

    The result is s + comp; s if there was no term.
    """
    wide_vectors()
    g = narrow_row(grid)
    comp = np.empty(out.shape[2], np.float32)
    for part in range(ranges.shape[0]):
        for i in range(out.shape[1]):
            s = out[part, i]
            comp[:] = _ZERO
            for k in range(ranges[part, 0], ranges[part, 1], ranges[part, 2]):
                if kind == PLAIN:
                    neumaier_plain(a[i, k], b[k], s, comp)
                elif kind == HALF:
                    neumaier_half(a[i, k], b[k], s, comp)
                elif kind == BFLOAT:
                    neumaier_bfloat(a[i, k], b[k], s, comp)
                else:
                    neumaier_narrow(a[i, k], b[k], s, comp, g)
            if ranges[part, 1] > ranges[part, 0]:
                for j in range(s.size):
                    s[j] = on_kind(kind, s[j] + comp[j], g)
