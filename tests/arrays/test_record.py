"""record: the counts, the places of events, and that recording changes nothing else."""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest

import floatsim as fs
from tests.marks import cases


def test_counts_of_an_addition():
    a, b = fs.array([1.0, 60000.0, 6e-8, 0.0], "fp16"), fs.array([1e-5, 60000.0, -6e-8, 6e-8], "fp16")
    with fs.record() as log:
        fs.add(a, b)
    counts = log["add"]
    assert (counts.elements, counts.overflow, counts.absorbed, counts.subnormal, counts.inexact) == (4, 1, 1, 1, 2)
    assert list(log.counts) == ["add"]
    assert log.total == counts


def test_flushed_and_underflow():
    a = fs.array([1e-5, 1e-3, 6.1e-5], "fp16")
    with fs.record() as log:
        fs.multiply(a, a)
    assert log["multiply"].flushed == 2 and log["multiply"].underflow == 3
    with fs.record() as log:
        fs.multiply(a, 0.5, ftz=True)
    assert log["multiply"].flushed == 2


def test_the_same_results_with_and_without():
    rng = np.random.default_rng(1)
    a, b = (fs.from_codes(rng.integers(0, 2**16, 5000).astype(np.uint16), "fp16") for _ in range(2))
    plain = [f(a, b).codes for f in (fs.add, fs.multiply, fs.divide)]
    with fs.record():
        recorded = [f(a, b).codes for f in (fs.add, fs.multiply, fs.divide)]
    assert all(np.array_equal(p, r) for p, r in zip(plain, recorded, strict=True))


def test_nested_records_both_count():
    x = fs.array([60000.0], "fp16")
    with fs.record() as outer:
        fs.add(x, x)
        with fs.record() as inner:
            fs.add(x, x)
    assert outer["add"].overflow == 2 and inner["add"].overflow == 1


def test_other_threads_are_not_recorded():
    x = fs.array([60000.0], "fp16")
    with fs.record() as log:
        thread = threading.Thread(target=lambda: fs.add(x, x))
        thread.start()
        thread.join()
    assert log.counts == {}


def test_bound_threads_are_recorded():
    """No count is lost although several threads fill one log."""
    x = fs.array([1.0, 60000.0], "fp16")

    def work(_):
        for _ in range(20):
            fs.add(x, x)
        return fs.sum(x, accumulate="fp16")

    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with fs.record(where=True) as log, fs.record() as outer, ThreadPoolExecutor(8) as pool:
            list(pool.map(fs.bind_context(work), range(40)))
    finally:
        sys.setswitchinterval(switch)
    for each in (log, outer):
        assert (each["add"].elements, each["add"].overflow, each["sum.sum"].elements) == (1600, 800, 80)
    assert sum(event.operation == "add" for event in log.where) == 10


def test_where():
    a, b = fs.array([[1.0, 60000.0]], "fp16"), fs.array([[3.0], [60000.0]], "fp16")
    with fs.record(where=True, keep=1) as log:
        fs.add(a, b)
    (overflow,) = [event for event in log.where if event.kind == "overflow"]
    assert (overflow.index, overflow.operands, overflow.result) == ((1, 1), (60000.0, 60000.0), np.inf)
    assert "add[1, 1] overflow: (60000, 60000) -> inf" in str(log)


@pytest.mark.parametrize("given", ["0x1p1000", 10**400, 1e30], ids=str)
def test_where_keeps_what_was_given(given):
    with fs.record(where=True) as log:
        fs.encode(given, "fp16")
    assert log.where[0].kind == "overflow" and log.where[0].operands == (given,)


def test_where_shows_operands_that_are_overwritten():
    with fs.record(where=True) as log:
        x = fs.array([6e4], "fp16")
        x += x
        y = np.float32([1e9])
        fs.quantize(y, "e4m3", out=y)
    assert [e.operands for e in log.where if e.kind == "overflow"] == [(6e4, 6e4), (1e9,)]


