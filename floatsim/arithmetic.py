"""The operations of IEEE 754-2019 on arrays: one rounding an element, with flags.

Operands are FloatArrays, arrays whose dtype is a format, or Python numbers, which are weak: rounded to the array's
format, ties to even, as a literal. Formats mix only where `format=` names the result's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, Unpack

import numpy as np
from numpy.typing import NDArray

from floatsim import backends, recording
from floatsim.arrays import FloatArray, implements, wrap
from floatsim.contexts import How, Manner, resolve
from floatsim.conversion import Codes, finish, float_codes, operand_codes, out_codes, read_floats, with_flags
from floatsim.foreign import stays_on_device
from floatsim.formats import FP64, FloatFormat, FormatLike, as_format
from floatsim.rounding import FloatClass, Rounding, as_member

__all__ = [
    "absolute", "add", "ceil", "classify", "copysign", "divide", "equal", "floor", "fma", "fmod", "greater",
    "greater_equal", "isfinite", "isinf", "isnan", "issubnormal", "less", "less_equal", "logb", "maximum",
    "maximum_number", "minimum", "minimum_number", "multiply", "negative", "next_down", "next_up", "not_equal",
    "remainder", "rint", "scalb", "signbit", "sqrt", "subtract", "total_order", "trunc", "unordered",
]  # fmt: skip

Operand: TypeAlias = tuple[Codes, FloatFormat]


# -- operands and results ------------------------------------------------------------------------------------------


def _is_weak(x: Any) -> bool:
    """Python's own numbers take the format of the arrays they meet (as in NumPy, NEP 50)."""
    return type(x) in (int, float)


def _read_operands(arguments: dict[str, Any], result: FloatFormat | None) -> tuple[list[Operand], bool]:
    """Codes and formats of the operands, and whether one was a FloatArray."""
    operands: dict[str, Operand] = {}
    float_array = False
    for name, x in arguments.items():
        if not _is_weak(x):
            codes, fmt, is_float_array = read_floats(x, name)
            float_array |= is_float_array
            operands[name] = codes, fmt
    formats = {fmt for _, fmt in operands.values()}
    if len(formats) > 1 and result is None:
        names = " and ".join(f"{name} is {fmt.name}" for name, (_, fmt) in operands.items())
        other = next(name for name in reversed(operands))
        raise TypeError(
            f"mixed formats: {names}; name the result's with format=, or convert one: "
            f"fs.array({other}, {operands[next(iter(operands))][1].name.lower()!r})"
        )
    weak = formats.pop() if len(formats) == 1 else result or FP64
    for name, x in arguments.items():
        if _is_weak(x):
            operands[name] = operand_codes(x, weak, name), weak
    return [operands[name] for name in arguments], float_array


def _no_scales(operation: str, *formats: FloatFormat) -> None:
    for fmt in formats:
        if fmt.is_scale:
            raise TypeError(f"{operation}: {fmt.name} is a scale format, which has no arithmetic; fs.convert it first")


