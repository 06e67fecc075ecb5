"""The likeliest cause of the first difference: each operation is computed in other ways, and compared."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils._pytree import tree_map_only

from floatsim.accumulation import Epilogue, parse
from floatsim.arrays.array.conversion import convert
from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.elementwise.arithmetic import add
from floatsim.arrays.elementwise.library_functions import library_function
from floatsim.arrays.sums.products import matmul
from floatsim.arrays.sums.reductions import sum as sum_of
from floatsim.formats import BF16, FP16, FP32, FP64, FloatFormat, as_format
from floatsim.formats.rounding import RoundingName
from floatsim.torch.call import floats_of
from floatsim.torch.emulation import emulate
from floatsim.torch.tensors import format_of_dtype, read
from floatsim.torch.twin.operations import Operation
from floatsim.torch.twin.recording import codes_of
from floatsim.training.policies.named import PolicyLike

__all__ = ["KINDS", "Cause", "cause_in_operations", "cause_in_optimizer", "in_dtype", "kind_of"]

KINDS = {
    "recording": "the recording was changed after it was made",
    "weights": "the initial weights differ",
    "inputs": "the batch differs",
    "order": "another order of a sum",
    "function": "another function or formula",
    "cast": "another rounding or conversion",
    "optimizer": "another optimizer, or another constant of the optimizer",
    "unverified": "an operation that was not compared with the device",
    "version": "another version of PyTorch or CUDA than was compared",
}
"""The kinds of causes.

>>> KINDS["order"]
'another order of a sum'
"""

_PRODUCTS = {"mm", "addmm", "bmm", "baddbmm", "linear", "matmul", "convolution", "convolution_backward"}
_SUMS = {"sum", "mean", "embedding_dense_backward", "index_add", "scatter_add", "cumsum"}
_CASTS = {"_to_copy", "copy_", "copy"}

_ORDERS_16 = (
    "sequential(fp32, fused)", "sequential(fp32)", "permuted(reversed, hopper)", "splitk(2, hopper, fp32)",
    "splitk(3, hopper, fp32)", "splitk(4, hopper, fp32)", "splitk(8, hopper, fp32)", "blocked(hopper, 32, fp32)",
    "blocked(hopper, 64, fp32)", "blocked(hopper, 128, fp32)", "ampere", "ada", "volta", "pairwise(fp32)",
    "permuted(reversed, sequential(fp32, fused))", "permuted(reversed, sequential(fp32))", "hopper",
)  # fmt: skip
_ORDERS_32 = (
    "sequential(fp32, fused)", "sequential(fp32)", "converted(tf32, hopper)", "pairwise(fp32)",
    "permuted(reversed, sequential(fp32, fused))", "permuted(reversed, sequential(fp32))",
    "splitk(2, sequential(fp32, fused), fp32)", "splitk(4, sequential(fp32, fused), fp32)",
    "splitk(8, sequential(fp32, fused), fp32)",
)  # fmt: skip
"""The sums that are tried in place of the device's: other units, split-K, blocks, and one term after the other."""

_ROUNDINGS: dict[RoundingName, str] = {
    "toward_zero": "rounded toward zero", "ties_to_away": "rounded with ties away from zero",
    "toward_positive": "rounded toward +infinity", "toward_negative": "rounded toward -infinity",
}  # fmt: skip

_ENOUGH, _FEWER = 0.999, 8
"""A candidate explains a difference if all codes are equal; or if at least this share is, and the others are at most an
eighth of those that differ. Candidates that are computed in FP64 differ from FP32 about once in 2^13 elements, where an
FP32 result lies next to a boundary of BF16."""


class Cause(NamedTuple):
    """The likeliest cause of a difference.

    Attributes
    ----------
    kind : str
        A name of `KINDS`.
    why : str
        What was found.
    module, operation : str
        The module and the ATen operation that made the tensor, or "".
    shown : bool
        Whether this cause gives the recorded codes. Otherwise it is a guess.
    """

    kind: str
    why: str
    module: str = ""
    operation: str = ""
    shown: bool = False


def kind_of(operation: str) -> str:
    """Return the kind of cause that is likeliest for an operation of which nothing more is known.

    >>> kind_of("addmm"), kind_of("gelu"), kind_of("_to_copy")
    ('order', 'function', 'cast')
    """
    name = operation.removesuffix("_") if operation not in _CASTS else operation
    return "order" if name in _PRODUCTS | _SUMS else "cast" if operation in _CASTS else "function"


