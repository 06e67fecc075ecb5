"""Sweeps: the table, errors of items, executors, and files that survive a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import floatsim as fs

ROOT = Path(__file__).parents[2]
GRID = {"k": [1, 2, 3], "format": ["fp16", "bf16"]}


class Here(Executor):
    """An executor that runs each call at once, and counts the calls."""

    def __init__(self):
        self.calls = 0

    def submit(self, function, /, *args, **kwargs):
        self.calls += 1
        future = Future()
        future.set_result(function(*args, **kwargs))
        return future


def scaled(k, format):
    return {"max": k * fs.as_format(format).max, "name": format}


def fails_at_two(k, format="fp16"):
    if k == 2:
        raise ValueError("two")
    return k * k


def parent_and_square(k):
    return {"square": k * k, "pid": os.getpid()}


def dies(k):
    os._exit(1)


def test_table_in_the_order_of_the_grid():
    table = fs.sweep(scaled, GRID, executor=Here())
    assert [(row["k"], row["format"]) for row in table] == [(k, f) for k in (1, 2, 3) for f in ("fp16", "bf16")]
    assert table[2] == {"k": 2, "format": "fp16", "max": 131008.0, "name": "fp16", "error": None}
    assert table == fs.sweep(scaled, [{"k": row["k"], "format": row["format"]} for row in table], executor=Here())
    assert fs.sweep(scaled, {"k": []}, executor=Here()) == []


def test_errors_of_items_are_kept(tmp_path):
    file = tmp_path / "rows.jsonl"
    table = fs.sweep(fails_at_two, {"k": [1, 2, 3]}, executor=Here(), file=file)
    assert [row["result"] for row in table] == [1, None, 9]
    assert table.errors == [{"k": 2, "result": None, "error": "ValueError: two"}]
    again = Here()
    assert fs.sweep(fails_at_two, {"k": [1, 2, 3]}, executor=again, file=file) == table
    assert again.calls == 0
    assert fs.sweep(fails_at_two, {"k": [1, 2, 3]}, executor=again, file=file, retry_errors=True) == table
    assert again.calls == 1


@pytest.mark.full
def test_to_pandas():
    pandas = pytest.importorskip("pandas")
    frame = fs.sweep(scaled, GRID, executor=Here()).to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == ["k", "format", "max", "name", "error"]
    assert len(frame) == 6


def test_a_file_gives_the_same_rows(tmp_path):
    """Tuples, NumPy scalars, formats as parameters, NaN and infinity."""

    def odd(format, x):
        return {"pair": (1, x), "numpy": np.float32(x), "nan": float("nan") if x else float("inf")}

    grid, file = {"format": [fs.FP16, fs.BF16], "x": [0, 0.1]}, tmp_path / "rows.jsonl"
    first = fs.sweep(odd, grid, executor=Here(), file=file)
    again = Here()
    assert repr(fs.sweep(odd, grid, executor=again, file=file)) == repr(first)
    assert again.calls == 0
    assert first[1]["pair"] == [1, 0.1]
    assert first[0]["format"] is fs.FP16


def test_a_larger_grid_continues(tmp_path):
    file, here = tmp_path / "rows.jsonl", Here()
    fs.sweep(scaled, {"k": [1, 2], "format": ["fp16"]}, executor=here, file=file)
    table = fs.sweep(scaled, GRID, executor=here, file=file)
    assert (here.calls, len(table)) == (6, 6)


@pytest.mark.parametrize("cut", [1, 5, 30])
def test_a_torn_line_is_written_again(tmp_path, cut):
    file, here = tmp_path / "rows.jsonl", Here()
    table = fs.sweep(scaled, GRID, executor=here, file=file)
    content = file.read_bytes()
    file.write_bytes(content[:-cut])
    assert fs.sweep(scaled, GRID, executor=here, file=file) == table
    assert here.calls == 7
    assert sorted(file.read_bytes().splitlines()) == sorted(content.splitlines())


def test_a_result_without_json_form_is_an_error(tmp_path):
    file = tmp_path / "rows.jsonl"
    table = fs.sweep(lambda k: object(), {"k": [1]}, executor=Here(), file=file)
    assert "is no JSON type" in table[0]["error"]


@pytest.mark.parametrize(("grid", "options", "error", "text"), [
    ({"k": 1}, {}, TypeError, "k must be a sequence"), ({"k": "ab"}, {}, TypeError, "k must be a sequence"),
    ([1], {}, TypeError, "grid must be a mapping"), ({"k": [1]}, {"executor": 3}, TypeError, "executor must be"),
    ({"k": [1, 1]}, {"file": "x.jsonl"}, ValueError, "is there twice"),
    ({"k": [object()]}, {"file": "x.jsonl"}, TypeError, "parameters are JSON types"),
    ({"k": [1]}, {"file": "other.jsonl"}, ValueError, r"has results of m.other, not of .*fails_at_two"),
    ({"k": [1]}, {"file": "junk.jsonl"}, ValueError, "line 1 of junk.jsonl is no line of a sweep"),
    ({"result": [1]}, {}, ValueError, "function returns result"),
])  # fmt: skip
def test_bad_input(empty_folder, grid, options, error, text):
    Path("other.jsonl").write_text('{"function": "m.other"}\n', encoding="utf-8")
    Path("junk.jsonl").write_text("junk\n", encoding="utf-8")
    function = (lambda result: result) if "result" in grid else fails_at_two
    with pytest.raises(error, match=text):
        fs.sweep(function, grid, **{"executor": Here(), **options})


def test_a_function_that_no_process_finds():
    with pytest.raises(TypeError, match="define it at the top of a module, or pass executor=ThreadPoolExecutor"):
        fs.sweep(lambda k: k, {"k": [1]})


def test_threads_and_more_items_than_wait_at_a_time():
    with ThreadPoolExecutor(4) as executor:
        table = fs.sweep(fails_at_two, {"k": range(1000)}, executor=executor)
    assert [row["result"] for row in table] == [None if k == 2 else k * k for k in range(1000)]


@pytest.mark.full
def test_processes():
    table = fs.sweep(parent_and_square, {"k": range(8)})
    assert [row["square"] for row in table] == [k * k for k in range(8)]
    assert os.getpid() not in {row["pid"] for row in table}


@pytest.mark.full
def test_a_worker_that_dies(tmp_path):
    with pytest.raises(BrokenExecutor):
        fs.sweep(dies, {"k": [1]}, file=tmp_path / "rows.jsonl")


SCRIPT = """
import os, pathlib, sys, time
import floatsim as fs

