"""Matrix products. The caller chooses the format, the rounding and the order of every sum."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from floatsim._types import Codes, Operand
from floatsim.accumulation import (
    AccumulationLike,
    Epilogue,
    as_accumulation,
    leaves,
    settled,
)
from floatsim.arrays.array.advisories import warn_of_fp64_instruction
from floatsim.arrays.array.conversion import out_codes, read_floats
from floatsim.arrays.array.float_array import FloatArray, implements, wrap
from floatsim.arrays.array.interop import stays_on_device
from floatsim.arrays.array.operands import deliver, plan_operation
from floatsim.arrays.array.types import FloatResult, Floats, Out, Values
from floatsim.arrays.call import backends
from floatsim.arrays.call.options import BackendName, RoundingOptions
from floatsim.arrays.call.random_stream import SeedLike
from floatsim.arrays.events import record as recording
from floatsim.arrays.sums.accumulation_call import AccumulationCall, convert_result, resolve_call
from floatsim.arrays.sums.block_scaling import block_scales
from floatsim.emulator.dispatch.tensorcore_operands import BlockScales
from floatsim.formats import FP16, FP32, FP64, FloatFormat, FormatLike
from floatsim.formats._validation import as_index
from floatsim.formats.call import CallOptions
from floatsim.formats.rounding import OverflowLike, Rounding, RoundingAttributes, RoundingLike, TininessLike
from floatsim.reference.random import Site, split_seed

if TYPE_CHECKING:
    from floatsim.emulator.planning import BasePlan

__all__ = ["Part", "dot", "explain_plan", "matmul"]


# -- operands ----------------------------------------------------------------------------------------------------------


_NATIVE = {fmt.dtype: fmt for fmt in (FP16, FP32, FP64) if fmt.dtype is not None}
"""The formats of dtypes in this machine's byte order: NumPy's own, and those that have been read before."""


def _matrix_operand(x: Any, argument: str) -> tuple[Codes, FloatFormat, bool]:
    if type(x) is FloatArray:
        codes, fmt, float_array = x.codes, x.format, True
    elif type(x) is np.ndarray and (native := _NATIVE.get(x.dtype)) is not None:
        codes, fmt, float_array = x.view(native.code_dtype), native, False
    else:
        codes, fmt, float_array = read_floats(x, argument)
        if type(x) is np.ndarray and x.dtype == fmt.dtype:
            _NATIVE[x.dtype] = fmt
    if fmt.is_scale:
        raise TypeError(f"{argument} is {fmt.name}, a scale format, which has no arithmetic; fs.convert it first")
    if codes.ndim == 0:
        raise ValueError(f"{argument} must have at least one dimension; for scalars use fs.multiply")
    return codes, fmt, float_array


class _Batch(NamedTuple):
    """Operands a (stack, M, K) and b (stack, K, N), the pair of matrices of each result, and the results' shape."""

    a: Codes
    b: Codes
    pairs: NDArray[np.int64]
    shape: tuple[int, ...]

    @property
    def inner(self) -> tuple[int, int, int]:
        """The shape of the results as a stack of matrices."""
        return len(self.pairs), self.a.shape[1], self.b.shape[2]


_ONE_PAIR = np.zeros((1, 2), np.int64)


def _batches(a: Codes, b: Codes) -> _Batch:
    """Pair the matrices by the rules of np.matmul."""
    if a.ndim == 2 and b.ndim == 2 and a.shape[1] == b.shape[0]:
        return _Batch(a[np.newaxis], b[np.newaxis], _ONE_PAIR, (a.shape[0], b.shape[1]))
    x = a[np.newaxis, :] if a.ndim == 1 else a
    y = b[:, np.newaxis] if b.ndim == 1 else b
    if x.shape[-1] != y.shape[-2]:
        raise ValueError(f"a {a.shape} and b {b.shape} do not fit: K is {x.shape[-1]} in a and {y.shape[-2]} in b")
    batch, pairs = (), _ONE_PAIR
    if x.ndim > 2 or y.ndim > 2:
        try:
            batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
        except ValueError:
            raise ValueError(f"the batch dimensions of a {a.shape} and b {b.shape} do not broadcast") from None
        numbers = [np.arange(np.prod(z.shape[:-2], dtype=np.int64)).reshape(z.shape[:-2]) for z in (x, y)]
        pairs = np.stack([np.broadcast_to(n, batch).reshape(-1) for n in numbers], axis=1)
    shape = batch + x.shape[-2:-1] * (a.ndim > 1) + y.shape[-1:] * (b.ndim > 1)
    left, right = (z if z.ndim == 3 else z.reshape(math.prod(z.shape[:-2]), *z.shape[-2:]) for z in (x, y))
    return _Batch(left, right, pairs, shape)


