"""Floating-point formats, rounding modes and summation orders as data, computed bit for bit.

Where to begin
--------------
>>> import floatsim as fs
>>> x = fs.array([0.1, 1e5], "fp16")  # numbers in a format; NumPy's operators and functions work on them
>>> x, x + 1
(FloatArray([0.099976, inf], FP16), FloatArray([1.0996, inf], FP16))
>>> fs.quantize([0.1, 1e5], "bf16")  # rounded to a format, returned as float64
array([1.00097656e-01, 9.98400000e+04])
>>> y = fs.array([2048, 1, 1], "fp16")
>>> fs.sum(y, accumulate="fp16"), fs.sum(y, accumulate="kahan(fp16)")  # the description of a sum: order, accumulator
(FloatArray(2048.0, FP16), FloatArray(2050.0, FP16))

Each function has its own page, `help(fs.matmul)`. The names by topic:

Numbers
    formats         FP64 FP32 TF32 FP16 BF16 E4M3 E5M2 E2M1 E8M0 ...; `print(fs.E4M3)` shows its parameters
    custom formats  FloatFormat; as_format("e4m3") finds a format by name, FORMATS has all of them
    FloatArray      array(values, "fp16"), from_codes, save, load; to_torch, to_jax
    codes           encode (values to codes), decode (codes to values), to_integer, from_integer
    rounding        quantize (keeps the dtype), convert (to another format), explain_rounding
    quantization    quantize_blocks (integers, "nf4", "mxfp8" ...: blocks with scales), dequantize_blocks,
                    best_scale (calibration), pack and unpack (codes in the bytes and words of libraries),
                    identify_quantizer (which rules made codes and scales)
    losses          conversion_losses (shares), exponent_histogram (numbers for each power of two),
                    significant_digits (of stochastic_samples)
Operations
    arithmetic      add subtract multiply divide sqrt fma remainder scalb rint ...: one rounding each
    functions       exp log sin tanh erf power rsqrt sigmoid gelu silu ...: correctly rounded
    step by step    explain_add, explain_multiply, explain_fma: align, add, normalize, round, in words and bits;
                    trace (every rounding of a dot product or a sum)
    comparison      equal less total_order classify isnan issubnormal ...
    errors          ulp, ulp_distance, equal_shares (equal bits of every pair of results)
    sums            matmul dot einsum sum mean norm var prod cumsum; `accumulate=` "fp16", "kahan(bf16)", "hopper" ...
                    scaled_mm (FP8 with FP32 scales, as torch._scaled_mm)
    descriptions    Sequential Pairwise Tree Kahan Neumaier Exact Strided Blocked SplitK Parts Threads Permuted
                    TensorCore Welford Sklansky Converted Residue Tf32x3 Epilogue (parts of GPU kernels),
                    as_accumulation (from text), ACCUMULATIONS (the names)
    analysis        reveal_order and reveal_width (of any kernel), explain_plan (why a call is fast or slow),
                    identify (which description reproduces a kernel), library_sum (how NumPy, torch and JAX add on a
                    CPU, and how cuBLAS and cuDNN add on a GPU)
Settings
    options         rounding= overflow= daz= ftz= tininess= seed= of each call; `help(fs.quantize)` explains them
    context         with fs.context(rounding="toward_zero"): the options of all calls inside
    threads         set_num_threads(1), or the environment variable FLOATSIM_NUM_THREADS
    record          with fs.record() as log: counts overflow, underflow, absorbed terms, ...
    scope           with fs.scope("layer1"): names a part of a computation in the log
More
    explorer        a page to click, offline: bits, operations, sums, a Tensor Core's dot product, block scales
    survey          one array or layer in many formats and accumulations, as a table
    operators       softmax, norms, attention, ... with every intermediate in a chosen format; sensitivity ranks them
    training        policies (formats of a training run), loss scaling, optimizers, small networks
    sweep           a function for every item of a grid, in processes or on other machines, as a table
    testing         assert_bit_equal, assert_max_ulp, assert_product ...: is a kernel correct, and if not, where?
    algorithms      JAX's dot algorithms, 2:4 sparse products, the Ozaki scheme II, binned sums
    modules         plot (pictures), tensorcore (matrix units), hardware (GPUs), approx (functions as a GPU approximates
                    them), njit (in Numba loops), datasets, quantization (formats and schemes), torch (an unmodified
                    PyTorch model in a number format; it needs PyTorch), reference (the specification on exact integers)

The command `floatsim` offers the same from a shell. Names are imported when they are first used: `import floatsim`
itself loads nothing, not even NumPy. Below, `help(fs)` lists every public name in full.
"""

