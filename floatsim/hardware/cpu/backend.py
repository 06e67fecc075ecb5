"""The backend for this CPU's own instructions: sums of CPU units, and conversions that the CPU has.

A call without an instruction raises an error that lists the supported calls. Nothing is emulated. Flags and records are
not available. NaNs of dot instructions are returned unchanged. Conversions return the format's canonical NaN, as
`fs.convert` does. Partial sums of FP32 are added by NumPy, whose additions are the processor's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import numpy as np

from floatsim._types import Codes, Indices, Operand
from floatsim.accumulation import Accumulation, Blocked, Composite, Sequential, SplitK, TensorCore, settled
from floatsim.accumulation.partition import is_dealt, partition
from floatsim.arrays.events import record as recording
from floatsim.emulator import backend as emulator
from floatsim.emulator.backend import __all__ as _operations
from floatsim.emulator.dispatch.tensorcore_operands import BlockScales
from floatsim.emulator.sums.execute import Sums
from floatsim.formats import FP32, FloatFormat
from floatsim.formats.call import CallOptions
from floatsim.formats.rounding import FloatClass, Overflow, Rounding, RoundingAttributes
from floatsim.hardware.cpu.device import Cpu
from floatsim.hardware.cpu.instructions import CONVERSIONS, AnyInstruction, CpuDot, find_conversion, find_dot
from floatsim.hardware.cpu.loops import run_conversion
from floatsim.hardware.cpu.support import why_not
from floatsim.tensorcore.conversions import CONVERSIONS as NAMED
from floatsim.tensorcore.conversions import Conversion

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["accumulate", "convert", "convert_as", "quantize"]

Events: TypeAlias = "NDArray[np.uint8]"

_SUPPORTED = (
    "it supports matmul, dot and sum with a CPU unit, with Blocked and SplitK of it whose outer sum is "
    "sequential(fp32), and convert, quantize and convert_as between FP32, FP16 and BF16. "
    "backend='emulator' supports all"
)
_CHUNK = 1 << 18
"""Dot products that are laid out at once: at 64 bytes for a and b each, this is 32 MiB."""
_MXCSR, _DAZ = 0x1F80, 0x40
"""The default control and status register, and its bit for DAZ (Intel SDM, volume 1, 10.2.3)."""


def __getattr__(name: str) -> Any:
    """Return a function that raises an error, for a function of the emulator that this backend does not have."""
    if name not in _operations:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def missing(*_: Any, **__: Any) -> NoReturn:
        raise ValueError(f"backend='native-cpu' does not support {name.replace('_', ' ')}; {_SUPPORTED}")

    return missing


def _check_no_events(options: CallOptions | None = None) -> None:
    if options is not None and options.return_flags:
        raise ValueError("return_flags=True: backend='native-cpu' reads no flags; use backend='emulator'")
    if recording.recording():
        raise ValueError("fs.record() counts events, which backend='native-cpu' does not report; use the emulator")


def _check_supported(instruction: AnyInstruction) -> None:
    if reason := why_not(instruction):
        raise RuntimeError(f"backend='native-cpu': this CPU cannot run {instruction}: {reason}")


# -- conversions -------------------------------------------------------------------------------------------------------


def convert_as(conversion: Conversion, codes: Codes, rounding: Rounding, daz: bool) -> Codes:
    """Run a conversion instruction. NaNs are returned unchanged."""
    _check_no_events()
    instruction = find_conversion(conversion.name, rounding)
    _check_supported(instruction)
    obeys = conversion.daz is None and daz
    return run_conversion(instruction, codes, _MXCSR | _DAZ * obeys)


def convert(
    codes: Codes, source: FloatFormat, fmt: FloatFormat, options: CallOptions, want_events: bool = True,
    out: Codes | None = None,
) -> tuple[Codes, Events | None]:  # fmt: skip
    """Convert codes to another format by an instruction with these rounding options. The events are all zero."""
    _check_no_events(options)
    attributes, none = options.attributes, np.zeros(codes.shape, np.uint8) if want_events else None
    if source == fmt and not (attributes.daz or attributes.ftz or attributes.overflow is not Overflow.INFINITY):
        return codes, none
    for row in NAMED.values():
        daz = attributes.daz if row.daz is None else row.daz
        same = (source, fmt, attributes.daz) == (row.source, row.result, daz)
        mode = row.roundings[0] if row.name == "vcvtph2ps" else attributes.rounding  # which is exact
        plain = not attributes.ftz and attributes.overflow is Overflow.INFINITY
        if same and plain and mode in row.roundings:
            return _canonical(convert_as(row, codes, mode, daz), fmt), none
    listed = "; ".join(map(str, CONVERSIONS))
    raise ValueError(
        f"backend='native-cpu' has no instruction that converts {source} to {fmt} with these rounding options; there "
        f"are {listed}. vcvtneps2bf16 needs daz=True, because it reads subnormals as zeros"
    )


def _canonical(codes: Codes, fmt: FloatFormat) -> Codes:
    """Replace all NaNs by the format's canonical NaN."""
    is_nan = emulator.classify(codes, fmt) <= FloatClass.QUIET_NAN
    canonical: Codes = np.where(is_nan, fmt.code_dtype.type(fmt.canonical_nan or 0), codes)
    return canonical


