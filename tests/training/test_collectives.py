"""Collectives of simulated ranks against plain loops over the reference, and the orders of frameworks."""

from __future__ import annotations

import numpy as np
import pytest

import floatsim as fs
from floatsim import reference as r
from floatsim.formats.rounding import Overflow, RoundingAttributes
from floatsim.training import all_reduce, reduce_scatter, ring_chunks
from floatsim.training.collectives.compression import CompressionState

NEAREST = RoundingAttributes()
SATURATING = RoundingAttributes(overflow=Overflow.SATURATE_FINITE)
WORLD_SIZES = (1, 3, 6, 12)


def plus(a: int, b: int, fmt: fs.FloatFormat) -> int:
    """One hop of NCCL: formats of 8 bits are added in FP16."""
    x, y = r.decode(a, fmt), r.decode(b, fmt)
    if fmt.bits > 8:
        return r.add(x, y, fmt, NEAREST)[0]
    return r.convert(r.decode(r.add(x, y, fs.FP16, NEAREST)[0], fs.FP16), fmt, SATURATING)[0]


def ring(codes: np.ndarray, fmt: fs.FloatFormat) -> list[int]:
    """Element by element: the chunk of rank d starts at rank d + 1 and ends at rank d."""
    ranks, elements = codes.shape
    size = -(-elements // ranks)
    result = []
    for i in range(elements):
        owner = i // size
        order = [(owner + 1 + hop) % ranks for hop in range(ranks)]
        total = int(codes[order[0], i])
        for rank in order[1:]:
            total = plus(total, int(codes[rank, i]), fmt)
        result.append(total)
    return result


def tree(codes: np.ndarray, fmt: fs.FloatFormat) -> list[int]:
    """From the last rank to the first: a rank waits for its children, the left one first."""
    ranks, elements = codes.shape
    result = []
    for i in range(elements):
        totals = [int(code) for code in codes[:, i]]
        for rank in reversed(range(ranks)):
            for child in (2 * rank + 1, 2 * rank + 2):
                if child < ranks:
                    totals[rank] = plus(totals[rank], totals[child], fmt)
        result.append(totals[0])
    return result


def messages(ranks: int, elements: int, fmt: str) -> fs.FloatArray:
    rng = np.random.default_rng(ranks * 100 + elements)
    x = rng.normal(size=(ranks, elements)) * np.exp2(rng.integers(-6, 6, (ranks, elements)))
    x[:, :1] = -0.0
    return fs.array(x, fmt)


FULL = pytest.mark.full


@pytest.mark.parametrize("algorithm", ["ring", "tree"])
@pytest.mark.parametrize("fmt", ["fp16", *(pytest.param(fmt, marks=FULL) for fmt in ("bf16", "e4m3", "e5m2"))])
def test_equals_a_loop_over_the_reference(fmt, algorithm):
    for ranks in WORLD_SIZES:
        for elements in (1, 7, 24):  # fewer elements than ranks; not a multiple; a multiple
            x = messages(ranks, elements, fmt)
            loop = {"ring": ring, "tree": tree}[algorithm](x.codes, x.format)
            assert all_reduce(x, algorithm=algorithm).codes.tolist() == loop


@pytest.mark.parametrize("ranks", WORLD_SIZES)
@pytest.mark.full
def test_reduce_scatter_has_the_chunks_of_all_reduce(ranks):
    x = messages(ranks, 31, "bf16")
    parts = reduce_scatter(x)
    size = -(-31 // ranks)
    assert [part.size for part in parts] == [max(0, min(size, 31 - d * size)) for d in range(ranks)]
    assert np.concatenate([part.codes for part in parts]).tolist() == all_reduce(x).codes.tolist()


def test_chunks_of_several_runs():
    """Each run over N * chunk elements has its own owners; the last run divides what is left."""
    assert [tuple(c) for c in ring_chunks(11, 3, chunk=2)] == [
        (0, 0, 2), (1, 2, 4), (2, 4, 6), (0, 6, 8), (1, 8, 10), (2, 10, 11),
    ]  # fmt: skip
    x = messages(3, 11, "bf16")
    runs = np.concatenate([all_reduce(x[:, :6]).codes, all_reduce(x[:, 6:]).codes])
    assert all_reduce(x, chunk=2).codes.tolist() == runs.tolist()
    parts = reduce_scatter(x, chunk=2)
    assert parts[2].codes.tolist() == runs[[4, 5, 10]].tolist()
    assert ring_chunks(0, 4) == []


@pytest.mark.full
def test_elements_of_one_tensor_have_different_orders():
    x = fs.array([[256.0, 256.0], [1.0, 1.0], [1.0, 1.0]], "bf16")
    # chunk 0: (x1 + x2) + x0; chunk 1: (x2 + x0) + x1
    assert all_reduce(x).values.tolist() == [258.0, 256.0]


@pytest.mark.full
def test_partial_sums_in_fp32():
    for ranks in WORLD_SIZES:
        x = messages(ranks, 13, "fp16")
        total = x.values.astype(np.float32)
        size = -(-13 // ranks)
        expected = np.empty(13, np.float32)
        for i in range(13):
            order = [(i // size + 1 + hop) % ranks for hop in range(ranks)]
            acc = total[order[0], i]
            for rank in order[1:]:
                acc = np.float32(acc + total[rank, i])
            expected[i] = acc
        assert all_reduce(x, accumulate="fp32").codes.tolist() == expected.astype(np.float16).view(np.uint16).tolist()


@pytest.mark.parametrize(("fmt", "factor"), [("bf16", 0.333984375), ("e4m3", 0.34375), ("fp16", 0.333251953125)])
@pytest.mark.full
def test_average_multiplies_by_a_rounded_reciprocal(fmt, factor):
    x = fs.array([[1.0], [0.0], [0.0]], fmt)
    assert all_reduce(x, "average").item() == factor
    x = messages(3, 10, fmt)
    scaled = fs.multiply(x, factor) if fmt != "e4m3" else fs.convert(
        fs.multiply(fs.convert(x, "fp16"), np.float16(factor)), "e4m3", overflow="saturate_finite")  # fmt: skip
    assert all_reduce(x, "average").codes.tolist() == all_reduce(fs.array(scaled, fmt)).codes.tolist()


@pytest.mark.full
def test_eight_bits_are_added_in_fp16_and_saturate():
    # each sum is exact in FP16; 17 is a tie of E4M3, which has steps of 2 there
    x = fs.array([[16.0], [1.0], [2.0**-9]], "e4m3")
    assert all_reduce(fs.array([[16.0], [1.125]], "e4m3")).item() == 18.0
    assert all_reduce(x, algorithm="tree").item() == 16.0
    large = fs.array([[448.0], [448.0]], "e4m3")
    assert all_reduce(large).item() == 448.0
    assert np.isnan(all_reduce(large, overflow="infinity").item())
    assert all_reduce(fs.array([[57344.0], [57344.0]], "e5m2")).item() == 57344.0


@pytest.mark.full
@pytest.mark.parametrize("mode", ["toward_zero", "toward_positive", "toward_negative", "ties_to_away", "to_odd"])
@pytest.mark.parametrize("fmt", ["e4m3", "e4m3fnuz", "e5m2", "e2m1"])
def test_other_modes_round_eight_bits_once(fmt, mode):
    """NCCL's additions in FP16 are for ties to even. In other modes, a hop is `fs.add`."""
    x = messages(2, 400, fmt)
    for op in ("sum", "average"):
        scaled = fs.multiply(x, fs.array(0.5, fmt), rounding=mode, overflow="saturate_finite") if op == "average" else x
        expected = fs.add(scaled[0], scaled[1], rounding=mode, overflow="saturate_finite")
        assert all_reduce(x, op, rounding=mode).codes.tolist() == expected.codes.tolist()


def test_directed_rounding_of_eight_bits():
    x = fs.array([[240.0], [-0.046875]], "e4m3fnuz")
    assert all_reduce(x, rounding="toward_zero").item() == 224.0
    assert all_reduce(x).item() == 240.0
    with fs.context(rounding="toward_zero"):
        assert all_reduce(x).item() == 224.0


@pytest.mark.parametrize("fmt", [fs.FloatFormat.ieee(6, 1)], ids=str)
def test_eight_bits_beyond_fp16(fmt):
    """FP16 does not hold 2**16: the numbers are added in their format."""
    x = fs.array([[65536.0], [0.0]], fmt)
    assert all_reduce(x).item() == 65536.0
    assert all_reduce(x, "average").item() == 32768.0


def test_overflow_of_fp16_by_summation():
    for ranks, finite in ((65, True), (66, False)):
        assert np.isfinite(all_reduce(np.full((ranks, 2), 1000, np.float16)).values).all() == finite


@pytest.mark.full
def test_wire_format_and_shape():
    x = np.random.default_rng(0).normal(size=(3, 2, 4)).astype(np.float32)
    y = all_reduce(x, wire="bf16")
    assert (y.shape, y.format) == ((2, 4), fs.BF16)
    assert y.codes.ravel().tolist() == all_reduce(fs.array(x.reshape(3, 8), "bf16")).codes.tolist()
    big = np.full((1, 1), 1e9, np.float32)
    assert all_reduce(big, wire="e4m3").item() == 448.0  # a cast to 8 bits saturates


@pytest.mark.full
def test_stochastic_hops_draw_new_numbers():
    """With one draw for all hops, 255 increments of 1/8 ulp would be lost or kept together."""
    x = np.full((257, 64), 2.0**-11, np.float16)
    x[1] = 1.0  # the first operand of chunk 0
    total = all_reduce(fs.array(x, "bf16"), chunk=64 * 257, rounding="stochastic", seed=1).values
    assert len(set(total.tolist())) > 5
    assert total.mean() == pytest.approx(1 + 256 * 2.0**-11, abs=0.02)


@pytest.mark.parametrize("seed", [1, np.int64(1), np.uint8(1)], ids=repr)
def test_integer_seeds_are_streams(seed):
    """Eight additions of half an ulp to 256: the hops draw new numbers, and the sums are binomial."""
    x = np.ones((9, 400), np.float32)
    x[1] = 256.0  # the first operand of chunk 0
    x = fs.array(x, "bf16")
    total = all_reduce(x, chunk=1 << 20, rounding="SR", seed=seed)
    assert len(set(total.values.tolist())) > 4
    assert total.codes.tolist() == all_reduce(x, chunk=1 << 20, rounding="SR", seed=1).codes.tolist()
    with fs.context(rounding="SR", seed=1):
        assert total.codes.tolist() == all_reduce(x, chunk=1 << 20).codes.tolist()


def test_lists_of_float_arrays_keep_their_format():
    ranks = [fs.array([2048.0], "fp16"), fs.array([1.0], "fp16")]
    total = all_reduce(ranks)
    assert (total.format, total.item()) == (fs.FP16, 2048.0)
    assert reduce_scatter(ranks)[0].item() == 2048.0
    assert fs.training.reduce_gradients(ranks, "deepspeed").item() == 1024.0
    with pytest.raises(ValueError, match=r"x: the ranks must be .* not \('FP16', \(1,\)\) and \('BF16', \(1,\)\)"):
        all_reduce([ranks[0], fs.array([1.0], "bf16")])
    with pytest.raises(ValueError, match="one format and one shape"):
        all_reduce([ranks[0], [1.0]])


def test_nan_and_infinity_spread():
    x = fs.array([[np.inf, 1.0, np.nan], [-np.inf, np.inf, 1.0]], "fp16")
    assert np.isnan(all_reduce(x).values[[0, 2]]).all()
    assert all_reduce(x).values[1] == np.inf


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda: all_reduce(np.empty((0, 4), np.float32)), ValueError, "no rank"),
    (lambda: all_reduce(np.float32(1)), ValueError, "no rank"),
    (lambda: all_reduce(np.ones((2, 2), np.int32)), TypeError, "int32"),
    (lambda: all_reduce(np.ones((2, 2), np.float32), "avrage"), ValueError, "did you mean 'average'"),
    (lambda: all_reduce(np.ones((2, 2), np.float32), algorithm="rign"), ValueError, "did you mean 'ring'"),
    (lambda: all_reduce(np.ones((2, 2), np.float32), wire="e8m0"), ValueError, "scale format"),
    (lambda: all_reduce(np.ones((2, 2), np.float32), accumulate="e8m0"), ValueError, "scale format"),
    (lambda: ring_chunks(5, 0), ValueError, "ranks must be at least 1"),
    (lambda: ring_chunks(5, 2, chunk=0), ValueError, "chunk must be at least 1"),
    (lambda: fs.training.fsdp_divide_factors(0), ValueError, "ranks must be at least 1"),
    (lambda: fs.training.reduce_gradients(np.empty((0, 4), np.float32)), ValueError, "no rank"),
    (lambda: fs.training.reduce_gradients(np.ones((2, 4), np.float32), "fsdp3"), ValueError, "did you mean 'fsdp2'"),
    (lambda: fs.training.reduce_gradients(np.ones((2, 4), np.float32), predivide=0), ValueError, "predivide"),
    (lambda: fs.training.compressed_all_reduce(np.ones((2, 4), np.float32), "topk"), TypeError, "compressor must be a"),
])  # fmt: skip
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()


# -- orders of frameworks ----------------------------------------------------------------------------------------------

FACTORS = {1: (1, 1), 2: (2, 1), 3: (2, 1.5), 4: (2, 2), 5: (2, 2.5), 6: (4, 1.5), 8: (4, 2), 12: (4, 3), 16: (4, 4),
           24: (8, 3), 64: (8, 8), 1024: (32, 32)}  # fmt: skip


def test_divide_factors_of_fsdp():
    assert {n: fs.training.fsdp_divide_factors(n) for n in FACTORS} == FACTORS


def gradients(ranks: int) -> np.ndarray:
    return np.random.default_rng(ranks).normal(1e-3, 1e-3, (ranks, 50)).astype(np.float32)


def half(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float16)


@pytest.mark.parametrize("ranks", WORLD_SIZES)
def test_orders_of_cast_divide_and_sum(ranks):
    """The orders of the reference sheet, written with NumPy's float32 and float16."""
    x = gradients(ranks)
    inverse = np.float32(1) / np.float32(ranks)
    before, after = (np.float32(1) / np.float32(f) for f in fs.training.fsdp_divide_factors(ranks))

    def times(y, factor):
        return half(y.astype(np.float32) * factor)

    def summed(y):
        return all_reduce(y).values.astype(np.float16)

    expected = {
        "ddp_fp16_hook": summed(times(half(x), inverse)),
        "ddp_fp16_hook_2021": times(summed(half(x)), inverse),
        "fsdp1": times(summed(times(half(x), before)), after),
        "fsdp2": times(summed(times(half(x), before)), after),
        "deepspeed": times(summed(half(x)), inverse),
        "deepspeed_prescale": summed(times(half(x), inverse)),
        "zero12": summed(times(half(x), inverse)),
        "zero3": times(summed(half(x)), inverse),
    }
    for name, values in expected.items():
        wire = None if name.startswith("ddp") else "fp16"
        result = fs.training.reduce_gradients(x, name, wire=wire)
        assert result.format == fs.FP32
        assert result.values.tolist() == values.astype(np.float64).tolist(), name


@pytest.mark.full
def test_fsdp2_averages_in_bf16_and_fp32():
    x = gradients(6)
    for wire in ("bf16", "fp32"):
        result = fs.training.reduce_gradients(x, "fsdp2", wire=wire)
        assert result.values.tolist() == all_reduce(x, "average", wire=wire).values.tolist()
    assert fs.training.reduce_gradients(x, "fsdp2", wire="bf16", predivide=2.0).values.tolist() != (
        fs.training.reduce_gradients(x, "fsdp2", wire="bf16").values.tolist()
    )


def test_divisions():
    """For N = 3 the product with the reciprocal differs from the quotient in some elements of FP32."""
    x = gradients(3)
    a, b = (fs.training.reduce_gradients(x, "ddp", division=each).codes for each in ("reciprocal", "divide"))
    quotient = x / np.float32(3)
    assert b.tolist() == all_reduce(quotient).codes.tolist()
    assert np.any(a != b)


@pytest.mark.full
def test_mixed_precision_of_fsdp():
    policy = fs.training.MixedPrecision(param="bf16")
    x = fs.array(gradients(6), "bf16")
    assert policy.reduce_gradients(x, version=2).values.tolist() == all_reduce(x, "average").values.tolist()
    assert policy.reduce_gradients(x).format == fs.FP32
    low = fs.training.MixedPrecision(param="bf16", keep_low_precision_grads=True)
    assert low.reduce_gradients(x).format == fs.BF16
    assert policy.cast_buffers(np.float32([0.1])).format == fs.FP32
    assert fs.training.MixedPrecision(buffer="bf16").cast_buffers(np.float32([0.1])).format == fs.BF16
    with pytest.raises(ValueError, match="unknown format"):
        fs.training.MixedPrecision(param="bf17")


def relative_errors(fmt: str, ranks: int) -> float:
    x = np.random.default_rng(0).normal(1e-3, 1e-3, (ranks, 2000)).astype(np.float32)
    narrow = fs.array(x, fmt)
    exact = narrow.values.sum(axis=0)
    return float(np.mean(np.abs(all_reduce(narrow).values - exact)) / np.mean(np.abs(exact)))


@pytest.mark.full
@pytest.mark.parametrize(("fmt", "expected"), [
    ("fp16", {8: 3.4e-4, 64: 7.6e-4, 512: 2.1e-3}), ("bf16", {8: 2.8e-3, 64: 6.1e-3, 512: 1.9e-2}),
    ("e5m2", {8: 0.088, 64: 0.51, 512: 0.94}),
])  # fmt: skip
def test_error_grows_with_the_ranks(fmt, expected):
    """The sheet's mean relative errors of g ~ N(1e-3, 1e-3); data and seed differ, so the order of size is compared."""
    for ranks, error in expected.items():
        assert error / 2 < relative_errors(fmt, ranks) < error * 2


# -- compression -------------------------------------------------------------------------------------------------------


def test_top_k_sends_the_largest_and_keeps_the_rest():
    x = np.float32([[1, -4, 3, 0.5], [-3, 3, 1, 2]])
    result, state = fs.training.compressed_all_reduce(x, fs.training.TopK(2))
    assert state.error.values.tolist() == [[1, 0, 0, 0.5], [0, 0, 1, 2]]
    assert result.values.tolist() == [-1.5, -0.5, 1.5, 0]
    again, state = fs.training.compressed_all_reduce(x, fs.training.TopK(2), state)
    assert again.values.tolist() == [-1.5, -2.0, 1.5, 2.0]  # the errors 1, .5, 1, 2 were added
    assert state.step == 2
    without, state = fs.training.compressed_all_reduce(x, fs.training.TopK(0.5, feedback=False))
    assert state.error is None
    assert without.values.tolist() == result.values.tolist()


@pytest.mark.full
@pytest.mark.parametrize("make", [
    lambda: fs.training.TopK(0.1), lambda: fs.training.RandomK(0.1, seed=3), lambda: fs.training.PowerSGD(rank=1),
])  # fmt: skip
def test_error_feedback_transmits_everything_in_time(make):
    x = np.random.default_rng(1).normal(size=(4, 10, 6)).astype(np.float32)
    mean, total, state = x.mean(axis=0), 0.0, None
    for _ in range(60):
        sent, state = fs.training.compressed_all_reduce(x, make(), state)
        total = total + sent.values
    left = state.error.values.mean(axis=0)
    assert np.abs(total + left - 60 * mean).max() < 1e-3  # nothing is lost but roundings
    assert np.linalg.norm(total / 60 - mean) < 0.35 * np.linalg.norm(mean)


def test_random_k_sends_the_same_elements_at_all_ranks():
    x = np.ones((3, 40), np.float32)
    first, state = fs.training.compressed_all_reduce(x, fs.training.RandomK(10, seed=5))
    second, _ = fs.training.compressed_all_reduce(x, fs.training.RandomK(10, seed=5, feedback=False), state)
    assert (first.values != 0).sum() == 10
    assert set(np.flatnonzero(first.values)) != set(np.flatnonzero(second.values))
    assert set(state.error.values.sum(axis=0).tolist()) == {0.0, 3.0}


@pytest.mark.full
def test_power_sgd_is_exact_at_full_rank():
    x = np.random.default_rng(2).normal(size=(2, 5, 3)).astype(np.float32)
    result, state = fs.training.compressed_all_reduce(x, fs.training.PowerSGD(rank=3))
    assert np.abs(result.values - x.mean(axis=0)).max() < 1e-5
    assert state.q.shape == (3, 3)
    warm, _ = fs.training.compressed_all_reduce(x, fs.training.PowerSGD(rank=1, feedback=False))
    cold, _ = fs.training.compressed_all_reduce(x, fs.training.PowerSGD(rank=1, feedback=False, seed=9))
    assert warm.values.tolist() != cold.values.tolist()


@pytest.mark.full
def test_power_sgd_overflows_in_fp16():
    """The product with Q sums the elements of a row: beyond 65504 the factors are not finite."""
    x = fs.array(np.full((1, 4, 16), 60000.0), "fp16")
    result, _ = fs.training.compressed_all_reduce(x, fs.training.PowerSGD(rank=1))
    assert not np.isfinite(result.values).any()
    wide, _ = fs.training.compressed_all_reduce(fs.convert(x, "fp32"), fs.training.PowerSGD(rank=1))
    assert np.allclose(wide.values, 60000.0)


@pytest.mark.parametrize(("call", "message"), [
    (lambda: fs.training.compressed_all_reduce(np.ones((2, 3), np.float32), fs.training.PowerSGD()), "matrices"),
    (lambda: fs.training.compressed_all_reduce(np.ones((2, 3), np.float32), fs.training.TopK(0)), "k must be"),
    (lambda: fs.training.compressed_all_reduce(np.ones((2, 3), np.float32), fs.training.TopK(1.5)), "share"),
    (lambda: fs.training.compressed_all_reduce(np.ones((0, 3), np.float32), fs.training.TopK(1)), "no rank"),
    (lambda: fs.training.compressed_all_reduce(
        np.ones((2, 3), np.float32), fs.training.TopK(1),
        CompressionState(fs.array(np.zeros((2, 4)), "fp32"))), "state is for FP32"),
    (lambda: fs.training.fp8_all_reduce(np.ones((2, 3), np.float32), "fp16"), "at most 8 bits"),
    (lambda: fs.training.fp8_all_reduce(np.ones((2, 3), np.float32), headroom=0.5), "headroom"),
])  # fmt: skip
def test_errors_of_compression(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


@pytest.mark.full
def test_fp8_messages():
    rng = np.random.default_rng(3)
    x = rng.normal(1e-3, 1e-3, (16, 300)).astype(np.float32)
    exact = x.astype(np.float64).sum(axis=0)

    def error(y):
        return np.linalg.norm(y.values - exact) / np.linalg.norm(exact)

    one, each = fs.training.fp8_all_reduce(x), fs.training.fp8_all_reduce(x, rescale=True)
    assert one.format == each.format == fs.FP32
    assert error(each) < error(one) < 0.3
    assert error(fs.training.fp8_all_reduce(x, "e5m2")) > error(one)
    clipped = fs.training.fp8_all_reduce(x, headroom=1.0)
    assert np.abs(clipped.values).max() <= np.abs(x).max() * 1.0001  # the sum saturates at the largest number
    assert fs.training.fp8_all_reduce(np.zeros((3, 4), np.float32)).values.tolist() == [0.0] * 4
    assert np.all(np.isfinite(fs.training.fp8_all_reduce(np.full((3, 4), 1e-44, np.float32)).values))
