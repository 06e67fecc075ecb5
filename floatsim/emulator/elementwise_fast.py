"""Fast element-wise kernels: the conditions under which their bits equal those of the integer kernels, and their calls.

They report no events. Those that compute in hardware floats run only while the processor's floating-point environment
is the default. All other cases use the integer kernels.
"""

from __future__ import annotations

import bisect
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from floatsim_kernels.elementwise import ordering, packed
from floatsim_kernels.elementwise import quantize as quantize_loops
from floatsim_kernels.elementwise import unpack as unpack_loops
from floatsim_kernels.runtime import cpu as machine

from floatsim import reference
from floatsim.emulator.params import order_params, pack, unpack_params
from floatsim.emulator.proofs import (
    float32_code_carries,
    float64_rounds_single_stochastically,
    odd_float32_rounds_once,
    odd_float64_rounds_once,
    packed_float32_rounds_once,
)
from floatsim.emulator.unpack import reader_of, unpack
from floatsim.formats import BF16, FP16, FP32, FP64, FloatFormat
from floatsim.formats.call import CallOptions
from floatsim.formats.rounding import Overflow, Rounding, RoundingAttributes
from floatsim.formats.value_sets import contains

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[Any]

__all__ = [
    "FastKernel", "RoundingLoop", "comparison", "is_default", "kernel_for", "native", "quantize", "rounding_loop",
]  # fmt: skip


class _Carrier(NamedTuple):
    """The kernels of a carrier format by family and rounding, for values and for kinds of codes."""

    added: Callable[[Rounding, int], Any]
    shared: Callable[[Rounding, int], Any] | None


_TIES_TO_EVEN, _STOCHASTIC = Rounding.TIES_TO_EVEN, Rounding.STOCHASTIC


def _added(bits: int, rounding: Rounding, results: int) -> Any:
    if rounding is _STOCHASTIC:
        return quantize_loops.added_stochastic(bits, results)
    return quantize_loops.added(bits, rounding.value, results)


def _shared(rounding: Rounding, results: int) -> Any:
    if rounding is _STOCHASTIC:
        return quantize_loops.shared_stochastic(results)
    return quantize_loops.shared(rounding.value, results)


_CARRIERS = {
    FP32: _Carrier(functools.partial(_added, 32), _shared),
    FP64: _Carrier(functools.partial(_added, 64), None),
}


def _is_plain(attributes: RoundingAttributes) -> bool:
    return not (attributes.daz or attributes.ftz) and (
        attributes.rounding is not _STOCHASTIC or attributes.random_bits <= 32
    )


def is_default(attributes: RoundingAttributes) -> bool:
    """Return whether the attributes are those of the processor's arithmetic: IEEE 754's defaults."""
    return (
        attributes.rounding is _TIES_TO_EVEN
        and attributes.overflow is Overflow.INFINITY
        and not (attributes.daz or attributes.ftz)
    )


