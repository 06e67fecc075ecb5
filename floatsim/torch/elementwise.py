"""Elementwise ATen operations: each line is one rounding, or a few that PyTorch's kernels make as well."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from floatsim.arrays.array.conversion import convert
from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.elementwise import arithmetic as a
from floatsim.arrays.elementwise import functions as f
from floatsim.arrays.elementwise.comparison import greater_equal, isnan, less_equal
from floatsim.formats import BF16, FP16, FP64, FloatFormat
from floatsim.operators import activations, activations_backward
from floatsim.operators.computation import count
from floatsim.torch.call import Call, Handler, number

__all__ = ["ELEMENTWISE"]


def _unary(function: Any) -> Handler:
    def run(c: Call, x: Any) -> FloatArray:
        return c.result(c.value(function, c.operand(x)))

    return run


def _binary(function: Any) -> Handler:
    def run(c: Call, x: Any, y: Any) -> FloatArray:
        return c.result(c.value(function, c.operand(x), c.operand(y)))

    return run


def _mul(c: Call, x: Any, y: Any) -> FloatArray:
    return c.result(c.value(a.multiply, c.operand(x), c.factor(y)))


def _remainder(c: Call, x: Any, y: Any) -> FloatArray:
    """Return x - y * floor(x / y), which has the sign of y: fmod, plus y where its sign is another, as in PyTorch."""
    left, right = c.operand(x), c.operand(y)
    found = c.value(a.fmod, left, right)
    other = (found.values != 0) & ((found.values < 0) != (right.values < 0))
    return c.result(_chosen(other, c.value(a.add, found, right), found))


def _chosen(condition: Any, x: FloatArray, y: FloatArray) -> FloatArray:
    """Return the elements of x where the condition holds, and of y elsewhere. Both have one format."""
    return FloatArray(np.where(condition, x.codes, y.codes), x.format)


def _extreme(larger: bool) -> Handler:
    """Return the handler of a maximum or minimum: of two equal elements, zeros too, the second, as in PyTorch."""

    def run(c: Call, x: Any, y: Any) -> FloatArray:
        return c.result(_larger(c.intermediate_of(y), c.intermediate_of(x), larger))

    return run


def _larger(x: FloatArray, y: FloatArray, larger: bool = True) -> FloatArray:
    """Return the larger elements, or the smaller ones: x of two equal elements, and NaN if one is NaN."""
    kept = greater_equal(x, y) if larger else less_equal(x, y)
    return _chosen(np.asarray(kept) | np.asarray(isnan(x)), x, y)


def _exact(function: Any) -> Handler:
    """Return the handler of a function whose result is a number of the operand's format: signs and integers."""

    def run(c: Call, x: Any) -> FloatArray:
        return c.result(function(c.operand(x)))

    return run


def _add(c: Call, x: Any, y: Any, alpha: float = 1) -> FloatArray:
    """Return x + alpha * y, with a fused multiply-add for another alpha than 1, as PyTorch's vectorized kernels.

    alpha is rounded to the format of the operands.
    """
    left, right = c.operand(x), c.operand(y)
    if alpha == 1:
        return c.result(c.value(a.add, left, right))
    if alpha == -1:
        return c.result(c.value(a.subtract, left, right))
    return c.result(c.value(a.fma, c.constant(alpha), right, left))


def _sub(c: Call, x: Any, y: Any, alpha: float = 1) -> FloatArray:
    return _add(c, x, y, -alpha)


def _rsub(c: Call, x: Any, y: Any, alpha: float = 1) -> FloatArray:
    """Return y - alpha * x. A number y is rounded to the format of the operands."""
    if isinstance(y, torch.Tensor):
        return _add(c, y, x, -alpha)
    left, right = c.constant(y), c.operand(x)
    if alpha == 1:
        return c.result(c.value(a.subtract, left, right))
    return c.result(c.value(a.fma, c.constant(-alpha), right, left))


def _div(c: Call, x: Any, y: Any, rounding_mode: str | None = None) -> FloatArray:
    """Return x / y. In the backward pass an integer y is the number of terms of a mean, which is exact."""
    divisor = count(y) if c.backward and isinstance(y, int) else c.factor(y)
    is_number = not isinstance(y, torch.Tensor) or y.numel() == 1
    step = c.value if is_number else c.stepwise(BF16, FP16)
    if rounding_mode == "floor":
        return c.result(_floor_divided(c, step, c.operand(x), divisor))
    if rounding_mode == "trunc":
        return c.result(a.trunc(step(a.divide, c.operand(x), divisor)))
    return c.result(c.value(a.divide, c.operand(x), divisor))


