"""Reductions equal the reference for all axes, masks, start values and options; NumPy's functions."""

from __future__ import annotations

import itertools
import zlib
from collections import Counter

import numpy as np
import oracles
import pytest

import floatsim as fs
from floatsim import reference
from floatsim.accumulation import leaves, parse, settled
from floatsim.arrays.call.options import resolve
from floatsim.arrays.events.counts import EVENTS
from floatsim.emulator.dispatch.candidates import only
from floatsim.formats.call import CallOptions
from floatsim.reference import sums as reference_sums
from floatsim.reference.sums import Code
from tests.marks import cases

pytestmark = pytest.mark.versions

DESCRIPTIONS = (
    "fp16", "e4m3", "sequential(bf16, rounding=rtn)", "kahan(fp16)", "neumaier(e5m2)", "exact(fp16)",
    "pairwise(e5m2)", "pairwise(fp16, numpy)", "strided(fp16, 3, pairwise(fp16, halving))", "blocked(e4m3, 4, fp32)",
    "splitk(3, kahan(fp16), exact(bf16))", "strided(blocked(fp16, 2, bf16), 2, fp32)",
)  # fmt: skip
KEYWORDS = (
    {}, {"rounding": "rtz"}, {"rounding": "rtp", "ftz": True}, {"rounding": "sr", "seed": 7},
    {"rounding": "rto", "daz": True, "tininess": "before"}, {"rounding": "sr", "seed": 1, "random_bits": 3},
)  # fmt: skip


def generator(*what: object) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(repr((oracles.test_seed(), what)).encode()))


def numbers(fmt: fs.FloatFormat, shape: tuple[int, ...], rng: np.random.Generator, scale: int = 0) -> fs.FloatArray:
    """Numbers around 2^scale that cancel, absorb and sometimes overflow, with a few random codes."""
    codes = fs.encode(rng.normal(size=shape) * 2.0 ** (scale + rng.integers(-8, 6, shape)), fmt)
    anything = rng.integers(0, 1 << min(fmt.bits, 63), shape, dtype=np.uint64).astype(fmt.code_dtype)
    return fs.from_codes(np.where(rng.random(shape) < 0.03, anything, codes), fmt)


def cells(x: np.ndarray, axis) -> np.ndarray:
    """(K, cells), computed independently of the package: index by index."""
    axes = tuple(range(x.ndim)) if axis is None else (axis,) if isinstance(axis, int) else axis
    axes = sorted(i % x.ndim for i in axes)
    kept = [i for i in range(x.ndim) if i not in axes]
    table = []
    for at in np.ndindex(*(x.shape[i] for i in kept)):
        index: list = [slice(None)] * x.ndim
        for i, n in zip(kept, at, strict=True):
            index[i] = n
        table.append(x[tuple(index)].ravel())
    length = int(np.prod([x.shape[i] for i in axes]))
    return np.array(table, x.dtype).reshape(-1, length).T


def expected(accumulation, x, axis, options, where=None, initial=None):
    """The reference's sum of every cell, with k along the reduced axes."""
    table = cells(x.codes, axis)
    mask = np.ones(table.shape, bool) if where is None else cells(np.broadcast_to(where, x.shape), axis)
    found = []
    for cell in range(table.shape[1]):
        places = np.flatnonzero(mask[:, cell])
        terms = [(Code(int(c), x.format), None) for c in table[places, cell]]
        total = reference_sums.accumulate(accumulation, terms, options, cell, initial)
        first = {event: None if k is None else int(places[k]) if len(places) else k for event, k in total.first.items()}
        found.append(total._replace(first=first))
    return found


def counted(sums, site: str) -> dict[str, int]:
    """The counts of events by name."""
    total: Counter[int] = Counter()
    for one in sums:
        total += one.counts[site]
    return {
        name: sum(n for byte, n in total.items() if byte & bit)
        for name, bit in EVENTS.items()
        if name != "divide_by_zero"
    }


