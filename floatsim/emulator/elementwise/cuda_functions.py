"""CUDA's mathematical functions on arrays of codes: `floatsim.tensorcore.cuda_functions` has the sequences.

FP32 runs a sequence as a program of a kernel (`cuda_programs`). Without fused multiply-adds, and for functions rounded
once, it runs a sequence operation by operation, on pieces of the array that stay in the processor's caches. In 16 bits,
the results of all codes are computed in FP32, rounded once, and kept in a table.
"""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from floatsim_kernels.elementwise import tables as table_loops
from floatsim_kernels.runtime import cpu

from floatsim._types import Codes, Seeds
from floatsim.accumulation.library_rules import NotDescribedError
from floatsim.emulator.elementwise import cuda_programs, pieces
from floatsim.emulator.elementwise.approximations import approximate
from floatsim.emulator.elementwise.execute import convert, elementwise
from floatsim.formats import BF16, FP16, FP32, FP64, FloatFormat
from floatsim.formats.call import CallOptions
from floatsim.formats.rounding import Rounding, RoundingAttributes
from floatsim.tensorcore.cuda_functions import CUDA_FUNCTIONS, as_cuda_function, payne_hanek_words

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["cuda_function", "sequence"]

_NEAREST = CallOptions(RoundingAttributes())
_TOWARD_ZERO = CallOptions(RoundingAttributes(Rounding.TOWARD_ZERO))
_NAN = {FP32: 0x7FFFFFFF, FP16: 0x7FFF, BF16: 0x7FFF}
_SIGN, _MAGNITUDE, _INFINITY = np.uint32(0x80000000), np.uint32(0x7FFFFFFF), np.uint32(0x7F800000)
_TRAILING, _BIAS = np.uint32(23), np.uint32(127)
_LEADING = np.uint32(1 << 23)
_PIECE = 1 << 13  # elements: the numbers of a sequence take 32 kB each, and a step of it 2 to 10 us


def _of(name: str, *operands: _Singles, options: CallOptions = _NEAREST) -> _Singles:
    codes, _ = elementwise(name, [(x.codes, FP32) for x in operands], FP32, options, False)
    return _Singles(codes)


@dataclass(frozen=True, eq=False)
class _Singles:
    """An array of FP32 numbers, by their codes. The arithmetic is that of the emulator, ties to even."""

    codes: Codes

    @property
    def values(self) -> NDArray[np.float32]:
        return self.codes.view(np.float32)

    def __add__(self, other: _Singles) -> _Singles:
        return _of("add", self, other)

    def __sub__(self, other: _Singles) -> _Singles:
        return _of("subtract", self, other)

    def __mul__(self, other: _Singles) -> _Singles:
        return _of("multiply", self, other)

    def __truediv__(self, other: _Singles) -> _Singles:
        return _of("divide", self, other)

    def __neg__(self) -> _Singles:
        return _Singles(self.codes ^ _SIGN)

    def __abs__(self) -> _Singles:
        return _Singles(self.codes & _MAGNITUDE)

    def __lt__(self, other: _Singles) -> Any:
        return self.values < other.values

    def __le__(self, other: _Singles) -> Any:
        return self.values <= other.values

    def __gt__(self, other: _Singles) -> Any:
        return self.values > other.values

    def __ge__(self, other: _Singles) -> Any:
        return self.values >= other.values


def _number(value: float) -> _Singles:
    return _constant(struct.pack("<d", value))  # bits tell the zeros apart


@functools.lru_cache(maxsize=1024)
def _constant(bits: bytes) -> _Singles:
    codes, _ = convert(np.frombuffer(bits, np.uint64), FP64, FP32, _NEAREST, False)
    codes.flags.writeable = False
    return _Singles(codes)


class _ArrayMachine:
    """The machine of `floatsim.tensorcore.cuda_functions` for arrays."""

    number = staticmethod(_number)

    def fma(self, a: _Singles, b: _Singles, c: _Singles) -> _Singles:
        return _of("fma", a, b, c)

    def add_toward_zero(self, a: _Singles, b: _Singles) -> _Singles:
        return _of("add", a, b, options=_TOWARD_ZERO)

    def sqrt(self, a: _Singles) -> _Singles:
        return _of("sqrt", a)

    def approximate(self, name: str, a: _Singles) -> _Singles:
        return _Singles(approximate(name, a.codes, FP32, True, "sm_90"))

    def nearest(self, name: str, a: _Singles) -> _Singles:
        return _of(name, a)

    def nearest_power(self, a: _Singles, exponent: float) -> _Singles:
        return _of("power", a, _number(exponent))

    def select(self, condition: Any, a: _Singles, b: _Singles) -> _Singles:
        return _Singles(np.where(condition, a.codes, b.codes))

    def truncate(self, a: _Singles) -> _Singles:
        return _of("trunc", a)

    def power_of_two(self, n: _Singles) -> _Singles:
        with np.errstate(invalid="ignore"):
            field = n.values.astype(np.int32).view(np.uint32) + _BIAS
        return _Singles(field << _TRAILING)

    def split(self, a: _Singles, least: float) -> tuple[_Singles, _Singles]:
        moved = (a.codes - _number(least).codes).view(np.int32) >> np.int32(23)
        rest = a.codes - (moved.view(np.uint32) << _TRAILING)
        return _Singles(moved.astype(np.float32).view(np.uint32)), _Singles(rest)

    def with_sign_of(self, a: _Singles, b: _Singles) -> _Singles:
        return _Singles(a.codes & _MAGNITUDE | b.codes & _SIGN)

    def is_odd(self, n: _Singles) -> Any:
        with np.errstate(invalid="ignore"):
            return n.values.astype(np.int32) & 1 != 0

    def reduce_large(self, a: _Singles) -> tuple[_Singles, _Singles]:
        significand = (a.codes & (_LEADING - np.uint32(1)) | _LEADING).astype(np.uint64)
        field = a.codes >> _TRAILING & np.uint32(255)
        words = _payne_hanek()[np.clip(field.astype(np.int64) - 127, 0, 127)]
        low = significand * words[..., 0] >> np.uint64(32)
        middle = significand * words[..., 1] + low
        high = significand * words[..., 2] + (middle >> np.uint64(32))
        product = (high << np.uint64(32) | middle & np.uint64(0xFFFFFFFF)).view(np.int64)
        n = (product >> np.int64(61)) + 1 >> 1
        rest = product - (n << np.int64(62))
        negative = a.codes & _SIGN
        r = (rest.astype(np.float64) * (np.pi / 2 * 2.0**-62)).astype(np.float32).view(np.uint32) ^ negative
        turns = (n & 3).astype(np.float32).view(np.uint32)
        return _Singles(r), _Singles(np.where(turns != 0, turns ^ negative, turns))


