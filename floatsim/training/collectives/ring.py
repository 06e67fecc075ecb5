"""Reduce-scatter and all-reduce of N ranks, to the bit: NCCL's ring, and a binary tree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.array.types import Floats
from floatsim.arrays.call.random_stream import SeedLike
from floatsim.arrays.events.record import scope
from floatsim.formats import FormatLike
from floatsim.formats._validation import as_index, with_keyword_hints
from floatsim.formats.rounding import OverflowLike, RoundingLike
from floatsim.quantization.scheme import as_name
from floatsim.training.collectives.wire import Wire, as_messages, read_ranks

__all__ = ["ALGORITHMS", "OPERATIONS", "all_reduce", "reduce_scatter", "ring_chunks"]

OPERATIONS = ("sum", "average")
"""The operations of a collective."""
ALGORITHMS = ("ring", "tree")
"""The orders of addition over the ranks."""


class Chunk(NamedTuple):
    """A range of elements, and the rank that owns it: the additions of the ring end there."""

    owner: int
    start: int
    stop: int


def ring_chunks(elements: int, ranks: int, chunk: int | None = None) -> list[Chunk]:
    """Return the chunks of a ring: who owns which elements.

    Parameters
    ----------
    elements : int
        The number of elements of each rank.
    ranks : int
        The number of ranks N, at least 1.
    chunk : int, optional
        The elements of a chunk. The ring runs once for each N * chunk elements. Default: ceil(elements / N), one run.

    Returns
    -------
    list of Chunk
        (owner, start, stop), in the order of the elements. Rank d owns chunk d of each run. The last chunks of the last
        run may be short or missing: in a run over m elements they hold ceil(m / N) elements, as long as there are any.

    Raises
    ------
    TypeError, ValueError
        For numbers below 0, and for no rank.

    Notes
    -----
    NCCL (`src/device/all_reduce.h`) also splits a tensor over channels, and rounds the chunks of the last run up to
    16 bytes. Its sizes depend on the protocol and the machine. `chunk` sets the size for one channel.

    Examples
    --------
    >>> import floatsim as fs
    >>> [tuple(chunk) for chunk in fs.training.ring_chunks(7, 3)]
    [(0, 0, 3), (1, 3, 6), (2, 6, 7)]
    >>> [tuple(chunk) for chunk in fs.training.ring_chunks(7, 3, chunk=1)]
    [(0, 0, 1), (1, 1, 2), (2, 2, 3), (0, 3, 4), (1, 4, 5), (2, 5, 6), (0, 6, 7)]
    """
    total = as_index(elements, "elements", 0, 1 << 62)
    n = as_index(ranks, "ranks", 1, 1 << 31)
    size = -(-total // n) if chunk is None else as_index(chunk, "chunk", 1, 1 << 62)
    found = []
    for base in range(0, total, n * size or 1):
        rest = min(total - base, n * size)
        part = -(-rest // n) if rest < n * size else size
        for owner in range(n):
            start, stop = base + owner * part, base + min((owner + 1) * part, rest)
            if start < stop:
                found.append(Chunk(owner, start, stop))
    return found


def _operands(x: FloatArray, chunks: list[Chunk]) -> Iterator[FloatArray]:
    """Yield the operands of each hop for all elements: chunk d takes the ranks d + 1, d + 2, ..., d."""
    ranks = x.shape[0]
    for hop in range(ranks):
        codes = np.empty(x.shape[1], x.codes.dtype)
        for owner, start, stop in chunks:
            codes[start:stop] = x.codes[(owner + 1 + hop) % ranks, start:stop]
        yield FloatArray(codes, x.format)


def _ring(x: FloatArray, wire: Wire, chunks: list[Chunk]) -> FloatArray:
    operands = _operands(x, chunks)
    total = wire.start(next(operands))
    for operand in operands:
        total = wire.add(total, wire.start(operand))
    return wire.finish(total)


def _tree(x: FloatArray, wire: Wire, chunks: list[Chunk]) -> FloatArray:
    def subtree(rank: int) -> FloatArray:
        total = wire.start(x[rank])
        for child in (2 * rank + 1, 2 * rank + 2):
            if child < x.shape[0]:
                total = wire.add(total, subtree(child))
        return total

    return wire.finish(subtree(0))


_ALGORITHMS = {"ring": _ring, "tree": _tree}


@with_keyword_hints
def all_reduce(
    x: Floats,
    op: str = "sum",
    *,
    algorithm: str = "ring",
    wire: FormatLike | None = None,
    accumulate: FormatLike | None = None,
    chunk: int | None = None,
    rounding: RoundingLike | None = None,
    overflow: OverflowLike | None = None,
    seed: SeedLike | None = None,
) -> FloatArray:
    """Return the sum or the average over N ranks, as every rank receives it.

    Parameters
    ----------
    x : array_like of floats, (N, ...)
        The arrays of the ranks. The first axis is the rank. A list of FloatArrays must have one format.
    op : str
        "sum". Or "average", NCCL's ncclAvg: every rank multiplies its numbers by 1/N before the sum, with one rounding
        of the product. 1/N is rounded to FP32, then to the format of the partial sums, both to nearest; in FP64 it is
        rounded once. N = 3 in BF16: the factor is 0.333984375.
    algorithm : str
        "ring", as NCCL: with the chunks of `ring_chunks`, chunk d is ((x[d+1] + x[d+2]) + ...) + x[d], with N - 1
        additions. Or "tree", our definition: the children of rank r are 2r + 1 and 2r + 2. From the leaves to rank 0,
        (x[r] + subtree(2r + 1)) + subtree(2r + 2).
    wire : format, optional
        The format of the messages: x is rounded to it first. Default: the format of x.
    accumulate : format, optional
        The format of the partial sums: each addition is rounded to it, and the last sum once more to the wire. A format
        that does not hold the numbers of the wire rounds the messages of a sum first, also of a single rank; of an
        average, it rounds the products with 1/N. Default: as NCCL's classic kernels. That is the format of the wire.
        With ties to even, formats of at most 8 bits whose numbers FP16 holds are added and multiplied in FP16, and each
        result is rounded a second time, to the format of the wire. In other modes and formats, each operation is
        rounded once, to the format of the wire.
    chunk : int, optional
        The elements of a chunk of the ring, as in `ring_chunks`.
    rounding : Rounding or str, optional
        The rounding mode of every operation but the reciprocal 1/N. Default: the context's.
    overflow : Overflow or str, optional
        The overflow policy. Default: "saturate_finite" for formats of at most 8 bits, otherwise the context's. It is
        that of the operations: infinities of x stay if x has the format of the wire, and saturate if it is rounded.
    seed : int, generator or RandomStream, optional
        The seed of stochastic rounding. Every hop draws new numbers, also with an integer. Default: the context's.

    Returns
    -------
    FloatArray, (...)
        In the format of the wire.

    Raises
    ------
    TypeError
        If x has no float format.
    ValueError
        For no rank, unknown names, scale formats, and a list of FloatArrays of several formats.

    Notes
    -----
    NCCL 2.27 and later can use kernels that read all ranks' memory and accumulate FP16 and BF16 in FP32:
    `accumulate="fp32"` is one such order. The order of additions in a node of NCCL's trees was not traced.

    Examples
    --------
    Gradients of 1000 overflow in FP16 from 66 ranks on:

    >>> import floatsim as fs, numpy as np
    >>> for ranks in (65, 66):
    ...     print(ranks, fs.training.all_reduce(np.full((ranks, 1), 1000, np.float16)))
    65 FloatArray([64608.0], FP16)
    66 FloatArray([inf], FP16)
    >>> x = fs.array([[1.0], [2.0**-8], [2.0**-8]], "bf16")
    >>> fs.training.all_reduce(x, algorithm="tree"), fs.training.all_reduce(x, accumulate="fp32")
    (FloatArray([1.0], BF16), FloatArray([1.008], BF16))
    """
    name = as_name(algorithm, ALGORITHMS, "algorithm")
    kind = as_name(op, OPERATIONS, "op")
    messages, shape = read_ranks(x, wire, rounding=rounding, overflow=overflow, seed=seed)
    rules = Wire.of(messages.format, accumulate, rounding, overflow, seed)
    chunks = ring_chunks(messages.shape[1], messages.shape[0], chunk)
    with scope("all_reduce"):
        if kind == "average":
            messages = rules.premultiplied(messages, messages.shape[0])
        return _ALGORITHMS[name](messages, rules, chunks).reshape(shape)


def reduce_scatter(x: Floats, op: str = "sum", **options: Any) -> tuple[FloatArray, ...]:
    """Return the chunk of the sum or the average over N ranks that each rank receives.

    Parameters
    ----------
    x : array_like of floats, (N, ...)
        The arrays of the ranks, flattened in memory order.
    op : str
        "sum" or "average".
    **options : algorithm, wire, accumulate, rounding, overflow, seed
        As in `fs.training.all_reduce`, which is the concatenation of these chunks.

    Returns
    -------
    tuple of FloatArray
        N arrays of one dimension. Array d has the elements of the chunks of rank d: ceil(elements / N), fewer in the
        last ranks if N does not divide the number of elements.

    Raises
    ------
    TypeError, ValueError
        As in `fs.training.all_reduce`.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> x = np.arange(10, dtype=np.float32).reshape(2, 5)
    >>> fs.training.reduce_scatter(x)
    (FloatArray([5.0, 7.0, 9.0], FP32), FloatArray([11.0, 13.0], FP32))
    """
    messages = as_messages(x)
    total, ranks = all_reduce(messages, op, **options).ravel(), len(messages.codes)
    owned: list[list[np.ndarray[Any, Any]]] = [[total.codes[:0]] for _ in range(ranks)]
    for owner, start, stop in ring_chunks(total.size, ranks, options.get("chunk")):
        owned[owner].append(total.codes[start:stop])
    return tuple(FloatArray(np.concatenate(parts), total.format) for parts in owned)
