"""`fs.identify_quantizer`: tensors of published packages, planted faults, random quantizers, and bad input."""

from __future__ import annotations

import functools
import json
import math
import re
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import floatsim as fs
from floatsim.quantization import GGUF_TYPES, NF4, Quantized, from_gguf
from floatsim.testing.quantizers.known import KNOWN
from tests.marks import cases
from tests.quantization.checkpoint_vectors import FOLDER
from tests.testing.quantizer_vectors import BF16, FILE, GGUF, tensor

F32 = np.float32

# -- published packages ------------------------------------------------------------------------------------------------


@functools.cache
def stored() -> dict[str, dict[str, np.ndarray]]:
    """The arrays of each case of quantizer_vectors.py."""
    found: dict[str, dict[str, np.ndarray]] = {}
    with np.load(FILE) as file:
        for key in file.files:
            case, _, array = key.rpartition("/")
            if case:
                found.setdefault(case, {})[array] = file[key]
    return found


NVFP4 = ["torchao NVFP4, two levels", "Model Optimizer NVFP4", "TransformerEngine NVFP4"]  # only ties separate them
ASYMMETRIC = ["torchao integers, asymmetric", "GPTQ (arXiv 2210.17323), asymmetric"]  # the reciprocal, or a division
# The seed and the significant bits of the tensor, and the names that the data allow. The first name is the package's.
NAMED = {
    "compressed-tensors: int8, channels": (1, 24, ["compressed-tensors integers, symmetric"]),
    "compressed-tensors: int4, groups, packed": (2, 24, ["compressed-tensors integers, symmetric"]),
    "compressed-tensors: int4, groups, asymmetric, packed": (3, 24, ["compressed-tensors integers, asymmetric"]),
    "compressed-tensors: int4, groups, BF16, packed": (4, BF16, ["compressed-tensors integers, symmetric"]),
    "compressed-tensors: fp8, channels": (5, 24, ["compressed-tensors FP8"]),
    "compressed-tensors: mxfp4": (6, 24, ["compressed-tensors MXFP4"]),
    "compressed-tensors: mxfp8": (7, 24, ["compressed-tensors MXFP8"]),
    "compressed-tensors: nvfp4": (8, 24, ["compressed-tensors NVFP4"]),
    "torchao: mxfp4, FLOOR": (11, 24, ["OCP MX 1.0: torchao FLOOR"]),
    "torchao: mxfp8, FLOOR": (12, 24, ["OCP MX 1.0: torchao FLOOR"]),
    "torchao: mxfp4, RCEIL": (11, 24, ["torchao RCEIL"]),
    "torchao: mxfp8, RCEIL": (12, 24, ["torchao RCEIL, TransformerEngine MXFP8"]),
    "torchao: mxfp4, CEIL": (11, 24, ["torchao CEIL"]),
    "torchao: mxfp8, CEIL": (12, 24, ["torchao CEIL"]),
    "torchao: mxfp4, EVEN": (11, 24, ["torchao EVEN"]),
    "torchao: mxfp8, EVEN": (12, 24, ["torchao EVEN"]),
    "torchao: nvfp4, two levels": (13, 24, NVFP4),
    "torchao: nvfp4, one level": (13, 24, ["torchao NVFP4, one level"]),
    "torchao: symmetric -128 to 127": (14, 24, ["torchao integers, symmetric"]),
    "torchao: asymmetric 0 to 15": (15, 24, ASYMMETRIC),
    "torchao: symmetric_no_clipping_err -8 to 7": (16, 24, ["torchao integers without clipping error"]),
    "bitsandbytes: nf4": (21, 24, ["bitsandbytes NF4"]),
    "bitsandbytes: fp4": (22, 24, ["bitsandbytes FP4 on a CPU"]),
    "bitsandbytes: int8": (24, 11, ["bitsandbytes INT8 on a CPU"]),
    "gptqmodel: symmetric, version 1": (31, 24, ["GPTQModel, symmetric"]),
    "gptqmodel: symmetric, version 2": (31, 24, ["GPTQModel, symmetric"]),
    "gptqmodel: asymmetric, version 1": (32, 24, ["GPTQModel, asymmetric"]),
    "gptqmodel: asymmetric, version 2": (32, 24, ["GPTQModel, asymmetric"]),
    "gptqmodel: 8 bits, version 1": (33, 24, ["GPTQModel, symmetric"]),
    "gptqmodel: 8 bits, version 2": (33, 24, ["GPTQModel, symmetric"]),
    **{f"gguf: {kind}": (41 + n, 24, [f"ggml {kind}"]) for n, kind in enumerate(GGUF)},
}
QUICK = {
    "compressed-tensors: int4, groups, packed", "torchao: mxfp8, EVEN", "bitsandbytes: nf4", "gguf: Q8_0", "gguf: Q4_K",
    "gptqmodel: 8 bits, version 1",
}  # fmt: skip


def of_package(case: str):
    seed, bits, _ = NAMED[case]
    arrays, more = dict(stored()[case]), {}
    x = tensor(seed, bits)
    if bits == BF16:
        x = x.astype(ml_dtypes.bfloat16)
        arrays["scales"] = arrays["scales"].view(ml_dtypes.bfloat16)
    if bits == 11:
        x = x.astype(np.float16)
    if case.startswith("gguf"):
        more["layout"] = case.rpartition(" ")[2]
    codes, scales = arrays.pop("codes"), arrays.pop("scales", None)
    return fs.identify_quantizer(codes, scales, x, **arrays, **more)


@pytest.mark.parametrize(
    "case", [case if case in QUICK else pytest.param(case, marks=pytest.mark.full) for case in NAMED]
)
def test_packages_are_named(case):
    found = of_package(case)
    assert list(found.names) == NAMED[case][2]
    assert str(found).startswith(("cannot tell: " if len(found.names) > 1 else "") + NAMED[case][2][0])
    if case.startswith("gptqmodel"):
        assert found.layout == "gptq"
        assert found.zero_point_offset == ("less 1 (GPTQ version 1)" if "version 1" in case else "")
        assert found.scale_of_codes == "before the rounding of the scales"


