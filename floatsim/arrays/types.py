"""Static types of the public functions: their operands, and markers of their results.

Most results depend on the operands and on `return_flags`. The signature of a function has a marker as its return type.
`tools/write_stubs.py` expands the marker to overloads, in `floatsim/__init__.pyi`.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from floatsim.arrays.float_array import FloatArray

__all__ = [
    "Axes", "BoolOut", "BoolResult", "CodeOut", "CodeResult", "Flags", "Float64Out", "Float64Result",
    "FloatArrayResult", "FloatResult", "Floats", "ForeignArray", "HasArray", "HasDLPack", "Int32Result",
    "IntegerResult", "Integers", "Lists", "Number", "Out", "SameKindResult", "Scalar", "UInt8Result", "UInt64Result",
    "Values",
]  # fmt: skip


# -- operands ----------------------------------------------------------------------------------------------------------


T_co = TypeVar("T_co", covariant=True)


class Lists(Protocol[T_co]):
    """Lists and tuples of any depth. A text is none of them: its `__contains__` does not take every object."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> T_co | Lists[T_co]: ...
    def __contains__(self, item: object, /) -> bool: ...
    def __iter__(self, /) -> Iterator[T_co | Lists[T_co]]: ...
    def __reversed__(self, /) -> Iterator[T_co | Lists[T_co]]: ...


class HasArray(Protocol):
    """An array of another library that NumPy can read."""

    def __array__(self, *args: Any, **kwargs: Any) -> Any: ...


class HasDLPack(Protocol):
    """An array of another library with a DLPack interface."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...


ForeignArray: TypeAlias = HasArray | HasDLPack

Scalar: TypeAlias = float | np.generic
"""One number: a Python or a NumPy scalar. For a type checker, int is a float."""

Number: TypeAlias = float | np.generic | str | Fraction | Decimal
"""One number, also a text or a fraction."""

Floats: TypeAlias = "FloatArray | NDArray[Any] | Scalar | ForeignArray | Lists[Scalar | NDArray[Any]]"
"""An operand: floats with a format of their own, or Python numbers."""

Values: TypeAlias = "FloatArray | NDArray[Any] | Number | ForeignArray | Lists[Number | NDArray[Any]]"
"""An input of a conversion: floats, integers, texts and fractions."""

Integers: TypeAlias = "NDArray[np.integer[Any]] | np.integer[Any] | int | ForeignArray | Lists[int | np.integer[Any]]"
"""Integers, and lists of integers."""

Out: TypeAlias = "FloatArray | NDArray[Any] | None"
"""An array that receives a result, or None."""
BoolOut: TypeAlias = NDArray[np.bool_] | None
CodeOut: TypeAlias = NDArray[np.unsignedinteger[Any]] | None
Float64Out: TypeAlias = NDArray[np.float64] | None

Axes: TypeAlias = "int | tuple[int, ...] | None"
"""The axes of a reduction; None means all."""

if TYPE_CHECKING:

    class FloatOperators:
        """The operators of a FloatArray, for type checkers. NumPy's mixin has no types."""

        __hash__ = None  # type: ignore[assignment]

        def __add__(self, other: Floats) -> FloatArray: ...
        def __radd__(self, other: Floats) -> FloatArray: ...
        def __sub__(self, other: Floats) -> FloatArray: ...
        def __rsub__(self, other: Floats) -> FloatArray: ...
        def __mul__(self, other: Floats) -> FloatArray: ...
        def __rmul__(self, other: Floats) -> FloatArray: ...
        def __truediv__(self, other: Floats) -> FloatArray: ...
        def __rtruediv__(self, other: Floats) -> FloatArray: ...
        def __mod__(self, other: Floats) -> FloatArray: ...
        def __rmod__(self, other: Floats) -> FloatArray: ...
        def __matmul__(self, other: Floats) -> FloatArray: ...
        def __rmatmul__(self, other: Floats) -> FloatArray: ...
        def __pow__(self, other: Floats) -> FloatArray: ...
        def __rpow__(self, other: Floats) -> FloatArray: ...
        def __neg__(self) -> FloatArray: ...
        def __pos__(self) -> FloatArray: ...
        def __abs__(self) -> FloatArray: ...
        def __eq__(self, other: Floats) -> NDArray[np.bool_]: ...  # type: ignore[override]
        def __ne__(self, other: Floats) -> NDArray[np.bool_]: ...  # type: ignore[override]
        def __lt__(self, other: Floats) -> NDArray[np.bool_]: ...
        def __le__(self, other: Floats) -> NDArray[np.bool_]: ...
        def __gt__(self, other: Floats) -> NDArray[np.bool_]: ...
        def __ge__(self, other: Floats) -> NDArray[np.bool_]: ...


# -- results -----------------------------------------------------------------------------------------------------------

Flags: TypeAlias = NDArray[np.uint8]
"""The exception flags of each element."""

FloatResult: TypeAlias = Any
"""A FloatArray if an operand is one; an ndarray for ndarrays, if the format of the result has a dtype."""
SameKindResult: TypeAlias = Any
"""A FloatArray for a FloatArray, an ndarray for an ndarray."""
FloatArrayResult: TypeAlias = Any
"""A FloatArray."""
CodeResult: TypeAlias = Any
"""An array of unsigned integers."""
IntegerResult: TypeAlias = Any
"""An array of integers."""
Int32Result: TypeAlias = Any
"""An array of int32."""
UInt8Result: TypeAlias = Any
"""An array of uint8."""
UInt64Result: TypeAlias = Any
"""An array of uint64."""
Float64Result: TypeAlias = Any
"""An array of float64."""
BoolResult: TypeAlias = Any
"""An array of bool."""
