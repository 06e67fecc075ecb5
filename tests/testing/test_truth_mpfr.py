"""The digests of truth tables, computed again by oracles that share no code with floatsim: MPFR and exact integers.

`python tests/testing/test_truth_mpfr.py` checks all tables, or those whose names are given.
"""

from __future__ import annotations

import hashlib
import sys

import numpy as np
import oracles as o
import pytest

import floatsim as fs
from floatsim.testing.truth import TRUTH_TABLES, stored_digests

pytestmark = pytest.mark.full
FLAGS = o.INVALID | o.DIVIDE_BY_ZERO | o.OVERFLOW | o.UNDERFLOW | o.INEXACT


def oracle_bytes(table):
    """Return the bytes of a table by the documented layout: codes in little-endian order, then the flags."""
    source, target = fs.as_format(table.format), fs.as_format(table.result)
    rounding = o.OracleRounding(overflow=fs.Overflow[table.overflow.upper()])
    values = [o.layout(source).decode(code) for code in range(1 << source.bits)]
    operation = table.operation
    if operation == "convert":
        results = [o.convert(x, target, rounding) for x in values]
    elif operation == "remainder":
        results = [o.integer_remainder(operation, x, y, target, rounding) for x in values for y in values]
    elif operation in o.MPFR_OPERATIONS:
        operands = [(x,) for x in values] if operation == "sqrt" else [(x, y) for x in values for y in values]
        results = [o.Exact(operation, each, target)(rounding) for each in operands]
    else:
        results = [o.Function(operation, (x,), target)(rounding) for x in values]
    codes, flags = np.array(results, np.int64).T
    return codes.astype("<u2" if target.bits > 8 else "u1").tobytes() + (flags & FLAGS).astype("u1").tobytes()


def has_digest(name):
    return hashlib.sha256(oracle_bytes(TRUTH_TABLES[name])).hexdigest() == stored_digests()[name]


@pytest.mark.parametrize("name", [
    "divide-e4m3", "remainder-e5m2", "sqrt-bf16", "exp-fp16", "convert-fp16-e4m3fnuz-infinity",
    "convert-bf16-e2m1-saturate_finite",
])  # fmt: skip
def test_digest(name):
    """A sample. All tables take half an hour."""
    assert has_digest(name)


if __name__ == "__main__":
    wrong = 0
    for table in sys.argv[1:] or TRUTH_TABLES:
        equal = has_digest(table)
        wrong += not equal
        print(table, "equal" if equal else "DIFFERS", flush=True)
    sys.exit(bool(wrong))
