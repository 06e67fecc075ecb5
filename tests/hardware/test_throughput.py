"""Throughput, with a clock that counts the operations of the compiled instructions, and the data sheets."""

from __future__ import annotations

import contextlib
import json
from types import SimpleNamespace

import numpy as np
import pytest

import floatsim as fs
from floatsim.cli import hardware as hardware_commands
from floatsim.hardware import throughput as rates
from floatsim.hardware import vendor_gemm as libraries
from floatsim.hardware.device import Device
from floatsim.hardware.protocol import DeviceIdentity
from floatsim.hardware.tables import datasheets
from floatsim.hardware.tables.ptx_matrix import variants
from floatsim.hardware.throughput import Rate, Rates
from tests.hardware.lanes import Lanes, without_compiling

pytestmark = pytest.mark.full

CAPABILITIES = [(7, 0), (7, 5), (8, 0), (8, 9), (9, 0), (10, 0), (12, 0)]


@pytest.fixture
def device_with(monkeypatch):
    without_compiling(monkeypatch)
    monkeypatch.setattr(rates, "installed", lambda: ())

    def of(capability, name=None):
        lanes = Lanes(capability)
        if name is not None:
            lanes.identity = DeviceIdentity(name, capability, "580.0", "13.0")
        return Device(cuda=lanes), lanes

    return of


@pytest.mark.parametrize("capability", CAPABILITIES, ids=str)
def test_the_throughput_of_every_instruction_equals_the_clock(device_with, capability):
    """The operations counted on the host equal those of the compiled instructions."""
    device, lanes = device_with(capability)
    found = fs.hardware.bench(device=device, repeats=3)
    assert {rate.what for rate in found.rates} == {str(v) for v in device.variants if v.a == v.b != fs.FP32}
    for rate in found.rates:
        assert rate.tflops == pytest.approx(lanes.speed / 1e9, rel=1e-12), rate.what
        assert len(rate.milliseconds) == 3
        assert rate.milliseconds[2] == pytest.approx(10 * rate.milliseconds[0])
        assert rate.milliseconds[0] >= rates._LONG
    assert any(launch.startswith("mma.cu rate sm_") for launch in lanes.launches)


def test_measurements_are_long_at_any_speed(device_with):
    for speed in (1e7, 1e9, 1e11, 1e12):
        device, lanes = device_with((8, 0))
        lanes.speed = speed
        (rate,) = fs.hardware.bench("mma.m16n8k16 bf16 *", device=device, repeats=1).rates
        assert rates._LONG <= rate.milliseconds[0] < 3 * rates._LONG
        assert rate.tflops == pytest.approx(speed / 1e9)


def test_the_data_sheet_and_bf16(device_with):
    device, lanes = device_with((9, 0), "NVIDIA H100 80GB HBM3")
    issue = lanes.rate

    def rate(built, *arguments):  # eight bits twice as fast as sixteen
        before = lanes.operations
        issue(built, *arguments)
        if "e4m3" in built["definitions"]["MNEMONIC"]:
            lanes.operations -= (lanes.operations - before) // 2

    lanes.rate = rate
    lanes.speed = 989.5e9 * 0.8
    found = fs.hardware.bench("wgmma.*", device=device, repeats=1)
    by = {each.what: each for each in found.rates}
    bf16, fp8 = by["wgmma.k16 bf16 bf16 fp32"], by["wgmma.k32 e4m3 e4m3 fp32"]
    assert (bf16.sheet, bf16.source, fp8.sheet) == (989.5, "H100 data sheet", 1979)
    assert bf16.share == pytest.approx(0.8)
    assert fp8.share == pytest.approx(0.8)
    assert found.of_bf16(fp8) == pytest.approx(2)
    assert found.of_bf16(bf16) == 1
    line = next(line for line in str(found).splitlines() if "e4m3 e4m3 fp32" in line)
    assert line.split() == ["wgmma.k32", "e4m3", "e4m3", "fp32", "1583.2", "1979", "80", "%", "2.00"]


def test_the_baseline_is_bf16_then_fp16():
    def rate(fmt, ms, unit="mma"):
        return Rate("", unit, fmt, fs.FP32, 10**9, (ms,))

    found = Rates(
        DeviceIdentity("", (7, 5), "", ""), (rate(fs.FP16, 2.0), rate(fs.E4M3, 1.0), rate(fs.FP64, 1.0, "cublas"))
    )
    assert [found.of_bf16(each) for each in found.rates] == [1, 2, None]


def test_the_median_is_reported():
    assert Rate("", "mma", fs.FP16, fs.FP32, 10**9, (5.0, 1.0, 100.0, 2.0)).tflops == pytest.approx(1 / 3.5)


# -- data sheets -------------------------------------------------------------------------------------------------------

