"""Conversions from and through hardware floats: the conditions under which their bits are correct, and their calls."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from floatsim_kernels.elementwise import quantize as loops
from floatsim_kernels.elementwise import unpack as unpack_loops

from floatsim import reference
from floatsim._types import Seeds
from floatsim.emulator.elementwise.case import Case
from floatsim.emulator.elementwise.kernel import Cut, Kernel, PlanPart, fast, fast_refusal, float_refusal
from floatsim.emulator.elementwise.operations import Family
from floatsim.emulator.elementwise.pieces import NO_DRAWS, Array, Events
from floatsim.emulator.params import carrier_rounding, unpack_params
from floatsim.emulator.unpack import canonical_codes
from floatsim.formats import FP16, FP32, FP64, FloatFormat
from floatsim.formats.rounding import Overflow, Rounding, RoundingAttributes

__all__ = [
    "CARRIERS", "LookedUp", "Rounded", "RoundingLoop", "TwoConversions", "Widened", "family", "rounding_loop",
]  # fmt: skip

CARRIERS = (FP32, FP64)
"""The formats of hardware floats, whose codes the kernels round by additions."""


@functools.lru_cache(maxsize=256)
def family(carrier: FloatFormat, fmt: FloatFormat) -> str | None:
    """Return the name of the kernel family that rounds to this format exactly, or None."""
    if fmt.is_scale or fmt.precision >= carrier.precision or fmt.emax > carrier.emax:
        return None
    if fmt.emin == carrier.emin:
        # without trailing bits the last bit of a code belongs to the exponent, and parity cannot be read from it
        return "shared" if carrier == FP32 and fmt.trailing_bits else None
    # q and 2**32 / q, and C for the exponent above emax, must be normal numbers of the carrier
    lowest, highest = fmt.emin - fmt.trailing_bits, fmt.emax + 1 + carrier.trailing_bits - fmt.trailing_bits
    return "added" if lowest + carrier.bias >= 33 and highest <= carrier.bias else None


class RoundingLoop(NamedTuple):
    """The parameters of a loop of the kernels, whether it is of the *shared* family, and what it writes."""

    params: Any
    shared: bool
    results: int


@functools.lru_cache(maxsize=256)
def rounding_loop(
    carrier: FloatFormat, fmt: FloatFormat, attributes: RoundingAttributes, codes: bool
) -> RoundingLoop | None:
    """Return the parameters of the loop that rounds the carrier's codes to values or codes of a format, or None.

    The loops compute in hardware floats.
    """
    kind = family(carrier, fmt) if carrier in CARRIERS and _loop_refusal(attributes) is None else None
    if kind is None:
        return None
    params = carrier_rounding(carrier, fmt, attributes.rounding, attributes.overflow, codes, False)
    return RoundingLoop(params, kind == "shared", _kind_of_codes(fmt, params) if codes else loops.VALUES)


def _loop_refusal(attributes: RoundingAttributes) -> str | None:
    """Return which attributes the loops do not have, or None."""
    if attributes.daz or attributes.ftz:
        return "no loop has DAZ or FTZ"
    many = attributes.rounding is Rounding.STOCHASTIC and attributes.random_bits > 32
    return "a loop draws at most 32 random bits" if many else None


def _kind_of_codes(fmt: FloatFormat, params: Any) -> int:
    """Return the kind of codes with the fewest steps whose results are those of the parameters."""
    p = dict(zip(loops.ROUNDING_FIELDS, params.tolist(), strict=True))
    infinities = {p["infinity"], p["negative_infinity"]}
    no_infinity = infinities == {p["nan"]}
    signed = no_infinity or p["negative_infinity"] == p["infinity"] | fmt.sign_mask
    kind: int = loops.CODES
    if fmt.has_signed_zero and signed and p["clamp"] and p["negative_clamp"]:
        kind = loops.CLAMPED_BY_SIGN_CODES
        if p["clamp"] == p["negative_clamp"] and p["last"] == p["negative_last"]:
            one = no_infinity or p["infinity"] == p["overflow"]
            kind = loops.CLAMPED_CODES if one else loops.CLAMPED_NUMBER_CODES
            if p["clamp"] == p["limit"]:
                kind = loops.UNIFORM_CODES
    return kind


def _loop_of(carrier: FloatFormat, case: Case, codes: bool) -> tuple[Any, tuple[Any, ...]]:
    """Return the loop that rounds the carrier's codes, and its arguments behind the operand and the results."""
    found, attributes = rounding_loop(carrier, case.fmt, case.attributes, codes), case.attributes
    assert found is not None
    if carrier == FP32 and case.fmt == FP16 and codes and case.cpu.has_half_conversion:
        half = loops.half(attributes.rounding.value)  # the processor's own conversion
        if half is not None and attributes.overflow is Overflow.INFINITY:
            return half, (found.params,)
    if found.shared:
        more = found.params, carrier.trailing_bits - case.fmt.trailing_bits
        if case.draws:
            return loops.shared_stochastic(found.results), more
        return loops.shared(attributes.rounding.value, found.results), more
    if case.draws:
        return loops.added_stochastic(carrier.bits, found.results), (found.params,)
    return loops.added(carrier.bits, attributes.rounding.value, found.results), (found.params,)


