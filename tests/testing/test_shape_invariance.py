"""Checks that a row's bits depend on its row alone, and the mismatch of two computations of the same model."""

from __future__ import annotations

import math
import platform
from decimal import Decimal, localcontext

import numpy as np
import pytest

import floatsim as fs
from floatsim.testing import assert_shape_invariant, check_shape_invariant, mismatch_of


def matrices(m, k, n, *front, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(*front, m, k)).astype(np.float32), rng.normal(size=(k, n)).astype(np.float32)


def stacked(product):
    return lambda x, w: np.stack([product(each, w) for each in x])


# -- planted changes of the order --------------------------------------------------------------------------------------


def split_below(limit):
    """A kernel that splits K for few rows, as libraries do to keep all of a GPU busy."""
    return lambda x, w: fs.matmul(x, w, accumulate="splitk(4, fp32, fp32)" if len(x) < limit else "fp32")


def other_tile_at_the_end(x, w):
    """A kernel with tiles of four rows, whose last tile, if it is not full, is computed in another order."""
    full = len(x) // 4 * 4
    tiles = [fs.matmul(x[:full], w, accumulate="blocked(fp32, 16, fp32)")] if full else []
    rest = [fs.matmul(x[full:], w, accumulate="pairwise(fp32)")] if full < len(x) else []
    return np.concatenate(tiles + rest)


def test_planted_split_k_is_found_and_both_orders_are_named():
    x, w = matrices(8, 64, 8)
    with pytest.raises(AssertionError, match="the bits of a row depend on the shape of the call") as caught:
        assert_shape_invariant(split_below(4), x, w, sizes=[2])
    text = str(caught.value)
    assert "rows: row 0 has other bits in a call with 2 rows than in the call with 8 rows" in text
    report = check_shape_invariant(split_below(4), x, w, sizes=[7, 2])
    (found,) = report.differences
    assert (found.kind, found.row, found.rows, found.of) == ("rows", (0,), 2, 8)
    few, many = (fs.matmul(x, w, accumulate=order) for order in ("splitk(4, fp32, fp32)", "fp32"))
    assert found.elements == int((few[0].view(np.uint32) != many[0].view(np.uint32)).sum())
    assert (found.order, found.reference_order) == ("blocked(fp32, 16, fp32)", "fp32")
    # the named order is that of the planted kernel: the same sum for this K
    assert (fs.matmul(x, w, accumulate=found.order) == few).all()


def test_planted_tile_is_found_by_number_and_by_position():
    """The rows of the last tile change their order with the number of rows, and with their place."""
    x, w = matrices(10, 48, 4)
    report = check_shape_invariant(other_tile_at_the_end, x, w, identify=False)
    by_kind = {each.kind: each for each in report.differences}
    assert set(by_kind) == {"rows", "row position"}
    assert by_kind["rows"].call == "a call with 1 row"
    rotated = check_shape_invariant(other_tile_at_the_end, x[:8], w, identify=False)
    assert [each.kind for each in rotated.differences] == ["rows"]  # two full tiles: no place differs
    later = check_shape_invariant(other_tile_at_the_end, x, w, sizes=[12], identify=False).differences[0]
    assert (later.call, later.row, later.rows) == ("a call with 12 rows", (8,), 2)


def test_first_row_is_the_first_that_differs():
    x, w = matrices(6, 40, 3)

    def one_row(x, w):
        y = fs.matmul(x, w, accumulate="fp32")
        if len(x) == 5:
            y[3] = fs.matmul(x[3:4], w, accumulate="pairwise(fp32)")[0]
        return y

    (found,) = check_shape_invariant(one_row, x, w, sizes=[2, 5], identify=False).differences
    assert (found.row, found.rows, found.call) == ((3,), 1, "a call with 5 rows")


