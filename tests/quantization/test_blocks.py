"""`fs.quantize_blocks` against the definitions on exact rationals, and its errors."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import ml_dtypes
import numpy as np
import oracles as o
import pytest

import floatsim as fs
from floatsim import Rounding
from floatsim.quantization import SCHEMES, IntegerFormat, LookupFormat, Quantized, Scheme, as_scheme
from tests.marks import cases
from tests.quantization import definitions as d

pytestmark = pytest.mark.filterwarnings("ignore:.*block scales are beyond 448:floatsim.FloatsimWarning")

CASES = {
    **{name: (scheme, {}) for name, scheme in SCHEMES.items()},
    **{f"int{n}": (f"int{n}", {"block": "row"}) for n in range(2, 9)},
    "ternary": ("ternary", {"block": "row"}),
    "binary": ("binary", {"block": "row"}),
    "int8 fp16 scales": ("int8", {"block": (3, 5), "scale_format": "fp16"}),
    "int8 bf16 reciprocal": ("int8", {"block": "column", "scale_format": "bf16", "factor": "reciprocal"}),
    "uint8 asymmetric": ("uint8", {"block": "row", "rule": "asymmetric"}),
    "int4 asymmetric": ("int4", {"block": 7, "rule": "asymmetric", "factor": "reciprocal"}),
    "uint2 asymmetric fp16": ("uint2", {"block": 4, "rule": "asymmetric", "scale_format": "fp16"}),
    "int4 full range": ("int4", {"block": 8, "rule": "full_range"}),
    "int8 floor": ("int8", {"block": 8, "rule": "floor", "scale_format": "fp32"}),
    "mxint8 ceil bf16": ("mxint8", {"rule": "ceil", "scale_format": "bf16"}),
    "mxint8 absmax": ("mxint8", {"rule": "absmax", "scale_format": "fp32", "factor": "reciprocal"}),
    "int4 nested": ("int4", {"block": 2, "nested": "dynamic8"}),
    "int8 no clipping": ("int8", {"block": "row", "rule": "no_clipping"}),
    "int8 powers of two": ("int8", {"block": "row", "rule": "rceil"}),
    **{f"mx {rule}": ("mxfp8", {"rule": rule}) for rule in ("rceil", "ceil", "even")},
    **{f"mxfp4 {rule}": ("mxfp4", {"rule": rule}) for rule in ("rceil", "ceil", "even")},
    "e4m3 e8m0 absmax": ("e4m3", {"block": 8, "scale_format": "e8m0"}),
    "e5m2 e4m3 scales": ("e5m2", {"block": 8, "scale_format": "e4m3"}),
    "fp16": ("fp16", {"block": "tensor"}),
    "bf16 pow2": ("bf16", {"block": 3, "rule": "rceil", "scale_format": "fp32"}),
}


def matrix(seed: int, dtype: type = np.float32) -> np.ndarray:
    """Rows with ties, zeros, both signs of zero, an outlier, tiny numbers and numbers of many magnitudes."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(6, 37))
    x[1] *= np.exp2(rng.integers(-40, 40, 37))
    x[2] = rng.integers(-14, 15, 37) / 2 * 0.25  # multiples of half a step, if the largest gives the scale
    x[2, 0] = 7 * 0.25
    x[3] = 0
    x[3, ::2] = -0.0
    x[4] *= 1e-37
    x[5, 3] = -1000.0
    return x.astype(dtype)


def expected(x: np.ndarray, scheme: Scheme, mode: Rounding) -> tuple:
    """Codes, scales, zero points and dequantized values by the definitions."""
    carrier = d.carrier_of(scheme, x.dtype)
    exact = [[d.nearest(Fraction(float(v)), carrier) for v in row] for row in x]
    codes = np.zeros(x.shape, np.int64)
    values = np.zeros(x.shape)
    blocks = d.blocks_of(x.shape, scheme)
    grid = tuple(max(at[axis] for at in blocks) + 1 for axis in (0, 1))
    scales, zeros = np.zeros(grid), np.zeros(grid, np.int64)
    groups = {at: d.outer_group(exact, scheme, at) for at in blocks}
    of_blocks = {
        at: d.block([exact[i][j] for i, j in indices], scheme, carrier, groups[at]) for at, indices in blocks.items()
    }
    stored = {at: block.scale for at, block in of_blocks.items()}
    if scheme.nested is not None:
        order = sorted(stored)
        stored = dict(zip(order, d.nested_scales([stored[at] for at in order], scheme.nested), strict=True))
    for at, indices in blocks.items():
        block = of_blocks[at]
        scales[at], zeros[at] = float(stored[at]), block.zero
        whole = d.tensor_scale(groups[at], scheme)
        total = stored[at] if whole is None else d.nearest(stored[at] * whole, carrier)
        for i, j in indices:
            code = d.code(exact[i][j], block, scheme, carrier, mode, bool(np.signbit(x[i, j])))
            if scheme.rule.startswith("fouroversix") and not block.scale:
                code = 0
            codes[i, j] = code
            if isinstance(scheme.format, IntegerFormat):
                element = Fraction(code - block.zero, d.unit_of(scheme.format))
            elif isinstance(scheme.format, LookupFormat):
                element = Fraction(scheme.format.values[code])
            else:
                at_format = o.layout(scheme.format)
                element = at_format.worth(code & ~at_format.sign_bit) * (-1 if code & at_format.sign_bit else 1)
            values[i, j] = float(d.nearest(element * total, carrier))
    return codes, scales, zeros, values


