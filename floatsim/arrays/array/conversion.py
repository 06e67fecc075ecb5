"""Conversions of values, integers and text to formats. Each value is rounded once, from its exact value."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias, Unpack

import numpy as np
from numpy.typing import DTypeLike, NDArray

from floatsim import reference
from floatsim._types import Codes
from floatsim.arrays.array.advisories import warn_of_rounded_number
from floatsim.arrays.array.float_array import FloatArray, checked_codes, from_codes, implements, native, wrap
from floatsim.arrays.array.interop import as_numpy, is_narrow_integer, stays_on_device, widened
from floatsim.arrays.array.types import (
    CodeOut,
    CodeResult,
    Float64Out,
    Float64Result,
    FloatArrayResult,
    FloatResult,
    Floats,
    IntegerResult,
    Integers,
    NanRule,
    Out,
    SameKindResult,
    Values,
)
from floatsim.arrays.call import backends
from floatsim.arrays.call.options import RoundingOptions, resolve, spell_out
from floatsim.arrays.events import record as recording
from floatsim.formats import FP64, FloatFormat, FormatLike, as_format
from floatsim.formats._validation import name_hint
from floatsim.formats.call import CallOptions
from floatsim.formats.rounding import FLAGS, Rounding, RoundingAttributes
from floatsim.formats.value_sets import contains
from floatsim.reference.random_sources import source_draw

__all__ = [
    "array", "as_float_array", "convert", "decode", "encode", "exact_number", "float_codes", "from_integer",
    "in_format", "operand_codes", "quantize", "read", "read_floats", "to_integer", "widened_exactly",
]  # fmt: skip

Exact: TypeAlias = "NDArray[np.object_]"
"""Python numbers and texts whose exact values no dtype contains."""

_TO_NEAREST = CallOptions(RoundingAttributes())


# -- reading of arguments ------------------------------------------------------------------------------------------


def float_codes(x: FloatArray | NDArray[Any], argument: str) -> tuple[Codes, FloatFormat]:
    """Return codes and format of a FloatArray, or of an array whose dtype is a format."""
    if isinstance(x, FloatArray):
        return x.codes, x.format
    if x.dtype.kind == "c":
        raise TypeError(f"{argument} is complex; convert its real and imaginary parts one by one")
    if x.dtype.kind == "O":
        raise TypeError(f"{argument} is an object array; make it a float or integer array, or pass a list of numbers")
    try:
        fmt = as_format(x.dtype)
    except ValueError:
        advice = f"; use fs.array({argument}, format)" if x.dtype.kind in "iu" else "; make it a float or integer array"
        raise TypeError(f"{argument} has dtype {x.dtype}, which is no format{advice}") from None
    return native(x).view(fmt.code_dtype), fmt


def _python_numbers(x: Any, argument: str) -> NDArray[Any] | Exact:
    """Return Python scalars and (nested) lists as a float64 or integer array if that is exact, else as objects."""
    boxed = np.array(x, dtype=object)
    kinds = {type(item) for item in boxed.flat}
    if all(issubclass(kind, float) for kind in kinds):  # np.float64 is a float; also the empty list
        return boxed.astype(np.float64)
    if kinds == {int}:
        for dtype in (np.int64, np.uint64):
            info = np.iinfo(dtype)
            if all(info.min <= item <= info.max for item in boxed.flat):
                return boxed.astype(dtype)
        return boxed
    if kinds == {int, float} and all(abs(item) <= 1 << 53 for item in boxed.flat if type(item) is int):
        return boxed.astype(np.float64)
    allowed = (int, float, str, Fraction, Decimal)
    for kind in kinds:
        if kind is bool or not issubclass(kind, allowed):
            if list in kinds or tuple in kinds:
                raise ValueError(f"{argument} is a ragged list: its rows have different lengths")
            if all(issubclass(k, np.generic) for k in kinds):
                return np.asarray(x)
            raise TypeError(
                f"{argument} holds a {kind.__name__}; numbers are int, float, Fraction, Decimal, a text, "
                "or arrays of a float or integer dtype"
            )
    return boxed


def read(x: Any, argument: str = "x") -> FloatArray | NDArray[Any] | Exact:
    """Return an argument as a FloatArray, a float or integer array, or an object array of exact Python numbers."""
    if isinstance(x, FloatArray):
        return x
    if isinstance(x, np.ma.MaskedArray):
        raise TypeError(f"{argument} is a masked array, and masks are not kept; pass {argument}.filled(...)")
    if isinstance(x, np.ndarray | np.generic):
        array = widened(np.asarray(x))
        if array.dtype.kind in "OcbMm":
            float_codes(array, argument)  # raises the error for this dtype
        return array.astype(object) if array.dtype.kind in "UT" else array
    if not isinstance(x, list | tuple | int | float | str | Fraction | Decimal | complex):
        if (foreign := as_numpy(x)) is not None:
            return read(foreign, argument)
        if hasattr(x, "__array__") or hasattr(x, "__array_interface__"):
            return read(np.asarray(x), argument)
        raise TypeError(f"{argument} must be a number, a list or an array, not {type(x).__name__}")
    return _python_numbers(x, argument)


def read_floats(x: Any, argument: str) -> tuple[Codes, FloatFormat, bool]:
    """Return codes and format of an operand that must hold floats, and whether it was a FloatArray.

    Python's whole numbers, alone or in lists, count as float64 where that is exact. Integer arrays do not.
    """
    source = read(x, argument)
    if isinstance(x, int | list | tuple) and not isinstance(source, FloatArray) and source.dtype.kind in "iu":
        widened = source.astype(np.float64)
        if np.all(np.abs(widened) <= 1 << 53):
            source = widened
    if not isinstance(source, FloatArray) and source.dtype.kind == "O":
        kind = next(type(item).__name__ for item in source.flat if not isinstance(item, float))
        what = {"str": "text", "int": "an integer that is no float64 number"}.get(kind, f"a {kind}")
        raise TypeError(
            f"{argument} holds {what}, which has no format; fs.array({argument}, format) rounds it to a format, and "
            f"fs.encode({argument}, format) returns the code"
        )
    return *float_codes(source, argument), isinstance(source, FloatArray)


def as_float_array(x: Any, argument: str, format: FormatLike | None = None) -> FloatArray:
    """Return an argument as a FloatArray of the same memory, where its library allows that.

    Parameters
    ----------
    x : array_like of floats, or codes
        A FloatArray, an array of NumPy, ml_dtypes, torch, JAX or CuPy, or numbers. An array of unsigned integers, or of
        the raw bytes ("V1", "V2") that `np.load` returns for ml_dtypes, holds codes of `format`.
    argument : str
        The name of the argument in error messages.
    format : format, optional
        The format of codes. For floats, `in_format` checks it.

    Raises
    ------
    TypeError
        If x holds integers or raw bytes and no `format` of their width is given, or if it holds no floats.
    """
    if isinstance(x, FloatArray):
        return x
    source = read(x.detach() if hasattr(x, "detach") else x, argument)
    if isinstance(source, np.ndarray):
        raw = source.dtype.kind == "V" and source.dtype.names is None and not _is_float(source.dtype)
        if raw or (source.dtype.kind == "u" and not isinstance(x, int | list | tuple)):
            return _of_codes(source, argument, format)
    codes, fmt, _ = read_floats(source, argument)
    return FloatArray(np.asarray(codes), fmt)


def _is_float(dtype: np.dtype[Any]) -> bool:
    try:
        as_format(dtype)
    except (TypeError, ValueError):
        return False
    return True


def _of_codes(x: Any, argument: str, format: FormatLike | None) -> FloatArray:
    if format is None:
        raise TypeError(
            f"{argument} has dtype {x.dtype}: it holds codes, not numbers; name their format, as in format='bf16'"
        )
    fmt = as_format(format)
    if x.dtype.itemsize != fmt.code_dtype.itemsize:
        raise TypeError(f"{argument} has dtype {x.dtype}; codes of {fmt.name} have {fmt.code_dtype}")
    return from_codes(x.view(fmt.code_dtype), fmt)


def exact_number(x: Any, argument: str, daz: bool = False) -> reference.Number:
    """Return the exact value of a Python number or text."""
    if isinstance(x, str):
        try:
            return reference.from_text(x)
        except ValueError as error:
            raise ValueError(f"{argument} is {error}") from None
    if isinstance(x, float):
        return reference.decode(int(np.float64(x).view(np.uint64)), FP64, daz)
    return reference.from_text(str(x)) if isinstance(x, Decimal) else reference.from_fraction(Fraction(x))


def _encode_exact(x: Exact, fmt: FloatFormat, options: CallOptions, argument: str) -> tuple[Codes, NDArray[np.uint8]]:
    """Return codes and events of exact numbers, converted one by one by the reference."""
    codes, events = np.empty(x.shape, fmt.code_dtype), np.empty(x.shape, np.uint8)
    attributes = options.attributes
    for i, item in enumerate(x.flat):
        random = 0
        if attributes.rounding is Rounding.STOCHASTIC:
            index = (options.offset + i) % (1 << 64)
            random = source_draw(attributes.source, options.seed, index, attributes.random_bits)
        code, happened = reference.convert(exact_number(item, argument, attributes.daz), fmt, attributes, random)
        codes.flat[i], events.flat[i] = code, happened
    return codes, events


def wants_events(options: CallOptions) -> bool:
    """Return whether a call must compute its events: for its flags, or for a log."""
    return options.return_flags or recording.recording()


def in_format(x: FloatArray, fmt: FloatFormat, options: CallOptions) -> FloatArray:
    """Return x in a format, without a record of events."""
    codes, _ = _backend(x.format, fmt).convert(x.codes, x.format, fmt, options, False, None)
    return FloatArray(codes, fmt)


def widened_exactly(x: FloatArray, fmt: FloatFormat) -> FloatArray:
    """Return x in a format that contains its own. No option of the context applies, and no event happens.

    >>> import floatsim as fs
    >>> with fs.context(rounding="stochastic"):
    ...     widened_exactly(fs.from_codes([0x38], "e4m3"), fs.FP16)
    FloatArray([1.0], FP16)
    """
    return in_format(x, fmt, _TO_NEAREST)


class _Converted(NamedTuple):
    """The result of a conversion: codes, events, whether the input was a FloatArray, and the operands for the log."""

    codes: Codes
    events: NDArray[np.uint8] | None
    float_array: bool
    operands: list[tuple[Any, FloatFormat | None]]


def _backend(*formats: FloatFormat) -> ModuleType:
    """Return the backend of a conversion. P3109's unsigned formats are in the emulator alone."""
    for fmt in formats:
        if fmt.is_scale and fmt.has_zero:
            return backends.emulator()
    return backends.current()


