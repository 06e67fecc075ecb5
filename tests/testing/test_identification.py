"""`fs.identify`: trees, accumulators, roundings and units of kernels, and no wrong name."""

from __future__ import annotations

import itertools
import os
import warnings

import numpy as np
import oracles
import pytest

import floatsim as fs
from floatsim.accumulation import fitted
from floatsim.testing.compare.descriptions import brief, vocabulary
from floatsim.testing.identify import tree_search
from floatsim.testing.identify.order_trees import meeting_sizes, tree_of
from floatsim.testing.identify.tree_search import (
    find_meetings,
    normal_probe_for,
    probe_for,
    reads_as_zero,
    widest_probe_for,
)

pytestmark = pytest.mark.full

TREES = (
    "fp32", "pairwise(fp32)", "pairwise(fp32, halving)", "pairwise(fp32, numpy)", "strided(fp32, 4)",
    "blocked(pairwise(fp32), 8, fp32)", "splitk(3, fp32, fp32)", "strided(blocked(fp32, 3, fp32), 5, fp32)",
)  # fmt: skip


@pytest.mark.parametrize("k", [3, 19, 64])
@pytest.mark.parametrize("description", TREES)
def test_trees_have_the_fingerprint_of_reveal_order(description, k):
    i, j = np.triu_indices(k, 1)
    sizes = meeting_sizes(tree_of(fs.as_accumulation(description), k), i, j)
    assert np.array_equal(k - sizes, fs.reveal_order(description, k)[i, j])


def reference_kernel(description, format, seen=None):
    def kernel(a, b):
        if seen is not None:
            seen.append(a.shape)
        return fs.matmul(a, b, accumulate=description, format=format)

    return kernel


def found(description, fmt="bf16", result=None, shape=(16, 40, 16), **options):
    a, b = fs.testing.hard_inputs(shape, fmt)
    return fs.identify(reference_kernel(description, result), a, b, **options)


NAMED = [
    ("fp32", "bf16", "bf16", (16, 40, 16)), ("pairwise(fp32)", "fp16", "fp32", (20, 50, 12)),
    ("strided(fp32, 6)", "bf16", "bf16", (24, 40, 24)), ("blocked(fp32, 10, fp32)", "fp32", "fp32", (8, 40, 8)),
    ("splitk(3, fp32, fp32)", "bf16", "fp32", (16, 47, 16)), ("fp16", "fp16", "fp16", (16, 40, 16)),
    ("sequential(fp32, fused)", "fp32", "fp32", (16, 40, 16)), ("fp64", "fp32", "fp32", (16, 40, 16)),
    ("sequential(fp32, rounding=toward_zero)", "bf16", "fp32", (16, 40, 16)),
    ("blocked(pairwise(fp32), 7, pairwise(fp32))", "bf16", "bf16", (16, 45, 16)),
    ("fp32", "bf16", "bf16", (64, 700, 64)), ("blocked(fp32, [20, 8, 12], fp32)", "bf16", "fp32", (16, 40, 16)),
    ("blocked(sequential(fp32, fused), 20, fp32, halve)", "fp32", "fp32", (16, 50, 16)),
    *((f"sequential(fp32, {options})", "bf16", "fp32", (16, 20, 16)) for options in ("ftz, daz", "ftz", "daz")),
    *((f"permuted({order}, fp32)", fmt, "fp32", (16, 20, 16)) for order in ("reversed", "swapped")
      for fmt in ("bf16", "fp32")),
    ("avx512-bf16", "bf16", "fp32", (16, 20, 16)), ("amx-bf16", "bf16", "fp32", (16, 20, 16)),
]  # fmt: skip


@pytest.mark.parametrize(("description", "fmt", "result", "shape"), NAMED)
def test_a_kernel_is_named(description, fmt, result, shape):
    assert same(found(description, fmt, result, shape).name, description, fmt, shape[1])


def same(name, description, fmt, k, result=None):
    """Return whether two descriptions have the same parts, or agree on 110,592 hard dot products in this format.

    That format decides about the instruction of some units, too.
    """
    if name is None or fs.as_accumulation(name) == fs.as_accumulation(description):
        return name is not None
    operand = fs.as_format(fmt)
    fixed = [fitted(fs.as_accumulation(text), operand, operand) for text in (name, description)]
    for kind in ("cancelling", "subnormal", "normal", "overflow"):
        for seed in range(3):
            a, b = fs.testing.hard_inputs((96, k, 96), fmt, kind, seed=100 + seed)
            wide = [fs.matmul(a, b, accumulate=each, format="fp64") for each in fixed]
            results = [fs.encode(x, result or "fp64") for x in wide]  # with the second rounding, as in the kernel
            if not np.array_equal(*results):
                return False
    return True


