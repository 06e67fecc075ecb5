"""Units in the last place, by three published definitions, and distances in units of neighbouring numbers.

Source: J.-M. Muller, "On the definition of ulp(x)", INRIA research report RR-5504, 2005.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from floatsim.arrays.array.conversion import decode, operand_codes, read_floats
from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.array.types import Float64Result, Floats, UInt64Result
from floatsim.formats import FP64, FormatLike, as_format

__all__ = ["ulp", "ulp_distance"]

Kind = Literal["goldberg", "kahan", "harrison"]
_KINDS = ("goldberg", "kahan", "harrison")


def _parts(x: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[np.bool_]]:
    """Return exponent e and significand of |x| = significand * 2**(e - 52), and whether x is finite and not 0.

    The significand is at least 2**52. Integer operations read the bits, so that a flush-to-zero mode of the processor
    has no effect.
    """
    bits = x.view(np.uint64)
    field = (bits >> np.uint64(52) & np.uint64(0x7FF)).astype(np.int64)
    trailing = bits & np.uint64((1 << 52) - 1)
    _, length = np.frexp(trailing.astype(np.float64))  # an integer below 2**53: its bit length
    spare = np.where(field == 0, 53 - length, 0).astype(np.int64)
    significand = np.where(field == 0, trailing << spare.astype(np.uint64), trailing | np.uint64(1 << 52))
    regular = (field < 0x7FF) & ((field > 0) | (trailing > 0))
    return np.maximum(field, 1) - 1023 - spare, significand, regular


def ulp(x: Floats, format: FormatLike | None = None, kind: Kind = "goldberg") -> Float64Result:
    """Return the unit in the last place of real numbers x in a format.

    Parameters
    ----------
    x : array_like of floats
        Real numbers (as float64), or a FloatArray, whose format is then the default.
    format : format, optional
        The format whose spacing is returned. Default: the format of x.
    kind : "goldberg", "kahan" or "harrison"
        goldberg: 2**(max(e, emin) - p + 1) for 2**e <= |x| < 2**(e+1). kahan: the width of the interval between the two
        finite numbers of the format nearest to x. harrison: the distance between the two closest numbers a <= x <= b,
        a != b, exponents unbounded above. The definitions differ at powers of two, just above them, and beyond max,
        where kahan keeps the last spacing.

    Returns
    -------
    ndarray of float64, in the shape of x
        The smallest subnormal for 0; NaN for NaN and infinity.

    Raises
    ------
    ValueError
        For an unknown kind or a scale format.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.ulp([1.0, 1.9, 2.0, 0.0], "fp16")
    array([9.76562500e-04, 9.76562500e-04, 1.95312500e-03, 5.96046448e-08])
    >>> fs.ulp(1.0, "fp16", kind="kahan"), fs.ulp(1.0, "fp16", kind="harrison")
    (np.float64(0.00048828125), np.float64(0.00048828125))
    """
    if kind not in _KINDS:
        raise ValueError(f"kind must be one of {', '.join(_KINDS)}, not {kind!r}")
    codes, own, _ = read_floats(x, "x")
    format = own if format is None else as_format(format)
    if format.is_scale:
        raise ValueError(f"{format.name} is a scale format: its spacing is its value")
    values = np.asarray(decode(codes, own), dtype=np.float64)
    e, significand, regular = _parts(values)
    t = format.trailing_bits
    exponent = np.maximum(e, format.emin) - t
    power = significand == np.uint64(1 << 52)
    above_emin = e > format.emin
    if kind == "harrison":
        exponent = exponent - (power & above_emin)
    elif kind == "kahan":
        # nearer to the number below 2**e than to the one above: less than half the lower spacing beyond 2**e
        beyond = significand - np.uint64(1 << 52)
        near = beyond < np.uint64(1 << (52 - t - 2)) if t <= 50 else power
        max_is_power = format.max_code & ((1 << t) - 1) == 0
        exponent = np.minimum(exponent - (near & above_emin & (e <= format.emax)), format.emax - t - max_is_power)
    exponent = np.where(regular, exponent, format.emin - t)
    unit = _power_of_two(exponent)
    return np.where(np.isfinite(values), unit, np.nan)[()]


def _power_of_two(exponent: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return 2.0**exponent for -1074 <= exponent <= 1023, made from bits."""
    normal = (np.maximum(exponent, -1022) + 1023).astype(np.uint64) << np.uint64(52)
    subnormal = np.uint64(1) << (np.clip(exponent, -1074, -1023) + 1074).astype(np.uint64)
    return np.where(exponent >= -1022, normal, subnormal).view(np.float64)


def ulp_distance(a: Floats, b: Floats, *, equal_nan: bool = False) -> UInt64Result:
    """Return the number of steps between neighbouring numbers of a format that lead from a to b.

    Parameters
    ----------
    a, b : array_like of floats of one format
        FloatArrays, arrays whose dtype is a format, or Python numbers, which take the format of the other operand.
    equal_nan : bool
        Whether the distance of two NaNs is 0.

    Returns
    -------
    ndarray of uint64
        The difference of the ordinals. The distance of +0 and -0 is 0. The result is 2**64 - 1 if one operand is NaN,
        or if both are NaN without `equal_nan`.

    Raises
    ------
    TypeError
        If the formats differ.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.ulp_distance(fs.array([1.0, -0.0, 1.0], "fp16"), fs.array([1.001, 0.0, float("nan")], "fp16"))
    array([                   1,                    0, 18446744073709551615],
          dtype=uint64)
    """
    operands = {"a": a, "b": b}
    read_ones = {name: read_floats(x, name) for name, x in operands.items() if type(x) not in (int, float)}
    formats = {own for _, own, _ in read_ones.values()} or {FP64}
    if len(formats) > 1:
        names = " and ".join(f"{name} is {own.name}" for name, (_, own, _) in read_ones.items())
        raise TypeError(f"distances are counted within one format, but {names}; fs.convert one of them")
    fmt = formats.pop()
    places, nans = [], []
    for name, x in operands.items():
        codes = read_ones[name][0] if name in read_ones else operand_codes(x, fmt, name)
        array = FloatArray(np.asarray(codes), fmt)
        places.append(_ordinals(array))
        nans.append(_is_nan(array))
    low, high = (np.asarray(extreme(*places)).view(np.uint64) for extreme in (np.minimum, np.maximum))
    distance = np.subtract(high, low)  # exact modulo 2**64
    distance = np.where(nans[0] | nans[1], np.uint64(2**64 - 1), distance)
    if equal_nan:
        distance = np.where(nans[0] & nans[1], np.uint64(0), distance)
    return distance[()]


def _ordinals(x: FloatArray) -> NDArray[np.int64]:
    """Return the place of each number in the order of its format's numbers; 0 for both zeros."""
    codes = x.codes.astype(np.uint64)
    magnitude = (codes & np.uint64(x.format.magnitude_mask)).view(np.int64)
    return np.where(codes & np.uint64(x.format.sign_mask) != 0, -magnitude, magnitude)


def _is_nan(x: FloatArray) -> NDArray[np.bool_]:
    bits = x.values.view(np.uint64) & np.uint64(2**63 - 1)
    return np.asarray(bits > np.uint64(0x7FF0000000000000))
