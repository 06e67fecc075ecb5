"""The mathematical functions as users call them: NumPy's ufuncs, formats, flags, logs and errors."""

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
