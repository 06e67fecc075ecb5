"""Products under test: seeded faults are found, weak inputs are reported, and correct results raise no alarm."""

from __future__ import annotations

import os

import numpy as np
import oracles as o
import pytest

import floatsim as fs

pytestmark = pytest.mark.full


def operands(m=96, k=160, n=80, fmt="bf16", seed=0, kind="cancelling"):
    return fs.testing.hard_inputs((m, k, n), fmt, kind, seed=seed)


@pytest.mark.parametrize("k", [0, 71, 159])
def test_one_dropped_product(k):
    a, b = operands()
    cut = np.array(a)
    cut[:, k] = 0
    report = fs.testing.compare_product(fs.matmul(cut, b, accumulate="fp32"), a, b, accumulate="fp32")
    assert report.explanation == {
        0: "the product of k = 0 is missing", 71: "the product of k = 71 is missing",
        159: "the product of k = 159 is missing",
    }[k]  # fmt: skip


def test_a_dropped_tile_in_one_block_of_the_result():
    a, b = operands(kind="normal")
    cut = np.array(a)
    cut[32:48, 128:] = 0
    report = fs.testing.compare_product(fs.matmul(cut, b, accumulate="fp32", format="bf16"), a, b, accumulate="fp32")
    assert report.explanation == "the products from k = 128 on are missing: the last 32 of 160"
    assert report.places[0].text == "rows 32 to 47"


def test_a_swizzle():
    a, b = operands()
    moved = np.array(b)
    moved[40] = b[41]
    report = fs.testing.compare_product(fs.matmul(a, moved, accumulate="fp32"), a, b, accumulate="fp32")
    assert report.explanation == "k = 40 of b is read from k = 41"


def test_columns_that_are_not_written_have_no_fault_in_k():
    a, b = operands(kind="normal", k=64)
    kernel = np.array(fs.matmul(a, b, accumulate="fp32"))
    kernel[:, ::2] = 0
    report = fs.testing.compare_product(kernel, a, b, accumulate="fp32")
    assert report.explanation == "actual is 0 there: these elements were not written, or no product was added"


def test_a_fault_holds_for_the_elements_between_the_mismatches():
    """In every second element a product is missing: no k is dropped in all of these rows and columns."""
    a, b = operands(kind="normal", k=64)
    kernel, cut = np.array(fs.matmul(a, b, accumulate="fp32")), np.array(a)
    cut[:, 7] = 0
    dropped = np.array(fs.matmul(cut, b, accumulate="fp32"))
    explained = []
    for where in (np.indices(kernel.shape).sum(0) % 2 == 0, np.indices(kernel.shape)[1] % 2 == 0):
        report = fs.testing.compare_product(np.where(where, dropped, kernel), a, b, accumulate="fp32")
        explained.append(report.explanation)
    assert explained == [None, "the product of k = 7 is missing"]


def test_a_wrong_rounding_of_the_result():
    """Many sums of FP8 products are midpoints of BF16: ties to away changes about one percent of the results."""
    a, b = operands(48, 512, 64, "e4m3", kind="normal")
    options = {"accumulate": "blocked(hopper, 128, fp32)"}
    sums = fs.matmul(a, b, **options, format="fp32")
    for kernel, words in (
        (fs.array(sums, "bf16", rounding="ties_to_away"), "actual has the bits of rounding='ties_to_away'"),
        (fs.array(sums, "bf16", rounding="toward_zero"), "actual has the bits of rounding='toward_zero'"),
        (fs.array(fs.convert(sums, "fp16"), "bf16"), "x is first rounded to FP16: two roundings"),
    ):
        why = fs.testing.compare_product(kernel, a, b, **options).explanation
        assert why.startswith(f"the conversion of the sums from FP32 to BF16: {words}")
    away = fs.array(sums, "bf16", rounding="ties_to_away")
    options["result_rounding"] = "ties_to_away"
    assert fs.testing.compare_product(away, a, b, **options).passed
    why = fs.testing.compare_product(fs.array(sums, "bf16"), a, b, **options).explanation
    assert why.endswith("actual has the bits of rounding='ties_to_even'")


def test_a_relu_is_no_missing_store():
    a, b = operands(kind="normal", k=64)
    kernel = np.maximum(np.array(fs.matmul(a, b, accumulate="fp32")), 0)
    report = fs.testing.compare_product(kernel, a, b, accumulate="fp32")
    assert report.explanation.startswith("actual is 0 where desired is negative: an activation such as relu")