def slow(k):
    pathlib.Path(f"called-{k}-{os.getpid()}").touch()
    time.sleep(0.05)
    return {"square": k * k}

if __name__ == "__main__":
    table = fs.sweep(slow, {"k": range(40)}, file="rows.jsonl", progress=False)
    print(sum(row["square"] for row in table))
"""


def alive(pid):
    """Whether a process runs. A zombie, whose parent has not read its exit code, does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.full
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads the states of processes from /proc")
def test_a_kill_loses_nothing(empty_folder):
    """The process is killed in the middle. Its workers end, and a second run calls only the unfinished items."""
    Path("script.py").write_text(SCRIPT, encoding="utf-8")
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "kernels")])}
    file = Path("rows.jsonl")
    killed = subprocess.Popen([sys.executable, "script.py"], env=env)
    end = time.monotonic() + 120
    while not file.exists() or file.read_bytes().count(b"\n") < 10:
        assert time.monotonic() < end
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    lines = file.read_bytes().splitlines()[1:]
    finished = {json.loads(json.loads(line)["key"])["k"] for line in lines if line.endswith(b"}")}
    assert 9 <= len(finished) < 40
    workers = {int(path.name.split("-")[2]) for path in Path.cwd().glob("called-*")}
    while any(map(alive, workers)):
        assert time.monotonic() < end
        time.sleep(0.05)
    before = set(Path.cwd().glob("called-*"))
    done = subprocess.run([sys.executable, "script.py"], env=env, capture_output=True, text=True, check=True)
    assert int(done.stdout) == sum(k * k for k in range(40))
    called = {int(path.name.split("-")[1]) for path in set(Path.cwd().glob("called-*")) - before}
    assert called == set(range(40)) - finished
    rows = [json.loads(line) for line in file.read_bytes().splitlines()[1:]]
    assert sorted(json.loads(row["key"])["k"] for row in rows) == list(range(40))


@pytest.mark.full
def test_dask():
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        table = fs.sweep(parent_and_square, {"k": range(20)}, executor=client)
        failed = fs.sweep(fails_at_two, {"k": [1, 2]}, executor=client)
    assert [row["square"] for row in table] == [k * k for k in range(20)]
    assert failed.errors[0]["error"] == "ValueError: two"