def test_the_cases_are_those_of_the_file():
    assert sorted([*NAMED, "bitsandbytes: dynamic8"]) == sorted(stored())
    with np.load(FILE) as file:
        versions = json.loads(str(file["versions"]))
    assert versions["compressed-tensors"] == "0.20.0" and versions["gptqmodel"] == "7.7.0"


@pytest.mark.full
def test_another_kernel_is_not_named():
    """The CPU kernel of bitsandbytes 0.50 for its 8-bit maps has codes beside the nearest ones."""
    arrays = stored()["bitsandbytes: dynamic8"]
    found = fs.identify_quantizer(arrays["codes"], arrays["scales"], tensor(23), format="dynamic8")
    assert not found.rows and not found.names
    assert "no quantizer of the vocabulary" in str(found) and "near: DYNAMIC8" in str(found)
    q = fs.quantize_blocks(tensor(23), "dynamic8")
    wrong = np.argwhere(q.codes != arrays["codes"])
    near = next(each for each in found.refused if "x * (1 / scale)" in each.text)
    assert near.first == tuple(wrong[0])
    assert (near.found, near.expected) == (arrays["codes"][near.first], q.codes[near.first])


def test_no_name_is_listed_twice():
    assert len({known.name for known in KNOWN}) == len(KNOWN)


# -- the schemes of floatsim -------------------------------------------------------------------------------------------

_MXFP8 = "torchao RCEIL, TransformerEngine MXFP8"
_BLOCKS = ["TransformerEngine FP8 block scaling", "DeepGEMM FP8, scales of powers of two"]  # the same rule
_MAE = ["TransformerEngine NVFP4 with 4over6, MAE", "fouroversix, mae"]  # two orders of a sum, which rarely differ
_MSE = ["TransformerEngine NVFP4 with 4over6, MSE", "fouroversix, mse"]
OF_SCHEMES = {
    **{name: ["OCP MX 1.0: torchao FLOOR"] for name in ("mxfp8", "mxfp8_e5m2", "mxfp6", "mxfp4", "mxint8")},
    "te_mxfp8": [_MXFP8],
    "te_mxfp8_weight": ["TransformerEngine MXFP8, 32x32"],
    "nvfp4": ["TransformerEngine NVFP4"],
    "nvfp4_torchao": ["torchao NVFP4, two levels"],
    "nvfp4_single": ["torchao NVFP4, one level"],
    "nvfp4_modelopt": ["Model Optimizer NVFP4"],
    "nvfp4_weight": ["TransformerEngine NVFP4"],
    "nvfp4_row": ["TransformerEngine NVFP4, scaled by rows"],
    "nvfp4_1x64": ["TransformerEngine NVFP4, scaled by 1x64"],
    "nvfp4_4over6": _MAE,
    "nvfp4_4over6_mse": _MSE,
    "nvfp4_4over6_weight": _MAE[:1],
    "fouroversix": _MSE,
    "fouroversix_mae": _MAE,
    "nvfp4_e5m3": ["FP4 with scales in UE5M3 (arXiv 2601.19026)"],
    "te_current": ["TransformerEngine current scaling"],
    "te_block": _BLOCKS,
    "te_block_weight": _BLOCKS,
    "deepseek": ["DeepSeek FP8"],
    "deepseek_weight": ["DeepSeek FP8"],
    "deepgemm": ["DeepGEMM FP8"],
    "deepgemm_weight": ["DeepGEMM FP8"],
    "nf4": ["bitsandbytes NF4"],
    "bnb_fp4": ["bitsandbytes FP4 on CUDA"],
    "nf4_nested": ["bitsandbytes NF4 (QLoRA), nested scales"],
    "dynamic8": ["bitsandbytes 8-bit maps"],
    "llm_int8": ["bitsandbytes LLM.int8() on CUDA"],
    "gptq": ["GPTQ (arXiv 2210.17323), symmetric"],
    "awq": ["AWQ"],
}
WITHOUT_A_NAME = {
    "mxfp8_2d": "no package was found that has OCP's rule in 32x32 blocks",
    "w8a8": "amax / 127 for each row is a rule of many packages; none of them was compared",
}


def near_ties(x, scheme, seed=0):
    """A tensor whose elements lie within two units of the ties of its scheme, where divisions differ."""
    rng = np.random.default_rng(seed)
    q = fs.quantize_blocks(x, scheme)
    amax = replace(fs.quantize_blocks(x, "int8", block=q.scheme.block), codes=np.full(x.shape, 127)).values
    upper = np.maximum(q.codes & q.format.magnitude_mask, 1).astype(q.codes.dtype)
    ties = ((replace(q, codes=upper - 1).values + replace(q, codes=upper).values) / 2).astype(F32)
    ties = (ties.view(np.int32) + rng.integers(-2, 3, x.shape).astype(np.int32)).view(F32)
    return np.where(np.abs(x) < 0.9 * amax, np.copysign(ties, x), x)


def of_scheme(name, **more):
    rng = np.random.default_rng(1)
    x = (rng.standard_normal((256, 512)) * np.exp2(rng.integers(-3, 4, (256, 1)))).astype(F32)
    if isinstance(fs.quantization.SCHEMES[name].format, fs.FloatFormat):
        x = near_ties(x, name)
    x[0, :4] = -0.0
    return fs.identify_quantizer(fs.quantize_blocks(x, name, **more), None, x)


@pytest.mark.parametrize("name", fs.quantization.SCHEMES)
def test_each_scheme_has_its_names(name):
    """Each scheme has the name of its source, and no name of a quantizer with other bits."""
    assert set(OF_SCHEMES) | set(WITHOUT_A_NAME) == set(fs.quantization.SCHEMES)
    assert list(of_scheme(name).names) == OF_SCHEMES.get(name, [])