def numpy_kernel(after=lambda sums: sums, term=lambda x, y: x * y, start=np.zeros):
    """A chain of float32 sums, with something wrong."""

    def kernel(a, b):
        a, b = (np.asarray(x).astype(np.float32) for x in (a, b))
        sums = start((len(a), b.shape[1]), np.float32)
        for k in range(a.shape[1]):
            sums = sums + term(a[:, k : k + 1], b[k])
        return after(sums)

    return kernel


LARGEST = np.finfo(np.float32).max


@pytest.mark.parametrize(("kernel", "notes"), [
    (numpy_kernel(), []),
    (numpy_kernel(lambda x: np.clip(x, -LARGEST, LARGEST)), ["sums that overflow", "infinities and NaNs"]),
    (numpy_kernel(lambda x: np.where(np.isnan(x), np.float32(0), x)), ["infinities and NaNs"]),
    (numpy_kernel(term=lambda x, y: np.where(x == 0, np.float32(0), x * y)), ["infinities and NaNs"]),
    (numpy_kernel(start=lambda *shape: -np.zeros(*shape)), ["products that are all -0"]),
])  # fmt: skip
def test_notes_say_what_differs_at_the_limits(kernel, notes):
    a, b = fs.testing.hard_inputs((16, 20, 16), "bf16")
    identified = fs.identify(kernel, a, b)
    assert identified.name == "fp32"
    assert [note.partition(":")[0] for note in identified.notes] == notes


def test_an_error_at_the_limits_is_a_note():
    def kernel(a, b):
        if not np.isfinite(a.astype(np.float32)).all():
            raise RuntimeError("a is not finite")
        return numpy_kernel()(a, b)

    a, b = fs.testing.hard_inputs((16, 20, 16), "bf16")
    identified = fs.identify(kernel, a, b)
    assert identified.notes == ("infinities and NaNs: the kernel raised RuntimeError: a is not finite",)


@pytest.mark.parametrize(
    ("unit", "fmt"), [("hopper", "e4m3"), ("blocked(hopper, 32, fp32)", "e4m3"), ("cdna3", "bf16")]
)
def test_units_are_among_the_names(unit, fmt):
    names = found(unit, fmt, "fp32", (16, 96, 16)).names
    assert brief(unit) in names
    assert all(same(name, unit, fmt, 96) for name in names)


def test_a_result_alone():
    a, b = fs.testing.hard_inputs((24, 64, 24), "bf16")
    identified = fs.identify(fs.matmul(a, b, accumulate="pairwise(fp32)"), a, b)
    assert identified.name == "pairwise(fp32)"
    weak = fs.testing.hard_inputs((24, 64, 24), "bf16", "integers")
    ambiguous = fs.identify(fs.matmul(*weak, accumulate="pairwise(fp32)"), *weak)
    assert {"fp32", "pairwise(fp32)"} <= set(ambiguous.names)
    results = {fs.matmul(*ambiguous.separating, accumulate=name).tobytes() for name in ambiguous.names}
    assert len(results) > 1
    assert "ambiguous" in str(ambiguous)


def test_no_name_is_better_than_a_wrong_one():
    a, b = fs.testing.hard_inputs((16, 64, 16), "bf16", "normal")
    wrong = fs.matmul(a, b, accumulate="fp32").copy()
    wrong[:, ::2] += 1
    identified = fs.identify(wrong, a, b)
    assert identified.names == () and identified.name is None
    name, share = identified.near[0]
    assert name == "fp32" and 0.3 < share < 0.7
    assert "near: fp32 (" in str(identified)


def in_two_regions(first, rest):
    """A kernel that sums the first sixteen columns in one way and the others in another way."""

    def kernel(a, b):
        left = fs.matmul(a, b[:, :16], accumulate=first)
        return np.concatenate([left, fs.matmul(a, b[:, 16:], accumulate=rest)], 1)

    return kernel