def _to_codes(x: Any, fmt: FloatFormat, options: CallOptions, argument: str, out: Codes | None = None) -> _Converted:
    """Return the codes of x, and the events if the call needs them. The codes may use the memory of `out`."""
    source = read(x, argument)
    _check_shape(out, source.shape, argument)
    wanted = wants_events(options)
    if isinstance(source, FloatArray) or source.dtype.kind not in "Oiu":
        operand = float_codes(source, argument)
        codes, events = _backend(operand[1], fmt).convert(*operand, fmt, options, wanted, out)
        return _Converted(codes, events, isinstance(source, FloatArray), [operand])
    if source.dtype.kind == "O":
        codes, events = _encode_exact(source, fmt, options, argument)
    else:
        source = native(source)
        codes, events = backends.emulator().from_integer(source, fmt, options)
    return _Converted(codes, events, False, [(source, None)])


@implements("operand_codes")
def operand_codes(x: Any, fmt: FloatFormat, argument: str) -> Codes:
    """Return the codes of an operand that must have format `fmt`. A Python number is rounded to it, ties to even.

    A FloatsimWarning says that the number changes by more than 10 %.
    """
    if isinstance(x, int | float | str | Fraction | Decimal) and not isinstance(x, bool | np.generic):
        codes = _to_codes(x, fmt, _TO_NEAREST, argument).codes
        if isinstance(x, int | float):
            warn_of_rounded_number(x, codes, fmt, argument)
        return codes
    source = read(x, argument)
    codes, own = float_codes(source, argument)
    if own != fmt:
        raise TypeError(f"{argument} is {own.name}, but must be {fmt.name}; write fs.convert({argument}, {fmt.name!r})")
    return codes


