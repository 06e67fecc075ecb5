"""Descriptions that split the terms into parts: lanes, blocks, and parts of K."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from floatsim.accumulation.base import MOST, Accumulation, Composite, accumulator_format, value_text
from floatsim.accumulation.leaves import Pairwise, Sequential
from floatsim.accumulation.queries import tensor_cores
from floatsim.accumulation.text import AccumulationLike, as_accumulation
from floatsim.formats import FloatFormat, FormatLike
from floatsim.formats._hashing import hashed_once
from floatsim.formats._validation import as_index, as_word
from floatsim.formats.value_sets import contains

__all__ = ["Blocked", "Parts", "Runs", "SplitK", "Strided", "without_tensor_core"]

Runs: TypeAlias = "list[tuple[int, int]]"
"""The lengths of consecutive parts, as (length, number of parts of this length); no length and no number is 0."""


_BLOCK_RULES = ("full", "equal", "halve")
_SPLIT_RULES = ("serial", "parallel", "universal", "dealt")


@hashed_once
@dataclass(frozen=True, repr=False, init=False)
class Strided(Composite):
    """Lane l sums the terms l, l + lanes, l + 2*lanes, ... by `inner`; `outer` adds the lanes in order.

    Lanes without a term are skipped. `c` is added last, with one more rounding to the format of outer. This is a loop
    with `lanes` accumulators (SIMD, or the threads of a CUDA block in a grid-stride loop).

    Parameters
    ----------
    inner : description, format or text
        The sum of a lane.
    lanes : int
        The number of lanes, at least 1.
    outer : description, format or text, optional
        The sum of the lanes' results. Default: Pairwise of inner's format.

    Raises
    ------
    TypeError
        If `inner` or `outer` is no description, or a TensorCore.
    ValueError
        If `lanes` is below 1, or a text is no description.

    Examples
    --------
    >>> import floatsim as fs
    >>> print(fs.Strided("fp16", 32, fs.Pairwise("fp16", tree="halving")))
    strided(sequential(fp16), 32, pairwise(fp16, halving))
    """

    text_form = "strided(inner, lanes) or strided(inner, lanes, outer)"

    inner: Accumulation
    lanes: int
    outer: Accumulation

    def __init__(self, inner: AccumulationLike, lanes: int, outer: AccumulationLike | None = None) -> None:
        object.__setattr__(self, "inner", without_tensor_core(inner, "inner", _TAKES_NEIGHBOURS))
        object.__setattr__(self, "lanes", as_index(lanes, "lanes", 1, MOST))
        given = Pairwise(self.inner.result_format) if outer is None else outer
        object.__setattr__(self, "outer", without_tensor_core(given, "outer", _ADDS_PRODUCTS))

    def _texts(self, show: Any) -> list[str]:
        return [show(self.inner), str(self.lanes), show(self.outer)]


@hashed_once
@dataclass(frozen=True, repr=False, init=False)
class Blocked(Composite):
    """Blocks of `every` terms, each summed by `inner` from its own zero; `outer` adds their results in order.

    The last block may be short. The results have inner's format. `c` seeds outer.

    DeepSeek-V3's promotion (arXiv 2412.19437, 3.3.2) has this form: a narrow inner sum over 128 terms, added to an FP32
    accumulator.

    Parameters
    ----------
    inner, outer : description, format or text
        The sum of a block, and the sum of the blocks' results.
    every : int or sequence of int
        The number of terms of a block, at least 1. Or the lengths of all blocks, which must add up to the number of
        terms (a sum without terms has no block).
    rule : str
        The lengths of the blocks of n terms, for one number `every`:

        - "full": every block has `every` terms; the last may be short.
        - "equal": the fewest blocks of at most `every` terms, of equal length: ceil(n / blocks) terms, rounded up to a
          multiple of `tile`. The last may be short.
        - "halve": `every` terms while at least 2 * `every` remain. If more than `every` remain, half of them, rounded
          down and then up to a multiple of `tile`, but at most all of them. Then the others, if there are some. This is
          the K loop of OpenBLAS's GEMM
          (driver/level3/level3.c, `min_l`).
    tile : int
        See `rule`.

    Raises
    ------
    TypeError
        If `inner` or `outer` is no description, or `outer` a TensorCore. If `rule` or `tile` is given with a list.
    ValueError
        If a length or `tile` is below 1, or a rule or a text is unknown.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.Blocked("fp16", 128, "fp32")
    Blocked(Sequential(FP16), 128, Sequential(FP32))
    >>> print(fs.Blocked("fp32", [192, 192, 1], "fp32"))
    blocked(sequential(fp32), [192, 192, 1], sequential(fp32))
    >>> print(fs.Blocked("fp32", 448, "fp32", "halve", tile=16))
    blocked(sequential(fp32), 448, sequential(fp32), halve, tile=16)
    """

    text_form = "blocked(inner, every, outer)"
    text_words: ClassVar = {rule: {"rule": rule} for rule in _BLOCK_RULES}

    inner: Accumulation
    every: int | tuple[int, ...]
    outer: Accumulation
    rule: str = "full"
    tile: int = 1

    def __init__(
        self, inner: AccumulationLike, every: int | Sequence[int], outer: AccumulationLike, rule: str = "full",
        tile: int = 1,
    ) -> None:  # fmt: skip
        object.__setattr__(self, "inner", as_accumulation(inner, "inner"))
        lengths = _lengths(every, "every") if isinstance(every, Sequence) else as_index(every, "every", 1, MOST)
        object.__setattr__(self, "every", lengths)
        object.__setattr__(self, "outer", without_tensor_core(outer, "outer", _ADDS_PRODUCTS))
        object.__setattr__(self, "rule", as_word(rule, "rule", _BLOCK_RULES))
        object.__setattr__(self, "tile", as_index(tile, "tile", 1, MOST))
        if isinstance(lengths, tuple) and (self.rule != "full" or self.tile != 1):
            raise TypeError("every lists the lengths of all blocks: pass neither rule= nor tile=")
        if self.rule == "full" and self.tile != 1:
            raise TypeError("tile= has no effect on blocks of `every` terms; it belongs to rule='equal' or 'halve'")

    def runs(self, n: int) -> Runs:
        """Return the lengths of the blocks of n terms.

        >>> import floatsim as fs
        >>> fs.Blocked("fp32", 448, "fp32", "halve", 16).runs(1500)
        [(448, 2), (304, 1), (300, 1)]
        """
        if isinstance(self.every, tuple):
            return _listed(self, self.every, n)
        if self.rule == "equal":
            blocks = -(-n // self.every)
            return _equal(_up(-(-n // max(blocks, 1)), self.tile), n)
        if self.rule == "full":
            return _equal(self.every, n)
        whole = max(n // self.every - 1, 0)
        rest = n - whole * self.every
        last = [rest]
        if rest > self.every:
            half = min(_up(rest // 2, self.tile), rest)
            last = [half, rest - half] if half < rest else [rest]
        return _compact([(self.every, whole), *((length, 1) for length in last)])

    def _texts(self, show: Any) -> list[str]:
        every = str(list(self.every) if isinstance(self.every, tuple) else self.every)
        rule = [] if self.rule == "full" else [f"rule={self.rule!r}" if show is repr else self.rule]
        return [show(self.inner), every, show(self.outer), *rule, *_tile_text(self.tile)]


@hashed_once
@dataclass(frozen=True, repr=False, init=False)
class SplitK(Composite):
    """K split into `parts`, summed as in `Blocked`. Parts without a term are skipped.

    A second pass adds the results of the parts. CUTLASS's split-K kernels split K at multiples of their tile, and each
    of its three modes has its own rule (include/cutlass/gemm/kernel/gemm.h, gemm_splitk_parallel.h,
    gemm_universal.h).

    Parameters
    ----------
    parts : int
        The number of parts, at least 1.
    inner, outer : description, format or text
        The sum of a part, and the sum of the parts' results. `Permuted("reversed", outer)` adds them backwards.
    tile : int
        The terms of a tile, at least 1: the K of the thread block's tile, for "universal" the number of elements in 128
        bits. Default: 1, no tile.
    rule : str
        The length of a part of K terms:

        - "serial" and "universal": ceil(ceil(K / tile) / parts) * tile; the last part may be short. K = 600 in 4 parts
          is 160, 160, 160, 120 with a tile of 32, and 152, 152, 152, 144 with a tile of 8.
        - "parallel": floor(K / (tile * parts)) * tile; the last part has all other terms: 128, 128, 128, 216.
        - "dealt": tile t belongs to part t % parts, so that the parts are not consecutive; the last tile may be short:
          the tiles 0, 4, 8, ... and 1, 5, 9, ... So NVIDIA's execute_split_k_kernel shares K.
    through : format, optional
        The format of D in memory: the running sum is rounded to it, with outer's rounding, FTZ and DAZ, after each
        part, also if it is outer's own format. In
        CUTLASS's serial mode each thread block reads D, adds its part, and writes D. outer must be a `Sequential` in
        a format that has all numbers of `through`. Default: outer's format, without another rounding.

    Raises
    ------
    TypeError
        If `inner` or `outer` is no description, or `outer` a TensorCore. If `through` is given and `outer` is no
        Sequential.
    ValueError
        If `parts` or `tile` is below 1, or a rule or a text is unknown. If outer's format lacks numbers of `through`.

    Examples
    --------
    >>> import floatsim as fs
    >>> print(fs.SplitK(4, "fp32", "fp32"))
    splitk(4, sequential(fp32), sequential(fp32))
    >>> [fs.SplitK(4, "fp32", "fp32", tile, rule).runs(600) for tile, rule in [(32, "serial"), (32, "parallel")]]
    [[(160, 3), (120, 1)], [(128, 3), (216, 1)]]
    >>> print(fs.SplitK(4, "hopper", "fp32", tile=64, through="fp16"))
    splitk(4, tensorcore(hopper), sequential(fp32), tile=64, through=fp16)
    >>> x = fs.array([1.0, 2048.0, 1.0, 0.0], "fp16")  # 1 + 2048 and 1 + 0; dealt: 1 + 1 and 2048 + 0
    >>> [fs.sum(x, accumulate=text).item() for text in ("splitk(2, fp16, fp16)", "splitk(2, fp16, fp16, dealt)")]
    [2048.0, 2050.0]
    """

    text_form = "splitk(parts, inner, outer)"
    text_words: ClassVar = {rule: {"rule": rule} for rule in _SPLIT_RULES}

    parts: int
    inner: Accumulation
    outer: Accumulation
    tile: int = 1
    rule: str = "serial"
    through: FloatFormat | None = None

    def __init__(
        self, parts: int, inner: AccumulationLike, outer: AccumulationLike, tile: int = 1, rule: str = "serial",
        through: FormatLike | None = None,
    ) -> None:  # fmt: skip
        object.__setattr__(self, "parts", as_index(parts, "parts", 1, MOST))
        object.__setattr__(self, "inner", as_accumulation(inner, "inner"))
        object.__setattr__(self, "outer", without_tensor_core(outer, "outer", _ADDS_PRODUCTS))
        object.__setattr__(self, "tile", as_index(tile, "tile", 1, MOST))
        object.__setattr__(self, "rule", as_word(rule, "rule", _SPLIT_RULES))
        fmt = None if through is None else accumulator_format(through, "through")
        if fmt is not None and not isinstance(self.outer, Sequential):
            raise TypeError(f"through= rounds the running sum of a Sequential; outer is {self.outer}")
        if fmt is not None and not contains(self.outer.result_format, fmt):
            raise ValueError(f"through={fmt} has numbers that outer's format {self.outer.result_format} lacks")
        object.__setattr__(self, "through", fmt)

    def runs(self, n: int) -> Runs:
        """Return the lengths of the parts of n terms.

        >>> import floatsim as fs
        >>> fs.SplitK(4, "fp32", "fp32").runs(10), fs.SplitK(4, "fp32", "fp32", 3, "dealt").runs(16)
        ([(3, 3), (1, 1)], [(6, 1), (4, 1), (3, 2)])
        """
        if self.rule == "dealt":
            return self._dealt(n)
        if self.rule == "parallel":
            length = n // (self.tile * self.parts) * self.tile
            return _compact([(length, self.parts - 1), (n - length * (self.parts - 1), 1)])
        return _equal(_up(-(-n // self.parts), self.tile), n)

    def _dealt(self, n: int) -> Runs:
        tiles = -(-n // self.tile)
        rounds, more = divmod(tiles, self.parts)
        long, short = (rounds + 1) * self.tile, rounds * self.tile
        missing = tiles * self.tile - n  # in the last tile, which the last part of the longest ones has
        if more:
            return _compact([(long, more - 1), (long - missing, 1), (short, self.parts - more)])
        return _compact([(short, self.parts - 1), (short - missing, 1)])

    def _texts(self, show: Any) -> list[str]:
        texts = [str(self.parts), show(self.inner), show(self.outer), *_tile_text(self.tile)]
        if self.rule != "serial":
            texts.append(f"rule={self.rule!r}" if show is repr else self.rule)
        return texts if self.through is None else [*texts, f"through={value_text(self.through, show)}"]


@hashed_once
@dataclass(frozen=True, repr=False, init=False)
class Parts(Accumulation):
    """Consecutive parts of given lengths, each with a description of its own; `outer` adds their results in order.

    The results are converted without rounding to the widest of their formats. `c` seeds outer. OpenBLAS's `sdot` has
    this form: lanes in FP32, and the last terms in FP64.

    Parameters
    ----------
    inners : sequence of descriptions, formats or texts
        The sum of each part.
    lengths : sequence of int
        The number of terms of each part, at least 1. They must add up to the number of terms (a sum without terms has
        no part).
    outer : description, format or text
        The sum of the parts' results.

    Raises
    ------
    TypeError
        If an argument is no description or no list, or `outer` is a TensorCore.
    ValueError
        If the lists have different lengths or are empty, a length is below 1, or a text is no description. If no format
        of the parts' results has all numbers of the others.

    Examples
    --------
    >>> import floatsim as fs
    >>> print(fs.Parts([fs.Strided("fp32", 8), "fp64"], [96, 5], "fp64"))
    parts([strided(sequential(fp32), 8, pairwise(fp32)), sequential(fp64)], [96, 5], sequential(fp64))
    """

    text_form = "parts([inner, inner], [length, length], outer)"

    inners: tuple[Accumulation, ...]
    lengths: tuple[int, ...]
    outer: Accumulation

    def __init__(
        self, inners: Sequence[AccumulationLike], lengths: Sequence[int], outer: AccumulationLike
    ) -> None:  # fmt: skip
        if isinstance(inners, str) or not isinstance(inners, Sequence):
            raise TypeError(f"inners must be a list of descriptions, not {inners!r}")
        object.__setattr__(self, "inners", tuple(as_accumulation(inner, "inners") for inner in inners))
        object.__setattr__(self, "lengths", _lengths(lengths, "lengths"))
        object.__setattr__(self, "outer", without_tensor_core(outer, "outer", _ADDS_PRODUCTS))
        if len(self.inners) != len(self.lengths):
            raise ValueError(
                f"there are {len(self.inners)} inners and {len(self.lengths)} lengths; pass one for each part"
            )
        _widest([inner.result_format for inner in self.inners])  # raises

    @property
    def part_format(self) -> FloatFormat:
        """The format in which outer reads the results of the parts."""
        return _widest([inner.result_format for inner in self.inners])

    @property
    def result_format(self) -> FloatFormat:
        return self.outer.result_format

    @property
    def children(self) -> tuple[Accumulation, ...]:
        return *self.inners, self.outer

    def with_children(self, change: Callable[[Accumulation], Accumulation]) -> Accumulation:
        return Parts([change(inner) for inner in self.inners], self.lengths, change(self.outer))

    @classmethod
    def is_word(cls, text: str) -> bool:
        return False

    def runs(self, n: int) -> Runs:
        """Return the lengths of the parts of n terms; each is a run of its own."""
        return _listed(self, self.lengths, n)

    def _texts(self, show: Any) -> list[str]:
        return [f"[{', '.join(map(show, self.inners))}]", str(list(self.lengths)), show(self.outer)]


# -- lengths -----------------------------------------------------------------------------------------------------------


def _up(n: int, tile: int) -> int:
    """Return n rounded up to a multiple of the tile."""
    return -(-n // tile) * tile


def _compact(runs: Runs) -> Runs:
    return [(length, number) for length, number in runs if length and number]


def _equal(length: int, n: int) -> Runs:
    """Return the runs of parts of one length; the last part may be short."""
    return _compact([(length, n // max(length, 1)), (n % max(length, 1), 1)])


def _listed(accumulation: Accumulation, lengths: tuple[int, ...], n: int) -> Runs:
    if n not in (0, sum(lengths)):
        raise ValueError(f"{accumulation} lists the lengths of {sum(lengths)} terms; this sum has {n}")
    return [(length, 1) for length in lengths if n]


# -- arguments ---------------------------------------------------------------------------------------------------------


def _lengths(lengths: Any, argument: str) -> tuple[int, ...]:
    if isinstance(lengths, str) or not isinstance(lengths, Sequence):
        raise TypeError(f"{argument} must be a list of lengths, not {lengths!r}")
    if not lengths:
        raise ValueError(f"{argument} must have at least one length")
    return tuple(as_index(length, argument, 1, MOST) for length in lengths)


def _tile_text(tile: int) -> list[str]:
    return [] if tile == 1 else [f"tile={tile}"]


def _widest(formats: Sequence[FloatFormat]) -> FloatFormat:
    """Return the format that has all values of the others."""
    for wide in formats:
        if all(contains(wide, fmt) for fmt in formats):
            return wide
    names = ", ".join(dict.fromkeys(fmt.name for fmt in formats))
    raise ValueError(f"the results of the parts are {names}; none of these formats has all numbers of the others")


def without_tensor_core(x: AccumulationLike, argument: str, why: str) -> Accumulation:
    """Return a description without a TensorCore, or raise a TypeError that says why."""
    accumulation = as_accumulation(x, argument)
    if tensor_cores(accumulation):
        raise TypeError(f"{argument} cannot be {accumulation}: {why}")
    return accumulation


_ADDS_PRODUCTS = "a TensorCore adds products of matrices, not results of parts"
_TAKES_NEIGHBOURS = "the instructions of a TensorCore take consecutive terms along K, not every `lanes`-th term"
