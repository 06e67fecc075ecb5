"""The orders in which PyTorch's CUDA operators add: rules by the shape, the dtype, the alignment and the device.

An order follows from the numbers of terms and results alone, so no kernel name is needed. The rules were recorded with
torch 2.11.0 on one H200; `REDUCTIONS` says for which shapes all bits were compared.

PyTorch (BSD licence) publishes the launch rules: aten/src/ATen/native/cuda/Reduce.cuh, SoftMax.cu,
PersistentSoftmax.cuh and layer_norm_kernel.cu. What the source leaves open, such as the order of a shuffle, the
recorded bits decide.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from floatsim.accumulation.base import Accumulation
from floatsim.accumulation.composites import Blocked
from floatsim.accumulation.evidence import known_version
from floatsim.accumulation.leaves import Pairwise, Sequential
from floatsim.accumulation.library_rules import NotDescribedError, Region, Regions
from floatsim.accumulation.sklansky import Sklansky
from floatsim.accumulation.threads import Threads
from floatsim.accumulation.welford import Welford
from floatsim.formats import FP32, as_format

__all__ = ["MULTIPROCESSORS", "REDUCTIONS", "Reduction", "reduction_sum", "reduction_table"]

MULTIPROCESSORS = {"h200": 132}
"""The multiprocessors of the devices: `torch.sum` of long rows has as many parts as keep them busy."""

_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
_WARP = 32
_HALVING = Pairwise(FP32, "halving")
_IN_ORDER = Sequential(FP32)


@dataclass(frozen=True)
class _Call:
    """A reduction of `results` rows or columns of `terms` terms; `along_rows`: the terms are neighbours in memory."""

    terms: int
    results: int
    dtype: str
    result: str
    along_rows: bool
    multiprocessors: int

    @property
    def vector(self) -> int:
        """The elements of 16 bytes."""
        return 16 // _BYTES[self.dtype]

    def shifts(self, width: int) -> list[int]:
        """Return the position in an aligned vector of the first elements of the first rows; then they repeat."""
        period = width // math.gcd(width, self.terms)
        return [row * self.terms % width for row in range(min(period, self.results))]


Orders = list[Accumulation]
"""The descriptions of the rows 0, 1, ... n - 1. Row i has the description i % n."""


@dataclass(frozen=True)
class Reduction:
    """A PyTorch operator's sum on a GPU.

    `compared` are the shapes whose bits were compared with the device; `most` is the largest number of terms among them
    along rows and along columns, which strict calls do not exceed (0: not recorded); `most_bfloat16` is that of rows in
    bfloat16 if it is another one.
    """

    function: str
    what: str
    compared: str
    most: tuple[int, int]
    rule: Callable[[_Call], Orders]
    most_bfloat16: int | None = None


# -- orders ------------------------------------------------------------------------------------------------------------


def _below(n: int) -> int:
    """Return the largest power of two that is at most n, and 1 for 0."""
    return 1 << (n.bit_length() - 1) if n else 1


def _above(n: int) -> int:
    """Return the smallest power of two that is at least n."""
    return 1 << (n - 1).bit_length() if n > 1 else 1


def _levels(*levels: tuple[Accumulation, int]) -> Accumulation:
    """Return the sum of numbers, level by level: each level adds groups of a number of neighbours."""
    (inner, every), *rest = [level for level in levels if level[1] > 1] or [levels[0]]
    return Blocked(inner, every, _levels(*rest)) if rest else inner


def _warps(threads: int) -> Accumulation:
    """Return the sum of the threads of a block: in each warp by halves, then the warps by halves."""
    return _levels((_HALVING, min(threads, _WARP)), (_HALVING, threads // _WARP))


@dataclass(frozen=True)
class _Block:
    """The threads of Reduce.cuh that share a sum: x, y, and blocks; and the vectors that a thread loads."""

    x: int
    y: int
    blocks: int
    width: int
    threads_of_block: int

    def order(self, inner: Accumulation, accumulators: int, shift: int) -> Accumulation:
        joined: list[tuple[Accumulation, int]] = [(_IN_ORDER, accumulators), (_HALVING, self.x), (_HALVING, self.y)]
        if self.blocks > 1:
            last = _levels((_HALVING, self.x), (_HALVING, self.threads_of_block // self.x))
            joined.append((Threads(_IN_ORDER, self.threads_of_block, last), self.blocks))
        threads = self.x * self.y * self.blocks
        return Threads(inner, threads, _levels(*joined), self.width, accumulators, shift, "threads")


def _reduce(call: _Call, width: int, per_thread: int) -> tuple[_Block, int]:
    """Return the threads of Reduce.cuh for a call, and the accumulators of a thread.

    `width` is the vector of long contiguous rows, and `per_thread` the accumulators of all others.
    """
    vectors = call.along_rows and call.terms >= 128
    outputs = 1
    if call.along_rows:
        inside, beside = call.terms // width if vectors else call.terms, call.results
    else:
        outputs = math.gcd(call.results, 4)
        inside, beside = call.results // outputs, call.terms
    most = 512 // outputs
    inside, beside = (_below(n) if n < most else most for n in (inside, beside))
    x = min(inside, _WARP)
    y = min(beside, most // x)
    x = min(inside, most // y)
    step, results_of_block = (x, 1) if call.along_rows else (1, x * outputs)
    each = -(-call.terms // step)
    shared = each >= min(16 * y, 256)
    if shared:
        step *= y
    else:
        results_of_block *= y
    each = -(-call.terms // step)
    grid, target = -(-call.results // results_of_block), call.multiprocessors * (2048 // (x * y))
    blocks = 1
    if shared and each >= 256 and grid <= target:
        blocks = max(min(-(-target // grid), -(-each // 16)), -(-each // 256))
    in_x, in_y = x if call.along_rows else 1, y if shared else 1
    block = _Block(in_x, in_y, blocks, width if vectors else 1, in_x * y)
    return block, width if vectors else per_thread


def _reduced(call: _Call, inner: Accumulation, width: int, per_thread: int) -> Orders:
    block, accumulators = _reduce(call, width, per_thread)
    return [block.order(inner, accumulators, shift) for shift in call.shifts(block.width)]


def _sum(call: _Call) -> Orders:
    return _reduced(call, _IN_ORDER, min(call.vector, 8), 4)


def _product(call: _Call) -> Orders:
    return _reduced(call, _IN_ORDER, 4, 4)


def _cumsum(call: _Call) -> Orders:
    """The network of a row has as many threads as the ratio of columns and rows gives, of 512 in all."""
    if call.results == 1:
        raise NotDescribedError("torch.cumsum of a single row, which another library (CUB) computes,")
    columns, rows = ((n - 1).bit_length() for n in (call.terms, call.results))
    surplus = 9 + columns - rows
    return [Sklansky(as_format(call.dtype), 1 << (min(max(surplus // 2, 4), 9) if surplus >= 0 else 9))]


def _norm(call: _Call) -> Orders:
    return _reduced(call, Sequential(FP32, fused=True), 4, 4)


def _variance(call: _Call) -> Orders:
    return [Welford(order) for order in _reduced(call, _IN_ORDER, 2, 2)]


_REGISTERS = 10
"""Terms of a thread from which softmax does not keep them in registers."""
_SHARED_BYTES = 48 * 1024
"""The shared memory of a block, in which softmax keeps an aligned row if it fits."""


def _in_warp(call: _Call) -> Orders:
    lanes = min(_above(call.terms), _WARP)
    return [Threads(_IN_ORDER, lanes, _HALVING if lanes > 1 else _IN_ORDER)]


def _by_vectors(call: _Call, threads: int, unaligned: Accumulation) -> Orders:
    """A block of threads that load vectors of 16 bytes: from shared memory if all rows are aligned and fit."""
    vector, aligned = call.vector, _warps(threads)
    used = threads // _WARP * 4
    if call.terms % vector == 0 and call.terms < (_SHARED_BYTES - used) // _BYTES[call.dtype]:
        return [Threads(_IN_ORDER, threads, aligned, vector)]
    return [Threads(_IN_ORDER, threads, unaligned, vector, 1, shift, "rounds") for shift in call.shifts(vector)]


def _softmax(call: _Call) -> Orders:
    if call.dtype == "float16" and call.result == "float32":
        return _in_warp(call) if call.terms <= 1024 else _by_vectors(call, 1024, _warps(1024))
    if call.terms <= 2048:
        return _in_warp(call)
    if -(-call.terms // 1024) < _REGISTERS:
        return [Threads(_IN_ORDER, 1024, _warps(1024))]
    return _by_vectors(call, 1024, _warps(1024))


def _softmax_backward(call: _Call) -> Orders:
    if call.terms <= 1024:
        return _in_warp(call)
    threads = max(_above(min(call.terms // call.vector, 1024) // 2), _WARP)
    return _by_vectors(call, threads, _levels((_IN_ORDER, _WARP), (_IN_ORDER, threads // _WARP)))


_FOUR_WARPS = _warps(128)


def _layer_norm(call: _Call) -> Orders:
    if call.terms % 4 == 0:
        return [Welford(Threads(_IN_ORDER, 128, _FOUR_WARPS, 4), "reciprocal")]
    return [Welford(Threads(_IN_ORDER, 512, _levels((_HALVING, _WARP), (_HALVING, 16))))]


def _rms_norm(call: _Call) -> Orders:
    if call.terms % 4 == 0:
        return [Threads(Sequential(FP32, fused=True), 128, _FOUR_WARPS, 4)]
    return _layer_norm(call)


def _norm_backward(call: _Call) -> Orders:
    """Along rows the sums of dx; along columns those of the gradients of the weight and the bias."""
    if call.along_rows:
        return [Threads(_IN_ORDER, 128, _FOUR_WARPS, 4)]
    if call.terms < 64:
        return [_IN_ORDER]
    if call.terms > 65536 and call.results < 16 * call.multiprocessors:
        raise NotDescribedError(f"more than 65,536 rows of {call.results} columns, which two kernels may add,")
    threads = 8 if call.terms < 128 else 16 if call.terms < 256 else 32
    return [Threads(_IN_ORDER, threads, _HALVING, 8)]


_ROWS = "4 rows of 5 to 50,257 terms"
_NOT_WIDE = f"{_ROWS}, in bfloat16 to 8192"
REDUCTIONS = (
    Reduction(
        "torch.sum", "the sum", f"{_ROWS}, all elements, columns of 1 to 8192 terms; float32 and 16 bits, 16 bits to "
        "float32", (1_000_003, 8192), _sum,
    ),
    Reduction("torch.mean", "the sum, which is multiplied by float32(1 / n)", _ROWS, (50_257, 0), _sum),
    Reduction("torch.prod", "the product", _NOT_WIDE, (50_257, 0), _product, 8192),
    Reduction(
        "torch.linalg.vector_norm", "the sum of the squares, each added by a fused multiply-add", _ROWS, (50_257, 0),
        _norm,
    ),
    Reduction("torch.var", "the mean and the sum of squared differences", _NOT_WIDE, (50_257, 0), _variance, 8192),
    Reduction("torch.std", "the mean and the sum of squared differences", _NOT_WIDE, (50_257, 0), _variance, 8192),
    Reduction(
        "torch.cumsum", "the running sums, in the format of the operand", "4 rows of 5 to 8192 terms, 4096 rows of 256",
        (8192, 0), _cumsum,
    ),
    Reduction(
        "torch.logsumexp", "the sum of the exponentials, in the format of the operand", _NOT_WIDE, (50_257, 0), _sum,
        8192,
    ),
    Reduction("torch.softmax", "the sum of the exponentials", _NOT_WIDE, (50_257, 0), _softmax, 8192),
    Reduction(
        "torch.log_softmax", "the sum of the exponentials", f"{_NOT_WIDE}; to 8192 directly", (50_257, 0), _softmax,
        8192,
    ),
    Reduction(
        "torch._softmax_backward_data", "the sum of the rounded products", "4 rows of 5 to 4096 terms", (4096, 0),
        _softmax_backward,
    ),
    Reduction(
        "torch._log_softmax_backward_data", "the sum of the gradient", "4 rows of 5 to 4096 terms", (4096, 0),
        _softmax_backward,
    ),
    Reduction(
        "torch.native_layer_norm", "the mean and the sum of squared differences", _NOT_WIDE, (50_257, 0), _layer_norm,
        8192,
    ),
    Reduction(
        "torch.rms_norm", "the sum of the squares; with n % 4 > 0 the mean and the sum of squared differences",
        _NOT_WIDE, (50_257, 0), _rms_norm, 8192,
    ),
    Reduction(
        "torch.native_layer_norm_backward", "along rows both sums of dx; along columns dw and db",
        "4 rows of 5 to 4096 terms; columns of 1 to 8192", (4096, 8192), _norm_backward,
    ),
)  # fmt: skip
"""The sums of PyTorch's CUDA operators, and what was compared. `dtype` is that of the operand."""

