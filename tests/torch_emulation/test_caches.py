"""Policies with `cache=`: stored keys and values, by attention and by cache objects, and what they refuse."""

from __future__ import annotations

import copy
import io
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: the extra `torch`")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import floatsim as fs  # noqa: E402
import floatsim.torch as ft  # noqa: E402
from floatsim.quantization import Scheme, hadamard  # noqa: E402

pytestmark = pytest.mark.torch

HEADS, SIZE, TOKENS = 2, 16, 5


class KeyValueCache:
    """The protocol of Transformers' `DynamicCache`, without Transformers."""

    def __init__(self):
        self.layers = {}

    def update(self, key_states, value_states, layer_idx, *args, **kwargs):
        if layer_idx in self.layers:
            past = self.layers[layer_idx]
            key_states, value_states = (
                torch.cat(both, -2) for both in zip(past, (key_states, value_states), strict=True)
            )
        self.layers[layer_idx] = key_states, value_states
        return key_states, value_states


class Attention(nn.Module):
    """Causal self-attention with a cache object, by one operation or step by step."""

    def __init__(self, index, step_by_step):
        super().__init__()
        self.index, self.step_by_step = index, step_by_step
        self.qkv = nn.Linear(HEADS * SIZE, 3 * HEADS * SIZE, bias=False)

    def forward(self, x, cache=None):
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, HEADS, SIZE).permute(2, 0, 3, 1, 4)
        if cache is not None:
            k, v = cache.update(k, v, layer_idx=self.index)
        allowed = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril(k.shape[-2] - q.shape[-2])
        if self.step_by_step:
            scores = (q @ k.transpose(-1, -2) * SIZE**-0.5).masked_fill(~allowed, -torch.inf)
            found = scores.softmax(-1) @ v
        else:
            found = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
        return x + found.transpose(1, 2).reshape(x.shape)


class Decoder(nn.Module):
    def __init__(self, step_by_step=False, count=2):
        super().__init__()
        self.layers = nn.ModuleList(Attention(i, step_by_step) for i in range(count))

    def forward(self, x, cache=None):
        for layer in self.layers:
            x = layer(x, cache=cache)
        return x


def decoder(step_by_step=False):
    torch.manual_seed(0)
    return Decoder(step_by_step), torch.randn(1, TOKENS, HEADS * SIZE)


def decoded(model, x, policy):
    """Return the outputs of a prompt of two tokens and of single tokens after it, and the cache."""
    cache = KeyValueCache()
    with torch.no_grad(), ft.emulate(policy, model) as run:
        parts = [model(x[:, :2], cache), *(model(x[:, i : i + 1], cache) for i in range(2, TOKENS))]
    return torch.cat(parts, 1), cache, run


CACHES = {
    "e4m3": ("e4m3", lambda x: fs.quantize(x, "e4m3")),
    "int8": ("int8", lambda x: fs.quantize_blocks(x, "int8", block="row").values),
    "nf4 in blocks of 8": (Scheme("nf4", 8), lambda x: fs.quantize_blocks(x, "nf4", block=8).values),
    "nvfp4_row": ("nvfp4_row", lambda x: fs.quantize_blocks(x, "nvfp4_row").values),
    "a scale": (
        ft.Cache("e4m3", key_scale=0.25, value_scale=0.25),
        lambda x: fs.quantize_blocks(x, "e4m3", scale=0.25).values,
    ),
}


QUICK = ("e4m3", "a scale")


@pytest.mark.parametrize(("cache", "definition"), [
    pytest.param(*each, id=name, marks=() if name in QUICK else pytest.mark.full) for name, each in CACHES.items()
])  # fmt: skip
def test_each_token_is_stored_by_itself(cache, definition):
    """The stored numbers are those of the definition token by token, and decoding is equal to reading the prompt."""
    model, x = decoder()
    policy = ft.Policy(cache=cache)
    found, stored, run = decoded(model, x, policy)
    given = KeyValueCache()
    with torch.no_grad(), ft.emulate("fp32", model):
        model.layers[0](x, given)
    for tensor, exact in zip(stored.layers[0], given.layers[0], strict=True):
        for head in range(HEADS):
            for token in range(TOKENS):
                wanted = definition(exact[0, head, token : token + 1].numpy())
                np.testing.assert_array_equal(tensor[0, head, token : token + 1].double().numpy(), wanted)
    with torch.no_grad(), ft.emulate(policy, model) as at_once:
        whole = model(x)  # no cache object: attention stores
    assert torch.equal(found, whole)
    assert run.cached == {"layers.0": 8, "layers.1": 8}
    assert at_once.cached == {"layers.0": 2, "layers.1": 2}
    with torch.no_grad(), ft.emulate("fp32", model):
        assert not torch.equal(whole, model(x))


