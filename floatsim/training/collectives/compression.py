"""Compressed communication: top-k, random-k and PowerSGD with error feedback, and FP8 messages with scales."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from floatsim.arrays.array.conversion import as_float_array
from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.array.types import Floats
from floatsim.arrays.elementwise.arithmetic import add, divide, multiply, subtract
from floatsim.arrays.sums.products import matmul
from floatsim.arrays.sums.reductions import norm
from floatsim.arrays.sums.reductions import sum as sum_of
from floatsim.formats import FP32, FP64, FloatFormat, FormatLike, as_format
from floatsim.formats._validation import as_flag, as_index, as_real
from floatsim.quantization.scales import number
from floatsim.reference.random import split_seeds
from floatsim.training.collectives.ring import Chunk, all_reduce, ring_chunks
from floatsim.training.collectives.wire import as_messages, read_ranks
from floatsim.training.policies.conversions import nearest
from floatsim.training.scaling.tensor_scaling import current_scale

__all__ = ["CompressionState", "PowerSGD", "RandomK", "TopK", "compressed_all_reduce", "fp8_all_reduce"]


@dataclass(frozen=True, eq=False)
class CompressionState:
    """What the ranks keep between two steps.

    Attributes
    ----------
    error : FloatArray or None
        The part of each rank's gradients that was not sent, (N, ...). None before the first step, or without feedback.
    q : FloatArray or None
        PowerSGD's right factor, the same at all ranks, (columns, rank).
    step : int
        The number of steps so far.
    """

    error: FloatArray | None = None
    q: FloatArray | None = None
    step: int = 0


Reduced: TypeAlias = tuple[FloatArray, FloatArray, CompressionState]
"""The average over the ranks, what each rank sent as dense arrays, and the new state."""


class Compressor(Protocol):
    """A compression of gradients."""

    feedback: bool

    def reduce(self, x: FloatArray, state: CompressionState) -> Reduced:
        """Return the average over the ranks, what each rank sent as dense arrays, and the new state."""
        ...


def _average(x: FloatArray) -> FloatArray:
    """Return the sum over the ranks of the ring, divided by N, in the format of x."""
    total = all_reduce(x)
    return as_float_array(divide(total, number(float(x.shape[0]), x.format)), "x")


def _count(k: int | float, elements: int) -> int:
    if isinstance(k, float):
        share = as_real(k, "k")
        if not 0 < share <= 1:
            raise ValueError(f"k={k!r} is a share of the elements: from above 0 to 1.0; a number of elements is an int")
        return max(1, int(share * elements))
    return min(as_index(k, "k", 1, 1 << 62), elements)


@dataclass(frozen=True)
class TopK:
    """Each rank sends its k largest gradients by magnitude, and keeps the error of the rest.

    Parameters
    ----------
    k : int or float
        The number of elements; a float is the share of the elements, rounded down, at least one element.
    feedback : bool
        Whether the rest is added to the gradients of the next step.

    Notes
    -----
    Of equal magnitudes, the elements with the smaller index are sent first. NaN counts as the largest magnitude. The
    dense arrays of the messages are summed by the ring and divided by N.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> x = np.float32([[1, -5, 2], [4, 1, 1]])
    >>> result, state = fs.training.compressed_all_reduce(x, fs.training.TopK(1))
    >>> result, state.error
    (FloatArray([2.0, -2.5, 0.0], FP32), FloatArray([[1.0, 0.0, 2.0],
                [0.0, 1.0, 1.0]], FP32))
    """

    k: int | float
    feedback: bool = True

    def reduce(self, x: FloatArray, state: CompressionState) -> Reduced:
        """Return the average over the ranks, what each rank sent, and the state."""
        flat = x.reshape(x.shape[0], x.size // x.shape[0])
        size = np.abs(flat.values)
        size[np.isnan(size)] = np.inf
        order = np.argsort(-size, axis=1, kind="stable")[:, : _count(self.k, flat.shape[1])]
        kept = np.zeros(flat.shape, bool)
        np.put_along_axis(kept, order, values=True, axis=1)
        return _sent(x, kept.reshape(x.shape), state)


def _sent(x: FloatArray, kept: NDArray[np.bool_], state: CompressionState) -> Reduced:
    sent = FloatArray(np.where(kept, x.codes, x.codes.dtype.type(0)), x.format)
    return _average(sent), sent, state


def _random_words(seed: int, step: int, n: int) -> NDArray[np.uint64]:
    """Return a random word for each of n elements: SplitMix64 of the seed, the step and the index."""
    of_step = split_seeds(np.array([seed], np.uint64), step + 1)
    return split_seeds(np.broadcast_to(of_step, (n,)), np.arange(1, n + 1))


@dataclass(frozen=True)
class RandomK:
    """All ranks send the same k random elements; other elements are sent in later steps.

    Parameters
    ----------
    k : int or float
        The number of elements; a float is the share of the elements, rounded down, at least one element.
    seed : int
        The seed. Each step draws other elements.
    feedback : bool
        Whether the rest is added to the gradients of the next step.

    Notes
    -----
    The elements are those with the k smallest outputs of SplitMix64 for (seed, step, element index).

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> result, state = fs.training.compressed_all_reduce(np.ones((2, 6), np.float32), fs.training.RandomK(3, seed=1))
    >>> result.values.sum(), state.error.values.sum()
    (np.float64(3.0), np.float64(6.0))
    """

    k: int | float
    seed: int = 0
    feedback: bool = True

    def reduce(self, x: FloatArray, state: CompressionState) -> Reduced:
        """Return the average over the ranks, what each rank sent, and the state."""
        elements = x.size // x.shape[0]
        words = _random_words(as_index(self.seed, "seed", 0, (1 << 64) - 1), state.step, elements)
        kept = np.zeros(elements, bool)
        kept[np.argsort(words, kind="stable")[: _count(self.k, elements)]] = True
        return _sent(x, np.broadcast_to(kept.reshape(x.shape[1:]), x.shape), state)


@dataclass(frozen=True)
class PowerSGD:
    """A matrix of gradients M as a product P Q^T of low rank (Vogels et al., arXiv 1905.13727).

    1. P = M Q at each rank, summed over the ranks by the ring.
    2. The columns of P are orthogonalized (Gram-Schmidt): col / (norm(col) + epsilon), and each later column minus
       (col . later) col.
    3. Q = M^T P at each rank, summed by the ring and divided by N.
    4. The result is P Q^T. The error of a rank is its M minus the result.

    Every operation is rounded once to the format of the gradients. The matrix products accumulate by `accumulate`.

    Parameters
    ----------
    rank : int
        The rank of the approximation.
    seed : int
        The seed of the first Q: normal numbers of NumPy's RandomState(seed + step), rounded and orthogonalized.
    feedback : bool
        Whether the error is added to the gradients of the next step.
    warm_start : bool
        Whether the next step starts from this step's Q. Otherwise it draws a new one.
    epsilon : float
        1e-8 in PyTorch, which is 0 in FP16.
    accumulate : description, format or text, optional
        The accumulation of the matrix products. Default: that of `fs.matmul`.

    Notes
    -----
    PyTorch, torch/distributed/algorithms/ddp_comm_hooks/powerSGD_hook.py. PyTorch's random numbers differ, and
    PyTorch leaves the first steps uncompressed (start_powerSGD_iter). The square of a column may overflow in FP16.

    Examples
    --------
    A matrix of rank 1 is transmitted up to roundings:

    >>> import floatsim as fs, numpy as np
    >>> x = np.float32([[[1, 2, 3], [2, 4, 6]]])
    >>> result, state = fs.training.compressed_all_reduce(x, fs.training.PowerSGD(rank=1))
    >>> result.values.round(3)
    array([[1., 2., 3.],
           [2., 4., 6.]])
    """

    rank: int = 1
    seed: int = 0
    feedback: bool = True
    warm_start: bool = True
    epsilon: float = 1e-8
    accumulate: Any = None

    def reduce(self, x: FloatArray, state: CompressionState) -> Reduced:
        """Return the average over the ranks, the same for each rank, and the state with the new Q."""
        if x.ndim != 3:
            raise ValueError(f"PowerSGD compresses matrices: x must be (ranks, rows, columns), not {x.shape}")
        fmt, (ranks, rows, columns) = x.format, x.shape
        rank = min(as_index(self.rank, "rank", 1, 1 << 31), rows, columns)
        q = state.q if self.warm_start and state.q is not None else self._first_q(columns, rank, fmt, state.step)
        p = self._orthogonal(all_reduce(self._product(x, q)))
        q = _average(self._product(x.transpose(0, 2, 1), p))
        result = self._product(p, q.T)
        sent = FloatArray(np.broadcast_to(result.codes, (ranks, rows, columns)), fmt)
        return result, sent, replace(state, q=q)

    def _first_q(self, columns: int, rank: int, fmt: FloatFormat, step: int) -> FloatArray:
        draws = np.random.RandomState(self.seed + step).normal(size=(columns, rank))  # a stream that NumPy freezes
        return self._orthogonal(nearest(FloatArray(draws.view(np.uint64), FP64), fmt))

    def _product(self, a: FloatArray, b: FloatArray) -> FloatArray:
        return as_float_array(matmul(a, b, accumulate=self.accumulate, format=a.format), "product")

    def _orthogonal(self, matrix: FloatArray) -> FloatArray:
        """Return the matrix with orthonormal columns."""
        result = matrix.copy()
        for i in range(matrix.shape[1]):
            column = result[:, i : i + 1]
            length = as_float_array(norm(column, format=matrix.format), "norm")
            column = as_float_array(divide(column, add(length, number(self.epsilon, matrix.format))), "column")
            result[:, i : i + 1] = column
            rest = result[:, i + 1 :]
            if rest.shape[1]:
                products = sum_of(multiply(column, rest), axis=0, format=matrix.format)
                result[:, i + 1 :] = subtract(rest, multiply(products, column))
        return result


def compressed_all_reduce(
    x: Floats, compressor: Compressor, state: CompressionState | None = None
) -> tuple[FloatArray, CompressionState]:
    """Return the average of gradients over N ranks, compressed, and the state of the next step.

    With feedback, each rank first adds the error of the last step. The new error is what it did not send.

    Parameters
    ----------
    x : array_like of floats, (N, ...)
        The gradients of the ranks. All operations are rounded to their format.
    compressor : TopK, RandomK or PowerSGD
        The compression.
    state : CompressionState, optional
        The state that the last step returned. Default: the state of the first step.

    Returns
    -------
    average : FloatArray, (...)
        As every rank receives it.
    state : CompressionState
        Pass it to the next call.

    Raises
    ------
    TypeError, ValueError
        For no rank, for a state of another shape, and for k and rank below 1.

    Examples
    --------
    The error reaches the sum in later steps:

    >>> import floatsim as fs, numpy as np
    >>> x, state, total = np.float32([[3, 2, 1]]), None, 0
    >>> for step in range(6):
    ...     sent, state = fs.training.compressed_all_reduce(x, fs.training.TopK(1), state)
    ...     total += sent.values
    >>> total, state.error
    (array([15.,  8.,  6.]), FloatArray([[3.0, 4.0, 0.0]], FP32))
    """
    if not hasattr(compressor, "reduce"):
        raise TypeError(f"compressor must be a compression, such as fs.training.TopK(0.1), not {compressor!r}")
    given = as_messages(x)
    read_ranks(given, None)  # raises the error for no rank
    feedback = as_flag(compressor.feedback, "feedback")
    state = state if state is not None else CompressionState()
    gradients = given
    if state.error is not None:
        if state.error.shape != given.shape or state.error.format != given.format:
            raise ValueError(f"state is for {state.error.format} {state.error.shape}, not {given.format} {given.shape}")
        gradients = as_float_array(add(given, state.error), "x")
    result, sent, state = compressor.reduce(gradients, state)
    error = as_float_array(subtract(gradients, sent), "x") if feedback else None
    return result, replace(state, error=error, step=state.step + 1)


# -- FP8 messages ------------------------------------------------------------------------------------------------------


def _factor(x: FloatArray, headroom: float, fmt: FloatFormat) -> FloatArray:
    """Return max / (headroom amax) in FP32, by the rule of `current_scale`."""
    amax = float(np.max(np.abs(x.values), initial=0.0))
    return number(current_scale(headroom * amax, fmt), FP32)


def _scaled(x: FloatArray, factor: FloatArray, fmt: FloatFormat) -> FloatArray:
    return nearest(as_float_array(multiply(x, factor), "x"), fmt, saturate=True)


def fp8_all_reduce(
    x: Floats, format: FormatLike = "e4m3", *, headroom: float | None = None, rescale: bool = False
) -> FloatArray:
    """Return the sum over N ranks with messages in FP8 and FP32 scales, by the ring.

    Parameters
    ----------
    x : array_like of floats, (N, ...)
        The arrays of the ranks. They are rounded to FP32.
    format : format
        The format of the messages, of at most 8 bits.
    headroom : float, optional
        One scale for all ranks maps headroom * amax to the largest number, where amax is the largest magnitude of all
        ranks. Default: N, with which the sum cannot overflow.
    rescale : bool
        True: each message has a scale of its own, max / amax of its chunk. At each hop, the sum of the received numbers
        and of the rank's own numbers is in FP32, and is scaled and rounded again. `headroom` is then not used.

    Returns
    -------
    FloatArray, (...)
        In FP32.

    Raises
    ------
    TypeError, ValueError
        For no rank, a format of more than 8 bits, and a headroom below 1.

    Notes
    -----
    The definition is ours. A scale m is max / (headroom amax) by `fs.training.current_scale`: 1 for an amax of zero,
    infinity or NaN. A message is x * m, rounded to FP32 and then to the format, where it saturates. Its numbers are
    divided by m, in FP32. Without `rescale`, messages are added as NCCL adds them, through FP16.

    Examples
    --------
    Each number is 7 in E4M3. From 128 on, whose neighbour is 144, the sum absorbs it; with new scales it does not:

    >>> import floatsim as fs, numpy as np
    >>> x = np.full((64, 1), 0.01, np.float32)
    >>> fs.training.fp8_all_reduce(x), fs.training.fp8_all_reduce(x, rescale=True)
    (FloatArray([0.182857141], FP32), FloatArray([0.639999688], FP32))
    """
    fmt = as_format(format)
    if fmt.bits > 8 or fmt.is_scale:
        raise ValueError(f"format={fmt.name} must be a format of at most 8 bits, such as 'e4m3' or 'e5m2'")
    as_flag(rescale, "rescale")
    numbers, shape = read_ranks(x, FP32)
    if rescale:
        return _rescaled_ring(numbers, fmt).reshape(shape)
    room = float(numbers.shape[0]) if headroom is None else as_real(headroom, "headroom", 1.0)
    factor = _factor(numbers, room, fmt)
    total = nearest(all_reduce(_scaled(numbers, factor, fmt)), FP32)
    return as_float_array(divide(total, factor), "x").reshape(shape)


def _rescaled_ring(x: FloatArray, fmt: FloatFormat) -> FloatArray:
    ranks, total = x.shape[0], np.zeros(x.shape[1], x.codes.dtype)

    def message(part: FloatArray) -> FloatArray:
        """Return the numbers that a receiver has."""
        factor = _factor(part, 1.0, fmt)
        return as_float_array(divide(nearest(_scaled(part, factor, fmt), FP32), factor), "x")

    def reduced(chunk: Chunk) -> FloatArray:
        owner, start, stop = chunk
        held = x[(owner + 1) % ranks, start:stop]
        for hop in range(1, ranks):
            held = as_float_array(add(message(held), x[(owner + 1 + hop) % ranks, start:stop]), "x")
        return message(held)

    for chunk in ring_chunks(x.shape[1], ranks):
        total[chunk.start : chunk.stop] = reduced(chunk).codes
    return FloatArray(total, FP32)
