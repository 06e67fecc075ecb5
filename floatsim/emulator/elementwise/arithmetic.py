"""Arithmetic in hardware floats and on packed codes: the candidates, and the conditions under which they apply."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from floatsim_kernels.elementwise import fused, ordering, packed
from floatsim_kernels.elementwise import unpack as unpack_loops

from floatsim._types import Seeds
from floatsim.emulator.elementwise.case import Case
from floatsim.emulator.elementwise.kernel import Cut, Kernel, PlanPart, fast, fast_refusal, float_refusal
from floatsim.emulator.elementwise.operations import Family
from floatsim.emulator.elementwise.pieces import Array, Events
from floatsim.emulator.elementwise.rounding import family
from floatsim.emulator.params import carrier_rounding, order_params, unpack_params
from floatsim.emulator.proofs import (
    float32_code_carries,
    float64_rounds_single_stochastically,
    odd_float32_rounds_once,
    odd_float64_rounds_once,
    packed_float32_rounds_once,
)
from floatsim.emulator.unpack import canonical_codes, reader_of, unpack
from floatsim.formats import BF16, FP16, FP32, FP64
from floatsim.formats.rounding import Overflow, Rounding
from floatsim.formats.value_sets import contains

__all__ = ["Carried", "Float32", "FusedNative", "Native", "OddFloat64", "Ordered", "OwnFormat", "SingleStochastic"]

_ARITHMETIC = frozenset({Family.ARITHMETIC})
_WITH_INTEGRAL = _ARITHMETIC | {Family.INTEGRAL}


def _thrice(codes: Sequence[Array]) -> tuple[Array, Array, Array]:
    """Return three operands for kernels that read the first, the second or the last."""
    return codes[0], codes[min(1, len(codes) - 1)], codes[-1]


class Native:
    """The processor's FP32 and FP64, by NumPy."""

    name = "native"
    takes = _ARITHMETIC

    def refusal(self, case: Case) -> str | None:
        if case.fmt not in (FP32, FP64) or not isinstance(case.operation.float64, np.ufunc):
            return f"the processor has no {case.name} in {case.fmt.name} by NumPy"
        if not all(contains(case.fmt, source, specials=False) for source in case.sources):
            return f"{case.fmt.name} does not hold all operands"
        if case.events or not case.is_default:
            return "it finds no events, and has IEEE 754's default attributes alone"
        return case.cpu.refusal()

    def kernel(self, case: Case, plan: PlanPart) -> Kernel:
        sources, fmt, ufunc = case.sources, case.fmt, case.operation.float64
        dtype = np.dtype(fmt.dtype)
        assert ufunc is not None

        def run(codes: Sequence[Array], out: Array, events: Events | None, draws: Seeds) -> None:
            floats = [unpack(x, source, fmt).reshape(x.shape) for x, source in zip(codes, sources, strict=True)]
            result = out.view(dtype)
            with np.errstate(all="ignore"):
                ufunc(*floats, out=result)
            canonical_codes(result, fmt)

        return Kernel(run, Cut.BROADCAST)


class FusedNative:
    """The processor's fused multiply-add in FP32."""

    name = "fused native"
    takes = _ARITHMETIC

    def refusal(self, case: Case) -> str | None:
        if case.name != "fma" or case.fmt != FP32 or not case.cpu.has_fma:
            return "only fma in FP32, on a processor with FMA"
        if not all(contains(FP32, source, specials=False) for source in case.sources):
            return "FP32 does not hold all operands"
        if case.events or not case.is_default:
            return "it finds no events, and has IEEE 754's default attributes alone"
        return case.cpu.refusal()

    def kernel(self, case: Case, plan: PlanPart) -> Kernel:
        sources = case.sources

        def run(codes: Sequence[Array], out: Array, events: Events | None, draws: Seeds) -> None:
            floats = [unpack(x, source, FP32) for x, source in zip(codes, sources, strict=True)]
            result = out.view(np.float32)
            fused.fma(*floats, result)
            canonical_codes(result, FP32)

        return Kernel(run)


