"""GPUs: run operations, compare results bit by bit, probe models, capture outputs, measure throughput.

`backend="hardware"`, as a keyword or in `fs.context`, runs convert, quantize, add, subtract, multiply, divide, sqrt,
fma, matmul, dot and sum on the GPU. `tables` lists the instructions and their data layouts, `device` issues them, and
`compile` compiles their kernels.

>>> import floatsim as fs
>>> fs.hardware.is_available() in (True, False)
True
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from floatsim._lazy import lazy_exports

if TYPE_CHECKING:
    from floatsim.hardware.device_info import Info

_HOMES = {
    ".device_info": "Info",
    ".comparison": "compare_dots",
    ".compile.cupy_runtime": "UnavailableError",
    ".cpu.device": "Cpu CpuIdentity",
    ".device": "Device",
    ".api": "bench capture compare probe",
    ".tables.ptx_matrix": "Variant find variants",
    ".library_kernels": "Launches describe_kernel kernels recorded_kernels triton_dot",
    ".vendor_gemm": "library_matmul",
    ".probing.probe": "probe_dots",
    ".protocol": "DeviceIdentity Dots",
    ".throughput": "Rate Rates",
    ".captures.replay": "check_silicon",
}
__getattr__, __dir__, _lazy_names = lazy_exports(__name__, _HOMES)
__all__ = sorted([*_lazy_names, "info", "is_available"])  # noqa: PLE0605


def is_available() -> bool:
    """Return whether this machine has a GPU that can be used. It never raises; `info` names the missing part.

    >>> import floatsim as fs
    >>> isinstance(fs.hardware.is_available(), bool)
    True
    """
    reason = importlib.import_module("floatsim.hardware.compile.runtime").why_unavailable()
    return reason is None


def info() -> Info:
    """Report the GPU, the driver, and the available instructions.

    Returns
    -------
    Info
        With the attributes identity (name, capability, driver, cuda, driver_cuda, runtime), architecture, compilers,
        rejected, instructions, operations and libraries. Its text shows all of them.

    Raises
    ------
    UnavailableError
        Without a GPU, or without both CuPy and a driver. The message names the missing part, and how to install it.

    Examples
    --------
    >>> import floatsim as fs
    >>> if fs.hardware.is_available():
    ...     assert fs.hardware.info().instructions
    """
    report: Info = importlib.import_module("floatsim.hardware.device_info").info()
    return report
