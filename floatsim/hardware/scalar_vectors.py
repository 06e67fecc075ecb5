"""Operations of CUDA cores: their test vectors, and the results that a GPU is expected to return."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import floatsim
from floatsim._types import Codes
from floatsim.arrays.array.float_array import FloatArray, from_codes
from floatsim.formats import TF32, Overflow, Rounding
from floatsim.hardware.tables.ptx_scalar import Scalar
from floatsim.reference.random import draws
from floatsim.testing.vectors.scalar_inputs import scalar_inputs

__all__ = ["MASKED_NANS", "expected_results", "operands_of", "scalar_keywords", "scalar_results"]

MASKED_NANS = ("convert", TF32, Rounding.TIES_TO_AWAY)
"""The operation, result and rounding that compilers turn into integer operations, which cut the bits of a NaN.

The machine code of NVRTC 12.9 and 13.5 for sm_80 to sm_120 was read. Finite numbers are rounded. All other codes lose
the 13 bits that TF32 does not have. With saturation, every result that is no finite number is then decreased by one. So
a NaN whose set bits are all dropped becomes an infinity, and the largest number with saturation. With saturation, a NaN
with only the last kept bit becomes an infinity. `fs.convert` keeps all NaNs."""


def operands_of(row: Scalar, seed: int = 0) -> tuple[Codes, ...]:
    """Return the test vectors of an operation as codes: one array for each operand, then the random bits, if any.

    >>> from floatsim.hardware.tables.ptx_scalar import SCALARS
    >>> row = next(row for row in SCALARS if row.random_bits == 8)
    >>> str(row), [x.dtype.name for x in operands_of(row)]
    ('convert FP32 to E2M1, stochastic of 8 bits, saturate_finite', ['uint32', 'uint32'])
    """
    operands = scalar_inputs(row.operation, row.source, row.result, seed)
    return (*operands, draws(seed, 0, len(operands[0]), row.random_bits)) if row.random_bits else operands


def scalar_keywords(row: Scalar) -> dict[str, Any]:
    """Return the rounding options with which the emulator computes what the row computes, without a seed."""
    daz, ftz = row.flushes[0]
    keywords = {"rounding": row.rounding or Rounding.TIES_TO_EVEN, "overflow": row.overflow, "daz": daz, "ftz": ftz}
    return keywords | ({"random_bits": row.random_bits} if row.random_bits else {})


def expected_results(row: Scalar, operands: Sequence[FloatArray], seed: int = 0, **options: Any) -> FloatArray:
    """Return the results that a GPU is expected to return: the emulator's, except for `MASKED_NANS`.

    Parameters
    ----------
    row : Scalar
        The operation.
    operands : FloatArrays
        The operands, without the random bits of a stochastic rounding.
    seed : int
        The seed of the random bits.
    **options
        Rounding options in place of those of `scalar_keywords`: `daz` and `ftz`.

    Examples
    --------
    >>> import floatsim as fs
    >>> from floatsim.formats.rounding import RoundingAttributes
    >>> from floatsim.hardware.tables.ptx_scalar import find_scalar
    >>> away = RoundingAttributes(fs.Rounding.TIES_TO_AWAY)
    >>> row = find_scalar("convert", fs.FP32, fs.TF32, away, (8, 0))
    >>> expected_results(row, [fs.from_codes([0x7F800001, 0x7FC00000], "fp32")])
    FloatArray([inf, nan], TF32)
    """
    keywords = scalar_keywords(row) | ({"seed": seed} if row.random_bits else {}) | options
    with floatsim.context(backend="emulator"):
        if row.operation == "convert":
            results = floatsim.convert(operands[0], row.result, **keywords)
        else:
            results = getattr(floatsim, row.operation)(*operands, **keywords)
    return from_codes(_masked_nans(row, operands[0], results.codes), row.result)


def _masked_nans(row: Scalar, x: FloatArray, results: Codes) -> Codes:
    """Return the results with the NaNs of `MASKED_NANS` as the machine code leaves them."""
    if (row.operation, row.result, row.rounding) != MASKED_NANS:
        return results
    cut = x.codes >> (row.source.trailing_bits - row.result.trailing_bits)
    if row.overflow is Overflow.SATURATE_FINITE:
        cut -= 1
    replaced: Codes = np.where(floatsim.isnan(x), cut, results).astype(row.result.code_dtype)
    return replaced


def scalar_results(row: Scalar, *operands: Codes) -> Codes:
    """Emulate an operation of CUDA cores on every element, as `floatsim.hardware.device.Device.scalar` runs it.

    The second operand of a stochastic conversion holds its random bits.
    """
    if row.random_bits:
        return _stochastic(row, *operands)
    return expected_results(row, [from_codes(x, row.source) for x in operands]).codes


def _stochastic(row: Scalar, codes: Codes, random: Codes) -> Codes:
    """Round away from zero if the discarded bits and the random bits have a carry."""
    x, fmt, count = from_codes(codes, row.source), row.result, 2.0**row.random_bits
    finite = Overflow.SATURATE_FINITE
    with floatsim.context(backend="emulator"), np.errstate(all="ignore"):  # infinities and NaNs stay
        policy = Overflow.INFINITY if row.overflow is Overflow.INFINITY else finite
        low = floatsim.convert(x, fmt, rounding="toward_zero", overflow=policy)
        size, value = np.abs(low.values), np.abs(x.values)
        exponents = np.where(size == 0, fmt.emin, np.maximum(np.frexp(size)[1] - 1, fmt.emin))
        unit = np.exp2(exponents.astype(np.float64) - fmt.trailing_bits)
        up = (np.floor((value - size) / unit * count) + random >= count) & np.isfinite(value)
        rounded = np.copysign(np.where(up, size + unit, size), x.values)
        rounded = np.where(np.isnan(x.values), np.nan, rounded)
        results: Codes = floatsim.encode(rounded, fmt, overflow=policy)
    return results
