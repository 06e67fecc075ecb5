"""Approximations of functions by the special-function unit of a GPU, to the bit: `ex2.approx`, `rcp.approx` ...

Programs for GPUs call these instructions directly, or in faster versions of `exp`, `sin` or a division. The functions
of `floatsim` itself, such as `fs.exp2`, are correctly rounded, and return other bits.

>>> import floatsim as fs, numpy as np
>>> x = np.float32([0.5, -0.5])
>>> fs.approx.ex2(x, device="sm_90") - fs.exp2(x)
array([ 0.0000000e+00, -5.9604645e-08], dtype=float32)
"""

from __future__ import annotations

from floatsim.arrays.elementwise.approximations import cos, div, ex2, lg2, rcp, rsqrt, sin, sqrt, tanh

__all__ = ["cos", "div", "ex2", "lg2", "rcp", "rsqrt", "sin", "sqrt", "tanh"]
