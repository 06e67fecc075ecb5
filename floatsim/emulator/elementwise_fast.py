"""Fast element-wise kernels: the conditions under which their bits equal those of the integer kernels, and their calls.

The fast kernels compute in hardware floats. They run only while the processor's floating-point environment is the
default, and they report no events. All other cases use the integer kernels.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from floatsim_kernels.elementwise import packed
from floatsim_kernels.elementwise import quantize as quantize_loops
from floatsim_kernels.runtime import cpu as machine

from floatsim import reference
from floatsim.emulator.params import pack
from floatsim.emulator.proofs import packed_float32_rounds_once
from floatsim.emulator.unpack import unpack
from floatsim.formats import BF16, FP16, FP32, FP64, FloatFormat
from floatsim.formats.call import CallOptions
from floatsim.formats.rounding import Overflow, Rounding, RoundingAttributes
from floatsim.formats.value_sets import contains

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["elementwise", "native", "quantize"]


class _Carrier(NamedTuple):
    """The kernels of a carrier format, by family and rounding."""

    dtype: Any
    bias: int
    trailing: int
    added: dict[Rounding, Any]
    shared: dict[Rounding, Any]


_TIES_TO_EVEN, _STOCHASTIC = Rounding.TIES_TO_EVEN, Rounding.STOCHASTIC
_DETERMINISTIC = [rounding for rounding in Rounding if rounding is not _STOCHASTIC]


def _added(bits: int) -> dict[Rounding, Any]:
    kernels = {rounding: quantize_loops.added(bits, rounding.value) for rounding in _DETERMINISTIC}
    return kernels | {_STOCHASTIC: quantize_loops.added_stochastic(bits)}


_SHARED = {rounding: quantize_loops.shared(rounding.value) for rounding in _DETERMINISTIC}

_CARRIERS = {
    FP32: _Carrier(np.uint32, 127, 23, _added(32), _SHARED | {_STOCHASTIC: quantize_loops.shared_stochastic}),
    FP64: _Carrier(np.uint64, 1023, 52, _added(64), {}),
}


def _is_plain(attributes: RoundingAttributes) -> bool:
    return not (attributes.daz or attributes.ftz) and (
        attributes.rounding is not _STOCHASTIC or attributes.random_bits <= 32
    )


@functools.lru_cache(maxsize=256)
def _quantize_params(carrier: FloatFormat, fmt: FloatFormat, rounding: Rounding, overflow: Overflow) -> Any:
    """Return the parameters of the kernels of `quantize_loops`."""
    kind, attributes = _CARRIERS[carrier], RoundingAttributes(rounding, overflow)

    def in_carrier(number: reference.Number) -> int:
        """Return the carrier's code of a number rounded to `fmt`."""
        code, _ = reference.convert(number, fmt, attributes)
        return reference.convert(reference.decode(code, fmt), carrier, RoundingAttributes())[0]

    def power(exponent: int) -> int:
        return exponent + kind.bias << kind.trailing

    far = [reference.Number(reference.Kind.FINITE, sign, 1, 5000) for sign in (0, 1)]
    infinite = [reference.Number(reference.Kind.INFINITE, sign) for sign in (0, 1)]
    fields = {
        "emin": power(fmt.emin),
        "limit": power(fmt.emax + 2) - 1,
        "below": fmt.trailing_bits << kind.trailing,
        "above": kind.trailing - fmt.trailing_bits << kind.trailing,
        "max": in_carrier(reference.decode(fmt.max_code, fmt)),
        "overflow": in_carrier(far[0]),
        "negative_overflow": in_carrier(far[1]),
        "infinity": in_carrier(infinite[0]),
        "negative_infinity": in_carrier(infinite[1]),
        "nan": in_carrier(reference.NAN),
        "zero_sign": carrier.sign_mask if fmt.has_signed_zero else 0,
    }
    return pack(quantize_loops.ROUNDING_FIELDS, fields, kind.dtype)


@functools.lru_cache(maxsize=256)
def _family(carrier: FloatFormat, fmt: FloatFormat) -> str | None:
    """Return the name of the kernel family that rounds to this format exactly, or None."""
    kind = _CARRIERS[carrier]
    if fmt.is_scale or fmt.precision >= carrier.precision or fmt.emax > carrier.emax:
        return None
    if fmt.emin == carrier.emin:
        # without trailing bits the last bit of a code belongs to the exponent, and parity cannot be read from it
        return "shared" if kind.shared and fmt.trailing_bits else None
    # q and 2**32 / q, and C for the exponent above emax, must be normal numbers of the carrier
    lowest, highest = fmt.emin - fmt.trailing_bits, fmt.emax + 1 + kind.trailing - fmt.trailing_bits
    return "added" if lowest + kind.bias >= 33 and highest <= kind.bias else None