def test_names_that_were_not_recorded_are_an_error():
    with fs.record() as log:
        fs.add(1.0, 2.0)
    with pytest.raises(KeyError, match="recorded are: add"):
        log["multiply"]
    with pytest.raises(KeyError, match="no matrix product or reduction was recorded"):
        log.first["absorbed"]
    with fs.record(events=["overflow", "absorbed"]) as log:
        fs.sum(np.ones(3, np.float16), accumulate="fp16")
    with pytest.raises(KeyError, match="'nope' is not in `first`; it has overflow, absorbed"):
        log.first["nope"]


def test_to_dict_and_pandas():
    pandas = pytest.importorskip("pandas")
    with fs.record() as log:
        fs.sqrt(fs.array([-1.0, 2.0], "bf16"))
    assert json.loads(json.dumps(log.to_dict()))["sqrt"]["invalid"] == 1
    frame = log.to_pandas()
    assert isinstance(frame, pandas.DataFrame) and frame.loc["sqrt", "inexact"] == 1
    assert "sqrt" in str(log) and "<table>" in log._repr_html_()


def test_nothing_recorded_and_bad_arguments():
    with fs.record() as log:
        pass
    assert str(log) == "nothing recorded"
    with pytest.raises(ValueError, match="keep must be"), fs.record(keep=-1):
        pass
    with pytest.raises(TypeError, match="where must be"), fs.record(where=3):
        pass


@pytest.mark.full
def test_matmul_counts_by_site():
    a, b = np.float16([[300.0, 1e-4]]), np.float16([[300.0], [1e-4]])
    with fs.record() as log:
        fs.matmul(a, b, accumulate="fp16")
    assert log["matmul.product"].overflow == 1 and log["matmul.product"].flushed == 1
    assert log["matmul.sum"].elements == 2
    with fs.record() as log:
        fs.matmul(a, b, accumulate="sequential(fp16, fused)")
    assert "matmul.product" not in log.counts


# -- scopes ------------------------------------------------------------------------------------------------------------


BIG = fs.array([1.0, 60000.0], "fp16")


def test_scopes_are_counted_apart_and_together():
    @fs.scope("block")
    def block():
        fs.multiply(BIG, BIG)

    with fs.scope("before"), fs.record() as log:
        fs.add(BIG, BIG)
    assert list(log.scopes) == ["before"]
    with fs.record() as log:
        fs.add(BIG, BIG)
        with fs.scope("model") as outer:
            fs.add(BIG, BIG)
            with fs.scope("layer1") as inner:
                fs.add(BIG, BIG)
                block()
        fs.add(BIG, BIG)
    assert (outer, inner) == ("model", "model/layer1")
    assert {scope: {op: counts.overflow for op, counts in table.items()} for scope, table in log.scopes.items()} == {
        "": {"add": 2},
        "model": {"add": 1},
        "model/layer1": {"add": 1},
        "model/layer1/block": {"multiply": 1},
    }
    assert log["add"].overflow == 4 and log["multiply"].overflow == 1 and log.total.overflow == 5
    assert log.to_dict()["add"]["overflow"] == 4
    assert str(log).splitlines()[0].split()[:2] == ["scope", "operation"]
    assert "model/layer1/block  multiply " in str(log)


def test_a_scope_ends_with_its_block():
    with fs.record() as log:
        with pytest.raises(ZeroDivisionError), fs.scope("a"):
            fs.add(BIG, BIG)
            raise ZeroDivisionError
        fs.add(BIG, BIG)
    assert [call.scope for call in log.calls] == ["a", ""]


def test_scopes_in_bound_threads():
    def work(name):
        with fs.scope(name):
            fs.add(BIG, BIG)

    with fs.record() as log, fs.scope("model"), ThreadPoolExecutor(4) as pool:
        list(pool.map(fs.bind_context(work), [f"layer{i % 3}" for i in range(30)]))
        fs.add(BIG, BIG)
    assert {scope: table["add"].elements for scope, table in log.scopes.items()} == {
        "model": 2, "model/layer0": 20, "model/layer1": 20, "model/layer2": 20,
    }  # fmt: skip
    assert [call.number for call in log.calls] == list(range(31))


