"""The training loop: one policy on the digits, with loss scaling, clipping and events, and several policies side by
side."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from floatsim._lazy import plot_function
from floatsim.arrays.array.conversion import array, convert
from floatsim.arrays.array.float_array import FloatArray
from floatsim.formats import FP32, FP64
from floatsim.formats._validation import as_index, as_real, with_keyword_hints
from floatsim.training.monitoring.monitor import Monitor, MonitoredStep
from floatsim.training.networks.data import Data, digits_data
from floatsim.training.networks.execution import BadValue, Execution, has_special_values
from floatsim.training.networks.networks import Network, as_network
from floatsim.training.optimizers.gradients import accumulate_gradients, clip_by_global_norm
from floatsim.training.optimizers.optimizers import Optimizer, as_optimizer
from floatsim.training.policies.conversions import nearest
from floatsim.training.policies.named import PolicyLike, as_policy
from floatsim.training.policies.storage import store
from floatsim.training.scaling.loss_scaling import LossScaler, StaticLossScaler, as_loss_scaler, as_positive

__all__ = ["Comparison", "Epoch", "Event", "Trainer", "TrainingRun", "compare_policies", "train"]

MOST_SKIPPED = 50
"""A run ends if this number of steps in a row is skipped: 50 halvings of 65536 are far below the smallest useful
scale."""
SKIPS = ("skipped", "spike")
"""The kinds of events of a skipped step."""


class Event(NamedTuple):
    """Something that happened in a step.

    Attributes
    ----------
    step : int
        The number of the step, from 0.
    kind : str
        "skipped" (an overflow), "spike" (a batch was skipped because of its gradient norm), "scale" (the loss scale
        has changed) or "diverged".
    text : str
        What happened.
    """

    step: int
    kind: str
    text: str


class Epoch(NamedTuple):
    """The results of one epoch.

    Attributes
    ----------
    loss : float
        The mean loss of the batches, in float64.
    accuracy : float
        The share of correctly classified test images.
    zeros : float
        The share of zeros among the gradients of the last batch.
    scale : float
        The loss scale at the end.
    """

    loss: float
    accuracy: float
    zeros: float
    scale: float


@dataclass
class TrainingRun:
    """The course of one run. `train` returns it.

    Attributes
    ----------
    policy, network, optimizer : str
        What ran.
    epochs : list of Epoch
        The results of the epochs that were completed, and of the last one if the run diverged.
    events : list of Event
        Skipped steps, changes of the loss scale, divergence.
    losses, scales : list of float
        The loss and the loss scale of each step.
    bad : BadValue or None
        The first operation of the run whose result had NaN or infinity.
    diverged : bool
        Whether the run ended early.
    seconds : float
        The wall-clock time.
    weights : dict of str to FloatArray
        The stored weights at the end.
    monitor : Monitor or None
        The monitor of the run.
    chance : float
        The accuracy of guessing the most frequent class of the test images, plus three standard deviations.

    Examples
    --------
    >>> import floatsim as fs
    >>> run = fs.training.train("fp32", epochs=1, batch=256)
    >>> run.network, len(run.epochs), run.diverged
    ('mlp', 1, False)
    """

    policy: str
    network: str
    optimizer: str
    epochs: list[Epoch] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    losses: list[float] = field(default_factory=list, repr=False)
    scales: list[float] = field(default_factory=list, repr=False)
    bad: BadValue | None = None
    diverged: bool = False
    seconds: float = 0.0
    weights: dict[str, FloatArray] = field(default_factory=dict, repr=False)
    monitor: Monitor | None = field(default=None, repr=False)
    chance: float = field(default=math.nan, repr=False)

    @property
    def skipped(self) -> int:
        """The number of skipped steps."""
        return sum(event.kind in SKIPS for event in self.events)

    @property
    def accuracy(self) -> float:
        """The share of correctly classified test images after the last epoch; NaN without one."""
        return self.epochs[-1].accuracy if self.epochs else math.nan

    @property
    def loss(self) -> float:
        """The mean loss of the last epoch; NaN without one."""
        return self.epochs[-1].loss if self.epochs else math.nan

    @property
    def outcome(self) -> str:
        """The outcome in a few words: "trained", "at chance level", or "diverged" with the first bad operation.

        A run is at chance level if its accuracy is at most `chance`.
        """
        if self.diverged:
            return f"diverged: {self.bad or self.events[-1].text}"
        return "at chance level" if self.accuracy <= self.chance else "trained"

    def report(self) -> str:
        """Return the outcome in words: where a run diverged, or its loss and accuracy."""
        if not self.diverged:
            return f"{self.policy}: accuracy {self.accuracy:.3f}, loss {self.loss:.3g}, {self.skipped} skipped steps"
        where = f"The first operation with {self.bad.kind}: {self.bad.operation}" if self.bad else "No operation"
        place = f", layer {self.bad.module}, {'backward' if self.bad.backward else 'forward'}, step {self.bad.step}" \
            if self.bad else " had NaN or infinity; an update of the weights had"  # fmt: skip
        return f"{self.policy}: {self.events[-1].text}. {where}{place}."

    def to_dict(self) -> dict[str, Any]:
        """Return the run in types of JSON, without the weights."""
        return {
            "policy": self.policy, "network": self.network, "optimizer": self.optimizer,
            "epochs": [epoch._asdict() for epoch in self.epochs], "events": [event._asdict() for event in self.events],
            "losses": self.losses, "scales": self.scales, "diverged": self.diverged, "seconds": self.seconds,
            "first_bad": None if self.bad is None else self.bad._asdict(), "report": self.report(),
            **({} if self.monitor is None else {"monitor": self.monitor.to_dict()}),
        }  # fmt: skip

    def plot(self, **keywords: Any) -> Any:
        """Draw the loss of each epoch: `fs.plot.training_losses([run])`."""
        return plot_function("training", "training_losses")([self], **keywords)


class Trainer:
    """A network under a policy with an optimizer and a loss scaler: `step` runs one batch.

    Parameters
    ----------
    policy : Policy or str
        The policy.
    network : Network or str
        "mlp" (64-64-10), "cnn" or "transformer", or a network.
    optimizer : Optimizer or str
        "sgd", "momentum", "rmsprop", "adam", "adamw", or an optimizer. A named one stores weights and moments as the
        policy says.
    lr : float
        The learning rate of a named optimizer.
    loss_scale : float, str or LossScaler, optional
        A number, "dynamic", "apex", "deepspeed", "keras", or a scaler. Default: that of the policy.
    loss_factor : float
        A further factor of the loss, which is not divided out of the gradients.
    clip : float, optional
        The largest global norm of the gradients. Default: no clipping.
    micro_batches : int
        The parts of a batch whose gradients are added. The loss of each part is divided by their number, as users of
        PyTorch do.
    seed : int
        The seed of the first weights.
    monitor : Monitor, optional
        It keeps statistics of each step, and can skip batches.

    Attributes
    ----------
    execution : Execution
        The policy at work, with its trace.
    weights : dict of str to FloatArray
        The stored weights.
    scaler : LossScaler or None
        None without loss scaling.

    Raises
    ------
    TypeError, ValueError
        For unknown names, a loss scale of zero, and a learning rate that is NaN or negative.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> trainer = fs.training.Trainer("fp16", lr=0.1)
    >>> data = fs.training.digits_data()
    >>> loss = trainer.step(trainer.inputs(data.x[:32]), data.y[:32])
    >>> loss.format.name, trainer.weights["head.bias"].format.name
    ('FP16', 'FP16')
    """

    def __init__(
        self, policy: PolicyLike, network: str | Network = "mlp", optimizer: str | Optimizer = "sgd", *,
        lr: float = 0.1, loss_scale: float | str | LossScaler | None = None, loss_factor: float = 1.0,
        clip: float | None = None, micro_batches: int = 1, seed: int = 0, tracing: bool = False,
        monitor: Monitor | None = None,
    ) -> None:  # fmt: skip
        chosen = self.policy = as_policy(policy)
        self.network, self.execution = as_network(network), Execution(chosen, tracing=tracing)
        if not chosen.name:
            chosen.check_modules(self.network.paths)
            kinds = self.network.parameter_kinds()
            chosen.check_weights([*kinds, *kinds.values()])
        storage: dict[str, Any] = {"weights": chosen.weights, "state": chosen.state, "seed": chosen.seed,
                                   "weight_rounding": chosen.weight_rounding, "rounding": chosen.update,
                                   "kahan": chosen.kahan}  # fmt: skip
        self.optimizer = as_optimizer(optimizer, lr, **({} if isinstance(optimizer, Optimizer) else storage))
        scaler = as_loss_scaler(chosen.loss_scale if loss_scale is None else loss_scale)
        self.scaler = None if scaler == StaticLossScaler(1.0) else scaler
        self.loss_factor = as_real(loss_factor, "loss_factor")
        self.clip = None if clip is None else as_positive(clip, "clip")
        self.micro_batches = as_index(micro_batches, "micro_batches", 1, 1 << 20)
        stored: Any = chosen.weights
        self.weights = {name: store(w, stored) for name, w in self.network.initial(seed).items()}
        self.steps, self.skipped, self.spike = 0, False, False
        self.gradients: dict[str, FloatArray] = {}
        if not isinstance(monitor, Monitor | None):
            raise TypeError(f"monitor must be an fs.training.Monitor, not {monitor!r}")
        self._monitored = None if monitor is None else MonitoredStep(
            monitor, self.network, self.execution, self.optimizer
        )  # fmt: skip

    @property
    def gradient_norm(self) -> float:
        """The norm of the unscaled gradients of the last step, in float64. NaN without a monitor."""
        return math.nan if self._monitored is None else self._monitored.norm

    @property
    def scale(self) -> float:
        """The loss scale."""
        return 1.0 if self.scaler is None else self.scaler.scale

    def inputs(self, x: Any) -> FloatArray:
        """Return inputs of the network in the format of activations, by default FP32."""
        fmt: Any = self.policy.activations or FP32
        inputs: FloatArray = array(x, fmt)
        return inputs

    def used_weights(self) -> dict[str, FloatArray]:
        """Return the weights as a step uses them."""
        return self.network.used_weights(self.policy, self.weights)

    def step(self, x: FloatArray, target: Any) -> FloatArray:
        """Run one batch, and change the weights unless the gradients overflow. Return the loss.

        Parameters
        ----------
        x : FloatArray, (batch, inputs)
            The images, as `inputs` returns them.
        target : array of int, (batch,)
            The classes.

        Returns
        -------
        FloatArray
            Of several micro-batches the mean of their losses, in float64 and rounded once to the format of the loss.

        Raises
        ------
        ValueError
            For a batch with fewer images than micro-batches.
        """
        if len(target) < self.micro_batches:
            raise ValueError(f"micro_batches={self.micro_batches} needs a batch of as many images, not {len(target)}")
        run = self.execution
        run.start_step(self.steps)
        self.steps += 1
        used, parts, scale = self.used_weights(), [], self.scale
        if self._monitored is not None:
            self._monitored.start(run.step, self.weights, used, x)
        factor, losses = scale * self.loss_factor, list[FloatArray]()
        for rows in np.array_split(np.arange(len(target)), self.micro_batches):
            some = slice(rows[0], rows[-1] + 1)
            found = self.network.run(run, used, x[some], target[some], factor / self.micro_batches)
            losses.append(found.loss)
            parts.append(self._kept(found.gradients))
        self.gradients = parts[0] if len(parts) == 1 else accumulate_gradients(parts)
        loss = losses[0] if len(losses) == 1 else _mean(losses)
        self._update()
        run.finish_step()
        if self._monitored is not None:
            self._monitored.finish(
                run.step, self.weights, self.gradients, x, target, factor=factor,
                loss=float(loss.values), loss_scale=scale, learning_rate=self.optimizer.lr, skipped=self.skipped,
            )  # fmt: skip
        return loss

    def _kept(self, gradients: dict[str, FloatArray]) -> dict[str, FloatArray]:
        """Return the gradients of weights in the format in which they are kept: by default that of the weights."""
        if self.policy.weight_gradients is not None:
            return gradients
        formats = {name: self.weights[name].format for name in gradients}
        return {name: g if g.format == formats[name] else convert(g, formats[name]) for name, g in gradients.items()}

    def _update(self) -> None:
        gradients = self.gradients
        self.skipped = self.spike = False
        if self.scaler is not None:
            gradients = self.scaler.unscale(gradients)
            self.skipped = self.scaler.update()
        if self._monitored is not None and self._monitored.skips(self.execution.step, gradients) and not self.skipped:
            self.skipped = self.spike = True
        if self.skipped:
            return
        if self.clip is not None:
            gradients = clip_by_global_norm(gradients, self.clip).gradients
        self.weights = self.optimizer.step(self.weights, gradients)

    def accuracy(self, x: FloatArray, target: Any) -> float:
        """Return the share of correctly classified images."""
        silent = Execution(self.policy)
        silent.start_step(self.steps)
        logits, _ = self.network.forward(silent, self.used_weights(), x)
        return float(np.mean(np.argmax(logits.values, axis=1) == target))


def _mean(losses: list[FloatArray]) -> FloatArray:
    """Return the mean of losses, in float64 and rounded once to their format."""
    with np.errstate(all="ignore"):
        mean = np.mean([float(loss) for loss in losses])
    return nearest(FloatArray(np.asarray(mean).view(np.uint64), FP64), losses[0].format)


def _zeros(gradients: dict[str, FloatArray]) -> float:
    """Return the share of zeros among all gradients."""
    return sum(int((~g.nonzero()).sum()) for g in gradients.values()) / sum(g.size for g in gradients.values())


@with_keyword_hints
def train(
    policy: PolicyLike, network: str | Network = "mlp", optimizer: str | Optimizer = "sgd", *, epochs: int = 15,
    batch: int = 32, lr: float = 0.1, loss_scale: float | str | LossScaler | None = None, loss_factor: float = 1.0,
    clip: float | None = None, micro_batches: int = 1, seed: int = 0, data: Data | None = None, name: str = "",
    progress: Callable[[int], None] | None = None, monitor: Monitor | None = None,
) -> TrainingRun:  # fmt: skip
    """Train a small network on the digits under a policy.

    Parameters
    ----------
    policy : Policy or str
        The policy: a name such as "fp16", "autocast-bf16" or "fp16+masters+scaling", or a Policy.
    network, optimizer, lr, loss_scale, loss_factor, clip, micro_batches, seed
        As in `fs.training.Trainer`.
    epochs : int
        The number of epochs.
    batch : int
        The images of a batch.
    data : Data, optional
        The images. Default: `fs.training.digits_data(seed)`.
    name : str
        The name of the run. Default: that of the policy.
    progress : callable, optional
        It is called with the number of completed steps.
    monitor : Monitor, optional
        It keeps statistics of each step: exponents of tensors, absorbed updates, gradient norms, loss scales. With a
        policy of spikes, it skips batches. Default: none, at no cost.

    Returns
    -------
    TrainingRun
        Also of a run that diverges: it ends at that step, and `report()` names the first operation with NaN or
        infinity and its layer.

    Raises
    ------
    TypeError, ValueError
        As `fs.training.Trainer`, and for numbers of epochs and images below 1.

    Examples
    --------
    >>> import floatsim as fs
    >>> run = fs.training.train("fp16", epochs=2, lr=1e4)
    >>> print(run.report())  # doctest: +ELLIPSIS
    fp16: the run diverged in step ... The first operation with infinity: linear, layer head, forward, step ...
    """
    trainer = Trainer(
        policy, network, optimizer, lr=lr, loss_scale=loss_scale, loss_factor=loss_factor, clip=clip,
        micro_batches=micro_batches, seed=seed, monitor=monitor,
    )  # fmt: skip
    as_index(epochs, "epochs", 1, 1 << 31)
    as_index(batch, "batch", 1, 1 << 31)
    digits = digits_data(seed) if data is None else data
    images = len(digits.y)
    if (images % batch or batch) < micro_batches or images < micro_batches:
        raise ValueError(
            f"micro_batches={micro_batches} is more than the images of the smallest batch: "
            f"{images} images in batches of {batch}"
        )
    x, test_x = trainer.inputs(digits.x), trainer.inputs(digits.test_x)
    kind = type(trainer.optimizer).__name__.lower()
    run = TrainingRun(name or trainer.policy.name or "policy", trainer.network.name, kind, monitor=monitor)
    run.chance = _chance(digits.test_y)
    start = time.perf_counter()
    for epoch in range(epochs):
        first = len(run.losses)
        for rows in digits.batches(batch, seed, epoch):
            _one_step(run, trainer, x[rows], digits.y[rows])
            if progress is not None:
                progress(len(run.losses))
            if run.diverged:
                break
        with np.errstate(all="ignore"):
            loss = float(np.mean(run.losses[first:]))
        accuracy = trainer.accuracy(test_x, digits.test_y)
        if monitor is not None:
            monitor.scalars(trainer.steps - 1, accuracy=accuracy)
        run.epochs.append(Epoch(loss, accuracy, _zeros(trainer.gradients), trainer.scale))
        if run.diverged:
            break
    run.seconds, run.weights = time.perf_counter() - start, trainer.weights
    return run


def _one_step(run: TrainingRun, trainer: Trainer, x: FloatArray, target: Any) -> None:
    """Run a step, and add its loss and its events."""
    step, scale = trainer.steps, trainer.scale
    loss = float(trainer.step(x, target).values)
    bad = trainer.execution.bad
    run.losses.append(loss)
    run.scales.append(scale)
    run.bad = run.bad or bad
    if trainer.skipped:
        run.events.append(_skip(trainer, step))
    if trainer.scale != scale:
        run.events.append(Event(step, "scale", f"loss scale {scale:g} -> {trainer.scale:g}"))
    last = run.events[-2 * MOST_SKIPPED :]
    lost = sum(event.kind in SKIPS and event.step > step - MOST_SKIPPED for event in last) == MOST_SKIPPED
    broken = any(has_special_values(w) for w in trainer.weights.values())
    if lost or broken or not (math.isfinite(loss) or trainer.skipped):
        run.diverged = True
        what = f"{MOST_SKIPPED} steps in a row were skipped" if lost else f"the run diverged in step {step}"
        run.events.append(Event(step, "diverged", what))


def _chance(classes: NDArray[np.int64]) -> float:
    """Return the accuracy of guessing the most frequent class, plus three standard deviations."""
    share = np.bincount(classes).max() / len(classes)
    return float(share + 3 * math.sqrt(share * (1 - share) / len(classes)))


def _skip(trainer: Trainer, step: int) -> Event:
    """Return the event of a skipped step."""
    if trainer.spike:
        return Event(step, "spike", f"gradient norm {trainer.gradient_norm:.3g}")
    bad = trainer.execution.bad
    return Event(step, "skipped", f"overflow: {str(bad).rpartition(',')[0] if bad is not None else 'a gradient'}")


# -- several policies --------------------------------------------------------------------------------------------------


@dataclass
class Comparison:
    """Runs of several policies. `compare_policies` returns it.

    Attributes
    ----------
    runs : list of TrainingRun
        One for each policy.
    """

    runs: list[TrainingRun]

    def __str__(self) -> str:
        width = max(len(run.policy) for run in self.runs)
        head = f"{'policy':{width}}  accuracy      loss  zeros  skipped  scale  outcome"
        rows = [
            f"{run.policy:{width}}  {run.accuracy:8.3f}  {run.loss:8.3g}  {run.epochs[-1].zeros:5.1%}  "
            f"{run.skipped:7}  {run.epochs[-1].scale:5g}  {run.outcome}"
            for run in self.runs
        ]
        return "\n".join([head, *rows])

    def to_dict(self) -> dict[str, Any]:
        """Return the runs in types of JSON."""
        return {"runs": [run.to_dict() for run in self.runs]}

    def plot(self) -> Any:
        """Draw loss and accuracy of all runs: `fs.plot.training_figure(runs)`."""
        return plot_function("training", "training_figure")(self.runs)


def compare_policies(
    policies: Sequence[PolicyLike], *, progress: Callable[[Iterable[Any]], Iterable[Any]] | None = None, **options: Any
) -> Comparison:
    """Train the same network under several policies: equal first weights, batches and options.

    Parameters
    ----------
    policies : sequence of Policy or str
        The policies.
    progress : callable, optional
        It gets the policies, and yields them, for instance to draw a progress bar.
    **options
        Keywords of `fs.training.train`.

    Returns
    -------
    Comparison

    Raises
    ------
    ValueError
        Without policies, and as in `fs.training.train`.

    Examples
    --------
    >>> import floatsim as fs
    >>> found = fs.training.compare_policies(["fp32", "fp16"], epochs=1, batch=256)
    >>> [run.policy for run in found.runs]
    ['fp32', 'fp16']
    """
    chosen = [as_policy(policy) for policy in policies]
    if not chosen:
        raise ValueError("policies must name at least one policy, such as 'fp16'")
    if options.get("loss_scale") is not None:
        chosen = [replace(policy, loss_scale=1.0) for policy in chosen]
    return Comparison([train(policy, **options) for policy in (chosen if progress is None else progress(chosen))])