from __future__ import annotations

from floatsim._lazy import lazy_exports

__version__ = "0.1.0"

_HOMES = {
    ".formats.format": (
        "BF16 E2M1 E2M3 E3M2 E3M4 E4M3 E4M3B11FNUZ E4M3FNUZ E4M3IEEE E5M2 E5M2FNUZ E8M0 FP16 FP32 FP64 TF32 "
        "FORMATS FloatFormat Specials as_format named_formats p3109"
    ),
    ".formats.rounding": "DIVIDE_BY_ZERO INEXACT INVALID OVERFLOW UNDERFLOW FloatClass Overflow Rounding Tininess",
    "._warnings": "FloatsimWarning",
    ".arrays.call.options": "Context bind_context context get_context",
    ".arrays.events.record": "record scope",
    ".arrays.call.random_stream": "RandomStream",
    ".arrays.call.random_sources": "PHILOX_ARRANGEMENTS Lfsr Philox RandomGenerator Threefry",
    ".arrays.array.float_array": "FloatArray from_codes load save",
    ".arrays.array.conversion": "array convert decode encode from_integer quantize to_integer",
    ".arrays.elementwise.projection": "project",
    ".arrays.elementwise.arithmetic": (
        "absolute add ceil copysign divide floor fma fmod logb maximum maximum_number minimum minimum_number "
        "multiply negative next_down next_up nextafter remainder rint scalb sqrt subtract trunc"
    ),
    ".arrays.elementwise.functions": (
        "acos asin atan cbrt cos cosh erf exp exp10 exp2 expm1 gelu hypot log log10 log1p log2 mish power "
        "reciprocal rsqrt sigmoid silu sin sinh softplus tan tanh"
    ),
    ".arrays.elementwise.library_functions": "library_function",
    ".arrays.elementwise.comparison": (
        "classify equal greater greater_equal isfinite isinf isnan issubnormal less less_equal not_equal signbit "
        "total_order unordered"
    ),
    ".accumulation": (
        "ACCUMULATIONS Blocked Converted Epilogue Exact Kahan Neumaier Pairwise Parts Permuted Residue Sequential "
        "Sklansky SplitK Strided TensorCore Tf32x3 Threads Tree Welford as_accumulation"
    ),
    ".accumulation.libraries": "NotDescribedError library_sum",
    ".arrays.library_reductions": "library_reduction",
    ".arrays.sums.products": "Part dot explain_plan matmul",
    ".arrays.sums.product_bounds": "product_bounds",
    ".arrays.sums.einsum": "einsum",
    ".arrays.scaled_mm": "scaled_mm",
    ".arrays.array.torch_jax": "to_jax to_torch",
    ".emulator.parallel": "get_num_threads set_num_threads",
    ".analysis.summation_order": "reveal_order reveal_width",
    ".arrays.sums.reductions": "cumsum mean moments norm prod sum var vdot",
    ".arrays.elementwise.ulps": "ulp ulp_distance",
    ".analysis.equality": "equal_shares",
    ".analysis.explain": "explain_rounding",
    ".analysis.explain_expression": "ExplainedExpression explain",
    ".analysis.explain_operation": "ExplainedOperation explain_add explain_fma explain_multiply",
    ".analysis.exponent_histogram": "ExponentHistogram exponent_histogram",
    ".analysis.conversion_losses": "ConversionLosses conversion_losses",
    ".analysis.random_bits": "RandomBitsBias random_bits_bias",
    ".analysis.significant_digits": "significant_digits stochastic_samples",
    ".analysis.survey.survey": "survey",
    ".analysis.sweeps": "SweepTable sweep",
    ".analysis.trace.trace": "trace",
    ".quantization.blocks": "dequantize_blocks quantize_blocks",
    ".quantization.calibration": "best_scale",
    ".quantization.packing": "pack unpack",
    ".operators.errors": "sensitivity",
    ".testing.identify.identification": "identify",
    ".testing.quantizers.identification": "identify_quantizer",
    ".explorer.page": "explorer",
}
_OPTIONAL = "torch triton"
__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    _HOMES,
    modules=(
        "algorithms approx datasets hardware njit operators plot quantization reference tensorcore testing training"
    ),
    optional=_OPTIONAL,
)