class _Scale(NamedTuple):
    """The factor alpha or beta: its value, and its operand."""

    value: float
    operand: Operand


def _scale(x: Any, argument: str) -> _Scale:
    codes, fmt, _ = read_floats(x, argument)
    if codes.size != 1 or fmt.is_scale:
        raise ValueError(f"{argument} must be one number, not {fmt.name} of shape {codes.shape}")
    operand = codes.reshape(()), fmt
    return _Scale(float(backends.emulator().decode(*operand)), operand)


_UNSCALED: Any = 1
_NO_SCALES = _scale(_UNSCALED, "alpha"), _scale(_UNSCALED, "beta")


def _addend(c: Any, shape: tuple[int, ...]) -> tuple[Operand | None, bool]:
    if c is None:
        return None, False
    codes, fmt, float_array = read_floats(c, "c")
    if fmt.is_scale:
        raise TypeError(f"c is {fmt.name}, a scale format, which has no arithmetic; fs.convert it first")
    try:
        return (np.broadcast_to(codes, shape), fmt), float_array
    except ValueError:
        raise ValueError(f"c {codes.shape} does not fit the result {shape}") from None


# -- parts of products, alpha and beta ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """The place of a matrix product in a larger one: its stochastic roundings draw as in the larger product.

    Element (n, i, j) of the part has the flat index ((batch + n) * rows + row + i) * columns + column + j.

    Parameters
    ----------
    first : (batch, row, column)
        The place of the part's first element.
    whole : (rows, columns)
        The shape of the larger product's matrices.

    Raises
    ------
    TypeError, ValueError
        For other lengths, and for numbers that are no integers from 0 to 2**63 - 1.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> a, b, options = np.eye(4, 8, dtype="f4") / 3, np.ones((8, 6), "f4"), {"rounding": "stochastic", "seed": 1}
    >>> whole = fs.matmul(a, b, accumulate="fp16", **options)
    >>> part = fs.matmul(a[2:], b[:, 3:], accumulate="fp16", part=fs.Part((0, 2, 3), (4, 6)), **options)
    >>> np.array_equal(whole[2:, 3:], part)
    True
    """

    first: tuple[int, int, int]
    whole: tuple[int, int]

    def __post_init__(self) -> None:
        for name, words, parts in (("first", "(batch, row, column)", 3), ("whole", "(rows, columns)", 2)):
            given = getattr(self, name)
            if not isinstance(given, Sequence) or len(given) != parts:
                raise ValueError(f"{name} must be {words}, not {given!r}")
            numbers = tuple(as_index(n, f"{name}[{i}]", 0, _MOST) for i, n in enumerate(given))
            object.__setattr__(self, name, numbers)


_MOST = (1 << 63) - 1


class _Place(NamedTuple):
    """The number of the first element in a whole product, and the rows and columns of the whole."""

    first: int
    whole: tuple[int, int]

    def rows(self, shape: tuple[int, int, int]) -> list[tuple[tuple[int, int], int]]:
        """Return ((matrix, row), number of its first element) of each row of the results."""
        rows, columns = self.whole
        return [((n, i), self.first + (n * rows + i) * columns) for n, i in np.ndindex(*shape[:2])]


def _place(part: Any, results: tuple[int, int, int]) -> _Place | None:
    """Return the place that `part=` names, or None without it."""
    if part is None:
        return None
    if not isinstance(part, Part):
        raise TypeError(f"part must be fs.Part((batch, row, column), (rows, columns)), not {part!r}")
    (batch, row, column), (rows, columns) = part.first, part.whole
    if row + results[1] > rows or column + results[2] > columns:
        raise ValueError(
            f"the result {results[1:]} at row {row} and column {column} is no part of a whole {(rows, columns)}"
        )
    if (batch + results[0]) * rows * columns > _MOST:
        raise ValueError("the whole product has more than 2**63 - 1 elements up to this part")
    return _Place((batch * rows + row) * columns + column, (rows, columns))


def _scaled(
    operation: str, acc: Codes, alpha: Operand, beta: Operand, c: Operand | None, call: AccumulationCall
) -> Codes:
    """Return t = round(alpha * acc), then round(t + round(beta * c)), in the outermost leaf's format and attributes."""
    fmt, ends = call.accumulation.result_format, leaves(call.accumulation)  # a matrix unit has none, and no attributes
    attributes = settled(ends[-1], call.options.attributes)[0] if ends else RoundingAttributes()

    def rounded(name: str, x: Operand, y: Operand, number: int) -> Operand:
        options = replace(call.options, attributes=attributes, seed=split_seed(call.options.seed, number))
        codes, events = call.backend.elementwise(name, [x, y], fmt, options)
        recording.note(f"{operation}.scale", events, [x, y], (codes, fmt))
        return codes, fmt

    result = rounded("multiply", alpha, (acc, fmt), Site.ALPHA)
    if c is not None:
        result = rounded("add", result, rounded("multiply", beta, c, Site.BETA), Site.SCALED_SUM)
    return result[0]


