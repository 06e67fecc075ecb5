"""matmul: the reference, one operation at a time, against the integer kernels, and these against the fast ones."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import floatsim as fs
from floatsim import reference, shortcuts
from floatsim.contexts import resolve
from floatsim.reference import Attributes

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


def by_reference(a, b, accumulation, how, seed):
    """(M, N) codes, by the definitions of Sequential and Exact."""
    fmt = accumulation.format
    x = [[reference.decode(int(c), a.format, how.daz) for c in row] for row in a.codes]
    y = [[reference.decode(int(c), b.format, how.daz) for c in row] for row in b.codes.T]
    out = np.empty((len(x), len(y)), object)
    for i, row in enumerate(x):
        for j, column in enumerate(y):

            def draw(site, index=i * len(y) + j):
                return reference.draw(seed, index, how.random_bits, site) if how.rounding.name == "STOCHASTIC" else 0

            if isinstance(accumulation, fs.Exact):
                pairs = list(zip(row, column, strict=True))
                out[i, j] = reference.exact_dot(pairs, fmt, how, draw(1))[0]
                continue
            acc = 0
            for k, (p, q) in enumerate(zip(row, column, strict=True)):
                total = reference.decode(acc, fmt, how.daz)
                if accumulation.fused:
                    acc = reference.fma(p, q, total, fmt, how, draw(2 * k + 1))[0]
                else:
                    term = reference.multiply(p, q, fmt, how, draw(2 * k))[0]
                    acc = reference.add(total, reference.decode(term, fmt, how.daz), fmt, how, draw(2 * k + 1))[0]
            out[i, j] = acc
    return out


@pytest.mark.parametrize("rounding", fs.Rounding, ids=lambda r: r.name.lower())
def test_equals_the_reference(rounding):
    rng = np.random.default_rng(rounding.value)
    for _ in range(40):
        a_format, b_format, fmt = (FORMATS[i] for i in rng.integers(0, len(FORMATS), 3))
        how = Attributes(
            rounding, fs.Overflow.INFINITY, *(bool(x) for x in rng.integers(0, 2, 2)),
            fs.Tininess(int(rng.integers(2))), int(rng.integers(1, 65)),
        )  # fmt: skip
        m, k, n = rng.integers(1, 4), rng.integers(0, 9), rng.integers(1, 4)
        a, b = random_array(rng, a_format, (m, k)), random_array(rng, b_format, (k, n))
        for accumulation in fs.Sequential(fmt), fs.Sequential(fmt, fused=True), fs.Exact(fmt):
            got = fs.matmul(
                a, b, accumulate=accumulation, rounding=rounding, daz=how.daz, ftz=how.ftz, tininess=how.tininess,
                random_bits=how.random_bits, seed=5,
            )  # fmt: skip
            want = by_reference(a, b, accumulation, how, 5)
            assert np.array_equal(got.codes.astype(object), want), (accumulation, a_format, b_format, how)


def fast_kernel(a, b, accumulator):
    chosen = shortcuts.matmul_kernel(a, b, accumulator, resolve({}))
    return None if chosen is None else chosen[1].__name__


def test_the_fast_kernels_equal_the_integer_kernels():
    rng = np.random.default_rng(1)
    formats = FORMATS + CUSTOM
    results = dict.fromkeys(("plain", "half", "bfloat", "narrow"), 0)
    for _ in range(800):
        a_format, b_format, fmt = (formats[i] for i in rng.integers(0, len(formats), 3))
        if rng.random() < 0.5:
            a_format = b_format = fmt
        kernel = fast_kernel(a_format, b_format, fmt)
        if kernel is None:
            continue
        m, k, n = rng.integers(1, 4), rng.integers(0, 40), rng.integers(1, 36)
        a, b = random_array(rng, a_format, (m, k)), random_array(rng, b_format, (k, n))
        fast = fs.matmul(a, b, accumulate=fmt).codes
        with fs.record():
            slow = fs.matmul(a, b, accumulate=fmt).codes
        assert np.array_equal(fast, slow), (a_format, b_format, fmt, kernel)
        results[kernel] += fast.size
    if fast_kernel(fs.FP16, fs.FP16, fs.FP16) != "half":  # a machine without F16C
        results.pop("half")
    assert all(count > 500 for count in results.values()), results


def test_which_products_are_fast():
    assert fast_kernel(fs.FP32, fs.FP32, fs.FP32) == fast_kernel(fs.E4M3, fs.FP64, fs.FP64) == "plain"
    assert fast_kernel(fs.BF16, fs.BF16, fs.BF16) == "bfloat"
    assert fast_kernel(fs.E4M3, fs.E5M2, fs.E5M2) == "narrow"
    # products that float32 does not hold, accumulators that it does not round to
    for formats in (fs.FP32, fs.FP32, fs.FP16), (fs.TF32, fs.TF32, fs.BF16), (fs.FP64, fs.FP32, fs.FP32):
        assert fast_kernel(*formats) is None
    for fmt in fs.TF32, fs.E2M1, fs.E3M2:
        assert fast_kernel(fmt, fmt, fmt) is None
    assert shortcuts.matmul_kernel(fs.FP16, fs.FP16, fs.FP16, resolve({"ftz": True})) is None


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
