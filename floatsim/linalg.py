"""Matrix products in which the format, the rounding and the order of every sum are chosen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from floatsim import backends, recording, reference
from floatsim.accumulation import Accumulation, Sequential, as_accumulation
from floatsim.arithmetic import deliver
from floatsim.arrays import implements
from floatsim.contexts import How, Manner, resolve
from floatsim.conversion import Codes, read_floats
from floatsim.formats import FP32, FP64, FloatFormat, FormatLike, as_format
from floatsim.rounding import Overflow, OverflowLike, Rounding, RoundingLike, TininessLike, as_member
from floatsim.streams import SeedLike

__all__ = ["matmul"]


def _matrix_operand(x: Any, argument: str) -> tuple[Codes, FloatFormat, bool]:
    codes, fmt, float_array = read_floats(x, argument)
    if fmt.is_scale:
        raise TypeError(f"{argument} is {fmt.name}, a scale format, which has no arithmetic; fs.convert it first")
    if codes.ndim == 0:
        raise ValueError(f"{argument} must have at least one dimension; for scalars use fs.multiply")
    return codes, fmt, float_array


def _batches(a: Codes, b: Codes) -> tuple[Codes, Codes, tuple[int, ...]]:
    """a as (batch, M, K) and b as (batch, K, N), by the rules of np.matmul, and the shape of the result."""
    x = a[np.newaxis, :] if a.ndim == 1 else a
    y = b[:, np.newaxis] if b.ndim == 1 else b
    if x.shape[-1] != y.shape[-2]:
        raise ValueError(f"a {a.shape} and b {b.shape} do not fit: K is {x.shape[-1]} in a and {y.shape[-2]} in b")
    try:
        batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    except ValueError:
        raise ValueError(f"the batch dimensions of a {a.shape} and b {b.shape} do not broadcast") from None
    (m, k), n = x.shape[-2:], y.shape[-1]
    shape = batch + (m,) * (a.ndim > 1) + (n,) * (b.ndim > 1)
    count = int(np.prod(batch, dtype=np.int64))
    x = np.broadcast_to(x, (*batch, m, k)).reshape(count, m, k)
    y = np.broadcast_to(y, (*batch, k, n)).reshape(count, k, n)
    return x, y, shape


def matmul(
    a: Any, b: Any, *, accumulate: Accumulation | FloatFormat | str | None = None, format: FormatLike | None = None,
    rounding: RoundingLike | None = None, overflow: OverflowLike | None = None,
    result_rounding: RoundingLike | None = None, daz: bool | None = None, ftz: bool | None = None,
    tininess: TininessLike | None = None, seed: SeedLike | None = None, random_bits: int | None = None,
    out: Any = None,
) -> Any:  # fmt: skip
    """The matrix product a @ b, every rounding and the order of the sums as described.

    Parameters
    ----------
    a : array_like of floats, (..., M, K) or (K,)
    b : array_like of floats, (..., K, N) or (K,)
        FloatArrays or arrays whose dtype is a format; their formats may differ. Batches broadcast as in np.matmul.
    accumulate : Sequential, Exact, format or text, optional
        How the sums are carried out; a format is short for its Sequential. Default:
        Sequential(FP64) if an input is FP64, else Sequential(FP32).
    format : format, optional
        The result's; one more rounding if it is not the accumulator's, which is the default.
    rounding, daz, ftz, tininess, seed, random_bits
        Of every rounding inside; None means the context's.
    overflow, result_rounding
        Of the final conversion to the result's format alone: "saturate_finite" also turns the accumulator's infinities
        into max. Inside, accumulators do not saturate.
    out : FloatArray or ndarray, optional
        Where to write the result.

    Returns
    -------
    FloatArray or ndarray, (..., M, N)
        A FloatArray if an input is one or the result's format has no dtype. K = 0 gives +0.

    Raises
    ------
    TypeError
        For inputs that are no floats, or an unknown kind of accumulation.
    ValueError
        For shapes that do not fit and unknown names.

    Notes
    -----
    Under `record`, "matmul.product" and "matmul.sum" count the roundings of products and of sums; with fused or exact
    accumulation there are only the latter. *absorbed*: a non-zero product left a finite accumulator unchanged.
    Stochastic rounding draws for the flat index of the result's element (batch, i, j), at site 2*k of the product and
    2*k + 1 of the sum; the final conversion has a seed of its own, SplitMix64's first output for this one.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> ones = np.ones(4096, np.float16)
    >>> fs.matmul(ones, ones, accumulate=fs.Sequential(fs.FP16)), fs.matmul(ones, ones, accumulate="fp32")
    (np.float16(2.048e+03), np.float32(4096.0))
    """
    x, x_format, x_float = _matrix_operand(a, "a")
    y, y_format, y_float = _matrix_operand(b, "b")
    how = (
        as_accumulation(accumulate)
        if accumulate is not None
        else Sequential(FP64 if FP64 in (x_format, y_format) else FP32)
    )
    fmt = how.format if format is None else as_format(format)
    keywords: How = {"rounding": rounding, "daz": daz, "ftz": ftz, "tininess": tininess, "seed": seed,
                     "random_bits": random_bits}  # fmt: skip
    manner = resolve({**keywords, "overflow": overflow})
    inside = replace(manner, attributes=replace(manner.attributes, overflow=Overflow.INFINITY))
    left, right, shape = _batches(x, y)
    codes, histograms = backends.current().matmul(
        (left, x_format), (right, y_format), how, inside, recording.recording()
    )
    for site, histogram in histograms.items():
        recording.note_histogram(f"matmul.{site}", histogram)
    codes = codes.reshape(shape)
    if fmt != how.format or manner.attributes.overflow is Overflow.SATURATE_FINITE:
        codes = _to_result(codes, how.format, fmt, _result_manner(manner, result_rounding, keywords))
    return deliver(codes, fmt, x_float or y_float, out)


def _result_manner(manner: Manner, rounding: RoundingLike | None, keywords: How) -> Manner:
    """How the final conversion rounds: in its own direction, and with draws of its own."""
    if rounding is not None:
        direction = as_member(Rounding, rounding, "result_rounding")
        if direction is Rounding.STOCHASTIC and manner.attributes.rounding is not Rounding.STOCHASTIC:
            manner = replace(resolve({**keywords, "rounding": direction}), attributes=manner.attributes)
        manner = replace(manner, attributes=replace(manner.attributes, rounding=direction))
    return replace(manner, seed=reference.split_seed(manner.seed, 1))


def _to_result(codes: Codes, source: FloatFormat, fmt: FloatFormat, manner: Manner) -> Codes:
    converted, events = backends.current().convert(codes, source, fmt, manner)
    recording.note("matmul.result", events, [(codes, source)], (converted, fmt))
    result: Codes = converted
    return result


@implements(np.matmul)
def _numpy_matmul(a: Any, b: Any, *, out: Any = None) -> Any:
    """`@` and np.matmul keep the operands' format when they have one in common, else the default."""
    formats = {read_floats(x, name)[1] for x, name in ((a, "a"), (b, "b"))}
    return matmul(a, b, format=formats.pop() if len(formats) == 1 else None, out=out)
