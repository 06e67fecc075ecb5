"""The private parts of Numba and llvmlite that the kernels use are there in the installed versions."""

import errno
import gc
import os
import pickle
import subprocess
import sys
import threading

import llvmlite
import numba
import numpy as np
import pytest
from floatsim_kernels.runtime import compile_faster, jit, numba_compat
from floatsim_kernels.runtime.jit import SOURCE_HASH, inline, kernel, kernel_of
from numba.core import event

from tests.marks import cases

only_faster = pytest.mark.skipif(jit.FASTER is None, reason="FLOATSIM_NUMBAS_COMPILER asks for Numba's own compiler")


@pytest.mark.parametrize(("module", "name"), [
    (module, name) for module in (numba_compat, compile_faster) for name in module.CHECKS
], ids=lambda x: x if isinstance(x, str) else x.__name__.rpartition(".")[2])  # fmt: skip
def test_private_name_is_there(module, name):
    assert module.CHECKS[name](), (
        f"Numba {numba.__version__} with llvmlite {llvmlite.__version__} has no {name}: adapt {module.__name__}"
    )


@only_faster
def test_inlined_functions_have_no_machine_code():
    """They run in kernels, in kernels of kernels, and in functions that users compile."""

    @inline
    def square(x):
        return x * x

    @inline
    def fourth_power(x):
        return square(square(x))

    @kernel
    def sixteenth_power(x):
        return fourth_power(fourth_power(x))

    assert sixteenth_power(2.0) == 2.0**16
    assert numba.njit(lambda x: fourth_power(x) + square(x))(3.0) == 90
    (compiled,) = fourth_power.overloads.values()
    engine = compiled.library.codegen._engine
    assert not engine.is_symbol_defined(compiled.fndesc.mangled_name)


FALLBACK = """
import sys, warnings
sys.path[:0] = {path!r}
import numba, numba.core.codegen
numba.__version__ = "99.0.0"  # a version whose checks no test ran
{change}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from floatsim_kernels.runtime.jit import FASTER, inline, kernel

@inline
def twice(n, x):
    return x + x if n == 2 else x.missing

@kernel
def double(x, out):
    for i in range(len(x)):
        out[i] = twice(2, x[i])

import numpy as np
x = np.ones(3)
double(x, x)
print(x.tolist(), FASTER is not None, *(f"{{each.category.__name__}}: {{each.message}}" for each in caught))
"""


BROKEN = "from floatsim_kernels.runtime import compile_faster; compile_faster.CHECKS"


@pytest.mark.parametrize(("change", "warned"), cases(
    quick=[pytest.param(f"{BROKEN}['Lower'] = lambda: False", "Lower", id="a check fails")],
    full=[
        pytest.param("", "", id="all there"),
        pytest.param(
            "del numba.core.codegen.JITCodeLibrary", "cannot import name 'JITCodeLibrary'", id="a name is missing"
        ),
        pytest.param(
            f"{BROKEN}['Flags'] = lambda: 1 / 0", "Flags (ZeroDivisionError: division by zero)", id="a check raises"
        ),
    ],
))  # fmt: skip
def test_numbas_own_compiler_serves_where_the_faster_one_does_not_fit(change, warned, tmp_path):
    """With one warning, which says what is missing; in a version that no test ran."""
    script = tmp_path / "script.py"
    script.write_text(FALLBACK.format(path=[path for path in sys.path if path], change=change))
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path), "FLOATSIM_NUMBAS_COMPILER": "0"}
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith(f"[2.0, 2.0, 2.0] {not warned}")
    assert warned in done.stdout and done.stdout.count("RuntimeWarning: floatsim: kernels take longer") == bool(warned)


@only_faster
@pytest.mark.parametrize("enabled", [True, False])
def test_collection_is_paused_while_kernels_compile(enabled, tmp_path, monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))  # empty, so that the kernel is compiled
    states = []
    was_enabled = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        listener = Recorder(lambda: states.append(gc.isenabled()))
        with event.install_listener("numba:compile", listener):

            @kernel
            def half(x):
                return x / 2

            assert half(4.0) == 2
        assert states == [False]
        assert gc.isenabled() is enabled
        with pytest.raises(numba.TypingError):
            half("4")  # a compilation that fails
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if was_enabled else gc.disable)()


class Recorder(event.Listener):
    """Calls a function when a compilation begins."""

    def __init__(self, call):
        self.call = call

    def on_start(self, event):
        self.call()

    def on_end(self, event):
        pass


def test_cache_key_holds_the_source_hash(tmp_path, monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))

    @kernel
    def double(x):
        return 2 * x

    assert double(np.int64(2)) == 4
    assert sum(double.stats.cache_misses.values()) == 1
    assert list(tmp_path.rglob("*.nbi")), "Numba did not use the dispatcher's _cache"
    key = double._cache._index_key(double.signatures[0], numba_compat.cpu_target.target_context.codegen())
    assert SOURCE_HASH in key


