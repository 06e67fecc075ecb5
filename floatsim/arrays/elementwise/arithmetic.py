"""The arithmetic of IEEE 754-2019 on arrays: one rounding for each element, with exception flags.

Operands are FloatArrays, arrays whose dtype is a format, or Python numbers. A Python number takes the format of the
array and is rounded to it, ties to even, as a literal. Operands of different formats need `format=`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

import numpy as np

from floatsim._types import Codes
from floatsim.arrays.array.conversion import finish, float_codes, read_floats, with_flags
from floatsim.arrays.array.float_array import FloatArray, implements, wrap
from floatsim.arrays.array.interop import stays_on_device
from floatsim.arrays.array.operands import check_shapes, deliver, no_scales, operate, operation, quiet, read_operands
from floatsim.arrays.array.types import FloatResult, Floats, Int32Result, Integers, Out
from floatsim.arrays.call import backends
from floatsim.arrays.call.options import RoundingOptions, resolve
from floatsim.arrays.elementwise.comparison import (
    isfinite,
    signbit,
)
from floatsim.arrays.events import record as recording
from floatsim.formats import FP64, FormatLike

__all__ = [
    "absolute", "add", "ceil", "copysign", "divide", "floor", "fma", "fmod", "logb", "maximum", "maximum_number",
    "minimum", "minimum_number", "multiply", "negative", "next_down", "next_up", "nextafter", "remainder", "rint",
    "scalb", "sqrt", "subtract", "trunc",
]  # fmt: skip


# -- arithmetic -----------------------------------------------------------------------------------------------------


@implements(np.add)
@operation
def add(
    a: Floats, b: Floats, *, format: FormatLike | None = None, out: Out = None, **options: Unpack[RoundingOptions]
) -> FloatResult:
    """Return a + b, rounded once (IEEE 754-2019, 5.4.1).

    {parameters}

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.add(fs.array([256.0, 256.0], "bf16"), fs.array([1.0, 3.0], "bf16"), return_flags=True)
    (FloatArray([256.0, 260.0], BF16), array([1, 1], dtype=uint8))
    """
    return operate("add", {"a": a, "b": b}, format, out, options)


@implements(np.subtract)
@operation
def subtract(
    a: Floats, b: Floats, *, format: FormatLike | None = None, out: Out = None, **options: Unpack[RoundingOptions]
) -> FloatResult:
    """Return a - b, rounded once (IEEE 754-2019, 5.4.1).

    {parameters}

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.subtract(fs.array(1.0, "fp16"), 1.0, rounding="toward_negative")
    FloatArray(-0.0, FP16)
    """
    return operate("subtract", {"a": a, "b": b}, format, out, options)


@implements(np.multiply)
@operation
def multiply(
    a: Floats, b: Floats, *, format: FormatLike | None = None, out: Out = None, **options: Unpack[RoundingOptions]
) -> FloatResult:
    """Return a * b, rounded once (IEEE 754-2019, 5.4.1).

    {parameters}

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.multiply(fs.array([300.0, 1e-5], "fp16"), fs.array([300.0, 1e-5], "fp16"), return_flags=True)
    (FloatArray([inf, 0.0], FP16), array([5, 3], dtype=uint8))
    """
    return operate("multiply", {"a": a, "b": b}, format, out, options)


@implements(np.divide)
@operation
def divide(
    a: Floats, b: Floats, *, format: FormatLike | None = None, out: Out = None, **options: Unpack[RoundingOptions]
) -> FloatResult:
    """Return a / b, rounded once (IEEE 754-2019, 5.4.1).

    x/0 is an infinity with DIVIDE_BY_ZERO. 0/0 is NaN with INVALID.

    {parameters}

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.divide(fs.array([1.0, 0.0], "e5m2"), fs.array([0.0, 0.0], "e5m2"), return_flags=True)
    (FloatArray([inf, nan], E5M2), array([ 8, 16], dtype=uint8))
    """
    return operate("divide", {"a": a, "b": b}, format, out, options)


@implements(np.sqrt)
@operation
def sqrt(
    a: Floats, *, format: FormatLike | None = None, out: Out = None, **options: Unpack[RoundingOptions]
) -> FloatResult:
    """Return the square root of a, rounded once (IEEE 754-2019, 5.4.1).

    sqrt(-0) is -0. Other negative numbers give NaN with INVALID.

    {parameters}

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.sqrt(fs.array([2.0, -1.0], "bf16"))
    FloatArray([1.414, nan], BF16)
    """
    return operate("sqrt", {"a": a}, format, out, options)


@operation
def fma(
    a: Floats,
    b: Floats,
    c: Floats,
    *,
    format: FormatLike | None = None,
    out: Out = None,
    **options: Unpack[RoundingOptions],
) -> FloatResult:
    """Return a * b + c, rounded once (IEEE 754-2019, 5.4.1).

    inf * 0 + NaN raises INVALID. The standard leaves this case to the implementation.

    {parameters}

    Examples
    --------
    >>> import floatsim as fs
    >>> a, b, c = fs.array([65504.0], "fp16"), fs.array([2.0], "fp16"), fs.array([-65504.0], "fp16")
    >>> fs.fma(a, b, c), a * b + c
    (FloatArray([65504.0], FP16), FloatArray([inf], FP16))
    """
    return operate("fma", {"a": a, "b": b, "c": c}, format, out, options)


@operation
def remainder(
    a: Floats, b: Floats, *, format: FormatLike | None = None, out: Out = None, **options: Unpack[RoundingOptions]
) -> FloatResult:
    """Return the IEEE remainder a - n*b, n being the integer nearest to a/b (IEEE 754-2019, 5.3.1).

    The result is exact, as that of `math.remainder`. A tie goes to the even n. The operator `%` on FloatArrays is a
    floor-mod, as in NumPy.

    {parameters}

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.remainder(fs.array([5.0, 3.0], "fp32"), fs.array([3.0, 2.0], "fp32"))
    FloatArray([-1.0, -1.0], FP32)
    """
    return operate("remainder", {"a": a, "b": b}, format, out, options)


@implements(np.fmod)
@operation
def fmod(
    a: Floats, b: Floats, *, format: FormatLike | None = None, out: Out = None, **options: Unpack[RoundingOptions]
) -> FloatResult:
    """Return a - n*b, n being a/b truncated to an integer (fmod of C).

    The result is exact and has the sign of a.

    {parameters}

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.fmod(fs.array([5.0, -6.0], "fp16"), 3.0)
    FloatArray([2.0, -0.0], FP16)
    """
    return operate("fmod", {"a": a, "b": b}, format, out, options)


@implements(np.remainder)
def _floor_mod(a: Any, b: Any, *, out: Any = None) -> Any:
    """Return NumPy's `%`: fmod, plus b in one rounded addition where the signs differ."""
    options = resolve({})
    operands, _ = read_operands({"a": a, "b": b}, None)
    fmt, divisor = operands[0][1], operands[1][0]
    no_scales("%", fmt)
    check_shapes({"a": a, "b": b}, operands)
    rest, exact = backends.current().elementwise("fmod", operands, fmt, options)
    moved, rounded = backends.current().elementwise("add", [(rest, fmt), operands[1]], fmt, options)
    sign = fmt.code_dtype.type(fmt.sign_mask)
    zero = (rest & ~sign == 0) & (fmt.has_signed_zero or rest == 0)
    moves = ~zero & ((rest ^ divisor) & sign != 0) & isfinite(FloatArray(rest, fmt))
    with_sign = divisor & sign if fmt.has_signed_zero else rest
    codes = np.where(moves, moved, np.where(zero, with_sign, rest))
    events = np.where(moves, rounded, exact)
    recording.note("remainder", events, operands, (codes, fmt))
    return deliver(codes, fmt, True, out)


