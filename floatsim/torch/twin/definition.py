"""The functions that define a training run: a file MODEL.py, its text, or any object with these functions."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

__all__ = ["Definition"]

_NEEDED = {
    "build": "build() returns the model",
    "batch": "batch(step) returns (inputs, ...)",
    "loss": "loss(output, batch) returns a number",
    "optimizer": "optimizer(parameters) returns an optimizer of torch.optim",
}
"""The functions that a definition has, and what each returns."""


@dataclass(frozen=True)
class Definition:
    """The functions of a training run.

    Parameters
    ----------
    name : str
        The name of the file or object, for messages.
    build : callable
        `build()` returns the model with its initial weights. It sets its own seed.
    batch : callable
        `batch(step)` returns a tuple. Its first part is what the model takes: a tensor, a tuple of arguments, or a
        mapping of keywords.
    loss : callable
        `loss(output, batch)` returns a tensor without dimensions.
    optimizer : callable
        `optimizer(parameters)` returns an optimizer of `torch.optim`.
    forward : callable, optional
        `forward(model, batch)` in place of `model(batch[0])`.
    scaler : callable, optional
        `scaler(device)` returns a `torch.amp.GradScaler` for "cuda" or "cpu".
    source : str
        The text of the file, or "".

    Raises
    ------
    ValueError
        If a function is missing, raises an error, or returns something else. The message names it.

    Examples
    --------
    >>> import torch
    >>> from types import SimpleNamespace
    >>> functions = {"build": lambda: torch.nn.Linear(2, 1), "batch": lambda step: (torch.ones(1, 2),)}
    >>> Definition.of(SimpleNamespace(**functions))
    Traceback (most recent call last):
    ValueError: SimpleNamespace has no function loss: loss(output, batch) returns a number
    """

    name: str
    build: Callable[[], torch.nn.Module]
    batch: Callable[[int], Any]
    loss: Callable[[Any, Any], torch.Tensor]
    optimizer: Callable[[Any], torch.optim.Optimizer]
    forward: Callable[[torch.nn.Module, Any], Any] | None = None
    scaler: Callable[[str], Any] | None = None
    source: str = ""

    @classmethod
    def of(cls, given: Any) -> Definition:
        """Return the definition in a file (a path), or in an object with the functions.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        ValueError
            If the file cannot be run, or a function is missing.
        """
        if isinstance(given, Definition):
            return given
        if isinstance(given, str | Path):
            path = Path(given)
            if not path.is_file():
                raise FileNotFoundError(f"there is no file {path}; a definition is a Python file, such as model.py")
            try:
                text = path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                raise ValueError(f"{path.name} is no text in UTF-8; a definition is a Python file") from None
            return cls.from_source(text, path.name, path.parent.resolve())
        name = getattr(given, "__name__", type(given).__name__)
        return cls._from_namespace(lambda each: getattr(given, each, None), name, "")

    @classmethod
    def from_source(cls, source: str, name: str = "model.py", folder: Path | None = None) -> Definition:
        """Run the text of a file, and return its definition. The file imports modules beside it from `folder`."""
        module = ModuleType(f"floatsim_twin_{Path(name).stem}")
        module.__file__ = str(name if folder is None else folder / name)
        sys.modules[module.__name__] = module
        with _searched(folder), _named(f"{name} cannot be run"):
            exec(compile(source, module.__file__, "exec"), module.__dict__)
        return cls._from_namespace(module.__dict__.get, name, source)

    @classmethod
    def _from_namespace(cls, find: Callable[[str], Any], name: str, source: str) -> Definition:
        found: dict[str, Any] = {each: find(each) for each in (*_NEEDED, "forward", "scaler")}
        for each, what in _NEEDED.items():
            if not callable(found[each]):
                raise ValueError(f"{name} has no function {each}: {what}")
        given: dict[str, Any] = {key: each if callable(each) else None for key, each in found.items()}
        return cls(name, **given, source=source)

    # -- checked calls -------------------------------------------------------------------------------------------------

    def model(self) -> torch.nn.Module:
        """Return the model of `build`."""
        with _named(f"{self.name}: build() failed"):
            model = self.build()
        if not isinstance(model, torch.nn.Module):
            raise ValueError(f"{self.name}: build() must return a torch.nn.Module, not {type(model).__name__}")
        return model

    def batch_of(self, step: int) -> Any:
        """Return the batch of a step."""
        with _named(f"{self.name}: batch({step}) failed"):
            batch = self.batch(step)
        if not isinstance(batch, tuple | list) or not len(batch):
            raise ValueError(
                f"{self.name}: batch({step}) must return a tuple (inputs, ...), not {type(batch).__name__}"
            )
        return batch

    def output_of(self, model: torch.nn.Module, batch: Any) -> Any:
        """Return what the model makes of a batch."""
        with _named(f"{self.name}: the forward pass failed"):
            if self.forward is not None:
                return self.forward(model, batch)
            given = batch[0]
            if isinstance(given, Mapping):
                return model(**given)
            return model(*given) if isinstance(given, tuple | list) else model(given)

    def loss_of(self, output: Any, batch: Any) -> torch.Tensor:
        """Return the loss of an output."""
        with _named(f"{self.name}: loss(output, batch) failed"):
            loss = self.loss(output, batch)
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            found = f"shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
            raise ValueError(f"{self.name}: loss(output, batch) must return a tensor with one element, not {found}")
        return loss

    def optimizer_of(self, parameters: Any) -> torch.optim.Optimizer:
        """Return the optimizer of parameters."""
        with _named(f"{self.name}: optimizer(parameters) failed"):
            optimizer = self.optimizer(parameters)
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise ValueError(
                f"{self.name}: optimizer(parameters) must return an optimizer of torch.optim, not "
                f"{type(optimizer).__name__}"
            )
        return optimizer


@contextmanager
def _searched(folder: Path | None) -> Iterator[None]:
    """Let imports find the modules of a folder."""
    if folder is not None:
        sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        if folder is not None and str(folder) in sys.path:
            sys.path.remove(str(folder))


@contextmanager
def _named(what: str) -> Iterator[None]:
    """Turn an error of the user's functions into a ValueError that names the function."""
    try:
        yield
    except NotImplementedError:  # a strict emulation refuses an operation
        raise
    except Exception as error:
        raise ValueError(f"{what}: {type(error).__name__}: {error}") from error