@pytest.mark.parametrize(("name", "error"), [(3, TypeError), (None, TypeError), ("", ValueError), ("a//b", ValueError),
                                             ("/a", ValueError), ("a/", ValueError)])  # fmt: skip
def test_bad_scopes_are_errors(name, error):
    with pytest.raises(error, match="name must be"), fs.scope(name):
        pass


def python_calls(function):
    """The names of all Python functions that a call runs."""
    names = []
    sys.setprofile(lambda frame, event, _: names.append(frame.f_code.co_name) if event == "call" else None)
    try:
        function()
    finally:
        sys.setprofile(None)
    return names


@pytest.mark.parametrize("call", [lambda: BIG + BIG, lambda: fs.sum(BIG), lambda: fs.matmul(BIG, BIG)])
def test_operations_do_not_read_the_scope_unless_recorded(call):
    for _ in range(3):
        call()
    plain = python_calls(call)
    with fs.scope("a"), fs.scope("b"):
        assert python_calls(call) == plain


# -- calls -------------------------------------------------------------------------------------------------------------


MATRIX = fs.array([[6e4, 6e3, 1e-7], [1.0, 2.0, 3.0]], "fp16")


@pytest.mark.parametrize(
    ("call", "operation", "sites"),
    [
        (lambda: MATRIX + 1, "add", {"add"}),
        (lambda: fs.quantize(MATRIX.values, "e4m3"), "quantize", {"quantize"}),
        (lambda: fs.scalb(MATRIX, 2), "scalb", {"scalb"}),
        (lambda: MATRIX @ MATRIX.T, "matmul", {"matmul.sum", "matmul.product", "matmul.result"}),
        (
            lambda: fs.matmul(MATRIX, MATRIX.T, np.ones((2, 2)), alpha=2, beta=3, accumulate="fp16", format="bf16"),
            "matmul",
            {"matmul.sum", "matmul.product", "matmul.scale", "matmul.result"},
        ),
        (lambda: fs.vdot(MATRIX, MATRIX, accumulate="exact(fp16)"), "matmul", {"matmul.sum"}),
        (lambda: fs.sum(MATRIX, accumulate="fp16", format="bf16"), "sum", {"sum.sum", "sum.result"}),
        (lambda: fs.mean(MATRIX), "mean", {"mean.sum", "mean.result"}),
        (lambda: fs.norm(MATRIX), "norm", {"norm.sum", "norm.product", "norm.result"}),
        (
            lambda: fs.var(MATRIX),
            "var",
            {"var.mean.sum", "var.mean.result", "var.difference", "var.sum", "var.product", "var.result"},
        ),
        (lambda: fs.prod(MATRIX, format="fp16"), "prod", {"prod.product", "prod.result"}),
        (lambda: fs.cumsum(MATRIX, format="fp16"), "cumsum", {"cumsum.sum", "cumsum.result"}),
    ],
)
def test_one_public_call_is_one_entry(call, operation, sites):
    with fs.record() as outer:
        call()
        with fs.record() as log:
            call()
            call()
    assert [(each.number, each.operation) for each in log.calls] == [(0, operation), (1, operation)]
    assert set(log.calls[0].counts) == set(log.calls[1].counts) == sites == set(log.counts)
    assert [each.number for each in outer.calls] == [0, 1, 2]


def test_a_call_that_fails_does_not_take_the_next_ones_events():
    with fs.record() as log:
        with pytest.raises(ValueError, match="out is"):
            fs.mean(MATRIX, out=np.zeros(3, np.float32))
        fs.mean(MATRIX)
        fs.mean(MATRIX)
    assert [call.counts["mean.result"].elements for call in log.calls] == [1, 1]


