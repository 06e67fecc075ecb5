"""`fs.training.Cache`: the numbers of stored keys and values, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

import floatsim as fs
from floatsim.quantization import SCHEMES, Scheme, from_gguf, hadamard, to_gguf
from floatsim.training import Cache, Policy

X = (np.random.default_rng(0).normal(size=(2, 3, 5, 64)) * np.exp2(np.arange(5) - 2).reshape(-1, 1)).astype(np.float32)

STORED = {
    "e4m3": ("e4m3", lambda x: fs.quantize(x, "e4m3")),
    "int4": ("int4", lambda x: fs.quantize_blocks(x, "int4", block="row").values),
    "mxfp8": ("mxfp8", lambda x: fs.quantize_blocks(x, "mxfp8").values),
    "nvfp4_1x64": ("nvfp4_1x64", lambda x: fs.quantize_blocks(x, "nvfp4_1x64").values),
    "asymmetric": (
        Scheme("uint4", 32, rule="asymmetric"),
        lambda x: fs.quantize_blocks(x, "uint4", block=32, rule="asymmetric").values,
    ),
    "q8_0": ("q8_0", lambda x: from_gguf(to_gguf(x, "Q8_0"), "Q8_0").values),
}


@pytest.mark.parametrize(("how", "definition"), STORED.values(), ids=STORED)
def test_tokens_are_stored_one_by_one_or_together(how, definition):
    whole = Cache(how).stored(X, "keys").values
    for index in np.ndindex(X.shape[:2]):
        for token in range(X.shape[2]):
            row = X[index][token : token + 1]
            np.testing.assert_array_equal(whole[index][token : token + 1], definition(row))
            np.testing.assert_array_equal(Cache(how).stored(row, "values").values, definition(row))


def test_calibrated_scales():
    cache = Cache("e4m3", values="nvfp4", key_scale=0.5, value_scale=0.01)
    assert np.array_equal(cache.stored(X, "keys").values, fs.quantize_blocks(X, "e4m3", scale=0.5).values)
    wanted = fs.quantize_blocks(X, "nvfp4", tensor_scale=np.float32(0.01)).values
    assert np.array_equal(cache.stored(X, "values").values, wanted)
    assert Cache("e4m3", key_scale=1.0, value_scale=1.0).stored([[1e4]], "keys").item() == 448
    assert np.isnan(Cache("e4m3").stored([[1e4]], "keys").item())


def test_rotations_and_contexts():
    signs = (1, -1, 1, 1)
    cache = Cache("int4", values=None, rotate=32)
    turned = hadamard(X, 32)
    with fs.context(rounding="toward_zero"):
        found = cache.stored(X, "keys")
    assert np.array_equal(found.values, fs.quantize_blocks(turned, "int4", block="row").values)
    assert np.array_equal(cache.stored(X, "values").values, X)
    signed = Cache("int8", rotate_values=4, signs=signs)
    assert np.array_equal(signed.rotated(X, "values").values, hadamard(X, 4, signs=signs).values)
    back = signed.rotated(signed.rotated(X, "values"), "values", inverse=True).values
    np.testing.assert_allclose(back, X, atol=1e-5)


@pytest.mark.parametrize(("call", "message"), [
    (lambda: Cache("fp8"), "keys:.*FP8 is E4M3 or E5M2"),
    (lambda: Cache("int8", values="mxpf8"), "values:.*did you mean 'mxfp8'"),
    (lambda: Cache("nvfp4"), "second scale for all tokens.*'nvfp4_row' or 'nvfp4_single'"),
    (lambda: Cache("te_current"), r"one scale for all tokens.*Scheme\('e4m3', block='row'\)"),
    (lambda: Cache(SCHEMES["deepseek_weight"]), "blocks of several tokens.*such as 'mxfp8'"),
    (lambda: Cache(Scheme("int4", "column")), "blocks of several tokens"),
    (lambda: Cache("nf4_nested"), "nested scales.*such as 'nf4'"),
    (lambda: Cache("mxfp8", key_scale=2.0), "has scales of blocks"),
    (lambda: Cache("q4_0", value_scale=2.0), "takes no scale"),
    (lambda: Cache(None, values="e4m3", key_scale=2.0), "take no scale"),
    (lambda: Cache("e4m3", key_scale=0.0), "key_scale must be a finite number above 0"),
    (lambda: Cache("e4m3", rotate=48), "rotate must be 0 or a power of two"),
    (lambda: Cache("e4m3", signs=(1, -1)), "signs are for rotate="),
    (lambda: Cache("e4m3", rotate=4, signs=(1, -1)), "signs must be 4 numbers"),
    (Cache, "stores keys and values as they are"),
    (lambda: Cache("e4m3", rotate=128).stored(X, "keys"), "rotate=128 does not divide the head size 64"),
    (lambda: Cache("q4_k").stored(X, "keys"), "cannot act on a head size of 64"),
    (lambda: Cache("e4m3").stored(X, "key"), "did you mean 'keys'"),
    (lambda: Cache("int8").stored(np.float32(3), "keys"), "x is a single number; keys and values have a last axis"),
    (lambda: Cache("int8", rotate=2).rotated(np.float32(3), "keys"), "x is a single number"),
    (lambda: Cache(None, values="int8").stored(X * np.nan, "values"), "values='int8': x has NaN or infinity"),
    (lambda: Cache("int8", key_scale=0.1).stored(X * np.inf, "keys"), "keys='int8': x has NaN or infinity"),
    (lambda: Cache("q8_0").stored(X * np.nan, "keys"), "keys='q8_0': x has NaN or infinity"),
    (lambda: Policy(cache="int44"), "cache: keys: unknown scheme or format 'int44'"),
    (lambda: Policy(cache={"layers.0": "nvfp4"}), r"cache\['layers.0'\]: keys='nvfp4' has a second scale"),
    (lambda: Policy(cache={}), "cache is an empty mapping"),
    (lambda: fs.training.Trainer("fp32+fp8-cache"), "cache= is for the attention of PyTorch models: ft.emulate"),
])  # fmt: skip
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("signs", [5, "+-"])
def test_signs_are_a_sequence(signs):
    with pytest.raises(TypeError, match="signs must be a sequence of 1 and -1"):
        Cache("int8", rotate=2, signs=signs)


def test_texts():
    assert repr(Cache("int8", values="e4m3", rotate=64)) == "Cache(int8, values=E4M3, rotate=64)"
    assert "cache=Cache(E4M3)" in repr(fs.training.as_policy("bf16+fp8-cache"))
    assert Cache("e4m3") == Cache("E4M3", values="e4m3")
