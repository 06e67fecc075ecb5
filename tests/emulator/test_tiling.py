"""Large work in pieces: the same bits whatever their size and the threads; progress; Ctrl-C."""

from __future__ import annotations

import functools
import importlib
import os
import signal
import subprocess
import sys
import threading
import time

import numba
import numpy as np
import pytest
from floatsim_kernels.runtime import cpu as machine

import floatsim as fs
from floatsim.emulator import compile_notice
from floatsim.emulator import parallel as tiles
from floatsim.emulator.dispatch import tiling
from floatsim.emulator.elementwise import pieces
from floatsim.emulator.sums import execute as summation
from floatsim.emulator.sums import plan
from floatsim.formats._hashing import IdentityCache

DESCRIPTIONS = (
    "fp16", "sequential(bf16, fused)", "kahan(fp16)", "pairwise(e5m2, halving)", "strided(fp16, 3)",
    "blocked(fp16, 7, kahan(fp32))", "splitk(3, exact(fp16), sequential(tf32))", "neumaier(fp32, rounding=rtz)",
)  # fmt: skip


def _everything(a, b, c):
    """The results of every description, with and without c, stochastic and not, and the events of some."""
    found = []
    for accumulation in DESCRIPTIONS:
        for options in {}, {"rounding": "SR", "seed": 3}, {"c": c, "rounding": "SR", "seed": 3}:
            found.append((accumulation, np.asarray(fs.matmul(a, b, accumulate=accumulation, **options))))
    for accumulation in "fp16", "hopper", "tensorcore(hopper, output=fp16)", "cdna3", "strided(fp16, 3)":
        with fs.record() as log:
            found.append((accumulation, np.asarray(fs.matmul(a, b, c=c, accumulate=accumulation))))
        found.append((accumulation, log.counts))
        found += [((accumulation, name), first) for name, first in log.first.items()]
    scales = tuple(fs.array(np.resize([0.5, 1, 4], shape), "e8m0") for shape in ((5, 2), (2, 9)))
    left, right = fs.array(a[0], "e4m3"), fs.array(b[0], "e4m3")
    scaled = fs.matmul(left, right, accumulate="blackwell", scale_a=scales[0], scale_b=scales[1])
    return [*found, ("scaled", np.asarray(scaled))]


@pytest.mark.full
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(("work", "narrowest"), [(1, 128), (100, 128), (370, 2), (1000, 4), (1 << 30, 128)])
def test_the_same_bits_in_every_piece_and_thread(threads, work, narrowest, monkeypatch):
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((2, 5, 37)).astype(np.float16), rng.standard_normal((2, 37, 9)).astype(np.float16)
    c = rng.standard_normal((2, 5, 9)).astype(np.float16)
    want = _everything(a, b, c)
    monkeypatch.setattr(machine, "threads", lambda: threads)
    monkeypatch.setattr(summation, "WORTH_THREADS", 0)
    monkeypatch.setattr(tiling, "WORTH_THREADS", 0)
    for name in "_FAST_TILE", "_COUNTING_TILE", "_INTEGER_TILE":
        monkeypatch.setattr(tiling, name, work)
    monkeypatch.setattr(tiling, "_NARROWEST", narrowest)
    monkeypatch.setattr(tiling, "_IN_CACHES", 0)
    # plans that know these sizes
    monkeypatch.setattr(plan, "_plan", functools.lru_cache(plan._plan.__wrapped__))
    monkeypatch.setattr(summation, "_RECENT", IdentityCache())
    used, columns = set(), set()
    run = tiles.run

    def watch(pieces, *rest, **more):
        used.add(len(pieces))
        columns.update(piece.columns.stop - piece.columns.start for piece in pieces)
        run(pieces, *rest, **more)

    monkeypatch.setattr(tiles, "run", watch)
    got = _everything(a, b, c)
    assert (max(used, default=1) > 1) == (work < 1 << 30 or threads > 1)
    assert (narrowest in columns) == (narrowest < 9), "panels"
    for (what, x), (_, y) in zip(want, got, strict=True):
        same = x == y if isinstance(x, dict) else np.array_equal(x, y, equal_nan=True)
        assert same, what


