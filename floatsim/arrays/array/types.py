"""Static types of the public functions: their operands, and markers of their results.

Most results depend on the operands and on `return_flags`. The signature of a function has a marker as its return type.
`tools/write_stubs.py` expands the marker to overloads, in `floatsim/__init__.pyi`.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypedDict, TypeVar

import numpy as np
from numpy.typing import NDArray

from floatsim.accumulation import AccumulationLike
from floatsim.arrays.call.options import BackendName
from floatsim.arrays.call.random_stream import SeedLike
from floatsim.formats import FormatLike
from floatsim.formats.rounding import OverflowLike, RoundingLike, TininessLike

if TYPE_CHECKING:
    from floatsim.arrays.array.float_array import FloatArray

__all__ = [
    "Axes", "BoolOut", "BoolResult", "CodeOut", "CodeResult", "Flags", "Float64Out", "Float64Result",
    "FloatArrayResult", "FloatResult", "Floats", "ForeignArray", "HasArray", "HasDLPack", "Int32Result",
    "IntegerResult", "Integers", "Lists", "MethodKeywords", "NanRule", "Number", "Out", "SameKindResult", "Scalar",
    "Summation",
    "SummationKeywords", "UInt8Result", "UInt64Result", "Values",
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

NanRule: TypeAlias = Literal["canonical", "ml_dtypes", "cuda"]
"""The code of a NaN that a conversion returns."""

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


# -- the keywords of reductions ----------------------------------------------------------------------------------------


class SummationKeywords(TypedDict, total=False):
    """The options of a reduction on which the kind of its result does not depend. `Summation` documents them."""

    rounding: RoundingLike | None
    overflow: OverflowLike | None
    result_rounding: RoundingLike | None
    daz: bool | None
    ftz: bool | None
    tininess: TininessLike | None
    seed: SeedLike | None
    random_bits: int | None
    backend: BackendName | None


class Summation(SummationKeywords, total=False):
    """The keywords of every reduction.

    accumulate : description, format or text, optional
        How the sum is carried out (`floatsim.accumulation`); a format is short for its Sequential. Default:
        Sequential(FP64) for FP64 input, else Sequential(FP32).
    format : format, optional
        The result's; one more rounding if it is not the accumulator's, which is the default.
    rounding : Rounding or str, optional
        Of each rounding inside whose description names none: "ties_to_even" ("RNE"), "ties_to_away" ("RNA"),
        "toward_zero" ("RTZ"), "toward_positive" ("RTP"), "toward_negative" ("RTN"), "to_odd" ("RTO"), "stochastic"
        ("SR"). Default of this keyword and of the next five: the context's (`fs.context`).
    daz, ftz : bool, optional
        Read subnormal operands as zeros; return zero for tiny results.
    tininess : Tininess or str, optional
        When a result counts as tiny: "after" or "before" rounding.
    seed : int, generator or RandomStream, optional
        The seed of stochastic rounding. An integer repeats the same draws at each call, a `fs.RandomStream` draws new
        ones.
    random_bits : int, optional
        The random bits of a stochastic rounding, 1 to 64.
    overflow, result_rounding : optional
        Of the last rounding, to the result's format, alone: "infinity", "saturate_finite" or "saturate_propagate"; a
        rounding mode, by default `rounding`. Inside, descriptions have an overflow of their own.
    out : FloatArray or ndarray, optional
        Where to write the result.
    backend : str, optional
        "emulator", "hardware" or "native-cpu". Default: the context's.
    """

    accumulate: AccumulationLike | None
    format: FormatLike | None
    out: Out


class MethodKeywords(Summation, total=False):
    """The keywords of the reductions that are methods of `FloatArray`."""

    keepdims: bool
    where: Any
    initial: Any
    ddof: int


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
