# Written by tools/write_stubs.py. Do not edit.

from floatsim.hardware.api import bench, capture, compare, probe
from floatsim.hardware.captures.replay import check_silicon
from floatsim.hardware.comparison import compare_dots
from floatsim.hardware.compile.cupy_runtime import UnavailableError
from floatsim.hardware.cpu.device import Cpu, CpuIdentity
from floatsim.hardware.device import Device
from floatsim.hardware.device_info import Info
from floatsim.hardware.library_kernels import Launches, describe_kernel, kernels, recorded_kernels, triton_dot
from floatsim.hardware.probing.probe import probe_dots
from floatsim.hardware.protocol import DeviceIdentity, Dots
from floatsim.hardware.tables.ptx_matrix import Variant, find, variants
from floatsim.hardware.throughput import Rate, Rates
from floatsim.hardware.vendor_gemm import library_matmul

__all__ = [
    "Cpu", "CpuIdentity", "Device", "DeviceIdentity", "Dots", "Info", "Launches", "Rate", "Rates", "UnavailableError",
    "Variant", "bench", "capture", "check_silicon", "compare", "compare_dots", "describe_kernel", "find", "info",
    "is_available", "kernels", "library_matmul", "probe", "probe_dots", "recorded_kernels", "triton_dot", "variants",
]

def info() -> Info:
    """Report the GPU, the driver, and the available instructions."""

def is_available() -> bool:
    """Return whether this machine has a GPU that can be used. It never raises; `info` names the missing part."""
