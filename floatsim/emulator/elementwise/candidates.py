"""The candidates of element-wise operations, in the order in which plans try them: the integer kernels are last."""

from __future__ import annotations

from floatsim.emulator.elementwise.arithmetic import (
    Carried,
    Float32,
    FusedNative,
    Native,
    OddFloat64,
    Ordered,
    OwnFormat,
    SingleStochastic,
)
from floatsim.emulator.elementwise.functions import Enclosed, NearestFloat32, Reference
from floatsim.emulator.elementwise.integers import Integers
from floatsim.emulator.elementwise.kernel import Candidate
from floatsim.emulator.elementwise.rounding import LookedUp, Rounded, TwoConversions, Widened
from floatsim.emulator.elementwise.tables import LastTable, Table
from floatsim.emulator.planning import Selection

__all__ = ["CANDIDATES", "ELEMENTWISE", "only"]

CANDIDATES: tuple[Candidate, ...] = (
    Native(),
    FusedNative(),
    Table(),
    Rounded(),
    Widened(),
    LookedUp(),
    Ordered(),
    OwnFormat(),
    Float32(),
    Carried(),
    OddFloat64(),
    SingleStochastic(),
    NearestFloat32(),
    Enclosed(),
    LastTable(),
    TwoConversions(),
    Reference(),
    Integers(),
)
"""Every candidate. A fast kernel is added by one entry in front of those that it is faster than."""

ELEMENTWISE: Selection[Candidate] = Selection(CANDIDATES, "integers", "reference", "two conversions")
"""The candidates, and the names that plans may use."""

only = ELEMENTWISE.only
