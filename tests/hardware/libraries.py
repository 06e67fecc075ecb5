"""Replacements of CuPy, torch and nvmath without a GPU: arrays are NumPy's, and products are read from memory.

As far as `floatsim.hardware.vendor_gemm` uses them, with the signatures of CuPy 14 and nvmath-python 1.0. Sums are
exact and rounded once, so that nothing but the place of elements decides a result.
"""

from __future__ import annotations

import ctypes
import sys
import types
from typing import ClassVar

import ml_dtypes
import numpy as np

import floatsim as fs
from tests.arrays.torch_dtype import Dtype


def product(a, b, output):
    """Return exact sums as an ndarray of the output's dtype."""
    with fs.context(backend="emulator"):
        return np.asarray(fs.matmul(a, b, accumulate=fs.Exact(output)))


def memory(address, count, dtype):
    """Return the elements at an address."""
    dtype = np.dtype(dtype)
    raw = (ctypes.c_uint8 * (count * dtype.itemsize)).from_address(address)
    return np.frombuffer(raw, dtype)


# -- CuPy --------------------------------------------------------------------------------------------------------------


class ndarray:
    """A replacement of cupy.ndarray."""

    __module__ = "cupy"
    __cuda_array_interface__ = None

    def __init__(self, array):
        self.array = np.ascontiguousarray(array)
        self.shape, self.size, self.dtype = self.array.shape, self.array.size, self.array.dtype
        self.data = types.SimpleNamespace(ptr=self.array.ctypes.data)

    def get(self):
        return self.array


class Here:
    def __init__(self, number):
        self.number = number

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


TYPES = {0: np.float32, 1: np.float64, 2: np.float16, 14: ml_dtypes.bfloat16}
FORMATS = {0: fs.FP32, 1: fs.FP64, 2: fs.FP16, 14: fs.BF16}


class CuBlas(types.ModuleType):
    """A replacement of cupy_backends.cuda.libs.cublas that stores its calls."""

    CUBLAS_OP_N, CUBLAS_POINTER_MODE_HOST, CUBLAS_GEMM_DEFAULT = 0, 0, -1
    CUBLAS_COMPUTE_16F, CUBLAS_COMPUTE_16F_PEDANTIC = 64, 65
    CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_PEDANTIC = 68, 69
    CUBLAS_COMPUTE_32F_FAST_16F, CUBLAS_COMPUTE_32F_FAST_16BF, CUBLAS_COMPUTE_32F_FAST_TF32 = 74, 75, 77
    CUBLAS_COMPUTE_64F, CUBLAS_COMPUTE_64F_PEDANTIC = 70, 71

    def __init__(self):
        super().__init__("cupy_backends.cuda.libs.cublas")
        self.computes: list[int] = []

    def setPointerMode(self, handle, mode):
        assert (handle, mode) == ("handle", 0)

    def gemmEx(self, handle, transa, transb, m, n, k, alpha, A, Atype, lda, B, Btype, ldb, beta, C, Ctype, ldc,
               computeType, algo):  # fmt: skip
        """Compute C = A B of column-major matrices with leading dimensions."""
        assert (handle, transa, transb, algo) == ("handle", 0, 0, -1)
        scale = {64: np.float16, 65: np.float16, 70: np.float64, 71: np.float64}.get(computeType, np.float32)
        assert memory(alpha, 1, scale)[0] == 1
        assert memory(beta, 1, scale)[0] == 0
        x, y = (memory(at, columns * ld, TYPES[kind]).reshape(columns, ld)[:, :rows].T
                for at, kind, ld, rows, columns in ((A, Atype, lda, m, k), (B, Btype, ldb, k, n)))  # fmt: skip
        out = memory(C, n * ldc, TYPES[Ctype]).reshape(n, ldc)
        out[:, :m] = product(np.ascontiguousarray(x), np.ascontiguousarray(y), FORMATS[Ctype]).T
        self.computes.append(computeType)


