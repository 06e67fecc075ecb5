"""One case of the digests, and how its digest is computed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import floatsim as fs

__all__ = ["Case", "Computed", "arrays_of", "digest"]


@dataclass(frozen=True)
class Case:
    """A named call of the public API.

    Parameters
    ----------
    name : str
        Path of the case: operation, description, formats, rounding, shape, style.
    call : function of the name
        Makes the inputs from the name and returns a result, or a tuple of results.
    records : bool
        Whether the call is repeated under `fs.record()`.
    """

    name: str
    call: Callable[[str], Any]
    records: bool = True


@dataclass(frozen=True)
class Computed:
    """What is stored of a case, and its result arrays."""

    entry: list[str]
    arrays: list[np.ndarray]


_UNDEFINED_NAN = (np.float64,)
"""Plain float64 results are values, not codes: their NaN bits are not defined."""


def _array(x: Any) -> np.ndarray:
    """The bits of one result, little-endian and contiguous."""
    x = np.asarray(x.codes if isinstance(x, fs.FloatArray) else x)
    if x.dtype in _UNDEFINED_NAN:
        x = np.where(np.isnan(x), np.float64("nan"), x)
    if x.dtype.kind not in "iub":
        x = np.ascontiguousarray(x).view(f"u{x.dtype.itemsize}").reshape(x.shape)
    return np.ascontiguousarray(x.astype(x.dtype.newbyteorder("<"))).reshape(x.shape)


def arrays_of(result: Any) -> list[np.ndarray]:
    """Return the arrays of a result, or of a tuple of results."""
    return [_array(x) for x in result] if isinstance(result, tuple) else [_array(result)]


def _hash(*parts: bytes) -> str:
    whole = hashlib.blake2b(digest_size=8)
    for part in parts:
        whole.update(len(part).to_bytes(8, "little") + part)
    return whole.hexdigest()


def _hash_of_arrays(arrays: list[np.ndarray]) -> str:
    return _hash(
        *(part for x in arrays for part in (f"{x.dtype.kind}{x.dtype.itemsize}{x.shape}".encode(), x.tobytes()))
    )


def _hash_of_log(log: Any) -> str:
    counts = json.dumps(log.to_dict(), sort_keys=True).encode()
    first = [np.asarray(log.first[event], np.int64) for event in sorted(log.first)]
    where = [str(event) for event in log.where]
    return _hash(counts, json.dumps([sorted(log.first), where]).encode(), *(x.tobytes() for x in first))


def digest(case: Case) -> Computed:
    """Return [shapes, codes, events] of a case; a fourth digest where the recorded codes are others."""
    arrays = arrays_of(case.call(case.name))
    shapes = " ".join("x".join(map(str, x.shape)) or "scalar" for x in arrays)
    entry = [shapes, _hash_of_arrays(arrays)]
    if case.records:
        with fs.record() as log:
            recorded = _hash_of_arrays(arrays_of(case.call(case.name)))
        entry.append(_hash_of_log(log))
        if recorded != entry[1]:
            entry.append(recorded)
    return Computed(entry, arrays)
