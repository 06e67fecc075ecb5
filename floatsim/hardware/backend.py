"""The backend for GPUs: the functions of `floatsim.emulator` that a GPU has instructions for.

A call without an instruction raises an error that lists the supported calls. Nothing is emulated. Flags and records are
not available, because GPUs have neither. Codes of narrower formats are converted on the host, which is exact. NaNs of
CUDA cores become the format's canonical NaN. NaNs of matrix instructions are returned unchanged.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import numpy as np

from floatsim._types import Codes, Indices, Operand
from floatsim.accumulation import (
    Accumulation,
    Blocked,
    Leaf,
    Pairwise,
    Sequential,
    SplitK,
    Strided,
    TensorCore,
    leaves,
    settled,
)
from floatsim.accumulation.partition import is_dealt, partition
from floatsim.arrays.call.draw_arrays import draws
from floatsim.arrays.events import record as recording
from floatsim.emulator import backend as emulator
from floatsim.emulator.backend import __all__ as _operations
from floatsim.emulator.dispatch.tensorcore_operands import BlockScales
from floatsim.emulator.sums.execute import Sums
from floatsim.formats import FP32, FP64, FloatFormat
from floatsim.formats.call import CallOptions
from floatsim.formats.rounding import FloatClass, Overflow, Rounding, RoundingAttributes
from floatsim.formats.value_sets import contains
from floatsim.hardware.device import Device
from floatsim.hardware.tables.compute_capability import architecture_of
from floatsim.hardware.tables.ptx_matrix import find
from floatsim.hardware.tables.ptx_scalar import find_scalar

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["accumulate", "convert", "device", "elementwise", "quantize"]

Events: TypeAlias = "NDArray[np.uint8]"

_EXACT = CallOptions(RoundingAttributes())


@functools.cache
def device() -> Device:
    """Return the first GPU of this machine."""
    return Device()


def __getattr__(name: str) -> Any:
    """Return a function that raises an error, for a function of the emulator that a GPU does not support."""
    if name not in _operations:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def missing(*_: Any, **__: Any) -> NoReturn:
        raise ValueError(
            f"backend='hardware' does not support {name.replace('_', ' ')}; it supports convert, quantize, add, "
            "subtract, multiply, divide, sqrt, fma, matmul, dot and sum. backend='emulator' supports all"
        )

    return missing


# -- limitations of GPUs -----------------------------------------------------------------------------------------------


def _check_no_events(options: CallOptions | None = None) -> None:
    if options is not None and options.return_flags:
        raise ValueError("return_flags=True: a GPU has no flags; use backend='emulator'")
    if recording.recording():
        raise ValueError("fs.record() counts events, which a GPU does not report; use backend='emulator'")


def _converted_exactly(codes: Codes, source: FloatFormat, fmt: FloatFormat, what: str) -> Codes:
    """Convert codes on the host. Raise ValueError if the format does not hold all numbers of the source."""
    if source == fmt:
        return codes
    if not contains(fmt, source):
        raise ValueError(f"{what} {source}, and a GPU computes in {fmt}, which does not hold all of its numbers")
    return emulator.convert(codes, source, fmt, _EXACT, False)[0]


def _canonical(codes: Codes, fmt: FloatFormat) -> Codes:
    """Replace all NaNs by the format's canonical NaN."""
    is_nan = emulator.classify(codes, fmt) <= FloatClass.QUIET_NAN
    if not is_nan.any():
        return codes
    canonical: Codes = np.where(is_nan, fmt.code_dtype.type(fmt.canonical_nan or 0), codes)
    return canonical


def _operand(x: Operand, fmt: FloatFormat, name: str, attributes: RoundingAttributes) -> Codes:
    """Convert an operand exactly to the result's format, in which a GPU computes. Raise ValueError if that would round.

    The result's format holds all numbers of a narrower format. A single number of a wider one, such as 2, may also fit.
    """
    codes, source = x
    if source == fmt:
        return codes
    if attributes.daz:
        why = "with daz=True, because their subnormal numbers differ"
    elif contains(fmt, source) or codes.size == 1:
        same, events = emulator.convert(codes, source, fmt, _EXACT)
        if events is None or not events.any() or contains(fmt, source):
            return same
        why = "which does not hold it"
    else:
        why = "which does not hold all of its numbers"
    raise ValueError(f"{name} of {source}, and a GPU computes in {fmt}, {why}; fs.convert it")


