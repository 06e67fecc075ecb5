"""The mathematical functions as users call them: NumPy's ufuncs, formats, flags, logs and errors."""

from fractions import Fraction

import numpy as np
import pytest

import floatsim as fs
from floatsim.hardware import backend


def test_numpy_ufuncs_call_the_functions():
    x = fs.array([0.25, 0.5], "bf16")
    pairs = (
        (np.exp, fs.exp), (np.exp2, fs.exp2), (np.expm1, fs.expm1), (np.log, fs.log), (np.log2, fs.log2),
        (np.log10, fs.log10), (np.log1p, fs.log1p), (np.sin, fs.sin), (np.cos, fs.cos), (np.tan, fs.tan),
        (np.arcsin, fs.asin), (np.arccos, fs.acos), (np.arctan, fs.atan), (np.sinh, fs.sinh), (np.cosh, fs.cosh),
        (np.tanh, fs.tanh), (np.cbrt, fs.cbrt), (np.reciprocal, fs.reciprocal),
    )  # fmt: skip
    for ufunc, function in pairs:
        assert ufunc(x).codes.tolist() == function(x).codes.tolist(), ufunc
    assert np.hypot(x, x).codes.tolist() == fs.hypot(x, x).codes.tolist()
    assert (x**2).codes.tolist() == fs.multiply(x, x).codes.tolist()
    assert (2**x).codes.tolist() == fs.exp2(x).codes.tolist()
    assert np.power(x, x).codes.tolist() == fs.power(x, x).codes.tolist()


def test_kinds_of_results():
    assert fs.exp(np.float32([1.0])).dtype == np.float32
    assert fs.exp(1.0) == np.exp(1.0)
    assert fs.exp(fs.array(1.0, "fp16"), format="bf16").format == fs.BF16
    out = fs.array([0.0], "fp16")
    assert fs.exp(fs.array([1.0], "fp16"), out=out) is out
    assert out.tolist() == [2.71875]
    assert fs.sigmoid(np.zeros((0, 3), np.float16)).shape == (0, 3)


def test_events_are_recorded():
    x, y = fs.array([12.0, 1.0, -20.0], "fp16"), fs.array([0.0, -1.0], "fp16")
    with fs.record() as log:
        fs.exp(x)
        fs.log(y)
    assert list(log.counts) == ["exp", "log"]
    assert (log["exp"].overflow, log["exp"].underflow) == (1, 1)
    assert (log["log"].divide_by_zero, log["log"].invalid) == (1, 1)


def test_scale_formats_and_unknown_names():
    with pytest.raises(TypeError, match="E8M0 is a scale format"):
        fs.exp(fs.array([1.0], "e8m0"))
    with pytest.raises(ValueError, match="approximate must be 'none' or 'tanh', not 'sigmoid'"):
        fs.gelu(fs.array([1.0], "fp16"), approximate="sigmoid")
    with pytest.raises(ValueError, match="backend='hardware' does not support function"):
        backend.function("exp", [], fs.FP16, None)


def test_the_polynomial_of_flash_attention():
    """Against the same steps in float64 arithmetic, each product and sum rounded to float32."""
    x = np.concatenate([np.linspace(-130, 127, 5001), [-0.0, 126.99999, -126.5]]).astype(np.float32)
    clamped = np.maximum(x, np.float32(-127))
    n = np.floor(clamped)
    f = (clamped - n).astype(np.float32).astype(np.float64)
    y = np.float64(np.float32(0.077119089663028717041015625))
    for c in (0.227564394474029541015625, 0.695146143436431884765625, 1.0):
        exact = [np.float32(float(Fraction(float(a)) * Fraction(float(b)) + Fraction(c)))
                 for a, b in zip(np.broadcast_to(y, f.shape), f, strict=True)]  # fmt: skip
        y = np.array(exact, np.float32).astype(np.float64)
    want = y.astype(np.float32).view(np.int32) + (n.astype(np.int32) << 23)
    got = fs.exp2(x, approximate="flash-attention-4")
    assert got.view(np.int32).tolist() == want.tolist()
    exact = np.exp2(clamped.astype(np.float64))
    normal = exact >= np.finfo(np.float32).tiny
    assert np.max(np.abs(got[normal] / exact[normal] - 1)) < 8.9e-5
    with pytest.raises(TypeError, match="a is FP16, but approximate='flash-attention-4' computes in FP32"):
        fs.exp2(fs.array([1.0], "fp16"), approximate="flash-attention-4")
    with pytest.raises(TypeError, match="takes no format= and no rounding options"):
        fs.exp2(x, approximate="flash-attention-4", rounding="RTZ")
    with pytest.raises(ValueError, match="must be 'none' or 'flash-attention-4', not 'fast'"):
        fs.exp2(x, approximate="fast")