def test_kernel_with_jitted_functions_in_its_closure_is_found_again(tmp_path, monkeypatch):
    """Each call of `make` stands for a process: its jitted functions are new objects."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))

    def make(factor, n):
        scaled = numba.njit(lambda x: factor * x) if n else numba.njit(lambda x: factor + x)

        @kernel
        def run(x):
            return scaled(x)

        return run

    names = set()
    for factor, n, hits in [(2, 1, 0), (2, 1, 1), (3, 1, 0), (2, 0, 0)]:
        run = make(factor, n)
        names.add(run.py_func.__qualname__)
        assert run(np.int64(7)) == (factor * 7 if n else factor + 7)
        assert sum(run.stats.cache_hits.values()) == hits
    assert len(names) == 3  # else functions of different processes could have one symbol


def test_kernel_is_compiled_for_its_signature_only():
    @kernel_of((numba.types.Array(numba.float64, 1, "A", readonly=True),))
    def total(x):
        return x.sum()

    assert total(np.ones(4)) == 4
    assert total(np.ones(8)[::2]) == 4
    assert len(total.signatures) == 1, "Numba did not call the dispatcher's _compile_for_args"


def test_target_names_the_processor():
    triple, features = numba_compat.target()
    assert triple.count("-") >= 2
    assert all(feature[:1] in "+-" for feature in features)


DAMAGES = {
    "empty": lambda raw: b"",
    "cut": lambda raw: raw[: len(raw) // 2],
    "cut_at_the_start": lambda raw: raw[:100],
    "other_bytes": lambda raw: b"garbage\n" * 9,
    "pickle_of_something_else": lambda raw: pickle.dumps(7),
    "zeros": lambda raw: bytes(len(raw)),
}

DAMAGED = """
import sys
sys.path[:0] = {path!r}
import warnings
import numpy as np
from floatsim_kernels.runtime.jit import kernel
"""
KERNEL = """
@kernel
def {name}(x, out):
    for i in range(len(x)):
        out[i] = x[i] + {n}
"""
RUN = """
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for run in ({names},):
        x = np.zeros(2)
        run(x, x)
        print(x[0], sum(run.stats.cache_hits.values()))
print(len(caught), *(str(each.message).replace("\\n", " ") for each in caught))
"""


@pytest.mark.parametrize(
    ("kind", "damages"),
    cases(quick=[pytest.param("nbi", ["cut"])], full=[pytest.param(kind, list(DAMAGES)) for kind in ("nbc", "nbi")]),
)
def test_a_damaged_file_of_the_cache_is_compiled_again(kind, damages, tmp_path):
    """Once, with one warning for all files that names the first kernel and the folder. One kernel for each damage."""
    script, folder = tmp_path / "script.py", tmp_path / "files"
    kernels = "".join(KERNEL.format(name=name, n=n) for n, name in enumerate(damages))
    script.write_text(DAMAGED.format(path=[p for p in sys.path if p]) + kernels + RUN.format(names=", ".join(damages)))
    environment = os.environ | {"NUMBA_CACHE_DIR": str(folder)}

    def run():
        done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        *lines, warned = done.stdout.splitlines()
        values, hits = zip(*map(str.split, lines), strict=True)
        assert values == tuple(f"{n}.0" for n in range(len(damages)))
        return hits, warned

    assert run() == (("0",) * len(damages), "0")
    assert run() == (("1",) * len(damages), "0")
    for name in damages:
        (file,) = folder.rglob(f"script.{name}-*.{kind}")
        file.write_bytes(DAMAGES[name](file.read_bytes()))
    hits, warned = run()
    assert hits == ("0",) * len(damages)
    assert warned.startswith(f"1 floatsim: the compiled kernel __main__.{damages[0]}") and str(folder) in warned
    assert "cannot be read and is compiled again" in warned
    assert run() == (("1",) * len(damages), "0")


def test_a_cache_that_cannot_be_written_costs_no_call(monkeypatch, recwarn):
    """As on a full disk."""

    @kernel
    def quadruple(x, out):
        for i in range(len(x)):
            out[i] = x[i] * 4

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(type(quadruple._cache._cache_file), "_save_data", full)
    monkeypatch.setattr(numba_compat, "_warned_of_cache", threading.Event())
    for x in (np.ones(3), np.ones(3, np.float32)):
        quadruple(x, x)
        assert x.tolist() == [4.0] * 3
    (warning,) = [each for each in recwarn if issubclass(each.category, RuntimeWarning)]
    assert "cannot be written and is compiled again in each process (OSError:" in str(warning.message)
