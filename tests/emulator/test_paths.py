"""The oracle of the path search, verified against others, and a sample of the search: see tests/exhaustive/paths.py."""

from fractions import Fraction

import numpy as np
import oracles as o
import pytest
from oracles import sums as path_oracle

import floatsim as fs
from floatsim.reference.tensorcore.dot import dot
from tests.exhaustive import paths
from tests.marks import cases

ids = {"ids": str}
FORMATS = (
    *o.ARITHMETIC,
    *o.CUSTOM,
    fs.FloatFormat("top binade", 8, 2, "fnuz"),
    fs.FloatFormat("narrow and high", 2, 24, "finite", -100),
    fs.FloatFormat("low", 3, 10, "ieee", 138),
)
NATIVE = ((fs.FP16, np.float16), (fs.FP32, np.float32), (fs.FP64, np.float64))


def _values(fmt, grid, r):
    """Integers other than 0 on the grid: near numbers of the format, near their midpoints, anywhere."""
    at = path_oracle.format_of(fmt)
    shift = at.quantum - grid
    codes = [*r.integers(0, fmt.max_code + 1, 12, np.uint64).tolist(), 0, 1, 2, fmt.max_code, 1 << fmt.trailing_bits]
    for code in codes:
        here = at.units(code) << shift
        gap = max(1 << shift, 1 << max(0, here.bit_length() - fmt.precision))
        for offset in (0, gap >> 1, gap >> 2, (gap >> 1) + (gap >> 3)):
            for nudge in (-1, 0, 1):
                for sign in (-1, 1):
                    if here + offset + nudge:
                        yield sign * (here + offset + nudge)
    yield from (2 * at.largest << shift, -3 * at.largest << shift, 1, -1)


@pytest.mark.parametrize("fmt", FORMATS, **ids)
def test_its_rounding_equals_that_of_the_rational_oracle(fmt):
    r = o.rng("path oracle", fmt)
    at = path_oracle.format_of(fmt)
    grid = at.quantum - fmt.precision - 4
    unit = Fraction(2) ** grid
    every = o.every_rounding()
    for n in _values(fmt, grid, r):
        rational = o.Rounder(abs(n) * unit, int(n < 0), fmt)
        for k in r.integers(0, len(every), 3):
            options = every[k]
            before = options.tininess.name == "BEFORE"
            style = path_oracle.style_of(options.rounding, options.overflow, options.ftz, options.daz, before)
            got = at.encode(path_oracle.rounder(at, grid, style)(n), at.quantum - grid)
            assert got == rational(options)[0], (fmt.name, str(options), hex(n), hex(got))


@pytest.mark.parametrize("fmt", [f for f in FORMATS if f.bits <= 16], **ids)
def test_its_codes_are_those_of_the_rational_oracle(fmt):
    at, layout = path_oracle.format_of(fmt), o.layout(fmt)
    unit = Fraction(2) ** at.quantum
    every = np.arange(1 << fmt.bits)
    sample = every if fmt.bits <= 8 else o.rng("codes", fmt).choice(every, 1000)
    for code in sample.tolist():
        value, due = at.decode(code), layout.decode(code)
        if due.is_nan:
            assert type(value) is float and np.isnan(value)
            continue
        assert at.encode(value) == code
        if due.kind == "infinite":
            assert value == (-np.inf if due.sign else np.inf)
        else:
            assert abs(value) * unit == due.magnitude
            assert np.signbit(float(np.sign(value)) if value else value) == bool(due.sign)


def _bits(x):
    return x.view(f"u{x.dtype.itemsize}")


def _operands(dtype, shape, r):
    """Numbers of near magnitudes, a few random codes among them."""
    x = np.ldexp(r.normal(size=shape), r.integers(-6, 6, shape)).astype(dtype)
    return np.where(
        r.random(shape) < 0.02, r.integers(0, 1 << 8 * x.itemsize, shape, np.uint64).astype(_bits(x).dtype), _bits(x)
    ).view(dtype)


def _run(kind, fmt, x, **fields):
    at = path_oracle.format_of(fmt)
    call = path_oracle.Call(path_oracle.Leaf(kind, at, path_oracle.Style(), at, **fields), at)
    return np.array(path_oracle.sums(call, _bits(x).tolist(), at), _bits(x).dtype)


def _equal(got, want):
    nan = np.isnan(want)
    return np.array_equal(np.isnan(got.view(want.dtype)), nan) and np.array_equal(got[~nan], _bits(want)[~nan])


@pytest.mark.parametrize(("fmt", "dtype"), NATIVE)
def test_its_chains_equal_loops_in_hardware_floats(fmt, dtype):
    x = _operands(dtype, (400, 12), o.rng("chains", fmt))
    with np.errstate(all="ignore"):
        acc = np.zeros(400, dtype)
        for term in x.T:
            acc = acc + term
        assert _equal(_run("sequential", fmt, x), acc)
        s, comp = np.zeros(400, dtype), np.zeros(400, dtype)
        for term in x.T:
            y = term - comp
            t = s + y
            comp = np.where(np.isfinite(t), (t - s) - y, dtype(0))
            s = t
        assert _equal(_run("kahan", fmt, x), s)
        s, comp = np.zeros(400, dtype), np.zeros(400, dtype)
        for term in x.T:
            t = s + term
            lost = np.where(np.abs(s) >= np.abs(term), (s - t) + term, (term - t) + s)
            comp = np.where(np.isfinite(t), comp + lost, comp)
            s = t
        assert _equal(_run("neumaier", fmt, x), s + comp)


