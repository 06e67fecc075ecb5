"""The random bits of stochastic rounding as arrays, to be given to a card: those of `floatsim.reference.draw`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from floatsim import reference

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["draws"]


def draws(seed: int, offset: int, count: int, random_bits: int) -> NDArray[np.uint32]:
    """The draws of the elements offset, offset + 1, ..., each of so many bits, 1 to 32.

    >>> draws(1, 0, 4, 8).tolist()
    [51, 154, 150, 68]
    """
    index = np.arange(count, dtype=np.uint64) + np.uint64(offset)
    blocks, low = index >> np.uint64(32), index.astype(np.uint32)
    out = np.empty(count, np.uint32)
    for block in np.unique(blocks).tolist():
        key, here = reference.draw_key(seed, 0, block), blocks == block
        x = low[here] + np.uint32(key & 0xFFFFFFFF)  # modulo 2**32, as all that follows
        x = (x ^ x >> np.uint32(17)) * np.uint32(0xED5AD4BB)
        x = ((x ^ x >> np.uint32(11)) + np.uint32(key >> 32)) * np.uint32(0xAC4C1B51)
        x = (x ^ x >> np.uint32(15)) * np.uint32(0x31848BAB)
        out[here] = x ^ x >> np.uint32(14)
    return out >> np.uint32(32 - random_bits)
