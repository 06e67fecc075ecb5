"""The identity of a device, and the protocol of everything that runs dot products like a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from floatsim._types import Codes
from floatsim.hardware.tables.compute_capability import Capability
from floatsim.hardware.tables.ptx_matrix import Variant
from floatsim.hardware.tables.ptx_scalar import Scalar
from floatsim.testing.vectors.dot_unit import Unit

__all__ = ["Compiled", "DeviceIdentity", "Dots", "MachineCode", "OwnUnits", "Scalars", "error_text"]


@dataclass(frozen=True)
class DeviceIdentity:
    """The name of a GPU and the versions of its software: the provenance of every result.

    Attributes
    ----------
    name : str
        The name that the driver reports.
    capability : (int, int)
        The compute capability.
    driver, cuda : str
        The versions of the driver and of CUDA.
    driver_cuda : str
        The newest version of CUDA that the driver supports; "" if it is not known.
    runtime : str
        The software that launches kernels: "CuPy 14.2.0" or "the driver API".

    >>> DeviceIdentity("NVIDIA H100 PCIe", (9, 0), "580.65.06", "13.0").capability
    (9, 0)
    """

    name: str
    capability: Capability
    driver: str
    cuda: str
    driver_cuda: str = ""
    runtime: str = ""


class Dots(Protocol):
    """A device that computes dot products by single instructions: a GPU, or an emulated device.

    >>> import floatsim as fs
    >>> device: fs.hardware.Dots = fs.hardware.Cpu()
    >>> isinstance(device.identity, fs.hardware.DeviceIdentity)
    True
    """

    @property
    def identity(self) -> DeviceIdentity:
        """The identity of the device."""

    def can_run(self, variant: Any) -> bool:
        """Return whether the device has the instruction."""

    def dots(self, variant: Any, a: Codes, b: Codes, c: Codes, scales: Any = None) -> Codes:
        """Compute independent dot products, each by one instruction.

        Parameters
        ----------
        variant : Variant
            The instruction and its formats, from `floatsim.hardware.tables.ptx_matrix`; of a CPU, a row of
            `floatsim.hardware.cpu.instructions`.
        a, b : (n, variant.k)
            Codes of the operands, of the formats' code dtypes.
        c : (n,)
            Codes of the output's format.
        scales : ((n, k / every), (n, k / every)), optional
            Codes of the scales of a and of b, for an instruction that takes scales.

        Returns
        -------
        (n,) codes of the output's format
            D. A NaN is the code that the device returns.
        """


@runtime_checkable
class OwnUnits(Protocol):
    """A device that lists its instructions itself, without a compute capability: a CPU."""

    def units(self) -> Iterator[tuple[Any, Unit]]:
        """Yield the instructions of the device as it issues them, each with its row in `floatsim.tensorcore`."""

    def provenance(self, variant: Any) -> dict[str, Any]:
        """Return the part of a capture's header that describes the device and the code that ran."""


@runtime_checkable
class Scalars(Protocol):
    """A device that also runs the operations of CUDA cores: a GPU, or an emulated device."""

    def scalar(self, row: Scalar, *operands: Codes) -> Codes:
        """Run an operation on every element. `floatsim.hardware.device.Device.scalar` describes the parameters."""


class MachineCode(Protocol):
    """Machine code with its provenance."""

    @property
    def compiler(self) -> str:
        """The name and version of the compiler, as "NVRTC 13.0"."""

    @property
    def sha256(self) -> str:
        """The SHA-256 of the machine code in hexadecimal digits."""


@runtime_checkable
class Compiled(Protocol):
    """A device that runs compiled kernels: a GPU, and not an emulated device."""

    def machine_code(self, operation: Variant | Scalar) -> MachineCode:
        """Return the machine code that runs a matrix instruction, or an operation of CUDA cores."""


def error_text(error: Exception) -> str:
    """Return an error as the text of a row that could not run: its type and its message, in one line.

    >>> error_text(ValueError("no such\\n  instruction"))
    'ValueError: no such instruction'
    """
    return " ".join(f"{type(error).__name__}: {error}".split())
