"""Matrix products under test: the operands, the description of the sums, and products of single elements."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from floatsim._warnings import FloatsimWarning
from floatsim.accumulation import Accumulation, AccumulationLike, as_accumulation
from floatsim.arrays.array.conversion import as_float_array
from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.sums.products import matmul
from floatsim.formats import FloatFormat, FormatLike, as_format

__all__ = ["Product", "product_of"]


@dataclass(frozen=True)
class Product:
    """The matrix product a @ b + c with a description of its sums.

    Attributes
    ----------
    a, b : FloatArray, (..., M, K) and (..., K, N)
    c : FloatArray or None
        Broadcast to the shape of the result.
    accumulate : Accumulation
    format : FloatFormat or None
        The format of the result; None for the accumulator's.
    options : dict
        The other keywords of `fs.matmul`.
    """

    a: FloatArray
    b: FloatArray
    c: FloatArray | None
    accumulate: Accumulation
    format: FloatFormat | None = None
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def k(self) -> int:
        """The number of terms."""
        return self.a.shape[-1]

    def result(self, accumulate: AccumulationLike | None = None, format: FormatLike | None = None) -> FloatArray:
        """Return the emulated product, by default with the description and the format of this one."""
        chosen = self.accumulate if accumulate is None else accumulate
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FloatsimWarning)
            found = matmul(
                self.a, self.b, self.c, accumulate=chosen, format=self.format if format is None else format,
                **self.options,
            )  # fmt: skip
        return as_float_array(found, "the result")

    @property
    def scales(self) -> dict[str, FloatArray]:
        """The block scales among the options: scale_a, one line for each row of a, and scale_b, for columns of b."""
        given = {name: self.options.get(name) for name in ("scale_a", "scale_b")}
        return {name: as_float_array(scales, name) for name, scales in given.items() if scales is not None}

    def takes(self, description: AccumulationLike) -> bool:
        """Return whether a description takes these operands and options, such as scales."""
        try:
            self.part([0], [0]).result(description)
        except (TypeError, ValueError):
            return False
        return True

    def part(self, rows: Any, columns: Any) -> Product:
        """Return the product of some rows of a and some columns of b, without the leading axes."""
        c = None if self.c is None else self._addend()[rows][:, columns]
        return self._with(lambda x: x[rows], lambda x: x[:, columns], c)

    def elements(self, rows: Any, columns: Any) -> Product:
        """Return single elements of the product as a stack of 1 x 1 products."""
        c = None if self.c is None else self._addend()[rows, columns].reshape(-1, 1, 1)
        return self._with(lambda x: x[rows][:, np.newaxis, :], lambda x: x.T[columns][:, :, np.newaxis], c)

    def _with(self, left: Callable[[Any], Any], right: Callable[[Any], Any], c: FloatArray | None) -> Product:
        """Return the product with parts of the codes of a and of b, and with their scales."""

        def part(x: FloatArray, of: Callable[[Any], Any]) -> FloatArray:
            return FloatArray(np.ascontiguousarray(of(_matrix(x))), x.format)

        scales = {name: part(x, left if name == "scale_a" else right) for name, x in self.scales.items()}
        return replace(self, a=part(self.a, left), b=part(self.b, right), c=c, options=self.options | scales)

    def _addend(self) -> FloatArray:
        assert self.c is not None
        shape = (_matrix(self.a).shape[0], _matrix(self.b).shape[1])
        codes = np.broadcast_to(self.c.codes, (*self.c.shape[:-2], *shape))
        return FloatArray(codes.reshape(-1, *shape)[0], self.c.format)


def _matrix(x: FloatArray) -> Any:
    """Return the codes of the first matrix of a stack."""
    return x.codes[(0,) * (x.ndim - 2)]


def product_of(
    a: Any, b: Any, c: Any, accumulate: AccumulationLike, format: FormatLike | None = None,
    options: dict[str, Any] | None = None,
) -> Product:  # fmt: skip
    """Return the product of these operands. a and b are matrices, or stacks of matrices.

    Raises
    ------
    ValueError
        If a or b is no matrix, or their inner lengths differ.
    """
    for name, given in (("a", a), ("b", b)):
        if isinstance(given, np.ndarray) and given.dtype.kind == "u":  # format= is that of the result
            raise TypeError(f"{name} has dtype {given.dtype}: it holds codes, not numbers; name their format, as in "
                            f"fs.from_codes({name}, 'e4m3')")  # fmt: skip
    left, right = as_float_array(a, "a"), as_float_array(b, "b")
    for name, x in (("a", left), ("b", right)):
        if x.ndim < 2:
            raise ValueError(f"{name} must be a matrix or a stack of matrices, but its shape is {x.shape}")
    if left.shape[-1] != right.shape[-2]:
        raise ValueError(f"a has {left.shape[-1]} columns, b has {right.shape[-2]} rows: {left.shape} @ {right.shape}")
    start = None if c is None else as_float_array(c, "c")
    if start is not None and start.ndim < 2:
        start = FloatArray(start.codes.reshape((1,) * (2 - start.ndim) + start.shape), start.format)
    fmt = None if format is None else as_format(format)
    return Product(left, right, start, as_accumulation(accumulate), fmt, options or {})
