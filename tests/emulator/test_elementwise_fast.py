"""The fast kernels equal the integer kernels on custom formats, and refuse the cases to which they do not apply."""

from __future__ import annotations

import numpy as np
import pytest

import floatsim as fs
from floatsim.arrays.options import resolve
from floatsim.emulator import elementwise_fast
from floatsim.emulator.proofs import packed_float32_rounds_once


def random_format(rng):
    while True:
        width, trailing = int(rng.integers(1, 12)), int(rng.integers(0, 24))
        specials = str(rng.choice(["ieee", "fn", "fnuz", "finite"]))
        bias = None if rng.random() < 0.5 else int(rng.integers(-20, 2**width + 20))
        try:
            return fs.FloatFormat(f"random({width},{trailing},{specials},{bias})", width, trailing, specials, bias)
        except ValueError:
            continue


def probing(rng, fmt, carrier, size):
    """Carrier codes: random, and close to the format's numbers and to the midpoints between them."""
    unsigned = carrier.code_dtype
    codes = rng.integers(0, 2**carrier.bits - 1, size, dtype=np.uint64, endpoint=True).astype(unsigned)
    grid = rng.integers(0, fmt.max_code, size // 2, dtype=np.uint64, endpoint=True)
    with np.errstate(all="ignore"):
        a, b = (fs.decode(np.minimum(grid + np.uint64(step), fmt.max_code), fmt) for step in (0, 1))
        near = np.concatenate([a, a / 2 + b / 2])[:size].astype(carrier.dtype).view(unsigned)
    codes[: near.size // 2 * 2 : 2] = near[: near.size // 2] + rng.integers(-1, 2, near.size // 2).astype(unsigned)
    codes[1] = fs.encode(fmt.max, carrier)
    return codes


@pytest.mark.parametrize("carrier", [fs.FP32, fs.FP64], ids=str)
def test_quantize(carrier):
    rng = np.random.default_rng(1)
    fast = 0
    for _ in range(120):
        fmt, rounding = random_format(rng), fs.Rounding(int(rng.integers(7)))
        keywords = {"rounding": rounding, "overflow": fs.Overflow(int(rng.integers(3))), "seed": 7,
               "offset": 2**32 - 100, "random_bits": int(rng.integers(1, 40))}  # fmt: skip
        x = probing(rng, fmt, carrier, 400).view(carrier.dtype)
        try:
            got = fs.quantize(x, fmt, **keywords)
        except TypeError:  # the carrier does not hold the format
            continue
        want, _ = fs.quantize(x, fmt, return_flags=True, **keywords)
        assert np.array_equal(got.view(carrier.code_dtype), want.view(carrier.code_dtype)), (fmt.name, keywords)
        fast += elementwise_fast._family(carrier, fmt) is not None
    assert fast > 20


def test_packed():
    rng = np.random.default_rng(2)
    fast = 0
    while fast < 12:
        fmt = random_format(rng)
        if not packed_float32_rounds_once(fmt):
            continue
        fast += 1
        codes = rng.integers(0, 1 << fmt.bits, (2, 3000))
        codes[:, :40] = [0, 1, fmt.max_code, fmt.magnitude_mask] * 10
        a, b = (fs.from_codes(c, fmt) for c in codes)
        for operation in fs.add, fs.subtract, fs.multiply, fs.divide:
            want = operation(a, b, return_flags=True)[0].codes
            assert np.array_equal(operation(a, b).codes, want), (fmt.name, operation.__name__)
        assert np.array_equal(fs.sqrt(a).codes, fs.sqrt(a, return_flags=True)[0].codes), fmt.name


@pytest.mark.parametrize("fmt", [fs.FP32, fs.FP64], ids=str)
def test_native(fmt):
    """The processor's FP32 and FP64, on operands that they contain, with infinities, NaNs and subnormals."""
    rng = np.random.default_rng(3)

    def drawn(source, shape):
        codes = rng.integers(0, 1 << min(source.bits, 63), shape, dtype=np.uint64).astype(source.code_dtype)
        return fs.from_codes(
            np.where(rng.random(shape) < 0.5, codes, fs.encode(rng.normal(size=shape), source)), source
        )

    for source in (fmt, fs.FP16, fs.BF16, fs.E4M3, fs.E5M2FNUZ, fs.FP32):
        a, b = drawn(source, (40, 50)), drawn(fmt, (50,))
        for operation in fs.add, fs.subtract, fs.multiply, fs.divide:
            for keywords in ({}, {"overflow": "saturate_finite"}, {"ftz": True}, {"daz": True}, {"rounding": "rtz"}):
                want = operation(a, b, format=fmt, return_flags=True, **keywords)[0].codes
                assert np.array_equal(operation(a, b, format=fmt, **keywords).codes, want), (
                    source.name,
                    operation,
                    keywords,
                )
        assert np.array_equal(fs.sqrt(a, format=fmt).codes, fs.sqrt(a, format=fmt, return_flags=True)[0].codes)
    assert elementwise_fast.native("add", [(a.codes, fs.FP64), (b.codes, fmt)], fs.FP32, resolve({})) is None
    assert fs.sqrt(drawn(fmt, ())).shape == ()
    x = drawn(fmt, (30,))
    out = fs.from_codes(x.codes.copy(), fmt)
    assert np.array_equal(fs.add(out, out, out=out).codes, fs.add(x, x).codes)


@pytest.mark.parametrize(
    "fmt", [fs.FloatFormat("low bias", 3, 2, bias=0), fs.FloatFormat("lower", 3, 2, bias=-1),
            fs.FloatFormat("one exponent", 1, 3, "finite")], ids=str,
)  # fmt: skip
def test_formats_whose_exponents_start_above_zero(fmt):
    x = fs.from_codes(fmt.codes(), fmt)
    for operation in fs.add, fs.multiply, fs.divide:
        assert np.array_equal(operation(x, x).codes, operation(x, x, return_flags=True)[0].codes)


@pytest.mark.parametrize("fmt", [fs.FloatFormat("p1", 8, 0, "fn")], ids=str)
@pytest.mark.parametrize("rounding", fs.Rounding, ids=lambda r: r.name.lower())
def test_one_bit_of_precision(fmt, rounding):
    x = np.float32([1.2, 1.5, 2.5, 3, 6, -3, 0.75, 1e38])
    got = fs.quantize(x, fmt, rounding=rounding, seed=1)
    assert np.array_equal(got, fs.decode(fs.encode(x, fmt, rounding=rounding, seed=1), fmt).astype(np.float32))


def test_the_environment_is_asked(monkeypatch):
    """Under flush-to-zero the integer kernels compute everything."""
    monkeypatch.setattr(elementwise_fast.machine, "environment_is_default", lambda: False)
    x = np.float32([1e-40, 1.0])
    assert not elementwise_fast.quantize(x.view(np.uint32), fs.FP32, fs.FP16, resolve({}), np.empty(2, np.uint32))
    assert not elementwise_fast.elementwise("add", [], fs.FP16, resolve({}), np.empty(2, np.uint16))
    assert fs.quantize(x, "bf16").view(np.uint32)[0] == 0x10000


def test_roundings_of_one_stochastic_product_are_independent():
    """One product rounded to BF16, then to E4M3, goes up with probability 1/2 * 1/16. A shared draw would change it."""
    a = np.full((40000, 1), 1 + 2.0**-8, np.float32)
    c = fs.matmul(a, np.ones((1, 1), np.float32), accumulate="bf16", format="e4m3", rounding="SR", seed=11)
    ups = int((c.astype(np.float32) > 1).sum())
    assert abs(ups - 40000 / 32) < 5 * (40000 / 32) ** 0.5


def test_a_stream_advances_once_a_matmul():
    stream = fs.RandomStream(1)
    a = np.ones((2, 2), np.float32)
    fs.matmul(a, a, accumulate="bf16", format="e4m3", rounding="SR", result_rounding="SR", seed=stream)
    assert stream.calls == 1
    fs.matmul(a, a, accumulate="bf16", format="e4m3", result_rounding="SR", seed=stream)
    assert stream.calls == 2


def test_saturation_of_the_final_conversion_reaches_infinities():
    a = np.float16([[60000.0]])
    assert fs.matmul(a, a, accumulate="fp16")[0, 0] == np.inf
    assert fs.matmul(a, a, accumulate="fp16", overflow="saturate_finite")[0, 0] == 65504
