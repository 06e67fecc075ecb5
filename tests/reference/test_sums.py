"""The reference of sums compared with NumPy's arithmetic, and with the definitions on exact fractions.

- Loops of NumPy scalars, which round every operation of float16, float32 and float64 to nearest, ties to even.
- NumPy's sums of contiguous arrays, for the tree "numpy".
- The definitions written again, on `fractions.Fraction`, rounded by `oracles.Rounder`: all rounding modes, FTZ, DAZ,
  and the draws of stochastic rounding at every site.
- Cases with events and first k derived by hand.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import numpy as np
import oracles as o
import pytest

import floatsim as fs
from floatsim import Overflow, Rounding, reference
from floatsim.formats.call import CallOptions
from floatsim.formats.rounding import ABSORBED, FLAGS, FLUSHED, INEXACT, INVALID, OVERFLOW, SUBNORMAL, UNDERFLOW
from floatsim.reference import Number, RoundingAttributes
from floatsim.reference import sums as reference_sums
from floatsim.reference.sums import Code, accumulate, scaled

pytestmark = pytest.mark.full

NAN = reference_sums.NAN
DTYPES = {fs.FP16: np.float16, fs.FP32: np.float32, fs.FP64: np.float64}
SEQUENTIAL_FORMATS = list(DTYPES)


def code(x, fmt):
    """The Code of a number that the format has, or of a NumPy scalar."""
    if isinstance(x, np.floating):
        return Code(int(x.view(f"u{x.itemsize}")), {d: f for f, d in DTYPES.items()}[type(x)])
    found, events = reference.convert(reference.from_text(float(x).hex()), fmt, RoundingAttributes())
    assert not events & INEXACT, f"{x} is not in {fmt}"
    return Code(found, fmt)


def operands(values, fmt=None):
    return [x if x is None or isinstance(x, Code) else code(x, fmt) for x in values]


def total(accumulation, a, b=None, fmt=None, *, c=None, index=0, seed=0, **attributes):
    """`accumulate` on NumPy arrays, or on numbers of `fmt`; without b the terms are values."""
    accumulation = fs.accumulation.as_accumulation(accumulation)
    right = [None] * len(a) if b is None else operands(b, fmt)
    terms = list(zip(operands(a, fmt), right, strict=True))
    options = CallOptions(RoundingAttributes(**attributes), seed)
    return accumulate(accumulation, terms, options, index, None if c is None else code(c, fmt))


def number(result, fmt):
    """The result as a Python float."""
    x = reference.decode(result.code, fmt)
    if x.is_nan:
        return math.nan
    return float(x.fraction) if x.kind is reference.Kind.FINITE else (-1) ** x.sign * math.inf


def same(result, expected):
    """Return whether the code is that of a NumPy scalar, bit by bit, except that all NaNs are equal."""
    fmt = code(expected, None).format
    if np.isnan(expected):
        return result.code == fmt.canonical_nan
    return result.code == code(expected, None).code


def count(counts, bit):
    return sum(n for byte, n in counts.items() if byte & bit)


def samples(rng, dtype, n, kind):
    """Numbers near one; of all sizes; cancelling; around overflow; subnormal; with infinities, NaN and zeros."""
    info = np.finfo(dtype)
    x = rng.standard_normal(n)
    if kind == "sizes":
        x *= 2.0 ** rng.integers(info.minexp // 3, info.maxexp // 3, n)
    elif kind == "cancelling":
        x = rng.permutation(np.concatenate([x[: n // 2], -x[: n // 2], x[: n % 2]]))
        x *= 2.0 ** rng.integers(0, 6, n)
    elif kind == "large":
        x *= float(info.max) / 8
    elif kind == "subnormal":
        x *= 2.0 ** (info.minexp - rng.integers(0, info.nmant, n))
    elif kind == "special":
        x = np.where(rng.random(n) < 0.1, rng.choice([np.inf, -np.inf, np.nan, 0.0, -0.0], n), x)
    with np.errstate(all="ignore"):
        return x.astype(dtype)


KINDS = ("ordinary", "sizes", "cancelling", "large", "subnormal", "special")


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


# -- NumPy's arithmetic, one scalar after the other ----------------------------------------------------------------


def loop(dtype, products, start):
    acc = dtype(start)
    for p in products:
        acc = dtype(acc + p)
    return acc


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fmt", SEQUENTIAL_FORMATS, ids=lambda f: f.name)
def test_sequential_is_a_loop_of_scalars(fmt, kind):
    rng, dtype = o.rng("sequential", fmt.name, kind), DTYPES[fmt]
    for n in (*range(6), 40):
        a, b, c = samples(rng, dtype, n, kind), samples(rng, dtype, n, kind), samples(rng, dtype, 1, kind)[0]
        assert same(total(fs.Sequential(fmt), a, b), loop(dtype, a * b, 0.0))
        assert same(total(fs.Sequential(fmt), a, b, c=c), loop(dtype, a * b, c))
        assert same(total(fs.Sequential(fmt), a), loop(dtype, a, 0.0))


def test_products_have_a_format_of_their_own():
    rng = o.rng("product formats")
    a, b = samples(rng, np.float16, 60, "ordinary"), samples(rng, np.float16, 60, "ordinary")
    exact = a.astype(np.float32) * b.astype(np.float32)  # 22 bits
    assert same(total(fs.Sequential("fp32"), a, b), loop(np.float32, exact, 0))
    assert same(total(fs.Sequential("fp32", fused=True), a, b), loop(np.float32, exact, 0))
    assert same(total(fs.Sequential("fp32", product="fp16"), a, b), loop(np.float32, a * b, 0))
    wide = loop(np.float64, a.astype(np.float64) * b, 0)
    assert same(total(fs.Sequential("fp64", product=None), a, b), wide)
    # multiples of 2**-10 up to 1: float64 holds a half and a product of two, and their sum, and is rounded once
    x, y = ((np.round(v.astype(np.float32) * 2**10) / 2**10).clip(-1, 1).astype(np.float16) for v in (a[:12], b[:12]))
    acc = np.float16(0)
    for p in x.astype(np.float32) * y.astype(np.float32):
        acc = np.float16(np.float64(acc) + p)
    assert same(total(fs.Sequential("fp16", fused=True), x, y), acc)


def kahan(dtype, terms, start=0.0):
    s, lost = dtype(start), dtype(0)
    for x in terms:
        y = dtype(x - lost)
        t = dtype(s + y)
        lost = dtype(dtype(t - s) - y) if np.isfinite(t) else dtype(0)
        s = t
    return s


def neumaier(dtype, terms, start=0.0):
    s, lost = dtype(start), dtype(0)
    for x in terms:
        t = dtype(s + x)
        if np.isfinite(t):
            big, small = (s, x) if abs(s) >= abs(x) else (x, s)
            lost = dtype(lost + dtype(dtype(big - t) + small))
        s = t
    return dtype(s + lost)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fmt", SEQUENTIAL_FORMATS, ids=lambda f: f.name)
@pytest.mark.parametrize("accumulation, oracle", [(fs.Kahan, kahan), (fs.Neumaier, neumaier)])
def test_compensated_sums_are_loops_of_scalars(accumulation, oracle, fmt, kind):
    rng, dtype = o.rng(accumulation.__name__, fmt.name, kind), DTYPES[fmt]
    for n in (*range(1, 6), 50):
        a, b, c = samples(rng, dtype, n, kind), samples(rng, dtype, n, kind), samples(rng, dtype, 1, kind)[0]
        assert same(total(accumulation(fmt), a), oracle(dtype, a))
        assert same(total(accumulation(fmt), a, b), oracle(dtype, a * b))
        assert same(total(accumulation(fmt), a, b, c=c), oracle(dtype, a * b, c))


def test_compensation_compensates():
    x = np.array([1.0, 1e100, 1.0, -1e100])
    assert [
        number(total(accumulation, x), fs.FP64) for accumulation in ("kahan(fp64)", "neumaier(fp64)", "exact(fp64)")
    ] == [0, 2, 2]
    small = np.full(4096, np.float16(0.1))
    exact = 4096 * float(np.float16(0.1))
    assert number(total("sequential(fp16)", small), fs.FP16) == 256
    assert abs(number(total("kahan(fp16)", small), fs.FP16) - exact) <= 0.125


# -- trees ---------------------------------------------------------------------------------------------------------


def along(tree, x):
    """The sum along nested pairs, in the arithmetic of the array."""
    return x[tree] if isinstance(tree, int) else along(tree[0], x) + along(tree[1], x)


def adjacent(x):
    while len(x) > 1:
        even = len(x) - len(x) % 2
        x = np.concatenate([x[0:even:2] + x[1:even:2], x[even:]])
    return x[0]


def halving(x):
    while len(x) > 1:
        half = math.ceil(len(x) / 2)
        x = np.concatenate([x[: len(x) - half] + x[half:], x[len(x) - half : half]])
    return x[0]


def numpy_sum(x):
    """NumPy adds its sum to a start of +0, which matters only if every term is -0."""
    return np.add.reduce(x) if not np.all((x == 0) & np.signbit(x)) else -np.zeros(1, x.dtype)[0]


LEVELS = {"adjacent": adjacent, "halving": halving, "numpy": numpy_sum}


@pytest.mark.full
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("tree", LEVELS)
def test_the_order_of_trees(tree, dtype):
    """Every length to 1100, and longer ones, added along the reference's tree in NumPy's arithmetic."""
    rng = o.rng("trees", tree, dtype.__name__)
    for n in (*range(1, 1101), 4096, 8191, 8193, 20001):
        x = samples(rng, dtype, n, "sizes" if n % 2 else "ordinary")
        order = reference_sums.TREES[tree](list(range(n)))
        assert along(order, list(x)) == LEVELS[tree](x), n


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tree", LEVELS)
def test_pairwise_is_the_sum_along_its_tree(tree, kind):
    rng = o.rng("pairwise", tree, kind)
    for n in (*range(1, 20), 31, 32, 33, 127, 128, 129, 137, 256, 300):
        x, y = samples(rng, np.float32, n, kind), samples(rng, np.float32, n, kind)
        accumulation = fs.Pairwise("fp32", tree)
        assert same(total(accumulation, x), LEVELS[tree](x)), n
        assert same(total(accumulation, x, y), LEVELS[tree](x * y)), n
        c = samples(rng, np.float32, 1, kind)[0]
        assert same(total(accumulation, x, c=c), np.float32(LEVELS[tree](x) + c)), n


def test_numpy_gives_zero_a_sign_of_its_own():
    for n in (1, 5, 8, 200):
        minus = np.full(n, np.float32(-0.0))
        assert np.add.reduce(minus) == 0
        assert same(total("pairwise(fp32, numpy)", minus), np.float32(-0.0))


def test_halving_is_a_warp_shuffle():
    """32 lanes: each adds the value of the lane `offset` further; lane 0 has the sum."""
    lanes = samples(o.rng("warp"), np.float32, 32, "sizes")
    values = lanes.copy()
    for offset in (16, 8, 4, 2, 1):
        values = values + np.concatenate([values[offset:], values[:offset]])
    assert same(total("pairwise(fp32, halving)", lanes), values[0])


# -- composites ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 7, 8, 9, 31, 64, 75])
def test_composites_are_sums_of_sums(n):
    rng = o.rng("composites", n)
    a, b, c = (samples(rng, np.float32, m, "ordinary") for m in (n, n, 1))
    c, p = c[0], a * b
    f32 = np.float32
    lanes = [loop(f32, p[lane::8], 0) for lane in range(min(n, 8))]
    assert same(total("strided(fp32, 8)", a, b), adjacent(np.array(lanes)))
    assert same(total("strided(fp32, 8, kahan(fp32))", a, b), kahan(f32, lanes))
    assert same(total("strided(fp32, 8)", a, b, c=c), f32(adjacent(np.array(lanes)) + c))
    assert same(total("strided(fp32, 8, sequential(fp32))", a, b, c=c), f32(loop(f32, lanes, 0) + c))
    blocks = [neumaier(f32, p[i : i + 10]) for i in range(0, n, 10)]
    assert same(total("blocked(neumaier(fp32), 10, fp64)", a, b, c=c), loop(np.float64, blocks, c))
    part = math.ceil(n / 5)
    split = [adjacent(p[i : i + part]) for i in range(0, n, part)]
    assert same(total("splitk(5, pairwise(fp32), neumaier(fp32))", a, b, c=c), neumaier(f32, split, c))
    nested = [adjacent(np.array([loop(f32, p[i : i + 16][k::3], 0) for k in range(min(3, n - i))]))
              for i in range(0, n, 16)]  # fmt: skip
    assert same(total("blocked(strided(fp32, 3), 16, fp32)", a, b), loop(f32, nested, 0))


def test_partial_sums_are_values_of_the_inner_format():
    """DeepSeek-V3's promotion: a narrow sum over 128 terms, added to a float32 accumulator."""
    ones = np.ones(4096, np.float16)
    assert number(total("sequential(fp16)", ones, ones), fs.FP16) == 2048
    assert number(total("blocked(fp16, 128, fp32)", ones, ones), fs.FP32) == 4096
    # the partial 1 + 2**-11 is a tie in FP16: no product rounding and no wider format takes part in the outer sum
    x = np.array([1, 2.0**-11, 1, 2.0**-11])
    assert number(total("blocked(sequential(fp16), 2, fp64)", x), fs.FP64) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_composites_of_one_part(kind):
    x = samples(o.rng("one part", kind), np.float32, 21, kind)
    alone = total("kahan(fp32)", x)
    for accumulation in ("blocked(kahan(fp32), 21, pairwise(fp32))", "splitk(1, kahan(fp32), pairwise(fp32))",
                "strided(kahan(fp32), 1, exact(fp32))", "blocked(kahan(fp32), 4000000, pairwise(fp32))"):  # fmt: skip
        assert total(accumulation, x).code == alone.code
    leaves = total("strided(exact(fp32), 1000000000000, sequential(fp32))", x)
    assert leaves.code == total("blocked(exact(fp32), 1, fp32)", x).code == total("sequential(fp32)", x).code


