"""A card that carries operations out: matrix instructions one by one or chained, sums and conversions by CUDA cores.

Codes go in and come out, as NumPy arrays. What the card has no instruction for is a ValueError that says what is
needed; nothing is emulated.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from floatsim.accumulation import trees
from floatsim.accumulation.partition import count
from floatsim.arrays.conversion import encode
from floatsim.formats import FP32, FP64, FloatFormat
from floatsim.formats.rounding import Attributes
from floatsim.hardware.compile import nvrtc as build
from floatsim.hardware.compile import programs
from floatsim.hardware.compile.cupy_runtime import Cuda
from floatsim.hardware.protocol import Card, Codes, Dots
from floatsim.hardware.tables.fragment_layouts import Storage, layouts, pack, unpack
from floatsim.hardware.tables.ptx_matrix import Variant, variants
from floatsim.hardware.tables.ptx_scalar import Scalar, find_scalar

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Card", "Codes", "Device", "Dots"]

Scaling = tuple[Codes, Codes]

_AT_ONCE = 4096  # tiles of single instructions that are sent together
_BLOCK = 256  # threads of a block of CUDA cores' kernels
_STACK = 64  # values that the kernel of trees can hold
_DEFAULT = Attributes()


class Device:
    """The card of a number, through CuPy.

    Parameters
    ----------
    number : int
        Which, from 0.
    cuda : optional
        Another way to reach a card than CuPy: an object with the methods of
        `floatsim.hardware.compile.cupy_runtime.Cuda`.

    Raises
    ------
    UnavailableError
        Without CuPy or a card: a RuntimeError that says which.
    """

    def __init__(self, number: int = 0, cuda: Any = None) -> None:
        self.number = number
        self._cuda = Cuda(number) if cuda is None else cuda
        self._kernels: dict[Any, Callable[..., None]] = {}

    @property
    def card(self) -> Card:
        """Which it is, and what drives it."""
        found: Card = self._cuda.card
        return found

    def can_run(self, variant: Variant) -> bool:
        """Whether it has the instruction."""
        return variant.kernel.runs_on(self.card.capability)

    @functools.cached_property
    def variants(self) -> tuple[Variant, ...]:
        """Every matrix instruction that it has; of several ways to issue one, the first."""
        found: dict[Any, Variant] = {}
        for variant in filter(self.can_run, variants()):
            found.setdefault((variant.name, variant.a, variant.b, variant.output, variant.scales), variant)
        return tuple(found.values())

    def _kernel(self, program: programs.Program, name: str) -> Callable[..., None]:
        target = program.target_for(self.card.capability)
        key = program.source, target, tuple(program.definitions.items()), name
        if key not in self._kernels:
            code = build.build(program.source, target, program.definitions, self._cuda.newest, oldest=program.cuda)
            self._kernels[key] = self._cuda.kernel(code, name)
        return self._kernels[key]

    def _check(self, variant: Variant) -> None:
        if not self.can_run(variant):
            major, minor = self.card.capability
            needs = variant.kernel.needs
            raise ValueError(f"{variant} needs {needs}; this card, {self.card.name}, has {major}.{minor}")

    # -- single instructions -----------------------------------------------------------------------------------

    def tiles(self, variant: Variant, a: Codes, b: Codes, c: Codes, scales: Scaling | None = None) -> Codes:
        """One instruction on each of n tiles.

        Parameters
        ----------
        variant : Variant
            Of the shape m, n, k.
        a, b, c : (tiles, m, k), (tiles, k, n), (tiles, m, n)
            Codes of its formats.
        scales : ((tiles, m, k / every), (tiles, k / every, n)), optional
            Of a's rows and b's columns, for an instruction that takes them.

        Returns
        -------
        (tiles, m, n) codes of the output's format

        Raises
        ------
        ValueError
            For an instruction that the card does not have, and shapes that are not the instruction's.
        """
        self._check(variant)
        _check_tiles(variant, a, b, c, scales)
        parts = [
            self._some_tiles(
                variant, a[i:j], b[i:j], c[i:j], None if scales is None else (scales[0][i:j], scales[1][i:j])
            )
            for i, j in ((i, i + _AT_ONCE) for i in range(0, len(a), _AT_ONCE))
        ]
        return np.concatenate([np.empty((0, *c.shape[1:]), variant.output.code_dtype), *parts])

    def _some_tiles(self, variant: Variant, a: Codes, b: Codes, c: Codes, scales: Scaling | None) -> Codes:
        lie = layouts(variant)
        operands = [self._cuda.send(pack(x, *place, lie.word)) for x, place in ((a, lie.a), (b, lie.b))]
        operands += self._scales(variant, scales)
        start = self._cuda.send(pack(c, *lie.d, lie.word))
        out = self._cuda.empty(start.shape, lie.word)
        self._kernel(programs.of_variant(variant), "single")(len(a), lie.threads, *operands, start, out)
        return unpack(self._cuda.receive(out), *lie.d, variant.output.code_dtype)

    def _scales(self, variant: Variant, scales: Scaling | None) -> list[Any]:
        places = layouts(variant).scales
        if places is None or scales is None:
            return [None, None]
        return [self._cuda.send(pack(x, place, _BYTES)) for x, place in zip(scales, places, strict=True)]

    def dots(self, variant: Variant, a: Codes, b: Codes, c: Codes, scales: Scaling | None = None) -> Codes:
        """Independent dot products, each by one instruction: see `Dots`.

        Each tile carries out as many as it has columns, on its diagonal; the others of its results are not looked at.
        """
        self._check(variant)
        m, n, k = variant.kernel.shape
        total, side = len(c), min(m, n)
        if a.shape != (total, k) or b.shape != (total, k) or c.shape != (total,):
            raise ValueError(f"{variant} takes a and b (n, {k}) and c (n,), not {a.shape}, {b.shape} and {c.shape}")
        index = np.arange(total)
        tile, column = index // side, index % side
        row = (column + tile * side) % m  # all rows of an instruction get their turn
        tiles = -(-total // side)
        left, right = np.zeros((tiles, m, k), a.dtype), np.zeros((tiles, k, n), b.dtype)
        start = np.zeros((tiles, m, n), c.dtype)
        left[tile, row], right[tile, :, column], start[tile, row, column] = a, b, c
        both = None
        if scales is not None:
            blocks = scales[0].shape[1]
            both = np.zeros((tiles, m, blocks), np.uint8), np.zeros((tiles, blocks, n), np.uint8)
            both[0][tile, row], both[1][tile, :, column] = scales
        found: Codes = self.tiles(variant, left, right, start, both)[tile, row, column]
        return found

    # -- chained instructions ----------------------------------------------------------------------------------

    def matmul(
        self,
        variant: Variant,
        a: Codes,
        b: Codes,
        c: Codes | None = None,
        scales: Scaling | None = None,
        every: int = 0,
    ) -> Codes:
        """A product of matrices by a chain of instructions along K, ascending: what `fs.TensorCore` describes.

        Parameters
        ----------
        variant : Variant
        a, b, c : (M, K), (K, N), (M, N)
            Codes of its formats; what is missing of tiles is filled with zeros. Without c, the sums start at +0.
        scales : ((M, K / every), (K / every, N)), optional
            Of a's rows and b's columns.
        every : int
            If not 0, accumulators start anew after so many instructions, and are added to a total by FP32 additions
            (FP64 for FP64) of the CUDA cores: `fs.Blocked(TensorCore, every * k, fs.Sequential(FP32))`.

        Returns
        -------
        (M, N) codes of the output's format

        Raises
        ------
        ValueError
            For an instruction that the card does not have, and `every` with an output that is not added so.
        """
        self._check(variant)
        if every and variant.output not in (FP32, FP64):
            raise ValueError(
                f"every={every}: totals are FP32 (or FP64), and the output of {variant} is {variant.output}"
            )
        (rows, depth), columns = a.shape, b.shape[1]
        m, n, k = variant.kernel.shape
        lie = layouts(variant)
        shape = -(-rows // m), -(-columns // n), -(-depth // k)
        start = np.zeros((rows, columns), variant.output.code_dtype) if c is None else c
        if not rows * columns * depth:
            return start
        packed = [pack(_tiled(x, *size, turn), *place, lie.word) for x, size, turn, place in (
            (a, (m, k), False, lie.a), (b, (k, n), True, lie.b), (start, (m, n), False, lie.d))]  # fmt: skip
        left, right, first = map(self._cuda.send, packed)
        of_blocks: Scaling | None = None
        if scales is not None and variant.scales is not None:
            blocks = k // variant.scales.every
            of_blocks = _tiled(scales[0], m, blocks, False), _tiled(scales[1], blocks, n, True)
        out = self._cuda.empty(first.shape, lie.word)
        counts = (np.int32(shape[1]), np.int32(shape[2]), np.int32(every))
        kernel = self._kernel(programs.of_variant(variant), "gemm")
        kernel(shape[0] * shape[1], lie.threads, left, right, *self._scales(variant, of_blocks), first, out, *counts)
        found = unpack(self._cuda.receive(out), *lie.d, variant.output.code_dtype)
        whole = found.reshape(shape[0], shape[1], m, n).swapaxes(1, 2).reshape(shape[0] * m, shape[1] * n)
        return np.ascontiguousarray(whole[:rows, :columns])

    # -- how fast ----------------------------------------------------------------------------------------------

    def issue(self, variant: Variant, steps: int, repeats: int) -> tuple[int, list[float]]:
        """One instruction, issued back to back by all multiprocessors, on normally distributed operands.

        Parameters
        ----------
        variant : Variant
        steps : int
            How often each of them repeats its few instructions.
        repeats : int
            How often all of that is timed.

        Returns
        -------
        (int, list of float)
            Floating-point operations of one repeat, a product and a sum being two; milliseconds of each repeat.

        Raises
        ------
        ValueError
            For an instruction that the card does not have.
        """
        self._check(variant)
        how, lie, (m, n, k) = programs.issue_of(variant), layouts(variant), variant.kernel.shape
        normal = np.random.default_rng(0).standard_normal
        a = pack(encode(normal((1, m, k)), variant.a), *lie.a, lie.word)
        b = pack(encode(normal((how.chain, k, n)), variant.b), *lie.b, lie.word)
        ones = None
        if variant.scales is not None:
            one, blocks = encode(1.0, variant.scales.format), k // variant.scales.every
            ones = np.full((1, m, blocks), one), np.full((1, blocks, n), one)
        grid = how.blocks * self._cuda.multiprocessors
        out = self._cuda.empty((grid * how.threads,), lie.word)
        kernel = self._kernel(programs.of_variant(variant), "rate")
        zero = np.dtype(lie.word).type(0)
        operands = [self._cuda.send(a), self._cuda.send(b), *self._scales(variant, ones), out, np.int32(steps), zero]
        times: list[float] = self._cuda.timed(lambda: kernel(grid, how.threads, *operands), repeats)
        tiles = grid * steps * how.groups * how.chain * lie.copies
        return 2 * m * (how.columns or n) * k * tiles, times

    def timed(self, call: Callable[[], Any], repeats: int) -> list[float]:
        """Milliseconds for which a call keeps the card busy, of each repeat."""
        found: list[float] = self._cuda.timed(call, repeats)
        return found

    # -- CUDA cores --------------------------------------------------------------------------------------------

    def scalar(self, row: Scalar, *operands: Codes) -> Codes:
        """An operation on every element: (n,) codes of its result's format from one, two or three of its source's.

        A stochastic conversion has random bits for its second operand, `row.random_bits` each: see `draws`.
        """
        card = self.card.capability
        program = programs.of_scalars(programs.scalar_target(card), row.cuda)
        sent = [self._cuda.send(x.astype(row.source.code_dtype, copy=False)) for x in operands]
        out = self._cuda.empty(operands[0].shape, row.result.code_dtype)
        if operands[0].size:
            arguments = [*sent, *[None] * (3 - len(sent)), out, np.uint64(out.size)]
            self._kernel(program, row.kernel)(-(-out.size // _BLOCK), _BLOCK, *arguments)
        results: Codes = self._cuda.receive(out)
        return results

    def convert(self, codes: Codes, source: FloatFormat, result: FloatFormat, how: Attributes = _DEFAULT) -> Codes:
        """Codes in another format, by the instruction that the card has for it; a ValueError where it has none."""
        row = find_scalar("convert", source, result, how, self.card.capability)
        return self.scalar(row, codes.reshape(-1)).reshape(codes.shape)

    def sum(
        self, fmt: FloatFormat, a: Codes | None, b: Codes, ranges: NDArray[np.int64], start: Codes | None = None,
        how: Attributes = _DEFAULT, products: Attributes | None = None, fused: bool = False, tree: str | None = None,
    ) -> Codes:  # fmt: skip
        """Sums over ranges of k by the CUDA cores, each range by itself.

        Parameters
        ----------
        fmt : FloatFormat
            FP32, FP64, FP16 or BF16: of the operands, of every product and of every sum.
        a, b : (M, K) or None, (K, N)
            Codes. The terms are the products of a's rows and b's columns; without a, the values of b's columns.
        ranges : (ranges, 3)
            start, stop and step of each.
        start : (ranges, M, N), optional
            What the sums start with, for those that are not trees; default: +0.
        how, products : Attributes
            How sums are rounded, and products, if otherwise. Only `tree=None` flushes subnormals.
        fused : bool
            One rounding for a product and the sum with it.
        tree : str, optional
            "adjacent", "halving" or "numpy": `fs.Pairwise`. Otherwise k ascends: `fs.Sequential`.

        Returns
        -------
        (ranges, M, N) codes

        Raises
        ------
        ValueError
            For what the card has no instruction for.
        """
        card = self.card.capability
        # what the kernel will not use is as it is by default
        of_products = (products or how) if a is not None and not fused else _DEFAULT
        add = find_scalar("add", fmt, fmt, how, card)
        multiply = find_scalar("multiply", fmt, fmt, of_products, card)
        program = programs.of_sums(add, multiply, find_scalar("fma", fmt, fmt, how if fused else _DEFAULT, card))
        rows, (depth, columns) = 1 if a is None else len(a), b.shape
        out = np.zeros((len(ranges), rows, columns), fmt.code_dtype) if start is None else start
        if not out.size or not depth:
            return out
        where, last = ranges, [np.int32(fused)]
        if tree is not None:
            where, order, merges = _trees(tree, ranges)
            last = [self._cuda.send(order), self._cuda.send(merges)]
        results = self._cuda.send(out)
        sizes = [np.int32(len(ranges)), np.int64(rows), np.int64(depth), np.int64(columns)]
        operands = [None if a is None else self._cuda.send(a), self._cuda.send(b), self._cuda.send(where), results]
        self._kernel(program, "tree" if tree else "sequential")(
            -(-out.size // _BLOCK), _BLOCK, *operands, *sizes, *last
        )
        sums: Codes = self._cuda.receive(results)
        return sums.reshape(out.shape)


_BYTES = Storage(8)


def _check_tiles(variant: Variant, a: Codes, b: Codes, c: Codes, scales: Scaling | None) -> None:
    m, n, k = variant.kernel.shape
    wanted = [(len(c), m, k), (len(c), k, n), (len(c), m, n)]
    if [a.shape, b.shape, c.shape] != wanted:
        given = f"{a.shape}, {b.shape} and {c.shape}"
        raise ValueError(f"{variant} takes tiles {wanted[0]}, {wanted[1]} and {wanted[2]}, not {given}")
    if (scales is None) != (variant.scales is None):
        raise ValueError(f"{variant} takes {'no ' if variant.scales is None else ''}scales")
    if scales is not None and variant.scales is not None:
        blocks = k // variant.scales.every
        if (scales[0].shape, scales[1].shape) != ((len(c), m, blocks), (len(c), blocks, n)):
            there = f"{(len(c), m, blocks)} and {(len(c), blocks, n)}"
            raise ValueError(f"{variant} takes scales {there}, not {scales[0].shape} and {scales[1].shape}")


def _tiled(x: Codes, rows: int, columns: int, by_columns: bool) -> Codes:
    """A matrix as tiles, filled up with zeros, (tiles, rows, columns): in the order of rows, or of columns of tiles."""
    down, across = -(-x.shape[0] // rows), -(-x.shape[1] // columns)
    padded = np.zeros((down * rows, across * columns), x.dtype)
    padded[: x.shape[0], : x.shape[1]] = x
    split = padded.reshape(down, rows, across, columns).swapaxes(1, 2)
    return np.ascontiguousarray(split.swapaxes(0, 1) if by_columns else split).reshape(-1, rows, columns)


def _trees(name: str, ranges: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int8]]:
    """The ranges with the offsets of their programs, and these, one after the other: see `accumulation.trees`."""
    lengths = [int(n) for n in count(ranges)]
    known = {n: trees.program(name, n) for n in sorted(set(lengths)) if n}
    deepest = max(
        (int(np.cumsum(1 - p.merges.astype(np.int64)).max() + p.merges.max()) for p in known.values()), default=0
    )
    if deepest > _STACK:
        raise ValueError(f"the tree of {max(lengths)} terms is too deep for the kernel, which holds {_STACK} values")
    offsets = dict(zip(known, np.cumsum([0, *known])[:-1].tolist(), strict=True))
    order = np.concatenate([np.zeros(1, np.int32)[:0], *(p.order for p in known.values())])
    merges = np.concatenate([np.zeros(1, np.int8)[:0], *(p.merges for p in known.values())])
    column = np.array([offsets.get(n, 0) for n in lengths], np.int64)
    return np.column_stack([ranges, column]), order, merges