@implements(np.minimum)
@operation
def minimum(
    a: Floats, b: Floats, *, format: FormatLike | None = None, out: Out = None, **options: Unpack[RoundingOptions]
) -> FloatResult:
    """Return the smaller of a and b (IEEE 754-2019, 9.6).

    The result is NaN if a or b is NaN. -0 is less than +0.

    {parameters}

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.minimum(fs.array([0.0, 1.0], "fp16"), fs.array([-0.0, float("nan")], "fp16"))
    FloatArray([-0.0, nan], FP16)
    """
    return operate("minimum", {"a": a, "b": b}, format, out, options)


@implements(np.maximum)
@operation
def maximum(
    a: Floats, b: Floats, *, format: FormatLike | None = None, out: Out = None, **options: Unpack[RoundingOptions]
) -> FloatResult:
    """Return the larger of a and b (IEEE 754-2019, 9.6).

    The result is NaN if a or b is NaN. +0 is greater than -0.

    {parameters}

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.maximum(fs.array([0.0, 1.0], "fp16"), fs.array([-0.0, float("nan")], "fp16"))
    FloatArray([0.0, nan], FP16)
    """
    return operate("maximum", {"a": a, "b": b}, format, out, options)


@implements(np.fmin)
@operation
def minimum_number(
    a: Floats, b: Floats, *, format: FormatLike | None = None, out: Out = None, **options: Unpack[RoundingOptions]
) -> FloatResult:
    """Return the smaller of a and b; a number wins over a NaN (IEEE 754-2019, 9.6).

    The result is NaN only if both are NaN. -0 is less than +0.

    {parameters}

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.minimum_number(fs.array([2.0, 1.0], "fp16"), fs.array([-0.0, float("nan")], "fp16"))
    FloatArray([-0.0, 1.0], FP16)
    """
    return operate("minimum_number", {"a": a, "b": b}, format, out, options)