@pytest.mark.parametrize(("scheme", "name", "least"), [
    ("nvfp4", "TransformerEngine NVFP4", "none: some are zero"),
    ("nvfp4_torchao", "torchao NVFP4, two levels", "the smallest normal number"),
    ("nvfp4_single", "torchao NVFP4, one level", "the smallest normal number"),
    ("nvfp4_modelopt", "Model Optimizer NVFP4", "the smallest subnormal number"),
])  # fmt: skip
def test_the_least_scale_separates_nvfp4(scheme, name, least):
    rng = np.random.default_rng(2)
    x = rng.standard_normal((64, 256)) * np.exp2(rng.integers(-21, 1, (64, 16))).repeat(16, axis=1)
    found = fs.identify_quantizer(fs.quantize_blocks(x.astype(F32), scheme), None, x.astype(F32))
    assert found.names == (name,) and found.least_scale == least


@pytest.mark.parametrize(("more", "names", "tensor_scale"), [
    ({"block": 64}, [], "1 / (top / amax), p"),
    ({"block": "row"}, [], "1 / (top / amax), p"),
    ({"block": 64, "outer": "row"}, [], "1 / (top / amax), p, one for each row"),
    ({"outer": 32}, [], "1 / (top / amax), p, one for each 32 neighbours"),
    ({"scale_max": 256}, [], "1 / (top / amax), p, for scales up to 256"),
    ({"block": (16, 1)}, ["TransformerEngine NVFP4"], "1 / (top / amax), p"),
])  # fmt: skip
def test_other_blocks_of_nvfp4(more, names, tensor_scale):
    """The rules are found for all blocks; a name is that of the published blocks, also of a transpose."""
    found = of_scheme("nvfp4", **more)
    assert tensor_scale in found.values("tensor_scale") and set(names) <= set(found.names)
    assert names or not found.names


def test_second_scales_of_rows_may_have_any_shape_of_rows():
    x = matrix(3)
    q = fs.quantize_blocks(x, "nvfp4_row")
    found = fs.identify_quantizer(q.codes, q.scales, x, tensor_scale=q.tensor_scale.values[:, 0], format="e2m1")
    assert found.names == ("TransformerEngine NVFP4, scaled by rows",)
    for shape in ((32, 3), (16, 2), (31, 1)):
        with pytest.raises(ValueError, match=r"tensor_scale must be one number, one for each row of x \(32, 256\)"):
            fs.identify_quantizer(q.codes, q.scales, x, tensor_scale=np.ones(shape, F32), format="e2m1")
    bad = q.tensor_scale.values.copy()
    bad[5] = -1
    found = fs.identify_quantizer(q.codes, q.scales, x, tensor_scale=bad, format="e2m1")
    assert "1 of 32 scales of parts of the tensor are no positive numbers, such as -1" in found.deviations


# -- planted faults ----------------------------------------------------------------------------------------------------


def matrix(seed=0, shape=(32, 256)) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape) * np.exp2(rng.integers(-4, 4, (shape[0], 1)))
    x[::2] = np.rint(x[::2] * 256) / 256
    return x.astype(F32)


def blocks_of(x, width):
    return x.reshape(x.shape[0], -1, width)


E8M0_ROUNDINGS = {
    "2**floor(log2(amax / max))": lambda r: np.floor(np.log2(r)),
    "2**round(log2(amax / max))": lambda r: np.rint(np.log2(r)),
    "amax / max to the nearest power of two, ties up": lambda r: np.log2(np.exp2(np.floor(np.log2(r)))) + (
        r / np.exp2(np.floor(np.log2(r))) >= 1.5),
    "2**(ceil(log2(amax)) - emax)": lambda r: np.ceil(np.log2(r * 6)) - 2,
}  # fmt: skip


@pytest.mark.parametrize("rule", E8M0_ROUNDINGS)
def test_a_wrong_rounding_to_e8m0(rule):
    """Four kernels whose scale should be 2**ceil(log2(amax / 6))."""
    x = matrix(1)
    ratio = np.abs(blocks_of(x, 32)).max(axis=-1).astype(np.float64) / 6
    exponents = E8M0_ROUNDINGS[rule](ratio)
    t = (blocks_of(x, 32) / np.exp2(exponents)[..., None]).clip(-6, 6).astype(ml_dtypes.float4_e2m1fn)
    codes = t.view(np.uint8).reshape(x.shape)
    found = fs.identify_quantizer(fs.pack(codes, "low-nibble-first"), (exponents + 127).astype(np.uint8), x)
    assert (found.scale, found.format, found.layout) == (rule, "E2M1", "low-nibble-first")
    refused = {each.text for each in found.refused}
    assert "E2M1: scale 2**ceil(log2(amax / max))" in refused
    q = Quantized(codes, fs.from_codes((exponents + 127).astype(np.uint8), "e8m0"), fs.quantization.SCHEMES["mxfp4"])
    why = fs.testing.compare_conversion(q, x, replace(q.scheme, rule="rceil")).explanation
    of_scheme = {"2**(ceil(log2(amax)) - emax)": "ceil", "amax / max to the nearest power of two, ties up": "absmax"}
    assert (f"rule={of_scheme[rule]!r}" if rule in of_scheme else f"scale = {rule!r}") in why