# -- exact sums ----------------------------------------------------------------------------------------------------


def signed(value):
    return -value.magnitude if value.sign else value.magnitude


@pytest.mark.parametrize("fmt", [fs.E4M3, fs.FP16, fs.BF16, fs.FP32, fs.FP64, fs.E2M1], ids=lambda f: f.name)
def test_exact_is_the_sum_of_fractions_rounded_once(fmt):
    rng = o.rng("exact", fmt.name)
    for n, rounding in itertools.product((1, 2, 9), o.every_rounding((*Rounding,))):
        inputs = rng.integers(0, 2**16, (3, n))
        inputs[inputs & 0x7C00 == 0x7C00] ^= 0x4000  # no infinity, no NaN
        a, b, c = ([Code(int(x), fs.FP16) for x in row] for row in inputs)
        decoded = [[signed(o.layout(fs.FP16).decode(x.code, rounding.daz)) for x in row] for row in (a, b, c)]
        exact = sum((x * y for x, y in zip(*decoded[:2], strict=True)), decoded[2][0])
        if exact == 0:
            continue
        options = CallOptions(rounding.attributes, 7)
        leaf = fs.Exact(fmt, overflow=rounding.overflow)
        result = accumulate(leaf, list(zip(a, b, strict=True)), options, 3, c[0])
        expected, events = o.Rounder(abs(exact), int(exact < 0), fmt)(rounding, reference.draw(7, 3, 32, site=1))
        assert result.code == expected
        new_nan = NAN * (o.layout(fmt).decode(expected).is_nan)
        assert result.counts == {"product": Counter(), "sum": Counter({events | new_nan: 1})}