@implements(np.fmax)
@operation
def maximum_number(
    a: Floats, b: Floats, *, format: FormatLike | None = None, out: Out = None, **options: Unpack[RoundingOptions]
) -> FloatResult:
    """Return the larger of a and b; a number wins over a NaN (IEEE 754-2019, 9.6).

    The result is NaN only if both are NaN. +0 is greater than -0.

    {parameters}

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.maximum_number(fs.array([2.0, 1.0], "fp16"), fs.array([-0.0, float("nan")], "fp16"))
    FloatArray([2.0, 1.0], FP16)
    """
    return operate("maximum_number", {"a": a, "b": b}, format, out, options)


@implements(np.rint)
@operation
def rint(a: Floats, *, out: Out = None, **options: Unpack[RoundingOptions]) -> FloatResult:
    """Round a to integral values in the rounding mode of the call (IEEE 754-2019, 5.9).

    A result that differs from a raises INEXACT. The overflow policy applies beyond the largest finite number: E3M4 ends
    at 15.5.

    {parameters}

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.rint(fs.array([2.5, -0.3], "fp16"), return_flags=True)
    (FloatArray([2.0, -0.0], FP16), array([1, 1], dtype=uint8))
    """
    return operate("rint", {"a": a}, None, out, options)


@implements(np.floor)
@operation
def floor(a: Floats, *, out: Out = None, **options: Unpack[RoundingOptions]) -> FloatResult:
    """Return the largest integral value that is not above a (IEEE 754-2019, 5.9).

    INEXACT is not raised. The overflow policy applies beyond the largest finite number: E3M4 ends at 15.5.

    {parameters}

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.floor(fs.array([2.5, -0.3], "fp16"))
    FloatArray([2.0, -1.0], FP16)
    """
    return operate("floor", {"a": a}, None, out, options)


