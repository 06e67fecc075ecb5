"""Kernels of the tests: casts, arithmetic, a tiled product, a fused attention, and the recorded dots."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit
def cast_kernel(x, y, n: tl.constexpr, dtype: tl.constexpr, rounding: tl.constexpr):
    i = tl.arange(0, n)
    tl.store(y + i, tl.load(x + i).to(dtype, fp_downcast_rounding=rounding))


DTYPES = {
    torch.float64: tl.float64, torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16,
    torch.float8_e5m2: tl.float8e5, torch.float8_e4m3fn: tl.float8e4nv, torch.float8_e5m2fnuz: tl.float8e5b16,
    torch.float8_e4m3fnuz: tl.float8e4b8, torch.int32: tl.int32, torch.int64: tl.int64, torch.int8: tl.int8,
    torch.uint8: tl.uint8,
}  # fmt: skip


def cast(x: torch.Tensor, dtype: torch.dtype, rounding: str | None = None) -> torch.Tensor:
    y = torch.empty(x.shape, dtype=dtype)
    cast_kernel[(1,)](x, y, x.numel(), DTYPES[dtype], rounding)
    return y


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr = 4,
    PRECISION: tl.constexpr = "tf32", SKIP: tl.constexpr = -1,
):  # fmt: skip
    """The tiled product: grouped programs, masks at the edges. The planted fault: block SKIP of K is not masked."""
    pid = tl.program_id(axis=0)
    rows, columns = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    group = pid // (GROUP_M * columns)
    first = group * GROUP_M
    size = min(rows - first, GROUP_M)
    m = (first + (pid % (GROUP_M * columns)) % size) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = ((pid % (GROUP_M * columns)) // size) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a = a_ptr + m[:, None] * stride_am + k[None, :] * stride_ak
    b = b_ptr + k[:, None] * stride_bk + n[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for block in range(0, tl.cdiv(K, BLOCK_K)):
        left = K - block * BLOCK_K
        x = tl.load(a, mask=(m[:, None] < M) & (k[None, :] < left), other=0.0)
        y = tl.load(b, mask=(k[:, None] < left) & (n[None, :] < N), other=0.0)
        if block != SKIP:
            acc = tl.dot(x, y, acc, input_precision=PRECISION)
        a += BLOCK_K * stride_ak
        b += BLOCK_K * stride_bk
    c = c_ptr + m[:, None] * stride_cm + n[None, :] * stride_cn
    tl.store(c, acc.to(c_ptr.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))


def tiles(meta: Any) -> tuple[int]:
    return (triton.cdiv(meta["M"], meta["BLOCK_M"]) * triton.cdiv(meta["N"], meta["BLOCK_N"]),)


def matmul(
    a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype = torch.float32, *, block: tuple[int, int, int] = (64, 64, 32),
    **meta: Any,
) -> torch.Tensor:  # fmt: skip
    (m, k), n = a.shape, b.shape[1]
    c = torch.full((m, n), float("nan")).to(dtype)
    rows, columns, terms = block
    matmul_kernel[tiles](
        a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride(), BLOCK_M=rows, BLOCK_N=columns, BLOCK_K=terms, **meta
    )
    return c


@triton.jit
def attention_kernel(q_ptr, k_ptr, v_ptr, out_ptr, terms, scale, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                     D: tl.constexpr, RESCALE: tl.constexpr):  # fmt: skip
    """Attention with an online softmax. The planted fault of RESCALE=False: old sums keep their old maximum."""
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    d = tl.arange(0, D)
    q = tl.load(q_ptr + m[:, None] * D + d[None, :])
    largest = tl.full((BLOCK_M,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, D), dtype=tl.float32)
    for start in range(0, terms, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        k = tl.load(k_ptr + n[:, None] * D + d[None, :])
        v = tl.load(v_ptr + n[:, None] * D + d[None, :])
        scores = tl.dot(q, tl.trans(k)) * scale
        above = tl.maximum(largest, tl.max(scores, 1))
        p = tl.exp2(scores - above[:, None])
        factor = tl.exp2(largest - above)
        total = total * factor + tl.sum(p, 1)
        if RESCALE:
            acc = acc * factor[:, None]
        acc = tl.dot(p.to(v.dtype), v, acc)
        largest = above
    tl.store(out_ptr + m[:, None] * D + d[None, :], (acc / total[:, None]).to(out_ptr.dtype.element_ty))


def attention(q: Any, k: Any, v: Any, *, block: tuple[int, int], rescale: bool = True) -> torch.Tensor:
    out = torch.empty_like(q)
    rows, columns = block
    attention_kernel[(len(q) // rows,)](
        q, k, v, out, len(k), q.shape[1] ** -0.5 * 1.4426950408889634, BLOCK_M=rows, BLOCK_N=columns, D=q.shape[1],
        RESCALE=rescale,
    )  # fmt: skip
    return out


@triton.jit
def recorded_kernel(
    a, b, c, K: tl.constexpr, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr, IMP: tl.constexpr,
    PREC: tl.constexpr, HOW: tl.constexpr,
):  # fmt: skip
    """The dots that an H200 recorded, with Triton 3.6.0."""
    rm = tl.arange(0, M)
    rn = tl.arange(0, N)
    acc = tl.zeros((M, N), dtype=tl.float32)
    for k in range(0, K, BK):
        rk = k + tl.arange(0, BK)
        x = tl.load(a + rm[:, None] * K + rk[None, :])
        y = tl.load(b + rk[:, None] * N + rn[None, :])
        if HOW == 1:
            acc += tl.dot(x, y)
        elif HOW == 2:
            acc = acc + tl.dot(x, y, max_num_imprecise_acc=IMP)
        elif IMP >= 0:
            acc = tl.dot(x, y, acc, max_num_imprecise_acc=IMP)
        elif PREC == 1:
            acc = tl.dot(x, y, acc, input_precision="tf32")
        elif PREC == 2:
            acc = tl.dot(x, y, acc, input_precision="ieee")
        elif PREC == 3:
            acc = tl.dot(x, y, acc, input_precision="tf32x3")
        else:
            acc = tl.dot(x, y, acc)
    tl.store(c + rm[:, None] * N + rn[None, :], acc)


def recorded_dot(a: Any, b: Any, block: int, imprecise: int, precision: int, how: int, warps: int) -> torch.Tensor:
    (m, k), n = a.shape, b.shape[1]
    c = torch.full((m, n), float("nan"))
    recorded_kernel[(1,)](a, b, c, k, m, n, block, imprecise, precision, how, num_warps=warps)
    return c


@triton.jit
def arithmetic_kernel(x, y, out, n: tl.constexpr):
    """Eight results of two BF16 tensors."""
    i = tl.arange(0, n)
    a, b = tl.load(x + i), tl.load(y + i)
    tl.store(out + i, a + b)
    tl.store(out + n + i, a - b)
    tl.store(out + 2 * n + i, a * b)
    tl.store(out + 3 * n + i, -a)
    tl.store(out + 4 * n + i, tl.maximum(a, b))
    tl.store(out + 5 * n + i, tl.where(a < b, a, b))
    tl.store(out + 6 * n + i, tl.fma(a, b, a))
    tl.store(out + 7 * n + i, tl.abs(a))


@triton.jit
def reductions_kernel(x, sums, largest, place, running, M: tl.constexpr, N: tl.constexpr):
    m, n = tl.arange(0, M), tl.arange(0, N)
    at = m[:, None] * N + n[None, :]
    a = tl.load(x + at)
    tl.store(sums + m, tl.sum(a, 1))
    values, places = tl.max(a, 1, return_indices=True)
    tl.store(largest + m, values)
    tl.store(place + m, places)
    tl.store(running + at, tl.cumsum(a, 1))


@triton.jit
def masks_kernel(x, y, out, n: tl.constexpr, dtype: tl.constexpr):
    """Comparisons as masks and numbers, constants, and zeros of both signs."""
    i = tl.arange(0, n)
    a, b = tl.load(x + i), tl.load(y + i)
    tl.store(out + i, tl.where((a < b) & (b > 0), a * 0.5, tl.full((n,), 1.5, dtype)))
    tl.store(out + n + i, (a >= b).to(tl.int32).to(dtype))
    tl.store(out + 2 * n + i, tl.full((n,), 7.0, dtype), mask=~(a == b))
    tl.store(out + 3 * n + i, tl.maximum(a, b).to(dtype))
    tl.store(out + 4 * n + i, tl.minimum(a, b).to(dtype))
    tl.store(out + 5 * n + i, tl.sort(b))


@triton.jit
def add(a, b):
    return a + b


@triton.jit
def wide_add(a, b):
    return a.to(tl.float32) + b.to(tl.float32)


@triton.jit
def combined_kernel(x, out, n: tl.constexpr, combine: tl.constexpr):
    i = tl.arange(0, n)
    tl.store(out + i, tl.associative_scan(tl.load(x + i), 0, combine))
    tl.store(out + n, tl.reduce(tl.load(x + i), 0, combine))


@triton.jit
def extremes_kernel(x, values, places, M: tl.constexpr, N: tl.constexpr):
    m, n = tl.arange(0, M), tl.arange(0, N)
    a = tl.load(x + m[:, None] * N + n[None, :])
    largest, first = tl.max(a, 1, return_indices=True)
    smallest, last = tl.min(a, 1, return_indices=True)
    tl.store(values + m, largest.to(tl.float32))
    tl.store(values + M + m, smallest.to(tl.float32))
    tl.store(places + m, first)
    tl.store(places + M + m, last)


@triton.jit
def random_kernel(bits, uniform, normal, seed, n: tl.constexpr):
    i = tl.arange(0, n)
    c0, c1, c2, c3 = tl.randint4x(seed, i)
    tl.store(bits + 4 * i, c0)
    tl.store(bits + 4 * i + 1, c1)
    tl.store(bits + 4 * i + 2, c2)
    tl.store(bits + 4 * i + 3, c3)
    tl.store(uniform + i, tl.rand(seed, i))
    tl.store(normal + i, tl.randn(seed, i))


@triton.jit
def scaled_kernel(
    a, scale_a, b, scale_b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, KIND_A: tl.constexpr,
    KIND_B: tl.constexpr, PACK_A: tl.constexpr, PACK_B: tl.constexpr,
):  # fmt: skip
    m, n = tl.arange(0, M), tl.arange(0, N)
    ka, kb, ks = tl.arange(0, K // PACK_A), tl.arange(0, K // PACK_B), tl.arange(0, K // 32)
    x = tl.load(a + m[:, None] * (K // PACK_A) + ka[None, :])
    y = tl.load(b + kb[:, None] * N + n[None, :])
    sx = tl.load(scale_a + m[:, None] * (K // 32) + ks[None, :])
    sy = tl.load(scale_b + n[:, None] * (K // 32) + ks[None, :])
    tl.store(c + m[:, None] * N + n[None, :], tl.dot_scaled(x, sx, KIND_A, y, sy, KIND_B))


@triton.jit
def plus_one(x):
    return tl.inline_asm_elementwise("add.f32 $0, $1, 1.0;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def assembly_kernel(x):
    tl.store(x, plus_one(tl.load(x)))


@triton.jit
def failing_kernel(x):
    tl.static_assert(False, "a fault of the kernel")


@triton.jit
def fp8_sum_kernel(x):
    tl.store(x, tl.load(x) + tl.load(x))
