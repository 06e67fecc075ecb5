"""Every operator of the recipe pytorch-cpu against PyTorch: equal, or within a distance that the documentation states.

The distance is the norm of the difference, relative to the norm of PyTorch's result, in units of 2**-p with the p bits
of the format. Results near zero, which are differences of large terms, make distances in ulps meaningless.
"""

from __future__ import annotations

import numpy as np
import pytest

import floatsim as fs
from floatsim import operators as ops

torch = pytest.importorskip("torch", reason="needs torch: the extra `torch`")
F = torch.nn.functional
aten = torch.ops.aten

FORMATS = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
RECIPE = {"recipe": "pytorch-cpu"}
EQUAL = (
    "relu", "residual_add", "max_pool", "avg_pool", "embedding", "relu_backward", "tanh_backward", "max_pool_backward",
    "avg_pool_backward", "embedding_backward",
)  # fmt: skip
"""Equal in FP32, FP16 and BF16."""
NEARLY = (
    "softmax", "log_softmax", "tanh", "sigmoid", "softplus", "silu", "layer_norm", "rms_norm", "batch_norm", "linear",
    "conv2d", "softmax_backward", "log_softmax_backward", "softplus_backward", "silu_backward", "linear_backward",
    "layer_norm_backward", "rms_norm_backward", "batch_norm_backward", "residual_add_backward",
)  # fmt: skip
"""Equal in FP16 and BF16 but for 0.3 % of the results, within 4 units in FP32 (batch_norm_backward: 16)."""
CLOSE = (
    "gelu", "gelu_backward", "batch_norm training", "batch_norm_backward training", "cross_entropy",
    "cross_entropy_backward", "sigmoid_backward", "conv2d_backward", "attention", "attention_backward", "rnn_cell",
    "lstm_cell", "gru_cell", "rnn_cell_backward", "lstm_cell_backward", "gru_cell_backward",
)  # fmt: skip
"""Within 1.5 units in FP16 and BF16, within 8 in FP32 (batch_norm_backward: 16)."""