class Ordered:
    """Minimum and maximum of packed codes. The results are operands: no rounding mode or overflow policy applies."""

    name = "ordered"
    takes = frozenset({Family.EXTREMUM})

    def refusal(self, case: Case) -> str | None:
        return "DAZ and FTZ change operands" if case.flushes else case.mixed() or fast_refusal(case)

    def kernel(self, case: Case, plan: PlanPart) -> Kernel:
        larger, number = map(bool, case.operation.numbers)
        loop, params = ordering.extremum(8 * case.fmt.code_dtype.itemsize, larger, number), order_params(case.fmt)
        return fast(lambda x, out, draws: loop(x[0], x[1], out, params), case, plan)


# -- one rounding after float32 ----------------------------------------------------------------------------------------

_RINT = {
    Rounding.TIES_TO_EVEN: packed.RINT, Rounding.TOWARD_ZERO: packed.TRUNC, Rounding.TOWARD_POSITIVE: packed.CEIL,
    Rounding.TOWARD_NEGATIVE: packed.FLOOR,
}  # fmt: skip


def _float32_number(case: Case) -> int | None:
    """Return the number of an operation whose float32 result needs one rounding, ties to even, or none."""
    if case.name == "rint":
        return _RINT.get(case.attributes.rounding)
    number: int = getattr(packed, case.operation.packed)
    if case.operation.family is Family.INTEGRAL:  # exact in the format, but for overflow
        return None if case.draws else number
    return number if case.attributes.rounding is Rounding.TIES_TO_EVEN and number != packed.FMA else None


def _refuses_float32(case: Case) -> str | None:
    """Return why an operation is not computed in float32 and rounded once more, ties to even."""
    if _float32_number(case) is None:
        return f"{case.name} in float32 has no second rounding in this mode"
    return "DAZ and FTZ change operands or results" if case.flushes else case.mixed() or float_refusal(case)


class OwnFormat:
    """FP16 by the processor's conversions, and BF16, with IEEE 754's overflow."""

    name = "own format"
    takes = _WITH_INTEGRAL

    def refusal(self, case: Case) -> str | None:
        if case.fmt != BF16 and not (case.fmt == FP16 and case.cpu.has_half_conversion):
            return f"no kernel of its own for {case.fmt.name} on this processor"
        if case.attributes.overflow is not Overflow.INFINITY:
            return "overflow is IEEE 754's"
        return _refuses_float32(case)

    def kernel(self, case: Case, plan: PlanPart) -> Kernel:
        loop = (packed.fp16 if case.fmt == FP16 else packed.bf16)(_float32_number(case))
        return fast(lambda x, out, draws: loop(x[0], x[-1], out), case, plan)


class Float32:
    """Computes in float32, and rounds once more."""

    name = "float32"
    takes = _WITH_INTEGRAL

    def refusal(self, case: Case) -> str | None:
        if unpack_params(case.fmt) is None or not packed_float32_rounds_once(case.fmt):
            return f"a second rounding to {case.fmt.name} after float32 is not innocuous"
        return _refuses_float32(case)

    def kernel(self, case: Case, plan: PlanPart) -> Kernel:
        read, loop = unpack_params(case.fmt), packed.general(_float32_number(case))
        write = carrier_rounding(FP32, case.fmt, case.attributes.rounding, case.attributes.overflow, True, True)
        return fast(lambda x, out, draws: loop(x[0], x[-1], out, read, write), case, plan)


# -- one rounding after a result rounded to odd or toward zero ---------------------------------------------------------


class Carried:
    """Computes in float32, and rounds stochastically by a carry in its code."""

    name = "carried"
    takes = _ARITHMETIC

    def refusal(self, case: Case) -> str | None:
        reader = reader_of(case.fmt)
        if reader is None or reader.number == unpack_loops.GENERAL:
            return f"no kernel of its own for {case.fmt.name} on this processor"
        if not float32_code_carries(case.fmt, case.name, case.attributes):
            return "only stochastic sums in BF16 and FP16, and products in BF16"
        return case.mixed() or float_refusal(case)

    def kernel(self, case: Case, plan: PlanPart) -> Kernel:
        reader, bits = reader_of(case.fmt), case.attributes.random_bits
        assert reader is not None
        loop = packed.carrying(getattr(packed, case.operation.packed), reader.number)
        return fast(lambda x, out, draws: loop(x[0], x[1], out, draws, bits), case, plan)


