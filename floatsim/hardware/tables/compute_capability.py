"""Compilation targets and compute capabilities: "sm_80" also runs on every later GPU, "sm_90a" only on its own.

Sources: NVIDIA, "CUDA Compiler Driver NVCC", 5 (GPU compilation), and "PTX ISA", 11.1.2 (.target).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeAlias

__all__ = [
    "PLAIN", "Capability", "architecture_of", "capability_of", "is_specific", "needs", "runs_on", "since",
]  # fmt: skip

Capability: TypeAlias = tuple[int, int]

PLAIN = ("sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
"""The targets for which the tests compile kernels. Compilers of CUDA 12 have sm_70, those of CUDA 13 do not."""

_ARCHITECTURES = {
    (7, 0): "volta", (7, 5): "turing", (8, 0): "ampere", (8, 6): "ampere", (8, 9): "ada", (9, 0): "hopper",
    (10, 0): "blackwell", (12, 0): "blackwell-rtx",
}  # fmt: skip


def capability_of(target: str) -> Capability:
    """Return the compute capability that a target needs.

    >>> capability_of("sm_90a"), capability_of("sm_120")
    ((9, 0), (12, 0))
    """
    match = re.fullmatch(r"sm_(\d+)(\d)a?", target)
    if match is None:
        raise ValueError(
            f"{target!r} is not a target; targets are {', '.join(PLAIN)}, and specific ones such as sm_90a"
        )
    return int(match[1]), int(match[2])


def is_specific(target: str) -> bool:
    """Return whether a target runs only on its own compute capability: "sm_90a"."""
    return target.endswith("a")


def runs_on(target: str, capability: Capability) -> bool:
    """Return whether code for a target runs on a GPU of this compute capability.

    >>> runs_on("sm_80", (9, 0)), runs_on("sm_90a", (12, 0))
    (True, False)
    """
    needed = capability_of(target)
    return needed == capability if is_specific(target) else needed <= capability


def needs(targets: Iterable[str]) -> str:
    """Return the compute capability that one of the targets needs, as text.

    >>> needs(since("sm_89")), needs(["sm_100a", "sm_120a"])
    ('compute capability 8.9 or newer', 'compute capability 10.0 (sm_100a) or 12.0 (sm_120a)')
    """
    known = sorted(set(targets), key=capability_of)
    numbers = {target: ".".join(map(str, capability_of(target))) for target in known}
    plain = [target for target in known if not is_specific(target)]
    words = [f"{numbers[target]} ({target})" for target in known if is_specific(target)]
    words += [f"{numbers[plain[0]]} or newer"] if plain else []
    return f"compute capability {' or '.join(words)}"


def since(first: str) -> tuple[str, ...]:
    """Return the targets of `PLAIN` from this one on.

    >>> since("sm_90")
    ('sm_90', 'sm_100', 'sm_120')
    """
    return tuple(target for target in PLAIN if capability_of(target) >= capability_of(first))


def architecture_of(capability: Capability) -> str | None:
    """Return the name in `fs.tensorcore` of a compute capability's architecture, or None.

    >>> architecture_of((8, 6)), architecture_of((12, 1))
    ('ampere', None)
    """
    return _ARCHITECTURES.get(capability)
