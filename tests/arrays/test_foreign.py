"""Arrays of other libraries: CuPy, torch, and libraries with DLPack. Stub classes replace the libraries."""

from __future__ import annotations

import sys
import types

import ml_dtypes
import numpy as np
import pytest

import floatsim as fs


class CuPyArray:
    """A stub of cupy.ndarray: no implicit conversion to NumPy."""

    __module__ = "cupy"
    __cuda_array_interface__ = None

    def __init__(self, array):
        self.array = array

    def get(self):
        return self.array

    def __array__(self, *_, **__):
        raise TypeError("Implicit conversion to a NumPy array is not allowed.")


class Tensor:
    """A stub of torch.Tensor on a GPU: bits and the name of a dtype."""

    __module__ = "torch"

    def __init__(self, array, dtype, where="cuda"):
        self.array, self.dtype, self.where = array, f"torch.{dtype}", where

    def detach(self):
        return self

    def contiguous(self):
        return self

    def cpu(self):
        return Tensor(self.array, self.dtype.removeprefix("torch."), "cpu")

    def view(self, dtype):
        return Tensor(self.array.view(dtype), dtype, self.where)

    def numpy(self):
        assert self.where == "cpu"
        assert self.dtype.removeprefix("torch.") in ("float16", "float32", "float64", "int16", "uint8", "int64")
        return self.array


@pytest.fixture
def libraries(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(asarray=CuPyArray))
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(int16="int16", uint8="uint8"))


def test_cupy_in_cupy_out(libraries):
    x = np.random.default_rng(1).standard_normal((4, 4)).astype(np.float16)
    y = CuPyArray(x)
    for call in (lambda a: fs.add(a, a), lambda a: fs.matmul(a, a, accumulate="fp32"), lambda a: fs.sum(a, axis=0),
                 lambda a: fs.quantize(a, "e4m3"), lambda a: fs.convert(a, "bf16"), lambda a: fs.dot(a, a),
                 lambda a: fs.fma(a, a, a), fs.sqrt, lambda a: fs.matmul(x, b=a)):  # fmt: skip
        found, wanted = call(y), call(x)
        assert isinstance(found, CuPyArray)
        assert found.array.dtype == wanted.dtype
        assert found.array.tobytes() == wanted.tobytes()
    found, flags = fs.add(y, y, return_flags=True)
    assert isinstance(found, CuPyArray)
    assert isinstance(flags, CuPyArray)


def test_what_cupy_has_no_dtype_for_stays_on_the_host(libraries):
    x = CuPyArray(np.float32([1.5, 300]))
    assert fs.convert(x, "e4m3").dtype == ml_dtypes.float8_e4m3fn
    assert isinstance(fs.convert(x, "tf32"), fs.FloatArray)


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float16", "float32"])
def test_tensors_of_torch(libraries, name):
    dtype = np.dtype(getattr(ml_dtypes, name, None) or name)
    x = np.array([1.5, -0.25, 3.0], np.float32).astype(dtype)
    found = fs.convert(Tensor(x, name), "fp32")
    assert found.tolist() == [1.5, -0.25, 3.0]
    with pytest.raises(TypeError, match="dtype int64, which is no format"):
        fs.add(Tensor(np.arange(3), "int64"), x)


def test_whatever_speaks_dlpack():
    class Other:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **keywords):
            return self.array.__dlpack__(**keywords)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    x = np.float32([1, 2, 3])
    assert fs.add(Other(x), x).tolist() == [2, 4, 6]


class OnTheGpu:
    """A stub of an array with DLPack, of a library that is neither CuPy nor torch."""

    __module__ = "other.arrays"

    def __init__(self, array, kind):
        self.array, self.kind = array, kind

    def __dlpack__(self, **keywords):
        raise BufferError("not on this device")

    def __dlpack_device__(self):
        return self.kind, 0


@pytest.mark.parametrize("kind", [2, 13])
def test_dlpack_from_a_gpu(monkeypatch, kind):
    x = np.float32([1, 2, 3])
    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(from_dlpack=lambda y: CuPyArray(y.array)))
    assert fs.add(OnTheGpu(x, kind), x).tolist() == [2, 4, 6]
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(
        TypeError, match=r"an array of other is on a GPU, .*CuPy, which is not installed: pip install '\.\[cuda13x\]'"
    ):
        fs.add(OnTheGpu(x, kind), x)


def test_what_dlpack_cannot_say():
    """Dtypes that NumPy lacks, such as BF16: an array with `__array__` is converted; another array is an error."""
    x = np.float32([1, 2, 3])

    class Convertible(OnTheGpu):
        def __array__(self, dtype=None, copy=None):
            return self.array.astype(ml_dtypes.bfloat16)

    assert fs.convert(Convertible(x, 1), "fp32").tolist() == [1, 2, 3]
    with pytest.raises(TypeError, match="an array of other cannot be read through DLPack: not on this device"):
        fs.convert(OnTheGpu(x, 1), "fp32")
