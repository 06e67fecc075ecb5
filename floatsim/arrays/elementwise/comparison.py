"""Comparisons, classification and predicates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, Unpack

import numpy as np
from numpy.typing import NDArray

from floatsim._types import Codes
from floatsim.arrays.array.conversion import finish, wants_events
from floatsim.arrays.array.float_array import implements
from floatsim.arrays.array.operands import check_shapes, quiet, read_operands
from floatsim.arrays.array.types import BoolOut, BoolResult, Floats, UInt8Result
from floatsim.arrays.call import backends
from floatsim.arrays.call.options import RoundingOptions
from floatsim.formats import FP64, FloatFormat

__all__ = [
    "classify", "equal", "greater", "greater_equal", "isfinite", "isinf", "isnan", "issubnormal", "less", "less_equal",
    "not_equal", "signbit", "total_order", "unordered",
]  # fmt: skip

_Relations: TypeAlias = tuple[bool, bool, bool, bool]
"""For which relations a comparison is true: less, equal, greater, unordered."""


def _compare(
    operation: str, a: Any, b: Any, holds: _Relations, signaling: bool, options: RoundingOptions, out: Any
) -> Any:
    call_options = quiet(options)
    operands, _ = read_operands({"a": a, "b": b}, FP64)
    check_shapes({"a": a, "b": b}, operands)
    wanted = wants_events(call_options)
    daz = call_options.attributes.daz
    result, events = backends.emulator().compare(*operands, holds, daz, signaling, wanted)
    if out is not None:
        out[...] = result
        result = out
    return finish(operation, result[()], events, call_options, operands)


_DOCUMENTATION = """Return whether {relation}, by value (IEEE 754-2019, 5.6.1, 5.11).

{quiet}

Parameters
----------
a, b : array_like of floats
    FloatArrays, arrays whose dtype is a format, or Python numbers. The shapes broadcast. The formats may differ.
signaling : bool
    Whether a quiet NaN raises INVALID. A signalling NaN always raises it.
out : array of bool for the result, optional
**options : daz, return_flags
    As in `fs.add`. The other rounding options are accepted and have no effect.

Returns
-------
ndarray of bool
    With `return_flags`, (result, flags).

