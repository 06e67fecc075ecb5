"""The kernel candidates, in the order in which plans try them: the most specific first, the integer kernels last."""

from __future__ import annotations

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
from floatsim.emulator.dispatch.threads import ThreadsCandidate
from floatsim.emulator.dispatch.vector import Vectors
from floatsim.emulator.planning import Selection

__all__ = ["CANDIDATES", "SUMS", "only"]

CANDIDATES: tuple[Candidate, ...] = (
    Vectors(),
    PermutedCandidate(),
    ThreadsCandidate(),
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

SUMS = Selection(CANDIDATES, "permuted", "parts", "converted", "residue", "tf32x3", "integer", "tensorcore integer")
"""The candidates, and the names that plans may use."""

only = SUMS.only
