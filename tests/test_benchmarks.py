"""The benchmark harness works: cases run, bits are compared rightly, tables come out. Nothing here is timed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import floatsim as fs
from benchmarks import cases, peers, report, running, startup

ROOT = Path(__file__).parents[1]
TINY = replace(running.QUICK, sizes=dict.fromkeys(cases.QUICK, 512), rounds=1, sample=20)


def find(name: str) -> cases.Case:
    return next(case for case in cases.cases() if case.name == name)


def fake_peer(change) -> peers.Peer:
    """A library that quantizes as floatsim does, and then changes the result."""

    def quantize(x, fmt, rounding):
        return peers.Job(lambda: change(fs.quantize(x, fmt, rounding=rounding)), np.asarray)

    return peers.Peer("numpy", "numpy", 256, quantize, lambda *_: None, lambda *_: None)


def test_names_of_cases_are_unique():
    names = [case.name for case in cases.cases()]
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
    assert row["kernel"] == "elementwise.classify" and row["seconds"] > 0


def test_command(tmp_path, monkeypatch):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "kernels")])}
    command = [sys.executable, "-m", "benchmarks", "--quick", "--json", "--only", "arithmetic: BF16 sqrt"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    run = json.loads(done.stdout)
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    monkeypatch.setattr(report, "DOCS", tmp_path / "page.md")
    report.DOCS.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n", encoding="utf-8")
    report.save(run, "trial")
    report.write_docs("trial")
    text = report.DOCS.read_text(encoding="utf-8")
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "BF16 sqrt" in text and "\nold\n" not in text
    assert str(Path.home()) not in text


def test_docs_show_a_recorded_run():
    """The block in docs/performance.md is what --docs writes."""
    recorded = report.RESULTS / "latest.json"
    if recorded.exists():
        block = report.DOCS.read_text(encoding="utf-8").partition(report.BEGIN)[2].partition(report.END)[0]
        assert block.strip() == report.markdown(report.load("latest")), "run `python -m benchmarks --docs`"