_BY_NAME = {row.function: row for row in REDUCTIONS}


def reduction_sum(
    function: str, dtype: str, shape: Sequence[int], axis: int, device: str, version: str | None, result: str | None,
    strict: bool,
) -> Regions:  # fmt: skip
    """Return the regions of a reduction of an array (rows, columns) or (n,): see `library_sum`."""
    row = _BY_NAME[function]
    name = known_version(device, version)
    if dtype not in _BYTES:
        raise NotDescribedError(f"dtype={dtype!r} of {function} on {name} is not described; described: "
                                f"{', '.join(_BYTES)}")  # fmt: skip
    out = dtype if result is None else result
    if out not in (dtype, "float32"):
        raise NotDescribedError(f"result={result!r} of {function} of {dtype} is not described; described: {dtype}, "
                                "float32")  # fmt: skip
    sizes = tuple(shape)
    if len(sizes) not in (1, 2) or axis not in range(-len(sizes), len(sizes)):
        raise NotDescribedError(
            f"{function}, shape {sizes} along axis {axis} is not described; described are (n,) and (rows, columns) "
            "along axis -1 or 0"
        )
    rows, columns = sizes if len(sizes) == 2 else (1, sizes[0])
    along_rows = len(sizes) == 1 or axis in (-1, 1) or columns == 1
    terms, results = (columns, rows) if len(sizes) == 1 or axis in (-1, 1) else (rows, columns)
    most = row.most[not along_rows]
    if along_rows and dtype == "bfloat16" and row.most_bfloat16 is not None:
        most = row.most_bfloat16
    if not most or (strict and terms > most):
        raise NotDescribedError(
            f"{function} of {terms} terms along {'rows' if along_rows else 'columns'} was not compared; compared: "
            f"{row.compared}"
        )
    call = _Call(terms, results, dtype, out, along_rows, MULTIPROCESSORS[name])
    orders = row.rule(call) if terms and results else [_IN_ORDER]
    last = as_format(out)
    if len(sizes) == 2 and axis not in (-1, 1):
        return (Region(slice(0, 1), slice(0, results), orders[0], last),)
    every = len(orders)
    if every == 1:
        return (Region(slice(0, results), slice(0, 1), orders[0], last),)
    return tuple(
        Region(slice(first, results, every), slice(0, 1), order, last) for first, order in enumerate(orders)
    )  # fmt: skip


def reduction_table() -> str:
    """Return the rows as a table in Markdown.

    >>> print(reduction_table().splitlines()[0])
    | function | what is added | compared |
    """
    lines = ["| function | what is added | compared |", "| --- " * 3 + "|"]
    return "\n".join([*lines, *(f"| `{row.function}` | {row.what} | {row.compared} |" for row in REDUCTIONS)])
