"""When exact sums in float64 give the same bits as the general ones, and how they are called."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from floatsim_kernels import gemm_doubles, gemm_exact, sums

from floatsim import doubles
from floatsim.accumulation import Exact, Leaf
from floatsim.formats import FP32, FP64, FloatFormat
from floatsim.leaves import FastLeaf, Terms
from floatsim.rounding import Attributes, Rounding
from floatsim.rows import format_row, manner_row
from floatsim.widening import widen

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["leaf_kernel"]

_KEPT = 51
"""How many bits of a sum are known, at least, before it is rounded in float64."""

_NO_RULE = gemm_doubles.EXACT, 1.0, np.zeros(len(gemm_doubles.GRID_FIELDS))
_NO_DIGITS = np.empty((0, 0))
_ONE = np.array(FP32.emax << FP32.trailing_bits, np.uint64)


def _levels(terms: Terms, count: int) -> tuple[int, int, int, int]:
    """(levels, exponent of the first one's unit, bits from level to level, exponent that all terms are below)."""
    high, low, more = terms.highest + 1, terms.lowest, count.bit_length()
    if high - low + more <= FP64.precision:
        return 1, low, 1, high
    width = FP64.precision - 2 - more
    unit = high + 1 - width  # a term is at most half of 2**width units of its first level
    return 1 - (low - unit) // width, unit, width, high


class _Sums(NamedTuple):
    """Exact sums of terms to a format, called as the kernels of `gemm_doubles` are."""

    terms: Terms
    fmt: FloatFormat
    attributes: Attributes

    @property
    def in_floats(self) -> bool:
        """Whether the last rounding is done in float64, too."""
        stochastic = self.attributes.rounding is Rounding.STOCHASTIC
        needed = self.fmt.precision + 2 + (32 if stochastic else 0)
        return needed <= _KEPT and doubles.can_round(self.fmt, self.attributes)

    def __call__(
        self, a: NDArray[np.float64], b: NDArray[np.float64], out: NDArray[np.float64], ranges: NDArray[np.int64],
        index: NDArray[np.int64], seeds: NDArray[np.uint64],
    ) -> None:  # fmt: skip
        most_terms = int(((ranges[:, 1] - ranges[:, 0]) // ranges[:, 2]).max(initial=0)) + 1
        levels, *layout = _levels(self.terms, most_terms)
        shape = (len(ranges), len(a), levels, b.shape[1])
        digits = _NO_DIGITS if self.in_floats else np.empty((math.prod(shape[:3]), shape[3]))
        rule, sign, grid = doubles.rule_of(self.fmt, self.attributes) if self.in_floats else _NO_RULE
        gemm_exact.exact(
            a, b, doubles.rows_of(out), ranges, index, seeds, digits, self.terms.precision, self.terms.lowest,
            levels, *layout, int(self.attributes.rounding is Rounding.TOWARD_NEGATIVE), np.array([rule]), sign, grid,
            np.empty(gemm_exact.NOTES, np.int64), doubles.work_rows(gemm_exact.rows_of_work(levels), index),
        )  # fmt: skip
        if not self.in_floats:
            rows = np.ascontiguousarray(digits.reshape(shape).transpose(1, 0, 2, 3))
            out[...] = self._by_integers(rows, index, seeds)

    def _by_integers(
        self, digits: NDArray[np.float64], index: NDArray[np.int64], seeds: NDArray[np.uint64]
    ) -> NDArray[np.float64]:
        """The sums of `digits` (M, ranges, levels, N) by the general kernel, as (ranges, M, N) float64."""
        rows, parts, levels, columns = digits.shape
        terms = digits.view(np.uint64).reshape(rows, parts * levels, columns)
        ones = np.broadcast_to(_ONE, (rows, 1, parts * levels))
        codes = np.empty((parts, rows, 1, columns), np.uint64)
        starts = np.arange(parts, dtype=np.int64) * levels
        # float64 numbers of float64's whole range, and 2**31 of them; and what a window of 128 bits needs below
        limbs = np.zeros((2200 + 31) // 32 + 12, np.int64)
        sums.exact(
            ones, format_row(FP32), terms, format_row(FP64), codes, format_row(self.fmt), manner_row(self.attributes),
            np.stack([starts, starts + levels, np.ones_like(starts)], axis=1), seeds,
            np.array([index[0], index[1], 0, index[2]], np.int64), np.zeros(parts * levels, np.int64),
            np.zeros((2, 256), np.int64), np.empty((0, rows, 1, columns), np.int64), limbs, -1300,
            np.empty((0, 0, 0), np.uint64), format_row(self.fmt),
        )  # fmt: skip
        rounded: NDArray[Any] = codes[:, :, 0].astype(self.fmt.code_dtype)
        return widen(rounded, self.fmt, FP64).astype(np.float64, copy=False)


def leaf_kernel(leaf: Leaf, terms: Terms, attributes: Attributes, product_attributes: Attributes) -> FastLeaf | None:
    """The kernel of an exact sum whose terms are float64 numbers; None for others."""
    if not isinstance(leaf, Exact) or attributes.daz or terms.precision > FP64.precision:
        return None
    # room for the constants of the first and of the last level
    if terms.lowest < -900 or terms.highest > 900:
        return None
    return FastLeaf(FP64, _Sums(terms, leaf.format, attributes))