NAMES = {
    "Tesla V100-SXM2-16GB": 125, "Tesla V100-PCIE-32GB": 112, "Tesla V100S-PCIE-32GB": 130, "Tesla T4": 65,
    "NVIDIA A100-SXM4-80GB": 312, "A100-PCIE-40GB": 312, "NVIDIA A100 80GB PCIe": 312, "NVIDIA A30": 165,
    "NVIDIA A40": 149.7, "NVIDIA A10": 125, "NVIDIA A10G": None, "NVIDIA A2": 18, "NVIDIA RTX A6000": 154.8,
    "NVIDIA GeForce RTX 3090": 71, "NVIDIA GeForce RTX 3090 Ti": None, "NVIDIA L4": 121, "NVIDIA L40": 181.05,
    "NVIDIA L40S": 362.05, "NVIDIA RTX 6000 Ada Generation": 364.2, "NVIDIA GeForce RTX 4090": 165.2,
    "NVIDIA GeForce RTX 4090 D": None, "NVIDIA H100 PCIe": 756.5, "NVIDIA H100 NVL": 835.5,
    "NVIDIA H100 80GB HBM3": 989.5, "NVIDIA H200": 989.5, "NVIDIA H200 NVL": 835.5, "NVIDIA GH200 480GB": 989.5,
    "NVIDIA B200": 2250, "NVIDIA GB200": 2500, "NVIDIA GeForce RTX 5090": 209.5,
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": 503.8,
    "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition": None, "NVIDIA GeForce GTX 1080": None,
}  # fmt: skip


@pytest.mark.parametrize(("name", "half"), NAMES.items())
def test_names_of_drivers_find_their_data_sheets(name, half):
    assert datasheets.peak(name, fs.FP16, fs.FP32)[0] == half


def test_every_data_sheet_belongs_to_a_gpu():
    found = [next((s for s in datasheets.SHEETS if datasheets.re.search(s.names, name)), None) for name in NAMES]
    assert set(datasheets.SHEETS) == {sheet for sheet in found if sheet is not None}


@pytest.mark.parametrize("sheet", datasheets.SHEETS, ids=lambda sheet: sheet.names)
def test_rates_of_a_data_sheet_are_halves_of_each_other(sheet):
    """Half the bits give twice the throughput, within the rounding of the data sheets."""
    assert sheet.half_fp16 in (sheet.half, pytest.approx(2 * sheet.half, rel=0.01))
    if sheet.tf32 is not None:
        assert sheet.half == pytest.approx(2 * sheet.tf32, rel=0.03)
    if sheet.fp8 is not None:
        assert sheet.fp8 == pytest.approx(2 * sheet.half, rel=0.02)
        assert sheet.fp8_fp16 == pytest.approx(2 * sheet.half_fp16, rel=0.02)
    if sheet.fp4 is not None:
        assert sheet.fp4 == pytest.approx(2 * sheet.fp8_fp16, rel=0.01)


def test_only_fp4_only_instructions_have_the_throughput_of_fp4(device_with):
    device, _ = device_with((12, 0), "NVIDIA GeForce RTX 5090")
    found = fs.hardware.bench("* e2m1 e2m1 *", device=device, repeats=1)
    sheets = {each.what: each.sheet for each in found.rates}
    assert sheets["mma.m16n8k64.mxf4 e2m1 e2m1 fp32 e8m0/32"] == 1676
    assert sheets["mma.m16n8k32.mxf8f6f4 e2m1 e2m1 fp32 e8m0/32"] == 419
    assert sheets["mma.m16n8k32 e2m1 e2m1 fp16"] == 838


# -- libraries ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def fast_library(monkeypatch):
    """A library that multiplies nothing, and takes time on the clock of a GPU of lanes."""
    seen = []

    def put(lanes):
        @contextlib.contextmanager
        def ready(product, a, b, number=0):
            assert a.dtype == product.a.code_dtype
            seen.append((str(product), a.shape))

            def multiply():
                lanes.operations += 2 * len(a) ** 3

            yield multiply

        monkeypatch.setattr(rates, "prepared", ready)
        return seen

    return put


