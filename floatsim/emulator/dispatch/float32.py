"""Leaves summed by hardware arithmetic: in the accumulator's own format, or in float32 with a second rounding.

The matrix kernels of `floatsim_kernels.gemm.float32` have a *style*, the way a sum is rounded, and a way in which
*products* enter. The fast styles bail out of rows whose numbers are not for them; a chain of fallbacks ends with a
kernel that takes every number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from floatsim_kernels.gemm import float32 as loops
from floatsim_kernels.gemm import float32_stochastic
from floatsim_kernels.rounding import float32 as steps

from floatsim.accumulation import Kahan, Neumaier, ProductLeaf, Sequential, TreeLeaf
from floatsim.emulator import proofs
from floatsim.emulator.dispatch.float64 import LEAVES, Float64, float64_kernel
from floatsim.emulator.dispatch.kernel import Case, FloatKernel, MatrixKernel, Planned
from floatsim.emulator.dispatch.tiling import LANES, SCRATCH
from floatsim.emulator.params import fast_float32_rounding, float32_rounding, scale_exponent
from floatsim.formats import BF16, FP16, FP32, FP64
from floatsim.formats.rounding import Overflow, Rounding
from floatsim.formats.value_sets import contains, quantum

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Float32", "Float32Kernel", "Native", "StochasticBF16"]

_DIRECTIONS = {
    Rounding.TIES_TO_EVEN: steps.TIES_TO_EVEN,
    Rounding.TOWARD_ZERO: steps.TOWARD_ZERO,
    Rounding.TOWARD_POSITIVE: steps.TOWARD_POSITIVE,
    Rounding.TOWARD_NEGATIVE: steps.TOWARD_NEGATIVE,
}
"""The directions that the hardware has."""

# -- calls -------------------------------------------------------------------------------------------------------------

_ROWS, _TREE_ROWS, _COLUMNS, _DEPTH = 64, 16, 512, 32  # of scratch: 512 float32 columns of 64 rows stay in L2


_FLOAT32 = np.dtype(np.float32)


@dataclass(frozen=True)
class Float64Fallback:
    """A float64 kernel, called with float32 operands."""

    kernel: MatrixKernel

    def __call__(self, a: NDArray[Any], b: NDArray[Any], out: NDArray[Any], *arguments: Any) -> None:
        with np.errstate(invalid="ignore"):  # the conversion of a signaling NaN raises the flag
            a, b, wide = (x.astype(np.float64) for x in (a, b, out))
        self.kernel(a, b, wide, *arguments)
        out[...] = wide


@dataclass(frozen=True)
class Float32Kernel:
    """A kernel of `floatsim_kernels.gemm.float32` with its scratch, and the fallback for the rows it bails out of."""

    kernel: Any
    direction: int
    params: NDArray[np.uint32]
    scratch: np.dtype[Any] = _FLOAT32
    fallback: Fallback = None
    scratch_rows: int = 1
    """Scratch rows for each row of the result; 0: as many as a tree's stack needs."""

    def __call__(
        self, a: NDArray[Any], b: NDArray[Any], out: NDArray[Any], ranges: NDArray[Any], index: NDArray[Any],
        seeds: NDArray[Any], *more: Any,
    ) -> None:  # fmt: skip
        parts, rows, columns = out.shape
        across = -(-columns // _COLUMNS)
        width = -(-columns // max(across, 1) // LANES) * LANES
        bailed_out = np.zeros((parts, rows, across), np.bool_)
        if self.scratch_rows:
            heights = self.scratch_rows * min(rows, _ROWS), _DEPTH
        else:
            heights = more[-1] * min(rows, _TREE_ROWS), 4
        scratch = SCRATCH.take(sum(heights), width, self.scratch, width)
        work = scratch[: heights[0]], scratch[heights[0] :]
        self.kernel(*work, bailed_out, a, b, out, ranges, index, seeds, *more, self.direction, self.params)
        if self.fallback is not None and bailed_out.any():
            self._fall_back(bailed_out, width, a, b, out, ranges, index, seeds, *more)

    def _fall_back(
        self, bailed_out: NDArray[np.bool_], width: int, a: NDArray[Any], b: NDArray[Any], out: NDArray[Any],
        ranges: NDArray[Any], index: NDArray[Any], seeds: NDArray[Any], *more: Any,
    ) -> None:  # fmt: skip
        """Compute the rows that the kernel bailed out of, in column tiles of `width`."""
        assert self.fallback is not None
        if bailed_out.all():
            self.fallback(a, b, out, ranges, index, seeds, *more)
            return
        for part, c in np.argwhere(bailed_out.any(axis=1)):
            j = slice(c * width, (c + 1) * width)
            columns = np.ascontiguousarray(b[:, j])
            for i in _runs(bailed_out[part, :, c]):
                tile = np.ascontiguousarray(out[part, i, j])[np.newaxis]
                first = np.array([index[0] + i.start * index[1] + j.start * index[2], *index[1:]])
                one = slice(part, part + 1)
                self.fallback(a[i], columns, tile, ranges[one], first, seeds[one], *more)
                out[part, i, j] = tile[0]


def _runs(marks: NDArray[np.bool_]) -> list[slice]:
    """Return the runs of true elements."""
    edges = np.flatnonzero(np.diff(marks, prepend=False, append=False))
    return [slice(int(start), int(stop)) for start, stop in edges.reshape(-1, 2)]


Fallback: TypeAlias = "Float32Kernel | Float64Fallback | None"

_DTYPES: dict[Any, Any] = {
    loops.HALF: np.dtype(np.uint16),
    loops.SINGLE: np.dtype(np.float32),
    loops.DOUBLE: np.dtype(np.float64),
}


def _tiled(
    leaf: ProductLeaf, style: int, products: int, direction: int, params: NDArray[np.uint32],
    scratch: Any = loops.SINGLE, fallback: Fallback = None,
) -> Float32Kernel:  # fmt: skip
    """Return the kernel of a leaf's own loop."""
    dtype = _DTYPES[scratch]
    if isinstance(leaf, Kahan | Neumaier):
        kernel = loops.compensated(style, products, scratch, isinstance(leaf, Neumaier))
        return Float32Kernel(kernel, direction, params, dtype, fallback, 2)
    if isinstance(leaf, TreeLeaf):
        return Float32Kernel(loops.in_tree(style, products, scratch), direction, params, dtype, fallback, 0)
    return Float32Kernel(loops.in_order(style, products, scratch), direction, params, dtype, fallback)


# -- what the candidates have in common --------------------------------------------------------------------------------


def _enters_exactly(case: Case) -> bool:
    leaf = case.accumulation
    assert isinstance(leaf, ProductLeaf)
    return proofs.products_are_not_rounded(leaf.product, case.terms)


def _adds_products(case: Case) -> bool:
    """Return whether a product is added in one rounding, whatever its bits: by a fused multiply-add."""
    return isinstance(case.accumulation, Sequential) and case.cpu.has_fma


def _common_refusal(case: Case) -> str | None:
    """Return why hardware floats of the accumulator's carrier are not for a case."""
    leaf = case.accumulation
    assert isinstance(leaf, ProductLeaf)
    if reason := case.float_refusal():
        return reason
    if case.sums.daz or case.sums.ftz:
        return "DAZ or FTZ"
    if not _enters_exactly(case) and not (leaf.product == leaf.format and case.products == case.sums):
        return "products are rounded to another format, or in another way, than sums"
    carrier = FP64 if leaf.format == FP64 else FP32
    for factor in case.terms.factors:
        if not contains(carrier, factor, specials=False):
            return f"{carrier} does not hold every value of {factor}"
    return None


def _no_direction(case: Case) -> str | None:
    rounding = case.sums.rounding
    return None if rounding in _DIRECTIONS else f"the hardware has no rounding direction {rounding.name.lower()}"


# -- in the accumulator's own format -----------------------------------------------------------------------------------


class Native:
    """Hardware arithmetic in the accumulator's own format: FP32, FP64, or FP16 where the processor has it."""

    name = "native"
    takes = LEAVES

    def refusal(self, case: Case) -> str | None:
        if self._scratch(case) is None:
            return f"the processor has no arithmetic in {case.accumulation.result_format} for these operands"
        if reason := _common_refusal(case) or _no_direction(case):
            return reason
        if case.sums.overflow is not Overflow.INFINITY:
            return "sums saturate"
        if self._fused(case) and not _adds_products(case):
            return "exact products need a fused multiply-add, and sums in order"
        return None

    def kernel(self, case: Case, plan: Callable[[Case], Planned]) -> FloatKernel:
        leaf = case.accumulation
        assert isinstance(leaf, ProductLeaf)
        products = steps.EXACT if self._fused(case) else steps.ROUNDED
        direction = _DIRECTIONS[case.sums.rounding]
        kernel = _tiled(leaf, steps.NATIVE, products, direction, _NO_PARAMS, self._scratch(case))
        return FloatKernel(case, plan, FP64 if leaf.format == FP64 else FP32, kernel)

    def _scratch(self, case: Case) -> Any:
        """Return the type that sums are computed in, or None."""
        fmt = case.accumulation.result_format
        if fmt == FP16 and case.cpu.has_half_arithmetic:
            inside = all(contains(FP16, factor, specials=False) for factor in case.terms.factors)
            return loops.HALF if inside else None
        return {FP32: loops.SINGLE, FP64: loops.DOUBLE}.get(fmt)

    def _fused(self, case: Case) -> bool:
        """Return whether exact products enter that are no numbers of the accumulator's format."""
        return _enters_exactly(case) and not contains(case.accumulation.result_format, case.terms, specials=False)


_NO_PARAMS = np.zeros(steps.PARAMS_SIZE, np.uint32)


# -- stochastic sums in BF16 -------------------------------------------------------------------------------------------


class StochasticBF16:
    """Stochastic sums in BF16: float32 decides most of them, float64 those whose first 16 random bits tie."""

    name = "stochastic bf16"
    takes = LEAVES

    def refusal(self, case: Case) -> str | None:
        leaf = case.accumulation
        assert isinstance(leaf, ProductLeaf)
        if leaf.format != BF16 or case.sums.rounding is not Rounding.STOCHASTIC:
            return "only stochastic sums in BF16"
        if not isinstance(leaf, Sequential | TreeLeaf):
            return "only Sequential and trees"
        if reason := _common_refusal(case):
            return reason
        if case.terms.precision > FP32.precision:
            return f"float32 does not hold terms of {case.terms.precision} bits"
        if case.sums.overflow is not Overflow.INFINITY:
            return "sums saturate"
        return None if Float64().refusal(case) is None else "float64 cannot decide the draws that tie"

    def kernel(self, case: Case, plan: Callable[[Case], Planned]) -> FloatKernel:
        params = fast_float32_rounding(BF16, steps.RTZ, steps.TOWARD_ZERO, case.sums)
        products = steps.EXACT if _enters_exactly(case) else steps.ROUNDED
        tree = isinstance(case.accumulation, TreeLeaf)
        loop = float32_stochastic.in_tree(products) if tree else float32_stochastic.in_order(products)
        fallback = Float64Fallback(float64_kernel(case))
        assert params is not None
        kernel = Float32Kernel(loop, steps.TOWARD_ZERO, params, fallback=fallback, scratch_rows=0 if tree else 2)
        return FloatKernel(case, plan, FP32, kernel)


# -- in float32, with a second rounding --------------------------------------------------------------------------------

_STEADY = 9
"""Precision from which sums in order, all rounded upward, do not soon rise to the format's largest binade."""
_WIDE_SHIFT = -9
"""BF16 sums as low as 2**-133 stay multiples of float32's 2**-149, and sums below 2**121 stay below its largest."""


class Float32:
    """Sums in float32, each rounded once more to the accumulator's format."""

    name = "float32"
    takes = LEAVES

    def refusal(self, case: Case) -> str | None:
        if reason := _common_refusal(case) or _no_direction(case):
            return reason
        if reason := _rounded_twice(case):
            return reason
        return None if _float32_kernel(case) is not None else "float32 does not round to this format in this way"

    def kernel(self, case: Case, plan: Callable[[Case], Planned]) -> FloatKernel:
        kernel = _float32_kernel(case)
        assert kernel is not None
        return FloatKernel(case, plan, FP32, kernel)


def _rounded_twice(case: Case) -> str | None:
    """Return why sums or products that are rounded to float32 first would be rounded twice; None if they would not."""
    leaf, terms, exact = case.accumulation, case.terms, _enters_exactly(case)
    assert isinstance(leaf, ProductLeaf)
    fmt, to_even = leaf.format, case.sums.rounding is Rounding.TIES_TO_EVEN
    compensated = isinstance(leaf, Kahan | Neumaier)
    if compensated and not to_even:
        return "compensated sums in a directed rounding"
    if compensated and exact:
        inside = proofs.on_grid(fmt, terms) and contains(FP32, terms, specials=False)
        fine = proofs.double_rounding_is_innocuous(fmt) and inside
        return None if fine else f"exact terms of a compensated sum are not all numbers of {fmt} and of float32"
    if not to_even:  # one direction after the other, on nested grids
        fine = not exact or contains(FP32, terms, specials=False) or _adds_products(case)
        return None if fine else "float32 does not hold every exact term"
    if fmt == BF16 and exact and fmt.precision < terms.precision <= FP32.precision:
        return None  # to odd, then to even
    if not proofs.double_rounding_is_innocuous(fmt):
        return f"2 p + 2 = {2 * fmt.precision + 2} > 24: sums would be rounded twice"
    if exact:
        fine = proofs.sums_with_terms_round_once(fmt, terms, both_terms=isinstance(leaf, TreeLeaf))
        return None if fine else "sums with exact terms would be rounded twice"
    return None if proofs.product_rounds_once(terms, fmt) else "products would be rounded twice"


def _float32_kernel(case: Case) -> Float32Kernel | None:
    """Return the kernel with its fallbacks, or None if there is none for the format."""
    leaf = case.accumulation
    assert isinstance(leaf, ProductLeaf)
    fallback = Float64Fallback(float64_kernel(case)) if Float64().refusal(case) is None else None
    if leaf.format != BF16:
        return _any_format(case, fallback)
    if case.sums.overflow is not Overflow.INFINITY or fallback is None:
        return None
    return _bfloat16(case, fallback)


def _any_format(case: Case, fallback: Fallback) -> Float32Kernel | None:
    """Return the fast kernel of a format that float32 holds with margin; else the general one; else None."""
    leaf, terms, attributes, exact = case.accumulation, case.terms, case.sums, _enters_exactly(case)
    assert isinstance(leaf, ProductLeaf)
    fmt, direction = leaf.format, _DIRECTIONS[attributes.rounding]
    if not proofs.rounds_by_addition(fmt):
        return None
    if not isinstance(leaf, Kahan | Neumaier):
        if attributes.overflow is not Overflow.INFINITY and terms.highest + 1 >= FP32.emax:
            return None  # a sum that saturates must not become infinite in float32 first
        products = steps.EXACT if exact else steps.ROUNDED
        fallback = _tiled(leaf, steps.GENERAL, products, direction, float32_rounding(fmt, attributes))
    style = _style(direction)
    params = fast_float32_rounding(fmt, style, direction, attributes)
    scaled_terms_overflow = exact and isinstance(leaf, TreeLeaf)  # they are scaled before they are added
    if params is None or (scaled_terms_overflow and terms.highest + scale_exponent(params) >= FP32.emax):
        return fallback if isinstance(fallback, Float32Kernel) else None
    if fallback is None:
        return None
    products = steps.ROUNDED_SUBNORMAL
    if exact:
        products = steps.EXACT_SUBNORMAL if terms.lowest < quantum(fmt) else steps.EXACT
    fast = _fast(leaf, products, direction, params, fallback)
    upward = direction in (steps.TOWARD_POSITIVE, steps.TOWARD_NEGATIVE)
    if upward and isinstance(leaf, Sequential) and fmt.precision >= _STEADY:
        return _tiled(leaf, steps.DIRECTED_MONOTONE, products, steps.TOWARD_POSITIVE, params, fallback=fast)
    return fast


def _bfloat16(case: Case, fallback: Fallback) -> Float32Kernel:
    """Return the kernel of a BF16 accumulator, whose exponents are float32's."""
    leaf, terms, exact = case.accumulation, case.terms, _enters_exactly(case)
    assert isinstance(leaf, ProductLeaf)
    direction = _DIRECTIONS[case.sums.rounding]
    style = _style(direction)
    params = fast_float32_rounding(BF16, style, direction, case.sums)
    assert params is not None
    truncates = style == steps.RTZ  # subnormals lose the same bits of the code as normal numbers
    if exact:
        if style == steps.RNE and terms.precision > BF16.precision:
            return _tiled(leaf, steps.TO_ODD, steps.EXACT, steps.TOWARD_ZERO, params, fallback=fallback)
        clamps = terms.lowest < quantum(BF16) and not truncates
        return _fast(leaf, steps.EXACT_SUBNORMAL if clamps else steps.EXACT, direction, params, fallback)
    if not truncates and any(factor.precision > BF16.precision for factor in terms.factors):
        return _fast(leaf, steps.ROUNDED_SUBNORMAL, direction, params, fallback)
    if style == steps.RNE and isinstance(leaf, Sequential):
        wide = fast_float32_rounding(BF16, style, direction, case.sums, _WIDE_SHIFT)
        assert wide is not None
        fallback = _fast(leaf, steps.ROUNDED_WIDE_RANGE, direction, wide, fallback)
    return _fast(leaf, steps.ROUNDED, direction, params, fallback)


def _style(direction: int) -> int:
    style: int = {steps.TIES_TO_EVEN: steps.RNE, steps.TOWARD_ZERO: steps.RTZ}.get(direction, steps.DIRECTED)
    return style


def _fast(
    leaf: ProductLeaf, products: int, direction: int, params: NDArray[np.uint32], fallback: Fallback
) -> Float32Kernel:
    """Return the kernel of the direction's fast style. Toward negative is toward positive with all signs changed."""
    style = _style(direction)
    hardware = steps.TOWARD_POSITIVE if style == steps.DIRECTED else direction
    return _tiled(leaf, style, products, hardware, params, fallback=fallback)
