"""The hardware backend without a GPU: its errors, and its results on lanes in NumPy compared with the emulator."""

from __future__ import annotations

import contextlib
import gc
import subprocess
import sys
import types
import warnings
from pathlib import Path

import numpy as np
import pytest

import floatsim as fs
from floatsim import reference
from floatsim.hardware import backend
from floatsim.hardware.compile import cupy_runtime as cuda
from floatsim.hardware.compile import driver_runtime
from floatsim.hardware.compile.runtime import why_unavailable
from floatsim.hardware.device import Device
from floatsim.hardware.tables.compute_capability import architecture_of
from floatsim.hardware.tables.ptx_matrix import find, variants
from floatsim.reference.random import draws
from floatsim.tensorcore import ARCHITECTURES
from tests.hardware.lanes import Lanes, without_compiling
from tests.marks import cases

# -- without a GPU -----------------------------------------------------------------------------------------------------


@pytest.fixture
def no_cupy(monkeypatch):
    """Let neither CuPy nor a driver be installed."""

    def missing():
        raise fs.hardware.UnavailableError("the CUDA driver cannot be loaded: no file libcuda.so.1")

    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setattr(driver_runtime, "load_driver", missing)
    backend.device.cache_clear()


class _Runtime:
    def __init__(self, count):
        self.count = count

    def getDeviceCount(self):
        if self.count is None:
            raise RuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected")
        return self.count


class _CuPy:
    def __init__(self, count):
        self.cuda = type("cuda", (), {"runtime": _Runtime(count)})


def test_without_cupy_the_error_says_what_to_install(no_cupy):
    x = np.ones((2, 2), np.float32)
    for call in (lambda: fs.matmul(x, x, backend="hardware"), fs.hardware.info, fs.hardware.Device,
                 lambda: fs.sum(x, backend="hardware")):  # fmt: skip
        with pytest.raises(
            fs.hardware.UnavailableError,
            match=r'needs CuPy.*pip install "cupy-cuda13x.*"cupy-cuda12x.*no file libcuda.so.1',
        ):
            call()
    with fs.context(backend="hardware"), pytest.raises(RuntimeError, match="CuPy"):
        fs.add(x, x)


def test_the_folder_of_the_machine_code_is_removed(monkeypatch):
    """CuPy loads a kernel from its file, maybe at its first launch. The folder goes with the last kernel, silently."""
    loaded = []

    def module(path):
        return types.SimpleNamespace(get_function=lambda name: lambda *_: loaded.append(Path(path).read_bytes()))

    cupy = _CuPy(1)
    cupy.cuda.runtime.driverGetVersion = lambda: 13000
    cupy.cuda.Device = lambda number: contextlib.nullcontext()
    cupy.RawModule = module
    monkeypatch.setattr(cuda, "_cupy", lambda: cupy)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        gpu = cuda.Cuda()
        kernels = [gpu.kernel(code, "name") for code in (b"one", b"two")]
        folder = Path(gpu._folder)
        del gpu
        gc.collect()
        for kernel in kernels:
            kernel(1, 1)
        assert loaded == [b"one", b"two"]
        del kernel, kernels
        gc.collect()
        assert not folder.exists()
    assert [str(each.message) for each in warned] == []


def test_the_error_without_a_gpu(monkeypatch):
    monkeypatch.setattr(cuda, "_cupy", lambda: _CuPy(None))
    with pytest.raises(fs.hardware.UnavailableError, match=r"finds no NVIDIA GPU: .*cudaErrorNoDevice"):
        Device()
    assert fs.hardware.is_available() is False
    monkeypatch.setattr(cuda, "_cupy", lambda: _CuPy(1))
    with pytest.raises(fs.hardware.UnavailableError, match="no GPU number 3"):
        Device(3)


