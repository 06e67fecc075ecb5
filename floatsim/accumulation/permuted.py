"""The description that reorders the terms of a sum."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from floatsim.accumulation.base import MOST, Accumulation
from floatsim.accumulation.text import AccumulationLike, as_accumulation
from floatsim.formats import FloatFormat
from floatsim.formats._hashing import hashed_once
from floatsim.formats._validation import as_index, nearest_name

__all__ = ["Permuted"]

_NAME = re.compile(
    r"swapped|reversed|strided-(?P<lanes>[1-9]\d*)|backwards-(?P<vectors>[1-9]\d*)x(?P<width>[1-9]\d*)"
    r"|conv-(?P<rows>[1-9]\d*)x(?P<columns>[1-9]\d*)x(?P<channels>[1-9]\d*)(?P<descending>-descending)?"
)
_EXAMPLES = ("swapped", "reversed", "strided-2", "backwards-4x4", "conv-3x3x64", "conv-3x3x64-descending")
_NAMES = "'swapped', 'reversed', 'strided-N', 'backwards-VxW', 'conv-RxSxC', 'conv-RxSxC-descending'"


@hashed_once
@dataclass(frozen=True, repr=False, init=False)
class Permuted(Accumulation):
    """The terms in another order, summed by `inner`. `c` goes to inner.

    The index of an event stays the term's own k.

    Parameters
    ----------
    order : str or sequence of int
        A permutation of 0 ... n - 1: position i of each group of n consecutive terms gets the group's term order[i]. A
        last group of fewer terms keeps its order, as the loop after an unrolled loop does. Or a name:

        - "swapped": the terms of each pair are swapped, [1, 0]. So the instruction VDPBF16PS adds.
        - "reversed": all terms, the last first.
        - "strided-N": the terms 0, N, 2N, ..., then 1, N + 1, ...; "strided-2" has the even terms first.
        - "backwards-VxW": groups of V vectors of W terms; the last vector of a group comes first, and the terms of a
          vector keep their order. So `np.einsum` adds its unrolled vectors.
        - "conv-RxSxC": for a convolution with filters of R rows and S columns, whose terms have the order (channel,
          row, column), as in `operators.conv2d` and in PyTorch's weights. Blocks of C channels follow each other; in a
          block the filter's rows, then columns ascend, and each place has the C channels. cuDNN's and CUTLASS's
          kernels for channels-last tensors add in this order, C being the K of their tile. With "-descending" the rows
          and columns descend, as in cuDNN's gradients of the input.
    inner : description, format or text
        The sum of the terms in the new order.

    Raises
    ------
    TypeError
        If `inner` is no description, or `order` neither a name nor a list.
    ValueError
        If a list is no permutation, or a name or a text is unknown.

    Examples
    --------
    >>> import floatsim as fs
    >>> swapped = fs.Permuted("swapped", fs.Sequential("fp32", fused=True))
    >>> print(swapped)
    permuted(swapped, sequential(fp32, fused))
    >>> print(fs.Permuted([2, 0, 1], "fp16"))
    permuted([2, 0, 1], sequential(fp16))
    >>> x = fs.array([2048.0, 1.0, 1.0], "fp16")
    >>> [float(fs.sum(x, accumulate=order)) for order in ("fp16", "permuted(reversed, fp16)")]
    [2048.0, 2050.0]
    """

    text_form = "permuted(order, inner)"

    order: str | tuple[int, ...]
    inner: Accumulation

    def __init__(self, order: str | Sequence[int], inner: AccumulationLike) -> None:
        object.__setattr__(self, "order", _as_order(order))
        object.__setattr__(self, "inner", as_accumulation(inner, "inner"))

    @property
    def group(self) -> tuple[int, ...] | None:
        """The order of each group of terms, or None if the order depends on the number of terms."""
        if not isinstance(self.order, str):
            return self.order
        if self.order == "swapped":
            return 1, 0
        if (channels := self._number("channels")) is not None:
            places = range((self._number("rows") or 1) * (self._number("columns") or 1))
            ordered = reversed(places) if self.order.endswith("-descending") else places
            return tuple(c * len(places) + place for place in ordered for c in range(channels))
        if (vectors := self._number("vectors")) is None:
            return None
        width = self._number("width") or 1
        return tuple(v * width + i for v in reversed(range(vectors)) for i in range(width))

    @property
    def lanes(self) -> int | None:
        """The N of "strided-N", or None."""
        return self._number("lanes")

    def _number(self, name: str) -> int | None:
        found = _NAME.fullmatch(str(self.order))
        return int(found[name]) if found and found[name] else None

    @property
    def result_format(self) -> FloatFormat:
        return self.inner.result_format

    @property
    def children(self) -> tuple[Accumulation, ...]:
        return (self.inner,)

    def with_children(self, change: Callable[[Accumulation], Accumulation]) -> Accumulation:
        return Permuted(self.order, change(self.inner))

    @classmethod
    def is_word(cls, text: str) -> bool:
        return "(" not in text and nearest_name(text.lower(), _EXAMPLES) is not None

    def _texts(self, show: Any) -> list[str]:
        return [show(self.order) if isinstance(self.order, str) else str(list(self.order)), show(self.inner)]


def _as_order(order: Any) -> str | tuple[int, ...]:
    if isinstance(order, str):
        if _NAME.fullmatch(order.lower()) is None:
            raise ValueError(f"order={order!r} is not known; write a list of positions, or {_NAMES}")
        return order.lower()
    if not isinstance(order, Sequence) and getattr(order, "ndim", 0) != 1:
        raise TypeError(f"order must be a list of positions, or {_NAMES}, not {order!r}")
    positions = tuple(as_index(k, "order", 0, MOST) for k in order)
    if not positions or sorted(positions) != list(range(len(positions))):
        shown = f"{str(list(positions))[:60]}"
        raise ValueError(f"order must have each position from 0 to {max(len(positions) - 1, 0)} once, not {shown}")
    return positions
