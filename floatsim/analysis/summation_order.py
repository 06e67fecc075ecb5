"""Detect the summation order of a kernel, and the bits of a small term that it keeps beside a large one.

Both functions add a large term M and later its negative. The sum shows which small terms were absorbed in between.
`reveal_order` is the method FPRev (P. Xie et al., "Revealing floating-point accumulation orders", USENIX ATC 2025).
Products i and j are +M and -M. All other products are one small unit, and M absorbs every unit that is added to it.
Units that are added to +M or -M before the two meet are absorbed. All other units remain. The sum is their number,
which depends on where i and j meet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from floatsim._warnings import warn
from floatsim.accumulation import Accumulation, AccumulationLike, as_accumulation, fitted, leaves, tensor_cores
from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.call.options import one_call
from floatsim.formats import FP32, FloatFormat, FormatLike, as_format
from floatsim.formats._validation import as_index

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["reveal_order", "reveal_width"]

Kernel: TypeAlias = "Accumulation | Callable[[Any, Any], Any]"

_FEWEST, _MOST = 3, 512  # terms; beyond the latter, k * k dot products of k terms take too long
_REACH = 60  # the largest product is 2**60 at most: an accumulator in FP32 is far from overflow
_REPEATED = 512  # pairs of a callable that are repeated, and then tried with half of the units: all up to k = 32
_FEWEST_COUNTED = 16  # units that a kernel must count exactly
_PROBE_BITS = 4  # of the small term of `reveal_width`, all set: each discarded bit changes the result
_KEPT = 26  # bits that a matrix unit keeps, at most, of operands without scales
_LEAST_CHUNK = 8  # units that are counted at once: with fewer, the number of dot products grows too much
_BATCH = 1 << 20  # elements of each operand that the emulator takes at once


@one_call()
def reveal_order(
    kernel: AccumulationLike | Callable[[Any, Any], Any], k: int, *, format: FormatLike = "bf16",
    accumulator: FormatLike | None = None,
) -> NDArray[np.int64]:  # fmt: skip
    """Return the order fingerprint of a sum: how many other terms remain when terms i and j cancel, for every pair.

    Parameters
    ----------
    kernel : accumulation, text, or callable
        A description of a sum; or any dot product, called as kernel(a, b) with vectors of k numbers in `format` (its
        NumPy or ml_dtypes array, where it has a dtype, else a FloatArray), which returns one number.
    k : int
        The number of terms, 3 to 512. For a kernel that adds in blocks, choose the length of a few blocks.
    format : format
        The format of the operands. Its products must span more bits than the accumulator has: those of BF16 always do.
    accumulator : format, optional
        The narrowest format in which the kernel adds. Default: the description's, or FP32 for a callable.

    Returns
    -------
    int64 array (k, k)
        The counts, symmetric, with -1 on the diagonal. Terms that are added at once have the same count: the number of
        terms after their block. The count k - 2 everywhere means that no term is absorbed: the sum is exact, or the
        kernel adds in a format wider than `accumulator`. Equal fingerprints mean equal order, not equal bits.

    Raises
    ------
    ValueError
        If `format` has too small a range for the accumulator. If a callable does not return 1 and 2 for one and two
        products of 1. If it cannot count 16 units exactly. If it is not deterministic, or returns no number of units.
    TypeError
        If `kernel` is neither a description nor a callable.

    Warns
    -----
    FloatsimWarning
        If a callable absorbs no term in FP32, the default: BLAS and compilers may add FP32 products in FP64.
        accumulator="fp64" shows the order of such a callable. Also if the order does not predict the sums of other
        values: the order of the callable depends on the values.

    Notes
    -----
    The function computes k * (k - 1) / 2 dot products. If the result, the accumulator or the range of the products does
    not count k units, it counts them in chunks, with as many dot products for each chunk: a BF16 result counts 256
    units, and FP8 products beside 26 bits 64. For a callable it repeats up to 512 of them, and compares the
    order with up to 512 sums of random units. Source: P. Xie et al., "Revealing floating-point accumulation orders",
    USENIX ATC 2025. The function does not build the trees.

    Examples
    --------
    With one accumulator, the terms after i and j remain. In pairs, all terms remain that share no subtree with them.

    >>> import floatsim as fs
    >>> fs.reveal_order("fp32", 5)
    array([[-1,  3,  2,  1,  0],
           [ 3, -1,  2,  1,  0],
           [ 2,  2, -1,  1,  0],
           [ 1,  1,  1, -1,  0],
           [ 0,  0,  0,  0, -1]])
    >>> fs.reveal_order("pairwise(fp32)", 4).tolist()
    [[-1, 2, 0, 0], [2, -1, 0, 0], [0, 0, -1, 2], [0, 0, 2, -1]]
    """
    import numpy as np

    k = as_index(k, "k", _FEWEST, _MOST)
    fmt = as_format(format)
    accumulation = None if callable(kernel) else as_accumulation(kernel)
    if accumulator is not None:
        within = [as_format(accumulator)]
    elif accumulation is None:
        within = [FP32]
    else:
        within = [leaf.format for leaf in leaves(accumulation)] or [FP32]
    keeps = max([each.precision for each in within] + _kept_by_units(accumulation, fmt))
    dot: Any = kernel if accumulation is None else accumulation
    large, unit, chunk = _exponents(fmt, within, k, keeps)
    if accumulation is None:
        _must_add(dot, range(k), k, fmt)
        chunk = min(chunk, _counted(dot, min(k, chunk), k, unit, fmt))
    pairs = np.argwhere(np.triu(np.ones((k, k), bool), 1))
    remain = np.zeros(len(pairs), np.int64)
    for start in range(0, k, chunk):
        a, b = _probes(pairs, k, large, unit, start, chunk)
        sums = _sums(dot, a, b, fmt)
        remain += _survivors(sums, pairs, k, (large, unit), fmt, within)
    found = np.full((k, k), -1, np.int64)
    found[tuple(pairs.T)] = found[tuple(pairs.T[::-1])] = remain
    if accumulation is None:
        chosen = np.random.default_rng(0).permutation(len(pairs))[:_REPEATED]
        a, b, first = a[chosen], b[chosen], [sums[n] for n in chosen]
        _must_repeat(dot, a, b, fmt, first)
        a, b = _probes(pairs[chosen], k, large, unit, 0, k)
        if not _predicts(found, dot, pairs[chosen], a, b, fmt, unit, chunk):
            warn(
                "the order that was found does not predict the sums of other values: the kernel's order depends on "
                "the values, such as on which of them are 0"
            )
    if accumulation is None and accumulator is None and found.sum() == k * (k - 1) * (k - 2) - k:
        warn(
            f"nothing was lost beside 2**{large}: the kernel adds exactly, or in something wider than "
            f"{within[0].name}; accumulator='fp64' shows an order in FP64"
        )
    return found


@one_call()
def reveal_width(
    kernel: AccumulationLike | Callable[[Any, Any], Any], gaps: Sequence[int], *, format: FormatLike = "fp16",
    places: tuple[int, int, int] = (0, 1, 2), k: int | None = None,
) -> NDArray[np.float64]:  # fmt: skip
    """Return the share of a small term s that a kernel keeps beside a large term M: ((M + s) - M) / s.

    Parameters
    ----------
    kernel : accumulation, text, or callable
        A description of a sum, or any dot product, called as kernel(a, b) with vectors of k numbers in `format`. It
        returns one number.
    gaps : sequence of int
        The number of powers of two between the large product M and the small product s. The four leading bits of s are
        set (fewer if the format has fewer), so that each discarded bit changes the result.
    format : format
        The format of the operands.
    places : (int, int, int)
        The k of M, s and -M. Default: neighbours, which lie in one block of a matrix unit.
    k : int, optional
        The number of products; the others are zeros. Default: the least that `places` needs.

    Returns
    -------
    float64 array (len(gaps),)
        1 if all bits of s are kept, 0 if none is, more than 1 if s is rounded up. NaN if the format has no such
        products, or the sum overflows.

    Raises
    ------
    ValueError
        If places are not three different k below `k`, or a callable does not return 1 and 2 for one and two products
        of 1 there.
    TypeError
        If `kernel` is neither a description nor a callable.

    Notes
    -----
    Sources: M. Fasi et al., "Numerical behavior of NVIDIA tensor cores" (PeerJ Computer Science 7:e330, 2021), for the
    method; P. Xie et al., MMA-Sim.

    Examples
    --------
    FP32 rounds to nearest at 24 bits. Hopper's FP8 unit keeps 13 bits below the leading bit of M and truncates.

    >>> import floatsim as fs
    >>> fs.reveal_width("fp32", [8, 20, 21, 24, 25]).round(2).tolist()
    [1.0, 1.0, 1.07, 1.07, 0.0]
    >>> fs.reveal_width("hopper", [8, 10, 11, 12, 13, 14], format="e4m3").round(2).tolist()
    [1.0, 1.0, 0.93, 0.8, 0.53, 0.0]
    """
    import numpy as np

    fmt = as_format(format)
    at = [as_index(place, "places", 0, 1 << 16) for place in places]
    length = max(at, default=0) + 1 if k is None else as_index(k, "k", 1, 1 << 16)
    if len(at) != 3 or len(set(at)) != 3 or max(at) >= length:
        raise ValueError(f"places must be three different k below {length}, not {places!r}")
    dot: Kernel = kernel if callable(kernel) else as_accumulation(kernel)
    if callable(kernel):
        _must_add(kernel, at, length, fmt)
    bits = min(fmt.precision, _PROBE_BITS)
    small = 2 - 2.0 ** (1 - bits)
    large = min(2 * fmt.emax - 2, 30)
    shares = np.full(len(gaps), np.nan)
    for n, gap in enumerate(as_index(gap, "gaps", 0, 4096) for gap in gaps):
        factors = [_factors(size, e, fmt) for size, e in ((1.0, large), (small, large - gap), (-1.0, large))]
        a, b = np.zeros((1, length)), np.zeros((1, length))
        for place, pair in zip(at, factors, strict=True):
            if pair is None:
                break
            a[0, place], b[0, place] = pair
        else:
            left = _sums(dot, a, b, fmt)[0] / (small * 2.0 ** (large - gap))
            shares[n] = left if np.isfinite(left) else np.nan
    return shares


def _factors(size: float, exponent: int, fmt: FloatFormat) -> tuple[float, float] | None:
    """Two numbers of the format whose product is size * 2**exponent, 1 <= |size| < 2; None where there are none."""
    for e in sorted(range(fmt.emin, fmt.emax), key=lambda e: abs(2 * e - exponent)):
        if fmt.emin - fmt.trailing_bits <= exponent - e < fmt.emax:
            return size * 2.0**e, 2.0 ** (exponent - e)
    return None


def _half(exponent: int, side: int) -> int:
    """The exponent of a's factor, and of b's."""
    return exponent // 2 if side == 0 else exponent - exponent // 2


def _exponents(fmt: FloatFormat, within: list[FloatFormat], k: int, keeps: int) -> tuple[int, int, int]:
    """Return the exponents of the large product and of the unit, and the number of units that the large one absorbs.

    Sums of units alone are exact. The unit is as large as possible, so that its factors are normal numbers where the
    format allows it.
    """
    large = min(2 * fmt.emax, *(each.emax - 1 for each in within), _REACH)
    least = max(2 * (fmt.emin - fmt.trailing_bits), *(each.emin - each.trailing_bits for each in within))
    fewest = min(each.precision for each in within)
    chunk = min(k, 1 << fewest)
    while chunk >= _LEAST_CHUNK // 2 and large - keeps - 1 - chunk.bit_length() < least:
        chunk //= 2
    if chunk < min(k, _LEAST_CHUNK):
        raise ValueError(
            f"format={fmt.name}: products and sums here reach from 2**{least} to 2**{large}, and a sum that keeps "
            f"{keeps} bits absorbs {min(k, _LEAST_CHUNK)} units only beyond {keeps + 5} powers of two. A format with "
            "more range, such as format='bf16', shows the order of a kernel that takes it"
        )
    return large, large - keeps - 1 - chunk.bit_length(), chunk


def _kept_by_units(accumulation: Accumulation | None, fmt: FloatFormat) -> list[int]:
    """Return the bits that the matrix units of a description keep of operands of a format."""
    if accumulation is None or not tensor_cores(accumulation):
        return []
    rows = [unit.row(fmt, fmt) for unit in tensor_cores(fitted(accumulation, fmt, fmt))]
    return [_KEPT if row.fused is None else row.fused.fraction_bits + 2 for row in rows]


def _probes(
    pairs: NDArray[np.int64], k: int, large: int, unit: int, start: int, chunk: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the factors of a row for each pair: +M and -M there, units at the other k of the chunk, and zeros."""
    import numpy as np

    a, b = (np.zeros((len(pairs), k)) for _ in range(2))
    a[:, start : start + chunk], b[:, start : start + chunk] = 2.0 ** _half(unit, 0), 2.0 ** _half(unit, 1)
    for place, sign in ((0, 1.0), (1, -1.0)):
        rows = np.arange(len(pairs)), pairs[:, place]
        a[rows], b[rows] = sign * 2.0 ** _half(large, 0), 2.0 ** _half(large, 1)
    return a, b