def test_every_piece_is_done_once_on_as_many_threads_as_asked_for():
    for threads in 1, 4:
        done, names = [], set()

        def work(piece, done=done, names=names):
            time.sleep(0.001)
            done.append(piece)
            names.add(threading.current_thread().name)

        tiles.run(range(40), work, threads, "")
        assert sorted(done) == list(range(40))
        assert len(names) <= threads


def test_an_error_in_a_piece_comes_out_and_stops_the_rest():
    for threads in 1, 2:
        done = []

        def work(piece, done=done):
            if piece == 3:
                raise RuntimeError("of piece 3")
            time.sleep(0.002)
            done.append(piece)

        with pytest.raises(RuntimeError, match="of piece 3"):
            tiles.run(range(1000), work, threads, "")
        assert len(done) < 20


def test_a_bar_only_where_it_takes_long_and_somebody_looks(monkeypatch, capsys):
    def slow(_):
        time.sleep(0.01)

    monkeypatch.setattr(tiles, "_LOOK_AFTER", 0.02)
    for watched, beyond, shown in (True, 0.05, True), (True, 60, False), (False, 0.05, False):
        monkeypatch.setattr(tiles, "watched", lambda watched=watched: watched)
        monkeypatch.setattr(tiles, "_SHOW_BEYOND", beyond)
        tiles.run(range(20), slow, 1, "matmul")
        assert ("matmul" in capsys.readouterr().err) == shown


def test_threads_are_those_of_numba():
    code = "from floatsim_kernels.runtime import cpu as machine; print(machine.threads())"
    environment = os.environ | {"NUMBA_NUM_THREADS": "3", "PYTHONPATH": os.pathsep.join(sys.path)}
    asked = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert asked.stdout.strip() == "3"


def test_the_number_of_threads_can_be_set(monkeypatch):
    assert fs.get_num_threads() == machine.threads()
    monkeypatch.setenv("FLOATSIM_NUM_THREADS", "7")
    assert fs.get_num_threads() == 7
    fs.set_num_threads(3)
    try:
        assert fs.get_num_threads() == 3
        for wrong, error in ((0, ValueError), (True, TypeError), (1.5, TypeError), ("2", TypeError)):
            with pytest.raises(error, match="n must be"):
                fs.set_num_threads(wrong)
    finally:
        fs.set_num_threads(None)
    for text in ("0", "-1", "two", "1.5"):
        monkeypatch.setenv("FLOATSIM_NUM_THREADS", text)
        with pytest.raises(ValueError, match="FLOATSIM_NUM_THREADS"):
            fs.get_num_threads()


@pytest.mark.parametrize("threads", [1, 3])
def test_every_kernel_uses_as_many_threads(threads, monkeypatch):
    """Sums, products and element-wise operations start no more threads than set."""
    started = set()
    monkeypatch.setattr(tiles._ThreadPool, "_take_pieces", _noting(tiles._ThreadPool._take_pieces, started))
    monkeypatch.setattr(pieces, "PIECE", 1000)
    monkeypatch.setattr(pieces, "_WORTH_THREADS", 1000)
    monkeypatch.setattr(summation, "WORTH_THREADS", 1000)
    monkeypatch.setattr(tiling, "WORTH_THREADS", 1000)
    x = np.ones((64, 500), np.float16)
    fs.set_num_threads(threads)
    try:
        for run in (
            lambda: fs.matmul(x, x.T, accumulate="fp16"), lambda: fs.sum(x, 1, accumulate="fp16"), lambda: fs.add(x, x),
            lambda: fs.encode(x, "e4m3", return_flags=True), lambda: fs.to_integer(x, "i4"),
        ):  # fmt: skip
            started.clear()
            run()
            assert max(len(started), 1) == threads  # one piece needs no pool
    finally:
        fs.set_num_threads(None)


def _noting(take, started):
    def noted(pool):
        started.add(threading.get_ident())
        time.sleep(0.02)  # so that a thread ends after the next one has started, and identities differ
        take(pool)

    return noted


