"""The parts of CUDA's exponential in float32 around the special-function unit: ties to even, without events.

floatsim/tensorcore/cuda_functions.py is the definition. The kernels need `cpu.environment_is_default()` and
`cpu.has_fma()`.
"""

import numba
import numpy as np

from ..runtime.intrinsics import float_from_bits, multiply_add, wide_vectors
from ..runtime.jit import kernel_of

_IN, _OUT = numba.types.Array(numba.float32, 1, "C", readonly=True), numba.types.Array(numba.float32, 1, "C")
_PARAMS = numba.types.Array(numba.float32, 1, "C", readonly=True)
_ZERO, _HALF, _ONE, _126, _252 = (np.float32(x) for x in (0, 0.5, 1, 126, 252))


@kernel_of((_IN, _PARAMS, _OUT, _OUT))
def exp_parts(x, params, fraction, scale):
    """Write the argument of ex2, and the power of two that its result is multiplied by.

    params has log2(e) / 252, and log2(e) in two parts, the larger one first.
    """
    wide_vectors()
    share_of_one, high, low = params[0], params[1], params[2]
    for i in range(x.size):
        share = multiply_add(x[i], share_of_one, _HALF)
        share = share if share > _ZERO else _ZERO
        share = share if share < _ONE else _ONE
        n = np.floor(share * _252)
        n = n - _ONE if multiply_add(share, _252, -n) < _ZERO else n
        n -= _126
        fraction[i] = multiply_add(x[i], low, multiply_add(x[i], high, -n))
        scale[i] = float_from_bits(np.uint32((np.int32(n) + np.int32(127)) << np.int32(23)))
