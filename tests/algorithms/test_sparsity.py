"""`fs.algorithms.sparse_matmul`: 2:4 products against the dense unit on gathered columns, and the metadata of PTX."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import floatsim as fs

algorithms = fs.algorithms
PATTERNS = list(algorithms.SPARSITIES)


def sparse(pattern: str, rows: int, k: int, seed: int = 0, fmt: str = "fp16") -> fs.FloatArray:
    """Random numbers of the pattern: each group has random positions, and some groups have fewer numbers."""
    rng, row = np.random.default_rng([seed, k]), algorithms.SPARSITIES[pattern]
    x = np.zeros((rows, k // row.group, row.places, row.unit))
    for i, g in np.ndindex(*x.shape[:2]):
        for place in rng.permutation(row.places)[: rng.integers(0, row.kept + 1)]:
            x[i, g, place] = rng.standard_normal(row.unit)
    return fs.array(x.reshape(rows, k), fmt)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_round_trip_through_the_metadata(pattern):
    x = sparse(pattern, 5, 128)
    a = algorithms.compress(x, pattern)
    words = a.metadata
    assert a.shape == x.shape and words.dtype == np.uint32
    assert words.shape == (5, 128 // a.sparsity.columns_of_word)
    again = algorithms.SparseMatrix.from_metadata(a.values, words, pattern)
    assert np.array_equal(again.positions, a.positions) and again.values.codes.tolist() == a.values.codes.tolist()
    assert again.dense().format == x.format and np.array_equal(again.dense().codes, x.codes)
    assert (np.diff(a.columns, axis=1) > 0).all()


def test_metadata_of_ptx_bit_by_bit():
    """Positions (0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3): the lower position in the lower two bits."""
    pairs = list(itertools.combinations(range(4), 2))
    x = np.zeros((1, 8, 4), np.int8)
    for group, pair in enumerate([*pairs, (1, 3), (0, 1)]):
        x[0, group, list(pair)] = 1
    a = algorithms.compress(x.reshape(1, 32))
    due = [0b0100, 0b1000, 0b1100, 0b1001, 0b1101, 0b1110, 0b1101, 0b0100]
    assert int(a.metadata[0, 0]) == sum(code << 4 * group for group, code in enumerate(due))


def test_metadata_of_tf32():
    """One of two elements: 0b0100 is the first one, 0b1110 the second."""
    x = fs.array(np.tile([[0.0, 1.0, 2.0, 0.0]], 4), "tf32")
    assert [hex(word) for word in algorithms.compress(x, "1:2").metadata[0]] == ["0x4e4e4e4e"]


def test_pairs_of_neighbours():
    x = np.int8([[0, 0, 1, 2, 0, 0, 3, 0]])
    a = algorithms.compress(x, "4:8")
    assert a.positions.tolist() == [[1, 3]] and a.columns.tolist() == [[2, 3, 6, 7]] and np.array_equal(a.dense(), x)


def test_unused_positions_are_the_first_ones():
    a = algorithms.compress(np.int8([[0, 0, 7, 0, 0, 0, 0, 0]]))
    assert a.positions.tolist() == [[0, 2, 0, 1]] and a.values.tolist() == [[0, 7, 0, 0]]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_pruning_by_plain_loops(pattern):
    rng, row = np.random.default_rng(3), algorithms.SPARSITIES[pattern]
    x = fs.array(rng.integers(-3, 4, (6, 32)), "bf16")  # with ties
    due = np.zeros((6, 32))
    for i, first in itertools.product(range(6), range(0, 32, row.group)):
        units = [np.float64(x.values[i, first + u : first + u + row.unit]) for u in range(0, row.group, row.unit)]
        best = sorted(range(row.places), key=lambda u: (-np.abs(units[u]).sum(), u))[: row.kept]
        for u in best:
            due[i, first + u * row.unit : first + (u + 1) * row.unit] = units[u]
    found = algorithms.prune(x, pattern)
    assert found.format == x.format and np.array_equal(found.values, due)
    algorithms.compress(found, pattern)
    assert np.array_equal(algorithms.prune(np.int8(x.values), pattern), np.int8(due))


def test_sums_of_pairs_are_exact():
    """1 + 2**-100 is above 1, although FP64 rounds it to 1."""
    x = fs.array([[1.0, 0.0, 1.0, 2.0**-100, 1.0, 2.0**-99, 0.0, 1.0]], "fp32")
    assert algorithms.prune(x, "4:8").values.tolist() == [[0, 0, 1.0, 2.0**-100, 1.0, 2.0**-99, 0, 0]]
    largest = fs.array([[1e308, 1e308, np.inf, 0, np.nan, -np.inf, 1e308, 1e308]], "fp64")
    assert np.isnan(algorithms.prune(largest, "4:8").values[0, 4]) and algorithms.prune(largest, "4:8")[0, 6] == 0


def test_pruning_keeps_nan_and_infinity():
    found = algorithms.prune(fs.array([np.inf, np.nan, -np.inf, 5.0, -0.0, 0.0, -1.0, 2.0], "fp16"))
    assert np.isnan(found.values[1]) and found.values[0] == np.inf and found.values[2:4].tolist() == [0, 0]
    assert found.codes[4:6].tolist() == [0, 0]


@pytest.mark.parametrize(("fmt", "pattern", "unit"), [
    ("fp16", "2:4", "hopper"), ("bf16", "2:4", "ampere"), ("e4m3", "2:4", "hopper"), ("tf32", "1:2", "ampere"),
    ("fp16", "2:4", "fp32"),
])  # fmt: skip
def test_products_are_those_of_the_gathered_columns(fmt, pattern, unit, monkeypatch):
    """Each element is a dot product of the stored elements with the elements of B at their columns."""
    x, rng = sparse(pattern, 4, 64, seed=5, fmt=fmt), np.random.default_rng(6)
    b, c = fs.array(rng.standard_normal((64, 3)), fmt), rng.standard_normal((4, 3)).astype(np.float32)
    a = algorithms.compress(x, pattern)
    found = algorithms.sparse_matmul(a, b, c, accumulate=unit)
    for i, j in np.ndindex(4, 3):
        due = fs.dot(a.values[i], b[a.columns[i], j], c[i, j], accumulate=unit)
        assert found[i, j].item() == float(due)
    monkeypatch.setattr("floatsim.algorithms.sparsity._GATHERED", 32 * 3)  # one row at a time
    assert np.array_equal(algorithms.sparse_matmul(a, b, c, accumulate=unit).codes, found.codes)


def test_exact_sums_are_those_of_the_dense_product():
    x, b = sparse("2:4", 6, 64), fs.array(np.random.default_rng(1).standard_normal((64, 5)), "fp16")
    found = algorithms.sparse_matmul(algorithms.compress(x), b, accumulate="exact(fp32)")
    assert np.array_equal(found.values, fs.matmul(x, b, accumulate="exact(fp32)").values)


def test_the_gathered_columns_fill_other_blocks():
    """On Hopper 16 FP16 products are added at once: 32 columns of a sparse matrix are one block, not two."""
    x = fs.array(np.tile([[1.0, 0.0, 0.0, 1.0]], 8), "fp16")
    b = np.full((32, 1), 2.0**-12)
    b[0], b[3] = 32768, -32768
    sparse_sum = algorithms.sparse_matmul(algorithms.compress(x), fs.array(b, "fp16"), accumulate="hopper")
    dense_sum = fs.matmul(x, fs.array(b, "fp16"), accumulate="hopper")
    assert sparse_sum.item() == 0 and dense_sum.item() == 8 * 2.0**-12


def test_integers():
    rng = np.random.default_rng(8)
    dense = rng.integers(-128, 128, (5, 64), dtype=np.int8)
    x, b = algorithms.prune(dense), rng.integers(-128, 128, (64, 4), dtype=np.int8)
    c = rng.integers(-1000, 1000, (5, 4), dtype=np.int32)
    a, due = algorithms.compress(x), np.int32(x) @ np.int32(b) + c
    for instruction in (None, "mma.m16n8k32.s8.s8", "wgmma.k32.s8.s8"):
        found = algorithms.sparse_matmul(a, b, c, instruction=instruction)
        assert found.dtype == np.int32 and np.array_equal(found, due)
    top = algorithms.sparse_matmul(a, b, np.full((5, 4), 2**31 - 1), instruction="mma.m16n8k32.s8.s8.satfinite")
    assert np.array_equal(top, np.minimum(np.int64(x) @ np.int64(b) + 2**31 - 1, 2**31 - 1))


def test_lists_of_whole_numbers_are_integers_beside_integers():
    a = algorithms.compress(np.int8([[0, 3, 0, 5]]))
    b = [[1, 2], [3, 4], [5, 6], [7, 8]]
    assert algorithms.sparse_matmul(a, np.int8(b), 1).tolist() == [[45, 53]]
    assert algorithms.sparse_matmul(a, np.int8(b), [1, 2]).tolist() == [[45, 54]]


def test_empty_products():
    a = algorithms.compress(fs.array(np.zeros((0, 8)), "fp16"))
    assert algorithms.sparse_matmul(a, fs.array(np.zeros((8, 3)), "fp16"), accumulate="hopper").shape == (0, 3)
    assert a.dense().shape == (0, 8)


X = fs.array([[0.0, 3.0, 0.0, 5.0]], "fp16")
WORDS = np.full((1, 1), 0x44444444)
VALUES = np.ones((1, 16), np.int8)


@pytest.mark.parametrize(("call", "error", "says"), [
    (lambda: algorithms.compress(np.int8([[0] * 4 + [1, 2, 3, 0]])), ValueError,
     "x is not 2:4: row 0, columns 4 to 7 have 3 nonzero elements, and 2 are stored"),
    (lambda: algorithms.compress(fs.array([[1.0, np.nan, 0, 0]], "fp16"), "1:2"), ValueError, "columns 0 to 1 have 2"),
    (lambda: algorithms.compress(np.int8([[1, 0, 1, 0, 1, 0, 0, 0]]), "4:8"), ValueError, "have 3 nonzero pairs"),
    (lambda: algorithms.compress(np.zeros((2, 6), np.int8)), ValueError, "K must be a multiple of 4"),
    (lambda: algorithms.compress(np.zeros(8, np.int8)), ValueError, "must be a matrix"),
    (lambda: algorithms.compress(X, "2:3"), ValueError, "sparsity='2:3' is not known"),
    (lambda: algorithms.prune(np.zeros((2, 6), np.int8)), ValueError, "K must be a multiple of 4"),
    (lambda: algorithms.prune(fs.array([1.0, 2, 4, 8], "e8m0")), TypeError, "x is in E8M0, which has no zero"),
    (lambda: algorithms.prune(np.int64([2**53, 2**53 + 1, 2**60, 0])), ValueError, "integers beyond 2\\*\\*53"),
    (lambda: algorithms.compress(X).metadata, ValueError, "K=4 does not fill words of metadata"),
    (lambda: algorithms.SparseMatrix.from_metadata(VALUES, WORDS - 4), ValueError,
     "metadata of row 0, group 0 is 0b0000; '2:4' has two increasing positions"),
    (lambda: algorithms.SparseMatrix.from_metadata(VALUES, WORDS + 1, ordered=False), ValueError,
     "group 0 is 0b0101; '2:4' has two different positions"),
    (lambda: algorithms.SparseMatrix.from_metadata(VALUES[:, :8], WORDS + 1, "1:2"), ValueError,
     "group 0 is 0b0101; '1:2' has 0b0100, 0b1110"),
    (lambda: algorithms.SparseMatrix.from_metadata(VALUES, [[1, 2]]), ValueError, "do not fit"),
    (lambda: algorithms.SparseMatrix.from_metadata(VALUES[0], WORDS), ValueError, "must be a matrix"),
    (lambda: algorithms.SparseMatrix.from_metadata(VALUES, [[-1]]), ValueError, "words of 32 bits"),
    (lambda: algorithms.SparseMatrix.from_metadata(VALUES, [[0.5]]), TypeError, "metadata must be integers"),
    (lambda: algorithms.sparse_matmul(X, X), TypeError, "a must be a SparseMatrix, not FloatArray"),
    (lambda: algorithms.sparse_matmul(algorithms.compress(X), X), ValueError, "do not fit"),
    (lambda: algorithms.sparse_matmul(algorithms.compress(X), np.int8(X.T.values)), TypeError, "b has integers"),
    (lambda: algorithms.sparse_matmul(algorithms.compress(X), X.T, instruction="mma"), TypeError, "is for integers"),
    (lambda: algorithms.sparse_matmul(algorithms.compress(X), X.T, np.zeros((2, 2), "f4")), ValueError, "c \\(2, 2\\)"),
    (lambda: algorithms.sparse_matmul(algorithms.compress(X), X.T, np.int32([[1]])), TypeError, "c must have"),
    (lambda: algorithms.sparse_matmul(algorithms.compress(np.int8(X.values)), np.int8(X.T.values), accumulate="fp32"),
     TypeError, "are for numbers of a format"),
])  # fmt: skip
def test_errors(call, error, says):
    with pytest.raises(error, match=says):
        call()


def test_positions_in_any_order():
    """mma.sp without ordered metadata: the first stored element may have the higher position."""
    words = np.full((1, 1), 0x44444441)
    a = algorithms.SparseMatrix.from_metadata(np.arange(16, dtype=np.int8)[np.newaxis] + 1, words, ordered=False)
    assert a.dense()[0, :8].tolist() == [2, 1, 0, 0, 3, 4, 0, 0]
    assert int(a.metadata[0, 0]) == 0x44444441
