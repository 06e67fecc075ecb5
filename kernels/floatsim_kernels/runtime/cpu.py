"""The features of the processor, and its floating-point environment."""

import functools

from numba import config

from .numba_compat import target


@functools.cache
def has_half_conversion():
    """Whether the code that Numba generates may convert between float16 and float32 in hardware.

    x86-64 has instructions for it with F16C, every 64-bit Arm processor has fcvt (Arm Architecture Reference Manual,
    DDI 0487, FCVT: a part of the base architecture).
    The answer is about the features that Numba compiles for, which NUMBA_CPU_NAME changes, not about those of the host.
    An instruction emitted without its feature becomes a call of a library function that does not exist.
    """
    return _has("f16c") or _is_arm64()


@functools.cache
def has_fma():
    """Whether the code that Numba generates may multiply and add with one rounding."""
    return _has("fma") or _is_arm64()


@functools.cache
def has_half_arithmetic():
    """Whether the code that Numba generates may compute in float16 (AVX-512 FP16; FEAT_FP16 of Arm)."""
    return _has("avx512fp16") or (_is_arm64() and _has("fullfp16"))


@functools.cache
def has_directed_fma():
    """Whether the code that Numba generates may multiply and add in a direction of the instruction's own.

    That needs x86 with AVX-512, whose intrinsics LLVM names `llvm.x86.avx512`. On other machines portable instructions
    compute the same results.
    """
    return target()[0].startswith("x86_64") and _has("avx512f")


def _is_arm64():
    return target()[0].startswith(("aarch64", "arm64"))


def _has(feature):
    return f"+{feature}" in target()[1]


_NUMBERS = [2.0**-1074, 1.0, 2.0**-53, 1.5 * 2.0**-53]  # in a list, so that no compiler takes them for constants


def environment_is_default():
    """Whether this thread's floating-point arithmetic keeps subnormals and rounds to nearest.

    A shared object built with -ffast-math sets flush-to-zero when it is loaded, for the loading thread and the threads
    that it starts. Kernels that compute with hardware floats run only in the default environment; the other kernels are
    integer. One control register governs float32 and float64 (x86-64: MXCSR, AArch64: FPCR), and the numbers of Python
    are float64.
    """
    tiny, one, half, above_half = _NUMBERS
    return tiny * one != 0 and one + half == one and -one - half == -one and one + above_half != one


def threads():
    """The number of threads that share the work: NUMBA_NUM_THREADS, by default the cores this process may use."""
    return int(config.NUMBA_NUM_THREADS)
