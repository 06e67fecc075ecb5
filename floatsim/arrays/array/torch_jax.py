"""Arrays as tensors of torch and arrays of JAX."""

from __future__ import annotations

from typing import Any

import numpy as np

from floatsim.arrays.array.conversion import convert, read_floats
from floatsim.arrays.array.interop import imported, torch_tensor
from floatsim.formats import FP32, TF32

__all__ = ["to_jax", "to_torch"]


_CARRIERS = {TF32: FP32}
"""Formats whose numbers are stored in another format: TF32 is what matrix units read of an FP32 number."""


def _array(x: Any, library: str) -> np.ndarray[Any, Any]:
    """Return a FloatArray or an array as a NumPy array of the format's dtype, or of that of its carrier."""
    codes, fmt, _ = read_floats(x, "x")
    if fmt in _CARRIERS:
        codes, fmt, _ = read_floats(convert(x, _CARRIERS[fmt]), "x")
    if fmt.dtype is None:
        raise TypeError(f"{fmt.name} has no dtype in {library}; {_ADVICE}")
    return codes.view(fmt.dtype)


_ADVICE = "convert x with fs.convert to a format that has one, or pass x.values (float64, exact)"


def to_torch(x: Any, device: Any = None) -> Any:
    """Return an array as a torch tensor of the format's dtype, BF16 and FP8 included. No value changes.

    Parameters
    ----------
    x : array_like of floats
        A FloatArray or an array whose dtype is a format.
    device : torch.device or str, optional
        The device of the tensor. Default: host memory.

    Returns
    -------
    torch.Tensor
        In host memory it shares the memory of x, unless x is read-only or has negative strides, or TF32: these numbers
        become a new tensor of float32, which has all of them.

    Raises
    ------
    TypeError
        If torch has no dtype for the format. torch has FP64, FP32, FP16, BF16, E4M3, E5M2, E4M3FNUZ, E5M2FNUZ, E8M0.
    ImportError
        If torch is not installed.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.to_torch(fs.array([1.0, 0.3], "e4m3")).to("cpu").float()  # doctest: +SKIP
    tensor([1.0000, 0.3125])
    """
    imported("torch")
    tensor = torch_tensor(_array(x, "torch"))
    if tensor is None:
        raise TypeError(f"{read_floats(x, 'x')[1].name} has no dtype in torch; {_ADVICE}")
    return tensor if device is None else tensor.to(device)


def to_jax(x: Any, device: Any = None) -> Any:
    """Return an array as an array of JAX of the format's dtype, BF16 and FP8 included. No value changes.

    Parameters
    ----------
    x : array_like of floats
        A FloatArray or an array whose dtype is a format.
    device : jax.Device, optional
        The device of the array. Default: JAX's default device.

    Returns
    -------
    jax.Array
        A copy; of TF32 numbers in float32, which has all of them.

    Raises
    ------
    TypeError
        If JAX has no dtype for the format, which for FP64 depends on `jax_enable_x64`.
    ImportError
        If JAX is not installed.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.to_jax(fs.array([1.0, 0.3], "e4m3")).astype("float32")  # doctest: +SKIP
    Array([1.    , 0.3125], dtype=float32)
    """
    jax = imported("jax")
    array = _array(x, "JAX")
    if array.dtype == np.float64 and not jax.config.jax_enable_x64:
        raise TypeError("JAX has float64 after jax.config.update('jax_enable_x64', True); or convert x with fs.convert")
    try:
        result = imported("jax.numpy").array(array)
    except (TypeError, ValueError, RuntimeError) as error:
        fmt = read_floats(x, "x")[1]
        raise TypeError(f"JAX has no arrays of {fmt.name}: {error}; {_ADVICE}") from None
    return result if device is None else jax.device_put(result, device)
