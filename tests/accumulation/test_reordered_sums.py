"""Sums in given orders: permutations, lists and rules of lengths, trees, parts, and split-K through D's format.

The path search compares them with an oracle of its own (tests/emulator/test_paths.py). Here are their definitions, by
hand and with NumPy's float32, the places of their events, and their plans.
"""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import oracles as o
import pytest

import floatsim as fs
from floatsim.accumulation.partition import partials, positions
from floatsim.accumulation.tree_shape import as_tree_shape
from floatsim.emulator.dispatch.candidates import only
from floatsim.formats.call import CallOptions
from floatsim.formats.rounding import Rounding, RoundingAttributes
from floatsim.reference import sums as reference_sums

EVERY = (
    "permuted(swapped, fp32)",
    "permuted(reversed, fp16)",
    "permuted([2, 0, 1], sequential(fp32, fused))",
    "blocked(permuted(reversed, fp32), 7, permuted(reversed, fp32))",
    "permuted(strided-3, blocked(fp16, 4, fp32))",
    "permuted(backwards-2x3, pairwise(fp16))",
    "strided(permuted(reversed, fp16), 5, tree(fp32, (0, 3, (1, (2, 4)))))",
    "blocked(fp16, [5, 1, 9, 6], fp32)",
    "blocked(fp16, 5, fp32, halve, tile=2)",
    "blocked(kahan(fp16), 6, neumaier(fp32), equal, tile=3)",
    "splitk(3, fp16, fp32, tile=4)",
    "splitk(3, exact(fp16), fp32, tile=4, parallel)",
    "splitk(3, fp16, fp32, tile=4, dealt)",
    "splitk(2, strided(fp16, 2), converted(e5m2, fp16), tile=3, dealt)",
    "blocked(splitk(2, fp16, fp16, dealt), 9, converted(bf16, fp32, rounding=toward_zero))",
    "permuted(conv-2x2x2, fp16)",
    "converted(e5m2, permuted(conv-3x1x2-descending, fp16), rounding=ties_to_away)",
    "splitk(4, fp32, sequential(fp32, rounding=toward_zero), tile=2, through=fp16)",
    "permuted(reversed, splitk(4, fp16, fp32, through=e5m2))",
    "strided(splitk(2, fp16, fp32, through=bf16), 3)",
    "parts([strided(fp16, 4), kahan(fp32), fp16], [12, 6, 3], permuted(reversed, fp32))",
    "tree(fp32, (0, (1, 2, (3, 4), 5), (6, (7, (8, (9, (10, (11, (12, 13)))))), 14), (15, 16, 17, 18, 19, 20)))",
)
K = 21


# -- lengths and orders ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "n", "lengths"),
    [
        ("splitk(4, fp32, fp32)", 600, [150, 150, 150, 150]),
        ("splitk(4, fp32, fp32, tile=32)", 600, [160, 160, 160, 120]),
        ("splitk(4, fp32, fp32, tile=32, parallel)", 600, [128, 128, 128, 216]),
        ("splitk(4, fp32, fp32, tile=8, universal)", 600, [152, 152, 152, 144]),
        ("splitk(4, fp32, fp32, tile=32)", 40, [32, 8]),
        ("splitk(4, fp32, fp32, tile=8, dealt)", 64, [16, 16, 16, 16]),
        ("splitk(4, fp32, fp32, tile=8, dealt)", 75, [24, 19, 16, 16]),
        ("splitk(4, fp32, fp32, tile=8, dealt)", 64 - 3, [16, 16, 16, 13]),
        ("splitk(4, fp32, fp32, tile=8, dealt)", 20, [8, 8, 4]),
        ("splitk(3, fp32, fp32, dealt)", 5, [2, 2, 1]),
        ("splitk(4, fp32, fp32, tile=32, parallel)", 40, [40]),
        ("blocked(fp32, 192, fp32)", 400, [192, 192, 16]),
        ("blocked(fp32, 448, fp32, halve, tile=16)", 700, [352, 348]),
        ("blocked(fp32, 448, fp32, halve, tile=16)", 1000, [448, 288, 264]),
        ("blocked(fp32, 448, fp32, halve, tile=16)", 705, [352, 353]),
        ("blocked(fp32, 448, fp32, halve)", 896, [448, 448]),
        ("blocked(fp32, 5, fp32, halve, tile=8)", 6, [6]),
        ("blocked(fp32, 5, fp32, halve, tile=8)", 16, [5, 5, 6]),
        ("blocked(fp32, 5, fp32, halve, tile=3)", 6, [3, 3]),
        ("blocked(fp32, 448, fp32, halve)", 448, [448]),
        ("blocked(fp32, 448, fp32, equal)", 900, [300, 300, 300]),
        ("blocked(fp32, 448, fp32, equal, tile=32)", 900, [320, 320, 260]),
        ("blocked(fp32, [192, 192, 1], fp32)", 385, [192, 192, 1]),
        ("parts([fp32, fp64], [96, 5], fp64)", 101, [96, 5]),
    ],
)
def test_lengths(text, n, lengths):
    accumulation = fs.as_accumulation(text)
    assert [length for length, number in accumulation.runs(n) for _ in range(number)] == lengths
    assert accumulation.runs(0) == []


