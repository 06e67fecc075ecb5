"""Mathematical functions: kernels and reference equal MPFR, in codes and events, on both sides of the bounds."""

from __future__ import annotations

import itertools

import numpy as np
import oracles as o
import pytest
from floatsim_kernels.runtime import cpu
from oracles import OracleRounding

import floatsim as fs
from floatsim import Overflow, Rounding, reference
from floatsim.arrays.call.options import resolve
from floatsim.emulator import backend as emulator
from floatsim.emulator.elementwise import functions
from floatsim.emulator.elementwise.execute import execute
from floatsim.emulator.proofs import enclosed_in_float64
from floatsim.reference import functions as exact
from tests.emulator.planning import elementwise_plan
from tests.marks import cases

BINARY = ("power", "hypot")
FORMATS = (fs.FP32, fs.FP16, fs.BF16, fs.TF32, fs.E4M3, fs.E5M2, fs.E4M3FNUZ, fs.E2M3)
IEEE = fs.FloatFormat.ieee
# one bit more than the kernels' bound of precision, and one less; exponents beyond their range
QUICK_FUNCTIONS = ("exp", "log2", "tan", "power", "gelu")
BOUNDS = (IEEE(8, 23), IEEE(8, 24), IEEE(9, 22), IEEE(10, 20), IEEE(11, 20), IEEE(9, 3), IEEE(10, 3), IEEE(11, 3))


