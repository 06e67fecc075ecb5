"""When kernels on float32 give the same bits as the general ones, and how they are called."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from floatsim_kernels import gemm_singles as loops
from floatsim_kernels import machine
from floatsim_kernels import single_steps as steps

from floatsim import reference
from floatsim.accumulation import Leaf, Pairwise, ProductLeaf, Sequential
from floatsim.formats import BF16, FP16, FP32, FP64, FloatFormat
from floatsim.leaves import FastLeaf, Terms
from floatsim.rounding import Attributes, Overflow, Rounding

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

_ROWS, _TREE_ROWS, _COLUMNS, _DEPTH = 64, 8, 512, 32  # of scratch: it stays in the caches
_LANES, _LINE = 16, 64


def _aligned(rows: int, columns: int, dtype: Any) -> NDArray[Any]:
    """Scratch whose rows start on cache lines; `columns` is a multiple of the lanes."""
    size = rows * columns * dtype.itemsize
    memory = np.zeros(size + _LINE, np.uint8)
    skip = -memory.__array_interface__["data"][0] % _LINE
    scratch: NDArray[Any] = memory[skip : skip + size].view(dtype).reshape(rows, columns)
    return scratch


class Tiled(NamedTuple):
    """A kernel of `gemm_singles` with its scratch, and what does the rows that it leaves alone."""

    kernel: Any
    direction: int
    grid: NDArray[np.uint32]
    scratch: Any = np.dtype(np.float32)
    complete: Tiled | None = None

    def __call__(
        self, a: NDArray[Any], b: NDArray[Any], out: NDArray[Any], ranges: NDArray[Any], index: NDArray[Any],
        seeds: NDArray[Any], *programs: Any,
    ) -> None:  # fmt: skip
        parts, rows, columns = out.shape
        across = -(-columns // _COLUMNS)
        width = -(-columns // max(across, 1) // _LANES) * _LANES
        failed = np.zeros((parts, rows, across), np.bool_)
        if programs:
            heights = programs[-1] * min(rows, _TREE_ROWS), 2
        else:
            heights = min(rows, _ROWS), _DEPTH
        scratch = [_aligned(height, width, self.scratch) for height in heights]
        self.kernel(*scratch, failed, a, b, out, ranges, index, seeds, *programs, self.direction, self.grid)
        if self.complete is None or not failed.any():
            return
        if failed.all():
            self.complete(a, b, out, ranges, index, seeds, *programs)
            return
        for part, c in np.argwhere(failed.any(axis=1)):
            these = np.flatnonzero(failed[part, :, c])
            j = slice(c * width, (c + 1) * width)
            some = np.ascontiguousarray(out[part, these, j])[np.newaxis]
            terms = a[these], np.ascontiguousarray(b[:, j])
            self.complete(*terms, some, ranges[part : part + 1], index, seeds[part : part + 1], *programs)
            out[part, these, j] = some[0]


# -- rows of grids -----------------------------------------------------------------------------------------------------


def _float_bits(x: float) -> int:
    return int(np.float32(x).view(np.uint32))


def _power(exponent: int) -> float:
    return math.ldexp(1.0, exponent)


def _row(fields: dict[str, int], order: tuple[str, ...]) -> NDArray[np.uint32]:
    row = np.zeros(steps.GRID_SIZE, np.uint32)
    row[: len(order)] = [fields[name] for name in order]
    row.flags.writeable = False
    return row


_NO_GRID = np.zeros(steps.GRID_SIZE, np.uint32)


def _overflows_to(fmt: FloatFormat, how: Attributes) -> tuple[int, int, int, int]:
    """What overflow (+, -), an infinite sum, and NaN become: bits of float32 magnitudes."""

    def magnitude(number: reference.Number, how: Attributes) -> int:
        code, _ = reference.convert(number, fmt, how)
        return reference.convert(reference.decode(code, fmt), FP32, Attributes())[0] & ~FP32.sign_mask

    positive, negative = (magnitude(reference.Number(reference.Kind.FINITE, sign, 1, 5000), how) for sign in (0, 1))
    exact = Attributes()  # infinite sums do not saturate
    infinite = magnitude(reference.Number(reference.Kind.INFINITE, 0), exact)
    return positive, negative, infinite, magnitude(reference.NAN, exact)


def _narrow_row(fmt: FloatFormat, how: Attributes) -> NDArray[np.uint32]:
    over, negative_over, infinity, nan = _overflows_to(fmt, how)
    fields = {
        "emin": _float_bits(_power(fmt.emin)),
        "limit": _float_bits(_power(fmt.emax + 1)),
        "above": FP32.precision - fmt.precision << FP32.trailing_bits,
        "max": _float_bits(fmt.max),
        "overflow": over,
        "negative_overflow": negative_over,
        "infinity": infinity,
        "nan": nan,
    }
    return _row(fields, steps.NARROW_FIELDS)


def _bfloat_row(direction: int) -> NDArray[np.uint32]:
    below = (1 << FP32.trailing_bits - BF16.trailing_bits) - 1
    nearest = direction == steps.TIES_TO_EVEN
    fields = {
        "even": int(nearest),
        "positive": below >> 1 if nearest else below if direction == steps.TOWARD_POSITIVE else 0,
        "negative": below >> 1 if nearest else below if direction == steps.TOWARD_NEGATIVE else 0,
    }
    return _row(fields, steps.BFLOAT_FIELDS)


def _quick_row(
    fmt: FloatFormat, style: int, direction: int, how: Attributes, shift: int = 0
) -> NDArray[np.uint32] | None:
    """What the quick styles need to know; None where they are not for the format."""
    more = FP32.precision - fmt.precision
    factor, low, most, high, infinite = 1.5 * _power(more), -math.inf, math.inf, math.inf, 0
    if style == steps.NEAREST and fmt != BF16:
        shift = FP32.emax + 1 - fmt.emax - more
    elif fmt != BF16:
        overflow = _overflows_to(fmt, how)[direction == steps.TOWARD_NEGATIVE]
        low, most, high = -fmt.max, fmt.max, fmt.max
        if style == steps.UPWARD:
            shift = FP32.emax - fmt.emax - more
            if overflow != _float_bits(fmt.max):
                factor, high, infinite = _power(more + 1) - 2, _power(fmt.emax + 1), overflow
    if style == steps.INWARD:
        factor = _power(more)
    if fmt.precision > 11 or abs(shift) > -FP32.emin:
        return None
    scale = _power(shift)
    sign = -1 if direction == steps.TOWARD_NEGATIVE else 1
    fields = {
        "emin": _float_bits(_power(max(fmt.emin + shift, FP32.emin))),
        "factor": _float_bits(_power(more)),
        "more": _float_bits(factor),
        "scale": _float_bits(sign * scale),
        "unscale": _float_bits(sign / scale),
        "low": _float_bits(low * scale),
        "most": _float_bits(most * scale),
        "high": _float_bits(high * scale),
        "infinite": infinite,
        "zero": FP32.sign_mask if sign < 0 else 0,
    }
    return _row(fields, steps.QUICK_FIELDS)


_WIDE_SHIFT = -9  # BF16 sums as low as 2**-133 stay multiples of float32's 2**-149, those below 2**121 are in reach


# -- which kernel ------------------------------------------------------------------------------------------------------


def _lowest(fmt: FloatFormat) -> int:
    """Exponent of the quantum of the subnormals."""
    return fmt.emin - fmt.trailing_bits


def _embeds(fmt: FloatFormat, carrier: FloatFormat) -> bool:
    """Whether every finite value of a format is one of the carrier's."""
    return fmt.precision <= carrier.precision and _lowest(fmt) >= _lowest(carrier) and fmt.emax <= carrier.emax


