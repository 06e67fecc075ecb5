"""Arrays of other libraries: CuPy, torch, and libraries with DLPack. Stub classes replace the libraries."""

from __future__ import annotations

import os
import subprocess
import sys
import types

import ml_dtypes
import numpy as np
import pytest

import floatsim as fs
from tests.arrays.torch_dtype import Dtype

pytestmark = pytest.mark.versions


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

    def __init__(self, array, dtype, where="cuda", requires_grad=False):
        self.array, self.dtype, self.where = array, Dtype(str(dtype).removeprefix("torch.")), where
        self.requires_grad = requires_grad

    @property
    def device(self):
        return self.where

    def to(self, device):
        return Tensor(self.array, self.dtype, device)

    def detach(self):
        return self

    def contiguous(self):
        return self

    def cpu(self):
        return self.to("cpu")

    def view(self, dtype):
        name = str(dtype).removeprefix("torch.")
        return Tensor(self.array.view(getattr(ml_dtypes, name, None) or name), name, self.where)

    def numpy(self):
        assert self.where == "cpu"
        assert self.dtype.name in ("float16", "float32", "float64", "int16", "uint8", "int64")
        return self.array


@pytest.fixture
def libraries(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(asarray=CuPyArray))
    names = (
        "int16",
        "uint8",
        "int8",
        "bool",
        "float64",
        "float32",
        "float16",
        "bfloat16",
        "float8_e4m3fn",
        "float8_e5m2",
    )
    torch = types.SimpleNamespace(**{name: Dtype(name) for name in names})
    torch.from_numpy = lambda array: Tensor(array, array.dtype.name, "cpu")
    torch.is_grad_enabled = lambda: torch.gradients
    torch.gradients = True
    monkeypatch.setitem(sys.modules, "torch", torch)


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
    assert isinstance(found, Tensor) and found.where == "cuda" and found.dtype.name == "float32"
    assert found.array.tolist() == [1.5, -0.25, 3.0]
    same, flags = fs.add(Tensor(x, name), Tensor(x, name), return_flags=True)
    assert same.dtype.name == name and same.array.dtype == dtype and flags.dtype.name == "uint8"
    assert same.array.tobytes() == fs.add(x, x).tobytes()
    assert isinstance(fs.convert(Tensor(x, name), "tf32"), fs.FloatArray)  # torch has no dtype for it
    assert isinstance(fs.convert(Tensor(x, name), "e3m4"), np.ndarray)
    assert isinstance(fs.encode(Tensor(x, name), "e4m3"), np.ndarray)
    assert isinstance(fs.array(Tensor(x, name)), fs.FloatArray)
    with pytest.raises(TypeError, match="dtype int64, which is no format"):
        fs.add(Tensor(np.arange(3), "int64"), x)


def test_a_tensor_that_requires_a_gradient_warns(libraries):
    x = Tensor(np.float32([1.5]), "float32", "cpu", requires_grad=True)
    with pytest.warns(fs.FloatsimWarning, match=r"the gradient is lost\..*floatsim\.torch") as caught:
        fs.quantize(x, "e4m3")
    assert caught[0].filename == __file__
    sys.modules["torch"].gradients = False
    fs.quantize(x, "e4m3")  # inside torch.no_grad()


def test_dtypes_of_torch():
    assert fs.as_format(Dtype("bfloat16")) is fs.BF16 and fs.as_format(Dtype("float8_e8m0fnu")) is fs.E8M0
    with pytest.raises(ValueError, match=r"no format has the dtype torch\.int8"):
        fs.as_format(Dtype("int8"))
    with pytest.raises(ValueError, match="packs two E2M1 numbers"):
        fs.as_format(Dtype("float4_e2m1fn_x2"))


def test_arithmetic_imports_no_other_library():
    code = "import floatsim as fs, sys; x = fs.array([1.5], 'fp16'); x + x; fs.as_format('bf16'); "
    code += "assert not {'torch', 'jax', 'cupy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_libraries_that_are_not_installed(monkeypatch, library):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError, match=rf'{library} is not installed: pip install "{library}>=.*extra `{library}`'):
        getattr(fs, f"to_{library}")(np.float32([1]))


VERSIONED = np.lib.NumpyVersion(np.__version__) >= "2.1.0"  # NumPy makes capsules of DLPack 1.0


@pytest.mark.parametrize("versioned", [False, True] if VERSIONED else [False])
def test_dlpack_of_a_float_array(versioned):
    """The consumer is floatsim, through a class without `__array__`: NumPy reads BF16 and FP8 as integers."""

    class Capsule:
        def __init__(self, x):
            self.x = x

        def __dlpack__(self, **_):
            return self.x.__dlpack__(max_version=(1, 0) if versioned else None)

        def __dlpack_device__(self):
            return self.x.__dlpack_device__()

    for fmt in fs.named_formats():
        codes = (np.arange(24) % (1 << min(fmt.bits, 6))).astype(fmt.code_dtype).reshape(4, 6)[:, ::2]
        x = fs.from_codes(codes, fmt)
        assert x.__dlpack_device__() == (1, 0)
        if fmt in (fs.TF32, fs.E3M2, fs.E2M3, fs.E2M1):
            with pytest.raises(BufferError, match=rf"DLPack has no type for one {fmt.name} number"):
                x.__dlpack__()
            continue
        found = fs.array(Capsule(x))
        assert found.format == fmt and np.array_equal(found.codes, codes)
    x = fs.array([1.5], "fp16")
    assert np.from_dlpack(x).tolist() == [1.5] and np.shares_memory(np.from_dlpack(x), x.codes)


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
        TypeError,
        match=r'an array of other is on a GPU, .*CuPy, which is not installed: pip install "cupy-cuda13x\[ctk\]>=',
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
