"""`fs.quantize_blocks` compared with published packages, bit for bit, where they are installed.

They are no dependencies of the tests: `pip install -e ".[quantizers]"`. microxcaling is in no package index. Its
repository, github.com/microsoft/microxcaling, has the package mx.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import floatsim as fs
from floatsim.quantization import BNB_FP4, NF4, Scheme
from floatsim.quantization.scheme import largest_number


def matrix(seed: int = 0, shape: tuple[int, int] = (64, 512)) -> np.ndarray:
    """Rows of many magnitudes, whose scales and quotients are normal float32 numbers, and a row of zeros."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape) * np.exp2(rng.integers(-40, 40, (shape[0], 1)))
    x[:, ::7] = np.round(x[:, ::7], 1)
    x[3] = 0
    return x.astype(np.float32)


MX = {"mxfp8": "float8_e4m3fn", "mxfp8_e5m2": "float8_e5m2", "mxfp4": "float4_e2m1fn_x2"}


@pytest.mark.parametrize("rule", ["floor", "rceil", "ceil", "even"])
@pytest.mark.parametrize("scheme", MX)
def test_torchao_mx(scheme, rule):
    torch = pytest.importorskip("torch", reason="compares with torchao")
    mx = pytest.importorskip("torchao.prototype.mx_formats.mx_tensor", reason="compares with torchao")
    x = matrix()
    mode = mx.ScaleCalculationMode[rule.upper()]
    scales, elements = mx.to_mx(torch.from_numpy(x), getattr(torch, MX[scheme]), 32, mode)
    q = fs.quantize_blocks(x, scheme, rule=rule)
    assert np.array_equal(q.scales.codes, scales.view(torch.uint8).numpy())
    assert np.array_equal(q.codes, unpacked(elements, torch, scheme == "mxfp4"))


@pytest.mark.parametrize("rule", ["floor", "rceil", "ceil", "even"])
@pytest.mark.parametrize("scheme", ["mxfp8", "mxfp8_e5m2"])
def test_torchao_mx_with_zeros_an_outlier_and_nan(scheme, rule):
    """Scales are equal, and codes except in blocks whose scale is NaN: all their numbers are NaN."""
    torch = pytest.importorskip("torch", reason="compares with torchao")
    mx = pytest.importorskip("torchao.prototype.mx_formats.mx_tensor", reason="compares with torchao")
    x = np.random.default_rng(4).normal(size=(4, 128)).astype(np.float32)
    x[0, :32], x[1, 5], x[2, 64:96], x[3, 7] = 0, np.nan, np.nan, 3e30
    mode = mx.ScaleCalculationMode[rule.upper()]
    scales, elements = mx.to_mx(torch.from_numpy(x), getattr(torch, MX[scheme]), 32, mode)
    q = fs.quantize_blocks(x, scheme, rule=rule)
    assert np.array_equal(q.scales.codes, scales.view(torch.uint8).numpy())
    kept = np.repeat(q.scales.codes != 0xFF, 32, axis=1)
    assert kept.sum() == x.size - 64
    assert np.array_equal(q.codes[kept], elements.view(torch.uint8).numpy()[kept])
    assert np.isnan(q.values[~kept]).all()


def unpacked(elements, torch, packed: bool) -> np.ndarray:
    codes = elements.view(torch.uint8).numpy()
    if not packed:
        return codes
    return np.stack([codes & 15, codes >> 4], axis=-1).reshape(codes.shape[0], -1)


@pytest.mark.parametrize("scheme", ["nvfp4_torchao", "nvfp4_single"])
def test_torchao_nvfp4(scheme):
    torch = pytest.importorskip("torch", reason="compares with torchao")
    nv = pytest.importorskip("torchao.prototype.mx_formats.nvfp4_tensor", reason="compares with torchao")
    x = matrix(1)
    t = torch.from_numpy(x)
    whole = nv.per_tensor_amax_to_scale(t.abs().max()) if scheme == "nvfp4_torchao" else None
    scales, elements = nv.nvfp4_quantize(t, 16, whole)
    q = fs.quantize_blocks(x, scheme)
    assert np.array_equal(q.scales.codes, scales.view(torch.uint8).numpy())
    assert np.array_equal(q.codes, unpacked(elements, torch, True))
    if whole is not None:
        assert q.tensor_scale.item() == whole.item()