def test_rotations_are_those_of_hadamard_and_keep_the_product():
    """By hand: rotated queries, rotated and quantized keys and values, and the output rotated back."""
    model, x = decoder()
    attention = model.layers[0]
    spec = ft.Cache("int4", rotate=16, rotate_values=8)
    found, stored, _ = decoded(model, x, ft.Policy(cache=spec))
    with torch.no_grad(), ft.emulate(ft.Policy(cache=spec), model):
        assert torch.equal(model(x), found)
        result = attention(x)
    with torch.no_grad(), ft.emulate("fp32", model):
        q, k, v = attention.qkv(x).view(1, TOKENS, 3, HEADS, SIZE).permute(2, 0, 3, 1, 4)

        def turned(tensor, block, inverse=False):
            return torch.from_numpy(hadamard(tensor.numpy(), block, inverse=inverse).values).float()

        def quantized(tensor):
            return torch.from_numpy(fs.quantize_blocks(tensor.numpy(), "int4", block="row").values).float()

        keys, values = quantized(turned(k, 16)), quantized(turned(v, 8))
        causal = torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()
        output = F.scaled_dot_product_attention(turned(q, 16), keys, values, attn_mask=causal)
        wanted = x + turned(output, 8, inverse=True).transpose(1, 2).reshape(x.shape)
    assert torch.equal(result, wanted)
    assert all(map(torch.equal, stored.layers[0], (keys, values)))


def test_a_rotation_saves_an_outlier():
    """Keys with one large channel lose less in INT4 after a rotation."""
    torch.manual_seed(1)
    q, k, v = torch.randn(3, 1, 1, 32, 64)
    k[..., 3] *= 50
    exact = F.scaled_dot_product_attention(q, k, v)
    errors = []
    for rotate in (0, 64):
        with ft.emulate(ft.Policy(cache=ft.Cache("int4", values=None, rotate=rotate))):
            errors.append(float((F.scaled_dot_product_attention(q, k, v) - exact).norm() / exact.norm()))
    assert errors[1] < 0.5 * errors[0]


def test_gradients_pass_straight_through_and_are_rotated_back():
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 1, 4, 8, requires_grad=True) for _ in range(3))

    def gradients(policy):
        with ft.emulate(policy):
            F.scaled_dot_product_attention(q, k, v).square().sum().backward()
        found = [x.grad.clone() for x in (q, k, v)]
        for x in (q, k, v):
            x.grad = None
        return found

    exact = gradients("fp32")
    turned = gradients(ft.Policy(cache=ft.Cache("fp32", rotate=8, rotate_values=4)))
    for found, wanted in zip(turned, exact, strict=True):
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
    for found, wanted in zip(gradients(ft.Policy(cache=ft.Cache("e4m3", rotate=8))), exact, strict=True):
        assert 0 < (found - wanted).norm() < 0.2 * wanted.norm()


def test_attention_step_by_step_uses_the_cache_object_and_refuses_rotations():
    model, x = decoder(step_by_step=True)
    one, _ = decoder()
    _, stored, _ = decoded(model, x, ft.Policy(cache="e4m3"))
    _, same, _ = decoded(one, x, ft.Policy(cache="e4m3"))
    assert all(map(torch.equal, stored.layers[0], same.layers[0]))
    with pytest.raises(ValueError, match="nothing was stored: no attention ran"), ft.emulate("bf16+fp8-cache", model):
        model(x)
    with pytest.raises(NotImplementedError, match=r"not for bmm.*attn_implementation='sdpa'"):
        decoded(model, x, ft.Policy(cache=ft.Cache("e4m3", rotate=16)))


def test_modules_and_mappings_choose_the_cache():
    model, x = decoder()
    by_pattern = ft.Policy(cache={"layers.0": None, "layers.*": "int4"})
    nested = ft.Policy(modules={"layers.1": ft.Policy(cache="int4")})
    results = [decoded(model, x, policy) for policy in (by_pattern, nested)]
    assert torch.equal(results[0][0], results[1][0])
    assert all(dict(run.cached) == {"layers.1": 8} for _, _, run in results)
    with pytest.raises(ValueError, match=r"cache: no module fits 'layer.0'; did you mean 'layers.0'"):
        ft.emulate(ft.Policy(cache={"layer.0": "int4"}), model)
    with (
        pytest.raises(ValueError, match=r"attention ran in layers.0, layers.1, which no key of cache= fits"),
        ft.emulate(ft.Policy(cache={"layers.0.qkv": "int4"}), model),
    ):
        model(x)


def test_the_model_and_the_cache_are_left_as_they_were():
    model, x = decoder()
    own = F.scaled_dot_product_attention
    cache = KeyValueCache()
    with torch.no_grad(), ft.emulate(ft.Policy(cache="e4m3"), model) as run:
        model(x, cache)
        assert "update" in vars(cache)
        copied = copy.deepcopy(model)
        file = io.BytesIO()
        torch.save(model, file)
        with run.pause():
            paused = model(x, KeyValueCache())
    assert "update" not in vars(cache)
    assert F.scaled_dot_product_attention is own
    assert not any(module._forward_pre_hooks for module in model.modules())
    file.seek(0)
    for each in (model, copied, torch.load(file, weights_only=False)):
        assert torch.equal(each(x, KeyValueCache()), paused)


