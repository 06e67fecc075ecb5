"""Arrays of other libraries: read as NumPy's, and CuPy's come back as CuPy's.

Nothing is imported for it, as whoever passes a tensor has loaded its library; but CuPy, to fetch from a GPU what only
DLPack describes.
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
    """Whether it is a cupy.ndarray."""
    return _library(x) == "cupy" and hasattr(x, "__cuda_array_interface__")


def as_numpy(x: Any) -> NDArray[Any] | None:
    """The array on the host, its dtype NumPy's or ml_dtypes'; None for what is no array of another library.

    CuPy's arrays and torch's tensors, BF16 and FP8 too, and whatever speaks DLPack.
    """
    if is_cupy(x):
        array: NDArray[Any] = x.get()
        return array
    if _library(x) == "torch":
        return _from_torch(x)
    return _from_dlpack(x) if hasattr(x, "__dlpack__") and not isinstance(x, np.ndarray) else None


_CUDA = (2, 13)  # of DLPack's kinds of devices: a GPU's memory, and memory that it shares with the host


def _from_dlpack(x: Any) -> NDArray[Any] | None:
    """Through CuPy from a GPU; None where NumPy lacks the dtype, but the array itself knows how to become NumPy's."""
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
    if not hasattr(x, "detach"):
        return None
    host, name = x.detach().cpu().contiguous(), str(x.dtype).removeprefix("torch.")
    if name in ("float16", "float32", "float64") or not name.startswith(("float", "bfloat")):
        array: NDArray[Any] = host.numpy()
        return array
    fmt = as_format(name)  # NumPy has no such dtype: the bits travel as integers
    integers = {8: "uint8", 16: "int16"}[fmt.bits]
    bits: NDArray[Any] = host.view(getattr(sys.modules["torch"], integers)).numpy()
    assert fmt.dtype is not None
    return bits.view(fmt.dtype)


def _to_cupy(x: Any) -> Any:
    """Where CuPy has the dtype; FloatArrays, and dtypes that CuPy lacks, stay on the host."""
    if isinstance(x, tuple):
        return tuple(map(_to_cupy, x))
    if not isinstance(x, np.ndarray | np.generic):
        return x
    if x.dtype.kind in "fiub" or x.dtype.name == "bfloat16":
        return sys.modules["cupy"].asarray(x)
    return x


def stays_on_device(function: Callable[P, R]) -> Callable[P, R]:
    """A function whose result is CuPy's where one of its operands is, whoever computes."""

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        result = function(*args, **kwargs)
        if "cupy" in sys.modules and any(map(is_cupy, (*args, *kwargs.values()))):
            moved: R = _to_cupy(result)
            return moved
        return result

    return called
