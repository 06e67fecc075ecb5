"""The sums of `tl.dot` and `tl.dot_scaled`: those of a device, or one description for all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from triton._C.libtriton import ir

from floatsim.accumulation import Accumulation, AccumulationLike, TensorCore, as_accumulation
from floatsim.accumulation.triton_dots import triton_dot
from floatsim.arrays.array.conversion import convert
from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.elementwise.arithmetic import multiply
from floatsim.arrays.sums.products import matmul
from floatsim.formats import BF16, E2M1, E4M3, E5M2, E8M0, FP16, FP32, FloatFormat
from floatsim.triton.errors import UndefinedOperationError
from floatsim.triton.handles import float_array, format_of, handle

__all__ = ["DEVICES", "PRECISIONS", "DotCall", "Dots"]

DEVICES = ("hopper", "h200")
"""Names for the sums of `fs.hardware.triton_dot`, which an H200 recorded with Triton 3.6.0."""

_DTYPES = {FP16: "float16", BF16: "bfloat16", FP32: "float32", E4M3: "float8_e4m3fn", E5M2: "float8_e5m2"}
PRECISIONS = ("tf32", "tf32x3", "ieee")
"""The values of `input_precision` that the interpreter takes. bf16x3 and bf16x6 have no description."""

_PRECISIONS = {ir.INPUT_PRECISION.TF32: "tf32", ir.INPUT_PRECISION.TF32x3: "tf32x3", ir.INPUT_PRECISION.IEEE: "ieee"}
_SCALED: Mapping[Any, FloatFormat] = {
    ir.ScaleDotElemTypeTY.E4M3: E4M3, ir.ScaleDotElemTypeTY.E5M2: E5M2, ir.ScaleDotElemTypeTY.E2M1: E2M1,
    ir.ScaleDotElemTypeTY.BF16: BF16, ir.ScaleDotElemTypeTY.FP16: FP16,
}  # fmt: skip
_WGMMA_ROWS, _WGMMA_WARPS = 64, 4
"""The least rows and warps of a dot with wgmma instructions, in the PTX of 60 kernels on an H200 (Triton 3.6.0)."""


@dataclass(frozen=True)
class DotCall:
    """What a call of `tl.dot` says besides its operands."""

    has_acc: bool
    imprecise: int | None
    """`max_num_imprecise_acc` as the kernel passes it."""
    warps: int


@dataclass(frozen=True)
class _Alone:
    """The operands of a dot without an accumulator, which the compiler may join with an addition."""

    a: FloatArray
    b: FloatArray
    accumulate: Accumulation | None
    """The sum of the joined instructions; None where it is not known."""


class Dots:
    """The sums of the dots in a block.

    Parameters
    ----------
    dot : accumulation or text
        The name of a device, or a description.
    """

    def __init__(self, dot: AccumulationLike) -> None:
        self.of_device = isinstance(dot, str) and dot.strip().lower() in DEVICES
        self._accumulate = None if self.of_device else as_accumulation(dot, "dot")

    def _described(self, a: FloatArray, b: FloatArray, out: FloatFormat, precision: Any, call: DotCall) -> Accumulation:
        if self._accumulate is not None:
            return self._accumulate
        if out != FP32:
            raise UndefinedOperationError(
                f"tl.dot with out_dtype {out.name} was not recorded on an H200; use tl.float32"
            )
        dtype = _DTYPES.get(a.format)
        if dtype is None or (a.format != b.format and a.format not in (E4M3, E5M2)):
            recorded = ", ".join(_DTYPES.values())
            raise UndefinedOperationError(
                f"tl.dot of {a.format.name} and {b.format.name} was not recorded on an H200; recorded: {recorded}"
            )
        *batch, rows, terms = a.shape
        least = 32 if a.format in (E4M3, E5M2) else 16  # triton/backends/nvidia/compiler.py, min_dot_size
        if terms < least:
            text = f"tl.dot of {a.format.name} with K = {terms} was not recorded on an H200; use K >= {least}"
            raise UndefinedOperationError(text)
        wgmma = not batch and rows >= _WGMMA_ROWS and call.warps >= _WGMMA_WARPS
        imprecise = call.imprecise if a.format in (E4M3, E5M2) else None
        named = _PRECISIONS[precision]
        return triton_dot(
            dtype, terms, input_precision=named, max_num_imprecise_acc=imprecise, wgmma=wgmma, terms=terms
        )

    def dot(self, a: Any, b: Any, c: Any, precision: Any, call: DotCall) -> Any:
        """Return the handle of c + a @ b."""
        x, y, out = float_array(a), float_array(b), format_of(c.dtype)
        accumulate = self._described(x, y, out, precision, call)
        found = handle(matmul(x, y, float_array(c), accumulate=accumulate, format=out), c.dtype)
        if self.of_device and not call.has_acc and x.format not in (E4M3, E5M2):
            found.set_attr(_ALONE, _Alone(x, y, accumulate if x.format in (FP16, BF16) else None))
        return found

    def added(self, left: Any, right: Any) -> Any:
        """Return the sum of a dot and another tensor where the compiler joins both; None elsewhere.

        The compiler changes d + tl.dot(a, b) to tl.dot(a, b, d), which has other roundings.
        """
        for dot, other, both in ((left, right, _ALONE in right.attr), (right, left, False)):
            found = dot.attr.get(_ALONE)
            if found is None or other.data.shape != dot.data.shape:
                continue
            if both or found.accumulate is None:
                raise UndefinedOperationError(
                    "the sum of a tl.dot without an accumulator and another tensor was not recorded for "
                    f"{'two dots' if both else found.a.format.name}; pass the tensor to tl.dot as acc"
                )
            c = float_array(other)
            return handle(matmul(found.a, found.b, c, accumulate=found.accumulate, format=FP32), dot.dtype)
        return None

    def dot_scaled(self, a: Any, b: Any, c: Any, packed: tuple[bool, bool], call: DotCall) -> Any:
        """Return the handle of c + a @ b, for operands (handle, scales, kind).

        Triton for Hopper multiplies the operands by their scales in BF16, or in FP16 if one is FP16, and calls tl.dot
        (lib/Dialect/TritonGPU/Transforms/DecomposeScaledBlocked.cpp). A unit for blocks takes the scales itself.
        """
        kinds = a[2], b[2]
        x, y = (_unpacked(each, axis) for each, axis in (
            (a, -1 if packed[0] else -2), (b, -2 if packed[1] else -1)
        ))  # fmt: skip
        of_a, of_b = _scales(a[1]), _scales(b[1])
        out = format_of(c.dtype)
        if isinstance(self._accumulate, TensorCore) and of_a is not None and of_b is not None:
            found = matmul(
                x, y, float_array(c), accumulate=self._accumulate, scale_a=of_a, scale_b=np.swapaxes(of_b, -1, -2),
                format=out,
            )  # fmt: skip
            return handle(found, c.dtype)
        fmt = FP16 if ir.ScaleDotElemTypeTY.FP16 in kinds else BF16
        x = _scaled(convert(x, fmt), of_a)
        columns: Any = np.swapaxes(convert(y, fmt), -1, -2)
        scaled: Any = np.swapaxes(_scaled(columns, of_b), -1, -2)
        y = scaled
        accumulate = self._described(x, y, out, ir.INPUT_PRECISION.TF32, call)
        return handle(matmul(x, y, float_array(c), accumulate=accumulate, format=out), c.dtype)


_ALONE = "floatsim.dot"


def _unpacked(operand: Any, axis: int) -> FloatArray:
    """Return the numbers of an operand. Two FP4 numbers share a byte, the first one in the low half."""
    x, _, kind = operand
    fmt = _SCALED[kind]
    if fmt != E2M1:
        return float_array(x)
    codes = np.moveaxis(np.asarray(x.data), axis, -1)
    both = np.stack([codes & 15, codes >> 4], axis=-1).reshape(*codes.shape[:-1], -1)
    return FloatArray(np.ascontiguousarray(np.moveaxis(both, -1, axis)), fmt)


def _scales(x: Any) -> FloatArray | None:
    """Return the scales (rows, blocks): E8M0 of integers, or E4M3."""
    if x is None:
        return None
    if x.dtype.scalar.is_int():
        return FloatArray(np.ascontiguousarray(x.data).view(np.uint8), E8M0)
    return float_array(x)


def _scaled(x: FloatArray, scales: FloatArray | None) -> FloatArray:
    """Return rows times the scales of their blocks."""
    if scales is None:
        return x
    found: FloatArray = multiply(x, np.repeat(convert(scales, x.format), x.shape[-1] // scales.shape[-1], axis=-1))
    return found