def test_is_available_never_raises(monkeypatch):
    def broken():
        raise OSError("libcuda.so.1 is broken")

    monkeypatch.setattr(cuda, "_cupy", broken)
    assert fs.hardware.is_available() is False
    assert why_unavailable() == "libcuda.so.1 is broken"


def test_importing_it_loads_no_cupy():
    code = "import floatsim as fs, floatsim.hardware.backend, sys; assert 'cupy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


# -- the tables --------------------------------------------------------------------------------------------------------


def test_every_nvidia_row_can_be_issued():
    capabilities = {(7, 0), (7, 5), (8, 0), (8, 7), (8, 9), (9, 0), (10, 0), (10, 3), (12, 0), (12, 1)}
    issued = {
        (architecture_of(capability), v.name, v.output, v.scales)
        for capability in capabilities
        for v in variants()
        if v.kernel.runs_on(capability) and v.model(capability) is not None
    }
    rows = {
        (arch.name, row.name, row.output, scales)
        for arch in ARCHITECTURES.values()
        if arch.title.startswith("NVIDIA")
        for row in arch.instructions
        for scales in row.scales or (None,)
    }
    assert rows == issued
    for assumed, verified in (((8, 7), (8, 0)), ((10, 3), (10, 0)), ((12, 1), (12, 0))):
        assert [v for v in variants() if v.kernel.runs_on(assumed)] == [
            v for v in variants() if v.kernel.runs_on(verified)
        ]
    k = {(arch.name, row.name): row.k for arch in ARCHITECTURES.values() for row in arch.instructions}
    for v in variants():
        for capability in capabilities:
            if v.kernel.runs_on(capability) and v.model(capability) is not None:
                assert v.k == k[architecture_of(capability), v.name]


def test_the_error_of_unknown_instructions_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"instruction='mma.m3' cannot be issued; there are mma.m8n8k4, "):
        find("mma.m3", fs.FP16, fs.FP16)
    with pytest.raises(ValueError, match=r"cannot be issued for bf16 bf16 fp16 \(A, B, D\); there are fp16 fp16 fp32"):
        find("mma.m16n8k16", fs.BF16, fs.BF16, fs.FP16)


# -- an emulated GPU ---------------------------------------------------------------------------------------------------


@pytest.fixture
def device_with(monkeypatch):
    """Return a function that makes the backend run on lanes of a compute capability."""
    without_compiling(monkeypatch)

    def of(capability):
        device = Device(cuda=Lanes(capability))
        monkeypatch.setattr(backend, "device", lambda: device)
        return device

    return of


def same(found, wanted):
    assert type(found) is type(wanted)
    one, other = (x.codes if isinstance(x, fs.FloatArray) else np.asarray(x) for x in (found, wanted))
    assert one.dtype == other.dtype
    assert one.shape == other.shape
    np.testing.assert_array_equal(one.view(f"u{one.dtype.itemsize}"), other.view(f"u{one.dtype.itemsize}"))


def both(call):
    same(call(backend="hardware"), call(backend="emulator"))


def random(rng, shape, fmt):
    return fs.array(rng.standard_normal(shape), fmt)


QUICK_PRODUCTS = [
    ((8, 0), "fp16", "ampere", {}),
    ((8, 9), "e5m2", "blocked(ada, 64, fp32)", {}),
]
PRODUCTS = [
    *QUICK_PRODUCTS,
    ((8, 6), "bf16", "ampere", {}),
    ((8, 0), "fp64", "ampere", {}),
    ((8, 9), "e4m3", "tensorcore(ada, output=fp16)", {"format": "fp16"}),
    ((8, 9), "e5m2", "blocked(ada, 24, fp32)", {}),
    ((9, 0), "e4m3", "blocked(hopper, 32, fp32)", {"format": "bf16"}),
    ((9, 0), "bf16", "splitk(3, hopper, fp32)", {}),
    ((9, 0), "fp32", "tensorcore(hopper, wgmma.k8.tf32)", {}),
    ((9, 0), "tf32", "tensorcore(hopper, mma.m16n8k8.tf32)", {}),
    ((10, 0), "e2m3", "blackwell", {}),
    ((12, 0), "e2m1", "blackwell-rtx", {}),
    ((7, 5), "fp32", "fp32", {}),
    ((7, 5), "fp32", "sequential(fp32, fused, rounding=rtz)", {}),
    ((7, 5), "fp16", "sequential(fp16, fused)", {}),
    ((8, 0), "bf16", "bf16", {}),
    ((8, 0), "e4m3", "fp16", {}),
    ((8, 0), "fp16", "pairwise(fp32, halving)", {}),
    ((8, 0), "fp16", "pairwise(fp16, numpy)", {}),
    ((8, 0), "bf16", "strided(sequential(fp32, fused), 4, pairwise(fp32, halving))", {}),
    ((8, 0), "fp16", "blocked(fp16, 8, fp32)", {"format": "fp16"}),
]


