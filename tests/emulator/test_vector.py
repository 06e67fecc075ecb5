"""Sums of one long vector: the kernels with loops of their own give the general kernels' bits, and NumPy's."""

from __future__ import annotations

import zlib

import numpy as np
import oracles
import pytest

import floatsim as fs
from floatsim.accumulation import parse
from floatsim.accumulation.partition import positions
from floatsim.emulator.dispatch import vector
from floatsim.emulator.dispatch.operands import Operand, Partials, Products, Values
from floatsim.emulator.dispatch.tiling import Tile
from floatsim.emulator.dispatch.vector import Vectors
from floatsim.emulator.sums.execute import accumulate
from floatsim.formats.call import CallOptions
from floatsim.formats.rounding import RoundingAttributes
from tests.emulator.planning import kernel_by

PLAIN = RoundingAttributes()
KINDS = ("normal", "uniform", "wide", "cancelling", "integers", "ones", "ties", "subnormal", "overflowing", "zeros",
         "codes", "around")  # fmt: skip


def generator(*what: object) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(repr((oracles.test_seed(), what)).encode()))


def draw(kind: str, n: int, fmt: fs.FloatFormat, rng: np.random.Generator) -> np.ndarray:
    """n codes of a kind of data."""
    normal = rng.normal(size=n)
    if kind == "codes":  # infinities and NaNs among them
        return rng.integers(0, 1 << fmt.bits, n, dtype=np.uint64).astype(fmt.code_dtype)
    values = {
        "normal": normal,
        "uniform": rng.random(n),
        "wide": normal * 2.0 ** rng.integers(-20, 10, n),
        "cancelling": normal * 100 * (-1.0) ** np.arange(n),
        "integers": rng.integers(-3, 4, n),
        "ones": np.ones(n),
        "ties": rng.integers(-8, 9, n) / 2,
        "subnormal": normal * fmt.smallest_subnormal * 8,
        "overflowing": normal * (fmt.max / 4),
        "zeros": np.where(rng.random(n) < 0.5, 0.0, -0.0),
        "around": normal * 0.3 + 1024 * (np.arange(n) == 0),  # at the end of a binade
    }
    return fs.encode(np.asarray(values[kind], np.float64), fmt)


def vector_sum(accumulation, codes: np.ndarray, fmt, attributes=PLAIN) -> int | None:
    found = vector_sums(accumulation, codes[np.newaxis], fmt, attributes)
    return None if found is None else int(found[0])


def vector_sums(accumulation, rows: np.ndarray, fmt, attributes=PLAIN) -> np.ndarray | None:
    """The sums of rows of codes by the candidate for vectors, or None if it refuses."""
    kernel = kernel_by(Vectors(), accumulation, fmt, rounding=attributes, by_vectors=True)
    if kernel is None:
        return None
    source = Values(Partials(fmt, rows.T), 0, np.arange(rows.shape[1]))
    return kernel.evaluate(None, source, None, None, None).codes[0]


def vector_dot(accumulation, x: np.ndarray, fmt, y: np.ndarray, other) -> int | None:
    kernel = kernel_by(Vectors(), accumulation, fmt, other, by_vectors=True)
    if kernel is None:
        return None
    a, b = Operand(x[np.newaxis, np.newaxis], fmt), Operand(y[np.newaxis, :, np.newaxis], other)
    whole = Tile(slice(0, 1), slice(0, 1), slice(0, 1))
    source = Products(a, b, whole, (1, 1), np.zeros((1, 2), np.int64))
    return int(kernel.evaluate(None, source, None, None, None).codes.item())