def check_record(log, operation: str, sums, site: str, shape) -> None:
    counts = log[f"{operation}.{site}"]
    assert {name: getattr(counts, name) for name in counted(sums, site)} == counted(sums, site)
    for event, k in log.first.items():
        assert k.shape == shape
        assert k.ravel().tolist() == [-1 if s.first[event] is None else s.first[event] for s in sums], event


AXES = [None, 0, 1, -1, (0, 2), (2, 0), (0, 1, 2), ()]


@pytest.mark.parametrize("text", cases(quick=["fp16", "exact(fp16)"], full=DESCRIPTIONS))
def test_sum(text):
    accumulation, rng = parse(text), generator("sum", text)
    for n, keywords in enumerate(KEYWORDS):
        fmt = fs.as_format(rng.choice(["fp16", "bf16", "e5m2", "e4m3", "tf32"]))
        x, axis = numbers(fmt, (3, 5, 4), rng), AXES[rng.integers(len(AXES))]
        where = None if n % 2 else rng.random((5, 4) if n % 4 else (3, 5, 4)) < 0.6
        initial = numbers(fs.FP16, (), rng) if rng.random() < 0.5 else None
        start = None if initial is None else Code(int(initial.codes), fs.FP16)
        sums = expected(accumulation, x, axis, resolve(keywords), where, start)
        given = {"accumulate": text, "where": where, "initial": initial, **keywords}
        for keepdims in (False, True):
            total = fs.sum(x, axis, keepdims=keepdims, **given)
            assert total.shape == np.sum(x.values, axis, keepdims=keepdims).shape
            assert total.codes.ravel().tolist() == [s.code for s in sums], (text, keywords, axis)
        with fs.record() as log:
            recorded = fs.sum(x, axis, **given)
        assert recorded.codes.ravel().tolist() == total.codes.ravel().tolist()
        if any(s.counts["sum"] for s in sums):
            check_record(log, "sum", sums, "sum", recorded.shape)


def operate(name: str, operands, fmt, options, index=0) -> int:
    attributes = options.attributes
    random = (
        reference.draw(options.seed, index, attributes.random_bits)
        if attributes.rounding is fs.Rounding.STOCHASTIC
        else 0
    )
    read = [reference.decode(c.code, c.format, attributes.daz) for c in operands]
    return getattr(reference, name)(*read, fmt, attributes, random)[0]


def integer(n: int) -> Code:
    return Code(int(np.float64(n).view(np.uint64)), fs.FP64)


