"""Arrays of other libraries: they are read as NumPy arrays, and results for CuPy arrays return to the GPU.

This module imports no such library, because the caller's library is already loaded. The exception is CuPy, which copies
arrays from a GPU if they have only a DLPack interface.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from floatsim.formats import as_format

__all__ = ["as_numpy", "is_cupy", "stays_on_device"]

P = ParamSpec("P")
R = TypeVar("R")


def _library(x: Any) -> str:
    return type(x).__module__.partition(".")[0]


def is_cupy(x: Any) -> bool:
    """Return whether x is a cupy.ndarray."""
    return _library(x) == "cupy" and hasattr(x, "__cuda_array_interface__")


def as_numpy(x: Any) -> NDArray[Any] | None:
    """Return an array of another library as a NumPy array on the host, or None if x is no such array.

    CuPy arrays, torch tensors (BF16 and FP8 included) and all arrays with a DLPack interface are read.
    """
    if is_cupy(x):
        array: NDArray[Any] = x.get()
        return array
    if _library(x) == "torch":
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
                "pip install '.[cuda13x]' in a checkout of floatsim, or copy the array to the host"
            ) from None
        array: NDArray[Any] = cupy.from_dlpack(x).get()
        return array
    try:
        return np.from_dlpack(x)
    except (BufferError, RuntimeError) as error:
        if hasattr(x, "__array__"):
            return None
        raise TypeError(f"an array of {_library(x)} cannot be read through DLPack: {error}") from None


def _from_torch(x: Any) -> NDArray[Any] | None:
    """Read a torch tensor. The bits of a dtype that NumPy lacks pass as integers."""
    if not hasattr(x, "detach"):
        return None
    host, name = x.detach().cpu().contiguous(), str(x.dtype).removeprefix("torch.")
    if name in ("float16", "float32", "float64") or not name.startswith(("float", "bfloat")):
        array: NDArray[Any] = host.numpy()
        return array
    fmt = as_format(name)  # NumPy has no such dtype: the bits pass as integers
    integers = {8: "uint8", 16: "int16"}[fmt.bits]
    bits: NDArray[Any] = host.view(getattr(sys.modules["torch"], integers)).numpy()
    assert fmt.dtype is not None
    return bits.view(fmt.dtype)


def _to_cupy(x: Any) -> Any:
    """Move arrays to the GPU if CuPy has their dtype. FloatArrays and dtypes that CuPy lacks stay on the host."""
    if isinstance(x, tuple):
        return tuple(map(_to_cupy, x))
    if not isinstance(x, np.ndarray | np.generic):
        return x
    if x.dtype.kind in "fiub" or x.dtype.name == "bfloat16":
        return sys.modules["cupy"].asarray(x)
    return x


def stays_on_device(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function to return CuPy arrays if an argument is one, whichever backend computes."""

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        result = function(*args, **kwargs)
        if "cupy" in sys.modules and any(map(is_cupy, (*args, *kwargs.values()))):
            moved: R = _to_cupy(result)
            return moved
        return result

    return called