def _rounded(carrier: FloatFormat, case: Case, codes: bool) -> Callable[[Array, Array, Seeds], None]:
    """Return `run(x, out, draws)`, which rounds the carrier's codes to values of the carrier or to codes."""
    (loop, more), bits = _loop_of(carrier, case, codes), case.attributes.random_bits
    if case.draws:
        return lambda x, out, draws: loop(x, out, *more, draws, bits)
    return lambda x, out, draws: loop(x, out, *more)


# -- candidates --------------------------------------------------------------------------------------------------------


class Rounded:
    """Rounds FP32 and FP64, and other codes read as float32 numbers, by additions in hardware floats."""

    name = "rounded"
    takes = frozenset({Family.CONVERSION, Family.QUANTIZATION})

    def refusal(self, case: Case) -> str | None:
        (source,), quantizes = case.sources, case.operation.family is Family.QUANTIZATION
        if source not in CARRIERS and (quantizes or unpack_params(source) is None):
            return f"{source.name} is not read as hardware floats"
        if (reason := _loop_refusal(case.attributes)) is not None:
            return reason
        carrier = source if source in CARRIERS else FP32
        if family(carrier, case.fmt) is None:
            return f"additions in {carrier.name} do not round to {case.fmt.name}"
        return float_refusal(case)

    def kernel(self, case: Case, plan: PlanPart) -> Kernel:
        (source,) = case.sources
        if source in CARRIERS:
            direct = _rounded(source, case, case.operation.family is Family.CONVERSION)
            return fast(lambda x, out, draws: direct(x[0], out, draws), case, plan)
        params, rounded = unpack_params(source), _rounded(FP32, case, True)

        def run(codes: Sequence[Array], out: Array, draws: Seeds) -> None:
            numbers = np.empty(out.size, np.float32)
            unpack_loops.unpack(codes[0], numbers, params)
            rounded(numbers.view(np.uint32), out, draws)

        return fast(run, case, plan)


class Widened:
    """Writes codes as float32 or float64 numbers. FP64 is copied, with the canonical NaN for every NaN."""

    name = "widened"
    takes = frozenset({Family.CONVERSION})

    def refusal(self, case: Case) -> str | None:
        (source,), fmt = case.sources, case.fmt
        if fmt not in CARRIERS:
            return f"{fmt.name} is no hardware float"
        if not case.keeps_values:
            return "the conversion changes values, or reads subnormal numbers as zeros"
        if source == FP64:
            return fast_refusal(case)
        if unpack_params(source) is None:
            return f"{source.name} is not read as float32 numbers"
        return float_refusal(case)

    def kernel(self, case: Case, plan: PlanPart) -> Kernel:
        params, dtype = unpack_params(case.sources[0]), np.dtype(case.fmt.dtype)
        if case.sources[0] == FP64:
            return fast(_copied, case, plan)
        return fast(lambda x, out, draws: unpack_loops.unpack(x[0], out.view(dtype), params), case, plan)


def _copied(codes: Sequence[Array], out: Array, draws: Seeds) -> None:
    np.copyto(out, codes[0])
    canonical_codes(out.view(np.float64), FP64)


class LookedUp:
    """Reads results from a table of the reference, for every code of the source."""

    name = "looked up"
    takes = frozenset({Family.CONVERSION})

    def refusal(self, case: Case) -> str | None:
        if case.sources[0].bits > 8:
            return f"{case.sources[0].name} has more than 8 bits"
        return "results are drawn" if case.draws else fast_refusal(case)

    def kernel(self, case: Case, plan: PlanPart) -> Kernel:
        (source,) = case.sources
        numbers = (reference.decode(code, source, case.attributes.daz) for code in range(1 << source.bits))
        results = [reference.convert(number, case.fmt, case.attributes)[0] for number in numbers]
        table = np.resize(np.array(results, case.fmt.code_dtype), 256)  # every uint8 is an index
        return fast(lambda x, out, draws: np.take(table, x[0], out=out, mode="clip"), case, plan)


class TwoConversions:
    """Rounds to the codes of a format, and converts them back to the carrier. Never refuses."""

    name = "two conversions"
    takes = frozenset({Family.QUANTIZATION})

    def refusal(self, case: Case) -> str | None:
        return None

    def kernel(self, case: Case, plan: PlanPart) -> Kernel:
        there = plan(replace(case, name="convert")).kernel.run
        back = plan(case.conversion(case.fmt, case.sources[0])).kernel.run
        dtype = case.fmt.code_dtype

        def run(codes: Sequence[Array], out: Array, events: Events | None, draws: Seeds) -> None:
            rounded = np.empty(out.size, dtype)
            there(codes, rounded, events, draws)
            back([rounded], out, None, NO_DRAWS)

        return Kernel(run, Cut.PIECES)
