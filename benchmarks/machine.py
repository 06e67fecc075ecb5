"""What a run ran on: the processor and the versions, nothing that names the machine or its owner."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from .peers import PEERS

_FEATURES = ("avx2", "avx512f", "avx512fp16", "avx512bf16", "f16c", "fma", "fp16", "bf16")


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def machine() -> dict[str, Any]:
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    pages = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    chosen = pages.read_text(encoding="utf-8").partition("[")[2].partition("]")[0] if pages.exists() else "unknown"
    return {
        "cpu": _cpu_model(),
        "llvm": f"LLVM calls it {llvm.get_host_cpu_name()}",
        "features": " ".join(name for name in _FEATURES if features.get(name)) or "no features of note",
        "cores": os.cpu_count(),
        "os": f"{platform.system()} {platform.machine()}",
        "huge pages": chosen,
    }


def versions() -> dict[str, str | None]:
    """Of Python, of what floatsim runs on, and of the peers (None: not installed)."""
    found: dict[str, str | None] = {"Python": platform.python_version()}
    for name in "numba", "llvmlite", "scipy":
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found | {peer.distribution: peer.version for peer in PEERS.values()}


def commit() -> str:
    """The checkout's commit, and whether the package's sources differ from it."""
    root = Path(__file__).parents[1]

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--", "floatsim", "kernels", "benchmarks/*.py")
        return git("rev-parse", "--short", "HEAD") + (" with changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def load() -> float:
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
