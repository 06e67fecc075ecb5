"""Exact sums in float64: every sum is split into levels of a few bits, each of which adds without rounding."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from floatsim_kernels.gemm import exact as loops
from floatsim_kernels.gemm import float64 as float64_loops
from floatsim_kernels.gemm import integer
from floatsim_kernels.runtime import cpu

from floatsim.accumulation.leaves import Exact
from floatsim.emulator.dispatch.float64 import rows_of, work_rows
from floatsim.emulator.dispatch.kernel import Case, FloatKernel, Planned
from floatsim.emulator.params import float64_rounding, format_params, rounding_params
from floatsim.emulator.proofs import FLOAT64_EXPONENTS, exponents_bound_operands, rounds_in_float64
from floatsim.emulator.unpack import unpack
from floatsim.formats.format import FP32, FP64, FloatFormat
from floatsim.formats.rounding import Rounding, RoundingAttributes
from floatsim.formats.value_sets import TermRange

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ExactInFloat64"]


_BELOW_ALL = -4096
"""An exponent that no other factor brings back into the range of the levels: float64's are 1023 at most."""
_FEW_TERMS, _FEW_COLUMNS = 4096, 2
"""Up to so many terms in all sums, or columns, the general kernel is faster than levels that it has to add. It reads
one term at a time; the kernel of levels computes whole vectors."""
_KEPT = 51
"""How many bits of a sum are known, at least, before it is rounded."""

_NO_RULE = float64_loops.EXACT, 1.0, np.zeros(len(float64_loops.ROUNDING_FIELDS))
_NO_DIGITS = np.empty((0, 0))
_NO_TERM = np.empty((0, 0, 0), np.uint64)
_ONE = np.array(FP32.emax << FP32.trailing_bits, np.uint64)


class _Range(NamedTuple):
    """Exponents: terms are multiples of 2**low and below 2**high."""

    low: int
    high: int

    @property
    def fits(self) -> bool:
        return self.low >= -FLOAT64_EXPONENTS and self.high <= FLOAT64_EXPONENTS


class _Levels(NamedTuple):
    """The parameters of the levels that the kernel reads."""

    number: int
    unit: int
    width: int
    high: int


