"""NumPy's functions on FloatArrays: they select, order, compare and count elements. Others have errors with advice.

These functions round nothing. They compare the values of the elements, exactly, and move codes. They read subnormals as
they are: `daz` and `ftz` of the context have no effect. -0 equals +0, except that `max` and `min` order -0 below +0, as
`fs.maximum` and `fs.minimum` do. NaNs are ordered last, as in NumPy; the NaN of FNUZ formats is a NaN like all others.

Functions that round (`clip` of a bound, `round`, `diff`, `outer`, `einsum`) call the floatsim functions.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from floatsim.arrays.array.advisories import warn_of_rounded_number
from floatsim.arrays.array.conversion import encode, operand_codes, read_floats
from floatsim.arrays.array.float_array import FloatArray, implements
from floatsim.arrays.array.operands import deliver
from floatsim.arrays.elementwise.arithmetic import copysign, divide, maximum, minimum, multiply, rint, subtract
from floatsim.arrays.sums.einsum import einsum
from floatsim.formats import FloatFormat
from floatsim.formats.rounding import Overflow

__all__: list[str] = []

Axis: TypeAlias = "int | tuple[int, ...] | None"


def _values(x: Any, argument: str) -> Any:
    """Return the values of an operand as float64, exactly. Python numbers are not rounded to a format."""
    if isinstance(x, FloatArray):
        return x.values
    if isinstance(x, np.ndarray | np.generic) and x.dtype.isbuiltin == 2:  # a dtype of ml_dtypes
        codes, fmt, _ = read_floats(x, argument)
        return FloatArray(codes, fmt).values
    return x


def _like(codes: Any, x: FloatArray) -> FloatArray:
    return FloatArray(np.asarray(codes), x.format)


def _array(x: Any, argument: str, function: str) -> FloatArray:
    """Return an argument that must be a FloatArray: NumPy calls a function here if any argument is one."""
    if not isinstance(x, FloatArray):
        raise TypeError(f"np.{function}: {argument} must be a FloatArray if another argument is one")
    return x


def _into(out: Any, result: FloatArray) -> FloatArray:
    if out is None:
        return result
    if not isinstance(out, FloatArray):
        raise TypeError(f"out must be a FloatArray, not {type(out).__name__}")
    deliver(result.codes, result.format, True, out)
    return out


# -- extremes ----------------------------------------------------------------------------------------------------------


def _ranks(x: FloatArray) -> NDArray[np.int64]:
    """Return integers in the order of the values, with -0 below +0 and every NaN above all numbers."""
    bits = x.values.view(np.int64)  # every NaN of these values is the canonical one
    return np.asarray(bits ^ ((bits >> 63) & np.int64(np.iinfo(np.int64).max)))


def _merged(axes: tuple[int, ...], x: Any) -> Any:
    """Return a view or copy of x in which the axes are the last one, in C order."""
    kept = [i for i in range(x.ndim) if i not in axes]
    length = x.shape.__getitem__
    return x.transpose(*kept, *axes).reshape(*map(length, kept), math.prod(map(length, axes)))


def _extreme_codes(codes: NDArray[Any], fmt: FloatFormat, sign: int) -> NDArray[Any] | None:
    """Return the largest (sign 1) or smallest codes along the last axis, or None for formats with unused or odd codes.

    Codes as signed integers have the order of the values, once the magnitude bits of negative ones are inverted.
    """
    if fmt.bits != 8 * codes.dtype.itemsize or not fmt.has_signed_zero:
        return None
    signed = codes.view(codes.dtype.str.replace("u", "i"))
    ranks = signed >> (fmt.bits - 1)
    ranks &= ranks.dtype.type(fmt.magnitude_mask)
    ranks ^= signed
    found = ranks.max(axis=-1, keepdims=True) if sign > 0 else ranks.min(axis=-1, keepdims=True)
    found ^= (found >> (fmt.bits - 1)) & found.dtype.type(fmt.magnitude_mask)
    extreme = found.view(codes.dtype)
    if fmt.canonical_nan is not None:  # NaNs have the largest magnitudes
        largest = fmt.max_code if fmt.infinity_code is None else fmt.infinity_code
        magnitudes = np.bitwise_and(codes, codes.dtype.type(fmt.magnitude_mask), out=ranks.view(codes.dtype))
        extreme[magnitudes.max(axis=-1, keepdims=True) > largest] = fmt.canonical_nan
    return np.asarray(extreme[..., 0])


def _extreme(name: str, sign: int, skips_nan: bool) -> Callable[..., Any]:
    """Return np.max (sign 1) or np.min (sign -1), or their form that skips NaNs."""

    def extreme(
        a: FloatArray,
        axis: Axis = None,
        out: Any = None,
        keepdims: bool = False,
        initial: Any = None,
        where: Any = True,
    ) -> FloatArray:
        a = _array(a, "a", name)
        given = tuple(range(a.ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
        axes = np.lib.array_utils.normalize_axis_tuple(given, a.ndim, "axis")
        found = None
        if initial is None and where is True and not skips_nan and a.size:
            found = _extreme_codes(np.atleast_1d(_merged(axes, a.codes)), a.format, sign)
        if found is None:
            found = search(a, axes, initial, where)
        if keepdims:
            found = found.reshape([1 if i in axes else n for i, n in enumerate(a.shape)])
        return _into(out, _like(found, a))

    def search(a: FloatArray, axes: tuple[int, ...], initial: Any, where: Any) -> NDArray[Any]:
        """Return the codes of the extreme elements."""
        ranks, nan = np.array(sign * _ranks(a)), np.isnan(a.values)
        least = np.iinfo(np.int64).min
        ranks[nan] = least + 1 if skips_nan else np.iinfo(np.int64).max
        codes, used = a.codes.copy(), np.broadcast_to(np.asarray(where, np.bool_), a.shape)
        if nan.any():
            codes[nan] = a.format.code_dtype.type(a.format.canonical_nan or 0)
        ranks = _merged(axes, np.where(used, ranks, least))
        codes = _merged(axes, codes)
        if initial is None and (ranks.shape[-1] == 0 or not _merged(axes, used).any(axis=-1).all()):
            raise ValueError(f"np.{name} of no elements needs initial=")
        if initial is None:
            return np.asarray(np.take_along_axis(codes, ranks.argmax(axis=-1)[..., np.newaxis], -1)[..., 0])
        start = FloatArray(np.asarray(operand_codes(initial, a.format, "initial")), a.format)
        codes = np.concatenate([np.broadcast_to(start.codes, (*codes.shape[:-1], 1)), codes], axis=-1)
        first = np.broadcast_to(sign * _ranks(start), (*codes.shape[:-1], 1))
        best = np.concatenate([first, ranks], axis=-1).argmax(axis=-1)
        return np.asarray(np.take_along_axis(codes, best[..., np.newaxis], -1)[..., 0])

    return extreme


for _name, _sign, _functions in (
    ("max", 1, (np.max, np.amax)), ("min", -1, (np.min, np.amin)), ("nanmax", 1, (np.nanmax,)),
    ("nanmin", -1, (np.nanmin,)),
):  # fmt: skip
    implements(*_functions)(_extreme(_name, _sign, _name.startswith("nan")))


def _reduces(function: Any) -> Callable[..., Any]:
    """Return np.maximum.reduce or np.minimum.reduce, which reduce the first axis by default."""
    return lambda a, axis=0, **options: function(a, axis=axis, **options)


implements((np.maximum, "reduce"))(_reduces(np.max))
implements((np.minimum, "reduce"))(_reduces(np.min))
implements((np.fmax, "reduce"))(_reduces(np.nanmax))
implements((np.fmin, "reduce"))(_reduces(np.nanmin))


@implements(np.ptp)
def _ptp(a: FloatArray, axis: Axis = None, out: Any = None, keepdims: bool = False) -> FloatArray:
    """Return max - min, one rounding."""
    return _into(out, subtract(np.max(a, axis=axis, keepdims=keepdims), np.min(a, axis=axis, keepdims=keepdims)))


# -- functions of the values, whose results are no numbers of the format -----------------------------------------------


def _of_values(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a NumPy function that reads its arrays as float64 values, exactly."""

    def called(*args: Any, **kwargs: Any) -> Any:
        read = [_values(x, f"argument {i + 1}") for i, x in enumerate(args)]
        return function(*read, **{name: _values(x, name) for name, x in kwargs.items()})

    return called