@pytest.mark.parametrize("mode", ["toward_zero", "toward_positive", "to_odd"])
def test_nvfp4_with_wrongly_rounded_scales_has_no_name(mode):
    """Every published quantizer of NVFP4 rounds its scales to nearest."""
    x = matrix(4)
    q = fs.quantize_blocks(x, "nvfp4")
    p = q.tensor_scale.values.astype(F32)
    quotient = np.abs(blocks_of(x, 16)).max(axis=-1) / (F32(6) * p)
    scales = fs.array(quotient, "e4m3", rounding=mode, overflow="saturate_finite")
    t = blocks_of(x, 16) / (scales.values.astype(F32) * p)[..., None]
    codes = t.reshape(x.shape).clip(-6, 6).astype(ml_dtypes.float4_e2m1fn)
    wrong = Quantized(codes.view(np.uint8), scales, q.scheme, tensor_scale=q.tensor_scale)
    found = fs.identify_quantizer(wrong, None, x)
    assert found.names == () and mode in found.values("scale_rounding")
    why = fs.testing.compare_conversion(wrong, x, "nvfp4").explanation
    assert f"scale_rounding = {mode!r}" in why and "TransformerEngine" not in why


@pytest.mark.parametrize("signed", [True, False])
def test_elements_that_do_not_saturate_have_no_name(signed):
    """MXFP8 by the rule floor without saturation: elements beyond 448 become NaN, in PyTorch with the sign of x."""
    x = matrix(5)
    q = fs.quantize_blocks(x, "mxfp8")
    t = (blocks_of(x, 32) / q.scales.values.astype(F32)[..., None]).reshape(x.shape)
    with np.errstate(all="ignore"):
        codes = t.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    codes[codes & 0x7F == 0x7F] &= 0xFF if signed else 0x7F
    found = fs.identify_quantizer(codes, q.scales.codes, x, format="e4m3")
    expected = "overflows to NaN with the sign of x" if signed else "overflows"
    assert found.names == () and found.clipping == expected
    why = fs.testing.compare_conversion(Quantized(codes, q.scales, q.scheme), x, "mxfp8").explanation
    assert f"clipping = {expected!r}" in why and "memory" not in why


def test_scales_rounded_after_the_codes():
    x = matrix(2)
    scales = np.abs(blocks_of(x, 128)).max(axis=-1) / F32(7)
    codes = np.rint(blocks_of(x, 128) / scales[..., None]).astype(np.int8).reshape(x.shape)
    found = fs.identify_quantizer(codes, scales.astype(np.float16), x)
    assert found.scale_of_codes == "before the rounding of the scales"
    assert "the codes were computed with the scales before their rounding to FP16" in found.deviations
    right = np.rint(blocks_of(x, 128) / scales.astype(np.float16).astype(F32)[..., None])
    right = right.clip(-8, 7).astype(np.int8).reshape(x.shape)
    assert fs.identify_quantizer(right, scales.astype(np.float16), x).scale_of_codes == "as stored"


@pytest.mark.full
def test_compare_conversion_names_planted_faults():
    x = matrix(2)
    scales = np.abs(blocks_of(x, 128)).max(axis=-1) / F32(7)
    codes = np.rint(blocks_of(x, 128) / scales[..., None]).astype(np.int8).reshape(x.shape)
    scheme = fs.quantization.Scheme("int4", 128, "fp16")
    wrong = Quantized(codes, fs.array(scales.astype(np.float16), "fp16"), scheme)
    why = fs.testing.compare_conversion(wrong, x, scheme).explanation
    assert "the codes were computed with the scales before their rounding to FP16" in why
    q = fs.quantize_blocks(x, "uint4", block=64, rule="asymmetric")
    wrong = Quantized(q.codes, q.scales, q.scheme, q.zero_points + 1)
    assert "the zero points are stored plus 1" in fs.testing.compare_conversion(wrong, x, q.scheme).explanation


def test_a_reciprocal_scale_of_the_tensor():
    x = matrix(3, (16, 128))
    q = fs.quantize_blocks(x, "nvfp4_torchao")
    p = q.tensor_scale.values.astype(F32)
    packed, scales = q.packed("low-nibble-first"), q.scales.codes
    right = fs.identify_quantizer(packed, scales, x, tensor_scale=p)
    wrong = fs.identify_quantizer(packed, scales, x, tensor_scale=F32(1) / p)
    assert not right.deviations and "torchao NVFP4, two levels" in right.names
    assert all("reciprocal" in each for each in wrong.values("tensor_scale"))
    assert wrong.deviations == (
        "the scale of the tensor is stored as its reciprocal: values are element * scale / tensor_scale",
    )
    assert "torchao NVFP4, two levels" not in wrong.names


@pytest.mark.parametrize(("offset", "text"), [(1, "plus 1"), (-1, "less 1 (GPTQ version 1)"), (0, "")])
def test_zero_points_with_an_offset(offset, text):
    x = matrix(4)
    q = fs.quantize_blocks(x, "uint4", block=64, rule="asymmetric")
    found = fs.identify_quantizer(q.codes, q.scales, x, zero_points=q.zero_points + offset)
    assert found.zero_point_offset == text
    assert found.deviations == ((f"the zero points are stored {text}: the codes have others",) if text else ())
    assert "min - round(low / scale)" in found.values("zero_point")


# -- random quantizers -------------------------------------------------------------------------------------------------


def away(t):
    return np.where(t < 0, np.ceil(t - F32(0.5)), np.floor(t + F32(0.5)))


ROUNDS = {
    "ties_to_even": np.rint, "ties_to_away": away, "toward_zero": np.trunc, "toward_negative": np.floor,
    "toward_positive": np.ceil,
}  # fmt: skip


def extremes(x, width):
    part = blocks_of(x, width)
    low, high = np.minimum(part.min(-1), F32(0)), np.maximum(part.max(-1), F32(0))
    return np.abs(part).max(-1), low, high


def some(rng, values):
    values = list(values)
    return values[int(rng.integers(len(values)))]