@pytest.mark.parametrize(
    ("order", "n", "terms"),
    [
        ("swapped", 5, [1, 0, 3, 2, 4]),
        ("reversed", 3, [2, 1, 0]),
        ("strided-2", 5, [0, 2, 4, 1, 3]),
        ("strided-9", 2, [0, 1]),
        ("backwards-2x3", 9, [3, 4, 5, 0, 1, 2, 6, 7, 8]),
        ("conv-2x2x1", 8, [0, 1, 2, 3, 4, 5, 6, 7]),
        ("conv-2x2x2", 8, [0, 4, 1, 5, 2, 6, 3, 7]),
        ("conv-1x2x2", 8, [0, 2, 1, 3, 4, 6, 5, 7]),
        ("conv-2x2x2-descending", 8, [3, 7, 2, 6, 1, 5, 0, 4]),
        ("conv-2x2x2", 9, [0, 4, 1, 5, 2, 6, 3, 7, 8]),
        ([2, 0, 1], 7, [2, 0, 1, 5, 3, 4, 6]),
        ([1, 0], 0, []),
    ],
)
def test_orders(order, n, terms):
    assert positions(fs.Permuted(order, "fp32"), n).tolist() == terms


def test_shapes_of_trees():
    chain = 0
    for k in range(1, 3000):
        chain = (k, chain)
    deep = as_tree_shape(chain)
    assert deep == as_tree_shape(tuple(range(3000))) and max(deep.merges) == 1 and deep.height == 2999
    assert as_tree_shape(((2, 3), (0, 1))) == as_tree_shape("((1,0),(3,2))") != as_tree_shape(((0, 2), (1, 3)))
    balanced = list(range(1024))
    while len(balanced) > 1:
        balanced = list(zip(balanced[1::2], balanced[::2], strict=True))
    shape = as_tree_shape(balanced[0])
    assert max(shape.merges) == 10 and shape.height == 10
    assert as_tree_shape(str(shape)) == shape and str(as_tree_shape(0)) == "(0)"


@pytest.mark.full
def test_a_tree_from_the_matrix_of_its_order():
    for text in (
        "fp32",
        "permuted(reversed, fp32)",
        "pairwise(fp32)",
        "pairwise(fp32, halving)",
        "pairwise(fp32, numpy)",
        "strided(fp32, 4, fp32)",
        "blocked(fp32, [3, 8, 2, 1], fp32)",
    ):
        found = fs.reveal_order(text, 14)
        assert np.array_equal(fs.reveal_order(fs.Tree("fp32", found), 14), found), text
    with pytest.raises(ValueError, match="4 values are added at once, among them term 0"):
        fs.Tree("fp32", -np.eye(4, dtype=int))
    with pytest.raises(ValueError, match="belong to no summation tree"):
        fs.Tree("fp32", np.array([[-1, 2, 0, 0], [2, -1, 0, 1], [0, 0, -1, 0], [0, 1, 0, -1]]))
    with pytest.raises(ValueError, match="square matrix"):
        fs.Tree("fp32", np.zeros((2, 3), int))


