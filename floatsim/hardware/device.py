"""A GPU that runs operations: matrix instructions alone or in chains, and sums and conversions on its CUDA cores.

Operands and results are codes in NumPy arrays. An operation without an instruction on the GPU raises a ValueError that
names the requirement. Nothing is emulated.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from floatsim._types import Codes
from floatsim.accumulation import trees
from floatsim.accumulation.partition import count
from floatsim.arrays.array.conversion import encode
from floatsim.formats import FP32, FP64, FloatFormat
from floatsim.formats.rounding import RoundingAttributes
from floatsim.hardware.compile import nvrtc as build
from floatsim.hardware.compile import programs
from floatsim.hardware.compile.runtime import open_runtime
from floatsim.hardware.protocol import DeviceIdentity, Dots
from floatsim.hardware.tables.fragment_layouts import Storage, layouts, pack, unpack
from floatsim.hardware.tables.ptx_matrix import Variant, variants
from floatsim.hardware.tables.ptx_scalar import Scalar, find_scalar

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Device", "DeviceIdentity", "Dots"]

Scaling = tuple[Codes, Codes]

_TILES_PER_LAUNCH = 4096  # the most tiles of single instructions in one launch
_BLOCK = 256  # the threads in a block of the kernels of CUDA cores
_STACK = 64  # the values that the kernel of trees can hold
_DEFAULT = RoundingAttributes()


class Device:
    """A GPU, used through CuPy, or through the driver if CuPy is not installed.

    Parameters
    ----------
    number : int
        The index of the GPU, from 0.
    cuda : optional
        A replacement of CuPy: an object with the methods of `floatsim.hardware.compile.cupy_runtime.Cuda`.

    Raises
    ------
    UnavailableError
        Without a GPU, or without both CuPy and a driver. It is a RuntimeError whose message names the missing part.

    Examples
    --------
    >>> import floatsim as fs
    >>> if fs.hardware.is_available():
    ...     assert fs.hardware.Device(0).identity.name
    """

    def __init__(self, number: int = 0, cuda: Any = None) -> None:
        self.number = number
        self._cuda = open_runtime(number) if cuda is None else cuda
        self._cubins: dict[Any, build.Cubin] = {}
        self._kernels: dict[Any, Callable[..., None]] = {}

    @property
    def identity(self) -> DeviceIdentity:
        """The name of the GPU, and the versions of its software."""
        identity: DeviceIdentity = self._cuda.identity
        return identity

    def can_run(self, variant: Variant) -> bool:
        """Return whether the GPU has the instruction."""
        return variant.kernel.runs_on(self.identity.capability)

    @functools.cached_property
    def variants(self) -> tuple[Variant, ...]:
        """All matrix instructions of the GPU. Of several ways to issue one, the first is listed."""
        unique: dict[Any, Variant] = {}
        for variant in filter(self.can_run, variants()):
            unique.setdefault((variant.name, variant.a, variant.b, variant.output, variant.scales), variant)
        return tuple(unique.values())

    def _key(self, program: programs.Program) -> tuple[Any, ...]:
        return program.source, program.target_for(self.identity.capability), tuple(program.definitions.items())

    def _cubin(self, program: programs.Program) -> build.Cubin:
        key = self._key(program)
        if key not in self._cubins:
            name, target, _ = key
            self._cubins[key] = build.build(
                name, target, program.definitions, self._cuda.newest, oldest=program.cuda
            )  # fmt: skip
        return self._cubins[key]

    def _kernel(self, program: programs.Program, name: str) -> Callable[..., None]:
        key = (*self._key(program), name)
        if key not in self._kernels:
            self._kernels[key] = self._cuda.kernel(self._cubin(program).code, name)
        return self._kernels[key]

    def _scalar_program(self, row: Scalar) -> programs.Program:
        return programs.of_scalars(programs.scalar_target(self.identity.capability), row.cuda)

    def machine_code(self, operation: Variant | Scalar) -> build.Cubin:
        """Return the machine code that runs a matrix instruction, or an operation of CUDA cores."""
        if isinstance(operation, Scalar):
            return self._cubin(self._scalar_program(operation))
        return self._cubin(programs.of_variant(operation))

    def _check(self, variant: Variant) -> None:
        if not self.can_run(variant):
            major, minor = self.identity.capability
            needs = variant.kernel.needs
            raise ValueError(f"{variant} needs {needs}; this GPU, {self.identity.name}, has {major}.{minor}")

    # -- single instructions -----------------------------------------------------------------------------------

    def tiles(self, variant: Variant, a: Codes, b: Codes, c: Codes, scales: Scaling | None = None) -> Codes:
        """Run one instruction on each of n tiles.

        Parameters
        ----------
        variant : Variant
            The instruction, of shape m, n, k.
        a, b, c : (tiles, m, k), (tiles, k, n), (tiles, m, n)
            Codes of the instruction's formats.
        scales : ((tiles, m, k / every), (tiles, k / every, n)), optional
            The scales of a's rows and b's columns, for an instruction that takes scales.

        Returns
        -------
        (tiles, m, n) codes of the output's format
            D.

        Raises
        ------
        ValueError
            If the GPU does not have the instruction, or a shape is not the instruction's.
        """
        self._check(variant)
        _check_tiles(variant, a, b, c, scales)
        parts = [
            self._launch_tiles(
                variant, a[i:j], b[i:j], c[i:j], None if scales is None else (scales[0][i:j], scales[1][i:j])
            )
            for i, j in ((i, i + _TILES_PER_LAUNCH) for i in range(0, len(a), _TILES_PER_LAUNCH))
        ]
        return np.concatenate([np.empty((0, *c.shape[1:]), variant.output.code_dtype), *parts])

    def _launch_tiles(self, variant: Variant, a: Codes, b: Codes, c: Codes, scales: Scaling | None) -> Codes:
        layout = layouts(variant)
        operands = [self._cuda.send(pack(x, *side, layout.word)) for x, side in ((a, layout.a), (b, layout.b))]
        operands += self._scales(variant, scales)
        start = self._cuda.send(pack(c, *layout.d, layout.word))
        out = self._cuda.empty(start.shape, layout.word)
        self._kernel(programs.of_variant(variant), "single")(len(a), layout.threads, *operands, start, out)
        return unpack(self._cuda.receive(out), *layout.d, variant.output.code_dtype)

    def _scales(self, variant: Variant, scales: Scaling | None) -> list[Any]:
        sides = layouts(variant).scales
        if sides is None or scales is None:
            return [None, None]
        return [self._cuda.send(pack(x, side, _BYTES)) for x, side in zip(scales, sides, strict=True)]

    def dots(self, variant: Variant, a: Codes, b: Codes, c: Codes, scales: Scaling | None = None) -> Codes:
        """Compute independent dot products, each by one instruction. `Dots.dots` describes the parameters.

        The diagonal of each tile holds one dot product for each column. The other results of a tile are not used.
        """
        self._check(variant)
        m, n, k = variant.kernel.shape
        total, side = len(c), min(m, n)
        if a.shape != (total, k) or b.shape != (total, k) or c.shape != (total,):
            raise ValueError(f"{variant} takes a and b (n, {k}) and c (n,), not {a.shape}, {b.shape} and {c.shape}")
        index = np.arange(total)
        tile, column = index // side, index % side
        row = (column + tile * side) % m  # the tiles use all rows of the instruction in turn
        tiles = -(-total // side)
        left, right = np.zeros((tiles, m, k), a.dtype), np.zeros((tiles, k, n), b.dtype)
        start = np.zeros((tiles, m, n), c.dtype)
        left[tile, row], right[tile, :, column], start[tile, row, column] = a, b, c
        both = None
        if scales is not None:
            blocks = scales[0].shape[1]
            both = np.zeros((tiles, m, blocks), np.uint8), np.zeros((tiles, blocks, n), np.uint8)
            both[0][tile, row], both[1][tile, :, column] = scales
        d: Codes = self.tiles(variant, left, right, start, both)[tile, row, column]
        return d

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
        """Multiply matrices by chains of instructions along K, ascending, as `fs.TensorCore` describes.

        Parameters
        ----------
        variant : Variant
            The instruction.
        a, b, c : (M, K), (K, N), (M, N)
            Codes of the instruction's formats. Incomplete tiles are filled with zeros. Without c, the sums start at +0.
        scales : ((M, K / every), (K / every, N)), optional
            The scales of a's rows and b's columns.
        every : int
            If not 0, accumulators restart after this number of instructions, and CUDA cores add them to a total in FP32
            (FP64 for FP64): `fs.Blocked(TensorCore, every * k, fs.Sequential(FP32))`.

        Returns
        -------
        (M, N) codes of the output's format
            D.

        Raises
        ------
        ValueError
            If the GPU does not have the instruction, or if `every` is not 0 and the output is neither FP32 nor FP64.
        """
        self._check(variant)
        if every and variant.output not in (FP32, FP64):
            raise ValueError(
                f"every={every}: totals are FP32 (or FP64), and the output of {variant} is {variant.output}"
            )
        (rows, depth), columns = a.shape, b.shape[1]
        m, n, k = variant.kernel.shape
        layout = layouts(variant)
        shape = -(-rows // m), -(-columns // n), -(-depth // k)
        start = np.zeros((rows, columns), variant.output.code_dtype) if c is None else c
        if not rows * columns * depth:
            return start
        packed = [pack(_tiled(x, *size, by_columns), *side, layout.word) for x, size, by_columns, side in (
            (a, (m, k), False, layout.a), (b, (k, n), True, layout.b), (start, (m, n), False, layout.d))]  # fmt: skip
        left, right, first = map(self._cuda.send, packed)
        tiled_scales: Scaling | None = None
        if scales is not None and variant.scales is not None:
            blocks = k // variant.scales.every
            tiled_scales = _tiled(scales[0], m, blocks, False), _tiled(scales[1], blocks, n, True)
        out = self._cuda.empty(first.shape, layout.word)
        counts = (np.int32(shape[1]), np.int32(shape[2]), np.int32(every))
        kernel = self._kernel(programs.of_variant(variant), "gemm")
        scale_operands = self._scales(variant, tiled_scales)
        kernel(shape[0] * shape[1], layout.threads, left, right, *scale_operands, first, out, *counts)
        d = unpack(self._cuda.receive(out), *layout.d, variant.output.code_dtype)
        whole = d.reshape(shape[0], shape[1], m, n).swapaxes(1, 2).reshape(shape[0] * m, shape[1] * n)
        return np.ascontiguousarray(whole[:rows, :columns])

    # -- throughput --------------------------------------------------------------------------------------------

    def issue(self, variant: Variant, steps: int, repeats: int) -> tuple[int, list[float]]:
        """Issue one instruction back to back on all multiprocessors, on normally distributed operands, and time it.

        Parameters
        ----------
        variant : Variant
            The instruction.
        steps : int
            How often each multiprocessor repeats its chain of instructions.
        repeats : int
            The number of measurements.

        Returns
        -------
        (int, list of float)
            The floating-point operations of one measurement (a product and a sum are two), and the milliseconds of each
            measurement.

        Raises
        ------
        ValueError
            If the GPU does not have the instruction.
        """
        self._check(variant)
        loop, layout, (m, n, k) = programs.issue_of(variant), layouts(variant), variant.kernel.shape
        normal = np.random.default_rng(0).standard_normal
        a = pack(encode(normal((1, m, k)), variant.a), *layout.a, layout.word)
        b = pack(encode(normal((loop.chain, k, n)), variant.b), *layout.b, layout.word)
        ones = None
        if variant.scales is not None:
            one, blocks = encode(1.0, variant.scales.format), k // variant.scales.every
            ones = np.full((1, m, blocks), one), np.full((1, blocks, n), one)
        grid = loop.blocks * self._cuda.multiprocessors
        out = self._cuda.empty((grid * loop.threads,), layout.word)
        kernel = self._kernel(programs.of_variant(variant), "rate")
        zero = np.dtype(layout.word).type(0)
        operands = [self._cuda.send(a), self._cuda.send(b), *self._scales(variant, ones), out, np.int32(steps), zero]
        times: list[float] = self._cuda.timed(lambda: kernel(grid, loop.threads, *operands), repeats)
        tiles = grid * steps * loop.groups * loop.chain * layout.copies
        return 2 * m * (loop.columns or n) * k * tiles, times

    def timed(self, call: Callable[[], Any], repeats: int) -> list[float]:
        """Return the milliseconds for which a call keeps the GPU busy, for each measurement."""
        times: list[float] = self._cuda.timed(call, repeats)
        return times

    # -- CUDA cores --------------------------------------------------------------------------------------------

    def scalar(self, row: Scalar, *operands: Codes) -> Codes:
        """Run an operation on every element: (n,) codes of the result's format, from one to three operands.

        The second operand of a stochastic conversion holds its random bits, `row.random_bits` each, as
        `floatsim.reference.random.draws` returns them.
        """
        program = self._scalar_program(row)
        sent = [self._cuda.send(x.astype(row.source.code_dtype, copy=False)) for x in operands]
        out = self._cuda.empty(operands[0].shape, row.result.code_dtype)
        if operands[0].size:
            arguments = [*sent, *[None] * (3 - len(sent)), out, np.uint64(out.size)]
            self._kernel(program, row.kernel)(-(-out.size // _BLOCK), _BLOCK, *arguments)
        results: Codes = self._cuda.receive(out)
        return results

    def convert(
        self, codes: Codes, source: FloatFormat, result: FloatFormat, attributes: RoundingAttributes = _DEFAULT
    ) -> Codes:
        """Convert codes to another format with the GPU's instruction. Raise ValueError if it has none."""
        row = find_scalar("convert", source, result, attributes, self.identity.capability)
        return self.scalar(row, codes.reshape(-1)).reshape(codes.shape)

    def sum(
        self, format: FloatFormat, a: Codes | None, b: Codes, ranges: NDArray[np.int64], start: Codes | None = None,
        attributes: RoundingAttributes = _DEFAULT, products: RoundingAttributes | None = None, fused: bool = False,
        tree: str | None = None,
    ) -> Codes:  # fmt: skip
        """Sum over ranges of k on the CUDA cores, each range separately.

        Parameters
        ----------
        format : FloatFormat
            FP32, FP64, FP16 or BF16: the format of the operands, of every product and of every sum.
        a, b : (M, K) or None, (K, N)
            Codes. The terms are the products of a's rows and b's columns; without a, the values of b's columns.
        ranges : (ranges, 3)
            The start, stop and step of each range.
        start : (ranges, M, N), optional
            The initial accumulators, not for trees. Default: +0.
        attributes, products : RoundingAttributes
            The rounding of sums, and of products if different. Subnormals are flushed only with `tree=None`.
        fused : bool
            Whether a product and its sum are rounded once.
        tree : str, optional
            The tree of `fs.Pairwise`: "adjacent", "halving" or "numpy". Default: ascending k, as `fs.Sequential`.

        Returns
        -------
        (ranges, M, N) codes
            The sums.

        Raises
        ------
        ValueError
            If the GPU has no instruction for a format or a rounding.
        """
        capability = self.identity.capability
        # A rounding that the kernel does not use is the default one, for which every GPU has an instruction.
        product_rounding = (products or attributes) if a is not None and not fused else _DEFAULT
        add = find_scalar("add", format, format, attributes, capability)
        multiply = find_scalar("multiply", format, format, product_rounding, capability)
        fma = find_scalar("fma", format, format, attributes if fused else _DEFAULT, capability)
        program = programs.of_sums(add, multiply, fma)
        rows, (depth, columns) = 1 if a is None else len(a), b.shape
        out = np.zeros((len(ranges), rows, columns), format.code_dtype) if start is None else start
        if not out.size or not depth:
            return out
        spans, last = ranges, [np.int32(fused)]
        if tree is not None:
            spans, order, merges = _trees(tree, ranges)
            last = [self._cuda.send(order), self._cuda.send(merges)]
        results = self._cuda.send(out)
        sizes = [np.int32(len(ranges)), np.int64(rows), np.int64(depth), np.int64(columns)]
        operands = [None if a is None else self._cuda.send(a), self._cuda.send(b), self._cuda.send(spans), results]
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
            shapes = f"{(len(c), m, blocks)} and {(len(c), blocks, n)}"
            raise ValueError(f"{variant} takes scales {shapes}, not {scales[0].shape} and {scales[1].shape}")


def _tiled(x: Codes, rows: int, columns: int, by_columns: bool) -> Codes:
    """Return a matrix as tiles filled up with zeros, (tiles, rows, columns), in the order of tile rows or columns."""
    down, across = -(-x.shape[0] // rows), -(-x.shape[1] // columns)
    padded = np.zeros((down * rows, across * columns), x.dtype)
    padded[: x.shape[0], : x.shape[1]] = x
    split = padded.reshape(down, rows, across, columns).swapaxes(1, 2)
    return np.ascontiguousarray(split.swapaxes(0, 1) if by_columns else split).reshape(-1, rows, columns)


def _trees(name: str, ranges: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int8]]:
    """Return the ranges with the offsets of their tree programs, and the programs: see `accumulation.trees`."""
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
