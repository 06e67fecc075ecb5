"""The digests of results: a sample of the cases is as stored, and a change is found."""

from __future__ import annotations

import dataclasses
import hashlib

import numpy as np
import pytest

import floatsim as fs
from tests.digests.__main__ import main
from tests.digests.case import Case, digest
from tests.digests.inputs import PAIR_STYLES, STYLES, bits, codes, pair
from tests.digests.store import EXACT_WIDE, all_cases, describe_change, read, write

pytestmark = pytest.mark.full

STORED = read()
CASES = [case for case in all_cases() if not case.name.startswith((EXACT_WIDE, "large/", "known-wrong/"))]
SAMPLE = CASES[::20]


def test_sample_of_the_stored_digests():
    changes = {case.name: describe_change(STORED.get(case.name), digest(case).entry) for case in SAMPLE}
    assert len(changes) > 250
    assert {name: change for name, change in changes.items() if change} == {}


def test_names_are_unique_and_stored():
    names = [case.name for case in all_cases()]
    assert len(names) == len(set(names))
    assert {name for name in names if not name.startswith(EXACT_WIDE)} <= STORED.keys() <= set(names)


def test_counter_hash():
    """SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014) in Python integers."""
    state = int.from_bytes(hashlib.blake2b(b"a", digest_size=8).digest(), "little")
    expected = []
    for _ in range(5):
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        z = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
        expected.append(z ^ z >> 31)
    assert bits("a", 5).tolist() == expected


@pytest.mark.parametrize("style", STYLES)
def test_styles_are_within_the_format(style):
    for fmt in (fs.FP16, fs.E4M3, fs.E4M3FNUZ, fs.E2M1, fs.FP64, fs.FloatFormat("f", 5, 0, "finite")):
        x = codes(fmt, (500,), style, "name")
        finite = np.isfinite(x.values)
        assert x.shape == (500,) and (style in ("bits", "specials") or finite.all())
        assert finite.sum() > 250 and len(np.unique(x.codes)) > 2


def test_cancelling_pairs():
    x, y = pair(fs.FP16, fs.BF16, (3, 8), (8, 5), "cancelling", "name")
    products = x.values[:, :, None] * y.values[None]
    assert np.mean(products[:, ::2] == -products[:, 1::2]) > 0.8
    assert "cancelling" in PAIR_STYLES


# -- what a change looks like ------------------------------------------------------------------------------------------


@pytest.fixture
def cases(monkeypatch):
    """Three small cases; the second one's result is the value in the list."""
    value = [1.0]
    found = [
        Case("a/one", lambda name: fs.add(fs.array([1.0, 2.0], "fp16"), 1.0)),
        Case("a/two", lambda name: fs.array([3.0, value[0]], "fp16"), records=False),
        Case(f"{EXACT_WIDE}/three", lambda name: fs.array([1.0], "fp16")),
    ]
    monkeypatch.setattr("tests.digests.__main__.all_cases", lambda: found)
    return value


def run(monkeypatch, *arguments):
    monkeypatch.setattr("sys.argv", ["digests", *map(str, arguments)])
    return main()


def test_a_changed_bit_is_reported(cases, monkeypatch, tmp_path, capsys):
    stored, kept = tmp_path / "stored.json", tmp_path / "kept.npz"
    common = "--stored", stored, "--baseline"
    assert run(monkeypatch, *common, "--update", "--keep", kept) == 0
    assert run(monkeypatch, *common) == 0
    assert capsys.readouterr().out == ""
    cases[0] = 1 + 2.0**-10
    assert run(monkeypatch, *common, "--against", kept) == 1
    assert capsys.readouterr().out == "a/two: results changed (2); result 0: 1 of 2, first (1,) 0x3c00 -> 0x3c01\n"
    assert run(monkeypatch, *common, "a/o*") == 0
    assert run(monkeypatch, *common, "b/*") == 2


def test_missing_cases_and_new_cases_are_reported(cases, monkeypatch, tmp_path, capsys):
    stored = tmp_path / "stored.json"
    write(stored, {"a/one": ["2", "0"], "a/gone": ["2", "0"]})
    assert run(monkeypatch, "--stored", stored) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["a/one", "a/two", f"{EXACT_WIDE}/three", "a/gone"]


def test_a_case_that_raises_is_reported(cases, monkeypatch, tmp_path, capsys):
    cases[0] = "text"
    assert run(monkeypatch, "--stored", tmp_path / "stored.json", "--update") == 1
    assert capsys.readouterr().out.startswith("a/two: ")


def test_recording_is_part_of_the_digest():
    def call(name):
        return fs.matmul(fs.array([[1.0, 2.0**-20]], "fp16"), fs.array([[1.0], [1.0]], "fp16"), accumulate="fp16")

    case = Case("a", call)
    entry = digest(case).entry
    assert len(entry) == 3
    assert digest(dataclasses.replace(case, records=False)).entry == entry[:2]
    assert describe_change([*entry[:2], "0"], entry) == "events changed (1x1)"
    assert "with and without recording differ" in describe_change(entry, [*entry, "0"])
