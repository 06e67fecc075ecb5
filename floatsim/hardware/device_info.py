"""The report on this machine: the GPU, the driver, the compilers, and the available instructions."""

from __future__ import annotations

from dataclasses import dataclass

from floatsim.hardware.compile import nvrtc as build
from floatsim.hardware.device import Device
from floatsim.hardware.protocol import DeviceIdentity
from floatsim.hardware.tables.compute_capability import architecture_of, is_assumed
from floatsim.hardware.tables.ptx_scalar import SCALARS
from floatsim.hardware.vendor_gemm import installed

__all__ = ["Info", "info"]


@dataclass(frozen=True)
class Info:
    """The result of `fs.hardware.info()`. Prints as text.

    Attributes
    ----------
    identity : DeviceIdentity
        The GPU and its software.
    architecture : str or None
        The name of its architecture in `fs.tensorcore`, if it has one.
    compilers : tuple of str
        The CUDA compilers of this machine. Each has compiled an empty kernel.
    instructions, operations : tuple of str
        The matrix instructions, and the operations of CUDA cores.
    libraries : tuple of str
        The libraries that `fs.hardware.compare` can use.
    rejected : tuple of str
        The CUDA compilers that do not work, with the reasons.

    Examples
    --------
    >>> gpu = DeviceIdentity("a GPU", (8, 6), "580.65.06", "12.9", "13.0", "CuPy 14.2.0")
    >>> print(Info(gpu, "ampere", ("NVRTC 12.9",), ("mma.m16n8k8 ...",), (), ("cublas", "cupy")))
    a GPU, compute capability 8.6 (ampere), driver 580.65.06
    CUDA 12.9 (CuPy 14.2.0); the driver supports CUDA 13.0
    compiled by NVRTC 12.9
    libraries: cublas, cupy
    matrix instructions:
      mma.m16n8k8 ...
    operations of CUDA cores:
    """

    identity: DeviceIdentity
    architecture: str | None
    compilers: tuple[str, ...]
    instructions: tuple[str, ...]
    operations: tuple[str, ...]
    libraries: tuple[str, ...] = ()
    rejected: tuple[str, ...] = ()

    def __str__(self) -> str:
        identity, (major, minor) = self.identity, self.identity.capability
        model = self.architecture or "no architecture of fs.tensorcore"
        if is_assumed(identity.capability):
            model += ", unverified for this GPU"
        lines = [
            f"{identity.name}, compute capability {major}.{minor} ({model}), driver {identity.driver}",
            f"CUDA {identity.cuda} ({identity.runtime}); the driver supports CUDA {identity.driver_cuda}",
            f"compiled by {', '.join(self.compilers) or 'nothing: neither NVRTC nor nvcc works'}",
            *(f"rejected compiler: {reason}" for reason in self.rejected),
            f"libraries: {', '.join(self.libraries) or 'none'}",
            "matrix instructions:", *(f"  {name}" for name in self.instructions),
            "operations of CUDA cores:", *(f"  {name}" for name in self.operations),
        ]  # fmt: skip
        return "\n".join(lines)


def info() -> Info:
    """Return the report on this machine. `fs.hardware.info` is the public function."""
    device = Device()
    capability = device.identity.capability
    return Info(
        device.identity, architecture_of(capability), tuple(compiler.name for compiler in build.compilers()),
        tuple(map(str, device.variants)), tuple(str(row) for row in SCALARS if row.runs_on(capability)), installed(),
        build.rejected(),
    )  # fmt: skip