@implements(np.ceil)
@operation
def ceil(a: Floats, *, out: Out = None, **options: Unpack[RoundingOptions]) -> FloatResult:
    """Return the smallest integral value that is not below a (IEEE 754-2019, 5.9).

    INEXACT is not raised. The overflow policy applies beyond the largest finite number: E3M4 ends at 15.5.

    {parameters}

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.ceil(fs.array([2.5, -0.3], "fp16"))
    FloatArray([3.0, -0.0], FP16)
    """
    return operate("ceil", {"a": a}, None, out, options)


@implements(np.trunc)
@operation
def trunc(a: Floats, *, out: Out = None, **options: Unpack[RoundingOptions]) -> FloatResult:
    """Return a without its fraction, an integral value (IEEE 754-2019, 5.9).

    INEXACT is not raised. The overflow policy applies beyond the largest finite number: E3M4 ends at 15.5.

    {parameters}

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.trunc(fs.array([2.5, -0.3], "fp16"))
    FloatArray([2.0, -0.0], FP16)
    """
    return operate("trunc", {"a": a}, None, out, options)


@implements(np.ldexp)
@operation
def scalb(a: Floats, n: Integers, *, out: Out = None, **options: Unpack[RoundingOptions]) -> FloatResult:
    """Return a * 2**n, rounded once (IEEE 754-2019, 5.3.3).

    Parameters
    ----------
    a : array_like of floats
    n : array_like of int
        The exponents. Other dtypes raise a TypeError.
    {options}

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.scalb(fs.array([1.0, 1.5], "fp16"), [-24, -25])
    FloatArray([5.9605e-08, 5.9605e-08], FP16)
    """
    call_options = resolve(options)
    (operand,), float_array = read_operands({"a": a}, None)
    no_scales("scalb", operand[1])
    exponents = np.asarray(n)
    if exponents.dtype.kind not in "iu" and not all(type(e) is int for e in exponents.flat):
        raise TypeError(f"n must be integers, not {exponents.dtype}")
    far = 1 << 20  # beyond any format's range
    kind = exponents.dtype.kind
    wide = exponents.astype({"i": np.int64, "u": np.uint64}.get(kind, object))
    exponents = np.asarray(np.clip(wide, 0 if kind == "u" else -far, far), dtype=np.int64)
    check_shapes({"a": a, "n": n}, [operand, (exponents, FP64)])
    codes, events = backends.emulator().scalb(*operand, exponents, call_options)
    recording.note("scalb", events, [operand], (codes, operand[1]))
    result = deliver(codes, operand[1], float_array, out)
    return with_flags(result, events, call_options)


def logb(a: Floats, **options: Unpack[RoundingOptions]) -> Int32Result:
    """Return the exponent e of 2**e <= |a| < 2**(e+1), as int32 (IEEE 754-2019, 5.3.3).

    Zero gives -2**31 with DIVIDE_BY_ZERO, infinity 2**31 - 1, and NaN -2**31 with INVALID.

    Parameters
    ----------
    a : array_like of floats
    **options : daz, return_flags
        As in `fs.add`. The other rounding options are accepted and have no effect.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.logb(fs.array([1.0, 6e-8, 0.0], "fp16"), return_flags=True)
    (array([          0,         -24, -2147483648], dtype=int32), array([0, 0, 8], dtype=uint8))
    """
    call_options = quiet(options)
    (operand,), _ = read_operands({"a": a}, None)
    no_scales("logb", operand[1])
    exponents, events = backends.emulator().logb(*operand, call_options.attributes.daz)
    return finish("logb", exponents[()], events, call_options, [operand])


# -- neighbours and sign bits --------------------------------------------------------------------------------------


def _neighbour(operation: str, a: Any, up: bool, options: RoundingOptions) -> Any:
    call_options = quiet(options)
    ((codes, fmt),), float_array = read_operands({"a": a}, None)
    result, events = backends.emulator().neighbour(codes, fmt, call_options.attributes.daz, up)
    return finish(operation, wrap(result, fmt, float_array), events, call_options, [(codes, fmt)], (result, fmt))


