"""The private parts of Numba and llvmlite that the kernels use are there in the installed versions."""

import llvmlite
import numba
import numpy as np
import pytest
from floatsim_kernels.runtime import numba_compat
from floatsim_kernels.runtime.jit import SOURCE_HASH, kernel, kernel_of


@pytest.mark.parametrize("name", numba_compat.CHECKS)
def test_private_name_is_there(name):
    assert numba_compat.CHECKS[name](), (
        f"Numba {numba.__version__} with llvmlite {llvmlite.__version__} has no {name}: "
        "adapt floatsim_kernels/runtime/numba_compat.py"
    )


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
