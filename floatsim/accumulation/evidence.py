"""What was compared with recordings of a device: rows of a table, and the refusal of all other calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from floatsim.accumulation.gpu_libraries import DEVICES, known_device, release
from floatsim.accumulation.library_rules import NotDescribedError

__all__ = ["Compared", "Fact", "check_compared", "known_version", "optional_version"]

Fact: TypeAlias = "int | float | str | bool | tuple[float, ...]"
VERSIONS = ("2.11.0",)
"""The versions of torch that were recorded."""
LIBRARIES = {"h200": "CUDA 13.0, torch 2.11.0, cuDNN 9.19"}
"""The libraries of each device when it was recorded."""


def known_version(device: str, version: str | None) -> str:
    """Return the name of a device. A NotDescribedError names the known devices and versions.

    >>> known_version("NVIDIA H200", "2.11.0+cu130")
    'h200'
    """
    name = known_device(device)
    if version is not None and release(version) not in VERSIONS:
        raise NotDescribedError(f"version={version!r} of torch on {name} is not described; described: "
                                f"{', '.join(VERSIONS)}")  # fmt: skip
    return name


def optional_version(device: str | None, version: str | None) -> str | None:
    """Return the name of a device, or None without one. A version without a device is a TypeError.

    >>> optional_version("h200", None), optional_version(None, None)
    ('h200', None)
    """
    if device is not None:
        return known_version(device, version)
    if version is not None:
        raise TypeError("version= belongs to a device: pass device=, such as 'h200'")
    return None


@dataclass(frozen=True)
class Compared:
    """Calls whose results were compared with a device, bit for bit.

    Attributes
    ----------
    facts : mapping of str to range or tuple
        What is true of these calls: a range of a size, or the values of an option. A fact without an entry can have any
        value.
    device : str
        The device, a name of `floatsim.accumulation.gpu_libraries.DEVICES`.

    Examples
    --------
    >>> row = Compared({"format": ("FP16", "BF16"), "rows": range(1, 5)})
    >>> print(row)
    format FP16 or BF16, rows 1 to 4
    >>> row.holds({"format": "FP16", "rows": 4}), row.holds({"format": "FP16", "rows": 5})
    (True, False)
    """

    facts: Mapping[str, range | tuple[Fact, ...]]
    device: str = "h200"

    def holds(self, facts: Mapping[str, Fact]) -> bool:
        """Return whether a call with these facts is one of the compared ones."""
        return all(facts[name] in values for name, values in self.facts.items())

    def __str__(self) -> str:
        return ", ".join(f"{name} {_values(values)}" for name, values in self.facts.items())


def _values(values: range | tuple[Fact, ...]) -> str:
    if isinstance(values, range) and len(values) > 1:
        return f"{values[0]:,} to {values[-1]:,}"
    *others, last = [f"{each:,}" if type(each) is int else str(each) for each in values]
    return f"{', '.join(others)} or {last}" if others else last


def check_compared(what: str, facts: Mapping[str, Fact], rows: Iterable[Compared]) -> None:
    """Raise a NotDescribedError unless one of the rows holds for a call.

    The message has the facts that are outside of the nearest row, and all rows.

    >>> check_compared("softmax", {"rows": 8, "columns": 5}, [Compared({"rows": range(1, 5), "columns": range(5, 9)})])
    Traceback (most recent call last):
    floatsim.accumulation.library_rules.NotDescribedError: softmax with rows 8 was not compared with an NVIDIA H200 (sm_90) with CUDA 13.0, torch 2.11.0, cuDNN 9.19; compared: rows 1 to 4, columns 5 to 8
    """  # noqa: E501
    known = list(rows)
    if any(row.holds(facts) for row in known):
        return
    if not known:
        raise NotDescribedError(f"{what} was not compared with a device")
    outside = [[name for name, values in row.facts.items() if facts[name] not in values] for row in known]
    nearest = min(outside, key=lambda names: (len(names), "format" in names))  # of two, the row of the same format
    given = ", ".join(f"{name} {_values((facts[name],))}" for name in nearest)
    device = known[0].device
    raise NotDescribedError(
        f"{what} with {given} was not compared with an {DEVICES[device]} with {LIBRARIES[device]}; compared: "
        + "; or ".join(map(str, known))
    )
