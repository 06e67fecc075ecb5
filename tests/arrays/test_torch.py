"""Exchange with torch itself. Needs the extra `torch`; the stub in test_interop.py is tested always."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

import floatsim as fs

torch = pytest.importorskip("torch", reason="needs torch: the extra `torch`")

DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2,
    torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu,
]  # fmt: skip
dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def tensor_of_all_codes(fmt, dtype):
    codes = np.arange(min(1 << fmt.bits, 1 << 16)).astype(fmt.code_dtype)
    return codes, torch.from_numpy(codes.view(f"int{codes.dtype.itemsize * 8}")).view(dtype)


@dtypes
def test_both_directions(dtype):
    fmt = fs.as_format(dtype)
    assert str(dtype) == f"torch.{fmt.dtype.name}"
    codes, tensor = tensor_of_all_codes(fmt, dtype)
    found = fs.to_torch(fs.from_codes(codes, fmt))
    assert found.dtype == dtype and torch.equal(found.view(torch.uint8), tensor.view(torch.uint8))
    again = fs.to_torch(np.asarray(fs.from_codes(codes, fmt)))
    assert again.dtype == dtype and torch.equal(again.view(torch.uint8), tensor.view(torch.uint8))
    back = fs.array(tensor)
    canonical = np.where(np.isnan(fs.decode(codes, fmt)), fs.encode(np.nan, fmt), codes)  # a conversion
    assert back.format == fmt and np.array_equal(back.codes, canonical)
    assert np.array_equal(fs.decode(codes, fmt), tensor.double().numpy(), equal_nan=True)


@dtypes
def test_dlpack(dtype):
    fmt = fs.as_format(dtype)
    codes, tensor = tensor_of_all_codes(fmt, dtype)
    found = torch.from_dlpack(fs.from_codes(codes[:30].reshape(5, 6)[:, ::2], fmt))
    assert found.dtype == dtype and found.shape == (5, 3)
    assert torch.equal(
        found.contiguous().view(torch.uint8), tensor[:30].reshape(5, 6)[:, ::2].contiguous().view(torch.uint8)
    )
    x = fs.from_codes(codes.copy(), fmt)
    shared = torch.from_dlpack(x)
    shared.view(torch.uint8)[0] = 3
    assert x.codes.view(np.uint8)[0] == 3


def test_a_tensor_in_gives_a_tensor_out():
    a = torch.randn(8, 8, dtype=torch.float32).to(torch.bfloat16)
    x = fs.array(a)
    for call in (
        lambda v: fs.add(v, v), lambda v: fs.matmul(v, v, accumulate="fp32"), lambda v: fs.sum(v, axis=0),
        lambda v: fs.minimum(v, 1), lambda v: fs.convert(v, "e4m3"), lambda v: fs.fma(v, v, v), fs.sqrt, fs.negative,
        lambda v: fs.quantize(v, "e4m3"), fs.mean, lambda v: fs.einsum("ij,kj->ik", v, v),
    ):  # fmt: skip
        found, wanted = call(a), call(x)
        assert isinstance(found, torch.Tensor) and fs.as_format(found.dtype) == wanted.format
        assert fs.array(found).codes.tolist() == wanted.codes.tolist()
    assert torch.equal(fs.add(a, a), a + a)
    found, flags = fs.divide(a, 3, return_flags=True)
    assert found.dtype == torch.bfloat16 and flags.dtype == torch.uint8
    assert isinstance(fs.convert(a, "tf32"), fs.FloatArray)
    assert isinstance(fs.encode(a, "e4m3"), np.ndarray) and isinstance(fs.array(a), fs.FloatArray)
    assert isinstance(fs.add(x, a), fs.FloatArray)
    assert fs.convert(torch.arange(4), "bf16").dtype == torch.bfloat16


def test_gradients_are_not_lost_silently():
    layer = torch.nn.Linear(3, 2)
    with pytest.warns(fs.FloatsimWarning, match=r"requires a gradient.*x\.detach\(\).*floatsim\.torch"):
        found = fs.quantize(layer.weight, "e4m3")
    assert not found.requires_grad
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fs.quantize(layer.weight.detach(), "e4m3")
        with torch.no_grad():
            fs.quantize(layer.weight, "e4m3")


def test_memory():
    x = fs.array([1.0, 2.0, 3.0], "bf16")
    shared = fs.to_torch(x)
    shared[0] = 5
    assert x.tolist() == [5.0, 2.0, 3.0]
    assert fs.to_torch(x[::-1]).tolist() == [3.0, 2.0, 5.0]
    frozen = fs.array([1.0], "fp32")
    frozen.codes.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fs.to_torch(frozen)[0] = 7
    assert frozen.tolist() == [1.0]
    assert fs.to_torch(fs.array(2.0, "fp16")).shape == ()


def test_tf32_numbers_are_float32_numbers():
    x = fs.array([1.0, -0.0, 1 + 2**-10, 2.0**-136, math.inf, math.nan], "tf32")
    tensor = fs.to_torch(x)
    assert tensor.dtype == torch.float32
    assert np.array_equal(tensor.numpy(), x.values.astype(np.float32), equal_nan=True)
    assert np.signbit(tensor.numpy()[1])
    assert np.array_equal(fs.array(tensor, "tf32").codes, x.codes)  # and back


def test_formats_without_a_dtype_in_torch():
    for fmt in "e3m4", "e2m1", "e2m3":
        with pytest.raises(TypeError, match="has no dtype in torch; convert x"):
            fs.to_torch(fs.array([1.0], fmt))
    with pytest.raises(ValueError, match="packs two E2M1 numbers"):
        fs.as_format(torch.float4_e2m1fn_x2)
    with pytest.raises(ValueError, match=r"no format has the dtype torch\.int32"):
        fs.as_format(torch.int32)