def general(accumulation: fs.accumulation.Accumulation, a: np.ndarray, fmt, b: np.ndarray | None = None) -> np.ndarray:
    """By the integer kernels: they run where events are wanted. a, b: (K, cells)."""
    wanted, options = frozenset(["overflow"]), CallOptions(PLAIN)
    if b is None:
        return accumulate((a, fmt), None, None, np.zeros((1, 2), int), accumulation, options, wanted, "").codes[0, 0]
    pairs = np.stack([np.arange(a.shape[1])] * 2, axis=1)
    left, right = (np.ascontiguousarray(x.T) for x in (a, b))
    operands = (left[:, np.newaxis], fmt), (right[:, :, np.newaxis], fmt)
    return accumulate(*operands, None, pairs, accumulation, options, wanted, "").codes[:, 0, 0]


SIZES = (1, 2, 3, 7, 8, 9, 17, 65, 127, 129, 136, 257, 300, 496, 512, 1023, 1100)


def descriptions(acc: str, rng: np.random.Generator) -> list[str]:
    lanes, every = (int(rng.integers(1, 300)) for _ in range(2))
    return [
        acc, f"pairwise({acc})", f"pairwise({acc}, halving)", f"pairwise({acc}, numpy)", f"strided({acc}, {lanes})",
        f"blocked({acc}, {every}, {acc})", f"splitk({every}, pairwise({acc}), fp32)" if acc != "fp64" else "fp64",
        f"blocked(pairwise({acc}, numpy), {every}, pairwise({acc}, halving))",
    ]  # fmt: skip


CASES = [("fp16", "fp16"), ("bf16", "bf16"), ("fp32", "fp64")]


@pytest.mark.full
@pytest.mark.parametrize(("source", "acc"), CASES)
def test_as_the_general_kernels(source, acc):
    fmt, rng = fs.as_format(source), generator(source, acc)
    for n in SIZES:
        table = np.stack([draw(kind, n, fmt, rng) for kind in KINDS], axis=1)
        for text in descriptions(acc, rng):
            expected = general(parse(text), table, fmt)
            for kind, codes, want in zip(KINDS, table.T, expected, strict=True):
                assert vector_sum(parse(text), codes, fmt, PLAIN) == want, (text, kind, n)


@pytest.mark.full
@pytest.mark.parametrize(("source", "acc"), [("fp16", "fp16"), ("bf16", "bf16"), ("fp16", "fp32")])
def test_dot_as_the_general_kernels(source, acc):
    fmt, rng = fs.as_format(source), generator("dot", source, acc)
    texts = [*rng.permutation(descriptions(acc, rng)[:6])[:3], f"sequential({acc}, fused)"]
    for n in (1, 9, 130, 1100):
        a, b = (np.stack([draw(kind, n, fmt, rng) for kind in rng.permutation(KINDS)], axis=1) for _ in range(2))
        for text in texts:
            expected = general(parse(str(text)), a, fmt, b)
            for x, y, want in zip(a.T, b.T, expected, strict=True):
                got = vector_dot(parse(str(text)), x, fmt, y, fmt)
                fused = "fused" in text and acc != "fp32"
                assert got == (None if fused else want), (text, n)


@pytest.mark.full
def test_every_source():
    """Accumulators that are not in the terms' format."""
    rng = generator("sources")
    for source, acc in (("fp16", "fp32"), ("bf16", "fp32"), ("e5m2", "bf16"), ("e4m3", "fp16"), ("tf32", "fp32")):
        fmt = fs.as_format(source)
        table = np.stack([draw(kind, 1100, fmt, rng) for kind in KINDS], axis=1)
        text = rng.choice(descriptions(acc, rng))
        for kind, codes, want in zip(KINDS, table.T, general(parse(str(text)), table, fmt), strict=True):
            assert vector_sum(parse(str(text)), codes, fmt, PLAIN) == want, (text, kind, source)


ORDERS = ("swapped", "reversed", "strided-2", "strided-300", "backwards-4x4", "backwards-2x300")