def test_a_missing_tile_ends_at_a_multiple_of_it():
    """The products before the missing ones are zeros or absorbed: without them the bits are equal, too."""
    a, b = operands(48, 512, 64, "e4m3")
    kernel = fs.matmul(a[:, :384], b[:384], accumulate="blocked(hopper, 128, fp32)", format="bf16")
    report = fs.testing.compare_product(kernel, a, b, accumulate="blocked(hopper, 128, fp32)")
    assert report.explanation == "the products from k = 384 on are missing: the last 128 of 512"


@pytest.mark.parametrize("order", ["pairwise(fp32)", "blocked(fp32, 32, fp32)", "splitk(2, fp32, fp32)", "ampere"])
def test_a_wrong_order(order):
    a, b = operands()
    report = fs.testing.compare_product(fs.matmul(a, b, accumulate=order), a, b, accumulate="fp32")
    assert report.explanation.startswith(f"actual has the bits of {order}")


@pytest.mark.full
def test_no_false_alarm_in_hundreds_of_correct_runs():
    """Six runs of each pair of an order and a kind of input, by the commit's seed. FLOATSIM_EXHAUSTIVE=1 takes 1000."""
    orders = ("fp32", "pairwise(fp32)", "blocked(fp32, 8, fp32)", "exact(fp32)", "sequential(fp16)", "ampere")
    kinds = ("normal", "cancelling", "integers", "one_k", "subnormal", "special", "overflow")
    number = 6 * len(orders) * len(kinds)  # their numbers have no common divisor: the pairs repeat after the product
    first = int(o.rng("correct runs").integers(1000 - number))
    for run in range(1000) if os.environ.get("FLOATSIM_EXHAUSTIVE") == "1" else range(first, first + number):
        order = orders[run % len(orders)]
        shape = tuple(int(n) for n in np.random.default_rng([3, run]).integers(40, 60, 3))
        a, b = fs.testing.hard_inputs(shape, "fp16", kinds[run % len(kinds)], result="fp16", seed=run)
        kernel = fs.matmul(a, b, accumulate=order, format="fp16")
        assert fs.testing.assert_product(kernel, a, b, accumulate=order).passed
        assert fs.testing.assert_bit_equal(kernel, kernel.copy(), equal_nan=True).passed


# -- strength of inputs ------------------------------------------------------------------------------------------------


def test_weak_inputs_are_reported():
    a, b = fs.testing.hard_inputs((32, 128, 32), "e4m3", "normal")
    kernel = fs.matmul(a, b, accumulate="fp32", format="bf16")
    report = fs.testing.assert_product(kernel, a, b, accumulate="fp32")
    assert {"pairwise(fp32)", "exact(fp32)", "blackwell"} <= set(report.strength.same)
    assert "cannot tell fp32 from" in str(report)
    with pytest.raises(AssertionError, match=r"too weak: .* from exact\(fp32\) \(unlike=\)"):
        fs.testing.assert_product(kernel, a, b, accumulate="fp32", unlike=["exact(fp32)"])
    alone = fs.testing.compare_product(kernel, a, b, accumulate="fp32", unlike="exact(fp32)")
    assert alone.unlike == ("exact(fp32)",)


def test_cancelling_inputs_are_strong():
    a, b = fs.testing.hard_inputs((32, 128, 32), "e4m3", "cancelling", result="bf16")
    kernel = fs.matmul(a, b, accumulate="fp32", format="bf16")
    report = fs.testing.assert_product(
        kernel, a, b, accumulate="fp32", unlike=["exact(fp32)", "pairwise(fp32)", "hopper", "blackwell"]
    )
    assert report.strength.same == ()


@pytest.mark.parametrize(("call", "error", "words"), [
    (lambda: fs.testing.compare_product(1.0, [1.0], [1.0], accumulate="fp32"), ValueError, "a must be a matrix"),
    (lambda: fs.testing.compare_product([[1.0]], [[1.0]], [[1.0], [2.0]], accumulate="fp32"), ValueError, "a has 1"),
    (lambda: fs.testing.compare_product(np.ones((2, 2), np.float32), np.ones((1, 2)), np.ones((2, 2)),
                                        accumulate="fp32"), AssertionError, r"shape \(2, 2\), the product \(1, 2\)"),
])  # fmt: skip
def test_bad_input_is_named(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_codes_of_operands_need_a_format_of_their_own():
    codes = np.zeros((4, 4), np.uint8)
    with pytest.raises(TypeError, match=r"a has dtype uint8.* fs\.from_codes\(a, 'e4m3'\)"):
        fs.testing.compare_product(np.zeros((4, 4), np.float32), codes, codes, accumulate="fp32")