def _survivors(
    sums: list[float], pairs: NDArray[np.int64], k: int, exponents: tuple[int, int], fmt: FloatFormat,
    within: list[FloatFormat],
) -> NDArray[np.int64]:  # fmt: skip
    """Return the sums as numbers of units, or raise a ValueError that shows a sum that is none."""
    import numpy as np

    large, unit = exponents
    with np.errstate(all="ignore"):
        counts = np.array(sums) / 2.0**unit
        wrong = ~((counts >= 0) & (counts <= k - 2) & (counts == np.floor(counts)))
    if wrong.any():
        first = int(np.flatnonzero(wrong)[0])
        i, j = pairs[first].tolist()
        raise ValueError(
            f"with 2**{large} at k = {i}, its negative at k = {j} and 2**{unit} elsewhere the kernel gave "
            f"{sums[first]!r}; a sum of these products is 0 to {k - 2} times 2**{unit}. Does it multiply {fmt.name} "
            f"exactly, without flushing small numbers, and add in {'/'.join(each.name for each in within)} or "
            "wider (accumulator=)?"
        )
    return counts.astype(np.int64)


def _must_add(kernel: Kernel, places: Sequence[int], length: int, fmt: FloatFormat) -> None:
    """A ValueError unless one product of 1, at each of the places, sums to 1 and two to 2, exact in any accumulator.

    What ignores its operands would have a print, too: always 0 is the print of a block that is added at once.
    """
    import numpy as np

    asked = [*((place,) for place in places), (places[0], places[-1])]
    ones = np.zeros((len(asked), length))
    for row, at in zip(ones, asked, strict=True):
        row[list(at)] = 1
    for at, total in zip(asked, _sums(kernel, ones, ones, fmt), strict=True):
        if total != len(at):
            raise ValueError(
                f"with 1 * 1 at k = {' and '.join(map(str, at))}, and 0 elsewhere, the kernel gave {total!r}; the sum "
                f"is {len(at)}. Does it return the dot product of its two vectors?"
            )