# -- elementwise operations --------------------------------------------------------------------------------------------


def elementwise(
    name: str, operands: list[Operand], fmt: FloatFormat, options: CallOptions, want_events: bool = True,
    out: Codes | None = None,
) -> tuple[Codes, Events | None]:  # fmt: skip
    """Run an elementwise operation. The events are None or all zero, because a GPU does not report them."""
    _check_no_events(options)
    if name == "convert":
        ((_, source),) = operands
    else:
        operands, source = [(_operand(x, fmt, name, options.attributes), fmt) for x in operands], fmt
    gpu = device()
    row = find_scalar(name, source, fmt, options.attributes, gpu.identity.capability)
    shape = np.broadcast_shapes(*(codes.shape for codes, _ in operands))
    flat = [np.ascontiguousarray(np.broadcast_to(codes, shape)).reshape(-1) for codes, _ in operands]
    if row.random_bits:
        generator = options.attributes.source
        drawn = draws(generator, options.seed, options.offset, flat[0].size, row.random_bits)
        flat.append(drawn.astype(np.uint32))
    results = _canonical(gpu.scalar(row, *flat), fmt).reshape(shape)
    return results, np.zeros(shape, np.uint8) if want_events else None


def convert(
    codes: Codes, source: FloatFormat, fmt: FloatFormat, options: CallOptions, want_events: bool = True,
    out: Codes | None = None,
) -> tuple[Codes, Events | None]:  # fmt: skip
    """Convert codes to another format. The events are None or all zero. Conversions to the same format run on the
    host."""
    attributes = options.attributes
    clamps = attributes.overflow is Overflow.SATURATE_FINITE and fmt.has_infinity
    if source == fmt and not (attributes.daz or attributes.ftz or clamps):
        _check_no_events(options)
        return _canonical(codes, fmt), np.zeros(codes.shape, np.uint8) if want_events else None
    return elementwise("convert", [(codes, source)], fmt, options, want_events, out)


def quantize(
    codes: Codes, carrier: FloatFormat, fmt: FloatFormat, options: CallOptions, want_events: bool, out: Codes
) -> Events | None:
    """Round codes to a format on the GPU, and convert them back to the carrier on the host."""
    rounded, events = convert(codes, carrier, fmt, options, want_events)
    out[...] = emulator.convert(rounded, fmt, carrier, _EXACT, False)[0]
    return events


