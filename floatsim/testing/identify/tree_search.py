"""Find the summation tree of a matrix product, without knowledge of the kernel.

The method is FPRev (P. Xie et al., "Revealing floating-point accumulation orders", USENIX ATC 2025). Product i is +M,
product j is -M, and all others are one unit, which M absorbs. The units that remain are those outside the node where i
and j meet. One product of matrices tests many pairs: row i of a has the large factor at k = i, column j of b at k = j.

Kernels with DAZ read subnormal factors as 0. For formats whose normal numbers have too little range, +M and -M then are
large in both factors. Such a product of matrices tests one pair for each element of its diagonal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from floatsim.formats import FloatFormat

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]

__all__ = ["Meetings", "Probe", "find_meetings", "normal_probe_for", "probe_for", "reads_as_zero", "widest_probe_for"]

_ALL_PAIRS = 512  # terms: beyond, the number of all pairs exceeds that of the adaptive search by far
_ALL_PRODUCTS = 1 << 14  # the same for products of matrices: of small ones, each tests few pairs
_ALL_ON_DIAGONALS = 128  # the same for pairs that are tested on diagonals
_FEW_PRODUCTS = 32  # of matrices: if all pairs take more, the others follow from those of the adaptive search
_CHECKED = 4  # products of random pairs that verify this
_REACH = 100  # the largest exponent of a product
_VANISHING = 5000  # `weak` of a probe whose units outside a chunk are 0
_PRODUCTS = 1 << 15  # products of matrices, at most


@dataclass(frozen=True)
class Probe:
    """The factors of the products that find a tree, as exponents: large and unit factor of each side.

    `weak` is the exponent by which the units outside a chunk are smaller. A result counts `chunk` units exactly. With
    `both`, M is the product of both large factors, else of a large and a unit factor.
    """

    a: tuple[int, int]
    b: tuple[int, int]
    weak: int
    chunk: int
    both: bool = False


@dataclass(frozen=True)
class Meetings:
    """Pairs of terms, and the number of terms below the node where they meet. They determine the tree.

    `sizes` is 2 everywhere if no unit is absorbed: the sum is exact, or wider than the probe.
    """

    i: NDArray[np.int64]
    j: NDArray[np.int64]
    sizes: NDArray[np.int64]


def _sizes(accumulator: FloatFormat, result: FloatFormat, k: int) -> tuple[int, int, int, int]:
    """Return `chunk` and `weak` of a probe, the exponent of M / unit, and the largest exponent of M."""
    chunk = min(k, 1 << min(result.precision, accumulator.precision) - 1)
    weak = 0 if chunk >= k else k.bit_length() + 2
    return chunk, weak, accumulator.precision + 2 + chunk.bit_length(), min(accumulator.emax, result.emax, _REACH) - 2


def probe_for(a: FloatFormat, b: FloatFormat, accumulator: FloatFormat, result: FloatFormat, k: int) -> Probe | None:
    """Return the factors for an accumulator, or None if the formats have no such range.

    M absorbs a chunk of units: M / unit >= 2**(precision + 1) * chunk. All other units together are below a quarter of
    a unit, so that they do not change a count in a result of few bits.
    """
    chunk, weak, gap, top = _sizes(accumulator, result, k)
    for low_a, low_b in ((a.emin, b.emin), (_least(a), _least(b))):
        # +M is large(a) * unit(b), -M is unit(a) * large(b): both sides need the whole gap
        if a.emax - low_a < gap + weak or b.emax - low_b < gap + weak:
            continue
        middle = min(top - gap, (a.emax - gap - weak) + (b.emax - gap - weak))
        unit_a = max(low_a + weak, min(a.emax - gap, middle // 2))
        unit_b = max(low_b, min(b.emax - gap - weak, middle - unit_a))
        counted = unit_a + unit_b >= _least(result)
        if unit_a + unit_b + gap <= top and counted and unit_a + unit_b - weak >= _least(accumulator):
            return Probe((unit_a + gap, unit_a), (unit_b + gap, unit_b), weak, chunk)
    return None


def _least(fmt: FloatFormat) -> int:
    """Return the exponent of the least positive number."""
    return fmt.emin - fmt.trailing_bits


def normal_probe_for(
    a: FloatFormat, b: FloatFormat, accumulator: FloatFormat, result: FloatFormat, k: int
) -> Probe | None:
    """Return the factors of a probe without subnormal numbers, or None if the formats have no such range."""
    chunk, weak, gap, top = _sizes(accumulator, result, k)
    half_a, half_b = gap - gap // 2, gap // 2
    unit_a, unit_b = min(a.emax - half_a, 0), min(b.emax - half_b, 0)
    lower = max(0, unit_a + unit_b + gap - top)
    unit_a, unit_b = unit_a - lower // 2, unit_b - (lower - lower // 2)
    if unit_a - weak < a.emin or unit_b < b.emin or unit_a + unit_b - weak < max(accumulator.emin, result.emin):
        return None
    return Probe((unit_a + half_a, unit_a), (unit_b + half_b, unit_b), weak, chunk, both=True)


def widest_probe_for(
    a: FloatFormat, b: FloatFormat, accumulator: FloatFormat, result: FloatFormat, k: int
) -> Probe | None:
    """Return the factors of a probe with the least units that count, or None if the formats have no such range.

    The units outside a chunk are 0, and M may be beyond the range of the result: the search of last resort, for E4M3
    and for results in FP16.
    """
    unit = max(_least(a) + _least(b), _least(accumulator), _least(result))
    unit_b = max(_least(b), unit - max(_least(a), unit // 2))
    unit_a = unit - unit_b
    widest = min(a.emax + b.emax, accumulator.emax - 1) - unit
    bits = min(widest - accumulator.precision - 2, min(result.precision, accumulator.precision) - 1)
    if bits < 1 or unit_a > a.emax or unit_b > b.emax:
        return None
    chunk = min(k, (1 << bits) - 1)
    gap = accumulator.precision + 2 + chunk.bit_length()
    large_a = min(a.emax, unit_a + gap)
    large_b = unit_b + gap - (large_a - unit_a)
    return Probe((large_a, unit_a), (large_b, unit_b), 0 if chunk == k else _VANISHING, chunk, both=True)


def reads_as_zero(kernel: Callable[[Matrix, Matrix], Matrix], probe: Probe, shape: tuple[int, int, int]) -> bool:
    """Return whether the product of the least factors of a probe is 0, as with DAZ and subnormal factors."""
    m, k, n = shape
    a, b = np.zeros((m, k)), np.zeros((k, n))
    weak = 0 if probe.weak == _VANISHING else probe.weak
    a[:, 0], b[0] = 2.0 ** (probe.a[1] - weak), 2.0 ** probe.b[1]
    return not kernel(a, b).any()


def _counts(
    kernel: Callable[[Matrix, Matrix], Matrix], probe: Probe, shape: tuple[int, int, int], rows: Any, columns: Any
) -> NDArray[np.int64]:
    """Return the number of units that remain for each pair of a row's i and a column's j; -1 for i = j."""
    m, k, n = shape
    remain = np.zeros((len(rows), len(columns)))
    for start in range(0, k, probe.chunk):
        terms = np.arange(k)
        inside = (terms >= start) & (terms < start + probe.chunk)
        unit = np.where(inside, probe.a[1], probe.a[1] - probe.weak)
        large = np.where(inside, probe.b[0], probe.b[0] + probe.weak)  # -M is the same in and outside the chunk
        for top in range(0, len(rows), m):
            for left in range(0, len(columns), n):
                i, j = rows[top : top + m], columns[left : left + n]
                a, b = np.tile(np.ldexp(1.0, unit), (m, 1)), np.full((k, n), 2.0 ** probe.b[1])
                a[np.arange(len(i)), i] = 2.0 ** probe.a[0]
                b[j, np.arange(len(j))] = -np.ldexp(1.0, large[j])
                result = kernel(a, b)[: len(i), : len(j)] / 2.0 ** (probe.a[1] + probe.b[1])
                remain[top : top + m, left : left + n] += np.rint(result) if probe.weak else result
    with np.errstate(invalid="ignore"):
        found = np.where(np.isfinite(remain) & (remain == np.rint(remain)), remain, -2).astype(np.int64)
    found[np.asarray(rows)[:, np.newaxis] == np.asarray(columns)] = -1
    return found


def _on_diagonals(
    kernel: Callable[[Matrix, Matrix], Matrix], probe: Probe, shape: tuple[int, int, int], i: Any, j: Any
) -> NDArray[np.int64]:
    """Return the number of units that remain for each pair (i, j); -2 if a result is no number of units."""
    m, k, n = shape
    size, remain, terms = min(m, n), np.zeros(len(i)), np.arange(k)
    for start in range(0, k, probe.chunk):
        inside = (terms >= start) & (terms < start + probe.chunk)
        for first in range(0, len(i), size):
            here, there = i[first : first + size], j[first : first + size]
            at = np.arange(len(here))
            a = np.tile(np.ldexp(1.0, np.where(inside, probe.a[1], probe.a[1] - probe.weak)), (m, 1))
            b = np.full((k, n), 2.0 ** probe.b[1])
            a[at, here], a[at, there] = 2.0 ** probe.a[0], -(2.0 ** probe.a[0])
            b[here, at] = b[there, at] = 2.0 ** probe.b[0]
            result = kernel(a, b)[at, at] / 2.0 ** (probe.a[1] + probe.b[1])
            remain[first : first + size] += np.rint(result) if probe.weak else result
    with np.errstate(invalid="ignore"):
        return np.where(np.isfinite(remain) & (remain == np.rint(remain)), remain, -2).astype(np.int64)


def _pairs_on_diagonals(
    kernel: Callable[[Matrix, Matrix], Matrix], probe: Probe, shape: tuple[int, int, int]
) -> Meetings | None:
    """Return pairs that determine the tree: all pairs, or those of the adaptive search."""
    m, k, n = shape

    def sizes_of(i: Any, j: Any) -> NDArray[np.int64] | None:
        sizes = k - _on_diagonals(kernel, probe, shape, i, j)
        return None if sizes.size and not 2 <= sizes.min() <= sizes.max() <= k else sizes

    i, j = np.triu_indices(k, 1)
    if k <= _ALL_ON_DIAGONALS:
        size = min(m, n)
        if -(-len(i) // size) * -(-k // probe.chunk) > _FEW_PRODUCTS:
            some = _stars_on_diagonals(sizes_of, k)
            whole = None if some is None else _completed(some, k)
            tested = np.sort(np.random.default_rng(0).permutation(len(i))[: _CHECKED * size])
            measured = sizes_of(i[tested], j[tested])
            if whole is not None and measured is not None and np.array_equal(measured, whole.sizes[tested]):
                return whole
        sizes = sizes_of(i, j)
        return None if sizes is None else Meetings(i, j, sizes)
    stars = _stars_on_diagonals(sizes_of, k)
    return None if stars is None else _joined(stars)


_Star = tuple["NDArray[np.int64]", "NDArray[np.int64]", "NDArray[np.int64]"]
"""One term many times, other terms, and the sizes where they meet it."""


def _joined(stars: list[_Star]) -> Meetings:
    return Meetings(*(np.concatenate(column) for column in zip(*stars, strict=True)))


def _completed(stars: list[_Star], k: int) -> Meetings:
    """Return all pairs of a tree, from the stars of an adaptive search.

    Two terms that meet a third one at different nodes meet at the upper node of the two, and otherwise there or below.
    """
    table = np.full((k, k), k, np.int64)
    for pivots, others, sizes in stars:
        table[pivots, others] = table[others, pivots] = sizes
        places = np.ix_(others, others)
        table[places] = np.minimum(table[places], np.maximum.outer(sizes, sizes))
    i, j = np.triu_indices(k, 1)
    return Meetings(i, j, table[i, j])


def _stars_on_diagonals(sizes_of: Callable[[Any, Any], NDArray[np.int64] | None], k: int) -> list[_Star] | None:
    """Return the stars of the adaptive search for pairs on diagonals; None if a result is no number of units."""
    found: list[_Star] = []
    groups, last = [np.arange(k)] if k > 1 else [], False
    while groups:
        pairs = [(np.full(len(g) - 1, g[-1 if last else 0]), g[:-1] if last else g[1:]) for g in groups]
        last = not last
        every = sizes_of(*(np.concatenate(side) for side in zip(*pairs, strict=True)))
        if every is None:
            return None
        of_groups = np.split(every, np.cumsum([len(side) for side, _ in pairs])[:-1])
        found += [(i, j, sizes) for (i, j), sizes in zip(pairs, of_groups, strict=True)]
        parts = [j[sizes == size] for _, j, sizes in found[-len(pairs) :] for size in np.unique(sizes)]
        groups = [part for part in parts if len(part) > 1]
    return found


def find_meetings(
    kernel: Callable[[Matrix, Matrix], Matrix], probe: Probe, shape: tuple[int, int, int]
) -> Meetings | None:
    """Return pairs that determine the tree of a kernel; None if a result is no number of units.

    Up to 512 terms all pairs are tested, if that takes few enough calls of the kernel. Otherwise one term of each group
    is compared with the others of the group, and the others are grouped by where they meet it, until each group has one
    term. If all pairs take more than 32 calls, this comes first: random pairs verify the pairs that follow from it.
    """
    m, k, n = shape
    if probe.both:
        return _pairs_on_diagonals(kernel, probe, shape)
    calls = -(-k // m) * -(-k // n) * -(-k // probe.chunk)
    if k <= _ALL_PAIRS and calls <= _ALL_PRODUCTS:
        if calls > _FEW_PRODUCTS:
            stars = _adaptive(kernel, probe, shape)
            whole = None if stars is None else _completed(stars, k)
            if whole is not None and _has_random_pairs(whole, kernel, probe, shape):
                return whole
        remain = _counts(kernel, probe, shape, np.arange(k), np.arange(k))
        i, j = np.triu_indices(k, 1)
        upper, lower = remain[i, j], remain[j, i]
        if not np.array_equal(upper, lower) or (upper.size and not 0 <= upper.min() <= upper.max() <= k - 2):
            return None
        return Meetings(i, j, k - upper)
    stars = _adaptive(kernel, probe, shape)
    return None if stars is None else _joined(stars)


def _has_random_pairs(
    found: Meetings, kernel: Callable[[Matrix, Matrix], Matrix], probe: Probe, shape: tuple[int, int, int]
) -> bool:
    """Return whether the pairs of random terms, in both orders, meet as in a table of all pairs."""
    m, k, n = shape
    remain = np.full((k, k), -1, np.int64)  # of a term with itself
    remain[found.i, found.j] = remain[found.j, found.i] = k - found.sizes
    rng = np.random.default_rng(0)
    for _ in range(_CHECKED):
        rows, columns = rng.permutation(k)[:m], rng.permutation(k)[:n]
        if not np.array_equal(_counts(kernel, probe, shape, rows, columns), remain[np.ix_(rows, columns)]):
            return False
    return True


def _spread(group: NDArray[np.int64], number: int, last: bool) -> NDArray[np.int64]:
    """Return terms of a group, from its first to its last one; of one term, the first or the last."""
    if number == 1:
        return group[-1:] if last else group[:1]
    chosen: NDArray[np.int64] = group[np.unique(np.linspace(0, len(group) - 1, number).astype(int))]
    return chosen


def _packed(groups: list[NDArray[np.int64]], most: int) -> list[list[NDArray[np.int64]]]:
    """Return groups in lists that have at most so many terms together."""
    found: list[list[NDArray[np.int64]]] = []
    for group in groups:
        if not found or sum(map(len, found[-1])) + len(group) > most:
            found.append([])
        found[-1].append(group)
    return found


def _adaptive(
    kernel: Callable[[Matrix, Matrix], Matrix], probe: Probe, shape: tuple[int, int, int]
) -> list[_Star] | None:
    """Return the stars of the adaptive search; None if a result is no number of units.

    Up to 512 terms, groups as long as a side of the result take one product for all of their pairs, and of longer
    groups as many terms as the result has rows are compared with all terms. Beyond, one term of each group: the pairs
    stay few, since all candidates are compared with them.
    """
    m, k, n = shape
    side, many = (min(m, n), m) if k <= _ALL_PAIRS else (1, 1)
    found: list[_Star] = []
    groups, spent, last = [np.arange(k)] if k > 1 else [], 0, False
    while groups:
        long = [group for group in groups if len(group) > side]
        short = _packed([group for group in groups if len(group) <= side], side)
        tasks = [(batch, batch) for batch in short]
        for at in range(0, len(long), m):
            part = long[at : at + m]
            tasks.append((part, [_spread(group, max(many // len(part), 1), last) for group in part]))
        last = not last
        groups = []
        for part, pivots in tasks:
            columns = np.unique(np.concatenate(part))
            spent += -(-len(columns) // n) * -(-k // probe.chunk)
            if spent > _PRODUCTS:
                raise ValueError(f"the tree of {k} terms needs more than {_PRODUCTS} products of matrices")
            remain = iter(_counts(kernel, probe, shape, np.concatenate(pivots), columns))
            for group, rows in zip(part, pivots, strict=True):
                left = group
                seen = []
                for pivot in rows:
                    sizes = k - next(remain)
                    left = left[left != pivot]
                    others = sizes[np.searchsorted(columns, left)]
                    if others.size and not 2 <= others.min() <= others.max() <= k:
                        return None
                    found.append((np.full(len(left), pivot), left, others))
                    seen.append(sizes)
                if len(left) > 1:
                    by_pivots = np.stack([sizes[np.searchsorted(columns, left)] for sizes in seen])
                    _, kind = np.unique(by_pivots, axis=1, return_inverse=True)
                    parts = (left[kind.ravel() == number] for number in range(int(kind.max()) + 1))
                    groups += [each for each in parts if len(each) > 1]
    return found
