"""Hard inputs: each kind has the property that it promises. NumPy's float64 sums are exact here, or checked to be."""

from __future__ import annotations

import numpy as np
import pytest

import floatsim as fs
from floatsim.testing.vectors.product_inputs import KINDS
from tests.marks import cases

SHAPE = (24, 96, 20)


def values(shape, formats, kind, **options):
    a, b = fs.testing.hard_inputs(shape, formats, kind, **options)
    return np.asarray(a, np.float64), np.asarray(b, np.float64)


@pytest.mark.parametrize("kind", cases(quick=["normal", "cancelling", "ties"], full=KINDS))
@pytest.mark.parametrize("fmt", cases(quick=["bf16"], full=["fp16", "e4m3", "e5m2", "fp32"]))
def test_operands_have_the_formats_and_the_seed(kind, fmt):
    first, second = (fs.testing.hard_inputs(SHAPE, fmt, kind, result="bf16", seed=seed) for seed in (1, 2))
    again = fs.testing.hard_inputs(SHAPE, fmt, kind, result="bf16", seed=1)
    assert [x.shape for x in first] == [(24, 96), (96, 20)]
    assert all(x.dtype == fs.as_format(fmt).dtype for x in first)
    assert all(np.array_equal(x.view(np.uint8), y.view(np.uint8)) for x, y in zip(first, again, strict=True))
    assert not all(np.array_equal(x.view(np.uint8), y.view(np.uint8)) for x, y in zip(first, second, strict=True))


@pytest.mark.parametrize("fmt", ["e4m3", "e5m2", "e2m1", "fp16", "bf16", "fp32"])
def test_the_middle_quarters_cancel(fmt):
    a, b = values((24, 102, 20), fmt, "cancelling_parts", result="bf16")
    quarters = [slice(n * 25, n * 25 + 25) for n in range(4)]
    sums = [a[:, quarter] @ b[quarter] for quarter in quarters]
    assert np.array_equal(sums[1], -sums[2])
    assert a[:, 100:].any() and b[100:].any()
    with pytest.raises(ValueError, match="needs four products"):
        fs.testing.hard_inputs((4, 3, 4), fmt, "cancelling_parts")


@pytest.mark.parametrize("order", [[3, 2, 1, 0], [1, 0, 3, 2], [2, 3, 0, 1]])
def test_an_order_of_blocks_shows(order):
    """FP32 adds blocks of FP8 products without a rounding on most inputs, and BF16 hides the rest."""
    inputs = fs.testing.hard_inputs((16, 512, 16), "e4m3", "cancelling_parts", result="bf16")
    a, b = (fs.array(x, "e4m3") for x in inputs)
    total = np.zeros((16, 16), np.float32)
    for n in order:
        k = slice(128 * n, 128 * n + 128)
        total = total + np.asarray(fs.matmul(a[:, k], b[k], accumulate="hopper", format="fp32"))
    with pytest.raises(AssertionError):
        fs.testing.assert_product(fs.array(total, "bf16"), a, b, accumulate="blocked(hopper, 128, fp32)")