@pytest.mark.parametrize(("mapping", "rule"), [
    ("SYMMETRIC", "full_range"), ("ASYMMETRIC", "asymmetric"), ("SYMMETRIC_NO_CLIPPING_ERR", "no_clipping"),
])  # fmt: skip
@pytest.mark.parametrize(("low", "high"), [(-128, 127), (-8, 7), (0, 15)])
def test_torchao_integers(mapping, rule, low, high):
    torch = pytest.importorskip("torch", reason="compares with torchao")
    ao = pytest.importorskip("torchao.quantization.quant_primitives", reason="compares with torchao")
    if rule == "no_clipping" and low == 0:
        pytest.skip("the rule needs negative integers")
    x = matrix(2)
    dtype = torch.int8 if low < 0 else torch.uint8
    scales, zeros = ao.choose_qparams_affine(
        torch.from_numpy(x), ao.MappingType[mapping], (1, 128), dtype, low, high
    )  # fmt: skip
    codes = ao.quantize_affine(torch.from_numpy(x), (1, 128), scales, zeros, dtype, low, high)
    q = fs.quantize_blocks(x, Scheme(fs.quantization.IntegerFormat("", low, high), 128, rule=rule, factor="reciprocal"))
    zero_rows = ~x.any(axis=1)  # torchao's scale is the least normal number there, and floatsim's is 1
    assert np.array_equal(q.scales.values[~zero_rows], scales.numpy()[~zero_rows])
    if q.zero_points is not None:
        assert np.array_equal(q.zero_points, zeros.numpy())
    assert np.array_equal(q.codes, codes.numpy())


@pytest.mark.parametrize("fmt", [NF4, BNB_FP4], ids=lambda fmt: fmt.name)
def test_bitsandbytes(fmt):
    torch = pytest.importorskip("torch", reason="compares with bitsandbytes")
    functional = pytest.importorskip("bitsandbytes.functional", reason="compares with bitsandbytes")
    kind = fmt.name.lower().removeprefix("bnb_")
    x = matrix(3)
    x = x[x.any(axis=1)]  # bitsandbytes divides by the zero scale of a block of zeros
    packed, state = functional.quantize_4bit(torch.from_numpy(x), blocksize=64, quant_type=kind)
    codes = packed.numpy().reshape(x.shape[0], -1)
    codes = np.stack([codes >> 4, codes & 15], axis=-1).reshape(x.shape)
    q = fs.quantize_blocks(x, kind if kind == "nf4" else "bnb_fp4")
    assert np.array_equal(q.scales.values.reshape(-1), state.absmax.numpy().reshape(-1))
    same = q.codes == codes
    if fmt is BNB_FP4:
        # bitsandbytes on the CPU differs from its CUDA kernel, which floatsim follows: the codes of its two zeros,
        # 0 and 8, do not follow the sign, and its thresholds are midpoints, where the kernel has decimals of six digits
        t = np.abs(x) / np.repeat(np.float32(q.scales.values), 64, axis=1)
        near = np.abs(t[..., np.newaxis] - np.abs(np.float32(BNB_FP4.thresholds))).min(axis=-1) < 1e-6
        same |= (near & (t > 0.01)) | ((q.codes & 7 == 0) & (codes & 7 == 0))
        assert (near & (t > 0.01)).mean() < 0.01
    assert same.all()
    restored = functional.dequantize_4bit(packed, state).numpy()
    assert np.array_equal(q.values.astype(np.float32)[q.codes == codes], restored[q.codes == codes])


def test_bitsandbytes_nested_scales():
    """QLoRA's NF4 with quantized scales (`compress_statistics`)."""
    torch = pytest.importorskip("torch", reason="compares with bitsandbytes")
    functional = pytest.importorskip("bitsandbytes.functional", reason="compares with bitsandbytes")
    x = np.random.default_rng(5).normal(size=(96, 1024)).astype(np.float32)
    x *= np.exp2(np.random.default_rng(6).integers(-3, 3, (96, 1))).astype(np.float32)
    t = torch.from_numpy(x)
    packed, state = functional.quantize_4bit(t, blocksize=64, quant_type="nf4", compress_statistics=True)
    codes = packed.numpy().reshape(x.shape[0], -1)
    q = fs.quantize_blocks(x, "nf4_nested")
    assert np.array_equal(q.codes, np.stack([codes >> 4, codes & 15], axis=-1).reshape(x.shape))
    assert q.nested.offset.item() == state.offset.item()
    assert np.array_equal(q.nested.quantized.codes.reshape(-1), state.absmax.numpy().reshape(-1))
    assert np.array_equal(q.nested.quantized.scales.values.reshape(-1), state.state2.absmax.numpy())
    restored = functional.dequantize_blockwise(state.absmax, state.state2) + state.offset
    assert np.array_equal(q.scales.values.reshape(-1), restored.numpy().reshape(-1))
    assert np.array_equal(q.values, functional.dequantize_4bit(packed, state).numpy())


MICROXCALING = {
    "mxfp8": "fp8_e4m3", "mxfp8_e5m2": "fp8_e5m2", "mxfp6": "fp6_e3m2", "mxfp4": "fp4_e2m1", "mxint8": "int8",
}  # fmt: skip


