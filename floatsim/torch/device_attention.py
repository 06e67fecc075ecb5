"""Attention as on a GPU: the kernel that PyTorch chooses there, its order of sums, and what was compared.

A CPU has two implementations of `scaled_dot_product_attention`, a GPU four. The emulation sends all calls to one
operation of ATen, whose handlers compute as the chosen kernel of the GPU does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from floatsim.arrays.array.float_array import FloatArray
from floatsim.formats import BF16, FP16, FP32
from floatsim.operators.attention import attention
from floatsim.operators.attention_backward import attention_backward
from floatsim.operators.attention_kernels import KERNELS
from floatsim.torch.call import Call, Handler
from floatsim.torch.products import placed_mask, repeated, sum_of_groups
from floatsim.torch.tensors import read

__all__ = ["ATTENTION", "BACKENDS", "attention_of", "chosen_backend"]


@dataclass(frozen=True)
class Backend:
    """One implementation of attention on a GPU.

    Attributes
    ----------
    recipe : str
        The recipe of `fs.operators.attention`.
    gradients : str
        The recipe of `fs.operators.attention_backward`, whose bits were compared if `gradient_keys` or
        `gradient_shapes` has the shape.
    keys, gradient_keys : dict
        The most keys that were compared, by the head size.
    shapes, gradient_shapes : tuple
        For kernels that depend on the whole shape: those of queries that were compared.
    block : int, optional
        The keys of a block for other head sizes than those whose blocks are known.
    """

    recipe: str
    gradients: str
    keys: dict[int, int] = field(default_factory=dict)
    gradient_keys: dict[int, int] = field(default_factory=dict)
    shapes: tuple[tuple[int, ...], ...] = ()
    gradient_shapes: tuple[tuple[int, ...], ...] = ()
    block: int | None = None


_HEADS = (1, 2)
"""Batch and heads of most recordings."""
_MATH_GRADIENTS = (*((*_HEADS, length, 64) for length in (64, 128, 200)), (2, 4, 32, 16))

BACKENDS: dict[str, Backend] = {
    "cudnn": Backend("cudnn-attention", "cudnn-attention", {16: 32, 64: 512, 128: 200}, {64: 64}, block=128),
    "flash": Backend("flash-attention-2", "flash-attention-2", {64: 512, 128: 200}, {64: 200}),
    "efficient": Backend("efficient-attention", "math", {64: 512, 128: 200}, block=64),
    "math": Backend(
        "math", "math", gradient_shapes=_MATH_GRADIENTS,
        shapes=(*_MATH_GRADIENTS, (*_HEADS, 512, 64), *((*_HEADS, length, 128) for length in (64, 128, 200))),
    ),
}  # fmt: skip
"""The implementations by name, in the order in which an H200 prefers them."""

_NAMES = tuple(BACKENDS)
_FORMATS = (FP32, FP16, BF16)
_PRIORITIES = {
    torch.nn.attention.SDPBackend.CUDNN_ATTENTION: "cudnn",
    torch.nn.attention.SDPBackend.FLASH_ATTENTION: "flash",
    torch.nn.attention.SDPBackend.EFFICIENT_ATTENTION: "efficient",
    torch.nn.attention.SDPBackend.MATH: "math",
}
_MOST_FLASH, _MOST_CUDNN = 256, 128
"""The largest head sizes of the kernels."""


def _enabled() -> dict[str, bool]:
    """Return which implementations `torch.nn.attention.sdpa_kernel` and the flags of PyTorch allow."""
    flags = torch.backends.cuda
    return {
        "cudnn": flags.cudnn_sdp_enabled(), "flash": flags.flash_sdp_enabled(),
        "efficient": flags.mem_efficient_sdp_enabled(), "math": flags.math_sdp_enabled(),
    }  # fmt: skip


def _order() -> tuple[str, ...]:
    """Return the names in the order of preference: that of the GPU, or of `sdpa_kernel(..., set_priority=True)`."""
    found = torch._C._get_sdp_priority_order()
    given = [_PRIORITIES.get(torch.nn.attention.SDPBackend(each)) for each in found]
    if [each for each in given if each in BACKENDS] == _DEFAULT_ORDER:
        return _NAMES
    return tuple(each for each in given if each is not None)


_DEFAULT_ORDER = [
    name for each in torch._C._get_sdp_priority_order()
    if (name := _PRIORITIES.get(torch.nn.attention.SDPBackend(each))) is not None
]  # fmt: skip


def chosen_backend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, causal: bool, half: bool
) -> str:
    """Return the name of the implementation that PyTorch chooses on an H200.

    Parameters
    ----------
    query, key, value : torch.Tensor, (..., length, d)
    mask : torch.Tensor, optional
    causal : bool
    half : bool
        Whether the operands have 16 bits, such as under autocast.

    Returns
    -------
    str
        A name of `BACKENDS`: the first one in the order of preference that is enabled and takes the operands.

    Raises
    ------
    RuntimeError
        If none is.

    Examples
    --------
    >>> import torch
    >>> x = torch.ones(1, 2, 64, 64)
    >>> chosen_backend(x, x, x, None, False, True), chosen_backend(x, x, x, None, False, False)
    ('cudnn', 'efficient')
    """
    size, square = query.shape[-1], query.shape[-2] == key.shape[-2]
    fused = query.ndim == key.ndim == value.ndim == 4 and size == value.shape[-1]
    grouped = fused and query.shape[-3] != key.shape[-3]
    learned = mask is not None and mask.requires_grad
    takes = {
        "cudnn": fused and half and not learned and size % 8 == 0 and size <= _MOST_CUDNN,
        "flash": fused and half and mask is None and size <= _MOST_FLASH and (square or not causal),
        "efficient": fused and not grouped,
        "math": True,
    }
    enabled = _enabled()
    for name in _order():
        if enabled[name] and takes[name]:
            return name
    allowed = ", ".join(name for name in _NAMES if enabled[name]) or "none"
    raise RuntimeError(
        f"scaled_dot_product_attention: no enabled implementation of the GPU takes queries {tuple(query.shape)} in "
        f"{'16 bits' if half else 'FP32'}{'' if mask is None else ' with a mask'} (enabled: {allowed}); enable others "
        "by torch.nn.attention.sdpa_kernel"
    )


# -- handlers ----------------------------------------------------------------------------------------------------------


def _doubt(
    name: str, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any, scale: float | None,
    backward: bool,
) -> str:  # fmt: skip
    """Return why attention, or its gradient, is not known to have the bits of the GPU, "" if it is."""
    backend, shape = BACKENDS[name], tuple(query.shape)
    if mask is not None:
        return f"{name}: a mask"
    if key.shape != query.shape or value.shape != query.shape:
        return f"{name}: keys or values of another shape than the queries"
    if scale not in (None, 1 / math.sqrt(shape[-1])):
        return f"{name}: scale={scale!r}"
    shapes, keys = (
        (backend.gradient_shapes, backend.gradient_keys) if backward else (backend.shapes, backend.keys)
    )  # fmt: skip
    if shapes:
        return "" if shape in shapes else f"{name}: cuBLAS's kernels for this shape were not recorded"
    if not keys:
        return f"{name}: the order of its {'gradients' if backward else 'sums'} is not known"
    most = keys.get(shape[-1], 0)
    if shape[-2] <= most:
        return ""
    return f"{name}: recorded with a head size of {', '.join(f'{d} (to {n} keys)' for d, n in keys.items())}"


def _attention(
    c: Call, query: Any, key: Any, value: Any, dropout_p: float = 0.0, is_causal: bool = False, *,
    attn_mask: Any = None, scale: float | None = None,
) -> tuple[FloatArray, Any]:  # fmt: skip
    """Return attention, and instead of the logarithms of the sums what the backward pass needs to know."""
    half = c.formats.operands != FP32
    name = chosen_backend(query, key, value, attn_mask, is_causal, half)
    why = _doubt(name, query, key, value, attn_mask, scale, False) if half else f"{name}: operands in FP32"
    if why:
        c.unverified(why)
    mask = placed_mask(attn_mask, is_causal, query, key)
    arrays = [c.rounded(read(x), c.formats.operands) for x in (query, repeated(key, query), repeated(value, query))]
    found = _computed(name, half, attention, arrays, mask, scale, bool(why))
    return c.result(found), torch.tensor([_NAMES.index(name), _FORMATS.index(c.formats.operands)]).float()


def _computed(
    name: str, half: bool, function: Callable[..., Any], arrays: list[FloatArray], mask: Any,
    scale: float | None, noted: bool,
) -> Any:  # fmt: skip
    """Return attention by the recipe of an implementation.

    What is `noted`, and does not fit into the recipe, is computed by that of "math".
    """
    backend = BACKENDS[name]
    recipe = backend.recipe if function is attention else backend.gradients
    if half and not isinstance(mask, FloatArray) and recipe != "math":
        kernel, size = KERNELS[f"{name}-kernel"], arrays[-2].shape[-1]
        if function is attention:
            block = backend.block if kernel.block(size) is None else None
        else:
            block = backend.block if noted else None
        try:
            return function(*arrays, mask=mask, scale=scale, recipe=recipe, block=block)
        except ValueError:  # more blocks, or another head size, than its order is known for
            if not noted:
                raise
    return function(*arrays, mask=mask, scale=scale, recipe="math")


def _attention_backward(
    c: Call, gradient: Any, query: Any, key: Any, value: Any, output: Any, kept: Any, dropout_p: float,
    is_causal: bool, *, attn_mask: Any = None, scale: float | None = None,
) -> tuple[FloatArray, ...]:  # fmt: skip
    heads, (place, width) = key.shape[-3], map(int, kept)
    name, own = _NAMES[place], _FORMATS[width]
    half = own != FP32
    why = _doubt(name, query, key, value, attn_mask, scale, True) if half else f"{name}: operands in FP32"
    if why:
        c.unverified(why)
    mask = placed_mask(attn_mask, is_causal, query, key)
    arrays = [c.rounded(read(x), own) for x in (gradient, query, repeated(key, query), repeated(value, query))]
    found = _computed(name, half, attention_backward, arrays, mask, scale, bool(why))
    by_query, *others = found
    return (c.result(by_query), *(c.result(sum_of_groups(c, each, heads)) for each in others))


ATTENTION: dict[str, Handler] = {
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
}
"""The handlers of the operations of ATen to which `attention_of` sends all calls."""


# -- the function of PyTorch -------------------------------------------------------------------------------------------


def attention_of(own: Callable[..., Any], unverified: Callable[..., None]) -> Callable[..., Any]:
    """Return `torch.nn.functional.scaled_dot_product_attention` for an emulation with a device.

    Parameters
    ----------
    own : callable
        PyTorch's own function, for tensors without numbers of 16 or 32 bits.
    unverified : callable
        Notes an operation, the shapes of its operands, and why it is not known to have the bits of the GPU.

    Returns
    -------
    callable
        Dropout, and a mask that learns, are computed step by step, and noted.
    """

    def scaled_dot_product_attention(
        query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
    ) -> torch.Tensor:  # fmt: skip
        words = {"attn_mask": attn_mask, "dropout_p": dropout_p, "is_causal": is_causal, "scale": scale}
        plain = all(type(x) in (torch.Tensor, torch.nn.Parameter) and x.is_cpu for x in (query, key, value))
        if not plain or query.dtype not in (torch.float32, torch.float16, torch.bfloat16):
            return own(query, key, value, enable_gqa=enable_gqa, **words)
        if attn_mask is not None and is_causal:
            raise RuntimeError(
                "scaled_dot_product_attention: give attn_mask or is_causal=True, not both; attn_mask.tril() is both"
            )
        if not enable_gqa and query.ndim > 3 and query.shape[-3] != key.shape[-3] and key.shape[-3] != 1:
            raise RuntimeError(
                f"scaled_dot_product_attention: {query.shape[-3]} heads of queries and {key.shape[-3]} of keys need "
                "enable_gqa=True"
            )
        learned = attn_mask is not None and attn_mask.requires_grad
        if dropout_p > 0 or learned:
            shapes = tuple(tuple(x.shape) for x in (query, key, value))
            what = f"dropout_p={dropout_p}" if dropout_p > 0 else "a mask that requires a gradient"
            unverified("scaled_dot_product_attention", shapes, f"{what}: computed step by step, as by math")
            found = torch.ops.aten._scaled_dot_product_attention_math(query, key, value, enable_gqa=enable_gqa, **words)
            return found[0]
        operation = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        return operation(query, key, value, 0.0, is_causal, attn_mask=attn_mask, scale=scale)[0]

    return scaled_dot_product_attention