@pytest.mark.full
def test_batch_of_matrices():
    """Three axes: the batch is the first one. A batch of one is computed in another order."""
    x, w = matrices(3, 32, 4, 4)
    pairs = {True: "pairwise(fp32)", False: "fp32"}

    def f(x, w):
        return np.stack([fs.matmul(each, w, accumulate=pairs[len(x) == 1]) for each in x])

    report = check_shape_invariant(f, x, w)
    (found,) = report.differences
    assert report.kinds == ("rows", "row position", "batch", "batch position")
    assert (found.kind, found.call, found.row) == ("batch", "a call with 1 batch entry", (0, 0))
    assert (found.order, found.reference_order) == ("pairwise(fp32)", "fp32")
    assert check_shape_invariant(stacked(lambda a, b: fs.matmul(a, b, accumulate="fp32")), x, w).passed


def test_operands_with_a_batch_are_cut_with_it():
    x, _ = matrices(3, 16, 1, 4)
    w = np.random.default_rng(1).normal(size=(4, 16, 5)).astype(np.float32)
    seen = set()

    def f(x, w):
        seen.add((x.shape[0], w.shape[0]))
        return fs.matmul(x, w, accumulate="fp32")

    assert check_shape_invariant(f, x, w).passed
    assert seen == {(n, n) for n in (1, 2, 3, 4, 8)}