# -- epilogues ---------------------------------------------------------------------------------------------------------

_EXACTLY = CallOptions(RoundingAttributes())
"""The options of an epilogue's roundings. Those of the call have no effect."""


def _epilogue(
    operation: str, acc: Codes, alpha: Operand, beta: Operand, c: Operand | None, call: AccumulationCall
) -> Codes:
    """Return alpha * acc + beta * c as the `Epilogue` of the call describes it."""
    epilogue = call.accumulation
    assert isinstance(epilogue, Epilogue)
    fmt = epilogue.format

    def rounded(name: str, *operands: Operand, to: FloatFormat = fmt) -> Operand:
        if name == "convert":
            codes, events = call.backend.convert(*operands[0], to, _EXACTLY)
        else:
            codes, events = call.backend.elementwise(name, list(operands), to, _EXACTLY)
        recording.note(f"{operation}.epilogue", events, list(operands), (codes, to))
        return codes, to

    def factor(x: Operand) -> tuple[Operand, bool]:
        """Return alpha or beta in the format of the epilogue, and whether it is 1."""
        codes, _ = call.backend.convert(*x, fmt, _EXACTLY)
        return (codes, fmt), float(backends.emulator().decode(codes, fmt)) == 1

    result = acc, epilogue.inner.result_format
    if epilogue.through is not None:
        result = rounded("convert", result, to=epilogue.through)
    (alpha, no_alpha), (beta, no_beta) = factor(alpha), factor(beta)
    if c is None:
        result = rounded("convert", result) if no_alpha else rounded("multiply", alpha, result)
    elif no_alpha and no_beta:
        result = rounded("add", result, c)
    elif epilogue.fused == "sum":
        result = rounded("fma", alpha, result, rounded("multiply", beta, c))
    else:
        result = rounded("fma", beta, c, rounded("multiply", alpha, result))
    if epilogue.activation == "relu":
        zero = np.zeros((), fmt.code_dtype), fmt
        result = call.backend.elementwise("maximum", [result, zero], fmt, _EXACTLY)[0], fmt
    return result[0]


# -- the public functions ----------------------------------------------------------------------------------------------