@functools.lru_cache(maxsize=256)
def _rounding_params(
    carrier: FloatFormat, fmt: FloatFormat, rounding: Rounding, overflow: Overflow, codes: bool, exact_infinity: bool
) -> Any:
    """Return the parameters of the kernels of `quantize_loops`, for results as values of the carrier or as codes.

    `exact_infinity`: infinities are exact results of an operation, to which no overflow policy applies.
    """
    attributes = RoundingAttributes(rounding, overflow)

    def result(number: reference.Number, attributes: RoundingAttributes = attributes) -> int:
        """Return the code of a number rounded to `fmt`, in the format of the results."""
        code, _ = reference.convert(number, fmt, attributes)
        return code if codes else reference.convert(reference.decode(code, fmt), carrier, RoundingAttributes())[0]

    def power(exponent: int) -> int:
        return exponent + carrier.bias << carrier.trailing_bits

    def clamp(overflow: int) -> int:
        """Return the carrier's code of the magnitude whose code is that of overflow, if that is max or the next one."""
        beyond = (overflow & fmt.magnitude_mask) - fmt.max_code
        if not codes or beyond not in (0, 1):
            return 0
        quantum, largest = max(fmt.emax, fmt.emin) - fmt.trailing_bits, reference.decode(fmt.max_code, fmt)
        steps = (largest.significand << largest.exponent - quantum) + beyond
        magnitude = reference.Number(reference.Kind.FINITE, 0, steps, quantum)
        return reference.convert(magnitude, carrier, RoundingAttributes())[0]

    far = [reference.Number(reference.Kind.FINITE, sign, 1, 5000) for sign in (0, 1)]
    of_infinity = RoundingAttributes(rounding) if exact_infinity else attributes
    infinite = [result(reference.Number(reference.Kind.INFINITE, sign), of_infinity) for sign in (0, 1)]
    overflows = [result(number) for number in far]
    dropped = carrier.trailing_bits - fmt.trailing_bits
    fields = {
        "emin": power(fmt.emin),
        "limit": power(fmt.emax + 2) - 1,
        "below": fmt.trailing_bits << carrier.trailing_bits,
        "above": dropped << carrier.trailing_bits,
        "max": result(reference.decode(fmt.max_code, fmt)),
        "overflow": overflows[0],
        "negative_overflow": overflows[1],
        "infinity": infinite[0],
        "negative_infinity": infinite[1],
        "nan": result(reference.NAN),
        "zero_sign": (fmt if codes else carrier).sign_mask if fmt.has_signed_zero else 0,
        "sign_shift": carrier.bits - fmt.bits if codes else 0,
        "origin": power(fmt.emin + dropped),
        "dropped": dropped if codes else 0,
    }
    nan, infinity = fields["nan"], power(carrier.emax + 1)
    for sign, prefix in enumerate(("", "negative_")):
        code = overflows[sign]
        # without NaN in the format, its result is the code of a number
        overflow_is_nan = code == infinite[sign] == nan and fmt.has_nan and rounding is not _STOCHASTIC
        signed = not sign or code & fmt.sign_mask
        fields[prefix + "clamp"] = fields["limit"] if overflow_is_nan else clamp(code) if signed else 0

        def gives_nan(magnitude: int, sign: int = sign) -> bool:
            return result(reference.decode(magnitude | sign * carrier.sign_mask, carrier)) == nan

        last = infinity if infinite[sign] != nan or not fmt.has_nan else infinity - 1
        if overflow_is_nan:
            last = bisect.bisect_left(range(infinity), True, key=gives_nan) - 1
        fields[prefix + "last"] = last
    return pack(quantize_loops.ROUNDING_FIELDS, fields, carrier.code_dtype)


@functools.lru_cache(maxsize=256)
def _family(carrier: FloatFormat, fmt: FloatFormat) -> str | None:
    """Return the name of the kernel family that rounds to this format exactly, or None."""
    if fmt.is_scale or fmt.precision >= carrier.precision or fmt.emax > carrier.emax:
        return None
    if fmt.emin == carrier.emin:
        # without trailing bits the last bit of a code belongs to the exponent, and parity cannot be read from it
        return "shared" if _CARRIERS[carrier].shared and fmt.trailing_bits else None
    # q and 2**32 / q, and C for the exponent above emax, must be normal numbers of the carrier
    lowest, highest = fmt.emin - fmt.trailing_bits, fmt.emax + 1 + carrier.trailing_bits - fmt.trailing_bits
    return "added" if lowest + carrier.bias >= 33 and highest <= carrier.bias else None


class FastKernel(NamedTuple):
    """A kernel for flat arrays of codes: `run(operands, out, draws)`, and whether it computes in hardware floats.

    `block`: 0, or the length of blocks of elements. `run` then returns a bool for each block, true if the integer
    kernels have to compute it.
    """

    run: Callable[[list[Array], Array, Array], Any]
    in_floats: bool = True
    block: int = 0


