"""The backward operators equal plain loops, and their float64 results equal difference quotients of the operators."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

import floatsim as fs
from floatsim import operators as ops
from tests.operators import plain
from tests.operators.test_operators import ACTIVATIONS, check, exact, numbers, random_formats, seeds, variants

pytestmark = pytest.mark.full


def half(*arrays):
    return [fs.array(x, "fp16") for x in arrays]


def check_all(found, expected):
    for result, values in zip(found, expected, strict=True):
        if values is None:
            assert result is None
        else:
            check(result, values)


@seeds
@pytest.mark.parametrize("variant", ["standard", "fused"])
@pytest.mark.parametrize("operator", ["softmax", "log_softmax"])
def test_softmax_backward(operator, variant, seed):
    name = f"{operator}_backward"
    formats = random_formats(name, variant, seed)
    g, x = numbers(seed, 3, 9), fs.array(numbers(seed + 1, 3, 9), "fp32")
    y = fs.quantize(getattr(ops, operator)(x).values, "fp16")
    found = getattr(ops, name)(*half(g, y), variant=variant, formats=formats)
    rows = zip(exact(g), exact(y), strict=True)
    check(found, [getattr(plain, name)(plain.Row(formats), *row, variant) for row in rows])


@seeds
@variants("cross_entropy_backward")
def test_cross_entropy_backward(variant, seed):
    formats, x, target = random_formats("cross_entropy_backward", variant, seed), numbers(seed, 3, 5), [0, 4, 2]
    found = ops.cross_entropy_backward(
        fs.array(x, "fp16"), target, loss_scale=3.3, variant=variant, formats=formats
    )  # fmt: skip
    check(found, plain.cross_entropy_backward(plain.Row(formats), exact(x), target, 3.3, variant))


@seeds
def test_linear_backward(seed):
    formats = random_formats("linear_backward", "standard", seed)
    g, x, w = numbers(seed, 2, 3, 4), numbers(seed + 1, 2, 3, 5), numbers(seed + 2, 4, 5)
    found = ops.linear_backward(*half(g, x, w), formats=formats)
    flat = exact(g.reshape(6, 4)), exact(x.reshape(6, 5)), exact(w)
    by_x, by_w, by_b = plain.linear_backward(plain.Row(formats), *flat)
    check_all(found, (np.array(by_x, float).reshape(2, 3, 5), by_w, by_b))


@seeds
@pytest.mark.parametrize("variant", ["standard", "threads"])
@pytest.mark.parametrize("operator", ["layer_norm", "rms_norm"])
def test_norm_backward(operator, variant, seed):
    name = f"{operator}_backward"
    formats = random_formats(name, variant, seed)
    g, x, w = numbers(seed, 3, 7), numbers(seed + 1, 3, 7), numbers(seed + 2, 7)
    found = getattr(ops, name)(*half(g, x, w), eps=1e-3, variant=variant, formats=formats)
    oracle = plain.norm_backward if variant == "standard" else plain.norm_backward_by_threads
    expected = oracle(plain.Row(formats), exact(g), exact(x), exact(w), 1e-3, operator == "layer_norm")
    check_all(found, expected)


@seeds
@variants("attention_backward")
def test_attention_backward(variant, seed):
    formats = random_formats("attention_backward", variant, seed)
    g, q, k, v = numbers(seed, 4, 2), *(numbers(seed + n, 4, d) for n, d in ((1, 5), (2, 5), (3, 2)))
    found = ops.attention_backward(*half(g, q, k, v), causal=True, variant=variant, formats=formats, block=2)
    kept = np.tri(4, dtype=bool)
    operands = map(exact, (g, q, k, v))
    check_all(found, plain.attention_backward(plain.Row(formats), *operands, kept, Fraction(1 / math.sqrt(5)), variant))


@seeds
@variants("batch_norm_backward")
def test_batch_norm_backward(variant, seed):
    formats = random_formats("batch_norm_backward", variant, seed)
    g, x, w = numbers(seed, 3, 2, 2, 2), numbers(seed + 1, 3, 2, 2, 2), numbers(seed + 2, 2)
    running, training = np.abs(numbers(seed + 3, 2, 2)), variant == "training"
    found = ops.batch_norm_backward(*half(g, x, *running, w), training=training, eps=1e-3, formats=formats)
    for channel in range(2):
        rows = (exact(np.moveaxis(values, 1, -1)[..., channel].ravel()) for values in (g, x))
        statistics, weight = exact(running[:, channel]), exact(w[channel])
        expected = plain.batch_norm_backward(plain.Row(formats), *rows, statistics, weight, 1e-3, training)
        by_x = np.moveaxis(found.x.values, 1, -1)[..., channel].ravel()
        check_all((by_x, found.weight[channel], found.bias[channel]), expected)


@seeds
def test_residual_add_backward(seed):
    formats, g = random_formats("residual_add_backward", "standard", seed), numbers(seed, 2, 3, 4)
    r = plain.Row(formats)
    found = ops.residual_add_backward(*half(g), (3, 1), formats=formats)
    rows = plain.each(r, "gradient", exact(g))
    by_x = [[r("output", r.sum("input_gradient", [v for image in rows for v in image[i]]))] for i in range(3)]
    check_all(found, (by_x, plain.each(r, "output", plain.each(r, "residual_gradient", rows))))


@seeds
@variants("conv2d_backward")
@pytest.mark.parametrize(("stride", "padding"), [(1, 1), (2, 0), (2, 3), (4, 1)])
def test_conv2d_backward(variant, seed, stride, padding):
    formats = random_formats("conv2d_backward", variant, seed)
    x, w = numbers(seed, 2, 2, 4, 5), numbers(seed + 1, 3, 2, 3, 2)
    rows, columns = ((n + 2 * padding - k) // stride + 1 for n, k in ((4, 3), (5, 2)))
    g = numbers(seed + 2, 2, 3, rows, columns)
    found = ops.conv2d_backward(*half(g, x, w), stride=stride, padding=padding, variant=variant, formats=formats)
    operands = map(exact, (g, x, w))
    check_all(found, plain.conv2d_backward(plain.Row(formats), *operands, stride, padding, variant))


@seeds
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("kind", ["max", "avg"])
def test_pool_backward(kind, stride, seed):
    name = f"{kind}_pool_backward"
    formats, x = random_formats(name, "standard", seed), np.round(numbers(seed, 1, 2, 5, 4))  # with ties
    g = numbers(seed + 1, 1, 2, (5 - 2) // stride + 1, (4 - 2) // stride + 1)
    operand = half(x)[0] if kind == "max" else (5, 4)
    found = getattr(ops, name)(*half(g), operand, 2, stride=stride, formats=formats)
    planes = exact(x[0]) if kind == "max" else [None, None]
    expected = [
        plain.pool_backward(plain.Row(formats), gradient, plane, 5, 4, 2, stride)
        for gradient, plane in zip(exact(g[0]), planes, strict=True)
    ]
    check(found, [expected])


def test_the_gradient_of_a_maximum_goes_to_the_first_nan():
    x = fs.array([[[[1.0, math.nan], [2.0, math.nan]]]], "bf16")
    found = ops.max_pool_backward(fs.array([[[[3.0]]]], "bf16"), x, 2)
    check(found, [[[[0, 3], [0, 0]]]])


@seeds
def test_embedding_backward(seed):
    formats, g = random_formats("embedding_backward", "standard", seed), numbers(seed, 3, 5, 2)
    indices = np.random.default_rng(seed).integers(0, 6, (3, 5))
    found = ops.embedding_backward(*half(g), indices, 7, formats=formats)
    flat = exact(g.reshape(15, 2))
    check(found, plain.embedding_backward(plain.Row(formats), flat, indices.ravel(), 7))


def test_embedding_backward_has_no_terms_but_the_gradients_of_a_row():
    """In a tree, further terms of +0 would change the order."""
    g, indices = numbers(1, 40, 1), [0] * 5 + [2] * 33 + [0] * 2
    found = ops.embedding_backward(*half(g), indices, 3, accumulations={"sum": "pairwise(fp16)"}, formats=FP16_SUM)
    rows = [g[[*range(5), 38, 39]], g[:0], g[5:38]]
    check(found, [fs.sum(fs.array(row, "fp16"), 0, accumulate="pairwise(fp16)").values for row in rows])


FP16_SUM = {"sum": "fp16"}


@seeds
@pytest.mark.parametrize(
    ("operator", "variant"),
    [(name, variant) for name in ACTIVATIONS for variant in ops.OPERATORS[f"{name}_backward"].variants],
)
def test_activations_backward(operator, variant, seed):
    name = f"{operator}_backward"
    formats, g, x = random_formats(name, variant, seed), numbers(seed, 30), numbers(seed + 1, 30, scale=2)
    if operator in ("tanh", "sigmoid"):
        x = getattr(ops, operator)(*half(x)).values
    found = getattr(ops, name)(*half(g, x), variant=variant, formats=formats)
    pairs = zip(exact(g), exact(x), strict=True)
    check(found, [plain.activation_backward(plain.Row(formats), operator, variant, *pair) for pair in pairs])


@pytest.mark.parametrize(("x", "expected"), [(0.0, 0.0), (-0.0, 0.0), (math.nan, 5.0), (2.0**-24, 5.0), (-1.0, 0.0)])
def test_relu_backward_at_special_values(x, expected):
    check(ops.relu_backward(*half([5.0], [x])), [expected])


@seeds
@pytest.mark.parametrize("kind", ["rnn", "lstm", "lstm without cell_gradient", "gru"])
def test_cells_backward(kind, seed):
    kind, _, without = kind.partition(" ")
    name, gates = f"{kind}_cell_backward", {"rnn": 1, "lstm": 4, "gru": 3}[kind]
    formats = random_formats(name, "standard", seed)
    g, also, hidden, memory = (numbers(seed + n, 2, 3) for n in range(4))
    x, biases = numbers(seed + 4, 2, 5), (numbers(seed + 5, 3 * gates), numbers(seed + 6, 3 * gates))
    weights = numbers(seed + 7, 3 * gates, 5), numbers(seed + 8, 3 * gates, 3)
    also = None if without or kind != "lstm" else also
    given = [g, also, x, hidden, memory] if kind == "lstm" else [g, x, hidden]
    operands = [None if p is None else fs.array(p, "fp16") for p in (*given, *weights, *biases)]
    found = getattr(ops, name)(*operands, formats=formats)
    g, also, x, hidden, memory = (None if p is None else exact(p) for p in (g, also, x, hidden, memory))
    parameters = [tuple(map(exact, each)) for each in (weights, biases)]
    check_all(found, plain.cell_backward(plain.Row(formats), kind, g, also, x, hidden, memory, *parameters))


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
IMAGES, FILTERS = numbers(10, 2, 2, 4, 5), numbers(11, 3, 2, 3, 2)
CELLS = {gates: [numbers(20 + n, *shape) for n, shape in enumerate(((3 * gates, 5), (3 * gates, 3)))]
         for gates in (1, 3, 4)}  # fmt: skip
BIASES = {gates: [numbers(22 + n, 3 * gates) for n in range(2)] for gates in (1, 3, 4)}
STATE = [numbers(24, 2, 5), numbers(25, 2, 3)]
MEMORY = numbers(26, 2, 3)


def of_forward(name):
    """The operands and gradients of an activation function."""
    if name in ("tanh", "sigmoid"):
        forward = getattr(ops, name)
        return [X], lambda g, x: [getattr(ops, f"{name}_backward")(g, forward(x, recipe="float64"), recipe="float64")]
    return [X], lambda g, x: [getattr(ops, f"{name}_backward")(g, x, recipe="float64")]


def without_none(gradients):
    return [g for g in gradients if g is not None]


DERIVATIVES = {
    "softmax": ([X], lambda g, x: [ops.softmax_backward(g, ops.softmax(x, recipe="float64"), recipe="float64")]),
    "log_softmax": (
        [X], lambda g, x: [ops.log_softmax_backward(g, ops.log_softmax(x, recipe="float64"), recipe="float64")],
    ),
    "linear": ([X, M, numbers(7, 5)], lambda g, x, w, b: ops.linear_backward(g, x, w, recipe="float64")),
    "layer_norm": ([X, W, B], lambda g, x, w, b: ops.layer_norm_backward(g, x, w, recipe="float64")),
    "rms_norm": ([X, W], lambda g, x, w: ops.rms_norm_backward(g, x, w, recipe="float64")[:2]),
    "attention": ([X, KEYS, VALUES], lambda g, *qkv: ops.attention_backward(g, *qkv, recipe="float64")),
    "residual_add": ([X, W], lambda g, *xs: ops.residual_add_backward(g, *map(np.shape, xs), recipe="float64")),
    **{name: of_forward(name) for name in ACTIVATIONS},
    "rnn_cell": (
        [*STATE, *CELLS[1], *BIASES[1]],
        lambda g, *given: without_none(ops.rnn_cell_backward(g, *given, recipe="float64")),
    ),
    "gru_cell": (
        [*STATE, *CELLS[3], *BIASES[3]],
        lambda g, *given: without_none(ops.gru_cell_backward(g, *given, recipe="float64")),
    ),
}  # fmt: skip


@pytest.mark.parametrize("operator", DERIVATIVES)
def test_gradients_are_derivatives(operator):
    operands, backward = DERIVATIVES[operator]

    def forward(*given):
        return getattr(ops, operator)(*given, recipe="float64")

    check_derivatives(forward, operands, backward)


def check_derivatives(forward, operands, backward):
    gradient = numbers(9, *forward(*operands).shape)
    for index, found in enumerate(backward(gradient, *operands)):
        expected = difference_quotients(forward, operands, index, gradient)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("training", [False, True])
def test_gradients_of_batch_norm_are_derivatives(training):
    x, running = numbers(12, 5, 4, 2), (M[0], M[1] ** 2)
    check_derivatives(
        lambda x, w, b: ops.batch_norm(x, *running, w, b, training=training, recipe="float64").output, [x, W, B],
        lambda g, x, w, b: ops.batch_norm_backward(g, x, *running, w, training=training, recipe="float64"),
    )  # fmt: skip


@variants("conv2d_backward")
@pytest.mark.parametrize(("stride", "padding"), [(1, 1), (2, 0), ((2, 1), (3, 0)), (4, 1)])
def test_gradients_of_conv2d_are_derivatives(variant, stride, padding):
    where = {"stride": stride, "padding": padding, "recipe": "float64"}
    check_derivatives(
        lambda x, w, b: ops.conv2d(x, w, b, **where), [IMAGES, FILTERS, numbers(13, 3)],
        lambda g, x, w, b: ops.conv2d_backward(g, x, w, variant=variant, **where),
    )  # fmt: skip


@pytest.mark.parametrize("stride", [None, 1, (3, 2)])
def test_gradients_of_pools_are_derivatives(stride):
    size, where = (2, 3), {"stride": stride, "recipe": "float64"}
    check_derivatives(
        lambda x: ops.max_pool(x, size, **where), [IMAGES], lambda g, x: [ops.max_pool_backward(g, x, size, **where)]
    )
    check_derivatives(
        lambda x: ops.avg_pool(x, size, **where), [IMAGES],
        lambda g, x: [ops.avg_pool_backward(g, x.shape[2:], size, **where)],
    )  # fmt: skip


def test_the_gradient_of_an_embedding_is_its_derivative():
    indices = [[4, 0, 4], [1, 1, 4]]
    check_derivatives(
        lambda table: ops.embedding(indices, table, recipe="float64"), [M],
        lambda g, table: [ops.embedding_backward(g, indices, len(table), recipe="float64")],
    )  # fmt: skip


@pytest.mark.parametrize("of_cell", [False, True])
def test_gradients_of_lstm_cell_are_derivatives(of_cell):
    """With a loss that depends on the next cell state, too."""

    def forward(x, hidden, cell, *parameters):
        state = ops.lstm_cell(x, hidden, cell, *parameters, recipe="float64")
        return np.stack(state if of_cell else state[:1])

    def backward(g, *operands):
        return ops.lstm_cell_backward(g[0], g[1] if of_cell else None, *operands, recipe="float64")

    check_derivatives(forward, [*STATE, MEMORY, *CELLS[4], *BIASES[4]], backward)


def test_the_gradient_of_gelu_by_tanh_is_its_derivative():
    check_derivatives(
        lambda x: ops.gelu(x, variant="tanh", recipe="float64"), [X],
        lambda g, x: [ops.gelu_backward(g, x, variant="tanh", recipe="float64")],
    )  # fmt: skip


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
    image, gradient = fs.array(IMAGES, "fp16"), fs.array(numbers(14, 2, 2, 2, 2), "fp16")
    with pytest.raises(ValueError, match="the shapes differ"):
        ops.relu_backward(x, x[:2])
    with pytest.raises(ValueError, match="contradicts training"):
        ops.batch_norm_backward(x, x, x[0], x[0], variant="training")
    with pytest.raises(ValueError, match="does not broadcast"):
        ops.residual_add_backward(x, (5,))
    with pytest.raises(ValueError, match="do not fit"):
        ops.conv2d_backward(gradient, image, image)
    with pytest.raises(ValueError, match="the windows of x have"):
        ops.max_pool_backward(gradient, image, 3)
    with pytest.raises(ValueError, match="the windows of"):
        ops.avg_pool_backward(gradient, (4, 5), 3)
    with pytest.raises(ValueError, match="do not fit"):
        ops.embedding_backward(x, [0, 1], 4)
    with pytest.raises(ValueError, match="from 0 to 1"):
        ops.embedding_backward(x, [0, 1, 2], 2)
    with pytest.raises(ValueError, match="must have one shape"):
        ops.rnn_cell_backward(x, x, x[:, :2], x[:2], x[:2, :2])
    with pytest.raises(ValueError, match="equal leading axes"):
        ops.rnn_cell_backward(x, x[:1], x, *(fs.array(numbers(15, 4, 4), "fp16"),) * 2)
