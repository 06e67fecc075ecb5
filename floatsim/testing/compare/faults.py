"""Faults of matrix products: products of some k that are missing, repeated or read from a neighbour.

The error of each mismatch is compared with the products of its row and column in float64. A candidate is reported only
if the emulated product with this fault has the bits of `actual` in all rows that have a mismatch and, within these, in
all columns that have one: also in the elements there that are no mismatches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from floatsim.arrays.array.float_array import FloatArray
from floatsim.testing.compare.product import Product

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["explain_product"]

_EXAMINED = 64  # mismatches, spread over the result: 64 x K numbers for each kind of fault
_TILES = (4, 8, 16, 32, 64, 128)
_BEST = 3  # candidates of a kind that are emulated


@dataclass(frozen=True)
class _Fault:
    """A fault in words, and for each k the one that is read from a and from b; -1 where the product is missing."""

    text: str
    a: NDArray[np.int64]
    b: NDArray[np.int64]

    def applied(self, product: Product) -> Product:
        """Return the product that a kernel with this fault computes."""
        a, b = (np.ascontiguousarray(x) for x in (product.a.codes[..., self.a], product.b.codes[..., self.b, :]))
        a[..., self.a < 0] = 0
        return replace(product, a=FloatArray(a, product.a.format), b=FloatArray(b, product.b.format))


def explain_product(product: Product, actual: FloatArray, differs: NDArray[np.bool_]) -> str | None:
    """Return the fault that explains the mismatches of a product, or None.

    >>> import numpy as np
    >>> import floatsim as fs
    >>> from floatsim.testing.compare.product import product_of
    >>> rng = np.random.default_rng(0)
    >>> a, b = fs.array(rng.standard_normal((4, 32)), "bf16"), fs.array(rng.standard_normal((32, 4)), "bf16")
    >>> cut = a.copy()
    >>> cut[:, 7] = 0
    >>> actual = fs.matmul(cut, b, accumulate="fp32")
    >>> product = product_of(a, b, None, "fp32")
    >>> explain_product(product, actual, actual.codes != product.result().codes)
    'the product of k = 7 is missing'
    """
    if differs.ndim < 2 or product.scales:  # a fault in k would need other scales, too
        return None
    stack = differs.reshape(-1, *differs.shape[-2:])
    if len(stack) != 1:
        return None
    places = np.argwhere(stack[0])
    rows, columns = places[np.linspace(0, len(places) - 1, min(len(places), _EXAMINED)).astype(int)].T
    elements = product.elements(rows, columns)
    got = FloatArray(actual.codes.reshape(stack.shape)[0][rows, columns], actual.format)
    fmt = actual.format
    desired = elements.result(format=fmt)
    with np.errstate(all="ignore"):
        errors = np.asarray(got.values) - np.asarray(desired.values).ravel()
        terms = np.asarray(elements.a.values)[:, 0, :] * np.asarray(elements.b.values)[:, :, 0]
    if not np.isfinite(errors).all() or not np.isfinite(terms).all():
        return None
    for fault in _faults(elements, terms, errors):
        if not np.array_equal(fault.applied(elements).result(format=fmt).codes.ravel(), got.codes):
            continue
        region = np.flatnonzero(stack[0].any(axis=1)), np.flatnonzero(stack[0].any(axis=0))
        whole = fault.applied(product.part(*region)).result(format=fmt)
        if np.array_equal(whole.codes, actual.codes.reshape(stack.shape)[0][np.ix_(*region)]):
            return fault.text
    return None


def _faults(elements: Product, terms: NDArray[np.float64], errors: NDArray[np.float64]) -> Iterator[_Fault]:
    """Yield the faults whose errors are nearest to the errors, kind by kind."""
    k = elements.k

    def nearest(expected: NDArray[np.float64]) -> list[int]:
        distances = np.abs(expected - errors[:, np.newaxis]).max(axis=0)
        return [int(n) for n in np.argsort(distances, kind="stable")[:_BEST]]

    def aligned(ends: list[int]) -> list[int]:
        """Return the multiples of a larger power of two first: products beside the end of a tile may be zeros."""
        return sorted(ends, key=lambda n: -(n & -n))

    def without(first: int, stop: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        read = np.arange(k)
        cut = np.where((read >= first) & (read < stop), -1, read)
        return cut, read

    for n in nearest(-terms):
        yield _Fault(f"the product of k = {n} is missing", *without(n, n + 1))
    sums = np.cumsum(np.concatenate([np.zeros((len(terms), 1)), terms], axis=1), axis=1)
    ends = nearest(sums[:, :k] - sums[:, -1:])
    for n in aligned([n for n in ends if n > 0]):  # without all products the result is not written
        yield _Fault(f"the products from k = {n} on are missing: the last {k - n} of {k}", *without(n, k))
    for n in aligned([n + 1 for n in nearest(-sums[:, 1:]) if n + 1 < k]):
        yield _Fault(f"the first {n} of {k} products are missing", *without(0, n))
    for t in (t for t in _TILES if t < k):
        starts = np.arange(0, k, t)
        stops = np.minimum(starts + t, k)
        for n in nearest(sums[:, starts] - sums[:, stops])[:1]:
            first, stop = int(starts[n]), int(stops[n])
            yield _Fault(f"the products k = {first} to {stop - 1} are missing: a tile of {t}", *without(first, stop))
    yield from _misread(elements, terms, errors, nearest)


def _misread(
    elements: Product, terms: NDArray[np.float64], errors: NDArray[np.float64], nearest: Any
) -> Iterator[_Fault]:
    """Yield the faults in which one k of an operand is read from its neighbour."""
    left, right = np.asarray(elements.a.values)[:, 0, :], np.asarray(elements.b.values)[:, :, 0]
    k = elements.k
    for step in (1, -1):
        inside = np.arange(max(0, -step), k - max(0, step))
        if not inside.size:
            continue
        for n in nearest(left[:, inside + step] * right[:, inside] - terms[:, inside])[:1]:
            at, moved = int(inside[n]), np.arange(k)
            moved[at] = at + step
            yield _Fault(f"k = {at} of a is read from k = {at + step}", moved, np.arange(k))
        for n in nearest(left[:, inside] * right[:, inside + step] - terms[:, inside])[:1]:
            at, moved = int(inside[n]), np.arange(k)
            moved[at] = at + step
            yield _Fault(f"k = {at} of b is read from k = {at + step}", np.arange(k), moved)