def in_dtype(x: torch.Tensor, dtype: str) -> np.ndarray[Any, Any]:
    """Return the codes of a tensor in the dtype of a recording.

    Under the emulated autocast, tensors of FP32 hold the numbers that have 16 bits on a GPU.

    Raises
    ------
    ValueError
        If the tensor has another dtype that is not FP32.

    Examples
    --------
    >>> in_dtype(torch.tensor([1.0]), "bfloat16").tolist() == [0x3F80]
    True
    """
    own = str(x.dtype).removeprefix("torch.")
    if own == dtype:
        return codes_of(x)
    if own == "float32" and dtype in ("bfloat16", "float16"):
        codes: np.ndarray[Any, Any] = convert(read(x), as_format(dtype), nan="cuda").codes
        return codes
    raise ValueError(f"is {own} here, and {dtype} in the recording")


# -- operations --------------------------------------------------------------------------------------------------------


def cause_in_operations(
    operations: Sequence[Operation], since: int, found: torch.Tensor, recorded: np.ndarray[Any, Any] | None,
    dtype: str, autocast: str | None,
) -> Cause | None:  # fmt: skip
    """Return the likeliest cause of a difference between a tensor and its recording.

    Parameters
    ----------
    operations : sequence of Operation
        The operations of the step before the tensor was compared.
    since : int
        The number of those before the last tensor that was equal.
    found : torch.Tensor
        The tensor of this run.
    recorded : ndarray, optional
        The recorded codes.
    dtype : str
        The dtype of the recording.
    autocast : str, optional
        "bf16" or "fp16" under autocast.

    Returns
    -------
    Cause or None
        None if no operation was kept.
    """
    if not operations:
        return None
    codes = in_dtype(found, dtype)
    views = ((each, _view_of(each, codes, dtype)) for each in reversed(operations))
    maker, view = next(((each, view) for each, view in views if view is not None), (operations[-1], None))
    place = maker.module, maker.name
    if view is not None and recorded is not None:
        total, before = recorded.size, int((codes == recorded).sum())
        for kind, text, candidate in _candidates(maker, view, autocast):
            moved = view.of(candidate)
            equal = -1 if moved is None else int((moved == recorded).sum())
            if equal == total or ((total - equal) * _FEWER <= total - before and equal >= _ENOUGH * total):
                why = f"{maker.name}: {equal} of {total} codes are equal if it is, for example, {text}"
                return Cause(kind, why, *place, shown=True)
    notes = [*maker.unverified, *(note for each in operations[since:] for note in each.unverified)]
    if notes:
        return Cause("unverified", notes[0], *place)
    kind = kind_of(maker.name) if view is None else _kind(maker, view)
    why = f"{maker.name}: a guess by its kind; no other way that was tried has the recorded codes"
    return Cause(kind, why, *place)


class _View(NamedTuple):
    """How a compared tensor shows a result of an operation: its format, the number of the result, and its axes."""

    fmt: FloatFormat
    number: int
    transposed: bool
    shape: tuple[int, ...]

    def of(self, x: FloatArray) -> np.ndarray[Any, Any] | None:
        codes = x.codes.T if self.transposed else x.codes
        return np.ascontiguousarray(codes).reshape(self.shape) if codes.size == math.prod(self.shape) else None


def _view_of(operation: Operation, codes: np.ndarray[Any, Any], dtype: str) -> _View | None:
    """Return how codes show a result of an operation, or None if they do not."""
    for number, result in enumerate(operation.results):
        if result.numel() != codes.size or str(result.dtype).removeprefix("torch.") not in (dtype, "float32"):
            continue
        made = in_dtype(result, dtype)
        for transposed in (False, True):
            if np.array_equal((made.T if transposed else made).reshape(codes.shape), codes):
                return _View(as_format(dtype), number, transposed, codes.shape)
    return None


def _candidates(operation: Operation, view: _View, autocast: str | None) -> Iterator[tuple[str, str, FloatArray]]:
    """Yield a result of an operation computed in other ways: the kind of the change, its description, the result."""
    for make in (_products, _sums, _variants, _exact, _native):
        try:
            yield from make(operation, view, autocast)
        except (ValueError, TypeError, RuntimeError, NotImplementedError, IndexError):
            continue  # this way does not take the operands


def _kind(operation: Operation, view: _View) -> str:
    """Return the likeliest kind of a result. The second results of a norm's backward pass are sums over rows."""
    return "order" if view.number and "norm_backward" in operation.name else kind_of(operation.name)


def _operands(operation: Operation, autocast: str | None) -> tuple[FloatArray, FloatArray, FloatArray | None] | None:
    """Return a, b and the bias of a product of matrices."""
    given = [x for x in operation.args if isinstance(x, torch.Tensor)]
    if operation.name not in ("mm", "addmm", "bmm") or len(given) != 2 + (operation.name == "addmm"):
        return None
    arrays = [read(x) for x in given]
    if autocast is not None:
        arrays = [convert(x, autocast) for x in arrays]
    bias = arrays.pop(0) if operation.name == "addmm" else None
    return arrays[0], arrays[1], bias