def _holds(fmt: FloatFormat, terms: Terms) -> bool:
    """Whether all terms are numbers of the format."""
    return terms.precision <= fmt.precision and terms.lowest >= _lowest(fmt) and terms.highest <= fmt.emax


def _products_do(a: FloatFormat, b: FloatFormat, accumulator: FloatFormat) -> bool:
    """Whether a product rounded to float32, if it is not exact there, still rounds to the same accumulator code."""
    bits = a.precision + b.precision
    exact = _lowest(a) + _lowest(b) >= _lowest(FP32)
    lost = _lowest(accumulator) - 1 >= FP32.emin  # what float32 cannot hold is less than half a quantum
    # 16 bits and at least half of BF16's quantum, 2**-134: a multiple of float32's 2**-149; below that, it is lost
    short = bits <= 16 and _lowest(accumulator) >= _lowest(BF16)
    return bits <= FP32.precision and (exact or lost or short)


def _exact_products(leaf: ProductLeaf, terms: Terms) -> bool:
    """Whether terms enter as they are: they are not rounded, or their rounding changes none."""
    fmt = leaf.product
    return terms.b is None or fmt is None or (_holds(fmt, terms) and fmt.has_signed_zero)


def _innocuous(fmt: FloatFormat, terms: Terms, direction: int, exact: bool, adds_products: bool) -> bool:
    """Whether products and sums may be rounded to float32 first."""
    if direction != steps.TIES_TO_EVEN:  # one direction after the other on nested grids
        return not exact or _holds(FP32, terms) or adds_products
    if 2 * fmt.precision + 2 > FP32.precision:
        return False
    if exact:
        return _holds(FP32, terms) and terms.precision <= fmt.precision
    assert terms.b is not None
    return _products_do(terms.a, terms.b, fmt)


