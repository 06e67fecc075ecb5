"""Sums and moments of rows in the order of a GPU's threads, in float32: ties to even, without events.

x is (rows, terms), C-contiguous. A term belongs to a *lane*: an accumulator of a thread. The layout of the lanes is

    (head, first, step, whole, round, copies, width, threads)

- Term i < head goes to lane first + i * step.
- The next `whole` terms come in rounds of `round` terms. With width 0, term j of round r goes to lane (r % copies) *
  round + j. Otherwise each lane takes `width` neighbouring terms of a round.
- Term i of the others goes to lane i % threads * step.

The lanes are added by the program of a stack machine, as in gemm/float32.py: `order` has the lanes, `merges` the number
of additions after each. A lane without terms is +0. The lanes of a moment are (mean, squares, count).

The kernels need `cpu.environment_is_default()`.
"""

import numba
import numpy as np

from ..runtime.intrinsics import multiply_add
from ..runtime.jit import inline, kernel_of

_ROWS = numba.types.Array(numba.float32, 2, "C", readonly=True)
_OUT = numba.types.Array(numba.float32, 1, "C")
_TWO = numba.types.Array(numba.float32, 2, "C")
_LAYOUT = numba.types.Array(numba.int64, 1, "C", readonly=True)
_ORDER, _MERGES = (numba.types.Array(x, 1, "C", readonly=True) for x in (numba.int32, numba.int8))
_RUNS = numba.types.Array(numba.int64, 2, "C", readonly=True)
HEAD, FIRST, STEP, WHOLE, ROUND, COPIES, WIDTH, THREADS = range(8)
ONE = np.float32(1)


@inline
def _folded(lanes, order, merges, stack):
    """The sum of the lanes in the order of a program."""
    top = 0
    for i in range(order.size):
        stack[top] = lanes[order[i]]
        top += 1
        for _ in range(merges[i]):
            top -= 1
            stack[top - 1] += stack[top]
    return stack[0]


@kernel_of((_ROWS, _LAYOUT, numba.int64, _ORDER, _MERGES, numba.int64, _OUT))
def sums(x, layout, count, order, merges, depth, out):
    """Sum each row."""
    lanes, stack = np.empty(count, np.float32), np.empty(depth, np.float32)
    head, first, step, whole = layout[HEAD], layout[FIRST], layout[STEP], layout[WHOLE]
    every, copies, width, threads = layout[ROUND], layout[COPIES], layout[WIDTH], layout[THREADS]
    for i in range(x.shape[0]):
        row = x[i]
        lanes[:] = np.float32(0)
        for k in range(head):
            lanes[first + k * step] += row[k]
        body = row[head : head + whole]
        if width == 0:
            r = 0
            for start in range(0, whole, every):
                part = body[start : min(start + every, whole)]
                target = lanes[r * every : r * every + part.size]
                for j in range(part.size):
                    target[j] += part[j]
                r = r + 1 if r + 1 < copies else 0
        else:
            for start in range(0, whole, every):
                part = body[start : min(start + every, whole)]
                full = part.size // width
                for t in range(full):
                    acc = lanes[t]
                    for j in range(width):
                        acc += part[t * width + j]
                    lanes[t] = acc
                for k in range(full * width, part.size):
                    lanes[full] += part[k]
        for k in range(head + whole, row.size):
            lanes[(k - head - whole) % threads * step] += row[k]
        out[i] = _folded(lanes, order, merges, stack)


@kernel_of((_ROWS, _ROWS, _LAYOUT, numba.int64, _ORDER, _MERGES, numba.int64, _OUT))
def dots(x, y, layout, count, order, merges, depth, out):
    """Sum the products of each row of x with the row of y, by fused multiply-adds. y may have one row for all."""
    lanes, stack = np.empty(count, np.float32), np.empty(depth, np.float32)
    head, first, step, whole = layout[HEAD], layout[FIRST], layout[STEP], layout[WHOLE]
    every, copies, width, threads = layout[ROUND], layout[COPIES], layout[WIDTH], layout[THREADS]
    for i in range(x.shape[0]):
        row, other = x[i], y[i if y.shape[0] > 1 else 0]
        lanes[:] = np.float32(0)
        for k in range(head):
            lanes[first + k * step] = multiply_add(row[k], other[k], lanes[first + k * step])
        body, beside = row[head : head + whole], other[head : head + whole]
        if width == 0:
            r = 0
            for start in range(0, whole, every):
                stop = min(start + every, whole)
                part, factor = body[start:stop], beside[start:stop]
                target = lanes[r * every : r * every + part.size]
                for j in range(part.size):
                    target[j] = multiply_add(part[j], factor[j], target[j])
                r = r + 1 if r + 1 < copies else 0
        else:
            for start in range(0, whole, every):
                stop = min(start + every, whole)
                part, factor = body[start:stop], beside[start:stop]
                full = part.size // width
                for t in range(full):
                    acc = lanes[t]
                    for j in range(width):
                        acc = multiply_add(part[t * width + j], factor[t * width + j], acc)
                    lanes[t] = acc
                for k in range(full * width, part.size):
                    lanes[full] = multiply_add(part[k], factor[k], lanes[full])
        for k in range(head + whole, row.size):
            lane = (k - head - whole) % threads * step
            lanes[lane] = multiply_add(row[k], other[k], lanes[lane])
        out[i] = _folded(lanes, order, merges, stack)