def test_exact_is_fsum():
    rng = o.rng("fsum")
    for kind in ("ordinary", "sizes", "cancelling", "subnormal"):
        x = samples(rng, np.float64, 100, kind)
        assert same(total("exact(fp64)", x), np.float64(math.fsum(x)))


def test_special_values_of_exact_sums():
    inf, nan, zero = math.inf, math.nan, 0.0

    def exact(values, **keywords):
        result = total("exact(fp16)", values, fmt=fs.FP16, **keywords)
        return result.code, result.counts["sum"]

    assert exact([-zero, -zero]) == (0x8000, {0: 1})
    assert exact([zero, -zero]) == exact([1.0, -1.0]) == (0, {0: 1})
    assert exact([zero, -zero], rounding=Rounding.TOWARD_NEGATIVE) == (0x8000, {0: 1})
    assert exact([1.0, -1.0], rounding=Rounding.TOWARD_NEGATIVE) == (0x8000, {0: 1})
    assert exact([zero, zero], rounding=Rounding.TOWARD_NEGATIVE) == (0, {0: 1})
    assert exact([-zero], c=-zero) == (0x8000, {0: 1})
    assert exact([-zero], c=zero) == (0, {0: 1})
    assert exact([-inf, 1.0]) == (0xFC00, {0: 1})
    assert exact([-inf, 1.0], c=inf) == (0x7E00, {INVALID | NAN: 1})
    assert exact([inf, nan]) == (0x7E00, {NAN: 1})
    invalid = total("exact(fp16)", [inf, 1.0], [zero, 1.0], fs.FP16)
    assert (invalid.code, invalid.counts["sum"]) == (0x7E00, {INVALID | NAN: 1})
    assert (invalid.first["nan"], invalid.first["invalid"]) == (1, 1)


# -- the definitions on fractions: every direction, FTZ, DAZ, and every draw -----------------------------------------