@functools.lru_cache(maxsize=256)
def _levels(terms: _Range, count: int) -> _Levels:
    """The levels of a sum of `count` terms."""
    more = count.bit_length()
    if terms.high - terms.low + more <= FP64.precision:
        return _Levels(1, terms.low, 1, terms.high)
    width = FP64.precision - 2 - more
    unit = terms.high + 1 - width  # a term is at most half of 2**width units of its first level
    return _Levels(1 - (terms.low - unit) // width, unit, width, terms.high)


def _extent(x: NDArray[np.float64]) -> tuple[int, int]:
    """Exponents of the least and of the largest finite number, not zero; beyond every range for subnormals."""
    magnitudes = x.view(np.uint64) & np.uint64(FP64.magnitude_mask)
    numbers = magnitudes[(magnitudes != 0) & (magnitudes <= FP64.max_code)]
    if not numbers.size:
        return 0, 0
    least, largest = (int(end) >> FP64.trailing_bits for end in (numbers.min(), numbers.max()))
    return (least - FP64.bias if least else _BELOW_ALL), largest - FP64.bias


@dataclass(frozen=True)
class ExactSums:
    """Exact sums of terms to a format, called as the kernels of `gemm.float64` are."""

    terms: TermRange
    fmt: FloatFormat
    attributes: RoundingAttributes

    @functools.cached_property
    def in_floats(self) -> bool:
        """Return whether the last rounding is done in float64, too."""
        stochastic = self.attributes.rounding is Rounding.STOCHASTIC
        needed = self.fmt.precision + 2 + (32 if stochastic else 0)
        return needed <= _KEPT and rounds_in_float64(self.fmt, self.attributes)

    @functools.cached_property
    def _rule(self) -> tuple[NDArray[np.int64], float, NDArray[np.float64]]:
        """The last rounding in float64: its rule, sign and parameters."""
        rule, sign, params = float64_rounding(self.fmt, self.attributes) if self.in_floats else _NO_RULE
        return np.array([rule]), sign, params

    @functools.cached_property
    def _precision(self) -> int:
        """The largest number of significand bits of a product, for the kernel."""
        return self.terms.precision + self._one

    @functools.cached_property
    def _split(self) -> bool:
        """Whether float64 does not hold every term, so that the kernel splits terms in two."""
        return self.terms.precision > FP64.precision

    @property
    def _one(self) -> int:
        """The bits of the number 1 that values are multiplied by: to the kernel they are products."""
        return int(self.terms.b is None)

    @functools.cached_property
    def _range_of_formats(self) -> _Range | None:
        """The range of all possible terms, or None if the kernel needs the range of the operands."""
        terms = _Range(self.terms.lowest, self.terms.highest + 1 + self._one)
        return terms if terms.fits and exponents_bound_operands(self.terms) else None

    def _range(self, a: NDArray[np.float64], b: NDArray[np.float64]) -> _Range:
        if self._range_of_formats is not None:
            return self._range_of_formats
        (least_a, largest_a), (least_b, largest_b) = _extent(a), _extent(b)
        return _Range(least_a + least_b + 2 - self._precision, largest_a + largest_b + 2)

    def __call__(
        self, a: NDArray[np.float64], b: NDArray[np.float64], out: NDArray[np.float64], ranges: NDArray[np.int64],
        index: NDArray[np.int64], seeds: NDArray[np.uint64],
    ) -> None:  # fmt: skip
        span, split = self._range(a, b), self._split
        lengths = [len(range(*each)) for each in ranges.tolist()]
        few = sum(lengths) * len(a) * b.shape[1] <= _FEW_TERMS or b.shape[1] <= _FEW_COLUMNS
        if not span.fits or (split and not cpu.has_fma()) or (few and not self.in_floats):
            codes = a.view(np.uint64)[np.newaxis], FP64, b.view(np.uint64)[np.newaxis]
            if not span.fits:
                span = _Range(2 * (FP64.emin - FP64.trailing_bits), 2 * (FP64.emax + 1))
            out[...] = self._by_integers(*codes, span, ranges, np.array([index[0], 0, *index[1:]]), seeds)[:, 0]
            return
        levels = _levels(span, (max(lengths, default=0) + 1) * (1 + split))
        rule, sign, grid = self._rule
        rows = loops.rows_of_work(levels.number)
        shape = (len(ranges), len(a), levels.number, b.shape[1])
        digits = _NO_DIGITS if self.in_floats else np.empty((math.prod(shape[:3]), shape[3]))
        loops.exact(
            a, b, rows_of(out), ranges, index, seeds, digits, self._precision, int(split),
            span.low, *levels, int(self.attributes.rounding is Rounding.TOWARD_NEGATIVE), rule, sign, grid,
            np.empty(loops.BOUNDS_SHAPE, np.int64), work_rows(rows, index, b.shape[1]),
        )  # fmt: skip
        if not self.in_floats:
            self._add_digits(digits.reshape(shape), span, out, index, seeds)

    def _add_digits(
        self, digits: NDArray[np.float64], span: _Range, out: NDArray[np.float64], index: NDArray[np.int64],
        seeds: NDArray[np.uint64],
    ) -> None:  # fmt: skip
        """The sums over the third axis; every row of the result is a matrix of its own to the general kernel."""
        parts, rows, levels, columns = digits.shape
        terms = np.ascontiguousarray(digits.swapaxes(0, 1)).view(np.uint64).reshape(rows, parts * levels, columns)
        ones = np.broadcast_to(_ONE, (rows, 1, parts * levels))
        starts = np.arange(parts, dtype=np.int64) * levels
        ranges = np.stack([starts, starts + levels, np.ones_like(starts)], axis=1)
        by_row = np.array([index[0], index[1], 0, index[2]])
        out[...] = self._by_integers(ones, FP32, terms, span, ranges, by_row, seeds)[:, :, 0]

    def _by_integers(
        self, a: NDArray[np.uint64], a_format: FloatFormat, b: NDArray[np.uint64], span: _Range,
        ranges: NDArray[np.int64], index: NDArray[np.int64], seeds: NDArray[np.uint64],
    ) -> NDArray[np.float64]:  # fmt: skip
        """The general kernel's sums of codes, b's being float64's, as (ranges, batch, M, N) float64."""
        shape = (a.shape[0], a.shape[1], b.shape[2])
        codes = np.empty((len(ranges), *shape), np.uint64)
        lowest = span.low - 240  # what a window of 128 bits needs below
        limbs = np.zeros((span.high + 31 - lowest) // 32 + 8, np.int64)  # of 2**31 terms
        integer.exact(
            a, format_params(a_format), b, format_params(FP64), codes, format_params(self.fmt),
            rounding_params(self.attributes), ranges, seeds, index, np.zeros(a.shape[2], np.int64),
            np.zeros((2, 256), np.int64), np.empty((0, *shape), np.int64), limbs, lowest, _NO_TERM,
            format_params(self.fmt),
        )  # fmt: skip
        return unpack(codes.astype(self.fmt.code_dtype), self.fmt, FP64).astype(np.float64, copy=False)


class ExactInFloat64:
    """Exact sums in float64, rounded once."""

    name = "exact float64"
    takes = (Exact,)

    def refusal(self, case: Case) -> str | None:
        if reason := case.float_refusal():
            return reason
        if case.c is not None:
            return "c is one more exact term"
        return "DAZ" if case.sums.daz else None

    def kernel(self, case: Case, plan: Callable[[Case], Planned]) -> FloatKernel:
        return FloatKernel(case, plan, FP64, ExactSums(case.terms, case.accumulation.result_format, case.sums))