def _floor_divided(c: Call, step: Any, x: FloatArray, y: FloatArray) -> FloatArray:
    """Return floor(x / y) by way of the remainder, so that no rounding reaches the next integer, as in PyTorch."""
    remainder = c.value(a.fmod, x, y)
    quotient = c.rounded(step(a.divide, step(a.subtract, x, remainder), y), c.formats.inside)
    other = (remainder.values != 0) & ((remainder.values < 0) != (y.values < 0))
    quotient = _chosen(other, c.value(a.subtract, quotient, c.number(1.0)), quotient)
    whole = a.floor(quotient)
    with np.errstate(invalid="ignore"):
        above = quotient.values - whole.values > 0.5
    whole = _chosen(above, c.value(a.add, whole, c.number(1.0)), whole)
    direct = c.value(a.divide, x, y)
    whole = _chosen(quotient.values == 0, a.copysign(c.number(0.0), direct), whole)
    return _chosen(np.broadcast_to(y.values, whole.shape) == 0, direct, whole)


def _pow(c: Call, x: Any, y: Any) -> FloatArray:
    """Return x ** y. The exponents 2, 3, 0.5, -0.5, -1 and -2 are products, roots and reciprocals, as in PyTorch.

    Its kernel for BF16 rounds each of these steps. Its kernel for FP16 has no roots: powers of -0 and -infinity differ.
    """
    base = c.operand(x)
    if isinstance(y, torch.Tensor):
        return c.result(c.value(f.power, base, c.operand(y)))
    step = c.stepwise(BF16)
    if y in (2, 3, -2):
        square = step(a.multiply, base, base)
        if y == 3:
            square = step(a.multiply, square, base)
        return c.result(step(f.reciprocal, square) if y == -2 else square)
    roots = {0.5: a.sqrt, -0.5: f.rsqrt, -1: f.reciprocal}
    if y in roots and (y == -1 or c.formats.operands != FP16):
        return c.result(c.value(roots[y], base))
    if y == 1:
        return c.result(base)
    return c.result(c.value(f.power, base, c.constant(y)))


def _addcmul(c: Call, x: Any, y: Any, z: Any, value: float = 1) -> FloatArray:
    """Return x + (value * y) * z, as PyTorch's vectorized kernel: one product, then a fused multiply-add."""
    base, left, right = c.operand(x), c.operand(y), c.operand(z)
    if value != 1:
        left = c.value(a.multiply, c.number(value), left)
    return c.result(c.value(a.fma, left, right, base))


def _addcdiv(c: Call, x: Any, y: Any, z: Any, value: float = 1) -> FloatArray:
    """Return x + (value * y) / z."""
    base, left, right = c.operand(x), c.operand(y), c.operand(z)
    if value != 1:
        left = c.value(a.multiply, c.number(value), left)
    return c.result(c.value(a.add, base, c.value(a.divide, left, right)))


@functools.lru_cache(maxsize=256)
def _is_small(weight: float, fmt: FloatFormat) -> Any:
    """Return whether the weight of an interpolation is below 0.5 in a format."""
    return np.abs(number(float(weight), fmt).values) < 0.5


def _lerp(c: Call, start: Any, end: Any, weight: Any) -> FloatArray:
    """Return start + weight * (end - start); for a weight from 0.5 up, end - (end - start) * (1 - weight)."""
    first, last = c.operand(start), c.operand(end)
    difference = c.value(a.subtract, last, first)
    factor = c.operand(weight) if isinstance(weight, torch.Tensor) else c.number(weight)
    small = np.abs(factor.values) < 0.5 if isinstance(weight, torch.Tensor) else _is_small(weight, factor.format)
    remainder = factor if c.is_plain and small.all() else c.value(a.subtract, factor, c.number(1.0))
    low = c.value(a.fma, factor, difference, first) if small.any() else None
    high = c.value(a.fma, remainder, difference, last) if not small.all() else None
    if high is None:
        return c.result(low)  # type: ignore[arg-type]
    if low is None:
        return c.result(high)
    return c.result(FloatArray(np.where(small, low.codes, high.codes), low.format))


def _clamp(c: Call, x: Any, low: Any = None, high: Any = None) -> FloatArray:
    """Return x between bounds. Of two equal elements, zeros too, x is kept beside a number, as in PyTorch."""
    found = c.intermediate_of(x)
    for bound, larger in ((low, True), (high, False)):
        if bound is not None:
            limit = c.intermediate_of(bound)
            pair = (limit, found) if isinstance(bound, torch.Tensor) else (found, limit)
            found = _larger(*pair, larger)
    return c.result(found)