class Definition:
    """The leaves on exact fractions; `at` is the site of the draw: 8*step + r."""

    def __init__(self, fmt, options, seed, index):
        self.fmt, self.options, self.seed, self.index = fmt, options, seed, index

    def rounded(self, x, at, fmt=None, options=None, seed=None):
        fmt, options = fmt or self.fmt, options or self.options
        if x == 0:
            return Fraction(0)
        seed = self.seed if seed is None else seed
        code, _ = o.Rounder(abs(x), int(x < 0), fmt)(options, reference.draw(seed, self.index, options.random_bits, at))
        read = o.layout(fmt).decode(code, options.daz)
        assert read.kind == "finite"
        return signed(read)

    def seeded(self, c):
        return self.rounded(c, 1, seed=reference.split_seed(self.seed, 4))

    def sequential(self, terms, c):
        acc = self.seeded(c)
        for k, x in enumerate(terms):
            acc = self.rounded(acc + x, 8 * k + 1)
        return acc

    def kahan(self, terms, c):
        s, comp = self.seeded(c), Fraction(0)
        for k, x in enumerate(terms):
            y = self.rounded(x - comp, 8 * k + 1)
            t = self.rounded(s + y, 8 * k + 2)
            comp = self.rounded(self.rounded(t - s, 8 * k + 3) - y, 8 * k + 4)
            s = t
        return s

    def neumaier(self, terms, c):
        s, comp = self.seeded(c), Fraction(0)
        for k, x in enumerate(terms):
            t = self.rounded(s + x, 8 * k + 1)
            if abs(s) >= abs(x):
                lost = self.rounded(self.rounded(s - t, 8 * k + 2) + x, 8 * k + 3)
            else:
                lost = self.rounded(self.rounded(x - t, 8 * k + 2) + s, 8 * k + 3)
            comp = self.rounded(comp + lost, 8 * k + 4)
            s = t
        return self.rounded(s + comp, 8 * len(terms) + 1)

    def pairwise(self, terms, c):
        """Seven terms, adjacent: ((01)(23))((45)6), the nodes numbered in post-order."""
        p = terms
        n01 = self.rounded(p[0] + p[1], 1)
        n23 = self.rounded(p[2] + p[3], 8 + 1)
        n0123 = self.rounded(n01 + n23, 16 + 1)
        n45 = self.rounded(p[4] + p[5], 24 + 1)
        n456 = self.rounded(n45 + p[6], 32 + 1)
        root = self.rounded(n0123 + n456, 40 + 1)
        return self.rounded(root + c, 1, seed=reference.split_seed(self.seed, 2))


@pytest.mark.parametrize("product", ["same", "bf16", None])
@pytest.mark.parametrize("leaf", [fs.Sequential, fs.Kahan, fs.Neumaier, fs.Pairwise])
@pytest.mark.parametrize("fmt", [fs.FP16, fs.E5M2], ids=lambda f: f.name)
def test_leaves_are_their_definitions(leaf, fmt, product):
    rng = o.rng("definitions", leaf.__name__, fmt.name, product)
    ways = [options for options in o.every_rounding((*Rounding,)) if options.overflow is Overflow.INFINITY]
    for n, way in enumerate(ways):
        codes = rng.integers(0, 2**8, (3, 7))
        codes = (codes & 0x80) << 8 | (codes & 0x7F) << 3 | rng.integers(0, 5) * 0x1000  # small, medium, large
        options = replace(way, random_bits=n % 64 + 1)
        a, b = ([Code(int(x), fs.FP16) for x in row] for row in codes[:2])
        c = Code(int(codes[2, 0]), fs.FP32)
        seed, index = int(rng.integers(2**63)), int(rng.integers(2**40))
        special = None if product is None or n % 2 else Rounding.TO_ODD
        description = leaf(fmt, product=product, product_rounding=special)
        result = accumulate(description, list(zip(a, b, strict=True)), CallOptions(options.attributes, seed), index, c)

        definition = Definition(fmt, options, seed, index)
        x, y = ([signed(o.layout(fs.FP16).decode(v.code, options.daz)) for v in row] for row in (a, b))
        terms = [p * q for p, q in zip(x, y, strict=True)]
        if product is not None:
            own = replace(options, rounding=special or options.rounding)
            wanted = fmt if product == "same" else fs.BF16
            terms = [definition.rounded(t, 8 * k, wanted, own) for k, t in enumerate(terms)]
        start = signed(o.layout(fs.FP32).decode(c.code, options.daz))
        expected = getattr(definition, leaf.__name__.lower())(terms, start)
        assert signed(o.layout(fmt).decode(result.code, options.daz)) == expected, (options, description)


def test_seeds_of_composites():
    """Part t has the seed 16 + t, outer 3, c added last 2, c as a seed 4."""
    rounding, seed, index = o.OracleRounding(Rounding.STOCHASTIC), 99, 5
    x = samples(o.rng("composite seeds"), np.float16, 11, "ordinary")
    values = [Fraction(float(v)) for v in x]

    def of(n, seed=seed):
        return reference.split_seed(seed, n)

    def e5m2(seed):
        return Definition(fs.E5M2, rounding, seed, index)

    parts = [e5m2(of(16 + t)).kahan(values[4 * t : 4 * t + 4], Fraction(0)) for t in range(3)]
    given = {"c": np.float64(0.1), "seed": seed, "index": index, "rounding": Rounding.STOCHASTIC}
    c = Fraction(0.1)
    blocked = total("blocked(kahan(e5m2), 4, sequential(e5m2))", x, **given)
    assert number(blocked, fs.E5M2) == e5m2(of(3)).sequential(parts, c)
    parts = [e5m2(of(16 + t)).kahan(values[t::4], Fraction(0)) for t in range(4)]
    strided = total("strided(kahan(e5m2), 4, sequential(e5m2))", x, **given)
    joined = e5m2(of(3)).sequential(parts, Fraction(0))
    assert number(strided, fs.E5M2) == e5m2(of(2)).rounded(joined + c, 1)


EVERY = [
    "sequential(fp16)", "sequential(fp16, fused)", "pairwise(fp16)", "pairwise(fp16, product=none)",
    "pairwise(fp16, numpy)", "pairwise(fp16, halving, product=fp32)", "kahan(fp16)", "neumaier(fp16, product=none)",
    "exact(fp16)", "strided(fp16, 4)", "strided(kahan(fp16), 3, neumaier(fp16))", "blocked(fp16, 5, fp16)",
    "splitk(3, exact(fp16), pairwise(fp16))", "splitk(3, strided(fp16, 2), blocked(fp16, 2, kahan(fp16)))",
    "strided(fp16, 2, strided(fp16, 2, fp16))",
]  # fmt: skip