def _counted(kernel: Kernel, chunk: int, k: int, unit: int, fmt: FloatFormat) -> int:
    """Return the number of units, at most `chunk`, up to which the sum of n units is n units.

    A result in BF16 counts to 256. A ValueError says that a kernel does not count to 16.
    """
    import numpy as np

    most = max(1, min(chunk, k - 2))
    ones = np.tril(np.ones((most, k)))
    a, b = (ones * 2.0 ** _half(unit, side) for side in (0, 1))
    for n, total in enumerate(_sums(kernel, a, b, fmt), 1):
        if total != n * 2.0**unit and n <= _FEWEST_COUNTED:
            raise ValueError(
                f"with 2**{unit} at the first {n} k, and 0 elsewhere, the kernel gave {total / 2.0**unit!r} * "
                f"2**{unit}; the sum is {n} * 2**{unit}. The result, or the accumulator, has too few bits to count to "
                f"{min(_FEWEST_COUNTED, most)}, or too small a range: return the sum in the accumulator's format, or "
                "name a narrow accumulator (accumulator=)"
            )
        if total != n * 2.0**unit:
            return n - 1
    return k if most == k - 2 else chunk


def _must_repeat(
    kernel: Kernel, a: NDArray[np.float64], b: NDArray[np.float64], fmt: FloatFormat,
    first: list[float],
) -> None:  # fmt: skip
    """A ValueError unless the sums are the same a second time."""
    for before, total in zip(first, _sums(kernel, a, b, fmt), strict=True):
        if total != before:
            raise ValueError(
                f"the kernel is not deterministic: for the same operands it gave {before!r}, then {total!r}. Its order "
                "of additions changes between calls, as with atomic additions of a GPU"
            )


