"""Results read from tables that have an entry for every value of the operands' types."""

import numpy as np

from ..runtime.jit import kernel

_8 = np.uint32(8)


@kernel
def gather(codes, table, out):
    """Write the entries of codes."""
    for i in range(out.size):
        out[i] = table[codes[i]]


@kernel
def gather_pairs(a, b, table, out):
    """Write the entries of pairs of 8-bit codes; those of one code of `a` follow each other."""
    for i in range(out.size):
        out[i] = table[np.uint32(np.uint32(np.uint32(a[i]) << _8) | np.uint32(b[i]))]