def check(x: np.ndarray, scheme: object, keywords: dict, mode: Rounding = Rounding.TIES_TO_EVEN) -> None:
    table = isinstance(as_scheme(scheme).format, LookupFormat)
    q = fs.quantize_blocks(x, scheme, **keywords, **({} if table else {"rounding": mode}))
    codes, scales, zeros, values = expected(x, q.scheme, mode)
    np.testing.assert_array_equal(q.scales.values.reshape(scales.shape), scales)
    if q.zero_points is not None:
        np.testing.assert_array_equal(q.zero_points.reshape(zeros.shape), zeros)
    np.testing.assert_array_equal(q.codes.astype(np.int64), codes)
    np.testing.assert_array_equal(q.values, values)


QUICK_CASES = ["int8", "int4 asymmetric", "mxfp4", "nvfp4", "deepseek", "nf4", "fp16"]


@pytest.mark.parametrize("name", cases(quick=QUICK_CASES, full=CASES))
def test_equals_the_definition(name):
    scheme, keywords = CASES[name]
    check(matrix(1), scheme, keywords)


@pytest.mark.parametrize(
    "mode",
    cases(quick=[Rounding.TIES_TO_EVEN, Rounding.TO_ODD], full=[m for m in Rounding if m is not Rounding.STOCHASTIC]),
    ids=lambda m: m.name,
)
@pytest.mark.parametrize("name", ["int4", "uint8 asymmetric", "mxfp8", "nvfp4", "deepseek"])
def test_every_rounding_mode(name, mode):
    scheme, keywords = CASES[name]
    check(matrix(2)[:4], scheme, keywords, mode)


@pytest.mark.parametrize(
    "name", cases(quick=["int8"], full=["gptq", "uint8 asymmetric", "mxfp8", "nvfp4", "nf4", "deepseek_weight"])
)
def test_float64_input(name):
    scheme, keywords = CASES[name]
    check(matrix(3, np.float64), scheme, keywords)


@pytest.mark.parametrize("fmt", ["bf16", "fp16"])
def test_narrow_input_is_read_exactly(fmt):
    x = fs.array(matrix(4)[[0, 2, 3, 5]], fmt)
    for scheme in ("int8", "mxfp8", "nf4"):
        q, wide = fs.quantize_blocks(x, scheme), fs.quantize_blocks(x.values.astype(np.float32), scheme)
        assert np.array_equal(q.codes, wide.codes)
        assert np.array_equal(q.scales.codes, wide.scales.codes)


def test_least_amax():
    x = np.float32([[1e-6, 0, 0, -2e-5], [1, 2, 3, 4]])
    check(x, Scheme("e4m3", 4, least_amax=1e-4), {})
    assert fs.quantize_blocks(x, "deepseek").scales.values[0, 0] == np.float32(1e-4) / np.float32(448)


# -- stochastic rounding -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["int4", "e4m3"])
def test_stochastic_rounding_draws_for_the_flat_index(scheme):
    """The codes are those of one `fs.encode` of all scaled elements, whatever the blocks."""
    x = np.random.default_rng(5).normal(size=(3, 50_000)).astype(np.float32)
    for block in ("row", "tensor", 1000):
        q = fs.quantize_blocks(x, scheme, block=block, rounding="stochastic", seed=7)
        shape = q.scales.shape
        scales = np.float32(q.scales.values)
        full = scales if not shape else np.repeat(scales, x.shape[1] // shape[1], axis=1)
        t = x / full
        if scheme == "e4m3":
            expected = fs.encode(t, "e4m3", rounding="stochastic", seed=7, overflow="saturate_finite")
        else:
            expected = np.clip(fs.to_integer(t, np.int32, rounding="stochastic", seed=7), -8, 7)
        assert np.array_equal(q.codes, expected)


def test_stochastic_rounding_is_unbiased_and_needs_a_seed():
    x = np.full(20_000, 0.3, np.float32)
    q = fs.quantize_blocks(x, "int8", scale=1.0, rounding="stochastic", seed=1)
    assert set(q.codes) == {0, 1}
    assert q.codes.mean() == pytest.approx(0.3, abs=0.015)  # 4.6 standard deviations
    with pytest.raises(ValueError, match="seed"):
        fs.quantize_blocks(x, "int8", rounding="stochastic")


def test_a_stream_advances_once_per_call():
    x = np.full(1000, 0.5, np.float32)
    stream = fs.RandomStream(1)
    first, second = (fs.quantize_blocks(x, "int8", scale=1.0, rounding="stochastic", seed=stream) for _ in range(2))
    assert not np.array_equal(first.codes, second.codes)


# -- blocks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("block", "shape", "scales"), [
    ("tensor", (4, 6), ()), ("row", (4, 6), (4, 1)), ("column", (4, 6), (1, 6)), (4, (4, 6), (4, 2)),
    ((2, 3), (4, 6), (2, 2)), ((3, 4), (4, 6), (2, 2)), ((None, 2), (4, 6), (1, 3)), ((128, 128), (4, 6), (1, 1)),
    (4, (6,), (2,)), ("row", (6,), (1,)), ("tensor", (), ()), (2, (2, 3, 4), (2, 3, 2)), ((2, 2), (5, 3, 4), (5, 2, 2)),
    ("tensor", (2, 3, 4), ()), (4, (0, 6), (0, 2)), ("tensor", (0,), ()),
])  # fmt: skip
def test_shape_of_the_scales(block, shape, scales):
    x = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
    q = fs.quantize_blocks(x, "int8", block=block)
    assert q.scales.shape == scales
    assert q.codes.shape == q.values.shape == shape