def quantize(
    codes: NDArray[Any], carrier: FloatFormat, fmt: FloatFormat, options: CallOptions, out: NDArray[Any]
) -> bool:
    """Write the carrier's codes, rounded to `fmt`, to `out` (both flat). Return False if no fast kernel applies."""
    attributes = options.attributes
    if carrier not in _CARRIERS or not _is_plain(attributes):
        return False
    family = _family(carrier, fmt)
    if family is None or not machine.environment_is_default():
        return False
    kernel = getattr(_CARRIERS[carrier], family)[attributes.rounding]
    arguments: tuple[Any, ...] = (codes, out, _quantize_params(carrier, fmt, attributes.rounding, attributes.overflow))
    if family == "shared":
        arguments += (carrier.trailing_bits - fmt.trailing_bits,)
    if attributes.rounding is _STOCHASTIC:
        arguments += (np.array([options.seed, options.offset], np.uint64), attributes.random_bits)
    kernel(*arguments)
    return True


# -- packed codes ------------------------------------------------------------------------------------------------------

_PACKED = {
    "add": packed.ADD,
    "subtract": packed.SUBTRACT,
    "multiply": packed.MULTIPLY,
    "divide": packed.DIVIDE,
    "sqrt": packed.SQRT,
}


@functools.lru_cache(maxsize=256)
def _packed_params(fmt: FloatFormat) -> NDArray[np.uint32]:
    """Return the parameters of `packed.general` for a format, as listed in GENERAL_FIELDS."""
    shift = FP32.trailing_bits - fmt.trailing_bits

    def power(exponent: int) -> int:
        return exponent + FP32.bias << FP32.trailing_bits

    nan, _ = reference.nan_result(fmt)
    fields = {
        "sign": fmt.sign_mask,
        "magnitude": fmt.magnitude_mask,
        "sign_shift": 32 - fmt.bits,
        "shift": shift,
        "scale": power(fmt.emin - FP32.emin),
        "unscale": power(FP32.emin - fmt.emin),
        "emin": power(fmt.emin),
        "limit": power(fmt.emax + 2) - 1,
        "above": shift << FP32.trailing_bits,
        "max": int(np.float32(fmt.max).view(np.uint32)),
        "max_code": fmt.max_code,
        "infinite_operand": fmt.infinity_code or 0,  # 0: the format has no infinity
        "infinity": reference.infinite_result(0, fmt),
        "nan": nan,
        "infinity_keeps_sign": fmt.sign_mask if reference.infinite_result(1, fmt) & fmt.sign_mask else 0,
    }
    return pack(packed.GENERAL_FIELDS, fields, np.uint32)


def elementwise(
    name: str, codes: list[NDArray[Any]], fmt: FloatFormat, options: CallOptions, out: NDArray[Any]
) -> bool:
    """Write the codes of an operation in one format to `out` (all flat). Return False if no fast kernel applies."""
    attributes = options.attributes
    if name not in _PACKED or attributes.rounding is not _TIES_TO_EVEN or attributes.overflow is not Overflow.INFINITY:
        return False
    if attributes.daz or attributes.ftz or not machine.environment_is_default():
        return False
    arguments = (_PACKED[name], codes[0], codes[-1], out)
    if fmt == FP16 and machine.has_f16c():
        packed.fp16(*arguments)
    elif fmt == BF16:
        packed.bf16(*arguments)
    elif packed_float32_rounds_once(fmt):
        packed.general(*arguments, _packed_params(fmt))
    else:
        return False
    return True


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
    attributes = options.attributes
    if (
        not _is_plain(attributes)
        or attributes.rounding is not _TIES_TO_EVEN
        or attributes.overflow is not Overflow.INFINITY
    ):
        return None
    if not machine.environment_is_default():
        return None
    floats = (unpack(codes, source, fmt).reshape(codes.shape) for codes, source in operands)
    with np.errstate(all="ignore"):
        result = np.asarray(_UFUNCS[name](*floats))
    codes = result.view(fmt.code_dtype)
    codes[np.isnan(result)] = fmt.canonical_nan
    return codes
