"""Mathematical functions: exponentials, logarithms, trigonometry and activations, each rounded once.

All results are correctly rounded, in every rounding mode, with flags: the result is that of the exact value, rounded
once. `floatsim.reference.functions` is the specification. Arguments of at most 16 bits are read from tables, and those
of at most 24 bits (FP32) use kernels whose bounds are certain. FP64 uses the reference: about a thousand results per
second.

Sources of the activations are in their docstrings. An activation that a network evaluates in several steps, each of
them rounded, is an operator: see `floatsim.operators`.
"""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np

from floatsim.arrays.array.float_array import FloatArray, from_codes, implements
from floatsim.arrays.array.operands import deliver, operate, read_operands
from floatsim.arrays.array.types import FloatResult, Floats, Out
from floatsim.arrays.elementwise.arithmetic import add, fma, maximum_number, subtract
from floatsim.arrays.elementwise.library_functions import FunctionOptions, function, library_call, taken
from floatsim.formats import FP32, FormatLike

__all__ = [
    "acos",
    "asin",
    "atan",
    "cbrt",
    "cos",
    "cosh",
    "erf",
    "exp",
    "exp2",
    "exp10",
    "expm1",
    "gelu",
    "hypot",
    "log",
    "log1p",
    "log2",
    "log10",
    "mish",
    "power",
    "reciprocal",
    "rsqrt",
    "sigmoid",
    "silu",
    "sin",
    "sinh",
    "softplus",
    "tan",
    "tanh",
]  # fmt: skip


def _call(name: str, arguments: dict[str, Any], format: FormatLike | None, out: Any, options: FunctionOptions) -> Any:
    if "functions" not in options:
        return operate(name, arguments, format, out, options, "function")
    library, rounding = taken(options)
    if library == "exact":
        return operate(name, arguments, format, out, rounding, "function")
    return library_call(name, arguments, format, out, rounding)


@implements(np.exp)
@function
def exp(
    a: Floats, *, format: FormatLike | None = None, out: Out = None, **options: Unpack[FunctionOptions]
) -> FloatResult:
    """Return e**a, rounded once (IEEE 754-2019, 9.2).

    exp(0) is 1 exactly; no other result is exact.

    {parameters}

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.exp(fs.array([1.0, 12.0], "fp16"))
    FloatArray([2.7188, inf], FP16)
    """
    return _call("exp", {"a": a}, format, out, options)


@implements(np.exp2)
@function
def exp2(
    a: Floats,
    *,
    approximate: str = "none",
    format: FormatLike | None = None,
    out: Out = None,
    **options: Unpack[FunctionOptions],
) -> FloatResult:
    """Return 2**a, rounded once (IEEE 754-2019, 9.2), or an approximation by name.

    Whole numbers give exact results. `approximate="flash-attention-4"` computes what the attention kernel of that name
    computes on the multipliers, in FP32: with n = floor(max(a, -127)) and f = a - n, the polynomial
    ((c3 f + c2) f + c1) f + 1 by three FMA operations, and n added to its exponent field. The relative error is up to
    8.8e-5. The kernel's arguments are at most 127; larger ones wrap in the exponent field.

    Parameters
    ----------
    a : array_like of floats
    approximate : {"none", "flash-attention-4"}
        The second takes FP32 only, and no options. Source: flash_attn/cute/utils.py, `ex2_emulation` of degree 3, of
        https://github.com/Dao-AILab/flash-attention; arXiv:2603.05451. Not compared with a GPU.
    {options}

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> fs.exp2(fs.array([3.0, 0.5], "fp16"))
    FloatArray([8.0, 1.4141], FP16)
    >>> fs.exp2(np.float32([3.0, 0.5]), approximate="flash-attention-4")
    array([8.      , 1.414104], dtype=float32)
    """
    if approximate == "none":
        return _call("exp2", {"a": a}, format, out, options)
    if approximate != "flash-attention-4":
        raise ValueError(f"approximate must be 'none' or 'flash-attention-4', not {approximate!r}")
    if options or format is not None:
        raise TypeError("exp2: approximate='flash-attention-4' takes no format= and no rounding options")
    ((codes, fmt),), float_array = read_operands({"a": a}, None)
    if fmt != FP32:
        raise TypeError(f"exp2: a is {fmt.name}, but approximate='flash-attention-4' computes in FP32")
    return deliver(_flash_attention_exp2(from_codes(codes, FP32)), FP32, float_array, out)