def test_the_order_depends_on_the_place():
    a, b = fs.testing.hard_inputs((16, 64, 24), "bf16")
    regions = fs.identify(in_two_regions("fp32", "pairwise(fp32)"), a, b).regions
    assert {region.text: region.names for region in regions} == {
        "columns 0 to 15": ("fp32",), "columns 16 to 23, the incomplete last tile of 16": ("pairwise(fp32)",),
    }  # fmt: skip


@pytest.mark.parametrize(("description", "fmt", "k"), [
    ("fp32", "bf16", 200), ("pairwise(fp32)", "bf16", 200), ("blocked(fp32, 10, fp32)", "fp16", 256),
    ("strided(fp32, 8, pairwise(fp32))", "bf16", 200), ("splitk(4, hopper, converted(bf16, fp32))", "bf16", 256),
    ("ampere", "bf16", 256), ("blocked(hopper, 32, fp32)", "e4m3", 64), (None, "bf16", 200),
])  # fmt: skip
def test_few_products_find_all_pairs(monkeypatch, description, fmt, k):
    """The pairs that follow from a few products are those of all products. Without a tree all products are taken."""
    calls = []

    def kernel(a, b):
        calls.append(a.shape)
        place = int(a[0].argmax() + 2 * b[:, 0].argmin()) // 16 % 3  # without a description the order depends on it
        order = description or ("fp32", "pairwise(fp32)", "strided(fp32, 8)")[place]
        return fs.matmul(fs.array(a, fmt), fs.array(b, fmt), accumulate=order, format="fp32").values

    operand = fs.as_format(fmt)
    probe = next(filter(None, (find(operand, operand, fs.FP32, fs.FP32, k) for find in (probe_for, widest_probe_for))))
    found = find_meetings(kernel, probe, (16, k, 16))
    few = len(calls)
    monkeypatch.setattr(tree_search, "_FEW_PRODUCTS", 1 << 20)
    every = find_meetings(kernel, probe, (16, k, 16))
    if description is None:
        assert found is every is None
        assert few > len(calls) - few
        return
    assert few < 0.7 * (len(calls) - few)
    assert all(np.array_equal(getattr(found, name), getattr(every, name)) for name in ("i", "j", "sizes"))


def test_a_tree_of_its_own():
    """An order without a name is the tree itself."""
    rng = np.random.default_rng(3)
    tree = list(range(24))
    while len(tree) > 1:  # two at random
        one, other = (tree.pop(int(rng.integers(len(tree)))) for _ in range(2))
        tree.append((one, other))
    description = fs.Tree("fp32", tree[0])
    a, b = fs.testing.hard_inputs((24, 24, 24), "bf16")
    found = fs.identify(lambda x, y: fs.matmul(x, y, accumulate=description), a, b)
    assert fs.as_accumulation(found.name) == description


def test_a_sum_that_is_added_to_zero():
    """As in OpenBLAS: a sum that underflows to -0 is +0 then. One block of all terms says so."""

    def kernel(a, b):
        return np.float32(0) + fs.matmul(a, b, accumulate="sequential(fp32, fused)")

    a, b = fs.testing.hard_inputs((16, 40, 16), "fp32")
    assert fs.identify(kernel, a, b).name == "blocked(sequential(fp32, fused), 40, fp32)"


_FIVE = "(0, 3, (2, 4), 1)"  # a tree of five lanes


@pytest.mark.parametrize("description", [
    f"strided(sequential(fp32, fused), 5, tree(fp32, {_FIVE}))", f"strided(fp32, 5, tree(fp32, {_FIVE}))",
    f"parts([strided(sequential(fp32, fused), 5, tree(fp32, {_FIVE})), sequential(fp64, product=fp32)], [20, 3], fp64)",
    "parts([strided(sequential(fp32, fused), 4), sequential(fp64, product=fp32)], [20, 2], fp64)",
])  # fmt: skip
def test_lanes_of_fused_steps_joined_by_a_tree(description):
    """The accumulators of a loop over vectors, and the last terms in FP64, as in OpenBLAS's `sdot`."""
    k = 23 if "[20, 3]" in description else 22
    assert fs.as_accumulation(found(description, "fp32", shape=(12, k, 12)).name) == fs.as_accumulation(description)