class Case:
    """Operands of one format, and the results of the recipe and of PyTorch, by the name of the operator."""

    def __init__(self, dtype):
        self.dtype, self.seed = dtype, 0

    def normal(self, *shape, scale=1.0):
        self.seed += 1
        drawn = np.random.default_rng(self.seed).normal(0, scale, shape).astype(np.float32)
        return torch.from_numpy(drawn).to(self.dtype)

    def gradients(self, function, gradient, *operands):
        leaves = [x.clone().requires_grad_(True) for x in operands]
        function(*leaves).backward(gradient)
        return [x.grad for x in leaves]

    def pairs(self, name):
        kind, _, training = name.partition(" ")
        found, expected = getattr(self, kind)(bool(training)) if "batch_norm" in kind else getattr(self, kind)()
        found = found if isinstance(found, tuple) else (found,)
        expected = expected if isinstance(expected, tuple | list) else (expected,)
        return list(zip(found, expected, strict=False))

    def _of_one(self, name, function):
        x = self.normal(50, 64, scale=2)
        return getattr(ops, name)(x, **RECIPE), function(x)

    def _of_one_backward(self, name, function):
        x, g = self.normal(50, 64, scale=2), self.normal(50, 64)
        return getattr(ops, name)(g, x, **RECIPE), self.gradients(function, g, x)

    def _through_result(self, name, forward, backward):
        y, g = forward(self.normal(50, 64, scale=2)), self.normal(50, 64)
        return getattr(ops, name)(g, y, **RECIPE), backward(g, y)

    def relu(self):
        return self._of_one("relu", F.relu)

    def tanh(self):
        return self._of_one("tanh", torch.tanh)

    def sigmoid(self):
        return self._of_one("sigmoid", torch.sigmoid)

    def softplus(self):
        return self._of_one("softplus", F.softplus)

    def silu(self):
        return self._of_one("silu", F.silu)

    def gelu(self):
        return self._of_one("gelu", F.gelu)

    def softmax(self):
        return self._of_one("softmax", lambda x: F.softmax(x, -1))

    def log_softmax(self):
        return self._of_one("log_softmax", lambda x: F.log_softmax(x, -1))

    def relu_backward(self):
        return self._of_one_backward("relu_backward", F.relu)

    def softplus_backward(self):
        return self._of_one_backward("softplus_backward", F.softplus)

    def silu_backward(self):
        return self._of_one_backward("silu_backward", F.silu)

    def gelu_backward(self):
        return self._of_one_backward("gelu_backward", F.gelu)

    def tanh_backward(self):
        return self._through_result("tanh_backward", torch.tanh, aten.tanh_backward)

    def sigmoid_backward(self):
        return self._through_result("sigmoid_backward", torch.sigmoid, aten.sigmoid_backward)

    def softmax_backward(self):
        return self._through_result(
            "softmax_backward", lambda x: F.softmax(x, -1), lambda g, y: aten._softmax_backward_data(g, y, -1, y.dtype)
        )

    def log_softmax_backward(self):
        return self._through_result(
            "log_softmax_backward", lambda x: F.log_softmax(x, -1),
            lambda g, y: aten._log_softmax_backward_data(g, y, -1, y.dtype),
        )  # fmt: skip

    def _scores(self):
        return self.normal(50, 64, scale=2), torch.from_numpy(np.random.default_rng(9).integers(0, 64, 50))

    def cross_entropy(self):
        x, target = self._scores()
        return ops.cross_entropy(x, target, **RECIPE), F.cross_entropy(x, target)

    def cross_entropy_backward(self):
        x, target = self._scores()
        one = torch.ones((), dtype=self.dtype)
        return ops.cross_entropy_backward(x, target, **RECIPE), self.gradients(
            lambda x: F.cross_entropy(x, target), one, x
        )

    def residual_add(self):
        x, y = self.normal(50, 64), self.normal(50, 64)
        return ops.residual_add(x, y, **RECIPE), x + y

    def residual_add_backward(self):
        g, x, y = self.normal(50, 64), self.normal(50, 64), self.normal(64)
        return ops.residual_add_backward(g, x.shape, y.shape, **RECIPE), self.gradients(torch.add, g, x, y)

    def linear(self):
        x, weight, bias = self.normal(50, 64), self.normal(24, 64, scale=0.2), self.normal(24)
        return ops.linear(x, weight, bias, **RECIPE), F.linear(x, weight, bias)

    def linear_backward(self):
        g, x, weight, bias = self.normal(50, 24), self.normal(50, 64), self.normal(24, 64, scale=0.2), self.normal(24)
        return ops.linear_backward(g, x, weight, **RECIPE), self.gradients(F.linear, g, x, weight, bias)

    def _rows(self):
        return self.normal(50, 64), self.normal(50, 64, scale=2), self.normal(64), self.normal(64)

    def layer_norm(self):
        _, x, weight, bias = self._rows()
        return ops.layer_norm(x, weight, bias, **RECIPE), F.layer_norm(x, (64,), weight, bias)

    def layer_norm_backward(self):
        g, x, weight, bias = self._rows()
        return ops.layer_norm_backward(g, x, weight, **RECIPE), self.gradients(
            lambda x, w, b: F.layer_norm(x, (64,), w, b), g, x, weight, bias
        )

    def rms_norm(self):
        _, x, weight, _ = self._rows()
        return ops.rms_norm(x, weight, **RECIPE), F.rms_norm(x, (64,), weight)

    def rms_norm_backward(self):
        g, x, weight, _ = self._rows()
        return ops.rms_norm_backward(g, x, weight, **RECIPE), self.gradients(
            lambda x, w: F.rms_norm(x, (64,), w), g, x, weight
        )

    def _channels(self):
        x, mean, var = self.normal(4, 6, 12, 12), self.normal(6), self.normal(6).abs() + 0.5
        return x, mean, var, self.normal(6), self.normal(6)

    def batch_norm(self, training):
        x, mean, var, weight, bias = self._channels()
        new_mean, new_var = mean.clone(), var.clone()
        y = F.batch_norm(x, new_mean, new_var, weight, bias, training=training)
        return ops.batch_norm(x, mean, var, weight, bias, training=training, **RECIPE), (y, new_mean, new_var)

    def batch_norm_backward(self, training):
        x, mean, var, weight, bias = self._channels()
        g = self.normal(*x.shape)
        return ops.batch_norm_backward(g, x, mean, var, weight, training=training, **RECIPE), self.gradients(
            lambda x, w, b: F.batch_norm(x, mean.clone(), var.clone(), w, b, training=training), g, x, weight, bias
        )

    def _images(self):
        return self.normal(4, 6, 12, 12), self.normal(8, 6, 3, 3, scale=0.2), self.normal(8)

    def conv2d(self):
        x, weight, bias = self._images()
        return ops.conv2d(x, weight, bias, **RECIPE), F.conv2d(x, weight, bias)

    def conv2d_backward(self):
        x, weight, bias = self._images()
        g = self.normal(4, 8, 10, 10)
        return ops.conv2d_backward(g, x, weight, **RECIPE), self.gradients(F.conv2d, g, x, weight, bias)

    def max_pool(self):
        x = self.normal(4, 6, 12, 12)
        return ops.max_pool(x, 2, **RECIPE), F.max_pool2d(x, 2)

    def avg_pool(self):
        x = self.normal(4, 6, 12, 12)
        return ops.avg_pool(x, 3, stride=1, **RECIPE), F.avg_pool2d(x, 3, 1)

    def max_pool_backward(self):
        x, g = self.normal(4, 6, 12, 12), self.normal(4, 6, 10, 10)
        return ops.max_pool_backward(g, x, 3, stride=1, **RECIPE), self.gradients(lambda x: F.max_pool2d(x, 3, 1), g, x)

    def avg_pool_backward(self):
        x, g = self.normal(4, 6, 12, 12), self.normal(4, 6, 10, 10)
        return ops.avg_pool_backward(g, (12, 12), 3, stride=1, **RECIPE), self.gradients(
            lambda x: F.avg_pool2d(x, 3, 1), g, x
        )

    def _table(self):
        return torch.from_numpy(np.random.default_rng(9).integers(0, 30, (5, 40))), self.normal(30, 16)

    def embedding(self):
        indices, table = self._table()
        return ops.embedding(indices, table, **RECIPE), F.embedding(indices, table)

    def embedding_backward(self):
        indices, table = self._table()
        g = self.normal(5, 40, 16)
        return ops.embedding_backward(g, indices, 30, **RECIPE), self.gradients(
            lambda table: F.embedding(indices, table), g, table
        )

    def _heads(self):
        return [self.normal(2, 4, 48, 32) for _ in range(4)]

    def attention(self):
        q, k, v, _ = self._heads()
        return ops.attention(q, k, v, **RECIPE), F.scaled_dot_product_attention(q, k, v)

    def attention_backward(self):
        q, k, v, g = self._heads()
        return ops.attention_backward(g, q, k, v, **RECIPE), self.gradients(F.scaled_dot_product_attention, g, q, k, v)

    def _cell(self, gates):
        weights = self.normal(gates * 16, 64, scale=0.1), self.normal(gates * 16, 16, scale=0.1)
        biases = self.normal(gates * 16), self.normal(gates * 16)
        return (self.normal(5, 64), self.normal(5, 16)), self.normal(5, 16), (*weights, *biases)

    def rnn_cell(self):
        x, _, weights = self._cell(1)
        return ops.rnn_cell(*x, *weights, **RECIPE), torch.rnn_tanh_cell(*x, *weights)

    def gru_cell(self):
        x, _, weights = self._cell(3)
        return ops.gru_cell(*x, *weights, **RECIPE), torch.gru_cell(*x, *weights)

    def lstm_cell(self):
        (x, hidden), cell, weights = self._cell(4)
        return ops.lstm_cell(x, hidden, cell, *weights, **RECIPE), torch.lstm_cell(x, (hidden, cell), *weights)

    def _cell_backward(self, name, gates, function):
        """PyTorch's gradients come from the steps of the cell: it has no operator for them on a CPU."""
        operands, _, weights = self._cell(gates)
        g = self.normal(5, 16)
        found = getattr(ops, name)(g, *operands, *weights, **RECIPE)._asdict()
        found.pop("cell")
        return tuple(found.values()), self.gradients(function, g, *operands, *weights)

    def rnn_cell_backward(self):
        return self._cell_backward("rnn_cell_backward", 1, torch.rnn_tanh_cell)

    def gru_cell_backward(self):
        return self._cell_backward("gru_cell_backward", 3, torch.gru_cell)

    def lstm_cell_backward(self):
        (x, hidden), cell, weights = self._cell(4)
        g, by_cell = self.normal(5, 16), self.normal(5, 16)
        leaves = [operand.clone().requires_grad_(True) for operand in (x, hidden, cell, *weights)]
        outputs = torch.lstm_cell(leaves[0], leaves[1:3], *leaves[3:])
        torch.autograd.backward(outputs, [g, by_cell])
        found = ops.lstm_cell_backward(g, by_cell, x, hidden, cell, *weights, **RECIPE)
        return tuple(found), [leaf.grad for leaf in leaves]


def measured(name, fmt):
    """The least share of equal results, and the largest distance in units, of all results of an operator."""
    shares, distances = [], []
    for found, expected in Case(FORMATS[fmt]).pairs(name):
        a, b = (fs.array(x).values for x in (found, expected))
        shares.append(np.mean(a == b))
        distances.append(np.linalg.norm(a - b) / np.linalg.norm(b) * 2.0 ** fs.as_format(fmt).precision)
    return min(shares), max(distances)


@pytest.fixture(autouse=True)
def one_thread():
    """Each thread of PyTorch sums a part of the gradients of weights of norms."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("name", [*EQUAL, *NEARLY, *CLOSE])
def test_torch_recipe(name, fmt):
    share, distance = measured(name, fmt)
    if name in EQUAL:
        assert share == 1
    elif fmt == "fp32":
        assert distance <= (16 if "batch_norm_backward" in name else 4 if name in NEARLY else 8)
    elif name in NEARLY:
        assert share >= 0.997
    else:
        assert distance <= 1.5


def test_torch_recipe_names_its_operators():
    verified = {name.partition(" ")[0] for name in (*EQUAL, *NEARLY, *CLOSE)}
    assert verified == set(ops.RECIPES["pytorch-cpu"].operators)
