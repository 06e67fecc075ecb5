"""The features of the processor, and its floating-point environment."""

import functools

import numpy as np
from numba import config

from .jit import kernel
from .numba_compat import target


@functools.cache
def has_f16c():
    """Whether the code that Numba generates may convert between float16 and float32 in hardware.

    The answer is about the features that Numba compiles for, which NUMBA_CPU_NAME changes, not about those of the host.
    An instruction emitted without its feature becomes a call of a library function that does not exist.
    """
    return _has("f16c")


@functools.cache
def has_fma():
    """Whether the code that Numba generates may multiply and add with one rounding."""
    return _has("fma") or target()[0].startswith(("aarch64", "arm64"))


@functools.cache
def has_half_arithmetic():
    """Whether the code that Numba generates may compute in float16 (AVX-512 FP16)."""
    return _has("avx512fp16")


@functools.cache
def has_directed_fma():
    """Whether the code that Numba generates may multiply and add in a direction of the instruction's own.

    That needs x86 with AVX-512, whose intrinsics LLVM names `llvm.x86.avx512`. On other machines portable instructions
    compute the same results.
    """
    return target()[0].startswith("x86_64") and _has("avx512f")


def _has(feature):
    return f"+{feature}" in target()[1]


@kernel
def _environment(float32s, float64s):
    """Whether subnormals are kept and rounding is to nearest; arrays of (least subnormal, 1, ulp / 2, 3/4 ulp)."""
    tiny, one, half, above_half = float32s[0], float32s[1], float32s[2], float32s[3]
    if not (tiny * one != 0 and one + half == one and -one - half == -one and one + above_half != one):
        return False
    tiny, one, half, above_half = float64s[0], float64s[1], float64s[2], float64s[3]
    return tiny * one != 0 and one + half == one and -one - half == -one and one + above_half != one


_FLOAT32S = np.array([2.0**-149, 1.0, 2.0**-24, 1.5 * 2.0**-24], np.float32)
_FLOAT64S = np.array([2.0**-1074, 1.0, 2.0**-53, 1.5 * 2.0**-53], np.float64)


def environment_is_default():
    """Whether this thread's floating-point arithmetic keeps subnormals and rounds to nearest.

    A shared object built with -ffast-math sets flush-to-zero when it is loaded, for the loading thread and the threads
    that it starts. Kernels that compute with hardware floats run only in the default environment; the other kernels are
    integer.
    """
    return _environment(_FLOAT32S, _FLOAT64S)


def threads():
    """The number of threads that share the work: NUMBA_NUM_THREADS, by default the cores this process may use."""
    return int(config.NUMBA_NUM_THREADS)