@pytest.mark.parametrize(("description", "fmt", "k"), [
    ("strided(sequential(fp32, daz), 4)", "fp16", 30), ("pairwise(fp32, daz)", "e5m2", 40),
    ("blocked(sequential(fp32, daz), 60, sequential(fp32, daz))", "fp16", 150), ("pairwise(fp16, daz)", "fp16", 24),
])  # fmt: skip
def test_kernels_that_read_subnormal_numbers_as_zero(description, fmt, k):
    """Factors of FP16 that find a tree in FP32 are subnormal: a second search has normal factors only."""
    assert same(found(description, fmt, shape=(12, k, 12)).name, description, fmt, k)


@pytest.mark.parametrize("k", [60, 300])
def test_pairs_on_diagonals_determine_the_tree(k):
    def kernel(a, b):
        left, right = fs.array(a, "fp16"), fs.array(b, "fp16")
        return np.asarray(fs.matmul(left, right, accumulate=description, daz=True).values)

    description = "blocked(strided(fp32, 4), 25, fp32)"
    shape = fs.FP16, fs.FP16, fs.FP32, fs.FP32, k
    assert reads_as_zero(kernel, probe_for(*shape), (8, k, 9))
    probe = normal_probe_for(*shape)
    assert probe.both and not reads_as_zero(kernel, probe, (8, k, 9))
    meetings = find_meetings(kernel, probe, (8, k, 9))
    tree = tree_of(fs.as_accumulation(description), k)
    assert np.array_equal(meeting_sizes(tree, meetings.i, meetings.j), meetings.sizes)


@pytest.mark.parametrize("formats", list(itertools.product(
    (fs.FP16, fs.BF16, fs.E5M2, fs.E4M3), (fs.FP32, fs.FP16, fs.BF16, fs.FP64), (fs.FP32, fs.FP16, fs.BF16)
)), ids=lambda formats: "-".join(fmt.name for fmt in formats))  # fmt: skip
def test_normal_probes_have_normal_factors_and_enough_range(formats):
    operand, accumulator, result = formats
    for k in (3, 64, 3000):
        probe = normal_probe_for(operand, operand, accumulator, result, k)
        if probe is None:
            continue
        unit, large = (probe.a[n] + probe.b[n] for n in (1, 0))
        assert large - unit >= accumulator.precision + 1 + (probe.chunk - 1).bit_length()
        assert large <= min(accumulator.emax, result.emax) - 2
        assert unit - probe.weak >= max(accumulator.emin, result.emin)
        assert all(operand.emin <= e <= operand.emax for e in (*probe.a, probe.a[1] - probe.weak, *probe.b))


def test_rows_and_columns_are_identified_as_kernels_of_their_own():
    """Names that are not in the vocabulary, and FTZ, which few inputs show."""
    kernel = in_two_regions("strided(sequential(fp32, fused), 5, fp32)", "sequential(fp32, ftz)")
    a, b = fs.testing.hard_inputs((16, 40, 24), "fp32")
    regions = fs.identify(kernel, a, b).regions
    assert sorted(region.names for region in regions) == [
        ("sequential(fp32, ftz=true)",), ("strided(sequential(fp32, fused), 5, fp32)",),
    ]  # fmt: skip


def test_several_names_of_a_part_are_listed():
    """The corner of a result is no set of rows and columns. Units with the same sums stay."""

    def kernel(a, b):
        result = fs.matmul(a, b, accumulate="fp32")
        result[:8, :8] = fs.matmul(a[:8], b[:, :8], accumulate="sequential(fp32, fused)")
        return result

    a, b = fs.testing.hard_inputs((16, 40, 16), "fp32")
    identified = fs.identify(kernel, a, b)
    names = {region.text: region.names for region in identified.regions}
    assert len(names) == 2 and ("fp32",) in names.values()
    (fused,) = (each for each in names.values() if each != ("fp32",))
    assert "sequential(fp32, fused)" in fused
    assert all(same(name, "sequential(fp32, fused)", "fp32", 40) for name in fused)


def stored_in_bf16(a, b, rounded_twice):
    """Partial sums of 64 terms, added to a sum in BF16. With `rounded_twice`, the partial sums are rounded, too."""
    bf16 = fs.BF16.dtype
    total = np.zeros((len(a), b.shape[1]), bf16)
    with np.errstate(all="ignore"):
        for start in range(0, a.shape[1], 64):
            part = np.zeros(total.shape, np.float32)
            for k in range(start, min(start + 64, a.shape[1])):
                part += a[:, k, None].astype(np.float32) * b[k].astype(np.float32)
            total = (total + part.astype(bf16)) if rounded_twice else (total.astype(np.float32) + part).astype(bf16)
    return total