def test_totals_are_the_sums_of_the_calls():
    rng = np.random.default_rng(7)
    with fs.record(events=["overflow", "inexact", "absorbed", "cancellation"]) as log:
        for _ in range(40):
            x = fs.array(np.ldexp(rng.standard_normal(30), int(rng.integers(-30, 18))), "fp16")
            with fs.scope(f"layer{rng.integers(3)}"):
                rng.choice([fs.add, fs.subtract, fs.multiply, fs.matmul])(x, x[::-1])
                fs.sum(x, accumulate="fp16")
    for operation, total in log.to_dict().items():
        for parts in ([call.counts for call in log.calls], list(log.scopes.values())):
            for event, number in total.items():
                found = [getattr(part[operation], event) for part in parts if operation in part]
                assert (None if found[0] is None else sum(found)) == number, (operation, event)


def test_every_product_keeps_its_first():
    """The entries equal the `first` of a log of one call, also for k beyond the smallest integer types."""
    rng = np.random.default_rng(3)
    pairs = [[fs.array(rng.standard_normal(shape) * 300, "fp16") for shape in ((4, k), (k, 5))] for k in (1, 7, 300)]
    ones = [fs.array(np.ones(shape), "fp16") for shape in ((1, 70000), (70000, 65))]
    cases = [(pair, "fp16") for pair in pairs] + [(ones, text) for text in ("e5m2", "fp16", "ieee(8,15)", "fp32")]
    with fs.record() as log:
        for (a, b), accumulate in cases:
            fs.matmul(a, b, accumulate=accumulate)
    highest = []
    for ((a, b), accumulate), call in zip(cases, log.calls, strict=True):
        with fs.record() as alone:
            fs.matmul(a, b, accumulate=accumulate)
        assert list(call.first) == list(alone.first)
        for event, k in alone.first.items():
            assert call.first[event].dtype == np.int64 and np.array_equal(call.first[event], k), event
        highest.append(int(call.first["absorbed"].max()))
    assert highest[-4:] == [8, 2048, 65536, -1]
    assert np.array_equal(log.first["absorbed"], log.calls[-1].first["absorbed"])
    with fs.record() as log:
        fs.add(1.0, 2.0)
    with pytest.raises(KeyError, match="no matrix product or reduction"):
        log.calls[0].first["absorbed"]


def test_calls_can_be_left_out():
    with fs.record(calls=False) as log, fs.scope("a"):
        fs.sum(BIG, accumulate="fp16")
        fs.sum(BIG, accumulate="fp16")
    assert log.calls == [] and log["sum.sum"].elements == 4 and log.scopes["a"]["sum.sum"].elements == 4
    assert log.first["absorbed"].shape == ()
    with pytest.raises(ValueError, match=r"record\(calls=False\)"):
        log.records()
    with pytest.raises(TypeError, match="calls must be"), fs.record(calls=1):
        pass


def test_records_and_pandas_have_one_row_a_call_and_site():
    pandas = pytest.importorskip("pandas")
    with fs.record(events=["overflow"], lines=True) as log:
        for name in ("layer1", "layer2"):
            with fs.scope(name):
                fs.matmul(MATRIX, MATRIX.T, accumulate="fp16")
                fs.add(BIG, BIG)
    frame = log.to_pandas()
    assert list(frame.columns) == ["scope", "operation", "call", "line", "elements", "overflow"]
    assert list(frame.index) == list(frame["operation"]) == 2 * ["matmul.sum", "matmul.product", "add"]
    assert list(frame["call"]) == [0, 0, 1, 2, 2, 3] and list(frame["scope"]) == 3 * ["layer1"] + 3 * ["layer2"]
    assert frame.groupby(["scope", "operation"])["overflow"].sum()["layer2", "add"] == 1
    assert frame.to_dict("records") == log.records() == json.loads(json.dumps(log.records()))
    totals = log.to_pandas(by="operation")
    assert list(totals.columns) == ["elements", "overflow"] and totals.loc["add", "overflow"] == 2
    with pytest.raises(ValueError, match="by must be 'call' or 'operation', not 'scope'"):
        log.to_pandas(by="scope")
    with fs.record() as log:
        pass
    assert isinstance(log.to_pandas(), pandas.DataFrame) and "scope" in log.to_pandas().columns