@stays_on_device
def matmul(
    a: Floats, b: Floats, c: Floats | None = None, *, alpha: Values = 1, beta: Values = 1,
    accumulate: AccumulationLike | None = None, scale_a: Floats | None = None, scale_b: Floats | None = None,
    format: FormatLike | None = None, rounding: RoundingLike | None = None,
    overflow: OverflowLike | None = None, result_rounding: RoundingLike | None = None, daz: bool | None = None,
    ftz: bool | None = None, tininess: TininessLike | None = None, seed: SeedLike | None = None,
    random_bits: int | None = None, part: Part | None = None, out: Out = None, backend: BackendName | None = None,
) -> FloatResult:  # fmt: skip
    """Return the matrix product alpha * (a @ b) + beta * c, with the formats, roundings and order of a description.

    Parameters
    ----------
    a : array_like of floats, (..., M, K) or (K,)
    b : array_like of floats, (..., K, N) or (K,)
        FloatArrays or arrays whose dtype is a format. Their formats may differ. Batches broadcast as in np.matmul.
    c : array_like of floats, broadcastable to the result, optional
        An addend. With alpha = beta = 1 it enters the sum. It seeds the accumulator of Sequential, Kahan, Neumaier and
        TensorCore (rounded to their format) and the outer sum of Blocked and SplitK. Pairwise and Strided add it last.
        It is one more term of Exact. An Epilogue defines c, alpha and beta in its own way.
    alpha, beta : number
        Factors. Unless both are 1, t = round(alpha * acc) and the result is round(t + round(beta * c)), in the format
        of the outermost accumulator. With beta = 0, c is not read.
    accumulate : description, format or text, optional
        How the sums are carried out, for example `fs.Pairwise("fp16")`, "pairwise(fp16)" or "fp16"
        (`floatsim.accumulation`). A format means its Sequential. Default: Sequential(FP64) if an input is FP64, else
        Sequential(FP32). A TensorCore uses the instruction for the formats of the inputs. A float64 array is FP64, even
        if `fs.quantize` rounded its values: for FP8 pass `fs.array(a, "e4m3")`.
    scale_a : FloatArray, (..., M, K / every), optional
    scale_b : FloatArray, (..., K / every, N), optional
        The scales of the operands' blocks along K, for a TensorCore with block-scaled instructions. The last block may
        be short. The scales are E8M0 for every 32 elements (mxf8f6f4, mxf4), or E4M3 or E8M0 for every 16 elements of
        FP4 (nvf4). They have the batches of the operands. A NaN scale makes its sums NaN. The sign of an E4M3 scale is
        ignored, as in the instruction.
    format : format, optional
        The result's; one more rounding if it is not the accumulator's, which is the default.
    rounding : Rounding or str, optional
        Of each rounding inside whose description names none: "ties_to_even" ("RNE"), "ties_to_away" ("RNA"),
        "toward_zero" ("RTZ"), "toward_positive" ("RTP"), "toward_negative" ("RTN"), "to_odd" ("RTO"), "stochastic"
        ("SR"). Default of this keyword and of the next five: the context's (`fs.context`).
    daz, ftz : bool, optional
        Read subnormal operands as zeros; return zero for tiny results.
    tininess : Tininess or str, optional
        When a result counts as tiny: "after" or "before" rounding.
    seed : int, generator or RandomStream, optional
        The seed of stochastic rounding. An integer repeats the same draws at each call, a `fs.RandomStream` draws new
        ones.
    random_bits : int, optional
        The random bits of a stochastic rounding, 1 to 64.
    part : fs.Part, optional
        For a part of a larger product, so that its stochastic roundings draw as in the larger one: the place of the
        part's first element, and the shape of the larger product's matrices. The part has all of K.
    overflow, result_rounding : optional
        Of the final conversion to the result's format alone: "infinity", "saturate_finite" (which also turns the
        accumulator's infinities into max) or "saturate_propagate"; a rounding mode, by default `rounding`. Inside,
        accumulators saturate only if their description has `overflow=`.
    out : FloatArray or ndarray, optional
        The array that receives the result. It has the format and the shape of the result.
    backend : str, optional
        "emulator", "hardware" or "native-cpu". Default: the context's.

    Returns
    -------
    FloatArray or ndarray, (..., M, N)
        A FloatArray if an input is one, or if the format of the result has no dtype. For K = 0, c or +0.

    Raises
    ------
    TypeError
        For inputs without a float format, and for an `accumulate` that is no description.
    ValueError
        For shapes that do not fit, unknown names, beta without c, and stochastic rounding without a seed. Also for
        operands or scales that a TensorCore does not take, and for scales with another description.

    Warns
    -----
    FloatsimWarning
        If float64 arrays select the FP64 instruction of a TensorCore without `instruction`, and all their values are
        numbers of FP8, FP16 or BF16, for which it has one. A FloatArray names its format, and gives no warning.

    Notes
    -----
    A TensorCore rounds as the hardware does. Rounding options have no effect inside it. `format`, `overflow` and
    `result_rounding` apply to its result.

    Under `fs.record`, "matmul.product" and "matmul.sum" count the roundings of products and of sums. Exact products
    have no "matmul.product". `log.first` has, for every element of the result, the first k of each event.

    Stochastic rounding draws for the flat index of the result's element (batch, i, j), or for the one that `part`
    defines. The page "Sums" of the documentation lists the sites. The number of threads, the tiles and the
    memory layout change no bit.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> ones = np.ones(4096, np.float16)
    >>> [float(fs.matmul(ones, ones, accumulate=order)) for order in (fs.Sequential(fs.FP16), "fp32")]
    [2048.0, 4096.0]
    >>> float(fs.matmul(ones, ones, accumulate="blocked(fp16, 128, fp32)", format="fp16"))
    4096.0

    Block-scaled FP4, 16 elements a scale:

    >>> a, b = fs.array(np.full((1, 32), 3.0), "e2m1"), fs.array(np.ones((32, 1)), "e2m1")
    >>> scale_a, scale_b = fs.array([[1.0, 0.25]], "e4m3"), fs.array([[1.0], [1.0]], "e4m3")
    >>> fs.matmul(a, b, accumulate="blackwell", scale_a=scale_a, scale_b=scale_b).item()  # 16 * 3 + 16 * 3 / 4
    60.0
    """
    (x, x_format, x_float), (y, y_format, y_float) = _matrix_operand(a, "a"), _matrix_operand(b, "b")
    keywords: RoundingOptions = {"rounding": rounding, "daz": daz, "ftz": ftz, "tininess": tininess, "seed": seed,
                     "random_bits": random_bits, "overflow": overflow}  # fmt: skip
    batch = _batches(x, y)
    block = None
    if scale_a is not None or scale_b is not None:
        accumulation = None if accumulate is None else as_accumulation(accumulate)
        block = block_scales(scale_a, scale_b, (x, x_format), (y, y_format), accumulation)
    call = resolve_call(
        accumulate, x_format, y_format, format, result_rounding, backend, keywords, None if block is None else block.of,
        matrices=True,
    )  # fmt: skip
    scales, addend, c_float = _NO_SCALES, None, False
    if c is not None or alpha is not _UNSCALED or beta is not _UNSCALED:  # other numbers that equal 1 are also read
        scales = _scale(alpha, "alpha"), _scale(beta, "beta")
        if c is None and scales[1].value != 1:
            raise ValueError(f"beta={beta!r} scales c, and there is no c")
        addend, c_float = _addend(None if scales[1].value == 0 else c, batch.shape)
    if accumulate is not None and x_format == y_format == FP64 and not (x_float or y_float):  # those name FP64
        warn_of_fp64_instruction(x, y, accumulate)
    if out is not None:
        out_codes(out, call.format, batch.shape)
    place = _place(part, batch.inner)
    multiply = recording.one_recorded_call(_multiply) if recording.ACTIVE_LOGS.get() else _multiply
    codes = multiply(batch, x_format, y_format, addend, scales, block, call, place)
    float_array = x_float or y_float or c_float
    return wrap(codes, call.format, float_array) if out is None else deliver(codes, call.format, float_array, out)


