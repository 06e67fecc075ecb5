"""How the tiles of A, B, C and D lie in the registers of a warp, or in shared memory, for each instruction.

Every such layout permutes bits: the place of an element (which lane, which register, which part of it) has the bits of
its row and column in another order. So a layout is written as that order, the lowest bit of the place first:

    "k0 | r3 k3 | k1 k2 r0 r1 r2"     A of mma.m16n8k16: two to a register, four registers, 32 lanes

says that a register's halves differ in the lowest bit of k, registers in r3 (row and row + 8) and k3, and lanes in the
rest. Bars are for the reader. "-" is a bit that does not matter: several places hold the same element.

From NVIDIA's "PTX ISA": 9.7.14.5.1 to .8 (fragments of mma), .14 (block scaling), 9.7.15.5.1 (wgmma: registers, and
shared memory without swizzling), 9.7.16.2.3 and .10 (tcgen05: tensor memory, shared memory).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from floatsim.formats import E2M1, FP16, FP64, TF32, FloatFormat
from floatsim.hardware.tables.ptx_matrix import Variant

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Layout", "Layouts", "Storage", "layouts", "pack", "unpack"]

Codes: TypeAlias = "NDArray[np.unsignedinteger[Any]]"


# -- where an element is -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """The order of the bits of an element's place, as in the module's description; `axes` names row and column."""

    bits: str
    axes: str

    @functools.cached_property
    def _order(self) -> tuple[str, ...]:
        return tuple(bit for bit in self.bits.split() if bit != "|")

    @property
    def places(self) -> int:
        """How many elements there is room for, copies counted."""
        return 1 << len(self._order)

    @functools.cached_property
    def shape(self) -> tuple[int, int]:
        """Of the tile.

        >>> Layout("k0 | k1 k2 r0 r1 r2", "rk").shape
        (8, 8)
        """
        rows, columns = (1 << sum(bit[0] == axis for bit in self._order) for axis in self.axes)
        return rows, columns

    @functools.cached_property
    def elements(self) -> NDArray[np.int64]:
        """(places,): which element of the tile, counted by rows, each place holds."""
        place, found = np.arange(self.places), np.zeros(self.places, np.int64)
        width = self.shape[1].bit_length() - 1
        for i, bit in enumerate(self._order):
            if bit != "-":
                found |= (place >> i & 1) << int(bit[1:]) + (width if bit[0] == self.axes[0] else 0)
        return found

    @functools.cached_property
    def first_places(self) -> NDArray[np.int64]:
        """(rows * columns,): a place of each element."""
        return np.unique(self.elements, return_index=True)[1]


# -- what an element is there ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Storage:
    """How the code of an element is stored: shifted, in `bits` bits; with `group`, so many of them in 16 bytes.

    Codes of 4 and 6 bits that share registers or memory with wider ones lie in bytes or in 16 bytes of their own,
    filled up with zeros.
    """

    bits: int
    shift: int = 0
    group: int = 0


def _bytes_of(codes: Codes, how: Storage) -> NDArray[np.uint8]:
    """(n, places) codes as (n, bytes)."""
    if how.bits >= 8 and not how.group:
        return np.ascontiguousarray(codes.astype(f"<u{how.bits // 8}") << how.shift).view(np.uint8)
    each = np.ascontiguousarray(codes.astype(np.uint8))[..., np.newaxis]
    bits = np.unpackbits(each, axis=2, bitorder="little")[:, :, : how.bits]
    if how.group:
        bits = bits.reshape(len(codes), -1, how.group * how.bits)
        bits = np.pad(bits, ((0, 0), (0, 0), (0, 128 - bits.shape[2])))
    return np.packbits(bits.reshape(len(codes), -1), axis=1, bitorder="little")


def pack(tiles: Codes, layout: Layout, how: Storage, word: Any = np.uint32) -> Codes:
    """Tiles as they are loaded.

    Parameters
    ----------
    tiles : (n, rows, columns)
        Codes of n tiles of the layout's shape.
    layout, how
    word : dtype
        Of the result: uint32, or uint64 for FP64.

    Returns
    -------
    (n, words)
        For fragments: the registers of lane 0, those of lane 1, ...

    >>> tile = np.arange(64, dtype=np.uint16).reshape(1, 8, 8)
    >>> hex(pack(tile, Layout("k0 | k1 k2 r0 r1 r2", "rk"), Storage(16))[0, 1])
    '0x30002'
    """
    if tiles.shape[1:] != layout.shape:
        raise ValueError(f"tiles must be {layout.shape}, not {tiles.shape[1:]}")
    flat = tiles.reshape(len(tiles), -1)[:, layout.elements]
    return _bytes_of(flat, how).view(np.dtype(word).newbyteorder("<"))


def unpack(words: Codes, layout: Layout, how: Storage, dtype: Any) -> Codes:
    """The tiles (n, rows, columns) that were stored, of elements of 16 bits or more; of copies the first counts."""
    parts = np.ascontiguousarray(words).view(f"<u{how.bits // 8}").reshape(len(words), -1) >> how.shift
    return parts[:, layout.first_places].astype(dtype).reshape(len(words), *layout.shape)


# -- the layouts of each family ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layouts:
    """Those of A, B and D (C lies as D does), each with its storage, and those of scales, which are bytes.

    `word` is the dtype of registers, `threads` how many there are for a tile. `copies` is how many tiles an instruction
    computes, which are all the same one here.
    """

    a: tuple[Layout, Storage]
    b: tuple[Layout, Storage]
    d: tuple[Layout, Storage]
    threads: int
    word: Any = np.uint32
    scales: tuple[Layout, Layout] | None = None
    copies: int = 1

    def registers(self, operand: str) -> int:
        """How many words a thread holds of "a", "b" or "d".

        >>> from floatsim.formats import FP16
        >>> from floatsim.hardware.tables.ptx_matrix import find
        >>> [layouts(find("mma.m16n8k16", FP16, FP16)).registers(x) for x in "abd"]
        [4, 2, 4]
        """
        layout, how = getattr(self, operand)
        return int(layout.places * how.bits // (np.dtype(self.word).itemsize * 8 * self.threads))


def _range(axis: str, start: int, stop: int) -> list[str]:
    return [f"{axis}{i}" for i in range(start, stop)]


def _log2(n: int) -> int:
    return n.bit_length() - 1


def _operand_storage(fmt: FloatFormat, alone: bool) -> Storage:
    """In registers: `alone`, FP4 without wider ones, two to a byte; otherwise in bits 5:2 of one."""
    if fmt == TF32:
        return Storage(32, shift=13)
    if fmt == E2M1:
        return Storage(4) if alone else Storage(8, shift=2)
    return Storage(max(8, fmt.code_dtype.itemsize * 8))


def _mma(v: Variant) -> Layouts:
    """Lanes: four along k, eight along the rows; what is left of k and the rows is in registers."""
    m, n, k = v.kernel.shape
    if (m, v.a) == (8, FP16):
        return _volta(v)
    wide = v.a == FP64
    word = 64 if wide else 32
    stored = [_operand_storage(fmt, alone=k == 64) for fmt in (v.a, v.b)]
    s = _log2(word // stored[0].bits)  # elements of a register: 2**s

    def operand(axis: str, size: int) -> Layout:
        registers = [*_range(axis, 3, _log2(size)), *_range("k", s + 2, _log2(k))]
        order = [*_range("k", 0, s), "|", *registers, "|", *_range("k", s, s + 2), *_range(axis, 0, 3)]
        return Layout(" ".join(order), "rk" if axis == "r" else "kc")

    d = Layout(" ".join(["c0", *_range("r", 3, _log2(m)), "| c1 c2 r0 r1 r2"]), "rc")
    scales = (_scales(v, "- r3 - r0 r1 r2"), _scales(v, "- - - c0 c1 c2")) if v.scales else None
    return Layouts(
        (operand("r", m), stored[0]), (operand("c", n), stored[1]), (d, Storage(v.output.bits)), 32,
        np.uint64 if wide else np.uint32, scales,
    )  # fmt: skip


def _scales(v: Variant, lanes: str) -> Layout:
    """A byte for each block of k, from the lowest; of A they are in lanes 0 and 1 of four, of B in lane 0."""
    assert v.scales is not None
    blocks = _range("k", 0, _log2(v.k // v.scales.every))
    axis = "r" if "r" in lanes else "c"
    order = [*blocks, *["-"] * (2 - len(blocks)), "|", *lanes.split()[1:]]
    return Layout(" ".join(order), "rk" if axis == "r" else "kc")


def _volta(v: Variant) -> Layouts:
    """Four quad pairs (lanes that agree in bits 2 and 3) each compute a tile of 8 by 8; here all the same one."""
    by_output = {16: "c0 | c1 c2 | r0 r1 - - r2", 32: "c0 r1 c2 | r0 c1 - - r2"}
    return Layouts(
        (Layout("k0 | k1 | r0 r1 - - r2", "rk"), Storage(16)), (Layout("k0 | k1 | c0 c1 - - c2", "kc"), Storage(16)),
        (Layout(by_output[v.output.bits], "rc"), Storage(v.output.bits)), 32, copies=4,
    )  # fmt: skip


def _image(v: Variant, axis: str, size: int, storage: Storage) -> Layout:
    """Shared memory, K-major, no swizzling: core matrices of 8 rows of 16 bytes, two along k, then the next 8 rows."""
    s = _log2(16 if storage.group else 128 // storage.bits)
    order = [
        *_range("k", 0, s),
        "|",
        *_range(axis, 0, 3),
        "|",
        *_range("k", s, _log2(v.k)),
        *_range(axis, 3, _log2(size)),
    ]
    return Layout(" ".join(order), "rk" if axis == "r" else "kc")


def _wgmma(v: Variant) -> Layouts:
    """A and B are images of shared memory; D in the registers of 4 warps, 16 rows each, as mma has it."""
    m, n, _ = v.kernel.shape
    a, b = (_operand_storage(fmt, alone=False) for fmt in (v.a, v.b))
    d = Layout("c0 r3 | c1 c2 r0 r1 r2 | r4 r5", "rc")
    return Layouts((_image(v, "r", m, a), a), (_image(v, "c", n, b), b), (d, Storage(v.output.bits)), 128)


def _tcgen05(v: Variant) -> Layouts:
    """A and B are images of shared memory; D is a row of tensor memory for each thread, a column a register."""
    m, n, _ = v.kernel.shape

    def stored(fmt: FloatFormat) -> Storage:
        alone = v.k == 64
        return Storage(fmt.bits, group=16) if fmt.bits <= 8 and not alone else _operand_storage(fmt, alone)

    a, b = stored(v.a), stored(v.b)
    d = Layout(" ".join([*_range("c", 0, _log2(n)), "|", *_range("r", 0, _log2(m))]), "rc")
    scales = None
    if v.scales:
        blocks = _log2(v.k // v.scales.every)
        of_row = " ".join([*_range("k", 0, blocks), *["-"] * (2 - blocks)])
        of_a, of_b = f"{of_row} | r5 r6 | r0 r1 r2 r3 r4 | - -", f"{of_row} | - - | c0 c1 c2 c3 - | - -"
        scales = Layout(of_a, "rk"), Layout(of_b, "kc")
    return Layouts((_image(v, "r", m, a), a), (_image(v, "c", n, b), b), (d, Storage(32)), 128, scales=scales)


_FAMILIES = {"mma": _mma, "mma_scaled": _mma, "wgmma": _wgmma, "tcgen05": _tcgen05,
             "tcgen05_scaled": _tcgen05}  # fmt: skip


@functools.cache
def layouts(variant: Variant) -> Layouts:
    """Where the operands of an instruction lie.

    >>> from floatsim.formats import FP16
    >>> from floatsim.hardware.tables.ptx_matrix import find
    >>> layouts(find("mma.m16n8k16", FP16, FP16)).a[0].bits
    'k0 | r3 k3 | k1 k2 r0 r1 r2'
    """
    return _FAMILIES[variant.kernel.family](variant)
