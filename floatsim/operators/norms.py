"""Normalization: layer_norm, rms_norm and batch_norm."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Unpack

import numpy as np

from floatsim.arrays.array.types import Floats
from floatsim.arrays.elementwise.arithmetic import add, divide, fma, multiply, subtract
from floatsim.arrays.elementwise.functions import rsqrt
from floatsim.formats._validation import as_flag, as_real
from floatsim.operators.computation import Array, Computation, RecipeKeywords, computation, count, operator

__all__ = [
    "BatchNorm", "batch_norm", "by_threads", "compared_rows", "inverse_root", "layer_norm", "parameter",
    "rms_norm", "root_mean_square",
    "training_variant", "two_pass",
]  # fmt: skip


def parameter(c: Computation, step: str, given: Any, size: int) -> Array | None:
    """Return an operand with one element for each of `size` features, or None without one."""
    if given is None:
        return None
    operand = c.operand(step, given)
    if operand.shape != (size,):
        raise ValueError(f"{step} has the shape {operand.shape}; x has {size} features, so it must be ({size},)")
    return operand


def _rows(c: Computation, x: Any) -> Array:
    operand = c.operand("input", x)
    if not operand.ndim or not operand.shape[-1]:
        raise ValueError(f"x of shape {operand.shape} has no features along its last axis")
    return operand


def compared_rows(c: Computation, x: Array, weight: Array | None, bias: Array | None = None) -> None:
    """Refuse a strict call with other rows or parameters than the compared ones."""
    given = [name for name, operand in (("weight", weight), ("bias", bias)) if operand is not None]
    c.must_be_compared(rows=math.prod(x.shape[:-1]), columns=x.shape[-1], parameters=" and ".join(given) or "none")


def _affine(c: Computation, x: Array, weight: Array | None, bias: Array | None) -> Array:
    """Return the steps weighted and biased, without those whose operand is missing."""
    if weight is not None:
        x = c.value("weighted", multiply, x, weight)
    return x if bias is None else c.value("biased", add, x, bias)


def inverse_root(c: Computation, variance: Array, eps: float) -> Array:
    """Return the steps stabilized and rsqrt."""
    eps = as_real(eps, "eps", 0)
    return c.value("rsqrt", rsqrt, c.value("stabilized", add, variance, c.number(eps, variance)))


# -- layer_norm --------------------------------------------------------------------------------------------------------


def _mean_and_centred(c: Computation, x: Array, n: Array) -> tuple[Array, Array]:
    mean = c.value("mean", divide, c.sum("sum", x), n)
    return mean, c.value("centred", subtract, x, mean)


def two_pass(c: Computation, x: Array) -> tuple[Array, Array]:
    """Return the steps centred and variance."""
    n = count(x.shape[-1])
    _, centred = _mean_and_centred(c, x, n)
    total = c.sum("square_sum", c.value("square", multiply, centred, centred))
    return centred, c.value("variance", divide, total, n)


def _one_pass(c: Computation, x: Array) -> tuple[Array, Array]:
    n = count(x.shape[-1])
    mean = c.value("mean", divide, c.sum("sum", x), n)
    total = c.sum("square_sum", c.value("square", multiply, x, x))
    mean_square = c.value("mean_square", divide, total, n)
    variance = c.value("variance", subtract, mean_square, c.value("square_of_mean", multiply, mean, mean))
    return c.value("centred", subtract, x, mean), variance


def _welford(c: Computation, x: Array) -> tuple[Array, Array]:
    first, *terms = c.moved(lambda v: np.ascontiguousarray(np.moveaxis(v, -1, 0)[..., np.newaxis]), x)
    mean, moment = c.converted("mean", first), c.value("moment", subtract, first, first)
    for k, term in enumerate(terms, 2):
        delta = c.value("delta", subtract, term, mean)
        mean = c.value("mean", add, mean, c.value("ratio", divide, delta, count(k)))
        remainder = c.value("remainder", subtract, term, mean)
        moment = c.value("moment", add, moment, c.value("product", multiply, delta, remainder))
    variance = c.value("variance", divide, moment, count(x.shape[-1]))
    return c.value("centred", subtract, x, mean), variance


def by_threads(c: Computation, x: Array) -> tuple[Array, Array]:
    """Return the steps mean and variance of the variant "threads"."""
    mean, total = c.moments("mean", "square_sum", x)
    return mean, c.value("variance", divide, total, count(x.shape[-1]))


def _threads(c: Computation, x: Array) -> tuple[Array, Array]:
    mean, variance = by_threads(c, x)
    return c.value("centred", subtract, x, mean), variance


_MOMENTS = {"two-pass": two_pass, "one-pass": _one_pass, "welford": _welford, "threads": _threads}


def _fused_affine(c: Computation, x: Array, weight: Array | None, bias: Array | None) -> Array:
    """Return the step biased: weight * x + bias, rounded once; without one of them, the product or the sum."""
    if weight is not None and bias is not None:
        return c.value("biased", fma, weight, x, bias)
    if weight is not None:
        return c.value("biased", multiply, x, weight)
    return x if bias is None else c.value("biased", add, x, bias)


@operator
def layer_norm(
    x: Floats, weight: Floats | None = None, bias: Floats | None = None, *, eps: float = 1e-5,
    **keywords: Unpack[RecipeKeywords],
) -> Any:  # fmt: skip
    """Return (x - mean) / sqrt(variance + eps) * weight + bias along the last axis.

    Parameters
    ----------
    x : array_like of floats, (..., features)
        A FloatArray or an array whose dtype is a format.
    weight, bias : array_like of floats, (features,), optional
        Without them, their steps are omitted.
    eps : float
        Rounded to the format of the step "variance".
    {keywords}

    {results}

    Notes
    -----
    The steps of each variant. Each is one operation, rounded once to the format of the step. n is the exact number of
    features.

    - "two-pass": sum = sum of x; mean = sum / n; centred = x - mean; square = centred * centred; square_sum = sum of
      square; variance = square_sum / n.
    - "one-pass": sum = sum of x; mean = sum / n; square = x * x; square_sum = sum of square; mean_square = square_sum /
      n; square_of_mean = mean * mean; variance = mean_square - square_of_mean; centred = x - mean.
    - "welford": mean starts as the first element, moment as 0. For each further element x at position k, from 2: delta
      = x - mean; ratio = delta / k; mean = mean + ratio; remainder = x - mean; product = delta * remainder; moment =
      moment + product. Then variance = moment / n; centred = x - mean.
    - "threads": mean and square_sum by Welford's algorithm, as `fs.moments` (the accumulation of square_sum is a
      `fs.Welford`, or the order of one); variance = square_sum / n; centred = x - mean. There is no step weighted:
      biased = normalized * weight + bias is rounded once.

    All variants start with input, weight and bias, the conversions of the operands, and end with stabilized = variance
    + eps; rsqrt = 1 / sqrt(stabilized), correctly rounded; normalized = centred * rsqrt; weighted = normalized *
    weight; biased = weighted + bias; output = the conversion of the last value. A variance of the variant "one-pass"
    can be negative, and the result NaN.

    Examples
    --------
    >>> import floatsim as fs
    >>> x = fs.array([300.0, 301.0, 302.0, 303.0], "fp16")
    >>> fs.operators.layer_norm(x, recipe="all-fp16")
    FloatArray([-1.3418, -0.44727, 0.44727, 1.3418], FP16)
    >>> fs.operators.layer_norm(x, recipe="all-fp16", variant="one-pass")
    FloatArray([nan, nan, nan, nan], FP16)
    """
    with computation("layer_norm", x, keywords) as c:
        rows = _rows(c, x)
        w, b = (parameter(c, s, given, rows.shape[-1]) for s, given in (("weight", weight), ("bias", bias)))
        compared_rows(c, rows, w, b)
        centred, variance = _MOMENTS[c.variant](c, rows)
        normalized = c.value("normalized", multiply, centred, inverse_root(c, variance, eps))
        affine = _fused_affine if c.variant == "threads" else _affine
        return c.result(c.converted("output", affine(c, normalized, w, b)))


def root_mean_square(c: Computation, x: Array, eps: float) -> Array:
    """Return the step rsqrt of `rms_norm`."""
    n = count(x.shape[-1])
    if c.variant != "threads":
        total = c.sum("square_sum", c.value("square", multiply, x, x))
        return inverse_root(c, c.value("mean_square", divide, total, n), eps)
    mean, total = c.square_sum("square_sum", x)
    mean_square = c.value("mean_square", divide, total, n)
    if mean is not None:
        mean_square = c.value("mean_square", fma, mean, mean, mean_square)
    return inverse_root(c, mean_square, eps)


@operator
def rms_norm(
    x: Floats, weight: Floats | None = None, *, eps: float = 2.0**-23, **keywords: Unpack[RecipeKeywords]
) -> Any:
    """Return x / sqrt(mean(x**2) + eps) * weight along the last axis.

    Parameters
    ----------
    x : array_like of floats, (..., features)
        A FloatArray or an array whose dtype is a format.
    weight : array_like of floats, (features,), optional
        Without it, the step "weighted" is omitted.
    eps : float
        Rounded to the format of the step "mean_square". The default is PyTorch's, the eps of FP32.
    {keywords}

    {results}

    Notes
    -----
    The steps: input and weight, the conversions of the operands; square = x * x; square_sum = sum of square;
    mean_square = square_sum / n, with the exact n; stabilized = mean_square + eps; rsqrt = 1 / sqrt(stabilized),
    correctly rounded; normalized = x * rsqrt; weighted = normalized * weight; output = the conversion of the last
    value.

    In the variant "threads" square_sum is a sum of products, which the accumulation rounds or fuses. If the
    accumulation is a `fs.Welford`, square_sum is the sum of squared differences of `fs.moments`, and mean_square =
    mean * mean + square_sum / n, rounded after the division and after the sum. PyTorch's CUDA kernel for n % 4 > 0
    computes so.

    Libraries place the rounding to a 16-bit format differently. PyTorch rounds after the product with the weight (the
    recipe "fp32-inside"). Hugging Face's LlamaRMSNorm rounds normalized first, then weighted (the recipe
    "transformers").

    Examples
    --------
    >>> import floatsim as fs
    >>> x, weight = fs.array([0.126, -0.1318, 0.6406], "bf16"), fs.array([1.016, 0.9336, 1.047], "bf16")
    >>> [fs.operators.rms_norm(x, weight, recipe=recipe).tolist()[0] for recipe in ("fp32-inside", "transformers")]
    [0.33203125, 0.333984375]
    """
    with computation("rms_norm", x, keywords) as c:
        rows = _rows(c, x)
        w = parameter(c, "weight", weight, rows.shape[-1])
        compared_rows(c, rows, w)
        normalized = c.value("normalized", multiply, rows, root_mean_square(c, rows, eps))
        return c.result(c.converted("output", _affine(c, normalized, w, None)))


# -- batch_norm --------------------------------------------------------------------------------------------------------


class BatchNorm(NamedTuple):
    """The result of `batch_norm`.

    Attributes
    ----------
    output : FloatArray or ndarray
        The normalized batch.
    running_mean, running_var : FloatArray or ndarray
        The running statistics, updated if `training` is True.

    Examples
    --------
    >>> import floatsim as fs
    >>> x, mean, var = fs.array([[1.0], [3.0]], "fp32"), fs.array([0.0], "fp32"), fs.array([1.0], "fp32")
    >>> result = fs.operators.batch_norm(x, mean, var, training=True)
    >>> result.output.shape, result.running_mean
    ((2, 1), FloatArray([0.200000003], FP32))
    """

    output: Any
    running_mean: Any
    running_var: Any


@operator
def batch_norm(
    x: Floats, running_mean: Floats, running_var: Floats, weight: Floats | None = None, bias: Floats | None = None, *,
    training: bool = False, momentum: float = 0.1, eps: float = 1e-5, **keywords: Unpack[RecipeKeywords],
) -> BatchNorm:  # fmt: skip
    """Normalize each channel of a batch, and update the running statistics.

    Parameters
    ----------
    x : array_like of floats, (batch, channels, ...)
        A FloatArray or an array whose dtype is a format.
    running_mean, running_var : array_like of floats, (channels,)
        The running statistics.
    weight, bias : array_like of floats, (channels,), optional
        Without them, their steps are omitted.
    training : bool
        True normalizes with the statistics of the batch, and updates the running ones. This selects the variant.
    momentum : float
        The weight of the batch in the running statistics. `momentum` is rounded to the format of the step "mean" or
        "unbiased_variance", `1 - momentum` to that of the running statistic.
    eps : float
        Rounded to the format of the variance.
    {keywords}

    Returns
    -------
    BatchNorm
        The output and the running statistics. Each is an ndarray if x is one and its format has a dtype.

    {raises}

    Notes
    -----
    All operands are converted first. The steps of the variant "training", over the elements of each channel in C order:
    sum, mean, centred, square, square_sum and variance as in the two-pass `fs.operators.layer_norm`; unbiased_variance
    = square_sum / (n - 1); kept_mean = running_mean * (1 - momentum); new_mean = mean * momentum; updated_mean =
    kept_mean + new_mean; kept_var, new_var and updated_var likewise, from unbiased_variance. The variant "inference"
    has centred = x - running_mean and uses running_var. Both end with stabilized, rsqrt, normalized, weighted, biased
    and output as in layer_norm. "same" of updated_mean and updated_var is the format of the running statistic.

    Examples
    --------
    A running mean in BF16 does not reach its target:

    >>> import floatsim as fs
    >>> x, mean, var = fs.array([[1.0], [1.0]], "bf16"), fs.array([0.0], "bf16"), fs.array([1.0], "bf16")
    >>> for _ in range(100):
    ...     _, mean, _ = fs.operators.batch_norm(x, mean, var, training=True, recipe="all-bf16")
    >>> mean
    FloatArray([0.9844], BF16)
    """
    variant = training_variant(training, keywords)
    with computation("batch_norm", x, {**keywords, "variant": variant}) as c:
        batch = c.operand("input", x)
        if batch.ndim < 2 or not batch.size:
            raise ValueError(f"x must have the shape (batch, channels, ...) and elements, not {batch.shape}")
        channels = batch.shape[1]
        parameters = {"running_mean": running_mean, "running_var": running_var, "weight": weight, "bias": bias}
        mean, var, w, b = (parameter(c, step, each, channels) for step, each in parameters.items())
        if mean is None or var is None:
            raise TypeError("running_mean and running_var must be arrays")
        columns = np.moveaxis(batch, 1, -1)
        rows = columns.reshape(-1, channels)
        if training:
            centred, variance, mean, var = _of_batch(c, rows, mean, var, momentum)
        else:
            centred, variance = c.value("centred", subtract, rows, mean), var
        normalized = c.value("normalized", multiply, centred, inverse_root(c, variance, eps))
        output = c.converted("output", _affine(c, normalized, w, b)).reshape(columns.shape)
        return BatchNorm(*(c.result(each) for each in (np.moveaxis(output, -1, 1), mean, var)))


def training_variant(training: bool, keywords: RecipeKeywords) -> str:
    """Return the variant that `training` selects. A ValueError says that the keyword `variant` is another one."""
    variant = "training" if as_flag(training, "training") else "inference"
    if keywords.get("variant", variant) != variant:
        raise ValueError(f"variant={keywords['variant']!r} contradicts training={training!r}; leave it out")
    return variant


def _of_batch(
    c: Computation, rows: Array, running_mean: Array, running_var: Array, momentum: float
) -> tuple[Array, Array, Array, Array]:
    """Return the centred rows, the variance, and the updated running statistics."""
    n = rows.shape[0]
    mean = c.value("mean", divide, c.sum("sum", rows, 0).reshape(-1), count(n))
    centred = c.value("centred", subtract, rows, mean)
    total = c.sum("square_sum", c.value("square", multiply, centred, centred), 0).reshape(-1)
    variance = c.value("variance", divide, total, count(n))
    unbiased = c.value("unbiased_variance", divide, total, count(n - 1))
    updated = []
    for name, running, new in (("mean", running_mean, mean), ("var", running_var, unbiased)):
        kept = c.value(f"kept_{name}", multiply, running, c.number(1 - momentum, running))
        fresh = c.value(f"new_{name}", multiply, new, c.number(momentum, new))
        updated.append(c.value(f"updated_{name}", add, kept, fresh, same=running))
    return centred, variance, updated[0], updated[1]
