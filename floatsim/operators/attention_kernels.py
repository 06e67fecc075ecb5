"""Attention in the orders of three fused GPU kernels: blocks of keys, and four lanes for each row.

The rules were found from outputs that an NVIDIA H200 recorded (torch 2.11.0, CUDA 13.0, cuDNN 9.19). Where they agree
with a published source, `KERNELS` names it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from floatsim.arrays.elementwise.arithmetic import add, fma, multiply, subtract
from floatsim.arrays.elementwise.functions import exp, log, reciprocal
from floatsim.operators.computation import Array, Computation
from floatsim.operators.device_functions import ex2_approx, lg2_approx, rcp_approx

__all__ = [
    "KERNELS",
    "MULTIPROCESSORS",
    "AttentionKernel",
    "fused_attention",
    "fused_gradients",
    "kept_scores",
    "key_splits",
]

LANES = 4
"""The threads that share one row of scores: lane q has the columns 8n + 2q and 8n + 2q + 1."""
LANE_COLUMNS = 8
"""The columns of one tile of a matrix instruction (mma.m16n8): two for each lane."""
WARP_KEYS = 32
"""The keys of one warp of the memory-efficient kernel."""
MULTIPROCESSORS = 132
"""The multiprocessors of an H200."""
MOST_SPLITS = 16
"""The parts of the keys whose weights are added in the order of the step "weight_sum": one for each thread."""

GRADIENT_SIZES = {"flash-kernel": {64: 128}, "cudnn-kernel": {64: 64}}
"""The head sizes of the recorded gradients, and the queries and keys of a block of their kernel."""
DELTA_LANES, DELTA_ELEMENTS = 8, 8
"""The threads that share a row of outputs and their gradients, and the elements that a thread loads at a time."""


@dataclass(frozen=True)
class AttentionKernel:
    """The blocks of keys of a fused kernel.

    Attributes
    ----------
    name : str
        The name, for messages.
    blocks : mapping of range to int
        The number of keys of a block, by the head size d.
    last_block_first : bool
        Whether the kernel runs from the last block to the first.
    source : str
        Where the numbers come from.
    split_blocks : mapping of range to int
        The same for the kernel that splits the keys into parts. Empty: no such kernel.
    """

    name: str
    blocks: Mapping[range, int]
    last_block_first: bool
    source: str
    split_blocks: Mapping[range, int] = field(default_factory=dict)

    def block(self, d: int, *, split: bool = False) -> int | None:
        """Return the number of keys of a block, by the head size, or None if it is not known."""
        table = self.split_blocks if split else self.blocks
        return next((keys for sizes, keys in table.items() if d in sizes), None)


_TO_64, _TO_128 = range(1, 65), range(65, 129)

KERNELS: Mapping[str, AttentionKernel] = {
    "flash-kernel": AttentionKernel(
        "FlashAttention-2", {_TO_64: 128, _TO_128: 64}, True, split_blocks={_TO_64: 256, _TO_128: 128},
        source="Recorded for d of 64 and 128. The others are from FlashAttention-2, "
        "csrc/flash_attn/src/flash_fwd_launch_template.h",
    ),
    "cudnn-kernel": AttentionKernel(
        "cuDNN", {range(64, 65): 128, range(128, 129): 128}, False, source="Recorded for d of 64 and 128"
    ),
    "efficient-kernel": AttentionKernel(
        "memory-efficient attention", {_TO_64: 64, _TO_128: 128}, False,
        source="Recorded for d of 64 and 128. Other d run in the same kernels of PyTorch (max_k of 64 and 128)",
    ),
}  # fmt: skip
"""The fused kernels, by the variant of `fs.operators.attention`."""


def key_splits(rows: int, queries: int, keys: int, d: int, multiprocessors: int = MULTIPROCESSORS) -> int:
    """Return into how many parts FlashAttention-2 splits the keys.

    Parameters
    ----------
    rows : int
        Batch times heads.
    queries, keys, d : int
        The numbers of queries and of keys, and the head size.
    multiprocessors : int
        The multiprocessors of the GPU.

    Returns
    -------
    int
        The smallest number with at least 85 % of the best share of busy multiprocessors. 1 if 80 % of them are busy
        without a split, or if the keys fit in one block of the splitting kernel.

    Notes
    -----
    The rule is `num_splits_heuristic` of FlashAttention-2, csrc/flash_attn/flash_api.cpp (T. Dao, 2023), with blocks of
    64 queries and two blocks for each multiprocessor, as in PyTorch. Recordings of an H200 agree: two parts for 333
    and 512 keys with d = 64 and 200 keys with d = 128, one part for 256 keys with d = 64.

    Examples
    --------
    >>> import floatsim as fs
    >>> splits = fs.operators.key_splits
    >>> [splits(2, keys, keys, 64) for keys in (256, 512)], splits(64, 512, 512, 64)
    ([1, 2], 1)
    """
    block = KERNELS["flash-kernel"].block(d, split=True)
    if block is None:
        return 1
    blocks, tiles, places = math.ceil(keys / block), rows * math.ceil(queries / 64), 2 * multiprocessors
    if tiles >= 0.8 * places:
        return 1
    shares = {}
    for parts in range(1, min(128, places, blocks) + 1):
        if parts > 1 and math.ceil(blocks / parts) == math.ceil(blocks / (parts - 1)):
            continue
        waves = np.float32(tiles * parts) / np.float32(places)
        shares[parts] = float(waves / np.ceil(waves))
    return next(parts for parts, share in shares.items() if share >= 0.85 * max(shares.values()))


def kept_scores(c: Computation, scores: Array, kept: NDArray[np.bool_] | None) -> Array:
    """Return the scores, with -infinity or the lowest number for removed keys."""
    return scores if kept is None else c.select(kept, scores, c.lowest(scores))


def fused_attention(
    c: Computation, q: Array, k: Array, v: Array, kept: NDArray[np.bool_] | None, scale: float, *, block: int | None,
    last_block_first: bool | None, splits: int | None,
) -> Array:  # fmt: skip
    """Return the step "normalized" or "combined" of attention in the order of a fused kernel."""
    kernel, keys, d = KERNELS[c.variant], k.shape[-2], q.shape[-1]
    last_first = kernel.last_block_first if last_block_first is None else last_block_first
    if splits is None:
        rows = math.prod(np.broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2]))
        splits = key_splits(rows, q.shape[-2], keys, d) if kernel.split_blocks and block is None else 1
    elif not kernel.split_blocks and splits > 1:
        raise ValueError(f"{kernel.name} does not split the keys: splits must be 1, not {splits}")
    if splits > MOST_SPLITS:
        raise ValueError(
            f"the order of {splits} parts of the keys is not known; at most {MOST_SPLITS} are. Give splits= or block="
        )
    block = kernel.block(d, split=splits > 1) if block is None else block
    if block is None:
        raise ValueError(f"the blocks of {kernel.name} are not known for d = {d}; give block=, the keys of a block")
    run = _Rows(c, q, scale)
    if splits == 1:
        return run.part(k, v, kept, block, last_first)[0]
    length = math.ceil(math.ceil(keys / block) / splits) * block
    parts = []
    for start in range(0, keys, length):
        here = slice(start, min(start + length, keys))
        visible = None if kept is None else np.broadcast_to(kept, (*kept.shape[:-1], keys))[..., here]
        output, total, largest = run.part(k[..., here, :], v[..., here, :], visible, block, last_first)
        parts.append((output, run.logsumexp(total, largest)))
    return run.combined(parts)


def fused_gradients(
    c: Computation, g: Array, q: Array, k: Array, v: Array, kept: NDArray[np.bool_] | None, scale: float,
    block: int | None,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """Return the gradients by query, key and value in the order of a fused kernel with keys in one part.

    The source of FlashAttention-2 is csrc/flash_attn/src/flash_bwd_kernel.h and flash_bwd_preprocess_kernel.h
    (T. Dao, 2023).
    """
    kernel, (queries, d), keys = KERNELS[c.variant], q.shape[-2:], k.shape[-2]
    is_cudnn = c.variant == "cudnn-kernel"
    known = GRADIENT_SIZES[c.variant].get(d)
    if block is None and known is None:
        raise ValueError(f"the blocks of the gradients of {kernel.name} are not known for d = {d}; give block=")
    size = known if known is not None and block is None else block
    assert size is not None
    if is_cudnn and block is None and max(keys, queries) > size:
        raise ValueError(
            f"the gradients of {kernel.name} are not known for {max(keys, queries)} queries or keys, only up to "
            f"{size}; with block= they are computed, and some bits differ"
        )
    if not is_cudnn and keys > 2 * size:
        raise ValueError(
            f"{kernel.name} adds the gradients by query of {math.ceil(keys / size)} blocks of {size} keys in no fixed "
            "order; at most 2 blocks are computed"
        )

    def turned(x: Array) -> Array:
        return np.swapaxes(x, -1, -2)

    run = _Rows(c, q, scale)
    output, total, largest = run.part(k, v, kept, block or kernel.block(d) or size, kernel.last_block_first)
    logarithm = run.logsumexp(total, largest)
    logarithm = c.select(c.nonzero(total), logarithm, c.number(0.0, logarithm))
    delta = c.sum("delta", _delta_lanes(c, g, c.converted("forward_output", output, q)))
    scores = kept_scores(c, c.product("scores", q, turned(k)), kept)
    power = c.value("power", ex2_approx, run.exponent(scores, logarithm))
    if kept is not None and not c.has_infinity(scores):
        power = c.select(kept, power, c.number(0.0, power))
    by_probability = c.product("probability_gradient", g, turned(v))
    result = c.value("result", multiply, power, c.value("centred", subtract, by_probability, delta))
    if is_cudnn:
        result = c.value("scaled_result", multiply, result, c.number(scale, result))
    power, result = c.converted("rounded_power", power, q), c.converted("rounded_result", result, q)
    by_value: Array | None = None
    by_key: Array | None = None
    starts = range(0, queries, size)
    for start in starts if is_cudnn else reversed(starts):
        rows = slice(start, min(start + size, queries))
        by_value = c.product("value_gradient", turned(power[..., rows, :]), g[..., rows, :], by_value)
        by_key = c.product("key_product", turned(result[..., rows, :]), q[..., rows, :], by_key)
    if is_cudnn:
        return c.product("query_product", result, k), by_key, by_value
    by_query: Array | None = None
    for start in range(0, keys, size):
        part = c.product("query_product", result[..., start : start + size], k[..., start : start + size, :])
        by_query = c.converted("query_sum", part) if by_query is None else c.value("query_sum", add, by_query, part)
    by_query = c.value("query_gradient", multiply, by_query, c.number(scale, by_query))
    return by_query, c.value("key_gradient", multiply, by_key, c.number(scale, by_key)), by_value


def _delta_lanes(c: Computation, g: Array, output: Array) -> Array:
    """Return the sums of products of 8 lanes, each of 8 elements next to each other. Missing elements are +0.

    cuDNN adds two products at a time.
    """
    padding = -g.shape[-1] % (DELTA_LANES * DELTA_ELEMENTS)

    def by_lane(x: Any) -> Any:
        return np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, padding)]).reshape(*x.shape[:-1], -1, DELTA_ELEMENTS)

    left, right = c.moved(by_lane, g), c.moved(by_lane, output)
    step = "delta_pairs" if c.variant == "cudnn-kernel" else "delta_lanes"
    total: Array | None = None
    for n in range(DELTA_ELEMENTS):
        if n == 0 or (step == "delta_pairs" and n % 2 == 0):
            done, total = total, c.value(step, multiply, left[..., n], right[..., n])
            continue
        total = c.value(step, fma, left[..., n], right[..., n], total)
        if step == "delta_pairs":
            total = c.converted("delta_lanes", total) if done is None else c.value("delta_lanes", add, done, total)
    return total


class _Rows:
    """The rows of one call: they run over blocks of keys, and over parts of the keys."""

    def __init__(self, c: Computation, q: Array, scale: float) -> None:
        self._c, self._q, self._scale = c, q, scale

    def _scaled(self, step: str, x: Array) -> Array:
        """Return x * scale * log2(e), with one rounding of the product by the rounded number.

        The scores of "efficient-kernel" have their scale already.
        """
        c = self._c
        scale = 1.0 if c.variant == "efficient-kernel" else c.number_of(self._scale, x)
        return c.value(step, multiply, x, c.number(scale * math.log2(math.e), x))

    def _scores(self, k: Array, kept: NDArray[np.bool_] | None) -> Array:
        """Return the scores of a block, without those of removed keys; in "efficient-kernel" times scale."""
        c = self._c
        scores = c.product("scores", self._q, np.swapaxes(k, -1, -2))
        if c.variant == "efficient-kernel":
            scores = c.value("scaled", multiply, scores, c.number(self._scale, scores))
        return kept_scores(c, scores, kept)

    def scaled_scores(self, scores: Array) -> Array:
        """Return scores * scale * log2(e)."""
        return self._scaled("scaled_scores", scores)

    def exponent(self, scores: Array, logarithm: Array) -> Array:
        """Return the exponents of 2 of the probabilities, from the scores and their logsumexp."""
        c, log2e = self._c, self._c.number(math.log2(math.e), logarithm)
        if c.variant == "cudnn-kernel":
            natural = c.value("natural_scores", multiply, scores, c.number(self._scale, scores))
            return c.value("power_exponent", multiply, c.value("power_shifted", subtract, natural, logarithm), log2e)
        scaled = c.value("scaled_logsumexp", multiply, logarithm, log2e)
        return c.value("power_shifted", subtract, self.scaled_scores(scores), scaled)

    def part(
        self, k: Array, v: Array, kept: NDArray[np.bool_] | None, block: int, last_first: bool
    ) -> tuple[Array, Array, Array]:
        """Return the normalized output of some keys, their sum of exponentials, and the largest score."""
        c, keys = self._c, k.shape[-2]
        starts = range(0, keys, block)
        largest: Array | None = None
        lanes: Array | None = None
        output: Array | None = None
        for start in reversed(starts) if last_first else starts:
            here = slice(start, min(start + block, keys))
            visible = None if kept is None else np.broadcast_to(kept, (*kept.shape[:-1], keys))[..., here]
            scores = self._scores(k[..., here, :], visible)
            previous, largest = largest, c.maximum("max", scores)
            if previous is not None:
                largest = c.larger("max", previous, largest)
            reference = c.finite_or_zero(largest)
            scaled_max = self._scaled("scaled_max", reference)
            shifted = c.value("shifted", subtract, self.scaled_scores(scores), scaled_max)
            powers = c.value("exp", ex2_approx, shifted)
            if visible is not None and not c.has_infinity(scores):
                powers = c.select(visible, powers, c.number(0.0, powers))
            probabilities = c.converted("probabilities", powers)
            rescaled = factor = None
            if previous is not None:
                factor = self._factor(previous, reference, scaled_max)
                rescaled = c.value("rescaled_output", multiply, output, factor)
            lanes = _LANE_SUMS[c.variant](c, powers, lanes, factor)
            output = c.product("product", probabilities, v[..., here, :], rescaled)
        total = lanes if c.variant == "efficient-kernel" else c.sum("sum", lanes)  # one lane, or four
        inverse = rcp_approx if c.variant == "cudnn-kernel" else reciprocal
        inverted = c.value("inverse", inverse, c.one_for_zero(total))
        return c.value("normalized", multiply, output, inverted), total, largest

    def _factor(self, previous: Array, reference: Array, scaled_max: Array) -> Array:
        """Return exp2 of the difference of the largest scores of the blocks before and of all blocks so far."""
        c = self._c
        if c.variant == "flash-kernel":
            difference = self._scaled("scaled_difference", c.value("difference", subtract, previous, reference))
        else:
            difference = c.value("difference", subtract, self._scaled("scaled_previous", previous), scaled_max)
        return c.value("factor", ex2_approx, difference)

    def logsumexp(self, total: Array, largest: Array) -> Array:
        """Return the logarithm of the sum of the exponentials of the scaled scores of a part."""
        c = self._c
        logarithm = c.value("log", lg2_approx, c.one_for_zero(total))
        largest, ln2 = c.finite_or_zero(largest), c.number(math.log(2), logarithm)
        scale = c.number(self._scale, largest)
        if c.variant == "cudnn-kernel":
            found = c.value("logsumexp", fma, logarithm, ln2, c.value("natural_max", multiply, largest, scale))
        else:
            found = c.value("logsumexp", fma, largest, scale, c.value("scaled_log", multiply, logarithm, ln2))
        return c.select(c.nonzero(total), found, c.lowest(found))

    def combined(self, parts: list[tuple[Array, Array]]) -> Array:
        """Return the sum of the outputs of the parts, weighted by the sums of their exponentials."""
        c = self._c
        largest = c.converted("largest", parts[0][1])
        for _, each in parts[1:]:
            largest = c.larger("largest", largest, each)
        largest = c.finite_or_zero(largest)
        shifted = [c.value("weight_shifted", subtract, each, largest) for _, each in parts]
        powers = [c.value("weight_exp", exp, x) for x in shifted]
        lanes = 1 << (len(powers) - 1).bit_length()
        total = c.sum("weight_sum", c.joined(powers + [c.moved(np.zeros_like, powers[0])] * (lanes - len(powers))))
        total = c.value("total", add, c.value("weight_log", log, c.one_for_zero(total)), largest)
        output: Array | None = None
        for part, each in parts:
            weight = c.value("part_weight", exp, c.value("weight_exponent", subtract, each, total))
            start = c.number(0.0, part) if output is None else output
            output = c.value("combined", fma, weight, part, start)
        return output


# -- the sums of the lanes ---------------------------------------------------------------------------------------------


def _terms(c: Computation, powers: Array, warps: bool = False) -> Array:
    """Return the exponentials by lane, (..., lanes, terms), or by warp of keys and lane. Missing columns are +0."""
    width = WARP_KEYS if warps else LANE_COLUMNS
    columns = powers.shape[-1]

    def by_lane(x: Any) -> Any:
        padded = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, -columns % width)])
        tiles = padded.reshape(*x.shape[:-1], -1, width // LANE_COLUMNS, LANES, LANE_COLUMNS // LANES)
        if not warps:
            tiles = tiles.reshape(*x.shape[:-1], 1, -1, LANES, LANE_COLUMNS // LANES)
        turned = np.swapaxes(tiles, -2, -3)
        by_warp = turned.reshape(*turned.shape[:-2], -1)
        return by_warp if warps else by_warp[..., 0, :, :]

    return c.moved(by_lane, powers)


def _flash_lanes(c: Computation, powers: Array, lanes: Array | None, factor: Array | None) -> Array:
    """Return the sums of the lanes, each in the order of its columns, on top of the sums of the blocks before.

    The first term of a block and the product by the factor have one rounding.
    """
    terms = _terms(c, powers)
    first = terms[..., 0]
    total = c.converted("lanes", first) if lanes is None else c.value("rescaled", fma, lanes, factor, first)
    for n in range(1, terms.shape[-1]):
        total = c.value("lanes", add, total, terms[..., n])
    return total


def _cudnn_lanes(c: Computation, powers: Array, lanes: Array | None, factor: Array | None) -> Array:
    """Return the sums of the lanes: the sum of the block in each lane is added with the product by the factor."""
    block = c.sum("block_sum", _terms(c, powers))[..., 0]
    return c.converted("lanes", block) if lanes is None else c.value("lanes", fma, lanes, factor, block)


def _efficient_lanes(c: Computation, powers: Array, lanes: Array | None, factor: Array | None) -> Array:
    """Return the sum of the row: the lanes of each warp are joined, and the warps are added one after the other."""
    warps = c.sum("warp_sum", c.sum("block_sum", _terms(c, powers, warps=True))[..., 0])[..., 0]
    total = None if lanes is None else c.value("rescaled", multiply, lanes, factor)
    for n in range(warps.shape[-1]):
        warp = warps[..., n : n + 1]
        total = c.converted("sum", warp) if total is None else c.value("sum", add, total, warp)
    return total


_LANE_SUMS: Mapping[str, Callable[[Computation, Array, Array | None, Array | None], Array]] = {
    "flash-kernel": _flash_lanes, "cudnn-kernel": _cudnn_lanes, "efficient-kernel": _efficient_lanes,
}  # fmt: skip
