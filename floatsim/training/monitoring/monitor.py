"""The monitor of a training run: the statistics that it keeps, and how it is attached to a training step."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from floatsim._lazy import plot_function
from floatsim.arrays.array.conversion import convert
from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.array.types import Floats
from floatsim.formats import FP32, FloatFormat, FormatLike, as_formats
from floatsim.formats._validation import as_index
from floatsim.quantization.scheme import as_name
from floatsim.training.monitoring.spikes import SpikePolicy, SpikeState
from floatsim.training.monitoring.statistics import (
    DEFAULT_FORMATS,
    GradientAgreement,
    TensorStatistics,
    UpdateStatistics,
    gradient_agreement,
    tensor_statistics,
    update_statistics,
)
from floatsim.training.networks.execution import Execution
from floatsim.training.networks.layers import Tensors
from floatsim.training.networks.networks import Network
from floatsim.training.optimizers.optimizers import Optimizer
from floatsim.training.policies.named import PolicyLike, as_policy

__all__ = ["Monitor", "MonitoredStep"]

SCALARS = ("loss", "accuracy", "loss_scale", "gradient_norm", "learning_rate", "skipped")
"""The numbers of a step that a monitor keeps."""

_PICTURES = {
    "tensors": "tensor_exponents",
    "updates": "update_ratios",
    "agreement": "gradient_agreement",
    "loss_scale": "loss_scale",
    "gradient_norm": "gradient_norms",
}
"""The functions of `floatsim.plot` by the kinds of pictures."""


@dataclass
class Monitor:
    """The statistics of a training run, step by step.

    Parameters
    ----------
    formats : format or iterable of format
        The formats whose conversions are counted.
    every : int
        Tensors, updates and agreements of every n-th step are kept. Numbers of all steps are kept, and so is the first
        tensor with a NaN or an infinity.
    spikes : SpikePolicy, optional
        In `fs.training.train`, batches are skipped by this policy of the gradient norm. Default: none is skipped.
    reference : Policy or str, optional
        In `fs.training.train`, gradients are compared with those of this policy, such as "fp32", for the same weights
        and images. It takes a further pass in each step that is kept. Default: no comparison.

    Attributes
    ----------
    tensors, updates, agreements : dict of str to list
        The statistics of the steps that are kept, by the name of the tensor. In a run, "layer0.linear" is the result of
        an operation, "layer0.linear.gradient" the gradient by its input, "layer0.weight.gradient" the gradient of a
        weight. Gradients of tensors have the loss scale.
    first_non_finite : TensorStatistics or None
        Of the first tensor with a NaN or an infinity.

    Examples
    --------
    >>> import floatsim as fs
    >>> monitor = fs.training.Monitor(["fp16"], every=2)
    >>> for step in range(4):
    ...     found = monitor.tensor(step, "layer0.gradient", [1e-9, 10.0**step])
    ...     monitor.scalars(step, loss=1 / (step + 1))
    >>> [found.max for found in monitor.tensors["layer0.gradient"]], monitor.trace("loss")
    ([1.0, 100.0], ([0, 1, 2, 3], [1.0, 0.5, 0.3333333333333333, 0.25]))

    In a run:

    >>> monitor = fs.training.Monitor("fp16", every=5, reference="fp32")
    >>> run = fs.training.train("bf16", lr=0.002, epochs=1, batch=256, monitor=monitor)
    >>> monitor.updates["layer0.weight"][-1].absorbed > 0.5, monitor.agreements["layer0.weight"][-1].cosine > 0.99
    (True, True)
    """

    formats: Iterable[FormatLike] | FormatLike = DEFAULT_FORMATS
    every: int = 1
    spikes: SpikePolicy | None = None
    reference: PolicyLike | None = None
    tensors: dict[str, list[TensorStatistics]] = field(default_factory=dict, init=False, repr=False)
    updates: dict[str, list[UpdateStatistics]] = field(default_factory=dict, init=False, repr=False)
    agreements: dict[str, list[GradientAgreement]] = field(default_factory=dict, init=False, repr=False)
    first_non_finite: TensorStatistics | None = field(default=None, init=False, repr=False)
    _scalars: dict[str, dict[int, float]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        self.formats = tuple(as_formats(self.formats))
        as_index(self.every, "every", 1, 1 << 62)
        if self.spikes is not None and not isinstance(self.spikes, SpikePolicy):
            raise TypeError(f"spikes must be an fs.training.SpikePolicy, not {self.spikes!r}")
        self.reference = None if self.reference is None else as_policy(self.reference)

    def keeps(self, step: int) -> bool:
        """Return whether the tensors of a step are kept."""
        return step % self.every == 0

    def tensor(self, step: int, name: str, x: Any) -> TensorStatistics | None:
        """Keep the statistics of a tensor; return them, or None in a step that is not kept."""
        kept = self.keeps(step)
        values = x.values if isinstance(x, FloatArray) else np.asarray(x, np.float64)
        broken = self.first_non_finite is None and not np.isfinite(values).all()
        if not (kept or broken):
            return None
        found = tensor_statistics(values, self.formats, name=name, step=step)
        if broken:
            self.first_non_finite = found
        if not kept:
            return None
        self.tensors.setdefault(name, []).append(found)
        return found

    def update(self, step: int, name: str, weights: Floats, updates: Floats, **options: Any) -> UpdateStatistics | None:
        """Keep the statistics of an update, as `update_statistics`; return them, or None in a step that is not kept."""
        if not self.keeps(step):
            return None
        found = update_statistics(weights, updates, name=name, step=step, **options)
        self.updates.setdefault(name, []).append(found)
        return found

    def agreement(self, step: int, name: str, gradients: Any, reference: Any) -> GradientAgreement | None:
        """Keep the agreement of a gradient with a reference; return it, or None in a step that is not kept."""
        if not self.keeps(step):
            return None
        found = gradient_agreement(gradients, reference, name=name, step=step)
        self.agreements.setdefault(name, []).append(found)
        return found

    def scalars(self, step: int, **numbers: float) -> None:
        """Keep numbers of a step: loss, accuracy, loss_scale, gradient_norm, learning_rate, skipped."""
        for name, value in numbers.items():
            self._scalars.setdefault(as_name(name, SCALARS, "the name of a number"), {})[step] = float(value)

    def trace(self, name: str) -> tuple[list[int], list[float]]:
        """Return the steps and the values of a number, for a picture."""
        found = self._scalars.get(as_name(name, SCALARS, "name"), {})
        return list(found), list(found.values())

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the histograms as plain data."""
        plain = ("name", "size", "min", "max", "mean", "zeros", "nans", "infinities", "step")
        rows = [
            {**{key: getattr(each, key) for key in plain},
             "losses": {fmt: asdict(losses) for fmt, losses in each.losses.items()}}
            for each in (found for listed in self.tensors.values() for found in listed)
        ]  # fmt: skip
        updates = [
            {"name": each.name, "step": each.step, "absorbed": each.absorbed, "ratio": each.ratio}
            for listed in self.updates.values()
            for each in listed
        ]
        agreements = [asdict(each) for listed in self.agreements.values() for each in listed]
        scalars = {name: {str(step): value for step, value in found.items()} for name, found in self._scalars.items()}
        return {"tensors": rows, "updates": updates, "agreements": agreements, "scalars": scalars}

    def __str__(self) -> str:
        """Return a table of the last step that was kept: zeros and conversion losses of tensors, absorbed updates."""
        formats: Any = self.formats
        names = [fmt.name for fmt in formats]
        width = max((len(name) for name in (*self.tensors, *self.updates)), default=6)
        heads = [f"{name + ' flushed':>13} {'overflowed':>10}" for name in names]
        head = "  ".join([f"{'tensor':{width}}   zeros", *heads])
        rows = []
        for name, found in self.tensors.items():
            losses = [found[-1].losses.get(each) for each in names]
            cells = [f"{one.flushed:13.1%} {one.overflowed:10.1%}" if one else f"{'-':>13} {'-':>10}" for one in losses]
            rows.append(f"{name:{width}}  {found[-1].zeros:6.1%}  " + "  ".join(cells))
        rows += [f"{name:{width}}  {found[-1].absorbed:6.1%} of the updates are absorbed"
                 for name, found in self.updates.items()]  # fmt: skip
        rows += [f"{name:{width}}  cosine with the reference {found[-1].cosine:.5f}, {found[-1].flipped:.1%} flipped"
                 for name, found in self.agreements.items()]  # fmt: skip
        return "\n".join([head, *rows])

    def plot(self, kind: str = "tensors", **keywords: Any) -> Any:
        """Draw a picture: of the last step that was kept "tensors", "updates" or "agreement", of all steps "loss_scale"
        or "gradient_norm".

        The keywords are those of `plot.tensor_exponents`, `plot.update_ratios`, `plot.gradient_agreement`,
        `plot.loss_scale` and `plot.gradient_norms`.
        """
        chosen = as_name(kind, tuple(_PICTURES), "kind")
        draw = plot_function("monitors", _PICTURES[chosen])
        kept: Mapping[str, Any] = {"tensors": self.tensors, "updates": self.updates, "agreement": self.agreements}
        if chosen in kept:
            return draw([each[-1] for each in kept[chosen].values()], **keywords)
        skipped = {step for step, value in zip(*self.trace("skipped"), strict=True) if value}
        steps, values = self.trace(chosen)
        return draw(values, [step in skipped for step in steps], steps=steps, **keywords)