def random_integers(rng, x, width):
    bits = some(rng, (4, 8))
    unsigned = bool(rng.integers(2))
    low_end, high_end = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    amax, low, high = extremes(x, width)
    span = F32(high_end - low_end)
    rules = {"(high - low) / (max - min)": (high - low) / span, "2 amax / (max - min)": (amax + amax) / span}
    if not unsigned:
        rules |= {
            "amax / max": amax / F32(high_end), "amax * (1 / max)": amax * (F32(1) / F32(high_end)),
            "amax / -min": amax / F32(-low_end),
            "the larger one of high / max and low / min": np.maximum(high / F32(high_end), low / F32(low_end)),
        }  # fmt: skip
    rule = some(rng, rules)
    exact = rules[rule]
    target = some(rng, (np.float32, np.float16, ml_dtypes.bfloat16))
    kept = exact.astype(target)
    used = exact if target != np.float32 and rng.integers(2) else kept.astype(F32)
    factor = some(rng, ("x / scale", "x * (1 / scale)"))
    part, s = blocks_of(x, width), used[..., None]
    t = part / s if factor == "x / scale" else part * (F32(1) / s)
    mode = some(rng, ROUNDS)
    truth = {"scale": rule, "factor": factor, "rounding": mode}
    more = {}
    zero, offset = np.zeros(exact.shape), 0
    if rule.startswith("(high"):
        with np.errstate(all="ignore"):
            zero = np.clip(low_end - np.rint(low / used), low_end, high_end)
        offset = int(rng.integers(-1, 2))
        more["zero_points"] = zero.astype(np.int64) + offset
        truth |= {"zero_point": "min - round(low / scale)",
                  "zero_point_offset": {0: "", 1: "plus 1", -1: "less 1 (GPTQ version 1)"}[offset]}  # fmt: skip
    elif unsigned:
        zero = zero + 2 ** (bits - 1)
    codes = np.clip(ROUNDS[mode](t) + zero[..., None], low_end, high_end).reshape(x.shape).astype(np.int64)
    if used is exact and (kept.astype(F32) != exact).any():
        truth["scale_of_codes"] = "before the rounding of the scales"
    else:
        truth["scale_of_codes"] = "as stored"
    truth["format"] = f"{'U' * unsigned}INT{bits}"
    if bits == 4 and not unsigned and codes.min() >= -8 and rng.integers(2):
        truth["layout"] = "compressed-tensors"
        return fs.pack(codes, "compressed-tensors"), kept, more, truth
    return codes.astype(np.uint8 if unsigned else np.int8), kept, more, truth


MX_RULES = {
    "2**(floor(log2(amax)) - emax)": lambda amax, top, emax: np.floor(np.log2(amax)) - emax,
    "2**(ceil(log2(amax)) - emax)": lambda amax, top, emax: np.ceil(np.log2(amax)) - emax,
    "2**ceil(log2(amax / max))": lambda amax, top, emax: np.ceil(np.log2(amax / top)),
    "2**floor(log2(amax / max))": lambda amax, top, emax: np.floor(np.log2(amax / top)),
    "2**round(log2(amax / max))": lambda amax, top, emax: np.rint(np.log2(amax / top)),
    "2**(round(log2(amax)) - emax)": lambda amax, top, emax: np.rint(np.log2(amax)) - emax,
}


def random_mx(rng, x, width):
    name, dtype, top, emax = some(rng, (
        ("E2M1", ml_dtypes.float4_e2m1fn, 6.0, 2), ("E4M3", ml_dtypes.float8_e4m3fn, 448.0, 8),
        ("E5M2", ml_dtypes.float8_e5m2, 57344.0, 15),
    ))  # fmt: skip
    rule = some(rng, MX_RULES)
    amax = np.abs(blocks_of(x, width)).max(-1).astype(np.float64)
    exponents = MX_RULES[rule](amax, top, emax)
    t = (blocks_of(x, width) / np.exp2(exponents)[..., None]).astype(F32).clip(-top, top)
    codes = t.astype(dtype).view(np.uint8).reshape(x.shape)
    truth = {"format": name, "scale": rule, "rounding": "ties_to_even", "scale_format": "E8M0", "layout": "as given",
             "zeros": "with the sign of x"}  # fmt: skip
    if name == "E2M1":
        truth["layout"] = some(rng, ("low-nibble-first", "high-nibble-first"))
        codes = fs.pack(codes, truth["layout"])
    return codes, (exponents + 127).astype(np.uint8), {}, truth


def random_fp8(rng, x, width):
    amax = extremes(x, width)[0]
    rules = {"amax / max": amax / F32(448), "1 / (max / amax)": F32(1) / (F32(448) / amax),
             "amax * (1 / max)": amax * (F32(1) / F32(448))}  # fmt: skip
    rule = some(rng, rules)
    s, part = rules[rule][..., None], blocks_of(x, width)
    forms = {"x / scale": part / s, "x * (1 / scale)": part * (F32(1) / s)}
    if rule == "1 / (max / amax)":
        forms["x * (max / amax)"] = part * (F32(448) / amax)[..., None]
    factor = some(rng, forms)
    codes = forms[factor].clip(-448, 448).astype(ml_dtypes.float8_e4m3fn)
    truth = {"format": "E4M3", "scale": rule, "factor": factor, "rounding": "ties_to_even"}
    return codes.view(np.uint8).reshape(x.shape), rules[rule], {}, truth


