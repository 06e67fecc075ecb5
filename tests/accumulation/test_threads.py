"""`Threads`, `Welford` and `Sklansky`: kernels against the reference, texts, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

import floatsim as fs
from floatsim.accumulation.lane_programs import lane_program, term_program
from floatsim.accumulation.partition import thread_lanes
from floatsim.emulator.dispatch.candidates import only
from floatsim.formats.call import CallOptions
from floatsim.formats.rounding import RoundingAttributes
from floatsim.reference import moments as reference_moments
from floatsim.reference import scans, sums

OUTER = "blocked({f}, {a}, pairwise({f}, halving))"
SHAPES = [
    {"threads": 4}, {"threads": 4, "width": 4, "accumulators": 4, "rest": "threads"},
    {"threads": 4, "width": 4, "accumulators": 4, "shift": 3, "rest": "threads"},
    {"threads": 8, "accumulators": 4, "rest": "threads"}, {"threads": 8, "width": 2, "rest": "rounds"},
    {"threads": 8, "width": 4, "shift": 5, "rest": "rounds"}, {"threads": 3, "width": 5},
    {"threads": 4, "width": 6, "accumulators": 3, "shift": 1, "rest": "threads"} | {"threads": 8},
]  # fmt: skip


def description(shape, fmt="fp32", fused=False, outer=None):
    inner = fs.Sequential(fmt, fused=fused)
    text = OUTER.format(f=fmt, a=shape.get("accumulators", 1)) if outer is None else outer
    return fs.Threads(inner, shape["threads"], text, **{k: v for k, v in shape.items() if k != "threads"})


def numbers(seed, *shape):
    draw = np.random.default_rng(seed)
    return (draw.standard_normal(shape) * np.exp2(draw.integers(-6, 7, shape))).astype(np.float32)


def of_reference(order, pairs, fmt="fp32"):
    options = CallOptions(RoundingAttributes())
    terms = [tuple(sums.Code(int(code), fs.as_format(fmt)) for code in pair) for pair in pairs]
    return sums.accumulate(order, terms, options).code


ONE = 0x3F800000


@pytest.mark.parametrize("fmt", ["fp32", "bf16"])
@pytest.mark.parametrize("shape", SHAPES)
def test_sums_equal_the_reference(shape, fmt):
    order = description(shape, fmt)
    for n in (0, 1, 7, 33, 70):
        x = fs.array(numbers(n, 3, n), fmt)
        one = fs.array(1.0, fmt).codes
        expected = [of_reference(order, [(code, one) for code in row], fmt) for row in x.codes]
        for found in (fs.sum(x, -1, accumulate=order), fs.sum(np.transpose(x).copy(), 0, accumulate=order)):
            assert found.codes.tolist() == expected, n
    with only("integer"):
        assert fs.sum(x, -1, accumulate=order).codes.tolist() == expected


@pytest.mark.parametrize("shape", SHAPES)
def test_fused_products_equal_the_reference(shape):
    order = description(shape, fused=True)
    for n in (1, 31, 70):
        a, b = (fs.array(numbers(n + k, 3, n), "fp32") for k in (1, 2))
        expected = [of_reference(order, zip(*rows, strict=True)) for rows in zip(a.codes, b.codes, strict=True)]
        found = fs.matmul(a[:, np.newaxis], b[..., np.newaxis], accumulate=order)
        assert found.codes.reshape(-1).tolist() == expected
        assert fs.matmul(a[0], b[0], accumulate=order).codes == expected[0]


@pytest.mark.parametrize("shape", SHAPES)
def test_events_and_their_places(shape):
    order = description(shape, "fp16")
    x = fs.array(numbers(5, 2, 60) * 4000, "fp16")
    with fs.record() as log:
        found = fs.sum(x, -1, accumulate=order)
    assert found.codes.tolist() == fs.sum(x, -1, accumulate=order).codes.tolist()
    one = sums.Code(0x3C00, fs.FP16)
    for i, row in enumerate(x.codes.tolist()):
        expected = sums.accumulate(
            order, [(sums.Code(code, fs.FP16), one) for code in row], CallOptions(RoundingAttributes())
        )
        for event in ("overflow", "absorbed", "nan"):
            first = expected.first[event]
            assert log.first[event][i] == (-1 if first is None else first)


def test_c_seeds_outer():
    order, x = fs.Threads("fp32", 2, "fp32"), fs.array([[1.0, 2.0, 3.0]], "fp32")
    one = fs.array([[1.0]] * 3, "fp32")
    assert fs.matmul(x, one, fs.array([[10.0]], "fp32"), accumulate=order).tolist() == [[16.0]]


def test_sums_of_minus_zeros_are_plus_zero():
    x = fs.array([[-0.0] * 40], "fp32")
    assert fs.sum(x, -1, accumulate=description(SHAPES[1])).codes.tolist() == [0]


@pytest.mark.parametrize("shape", SHAPES)
def test_lanes_are_those_of_the_reference(shape):
    order = description(shape)
    for n in (0, 3, 50):
        lanes = thread_lanes(order, n)
        shared = sums.shared_terms(order, range(n))
        assert [np.flatnonzero(lanes == lane).tolist() for lane in range(len(shared))] == shared


def test_texts():
    for shape in SHAPES:
        order = description(shape)
        assert fs.as_accumulation(str(order)) is order
        assert eval(repr(order), vars(fs.accumulation) | {"FP32": fs.FP32}) == order
    for text in (
        "welford(threads(sequential(fp32), 128, pairwise(fp32, halving), width=4), reciprocal)", "sklansky(bf16, 16)",
        "welford(pairwise(fp32))",
    ):  # fmt: skip
        assert str(fs.as_accumulation(text)) == text


@pytest.mark.parametrize(("arguments", "message"), [
    ({"threads": 0}, "threads"), ({"threads": 4, "width": 0}, "width"), ({"threads": 4, "rest": "round"}, "rounds"),
    ({"threads": 4, "width": 2, "shift": 2}, "shift"), ({"threads": 2, "width": 4, "shift": 1}, "needs 4 threads"),
])  # fmt: skip
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        fs.Threads("fp32", outer="fp32", **arguments)


def test_a_tensor_core_has_no_threads():
    with pytest.raises(TypeError, match="outer cannot be"):
        fs.Threads("fp32", 4, "hopper")


def test_programs():
    assert lane_program(fs.as_accumulation("kahan(fp32)"), 4) is None
    assert term_program(fs.Threads("fp32", 4, "fp32"), 2).order.tolist() == [0, 1]


def test_products_of_threads():
    x = fs.array(numbers(3, 2, 37), "fp32")
    order = description(SHAPES[2])
    lanes = [[np.float32(1) for _ in range(16)] for _ in range(2)]
    for row, values in enumerate(x.values.astype(np.float32)):
        for k, lane in enumerate(thread_lanes(order, 37).tolist()):
            lanes[row][lane] = lanes[row][lane] * values[k]
    joined = [[((a * b) * c) * d for a, b, c, d in zip(*[iter(row)] * 4, strict=True)] for row in lanes]
    expected = [(row[0] * row[2]) * (row[1] * row[3]) for row in joined]
    assert fs.prod(x, -1, accumulate=order).values.tolist() == expected
    with pytest.raises(TypeError, match="one tree in one format"):
        fs.prod(x, -1, accumulate="threads(fp32, 2, fp64)")


# -- moments -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", ["division", "reciprocal"])
@pytest.mark.parametrize("fmt", ["fp32", "fp16"])
@pytest.mark.parametrize("shape", [*SHAPES, None])
def test_moments_equal_the_reference(shape, fmt, steps):
    order = fs.Welford(fs.Sequential("fp32") if shape is None else description(shape), steps)
    for n in (1, 2, 45):
        x = fs.array(numbers(n, 2, n) + 3, fmt)
        found = fs.moments(x, -1, accumulate=order)
        for i, row in enumerate(x.codes.tolist()):
            expected = reference_moments.moments(order, row, x.format, RoundingAttributes())
            assert (found.mean.codes[i], found.squares.codes[i]) == expected[:2], (n, i)


@pytest.mark.parametrize("order", ["pairwise(fp32)", "threads(fp32, 2, pairwise(fp32, numpy))", "sequential(fp16)"])
def test_moments_of_other_orders(order):
    x = fs.array(numbers(1, 2, 21), "fp16")
    order = fs.Welford(order)
    found = fs.moments(x, -1, accumulate=order)
    expected = [reference_moments.moments(order, row, fs.FP16, RoundingAttributes())[:2] for row in x.codes.tolist()]
    assert list(zip(found.mean.codes.tolist(), found.squares.codes.tolist(), strict=True)) == expected


def test_variance_by_welford():
    x = fs.array(numbers(4, 2, 50), "fp32")
    order = fs.Welford(description(SHAPES[1]))
    squares = fs.moments(x, -1, accumulate=order).squares
    expected = fs.divide(squares, fs.array(49.0, "fp32"))
    assert fs.var(x, -1, ddof=1, accumulate=order).codes.tolist() == expected.codes.tolist()
    kept = np.arange(50) % 3 > 0
    masked = fs.moments(x, -1, where=np.broadcast_to(kept, x.shape), accumulate=order)
    assert masked.mean.codes.tolist() == fs.moments(x[:, kept], -1, accumulate=order).mean.codes.tolist()


@pytest.mark.parametrize(("call", "message"), [
    (lambda x: fs.sum(x, accumulate="welford(fp32)"), "fs.var and fs.moments take it"),
    (lambda x: fs.matmul(x, x, accumulate="sklansky(fp32, 16)"), "fs.cumsum takes it"),
    (lambda x: fs.var(x, accumulate="strided(welford(fp32), 2, fp32)"), "fs.var and fs.moments take it"),
    (lambda x: fs.moments(x, accumulate="fp32"), "must be Welford"),
    (lambda x: fs.Welford("kahan(fp32)"), "order must be"),
])  # fmt: skip
def test_descriptions_that_are_no_sums(call, message):
    with pytest.raises(TypeError, match=message):
        call(fs.array(np.ones((3, 3)), "fp32"))


def test_moments_do_not_draw():
    with pytest.raises(ValueError, match="stochastic"):
        fs.moments(fs.array([1.0], "fp32"), accumulate="welford(fp32)", rounding="stochastic", seed=1)


# -- running sums ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fmt", ["fp32", "fp16"])
@pytest.mark.parametrize("threads", [1, 2, 16])
def test_running_sums_equal_the_reference(threads, fmt):
    order = fs.Sklansky(fmt, threads)
    for n in (1, 2, 31, 33, 70):
        x = fs.array(numbers(n, 3, n), fmt)
        found = fs.cumsum(x, -1, accumulate=order)
        expected = [scans.running_sums(order, row, x.format, RoundingAttributes()) for row in x.codes.tolist()]
        assert found.codes.tolist() == expected
        assert fs.cumsum(np.transpose(x), 0, accumulate=order).codes.T.tolist() == expected
    with pytest.raises(ValueError, match="power of two"):
        fs.Sklansky("fp32", 3)
