"""Layouts of the tiles of A, B, C and D in the registers of a warp, or in shared memory, for each instruction.

Every layout permutes bits. The position of an element (its lane, register, and part of the register) has the bits of
its row and column in another order. A layout is written as this order, with the lowest bit of the position first:

    "k0 | r3 k3 | k1 k2 r0 r1 r2"     A of mma.m16n8k16: two elements in a register, four registers, 32 lanes

means that the halves of a register differ in the lowest bit of k, registers in r3 (row and row + 8) and k3, and lanes
in the other bits. Bars separate these groups for the reader. "-" is an unused bit: several positions hold the same
element.

Source: NVIDIA, "PTX ISA", 9.7.14.5.1 to .8 (fragments of mma), .14 (block scaling), 9.7.15.5.1 (wgmma: registers, and
shared memory without swizzling), 9.7.16.2.3 and .10 (tcgen05: tensor memory, shared memory).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from floatsim._types import Codes
from floatsim.formats import E2M1, FP16, FP64, TF32, FloatFormat
from floatsim.hardware.tables.ptx_matrix import Variant

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Layout", "Layouts", "Storage", "layouts", "pack", "unpack"]


# -- positions of elements ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """The order of the bits of an element's position, as the module describes. `axes` names the row and the column."""

    bits: str
    axes: str

    @functools.cached_property
    def _order(self) -> tuple[str, ...]:
        return tuple(bit for bit in self.bits.split() if bit != "|")

    @property
    def positions(self) -> int:
        """The number of positions, including copies."""
        return 1 << len(self._order)

    @functools.cached_property
    def shape(self) -> tuple[int, int]:
        """The shape of the tile.

        >>> Layout("k0 | k1 k2 r0 r1 r2", "rk").shape
        (8, 8)
        """
        rows, columns = (1 << sum(bit[0] == axis for bit in self._order) for axis in self.axes)
        return rows, columns

    @functools.cached_property
    def elements(self) -> NDArray[np.int64]:
        """The element of the tile, counted by rows, at each position: (positions,)."""
        position, elements = np.arange(self.positions), np.zeros(self.positions, np.int64)
        width = self.shape[1].bit_length() - 1
        for i, bit in enumerate(self._order):
            if bit != "-":
                elements |= (position >> i & 1) << int(bit[1:]) + (width if bit[0] == self.axes[0] else 0)
        return elements

    @functools.cached_property
    def first_positions(self) -> NDArray[np.int64]:
        """The first position of each element: (rows * columns,)."""
        return np.unique(self.elements, return_index=True)[1]


# -- storage of elements -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Storage:
    """The storage of an element's code: shifted left by `shift`, in `bits` bits; with `group`, that many in 16 bytes.

    Codes of 4 and 6 bits that may be mixed with wider ones are stored in bytes, or in groups of 16 bytes, filled up
    with zeros.
    """

    bits: int
    shift: int = 0
    group: int = 0


def _bytes_of(codes: Codes, storage: Storage) -> NDArray[np.uint8]:
    """Return (n, positions) codes as (n, bytes)."""
    if storage.bits >= 8 and not storage.group:
        return np.ascontiguousarray(codes.astype(f"<u{storage.bits // 8}") << storage.shift).view(np.uint8)
    each = np.ascontiguousarray(codes.astype(np.uint8))[..., np.newaxis]
    bits = np.unpackbits(each, axis=2, bitorder="little")[:, :, : storage.bits]
    if storage.group:
        bits = bits.reshape(len(codes), -1, storage.group * storage.bits)
        bits = np.pad(bits, ((0, 0), (0, 0), (0, 128 - bits.shape[2])))
    return np.packbits(bits.reshape(len(codes), -1), axis=1, bitorder="little")


def pack(tiles: Codes, layout: Layout, storage: Storage, word: Any = np.uint32) -> Codes:
    """Pack tiles into the words that an instruction loads.

    Parameters
    ----------
    tiles : (n, rows, columns)
        Codes of n tiles of the layout's shape.
    layout : Layout
        The positions of the elements.
    storage : Storage
        The storage of an element.
    word : dtype
        The dtype of the result: uint32, or uint64 for FP64.

    Returns
    -------
    (n, words)
        For fragments: the registers of lane 0, then those of lane 1, and so on.

    >>> tile = np.arange(64, dtype=np.uint16).reshape(1, 8, 8)
    >>> hex(pack(tile, Layout("k0 | k1 k2 r0 r1 r2", "rk"), Storage(16))[0, 1])
    '0x30002'
    """
    if tiles.shape[1:] != layout.shape:
        raise ValueError(f"tiles must be {layout.shape}, not {tiles.shape[1:]}")
    flat = tiles.reshape(len(tiles), -1)[:, layout.elements]
    return _bytes_of(flat, storage).view(np.dtype(word).newbyteorder("<"))