def _nan_to_num(
    c: Call, x: Any, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> FloatArray:
    """Return x with other numbers in the place of NaN (0) and infinities (the largest numbers of the format)."""
    found = c.result(c.operand(x))
    values, fmt = found.values, found.format
    codes = found.codes.copy()
    for marked, given, default in (
        (np.isnan(values), nan, 0.0), (values == np.inf, posinf, fmt.max), (values == -np.inf, neginf, -fmt.max),
    ):  # fmt: skip
        codes[marked] = number(default if given is None else given, fmt).codes
    return FloatArray(codes, fmt)


def _gelu(c: Call, x: Any, approximate: str = "none") -> FloatArray:
    """Return gelu(x), correctly rounded; with "tanh" the steps of the approximation."""
    if approximate == "none":
        return c.result(c.value(f.gelu, c.operand(x)))
    return c.operator(activations.gelu, c.array(x), variant="tanh")  # type: ignore[no-any-return]


def _gelu_backward(c: Call, gradient: Any, x: Any, approximate: str = "none") -> FloatArray:
    variant = "erf" if approximate == "none" else "tanh"
    return c.operator(activations_backward.gelu_backward, c.array(gradient), c.array(x), variant=variant)  # type: ignore[no-any-return]


def _sigmoid_backward(c: Call, gradient: Any, y: Any) -> FloatArray:
    """Return gradient * (1 - y) * y. PyTorch's kernel for FP16 rounds each step."""
    step, result = c.stepwise(FP16), c.operand(y)
    share = step(a.multiply, c.gradient(gradient), step(a.subtract, c.number(1.0), result))
    return c.result(step(a.multiply, share, result))


def _tanh_backward(c: Call, gradient: Any, y: Any) -> FloatArray:
    """Return gradient * (1 - y * y), the second factor with one rounding, as PyTorch's compiled kernel."""
    result = c.operand(y)
    slope = c.value(a.fma, a.negative(result), result, c.number(1.0))
    return c.result(c.value(a.multiply, c.gradient(gradient), slope))


def _of_operator(function: Any) -> Handler:
    """Return the handler of a backward operator of (gradient, operand of the forward pass or its result)."""

    def run(c: Call, gradient: Any, x: Any) -> FloatArray:
        return c.operator(function, c.array(gradient), c.array(x))  # type: ignore[no-any-return]

    return run


def _softplus(c: Call, x: Any, beta: float = 1, threshold: float = 20) -> FloatArray:
    """Return log(1 + exp(beta * x)) / beta, correctly rounded for beta = 1, and x beyond the threshold."""
    operand = c.operand(x)
    scaled = operand if beta == 1 else c.value(a.multiply, operand, c.number(beta))
    found = c.value(f.softplus, scaled)
    if beta != 1:
        found = c.value(a.divide, found, c.number(beta))
    large = scaled.values > threshold
    return c.result(FloatArray(np.where(large, c.rounded(operand, found.format).codes, found.codes), found.format))


def _softplus_backward(c: Call, gradient: Any, x: Any, beta: float, threshold: float) -> FloatArray:
    operand, g = c.operand(x), c.gradient(gradient)
    scaled = operand if beta == 1 else c.value(a.multiply, operand, c.number(beta))
    found = c.value(a.multiply, g, c.value(f.sigmoid, scaled))
    large = scaled.values > threshold
    return c.result(FloatArray(np.where(large, c.rounded(g, found.format).codes, found.codes), found.format))


def _relu(c: Call, x: Any) -> FloatArray:
    """Return the larger of x and 0. -0 is kept, as in PyTorch."""
    return _clamp(c, x, 0.0)


def _softshrink(c: Call, x: Any, threshold: float = 0.5) -> FloatArray:
    """Return x - threshold above the threshold, x + threshold below its negative, and +0 between, as in PyTorch."""
    operand, limit = c.operand(x), c.number(threshold)
    high, low = c.value(a.subtract, operand, limit), c.value(a.add, operand, limit)
    values, bound = operand.values, limit.values
    found = _chosen(values > bound, high, _chosen(values < -bound, low, c.number(0.0)))
    return c.result(_chosen(np.isnan(values), high, found))


def _round(c: Call, x: Any, decimals: int = 0) -> FloatArray:
    """Return x rounded to integers, or to decimals: times 10 ** decimals, an integer, and back, as in PyTorch."""
    operand = c.operand(x)
    if decimals == 0:
        return c.result(a.rint(operand))
    there, back = (a.multiply, a.divide) if decimals > 0 else (a.divide, a.multiply)
    scale = c.constant(10.0 ** abs(decimals))
    return c.result(c.value(back, a.rint(c.value(there, operand, scale)), scale))


def _threshold_backward(c: Call, gradient: Any, x: Any, threshold: float) -> FloatArray:
    """Return the gradient where x > threshold, and 0 elsewhere; for relu, the threshold is 0."""
    if threshold == 0:
        return c.operator(activations_backward.relu_backward, c.array(gradient), c.array(x))  # type: ignore[no-any-return]
    g, kept = c.result(c.gradient(gradient)), ~(c.operand(x).values <= threshold)
    return FloatArray(np.where(kept, g.codes, g.codes.dtype.type(0)), g.format)


def _logit_free(function: Callable[..., Any]) -> Handler:
    """Return the handler of a function that has no correctly rounded one: float64 by NumPy, then one rounding.

    The float64 result has an error of a few ulps of float64, so the rounding to 24 bits or less is correct except for
    results that close to a boundary.
    """

    def run(c: Call, x: Any) -> FloatArray:
        with np.errstate(all="ignore"):
            numbers = np.asarray(function(c.operand(x).values), np.float64)
        return c.result(convert(FloatArray(numbers.view(np.uint64), FP64), c.formats.inside))

    return run


def _erfinv(x: Any) -> Any:
    return torch.special.erfinv(torch.from_numpy(np.array(x))).numpy()


UNARY = {
    "exp": f.exp, "exp2": f.exp2, "expm1": f.expm1, "log": f.log, "log2": f.log2, "log10": f.log10, "log1p": f.log1p,
    "sin": f.sin, "cos": f.cos, "tan": f.tan, "sinh": f.sinh, "cosh": f.cosh, "tanh": f.tanh, "asin": f.asin,
    "acos": f.acos, "atan": f.atan, "erf": f.erf, "sqrt": a.sqrt, "rsqrt": f.rsqrt, "reciprocal": f.reciprocal,
    "sigmoid": f.sigmoid, "silu": f.silu, "mish": f.mish,
}  # fmt: skip
BINARY = {"hypot": f.hypot, "fmod": a.fmod}
EXACT = {"neg": a.negative, "abs": a.absolute, "floor": a.floor, "ceil": a.ceil, "trunc": a.trunc}
WITHOUT_ROUNDED_FUNCTION: dict[str, Handler] = {
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "erfinv": _erfinv,
    "erfc": np.vectorize(math.erfc, otypes=[np.float64]),
}  # fmt: skip
"""Functions that floatsim does not have: float64, then one rounding."""

ELEMENTWISE: dict[str, tuple[str, Handler]] = {
    **{name: (name, _unary(function)) for name, function in UNARY.items()},
    **{name: (name, _binary(function)) for name, function in BINARY.items()},
    **{name: (name, _logit_free(function)) for name, function in WITHOUT_ROUNDED_FUNCTION.items()},
    **{name: (name, _exact(function)) for name, function in EXACT.items()},
    "mul": ("mul", _mul),
    "maximum": ("maximum", _extreme(True)),
    "minimum": ("minimum", _extreme(False)),
    "round": ("round", _round),
    "remainder": ("fmod", _remainder),
    "softshrink": ("softshrink", _softshrink),
    "add": ("add", _add),
    "sub": ("sub", _sub),
    "rsub": ("sub", _rsub),
    "div": ("div", _div),
    "pow": ("pow", _pow),
    "addcmul": ("addcmul", _addcmul),
    "addcdiv": ("addcdiv", _addcdiv),
    "lerp": ("lerp", _lerp),
    "clamp": ("clamp", _clamp),
    "nan_to_num": ("clamp", _nan_to_num),
    "clamp_min": ("clamp", _clamp),
    "clamp_max": ("clamp", lambda c, x, high: _clamp(c, x, None, high)),
    "relu": ("relu", _relu),
    "threshold_backward": ("relu", _threshold_backward),
    "gelu": ("gelu", _gelu),
    "gelu_backward": ("gelu", _gelu_backward),
    "silu_backward": ("silu", _of_operator(activations_backward.silu_backward)),
    "tanh_backward": ("tanh", _tanh_backward),
    "sigmoid_backward": ("sigmoid", _sigmoid_backward),
    "softplus": ("softplus", _softplus),
    "softplus_backward": ("softplus", _softplus_backward),
}
"""By the name of the ATen operation: the operation of policies, and the handler."""
