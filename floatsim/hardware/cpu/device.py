"""This CPU as a device of dot products, like a GPU: for probes, comparisons and captures."""

from __future__ import annotations

import functools
import hashlib
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from floatsim_kernels.cpu import assembly, x86

from floatsim._types import Codes
from floatsim.hardware.cpu.instructions import DOTS, CpuDot
from floatsim.hardware.cpu.loops import run_dot, text_of
from floatsim.hardware.cpu.support import why_not
from floatsim.hardware.protocol import DeviceIdentity
from floatsim.testing.vectors.dot_unit import Unit

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Cpu", "CpuIdentity", "identity"]


@dataclass(frozen=True)
class CpuIdentity(DeviceIdentity):
    """The identity of a CPU, as its CPUID instruction reports it.

    Attributes
    ----------
    name : str
        The brand, the family, the model and the stepping.
    capability : (int, int)
        The family and the model.
    driver, cuda, driver_cuda, runtime : str
        Empty: these belong to GPUs.
    stepping : int
        The stepping.
    vendor : str
        The vendor's text, as "GenuineIntel".
    flags : tuple of str
        LLVM's names of the features that the processor reports.
    compiler : str
        The compiler of the loops, as "llvmlite 0.50.0 (LLVM 22.1.0)".

    Examples
    --------
    >>> import floatsim as fs
    >>> identity = fs.hardware.Cpu().identity
    >>> isinstance(identity, fs.hardware.CpuIdentity), identity.driver
    (True, '')
    """

    stepping: int = 0
    vendor: str = ""
    flags: tuple[str, ...] = ()
    compiler: str = ""


@functools.cache
def identity() -> CpuIdentity:
    """Return the identity of this CPU.

    >>> identity().compiler.startswith("llvmlite ")
    True
    """
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return CpuIdentity(platform.machine(), (0, 0), "", "", compiler=assembly.compiler())
    _, features = assembly.processor()
    flags = tuple(sorted(each for each, present in features.items() if present))
    routine, out = assembly.Loop(x86.cpuid(), ()), np.zeros(4, np.uint32)

    def cpuid(leaf: int) -> NDArray[np.uint32]:
        routine(leaf, 0, out)
        return out.copy()

    vendor = cpuid(0)[[1, 3, 2]].tobytes().decode("ascii")
    brand = b"".join(cpuid(leaf).tobytes() for leaf in (0x80000002, 0x80000003, 0x80000004)).rstrip(b"\0").decode()
    family, model, stepping = _signature(int(cpuid(1)[0]))
    full = f"{' '.join(brand.split())}, family {family} model {model} stepping {stepping}"
    return CpuIdentity(full, (family, model), "", "", "", "", stepping, vendor, flags, assembly.compiler())


def _signature(eax: int) -> tuple[int, int, int]:
    """Return (family, model, stepping) of CPUID's leaf 1.

    Source: Intel SDM, volume 2, CPUID, "Version Information Returned by CPUID in EAX".

    >>> _signature(0x000A0678)
    (6, 167, 8)
    """
    stepping, model, family = eax & 15, eax >> 4 & 15, eax >> 8 & 15
    if family in (6, 15):
        model |= eax >> 12 & 0xF0
    return family + (eax >> 20 & 255) * (family == 15), model, stepping


class Cpu:
    """This CPU, with the instructions of the table that it has.

    Examples
    --------
    >>> import floatsim as fs
    >>> cpu = fs.hardware.Cpu()
    >>> all(cpu.can_run(dot) for dot, _ in cpu.units())
    True
    """

    @property
    def identity(self) -> CpuIdentity:
        """The identity of the CPU."""
        return identity()

    def can_run(self, variant: CpuDot) -> bool:
        """Return whether the CPU has the instruction."""
        return why_not(variant) is None

    def units(self) -> Iterator[tuple[CpuDot, Unit]]:
        """Yield the instructions of the CPU, each with its row in the table."""
        for dot in DOTS:
            if self.can_run(dot):
                yield dot, Unit(dot.arch, dot.row, dot.a, dot.b)

    def dots(self, variant: CpuDot, a: Codes, b: Codes, c: Codes, scales: None = None) -> Codes:
        """Run independent dot products, each by one instruction. `floatsim.hardware.protocol.Dots` describes them.

        Raises
        ------
        RuntimeError
            If the CPU does not have the instruction.
        """
        if reason := why_not(variant):
            raise RuntimeError(f"this CPU cannot run {variant}: {reason}")
        return run_dot(variant, a, b, c)

    def provenance(self, variant: CpuDot) -> dict[str, Any]:
        """Return the part of a capture's header that describes the CPU and the code that ran."""
        own = self.identity
        family, model = own.capability
        return {
            "vendor": own.vendor, "family": family, "model": model, "stepping": own.stepping, "flags": list(own.flags),
            "system": platform.system(), "kernel_flags": _kernel_flags(), "compiler": own.compiler,
            "assembly": variant.assembly, "kernel_sha256": hashlib.sha256(text_of(variant).encode()).hexdigest(),
        }  # fmt: skip


def _kernel_flags() -> str | None:
    """Return the line of flags in /proc/cpuinfo, None where there is none."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("flags")), None)