@pytest.mark.parametrize(
    ("capability", "fmt", "accumulation", "keywords"),
    cases(quick=[pytest.param(*case) for case in QUICK_PRODUCTS], full=[pytest.param(*case) for case in PRODUCTS]),
    ids=str,
)
@pytest.mark.parametrize("with_c", cases(quick=[False], full=[True]))
def test_products_equal_the_emulator(device_with, capability, fmt, accumulation, keywords, with_c):
    device_with(capability)
    rng = np.random.default_rng(5)
    a, b = random(rng, (2, 19, 70), fmt), random(rng, (70, 11), fmt)
    c = None
    if with_c:
        accumulator = fs.as_accumulation(accumulation)
        c = random(rng, (19, 11), "fp64" if fmt == "fp64" else getattr(accumulator, "result_format", "fp32"))
    if fmt == "fp64":
        accumulation = "tensorcore(ampere, output=fp64)"
    both(lambda backend: fs.matmul(a, b, c, accumulate=accumulation, backend=backend, **keywords))


@pytest.mark.full
def test_block_scaled_products(device_with):
    device_with((12, 0))
    rng = np.random.default_rng(6)
    a, b = random(rng, (5, 100), "e2m1"), random(rng, (100, 9), "e2m1")
    for scale, every in (("e4m3", 16), ("e8m0", 16), ("e8m0", 32)):
        shape = -(-100 // every)
        of_rows = fs.array(np.exp2(rng.integers(-3, 3, (5, shape)).astype(float)), scale)
        of_columns = fs.array(np.exp2(rng.integers(-3, 3, (shape, 9)).astype(float)), scale)
        both(lambda backend, x=of_rows, y=of_columns: fs.matmul(
            a, b, accumulate="blackwell-rtx", scale_a=x, scale_b=y, backend=backend))  # fmt: skip


def test_no_terms_and_no_results(device_with):
    device_with((8, 0))
    for shapes in (((3, 0), (0, 4)), ((0, 5), (5, 4)), ((3, 5), (5, 0))):
        a, b = (np.ones(shape, np.float16) for shape in shapes)
        c = np.full((shapes[0][0], shapes[1][1]), 2.5, np.float32)
        for accumulation in ("ampere", "fp32", "pairwise(fp32)", "blocked(fp32, 2, fp32)", "strided(fp32, 4)"):
            for start in (None, c):
                both(
                    lambda backend, a=a, b=b, s=start, h=accumulation: fs.matmul(a, b, s, accumulate=h, backend=backend)
                )


@pytest.mark.full
def test_sums(device_with):
    device_with((8, 0))
    rng = np.random.default_rng(7)
    x = rng.standard_normal((6, 37)).astype(np.float16)
    for accumulation in ("fp32", "fp16", "pairwise(fp16)", "strided(fp32, 8)", "ampere"):
        both(lambda backend, h=accumulation: fs.sum(x, axis=1, accumulate=h, backend=backend))
    both(lambda backend: fs.dot(x[0], x[1], accumulate="ampere", backend=backend))


def on_both(call):
    with fs.context(backend="hardware"):
        found = call()
    same(found, call())


@pytest.mark.full
def test_element_by_element(device_with):
    device_with((9, 0))
    rng = np.random.default_rng(8)
    for fmt in (fs.FP32, fs.FP64, fs.FP16, fs.BF16):
        codes = rng.integers(0, 1 << 16, (3, 5, 7), np.uint64) * rng.integers(1, 1 << 48, (3, 5, 7), np.uint64)
        x, y, z = (fs.from_codes((codes[i] >> np.uint64(64 - fmt.bits)).astype(fmt.code_dtype), fmt) for i in range(3))
        for call in (fs.add, fs.subtract, fs.multiply):
            on_both(lambda call=call, x=x, y=y: call(x, y))
        on_both(lambda x=x, y=y, z=z: fs.fma(x, y, z))
    x32 = x.values.astype(np.float32)
    for rounding in ("ties_to_even", "toward_zero", "toward_positive", "toward_negative"):
        on_both(lambda r=rounding: fs.divide(x32, x32[::-1], rounding=r))
        on_both(lambda r=rounding: fs.sqrt(np.abs(x32), rounding=r))
        on_both(lambda r=rounding: fs.convert(x32, "bf16", rounding=r))
    on_both(lambda: fs.convert(x32, "e4m3", overflow="saturate_finite"))
    on_both(lambda: fs.convert(x32, "tf32", rounding="ties_to_away"))
    on_both(lambda: fs.quantize(x32, "e5m2", overflow="saturate_finite"))


def tiny(rng, shape, fmt=fs.FP32):
    """Return numbers around the smallest normal number, of both signs, and zeros."""
    x = rng.standard_normal(shape) * rng.choice([0, 0.01, 0.5, 1, 2, 100], shape) * fmt.smallest_normal
    return fs.array(x, fmt)


FLUSHED = [
    *((name, rounding, fs.FP32) for name in ("add", "subtract")
      for rounding in ("ties_to_even", "toward_zero", "toward_positive", "toward_negative")),
    ("add", "ties_to_even", fs.FP16), ("subtract", "ties_to_even", fs.FP16), ("multiply", "toward_zero", fs.FP32),
    ("divide", "toward_zero", fs.FP32), ("fma", "toward_zero", fs.FP32),
]  # fmt: skip


@pytest.mark.parametrize(("name", "rounding", "fmt"), FLUSHED, ids=str)
def test_flushing(device_with, name, rounding, fmt):
    device = device_with((9, 0))
    rng = np.random.default_rng(21)
    x, y, z = (tiny(rng, 400, fmt) for _ in range(3))
    if name in ("multiply", "fma"):
        y = random(rng, 400, fmt)
    operands = (x, y, z) if name == "fma" else (x, y)
    on_both(lambda: getattr(fs, name)(*operands, rounding=rounding, daz=True, ftz=True))
    kernel = f"{name}_{fmt.name}_{fmt.name}_{rounding}_infinity_daz_and_ftz".lower()
    assert device._cuda.launches == [f"elementwise.cu {kernel} sm_90"]


def test_flushing_of_roots_and_conversions(device_with):
    device_with((9, 0))
    rng = np.random.default_rng(22)
    x = tiny(rng, 400)
    for daz, ftz in ((True, False), (False, True), (True, True)):
        on_both(lambda d=daz, f=ftz: fs.sqrt(fs.absolute(x), daz=d, ftz=f))
    half = fs.array(np.concatenate([x.values, rng.standard_normal(50) * 1e-6]), "fp32")
    for fmt in ("fp16", "e4m3", "e5m2"):  # in which these subnormals are zeros anyway
        on_both(lambda f=fmt: fs.convert(half, f, daz=True, overflow="saturate_finite"))
    on_both(lambda: fs.convert(half, "fp16", rounding="toward_zero", daz=True))
    small = tiny(rng, 100, fs.FP16)
    on_both(lambda: fs.convert(small, "e4m3", daz=True, overflow="saturate_finite"))
    for source, fmt, rounding in ((half, "fp16", "toward_positive"), (half, "bf16", "ties_to_even"),
                                  (small, "e5m2", "ties_to_even")):  # fmt: skip
        with fs.context(backend="hardware"), pytest.raises(ValueError, match=r"no GPU has convert of .*daz=True"):
            fs.convert(source, fmt, rounding=rounding, daz=True, overflow="saturate_finite")
    wide = fs.array(rng.standard_normal(200) * 2.0**-126, "fp64")
    on_both(lambda: fs.convert(wide, "fp32", rounding="toward_zero", ftz=True))


def test_flushed_sums(device_with):
    device_with((8, 0))
    rng = np.random.default_rng(23)
    x = tiny(rng, (40, 6))
    for accumulation in ("sequential(fp32, daz, ftz)", "sequential(fp32, daz, ftz, rounding=rtp)",
                "strided(sequential(fp32, daz, ftz), 4, fp32)"):  # fmt: skip
        both(lambda backend, h=accumulation: fs.sum(x, axis=0, accumulate=h, backend=backend))
    half = tiny(rng, (40, 6), fs.FP16)
    both(lambda backend: fs.sum(half, axis=0, accumulate="sequential(fp16, daz, ftz)", backend=backend))
    with fs.context(daz=True, ftz=True):
        both(lambda backend: fs.sum(x, axis=1, backend=backend))
    a, b = tiny(rng, (5, 40)), random(rng, (40, 7), "fp32")
    for accumulation in ("sequential(fp32, daz, ftz, rounding=rtz)", "sequential(fp32, fused, daz, ftz, rounding=rtz)",
                "sequential(fp32, daz, ftz, product_rounding=rtz)"):  # fmt: skip
        both(lambda backend, h=accumulation: fs.matmul(a, b, accumulate=h, backend=backend))


@pytest.mark.parametrize(
    ("fmt", "bits"),
    [("fp16", 13), ("bf16", 16), ("e4m3", 16), ("e5m2", 16), ("e3m2", 16), ("e2m3", 16), ("e2m1", 8)],
)
def test_stochastic_conversions(device_with, fmt, bits):
    device_with((10, 0))
    rng = np.random.default_rng(24)
    chosen = fs.as_format(fmt)
    scale = np.exp2(rng.uniform(np.log2(chosen.smallest_subnormal) - 2, np.log2(chosen.max) + 1, 600))
    x = np.concatenate([rng.standard_normal(400) * chosen.max / 9, scale * rng.choice([-1, 1], 600)])
    x = np.clip(x, -fs.FP32.max, fs.FP32.max).astype(np.float32).reshape(25, 40)
    overflows = ("infinity", "saturate_finite") if chosen.bits == 16 else ("saturate_finite",)
    for overflow in overflows:
        for offset in (0, 7, (1 << 32) - 30, (1 << 64) - 5):
            on_both(lambda o=overflow, n=offset: fs.convert(
                x, fmt, rounding="stochastic", seed=5, random_bits=bits, overflow=o, offset=n))  # fmt: skip


def test_draws_equal_the_reference():
    for seed, offset, bits in ((0, 0, 32), (1, 5, 13), (2**64 - 1, 2**32 - 3, 8), (77, 2**64 - 2, 16)):
        found = draws(seed, offset, 9, bits).tolist()
        assert found == [reference.draw(seed, (offset + i) % 2**64, bits) for i in range(9)]


def test_conversions_of_newer_compilers(device_with):
    device = device_with((12, 0))
    x = random(np.random.default_rng(25), (4, 50), "bf16")
    for fmt in ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1"):
        on_both(lambda f=fmt: fs.convert(x, f, overflow="saturate_finite"))
        narrow = fs.convert(x, fmt)
        on_both(lambda n=narrow: fs.convert(n, "bf16"))
    scales = fs.from_codes(np.arange(256, dtype=np.uint8), "e8m0")
    on_both(lambda: fs.convert(scales, "bf16"))
    assert any("convert_e8m0_bf16_exact_infinity sm_120a" in launch for launch in device._cuda.launches)


def test_infinities_saturate_or_it_is_an_error(device_with):
    """Exact conversions and identities do not saturate infinities."""
    device_with((9, 0))
    x = np.float16([1, np.inf, -np.inf])
    for call in (lambda: fs.convert(x, "fp32", overflow="saturate_finite"),
                 lambda: fs.convert(x, "fp16", overflow="saturate_finite"),
                 lambda: fs.convert(x, "fp16", ftz=True),
                 lambda: fs.matmul(X32, X32, accumulate="fp32", overflow="saturate_finite")):  # fmt: skip
        with fs.context(backend="hardware"), pytest.raises(ValueError, match="no GPU has convert of FP"):
            call()
    on_both(lambda: fs.convert(x, "fp16"))
    on_both(lambda: fs.convert(E4M3, "fp16", overflow="saturate_finite"))
    on_both(lambda: fs.convert(E4M3, "e4m3", overflow="saturate_finite"))


def test_alpha_and_beta(device_with):
    device_with((8, 0))
    rng = np.random.default_rng(31)
    a, b, c = (random(rng, shape, "fp16") for shape in ((5, 20), (20, 6), (5, 6)))
    for accumulation in ("fp32", "ampere"):
        for alpha, beta in ((2, 1), (0.5, -0.25), (1, 0), (-1, 3)):
            both(lambda backend, h=accumulation, x=alpha, y=beta: fs.matmul(
                a, b, c, accumulate=h, alpha=x, beta=y, backend=backend))  # fmt: skip
    with pytest.raises(ValueError, match="multiply of FP64, and a GPU computes in FP32, which does not hold it"):
        fs.matmul(a, b, accumulate="fp32", alpha=0.1, backend="hardware")


def test_narrower_operands(device_with):
    device_with((8, 0))
    rng = np.random.default_rng(32)
    x, y = random(rng, 50, "fp16"), random(rng, 50, "fp32")
    on_both(lambda: fs.add(x, y, format="fp32"))
    on_both(lambda: fs.fma(x, x, y, format="fp32", rounding="toward_zero"))
    on_both(lambda: fs.multiply(x, 2.0))


# -- limitations of GPUs -----------------------------------------------------------------------------------------------

X32, X16 = np.ones((4, 4), np.float32), np.ones((4, 4), np.float16)
BF16 = fs.array(np.ones((4, 4)), "bf16")
E4M3 = fs.array(np.ones((4, 4)), "e4m3")


@pytest.mark.parametrize(
    ("capability", "call", "message"),
    [
        ((8, 0), lambda: fs.matmul(E4M3, E4M3, accumulate="hopper"), r"Hopper \(sm_90\); this GPU, .*, is ampere"),
        ((11, 0), lambda: fs.matmul(X16, X16, accumulate="hopper"), r"of compute capability 11.0"),
        ((8, 0), lambda: fs.convert(X32, "e4m3", overflow="saturate_finite"),
         r"needs compute capability 8.9 or newer; .* 8.0"),
        ((9, 0), lambda: fs.convert(X32, "e4m3"), r"no GPU has .* overflow='infinity'; there is .*saturate_finite"),
        ((9, 0), lambda: fs.convert(X32, "e2m1", overflow="saturate_finite"),
         r"compute capability 10.0 \(sm_100a\), 10.3 \(sm_103a\) or 12.x \(sm_120f\); this GPU has 9.0"),
        ((9, 0), lambda: fs.convert(X32, "fp16", rounding="SR", seed=1), "rounding='stochastic'"),
        ((9, 0), lambda: fs.divide(X16, X16), "no GPU has divide of FP16 .*FP32, FP64"),
        ((9, 0), lambda: fs.add(E4M3, E4M3), "no GPU has add of E4M3"),
        ((9, 0), lambda: fs.add(X16, X16, rounding="toward_zero"), "rounding='toward_zero'"),
        ((7, 5), lambda: fs.add(BF16, BF16), "needs compute capability 8.0"),
        ((9, 0), lambda: fs.add(X32, X32, ftz=True), "ftz=True and overflow='infinity'; there is .*, daz and ftz"),
        ((9, 0), lambda: fs.multiply(X32, X32, daz=True, ftz=True), "no GPU has multiply of FP32 with rounding"),
        ((9, 0), lambda: fs.sum(X32, accumulate="pairwise(fp32, daz, ftz)"), "flushes only in a chain of sums"),
        ((9, 0), lambda: fs.sum(X16, accumulate="sequential(fp32, daz, ftz)"), "daz reads subnormals of FP16 as zeros"),
        ((9, 0), lambda: fs.sum(X32, initial=1, accumulate="sequential(fp32, daz, ftz)"), "no GPU has convert of FP"),
        ((10, 0), lambda: fs.convert(X32, "fp16", rounding="SR", seed=1),
         r"rounding='stochastic', random_bits=32 and .*stochastic of 13 bits"),
        ((12, 0), lambda: fs.convert(X32, "fp16", rounding="SR", seed=1, random_bits=13),
         r"needs compute capability 10.0 \(sm_100a\) or 10.3 \(sm_103a\); this GPU has 12.0"),
        ((9, 0), lambda: fs.add(X32, X16, format="fp16"),
         "add of FP32, and a GPU computes in FP16, which does not hold all"),
        ((9, 0), lambda: fs.add(X32, X16, format="fp32", daz=True, ftz=True),
         "add of FP16, and a GPU computes in FP32, with daz=True"),
        ((10, 0), lambda: fs.convert(X32, "e8m0"), "no GPU has convert of FP32 to E8M0 as an instruction"),
        ((9, 0), lambda: fs.add(X32, X32, return_flags=True), "a GPU has no flags"),
        ((9, 0), lambda: fs.matmul(X32, X32, accumulate="kahan(fp32)"), r"does not support kahan\(fp32\)"),
        ((9, 0), lambda: fs.matmul(X32, X32, accumulate="exact(fp32)"), "does not support exact"),
        ((9, 0), lambda: fs.matmul(X32, X32, accumulate="fp16"), "b is FP32, and a GPU computes in FP16"),
        ((9, 0), lambda: fs.matmul(X16, X16, accumulate="sequential(fp16, product=fp32)"), "products to FP32"),
        ((9, 0), lambda: fs.matmul(X16, X16, accumulate="pairwise(fp16, product=none)"), "keeps products exact"),
        ((9, 0), lambda: fs.matmul(X16, X16, accumulate="fp32", daz=True), "daz=True"),
        ((9, 0), lambda: fs.matmul(X16, X16, accumulate="sequential(fp32, overflow=saturate_finite)"),
         "no GPU has add of FP32 with .*saturate_finite"),
        ((9, 0), lambda: fs.cumsum(X32[0]), "does not support running sums"),
        ((9, 0), lambda: fs.prod(X32[0]), "does not support multiply all"),
        ((9, 0), lambda: fs.remainder(X32, X32), "no GPU has"),
    ],
)  # fmt: skip
def test_an_unsupported_call_is_an_error(device_with, capability, call, message):
    device_with(capability)
    with fs.context(backend="hardware"), pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("capability", "arch", "target"),
    [((8, 7), "ampere", "mma.cu gemm sm_87"), ((10, 3), "blackwell", "tcgen05.cu gemm sm_100f"),
     ((12, 1), "blackwell-rtx", "mma.cu gemm sm_121")],
)  # fmt: skip
def test_gpus_with_an_assumed_architecture(device_with, capability, arch, target):
    """Kernels are compiled for the GPU itself or for its family."""
    device = device_with(capability)
    a = random(np.random.default_rng(26), (4, 40), "fp16")
    both(lambda backend: fs.matmul(a, a.T, accumulate=arch, backend=backend))
    assert device._cuda.launches == [target]