def out_codes(out: Any, fmt: FloatFormat, shape: tuple[int, ...]) -> Codes:
    """Return the codes of an `out=` array, which must have the format and the shape of the result."""
    if not isinstance(out, FloatArray | np.ndarray):
        raise TypeError(f"out must be an array, not {type(out).__name__}")
    codes, own = (out.codes, out.format) if isinstance(out, FloatArray) else float_codes(out, "out")
    if own != fmt or codes.shape != shape:
        raise ValueError(f"out is {own.name} {codes.shape}, but the result is {fmt.name} {shape}")
    if isinstance(out, np.ndarray) and not out.dtype.isnative:
        raise ValueError("out must have the machine's byte order")
    if not codes.flags.writeable:
        raise ValueError("out is read-only")
    return codes


def finish(
    operation: str, result: Any, events: NDArray[np.uint8] | None, options: CallOptions,
    operands: Sequence[tuple[Any, FloatFormat | None]], where: tuple[Any, FloatFormat] | None = None,
) -> Any:  # fmt: skip
    """Write the events to the logs and return `result`, or (result, flags) if the call requests flags.

    Events may be None if nothing needs them.
    """
    if events is None:
        return result
    recording.note(operation, events, operands, where)
    return with_flags(result, events, options)


def with_flags(result: Any, events: NDArray[np.uint8], options: CallOptions) -> Any:
    """Return `result`, or (result, flags) if the call requests flags."""
    return (result, (events & FLAGS)[()]) if options.return_flags else result