# -- results -----------------------------------------------------------------------------------------------------------


def chain(terms):
    acc = np.float32(0)
    for x in terms:
        acc = np.float32(acc + x)
    return acc


def cut(lengths, terms):
    ends = np.cumsum([0, *lengths])
    return [chain(terms[a:b]) for a, b in itertools.pairwise(ends)]


def through(fmt, parts):
    acc = np.float32(0)
    for part in parts:
        acc = np.float32(fmt(acc + part))
    return acc


def with_double_tail(terms, products):
    tail = sum((float(x) for x in products), 0.0)
    return np.float32(np.float64(chain(terms)) + tail)


BY_HAND = {
    "splitk(4, fp32, fp32, tile=32)": lambda t: chain(cut([160, 160, 160, 120], t)),
    "splitk(4, fp32, fp32, tile=32, parallel)": lambda t: chain(cut([128, 128, 128, 216], t)),
    "splitk(4, fp32, fp32, tile=32, through=fp16)": lambda t: through(np.float16, cut([160, 160, 160, 120], t)),
    "splitk(4, fp32, permuted(reversed, fp32))": lambda t: chain(cut([150] * 4, t)[::-1]),
    "blocked(fp32, [200, 399, 1], fp32)": lambda t: chain(cut([200, 399, 1], t)),
    "permuted(swapped, fp32)": lambda t: chain(t.reshape(-1, 2)[:, ::-1].ravel()),
    "permuted(reversed, fp32)": lambda t: chain(t[::-1]),
    "permuted(strided-2, fp32)": lambda t: chain([*t[::2], *t[1::2]]),
    "permuted(backwards-4x4, strided(fp32, 4, fp32))": lambda t: chain(
        [
            chain([x for i in range(0, 592, 16) for x in t[i : i + 16][lane::4][::-1]] + list(t[592:][lane::4]))
            for lane in range(4)
        ]
    ),
    "strided(fp32, 4, tree(fp32, ((0, 2), (1, 3))))": lambda t: (
        np.float32(chain(t[0::4]) + chain(t[2::4])) + np.float32(chain(t[1::4]) + chain(t[3::4]))
    ),
    "parts([fp32, sequential(fp64, product=fp32)], [595, 5], fp64)": lambda t: with_double_tail(t[:595], t[595:]),
}


@pytest.mark.full
@pytest.mark.parametrize("text", BY_HAND)
def test_equals_numpy(text):
    rng = o.rng("reordered", text)
    a, b = rng.standard_normal((3, 600)).astype(np.float32), rng.standard_normal((600, 2)).astype(np.float32)
    found = fs.matmul(a, b, accumulate=text, format="fp32")
    assert found.tolist() == [[float(BY_HAND[text](a[i] * b[:, j])) for j in range(2)] for i in range(3)]
    vector = fs.dot(a[0], b[:, 0], accumulate=text, format="fp32")
    assert vector == found[0, 0]
    terms = np.stack([a[0] * b[:, 0], a[1] * b[:, 1]])
    assert fs.sum(terms, axis=1, accumulate=text, format="fp32").tolist() == [found[0, 0], found[1, 1]]


