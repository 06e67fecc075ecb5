"""The survey's counts and errors are compared with the reference. The shipped data shows every event."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import floatsim as fs
from floatsim import datasets, reference
from floatsim.analysis.survey import report as survey_report
from floatsim.analysis.survey import survey as surveys
from floatsim.arrays.events.counts import Counts
from floatsim.formats.rounding import FLUSHED, SUBNORMAL

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def shipped():
    return fs.survey()


# -- the shipped data is worth looking at ---------------------------------------------------------------------------


@pytest.mark.parametrize(("stage", "event"), survey_report.EVENT_COLUMNS)
def test_every_event_happens_in_some_format(shipped, stage, event):
    assert any(row.share(stage, event) for row in shipped.rows), f"{stage} never {event}"


def test_the_report_has_every_accumulator_column_and_format(shipped):
    assert [fmt.name for fmt in shipped.formats] == ["FP32", "FP16", "BF16", "E4M3", "E5M2"]
    assert shipped.accumulators == surveys.ACCUMULATORS
    for product in shipped.products:
        assert product.used == product.shape  # all of it is multiplied
        computed = {(row.format.name, str(row.accumulator)) for row in shipped.rows if row.product == product.name}
        assert len(computed) == 24
        assert ("FP16", "sequential(bf16)") not in computed  # less precise than its inputs
        assert ("E4M3", "sequential(bf16)") in computed


def test_the_main_results_of_the_shipped_data(shipped):
    lost = {row.format.name: row.share("flushed") for row in shipped.tensor_rows if row.tensor == "gradients"}
    assert lost["FP32"] == lost["BF16"] == 0  # range keeps small gradients, precision does not
    assert 0.3 < lost["FP16"] < 0.5 < lost["E5M2"] < lost["E4M3"] == 1
    moments = shipped.table("nonfinite", "second moments")
    assert moments["FP16"]["same"] > 0 == moments["FP16"]["fp32"]  # squares of ordinary activations overflow FP16
    swamped = shipped.table("relative_error", "second moments")["E5M2"]
    assert swamped["same"] > 0.5 > 10 * swamped["fp32"]


def test_exact_sums_have_at_most_half_an_ulp_of_error(shipped):
    exact = [row for row in shipped.rows if isinstance(row.accumulator, fs.Exact)]
    assert len(exact) == 15
    for row in exact:
        assert row.products is None
        assert math.isnan(row.max_ulps) or row.max_ulps <= 0.5
        assert row.sums.absorbed == 0


def test_only_unrounded_products_make_sums_underflow(shipped):
    for row in shipped.rows:
        if row.products is not None:
            assert row.sums.underflow == row.sums.flushed == 0
            assert row.products.elements == row.sums.elements


def test_flush_to_zero_of_the_context_reaches_every_rounding():
    with fs.context(ftz=True):
        report = fs.survey(formats=["fp16"], accumulators=["same"], products="activations.T @ gradients", limit=1 << 16)
    (row,) = report.rows
    assert row.products.subnormal == row.sums.subnormal == 0
    assert row.sums.flushed > 0


# -- counts and errors are right ------------------------------------------------------------------------------------


def counted(events, counts):
    counts.elements += 1
    for name, bit in (("underflow", fs.UNDERFLOW), ("overflow", fs.OVERFLOW), ("inexact", fs.INEXACT),
                      ("flushed", FLUSHED), ("subnormal", SUBNORMAL)):  # fmt: skip
        setattr(counts, name, getattr(counts, name) + bool(events & bit))


def by_reference(a, b, fmt, accumulator):
    """Return (products, sums, results, exact) of a @ b, one operation at a time on exact integers."""
    attributes, acc = reference.RoundingAttributes(), accumulator.format
    x, y = ([[reference.decode(int(c), fmt) for c in row] for row in fs.encode(m, fmt)] for m in (a, b.T))
    products, sums = Counts(), Counts()
    results, exact = np.empty((len(x), len(y))), np.empty((len(x), len(y)), object)
    for i, row in enumerate(x):
        for j, column in enumerate(y):
            code = 0
            for p, q in zip(row, column, strict=True):
                before, total = code, reference.decode(code, acc)
                if accumulator.fused:
                    addend = p.fraction * q.fraction
                    code, events = reference.fma(p, q, total, acc, attributes)
                else:
                    term, happened = reference.multiply(p, q, acc, attributes)
                    counted(happened, products)
                    addend = reference.decode(term, acc).fraction
                    code, events = reference.add(total, reference.decode(term, acc), acc, attributes)
                counted(events, sums)
                sums.absorbed += addend != 0 and fs.decode(code, acc) == fs.decode(before, acc)
            results[i, j] = fs.decode(code, acc)
            exact[i, j] = sum(p.fraction * q.fraction for p, q in zip(row, column, strict=True))
    return products, sums, results, exact


@pytest.mark.parametrize("accumulator", [
    fs.Sequential(fs.E4M3), fs.Sequential(fs.E4M3, fused=True), fs.Sequential("bf16"),
], ids=str)  # fmt: skip
def test_counts_and_errors_equal_the_reference(accumulator):
    rng = np.random.default_rng(1)
    a = rng.normal(size=(5, 40)) * 2.0 ** rng.integers(-8, 4, (5, 40))
    b = rng.normal(size=(40, 3)) * 2.0 ** rng.integers(-8, 4, (40, 3))
    (row,) = fs.survey(a, b, formats=["e4m3"], accumulators=[accumulator]).rows
    products, sums, results, exact = by_reference(a, b, fs.E4M3, accumulator)
    assert row.sums == sums
    assert row.products == (None if accumulator.fused else products)
    assert row.nonfinite == 0
    ulps = [abs(Fraction(r) - e) / Fraction(float(fs.ulp(float(e), accumulator.format)))
            for r, e in zip(results.flat, exact.flat, strict=True)]  # fmt: skip
    assert row.max_ulps == pytest.approx(float(max(ulps)), rel=1e-12)
    assert row.mean_ulps == pytest.approx(float(sum(ulps) / len(ulps)), rel=1e-12)
    truth = np.array(
        [[float(sum(Fraction(p) * Fraction(q) for p, q in zip(r, c, strict=True))) for c in b.T] for r in a]
    )
    assert row.relative_error == pytest.approx(np.linalg.norm(results - truth) / np.linalg.norm(truth), rel=1e-12)


def test_results_that_overflow_are_counted_and_excluded_from_the_errors():
    a, b = np.array([[300.0, 300.0], [1.0, 1.0]]), np.array([[1.0], [1.0]])
    (row,) = fs.survey(a, b, formats=["e4m3"], accumulators=["same"]).rows
    assert (row.nonfinite, row.max_ulps, row.sums.overflow) == (0.5, 0, 1)
    (row,) = fs.survey(a[:1], b, formats=["e4m3"], accumulators=["same"]).rows
    assert row.nonfinite == 1
    assert math.isnan(row.max_ulps)
    assert math.isnan(row.relative_error)


def test_results_whose_exact_value_is_zero_have_no_ulps():
    (row,) = fs.survey(np.array([[1.0, -1.0]]), np.ones((2, 1)), formats=["fp16"], accumulators=["same"]).rows
    assert math.isnan(row.max_ulps)


def test_results_of_nonfinite_inputs_are_counted_separately():
    a = np.array([[1.0, np.nan], [300.0, 300.0], [np.inf, 0.0], [1.0, 2.0]])
    report = fs.survey(a, np.ones((2, 2)), formats=["e4m3"], accumulators=["same"])
    assert report.rows[0].nonfinite == 0.25  # the row of 300s; its exact sums are finite
    assert (report.products[0].results, report.products[0].nonfinite_exactly) == (8, 4)
    for text in (" ".join(str(report).split()), report._repr_html_()):
        assert "a also holds 1 NaN and 1 infinity." in text
        assert "4 of 8 results have a NaN or infinite input: they are not counted as lost" in text
    data = report.to_dict()
    assert (data["tensors"][0]["nan"], data["tensors"][0]["infinite"]) == (1, 1)
    assert data["products"][0]["nonfinite_exactly"] == 4


def test_finite_inputs_have_no_note(shipped):
    assert "also holds" not in str(shipped)
    assert "infinite input" not in str(shipped)
    assert {p.nonfinite_exactly for p in shipped.products} == {0}


def test_the_caption_explains_the_measures(shipped):
    text = " ".join(str(shipped).split())
    assert "infinite or NaN although the exact product of the given inputs is finite" in text
    assert "in the Frobenius norm" in text


def test_relative_errors_do_not_overflow_or_underflow():
    for scale in (1e-160, 1e-30, 1e150):
        (row,) = fs.survey(np.array([[scale]]), np.array([[1.1]]), formats=["fp64"], accumulators=["bf16"]).rows
        assert row.relative_error < 0.01 or row.nonfinite or scale < 1e-40


def test_tensor_rows_count_the_non_zero_numbers():
    (row,) = fs.survey(
        np.array([[1.0, 0.0, 1e-9, 1e-6, 1e6, np.nan, np.inf]]).T, formats=["fp16"], accumulators=["same"]
    ).tensor_rows
    assert row.nonzero == 4
    assert [row.share(event) for event in ("flushed", "subnormal", "overflow")] == [0.25] * 3


# -- matrix units ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def units():
    """All matrix units on the same small matrices."""
    rng = np.random.default_rng(11)
    a, b = rng.normal(size=(12, 96)), rng.normal(size=(96, 8))
    return a, b, fs.survey(a, b, formats=["fp16", "bf16", "e4m3"], accumulators=surveys.UNITS)


def test_tensorcore_stands_for_every_unit_that_takes_the_format(units):
    *_, report = units
    assert [str(accumulation) for accumulation in report.accumulators] == [
        f"tensorcore({name})" for name, arch in fs.tensorcore.ARCHITECTURES.items() if arch.processor == "GPU"
    ]
    by_format = {}
    for row in report.rows:
        by_format.setdefault(row.format.name, []).append(row.accumulator.arch)
    nvidia, amd = ["volta", "turing", "ampere", "ada", "hopper", "blackwell", "blackwell-rtx"], [
        "cdna1", "cdna2", "cdna3",
    ]  # fmt: skip
    assert by_format == {"FP16": nvidia + amd, "BF16": nvidia[2:] + amd, "E4M3": nvidia[3:]}
    assert report.table("relative_error")["E4M3"]["tensorcore(volta)"] is None
    assert fs.survey(np.eye(2), formats="fp64", accumulators="TensorCore").rows[0].accumulator.arch == "ampere"


def test_units_are_compared_with_the_one_before(units):
    a, b, report = units
    before = {}
    for row in report.rows:
        x, y = fs.array(a, row.format), fs.array(b, row.format)
        result = fs.matmul(x, y, accumulate=row.accumulator).codes
        expected = None if row.format not in before else np.mean(result != before[row.format])
        assert row.differs == expected, row
        before[row.format] = result
    found = {(row.format.name, row.accumulator.arch): row.differs for row in report.rows}
    assert found["FP16", "volta"] is None
    assert found["FP16", "ampere"] == found["FP16", "ada"] == 0 < found["FP16", "turing"]
    assert found["E4M3", "blackwell"] > 0.3 > found["E4M3", "blackwell-rtx"] == 0


def test_two_nans_are_equal_and_other_accumulators_are_not_compared():
    report = fs.survey(np.array([[np.inf, np.inf], [1, 1]]), np.array([[1.0], [-1.0]]), formats="bf16",
                       accumulators=["hopper", "cdna1", "fp32", fs.TensorCore("ampere")])  # fmt: skip
    assert [row.differs for row in report.rows] == [None, 0, None, None]


def test_units_in_the_report(units):
    *_, report = units
    text = str(report)
    assert text.count("differs") >= 2  # the head of the column, and its legend
    assert "whose bits differ from the matrix unit in the row above" in " ".join(text.split())
    assert "       hopper " in text
    data = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert [row["differs"] for row in data["rows"]] == [row.differs for row in report.rows]
    assert "differs" not in str(fs.survey(np.eye(2), formats="fp16", accumulators=["fp32", "hopper"]))


def test_a_unit_that_does_not_take_the_inputs_is_omitted():
    report = fs.survey(np.eye(2), formats=["fp32", "e4m3"], accumulators=["tensorcore(hopper)"])
    assert [(row.format.name, str(row.accumulator)) for row in report.rows] == [("E4M3", "tensorcore(hopper)")]
    promoted = fs.survey(np.eye(2), formats="e5m2", accumulators="blocked(hopper, 128, fp32)")
    assert promoted.rows[0].relative_error == 0
    named = fs.survey(np.eye(2), formats="fp32", accumulators="tensorcore(ampere, mma.m16n8k8.tf32)")
    assert named.rows[0].sums.elements > 0


@pytest.mark.parametrize(("formats", "accumulators", "message"), [
    (["fp32", "e4m3"], "volta", "accumulators: volta does not multiply FP32"),
    (["e3m4"], "tensorcore", "no matrix unit multiplies E3M4"),
    (["fp16"], ["fp32", "blocked(cdna3, 8, fp32)", "tensorcore(hopper, wgmma.k32)"], "does not multiply FP16"),
    (["fp16"], "tensorcore(pascal)", "unknown architecture 'pascal'"),
])  # fmt: skip
def test_a_unit_that_takes_no_format_is_an_error(formats, accumulators, message):
    with pytest.raises(ValueError, match=message):
        fs.survey(np.eye(2), formats=formats, accumulators=accumulators)


# -- what can be asked for ------------------------------------------------------------------------------------------


def test_products_by_name_and_expression():
    x, y = np.ones((4, 3)), np.ones((4, 2))
    tensors = {"x": x, "y": y}
    report = fs.survey(tensors, products={"one": "x.T @ y", "two": "y.T@x"}, formats=["fp16"], accumulators=["same"])
    assert [(p.name, p.expression, p.shape) for p in report.products] == [
        ("one", "x.T @ y", (3, 4, 2)), ("two", "y.T@x", (2, 4, 3)),
    ]  # fmt: skip
    assert report.title == "x, y"
    assert fs.survey(x, formats=["fp16"], accumulators=["same"]).products[0].expression == "a.T @ a"
    assert fs.survey(x.T, y, formats=["fp16"], accumulators=["same"], title="T").title == "T"


@pytest.mark.parametrize("x", [
    [[1, 2], [3, 4]], np.array([[1, 2], [3, 4]], np.int8), np.float16([[1, 2], [3, 4]]),
    np.array([[1, 2], [3, 4]], ">f4"), fs.array([[1, 2], [3, 4]], "bf16"), np.arange(1.0, 5).reshape(2, 2)[::-1, ::-1],
], ids=lambda x: type(x).__name__ + str(getattr(x, "dtype", "")))  # fmt: skip
def test_any_real_matrix_is_accepted(x):
    report = fs.survey(x, x, formats=["fp16"], accumulators=["exact(fp16)"])
    assert report.rows[0].relative_error == 0
    assert report.rows[0].sums.elements == 4


def test_same_stands_for_the_inputs_format_even_without_a_name():
    odd = fs.FloatFormat("odd", 3, 4, specials="finite")
    report = fs.survey(
        np.eye(2), np.eye(2), formats=[odd, "fp16"], accumulators=["same", "exact(same)", "sequential(same, fused)"]
    )
    assert [row.accumulator for row in report.rows] == [
        make for fmt in (odd, fs.FP16) for make in (fs.Sequential(fmt), fs.Exact(fmt), fs.Sequential(fmt, fused=True))
    ]
    assert report.table("max_ulps")["odd"] == {"same": 0, "exact(same)": 0, "sequential(same, fused)": 0}


def test_an_accumulator_may_have_a_format_without_a_name():
    accumulation = fs.Sequential(fs.FloatFormat("odd", 3, 4, specials="finite"))
    report = fs.survey(np.eye(2), formats=["fp16"], accumulators=[accumulation])
    assert report.rows[0].accumulator is accumulation
    assert report.table()["FP16"] == {"sequential(odd)": 0.0}


def test_the_exact_product_ignores_the_context():
    with fs.context(rounding="toward_zero", daz=True, ftz=True):
        (row,) = fs.survey(np.array([[1e-320]]), np.ones((1, 1)), formats=["fp64"], accumulators=["same"]).rows
    assert row.relative_error == 1  # the input was read as zero, but it is none


def test_each_accumulation_is_computed_once():
    report = fs.survey(np.eye(2), formats=["fp16"], accumulators=["same", "fp16", "FP16", fs.Sequential(fs.FP16)])
    assert len(report.rows) == 1
    assert set(report.table()["FP16"].values()) == {0.0}


@pytest.mark.parametrize(
    ("shape", "limit"), [((100, 7, 90), 1000), ((1, 50, 1), 20), ((3, 5, 1000), 300), ((2, 2, 2), 1)]
)
def test_large_products_are_sampled_within_the_limit(shape, limit):
    m, k, n = shape
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(m, k)), rng.normal(size=(k, n))
    report = fs.survey(a, b, formats=["fp16"], accumulators=["fp32"], limit=limit)
    (product,) = report.products
    rows, terms, columns = product.used
    assert product.shape == shape
    assert rows * terms * columns <= limit
    assert terms == min(k, limit)  # the length of the sums is what matters most
    assert report.rows[0].sums.elements == rows * terms * columns
    if product.used != product.shape:
        assert f"{rows} of {m}" in str(report) or rows == m
    assert product.a[0].tolist() == a[0, :terms].tolist()
    if rows > 1:
        assert product.a[-1].tolist() == a[-1, :terms].tolist()


def test_one_name_needs_no_list():
    listed = fs.survey(np.eye(2), formats=["fp16"], accumulators=["same"], products=["a @ a"])
    for fmt, accumulation in (("fp16", "same"), (fs.FP16, fs.Sequential("fp16")), (np.float16, "fp16")):
        assert fs.survey(np.eye(2), formats=fmt, accumulators=accumulation, products="a @ a").rows == listed.rows


@pytest.mark.parametrize(("a", "b", "advice"), [
    ((2, 3), (4, 2), "b @ a"), ((3, 2), (3, 4), "a.T @ b"), ((2, 3), (4, 3), "a @ b.T"), ((2, 3), (4, 5), None),
])  # fmt: skip
def test_the_error_of_shapes_suggests_a_product_that_fits(a, b, advice):
    with pytest.raises(ValueError, match="do not fit") as error:
        fs.survey(np.ones(a), np.ones(b))
    assert str(error.value).endswith(
        f"; products='{advice}' would fit" if advice else f"{a[1]} columns meet {b[0]} rows"
    )
    if advice:
        assert fs.survey(np.ones(a), np.ones(b), products=advice, formats="fp16", accumulators="same").rows


def test_progress_wraps_every_task():
    seen = []
    fs.survey(
        np.eye(2),
        formats=["fp16", "bf16"],
        accumulators=["same", "fp32"],
        progress=lambda tasks: seen.extend(tasks) or tasks,
    )
    assert len(seen) == 4


def ones(**shapes):
    return {name: np.ones(shape) for name, shape in shapes.items()}


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda: fs.survey(np.ones(3)), ValueError, r"a must be a matrix .* \(3,\)"),
    (lambda: fs.survey(np.ones((2, 3)), np.ones((2, 3))), ValueError, "3 columns meet 2 rows"),
    (lambda: fs.survey(np.zeros((2, 2))), ValueError, "a has no finite non-zero number"),
    (lambda: fs.survey(np.ones((0, 2))), ValueError, "a has no finite non-zero number"),
    (lambda: fs.survey(np.eye(2) * 1j), TypeError, "a is complex"),
    (lambda: fs.survey(np.eye(2, dtype=bool)), Exception, "a has dtype bool"),
    (lambda: fs.survey(np.array([["x"]])), Exception, "a "),
    (lambda: fs.survey(None, np.eye(2)), TypeError, "b is given without a"),
    (lambda: fs.survey({"x": np.eye(2)}, np.eye(2)), TypeError, "b must be omitted"),
    (lambda: fs.survey({}), ValueError, "at least one tensor"),
    (lambda: fs.survey(dict.fromkeys("xyz", np.eye(2))), ValueError,
     r"products must name the tensors to multiply; there are x \(2, 2\), y \(2, 2\), z \(2, 2\); write 'x @ y'"),
    (lambda: fs.survey(ones(x=(2, 3), y=(4, 5), z=(4, 3))), ValueError, r"write 'x @ z\.T'"),
    (lambda: fs.survey(ones(x=(2, 3), y=(4, 5), z=(6, 7))), ValueError, r"write 'x\.T @ x'"),
    (lambda: fs.survey(ones(**{f"h{i}": (i + 2, 1) for i in range(50)})), ValueError, r"h11 \(13, 1\), ... \(50 in"),
    (lambda: fs.survey(np.eye(2), products=["a * a"]), ValueError, r"cannot read 'a \* a'; write"),
    (lambda: fs.survey(np.eye(2), products=["a @ c"]), ValueError, "names 'c', but there are a"),
    (lambda: fs.survey(np.eye(2), products=[]), ValueError, "at least one product"),
    (lambda: fs.survey(np.eye(2), formats=[]), ValueError, "formats must name at least one"),
    (lambda: fs.survey(np.eye(2), accumulators=[]), ValueError, "accumulators must name at least one"),
    (lambda: fs.survey(np.eye(2), formats=["e8m0"]), ValueError, "E8M0 is a scale format"),
    (lambda: fs.survey(np.eye(2), formats=["fp61"]), ValueError, "did you mean"),
    (lambda: fs.survey(np.eye(2), accumulators=["kahn(fp16)"]), ValueError, "unknown accumulation"),
    (lambda: fs.survey(np.eye(2), limit=0), ValueError, "limit must be a positive integer"),
    (lambda: fs.survey(np.eye(2), limit=True), ValueError, "limit must be a positive integer"),
])  # fmt: skip
def test_bad_input_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


# -- the report ----------------------------------------------------------------------------------------------------


def test_report_as_json(shipped):
    data = json.loads(json.dumps(shipped.to_dict(), allow_nan=False))
    assert set(data) == {"title", "formats", "accumulators", "tensors", "products", "rows"}
    assert len(data["rows"]) == len(shipped.rows) == 72
    assert len(data["tensors"]) == 15
    row = data["rows"][0]
    assert set(row) == {"product", "format", "accumulator", "products", "sums", *survey_report.MEASURES}
    assert row["sums"]["elements"] == 512 * 64 * 32
    nothing = next(r for r in data["rows"] if r["format"] == "E4M3" and r["product"] == "gradient of the weights")
    assert nothing["relative_error"] == 1
    assert nothing["max_ulps"] is None  # the exact product of the rounded inputs is zero everywhere


def test_report_as_a_tidy_table(shipped):
    pandas = pytest.importorskip("pandas")
    table = shipped.to_pandas()
    assert isinstance(table, pandas.DataFrame)
    assert len(table) == len(shipped.rows)
    assert set(table.columns) == {"product", "format", "accumulator", *survey_report.MEASURES,
                                  *("_".join(column) for column in survey_report.EVENT_COLUMNS)}  # fmt: skip
    assert table["sums_absorbed"].between(0, 1).all()
    assert table.loc[table.accumulator == "exact(fp32)", "products_flushed"].isna().all()


def test_to_pandas_without_pandas(shipped, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match='pip install "pandas>='):
        shipped.to_pandas()


def test_report_prints(shipped):
    text = str(shipped)
    assert text.startswith(f"{shipped.title}: the inputs, rounded\n")
    for product in shipped.products:
        assert f"{product.name}: {product.expression}   (M = " in text
    lines = [line.split() for line in text.splitlines()]
    assert ["gradients", "FP32", ".", ".", "."] in lines
    assert ["FP16", "39.4", "59.2", "."] in lines
    assert max(map(len, text.splitlines())) <= 120
    assert text.count("absrb") == 4  # three heads and the legend
    assert "by the block" not in text


def test_the_legend_explains_counts_by_block():
    a, b = np.float32([[1.0, 2.0**-20]]), np.float32([[1.0], [2.0**-20]])
    report = fs.survey(a, b, formats=["fp16"], accumulators=["fp32", "hopper"])
    assert "Sums of a matrix unit are counted by block" in " ".join(str(report).split())


def test_report_prints_narrowly(shipped):
    import io

    from rich.console import Console

    console = Console(file=io.StringIO(), width=80, color_system=None)
    console.print(shipped)
    text = console.file.getvalue()
    assert max(map(len, text.splitlines())) <= 80
    assert "\u2026" not in text  # nothing is cut
    assert text.count("relative") >= 3


def test_names_are_printed_as_they_are():
    report = fs.survey({"w[red]<b>": np.eye(2)}, formats=["fp16"], accumulators=["same"])
    assert "w[red]<b> FP16" in str(report)
    assert "w[red]&lt;b&gt;" in report._repr_html_()


def test_report_in_a_notebook(shipped):
    html = shipped._repr_html_()
    assert html.count("<table>") == html.count("</table>") == 4
    assert "activations.T @ gradients" in html
    assert "<0.1" not in html.replace("&lt;0.1", "")
    assert html.count("<tr>") == html.count("</tr>") == 15 + 72 + 4


def test_table_errors(shipped):
    with pytest.raises(ValueError, match="measure must be one of max_ulps"):
        shipped.table("ulps")
    with pytest.raises(ValueError, match="product must be one of forward pass"):
        shipped.table("max_ulps", "no such")


@pytest.mark.parametrize(("share", "cell"), [(None, "-"), (0, "."), (1, "100"), (0.99999, "99.9"), (1e-9, "<0.1"),
                                             (0.005, "0.5"), (0.4237, "42.4")])  # fmt: skip
def test_percent_cells_round_to_0_or_100_only_if_exact(share, cell):
    assert survey_report._percent(share) == cell


@pytest.mark.parametrize(("value", "cell"), [(math.nan, "-"), (0, "0"), (0.5, "0.50"), (9.96, "10.0"), (99.6, "100"),
                                             (1234.5, "1234"), (99999, "1.0e+05"), (0.01, "1.0e-02")])  # fmt: skip
def test_number_cells(value, cell):
    assert survey_report._number(value) == cell


def test_surveys_draw_nothing():
    code = "import floatsim.analysis.survey.survey, sys; assert not {'matplotlib', 'rich', 'typer'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_the_shipped_tensors_are_the_surveyed_ones(shipped):
    for name, x in datasets.digits().items():
        assert np.array_equal(shipped.tensors[name], x)
