"""What a user waits for before the first result: imports, the first call, the first product, kernels compiled cold.

Everything is measured in processes of its own, with a cache folder of Numba's that is empty or just filled.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import floatsim as fs
from floatsim.accumulation import Accumulation

from . import cases
from .running import outcome

FIRST_CALL, COMPILED = 0.45, 1.0
LEAF, NESTING = 2.0, 1.5
_SETUP = "import numpy as np, floatsim as fs; x = np.ones(4, 'f4'); h = np.ones(4, 'f2'); "

IMPORTS = {
    "import numpy": "import numpy",
    "import floatsim": "import floatsim",
    "import floatsim, and look up quantize": "import floatsim; floatsim.quantize",
    "import numba": "import numba",
    "import pytest": "import pytest",
    "import pytest, and the plugin": "import pytest, floatsim.testing.pytest_plugin",
}
FIRST_CALLS = {
    "first quantize": _SETUP + "fs.quantize(x, 'fp16')",
    "first add": _SETUP + "fs.add(h, h)",
    "first add, with flags": _SETUP + "fs.add(h, h, return_flags=True)",
    "first matmul": _SETUP + "fs.matmul(h[None], h[:, None])",
}


LEAVES: tuple[dict[str, Any], ...] = (
    {"accumulate": "fp32"}, {"accumulate": "sequential({}, fused)"}, {"accumulate": "pairwise({})"},
    {"accumulate": "kahan({})"}, {"accumulate": "exact({})"}, {"accumulate": "{}"},
    {"accumulate": "{}", "rounding": "toward_zero"}, {"accumulate": "{}", "rounding": "stochastic", "seed": 1},
)  # fmt: skip
OTHERS = (
    "hopper", "blackwell", "cdna3", "exact(fp32)", "pairwise(fp32)", "splitk(4, fp32, fp32)",
    "strided(fp32, 4, pairwise(fp32))", "blocked(hopper, 128, fp32)",
    "blocked(strided(fp32, 4, pairwise(fp32)), 64, kahan(fp32))",
)  # fmt: skip
"""Options of a first product: of each format of operands; descriptions of FP16 products."""


_SUMS = ("{}", "sequential({}, fused)", "pairwise({})", "kahan({})", "neumaier({})", "exact({})")


def _kernel_calls() -> Iterator[str]:
    """Calls that between them reach every kernel, each without options and with flags."""
    arguments = {"to_integer": "a, np.int32", "from_integer": "i, fmt", "scalb": "a, i"}
    modes = ("ties_to_even", "toward_zero", "stochastic")
    for name in "fp16", "bf16", "e4m3", "fp32", "fp64":
        setup = f"fmt = fs.as_format('{name}'); a = fs.array(x, fmt); i = np.arange(4); "
        for operation, count in cases.OPERANDS.items():
            given = arguments.get(operation, ", ".join("a" * count) or "x, fmt")
            plain = operation in cases.WITHOUT_MODE
            for mode in ("",) if plain else modes:
                for flags in "", "return_flags=True":
                    accumulation = f"rounding='{mode}', seed=1" if mode else ""
                    yield setup + f"fs.{operation}({', '.join(part for part in (given, accumulation, flags) if part)})"
        yield setup + "fs.decode(a.codes, fmt); fs.classify(a); fs.total_order(a, a)"
        for accumulation, mode in itertools.product(_SUMS, modes):
            description = accumulation.format(name)
            yield setup + f"fs.matmul(a[None], a[:, None], accumulate='{description}', rounding='{mode}', seed=1)"
        yield setup + "fs.quantize(x.astype('f8'), fmt, rounding='ties_to_even')"


# Runs the calls given on stdin (a JSON list) and prints, for each, the kernels that it compiled and their seconds.
_LISTENER = """
import json, sys, time
import numpy as np, floatsim as fs
import floatsim.emulator.backend
from numba.core import event

class Outermost(event.Listener):
    depth, compiled = 0, []
    def on_start(self, e):
        self.depth += 1
        if self.depth == 1:
            self.start = time.perf_counter()
    def on_end(self, e):
        self.depth -= 1
        if self.depth == 0:
            function, types = e.data["dispatcher"].py_func, e.data["args"]
            name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
            kinds = [str(t.dtype) for t in types if hasattr(t, "dtype")]
            self.compiled.append((name, ' '.join(dict.fromkeys(kinds)), time.perf_counter() - self.start))

listener = Outermost()
x, h = np.ones(4, 'f4'), np.ones(4, 'f2')
event.register("numba:compile", listener)
found = []
for call in json.load(sys.stdin):
    listener.compiled = []
    try:
        exec(call)
    except (TypeError, ValueError):  # e.g. a dtype that cannot hold the format
        pass
    found.append(listener.compiled)