# -- the public functions ------------------------------------------------------------------------------------------


@spell_out(RoundingOptions)
def encode(x: Values, format: FormatLike, *, out: CodeOut = None, **options: Unpack[RoundingOptions]) -> CodeResult:
    """Round values to a format and return their codes.

    Parameters
    ----------
    x : array_like
        float64, float32, float16 or ml_dtypes arrays, FloatArrays, integer arrays, Python numbers of any size
        (int, float, Fraction, Decimal), texts ("0.1", "0x1.8p3", "1/3"), or lists of these. Each is
        rounded once, from its exact value.
    format : format
        Where to: anything `as_format` takes.
    out : ndarray of unsigned int, optional
        Where to write the codes: of x's shape and of the dtype `format.code_dtype`. It may not be x.
    {keywords}

    Returns
    -------
    ndarray of unsigned int
        The codes, `format.code_dtype`, in the shape of x. With `return_flags`, (codes, flags).

    Raises
    ------
    TypeError
        For an input that is not a number, and for unknown keywords.
    ValueError
        For unknown names of options, and for stochastic rounding without a seed.

    Notes
    -----
    convertFormat of IEEE 754-2019, 5.4.2; convertFromDecimalCharacter, 5.12.2. Every NaN becomes the canonical NaN.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.encode([464.0, 465.0], "e4m3"), fs.encode(465.0, "e4m3", overflow="saturate_finite")
    (array([126, 127], dtype=uint8), np.uint8(126))
    >>> fs.encode("0.1", "bf16", return_flags=True)
    (np.uint16(15821), np.uint8(1))
    """
    format, call_options = as_format(format), resolve(options)
    target = None if out is None else _writable(out, format.code_dtype)
    codes, events, _, operands = _to_codes(x, format, call_options, "x", target)
    if target is not None and codes is not target:
        target[...] = codes
    result = codes[()] if out is None else out
    return finish("encode", result, events, call_options, operands, (codes, format))