def _predicts(
    found: NDArray[np.int64], kernel: Kernel, pairs: NDArray[np.int64], a: NDArray[np.float64],
    b: NDArray[np.float64], fmt: FloatFormat, unit: int, chunk: int,
) -> bool:  # fmt: skip
    """Return whether the counts predict the sums where a random half of the units, or all but `chunk`, are 0.

    In a summation tree k - found[i, j] terms lie below the node where i and j meet, and their units are absorbed.
    Counts that belong to no tree, such as those of compensated sums, predict nothing; the result is then True.
    """
    import numpy as np

    below = len(found) - found
    np.fill_diagonal(below, 1)
    if any((np.searchsorted(np.sort(row), row, side="right") != row).any() for row in below):
        return True
    i, j = pairs.T
    order = np.random.default_rng(1).random(a.shape).argsort(axis=1).argsort(axis=1)
    kept = order < min(len(found) // 2, chunk)
    lost = below[i] <= below[i, j][:, np.newaxis]
    kept[np.arange(len(pairs)), i] = kept[np.arange(len(pairs)), j] = True
    sums = _sums(kernel, np.where(kept, a, 0), np.where(kept, b, 0), fmt)
    return bool(np.array_equal(sums, (kept & ~lost).sum(1) * 2.0**unit))


def _sums(kernel: Kernel, a: NDArray[np.float64], b: NDArray[np.float64], fmt: FloatFormat) -> list[float]:
    """Return the kernel's result, or that of a description, for each row of a and of b."""
    import numpy as np

    from floatsim.arrays.array.conversion import convert

    if isinstance(kernel, Accumulation):
        return _emulated(kernel, a, b, fmt)
    left, right = convert(a, fmt), convert(b, fmt)
    found = []
    for x, y in zip(left, right, strict=True):
        total = kernel(x, y)
        found.append(float(total.values if isinstance(total, FloatArray) else np.asarray(total).item()))
    return found


def _emulated(
    accumulation: Accumulation, a: NDArray[np.float64], b: NDArray[np.float64], fmt: FloatFormat
) -> list[float]:
    from floatsim.arrays.array.conversion import array
    from floatsim.arrays.sums.products import matmul

    found: list[float] = []
    step = max(1, _BATCH // a.shape[1])
    for start in range(0, len(a), step):
        left, right = (array(x[start : start + step], fmt) for x in (a, b))
        sums = matmul(left[:, None, :], right[:, :, None], accumulate=accumulation)
        found += sums.values.ravel().tolist()
    return found
