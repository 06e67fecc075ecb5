"""When kernels on float32 give the same bits as the general ones, and how they are called."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from floatsim_kernels.gemm import float32 as loops
from floatsim_kernels.gemm import float32_stochastic as gemm_stochastic
from floatsim_kernels.rounding import float32 as steps
from floatsim_kernels.runtime import cpu as machine

from floatsim.accumulation import Kahan, Leaf, Neumaier, Pairwise, ProductLeaf, Sequential
from floatsim.emulator.dispatch import float64 as doubles
from floatsim.emulator.dispatch.kernel import FastLeaf
from floatsim.emulator.params import NO_GRID, WIDE_SHIFT, narrow_row, quick_row, shift_of
from floatsim.emulator.proofs import add_exactly, exact_products, holds, on_grid, products_do
from floatsim.formats import BF16, FP16, FP32, FP64, FloatFormat
from floatsim.formats.rounding import Attributes, Overflow, Rounding
from floatsim.formats.value_sets import Terms, embeds, quantum

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Tiled", "leaf_kernel"]

_DIRECTIONS = {
    Rounding.TIES_TO_EVEN: steps.TIES_TO_EVEN,
    Rounding.TOWARD_ZERO: steps.TOWARD_ZERO,
    Rounding.TOWARD_POSITIVE: steps.TOWARD_POSITIVE,
    Rounding.TOWARD_NEGATIVE: steps.TOWARD_NEGATIVE,
}

# -- calls -------------------------------------------------------------------------------------------------------------

_ROWS, _TREE_ROWS, _COLUMNS, _DEPTH = 64, 16, 512, 32  # of scratch: it stays in the caches
_LANES, _LINE = 16, 64


class _Scratch(threading.local):
    """A thread's room to compute in, for one kernel after the other: new memory costs more than small products."""

    def __init__(self) -> None:
        self._memory = np.empty(0, np.uint8)

    def take(self, heights: tuple[int, int], width: int, dtype: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        """Arrays of zeros whose rows start on cache lines; `width` is a multiple of the lanes."""
        row: int = width * dtype.itemsize
        size = sum(heights) * row
        if self._memory.size < size:
            memory = np.empty(size + _LINE, np.uint8)
            self._memory = memory[-memory.__array_interface__["data"][0] % _LINE :]
        zeros = self._memory[:size].view(dtype).reshape(-1, width)
        zeros[...] = 0
        return zeros[: heights[0]], zeros[heights[0] :]


_SCRATCH = _Scratch()


class _InDoubles(NamedTuple):
    """A kernel on float64, called with float32 operands."""

    fast: FastLeaf

    def __call__(self, a: NDArray[Any], b: NDArray[Any], out: NDArray[Any], *arguments: Any) -> None:
        with np.errstate(invalid="ignore"):  # a signaling NaN's conversion raises the flag, and is meant
            a, b, wide = (x.astype(np.float64) for x in (a, b, out))
        self.fast.kernel(a, b, wide, *arguments, *self.fast.extra)
        out[...] = wide


class Tiled(NamedTuple):
    """A kernel of `gemm_singles` with its scratch, and what computes the rows that it leaves alone."""

    kernel: Any
    direction: int
    grid: NDArray[np.uint32]
    scratch: Any = np.dtype(np.float32)
    rest: Rest = None
    scratch_rows: int = 1  # for each row of the result; 0: as many as a tree needs

    def __call__(
        self, a: NDArray[Any], b: NDArray[Any], out: NDArray[Any], ranges: NDArray[Any], index: NDArray[Any],
        seeds: NDArray[Any], *more: Any,
    ) -> None:  # fmt: skip
        """`more` is whether sums in order are fresh, or a tree's programs."""
        parts, rows, columns = out.shape
        across = -(-columns // _COLUMNS)
        width = -(-columns // max(across, 1) // _LANES) * _LANES
        failed = np.zeros((parts, rows, across), np.bool_)
        if self.scratch_rows:
            heights = self.scratch_rows * min(rows, _ROWS), _DEPTH
        else:
            heights = more[-1] * min(rows, _TREE_ROWS), 4
        scratch = _SCRATCH.take(heights, width, self.scratch)
        self.kernel(*scratch, failed, a, b, out, ranges, index, seeds, *more, self.direction, self.grid)
        if self.rest is None or not failed.any():
            return
        if failed.all():
            self.rest(a, b, out, ranges, index, seeds, *more)
            return
        for part, c in np.argwhere(failed.any(axis=1)):
            j = slice(c * width, (c + 1) * width)
            columns_of_b = np.ascontiguousarray(b[:, j])
            for i in _runs(failed[part, :, c]):
                some = np.ascontiguousarray(out[part, i, j])[np.newaxis]
                first = np.array([index[0] + i.start * index[1] + j.start * index[2], *index[1:]])
                these = slice(part, part + 1)
                self.rest(a[i], columns_of_b, some, ranges[these], first, seeds[these], *more)
                out[part, i, j] = some[0]


def _runs(marks: NDArray[np.bool_]) -> list[slice]:
    """Where the true ones lie."""
    edges = np.flatnonzero(np.diff(marks, prepend=False, append=False))
    return [slice(int(start), int(stop)) for start, stop in edges.reshape(-1, 2)]


Rest: TypeAlias = "Tiled | _InDoubles | None"

_DTYPES = {loops.HALF: np.dtype(np.uint16), loops.SINGLE: np.dtype(np.float32), loops.DOUBLE: np.dtype(np.float64)}


# -- which kernel ------------------------------------------------------------------------------------------------------


def leaf_kernel(leaf: Leaf, terms: Terms, attributes: Attributes, product_attributes: Attributes) -> FastLeaf | None:
    """The kernel that sums a leaf in float32, or in the accumulator's own format if that is FP64; or None."""
    if not isinstance(leaf, ProductLeaf) or attributes.daz or attributes.ftz:
        return None
    fmt, draws = leaf.format, attributes.rounding is Rounding.STOCHASTIC
    direction = steps.TOWARD_ZERO if draws else _DIRECTIONS.get(attributes.rounding)
    exact = exact_products(leaf, terms)
    if direction is None or not (exact or (leaf.product == fmt and product_attributes == attributes)):
        return None
    carrier = FP64 if fmt == FP64 else FP32
    case = _Case(leaf, terms, attributes, direction, exact)
    if not all(embeds(factor, carrier) for factor in case.factors):
        return None
    in_doubles = doubles.leaf_kernel(leaf, terms, attributes, product_attributes)
    rest = None if in_doubles is None else _InDoubles(in_doubles)
    found = case.stochastic(rest) if draws else case.plain() or case.rounded(rest)
    return None if found is None else FastLeaf(carrier, found)


_STEADY = 9
"""Bits of formats whose sums, rounded upward over and over, do not soon rise to the largest number."""


class _Case(NamedTuple):
    """A leaf, its terms, and how they are rounded."""

    leaf: ProductLeaf
    terms: Terms
    how: Attributes
    direction: int
    exact: bool

    @property
    def factors(self) -> list[FloatFormat]:
        return [factor for factor in self.terms if factor is not None]

    @property
    def adds_products(self) -> bool:
        """Whether terms are added to sums in one rounding, whatever they are."""
        return isinstance(self.leaf, Sequential) and machine.has_fma()

    def tiled(
        self, style: int, enter: int, direction: int, grid: NDArray[np.uint32], scratch: Any = loops.SINGLE,
        rest: Rest = None,
    ) -> Tiled:  # fmt: skip
        dtype = _DTYPES[scratch]
        if isinstance(self.leaf, Kahan | Neumaier):
            kernel = loops.compensated(style, enter, scratch, isinstance(self.leaf, Neumaier))
            return Tiled(kernel, direction, grid, dtype, rest, 2)
        if isinstance(self.leaf, Pairwise):
            return Tiled(loops.in_tree(style, enter, scratch), direction, grid, dtype, rest, 0)
        return Tiled(loops.in_order(style, enter, scratch), direction, grid, dtype, rest)

    def plain(self) -> Tiled | None:
        """In arithmetic of the accumulator's own format."""
        fmt = self.leaf.format
        scratch = {FP32: loops.SINGLE, FP64: loops.DOUBLE}.get(fmt)
        if fmt == FP16 and machine.has_half_arithmetic() and all(embeds(factor, FP16) for factor in self.factors):
            scratch = loops.HALF
        fused = self.exact and not holds(fmt, self.terms)
        if scratch is None or self.how.overflow is not Overflow.INFINITY or (fused and not self.adds_products):
            return None
        return self.tiled(steps.PLAIN, steps.EXACT if fused else steps.ROUNDED, self.direction, NO_GRID, scratch)

    def rounded(self, rest: Rest) -> Tiled | None:
        """In float32, rounded to the accumulator's format. `rest` is a kernel on float64."""
        fmt, terms = self.leaf.format, self.terms
        compensated = isinstance(self.leaf, Kahan | Neumaier)
        if not self.innocuous() or (compensated and self.direction != steps.TIES_TO_EVEN):
            return None
        if fmt == BF16 and self.how.overflow is Overflow.INFINITY and rest is not None:
            return self.bfloat(rest)
        if fmt == BF16 or not embeds(fmt, FP32) or fmt.emax + 1 + FP32.precision - fmt.precision > FP32.emax:
            return None
        if not compensated:
            if self.how.overflow is not Overflow.INFINITY and terms.highest + 1 >= FP32.emax:
                return None  # what saturates must not be infinite before
            enter = steps.EXACT if self.exact else steps.ROUNDED
            rest = self.tiled(steps.NARROW, enter, self.direction, narrow_row(fmt, self.how))
        enter = steps.CLAMPED
        if self.exact:
            enter = steps.EXACT_CLAMPED if terms.lowest < quantum(fmt) else steps.EXACT
        row = quick_row(fmt, _style(self.direction), self.direction, self.how)
        overflows = self.exact and isinstance(self.leaf, Pairwise)  # before the terms are added
        if row is None or (overflows and terms.highest + shift_of(row) >= FP32.emax):
            return rest if isinstance(rest, Tiled) else None
        if rest is None:
            return None
        found = self.quick(enter, row, rest)
        rises = self.direction in (steps.TOWARD_POSITIVE, steps.TOWARD_NEGATIVE) and isinstance(self.leaf, Sequential)
        if rises and fmt.precision >= _STEADY:
            return self.tiled(steps.RISING, enter, steps.TOWARD_POSITIVE, row, rest=found)
        return found

    def stochastic(self, rest: Rest) -> Tiled | None:
        if not isinstance(self.leaf, Sequential | Pairwise) or self.leaf.format != BF16 or rest is None:
            return None
        if self.terms.precision > FP32.precision or self.how.overflow is not Overflow.INFINITY:
            return None
        row = quick_row(BF16, steps.INWARD, self.direction, self.how)
        assert row is not None
        enter = steps.EXACT if self.exact else steps.ROUNDED
        if isinstance(self.leaf, Pairwise):
            return Tiled(gemm_stochastic.in_tree(enter), self.direction, row, rest=rest, scratch_rows=0)
        return Tiled(gemm_stochastic.in_order(enter), self.direction, row, rest=rest, scratch_rows=2)

    def innocuous(self) -> bool:
        """Whether products and sums may be rounded to float32 first."""
        fmt, terms = self.leaf.format, self.terms
        if isinstance(self.leaf, Kahan | Neumaier) and self.exact:
            return 2 * fmt.precision + 2 <= FP32.precision and on_grid(fmt, terms) and holds(FP32, terms)
        if self.direction != steps.TIES_TO_EVEN:  # one direction after the other on nested grids
            return not self.exact or holds(FP32, terms) or self.adds_products
        if fmt == BF16 and self.exact and fmt.precision < terms.precision <= FP32.precision:
            return True  # with the last bit set of what is inexact; see ODD
        if 2 * fmt.precision + 2 > FP32.precision:
            return False
        if self.exact:
            # of two terms, one may be a midpoint of the subnormals' grid, and the other too small for float32 beside it
            of_terms = isinstance(self.leaf, Pairwise) and not on_grid(fmt, terms)
            return holds(FP32, terms) and terms.precision <= fmt.precision and (not of_terms or add_exactly(terms))
        assert terms.b is not None
        return products_do(terms.a, terms.b, fmt)

    def quick(self, enter: int, row: NDArray[np.uint32], rest: Rest) -> Tiled:
        style = _style(self.direction)
        hardware = steps.TOWARD_POSITIVE if style == steps.UPWARD else self.direction
        return self.tiled(style, enter, hardware, row, rest=rest)

    def bfloat(self, rest: Rest) -> Tiled:
        style, terms = _style(self.direction), self.terms
        row = quick_row(BF16, style, self.direction, self.how)
        assert row is not None
        shares = style == steps.INWARD  # subnormals lose the same bits of the code
        if self.exact:
            if style == steps.NEAREST and terms.precision > BF16.precision:
                return self.tiled(steps.ODD, steps.EXACT, steps.TOWARD_ZERO, row, rest=rest)
            clamps = terms.lowest < quantum(BF16) and not shares
            return self.quick(steps.EXACT_CLAMPED if clamps else steps.EXACT, row, rest)
        if not shares and any(factor.precision > BF16.precision for factor in self.factors):
            return self.quick(steps.CLAMPED, row, rest)
        if style == steps.NEAREST and isinstance(self.leaf, Sequential):
            wide = quick_row(BF16, style, self.direction, self.how, WIDE_SHIFT)
            assert wide is not None
            rest = self.quick(steps.WIDE, wide, rest)
        return self.quick(steps.ROUNDED, row, rest)


def _style(direction: int) -> int:
    style: int = {steps.TIES_TO_EVEN: steps.NEAREST, steps.TOWARD_ZERO: steps.INWARD}.get(direction, steps.UPWARD)
    return style
