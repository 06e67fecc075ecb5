"""Approximations by a GPU's special-function unit, on codes: tables and numbers for the kernel, and the scaled forms.

`floatsim.reference.special_functions` is the readable definition, and `floatsim.tensorcore.special_functions` the data.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from floatsim_kernels.elementwise import tables as table_loops
from floatsim_kernels.functions import approximations as loops

from floatsim._types import Codes, Seeds
from floatsim.emulator.elementwise import pieces
from floatsim.emulator.elementwise.execute import elementwise
from floatsim.formats import FP32, FloatFormat
from floatsim.formats.call import CallOptions
from floatsim.formats.rounding import Rounding, RoundingAttributes
from floatsim.reference import special_functions as reference
from floatsim.tensorcore.special_functions import FORMS, SCALINGS, Interpolator, Scaling, as_unit

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Tables", "approximate", "divide", "tables"]

_NAN, _INFINITY, _ONE, _SIGN, _MAGNITUDE = 0x7FFFFFFF, 0x7F800000, 0x3F800000, 0x80000000, 0x7FFFFFFF
_TRAILING, _BIAS, _WIDE_BIAS = 23, 127, 1023
_ONES, _LEADING = 0xFFFFFFFF, 1 << _TRAILING
_TURN = np.uint32(0x3E22F983)  # 1 / (2 pi)
_OPTIONS = {flush: CallOptions(RoundingAttributes(daz=flush, ftz=flush)) for flush in (False, True)}
_TRUNCATED = CallOptions(RoundingAttributes(Rounding.TOWARD_ZERO))


class Tables(NamedTuple):
    """The arguments of the kernel between the codes and the results."""

    layout: NDArray[np.uint32]
    special: NDArray[np.uint32]
    rows: NDArray[np.float64]
    integers: NDArray[np.uint32]
    floats: NDArray[np.float64]


class _Reading(NamedTuple):
    """How the kernel reads the argument of a function, and forms its result."""

    fields: range
    """The exponent fields of arguments whose results are computed."""
    negative: bool
    """Whether results of negative arguments are computed."""
    place: Callable[[int], tuple[int, int]]
    """The first segment for an exponent field, and the exponent field of results from 1 to 2."""
    fraction_bits: int | None = None
    """The argument is read as fixed point with so many fraction bits; None: as a significand."""
    integers: Mapping[str, int] = MappingProxyType({})
    """Numbers of loops.INTEGERS that are not 0."""
    exact_powers: bool = False
    """Whether results of powers of two, whose trailing significand is 0, are taken from the specification."""


def _root(slope: int, offset: int) -> Callable[[int], tuple[int, int]]:
    """Return the place of a function of the exponent's half, whose parity selects the segments."""

    def place(field: int) -> tuple[int, int]:
        half, odd = divmod(field - _BIAS, 2)
        return 64 * odd, slope * half + offset

    return place


def _first(field: int) -> tuple[int, int]:
    return 0, _BIAS


_FINITE, _NORMAL = range(255), range(1, 255)
_TURNS = {"turns": 1, "largest": _ONE}
_READINGS = {
    "ex2": _Reading(range(_BIAS + 7), True, _first, 23, {"negates": _ONES, "whole": 0xFF800000}),
    "rcp": _Reading(_NORMAL, True, lambda field: (0, 2 * _BIAS - 1 - field), None, {"sign": _SIGN}),
    "rsqrt": _Reading(_NORMAL, False, _root(-1, _BIAS - 1), exact_powers=True),
    "sqrt": _Reading(_NORMAL, False, _root(1, _BIAS), exact_powers=True),
    "lg2": _Reading(_NORMAL, False, _first, exact_powers=True),
    "sin": _Reading(_FINITE, True, _first, 25, {"sign": _SIGN, **_TURNS}),
    "cos": _Reading(_FINITE, True, _first, 25, {"quarter": 1 << 23, **_TURNS}),
    "tanh": _Reading(range(_BIAS - 8, _BIAS + 3), True, _first, None, {"sign": _SIGN}),
}


def _shifts(reading: _Reading, field: int, unused: int) -> tuple[int, int]:
    """Return the shifts of a significand, to the left and to the right; 31 shifts all bits out."""
    if reading.fraction_bits is None:
        return 0, unused
    shift = field - _BIAS - _TRAILING + reading.fraction_bits
    return (min(max(shift, 0), 31), min(max(-shift, 0), 31)) if field else (0, 31)


