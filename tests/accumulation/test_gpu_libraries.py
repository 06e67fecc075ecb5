"""`fs.library_sum` on a GPU: the rules, what they refuse, and what an H200 returned.

Some recorded products are in data/silicon/nvidia-h200/library-products.zip, with their inputs. The others are tested if
FLOATSIM_H200 names their folder.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import floatsim as fs
from floatsim.accumulation.gpu_libraries import FUNCTIONS, RULES, kernel_table
from tests import marks
from tests.accumulation import recorded_products as recorded
from tests.accumulation.recorded_products import Call, needs_recordings

SAMPLE = Path(__file__).parents[2] / "data" / "silicon" / "nvidia-h200" / "library-products.zip"
WMMA = "cutlass_80_wmma_tensorop_f16_s161616gemm_f16_32x32_128x2_nn_align2"
SPLIT = "nvjet_sm90_hsh_64x32_64x16_2x4_h_bz_splitK_NNT"
REDUCE = "void cublasLt::splitKreduce_kernel<32, 16, int, {}, __half, float, __half, true, false, false>(...)"
XMMA = "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4_execute"


def text(kernel, shape=(64, 64, 4096), dtype="float16", grid=(1, 1, 1), function="torch.matmul", **more):
    (region,) = fs.library_sum(function, dtype, shape, device="h200", kernel=kernel, grid=grid, **more)
    return str(region.accumulate)


# -- rules -------------------------------------------------------------------------------------------------------------


def test_one_rule_for_each_example():
    for rule in RULES:
        for example in rule.examples:
            assert next(r for r in RULES if re.search(r.pattern, example)) is rule, example
    assert len({rule.name for rule in RULES}) == len(RULES)
    assert all((rule.build is None) == (rule.refused is not None) for rule in RULES)


@pytest.mark.parametrize(("kernel", "call", "description"), [
    ("nvjet_sm90_tst_64x8_64x16_2x4_h_bz_NNT", {"dtype": "bfloat16", "grid": None}, "tensorcore(hopper)"),
    ([SPLIT, REDUCE.format("float")], {"grid": (8, 3, 1), "shape": (64, 64, 4096)},
     "splitk(3, tensorcore(hopper), sequential(fp32), tile=64)"),
    (WMMA, {"grid": (2, 2, 1), "shape": (64, 64, 300)}, "residue(tensorcore(hopper), 128)"),
    ([WMMA, REDUCE.format("float")], {"grid": (2, 2, 4), "shape": (64, 64, 2048)},
     "splitk(4, residue(tensorcore(hopper), 128), sequential(fp32), tile=64)"),
    ([WMMA, REDUCE.format("__half")], {"grid": (2, 2, 4), "shape": (64, 64, 2050)},
     "splitk(4, residue(tensorcore(hopper), 128), converted(fp16, sequential(fp32)), tile=8)"),
    ([WMMA.replace("_nn_", "_nt_"), REDUCE.format("float")], {"grid": (2, 2, 4), "shape": (64, 64, 2048)},
     "splitk(4, residue(tensorcore(hopper), 128), sequential(fp32), tile=8)"),
    ("cutlass_75_tensorop_s1688gemm_bf16_64x64_nn_align1", {"dtype": "bfloat16"},
     "residue(tensorcore(hopper, mma.m16n8k8), 32)"),
    ("cutlass_80_tensorop_s1688gemm_64x64_16x6_nn_align4", {"dtype": "float32"},
     "converted(tf32, residue(tensorcore(hopper), 16))"),
    ("cutlass_80_tensorop_h16816gemm_64x64_64x6_nn_align8", {}, "residue(tensorcore(hopper, output=fp16), 64)"),
    ("cutlass_80_simt_sgemm_64x64_8x5_nn_align1", {"dtype": "float32"}, "sequential(fp32, fused)"),
    ("cutlass_80_tensorop_d884gemm_32x32_16x5_nn_align1", {"dtype": "float64", "grid": (2, 2, 1)},
     "sequential(fp64, fused)"),
    ([XMMA + "_kernel__5x_cublas", XMMA + "_split_k_kernel__5x_cublas"], {"dtype": "float32", "grid": (2, 2, 4)},
     "splitk(4, sequential(fp32, fused), sequential(fp32), tile=8, dealt)"),
    (["Memset (Device)", XMMA + "_kernel__5x_cublas"], {"dtype": "float32", "grid": (2, 2, 16), "shape": (64, 64, 100)},
     "splitk(16, sequential(fp32, fused), sequential(fp32), tile=8, dealt)"),
    (["Memset (Device)", "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32_warpgroupsize1x1x1_execute_segment_"
      "k_off_kernel__5x_cublas"], {"dtype": "float32", "grid": (132, 1, 1), "shape": (4096, 8192, 64)},
     "converted(tf32, tensorcore(hopper))"),
    ("void gemmSN_NN_kernel<float, 128, 2, 4, 8, 4, 4, false, ", {"dtype": "float32"},
     "splitk(2, sequential(fp32, fused), sequential(fp32))"),
    ("void gemmSN_TN_kernel<float, 128, 16, 2, 4, 8, 9, false, ", {"dtype": "float32"},
     "strided(sequential(fp32, fused), 16, sequential(fp32))"),
])  # fmt: skip
def test_descriptions(kernel, call, description):
    assert text(kernel, **call) == description


def test_batches_have_their_matrices_in_z():
    assert text(WMMA, (5, 64, 64, 300), grid=(2, 2, 5)) == "residue(tensorcore(hopper), 128)"
    assert text("nvjet_sm90_hsh_64x8_64x16_2x4_h_bz_NNT", (5, 64, 64, 64), grid=(1, 8, 5)) == "tensorcore(hopper)"
    persistent = (
        "sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize64x64x32_warpgroupsize1x1x1_execute_segment_k_off_kernel"
    )
    tf32 = text(persistent, (4, 64, 64, 4096), "float32", grid=(4, 1, 1), function="torch.bmm")
    assert tf32 == "converted(tf32, tensorcore(hopper))"
    with pytest.raises(fs.NotDescribedError, match="grid z = 4 of a batch of 5 matrices"):
        text(WMMA, (5, 64, 64, 300), grid=(2, 2, 4))


@pytest.mark.parametrize(("function", "kernel", "call", "description"), [
    ("torch.nn.functional.linear", "nvjet_sm90_tst_64x8_64x16_2x4_h_bz_NNT", {"dtype": "bfloat16"},
     "epilogue(tensorcore(hopper), fp32)"),
    ("torch.addmm", "nvjet_sm90_hsh_64x8_64x16_2x4_h_badd_NNT", {}, "epilogue(tensorcore(hopper), fp32, through=fp16)"),
    ("torch.addmm", "nvjet_sm90_hsh_64x8_64x16_2x4_h_bx_NNT", {}, "epilogue(tensorcore(hopper), fp32)"),
    ("torch.addmm", [SPLIT, REDUCE.format("float")], {"grid": (8, 3, 1)},
     "epilogue(splitk(3, tensorcore(hopper), sequential(fp32), tile=64), fp32, fused=c)"),
    ("torch._addmm_activation", WMMA, {"shape": (32, 32, 64)},
     "epilogue(residue(tensorcore(hopper), 128), fp32, activation=relu)"),
    ("torch.addmm", "cutlass_80_tensorop_d884gemm_32x32_16x5_nn_align1", {"dtype": "float64", "grid": (2, 2, 1)},
     "epilogue(sequential(fp64, fused), fp64)"),
])  # fmt: skip
def test_epilogues(function, kernel, call, description):
    assert text(kernel, function=function, **call) == description


_FPROP = (
    "sm90_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize64x64x64_warpgroupsize1x1x1_g1_execute_"
    "segment_k_off_kernel__5x_cudnn"
)
_DGRAD = _FPROP.replace("fprop", "dgrad")
_PLANES = "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nchwkcrs_nchw_tilesize32x32x8_stage3"


@pytest.mark.parametrize(("function", "kernel", "call", "description"), [
    ("torch.nn.functional.conv2d", _FPROP, {"shape": (196, 64, 64, 3, 3)}, "permuted(conv-3x3x64, tensorcore(hopper))"),
    ("torch.nn.functional.conv2d", _FPROP, {"shape": (100, 8, 16, 3, 3)}, "permuted(conv-3x3x16, tensorcore(hopper))"),
    ("torch.nn.grad.conv2d_input", _DGRAD, {"shape": (196, 256, 256, 3, 3)},
     "permuted(conv-3x3x64, tensorcore(hopper))"),  # the kernel's rows descend, as those of a rotated filter
    ("torch.nn.grad.conv2d_input", "cutlass_tensorop_f16_s16816dgrad_optimized_f16_64x64_32x6_nhwc_align8",
     {"shape": (392, 64, 64, 3, 3)}, "permuted(conv-3x3x32-descending, tensorcore(hopper))"),
    ("torch.nn.grad.conv2d_input", _PLANES.replace("fprop", "dgrad"),
     {"shape": (288, 16, 8, 3, 2), "dtype": "float32"}, "permuted(conv-3x2x1-descending, sequential(fp32, fused))"),
    ("torch.nn.functional.conv2d", _PLANES, {"shape": (288, 16, 8, 3, 2), "dtype": "float32"},
     "sequential(fp32, fused)"),
    ("torch.nn.functional.conv2d", "void convolve_common_engine_float_NHWC<float, ",
     {"shape": (196, 64, 4, 7, 7), "dtype": "float32"}, "permuted(conv-7x7x4, sequential(fp32, fused))"),
    ("torch.nn.functional.conv2d", "nvjet_sm90_hsh_64x8_64x16_2x4_h_bz_NNT", {"shape": (256, 128, 64, 1, 1)},
     "tensorcore(hopper)"),
])  # fmt: skip
def test_convolutions(function, kernel, call, description):
    assert text(kernel, function=function, **call) == description


@pytest.mark.parametrize(("kernel", "call", "says"), [
    ("cutlass_90_tensorop_s64x128x16gemm_f16", {}, r"no rule knows it; the nearest recorded kernel is 'cutlass_"),
    ("void cudnn::detail::dgrad_engine<float, 512>", {"dtype": "float32"}, "not deterministic: two calls return"),
    ("void internal::gemvx::kernel<int, float>", {"dtype": "float32"}, "order of its sum is not known; the nearest"),
    ("void gemmSN_TN_kernel<float, 128, 16, 2, 4, 2, 2, true, ", {"dtype": "float32"}, "is not known"),
    (WMMA, {"grid": None}, r"pass grid=\(x, y, z\)"),
    (WMMA, {"grid": (1, 2, 1)}, "grid .1, 2, 1. does not fit a result of 64 x 64: it has 4 tiles of 32 x 32"),
    (WMMA, {"grid": (2, 2, 4)}, "grid z = 4 without a splitKreduce_kernel: a serial split of K"),
    ([SPLIT, REDUCE.format("float")], {"grid": (7, 1, 1)}, "7 blocks are no multiple of 8 tiles"),
    (SPLIT, {"grid": (8, 3, 1)}, "pass the names of all kernels of the call"),
    ([SPLIT, REDUCE.format("__half")], {"grid": (8, 3, 1)}, "partial sums in FP16 of this kernel were not recorded"),
    (["Memset (Device)", XMMA + "_kernel"], {"dtype": "float32", "grid": (2, 2, 4)}, "after a Memset the kernel adds"),
    (XMMA + "_kernel", {"dtype": "float32", "grid": (2, 2, 4)}, "pass the names of all kernels of the call"),
    ("sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize32x32x64_stage3_execute_segment_k_on_kernel",
     {"dtype": "float32", "grid": (2, 2, 1)}, "segment_k_on splits K"),
    (WMMA, {"dtype": "bfloat16", "grid": (2, 2, 1)}, "the kernel multiplies float16"),
    ("nvjet_sm90_tst_64x8_64x16_2x4_h_bz_NNT", {}, "the kernel multiplies bfloat16"),
    (WMMA, {"dtype": "float16", "shape": (64, 64)}, r"is not \(M, N, K\)"),
    (WMMA, {"dtype": "int8"}, "dtype='int8' is not described"),
    ([WMMA, WMMA], {}, "must have one kernel that multiplies"),
    (["void scal_kernel<float>", "void sgemm_largek_lds64<true>", "void cublasLt::epilogue::impl::globalKernel<8>"],
     {"dtype": "float32"}, "scal_kernel.* is not described: the order of its sum is not known"),
    (WMMA, {"function": "torch._addmm_activation(use_gelu=True)"}, "GELU needs the bits of CUDA's own erff"),
    (WMMA, {"function": "torch.nn.grad.conv2d_weight"}, "the orders of gradients of weights are not known"),
    ("void cudnn::winograd_nonfused::winogradForwardData4x4<float, __nv_bfloat16>",
     {"function": "torch.nn.functional.conv2d", "dtype": "bfloat16", "shape": (196, 64, 64, 3, 3)},
     "winograd transforms its operands, whose roundings are not known"),
    (["Memset (Device)"], {}, "these are: none"),
    (WMMA, {"function": "torch.matmull"}, "did you mean 'torch.matmul'"),
    (WMMA, {"version": "2.9.0"}, "version='2.9.0' of torch.matmul on device='h200' is not described"),
    (_FPROP, {"function": "torch.nn.functional.conv2d", "shape": (196, 64, 100, 3, 3)}, "only whole tiles"),
    (_FPROP, {}, "is not that of a kernel for convolution"),
    (_FPROP, {"function": "torch.nn.grad.conv2d_input", "shape": (196, 64, 64, 3, 3)},
     "a forward kernel that computes a gradient was not recorded"),
    (_FPROP.replace("k_off", "k_on"), {"function": "torch.nn.functional.conv2d", "shape": (196, 64, 64, 3, 3)},
     "segment_k_on splits K"),
    (_FPROP.replace("f16f16_f16f32", "bf16bf16_bf16f32"), {"dtype": "bfloat16"}, "no rule knows it"),
    (WMMA, {"function": "torch.nn.functional.conv2d", "shape": (32, 32, 64, 3, 3)}, "is not that of a kernel for CUTL"),
])  # fmt: skip
def test_what_is_refused(kernel, call, says):
    with pytest.raises(fs.NotDescribedError, match=says):
        text(kernel, **call)


def test_bad_arguments():
    for keywords, error, says in [
        ({"device": "h100", "kernel": WMMA}, fs.NotDescribedError, "device='h100' is not described; described: h200"),
        ({"kernel": WMMA}, TypeError, "kernel=, grid=, .* belong to a GPU"),
        ({"layout": "nt"}, TypeError, "kernel=, grid=, .* belong to a GPU"),
        ({"device": "h200", "grid": (1, 1, 1)}, TypeError, "grid= belongs to a kernel"),
        ({"device": "h200", "kernel": WMMA, "layout": "nt"}, TypeError, "omit them, or kernel="),
        ({"device": "h200", "kernel": WMMA, "cpu": "zen4"}, TypeError, "belong to a CPU"),
        ({"device": "h200", "kernel": WMMA, "grid": (0, 1, 1)}, ValueError, "grid must be one to three numbers"),
    ]:
        with pytest.raises(error, match=says):
            fs.library_sum("torch.matmul", "float16", (64, 64, 64), **keywords)
    assert text(WMMA, (32, 32, 64), grid=(1,)) == text(WMMA, (32, 32, 64), grid=[1, 1])


def test_describe_kernel():
    found = fs.hardware.describe_kernel(WMMA)
    assert found.described and found.rule == "CUTLASS, tensor cores" and "the grid" in found.needs
    assert "755 of 755" in str(found) and "cuBLAS 13.1.0.3" in str(found)
    refused = fs.hardware.describe_kernel("void cudnn::detail::dgrad_engine<float>(int)")
    assert not refused.described and "refused   it is not deterministic" in str(refused)
    with pytest.raises(fs.NotDescribedError, match="nearest recorded kernel is 'nvjet_sm90_hsh"):
        fs.hardware.describe_kernel("nvjet_sm100_hsh_64x8_64x16_2x4_h_bz_NNT")


def test_the_page_has_the_rules():
    page = (Path(__file__).parents[2] / "docs" / "gpu-libraries.md").read_text(encoding="utf-8")
    assert kernel_table() in page
    assert all(f"`{name}`" in page for name in FUNCTIONS)


# -- recorded products, with their inputs ------------------------------------------------------------------------------


def _sample():
    with np.load(SAMPLE) as arrays:
        return {name: arrays[name] for name in arrays.files}


@marks.needs_sample(SAMPLE)
def test_recorded_products():
    """Every rule for products, on products that an H200 returned: all bits."""
    arrays = _sample()
    notes = json.loads(str(arrays["meta"]))
    rules = Counter()
    for key, note in notes.items():
        call = Call(key, note["format"], *note["shape"], note["kernels"])
        accumulate = recorded.described(call)
        fmt = recorded.result_format(call.fmt)
        a, b = (fs.from_codes(arrays[f"{side}|{key}"], fmt) for side in "ab")
        found = fs.matmul(a, b, accumulate=accumulate, format=fmt)
        assert np.array_equal(recorded.codes_of(found), arrays[f"c|{key}"]), (key, str(accumulate))
        rules[fs.hardware.describe_kernel(note["product"]).rule] += 1
    assert len(notes) >= 60 and len(rules) >= 11, rules
    assert SAMPLE.stat().st_size < 5_000_000


# -- all recordings ----------------------------------------------------------------------------------------------------


@needs_recordings
@pytest.mark.full
@pytest.mark.parametrize("fmt", ["fp16", "bf16", "tf32", "fp32", "fp64"])
def test_the_sweep(fmt):
    """2,645 products of 158 kernels: 2,636 described, all of them equal."""
    arrays, meta = recorded.recording("kernels/sweep")
    found = Counter(recorded.outcome(call, arrays) for call in recorded.calls(meta) if call.fmt == fmt)
    due = {
        "fp16": (572, 0), "bf16": (572, 0), "tf32": (572, 0), "fp32": (567, 5), "fp64": (353, 4)
    }[fmt]  # fmt: skip
    assert (found["equal"], found["refused"], found["wrong"]) == (*due, 0)


@needs_recordings
@pytest.mark.full
def test_the_holdout():
    """700 random products in four layouts, at both ends of each result: none is wrong."""
    arrays, meta = recorded.recording("training/holdout")
    found = Counter(recorded.outcome(call, arrays, seed=77, ends=True) for call in recorded.calls(meta))
    assert found["wrong"] == 0 and found["equal"] >= 671 and sum(found.values()) == 700, found


@needs_recordings
@pytest.mark.full
def test_fp16_accumulation():
    arrays, meta = recorded.recording("kernels/fp16acc")
    found = Counter()
    for key, kernels in meta["kernels"].items():
        call = Call(key, "fp16", *map(int, key.split("x")), kernels)
        found[recorded.outcome(call, arrays)] += 1
    assert (found["equal"], found["wrong"]) == (35, 0), found


@needs_recordings
@pytest.mark.full
def test_cupy():
    arrays, meta = recorded.recording("kernels/cupy_mm")
    found = Counter()
    for key, kernels in meta["kernels"].items():
        fmt, shape = key.split("|")
        found[recorded.outcome(Call(key, fmt, *map(int, shape.split("x")), kernels), arrays)] += 1
    assert (found["equal"], found["wrong"]) == (16, 0), found


CONVOLUTIONS = {
    "3x3": ((2, 16, 12, 12), (8, 16, 3, 3), 1, 0), "3x3b": ((2, 64, 14, 14), (64, 64, 3, 3), 1, 1),
    "1x1": ((2, 64, 16, 16), (128, 64, 1, 1), 1, 0), "rgb": ((2, 4, 32, 32), (32, 4, 7, 7), 2, 3),
    "256": ((1, 256, 14, 14), (256, 256, 3, 3), 1, 1),
}  # fmt: skip
"""The shapes of the images and of the filters, the stride and the padding."""


def _halved(x, axis, sign):
    """The second half along an axis becomes the first one, or its negative: the exact results are zero."""
    first, second = np.split(x, 2, axis)
    second[...] = first * sign


def convolution_operands(key):
    """(function, shape, operands) of a recorded pass: the images x, the filters w and the gradient g."""
    what, fmt, tag, _ = key.split("|")
    images, filters, stride, padding = CONVOLUTIONS[tag]
    rng = np.random.default_rng([21, *images, *filters])
    rows, columns = filters[2:]
    heights = [(n + 2 * padding - size) // stride + 1 for n, size in zip(images[2:], filters[2:], strict=True)]
    shapes = images, filters, (images[0], filters[0], *heights)
    of = {"tf32": "fp32"}.get(fmt, fmt)
    x, w, g = (
        fs.array(rng.standard_normal(shape).astype(np.float32), of).values.astype(np.float32) for shape in shapes
    )
    for array, axis, sign in ((x, 1, -1), (w, 1, 1)) if what == "y" else ((g, 1, -1), (w, 0, 1)):
        _halved(array, axis, sign)
    operands = {"x": fs.array(x, of), "w": fs.array(w, of), "g": fs.array(g, of)}
    if what == "y":
        shape = (images[0] * heights[0] * heights[1], filters[0], filters[1], rows, columns)
        return "torch.nn.functional.conv2d", shape, operands
    shape = (images[0] * images[2] * images[3], filters[1], filters[0], rows, columns)
    return "torch.nn.grad.conv2d_input", shape, operands


def _pass_of_operators(key, operands, accumulate):
    """A recorded pass by `fs.operators` under a kernel's order."""
    x, w, g = (operands[name] for name in "xwg")
    *_, stride, padding = CONVOLUTIONS[key.split("|")[2]]
    places = {"stride": stride, "padding": padding}
    if key.startswith("y|"):
        return fs.operators.conv2d(x, w, **places, accumulations={"product": accumulate})
    return fs.operators.conv2d_backward(g, x, w, **places, accumulations={"input_gradient": accumulate}).x


