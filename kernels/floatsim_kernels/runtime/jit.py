"""The two decorators of this package: `kernel` for loops called from Python, `inline` for scalars called from loops.

Numba's on-disk cache looks only at the file of the cached function: a kernel keeps the old bits when a function that
it calls from *another* file has changed. The cache key of our kernels therefore holds a hash of all our sources.
"""

import hashlib
import threading
from pathlib import Path

import numba
from numba.core.caching import FunctionCache

if numba.config.DISABLE_JIT:
    raise RuntimeError(
        "floatsim does not run with NUMBA_DISABLE_JIT=1: its kernels use LLVM instructions and exist only compiled; "
        "unset NUMBA_DISABLE_JIT"
    )


def source_hash():
    """A hash of every source file of this package."""
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


SOURCE_HASH = source_hash()


class _SourceHashedCache(FunctionCache):
    def _index_key(self, sig, codegen):
        return (*super()._index_key(sig, codegen), SOURCE_HASH)


def kernel(function):
    """Compile a loop over arrays: cached on disk under the package's source hash, without the GIL, never fastmath."""
    dispatcher = numba.njit(nogil=True, error_model="numpy")(function)
    dispatcher._cache = _SourceHashedCache(dispatcher.py_func)
    return dispatcher


def kernel_of(signature):
    """As `kernel`, but compiled on its first call for this one signature, which then takes every layout it can hold."""

    def decorate(function):
        dispatcher = kernel(function)
        lock = threading.Lock()

        def compile_once(*args, **kws):
            with lock:
                if not dispatcher.signatures:
                    dispatcher.compile(signature)
                    dispatcher.disable_compile()
            return dispatcher  # what Numba is to call now

        dispatcher._compile_for_args = compile_once
        return dispatcher

    return decorate


# no wrappers for callers outside Numba: nobody calls these, and the wrappers are a good part of the compile time
inline = numba.njit(forceinline=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
