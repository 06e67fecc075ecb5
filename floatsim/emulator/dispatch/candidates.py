"""Which kernel sums a leaf: the fastest that gives the same bits, or none but the general integer kernels."""

from __future__ import annotations

from functools import lru_cache

from floatsim.accumulation import Accumulation, Blocked, Leaf, SplitK, Strided, TensorCore, settled
from floatsim.emulator.dispatch import exact as expansions
from floatsim.emulator.dispatch import float32 as singles
from floatsim.emulator.dispatch import float64 as doubles
from floatsim.emulator.dispatch.kernel import FastLeaf
from floatsim.formats.rounding import Attributes
from floatsim.formats.value_sets import Terms

__all__ = ["is_fast", "leaf_kernel"]


@lru_cache(maxsize=1024)
def leaf_kernel(leaf: Leaf, terms: Terms, call: Attributes) -> FastLeaf | None:
    """The fast kernel of a leaf on these terms, if there is one: on float32 values, or else on float64 ones."""
    how, products = settled(leaf, call)
    for chooser in _CHOOSERS:
        if (found := chooser(leaf, terms, how, products)) is not None:
            return found
    return None


_CHOOSERS = (singles.leaf_kernel, doubles.leaf_kernel, expansions.leaf_kernel)


def is_fast(how: Accumulation, terms: Terms, call: Attributes) -> bool:
    """Whether fast kernels sum all the terms; the adding of parts aside."""
    if isinstance(how, Blocked | SplitK | Strided):
        return is_fast(how.inner, terms, call)
    return isinstance(how, TensorCore) or (isinstance(how, Leaf) and leaf_kernel(how, terms, call) is not None)