def _layout(reading: _Reading, table: Interpolator, field: int) -> int:
    """Return the entry of `layout` for an exponent field."""
    first, exponent = reading.place(field)
    unused = 0
    if table.segments:
        k = field - reading.fields[0]
        index_bits = table.segments[k].bit_length() - 1
        first, unused = sum(table.segments[:k]), _TRAILING - index_bits - table.low_bits
    left, right = _shifts(reading, field, unused)
    added = (exponent - table.fraction_bits - _WIDE_BIAS) % 512
    entry: int = left << loops.LEFT | right << loops.RIGHT | first << loops.FIRST | added << _TRAILING
    return entry


@functools.lru_cache(maxsize=32)
def tables(function: str, unit: str) -> Tables:
    """Return the arguments of the kernel for a function, between the codes and the results."""
    reading, table = _READINGS[function], as_unit(unit).interpolator(function)
    flush = FORMS[function][FP32][-1]
    layout, special = np.zeros(512, np.uint32), np.zeros((512, 2), np.uint32)
    for top in range(512):
        negative, field = divmod(top, 256)
        computed = field in reading.fields and (reading.negative or not negative)
        if computed:
            layout[top] = _layout(reading, table, field)
        for entry, trailing in enumerate((1, 0)):
            code = top << _TRAILING | trailing
            result = reference.approximate(function, code, ftz=flush, device=unit)
            special[top, entry] = loops.ARGUMENT if result == code else result
        if computed:
            special[top, : 1 if reading.exact_powers else 2] = loops.COMPUTED
    c0, c1, c2 = np.array(table.rows, np.float64).T
    constant = table.constant + (1 << _TRAILING + table.dropped_bits if table.fraction_bits == _TRAILING else 0)
    rows = np.stack([c0 * 2.0**table.c0_shift + constant, c1, c2 * 2.0**table.c2_shift], axis=1)
    numbers = {
        "leading": 0 if reading.fraction_bits is None else 1 << _TRAILING, "low_bits": table.low_bits,
        "largest": _INFINITY, **reading.integers,
    }  # fmt: skip
    integers = np.array([numbers.get(name, 0) for name in loops.INTEGERS], np.uint32)
    exponent_unit = 2.0 ** (table.fraction_bits + table.dropped_bits) if function == "lg2" else 0.0
    floats = np.array([exponent_unit, 2.0**-table.dropped_bits])
    return Tables(layout, special.reshape(-1), rows, integers, floats)


def _flushed(function: str, unit: str, codes: Codes, out: Codes) -> None:
    """Write the results of the form that flushes subnormals, or of the only form."""
    if function in ("sin", "cos"):
        turned = np.empty_like(codes)  # not `out`: the vector instructions of the kernel need two arrays
        loops.turns(codes, _TURN, turned)
        codes = turned
    loops.approximate(codes, *tables(function, unit), out)


def approximate(
    function: str, codes: Codes, fmt: FloatFormat, flush: bool, unit: str, out: Codes | None = None
) -> Codes:
    """Return the codes of an approximated function of codes, both in `fmt`. They may use the memory of `out`.

    `flush` selects the form of FP32. Formats of 16 bits have one form each.
    """
    flat, results = pieces.flattened(codes, codes.shape, fmt.code_dtype), _results(codes.shape, fmt, out, codes)

    def run(cut: pieces.Arrays, written: pieces.Array, draws: Seeds) -> None:
        if fmt == FP32:
            _fp32(function, unit, flush, cut[0], written)
        else:
            table_loops.gather(cut[0], _every_result(function, unit, fmt), written)

    pieces.in_pieces(f"{function}.approx", run, [flat], results.reshape(-1), pieces.NO_DRAWS)
    return results