@pytest.mark.parametrize("accumulation", EVERY)
@pytest.mark.parametrize("n", [0, 1, 2, 17])
def test_no_draw_is_used_twice(accumulation, n, monkeypatch):
    used = []

    def source_draw(source, seed, index, random_bits, site):
        used.append((source, seed, site))
        return reference.draw(seed, index, random_bits, site)

    monkeypatch.setattr(reference_sums, "source_draw", source_draw)
    x = samples(o.rng("draws", accumulation, n), np.float16, n, "ordinary")
    result = total(accumulation, x, x, c=np.float64(0.3), seed=11, rounding=Rounding.STOCHASTIC)
    assert len(used) == len(set(used)) == sum(sum(c.values()) for c in result.counts.values())
    used.clear()
    terms = [(code(v, None), code(v, None)) for v in x]
    third = code(np.float64(1 / 3), None)
    options = CallOptions(RoundingAttributes(Rounding.STOCHASTIC), 11)
    result = scaled(fs.accumulation.parse(accumulation), terms, options, third, third, 0, third)
    assert len(used) == len(set(used)) == sum(sum(c.values()) for c in result.counts.values())


def test_stochastic_sums_have_no_bias():
    """Sixteen times 2**-12 added to 1 in FP16: a nearest sum stays at 1, the mean of stochastic sums is correct."""
    x = np.array([1.0] + [2.0**-12] * 16, np.float16)
    assert number(total("sequential(fp16)", x), fs.FP16) == 1
    sums = [number(total("fp16", x, index=i, seed=1, rounding=Rounding.STOCHASTIC), fs.FP16) for i in range(400)]
    deviation = 2.0**-10 * math.sqrt(16 * 0.25 * 0.75)
    assert abs(np.mean(sums) - (1 + 2.0**-8)) < 5 * deviation / math.sqrt(len(sums))


# -- rounding attributes of a leaf ---------------------------------------------------------------------------------


def test_a_leaf_has_its_own_attributes():
    x = [1.0, 2.0**-11]
    assert number(total("sequential(fp16)", x, fmt=fs.FP16, rounding=Rounding.TOWARD_POSITIVE), fs.FP16) == 1 + 2.0**-10
    own = "sequential(fp16, rounding=toward_zero)"
    assert number(total(own, x, fmt=fs.FP16, rounding=Rounding.TOWARD_POSITIVE), fs.FP16) == 1
    # products as the sums, or by themselves
    p = [1 + 2.0**-10]
    assert number(total(own, p, p, fs.FP16), fs.FP16) == 1 + 2.0**-9
    up = "sequential(fp16, rounding=toward_zero, product_rounding=toward_positive)"
    assert number(total(up, p, p, fs.FP16), fs.FP16) == 1 + 3 * 2.0**-10
    # overflow is never the call's
    huge = [65504.0, 65504.0]
    assert number(total("fp16", huge, fmt=fs.FP16, overflow=Overflow.SATURATE_FINITE), fs.FP16) == math.inf
    inner = "blocked(sequential(fp16, overflow=saturate_finite), 2, sequential(fp16))"
    assert number(total(inner, huge, fmt=fs.FP16), fs.FP16) == 65504


def test_saturating_accumulators():
    accumulation = "sequential(fp16, overflow=saturate_finite)"
    result = total(accumulation, [65504.0, 65504.0, -4.0], fmt=fs.FP16)
    assert number(result, fs.FP16) == 65504  # 65500 is the middle of 65472 and 65504 less 12: nearer to 65504
    assert result.counts["sum"] == {0: 1, INEXACT | OVERFLOW | ABSORBED: 1, INEXACT | ABSORBED: 1}
    assert (result.first["overflow"], result.first["absorbed"]) == (1, 1)
    product = total(accumulation, [256.0], [512.0], fs.FP16)
    assert (number(product, fs.FP16), product.counts["product"]) == (65504, {INEXACT | OVERFLOW: 1})
    # what is infinite stays so: terms, c, and a lone leaf
    for description in (
        accumulation,
        "pairwise(fp16, overflow=saturate_finite)",
        "exact(fp16, overflow=saturate_finite)",
    ):
        assert number(total(description, [-math.inf], fmt=fs.FP16), fs.FP16) == -math.inf
        assert number(total(description, [], fmt=fs.FP16, c=math.inf), fs.FP16) == math.inf
    e4m3 = total("sequential(e4m3)", [448.0, 448.0, -448.0], fmt=fs.E4M3)
    assert (e4m3.code, e4m3.first["overflow"], e4m3.first["nan"], e4m3.first["invalid"]) == (0x7F, 1, 1, None)
    fp4 = total("sequential(fp4)", [6.0, 6.0, -4.0], fmt=fs.E2M1)
    assert (number(fp4, fs.E2M1), fp4.first["overflow"], fp4.first["nan"]) == (2, 1, None)


def test_ftz_and_daz():
    tiny = 2.0**-24  # FP16's smallest subnormal; normal in FP32
    fp32, fp16 = [tiny, tiny], fs.FP16
    plain = total("sequential(fp16)", fp32, fmt=fs.FP32)
    assert (plain.code, plain.counts["sum"]) == (2, {SUBNORMAL: 2})
    ftz = total("sequential(fp16)", fp32, fmt=fs.FP32, ftz=True)
    flushed = UNDERFLOW | INEXACT | FLUSHED
    assert (ftz.code, ftz.counts["sum"], ftz.first["flushed"]) == (0, {flushed | ABSORBED: 2}, 0)
    # the accumulator is an operand: what it holds is read as zero, and stays if it is the last
    daz = total("sequential(fp16)", fp32, fmt=fs.FP32, daz=True)
    assert (daz.code, daz.counts["sum"]) == (1, {SUBNORMAL: 2})
    assert total("sequential(fp16)", fp32, fmt=fp16, daz=True).code == 0  # the terms are subnormal here
    assert total("sequential(fp16, daz=false)", fp32, fmt=fp16, daz=True).code == 2
    assert total("sequential(fp16, daz)", fp32, fmt=fp16).code == 0
    # c, rounded products and partial results are operands, too
    assert total("sequential(fp16, daz)", [], fmt=fs.FP32, c=tiny).code == 1
    assert total("sequential(fp16, daz)", [0.0], fmt=fs.FP32, c=tiny).code == 0
    assert total("sequential(fp16, daz)", [], fmt=fp16, c=tiny).code == 0
    assert total("sequential(fp16, daz)", [2.0**-12], [2.0**-12], fp16).code == 0
    assert total("sequential(fp16, fused, daz)", [2.0**-12], [2.0**-12], fp16).code == 1
    assert total("blocked(fp16, 1, sequential(fp16, daz))", fp32, fmt=fs.FP32).code == 0
    assert total("blocked(sequential(fp16, daz), 1, fp16)", fp32, fmt=fs.FP32).code == 2
    for accumulation in ("kahan(fp16, daz)", "pairwise(fp16, daz)", "exact(fp16, daz)", "neumaier(fp16, daz)"):
        assert total(accumulation, fp32, fmt=fp16).code == 0
        assert total(accumulation, [1.0, *fp32], fmt=fp16, c=tiny).code == 0x3C00
    product = total("sequential(fp16, ftz)", [2.0**-12], [2.0**-12], fp16)
    assert (product.counts["product"], product.counts["sum"]) == ({flushed: 1}, {0: 1})