_FLASH_ATTENTION = (0.077119089663028717041015625, 0.227564394474029541015625, 0.695146143436431884765625, 1.0)
_TO_INTEGER = 12582912.0  # 1.5 * 2**23: the last bit of numbers near it is worth 1


def _flash_attention_exp2(a: FloatArray) -> Any:
    """Return the codes of FlashAttention-4's polynomial, whose instructions have the suffix `.ftz`."""
    flush: Any = {"rounding": "ties_to_even", "overflow": "infinity", "daz": True, "ftz": True}
    x = maximum_number(a, -127.0, daz=True)
    whole = add(x, _TO_INTEGER, **{**flush, "rounding": "toward_negative"})
    f = subtract(x, subtract(whole, _TO_INTEGER, **flush), **flush)
    first, *rest = _FLASH_ATTENTION
    y = fma(f, first, rest[0], **flush)
    for coefficient in rest[1:]:
        y = fma(y, f, coefficient, **flush)
    return y.codes + (whole.codes << np.uint32(23))


@function
def exp10(
    a: Floats, *, format: FormatLike | None = None, out: Out = None, **options: Unpack[FunctionOptions]
) -> FloatResult:
    """Return 10**a, rounded once (IEEE 754-2019, 9.2).

    {parameters}

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.exp10(fs.array([2.0, 0.5], "fp16"))
    FloatArray([100.0, 3.1621], FP16)
    """
    return _call("exp10", {"a": a}, format, out, options)


@implements(np.expm1)
@function
def expm1(
    a: Floats, *, format: FormatLike | None = None, out: Out = None, **options: Unpack[FunctionOptions]
) -> FloatResult:
    """Return e**a - 1, rounded once (IEEE 754-2019, 9.2).

    Accurate for small a, where exp(a) - 1 cancels. expm1(-0) is -0.

    {parameters}

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.expm1(fs.array([1.0, 0.001], "fp16"))
    FloatArray([1.7188, 0.0010014], FP16)
    """
    return _call("expm1", {"a": a}, format, out, options)


@implements(np.log)
@function
def log(
    a: Floats, *, format: FormatLike | None = None, out: Out = None, **options: Unpack[FunctionOptions]
) -> FloatResult:
    """Return the natural logarithm of a, rounded once (IEEE 754-2019, 9.2).

    log(0) is -inf with DIVIDE_BY_ZERO. Negative numbers give NaN with INVALID.

    {parameters}

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.log(fs.array([10.0, 0.0], "bf16"))
    FloatArray([2.297, -inf], BF16)
    """
    return _call("log", {"a": a}, format, out, options)


@implements(np.log2)
@function
def log2(
    a: Floats, *, format: FormatLike | None = None, out: Out = None, **options: Unpack[FunctionOptions]
) -> FloatResult:
    """Return the logarithm of a to base 2, rounded once (IEEE 754-2019, 9.2).

    Powers of two give exact results. Zero and negative numbers: as in `fs.log`.

    {parameters}

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.log2(fs.array([8.0, 10.0], "bf16"))
    FloatArray([3.0, 3.328], BF16)
    """
    return _call("log2", {"a": a}, format, out, options)


@implements(np.log10)
@function
def log10(
    a: Floats, *, format: FormatLike | None = None, out: Out = None, **options: Unpack[FunctionOptions]
) -> FloatResult:
    """Return the logarithm of a to base 10, rounded once (IEEE 754-2019, 9.2).

    Zero and negative numbers: as in `fs.log`.

    {parameters}

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.log10(fs.array([100.0, 2.0], "bf16"))
    FloatArray([2.0, 0.3008], BF16)
    """
    return _call("log10", {"a": a}, format, out, options)


