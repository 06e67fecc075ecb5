"""The decorators of this package: `kernel` for loops called from Python, `inline` for scalars called from loops.

Numba's on-disk cache depends only on the file of the cached function. A function that it calls from *another* file may
change, and the kernel keeps the old bits. The cache key of our kernels therefore holds a hash of all our sources.

With the environment variable FLOATSIM_CHECKED=1 the kernels are compiled with bounds checks: Numba checks every array
index, and `check` checks the accesses through raw pointers. An access outside an array raises IndexError and names the
kernel. The cache key holds this flag too.

`compile_faster` compiles the kernels. With FLOATSIM_NUMBAS_COMPILER=1, or where it does not fit the installed Numba,
Numba's own compiler does it, which takes about a third longer. The bits are the same.
"""

import hashlib
import os
import warnings
from pathlib import Path

import numba

from . import numba_compat
from .numba_compat import (
    CPUDispatcher,
    cache_on_disk,
    compile_for_one_signature,
    name_by_closure,
    raise_index_error_if,
)

CHECKED = os.environ.get("FLOATSIM_CHECKED", "0") not in ("", "0")
"""Whether kernels check every access to memory."""

OPTIONS = {"error_model": "numpy", "boundscheck": CHECKED}
"""Compiler options of every function of this package; never fastmath."""

if numba.config.DISABLE_JIT:
    raise RuntimeError(
        "floatsim does not run with NUMBA_DISABLE_JIT=1: its kernels use LLVM instructions and exist only compiled; "
        "unset NUMBA_DISABLE_JIT"
    )


def _faster():
    """Return `compile_faster`, or None if Numba's own compiler is asked for or is the only one that works."""
    if os.environ.get("FLOATSIM_NUMBAS_COMPILER", "0") not in ("", "0"):
        return None
    try:
        from . import compile_faster

        refusal = compile_faster.refusal()
    except (ImportError, AttributeError) as error:  # a private name is missing
        refusal = str(error)
    if refusal is None:
        return compile_faster
    warnings.warn(
        f"floatsim: kernels take longer to compile: Numba {numba.__version__} does not have what floatsim's faster "
        f"compiler changes: {refusal}. Numba's own compiler is used; results are the same.",
        RuntimeWarning,
        stacklevel=2,
    )
    return None


FASTER = _faster()
"""The module of the faster compiler, or None."""
_KernelCompiler, _InlineCompiler = (FASTER or numba_compat).COMPILERS


def source_hash():
    """Return a hash of every source file of this package."""
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


SOURCE_HASH = source_hash()


class _Naming(CPUDispatcher):
    """A kernel whose IndexError names it: Numba's own error does not say where the index was."""

    def __call__(self, *args, **kws):
        try:
            return super().__call__(*args, **kws)
        except IndexError as error:
            if isinstance(error.__cause__, IndexError):
                raise  # named already: the first call compiles and calls again
            name = f"{self.py_func.__module__}.{self.py_func.__qualname__}"
            raise IndexError(f"kernel {name}: {error}") from error


def kernel(function):
    """Compile a loop over arrays: cached on disk under the package's source hash, without the GIL, never fastmath."""
    return _cached(function, nogil=True, pipeline_class=_KernelCompiler)


def calls_python(function):
    """Compile as `kernel` does, but a function with an objmode block, which takes the GIL."""
    return _cached(function)


def _cached(function, **options):
    name_by_closure(function)
    # A C function's wrapper would serve functions passed as arguments, and takes a tenth of the compile time.
    dispatcher = numba.njit(no_cfunc_wrapper=True, **options, **OPTIONS)(function)
    if FASTER:
        FASTER.compile_without_collection(dispatcher)
    cache_on_disk(dispatcher, SOURCE_HASH, CHECKED, FASTER is not None)
    if CHECKED:
        dispatcher.__class__ = _Naming
    return dispatcher


def kernel_of(signature):
    """Compile as `kernel` does, but on the first call, for one signature, which then takes every layout it can hold."""

    def decorate(function):
        dispatcher = kernel(function)
        compile_for_one_signature(dispatcher, signature)
        return dispatcher

    return decorate


# no wrappers for callers outside Numba: there are none, and the wrappers are a large part of the compile time
inline = numba.njit(
    forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True, pipeline_class=_InlineCompiler, **OPTIONS
)


def check(context, builder, what, *pairs):
    """With CHECKED, emit a check that x <= y for each pair of LLVM integers, both read as unsigned.

    If one fails, the kernel returns with an IndexError. A negative number counts as a large one.
    """
    if not CHECKED:
        return
    for x, y in pairs:
        raise_index_error_if(context, builder, builder.icmp_unsigned(">", x, y), f"{what} is outside its array")