@pytest.mark.parametrize(
    "text", cases(quick=["fp16", "exact(fp16)"], full=["kahan(bf16)", "pairwise(e5m2)", "blocked(fp16, 4, fp32)"])
)
@pytest.mark.parametrize("operation", ["mean", "norm", "var"])
def test_quotients_and_roots(operation, text):
    accumulation, rng = parse(text), generator(operation, text)
    emin = accumulation.result_format.emin  # sums, or squares, around the smallest normal number: ftz and daz decide
    for keywords, scale in itertools.product(KEYWORDS, (0, emin // 2, emin)):
        format = rng.choice([None, None, "fp16", "e4m3", "bf16"])
        x, axis = numbers(fs.as_format(rng.choice(["fp16", "e4m3"])), (4, 6), rng, scale), int(rng.integers(2))
        where = rng.random(x.shape) < 0.7 if rng.random() < 0.5 else None
        options = resolve(keywords)
        fmt = accumulation.result_format if format is None else fs.as_format(format)
        last = CallOptions(options.attributes, reference.split_seed(options.seed, 1))
        table, mask = cells(x.codes, axis), cells(np.ones(x.shape, bool) if where is None else where, axis)
        at = cells(np.arange(x.size).reshape(x.shape), axis)
        want = []
        for cell, (column, used) in enumerate(zip(table.T, mask.T, strict=True)):
            terms, n = [Code(int(c), x.format) for c in column[used]], int(used.sum())
            if operation == "mean":
                total = reference_sums.accumulate(accumulation, [(t, None) for t in terms], options, cell)
                want.append(
                    operate("divide", [Code(total.code, accumulation.result_format), integer(n)], fmt, last, cell)
                )
                continue
            if operation == "var":
                terms = differences(terms, at[used, cell], accumulation, options, cell)
            total = reference_sums.accumulate(accumulation, [(t, t) for t in terms], options, cell)
            acc = Code(total.code, accumulation.result_format)
            if operation == "norm":
                want.append(operate("sqrt", [acc], fmt, last, cell))
            else:
                want.append(operate("divide", [acc, integer(max(n - 1, 0))], fmt, last, cell))
        extra = {"ddof": 1} if operation == "var" else {}
        given = {"accumulate": text, "format": format, "where": where, **extra, **keywords}
        got = getattr(fs, operation)(x, axis, **given)
        assert got.codes.tolist() == want, (text, keywords, format)
        with fs.record():
            assert np.array_equal(getattr(fs, operation)(x, axis, **given).codes, got.codes)


def test_subnormal_sums_of_quotients_and_roots():
    """The last rounding reads a subnormal sum as 0 with daz, and returns no subnormal number with ftz."""
    x, one = np.float16([1.5 * 2**-14, -(2.0**-14)]), np.float16([2.0**-8])
    given = {"accumulate": "fp16"}
    assert fs.mean(x, **given) == 2.0**-16 and fs.norm(one, **given) == 2.0**-8
    assert fs.mean(x, daz=True, **given) == 0 == fs.mean(x, ftz=True, **given)
    assert fs.norm(one, daz=True, **given) == 0
    assert fs.var(np.float16([0, 2.0**-7]), ddof=1, **given) == 2.0**-15
    assert fs.var(np.float16([0, 2.0**-7]), ddof=1, daz=True, **given) == 0


def differences(terms, places, accumulation, options, cell):
    """The terms minus their mean, as the outermost accumulator rounds them."""
    own, _ = settled(leaves(accumulation)[-1], options.attributes)
    sums, quotient, rest = (reference.split_seed(options.seed, n) for n in (8, 9, 10))
    total = reference_sums.accumulate(
        accumulation, [(t, None) for t in terms], CallOptions(options.attributes, sums), cell
    )
    operands = [Code(total.code, accumulation.result_format), integer(len(terms))]
    average = Code(
        operate("divide", operands, accumulation.result_format, CallOptions(own, quotient), cell),
        accumulation.result_format,
    )
    return [
        Code(
            operate("subtract", [t, average], accumulation.result_format, CallOptions(own, rest), int(k)),
            accumulation.result_format,
        )
        for t, k in zip(terms, places, strict=True)
    ]


@pytest.mark.parametrize("text", ["fp16", "e5m2", "pairwise(fp16)", "pairwise(bf16, numpy)", "pairwise(e4m3, halving)"])
def test_prod(text):
    accumulation, rng = parse(text), generator("prod", text)
    for n, keywords in itertools.product((0, 1, 2, 9), KEYWORDS):
        x = numbers(fs.FP16, (n, 3), rng)
        where = rng.random(x.shape) < 0.7 if rng.random() < 0.5 else None
        initial = numbers(fs.BF16, (), rng) if rng.random() < 0.5 else None
        start, options = None if initial is None else Code(int(initial.codes), fs.BF16), resolve(keywords)
        products = []
        for cell in range(3):
            places = np.arange(n) if where is None else np.flatnonzero(where[:, cell])
            factors = [Code(int(c), fs.FP16) for c in x.codes[places, cell]]
            found = reference_sums.product(accumulation, factors, options, cell, start)
            first = {e: None if k is None else int(places[k]) if len(places) else k for e, k in found.first.items()}
            products.append(found._replace(first=first))
        with fs.record() as log:
            got = fs.prod(x, 0, accumulate=text, where=where, initial=initial, **keywords)
        assert got.codes.tolist() == [p.code for p in products], (keywords, n)
        assert np.array_equal(fs.prod(x, 0, accumulate=text, where=where, initial=initial, **keywords).codes, got.codes)
        if any(p.counts["product"] for p in products):
            check_record(log, "prod", products, "product", (3,))


@pytest.mark.parametrize("text", ["fp16", "kahan(e5m2)", "neumaier(fp16)", "bf16", "fp32", "sequential(fp64, ftz)"])
def test_cumsum(text):
    accumulation, rng = parse(text), generator("cumsum", text)
    for keywords in KEYWORDS:
        x, options = numbers(fs.as_format(rng.choice(["fp16", "e5m2", "bf16"])), (7, 2, 3), rng), resolve(keywords)
        table = x.codes.reshape(7, 6)
        want = np.empty(table.shape, object)
        first = {event: np.full(table.shape, -1) for event in reference_sums.EVENTS}
        for k, cell in np.ndindex(table.shape):
            terms = [(Code(int(c), x.format), None) for c in table[: k + 1, cell]]
            found = reference_sums.accumulate(accumulation, terms, options, cell)
            want[k, cell] = found.code
            for event, at in found.first.items():
                first[event][k, cell] = -1 if at is None else at
        got = fs.cumsum(x, 0, accumulate=text, **keywords)
        assert got.codes.reshape(7, 6).tolist() == want.tolist(), keywords
        with fs.record() as log:
            assert np.array_equal(fs.cumsum(x, 0, accumulate=text, **keywords).codes, got.codes)
        if text[0] != "n":  # Neumaier rounds for every element, and once for a sum
            assert all(np.array_equal(log.first[event].reshape(7, 6), k) for event, k in first.items())
        turned = fs.cumsum(fs.from_codes(np.moveaxis(x.codes, 0, 2), x.format), -1, accumulate=text)
        assert np.array_equal(np.moveaxis(turned.codes, 2, 0), fs.cumsum(x, 0, accumulate=text).codes)


# -- NumPy ---------------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_float32_as_numpy():
    rng = generator("numpy")
    x = rng.normal(size=(40, 1001)).astype(np.float32)
    assert np.array_equal(fs.sum(x, 0), np.add.accumulate(x, 0)[-1])
    assert np.array_equal(fs.sum(x, 1, accumulate="pairwise(fp32, numpy)"), np.sum(x, 1))
    assert np.array_equal(fs.cumsum(x, 1), np.cumsum(x, 1))
    assert np.array_equal(fs.prod(x[:, :9], 1), np.multiply.reduce(x[:, :9], 1))
    assert np.array_equal(fs.mean(x, 1, accumulate="pairwise(fp32, numpy)"), np.mean(x, 1))
    assert fs.vdot(x, x) == fs.dot(x.ravel(), x.ravel()) == fs.sum(x * x)
    assert fs.norm(x) == np.sqrt(fs.sum(x * x))


def test_spellings_keep_the_format():
    x = fs.array(np.arange(12.0).reshape(3, 4), "bf16")
    for spelled in (
        np.sum(x), x.sum(), np.mean(x, axis=1), x.mean(0, keepdims=True), np.prod(x[1:]), x.prod(), np.var(x, ddof=1),
        x.var(), np.cumsum(x), x.cumsum(1), np.add.reduce(x), np.add.accumulate(x), np.multiply.reduce(x, axis=1),
        np.linalg.norm(x), np.linalg.norm(x, axis=1), np.vdot(x, x), x.dot(x.T), x[0].dot(x[1]),
        np.sum(x, where=np.ones((3, 4), bool), initial=3.0),
    ):  # fmt: skip
        assert spelled.format is fs.BF16
    assert np.sum(x).item() == 66 and np.add.reduce(x).tolist() == [12, 15, 18, 21]
    assert x.sum(accumulate="fp16", format="fp32").format is fs.FP32
    out = fs.array(np.zeros(4), "bf16")
    assert np.sum(x, axis=0, out=out) is out and out.tolist() == [12, 15, 18, 21]
    assert np.add.reduce(x, axis=0, out=out) is out
    assert np.cumsum(x).shape == (12,) and np.var(x).tolist() == pytest.approx(11.94, abs=0.01)


def test_memory_layout_and_long_sums_change_nothing():
    rng = generator("layout")
    for shape, axis in (((3, 700), 1), ((700, 3), 0), ((50, 20, 30), (0, 2)), ((70000,), None)):
        x = rng.normal(size=shape).astype(np.float16)
        for text in ("fp16", "pairwise(fp16)", "strided(fp16, 32)", "kahan(fp16)"):
            total = fs.sum(x, axis, accumulate=text)
            for other in (np.asfortranarray(x), x[::-1].copy()[::-1], np.repeat(x, 2, axis=0)[::2]):
                assert np.array_equal(fs.sum(other, axis, accumulate=text), total)
            with fs.record(events=["overflow"]):  # by other kernels
                assert np.array_equal(fs.sum(x, axis, accumulate=text), total)
            along = axis if isinstance(axis, int) else 0
            mask = np.moveaxis(
                np.broadcast_to(np.arange(shape[along]) != 5, np.moveaxis(x, along, -1).shape), -1, along
            )
            fewer = fs.sum(np.delete(x, 5, along), axis, accumulate=text)
            assert np.array_equal(fs.sum(x, axis, accumulate=text, where=mask), fewer)


def test_nothing_to_add():
    x = fs.array(np.zeros((0, 3)), "fp16")
    assert fs.sum(x, 0).tolist() == [0, 0, 0] and fs.sum(x, 1).shape == (0,) and fs.prod(x, 0).tolist() == [1, 1, 1]
    assert fs.sum(x, 0, initial=-2.5, accumulate="fp16").tolist() == [-2.5] * 3
    assert fs.cumsum(x, 0).shape == (0, 3) and fs.cumsum(x, 1).shape == (0, 3) and fs.norm(x).item() == 0
    with fs.record() as log:
        assert np.isnan(fs.mean(x, 0).values).all() and np.isnan(fs.var(x, 0).values).all()
    assert log["mean.result"].invalid == 3 and log["var.result"].invalid == 3
    assert np.isnan(fs.var(np.float32([1.0]), ddof=1)) and fs.var(np.float32([1, 3]), ddof=5) == np.inf
    assert fs.sum(np.float32(3)) == 3
    assert not np.signbit(fs.sum(np.float32([-0.0]))) and np.signbit(
        fs.sum(np.float32([-0.0]), accumulate="exact(fp32)")
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: fs.sum(x, 2), "axis 2 is out of bounds"),
        (lambda x: fs.sum(x, (0, 0)), "repeated axis"),
        (lambda x: fs.sum(x, 1.0), "axis must be an integer"),
        (lambda x: fs.sum(x, True), "axis must be an integer"),
        (lambda x: fs.sum(x, keepdims=1), "keepdims must be True or False"),
        (lambda x: fs.sum(x, where=[1, 0, 1]), "where must be True or False"),
        (lambda x: fs.sum(x, where=np.ones(4, bool)), r"where \(4,\) does not fit x \(2, 3\)"),
        (lambda x: fs.sum(x, 0, initial=[1.0, 2.0]), r"initial \(2,\) does not fit the result \(3,\)"),
        (lambda x: fs.sum(x, accumulat="fp16"), "unknown keyword 'accumulat'; did you mean 'accumulate'"),
        (lambda x: fs.sum(x, accumulate="fp17"), "unknown accumulation 'fp17'"),
        (lambda x: fs.sum(x, rounding="sr"), "stochastic rounding needs a seed"),
        (lambda x: fs.sum(x, out=np.zeros(2, np.float32)), "out is FP32"),
        (lambda x: fs.sum([1, 2]), None),
        (lambda x: fs.sum(np.array([1, 2])), "x has dtype int64, which is no format"),
        (lambda x: fs.sum(fs.array([1.0], "e8m0")), "scale format"),
        (lambda x: fs.var(x, ddof=-1), "ddof must be at least 0, not -1"),
        (lambda x: fs.var(x, ddof=0.5), "ddof must be an integer"),
        (
            lambda x: fs.prod(x, accumulate="kahan(fp16)"),
            r"prod .* Sequential or Pairwise or Threads, not kahan\(fp16\)",
        ),
        (lambda x: fs.cumsum(x, accumulate="pairwise(fp16)"), "cumsum .*must be Sequential or Kahan or Neumaier"),
        (lambda x: fs.cumsum(x, (0, 1)), "axis must be an integer"),
        (lambda x: fs.cumsum(x, where=True), "unknown keyword 'where'"),
        (lambda x: fs.vdot(x, x[0]), r"a \(2, 3\) and b \(3,\) have different sizes"),
        (lambda x: np.linalg.norm(fs.array(x, "fp16"), ord=1), "Euclidean"),
        (lambda x: np.sum(fs.array(x, "fp16"), dtype=np.float32), "use format="),
    ],
)
def test_bad_input(call, message):
    x = np.ones((2, 3), np.float32)
    if message is None:
        call(x)
        return
    with pytest.raises((TypeError, ValueError), match=message):
        call(x)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(4))