def test_block_scaled_instructions_of_compute_capability_10_3(device_with):
    """The family target has no scale_vec: the target is sm_103a."""
    device = device_with((10, 3))
    v = find("tcgen05.k32.mxf8f6f4", fs.E4M3, fs.E4M3, scales=fs.tensorcore.Scales(32, fs.E8M0))
    codes, ones = np.full((2, 32), 0x38, np.uint8), np.full((2, 1), 127, np.uint8)
    found = device.dots(v, codes, codes, np.zeros(2, np.uint32), (ones, ones))
    assert found.view(np.float32).tolist() == [32, 32]
    assert device._cuda.launches == ["tcgen05.cu single sm_103a"]


@pytest.mark.parametrize("events", [None, ["cancellation"]])
def test_records_are_an_error(device_with, events):
    device_with((9, 0))
    with fs.record(events=events), pytest.raises(ValueError, match="a GPU does not report"):
        fs.matmul(X32, X32, backend="hardware")


def test_a_device_rejects_wrong_shapes_and_instructions(device_with):
    device = device_with((8, 0))
    v = find("mma.m16n8k16", fs.FP16, fs.FP16)
    a, c = np.zeros((3, 16), np.uint16), np.zeros(3, np.uint32)
    with pytest.raises(ValueError, match=r"takes a and b \(n, 16\) and c \(n,\), not \(3, 8\)"):
        device.dots(v, a[:, :8], a[:, :8], c)
    with pytest.raises(ValueError, match=r"wgmma.k16 .* needs compute capability 9.0 \(sm_90a\); .* has 8.0"):
        device.dots(find("wgmma.k16", fs.FP16, fs.FP16), a, a, c)
    with pytest.raises(ValueError, match=r"every=4: totals are FP32"):
        device.matmul(find("mma.m16n8k16", fs.FP16, fs.FP16, fs.FP16), a, a.T, every=4)
    scales = (np.zeros((3, 1), np.uint8),) * 2
    with pytest.raises(ValueError, match="takes no scales"):
        device.dots(v, a, a, c, scales)
    assert device.can_run(v)
    assert v in device.variants
    assert not device.can_run(find("mma.m16n8k32", fs.E4M3, fs.E4M3))