def random_nvfp4(rng, x, width):
    width = 16
    amax, whole = extremes(x, width)[0], np.abs(x).max()
    e4m3 = ml_dtypes.float8_e4m3fn
    kind = some(rng, ("torchao", "compressed", "te"))
    part = blocks_of(x, width)
    if kind == "torchao":
        p = whole / F32(2688)
        s = (amax / F32(6) / p).clip(2**-6, 448).astype(e4m3)
        t = part * ((F32(1) / p) / s.astype(F32))[..., None]
        truth = {"tensor_scale": "amax / top, p", "scale": "(amax / max) / p", "factor": "x * (q / scale)"}
        stored_scale = p
    elif kind == "compressed":
        q = (F32(1) / whole) * F32(2688)
        s = (q * (amax / F32(6))).clip(0, 448).astype(e4m3)
        t = part / (s.astype(F32) / q)[..., None]
        truth = {"tensor_scale": "top * (1 / amax), 1 / p, the reciprocal", "scale": "(1 / p) * (amax / max)",
                 "factor": "x / (scale / q)"}  # fmt: skip
        stored_scale = q
    else:
        q = F32(2688) / whole
        stored_scale = F32(1) / q
        s = (amax * (q * (F32(1) / F32(6)))).clip(0, 448).astype(e4m3)
        t = part * (F32(1) / (s.astype(F32) * stored_scale))[..., None]
        truth = {"tensor_scale": "1 / (top / amax), p", "scale": "amax * ((1 / p) * (1 / max))",
                 "factor": "x * (1 / (scale * p))"}  # fmt: skip
    codes = t.clip(-6, 6).astype(ml_dtypes.float4_e2m1fn).view(np.uint8).reshape(x.shape)
    truth |= {"format": "E2M1", "layout": "low-nibble-first"}
    return fs.pack(codes, "low-nibble-first"), s.view(np.uint8), {"tensor_scale": stored_scale}, truth


def random_table(rng, x, width):
    amax = extremes(x, width)[0]
    factor = some(rng, ("x / scale", "x * (1 / scale)"))
    part, s = blocks_of(x, width), amax[..., None]
    t = part / s if factor == "x / scale" else part * (F32(1) / s)
    codes = np.searchsorted(np.array(NF4.thresholds, F32), t, side="left").reshape(x.shape)
    layout = some(rng, ("low-nibble-first", "high-nibble-first"))
    truth = {"format": "NF4", "scale": "amax / max", "factor": factor, "layout": layout}
    return fs.pack(codes, layout), amax, {}, truth


def unknown(rng, codes, scales, more, x):
    """A quantizer that the vocabulary has not: a scale that is clipped, or one code that is wrong."""
    codes = codes.copy()
    flat = codes.reshape(-1)
    n = int(rng.integers(flat.size))
    flat[n] ^= 0x33 if flat.dtype.itemsize == 1 else 0x33333333
    return fs.identify_quantizer(codes, scales, x, **more)


def check_random_quantizer(seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((int(rng.integers(4, 33)), 128)) * np.exp2(rng.integers(-5, 6))
    x[int(rng.integers(x.shape[0])) :] *= 2.0 ** int(rng.integers(-3, 4))
    if rng.integers(2):
        x = np.rint(x * 64) / 64 + (np.abs(x).max(axis=1, keepdims=True) < 0.05)
    x = x.astype(F32)
    x[x == 0] = F32(0.25)
    width = int(some(rng, (16, 32, 64, 128)))
    make = some(rng, (random_integers, random_integers, random_mx, random_fp8, random_nvfp4, random_table))
    codes, scales, more, truth = make(rng, x, width)
    found = fs.identify_quantizer(codes, scales, x, **more)
    assert found.rows, (truth, found)
    for name, value in truth.items():
        assert value in found.values(name), (name, value, found)
    assert any(all(getattr(row, name) == value for name, value in truth.items()) for row in found.rows), (truth, found)
    if rng.integers(4) == 0:
        other = unknown(rng, codes, scales, more, x)
        assert not other.names and not other.rows, (truth, other)


@pytest.mark.parametrize("seed", cases(quick=range(4), full=range(4, 12)))
def test_random_quantizers(seed):
    check_random_quantizer(seed)


@pytest.mark.full
@pytest.mark.parametrize("part", range(10))
def test_500_random_quantizers(part):
    for seed in range(1000 + 50 * part, 1050 + 50 * part):
        check_random_quantizer(seed)


@pytest.mark.parametrize("clip", [0.9, 1.1])
def test_a_scale_without_a_rule(clip):
    """A clipping ratio: no rule is named, but the codes are."""
    x = matrix(5)
    scales = np.abs(blocks_of(x, 64)).max(axis=-1) * F32(clip) / F32(7)
    codes = np.rint(blocks_of(x, 64) / scales[..., None]).clip(-8, 7).astype(np.int8).reshape(x.shape)
    found = fs.identify_quantizer(codes, scales, x)
    assert not found.names and found.scale == "no rule" and "x / scale" in found.values("factor")
    assert "near: " in str(found) and json.loads(found.to_json())["rows"]


# -- layouts and shapes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["gptq", "awq"])
def test_transposed_layouts(layout):
    x = matrix(6, (64, 128))
    q = fs.quantize_blocks(x, "gptq", block=64)
    zeros = fs.pack(q.zero_points.T, "gptq-zeros-v2" if layout == "gptq" else "awq")
    found = fs.identify_quantizer(fs.pack(q.codes.T, layout), q.scales.values.T, x, zero_points=zeros)
    assert (found.layout, found.block, found.zero_point) == (layout, "(1, 64)", "(max + min + 1) // 2")


def test_codes_swapped_in_their_bytes():
    x = matrix(7)
    q = fs.quantize_blocks(x, "mxfp4")
    swapped = q.codes.reshape(-1, 2)[:, ::-1].reshape(x.shape)
    assert fs.identify_quantizer(swapped, q.scales, x, format="e2m1").layout.endswith("in the opposite order")


@pytest.mark.parametrize(("block", "text"), [
    ("tensor", "tensor"), ("row", "row"), ("column", "column"), (32, "(1, 32)"), ((16, 64), "(16, 64)"),
])  # fmt: skip
def test_blocks_follow_from_the_shape(block, text):
    x = matrix(8)
    q = fs.quantize_blocks(x, "int8", block=block, rule="full_range")
    found = fs.identify_quantizer(q.codes, q.scales, x)
    assert found.block == text and found.scale == "2 amax / (max - min)"


def test_a_quantized_and_the_bytes_of_gguf():
    x = matrix(9)
    q = fs.quantize_blocks(x, "deepseek")
    assert "DeepSeek FP8" in fs.identify_quantizer(q, None, x).names
    blocks = fs.quantization.to_gguf(x, "q4_0")
    assert fs.identify_quantizer(blocks, None, x, layout="q4_0").names == ("ggml Q4_0",)
    assert fs.identify_quantizer(from_gguf(blocks, "q4_0"), None, x).names == ("ggml Q4_0",)
    assert "Q4_0" in GGUF_TYPES


def test_compare_conversion_names_the_quantizer():
    x = matrix(10)
    scheme = fs.quantization.Scheme("int4", 64)
    scales = np.abs(blocks_of(x, 64)).max(axis=-1) / F32(8)
    codes = np.rint(blocks_of(x, 64) / scales[..., None]).clip(-8, 7).astype(np.int8).reshape(x.shape)
    q = Quantized(codes, fs.array(scales, "fp32"), scheme)
    why = fs.testing.compare_conversion(q, x, scheme).explanation
    assert why.startswith("another quantizer: ") and "scale = 'amax / -min'" in why


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("value", "word"), [
    (np.nan, "NaN"), (0.0, "zero"), (-1.0, "negative"), (np.inf, "infinite"),
])  # fmt: skip
def test_unusable_scales_are_named(value, word):
    x = matrix(11)
    q = fs.quantize_blocks(x, "int8", block=64)
    scales = q.scales.values.astype(F32)
    scales[3, 1] = -scales[3, 1] if value == -1 else value
    found = fs.identify_quantizer(q.codes, scales, x)
    assert f"1 of 128 scales are {word}; the first one is that of block [3, 1]" in found.deviations
    every = fs.identify_quantizer(q.codes, np.full_like(scales, value), x)
    assert not every.names and f"128 of 128 scales are {word}" in str(every)