def test_numbers_have_been_read_already():
    one = Number(reference.Kind.FINITE, 0, 1, -30)
    attributes, options = fs.Sequential("fp64"), CallOptions(RoundingAttributes(daz=True))
    result = accumulate(attributes, [(one, one), (one, None)], options, start=one)
    assert number(result, fs.FP64) == 2.0**-60 + 2 * 2.0**-30


# -- events and their first k --------------------------------------------------------------------------------------


def test_events_of_a_loop():
    """Counts and first k of a half-precision loop, computed from NumPy's values and exact fractions."""
    for kind in ("ordinary", "large", "subnormal", "special"):
        rng = o.rng("events", kind)
        a, b = samples(rng, np.float16, 120, kind), samples(rng, np.float16, 120, "special")
        result = total("sequential(fp16)", a, b)
        seen = {name: [] for name in ("inexact", "overflow", "invalid", "flushed", "absorbed", "nan")}
        acc = np.float16(0)
        for k, (x, y) in enumerate(zip(a, b, strict=True)):
            p = x * y
            t = acc + p
            for left, right, new, operation in ((x, y, p, "*"), (acc, p, t, "+")):
                both = np.isfinite(left) and np.isfinite(right)
                if np.isnan(new) and (operation == "*" or not np.isnan(acc)):
                    seen["nan"].append(k)
                if np.isnan(new) and not np.isnan(left) and not np.isnan(right):
                    seen["invalid"].append(k)
                if not both:
                    continue
                u, v = Fraction(float(left)), Fraction(float(right))
                exact = u * v if operation == "*" else u + v
                if np.isinf(new):
                    seen["overflow"].append(k)
                elif exact and new == 0:
                    seen["flushed"].append(k)
                if np.isinf(new) or Fraction(float(new)) != exact:
                    seen["inexact"].append(k)
                if operation == "+" and right != 0 and new == left:
                    seen["absorbed"].append(k)
            acc = t
        both = result.counts["product"] + result.counts["sum"]
        bits = {"inexact": INEXACT, **reference_sums.EVENTS}
        for name, steps in seen.items():
            assert count(both, bits[name]) == len(steps), name
            if name in result.first:
                assert result.first[name] == min(steps, default=None), name


def test_first_absorbed():
    """FP16: above 2048 the spacing is 2, and 2048 + 1 is a tie that goes to 2048."""
    x = [2048.0, 0.0, -0.0, 2.0, 1.0, 1.0, -2.0, 0.0]  # 2050 + 1 goes up to 2052, and 2052 + 1 back to it

    def first(accumulation, values=x, **given):
        return total(accumulation, values, fmt=fs.FP16, **given).first["absorbed"]

    assert first("sequential(fp16)") == 5
    assert first("sequential(fp16)", [2048.0, 0.0, 1.0, 1.0]) == 2
    assert first("kahan(fp16)", [2048.0, 0.0, 1.0, 1.0]) == 2
    assert first("neumaier(fp16)", [2048.0, 0.0, 1.0, 1.0]) == 2
    assert first("exact(fp16)", [2048.0, 0.0, 1.0, -0.0]) is None
    # trees: either operand, at the largest index under the node
    assert first("pairwise(fp16)", [2.0, 1.0, 1.0, 2048.0]) == 3
    assert first("pairwise(fp16)", [1.0, 1.0, 0.0, 2048.0]) is None
    assert first("pairwise(fp16)", [1.0, 2048.0, 1.0, 2.0]) == 1
    assert first("pairwise(fp16, halving)", [1.0, 0.0, 2048.0, 0.0]) == 2
    assert first("pairwise(fp16, halving)", [0.0, 1.0, 0.0, 2048.0, 0.0]) == 4  # (0 3)(1 4)2, then ((0 3) 2)
    # an unrounded leaf counts once, and zeros are absorbed by nothing
    assert first("pairwise(fp16)", [1.0]) is None
    assert first("sequential(fp16)", [-0.0, 0.0, -0.0]) is None
    # c: the seed takes in the first term; added last, it is the addend
    assert first("sequential(fp16)", [1.0, 0.0], c=2048.0) == 0
    assert first("pairwise(fp16)", [2048.0, 0.0, 0.0], c=1.0) == 2
    assert first("pairwise(fp16)", [1.0, 0.0, 0.0], c=2048.0) is None
    assert first("strided(fp16, 2)", [2048.0, 0.0, 0.0], c=1.0) == 2


def test_first_k_of_composites():
    """A partial result has the largest original index of its part."""
    x = [2048.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]

    def first(accumulation, values=x):
        return total(accumulation, values, fmt=fs.FP16).first["absorbed"]

    assert first("blocked(fp16, 3, fp16)") == 5
    assert first("blocked(fp16, 3, pairwise(fp16))") == 5
    assert first("splitk(2, fp16, fp16)") == 7
    assert first("strided(fp16, 4, fp16)") == 4  # lane 0 has 0 and 4
    assert first("strided(fp16, 3, fp16)") == 7  # lane 1 has 1, 4 and 7; lane 0 ends at 6
    assert first("strided(fp16, 3, pairwise(fp16, halving))") == 7
    assert first("strided(fp16, 5, fp16)", [1.0, 0.0, 2048.0, 0.0, 0.0, 0.0]) is None
    # lanes 0 and 1 end at 5 and 6: lane 2's 1 comes after them
    assert first("strided(fp16, 5, neumaier(fp16))", [0.0, 2048.0, 1.0, 0.0, 0.0, 0.0, 0.0]) == 6