def test_the_running_sum_is_stored():
    a, b = fs.testing.hard_inputs((96, 256, 64), "bf16", "normal")
    found = fs.identify(lambda x, y: stored_in_bf16(x, y, rounded_twice=False), a, b)
    assert found.name == "splitk(4, fp32, fp32, through=bf16)"


def test_a_name_is_confirmed_on_many_elements():
    """Exact sums in BF16 differ from twice rounded ones in one of 2,000 elements."""
    a, b = fs.testing.hard_inputs((96, 256, 64), "bf16", "normal")
    found = fs.identify(lambda x, y: stored_in_bf16(x, y, rounded_twice=True), a, b)
    name, share = found.near[0]
    assert found.names == () and name == "blocked(exact(bf16), 64, bf16)" and 0.99 < share < 1


def test_a_kernel_that_is_not_deterministic():
    rng = np.random.default_rng(0)

    def kernel(a, b):
        order = rng.permutation(a.shape[1])
        return fs.matmul(a[:, order], b[order], accumulate="fp32")

    with pytest.raises(ValueError, match="not deterministic"):
        fs.identify(kernel, *fs.testing.hard_inputs((16, 64, 16), "bf16"))


@pytest.mark.parametrize(("alpha", "beta", "words"), [
    (0.37, None, "about 0.37 times the product:"), (2.0, None, "about 2 times the product:"),
    (-1.0, None, "about -1 times the product:"), (0.5, 1.0, "about 0.5 times the product plus 1 times c:"),
    (1.0, 3.0, "about 1 times the product plus 3 times c:"),
])  # fmt: skip
def test_a_factor_of_the_product_is_a_note(alpha, beta, words):
    def kernel(a, b, c=None):
        sums = np.float32(alpha) * np.asarray(fs.matmul(a, b, accumulate="hopper", format="fp32"))
        more = 0 if c is None else np.float32(beta) * np.asarray(c, np.float32)
        return sums + more

    a, b = fs.testing.hard_inputs((32, 64, 32), "e4m3", "normal")
    c = None if beta is None else np.random.default_rng(0).standard_normal((32, 32)).astype(np.float32)
    found = fs.identify(kernel, a, b, c, other_k=False)
    assert found.names == () and len(found.notes) == 1 and words in str(found)
    assert "call the kernel with its scales, alpha and beta set to 1" in found.notes[0]
    alone = fs.identify(kernel(a, b, *([] if c is None else [c])), a, b, c)
    assert alone.names == () and words in str(alone)


def test_no_factor_is_claimed_of_other_results():
    a, b = fs.testing.hard_inputs((32, 64, 32), "bf16", "normal")
    noise = fs.array(np.random.default_rng(0).standard_normal((32, 32)), "fp32")
    cut = fs.matmul(a[:, :60], b[:60], accumulate="exact(fp32)")
    for result in (noise, cut, fs.array(np.zeros((32, 32)), "fp32")):
        assert "times the product" not in str(fs.identify(result, a, b))


def test_numpy_dot():
    """Dot products of the rows and columns: whatever is named has their bits on other inputs."""

    def kernel(a, b):
        return np.array([[np.dot(x, y) for y in np.ascontiguousarray(b.T)] for x in a], np.float32)

    for k in (70, 128):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            identified = fs.identify(kernel, *fs.testing.hard_inputs((12, k, 12), "fp32"))
        if identified.name is not None:
            x, y = fs.testing.hard_inputs((40, k, 40), "fp32", "normal", seed=9)
            assert np.array_equal(fs.matmul(x, y, accumulate=identified.name, format="fp32"), kernel(x, y))


def test_a_numpy_product():
    """OpenBLAS, MKL or another library: whatever is named has its bits on other inputs."""
    a, b = fs.testing.hard_inputs((64, 128, 64), "fp32")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        identified = fs.identify(np.matmul, a, b)
    if identified.name is not None:
        x, y = fs.testing.hard_inputs((64, 128, 64), "fp32", "normal", seed=9)
        assert np.array_equal(fs.matmul(x, y, accumulate=identified.name), x @ y)