def test_sequence_of_a_causal_function():
    """Causal attention in one order does not depend on later tokens; one whose blocks depend on the length does."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(12, 8)).astype(np.float32) for _ in range(3))

    def attention(q, k, v, order):
        scores = fs.matmul(q, k.T, accumulate="fp32").astype(np.float64)
        scores[np.triu_indices(len(q), 1)] = -np.inf
        p = np.exp(scores - scores.max(axis=1, keepdims=True)).astype(np.float32)
        return fs.matmul(p, v, accumulate=order(len(q)))

    assert check_shape_invariant(lambda *x: attention(*x, lambda n: "fp32"), q, k, v, sequence=0).passed
    report = check_shape_invariant(
        lambda *x: attention(*x, lambda n: "fp32" if n > 8 else "pairwise(fp32)"), q, k, v, sequence=0
    )
    (found,) = report.differences
    assert report.kinds == ("sequence",)
    assert found.call == "a call with a sequence of 4"  # sums of two terms, and of three and a zero, have one order
    assert found.reference == "the call with a sequence of 12" and found.order is None


def test_formats_and_narrow_results():
    x, w = (fs.array(each, "bf16") for each in matrices(4, 512, 32))
    assert check_shape_invariant(lambda a, b: fs.matmul(a, b, accumulate="hopper", format="bf16"), x, w).passed
    (found,) = check_shape_invariant(
        lambda a, b: fs.matmul(a, b, accumulate="hopper" if len(a) > 1 else "fp16", format="bf16"), x, w, identify=False
    ).differences
    assert found.kind == "rows"
    assert check_shape_invariant(lambda x: fs.sum(x, axis=1, accumulate="fp32"), x).passed


@pytest.mark.parametrize(("call", "kind", "message"), [
    (lambda x, w: check_shape_invariant("fp32", x, w), TypeError, r"f must be a function of the operands, not 'fp32'"),
    (lambda x, w: check_shape_invariant(np.dot), TypeError, r"f needs at least one operand"),
    (lambda x, w: check_shape_invariant(np.dot, x, w, rows=2), ValueError, r"rows must be -2 to 1, not 2"),
    (lambda x, w: check_shape_invariant(np.dot, x, w, batch=0), ValueError, r"batch=0 is also the axis of the rows"),
    (lambda x, w: check_shape_invariant(np.dot, x, w, sequence=0), ValueError, r"operand 1 has the shape \(8, 3\)"),
    (lambda x, w: check_shape_invariant(np.dot, x, w, sizes=[0]), ValueError, r"a size must be at least 1, not 0"),
    (lambda x, w: check_shape_invariant(lambda x, w: x.sum(), x, w), ValueError, r"must have 4 entries, as x has"),
    (lambda x, w: check_shape_invariant(lambda x, w: (x > 0), x, w), TypeError, r"the result of f"),
    (lambda x, w: check_shape_invariant(np.dot, x[:0], w), ValueError, r"it holds no rows"),
    (lambda x, w: check_shape_invariant(np.dot, x, w, identify=1), TypeError, r"identify must be True or False"),
])  # fmt: skip
def test_errors(call, kind, message):
    with pytest.raises(kind, match=message):
        call(*matrices(4, 8, 3))


def test_a_function_that_is_not_deterministic_is_refused():
    calls = []

    def f(x):
        calls.append(x)
        return x + np.float32(len(calls))

    with pytest.raises(ValueError, match="other bits for the same operands: it is not deterministic"):
        check_shape_invariant(f, matrices(4, 8, 3)[0])


# -- installed libraries -----------------------------------------------------------------------------------------------


needs_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="measured on x86-64 processors")


@pytest.mark.real_kernels
@pytest.mark.full
@needs_x86
def test_numpy_product_depends_on_the_rows_and_einsum_does_not():
    """NumPy 2.4 with OpenBLAS has another routine for one row. einsum adds the terms of each element by itself."""
    x, w = matrices(16, 96, 32)
    report = check_shape_invariant(lambda a, b: a @ b, x, w, identify=False)
    assert "rows" in {each.kind for each in report.differences}, report
    assert_shape_invariant(lambda a, b: np.einsum("mk,kn->mn", a, b), x, w)


@pytest.mark.torch
@pytest.mark.full
@needs_x86
def test_torch_product_depends_on_the_rows():
    """PyTorch 2.13 on a CPU (MKL): one row, and many. The product of each row by itself does not."""
    torch = pytest.importorskip("torch", reason="needs torch: the extra `torch`")
    x, w = map(torch.from_numpy, matrices(16, 96, 32))
    (found, *_) = check_shape_invariant(torch.matmul, x, w, identify=False).differences
    assert found.kind == "rows"
    assert_shape_invariant(lambda a, b: torch.cat([row[None] @ b for row in a]), x, w)


# -- two computations of a model ---------------------------------------------------------------------------------------


def log_softmax(row):
    """In 60 decimal digits."""
    with localcontext() as context:
        context.prec = 60
        x = [Decimal(float(each)) for each in row]
        total = sum((each - max(x)).exp() for each in x)
        return [each - max(x) - total.ln() for each in x]


def test_gaps_are_those_of_the_logits():
    hidden, head = matrices(20, 64, 30)
    tokens = np.arange(20) % 30
    found = mismatch_of("fp16", "fp32", hidden, head, tokens=tokens, clip=1e-3)
    sides = [fs.matmul(hidden, head, accumulate=each) for each in ("fp16", "fp32")]
    expected = [[log_softmax(row)[token] for row, token in zip(side, tokens, strict=True)] for side in sides]
    gaps = np.array([float(b - a) for a, b in zip(*expected, strict=True)])
    assert np.abs(found.gaps - gaps).max() < 1e-14
    assert np.abs(found.ratios - np.exp(gaps)).max() < 1e-13
    assert found.sequence_ratio == pytest.approx(math.exp(gaps.sum()), rel=1e-12)
    assert found.clipped == np.mean(np.abs(found.ratios - 1) > 1e-3) > 0
    assert found.kl == pytest.approx(np.mean(np.exp(gaps) - 1 - gaps), rel=1e-6)
    assert found.first == 0 and found.other_choices == sum(
        a.argmax() != b.argmax() for a, b in zip(*sides, strict=True)
    )
    assert "log-probabilities differ, the first at position 0" in str(found)


def test_equal_descriptions_have_no_gap():
    hidden, head = matrices(10, 64, 30)
    found = mismatch_of("splitk(4, fp32, fp32)", "blocked(fp32, 16, fp32)", hidden, head)
    assert found.first is None and (found.ratios == 1).all() and found.sequence_ratio == 1 and found.kl == 0
    assert str(found) == "the log-probabilities of 10 tokens are equal"


def test_callables_and_temperature():
    """A library's product on one side; temperature 0 chooses the rollout's largest logit."""
    hidden, head = matrices(30, 64, 200)
    found = mismatch_of(lambda a, b: np.einsum("tk,kv->tv", a, b), "fp32", hidden, head, temperature=0)
    logits = np.einsum("tk,kv->tv", hidden, head)
    assert (found.tokens == logits.argmax(axis=1)).all()
    warm, cold = (mismatch_of("fp16", "fp32", hidden, head, temperature=t, tokens=found.tokens) for t in (2.0, 0.5))
    assert np.abs(warm.gaps).max() < np.abs(cold.gaps).max()
    drawn = mismatch_of("fp32", "fp32", hidden, head, seed=1).tokens
    assert (drawn == mismatch_of("fp32", "fp32", hidden, head, seed=1).tokens).all()
    assert (drawn != mismatch_of("fp32", "fp32", hidden, head, seed=2).tokens).any()


def test_drawn_tokens_have_the_probabilities():
    """A hundred thousand draws of four tokens, within six standard deviations."""
    logits = np.log(np.array([0.5, 0.25, 0.15, 0.1], np.float32))
    n = 100_000
    found = mismatch_of(lambda a, b: a, lambda a, b: a, np.tile(logits, (n, 1)), np.eye(4, dtype=np.float32))
    counts, p = np.bincount(found.tokens, minlength=4), np.exp(logits.astype(float))
    assert (np.abs(counts - n * p) < 6 * np.sqrt(n * p * (1 - p))).all()


@pytest.mark.parametrize(("change", "kind", "message"), [
    ({"hidden": np.ones(4, np.float32)}, ValueError, r"hidden must be a matrix .* not of shape \(4,\)"),
    ({"head": np.ones((3, 5), np.float32)}, ValueError, r"head must have 8 rows"),
    ({"tokens": [1, 2]}, ValueError, r"tokens has the shape \(2,\); hidden has 4 positions"),
    ({"tokens": [0, 1, 2, 3]}, ValueError, r"tokens must be 0 to 2, not 0 to 3"),
    ({"tokens": [0.5] * 4}, TypeError, r"tokens must be integers, not float64"),
    ({"temperature": -1.0}, ValueError, r"temperature must be a finite number of at least 0"),
    ({"clip": float("nan")}, ValueError, r"clip must be a finite number"),
    ({"rollout": "fp61"}, ValueError, r"rollout"),
    ({"training": lambda a, b: a}, ValueError, r"training returned logits of shape \(4, 8\), not \(4, 3\)"),
    ({"rollout": lambda a, b: a @ b * np.inf}, ValueError, r"rollout returned logits that are NaN or infinite"),
])  # fmt: skip
def test_errors_of_mismatch(change, kind, message):
    hidden, head = matrices(4, 8, 3)
    arguments = {"rollout": "fp32", "training": "fp32", "hidden": hidden, "head": head, **change}
    with pytest.raises(kind, match=message):
        mismatch_of(**arguments)


def test_all_sizes_with_other_bits_are_listed():
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=shape).astype(np.float32) for shape in ((6, 64), (64, 8)))

    def product(x, w):
        return fs.matmul(x, w, accumulate="splitk(4, fp32, fp32)" if len(x) in (1, 4, 5) else "fp32")

    found = fs.testing.check_shape_invariant(product, x, w, sizes=range(1, 10), identify=False)
    assert [(each.kind, each.sizes) for each in found.differences] == [("rows", (1, 4, 5))]
    assert str(found).endswith("\n  all numbers with other bits: 1, 4, 5")
