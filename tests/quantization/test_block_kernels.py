"""The kernels of `fs.quantize_blocks` against the path of another floating-point environment: the same bits.

There every step is an operation of the integer kernels, and the scales follow from the rules on arrays of
floatsim/quantization/scales.py. test_blocks.py compares the kernels with exact rationals.
"""

from __future__ import annotations

import numpy as np
import pytest

import floatsim as fs
from floatsim import FP32, FP64
from floatsim.emulator.elementwise import block_scales
from floatsim.emulator.proofs import reciprocals_of_powers_are_exact
from floatsim.quantization.lookup import LookupFormat
from floatsim.quantization.scheme import as_scheme
from tests.quantization.test_blocks import CASES

pytestmark = pytest.mark.filterwarnings("ignore:.*block scales are beyond 448:floatsim.FloatsimWarning")

BLOCKS = ["tensor", "row", "column", 1, 2, 4, 5, 16, 32, 48, (3, 1), (16, 1), (2, 2), (7, 32), (None, 3)]
MODES = ["ties_to_even", "ties_to_away", "toward_zero", "toward_negative", "to_odd", "stochastic"]


def numbers(shape: tuple[int, ...], dtype: type, special: bool) -> np.ndarray:
    """Ties, zeros of both signs, subnormal numbers, numbers near the ends of the range, and special values."""
    rng = np.random.default_rng(len(shape) + shape[-1])
    x = rng.normal(size=shape) * np.exp2(rng.integers(-12, 12, shape))
    flat = x.reshape(-1)
    for value in (0.0, -0.0, 1e-40, -3e38, *((np.nan, np.inf, -np.inf) if special else ())):
        flat[rng.integers(0, flat.size, max(1, flat.size // 30))] = value
    flat[: flat.size // 4] = rng.integers(-14, 15, flat.size // 4) / 8
    flat[flat.size // 4 : flat.size // 2] *= 1e-38
    return x.astype(dtype)


def bits(x: np.ndarray, scheme: object, **keywords: object) -> list[np.ndarray]:
    q = fs.quantize_blocks(x, scheme, **keywords)
    zeros = np.zeros(0) if q.zero_points is None else q.zero_points
    whole = np.zeros(0) if q.tensor_scale is None else q.tensor_scale.codes
    return [q.codes, q.scales.codes, zeros, whole, q.dequantize().codes, q.elements.codes]


def check(monkeypatch: pytest.MonkeyPatch, *arguments: object, **keywords: object) -> None:
    found = bits(*arguments, **keywords)
    with monkeypatch.context() as patch:
        patch.setattr(block_scales.machine, "environment_is_default", lambda: False)
        expected = bits(*arguments, **keywords)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("dtype", [np.float32, pytest.param(np.float64, marks=pytest.mark.full)])
@pytest.mark.parametrize("name", CASES)
def test_special_values_and_ends_of_the_range(name, dtype, monkeypatch):
    scheme, keywords = CASES[name]
    special = isinstance(as_scheme(scheme).format, fs.FloatFormat)
    for shape in ((5, 64), (3, 67)):
        check(monkeypatch, numbers(shape, dtype, special), scheme, **keywords)


@pytest.mark.parametrize("name", ["e4m3", "int8", "mxfp4", "nvfp4", "nf4", "uint8 asymmetric"])
def test_every_shape_of_blocks(name, monkeypatch):
    scheme, keywords = CASES.get(name, (name, {}))
    for block in BLOCKS:
        for shape in ((37, 96), (50, 3), (3, 16, 35)):
            check(monkeypatch, numbers(shape, np.float32, False), scheme, **{**keywords, "block": block})


@pytest.mark.full
@pytest.mark.parametrize("name", ["mxfp8", "int4", "uint8 asymmetric", "bf16 pow2", "fp16"])
def test_every_rounding_mode(name, monkeypatch):
    scheme, keywords = CASES[name]
    for mode in MODES:
        seed = {"seed": 3} if mode == "stochastic" else {}
        check(monkeypatch, numbers((6, 70), np.float32, False), scheme, rounding=mode, **seed, **keywords)


@pytest.mark.parametrize("name", ["mxfp8", "nvfp4", "nf4", "int4 asymmetric", "deepseek_weight", "te_current"])
def test_pieces_change_nothing(name, monkeypatch):
    """Pieces of 64 elements: blocks that lie in one piece, and blocks that do not."""
    scheme, keywords = CASES[name]
    for block in (None, *BLOCKS):
        options = keywords if block is None else {**keywords, "block": block}
        for shape in ((37, 96), (50, 3), (2, 8, 33), (700,)):
            x = numbers(shape, np.float32, False)
            whole = bits(x, scheme, **options)
            with monkeypatch.context() as patch:
                patch.setattr(block_scales, "_PIECE", 64)
                patch.setattr(block_scales, "_LARGEST_PIECE", 256)
                parts = bits(x, scheme, **options)
            for one, other in zip(whole, parts, strict=True):
                np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("scheme", ["mxfp8", "nvfp4", "int8"])
def test_threads_change_nothing(scheme, monkeypatch):
    monkeypatch.setattr(block_scales, "_PIECE", 1 << 10)
    monkeypatch.setattr(block_scales, "_WORTH_THREADS", 1 << 10)
    x = numbers((64, 256), np.float32, False)
    expected = bits(x, scheme)
    fs.set_num_threads(4)
    try:
        found = bits(x, scheme)
    finally:
        fs.set_num_threads(None)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_integers_beyond_the_largest_are_clamped():
    """The kernel of ties to even rounds to integers of any size; the definition clamps them to 1023 first."""
    x = np.float32([126.5, 127.5, 382.5, 383, 1022.5, 1023, 1023.5, 1024, 2.0**23 + 1, 2.0**31, 3e38])
    x = np.concatenate([x, -x])
    for zero_point in (-128, 0, 127):
        found = fs.quantize_blocks(x, "int8", scale=1.0, zero_point=zero_point).codes
        assert found.tolist() == np.clip(np.rint(x.astype(float)) + zero_point, -128, 127).tolist()


def test_infinity_has_the_scale_1_by_powers_of_two_in_fp32():
    """As NaN. It had the largest power of two, which flushed the other elements of the block to zero."""
    for special in (np.inf, -np.inf, np.nan):
        q = fs.quantize_blocks(np.float32([special, 1.0]), "te_block")
        assert q.scales.values.tolist() == [1]
        assert q.elements.values[1] == 1


@pytest.mark.parametrize(("lowest", "highest", "holds"), [
    (-127, 127, True), (-128, 127, False), (-126, 127, True), (-149, 20, False), (-40, 30, True),
])  # fmt: skip
def test_reciprocals_of_powers_on_both_sides_of_the_bound(lowest, highest, holds):
    """x * (1 / s) and x / s for the ends of the range of s and numbers x of all exponents, subnormal ones too."""

    class Powers:
        emin, emax, trailing_bits = lowest, highest, 0

    assert reciprocals_of_powers_are_exact(Powers, FP32) is holds
    assert reciprocals_of_powers_are_exact(Powers, FP64)
    codes = np.random.default_rng(0).integers(0, 0x7F800000, 20_000).astype(np.uint32)
    x = np.concatenate([codes, np.uint32([1, 2, 3, 0x7FFFFF, 0x800000, 0x7F7FFFFF])]).view(np.float32)
    same = True
    with np.errstate(all="ignore"):
        for exponent in (lowest, highest):
            scale = np.ldexp(np.float32(1), exponent)
            same &= bool(np.array_equal(x / scale, x * (np.float32(1) / scale)))
    assert same is holds


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_quotients_by_lifted_divisors_are_the_same(dtype):
    """x * p / (s * p) is x / s for subnormal s and every exponent of x, up to the largest divisor that is allowed."""
    info, rng = np.finfo(dtype), np.random.default_rng(1)
    subnormal = np.ldexp(dtype(1), info.minexp - 3)
    power = block_scales._lift(np.array([subnormal], dtype))
    assert power == 2.0 ** (info.nmant + 1)
    limit = dtype(power**-2)
    assert block_scales._lift(np.array([subnormal, limit], dtype)) == 0
    assert block_scales._lift(np.array([info.smallest_normal, 1], dtype)) == 0
    below = np.nextafter(limit, dtype(0))
    assert block_scales._lift(np.array([subnormal, below], dtype)) == power
    exponents = rng.integers(info.minexp - info.nmant, info.maxexp, 20_000)
    x = np.ldexp(rng.uniform(1, 2, 20_000), exponents).astype(dtype)
    x = np.concatenate([x, -x, [0.0, -0.0, np.inf, -np.inf, info.max, info.smallest_subnormal]]).astype(dtype)
    divisors = [subnormal, info.smallest_subnormal, info.smallest_normal, below, dtype(info.smallest_normal * 1.3)]
    with np.errstate(all="ignore"):
        for divisor in (dtype(d) for d in divisors):
            np.testing.assert_array_equal((x * dtype(power)) / (divisor * dtype(power)), x / divisor)


def test_tables_of_other_sizes_and_orders():
    """The number of thresholds is no multiple of four, and the codes are not in the order of their numbers."""
    for size in (2, 3, 5, 6, 9, 16):
        values = [float(v) for v in np.float32(np.linspace(-1, 1, size))]
        order = [int(k) for k in np.random.default_rng(size).permutation(size)]
        by_code = [0.0] * size
        for place, code in enumerate(order):
            by_code[code] = values[place]
        table = LookupFormat("table", tuple(by_code), tuple(order))
        x = np.float32(np.linspace(-1.2, 1.2, 4001))
        q = fs.quantize_blocks(x, table, scale=1.0, block="tensor")
        places = np.searchsorted(np.float32(table.thresholds), x)
        assert np.array_equal(q.codes, np.array(order)[places])
