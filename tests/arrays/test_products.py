"""matmul, as users call it: every description compared with the reference; shapes, layouts, scales, results."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

import floatsim as fs
from floatsim.arrays.call.options import resolve
from floatsim.arrays.events.counts import EVENTS
from floatsim.formats.call import CallOptions
from floatsim.reference import sums as reference_sums
from floatsim.reference.sums import Code
from floatsim.reference.tensorcore.dot import Scaled
from tests.marks import cases

pytestmark = pytest.mark.versions

FORMATS = [fmt for fmt in fs.named_formats() if not fmt.is_scale]
CUSTOM = [fs.FloatFormat.ieee(6, 9), fs.FloatFormat("fn(4,7)", 4, 7, "fn"), fs.FloatFormat.ieee(7, 3)]


def random_array(rng, fmt, shape):
    """Bit patterns, ordinary numbers, numbers near the subnormals, or numbers of all sizes up to max."""
    kind = rng.integers(4)
    if kind == 0:
        codes = rng.integers(0, 2**fmt.bits - 1, shape, dtype=np.uint64, endpoint=True)
        return fs.from_codes(codes, fmt)
    x = rng.standard_normal(shape)
    if kind == 1:
        x *= 2.0 ** rng.integers(-12, 12, shape)
    elif kind == 2:
        x *= 2.0 ** (fmt.emin + rng.integers(-4, 4, shape))
    else:
        x *= 2.0 ** (fmt.emax - 3 - rng.integers(0, 40, shape))
    return fs.array(x, fmt, overflow="saturate_finite")


def by_reference(a, b, accumulation, options, c=None, alpha=1.0, beta=1.0, scales=None):
    """(codes, histograms, first) of a @ b by `floatsim.reference.sums`, element by element.

    `scales` is (scale_a, scale_b, what they are), for matrix units.
    """
    shape = a.shape[0], b.shape[1]
    codes = np.empty(shape, accumulation.result_format.code_dtype)
    counts: dict[str, Counter] = {}
    first = {name: np.full(shape, -1) for name in reference_sums.EVENTS}
    factors = [reference_sums.Code(int(fs.encode(float(x), "fp64")), fs.FP64) for x in (alpha, beta)]
    for i, j in np.ndindex(shape):
        pairs = zip(a.codes[i], b.codes[:, j], strict=True)
        terms = [(Code(int(x), a.format), Code(int(y), b.format)) for x, y in pairs]
        start = None if c is None else Code(int(np.broadcast_to(c.codes, shape)[i, j]), c.format)
        block = None
        if scales is not None:
            block = Scaled(scales[0].codes[i].tolist(), scales[1].codes[:, j].tolist(), scales[2])
        one = reference_sums.scaled(
            accumulation, terms, options, *factors, index=i * shape[1] + j, c=start, scales=block
        )
        codes[i, j] = one.code
        for site, histogram in one.counts.items():
            counts[site] = counts.get(site, Counter()) + histogram
        for name, k in one.first.items():
            first[name][i, j] = -1 if k is None else k
    return codes, counts, first


def random_leaf(rng, formats=FORMATS + CUSTOM):
    kind = (fs.Sequential, fs.Pairwise, fs.Kahan, fs.Neumaier, fs.Exact)[rng.integers(5)]
    fmt = formats[rng.integers(len(formats))]
    keywords = {}
    if rng.random() < 0.2:
        keywords |= {"rounding": fs.Rounding(int(rng.integers(7)))}
    if rng.random() < 0.2:
        keywords |= {"overflow": fs.Overflow(int(rng.integers(3)))}
    if rng.random() < 0.2:
        keywords |= {"ftz": bool(rng.integers(2)), "daz": bool(rng.integers(2))}
    if kind is fs.Pairwise:
        keywords["tree"] = ("adjacent", "halving", "numpy")[rng.integers(3)]
    if kind is not fs.Exact:
        product = ("same", None, formats[rng.integers(len(formats))])[rng.integers(3)]
        keywords["product"] = product
        if product is not None and rng.random() < 0.3:
            keywords["product_rounding"] = fs.Rounding(int(rng.integers(7)))
    return kind(fmt, **keywords)


def random_description(rng, depth=2):
    if depth == 0 or rng.random() < 0.5:
        return random_leaf(rng)
    inner, outer = random_description(rng, depth - 1), random_description(rng, depth - 1)
    n = int(rng.integers(1, 6))
    return (fs.Strided(inner, n, outer), fs.Blocked(inner, n, outer), fs.SplitK(n, inner, outer))[rng.integers(3)]


def random_options(rng, rounding):
    return {
        "rounding": rounding, "daz": bool(rng.integers(2)), "ftz": bool(rng.integers(2)),
        "tininess": fs.Tininess(int(rng.integers(2))), "random_bits": int(rng.integers(1, 65)),
        "seed": int(rng.integers(1 << 60)),
    }  # fmt: skip


def call_options_of(options):
    """The options of these keywords, with a seed also if only a description is stochastic."""
    settled = resolve(options)
    return CallOptions(settled.attributes, options["seed"])


def check_by_reference(a, b, accumulation, options, c=None, alpha=1.0, beta=1.0, scales=None):
    """Compare codes, counts and first k of all events, and codes without recording."""
    keywords = {"alpha": alpha, "beta": beta, "accumulate": accumulation, **options}
    if scales is not None:
        keywords |= {"scale_a": scales[0], "scale_b": scales[1]}
    with fs.record() as log:
        recorded = fs.matmul(a, b, c, **keywords)
    plain = fs.matmul(a, b, c, **keywords)
    codes, counts, first = by_reference(a, b, accumulation, call_options_of(options), c, alpha, beta, scales)
    about = (accumulation, a, b, c, options, scales)
    assert np.array_equal(recorded.codes, codes), about
    assert np.array_equal(plain.codes, codes), about
    for site, histogram in counts.items():
        for name, bit in EVENTS.items():
            if name == "divide_by_zero" or (site, name) == ("scale", "absorbed"):  # the bit of a new NaN; no term
                continue
            want = sum(number for byte, number in histogram.items() if byte & bit)
            assert not want or getattr(log[f"matmul.{site}"], name) == want, (*about, site, name)
    for name, k_first in first.items():
        assert np.array_equal(log.first[name], k_first), (*about, name)


@pytest.mark.parametrize("part", cases(quick=[0], full=range(4)))
@pytest.mark.parametrize(
    "rounding", cases(quick=[fs.Rounding.STOCHASTIC], full=fs.Rounding), ids=lambda r: r.name.lower()
)
def test_equals_the_reference(rounding, part):
    """Codes, counts and first k with all events, by the integer kernels; then without events, by the fastest kernel."""
    rng = np.random.default_rng([rounding.value, part])
    for _ in range(30):
        a_format, b_format, c_format = (FORMATS[i] for i in rng.integers(0, len(FORMATS), 3))
        accumulation, options = random_description(rng), random_options(rng, rounding)
        if rng.random() < 0.5:
            options |= {"daz": False, "ftz": False}
        m, k, n = rng.integers(1, 4), rng.integers(0, 20), rng.integers(1, 4)
        a, b = random_array(rng, a_format, (m, k)), random_array(rng, b_format, (k, n))
        c = random_array(rng, c_format, (m, n)) if rng.random() < 0.4 else None
        alpha = float(rng.choice([1, 1, -0.3, 3e5]))
        beta = float(rng.choice([1, 1, 0, 0.7])) if c is not None else 1.0
        check_by_reference(a, b, accumulation, options, c, alpha, beta)


def test_fp32_equals_a_plain_float32_loop():
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((5, 33)).astype(np.float32), rng.standard_normal((33, 7)).astype(np.float32)
    want = np.zeros((5, 7), np.float32)
    for k in range(33):
        want = want + a[:, k, None] * b[k]
    assert np.array_equal(fs.matmul(a, b), want)


def test_exact_equals_a_sum_of_fractions_rounded_once():
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(shape) * 2.0 ** rng.integers(-300, 300, shape) for shape in ((4, 20), (20, 3)))
    got = fs.matmul(a, b, accumulate=fs.Exact("fp64"))
    for i in range(4):
        for j in range(3):
            assert got[i, j] == float(sum(Fraction(x) * Fraction(y) for x, y in zip(a[i], b[:, j], strict=True)))


@pytest.mark.parametrize("shape", [(0, 3, 2), (2, 0, 3), (2, 3, 0), (1, 1, 1)])
@pytest.mark.parametrize("accumulate", ["fp16", "sequential(fp16, fused)", "exact(fp16)"])
def test_empty_and_single(shape, accumulate):
    m, k, n = shape
    c = fs.matmul(np.ones((m, k), np.float16), np.ones((k, n), np.float16), accumulate=accumulate)
    assert c.dtype == np.float16
    assert np.array_equal(c, np.full((m, n), float(k), np.float16))
    assert not np.signbit(c).any()


def test_vectors_batches_and_views():
    rng = np.random.default_rng(4)
    a, b = rng.standard_normal((2, 1, 3, 5)).astype(np.float16), rng.standard_normal((4, 5, 6)).astype(np.float16)
    c = fs.matmul(a, b, accumulate="fp16")
    assert c.shape == (2, 4, 3, 6)
    for p in range(2):
        for q in range(4):
            assert np.array_equal(c[p, q], fs.matmul(a[p, 0], b[q], accumulate="fp16"))
    x, y = a[0, 0], b[0]
    whole = fs.matmul(x, y, accumulate="bf16")
    assert np.array_equal(fs.matmul(x[1], y, accumulate="bf16"), whole[1])
    assert np.array_equal(fs.matmul(x, y[:, 2], accumulate="bf16"), whole[:, 2])
    assert fs.matmul(x[1], y[:, 2], accumulate="bf16") == whole[1, 2]
    assert np.array_equal(fs.matmul(np.asfortranarray(x), y[:, ::-1], accumulate="bf16"), whole[:, ::-1])
    frozen = x.copy()
    frozen.flags.writeable = False
    assert np.array_equal(fs.matmul(frozen, y.astype(">f2"), accumulate="bf16"), whole)


def test_the_result_is_rounded_once_more():
    a = np.full((1, 3), 300.0, np.float32)
    assert fs.matmul(a, a.T, format="fp16")[0, 0] == np.inf
    assert fs.matmul(a, a.T, format="fp16", overflow="saturate_finite")[0, 0] == 65504
    assert fs.matmul(a, a.T, format="fp16", result_rounding="toward_zero")[0, 0] == 65504
    with fs.record() as log:
        fs.matmul(a, a.T, format="fp16")
    assert log["matmul.result"].overflow == 1 and log["matmul.sum"].overflow == 0


def test_out():
    a = fs.array([[1.0, 2.0]], "bf16")
    out = fs.array([[0.0]], "fp32")
    assert fs.matmul(a, a.T, out=out) is out
    assert out.item() == 5.0
    with pytest.raises(ValueError, match="out is FP32"):
        fs.matmul(a, a.T, accumulate="bf16", out=out)


def test_operator_keeps_the_common_format():
    a, b = fs.array([[1.0, 1e-3]], "fp16"), fs.array([[1.0], [1.0]], "bf16")
    assert (a @ a.T).format == fs.FP16
    assert (a @ b).format == fs.FP32


def test_first_in_first_absorbed():
    ones = np.ones(4096, np.float16)
    with fs.record() as log:
        total = fs.matmul(ones, ones, accumulate="fp16")
    assert total == 2048
    assert log["matmul.sum"].absorbed == 4096 - 2048
    assert log["matmul.product"].elements == log["matmul.sum"].elements == 4096


@pytest.mark.parametrize("accumulator", [fs.FP16, fs.FloatFormat.ieee(6, 13), fs.FP64], ids=lambda fmt: fmt.name)
def test_batches_of_single_sums(accumulator):
    """Parts of many matrices of one element each: their results are not contiguous in memory."""
    r = np.random.default_rng(6)
    a, b = fs.array(r.standard_normal((3, 1, 9)), "fp16"), fs.array(r.standard_normal((3, 9, 1)), "fp16")
    for accumulation in (
        fs.Blocked(accumulator, 4, accumulator),
        fs.Strided(accumulator, 2),
        fs.SplitK(3, accumulator, "fp64"),
    ):
        together = fs.matmul(a, b, accumulate=accumulation)
        apart = [fs.matmul(x, y, accumulate=accumulation) for x, y in zip(a, b, strict=True)]
        assert together.shape == (3, 1, 1) and np.array_equal(together.codes, [one.codes for one in apart])


def test_a_remembered_call_knows_its_keywords_and_its_context():
    """The same call after one with other keywords, and after another context."""
    a, b, call = fs.array([[3.0, 1.0]], "e4m3"), fs.array([[1.0], [0.1]], "e4m3"), "sequential(e4m3)"
    tiny, one = fs.array([[2.0**-9]], "e4m3"), fs.array([[1.0]], "e4m3")
    for _ in range(2):
        for mode, value in ("toward_zero", 3.0), ("toward_positive", 3.25), ("ties_to_even", 3.0):
            for rounding in mode, fs.Rounding[mode.upper()]:
                assert fs.matmul(a, b, accumulate=call, rounding=rounding).item() == value
            with fs.context(rounding=mode):
                assert fs.matmul(a, b, accumulate=call).item() == value
                assert fs.matmul(a, b, accumulate=call, rounding="RTP").item() == 3.25
        for daz, value in (True, 0.0), (False, 2.0**-9), (None, 2.0**-9):
            assert fs.matmul(tiny, one, accumulate=call, daz=daz).item() == value
            assert fs.matmul(tiny, one, accumulate=call, ftz=daz).item() == value
        draws = {fs.matmul(a, b, accumulate=call, rounding="stochastic", seed=seed).item() for seed in range(40)}
        assert draws == {3.0, 3.25}
        with pytest.raises(ValueError, match="seed"):
            fs.matmul(a, b, accumulate=call, rounding="stochastic")
