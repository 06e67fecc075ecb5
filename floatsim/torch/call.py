"""One emulated call of an ATen operation: it reads operands, rounds intermediates, and rounds results."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch

from floatsim.accumulation import Accumulation
from floatsim.arrays.array.conversion import array, convert, in_format
from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.call.options import RoundingOptions, get_context, resolve
from floatsim.arrays.elementwise.arithmetic import add
from floatsim.arrays.events.record import recording
from floatsim.arrays.sums.products import matmul
from floatsim.arrays.sums.reductions import sum as sum_of
from floatsim.formats import FP32, FloatFormat
from floatsim.formats.rounding import Rounding
from floatsim.torch.decisions import Resolved
from floatsim.torch.scaling import start_scaling
from floatsim.torch.tensors import Tag, format_of_dtype, read, tag_of, tensor_of

__all__ = ["Call", "Handler", "Host", "Rehearsal", "floats_of", "number", "tensors_of"]

Handler: TypeAlias = Callable[..., Any]
"""A function of a `Call` and the arguments of an ATen operation. It returns FloatArrays, tensors, or NotImplemented."""


_NO_OPTIONS: RoundingOptions = {}


class Host(Protocol):
    """What a call needs from the emulation that runs it."""

    policy: Any

    def scaler(self, scaling: Any) -> Any:
        """Return the state of a scaling method in this run."""

    @property
    def step(self) -> int:
        """The number of the training step."""

    def unverified(self, operation: str, shapes: tuple[tuple[int, ...], ...], why: str) -> None:
        """Note that an operation is not known to have the bits of the policy's device."""


def number(value: float, fmt: FloatFormat) -> FloatArray:
    """Return a Python number, rounded to a format with ties to even.

    >>> import floatsim as fs
    >>> number(0.1, fs.BF16)
    FloatArray(0.1001, BF16)
    """
    return _number(struct.pack("d", value), fmt)


@functools.lru_cache(maxsize=4096)
def _number(bits: bytes, fmt: FloatFormat) -> FloatArray:
    return array(struct.unpack("d", bits)[0], fmt, rounding="ties_to_even")  # type: ignore[no-any-return]


