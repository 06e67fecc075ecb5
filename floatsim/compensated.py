"""When compensated sums run on float32 values, with the bits of the general kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
from floatsim_kernels import gemm_compensated as loops
from floatsim_kernels import machine

from floatsim.accumulation import Kahan, Leaf, Neumaier, ProductLeaf
from floatsim.formats import BF16, FP16, FP32, FloatFormat
from floatsim.grids import is_narrow, narrow_grid
from floatsim.leaves import FastLeaf, Terms
from floatsim.rounding import Attributes, Overflow, Rounding

__all__ = ["leaf_kernel"]

_KERNELS: dict[type[Leaf], Any] = {Kahan: loops.kahan, Neumaier: loops.neumaier}
_NO_GRID = np.zeros_like(narrow_grid(FP16))


def _lowest(fmt: FloatFormat) -> int:
    return fmt.emin - fmt.trailing_bits


def _terms_do(terms: Terms, fmt: FloatFormat) -> bool:
    """Whether a term rounded to float32 first, and then to the format, is what it is rounded to at once."""
    factors = [factor for factor in terms if factor is not None]
    if not all(_lowest(f) >= _lowest(FP32) and f.emax <= FP32.emax and f.precision <= FP32.precision for f in factors):
        return False
    if fmt == FP32:
        return True
    exact = terms.lowest >= _lowest(FP32)
    lost = _lowest(fmt) - 1 >= FP32.emin  # what float32 cannot hold is less than half a quantum
    # 16 bits and at least half of BF16's quantum, 2**-134: a multiple of float32's 2**-149; below that, it is lost
    short = terms.precision <= 16 and _lowest(fmt) >= _lowest(BF16)
    return terms.precision <= FP32.precision and (exact or lost or short)


def leaf_kernel(leaf: Leaf, terms: Terms, attributes: Attributes, product_attributes: Attributes) -> FastLeaf | None:
    """The kernel of a compensated leaf in ties to even, if there is one."""
    kernel = _KERNELS.get(type(leaf))
    if kernel is None or attributes != product_attributes or attributes.rounding is not Rounding.TIES_TO_EVEN:
        return None
    if attributes.ftz or attributes.daz or attributes.overflow is not Overflow.INFINITY:
        return None
    assert isinstance(leaf, ProductLeaf)
    fmt = leaf.format
    held = terms.precision <= fmt.precision and terms.lowest >= _lowest(fmt) and terms.highest <= fmt.emax
    enters_exactly = terms.b is None or leaf.product is None
    if not (held if enters_exactly else leaf.product == fmt) or not _terms_do(terms, fmt):
        return None
    if fmt == FP32:
        return FastLeaf(FP32, kernel, (loops.PLAIN, _NO_GRID))
    if fmt == FP16 and machine.has_f16c():
        return FastLeaf(FP32, kernel, (loops.HALF, _NO_GRID))
    if fmt == BF16:
        return FastLeaf(FP32, kernel, (loops.BFLOAT, _NO_GRID))
    return FastLeaf(FP32, kernel, (loops.NARROW, narrow_grid(fmt))) if is_narrow(fmt) else None