@implements(np.log1p)
@function
def log1p(
    a: Floats, *, format: FormatLike | None = None, out: Out = None, **options: Unpack[FunctionOptions]
) -> FloatResult:
    """Return log(1 + a), rounded once (IEEE 754-2019, 9.2).

    Accurate for small a, where 1 + a absorbs them. log1p(-1) is -inf with DIVIDE_BY_ZERO; smaller numbers give NaN
    with INVALID.

    {parameters}

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.log1p(fs.array([1.0, 0.001], "fp16"))
    FloatArray([0.69336, 0.00099945], FP16)
    """
    return _call("log1p", {"a": a}, format, out, options)


@implements(np.sin)
@function
def sin(
    a: Floats, *, format: FormatLike | None = None, out: Out = None, **options: Unpack[FunctionOptions]
) -> FloatResult:
    """Return the sine of a in radians, rounded once (IEEE 754-2019, 9.2).

    The argument is reduced exactly, however large it is. Infinities give NaN with INVALID.

    {parameters}

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.sin(fs.array([1.0, 30000.0], "fp16"))
    FloatArray([0.84131, -0.80273], FP16)
    """
    return _call("sin", {"a": a}, format, out, options)


@implements(np.cos)
@function
def cos(
    a: Floats, *, format: FormatLike | None = None, out: Out = None, **options: Unpack[FunctionOptions]
) -> FloatResult:
    """Return the cosine of a in radians, rounded once (IEEE 754-2019, 9.2).

    Arguments as in `fs.sin`.

    {parameters}

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.cos(fs.array([1.0, 30000.0], "fp16"))
    FloatArray([0.54053, -0.59619], FP16)
    """
    return _call("cos", {"a": a}, format, out, options)


@implements(np.tan)
@function
def tan(
    a: Floats, *, format: FormatLike | None = None, out: Out = None, **options: Unpack[FunctionOptions]
) -> FloatResult:
    """Return the tangent of a in radians, rounded once (IEEE 754-2019, 9.2).

    Arguments as in `fs.sin`.

    {parameters}

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.tan(fs.array([1.0, 30000.0], "fp16"))
    FloatArray([1.5576, 1.3457], FP16)
    """
    return _call("tan", {"a": a}, format, out, options)


@implements(np.arcsin)
@function
def asin(
    a: Floats, *, format: FormatLike | None = None, out: Out = None, **options: Unpack[FunctionOptions]
) -> FloatResult:
    """Return the arc sine of a in radians, rounded once (IEEE 754-2019, 9.2).

    Numbers beyond 1 give NaN with INVALID.

    {parameters}

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.asin(fs.array([0.5, 1.0], "fp16"))
    FloatArray([0.52344, 1.5703], FP16)
    """
    return _call("asin", {"a": a}, format, out, options)


@implements(np.arccos)
@function
def acos(
    a: Floats, *, format: FormatLike | None = None, out: Out = None, **options: Unpack[FunctionOptions]
) -> FloatResult:
    """Return the arc cosine of a in radians, rounded once (IEEE 754-2019, 9.2).

    Numbers beyond 1 give NaN with INVALID. acos(1) is +0.

    {parameters}

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.acos(fs.array([0.5, 1.0], "fp16"))
    FloatArray([1.0469, 0.0], FP16)
    """
    return _call("acos", {"a": a}, format, out, options)


@implements(np.arctan)
@function
def atan(
    a: Floats, *, format: FormatLike | None = None, out: Out = None, **options: Unpack[FunctionOptions]
) -> FloatResult:
    """Return the arc tangent of a in radians, rounded once (IEEE 754-2019, 9.2).

    {parameters}

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.atan(fs.array([1.0, float("inf")], "fp16"))
    FloatArray([0.78516, 1.5703], FP16)
    """
    return _call("atan", {"a": a}, format, out, options)


@implements(np.sinh)
@function
def sinh(
    a: Floats, *, format: FormatLike | None = None, out: Out = None, **options: Unpack[FunctionOptions]
) -> FloatResult:
    """Return the hyperbolic sine of a, rounded once (IEEE 754-2019, 9.2).

    {parameters}

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.sinh(fs.array([1.0, 12.0], "fp16"))
    FloatArray([1.1748, inf], FP16)
    """
    return _call("sinh", {"a": a}, format, out, options)


