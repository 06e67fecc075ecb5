"""record: the counts, the places of events, and that recording changes nothing else."""

from __future__ import annotations

import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import floatsim as fs


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


def test_matmul_counts_by_site():
    a, b = np.float16([[300.0, 1e-4]]), np.float16([[300.0], [1e-4]])
    with fs.record() as log:
        fs.matmul(a, b, accumulate="fp16")
    assert log["matmul.product"].overflow == 1 and log["matmul.product"].flushed == 1
    assert log["matmul.sum"].elements == 2
    with fs.record() as log:
        fs.matmul(a, b, accumulate="sequential(fp16, fused)")
    assert "matmul.product" not in log.counts
