"""A log of the operations of a training step, with copies of their operands, to look for the cause of a difference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_map_only

from floatsim.torch.call import floats_of
from floatsim.torch.modules import Modules

__all__ = ["Operation", "OperationLog", "without_modes"]

without_modes: Callable[[], Any] = _disable_current_modes
"""A block in which PyTorch computes by itself, whatever emulates or logs outside."""


@dataclass(frozen=True)
class Operation:
    """One operation of a step.

    Attributes
    ----------
    func : object
        The ATen operation.
    name : str
        Its name, as "addmm".
    module : str
        The path of the module; "" outside of modules.
    backward : bool
        Whether it belongs to the backward pass.
    args, kwargs : tuple, dict
        Its arguments. Tensors are copies.
    results : tuple of torch.Tensor
        Copies of the floating-point tensors that it returns.
    unverified : tuple of str
        What was not compared with the device.
    """

    func: Any
    name: str
    module: str
    backward: bool
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: tuple[torch.Tensor, ...]
    unverified: tuple[str, ...]


def _copy(x: torch.Tensor) -> torch.Tensor:
    """Return a copy with the strides of the tensor, which decide how a matrix product reads it."""
    return x.detach().clone(memory_format=torch.preserve_format)


class OperationLog(TorchDispatchMode):  # type: ignore[misc]
    """Keeps the operations that run in its block. It must be entered inside `ft.emulate`.

    Parameters
    ----------
    model : torch.nn.Module
        The model whose modules are named.
    unverified : callable
        Returns a Counter of what was not compared with the device so far.

    Attributes
    ----------
    operations : list of Operation
        The operations so far. The owner clears the list.
    active : bool
        Whether operations are kept.

    Examples
    --------
    >>> model, x = torch.nn.Linear(2, 1), torch.ones(1, 2)
    >>> with OperationLog(model, Counter) as log:
    ...     _ = model(x)
    >>> [(each.name, each.module, each.backward) for each in log.operations]
    [('addmm', 'Linear', False)]
    """

    def __init__(self, model: torch.nn.Module, unverified: Callable[[], Counter[Any]]) -> None:
        super().__init__()
        self.operations: list[Operation] = []
        self.active = True
        self.paused = False
        self._unverified = unverified
        self._modules = Modules(self, model)

    def __enter__(self) -> OperationLog:
        self._modules.start()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._modules.stop()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operation, and keep it."""
        kwargs = kwargs or {}
        if not self.active or getattr(func, "is_view", False):
            return func(*args, **kwargs)
        module, backward = self._place(str(func))
        with without_modes():
            kept, words = tree_map_only(torch.Tensor, _copy, (args, kwargs))
        before = Counter(self._unverified())
        result = func(*args, **kwargs)
        made = floats_of([result, *(result if isinstance(result, tuple) else ())])
        if made:
            with without_modes():
                results = tuple(map(_copy, made))
            notes = tuple(str(each) for each in self._unverified() - before)
            name = func._schema.name.partition("::")[2] if hasattr(func, "_schema") else str(func)
            self.operations.append(Operation(func, name, module, backward, tuple(kept), words, results, notes))
        return result

    def _place(self, name: str) -> tuple[str, bool]:
        node = torch._C._current_autograd_node()
        if node is None or torch.is_grad_enabled():
            self._modules.note(name)
            return self._modules.inside, False
        return self._modules.of_node(node)[0], True
