"""Run the training steps of a definition, and show each tensor in the order in which the run makes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch.utils._pytree import tree_flatten_with_path, tree_map_only

from floatsim.torch.modules import paths
from floatsim.torch.twin.definition import Definition
from floatsim.torch.twin.operations import without_modes
from floatsim.torch.twin.recording import Place

__all__ = ["AUTOCAST", "Stepper", "flat_tensors", "settings", "with_settings"]

Keep = Callable[[Place, torch.Tensor], None]
"""What takes a tensor of the run, at the moment when it is made."""

AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}
"""The dtypes of autocast by name."""

_SETTINGS: dict[str, tuple[Any, str]] = {
    "cuda.matmul.allow_tf32": (torch.backends.cuda.matmul, "allow_tf32"),
    "cuda.matmul.allow_fp16_reduced_precision_reduction": (
        torch.backends.cuda.matmul, "allow_fp16_reduced_precision_reduction"),
    "cuda.matmul.allow_bf16_reduced_precision_reduction": (
        torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction"),
    "cudnn.allow_tf32": (torch.backends.cudnn, "allow_tf32"),
    "cudnn.deterministic": (torch.backends.cudnn, "deterministic"),
    "cudnn.benchmark": (torch.backends.cudnn, "benchmark"),
}  # fmt: skip
"""PyTorch's settings that change the kernels of a GPU."""


def settings() -> dict[str, bool]:
    """Return PyTorch's settings that change the kernels of a GPU.

    >>> "cuda.matmul.allow_tf32" in settings()
    True
    """
    found: dict[str, Any] = {name: getattr(home, key) for name, (home, key) in _SETTINGS.items()}
    return {name: value if isinstance(value, bool) else bool(value) for name, value in found.items()}


@contextmanager
def with_settings(wanted: Mapping[str, Any]) -> Iterator[None]:
    """Set PyTorch's settings in a block, as they were recorded.

    >>> with with_settings({"cuda.matmul.allow_tf32": True}):
    ...     print(torch.backends.cuda.matmul.allow_tf32)
    True
    """
    before = settings()
    try:
        for name, value in wanted.items():
            if name in _SETTINGS and before[name] != bool(value):
                home, key = _SETTINGS[name]
                setattr(home, key, bool(value))
        yield
    finally:
        for name, value in before.items():
            home, key = _SETTINGS[name]
            if settings()[name] != value:
                setattr(home, key, value)


def flat_tensors(tree: Any) -> list[tuple[str, torch.Tensor]]:
    """Return the tensors in tuples, lists and mappings, each with its keys.

    >>> [name for name, _ in flat_tensors(({"ids": torch.ones(1)}, torch.ones(1)))]
    ['0.ids', '1']
    """
    leaves, _ = tree_flatten_with_path(tree)
    found = []
    for keys, x in leaves:
        if isinstance(x, torch.Tensor):
            parts = [str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key)))) for key in keys]
            found.append((".".join(parts), x))
    return found


class Stepper:
    """Runs the steps of a definition on a device.

    Parameters
    ----------
    definition : Definition
        The functions of the run.
    keep : callable
        Called with the place and the tensor, at the moment when the run makes it.
    device : str
        "cpu" or "cuda".
    autocast : str, optional
        "bf16" or "fp16": PyTorch's own autocast on a GPU.

    Attributes
    ----------
    model : torch.nn.Module
    optimizer : torch.optim.Optimizer
    """

    def __init__(self, definition: Definition, keep: Keep, device: str = "cpu", autocast: str | None = None) -> None:
        self.definition, self.keep, self.device, self.autocast = definition, keep, device, autocast
        self.model = definition.model().to(device)
        self.optimizer = definition.optimizer_of(self.model.parameters())
        self.scaler = None if definition.scaler is None else definition.scaler(device)
        self.step = -1
        self._calls: Counter[tuple[str, str]] = Counter()

    # -- observation ---------------------------------------------------------------------------------------------------

    def _keep(self, part: str, name: str, x: torch.Tensor) -> None:
        self.keep(Place(self.step, part, name), x)

    def _result(self, name: str, result: Any) -> None:
        """Show the results of a module, and later their gradients."""
        call = self._calls["forward", name]
        self._calls["forward", name] += 1
        called = f"{name}@{call}" if call else name
        tensors = [x for _, x in flat_tensors(result) if x.is_floating_point()]
        for number, x in enumerate(tensors):
            full = f"{called}#{number}" if number else called
            self._keep("forward", full, x)
            if x.requires_grad:
                x.register_hook(lambda gradient, full=full: self._called("gradient", full, gradient))

    def _called(self, part: str, name: str, x: torch.Tensor) -> None:
        """Show a gradient. A second backward pass through it is a second one."""
        call = self._calls[part, name]
        self._calls[part, name] += 1
        self._keep(part, f"{name}@{call}" if call else name, x)

    @contextmanager
    def observed(self) -> Iterator[None]:
        """Show the results of modules and the gradients in a block."""
        handles: list[Any] = []
        for name, module in paths(self.model):
            handles.append(module.register_forward_hook(lambda _, given, result, name=name: self._result(name, result)))
        for name, weight in self.model.named_parameters():
            if weight.requires_grad:
                handles.append(
                    weight.register_post_accumulate_grad_hook(
                        lambda weight, name=name: self._called("weight_gradient", name, weight.grad)
                    )
                )
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def initial(self) -> None:
        """Show the initial weights and buffers."""
        for name, x in self._state():
            self.keep(Place(-1, "initial", name), x)

    def _state(self) -> list[tuple[str, torch.Tensor]]:
        return [(name, x) for name, x in self.model.state_dict().items() if isinstance(x, torch.Tensor)]

    # -- steps ---------------------------------------------------------------------------------------------------------

    def batch(self, step: int) -> Any:
        """Return the batch of a step on the device. PyTorch computes it on the CPU, also inside an emulation."""
        with without_modes():
            return tree_map_only(torch.Tensor, lambda x: x.to(self.device), self.definition.batch_of(step))

    def _autocast(self) -> AbstractContextManager[Any]:
        if self.autocast is None or self.device != "cuda":
            return nullcontext()
        chosen: AbstractContextManager[Any] = torch.autocast("cuda", AUTOCAST[self.autocast])
        return chosen

    def run(
        self, step: int, batch: Any = None, *, before_update: Callable[[], None] | None = None, observed: bool = True
    ) -> None:
        """Run one step.

        Parameters
        ----------
        step : int
            The number of the step.
        batch : tuple, optional
            Its batch. Default: that of the definition.
        before_update : callable, optional
            Called after the backward pass.
        observed : bool
            Whether to show the tensors.
        """
        self.step = step
        self._calls.clear()
        batch = self.batch(step) if batch is None else batch
        with ExitStack() as stack:
            if observed:
                for name, x in flat_tensors(batch):
                    self._keep("input", name, x)
                stack.enter_context(self.observed())
            self.optimizer.zero_grad()
            with self._autocast():
                output = self.definition.output_of(self.model, batch)
                loss = self.definition.loss_of(output, batch)
            if observed:
                self._keep("loss", "", loss)
            (loss if self.scaler is None else self.scaler.scale(loss)).backward()
            if before_update is not None:
                before_update()
            if self.scaler is None:
                self.optimizer.step()
            else:
                self.scaler.step(self.optimizer)
                self.scaler.update()
            if observed:
                for name, x in self._state():
                    self._keep("updated", name, x)
