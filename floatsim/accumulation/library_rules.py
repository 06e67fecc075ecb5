"""The rules of `libraries`: from the shape of a product or sum to the descriptions of its regions.

Every rule takes the dtype, the shape and the number of threads. It raises `NotDescribedError` with the reason if the
shape is outside of the compared ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from floatsim.accumulation.base import Accumulation
from floatsim.accumulation.composites import Blocked, Parts, Strided
from floatsim.accumulation.leaves import Pairwise, Sequential, Tree
from floatsim.accumulation.permuted import Permuted
from floatsim.accumulation.tensor_core import TensorCore
from floatsim.formats import FP32, FP64, FloatFormat, as_format

__all__ = [
    "NotDescribedError", "Region", "Regions", "aten_loop_rows", "aten_sum", "in_float32", "mkl_gemm", "mkl_gemm_zen4",
    "numpy_einsum", "numpy_sum", "onednn_bfloat16", "onednn_bfloat16_amx", "onednn_float16", "openblas_dot",
    "openblas_gemm", "xla_bfloat16", "xla_bfloat16_amx", "xla_gemm",
]  # fmt: skip

Shape: TypeAlias = "tuple[int, ...]"


class NotDescribedError(ValueError):
    """`library_sum` has no description for this call: none was compared with the library.

    >>> import floatsim as fs
    >>> try:
    ...     fs.library_sum("numpy.matmul", "float16", (8, 8, 8), version="1.0")
    ... except fs.NotDescribedError as error:
    ...     print(error)
    version='1.0' of numpy.matmul is not described; described: 2.4.6
    """


@dataclass(frozen=True)
class Region:
    """A rectangle of a result, and how its elements are added."""

    rows: slice
    columns: slice
    accumulate: Accumulation
    format: FloatFormat


Regions: TypeAlias = "tuple[Region, ...]"


def _whole(accumulate: Accumulation, dtype: str, m: int = 1, n: int = 1) -> Regions:
    return (Region(slice(0, m), slice(0, n), accumulate, as_format(dtype)),)


def _matrix(shape: Shape) -> tuple[int, int, int]:
    if len(shape) != 3:
        raise NotDescribedError("a shape other than (M, N, K)")
    return shape[0], shape[1], shape[2]


def _product(shape: Shape) -> tuple[int, int, int]:
    """Return (M, N, K) of a product of matrices that are no vectors."""
    m, n, k = _matrix(shape)
    if m == 1 or n == 1:
        raise NotDescribedError("a product with a vector (M or N is 1)")
    return m, n, k


def _vector(shape: Shape) -> int:
    if len(shape) != 1:
        raise NotDescribedError("a shape other than (K,)")
    return shape[0]


def _chain(fmt: FloatFormat) -> Sequential:
    return Sequential(fmt, fused=True)


def _blocks(inner: Accumulation, lengths: list[int], fmt: FloatFormat) -> Accumulation:
    return Blocked(inner, lengths, fmt) if len(lengths) > 1 else inner


def _left_to_right(nodes: list[Any]) -> Any:
    """Return the tree that adds nodes from left to right."""
    return tuple(nodes) if len(nodes) > 1 else nodes[0]


# -- NumPy -------------------------------------------------------------------------------------------------------------


def in_float32(dtype: str, shape: Shape, threads: int) -> Regions:
    """Float32 additions with k ascending, rounded once at the end."""
    m, n = shape[:2] if len(shape) == 3 else (1, 1)
    return _whole(Sequential(FP32), dtype, m, n)


_SMALL = 10**6
"""M N K up to which OpenBLAS's small-matrix kernels are used (kernel/x86_64/sgemm_small_kernel_permit_skylakex.c)."""


def openblas_gemm(dtype: str, shape: Shape, threads: int) -> Regions:
    """OpenBLAS's GEMM with the kernels SkylakeX. Its columns are those of the row-major result."""
    m, n, k = _product(shape)
    fmt = as_format(dtype)
    if m * n * k <= _SMALL:
        return _openblas_small(fmt, m, n, k)
    if fmt == FP64 and n % 8 and (n > 192 or threads > 1):
        raise NotDescribedError("N % 8 > 0 with N > 192 or two threads")
    return _whole(_blocks(_chain(fmt), _openblas_lengths(fmt, k, threads), fmt), dtype, m, n)