def test_ctrl_c_leaves_a_long_piece():
    """The calling thread returns at once. The piece ends in the background, and no other piece starts."""
    done, begun, ended = [], threading.Event(), threading.Event()

    def work(piece):
        begun.set()
        ended.wait(30)
        done.append(piece)

    waits = tiles._ThreadPool._wait

    def interrupted(pool, other):
        begun.wait(30)
        raise KeyboardInterrupt

    tiles._ThreadPool._wait = interrupted
    try:
        with pytest.raises(KeyboardInterrupt):
            tiles.run(range(5), work, 1, "", leave=True)
    finally:
        tiles._ThreadPool._wait = waits
    assert done == []
    ended.set()
    for thread in threading.enumerate():
        if thread.name.startswith("floatsim_"):
            thread.join(30)
    assert done == [0]


def test_long_work_returns_its_result_and_its_error():
    assert tiles.call(lambda: 7, "", long=True) == tiles.call(lambda: 7, "", long=False) == 7
    with pytest.raises(ZeroDivisionError):
        tiles.call(lambda: 1 // 0, "", long=True)


def test_a_line_only_where_compilation_takes_long_and_somebody_looks(monkeypatch, capsys):
    outer, inner = (type(name, (), {"__module__": "floatsim_kernels.gemm.float32"}) for name in ("in_order", "rounded"))
    for watched, after, shown in ((True, 0.01, True), (True, 60, False), (False, 0.01, False)):
        monkeypatch.setattr(compile_notice, "watched", lambda watched=watched: watched)
        monkeypatch.setattr(compile_notice, "_AFTER", after)
        notices = compile_notice._Notices()
        notices.start(outer)
        notices.start(inner)
        notices.end()
        time.sleep(0.1)
        notices.end()
        text = capsys.readouterr().err
        assert ("compiling the kernel gemm.float32.in_order" in text) == shown and text.count("\n") == shown


def test_one_line_for_many_compilations_also_where_nobody_looks(monkeypatch, capsys):
    kernel = type("in_order", (), {"__module__": "floatsim_kernels.gemm.float32"})
    foreign = type("theirs", (), {"__module__": "theirs"})
    monkeypatch.setattr(compile_notice, "watched", lambda: False)
    monkeypatch.setattr(compile_notice, "_LINES", {})
    monkeypatch.setattr(compile_notice, "_AFTER", 0.05)  # the line comes after twice as many seconds in all
    monkeypatch.delenv("FLOATSIM_PROGRESS", raising=False)
    notices = compile_notice._Notices()
    monkeypatch.setattr(compile_notice, "_NOTICES", notices)

    def compiled(function, seconds):
        notices.start(function)
        time.sleep(seconds)
        notices.end()

    compiled(kernel, 0.3)
    with compile_notice.one_line("many kernels"):
        compiled(foreign, 0.3)
        compiled(kernel, 0.01)
        assert not capsys.readouterr().err
        compiled(kernel, 0.3)
        assert capsys.readouterr().err == "many kernels\n"
        compiled(kernel, 0.3)
    with compile_notice.one_line("many kernels"):
        compiled(kernel, 0.3)
    monkeypatch.setenv("FLOATSIM_PROGRESS", "0")
    with compile_notice.one_line("others"):
        compiled(kernel, 0.3)
    assert not capsys.readouterr().err


def test_lines_and_bars_can_be_turned_off(monkeypatch):
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    monkeypatch.delenv("FLOATSIM_PROGRESS", raising=False)
    assert compile_notice.watched()
    monkeypatch.setenv("FLOATSIM_PROGRESS", "0")
    assert not compile_notice.watched()


def test_numba_reports_compilations(monkeypatch, capsys):
    importlib.import_module("floatsim.emulator.backend")  # from then on

    @numba.njit
    def function(x):
        return x + 1

    monkeypatch.setattr(compile_notice, "watched", lambda: True)
    monkeypatch.setattr(compile_notice, "_AFTER", 0.0)
    function.py_func.__module__ = "floatsim_kernels.tests"
    assert function(1) == 2
    assert "compiling the kernel tests." in capsys.readouterr().err


FOREIGN = """
import gc, math, re, sys
import numba, numpy as np

def made(text, namespace, name="f"):
    exec(compile(text, "<made>", "exec"), namespace)
    return namespace[name]

def functions():
    k = 3
    def closure(x):
        return x * k + min(x, 2) + max(x, 5)
    def loop(x):
        total = 0.0
        for i in range(len(x)):
            total += math.sqrt(x[i]) if x[i] > 0 else -x[i]
        return total
    def container(x):
        found = [i * 0.5 for i in range(int(x[0]))]
        return len(found), sum(found), {i: i for i in range(3)}[2], "text" + str(int(x[1]))
    x = np.arange(2.0, 34.0)
    yield "no module", made("def f(x): return x + 1", {"__builtins__": __builtins__}), (1.5,), {}
    yield "a dictionary for names", made("def f(x): return math.sin(x)", {"math": math}), (1.5,), {}
    yield "closure", closure, (4,), {}
    yield "loop", loop, (x,), {}
    yield "fastmath", loop, (x.astype(np.float32),), {"fastmath": True}
    yield "nogil, with an error model", loop, (x,), {"nogil": True, "error_model": "numpy"}
    yield "containers", container, (x,), {}
    yield "array expressions", made("def f(x): return (x * 2 + x.sum()).sum()", {}), (x,), {}
    if len(sys.argv) > 1 and sys.argv[1] == "sympy":
        import sympy
        a, b = sympy.symbols("a b")
        yield "lambdify", sympy.lambdify((a, b), a * sympy.sin(b) + sympy.sqrt(a)), (2.0, 0.5), {}

def instructions(dispatcher):
    text = dispatcher.inspect_llvm(dispatcher.signatures[0])
    return sorted(re.findall(r"= (\\w+ \\w+)", text))

def compiled():
    found = {}
    for name, function, arguments, options in functions():
        dispatcher = numba.njit(**options)(function)
        found[name] = dispatcher(*arguments), instructions(dispatcher)
    square = numba.vectorize(["f8(f8)"])(made("def f(x): return x * x", {}))
    found["vectorize"] = square(np.arange(3.0)).tolist()
    called = numba.cfunc("f8(f8)")(made("def f(x): return x / 3", {}))
    found["cfunc"] = called.ctypes(2.0)
    return found

compiled()  # Numba's own functions, such as those of lists, are compiled and kept
before = compiled()
collecting = gc.isenabled()
"""
USES = """
import floatsim as fs
x = np.arange(16, dtype=np.float16).reshape(4, 4)
fs.add(x, x); fs.matmul(x, x); fs.array([1.0], "e4m3")
"""
SAME = """
after = compiled()
assert gc.isenabled() == collecting
assert before.keys() == after.keys()
for name in before:
    assert before[name] == after[name], (name, before[name], after[name])
print(len(after), "functions")
"""


@pytest.mark.full
def test_foreign_functions_compile_as_before():
    """Functions of other libraries have the same results and instructions after floatsim was used."""
    sympy = "sympy" if importlib.util.find_spec("sympy") else ""
    done = subprocess.run(
        [sys.executable, "-c", FOREIGN + USES + SAME, sympy], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == f"{10 + bool(sympy)} functions\n"


LONG = """
import signal, sys, numpy as np, floatsim as fs
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs, and theirs, ignore it
x = np.ones((2, 64), np.float16)
run = eval("lambda x: " + sys.argv[1])
run(x[:, :2])
x = np.ones((1 << 14, 1 << 14), np.float16)
print("started", flush=True)
while True:
    run(x)
"""
LONG_CALLS = {
    "product": "fs.matmul(x, x, accumulate='neumaier(e3m2)')",
    "sum of one vector": "fs.sum(x, accumulate='fp16', rounding='sr', seed=1)",
    "running sums": "fs.cumsum(x.ravel(), accumulate='bf16', rounding='rtz')",
    "product of many": "fs.prod(x, accumulate='fp16')",
    "codes and flags": "fs.encode(x, 'e4m3', return_flags=True)",
    "integers": "fs.to_integer(x, 'i4')",
    "codes": "fs.encode(x, 'e4m3', rounding='sr', seed=1)",
}


@pytest.mark.full
@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
@pytest.mark.parametrize(
    ("threads", "expression"), [("1", LONG_CALLS["product"]), *(("2", x) for x in LONG_CALLS.values())],
    ids=["product, one thread", *LONG_CALLS],
)  # fmt: skip
def test_control_c_stops_promptly(expression, threads):
    environment = os.environ | {"FLOATSIM_NUM_THREADS": threads, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-c", LONG, expression], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert process.stdout.readline().strip() == "started"
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=50)  # a piece takes some tens of milliseconds, on an idle machine
    assert "KeyboardInterrupt" in error
    assert process.returncode != 0