@pytest.mark.full
@pytest.mark.parametrize("text", EVERY)
@pytest.mark.parametrize("mode", ["ties_to_even", "stochastic"])
def test_equals_the_reference(text, mode):
    """Codes, counts and first k of every event, by the default kernels and by the integer kernels; with c."""
    rng = o.rng("reordered", text, mode)
    a, b = (
        fs.array(rng.standard_normal(shape) * 2.0 ** rng.integers(-9, 9, shape), "fp16") for shape in ((3, K), (K, 4))
    )
    c = fs.array(rng.standard_normal((3, 4)), "bf16")
    keywords = {"rounding": mode} | ({"seed": 5} if mode == "stochastic" else {})
    accumulation = fs.as_accumulation(text)
    seed = 5 if mode == "stochastic" else 0
    options = CallOptions(RoundingAttributes(Rounding[mode.upper()]), seed)
    for addend in (None, c):
        with fs.record() as log:
            found = fs.matmul(a, b, addend, accumulate=accumulation, **keywords)
        fast = fs.matmul(a, b, addend, accumulate=accumulation, **keywords)
        with only("integer"):
            slow = fs.matmul(a, b, addend, accumulate=accumulation, **keywords)
        counted = 0
        for i, j in np.ndindex(3, 4):
            terms = [
                (reference_sums.Code(int(x), fs.FP16), reference_sums.Code(int(y), fs.FP16))
                for x, y in zip(a.codes[i], b.codes[:, j], strict=True)
            ]
            start = None if addend is None else reference_sums.Code(int(c.codes[i, j]), fs.BF16)
            want = reference_sums.accumulate(accumulation, terms, options, 4 * i + j, start)
            codes = {_code(x, i, j) for x in (found, fast, slow)}
            assert codes == {want.code}, (text, i, j)
            assert {name: -1 if k is None else k for name, k in want.first.items()} == {
                name: log.first[name][i, j] for name in want.first
            }, (text, i, j)
            counted += sum(want.counts["sum"].values())
        assert log["matmul.sum"].elements == counted


def _code(x, i, j):
    codes = x.codes if isinstance(x, fs.FloatArray) else np.asarray(x).view(f"u{np.asarray(x).itemsize}")
    return int(codes[i, j])


@pytest.mark.full
def test_a_flushed_product_keeps_its_own_k():
    a = fs.array([[1.0, 2.0**-20, 1.0, 1.0]], "fp16")
    b = fs.array([[1.0], [2.0**-20], [1.0], [1.0]], "fp16")
    for text in ("fp16", "permuted(reversed, fp16)", "permuted(swapped, fp16)", "tree(fp16, (3, 1, (0, 2)))"):
        with fs.record() as log:
            fs.matmul(a, b, accumulate=text)
        assert log.first["flushed"].tolist() == [[1]], text


@pytest.mark.full
def test_exact_sums_do_not_depend_on_the_order():
    rng = o.rng("orders of exact sums")
    x = fs.array(rng.standard_normal(30), "e4m3")
    due = sum(Fraction(float(v)) for v in x.values)
    for text in ("permuted(reversed, fp64)", "tree(fp64, (" + ", ".join(map(str, range(30))) + "))"):
        assert Fraction(float(fs.sum(x, accumulate=text))) == due


@pytest.mark.full
def test_partial_results_pass_through_memory_once_for_each_part():
    x = fs.array([2048.0, 1.0, 1.0, 1.0], "fp16")
    ones = fs.array(np.ones(4), "fp16")
    assert fs.dot(x, ones, accumulate="splitk(4, fp32, fp32)") == 2051
    assert fs.dot(x, ones, accumulate="splitk(4, fp32, fp32, through=fp16)") == 2048
    assert fs.dot(x, ones, accumulate="splitk(2, fp32, fp32, through=fp16)") == 2050  # 2049 is the tie of 2048 and 2050
    assert fs.dot(x, ones, accumulate="splitk(2, fp32, sequential(fp32, rounding=toward_zero), through=fp16)") == 2050


@pytest.mark.full
def test_other_numbers_of_terms_are_errors():
    x = np.ones((1, 9), np.float32)
    for text, says in [
        ("tree(fp32, (0, 1))", "the Tree has 2 terms; this sum has 9"),
        ("blocked(fp32, [4, 4], fp32)", "lists the lengths of 8 terms; this sum has 9"),
        ("parts([fp32], [10], fp32)", "lists the lengths of 10 terms; this sum has 9"),
        ("strided(fp32, 3, tree(fp32, (0, 1)))", "the Tree has 2 terms; this sum has 3"),
    ]:
        with pytest.raises(ValueError, match=says):
            fs.matmul(x, x.T, accumulate=text)
        with pytest.raises(ValueError, match=says):
            fs.sum(x[0], accumulate=text)
        with fs.record(), pytest.raises(ValueError, match=says):
            fs.sum(x[0], accumulate=text)
        empty = np.ones((2, 0), np.float32)
        assert fs.matmul(empty, empty.T, accumulate=text).tolist() == [[0, 0], [0, 0]]