Examples
--------
>>> import floatsim as fs
>>> fs.{name}(fs.array([1.0, float("nan")], "bf16"), 2.0)
array([{example}])
"""
_QUIET = "A quiet NaN raises nothing, unless `signaling=True`."
_SIGNALING = "A quiet NaN raises INVALID, as in the relational operators of IEEE 754, unless `signaling=False`."


def _comparison(
    name: str, relation: str, holds: _Relations, example: str, *, ufunc: Any = None, signals: bool = False
) -> Callable[..., BoolResult]:
    """Return a public comparison. `example` is the text of the result for (1, NaN) and 2."""

    def compare(
        a: Floats, b: Floats, *, signaling: bool = signals, out: BoolOut = None, **options: Unpack[RoundingOptions]
    ) -> BoolResult:
        return _compare(name, a, b, holds, signaling, options, out)

    compare.__name__ = compare.__qualname__ = name
    compare.__doc__ = _DOCUMENTATION.format(
        name=name, relation=relation, quiet=_SIGNALING if signals else _QUIET, example=example
    )
    return compare if ufunc is None else implements(ufunc)(compare)


equal = _comparison("equal", "a == b", (False, True, False, False), "False, False", ufunc=np.equal)
not_equal = _comparison("not_equal", "a != b", (True, False, True, True), " True,  True", ufunc=np.not_equal)
less = _comparison("less", "a < b", (True, False, False, False), " True, False", ufunc=np.less, signals=True)
less_equal = _comparison(
    "less_equal", "a <= b", (True, True, False, False), " True, False", ufunc=np.less_equal, signals=True
)
greater = _comparison("greater", "a > b", (False, False, True, False), "False, False", ufunc=np.greater, signals=True)
greater_equal = _comparison(
    "greater_equal", "a >= b", (False, True, True, False), "False, False", ufunc=np.greater_equal, signals=True
)
unordered = _comparison("unordered", "a or b is NaN", (False, False, False, True), "False,  True")


@implements(np.array_equal)
def _array_equal(a: Any, b: Any, equal_nan: bool = False) -> bool:
    """Compare by value, as NumPy does: formats may differ, -0 equals +0, and NaN equals NaN only with `equal_nan`."""
    if np.shape(a) != np.shape(b):
        return False
    same = np.asarray(equal(a, b))
    return bool(np.all(same | (np.asarray(isnan(a)) & np.asarray(isnan(b))) if equal_nan else same))


def classify(a: Floats) -> UInt8Result:
    """Return the class of each element (IEEE 754-2019, 5.7.2).

    Parameters
    ----------
    a : array_like of floats
        Operand as in `fs.add`.

    Returns
    -------
    ndarray of uint8
        Numbers of `fs.FloatClass`.

    Examples
    --------
    >>> import floatsim as fs
    >>> [fs.FloatClass(c).name for c in fs.classify(fs.array([1.0, -1e-7, float("inf")], "fp16"))]
    ['POSITIVE_NORMAL', 'NEGATIVE_SUBNORMAL', 'POSITIVE_INFINITY']
    """
    ((codes, fmt),), _ = read_operands({"a": a}, None)
    return backends.emulator().classify(codes, fmt)[()]


def _is_infinite(codes: Codes, fmt: FloatFormat) -> NDArray[np.bool_]:
    magnitude = codes & fmt.code_dtype.type(fmt.magnitude_mask)
    return np.equal(magnitude, -1 if fmt.infinity_code is None else fmt.infinity_code)


def _is_finite(codes: Codes, fmt: FloatFormat) -> NDArray[np.bool_]:
    below = codes & fmt.code_dtype.type(fmt.magnitude_mask) <= fmt.max_code
    return below if fmt.has_signed_zero or not fmt.signed else below & (codes != fmt.canonical_nan)


def _is_nan(codes: Codes, fmt: FloatFormat) -> NDArray[np.bool_]:
    if fmt.has_signed_zero and fmt.infinity_code == fmt.max_code + 1:  # only NaNs are above infinity
        return np.greater(codes & fmt.code_dtype.type(fmt.magnitude_mask), fmt.infinity_code)
    return ~(_is_finite(codes, fmt) | _is_infinite(codes, fmt))


def _is_subnormal(codes: Codes, fmt: FloatFormat) -> NDArray[np.bool_]:
    magnitude = codes & fmt.code_dtype.type(fmt.magnitude_mask)
    return np.not_equal(magnitude, 0) & np.less(magnitude, 1 << fmt.trailing_bits if fmt.has_subnormals else 0)


def _predicate(holds: Callable[[Codes, FloatFormat], NDArray[np.bool_]], a: Any, out: NDArray[np.bool_] | None) -> Any:
    ((codes, fmt),), _ = read_operands({"a": a}, None)
    result = np.asarray(holds(codes, fmt))
    if out is None:
        return result[()]
    out[...] = result
    return out


@implements(np.isnan)
def isnan(a: Floats, *, out: BoolOut = None) -> BoolResult:
    """Return whether each element is NaN (IEEE 754-2019, 5.7.2).

    Parameters
    ----------
    a : array_like of floats
        Operand as in `fs.add`.
    out : array of bool for the result, optional

    Returns
    -------
    ndarray of bool

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.isnan(fs.array([1.0, float("nan")], "fp16"))
    array([False,  True])
    """
    return _predicate(_is_nan, a, out)


@implements(np.isinf)
def isinf(a: Floats, *, out: BoolOut = None) -> BoolResult:
    """Return whether each element is infinite (IEEE 754-2019, 5.7.2).

    Parameters
    ----------
    a : array_like of floats
        Operand as in `fs.add`.
    out : array of bool for the result, optional

    Returns
    -------
    ndarray of bool

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.isinf(fs.array([1.0, float("inf")], "fp16"))
    array([False,  True])
    """
    return _predicate(_is_infinite, a, out)


@implements(np.isfinite)
def isfinite(a: Floats, *, out: BoolOut = None) -> BoolResult:
    """Return whether each element is finite (IEEE 754-2019, 5.7.2).

    Parameters
    ----------
    a : array_like of floats
        Operand as in `fs.add`.
    out : array of bool for the result, optional

    Returns
    -------
    ndarray of bool

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.isfinite(fs.array([1.0, float("inf")], "fp16"))
    array([ True, False])
    """
    return _predicate(_is_finite, a, out)


def issubnormal(a: Floats) -> BoolResult:
    """Return whether each element is subnormal (IEEE 754-2019, 5.7.2).

    Parameters
    ----------
    a : array_like of floats
        Operand as in `fs.add`.

    Returns
    -------
    ndarray of bool

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.issubnormal(fs.array([1.0, 1e-7], "fp16"))
    array([False,  True])
    """
    return _predicate(_is_subnormal, a, None)


@implements(np.signbit)
def signbit(a: Floats) -> BoolResult:
    """Return whether each element has its sign bit set, NaNs included (IEEE 754-2019, 5.7.2).

    This is isSignMinus. The NaN of FNUZ formats has no sign: the result is False.

    Parameters
    ----------
    a : array_like of floats
        Operand as in `fs.add`.

    Returns
    -------
    ndarray of bool

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.signbit(fs.array([-0.0, 1.0], "fp16"))
    array([ True, False])
    """
    ((codes, fmt),), _ = read_operands({"a": a}, None)
    negative_codes = codes & fmt.code_dtype.type(fmt.sign_mask) != 0
    if fmt.signed and not fmt.has_signed_zero:
        negative_codes &= codes != fmt.canonical_nan
    return np.asarray(negative_codes)[()]


def total_order(a: Floats, b: Floats) -> BoolResult:
    """Return totalOrder(a, b), an order of the codes (IEEE 754-2019, 5.10).

    The order is -NaN <= -inf <= ... <= -0 <= +0 <= ... <= inf <= NaN.

    Parameters
    ----------
    a, b : array_like of floats
        Operands as in `fs.add`, of one format.

    Returns
    -------
    ndarray of bool

    Raises
    ------
    TypeError
        If the formats differ.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.total_order(fs.array([0.0, -0.0], "fp16"), fs.array([-0.0, 0.0], "fp16"))
    array([False,  True])
    """
    operands, _ = read_operands({"a": a, "b": b}, None)
    check_shapes({"a": a, "b": b}, operands)
    (x, fmt), (y, _) = operands
    return backends.emulator().total_order(x, y, fmt)[()]
