"""Loss scaling: the state machines of PyTorch, apex, DeepSpeed and Keras, exact, and replayable on overflow flags."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from floatsim.arrays.array.conversion import array
from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.elementwise.arithmetic import divide, multiply
from floatsim.arrays.elementwise.comparison import isfinite
from floatsim.arrays.sums.reductions import sum as sum_of
from floatsim.formats import FP16, FP32
from floatsim.formats._validation import as_flag, as_index, as_real, name_hint
from floatsim.training.policies.conversions import check_tensors, inside_format

__all__ = [
    "ApexLossScaler", "DeepSpeedLossScaler", "GradScaler", "Gradients", "KerasLossScaler", "LossScaleStep",
    "LossScaler", "StaticLossScaler", "as_loss_scaler", "as_positive", "overflowed", "replay",
]  # fmt: skip

Gradients: TypeAlias = Mapping[str, FloatArray]
"""Gradients by the name of the parameter."""


def as_positive(value: Any, argument: str) -> float:
    """Return a finite number above 0, or raise an error that names the argument."""
    number = as_real(value, argument, 0.0)
    if number == 0:
        raise ValueError(f"{argument} must be above 0, not {value!r}")
    return number


def overflowed(gradients: Gradients) -> bool:
    """Return whether a gradient has NaN or infinity.

    Parameters
    ----------
    gradients : mapping of str to FloatArray
        The gradients by the name of the parameter.

    Returns
    -------
    bool

    Raises
    ------
    TypeError
        For gradients that are not FloatArrays.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.training.overflowed({"weight": fs.array([1.0, float("inf")], "fp16")})
    True
    """
    check_tensors(gradients, "gradients")
    return not all(bool(np.all(isfinite(gradient))) for gradient in gradients.values())


@dataclass
class LossScaler:
    """The base of all loss scalers: a scale, and a state that `update` advances once in each step.

    Attributes
    ----------
    scale : float
        The factor of the loss.

    Examples
    --------
    >>> import floatsim as fs
    >>> scaler = fs.training.GradScaler(2.0**16)
    >>> isinstance(scaler, fs.training.LossScaler), scaler.scale
    (True, 65536.0)
    """

    by_division: ClassVar[bool] = False
    """Whether gradients are divided by the scale, in the place of a product with its inverse."""
    scale: float = 1.0

    def __post_init__(self) -> None:
        self.scale = as_positive(self.scale, "scale")
        with np.errstate(over="ignore"):
            rounded = float(np.float32(self.scale))
        if not 0 < rounded < math.inf:
            raise ValueError(f"scale must be above 0 and finite in FP32, such as 65536.0, not {self.scale!r}")
        self._found: dict[str, bool] = {}

    def overflowed(self, gradients: Gradients) -> bool:
        """Return whether the scaled gradients have NaN or infinity, by the test of this scaler."""
        return overflowed(gradients)

    def unscale(self, gradients: Gradients, optimizer: str = "") -> dict[str, FloatArray]:
        """Return the gradients without the scale, and note for `update` whether one has NaN or infinity.

        Parameters
        ----------
        gradients : mapping of str to FloatArray
            The scaled gradients.
        optimizer : str
            The name of the optimizer, if there are more than one.

        Returns
        -------
        dict of str to FloatArray
            Each gradient in its format: the product in FP32 with the inverse of the scale, which is rounded to FP32,
            and one rounding to the format. The product with an FP64 gradient is in FP64, as in PyTorch. All gradients
            are unscaled even if one is not finite.

        Raises
        ------
        TypeError
            For gradients that are not FloatArrays.
        RuntimeError
            If the gradients of this optimizer have been unscaled since the last `update`.
        """
        if optimizer in self._found:
            raise RuntimeError("unscale has been called for this optimizer since the last update")
        check_tensors(gradients, "gradients")
        self._found[optimizer] = self.overflowed(gradients)
        return {name: self._unscaled(gradient) for name, gradient in gradients.items()}

    def _unscaled(self, gradient: FloatArray) -> FloatArray:
        with np.errstate(over="ignore", divide="ignore"):
            scale = np.float32(self.scale)
            factor = scale if self.by_division else np.float32(1 / np.float64(scale))
        if factor == 1:
            return gradient
        operation = divide if self.by_division else multiply
        inside = inside_format(gradient.format)
        unscaled: FloatArray = operation(gradient, array(float(factor), FP32), format=inside)
        return unscaled.astype(gradient.format)

    @property
    def found(self) -> bool:
        """Whether gradients that were unscaled since the last `update` have NaN or infinity."""
        return any(self._found.values())

    def update(self, overflow: bool | None = None) -> bool:
        """Advance the state at the end of a step. Return whether the step is skipped.

        Parameters
        ----------
        overflow : bool, optional
            Whether a gradient had NaN or infinity. Default: as found by `unscale`.

        Returns
        -------
        bool

        Raises
        ------
        RuntimeError
            Without `overflow`, if no gradients were unscaled since the last `update`.
        """
        if overflow is None:
            if not self._found:
                raise RuntimeError("update needs overflow=, or gradients that were unscaled since the last update")
            overflow = self.found
        self._found = {}
        self.advance(as_flag(overflow, "overflow"))
        return bool(overflow)

    def advance(self, overflow: bool) -> None:
        """Change the scale. A static scale stays."""

    def state(self) -> dict[str, Any]:
        """Return scale and counters, for a trace."""
        return {"scale": self.scale}


@dataclass
class StaticLossScaler(LossScaler):
    """A loss scale that never changes. Steps with NaN or infinity are skipped.

    Parameters
    ----------
    scale : float
        The factor of the loss.

    Examples
    --------
    >>> import floatsim as fs
    >>> scaler = fs.training.StaticLossScaler(8.0)
    >>> scaler.unscale({"w": fs.array([2.0], "fp16")})
    {'w': FloatArray([0.25], FP16)}
    """


@dataclass
class GradScaler(LossScaler):
    """`torch.amp.GradScaler`: the scale is FP32, it is halved after an overflow and doubled after 2000 clean steps.

    Parameters
    ----------
    scale : float
        The first scale.
    growth_factor, backoff_factor : float
        The factors after `growth_interval` clean steps, and after an overflow.
    growth_interval : int
        The number of clean steps in a row before the scale grows.
    allow_fp16 : bool
        Whether gradients in FP16 may be unscaled. PyTorch refuses them.

    Attributes
    ----------
    tracker : int
        The number of clean steps since the last change.

    Raises
    ------
    ValueError
        For a scale of zero, and for factors that do not grow or do not back off.

    Notes
    -----
    PyTorch, AmpGradScalerKernels.cpp. After an overflow, scale = FP32(scale * backoff_factor) and the tracker is 0.
    There is no lower bound: the scale can become 0. After the last clean step of an interval, the scale is assigned
    FP32(scale * growth_factor) only if that is finite; the tracker becomes 0 in both cases. Verified against PyTorch
    2.13 and 2.15.

    Examples
    --------
    >>> import floatsim as fs
    >>> scaler = fs.training.GradScaler(1024.0, growth_interval=2)
    >>> [step.scale for step in fs.training.replay(scaler, [False, False, True, False, False])]
    [1024.0, 1024.0, 2048.0, 1024.0, 1024.0]
    >>> scaler.scale, scaler.tracker
    (2048.0, 0)
    """

    scale: float = 65536.0
    growth_factor: float = 2.0
    backoff_factor: float = 0.5
    growth_interval: int = 2000
    allow_fp16: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.scale, self.tracker = float(np.float32(self.scale)), 0
        as_index(self.growth_interval, "growth_interval", 1, 1 << 31)
        if not as_real(self.growth_factor, "growth_factor") > 1:
            raise ValueError(f"growth_factor must be above 1, not {self.growth_factor!r}")
        if not 0 < as_real(self.backoff_factor, "backoff_factor") < 1:
            raise ValueError(f"backoff_factor must be between 0 and 1, not {self.backoff_factor!r}")

    def unscale(self, gradients: Gradients, optimizer: str = "") -> dict[str, FloatArray]:
        """Return the gradients without the scale, as `LossScaler.unscale`. FP16 gradients are an error."""
        check_tensors(gradients, "gradients")
        refused = [name for name, gradient in gradients.items() if gradient.format == FP16]
        if refused and not self.allow_fp16:
            raise ValueError(
                f"the gradient of {refused[0]!r} is in FP16, which PyTorch does not unscale; keep FP32 master weights, "
                "or give allow_fp16=True"
            )
        return super().unscale(gradients, optimizer)

    def advance(self, overflow: bool) -> None:
        if overflow:
            self.scale, self.tracker = float(np.float32(self.scale * self.backoff_factor)), 0
        elif self.tracker + 1 == self.growth_interval:
            with np.errstate(over="ignore"):
                grown = float(np.float32(self.scale * self.growth_factor))
            self.scale, self.tracker = grown if math.isfinite(grown) else self.scale, 0
        else:
            self.tracker += 1

    def state(self) -> dict[str, Any]:
        return {"scale": self.scale, "tracker": self.tracker}


@dataclass
class ApexLossScaler(LossScaler):
    """The dynamic loss scaler of apex.amp: doubled after 2000 clean steps up to 2**24, halved after an overflow.

    Parameters
    ----------
    scale : float
        The first scale.
    window : int
        The number of clean steps in a row before the scale is doubled.
    least : float, optional
        The least scale.
    largest : float
        The largest scale.

    Notes
    -----
    apex.amp, scaler.py. Its Python path tests the FP32 sum of a gradient, not each element: a gradient of finite
    numbers whose sum overflows counts as an overflow. Here the sum is in order.

    Examples
    --------
    >>> import floatsim as fs
    >>> scaler = fs.training.ApexLossScaler(2.0**23, window=1)
    >>> [step.scale for step in fs.training.replay(scaler, [False] * 3)]
    [8388608.0, 16777216.0, 16777216.0]
    """

    scale: float = 65536.0
    window: int = 2000
    least: float | None = None
    largest: float = 2.0**24

    def __post_init__(self) -> None:
        super().__post_init__()
        self.unskipped = 0
        as_index(self.window, "window", 1, 1 << 31)
        as_positive(self.largest, "largest")
        if self.least is not None and as_positive(self.least, "least") > self.largest:
            raise ValueError(f"least must be at most largest={self.largest!r}, not {self.least!r}")

    def overflowed(self, gradients: Gradients) -> bool:
        sums = (sum_of(gradient, accumulate=FP32) for gradient in gradients.values())
        return not all(math.isfinite(float(each)) for each in sums)

    def advance(self, overflow: bool) -> None:
        if overflow:
            self.scale = max(self.least or 0.0, self.scale / 2)
            self.unskipped = 0
        else:
            self.unskipped += 1
        if self.unskipped == self.window:
            self.scale, self.unskipped = min(self.largest, self.scale * 2), 0

    def state(self) -> dict[str, Any]:
        return {"scale": self.scale, "unskipped": self.unskipped}


@dataclass
class DeepSpeedLossScaler(LossScaler):
    """DeepSpeed's DynamicLossScaler: the first overflows reduce a counter, the hysteresis, and not the scale.

    Parameters
    ----------
    scale : float
        The first scale. DeepSpeed's `initial_scale_power` is its exponent.
    factor : float
        The factor of growth and backoff.
    window : int
        The number of clean steps since the last overflow after which the scale grows.
    least : float
        The least scale. DeepSpeed's `min_loss_scale`.
    hysteresis : int
        The number of overflows before the scale is reduced.
    consecutive_hysteresis : bool
        Whether every clean step refills the hysteresis. Otherwise growth does.
    raise_at_least : bool
        Whether an overflow at the least scale is an error.

    Raises
    ------
    OverflowError
        In `update`, for an overflow at the least scale.

    Notes
    -----
    DeepSpeed, runtime/fp16/loss_scaler.py, with the defaults of its configuration.

    Examples
    --------
    >>> import floatsim as fs
    >>> scaler = fs.training.DeepSpeedLossScaler(256.0)
    >>> [step.scale for step in fs.training.replay(scaler, [True] * 4)]
    [256.0, 256.0, 128.0, 64.0]
    """

    scale: float = 65536.0
    factor: float = 2.0
    window: int = 1000
    least: float = 1.0
    hysteresis: int = 2
    consecutive_hysteresis: bool = False
    raise_at_least: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        as_index(self.window, "window", 1, 1 << 31)
        as_index(self.hysteresis, "hysteresis", 1, 1 << 31)
        as_real(self.least, "least", 0.0)
        if not as_real(self.factor, "factor") > 1:
            raise ValueError(f"factor must be above 1, not {self.factor!r}")
        self.iteration, self.last_overflow, self.left = 0, -1, self.hysteresis

    def advance(self, overflow: bool) -> None:
        if overflow:
            self._back_off()
            self.last_overflow = self.iteration
        else:
            if self.consecutive_hysteresis:
                self.left = self.hysteresis
            stable = self.iteration - self.last_overflow - 1
            if stable > 0 and stable % self.window == 0:
                self.scale, self.left = self.scale * self.factor, self.hysteresis
        self.iteration += 1

    def _back_off(self) -> None:
        if self.hysteresis != 1 and self.left != 1:
            self.left -= 1
            return
        if self.scale == self.least and self.raise_at_least:
            raise OverflowError(f"an overflow at the least loss scale, {self.least}; the run cannot go on")
        self.scale = max(self.scale / self.factor, self.least)

    def state(self) -> dict[str, Any]:
        return {"scale": self.scale, "hysteresis": self.left, "iteration": self.iteration}


@dataclass
class KerasLossScaler(LossScaler):
    """The LossScaleOptimizer of Keras 3: halved after an overflow, doubled after 2000 clean steps, without bounds.

    Parameters
    ----------
    scale : float
        The first scale.
    dynamic_growth_steps : int
        The number of clean steps in a row before the scale is doubled.

    Notes
    -----
    Keras 3, optimizers/loss_scale_optimizer.py. The scale is FP32. It can grow to infinity, and shrink to 0. Gradients
    are divided by the scale.

    Examples
    --------
    >>> import floatsim as fs
    >>> scaler = fs.training.KerasLossScaler(dynamic_growth_steps=2)
    >>> [step.scale for step in fs.training.replay(scaler, [False, True, False, False, False])]
    [32768.0, 32768.0, 16384.0, 16384.0, 32768.0]
    """

    by_division: ClassVar[bool] = True
    scale: float = 32768.0
    dynamic_growth_steps: int = 2000

    def __post_init__(self) -> None:
        super().__post_init__()
        as_index(self.dynamic_growth_steps, "dynamic_growth_steps", 1, 1 << 31)
        self.scale, self.counter = float(np.float32(self.scale)), 0

    def advance(self, overflow: bool) -> None:
        grows = not overflow and self.counter == self.dynamic_growth_steps - 1
        if overflow or grows:
            with np.errstate(over="ignore"):
                self.scale = float(np.float32(self.scale * (2.0 if grows else 0.5)))
            self.counter = 0
        else:
            self.counter += 1

    def state(self) -> dict[str, Any]:
        return {"scale": self.scale, "counter": self.counter}


# -- names and replays -------------------------------------------------------------------------------------------------

SCALERS = {
    "dynamic": GradScaler,
    "torch": GradScaler,
    "apex": ApexLossScaler,
    "deepspeed": DeepSpeedLossScaler,
    "keras": KerasLossScaler,
}


def as_loss_scaler(scale: float | str | LossScaler) -> LossScaler:
    """Return a loss scaler: of a number, of a name, or the scaler itself.

    Parameters
    ----------
    scale : float, str or LossScaler
        A number is a static scale. Names: "dynamic" (PyTorch's, with gradients in FP16 allowed), "torch", "apex",
        "deepspeed", "keras", or the text of a number.

    Returns
    -------
    LossScaler

    Raises
    ------
    ValueError
        For an unknown name, with the nearest match, and for a scale of zero.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.training.as_loss_scaler("1024")
    StaticLossScaler(scale=1024.0)
    """
    if isinstance(scale, LossScaler):
        return scale
    if isinstance(scale, str):
        name = scale.strip().lower()
        if name in SCALERS:
            return GradScaler(allow_fp16=True) if name == "dynamic" else SCALERS[name]()
        try:
            return StaticLossScaler(float(name))
        except ValueError as error:
            if "could not convert" not in str(error):
                raise
        raise ValueError(f"loss_scale={scale!r} is neither a number nor a known name; {name_hint(name, SCALERS)}")
    return StaticLossScaler(scale)


class LossScaleStep(NamedTuple):
    """One step of a replay.

    Attributes
    ----------
    step : int
        The number of the step, from 0.
    scale : float
        The scale of the loss in this step.
    overflow : bool
        Whether the step overflowed, so that its update was skipped.
    state : dict
        The state of the scaler after the step.
    """

    step: int
    scale: float
    overflow: bool
    state: dict[str, Any]


def replay(scaler: LossScaler, overflows: Iterable[bool]) -> list[LossScaleStep]:
    """Return what a scaler does for a recorded sequence of overflow flags.

    Parameters
    ----------
    scaler : LossScaler
        It is advanced.
    overflows : iterable of bool
        Whether each step overflowed.

    Returns
    -------
    list of LossScaleStep

    Raises
    ------
    TypeError
        For flags that are not booleans.
    OverflowError
        As the scaler's `update`.

    Examples
    --------
    Two overflows, as three scalers see them:

    >>> from floatsim.training import ApexLossScaler, DeepSpeedLossScaler, GradScaler, replay
    >>> for scaler in (GradScaler(), ApexLossScaler(), DeepSpeedLossScaler()):
    ...     print([int(step.scale) for step in replay(scaler, [True, False, True, False])])
    [65536, 32768, 32768, 16384]
    [65536, 32768, 32768, 16384]
    [65536, 65536, 65536, 32768]
    """
    steps = []
    for step, overflow in enumerate(overflows):
        scale = scaler.scale
        scaler.update(overflow)
        steps.append(LossScaleStep(step, scale, bool(overflow), scaler.state()))
    return steps