def test_libraries_are_timed_with_large_matrices(device_with, fast_library, monkeypatch):
    device, lanes = device_with((8, 9), "NVIDIA L40S")
    monkeypatch.setattr(rates, "installed", lambda: ("cublas", "cupy", "nvmath"))
    monkeypatch.setattr(rates, "_SIZES", (32, 64, 128))
    seen = fast_library(lanes)
    lanes.speed = 2 * 64**3 / rates._LONG
    found = fs.hardware.bench(["cublas *", "nvmath *"], device=device, repeats=2)
    assert {r.unit for r in found.rates} == {"cublas", "nvmath"}
    assert {size for _, size in seen} == {(32, 32), (64, 64)}
    for rate in found.rates:
        assert rate.operations == 2 * 64**3
        assert rate.tflops == pytest.approx(lanes.speed / 1e9)
        assert rate.milliseconds[0] == pytest.approx(rates._LONG)
    sheets = {each.what: each.sheet for each in found.rates}
    assert sheets["cublas FP16 x FP16 to FP16, compute 32f"] == 362.05
    assert sheets["cublas TF32 x TF32 to FP32, compute 32f_fast_tf32"] == 183
    assert sheets["cublas FP32 x FP32 to FP32, compute 32f"] is None
    assert sheets["nvmath E4M3 x E4M3 to FP32, compute 32f_fast_accum"] == 733
    assert not any("E5M2" in what for what in sheets)
    with pytest.raises(StopIteration):
        next(r for r in fs.hardware.bench("* bf16 *", device=device, libraries=False).rates if r.unit == "cublas")


def test_sums_in_fp16_have_their_own_throughput(device_with, fast_library, monkeypatch):
    device, lanes = device_with((8, 9), "NVIDIA GeForce RTX 4090")
    monkeypatch.setattr(rates, "installed", lambda: ("cublas",))
    monkeypatch.setattr(rates, "_SIZES", (16,))
    fast_library(lanes)
    found = fs.hardware.bench("cublas fp16 x fp16 to fp16*", device=device, repeats=1)
    sheets = {each.what.rpartition(" ")[2]: each.sheet for each in found.rates}
    assert sheets == {"32f": 165.2, "32f_pedantic": 165.2, "16f": 330.3, "16f_pedantic": 330.3}


def test_an_error_of_a_library_is_a_row(device_with, fast_library, monkeypatch):
    device, lanes = device_with((8, 9), "NVIDIA L40S")
    monkeypatch.setattr(rates, "installed", lambda: ("cublas",))
    monkeypatch.setattr(rates, "_SIZES", (16,))
    fast_library(lanes)
    ready = rates.prepared

    def refuses(product, *others):
        if product.compute == "16f":
            raise RuntimeError("CUBLAS_STATUS_NOT_SUPPORTED\nof this")
        return ready(product, *others)

    monkeypatch.setattr(rates, "prepared", refuses)
    found = fs.hardware.bench("cublas fp16*", device=device, repeats=1)
    (wrong,) = [rate for rate in found.rates if rate.error]
    assert wrong.error == "RuntimeError: CUBLAS_STATUS_NOT_SUPPORTED of this"
    assert (wrong.tflops, wrong.share, found.of_bf16(wrong)) == (None, None, None)
    assert f"{wrong.what}: RuntimeError: CUBLAS_STATUS_NOT_SUPPORTED" in str(found)
    assert wrong.to_dict()["error"] == wrong.error
    assert all(rate.tflops > 0 for rate in found.rates if not rate.error)


def test_an_error_of_an_instruction_is_a_row(run, device_with, monkeypatch):
    device, _ = device_with((9, 0), "NVIDIA H200")
    issue = device.issue

    def refuses(variant, steps, repeats):
        if variant.a == fs.FP16:
            raise RuntimeError("CUDA_ERROR_LAUNCH_TIMEOUT")
        return issue(variant, steps, repeats)

    monkeypatch.setattr(device, "issue", refuses)
    monkeypatch.setattr(hardware_commands, "local_device", lambda: device)
    code, out, err = run("bench-hardware", "-i", "wgmma.k16", "--repeats", 1)
    assert (code, err) == (3, "")
    assert "wgmma.k16 fp16 fp16 fp32: RuntimeError: CUDA_ERROR_LAUNCH_TIMEOUT" in out.splitlines()
    assert any(line.startswith("wgmma.k16 bf16 bf16 fp32: ") and line.endswith("TFLOP/s") for line in out.splitlines())
    code, out, err = run("bench-hardware", "-i", "wgmma.k16", "--repeats", 1, "--json")
    assert "wgmma.k16 fp16 fp16 fp32: RuntimeError: CUDA_ERROR_LAUNCH_TIMEOUT" in err
    by = {each["what"]: each for each in json.loads(out)["rates"]}
    assert code == 3
    assert by["wgmma.k16 fp16 fp16 fp32"]["error"] == "RuntimeError: CUDA_ERROR_LAUNCH_TIMEOUT"
    assert by["wgmma.k16 bf16 bf16 fp32"]["tflops"] > 0


