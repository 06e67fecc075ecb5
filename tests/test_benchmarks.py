"""The benchmark harness works: cases run, bits are compared rightly, tables come out. Nothing here is timed."""

from __future__ import annotations

import fnmatch
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import floatsim as fs
from benchmarks import (
    approximations,
    cases,
    compiled,
    distances,
    functions,
    gguf,
    guard,
    machine,
    operators,
    peers,
    practice,
    pytorch,
    races,
    report,
    running,
    startup,
    sums,
    targets,
)

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[1]
SHORT = replace(races.QUICK, longest=0, rounds=1)
TINY = replace(running.QUICK, sizes=dict.fromkeys(cases.QUICK, 512), rounds=1, sample=20)


def find(name: str) -> cases.Case:
    return next(case for case in cases.cases() if case.name == name)


def fake_peer(change) -> peers.Peer:
    """A library that quantizes as floatsim does, and then changes the result."""

    def quantize(x, fmt, rounding):
        return peers.Job(lambda: change(fs.quantize(x, fmt, rounding=rounding)), np.asarray)

    return peers.Peer("numpy", "numpy", 256, quantize, *[lambda *_: None] * 3)


def test_names_are_unique():
    names = [part.name for part in [*cases.cases(), *sums.rows()]]
    assert len(set(names)) == len(names)


def test_every_check_is_of_a_row_and_a_requirement():
    for case in cases.cases():
        labels = {row.label for row in case.rows}
        for check in case.checks:
            assert check.requirement in cases.REQUIREMENTS
            assert check.row in labels and (check.against is None or check.against in labels)


@pytest.mark.parametrize(
    ("expected", "got", "count"),
    [
        ([1.0, -0.0, np.nan, np.inf], [1.0, -0.0, -np.nan, np.inf], 0),
        ([0.0, 1.0], [-0.0, 1.0], 1),
        ([np.nan, 1.0, np.inf], [1.0, np.nan, -np.inf], 3),
        ([1.0, 2.0], [np.nextafter(1.0, 2.0), 2.0], 1),
    ],
)
def test_differing(expected, got, count):
    assert running.differing(np.array(expected), np.array(got)) == count


def test_bits_of_peers_are_counted(monkeypatch):
    def damage(y):
        y[:5] = 1 / 3
        return y

    monkeypatch.setattr(peers, "PEERS", {"true": fake_peer(lambda y: y), "false": fake_peer(damage), "absent": None})
    absent = replace(fake_peer(lambda y: y), module="no_such_module_anywhere")
    monkeypatch.setitem(peers.PEERS, "absent", absent)
    monkeypatch.setattr(running, "PEERS", peers.PEERS)
    case = find("quantize float32: FP16")
    own = tuple(row for row in case.rows if row.kind != "peer")
    case = replace(case, rows=own + tuple(cases.Row(name, "peer") for name in peers.PEERS))
    rows = {row["label"]: row for row in running.run(case, TINY)["rows"]}
    for data in cases.DATA:
        assert rows["floatsim"][data]["differs"][0] == 0
        assert rows["true"][data]["differs"] == [0, 256]
        assert rows["false"][data]["differs"] == [5, 256]
    assert rows["absent"]["note"] == "not installed"


def test_wrong_bits_of_floatsim_would_be_seen():
    case = find("with flags: FP16 add")
    row = next(row for row in case.rows if row.label == "toward_zero")
    operands = running.operands_of(case, "wide", 200)
    result, flags = running.job(case, row, operands).call()
    assert running.against_reference(case, row, operands, (result, flags), 50)[0] == 0
    assert running.against_reference(case, row, operands, (result, flags ^ 1), 50)[0] > 0
    assert running.against_reference(case, row, operands, (fs.next_up(result), flags), 50)[0] > 0


