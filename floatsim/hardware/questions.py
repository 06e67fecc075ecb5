"""The instructions of a device with their models in the table, to be probed, compared and captured one by one.

A device is any object with the protocol `floatsim.hardware.protocol.Dots`: a GPU, or an emulated device.
"""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from floatsim._types import Codes
from floatsim.hardware.comparison import FIRST, Comparison, compare_dots, could_not_run
from floatsim.hardware.probing.probe import Probe, probe_dots, rows_alike
from floatsim.hardware.protocol import DeviceIdentity, Dots, OwnUnits, Scalars, error_text
from floatsim.hardware.scalar_vectors import operands_of, scalar_results
from floatsim.hardware.tables.compute_capability import PLAIN, architecture_of, capability_of
from floatsim.hardware.tables.ptx_matrix import Variant, variants
from floatsim.hardware.tables.ptx_scalar import SCALARS, Scalar
from floatsim.tensorcore.architectures import as_architecture
from floatsim.testing.vectors.dot_inputs import ROWS, Inputs, input_set
from floatsim.testing.vectors.dot_unit import ScaleCodes, Unit, named_unit

__all__ = [
    "Emulated", "Operation", "Question", "compare_device", "emulated_device", "fits", "operations",
    "probe_device", "questions", "to_capture",
]  # fmt: skip


@dataclass(frozen=True)
class Question:
    """An instruction of a device, and its model in the table. `dots` runs it on the device."""

    device: Dots
    variant: Any
    unit: Unit

    @property
    def title(self) -> str:
        """The instruction with its formats, as text."""
        return str(self.variant)

    def dots(self, a: Codes, b: Codes, c: Codes, scales: ScaleCodes | None = None) -> Codes:
        """Run the instruction on the device. Shapes and dtypes are those of `Unit.dots`; K is the instruction's k."""
        return self.device.dots(self.variant, a, b, c, scales)

    def input_set(self, rows: int = ROWS, seed: int = 0) -> Inputs:
        """Return the test vectors of the instruction."""
        return input_set(self.unit, rows, seed)


@dataclass(frozen=True)
class Operation:
    """An operation of CUDA cores of a device. `run` runs it on the device."""

    device: Any
    row: Scalar

    @property
    def title(self) -> str:
        """The operation with its formats and its rounding, as text."""
        return str(self.row)

    def operands(self, seed: int = 0) -> tuple[Codes, ...]:
        """Return the test vectors of the operation."""
        return operands_of(self.row, seed)

    def run(self, *operands: Codes) -> Codes:
        """Run the operation on the device."""
        results: Codes = self.device.scalar(self.row, *operands)
        return results


def questions(device: Dots, only: Sequence[str] = ()) -> list[Question]:
    """Return the instructions that a device has and the table lists.

    Parameters
    ----------
    device : Dots
        A GPU, a CPU or an emulated device.
    only : texts
        Patterns with * as a wildcard: "wgmma.*", "* bf16 *". An instruction is selected if its text, as
        "mma.m16n8k16 fp16 fp16 fp32", or its name fits one of them. Default: all instructions.

    Returns
    -------
    list of Question

    Raises
    ------
    ValueError
        If no instruction is left. The message lists the device's instructions.
    """
    available = []
    identity = device.identity
    if isinstance(device, OwnUnits):
        available = [Question(device, variant, unit) for variant, unit in device.units()]
        if not available:
            raise ValueError(f"{identity.name} has no instruction that floatsim can issue")
        return _selected(available, only, identity.name)
    arch = architecture_of(identity.capability)
    for variant in variants():
        row = variant.model(identity.capability)
        if row is not None and arch is not None and device.can_run(variant):
            available.append(Question(device, variant, Unit(arch, row, variant.a, variant.b, variant.scales)))
    if not available:
        major, minor = identity.capability
        raise ValueError(
            f"{identity.name} has compute capability {major}.{minor}, and the table lists no instruction for it"
        )
    return _selected(available, only, identity.name)


def operations(device: Dots, only: Sequence[str] = ()) -> list[Operation]:
    """Return the operations of CUDA cores that a device runs, and that fit one of the patterns.

    >>> [str(each.row) for each in operations(emulated_device("hopper"), ["convert fp16 to *"])][:2]
    ['convert FP16 to BF16, ties_to_even', 'convert FP16 to BF16, toward_zero']
    """
    if not isinstance(device, Scalars):
        return []
    available = [row for row in SCALARS if row.runs_on(device.identity.capability)]
    return [Operation(device, row) for row in available if not only or any(fits(str(row), text) for text in only)]