@pytest.mark.parametrize("capability", CAPABILITIES, ids=str)
def test_a_subroutine_has_no_unit(device_with, capability):
    """From compute capability 8.0 on, FP16 mma.m8n8k4 is no matrix instruction. FP64 mma.m8n8k4 is one."""
    device, _ = device_with(
        capability, {(7, 0): "Tesla V100-SXM2-16GB", (8, 0): "NVIDIA A100-SXM4-80GB"}.get(capability)
    )
    found = fs.hardware.bench("mma.m8n8k4", device=device, repeats=1)
    for rate, row in zip(found.rates, found.rows(), strict=True):
        subroutine = capability >= (8, 0) and rate.operands == fs.FP16
        assert (rate.unit == rates.NO_UNIT) is subroutine
        assert (row[2] == "no unit") is subroutine
        assert rate.tflops > 0
        if subroutine:
            assert (rate.sheet, rate.share, found.of_bf16(rate)) == (None, None, None)
    assert capability != (7, 0) or [rate.sheet for rate in found.rates] == [125, 125]
    assert any(rate.unit == "mma" for rate in found.rates)


# -- the command, and bad input ----------------------------------------------------------------------------------------


def test_command(run, device_with, monkeypatch):
    device, _ = device_with((9, 0), "NVIDIA H200")
    monkeypatch.setattr(hardware_commands, "local_device", lambda: device)
    code, out, err = run("bench-hardware", "-i", "wgmma.k16", "--repeats", 2)
    assert (code, err) == (0, "")
    assert "NVIDIA H200" in out
    assert "wgmma.k16 bf16 bf16 fp32" in out
    assert "data sheet: H200 data sheet; dense matrices" in out
    code, out, _ = run("bench-hardware", "-i", "wgmma.k16", "--repeats", 2, "--json")
    facts = json.loads(out)
    assert facts["card"] == "NVIDIA H200"
    assert [r["what"] for r in facts["rates"]] == [str(v) for v in variants() if v.name == "wgmma.k16"]
    assert facts["rates"][0]["data_sheet_tflops"] == 989.5
    assert facts["rates"][0]["of_bf16"] == pytest.approx(1)
    assert len(facts["rates"][0]["milliseconds"]) == 2
    device, _ = device_with((9, 0))
    code, out, _ = run("bench-hardware", "-i", "wgmma.k16", "--repeats", 1)
    assert "none in the table for this GPU" in out


def test_bad_input(run, device_with, monkeypatch):
    device, _ = device_with((8, 0))
    monkeypatch.setattr(hardware_commands, "local_device", lambda: device)
    code, out, err = run("bench-hardware", "-i", "wgmma.*")
    assert (code, out) == (2, "")
    assert "--instruction 'wgmma.*' fits no measurement on a GPU of lanes; there is mma.m8n8k4, mma." in err
    with pytest.raises(ValueError, match="repeats must be at least 1, not 0"):
        fs.hardware.bench(device=device, repeats=0)


def test_without_a_gpu(run, monkeypatch):
    from floatsim.hardware import device

    def none(*_):
        raise fs.hardware.UnavailableError("no GPU: CuPy is not installed")

    monkeypatch.setattr(device, "Device", none)
    code, out, err = run("bench-hardware")
    assert (code, out) == (2, "")
    assert err.startswith("floatsim: no GPU: CuPy is not installed")
    with pytest.raises(fs.hardware.UnavailableError, match="no GPU"):
        fs.hardware.bench()


def test_events(monkeypatch):
    """CUDA events of CuPy surround each call except the first, which warms up."""
    from floatsim.hardware.compile import cupy_runtime as cuda

    log = []

    class Event:
        def record(self):
            log.append("record")

        def synchronize(self):
            log.append("synchronize")

    class Here:
        def __enter__(self):
            log.append("enter")

        def __exit__(self, *_):
            log.append("exit")

    class Runtime:
        getDeviceCount = staticmethod(lambda: 1)
        driverGetVersion = staticmethod(lambda: 13000)
        getDeviceProperties = staticmethod(lambda number: {"multiProcessorCount": 132})

    parts = SimpleNamespace(
        runtime=Runtime, Event=Event, Device=lambda number: Here(),
        get_elapsed_time=lambda first, last: np.float32(len(log)),
    )  # fmt: skip
    monkeypatch.setattr(cuda, "_cupy", lambda: SimpleNamespace(cuda=parts))
    found = cuda.Cuda()
    assert found.multiprocessors == 132
    times = found.timed(lambda: log.append("call"), 2)
    assert log == ["enter", "call", *["record", "call", "record", "synchronize"] * 2, "exit"]
    assert times == [6.0, 10.0]


def test_installed_libraries(monkeypatch):
    monkeypatch.setattr(libraries, "_modules", lambda name: [1] if name != "nvmath" else _missing(name))
    assert libraries.installed() == ("cublas", "cupy")


def _missing(name):
    raise fs.hardware.UnavailableError(name)
