"""Mutations: wrong results of a matrix product, as common bugs make them.

Each mutation takes a product and its correct result, and returns the wrong result in the same format, or None where it
does not apply. Unless its name says otherwise, a mutation changes as little as the bug would.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from floatsim.accumulation import Accumulation, Composite, Leaf, SplitK, leaves
from floatsim.accumulation.partition import is_dealt
from floatsim.arrays.array.conversion import convert
from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.elementwise.arithmetic import add
from floatsim.formats import FP16, FP32, FloatFormat
from floatsim.testing.compare.product import Product

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["MUTATIONS", "Mutation"]

_TILE = 32  # the length of a K tile and of a tile of the result


@dataclass(frozen=True)
class Mutation:
    """A bug.

    Attributes
    ----------
    name : str
        The bug in words.
    apply : callable
        The function that takes a product and its correct result, and returns the wrong result, or None.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.testing.MUTATIONS[0].name
    'the output is zero'
    """

    name: str
    apply: Callable[[Product, FloatArray], FloatArray | None]


def _like(codes: NDArray[Any], result: FloatArray) -> FloatArray:
    return FloatArray(np.ascontiguousarray(codes), result.format)


def _converted(x: FloatArray, fmt: FloatFormat) -> FloatArray:
    converted: FloatArray = convert(x, fmt)
    return converted


def _computed(product: Product, result: FloatArray, **changes: Any) -> FloatArray:
    return replace(product, **changes).result(format=result.format)


def _zeroed(product: Product, result: FloatArray) -> FloatArray:
    return _like(np.zeros_like(result.codes), result)


def _tile_not_written(product: Product, result: FloatArray) -> FloatArray:
    codes = result.codes.copy()
    codes[..., -_TILE:, -_TILE:] = 0
    return _like(codes, result)


def _one_bit(product: Product, result: FloatArray) -> FloatArray:
    codes = result.codes.copy()
    codes.reshape(-1)[codes.size // 2] ^= codes.dtype.type(1)
    return _like(codes, result)


def _cut(product: Product, first: int, stop: int) -> FloatArray:
    codes = product.a.codes.copy()
    codes[..., first:stop] = 0
    return FloatArray(codes, product.a.format)


def _last_tile(product: Product, result: FloatArray) -> FloatArray | None:
    if product.k < 2:
        return None
    start = max(1, (product.k - 1) // _TILE * _TILE)
    return _computed(product, result, a=_cut(product, start, product.k))


def _one_product(product: Product, result: FloatArray) -> FloatArray:
    return _computed(product, result, a=_cut(product, product.k // 2, product.k // 2 + 1))


def _neighbouring_k(product: Product, result: FloatArray) -> FloatArray | None:
    if product.k < 2:
        return None
    codes, k = product.a.codes.copy(), product.k // 2
    codes[..., k] = product.a.codes[..., k - 1]
    return _computed(product, result, a=FloatArray(codes, product.a.format))


def _in_format(accumulation: Accumulation, fmt: FloatFormat) -> Accumulation | None:
    """Return a description with another accumulator, or None if it has none."""
    described: Any = accumulation
    if isinstance(accumulation, Composite):
        inner, outer = _in_format(accumulation.inner, fmt), _in_format(accumulation.outer, fmt)
        replaced: Accumulation = replace(
            described, inner=inner or accumulation.inner, outer=outer or accumulation.outer
        )
        return replaced
    if not isinstance(accumulation, Leaf):
        return None
    changes: dict[str, Any] = {"format": fmt}
    if getattr(accumulation, "product", None) is not None:
        changes["product"] = fmt
    narrow: Accumulation = replace(described, **changes)
    return narrow


def _narrow_accumulator(product: Product, result: FloatArray) -> FloatArray | None:
    if all(leaf.format == FP16 for leaf in leaves(product.accumulate)):
        return None
    return product.result(_in_format(product.accumulate, FP16), result.format)


def _halves(product: Product) -> list[Product]:
    cut = max(1, -(-product.k // 2))
    sides = []
    for part in (slice(0, cut), slice(cut, product.k)):
        a = FloatArray(np.ascontiguousarray(product.a.codes[..., part]), product.a.format)
        b = FloatArray(np.ascontiguousarray(product.b.codes[..., part, :]), product.b.format)
        sides.append(replace(product, a=a, b=b, c=product.c if part.start == 0 else None))
    return sides


def _narrow_workspace(product: Product, result: FloatArray) -> FloatArray | None:
    if product.k < 2 or product.options.keys() & {"scale_a", "scale_b"}:
        return None
    parts = [convert(half.result(format=FP32), FP16) for half in _halves(product)]
    return _converted(add(*parts, format=FP32), result.format)


def _reversed_split(product: Product, result: FloatArray) -> FloatArray | None:
    if product.k < 3 or product.options.keys() & {"scale_a", "scale_b"} or not leaves(product.accumulate):
        return None
    consecutive = isinstance(product.accumulate, SplitK) and not is_dealt(product.accumulate)
    order = _parts_reversed(product) if consecutive else np.arange(product.k)[::-1]
    a = FloatArray(np.ascontiguousarray(product.a.codes[..., order]), product.a.format)
    b = FloatArray(np.ascontiguousarray(product.b.codes[..., order, :]), product.b.format)
    return _computed(product, result, a=a, b=b)


def _parts_reversed(product: Product) -> NDArray[np.intp]:
    assert isinstance(product.accumulate, SplitK)
    length = max(1, -(-product.k // product.accumulate.parts))
    starts = range(0, product.k, length)
    return np.concatenate([np.arange(start, min(start + length, product.k)) for start in reversed(starts)])


def _truncated(product: Product, result: FloatArray) -> FloatArray:
    return _computed(product, result, options={**product.options, "result_rounding": "toward_zero"})


def _twice_rounded(product: Product, result: FloatArray) -> FloatArray | None:
    source, bits = product.accumulate.result_format, result.format.trailing_bits + 2
    if source.trailing_bits <= bits:
        return None
    between = FloatFormat.ieee(source.exponent_bits, bits)
    return _converted(convert(product.result(format=source), between), result.format)


def _other_overflow(product: Product, result: FloatArray) -> FloatArray:
    saturates = str(product.options.get("overflow", "infinity")).lower() not in ("infinity", "overflow.infinity")
    policy = "infinity" if saturates else "saturate_finite"
    return _computed(product, result, options={**product.options, "overflow": policy})


def _stale(product: Product, result: FloatArray) -> FloatArray | None:
    if product.accumulate.result_format != result.format and product.c is not None:
        return None
    before = np.zeros_like(result.codes)
    before[..., -_TILE:, -_TILE:] = np.roll(result.codes, 1, axis=-1)[..., -_TILE:, -_TILE:]
    return _converted(add(result, _like(before, result), format=FP32), result.format)


def _swapped_scales(product: Product, result: FloatArray) -> FloatArray | None:
    options = dict(product.options)
    if options.get("scale_a") is None or np.shape(options["scale_a"])[-1] < 2:
        return None
    scales = options["scale_a"]
    options["scale_a"] = scales[..., ::-1]
    return _computed(product, result, options=options)


def _next_block(product: Product, result: FloatArray) -> FloatArray | None:
    if product.a.shape[-2] < 2:
        return None
    codes = product.a.codes.copy()
    codes[..., -_TILE:, :] = np.roll(product.a.codes, 1, axis=-2)[..., -_TILE:, :]
    return _computed(product, result, a=FloatArray(codes, product.a.format))


MUTATIONS = (
    Mutation("the output is zero", _zeroed),
    Mutation("one tile of the output is not written", _tile_not_written),
    Mutation("the last K tile is dropped", _last_tile),
    Mutation("one product is dropped", _one_product),
    Mutation("one k of a is read from its neighbour", _neighbouring_k),
    Mutation("a block of rows is off by one", _next_block),
    Mutation("the accumulator is stale in one tile", _stale),
    Mutation("the scales of a are swapped", _swapped_scales),
    Mutation("the accumulator is FP16", _narrow_accumulator),
    Mutation("split-K partial sums are FP16", _narrow_workspace),
    Mutation("the order of the parts is reversed", _reversed_split),
    Mutation("the result is truncated", _truncated),
    Mutation("the result is rounded twice", _twice_rounded),
    Mutation("saturation is missing, or not asked for", _other_overflow),
    Mutation("one bit of one element is flipped", _one_bit),
)
"""The bugs, the coarsest first.

>>> import floatsim as fs
>>> [mutation.name for mutation in fs.testing.MUTATIONS[:2]]
['the output is zero', 'one tile of the output is not written']
"""
