"""What a run ran on: the processor and the versions, nothing that names the machine or its owner."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from .peers import PEERS

_FEATURES = ("avx2", "avx512f", "avx512fp16", "avx512bf16", "f16c", "fma", "fp16", "bf16")


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def features() -> dict[str, bool]:
    """Return the features of the processor that Numba compiles for, by their names in LLVM."""
    from floatsim_kernels.runtime.numba_compat import target

    return {feature[1:]: feature.startswith("+") for feature in target()[1] if feature}


def has_avx512() -> bool:
    """Return whether Numba compiles for AVX-512."""
    return features().get("avx512f", False)


def avx2_settings() -> dict[str, str]:
    """Return the environment of a process that is limited to AVX2: floatsim, NumPy's loops, its sgemm, and torch.

    NUMBA_CPU_NAME alone changes what LLVM assumes about speed, not the instructions that it may use.
    """
    wide = ("avx512", "avx10", "amx", "evex512", "prefer-256-bit")
    allowed = (f"{'+' if has and not name.startswith(wide) else '-'}{name}" for name, has in sorted(features().items()))
    found = np.show_config(mode="dicts").get("SIMD Extensions", {}).get("found", [])
    return {
        "NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": ",".join(allowed),
        "NPY_DISABLE_CPU_FEATURES": " ".join(name for name in found if name.startswith(("AVX512", "X86_V4"))),
        "OPENBLAS_CORETYPE": "Haswell", "ATEN_CPU_CAPABILITY": "avx2",
    }  # fmt: skip


def limited_to_avx2(module: str, *arguments: str) -> Any:
    """Return the JSON that `python -m module` prints in a process limited to AVX2; None where there is no AVX-512.

    There a second process would run the same code.
    """
    if not has_avx512():
        return None
    command = [sys.executable, "-m", module, "--json", *arguments]
    environment = os.environ | avx2_settings()
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment).stdout)


def machine() -> dict[str, Any]:
    import llvmlite.binding as llvm

    pages = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    chosen = pages.read_text(encoding="utf-8").partition("[")[2].partition("]")[0] if pages.exists() else "unknown"
    return {
        "cpu": _cpu_model(),
        "llvm": f"LLVM calls it {llvm.get_host_cpu_name()}",
        "features": " ".join(name for name in _FEATURES if features().get(name)) or "no features of note",
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