def _multiply(
    batch: _Batch, a: FloatFormat, b: FloatFormat, c: Operand | None, scales: tuple[_Scale, _Scale],
    block: BlockScales | None, call: AccumulationCall, place: _Place | None,
) -> Codes:  # fmt: skip
    """Return codes in the format of the result and the shape of the batch."""
    alpha, beta = scales
    epilogue = isinstance(call.accumulation, Epilogue)
    accumulation = call.accumulation.inner if isinstance(call.accumulation, Epilogue) else call.accumulation
    plain = not epilogue and alpha.value == 1 and (c is None or beta.value == 1)
    inner = batch.inner
    addend = None if c is None else (c[0].reshape(inner), c[1])
    events = recording.wanted() if recording.ACTIVE_LOGS.get() else _NO_EVENTS
    numbered: dict[str, Any] = {} if place is None or not call.draws else {"base": place.first, "whole": place.whole}
    sums = call.backend.accumulate(
        (batch.a, a), (batch.b, b), addend if plain else None, batch.pairs, accumulation, call.options, events,
        "matmul", scales=block, **numbered,
    )  # fmt: skip
    if events:
        terms = functools.partial(_factors, batch, a, b)
        recording.note_sums("matmul", sums, batch.shape, accumulation.result_format, terms)
    if plain and not call.converts:
        codes: Codes = sums.codes.reshape(batch.shape)
        return codes

    def finished(codes: Codes, c: Operand | None, call: AccumulationCall) -> Codes:
        if not plain:
            last = _epilogue if epilogue else _scaled
            codes = last("matmul", codes, alpha.operand, beta.operand, c, call)
        return convert_result("matmul", codes, call) if call.converts else codes

    if place is None or not (call.draws or call.result.attributes.rounding is Rounding.STOCHASTIC):
        return finished(sums.codes.reshape(batch.shape), c, call)
    codes = np.empty(inner, call.format.code_dtype)
    for at, first in place.rows(inner):  # the elements of a row have consecutive numbers
        options, result = replace(call.options, offset=first), replace(call.result, offset=first)
        own = None if addend is None else (addend[0][at], addend[1])
        codes[at] = finished(sums.codes[at], own, replace(call, options=options, result=result))
    return codes.reshape(batch.shape)