EQUAL_PASSES = 38
"""The passes of cuDNN whose order is described: those with 100 % in the analysis of the recordings."""


@needs_recordings
@pytest.mark.full
def test_convolutions_of_cudnn():
    """Forward passes and gradients of the input, by `fs.operators` under the kernel's order: all recorded bits.

    Orders that are not known are refused: BF16, winograd, parts of K, dgrad_engine.
    """
    arrays, meta = recorded.recording("kernels/convs")
    found, told = Counter(), {}
    for key, kernels in meta["kernels"].items():
        what, fmt, tag, _ = key.split("|")
        if what not in ("y", "dx") or tag not in CONVOLUTIONS or (what, tag) == ("dx", "rgb"):
            continue
        function, shape, operands = convolution_operands(key)
        launched = [(n, g) for n, g, *_ in kernels if g and not re.search("nchwToNhwc|nhwcToNchw|Padding", n)]
        name, grid = launched[-1]  # a gradient has the kernels of the forward pass before its own
        try:
            (region,) = fs.library_sum(function, recorded.DTYPES[fmt], shape, device="h200", kernel=name, grid=grid)
        except fs.NotDescribedError as error:
            found["refused"] += 1
            told[key] = str(error)
            continue
        due = arrays[key]
        same = np.array_equal(
            recorded.codes_of(_pass_of_operators(key, operands, region.accumulate)).reshape(-1)[: len(due)], due
        )
        found["equal" if same else "wrong"] += 1
        told[key] = f"{same} {region.accumulate} {launched[-1][0][:90]}"
    assert found["wrong"] == 0 and found["equal"] == EQUAL_PASSES, (found, told)


