"""The backward operators equal plain loops, and their float64 results equal difference quotients of the operators."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import plain
import pytest
from test_operators import check, exact, numbers, random_formats, seeds

import floatsim as fs
from floatsim import operators as ops


def half(*arrays):
    return [fs.array(x, "fp16") for x in arrays]


def check_all(found, expected):
    for result, values in zip(found, expected, strict=True):
        if values is None:
            assert result is None
        else:
            check(result, values)


@seeds
@pytest.mark.parametrize("operator", ["softmax", "log_softmax"])
def test_softmax_backward(operator, seed):
    name = f"{operator}_backward"
    formats = random_formats(name, "standard", seed)
    g, x = numbers(seed, 3, 9), fs.array(numbers(seed + 1, 3, 9), "fp32")
    y = fs.quantize(getattr(ops, operator)(x).values, "fp16")
    found = getattr(ops, name)(*half(g, y), formats=formats)
    rows = zip(exact(g), exact(y), strict=True)
    check(found, [getattr(plain, name)(plain.Row(formats), *row) for row in rows])


@seeds
def test_cross_entropy_backward(seed):
    formats, x, target = random_formats("cross_entropy_backward", "standard", seed), numbers(seed, 3, 5), [0, 4, 2]
    found = ops.cross_entropy_backward(fs.array(x, "fp16"), target, loss_scale=3.3, formats=formats)
    check(found, plain.cross_entropy_backward(plain.Row(formats), exact(x), target, 3.3))


@seeds
def test_linear_backward(seed):
    formats = random_formats("linear_backward", "standard", seed)
    g, x, w = numbers(seed, 2, 3, 4), numbers(seed + 1, 2, 3, 5), numbers(seed + 2, 4, 5)
    found = ops.linear_backward(*half(g, x, w), formats=formats)
    flat = exact(g.reshape(6, 4)), exact(x.reshape(6, 5)), exact(w)
    by_x, by_w, by_b = plain.linear_backward(plain.Row(formats), *flat)
    check_all(found, (np.array(by_x, float).reshape(2, 3, 5), by_w, by_b))


@seeds
@pytest.mark.parametrize("operator", ["layer_norm", "rms_norm"])
def test_norm_backward(operator, seed):
    name = f"{operator}_backward"
    formats = random_formats(name, "standard", seed)
    g, x, w = numbers(seed, 3, 7), numbers(seed + 1, 3, 7), numbers(seed + 2, 7)
    found = getattr(ops, name)(*half(g, x, w), eps=1e-3, formats=formats)
    expected = plain.norm_backward(plain.Row(formats), exact(g), exact(x), exact(w), 1e-3, operator == "layer_norm")
    check_all(found, expected)


@seeds
def test_attention_backward(seed):
    formats = random_formats("attention_backward", "standard", seed)
    g, q, k, v = numbers(seed, 4, 2), *(numbers(seed + n, 4, d) for n, d in ((1, 5), (2, 5), (3, 2)))
    found = ops.attention_backward(*half(g, q, k, v), causal=True, formats=formats)
    kept = np.tri(4, dtype=bool)
    operands = map(exact, (g, q, k, v))
    check_all(found, plain.attention_backward(plain.Row(formats), *operands, kept, Fraction(1 / math.sqrt(5))))


# -- against difference quotients --------------------------------------------------------------------------------------


def difference_quotients(function, operands, index, gradient):
    """The derivative of sum(gradient * function(operands)) by each element of one operand."""
    found = np.zeros(operands[index].shape)
    for place in np.ndindex(found.shape):
        values = []
        for step in (1e-6, -1e-6):
            moved = [x.copy() for x in operands]
            moved[index][place] += step
            values.append(float(np.sum(gradient * function(*moved))))
        found[place] = (values[0] - values[1]) / 2e-6
    return found


X, W, B, M = numbers(1, 3, 4), numbers(2, 4), numbers(3, 4), numbers(4, 5, 4)
KEYS, VALUES = numbers(5, 3, 4), numbers(6, 3, 2)
DERIVATIVES = {
    "softmax": ([X], lambda g, x: [ops.softmax_backward(g, ops.softmax(x, recipe="float64"), recipe="float64")]),
    "log_softmax": (
        [X], lambda g, x: [ops.log_softmax_backward(g, ops.log_softmax(x, recipe="float64"), recipe="float64")],
    ),
    "linear": ([X, M, numbers(7, 5)], lambda g, x, w, b: ops.linear_backward(g, x, w, recipe="float64")),
    "layer_norm": ([X, W, B], lambda g, x, w, b: ops.layer_norm_backward(g, x, w, recipe="float64")),
    "rms_norm": ([X, W], lambda g, x, w: ops.rms_norm_backward(g, x, w, recipe="float64")[:2]),
    "attention": ([X, KEYS, VALUES], lambda g, *qkv: ops.attention_backward(g, *qkv, recipe="float64")),
}  # fmt: skip


@pytest.mark.parametrize("operator", DERIVATIVES)
def test_gradients_are_derivatives(operator):
    operands, backward = DERIVATIVES[operator]

    def forward(*given):
        return getattr(ops, operator)(*given, recipe="float64")

    gradient = numbers(9, *forward(*operands).shape)
    for index, found in enumerate(backward(gradient, *operands)):
        expected = difference_quotients(forward, operands, index, gradient)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)


def test_the_gradient_of_the_cross_entropy_is_its_derivative():
    def forward(x):
        return ops.cross_entropy(x, [0, 3, 1], recipe="float64")

    found = ops.cross_entropy_backward(X, [0, 3, 1], loss_scale=2.0, recipe="float64")
    np.testing.assert_allclose(found, difference_quotients(forward, [X], 0, 2.0), rtol=1e-6, atol=1e-8)


def test_wrong_shapes():
    x = fs.array(X, "fp16")
    with pytest.raises(ValueError, match="the shapes differ"):
        ops.softmax_backward(x, x[:2])
    with pytest.raises(ValueError, match="do not fit"):
        ops.linear_backward(x, x, x)
    with pytest.raises(ValueError, match="weight has the shape"):
        ops.layer_norm_backward(x, x, x)
    with pytest.raises(ValueError, match="do not fit"):
        ops.attention_backward(x, x, x, x[:, :2])
