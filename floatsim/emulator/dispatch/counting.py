"""When events of a leaf are counted by kernels on float32, and how: sequential sums of rounded products, ties to even.

Overflows and NaNs stay in the sums, and underflow is of products alone: where no more is asked for, the sums are
computed as if nothing were recorded, tiny products are looked for where there can be some, and only rows with an
infinite or NaN result are computed again with everything recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from floatsim_kernels.gemm import float32_counting as gemm_recorded
from floatsim_kernels.rounding import float32 as single_steps

from floatsim.accumulation import Leaf, Sequential
from floatsim.emulator.params import narrow_grid, quick_row
from floatsim.emulator.proofs import is_narrow
from floatsim.formats import BF16, FP32, FloatFormat
from floatsim.formats.rounding import (
    ABSORBED,
    FLUSHED,
    INEXACT,
    INVALID,
    OVERFLOW,
    SUBNORMAL,
    UNDERFLOW,
    Attributes,
    Overflow,
    Rounding,
    Tininess,
)
from floatsim.formats.value_sets import Terms, embeds

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["STICKY", "Recorder", "recorder"]

Floats: TypeAlias = "NDArray[np.float32]"
Indices: TypeAlias = "NDArray[np.int64]"

STICKY = frozenset({"overflow", "invalid", "nan", "underflow", "flushed"})
"""Events that need no look at every sum."""

_FLAGS = {
    "inexact": INEXACT, "underflow": UNDERFLOW, "overflow": OVERFLOW, "flushed": FLUSHED, "subnormal": SUBNORMAL,
    "absorbed": ABSORBED, "invalid": INVALID,
}  # fmt: skip
_SITES = ("product", "sum")
_BITS = [(_SITES.index(site), name) for site, name in (event.split() for event in gemm_recorded.EVENTS)]
_OF_PRODUCTS = ("underflow", "flushed")
_LATE, _NEVER = np.iinfo(np.int32).max, np.iinfo(np.int64).max


class Recorder(NamedTuple):
    """What the kernels need to know of the format."""

    bfloat: bool
    terms: int
    grid: NDArray[np.uint32]
    quick: NDArray[np.uint32]
    exact: bool  # whether all products are in float32; else those are that are not below its normal numbers

    def takes(self, a: Floats, b: Floats) -> bool:
        """Whether the numbers are such that this is right: finite, and their products exact."""
        if not (np.isfinite(a).all() and np.isfinite(b).all()):
            return False
        return self.exact or _smallest(a) * _smallest(b) >= float(FP32.smallest_normal)

    def wanted(self, events: frozenset[str]) -> np.uint32:
        """The bits of the event words that tell of these events."""
        return np.uint32(sum(1 << bit for bit, (_, name) in enumerate(_BITS) if name in events))

    def record(
        self, a: Floats, b: Floats, out: Floats, ranges: Indices, where: Indices, events: frozenset[str],
        counts: Indices, first: Indices, fast: Callable[[], None] | None,
    ) -> None:  # fmt: skip
        """Sum into `out` (ranges, M, N), add to `counts` (2, 256) of event bytes, and take the least k into `first`.

        `fast` sums into `out` without a look at events.
        """
        places = np.full(first.shape, _LATE, np.int32)
        tally = np.zeros(len(_BITS), np.int64)
        if fast is None or not events <= STICKY:
            self._sum(a, b, out, ranges, where, self.wanted(events), tally, places)
        else:
            start = out.copy()
            fast()
            if products := self.wanted(events & frozenset(_OF_PRODUCTS)):
                tiny_products = gemm_recorded.tiny_products(self.bfloat)
                tiny_products(a, b, ranges, where, products, tally, places, self.grid)
            self._again(a, b, out, start, ranges, where, self.wanted(events - frozenset(_OF_PRODUCTS)), tally, places)
        np.minimum(first, np.where(places == _LATE, np.int64(_NEVER), places), out=first)
        for (site, name), number in zip(_BITS, tally, strict=True):
            if name in _FLAGS:
                counts[site, _FLAGS[name]] += number
        lengths = np.maximum(-(-(ranges[:, 1] - ranges[:, 0]) // ranges[:, 2]), 0)
        steps = int(lengths.sum()) * out.shape[1] * out.shape[2]
        for site in range(2):  # the rest of them; a sum of bins is all that counts are taken for
            counts[site, 0] += steps - sum(
                int(n) for (s, name), n in zip(_BITS, tally, strict=True) if s == site and name in _FLAGS
            )

    def _sum(self, *arguments: Any) -> None:
        gemm_recorded.recorded(self.bfloat, self.terms)(*arguments, self.grid, self.quick)

    def _again(
        self, a: Floats, b: Floats, out: Floats, start: Floats, ranges: Indices, where: Indices, wanted: np.uint32,
        tally: Indices, places: NDArray[np.int32],
    ) -> None:  # fmt: skip
        """The rows with a result that is not finite."""
        for part in range(len(ranges)):
            rows = np.flatnonzero(~np.isfinite(out[part]).all(axis=1))
            if rows.size:
                some = np.ascontiguousarray(places[:, rows])
                sums = np.ascontiguousarray(start[part : part + 1, rows])
                one = ranges[part : part + 1]
                self._sum(a[rows], b, sums, one, where, wanted, tally, some)
                places[:, rows] = some


def _smallest(x: Floats) -> float:
    """The smallest non-zero magnitude."""
    sizes = np.abs(x)
    return float(np.min(sizes, where=sizes > 0, initial=np.inf))


@lru_cache(maxsize=256)
def _grid(fmt: FloatFormat, tininess: Tininess) -> NDArray[np.uint32]:
    least = fmt.smallest_normal
    # after rounding: what is not rounded up to it with unbounded exponent
    tiny = least if tininess is Tininess.BEFORE else least * (1 - 2.0 ** -(fmt.precision + 1))
    row = np.concatenate([narrow_grid(fmt), np.array([tiny, least], np.float32).view(np.uint32)])
    row.flags.writeable = False
    return row


def recorder(leaf: Leaf, terms: Terms, how: Attributes, products: Attributes) -> Recorder | None:
    """What records the events of this leaf, if not the general kernels."""
    fmt = leaf.format
    if not isinstance(leaf, Sequential) or leaf.product != fmt or terms.b is None or products != how:
        return None
    if how.rounding is not Rounding.TIES_TO_EVEN or how.overflow is not Overflow.INFINITY or how.ftz or how.daz:
        return None
    if terms.precision > FP32.precision or not (embeds(terms.a, FP32) and embeds(terms.b, FP32)):
        return None
    if fmt != BF16 and not is_narrow(fmt):
        return None
    quick = quick_row(fmt, single_steps.NEAREST, single_steps.TIES_TO_EVEN, how)
    exact = terms.lowest >= FP32.emin and terms.highest <= FP32.emax
    shares = fmt == BF16 and all(factor.precision <= fmt.precision for factor in (terms.a, terms.b))
    enter = single_steps.ROUNDED if shares else single_steps.CLAMPED
    return Recorder(fmt == BF16, enter, _grid(fmt, how.tininess), _NOT_QUICK if quick is None else quick, exact)


_NOT_QUICK = np.zeros(single_steps.GRID_SIZE, np.uint32)
