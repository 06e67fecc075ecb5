"""All entries of the truth tables by MPFR; the digests that floatsim ships are those of the compared bytes."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import oracles as o
from oracles.truth_tables import entry

import floatsim as fs
from floatsim.testing.vectors.truth_tables import TRUTH_TABLES, digest, stored_digests, table_bytes

CHUNKS = 32


@functools.lru_cache(maxsize=2)
def _bytes(name: str) -> bytes:
    return table_bytes(name)


@functools.lru_cache(maxsize=4)
def _values(name: str) -> list[Any]:
    fmt = fs.as_format(name)
    return [o.layout(fmt).decode(code) for code in range(1 << fmt.bits)]


def compare(name: str, chunk: int) -> tuple[int, int, list[str]]:
    """Compare a part of a table with MPFR, and its digest with the stored one."""
    table, content, values = TRUTH_TABLES[name], _bytes(name), _values(TRUTH_TABLES[name].format)
    wrong = [] if digest(content) == stored_digests()[name] else [f"{name}: the digest is not the stored one"]
    split = table.entries * table.result_dtype.itemsize
    codes, flags = np.frombuffer(content[:split], table.result_dtype), np.frombuffer(content[split:], np.uint8)
    size = table.entries // CHUNKS
    for index in range(chunk * size, (chunk + 1) * size):
        expected = entry(table, values, index)
        if expected != (int(codes[index]), int(flags[index])):
            wrong.append(f"{name}, entry {index}: MPFR has {expected}, the table {codes[index]}, {flags[index]}")
    return size, len(wrong), wrong[:5]