@pytest.mark.parametrize(("k", "result"), [(600, "bf16"), (1500, "fp32")])
@pytest.mark.parametrize("description", ["strided(fp32, 8)", "blocked(fp32, 64, fp32)", "pairwise(fp32)"])
def test_long_sums_are_searched_in_batches(k, result, description):
    """Beyond 512 terms the search is adaptive. BF16 results count in chunks."""

    def kernel(a, b):
        left, right = fs.array(a, "bf16"), fs.array(b, "bf16")
        return np.asarray(fs.matmul(left, right, accumulate=description, format=result).values)

    probe = probe_for(fs.BF16, fs.BF16, fs.FP32, fs.as_format(result), k)
    assert (probe.chunk < k) == (result == "bf16")
    meetings = find_meetings(kernel, probe, (128, k, 128))
    tree = tree_of(fs.as_accumulation(description), k)
    assert np.array_equal(meeting_sizes(tree, meetings.i, meetings.j), meetings.sizes)
    assert len(meetings.i) < k * (k - 1) // 20


MANY = os.environ.get("FLOATSIM_EXHAUSTIVE") == "1"


def from_the_vocabulary(rng, fmt, k):
    known = vocabulary(fs.as_format(fmt), fs.as_format(fmt), k)
    return known[int(rng.integers(len(known)))]


def nested(rng, depth):
    """Return an order in orders. A tree whose products are rounded in some terms only has no name: no fused leaves,
    unless many cases are taken, of which five percent may be missed."""
    if depth == 0:
        leaves = ["fp32", "pairwise(fp32)", "pairwise(fp32, halving)", "pairwise(fp32, numpy)"]
        return str(rng.choice([*leaves, "sequential(fp32, fused)"] if MANY else leaves))
    inner, outer = nested(rng, depth - 1), str(rng.choice(["fp32", "pairwise(fp32)", "pairwise(fp32, halving)"]))
    n, order = rng.integers(2, 13), rng.choice(["reversed", "swapped"])
    return str(rng.choice([
        f"blocked({inner}, {n}, {outer})", f"splitk({n}, {inner}, {outer})", f"strided({inner}, {n}, {outer})",
        f"permuted({order}, {inner})",
    ]))  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("draw", [
    from_the_vocabulary, lambda rng, fmt, k: fs.as_accumulation(nested(rng, int(rng.integers(1, 4)))),
], ids=["vocabulary", "nested"])  # fmt: skip
def test_random_descriptions(draw):
    """No wrong unique name; the truth is in the list in at least 95 % of the cases. Each commit has its own seed.

    FLOATSIM_EXHAUSTIVE=1 takes 150 descriptions of each kind, which takes five minutes.
    """
    rng = np.random.default_rng(oracles.test_seed())
    wrong, missed, cases = [], [], 150 if MANY else 20
    for _ in range(cases):
        fmt = str(rng.choice(["bf16", "fp16", "fp32", "e4m3"]))
        k = int(rng.integers(20, 90))
        truth = draw(rng, fmt, k)
        result = str(rng.choice(["fp32", "bf16", "fp16"]))
        identified = found(truth, fmt, result, (24, k, 24))
        if identified.name is not None and not same(identified.name, truth, fmt, k, result):
            wrong.append((str(truth), fmt, result, k, identified.name))
        if not any(same(name, truth, fmt, k, result) for name in identified.names):
            missed.append((str(truth), fmt, result, k, identified.names))
    assert not wrong
    assert len(missed) <= 0.05 * cases, missed


def test_products_rounded_to_fp32_and_added_in_fp64():
    """The sums of OpenBLAS's `sdot` with less than 32 terms."""
    description = "sequential(fp64, product=fp32)"
    assert found(description, "fp32", "fp32", (16, 31, 16)).names == (description,)


def test_fused_and_rounded_products_in_one_tree_are_reported():
    """Four lanes of rounded products, and then fused multiply-adds, as in the vector loops of OpenBLAS's `sdot`."""

    def kernel(a, b):
        first = fs.matmul(a[:, :4], b[:4], accumulate="pairwise(fp32)")
        return fs.matmul(a[:, 4:], b[4:], first, accumulate="sequential(fp32, fused)")

    a, b = fs.testing.hard_inputs((8, 11, 8), "fp32")
    identified = fs.identify(kernel, a, b)
    assert not identified.names
    assert "7 of the 11 products are fused, as at k = [4, 5, 6, 7], and the others are rounded" in str(identified)


@pytest.mark.parametrize("description", ["fp16", "sequential(fp16, fused)"])
def test_single_products_that_overflow_tell_fused_from_rounded(description):
    """Products of E4M3 are exact in FP16, but 448 * 448 is beyond its largest number."""
    identified = found(description, "e4m3", "fp16", (20, 40, 20))
    assert identified.names == (description,)
    assert identified.notes == ()


