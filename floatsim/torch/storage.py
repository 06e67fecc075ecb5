"""How weights, gradients and the optimizer's state are stored between operations, as the policy states it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.parameter import is_lazy
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from floatsim.arrays.array.conversion import quantize
from floatsim.arrays.call.random_stream import RandomStream
from floatsim.formats import FloatFormat
from floatsim.formats.rounding import Rounding
from floatsim.formats.value_sets import contains
from floatsim.quantization.scheme import Scheme
from floatsim.torch.modules import parameter_names
from floatsim.torch.tensors import Tag, format_of_dtype, is_float, read, tag_of, tensor_of, write_tag
from floatsim.training.policies.policy import Policy
from floatsim.training.policies.storage import store

__all__ = ["OPTIMIZER", "Detached", "Storage"]

OPTIMIZER = "optimizer"
"""The place of the operations of an optimizer whose weight is not known, and of all of them in the table of a run."""

_COUNTERS = ("step", "mu_product", "eta", "mu")
"""The names of states of optimizers that count steps or follow from the number of steps. They are never rounded."""


class Storage:
    """The stored tensors of one emulation.

    Parameters
    ----------
    owner : object
        The emulation. While it is `paused`, the hooks do nothing.
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
        self._names: dict[int, str] = {}
        self._at_use: dict[int, Any] = {}
        self._places: dict[int, str] = {}
        self._masters: list[tuple[torch.Tensor, torch.Tensor, int]] = []
        self._given: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._handles: list[Any] = []

    # -- start and end -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Round the stored weights, and register the hooks. Those of lazy modules follow when they get their shape."""
        self._handles = [
            register_optimizer_step_pre_hook(self._before_step),
            register_optimizer_step_post_hook(self._after_step),
        ]
        if self.model is None:
            return
        self._names = {id(each): name for name, each in self.model.named_parameters()}
        self._at_use = self._weights_at_use()
        for parameter in self._parameters():  # errors come before the first change
            for storage in (self.policy.weights, self._at_use.get(id(parameter)), self._gradient_storage(parameter)):
                self.format_for(storage, parameter)
        for parameter in self._parameters():
            self._begin(parameter)
        for module in self.model.modules():
            if any(map(is_lazy, module.parameters(recurse=False))):
                self._handles.append(module.register_forward_pre_hook(self._when_known))
        self._handles.append(self.model.register_forward_pre_hook(self._before_forward))

    def _begin(self, parameter: torch.Tensor) -> None:
        """Store a weight, and round its gradients from now on."""
        if isinstance(self.policy.weights, Scheme):
            self._given.append((parameter, parameter.detach().clone()))
        self._store(parameter, self.policy.weights, "weight")
        if parameter.requires_grad:
            self._handles.append(parameter.register_post_accumulate_grad_hook(self._keep_gradient))

    def _when_known(self, module: torch.nn.Module, *_: Any) -> None:
        """Store the weights of a lazy module that has its shape now."""
        for parameter in filter(is_float, module.parameters(recurse=False)):
            if not is_lazy(parameter) and tag_of(parameter, self.owner) is None:
                self._begin(parameter)
        self._at_use = self._weights_at_use()

    def stop(self) -> None:
        """Remove the hooks, and give the model its stored weights back."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._give_back()

    def _parameters(self) -> Iterator[torch.Tensor]:
        assert self.model is not None
        return (each for each in self.model.parameters() if is_float(each) and not is_lazy(each))

    def _weights_at_use(self) -> dict[int, Any]:
        """Return how each parameter that is rounded before use is stored, by the identity of the parameter."""
        assert self.model is not None
        found = {key: self.policy.weight_at_use(*both) for key, both in parameter_names(self.model).items()}
        return {key: storage for key, storage in found.items() if storage is not None}

    def __deepcopy__(self, memo: Any) -> Storage:
        """Return itself: a copied model keeps the hooks of this emulation, which do nothing for it."""
        return self

    def __reduce__(self) -> Any:
        """Pickle no emulation: the hooks of a model that is saved in a block do nothing when it is loaded."""
        return Detached, ()

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
        numbers = read(x)
        if fmt != numbers.format and rounding is Rounding.TIES_TO_EVEN and x.is_contiguous() and not x.is_neg():
            quantize(numbers, fmt, rounding=rounding, out=numbers)
        elif isinstance(storage, Scheme) or fmt != numbers.format:
            numbers = store(numbers, storage, rounding, self.stream)
            x.data.copy_(tensor_of(numbers, x.dtype))
        write_tag(x, Tag(self.owner, fmt, role))

    def _gradient_storage(self, parameter: torch.Tensor) -> Any:
        policy = self.policy
        given = policy.weight_gradients or policy.weights
        return given if isinstance(given, FloatFormat) else format_of_dtype(parameter.dtype)

    def _keep_gradient(self, parameter: torch.Tensor) -> None:
        """Round the gradient of a weight to the format in which it is kept."""
        if self.owner.paused:
            return
        if parameter.grad is not None and is_float(parameter.grad) and parameter.grad.layout == torch.strided:
            self._store(parameter.grad, self._gradient_storage(parameter), "gradient")

    # -- weights at use ------------------------------------------------------------------------------------------------

    def _before_forward(self, module: torch.nn.Module, *_: Any) -> None:
        """Put the rounded weights in the place of the stored ones until the next step of an optimizer.

        A copy of the model has this hook, too, but weights of its own.
        """
        if module is not self.model or not self._at_use or self._masters or self.owner.paused:
            return
        for parameter in self._parameters():
            if (storage := self._at_use.get(id(parameter))) is not None:
                master = parameter.detach().clone()
                self._store(parameter, storage, "weight")
                self._masters.append((parameter, master, parameter._version))

    def _give_back(self) -> None:
        """Give the stored weights back. A weight that the user has written since is stored as it is written."""
        for parameter, master, version in self._masters:
            if parameter._version != version:
                self._store(parameter, self.policy.weights, "weight")
                continue
            parameter.data.copy_(master)
            write_tag(parameter, Tag(self.owner, self.format_for(self.policy.weights, parameter), "weight"))
        self._masters.clear()

    # -- steps of optimizers -------------------------------------------------------------------------------------------

    def _before_step(self, optimizer: Any, *_: Any) -> None:
        """Store what has no tag of this emulation: weights, gradients, and moments of an earlier block or a file."""
        if self.owner.paused:
            return
        self._give_back()
        self.in_step = True
        for parameter in _weights_of(optimizer):
            if tag_of(parameter, self.owner) is None:
                self._store(parameter, self.policy.weights, "weight")
            self._keep_gradient(parameter)
            moments = list(_moments_of(optimizer, parameter))
            for each in moments:
                if tag_of(each, self.owner) is None:
                    self._take(each)
            for each in (parameter, parameter.grad, *moments):
                if each is not None:
                    place = each.untyped_storage().data_ptr()
                    self._places[place] = self._names.get(id(parameter), OPTIMIZER)
                    if parameter.ndim == 0:
                        self.scalars.add(place)

    def begin_moment(self, x: torch.Tensor) -> None:
        """Note that a new tensor of constants is a moment, which is stored as the policy says from its first line."""
        storage, own = self.state_storage(), format_of_dtype(x.dtype)
        fits = isinstance(storage, FloatFormat) and contains(own, storage)
        write_tag(x, Tag(self.owner, storage if fits else own, "state"))

    def _take(self, moment: torch.Tensor) -> None:
        """Store a moment of an earlier block, or of a file. Numbers of a scheme stay: rounding them twice differs."""
        storage = self.state_storage()
        if isinstance(storage, Scheme):
            write_tag(moment, Tag(self.owner, self.format_for(storage, moment), "state"))
        else:
            self._store(moment, storage, "state")

    def take_weights_as_stored(self) -> None:
        """Undo the rounding of weights to a scheme at the start: they are those of a saved run, and rounded already."""
        for parameter, given in self._given:
            parameter.data.copy_(given)
        self._given.clear()

    def _after_step(self, optimizer: Any, *_: Any) -> None:
        if self.owner.paused:
            return
        self.in_step = False
        self.scalars.clear()
        self._places.clear()
        self._given.clear()
        policy = self.policy
        for parameter in _weights_of(optimizer):
            if isinstance(policy.weights, Scheme):
                self._store(parameter, policy.weights, "weight", policy.weight_rounding)  # type: ignore[arg-type]
            for each in _moments_of(optimizer, parameter):
                self._store(each, self.state_storage(), "state")
        self.owner.finish_step()

    def place_of(self, x: torch.Tensor) -> str:
        """Return the path of the weight that a tensor of an optimizer's step belongs to, "optimizer" if unknown."""
        return self._places.get(x.untyped_storage().data_ptr(), OPTIMIZER)

    # -- pauses --------------------------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Give the model its stored weights. The hooks do nothing while the emulation is paused."""
        self._give_back()

    def resume(self) -> None:
        """Store again what was changed in a pause by another emulation."""
        for parameter in () if self.model is None else self._parameters():
            if tag_of(parameter, self.owner) is None:
                self._store(parameter, self.policy.weights, "weight")

    def state_storage(self) -> Any:
        """Return how the optimizer's state is stored: by default as the weights."""
        policy = self.policy
        return policy.state if policy.state is not None else policy.weights

    def counts_steps(self, tensors: list[torch.Tensor]) -> bool:
        """Return whether an operation in a step has counters only: numbers that are no weight, gradient or moment."""
        return all(x.ndim == 0 and x.untyped_storage().data_ptr() not in self.scalars for x in tensors)


def _weights_of(optimizer: Any) -> Iterator[torch.Tensor]:
    """Return the weights of an optimizer."""
    return (each for group in optimizer.param_groups for each in group["params"] if is_float(each))


def _moments_of(optimizer: Any, parameter: torch.Tensor) -> Iterator[torch.Tensor]:
    """Return the floating-point tensors of an optimizer's state for a weight, of its lists too, but no counters."""
    for name, each in optimizer.state.get(parameter, {}).items():
        if name not in _COUNTERS:
            yield from filter(is_float, each if isinstance(each, list | tuple) else [each])


class Detached:
    """The owner of hooks in a model that was saved inside an emulation, and is loaded outside."""

    def _ignored(self, *_: Any) -> None:
        pass

    _before_forward = _when_known = _keep_gradient = _look = _ignored