@pytest.mark.parametrize(("mode", "theirs"), [("ties_to_even", "even"), ("ties_to_away", "nearest")])
@pytest.mark.parametrize("scheme", MICROXCALING)
def test_microxcaling(scheme, mode, theirs):
    """Differences: an amax that log2 in FP32 rounds to the next power of two, and the code -128 of INT8."""
    torch = pytest.importorskip("torch", reason="compares with microxcaling")
    ops = pytest.importorskip("mx.mx_ops", reason="compares with microxcaling")
    x = matrix(7)
    x[5, :32] = 1.0625
    x[5, 0] = np.nextafter(np.float32(8), np.float32(0))
    ours = fs.quantization.SCHEMES[scheme]
    if scheme == "mxint8":
        ours = replace(ours, format=fs.quantization.IntegerFormat("without -128", -127, 127, 6))
    t = torch.from_numpy(x.copy())
    found = ops._quantize_mx(t, 8, MICROXCALING[scheme], axes=[-1], block_size=32, round=theirs).numpy()
    q = fs.quantize_blocks(x, ours, rounding=mode)
    blocks = np.arange(x.size).reshape(x.shape) // 32
    assert set(blocks[q.values != found].tolist()) <= {blocks[5, 0]}
    emax = math.frexp(largest_number(q.format))[1] - 1
    assert q.scales.values[5, 0] * 2**emax == 4  # microxcaling takes 8 = 2**3 for the largest power of two


@pytest.mark.parametrize("scheme", ["mxfp8", "mxfp8_e5m2", "mxfp6", "mxfp4", "mxint8"])
def test_gfloat(scheme):
    gfloat = pytest.importorskip("gfloat", reason="compares with gfloat")
    formats = pytest.importorskip("gfloat.formats", reason="compares with gfloat")
    info = {
        "mxfp8": formats.format_info_mxfp8_e4m3, "mxfp8_e5m2": formats.format_info_mxfp8_e5m2,
        "mxfp6": formats.format_info_mxfp6_e3m2, "mxfp4": formats.format_info_mxfp4_e2m1,
        "mxint8": formats.format_info_mxint8,
    }[scheme]  # fmt: skip
    x = matrix(4, (8, 64)).astype(np.float64)
    values = fs.quantize_blocks(x, scheme).values
    for row, found in zip(x.reshape(-1, 32), values.reshape(-1, 32), strict=True):
        assert np.array_equal(gfloat.quantize_block(info, row, gfloat.compute_scale_amax), found)


def run_onnx(operator: str, inputs: dict[str, np.ndarray], outputs: dict[str, str], **attributes) -> list[np.ndarray]:
    """The results of one operator by onnxruntime on the CPU."""
    onnx = pytest.importorskip("onnx", reason="compares with onnxruntime")
    runtime = pytest.importorskip("onnxruntime", reason="compares with onnxruntime")
    helper = onnx.helper
    node = helper.make_node(operator, list(inputs), list(outputs), **attributes)
    given = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in inputs.items()
    ]
    wanted = [helper.make_tensor_value_info(name, getattr(onnx.TensorProto, t), None) for name, t in outputs.items()]
    graph = helper.make_graph([node], "one", given, wanted)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, inputs)


def test_onnxruntime_dynamic():
    for seed in range(8):
        x = matrix(seed, (16, 64))
        x = np.abs(x) if seed == 1 else -np.abs(x) if seed == 2 else x
        codes, scale, zero = run_onnx("DynamicQuantizeLinear", {"x": x}, {"y": "UINT8", "s": "FLOAT", "z": "UINT8"})
        q = fs.quantize_blocks(x, "uint8", rule="asymmetric")
        assert np.array_equal(q.codes, codes) and q.scales.item() == scale and q.zero_points == zero


@pytest.mark.parametrize(("kind", "zero"), [("INT8", 0), ("INT8", -9), ("UINT8", 128), ("UINT8", 3)])
def test_onnxruntime_given_scales(kind, zero):
    """QuantizeLinear: x / scale, rounded to even, plus the zero point."""
    x = matrix(9)
    scales = (np.abs(x).max(axis=1) / np.float32(100) + np.float32(1e-30)).astype(np.float32)
    zeros = np.full(len(x), zero, kind.lower())
    codes = run_onnx("QuantizeLinear", {"x": x, "s": scales, "z": zeros}, {"y": kind}, axis=0)[0]
    q = fs.quantize_blocks(x, kind.lower(), block="row", scale=scales[:, None], zero_point=zero)
    assert np.array_equal(q.codes, codes)


def test_onnxruntime_four_bits():
    """MatMulNBits: asymmetric blocks along the columns, rounded half away from zero."""
    state = pytest.importorskip("onnxruntime.capi._pybind_state", reason="compares with onnxruntime")
    x = matrix(10, (32, 256))
    rows, columns = x.shape
    packed, zeros = np.zeros((rows, columns // 64, 32), np.uint8), np.zeros((rows, columns // 128), np.uint8)
    scales = np.zeros(rows * columns // 64, np.float32)
    state.quantize_matmul_4bits(packed, np.ascontiguousarray(x.T), scales, zeros, 64, rows, columns, False)
    live = x.any(axis=1)  # the scale of a row of zeros is 0, and floatsim's is 1
    q = fs.quantize_blocks(x, "uint4", block=64, rule="asymmetric", factor="reciprocal", rounding="ties_to_away")
    assert np.array_equal(q.scales.values[live], scales.reshape(rows, -1)[live])
    assert np.array_equal(q.zero_points[live], fs.unpack(zeros, "low-nibble-first")[live])
    assert np.array_equal(q.codes[live], fs.unpack(packed.reshape(rows, -1), "low-nibble-first")[live])