def test_the_line_of_the_caller():
    here = sys._getframe().f_lineno
    with fs.record(lines=True, where=True) as log, fs.record() as plain:
        fs.add(BIG, BIG)
        BIG + BIG  # through NumPy's operators
        np.add(BIG, BIG)
        fs.mean(BIG)
        np.matmul(MATRIX, MATRIX.T)
        fs.bind_context(lambda: fs.sum(BIG))()
        fs.quantize([1e9], "fp16")
    lines = [int(call.line.removeprefix(f"{__file__}:")) - here for call in log.calls]
    assert lines == [2, 3, 4, 5, 6, 7, 8]
    assert all(call.line is None for call in plain.calls)
    assert log.where[0].line == log.calls[0].line and str(log.where[0]).endswith(f"-> inf, line {log.calls[0].line}")
    with pytest.raises(TypeError, match="lines must be"), fs.record(lines=None):
        pass


@pytest.mark.parametrize("events", [None, ["overflow"], ["overflow", "cancellation"]])
def test_recorded_products_are_planned_once(events):
    def call():
        with fs.record(events=events), fs.record(events=events):
            fs.matmul(MATRIX, MATRIX.T, accumulate="fp16")
            fs.sum(MATRIX, accumulate="fp16")

    call()
    assert "_planned" not in python_calls(call)


# -- the places of events in sums --------------------------------------------------------------------------------------


def check_places(log, call, operands_at, keep):
    """The events of a call against its `first`: the first elements of each kind, with the operands of term k."""
    found = {}
    for event in log.where:
        assert (event.call, event.operation) == (call.number, call.operation)
        found.setdefault(event.kind, []).append(event)
    for kind, k in call.first.items():
        places = [tuple(map(int, place)) for place in np.argwhere(k >= 0)[:keep]]
        assert [event.index for event in found.pop(kind, [])] == places
    for event in log.where:
        assert event.k == call.first[event.kind][event.index]
        np.testing.assert_equal(event.operands, operands_at(event.index, event.k))
    assert not found and log.where


@pytest.mark.parametrize(
    "accumulate", cases(quick=["fp16", "pairwise(e5m2)", "blocked(fp16, 4, bf16)", "kahan(fp16)"], full=["hopper"])
)
def test_places_in_products(accumulate):
    rng = np.random.default_rng(5)
    a = fs.array(np.ldexp(rng.standard_normal((3, 1, 6, 40)), rng.integers(-18, 15, (3, 1, 6, 40))), "fp16")
    b = fs.array(np.ldexp(rng.standard_normal((2, 40, 5)), rng.integers(-18, 15, (2, 40, 5))), "fp16")
    with fs.record(where=True, keep=4) as log:
        result = fs.matmul(a, b, accumulate=accumulate)
    assert result.shape == (3, 2, 6, 5)

    def operands(index, k):
        n, m, i, j = index
        return float(a.values[n, 0, i, k]), float(b.values[m, k, j])

    check_places(log, log.calls[0], operands, 4)
    values = fs.decode(result.codes, result.format) if isinstance(result, fs.FloatArray) else result
    np.testing.assert_equal([e.result for e in log.where], [float(values[e.index]) for e in log.where])


def test_places_in_products_of_vectors():
    with fs.record(where=True, events=["overflow"]) as log:
        fs.dot(MATRIX, fs.array([1.0, 1.0, 7.0], "fp16"), accumulate="fp16")
        fs.dot(MATRIX[0], MATRIX[0], accumulate="fp16", format="e4m3")
    assert list(map(str, log.where[:2])) == [
        "matmul[0] overflow at k = 1: (6000, 1) -> inf",
        "matmul[] overflow at k = 0: (60000, 60000) -> inf",
    ]


