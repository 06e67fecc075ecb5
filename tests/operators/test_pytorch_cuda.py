"""The recipe "pytorch-cuda", `fs.library_reduction` and `fs.library_sum` of reductions against an NVIDIA H200."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import floatsim as fs
from floatsim import operators as ops
from floatsim.accumulation.gpu_reductions import REDUCTIONS, reduction_table
from tests import marks
from tests.operators import recorded_rows as recorded

DOCS = Path(__file__).parents[2] / "docs"
FORMATS = ("fp32", "fp16", "bf16")


def shares(archive):
    """By (kind and operator, format): the numbers of differing codes and of all codes."""
    total, different = Counter(), Counter()
    for key in sorted(archive):
        kind, operator, fmt, *_ = key.split("|")
        differ, codes = recorded.differing(archive, key)
        total[f"{kind}|{operator}", fmt] += codes
        different[f"{kind}|{operator}", fmt] += differ
    return different, total


@marks.needs_sample(recorded.SAMPLE)
def test_a_sample_of_an_h200():
    different, total = shares(recorded.sample())
    assert sum(total.values()) > 500_000
    assert not +different


@pytest.mark.skipif(recorded.FOLDER is None, reason="FLOATSIM_H200 names the folder of an H200's recordings")
def test_all_recordings_of_an_h200():
    different, total = shares(recorded.everything())
    assert not +different
    page = (DOCS / "gpu-reductions.md").read_text()
    for (operator, fmt), codes in total.items():
        (row,) = re.findall(rf"\| `{re.escape(operator.replace('|', ' '))}` \|(.*)", page)
        assert f"{codes:,}" in row.split("|")[FORMATS.index(fmt)], (operator, fmt)


def test_the_sample_is_a_part_of_the_recordings():
    if recorded.FOLDER is None:
        pytest.skip("FLOATSIM_H200 names the folder of an H200's recordings")
    everything = recorded.everything()
    for key, codes in recorded.sample().items():
        np.testing.assert_array_equal(codes, everything[key])


# -- rules -------------------------------------------------------------------------------------------------------------


def texts(function, shape, dtype="float32", **keywords):
    return [str(region.accumulate) for region in fs.library_sum(function, dtype, shape, device="h200", **keywords)]


JOIN, HALVES = "blocked(sequential(fp32), {}, {})", "pairwise(fp32, halving)"
WARPS = f"blocked({HALVES}, 32, {HALVES})"


@pytest.mark.parametrize(("function", "shape", "keywords", "expected"), [
    ("torch.sum", (16, 64), {},
     [f"threads(sequential(fp32), 32, {JOIN.format(4, HALVES)}, accumulators=4, threads)"]),
    ("torch.sum", (4096, 128), {},
     [f"threads(sequential(fp32), 32, {JOIN.format(4, HALVES)}, width=4, accumulators=4, threads)"]),
    ("torch.sum", (4096, 128), {"dtype": "bfloat16"},
     [f"threads(sequential(fp32), 16, {JOIN.format(8, HALVES)}, width=8, accumulators=8, threads)"]),
    ("torch.softmax", (4, 1000), {}, [f"threads(sequential(fp32), 32, {HALVES})"]),
    ("torch.softmax", (4, 3), {}, [f"threads(sequential(fp32), 4, {HALVES})"]),
    ("torch.softmax", (4, 4096), {}, [f"threads(sequential(fp32), 1024, {WARPS})"]),
    ("torch.softmax", (4, 10240), {}, [f"threads(sequential(fp32), 1024, {WARPS}, width=4)"]),
    ("torch._softmax_backward_data", (1, 1025), {},
     [f"threads(sequential(fp32), 128, {JOIN.format(32, 'sequential(fp32)')}, width=4, rounds)"]),
    ("torch.native_layer_norm", (4, 1000), {},
     [f"welford(threads(sequential(fp32), 128, {WARPS}, width=4), reciprocal)"]),
    ("torch.native_layer_norm", (4, 1001), {}, [f"welford(threads(sequential(fp32), 512, {WARPS}))"]),
    ("torch.rms_norm", (4, 1000), {}, [f"threads(sequential(fp32, fused), 128, {WARPS}, width=4)"]),
    ("torch.native_layer_norm_backward", (63, 100), {"axis": 0}, ["sequential(fp32)"]),
    ("torch.native_layer_norm_backward", (64, 100), {"axis": 0}, [f"threads(sequential(fp32), 8, {HALVES}, width=8)"]),
    ("torch.sum", (1000, 512), {"axis": 0},
     [f"threads(sequential(fp32), 4, {JOIN.format(4, HALVES)}, accumulators=4, threads)"]),
    ("torch.cumsum", (4, 100), {"dtype": "float16"}, ["sklansky(fp16, 128)"]),
])  # fmt: skip
def test_descriptions(function, shape, keywords, expected):
    assert texts(function, shape, **keywords) == expected


def test_rows_of_different_alignment_have_regions_of_their_own():
    regions = fs.library_sum("torch.sum", "float32", (10, 1025), device="h200")
    assert [region.rows for region in regions] == [slice(k, 10, 4) for k in range(4)]
    assert [region.accumulate.shift for region in regions] == [0, 1, 2, 3]
    x = fs.array(np.random.default_rng(0).standard_normal((10, 1025)).astype(np.float32), "fp32")
    whole = fs.library_reduction("torch.sum", x, device="h200")
    for region in regions:
        part = fs.sum(x[region.rows], -1, accumulate=region.accumulate)
        np.testing.assert_array_equal(whole[region.rows].codes, part.codes)


@pytest.mark.parametrize(("keywords", "message"), [
    ({"device": "h100"}, "described: h200"), ({"version": "2.10.0"}, "described: 2.11.0"),
    ({"dtype": "float64"}, "described: float32, float16, bfloat16"), ({"result": "float16"}, "described: float32"),
    ({"shape": (2, 3, 4)}, r"\(n,\) and \(rows, columns\)"), ({"axis": 0}, "0 of shape"),
    ({"function": "torch.softmax", "axis": 0}, "along columns was not compared"),
    ({"shape": (2, 1_000_004), "strict": True}, "1000004 terms along rows was not compared"),
    ({"function": "torch.softmax", "shape": (4, 8193), "dtype": "bfloat16", "strict": True}, "in bfloat16 to 8192"),
    ({"function": "torch.cumsum", "shape": (8,)}, "single row"),
])  # fmt: skip
def test_what_was_not_recorded_is_refused(keywords, message):
    call = {"function": "torch.sum", "dtype": "float32", "shape": (4, 100), "device": "h200"} | keywords
    if keywords == {"axis": 0}:
        call["function"], message = "torch.mean", "along columns was not compared"
    with pytest.raises(fs.NotDescribedError, match=message):
        fs.library_sum(**call)


def test_wide_rows_that_were_recorded():
    """Softmax of 50,257 terms in FP16, and in BF16 the sum of as many."""
    for function, dtype in (("torch.softmax", "float16"), ("torch.sum", "bfloat16")):
        assert fs.library_sum(function, dtype, (4, 50_257), device="h200", strict=True)


def test_arguments_of_other_devices():
    with pytest.raises(TypeError, match="belong to reductions on a GPU"):
        fs.library_sum("numpy.sum", "float32", 8, axis=0)
    with pytest.raises(TypeError, match="follows from the shape"):
        fs.library_sum("torch.sum", "float32", (4, 8), device="h200", cpu="zen4")
    assert fs.library_sum("torch.sum", "float32", 8, cpu="intel-amx")  # on a CPU as before


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda x: fs.library_reduction("torch.sun", x, device="h200"), ValueError, "did you mean 'torch.sum'"),
    (lambda x: fs.library_reduction("torch.var", x, 0, device="h200"), fs.NotDescribedError, "the last axis"),
    (lambda x: fs.library_reduction("torch.sum", fs.convert(x, "e4m3"), device="h200"), fs.NotDescribedError, "E4M3"),
    (lambda x: fs.library_reduction("torch.sum", x, device="a100"), fs.NotDescribedError, "described: h200"),
])  # fmt: skip
def test_wrong_reductions(call, error, message):
    with pytest.raises(error, match=message):
        call(fs.array(np.ones((2, 3)), "fp32"))


def test_shapes_of_reductions():
    x = np.random.default_rng(1).standard_normal((2, 3, 8)).astype(np.float32)
    found = fs.library_reduction("torch.mean", x, device="h200")
    assert isinstance(found, np.ndarray)
    assert found.shape == (2, 3)
    rows = fs.library_reduction("torch.mean", x.reshape(6, 8), device="h200")
    np.testing.assert_array_equal(found.reshape(-1), rows)
    assert fs.library_reduction("torch.cumsum", x, device="h200").shape == x.shape
    assert fs.library_reduction("torch.sum", x, None, device="h200").shape == ()


def test_operators_on_stacks_of_rows():
    x = recorded.rounded(np.random.default_rng(2).standard_normal((2, 3, 1025)), "fp16")
    flat = x.reshape(6, 1025)
    for operator in (ops.softmax, ops.layer_norm, ops.rms_norm):
        found = operator(x, recipe="pytorch-cuda")
        np.testing.assert_array_equal(found.codes.reshape(6, -1), operator(flat, recipe="pytorch-cuda").codes)


def test_formats_that_pytorch_does_not_compute_in_are_converted_to_fp32():
    x = fs.array(np.linspace(-2, 2, 33), "e4m3")
    found = ops.softmax(x, recipe="pytorch-cuda")
    wide = ops.softmax(fs.convert(x, "fp32"), recipe="pytorch-cuda")
    np.testing.assert_array_equal(found.codes, fs.convert(wide, "e4m3").codes)


def test_every_reduction_is_in_the_documentation():
    assert reduction_table() in (DOCS / "gpu-reductions.md").read_text()
    assert len({row.function for row in REDUCTIONS}) == len(REDUCTIONS)