@pytest.mark.full
@pytest.mark.parametrize(
    ("source", "acc"), [("fp16", "fp16"), ("bf16", "bf16"), ("e4m3", "fp16"), ("bf16", "fp32"), ("fp32", "fp64")]
)
def test_other_orders(source, acc):
    """Sums and dots in every order equal those in order of the moved terms: short groups, long ones, the rest."""
    fmt, rng = fs.as_format(source), generator("orders", source, acc)
    lists = [rng.permutation(n).tolist() for n in (3, 100, 255, 256, 257, 5000)]
    for order in (*ORDERS, *lists):
        for n in (1, 2, 255, 513, 5000, 9001):
            terms = positions(fs.Permuted(order, acc), n)
            for inner in (acc, f"strided({acc}, 7)", f"pairwise({acc})")[: 1 if n > 513 else 3]:
                moved = fs.Permuted(order, inner)
                kind = KINDS[rng.integers(len(KINDS))]
                x, y = (draw(kind, n, fmt, rng) for _ in range(2))
                where = order if isinstance(order, str) else len(order), n, inner, kind
                assert vector_sum(moved, x, fmt) == vector_sum(parse(inner), x[terms], fmt), where
                dots = vector_dot(moved, x, fmt, y, fmt), vector_dot(parse(inner), x[terms], fmt, y[terms], fmt)
                assert dots[0] == dots[1], where


@pytest.mark.full
def test_orders_beyond_the_caches(monkeypatch):
    """Groups from _FAR terms on are moved before they are added."""
    rng = generator("far")
    x, order = draw("normal", 700, fs.FP16, rng), rng.permutation(300).tolist()
    moved = fs.Permuted(order, "fp16")
    want = vector_sum(moved, x, fs.FP16)
    monkeypatch.setattr(vector, "_FAR", 299)
    assert vector_sum(moved, x, fs.FP16) == want == vector_sum(parse("fp16"), x[positions(moved, 700)], fs.FP16)


@pytest.mark.full
def test_rows_in_other_orders():
    """Rows of a matrix, each in another order."""
    table = draw("normal", 12 * 500, fs.FP16, generator("moved rows")).reshape(12, 500)
    for order in (*ORDERS, [2, 0, 1]):
        moved = fs.Permuted(order, "fp16")
        found = vector_sums(moved, table, fs.FP16)
        want = vector_sums(parse("fp16"), np.ascontiguousarray(table[:, positions(moved, 500)]), fs.FP16)
        assert found.tolist() == want.tolist(), order


@pytest.mark.full
def test_rows():
    """Many vectors at once, whole blocks and others."""
    rng = generator("rows")
    for rows, length in ((1, 50), (3, 128), (40, 96), (17, 1000), (2, 5000), (5, 1), (0, 4), (4, 0)):
        table = np.stack([draw(KINDS[i % len(KINDS)], length, fs.FP16, rng) for i in range(rows)] or [np.zeros(length)])
        table = table[:rows].astype(np.uint16)
        more = ["strided(fp16, 32, fp32)", "blocked(fp16, 8, fp32)", "blocked(fp16, 3, fp32)"]
        for text in [*descriptions("fp16", rng), *more]:
            expected = general(parse(text), table.T, fs.FP16)
            found = vector_sums(parse(text), table, fs.FP16)
            assert found.tolist() == expected.tolist(), (text, rows, length)


# -- larger than the cache, against NumPy's own arithmetic in float16 and float32 --------------------------------------


def tree(x: np.ndarray, name: str) -> np.generic:
    while len(x) > 1:
        half = len(x) // 2
        if name == "adjacent":
            x = np.concatenate([x[0 : 2 * half : 2] + x[1::2], x[2 * half :]])
        else:
            upper = len(x) - half
            x = np.concatenate([x[:half] + x[upper:], x[half:upper]])
    return x[0]


