"""Fused multiply-adds of float32 numbers by the processor's instruction: ties to even, without events.

The kernel needs `cpu.environment_is_default()` and `cpu.has_fma()`.
"""

import numba

from ..runtime.intrinsics import multiply_add, wide_vectors
from ..runtime.jit import kernel_of

_IN, _OUT = numba.types.Array(numba.float32, 1, "C", readonly=True), numba.types.Array(numba.float32, 1, "C")


@kernel_of((_IN, _IN, _IN, _OUT))
def fma(a, b, c, out):
    """a * b + c, rounded once."""
    wide_vectors()
    for i in range(out.size):
        out[i] = multiply_add(a[i], b[i], c[i])
