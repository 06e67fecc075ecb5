"""Comparisons, total order and classes of codes."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import numpy as np
from floatsim_kernels.elementwise import loops, ordering

from floatsim._types import Codes, Seeds
from floatsim.emulator.elementwise.execute import Operand, convert
from floatsim.emulator.elementwise.integers import working_dtype
from floatsim.emulator.elementwise.pieces import NO_DRAWS, Array, Arrays, Events, flattened, in_pieces
from floatsim.emulator.params import format_params, order_params
from floatsim.formats import FP32, FP64, FloatFormat
from floatsim.formats.call import CallOptions
from floatsim.formats.rounding import RoundingAttributes
from floatsim.formats.value_sets import contains

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["classify", "compare", "total_order"]

_EXACT = CallOptions(RoundingAttributes())


@functools.lru_cache(maxsize=256)
def _packed(fmt: FloatFormat, holds: tuple[bool, ...]) -> tuple[Any, Array, Array]:
    """Return the loop that compares packed codes, its parameters, and the truth of each relation."""
    return ordering.compare(8 * fmt.code_dtype.itemsize), order_params(fmt), np.array(holds, np.bool_)


def compare(
    a: Operand, b: Operand, holds: tuple[bool, ...], daz: bool, signaling: bool, want_events: bool
) -> tuple[NDArray[np.bool_], Events | None]:
    """Return whether a relation of `holds` is true, and the events if wanted.

    `holds` has a bool for each relation: less, equal, greater, unordered.
    """
    shape = np.broadcast_shapes(a[0].shape, b[0].shape)
    if not want_events and not daz and (common := _common_format(a[1], b[1])) is not None:
        flat = [flattened(_in_format(x, common), shape, common.code_dtype) for x in (a, b)]
        results = np.empty(math.prod(shape), np.bool_)
        loop, params, truth = _packed(common, holds)
        out = results.view(np.uint8)
        in_pieces("compare", lambda x, written, draws: loop(*x, written, params, truth), flat, out, NO_DRAWS)
        return results.reshape(shape), None
    dtype = working_dtype(a[1], b[1])
    relations, events = np.empty(math.prod(shape), np.uint8), np.empty(math.prod(shape), np.uint8)

    def run(arrays: Arrays, written: Array, draws: Seeds) -> None:
        x, y, happened = arrays
        loops.compare(x, format_params(a[1]), y, format_params(b[1]), int(daz), int(signaling), written, happened)

    in_pieces(
        "compare", run, [flattened(a[0], shape, dtype), flattened(b[0], shape, dtype), events], relations, NO_DRAWS
    )
    return np.array(holds)[relations].reshape(shape), events.reshape(shape)


def _common_format(a: FloatFormat, b: FloatFormat) -> FloatFormat | None:
    """Return a format that holds the values of both, or None."""
    return next((fmt for fmt in (a, b, FP32, FP64) if contains(fmt, a) and contains(fmt, b)), None)


def _in_format(x: Operand, fmt: FloatFormat) -> Codes:
    codes, source = x
    return codes if source == fmt else convert(codes, source, fmt, _EXACT, False)[0]


def classify(codes: Codes, fmt: FloatFormat) -> NDArray[np.uint8]:
    """Return the classes, as numbers of `FloatClass`."""
    out, params = np.empty(codes.size, np.uint8), format_params(fmt)
    flat = [flattened(codes, codes.shape, fmt.code_dtype)]
    in_pieces("classify", lambda x, written, draws: loops.classify(x[0], params, written), flat, out, NO_DRAWS)
    return out.reshape(codes.shape)


def total_order(a: Codes, b: Codes, fmt: FloatFormat) -> NDArray[np.bool_]:
    """Return totalOrder(a, b) of two arrays of codes of one format."""
    shape = np.broadcast_shapes(a.shape, b.shape)
    out, params = np.empty(math.prod(shape), np.bool_), format_params(fmt)
    flat = [flattened(x, shape, fmt.code_dtype) for x in (a, b)]
    in_pieces("total_order", lambda x, written, draws: loops.total_order(*x, params, written), flat, out, NO_DRAWS)
    return out.reshape(shape)
