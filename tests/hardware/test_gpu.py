"""Tests on a real GPU: every instruction is compared with the emulator bit by bit.

They are skipped without a GPU, and the skip says what is missing. With FLOATSIM_REQUIRE_GPU=1 they fail instead.
"""

from __future__ import annotations

import os

import numpy as np
import pytest

import floatsim as fs
from floatsim.hardware.compile.runtime import why_unavailable
from floatsim.hardware.scalar_vectors import expected_results, operands_of, scalar_keywords
from floatsim.hardware.tables.compute_capability import architecture_of
from floatsim.hardware.tables.ptx_matrix import find, variants
from floatsim.hardware.tables.ptx_scalar import SCALARS
from tests.hardware import questions
from tests.hardware.expected_rates import MOST, least_share

REQUIRED = os.environ.get("FLOATSIM_REQUIRE_GPU", "0") not in ("", "0")
MISSING = why_unavailable()
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(MISSING is not None and not REQUIRED, reason=str(MISSING))]

ROWS = 4096


@pytest.fixture(scope="module")
def gpu():
    return fs.hardware.Device()  # raises what is missing, if a GPU is required


def codes(rng, shape, fmt, kind):
    """Return normal numbers, random bits, or numbers that cancel and underflow."""
    if kind == "bits":
        return rng.integers(0, (1 << fmt.bits) - 1, shape, np.uint64, endpoint=True).astype(fmt.code_dtype)
    values = rng.standard_normal(shape)
    if kind == "cancelling":
        values = np.exp2(rng.integers(-12, 12, shape).astype(float)) * rng.choice([-1.0, 1.0, 1.5], shape)
    if kind == "tiny":
        values *= fmt.smallest_normal
    return fs.encode(np.clip(values, -fmt.max, fmt.max), fmt)


@pytest.mark.parametrize("kind", ["normal", "bits", "cancelling", "tiny"])
@pytest.mark.parametrize("variant", variants(), ids=str)
def test_an_instruction_equals_the_emulator(gpu, variant, kind):
    capability = gpu.identity.capability
    if not gpu.can_run(variant):
        pytest.skip(f"{gpu.identity.name} has {capability}; {variant} needs {variant.kernel.needs}")
    if variant.model(capability) is None:
        pytest.skip(f"fs.tensorcore has no row for {variant} on a GPU of compute capability {capability}")
    rng = np.random.default_rng([11, ROWS])
    k = variant.k
    a, b = codes(rng, (ROWS, k), variant.a, kind), codes(rng, (ROWS, k), variant.b, kind)
    c = codes(rng, (ROWS,), variant.output, kind)
    scales, keywords = None, {}
    if variant.scales is not None:
        shape = ROWS, k // variant.scales.every
        low, high = (0, 256) if kind == "bits" else (110, 140) if variant.scales.format == fs.E8M0 else (0x28, 0x48)
        scales = tuple(rng.integers(low, high, shape).astype(np.uint8) for _ in "ab")
        both = ("scale_a", scales[0][:, np.newaxis]), ("scale_b", scales[1][:, :, np.newaxis])
        keywords = {name: fs.from_codes(x, variant.scales.format) for name, x in both}
    found = gpu.dots(variant, a, b, c, scales)
    unit = fs.TensorCore(architecture_of(capability), variant.name, output=variant.output)
    left, right = fs.from_codes(a[:, np.newaxis], variant.a), fs.from_codes(b[:, :, np.newaxis], variant.b)
    start = fs.from_codes(c.reshape(-1, 1, 1), variant.output)
    wanted = fs.matmul(left, right, start, accumulate=unit, format=variant.output, **keywords).codes.reshape(-1)
    if variant.output == fs.FP64:  # the bits of its NaN are not known
        nan = np.isnan(found.view(np.float64)) & np.isnan(wanted.view(np.float64))
        found, wanted = found[~nan], wanted[~nan]
    differ = np.flatnonzero(found != wanted)
    assert not len(differ), f"{len(differ)} of {ROWS}; first {differ[:5]}: {found[differ[:5]]} for {wanted[differ[:5]]}"


@pytest.mark.parametrize("pair", range(4))
def test_the_questions_for_blackwell(gpu, pair):
    """On these inputs published models of FP8 `mma.sync` differ; the failure names the model that the GPU equals."""
    make = questions.maker()
    architecture = architecture_of(gpu.identity.capability)
    if architecture not in ("blackwell", "blackwell-rtx"):
        pytest.skip(f"{gpu.identity.name} is no Blackwell GPU")
    x, unit = questions.asked(pair), make.unit(architecture, pair)
    found = gpu.dots(find(unit.name, unit.a, unit.b, unit.output), *x[:3])
    equal = {model.__name__: int((model(pair, x) == found).sum()) for model in make.MODELS}
    assert np.array_equal(found, unit.dots(*x)), f"{len(found)} rows; equal rows by model: {equal}"


@pytest.mark.parametrize("row", SCALARS, ids=str)
def test_an_operation_of_cuda_cores_equals_the_emulator(gpu, row):
    if not row.runs_on(gpu.identity.capability):
        pytest.skip(f"{gpu.identity.name} has compute capability {gpu.identity.capability}")
    codes = operands_of(row)[:-1] if row.random_bits else operands_of(row)  # random bits come from the seed
    operands = [fs.from_codes(x, row.source) for x in codes]
    for daz, ftz in row.flushes:
        check_equal(row, operands, daz=daz, ftz=ftz)


SEED = 16