_OWN_TARGETS = {
    (unpack_loops.BF16, Rounding.TIES_TO_EVEN): packed.TO_BF16,
    (unpack_loops.HALF, Rounding.TIES_TO_EVEN): packed.TO_HALF,
    (unpack_loops.HALF, Rounding.STOCHASTIC): packed.TO_HALF,
}
"""Ways to write the codes of the readers' own formats, with IEEE 754's overflow."""


class OddFloat64:
    """Computes in float64 or float32, rounded to odd from the exact error, and rounds once more in any mode."""

    name = "odd float64"
    takes = _ARITHMETIC

    def _single(self, case: Case) -> tuple[str | None, bool]:
        """Return the family that rounds odd float32 numbers to the format, and whether float32 computes them."""
        narrow = odd_float32_rounds_once(case.fmt, case.name, case.attributes.rounding)
        if case.fmt.precision + 2 > FP32.precision or (case.draws and not narrow):
            return None, narrow
        return family(FP32, case.fmt), narrow

    def refusal(self, case: Case) -> str | None:
        fmt, attributes = case.fmt, case.attributes
        if reader_of(fmt) is None:
            return f"{fmt.name} is not read as hardware floats"
        if case.flushes or not case.cpu.has_fma:
            return "DAZ, FTZ, or a processor without FMA"
        if not odd_float64_rounds_once(fmt, attributes.rounding, attributes.random_bits):
            return f"a second rounding to {fmt.name} after float64, rounded to odd, is not innocuous"
        if self._single(case)[0] is None and family(FP64, fmt) is None:
            return f"additions in hardware floats do not round to {fmt.name}"
        return case.mixed() or float_refusal(case)

    def kernel(self, case: Case, plan: PlanPart) -> Kernel:
        fmt, rounding, bits = case.fmt, case.attributes.rounding, case.attributes.random_bits
        reader, number = reader_of(fmt), getattr(packed, case.operation.packed)
        assert reader is not None
        single, narrow = self._single(case)
        carrier = FP64 if single is None else FP32
        write = carrier_rounding(carrier, fmt, rounding, case.attributes.overflow, True, True)
        read, target = reader.params, packed.TO_SHARED if single == "shared" else packed.TO_FORMAT
        if case.attributes.overflow is Overflow.INFINITY:
            target = _OWN_TARGETS.get((reader.number, rounding), target)
        loop: Any
        if case.draws:
            if single is None:
                loop = packed.odd_stochastic(number, reader.number)
            else:
                loop = packed.narrow_stochastic(number, reader.number, target)
            return fast(lambda x, out, draws: loop(*_thrice(x), out, read, write, draws, bits), case, plan)
        if single is None:
            loop = packed.odd_double(number, rounding.value)
        else:
            loop = packed.odd_single(number, rounding.value, reader.number, target, narrow)
        return fast(lambda x, out, draws: loop(*_thrice(x), out, read, write), case, plan)


class SingleStochastic:
    """Computes in float64, rounded stochastically to FP32. The integer kernels compute blocks that stay undecided."""

    name = "single stochastic"
    takes = _ARITHMETIC

    def refusal(self, case: Case) -> str | None:
        if case.fmt != FP32 or not case.cpu.has_fma:
            return "only results in FP32, on a processor with FMA"
        if not all(contains(FP32, source) for source in case.sources):
            return "FP32 does not hold all operands"
        if not float64_rounds_single_stochastically(case.attributes):
            return "only stochastic rounding by at most 32 random bits, without DAZ and FTZ"
        return float_refusal(case)

    def kernel(self, case: Case, plan: PlanPart) -> Kernel:
        loop, bits = packed.single_stochastic(getattr(packed, case.operation.packed)), case.attributes.random_bits
        integers = plan(case, "integers").kernel.run

        def run(codes: Sequence[Array], out: Array, draws: Seeds) -> None:
            floats = [unpack(x, source, FP32) for x, source in zip(codes, case.sources, strict=True)]
            undecided = np.zeros(-(-out.size // packed.BLOCK), np.bool_)
            loop(*_thrice(floats), out, draws, bits, undecided)
            for start in (packed.BLOCK * np.flatnonzero(undecided)).tolist():
                part = slice(start, start + packed.BLOCK)
                integers([x[part] for x in codes], out[part], None, draws + np.array([0, start], np.uint64))

        return fast(run, case, plan)
