"""Scaling by schemes: integer products, rotations, and recipes with a scheme for each operand of each product."""

from __future__ import annotations

import numpy as np
import pytest

import floatsim as fs
from floatsim.training import Gemm, Policy, ProductScheme, SchemeScaling, as_scaling

FORWARD = {"roles": ("input", "weight"), "product": "forward"}
FP32 = (fs.FP32, fs.FP32)


def operands(shape_a=(6, 96), shape_b=(96, 5), seed=0):
    rng = np.random.default_rng(seed)
    return tuple(fs.array(rng.normal(size=shape).astype(np.float32), "fp32") for shape in (shape_a, shape_b))


def relative_error(y, a, b):
    exact = a.values @ b.values
    return np.linalg.norm(y.values - exact) / np.linalg.norm(exact)


def multiply(scaling, a, b, formats=FP32, **keywords):
    return as_scaling(scaling).start(0).matmul(a, b, formats=formats, **{**FORWARD, **keywords})


# -- integer products --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [8, 4])
def test_rows_of_integers_are_an_integer_product(bits):
    """W8A8: int32 sums, times the scale of the row, then of the column, in FP32."""
    a, b = operands()
    x, w = a.values.astype(np.float32), b.values.astype(np.float32)
    largest = np.float32(2 ** (bits - 1) - 1)
    of_a, of_b = np.abs(x).max(axis=1, keepdims=True) / largest, np.abs(w).max(axis=0, keepdims=True) / largest
    acc = np.rint(x / of_a).astype(np.int64) @ np.rint(w / of_b).astype(np.int64)
    expected = (acc.astype(np.float32) * of_a) * of_b
    found = multiply(f"row(int{bits})", a, b)
    assert np.array_equal(found.values.astype(np.float32), expected)


def test_one_scale_for_each_tensor():
    a, b = operands()
    x, w = a.values.astype(np.float32), b.values.astype(np.float32)
    of_a, of_b = np.abs(x).max() / np.float32(127), np.abs(w).max() / np.float32(7)
    acc = np.rint(x / of_a).astype(np.int64) @ np.rint(w / of_b).astype(np.int64)
    expected = (acc.astype(np.float32) * of_a) * of_b
    assert np.array_equal(multiply("tensor(int8, int4)", a, b).values.astype(np.float32), expected)


def test_llm_int8_is_the_function():
    a, b = operands()
    x = a.values.copy()
    x[:, 3] *= 20
    a = fs.array(x, "fp32")
    expected = fs.quantization.llm_int8_matmul(a, b, threshold=6.0, accumulate="fp32")
    assert np.array_equal(multiply("llm_int8", a, b).values, expected.values)
    turned = multiply("llm_int8", fs.array(b.values.T, "fp32"), fs.array(x.T, "fp32"), roles=("weight", "input"))
    assert np.array_equal(turned.values, expected.values.T)
    never = multiply(SchemeScaling(ProductScheme(outliers=0.0)), a, b)
    assert relative_error(never, a, b) > 2 * relative_error(expected, a, b)


def test_smoothquant_moves_outliers_into_the_weights():
    a, b = operands((32, 96))
    x = a.values.copy()
    x[:, [3, 50]] *= 50
    a = fs.array(x, "fp32")
    plain, smooth = multiply("row(int8)", a, b), multiply("smoothquant", a, b)
    assert relative_error(smooth, a, b) < 0.5 * relative_error(plain, a, b)
    s = np.sqrt(np.abs(x).max(axis=0) / np.abs(b.values).max(axis=1)).astype(np.float32)
    by_hand = multiply(
        "row(int8)", fs.array((x.astype(np.float32) / s), "fp32"),
        fs.array(b.values.astype(np.float32) * s[:, np.newaxis], "fp32"),
    )  # fmt: skip
    assert np.array_equal(smooth.values, by_hand.values)
    other = multiply(as_scaling("smoothquant", smoothing=0.0), a, b)
    assert not np.array_equal(other.values, smooth.values)