def test_a_few_orders_equal_numpy():
    """The descriptions that need no other kernel than FP32's, quickly; all of them are in `test_equals_numpy`."""
    t = np.float32([2.0**24, 1, 1, -(2.0**24), 3, 1])
    for text, due in [
        ("permuted(reversed, fp32)", chain(t[::-1])),
        ("permuted([1, 2, 4, 5, 0, 3], fp32)", chain(t[[1, 2, 4, 5, 0, 3]])),
        ("blocked(fp32, [1, 3, 2], fp32)", chain(cut([1, 3, 2], t))),
        ("splitk(2, fp32, fp32, tile=4)", chain(cut([4, 2], t))),
        ("splitk(2, fp32, permuted(reversed, fp32), tile=2, parallel)", chain(cut([2, 4], t)[::-1])),
    ]:
        assert fs.matmul(t[np.newaxis], np.ones((6, 1), np.float32), accumulate=text).item() == due, text


# -- plans, traces, other backends -------------------------------------------------------------------------------------


def test_plans():
    x = fs.array([[1.0] * 4], "fp16")
    lines = str(fs.explain_plan(x, x.T, accumulate="permuted(swapped, blocked(fp16, [3, 1], fp32))")).splitlines()
    assert lines[0] == "permuted(swapped, blocked(sequential(fp16), [3, 1], sequential(fp32))) of fp16 x fp16: permuted"
    assert any("sequential(fp32) of fp16: native" in line for line in lines)
    long = np.ones(5000, np.float32)
    assert "vectors" in str(fs.explain_plan(long, long, accumulate="permuted(swapped, fp32)")).splitlines()[0]
    assert "vectors" in str(fs.explain_plan(long, long, accumulate="blocked(fp32, [4999, 1], fp32)")).splitlines()[0]
    assert partials(fs.as_accumulation("parts([strided(fp32, 4), fp32], [8, 2], fp32)"), 10) == 6


def test_traces():
    x = fs.array([1.0, 2.0, 3.0], "fp16")
    trace = fs.tensorcore.trace(x, x, accumulate="permuted(reversed, fp16)")
    assert [r.name for r in trace.roundings if r.operator == "*"] == ["a[2]*b[2]", "a[1]*b[1]", "a[0]*b[0]"]
    trace = fs.tensorcore.trace(x, x, accumulate="splitk(3, fp32, fp32, through=fp16)")
    assert [r.name for r in trace.roundings if r.part == "outer"] == ["acc + x", "to memory"] * 3


@pytest.mark.full
def test_scales_stay_with_their_blocks():
    a = fs.array(np.ones((4, 64)), "e4m3")
    scale = fs.array(np.ones((4, 2)), "e8m0")
    for text, says in [
        ("permuted(swapped, blackwell)", "reorders elements"),
        ("blocked(blackwell, [40, 24], fp32)", "40"),
    ]:
        with pytest.raises(ValueError, match=says):
            fs.matmul(a, a.T, accumulate=text, scale_a=scale, scale_b=scale.T)
    plain = fs.matmul(a, a.T, accumulate="blackwell", scale_a=scale, scale_b=scale.T)
    parts = fs.matmul(a, a.T, accumulate="blocked(blackwell, [32, 32], fp32)", scale_a=scale, scale_b=scale.T)
    assert np.array_equal(plain, parts)


@pytest.mark.full
def test_matrix_units_inside():
    rng = o.rng("matrix units in orders")
    a, b = (fs.array(rng.standard_normal(shape), "fp16") for shape in ((3, 48), (48, 4)))
    order = np.arange(48) ^ 1
    swapped = fs.matmul(a, b, accumulate="permuted(swapped, hopper)")
    assert np.array_equal(swapped, fs.matmul(a[:, order], b[order], accumulate="hopper"))
    listed = fs.matmul(a, b, accumulate="blocked(hopper, [16, 32], fp32)")
    assert np.array_equal(
        listed, fs.matmul(a[:, :16], b[:16], accumulate="hopper") + fs.matmul(a[:, 16:], b[16:], accumulate="hopper")
    )