def unpack(words: Codes, layout: Layout, storage: Storage, dtype: Any) -> Codes:
    """Unpack words into tiles (n, rows, columns) of elements of at least 16 bits. Of copies, the first is used."""
    parts = np.ascontiguousarray(words).view(f"<u{storage.bits // 8}").reshape(len(words), -1) >> storage.shift
    return parts[:, layout.first_positions].astype(dtype).reshape(len(words), *layout.shape)


# -- the layouts of each family ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layouts:
    """The layouts of A, B and D with their storage, and of scales, which are bytes. C has the layout of D.

    `word` is the dtype of registers, `threads` the number of threads for a tile. `copies` is the number of tiles that
    an instruction computes; floatsim gives it equal tiles.
    """

    a: tuple[Layout, Storage]
    b: tuple[Layout, Storage]
    d: tuple[Layout, Storage]
    threads: int
    word: Any = np.uint32
    scales: tuple[Layout, Layout] | None = None
    copies: int = 1

    def registers(self, operand: str) -> int:
        """Return how many words of "a", "b" or "d" a thread holds.

        >>> from floatsim.formats import FP16
        >>> from floatsim.hardware.tables.ptx_matrix import find
        >>> [layouts(find("mma.m16n8k16", FP16, FP16)).registers(x) for x in "abd"]
        [4, 2, 4]
        """
        layout, storage = getattr(self, operand)
        return int(layout.positions * storage.bits // (np.dtype(self.word).itemsize * 8 * self.threads))


def _range(axis: str, start: int, stop: int) -> list[str]:
    return [f"{axis}{i}" for i in range(start, stop)]


def _log2(n: int) -> int:
    return n.bit_length() - 1


def _operand_storage(fmt: FloatFormat, alone: bool) -> Storage:
    """Return the storage of an operand in registers. FP4: two in a byte if `alone`, otherwise in bits 5:2 of one."""
    if fmt == TF32:
        return Storage(32, shift=13)
    if fmt == E2M1:
        return Storage(4) if alone else Storage(8, shift=2)
    return Storage(max(8, fmt.code_dtype.itemsize * 8))


def _mma(v: Variant) -> Layouts:
    """Return the layouts of mma: four lanes along k, eight along the rows; registers hold the other bits."""
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
    """Return the layout of scales: a byte for each block of k. A's are in lanes 0 and 1 of four, B's in lane 0."""
    assert v.scales is not None
    blocks = _range("k", 0, _log2(v.k // v.scales.every))
    axis = "r" if "r" in lanes else "c"
    order = [*blocks, *["-"] * (2 - len(blocks)), "|", *lanes.split()[1:]]
    return Layout(" ".join(order), "rk" if axis == "r" else "kc")


def _volta(v: Variant) -> Layouts:
    """Return the layouts of Volta: four quad pairs (lanes equal in bits 2 and 3) compute equal tiles of 8 by 8."""
    by_output = {16: "c0 | c1 c2 | r0 r1 - - r2", 32: "c0 r1 c2 | r0 c1 - - r2"}
    return Layouts(
        (Layout("k0 | k1 | r0 r1 - - r2", "rk"), Storage(16)), (Layout("k0 | k1 | c0 c1 - - c2", "kc"), Storage(16)),
        (Layout(by_output[v.output.bits], "rc"), Storage(v.output.bits)), 32, copies=4,
    )  # fmt: skip


def _image(v: Variant, axis: str, size: int, storage: Storage) -> Layout:
    """Return the layout of shared memory, K-major, without swizzling: core matrices of 8 rows of 16 bytes, k first."""
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
    """Return the layouts of wgmma: A and B in shared memory, D in the registers of 4 warps, 16 rows each, as in mma."""
    m, n, _ = v.kernel.shape
    a, b = (_operand_storage(fmt, alone=False) for fmt in (v.a, v.b))
    d = Layout("c0 r3 | c1 c2 r0 r1 r2 | r4 r5", "rc")
    return Layouts((_image(v, "r", m, a), a), (_image(v, "c", n, b), b), (d, Storage(v.output.bits)), 128)


def _tcgen05(v: Variant) -> Layouts:
    """Return the layouts of tcgen05: A and B in shared memory, D in tensor memory, a row per thread."""
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
    """Return the layouts of the operands of an instruction.

    >>> from floatsim.formats import FP16
    >>> from floatsim.hardware.tables.ptx_matrix import find
    >>> layouts(find("mma.m16n8k16", FP16, FP16)).a[0].bits
    'k0 | r3 k3 | k1 k2 r0 r1 r2'
    """
    return _FAMILIES[variant.kernel.family](variant)
