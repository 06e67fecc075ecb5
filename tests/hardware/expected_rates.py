"""The least throughput that is expected of a measurement, as a share of the data sheet's matrix units."""

from __future__ import annotations

__all__ = ["MOST", "least_share"]

MOST = 1.3
"""The boost clock of a data sheet is a guarantee, not a limit."""

_UNITS = 0.05
"""Of products on matrix units. The least of an H200 is 0.13, FP8 `mma.m16n8k16`, which compilers expand."""
_CUDA_CORES = {"32f_pedantic": 0.01, "16f_pedantic": 0.01}
"""By compute type of cuBLAS: these use no matrix units for 16-bit operands. An H200 reached 0.028 to 0.045 of the data
sheet of its matrix units on 2026-11-27. The CUDA cores of a B200 have 0.035 of it. `64f_pedantic` uses the units."""


def least_share(what: str) -> float:
    """Return the least share of the data sheet for a measurement's name, `Rate.what`.

    >>> least_share("cublas FP16 x FP16 to FP32, compute 32f_pedantic"), least_share("wgmma.k16 bf16 bf16 fp32")
    (0.01, 0.05)
    """
    return _CUDA_CORES.get(what.rpartition("compute ")[2], _UNITS)