def test_quick_sums_equal_those_of_the_integer_kernels(seed, monkeypatch):
    """Values of every size, in sums of every kind: the float kernels compute products with 1."""
    rng = generator("quick", str(seed))
    every = [fmt for fmt in fs.named_formats() if not fmt.is_scale] + [fs.FloatFormat.ieee(6, 9)]
    for _ in range(150):
        kind = (fs.Sequential, fs.Pairwise, fs.Kahan, fs.Neumaier, fs.Exact)[rng.integers(5)]
        fmt, accumulator, outer = (every[i] for i in rng.integers(0, len(every), 3))
        accumulation = kind(accumulator)
        if rng.random() < 0.3:
            accumulation = fs.Strided(accumulation, 3, fs.Exact(outer))
        x = numbers(fmt, (int(rng.choice([1, 2, 9, 40])), int(rng.choice([1, 5, 33]))), rng)
        given = {
            "axis": int(rng.integers(2)),
            "accumulate": accumulation,
            "rounding": fs.Rounding(int(rng.integers(7))),
            "seed": 1,
        }
        quick = fs.sum(x, **given)
        with only("integer"):
            assert np.array_equal(fs.sum(x, **given).codes, quick.codes), (accumulation, fmt, given)


BELOW_ONE = fs.FloatFormat("below one", 3, 2, "finite", bias=12)


@pytest.mark.parametrize("overflow", ["infinity", "saturate_finite", "saturate_propagate"])
@pytest.mark.parametrize("accumulation", [fs.Sequential(BELOW_ONE), fs.Pairwise(BELOW_ONE)], ids=["in order", "tree"])
def test_products_in_a_format_below_one(overflow, accumulation):
    """The 1 at the start is exact: it is rounded, to the largest number, only if there is no factor."""
    x = fs.array([0.0390625, 0.046875], BELOW_ONE)
    options = {"accumulate": accumulation, "overflow": overflow}
    assert fs.prod(x[:1], **options).item() == 0.0390625
    assert fs.prod(x, **options).item() == fs.multiply(x[0], x[1]).item()
    assert fs.prod(x[:0], **options).item() == BELOW_ONE.max
