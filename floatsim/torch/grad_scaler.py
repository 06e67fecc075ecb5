"""The loss scaler of a policy, and the marks that keep the state of every `torch.amp.GradScaler` unrounded."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from floatsim.formats import FP32
from floatsim.torch.tensors import Tag, write_tag

__all__ = ["LossScaler", "scaler_patches"]

_INITIAL = 65536.0


class LossScaler(torch.amp.GradScaler):  # type: ignore[misc]
    """A `torch.amp.GradScaler` for a loss scale of a policy, whose `step` also updates the scale.

    Parameters
    ----------
    loss_scale : float or str
        A number, which stays, or "dynamic".

    Examples
    --------
    >>> LossScaler(1024.0).get_scale()
    1024.0
    """

    def __init__(self, loss_scale: float | str) -> None:
        self._fixed = None if isinstance(loss_scale, str) else float(loss_scale)
        initial = _INITIAL if self._fixed is None else self._fixed
        super().__init__("cpu", init_scale=initial, enabled=self._fixed != 1.0)

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Unscale the gradients, step the optimizer unless one is not finite, and update the scale."""
        result = super().step(optimizer, *args, **kwargs)
        self.update()
        return result

    def update(self, new_scale: Any = None) -> None:
        """Update the scale. A second call after a step changes nothing."""
        if self._enabled and not any(each["found_inf_per_device"] for each in self._per_optimizer_states.values()):
            return
        super().update(self._fixed if new_scale is None else new_scale)


@contextmanager
def scaler_patches(host: Any) -> Iterator[None]:
    """Mark the scale of each GradScaler as never rounded, and its methods as bookkeeping."""
    kind = torch.amp.GradScaler
    originals = {name: getattr(kind, name) for name in ("scale", "unscale_", "step", "update")}

    def scale(self: Any, outputs: Any) -> Any:
        if self._enabled:
            if self._scale is None:
                self._lazy_init_scale_growth_tracker(torch.device("cpu"))
            write_tag(self._scale, Tag(host, FP32, "scale"))
        return originals["scale"](self, outputs)

    def counted(name: str) -> Any:
        @functools.wraps(originals[name])
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            host.bookkeeping += 1
            try:
                return originals[name](self, *args, **kwargs)
            finally:
                host.bookkeeping -= 1

        return method

    kind.scale = functools.wraps(originals["scale"])(scale)
    for name in ("unscale_", "step", "update"):
        setattr(kind, name, counted(name))
    try:
        yield
    finally:
        for name, method in originals.items():
            setattr(kind, name, method)