def cupy(capability):
    """Return a replacement of the package cupy, with a GPU of a compute capability."""
    runtime = types.SimpleNamespace(
        getDeviceCount=lambda: 1, driverGetVersion=lambda: 13020, runtimeGetVersion=lambda: 13000,
        getDeviceProperties=lambda number: {"name": b"a fake", "major": capability[0], "minor": capability[1]},
        CUDA_R_32F=0, CUDA_R_64F=1, CUDA_R_16F=2, CUDA_R_16BF=14,
    )  # fmt: skip
    module = types.ModuleType("cupy")
    module.__version__ = "14.2.0"

    def matmul(x, y):
        return ndarray(product(x.array, y.array, fs.as_format(x.array.dtype)))

    module.__dict__.update(
        asarray=ndarray, matmul=matmul, empty=lambda shape, dtype: ndarray(np.full(shape, 0x5A, dtype)),
        ndarray=ndarray, cuda=types.SimpleNamespace(
            runtime=runtime, Device=Here, device=types.SimpleNamespace(get_cublas_handle=lambda: "handle")),
    )  # fmt: skip
    return module


# -- torch and nvmath --------------------------------------------------------------------------------------------------


class Tensor:
    """A replacement of torch.Tensor with strides, on the host or on a GPU."""

    __module__ = "torch"

    def __init__(self, array, where="cpu"):
        self.array, self.where = array, where

    @property
    def dtype(self):
        return Dtype(self.array.dtype.name)

    @property
    def T(self):
        return Tensor(self.array.T, self.where)

    def to(self, where):
        return Tensor(self.array, where)

    def view(self, dtype):
        return Tensor(self.array.view(dtype), self.where)

    def detach(self):
        return self

    def cpu(self):
        return self.to("cpu")

    def contiguous(self):
        return Tensor(np.ascontiguousarray(self.array), self.where)

    def numpy(self):
        assert self.where == "cpu"
        assert self.array.dtype.kind in "fiu"
        return self.array


def torch():
    module = types.ModuleType("torch")
    module.__dict__.update(
        from_numpy=Tensor, float8_e4m3fn=ml_dtypes.float8_e4m3fn, float8_e5m2=ml_dtypes.float8_e5m2, int16=np.int16,
        uint8=np.uint8,
    )  # fmt: skip
    return module


class Matmul:
    """A replacement of nvmath.linalg.advanced.Matmul: plan, execute, free."""

    made: ClassVar[list[Matmul]] = []

    def __init__(self, a, b, /, *, quantization_scales=None, options=None):
        assert quantization_scales == {"a": 1.0, "b": 1.0}
        for x in (a, b):
            assert x.where == "cuda:0"
            assert all(n % 16 == 0 for n in x.array.shape)
        assert a.array.strides[1] == 1  # rows of a, and columns of b, one after the other
        assert b.array.strides[0] == 1
        self.a, self.b, self.options, self.planned, self.free = a, b, options, False, False
        Matmul.made.append(self)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.free = True

    def plan(self):
        self.planned = True

    def execute(self):
        assert self.planned
        assert not self.free
        output = FORMATS[self.options["result_type"]]
        return Tensor(product(np.ascontiguousarray(self.a.array), np.ascontiguousarray(self.b.array), output), "cuda:0")


def nvmath():
    """Return replacements of nvmath and nvmath.linalg.advanced."""
    Matmul.made = []
    module, advanced = types.ModuleType("nvmath"), types.ModuleType("nvmath.linalg.advanced")
    module.CudaDataType = types.SimpleNamespace(CUDA_R_32F=0, CUDA_R_16F=2, CUDA_R_16BF=14)
    advanced.Matmul = Matmul
    return module, advanced


def only(**made):
    """Return a module's __getattr__ that makes these attributes."""

    def get(name):
        if name not in made:
            raise AttributeError(name)
        return made[name]()

    return get


def install(monkeypatch, capability, *names):
    """Put replacements of the named libraries into sys.modules; the others are missing. Return cuBLAS."""
    module, advanced = nvmath()
    blas, libs, linalg = CuBlas(), types.ModuleType("cupy_backends.cuda.libs"), types.ModuleType("nvmath.linalg")
    # as in CuPy, whose module cublas cannot be imported before a function of the package has loaded the library
    libs.__getattr__ = only(cublas=lambda: blas)
    linalg.advanced = advanced
    there = {
        "cupy": cupy(capability), "cupy_backends.cuda.libs": libs, "torch": torch(), "nvmath": module,
        "nvmath.linalg": linalg, "nvmath.linalg.advanced": advanced,
    }  # fmt: skip
    for name, each in there.items():
        monkeypatch.setitem(sys.modules, name, each if name.partition(".")[0].partition("_")[0] in names else None)
    return blas
