"""NVFP4 of today: calibrated scales of the tensor, 4over6, scales of rows and of 1x64, and packages' reference code."""

from __future__ import annotations

import json

import numpy as np
import pytest

import floatsim as fs
from tests.quantization.nvfp4_vectors import COMMITS, FILE, KEYWORDS, MATRICES, SIDES, cases, digest, given, matrix


@pytest.mark.parametrize("side", [SIDES[0], pytest.param(SIDES[1], marks=pytest.mark.full)])
@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.filterwarnings("ignore::floatsim.FloatsimWarning")
def test_equal_to_reference_code(name, side):
    """A million numbers each: many magnitudes and zeros, one outlier, and a calibrated scale with a NaN."""
    made = json.loads(FILE.read_text())
    assert made["commits"] == COMMITS
    x, found = matrix(name, side), {}
    for case in cases(name):
        scheme, keywords = KEYWORDS.get(case, (case, {}))
        q = fs.quantize_blocks(x, scheme, **keywords, **given(case, name, side))
        found[case] = digest(q.codes, q.scales.codes)
    assert found == made["digests"][f"{name} {side}"]


# -- calibrated scales of the tensor -----------------------------------------------------------------------------------


def numbers(shape: tuple[int, int] = (8, 64)) -> np.ndarray:
    return np.random.default_rng(3).normal(size=shape).astype(np.float32)


RULES = ["nvfp4", "nvfp4_torchao", "nvfp4_modelopt", "nvfp4_4over6", "fouroversix"]


@pytest.mark.parametrize("scheme", RULES)
@pytest.mark.parametrize("outer", ["tensor", "row", 32])
def test_the_own_magnitude_given_changes_nothing(scheme, outer):
    x = numbers()
    q = fs.quantize_blocks(x, scheme, outer=outer)
    groups = {"tensor": x.reshape(1, -1), "row": x, 32: x.reshape(-1, 32)}[outer]
    amax = np.abs(groups).max(axis=1).reshape(q.tensor_scale.shape)
    again = fs.quantize_blocks(x, scheme, outer=outer, tensor_amax=amax)
    assert np.array_equal(q.codes, again.codes)
    assert np.array_equal(q.scales.codes, again.scales.codes)
    assert np.array_equal(q.tensor_scale.codes, again.tensor_scale.codes)
    assert np.array_equal(q.values, again.values)


@pytest.mark.parametrize("scheme", RULES)
def test_a_given_scale_is_the_scale_of_the_tensor(scheme):
    """A power of two has an exact reciprocal, so that the codes are those of the magnitude that it stands for."""
    x, limit = numbers(), fs.quantization.as_scheme(scheme).scale_limit
    q = fs.quantize_blocks(x, scheme, tensor_scale=2.0**-8)
    assert q.tensor_scale.item() == 2.0**-8
    assert np.array_equal(q.codes, fs.quantize_blocks(x, scheme, tensor_amax=2.0**-8 * limit * 6).codes)
    assert np.linalg.norm(q.values - x) < 0.13 * np.linalg.norm(x)