print(json.dumps(found))
"""


def _python(code: str, cache: str, given: str = "") -> str:
    environment = os.environ | {"NUMBA_CACHE_DIR": cache}
    done = subprocess.run(
        [sys.executable, "-c", code], input=given, capture_output=True, text=True, env=environment, check=False
    )
    if done.returncode:
        raise RuntimeError(f"a benchmark process failed:\n{done.stderr}")
    return done.stdout


def _seconds(code: str, cache: str) -> float:
    timed = f"import time\nstart = time.perf_counter()\n{code}\nprint(time.perf_counter() - start)"
    return float(_python(timed, cache))


@contextmanager
def _cache() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        yield folder


_HIDE_SCIPY = "import sys; sys.modules['scipy'] = None\n"


def waiting(rounds: int) -> dict[str, Any]:
    """Seconds of imports and of first calls with a warm cache, in interleaved processes.

    Numba imports scipy.linalg at the first use of any kernel if it finds it; floatsim does not need SciPy. So where it
    is installed, the first calls are timed with it and with it hidden.
    """
    calls = dict(FIRST_CALLS)
    if importlib.util.find_spec("scipy"):
        calls = {f"{name}{what}": hide + code for what, hide in ((", SciPy installed", ""), ("", _HIDE_SCIPY))
                 for name, code in FIRST_CALLS.items()}  # fmt: skip
    jobs = IMPORTS | calls
    with _cache() as cache:
        for code in jobs.values():
            _seconds(code, cache)
        taken: dict[str, list[float]] = {name: [] for name in jobs}
        for _ in range(rounds):
            for name, code in jobs.items():
                taken[name].append(_seconds(code, cache))
    rows = [{"what": name, "median": statistics.median(s), "min": min(s)} for name, s in taken.items()]
    by_name = {row["what"]: (row["median"], row["min"]) for row in rows}
    ratios = [other / own for other, own in zip(by_name["import numpy"], by_name["import floatsim"], strict=True)]
    checks = [outcome("import", "import floatsim", *ratios)]
    checks += [outcome("first call", name, *(FIRST_CALL / seconds for seconds in by_name[name])) for name in calls]
    return {"rows": rows, "checks": checks}


def compiling(rounds: int, most: int | None = None) -> dict[str, Any]:
    """Each kernel's cold compile time, Numba's own first-use cost included, in a process with an empty cache.

    One process finds which call first compiles which kernel; then each such call gets processes of its own.
    """
    calls = list(_kernel_calls())[:most]
    with _cache() as cache:
        found = json.loads(_python(_LISTENER, cache, json.dumps(calls)))
    fastest: dict[str, dict[str, Any]] = {}
    for call, compiled in zip(calls, found, strict=True):
        new = {name for name, _, _ in compiled} - fastest.keys()
        for _ in range(rounds if new else 0):
            with _cache() as cache:
                alone = json.loads(_python(_LISTENER, cache, json.dumps([call])))[0]
            for name, kinds, seconds in alone:
                known = fastest.get(name, {"seconds": seconds})["seconds"]
                if name in new and seconds <= known:
                    fastest[name] = {"kernel": name, "types": kinds, "seconds": seconds}
    rows = [fastest[name] for name in sorted(fastest)]
    ratios = {row["kernel"]: COMPILED / row["seconds"] for row in rows}
    checks = [outcome("compile", f"kernel {kernel}", ratio, ratio) for kernel, ratio in ratios.items()]
    return {"rows": rows, "checks": checks}


def _products() -> Iterator[tuple[str, dict[str, Any]]]:
    for name in "fp16", "bf16", "e4m3", "fp32", "fp64":
        for options in LEAVES:
            if not (name == "fp64" and options["accumulate"] == "fp32"):
                yield name, options | {"accumulate": options["accumulate"].format(name)}
    for description in OTHERS:
        yield "fp16", {"accumulate": description}


def _nestings(description: Accumulation) -> int:
    return sum(map(_nestings, description.children)) + bool(description.children)


def _first_product(name: str, options: dict[str, Any]) -> tuple[float, float]:
    """Seconds of the call and of its process, in a process with an empty cache."""
    code = (
        f"import time\nstart = time.perf_counter()\n{_HIDE_SCIPY}{_SETUP}a = fs.array(x, '{name}')\n"
        f"made = time.perf_counter()\nfs.matmul(a[None], a[:, None], **{options!r})\nend = time.perf_counter()\n"
        "print(end - made, end - start)"
    )
    with _cache() as cache:
        call, process = map(float, _python(code, cache).split())
    return call, process


def first_products(rounds: int, most: int | None = None) -> dict[str, Any]:
    """Seconds of the first call of `matmul` with an empty cache and without SciPy, and of the whole process, which
    also imports floatsim and makes the operand. The limits are those of the call. A round times every product, so that
    a slow phase of the processor does not meet all rounds of one product.
    """
    products = list(_products())[:most]
    taken = [[_first_product(*product) for product in products] for _ in range(rounds)]
    rows = []
    for (name, options), seconds in zip(products, zip(*taken, strict=True), strict=True):
        call, process = min(seconds)
        what = f"{name}, {', '.join(f'{option}={value!r}' for option, value in options.items())}"
        limit = LEAF + NESTING * _nestings(fs.as_accumulation(options["accumulate"]))
        rows.append({"what": what, "seconds": call, "process": process, "limit": limit})
    ratios = {row["what"]: row["limit"] / row["seconds"] for row in rows}
    checks = [outcome("first product", what, ratio, ratio) for what, ratio in ratios.items()]
    return {"rows": rows, "checks": checks}