def test_a_cache_object_inside_another_one_stores_once():
    """As `EncoderDecoderCache` of Transformers, whose caches are called by themselves or through it."""

    class Both:
        def __init__(self):
            self.inner = KeyValueCache()

        def update(self, key, value, layer_idx):
            return self.inner.update(key, value, layer_idx)

    model, x = decoder()
    policy = ft.Policy(cache=Scheme("uint4", "row", rule="asymmetric"))  # quantizing twice would change the numbers
    _, wanted, _ = decoded(model, x, policy)
    both = Both()
    with torch.no_grad(), ft.emulate(policy, model):
        model(x, both)
    assert all(map(torch.equal, both.inner.layers[1], wanted.layers[1]))


def test_16_bit_models_and_policies_of_one_format():
    model, x = decoder()
    half, y = copy.deepcopy(model).bfloat16(), x.bfloat16()
    found, stored, _ = decoded(half, y, replace(fs.training.POLICIES["native"], name="", cache="int8"))
    assert stored.layers[0][0].dtype == torch.bfloat16
    with torch.no_grad(), ft.emulate(replace(fs.training.POLICIES["native"], name="", cache="int8"), half):
        assert torch.equal(half(y), found)
    with torch.no_grad(), ft.emulate("bf16+int8-cache", model) as run:
        model(x)
    assert run.cached == {"layers.0": 2, "layers.1": 2}
    errors = {row.operation: row.relative_error for row in run.report().rows if row.operation.startswith("cache")}
    assert set(errors) == {"cache_keys", "cache_values"}
    assert all(0 < error < 0.01 for error in errors.values())


def test_overflows_of_the_cache_are_events():
    k = torch.full((1, 1, 2, 4), 1000.0)
    with ft.emulate("fp32+fp8-cache") as run:
        F.scaled_dot_product_attention(k, k, k)
    event = run.first("overflow")
    assert (event.operation, event.rule) == ("cache_keys", "the cache")


def test_a_name_that_was_imported_before_is_an_error():
    imported, x = F.scaled_dot_product_attention, torch.ones(1, 1, 2, 4)
    with ft.emulate("fp32+fp8-cache"), pytest.raises(NotImplementedError, match="was imported before"):
        imported(x, x, x)


def test_head_sizes_and_objects_that_do_not_fit():
    x = torch.ones(1, 1, 2, 24)
    for cache, why in [
        (ft.Cache("int8", rotate=16), r"rotate=16 does not divide the head size 24; powers of two that do: 2, 4, 8"),
        ("q8_0", r"keys='q8_0' cannot act on a head size of 24: a row of q8_0 has whole blocks of 32"),
    ]:
        with ft.emulate(ft.Policy(cache=cache)), pytest.raises(ValueError, match=why):
            F.scaled_dot_product_attention(x, x, x)

    class Fixed(KeyValueCache):
        __slots__ = ("layers",)

        def __setattr__(self, name, value):
            if name == "update":
                raise AttributeError(name)
            object.__setattr__(self, name, value)

    model, x = decoder()
    with (
        ft.emulate(ft.Policy(cache="int8"), model),
        pytest.raises(TypeError, match="Fixed takes no attribute `update`"),
    ):
        model(x, Fixed())


def test_multi_head_attention_of_pytorch():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 16, dropout=0.0, batch_first=True).eval()
    with torch.no_grad(), ft.emulate("fp32+int8-cache", layer) as run:
        layer(torch.randn(1, 3, 16))
    assert run.cached == {"self_attn": 2}


@pytest.mark.full
@pytest.mark.parametrize("kind", ["sdpa", "eager"])
def test_a_model_of_transformers(kind):
    """Greedy decoding with a `DynamicCache` gives the logits of the whole text at once; keys are stored in E4M3."""
    transformers = pytest.importorskip("transformers", reason="needs transformers: the extra `test-libraries`")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        vocab_size=50, attn_implementation=kind,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    text = torch.tensor([[3, 14, 15, 9, 26]])
    with torch.no_grad(), ft.emulate("fp32+fp8-cache", model) as run:
        cache, parts = transformers.DynamicCache(), []
        for i in range(text.shape[1]):
            parts.append(model(text[:, i : i + 1], past_key_values=cache, use_cache=True).logits)
        whole = model(text, use_cache=True).logits
    assert torch.equal(torch.cat(parts, 1), whole)
    assert set(run.cached) == {"model.layers.0.self_attn", "model.layers.1.self_attn"}
    keys = cache.layers[0].keys
    assert keys.shape == (1, 1, 5, 16) and torch.equal(keys.to(torch.float8_e4m3fn).float(), keys)
