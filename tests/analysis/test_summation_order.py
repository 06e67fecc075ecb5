"""What is read of a sum from outside: its order, and how much of a small term a large one leaves."""

from __future__ import annotations

import itertools
import math

import ml_dtypes
import numpy as np
import pytest

import floatsim as fs
from floatsim.testing.vectors.dot_unit import units

pytestmark = pytest.mark.full


def survivors(tree, k):
    """By definition: for each pair, the leaves that are not under the node where the two meet."""
    found = np.full((k, k), -1)

    def leaves(node):
        return [node] if isinstance(node, int) else [leaf for part in node for leaf in leaves(part)]

    def walk(node):
        if isinstance(node, int):
            return
        for one, other in itertools.combinations([leaves(part) for part in node], 2):
            for i, j in itertools.product(one, other):
                found[i, j] = found[j, i] = k - len(leaves(node))
        for part in node:
            walk(part)

    walk(tree)
    return found


def chain(parts):
    tree = parts[0]
    for part in parts[1:]:
        tree = (tree, part)
    return tree


def pairs(parts):
    while len(parts) > 1:
        parts = [tuple(parts[i : i + 2]) if i + 1 < len(parts) else parts[i] for i in range(0, len(parts), 2)]
    return parts[0]


def halves(parts):
    while len(parts) > 1:
        half = -(-len(parts) // 2)
        parts = [(parts[i], parts[i + half]) if i + half < len(parts) else parts[i] for i in range(half)]
    return parts[0]


K = 19
TREES = {
    "fp32": chain(range(K)),
    "sequential(fp32, fused)": chain(range(K)),
    "pairwise(fp32)": pairs(list(range(K))),
    "pairwise(fp32, halving)": halves(list(range(K))),
    "strided(fp32, 4)": pairs([chain(range(lane, K, 4)) for lane in range(4)]),
    "blocked(fp32, 8, fp32)": chain([chain(range(i, min(i + 8, K))) for i in range(0, K, 8)]),
    "blocked(pairwise(fp32), 8, pairwise(fp32))": pairs([pairs(list(range(i, min(i + 8, K)))) for i in range(0, K, 8)]),
    "splitk(3, fp32, fp32)": chain([chain(range(i, min(i + 7, K))) for i in range(0, K, 7)]),
}


@pytest.mark.parametrize("accumulation", TREES)
@pytest.mark.parametrize("fmt", ["bf16", "fp16", "fp32"])
def test_the_order_is_that_of_the_definition(accumulation, fmt):
    assert np.array_equal(fs.reveal_order(accumulation, K, format=fmt), survivors(TREES[accumulation], K))


@pytest.mark.parametrize(("unit", "fmt", "block"), [
    ("volta", "fp16", 4), ("ampere", "bf16", 8), ("hopper", "bf16", 16), ("hopper", "e4m3", 32),
    ("ada", "e4m3", 16), ("blackwell", "e4m3", 32),
])  # fmt: skip
def test_a_matrix_unit_adds_blocks_at_once(unit, fmt, block):
    k = 20
    blocks = [tuple(range(i, min(i + block, k))) for i in range(0, k, block)]
    tree = blocks[0]
    for more in blocks[1:]:
        tree = (tree, *more)
    assert np.array_equal(fs.reveal_order(unit, k, format=fmt), survivors(tree, k))


def test_fp8_in_mma_sync_on_hopper_is_two_halves():
    """See docs/tensor-cores.md: k % 4 in {0, 1} first, the others onto that."""
    first, second = ([k for k in range(32) if k % 4 // 2 == half] for half in (0, 1))
    found = fs.reveal_order("tensorcore(hopper, mma.m16n8k32)", 32, format="e4m3")
    assert np.array_equal(found, survivors((tuple(first), *second), 32))


def test_an_exact_sum_loses_nothing():
    found = fs.reveal_order("exact(fp32)", 9)
    assert (found[~np.eye(9, dtype=bool)] == 7).all()
    assert (np.diag(found) == -1).all()


@pytest.mark.parametrize("accumulation", ["fp16", "blocked(fp16, 4, fp32)", "pairwise(fp16)"])
def test_narrow_accumulators_are_not_overflown(accumulation):
    assert np.array_equal(fs.reveal_order(accumulation, 12), fs.reveal_order(accumulation.replace("fp16", "fp32"), 12))


def test_a_kernel_of_ones_own():
    seen = set()

    def kernel(a, b):
        seen.add((a.dtype, b.dtype, a.shape))
        products = a.astype(np.float32) * b.astype(np.float32)
        return np.float32(products[::2].cumsum(dtype=np.float32)[-1] + products[1::2].cumsum(dtype=np.float32)[-1])

    assert np.array_equal(fs.reveal_order(kernel, 10), fs.reveal_order("strided(fp32, 2)", 10))
    assert seen == {(np.dtype(ml_dtypes.bfloat16), np.dtype(ml_dtypes.bfloat16), (10,))}


def test_the_order_survives_another_accumulator():
    def kernel(a, b):
        with np.errstate(all="ignore"):
            return np.add.accumulate((a * b).astype(np.float16))[-1]

    with pytest.raises(ValueError, match="accumulator="):
        fs.reveal_order(kernel, 6)
    assert np.array_equal(fs.reveal_order(kernel, 6, accumulator="fp16"), fs.reveal_order("fp32", 6))


def in_fp32(a, b):
    return np.add.accumulate(a.astype(np.float32) * b.astype(np.float32))[-1]


@pytest.mark.parametrize("k", [200, 257, 258, 300])
def test_a_result_of_few_bits_is_counted_in_chunks(k):
    """BF16 counts to 256."""

    def to_bf16(a, b):
        return fs.quantize(in_fp32(a, b), "bf16")

    assert np.array_equal(fs.reveal_order(to_bf16, k), fs.reveal_order("fp32", k))


def test_a_result_that_does_not_count_is_an_error():
    def to_e4m3(a, b):
        return fs.quantize(in_fp32(a, b) / 2.0**20, fs.FloatFormat.ieee(8, 2)) * 2.0**20

    with pytest.raises(ValueError, match=r"first 9 k, .* gave 8.0 \* 2\*\*.*; the sum is 9 .* count to 16"):
        fs.reveal_order(to_e4m3, 40)


@pytest.mark.parametrize(("unit", "block"), [("hopper", 32), ("blackwell", 32), ("ada", 16)])
def test_fp8_units_beyond_64_terms(unit, block):
    """Their range does not absorb all units at once: they are counted in chunks."""
    k = 150
    first = np.arange(k) // block
    found = fs.reveal_order(unit, k, format="e4m3")
    i, j = np.triu_indices(k, 1)
    assert np.array_equal(found[i, j], k - np.minimum((np.maximum(first[i], first[j]) + 1) * block, k))


def test_a_kernel_that_is_not_deterministic_is_an_error():
    rng = np.random.default_rng(0)

    def atomic(a, b):
        order = rng.permutation(len(a))
        return in_fp32(a[order], b[order])

    with pytest.raises(ValueError, match="not deterministic: for the same operands"):
        fs.reveal_order(atomic, 12)


def test_an_order_that_depends_on_the_values_warns():
    def skips_zeros(a, b):
        """In pairs; terms that are 0 are left out before, which moves the others."""
        products = a.astype(np.float32) * b.astype(np.float32)
        terms = list(products[products != 0])
        while len(terms) > 1:
            terms = [sum(terms[i : i + 2], np.float32(0)) for i in range(0, len(terms), 2)]
        return terms[0]

    with pytest.warns(fs.FloatsimWarning, match="depends on the values"):
        found = fs.reveal_order(skips_zeros, 12)
    assert np.array_equal(found, fs.reveal_order("pairwise(fp32)", 12))


@pytest.mark.parametrize(
    "accumulation", ["pairwise(fp32)", "kahan(fp32)", "cdna1", "strided(fp32, 3)", "tensorcore(ada)"]
)
def test_a_kernel_has_the_order_of_its_description(accumulation):
    """Without a warning, whether its counts belong to a tree or not."""
    found = fs.reveal_order(lambda a, b: fs.dot(a, b, accumulate=accumulation), 40)
    assert np.array_equal(found, fs.reveal_order(accumulation, 40))


NARROW = ["fp16", "bf16", "e4m3", "e5m2", "e2m1", "exact(bf16)", "blocked(fp16, 4, bf16)"]
TAKEN = sorted({(u.arch, u.a.name) for u in units() if u.a == u.b and u.a in u.row.inputs and not u.scales})


@pytest.mark.parametrize(("accumulation", "fmt"), [*((accumulation, "bf16") for accumulation in NARROW), *TAKEN])
def test_every_kernel_that_adds_passes_the_first_question(accumulation, fmt):
    """Ones are in every format, and the sum of two in every accumulator."""
    seen = []

    def kernel(a, b):
        seen.append(fs.dot(fs.array(a, fmt), fs.array(b, fmt), accumulate=accumulation).item())
        return seen[-1]

    fs.reveal_width(kernel, [1], format=fmt, k=20)
    assert seen[:4] == [1, 1, 1, 2]


def test_where_nothing_is_lost_a_wider_accumulator_is_named():
    def kernel(a, b):  # FP32 operands, added in FP64
        return np.float32(np.add.accumulate(a.astype(float) * b.astype(float))[-1])

    with pytest.warns(UserWarning, match="wider than FP32; accumulator='fp64'"):
        assert fs.reveal_order(kernel, 6)[0].tolist() == [-1, 4, 4, 4, 4, 4]
    assert np.array_equal(fs.reveal_order(kernel, 6, accumulator="fp64"), fs.reveal_order("fp32", 6))


@pytest.mark.parametrize(("call", "error", "words"), [
    (lambda: fs.reveal_order("fp32", 2), ValueError, "k must be 3 to 512, not 2"),
    (lambda: fs.reveal_order("fp32", 8.0), TypeError, "k must be an integer"),
    (lambda: fs.reveal_order("fp33", 8), ValueError, "fp33"),
    (lambda: fs.reveal_order(7, 8), TypeError, "7"),
    (lambda: fs.reveal_order("fp32", 8, format="e2m1"), ValueError, "format=E2M1.*format='bf16'"),
    (lambda: fs.reveal_order(lambda a, b: 0.3, 4), ValueError, "the kernel gave 0.3"),
    (lambda: fs.reveal_order(lambda a, b: math.nan, 4), ValueError, "the kernel gave nan"),
    (lambda: fs.reveal_order(lambda a, b: 0.0, 16), ValueError, "k = 0, and 0 elsewhere, .* gave 0.0; the sum is 1"),
    (lambda: fs.reveal_order(lambda a, b: 1.0, 4), ValueError, "k = 0 and 3, and 0 elsewhere, .* 1.0; the sum is 2"),
    (lambda: fs.reveal_order(lambda a, b: in_fp32(a[:3], b[:3]), 4), ValueError, "k = 3, and 0 elsewhere, .* gave 0.0"),
    (lambda: fs.reveal_width(lambda a, b: 0.0, [8]), ValueError, "k = 0, and 0 elsewhere, the kernel gave 0.0"),
    (lambda: fs.reveal_width(lambda a, b: in_fp32(a[1:], b[1:]), [8], places=(2, 0, 1)), ValueError, "k = 0, and 0"),
    (lambda: fs.reveal_width("fp32", [-1]), ValueError, "gaps must be 0"),
    (lambda: fs.reveal_width("fp32", [1], places=(0, 1, 1)), ValueError, "three different k below 2"),
    (lambda: fs.reveal_width("fp32", [1], places=(0, 1, 9), k=4), ValueError, "three different k below 4"),
    (lambda: fs.reveal_width(7, [1]), TypeError, "7"),
])  # fmt: skip
def test_bad_input_is_named(call, error, words):
    with pytest.raises(error, match=words):
        call()


# -- widths --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("unit", "fmt", "bits"), [
    ("volta", "fp16", 23), ("ampere", "fp16", 24), ("hopper", "fp16", 25), ("ada", "e4m3", 13), ("hopper", "e4m3", 13),
    ("blackwell", "e4m3", 25), ("cdna3", "bf16", 24),
])  # fmt: skip
def test_units_cut_at_their_number_of_bits(unit, fmt, bits):
    """Of 1.111 (binary), `bits` places below the large term: 1 is left; one place higher, 1.1; and so on."""
    gaps = range(bits - 4, bits + 3)
    left = fs.reveal_width(unit, gaps, format=fmt) * 15 / 8
    assert left.tolist() == [15 / 8, 15 / 8, 14 / 8, 12 / 8, 1, 0, 0]


def test_an_accumulator_rounds_to_nearest():
    shares = fs.reveal_width("fp32", range(18, 27))
    assert np.array_equal(shares * 15 / 8, [15 / 8] * 3 + [2] * 4 + [0] * 2)


def test_what_cannot_be_asked_is_nan():
    shares = fs.reveal_width("fp32", [20, 60], format="e4m3")
    assert shares[0] == 1 and np.isnan(shares[1])
    assert np.isnan(fs.reveal_width("fp16", [3])).all()  # 2**28 overflows


def test_places_and_length_reach_the_kernel():
    seen = []

    def kernel(a, b):
        seen.append((a.astype(float) * b.astype(float)).tolist())
        return in_fp32(a, b)

    assert fs.reveal_width(kernel, [4], places=(5, 0, 2), k=7).tolist() == [1]
    *ones, products = seen
    assert [[k for k in range(7) if row[k]] for row in ones] == [[5], [0], [2], [2, 5]]
    assert len(products) == 7
    assert products[5] == -products[2] == products[0] * 16 / 15 * 8
    assert [products[k] for k in (1, 3, 4, 6)] == [0] * 4


def test_within_an_exact_block_nothing_is_lost():
    """CDNA 1 adds two products and the accumulator exactly: what meets there takes nothing with it."""
    found = fs.reveal_order("cdna1", 8)
    assert [found[i, i + 1] for i in (0, 2, 4, 6)] == [6, 6, 6, 6]
    assert [found[0, j] for j in (2, 4, 6)] == [5, 3, 1]
