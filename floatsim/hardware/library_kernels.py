"""The kernels of cuBLAS, cuDNN and Triton: what their names and arguments say about their sums."""

from __future__ import annotations

from floatsim.accumulation.gpu_libraries import describe_kernel
from floatsim.accumulation.triton_dots import triton_dot

__all__ = ["describe_kernel", "triton_dot"]