@needs_recordings
@pytest.mark.full
def test_gradients_of_weights_are_refused():
    """No order of a gradient of weights is known: each recorded kernel is refused."""
    _, meta = recorded.recording("kernels/convs")
    refused = 0
    for key, kernels in meta["kernels"].items():
        what, fmt, tag, _ = key.split("|")
        if what != "dw" or tag not in CONVOLUTIONS:
            continue
        launched = [(n, g) for n, g, *_ in kernels if g]
        images, filters, *_ = CONVOLUTIONS[tag]
        shape = (filters[0], filters[1] * filters[2] * filters[3], images[0] * images[2] * images[3])
        with pytest.raises(fs.NotDescribedError, match=r"conv2d_weight.*orders of gradients of weights are not"):
            fs.library_sum(
                "torch.nn.grad.conv2d_weight", recorded.DTYPES[fmt], shape, device="h200",
                kernel=[name for name, _ in launched], grid=launched[-1][1],
            )  # fmt: skip
        refused += 1
    assert refused == 40


_EPILOGUES = {
    "linear": ("torch.nn.functional.linear", "bias"), "addmm": ("torch.addmm", "bias"),
    "addmm-full": ("torch.addmm", "c"), "addmm-ab": ("torch.addmm", "c"), "baddbmm": ("torch.baddbmm", "c"),
    "relu": ("torch._addmm_activation", "bias"),
}  # fmt: skip


