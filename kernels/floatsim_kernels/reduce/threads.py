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


@kernel_of((_ROWS, _ORDER, numba.int64, _ORDER, _MERGES, numba.int64, numba.boolean, _TWO))
def moments(x, lane_of, count, order, merges, depth, reciprocal, out):
    """The mean and the sum of squared differences of each row, by Welford's algorithm.

    lane_of has the lane of each term. out is (2, rows). `reciprocal` selects the steps: see `Welford`.
    """
    means, squares = np.empty(count, np.float32), np.empty(count, np.float32)
    counts, numbers = np.zeros(count, np.int64), np.empty(lane_of.size, np.int64)
    for k in range(lane_of.size):
        counts[lane_of[k]] += 1
        numbers[k] = counts[lane_of[k]]
    most = 0
    for lane in range(count):
        most = max(most, counts[lane])
    inverse = np.empty(most + 1, np.float32)
    for n in range(1, most + 1):
        inverse[n] = ONE / np.float32(n)
    a, b, c = np.empty(depth, np.float32), np.empty(depth, np.float32), np.empty(depth, np.float32)
    for i in range(x.shape[0]):
        row = x[i]
        means[:] = np.float32(0)
        squares[:] = np.float32(0)
        if reciprocal:
            for k in range(row.size):
                lane = lane_of[k]
                mean = means[lane]
                d = row[k] - mean
                mean = multiply_add(d, inverse[numbers[k]], mean)
                squares[lane] = multiply_add(d, row[k] - mean, squares[lane])
                means[lane] = mean
        else:
            for k in range(row.size):
                lane = lane_of[k]
                mean = means[lane]
                d = row[k] - mean
                mean = mean + d / np.float32(numbers[k])
                squares[lane] = multiply_add(d, row[k] - mean, squares[lane])
                means[lane] = mean
        top = 0
        for p in range(order.size):
            lane = order[p]
            a[top], b[top], c[top] = means[lane], squares[lane], np.float32(counts[lane])
            top += 1
            for _ in range(merges[p]):
                top -= 1
                ma, qa, na = a[top - 1], b[top - 1], c[top - 1]
                mb, qb, nb = a[top], b[top], c[top]
                n = na + nb
                d = mb - ma
                if reciprocal:
                    if n > 0:
                        share = ONE / n
                        fa, fb = na * share, nb * share
                        a[top - 1] = multiply_add(fb, mb, ma * fa)
                        b[top - 1] = multiply_add(d * d * nb, fa, qb + qa)
                elif na == 0:
                    a[top - 1], b[top - 1] = mb, qb
                elif nb != 0:
                    share = nb / n
                    a[top - 1] = multiply_add(d, share, ma)
                    b[top - 1] = multiply_add(d * d * na, share, qa + qb)
                c[top - 1] = n
        out[0, i], out[1, i] = a[0], b[0]
