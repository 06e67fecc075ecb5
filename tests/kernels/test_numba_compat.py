"""The private parts of Numba and llvmlite that the kernels use are there in the installed versions."""

import gc
import itertools

import llvmlite
import numba
import numpy as np
import pytest
from floatsim_kernels.runtime import numba_compat
from floatsim_kernels.runtime.jit import SOURCE_HASH, inline, kernel, kernel_of
from numba.core import event
from numba.core.compiler import DefaultPassBuilder, Flags, StateDict


@pytest.mark.parametrize("name", numba_compat.CHECKS)
def test_private_name_is_there(name):
    assert numba_compat.CHECKS[name](), (
        f"Numba {numba.__version__} with llvmlite {llvmlite.__version__} has no {name}: "
        "adapt floatsim_kernels/runtime/numba_compat.py"
    )


def test_unused_passes_are_passes_of_numba():
    """If Numba no longer ran one of them, its name here would say nothing."""
    state = StateDict()
    state.func_ir, state.flags = None, Flags()
    state.flags.enable_ssa = True
    passes = DefaultPassBuilder.define_nopython_pipeline(state).passes
    assert set(numba_compat.KernelCompiler.UNUSED) <= {each for each, _ in passes}


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


def test_min_and_max_of_kernels_are_those_of_numba():
    """Values and types, for pairs of types and for NaNs in either place."""

    def both(a, b):
        return min(a, b), max(a, b), min(a, 1), max(2.5, b)

    numbas, ours = numba.njit(both), numba.njit(pipeline_class=numba_compat.KernelCompiler)(both)
    for a, b in [("i4", "i4"), ("i4", "i8"), ("i8", "u8"), ("u4", "i8"), ("f4", "f4"), ("f4", "i4"), ("f8", "f4")]:
        special = [np.nan, 0.0, -0.0] if a[0] == b[0] == "f" else []
        for x, y in itertools.product(np.array([3, 200, 0, *special], a), np.array([200, 3, 0, *special], b)):
            assert repr(ours(x, y)) == repr(numbas(x, y)), (a, b, x, y)
        assert ours.nopython_signatures[-1].return_type == numbas.nopython_signatures[-1].return_type


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