def _added(op, fmt, m, k, n):
    """The bias or the matrix c of a recorded call, for its first rows and columns."""
    of = {"tf32": "fp32"}.get(fmt, fmt)
    if _EPILOGUES[op][1] == "bias":
        bias = fs.array(recorded.normal(1, m, n, 5, "normal")[1][0], of).values * 2.0**-8
        return fs.array(bias, of)[: recorded.COLUMNS]
    a, b = (fs.array(x, of).values.astype(np.float32) for x in recorded.normal(m, 8, n, 6, "normal"))
    c = fs.matmul(a, b, accumulate="sequential(fp32, fused)")  # as the CPU of the machine with the GPU computed it
    return fs.array(c * np.float32(2.0**-8), of)[: recorded.ROWS, : recorded.COLUMNS]


@needs_recordings
@pytest.mark.full
@pytest.mark.parametrize("fmt", ["fp16", "bf16", "tf32", "fp32"])
def test_epilogues_of_cublas(fmt):
    """Plain products, batches, biases, matrices c, alpha and beta, relu.

    c of N = 10 came from another CPU's product.
    """
    arrays, meta = recorded.recording("kernels/epilogues")
    found, told = Counter(), {}
    for key, kernels in meta["kernels"].items():
        op, of, shape, *_ = key.split("|")
        m, k, n = map(int, shape.split("x"))
        plain = op in ("mm", "linear-nobias", "mm-offset1", "mm-offset2", "mm-offset4") or op.startswith("bmm")
        if of != fmt or key not in arrays.files or not (plain or op in _EPILOGUES):
            continue
        if op in ("addmm-full", "addmm-ab", "baddbmm") and n == 10:
            continue
        call = Call(key, fmt, m, k, n, kernels)
        batch = {"bmm4": (4,), "bmm64": (64,), "baddbmm": (4,)}.get(op, ())
        try:
            (region,) = fs.library_sum(
                _EPILOGUES.get(op, ("torch.matmul",))[0], recorded.DTYPES[fmt], (*batch, m, n, k), device="h200",
                kernel=call.names, grid=call.grid,
            )  # fmt: skip
        except fs.NotDescribedError as error:
            found[op, "refused"] += 1
            told[key] = str(error)
            continue
        a, b = recorded.operands(m, k, n, fmt)
        c = None if plain else _added(op, fmt, m, k, n)
        factors = {"alpha": 0.7, "beta": 0.3} if op == "addmm-ab" else {}
        got = fs.matmul(
            a[: recorded.ROWS], b[:, : recorded.COLUMNS], c, **factors, accumulate=region.accumulate,
            format=recorded.result_format(fmt),
        )  # fmt: skip
        same = np.array_equal(recorded.codes_of(got), arrays[key])
        found[op, "equal" if same else "wrong"] += 1
        if not same:
            told[key] = f"{region.accumulate} {[name[:80] for name in call.names]}"
    assert not any(what == "wrong" for _, what in found), (found, told)
    least = {"fp16": 121, "bf16": 121, "tf32": 116, "fp32": 91}[fmt]
    assert sum(number for (_, what), number in found.items() if what == "equal") >= least, (found, told)