def test_special_values_and_zeros():
    x = matrix(12)
    x[1, :64] = 0
    q = fs.quantize_blocks(x, "int8", block=64)
    y = x.copy()
    y[2, 3], y[4, 70] = np.nan, np.inf
    found = fs.identify_quantizer(q.codes, q.scales, y)
    assert found.notes == ("2 blocks have NaN or infinity in x, and were not compared",
                           "1 blocks of zeros, which were not compared, have the scale 1")  # fmt: skip
    assert found.scale == "amax / max"
    nothing = fs.identify_quantizer(np.zeros((4, 64), np.int8), np.ones((4, 1), F32), np.zeros((4, 64), F32))
    assert nothing.notes[-1] == "no block can be compared" and not nothing.rows
    for bad in (np.nan, 0.0, -1.0):
        nv = fs.quantize_blocks(x, "nvfp4")
        found = fs.identify_quantizer(nv.codes, nv.scales, x, tensor_scale=bad)
        assert any("the scale of the tensor is" in each for each in found.deviations) and not found.names


@pytest.mark.parametrize("layout", [None, "q4_0"])
@pytest.mark.parametrize("scales", [np.uint8, np.float16])
def test_zeros_have_no_name(layout, scales):
    """Every quantizer has the codes of zeros."""
    x = np.zeros((8, 64), F32)
    if layout is None:
        found = fs.identify_quantizer(np.zeros((8, 32), np.uint8), np.zeros((8, 2), scales), x)
    else:
        found = fs.identify_quantizer(fs.quantization.to_gguf(x, layout), None, x, layout=layout)
    assert not found.names and not found.rows
    assert found.notes[-1] == "no block can be compared"
    x[3, 5] = 1  # a number is enough for the bytes of GGUF
    if layout is not None:
        assert found.name is None
        found = fs.identify_quantizer(fs.quantization.to_gguf(x, layout), None, x, layout=layout)
        assert "ggml Q4_0" in found.names


@pytest.mark.parametrize(("scheme", "nan"), [("nvfp4", 0x7F), ("nvfp4", 0xFF), ("mxfp4", 0xFF)])
def test_a_nan_among_bytes_of_scales_is_named(scheme, nan):
    """The deviations are those of the scales in their own format. The byte 0x7F is 1 in E8M0, and NaN in E4M3."""
    x = matrix(13)
    q = fs.quantize_blocks(x, scheme)
    scales, tensor_scale = q.scales.codes.copy(), None if q.tensor_scale is None else q.tensor_scale.item()
    scales[2, 1] = nan
    found = fs.identify_quantizer(q.packed("low-nibble-first"), scales, x, tensor_scale=tensor_scale)
    assert found.deviations == (f"1 of {scales.size} scales are NaN; the first one is that of block [2, 1]",)
    assert found.names and found.scale_format == ("E4M3" if scheme == "nvfp4" else "E8M0")


@pytest.mark.parametrize("name", ["e3m2", "e2m3"])
def test_six_bits_that_are_not_packed(name):
    x = matrix(14)
    q = fs.quantize_blocks(x, fs.quantization.Scheme(name, (1, 32), "e8m0", "floor"))
    found = fs.identify_quantizer(q.codes, q.scales.codes, x)
    assert found.format == name.upper()
    assert found.names == ("OCP MX 1.0: torchao FLOOR",)


X = np.ones((4, 64), F32)
BAD = [
    ((np.zeros((4, 64), np.int8), np.ones((4, 3), F32), X), ValueError, "scales (4, 3) do not fit x (4, 64)"),
    ((np.zeros((4, 63), np.int8), np.ones((4, 2), F32), X), ValueError, "codes (4, 63) of int8 do not fit x (4, 64)"),
    ((np.zeros((4, 64), F32), np.ones((4, 2), F32), X), TypeError, "codes must be integers"),
    ((np.full((4, 64), 300), np.ones((4, 2), F32), X), ValueError, "codes must be integers of at most 8 bits"),
    ((np.zeros((4, 64), np.int8), np.ones((4, 2), np.int32), X), TypeError, "scales must be floats or bytes"),
    ((np.zeros((4, 64), np.int8), None, X), ValueError, "scales=None"),
    ((np.zeros((4, 0), np.int8), np.ones((4, 2), F32), X[:, :0]), ValueError, "no elements"),
    ((np.zeros((4, 64), np.int8), np.ones((4, 2), F32), X.astype(int)), TypeError, "x "),
]