def to_capture(device: Dots, only: Sequence[str] = ()) -> list[Question | Operation]:
    """Return the instructions of a device that the table lists, and its operations of CUDA cores.

    Raises
    ------
    ValueError
        If nothing fits a pattern. The message lists the device's instructions.
    """
    scalar = operations(device, only)
    try:
        return [*questions(device, only), *scalar]
    except ValueError:
        if not scalar:
            raise
        return [*scalar]


def emulated_device(arch: str) -> Emulated:
    """Return a device that emulates a GPU of an architecture, to see the output of a probe, and to test it.

    Raises
    ------
    ValueError
        For an architecture whose instructions floatsim cannot issue.

    Examples
    --------
    >>> [str(q.variant) for q in questions(emulated_device("volta"))]
    ['mma.m8n8k4 fp16 fp16 fp32', 'mma.m8n8k4 fp16 fp16 fp16']
    """
    name = as_architecture(arch).name
    capability = next((c for c in map(capability_of, PLAIN) if architecture_of(c) == name), None)
    if capability is None:
        raise ValueError(f"{name} has no instructions that floatsim can issue; NVIDIA's architectures have")
    return Emulated(DeviceIdentity(f"the emulator of {name}", capability, "", ""))


@dataclass(frozen=True)
class Emulated:
    """An emulated device, whose instructions compute as the table defines."""

    identity: DeviceIdentity

    def can_run(self, variant: Variant) -> bool:
        """Return whether such a GPU has the instruction."""
        return variant.kernel.runs_on(self.identity.capability)

    def dots(self, variant: Variant, a: Codes, b: Codes, c: Codes, scales: tuple[Codes, Codes] | None = None) -> Codes:
        """Emulate the instruction on each row."""
        arch = architecture_of(self.identity.capability)
        assert arch is not None
        unit = named_unit(arch, variant.name, variant.a, variant.b, variant.output, variant.scales)
        return unit.dots(a, b, c, None if scales is None else ScaleCodes(*scales))

    def scalar(self, row: Scalar, *operands: Codes) -> Codes:
        """Emulate an operation of CUDA cores on each element."""
        return scalar_results(row, *operands)


def _selected(available: list[Question], only: Sequence[str], device: str) -> list[Question]:
    """Return the instructions that fit a pattern, each once. Of several ways to issue one, the first is taken."""
    chosen = [q for q in available if not only or any(fits(str(q.variant), text) for text in only)]
    if not chosen:
        names = ", ".join(dict.fromkeys(q.variant.name for q in available))
        raise ValueError(f"only={', '.join(only)!r} fits no instruction of {device}; it has {names}")
    return list({str(q.variant): q for q in reversed(chosen)}.values())[::-1]


def fits(text: str, pattern: str) -> bool:
    """Return whether a text, or its first word, fits a pattern with * as a wildcard. Upper and lower case are equal.

    >>> fits("wgmma.k16 fp16 fp16 fp32", "wgmma.k16"), fits("wgmma.k16 fp16 fp16 fp32", "* BF16 *")
    (True, False)
    """
    text, pattern = text.lower(), pattern.lower()
    return fnmatch.fnmatchcase(text, pattern) or fnmatch.fnmatchcase(text.partition(" ")[0], pattern)


def probe_device(selected: Iterable[Question]) -> Iterator[Probe]:
    """Probe the instructions of a device, and compare each model with the table's row.

    The error of one instruction is its row, and the next instruction follows.
    """
    for q in selected:
        u = q.unit
        try:
            probe = probe_dots(q.dots, u.a, u.b, k=u.k, output=u.output, scales=u.scales, against=u)
            yield probe if probe.equal else dataclasses.replace(probe, alike=rows_alike(probe, u))
        except Exception as error:
            yield Probe(str(u), (), error=error_text(error))


def compare_device(
    selected: Iterable[Question], rows: int = ROWS, seed: int = 0, first: int = FIRST
) -> Iterator[Comparison]:
    """Run the test vectors on a device, and compare the results of each instruction with the emulator.

    The error of one instruction is its row, and the next instruction follows.
    """
    for q in selected:
        name = q.device.identity.name
        try:
            inputs = q.input_set(rows, seed)
            yield compare_dots(q.unit, inputs, q.dots(*inputs), name, first)
        except Exception as error:
            yield could_not_run(str(q.unit), name, q.unit.output, error)