def _products(operation: Operation, view: _View, autocast: str | None) -> Iterator[tuple[str, str, FloatArray]]:
    operands = _operands(operation, autocast)
    if operands is None:
        return
    a, b, bias = operands
    fmt = view.fmt
    narrow = a.format in (FP16, BF16)
    for text in _ORDERS_16 if narrow else _ORDERS_32:
        order = parse(text, FP32)
        if bias is None:
            yield "order", f"added by {text}", matmul(a, b, accumulate=order, format=fmt)
        else:
            last = Epilogue(order, FP32)
            yield "order", f"added by {text}", matmul(a, b, bias, accumulate=last, format=fmt)
    if not narrow:
        return
    wide = matmul(a, b, accumulate="hopper", format=FP32)
    if bias is not None:
        rounded = convert(wide, fmt)
        yield "cast", "rounded before the bias is added", add(rounded, convert(bias, fmt), format=fmt)
        wide = add(wide, convert(bias, FP32), format=FP32)
    yield from _rounded(wide, fmt)


def _rounded(wide: FloatArray, fmt: FloatFormat) -> Iterator[tuple[str, str, FloatArray]]:
    """Yield a wide result in other rounding modes."""
    for rounding, text in _ROUNDINGS.items():
        yield "cast", text, convert(wide, fmt, rounding=rounding)
    other = BF16 if fmt == FP16 else FP16
    if fmt in (FP16, BF16):
        yield "cast", f"rounded to {other.name} first", convert(convert(wide, other), fmt)


def _sums(operation: Operation, view: _View, autocast: str | None) -> Iterator[tuple[str, str, FloatArray]]:
    if operation.name not in ("sum", "mean"):
        return
    x = read(operation.args[0])
    dim = operation.args[1] if len(operation.args) > 1 else None
    axis = None if dim is None or dim == [] else tuple(dim)
    keep = bool(operation.args[2]) if len(operation.args) > 2 else False
    for text in ("sequential(fp32)", "pairwise(fp32)", "exact(fp32)", "permuted(reversed, sequential(fp32))"):
        found = sum_of(convert(x, FP32), axis, keepdims=keep, accumulate=text, format=FP32)
        if operation.name == "mean":
            found = found / (x.size // max(found.size, 1))
        yield "order", f"added by {text}", convert(found, view.fmt)


def _variants(operation: Operation, view: _View, autocast: str | None) -> Iterator[tuple[str, str, FloatArray]]:
    """Yield the other formula of GELU, as a GPU computes it, and in exact arithmetic."""
    if operation.name != "gelu":
        return
    given, other = operation.kwargs.get("approximate", "none"), {"none": "tanh", "tanh": "none"}
    x, chosen = operation.args[0], other[given]
    name = {"none": "gelu", "tanh": "gelu_tanh"}[chosen]
    yield "function", f"gelu(approximate={chosen!r})", convert(library_function(name, read(x)), view.fmt)
    exact = torch.nn.functional.gelu(x.double(), approximate=chosen)
    yield "function", f"the exact gelu(approximate={chosen!r})", convert(read(exact), view.fmt)


def _exact(operation: Operation, view: _View, autocast: str | None) -> Iterator[tuple[str, str, FloatArray]]:
    """Yield PyTorch's result in FP64, rounded in each mode."""

    def widened(x: torch.Tensor) -> torch.Tensor:
        return x.double() if x.is_floating_point() else x

    if operation.name in _CASTS:
        source = operation.args[0 if operation.name == "_to_copy" else 1]
        exact = source.double()
    else:
        args, words = tree_map_only(torch.Tensor, widened, (operation.args, operation.kwargs))
        args = tuple(torch.float64 if isinstance(each, torch.dtype) else each for each in args)
        exact = _result(operation.func(*args, **words), view)
    fmt, kind = view.fmt, _kind(operation, view)
    wide = FloatArray(exact.contiguous().numpy().view(np.uint64), FP64)
    what = "the exact sum, rounded once" if kind == "order" else "the exact value, rounded once"
    yield kind, what, convert(wide, fmt)
    yield "cast", "the exact value, rounded to FP32 first", convert(convert(wide, FP32), fmt)
    yield from (("cast", f"the exact value, {text}", found) for _, text, found in _rounded(wide, fmt))


def _native(operation: Operation, view: _View, autocast: str | None) -> Iterator[tuple[str, str, FloatArray]]:
    """Yield the result of PyTorch on this CPU, also from operands in FP32."""
    for wide, text in ((False, "PyTorch's on a CPU"), (True, "PyTorch's on a CPU in FP32, rounded once")):
        args, words = tree_map_only(
            torch.Tensor, lambda x: x.float() if wide and x.is_floating_point() else x.clone(),  # noqa: B023
            (operation.args, operation.kwargs),
        )  # fmt: skip
        found = _result(operation.func(*args, **words), view)
        yield _kind(operation, view), text, convert(read(found.contiguous()), view.fmt)


def _result(found: Any, view: _View) -> torch.Tensor:
    """Return the result of PyTorch's own operation that a view shows."""
    made = floats_of([found, *(found if isinstance(found, tuple) else ())])
    return made[view.number]


# -- optimizers --------------------------------------------------------------------------------------------------------


def cause_in_optimizer(
    make: Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer], group: Mapping[str, Any],
    state: Mapping[str, Any], before: torch.Tensor, gradient: torch.Tensor | None, found: torch.Tensor,
    recorded: np.ndarray[Any, Any] | None, policy: PolicyLike | None,
) -> Cause:  # fmt: skip
    """Return the likeliest cause of a difference in a weight after the optimizer: other constants, or another kernel.

    Parameters
    ----------
    make : callable
        Returns a new optimizer of parameters.
    group, state : mapping
        The options of the weight's group and its state before the step.
    before, gradient, found : torch.Tensor
        The weight before the step, its gradient, and the weight after it.
    recorded : ndarray, optional
        The recorded codes after the step.
    policy : Policy or str, optional
        The policy of the emulation. Default: PyTorch on this CPU.
    """
    name = ""
    if recorded is not None and gradient is not None:
        for changed in _options(group, before, found, recorded):
            optimizer = make([torch.nn.Parameter(before.clone())])
            name = type(optimizer).__name__
            (own,) = optimizer.param_groups
            (weight,) = own["params"]
            own.update({key: value for key, value in {**group, **changed}.items() if key != "params"})
            optimizer.state[weight] = {
                each: x.clone() if isinstance(x, torch.Tensor) else x for each, x in state.items()
            }
            weight.grad = gradient.clone()
            try:
                with nullcontext() if policy is None else emulate(policy, count=0):
                    optimizer.step()
            except (RuntimeError, ValueError, TypeError, NotImplementedError, KeyError):
                continue
            if np.array_equal(codes_of(weight), recorded):
                ((key, value),) = changed.items()
                return Cause(
                    "optimizer", f"{name}: all codes are equal with {key}={value!r}; here it is {group[key]!r}",
                    operation=name, shown=True,
                )  # fmt: skip
    return Cause("optimizer", "the gradient is equal, and the weight after the optimizer is not", operation=name)