def test_an_error_of_the_kernel_does_not_escape_while_names_are_separated():
    """A kernel that refuses infinities, as `math.fsum` refuses their sums."""

    def kernel(a, b):
        if not (np.isfinite(a.astype(np.float64)).all() and np.isfinite(b.astype(np.float64)).all()):
            raise ValueError("-inf + inf")
        return fs.matmul(a, b, accumulate="exact(fp32)")

    a, b = fs.testing.hard_inputs((20, 45, 20), "bf16")
    identified = fs.identify(kernel, a, b)
    assert any("exact" in name for name in identified.names), identified
    assert any("the kernel raised ValueError: -inf + inf" in note for note in identified.notes)


def test_small_kernels_are_searched_adaptively():
    """One element for each call: all pairs of 200 terms would take 40,000 calls."""
    calls = []
    a, b = fs.testing.hard_inputs((1, 200, 1), "fp32")
    assert fs.identify(reference_kernel("strided(fp32, 8)", "fp32", calls), a, b).names == ("strided(fp32, 8)",)
    assert len(calls) < 10_000


@pytest.mark.parametrize(("fmt", "result"), [("e4m3", "fp32"), ("e4m3", "bf16"), ("e4m3", "fp16"), ("fp16", "fp16")])
@pytest.mark.parametrize("k", [20, 150, 300])
def test_the_widest_probe(fmt, result, k):
    """+M is the product of the largest factors, a unit that of the least ones; beyond a chunk, other units are 0."""

    def kernel(a, b):
        left, right = fs.array(a, fmt), fs.array(b, fmt)
        return np.asarray(fs.matmul(left, right, accumulate=description, format=result).values)

    description = "blocked(strided(fp32, 4), 25, fp32)"
    operand = fs.as_format(fmt)
    probe = widest_probe_for(operand, operand, fs.FP32, fs.as_format(result), k)
    unit, large = (probe.a[n] + probe.b[n] for n in (1, 0))
    assert large - unit >= fs.FP32.precision + 1 + (probe.chunk - 1).bit_length()
    assert all(operand.emin - operand.trailing_bits <= e <= operand.emax for e in (*probe.a, *probe.b))
    assert (probe.chunk == k) == (probe.weak == 0)
    meetings = find_meetings(kernel, probe, (8, k, 9))
    tree = tree_of(fs.as_accumulation(description), k)
    assert np.array_equal(meeting_sizes(tree, meetings.i, meetings.j), meetings.sizes)


@pytest.mark.parametrize(("call", "error", "words"), [
    (lambda a, b: fs.identify(np.ones((3, 3), np.float32), a, b), ValueError, r"kernel has the shape \(3, 3\)"),
    (lambda a, b: fs.identify(np.matmul, a, b, device="h2000"), ValueError, "unknown architecture 'h2000'"),
    (lambda a, b: fs.identify(lambda x, y: np.ones((1, 1), np.float32), a, b), ValueError, "returned the shape"),
    (lambda a, b: fs.identify(np.matmul, a, b, more=["fp33"]), ValueError, "fp33"),
])  # fmt: skip
def test_bad_input_is_named(call, error, words):
    a, b = np.ones((2, 5), np.float32), np.ones((5, 2), np.float32)
    with pytest.raises(error, match=words):
        call(a, b)


@pytest.mark.parametrize(("order", "named"), [([0, 1, 2, 3], True), ([3, 2, 1, 0], False), ([1, 0, 3, 2], False)])
def test_blocks_in_another_order_are_not_named(order, named):
    """FP32 adds sums of FP8 products without a rounding on most inputs, and BF16 hides the rest."""

    def kernel(a, b):
        total = np.zeros((a.shape[0], b.shape[1]), np.float32)
        for n in order:
            k = slice(128 * n, 128 * n + 128)
            total = total + np.asarray(fs.matmul(a[:, k], b[k], accumulate="hopper", format="fp32"))
        return fs.array(total, "bf16")

    found = fs.identify(kernel, *fs.testing.hard_inputs((32, 512, 32), "e4m3"), device="h200", other_k=False)
    assert found.name == ("blocked(hopper, 128, fp32)" if named else None)
    assert named or found.near[0][0] == "blocked(hopper, 128, fp32)"