@stays_on_device
def next_up(a: Floats, **options: Unpack[RoundingOptions]) -> FloatResult:
    """Return the least number of the format greater than a (nextUp, IEEE 754-2019, 5.3.1).

    Beyond the largest finite number comes infinity, or NaN in a format without infinity.

    Parameters
    ----------
    a : array_like of floats
    **options : daz, return_flags
        As in `fs.add`. The other rounding options are accepted and have no effect.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.next_up(fs.array([1.0, 0.0, 448.0], "e4m3"))
    FloatArray([1.12, 0.00195, nan], E4M3)
    """
    return _neighbour("next_up", a, True, options)


@stays_on_device
def next_down(a: Floats, **options: Unpack[RoundingOptions]) -> FloatResult:
    """Return the greatest number of the format less than a (nextDown, IEEE 754-2019, 5.3.1).

    Parameters
    ----------
    a : array_like of floats
    **options : daz, return_flags
        As in `fs.add`. The other rounding options are accepted and have no effect.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.next_down(fs.array([1.0, 0.0], "e5m2"))
    FloatArray([0.88, -1.5e-05], E5M2)
    """
    return _neighbour("next_down", a, False, options)


@implements(np.nextafter)
@stays_on_device
def nextafter(a: Floats, direction: Floats, *, out: Out = None, **options: Unpack[RoundingOptions]) -> FloatResult:
    """Return the number of the format that follows a in a direction (nextafter of C and NumPy).

    It is `fs.next_up(a)` below the direction, `fs.next_down(a)` above it, and a if they are equal: of two zeros, the
    zero of the direction. If a or the direction is NaN, it is NaN.

    Parameters
    ----------
    a : array_like of floats
    direction : array_like of floats
        Numbers of any format. Exact values are compared: a direction is not rounded to the format of a, and may be
        `math.inf` in a format without infinity.
    out : array for the result, optional
    **options : daz, return_flags
        As in `fs.add`. The other rounding options are accepted and have no effect. Only a signaling NaN raises a flag.

    Returns
    -------
    FloatArray or ndarray
        In the format of a. With `return_flags`, (array, flags).

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.nextafter(fs.array([1.0, 1.0, 448.0], "e4m3"), [2.0, 0.0, 500.0])
    FloatArray([1.12, 0.938, nan], E4M3)
    """
    call_options = quiet(options)
    daz = call_options.attributes.daz
    ((codes, fmt),), float_array = read_operands({"a": a}, None)
    towards, own, _ = read_floats(direction, "direction")
    codes, towards = np.broadcast_arrays(codes, towards)
    emulator = backends.emulator()
    here, there = emulator.decode(codes, fmt, None), emulator.decode(towards, own, None)
    if daz:
        here, there = (
            np.where(np.abs(x) < each.smallest_normal, np.copysign(0.0, x), x)
            for x, each in ((here, fmt), (there, own))
        )
    (up, events), (down, _) = (emulator.neighbour(codes, fmt, daz, way) for way in (True, False))
    events = events | emulator.neighbour(towards, own, daz, True)[1]
    zeros = np.where(np.signbit(there) & fmt.has_signed_zero, fmt.sign_mask, 0).astype(fmt.code_dtype)
    same = np.where(here == 0, zeros, codes)
    result = np.where(here < there, up, np.where(here > there, down, same))
    nan = fmt.max_code if fmt.canonical_nan is None else fmt.canonical_nan
    result = np.where(np.isnan(there), fmt.code_dtype.type(nan), np.where(np.isnan(here), up, result))
    delivered = _into(out, wrap(result.astype(fmt.code_dtype), fmt, float_array))
    return finish("nextafter", delivered, events, call_options, [(codes, fmt), (towards, own)], (result, fmt))


