"""The storage types of GGUF files: how the bytes of a block are codes, scales and offsets.

The types are those of ggml (https://github.com/ggml-org/ggml, MIT licence, see NOTICE), whose sources define them:
ggml-common.h and ggml-quants.c. A type is a row of `GGUF_TYPES`, with one function that splits its blocks.
"""

from __future__ import annotations

import base64
import functools
import json
import math
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from floatsim.arrays.array.float_array import FloatArray
from floatsim.emulator.elementwise.block_scales import (
    unpacked_codes,
    unpacked_fields,
    unpacked_points,
    unpacked_runs,
)
from floatsim.formats import FP16, FP32
from floatsim.formats._validation import every_name_hint
from floatsim.quantization.integer import INT4, INT5, INT6, INT8, TERNARY, UINT2, UINT4, UINT5, IntegerFormat
from floatsim.quantization.quantized import Quantized
from floatsim.quantization.scheme import Scheme

__all__ = ["E4M3_HALF", "GGUF_TYPES", "GgufType", "as_gguf_type", "from_gguf", "grid_of", "packing_of", "shape_of_rows"]

Array: TypeAlias = NDArray[Any]
Run: TypeAlias = tuple[int, int, int, int, int, int, int]


class Parts(NamedTuple):
    """What blocks hold: codes (blocks, elements), scales and offsets (blocks, groups) in float16 or float32."""

    codes: Array
    scales: Array
    offsets: Array | None = None


@dataclass(frozen=True)
class GgufType:
    """A storage type of GGUF. `GGUF_TYPES` has all of them.

    Parameters
    ----------
    name : str
        The name, as "Q4_K".
    number : int
        The number of the type in files.
    size : int
        The elements of a block. A row of a tensor has whole blocks.
    nbytes : int
        The bytes of a block.
    group : int
        The elements that share a scale.
    format : IntegerFormat
        The elements without scales.
    parts : callable
        Splits an array (blocks, bytes).

    Examples
    --------
    >>> from floatsim.quantization import GGUF_TYPES
    >>> q4_k = GGUF_TYPES["Q4_K"]
    >>> q4_k.number, q4_k.size, q4_k.nbytes, q4_k.bits
    (12, 256, 144, 4.5)
    """

    name: str
    number: int
    size: int
    nbytes: int
    group: int
    format: IntegerFormat
    parts: Callable[[Array], Parts] = field(repr=False, compare=False)

    @property
    def bits(self) -> float:
        """The bits of one element, with its share of the scales."""
        return 8 * self.nbytes / self.size


# -- codes -------------------------------------------------------------------------------------------------------------


def _run(start: int, count: int, byte: int, shift: int, width: int, place: int = 1) -> Run:
    """Return the run of the fields of `width` bits, the lowest of which is `shift`, in `count` neighbouring bytes."""
    return start, count, byte, 1 << (8 - shift - width), 1 << width, place, 0


def _halves(byte: int, pieces: int, count: int, bits: int = 4) -> list[Run]:
    """Return the runs of pieces of `count` bytes, whose fields of `bits` bits come one after the other, low first."""
    each = 8 // bits
    return [
        _run((piece * each + k) * count, count, byte + piece * count, k * bits, bits)
        for piece in range(pieces) for k in range(each)
    ]  # fmt: skip