@functools.cache
def _payne_hanek() -> NDArray[np.uint64]:
    """Return the words of `payne_hanek_words`, 32 bits each, the lowest first."""
    return np.array([[word >> 32 * k & 0xFFFFFFFF for k in range(3)] for word in payne_hanek_words()], np.uint64)


_MACHINE = _ArrayMachine()


def cuda_function(name: str, codes: Codes, fmt: FloatFormat, number: float | None = None) -> Codes:
    """Return the codes of a function of CUDA's library, of codes in FP32, FP16 or BF16. NaN is the GPU's."""
    row = as_cuda_function(name)
    if fmt not in _NAN:
        raise TypeError(f"{name}: x is {fmt.name}, and the functions of CUDA take FP32, FP16 and BF16; fs.convert it")
    if (number is not None) != row.takes_number:
        raise TypeError(f"{name} takes {'a' if row.takes_number else 'no'} number")
    if number is not None:
        number = float(number)
    if number is not None and row.numbers and number not in row.numbers:
        recorded = " and ".join(f"{each:g}" for each in row.numbers)
        raise NotDescribedError(f"{name}: {number:g} was not recorded on the GPU; recorded are {recorded}")
    if fmt != FP32:
        return _looked_up(codes, _table(name, fmt, number, _bits(number)))
    if not row.in_fp32 and number != 2:
        known = ", ".join(each.name for each in CUDA_FUNCTIONS.values() if each.in_fp32)
        raise NotDescribedError(
            f"{name}: its operations in FP32 are not known, only its results in 16 bits; known in FP32 are {known}"
        )
    flat = np.ascontiguousarray(codes, np.uint32).reshape(-1)
    out = np.empty(flat.size, np.uint32)

    def run(arrays: list[Any], written: Any, draws: Seeds) -> None:
        _write_singles(name, arrays[0], number, written)

    pieces.in_pieces(name, run, [flat], out, pieces.NO_DRAWS)
    return out.reshape(codes.shape)


def _write_singles(name: str, codes: Codes, number: float | None, out: Codes) -> None:
    """Write the results of a sequence in FP32: by the kernel if it has all operations, else piece by piece."""
    if cpu.has_fma() and cpu.environment_is_default():
        found = cuda_programs.program(name, number, _bits(number))
        if found is not None:
            cuda_programs.run(found, codes, out)
            return
    for start in range(0, out.size, _PIECE):
        piece = slice(start, start + _PIECE)
        out[piece] = sequence(name, codes[piece], number)


def _bits(number: float | None) -> str:
    """Return a text that tells numbers apart that are equal, such as the zeros."""
    return "" if number is None else number.hex()


def sequence(name: str, codes: Codes, number: float | None) -> Codes:
    """Return the results of a sequence in FP32, operation by operation, on every processor."""
    numbers = () if number is None else (number,)
    with np.errstate(all="ignore"):
        result: Codes = CUDA_FUNCTIONS[name].steps(_MACHINE, _Singles(codes), *numbers).codes
    return np.where(result & _MAGNITUDE > _INFINITY, np.uint32(_NAN[FP32]), result)


@functools.lru_cache(maxsize=128)
def _table(name: str, fmt: FloatFormat, number: float | None, bits: str) -> Codes:
    """Return the results of all codes of 16 bits. `bits` tells numbers apart that are equal, such as the zeros."""
    every = np.arange(1 << 16, dtype=np.uint16)
    singles, _ = convert(every, fmt, FP32, _NEAREST, False)
    result = np.empty_like(singles)
    _write_singles(name, singles, number, result)
    table, _ = convert(result, FP32, fmt, _NEAREST, False)
    table = np.where(result == _NAN[FP32], np.uint16(_NAN[fmt]), table)
    table.flags.writeable = False
    return table


def _looked_up(codes: Codes, table: Codes) -> Codes:
    flat = np.ascontiguousarray(codes, np.uint16).reshape(-1)
    out = np.empty(flat.size, np.uint16)
    table_loops.gather(flat, table, out)
    return out.reshape(codes.shape)