def _check_shapes(arguments: dict[str, Any], operands: list[Operand]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(*(codes.shape for codes, _ in operands))
    except ValueError:
        shapes = ", ".join(f"{name} {codes.shape}" for name, (codes, _) in zip(arguments, operands, strict=True))
        raise ValueError(f"the shapes do not broadcast: {shapes}") from None


def deliver(codes: Codes, fmt: FloatFormat, float_array: bool, out: Any) -> Any:
    """The result as the caller will see it, written into `out` if there is one."""
    if out is None:
        return wrap(codes, fmt, float_array)
    out_codes(out, fmt, codes.shape)[...] = codes
    return out


def _operate(operation: str, arguments: dict[str, Any], format: FormatLike | None, out: Any, how: How) -> Any:
    """One rounding operation, from what the user passed to what the user gets."""
    manner = resolve(how)
    named = None if format is None else as_format(format)
    operands, float_array = _read_operands(arguments, named)
    fmt = named or operands[0][1]
    _no_scales(operation, fmt, *(source for _, source in operands))
    shape = _check_shapes(arguments, operands)
    wanted = manner.return_flags or recording.recording()
    target = None if out is None else out_codes(out, fmt, shape)
    codes, events = backends.current().elementwise(operation, operands, fmt, manner, wanted, target)
    if events is not None:  # before anything is written: out may be an operand
        recording.note(operation, events, operands, (codes, fmt))
    if target is not None and codes is not target:
        target[...] = codes
    result = wrap(codes, fmt, float_array) if out is None else out
    return result if events is None else with_flags(result, events, manner)


# -- arithmetic -----------------------------------------------------------------------------------------------------


@implements(np.add)
@stays_on_device
def add(a: Any, b: Any, *, format: FormatLike | None = None, out: Any = None, **how: Unpack[How]) -> Any:
    """a + b, rounded once.

    Parameters
    ----------
    a, b : array_like of floats
        FloatArrays, arrays whose dtype is a format, or Python numbers; broadcast against each other.
    format : format, optional
        The result's. Needed if the operands' differ.
    out : FloatArray or ndarray, optional
        Where to write the result.
    **how
        Rounding, overflow, daz, ftz, tininess, seed, random_bits, offset, return_flags: see `floatsim.contexts.How`.

    Returns
    -------
    FloatArray or ndarray
        A FloatArray if an operand is one or the format has no dtype. With `return_flags`, (result, flags).

    Raises
    ------
    TypeError, ValueError
        For mixed formats, scale formats, shapes that do not broadcast, unknown names.

    Notes
    -----
    IEEE 754-2019, 5.4.1.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.add(fs.array([256.0, 256.0], "bf16"), fs.array([1.0, 3.0], "bf16"), return_flags=True)
    (FloatArray([256.0, 260.0], BF16), array([1, 1], dtype=uint8))
    """
    return _operate("add", {"a": a, "b": b}, format, out, how)


@implements(np.subtract)
@stays_on_device
def subtract(a: Any, b: Any, *, format: FormatLike | None = None, out: Any = None, **how: Unpack[How]) -> Any:
    """a - b, rounded once (IEEE 754-2019, 5.4.1). Parameters, result and errors as `add`.

    >>> import floatsim as fs
    >>> fs.subtract(fs.array(1.0, "fp16"), 1.0, rounding="toward_negative")
    FloatArray(-0.0, FP16)
    """
    return _operate("subtract", {"a": a, "b": b}, format, out, how)


@implements(np.multiply)
@stays_on_device
def multiply(a: Any, b: Any, *, format: FormatLike | None = None, out: Any = None, **how: Unpack[How]) -> Any:
    """a * b, rounded once (IEEE 754-2019, 5.4.1). Parameters, result and errors as `add`.

    >>> import floatsim as fs
    >>> fs.multiply(fs.array([300.0, 1e-5], "fp16"), fs.array([300.0, 1e-5], "fp16"), return_flags=True)
    (FloatArray([inf, 0.0], FP16), array([5, 3], dtype=uint8))
    """
    return _operate("multiply", {"a": a, "b": b}, format, out, how)


@implements(np.divide)
@stays_on_device
def divide(a: Any, b: Any, *, format: FormatLike | None = None, out: Any = None, **how: Unpack[How]) -> Any:
    """a / b, rounded once (IEEE 754-2019, 5.4.1). Parameters, result and errors as `add`.

    x/0 is an infinity with DIVIDE_BY_ZERO, 0/0 is NaN with INVALID.

    >>> import floatsim as fs
    >>> fs.divide(fs.array([1.0, 0.0], "e5m2"), fs.array([0.0, 0.0], "e5m2"), return_flags=True)
    (FloatArray([inf, nan], E5M2), array([ 8, 16], dtype=uint8))
    """
    return _operate("divide", {"a": a, "b": b}, format, out, how)


@implements(np.sqrt)
@stays_on_device
def sqrt(a: Any, *, format: FormatLike | None = None, out: Any = None, **how: Unpack[How]) -> Any:
    """The square root, rounded once; sqrt(-0) is -0 (IEEE 754-2019, 5.4.1). Parameters and errors as `add`.

    >>> import floatsim as fs
    >>> fs.sqrt(fs.array([2.0, -1.0], "bf16"))
    FloatArray([1.414, nan], BF16)
    """
    return _operate("sqrt", {"a": a}, format, out, how)


@stays_on_device
def fma(a: Any, b: Any, c: Any, *, format: FormatLike | None = None, out: Any = None, **how: Unpack[How]) -> Any:
    """a * b + c, rounded once (IEEE 754-2019, 5.4.1). Parameters and errors as `add`.

    inf * 0 + NaN raises INVALID, which the standard leaves open.

    >>> import floatsim as fs
    >>> a, b, c = fs.array([65504.0], "fp16"), fs.array([2.0], "fp16"), fs.array([-65504.0], "fp16")
    >>> fs.fma(a, b, c), a * b + c
    (FloatArray([65504.0], FP16), FloatArray([inf], FP16))
    """
    return _operate("fma", {"a": a, "b": b, "c": c}, format, out, how)


def remainder(a: Any, b: Any, *, format: FormatLike | None = None, out: Any = None, **how: Unpack[How]) -> Any:
    """IEEE's remainder a - n*b, n the integer nearest to a/b, ties to even (IEEE 754-2019, 5.3.1); exact.

    As `math.remainder`; NumPy's `%` on FloatArrays is floor-mod, as NumPy's. Parameters and errors as `add`.

    >>> import floatsim as fs
    >>> fs.remainder(fs.array([5.0, 3.0], "fp32"), fs.array([3.0, 2.0], "fp32"))
    FloatArray([-1.0, -1.0], FP32)
    """
    return _operate("remainder", {"a": a, "b": b}, format, out, how)


@implements(np.fmod)
def fmod(a: Any, b: Any, *, format: FormatLike | None = None, out: Any = None, **how: Unpack[How]) -> Any:
    """C's fmod: a - n*b, n = a/b truncated; exact, with the sign of a. Parameters and errors as `add`.

    >>> import floatsim as fs
    >>> fs.fmod(fs.array([5.0, -6.0], "fp16"), 3.0)
    FloatArray([2.0, -0.0], FP16)
    """
    return _operate("fmod", {"a": a, "b": b}, format, out, how)


@implements(np.remainder)
def _floor_mod(a: Any, b: Any, *, out: Any = None) -> Any:
    """NumPy's `%`: fmod, moved to the sign of b by one rounded addition where the signs differ."""
    manner = resolve({})
    operands, _ = _read_operands({"a": a, "b": b}, None)
    fmt, divisor = operands[0][1], operands[1][0]
    _no_scales("%", fmt)
    _check_shapes({"a": a, "b": b}, operands)
    rest, exact = backends.current().elementwise("fmod", operands, fmt, manner)
    moved, rounded = backends.current().elementwise("add", [(rest, fmt), operands[1]], fmt, manner)
    sign = fmt.code_dtype.type(fmt.sign_mask)
    zero = (rest & ~sign == 0) & (fmt.has_signed_zero or rest == 0)
    moves = ~zero & ((rest ^ divisor) & sign != 0) & isfinite(FloatArray(rest, fmt))
    with_sign = divisor & sign if fmt.has_signed_zero else rest
    codes = np.where(moves, moved, np.where(zero, with_sign, rest))
    events = np.where(moves, rounded, exact)
    recording.note("remainder", events, operands, (codes, fmt))
    return deliver(codes, fmt, True, out)


@implements(np.minimum)
def minimum(a: Any, b: Any, *, format: FormatLike | None = None, out: Any = None, **how: Unpack[How]) -> Any:
    """The smaller of a and b; NaN if either is NaN; -0 is less than +0 (IEEE 754-2019, 9.6). As `add` otherwise.

    >>> import floatsim as fs
    >>> fs.minimum(fs.array([0.0, 1.0], "fp16"), fs.array([-0.0, float("nan")], "fp16"))
    FloatArray([-0.0, nan], FP16)
    """
    return _operate("minimum", {"a": a, "b": b}, format, out, how)


@implements(np.maximum)
def maximum(a: Any, b: Any, *, format: FormatLike | None = None, out: Any = None, **how: Unpack[How]) -> Any:
    """The larger of a and b; NaN if either is NaN; +0 is more than -0 (IEEE 754-2019, 9.6). As `add` otherwise.

    >>> import floatsim as fs
    >>> fs.maximum(fs.array([0.0, 1.0], "fp16"), fs.array([-0.0, float("nan")], "fp16"))
    FloatArray([0.0, nan], FP16)
    """
    return _operate("maximum", {"a": a, "b": b}, format, out, how)


@implements(np.fmin)
def minimum_number(a: Any, b: Any, *, format: FormatLike | None = None, out: Any = None, **how: Unpack[How]) -> Any:
    """The smaller of a and b, a number rather than a NaN (IEEE 754-2019, 9.6). As `add` otherwise.

    >>> import floatsim as fs
    >>> fs.minimum_number(fs.array([2.0, 1.0], "fp16"), fs.array([-0.0, float("nan")], "fp16"))
    FloatArray([-0.0, 1.0], FP16)
    """
    return _operate("minimum_number", {"a": a, "b": b}, format, out, how)


@implements(np.fmax)
def maximum_number(a: Any, b: Any, *, format: FormatLike | None = None, out: Any = None, **how: Unpack[How]) -> Any:
    """The larger of a and b, a number rather than a NaN (IEEE 754-2019, 9.6). As `add` otherwise.

    >>> import floatsim as fs
    >>> fs.maximum_number(fs.array([2.0, 1.0], "fp16"), fs.array([-0.0, float("nan")], "fp16"))
    FloatArray([2.0, 1.0], FP16)
    """
    return _operate("maximum_number", {"a": a, "b": b}, format, out, how)


@implements(np.rint)
def rint(a: Any, *, out: Any = None, **how: Unpack[How]) -> Any:
    """Rounded to an integral value in the given direction; INEXACT where it differs (IEEE 754-2019, 5.9).

    Beyond the format's max (E3M4 has 15.5) the overflow policy decides. As `add` otherwise.

    >>> import floatsim as fs
    >>> fs.rint(fs.array([2.5, -0.3], "fp16"), return_flags=True)
    (FloatArray([2.0, -0.0], FP16), array([1, 1], dtype=uint8))
    """
    return _operate("rint", {"a": a}, None, out, how)


@implements(np.floor)
def floor(a: Any, *, out: Any = None, **how: Unpack[How]) -> Any:
    """The largest integral value not above a; raises no INEXACT (IEEE 754-2019, 5.9). As `rint` otherwise.

    >>> import floatsim as fs
    >>> fs.floor(fs.array([2.5, -0.3], "fp16"))
    FloatArray([2.0, -1.0], FP16)
    """
    return _operate("floor", {"a": a}, None, out, how)


@implements(np.ceil)
def ceil(a: Any, *, out: Any = None, **how: Unpack[How]) -> Any:
    """The smallest integral value not below a; raises no INEXACT (IEEE 754-2019, 5.9). As `rint` otherwise.

    >>> import floatsim as fs
    >>> fs.ceil(fs.array([2.5, -0.3], "fp16"))
    FloatArray([3.0, -0.0], FP16)
    """
    return _operate("ceil", {"a": a}, None, out, how)


@implements(np.trunc)
def trunc(a: Any, *, out: Any = None, **how: Unpack[How]) -> Any:
    """The integral part of a; raises no INEXACT (IEEE 754-2019, 5.9). As `rint` otherwise.

    >>> import floatsim as fs
    >>> fs.trunc(fs.array([2.5, -0.3], "fp16"))
    FloatArray([2.0, -0.0], FP16)
    """
    return _operate("trunc", {"a": a}, None, out, how)


@implements(np.ldexp)
def scalb(a: Any, n: Any, *, out: Any = None, **how: Unpack[How]) -> Any:
    """a * 2**n for integers n, rounded once (IEEE 754-2019, 5.3.3). Errors as `add`; TypeError if n is no integer.

    >>> import floatsim as fs
    >>> fs.scalb(fs.array([1.0, 1.5], "fp16"), [-24, -25])
    FloatArray([5.9605e-08, 5.9605e-08], FP16)
    """
    manner = resolve(how)
    (operand,), float_array = _read_operands({"a": a}, None)
    _no_scales("scalb", operand[1])
    exponents = np.asarray(n)
    if exponents.dtype.kind not in "iu" and not all(type(e) is int for e in exponents.flat):
        raise TypeError(f"n must be integers, not {exponents.dtype}")
    far = 1 << 20  # beyond any format's range
    kind = exponents.dtype.kind
    wide = exponents.astype({"i": np.int64, "u": np.uint64}.get(kind, object))
    exponents = np.asarray(np.clip(wide, 0 if kind == "u" else -far, far), dtype=np.int64)
    _check_shapes({"a": a, "n": n}, [operand, (exponents, FP64)])
    codes, events = backends.emulator().scalb(*operand, exponents, manner)
    recording.note("scalb", events, [operand], (codes, operand[1]))
    result = deliver(codes, operand[1], float_array, out)
    return with_flags(result, events, manner)


def logb(a: Any, **how: Unpack[How]) -> Any:
    """The exponent e of 2**e <= |a| < 2**(e+1), as int32 (IEEE 754-2019, 5.3.3).

    Zero gives -2**31 with DIVIDE_BY_ZERO, infinity 2**31 - 1, NaN -2**31 with INVALID.

    >>> import floatsim as fs
    >>> fs.logb(fs.array([1.0, 6e-8, 0.0], "fp16"), return_flags=True)
    (array([          0,         -24, -2147483648], dtype=int32), array([0, 0, 8], dtype=uint8))
    """
    manner = _quiet(how)
    (operand,), _ = _read_operands({"a": a}, None)
    _no_scales("logb", operand[1])
    exponents, events = backends.emulator().logb(*operand, manner.attributes.daz)
    return finish("logb", exponents[()], events, manner, [operand])


def _quiet(how: How) -> Manner:
    """The manner of an operation that rounds nothing: its keywords are checked, but no seed is due."""
    if (rounding := how.get("rounding")) is not None:
        as_member(Rounding, rounding, "rounding")
    return resolve({**how, "rounding": Rounding.TIES_TO_EVEN})


# -- neighbours and sign bits --------------------------------------------------------------------------------------


def _neighbour(operation: str, a: Any, up: bool, how: How) -> Any:
    manner = _quiet(how)
    ((codes, fmt),), float_array = _read_operands({"a": a}, None)
    result, events = backends.emulator().neighbour(codes, fmt, manner.attributes.daz, up)
    return finish(operation, wrap(result, fmt, float_array), events, manner, [(codes, fmt)], (result, fmt))


def next_up(a: Any, **how: Unpack[How]) -> Any:
    """The least number greater than a (IEEE 754-2019, 5.3.1): infinity, or NaN without one, beyond max.

    >>> import floatsim as fs
    >>> fs.next_up(fs.array([1.0, 0.0, 448.0], "e4m3"))
    FloatArray([1.12, 0.00195, nan], E4M3)
    """
    return _neighbour("next_up", a, True, how)


def next_down(a: Any, **how: Unpack[How]) -> Any:
    """The greatest number less than a (IEEE 754-2019, 5.3.1).

    >>> import floatsim as fs
    >>> fs.next_down(fs.array([1.0, 0.0], "e5m2"))
    FloatArray([0.88, -1.5e-05], E5M2)
    """
    return _neighbour("next_down", a, False, how)


def _with_sign(a: Any, sign: Callable[[Codes, int], Any]) -> Any:
    """A bit operation on the sign; FNUZ's zero and NaN, which have no sign, stay as they are."""
    ((codes, fmt),), float_array = _read_operands({"a": a}, None)
    if not fmt.signed:
        raise TypeError(f"{fmt.name} has no sign bit")
    changed = sign(codes, fmt.sign_mask).astype(fmt.code_dtype, copy=False)
    if not fmt.has_signed_zero:
        changed = np.where(codes & fmt.code_dtype.type(fmt.magnitude_mask) == 0, codes, changed)
    return wrap(changed, fmt, float_array)


def _sign_operation(result: Any, out: Any, how: How) -> Any:
    """The result, or with `return_flags` the result and no flags: bit operations raise nothing."""
    manner = _quiet(how)
    delivered = _into(out, result)
    return (delivered, np.zeros(np.shape(result), np.uint8)[()]) if manner.return_flags else delivered


@implements(np.negative)
def negative(a: Any, *, out: Any = None, **how: Unpack[How]) -> Any:
    """a with its sign bit flipped: a bit operation, NaNs too (IEEE 754-2019, 5.5.1).

    >>> import floatsim as fs
    >>> fs.negative(fs.array([1.0, 0.0], "bf16"))
    FloatArray([-1.0, -0.0], BF16)
    """
    return _sign_operation(_with_sign(a, lambda codes, mask: codes ^ codes.dtype.type(mask)), out, how)


@implements(np.absolute, np.fabs)
def absolute(a: Any, *, out: Any = None, **how: Unpack[How]) -> Any:
    """a with its sign bit cleared: a bit operation, NaNs too (IEEE 754-2019, 5.5.1).

    >>> import floatsim as fs
    >>> fs.absolute(fs.array([-1.0, -0.0], "bf16"))
    FloatArray([1.0, 0.0], BF16)
    """
    cleared = _with_sign(a, lambda codes, mask: codes & codes.dtype.type(~mask & (2 * mask - 1)))
    return _sign_operation(cleared, out, how)


@implements(np.copysign)
def copysign(a: Any, b: Any, *, out: Any = None, **how: Unpack[How]) -> Any:
    """a with the sign bit of b: a bit operation, NaNs too (IEEE 754-2019, 5.5.1). b may be of another format.

    >>> import floatsim as fs
    >>> fs.copysign(fs.array([1.0, 2.0], "bf16"), fs.array([-0.0, 1.0], "fp16"))
    FloatArray([-1.0, 2.0], BF16)
    """
    (x, y), float_array = _read_operands({"a": a, "b": b}, FP64)
    shape = _check_shapes({"a": a, "b": b}, [x, y])
    sign, fmt = signbit(FloatArray(*y)), x[1]
    magnitude = absolute(FloatArray(np.broadcast_to(x[0], shape), fmt))
    signed = _with_sign(magnitude, lambda codes, mask: np.where(sign, codes | codes.dtype.type(mask), codes))
    return _sign_operation(wrap(signed.codes, fmt, float_array), out, how)


@implements(np.positive)
def _positive(a: FloatArray, *, out: Any = None) -> Any:
    return _into(out, a.copy())


def _into(out: Any, result: Any) -> Any:
    if out is None:
        return result
    codes, fmt = float_codes(result if isinstance(result, FloatArray) else np.asarray(result), "a")
    return deliver(codes, fmt, True, out)


# -- comparisons ---------------------------------------------------------------------------------------------------

_LESS, _EQUAL, _GREATER, _UNORDERED = np.eye(4, dtype=np.bool_)


def _compare(operation: str, a: Any, b: Any, holds: NDArray[np.bool_], signaling: bool, how: How, out: Any) -> Any:
    manner = _quiet(how)
    operands, _ = _read_operands({"a": a, "b": b}, FP64)
    _check_shapes({"a": a, "b": b}, operands)
    relation, events = backends.emulator().compare(*operands, manner.attributes.daz, signaling)
    result = holds[relation]
    if out is not None:
        out[...] = result
        result = out
    return finish(operation, result[()], events, manner, operands)


@implements(np.equal)
def equal(a: Any, b: Any, *, signaling: bool = False, out: Any = None, **how: Unpack[How]) -> Any:
    """Whether a == b, by value (IEEE 754-2019, 5.6.1, 5.11); formats may differ.

    A quiet NaN raises nothing, unless `signaling=True`.

    >>> import floatsim as fs
    >>> fs.equal(fs.array([1.0, float("nan")], "bf16"), 2.0)
    array([False, False])
    """
    return _compare("equal", a, b, _EQUAL, signaling, how, out)


@implements(np.not_equal)
def not_equal(a: Any, b: Any, *, signaling: bool = False, out: Any = None, **how: Unpack[How]) -> Any:
    """Whether a != b, true for NaN, by value (IEEE 754-2019, 5.6.1, 5.11); formats may differ.

    A quiet NaN raises nothing, unless `signaling=True`.

    >>> import floatsim as fs
    >>> fs.not_equal(fs.array([1.0, float("nan")], "bf16"), 2.0)
    array([ True,  True])
    """
    return _compare("not_equal", a, b, ~_EQUAL, signaling, how, out)


@implements(np.less)
def less(a: Any, b: Any, *, signaling: bool = True, out: Any = None, **how: Unpack[How]) -> Any:
    """Whether a < b, by value (IEEE 754-2019, 5.6.1, 5.11); formats may differ.

    A quiet NaN raises INVALID, as 754's relational operators do; not with `signaling=False`.

    >>> import floatsim as fs
    >>> fs.less(fs.array([1.0, float("nan")], "bf16"), 2.0)
    array([ True, False])
    """
    return _compare("less", a, b, _LESS, signaling, how, out)


@implements(np.less_equal)
def less_equal(a: Any, b: Any, *, signaling: bool = True, out: Any = None, **how: Unpack[How]) -> Any:
    """Whether a <= b, by value (IEEE 754-2019, 5.6.1, 5.11); formats may differ.

    A quiet NaN raises INVALID, as 754's relational operators do; not with `signaling=False`.

    >>> import floatsim as fs
    >>> fs.less_equal(fs.array([1.0, float("nan")], "bf16"), 2.0)
    array([ True, False])
    """
    return _compare("less_equal", a, b, _LESS | _EQUAL, signaling, how, out)


@implements(np.greater)
def greater(a: Any, b: Any, *, signaling: bool = True, out: Any = None, **how: Unpack[How]) -> Any:
    """Whether a > b, by value (IEEE 754-2019, 5.6.1, 5.11); formats may differ.

    A quiet NaN raises INVALID, as 754's relational operators do; not with `signaling=False`.

    >>> import floatsim as fs
    >>> fs.greater(fs.array([1.0, float("nan")], "bf16"), 2.0)
    array([False, False])
    """
    return _compare("greater", a, b, _GREATER, signaling, how, out)


@implements(np.greater_equal)
def greater_equal(a: Any, b: Any, *, signaling: bool = True, out: Any = None, **how: Unpack[How]) -> Any:
    """Whether a >= b, by value (IEEE 754-2019, 5.6.1, 5.11); formats may differ.

    A quiet NaN raises INVALID, as 754's relational operators do; not with `signaling=False`.

    >>> import floatsim as fs
    >>> fs.greater_equal(fs.array([1.0, float("nan")], "bf16"), 2.0)
    array([False, False])
    """
    return _compare("greater_equal", a, b, _GREATER | _EQUAL, signaling, how, out)


def unordered(a: Any, b: Any, *, signaling: bool = False, out: Any = None, **how: Unpack[How]) -> Any:
    """Whether a or b is NaN, by value (IEEE 754-2019, 5.6.1, 5.11); formats may differ.

    A quiet NaN raises nothing, unless `signaling=True`.

    >>> import floatsim as fs
    >>> fs.unordered(fs.array([1.0, float("nan")], "bf16"), 2.0)
    array([False,  True])
    """
    return _compare("unordered", a, b, _UNORDERED, signaling, how, out)


@implements(np.array_equal)
def _array_equal(a: Any, b: Any, equal_nan: bool = False) -> bool:
    """By value, as NumPy's: formats may differ, -0 equals +0, and NaN only itself with `equal_nan`."""
    if np.shape(a) != np.shape(b):
        return False
    same = np.asarray(equal(a, b))
    return bool(np.all(same | (np.asarray(isnan(a)) & np.asarray(isnan(b))) if equal_nan else same))


# -- looking at codes ----------------------------------------------------------------------------------------------


def classify(a: Any) -> Any:
    """The class of each element, a uint8 array of `fs.FloatClass` numbers (IEEE 754-2019, 5.7.2).

    >>> import floatsim as fs
    >>> [fs.FloatClass(c).name for c in fs.classify(fs.array([1.0, -1e-7, float("inf")], "fp16"))]
    ['POSITIVE_NORMAL', 'NEGATIVE_SUBNORMAL', 'POSITIVE_INFINITY']
    """
    ((codes, fmt),), _ = _read_operands({"a": a}, None)
    return backends.emulator().classify(codes, fmt)[()]


def _is(*classes: FloatClass) -> NDArray[np.bool_]:
    return np.isin(np.arange(len(FloatClass)), classes)


def _predicate(holds: NDArray[np.bool_], a: Any, out: NDArray[np.bool_] | None) -> Any:
    result = holds[classify(a)]
    if out is None:
        return result[()]
    out[...] = result
    return out


_NAN = _is(FloatClass.SIGNALING_NAN, FloatClass.QUIET_NAN)
_INFINITE = _is(FloatClass.NEGATIVE_INFINITY, FloatClass.POSITIVE_INFINITY)
_SUBNORMAL = _is(FloatClass.NEGATIVE_SUBNORMAL, FloatClass.POSITIVE_SUBNORMAL)


@implements(np.isnan)
def isnan(a: Any, *, out: Any = None) -> Any:
    """Whether each element is NaN (IEEE 754-2019, 5.7.2).

    >>> import floatsim as fs
    >>> fs.isnan(fs.array([1.0, float("nan")], "fp16"))
    array([False,  True])
    """
    return _predicate(_NAN, a, out)


@implements(np.isinf)
def isinf(a: Any, *, out: Any = None) -> Any:
    """Whether each element is infinite (IEEE 754-2019, 5.7.2).

    >>> import floatsim as fs
    >>> fs.isinf(fs.array([1.0, float("inf")], "fp16"))
    array([False,  True])
    """
    return _predicate(_INFINITE, a, out)


@implements(np.isfinite)
def isfinite(a: Any, *, out: Any = None) -> Any:
    """Whether each element is finite (IEEE 754-2019, 5.7.2).

    >>> import floatsim as fs
    >>> fs.isfinite(fs.array([1.0, float("inf")], "fp16"))
    array([ True, False])
    """
    return _predicate(~(_NAN | _INFINITE), a, out)


def issubnormal(a: Any) -> Any:
    """Whether each element is subnormal (IEEE 754-2019, 5.7.2).

    >>> import floatsim as fs
    >>> fs.issubnormal(fs.array([1.0, 1e-7], "fp16"))
    array([False,  True])
    """
    return _predicate(_SUBNORMAL, a, None)


@implements(np.signbit)
def signbit(a: Any) -> Any:
    """Whether each element's sign bit is set, NaNs too (isSignMinus, IEEE 754-2019, 5.7.2). FNUZ's NaN has sign 0.

    >>> import floatsim as fs
    >>> fs.signbit(fs.array([-0.0, 1.0], "fp16"))
    array([ True, False])
    """
    ((codes, fmt),), _ = _read_operands({"a": a}, None)
    negative_codes = codes & fmt.code_dtype.type(fmt.sign_mask) != 0
    if not fmt.has_signed_zero:
        negative_codes &= codes != fmt.canonical_nan
    return np.asarray(negative_codes)[()]


def total_order(a: Any, b: Any) -> Any:
    """totalOrder(a, b): -NaN <= -inf <= ... <= -0 <= +0 <= ... <= inf <= NaN, by codes (IEEE 754-2019, 5.10).

    Raises TypeError if the formats differ.

    >>> import floatsim as fs
    >>> fs.total_order(fs.array([0.0, -0.0], "fp16"), fs.array([-0.0, 0.0], "fp16"))
    array([False,  True])
    """
    operands, _ = _read_operands({"a": a, "b": b}, None)
    _check_shapes({"a": a, "b": b}, operands)
    (x, fmt), (y, _) = operands
    return backends.emulator().total_order(x, y, fmt)[()]