def _with_sign(a: Any, sign: Callable[[Codes, int], Any]) -> Any:
    """Apply a bit operation to the sign. The zero and the NaN of FNUZ formats have no sign and do not change."""
    ((codes, fmt),), float_array = read_operands({"a": a}, None)
    if not fmt.signed:
        raise TypeError(f"{fmt.name} has no sign bit")
    changed = sign(codes, fmt.sign_mask).astype(fmt.code_dtype, copy=False)
    if not fmt.has_signed_zero:
        changed = np.where(codes & fmt.code_dtype.type(fmt.magnitude_mask) == 0, codes, changed)
    return wrap(changed, fmt, float_array)


def _sign_operation(result: Any, out: Any, options: RoundingOptions) -> Any:
    """Return the result, or with `return_flags` the result and zero flags: bit operations raise no exception."""
    call_options = quiet(options)
    delivered = _into(out, result)
    return (delivered, np.zeros(np.shape(result), np.uint8)[()]) if call_options.return_flags else delivered


@implements(np.negative)
@stays_on_device
def negative(a: Floats, *, out: Out = None, **options: Unpack[RoundingOptions]) -> FloatResult:
    """Return a with its sign bit inverted, NaNs included (IEEE 754-2019, 5.5.1).

    Parameters
    ----------
    a : array_like of floats
    out : array for the result, optional
    **options : return_flags
        As in `fs.add`. A bit operation raises no flag. The other rounding options are accepted and have no effect.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.negative(fs.array([1.0, 0.0], "bf16"))
    FloatArray([-1.0, -0.0], BF16)
    """
    return _sign_operation(_with_sign(a, lambda codes, mask: codes ^ codes.dtype.type(mask)), out, options)


@implements(np.absolute, np.fabs)
@stays_on_device
def absolute(a: Floats, *, out: Out = None, **options: Unpack[RoundingOptions]) -> FloatResult:
    """Return a with its sign bit cleared, NaNs included (IEEE 754-2019, 5.5.1).

    Parameters
    ----------
    a : array_like of floats
    out : array for the result, optional
    **options : return_flags
        As in `fs.add`. A bit operation raises no flag. The other rounding options are accepted and have no effect.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.absolute(fs.array([-1.0, -0.0], "bf16"))
    FloatArray([1.0, 0.0], BF16)
    """
    cleared = _with_sign(a, lambda codes, mask: codes & codes.dtype.type(~mask & (2 * mask - 1)))
    return _sign_operation(cleared, out, options)


@implements(np.copysign)
@stays_on_device
def copysign(a: Floats, b: Floats, *, out: Out = None, **options: Unpack[RoundingOptions]) -> FloatResult:
    """Return a with the sign bit of b, NaNs included (IEEE 754-2019, 5.5.1).

    Parameters
    ----------
    a, b : array_like of floats
        Their formats may differ. The result has the format of a.
    out : array for the result, optional
    **options : return_flags
        As in `fs.add`. A bit operation raises no flag. The other rounding options are accepted and have no effect.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.copysign(fs.array([1.0, 2.0], "bf16"), fs.array([-0.0, 1.0], "fp16"))
    FloatArray([-1.0, 2.0], BF16)
    """
    (x, y), float_array = read_operands({"a": a, "b": b}, FP64)
    shape, fmt = check_shapes({"a": a, "b": b}, [x, y]), x[1]
    same = y[1] == fmt and fmt.has_signed_zero
    signs = y[0] if same else signbit(FloatArray(*y)) * fmt.code_dtype.type(fmt.sign_mask)

    def signed(codes: Codes, mask: int) -> Any:
        result = codes ^ signs
        result &= codes.dtype.type(mask)
        result ^= codes
        return result

    result = _with_sign(FloatArray(np.broadcast_to(x[0], shape), fmt), signed)
    return _sign_operation(wrap(result.codes, fmt, float_array), out, options)


@implements(np.positive)
def _positive(a: FloatArray, *, out: Any = None) -> Any:
    return _into(out, a.copy())


def _into(out: Any, result: Any) -> Any:
    if out is None:
        return result
    codes, fmt = float_codes(result if isinstance(result, FloatArray) else np.asarray(result), "a")
    return deliver(codes, fmt, True, out)