def divide(a: Codes, b: Codes, flush: bool, unit: str, out: Codes | None = None) -> Codes:
    """Return FP32 codes of a times the approximated reciprocal of b, rounded to nearest. They may use `out`."""
    shape = np.broadcast_shapes(a.shape, b.shape)
    operands = [pieces.flattened(x, shape, FP32.code_dtype) for x in (a, b)]
    results = _results(shape, FP32, out, a, b)
    subnormal, _ = SCALINGS["rcp"]

    def run(cut: pieces.Arrays, written: pieces.Array, draws: Seeds) -> None:
        inverse = np.empty_like(written)
        _flushed("rcp", unit, cut[1], inverse)
        if not flush:
            _scale("rcp", unit, subnormal, cut[1], inverse)
        product = _operation("multiply", cut[0], inverse, out=written)
        if product is not written:
            written[...] = product
        if flush:  # few: the kernels that flush are slow
            near = _is_in(cut[0], _MAGNITUDE, 1, _LEADING - 1) | _is_in(written, _MAGNITUDE, 1, _LEADING)
            places = np.flatnonzero(near)
            written[places] = _operation("multiply", cut[0][places], inverse[places], True)
        np.copyto(written, np.uint32(_NAN), where=_is_nan(written))

    pieces.in_pieces("div.approx", run, operands, results.reshape(-1), pieces.NO_DRAWS)
    return results


def _results(shape: tuple[int, ...], fmt: FloatFormat, out: Codes | None, *read: Codes) -> Codes:
    """Return `out` if a kernel may write to it while it reads the operands, else a new array."""
    if out is not None and out.flags.c_contiguous and not any(np.may_share_memory(out, codes) for codes in read):
        return out
    return np.empty(shape, fmt.code_dtype)


def _fp32(function: str, unit: str, flush: bool, codes: Codes, out: Codes) -> None:
    """Write the results of FP32 codes."""
    _flushed(function, unit, codes, out)
    if not flush:
        for scaling in SCALINGS.get(function, ()):
            _scale(function, unit, scaling, codes, out)


def _scale(function: str, unit: str, scaling: Scaling, codes: Codes, out: Codes) -> None:
    """Replace the results of arguments near the ends of FP32 by scaled ones."""
    places = np.flatnonzero(_is_in(codes, scaling.mask, scaling.first, scaling.last))
    if not places.size:
        return
    results = _new(function, unit, _operation("multiply", codes[places], _constant(scaling.factor)))
    operand = results if scaling.operation == "square" else _constant(scaling.operand)
    results = _operation("subtract" if scaling.operation == "subtract" else "multiply", results, operand)
    np.copyto(results, np.uint32(_NAN), where=_is_nan(results))
    out[places] = results


def _new(function: str, unit: str, codes: Codes) -> Codes:
    """Return the results of the form that flushes subnormals, or of the only form."""
    out = np.empty_like(codes)
    _flushed(function, unit, codes, out)
    return out


def _constant(value: float) -> Codes:
    return np.array(value, np.float32).view(np.uint32)


def _operation(name: str, a: Codes, b: Codes, flush: bool = False, out: Codes | None = None) -> Codes:
    codes, _ = elementwise(name, [(a, FP32), (b, FP32)], FP32, _OPTIONS[flush], False, out)
    return codes


def _is_in(codes: Codes, mask: int, first: int, last: int) -> NDArray[np.bool_]:
    """Return where first <= code & mask <= last, by one comparison of differences modulo 2**32."""
    beyond = codes & np.uint32(mask)
    beyond -= np.uint32(first)
    inside: NDArray[np.bool_] = beyond <= np.uint32(last - first)
    return inside


def _is_nan(codes: Codes) -> NDArray[np.bool_]:
    return _is_in(codes, _MAGNITUDE, _INFINITY + 1, _MAGNITUDE)


@functools.lru_cache(maxsize=16)
def _every_result(function: str, unit: str, fmt: FloatFormat) -> Codes:
    """Return the results of all codes of 16 bits: those of FP32, truncated. A NaN has ones in all bits but the sign."""
    wide, _ = elementwise("convert", [(fmt.codes(), fmt)], FP32, _OPTIONS[False], False)
    results = _new(function, unit, wide)
    table, _ = elementwise("convert", [(results, FP32)], fmt, _TRUNCATED, False)
    infinite = _is_in(results, _MAGNITUDE, fmt.emax + 1 + _BIAS << _TRAILING, _INFINITY)
    assert fmt.infinity_code is not None
    table[infinite] &= fmt.code_dtype.type(fmt.sign_mask)
    table[infinite] |= fmt.code_dtype.type(fmt.infinity_code)
    table[_is_nan(results)] = fmt.magnitude_mask
    return table