class Call:
    """One call: the formats, and the steps that operations are made of.

    Attributes
    ----------
    formats : Resolved
        The formats of the operation.
    module : str
        The path of the module.
    backward : bool
        Whether it belongs to a backward pass.
    weak : bool
        Whether tensors without dimensions are beside others, so that they are numbers.
    tags : dict
        The tags of the arguments by the identity of the tensor, where they are known already.
    subject : tuple
        The name of the operation and the shapes of its tensors.
    """

    def __init__(
        self, host: Host, formats: Resolved, module: str, backward: bool, weak: bool = False,
        tags: dict[int, Tag | None] | None = None,
    ) -> None:  # fmt: skip
        self.host, self.formats, self.module, self.backward, self.weak = host, formats, module, backward, weak
        self.tags = tags or {}
        self.subject: tuple[str, tuple[tuple[int, ...], ...]] = ("", ())

    # -- operands ------------------------------------------------------------------------------------------------------

    def array(self, x: Any) -> FloatArray:
        """Return an operand as it is given. A Python number is rounded to the format of the intermediates."""
        return read(x) if isinstance(x, torch.Tensor) else number(float(x), self.formats.inside)

    def operand(self, x: Any) -> FloatArray:
        """Return an operand in the format of the operands: a tensor or a Python number. A loss scale is not rounded.

        PyTorch casts numbers, and tensors without dimensions beside others, to the dtype of the other operands.
        """
        if not isinstance(x, torch.Tensor):
            return self.constant(x)
        return read(x) if self.role(x) == "scale" else self.rounded(read(x), self.formats.operands)

    def intermediate_of(self, x: Any) -> FloatArray:
        """Return an operand, or a number, in the format of the operands, converted to that of the intermediates."""
        return self.rounded(self.operand(x), self.formats.inside)

    def factor(self, x: Any) -> FloatArray:
        """Return the second factor of a product, or a divisor. As a number it has the format of the intermediates.

        PyTorch's kernels keep the number in FP32 beside 16-bit tensors. A tensor without dimensions beside others is
        such a number.
        """
        if not isinstance(x, torch.Tensor):
            return self.number(x)
        is_number = self.weak and not x.ndim and self.role(x) != "scale"
        return self.rounded(read(x), self.formats.inside) if is_number else self.operand(x)

    def constant(self, value: float) -> FloatArray:
        """Return a number in the format of the operands."""
        return number(float(value), self.formats.operands)

    def gradient(self, x: torch.Tensor) -> FloatArray:
        """Return a gradient operand in its format. Beside scaled products it is not rounded."""
        return read(x) if self.formats.scaling is not None else self.rounded(read(x), self.formats.gradient)

    def intermediate(self, x: torch.Tensor) -> FloatArray:
        """Return an operand in the format of the intermediates, such as a bias."""
        return self.rounded(read(x), self.formats.inside)

    def role(self, x: torch.Tensor) -> str:
        """Return the role of a tensor: "weight", "gradient", "value", "scale" or ""."""
        tag = self.tags[id(x)] if id(x) in self.tags else tag_of(x, self.host)
        return "" if tag is None else tag.role

    def format_of(self, x: torch.Tensor) -> FloatFormat:
        """Return the number format of a tensor: that of its tag, else that of its dtype."""
        tag = self.tags[id(x)] if id(x) in self.tags else tag_of(x, self.host)
        return format_of_dtype(x.dtype) if tag is None else tag.format

    def rounded(self, x: FloatArray, fmt: FloatFormat) -> FloatArray:
        """Return x in a format."""
        if x.format is fmt or x.format == fmt:
            return x
        return convert(x, fmt) if recording() else in_format(x, fmt, resolve(_NO_OPTIONS))

    @property
    def is_plain(self) -> bool:
        """Whether no event is counted and no rounding of the call draws: steps may be left out, or run together."""
        return not recording() and get_context().rounding is not Rounding.STOCHASTIC

    # -- what a call changes -------------------------------------------------------------------------------------------

    def update(self, x: torch.Tensor, value: FloatArray) -> None:
        """Store a result in an operand, such as the running statistics of a norm."""
        x.copy_(tensor_of(value, x.dtype))

    def scaler(self) -> Any:
        """Return the state of the scaling method of the policy, which a product changes."""
        return self.host.scaler(self.formats.scaling)

    def unverified(self, why: str) -> None:
        """Note that the result is not known to have the bits of the policy's device."""
        self.host.unverified(*self.subject, why)

    # -- steps ---------------------------------------------------------------------------------------------------------

    def value(self, function: Callable[..., Any], *operands: Any) -> FloatArray:
        """Return one operation, rounded to the format of the intermediates."""
        return function(*operands, format=self.formats.inside)  # type: ignore[no-any-return]

    def stepwise(self, *formats: FloatFormat) -> Callable[..., FloatArray]:
        """Return `value`, with a rounding of each step to the format of the operands if that is one of `formats`.

        Some of PyTorch's kernels round each step to a 16-bit dtype.
        """
        kept = self.formats.operands
        if kept not in formats:
            return self.value
        return lambda function, *operands: self.rounded(self.value(function, *operands), kept)

    def number(self, value: float) -> FloatArray:
        """Return a number in the format of the intermediates."""
        return number(float(value), self.formats.inside)

    def sum(self, x: FloatArray, axis: Any = None, keepdims: bool = False) -> FloatArray:
        """Return sums along axes, with the accumulation of sums."""
        found = sum_of(x, axis, keepdims=keepdims, accumulate=self.formats.sums, format=self.formats.inside)
        return found if isinstance(found, FloatArray) else FloatArray(np.asarray(found), self.formats.inside)

    def result(self, x: FloatArray) -> FloatArray:
        """Return a result in the format of the results."""
        return self.rounded(x, self.formats.out)

    def weight_result(self, x: FloatArray) -> FloatArray:
        """Return the gradient of a weight in the format in which the policy keeps it, else in that of the results."""
        kept = self.host.policy.weight_gradients
        return self.result(x) if kept is None else self.rounded(x, kept)

    def operator(self, function: Callable[..., Any], *operands: Any, **keywords: Any) -> Any:
        """Return the result of an operator of `floatsim.operators` with the recipe of the decision."""
        return function(*operands, recipe=self.formats.recipe, **keywords)

    # -- matrix products -----------------------------------------------------------------------------------------------

    def roles(self, a: torch.Tensor, b: torch.Tensor) -> tuple[str, str]:
        """Return the roles of the operands of a product: "input", "weight" or "gradient".

        In the forward pass the second operand is the weight, unless only the first is a stored weight. In the backward
        pass the operand that a backward pass computed is the gradient, and the kept operand is a weight if it is
        stored as such.
        """
        first, second = self.role(a), self.role(b)
        if not self.backward:
            return ("weight", "input") if first == "weight" != second else ("input", "weight")
        kept = {"weight": "weight"}
        if first == "gradient" or (second != "gradient" and not first):
            return "gradient", kept.get(second, "input")
        return kept.get(first, "input"), "gradient"

    def is_weight_gradient(self, a: torch.Tensor, b: torch.Tensor) -> bool:
        """Return whether a product of two matrices is the gradient of a weight."""
        return self.backward and a.ndim == 2 and set(self.roles(a, b)) == {"gradient", "input"}

    def product(self, a: torch.Tensor, b: torch.Tensor) -> FloatArray:
        """Return a @ b in the format of the intermediates. Scaling methods of the policy apply."""
        return self.product_of(read(a), read(b), self.roles(a, b))

    def product_of(self, a: FloatArray, b: FloatArray, roles: tuple[str, str], part: str = "") -> FloatArray:
        """Return a @ b for matrices, or stacks of them, with these roles.

        `part` names one of several products of an operation. Each has its own state of the scaling method.
        """
        if self.formats.scaling is not None:
            return self._scaled(a, b, roles, part)
        left, right = (self.rounded(x, self.of_role(role)) for x, role in zip((a, b), roles, strict=True))
        return self.matmul(left, right)

    def prepared(self, x: torch.Tensor, role: str) -> FloatArray:
        """Return an operand of a product in the format of its role. A scaling method rounds it later."""
        return read(x) if self.formats.scaling is not None else self.rounded(read(x), self.of_role(role))

    def of_role(self, role: str) -> FloatFormat:
        """Return the format of an operand of a product."""
        formats = self.formats
        return {"input": formats.operands, "weight": formats.weight, "gradient": formats.gradient}[role]

    def matmul(self, a: FloatArray, b: FloatArray, accumulate: Accumulation | None = None) -> FloatArray:
        """Return a @ b with the accumulation of products, in the format of the intermediates."""
        chosen = accumulate or self.formats.accumulate
        found = matmul(a, b, accumulate=chosen, format=self.formats.inside)
        return found if isinstance(found, FloatArray) else FloatArray(np.asarray(found), self.formats.inside)

    def _scaled(self, a: FloatArray, b: FloatArray, roles: tuple[str, str], part: str) -> FloatArray:
        """Return the products of stacks of matrices by the scaling method of the policy, which gives FP32."""
        scaler = self.scaler()
        module = f"{self.module}.{part}" if part else self.module
        product = {frozenset(("gradient", "weight")): "input_gradient", frozenset(("gradient", "input")):
                   "weight_gradient"}.get(frozenset(roles), "forward")  # fmt: skip
        stack = a.shape[:-2]
        lefts, rights = (x.reshape(-1, *x.shape[-2:]) for x in (a, b))
        found = [
            scaler.matmul(
                left, right, formats=(self.of_role(roles[0]), self.of_role(roles[1])), roles=roles, product=product,
                module=module, step=self.host.step, accumulate=self.formats.accumulate,
            )
            for left, right in zip(lefts, rights, strict=True)
        ]  # fmt: skip
        codes = np.stack([self.rounded(each, FP32).codes for each in found])
        return self.rounded(FloatArray(codes.reshape(*stack, *codes.shape[1:]), FP32), self.formats.inside)

    def biased(self, product: FloatArray, bias: torch.Tensor | None) -> FloatArray:
        """Return product + bias, in the format of the intermediates."""
        return product if bias is None else self.value(add, product, self.bias(bias))

    def bias(self, x: torch.Tensor) -> FloatArray:
        """Return a bias in the format of the operands. Beside scaled products it is not rounded."""
        return read(x) if self.formats.scaling is not None else self.operand(x)