def _openblas_lengths(fmt: FloatFormat, k: int, threads: int) -> list[int]:
    """driver/level3/level3.c halves and rounds up to 16 (GEMM_UNROLL_M); level3_thread.c halves only."""
    most, found = 448 if fmt == FP32 else 384, []
    while k:
        length = most if k >= 2 * most else k
        if most < k < 2 * most:
            length = (k // 2 + 15) // 16 * 16 if threads == 1 else (k + 1) // 2
        found.append(length)
        k -= length
    return found


def _openblas_small(fmt: FloatFormat, m: int, n: int, k: int) -> Regions:
    """One chain, except in up to half a vector of last columns: there a vector of lanes sums along K.

    The lanes are joined as neighbours in blocks of 4 rows or 4 columns, and by halves in the corner.
    """
    width, least = (16, 32) if fmt == FP32 else (8, 16)
    chain, last = _chain(fmt), n % width
    if last == 0 or last > width // 2 or k < least:
        return _whole(chain, fmt.name, m, n)
    neighbours, halves = (Strided(chain, width, Pairwise(fmt, tree)) for tree in ("adjacent", "halving"))
    corner_row, corner_column, first = m - m % 4, n - last % 4, n - last
    found = [
        (slice(0, m), slice(0, first), chain),
        (slice(0, m), slice(first, corner_column), neighbours),
        (slice(0, corner_row), slice(corner_column, n), neighbours),
        (slice(corner_row, m), slice(corner_column, n), halves),
    ]
    return tuple(Region(*region, fmt) for region in found if _size(region[0]) and _size(region[1]))


def _size(part: slice) -> int:
    return int(part.stop - part.start)


def openblas_dot(dtype: str, shape: Shape, threads: int) -> Regions:
    """OpenBLAS's dot products with the kernels SkylakeX."""
    k = _vector(shape)
    if k > 10_000:
        raise NotDescribedError("K > 10,000, where threads are used,")
    return _whole(_sdot(k) if dtype == "float32" else _ddot(k), dtype)


def _sdot(k: int) -> Accumulation:
    """Four accumulators of vectors in FP32; the last K % 32 terms, products in FP32, are added in FP64."""
    main, tail = k - k % 32, Sequential(FP64, product=FP32)
    if main % 64 and main > 64:
        raise NotDescribedError("K % 64 >= 32 with K >= 96")
    if not main:
        return tail
    width = 16 if main >= 64 else 8
    accumulators = [[(16 * j + i, 16 * j + i + 8) if width == 16 else 8 * j + i for i in range(8)] for j in range(4)]
    eight = [_left_to_right([each[i] for each in accumulators]) for i in range(8)]
    four = [(eight[i], eight[i + 4]) for i in range(4)]
    lanes = Strided(_chain(FP32), 4 * width, Tree(FP32, ((four[0], four[1]), (four[2], four[3]))))
    return lanes if main == k else Parts([lanes, tail], [main, k - main], FP64)


def _ddot(k: int) -> Accumulation:
    if k % 32:
        raise NotDescribedError("K % 32 > 0")
    four = [_left_to_right([(8 * j + i, 8 * j + i + 4) for j in range(4)]) for i in range(4)]
    return Strided(_chain(FP64), 32, Tree(FP64, ((four[0], four[2]), (four[1], four[3]))))


def numpy_sum(dtype: str, shape: Shape, threads: int) -> Regions:
    """NumPy's pairwise sum; float16 in float32."""
    _vector(shape)
    return _whole(Pairwise(FP64 if dtype == "float64" else FP32, "numpy"), dtype)


def numpy_einsum(dtype: str, shape: Shape, threads: int) -> Regions:
    """Unrolled vectors of 128 bits, the last of four first, without fused multiply-adds; matrices in order."""
    fmt = as_format(dtype)
    if len(shape) == 3:
        m, n, _ = _product(shape)
        return _whole(Sequential(fmt), dtype, m, n)
    if _vector(shape) > 8192:
        raise NotDescribedError("K > 8192, NumPy's buffer,")
    width = 128 // fmt.bits
    return _whole(Permuted(f"backwards-4x{width}", Strided(fmt, width)), dtype)


# -- torch -------------------------------------------------------------------------------------------------------------


def mkl_gemm(dtype: str, shape: Shape, threads: int) -> Regions:
    """MKL's GEMM with AVX-512 on Intel: blocks of 384; if a matrix is narrow, the last two blocks are halved."""
    m, n, k = _product(shape)
    fmt = as_format(dtype)
    if dtype == "float64" and m == 2 and k > 384:
        raise NotDescribedError("float64 with M = 2 and K > 384")
    if threads > 1 and k > 768:
        raise NotDescribedError("K > 768 with two threads")
    lengths, wide = [], min(m, n) >= 192 and k >= 768
    while k:
        length = (k + 1) // 2 if 384 < k < 768 and not wide else min(k, 384)
        lengths.append(length)
        k -= length
    return _whole(_blocks(_chain(fmt), lengths, fmt), dtype, m, n)


def mkl_gemm_zen4(dtype: str, shape: Shape, threads: int) -> Regions:
    """MKL's GEMM with AVX2 on AMD: blocks of 192; two halves, and 1 more term, between 193 and 383."""
    m, n, k = _product(shape)
    if m < 16 or n < 16:
        raise NotDescribedError("M or N below 16")
    lengths = [192] * (k // 192) + [k % 192] * (k % 192 > 0)
    if 192 < k < 384:
        lengths = [k // 2, k // 2, *[1] * (k % 2)]
    return _whole(_blocks(_chain(FP32), lengths, FP32), dtype, m, n)


def aten_loop_rows(dtype: str, shape: Shape, threads: int) -> Regions:
    """ATen's own product of 16-bit floats."""
    m, n, k = _product(shape)
    return _whole(_aten_loop(k), dtype, m, n)


def _aten_loop(k: int) -> Accumulation:
    """Four accumulators over k % 4; the last K % 4 terms go to the first; they are joined in order."""
    if not k:
        return Sequential(FP32)
    whole = k - k % 4
    lanes: list[list[Any]] = [list(range(lane, whole, 4)) for lane in range(4)]
    lanes[0] += range(whole, k)
    return Tree(FP32, _left_to_right([_left_to_right(lane) for lane in lanes if lane]))


def _is_small(m: int, n: int, k: int) -> bool:
    """Return whether ATen multiplies by its own loop, without oneDNN (aten/src/ATen/native/mkldnn/Matmul.cpp)."""
    return m * n * k <= 16**3


def onednn_bfloat16_amx(dtype: str, shape: Shape, threads: int) -> Regions:
    """A chain of TDPBF16PS: even and odd k in chains of their own from zero, their sum added to c.

    An instruction takes 32 terms, and the last one the rest. If the fewest instructions can share K in equal even
    parts, each takes such a part: that is written as IEEE operations.
    """
    m, n, k = _product(shape)
    if k > 2000:
        raise NotDescribedError("K > 2000")
    if _is_small(m, n, k):
        return _whole(_aten_loop(k), dtype, m, n)
    instructions = -(-k // 32)
    shared = k % (2 * instructions) == 0
    every = k // instructions if shared else 32
    return _whole(_TDPBF16PS if every == 32 else Blocked(_EVEN_AND_ODD, every, _FLUSHED_SUM), dtype, m, n)


def onednn_bfloat16(dtype: str, shape: Shape, threads: int) -> Regions:
    """Chains of VDPBF16PS over 512 terms: of each pair the odd term is added first."""
    m, n, k = _product(shape)
    if k > 1024:
        raise NotDescribedError("K > 1024")
    if _is_small(m, n, k):
        return _whole(_aten_loop(k), dtype, m, n)
    return _whole(_VDPBF16PS if k <= 512 else Blocked(_VDPBF16PS, 512, FP32), dtype, m, n)


def onednn_float16(dtype: str, shape: Shape, threads: int) -> Regions:
    """Chains over 512 terms in float32, which has all products of float16."""
    m, n, k = _product(shape)
    if k > 1024:
        raise NotDescribedError("K > 1024")
    if _is_small(m, n, k):
        return _whole(_aten_loop(k), dtype, m, n)
    return _whole(Sequential(FP32) if k <= 512 else Blocked(Sequential(FP32), 512, FP32), dtype, m, n)


_FLUSHED = Sequential(FP32, fused=True, ftz=True, daz=True)
_VDPBF16PS = TensorCore("avx512-bf16")
_TDPBF16PS = TensorCore("amx-bf16")
_EVEN_AND_ODD = Strided(_FLUSHED, 2, Pairwise(FP32, ftz=True, daz=True))
_FLUSHED_SUM = Sequential(FP32, ftz=True, daz=True)


def aten_sum(dtype: str, shape: Shape, threads: int) -> Regions:
    """ATen's cascade sum of a contiguous vector, without its zeros: they change no sum but that of zeros only."""
    n = _vector(shape)
    if not n:
        raise NotDescribedError("a sum of no elements")
    lanes, halves = {"float32": (8, 1), "float64": (4, 1)}.get(dtype, (8, 2))
    fmt = FP64 if dtype == "float64" else FP32
    width = lanes * halves
    if n < width:
        return _whole(Tree(fmt, _row_sum(list(range(n)))), dtype)
    whole = n - n % width
    starts = range(0, whole, width)
    rows = [[(i + lane, i + lane + lanes) if halves == 2 else i + lane for i in starts] for lane in range(lanes)]
    joined = [*range(whole, n), *map(_row_sum, rows)]
    return _whole(Tree(fmt, _left_to_right(joined)), dtype)


def _row_sum(terms: list[Any]) -> Any:
    """`row_sum` of SumKernel.cpp: four rows beside each other, and the last terms in the first."""
    quarter = len(terms) // 4
    sums = [_cascade(terms[row : 4 * quarter : 4]) for row in range(4)] if quarter else [None] * 4
    for term in terms[4 * quarter :]:
        sums[0] = _plus(sums[0], term)
    total = None
    for each in sums:
        total = _plus(total, each)
    return total


def _cascade(terms: list[Any]) -> Any:
    """`multi_row_sum` of SumKernel.cpp for one row: four levels; a level is added to the next every 2**power terms."""
    power = max(4, (len(terms) - 1).bit_length() // 4)
    levels: list[Any] = [None] * 4
    for i, term in enumerate(terms, 1):
        levels[0] = _plus(levels[0], term)
        level = 1
        while level < 4 and i % (1 << level * power) == 0:
            levels[level], levels[level - 1] = _plus(levels[level], levels[level - 1]), None
            level += 1
    total = None
    for each in levels:
        total = _plus(total, each)
    return total


def _plus(x: Any, y: Any) -> Any:
    return y if x is None else x if y is None else (x, y)


# -- JAX ---------------------------------------------------------------------------------------------------------------


def _xla_shape(shape: Shape) -> tuple[int, int, int]:
    m, n, k = _product(shape)
    if n % 64 or (n > 64 and m < 64):
        raise NotDescribedError("N % 64 > 0, or N > 64 with M < 64,")
    return m, n, k


def xla_gemm(dtype: str, shape: Shape, threads: int) -> Regions:
    """Chains over 512 terms in float32; operands of 16 bits are widened first, and the result is rounded once."""
    m, n, k = _xla_shape(shape)
    return _whole(_chain(FP32) if k <= 512 else Blocked(_chain(FP32), 512, FP32), dtype, m, n)


def xla_bfloat16_amx(dtype: str, shape: Shape, threads: int) -> Regions:
    """A chain of TDPBF16PS, with the result in float32."""
    m, n, _ = _xla_tiles(shape)
    return _whole(_TDPBF16PS, "float32", m, n)


def xla_bfloat16(dtype: str, shape: Shape, threads: int) -> Regions:
    """A chain of VDPBF16PS, with the result in float32."""
    m, n, _ = _xla_tiles(shape)
    return _whole(_VDPBF16PS, "float32", m, n)


def _xla_tiles(shape: Shape) -> tuple[int, int, int]:
    m, n, k = _xla_shape(shape)
    if n != 64 or m % 16 or m > 64 or k % 32 or k > 1024:
        raise NotDescribedError("M % 16 > 0, M > 64, N other than 64, K % 32 > 0, or K > 1024")
    return m, n, k