def test_first_nan_and_invalid():
    inf, nan = math.inf, math.nan

    def first(accumulation, a, b=None, **given):
        found = total(accumulation, a, b, fs.FP16, **given).first
        return found["nan"], found["invalid"]

    every = ("sequential(fp16)", "kahan(fp16)", "neumaier(fp16)")
    for accumulation in every:
        assert first(accumulation, [1.0, nan, 2.0, nan]) == (1, None)
        assert first(accumulation, [inf, 1.0, -inf, inf]) == (2, 2)
        assert first(accumulation, [1.0, inf, 1.0], [1.0, 0.0, 1.0]) == (1, 1)
        assert first(accumulation, [1.0, -inf], c=inf) == (1, 1)
        assert first(accumulation, [1.0, 1.0], c=nan) == (0, None)
    assert first("sequential(fp16, fused)", [1.0, inf, 1.0], [1.0, 0.0, 1.0]) == (1, 1)
    assert first("pairwise(fp16)", [nan]) == (0, None)
    assert first("pairwise(fp16)", [nan, 1.0, 1.0]) == (1, None)
    assert first("pairwise(fp16)", [nan, 1.0, 1.0], [1.0, 1.0, 1.0]) == (0, None)  # the product is NaN already
    assert first("pairwise(fp16, product=none)", [inf, 1.0, 1.0], [0.0, 1.0, 1.0]) == (1, 1)
    assert first("pairwise(fp16)", [inf, 1.0, 1.0, -inf]) == (3, 3)
    assert first("pairwise(fp16)", [inf, 1.0, 1.0], c=-inf) == (2, 2)
    assert first("exact(fp16)", [nan, 1.0, 1.0]) == (2, None)
    assert first("blocked(fp16, 2, fp16)", [1.0, 1.0, nan, 1.0]) == (2, None)
    # a NaN is new once in a sum of one level
    counts = total("sequential(fp16)", [nan, nan, 1.0], fmt=fs.FP16).counts["sum"]
    assert counts == {NAN: 1, 0: 2}
    tree = total("pairwise(fp16)", [nan, 1.0, 1.0, 1.0], fmt=fs.FP16).counts["sum"]
    assert tree == {NAN: 1, 0: 2}
    # formats without NaN have none, and say INVALID
    assert total("sequential(fp4)", [nan], fmt=fs.FP16).counts["sum"] == {INVALID: 1}


def test_signalling_nans():
    signalling = Code(0x7C01, fs.FP16)
    one = code(1.0, fs.FP16)
    options = CallOptions(RoundingAttributes())
    for text, site in (("fp16", "product"), ("sequential(fp16, fused)", "sum"), ("exact(fp16)", "sum")):
        found = accumulate(fs.accumulation.parse(text), [(one, one), (one, signalling)], options)
        assert (found.code, count(found.counts[site], INVALID), found.first["invalid"]) == (0x7E00, 1, 1)
    seed = accumulate(fs.Sequential("fp16"), [(one, one)], options, start=signalling)
    assert seed.counts["sum"] == {INVALID | NAN: 1, 0: 1}


def test_how_many_roundings():
    def roundings(accumulation, n, b=True, **given):
        x = [1.0] * n
        counts = total(accumulation, x, x if b else None, fs.FP16, **given).counts
        return sum(counts["product"].values()), sum(counts["sum"].values())

    for n in (1, 2, 5):
        assert roundings("sequential(fp16)", n) == (n, n)
        assert roundings("sequential(fp16, fused)", n) == (0, n)
        assert roundings("sequential(fp16)", n, b=False) == (0, n)
        assert roundings("sequential(fp16)", n, c=1.0) == (n, n + 1)
        assert roundings("kahan(fp16)", n) == (n, 4 * n)
        assert roundings("neumaier(fp16)", n) == (n, 4 * n + 1)
        assert roundings("pairwise(fp16)", n) == (n, max(n - 1, 1))
        assert roundings("pairwise(fp16)", n, c=1.0) == (n, max(n - 1, 1) + 1)
        assert roundings("exact(fp16)", n, c=1.0) == (0, 1)
    assert roundings("strided(fp16, 4)", 10) == (10, 10 + 3)
    assert roundings("blocked(fp16, 4, fp16)", 10, c=1.0) == (10, 10 + 3 + 1)
    # where t is infinite, the compensation is not computed
    assert sum(total("kahan(fp16)", [math.inf, 1.0], fmt=fs.FP16).counts["sum"].values()) == 4
    assert sum(total("neumaier(fp16)", [math.inf, 1.0], fmt=fs.FP16).counts["sum"].values()) == 3


# -- nothing, one term, zeros, alpha and beta ------------------------------------------------------------------------


@pytest.mark.parametrize("accumulation", EVERY)
def test_no_terms(accumulation):
    nothing = total(accumulation, [])
    assert nothing.code == 0 and not any(nothing.counts.values())
    assert set(nothing.first.values()) == {None}
    for c, expected in ((-0.0, 0x8000), (0.0, 0), (1.0, 0x3C00), (-math.inf, 0xFC00), (math.nan, 0x7E00)):
        assert total(accumulation, [], fmt=fs.FP32, c=c).code == expected
    rounded = total(accumulation, [], fmt=fs.FP32, c=1 + 2.0**-11 + 2.0**-20)
    assert (rounded.code, rounded.counts["sum"]) == (0x3C01, {INEXACT: 1})
    assert total(accumulation, [], fmt=fs.FP32, c=1e9).first["overflow"] == 0


def test_one_term():
    minus = [-0.0]
    for accumulation in EVERY:
        one = total(accumulation, [1 + 2.0**-11 + 2.0**-20], fmt=fs.FP32)
        assert one.code == 0x3C01
    # an accumulator starts with +0, and a tree with its first term
    assert [
        total(accumulation, minus, fmt=fs.FP16).code for accumulation in ("fp16", "kahan(fp16)", "neumaier(fp16)")
    ] == [0, 0, 0]
    assert [total(accumulation, minus, fmt=fs.FP16).code for accumulation in ("pairwise(fp16)", "exact(fp16)")] == [
        0x8000,
        0x8000,
    ]
    lone = total("pairwise(fp16, product=fp32)", [1.0], [1 + 2.0**-11], fs.FP32)
    assert (lone.code, lone.counts) == (0x3C00, {"product": {0: 1}, "sum": {INEXACT: 1}})