_OF_VALUES: tuple[Any, ...] = (
    np.allclose, np.argmax, np.argmin, np.argpartition, np.argwhere, np.array2string, np.array_equiv, np.count_nonzero,
    np.digitize, np.flatnonzero, np.isclose, np.isin, np.isneginf, np.isposinf, np.nanargmax, np.nanargmin, np.nonzero,
    np.searchsorted,
)  # fmt: skip
for _function in _OF_VALUES:
    implements(_function)(_of_values(_function))


def _truth(function: Any) -> Callable[..., Any]:
    return lambda a, *args, **kwargs: function(a.nonzero(), *args, **kwargs)


implements(np.any)(_truth(np.any))
implements(np.all)(_truth(np.all))
implements(np.array_repr, np.array_str)(lambda a, *_, **__: repr(a))
implements(np.iscomplexobj)(lambda x: False)
implements(np.isrealobj)(lambda x: True)
implements(np.logical_not)(lambda a, out=None: np.logical_not(a.nonzero(), out=out))


@implements(np.histogram)
def _histogram(
    a: Any, bins: Any = 10, range: Any = None, density: bool | None = None, weights: Any = None
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Count values in bins. The edges are float64; the comparisons are exact."""
    if isinstance(weights, FloatArray):
        raise TypeError("np.histogram adds float64 weights; pass weights=w.values, or use fs.sum(w, where=...) per bin")
    bins = bins if isinstance(bins, str) else _values(bins, "bins")
    counted: tuple[NDArray[Any], NDArray[Any]] = np.histogram(_values(a, "a"), bins, range, density, weights)
    return counted


@implements(np.histogram_bin_edges)
def _histogram_bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> NDArray[Any]:
    edges: NDArray[Any] = np.histogram_bin_edges(_values(a, "a"), bins, range, weights)
    return edges


# -- order -------------------------------------------------------------------------------------------------------------


@implements(np.argsort)
def _argsort(
    a: FloatArray, axis: int | None = -1, kind: Any = None, order: Any = None, *, stable: Any = None
) -> NDArray[np.intp]:  # fmt: skip
    """Return the indices of a stable sort by value: equal elements, and NaNs, keep their order. NaNs are last."""
    if order is not None:
        raise ValueError("order= names the fields of a structured array; a FloatArray has none")
    return np.argsort(_array(a, "a", "argsort").values, axis=axis, kind="stable")


@implements(np.sort)
def _sort(
    a: FloatArray, axis: int | None = -1, kind: Any = None, order: Any = None, *, stable: Any = None
) -> FloatArray:  # fmt: skip
    """Return the elements in the order of `np.argsort`."""
    places = _argsort(a, axis, kind, order)
    return _like(a.codes.ravel()[places] if axis is None else np.take_along_axis(a.codes, places, axis), a)


@implements(np.partition)
def _partition(
    a: FloatArray, kth: Any, axis: int | None = -1, kind: Any = "introselect", order: Any = None
) -> FloatArray:  # fmt: skip
    """Return the sorted elements, which are one partition."""
    return _sort(a, axis, None, order)


@implements(np.unique)
def _unique(a: FloatArray, *args: Any, **kwargs: Any) -> Any:
    """Return the different values. The first element of each is kept: -0 equals +0, and NaNs are equal by default."""
    names = ("return_index", "return_inverse", "return_counts", "axis")
    options = dict(zip(names, args, strict=False)) | kwargs
    asked = builtins.bool(options.pop("return_index", False))
    axis = options.get("axis")
    _, index, *others = np.unique(_array(a, "ar", "unique").values, return_index=True, **options)
    codes = a.codes.ravel()[index] if axis is None else np.take(a.codes, index, axis)
    found = _like(codes, a)
    return (found, *([index] if asked else []), *others) if asked or others else found


# -- elements from several arrays --------------------------------------------------------------------------------------


@implements(np.take_along_axis)
def _take_along_axis(arr: FloatArray, indices: Any, axis: Any = -1) -> FloatArray:
    return _like(np.take_along_axis(_array(arr, "arr", "take_along_axis").codes, indices, axis), arr)


@implements(np.put_along_axis)
def _put_along_axis(arr: FloatArray, indices: Any, values: Any, axis: Any) -> None:
    codes = operand_codes(values, _array(arr, "arr", "put_along_axis").format, "values")
    np.put_along_axis(arr.codes, indices, codes, axis)


@implements(np.compress)
def _compress(condition: Any, a: FloatArray, axis: int | None = None, out: Any = None) -> FloatArray:
    return _into(out, _like(np.compress(np.asarray(condition, np.bool_), _array(a, "a", "compress").codes, axis), a))


@implements(np.extract)
def _extract(condition: Any, arr: FloatArray) -> FloatArray:
    return _like(np.extract(np.asarray(condition, np.bool_), _array(arr, "arr", "extract").codes), arr)


@implements(np.append)
def _append(arr: Any, values: Any, axis: int | None = None) -> FloatArray:
    if axis is None:
        arr, values = np.ravel(arr), np.ravel(values)
    joined: Any = np.concatenate([arr, values], axis=axis or 0)
    return joined  # type: ignore[no-any-return]


@implements(np.insert)
def _insert(arr: FloatArray, obj: Any, values: Any, axis: int | None = None) -> FloatArray:
    codes = operand_codes(values, _array(arr, "arr", "insert").format, "values")
    return _like(np.insert(arr.codes, obj, codes, axis), arr)


@implements(np.copyto)
def _copyto(dst: Any, src: Any, casting: Any = "same_kind", where: Any = True) -> None:
    if not isinstance(dst, FloatArray):
        raise TypeError("np.copyto: dst is no FloatArray; write np.copyto(dst, src.values)")
    np.copyto(dst.codes, operand_codes(src, dst.format, "src"), where=where)


def _full(a: FloatArray, value: Any, **kwargs: Any) -> FloatArray:
    if kwargs.pop("dtype", None) is not None:
        raise TypeError("dtype= does not apply to FloatArrays; use fs.array(..., format)")
    return _like(np.full_like(a.codes, operand_codes(value, a.format, "fill_value"), **kwargs), a)


implements(np.full_like)(lambda a, fill_value, **kwargs: _full(_array(a, "a", "full_like"), fill_value, **kwargs))
implements(np.ones_like)(lambda a, **kwargs: _full(a, 1.0, **kwargs))


@implements(np.pad)
def _pad(array: FloatArray, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> FloatArray:
    moves = ("constant", "edge", "empty", "reflect", "symmetric", "wrap")
    if mode not in moves or kwargs.get("reflect_type", "even") != "even":
        raise TypeError(f"np.pad of a FloatArray takes mode {', '.join(map(repr, moves))}, which move elements")
    if mode == "constant":
        fill = kwargs.pop("constant_values", 0.0)
        if isinstance(fill, tuple | list):
            kwargs["constant_values"] = np.vectorize(lambda v: operand_codes(v, array.format, "constant_values"))(fill)
        else:
            kwargs["constant_values"] = operand_codes(fill, array.format, "constant_values")
    return _like(np.pad(array.codes, pad_width, mode, **kwargs), array)


def _triangle(function: Any) -> Callable[..., Any]:
    def triangle(m: FloatArray, k: int = 0) -> FloatArray:
        if not m.format.has_zero:
            raise TypeError(f"{m.format.name} has no zero")
        return _like(function(m.codes, k), m)

    return triangle


for _function in (np.tril, np.triu, np.diag, np.diagflat):
    implements(_function)(_triangle(_function))


@implements(np.select)
def _select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> FloatArray:
    fmt = next(x.format for x in (*choicelist, default) if isinstance(x, FloatArray))
    codes = [operand_codes(x, fmt, f"choicelist[{i}]") for i, x in enumerate(choicelist)]
    last = operand_codes(default, fmt, "default")
    return FloatArray(np.asarray(np.select(list(condlist), codes, last), fmt.code_dtype), fmt)


@implements(np.broadcast_arrays)
def _broadcast_arrays(*args: Any, subok: bool = False) -> tuple[Any, ...]:
    shape = np.broadcast_shapes(*map(np.shape, args))
    return tuple(np.broadcast_to(x, shape) for x in args)


@implements(np.nan_to_num)
def _nan_to_num(
    x: FloatArray, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None
) -> FloatArray:  # fmt: skip
    """Replace NaNs and infinities; by default by zero, and by the largest finite numbers of the format."""
    x, values = _array(x, "x", "nan_to_num"), x.values
    fmt, codes = x.format, x.codes.copy() if copy else x.codes
    for mask, new, name in (
        (np.isnan(values), nan, "nan"),
        (np.isposinf(values), fmt.max if posinf is None else posinf, "posinf"),
        (np.isneginf(values), -fmt.max if neginf is None else neginf, "neginf"),
    ):
        if mask.any():
            codes[mask] = operand_codes(new, fmt, name)
    return _like(codes, x)


# -- functions that round ----------------------------------------------------------------------------------------------


def _bound(x: Any, fmt: FloatFormat) -> Any:
    """Return a bound of `clip`. A Python number beyond the range becomes the largest finite number, not a NaN."""
    if type(x) not in (int, float):
        return x
    overflow = Overflow.SATURATE_PROPAGATE if fmt.has_infinity else Overflow.SATURATE_FINITE
    codes = np.asarray(encode(x, fmt, overflow=overflow, rounding="ties_to_even"))
    if abs(x) <= fmt.max:
        warn_of_rounded_number(x, codes, fmt, "a bound")
    return FloatArray(codes, fmt)


@implements(np.clip)
def _clip(
    a: Any, a_min: Any = None, a_max: Any = None, out: Any = None, *, min: Any = None, max: Any = None
) -> Any:  # fmt: skip
    """Return fs.minimum(fs.maximum(a, a_min), a_max). NaNs of a and of the bounds give NaN."""
    low, high = (a_min if min is None else min), (a_max if max is None else max)
    fmt = next(x.format for x in (a, low, high) if isinstance(x, FloatArray))
    result = a
    for function, bound in ((maximum, low), (minimum, high)):
        if bound is not None:
            result = function(result, _bound(bound, fmt))
    return _into(out, result.copy() if result is a else result)


@implements(np.round, np.around)
def _round(a: FloatArray, decimals: int = 0, out: Any = None) -> FloatArray:
    """Round to decimals, exactly and with ties to even, then to the format, to nearest.

    For `decimals=0` this is `fs.rint` to nearest. NumPy multiplies, rounds and divides instead: three roundings.
    """
    if decimals == 0:
        return rint(a, out=out, rounding="ties_to_even", daz=False, ftz=False)  # type: ignore[no-any-return]
    codes, place = np.unique(a.codes, return_inverse=True)
    different = _like(codes, a)
    exact = [round(Fraction(v), decimals) if np.isfinite(v) else v for v in different.values.tolist()]
    rounded = encode(exact, a.format, rounding="ties_to_even", daz=False, ftz=False) if exact else codes
    signed = copysign(_like(rounded, a), different)
    keeps = np.isnan(different.values)
    found = np.where(keeps, codes, signed.codes)
    return _into(out, _like(found[place].reshape(a.shape), a))


@implements(np.diff)
def _diff(a: FloatArray, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> FloatArray:
    """Return the differences of neighbours, one rounding each."""
    if prepend is not None or append is not None:
        raise TypeError("prepend= and append= are not supported for FloatArrays; np.concatenate first")
    for _ in range(n):
        codes = np.moveaxis(a.codes, axis, -1)
        differences = subtract(_like(codes[..., 1:], a), _like(codes[..., :-1], a))
        a = _like(np.moveaxis(differences.codes, -1, axis), a)
    return a


implements(np.square)(lambda a, out=None: multiply(a, a, out=out))
implements(np.reciprocal)(lambda a, out=None: divide(1, a, out=out))
implements(np.outer)(lambda a, b, out=None: multiply(np.ravel(a)[:, np.newaxis], np.ravel(b)[np.newaxis], out=out))
implements(np.trace)(
    lambda a, offset=0, axis1=0, axis2=1: np.sum(np.diagonal(a, offset=offset, axis1=axis1, axis2=axis2), axis=-1)
)


def _common(operands: Sequence[Any]) -> FloatFormat | None:
    """Return the format of all operands, if there is one."""
    formats = {read_floats(x, f"operand {i + 1}")[1] for i, x in enumerate(operands)}
    return formats.pop() if len(formats) == 1 else None


@implements(np.einsum)
def _einsum(subscripts: Any, *operands: Any, out: Any = None, optimize: Any = False, **options: Any) -> Any:
    """Call `fs.einsum`, and keep the common format of the operands, as np.matmul does."""
    if not isinstance(subscripts, str):
        raise TypeError("np.einsum of FloatArrays takes the subscripts as a text, such as 'ij,jk->ik'")
    if options:
        raise TypeError(f"{', '.join(options)}: np.einsum of FloatArrays takes out= only; fs.einsum takes accumulate=")
    return einsum(subscripts, *operands, format=_common(operands), out=out)


@implements(np.inner)
def _inner(a: Any, b: Any) -> Any:
    n, m = np.ndim(a), np.ndim(b)
    if n == 0 or m == 0:
        return multiply(a, b)
    letters = "abcdefghijklmnopqrstuvwxyABCDEFGHIJKLMNOPQRSTUVWXY"
    left, right = letters[: n - 1], letters[n - 1 : n + m - 2]
    return _einsum(f"{left}z,{right}z->{left}{right}", a, b)


@implements(np.tensordot)
def _tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    n, m = np.ndim(a), np.ndim(b)
    if isinstance(axes, int):
        axes = list(range(n - axes, n)), list(range(axes))
    pairs = [(side,) if isinstance(side, int) else tuple(side) for side in axes]
    over_a, over_b = ([axis % ndim for axis in side] for side, ndim in zip(pairs, (n, m), strict=True))
    if len(over_a) != len(over_b):
        raise ValueError(f"axes={axes!r} names {len(over_a)} axes of a and {len(over_b)} of b")
    letters = iter("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    left = [next(letters) for _ in range(n)]
    right = [left[over_a[over_b.index(i)]] if i in over_b else next(letters) for i in range(m)]
    kept = [x for i, x in enumerate(left) if i not in over_a] + [x for i, x in enumerate(right) if i not in over_b]
    return _einsum(f"{''.join(left)},{''.join(right)}->{''.join(kept)}", a, b)


# -- functions without a meaning for FloatArrays -----------------------------------------------------------------------

_USE_VALUES = "np.{name}(x.values) computes in float64, and fs.convert rounds the result to a format"
_ADVICE: dict[str, str] = {
    "average": "use fs.mean, or fs.dot(x, weights) and fs.divide",
    "bitwise_and": "use x.codes for bits",
    "bitwise_or": "use x.codes for bits",
    "bitwise_xor": "use x.codes for bits",
    "convolve": "use fs.matmul on np.lib.stride_tricks.sliding_window_view(x.codes, n), wrapped by fs.from_codes",
    "correlate": "use fs.matmul on np.lib.stride_tricks.sliding_window_view(x.codes, n), wrapped by fs.from_codes",
    "cumprod": "use fs.prod of each prefix",
    "floor_divide": "use fs.floor(fs.divide(a, b)), two roundings",
    "frexp": "use fs.logb and fs.scalb",
    "nancumsum": "replace NaNs with np.nan_to_num, then fs.cumsum",
    "nanmean": "use fs.mean(x, where=~fs.isnan(x))",
    "nanprod": "use fs.prod(x, where=~fs.isnan(x))",
    "nansum": "use fs.sum(x, where=~fs.isnan(x))",
    "nanvar": "use fs.var(x, where=~fs.isnan(x))",
    "nanstd": "use fs.sqrt(fs.var(x, where=~fs.isnan(x)))",
    "float_power": "use fs.power, which rounds once",
    "save": "use fs.save, which keeps the format",
    "savez": "use fs.save, which keeps the format",
    "savez_compressed": "use fs.save, which keeps the format",
    "spacing": "use fs.ulp",
    "std": "use fs.sqrt(fs.var(x))",
    "divmod": "use fs.floor(fs.divide(a, b)) and the operator %",
}
"""What to write instead of NumPy functions. Others are named with `_USE_VALUES`."""


@implements("advice")
def _advice(name: str) -> str:
    """Return what to write instead of the NumPy function `name` on FloatArrays."""
    return _ADVICE.get(name, _USE_VALUES.format(name=name))