@pytest.mark.parametrize("result", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize("k", [8, 96, 1000])
def test_integers_are_exact_in_every_order(result, k):
    a, b = values((8, k, 8), "bf16", "integers", result=result)
    assert (np.abs(a) @ np.abs(b)).max() <= 2 ** fs.as_format(result).precision
    assert (a == np.rint(a)).all() and (b == np.rint(b)).all() and np.abs(a).max() >= 1


def test_one_k_reaches_every_k():
    a, b = values(SHAPE, "fp16", "one_k", result="bf16")
    terms = np.einsum("mk,kn->mnk", a, b) != 0
    assert terms.sum(-1).max() == 1
    assert terms.any((0, 1)).all()
    assert np.array_equal(fs.quantize(a @ b, "bf16"), a @ b)


@pytest.mark.parametrize("result", ["bf16", "fp16", "e4m3"])
def test_ties_are_midpoints(result):
    a, b = values(SHAPE, "bf16", "ties", result=result)
    exact = a @ b
    down, up = (fs.quantize(exact, result, rounding=mode) for mode in ("toward_negative", "toward_positive"))
    assert (down < exact).all() and np.array_equal(exact - down, up - exact)


def test_double_rounding_changes_results():
    a, b = values(SHAPE, "bf16", "double_rounding", result="bf16")
    exact = a @ b
    once = fs.quantize(exact, "bf16")
    for middle in ("fp32", "tf32", "fp16"):
        assert (fs.quantize(fs.quantize(exact, middle), "bf16") != once).any()


def test_saturation_has_all_sides_of_the_largest_number():
    a, b = values(SHAPE, "bf16", "saturation", result="fp16")
    sums = set(np.abs(a @ b)[:, 0].tolist())
    assert {65504.0, 65520.0, 65512.0, 65528.0, 65536.0, 98304.0} <= sums


def test_subnormal_operands_and_results():
    a, b = values(SHAPE, "fp16", "subnormal", result="fp16")
    assert (np.abs(a[0::3]) < 2.0**-14).all() and (a != 0).all()
    sums = np.abs(a @ b)
    assert ((sums > 0) & (sums < 2.0**-14)).mean() > 0.5


@pytest.mark.parametrize("result", ["fp16", "fp32", "bf16"])
def test_overflow_is_partial(result):
    fmt = fs.as_format(result)
    a, b = values(SHAPE, "bf16", "overflow", result=result, accumulator="fp32")
    beyond = np.abs(a @ b) > fmt.max
    assert 0.02 < beyond.mean() < 0.98
    assert (np.abs(a) @ np.abs(b) > fmt.max).mean() > beyond.mean()


def test_special_values_are_there():
    a, b = values((64, 96, 64), "fp16", "special")
    both = np.concatenate([a.ravel(), b.ravel()])
    assert np.isnan(both).any() and np.isinf(both).any() and (both == 65504).any()
    assert np.isfinite(a).all(1).sum() > 10


@pytest.mark.parametrize("fmt", ["e4m3", "e5m2", "fp16", "bf16", ("e4m3", "e5m2")])
def test_cancelling_sums_are_far_below_their_terms(fmt):
    a, b = values(SHAPE, fmt, "cancelling", result="bf16")
    with np.errstate(divide="ignore"):
        assert np.median(np.log2(np.abs(a) @ np.abs(b)) - np.log2(np.abs(a @ b))) > 15


@pytest.mark.full
@pytest.mark.parametrize("fmt", ["e4m3", "e5m2", "fp16", "bf16"])
def test_cancelling_products_tell_orders_apart(fmt):
    a, b = fs.testing.hard_inputs((32, 128, 32), fmt, "cancelling", result="bf16")
    orders = ["fp32", "pairwise(fp32)", "exact(fp32)", "blocked(fp32, 32, fp32)", "strided(fp32, 4)", "hopper"]
    results = {order: fs.matmul(a, b, accumulate=order, format="bf16") for order in orders}
    shares = fs.equal_shares(results)
    assert shares[~np.eye(len(orders), dtype=bool)].max() < 1


@pytest.mark.parametrize(("call", "words"), [
    (lambda: fs.testing.hard_inputs(SHAPE, "bf16", "canceling"), "did you mean 'cancelling'"),
    (lambda: fs.testing.hard_inputs((3, 4), "bf16"), r"shape must be three lengths.*\(3, 4\)"),
    (lambda: fs.testing.hard_inputs((3, 0, 4), "bf16"), "shape must be three lengths"),
    (lambda: fs.testing.hard_inputs(SHAPE, ["bf16"] * 3), "formats must be one format, or those of a and of b"),
    (lambda: fs.testing.hard_inputs((4, 4, 4), "bf16", "ties"), "K = 4 is too short"),
    (lambda: fs.testing.hard_inputs(SHAPE, "e2m1", "ties", result="fp32"), "formats=E2M1.* need products"),
    (lambda: fs.testing.hard_inputs(SHAPE, "e8m0"), "formats=E8M0 is a scale format"),
    (lambda: fs.testing.hard_inputs(SHAPE, "bf16", result="e8m0"), "result=E8M0 is a scale format"),
    (lambda: fs.testing.hard_inputs(SHAPE, "bf16", accumulator="e8m0"), "accumulator=E8M0 is a scale format"),
    (lambda: fs.testing.hard_inputs(SHAPE, "bf16", ["ties"]), r"kind=\['ties'\] is not known"),
    (lambda: fs.testing.hard_inputs(SHAPE, "bf16", seed=-1), "seed must be at least 0"),
])  # fmt: skip
def test_bad_input_is_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_a_seed_is_an_integer():
    with pytest.raises(TypeError, match="seed must be an integer, not 'a'"):
        fs.testing.hard_inputs(SHAPE, "bf16", seed="a")
