"""Element-wise operations on arrays of codes: formats and roundings become parameter vectors, arrays flat codes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from floatsim_kernels.elementwise import loops

from floatsim.emulator import elementwise_fast, tables
from floatsim.emulator.elementwise_events import EventKernel, event_kernel, rare_elements
from floatsim.emulator.params import format_params, rounding_params
from floatsim.emulator.pieces import Array, Arrays, Codes, Events, flattened, run_in_pieces
from floatsim.emulator.types import Seeds
from floatsim.formats import FP32, FP64, FloatFormat
from floatsim.formats.call import CallOptions
from floatsim.formats.rounding import Overflow, Rounding, RoundingAttributes
from floatsim.formats.value_sets import contains
from floatsim.reference import below_zero

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "Operand", "by_integers", "classify", "compare", "convert", "decode", "elementwise", "from_integer", "logb",
    "neighbour", "quantize", "scalb", "to_integer", "total_order",
]  # fmt: skip

Operand: TypeAlias = tuple[Any, FloatFormat]

_U64 = np.dtype(np.uint64)


def _working_dtype(formats: list[FloatFormat]) -> np.dtype[Any]:
    """Return one dtype for all codes of a call, so that a kernel is compiled for four dtypes, not for all pairs."""
    dtypes = {fmt.code_dtype for fmt in formats}
    return dtypes.pop() if len(dtypes) == 1 else _U64


_OPERATIONS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "add": (loops.add, (0,)),
    "subtract": (loops.add, (1,)),
    "multiply": (loops.multiply, ()),
    "divide": (loops.divide, ()),
    "remainder": (loops.remainder, (1,)),
    "fmod": (loops.remainder, (0,)),
    "minimum": (loops.extremum, (0, 0)),
    "maximum": (loops.extremum, (1, 0)),
    "minimum_number": (loops.extremum, (0, 1)),
    "maximum_number": (loops.extremum, (1, 1)),
    "convert": (loops.convert, ()),
    "sqrt": (loops.sqrt, ()),
    "fma": (loops.fma, ()),
    "floor": (loops.rint, (Rounding.TOWARD_NEGATIVE.value, 0)),
    "ceil": (loops.rint, (Rounding.TOWARD_POSITIVE.value, 0)),
    "trunc": (loops.rint, (Rounding.TOWARD_ZERO.value, 0)),
}


def elementwise(
    name: str,
    operands: list[Operand],
    fmt: FloatFormat,
    options: CallOptions,
    want_events: bool = True,
    out: Codes | None = None,
) -> tuple[Codes, Events | None]:
    """Return (codes in `fmt`, event bytes) of an operation on broadcastable arrays of codes.

    Without `want_events` the events are None. The codes may use the memory of `out`, which has the shape of the result.
    """
    if not want_events and (direct := elementwise_fast.native(name, operands, fmt, options)) is not None:
        return direct, None
    sources = tuple(source for _, source in operands)
    shapes = {codes.shape for codes, _ in operands}
    shape = shapes.pop() if len(shapes) == 1 else np.broadcast_shapes(*(codes.shape for codes, _ in operands))
    run = _fastest(name, sources, fmt, options, math.prod(shape), want_events)
    if run is None:
        return by_integers(name, operands, shape, fmt, options)
    flat = [flattened(codes, shape, source.code_dtype) for codes, source in operands]
    results = out if out is not None and _may_write(out, flat) else np.empty(shape, fmt.code_dtype)
    events = np.empty(shape, np.uint8) if want_events else None
    arrays = flat if events is None else [*flat, events.reshape(-1)]
    run_in_pieces(name, run, arrays, results.reshape(-1), options, fast=not want_events)
    return results, events


_Run: TypeAlias = Callable[[Arrays, Array, Seeds], None]
_FASTEST_IN_TABLES = {
    "add", "subtract", "multiply", "divide", "remainder", "fmod", "sqrt", "rint", "floor", "ceil", "trunc"
}  # fmt: skip
"""The operations of 8-bit codes for which a table is faster than a kernel."""


def _fastest(
    name: str, sources: tuple[FloatFormat, ...], fmt: FloatFormat, options: CallOptions, size: int, want_events: bool
) -> _Run | None:
    """Return the table or the fast kernels that compute a call, or None if only the integer kernels do."""
    attributes = options.attributes
    has_table = tables.is_worthwhile(sources, attributes, size)
    if has_table and name in _FASTEST_IN_TABLES and all(source.bits <= 8 for source in sources):
        return tables.reader(_in_integers, name, sources, fmt, attributes, want_events)
    fast = elementwise_fast.kernel_for(name, sources, fmt, attributes)
    if fast is not None:
        run = _completed(name, sources, fmt, attributes, fast) if fast.block else fast.run
        if not want_events:
            return run
        if (find_events := event_kernel(name, sources, fmt, attributes, size)) is not None:
            return _fast_with_events(name, sources, fmt, options, run, find_events)
    return tables.reader(_in_integers, name, sources, fmt, attributes, want_events) if has_table else None


def _in_integers(
    name: str, operands: list[Operand], fmt: FloatFormat, options: CallOptions, want_events: bool
) -> tuple[Codes, Events]:
    """Compute the entries of a table."""
    return by_integers(name, operands, operands[0][0].shape, fmt, options)


def _completed(
    name: str, sources: tuple[FloatFormat, ...], fmt: FloatFormat, attributes: RoundingAttributes,
    fast: elementwise_fast.FastKernel,
) -> _Run:  # fmt: skip
    """Return the kernel `fast` with the integer kernels for the blocks that it leaves undecided."""
    integers, dtype = _integer_loop(name, sources, fmt, attributes), _working_dtype([fmt, *sources])

    def run(pieces: Arrays, written: Array, draws: Seeds) -> None:
        for block in np.flatnonzero(fast.run(pieces, written, draws)):
            start = int(block) * fast.block
            part = slice(start, start + fast.block)
            codes = [x[part].astype(dtype, copy=False) for x in pieces]
            out, happened = _results(codes[0].shape, dtype)
            integers([*codes, happened], out, draws + np.array([0, start], np.uint64))
            written[part] = out

    return run


def _fast_with_events(
    name: str, sources: tuple[FloatFormat, ...], fmt: FloatFormat, options: CallOptions,
    fast: _Run, find_events: EventKernel,
) -> _Run:  # fmt: skip
    """Return the kernel that writes results and their events. The integer kernels decide the rare elements."""

    def run(pieces: Arrays, written: Array, draws: Seeds) -> None:
        *codes, happened = pieces
        fast(codes, written, draws)
        find_events(codes, written, happened)
        rare = rare_elements(happened)
        if rare.size:
            operands = [(x[rare], source) for x, source in zip(codes, sources, strict=True)]
            _, happened[rare] = by_integers(name, operands, rare.shape, fmt, options)

    return run


def by_integers(
    name: str, operands: list[Operand], shape: tuple[int, ...], fmt: FloatFormat, options: CallOptions
) -> tuple[Codes, Events]:
    """Return (codes, event bytes) of the integer kernels, which take every case."""
    sources = tuple(source for _, source in operands)
    dtype = _working_dtype([fmt, *sources])
    flat = [flattened(codes, shape, dtype) for codes, _ in operands]
    out, events = _results(shape, dtype)
    run = _integer_loop(name, sources, fmt, options.attributes)
    run_in_pieces(name, run, [*flat, events], out, options)
    rounded = out.astype(fmt.code_dtype, copy=False)
    if _cuts_negative(fmt):
        values = decode(flat[0].astype(operands[0][1].code_dtype, copy=False), operands[0][1])
        _write_below_zero(rounded, events, values, fmt, options.attributes)
    return rounded.reshape(shape), events.reshape(shape)


def _integer_loop(
    name: str, sources: tuple[FloatFormat, ...], fmt: FloatFormat, attributes: RoundingAttributes
) -> _Run:
    """Return the integer kernel of an operation, for flat arrays: the operands' codes and the events."""
    extra: tuple[int, ...]
    if name == "rint":
        loop, extra = loops.rint, (attributes.rounding.value, 1)
    else:
        loop, extra = _OPERATIONS[name]
    params, rounding = [format_params(source) for source in sources], rounding_params(attributes)

    def run(pieces: Arrays, written: Array, draws: Seeds) -> None:
        *codes, happened = pieces
        read = [x for pair in zip(codes, params, strict=True) for x in pair]
        loop(*read, *extra, written, format_params(fmt), rounding, draws, happened)

    return run


