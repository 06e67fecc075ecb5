"""Integer dot instructions of CPUs and GPUs: sums of a few products at a time, in an int32 accumulator.

Source: Intel SDM, VPDPBUSD, VPDPBUSDS, VPDPWSSD, VPDPWSSDS and TDPBSSD. The products of one step and the accumulator
are summed exactly. The plain instructions take the sum modulo 2**32, the saturating ones clamp it once.

NVIDIA PTX ISA, mma and wgmma.mma_async with .s8, .u8, .s4 and .u4 operands: an accumulator wraps, and with .satfinite
the final value of an instruction is clamped. The clamp was not recorded on a GPU: a unit that clamps parts of an
instruction would differ. Wrapping sums have one result in every order.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from floatsim.formats._validation import nearest_name

__all__ = ["INTEGER_DOTS", "IntegerDot", "as_integer_dot", "sums_by_steps"]

Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True)
class IntegerDot:
    """An integer dot instruction.

    Attributes
    ----------
    name : str
        The name of the instruction.
    a, b : dtype
        The integers that it reads.
    products : int
        The products of a step.
    saturates : bool
        Whether the sum of a step is clamped to int32. Otherwise it wraps.
    a_bits, b_bits : int, optional
        The bits of the integers that it reads, if they have fewer than the dtype: 4.
    """

    name: str
    a: np.dtype[Any]
    b: np.dtype[Any]
    products: int
    saturates: bool = False
    a_bits: int | None = None
    b_bits: int | None = None

    def limits(self, side: str) -> tuple[int, int]:
        """Return the smallest and the largest integer of the operand "a" or "b"."""
        dtype, bits = (self.a, self.a_bits) if side == "a" else (self.b, self.b_bits)
        whole = bits or 8 * dtype.itemsize
        return (0, (1 << whole) - 1) if dtype.kind == "u" else (-(1 << whole - 1), (1 << whole - 1) - 1)


_U8, _S8, _S16 = np.dtype(np.uint8), np.dtype(np.int8), np.dtype(np.int16)

_GPU_SHAPES = {8: {"mma.m8n8k16": 16, "mma.m16n8k16": 16, "mma.m16n8k32": 32, "wgmma.k32": 32},
               4: {"mma.m8n8k32": 32, "mma.m16n8k32": 32, "mma.m16n8k64": 64}}  # fmt: skip
"""The shapes of the instructions of NVIDIA GPUs for operands of 8 and 4 bits, with their products along K."""


def _gpu_dots() -> Iterator[IntegerDot]:
    for bits, shapes in _GPU_SHAPES.items():
        narrow = None if bits == 8 else bits
        for (shape, products), a, b in itertools.product(shapes.items(), "su", "su"):
            kinds = [_S8 if side == "s" else _U8 for side in (a, b)]
            for ending, saturates in (("", False), (".satfinite", True)):
                name = f"{shape}.{a}{bits}.{b}{bits}{ending}"
                yield IntegerDot(name, kinds[0], kinds[1], products, saturates, narrow, narrow)


INTEGER_DOTS = {
    row.name: row
    for row in (
        IntegerDot("vpdpbusd", _U8, _S8, 4),
        IntegerDot("vpdpbusds", _U8, _S8, 4, saturates=True),
        IntegerDot("vpdpwssd", _S16, _S16, 2),
        IntegerDot("vpdpwssds", _S16, _S16, 2, saturates=True),
        IntegerDot("tdpbssd", _S8, _S8, 4),
        IntegerDot("tdpbsud", _S8, _U8, 4),
        IntegerDot("tdpbusd", _U8, _S8, 4),
        IntegerDot("tdpbuud", _U8, _U8, 4),
        *_gpu_dots(),
    )
}
"""The integer dot instructions by name: AVX512_VNNI (also AVX-VNNI), AMX-INT8, then mma and wgmma of NVIDIA."""

_INT32 = np.iinfo(np.int32)


def as_integer_dot(name: Any) -> IntegerDot:
    """Return the instruction of this name. The error lists the names of CPUs, and the form of those of GPUs.

    >>> as_integer_dot("VPDPBUSDS").saturates
    True
    """
    key = name.strip().lower() if isinstance(name, str) else name
    if key in INTEGER_DOTS:
        return INTEGER_DOTS[key]
    near = nearest_name(key, INTEGER_DOTS)
    hint = f"did you mean {near!r}? " if near else ""
    cpus = [known for known in INTEGER_DOTS if "." not in known]
    raise ValueError(
        f"unknown instruction={name!r}; {hint}known are {', '.join(cpus)}, and those of GPUs "
        "such as 'mma.m16n8k32.s8.u8' and 'mma.m16n8k64.s4.s4.satfinite'"
    )


def sums_by_steps(dot: IntegerDot, a: Array, b: Array, c: Array) -> Array:
    """Return c plus a (..., M, K) times b (..., K, N), step by step, as int64 within int32. The last step may be short.

    >>> dot = as_integer_dot("vpdpwssds")
    >>> lowest = np.full((1, 2), -32768)
    >>> sums_by_steps(dot, lowest, lowest.T, np.zeros((1, 1), np.int64))
    array([[2147483647]])
    """
    for name, x, dtype, bits in (("a", a, dot.a, dot.a_bits), ("b", b, dot.b, dot.b_bits)):
        low, high = dot.limits(name)
        if x.size and not (low <= x.min() and x.max() <= high):
            kind = f"{dtype.kind}int{bits}".replace("iint", "int") if bits else str(dtype)
            raise ValueError(f"{dot.name} reads {name} as {kind}, and {name} has numbers from {x.min()} to {x.max()}")
    acc = np.clip(c, _INT32.min, _INT32.max) if dot.saturates else c.astype(np.int32).astype(np.int64)
    for start in range(0, a.shape[-1], dot.products):
        step = slice(start, start + dot.products)
        total = acc + np.matmul(a[..., step], b[..., step, :])
        acc = np.clip(total, _INT32.min, _INT32.max) if dot.saturates else total.astype(np.int32).astype(np.int64)
    return acc