@implements(np.cosh)
@function
def cosh(
    a: Floats, *, format: FormatLike | None = None, out: Out = None, **options: Unpack[FunctionOptions]
) -> FloatResult:
    """Return the hyperbolic cosine of a, rounded once (IEEE 754-2019, 9.2).

    {parameters}

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.cosh(fs.array([1.0, 12.0], "fp16"))
    FloatArray([1.543, inf], FP16)
    """
    return _call("cosh", {"a": a}, format, out, options)


@implements(np.tanh)
@function
def tanh(
    a: Floats, *, format: FormatLike | None = None, out: Out = None, **options: Unpack[FunctionOptions]
) -> FloatResult:
    """Return the hyperbolic tangent of a, rounded once (IEEE 754-2019, 9.2).

    {parameters}

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.tanh(fs.array([0.5, 5.0], "fp16"))
    FloatArray([0.46216, 1.0], FP16)
    """
    return _call("tanh", {"a": a}, format, out, options)


@function
def erf(
    a: Floats, *, format: FormatLike | None = None, out: Out = None, **options: Unpack[FunctionOptions]
) -> FloatResult:
    """Return the error function of a, rounded once (DLMF, 7.2.1).

    {parameters}

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.erf(fs.array([0.5, 3.0], "fp16"))
    FloatArray([0.52051, 1.0], FP16)
    """
    return _call("erf", {"a": a}, format, out, options)


@function
def rsqrt(
    a: Floats, *, format: FormatLike | None = None, out: Out = None, **options: Unpack[FunctionOptions]
) -> FloatResult:
    """Return 1 / sqrt(a), rounded once (rSqrt of IEEE 754-2019, 9.2).

    A zero gives an infinity of its sign with DIVIDE_BY_ZERO. Negative numbers give NaN with INVALID.

    {parameters}

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.rsqrt(fs.array([2.0, 0.25], "bf16"))
    FloatArray([0.707, 2.0], BF16)
    """
    return _call("rsqrt", {"a": a}, format, out, options)


@implements(np.reciprocal)
@function
def reciprocal(
    a: Floats, *, format: FormatLike | None = None, out: Out = None, **options: Unpack[FunctionOptions]
) -> FloatResult:
    """Return 1 / a, rounded once.

    A zero gives an infinity of its sign with DIVIDE_BY_ZERO.

    {parameters}

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.reciprocal(fs.array([3.0, -0.0], "bf16"))
    FloatArray([0.334, -inf], BF16)
    """
    return _call("reciprocal", {"a": a}, format, out, options)


@implements(np.cbrt)
@function
def cbrt(
    a: Floats, *, format: FormatLike | None = None, out: Out = None, **options: Unpack[FunctionOptions]
) -> FloatResult:
    """Return the cube root of a, rounded once (rootn(a, 3) of IEEE 754-2019, 9.2).

    Negative numbers have negative roots.

    {parameters}

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.cbrt(fs.array([-8.0, 2.0], "bf16"))
    FloatArray([-2.0, 1.258], BF16)
    """
    return _call("cbrt", {"a": a}, format, out, options)


@function
def sigmoid(
    a: Floats, *, format: FormatLike | None = None, out: Out = None, **options: Unpack[FunctionOptions]
) -> FloatResult:
    """Return the logistic function 1 / (1 + exp(-a)), rounded once.

    {parameters}

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.sigmoid(fs.array([0.0, -20.0], "bf16"))
    FloatArray([0.5, 2.066e-09], BF16)
    """
    return _call("sigmoid", {"a": a}, format, out, options)


@function
def silu(
    a: Floats, *, format: FormatLike | None = None, out: Out = None, **options: Unpack[FunctionOptions]
) -> FloatResult:
    """Return a * sigmoid(a), rounded once (SiLU or swish; S. Elfwing et al., arXiv:1702.03118).

    silu(-inf) is the limit, -0.

    {parameters}

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.silu(fs.array([1.0, -20.0], "bf16"))
    FloatArray([0.7305, -4.121e-08], BF16)
    """
    return _call("silu", {"a": a}, format, out, options)