def _options(
    group: Mapping[str, Any], before: torch.Tensor, found: torch.Tensor, recorded: np.ndarray[Any, Any]
) -> Iterable[dict[str, Any]]:
    """Yield changes of one option each: the kernel, the learning rate that fits the changes, and other constants."""
    for key, values in (("foreach", (False, True)), ("fused", (True,))):
        yield from ({key: value} for value in values if key in group and group[key] is not value)
    if "lr" in group:
        fmt = format_of_dtype(found.dtype)
        old, new = before.double().numpy(), found.detach().double().numpy()
        theirs = np.asarray(convert(FloatArray(recorded, fmt), FP64).codes.view(np.float64))
        moved = np.abs(new - old)
        if moved.any():
            large = moved >= np.quantile(moved, 0.9)
            ratio = float(np.median((theirs - old)[large & (moved > 0)] / (new - old)[large & (moved > 0)]))
            for digits in (1, 2, 3):
                if math.isfinite(ratio) and ratio:
                    yield {"lr": float(f"{float(group['lr']) * ratio:.{digits}g}")}
    for key, value in group.items():
        if isinstance(value, bool) or key in ("params", "initial_lr"):
            continue
        if isinstance(value, int | float) and value:
            yield from ({key: value * factor} for factor in (0.5, 2.0, 0.1, 10.0, 0.0))
            if 0.5 <= value < 1:
                yield from ({key: 1 - (1 - value) * factor} for factor in (0.1, 0.5, 2.0))
        elif isinstance(value, int | float):
            yield from ({key: other} for other in (0.1, 0.01, 0.001, 0.9))
        elif isinstance(value, tuple | list) and len(value) == 2:
            yield from ({key: (value[0], other)} for other in (0.9, 0.95, 0.98, 0.99, 0.999) if other != value[1])
            yield from ({key: (other, value[1])} for other in (0.5, 0.8, 0.85, 0.9, 0.95) if other != value[0])
