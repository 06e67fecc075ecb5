"""Tensors of PyTorch as FloatArrays and back, and the number format of the values in a tensor's storage.

A tensor of a model in FP32 may hold BF16 values only. The *tag* of its storage says so. All views share the storage of
a tensor, so they share its tag. Tags belong to one emulation: those of an earlier one are ignored.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from floatsim.arrays.array.conversion import convert, widened_exactly
from floatsim.arrays.array.float_array import FloatArray
from floatsim.formats import BF16, FP16, FP32, FP64, FloatFormat, as_format
from floatsim.formats.value_sets import contains

__all__ = ["Tag", "check_dense", "format_of_dtype", "is_float", "read", "tag_of", "tensor_of", "write_tag"]

_FORMATS = {torch.float32: FP32, torch.bfloat16: BF16, torch.float16: FP16, torch.float64: FP64}
_IN_NUMPY = {torch.float32, torch.float64, torch.float16}
"""The dtypes that NumPy has as well. The other dtypes pass as integers."""
_INTEGERS = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}


_ORDINARY = (torch.Tensor, torch.nn.Parameter)


class Tag(NamedTuple):
    """What is known about the values in a storage.

    Attributes
    ----------
    owner : object
        The emulation that wrote the tag.
    format : FloatFormat
        A format that contains all values.
    role : str
        "weight", "gradient", "value" (a result of the forward pass), "scale" (a loss scale, which is never rounded) or
        "" (unknown).
    """

    owner: Any
    format: FloatFormat
    role: str


def format_of_dtype(dtype: torch.dtype) -> FloatFormat:
    """Return the format of a floating-point dtype.

    >>> import torch
    >>> format_of_dtype(torch.bfloat16).name
    'BF16'
    """
    found = _FORMATS.get(dtype)
    return as_format(dtype) if found is None else found


def is_float(x: Any) -> bool:
    """Return whether x is a tensor of floating-point numbers.

    >>> import torch
    >>> is_float(torch.ones(2)), is_float(torch.ones(2, dtype=torch.int64)), is_float(1.0)
    (True, False, False)
    """
    return isinstance(x, torch.Tensor) and x.dtype.is_floating_point


def check_dense(x: torch.Tensor, name: str) -> None:
    """Raise a ValueError unless a tensor is dense, in host memory, and of no class but those of PyTorch's core.

    It is no TypeError: Python would try the reflected operator, and lose the message.

    >>> check_dense(torch.ones(2, device="meta"), "add")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: add: an emulated tensor must be a dense tensor in host memory, not Tensor with ...
    """
    if type(x) in _ORDINARY and x.is_cpu and x.layout is torch.strided and not x.is_nested:
        return
    if type(x).__name__ == "DTensor":
        raise ValueError(
            f"{name}: ft.emulate does not take DTensor, the sharded tensor of FSDP2 and of tensor parallelism; emulate "
            "the model before it is sharded, or gather the tensor by x.full_tensor()"
        )
    kind = f"a nested {type(x).__name__}" if x.is_nested else type(x).__name__
    raise ValueError(
        f"{name}: an emulated tensor must be a dense tensor in host memory, not {kind} with {x.layout} on "
        f"{x.device}; move the model to the CPU, and pad nested tensors"
    )


def tag_of(x: torch.Tensor, owner: Any) -> Tag | None:
    """Return the tag of a tensor's storage, or None if it has none of this emulation.

    >>> import torch
    >>> tag_of(torch.ones(2), None) is None
    True
    """
    tag: Tag | None = getattr(x.untyped_storage(), "_floatsim_tag", None)
    return tag if tag is not None and tag.owner is owner else None


def write_tag(x: torch.Tensor, tag: Tag) -> None:
    """Write the tag of a tensor's storage.

    >>> import torch
    >>> x = torch.ones(2, 2)
    >>> write_tag(x, Tag("run", FP32, "weight"))
    >>> tag_of(x.T, "run").role
    'weight'
    """
    x.untyped_storage()._floatsim_tag = tag


def read(x: torch.Tensor) -> FloatArray:
    """Return a tensor as a FloatArray of the format of its dtype, of the same memory. Integers become FP64.

    >>> import torch
    >>> read(torch.tensor([1.0, 0.5], dtype=torch.bfloat16))
    FloatArray([1.0, 0.5], BF16)
    """
    dtype = x.dtype
    if not dtype.is_floating_point:
        return FloatArray(np.asarray(x.numpy().astype(np.float64)).view(np.uint64), FP64)
    fmt = format_of_dtype(dtype)
    if x.is_neg():
        x = x.resolve_neg()
    if x.requires_grad:
        x = x.detach()
    numbers: Any = (x if dtype in _IN_NUMPY else x.view(_INTEGERS[x.element_size()])).numpy()
    return FloatArray(numbers.view(fmt.code_dtype), fmt)


def tensor_of(x: FloatArray, dtype: torch.dtype) -> torch.Tensor:
    """Return a FloatArray as a contiguous tensor of a dtype that contains its format.

    >>> import floatsim as fs, torch
    >>> tensor_of(fs.array([1.5], "e4m3"), torch.float32)
    tensor([1.5000])
    """
    fmt = format_of_dtype(dtype)
    if x.format == fmt:
        codes = x.codes
    elif contains(fmt, x.format):
        codes = widened_exactly(x, fmt).codes
    else:
        codes = convert(x, fmt, rounding="ties_to_even").codes
    array: Any = codes
    if not (array.flags.c_contiguous and array.flags.writeable):
        array = np.array(codes, order="C")
    if dtype in _IN_NUMPY:
        return torch.from_numpy(array.view(fmt.dtype))
    integers = array.view(f"int{array.dtype.itemsize * 8}" if array.dtype.itemsize > 1 else "uint8")
    return torch.from_numpy(integers).view(dtype)
