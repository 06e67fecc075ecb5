"""Integer dot instructions of CPUs: sums of a few products at a time, in an int32 accumulator.

Source: Intel SDM, VPDPBUSD, VPDPBUSDS, VPDPWSSD, VPDPWSSDS and TDPBSSD. The products of one step and the accumulator
are summed exactly. The plain instructions take the sum modulo 2**32, the saturating ones clamp it once.
"""

from __future__ import annotations

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
    """

    name: str
    a: np.dtype[Any]
    b: np.dtype[Any]
    products: int
    saturates: bool = False


_U8, _S8, _S16 = np.dtype(np.uint8), np.dtype(np.int8), np.dtype(np.int16)

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
    )
}
"""The integer dot instructions by name: AVX512_VNNI (also AVX-VNNI), then AMX-INT8."""

_INT32 = np.iinfo(np.int32)


def as_integer_dot(name: Any) -> IntegerDot:
    """Return the instruction of this name. The error lists all names.

    >>> as_integer_dot("VPDPBUSDS").saturates
    True
    """
    key = name.strip().lower() if isinstance(name, str) else name
    if key in INTEGER_DOTS:
        return INTEGER_DOTS[key]
    near = nearest_name(key, INTEGER_DOTS)
    hint = f"did you mean {near!r}? " if near else ""
    raise ValueError(f"unknown instruction={name!r}; {hint}known are {', '.join(INTEGER_DOTS)}")


def sums_by_steps(dot: IntegerDot, a: Array, b: Array, c: Array) -> Array:
    """Return c plus a (..., M, K) times b (..., K, N), step by step, as int64 within int32. The last step may be short.

    >>> dot = as_integer_dot("vpdpwssds")
    >>> lowest = np.full((1, 2), -32768)
    >>> sums_by_steps(dot, lowest, lowest.T, np.zeros((1, 1), np.int64))
    array([[2147483647]])
    """
    for name, x, dtype in (("a", a, dot.a), ("b", b, dot.b)):
        limits = np.iinfo(dtype)
        if x.size and not (limits.min <= x.min() and x.max() <= limits.max):
            raise ValueError(f"{dot.name} reads {name} as {dtype}, and {name} has numbers from {x.min()} to {x.max()}")
    acc = np.clip(c, _INT32.min, _INT32.max) if dot.saturates else c.astype(np.int32).astype(np.int64)
    for start in range(0, a.shape[-1], dot.products):
        step = slice(start, start + dot.products)
        total = acc + np.matmul(a[..., step], b[..., step, :])
        acc = np.clip(total, _INT32.min, _INT32.max) if dot.saturates else total.astype(np.int32).astype(np.int64)
    return acc
