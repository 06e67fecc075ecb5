"""The architectures by name: generations of GPUs and instruction sets of CPUs, and how an instruction is selected."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any

from floatsim.formats import (
    E4M3,
    E4M3FNUZ,
    E5M2,
    E5M2FNUZ,
    FP32,
    FloatFormat,
)
from floatsim.formats._validation import nearest_name
from floatsim.tensorcore.cpu_instructions import CPU_UNITS
from floatsim.tensorcore.gpu_instructions import GPU_UNITS
from floatsim.tensorcore.instructions import (
    Architecture,
    Instruction,
    Scales,
)

__all__ = [
    "ARCHITECTURES", "GPUS", "Architecture", "as_architecture", "as_instruction_name", "enumerated", "is_architecture",
    "nearest", "select",
]  # fmt: skip

ARCHITECTURES = {unit.name: unit for unit in (*GPU_UNITS, *CPU_UNITS)}
"""The architectures by name: GPUs, the oldest of each maker first, then the instruction sets of CPUs.

>>> import floatsim as fs
>>> "hopper" in fs.tensorcore.ARCHITECTURES, fs.tensorcore.ARCHITECTURES["hopper"].title
(True, 'NVIDIA Hopper (sm_90)')
"""

GPUS = {alias: unit.name for unit in ARCHITECTURES.values() for alias in unit.aliases}
"""The architectures of GPUs, of compilation targets and of CPUs. The names are written without spaces and hyphens."""

_MISSING = {
    gpu: title
    for title, gpus in {
        "NVIDIA Jetson Thor (sm_110)": "sm101 sm101a sm110 sm110a sm110f thor jetsonthor",
        "AMD CDNA 4 (gfx950)": "gfx950 cdna4 mi350 mi350x mi355x",
        "AMD RDNA 3 (gfx11)": "rdna3 gfx1100 gfx1101 gfx1102 gfx1103 radeonrx7900xtx rx7900xtx",
        "AMD RDNA 3.5 (gfx115x)": "rdna3.5 gfx1150 gfx1151 gfx1152 gfx1153 radeon880m radeon890m radeon8060s",
        "AMD RDNA 4 (gfx12)": "rdna4 gfx1200 gfx1201 radeonrx9070xt rx9070xt",
    }.items()
    for gpu in gpus.split()
}
"""GPUs and targets whose matrix units are not in the table: nothing is published about their arithmetic."""

_INTEGERS = {"avx512vnni": "VPDPBUSD", "avxvnni": "VPDPBUSD", "amxint8": "TDPBSSD"}
"""Instruction sets of CPUs for integers, with an instruction of each."""

_WITHOUT_MEANING = re.compile(
    r"nvidia|geforce|amd|instinct|tesla|ti|super|laptop|gpu|pcie|sxm\d?|nvl|hbm\d\w?|\d+gb|workstation|server|edition|"
    r"generation"
)
"""Words in the names of GPUs that do not decide the architecture."""


_CAPABILITY = re.compile(r"(?:(?:compute capability|cc) ?)?(\d+)\.(\d)|compute_(\d+[af]?)")
"""A compute capability, as "10.3", and its name as a compilation target, "compute_103"."""


def _key(name: str) -> str:
    text = name.strip().lower()
    if capability := _CAPABILITY.fullmatch(text):
        text = f"sm_{''.join(filter(None, capability.groups()))}"
    words = re.split(r"[\s_-]+", text)
    key = "".join(word for word in words if not _WITHOUT_MEANING.fullmatch(word))
    if key.startswith("rtxpro"):  # the driver's name of the GPU ends with the name of the architecture
        key = key.removesuffix("blackwell")
    return GPUS.get(key, key)


def is_architecture(name: str) -> bool:
    """Return whether this names an architecture, a GPU or a compilation target, also if the table does not have it.

    >>> is_architecture("H100"), is_architecture("B300"), is_architecture("fp16")
    (True, True, False)
    """
    key = _key(name)
    return key in ARCHITECTURES or key in _MISSING or key in _INTEGERS


def nearest(name: str) -> str | None:
    """Return the name of the nearest architecture, or None."""
    key = _key(name)
    for near in difflib.get_close_matches(key, ARCHITECTURES):
        if "".join(filter(str.isdigit, near)) == "".join(filter(str.isdigit, key)):  # CDNA 4 is not CDNA 3
            return near
    return None


def as_architecture(name: Any) -> Architecture:
    """The architecture of this name, of a GPU ("RTX 4090"), a compilation target ("sm_90a") or a compute capability
    ("10.3"); an error lists all.

    >>> as_architecture("Ada").title, as_architecture("MI300X").name, as_architecture("10.3").name
    ('NVIDIA Ada Lovelace (sm_89)', 'cdna3', 'blackwell')
    """
    if not isinstance(name, str):
        raise TypeError(f"an architecture is named by a text such as 'hopper', not {name!r}")
    key = _key(name)
    if key in ARCHITECTURES:
        return ARCHITECTURES[key]
    if key in _MISSING:
        raise ValueError(
            f"{name!r} is {_MISSING[key]}, which is not modelled yet; known architectures are "
            f"{', '.join(ARCHITECTURES)}"
        )
    if key in _INTEGERS:
        raise ValueError(
            f"{name!r} multiplies integers: fs.quantization.integer_matmul(a, b, "
            f"instruction={_INTEGERS[key].lower()!r}) computes as it does"
        )
    near = nearest(name)
    hint = f"did you mean {near!r}? " if near else ""
    raise ValueError(f"unknown architecture {name!r}; {hint}known are {', '.join(ARCHITECTURES)}")


def as_instruction_name(architecture: Architecture, name: Any) -> str:
    """Return the name of an instruction of the architecture.

    The error lists all names, or the architectures that have the instruction.

    >>> as_instruction_name(as_architecture("hopper"), "WGMMA.k16")
    'wgmma.k16'
    """
    if not isinstance(name, str):
        raise TypeError(f"an instruction is named by a text such as {architecture.names[0]!r}, not {name!r}")
    key = name.strip().lower()
    if key in architecture.names:
        return key
    owners = [other.name for other in ARCHITECTURES.values() if key in other.names]
    near = nearest_name(key, architecture.names)
    hint = f"{', '.join(owners)} has it; " if owners else f"did you mean {near!r}? " if near else ""
    raise ValueError(
        f"{architecture.name} has no instruction {name!r}; {hint}there are {', '.join(architecture.names)}"
    )


def select(
    architecture: Architecture, name: str | None, a: FloatFormat, b: FloatFormat, output: FloatFormat | None = None,
    scales: Scales | None = None,
) -> Instruction:  # fmt: skip
    """Return the row of the table for operands of these formats, by default the architecture's main instruction.

    `output` None selects FP32, or FP64 for FP64 operands. Block-scaled operands need their `scales`. If no row fits,
    the ValueError lists the rows that exist.

    >>> from floatsim.formats import BF16, TF32, FP32
    >>> select(as_architecture("hopper"), None, BF16, BF16).name
    'wgmma.k16'
    >>> select(as_architecture("volta"), None, BF16, BF16)
    Traceback (most recent call last):
    ValueError: volta does not multiply BF16 by BF16; it takes FP16 (mma.m8n8k4)
    """
    named = [row for row in architecture.instructions if name in (None, row.name)]
    where = architecture.name if name is None else f"{name} on {architecture.name}"
    rows = [row for row in named if bool(row.scales) == (scales is not None)]
    if not rows:
        with_scales = [row.name for row in architecture.instructions if row.scales]
        if scales is None:
            raise ValueError(f"{where} takes scales, which were not given: scale_a= and scale_b=")
        owners = [other.name for other in ARCHITECTURES.values() if any(row.scales for row in other.instructions)]
        has = f"instructions with scales are {', '.join(with_scales)}" if with_scales else f"{', '.join(owners)} do"
        raise ValueError(f"{where} takes no scales; {has}")
    taking = [row for row in rows if _reads(row, a, b, name)]
    if not taking:
        alone = [fmt for fmt in (a, b) if any(_reads(row, fmt, fmt, name) for row in rows)]
        advice = f"both must be {a}, or both {b}" if len(alone) == 2 and a != b else _what_it_takes(rows, a, b)
        raise ValueError(f"{where} does not multiply {a} by {b}; {advice}")
    if scales is not None:
        fitting = [row for row in taking if scales in row.scales]
        if not fitting:
            every = {f"{s.format} for every {s.every}": None for row in taking for s in row.scales}
            given = f"{scales.format} for every {scales.every}"
            raise ValueError(f"{where} takes no scales of {given} elements; there are {', '.join(every)}")
        taking = fitting
    wanted = [row for row in taking if output is None or row.output == output]
    if not wanted:
        there = dict.fromkeys(row.output for row in taking)
        raise ValueError(f"{where} gives {enumerated(there)} for {a}, not {output}")
    return wanted[0]


def _reads(row: Instruction, a: FloatFormat, b: FloatFormat, name: str | None) -> bool:
    """Return whether an instruction reads such operands. FP32 is read as TF32 only if the instruction is named."""
    return row.takes(a, b) and (name is not None or not row.truncates or FP32 not in (a, b))


def enumerated(items: Iterable[object]) -> str:
    """Return the items as a list in words.

    >>> enumerated(["FP32", "FP16", "FP64"])
    'FP32, FP16 and FP64'
    """
    *before, last = (f"{item}" for item in items)
    return f"{', '.join(before)} and {last}" if before else last


def _what_it_takes(rows: list[Instruction], a: FloatFormat, b: FloatFormat) -> str:
    """Return a text: the formats that instructions take, and a hint that FP32 needs a named instruction."""
    by_inputs: dict[str, dict[str, None]] = {}
    for row in rows:
        listed = ", ".join(fmt.name for fmt in row.inputs)
        by_inputs.setdefault(f"any mix of {listed}" if row.mixes else listed, {})[row.name] = None
    takes = "; ".join(f"{inputs} ({', '.join(names)})" for inputs, names in by_inputs.items())
    tf32 = [row.name for row in rows if row.truncates]
    hint = f". FP32 operands are read as TF32 where the instruction is named: {', '.join(tf32)}"
    return f"it takes {takes}" + (hint if tf32 and FP32 in (a, b) else _kin(rows, a, b))


_KIN = {E4M3: E4M3FNUZ, E5M2: E5M2FNUZ, E4M3FNUZ: E4M3, E5M2FNUZ: E5M2}
"""AMD's CDNA 3 and NVIDIA have different FP8 formats."""


def _kin(rows: list[Instruction], a: FloatFormat, b: FloatFormat) -> str:
    """Return a hint to convert to the other manufacturer's FP8 format, if that is accepted; else ""."""
    taken = {fmt for row in rows for fmt in row.inputs}
    kin = {fmt: _KIN[fmt] for fmt in (a, b) if fmt in _KIN and fmt not in taken and _KIN[fmt] in taken}
    return "".join(
        f". In place of {fmt} it has {of} (max {of.max:g}): fs.convert(x, {of.name.lower()!r})"
        for fmt, of in kin.items()
    )
