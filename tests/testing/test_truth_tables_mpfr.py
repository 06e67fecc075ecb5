"""The digests of truth tables, computed again by MPFR and by oracles that share no code with floatsim.

The exhaustive jobs `truth-*` check all tables.
"""

from __future__ import annotations

import hashlib

import numpy as np
import oracles as o
import pytest
from oracles.truth_tables import FLAGS, entry

import floatsim as fs
from floatsim.testing.vectors.truth_tables import TRUTH_TABLES, stored_digests
from tests.marks import cases


def values_of(table):
    """The values of all codes of the operands."""
    source = fs.as_format(table.format)
    return [o.layout(source).decode(code) for code in range(1 << source.bits)]


@pytest.mark.full
@pytest.mark.parametrize("name", [
    "divide-e4m3", "remainder-e5m2", "sqrt-bf16", "exp-fp16", "convert-fp16-e4m3fnuz-infinity",
    "convert-bf16-e2m1-saturate_finite",
])  # fmt: skip
def test_digest(name):
    """The bytes by the documented layout: codes in little-endian order, then the flags."""
    table = TRUTH_TABLES[name]
    values = values_of(table)
    codes, flags = np.array([entry(table, values, i) for i in range(table.entries)], np.int64).T
    content = codes.astype("<u2" if fs.as_format(table.result).bits > 8 else "u1").tobytes()
    content += flags.astype("u1").tobytes()
    assert hashlib.sha256(content).hexdigest() == stored_digests()[name]


QUICK_TABLES = ["remainder-e4m3", "convert-fp16-e4m3-infinity"]


@pytest.mark.parametrize(
    "name",
    cases(quick=QUICK_TABLES, full=[n for n, t in TRUTH_TABLES.items() if t.operation in ("convert", "remainder")]),
)
def test_two_oracles_agree(name):
    """MPFR's rounding and remainder against exact integers and fractions, on a sample of the entries."""
    table = TRUTH_TABLES[name]
    values, target = values_of(table), fs.as_format(table.result)
    rounding = o.OracleRounding(overflow=fs.Overflow[table.overflow.upper()])
    for index in o.rng(table.name).integers(0, table.entries, 150).tolist():
        if table.operation == "convert":
            code, flags = o.convert(values[index], target, rounding)
        else:
            x, y = divmod(index, len(values))
            code, flags = o.integer_remainder("remainder", values[x], values[y], target, rounding)
        assert entry(table, values, index) == (code, flags & FLAGS), index