@function
def softplus(
    a: Floats, *, format: FormatLike | None = None, out: Out = None, **options: Unpack[FunctionOptions]
) -> FloatResult:
    """Return log(1 + exp(a)), rounded once.

    {parameters}

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.softplus(fs.array([0.0, -20.0], "bf16"))
    FloatArray([0.6914, 2.066e-09], BF16)
    """
    return _call("softplus", {"a": a}, format, out, options)


@function
def mish(
    a: Floats, *, format: FormatLike | None = None, out: Out = None, **options: Unpack[FunctionOptions]
) -> FloatResult:
    """Return a * tanh(softplus(a)), rounded once (D. Misra, arXiv:1908.08681).

    mish(-inf) is the limit, -0.

    {parameters}

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.mish(fs.array([1.0, -20.0], "bf16"))
    FloatArray([0.8633, -4.121e-08], BF16)
    """
    return _call("mish", {"a": a}, format, out, options)


@function
def gelu(
    a: Floats,
    *,
    approximate: str = "none",
    format: FormatLike | None = None,
    out: Out = None,
    **options: Unpack[FunctionOptions],
) -> FloatResult:
    """Return the Gaussian error linear unit of a, rounded once (D. Hendrycks, K. Gimpel, arXiv:1606.08415).

    It is a * (1 + erf(a / sqrt(2))) / 2, and with `approximate="tanh"`, a * (1 + tanh(u)) / 2 with
    u = sqrt(2 / pi) * (a + 0.044715 * a**3): the real square root and the decimal number. gelu(-inf) is the limit, -0.

    Parameters
    ----------
    a : array_like of floats
    approximate : {"none", "tanh"}
        Which of the two, by the names of PyTorch.
    {options}

    Examples
    --------
    >>> import floatsim as fs
    >>> x = fs.array([2.0, -2.0], "fp16")
    >>> fs.gelu(x), fs.gelu(x, approximate="tanh")
    (FloatArray([1.9541, -0.045502], FP16), FloatArray([1.9551, -0.04541], FP16))
    """
    functions = {"none": "gelu", "tanh": "gelu_tanh"}
    if approximate not in functions:
        raise ValueError(f"approximate must be 'none' or 'tanh', not {approximate!r}")
    return _call(functions[approximate], {"a": a}, format, out, options)


@implements(np.power)
@function
def power(
    a: Floats, b: Floats, *, format: FormatLike | None = None, out: Out = None, **options: Unpack[FunctionOptions]
) -> FloatResult:
    """Return a**b, rounded once (pow of IEEE 754-2019, 9.2.1).

    A negative a takes whole numbers b only; others give NaN with INVALID. power(a, 0) and power(1, b) are 1, also for
    NaN. A zero to a negative power is an infinity with DIVIDE_BY_ZERO.

    Parameters
    ----------
    a, b : array_like of floats
        Operands as in `fs.add`.
    {options}

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.array([3.0, -2.0, 300.0], "fp16") ** 2
    FloatArray([9.0, 4.0, inf], FP16)
    """
    return _call("power", {"a": a, "b": b}, format, out, options)


@implements(np.hypot)
@function
def hypot(
    a: Floats, b: Floats, *, format: FormatLike | None = None, out: Out = None, **options: Unpack[FunctionOptions]
) -> FloatResult:
    """Return sqrt(a*a + b*b), rounded once, without overflow of the squares (IEEE 754-2019, 9.2).

    An infinity gives +inf, also beside a NaN.

    Parameters
    ----------
    a, b : array_like of floats
        Operands as in `fs.add`.
    {options}

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.hypot(fs.array([3.0, 60000.0], "fp16"), fs.array([4.0, 20000.0], "fp16"))
    FloatArray([5.0, 63232.0], FP16)
    """
    return _call("hypot", {"a": a, "b": b}, format, out, options)