def test_all_rows_of_an_instruction_are_used(device_with):
    """Dot products are on the diagonals of tiles, which move down the rows of a tile."""
    device = device_with((9, 0))
    v = find("wgmma.k16", fs.FP16, fs.FP16)
    rows = set()
    tiles = device.tiles

    def seen(variant, a, *others):
        rows.update(np.argwhere(a.any(axis=2))[:, 1].tolist())
        return tiles(variant, a, *others)

    device.tiles = seen
    ones = np.full((64, 16), 0x3C00, np.uint16)
    assert (device.dots(v, ones, ones, np.zeros(64, np.uint32)) == np.float32(16).view(np.uint32)).all()
    assert rows == set(range(64))


@pytest.mark.full
def test_many_tiles_are_sent_in_parts(device_with, monkeypatch):
    device = device_with((8, 0))
    monkeypatch.setattr("floatsim.hardware.device._TILES_PER_LAUNCH", 3)
    v = find("mma.m8n8k4", fs.FP64, fs.FP64)
    ones = np.full((60, 4), np.float64(1).view(np.uint64))
    assert (device.dots(v, ones, ones, np.zeros(60, np.uint64)).view(np.float64) == 4).all()
    assert len(device.dots(v, ones[:0], ones[:0], np.zeros(0, np.uint64))) == 0