def _bits(byte: int, count: int, place: int = 1) -> list[Run]:
    """Return the runs of one bit for each element, eight elements in a byte."""
    return [(j, 8, byte + j // 8, 128, 2, place, 1) for j in range(0, count, 8)]


def _trits(start: int, byte: int, count: int, digits: int) -> list[Run]:
    """Return the runs of the digits to base 3 of fractions of 256, the first digit first."""
    return [(start + k * count, count, byte, 3**k, 3, 1, 0) for k in range(digits)]


class Packing:
    """How the codes of a block are packed: the runs of their fields, a bias, and a table of elements or None."""

    def __init__(self, size: int, runs: Iterable[Run], bias: int = 0, table: Iterable[int] | None = None) -> None:
        self.size, self.runs, self.bias = size, np.array(list(runs), np.int64), bias
        self.table = None if table is None else np.resize(np.array(list(table), np.int8), 256)
        self._unpacked = unpacked_runs(self.runs, bias, self.table)

    @property
    def entries(self) -> Array:
        """The table, repeated up to 256 entries."""
        if self.table is None:
            raise ValueError("these codes have no table")
        return self.table

    def __call__(self, blocks: Array) -> Array:
        """Return the elements of blocks: the sums of the digits less the bias, or the entries of the table."""
        return unpacked_codes(blocks, self.size, self._unpacked)

    def pack(self, codes: Array, nbytes: int) -> Array:
        """Return bytes of blocks (blocks, nbytes) with codes from 0 up, before bias and table; other bytes are 0."""
        out = np.zeros((len(codes), nbytes), np.int64)
        for start, count, byte, factor, base, place, halves in self.runs.tolist():
            digits = codes[:, start : start + count] // place % base
            if base == 3:  # a fraction of 256, which is rounded up at the end
                out[:, byte : byte + count] += digits * (81 // factor)
            elif halves:
                out[:, byte] += (digits << np.arange(count)).sum(axis=1)
            else:
                out[:, byte : byte + count] += digits * (256 // (factor * base))
        if np.any(self.runs[:, 4] == 3):
            out = (out * 256 + 242) // 243
        return out.astype(np.uint8)


_NF4_LIKE = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
_E2M1_TWICE = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)

_NIBBLES = _halves(0, 4, 32)
_Q2 = [run for half in range(2) for run in (_run(128 * half + 32 * k, 32, 32 * half, 2 * k, 2) for k in range(4))]


def _moved(runs: Iterable[Run], byte: int) -> list[Run]:
    """Return runs whose bytes begin later."""
    return [(run[0], run[1], run[2] + byte, run[3], run[4], run[5], run[6]) for run in runs]


# -- scales ------------------------------------------------------------------------------------------------------------


def _view(blocks: Array, start: int, stop: int, dtype: str) -> Array:
    """Return the bytes of all blocks as numbers, (blocks, numbers)."""
    return np.ascontiguousarray(blocks[:, start:stop].view(dtype))


def _half(blocks: Array, byte: int) -> Array:
    """Return the FP16 number at a byte of all blocks, (blocks, 1)."""
    return _view(blocks, byte, byte + 2, "<f2")


def _float(blocks: Array, byte: int) -> Array:
    return _half(blocks, byte).astype(np.float32)


Piece: TypeAlias = tuple[int, int, int, int]


def _field(byte: int, shift: int, width: int, left: int = 0) -> list[Piece]:
    """Return the pieces of a field of little-endian bytes: it begins at bit `shift` of the bytes from `byte` on."""
    pieces = []
    while width:
        byte, shift = byte + shift // 8, shift % 8
        bits = min(width, 8 - shift)
        pieces.append((byte, shift, (1 << bits) - 1, left))
        byte, shift, width, left = byte + 1, 0, width - bits, left + bits
    return pieces


class Fields:
    """Numbers of a block that are made of fields: `pieces(k)` are those of the number k. They are shifted by `bias`."""

    def __init__(self, count: int, pieces: Callable[[int], list[Piece]], dtype: Any = np.uint8, bias: int = 0) -> None:
        rows = [pieces(k) for k in range(count)]
        length = max(map(len, rows))
        self._pieces = np.array([row + [(0, 0, 0, 0)] * (length - len(row)) for row in rows], np.int64)
        self._dtype, self._bias = np.dtype(dtype), bias

    def __call__(self, blocks: Array) -> Array:
        """Return the numbers (blocks, count) of blocks (blocks, bytes)."""
        numbers = unpacked_fields(blocks, self._pieces, self._dtype)
        return numbers.view(np.int8) - np.int8(self._bias) if self._bias else numbers


def _nibbles(byte: int, count: int) -> Fields:
    """Return numbers of 4 bits, the first one in the low bits of a byte."""
    return Fields(count, lambda k: _field(byte, 4 * k, 4))


_Q3_SCALES = Fields(16, lambda k: _field(96 + k % 8, k // 8 * 4, 4) + _field(104 + k % 4, k // 4 * 2, 2, 4), bias=32)
"""The scales of Q3_K, 6 bits each: the low 4 bits in 8 bytes, the high 2 bits in 4 bytes."""
_Q4_SCALES = Fields(8, lambda k: _field(4 + k, 0, 6) if k < 4 else _field(8 + k, 0, 4) + _field(k, 6, 2, 4))
_Q4_MINIMA = Fields(8, lambda k: _field(8 + k, 0, 6) if k < 4 else _field(8 + k, 4, 4) + _field(4 + k, 6, 2, 4))
"""The 8 scales and the 8 minima of Q4_K and Q5_K, 6 bits each in 12 bytes."""


def _affine(codes: Packing, d: int, offset: int) -> Callable[[Array], Parts]:
    """Return the function of a type with an FP16 scale and an FP16 offset."""
    return lambda blocks: Parts(codes(blocks), _half(blocks, d), _half(blocks, offset))


def _plain(codes: Packing, d: int = 0) -> Callable[[Array], Parts]:
    """Return the function of a type with one FP16 scale."""
    return lambda blocks: Parts(codes(blocks), _half(blocks, d))


def _from_table(codes: Packing, table: Array, count: int) -> Callable[[Array], Parts]:
    """Return the function of a type whose first `count` bytes are codes of scales."""
    return lambda blocks: Parts(codes(blocks), table[blocks[:, :count]])


def _times(d: Array, factors: Array) -> Array:
    with np.errstate(all="ignore"):
        products: Array = d * factors.astype(np.float32)
    return products


def _q2_k(blocks: Array) -> Parts:
    scales = blocks[:, :16]
    return Parts(
        _PACKINGS["Q2_K"](blocks), _times(_float(blocks, 80), scales & 15), -_times(_float(blocks, 82), scales >> 4)
    )  # fmt: skip


def _q3_k(blocks: Array) -> Parts:
    return Parts(_PACKINGS["Q3_K"](blocks), _times(_float(blocks, 108), _Q3_SCALES(blocks)))


def _with_minima(codes: Packing) -> Callable[[Array], Parts]:
    def parts(blocks: Array) -> Parts:
        d, low = (_times(_float(blocks, 0), _Q4_SCALES(blocks)), -_times(_float(blocks, 2), _Q4_MINIMA(blocks)))
        return Parts(codes(blocks), d, low)

    return parts


def _q6_k(blocks: Array) -> Parts:
    return Parts(_PACKINGS["Q6_K"](blocks), _times(_float(blocks, 208), _view(blocks, 192, 208, "i1")))


def _q8_k(blocks: Array) -> Parts:
    return Parts(_PACKINGS["Q8_K"](blocks), _view(blocks, 0, 4, "<f4"))


_IQ4_SCALES = Fields(8, lambda k: _field(4, 4 * k, 4) + _field(2, 2 * k, 2, 4), bias=32)


def _iq4_xs(blocks: Array) -> Parts:
    return Parts(_PACKINGS["IQ4_XS"](blocks), _times(_float(blocks, 0), _IQ4_SCALES(blocks)))


_PACKINGS = {
    "Q4_0": Packing(32, _halves(2, 1, 16), 8),
    "Q4_1": Packing(32, _halves(4, 1, 16)),
    "Q5_0": Packing(32, [*_halves(6, 1, 16), *_bits(2, 32, 16)], 16),
    "Q5_1": Packing(32, [*_halves(8, 1, 16), *_bits(4, 32, 16)]),
    "Q8_0": Packing(32, [_run(0, 32, 2, 0, 8)]),
    "Q2_K": Packing(256, _moved(_Q2, 16)),
    "Q3_K": Packing(256, [*_moved(_Q2, 32), *(_run(32 * k, 32, 0, k, 1, 4) for k in range(8))], 4),
    "Q4_K": Packing(256, _moved(_NIBBLES, 16)),
    "Q5_K": Packing(256, [*_moved(_NIBBLES, 48), *(_run(32 * k, 32, 16, k, 1, 16) for k in range(8))]),
    "Q6_K": Packing(256, [
        *(_run(128 * h + 64 * k, 64, 64 * h, 4 * k, 4) for h in range(2) for k in range(2)),
        *(_run(128 * h + 32 * k, 32, 128 + 32 * h, 2 * k, 2, 16) for h in range(2) for k in range(4)),
    ], 32),
    "Q8_K": Packing(256, [_run(0, 256, 4, 0, 8)]),
    "IQ4_NL": Packing(32, _halves(2, 1, 16), 0, _NF4_LIKE),
    "IQ4_XS": Packing(256, _halves(8, 8, 16), 0, _NF4_LIKE),
    "TQ1_0": Packing(256, [*_trits(0, 0, 32, 5), *_trits(160, 32, 16, 5), *_trits(240, 48, 4, 4)], 1),
    "TQ2_0": Packing(256, _Q2, 1),
    "MXFP4": Packing(32, _halves(1, 1, 16), 0, _E2M1_TWICE),
    "NVFP4": Packing(64, _halves(4, 4, 8), 0, _E2M1_TWICE),
    "Q1_0": Packing(128, _bits(2, 128), 0, (-1, 1)),
}  # fmt: skip
"""The codes of the types without a grid."""


def packing_of(kind: GgufType) -> Packing:
    """Return how the codes of a type without a grid are packed."""
    return _PACKINGS[kind.name]


_E8M0_HALF = np.ldexp(np.float32(1), np.arange(256) - 128).astype(np.float32)
"""Half of the number of a code of E8M0, since the codes count halves. The code 255 is 2**127, not NaN, as in ggml."""


def _unsigned_e4m3() -> Array:
    """Return half of the number of each code of NVFP4's scales. The sign bit is not read, and NaN counts as zero."""
    code = np.arange(256)
    exponent, fraction = code >> 3 & 15, code & 7
    numbers = np.where(exponent == 0, fraction * 2.0**-10, (8 + fraction) * 2.0 ** (exponent - 11.0))
    numbers[0x7F] = 0
    return numbers.astype(np.float32)


E4M3_HALF = _unsigned_e4m3()


# -- grids -------------------------------------------------------------------------------------------------------------


@functools.cache
def grid_of(name: str) -> Array:
    """Return the points of the grid of a type, int8 (points, elements)."""
    entry = json.loads((Path(__file__).parent / "gguf_grids.json").read_text())[name]
    width = (len(entry["numbers"]) - 1).bit_length()
    packed = np.frombuffer(zlib.decompress(base64.b85decode(entry["points"])), np.uint8)
    count = math.prod(entry["shape"])
    digits = np.unpackbits(packed, bitorder="little")[: count * width].reshape(count, width)
    index = digits @ (1 << np.arange(width))
    return np.array(entry["numbers"], np.int8)[index].reshape(entry["shape"])


@functools.cache
def _eighths(delta: int) -> Array:
    """Return the grid of IQ1_S in units of 1/8, plus and, in a second half, minus `delta` of them."""
    points = 8 * grid_of("IQ1_S").astype(np.int8)
    return np.concatenate([points + np.int8(delta), points - np.int8(delta)])


def _halved(d: Array, scales: Array, unit: float) -> Array:
    """Return d * (1/2 + scale) * unit in float32."""
    with np.errstate(all="ignore"):
        numbers: Array = d * (np.float32(0.5) + scales.astype(np.float32)) * np.float32(unit)
    return numbers


def _odd(d: Array, scales: Array) -> Array:
    """Return d * (2 * scale + 1) in float32."""
    return _times(d, 2 * scales.astype(np.int32) + 1)


class Points(NamedTuple):
    """Where a block has the points of a grid, the signs of eight elements each, and the integer scales of groups."""

    places: Fields
    signs: Fields
    scales: Fields
    even: bool = False
    """Whether signs have seven bits: an eighth one makes the number of negative elements even."""


def _codes(name: str, blocks: Array) -> Array:
    """Return the codes of the points of blocks, with signs."""
    fields = _POINTS[name]
    return unpacked_points(fields.places(blocks), fields.signs(blocks), grid_of(name), fields.even)


def _with_halves(name: str, unit: float) -> Callable[[Array], Parts]:
    """Return the function of a type with scales d * (1/2 + s) * unit."""
    return lambda blocks: Parts(_codes(name, blocks), _halved(_float(blocks, 0), _POINTS[name].scales(blocks), unit))


_POINTS = {
    "IQ2_XXS": Points(
        Fields(32, lambda k: _field(2 + 8 * (k // 4) + k % 4, 0, 8), np.uint16),
        Fields(32, lambda k: _field(6 + 8 * (k // 4), 7 * (k % 4), 7)),
        Fields(8, lambda k: _field(6 + 8 * k, 28, 4)),
        even=True,
    ),
    "IQ2_XS": Points(
        Fields(32, lambda k: _field(2 + 2 * k, 0, 9), np.uint16),
        Fields(32, lambda k: _field(2 + 2 * k, 9, 7)),
        _nibbles(66, 16),
        even=True,
    ),
    "IQ2_S": Points(
        Fields(32, lambda k: _field(2 + k, 0, 8) + _field(66, 2 * k, 2, 8), np.uint16),
        Fields(32, lambda k: _field(34 + k, 0, 8)),
        _nibbles(74, 16),
    ),
    "IQ3_XXS": Points(
        Fields(64, lambda k: _field(2 + k, 0, 8), np.uint16),
        Fields(32, lambda k: _field(66 + 4 * (k // 4), 7 * (k % 4), 7)),
        Fields(8, lambda k: _field(66 + 4 * k, 28, 4)),
        even=True,
    ),
    "IQ3_S": Points(
        Fields(64, lambda k: _field(2 + k, 0, 8) + _field(66, k, 1, 8), np.uint16),
        Fields(32, lambda k: _field(74 + k, 0, 8)),
        _nibbles(106, 8),
    ),
}


def _iq3_s(blocks: Array) -> Parts:
    return Parts(_codes("IQ3_S", blocks), _odd(_float(blocks, 0), _POINTS["IQ3_S"].scales(blocks)))


def _iq1(index: Array) -> Array:
    """Return the codes of points of the grid, plus 1/8, or minus 1/8 where bit 11 of the index is set."""
    return unpacked_points(index, np.zeros(index.shape, np.uint8), _eighths(1))


_IQ1_S_INDEX = Fields(
    32, lambda k: _field(2 + k, 0, 8) + _field(34 + k // 4 * 2, k % 4 * 3, 3, 8) + _field(35 + k // 4 * 2, 7, 1, 11),
    np.uint16,
)  # fmt: skip
_IQ1_S_SCALES = Fields(8, lambda k: _field(34 + 2 * k, 12, 3))
_IQ1_M_INDEX = Fields(32, lambda k: _field(k, 0, 8) + _field(32, 4 * k, 4, 8), np.uint16)
_IQ1_M_SCALES = Fields(16, lambda k: _field(48 + k // 4 * 2, k % 4 * 3, 3))
_IQ1_M_SCALE = Fields(1, lambda k: [piece for j in range(4) for piece in _field(49 + 2 * j, 4, 4, 4 * j)], np.uint16)
"""The FP16 scale of a block of IQ1_M: the highest four bits of each of four words."""


def _iq1_s(blocks: Array) -> Parts:
    return Parts(_iq1(_IQ1_S_INDEX(blocks)), _odd(_float(blocks, 0), _IQ1_S_SCALES(blocks)))


def _iq1_m(blocks: Array) -> Parts:
    d = _IQ1_M_SCALE(blocks).view(np.float16).astype(np.float32)
    return Parts(_iq1(_IQ1_M_INDEX(blocks)), _odd(d, _IQ1_M_SCALES(blocks)))


# -- the table ---------------------------------------------------------------------------------------------------------


def _integers(name: str, largest: int, fraction_bits: int = 0) -> IntegerFormat:
    return IntegerFormat(name, -largest, largest, fraction_bits)


_IQ2, _IQ1 = _integers("IQ2", 43), _integers("IQ1", 9, 3)
_IQ3_XXS, _IQ3_S = _integers("IQ3_XXS", 62), _integers("IQ3_S", 15)
_FOUR, _E2M1 = IntegerFormat("IQ4", -127, 113), _integers("E2M1 times 2", 12)

_ROWS = (
    GgufType("Q4_0", 2, 32, 18, 32, INT4, _plain(_PACKINGS["Q4_0"])),
    GgufType("Q4_1", 3, 32, 20, 32, UINT4, _affine(_PACKINGS["Q4_1"], 0, 2)),
    GgufType("Q5_0", 6, 32, 22, 32, INT5, _plain(_PACKINGS["Q5_0"])),
    GgufType("Q5_1", 7, 32, 24, 32, UINT5, _affine(_PACKINGS["Q5_1"], 0, 2)),
    GgufType("Q8_0", 8, 32, 34, 32, INT8, _plain(_PACKINGS["Q8_0"])),
    GgufType("Q2_K", 10, 256, 84, 16, UINT2, _q2_k),
    GgufType("Q3_K", 11, 256, 110, 16, _integers("Q3_K", 4), _q3_k),
    GgufType("Q4_K", 12, 256, 144, 32, UINT4, _with_minima(_PACKINGS["Q4_K"])),
    GgufType("Q5_K", 13, 256, 176, 32, UINT5, _with_minima(_PACKINGS["Q5_K"])),
    GgufType("Q6_K", 14, 256, 210, 16, INT6, _q6_k),
    GgufType("Q8_K", 15, 256, 292, 256, INT8, _q8_k),
    GgufType("IQ2_XXS", 16, 256, 66, 32, _IQ2, _with_halves("IQ2_XXS", 0.25)),
    GgufType("IQ2_XS", 17, 256, 74, 16, _IQ2, _with_halves("IQ2_XS", 0.25)),
    GgufType("IQ3_XXS", 18, 256, 98, 32, _IQ3_XXS, _with_halves("IQ3_XXS", 0.5)),
    GgufType("IQ1_S", 19, 256, 50, 32, _IQ1, _iq1_s),
    GgufType("IQ4_NL", 20, 32, 18, 32, _FOUR, _plain(_PACKINGS["IQ4_NL"])),
    GgufType("IQ3_S", 21, 256, 110, 32, _IQ3_S, _iq3_s),
    GgufType("IQ2_S", 22, 256, 82, 16, _IQ2, _with_halves("IQ2_S", 0.25)),
    GgufType("IQ4_XS", 23, 256, 136, 32, _FOUR, _iq4_xs),
    GgufType("IQ1_M", 29, 256, 56, 16, _IQ1, _iq1_m),
    GgufType("TQ1_0", 34, 256, 54, 256, TERNARY, _plain(_PACKINGS["TQ1_0"], 52)),
    GgufType("TQ2_0", 35, 256, 66, 256, IntegerFormat("TQ2_0", -1, 2), _plain(_PACKINGS["TQ2_0"], 64)),
    GgufType("MXFP4", 39, 32, 17, 32, _E2M1, _from_table(_PACKINGS["MXFP4"], _E8M0_HALF, 1)),
    GgufType("NVFP4", 40, 64, 36, 16, _E2M1, _from_table(_PACKINGS["NVFP4"], E4M3_HALF, 4)),
    GgufType("Q1_0", 41, 128, 18, 128, TERNARY, _plain(_PACKINGS["Q1_0"])),
)  # fmt: skip

GGUF_TYPES: dict[str, GgufType] = {row.name: row for row in _ROWS}
"""The types of blocks of GGUF files, by name.

>>> import floatsim as fs
>>> fs.quantization.GGUF_TYPES["Q4_0"].name
'Q4_0'
"""


def as_gguf_type(x: GgufType | str) -> GgufType:
    """Return the type that `x` is or names, in any case. Raise a ValueError with the nearest name."""
    if isinstance(x, GgufType):
        return x
    if not isinstance(x, str):
        raise TypeError(f"type must be a name of fs.quantization.GGUF_TYPES, not {x!r:.60}")
    name = x.strip().upper()
    if name in GGUF_TYPES:
        return GGUF_TYPES[name]
    raise ValueError(f"unknown type {x!r}; {every_name_hint(name, list(GGUF_TYPES))}")


def shape_of_rows(data: Array, kind: GgufType, shape: tuple[int, ...] | None) -> tuple[int, ...]:
    """Return the shape of the tensor in an array of bytes, or raise an error if the sizes do not fit."""
    found = (*data.shape[:-1], data.shape[-1] // kind.nbytes * kind.size) if shape is None else tuple(shape)
    if data.size % kind.nbytes or (shape is None and data.shape[-1] % kind.nbytes):
        raise ValueError(
            f"data of shape {data.shape} is no rows of blocks of {kind.name}, which have {kind.nbytes} bytes"
        )
    if not found or found[-1] % kind.size:
        raise ValueError(f"shape {found}: a row of {kind.name} has whole blocks of {kind.size} elements")
    if math.prod(found) // kind.size * kind.nbytes != data.size:
        wanted = math.prod(found) // kind.size * kind.nbytes
        raise ValueError(f"shape {found} of {kind.name} has {wanted} bytes, and data has {data.size}")
    return found


def from_gguf(data: Any, type: GgufType | str, shape: tuple[int, ...] | None = None) -> Quantized:
    """Return the codes, scales and offsets in the blocks of a GGUF file.

    Parameters
    ----------
    data : uint8 array or bytes
        The blocks of a tensor. Of an array, the last axis is a row of blocks.
    type : str or GgufType
        A key of `fs.quantization.GGUF_TYPES`, in any case.
    shape : tuple of int, optional
        The shape of the tensor. Default: that of `data`, with the elements of the blocks along the last axis.

    Returns
    -------
    Quantized
        Its values are those of ggml: round(round(code * scale) + offset) in FP32.

    Raises
    ------
    TypeError
        If data is no array of uint8 and no bytes.
    ValueError
        If the size does not fit the type and the shape, and for an unknown type.

    Examples
    --------
    >>> import numpy as np
    >>> from floatsim.quantization import from_gguf
    >>> block = np.float16([0.5]).tobytes() + bytes([0x9F] * 16)
    >>> q = from_gguf(block, "q4_0")
    >>> q.shape, q.codes[0], q.codes[16], q.values[0]
    ((32,), np.int8(7), np.int8(1), np.float64(3.5))
    """
    kind = as_gguf_type(type)
    array = np.frombuffer(data, np.uint8) if isinstance(data, bytes | bytearray | memoryview) else data
    if not isinstance(array, np.ndarray) or array.dtype != np.uint8 or array.ndim == 0:
        raise TypeError(f"data must be bytes or an array of uint8, not {getattr(data, 'dtype', data)!r:.60}")
    found = shape_of_rows(array, kind, shape)
    with np.errstate(invalid="ignore"):  # a scale may be a signalling NaN, of which NumPy's casts warn on Arm
        parts = kind.parts(array.reshape(-1, kind.nbytes))
    scale_format = FP16 if parts.scales.dtype == np.float16 else FP32
    scheme = Scheme(kind.format, (1, kind.group), scale_format)
    grid = (*found[:-1], found[-1] // kind.group)

    def numbers(x: Array) -> FloatArray:
        return FloatArray(np.ascontiguousarray(x).view(scale_format.code_dtype).reshape(grid), scale_format)

    codes = parts.codes.reshape(found).view(kind.format.code_dtype)
    return Quantized(codes, numbers(parts.scales), scheme,
                     offsets=None if parts.offsets is None else numbers(parts.offsets))  # fmt: skip