_FMA, _FMA64 = "sequential(fp32, fused)", "sequential(fp64, fused)"
_SEEN = {
    ("fp16", "33x100x17"): "residue(hopper, 64)", ("bf16", "33x100x17"): "splitk(13, hopper, fp32, tile=8)",
    ("half", "64x300x64"): "residue(hopper, 64)", ("half", "64x4096x64"): "splitk(3, hopper, fp32, tile=64)",
    ("half", "8x8192x128"): "splitk(6, hopper, fp32, tile=64)",
    ("half", "1x4096x256"): "splitk(3, hopper, fp32, tile=64)",
    ("tf32", "64x64x64"): "blocked(hopper, 32, fp32)", ("tf32", "16x1024x16"): "splitk(16, hopper, fp32)",
    ("tf32", "64x4096x64"): "splitk(32, hopper, fp32)", ("tf32", "256x512x256"): "splitk(8, hopper, fp32)",
    ("tf32", "8x8192x128"): "blocked(hopper, 160, fp32)", ("tf32", "64x300x64"): "blocked(hopper, 16, fp32)",
    ("tf32", "64x48x64"): "blocked(hopper, 4, fp32)", ("tf32", "64x16x64"): "blocked(hopper, 4, fp32)",
    ("fp32", "16x1024x16"): f"splitk(32, {_FMA}, fp32)", ("fp32", "64x4096x64"): f"splitk(64, {_FMA}, fp32)",
    ("fp32", "8x8192x128"): f"blocked({_FMA}, 64, fp32)", ("fp32", "64x300x64"): f"blocked({_FMA}, 20, fp32)",
    ("fp32", "64x48x64"): f"blocked({_FMA}, 4, fp32)", ("fp32", "64x16x64"): f"blocked({_FMA}, 4, fp32)",
    ("fp32", "33x100x17"): f"blocked({_FMA}, 28, fp32)",
    ("fp32", "1x4096x256"): f"strided({_FMA}, 32, pairwise(fp32, halving))",
    ("fp32", "256x512x256"): f"splitk(8, {_FMA}, fp32, tile=8, dealt)",
    ("fp32", "512x512x512"): f"splitk(4, {_FMA}, fp32, tile=8, dealt)",
    ("fp64", "16x1024x16"): f"splitk(16, {_FMA64}, fp64)",
    ("fp64", "1x4096x256"): f"splitk(32, {_FMA64}, pairwise(fp64, halving), tile=32, dealt)",
}  # fmt: skip
"""What torch.matmul computed for shapes of the first capture, which has no names of kernels. Others are one chain."""