def _cuts_negative(fmt: FloatFormat) -> bool:
    """Return whether results in a format need `_write_below_zero`."""
    return fmt.is_scale and fmt.has_zero


def _write_below_zero(
    codes: Codes, events: Events, values: NDArray[Any], fmt: FloatFormat, attributes: RoundingAttributes
) -> None:
    """Write the results of negative values in an unsigned format. The kernels rounded their magnitudes.

    Results that were rounded to zero stay.
    """
    cut = (values < 0) & (codes != 0)
    infinite = values == -np.inf
    codes[cut], events[cut] = below_zero(fmt, attributes)
    saturated = attributes.overflow is Overflow.SATURATE_FINITE
    codes[infinite], events[infinite] = 0 if saturated else fmt.canonical_nan or 0, 0


def _may_write(out: Codes, read: list[Codes]) -> bool:
    """Return whether a kernel may write to `out` while it reads the operands."""
    return out.flags.c_contiguous and not any(np.may_share_memory(out, codes) for codes in read)


def _results(shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[NDArray[Any], Events]:
    return np.empty(math.prod(shape), dtype), np.empty(math.prod(shape), np.uint8)


def convert(
    codes: Codes, source: FloatFormat, fmt: FloatFormat, options: CallOptions, want_events: bool = True,
    out: Codes | None = None,
) -> tuple[Codes, Events | None]:  # fmt: skip
    """Return (codes in `fmt`, event bytes if wanted) of a conversion. The codes may use the memory of `out`."""
    return elementwise("convert", [(codes, source)], fmt, options, want_events, out)


_EXACT = CallOptions(RoundingAttributes())


def decode(codes: Codes, fmt: FloatFormat, out: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """Return the exact values as float64, in `out` if given. Every NaN becomes the canonical NaN."""
    if out is None:
        return elementwise("convert", [(codes, fmt)], FP64, _EXACT, False)[0].view(np.float64)
    target = out.view(np.uint64)
    values, _ = elementwise("convert", [(codes, fmt)], FP64, _EXACT, False, target)
    if values is not target:
        target[...] = values
    return out


def scalb(codes: Codes, fmt: FloatFormat, n: NDArray[np.int64], options: CallOptions) -> tuple[Codes, Events]:
    """Return (codes, events) of codes * 2**n."""
    shape = np.broadcast_shapes(codes.shape, n.shape)
    out, events = _results(shape, fmt.code_dtype)
    params, rounding = format_params(fmt), rounding_params(options.attributes)

    def run(pieces: Arrays, written: Array, draws: Seeds) -> None:
        x, exponents, happened = pieces
        loops.scalb(x, params, exponents, written, params, rounding, draws, happened)

    flat = [flattened(codes, shape, fmt.code_dtype), flattened(n, shape, np.dtype(np.int64)), events]
    run_in_pieces("scalb", run, flat, out, options)
    return out.reshape(shape), events.reshape(shape)


def _integer_limits(dtype: np.dtype[Any]) -> Any:
    """Return the limits of an integer dtype of NumPy or ml_dtypes."""
    if dtype.kind != "V":
        return np.iinfo(dtype)
    import ml_dtypes

    return ml_dtypes.iinfo(dtype)


def to_integer(
    codes: Codes, fmt: FloatFormat, dtype: np.dtype[Any], options: CallOptions
) -> tuple[NDArray[Any], Events]:
    """Return (integers, events). Values outside the dtype's range saturate with INVALID."""
    info = _integer_limits(dtype)
    ends = np.uint64(-int(info.min)), np.uint64(info.max)
    out, events = _results(codes.shape, _U64)
    params, rounding = format_params(fmt), rounding_params(options.attributes)

    def run(pieces: Arrays, written: Array, draws: Seeds) -> None:
        x, happened = pieces
        loops.to_integer(x, params, *ends, written, rounding, draws, happened)

    run_in_pieces("to_integer", run, [flattened(codes, codes.shape, fmt.code_dtype), events], out, options)
    if dtype.kind == "V":  # of ml_dtypes, which casts from signed integers
        out = out.view(np.int64)
    return out.astype(dtype).reshape(codes.shape), events.reshape(codes.shape)


def from_integer(n: NDArray[np.integer[Any]], fmt: FloatFormat, options: CallOptions) -> tuple[Codes, Events]:
    """Return (codes, events) of an integer array, each rounded once."""
    bits = n.astype(np.int64, copy=False).view(np.uint64) if n.dtype.kind == "i" else n.astype(np.uint64, copy=False)
    negative = (n < 0).astype(np.uint8)
    magnitude = np.where(negative, np.uint64(0) - bits, bits)
    out, events = _results(n.shape, fmt.code_dtype)
    params, rounding = format_params(fmt), rounding_params(options.attributes)

    def run(pieces: Arrays, written: Array, draws: Seeds) -> None:
        signs, magnitudes, happened = pieces
        loops.from_integer(signs, magnitudes, written, params, rounding, draws, happened)

    flat = [flattened(negative, n.shape, np.dtype(np.uint8)), flattened(magnitude, n.shape, _U64), events]
    run_in_pieces("from_integer", run, flat, out, options)
    rounded = out.astype(fmt.code_dtype, copy=False)
    if _cuts_negative(fmt):
        _write_below_zero(rounded, events, -flat[0].astype(np.float64), fmt, options.attributes)
    return rounded.reshape(n.shape), events.reshape(n.shape)


def compare(
    a: Operand, b: Operand, holds: tuple[bool, ...], daz: bool, signaling: bool, want_events: bool
) -> tuple[NDArray[np.bool_], Events | None]:
    """Return whether a relation of `holds` is true, and the events if wanted.

    `holds` has a bool for each relation: less, equal, greater, unordered.
    """
    shape = np.broadcast_shapes(a[0].shape, b[0].shape)
    if not want_events and not daz and (common := _common_format(a[1], b[1])) is not None:
        flat = [flattened(_in_format(x, common), shape, common.code_dtype) for x in (a, b)]
        results = np.empty(math.prod(shape), np.bool_)
        run_in_pieces("compare", elementwise_fast.comparison(common, holds).run, flat, results, _EXACT)
        return results.reshape(shape), None
    dtype = _working_dtype([a[1], b[1]])
    out, events = _results(shape, np.dtype(np.uint8))

    def run(pieces: Arrays, written: Array, draws: Seeds) -> None:
        x, y, happened = pieces
        loops.compare(x, format_params(a[1]), y, format_params(b[1]), int(daz), int(signaling), written, happened)

    run_in_pieces("compare", run, [flattened(a[0], shape, dtype), flattened(b[0], shape, dtype), events], out, _EXACT)
    return np.array(holds)[out].reshape(shape), events.reshape(shape)


def _common_format(a: FloatFormat, b: FloatFormat) -> FloatFormat | None:
    """Return a format that holds the values of both, or None."""
    return next((fmt for fmt in (a, b, FP32, FP64) if contains(fmt, a) and contains(fmt, b)), None)


def _in_format(x: Operand, fmt: FloatFormat) -> Codes:
    codes, source = x
    return codes if source == fmt else elementwise("convert", [x], fmt, _EXACT, False)[0]


def neighbour(codes: Codes, fmt: FloatFormat, daz: bool, up: bool) -> tuple[Codes, Events]:
    """Return (codes, events) of next_up or next_down."""
    out, events = _results(codes.shape, fmt.code_dtype)
    params = format_params(fmt)

    def run(pieces: Arrays, written: Array, draws: Seeds) -> None:
        x, happened = pieces
        loops.neighbour(x, params, int(daz), int(up), written, happened)

    run_in_pieces(
        "next_up" if up else "next_down", run, [flattened(codes, codes.shape, fmt.code_dtype), events], out, _EXACT
    )
    if not up and _cuts_negative(fmt):
        out[codes.reshape(-1) == 0] = fmt.canonical_nan
    return out.reshape(codes.shape), events.reshape(codes.shape)


def classify(codes: Codes, fmt: FloatFormat) -> NDArray[np.uint8]:
    """Return the classes, as numbers of `FloatClass`."""
    out, params = np.empty(codes.size, np.uint8), format_params(fmt)

    def run(pieces: Arrays, written: Array, draws: Seeds) -> None:
        loops.classify(pieces[0], params, written)

    run_in_pieces("classify", run, [flattened(codes, codes.shape, fmt.code_dtype)], out, _EXACT)
    return out.reshape(codes.shape)


def total_order(a: Codes, b: Codes, fmt: FloatFormat) -> NDArray[np.bool_]:
    """Return totalOrder(a, b) of two arrays of codes of one format."""
    shape = np.broadcast_shapes(a.shape, b.shape)
    out, params = np.empty(math.prod(shape), np.bool_), format_params(fmt)

    def run(pieces: Arrays, written: Array, draws: Seeds) -> None:
        loops.total_order(*pieces, params, written)

    run_in_pieces("total_order", run, [flattened(x, shape, fmt.code_dtype) for x in (a, b)], out, _EXACT)
    return out.reshape(shape)


def logb(codes: Codes, fmt: FloatFormat, daz: bool) -> tuple[NDArray[np.int32], Events]:
    """Return (exponents, events)."""
    out, events = np.empty(codes.size, np.int32), np.empty(codes.size, np.uint8)
    params = format_params(fmt)

    def run(pieces: Arrays, written: Array, draws: Seeds) -> None:
        x, happened = pieces
        loops.logb(x, params, int(daz), written, happened)

    run_in_pieces("logb", run, [flattened(codes, codes.shape, fmt.code_dtype), events], out, _EXACT)
    return out.reshape(codes.shape), events.reshape(codes.shape)


def quantize(
    codes: Codes, carrier: FloatFormat, fmt: FloatFormat, options: CallOptions, want_events: bool, out: Codes
) -> Events | None:
    """Write the values of `codes`, rounded to `fmt`, to `out`, both in the carrier. Return event bytes if wanted."""
    fast = None if want_events else elementwise_fast.quantize(carrier, fmt, options.attributes)
    if fast is not None:
        direct = out if _may_write(out, [codes]) else np.empty_like(out, order="C")
        flat = flattened(codes, codes.shape, carrier.code_dtype)
        run_in_pieces("quantize", fast.run, [flat], direct.reshape(-1), options, fast=True)
        if direct is not out:
            out[...] = direct
        return None
    rounded, events = convert(codes, carrier, fmt, options)
    out[...] = convert(rounded, fmt, carrier, _EXACT, False)[0]
    return events