class RoundingLoop(NamedTuple):
    """The parameters of a loop of `quantize_loops`, whether it is of the *shared* family, and what it writes."""

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
    family = _family(carrier, fmt) if carrier in _CARRIERS and _is_plain(attributes) else None
    if family is None:
        return None
    params = _rounding_params(carrier, fmt, attributes.rounding, attributes.overflow, codes, False)
    return RoundingLoop(params, family == "shared", _kind_of_codes(fmt, params) if codes else quantize_loops.VALUES)


def _kind_of_codes(fmt: FloatFormat, params: Any) -> int:
    """Return the kind of codes with the fewest steps whose results are those of the parameters."""
    p = dict(zip(quantize_loops.ROUNDING_FIELDS, params.tolist(), strict=True))
    infinities = {p["infinity"], p["negative_infinity"]}
    no_infinity = infinities == {p["nan"]}
    signed = no_infinity or p["negative_infinity"] == p["infinity"] | fmt.sign_mask
    kind: int = quantize_loops.CODES
    if fmt.has_signed_zero and signed and p["clamp"] and p["negative_clamp"]:
        kind = quantize_loops.CLAMPED_BY_SIGN_CODES
        if p["clamp"] == p["negative_clamp"] and p["last"] == p["negative_last"]:
            one = no_infinity or p["infinity"] == p["overflow"]
            kind = quantize_loops.CLAMPED_CODES if one else quantize_loops.CLAMPED_NUMBER_CODES
            if p["clamp"] == p["limit"]:
                kind = quantize_loops.UNIFORM_CODES
    return kind


@functools.lru_cache(maxsize=256)
def _rounding_kernel(
    carrier: FloatFormat, fmt: FloatFormat, attributes: RoundingAttributes, codes: bool
) -> FastKernel | None:
    """Return the kernel that rounds the carrier's codes to a format, with results as values or codes."""
    found = rounding_loop(carrier, fmt, attributes, codes)
    if found is None:
        return None
    kind, rounding = _CARRIERS[carrier], attributes.rounding
    last: tuple[Any, ...] = (found.params,)
    has_instruction = carrier == FP32 and fmt == FP16 and attributes.overflow is Overflow.INFINITY
    half = quantize_loops.half(rounding.value) if has_instruction and codes and machine.has_f16c() else None
    if half is not None:
        loop = half
    elif found.shared:
        assert kind.shared is not None
        loop = kind.shared(rounding, found.results)
        last += (carrier.trailing_bits - fmt.trailing_bits,)
    else:
        loop = kind.added(rounding, found.results)

    def run(operands: list[Array], out: Array, draws: Array) -> None:
        loop(operands[0], out, *last, *((draws, attributes.random_bits) if rounding is _STOCHASTIC else ()))

    return FastKernel(run)


def quantize(carrier: FloatFormat, fmt: FloatFormat, attributes: RoundingAttributes) -> FastKernel | None:
    """Return the kernel that rounds the carrier's codes to values of `fmt` in the carrier, or None."""
    return _in_this_environment(_rounding_kernel(carrier, fmt, attributes, False))


# -- kernels for packed codes ------------------------------------------------------------------------------------------


class _Case(NamedTuple):
    """An operation on codes of some formats, with its result's format and rounding attributes."""

    name: str
    sources: tuple[FloatFormat, ...]
    fmt: FloatFormat
    attributes: RoundingAttributes


_EXTREMA = {
    "minimum": (False, False),
    "maximum": (True, False),
    "minimum_number": (False, True),
    "maximum_number": (True, True),
}


def _ordered(case: _Case) -> FastKernel | None:
    """Return a kernel of `ordering_loops`. Its results are operands: no rounding mode or overflow policy applies."""
    if case.name not in _EXTREMA or case.attributes.daz or case.attributes.ftz:
        return None
    loop, params = ordering.extremum(8 * case.fmt.code_dtype.itemsize, *_EXTREMA[case.name]), order_params(case.fmt)
    return FastKernel(lambda x, out, draws: loop(x[0], x[1], out, params), in_floats=False)


