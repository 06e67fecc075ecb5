# Written by tools/write_stubs.py. Do not edit.

import numpy as np
from numpy.typing import DTypeLike, NDArray
from typing import Any, Literal, Unpack, overload
from floatsim import (
    algorithms as algorithms, approx as approx, datasets as datasets, hardware as hardware, njit as njit,
    operators as operators, plot as plot, quantization as quantization, reference as reference,
    tensorcore as tensorcore, testing as testing, torch as torch, training as training, triton as triton,
)
from floatsim._literals import ArrayAccumulationName, ArrayFormatName
from floatsim._warnings import FloatsimWarning
from floatsim.accumulation import (
    ACCUMULATIONS, AccumulationLike, Blocked, Converted, Epilogue, Exact, Kahan, Neumaier, Pairwise, Parts, Permuted,
    Residue, Sequential, Sklansky, SplitK, Strided, TensorCore, Tf32x3, Threads, Tree, Welford, as_accumulation,
)
from floatsim.accumulation.libraries import NotDescribedError, library_sum
from floatsim.analysis.conversion_losses import ConversionLosses, conversion_losses
from floatsim.analysis.equality import equal_shares
from floatsim.analysis.explain import explain_rounding
from floatsim.analysis.explain_expression import ExplainedExpression, explain
from floatsim.analysis.explain_operation import ExplainedOperation, explain_add, explain_fma, explain_multiply
from floatsim.analysis.exponent_histogram import ExponentHistogram, exponent_histogram
from floatsim.analysis.random_bits import RandomBitsBias, random_bits_bias
from floatsim.analysis.significant_digits import significant_digits, stochastic_samples
from floatsim.analysis.summation_order import reveal_order, reveal_width
from floatsim.analysis.survey.survey import survey
from floatsim.analysis.sweeps import SweepTable, sweep
from floatsim.analysis.trace.trace import trace
from floatsim.arrays.array.float_array import FloatArray, from_codes, load, save
from floatsim.arrays.array.torch_jax import to_jax, to_torch
from floatsim.arrays.array.types import (
    Axes, BoolOut, CodeOut, Flags, Float64Out, Floats, Integers, NanRule, Number, Out, Scalar, SummationKeywords,
    Values,
)
from floatsim.arrays.call.options import BackendName, Context, RoundingKeywords, bind_context, context, get_context
from floatsim.arrays.call.random_sources import Lfsr, PHILOX_ARRANGEMENTS, Philox, RandomGenerator, Threefry
from floatsim.arrays.call.random_stream import RandomStream, SeedLike
from floatsim.arrays.elementwise.library_functions import FunctionKeywords, library_function
from floatsim.arrays.elementwise.projection import project
from floatsim.arrays.elementwise.ulps import Kind
from floatsim.arrays.events.record import record, scope
from floatsim.arrays.library_reductions import library_reduction
from floatsim.arrays.sums.einsum import einsum
from floatsim.arrays.sums.product_bounds import product_bounds
from floatsim.arrays.sums.products import Part, explain_plan
from floatsim.arrays.sums.reductions import moments
from floatsim.emulator.parallel import get_num_threads, set_num_threads
from floatsim.explorer.page import explorer
from floatsim.formats import FormatLike
from floatsim.formats.format import (
    BF16, E2M1, E2M3, E3M2, E3M4, E4M3, E4M3B11FNUZ, E4M3FNUZ, E4M3IEEE, E5M2, E5M2FNUZ, E8M0, FORMATS, FP16, FP32,
    FP64, FloatFormat, Specials, TF32, as_format, named_formats, p3109,
)
from floatsim.formats.rounding import (
    DIVIDE_BY_ZERO, FloatClass, INEXACT, INVALID, OVERFLOW, Overflow, OverflowLike, Rounding, RoundingLike, Tininess,
    TininessLike, UNDERFLOW,
)
from floatsim.operators.errors import sensitivity
from floatsim.quantization.blocks import dequantize_blocks, quantize_blocks
from floatsim.quantization.calibration import best_scale
from floatsim.quantization.packing import pack, unpack
from floatsim.testing.identify.identification import identify
from floatsim.testing.quantizers.identification import identify_quantizer

__all__ = [
    "ACCUMULATIONS", "BF16", "Blocked", "Context", "ConversionLosses", "Converted", "DIVIDE_BY_ZERO", "E2M1", "E2M3",
    "E3M2", "E3M4", "E4M3", "E4M3B11FNUZ", "E4M3FNUZ", "E4M3IEEE", "E5M2", "E5M2FNUZ", "E8M0", "Epilogue", "Exact",
    "ExplainedExpression", "ExplainedOperation", "ExponentHistogram", "FORMATS", "FP16", "FP32", "FP64", "FloatArray",
    "FloatClass", "FloatFormat", "FloatsimWarning", "INEXACT", "INVALID", "Kahan", "Lfsr", "Neumaier",
    "NotDescribedError", "OVERFLOW", "Overflow", "PHILOX_ARRANGEMENTS", "Pairwise", "Part", "Parts", "Permuted",
    "Philox", "RandomBitsBias", "RandomGenerator", "RandomStream", "Residue", "Rounding", "Sequential", "Sklansky",
    "Specials", "SplitK", "Strided", "SweepTable", "TF32", "TensorCore", "Tf32x3", "Threads", "Threefry", "Tininess",
    "Tree", "UNDERFLOW", "Welford", "absolute", "acos", "add", "algorithms", "approx", "array", "as_accumulation",
    "as_format", "asin", "atan", "best_scale", "bind_context", "cbrt", "ceil", "classify", "context",
    "conversion_losses", "convert", "copysign", "cos", "cosh", "cumsum", "datasets", "decode", "dequantize_blocks",
    "divide", "dot", "einsum", "encode", "equal", "equal_shares", "erf", "exp", "exp10", "exp2", "explain",
    "explain_add", "explain_fma", "explain_multiply", "explain_plan", "explain_rounding", "explorer", "expm1",
    "exponent_histogram", "floor", "fma", "fmod", "from_codes", "from_integer", "gelu", "get_context",
    "get_num_threads", "greater", "greater_equal", "hardware", "hypot", "identify", "identify_quantizer", "isfinite",
    "isinf", "isnan", "issubnormal", "less", "less_equal", "library_function", "library_reduction", "library_sum",
    "load", "log", "log10", "log1p", "log2", "logb", "matmul", "maximum", "maximum_number", "mean", "minimum",
    "minimum_number", "mish", "moments", "multiply", "named_formats", "negative", "next_down", "next_up", "nextafter",
    "njit", "norm", "not_equal", "operators", "p3109", "pack", "plot", "power", "prod", "product_bounds", "project",
    "quantization", "quantize", "quantize_blocks", "random_bits_bias", "reciprocal", "record", "reference", "remainder",
    "reveal_order", "reveal_width", "rint", "rsqrt", "save", "scalb", "scaled_mm", "scope", "sensitivity",
    "set_num_threads", "sigmoid", "signbit", "significant_digits", "silu", "sin", "sinh", "softplus", "sqrt",
    "stochastic_samples", "subtract", "sum", "survey", "sweep", "tan", "tanh", "tensorcore", "testing", "to_integer",
    "to_jax", "to_torch", "total_order", "trace", "training", "trunc", "ulp", "ulp_distance", "unordered", "unpack",
    "var", "vdot",
]
__version__: str

@overload
def absolute(
    a: FloatArray, *, out: FloatArray | None = None, return_flags: Literal[False] = ...,
    **options: Unpack[RoundingKeywords],
) -> FloatArray:
    """Return a with its sign bit cleared, NaNs included (IEEE 754-2019, 5.5.1)."""
