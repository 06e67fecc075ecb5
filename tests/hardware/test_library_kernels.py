"""`fs.hardware.kernels`: names and grids by torch.profiler, with PyTorch's own traces and with a profiler of a GPU that
is not there."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import floatsim as fs
from floatsim.hardware.library_kernels import launches_of

NAME = "nvjet_sm90_hsh_64x32_64x16_2x4_h_bz_splitK_NNT"
REDUCE = "void cublasLt::splitKreduce_kernel<32, 16, int, float, __half, float, __half, false, true, false>(...)"
EVENTS = [
    {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1.0, "dur": 9.0, "args": {"External id": 1}},
    {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 2.0, "dur": 1.0, "args": {"correlation": 7}},
    {"ph": "X", "cat": "kernel", "name": REDUCE, "ts": 8.5, "dur": 2.0, "args": {"grid": [1, 16, 1]}},
    {"ph": "X", "cat": "gpu_memset", "name": "Memset (Device)", "ts": 4.0, "dur": 1.0, "args": {"bytes": 64}},
    {"ph": "X", "cat": "kernel", "name": NAME, "ts": 5.5, "dur": 3.0, "args": {"grid": [8, 3, 1]}},
    {"ph": "s", "cat": "ac2g", "id": 7, "ts": 2.0},
    {"name": "process_name", "ph": "M", "ts": 0.0, "args": {"name": "python"}},
]  # fmt: skip
"""A call with a split of K, in the form of torch 2.11's traces. Events are not sorted by time."""
LAUNCHES = (("Memset (Device)", None), (NAME, (8, 3, 1)), (REDUCE, (1, 16, 1)))


class FakeTensor:
    def __init__(self, device="cuda:0"):
        self.device, self.is_cuda = device, device.startswith("cuda")


@pytest.fixture
def gpu(monkeypatch):
    """A PyTorch with a GPU whose profiler returns EVENTS if the function runs inside of it."""
    log = []

    @contextlib.contextmanager
    def profile(activities):
        log.append(("profile", activities))
        before = len(log)

        def export(path):
            ran = ("called",) in log[before:]
            Path(path).write_text(json.dumps({"traceEvents": EVENTS if ran else []}), encoding="utf-8")

        yield SimpleNamespace(export_chrome_trace=export)

    torch = SimpleNamespace(
        Tensor=FakeTensor, __version__="2.11.0+cu130", version=SimpleNamespace(cuda="13.0"),
        cuda=SimpleNamespace(is_available=lambda: True, synchronize=lambda: log.append(("synchronize",))),
        profiler=SimpleNamespace(profile=profile, ProfilerActivity=SimpleNamespace(CPU="CPU", CUDA="CUDA")),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "torch", torch)
    return log


def test_names_and_grids_are_recorded(gpu):
    found = fs.hardware.kernels(lambda *tensors: gpu.append(("called",)), FakeTensor(), FakeTensor(), "other")
    assert found.launches == LAUNCHES
    assert found.names == ("Memset (Device)", NAME, REDUCE) and found.grid == (8, 3, 1)
    called, synced = ("called",), ("synchronize",)
    assert gpu == [called, synced, ("profile", ["CPU", "CUDA"]), called, synced]
    assert str(found).splitlines()[1] == f"{NAME}, grid (8, 3, 1)"
    (region,) = fs.library_sum(
        "torch.matmul", "float16", (64, 64, 4096), device="h200", kernel=found.names[1:], grid=found.grid
    )
    assert str(region.accumulate) == "splitk(3, tensorcore(hopper), sequential(fp32), tile=64)"


def test_two_products_have_no_grid():
    two = launches_of({"traceEvents": [*EVENTS, {**EVENTS[4], "ts": 20.0}]})
    assert len(two.launches) == 4 and two.grid is None
    assert launches_of({"traceEvents": []}).names == ()


def test_what_is_refused(gpu, monkeypatch):
    with pytest.raises(ValueError, match=r"tensors\[1\] is on the device cpu; move it to the GPU"):
        fs.hardware.kernels(print, FakeTensor(), FakeTensor("cpu"))
    with pytest.raises(TypeError, match=r"function must be callable, such as torch\.matmul, not 3"):
        fs.hardware.kernels(3)
    assert gpu == []
    torch = sys.modules["torch"]
    torch.cuda.is_available = lambda: False
    with pytest.raises(fs.hardware.UnavailableError, match=r"2\.11\.0\+cu130 has none: it finds no GPU"):
        fs.hardware.kernels(print)
    torch.version.cuda = None
    with pytest.raises(fs.hardware.UnavailableError, match="it was built without CUDA"):
        fs.hardware.kernels(print)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(fs.hardware.UnavailableError, match='PyTorch is not installed: pip install "torch>='):
        fs.hardware.kernels(print)


@pytest.mark.torch
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
def test_torch_traces(tmp_path):
    """A trace of the CPU's profiler has no kernels; with the events of a GPU among its own it has theirs."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    x = torch.ones(8, 8)
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        torch.matmul(x, x)
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    trace = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))
    assert any(event.get("name") == "aten::matmul" for event in trace["traceEvents"])
    assert launches_of(trace).launches == ()
    trace["traceEvents"] += EVENTS
    assert launches_of(trace).launches == LAUNCHES
    if not torch.cuda.is_available():
        with pytest.raises(fs.hardware.UnavailableError, match=r"fs\.hardware\.kernels needs a GPU"):
            fs.hardware.kernels(torch.matmul, x, x)


@pytest.mark.gpu
@pytest.mark.torch
def test_on_a_gpu():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch has no GPU")
    x = torch.ones(64, 64, dtype=torch.float16, device="cuda")
    found = fs.hardware.kernels(torch.matmul, x, x)
    assert found.grid is not None and found.names
