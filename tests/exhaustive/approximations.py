"""Approximations of a GPU's special-function unit on all 2**32 codes, beside the sums that an H200 returned."""

from __future__ import annotations

import numpy as np
from oracles import OracleRounding

import floatsim as fs
from floatsim import Rounding
from floatsim.reference import special_functions
from floatsim.tensorcore.special_functions import FORMS

if __package__:
    from . import loops
else:
    import loops

SUMS = {
    "ex2": 16440617953269916681,
    "rcp": 10666501894530809034,
    "rsqrt": 8109296702205098998,
    "lg2": 5244318830456271254,
    "tanh": 18007209071070877794,
}
"""The sum of result * (code * 2654435761 | 1) over all codes, modulo 2**64, of the forms with .ftz and of tanh.

An H200 (sm_90, CUDA 13.0) computed them in November 2026.
"""
_PIECE = 1 << 22
SAMPLE, CHUNKS = 1 << 15, 16
ROUNDING = OracleRounding(Rounding.TIES_TO_EVEN)


def approximated(name: str, codes: np.ndarray, ftz: bool) -> np.ndarray:
    return getattr(fs.approx, name)(fs.from_codes(codes, "fp32"), device="sm_90", ftz=ftz).codes


def compare_sum(name: str, chunk: int) -> tuple[int, int, list[str]]:
    """Compare the sum over all codes. One chunk, of about a minute, because the GPU's sum has no parts."""
    total, ftz = 0, FORMS[name][fs.FP32][-1]
    for first in range(0, 1 << 32, _PIECE):
        codes = np.arange(first, first + _PIECE, dtype=np.uint32)
        total += int(loops.weighted_sum(codes, approximated(name, codes, ftz)))
    found = [] if total % (1 << 64) == SUMS[name] else [f"{name}: the sum is {total % (1 << 64)}, not {SUMS[name]}"]
    return 1 << 32, len(found), found


def forms() -> list[tuple[str, bool]]:
    """The functions and forms for FP32 codes."""
    return [(name, ftz) for name in FORMS if name != "div" for ftz in FORMS[name][fs.FP32]]


def sample(name: str, ftz: bool, chunk: int) -> tuple[tuple, tuple, tuple]:
    """Random codes of all exponents, the kernel's results, and the specification's."""
    rng = np.random.default_rng([20261128, chunk, ftz, *name.encode()])
    codes = rng.integers(0, 1 << 32, SAMPLE, np.uint32)
    want = [special_functions.approximate(name, code, ftz=ftz) for code in codes.tolist()]
    return (codes,), (approximated(name, codes, ftz),), (np.array(want, np.uint32),)
