# Written by tools/write_stubs.py. Do not edit.

from floatsim.hardware.device_info import Info
from floatsim.hardware.api import bench as bench
from floatsim.hardware.api import capture as capture
from floatsim.hardware.api import compare as compare
from floatsim.hardware.api import probe as probe
from floatsim.hardware.captures.replay import check_silicon as check_silicon
from floatsim.hardware.comparison import compare_dots as compare_dots
from floatsim.hardware.compile.cupy_runtime import UnavailableError as UnavailableError
from floatsim.hardware.device import Device as Device
from floatsim.hardware.device_info import Info as Info
from floatsim.hardware.probing.probe import probe_dots as probe_dots
from floatsim.hardware.protocol import Card as Card
from floatsim.hardware.protocol import DeviceIdentity as DeviceIdentity
from floatsim.hardware.protocol import Dots as Dots
from floatsim.hardware.tables.ptx_matrix import Variant as Variant
from floatsim.hardware.tables.ptx_matrix import find as find
from floatsim.hardware.tables.ptx_matrix import variants as variants
from floatsim.hardware.throughput import Rate as Rate
from floatsim.hardware.throughput import Rates as Rates
from floatsim.hardware.vendor_gemm import library_matmul as library_matmul

__all__: list[str]

def info() -> Info:
    """Report the GPU, the driver, and the available instructions."""

def is_available(
   
) -> bool:
    """Return whether this machine has a GPU that can be used. It never raises; `info` names the missing part."""