# -- sums --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Terms:
    """The terms of sums: the products of a (M, K) and b (K, N); without a, the values of b."""

    a: Operand | None
    b: Operand
    scales: BlockScales | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the results."""
        return 1 if self.a is None else len(self.a[0]), self.b[0].shape[1]

    @property
    def length(self) -> int:
        return len(self.b[0])


_SUPPORTED = "it supports Sequential, Pairwise, TensorCore, and Strided, Blocked and SplitK of these"


@dataclass(frozen=True)
class _Evaluation:
    """The evaluation of accumulations by calls of a device. `call` has the rounding attributes of the user's call."""

    device: Device
    call: RoundingAttributes

    def evaluate(
        self, accumulation: Accumulation, terms: _Terms, ranges: Indices, start: Operand | None = None
    ) -> Codes:
        """Return the sums as (ranges, M, N) codes. `start` is c (M, N), for a single range."""
        if isinstance(accumulation, Leaf):
            return self._leaf(accumulation, terms, ranges, start)
        if isinstance(accumulation, TensorCore):
            return self._matrix_unit(accumulation, terms, ranges, start)
        unsupported = isinstance(accumulation, SplitK) and (accumulation.through is not None or is_dealt(accumulation))
        if unsupported or not isinstance(accumulation, Blocked | SplitK | Strided):
            raise ValueError(f"backend='hardware' does not support {accumulation}; {_SUPPORTED}")
        if isinstance(accumulation, Blocked) and self._is_promoted(accumulation, terms, ranges):
            assert isinstance(accumulation.inner, TensorCore)
            return self._matrix_unit(accumulation.inner, terms, ranges, start, int(accumulation.every))  # type: ignore[arg-type]
        parts = partition(accumulation, ranges.tobytes())
        inner = self.evaluate(accumulation.inner, terms, parts.parts)
        cells = (1, terms.shape[0] * terms.shape[1])
        partials = np.ascontiguousarray(inner).reshape(len(parts.parts), cells[1])
        values = _Terms(None, (partials, accumulation.inner.result_format))
        first = None if start is None else (start[0].reshape(cells), start[1])
        if isinstance(accumulation, Strided) and terms.length:
            outer = self.evaluate(accumulation.outer, values, parts.groups)
            sums = self._add_last(leaves(accumulation)[-1], outer, first)
        else:
            sums = self.evaluate(accumulation.outer, values, parts.groups, first)
        return sums.reshape(len(ranges), *terms.shape)

    # -- leaves ------------------------------------------------------------------------------------------------

    def _leaf(self, leaf: Leaf, terms: _Terms, ranges: Indices, start: Operand | None) -> Codes:
        if not isinstance(leaf, Sequential | Pairwise):
            raise ValueError(f"backend='hardware' does not support {leaf}; {_SUPPORTED}")
        attributes, products = self._settled(leaf)
        fmt = leaf.format
        if attributes.daz or attributes.ftz:
            self._check_flushing(leaf, terms)
        b = _converted_exactly(*terms.b, fmt, "terms are" if terms.a is None else "b is")
        a, fused = None, False
        if terms.a is not None:
            a = _converted_exactly(*terms.a, fmt, "a is")
            if leaf.product not in (None, fmt):
                raise ValueError(
                    f"{leaf} rounds products to {leaf.product}; a GPU rounds them to {fmt}, or not at all (fused)"
                )
            fused = leaf.product is None
        if fused and isinstance(leaf, Pairwise):
            raise ValueError(f"{leaf} keeps products exact; a GPU does this only in a chain: fs.Sequential(fused=True)")
        tree = leaf.tree if isinstance(leaf, Pairwise) else None
        seed = None
        if start is not None and (tree is None or not terms.length):
            seed = self._rounded(start, fmt, attributes)[np.newaxis]
        sums = self.device.sum(fmt, a, b, ranges, seed, attributes, products, fused, tree)
        canonical = _canonical(sums, fmt)
        return self._add_last(leaf, canonical, start) if tree is not None and terms.length else canonical

    def _settled(self, leaf: Leaf) -> tuple[RoundingAttributes, RoundingAttributes]:
        """Return the rounding attributes of sums and products. Raise ValueError if the GPU does not support them."""
        attributes, products = settled(leaf, self.call)
        find_scalar("add", leaf.format, leaf.format, attributes, self.device.identity.capability)
        return attributes, products

    def _check_flushing(self, leaf: Leaf, terms: _Terms) -> None:
        """Raise ValueError if flushing by instructions differs: in trees, and for subnormals of narrower formats."""
        if not isinstance(leaf, Sequential):
            raise ValueError(f"{leaf} with daz and ftz: a GPU flushes only in a chain of sums, fs.Sequential")
        for x in (terms.a, terms.b):
            if x is not None and x[1] != leaf.format:
                raise ValueError(
                    f"daz reads subnormals of {x[1]} as zeros; a GPU adds in {leaf.format}, where they are normal: "
                    "fs.convert the operands"
                )

    def _add_last(self, leaf: Leaf, sums: Codes, start: Operand | None) -> Codes:
        """Return round(sums + c), or the sums without c."""
        if start is None:
            return sums
        attributes, _ = self._settled(leaf)
        fmt, addend = leaf.format, _converted_exactly(*start, leaf.format, "c is")
        row = find_scalar("add", fmt, fmt, attributes, self.device.identity.capability)
        return _canonical(self.device.scalar(row, sums.reshape(-1), addend.reshape(-1)), fmt).reshape(sums.shape)

    def _rounded(self, x: Operand, fmt: FloatFormat, attributes: RoundingAttributes) -> Codes:
        codes, source = np.ascontiguousarray(x[0]), x[1]
        if contains(fmt, source) and not (attributes.daz or attributes.ftz):
            return _converted_exactly(codes, source, fmt, "c is")
        return _canonical(self.device.convert(codes, source, fmt, attributes), fmt)

    # -- matrix instructions -----------------------------------------------------------------------------------

    def _is_promoted(self, blocked: Blocked, terms: _Terms, ranges: Indices) -> bool:
        """Return whether the matrix kernel adds the blocks itself: whole instructions, added in the output's format."""
        if not isinstance(blocked.inner, TensorCore):
            return False
        output = blocked.inner.result_format
        if not isinstance(blocked.outer, Sequential) or blocked.outer.format != output or output not in (FP32, FP64):
            return False
        if not isinstance(blocked.every, int) or blocked.rule != "full":
            return False
        to_even = self._settled(blocked.outer)[0].rounding is Rounding.TIES_TO_EVEN
        return to_even and len(ranges) == 1 and blocked.every % self._row(blocked.inner, terms).k == 0

    def _row(self, unit: TensorCore, terms: _Terms) -> Any:
        assert terms.a is not None
        return unit.row(terms.a[1], terms.b[1], terms.scales and terms.scales.of)

    def _matrix_unit(
        self, unit: TensorCore, terms: _Terms, ranges: Indices, start: Operand | None, every: int = 0
    ) -> Codes:
        """Return the sums of each range by a chain of instructions. c is rounded to D's format, ties to even."""
        assert terms.a is not None
        identity = self.device.identity
        name, (major, minor) = architecture_of(identity.capability), identity.capability
        if name != unit.arch:
            actual = name or f"of compute capability {major}.{minor}"
            raise ValueError(f"{unit} is a sum of {unit.architecture.title}; this GPU, {identity.name}, is {actual}")
        row, scales = self._row(unit, terms), terms.scales
        (a, a_format), (b, b_format) = terms.a, terms.b
        variant = find(row.name, a_format, b_format, row.output, scales and scales.of, identity.capability)
        c = None if start is None else self._rounded(start, row.output, RoundingAttributes())
        sums = np.zeros((len(ranges), *terms.shape), row.output.code_dtype)
        for n, (first, stop, _) in enumerate(ranges.tolist()):
            block_scales = None
            if scales is not None:
                per = scales.of.every
                blocks = slice(first // per, -(-stop // per))
                block_scales = scales.a[0][:, blocks], scales.b[0][blocks]
            sums[n] = self.device.matmul(variant, a[:, first:stop], b[first:stop], c, block_scales, every // row.k)
        return sums


def accumulate(
    a: Operand, b: Operand | None, c: Operand | None, pairs: Indices, accumulation: Accumulation, options: CallOptions,
    wanted: frozenset[str], title: str, base: int = 0, scales: BlockScales | None = None,
    whole: tuple[int, int] | None = None,
) -> Sums:  # fmt: skip
    """Return the sums that an accumulation describes. The parameters are those of the emulator's `accumulate`."""
    _check_no_events()
    evaluation = _Evaluation(device(), options.attributes)

    def evaluate(terms: _Terms, start: Codes | None) -> Codes:
        first = None if start is None or c is None else (start, c[1])
        whole = np.array([[0, terms.length, 1]], np.int64)
        sums: Codes = evaluation.evaluate(accumulation, terms, whole, first)[0]
        return sums

    if b is None:
        values = _Terms(None, (np.ascontiguousarray(a[0]), a[1]))
        return Sums(evaluate(values, None if c is None else c[0][0])[np.newaxis], {}, {})
    out = np.zeros((len(pairs), a[0].shape[1], b[0].shape[2]), accumulation.result_format.code_dtype)
    for n, (x, y) in enumerate(pairs.tolist()):
        own = None if scales is None else BlockScales(scales.a[x : x + 1], scales.b[y : y + 1], scales.of)
        terms = _Terms((np.ascontiguousarray(a[0][x]), a[1]), (np.ascontiguousarray(b[0][y]), b[1]), own)
        out[n] = evaluate(terms, None if c is None else c[0][n])
    return Sums(out, {}, {})