@overload
def absolute(
    a: FloatArray, *, out: FloatArray | None = None, return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def absolute(
    a: NDArray[Any], *, out: NDArray[Any] | None = None, return_flags: Literal[False] = ...,
    **options: Unpack[RoundingKeywords],
) -> NDArray[Any]: ...
@overload
def absolute(
    a: NDArray[Any], *, out: NDArray[Any] | None = None, return_flags: Literal[True],
    **options: Unpack[RoundingKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def absolute(a: Floats, *, out: Out = None, return_flags: bool = ..., **options: Unpack[RoundingKeywords]) -> Any: ...

@overload
def acos(
    a: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> FloatArray:
    """Return the arc cosine of a in radians, rounded once (IEEE 754-2019, 9.2)."""
@overload
def acos(
    a: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None, return_flags: Literal[True],
    **options: Unpack[FunctionKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def acos(
    a: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None, out: NDArray[Any] | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> NDArray[Any]: ...
@overload
def acos(
    a: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None, out: NDArray[Any] | None = None,
    return_flags: Literal[True], **options: Unpack[FunctionKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def acos(
    a: Floats, *, format: FormatLike | None = None, out: Out = None, return_flags: bool = ...,
    **options: Unpack[FunctionKeywords],
) -> Any: ...

@overload
def add(
    a: FloatArray, b: Floats, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords],
) -> FloatArray:
    """Return a + b, rounded once (IEEE 754-2019, 5.4.1)."""
@overload
def add(
    a: FloatArray, b: Floats, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def add(
    a: Floats, b: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords],
) -> FloatArray: ...
@overload
def add(
    a: Floats, b: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def add(
    a: NDArray[Any], b: NDArray[Any] | Scalar, *, format: ArrayFormatName | type[np.floating[Any]] | None = None,
    out: NDArray[Any] | None = None, return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords],
) -> NDArray[Any]: ...
@overload
def add(
    a: NDArray[Any], b: NDArray[Any] | Scalar, *, format: ArrayFormatName | type[np.floating[Any]] | None = None,
    out: NDArray[Any] | None = None, return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def add(
    a: Scalar, b: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None,
    out: NDArray[Any] | None = None, return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords],
) -> NDArray[Any]: ...
@overload
def add(
    a: Scalar, b: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None,
    out: NDArray[Any] | None = None, return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def add(
    a: Floats, b: Floats, *, format: FormatLike | None = None, out: Out = None, return_flags: bool = ...,
    **options: Unpack[RoundingKeywords],
) -> Any: ...

@overload
def array(
    values: Values, format: FormatLike | None = None, *, return_flags: Literal[False] = ...,
    **options: Unpack[RoundingKeywords],
) -> FloatArray:
    """Return a FloatArray of `values`, rounded to `format`."""
@overload
def array(
    values: Values, format: FormatLike | None = None, *, return_flags: Literal[True],
    **options: Unpack[RoundingKeywords],
) -> tuple[FloatArray, Flags]: ...

@overload
def asin(
    a: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> FloatArray:
    """Return the arc sine of a in radians, rounded once (IEEE 754-2019, 9.2)."""
@overload
def asin(
    a: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None, return_flags: Literal[True],
    **options: Unpack[FunctionKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def asin(
    a: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None, out: NDArray[Any] | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> NDArray[Any]: ...
@overload
def asin(
    a: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None, out: NDArray[Any] | None = None,
    return_flags: Literal[True], **options: Unpack[FunctionKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def asin(
    a: Floats, *, format: FormatLike | None = None, out: Out = None, return_flags: bool = ...,
    **options: Unpack[FunctionKeywords],
) -> Any: ...

@overload
def atan(
    a: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> FloatArray:
    """Return the arc tangent of a in radians, rounded once (IEEE 754-2019, 9.2)."""
@overload
def atan(
    a: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None, return_flags: Literal[True],
    **options: Unpack[FunctionKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def atan(
    a: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None, out: NDArray[Any] | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> NDArray[Any]: ...
@overload
def atan(
    a: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None, out: NDArray[Any] | None = None,
    return_flags: Literal[True], **options: Unpack[FunctionKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def atan(
    a: Floats, *, format: FormatLike | None = None, out: Out = None, return_flags: bool = ...,
    **options: Unpack[FunctionKeywords],
) -> Any: ...

@overload
def cbrt(
    a: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> FloatArray:
    """Return the cube root of a, rounded once (rootn(a, 3) of IEEE 754-2019, 9.2)."""
@overload
def cbrt(
    a: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None, return_flags: Literal[True],
    **options: Unpack[FunctionKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def cbrt(
    a: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None, out: NDArray[Any] | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> NDArray[Any]: ...
@overload
def cbrt(
    a: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None, out: NDArray[Any] | None = None,
    return_flags: Literal[True], **options: Unpack[FunctionKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def cbrt(
    a: Floats, *, format: FormatLike | None = None, out: Out = None, return_flags: bool = ...,
    **options: Unpack[FunctionKeywords],
) -> Any: ...

@overload
def ceil(
    a: FloatArray, *, out: FloatArray | None = None, return_flags: Literal[False] = ...,
    **options: Unpack[RoundingKeywords],
) -> FloatArray:
    """Return the smallest integral value that is not below a (IEEE 754-2019, 5.9)."""
@overload
def ceil(
    a: FloatArray, *, out: FloatArray | None = None, return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def ceil(
    a: NDArray[Any], *, out: NDArray[Any] | None = None, return_flags: Literal[False] = ...,
    **options: Unpack[RoundingKeywords],
) -> NDArray[Any]: ...
@overload
def ceil(
    a: NDArray[Any], *, out: NDArray[Any] | None = None, return_flags: Literal[True],
    **options: Unpack[RoundingKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def ceil(a: Floats, *, out: Out = None, return_flags: bool = ..., **options: Unpack[RoundingKeywords]) -> Any: ...

@overload
def classify(a: Scalar) -> Any:
    """Return the class of each element (IEEE 754-2019, 5.7.2)."""
@overload
def classify(a: Floats) -> NDArray[np.uint8]: ...

@overload
def convert(
    x: FloatArray, format: FormatLike, *, nan: NanRule = 'canonical', return_flags: Literal[False] = ...,
    **options: Unpack[RoundingKeywords],
) -> FloatArray:
    """Round values to a format and return an array of that format."""
@overload
def convert(
    x: FloatArray, format: FormatLike, *, nan: NanRule = 'canonical', return_flags: Literal[True],
    **options: Unpack[RoundingKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def convert(
    x: NDArray[Any], format: ArrayFormatName | type[np.floating[Any]], *, nan: NanRule = 'canonical',
    return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords],
) -> NDArray[Any]: ...
@overload
def convert(
    x: NDArray[Any], format: ArrayFormatName | type[np.floating[Any]], *, nan: NanRule = 'canonical',
    return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def convert(
    x: Values, format: FormatLike, *, nan: NanRule = 'canonical', return_flags: bool = ...,
    **options: Unpack[RoundingKeywords],
) -> Any: ...

@overload
def copysign(
    a: FloatArray, b: Floats, *, out: FloatArray | None = None, return_flags: Literal[False] = ...,
    **options: Unpack[RoundingKeywords],
) -> FloatArray:
    """Return a with the sign bit of b, NaNs included (IEEE 754-2019, 5.5.1)."""
@overload
def copysign(
    a: FloatArray, b: Floats, *, out: FloatArray | None = None, return_flags: Literal[True],
    **options: Unpack[RoundingKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def copysign(
    a: Floats, b: FloatArray, *, out: FloatArray | None = None, return_flags: Literal[False] = ...,
    **options: Unpack[RoundingKeywords],
) -> FloatArray: ...
@overload
def copysign(
    a: Floats, b: FloatArray, *, out: FloatArray | None = None, return_flags: Literal[True],
    **options: Unpack[RoundingKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def copysign(
    a: NDArray[Any], b: NDArray[Any] | Scalar, *, out: NDArray[Any] | None = None, return_flags: Literal[False] = ...,
    **options: Unpack[RoundingKeywords],
) -> NDArray[Any]: ...
@overload
def copysign(
    a: NDArray[Any], b: NDArray[Any] | Scalar, *, out: NDArray[Any] | None = None, return_flags: Literal[True],
    **options: Unpack[RoundingKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def copysign(
    a: Scalar, b: NDArray[Any], *, out: NDArray[Any] | None = None, return_flags: Literal[False] = ...,
    **options: Unpack[RoundingKeywords],
) -> NDArray[Any]: ...
@overload
def copysign(
    a: Scalar, b: NDArray[Any], *, out: NDArray[Any] | None = None, return_flags: Literal[True],
    **options: Unpack[RoundingKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def copysign(
    a: Floats, b: Floats, *, out: Out = None, return_flags: bool = ..., **options: Unpack[RoundingKeywords],
) -> Any: ...

@overload
def cos(
    a: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> FloatArray:
    """Return the cosine of a in radians, rounded once (IEEE 754-2019, 9.2)."""
@overload
def cos(
    a: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None, return_flags: Literal[True],
    **options: Unpack[FunctionKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def cos(
    a: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None, out: NDArray[Any] | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> NDArray[Any]: ...
@overload
def cos(
    a: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None, out: NDArray[Any] | None = None,
    return_flags: Literal[True], **options: Unpack[FunctionKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def cos(
    a: Floats, *, format: FormatLike | None = None, out: Out = None, return_flags: bool = ...,
    **options: Unpack[FunctionKeywords],
) -> Any: ...

@overload
def cosh(
    a: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> FloatArray:
    """Return the hyperbolic cosine of a, rounded once (IEEE 754-2019, 9.2)."""
@overload
def cosh(
    a: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None, return_flags: Literal[True],
    **options: Unpack[FunctionKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def cosh(
    a: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None, out: NDArray[Any] | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> NDArray[Any]: ...
@overload
def cosh(
    a: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None, out: NDArray[Any] | None = None,
    return_flags: Literal[True], **options: Unpack[FunctionKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def cosh(
    a: Floats, *, format: FormatLike | None = None, out: Out = None, return_flags: bool = ...,
    **options: Unpack[FunctionKeywords],
) -> Any: ...

@overload
def cumsum(
    x: FloatArray, axis: int | None = None, *, accumulate: AccumulationLike | None = ...,
    format: FormatLike | None = ..., out: FloatArray | None = ..., **options: Unpack[SummationKeywords],
) -> FloatArray:
    """Return the running sum: element k is `fs.sum` of the elements 0 to k with the same description."""
@overload
def cumsum(
    x: NDArray[Any], axis: int | None = None, *,
    accumulate: ArrayAccumulationName | type[np.floating[Any]] | None = ...,
    format: ArrayFormatName | type[np.floating[Any]] | None = ..., out: NDArray[Any] | None = ...,
    **options: Unpack[SummationKeywords],
) -> NDArray[Any]: ...
@overload
def cumsum(
    x: Floats, axis: int | None = None, *, accumulate: AccumulationLike | None = ..., format: FormatLike | None = ...,
    out: Out = ..., **options: Unpack[SummationKeywords],
) -> Any: ...

@overload
def decode(codes: int | np.integer[Any], format: FormatLike, *, out: Float64Out = None) -> Any:
    """Return the values of codes as float64, exactly. Every NaN becomes the canonical NaN."""
@overload
def decode(codes: Integers, format: FormatLike, *, out: Float64Out = None) -> NDArray[np.float64]: ...

@overload
def divide(
    a: FloatArray, b: Floats, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords],
) -> FloatArray:
    """Return a / b, rounded once (IEEE 754-2019, 5.4.1)."""
@overload
def divide(
    a: FloatArray, b: Floats, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def divide(
    a: Floats, b: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords],
) -> FloatArray: ...
@overload
def divide(
    a: Floats, b: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def divide(
    a: NDArray[Any], b: NDArray[Any] | Scalar, *, format: ArrayFormatName | type[np.floating[Any]] | None = None,
    out: NDArray[Any] | None = None, return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords],
) -> NDArray[Any]: ...
@overload
def divide(
    a: NDArray[Any], b: NDArray[Any] | Scalar, *, format: ArrayFormatName | type[np.floating[Any]] | None = None,
    out: NDArray[Any] | None = None, return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def divide(
    a: Scalar, b: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None,
    out: NDArray[Any] | None = None, return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords],
) -> NDArray[Any]: ...
@overload
def divide(
    a: Scalar, b: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None,
    out: NDArray[Any] | None = None, return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def divide(
    a: Floats, b: Floats, *, format: FormatLike | None = None, out: Out = None, return_flags: bool = ...,
    **options: Unpack[RoundingKeywords],
) -> Any: ...

@overload
def dot(
    a: FloatArray, b: Floats, c: Floats | None = None, *, alpha: Values = 1, beta: Values = 1,
    accumulate: AccumulationLike | None = None, scale_a: Floats | None = None, scale_b: Floats | None = None,
    format: FormatLike | None = None, rounding: RoundingLike | None = None, overflow: OverflowLike | None = None,
    result_rounding: RoundingLike | None = None, daz: bool | None = None, ftz: bool | None = None,
    tininess: TininessLike | None = None, seed: SeedLike | None = None, random_bits: int | None = None,
    part: Part | None = None, out: FloatArray | None = None, backend: BackendName | None = None,
) -> FloatArray:
    """Return the dot product of vectors, or a product with a vector or matrix, as np.dot."""
@overload
def dot(
    a: Floats, b: FloatArray, c: Floats | None = None, *, alpha: Values = 1, beta: Values = 1,
    accumulate: AccumulationLike | None = None, scale_a: Floats | None = None, scale_b: Floats | None = None,
    format: FormatLike | None = None, rounding: RoundingLike | None = None, overflow: OverflowLike | None = None,
    result_rounding: RoundingLike | None = None, daz: bool | None = None, ftz: bool | None = None,
    tininess: TininessLike | None = None, seed: SeedLike | None = None, random_bits: int | None = None,
    part: Part | None = None, out: FloatArray | None = None, backend: BackendName | None = None,
) -> FloatArray: ...
@overload
def dot(
    a: Floats, b: Floats, c: FloatArray, *, alpha: Values = 1, beta: Values = 1,
    accumulate: AccumulationLike | None = None, scale_a: Floats | None = None, scale_b: Floats | None = None,
    format: FormatLike | None = None, rounding: RoundingLike | None = None, overflow: OverflowLike | None = None,
    result_rounding: RoundingLike | None = None, daz: bool | None = None, ftz: bool | None = None,
    tininess: TininessLike | None = None, seed: SeedLike | None = None, random_bits: int | None = None,
    part: Part | None = None, out: FloatArray | None = None, backend: BackendName | None = None,
) -> FloatArray: ...
@overload
def dot(
    a: NDArray[Any], b: NDArray[Any] | Scalar, c: NDArray[Any] | Scalar | None = None, *, alpha: Values = 1,
    beta: Values = 1, accumulate: ArrayAccumulationName | type[np.floating[Any]] | None = None,
    scale_a: Floats | None = None, scale_b: Floats | None = None,
    format: ArrayFormatName | type[np.floating[Any]] | None = None, rounding: RoundingLike | None = None,
    overflow: OverflowLike | None = None, result_rounding: RoundingLike | None = None, daz: bool | None = None,
    ftz: bool | None = None, tininess: TininessLike | None = None, seed: SeedLike | None = None,
    random_bits: int | None = None, part: Part | None = None, out: NDArray[Any] | None = None,
    backend: BackendName | None = None,
) -> NDArray[Any]: ...
@overload
def dot(
    a: Scalar, b: NDArray[Any], c: NDArray[Any] | Scalar | None = None, *, alpha: Values = 1, beta: Values = 1,
    accumulate: ArrayAccumulationName | type[np.floating[Any]] | None = None, scale_a: Floats | None = None,
    scale_b: Floats | None = None, format: ArrayFormatName | type[np.floating[Any]] | None = None,
    rounding: RoundingLike | None = None, overflow: OverflowLike | None = None,
    result_rounding: RoundingLike | None = None, daz: bool | None = None, ftz: bool | None = None,
    tininess: TininessLike | None = None, seed: SeedLike | None = None, random_bits: int | None = None,
    part: Part | None = None, out: NDArray[Any] | None = None, backend: BackendName | None = None,
) -> NDArray[Any]: ...
@overload
def dot(
    a: Floats, b: Floats, c: Floats | None = None, *, alpha: Values = 1, beta: Values = 1,
    accumulate: AccumulationLike | None = None, scale_a: Floats | None = None, scale_b: Floats | None = None,
    format: FormatLike | None = None, rounding: RoundingLike | None = None, overflow: OverflowLike | None = None,
    result_rounding: RoundingLike | None = None, daz: bool | None = None, ftz: bool | None = None,
    tininess: TininessLike | None = None, seed: SeedLike | None = None, random_bits: int | None = None,
    part: Part | None = None, out: Out = None, backend: BackendName | None = None,
) -> Any: ...

@overload
def encode(
    x: Number, format: FormatLike, *, out: CodeOut = None, return_flags: bool = ...,
    **options: Unpack[RoundingKeywords],
) -> Any:
    """Round values to a format and return their codes."""
@overload
def encode(
    x: Values, format: FormatLike, *, out: CodeOut = None, return_flags: Literal[False] = ...,
    **options: Unpack[RoundingKeywords],
) -> NDArray[np.unsignedinteger[Any]]: ...
@overload
def encode(
    x: Values, format: FormatLike, *, out: CodeOut = None, return_flags: Literal[True],
    **options: Unpack[RoundingKeywords],
) -> tuple[NDArray[np.unsignedinteger[Any]], Flags]: ...

@overload
def equal(
    a: Scalar, b: Scalar, *, signaling: bool = False, out: BoolOut = None, return_flags: bool = ...,
    **options: Unpack[RoundingKeywords],
) -> Any:
    """Return whether a == b, by value (IEEE 754-2019, 5.6.1, 5.11)."""
@overload
def equal(
    a: Floats, b: Floats, *, signaling: bool = False, out: BoolOut = None, return_flags: Literal[False] = ...,
    **options: Unpack[RoundingKeywords],
) -> NDArray[np.bool_]: ...
@overload
def equal(
    a: Floats, b: Floats, *, signaling: bool = False, out: BoolOut = None, return_flags: Literal[True],
    **options: Unpack[RoundingKeywords],
) -> tuple[NDArray[np.bool_], Flags]: ...

@overload
def erf(
    a: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> FloatArray:
    """Return the error function of a, rounded once (DLMF, 7.2.1)."""
@overload
def erf(
    a: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None, return_flags: Literal[True],
    **options: Unpack[FunctionKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def erf(
    a: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None, out: NDArray[Any] | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> NDArray[Any]: ...
@overload
def erf(
    a: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None, out: NDArray[Any] | None = None,
    return_flags: Literal[True], **options: Unpack[FunctionKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def erf(
    a: Floats, *, format: FormatLike | None = None, out: Out = None, return_flags: bool = ...,
    **options: Unpack[FunctionKeywords],
) -> Any: ...

@overload
def exp(
    a: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> FloatArray:
    """Return e**a, rounded once (IEEE 754-2019, 9.2)."""
@overload
def exp(
    a: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None, return_flags: Literal[True],
    **options: Unpack[FunctionKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def exp(
    a: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None, out: NDArray[Any] | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> NDArray[Any]: ...
@overload
def exp(
    a: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None, out: NDArray[Any] | None = None,
    return_flags: Literal[True], **options: Unpack[FunctionKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def exp(
    a: Floats, *, format: FormatLike | None = None, out: Out = None, return_flags: bool = ...,
    **options: Unpack[FunctionKeywords],
) -> Any: ...

@overload
def exp10(
    a: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> FloatArray:
    """Return 10**a, rounded once (IEEE 754-2019, 9.2)."""
@overload
def exp10(
    a: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None, return_flags: Literal[True],
    **options: Unpack[FunctionKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def exp10(
    a: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None, out: NDArray[Any] | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> NDArray[Any]: ...
@overload
def exp10(
    a: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None, out: NDArray[Any] | None = None,
    return_flags: Literal[True], **options: Unpack[FunctionKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def exp10(
    a: Floats, *, format: FormatLike | None = None, out: Out = None, return_flags: bool = ...,
    **options: Unpack[FunctionKeywords],
) -> Any: ...

@overload
def exp2(
    a: FloatArray, *, approximate: str = 'none', format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> FloatArray:
    """Return 2**a, rounded once (IEEE 754-2019, 9.2), or an approximation by name."""
@overload
def exp2(
    a: FloatArray, *, approximate: str = 'none', format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[True], **options: Unpack[FunctionKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def exp2(
    a: NDArray[Any], *, approximate: str = 'none', format: ArrayFormatName | type[np.floating[Any]] | None = None,
    out: NDArray[Any] | None = None, return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> NDArray[Any]: ...
@overload
def exp2(
    a: NDArray[Any], *, approximate: str = 'none', format: ArrayFormatName | type[np.floating[Any]] | None = None,
    out: NDArray[Any] | None = None, return_flags: Literal[True], **options: Unpack[FunctionKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def exp2(
    a: Floats, *, approximate: str = 'none', format: FormatLike | None = None, out: Out = None,
    return_flags: bool = ..., **options: Unpack[FunctionKeywords],
) -> Any: ...

@overload
def expm1(
    a: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> FloatArray:
    """Return e**a - 1, rounded once (IEEE 754-2019, 9.2)."""
@overload
def expm1(
    a: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None, return_flags: Literal[True],
    **options: Unpack[FunctionKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def expm1(
    a: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None, out: NDArray[Any] | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> NDArray[Any]: ...
@overload
def expm1(
    a: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None, out: NDArray[Any] | None = None,
    return_flags: Literal[True], **options: Unpack[FunctionKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def expm1(
    a: Floats, *, format: FormatLike | None = None, out: Out = None, return_flags: bool = ...,
    **options: Unpack[FunctionKeywords],
) -> Any: ...

@overload
def floor(
    a: FloatArray, *, out: FloatArray | None = None, return_flags: Literal[False] = ...,
    **options: Unpack[RoundingKeywords],
) -> FloatArray:
    """Return the largest integral value that is not above a (IEEE 754-2019, 5.9)."""
@overload
def floor(
    a: FloatArray, *, out: FloatArray | None = None, return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def floor(
    a: NDArray[Any], *, out: NDArray[Any] | None = None, return_flags: Literal[False] = ...,
    **options: Unpack[RoundingKeywords],
) -> NDArray[Any]: ...
@overload
def floor(
    a: NDArray[Any], *, out: NDArray[Any] | None = None, return_flags: Literal[True],
    **options: Unpack[RoundingKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def floor(a: Floats, *, out: Out = None, return_flags: bool = ..., **options: Unpack[RoundingKeywords]) -> Any: ...

@overload
def fma(
    a: FloatArray, b: Floats, c: Floats, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords],
) -> FloatArray:
    """Return a * b + c, rounded once (IEEE 754-2019, 5.4.1)."""
@overload
def fma(
    a: FloatArray, b: Floats, c: Floats, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def fma(
    a: Floats, b: FloatArray, c: Floats, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords],
) -> FloatArray: ...
@overload
def fma(
    a: Floats, b: FloatArray, c: Floats, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def fma(
    a: Floats, b: Floats, c: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords],
) -> FloatArray: ...
@overload
def fma(
    a: Floats, b: Floats, c: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def fma(
    a: NDArray[Any], b: NDArray[Any] | Scalar, c: NDArray[Any] | Scalar, *,
    format: ArrayFormatName | type[np.floating[Any]] | None = None, out: NDArray[Any] | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords],
) -> NDArray[Any]: ...
@overload
def fma(
    a: NDArray[Any], b: NDArray[Any] | Scalar, c: NDArray[Any] | Scalar, *,
    format: ArrayFormatName | type[np.floating[Any]] | None = None, out: NDArray[Any] | None = None,
    return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def fma(
    a: Scalar, b: NDArray[Any], c: NDArray[Any] | Scalar, *,
    format: ArrayFormatName | type[np.floating[Any]] | None = None, out: NDArray[Any] | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords],
) -> NDArray[Any]: ...
@overload
def fma(
    a: Scalar, b: NDArray[Any], c: NDArray[Any] | Scalar, *,
    format: ArrayFormatName | type[np.floating[Any]] | None = None, out: NDArray[Any] | None = None,
    return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def fma(
    a: Scalar, b: Scalar, c: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None,
    out: NDArray[Any] | None = None, return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords],
) -> NDArray[Any]: ...
@overload
def fma(
    a: Scalar, b: Scalar, c: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None,
    out: NDArray[Any] | None = None, return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def fma(
    a: Floats, b: Floats, c: Floats, *, format: FormatLike | None = None, out: Out = None, return_flags: bool = ...,
    **options: Unpack[RoundingKeywords],
) -> Any: ...

@overload
def fmod(
    a: FloatArray, b: Floats, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords],
) -> FloatArray:
    """Return a - n*b, n being a/b truncated to an integer (fmod of C)."""
@overload
def fmod(
    a: FloatArray, b: Floats, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def fmod(
    a: Floats, b: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords],
) -> FloatArray: ...
@overload
def fmod(
    a: Floats, b: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def fmod(
    a: NDArray[Any], b: NDArray[Any] | Scalar, *, format: ArrayFormatName | type[np.floating[Any]] | None = None,
    out: NDArray[Any] | None = None, return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords],
) -> NDArray[Any]: ...
@overload
def fmod(
    a: NDArray[Any], b: NDArray[Any] | Scalar, *, format: ArrayFormatName | type[np.floating[Any]] | None = None,
    out: NDArray[Any] | None = None, return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def fmod(
    a: Scalar, b: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None,
    out: NDArray[Any] | None = None, return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords],
) -> NDArray[Any]: ...
@overload
def fmod(
    a: Scalar, b: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None,
    out: NDArray[Any] | None = None, return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def fmod(
    a: Floats, b: Floats, *, format: FormatLike | None = None, out: Out = None, return_flags: bool = ...,
    **options: Unpack[RoundingKeywords],
) -> Any: ...

@overload
def from_integer(
    n: FloatArray, format: FormatLike, *, return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords],
) -> FloatArray:
    """Round integers of any size to a format (convertFromInt, IEEE 754-2019, 5.4.1)."""
@overload
def from_integer(
    n: FloatArray, format: FormatLike, *, return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def from_integer(
    n: NDArray[Any], format: ArrayFormatName | type[np.floating[Any]], *, return_flags: Literal[False] = ...,
    **options: Unpack[RoundingKeywords],
) -> NDArray[Any]: ...
@overload
def from_integer(
    n: NDArray[Any], format: ArrayFormatName | type[np.floating[Any]], *, return_flags: Literal[True],
    **options: Unpack[RoundingKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def from_integer(
    n: Integers, format: FormatLike, *, return_flags: bool = ..., **options: Unpack[RoundingKeywords],
) -> Any: ...

@overload
def gelu(
    a: FloatArray, *, approximate: str = 'none', format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> FloatArray:
    """Return the Gaussian error linear unit of a, rounded once (D. Hendrycks, K. Gimpel, arXiv:1606.08415)."""
@overload
def gelu(
    a: FloatArray, *, approximate: str = 'none', format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[True], **options: Unpack[FunctionKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def gelu(
    a: NDArray[Any], *, approximate: str = 'none', format: ArrayFormatName | type[np.floating[Any]] | None = None,
    out: NDArray[Any] | None = None, return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> NDArray[Any]: ...
@overload
def gelu(
    a: NDArray[Any], *, approximate: str = 'none', format: ArrayFormatName | type[np.floating[Any]] | None = None,
    out: NDArray[Any] | None = None, return_flags: Literal[True], **options: Unpack[FunctionKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def gelu(
    a: Floats, *, approximate: str = 'none', format: FormatLike | None = None, out: Out = None,
    return_flags: bool = ..., **options: Unpack[FunctionKeywords],
) -> Any: ...

@overload
def greater(
    a: Scalar, b: Scalar, *, signaling: bool = True, out: BoolOut = None, return_flags: bool = ...,
    **options: Unpack[RoundingKeywords],
) -> Any:
    """Return whether a > b, by value (IEEE 754-2019, 5.6.1, 5.11)."""
@overload
def greater(
    a: Floats, b: Floats, *, signaling: bool = True, out: BoolOut = None, return_flags: Literal[False] = ...,
    **options: Unpack[RoundingKeywords],
) -> NDArray[np.bool_]: ...
@overload
def greater(
    a: Floats, b: Floats, *, signaling: bool = True, out: BoolOut = None, return_flags: Literal[True],
    **options: Unpack[RoundingKeywords],
) -> tuple[NDArray[np.bool_], Flags]: ...

@overload
def greater_equal(
    a: Scalar, b: Scalar, *, signaling: bool = True, out: BoolOut = None, return_flags: bool = ...,
    **options: Unpack[RoundingKeywords],
) -> Any:
    """Return whether a >= b, by value (IEEE 754-2019, 5.6.1, 5.11)."""
@overload
def greater_equal(
    a: Floats, b: Floats, *, signaling: bool = True, out: BoolOut = None, return_flags: Literal[False] = ...,
    **options: Unpack[RoundingKeywords],
) -> NDArray[np.bool_]: ...
@overload
def greater_equal(
    a: Floats, b: Floats, *, signaling: bool = True, out: BoolOut = None, return_flags: Literal[True],
    **options: Unpack[RoundingKeywords],
) -> tuple[NDArray[np.bool_], Flags]: ...

@overload
def hypot(
    a: FloatArray, b: Floats, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> FloatArray:
    """Return sqrt(a*a + b*b), rounded once, without overflow of the squares (IEEE 754-2019, 9.2)."""
@overload
def hypot(
    a: FloatArray, b: Floats, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[True], **options: Unpack[FunctionKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def hypot(
    a: Floats, b: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> FloatArray: ...
@overload
def hypot(
    a: Floats, b: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[True], **options: Unpack[FunctionKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def hypot(
    a: NDArray[Any], b: NDArray[Any] | Scalar, *, format: ArrayFormatName | type[np.floating[Any]] | None = None,
    out: NDArray[Any] | None = None, return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> NDArray[Any]: ...
@overload
def hypot(
    a: NDArray[Any], b: NDArray[Any] | Scalar, *, format: ArrayFormatName | type[np.floating[Any]] | None = None,
    out: NDArray[Any] | None = None, return_flags: Literal[True], **options: Unpack[FunctionKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def hypot(
    a: Scalar, b: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None,
    out: NDArray[Any] | None = None, return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> NDArray[Any]: ...
@overload
def hypot(
    a: Scalar, b: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None,
    out: NDArray[Any] | None = None, return_flags: Literal[True], **options: Unpack[FunctionKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def hypot(
    a: Floats, b: Floats, *, format: FormatLike | None = None, out: Out = None, return_flags: bool = ...,
    **options: Unpack[FunctionKeywords],
) -> Any: ...

@overload
def isfinite(a: Scalar, *, out: BoolOut = None) -> Any:
    """Return whether each element is finite (IEEE 754-2019, 5.7.2)."""
@overload
def isfinite(a: Floats, *, out: BoolOut = None) -> NDArray[np.bool_]: ...

@overload
def isinf(a: Scalar, *, out: BoolOut = None) -> Any:
    """Return whether each element is infinite (IEEE 754-2019, 5.7.2)."""
@overload
def isinf(a: Floats, *, out: BoolOut = None) -> NDArray[np.bool_]: ...

@overload
def isnan(a: Scalar, *, out: BoolOut = None) -> Any:
    """Return whether each element is NaN (IEEE 754-2019, 5.7.2)."""
@overload
def isnan(a: Floats, *, out: BoolOut = None) -> NDArray[np.bool_]: ...

@overload
def issubnormal(a: Scalar) -> Any:
    """Return whether each element is subnormal (IEEE 754-2019, 5.7.2)."""
@overload
def issubnormal(a: Floats) -> NDArray[np.bool_]: ...

@overload
def less(
    a: Scalar, b: Scalar, *, signaling: bool = True, out: BoolOut = None, return_flags: bool = ...,
    **options: Unpack[RoundingKeywords],
) -> Any:
    """Return whether a < b, by value (IEEE 754-2019, 5.6.1, 5.11)."""
@overload
def less(
    a: Floats, b: Floats, *, signaling: bool = True, out: BoolOut = None, return_flags: Literal[False] = ...,
    **options: Unpack[RoundingKeywords],
) -> NDArray[np.bool_]: ...
@overload
def less(
    a: Floats, b: Floats, *, signaling: bool = True, out: BoolOut = None, return_flags: Literal[True],
    **options: Unpack[RoundingKeywords],
) -> tuple[NDArray[np.bool_], Flags]: ...

@overload
def less_equal(
    a: Scalar, b: Scalar, *, signaling: bool = True, out: BoolOut = None, return_flags: bool = ...,
    **options: Unpack[RoundingKeywords],
) -> Any:
    """Return whether a <= b, by value (IEEE 754-2019, 5.6.1, 5.11)."""
@overload
def less_equal(
    a: Floats, b: Floats, *, signaling: bool = True, out: BoolOut = None, return_flags: Literal[False] = ...,
    **options: Unpack[RoundingKeywords],
) -> NDArray[np.bool_]: ...
@overload
def less_equal(
    a: Floats, b: Floats, *, signaling: bool = True, out: BoolOut = None, return_flags: Literal[True],
    **options: Unpack[RoundingKeywords],
) -> tuple[NDArray[np.bool_], Flags]: ...

@overload
def log(
    a: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> FloatArray:
    """Return the natural logarithm of a, rounded once (IEEE 754-2019, 9.2)."""
@overload
def log(
    a: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None, return_flags: Literal[True],
    **options: Unpack[FunctionKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def log(
    a: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None, out: NDArray[Any] | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> NDArray[Any]: ...
@overload
def log(
    a: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None, out: NDArray[Any] | None = None,
    return_flags: Literal[True], **options: Unpack[FunctionKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def log(
    a: Floats, *, format: FormatLike | None = None, out: Out = None, return_flags: bool = ...,
    **options: Unpack[FunctionKeywords],
) -> Any: ...

@overload
def log10(
    a: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> FloatArray:
    """Return the logarithm of a to base 10, rounded once (IEEE 754-2019, 9.2)."""
@overload
def log10(
    a: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None, return_flags: Literal[True],
    **options: Unpack[FunctionKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def log10(
    a: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None, out: NDArray[Any] | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> NDArray[Any]: ...
@overload
def log10(
    a: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None, out: NDArray[Any] | None = None,
    return_flags: Literal[True], **options: Unpack[FunctionKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def log10(
    a: Floats, *, format: FormatLike | None = None, out: Out = None, return_flags: bool = ...,
    **options: Unpack[FunctionKeywords],
) -> Any: ...

@overload
def log1p(
    a: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> FloatArray:
    """Return log(1 + a), rounded once (IEEE 754-2019, 9.2)."""
@overload
def log1p(
    a: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None, return_flags: Literal[True],
    **options: Unpack[FunctionKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def log1p(
    a: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None, out: NDArray[Any] | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> NDArray[Any]: ...
@overload
def log1p(
    a: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None, out: NDArray[Any] | None = None,
    return_flags: Literal[True], **options: Unpack[FunctionKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def log1p(
    a: Floats, *, format: FormatLike | None = None, out: Out = None, return_flags: bool = ...,
    **options: Unpack[FunctionKeywords],
) -> Any: ...

@overload
def log2(
    a: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> FloatArray:
    """Return the logarithm of a to base 2, rounded once (IEEE 754-2019, 9.2)."""
@overload
def log2(
    a: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None, return_flags: Literal[True],
    **options: Unpack[FunctionKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def log2(
    a: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None, out: NDArray[Any] | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> NDArray[Any]: ...
@overload
def log2(
    a: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None, out: NDArray[Any] | None = None,
    return_flags: Literal[True], **options: Unpack[FunctionKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def log2(
    a: Floats, *, format: FormatLike | None = None, out: Out = None, return_flags: bool = ...,
    **options: Unpack[FunctionKeywords],
) -> Any: ...

@overload
def logb(a: Scalar, *, return_flags: bool = ..., **options: Unpack[RoundingKeywords]) -> Any:
    """Return the exponent e of 2**e <= |a| < 2**(e+1), as int32 (IEEE 754-2019, 5.3.3)."""
@overload
def logb(
    a: Floats, *, return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords],
) -> NDArray[np.int32]: ...
@overload
def logb(
    a: Floats, *, return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[NDArray[np.int32], Flags]: ...

@overload
def matmul(
    a: FloatArray, b: Floats, c: Floats | None = None, *, alpha: Values = 1, beta: Values = 1,
    accumulate: AccumulationLike | None = None, scale_a: Floats | None = None, scale_b: Floats | None = None,
    format: FormatLike | None = None, rounding: RoundingLike | None = None, overflow: OverflowLike | None = None,
    result_rounding: RoundingLike | None = None, daz: bool | None = None, ftz: bool | None = None,
    tininess: TininessLike | None = None, seed: SeedLike | None = None, random_bits: int | None = None,
    part: Part | None = None, out: FloatArray | None = None, backend: BackendName | None = None,
) -> FloatArray:
    """Return the matrix product alpha * (a @ b) + beta * c, with the formats, roundings and order of a description."""
@overload
def matmul(
    a: Floats, b: FloatArray, c: Floats | None = None, *, alpha: Values = 1, beta: Values = 1,
    accumulate: AccumulationLike | None = None, scale_a: Floats | None = None, scale_b: Floats | None = None,
    format: FormatLike | None = None, rounding: RoundingLike | None = None, overflow: OverflowLike | None = None,
    result_rounding: RoundingLike | None = None, daz: bool | None = None, ftz: bool | None = None,
    tininess: TininessLike | None = None, seed: SeedLike | None = None, random_bits: int | None = None,
    part: Part | None = None, out: FloatArray | None = None, backend: BackendName | None = None,
) -> FloatArray: ...
@overload
def matmul(
    a: Floats, b: Floats, c: FloatArray, *, alpha: Values = 1, beta: Values = 1,
    accumulate: AccumulationLike | None = None, scale_a: Floats | None = None, scale_b: Floats | None = None,
    format: FormatLike | None = None, rounding: RoundingLike | None = None, overflow: OverflowLike | None = None,
    result_rounding: RoundingLike | None = None, daz: bool | None = None, ftz: bool | None = None,
    tininess: TininessLike | None = None, seed: SeedLike | None = None, random_bits: int | None = None,
    part: Part | None = None, out: FloatArray | None = None, backend: BackendName | None = None,
) -> FloatArray: ...
@overload
def matmul(
    a: NDArray[Any], b: NDArray[Any] | Scalar, c: NDArray[Any] | Scalar | None = None, *, alpha: Values = 1,
    beta: Values = 1, accumulate: ArrayAccumulationName | type[np.floating[Any]] | None = None,
    scale_a: Floats | None = None, scale_b: Floats | None = None,
    format: ArrayFormatName | type[np.floating[Any]] | None = None, rounding: RoundingLike | None = None,
    overflow: OverflowLike | None = None, result_rounding: RoundingLike | None = None, daz: bool | None = None,
    ftz: bool | None = None, tininess: TininessLike | None = None, seed: SeedLike | None = None,
    random_bits: int | None = None, part: Part | None = None, out: NDArray[Any] | None = None,
    backend: BackendName | None = None,
) -> NDArray[Any]: ...
@overload
def matmul(
    a: Scalar, b: NDArray[Any], c: NDArray[Any] | Scalar | None = None, *, alpha: Values = 1, beta: Values = 1,
    accumulate: ArrayAccumulationName | type[np.floating[Any]] | None = None, scale_a: Floats | None = None,
    scale_b: Floats | None = None, format: ArrayFormatName | type[np.floating[Any]] | None = None,
    rounding: RoundingLike | None = None, overflow: OverflowLike | None = None,
    result_rounding: RoundingLike | None = None, daz: bool | None = None, ftz: bool | None = None,
    tininess: TininessLike | None = None, seed: SeedLike | None = None, random_bits: int | None = None,
    part: Part | None = None, out: NDArray[Any] | None = None, backend: BackendName | None = None,
) -> NDArray[Any]: ...
@overload
def matmul(
    a: Floats, b: Floats, c: Floats | None = None, *, alpha: Values = 1, beta: Values = 1,
    accumulate: AccumulationLike | None = None, scale_a: Floats | None = None, scale_b: Floats | None = None,
    format: FormatLike | None = None, rounding: RoundingLike | None = None, overflow: OverflowLike | None = None,
    result_rounding: RoundingLike | None = None, daz: bool | None = None, ftz: bool | None = None,
    tininess: TininessLike | None = None, seed: SeedLike | None = None, random_bits: int | None = None,
    part: Part | None = None, out: Out = None, backend: BackendName | None = None,
) -> Any: ...

@overload
def maximum(
    a: FloatArray, b: Floats, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords],
) -> FloatArray:
    """Return the larger of a and b (IEEE 754-2019, 9.6)."""
@overload
def maximum(
    a: FloatArray, b: Floats, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def maximum(
    a: Floats, b: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords],
) -> FloatArray: ...
@overload
def maximum(
    a: Floats, b: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def maximum(
    a: NDArray[Any], b: NDArray[Any] | Scalar, *, format: ArrayFormatName | type[np.floating[Any]] | None = None,
    out: NDArray[Any] | None = None, return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords],
) -> NDArray[Any]: ...
@overload
def maximum(
    a: NDArray[Any], b: NDArray[Any] | Scalar, *, format: ArrayFormatName | type[np.floating[Any]] | None = None,
    out: NDArray[Any] | None = None, return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def maximum(
    a: Scalar, b: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None,
    out: NDArray[Any] | None = None, return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords],
) -> NDArray[Any]: ...
@overload
def maximum(
    a: Scalar, b: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None,
    out: NDArray[Any] | None = None, return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def maximum(
    a: Floats, b: Floats, *, format: FormatLike | None = None, out: Out = None, return_flags: bool = ...,
    **options: Unpack[RoundingKeywords],
) -> Any: ...

@overload
def maximum_number(
    a: FloatArray, b: Floats, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords],
) -> FloatArray:
    """Return the larger of a and b; a number wins over a NaN (IEEE 754-2019, 9.6)."""
@overload
def maximum_number(
    a: FloatArray, b: Floats, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def maximum_number(
    a: Floats, b: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords],
) -> FloatArray: ...
@overload
def maximum_number(
    a: Floats, b: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def maximum_number(
    a: NDArray[Any], b: NDArray[Any] | Scalar, *, format: ArrayFormatName | type[np.floating[Any]] | None = None,
    out: NDArray[Any] | None = None, return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords],
) -> NDArray[Any]: ...
@overload
def maximum_number(
    a: NDArray[Any], b: NDArray[Any] | Scalar, *, format: ArrayFormatName | type[np.floating[Any]] | None = None,
    out: NDArray[Any] | None = None, return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def maximum_number(
    a: Scalar, b: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None,
    out: NDArray[Any] | None = None, return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords],
) -> NDArray[Any]: ...
@overload
def maximum_number(
    a: Scalar, b: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None,
    out: NDArray[Any] | None = None, return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def maximum_number(
    a: Floats, b: Floats, *, format: FormatLike | None = None, out: Out = None, return_flags: bool = ...,
    **options: Unpack[RoundingKeywords],
) -> Any: ...

@overload
def mean(
    x: FloatArray, axis: Axes = None, *, keepdims: bool = False, where: Any = None,
    accumulate: AccumulationLike | None = ..., format: FormatLike | None = ..., out: FloatArray | None = ...,
    **options: Unpack[SummationKeywords],
) -> FloatArray:
    """Return the sum divided by the number of its terms: one more rounding, to the format of the result."""
@overload
def mean(
    x: NDArray[Any], axis: Axes = None, *, keepdims: bool = False, where: Any = None,
    accumulate: ArrayAccumulationName | type[np.floating[Any]] | None = ...,
    format: ArrayFormatName | type[np.floating[Any]] | None = ..., out: NDArray[Any] | None = ...,
    **options: Unpack[SummationKeywords],
) -> NDArray[Any]: ...
@overload
def mean(
    x: Floats, axis: Axes = None, *, keepdims: bool = False, where: Any = None,
    accumulate: AccumulationLike | None = ..., format: FormatLike | None = ..., out: Out = ...,
    **options: Unpack[SummationKeywords],
) -> Any: ...

@overload
def minimum(
    a: FloatArray, b: Floats, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords],
) -> FloatArray:
    """Return the smaller of a and b (IEEE 754-2019, 9.6)."""
@overload
def minimum(
    a: FloatArray, b: Floats, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def minimum(
    a: Floats, b: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords],
) -> FloatArray: ...
@overload
def minimum(
    a: Floats, b: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def minimum(
    a: NDArray[Any], b: NDArray[Any] | Scalar, *, format: ArrayFormatName | type[np.floating[Any]] | None = None,
    out: NDArray[Any] | None = None, return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords],
) -> NDArray[Any]: ...
@overload
def minimum(
    a: NDArray[Any], b: NDArray[Any] | Scalar, *, format: ArrayFormatName | type[np.floating[Any]] | None = None,
    out: NDArray[Any] | None = None, return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def minimum(
    a: Scalar, b: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None,
    out: NDArray[Any] | None = None, return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords],
) -> NDArray[Any]: ...
@overload
def minimum(
    a: Scalar, b: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None,
    out: NDArray[Any] | None = None, return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def minimum(
    a: Floats, b: Floats, *, format: FormatLike | None = None, out: Out = None, return_flags: bool = ...,
    **options: Unpack[RoundingKeywords],
) -> Any: ...

@overload
def minimum_number(
    a: FloatArray, b: Floats, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords],
) -> FloatArray:
    """Return the smaller of a and b; a number wins over a NaN (IEEE 754-2019, 9.6)."""
@overload
def minimum_number(
    a: FloatArray, b: Floats, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def minimum_number(
    a: Floats, b: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords],
) -> FloatArray: ...
@overload
def minimum_number(
    a: Floats, b: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def minimum_number(
    a: NDArray[Any], b: NDArray[Any] | Scalar, *, format: ArrayFormatName | type[np.floating[Any]] | None = None,
    out: NDArray[Any] | None = None, return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords],
) -> NDArray[Any]: ...
@overload
def minimum_number(
    a: NDArray[Any], b: NDArray[Any] | Scalar, *, format: ArrayFormatName | type[np.floating[Any]] | None = None,
    out: NDArray[Any] | None = None, return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def minimum_number(
    a: Scalar, b: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None,
    out: NDArray[Any] | None = None, return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords],
) -> NDArray[Any]: ...
@overload
def minimum_number(
    a: Scalar, b: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None,
    out: NDArray[Any] | None = None, return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def minimum_number(
    a: Floats, b: Floats, *, format: FormatLike | None = None, out: Out = None, return_flags: bool = ...,
    **options: Unpack[RoundingKeywords],
) -> Any: ...

@overload
def mish(
    a: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> FloatArray:
    """Return a * tanh(softplus(a)), rounded once (D. Misra, arXiv:1908.08681)."""
@overload
def mish(
    a: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None, return_flags: Literal[True],
    **options: Unpack[FunctionKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def mish(
    a: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None, out: NDArray[Any] | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> NDArray[Any]: ...
@overload
def mish(
    a: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None, out: NDArray[Any] | None = None,
    return_flags: Literal[True], **options: Unpack[FunctionKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def mish(
    a: Floats, *, format: FormatLike | None = None, out: Out = None, return_flags: bool = ...,
    **options: Unpack[FunctionKeywords],
) -> Any: ...

@overload
def multiply(
    a: FloatArray, b: Floats, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords],
) -> FloatArray:
    """Return a * b, rounded once (IEEE 754-2019, 5.4.1)."""
@overload
def multiply(
    a: FloatArray, b: Floats, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def multiply(
    a: Floats, b: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords],
) -> FloatArray: ...
@overload
def multiply(
    a: Floats, b: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def multiply(
    a: NDArray[Any], b: NDArray[Any] | Scalar, *, format: ArrayFormatName | type[np.floating[Any]] | None = None,
    out: NDArray[Any] | None = None, return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords],
) -> NDArray[Any]: ...
@overload
def multiply(
    a: NDArray[Any], b: NDArray[Any] | Scalar, *, format: ArrayFormatName | type[np.floating[Any]] | None = None,
    out: NDArray[Any] | None = None, return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def multiply(
    a: Scalar, b: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None,
    out: NDArray[Any] | None = None, return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords],
) -> NDArray[Any]: ...
@overload
def multiply(
    a: Scalar, b: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None,
    out: NDArray[Any] | None = None, return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def multiply(
    a: Floats, b: Floats, *, format: FormatLike | None = None, out: Out = None, return_flags: bool = ...,
    **options: Unpack[RoundingKeywords],
) -> Any: ...

@overload
def negative(
    a: FloatArray, *, out: FloatArray | None = None, return_flags: Literal[False] = ...,
    **options: Unpack[RoundingKeywords],
) -> FloatArray:
    """Return a with its sign bit inverted, NaNs included (IEEE 754-2019, 5.5.1)."""
@overload
def negative(
    a: FloatArray, *, out: FloatArray | None = None, return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def negative(
    a: NDArray[Any], *, out: NDArray[Any] | None = None, return_flags: Literal[False] = ...,
    **options: Unpack[RoundingKeywords],
) -> NDArray[Any]: ...
@overload
def negative(
    a: NDArray[Any], *, out: NDArray[Any] | None = None, return_flags: Literal[True],
    **options: Unpack[RoundingKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def negative(a: Floats, *, out: Out = None, return_flags: bool = ..., **options: Unpack[RoundingKeywords]) -> Any: ...

@overload
def next_down(a: FloatArray, *, return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords]) -> FloatArray:
    """Return the greatest number of the format less than a (nextDown, IEEE 754-2019, 5.3.1)."""
@overload
def next_down(
    a: FloatArray, *, return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def next_down(
    a: NDArray[Any], *, return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords],
) -> NDArray[Any]: ...
@overload
def next_down(
    a: NDArray[Any], *, return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def next_down(a: Floats, *, return_flags: bool = ..., **options: Unpack[RoundingKeywords]) -> Any: ...

@overload
def next_up(a: FloatArray, *, return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords]) -> FloatArray:
    """Return the least number of the format greater than a (nextUp, IEEE 754-2019, 5.3.1)."""
@overload
def next_up(
    a: FloatArray, *, return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def next_up(
    a: NDArray[Any], *, return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords],
) -> NDArray[Any]: ...
@overload
def next_up(
    a: NDArray[Any], *, return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def next_up(a: Floats, *, return_flags: bool = ..., **options: Unpack[RoundingKeywords]) -> Any: ...

@overload
def nextafter(
    a: FloatArray, direction: Floats, *, out: FloatArray | None = None, return_flags: Literal[False] = ...,
    **options: Unpack[RoundingKeywords],
) -> FloatArray:
    """Return the number of the format that follows a in a direction (nextafter of C and NumPy)."""
@overload
def nextafter(
    a: FloatArray, direction: Floats, *, out: FloatArray | None = None, return_flags: Literal[True],
    **options: Unpack[RoundingKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def nextafter(
    a: Floats, direction: FloatArray, *, out: FloatArray | None = None, return_flags: Literal[False] = ...,
    **options: Unpack[RoundingKeywords],
) -> FloatArray: ...
@overload
def nextafter(
    a: Floats, direction: FloatArray, *, out: FloatArray | None = None, return_flags: Literal[True],
    **options: Unpack[RoundingKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def nextafter(
    a: NDArray[Any], direction: NDArray[Any] | Scalar, *, out: NDArray[Any] | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords],
) -> NDArray[Any]: ...
@overload
def nextafter(
    a: NDArray[Any], direction: NDArray[Any] | Scalar, *, out: NDArray[Any] | None = None, return_flags: Literal[True],
    **options: Unpack[RoundingKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def nextafter(
    a: Scalar, direction: NDArray[Any], *, out: NDArray[Any] | None = None, return_flags: Literal[False] = ...,
    **options: Unpack[RoundingKeywords],
) -> NDArray[Any]: ...
@overload
def nextafter(
    a: Scalar, direction: NDArray[Any], *, out: NDArray[Any] | None = None, return_flags: Literal[True],
    **options: Unpack[RoundingKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def nextafter(
    a: Floats, direction: Floats, *, out: Out = None, return_flags: bool = ..., **options: Unpack[RoundingKeywords],
) -> Any: ...

@overload
def norm(
    x: FloatArray, axis: Axes = None, *, keepdims: bool = False, where: Any = None,
    accumulate: AccumulationLike | None = ..., format: FormatLike | None = ..., out: FloatArray | None = ...,
    **options: Unpack[SummationKeywords],
) -> FloatArray:
    """Return the Euclidean norm: the sum of the squares as described, then its root, rounded once."""
@overload
def norm(
    x: NDArray[Any], axis: Axes = None, *, keepdims: bool = False, where: Any = None,
    accumulate: ArrayAccumulationName | type[np.floating[Any]] | None = ...,
    format: ArrayFormatName | type[np.floating[Any]] | None = ..., out: NDArray[Any] | None = ...,
    **options: Unpack[SummationKeywords],
) -> NDArray[Any]: ...
@overload
def norm(
    x: Floats, axis: Axes = None, *, keepdims: bool = False, where: Any = None,
    accumulate: AccumulationLike | None = ..., format: FormatLike | None = ..., out: Out = ...,
    **options: Unpack[SummationKeywords],
) -> Any: ...

@overload
def not_equal(
    a: Scalar, b: Scalar, *, signaling: bool = False, out: BoolOut = None, return_flags: bool = ...,
    **options: Unpack[RoundingKeywords],
) -> Any:
    """Return whether a != b, by value (IEEE 754-2019, 5.6.1, 5.11)."""
@overload
def not_equal(
    a: Floats, b: Floats, *, signaling: bool = False, out: BoolOut = None, return_flags: Literal[False] = ...,
    **options: Unpack[RoundingKeywords],
) -> NDArray[np.bool_]: ...
@overload
def not_equal(
    a: Floats, b: Floats, *, signaling: bool = False, out: BoolOut = None, return_flags: Literal[True],
    **options: Unpack[RoundingKeywords],
) -> tuple[NDArray[np.bool_], Flags]: ...

@overload
def power(
    a: FloatArray, b: Floats, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> FloatArray:
    """Return a**b, rounded once (pow of IEEE 754-2019, 9.2.1)."""
@overload
def power(
    a: FloatArray, b: Floats, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[True], **options: Unpack[FunctionKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def power(
    a: Floats, b: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> FloatArray: ...
@overload
def power(
    a: Floats, b: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[True], **options: Unpack[FunctionKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def power(
    a: NDArray[Any], b: NDArray[Any] | Scalar, *, format: ArrayFormatName | type[np.floating[Any]] | None = None,
    out: NDArray[Any] | None = None, return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> NDArray[Any]: ...
@overload
def power(
    a: NDArray[Any], b: NDArray[Any] | Scalar, *, format: ArrayFormatName | type[np.floating[Any]] | None = None,
    out: NDArray[Any] | None = None, return_flags: Literal[True], **options: Unpack[FunctionKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def power(
    a: Scalar, b: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None,
    out: NDArray[Any] | None = None, return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> NDArray[Any]: ...
@overload
def power(
    a: Scalar, b: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None,
    out: NDArray[Any] | None = None, return_flags: Literal[True], **options: Unpack[FunctionKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def power(
    a: Floats, b: Floats, *, format: FormatLike | None = None, out: Out = None, return_flags: bool = ...,
    **options: Unpack[FunctionKeywords],
) -> Any: ...

@overload
def prod(
    x: FloatArray, axis: Axes = None, *, keepdims: bool = False, where: Any = None, initial: Any = None,
    accumulate: AccumulationLike | None = ..., format: FormatLike | None = ..., out: FloatArray | None = ...,
    **options: Unpack[SummationKeywords],
) -> FloatArray:
    """Multiply the elements along axes, in order or along a tree."""
@overload
def prod(
    x: NDArray[Any], axis: Axes = None, *, keepdims: bool = False, where: Any = None, initial: Any = None,
    accumulate: ArrayAccumulationName | type[np.floating[Any]] | None = ...,
    format: ArrayFormatName | type[np.floating[Any]] | None = ..., out: NDArray[Any] | None = ...,
    **options: Unpack[SummationKeywords],
) -> NDArray[Any]: ...
@overload
def prod(
    x: Floats, axis: Axes = None, *, keepdims: bool = False, where: Any = None, initial: Any = None,
    accumulate: AccumulationLike | None = ..., format: FormatLike | None = ..., out: Out = ...,
    **options: Unpack[SummationKeywords],
) -> Any: ...

@overload
def quantize(
    x: FloatArray, format: FormatLike, *, out: FloatArray | None = None, return_flags: Literal[False] = ...,
    **options: Unpack[RoundingKeywords],
) -> FloatArray:
    """Round values to the values of a format and keep them in their own dtype."""
@overload
def quantize(
    x: FloatArray, format: FormatLike, *, out: FloatArray | None = None, return_flags: Literal[True],
    **options: Unpack[RoundingKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def quantize(
    x: NDArray[Any], format: FormatLike, *, out: NDArray[Any] | None = None, return_flags: Literal[False] = ...,
    **options: Unpack[RoundingKeywords],
) -> NDArray[Any]: ...
@overload
def quantize(
    x: NDArray[Any], format: FormatLike, *, out: NDArray[Any] | None = None, return_flags: Literal[True],
    **options: Unpack[RoundingKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def quantize(
    x: Floats, format: FormatLike, *, out: Out = None, return_flags: bool = ..., **options: Unpack[RoundingKeywords],
) -> Any: ...

@overload
def reciprocal(
    a: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> FloatArray:
    """Return 1 / a, rounded once."""
@overload
def reciprocal(
    a: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None, return_flags: Literal[True],
    **options: Unpack[FunctionKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def reciprocal(
    a: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None, out: NDArray[Any] | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> NDArray[Any]: ...
@overload
def reciprocal(
    a: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None, out: NDArray[Any] | None = None,
    return_flags: Literal[True], **options: Unpack[FunctionKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def reciprocal(
    a: Floats, *, format: FormatLike | None = None, out: Out = None, return_flags: bool = ...,
    **options: Unpack[FunctionKeywords],
) -> Any: ...

@overload
def remainder(
    a: FloatArray, b: Floats, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords],
) -> FloatArray:
    """Return the IEEE remainder a - n*b, n being the integer nearest to a/b (IEEE 754-2019, 5.3.1)."""
@overload
def remainder(
    a: FloatArray, b: Floats, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def remainder(
    a: Floats, b: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords],
) -> FloatArray: ...
@overload
def remainder(
    a: Floats, b: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def remainder(
    a: NDArray[Any], b: NDArray[Any] | Scalar, *, format: ArrayFormatName | type[np.floating[Any]] | None = None,
    out: NDArray[Any] | None = None, return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords],
) -> NDArray[Any]: ...
@overload
def remainder(
    a: NDArray[Any], b: NDArray[Any] | Scalar, *, format: ArrayFormatName | type[np.floating[Any]] | None = None,
    out: NDArray[Any] | None = None, return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def remainder(
    a: Scalar, b: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None,
    out: NDArray[Any] | None = None, return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords],
) -> NDArray[Any]: ...
@overload
def remainder(
    a: Scalar, b: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None,
    out: NDArray[Any] | None = None, return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def remainder(
    a: Floats, b: Floats, *, format: FormatLike | None = None, out: Out = None, return_flags: bool = ...,
    **options: Unpack[RoundingKeywords],
) -> Any: ...

@overload
def rint(
    a: FloatArray, *, out: FloatArray | None = None, return_flags: Literal[False] = ...,
    **options: Unpack[RoundingKeywords],
) -> FloatArray:
    """Round a to integral values in the rounding mode of the call (IEEE 754-2019, 5.9)."""
@overload
def rint(
    a: FloatArray, *, out: FloatArray | None = None, return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def rint(
    a: NDArray[Any], *, out: NDArray[Any] | None = None, return_flags: Literal[False] = ...,
    **options: Unpack[RoundingKeywords],
) -> NDArray[Any]: ...
@overload
def rint(
    a: NDArray[Any], *, out: NDArray[Any] | None = None, return_flags: Literal[True],
    **options: Unpack[RoundingKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def rint(a: Floats, *, out: Out = None, return_flags: bool = ..., **options: Unpack[RoundingKeywords]) -> Any: ...

@overload
def rsqrt(
    a: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> FloatArray:
    """Return 1 / sqrt(a), rounded once (rSqrt of IEEE 754-2019, 9.2)."""
@overload
def rsqrt(
    a: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None, return_flags: Literal[True],
    **options: Unpack[FunctionKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def rsqrt(
    a: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None, out: NDArray[Any] | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> NDArray[Any]: ...
@overload
def rsqrt(
    a: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None, out: NDArray[Any] | None = None,
    return_flags: Literal[True], **options: Unpack[FunctionKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def rsqrt(
    a: Floats, *, format: FormatLike | None = None, out: Out = None, return_flags: bool = ...,
    **options: Unpack[FunctionKeywords],
) -> Any: ...

@overload
def scalb(
    a: FloatArray, n: Integers, *, out: FloatArray | None = None, return_flags: Literal[False] = ...,
    **options: Unpack[RoundingKeywords],
) -> FloatArray:
    """Return a * 2**n, rounded once (IEEE 754-2019, 5.3.3)."""
@overload
def scalb(
    a: FloatArray, n: Integers, *, out: FloatArray | None = None, return_flags: Literal[True],
    **options: Unpack[RoundingKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def scalb(
    a: NDArray[Any], n: Integers, *, out: NDArray[Any] | None = None, return_flags: Literal[False] = ...,
    **options: Unpack[RoundingKeywords],
) -> NDArray[Any]: ...
@overload
def scalb(
    a: NDArray[Any], n: Integers, *, out: NDArray[Any] | None = None, return_flags: Literal[True],
    **options: Unpack[RoundingKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def scalb(
    a: Floats, n: Integers, *, out: Out = None, return_flags: bool = ..., **options: Unpack[RoundingKeywords],
) -> Any: ...

@overload
def scaled_mm(
    a: FloatArray, b: Floats, scale_a: Values, scale_b: Values, *, bias: Floats | None = None,
    scale_result: Values | None = None, format: FormatLike = 'bf16', use_fast_accum: bool = False,
    accumulate: AccumulationLike = 'hopper', out: FloatArray | None = None,
) -> FloatArray:
    """Return the product of FP8 matrices with FP32 scales, as `torch._scaled_mm` and cuBLASLt compute it."""
@overload
def scaled_mm(
    a: Floats, b: FloatArray, scale_a: Values, scale_b: Values, *, bias: Floats | None = None,
    scale_result: Values | None = None, format: FormatLike = 'bf16', use_fast_accum: bool = False,
    accumulate: AccumulationLike = 'hopper', out: FloatArray | None = None,
) -> FloatArray: ...
@overload
def scaled_mm(
    a: Floats, b: Floats, scale_a: FloatArray, scale_b: Values, *, bias: Floats | None = None,
    scale_result: Values | None = None, format: FormatLike = 'bf16', use_fast_accum: bool = False,
    accumulate: AccumulationLike = 'hopper', out: FloatArray | None = None,
) -> FloatArray: ...
@overload
def scaled_mm(
    a: Floats, b: Floats, scale_a: Values, scale_b: FloatArray, *, bias: Floats | None = None,
    scale_result: Values | None = None, format: FormatLike = 'bf16', use_fast_accum: bool = False,
    accumulate: AccumulationLike = 'hopper', out: FloatArray | None = None,
) -> FloatArray: ...
@overload
def scaled_mm(
    a: NDArray[Any], b: NDArray[Any] | Scalar, scale_a: NDArray[Any] | Scalar, scale_b: NDArray[Any] | Scalar, *,
    bias: Floats | None = None, scale_result: Values | None = None,
    format: ArrayFormatName | type[np.floating[Any]] | None = 'bf16', use_fast_accum: bool = False,
    accumulate: ArrayAccumulationName | type[np.floating[Any]] | None = 'hopper', out: NDArray[Any] | None = None,
) -> NDArray[Any]: ...
@overload
def scaled_mm(
    a: Scalar, b: NDArray[Any], scale_a: NDArray[Any] | Scalar, scale_b: NDArray[Any] | Scalar, *,
    bias: Floats | None = None, scale_result: Values | None = None,
    format: ArrayFormatName | type[np.floating[Any]] | None = 'bf16', use_fast_accum: bool = False,
    accumulate: ArrayAccumulationName | type[np.floating[Any]] | None = 'hopper', out: NDArray[Any] | None = None,
) -> NDArray[Any]: ...
@overload
def scaled_mm(
    a: Scalar, b: Scalar, scale_a: NDArray[Any], scale_b: NDArray[Any] | Scalar, *, bias: Floats | None = None,
    scale_result: Values | None = None, format: ArrayFormatName | type[np.floating[Any]] | None = 'bf16',
    use_fast_accum: bool = False, accumulate: ArrayAccumulationName | type[np.floating[Any]] | None = 'hopper',
    out: NDArray[Any] | None = None,
) -> NDArray[Any]: ...
@overload
def scaled_mm(
    a: Scalar, b: Scalar, scale_a: Scalar, scale_b: NDArray[Any], *, bias: Floats | None = None,
    scale_result: Values | None = None, format: ArrayFormatName | type[np.floating[Any]] | None = 'bf16',
    use_fast_accum: bool = False, accumulate: ArrayAccumulationName | type[np.floating[Any]] | None = 'hopper',
    out: NDArray[Any] | None = None,
) -> NDArray[Any]: ...
@overload
def scaled_mm(
    a: Floats, b: Floats, scale_a: Values, scale_b: Values, *, bias: Floats | None = None,
    scale_result: Values | None = None, format: FormatLike = 'bf16', use_fast_accum: bool = False,
    accumulate: AccumulationLike = 'hopper', out: Out = None,
) -> Any: ...

@overload
def sigmoid(
    a: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> FloatArray:
    """Return the logistic function 1 / (1 + exp(-a)), rounded once."""
@overload
def sigmoid(
    a: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None, return_flags: Literal[True],
    **options: Unpack[FunctionKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def sigmoid(
    a: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None, out: NDArray[Any] | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> NDArray[Any]: ...
@overload
def sigmoid(
    a: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None, out: NDArray[Any] | None = None,
    return_flags: Literal[True], **options: Unpack[FunctionKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def sigmoid(
    a: Floats, *, format: FormatLike | None = None, out: Out = None, return_flags: bool = ...,
    **options: Unpack[FunctionKeywords],
) -> Any: ...

@overload
def signbit(a: Scalar) -> Any:
    """Return whether each element has its sign bit set, NaNs included (IEEE 754-2019, 5.7.2)."""
@overload
def signbit(a: Floats) -> NDArray[np.bool_]: ...

@overload
def silu(
    a: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> FloatArray:
    """Return a * sigmoid(a), rounded once (SiLU or swish; S. Elfwing et al., arXiv:1702.03118)."""
@overload
def silu(
    a: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None, return_flags: Literal[True],
    **options: Unpack[FunctionKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def silu(
    a: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None, out: NDArray[Any] | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> NDArray[Any]: ...
@overload
def silu(
    a: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None, out: NDArray[Any] | None = None,
    return_flags: Literal[True], **options: Unpack[FunctionKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def silu(
    a: Floats, *, format: FormatLike | None = None, out: Out = None, return_flags: bool = ...,
    **options: Unpack[FunctionKeywords],
) -> Any: ...

@overload
def sin(
    a: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> FloatArray:
    """Return the sine of a in radians, rounded once (IEEE 754-2019, 9.2)."""
@overload
def sin(
    a: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None, return_flags: Literal[True],
    **options: Unpack[FunctionKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def sin(
    a: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None, out: NDArray[Any] | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> NDArray[Any]: ...
@overload
def sin(
    a: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None, out: NDArray[Any] | None = None,
    return_flags: Literal[True], **options: Unpack[FunctionKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def sin(
    a: Floats, *, format: FormatLike | None = None, out: Out = None, return_flags: bool = ...,
    **options: Unpack[FunctionKeywords],
) -> Any: ...

@overload
def sinh(
    a: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> FloatArray:
    """Return the hyperbolic sine of a, rounded once (IEEE 754-2019, 9.2)."""
@overload
def sinh(
    a: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None, return_flags: Literal[True],
    **options: Unpack[FunctionKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def sinh(
    a: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None, out: NDArray[Any] | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> NDArray[Any]: ...
@overload
def sinh(
    a: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None, out: NDArray[Any] | None = None,
    return_flags: Literal[True], **options: Unpack[FunctionKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def sinh(
    a: Floats, *, format: FormatLike | None = None, out: Out = None, return_flags: bool = ...,
    **options: Unpack[FunctionKeywords],
) -> Any: ...

@overload
def softplus(
    a: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> FloatArray:
    """Return log(1 + exp(a)), rounded once."""
@overload
def softplus(
    a: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None, return_flags: Literal[True],
    **options: Unpack[FunctionKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def softplus(
    a: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None, out: NDArray[Any] | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> NDArray[Any]: ...
@overload
def softplus(
    a: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None, out: NDArray[Any] | None = None,
    return_flags: Literal[True], **options: Unpack[FunctionKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def softplus(
    a: Floats, *, format: FormatLike | None = None, out: Out = None, return_flags: bool = ...,
    **options: Unpack[FunctionKeywords],
) -> Any: ...

@overload
def sqrt(
    a: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords],
) -> FloatArray:
    """Return the square root of a, rounded once (IEEE 754-2019, 5.4.1)."""
@overload
def sqrt(
    a: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None, return_flags: Literal[True],
    **options: Unpack[RoundingKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def sqrt(
    a: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None, out: NDArray[Any] | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords],
) -> NDArray[Any]: ...
@overload
def sqrt(
    a: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None, out: NDArray[Any] | None = None,
    return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def sqrt(
    a: Floats, *, format: FormatLike | None = None, out: Out = None, return_flags: bool = ...,
    **options: Unpack[RoundingKeywords],
) -> Any: ...

@overload
def subtract(
    a: FloatArray, b: Floats, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords],
) -> FloatArray:
    """Return a - b, rounded once (IEEE 754-2019, 5.4.1)."""
@overload
def subtract(
    a: FloatArray, b: Floats, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def subtract(
    a: Floats, b: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords],
) -> FloatArray: ...
@overload
def subtract(
    a: Floats, b: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def subtract(
    a: NDArray[Any], b: NDArray[Any] | Scalar, *, format: ArrayFormatName | type[np.floating[Any]] | None = None,
    out: NDArray[Any] | None = None, return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords],
) -> NDArray[Any]: ...
@overload
def subtract(
    a: NDArray[Any], b: NDArray[Any] | Scalar, *, format: ArrayFormatName | type[np.floating[Any]] | None = None,
    out: NDArray[Any] | None = None, return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def subtract(
    a: Scalar, b: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None,
    out: NDArray[Any] | None = None, return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords],
) -> NDArray[Any]: ...
@overload
def subtract(
    a: Scalar, b: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None,
    out: NDArray[Any] | None = None, return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def subtract(
    a: Floats, b: Floats, *, format: FormatLike | None = None, out: Out = None, return_flags: bool = ...,
    **options: Unpack[RoundingKeywords],
) -> Any: ...

@overload
def sum(
    x: FloatArray, axis: Axes = None, *, keepdims: bool = False, where: Any = None, initial: Any = None,
    accumulate: AccumulationLike | None = ..., format: FormatLike | None = ..., out: FloatArray | None = ...,
    **options: Unpack[SummationKeywords],
) -> FloatArray:
    """Sum the elements along axes, with the formats, the roundings and the order of a description."""
@overload
def sum(
    x: NDArray[Any], axis: Axes = None, *, keepdims: bool = False, where: Any = None, initial: Any = None,
    accumulate: ArrayAccumulationName | type[np.floating[Any]] | None = ...,
    format: ArrayFormatName | type[np.floating[Any]] | None = ..., out: NDArray[Any] | None = ...,
    **options: Unpack[SummationKeywords],
) -> NDArray[Any]: ...
@overload
def sum(
    x: Floats, axis: Axes = None, *, keepdims: bool = False, where: Any = None, initial: Any = None,
    accumulate: AccumulationLike | None = ..., format: FormatLike | None = ..., out: Out = ...,
    **options: Unpack[SummationKeywords],
) -> Any: ...

@overload
def tan(
    a: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> FloatArray:
    """Return the tangent of a in radians, rounded once (IEEE 754-2019, 9.2)."""
@overload
def tan(
    a: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None, return_flags: Literal[True],
    **options: Unpack[FunctionKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def tan(
    a: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None, out: NDArray[Any] | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> NDArray[Any]: ...
@overload
def tan(
    a: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None, out: NDArray[Any] | None = None,
    return_flags: Literal[True], **options: Unpack[FunctionKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def tan(
    a: Floats, *, format: FormatLike | None = None, out: Out = None, return_flags: bool = ...,
    **options: Unpack[FunctionKeywords],
) -> Any: ...

@overload
def tanh(
    a: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> FloatArray:
    """Return the hyperbolic tangent of a, rounded once (IEEE 754-2019, 9.2)."""
@overload
def tanh(
    a: FloatArray, *, format: FormatLike | None = None, out: FloatArray | None = None, return_flags: Literal[True],
    **options: Unpack[FunctionKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def tanh(
    a: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None, out: NDArray[Any] | None = None,
    return_flags: Literal[False] = ..., **options: Unpack[FunctionKeywords],
) -> NDArray[Any]: ...
@overload
def tanh(
    a: NDArray[Any], *, format: ArrayFormatName | type[np.floating[Any]] | None = None, out: NDArray[Any] | None = None,
    return_flags: Literal[True], **options: Unpack[FunctionKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def tanh(
    a: Floats, *, format: FormatLike | None = None, out: Out = None, return_flags: bool = ...,
    **options: Unpack[FunctionKeywords],
) -> Any: ...

@overload
def to_integer(x: Scalar, dtype: DTypeLike, *, return_flags: bool = ..., **options: Unpack[RoundingKeywords]) -> Any:
    """Round to integers of a NumPy dtype (IEEE 754-2019, 5.8): by default to nearest, not toward zero as C does."""
@overload
def to_integer(
    x: Floats, dtype: DTypeLike, *, return_flags: Literal[False] = ..., **options: Unpack[RoundingKeywords],
) -> NDArray[np.integer[Any]]: ...
@overload
def to_integer(
    x: Floats, dtype: DTypeLike, *, return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[NDArray[np.integer[Any]], Flags]: ...

@overload
def total_order(a: Scalar, b: Scalar) -> Any:
    """Return totalOrder(a, b), an order of the codes (IEEE 754-2019, 5.10)."""
@overload
def total_order(a: Floats, b: Floats) -> NDArray[np.bool_]: ...

@overload
def trunc(
    a: FloatArray, *, out: FloatArray | None = None, return_flags: Literal[False] = ...,
    **options: Unpack[RoundingKeywords],
) -> FloatArray:
    """Return a without its fraction, an integral value (IEEE 754-2019, 5.9)."""
@overload
def trunc(
    a: FloatArray, *, out: FloatArray | None = None, return_flags: Literal[True], **options: Unpack[RoundingKeywords],
) -> tuple[FloatArray, Flags]: ...
@overload
def trunc(
    a: NDArray[Any], *, out: NDArray[Any] | None = None, return_flags: Literal[False] = ...,
    **options: Unpack[RoundingKeywords],
) -> NDArray[Any]: ...
@overload
def trunc(
    a: NDArray[Any], *, out: NDArray[Any] | None = None, return_flags: Literal[True],
    **options: Unpack[RoundingKeywords],
) -> tuple[NDArray[Any], Flags]: ...
@overload
def trunc(a: Floats, *, out: Out = None, return_flags: bool = ..., **options: Unpack[RoundingKeywords]) -> Any: ...

@overload
def ulp(x: Scalar, format: FormatLike | None = None, kind: Kind = 'goldberg') -> Any:
    """Return the unit in the last place of real numbers x in a format."""
@overload
def ulp(x: Floats, format: FormatLike | None = None, kind: Kind = 'goldberg') -> NDArray[np.float64]: ...

@overload
def ulp_distance(a: Scalar, b: Scalar, *, equal_nan: bool = False) -> Any:
    """Return the number of steps between neighbouring numbers of a format that lead from a to b."""
@overload
def ulp_distance(a: Floats, b: Floats, *, equal_nan: bool = False) -> NDArray[np.uint64]: ...

@overload
def unordered(
    a: Scalar, b: Scalar, *, signaling: bool = False, out: BoolOut = None, return_flags: bool = ...,
    **options: Unpack[RoundingKeywords],
) -> Any:
    """Return whether a or b is NaN, by value (IEEE 754-2019, 5.6.1, 5.11)."""
@overload
def unordered(
    a: Floats, b: Floats, *, signaling: bool = False, out: BoolOut = None, return_flags: Literal[False] = ...,
    **options: Unpack[RoundingKeywords],
) -> NDArray[np.bool_]: ...
@overload
def unordered(
    a: Floats, b: Floats, *, signaling: bool = False, out: BoolOut = None, return_flags: Literal[True],
    **options: Unpack[RoundingKeywords],
) -> tuple[NDArray[np.bool_], Flags]: ...

@overload
def var(
    x: FloatArray, axis: Axes = None, *, ddof: int = 0, keepdims: bool = False, where: Any = None,
    accumulate: AccumulationLike | None = ..., format: FormatLike | None = ..., out: FloatArray | None = ...,
    **options: Unpack[SummationKeywords],
) -> FloatArray:
    """Return the variance: the mean square of the differences from the mean."""
@overload
def var(
    x: NDArray[Any], axis: Axes = None, *, ddof: int = 0, keepdims: bool = False, where: Any = None,
    accumulate: ArrayAccumulationName | type[np.floating[Any]] | None = ...,
    format: ArrayFormatName | type[np.floating[Any]] | None = ..., out: NDArray[Any] | None = ...,
    **options: Unpack[SummationKeywords],
) -> NDArray[Any]: ...
@overload
def var(
    x: Floats, axis: Axes = None, *, ddof: int = 0, keepdims: bool = False, where: Any = None,
    accumulate: AccumulationLike | None = ..., format: FormatLike | None = ..., out: Out = ...,
    **options: Unpack[SummationKeywords],
) -> Any: ...

@overload
def vdot(
    a: FloatArray, b: Floats, *, c: Floats | None = None, alpha: Values = 1, beta: Values = 1,
    accumulate: AccumulationLike | None = None, scale_a: Floats | None = None, scale_b: Floats | None = None,
    format: FormatLike | None = None, rounding: RoundingLike | None = None, overflow: OverflowLike | None = None,
    result_rounding: RoundingLike | None = None, daz: bool | None = None, ftz: bool | None = None,
    tininess: TininessLike | None = None, seed: SeedLike | None = None, random_bits: int | None = None,
    part: Part | None = None, out: FloatArray | None = None, backend: BackendName | None = None,
) -> FloatArray:
    """Return the dot product of two arrays of equal size, flattened in C order."""
@overload
def vdot(
    a: Floats, b: FloatArray, *, c: Floats | None = None, alpha: Values = 1, beta: Values = 1,
    accumulate: AccumulationLike | None = None, scale_a: Floats | None = None, scale_b: Floats | None = None,
    format: FormatLike | None = None, rounding: RoundingLike | None = None, overflow: OverflowLike | None = None,
    result_rounding: RoundingLike | None = None, daz: bool | None = None, ftz: bool | None = None,
    tininess: TininessLike | None = None, seed: SeedLike | None = None, random_bits: int | None = None,
    part: Part | None = None, out: FloatArray | None = None, backend: BackendName | None = None,
) -> FloatArray: ...
@overload
def vdot(
    a: NDArray[Any], b: NDArray[Any] | Scalar, *, c: Floats | None = None, alpha: Values = 1, beta: Values = 1,
    accumulate: ArrayAccumulationName | type[np.floating[Any]] | None = None, scale_a: Floats | None = None,
    scale_b: Floats | None = None, format: ArrayFormatName | type[np.floating[Any]] | None = None,
    rounding: RoundingLike | None = None, overflow: OverflowLike | None = None,
    result_rounding: RoundingLike | None = None, daz: bool | None = None, ftz: bool | None = None,
    tininess: TininessLike | None = None, seed: SeedLike | None = None, random_bits: int | None = None,
    part: Part | None = None, out: NDArray[Any] | None = None, backend: BackendName | None = None,
) -> NDArray[Any]: ...
@overload
def vdot(
    a: Scalar, b: NDArray[Any], *, c: Floats | None = None, alpha: Values = 1, beta: Values = 1,
    accumulate: ArrayAccumulationName | type[np.floating[Any]] | None = None, scale_a: Floats | None = None,
    scale_b: Floats | None = None, format: ArrayFormatName | type[np.floating[Any]] | None = None,
    rounding: RoundingLike | None = None, overflow: OverflowLike | None = None,
    result_rounding: RoundingLike | None = None, daz: bool | None = None, ftz: bool | None = None,
    tininess: TininessLike | None = None, seed: SeedLike | None = None, random_bits: int | None = None,
    part: Part | None = None, out: NDArray[Any] | None = None, backend: BackendName | None = None,
) -> NDArray[Any]: ...
@overload
def vdot(
    a: Floats, b: Floats, *, c: Floats | None = None, alpha: Values = 1, beta: Values = 1,
    accumulate: AccumulationLike | None = None, scale_a: Floats | None = None, scale_b: Floats | None = None,
    format: FormatLike | None = None, rounding: RoundingLike | None = None, overflow: OverflowLike | None = None,
    result_rounding: RoundingLike | None = None, daz: bool | None = None, ftz: bool | None = None,
    tininess: TininessLike | None = None, seed: SeedLike | None = None, random_bits: int | None = None,
    part: Part | None = None, out: Out = None, backend: BackendName | None = None,
) -> Any: ...