def test_a_rotation_leaves_the_product_and_spreads_outliers():
    a, b = operands((32, 100), (100, 5))  # filled to 112 and 128
    x = a.values.copy()
    x[:, 7] *= 40
    a, rows = fs.array(x, "fp32"), fs.quantization.Scheme("int4", "row")
    assert relative_error(multiply(SchemeScaling(ProductScheme(rotate=64)), a, b), a, b) < 1e-6
    errors = [
        relative_error(multiply(SchemeScaling(ProductScheme(rows, rows, rotate=n)), a, b), a, b) for n in (0, 128)
    ]
    assert errors[1] < 0.6 * errors[0]


def test_groups_along_k_and_zero_points_are_dequantized():
    a, b = operands((4, 256), (256, 8))
    schemes = fs.quantization.Scheme("int8", 128), "awq"
    found = multiply(SchemeScaling(ProductScheme(*schemes), accumulate="fp32"), a, b)
    left = fs.quantize_blocks(a, schemes[0]).dequantize()
    right = fs.quantize_blocks(b.values.astype(np.float32).T, "awq").dequantize()
    expected = fs.matmul(left, fs.array(right.values.T, "fp32"), accumulate="fp32")
    assert np.array_equal(found.values, np.asarray(expected.values))


def test_integers_in_a_policy():
    policy = Policy("fp32", rules={"linear": Gemm("int8", scaling="row")})
    assert policy.decide("linear").scaling == "row(int8)"
    assert repr(Gemm("int8", weight="int4", scaling="SmoothQuant")) == "Gemm(FP32, scaling=smoothquant(int8, int4))"
    assert Gemm("int8", scaling="row(int4)").scaling == "row(int8)"


def test_integers_in_a_model_of_pytorch():
    """The gradients are those of the values before the quantization (straight-through)."""
    torch = pytest.importorskip("torch", reason="runs a model of PyTorch")
    import floatsim.torch as ft

    model = torch.nn.Linear(96, 5)
    x = torch.from_numpy(operands()[0].values.astype(np.float32)).requires_grad_()
    with ft.emulate(Policy("fp32", accumulate="fp32", rules={"linear": Gemm("int8", scaling="row")})):
        y = model(x)
        y.sum().backward()
    weight, bias = (each.detach().numpy() for each in (model.weight, model.bias))
    acc = multiply("row(int8)", fs.array(x.detach().numpy(), "fp32"), fs.array(weight.T, "fp32"))
    assert np.array_equal(y.detach().numpy(), acc.values.astype(np.float32) + bias)
    ones = np.ones((6, 5), np.float32)
    by_x = fs.matmul(fs.array(ones, "fp32"), fs.array(weight, "fp32"), accumulate="fp32")
    assert np.array_equal(x.grad.numpy(), by_x.values)


def test_formats_of_a_gemm_are_those_of_its_rows():
    a, b = operands()
    found = multiply("row", a, b, formats=(fs.E4M3, fs.E4M3))
    left = fs.quantize_blocks(a, "e4m3", block="row").dequantize()
    right = fs.quantize_blocks(b, "e4m3", block="column").dequantize()
    assert np.array_equal(found.values, fs.matmul(left, right, accumulate="fp32").values)


# -- recipes by direction ----------------------------------------------------------------------------------------------


