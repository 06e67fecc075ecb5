"""Exchange with JAX itself. Needs the extra `jax`."""

from __future__ import annotations

import numpy as np
import pytest

import floatsim as fs

jax = pytest.importorskip("jax", reason="needs JAX: the extra `jax`")
jnp = jax.numpy

NAMES = [
    "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz",
    "float8_e4m3b11fnuz", "float8_e4m3", "float8_e3m4", "float8_e8m0fnu",
]  # fmt: skip


def all_numbers(fmt):
    codes = np.arange(min(1 << fmt.bits, 1 << 16)).astype(fmt.code_dtype)
    return codes[~np.isnan(fs.decode(codes, fmt))]


@pytest.mark.parametrize("name", NAMES)
def test_both_directions(name):
    dtype = getattr(jnp, name)
    fmt = fs.as_format(dtype)
    assert fmt == fs.as_format(jnp.dtype(dtype)) == fs.as_format(name)
    codes = all_numbers(fmt)
    x = fs.from_codes(codes, fmt)
    found = fs.to_jax(x)
    assert isinstance(found, jax.Array) and found.dtype == dtype
    assert np.array_equal(np.asarray(found).view(fmt.code_dtype), codes)
    assert np.array_equal(fs.array(found).codes, codes)
    assert fs.convert(found, "fp64").dtype == np.float64
    shared = jax.dlpack.from_dlpack(x)
    assert shared.dtype == dtype and np.array_equal(np.asarray(shared).view(fmt.code_dtype), codes)


def test_fp64_needs_x64():
    x = fs.array([0.1], "fp64")
    with pytest.raises(TypeError, match="jax_enable_x64"):
        fs.to_jax(x)
    with jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64():
        assert fs.to_jax(x).dtype == jnp.float64


def test_results_for_arrays_of_jax_are_numpy_s():
    x = jnp.ones((4, 4), jnp.bfloat16)
    assert isinstance(fs.add(x, x), np.ndarray) and fs.add(x, x).dtype == jnp.bfloat16
    assert fs.matmul(x, x, accumulate="fp32").tolist() == [[4.0] * 4] * 4
    assert fs.to_jax(fs.matmul(x, x, accumulate="bf16", format="bf16")).dtype == jnp.bfloat16


def test_the_result_is_a_copy():
    x = fs.array(np.ones(64), "fp32")
    y = fs.to_jax(x, device=jax.devices()[0])
    x[0] = 5
    assert y[0] == 1


def test_tf32_numbers_are_float32_numbers():
    found = fs.to_jax(fs.array([1.0, 1 + 2**-10], "tf32"))
    assert found.dtype == jnp.float32
    assert found.tolist() == [1.0, 1 + 2**-10]


@pytest.mark.parametrize("fmt", ["e3m4", "e2m3"])
def test_formats_without_a_dtype_in_jax(fmt):
    with pytest.raises(TypeError, match=r"convert x with fs\.convert"):
        fs.to_jax(fs.array([1.0], fmt))