class Rehearsal(Call):
    """A call whose results are dropped, and which changes nothing: it compiles the kernels of later calls."""

    def update(self, x: torch.Tensor, value: FloatArray) -> None:
        """Leave the operand as it is."""

    def unverified(self, why: str) -> None:
        """Note nothing: the call before it has."""

    def scaler(self) -> Any:
        """Return a new state of the scaling method."""
        return start_scaling(self.formats.scaling, 0)


def floats_of(args: Iterable[Any]) -> list[torch.Tensor]:
    """Return the floating-point tensors among arguments, of lists too.

    >>> import torch
    >>> len(floats_of([torch.ones(1), [torch.ones(2), 3], None]))
    2
    """
    return tensors_of(args)[0]


def tensors_of(args: Iterable[Any]) -> tuple[list[torch.Tensor], bool]:
    """Return the floating-point tensors among arguments, of lists too, and whether a complex tensor is among them.

    >>> import torch
    >>> floats, has_complex = tensors_of([torch.ones(1), [torch.ones(2) * 1j, 3], None])
    >>> len(floats), has_complex
    (1, True)
    """
    found, has_complex = [], False
    for each in args:
        for x in each if isinstance(each, _LISTS) else (each,):
            if isinstance(x, torch.Tensor):
                dtype = x.dtype
                if dtype.is_floating_point:
                    found.append(x)
                elif dtype.is_complex:
                    has_complex = True
    return found, has_complex


_LISTS = (list, tuple)
