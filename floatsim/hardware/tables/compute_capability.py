"""Compilation targets and compute capabilities.

Code for "sm_80" can be compiled for every later GPU. "sm_90a" is for its own compute capability, and "sm_100f" for its
family: the compute capabilities of the same major version, from 10.0 on.

Sources: NVIDIA, "CUDA Compiler Driver NVCC", 5 (GPU compilation), and "PTX ISA", 11.1.2 (.target).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeAlias

__all__ = [
    "PLAIN", "Capability", "architecture_of", "capability_of", "is_assumed", "is_family", "is_specific", "needs",
    "runs_on", "since",
]  # fmt: skip

Capability: TypeAlias = tuple[int, int]

PLAIN = ("sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
"""The targets for which the tests compile kernels. Compilers of CUDA 12 have sm_70, those of CUDA 13 do not."""

_ARCHITECTURES = {
    (7, 0): "volta", (7, 5): "turing", (8, 0): "ampere", (8, 6): "ampere", (8, 9): "ada", (9, 0): "hopper",
    (10, 0): "blackwell", (12, 0): "blackwell-rtx",
}  # fmt: skip
_ASSUMED = {(8, 7): "ampere", (10, 3): "blackwell", (12, 1): "blackwell-rtx"}
"""Compute capabilities whose architecture is unverified: nothing is published about their arithmetic."""


def capability_of(target: str) -> Capability:
    """Return the compute capability that a target needs.

    >>> capability_of("sm_90a"), capability_of("sm_100f"), capability_of("sm_120")
    ((9, 0), (10, 0), (12, 0))
    """
    match = re.fullmatch(r"sm_(\d+)(\d)[af]?", target)
    if match is None:
        raise ValueError(
            f"{target!r} is not a target; targets are {', '.join(PLAIN)}, and specific ones such as sm_90a and sm_100f"
        )
    return int(match[1]), int(match[2])


def is_specific(target: str) -> bool:
    """Return whether a target is only for its own compute capability, "sm_90a", or for its family, "sm_100f"."""
    return target[-1] in "af"


def is_family(target: str) -> bool:
    """Return whether a target is for its family: "sm_100f"."""
    return target.endswith("f")


def runs_on(target: str, capability: Capability) -> bool:
    """Return whether code for a target runs on a GPU of this compute capability.

    >>> runs_on("sm_80", (9, 0)), runs_on("sm_90a", (12, 0))
    (True, False)
    >>> runs_on("sm_100f", (10, 3)), runs_on("sm_100a", (10, 3)), runs_on("sm_100f", (12, 0))
    (True, False, False)
    """
    needed = capability_of(target)
    if is_family(target):
        return needed[0] == capability[0] and needed <= capability
    return needed == capability if is_specific(target) else needed <= capability


def needs(targets: Iterable[str]) -> str:
    """Return the compute capability that one of the targets needs, as text.

    >>> needs(since("sm_89")), needs(["sm_100a", "sm_103a"]), needs(["sm_90a", "sm_120a", "sm_120f"])
    ('compute capability 8.9 or newer', 'compute capability 10.0 (sm_100a) or 10.3 (sm_103a)', \
'compute capability 9.0 (sm_90a) or 12.x (sm_120f)')
    """
    known = sorted(set(targets), key=lambda target: (capability_of(target), target))
    families = {capability_of(target)[0]: target for target in known if is_family(target)}
    words = []
    for target in (target for target in known if is_specific(target)):
        major, minor = capability_of(target)
        if families.get(major, target) == target:  # a family includes the target of one GPU
            words.append(f"{major}.{'x' if is_family(target) else minor} ({target})")
    plain = [target for target in known if not is_specific(target)]
    words += ["{}.{} or newer".format(*capability_of(plain[0]))] if plain else []
    *before, last = words
    return f"compute capability {', '.join(before)} or {last}" if before else f"compute capability {last}"


def since(first: str) -> tuple[str, ...]:
    """Return the targets of `PLAIN` from this one on.

    >>> since("sm_90")
    ('sm_90', 'sm_100', 'sm_120')
    """
    return tuple(target for target in PLAIN if capability_of(target) >= capability_of(first))


def architecture_of(capability: Capability) -> str | None:
    """Return the name in `fs.tensorcore` of a compute capability's architecture, or None.

    >>> architecture_of((8, 6)), architecture_of((12, 1)), architecture_of((11, 0))
    ('ampere', 'blackwell-rtx', None)
    """
    return (_ARCHITECTURES | _ASSUMED).get(capability)


def is_assumed(capability: Capability) -> bool:
    """Return whether the architecture of a compute capability is unverified.

    >>> is_assumed((10, 3)), is_assumed((10, 0))
    (True, False)
    """
    return capability in _ASSUMED
