"""The path of the module that an operation belongs to, in the forward pass and in the backward pass."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

__all__ = ["Modules", "parameter_names", "paths"]


def _sequence_number() -> int:
    """Return the number that autograd gives to its next node, in this thread."""
    number: int = torch._C._autograd._get_sequence_nr()
    return number


def paths(root: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """Return the modules of a model with their paths. The path of the model itself is the name of its class.

    >>> [path for path, _ in paths(torch.nn.Sequential(torch.nn.ReLU()))]
    ['Sequential', '0']
    """
    return ((path or type(root).__name__, module) for path, module in root.named_modules())


def parameter_names(model: torch.nn.Module) -> dict[int, tuple[list[str], list[str]]]:
    """Return the names of the parameters of a model, by their identity: the paths, and the kinds of each layer's name.

    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 1, bias=False))
    >>> parameter_names(model)[id(model[0].weight)]
    (['0.weight'], ['Linear.weight'])
    """
    found: dict[int, tuple[list[str], list[str]]] = {}
    for path, module in model.named_modules():
        classes = [each.__name__ for each in type(module).__mro__ if each not in (torch.nn.Module, object)]
        for name, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            mine, kinds = found.setdefault(id(parameter), ([], []))
            mine.append(f"{path}.{name}" if path else name)
            kinds += [f"{each}.{name}" for each in classes]
    return found


class Modules:
    """Follows the modules in work, by hooks of PyTorch for all modules.

    In the forward pass, the module is the innermost one whose `forward` runs. Autograd has made the node of an
    operation when the operation is dispatched, so its sequence number belongs to the operation. In the backward pass,
    the number of the current node leads back to the forward operation and its module, also when a module is called
    several times, and in recomputed parts (gradient checkpointing).

    Parameters
    ----------
    owner : object
        The emulation. Modules are not followed while it is paused.
    model : torch.nn.Module, optional
        The paths are those of its `named_modules()`; its own is the name of its class. Modules outside, and all modules
        without a model, have paths from the outermost module that is called.
    """

    def __init__(self, owner: Any, model: torch.nn.Module | None = None) -> None:
        self._owner = owner
        self._paths: dict[int, str] = {}
        self._kept: list[torch.nn.Module] = []
        self._stack: list[str] = []
        self._forward: dict[int, tuple[str, str]] = {}
        self._old = 0
        self._handles: list[Any] = []
        self._thread = threading.get_ident()
        if model is not None:
            self.add(model)

    def add(self, root: torch.nn.Module) -> None:
        """Add the modules of a model, with their paths from it."""
        self._kept.append(root)
        for path, module in paths(root):
            self._paths.setdefault(id(module), path)

    def start(self) -> None:
        """Register the hooks."""
        self._handles = [
            register_module_forward_pre_hook(self._enter),
            register_module_forward_hook(self._leave, always_call=True),
        ]

    def stop(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _is_followed(self) -> bool:
        return not self._owner.paused and threading.get_ident() == self._thread

    def _enter(self, module: torch.nn.Module, _: Any) -> None:
        if not self._is_followed():
            return
        if id(module) not in self._paths:
            self.add(module)
        self._stack.append(self._paths[id(module)])

    def _leave(self, *_: Any) -> None:
        if self._is_followed():
            self._stack.pop()

    def enter_path(self, path: str) -> None:
        """Begin the operations of a module that has no forward pass of its own, as in an exported program."""
        self._stack.append(path)

    def leave_path(self) -> None:
        """End the operations of a module."""
        self._stack.pop()

    # -- where an operation belongs ------------------------------------------------------------------------------------

    @property
    def inside(self) -> str:
        """The path of the module whose forward pass runs; "" outside of modules."""
        return self._stack[-1] if self._stack else ""

    def note(self, operation: str) -> None:
        """Note that a forward operation runs, for its backward pass."""
        self._forward.setdefault(_sequence_number() - 1, (self.inside, operation))

    def of_node(self, node: Any) -> tuple[str, str]:
        """Return the module and the forward operation of a node of autograd; ("", "") if they are not known."""
        return self._forward.get(node._sequence_nr(), ("", ""))

    def finish_step(self) -> None:
        """Forget the operations before the last step."""
        self._forward = {key: value for key, value in self._forward.items() if key >= self._old}
        self._old = _sequence_number()