@pytest.mark.parametrize(
    ("function", "axis"),
    [(fs.sum, 1), (fs.sum, (0, 2)), (fs.sum, None), (fs.norm, 0), (fs.prod, 2), (fs.cumsum, 1), (fs.cumsum, None)],
)
def test_places_in_reductions(function, axis):
    rng = np.random.default_rng(6)
    x = fs.array(np.ldexp(rng.standard_normal((5, 4, 6)), rng.integers(-20, 16, (5, 4, 6))), "fp16")
    masks = [None] if function is fs.cumsum else [None, rng.random(x.shape) < 0.6]
    for mask in masks:
        keywords = {} if mask is None else {"where": mask}
        with fs.record(where=True, keep=3) as log:
            function(x, axis, accumulate="fp16", **keywords)

        def operands(index, k):
            if function is fs.cumsum:
                whole = (k,) if axis is None else (index[0], k, index[2])
                return (float((x.values.ravel() if axis is None else x.values)[whole]),)
            axes = tuple(range(3)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
            moved = np.moveaxis(x.values, axes, range(-len(axes), 0))
            return (float(moved[index].ravel()[k]),)

        check_places(log, log.calls[0], operands, 3)


def test_places_are_kept_for_each_scope():
    with fs.record(where=True, keep=1, events=["overflow"]) as log:
        for name in ("a", "b", "a"):
            with fs.scope(name):
                fs.add(BIG, BIG)
    assert [(event.scope, event.call) for event in log.where] == [("a", 0), ("b", 1)]
    assert str(log.where[1]) == "b: add[1] overflow: (60000, 60000) -> inf"


def test_places_of_one_result_are_kept_up_to_the_limit():
    with fs.record(where=True, keep=2, events=["overflow"]) as log:
        for _ in range(4):
            fs.sum(MATRIX[0], accumulate="fp16")
    assert [(event.call, event.index, event.k, event.operands) for event in log.where] == [
        (0, (), 1, (6000.0,)), (1, (), 1, (6000.0,)),
    ]  # fmt: skip


def test_sums_without_terms_have_no_place():
    with fs.record(where=True) as log:
        fs.matmul(np.zeros((2, 0), np.float16), np.zeros((0, 3), np.float16), np.full((2, 3), 1e9), accumulate="fp16")
        fs.prod(np.zeros((0, 2), np.float16), 0, initial=np.float64(1e9), accumulate="fp16")
    assert all(event.operands == () for event in log.where)


# -- cancellation ------------------------------------------------------------------------------------------------------


def exponent(x):
    """floor(log2(abs(x))) of a Fraction that is not zero."""
    x = abs(x)
    e = x.numerator.bit_length() - x.denominator.bit_length()
    return e if x >= Fraction(2) ** e else e - 1


def expected_cancellation(operation, operands, codes, fmt, overflow):
    """({bits: number of results}, number of exact zeros) from exact values."""
    bits, zeros = Counter(), 0
    for values, result, over in zip(zip(*operands, strict=True), fs.decode(codes, fmt), overflow, strict=True):
        if not np.isfinite([*values, result]).all():
            continue
        exact = [Fraction(float(v)) for v in values]
        if operation == "fma":
            exact = [exact[0] * exact[1], exact[2]]
        total = exact[0] - exact[1] if operation == "subtract" else sum(exact)
        largest = [exponent(x) for x in exact if x]
        if result == 0:
            zeros += bool(largest) and total == 0
        elif not over:
            bits[max(0, max(largest) - exponent(Fraction(float(result))))] += 1
    return bits, zeros


@pytest.mark.parametrize("operation", ["add", "subtract", "fma"])
@pytest.mark.parametrize("fmt", [fs.E4M3, fs.E2M1, fs.E4M3FNUZ, fs.FP16, fs.FP32, fs.FP64], ids=lambda fmt: fmt.name)
@pytest.mark.parametrize("rounding", ["ties_to_even", "toward_positive"])
def test_cancellation_against_exact_values(operation, fmt, rounding):
    rng = np.random.default_rng(11)
    bits = fmt.bits
    codes = [rng.integers(0, 2**bits, 3000, np.uint64, endpoint=False).astype(fmt.code_dtype) for _ in range(3)]
    near = codes[0][:2000] ^ rng.integers(0, 4, 2000).astype(fmt.code_dtype)  # close operands, of either sign
    codes[-1 if operation == "fma" else 1][:2000] = near ^ fmt.code_dtype.type(
        fmt.sign_mask * (operation != "subtract")
    )
    if operation == "fma":
        codes[1][:2000] = fs.encode(rng.choice([1.0, -1.0, 2.0], 2000), fmt)
    arrays = [fs.from_codes(each, fmt) for each in codes[: 3 if operation == "fma" else 2]]
    with fs.record(events=["cancellation"]) as log:
        result, flags = getattr(fs, operation)(*arrays, rounding=rounding, return_flags=True)
    values = [each.values for each in arrays]
    expected, zeros = expected_cancellation(operation, values, result.codes, fmt, flags & fs.OVERFLOW != 0)
    histogram = log.cancelled_bits[operation]
    assert {int(n): int(histogram[n]) for n in np.flatnonzero(histogram)} == dict(expected)
    assert log[operation].exact_zeros == zeros
    assert log[operation].cancellation == sum(n for lost, n in expected.items() if lost)
    assert log[operation].cancellation > 0 and zeros > 0


def test_cancellation_of_products_next_to_a_power_of_two():
    """The first product rounds to 1 and is below it exactly, the second rounds to 1 and is above it."""
    a, b = np.array([1 - 2.0**-52, 1 - 2.0**-53]), np.array([1 + 2.0**-52, 1 + 2.0**-52])
    assert Fraction(a[0]) * Fraction(b[0]) < 1 < Fraction(a[1]) * Fraction(b[1])
    assert a[0] * b[0] == 1
    with fs.record(events=["cancellation"]) as log:
        for pair in zip(a, b, strict=True):
            fs.fma(*pair, -0.5)
        fs.fma(-a, b, 0.5)
    assert [call.cancelled_bits.tolist() for call in log.calls] == [[1], [0, 1], [1, 1]]


def test_cancellation_as_daz_reads_the_operands():
    x, y = fs.array([2.0**-15, 2.0**-14], "fp16"), fs.array([-(2.0**-15), -(2.0**-15)], "fp16")
    with fs.record(events=["cancellation"]) as log:
        fs.add(x, y)
        fs.add(x, y, daz=True)
    assert [call.counts["add"].exact_zeros for call in log.calls] == [1, 0]
    assert [call.cancelled_bits.tolist() for call in log.calls] == [[0, 1], [1]]
    assert log.cancelled_bits["add"].tolist() == [1, 1]


def test_flushed_and_saturated_results_did_not_cancel():
    small, large = fs.array([2.0**-14], "fp16"), fs.array([3e4], "fp16")
    with fs.record(events=["cancellation", "flushed", "overflow"]) as log:
        fs.subtract(small, 2.0**-15, ftz=True)
        fs.add(large, 1.0, format="e4m3", overflow="saturate_finite")
    assert [call.cancelled_bits.tolist() for call in log.calls] == [[0], [0]]
    assert (log["subtract"].flushed, log["subtract"].exact_zeros, log["add"].overflow) == (1, 0, 1)


def test_cancellation_is_counted_on_request_alone():
    with fs.record() as log, fs.record(events=["cancellation"]) as other:
        fs.subtract(BIG, BIG)
        fs.multiply(BIG, BIG)
        fs.sum(BIG, accumulate="fp16")
    assert "cancellation" not in log.to_dict()["subtract"] and log["subtract"].cancellation is None
    assert log.cancelled_bits == {} and log.calls[0].cancelled_bits.size == 0
    assert other.to_dict()["subtract"] == {"elements": 2, "cancellation": 0, "exact_zeros": 2}
    assert other["multiply"].cancellation is None and other.total.exact_zeros == 2
    assert "-" in str(other).splitlines()[2] and other["sum.sum"].overflow is None