def _hard(name, fmt, n, rng):
    """Codes of all kinds: random ones, ordinary values, neighbours of 0 and 1, exact cases, and special values."""
    codes = rng.integers(0, 1 << fmt.bits, n, dtype=np.uint64)
    ordinary = fs.encode(rng.standard_normal(n) * 10 ** rng.uniform(-4, 2, n), fmt)
    whole = fs.encode(rng.integers(-20, 20, n // 2).astype(float) / rng.choice([1, 2, 4], n // 2), fmt)
    squares = fs.encode(2.0 ** rng.integers(-12, 12, n // 2), fmt)
    near = [int(fs.encode(v, fmt)) + step for v in (0.0, 1.0, -1.0, 0.5) for step in (0, 1, 2)]
    special = [int(fs.encode(v, fmt)) for v in (-0.0, np.inf, -np.inf, np.nan)]
    parts = [x.astype(np.uint64) for x in (codes, ordinary, whole, squares)]
    return np.concatenate([*parts, np.array(near + special, np.uint64)]).astype(fmt.code_dtype)


def _operands(name, fmt, n, rng):
    first = _hard(name, fmt, n, rng)
    return (first, rng.permutation(_hard(name, fmt, n, rng))) if name in BINARY else (first,)


def _call(name, operands, fmt, rounding, flags):
    options = resolve({**rounding.keywords, "return_flags": flags})
    return emulator.function(name, [(x, fmt) for x in operands], fmt, options, flags)


def _check(name, fmt, n, rng, ways):
    operands = _operands(name, fmt, n, rng)
    at = o.layout(fmt)
    results = {}
    for rounding in ways:
        codes, events = _call(name, operands, fmt, rounding, True)
        plain, none = _call(name, operands, fmt, rounding, False)
        assert none is None
        for i, row in enumerate(zip(*(x.tolist() for x in operands), strict=True)):
            key = row, rounding.daz
            if key not in results:
                results[key] = o.Function(name, tuple(at.decode(c, rounding.daz) for c in row), fmt)
            want = results[key](rounding)
            got = int(codes[i]), int(events[i])
            assert got == want, o.report(name, fmt, rounding, row, got, want)
            assert int(plain[i]) == want[0], o.report(f"{name}, no events", fmt, rounding, row, (plain[i], 0), want)


def _ways(rng, each=1):
    every = o.every_rounding()
    return [ways[i] for m in o.DETERMINISTIC for ways in [[w for w in every if w.rounding is m]]
            for i in rng.choice(len(ways), each, replace=False)]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "fmt"),
    cases(
        quick=[
            *(pytest.param(name, fs.E2M3) for name in QUICK_FUNCTIONS),
            *(pytest.param(name, fmt) for name in ("exp", "log", "sin", "power") for fmt in (fs.FP32, fs.FP16)),
        ],
        full=[pytest.param(name, fmt) for name in o.FUNCTIONS for fmt in FORMATS],
    ),
    ids=lambda x: getattr(x, "name", x),
)
def test_function_equals_mpfr(name, fmt):
    rng = o.rng(name, fmt.name)
    _check(name, fmt, 40, rng, _ways(rng))


@pytest.mark.parametrize("fmt", BOUNDS, ids=lambda fmt: fmt.name)
@pytest.mark.parametrize("name", cases(quick=["exp", "sin"], full=o.FUNCTIONS))
def test_both_sides_of_the_kernels_bounds(name, fmt):
    rng = o.rng(name, fmt.name)
    _check(name, fmt, 8, rng, _ways(rng)[::2])


def test_bounds_are_the_stated_ones():
    inside = [enclosed_in_float64([fmt], fmt) for fmt in BOUNDS]
    assert inside == [True, False, True, False, False, True, False, False]
    wide = IEEE(8, 29)
    assert enclosed_in_float64([fs.FP32], wide)
    assert not enclosed_in_float64([fs.FP32], IEEE(8, 30))
    assert not enclosed_in_float64([fs.FP64], fs.FP32)


@pytest.mark.parametrize("name", cases(quick=QUICK_FUNCTIONS, full=o.FUNCTIONS))
def test_result_in_another_format(name):
    """FP32 arguments, a result of 30 bits and one of three."""
    rng = o.rng(name)
    for fmt in (IEEE(8, 29), fs.E5M2):
        rounding = OracleRounding(Rounding.TOWARD_POSITIVE)
        operands = _operands(name, fs.FP32, 12, rng)
        options = resolve(rounding.keywords)
        codes, events = emulator.function(name, [(x, fs.FP32) for x in operands], fmt, options)
        at = o.layout(fs.FP32)
        for i, row in enumerate(zip(*(x.tolist() for x in operands), strict=True)):
            want = o.Function(name, tuple(at.decode(c) for c in row), fmt)(rounding)
            assert (int(codes[i]), int(events[i])) == want, (name, fmt.name, row)


@pytest.mark.parametrize("name", cases(quick=QUICK_FUNCTIONS, full=o.FUNCTIONS))
def test_stochastic_rounding_equals_the_reference(name):
    rng = o.rng(name)
    for fmt, bits in ((fs.FP16, 32), (fs.FP32, 5), (fs.E4M3, 64)):
        attributes = reference.RoundingAttributes(Rounding.STOCHASTIC, random_bits=bits)
        operands = _operands(name, fmt, 20, rng)
        options = resolve({"rounding": "stochastic", "random_bits": bits, "seed": 7, "offset": 5})
        codes, events = emulator.function(name, [(x, fmt) for x in operands], fmt, options)
        for i, row in enumerate(zip(*(x.tolist() for x in operands), strict=True)):
            numbers = tuple(reference.decode(c, fmt) for c in row)
            want = exact.apply(name, numbers, fmt, attributes, reference.draw(7, 5 + i, bits))
            assert (int(codes[i]), int(events[i])) == want, (name, fmt.name, bits, row)


@pytest.mark.parametrize("name", cases(quick=QUICK_FUNCTIONS, full=o.FUNCTIONS))
def test_reference_equals_mpfr_in_float64(name):
    rng = o.rng(name)
    at = o.layout(fs.FP64)
    operands = _operands(name, fs.FP64, 3, rng)
    for row in zip(*(x.tolist() for x in operands), strict=True):
        rounding = OracleRounding(o.DETERMINISTIC[int(rng.integers(6))])
        got = exact.apply(name, tuple(reference.decode(c, fs.FP64) for c in row), fs.FP64, rounding.attributes)
        want = o.Function(name, tuple(at.decode(c) for c in row), fs.FP64)(rounding)
        assert got == want, o.report(name, fs.FP64, rounding, row, got, want)


def test_large_arguments_are_reduced_exactly():
    """Arguments next to multiples of pi/2, found from the continued fraction of 2/pi, and the largest ones."""
    x = np.float32([16367173.0 * 2.0**72, 3.4e38, 2.0**20, 1048575.9, 2.0**26 + 8, 710.0 / 113 * 113, 355.0, 5419351.0])
    at = o.layout(fs.FP32)
    for name in "sin", "cos", "tan":
        got = getattr(fs, name)(np.concatenate([x, -x])).view(np.uint32).tolist()
        want = [o.Function(name, (at.decode(c),), fs.FP32)(OracleRounding(Rounding.TIES_TO_EVEN))[0]
                for c in np.concatenate([x, -x]).view(np.uint32).tolist()]  # fmt: skip
        assert got == want


def test_special_values_of_power():
    """IEEE 754-2019, 9.2.1: all of the list for pow."""
    inf, nan = np.inf, np.nan
    for x, y, want, flags in (
        (nan, 0.0, 1.0, 0), (0.0, -0.0, 1.0, 0), (1.0, nan, 1.0, 0), (1.0, inf, 1.0, 0), (-1.0, inf, 1.0, 0),
        (-1.0, -inf, 1.0, 0), (0.0, -1.0, inf, 8), (-0.0, -1.0, -inf, 8), (-0.0, -3.0, -inf, 8), (-0.0, -2.0, inf, 8),
        (-0.0, -0.5, inf, 8), (0.0, -inf, inf, 0), (-0.0, 3.0, -0.0, 0), (-0.0, 2.0, 0.0, 0), (0.0, 0.5, 0.0, 0),
        (inf, -2.0, 0.0, 0), (inf, 0.5, inf, 0), (-inf, 3.0, -inf, 0), (-inf, 2.5, inf, 0), (-inf, -3.0, -0.0, 0),
        (-inf, -2.0, 0.0, 0), (0.5, inf, 0.0, 0), (0.5, -inf, inf, 0), (2.0, -inf, 0.0, 0), (2.0, inf, inf, 0),
        (-2.0, 0.5, nan, 16), (-8.0, 3.0, -512.0, 0), (4.0, 0.5, 2.0, 0), (4.0, -0.5, 0.5, 0), (2.0, 10.0, 1024.0, 0),
    ):  # fmt: skip
        for fmt in fs.FP16, fs.FP32, fs.FP64:
            a, b = (fs.array(np.full(3, v), fmt) for v in (x, y))
            got, happened = fs.power(a, b, return_flags=True)
            assert np.array_equal(got.values, np.full(3, want), equal_nan=True), (x, y, fmt)
            assert np.signbit(got.values).tolist() == [bool(np.signbit(want))] * 3, (x, y, fmt)
            assert happened.tolist() == [flags] * 3, (x, y, fmt)


@pytest.mark.full
def test_signalling_nan_raises_invalid():
    snan = fs.from_codes(np.array([0x7D00], np.uint16), "fp16")
    for name in o.FUNCTIONS:
        if name == "gelu_tanh":
            continue
        operands = [snan, fs.array([0.0], "fp16")][: 1 + (name in BINARY)]
        result, flags = getattr(fs, name)(*operands, return_flags=True)
        assert result.codes.tolist() == [0x7E00], name
        assert flags.tolist() == [fs.INVALID], name


def test_saturation_leaves_exact_infinities():
    x = fs.array([0.0, np.inf], "fp16")
    saturating = {"overflow": Overflow.SATURATE_FINITE}
    assert fs.reciprocal(x, **saturating).tolist() == [np.inf, 0.0]
    assert fs.exp(fs.array([12.0, np.inf], "fp16"), **saturating).tolist() == [65504.0, np.inf]


def test_the_table_and_the_kernels_agree():
    x = fs.from_codes(fs.FP16.codes(), "fp16")
    for name, keywords in itertools.product(("exp", "gelu", "rsqrt"), ({}, {"rounding": "RTP", "ftz": True})):
        function = getattr(fs, name)
        whole, flags = function(x, **keywords, return_flags=True)
        for part in slice(0, 1000), slice(30000, 31000):
            some, of_some = function(x[part], **keywords, return_flags=True)
            assert some.codes.tolist() == whole.codes[part].tolist()
            assert of_some.tolist() == flags[part].tolist()
        assert function(x, **keywords).codes.tolist() == whole.codes.tolist()


@pytest.mark.parametrize("keywords", [{}, {"daz": True}, {"ftz": True, "rounding": "RTP"}], ids=str)
def test_the_reference_settles_few_elements(keywords, monkeypatch):
    """Of all FP16 codes, only exact results and their neighbours are left to the reference: it is slow."""
    settled = []
    settle = functions._settle
    monkeypatch.setattr(functions, "_settle", lambda *args: (settled.append(len(args[-1])), settle(*args)))
    x = fs.from_codes(fs.FP16.codes(), "fp16")
    for name in ("exp", "log", "sin", "tanh", "rsqrt", "gelu"):
        for events in False, True:
            planned = elementwise_plan(name, (fs.FP16,), fs.FP16, events=events, size=0, **keywords)
            assert planned.candidate == "enclosed"
            execute(planned, [(x.codes, fs.FP16)], x.shape, resolve(keywords))
    assert sum(settled) < 200


def test_environment_with_flush_to_zero_uses_the_reference(monkeypatch):
    x = fs.array([1e-40, 0.5, -3.0], "fp32")
    want = fs.expm1(x, return_flags=True)
    monkeypatch.setattr(cpu, "environment_is_default", lambda: False)
    got = fs.expm1(x, return_flags=True)
    assert got[0].codes.tolist() == want[0].codes.tolist()
    assert got[1].tolist() == want[1].tolist()


def _by_both_ends(name, codes):
    """Results of the kernel that rounds both ends, which any call with flags uses."""
    x = fs.from_codes(codes, "fp32")
    return getattr(fs, name)(x, return_flags=True)[0].codes


@pytest.mark.parametrize("name", ["exp", "log", "sin", "cos"])
def test_ends_of_the_range_of_one_conversion(name):
    """The kernel with one conversion takes |x| <= 87 (exp), positive finite numbers (log), or |x| < 2**20.

    Numbers next to multiples of pi / 2 are among the arguments.
    """
    centres = (87.0, -87.0, 88.7, -88.0, -104.0, 0.0, 1.0, 2.0**-126, 2.0**-149, 2.0**20, 2.0**-21, np.inf)
    centres += tuple(np.pi / 2 * k for k in (1, 2, 3, 4, 1000, 573204, 667543))
    codes = np.concatenate([np.float32([c]).view(np.uint32) + np.arange(-3, 4).astype(np.uint32) for c in centres])
    codes = np.concatenate([codes, codes | np.uint32(1 << 31)])
    ordinary = np.float32(np.random.default_rng(2).uniform(0.1, 20, 2048)).view(np.uint32)
    for group in (codes, ordinary, np.concatenate([ordinary, codes, ordinary])):
        found = getattr(fs, name)(fs.from_codes(group, "fp32")).codes
        np.testing.assert_array_equal(found, _by_both_ends(name, group))


def test_float64_numbers_far_from_midpoints_round_alike_in_float32():
    """The bits decide for 64 last places, which are at least y * 2**-47; numbers of every exponent, near midpoints."""
    rng = np.random.default_rng(3)
    steps = np.concatenate([np.arange(-70, 71), rng.integers(-(1 << 28), 1 << 28, 200)])
    middles = (rng.integers(1, 254, 400).astype(np.uint64) + np.uint64(1023 - 127)) << np.uint64(52)
    middles |= rng.integers(0, 1 << 23, 400).astype(np.uint64) << np.uint64(29)
    middles[:50] |= np.uint64(0x7FFFFF << 29)  # the next midpoint is at the end of a binade
    middles[50:100] &= np.uint64(0x7FF << 52)
    bits = (middles[:, None] + np.uint64(1 << 28)).astype(np.int64) + steps
    y = bits.view(np.float64)
    open_ = ((bits & ((1 << 29) - 1)) - ((1 << 28) - 64)).view(np.uint64) <= 128
    low, high = np.float32(y - y * 2.0**-47), np.float32(y + y * 2.0**-47)
    assert np.array_equal(low[~open_], high[~open_])
    assert open_.any(axis=1).all()
    assert (low[open_] != high[open_]).mean() > 0.5


@pytest.mark.parametrize("name", ["exp", "log", "tanh"])
def test_results_are_written_to_out(name):
    """In place, in parts that overlap, and in memory of its own, with results that the reference decides."""
    x = np.abs(np.random.default_rng(4).standard_normal(3000)).astype(np.float32)
    x[::7] = np.float32(1.0)
    expected = getattr(fs, name)(x)
    out = np.empty_like(x)
    assert getattr(fs, name)(x, out=out) is out
    np.testing.assert_array_equal(out, expected)
    memory = np.concatenate([x, x[:5]])
    getattr(fs, name)(memory[:3000], out=memory[5:])
    np.testing.assert_array_equal(memory[5:], expected)
    columns = np.empty((3000, 2), np.float32)
    getattr(fs, name)(x, out=columns[:, 1])
    np.testing.assert_array_equal(columns[:, 1], expected)
    getattr(fs, name)(x, out=x)
    np.testing.assert_array_equal(x, expected)


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, 20_000])
def test_marks_are_found_in_every_row(size):
    marks = np.zeros(size, np.uint8)
    marks[np.random.default_rng(size).integers(0, size, size // 2000)] = 1
    if size:
        marks[[0, -1]] = 1
    np.testing.assert_array_equal(functions._marked(marks), np.flatnonzero(marks))