def test_signs_of_zero():
    down = {"rounding": Rounding.TOWARD_NEGATIVE}
    for accumulation in ("sequential(fp16)", "pairwise(fp16)", "kahan(fp16)"):
        assert total(accumulation, [1.0, -1.0], fmt=fs.FP16).code == 0
        assert total(accumulation, [1.0, -1.0], fmt=fs.FP16, **down).code == 0x8000
    assert total("sequential(fp16)", [-0.0, -0.0], fmt=fs.FP16, **down).code == 0x8000
    assert total("sequential(fp16)", [-0.0, -0.0], fmt=fs.FP16, c=-0.0).code == 0x8000
    assert total("pairwise(fp16)", [-0.0, -0.0], fmt=fs.FP16).code == 0x8000
    assert total("pairwise(fp16)", [-0.0, 0.0], fmt=fs.FP16).code == 0
    assert total("sequential(fp16)", [-1.0, 1.0], [0.0, -0.0], fs.FP16, c=-0.0).code == 0x8000
    assert total("sequential(e4m3fnuz)", [-1.0, 1.0], fmt=fs.FP16, **down).code == 0


def test_alpha_and_beta():
    rng = o.rng("alpha and beta")
    a, b = samples(rng, np.float32, 20, "ordinary"), samples(rng, np.float32, 20, "ordinary")
    c, alpha, beta = (np.float32(x) for x in (1 / 3, 0.7, -1.1))
    terms = [(code(x, None), code(y, None)) for x, y in zip(a, b, strict=True)]
    options = CallOptions(RoundingAttributes())

    def run(accumulation, alpha, beta, c):
        c = None if c is None else code(c, None)
        return scaled(fs.accumulation.parse(accumulation), terms, options, code(alpha, None), code(beta, None), 0, c)

    one, zero, nan = np.float32(1), np.float32(0), np.float32(np.nan)
    acc = loop(np.float32, a * b, 0)
    for accumulation, plain in (
        ("fp32", acc),
        ("pairwise(fp32)", adjacent(a * b)),
        ("kahan(fp32)", kahan(np.float32, a * b)),
        ("blocked(fp32, 40, pairwise(fp32))", acc),
    ):
        both = run(accumulation, alpha, beta, c)
        assert same(both, np.float32(alpha * plain) + np.float32(beta * c))
        assert sum(both.counts["scale"].values()) == 3
        assert same(run(accumulation, one, beta, c), plain + np.float32(beta * c))
        assert same(run(accumulation, alpha, one, c), np.float32(alpha * plain) + c)
        assert same(run(accumulation, alpha, beta, None), alpha * plain)
        for ignored in (c, nan, None):
            assert same(run(accumulation, alpha, zero, ignored), alpha * plain)
            assert same(run(accumulation, one, zero, ignored), plain)
    assert run("fp32", one, one, c) == total("fp32", a, b, c=c)
    # alpha * acc, beta * c and their sum are rounded with the outermost leaf's attributes
    narrow = run("blocked(fp32, 40, sequential(bf16, rounding=toward_zero))", alpha, beta, c)
    down = {"rounding": Rounding.TOWARD_ZERO}
    part = number(total("blocked(fp32, 40, sequential(bf16, rounding=toward_zero))", a, b), fs.BF16)
    t = number(total("bf16", [float(alpha)], [part], fs.FP32, **down), fs.BF16)
    u = number(total("bf16", [float(beta)], [float(c)], fs.FP32, **down), fs.BF16)
    assert narrow.code == total("bf16", [t, u], fmt=fs.FP32, **down).code


# -- traps of fused multiply-adds ------------------------------------------------------------------------------------

FUSED = [
    ("fp32", "a double product and sum, rounded to single, is one unit off", (0xD4F697F0, 0x5EE80000, 0x3E17FFFF),
     0xF45F79B1, INEXACT),
    ("fp32", "2**24 and a product just below half a unit", (0x3F800001, 0x3F7FFFFE, 0x4B800001), 0x4B800001, INEXACT),
    ("bf16", "the tie 7 * 37 = 259, broken by a c that single precision loses", (0x40E0, 0x4214, 0xB580), 0x4381,
     INEXACT),
    ("bf16", "a tie broken by a c that double precision loses", (0x59E0, 0x4214, 0x8D80), 0x5C81, INEXACT),
    ("e5m2", "the tie 192 * 192 = 36864, broken by 2**-16", (0x5A, 0x5A, 0x01), 0x79, INEXACT),
    ("fp16", "65504 * 2 - 65504: only the product alone overflows", (0x7BFF, 0x4000, 0xFBFF), 0x7BFF, 0),
    ("fp32", "infinity * 0 + NaN is invalid", (0x7F800000, 0x00000000, 0x7FC00000), 0x7FC00000, INVALID),
    ("fp16", "1 * 1 - 1 is -0 when rounding down", (0x3C00, 0x3C00, 0xBC00), 0x8000, 0),
]  # fmt: skip


@pytest.mark.parametrize("fmt, why, given, expected, flags", FUSED, ids=[t[1] for t in FUSED])
def test_fused_traps(fmt, why, given, expected, flags):
    a, b, c = (Code(x, fs.formats.as_format(fmt)) for x in given)
    options = CallOptions(RoundingAttributes(Rounding.TOWARD_NEGATIVE if "down" in why else Rounding.TIES_TO_EVEN))
    fused, exact = fs.Sequential(fmt, fused=True), fs.Exact(fmt)
    seeded = accumulate(fused, [(a, b)], options, start=c)
    in_turn = accumulate(fused, [(c, reference_sums.ONE), (a, b)], options)
    as_values = accumulate(fused, [(c, None), (a, b)], options)
    once = accumulate(exact, [(a, b)], options, start=c)
    tree = accumulate(fs.Pairwise(fmt, product=None), [(a, b), (c, None)], options)
    for result in (seeded, in_turn, as_values, once, tree):
        assert result.code == expected
        union = functools.reduce(operator.or_, result.counts["sum"])
        assert union & FLAGS & ~NAN == flags
