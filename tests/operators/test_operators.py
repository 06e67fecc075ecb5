"""Every operator equals plain loops over exact fractions in the documented order (`plain.py`), whatever the recipe."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

import floatsim as fs
from floatsim import operators as ops
from floatsim.operators import computation
from tests.operators import plain

pytestmark = pytest.mark.full

FORMATS = ("fp32", "fp16", "bf16", "tf32")


def random_formats(operator, variant, seed):
    """A format for each step. All steps have another one in another seed."""
    draw = np.random.default_rng(seed)
    return {step: fs.as_format(str(draw.choice(FORMATS))) for step in ops.OPERATORS[operator].variants[variant]}


def numbers(seed, *shape, scale=1.0):
    return fs.quantize(np.random.default_rng(seed).standard_normal(shape) * scale, "fp16")


def exact(values):
    return [exact(row) for row in values] if np.ndim(values) else Fraction(float(values))


def check(found, expected):
    found = found.values if isinstance(found, fs.FloatArray) else np.asarray(found, np.float64)
    np.testing.assert_array_equal(found, np.array(expected, np.float64))


def variants(operator):
    return pytest.mark.parametrize("variant", ops.OPERATORS[operator].variants)


seeds = pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.full) for seed in (2, 3))])


@seeds
@variants("softmax")
def test_softmax(variant, seed):
    formats, x = random_formats("softmax", variant, seed), numbers(seed, 3, 11, scale=3)
    found = ops.softmax(fs.array(x, "fp16"), variant=variant, formats=formats, block=4)
    assert found.format == formats["output"]
    check(found, [plain.softmax(plain.Row(formats), row, variant, 4) for row in exact(x)])


def test_softmax_along_another_axis():
    x = fs.array(numbers(5, 4, 3, 2), "fp16")
    for axis in (0, 1, -2):
        rows = np.moveaxis(ops.softmax(np.moveaxis(x, axis, -1), recipe="all-fp16"), -1, axis)
        np.testing.assert_array_equal(ops.softmax(x, axis, recipe="all-fp16").codes, rows.codes)


@pytest.mark.parametrize("block", [1, 2, 3, 100])
def test_an_online_softmax_skips_masked_elements(block):
    """A running maximum of -infinity counts as 0, so masked elements at the front leave no NaN."""
    x = fs.array([-math.inf, -math.inf, 1.0, -math.inf, 2.0], "fp32")
    online = ops.softmax(x, recipe="all-fp32", variant="online", block=block)
    check(online, ops.softmax(x, recipe="all-fp32").values)
    assert np.isnan(ops.softmax(x[:2], variant="online", block=block).values).all()


@seeds
@variants("log_softmax")
def test_log_softmax(variant, seed):
    formats, x = random_formats("log_softmax", variant, seed), numbers(seed, 3, 9)
    found = ops.log_softmax(fs.array(x, "fp16"), variant=variant, formats=formats)
    check(found, [plain.log_softmax(plain.Row(formats), row, variant) for row in exact(x)])


@seeds
@variants("cross_entropy")
def test_cross_entropy(variant, seed):
    formats, x, target = random_formats("cross_entropy", variant, seed), numbers(seed, 2, 3, 9), [[0, 8, 4], [2, 2, 1]]
    found = ops.cross_entropy(fs.array(x, "fp16"), target, variant=variant, formats=formats)
    flat = exact(x.reshape(6, 9))
    check(found, plain.cross_entropy(plain.Row(formats), flat, np.ravel(target), variant))


@seeds
@variants("layer_norm")
@pytest.mark.parametrize("parameters", ["none", "weight", "both"])
def test_layer_norm(variant, seed, parameters):
    formats, x = random_formats("layer_norm", variant, seed), numbers(seed, 3, 13, scale=2) + 1
    w = None if parameters == "none" else numbers(seed + 10, 13)
    b = numbers(seed + 20, 13) if parameters == "both" else None
    operands = [None if p is None else fs.array(p, "fp16") for p in (w, b)]
    found = ops.layer_norm(fs.array(x, "fp32"), *operands, eps=1e-3, variant=variant, formats=formats)
    w, b = (None if p is None else exact(p) for p in (w, b))
    check(found, [plain.layer_norm(plain.Row(formats), row, w, b, 1e-3, variant) for row in exact(x)])


@seeds
@variants("rms_norm")
def test_rms_norm(variant, seed):
    formats, x, w = random_formats("rms_norm", variant, seed), numbers(seed, 3, 13), numbers(seed + 10, 13)
    found = ops.rms_norm(fs.array(x, "fp16"), fs.array(w, "fp16"), eps=1e-6, variant=variant, formats=formats)
    check(found, [plain.rms_norm(plain.Row(formats), row, exact(w), 1e-6, variant) for row in exact(x)])


def test_rms_norm_by_welford():
    x = fs.array(numbers(1, 3, 13), "fp32")
    mean, squares = fs.moments(x, -1, keepdims=True, accumulate="welford(fp32)")
    mean_square = fs.fma(mean, mean, fs.divide(squares, fs.array(13.0, "fp32")))
    expected = x * fs.rsqrt(mean_square + fs.array(0.5, "fp32"))
    found = ops.rms_norm(x, eps=0.5, variant="threads", accumulations={"square_sum": "welford(fp32)"})
    np.testing.assert_array_equal(found.codes, expected.codes)


@seeds
@variants("batch_norm")
def test_batch_norm(variant, seed):
    formats, x = random_formats("batch_norm", variant, seed), numbers(seed, 3, 2, 2, 2)
    running, w, b = np.abs(numbers(seed + 1, 2, 2)), numbers(seed + 2, 2), numbers(seed + 3, 2)
    operands = [fs.array(p, "fp16") for p in (x, *running, w, b)]
    found = ops.batch_norm(*operands, training=variant == "training", eps=1e-3, formats=formats)
    for channel in range(2):
        values = exact(np.moveaxis(x, 1, -1)[..., channel].ravel())
        statistics = exact(running[:, channel])
        output, mean, var = plain.batch_norm(
            plain.Row(formats), values, statistics, exact(w[channel]), exact(b[channel]), 1e-3, 0.1,
            variant == "training",
        )  # fmt: skip
        check(np.moveaxis(found.output.values, 1, -1)[..., channel].ravel(), output)
        check(found.running_mean.values[channel], mean)
        check(found.running_var.values[channel], var)


@seeds
@variants("linear")
def test_linear(variant, seed):
    formats, x = random_formats("linear", variant, seed), numbers(seed, 3, 9)
    w, b = numbers(seed + 1, 4, 9), numbers(seed + 2, 4)
    found = ops.linear(*(fs.array(p, "fp16") for p in (x, w, b)), variant=variant, formats=formats)
    check(found, [plain.linear(plain.Row(formats), row, exact(w), exact(b), variant) for row in exact(x)])


@seeds
def test_residual_add(seed):
    formats, x, y = random_formats("residual_add", "standard", seed), numbers(seed, 9), numbers(seed + 1, 9)
    r = plain.Row(formats)
    expected = [
        r("output", r("total", r("input", a) + r("residual", b))) for a, b in zip(exact(x), exact(y), strict=True)
    ]
    check(ops.residual_add(fs.array(x, "fp16"), fs.array(y, "fp32"), formats=formats), expected)


@seeds
@variants("attention")
@pytest.mark.parametrize("masked", [False, True])
def test_attention(variant, seed, masked):
    formats = random_formats("attention", variant, seed)
    q, k, v = numbers(seed, 3, 5), numbers(seed + 1, 7, 5), numbers(seed + 2, 7, 2)
    kept = np.ones((3, 7), bool)
    if masked:
        kept = np.random.default_rng(seed).random((3, 7)) < 0.6
        kept[1] = False
    splits = 2 if variant == "flash-kernel" and seed != 1 else 1
    found = ops.attention(
        *(fs.array(p, "fp16") for p in (q, k, v)), mask=kept if masked else None, variant=variant, formats=formats,
        block=3, last_block_first=seed != 2, splits=splits,
    )  # fmt: skip
    expected = plain.attention(
        plain.Row(formats), *(exact(p) for p in (q, k, v)), kept, variant, Fraction(1 / math.sqrt(5)), 3, seed != 2,
        splits,
    )  # fmt: skip
    check(found, expected)
    if masked:
        check(found[1], [0.0, 0.0])


def test_causal_attention_and_batches():
    q, k, v = (fs.array(numbers(n, 2, 4, 5), "fp16") for n in (1, 2, 3))
    for variant in ops.OPERATORS["attention"].variants:
        together = ops.attention(q, k, v, causal=True, variant=variant, block=2)
        for n in range(2):
            mask = np.tri(4, dtype=bool)
            alone = ops.attention(q[n], k[n], v[n], mask=mask, variant=variant, block=2)
            np.testing.assert_array_equal(together[n].codes, alone.codes)


@pytest.mark.parametrize("variant", ["scale-after", "flash-attention-2"])
def test_a_mask_in_formats_without_infinity(variant):
    """Removed keys have the probability 0, and a query without keys gives zeros."""
    q, k, v = (fs.array(numbers(n, 4, 5), "fp32") for n in (1, 2, 3))
    mask = np.tri(4, k=-1, dtype=bool)
    steps = ops.OPERATORS["attention"].variants[variant]
    found = ops.attention(q, k, v, mask=mask, variant=variant, block=2, formats=dict.fromkeys(steps, "e4m3"))
    assert not found.values[0].any()
    alone = ops.attention(q[1:2], k[:1], v[:1], variant=variant, formats=dict.fromkeys(steps, "e4m3"))
    np.testing.assert_array_equal(found[1:2].codes, alone.codes)


def test_a_mask_of_numbers_is_added():
    q, k, v = (fs.array(numbers(n, 4, 5), "fp32") for n in (1, 2, 3))
    mask = np.where(np.tri(4, dtype=bool), np.float32(0), np.float32(-np.inf))
    added, selected = ops.attention(q, k, v, mask=mask), ops.attention(q, k, v, causal=True)
    np.testing.assert_array_equal(added.codes, selected.codes)
    with pytest.raises(TypeError, match="must be booleans"):
        ops.attention(q, k, v, mask=mask, variant="flash-attention-2")
    with pytest.raises(TypeError, match="not integers"):
        ops.attention(q, k, v, mask=np.tri(4, dtype=int))


@seeds
@variants("conv2d")
def test_conv2d(variant, seed):
    formats, x = random_formats("conv2d", variant, seed), numbers(seed, 2, 2, 4, 5)
    w, b = numbers(seed + 1, 3, 2, 3, 2), numbers(seed + 2, 3)
    stride, padding = (1, 0) if seed == 1 else (2, 1)
    operands = [fs.array(p, "fp16") for p in (x, w, b)]
    found = ops.conv2d(*operands, stride=stride, padding=padding, variant=variant, formats=formats)
    row = plain.Row(formats)
    expected = [plain.conv2d(row, exact(image), exact(w), exact(b), stride, padding, variant) for image in x]
    check(found, expected)


@seeds
@pytest.mark.parametrize("kind", ["max", "avg"])
def test_pools(kind, seed):
    operator = f"{kind}_pool"
    formats, x = random_formats(operator, "standard", seed), numbers(seed, 1, 2, 5, 4)
    found = getattr(ops, operator)(fs.array(x, "fp16"), 2, stride=seed, formats=formats)
    check(found, [[plain.pool(plain.Row(formats), plane, 2, seed, kind) for plane in exact(x[0])]])


@seeds
def test_embedding(seed):
    formats, table = random_formats("embedding", "standard", seed), numbers(seed, 5, 3)
    r = plain.Row(formats)
    expected = [[[r("output", r("weight", v)) for v in exact(table[i])] for i in row] for row in [[4, 0], [1, 1]]]
    check(ops.embedding([[4, 0], [1, 1]], fs.array(table, "fp32"), formats=formats), expected)


ACTIVATIONS = ("relu", "tanh", "sigmoid", "softplus", "silu", "gelu")


@seeds
@pytest.mark.parametrize(
    ("operator", "variant"), [(name, variant) for name in ACTIVATIONS for variant in ops.OPERATORS[name].variants]
)
def test_activations(operator, variant, seed):
    formats, x = random_formats(operator, variant, seed), numbers(seed, 30, scale=2)
    found = getattr(ops, operator)(fs.array(x, "fp16"), variant=variant, formats=formats)
    check(found, [plain.activation(plain.Row(formats), operator, variant, v) for v in exact(x)])


@seeds
@pytest.mark.parametrize(("kind", "gates"), [("rnn", 1), ("gru", 3), ("lstm", 4)])
def test_cells(kind, gates, seed):
    formats = random_formats(f"{kind}_cell", "standard", seed)
    x, hidden, memory = numbers(seed, 2, 5), numbers(seed + 1, 2, 3), numbers(seed + 2, 2, 3)
    weights = numbers(seed + 3, 3 * gates, 5), numbers(seed + 4, 3 * gates, 3)
    biases = numbers(seed + 5, 3 * gates), numbers(seed + 6, 3 * gates)
    states = (x, hidden, memory) if kind == "lstm" else (x, hidden)
    operands = [fs.array(p, "fp16") for p in (*states, *weights, *biases)]
    found = getattr(ops, f"{kind}_cell")(*operands, formats=formats)
    rows = [
        plain.cell(plain.Row(formats), kind, *map(exact, row), tuple(map(exact, weights)), tuple(map(exact, biases)))
        for row in zip(x, hidden, memory, strict=True)
    ]
    check(found.hidden if kind == "lstm" else found, [state for state, _ in rows])
    if kind == "lstm":
        check(found.cell, [after for _, after in rows])


def test_a_network_is_its_layers():
    x, w = fs.array(numbers(1, 5, 4), "fp16"), [fs.array(numbers(2, 3, 4), "fp16"), fs.array(numbers(3, 2, 3), "fp16")]
    b = [fs.array(numbers(4, 3), "fp16"), None]
    with fs.record() as log:
        found = ops.mlp(x, w, b, recipe="all-fp16", layer_recipes={-1: "all-bf16"})
    hidden = ops.relu(ops.linear(x, w[0], b[0], recipe="all-fp16"), recipe="all-fp16")
    expected = ops.linear(hidden, w[1], recipe="all-bf16")
    assert found.format == expected.format == fs.BF16
    np.testing.assert_array_equal(found.codes, expected.codes)
    assert {"layer0/linear/product", "layer0/linear/biased", "layer1/linear/product"} <= set(log.scopes)
    with pytest.raises(ValueError, match="as many weights as biases"):
        ops.mlp(x, w, b[:1])
    with pytest.raises(ValueError, match="index 2, and there are 2 layers"):
        ops.mlp(x, w, b, layer_recipes={2: "all-fp16"})


# -- every operator ----------------------------------------------------------------------------------------------------


def calls(fmt="fp16"):
    """{operator: call with a keyword variant and other keywords}, with operands of one format."""
    x, w, b = (fs.array(numbers(n, *shape), fmt) for n, shape in ((1, (3, 8)), (2, (8,)), (3, (8,))))
    positive = fs.array(np.abs(numbers(4, 8)), fmt)
    matrix, image = fs.array(numbers(5, 8, 8), fmt), fs.array(numbers(6, 2, 2, 2, 2), fmt)
    wide = fs.array(numbers(9, 2, 2, 3, 3), fmt)
    fours, ones = fs.array(numbers(7, 32, 8), fmt), fs.array(numbers(8, 32), fmt)

    def batch_norm(variant, **keywords):
        return ops.batch_norm(x, b, positive, w, b, training=variant == "training", **keywords).output

    return {
        "softmax": lambda **k: ops.softmax(x, **k),
        "log_softmax": lambda **k: ops.log_softmax(x, **k),
        "cross_entropy": lambda **k: ops.cross_entropy(x, [0, 1, 7], **k),
        "layer_norm": lambda **k: ops.layer_norm(x, w, b, **k),
        "rms_norm": lambda **k: ops.rms_norm(x, w, **k),
        "batch_norm": batch_norm,
        "linear": lambda **k: ops.linear(x, matrix, b, **k),
        "residual_add": lambda **k: ops.residual_add(x, b, **k),
        "conv2d": lambda **k: ops.conv2d(image, image, w[:2], padding=1, **k),
        "max_pool": lambda **k: ops.max_pool(image, 2, **k),
        "avg_pool": lambda **k: ops.avg_pool(image, 2, **k),
        "embedding": lambda **k: ops.embedding([2, 0], x, **k),
        **{name: lambda name=name, **k: getattr(ops, name)(x, **k) for name in ACTIVATIONS},
        "rnn_cell": lambda **k: ops.rnn_cell(x, x, matrix, matrix, b, b, **k),
        "lstm_cell": lambda **k: ops.lstm_cell(x, x, x, fours, fours, ones, ones, **k).hidden,
        "gru_cell": lambda **k: ops.gru_cell(x, x, fours[:24], fours[:24], ones[:24], ones[:24], **k),
        "softmax_backward": lambda **k: ops.softmax_backward(x, x, **k),
        "log_softmax_backward": lambda **k: ops.log_softmax_backward(x, x, **k),
        "cross_entropy_backward": lambda **k: ops.cross_entropy_backward(x, [0, 1, 7], **k),
        "linear_backward": lambda **k: ops.linear_backward(x, x, matrix, **k).weight,
        "layer_norm_backward": lambda **k: ops.layer_norm_backward(x, x, w, **k).x,
        "rms_norm_backward": lambda **k: ops.rms_norm_backward(x, x, w, **k).x,
        "attention_backward": lambda variant, **k: ops.attention_backward(
            x, x, x, x, variant=variant, **(
                {"block": 2} if variant.endswith("-kernel") else {"mask": fs.array(np.zeros((3, 3)), fmt)}
            ), **k,
        ).query,
        "batch_norm_backward": lambda variant, **k: ops.batch_norm_backward(
            x, x, b, positive, w, training=variant == "training", **k
        ).x,
        "residual_add_backward": lambda **k: ops.residual_add_backward(x, (3, 1), (8,), **k).residual,
        "conv2d_backward": lambda **k: ops.conv2d_backward(wide, image, image, padding=1, **k).x,
        "max_pool_backward": lambda **k: ops.max_pool_backward(image, wide, 2, stride=1, **k),
        "avg_pool_backward": lambda **k: ops.avg_pool_backward(image, (3, 3), 2, stride=1, **k),
        "embedding_backward": lambda **k: ops.embedding_backward(x, [2, 0, 2], 4, **k),
        **{
            f"{name}_backward": lambda name=name, **k: getattr(ops, f"{name}_backward")(x, x, **k)
            for name in ACTIVATIONS
        },
        "rnn_cell_backward": lambda **k: ops.rnn_cell_backward(x, x, x, matrix, matrix, b, b, **k).weight_hh,
        "lstm_cell_backward": lambda **k: ops.lstm_cell_backward(
            x, x, x, x, x, fours, fours, ones, ones, **k
        ).weight_hh,
        "gru_cell_backward": lambda **k: ops.gru_cell_backward(
            x, x, x, fours[:24], fours[:24], ones[:24], ones[:24], **k
        ).hidden,
        "attention": lambda variant, **k: ops.attention(
            x, matrix, matrix, variant=variant, **{
                "flash-attention-2": {"block": 3}, "flash-kernel": {"block": 3, "splits": 2},
                "cudnn-kernel": {"block": 3}, "efficient-kernel": {"block": 3},
            }.get(variant, {"mask": fs.array(np.zeros((3, 8)), fmt)}), **k,
        ),
    }  # fmt: skip


CASES = [(operator, variant) for operator, steps in ops.OPERATORS.items() for variant in steps.variants]
cases = pytest.mark.parametrize(("operator", "variant"), CASES)


def test_every_operator_has_a_call():
    assert set(calls()) == set(ops.OPERATORS)


@cases
def test_the_declared_steps_are_carried_out(operator, variant, monkeypatch):
    used = []
    lookup = computation.Computation.format
    monkeypatch.setattr(
        computation.Computation, "format", lambda self, step, same=None: used.append(step) or lookup(self, step, same)
    )
    calls()[operator](variant=variant)
    declared = ops.OPERATORS[operator].variants[variant]
    assert set(used) == set(declared)


@cases
def test_float64_is_close_to_fp32(operator, variant):
    call = calls("fp32")[operator]
    found, exactly = call(variant=variant, recipe="all-fp32"), call(variant=variant, recipe="float64")
    assert exactly.dtype == np.float64
    np.testing.assert_allclose(found.values, exactly, rtol=2e-5, atol=3e-6)


@cases
def test_a_recipe_is_its_formats(operator, variant):
    """Naming each format and accumulation one by one gives the bits of the recipe."""
    steps = ops.OPERATORS[operator]
    formats = dict.fromkeys(steps.variants[variant], "bf16")
    sums = {step: "pairwise(bf16)" for step in steps.variants[variant] if step in steps.sums}
    call = calls()[operator]
    recipe = ops.Recipe("mine", format="bf16", accumulate="pairwise(same)")
    found = call(variant=variant, recipe=recipe)
    np.testing.assert_array_equal(found.codes, call(variant=variant, formats=formats, accumulations=sums).codes)
    assert found.format == fs.BF16


@pytest.mark.parametrize("name", ops.RECIPES)
def test_named_recipes(name):
    recipe = ops.RECIPES[name]
    assert recipe.name == name
    assert recipe.source
    assert recipe.evidence
    for operator, call in calls("fp32" if name in ("float64", "all-fp32") else "fp16").items():
        result = call(variant=recipe.variant_of(operator), recipe=name)
        assert np.isfinite(result.values if isinstance(result, fs.FloatArray) else result).all()


def test_recorded_recipes_say_so():
    for name in ("pytorch-cuda", "flash-attention-2", "cudnn-attention", "efficient-attention", "math"):
        assert "H200" in ops.RECIPES[name].evidence


def test_outputs_are_of_the_kind_of_the_input():
    x = numbers(1, 2, 5)
    assert isinstance(ops.softmax(fs.array(x, "fp16")), fs.FloatArray)
    half = ops.softmax(x.astype(np.float16))
    assert half.dtype == np.float16
    np.testing.assert_array_equal(half.view(np.uint16), ops.softmax(fs.array(x, "fp16")).codes)
    assert ops.softmax(fs.array(x, "fp16"), recipe="all-bf16").format == fs.BF16
    assert isinstance(ops.softmax(x.astype(np.float16), formats={"output": "tf32"}), fs.FloatArray)


def test_scopes_name_the_steps():
    x = fs.array([12.0, 0.0], "fp16")
    with fs.record() as log:
        ops.softmax(x, recipe="all-fp16", variant="naive")
    assert log.scopes["softmax/exp"]["exp"].overflow == 1
    assert log.scopes["softmax/quotient"]["divide"].invalid == 1


def test_stochastic_rounding_draws_anew_in_each_step():
    """An integer seed repeats the call, and its steps have different draws."""
    x = fs.array(np.full((1, 4000), 1 / 3), "fp32")
    recipe = {"formats": {"input": "bf16", "residual": "bf16", "total": "fp32", "output": "fp32"}}
    with fs.context(rounding="stochastic", seed=7):
        first, again = (ops.residual_add(x, x, **recipe) for _ in range(2))
    np.testing.assert_array_equal(first.codes, again.codes)
    low, high = sorted({float(v) for v in fs.quantize([1 / 3, 1 / 3], "bf16", rounding="toward_zero")} | {
        float(v) for v in fs.quantize([1 / 3], "bf16", rounding="toward_positive")
    })  # fmt: skip
    sums = first.values
    assert {low * 2, low + high, high * 2} == set(np.unique(sums))  # equal draws would leave out low + high


@pytest.mark.parametrize(("keywords", "message"), [
    ({"recipe": "all-fp61"}, "recipe 'all-fp61' is not known; did you mean 'all-fp16'"),
    ({"variant": "shiftet"}, "no variant 'shiftet'; did you mean 'shifted'"),
    ({"formats": {"quotent": "fp16"}}, "no step 'quotent'; did you mean 'quotient'"),
    ({"formats": {"factor": "fp16"}}, "softmax with variant 'shifted' has no step 'factor'"),
    ({"accumulations": {"exp": "fp16"}}, "no sum 'exp'"),
    ({"formats": {"exp": "e8m0"}}, "scale format"),
])  # fmt: skip
def test_wrong_names(keywords, message):
    with pytest.raises((ValueError, TypeError), match=message):
        ops.softmax(fs.array([1.0, 2.0], "fp16"), **keywords)


@pytest.mark.parametrize(("keywords", "message"), [
    ({"format": "fp61"}, "fp61"),
    ({"formats": {"softmaks": {}}}, "operator 'softmaks' is not known; did you mean 'softmax'"),
    ({"formats": {"softmax": {"expo": "fp16"}}}, "softmax has no step 'expo'; did you mean 'exp'"),
    ({"formats": {"*": {"expo": "fp16"}}}, "no operator has a step 'expo'"),
    ({"accumulations": {"softmax": {"exp": "fp16"}}}, "softmax has no sum 'exp'"),
    ({"accumulations": {"softmax": {"sum": "kahn(fp16)"}}}, "kahn"),
    ({"variants": {"softmax": "fast"}}, "softmax has no variant 'fast'"),
])  # fmt: skip
def test_wrong_recipes(keywords, message):
    with pytest.raises(ValueError, match=message):
        ops.Recipe("mine", **keywords)


def test_wrong_operands():
    x = fs.array(numbers(1, 2, 5), "fp16")
    with pytest.raises(TypeError, match="unknown keyword 'recipes'; did you mean 'recipe'"):
        ops.softmax(x, recipes="all-fp16")
    with pytest.raises(ValueError, match="no elements"):
        ops.softmax(x[:, :0])
    with pytest.raises(ValueError, match="axis"):
        ops.softmax(x, 2)
    with pytest.raises(ValueError, match="weight has the shape"):
        ops.layer_norm(x, x[0, :3])
    with pytest.raises(ValueError, match="classes from 0 to 4"):
        ops.cross_entropy(x, [0, 5])
    with pytest.raises(TypeError, match="must be integers"):
        ops.cross_entropy(x, [0.0, 1.0])
    with pytest.raises(ValueError, match="do not fit"):
        ops.linear(x, x[:, :3])
    with pytest.raises(ValueError, match="contradicts training"):
        ops.batch_norm(x, x[0], x[0], variant="training")
    with pytest.raises(ValueError, match="do not fit"):
        ops.attention(x, x[:, :3], x)
    with pytest.raises(ValueError, match="does not fit 2 queries"):
        ops.attention(x, x, x, mask=np.ones((3, 2), bool))
    with pytest.raises(ValueError, match=r"(?i)hopper"):
        ops.attention(*(fs.array(numbers(1, 4, 5), "fp32") for _ in range(3)), recipe="flash-attention-2")


def test_numbers_that_are_no_numbers_are_errors():
    x = fs.array(np.ones((2, 4)), "fp16")
    for call, error, message in (
        (lambda: ops.layer_norm(x, eps="a"), TypeError, "eps must be a number, not 'a'"),
        (lambda: ops.rms_norm(x, eps=None), TypeError, "eps must be a number, not None"),
        (lambda: ops.layer_norm(x, eps=-1.0), ValueError, "eps must be a finite number of at least 0, not -1.0"),
        (lambda: ops.attention(x, x, x, scale="a"), TypeError, "scale must be a number, not 'a'"),
        (lambda: ops.attention(x, x, x, scale=np.inf), ValueError, "scale must be a finite number, not inf"),
        (lambda: ops.attention(x, x, x, block=0), ValueError, "block"),
    ):
        with pytest.raises(error, match=message):
            call()
