"""The kernels of matrix units against their reference, and the quick ones against those on integers.

`python -m tests.exhaustive 'tensorcore-*'` compares a million dot products of every instruction.
"""

from __future__ import annotations

import numpy as np
import pytest

import floatsim as fs
from floatsim.emulator.dispatch import tensorcore_calls as emulator
from floatsim.emulator.dispatch import tensorcore_float64 as doubles
from floatsim.emulator.dispatch.matrix_units import fast_kernels
from floatsim.emulator.dispatch.tensorcore_calls import accumulate
from floatsim.emulator.dispatch.tensorcore_operands import BlockScales, Matrix
from floatsim.tensorcore.architectures import as_architecture, select
from floatsim.tensorcore.instructions import ExactBlocks, Scales
from tests.marks import cases
from tests.tensorcore.cases import STYLES, Case, codes, compare, distinct
from tests.tensorcore.test_silicon import SETS, needs_silicon, rows

CASES = [some[0] for some in distinct().values()]
BY_ARCHITECTURE = {arch: [case for case in CASES if case.arch == arch] for arch in {case.arch: None for case in CASES}}


@pytest.mark.parametrize("arch", cases(quick=["hopper", "cdna3"], full=BY_ARCHITECTURE))
def test_kernels_equal_the_reference(arch):
    """Codes and events, of every instruction, on operands of two styles each."""
    rng = np.random.default_rng(4)
    for n, case in enumerate(BY_ARCHITECTURE[arch]):
        for style in (STYLES[n % len(STYLES)], STYLES[(n + 1 + n // len(STYLES)) % len(STYLES)]):
            k = int(rng.choice([case.row.k, 2 * case.row.k, case.row.k + case.row.k // 2 + 1]))
            assert compare(case, rng, 2, k, 3, style) == []


def both_ways(case: Case, style: str, m: int, k: int, n: int, ranges, seed: int = 1):
    """(codes by the selected kernels, codes by the integer kernels, the share of bailouts of the fast kernels)."""
    rng = np.random.default_rng(seed)
    a = Matrix(codes(rng, case.a, (2, m, k), style), case.a)
    b = Matrix(codes(rng, case.b, (2, k, n), style), case.b)
    out = codes(rng, case.row.output, (len(ranges), 2, m, n), style)
    scales = None
    if case.scales is not None:
        parts = -(-k // case.scales.every)
        left, right = (codes(rng, case.scales.format, s, "near") for s in ((2, m, parts), (2, parts, n)))
        scales = BlockScales(left, right, case.scales)
    ranges = np.array(ranges, np.int64)
    quick, general, alone = out.copy(), out.copy(), out[:, 0].copy()
    accumulate(case.row, a, b, quick, ranges, fast_kernels(case.row), scales)
    emulator._in_integers(case.row, a, b, general, ranges, scales, None)
    module = fast_kernels(case.row)
    assert module is not None, f"{case} has no fast kernel"
    one = BlockScales(scales.a[0], scales.b[0], scales.of) if scales else None
    failed = module.accumulate(case.row, *(Matrix(x.codes[0], x.format) for x in (a, b)), alone, ranges, one)
    return quick, general, failed.mean()


@pytest.mark.parametrize("arch", BY_ARCHITECTURE)
def test_quick_kernels_equal_those_on_integers(arch):
    """Several ranges, odd numbers of rows, more columns than one vector, a short last instruction."""
    for case in BY_ARCHITECTURE[arch]:
        every = 1 if case.scales is None else case.scales.every
        cut = -(-70 // every) * every
        for style in ("near", "cancelling", "sparse"):
            quick, general, left_alone = both_ways(case, style, 5, 150, 70, [[0, cut], [cut, 150], [0, 0]])
            assert np.array_equal(quick, general), str(case)
            assert left_alone < 0.5, f"{case}, {style}: ordinary numbers are for the quick kernels"


@pytest.mark.parametrize("style", ["bits", "tiny", "large"])
def test_what_the_quick_kernels_leave_alone_is_done(style):
    for case in CASES[::5]:
        quick, general, _ = both_ways(case, style, 3, 40, 300, [[0, 40]])
        assert np.array_equal(quick, general), str(case)


@pytest.mark.parametrize("arch", ["cdna1", "cdna3"])
def test_sums_that_underflow_keep_their_sign(arch):
    """Only an exact zero sum becomes +0."""
    a, b = np.full((2, 16), 2.0**-100), np.full((16, 3), -(2.0**-100))
    a[1] = 0
    got = fs.matmul(fs.array(a, "bf16"), fs.array(b, "bf16"), accumulate=arch)
    assert (got.codes == [[0x80000000] * 3, [0] * 3]).all()


def test_long_sums_and_many_columns():
    for arch, name, fmt, output in (
        ("hopper", None, fs.FP16, fs.FP32), ("volta", None, fs.FP16, fs.FP16), ("ada", None, fs.E5M2, fs.FP32),
        ("hopper", "mma.m16n8k32", fs.E4M3, fs.FP16), ("cdna1", None, fs.BF16, None),
        ("cdna3", None, fs.E4M3FNUZ, None),
    ):  # fmt: skip
        row = select(as_architecture(arch), name, fmt, fmt, output)
        quick, general, _ = both_ways(Case(arch, row, fmt, fmt, None), "near", 3, 1000, 270, [[0, 1000]])
        assert np.array_equal(quick, general)


def spread_codes(rng: np.random.Generator, fmt: fs.FloatFormat, shape: tuple[int, ...], binades: int) -> np.ndarray:
    """Codes whose exponents lie at both ends of some binades."""
    low = max(fmt.bias - binades // 2, 0)
    high = min(low + binades, (1 << fmt.exponent_bits) - 2)
    field = rng.choice([low, high], shape).astype(np.uint64) << np.uint64(fmt.trailing_bits)
    kept = rng.integers(0, 1 << 64, shape, dtype=np.uint64) & np.uint64(fmt.sign_mask | (1 << fmt.trailing_bits) - 1)
    return kept | field


@pytest.mark.parametrize("case", [case for case in CASES if isinstance(case.row.model, ExactBlocks)], ids=str)
def test_exact_blocks_on_both_sides_of_their_bounds(case):
    """Binades of the terms around 52, which float64 holds, and 104, which two float64 numbers hold."""
    rng, shares = np.random.default_rng(6), set()
    m, k, n = 16, 3 * case.row.k - 1, 24
    for binades in range(0, 128, 2):
        a, b = (spread_codes(rng, f, s, binades // 4) for f, s in ((case.a, (1, m, k)), (case.b, (1, k, n))))
        a[:, :, 1::2] = a[:, :, : k // 2 * 2 : 2] ^ np.uint64(case.a.sign_mask)  # cancels, up to c and the last product
        b[:, 1::2] = b[:, : k // 2 * 2 : 2]
        c = spread_codes(rng, case.row.output, (1, 1, m, n), binades) * (rng.random((1, 1, m, n)) < 0.8)
        quick, general, ranges = c.copy(), c.copy(), np.array([[0, k]])
        operands = Matrix(a, case.a), Matrix(b, case.b)
        accumulate(case.row, *operands, quick, ranges, fast_kernels(case.row))
        accumulate(case.row, *operands, general, ranges)
        assert np.array_equal(quick, general), binades
        one = (Matrix(x.codes[0], x.format) for x in operands)
        shares.add(float(doubles.accumulate(case.row, *one, c[:, 0].copy(), ranges, None).mean()))
    assert 0 in shares
    assert max(shares) == 1 or case.row.output == fs.FP16, "wide sums are for the integer kernels"


@pytest.mark.parametrize("case", [case for case in CASES if isinstance(case.row.model, ExactBlocks)], ids=str)
def test_zeros_of_exact_blocks(case):
    """Every sign of the products and of c, with and without zeros that fill up the last instruction."""
    k = case.row.k
    zeros = np.array([[0, 0], [0, case.a.sign_mask], [case.a.sign_mask] * 2], np.uint64)
    a = np.repeat(zeros, (k + 1) // 2, axis=1)[np.newaxis]
    b = np.full((1, a.shape[2], 2), case.b.max_code, np.uint64)
    b[:, :, 1] |= np.uint64(case.b.sign_mask)
    for sign in (0, case.row.output.sign_mask):
        for stop in (k, a.shape[2], max(k - 1, 1)):
            quick = np.full((1, 1, 3, 2), sign, np.uint64)
            general, ranges = quick.copy(), np.array([[0, stop]])
            operands = Matrix(a[:, :, :stop], case.a), Matrix(b[:, :stop], case.b)
            accumulate(case.row, *operands, quick, ranges, fast_kernels(case.row))
            accumulate(case.row, *operands, general, ranges)
            assert np.array_equal(quick, general)


def test_nothing_to_do():
    row = select(as_architecture("hopper"), None, fs.FP16, fs.FP16)
    for m, k, n in ((0, 16, 4), (4, 16, 0), (4, 0, 4)):
        a, b = (Matrix(np.zeros(shape, np.uint64), fs.FP16) for shape in ((1, m, k), (1, k, n)))
        out = np.full((1, 1, m, n), 0x80000000, np.uint64)
        accumulate(row, a, b, out, np.array([[0, k]]), fast_kernels(row))
        assert (out == 0x80000000).all(), "without terms c stays as it is"


def test_where_events_happen():
    """The largest k of the block in which a term lost all bits. The blocks of Ampere's k16 have eight products."""
    row = select(as_architecture("ampere"), None, fs.FP16, fs.FP16)
    a = np.full((1, 1, 40), 0x3C00, np.uint64)
    b = np.full((1, 40, 1), 0x3C00, np.uint64)
    b[0, 20, 0] = 0x0001  # 2**-24, beside 20 in its block: below 2**(4 - 24)
    record = emulator.Record(np.arange(40), np.zeros((2, 256), np.int64), np.full((6, 1, 1, 1), 99))
    out, ranges = np.zeros((1, 1, 1, 1), np.uint64), np.array([[0, 40]])
    accumulate(row, Matrix(a, fs.FP16), Matrix(b, fs.FP16), out, ranges, record=record)
    assert record.first[5, 0, 0, 0] == 23
    assert record.counts[1].sum() == 6, "three instructions of two blocks, one of them of zeros"


@needs_silicon
@pytest.mark.parametrize(("path", "key"), SETS, ids=lambda x: x.stem if hasattr(x, "stem") else x)
def test_silicon_by_the_kernels(path, key):
    """One dot product for each row: row i of A times column i of B, on the diagonal of a tile."""
    row, fmt, a, b, c, d = rows(path, key)
    for size in (1, 50):
        shape = (len(a) // size, size, size)
        left, right = a.reshape(*shape[:2], -1), np.swapaxes(b.reshape(*shape[:2], -1), 1, 2)
        out = np.broadcast_to(c.reshape(*shape[:2], 1), shape).astype(np.uint64)[np.newaxis].copy()
        accumulate(row, Matrix(left, fmt), Matrix(right, fmt), out, np.array([[0, a.shape[1]]]), fast_kernels(row))
        assert np.array_equal(np.diagonal(out[0], axis1=1, axis2=2).ravel(), d)


def test_scales_are_read_where_they_stand():
    row = select(as_architecture("blackwell"), None, fs.E4M3, fs.E4M3, None, Scales(32, fs.E8M0))
    one, scale = fs.encode(np.float32(1), fs.E4M3), fs.E8M0.bias
    a, b = np.full((1, 1, 64), one, np.uint64), np.full((1, 64, 1), one, np.uint64)
    of = BlockScales(np.array([[[scale, scale + 1]]]), np.array([[[scale], [scale + 3]]]), Scales(32, fs.E8M0))
    out = np.zeros((1, 1, 1, 1), np.uint64)
    accumulate(row, Matrix(a, fs.E4M3), Matrix(b, fs.E4M3), out, np.array([[0, 64]]), fast_kernels(row), of)
    assert out.astype(np.uint32).view(np.float32)[0, 0, 0, 0] == 32 + 32 * 16