def _writable(out: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return an `out=` array that must have a dtype, or raise an error."""
    if not isinstance(out, np.ndarray):
        raise TypeError(f"out must be an ndarray, not {type(out).__name__}")
    if out.dtype != dtype:
        raise TypeError(f"out has dtype {out.dtype}, but the result has {dtype}")
    if not out.flags.writeable:
        raise ValueError("out is read-only")
    return out


def _check_shape(out: NDArray[Any] | None, shape: tuple[int, ...], argument: str) -> None:
    """Raise a ValueError if `out` has not the shape of the argument that is converted."""
    if out is not None and out.shape != shape:
        raise ValueError(f"out has the shape {out.shape}, but {argument} has {shape}")


def decode(codes: Integers, format: FormatLike, *, out: Float64Out = None) -> Float64Result:
    """Return the values of codes as float64, exactly. Every NaN becomes the canonical NaN.

    Parameters
    ----------
    codes : array_like of int
        Codes, 0 to 2**bits - 1.
    format : format
        The format of the codes.
    out : ndarray of float64, optional
        Where to write the values: of the shape of `codes`.

    Returns
    -------
    ndarray of float64, of the same shape

    Raises
    ------
    TypeError
        If `codes` are not integers.
    ValueError
        If a code does not fit the format.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.decode([0x3C00, 0x0001, 0xFC00], "fp16")
    array([1.00000000e+00, 5.96046448e-08,           -inf])
    """
    format = as_format(format)
    source = checked_codes(codes, format)
    target = None if out is None else _writable(out, np.dtype(np.float64))
    _check_shape(target, source.shape, "codes")
    values = backends.emulator().decode(source, format, target)
    return values[()] if out is None else out


@spell_out(RoundingOptions)
def array(values: Values, format: FormatLike | None = None, **options: Unpack[RoundingOptions]) -> FloatArrayResult:
    """Return a FloatArray of `values`, rounded to `format`.

    Parameters
    ----------
    values : array_like
        Float and integer arrays, FloatArrays, Python numbers of any size, texts ("0.1", "0x1.8p3"), or lists of these,
        as in `fs.encode`.
    format : format, optional
        Default: the format that the values' dtype is (float64 for Python floats).
    {keywords}

    Returns
    -------
    FloatArray
        With `return_flags`, (FloatArray, flags).

    Raises
    ------
    TypeError
        For an input that is not a number, for unknown keywords, and for integers without `format`.
    ValueError
        For unknown names of options, and for stochastic rounding without a seed.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.array([0.1, 1/3, 1e5], fs.BF16)
    FloatArray([0.1001, 0.334, 9.984e+04], BF16)
    """
    if format is None:
        format = float_codes(read(values, "values"), "values")[1]
    format, call_options = as_format(format), resolve(options)
    codes, events, _, operands = _to_codes(values, format, call_options, "values")
    return finish("encode", FloatArray(codes, format), events, call_options, operands, (codes, format))


@implements("convert")
@stays_on_device
@spell_out(RoundingOptions)
def convert(
    x: Values, format: FormatLike, *, nan: NanRule = "canonical", **options: Unpack[RoundingOptions]
) -> FloatResult:
    """Round values to a format and return an array of that format.

    Parameters
    ----------
    x : array_like
        Float and integer arrays, FloatArrays, Python numbers of any size, texts ("0.1", "0x1.8p3"), or lists of these,
        as in `fs.encode`.
    format : format
        Where to.
    nan : {"canonical", "ml_dtypes", "cuda"}
        The code of a NaN. "canonical": the format's canonical NaN. "ml_dtypes": that, with the sign of x. "cuda": the
        code that PyTorch returns on an NVIDIA H200, mostly all ones; there E8M0 takes the magnitude of x, too. Both
        take arrays of floats.
    {keywords}

    Returns
    -------
    FloatArray or ndarray
        A FloatArray if x is one, or if the format has no dtype. Otherwise an array of the format's dtype.
        With `return_flags`, (array, flags).

    Raises
    ------
    TypeError
        For an input that is not a number, and for unknown keywords.
    ValueError
        For unknown names of options, for stochastic rounding without a seed, and for formats that a rule of NaN does
        not have.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> fs.convert(np.float32([1e-8, 70000]), "fp16", rounding="toward_positive")
    array([6.e-08,    inf], dtype=float16)
    >>> fs.convert([1.2345], "tf32")
    FloatArray([1.2344], TF32)
    >>> [hex(fs.convert(np.float32([-np.nan]), "fp16", nan=n).view(np.uint16)[0]) for n in ("canonical", "cuda")]
    ['0x7e00', '0x7fff']
    """
    format, call_options = as_format(format), resolve(options)
    if nan != "canonical" and nan not in (rules := backends.emulator().NAN_RULES):
        raise ValueError(f"nan={nan!r} is not known; {name_hint(nan, rules)}")
    if nan == "canonical" and isinstance(x, FloatArray) and not wants_events(call_options):
        return in_format(x, format, call_options)
    codes, events, float_array, operands = _to_codes(x, format, call_options, "x")
    if nan != "canonical":
        ((values, source),) = operands
        if source is None:
            raise TypeError(f"nan={nan!r} takes arrays of floats, not {values.dtype}; fs.array(x, 'fp32') makes one")
        codes = backends.emulator().with_nan_rule(nan, values, source, codes, format, call_options)
    return finish("convert", wrap(codes, format, float_array), events, call_options, operands, (codes, format))


@stays_on_device
@spell_out(RoundingOptions)
def quantize(x: Floats, format: FormatLike, *, out: Out = None, **options: Unpack[RoundingOptions]) -> SameKindResult:
    """Round values to the values of a format and keep them in their own dtype.

    Parameters
    ----------
    x : array_like of floats
        A float array, a FloatArray, or Python floats (float64).
    format : format
        The format whose values the results will have.
    out : FloatArray or ndarray, optional
        Where to write the result: of x's shape and dtype. It may be x itself.
    {keywords}

    Returns
    -------
    ndarray or FloatArray
        An array of the kind, dtype and shape of x. With `return_flags`, (array, flags).

    Raises
    ------
    TypeError
        If x has no float dtype, or a dtype that does not contain all values of the format; `fs.convert` accepts both.
    ValueError
        For unknown names of options, and for stochastic rounding without a seed.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> fs.quantize(np.float32([0.1, 300, 1e-5]), "e4m3")
    array([1.015625e-01, 2.880000e+02, 0.000000e+00], dtype=float32)
    """
    format, call_options = as_format(format), resolve(options)
    codes, carrier, float_array = read_floats(x, "x")
    if not contains(carrier, format):
        raise TypeError(f"{carrier.name} cannot hold all values of {format.name}; use fs.convert(x, {format.name!r})")
    wanted = wants_events(call_options)
    target = np.empty(codes.shape, codes.dtype) if out is None else out_codes(out, carrier, codes.shape)
    if wanted and np.may_share_memory(target, codes):
        codes = codes.copy()  # the log shows the operands
    events = _backend(carrier, format).quantize(codes, carrier, format, call_options, wanted, target)
    result = wrap(target, carrier, float_array) if out is None else out
    if events is None:
        return result
    return finish("quantize", result, events, call_options, [(codes, carrier)], (target, carrier))


@spell_out(RoundingOptions)
def to_integer(x: Floats, dtype: DTypeLike, **options: Unpack[RoundingOptions]) -> IntegerResult:
    """Round to integers of a NumPy dtype (IEEE 754-2019, 5.8): by default to nearest, not toward zero as C does.

    Parameters
    ----------
    x : array_like of floats
        A FloatArray, a float array, or Python floats.
    dtype : dtype
        An integer dtype, as np.int32 or ml_dtypes.int4. Values beyond its range saturate with INVALID; NaN becomes 0
        with INVALID.
    {keywords}

    Returns
    -------
    ndarray of `dtype`
        With `return_flags`, (integers, flags).

    Raises
    ------
    TypeError
        If `dtype` is no integer dtype.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> fs.to_integer([2.5, 3e9, float("nan")], np.int32, return_flags=True)
    (array([         2, 2147483647,          0], dtype=int32), array([ 1, 16, 16], dtype=uint8))
    """
    call_options, kind = resolve(options), np.dtype(dtype)
    if kind.kind not in "iu" and not is_narrow_integer(kind):
        raise TypeError(f"dtype must be an integer dtype such as np.int32, not {kind}")
    codes, fmt, _ = read_floats(x, "x")
    out, events = backends.emulator().to_integer(codes, fmt, kind.newbyteorder("="), call_options)
    return finish("to_integer", out[()], events, call_options, [(codes, fmt)])


@spell_out(RoundingOptions)
def from_integer(n: Integers, format: FormatLike, **options: Unpack[RoundingOptions]) -> FloatResult:
    """Round integers of any size to a format (convertFromInt, IEEE 754-2019, 5.4.1).

    Parameters
    ----------
    n : array_like of int
        An integer array, or Python integers of any size.
    format : format
        Where to.
    {keywords}

    Returns
    -------
    ndarray or FloatArray
        An array of the format's dtype, or a FloatArray if the format has no dtype. With `return_flags`, (array, flags).

    Raises
    ------
    TypeError
        If `n` are not integers.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.from_integer(2**60 + 2**36 + 1, "fp32")
    np.float32(1.1529216e+18)
    """
    source = read(n, "n")
    integers = not isinstance(source, FloatArray) and (
        source.dtype.kind in "iu" or (source.dtype.kind == "O" and all(type(item) is int for item in source.flat))
    )
    if not integers:
        raise TypeError("n must be integers; fs.convert accepts floats")
    return convert(n, format, **options)


@implements(np.where)
def _where(condition: Any, *choices: Any) -> Any:
    if isinstance(condition, FloatArray):
        condition = condition.nonzero()
    if not choices:
        return np.where(condition)
    x, y = choices
    formats = [v.format for v in (x, y) if isinstance(v, FloatArray)]
    if not formats:
        return np.where(condition, x, y)
    fmt: FloatFormat = formats[0]
    codes = [operand_codes(v, fmt, name) for name, v in (("x", x), ("y", y))]
    return FloatArray(np.where(np.asarray(condition), *codes), fmt)