@pytest.mark.parametrize("name", ["quantize float32, stochastic: E4M3", "arithmetic: E4M3 divide"])
def test_case_runs(name):
    found = running.run(find(name), TINY)
    for row in found["rows"]:
        if row["kind"] == "floatsim":
            assert all(row[data]["differs"][0] == 0 and row[data]["rounds"] == 1 for data in cases.DATA)
    assert {check["requirement"] for check in found["checks"]} <= cases.REQUIREMENTS.keys()


def test_each_operation_can_be_called_with_flags():
    for case in cases.cases():
        if case.group == "with flags" and case.fmt is fs.E4M3:
            for data in cases.DATA:
                operands = running.operands_of(case, data, 16)
                _, flags = running.job(case, case.rows[0], operands).call()
                assert flags.shape == (16,) and flags.dtype == np.uint8


def test_cold_compile_times_are_found(monkeypatch):
    monkeypatch.setattr(startup, "_kernel_calls", lambda: ["fs.classify(h)", "fs.classify(h)"])
    (row,) = startup.compiling(1)["rows"]
    assert row["kernel"] == "loops.classify" and row["seconds"] > 0


def test_command(tmp_path, monkeypatch):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "kernels")])}
    command = [sys.executable, "-m", "benchmarks", "--quick", "--json", "--only", "arithmetic: BF16 sqrt"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    run, *limited = json.loads(done.stdout)
    assert [report.instructions(other) for other in limited] == ["AVX2"] * machine.has_avx512()
    run["sums"] = races.run(rows("small: *"), SHORT)
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    for page in "DOCS", "README":
        path = tmp_path / f"{page}.md"
        monkeypatch.setattr(report, page, path)
        path.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n", encoding="utf-8")
    report.save(run, "latest")
    report.write_docs()
    for page, words in (report.DOCS, ["BF16 sqrt", "16 x 16 x 16"]), (report.README, ["16 x 16 x 16"]):
        text = page.read_text(encoding="utf-8")
        assert text.startswith("before\n") and text.endswith("\nafter\n") and "\nold\n" not in text
        assert all(word in text for word in words) and str(Path.home()) not in text


def test_docs_show_a_recorded_run():
    """The blocks in docs/performance.md and README.md are what --docs writes."""
    if runs := report.records():
        for page, text in (report.DOCS, report.summary(runs)), (report.README, report.quote(runs)):
            block = page.read_text(encoding="utf-8").partition(report.BEGIN)[2].partition(report.END)[0]
            assert block.strip() == text, "run `python -m benchmarks --docs`"


def record_of(features: str, worst: float) -> dict:
    """A run with one element-wise check, whose measured ratio is `worst`."""
    check = {"requirement": "beside add", "what": "less", "measured": worst, "fastest": worst, "holds": worst >= 0.5}
    facts = dict.fromkeys(("cpu", "llvm", "cores", "os", "huge pages"), "") | {"features": features}
    return {
        "quick": False, "machine": facts, "versions": {}, "cases": [{"checks": [check]}], "sums": [], "startup": {},
        "parts": [{"date": "today", "commit": "abc", "pattern": "*", "load": [0, 0]}],
    }  # fmt: skip


def test_the_pages_show_both_records():
    runs = [record_of("avx2 avx512f", 0.8), record_of("avx2 fma", 0.4)]
    assert [report.record_of(run) for run in runs] == ["latest", "avx2"]
    text = report.summary(runs)
    assert "AVX-512, worst of several runs | AVX-512, case | AVX-512, met | AVX2, worst of several runs" in text
    assert "| 0.5 | 0.8 | less | 1 of 1 | 0.4 | less | **0** of 1 |" in text
    assert "| AVX-512 | today |" in text and "| AVX2 | today |" in text
    assert "AVX" not in report.summary([record_of("neon", 0.8)])


def test_a_process_is_limited_to_avx2(monkeypatch):
    monkeypatch.setattr(machine, "has_avx512", lambda: False)
    assert machine.limited_to_avx2("benchmarks") is None
    monkeypatch.setattr(machine, "has_avx512", lambda: True)
    monkeypatch.setattr(machine, "features", lambda: {"avx2": True, "avx512f": True, "f16c": True, "sse4a": False})
    assert machine.avx2_settings()["NUMBA_CPU_FEATURES"] == "+avx2,-avx512f,+f16c,-sse4a"
    monkeypatch.undo()
    monkeypatch.setattr(machine, "has_avx512", lambda: True)
    options = ("--quick", "--no-startup", "--only", "arithmetic: BF16 sqrt")
    (run,) = machine.limited_to_avx2("benchmarks", *options)
    assert "avx512f" not in run["machine"]["features"].split() and not run["startup"]
    assert [case["name"] for case in run["cases"]] == ["arithmetic: BF16 sqrt"]


def test_the_guard_finds_an_operation_that_takes_too_long(monkeypatch):
    monkeypatch.setattr(guard.cases, "BESIDE_ADD", {"beside add": ("less",), "beside add, more work": ()})
    monkeypatch.setattr(guard.cases, "cases", lambda: list(cases._beside_add())[:1])
    found = guard.measure(TINY, quiet=True)
    assert [check["row"] for check in found] == ["less"]
    assert guard.misses(found[0] | {"fastest": 0.24}) and not guard.misses(found[0] | {"fastest": 0.26})


# -- products and sums ---------------------------------------------------------------------------------------------


def rows(pattern: str) -> list[sums.Row]:
    return [row for row in sums.rows() if fnmatch.fnmatch(row.name, pattern)]


def test_every_target_has_rows():
    assert {row.target for row in sums.rows()} - {None} == sums.TARGETS.keys()


@pytest.mark.parametrize("fmt", [fs.FP16, fs.BF16, fs.E5M2, cases.CUSTOM], ids=str)
def test_wide_data_do_not_overflow(fmt):
    a, b = (np.abs(fs.decode(x, fmt)) for x in sums.codes(sums.Call(fmt, data="wide"), (4, 4, 512)))
    assert np.isfinite(a).all() and (a > 0).all() and (a < 2.0**fmt.emin).any()
    assert (a @ b).max() <= fmt.max


@pytest.mark.parametrize(
    "pattern",
    [
        "product FP16: blocked*", "product BF16: *stochastic*", "product E5M2: *toward zero*", "product ieee*: kahan*",
        "exact: *E4M3*", "recording FP16: *everything*", "threads: *fp16*", "rate 64 x 64 x 1024: *", "peers: *NumPy",
        "sum: *", "units: *", "units in GPU kernels: *",
    ],
)  # fmt: skip
def test_rows_run(pattern):
    found = races.run(rows(pattern), SHORT)
    assert found
    for row in found:
        calls = [call for call in (row["work"], row["against"]) if call]
        if any("note" in call for call in calls):
            assert row["holds"] is None and not hasattr(fs, "sum")
            continue
        assert all(call["rounds"] == 1 and (call["bits"] or [0])[0] == 0 for call in calls)
        assert row["work"]["who"] != sums.OURS or row["work"]["bits"][1] > 0
        assert (row["holds"] is None) == (row["target"] is None)
    assert report.tables({"cases": [], "startup": {}, "sums": found, "parts": []})


def test_wrong_bits_of_sums_would_be_seen(monkeypatch):
    def damaged(call, operands):
        right = ours(call, operands)
        return peers.Job(lambda: fs.next_up(right.call()), right.read)

    ours = races._KNOWN[sums.OURS]
    call = sums.Call(fs.FP16, "sequential(fp16)", (4, 4, 16))
    operands = sums.codes(call, call.shape)
    assert races.against_reference(call, operands, 64) == [0, 4]
    monkeypatch.setitem(races._KNOWN, sums.OURS, damaged)
    assert races.against_reference(call, operands, 64) == [4, 4]
    bits = races._bits(replace(call, who="NumPy"), call, races._fitted(replace(call, who="NumPy"), 0), SHORT)
    assert bits == [16, 16]


def test_loops_of_peers_equal_floatsim():
    found = races.run(rows("peers: *"), SHORT)
    for row in found:
        assert row["against"].get("note") == "not installed" or row["against"]["bits"] == [0, 256]


def test_a_missing_peer_is_said_to_be_missing(monkeypatch):
    absent = replace(peers.PEERS["gfloat"], module="no_such_module_anywhere")
    monkeypatch.setitem(peers.PEERS, "gfloat", absent)
    (row,) = races.run(rows("peers: *gfloat"), SHORT)
    assert row["against"]["note"] == "not installed" and row["measured"] is None and row["holds"] is None


@pytest.mark.parametrize(
    ("target", "work", "measured", "holds", "reaches"),
    [("FP16", 5.0, 5.0, True, True), ("FP16", 8.0, 8.0, True, False), ("FP16", 9.0, 9.0, False, False),
     ("threads", 0.5, 2.0, True, True), ("threads", 0.625, 1.6, False, False)],
)  # fmt: skip
def test_verdicts(target, work, measured, holds, reaches):
    ours, other = sums.Call(fs.FP16, "sequential(fp16)"), sums.Call(fs.FP32, who=sums.SGEMM)
    times = {"shape": [1], "median": 1.0, "fastest": 1.0}
    row = races._row(sums.Row("", ours, other, target), times | {"median": work}, times)
    assert (row["measured"], row["fastest"], row["holds"], row["reaches"]) == (measured, 1.0, holds, reaches)


def test_calls_grow_until_they_take_too_long():
    call = sums.Call(fs.FP32, "sequential(fp32)", (40, 33, 1), who=sums.SGEMM)
    assert races._fitted(call, 0).shape == (10, 8, 1)
    assert races._fitted(call, 1000).shape == (40, 33, 1)


def test_runs_are_merged(tmp_path, monkeypatch):
    def part(*names):
        return {"quick": True, "machine": {}, "versions": {}, "parts": [names], "startup": {},
                "cases": [{"name": name, "of": names} for name in names], "sums": []}  # fmt: skip

    monkeypatch.setattr(report, "RESULTS", tmp_path)
    assert report.merged("trial", part("a")) == part("a")
    monkeypatch.setattr(report, "load", lambda _: part("a", "b"))
    (tmp_path / "trial.json").touch()
    found = report.merged("trial", part("b", "c"))
    assert [case["name"] for case in found["cases"]] == ["a", "b", "c"]
    assert found["cases"][1]["of"] == ("b", "c") and len(found["parts"]) == 2
    with pytest.raises(ValueError, match="versions"):
        report.merged("trial", part("b") | {"versions": {"numpy": "0"}})


def test_each_edge_is_the_bound_of_a_fast_path():
    """The format at the bound takes a faster candidate than the format one step beyond."""
    for inside, outside in sums.edges():
        plans = [
            fs.explain_plan(x := fs.array([[1.0]], call.fmt), x, accumulate=call.accumulation, rounding=call.mode)
            for call in (inside, outside)
        ]
        refused = [refusal.candidate for refusal in plans[1].refused]
        assert plans[0].candidate in refused, (inside, outside)
        assert plans[1].candidate not in [refusal.candidate for refusal in plans[0].refused]


def test_functions(monkeypatch):
    monkeypatch.setattr(functions, "FAST", {"exp": np.exp, "rsqrt": None})
    monkeypatch.setattr(functions, "OTHERS", {})
    exp, rsqrt = functions.measure(256, 1)
    assert (exp["function"], rsqrt["function"]) == ("exp", "rsqrt")
    assert exp["numpy_per_second"] > 0 and rsqrt["numpy_per_second"] is None
    assert exp["fp32_target"] == 400e6 and rsqrt["fp32_per_second"] > 0


def test_operators():
    found = targets.measure(operators.rows(2), 1)
    assert {row["call"].partition(",")[0] for row in found} >= {"softmax", "layer_norm", "rms_norm"}
    assert all(0 < row["best_seconds"] <= row["worst_seconds"] for row in found)
    (softmax,) = (row for row in found if row["call"] == "softmax, all-fp16")
    assert softmax["target_seconds"] == 16 * 1024 / 50e6


def test_approximations():
    found = targets.measure(approximations.rows(100), 1)
    assert all(0 < row["best_seconds"] <= row["worst_seconds"] for row in found)
    aimed = {row["call"] for row in found if row["target_seconds"] == 100 / 100e6}
    names = "ex2", "rcp.ftz", "rsqrt", "sqrt.ftz", "lg2", "sin", "cos.ftz", "tanh", "div"
    assert {f"{name}, normal" for name in names} < aimed


def test_gguf():
    found = targets.measure(gguf.rows(1), 1)
    assert all(0 < row["best_seconds"] <= row["worst_seconds"] for row in found)
    assert {"copy of float32", "from_gguf, Q4_K", "to_gguf, Q4_K"} < {row["call"] for row in found}


def test_practice():
    found = targets.measure(practice.rows(1), 1)
    assert all(0 < row["best_seconds"] <= row["worst_seconds"] for row in found)
    assert {row["call"]: row["target_seconds"] for row in found}["floatsim testfloat f32_mul, lines"] == 1e-3
    assert json.loads(json.dumps(found)) == found


def test_distances(monkeypatch):
    monkeypatch.setattr(distances, "SHARES", (0.01, 1.0))  # all shares run the same code
    found = distances.measure(1 << 11, 2, 1)
    assert len(found) == 2 * len(distances.FORMATS) * len(distances.SHARES)
    assert all(0 < row["fastest_ns"] <= row["ns"] and row["share_of_copy"] > 0 for row in found)
    assert json.loads(json.dumps(found)) == found


class Timed:
    """Stands for a process of `benchmarks.compiled`: its times of each call, in order, the last one again and again."""

    def __init__(self, **times: list[int]):
        self.names, self.times = list(times), list(times.values())

    def time(self, number: int, placement: int) -> int:
        return self.times[number].pop(0) if len(self.times[number]) > 1 else self.times[number][0]


def test_a_slower_kernel_is_measured_again_and_found():
    ours = Timed(slow=[2000], noisy=[2000] * 20 + [1000], same=[1000])
    found = compiled.measure(ours, Timed(slow=[1000], noisy=[1000], same=[1000]), "*", quiet=True)
    assert {row["call"]: row["ratio"] for row in found} == {"slow": 2.0, "noisy": 1.0, "same": 1.0}
    assert [row["call"] for row in compiled.measure(ours, ours, "s*w", quiet=True)] == ["slow"]


def test_kernels_of_numbas_compiler_run():
    command = [sys.executable, "-m", "benchmarks.compiled", "--json", "--only", "beside add: E4M3, unordered"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    (row,) = json.loads(done.stdout)
    assert row["microseconds"] > 0 and row["other_microseconds"] > 0
    assert done.returncode == (row["ratio"] > compiled.SLOWER)


def test_the_other_process_uses_numbas_compiler():
    contestant = compiled.Contestant(ROOT, plain=True)
    contestant.end()
    assert contestant.numbas_compiler


@pytest.mark.full
@pytest.mark.torch
def test_pytorch():
    pytest.importorskip("torch", reason="needs torch: the extra `torch`")
    command = [sys.executable, "-m", "benchmarks.pytorch", "--quick", "--json", "--threads", "1"]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout)
    assert set(found["values"]) <= set(pytorch.TARGETS) and len(found["values"]) >= 3  # memory only on Linux
    assert found["dispatches"] > 400
