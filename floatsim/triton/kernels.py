"""Kernels as functions of two matrices: for `fs.identify`, the assertions of `fs.testing` and `floatsim check`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from triton.runtime.jit import KernelInterface

from floatsim.accumulation import AccumulationLike
from floatsim.arrays.array.conversion import array
from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.array.torch_jax import to_torch
from floatsim.formats import FormatLike, as_format
from floatsim.triton.interpreter import interpret

__all__ = ["as_matmul"]

_POINTERS = {name: x for x, names in (
    ("a", "a a_ptr A"), ("b", "b b_ptr B"), ("c", "c c_ptr C out out_ptr")
) for name in names.split()}  # fmt: skip
_SIZES = {"M": ("a", -2), "N": ("b", -1), "K": ("a", -1)}
_STRIDES = {f"stride_{x}{axis}": (x, place) for x, axes in (("a", "mk"), ("b", "kn"), ("c", "mn"))
            for axis, place in zip(axes, (-2, -1), strict=True)}  # fmt: skip
"""The parameters of a kernel that `as_matmul` fills by their names: those of Triton's tutorial on matrix products."""


def _tensor(x: Any) -> torch.Tensor:
    if isinstance(x, torch.Tensor):
        return x.contiguous()
    return to_torch(x if isinstance(x, FloatArray) else np.ascontiguousarray(x)).contiguous()


def _filled(kernel: Any, tensors: Mapping[str, torch.Tensor], meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a kernel by the names of its parameters."""
    found: dict[str, Any] = {}
    fn = kernel
    while isinstance(fn, KernelInterface):
        fn = fn.fn
    for name, parameter in inspect.signature(fn).parameters.items():
        if name in meta:
            continue
        if name in _POINTERS:
            found[name] = tensors[_POINTERS[name]]
        elif name in _SIZES:
            x, axis = _SIZES[name]
            found[name] = tensors[x].shape[axis]
        elif name in _STRIDES:
            x, axis = _STRIDES[name]
            found[name] = tensors[x].stride(axis)
        elif parameter.default is inspect.Parameter.empty:
            known = ", ".join((*_POINTERS, *_SIZES, *_STRIDES))
            raise TypeError(
                f"the kernel's parameter {name!r} has no value: pass {name}=, or wrap the launch in a function of a "
                f"and b; filled by name: {known}"
            )
    return found


def as_matmul(
    kernel: Any, grid: Any = None, *, format: FormatLike = "fp32", dot: AccumulationLike = "hopper",
    casts: str = "ieee", sums: AccumulationLike = "halving", num_warps: int = 4, **meta: Any,
) -> Callable[..., Any]:  # fmt: skip
    """Return a Triton kernel as a function of two matrices: for `fs.identify` and assertions. It runs in `interpret`.

    Parameters
    ----------
    kernel : triton.jit function, or callable
        A kernel whose parameters have the names of Triton's tutorial: a_ptr, b_ptr, c_ptr (or a, b, c), M, N, K,
        stride_am, stride_ak and so on. Or a function that takes torch tensors a and b (and c, if it is called with it),
        launches the kernel, and returns the result.
    grid : tuple or callable, optional
        The grid of a kernel. Needed for one; a function has its own.
    format : format
        The format of the kernel's result, which is allocated. A function allocates its own.
    dot, casts, sums, num_warps
        As in `interpret`.
    **meta
        The other parameters of the kernel, such as BLOCK_K=64.

    Returns
    -------
    callable
        f(a, b), or f(a, b, c) for a function. Torch tensors return as torch tensors, other arrays as FloatArray.

    Raises
    ------
    TypeError
        For a kernel without `grid`, and for a parameter without a value.

    Examples
    --------
    >>> import triton, triton.language as tl
    >>> import floatsim as fs, floatsim.triton as ftl
    >>> @triton.jit
    ... def product(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    ...     m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    ...     x, y = tl.load(a + m[:, None] * K + k[None, :]), tl.load(b + k[:, None] * N + n[None, :])
    ...     tl.store(c + m[:, None] * N + n[None, :], tl.dot(x, y))
    >>> x = fs.array([[1.5] * 16] * 16, "fp16")
    >>> float(ftl.as_matmul(product, grid=(1,))(x, x)[0, 0])
    36.0
    """
    is_kernel = isinstance(kernel, KernelInterface)
    if is_kernel and grid is None:
        raise TypeError("as_matmul of a kernel needs grid=, such as grid=(1,) or a function of its parameters")
    if not is_kernel and (grid is not None or meta):
        raise TypeError(
            f"as_matmul of a function takes no grid and no {', '.join(meta) or 'parameters'}: it launches itself"
        )
    fmt = as_format(format)

    def product(a: Any, b: Any, c: Any = None) -> Any:
        x, y = _tensor(a), _tensor(b)
        with interpret(dot, casts, sums=sums, num_warps=num_warps):
            if is_kernel:
                if c is not None:
                    raise TypeError("a kernel takes no addend here; wrap its launch in a function of a, b and c")
                shape = (*x.shape[:-1], y.shape[-1])
                out = to_torch(FloatArray(np.zeros(shape, fmt.code_dtype), fmt))
                arguments = _filled(kernel, {"a": x, "b": y, "c": out}, meta)
                kernel[grid](**arguments, **meta, num_warps=num_warps)
            else:
                out = kernel(x, y) if c is None else kernel(x, y, _tensor(c))
        return out if isinstance(a, torch.Tensor) else array(out)

    return product
