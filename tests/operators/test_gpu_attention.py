"""Attention under the recipes of a GPU, against outputs that an H200 recorded (torch 2.11.0, cuDNN 9.19).

`data/silicon/nvidia-h200/attention.zip` has one head of five shapes, with the operands. `FLOATSIM_H200` names the
folder of all of them: attention.npz, mufu/attention_parts.npz (values that are one-hot show the probabilities) and
training/attention.npz. Their operands are made again by NumPy.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import numpy as np
import pytest

import floatsim as fs
from floatsim import operators as ops
from tests import marks

FOLDER = os.environ.get("FLOATSIM_H200")
SAMPLE = Path(__file__).parents[2] / "data" / "silicon" / "nvidia-h200" / "attention.zip"
RECIPES = {
    "flash-attention-2": "FLASH_ATTENTION", "cudnn-attention": "CUDNN_ATTENTION",
    "efficient-attention": "EFFICIENT_ATTENTION", "math": "MATH",
}  # fmt: skip
FUSED = ("flash-attention-2", "cudnn-attention", "efficient-attention")
SHAPES = ((64, 64), (128, 64), (200, 64), (512, 64), (64, 128), (128, 128), (200, 128))
"""The numbers of keys and head sizes of the recordings."""

recipes = pytest.mark.parametrize("recipe", RECIPES)
formats = pytest.mark.parametrize("fmt", ["fp16", "bf16"])
needs_sample = marks.needs_sample(SAMPLE)
needs_recordings = pytest.mark.skipif(FOLDER is None, reason="FLOATSIM_H200 names the folder of an H200's recordings")


def recording(name):
    assert FOLDER is not None
    return np.load(Path(FOLDER) / f"{name}.npz")


def operands(seed, shape, fmt, count=4):
    rng = np.random.default_rng(seed)
    return [fs.array(rng.standard_normal(shape).astype(np.float32), fmt) for _ in range(count)]


@needs_sample
@recipes
@formats
def test_recorded_rows(recipe, fmt):
    """Rows of queries; the causal ones by a mask. FlashAttention-2 splits 512 keys of d = 64, and 200 of d = 128."""
    with np.load(SAMPLE) as sample:
        shapes = sorted({tuple(map(int, key.split("|")[1:])) for key in sample.files if key.startswith("rows|")})
        assert len(shapes) == 5
        for keys, d in shapes:
            key = f"{fmt}|{keys}|{d}"
            q, k, v = (fs.FloatArray(sample[f"{name}|{key}"], fs.as_format(fmt)) for name in ("query", "key", "value"))
            splits = ops.key_splits(2, keys, keys, d) if recipe == "flash-attention-2" else None
            for causal in (False, True):
                mask = np.arange(keys) <= sample[f"rows|{keys}|{d}"][:, None] if causal else None
                found = ops.attention(q, k, v, mask=mask, splits=splits, recipe=recipe)
                np.testing.assert_array_equal(found.codes, sample[f"{recipe}|{key}|causal={causal}"])


@needs_sample
@formats
def test_recorded_gradients(fmt):
    with np.load(SAMPLE) as sample:
        key = f"{fmt}|64|64"
        g, q, k, v = (
            fs.FloatArray(sample[f"{name}|{key}"], fs.as_format(fmt)) for name in ("gradient", "query", "key", "value")
        )
        for recipe, causal in itertools.product(("flash-attention-2", "math"), (False, True)):
            found = ops.attention_backward(g, q, k, v, causal=causal, recipe=recipe)
            for name, gradient in zip(("query", "key", "value"), found, strict=True):
                kept = sample[f"{name}_gradient|{recipe}|{key}|causal={causal}"]
                np.testing.assert_array_equal(gradient.codes, kept)


def test_the_sample_is_small():
    assert not SAMPLE.exists() or SAMPLE.stat().st_size < 1_500_000


@needs_recordings
@recipes
@formats
@pytest.mark.parametrize("causal", [False, True])
def test_all_recorded_outputs(recipe, fmt, causal):
    with recording("attention") as recorded:
        for keys, d in SHAPES:
            q, k, v, _ = operands([13, keys, d], (1, 2, keys, d), fmt)
            found = ops.attention(q, k, v, causal=causal, recipe=recipe)
            expected = recorded[f"{RECIPES[recipe]}|{fmt}|{keys}|{d}|causal={causal}"]
            np.testing.assert_array_equal(found.codes, expected, err_msg=f"{keys} keys, d = {d}")


@needs_recordings
@formats
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("recipe", ["flash-attention-2", "math"])
def test_all_recorded_gradients(recipe, fmt, causal):
    with recording("attention") as recorded:
        for keys in (64, 128, 200):
            q, k, v, g = operands([13, keys, 64], (1, 2, keys, 64), fmt)
            found = ops.attention_backward(g, q, k, v, causal=causal, recipe=recipe)
            for name, gradient in zip(("dq", "dk", "dv"), found, strict=True):
                key = f"{name}|{RECIPES[recipe]}|{fmt}|{keys}|64|causal={causal}"
                np.testing.assert_array_equal(gradient.codes, recorded[key], err_msg=key)


@needs_recordings
@formats
@pytest.mark.parametrize("causal", [False, True])
def test_recorded_gradients_of_cudnn(fmt, causal):
    """All bits with 64 keys. With more keys, in which logsumexp differs in a few rows, nearly all."""
    with recording("attention") as recorded:
        for keys, least in ((64, 1.0), (128, 0.995)):
            q, k, v, g = operands([13, keys, 64], (1, 2, keys, 64), fmt)
            block = None if keys == 64 else 128
            found = ops.attention_backward(g, q, k, v, causal=causal, recipe="cudnn-attention", block=block)
            for name, gradient in zip(("dq", "dk", "dv"), found, strict=True):
                key = f"{name}|CUDNN_ATTENTION|{fmt}|{keys}|64|causal={causal}"
                assert np.mean(gradient.codes == recorded[key]) >= least, key


@needs_recordings
@formats
def test_recorded_math_of_a_transformer(fmt):
    with recording("training/attention") as recorded:
        q, k, v, g = operands(37, (2, 4, 32, 16), fmt)
        np.testing.assert_array_equal(ops.attention(q, k, v, recipe="math").codes, recorded[f"o|math|{fmt}"])
        for name, gradient in zip(("dq", "dk", "dv"), ops.attention_backward(g, q, k, v, recipe="math"), strict=True):
            np.testing.assert_array_equal(gradient.codes, recorded[f"{name}|math|{fmt}"])


@needs_recordings
@pytest.mark.parametrize("recipe", FUSED)
def test_recorded_probabilities(recipe):
    with recording("mufu/attention_parts") as recorded:
        rng = np.random.default_rng(31)
        for fmt, keys in (("fp16", 64), ("fp16", 128), ("fp16", 256), ("bf16", 64), ("bf16", 128)):
            if (fmt, keys) == ("bf16", 64):
                continue
            q, k = (fs.array(rng.standard_normal((1, 1, keys, 64)).astype(np.float32), fmt) for _ in range(2))
            found = ops.attention(q, k, fs.array(np.eye(keys), fmt)[None, None], recipe=recipe)
            parts = [recorded[f"{RECIPES[recipe]}|{fmt}|{keys}|64|part={n}"] for n in range(-(-keys // 64))]
            np.testing.assert_array_equal(found.codes[0, 0], np.concatenate(parts, axis=-1))


@needs_recordings
@formats
@pytest.mark.parametrize("keys", [64, 128])
def test_recorded_probabilities_of_heads_of_128(fmt, keys):
    """Values that are one-hot show the probabilities of efficient attention, whose scale is no power of two."""
    with recording("mufu/all_codes/onehot") as recorded:
        q, k, _ = operands([13, keys, 128], (1, 2, keys, 128), fmt, 3)
        identity = fs.array(np.broadcast_to(np.eye(keys, 128), (1, 2, keys, 128)), fmt)
        found = ops.attention(q, k, identity, recipe="efficient-attention")
        name = {"fp16": "float16", "bf16": "bfloat16"}[fmt]
        np.testing.assert_array_equal(found.codes, recorded[f"{keys}|torch.{name}|0"].view(np.uint16))


# -- without recordings ------------------------------------------------------------------------------------------------


def test_splits_of_the_keys():
    """One batch of two heads, as recorded; more rows need no split, and few rows many."""
    assert [ops.key_splits(2, n, n, 64) for n in (200, 256, 257, 333, 512, 513)] == [1, 1, 2, 2, 2, 3]
    assert [ops.key_splits(2, n, n, 128) for n in (64, 128, 200)] == [1, 1, 2]
    assert ops.key_splits(27, 512, 512, 64) == 1  # 216 tiles of 264
    assert ops.key_splits(26, 512, 512, 64) == 1  # 208 tiles: two waves of 416 are 79 % full, one is 79 % full
    assert ops.key_splits(1, 1, 100_000, 64) == 98  # 391 blocks: 4 for each part, and no larger number up to 128 has 3
    assert ops.key_splits(2, 512, 512, 192) == 1
    assert ops.key_splits(2, 512, 512, 64, multiprocessors=8) == 1


def test_a_part_of_the_keys_is_a_call_with_splits():
    """Two parts of a block each; the default splits where the kernel does."""
    q, k, v = operands(1, (2, 512, 64), "fp16", 3)
    default = ops.attention(q, k, v, recipe="flash-attention-2")
    twice, whole = (ops.attention(q, k, v, splits=n, recipe="flash-attention-2") for n in (2, 1))
    np.testing.assert_array_equal(default.codes, twice.codes)
    assert np.any(default.codes != whole.codes)


@pytest.mark.parametrize(("recipe", "d"), [
    ("flash-attention-2", 129), ("cudnn-attention", 32), ("efficient-attention", 129),
])  # fmt: skip
def test_blocks_that_are_not_known(recipe, d):
    q, k, v = operands(1, (3, d), "fp16", 3)
    with pytest.raises(ValueError, match=f"are not known for d = {d}; give block="):
        ops.attention(q, k, v, recipe=recipe)
    assert np.isfinite(ops.attention(q, k, v, recipe=recipe, block=64).values).all()


def test_gradients_that_are_not_known():
    q, k, v, g = operands(1, (300, 64), "fp16")
    call, recipe = ops.attention_backward, {"recipe": "flash-attention-2"}
    with pytest.raises(ValueError, match="of 3 blocks of 128 keys in no fixed order; at most 2 blocks are computed"):
        call(g, q, k, v, **recipe)
    with pytest.raises(ValueError, match="the gradients of FlashAttention-2 are not known for d = 32; give block="):
        call(*(x[:9, :32] for x in (g, q, k, v)), **recipe)
    with pytest.raises(ValueError, match="the gradients of cuDNN are not known for 65 queries or keys, only up to 64"):
        call(g[:9], q[:9], k[:65], v[:65], recipe="cudnn-attention")
    assert np.isfinite(call(g[:9], q[:9], k[:65], v[:65], recipe="cudnn-attention", block=128).query.values).all()
    with pytest.raises(TypeError, match="mask must be booleans for the variant 'flash-kernel'"):
        call(g[:9], q[:9], k[:9], v[:9], mask=fs.array(np.zeros((9, 9)), "fp32"), **recipe)
    with pytest.raises(ValueError, match="block"):
        call(g[:9], q[:9], k[:9], v[:9], block=0, **recipe)


def test_a_query_without_keys_has_no_gradient():
    q, k, v, g = operands(1, (8, 64), "fp16")
    mask = np.ones((8, 8), bool)
    mask[3] = False
    found = ops.attention_backward(g, q, k, v, mask=mask, recipe="flash-attention-2")
    rest = np.arange(8) != 3
    for name in ("key", "value"):
        alone = ops.attention_backward(g[rest], q[rest], k, v, recipe="flash-attention-2")
        np.testing.assert_array_equal(getattr(found, name).values, getattr(alone, name).values)
    assert not found.query.values[3].any()
    assert np.isfinite(found.query.values).all()


def test_splits_that_are_not_known():
    q, k, v = operands(1, (40, 64), "fp16", 3)
    with pytest.raises(ValueError, match="cuDNN does not split the keys: splits must be 1, not 2"):
        ops.attention(q, k, v, recipe="cudnn-attention", splits=2)
    with pytest.raises(ValueError, match="the order of 17 parts of the keys is not known; at most 16 are"):
        ops.attention(q, k, v, recipe="flash-attention-2", splits=17, block=2)
    with pytest.raises(ValueError, match="splits"):
        ops.attention(q, k, v, recipe="flash-attention-2", splits=0)
    mask = fs.array(np.zeros((40, 40)), "fp32")
    for recipe in FUSED:
        with pytest.raises(TypeError, match="mask must be booleans for the variant"):
            ops.attention(q, k, v, mask=mask, recipe=recipe)