def test_each_product_has_its_own_schemes():
    a, b = operands((32, 64), (64, 32))
    recipe = as_scaling("nvfp4_row_mxfp8").start(0)
    y = recipe.matmul(a, b, formats=FP32, **FORWARD)
    left = fs.quantize_blocks(a, "nvfp4_row").dequantize()
    right = fs.quantize_blocks(b.values.astype(np.float32).T, "nvfp4").dequantize().values.T
    assert np.array_equal(y.values, fs.matmul(left, fs.array(right, "fp32"), accumulate="fp32").values)
    g = operands((32, 32), seed=1)[0]
    for roles, product, operand in (
        (("gradient", "weight"), "input_gradient", fs.array(b.values.T, "fp32")),
        (("gradient", "input"), "weight_gradient", a),
    ):
        found = recipe.matmul(g, operand, formats=FP32, roles=roles, product=product)
        left = fs.quantize_blocks(g, "te_mxfp8").dequantize()
        right = fs.quantize_blocks(operand, "te_mxfp8", block=(32, 1)).dequantize()
        assert np.array_equal(found.values, fs.matmul(left, right, accumulate="fp32").values)
    untouched = SchemeScaling(ProductScheme("nvfp4", "nvfp4")).start(0)
    found = untouched.matmul(g, a, formats=(fs.BF16, fs.BF16), roles=("gradient", "input"), product="weight_gradient")
    plain = fs.matmul(fs.convert(g, "bf16"), fs.convert(a, "bf16"), accumulate="fp32", format="fp32")
    assert np.array_equal(found.values, plain.values)


def test_a_matrix_unit_takes_elements_and_scales():
    a, b = operands((32, 64), (64, 32))
    for schemes in (("mxfp8", "mxfp8_2d"), ("nvfp4_row", "nvfp4_weight")):
        recipe = SchemeScaling(ProductScheme(*schemes))
        found = multiply(recipe, a, b, accumulate="blackwell")
        plain = multiply(recipe, a, b)
        assert np.abs(found.values).max() > 0
        assert np.linalg.norm(found.values - plain.values) < 1e-3 * np.linalg.norm(plain.values)
    with pytest.raises(ValueError, match="change along K"):
        multiply(
            SchemeScaling(ProductScheme("nvfp4_1x64", "nvfp4")), *operands((32, 128), (128, 32)), accumulate="blackwell"
        )


def test_stochastic_rounding_of_a_role_is_unbiased():
    recipe = SchemeScaling(None, ProductScheme("mxfp4", "mxfp4", "mxfp4", stochastic=("gradient",)))
    scaler = recipe.start(3)
    g = fs.array(np.full((4000, 32), [1.0] * 16 + [0.3] * 16, np.float32), "fp32")
    w = fs.array(np.eye(32, dtype=np.float32), "fp32")
    found = scaler.matmul(g, w, formats=FP32, roles=("gradient", "weight"), product="input_gradient").values
    assert len(np.unique(found[:, 20])) == 2
    assert found[:, 16:].mean() == pytest.approx(0.3, abs=0.005)
    state = scaler.state_dict()
    again = recipe.start(3)
    again.load_state_dict(state)
    one, other = (s.matmul(g, w, formats=FP32, roles=("gradient", "weight"), product="input_gradient")
                  for s in (scaler, again))  # fmt: skip
    assert np.array_equal(one.codes, other.codes)


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda: Gemm("int8"), ValueError, "integer operands need scaling= one of row, tensor, smoothquant, llm_int8"),
    (lambda: Gemm("int8", scaling="mx"), ValueError, "integer operands need scaling= one of row"),
    (lambda: Gemm("bf16", weight="int4", scaling="row"), ValueError, "must be an integer format beside 'int4'"),
    (lambda: Gemm("e4m3", scaling="mx(int8)"), ValueError, "row, tensor, smoothquant, llm_int8 take formats"),
    (lambda: Gemm("int8", scaling="rows"), ValueError, "one of row"),
    (lambda: ProductScheme("nvfp5"), ValueError, "input: .*did you mean 'nvfp4'"),
    (lambda: ProductScheme("nvfp4", rotate=12), ValueError, "power of two, such as 16, not 12"),
    (lambda: ProductScheme(smoothing=2.0), ValueError, "smoothing must be from 0 to 1"),
    (lambda: ProductScheme(outliers=-1.0), ValueError, "outliers"),
    (lambda: ProductScheme(stochastic=("gradients",)), ValueError, "did you mean 'gradient'"),
    (lambda: SchemeScaling("nvfp4"), TypeError, "forward must be a ProductScheme"),
    (lambda: as_scaling("row(int9)"), ValueError, "int9"),
])  # fmt: skip
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()