def test_stacks_are_quantized_matrix_by_matrix():
    x = matrix(6).reshape(2, 3, 37)
    for scheme, block in (("int8", (2, 5)), ("mxfp8", (1, 32)), ("uint4", "column")):
        q = fs.quantize_blocks(x, scheme, block=block)
        for i in range(2):
            one = fs.quantize_blocks(x[i], scheme, block=block)
            assert np.array_equal(q.codes[i], one.codes)
            assert np.array_equal(q.scales.codes[i], one.scales.codes)


def test_memory_layouts_change_nothing():
    x = matrix(7)
    q = fs.quantize_blocks(x, "int8", block=8)
    for other in (np.asfortranarray(x), x[:, ::-1][:, ::-1], x.astype(">f4"), x.tolist()):
        again = fs.quantize_blocks(other, Scheme("int8", 8))
        assert np.array_equal(again.codes, q.codes) or isinstance(other, list)
    assert np.array_equal(fs.quantize_blocks(x.tolist(), "int8", block=8).codes.shape, x.shape)


def test_pieces_of_long_rows_and_of_many_rows():
    """The walk in pieces gives the codes of each block alone."""
    rng = np.random.default_rng(8)
    for shape, block in (((2, 200_001), 1000), ((70_001, 3), (700, 2)), ((150_000,), "tensor"), ((150_000,), 64)):
        x = rng.normal(size=shape).astype(np.float32)
        q = fs.quantize_blocks(x, "int8", block=block)
        y = x if x.ndim == 2 else x[np.newaxis]
        height, width = {1000: (1, 1000), 64: (1, 64), "tensor": y.shape}.get(block, block)
        scales = q.scales.values.reshape(-(-y.shape[0] // height), -(-y.shape[1] // width))
        for i, j in {(0, 0), (scales.shape[0] - 1, scales.shape[1] - 1), (0, scales.shape[1] // 2)}:
            part = y[i * height : (i + 1) * height, j * width : (j + 1) * width]
            scale = np.abs(part).max() / np.float32(127)
            assert scales[i, j] == scale
            codes = q.codes.reshape(y.shape)[i * height : (i + 1) * height, j * width : (j + 1) * width]
            assert np.array_equal(codes, np.rint(part / scale))


def test_rceil_is_the_rounded_product_with_a_reciprocal():
    """TransformerEngine multiplies by the float32 number 1 / 448, and rounds the product up to a power of two."""
    edge = np.float32(448)
    beside = (edge.view(np.int32) + np.arange(-50, 51)).astype(np.int32).view(np.float32)
    x = np.concatenate([beside, np.exp2(np.random.default_rng(1).uniform(-60, 60, 3000))]).astype(np.float32)
    half, above = np.frexp(x * (np.float32(1) / np.float32(448)))
    expected = np.exp2(above - (half == 0.5).astype(int))
    assert np.array_equal(fs.quantize_blocks(x, "te_mxfp8", block=1).scales.values, expected)


# -- zeros, tiny numbers, special values -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_zeros_stay_zeros(name):
    scheme, keywords = CASES[name]
    q = fs.quantize_blocks(np.zeros((2, 40), np.float32), scheme, **keywords)
    if name == "binary":
        assert np.all(q.values == 1)
    else:
        assert np.all(q.values == 0)


@pytest.mark.parametrize("name", [n for n in CASES if "deep" not in n and n not in (
    "binary", "int8 fp16 scales", "uint2 asymmetric fp16", "e5m2 e4m3 scales", "nvfp4_torchao", "nvfp4_single", "fp16",
    "nvfp4_e5m3", "awq", "int8 bf16 reciprocal",
)])  # fmt: skip
def test_tiny_blocks_keep_their_values(name):
    """N(0, 1e-37): the error is about that of N(0, 1).

    The exceptions have a least scale, a format of scales without such numbers, or a reciprocal beyond FP32's range.
    """
    scheme, keywords = CASES[name]
    x = np.random.default_rng(9).normal(size=(16, 256)).astype(np.float32)
    tiny = (x * np.float64(1e-37)).astype(np.float32)
    errors = []
    for y in (x, tiny):
        wide = y.astype(np.float64)
        errors.append(np.linalg.norm(fs.quantize_blocks(y, scheme, **keywords).values - wide) / np.linalg.norm(wide))
    assert errors[1] < 1.3 * errors[0]


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_integers_and_tables_refuse_special_values(special):
    for scheme in ("int8", "nf4", "binary"):
        with pytest.raises(ValueError, match="NaN or infinity"):
            fs.quantize_blocks(np.float32([1, special]), scheme)


def test_special_values_in_floating_point_blocks():
    x = np.float32([[1, 2, np.nan, 4], [1, -np.inf, 3, 4], [1, 2, 3, 4]])
    q = fs.quantize_blocks(x, "e4m3", block=4)
    assert q.scales.values[:2].tolist() == [[1], [1]]
    assert np.isnan(q.values[0]).tolist() == [False, False, True, False]
    assert q.values[1].tolist() == [1, -448, 3, 4]
    mx = fs.quantize_blocks(x, "mxfp8")
    assert np.isnan(mx.scales.values[:2]).all()
    assert np.isnan(mx.values[:2]).all()
    assert mx.values[2].tolist() == [1, 2, 3, 4]


def test_special_values_of_narrow_and_wide_input():
    for x in (np.float16([1, np.inf]), np.float64([1, np.nan]), np.float64([1, 1e300])):
        with pytest.raises(ValueError, match="NaN or infinity"):
            fs.quantize_blocks(x, "nf4")
    assert fs.quantize_blocks(np.float16([1, np.inf]), "e4m3").values.tolist() == [1, 448]


@pytest.mark.parametrize("scheme", ["int8", "e4m3", "int4"])
@pytest.mark.parametrize("scale_format", ["e8m0", "fp16", "e4m3", "fp32"])
def test_scales_are_never_zero(scheme, scale_format):
    """The quotient of the least float32 number and max is zero, and so would be the scale."""
    x = np.float32([[1e-45, 0], [1e-40, 1e-41], [0, 0]])
    q = fs.quantize_blocks(x, scheme, block="row", scale_format=scale_format)
    least = fs.as_format(scale_format).smallest_subnormal
    assert q.scales.values[0, 0] == least
    assert q.scales.values[2, 0] == 1
    assert np.all(np.isfinite(q.values))


# -- given scales ------------------------------------------------------------------------------------------------------


def test_given_scales_and_zero_points():
    x = matrix(10)
    q = fs.quantize_blocks(x, "int8", block="row", scale=np.full((6, 1), 0.1), zero_point=3)
    assert q.scales.values.tolist() == [[float(np.float32(0.1))]] * 6
    whole = np.clip(np.rint(x / np.float32(0.1)) + 3, -128, 127)
    assert np.array_equal(q.codes, whole)
    again = fs.quantize_blocks(x, "int8", block="row", scale=fs.quantize_blocks(x, "int8", block="row").scales)
    assert np.array_equal(again.codes, fs.quantize_blocks(x, "int8", block="row").codes)


def test_wage_and_binary_net_are_given_scales():
    """WAGE's k bits are the integers below 2**(k-1) in steps of 2**(1-k) (Wu et al., 2018); BinaryNet has no scale."""
    x = np.float32([-3, -0.6, -0.3, 0.2, 0.26, 1])
    q = fs.quantize_blocks(x, IntegerFormat("WAGE 2", -1, 1), scale=0.5)
    assert q.values.tolist() == [-0.5, -0.5, -0.5, 0, 0.5, 0.5]
    assert fs.quantize_blocks(x, "binary", scale=1.0).values.tolist() == [-1, -1, -1, 1, 1, 1]


@pytest.mark.parametrize("scale", [0.0, -1.0, np.nan, np.inf, [1.0, 0.0]])
def test_scales_that_are_refused(scale):
    with pytest.raises(ValueError, match="scale must be positive and finite"):
        fs.quantize_blocks(np.float32([[1, 2], [3, 4]]), "int8", block="column", scale=scale)


@pytest.mark.parametrize("scale_format", ["fp32", "e4m3", "e8m0"])
def test_a_scale_beyond_the_largest_number_of_its_format_is_refused(scale_format):
    largest = fs.as_format(scale_format).max
    fs.quantize_blocks(np.float32([1, 2]), "int8", scale=largest, scale_format=scale_format)
    with pytest.raises(ValueError, match=r"at most its largest number.* got"):
        fs.quantize_blocks(np.float32([1, 2]), "int8", scale=2 * largest, scale_format=scale_format)


@pytest.mark.parametrize("scheme", ["nvfp4", "nvfp4_torchao", "nvfp4_single"])
@pytest.mark.parametrize("kernels", [True, False])
def test_zeros_beside_tiny_numbers_stay_zeros(scheme, kernels, monkeypatch):
    """Factors beyond the largest number of FP32 are that number: infinity times 0 would be NaN."""
    from floatsim.emulator.elementwise import block_scales

    if not kernels:
        monkeypatch.setattr(block_scales.machine, "environment_is_default", lambda: False)
    for largest in (2.0**-149, 1e-40, 1e-38, 4e-34, 5.05e-34, 5.3e-34, 1e-30):
        x = np.zeros((1, 48), np.float32)
        x[0, 0], x[0, 17] = largest, largest / 4
        found = fs.quantize_blocks(x, scheme)
        assert found.values[0, 32:].tolist() == [0.0] * 16
        assert (found.values[0, 1:17] == 0).all()
        assert found.values[0, 0] <= 2 * largest


def test_a_scale_that_rounds_to_zero_is_refused():
    with pytest.raises(ValueError, match="positive and finite in FP16"):
        fs.quantize_blocks(np.float32([1, 2]), "int8", scale=1e-30, scale_format="fp16")


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("arguments", "message"), [
    (("nf5", {}), "did you mean 'nf4'"),
    (("mxpf8", {}), "did you mean 'mxfp8'"),
    (("in8", {}), "did you mean 'int8'"),
    (("fp8", {}), "E4M3 or E5M2"),
    (("q4_k", {}), r"type of GGUF files; fs.quantization.to_gguf\(x, 'q4_k'\)"),
    (("IQ2-XXS", {}), "type of GGUF files"),
    (("w4a16", {}), "'awq', 'gptq' and 'nf4'"),
    (("smoothquant", {}), r"Gemm\('int8', scaling='row'\)"),
    (("w8a9", {}), "did you mean 'w8a8'"),
    (("aqw", {}), "did you mean 'awq'"),
    (("int8", {"rule": "absmx"}), "did you mean 'absmax'"),
    (("int8", {"rule": "even"}), "not for INT8"),
    (("mxint8", {"rule": "asymmetric"}), "fixed-point numbers of MXINT8"),
    (("int8", {"nested": "dynamic9"}), "did you mean 'dynamic8'"),
    (("int8", {"nested": "nf4_nested"}), "no nested scales"),
    (("mxfp8", {"nested": "dynamic8"}), "must be FP32"),
    (("e4m3", {"rule": "asymmetric"}), "not for E4M3"),
    (("uint8", {"rule": "no_clipping"}), "full_range"),
    (("int8", {"factor": "times"}), "factor"),
    (("int8", {"block": "rows"}), "did you mean 'row'"),
    (("int8", {"block": 0}), "width of block"),
    (("int8", {"block": (1, 2, 3)}), "height and a width"),
    (("int8", {"scale_format": "fp64"}), "FP32"),
    (("fp32", {}), "no format of elements"),
    (("e8m0", {}), "no format of elements"),
    (("e4m3", {"rule": "nvfp4"}), "E2M1"),
    (("int8", {"rule": "asymmetric", "factor": "multiplier"}), "absmax"),
    (("int8", {"least_amax": -1.0}), "least_amax"),
    (("nf4", {"rounding": "toward_zero"}), "no rounding"),
    (("int8", {"zero_point": 1}), "needs scale"),
    (("e4m3", {"scale": 1.0, "zero_point": 1}), "integer formats"),
    (("int8", {"scale": 1.0, "zero_point": 128}), "-128 to 127"),
    (("int8", {"scale": [1.0, 2.0, 3.0]}), "does not fit the scales"),
])  # fmt: skip
def test_errors(arguments, message):
    scheme, keywords = arguments
    with pytest.raises(ValueError, match=message):
        fs.quantize_blocks(np.float32([[1, 2], [3, 4]]), scheme, **keywords)


def test_unknown_names_list_all_names_the_nearest_first():
    x = np.float32([[1, 2], [3, 4]])
    with pytest.raises(ValueError, match="known are") as error:
        fs.quantize_blocks(x, "zzz")
    assert all(name in str(error.value) for name in ("int4", "nf4", "mxint8", "nvfp4", "e4m3", "nf4_nested"))
    with pytest.raises(ValueError, match=r"did you mean 'mxfp8'\? known are mxfp8, te_mxfp8, mxfp8_2d, mxfp6, .*int4"):
        fs.quantize_blocks(x, "mxpf8")
    with pytest.raises(ValueError, match=r"did you mean 'asymmetric'\? known are asymmetric, .*nvfp4_single"):
        fs.quantize_blocks(x, "int8", rule="assymetric")


def test_unknown_keywords_list_all_keywords_the_nearest_first():
    x = np.float32([[1, 2], [3, 4]])
    with pytest.raises(TypeError, match=r"unknown keyword 'blok'; did you mean 'block'\? known are block, ") as error:
        fs.quantize_blocks(x, "int8", blok=3)
    assert all(name in str(error.value) for name in ("rule", "scale_format", "nested", "zero_point", "random_bits"))
    with pytest.raises(TypeError, match=r"Scheme: unknown keyword 'rul'; did you mean 'rule'\?.* rule, .*least_amax"):
        Scheme("int8", rul="floor")
    with pytest.raises(TypeError, match="best_scale: unknown keyword 'metod'; did you mean 'method'"):
        fs.best_scale(x, "int8", metod="mse")


def test_wrong_types():
    with pytest.raises(TypeError, match="int"):
        fs.quantize_blocks(np.arange(4), "int8")
    with pytest.raises(TypeError, match="q must be"):
        fs.dequantize_blocks(np.arange(4))
    with pytest.raises(ValueError, match="no blocks"):
        fs.quantize_blocks(1.0, "int8", block=4)


@pytest.mark.parametrize("name", ["nf4", "int8", "uint4", "ternary", "mxfp8", "nvfp4"])
def test_as_format_names_quantize_blocks(name):
    with pytest.raises(ValueError, match=r"fs\.quantize_blocks"):
        fs.as_format(name)


# -- the result --------------------------------------------------------------------------------------------------------


def test_results_are_immutable():
    q = fs.quantize_blocks(np.float32([1, 2]), "int8")
    with pytest.raises(ValueError, match="read-only"):
        q.codes[0] = 3
    with pytest.raises(AttributeError):
        q.codes = None
    with pytest.raises(ValueError, match="do not fit"):
        Quantized(np.zeros((2, 2), np.int8), fs.array([1.0], "fp32"), Scheme("int8", "row"))


SCALE = fs.array([[0.5]], "fp32")
UINT4 = Scheme("uint4", block=(1, 4))


@pytest.mark.parametrize(("codes", "scheme", "zero", "error", "words"), [
    (np.uint8([[200, 1, 2, 3]]), UINT4, [[0]], ValueError, r"codes must be 0 to 15, the codes of UINT4, not 200"),
    (np.float64([[2.5, 1, 2, 3]]), UINT4, [[0]], TypeError, r"codes must be integers, codes of UINT4, not float64"),
    (np.uint8([[0, 1, 2, 15]]), UINT4, [[-1]], ValueError, r"zero_points must be 0 to 15, the codes of UINT4, not -1"),
    (np.uint8([[0, 1, 2, 15]]), UINT4, [[16]], ValueError, r"zero_points must be 0 to 15, .* not 16"),
    (np.uint8([[0, 1, 2, 15]]), UINT4, [[0.5]], TypeError, r"zero_points must be integers, .*, not float64"),
    (np.uint8([[0, 1, 2, 15]]), UINT4, [0, 0], ValueError, r"zero_points \(2,\) do not have the shape .* \(1, 1\)"),
    (np.int8([[-8, 7, 8, 0]]), Scheme("int4", (1, 4)), None, ValueError, r"codes must be -8 to 7, .* not 8"),
    (np.int64([[-9, 7, 0, 0]]), Scheme("int4", (1, 4)), None, ValueError, r"codes must be -8 to 7, .* not -9"),
    (np.int64([[128, 7, 0, 0]]), Scheme("int8", (1, 4)), None, ValueError, r"codes must be -128 to 127, .* not 128"),
    (np.uint8([[16, 7, 0, 0]]), Scheme("nf4", (1, 4)), None, ValueError, r"codes must be 0 to 15, the codes of NF4"),
    (np.uint8([[16, 7, 0, 0]]), Scheme("e2m1", (1, 4)), None, ValueError, r"codes must be 0 to 15, the codes of E2M1"),
    (np.float32([[6, 7, 0, 0]]), Scheme("e4m3", (1, 4)), None, TypeError, r"codes must be integers, .* not float32"),
    (np.uint8([[0, 1, 2, 3]]), Scheme("nf4", (1, 4)), [[0]], ValueError, r"zero_points are for integer formats"),
    (fs.array([[1, 2, 3, 4]], "e5m2"), Scheme("e4m3", (1, 4)), None, TypeError, r"not a FloatArray of E5M2"),
])  # fmt: skip
def test_codes_and_zero_points_of_the_format(codes, scheme, zero, error, words):
    with pytest.raises(error, match=words):
        Quantized(codes, SCALE, scheme, zero_points=None if zero is None else np.array(zero))


@pytest.mark.parametrize("fmt", ["int8", "int4", "int2", "uint8", "uint4", "uint2", "nf4", "e2m1", "e4m3", "mxint8"])
def test_every_code_is_taken(fmt):
    """From every integer dtype that has the codes, and as the format's own arrays."""
    scheme, scale = Scheme(fmt), fs.array(0.5, "fp32")
    element = scheme.format
    low, high = (element.min, element.max) if isinstance(element, IntegerFormat) else (0, 2**element.bits - 1)
    codes = np.arange(low, high + 1)
    kinds = [np.int64, np.int16, element.code_dtype]
    if fmt in ("int4", "int2", "uint4", "uint2"):
        kinds.append(getattr(ml_dtypes, fmt))
    expected = Quantized(codes, scale, scheme)
    assert expected.codes.dtype == element.code_dtype and expected.codes.tolist() == codes.tolist()
    for kind in kinds:
        assert np.array_equal(Quantized(codes.astype(kind), scale, scheme).values, expected.values, equal_nan=True)
    if element == fs.E4M3:
        own = fs.from_codes(codes, fmt)
        for given in (own, np.asarray(own)):
            assert np.array_equal(Quantized(given, scale, scheme).codes, codes)


def test_integers_of_ml_dtypes():
    """As codes, zero points, formats of elements, numbers, and results."""
    codes = np.array([[-8, 7, 0, 1]], ml_dtypes.int4)
    q = Quantized(codes, SCALE, Scheme(ml_dtypes.int4, block=(1, 4)))
    assert q.format == fs.quantization.INT4 and q.values.tolist() == [[-4.0, 3.5, 0.0, 0.5]]
    assert fs.quantize_blocks(q.values, ml_dtypes.int4, scale=0.5).codes.astype(ml_dtypes.int4).tolist() == [
        [-8, 7, 0, 1]
    ]
    zero = np.array([[8]], ml_dtypes.uint4)
    q = Quantized(np.array([[0, 15, 8, 9]], ml_dtypes.uint4), SCALE, UINT4, zero_points=zero)
    assert q.values.tolist() == [[-4.0, 3.5, 0.0, 0.5]]
    for name in ("int4", "uint4", "int2", "uint2", "int1", "uint1"):
        dtype = getattr(ml_dtypes, name, None)
        if dtype is None:  # ml_dtypes 0.5 has no integers of one bit
            continue
        info = ml_dtypes.iinfo(dtype)
        whole = np.arange(int(info.min), int(info.max) + 1)
        x = whole.astype(dtype)
        assert fs.array(x, "fp16").tolist() == whole.tolist()
        assert fs.convert(x, "bf16").dtype == ml_dtypes.bfloat16
        assert fs.from_integer(x, "fp32").tolist() == whole.tolist()
        assert fs.encode(x[::-1], "e4m3").tolist() == fs.encode(whole[::-1], "e4m3").tolist()
        back, flags = fs.to_integer(whole.astype(np.float32), dtype, return_flags=True)
        assert back.dtype == x.dtype and back.tolist() == x.tolist() and not flags.any()
        wide, flags = fs.to_integer([100.0, -100.0, float("nan"), 0.25], dtype, return_flags=True)
        assert wide.astype(int).tolist() == [info.max, info.min, 0, 0]
        assert flags.tolist() == [fs.INVALID, fs.INVALID, fs.INVALID, fs.INEXACT]
        with pytest.raises(TypeError, match=r"fs\.array\(a, format\)"):
            fs.add(x, x)
    assert fs.from_codes(np.array([1, 7], ml_dtypes.uint4), "e2m1").tolist() == [0.5, 6.0]
    with pytest.raises(ValueError, match="code -8 does not fit"):
        fs.from_codes(codes, "e2m1")


def test_results_share_no_memory_with_the_scales_of_the_caller():
    scales = np.float32([[1.0], [2.0]])
    q = fs.quantize_blocks(np.float32([[1, 2], [3, 4]]), "int8", block="row", scale=scales)
    scales[:] = 100
    assert q.scales.values.tolist() == [[1], [2]]
    codes = np.zeros(2, np.int8)
    Quantized(codes, fs.array(np.array(1.0), "fp32"), Scheme("int8"))
    codes[0] = 1  # the caller's array stays writable


@pytest.mark.parametrize("fmt", ["nf4", "bnb_fp4", "binary"])
def test_numbers_beside_the_thresholds_of_tables(fmt):
    table = fs.quantization.as_element_format(fmt)
    edges = np.float32([*table.thresholds, *table.values, *(-np.float32(table.thresholds)), 0.0, -0.0])
    x = np.concatenate([edges, np.nextafter(edges, np.float32(-2)), np.nextafter(edges, np.float32(2))])
    x = x[np.abs(x) <= 1]
    codes = fs.quantize_blocks(x, fmt, scale=1.0, block="tensor").codes
    assert codes.tolist() == [d.LOOKUP[table.name](np.float32(v)) for v in x]


@pytest.mark.parametrize("name", cases(quick=["int8"], full=["nf4", "mxfp8", "nvfp4", "gptq", "deepseek_weight"]))
def test_kernels_of_another_floating_point_environment(name, monkeypatch):
    """Where hardware floats flush subnormals, the integer kernels return the same bits."""
    from floatsim.emulator.elementwise import block_scales

    scheme, keywords = CASES[name]
    x = matrix(14).astype(np.float32)
    q = fs.quantize_blocks(x, scheme, **keywords)
    monkeypatch.setattr(block_scales.machine, "environment_is_default", lambda: False)
    slow = fs.quantize_blocks(x, scheme, **keywords)
    assert np.array_equal(q.codes, slow.codes)
    assert np.array_equal(q.scales.codes, slow.scales.codes)
    assert np.array_equal(q.dequantize().codes, slow.dequantize().codes)


def test_the_input_is_not_written():
    x = matrix(11)
    kept = x.copy()
    for scheme in ("int8", "mxfp8", "nf4", "uint8"):
        fs.quantize_blocks(x, scheme)
        assert np.array_equal(x, kept)
        assert x.flags.writeable


def test_dequantize_to_a_format_is_one_more_rounding():
    q = fs.quantize_blocks(matrix(12), "int8", block="row")
    assert q.dequantize("bf16").format is fs.BF16
    assert np.array_equal(q.dequantize("bf16").codes, fs.encode(np.float32(q.values), "bf16"))
    assert np.array_equal(fs.dequantize_blocks(q, "fp16").codes, q.dequantize("fp16").codes)


def test_size_in_bits():
    q = fs.quantize_blocks(np.ones((4, 256), np.float32), "int4", block=128, scale_format="fp16")
    assert q.nbits == 4 * 256 * 4 + 8 * 16
    assert q.scheme.bits == 4.125
    assert as_scheme("mxfp4").bits == 4.25


def test_options_of_the_context():
    """The rounding mode is the context's. Overflow, DAZ and FTZ have no effect."""
    x = matrix(13)
    with fs.context(rounding="toward_zero", overflow="infinity", ftz=True, daz=True):
        inside = fs.quantize_blocks(x, "e4m3", block=8)
    outside = fs.quantize_blocks(x, "e4m3", block=8, rounding="toward_zero")
    assert np.array_equal(inside.codes, outside.codes)
    assert np.array_equal(inside.scales.codes, outside.scales.codes)


def test_events_of_the_elements_are_recorded():
    with fs.record() as log:
        fs.quantize_blocks(np.float32([448, 449, 1e-9, 1]), "e4m3", scale=0.5)
    counts = log["quantize_blocks"]
    assert (counts.elements, counts.overflow, counts.flushed) == (4, 2, 1)


def test_fixed_point_numbers_of_ocp_mx():
    """MXINT8: two's complement with the implied scale 2**-6 and a power of two for 32 elements (OCP MX 1.0, 5.3.4)."""
    x = np.float32([[1.999, -1.999, 1.0, 2.0**-6, 3 * 2.0**-8, 0.0]])
    q = fs.quantize_blocks(x * 8, "mxint8")
    assert q.scales.values.tolist() == [[8]]
    assert q.codes.tolist() == [[127, -128, 64, 1, 1, 0]]
    assert q.elements.values.tolist() == [[127 / 64, -2, 1, 1 / 64, 1 / 64, 0]]
    assert (q.values == 8 * q.elements.values).all()
    assert q.scheme.bits == 8.25
    with pytest.raises(ValueError, match="fraction_bits"):
        IntegerFormat("wrong", -8, 7, -1)
    assert fs.quantization.MXINT8 != fs.quantization.INT8


def test_nested_scales_are_stored_in_8_bits():
    """QLoRA: 4 + 8/64 + 32/(64*256) bits for an element, and one FP32 number for the tensor."""
    x = np.random.default_rng(15).normal(size=(64, 1024)).astype(np.float32)
    plain, nested = fs.quantize_blocks(x, "nf4"), fs.quantize_blocks(x, "nf4_nested")
    assert np.array_equal(plain.codes, nested.codes)
    assert nested.nbits == x.size * nested.scheme.bits + 32 == x.size * (4 + 8 / 64 + 32 / (64 * 256)) + 32
    errors = [np.linalg.norm(q.values - x) / np.linalg.norm(x) for q in (plain, nested)]
    assert errors[0] < errors[1] < 1.01 * errors[0]
    assert nested.nested.quantized.scheme.format.name == "DYNAMIC8"
    assert plain.nested is None


@pytest.mark.parametrize(
    ("name", "value"), [("scheme", "int4"), ("scales", np.ones((1, 1), np.float32)), ("arithmetic", "fp32"),
                        ("tensor_scale", 2.0)]
)  # fmt: skip
def test_parts_of_another_type(name, value):
    quantized = fs.quantize_blocks([[0.6, -1.0]], "int4", block=2)
    with pytest.raises(TypeError, match=f"{name} must be a .*, not "):
        replace(quantized, **{name: value})