# -- a monitor in a training step --------------------------------------------------------------------------------------


class MonitoredStep:
    """A monitor that is attached to the execution and the optimizer of a trainer.

    Parameters
    ----------
    monitor : Monitor
        The monitor.
    network : Network
        The network.
    execution : Execution
        Its results are passed to the monitor.
    optimizer : Optimizer
        Its updates are passed to the monitor.
    """

    def __init__(self, monitor: Monitor, network: Network, execution: Execution, optimizer: Optimizer) -> None:
        self.monitor, self.network, self.execution, self.optimizer = monitor, network, execution, optimizer
        self.norm, self._state = math.nan, SpikeState()
        self._reference = None if monitor.reference is None else Execution(monitor.reference)
        execution.watch = self._result

    def _result(self, name: str, x: FloatArray) -> None:
        self.monitor.tensor(self.execution.step, name, x)

    def start(self, step: int, weights: Tensors, used: Tensors, x: FloatArray) -> None:
        """Begin a step: keep the inputs and the weights as the step uses them."""
        self._before, self._used = weights, used
        self.optimizer.updates = {} if self.monitor.keeps(step) else None
        for name, value in {"input": x, **used}.items():
            self.monitor.tensor(step, name, value)

    def skips(self, step: int, gradients: Tensors) -> bool:
        """Keep the norm of the unscaled gradients, in float64. Return whether the spike policy skips the batch."""
        with np.errstate(over="ignore", invalid="ignore"):
            self.norm = math.sqrt(sum(float(np.sum(g.values**2)) for g in gradients.values()))
        self.monitor.scalars(step, gradient_norm=self.norm)
        if self.monitor.spikes is None:
            return False
        skip, self._state = self.monitor.spikes.step(self.norm, self._state)
        return skip

    def finish(
        self, step: int, stored: Tensors, gradients: Tensors, x: FloatArray, target: NDArray[np.int64], *,
        factor: float, **numbers: float,
    ) -> None:  # fmt: skip
        """End a step: keep the gradients, the updates, the agreement with the reference, and the numbers.

        Parameters
        ----------
        step : int
            The number of the step.
        stored : mapping of str to FloatArray
            The weights after the step.
        gradients : mapping of str to FloatArray
            The gradients as the backward pass returned them.
        x, target : FloatArray, ndarray of int
            The batch.
        factor : float
            The factor of the gradients: the loss scale times the factor of the loss.
        **numbers : float
            Numbers of the step.
        """
        self.monitor.scalars(step, **numbers)
        for name, gradient in gradients.items():
            self.monitor.tensor(step, f"{name}.gradient", gradient)
        if not self.monitor.keeps(step):
            return
        for name, change in (self.optimizer.updates or {}).items():
            self.monitor.update(step, name, self._before[name], change, stored=stored[name])
        if self._reference is not None:
            for name, wanted in self._reference_gradients(x, target).items():
                self.monitor.agreement(step, name, gradients[name].values / factor, wanted)

    def _reference_gradients(self, x: FloatArray, target: NDArray[np.int64]) -> dict[str, FloatArray]:
        """Return the gradients of the loss under the reference policy, for the weights that the step used."""
        policy: Any = self.monitor.reference
        weights, inputs = (
            each if isinstance(each, FloatFormat) else FP32 for each in (policy.weights, policy.activations)
        )
        used = self.network.used_weights(policy, {name: convert(w, weights) for name, w in self._used.items()})
        assert self._reference is not None
        return self.network.run(self._reference, used, convert(x, inputs), target).gradients