@pytest.mark.parametrize(("arguments", "error", "message"), BAD)
def test_errors(arguments, error, message):
    with pytest.raises(error, match=re.escape(message)):
        fs.identify_quantizer(*arguments)


@pytest.mark.parametrize(("more", "error", "message"), [
    ({"layout": "low-nibble"}, ValueError, "unknown layout='low-nibble'"),
    ({"layout": "awq"}, ValueError, "in layout='awq'"),
    ({"format": "int5000"}, ValueError, "int5000"),
    ({"format": "e2m1"}, ValueError, "codes must be 0 to 15"),
    ({"block": "rows"}, ValueError, "block must be"),
    ({"block": 7}, ValueError, "do not fit"),
    ({"block": (0, -1)}, ValueError, "block must"),
    ({"zero_points": np.ones(3, int)}, ValueError, "zero_points (3,) do not have the shape of the scales, (4, 2)"),
    ({"zero_points": np.full((4, 2), 0.5)}, TypeError, "zero_points must be integers"),
    ({"tensor_scale": [1.0, 2.0]}, ValueError, "tensor_scale must be one number"),
    ({"offsets": np.ones(3, F32)}, ValueError, "offsets (3,) do not have the shape"),
    ({"scale_format": "e9m9"}, ValueError, "e9m9"),
])  # fmt: skip
def test_errors_of_keywords(more, error, message):
    codes = np.full((4, 64), 99, np.int8)
    with pytest.raises(error, match=re.escape(message)):
        fs.identify_quantizer(codes, np.ones((4, 2), F32), X, **more)


def test_random_arguments_never_crash():
    rng = np.random.default_rng(0)
    for _ in range(30):
        shape = tuple(int(n) for n in rng.integers(1, 40, int(rng.integers(0, 4))))
        x = rng.standard_normal(shape).astype(F32)
        kinds = (np.int8, np.uint8, np.int32, np.uint32)
        size = tuple(int(n) for n in rng.integers(1, 40, int(rng.integers(0, 4)))) if rng.integers(2) else shape
        codes = rng.integers(0, 16, size).astype(some(rng, kinds))
        scales = rng.choice([0.0, 1.0, -1.0, np.nan, np.inf, 1e-45, 3e38], (*shape[:-1], 1) if shape else ())
        try:
            found = fs.identify_quantizer(codes, scales.astype(F32), x)
        except (ValueError, TypeError) as error:
            assert len(str(error)) > 20, error
            continue
        assert isinstance(str(found), str) and math.isfinite(len(found.refused))


# -- the report --------------------------------------------------------------------------------------------------------


def test_a_format_without_infinity_and_nan_only_saturates():
    x = matrix()
    for scheme, expected in (("mxfp4", ("saturates",)), ("nvfp4", ("saturates",))):
        assert fs.identify_quantizer(fs.quantize_blocks(x, scheme), None, x).values("clipping") == expected


def test_only_e4m3_is_transformer_engine():
    x = matrix()
    for scheme, name in (("mxfp4", "torchao RCEIL"), ("mxfp8", "torchao RCEIL, TransformerEngine MXFP8"),
                         ("mxfp8_e5m2", "torchao RCEIL")):  # fmt: skip
        assert fs.identify_quantizer(fs.quantize_blocks(x, scheme, rule="rceil"), None, x).names == (name,)


def test_nearest_rules_are_shown_once():
    x = matrix()
    q = fs.quantize_blocks(x, "mxfp4")
    codes, scales = q.codes.copy(), q.scales.codes.copy()
    codes[5, 96] ^= 2
    scales[5, 3] += 1
    text = str(fs.identify_quantizer(codes, scales, x, format="e2m1"))
    near = [line for line in text.splitlines() if line.startswith("near: ")]
    assert len(near) == len(set(near)) == 3
    stored, rule = 2.0 ** (int(scales[5, 3]) - 127), 2.0 ** (int(scales[5, 3]) - 128)
    assert f"block [5, 3]: stored {stored:.9g}, rule {rule:.9g} (1 of 256 blocks differs)" in text
    assert any(": element [" in line and "stored code" in line for line in near)
    assert "hint: is x the tensor that was quantized, bit for bit?" in text


@pytest.mark.parametrize(("shape", "block", "place"), [
    ((2, 4, 64), 32, (1, 3, 1)), ((4, 64), 32, (3, 1)), ((256,), 32, (7,)), ((4, 64), "tensor", (0,)),
])  # fmt: skip
def test_places_of_blocks_have_the_dimensions_of_x(shape, block, place):
    x = matrix(shape=(1, math.prod(shape))).reshape(shape)
    q = fs.quantize_blocks(x, "int8", block=block)
    scales = q.scales.values.copy()
    scales.reshape(-1)[-1] *= 1.5
    found = fs.identify_quantizer(q.codes, scales.astype(F32), x, format="int8", block=block)
    assert {each.first for each in found.refused if each.kind == "block" and each.mismatches == 1} == {place}


def test_a_tensor_of_a_file():
    file = fs.quantization.SafetensorsFile(FOLDER / "compressed-tensors.safetensors")
    tensor = file["mxfp4.weight"]
    x = tensor.dequantize()
    assert fs.identify_quantizer(tensor, None, x) == fs.identify_quantizer(tensor.quantized(), None, x)
    act = fs.quantization.SafetensorsFile(FOLDER / "gptq-v1.safetensors", config={"checkpoint_format": "gptq"})
    tensor = act["layer4act.weight"]
    found = fs.identify_quantizer(tensor, None, tensor.dequantize())
    assert tensor.columns is not None
    assert found.rows