def leaf_kernel(leaf: Leaf, terms: Terms, attributes: Attributes, product_attributes: Attributes) -> FastLeaf | None:
    """The kernel that sums a leaf in float32, or in the accumulator's own format if that is FP64; or None."""
    if not isinstance(leaf, ProductLeaf) or type(leaf) not in _LOOPS or attributes.daz or attributes.ftz:
        return None
    fmt, direction = leaf.format, _DIRECTIONS.get(attributes.rounding)
    exact = _exact_products(leaf, terms)
    if direction is None or not (exact or (leaf.product == fmt and product_attributes == attributes)):
        return None
    carrier = FP64 if fmt == FP64 else FP32
    factors = [factor for factor in terms if factor is not None]
    if not all(_embeds(factor, carrier) for factor in factors):
        return None
    found = _tiled(_LOOPS[type(leaf)], fmt, terms, factors, attributes, direction, exact)
    return None if found is None else FastLeaf(carrier, found)


_LOOPS = {Sequential: loops.in_order, Pairwise: loops.in_tree}


def _tiled(
    loop: Any, fmt: FloatFormat, terms: Terms, factors: list[FloatFormat], how: Attributes, direction: int, exact: bool
) -> Tiled | None:
    enters = steps.EXACT if exact else steps.ROUNDED
    ieee = how.overflow is Overflow.INFINITY
    adds_products = loop is loops.in_order and machine.has_fma()  # in one rounding, whatever they are
    if fmt in (FP32, FP64) and ieee:
        fused = exact and not _holds(fmt, terms)
        if fused and not adds_products:
            return None
        scratch, dtype = (loops.SINGLE, np.float32) if fmt == FP32 else (loops.DOUBLE, np.float64)
        kernel = loop(steps.PLAIN, steps.EXACT if fused else steps.ROUNDED, scratch)
        return Tiled(kernel, direction, _NO_GRID, np.dtype(dtype))
    if (
        fmt == FP16
        and ieee
        and machine.has_half_arithmetic()
        and all(_embeds(factor, FP16) for factor in factors)
        and (not exact or adds_products or _holds(FP16, terms))
    ):
        return Tiled(loop(steps.PLAIN, enters, loops.HALF), direction, _NO_GRID, np.dtype(np.uint16))
    if not _innocuous(fmt, terms, direction, exact, adds_products):
        return None
    if fmt == BF16 and ieee:
        complete = Tiled(loop(steps.BFLOAT, enters), direction, _bfloat_row(direction))
    elif _embeds(fmt, FP32) and fmt.emax + 1 + FP32.trailing_bits - fmt.trailing_bits <= FP32.emax:
        if not ieee and terms.highest + 1 >= FP32.emax:
            return None  # what saturates must not be infinite before
        complete = Tiled(loop(steps.NARROW, enters), direction, _narrow_row(fmt, how))
    else:
        return None
    style = {steps.TIES_TO_EVEN: steps.NEAREST, steps.TOWARD_ZERO: steps.INWARD}.get(direction, steps.UPWARD)
    row = _quick_row(fmt, style, direction, how)
    if row is None or (
        exact
        and style == steps.UPWARD
        and loop is loops.in_tree
        and terms.highest + 1 + math.frexp(float(row.view(np.float32)[steps.SCALE]))[1] > FP32.emax
    ):
        return complete
    shares = fmt == BF16 and style == steps.INWARD  # in BF16, subnormals lose the same bits of the code
    if exact:
        kind = steps.EXACT_CLAMPED if terms.lowest < _lowest(fmt) and not shares else steps.EXACT
    elif shares or (fmt == BF16 and all(factor.precision <= fmt.precision for factor in factors)):
        kind = steps.ROUNDED
    else:
        kind = steps.CLAMPED
    if fmt == BF16 and style == steps.NEAREST and not exact and loop is loops.in_order:
        wide = _quick_row(fmt, style, direction, how, _WIDE_SHIFT)
        assert wide is not None
        if kind == steps.ROUNDED:
            complete = Tiled(loop(style, steps.WIDE), direction, wide, complete=complete)
    hardware = steps.TOWARD_POSITIVE if style == steps.UPWARD else direction
    return Tiled(loop(style, kind), hardware, row, complete=complete)