_ARITHMETIC = {
    "add": packed.ADD, "subtract": packed.SUBTRACT, "multiply": packed.MULTIPLY, "divide": packed.DIVIDE,
    "sqrt": packed.SQRT,
}  # fmt: skip
_TO_INTEGRAL = {"floor": packed.FLOOR, "ceil": packed.CEIL, "trunc": packed.TRUNC}
_RINT = {
    Rounding.TIES_TO_EVEN: packed.RINT, Rounding.TOWARD_ZERO: packed.TRUNC, Rounding.TOWARD_POSITIVE: packed.CEIL,
    Rounding.TOWARD_NEGATIVE: packed.FLOOR,
}  # fmt: skip


def _float32_operation(case: _Case) -> int | None:
    """Return the number of an operation whose float32 result needs one rounding, ties to even, or none."""
    if case.name == "rint":
        return _RINT.get(case.attributes.rounding)
    if case.name in _TO_INTEGRAL:  # exact in the format, but for overflow
        return None if case.attributes.rounding is _STOCHASTIC else _TO_INTEGRAL[case.name]
    return _ARITHMETIC.get(case.name) if case.attributes.rounding is _TIES_TO_EVEN else None


def _in_float32(case: _Case) -> FastKernel | None:
    """Return a kernel that computes in float32."""
    operation, fmt, attributes = _float32_operation(case), case.fmt, case.attributes
    if operation is None or attributes.daz or attributes.ftz:
        return None
    if attributes.overflow is Overflow.INFINITY:
        in_fp16 = fmt == FP16 and machine.has_f16c()
        own = packed.fp16 if in_fp16 else packed.bf16 if fmt == BF16 else None
        if own is not None:
            loop = own(operation)
            return FastKernel(lambda x, out, draws: loop(x[0], x[-1], out))
    read = unpack_params(fmt)
    if read is None or not packed_float32_rounds_once(fmt):
        return None
    write = _rounding_params(FP32, fmt, attributes.rounding, attributes.overflow, True, True)
    loop = packed.general(operation)
    return FastKernel(lambda x, out, draws: loop(x[0], x[-1], out, read, write))


_OWN_TARGETS = {
    (unpack_loops.BF16, _TIES_TO_EVEN): packed.TO_BF16,
    (unpack_loops.HALF, _TIES_TO_EVEN): packed.TO_HALF,
    (unpack_loops.HALF, _STOCHASTIC): packed.TO_HALF,
}
"""Ways to write the codes of the readers' own formats, with IEEE 754's overflow."""


def _to_odd(case: _Case) -> FastKernel | None:
    """Return a kernel that computes in float64, rounded to odd."""
    fmt, attributes = case.fmt, case.attributes
    operation = packed.FMA if case.name == "fma" else _ARITHMETIC.get(case.name)
    reader, rounding = reader_of(fmt), attributes.rounding
    if operation is None or reader is None or not _is_plain(attributes) or not machine.has_fma():
        return None
    if not odd_float64_rounds_once(fmt, rounding, attributes.random_bits):
        return None
    wide = fmt.precision + 2 <= FP32.precision
    narrow = odd_float32_rounds_once(fmt, case.name, rounding)
    single = _family(FP32, fmt) if wide and (narrow or rounding is not _STOCHASTIC) else None
    if single is None and _family(FP64, fmt) is None:
        return None
    write = _rounding_params(FP64 if single is None else FP32, fmt, rounding, attributes.overflow, True, True)
    read, source = reader.params, reader.number

    def thrice(x: list[Array]) -> tuple[Array, Array, Array]:
        return x[0], x[min(1, len(x) - 1)], x[-1]

    target = packed.TO_SHARED if single == "shared" else packed.TO_FORMAT
    if attributes.overflow is Overflow.INFINITY:
        target = _OWN_TARGETS.get((source, rounding), target)
    if rounding is _STOCHASTIC:
        draw = packed.odd_stochastic(operation, source)
        if single is not None:
            draw = packed.narrow_stochastic(operation, source, target)
        bits = attributes.random_bits
        return FastKernel(lambda x, out, draws: draw(*thrice(x), out, read, write, draws, bits))
    if single is None:
        loop = packed.odd_double(operation, rounding.value)
    else:
        loop = packed.odd_single(operation, rounding.value, source, target, narrow)
    return FastKernel(lambda x, out, draws: loop(*thrice(x), out, read, write))