def check_equal(row, operands, offset=0, **flushes):
    """Compare the GPU with what it is expected to return. A NaN equals every NaN: silicon has NaNs of its own."""
    options = scalar_keywords(row) | flushes | ({"seed": SEED, "offset": offset} if row.random_bits else {})
    with fs.context(backend="hardware"):
        call = getattr(fs, row.operation)
        found = call(*operands, row.result, **options) if row.operation == "convert" else call(*operands, **options)
    more = {"offset": offset} if row.random_bits else {}
    wanted = expected_results(row, operands, SEED, **flushes, **more)
    same = (found.codes == wanted.codes) | (fs.isnan(found) & fs.isnan(wanted))
    assert same.all(), [(a.codes[~same][:5], found.codes[~same][:5], wanted.codes[~same][:5]) for a in operands]


EVERY, AT_ONCE = 1 << 32, 1 << 24


@pytest.mark.exhaustive
@pytest.mark.skipif(os.environ.get("FLOATSIM_EXHAUSTIVE") != "1", reason="takes minutes: set FLOATSIM_EXHAUSTIVE=1")
@pytest.mark.parametrize("row", [r for r in SCALARS if (r.operation, r.source) == ("convert", fs.FP32)], ids=str)
def test_a_conversion_of_every_float32(gpu, row):
    if not row.runs_on(gpu.identity.capability):
        pytest.skip(f"{gpu.identity.name} has compute capability {gpu.identity.capability}")
    for start in range(0, EVERY, AT_ONCE):
        given = fs.from_codes(np.arange(start, start + AT_ONCE, dtype=np.uint64).astype(np.uint32), fs.FP32)
        check_equal(row, [given], start, **dict(zip(("daz", "ftz"), row.flushes[0], strict=True)))


@pytest.mark.parametrize(
    "accumulation", ["fp32", "sequential(fp32, fused)", "fp16", "pairwise(fp16, halving)", "strided(fp32, 32)"]
)
def test_sums_of_cuda_cores_equal_the_emulator(gpu, accumulation):
    rng = np.random.default_rng(13)
    a, b = rng.standard_normal((33, 257)).astype(np.float16), rng.standard_normal((257, 19)).astype(np.float16)
    found, wanted = (fs.matmul(a, b, accumulate=accumulation, backend=name) for name in ("hardware", "emulator"))
    assert found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("variant", variants(), ids=str)
def test_products_are_chains_of_instructions(gpu, variant):
    """The kernel of whole products, with and without promotion, for the instructions of the table."""
    capability = gpu.identity.capability
    if not gpu.can_run(variant) or variant.model(capability) is None or variant.scales is not None:
        pytest.skip(f"nothing to compare {variant} with on {gpu.identity.name}")
    rng = np.random.default_rng(14)
    depth = 5 * variant.k + 3
    a, b = (fs.from_codes(codes(rng, shape, fmt, "normal"), fmt)
            for shape, fmt in (((70, depth), variant.a), ((depth, 21), variant.b)))  # fmt: skip
    unit = fs.TensorCore(architecture_of(capability), variant.name, output=variant.output)
    for accumulation in (
        unit,
        fs.Blocked(unit, 2 * variant.k, variant.output if variant.output != fs.FP16 else fs.FP32),
    ):
        found, wanted = (fs.matmul(a, b, accumulate=accumulation, backend=name) for name in ("hardware", "emulator"))
        assert np.array_equal(found.codes, wanted.codes)


def test_arrays_of_cupy_come_back_as_such(gpu):
    cupy = pytest.importorskip("cupy")
    x = cupy.asarray(np.random.default_rng(15).standard_normal((8, 8)).astype(np.float16))
    unit = "fp32"
    found = fs.matmul(x, x, accumulate=unit, backend="hardware")
    assert isinstance(found, cupy.ndarray)
    assert found.get().tobytes() == fs.matmul(x.get(), x.get(), accumulate=unit).tobytes()


def test_flushed_sums_of_cuda_cores_equal_the_emulator(gpu):
    rng = np.random.default_rng(17)
    x = fs.array(rng.standard_normal((300, 21)) * 4 * fs.FP32.smallest_normal, "fp32")
    accumulation = "sequential(fp32, daz, ftz)"
    found, wanted = (fs.sum(x, axis=0, accumulate=accumulation, backend=name) for name in ("hardware", "emulator"))
    assert np.array_equal(found.codes, wanted.codes)


def test_libraries_multiply(gpu):
    """Small integers have exact sums in any order, so that each element shows its position."""
    from floatsim.hardware.vendor_gemm import PRODUCTS, installed

    rng = np.random.default_rng(18)
    rows = [row for row in PRODUCTS if row.library in installed() and gpu.identity.capability >= row.oldest]
    if not rows:
        pytest.skip("neither CuPy nor nvmath-python is installed")
    for row in rows:
        a, b = (fs.array(rng.integers(-2, 3, shape), fmt) for shape, fmt in (((48, 32), row.a), ((32, 64), row.b)))
        found = fs.hardware.library_matmul(a, b, library=row.library, compute=row.compute, format=row.output)
        assert np.array_equal(found.codes, fs.matmul(a, b, accumulate="exact(fp32)", format=row.output).codes), row


def test_a_probe_finds_the_model_of_the_table(gpu):
    different = [str(found) for found in fs.hardware.probe() if not found.equal]
    assert not different, "\n\n".join(different)


def test_it_is_timed(gpu):
    found = fs.hardware.bench(repeats=3)
    for rate in found.rates:
        assert not rate.error, rate
        assert rate.share is None or least_share(rate.what) < rate.share < MOST, rate
