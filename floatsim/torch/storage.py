"""How weights, gradients and the optimizer's state are stored between operations, as the policy states it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from floatsim.arrays.random_stream import RandomStream
from floatsim.formats import FloatFormat
from floatsim.formats.rounding import Rounding
from floatsim.formats.value_sets import contains
from floatsim.quantization.scheme import Scheme
from floatsim.torch.tensors import Tag, format_of_dtype, is_float, read, tag_of, tensor_of, write_tag
from floatsim.training.policy import Policy
from floatsim.training.storage import store

__all__ = ["Storage"]

_COUNTERS = ("step", "mu_product", "eta", "mu")
"""The names of states of optimizers that count steps or follow from the number of steps. They are never rounded."""


class Storage:
    """The stored tensors of one emulation.

    Parameters
    ----------
    owner : object
        The emulation.
    policy : Policy
        Its fields `weights`, `weights_at_use`, `weight_gradients` and `state` state how tensors are stored.
    model : torch.nn.Module, optional
        The model whose weights they are.
    stream : RandomStream
        The draws of stochastic rounding.
    """

    def __init__(self, owner: Any, policy: Policy, model: torch.nn.Module | None, stream: RandomStream) -> None:
        self.owner, self.policy, self.model, self.stream = owner, policy, model, stream
        self.in_step = False
        self.scalars: set[int] = set()
        self._masters: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._handles: list[Any] = []

    # -- start and end -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Round the stored weights, and register the hooks."""
        self._handles = [
            register_optimizer_step_pre_hook(self._before_step),
            register_optimizer_step_post_hook(self._after_step),
        ]
        if self.model is None:
            return
        for parameter in self._parameters():
            self._store(parameter, self.policy.weights, "weight")
            if parameter.requires_grad:
                self._handles.append(parameter.register_post_accumulate_grad_hook(self._keep_gradient))
        self._handles.append(self.model.register_forward_pre_hook(self._before_forward))

    def stop(self) -> None:
        """Remove the hooks, and give the model its stored weights back."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._give_back()

    def _parameters(self) -> Iterator[torch.Tensor]:
        assert self.model is not None
        return (each for each in self.model.parameters() if is_float(each))

    # -- storing -------------------------------------------------------------------------------------------------------

    def format_for(self, storage: Any, x: torch.Tensor) -> FloatFormat:
        """Return the format of a tensor that is stored so. The numbers of a scheme are FP32 numbers, or the dtype's."""
        own = format_of_dtype(x.dtype)
        if not isinstance(storage, FloatFormat):
            return own
        if not contains(own, storage):
            raise ValueError(
                f"a tensor of {x.dtype} cannot hold {storage.name}: a format of the policy must be a subset of it"
            )
        return storage

    def _store(self, x: torch.Tensor, storage: Any, role: str, rounding: Rounding = Rounding.TIES_TO_EVEN) -> None:
        """Round a tensor in place to its storage, and write its tag."""
        fmt = self.format_for(storage, x)
        if isinstance(storage, Scheme) or fmt != format_of_dtype(x.dtype):
            numbers = store(read(x), storage, rounding, self.stream)
            x.data.copy_(tensor_of(numbers, x.dtype))
        write_tag(x, Tag(self.owner, fmt, role))

    def _gradient_storage(self, parameter: torch.Tensor) -> Any:
        policy = self.policy
        given = policy.weight_gradients or policy.weights
        return given if isinstance(given, FloatFormat) else format_of_dtype(parameter.dtype)

    def _keep_gradient(self, parameter: torch.Tensor) -> None:
        """Round the gradient of a weight to the format in which it is kept."""
        if parameter.grad is not None and is_float(parameter.grad) and parameter.grad.layout == torch.strided:
            self._store(parameter.grad, self._gradient_storage(parameter), "gradient")

    # -- weights at use ------------------------------------------------------------------------------------------------

    def _before_forward(self, *_: Any) -> None:
        """Put the rounded weights in the place of the stored ones until the next step of an optimizer."""
        if self.policy.weights_at_use is None or self._masters:
            return
        for parameter in self._parameters():
            self._masters.append((parameter, parameter.detach().clone()))
            self._store(parameter, self.policy.weights_at_use, "weight")

    def _give_back(self) -> None:
        for parameter, master in self._masters:
            parameter.data.copy_(master)
            write_tag(parameter, Tag(self.owner, self.format_for(self.policy.weights, parameter), "weight"))
        self._masters.clear()

    # -- steps of optimizers -------------------------------------------------------------------------------------------

    def _before_step(self, optimizer: Any, *_: Any) -> None:
        self._give_back()
        self.in_step = True
        for group in optimizer.param_groups:
            for parameter in filter(is_float, group["params"]):
                if tag_of(parameter, self.owner) is None:
                    self._store(parameter, self.policy.weights, "weight")
                self._keep_gradient(parameter)
                if parameter.ndim == 0:
                    self._add_scalars(optimizer, parameter)

    def _add_scalars(self, optimizer: Any, parameter: torch.Tensor) -> None:
        """Note the storages of a weight without dimensions, which is no counter."""
        state = optimizer.state.get(parameter, {})
        moments = [each for name, each in state.items() if name not in _COUNTERS and is_float(each)]
        for each in (parameter, parameter.grad, *moments):
            if each is not None:
                self.scalars.add(each.untyped_storage().data_ptr())

    def _after_step(self, optimizer: Any, *_: Any) -> None:
        self.in_step = False
        self.scalars.clear()
        policy = self.policy
        for group in optimizer.param_groups:
            for parameter in filter(is_float, group["params"]):
                if isinstance(policy.weights, Scheme):
                    self._store(parameter, policy.weights, "weight", policy.weight_rounding)  # type: ignore[arg-type]
                for name, each in optimizer.state.get(parameter, {}).items():
                    if is_float(each) and name not in _COUNTERS:
                        self._store(each, self.state_storage(), "state")
        self.owner.finish_step()

    def state_storage(self) -> Any:
        """Return how the optimizer's state is stored: by default as the weights."""
        policy = self.policy
        return policy.state if policy.state is not None else policy.weights

    def counts_steps(self, tensors: list[torch.Tensor]) -> bool:
        """Return whether an operation in a step has counters only: numbers that are no weight, gradient or moment."""
        return all(x.ndim == 0 and x.untyped_storage().data_ptr() not in self.scalars for x in tensors)