def _carried(case: _Case) -> FastKernel | None:
    """Return a kernel that computes in float32 and rounds stochastically by a carry in its code."""
    reader = reader_of(case.fmt)
    if reader is None or reader.number == unpack_loops.GENERAL:
        return None
    if not float32_code_carries(case.fmt, case.name, case.attributes):
        return None
    loop, bits = packed.carrying(_ARITHMETIC[case.name], reader.number), case.attributes.random_bits
    return FastKernel(lambda x, out, draws: loop(x[0], x[1], out, draws, bits))


def _to_single(case: _Case) -> FastKernel | None:
    """Return a kernel that computes in float64, rounded stochastically to FP32."""
    operation = packed.FMA if case.name == "fma" else _ARITHMETIC.get(case.name)
    if operation is None or case.fmt != FP32 or not machine.has_fma():
        return None
    if not all(contains(FP32, source) for source in case.sources):
        return None
    if not float64_rounds_single_stochastically(case.attributes):
        return None
    loop, bits = packed.single_stochastic(operation), case.attributes.random_bits

    def run(operands: list[Array], out: Array, draws: Array) -> NDArray[np.bool_]:
        x = [unpack(codes, source, FP32) for codes, source in zip(operands, case.sources, strict=True)]
        undecided = np.zeros(-(-out.size // packed.BLOCK), np.bool_)
        loop(x[0], x[min(1, len(x) - 1)], x[-1], out, draws, bits, undecided)
        return undecided

    return FastKernel(run, block=packed.BLOCK)


def _keeps_values(case: _Case) -> bool:
    """Return whether a conversion changes no value, infinity or zero."""
    (source,), attributes = case.sources, case.attributes
    saturates = attributes.overflow is Overflow.SATURATE_FINITE and source.has_infinity
    return not (attributes.daz or attributes.ftz or saturates) and contains(case.fmt, source)


def _widened(case: _Case) -> FastKernel | None:
    """Return a kernel that writes codes as float32 or float64 numbers."""
    (source,), fmt = case.sources, case.fmt
    params = unpack_params(source)
    if fmt not in _CARRIERS or params is None or not _keeps_values(case):
        return None
    dtype = np.dtype(fmt.dtype)
    return FastKernel(lambda x, out, draws: unpack_loops.unpack(x[0], out.view(dtype), params))


def _copied(case: _Case) -> FastKernel | None:
    """Return a function that copies float64 numbers, with the canonical NaN in the place of every NaN."""
    if case.fmt != FP64 or case.sources != (FP64,) or not _keeps_values(case):
        return None

    def run(operands: list[Array], out: Array, draws: Array) -> None:
        np.copyto(out, operands[0])
        out[np.isnan(operands[0].view(np.float64))] = FP64.canonical_nan

    return FastKernel(run, in_floats=False)


def _looked_up(case: _Case) -> FastKernel | None:
    """Return a kernel that reads results from a table of all codes of the source."""
    (source,) = case.sources
    if source.bits > 8 or case.attributes.rounding is _STOCHASTIC:
        return None
    numbers = (reference.decode(code, source, case.attributes.daz) for code in range(1 << source.bits))
    results = [reference.convert(number, case.fmt, case.attributes)[0] for number in numbers]
    table = np.resize(np.array(results, case.fmt.code_dtype), 256)  # every uint8 is an index

    def run(operands: list[Array], out: Array, draws: Array) -> None:
        np.take(table, operands[0], out=out, mode="clip")

    return FastKernel(run, in_floats=False)


def _through_float32(case: _Case) -> FastKernel | None:
    """Return a kernel that unpacks codes to float32, and rounds these to codes."""
    (source,) = case.sources
    params, rounds = unpack_params(source), _rounding_kernel(FP32, case.fmt, case.attributes, True)
    if params is None or rounds is None:
        return None

    def run(operands: list[Array], out: Array, draws: Array) -> None:
        numbers = np.empty(out.size, np.float32)
        unpack_loops.unpack(operands[0], numbers, params)
        rounds.run([numbers.view(np.uint32)], out, draws)

    return FastKernel(run)


_CONVERSIONS: tuple[Callable[[_Case], FastKernel | None], ...] = (
    lambda case: _rounding_kernel(case.sources[0], case.fmt, case.attributes, True),
    _widened,
    _copied,
    _through_float32,
    _looked_up,
)
_OPERATIONS: tuple[Callable[[_Case], FastKernel | None], ...] = (_ordered, _in_float32, _carried, _to_odd, _to_single)


@functools.lru_cache(maxsize=1024)
def _first_of(case: _Case) -> FastKernel | None:
    """Return the first kernel that computes the case."""
    if case.fmt.is_scale:
        return None
    if case.name == "convert":
        candidates = _CONVERSIONS
    elif all(source == case.fmt for source in case.sources):
        candidates = _OPERATIONS
    else:
        candidates = (_to_single,)
    return next((kernel for candidate in candidates if (kernel := candidate(case)) is not None), None)


def _in_this_environment(kernel: FastKernel | None) -> FastKernel | None:
    return kernel if kernel is None or not kernel.in_floats or machine.environment_is_default() else None


def kernel_for(
    name: str, sources: tuple[FloatFormat, ...], fmt: FloatFormat, attributes: RoundingAttributes
) -> FastKernel | None:
    """Return the fastest kernel of an operation on codes, or None if only the integer kernels compute it."""
    return _in_this_environment(_first_of(_Case(name, sources, fmt, attributes)))


@functools.lru_cache(maxsize=256)
def comparison(fmt: FloatFormat, holds: tuple[bool, ...]) -> FastKernel:
    """Return the kernel that writes a bool for each pair of codes; `holds`: less, equal, greater, unordered."""
    loop, params, truth = ordering.compare(8 * fmt.code_dtype.itemsize), order_params(fmt), np.array(holds, np.bool_)
    return FastKernel(lambda x, out, draws: loop(x[0], x[1], out.view(np.uint8), params, truth), in_floats=False)


_NATIVE = {FP32: np.float32, FP64: np.float64}
_UFUNCS: dict[str, Any] = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide, "sqrt": np.sqrt,
}  # fmt: skip


def native(name: str, operands: list[tuple[Any, FloatFormat]], fmt: FloatFormat, options: CallOptions) -> Any:
    """Return the result codes of an operation in the processor's FP32 or FP64, or None if it does not apply."""
    if fmt not in _NATIVE or name not in _UFUNCS:
        return None
    if not all(contains(fmt, source, specials=False) for _, source in operands):
        return None
    if not is_default(options.attributes):
        return None
    if not machine.environment_is_default():
        return None
    floats = (unpack(codes, source, fmt).reshape(codes.shape) for codes, source in operands)
    with np.errstate(all="ignore"):
        result = np.asarray(_UFUNCS[name](*floats))
    codes = result.view(fmt.code_dtype)
    codes[np.isnan(result)] = fmt.canonical_nan
    return codes
