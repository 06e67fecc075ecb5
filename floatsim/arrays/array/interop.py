"""Arrays of other libraries: they are read as NumPy arrays, and results return to the library and the device.

Nothing here imports a library before the caller has used it: a tensor comes from a library that is loaded. `to_torch`
and `to_jax` import theirs. CuPy is imported to copy arrays from a GPU that have only a DLPack interface.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import re
import sys
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from floatsim._extras import install_command
from floatsim._warnings import warn
from floatsim.formats import FloatFormat, as_format
from floatsim.formats._validation import HINTS, refuse_unknown_keyword

__all__ = [
    "as_numpy",
    "dlpack_capsule",
    "imported",
    "is_cupy",
    "is_narrow_integer",
    "is_tensor",
    "stays_on_device",
    "torch_tensor",
    "widened",
]

P = ParamSpec("P")
R = TypeVar("R")


def _library(x: Any) -> str:
    return type(x).__module__.partition(".")[0]


def is_cupy(x: Any) -> bool:
    """Return whether x is a cupy.ndarray."""
    return _library(x) == "cupy" and hasattr(x, "__cuda_array_interface__")


def is_tensor(x: Any) -> bool:
    """Return whether x is a torch.Tensor, of a subclass too (torch.nn.Parameter)."""
    return hasattr(x, "detach") and any(kind.__module__.partition(".")[0] == "torch" for kind in type(x).__mro__)


def as_numpy(x: Any) -> NDArray[Any] | None:
    """Return an array of another library as a NumPy array on the host, or None if x is no such array.

    CuPy arrays, torch tensors (BF16 and FP8 included) and all arrays with a DLPack interface are read.
    """
    if is_cupy(x):
        array: NDArray[Any] = x.get()
        return array
    if is_tensor(x):
        return _from_torch(x)
    return _from_dlpack(x) if hasattr(x, "__dlpack__") and not isinstance(x, np.ndarray) else None


_CUDA = (2, 13)  # DLPack device types: kDLCUDA and kDLCUDAManaged


def _from_dlpack(x: Any) -> NDArray[Any] | None:
    """Read an array through DLPack, from a GPU through CuPy.

    Return None if NumPy lacks the dtype and the array has `__array__`.
    """
    if x.__dlpack_device__()[0] in _CUDA:
        try:
            cupy = importlib.import_module("cupy")
        except ImportError:
            raise TypeError(
                f"an array of {_library(x)} is on a GPU, and reading it needs CuPy, which is not installed: "
                f"{install_command('cuda13x')}, or copy the array to the host"
            ) from None
        array: NDArray[Any] = cupy.from_dlpack(x).get()
        return array
    try:
        return np.from_dlpack(x)
    except (BufferError, RuntimeError) as error:
        if hasattr(x, "__array__"):
            return None
        try:
            return _dlpack_codes(x)
        except (BufferError, RuntimeError):
            raise TypeError(f"an array of {_library(x)} cannot be read through DLPack: {error}") from None


# -- DLPack ------------------------------------------------------------------------------------------------------------
# The layout and the type codes of dlpack.h, version 1.1: https://github.com/dmlc/dlpack


class _Tensor(ctypes.Structure):
    """DLTensor, up to the type of the elements."""

    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
    )  # fmt: skip


class _VersionedTensor(ctypes.Structure):
    """DLManagedTensorVersioned, up to the type of the elements."""

    _fields_ = (
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", _Tensor),
    )  # fmt: skip


_UINT = 1
_DLPACK_CODES = {
    "bfloat16": 4, "float8_e3m4": 7, "float8_e4m3": 8, "float8_e4m3b11fnuz": 9, "float8_e4m3fn": 10,
    "float8_e4m3fnuz": 11, "float8_e5m2": 12, "float8_e5m2fnuz": 13, "float8_e8m0fnu": 14,
}  # fmt: skip
"""DLPack's type codes of the dtypes that NumPy lacks. FP6 and FP4 are packed there, and one byte each here."""


def _type_of(capsule: Any) -> _Tensor:
    """Return the description of the tensor in a DLPack capsule. Its type code can be written."""
    api = ctypes.pythonapi
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
    api.PyCapsule_IsValid.restype = ctypes.c_int
    api.PyCapsule_IsValid.argtypes = (ctypes.py_object, ctypes.c_char_p)
    if api.PyCapsule_IsValid(capsule, b"dltensor_versioned"):
        pointer = api.PyCapsule_GetPointer(capsule, b"dltensor_versioned")
        versioned: _VersionedTensor = _VersionedTensor.from_address(pointer)
        tensor: _Tensor = versioned.tensor
        return tensor
    unversioned: _Tensor = _Tensor.from_address(api.PyCapsule_GetPointer(capsule, b"dltensor"))
    return unversioned


def dlpack_capsule(codes: NDArray[Any], fmt: FloatFormat, **keywords: Any) -> Any:
    """Return a DLPack capsule of the codes, with the type of the format. The keywords are those of `__dlpack__`."""
    name = "" if fmt.dtype is None else fmt.dtype.name
    given = {key: value for key, value in keywords.items() if value is not None}
    if name in ("float64", "float32", "float16"):
        return codes.view(name).__dlpack__(**given)
    if name not in _DLPACK_CODES:
        raise BufferError(
            f"DLPack has no type for one {fmt.name} number in {fmt.code_dtype.itemsize * 8} bits; "
            "exchange x.codes, or convert with fs.convert"
        )
    capsule = codes.__dlpack__(**given)
    _type_of(capsule).code = _DLPACK_CODES[name]
    return capsule


