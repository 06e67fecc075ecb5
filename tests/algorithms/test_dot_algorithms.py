"""`fs.algorithms.dot_algorithm`: JAX's dot algorithms against loops on exact fractions, and products of an H200."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import floatsim as fs
from tests.accumulation import recorded_products as recorded
from tests.accumulation.recorded_products import needs_recordings

dot_algorithm, ROWS = fs.algorithms.dot_algorithm, fs.algorithms.DOT_ALGORITHMS
PRESETS = (
    "DEFAULT", "ANY_F8_ANY_F8_F32", "ANY_F8_ANY_F8_F32_FAST_ACCUM", "ANY_F8_ANY_F8_ANY", "ANY_F8_ANY_F8_ANY_FAST_ACCUM",
    "F16_F16_F16", "F16_F16_F32", "BF16_BF16_BF16", "BF16_BF16_F32", "BF16_BF16_F32_X3", "BF16_BF16_F32_X6",
    "BF16_BF16_F32_X9", "TF32_TF32_F32", "TF32_TF32_F32_X3", "F32_F32_F32", "F64_F64_F64",
)  # fmt: skip
"""The names of jax.lax.DotAlgorithmPreset of JAX 0.10."""
SPLIT = [row for row in ROWS if len(row.products) > 1]


# -- an oracle: slices by integers, sums by fractions ------------------------------------------------------------------


def rounded(x: Fraction, bits: int) -> float:
    """x rounded to `bits` significant bits, ties to even; x is in the normal range."""
    if x == 0:
        return 0.0
    exponent = 0
    while abs(x) >= Fraction(2) ** (exponent + 1):
        exponent += 1
    while abs(x) < Fraction(2) ** exponent:
        exponent -= 1
    unit = Fraction(2) ** (exponent - bits + 1)
    return float(round(x / unit) * unit)  # round() of a fraction has ties to even


def slice_of(x: float, mode: str, bits: int) -> float:
    if mode == "even":
        return rounded(Fraction(x), bits)
    code, low = int(np.float32(x).view(np.uint32)), 24 - bits
    if mode == "away":
        code += 1 << low - 1  # ties of the magnitude go up
    return float(np.uint32(code >> low << low).view(np.float32))


def slices_of(x: float, modes: tuple[str, ...], bits: int) -> list[float]:
    found = []
    for mode in modes:
        found.append(slice_of(x, mode, bits))
        x = float(np.float32(x) - np.float32(found[-1]))
    return found


RECIPES = {  # modes of the slices, their bits, products (a, b), whether each starts from the sum of those before
    ("BF16_BF16_F32_X3", "triton"): (("even", "even"), 8, "lh hl hh", True),
    ("BF16_BF16_F32_X3", "library"): (("cut", "even"), 8, "lh hl hh", False),
    ("BF16_BF16_F32_X6", "triton"): (("even", "even", "even"), 8, "mm lh hl mh hm hh", True),
    ("BF16_BF16_F32_X6", "library"): (("cut", "cut", "even"), 8, "mm hl lh hm mh hh", False),
    ("BF16_BF16_F32_X9", "triton"): (("even", "even", "even"), 8, "ll ml lm mm lh hl mh hm hh", True),
    ("TF32_TF32_F32_X3", "triton"): (("away", "cut"), 11, "lh hl hh", True),
}


def due(a: np.ndarray, b: np.ndarray, recipe: tuple, block: int) -> np.ndarray:
    """The product with exact sums, rounded once to FP32, for each product of slices."""
    modes, bits, words, chained = recipe
    names = {"h": 0, "m": 1, "l": len(modes) - 1}
    left = [[slices_of(float(x), modes, bits) for x in row] for row in a]
    right = [[slices_of(float(x), modes, bits) for x in column] for column in b.T]
    result = np.zeros((len(left), len(right)), np.float32)
    for (i, row), (j, column) in ((p, q) for p in enumerate(left) for q in enumerate(right)):
        total = 0.0
        for first in range(0, len(row), block):
            part = 0.0
            for word in words.split():
                p, q = (names[letter] for letter in word)
                terms = zip(row[first : first + block], column[first : first + block], strict=True)
                exact = sum((Fraction(x[p]) * Fraction(y[q]) for x, y in terms), Fraction(0))
                if chained:
                    part = rounded(Fraction(part) + exact, 24)
                else:
                    part = rounded(Fraction(part) + Fraction(rounded(exact, 24)), 24)
            total = rounded(Fraction(total) + Fraction(part), 24)
        result[i, j] = total
    return result


def matrices(seed: int, m: int = 3, k: int = 20, n: int = 2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((m, k)) * np.exp2(rng.integers(-6, 7, (m, k)))
    return a.astype(np.float32), rng.standard_normal((k, n)).astype(np.float32)


def test_the_recipes_are_those_of_the_rows():
    assert set(RECIPES) == {(row.name, row.lowering) for row in SPLIT}


@pytest.mark.parametrize("row", SPLIT, ids=lambda row: f"{row.name} {row.lowering}")
def test_products_by_fractions(row):
    a, b = matrices(1)
    recipe = RECIPES[row.name, row.lowering]
    whole = row.matmul(a, b, unit="exact(fp32)")
    assert whole.dtype == np.float32 and np.array_equal(whole, due(a, b, recipe, 20))
    if row.chained:
        blocks = row.matmul(a, b, unit="exact(fp32)", block_k=8)
        assert np.array_equal(blocks, due(a, b, recipe, 8)) and not np.array_equal(blocks, whole)


@pytest.mark.parametrize("row", SPLIT, ids=lambda row: f"{row.name} {row.lowering}")
def test_slices_add_up(row):
    """Three slices of BF16 are the FP32 number; two leave less than 2**-16 of it."""
    x = matrices(2)[0]
    parts = [np.float64(part.values) for part in row.slices(x)]
    assert len(parts) == len(row.roundings) and all(part.format == row.format for part in row.slices(x))
    rest = np.abs(sum(parts) - np.float64(x))
    assert (rest == 0).all() if len(parts) == 3 else (rest <= 2.0**-15 * np.abs(x)).all()


def test_more_products_are_more_accurate():
    a, b = matrices(3, k=64)
    exact = np.float64(a) @ np.float64(b)
    names = ("BF16_BF16_F32", "TF32_TF32_F32", "BF16_BF16_F32_X3", "BF16_BF16_F32_X6")
    errors = [np.abs(dot_algorithm(name).matmul(a, b, unit="exact(fp32)") - exact).max() for name in names]
    assert errors == sorted(errors, reverse=True) and errors[0] > 1000 * errors[-1]


def test_tf32x3_is_the_description_of_tritons_kernel():
    a, b = matrices(4, k=96)
    found = dot_algorithm("TF32_TF32_F32_X3").matmul(a, b, block_k=32)
    assert np.array_equal(found, fs.matmul(a, b, accumulate="blocked(tf32x3(hopper), 32, fp32)"))


@pytest.mark.parametrize(("name", "lowering", "description"), [
    ("BF16_BF16_F32", "triton", "converted(bf16, hopper)"),
    ("F16_F16_F32", "library", "converted(fp16, hopper)"),
    ("TF32_TF32_F32", "triton", "converted(tf32, hopper, rounding=ties_to_away)"),
    ("TF32_TF32_F32", "library", "converted(tf32, hopper)"),
    ("F32_F32_F32", "triton", "sequential(fp32, fused)"),
])  # fmt: skip
def test_plain_algorithms_are_descriptions(name, lowering, description):
    a, b = matrices(5, k=40)
    a[0, 0] = 1 + 2.0**-11  # a tie of TF32
    found = dot_algorithm(name, lowering).matmul(a, b)
    assert np.array_equal(found, np.asarray(fs.matmul(a, b, accumulate=description), np.float32))


@pytest.mark.parametrize("row", SPLIT, ids=lambda row: f"{row.name} {row.lowering}")
def test_an_infinite_operand_decides(row):
    """The differences of its slices are NaN, which the last product replaces."""
    a, b = matrices(6)
    a[0, 3], b = np.inf, np.abs(b)
    found = row.matmul(a, b)
    assert np.isposinf(found[0]).all() and np.isfinite(found[1:]).all()
    a[0, 3] = np.nan
    assert np.isnan(row.matmul(a, b)[0]).all()


def test_batches_and_empty_sums():
    row = dot_algorithm("BF16_BF16_F32_X3")
    a, b = matrices(7)
    stack = row.matmul(np.stack([a, 2 * a]), b)
    assert np.array_equal(stack[0], row.matmul(a, b)) and np.array_equal(stack[1], 2 * stack[0])
    for each in ROWS:
        assert np.array_equal(each.matmul(np.zeros((2, 0), "f4"), np.zeros((0, 3), "f4")), np.zeros((2, 3)))


def test_every_name_of_jax_is_described_or_refused():
    described = 0
    for name in PRESETS:
        for lowering in ("triton", "library"):
            try:
                row = dot_algorithm(name.lower(), lowering)
            except fs.NotDescribedError as error:
                assert name in str(error) and lowering in str(error)
                continue
            described += (row.name, row.lowering) == (name, lowering)
    assert described == len(ROWS)


def test_the_names_are_those_of_jax():
    lax = pytest.importorskip("jax.lax")
    assert {preset.name for preset in lax.DotAlgorithmPreset} == set(PRESETS)
    assert dot_algorithm(lax.DotAlgorithmPreset.BF16_BF16_F32_X6) is dot_algorithm("BF16_BF16_F32_X6")


@pytest.mark.parametrize(("call", "error", "says"), [
    (lambda a, b: dot_algorithm("BF16_BF16_F32_X4"), ValueError, "is not a dot algorithm of JAX; did you mean 'BF16_"),
    (lambda a, b: dot_algorithm("BF16_BF16_F32", "cpu"), ValueError, "lowering='cpu' is not known"),
    (lambda a, b: dot_algorithm("BF16_BF16_F32_X9", "library"), fs.NotDescribedError, "cuBLAS chooses the kernel"),
    (lambda a, b: dot_algorithm(3), TypeError, "name must be a text or a jax.lax.DotAlgorithmPreset, not 3"),
    (lambda a, b: dot_algorithm(["X3"]), TypeError, "name must be a text"),
    (lambda a, b: dot_algorithm("TF32_TF32_F32").matmul(a, b, block_k=0), ValueError, "block_k must be"),
    (lambda a, b: dot_algorithm("TF32_TF32_F32").matmul(a, "b"), TypeError, "^b is an object array"),
    (lambda a, b: dot_algorithm("BF16_BF16_F32_X3").matmul(np.float64(a), b), TypeError, "a is FP64; convert it"),
    (lambda a, b: dot_algorithm("BF16_BF16_F32_X3").matmul(a, np.float16(b)), TypeError, "b is FP16; convert it"),
    (lambda a, b: dot_algorithm("BF16_BF16_F32_X3").matmul(a, b.T), ValueError, "do not fit"),
    (lambda a, b: dot_algorithm("BF16_BF16_F32_X3").matmul(a, b, block_k=0), ValueError, "block_k must be"),
    (lambda a, b: dot_algorithm("BF16_BF16_F32_X3", "library").matmul(a, b, block_k=8), ValueError, "block_k=8 has no"),
])  # fmt: skip
def test_errors(call, error, says):
    with pytest.raises(error, match=says):
        call(*matrices(8))


@needs_recordings
@pytest.mark.full
def test_recorded_products_of_triton():
    """Triton's own "bf16x3" (prec=4) and "bf16x6" (prec=5), mma.sync and wgmma, on an H200."""
    arrays, _ = recorded.recording("kernels/triton_more")
    rows = {"prec=4": dot_algorithm("BF16_BF16_F32_X3"), "prec=5": dot_algorithm("BF16_BF16_F32_X6")}
    equal = []
    for key in arrays.files:
        for option in rows.keys() & set(key.split("|")):
            fields = dict(field.split("=") for field in key.split("|") if "=" in field)
            a, b = recorded.operands(int(fields["M"]), 256, 64, "fp32", kind=key.split("|")[-1])
            found = rows[option].matmul(a[:16], b[:, :32], block_k=int(fields["bk"]))
            equal.append(np.array_equal(found.view(np.uint32), arrays[key]))
    assert len(equal) == 12 and all(equal)