_NO_EVENTS: frozenset[str] = frozenset()


def _factors(batch: _Batch, a: FloatFormat, b: FloatFormat, element: int, k: int) -> list[Operand]:
    """Return the factors of term k of an element of the result, given its flat index."""
    rows, columns = batch.a.shape[1], batch.b.shape[2]
    stack, i, j = element // (rows * columns), element // columns % rows, element % columns
    left, right = batch.pairs[stack]
    return [(batch.a[left, i, k], a), (batch.b[right, k, j], b)] if k < batch.a.shape[2] else []


@stays_on_device
def dot(a: Floats, b: Floats, c: Floats | None = None, **options: Any) -> FloatResult:
    """Return the dot product of vectors, or a product with a vector or matrix, as np.dot.

    The sum runs over the last axis of a, and over the only axis or the last but one of b.

    Parameters
    ----------
    a : array_like of floats, (..., K)
    b : array_like of floats, (K,) or (K, N)
        FloatArrays or arrays whose dtype is a format. Their formats may differ.
    c : array_like of floats, broadcastable to the result, optional
        An addend.
    **options : alpha, beta, accumulate, scale_a, scale_b, format, out, backend and the rounding options
        As in `fs.matmul`.

    Returns
    -------
    scalar or array
        (...,) for a vector b, (..., N) for a matrix.

    Raises
    ------
    TypeError, ValueError
        As in `fs.matmul`; a ValueError also if b has more than two dimensions.

    Examples
    --------
    >>> import floatsim as fs
    >>> x = fs.array([1.0, 2.0**-9, 2.0**-9], "bf16")
    >>> fs.dot(x, x, accumulate="bf16"), fs.dot(x, x, accumulate="exact(fp32)").item()
    (FloatArray(1.0, BF16), 1.0000076293945312)
    """
    shape = read_floats(b, "b")[0].shape
    if len(shape) > 2:
        raise ValueError(f"b {shape} has more than two dimensions; use fs.matmul, which broadcasts stacks of matrices")
    return matmul(a, b, c, **options)


