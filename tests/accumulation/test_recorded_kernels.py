"""The table of kernels by recorded shapes: `fs.hardware.recorded_kernels`, and `fs.library_sum` without a kernel."""

from __future__ import annotations

import gzip
import importlib.util
import json
import re
from pathlib import Path

import pytest

import floatsim as fs
from floatsim import datasets
from floatsim.accumulation.recorded_kernels import SETTINGS
from tests.accumulation import recorded_products as recorded
from tests.accumulation.recorded_products import needs_recordings

ROOT = Path(__file__).parents[2]


def found(function, dtype, shape, **more):
    return fs.hardware.recorded_kernels(function, dtype, shape, device="h200", **more)


def text(function, dtype, shape, **more):
    (region,) = fs.library_sum(function, dtype, shape, device="h200", **more)
    return f"{region.accumulate} to {region.format.name}"


@pytest.mark.parametrize(("call", "more", "description"), [
    (("torch.matmul", "float16", (64, 64, 300)), {},
     "residue(tensorcore(hopper), 128) to FP16"),
    (("torch.matmul", "float16", (64, 64, 4096)), {},
     "splitk(3, tensorcore(hopper), sequential(fp32), tile=64) to FP16"),
    (("torch.matmul", "float32", (64, 64, 300)), {"version": "2.11.0+cu130"},
     "splitk(15, sequential(fp32, fused), sequential(fp32), tile=4) to FP32"),
    (("torch.matmul", "float32", (64, 64, 300)), {"settings": ["allow_tf32"]},
     "converted(tf32, splitk(19, residue(tensorcore(hopper), 16), sequential(fp32), tile=4)) to FP32"),
    (("torch.matmul", "float16", (64, 64, 300)), {"settings": "allow_fp16_accumulation"},
     "splitk(8, residue(tensorcore(hopper, output=fp16), 64), sequential(fp16), tile=8) to FP16"),
    (("torch.bmm", "bfloat16", (4, 64, 64, 256)), {},
     "tensorcore(hopper) to BF16"),
    (("torch.nn.functional.linear", "float16", (64, 64, 256)), {"layout": "nt"},
     "epilogue(tensorcore(hopper), fp32) to FP16"),
    (("torch.addmm", "float16", (64, 64, 256)), {"settings": ("cublaslt",)},
     "epilogue(tensorcore(hopper), fp32, through=fp16) to FP16"),
    (("cupy.matmul", "float64", (64, 64, 300)), {}, "sequential(fp64, fused) to FP64"),
    (("torch._scaled_mm", "float8_e4m3fn", (64, 64, 8192)), {"layout": "nt", "settings": ("use_fast_accum",)},
     "splitk(3, tensorcore(hopper), sequential(fp32), tile=128) to FP32"),
])  # fmt: skip
def test_descriptions_without_a_name(call, more, description):
    assert text(*call, **more) == description
    by_name = found(*call, **more)
    kernel = {"kernel": by_name.names, "grid": by_name.grid, "result": more.get("result")}
    if call[0] == "torch._scaled_mm":
        kernel["result"] = "float32"
    assert text(*call, **kernel) == description


@pytest.mark.parametrize(("call", "more", "says"), [
    (("torch.matmul", "float16", (64, 66, 4097)), {}, r"the nearest recorded shapes are \(64, 64, 4096\)"),
    (("torch.matmul", "float16", (4, 64, 64, 64)), {}, "the nearest recorded shapes are"),
    (("torch.matmul", "float16", (64, 64, 64)), {"version": "2.9.0"}, "version='2.9.0' of torch.matmul .* '2.11.0'"),
    (("torch.matmul", "int8", (64, 64, 64)), {}, "dtype='int8' of torch.matmul on device='h200' was not recorded"),
    (("torch.matmul", "float16", (64, 64, 64)), {"workspace": ":0:0"}, "workspace=':0:0' .*; recorded: 'default'"),
    (("torch.matmul", "float16", (64, 64, 64)), {"settings": ["cublaslt", "allow_tf32"]},
     r"settings=\['allow_tf32', 'cublaslt'\] of torch.matmul .* was not recorded"),
    (("torch.nn.functional.conv2d", "float16", (64, 64, 64, 3, 3)), {}, "fs.hardware.kernels or a profiler shows"),
    (("torch.matmull", "float16", (64, 64, 64)), {}, "function='torch.matmull' .*'torch.matmul'"),
])  # fmt: skip
def test_calls_that_were_not_recorded(call, more, says):
    for function in (found, text):
        with pytest.raises(fs.NotDescribedError, match=says):
            function(*call, **more)


@pytest.mark.parametrize(("more", "says"), [
    ({"layout": "rn"}, "layout='rn' is not known"),
    ({"settings": ["tf32"]}, "settings has 'tf32', which is not known; known are allow_tf32, "),
    ({"settings": [3]}, "settings has 3, which is not known"),
])  # fmt: skip
def test_bad_arguments(more, says):
    with pytest.raises(ValueError, match=says):
        found("torch.matmul", "float16", (64, 64, 64), **more)


def test_a_refused_kernel_is_refused_by_shape():
    with pytest.raises(fs.NotDescribedError, match="the order of its sum is not known"):
        text("cupy.matmul", "float32", (1, 256, 4096))


def test_the_table():
    """Each setting occurs, the file is small, and rules know the kernels that multiply, but two."""
    path = datasets.folder("gpu-kernels") / "h200.json.gz"
    assert path.stat().st_size < 1_000_000
    from floatsim.accumulation.recorded_kernels import _table

    table = _table("h200")
    assert {name for key in table for name in key[4]} == SETTINGS.keys()
    assert sum(map(len, table.values())) >= 3500
    names = {name for shapes in table.values() for launches in shapes.values() for name in launches.names}
    products = {name for name in names if not fs.accumulation.gpu_libraries.is_auxiliary(name)}
    unknown = []
    for name in products:
        try:
            fs.hardware.describe_kernel(name)
        except fs.NotDescribedError:
            unknown.append(name)
    assert len(products) > 450
    assert [name[:22] for name in sorted(unknown)] == ["sm90_xmma_gemm_f16f16_", "void cublasLt::epilogu"]


@pytest.mark.full
def test_most_recorded_calls_are_described():
    """Of 4,192 recorded calls, at least 3,965; each other one is refused with its reason."""
    from floatsim.accumulation.recorded_kernels import _table

    described, refused = 0, []
    for (function, _, dtype, _, settings, _, layout), shapes in _table("h200").items():
        for shape in shapes:
            try:
                text(function, dtype, shape, layout=layout, settings=sorted(settings))
                described += 1
            except fs.NotDescribedError as error:
                refused.append(str(error))
    assert described >= 3965, described
    reasons = "is not known|fixed but not known|no rule knows it|gemmSN_TN|serial split of K|does not fit a result"
    assert all(re.search(reasons, reason) for reason in refused), refused


@needs_recordings
def test_the_table_is_that_of_the_recordings():
    spec = importlib.util.spec_from_file_location("write_kernel_table", ROOT / "tools" / "write_kernel_table.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    path = datasets.folder("gpu-kernels") / "h200.json.gz"
    shipped = json.loads(gzip.decompress(path.read_bytes()))
    assert json.loads(gzip.decompress(tool.content(Path(recorded.FOLDER)))) == shipped
