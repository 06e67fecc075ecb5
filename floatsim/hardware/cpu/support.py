"""Find out which instructions this CPU has, without risk for the calling process.

An instruction that the processor or the operating system does not support ends its process with a signal, and an
instruction that LLVM does not know aborts it. So a child process runs each instruction once.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence

from floatsim_kernels.cpu import assembly

from floatsim.hardware.cpu.instructions import CONVERSIONS, DOTS, INTEGERS, AnyInstruction

__all__ = ["request_tiles", "supported", "why_not"]

_LIMIT_S = 120
_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18
"""The system call of Linux on x86-64 that permits the use of AMX tiles (Linux 5.16, arch/x86/kernel/fpu/xstate.c)."""

_CHILD = "from floatsim.hardware.cpu.loops import run_child; run_child()"


@functools.cache
def request_tiles() -> str | None:
    """Ask the operating system for the permission to use AMX tiles. Return the reason if it refuses.

    The permission holds for the whole process.
    """
    if sys.platform != "linux":
        return f"floatsim cannot ask {platform.system()} for the permission to use tiles"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA):
        return f"Linux refuses the permission to use tiles: {os.strerror(ctypes.get_errno())}"
    return None


def why_not(instruction: AnyInstruction) -> str | None:
    """Return why this CPU cannot run an instruction, or None if it can.

    >>> from floatsim.hardware.cpu.instructions import DOTS
    >>> reason = why_not(DOTS[0])
    >>> reason is None or isinstance(reason, str)
    True
    """
    return supported()[str(instruction)]


@functools.cache
def supported() -> Mapping[str, str | None]:
    """Return every instruction of the tables with the reason why this CPU cannot run it, None if it can."""
    instructions: tuple[AnyInstruction, ...] = (*DOTS, *CONVERSIONS, *INTEGERS)
    reasons = {str(each): _reported(each) for each in instructions}
    left = [name for name, reason in reasons.items() if reason is None]
    while left:
        answers, end = _answers(left)
        reasons |= {name: text or None for name, text in answers.items()}
        left = [name for name in left if name not in answers]
        if left:  # the child ended at the first of them
            reasons[left.pop(0)] = end
    return reasons


def _reported(instruction: AnyInstruction) -> str | None:
    """Return why the processor's own report excludes an instruction."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return f"it is an instruction of x86-64, and this machine is {platform.machine()}"
    _, features = assembly.processor()
    missing = [name for name in instruction.features if not features.get(name, False)]
    return f"the processor does not report {' and '.join(missing)}" if missing else None


def _answers(names: Sequence[str]) -> tuple[dict[str, str], str]:
    """Run instructions in a child process. Return the answer for each that was run, and how the child ended."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONFAULTHANDLER": ""}
    try:
        child = subprocess.run(
            [sys.executable, "-c", _CHILD, *names], capture_output=True, text=True, check=False, env=environment,
            timeout=_LIMIT_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {}, f"the child process did not end in {_LIMIT_S} s"
    answers = dict(line.split("\t", 1) for line in child.stdout.splitlines() if "\t" in line)
    code = child.returncode
    if code < 0:
        return answers, f"the child process ended with {signal.Signals(-code).name}"
    last = (child.stderr.strip().splitlines() or [""])[-1]
    return answers, f"the child process ended with exit code {code}: {last}"