class _Codes:
    """An array with DLPack whose elements NumPy sees as unsigned integers."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.fmt: FloatFormat | None = None

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()

    def __dlpack__(self, **_: Any) -> Any:
        capsule = self.array.__dlpack__()
        tensor = _type_of(capsule)
        names = {code: name for name, code in _DLPACK_CODES.items()}
        if tensor.code in names and tensor.lanes == 1:
            self.fmt = as_format(names[tensor.code])
            tensor.code = _UINT
        return capsule


def _dlpack_codes(x: Any) -> NDArray[Any]:
    """Read an array through DLPack whose dtype NumPy lacks."""
    codes = _Codes(x)
    array = np.from_dlpack(codes)
    if codes.fmt is None or codes.fmt.dtype is None:
        raise BufferError("the type is no format")
    return array.view(codes.fmt.dtype)


# -- torch -------------------------------------------------------------------------------------------------------------


def imported(library: str) -> ModuleType:
    """Import a library that a function returns arrays of."""
    try:
        return importlib.import_module(library)
    except ImportError:
        raise ImportError(f"{library} is not installed: {install_command(library.partition('.')[0])}") from None


def _from_torch(x: Any) -> NDArray[Any]:
    """Read a torch tensor. The bits of a dtype that NumPy lacks pass as integers."""
    if getattr(x, "requires_grad", False) and sys.modules["torch"].is_grad_enabled():
        warn(
            "a tensor requires a gradient, and floatsim's result is not connected to its graph: the gradient is lost. "
            "Pass x.detach(), or call inside torch.no_grad(), if none is needed. floatsim.torch has functions with "
            "gradients"
        )
    host, name = x.detach().cpu().contiguous(), str(x.dtype).removeprefix("torch.")
    if name in ("float16", "float32", "float64") or not name.startswith(("float", "bfloat")):
        array: NDArray[Any] = host.numpy()
        return array
    fmt = as_format(x.dtype)  # NumPy has no such dtype: the bits pass as integers
    integers = {8: "uint8", 16: "int16"}[fmt.bits]
    bits: NDArray[Any] = host.view(getattr(sys.modules["torch"], integers)).numpy()
    assert fmt.dtype is not None
    return bits.view(fmt.dtype)


def torch_tensor(x: NDArray[Any] | np.generic) -> Any:
    """Return an array as a torch tensor, of the same memory if possible, or None if torch lacks the dtype."""
    torch, array = sys.modules["torch"], np.asarray(x)
    dtype = getattr(torch, "bool" if array.dtype == np.bool_ else array.dtype.name, None)
    if dtype is None:
        return None
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.copy()
    if array.dtype.isbuiltin == 1:
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(f"int{array.dtype.itemsize * 8}")).view(dtype)


def _tuple_like(x: tuple[Any, ...], parts: Iterable[Any]) -> tuple[Any, ...]:
    """Return the parts as a tuple, or as the named tuple that x is."""
    return type(x)(*parts) if hasattr(x, "_fields") else tuple(parts)


def _to_torch(x: Any, device: Any) -> Any:
    """Return arrays as tensors on a device if torch has their dtype. Other results stay as they are."""
    if isinstance(x, tuple):
        return _tuple_like(x, (_to_torch(part, device) for part in x))
    tensor = torch_tensor(x) if isinstance(x, np.ndarray | np.generic) else None
    return x if tensor is None else tensor.to(device)


# -- results on the device of the arguments ----------------------------------------------------------------------------


def _to_cupy(x: Any) -> Any:
    """Move arrays to the GPU if CuPy has their dtype. FloatArrays and dtypes that CuPy lacks stay on the host."""
    if isinstance(x, tuple):
        return _tuple_like(x, map(_to_cupy, x))
    if not isinstance(x, np.ndarray | np.generic):
        return x
    if x.dtype.kind in "fiub" or x.dtype.name == "bfloat16":
        return sys.modules["cupy"].asarray(x)
    return x


_MOVED = (np.ndarray, np.generic, tuple)
"""The kinds of results that are moved, and that may contain such."""


def stays_on_device(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function to return torch tensors or CuPy arrays if an argument is one, whichever backend computes."""

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            result = function(*args, **kwargs)
        except TypeError:
            refuse_unknown_keyword(function, kwargs)
            raise
        if not isinstance(result, _MOVED):  # such as a FloatArray, which stays on the host
            return result
        moved: R
        if "torch" in sys.modules:
            tensors: list[Any] = [x for x in (*args, *kwargs.values()) if is_tensor(x)]
            if tensors:
                moved = _to_torch(result, tensors[0].device)
                return moved
        if "cupy" in sys.modules and any(map(is_cupy, (*args, *kwargs.values()))):
            moved = _to_cupy(result)
            return moved
        return result

    vars(called)[HINTS] = True
    return called


_NARROW_INTEGERS = re.compile(r"(u?)int[124]")


def is_narrow_integer(dtype: np.dtype[Any]) -> bool:
    """Return whether a dtype is an integer dtype of ml_dtypes, of 1, 2 or 4 bits.

    >>> import ml_dtypes
    >>> is_narrow_integer(np.dtype(ml_dtypes.int4)), is_narrow_integer(np.dtype(np.int8))
    (True, False)
    """
    return dtype.kind == "V" and dtype.names is None and _NARROW_INTEGERS.fullmatch(dtype.name) is not None


def widened(array: NDArray[Any]) -> NDArray[Any]:
    """Return integers of ml_dtypes, of 1, 2 or 4 bits, as int8 or uint8, and every other array as it is."""
    if not is_narrow_integer(array.dtype):
        return array
    return array.astype(np.uint8 if array.dtype.name.startswith("u") else np.int8)