@inline
def _entered(reciprocal, x, means, squares, counts, lane):
    """Add a term to a lane of moments."""
    counts[lane] += ONE
    d = x - means[lane]
    if reciprocal:
        means[lane] = multiply_add(d, ONE / counts[lane], means[lane])
    else:
        means[lane] += d / counts[lane]
    squares[lane] = multiply_add(d, x - means[lane], squares[lane])


@inline
def _combined(reciprocal, ma, qa, na, mb, qb, nb):
    """The moments of two lanes, a before b."""
    n = na + nb
    d = mb - ma
    if reciprocal:
        share = ONE / n
        fa, fb = na * share, nb * share
        mean, squares = multiply_add(fb, mb, ma * fa), multiply_add(d * d * nb, fa, qb + qa)
        return mean if n > 0 else np.float32(0), squares if n > 0 else np.float32(0), n
    if na == 0:
        return mb, qb, n
    if nb == 0:
        return ma, qa, n
    share = nb / n
    return multiply_add(d, share, ma), multiply_add(d * d * na, share, qa + qb), n


@kernel_of((_ROWS, _LAYOUT, numba.int64, _RUNS, numba.boolean, _TWO))
def moments(x, layout, count, runs, reciprocal, out):
    """The mean and the sum of squared differences of each row, by Welford's algorithm: out is (2, rows).

    `reciprocal` selects the steps: see `floatsim.accumulation.Welford`. A row (a, b, n) of `runs` combines the lanes a
    + i and b + i into a + i, for i < n. The result is in the lane a of the last row, or in lane 0.
    """
    means, squares, counts = np.empty(count, np.float32), np.empty(count, np.float32), np.empty(count, np.float32)
    head, first, step, whole = layout[HEAD], layout[FIRST], layout[STEP], layout[WHOLE]
    every, copies, width, threads = layout[ROUND], layout[COPIES], layout[WIDTH], layout[THREADS]
    apart = max(width, 1)
    column = np.empty(every, np.float32)
    last = runs[runs.shape[0] - 1, 0] if runs.shape[0] else 0
    for i in range(x.shape[0]):
        row = x[i]
        means[:] = np.float32(0)
        squares[:] = np.float32(0)
        counts[:] = np.float32(0)
        for k in range(head):
            _entered(reciprocal, row[k], means, squares, counts, first + k * step)
        body = row[head : head + whole]
        r = 0
        for start in range(0, whole, every):
            part = body[start : min(start + every, whole)]
            full, base = part.size // apart, r * every
            m, q, n = means[base : base + full], squares[base : base + full], counts[base : base + full]
            for j in range(apart):
                for t in range(full):
                    column[t] = part[t * apart + j]
                if reciprocal:
                    for t in range(full):
                        number = n[t] + ONE
                        d = column[t] - m[t]
                        mean = multiply_add(d, ONE / number, m[t])
                        q[t] = multiply_add(d, column[t] - mean, q[t])
                        m[t], n[t] = mean, number
                else:
                    for t in range(full):
                        number = n[t] + ONE
                        d = column[t] - m[t]
                        mean = m[t] + d / number
                        q[t] = multiply_add(d, column[t] - mean, q[t])
                        m[t], n[t] = mean, number
            for k in range(full * apart, part.size):
                _entered(reciprocal, part[k], means, squares, counts, full)
            if width == 0:
                r = r + 1 if r + 1 < copies else 0
        for k in range(head + whole, row.size):
            _entered(reciprocal, row[k], means, squares, counts, (k - head - whole) % threads * step)
        for p in range(runs.shape[0]):
            a, b, size = runs[p]
            for k in range(size):
                means[a + k], squares[a + k], counts[a + k] = _combined(
                    reciprocal, means[a + k], squares[a + k], counts[a + k], means[b + k], squares[b + k], counts[b + k]
                )
        out[0, i], out[1, i] = means[last], squares[last]