def _seen(fmt, shape):
    if fmt in ("fp16", "bf16"):
        return _SEEN.get((fmt, shape)) or _SEEN.get(("half", shape), "hopper")
    if fmt == "tf32":
        if shape == "1x4096x256":  # runs an FP32 kernel
            return _SEEN["fp32", shape]
        return f"converted(tf32, {_SEEN.get((fmt, shape), 'hopper')})"
    return _SEEN.get((fmt, shape), _FMA if fmt == "fp32" else _FMA64)


@needs_recordings
@pytest.mark.full
def test_the_first_capture():
    """Products without the names of their kernels: each has a description."""
    arrays, _ = recorded.recording("mm")
    wrong, right = [], 0
    for key in (key for key in arrays.files if key.startswith(("mm|", "mm-fp16acc"))):
        kind, fmt, *rest = key.split("|")
        if kind == "mm-fp16acc":
            k = int(fmt)
            unit = "tensorcore(hopper, output=fp16)"
            accumulate = {64: unit, 512: f"blocked({unit}, 64, fp16)", 4096: f"blocked({unit}, 192, fp16)"}[k]
            fmt, shape, inputs = "fp16", f"64x{k}x64", "cancel"
        else:
            shape, inputs = rest[:2]
            fmt = "tf32" if fmt == "fp32-tf32" else fmt
            accumulate = _seen(fmt, shape)
        a, b = recorded.operands(*map(int, shape.split("x")), fmt, kind=inputs)
        found = fs.matmul(a[:64], b[:, :64], accumulate=accumulate, format=recorded.result_format(fmt))
        if np.array_equal(recorded.codes_of(found), arrays[key]):
            right += 1
        else:
            wrong.append(key)
    assert right >= 175 and not wrong, wrong


@needs_recordings
@pytest.mark.full
def test_fp8_products():
    """360 products in FP32: fast and promoted, with split-K from K = 8192 on."""
    arrays, meta = recorded.recording("kernels/scaled2")
    found, told = Counter(), []
    for key, kernels in meta["kernels"].items():
        a_format, *rest = key.split("|")
        if a_format not in ("e4m3", "e5m2"):
            continue
        b_format, shape, fast = rest
        m, k, n = map(int, shape.split("x"))
        call = Call(key, a_format, m, k, n, kernels)
        try:
            accumulate = recorded.described(call, "torch._scaled_mm")
        except fs.NotDescribedError as error:
            found[fast, "refused"] += 1
            told.append(str(error))
            continue
        a, b = recorded.operands(m, k, n, a_format, b_format)
        y = fs.scaled_mm(
            a[: recorded.ROWS], b[:, : recorded.COLUMNS], 1, 1, format="fp32", accumulate=accumulate,
            use_fast_accum=True,
        )  # fmt: skip
        found[fast, "equal" if np.array_equal(y.codes, arrays[key]) else "wrong"] += 1
    assert found == {("fast=True", "equal"): 180, ("fast=False", "equal"): 180}, (found, told[:3])