@pytest.mark.parametrize("length", [1, 7, 8, 9, 127, 128, 129, 300])
def test_its_numpy_tree_equals_numpy(length):
    x = _operands(np.float32, (20, length), o.rng("tree", length))
    with np.errstate(all="ignore"):
        want = np.array([np.sum(row) for row in x]) + np.float32(0)  # NumPy starts short sums at -0
    got = _run("pairwise", fs.FP32, x, tree="numpy")
    assert _equal(np.where(got == 1 << 31, np.uint32(0), got), want)


def test_its_products_equal_those_of_hardware_floats():
    r = o.rng("products")
    at = path_oracle.format_of(fs.FP32)
    call = path_oracle.Call(path_oracle.Leaf("sequential", at, path_oracle.Style(), at), at)
    a, b = _operands(np.float32, (60, 4), r), _operands(np.float32, (4, 60), r)
    got = np.array(path_oracle.matmul(call, _bits(a).tolist(), _bits(b).T.tolist(), at, at), np.uint32)
    want = np.zeros((60, 60), np.float32)
    with np.errstate(all="ignore"):
        for k in range(4):
            want = want + a[:, k : k + 1] * b[k]
    assert _equal(got, want)


def test_its_exact_sums_are_those_of_fractions():
    r = o.rng("exact")
    at = path_oracle.format_of(fs.FP16)
    call = path_oracle.Call(path_oracle.Leaf("exact", at, path_oracle.Style()), at)
    x = r.integers(0, fs.FP16.max_code, (50, 9), np.uint16) ^ (r.integers(0, 2, (50, 9), np.uint16) << np.uint16(15))
    for row, got in zip(x.tolist(), path_oracle.sums(call, x.tolist(), at), strict=True):
        values = [o.layout(fs.FP16).decode(code) for code in row]
        total = sum((-1) ** v.sign * v.magnitude for v in values)
        assert got == o.Rounder(abs(total), int(total < 0), fs.FP16)(o.OracleRounding())[0]


@pytest.mark.parametrize(("fmt", "unit"), [
    pair for pair in paths.UNITS if pair[0] != fs.FP32
], ids=lambda x: getattr(x, "name", x))  # fmt: skip
def test_its_units_equal_the_reference(fmt, unit):
    """Random codes, special values among them, with c; K of several instructions and of less than one."""
    r = o.rng("units", fmt, unit)
    row = fs.as_accumulation(unit).row(fmt, fmt)
    at, out = path_oracle.format_of(fmt), path_oracle.format_of(row.output)
    description = path_oracle.description_of(
        fs.as_accumulation(unit), fs.Rounding.TIES_TO_EVEN, False, False, False, [fmt] * 2
    )
    call = path_oracle.Call(description, out)
    for k in (1, row.k - 1, row.k, 2 * row.k + 1):
        for _ in range(20):
            x, y = (paths._random_codes(paths.Draw(k, _, side), fmt, (1, k)) for side in "ab")
            if r.random() < 0.7:  # magnitudes near each other
                x, y = (fs.encode(r.standard_normal((1, k)) * np.exp2(r.integers(-3, 4, (1, k))), fmt) for _ in "ab")
            c = int(fs.encode(r.standard_normal(), row.output))
            due = dot(row, x[0].tolist(), y[0].tolist(), fmt, fmt, c).code
            found = path_oracle.matmul(call, x.tolist(), y.tolist(), at, at, [[c]], out)
            assert found == [[due]], (k, x, y)


SAMPLE = 4
"""Cases of each job in the sample."""


SLOW_JOBS = ("mixed", "orders", "sum_is_exact", "double_rounding", "veltkamp", "gpu_kernels")


@pytest.mark.parametrize(
    "job", cases(quick=[job for job in paths.JOBS if not job.startswith(SLOW_JOBS)], full=paths.JOBS)
)
def test_a_sample_of_the_search(job):
    elements, mismatches, examples = paths.run(job, 0, SAMPLE)
    assert elements > 0
    assert mismatches == 0, "\n\n".join(examples)


def test_the_search_reports_a_wrong_result(monkeypatch):
    case = next(case for case in paths.cases_of("mixed", 1) if case.operation == "matmul")
    right = paths.expected
    assert paths.check(case)[1] == []
    monkeypatch.setattr(paths, "expected", lambda case: right(case) ^ np.uint64(1))
    size, found = paths.check(case)
    assert dict(found) == dict.fromkeys(["default", *paths.accepting(case), "recorded"], size)
    assert "with fs.record(): r = fs.matmul(" in paths.reproduction(case, "recorded", [1], [0])
