"""Truth tables: their bytes, and the digests that floatsim ships."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

import floatsim as fs
from floatsim.testing.vectors.truth_tables import TRUTH_TABLES, digest, first_difference, stored_digests, table_bytes


def test_every_table_has_a_digest():
    assert set(stored_digests()) == set(TRUTH_TABLES)


@pytest.mark.full
@pytest.mark.parametrize("name", TRUTH_TABLES)
def test_the_emulator_has_the_digest_of_the_reference(name):
    assert digest(table_bytes(name)) == stored_digests()[name]


@pytest.mark.full
@pytest.mark.parametrize("name", ["multiply-e5m2fnuz", "rsqrt-bf16", "convert-fp16-e2m1-saturate_finite"])
def test_the_reference_has_the_digest(name):
    assert digest(table_bytes(name, "reference")) == stored_digests()[name]


@pytest.mark.full
def test_the_byte_order():
    """The documented layout, computed with other code: NumPy's float16 square root, and inexact by exact squares."""
    content = table_bytes("sqrt-fp16")
    codes = np.arange(1 << 16, dtype=np.uint16)
    x = codes.view(np.float16).astype(np.float64)
    with np.errstate(invalid="ignore"):
        roots = np.sqrt(x).astype(np.float16)
    results = np.where(np.isnan(roots), np.uint16(0x7E00), roots.view(np.uint16))
    assert content[: 1 << 17] == results.astype("<u2").tobytes()
    flags = np.frombuffer(content[1 << 17 :], np.uint8)
    assert len(flags) == 1 << 16
    with np.errstate(invalid="ignore"):
        inexact = np.isfinite(roots) & (roots.astype(np.float64) ** 2 != x)
    signalling = np.isnan(x) & (codes & 0x200 == 0)
    assert np.array_equal(flags, np.where(signalling | (x < 0), fs.INVALID, inexact * fs.INEXACT))


@pytest.mark.full
def test_the_first_operand_varies_slowest():
    content = table_bytes("subtract-e4m3")
    two, one = 0x40, 0x38
    assert (content[256 * two + one], content[256 * one + two]) == (one, 0x80 | one)


@pytest.mark.full
def test_command(run, empty_folder):
    code, out, err = run("verify", "add-e4m3", "--json", "--export", "tables")
    report = json.loads(out)
    assert (code, err, report["equal"]) == (0, "", True)
    content = Path("tables/add-e4m3.bin").read_bytes()
    assert hashlib.sha256(content).hexdigest() == report["tables"][0]["sha256"] == stored_digests()["add-e4m3"]
    assert run("verify", "add-e4m3", "--file", "tables/add-e4m3.bin")[0] == 0
    Path("wrong.bin").write_bytes(content[:-1] + b"\x09")
    code, out, _ = run("verify", "add-e4m3", "--file", "wrong.bin")
    assert code == 1
    assert "add-e4m3: entry 65535, operands 0xFF 0xFF: the flags are 0x09, not 0x00" in out
    assert first_difference("add-e4m3", content[:5]) == "the table has 131072 bytes, not 5"
    assert run("verify", "add-e4m3", "--write", "mine.json")[0] == 0
    assert run("verify", "add-e4m3", "--digests", "mine.json")[0] == 0


@pytest.mark.parametrize(("arguments", "text"), [
    (["add-e4m4"], "did you mean 'add-e4m3'?"), (["add-e4m3", "--with", "gpu"], "--with: 'gpu' is not known"),
    (["--file", "x.bin"], "--file needs the name of one table"),
    (["add-e4m3", "--file", "x.bin"], "--file: x.bin is no file"),
    (["add-e4m3", "--digests", "x.json"], "x.json"),
    (["add-e4m3", "--digests", "junk.json"], "junk.json is no file of digests"),
    (["add-e4m3", "--digests", "empty.json"], "there is no digest of add-e4m3"),
    (["add-e4m3", "--write", "no/x.json"], "no/x.json"),
])  # fmt: skip
def test_bad_input(run, empty_folder, arguments, text):
    Path("junk.json").write_text("[[[", encoding="utf-8")
    Path("empty.json").write_text('{"tables": {}}', encoding="utf-8")
    code, out, err = run("verify", *arguments)
    assert (code, out) == (2, "")
    assert text in err
    assert err.count("\n") == 1
