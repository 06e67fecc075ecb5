"""Functions of a GPU's special-function unit, in the form that the steps of operators take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from floatsim.arrays.array.conversion import convert
from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.elementwise.approximations import ex2, lg2, rcp
from floatsim.formats import FP32, FloatFormat

__all__ = ["DeviceFunction", "ex2_approx", "lg2_approx", "rcp_approx"]


@dataclass(frozen=True)
class DeviceFunction:
    """A function of FP32 numbers on a GPU: a step converts its operand to FP32, and rounds the result to its format.

    Attributes
    ----------
    name : str
        The name, for messages.
    function : callable
        From an FP32 FloatArray to an FP32 FloatArray.
    float64 : callable
        The function on float64 arrays.
    """

    name: str
    function: Callable[[FloatArray], FloatArray]
    float64: Callable[[Any], Any]

    @property
    def __name__(self) -> str:
        return self.name

    def __call__(self, x: FloatArray, *, format: FloatFormat) -> FloatArray:
        """Return the function of x, rounded to a format."""
        found = self.function(x if x.format == FP32 else convert(x, FP32))
        rounded: FloatArray = found if format == FP32 else convert(found, format)
        return rounded


ex2_approx = DeviceFunction("ex2.approx", lambda x: ex2(x, device="sm_90", ftz=False), np.exp2)
lg2_approx = DeviceFunction("lg2.approx", lambda x: lg2(x, device="sm_90", ftz=False), np.log2)
rcp_approx = DeviceFunction("rcp.approx", lambda x: rcp(x, device="sm_90", ftz=False), np.reciprocal)
