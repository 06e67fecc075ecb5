"""Operations by integer kernels, which take every case; also the exponents, neighbours and integers of numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from floatsim_kernels.elementwise import loops

from floatsim._types import Codes, Seeds
from floatsim.emulator.elementwise.case import Case
from floatsim.emulator.elementwise.kernel import Cut, Kernel, PlanPart, Run
from floatsim.emulator.elementwise.operations import Family
from floatsim.emulator.elementwise.pieces import NO_DRAWS, Array, Arrays, Events, draws_of, flattened, in_pieces
from floatsim.emulator.params import format_params, rounding_params
from floatsim.emulator.random_draws import with_draws
from floatsim.formats import FP64, FloatFormat
from floatsim.formats.call import CallOptions
from floatsim.formats.rounding import Overflow, RoundingAttributes
from floatsim.reference import below_zero

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Integers", "from_integer", "logb", "neighbour", "scalb", "to_integer", "working_dtype"]


def working_dtype(*formats: FloatFormat) -> np.dtype[Any]:
    """Return one dtype for all codes of a call, so that a kernel is compiled for four dtypes, not for all pairs."""
    dtypes = {fmt.code_dtype for fmt in formats}
    return dtypes.pop() if len(dtypes) == 1 else np.dtype(np.uint64)


class Integers:
    """Computes on integers, with events. Never refuses."""

    name = "integers"
    takes = frozenset(Family) - {Family.FUNCTION, Family.QUANTIZATION}

    def refusal(self, case: Case) -> str | None:
        return None

    def kernel(self, case: Case, plan: PlanPart) -> Kernel:
        run = _loop_of(case)
        return Kernel(_cutting_negative(case, run, plan) if _cuts_negative(case.fmt) else run, Cut.PIECES)


def _loop_of(case: Case) -> Run:
    """Return the integer kernel of an operation."""
    operation, dtype = case.operation, working_dtype(case.fmt, *case.sources)
    loop, numbers = getattr(loops, operation.loop), operation.numbers
    if case.name == "rint":
        numbers = case.attributes.rounding.value, *numbers
    sources = [format_params(source) for source in case.sources]
    params, rounding = format_params(case.fmt), rounding_params(case.attributes)

    def run(codes: Sequence[Array], out: Array, events: Events | None, draws: Seeds) -> None:
        read: list[Array] = []
        for x, source in zip(codes, sources, strict=True):
            read += x.astype(dtype, copy=False), source
        written = out if out.dtype == dtype else np.empty(out.size, dtype)
        happened = np.empty(out.size, np.uint8) if events is None else events
        drawn = with_draws(draws, out.size, case.attributes)
        loop(*read, *numbers, written, params, rounding, drawn, happened)
        if written is not out:
            out[...] = written

    return run


# -- unsigned formats --------------------------------------------------------------------------------------------------


def _cuts_negative(fmt: FloatFormat) -> bool:
    """Return whether results in a format need `_write_below_zero`."""
    return fmt.is_scale and fmt.has_zero


def _cutting_negative(case: Case, run: Run, plan: PlanPart) -> Run:
    """Return a kernel with the results of negative numbers that an unsigned format has."""
    decode = plan(case.conversion(case.sources[0], FP64)).kernel.run

    def cut(codes: Sequence[Array], out: Array, events: Events | None, draws: Seeds) -> None:
        happened = np.empty(out.size, np.uint8) if events is None else events
        run(codes, out, happened, draws)
        values = np.empty(out.size)
        decode(codes[:1], values.view(np.uint64), None, NO_DRAWS)
        _write_below_zero(out, happened, values, case.fmt, case.attributes)

    return cut


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


# -- exponents, neighbours and integers --------------------------------------------------------------------------------


def _each(
    title: str, loop: Callable[..., Any], operands: list[Array], shape: tuple[int, ...], dtype: Any,
    options: CallOptions | None = None,
) -> tuple[Array, Events]:  # fmt: skip
    """Return (results, events) of `loop(*operands, results, events, draws)` for operands that broadcast to a shape."""
    flat = [flattened(x, shape, x.dtype.newbyteorder("=")) for x in operands]
    out, events = np.empty(math.prod(shape), dtype), np.empty(math.prod(shape), np.uint8)

    def run(cut: Arrays, written: Array, draws: Seeds) -> None:
        *read, happened = cut
        drawn = draws if options is None else with_draws(draws, written.size, options.attributes)
        loop(*read, written, happened, drawn)

    in_pieces(title, run, [*flat, events], out, NO_DRAWS if options is None else draws_of(options))
    return out.reshape(shape), events.reshape(shape)


def scalb(codes: Codes, fmt: FloatFormat, n: NDArray[np.int64], options: CallOptions) -> tuple[Codes, Events]:
    """Return (codes, events) of codes * 2**n."""
    params, rounding = format_params(fmt), rounding_params(options.attributes)
    return _each(
        "scalb", lambda x, n, out, events, draws: loops.scalb(x, params, n, out, params, rounding, draws, events),
        [codes, n.astype(np.int64, copy=False)], np.broadcast_shapes(codes.shape, n.shape), fmt.code_dtype,
        options,
    )  # fmt: skip


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
    info, params, rounding = _integer_limits(dtype), format_params(fmt), rounding_params(options.attributes)
    ends = np.uint64(-int(info.min)), np.uint64(info.max)
    out, events = _each(
        "to_integer",
        lambda x, out, events, draws: loops.to_integer(x, params, *ends, out, rounding, draws, events),
        [codes], codes.shape, np.uint64, options,
    )  # fmt: skip
    # ml_dtypes casts from signed integers
    return (out.view(np.int64) if dtype.kind == "V" else out).astype(dtype), events


def from_integer(n: NDArray[np.integer[Any]], fmt: FloatFormat, options: CallOptions) -> tuple[Codes, Events]:
    """Return (codes, events) of an integer array, each rounded once."""
    bits = n.astype(np.int64, copy=False).view(np.uint64) if n.dtype.kind == "i" else n.astype(np.uint64, copy=False)
    negative = (n < 0).astype(np.uint8)
    params, rounding = format_params(fmt), rounding_params(options.attributes)
    rounded, events = _each(
        "from_integer",
        lambda signs, x, out, events, draws: loops.from_integer(signs, x, out, params, rounding, draws, events),
        [negative, np.where(negative, np.uint64(0) - bits, bits)], n.shape, fmt.code_dtype, options,
    )  # fmt: skip
    if _cuts_negative(fmt):
        _write_below_zero(rounded, events, -negative.astype(np.float64), fmt, options.attributes)
    return rounded, events


def neighbour(codes: Codes, fmt: FloatFormat, daz: bool, up: bool) -> tuple[Codes, Events]:
    """Return (codes, events) of next_up or next_down."""
    title, params = "next_up" if up else "next_down", format_params(fmt)
    out, events = _each(
        title, lambda x, out, events, draws: loops.neighbour(x, params, int(daz), int(up), out, events),
        [codes], codes.shape, fmt.code_dtype,
    )  # fmt: skip
    if not up and _cuts_negative(fmt):
        out[codes == 0] = fmt.canonical_nan
    return out, events


def logb(codes: Codes, fmt: FloatFormat, daz: bool) -> tuple[NDArray[np.int32], Events]:
    """Return (exponents, events)."""
    params = format_params(fmt)
    return _each(
        "logb", lambda x, out, events, draws: loops.logb(x, params, int(daz), out, events), [codes], codes.shape,
        np.int32,
    )  # fmt: skip
