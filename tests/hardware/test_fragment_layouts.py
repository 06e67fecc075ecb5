"""The layouts of operands in registers and shared memory, compared with independent tables and with lanes in NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import floatsim as fs
from floatsim.hardware.device import Device
from floatsim.hardware.tables.compute_capability import architecture_of
from floatsim.hardware.tables.fragment_layouts import Layout, Storage, layouts, pack, unpack
from floatsim.hardware.tables.ptx_matrix import find, variants
from tests.hardware import lanes as lanes
from tests.hardware.lanes import Lanes, without_compiling

pytestmark = pytest.mark.full

CAPABILITIES = ((7, 0), (7, 5), (8, 0), (8, 9), (9, 0), (10, 0), (12, 0))
LAYOUTS = list({(v.name, v.a.bits, v.b.bits, v.output.bits): v for v in variants()}.values())


def random_codes(rng, shape, fmt):
    return rng.integers(0, (1 << fmt.bits) - 1, shape, np.uint64, endpoint=True).astype(fmt.code_dtype)


@pytest.mark.parametrize("v", LAYOUTS, ids=str)
def test_packing_equals_the_tables(v):
    rng = np.random.default_rng(1)
    m, n, k = v.kernel.shape
    lie = layouts(v)
    for operand, shape, fmt in (("a", (m, k), v.a), ("b", (k, n), v.b), ("d", (m, n), v.output)):
        tiles = random_codes(rng, (2, *shape), fmt)
        words = pack(tiles, *getattr(lie, operand), lie.word)
        for tile, packed in zip(tiles, words, strict=True):
            assert np.array_equal(lanes.read(v, operand, packed), tile)
    assert np.array_equal(unpack(words, *lie.d, v.output.code_dtype), tiles)


@pytest.mark.parametrize("v", LAYOUTS, ids=str)
def test_unpacking_of_d_equals_the_tables(v):
    m, n, _ = v.kernel.shape
    tile = random_codes(np.random.default_rng(2), (m, n), v.output)
    lie = layouts(v)
    words = lanes.to_registers(v, tile, lie.threads, lie.word).reshape(1, -1)
    assert np.array_equal(unpack(words, *lie.d, v.output.code_dtype)[0], tile)


@pytest.mark.parametrize("v", [v for v in LAYOUTS if v.scales], ids=str)
def test_packing_of_scales_equals_the_tables(v):
    rng = np.random.default_rng(3)
    m, n, k = v.kernel.shape
    blocks = k // v.scales.every
    for operand, shape, layout in zip("ab", ((m, blocks), (blocks, n)), layouts(v).scales, strict=True):
        tile = rng.integers(0, 256, shape, np.uint8)
        words = pack(tile[np.newaxis], layout, Storage(8))[0]
        assert np.array_equal(lanes.scales_of(v, operand, words), tile)


def test_some_registers_by_hand():
    """The first register of A of m16n8k16, lane 5 (group 1, thread 1): row 1, k = 2 and 3."""
    v = find("mma.m16n8k16", fs.FP16, fs.FP16)
    tile = np.arange(256, dtype=np.uint16).reshape(1, 16, 16)
    assert hex(pack(tile, *layouts(v).a)[0].reshape(32, 4)[5, 0]) == "0x130012"
    v = find("mma.m16n8k32", fs.E4M3, fs.E4M3)
    tile = np.arange(256, dtype=np.uint8).reshape(1, 32, 8)
    words = pack(tile, *layouts(v).b)[0].reshape(32, 2)
    assert hex(words[6, 1]) == "0xd9d1c9c1"  # group 1, thread 2: column 1, k = 24 to 27


def test_wrong_tiles_are_named():
    with pytest.raises(ValueError, match=r"must be \(8, 8\), not \(8, 4\)"):
        pack(np.zeros((1, 8, 4), np.uint16), Layout("k0 | k1 k2 r0 r1 r2", "rk"), Storage(16))


# -- instructions on 32 lanes ------------------------------------------------------------------------------------------


def modelled(capability):
    """Return a variant of each name and output that a GPU and the emulator have; of several, the most mixed."""
    known = [v for v in variants() if v.kernel.runs_on(capability) and v.model(capability) is not None]
    return list({(v.name, v.output, v.scales, v.a.bits): v for v in known}.values())


@pytest.mark.parametrize(
    ("capability", "v"), [(capability, v) for capability in CAPABILITIES for v in modelled(capability)], ids=str
)
def test_dots_equal_the_emulator(capability, v, monkeypatch):
    without_compiling(monkeypatch)
    rng = np.random.default_rng(4)
    count = 2 * min(v.kernel.shape[:2]) + 3
    a, b, c = (random_codes(rng, shape, fmt) for shape, fmt in
               (((count, v.k), v.a), ((count, v.k), v.b), ((count,), v.output)))  # fmt: skip
    scales, keywords = None, {}
    if v.scales is not None:
        scales = tuple(rng.integers(120, 132, (count, v.k // v.scales.every), np.uint8) for _ in "ab")
        of_rows, of_columns = scales[0][:, np.newaxis], scales[1][:, :, np.newaxis]
        both = ("scale_a", of_rows), ("scale_b", of_columns)
        keywords = {name: fs.from_codes(codes, v.scales.format) for name, codes in both}
    found = Device(cuda=Lanes(capability)).dots(v, a, b, c, scales)
    unit = fs.TensorCore(architecture_of(capability), v.name, output=v.output)
    left, right = fs.from_codes(a[:, np.newaxis], v.a), fs.from_codes(b[:, :, np.newaxis], v.b)
    start = fs.from_codes(c.reshape(-1, 1, 1), v.output)
    wanted = fs.matmul(left, right, start, accumulate=unit, format=v.output, **keywords)
    assert np.array_equal(found, wanted.codes.reshape(-1))