@pytest.mark.full
@pytest.mark.parametrize("n", [4096, 4097, 8191, 16384, 40000, 131071, 131073, 200003])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@np.errstate(over="ignore", invalid="ignore")  # wide numbers reach inf - inf
def test_large_against_numpy(n, dtype):
    fmt, rng = fs.as_format(dtype), generator("large", n)
    for kind in ("normal", "uniform", "wide", "around"):
        codes = draw(kind, n, fmt, rng)
        x = codes.view(dtype)
        lanes = np.add.accumulate(np.append(x, np.zeros(-n % 1000, dtype)).reshape(-1, 1000), axis=0)[-1]
        expected = {
            "sequential": np.add.accumulate(x)[-1],
            "pairwise": tree(x, "adjacent"),
            "halving": tree(x, "halving"),
            "strided": np.add.accumulate(lanes)[-1],
        }
        for name, form in {
            "sequential": "{0}", "pairwise": "pairwise({0})", "halving": "pairwise({0}, halving)",
            "strided": "strided({0}, 1000, {0})",
        }.items():  # fmt: skip
            code = vector_sum(parse(form.format(fmt.name)), codes, fmt, PLAIN)
            np.testing.assert_equal(fs.decode(code, fmt), expected[name], f"{name}, {kind}")  # NaN and -0 included
        if dtype == np.float32:  # numpy sums float16 in float32
            code = vector_sum(parse("pairwise(fp32, numpy)"), codes, fmt, PLAIN)
            np.testing.assert_equal(fs.decode(code, fmt), np.sum(x), kind)


def test_every_start_of_a_chain():
    """From every accumulator, one block of terms that are often half-way: what adds many at once must notice."""
    rng = generator("starts")
    starts = fs.encode(np.concatenate([2.0 ** np.arange(-14, 16), 2.0 ** np.arange(-14, 16) * 1.5, [65504, 0]]), "fp16")
    for start in np.concatenate([starts, starts ^ 0x8000]):
        size = fs.decode(start & 0x7FFF, "fp16")
        terms = rng.integers(-6, 7, 512) * max(size * 2.0**-12, 2.0**-24)
        x = np.concatenate([[start], fs.encode(terms, "fp16")]).astype(np.uint16)
        code = vector_sum(parse("fp16"), x, fs.FP16, PLAIN)
        with np.errstate(over="ignore"):
            expected = np.add.accumulate(x.view(np.float16))[-1]
        assert fs.decode(code, "fp16") == expected, hex(start)


def test_strided_memory_and_empty():
    codes = draw("normal", 5000, fs.FP16, generator("memory"))
    every_third = vector_sum(parse("pairwise(fp16)"), codes[::3], fs.FP16, PLAIN)
    assert every_third == vector_sum(parse("pairwise(fp16)"), codes[::3].copy(), fs.FP16, PLAIN)
    assert vector_sum(parse("fp16"), codes[:0], fs.FP16, PLAIN) == 0


@pytest.mark.parametrize(
    ("text", "source", "options"),
    [
        ("fp16", "fp16", {"rounding": fs.Rounding.TOWARD_ZERO}),
        ("fp16", "fp16", {"ftz": True}),
        ("fp16", "fp16", {"daz": True}),
        ("sequential(fp16, overflow=saturate_finite)", "fp16", {}),
        ("sequential(fp16, rounding=rtp)", "fp16", {}),
        ("kahan(fp16)", "fp16", {}),
        ("exact(fp16)", "fp16", {}),
        ("fp16", "fp32", {}),
        ("bf16", "fp16", {}),
        ("fp16", "bf16", {}),
        ("tf32", "tf32", {}),
        ("fp32", "fp64", {}),
        ("strided(pairwise(fp16), 4)", "fp16", {}),
        ("blocked(fp16, 4, exact(fp16))", "fp16", {}),
    ],
)
def test_leaves_the_rest_to_the_general_kernels(text, source, options):
    fmt = fs.as_format(source)
    assert vector_sum(parse(text), np.zeros(9, fmt.code_dtype), fmt, RoundingAttributes(**options)) is None


def test_running_sums_need_the_default_environment(monkeypatch):
    assert vector.running_sums_refusal(parse("fp16"), fs.FP16, PLAIN) is None
    monkeypatch.setattr(vector.cpu, "environment_is_default", lambda: False)
    assert "environment" in vector.running_sums_refusal(parse("fp16"), fs.FP16, PLAIN)