def quantize(
    codes: Codes, carrier: FloatFormat, fmt: FloatFormat, options: CallOptions, want_events: bool, out: Codes
) -> Events | None:
    """Round codes to a format by an instruction, and convert them back to the carrier by the emulator, exactly."""
    rounded, events = convert(codes, carrier, fmt, options, want_events)
    out[...] = emulator.convert(rounded, fmt, carrier, CallOptions(RoundingAttributes()), False)[0]
    return events


# -- sums --------------------------------------------------------------------------------------------------------------


def _instruction(unit: TensorCore, a: FloatFormat, b: FloatFormat) -> CpuDot:
    """Return the instruction of a unit for operands of these formats, if this CPU has it."""
    if unit.architecture.processor != "CPU":
        raise ValueError(f"{unit} is a sum of {unit.architecture.title}; {_SUPPORTED}")
    row = unit.row(a, b)
    dot = find_dot(unit.arch, row.name, a, b, row.output)
    _check_supported(dot)
    return dot


def _chain(dot: CpuDot, a: Codes, b: Codes, c: Codes) -> Codes:
    """Return c (M, N) plus a (M, K) times b (K, N) by a chain of instructions over k."""
    cpu, (m, n), k = Cpu(), c.shape, dot.k
    steps = -(-a.shape[1] // k)
    fill = ((0, 0), (0, steps * k - a.shape[1]))
    left, right = (np.pad(x, fill).reshape(len(x), steps, k) for x in (a, b.T))
    out = np.array(c)
    rows = max(1, _CHUNK // max(n, 1))
    for first in range(0, m if n else 0, rows):
        part = left[first : first + rows]
        sums = out[first : first + rows].reshape(-1)
        for step in range(steps):
            x, y = np.repeat(part[:, step], n, axis=0), np.tile(right[:, step], (len(part), 1))
            sums = cpu.dots(dot, x, y, sums)
        out[first : first + rows] = sums.reshape(len(part), n)
    return out


def _evaluate(accumulation: Accumulation, a: Operand, b: Operand, start: Codes, ranges: Indices) -> Codes:
    """Return the sums over each range as (ranges, M, N) codes. `start` is c (M, N)."""
    if isinstance(accumulation, TensorCore):
        dot = _instruction(accumulation, a[1], b[1])
        chains = [_chain(dot, a[0][:, low:high], b[0][low:high], start) for low, high, _ in ranges.tolist()]
        sums: Codes = np.stack(chains) if chains else np.zeros((0, *start.shape), start.dtype)
        return sums
    unsupported = not isinstance(accumulation, Blocked | SplitK) or is_dealt(accumulation)
    if unsupported or not isinstance(accumulation, Composite) or not isinstance(accumulation.outer, Sequential):
        raise ValueError(f"backend='native-cpu' does not support {accumulation}; {_SUPPORTED}")
    outer = accumulation.outer
    attributes, _ = settled(outer, RoundingAttributes())
    if attributes != RoundingAttributes() or {outer.format, accumulation.inner.result_format} != {FP32}:
        raise ValueError(f"backend='native-cpu' adds partial sums only in FP32, ties to even, not as {outer}")
    parts = partition(accumulation, ranges.tobytes())
    partials = _evaluate(accumulation.inner, a, b, np.zeros_like(start), parts.parts).view(np.float32)
    out = np.empty((len(ranges), *start.shape), np.uint32)
    with np.errstate(all="ignore"):
        for number, (low, high, _) in enumerate(parts.groups.tolist()):
            acc = start.view(np.float32)
            for partial in partials[low:high]:
                acc = acc + partial
            out[number] = _canonical(acc.view(np.uint32), FP32)
    return out


def accumulate(
    a: Operand, b: Operand | None, c: Operand | None, pairs: Indices, accumulation: Accumulation, options: CallOptions,
    wanted: frozenset[str], title: str, base: int = 0, scales: BlockScales | None = None,
    whole: tuple[int, int] | None = None,
) -> Sums:  # fmt: skip
    """Return the sums that an accumulation describes. The parameters are those of the emulator's `accumulate`."""
    _check_no_events()
    if scales is not None or b is None:
        raise ValueError(f"backend='native-cpu' does not support scales, or sums without a CPU unit; {_SUPPORTED}")
    fmt = accumulation.result_format
    out = np.zeros((len(pairs), a[0].shape[1], b[0].shape[2]), fmt.code_dtype)
    for n, (x, y) in enumerate(pairs.tolist()):
        start = np.zeros(out.shape[1:], fmt.code_dtype)
        if c is not None:
            seed = np.ascontiguousarray(c[0][n])
            start = emulator.convert(seed, c[1], fmt, CallOptions(RoundingAttributes()), False)[0]
        left, right = (np.ascontiguousarray(side[0][at]) for side, at in ((a, x), (b, y)))
        ranges = np.array([[0, left.shape[1], 1]], np.int64)
        out[n] = _evaluate(accumulation, (left, a[1]), (right, b[1]), start, ranges)[0]
    return Sums(out, {}, {})