@pytest.mark.parametrize("outer", ["row", 32])
def test_every_group_is_quantized_as_a_tensor(outer):
    x = numbers((6, 80))  # the last group of a row is short
    x[2] = 0
    for scheme in RULES:
        q = fs.quantize_blocks(x, scheme, outer=outer)
        width = 80 if outer == "row" else outer
        for start in range(0, 80, width):
            for i in range(len(x)):
                part = x[i : i + 1, start : start + width]
                one = fs.quantize_blocks(part, scheme)
                assert np.array_equal(one.codes, q.codes[i : i + 1, start : start + width])
                assert np.array_equal(one.values, q.values[i : i + 1, start : start + width])
                assert q.tensor_scale.values[i, start // width] == one.tensor_scale.item()
    stack = np.stack([x, x[::-1]])
    of_stack = fs.quantize_blocks(stack, "nvfp4", outer=outer)
    assert np.array_equal(of_stack.values[1], fs.quantize_blocks(x[::-1], "nvfp4", outer=outer).values)
    assert of_stack.nbits == x.size * 2 * 4 + of_stack.scales.size * 8 + of_stack.tensor_scale.size * 32


# -- overflow of block scales ------------------------------------------------------------------------------------------


def test_overflow_of_block_scales_is_reported():
    """Model-Optimizer 1633: the calibrated magnitude is smaller than that of a block, and the scale becomes NaN."""
    x = np.ones((2, 32), np.float32)
    x[1, 16:] = 4.0
    message = (
        r"1 of 4 block scales are beyond 448.*tensor_amax=1 is smaller than the data's, 4\. They become NaN "
        r"\(rule='nvfp4_modelopt', scale_overflow='nan'"
    )
    with pytest.warns(fs.FloatsimWarning, match=message):
        q = fs.quantize_blocks(x, "nvfp4_modelopt", tensor_amax=1.0, scale_overflow="nan")
    assert q.scales.codes.tolist() == [[0x7E, 0x7E], [0x7E, 0x7F]]
    assert np.isnan(q.values[1, 16:]).all()
    assert np.array_equal(q.values[0], x[0])
    for scheme in (*RULES, "nvfp4_row", "nvfp4_1x64"):
        with pytest.warns(fs.FloatsimWarning, match="They become 448, and their largest elements are clipped"):
            clipped = fs.quantize_blocks(x, scheme, tensor_amax=1.0, scale_max=448.0)
        assert clipped.scales.values[1, 1] == 448
        assert clipped.values[1, 16:].tolist() == [clipped.values[1, 16]] * 16
        assert 0.99 < clipped.values[1, 16] < 1.01
    with pytest.warns(fs.FloatsimWarning, match=r"tensor_scale=0\.0001 is below 0\.001488"):
        fs.quantize_blocks(x, "nvfp4", tensor_scale=1e-4)
    with pytest.warns(fs.FloatsimWarning, match="the largest magnitude is 3000"):
        fs.quantize_blocks(x * 750, "nvfp4_single")


@pytest.mark.parametrize(("factor", "count"), [(464 / 448, 0), (465 / 448, 1)])
@pytest.mark.parametrize("overflow", ["nan", "saturate"])
def test_the_boundary_of_overflow(factor, count, overflow, recwarn):
    """464 lies in the middle between 448 and 480, and 448 is even."""
    x = np.zeros((1, 32), np.float32)
    x[0, 16] = factor
    q = fs.quantize_blocks(x, "nvfp4_torchao", tensor_scale=1 / 2688, scale_overflow=overflow)
    assert q.scales.codes[0, 1] == (0x7F if count and overflow == "nan" else 0x7E)
    assert len(recwarn) == count


def test_no_warning_without_a_given_scale(recwarn):
    for scheme in (*RULES, "nvfp4_single"):
        fs.quantize_blocks(numbers(), scheme)
    assert not recwarn


# -- 4over6, two dimensions, E5M3 --------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["nvfp4_4over6", "nvfp4_4over6_mse", "fouroversix", "fouroversix_mae"])
@pytest.mark.parametrize("block", [(1, 16), (16, 16)])
def test_4over6_takes_the_smaller_error(scheme, block):
    """Against the choice of both candidates by their values, up to errors that are equal but for the last bits."""
    x = numbers((48, 64))
    x[:, 32:] = np.sign(x[:, 32:]) * (0.75 + 0.25 * np.tanh(x[:, 32:]))  # in (0.5, 1): the numbers 3 and 4 are near
    square = fs.quantization.as_scheme(scheme).rule.endswith("mse")
    q = fs.quantize_blocks(x, scheme, block=block)
    errors = []
    for expansion in (1.0, 1.5):
        grid = x.reshape(48 // block[0], block[0], 4, 16)
        amax = np.abs(grid).max(axis=(1, 3), keepdims=True)
        scale = fs.quantize(amax / 6 * (1536 / np.abs(x).max()) * expansion, "e4m3") * np.abs(x).max() / 1536
        values = fs.quantize(grid / scale, "e2m1", overflow="saturate_finite") * scale
        distance = np.abs(values - grid) ** (2 if square else 1)
        errors.append(distance.sum(axis=(1, 3)))
    chosen = (np.abs(q.values - x) ** (2 if square else 1)).reshape(48 // block[0], block[0], 4, 16).sum(axis=(1, 3))
    assert np.allclose(chosen, np.minimum(*errors), rtol=1e-5)
    takes_four = errors[1] < errors[0]
    assert 0.1 < takes_four.mean() < 0.9


@pytest.mark.parametrize("block", [(1, 16), (16, 16)])
def test_short_blocks_of_4over6_are_filled_with_zeros(block):
    x, filled = numbers((5, 40)), np.zeros((16, 48), np.float32)
    filled[:5, :40] = x
    for scheme in ("nvfp4_4over6", "fouroversix"):
        whole = fs.quantize_blocks(filled, scheme, block=block).codes[:5, :40]
        assert np.array_equal(fs.quantize_blocks(x, scheme, block=block).codes, whole)


def test_4over6_reduces_the_error():
    x = numbers((64, 256))
    errors = [np.sum((fs.quantize_blocks(x, s).values - x) ** 2) for s in ("nvfp4", "nvfp4_4over6_mse")]
    assert errors[1] < 0.9 * errors[0]


def test_square_blocks_of_mxfp8_are_those_of_the_transpose():
    x = numbers((64, 96))
    for scheme in ("mxfp8_2d", "te_mxfp8_weight"):
        q, turned = fs.quantize_blocks(x, scheme), fs.quantize_blocks(x.T, scheme)
        assert q.scales.shape == (2, 3)
        assert np.array_equal(q.codes, turned.codes.T)
        assert np.array_equal(q.scales.codes, turned.scales.codes.T)


def test_scales_in_e5m3():
    """A byte of 5 exponent bits and 3 trailing bits, without a sign. Small tensors need no second scale."""
    fmt = fs.quantization.UE5M3
    for code in (0, 1, 7, 8, 100, 254):
        field, low = code >> 3, code & 7
        assert fs.decode(code, fmt) == (low * 2.0**-17 if field == 0 else (8 + low) * 2.0 ** (field - 18))
    assert np.isnan(fs.decode(255, fmt))
    x = numbers() * np.float32(1e-3)
    q = fs.quantize_blocks(x, "nvfp4_e5m3")
    assert q.tensor_scale is None
    assert q.nbits == x.size * 4.5
    errors = [np.linalg.norm(fs.quantize_blocks(x, s).values - x) for s in ("nvfp4_e5m3", "nvfp4_single", "nvfp4")]
    assert errors[0] < 1.05 * errors[2] < 0.5 * errors[1]
    for name in ("ue5m3", "E5M3"):
        again = fs.quantize_blocks(x, "nvfp4_e5m3", scale_format=name)
        assert np.array_equal(again.scales.codes, q.scales.codes)


def test_nan_in_e5m3():
    """A block with NaN has the scale NaN, as by the other rules of NVFP4. Other blocks and formats are unchanged."""
    x = numbers((3, 40))
    plain = fs.quantize_blocks(x, "nvfp4_e5m3")
    x[1, 17] = np.nan
    q = fs.quantize_blocks(x, "nvfp4_e5m3")
    assert (q.scales.codes != plain.scales.codes).tolist() == [[False] * 3, [False, True, False], [False] * 3]
    assert q.scales.codes[1, 1] == 255
    assert np.isnan(q.values[1, 16:32]).all() and np.isnan(q.values).sum() == 16
    assert np.array_equal(q.codes[1, 16:32], fs.quantize_blocks(x, "nvfp4").codes[1, 16:32])
    assert fs.quantize_blocks(x, "nvfp4_e5m3", factor="multiplier").scales.codes[1, 1] == 255
    assert fs.quantize_blocks(x, "nvfp4_e5m3", scale_format="fp32").scales.values[1, 1] == 1
    x[1, 17] = np.inf
    assert fs.quantize_blocks(x, "nvfp4_e5m3").scales.values[1, 1] == 1


@pytest.mark.parametrize("scheme", [*RULES, "nvfp4_single"])
@pytest.mark.parametrize("given", [{}, {"tensor_amax": 8.0}])
def test_infinity(scheme, given, recwarn):
    """`scale_overflow` decides, without a warning."""
    x = numbers((2, 32))
    x[1, 3] = np.inf
    given = {} if scheme == "nvfp4_single" else given
    assert fs.quantize_blocks(x, scheme, **given).scales.values[1, 0] == 448
    lost = fs.quantize_blocks(x, scheme, **given, scale_overflow="nan").scales.values
    assert np.isnan(lost).tolist() == [[False, False], [True, False]]
    assert not recwarn


def test_modelopt_takes_one_for_quotients_that_are_zero():
    x = np.float32([[0.0] * 16 + [1e-45] * 16 + [1.0] * 16])
    assert fs.quantize_blocks(x, "nvfp4_modelopt", tensor_scale=1.0).scales.values.tolist() == [[1, 1, 0.171875]]


# -- empty tensors -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["nvfp4", *RULES[1:], "nvfp4_row", "nvfp4_1x64", "nvfp4_e5m3", "nvfp4_weight"])
@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 16), (0, 0), (2, 0, 16), (0, 3, 80)])
def test_empty_tensors(scheme, shape):
    outers = [None] if scheme in ("nvfp4_e5m3", "nvfp4_weight") else [None, "row", 64]
    x = np.zeros(shape, np.float32)
    for outer in outers:
        q = fs.quantize_blocks(x, scheme, outer=outer)
        assert q.codes.shape == q.values.shape == shape
        assert q.scales.size == 0
        if q.tensor_scale is not None and q.tensor_scale.shape:
            assert q.tensor_scale.size == 0 and q.tensor_scale.ndim == len(shape)
            again = fs.quantize_blocks(x, scheme, outer=outer, tensor_amax=1.0)
            assert again.tensor_scale.shape == q.tensor_scale.shape


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("scheme", "keywords", "message"), [
    *(("nvfp4", {"tensor_scale": x}, f"tensor_scale must be positive and finite in FP32.*got {x}")
      for x in (0.0, -1.0, 1e-46, np.nan)),
    *(("nvfp4", {"tensor_amax": x}, f"tensor_amax must be 0 or positive and finite in FP32.*got {x}")
      for x in (-1.0, 1e-46, np.nan)),
    *(("nvfp4", {name: x}, rf"{name} must be .* at most its largest number, 3.40282e\+38; got")
      for name in ("tensor_scale", "tensor_amax") for x in (1e39, 3.5e38, np.inf)),
    ("nvfp4_row", {"tensor_amax": [[1.0]] * 7 + [[1e39]]}, "tensor_amax must be"),
    ("nvfp4", {"tensor_scale": 1.0, "tensor_amax": 1.0}, "give one"),
    ("nvfp4", {"tensor_scale": [1.0, 2.0]}, "does not fit the groups of `outer`"),
    ("nvfp4_single", {"tensor_scale": 1.0}, "rule='nvfp4_single' has no scale of the tensor"),
    ("int8", {"tensor_amax": 1.0}, "rule='absmax' has no scale of the tensor"),
    ("nvfp4", {"tensor_amax": 1.0, "scale": 1.0}, "scale replaces the rule"),
    ("nvfp4", {"outer": "rows"}, "did you mean 'row'"),
    ("nvfp4", {"outer": 40}, "multiple of the width of a block, 16"),
    ("nvfp4_weight", {"outer": "row"}, "needs blocks within a row"),
    ("mxfp8", {"outer": "row"}, "outer='row' is for the rules nvfp4"),
    ("mxfp8", {"scale_max": 256}, "scale_max=256 is for the rules nvfp4"),
    ("nvfp4", {"scale_max": 500}, "at most 448; use 448 or 256, not 500"),
    ("mxfp8", {"scale_overflow": "nan"}, "is for nvfp4"),
    ("nvfp4", {"scale_overflow": "infinity"}, "scale_overflow='infinity' is not known"),
    ("nvfp4_4over6", {"block": 32}, r"the blocks \(1, 16\) and \(16, 16\)"),
    ("nvfp4", {"scale_format": "e5m3"}, "rule='absmax' takes other formats"),
])  # fmt: skip
def test_errors(scheme, keywords, message):
    with pytest.raises(ValueError, match=message):
        fs.quantize_blocks(numbers(), scheme, **keywords)