def explain_plan(
    a: Floats | str, b: Floats | None = None, c: Floats | None = None, *more: Floats,
    accumulate: AccumulationLike | None = None,
    scale_a: Floats | None = None, scale_b: Floats | None = None, format: FormatLike | None = None,
    rounding: RoundingLike | None = None, overflow: OverflowLike | None = None,
    daz: bool | None = None, ftz: bool | None = None, seed: SeedLike | None = None, random_bits: int | None = None,
    return_flags: bool | None = None,
) -> BasePlan[Any]:  # fmt: skip
    """Show which kernel of the emulator computes `matmul(a, b, c)`, `sum(a)` or an operation, and why no faster one.

    Parameters
    ----------
    a : array_like of floats, (..., M, K) or (K,), or str
        The name of an element-wise operation or function, as "add" or "exp", is followed by its operands.
    b : array_like of floats, (..., K, N) or (K,), optional
        Without b, the plan is that of `fs.sum(a)` over all elements.
    c, accumulate, scale_a, scale_b, format, rounding, daz, ftz, seed, random_bits
        As in `fs.matmul`. Inside `fs.record()` the plan counts the events of the record.
    *more : array_like of floats
        The third operand of `explain_plan("fma", x, y, z)`.
    overflow, return_flags
        As in `fs.add`, for element-wise operations. `matmul` converts its result in a second step.

    Returns
    -------
    Plan
        Prints as text: the kernel, the candidates that refused with their reasons, and the plans of the parts. A matrix
        unit is printed with its instruction. `candidate` and `refused` hold the same as data.

    Raises
    ------
    TypeError, ValueError
        The errors of `matmul`, or of the operation, for the same arguments; also for an unknown operation.

    Examples
    --------
    >>> import floatsim as fs
    >>> x = fs.array([[1.0, 2.0]], "bf16")
    >>> fs.explain_plan("add", x, 1.0)
    add of bf16 x bf16 to bf16: own format
      not native: the processor has no add in BF16 by NumPy
      not fused native: only fma in FP32, on a processor with FMA
      not table: tables of wider operands than 8 bits are tried last
    >>> plan = fs.explain_plan(x, x.T, accumulate="sequential(bf16, overflow=saturate_finite)")
    >>> plan.candidate, [refusal.candidate for refusal in plan.refused][-1]
    ('float64', 'float32')
    """
    keywords: RoundingOptions = {"rounding": rounding, "daz": daz, "ftz": ftz, "seed": seed, "random_bits": random_bits}
    if isinstance(a, str):
        if overflow is not None:
            keywords["overflow"] = overflow
        return plan_operation(a, [x for x in (b, c, *more) if x is not None], format, return_flags or False, keywords)
    emulator, events = backends.emulator(), recording.wanted()
    x, x_format, _ = _matrix_operand(a, "a")
    if b is None:
        call = resolve_call(accumulate, x_format, x_format, format, None, "emulator", keywords)
        planned: BasePlan[Any] = emulator.plan_sums(
            (x.reshape(1, -1).T, x_format), None, None, _ONE_PAIR, call.accumulation, call.options, events
        )[0]  # fmt: skip
        return planned
    y, y_format, _ = _matrix_operand(b, "b")
    batch, block = _batches(x, y), None
    if scale_a is not None or scale_b is not None:
        accumulation = None if accumulate is None else as_accumulation(accumulate)
        block = block_scales(scale_a, scale_b, (x, x_format), (y, y_format), accumulation)
    call = resolve_call(
        accumulate, x_format, y_format, format, None, "emulator", keywords, None if block is None else block.of,
        matrices=True,
    )  # fmt: skip
    addend, _ = _addend(c, batch.shape)
    accumulation = call.accumulation
    if isinstance(accumulation, Epilogue):  # it adds c element by element
        accumulation, addend = accumulation.inner, None
    planned = emulator.plan_sums(
        (batch.a, x_format), (batch.b, y_format), addend, batch.pairs, accumulation, call.options, events,
        scales=block,
    )[0]  # fmt: skip
    return planned


def _keeping_format(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return NumPy's form of a product: it keeps the common format of the operands, if they have one."""

    def spelled(a: Any, b: Any, **options: Any) -> Any:
        both = isinstance(a, FloatArray) and isinstance(b, FloatArray)
        x, y = ((a, a.format), (b, b.format)) if both else (_read_once(a, "a"), _read_once(b, "b"))
        options.setdefault("format", x[1] if x[1] == y[1] else None)
        return function(x[0], y[0], **options)

    return spelled


def _read_once(x: Any, argument: str) -> tuple[Any, FloatFormat]:
    """Return an operand and its format. Lists and NumPy's arrays become FloatArrays, so that they are read once."""
    if isinstance(x, FloatArray):
        return x, x.format
    codes, fmt, _ = read_floats(x, argument)
    return FloatArray(codes, fmt) if isinstance(x, np.ndarray | np.generic | list | tuple) else x, fmt


implements(np.matmul)(_keeping_format(matmul))
implements(np.dot)(_keeping_format(dot))
