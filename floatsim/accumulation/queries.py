"""Queries on descriptions: their leaves, their rounding attributes, their instructions."""

from __future__ import annotations

import dataclasses
import functools

from floatsim.accumulation.base import Accumulation, Leaf, ProductLeaf
from floatsim.accumulation.tensor_core import TensorCore
from floatsim.formats import FloatFormat
from floatsim.formats.rounding import Rounding, RoundingAttributes
from floatsim.tensorcore.instructions import Scales

__all__ = ["fitted", "leaves", "rounds_stochastically", "settled", "tensor_cores"]


def leaves(accumulation: Accumulation) -> list[Leaf]:
    """Return the leaves of a description, inner before outer. A TensorCore is no leaf.

    >>> from floatsim.accumulation import leaves, parse
    >>> leaves(parse("blocked(fp16, 128, fp32)"))
    [Sequential(FP16), Sequential(FP32)]
    """
    return [end for end in _ends(accumulation) if isinstance(end, Leaf)]


def tensor_cores(accumulation: Accumulation) -> list[TensorCore]:
    """Return the TensorCores of a description.

    >>> from floatsim.accumulation import parse, tensor_cores
    >>> tensor_cores(parse("blocked(hopper, 128, fp32)"))
    [TensorCore('hopper')]
    """
    return [end for end in _ends(accumulation) if isinstance(end, TensorCore)]


def _ends(accumulation: Accumulation) -> list[Accumulation]:
    if accumulation.children:
        return [end for child in accumulation.children for end in _ends(child)]
    return [accumulation]


def fitted(
    accumulation: Accumulation, a: FloatFormat, b: FloatFormat, scales: Scales | None = None
) -> Accumulation:  # fmt: skip
    """Return the description for operands of these formats: every TensorCore names its instruction and output.

    The output is FP32 (FP64 for FP64 operands) unless the description sets another one. If no instruction takes the
    operands, the ValueError lists the existing instructions.

    >>> import floatsim as fs
    >>> from floatsim.accumulation import fitted, parse
    >>> fitted(parse("tensorcore(hopper, output=fp16)"), fs.E4M3, fs.E4M3)
    TensorCore('hopper', 'wgmma.k32', output=FP16)
    >>> fitted(parse("blocked(hopper, 128, fp32)"), fs.E4M3, fs.E4M3)
    Blocked(TensorCore('hopper', 'wgmma.k32', output=FP32), 128, Sequential(FP32))
    """
    if isinstance(accumulation, TensorCore):
        row = accumulation.row(a, b, scales)
        return TensorCore(accumulation.arch, row.name, row.output)
    if accumulation.children and tensor_cores(accumulation):
        x, y = accumulation.operand_formats(a, b)
        return accumulation.with_children(lambda child: fitted(child, x, y, scales))
    return accumulation


@functools.lru_cache(maxsize=1024)
def settled(leaf: Leaf, call: RoundingAttributes) -> tuple[RoundingAttributes, RoundingAttributes]:
    """Return the attributes of the leaf's sums and of its products. Options that the leaf does not set are the call's.

    >>> from floatsim.accumulation import parse, settled
    >>> sums, products = settled(parse("sequential(fp16, product_rounding=rtz)"), RoundingAttributes())
    >>> sums.rounding.name, products.rounding.name
    ('TIES_TO_EVEN', 'TOWARD_ZERO')
    """
    attributes = dataclasses.replace(
        call,
        rounding=call.rounding if leaf.rounding is None else leaf.rounding,
        ftz=call.ftz if leaf.ftz is None else leaf.ftz,
        daz=call.daz if leaf.daz is None else leaf.daz,
        overflow=leaf.overflow,
    )
    own = leaf.product_rounding if isinstance(leaf, ProductLeaf) else None
    return attributes, attributes if own is None else dataclasses.replace(attributes, rounding=own)


@functools.lru_cache(maxsize=1024)
def rounds_stochastically(accumulation: Accumulation) -> bool:
    """Return whether a leaf sets stochastic rounding in its description.

    >>> from floatsim.accumulation import parse, rounds_stochastically
    >>> rounds_stochastically(parse("blocked(sequential(fp16, rounding=sr), 8, fp32)"))
    True
    """
    own = [(leaf.rounding, getattr(leaf, "product_rounding", None)) for leaf in leaves(accumulation)]
    return any(Rounding.STOCHASTIC in pair for pair in own)
