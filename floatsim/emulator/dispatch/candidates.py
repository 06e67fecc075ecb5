"""The kernel candidates, in the order in which plans try them: the most specific first, the integer kernels last."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from floatsim.emulator.dispatch.composite import CompositeCandidate, PermutedCandidate
from floatsim.emulator.dispatch.counting import Counting
from floatsim.emulator.dispatch.exact import ExactInFloat64
from floatsim.emulator.dispatch.float32 import Float32, Native, StochasticBF16
from floatsim.emulator.dispatch.float64 import Float64
from floatsim.emulator.dispatch.gpu_kernels import ConvertedCandidate, ResidueCandidate, Tf32x3Candidate
from floatsim.emulator.dispatch.integer import IntegerCandidate
from floatsim.emulator.dispatch.kernel import Candidate
from floatsim.emulator.dispatch.matrix_units import (
    TensorCoreFloat32,
    TensorCoreFloat64,
    TensorCoreInteger,
    TensorCoreSteps,
)
from floatsim.emulator.dispatch.vector import Vectors

__all__ = ["CANDIDATES", "allowed", "only"]

CANDIDATES: tuple[Candidate, ...] = (
    Vectors(),
    PermutedCandidate(),
    CompositeCandidate(),
    ConvertedCandidate(),
    ResidueCandidate(),
    Tf32x3Candidate(),
    TensorCoreFloat32(),
    TensorCoreFloat64(),
    TensorCoreSteps(),
    TensorCoreInteger(),
    Counting(),
    Native(),
    StochasticBF16(),
    Float32(),
    Float64(),
    ExactInFloat64(),
    IntegerCandidate(),
)
"""Every candidate. A fast kernel is added by one entry in front of those that it is faster than."""

_ALWAYS = frozenset({"permuted", "parts", "converted", "residue", "tf32x3", "integer", "tensorcore integer"})
allowed: frozenset[str] | None = None
"""The names of the candidates that plans may use, or None for all; `only` sets it."""


@contextmanager
def only(*names: str) -> Iterator[None]:
    """Let plans use these candidates alone, with the integer kernels for what they refuse. For tests.

    It holds for the whole process, worker threads included.

    >>> import floatsim as fs
    >>> with only("integer"):
    ...     fs.matmul([[1.0]], [[2.0]], accumulate="fp16")
    array([[2.]], dtype=float16)
    """
    global allowed  # noqa: PLW0603  # worker threads see it, unlike a ContextVar
    known = {candidate.name for candidate in CANDIDATES}
    if unknown := set(names) - known:
        raise ValueError(f"unknown candidate {min(unknown)!r}; known are {', '.join(sorted(known))}")
    before, allowed = allowed, _ALWAYS | frozenset(names)
    try:
        yield
    finally:
        allowed = before
