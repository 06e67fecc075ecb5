"""SGD, RMSProp, Adam and AdamW in PyTorch's order of operations, with every rounding in the format of the tensor."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import KW_ONLY, dataclass, field, fields
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from floatsim.accumulation.evidence import Fact, check_compared, optional_version
from floatsim.arrays.array.conversion import convert
from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.call.options import Context, context, get_context
from floatsim.arrays.call.random_sources import RandomGenerator
from floatsim.arrays.call.random_stream import RandomStream
from floatsim.arrays.elementwise.arithmetic import add, subtract
from floatsim.formats import BF16, FP16, FP32, FloatFormat, FormatLike, as_format
from floatsim.formats._validation import as_flag, as_real, name_hint, with_keyword_hints
from floatsim.formats.rounding import Rounding, RoundingLike, as_member
from floatsim.quantization.scheme import SchemeLike
from floatsim.training.optimizers.evidence import EVIDENCE
from floatsim.training.policies.arithmetic import ROUNDINGS, Arithmetic, CudaArithmetic, FusedArithmetic
from floatsim.training.policies.conversions import check_tensors, nearest_number, with_cuda_nan
from floatsim.training.policies.storage import Storage, as_storage, store, unsigned

__all__ = ["OPTIMIZERS", "SGD", "Adam", "AdamW", "Optimizer", "RMSProp", "as_optimizer"]

Tensors: TypeAlias = Mapping[str, FloatArray]


def _share(value: Any, argument: str) -> float:
    """Return a number from 0 to below 1."""
    number = as_real(value, argument, 0.0)
    if number >= 1:
        raise ValueError(f"{argument} must be below 1, not {value!r}")
    return number


class _Scalars:
    """Arithmetic on the scalars of an optimizer: in float64, and each result rounded to a format if one is given."""

    def __init__(self, fmt: FloatFormat | None) -> None:
        self._format = fmt

    def number(self, value: Any) -> float:
        """Return a number, rounded to the format to nearest, ties to even."""
        return float(value) if self._format is None else float(nearest_number(float(value), self._format).item())

    def less(self, a: float, b: float) -> float:
        """Return a - b."""
        return self.number(a - b)

    def product(self, a: float, b: float) -> float:
        """Return a * b."""
        return self.number(a * b)

    def quotient(self, a: float, b: float) -> float:
        """Return a / b. A division by zero is infinite or NaN."""
        with np.errstate(all="ignore"):
            return self.number(np.float64(a) / np.float64(b))

    def power(self, a: float, exponent: float) -> float:
        """Return a to a power."""
        return self.number(a**exponent)


class _Recipe(NamedTuple):
    """How a library updates tensors: the arithmetic of the lines, and the format of the scalars (None: float64)."""

    lines: Arithmetic
    scalars: FloatFormat | None = None


RECIPES = {
    "cuda": _Recipe(CudaArithmetic(reciprocal_division=True)),
    "cuda-foreach": _Recipe(CudaArithmetic()),
    "cuda-fused": _Recipe(FusedArithmetic(), FP32),
}
"""PyTorch's optimizers on a GPU: foreach=False, foreach=True, fused=True."""
_FIXED = ("weights", "state", "weight_rounding", "rounding", "kahan", "scalars")
"""The options that a recipe fixes."""


def _check_format(recipe: str, name: str, weight: FloatFormat, gradient: FloatFormat) -> None:
    """Raise a ValueError unless a weight and its gradient have one format that was recorded on a GPU."""
    if weight not in (FP32, BF16, FP16) or gradient != weight:
        raise ValueError(
            f"recipe={recipe!r} is known for weights and gradients in one format, FP32, BF16 or FP16; {name!r} has "
            f"{weight.name} and a gradient in {gradient.name}"
        )


@dataclass
class Optimizer:
    """The base of all optimizers: the learning rate, the formats, and how a weight is changed.

    Parameters
    ----------
    lr : float
        The learning rate.
    weight_decay : float
        The factor of the weights that are added to the gradient, or in AdamW subtracted from the weights.
    weights : format or scheme, optional
        How weights are stored. Default: in the format of each weight.
    state : format or scheme, optional
        How the moments are stored: a format, or "dynamic8", 8-bit numbers in blocks. Default: in the format of each
        weight.
    weight_rounding : Rounding or str
        The rounding mode of a changed weight. Stochastic rounding draws new numbers in each step.
    rounding : str
        Where lines are rounded: "line", "operation" or "step".
        `floatsim.training.policies.arithmetic.Arithmetic` defines them.
        With a `weight_rounding` other than "ties_to_even", the change of a weight is as in "step": it is computed in
        FP32, and the weight is rounded when it is stored. If the weight is stored in the format of the computation, the
        last operation has the mode.
    kahan : bool
        Whether each weight has a compensation in its format: y = d - c; t = w + y; c = (t - w) - y; w = t, where d is
        the change of the weight w, rounded to its format. Each operation is rounded, ties to even.
    seed : int or generator
        The seed of stochastic rounding: an integer, or `fs.Philox`, `fs.Threefry` or `fs.Lfsr`.
    recipe : str, optional
        How PyTorch 2.11 updates tensors on a GPU: "cuda" (one tensor after the other, foreach=False), "cuda-foreach"
        (its default) or "cuda-fused" (fused=True). For FP32, BF16 and FP16, in SGD, Adam and AdamW. A recipe fixes all
        options of formats and roundings. Default: as on a CPU, by `rounding`.
    device : str, optional
        "h200": recipes that were not compared with this device are refused.
    version : str, optional
        The version of torch on the device, such as "2.11.0". Other versions are refused.
    strict : bool
        Whether steps are refused that were not compared with the device: other formats, options and more steps than
        those of `floatsim.training.optimizers.evidence.EVIDENCE`.

    Attributes
    ----------
    moments : dict
        For each weight its moments by name, as FloatArrays.
    steps : int
        The number of steps so far. It is never rounded.
    weight_steps : dict
        For each weight the number of steps in which it had a gradient: t of Adam's lines.
    updates : dict or None
        A dict is filled in each step: the change of each weight before rounding, float64. Default: None.

    Raises
    ------
    TypeError, ValueError
        For a learning rate that is NaN, infinite or negative, for unknown formats and names, and for a recipe together
        with an option that it fixes.
    NotDescribedError
        A ValueError: for devices and versions that were not recorded, and with `strict`, by `step`, for steps that were
        not. The message has the recorded ones.

    Notes
    -----
    The rounding mode of `fs.context` does not apply: lines are rounded to nearest, ties to even, and weights by
    `weight_rounding`. The other options of the context apply, such as `ftz`.

    `weights` and `state` are formats of storage. A line is rounded to the format of the tensor that it is given: with
    weights="fp32", BF16 weights are in FP32 after the first step, and the lines and the moments of that step are
    rounded to BF16. Weights that are given in their format of storage avoid that.

    Examples
    --------
    >>> import floatsim as fs
    >>> optimizer = fs.training.SGD(lr=0.1)
    >>> isinstance(optimizer, fs.training.Optimizer), optimizer.lr
    (True, 0.1)
    """

    lr: float
    _: KW_ONLY
    weight_decay: float = 0.0
    weights: SchemeLike | None = None
    state: SchemeLike | None = None
    weight_rounding: RoundingLike = "ties_to_even"
    rounding: str = "line"
    kahan: bool = False
    seed: int | RandomGenerator = 0
    recipe: str | None = None
    device: str | None = None
    version: str | None = None
    strict: bool = False
    moments: dict[str, dict[str, FloatArray]] = field(default_factory=dict, init=False, repr=False)
    steps: int = field(default=0, init=False, repr=False)
    weight_steps: dict[str, int] = field(default_factory=dict, init=False, repr=False)
    updates: dict[str, NDArray[np.float64]] | None = field(default=None, init=False, repr=False)
    _has_recipes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.lr = as_real(self.lr, "lr", 0.0)
        self.weight_decay = as_real(self.weight_decay, "weight_decay", 0.0)
        self._weights, self._state = as_storage(self.weights, "weights"), as_storage(self.state, "state")
        self._mode = as_member(Rounding, self.weight_rounding, "weight_rounding")
        if self.rounding not in ROUNDINGS:
            raise ValueError(f"rounding={self.rounding!r} is not known; {name_hint(self.rounding, ROUNDINGS)}")
        as_flag(self.kahan, "kahan")
        if self.kahan and self._mode is not Rounding.TIES_TO_EVEN:
            mode = self._mode.name.lower()
            raise ValueError(f"kahan=True and weight_rounding={mode!r} exclude each other; use 'ties_to_even'")
        self._stream = RandomStream(self.seed)
        self._lines = Arithmetic(self.rounding)
        if self.recipe is not None:
            self._check_recipe(self.recipe)
            self._lines = RECIPES[self.recipe].lines
        self._check_device()
        self._of_weights = self._lines if self._mode is Rounding.TIES_TO_EVEN else Arithmetic("step")

    def step(self, parameters: Tensors, gradients: Tensors, lr: float | None = None) -> dict[str, FloatArray]:
        """Return the parameters after one step.

        Parameters
        ----------
        parameters : mapping of str to FloatArray
            The weights. They are not changed.
        gradients : mapping of str to FloatArray
            The gradient of each weight. A weight without a gradient stays.
        lr : float, optional
            The learning rate of this step. Default: that of the optimizer.

        Returns
        -------
        dict of str to FloatArray
            The new weights, stored in their formats.

        Raises
        ------
        TypeError, ValueError
            For a gradient without a weight or of another shape, for moments of another shape, and for tensors that are
            not FloatArrays. The optimizer is then as before the step.
        """
        rate = self.lr if lr is None else as_real(lr, "lr", 0.0)
        check_tensors(parameters, "parameters")
        check_tensors(gradients, "gradients")
        for name, gradient in gradients.items():
            if name not in parameters:
                raise ValueError(f"there is no parameter {name!r}; {name_hint(name, parameters)}")
            if gradient.shape != parameters[name].shape:
                raise ValueError(
                    f"the gradient {gradient.shape} of {name!r} does not fit the parameter {parameters[name].shape}"
                )
            if self.recipe is not None:
                _check_format(self.recipe, name, parameters[name].format, gradient.format)
                self._check_compared(name, parameters[name].format)
        moments = {name: dict(kept) for name, kept in self.moments.items()}
        before = moments, self.weight_steps, self.steps, self._stream.calls
        self.steps += 1
        self.weight_steps = self.weight_steps | {name: self.weight_steps.get(name, 0) + 1 for name in gradients}
        try:
            with context(rounding="ties_to_even"):
                return {
                    name: self._changed(name, weight, gradients[name], rate) if name in gradients else weight
                    for name, weight in parameters.items()
                }
        except BaseException:
            self.moments, self.weight_steps, self.steps, self._stream.calls = before
            raise

    def _check_recipe(self, recipe: Any) -> None:
        """Raise a ValueError for an unknown recipe, and for options that it fixes."""
        if recipe not in RECIPES:
            raise ValueError(f"recipe={recipe!r} is not known; {name_hint(str(recipe), RECIPES)}")
        if not self._has_recipes:
            raise ValueError(f"{type(self).__name__} has no recipe; recipes are known for SGD, Adam and AdamW")
        for option in fields(self):
            value = self._mode if option.name == "weight_rounding" else getattr(self, option.name)
            if option.name in _FIXED and value not in (option.default, Rounding.TIES_TO_EVEN):
                raise ValueError(f"recipe={recipe!r} fixes {option.name}; {option.name}={value!r} must not be given")

    def _check_device(self) -> None:
        """Raise an error for an unknown device or version, and for a strict optimizer without a recipe of a device."""
        optional_version(self.device, self.version)
        strict = as_flag(self.strict, "strict")
        if self.recipe is None and (strict or self.device is not None):
            raise ValueError(
                f"strict= and device= belong to a recipe of a GPU: pass recipe=, one of {', '.join(EVIDENCE)}"
            )

    def _check_compared(self, name: str, fmt: FloatFormat) -> None:
        """Raise a NotDescribedError if the optimizer is strict, and the next step of a weight was not compared."""
        if self.strict and self.recipe is not None:
            steps = self.weight_steps.get(name, 0) + 1
            changed = get_context() != Context()
            facts: dict[str, Fact] = {
                "format": fmt.name, "steps": steps, "context": "changed" if changed else "default",
                "weight_decay": _sign(self.weight_decay), **self._facts(),
            }  # fmt: skip
            kind = type(self).__name__
            check_compared(f"{kind} with recipe {self.recipe!r}", facts, EVIDENCE[self.recipe].get(kind, ()))

    def _facts(self) -> dict[str, Fact]:
        """Return the options that `floatsim.training.optimizers.evidence` has for this optimizer."""
        raise NotImplementedError

    # -- for the optimizers --------------------------------------------------------------------------------------------

    def _changed(self, name: str, weight: FloatArray, gradient: FloatArray, lr: float) -> FloatArray:
        """Return a weight after one step."""
        raise NotImplementedError

    def _moment(self, name: str, key: str, weight: FloatArray) -> FloatArray:
        """Return a moment as it was stored, at first zeros in its format."""
        fmt = self._state if isinstance(self._state, FloatFormat) else weight.format
        return self._kept_or_zeros(name, key, weight, fmt)

    def _kept_or_zeros(self, name: str, key: str, weight: FloatArray, fmt: FloatFormat) -> FloatArray:
        """Return what is kept for a weight, at first zeros in a format."""
        kept = self.moments.setdefault(name, {})
        if key not in kept:
            kept[key] = FloatArray(np.zeros(weight.shape, fmt.code_dtype), fmt)
        if kept[key].shape != weight.shape:
            raise ValueError(
                f"moments[{name!r}][{key!r}] {kept[key].shape} does not fit the parameter {weight.shape}; "
                "use a new optimizer"
            )
        return kept[key]

    def _keep(self, name: str, key: str, value: FloatArray, weight: FloatArray, positive: bool = False) -> FloatArray:
        """Store a moment. Return the numbers that are stored."""
        storage: Storage = weight.format if self._state is None else self._state
        kept = self._as_recorded(store(value, unsigned(storage) if positive else storage))
        self.moments.setdefault(name, {})[key] = kept
        return kept if self._lines.every != "step" else value

    def _as_recorded(self, x: FloatArray) -> FloatArray:
        """Return a tensor with the NaN codes of a GPU, if the optimizer has a recipe of one."""
        return x if self.recipe is None else with_cuda_nan(x)

    def _with_decay(self, gradient: FloatArray, weight: FloatArray) -> FloatArray:
        """Return gradient + weight_decay * weight."""
        return self._lines.add_scaled(gradient, weight, self._decay) if self.weight_decay else gradient

    @property
    def _decay(self) -> float:
        """The weight decay as the lines take it."""
        return self.weight_decay

    def _add_scaled(self, name: str, weight: FloatArray, y: FloatArray, factor: float) -> FloatArray:
        """Return the weight that is stored for weight + factor * y."""
        if self.updates is not None:
            self.updates[name] = factor * y.values
        if self.kahan:
            return self._compensated(name, weight, self._of_weights.product(y, factor, weight.format))
        with self._last_operation(weight):
            changed = self._of_weights.add_scaled(weight, y, factor)
        return self._stored(changed, weight)

    def _add_quotient(
        self, name: str, weight: FloatArray, a: FloatArray, b: FloatArray, factor: float, base: FloatArray | None = None
    ) -> FloatArray:
        """Return the weight that is stored for weight + (factor * a) / b. `base` is the weight after its decay."""
        start = weight if base is None else base
        if self.updates is not None:
            with np.errstate(all="ignore"):
                self.updates[name] = factor * a.values / b.values + (start.values - weight.values)
        lines = self._of_weights
        if self.kahan:
            return self._compensated(name, start, lines.quotient(a, b, factor, weight.format))
        changed = lines.add_quotient(start, a, b, factor, weight.format, self._last_operation(weight))
        return self._stored(changed, weight)

    def _last_operation(self, weight: FloatArray) -> AbstractContextManager[Any]:
        """Return the context of the operation that changes a weight: its result may have the format of storage."""
        if self._mode is Rounding.TIES_TO_EVEN or self._storage(weight) != self._of_weights.inside(weight.format):
            return nullcontext()
        return context(rounding=self._mode, seed=self._stream)

    def _storage(self, weight: FloatArray) -> Storage:
        return weight.format if self._weights is None else self._weights

    def _stored(self, value: FloatArray, weight: FloatArray) -> FloatArray:
        return self._as_recorded(store(value, self._storage(weight), self._mode, self._stream))

    def _compensated(self, name: str, weight: FloatArray, change: FloatArray) -> FloatArray:
        """Return the weight after a change, by Kahan's compensated addition in the format of the weight."""
        fmt = weight.format
        y = subtract(convert(change, fmt), self._kept_or_zeros(name, "compensation", weight, fmt), format=fmt)
        total: FloatArray = add(weight, y, format=fmt)
        self.moments[name]["compensation"] = subtract(subtract(total, weight, format=fmt), y, format=fmt)
        return self._stored(total, weight)


def _sign(number: float) -> str:
    """Return what the evidence says of a factor that may be zero."""
    return "positive" if number else "none"


@with_keyword_hints
@dataclass
class SGD(Optimizer):
    """Stochastic gradient descent, with momentum if wanted.

    Parameters
    ----------
    lr : float
        The learning rate.
    momentum : float
        The factor of the moment in each step. 0: no moment.
    dampening : float
        The share of the gradient that does not enter the moment.
    nesterov : bool
        Whether the momentum looks ahead.
    weight_decay, weights, state, weight_rounding, rounding, kahan, seed, recipe, device, version, strict
        As in `fs.training.Optimizer`.

    Notes
    -----
    The lines of `torch.optim.SGD` 2.13, where g is the gradient and b the moment:

    1. With weight decay: g = g + weight_decay * w.
    2. With momentum: b = g in the first step, then b = momentum * b; b = b + (1 - dampening) * g. g = b; with nesterov,
       g = g + momentum * b.
    3. w = w - lr * g.

    Examples
    --------
    In FP16, an update below half an ulp of the weight is absorbed:

    >>> import floatsim as fs
    >>> weight, gradient = {"w": fs.array([1.0], "fp16")}, {"w": fs.array([1.0], "fp16")}
    >>> [fs.training.SGD(lr).step(weight, gradient)["w"].item() for lr in (1e-4, 1e-3)]
    [1.0, 0.9990234375]
    """

    momentum: float = 0.0
    dampening: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        as_real(self.momentum, "momentum", 0.0)
        if as_flag(self.nesterov, "nesterov") and (not self.momentum or self.dampening):
            raise ValueError("nesterov=True needs a momentum, and no dampening")

    def _facts(self) -> dict[str, Fact]:
        return {"momentum": _sign(self.momentum), "dampening": self.dampening, "nesterov": self.nesterov}

    def _changed(self, name: str, weight: FloatArray, gradient: FloatArray, lr: float) -> FloatArray:
        g, lines = self._with_decay(gradient, weight), self._lines
        if self.momentum:
            first = "momentum" not in self.moments.get(name, {})
            b = g if first else lines.scaled(self._moment(name, "momentum", weight), self.momentum)
            b = self._keep(name, "momentum", b if first else lines.add_scaled(b, g, 1 - self.dampening), weight)
            g = lines.add_scaled(g, b, self.momentum) if self.nesterov else b
        return self._add_scaled(name, weight, g, -lr)


@with_keyword_hints
@dataclass
class RMSProp(Optimizer):
    """RMSProp: the gradient is divided by the root of the mean of its squares.

    Parameters
    ----------
    lr : float
        The learning rate.
    alpha : float
        The share of the old mean in each step.
    eps : float
        Added to the root.
    momentum : float
        The factor of the moment in each step. 0: no moment.
    centered : bool
        Whether the square of the mean is subtracted from the mean of the squares.
    weight_decay, weights, state, weight_rounding, rounding, kahan, seed, recipe, device, version, strict
        As in `fs.training.Optimizer`.

    Notes
    -----
    The lines of `torch.optim.RMSprop` 2.13: v = alpha * v; v = v + ((1 - alpha) * g) * g; d = sqrt(v); d = d + eps;
    w = w + (-lr * g) / d. Centered: m = m + (1 - alpha) * (g - m), and d = sqrt(v - m * m). With momentum:
    b = momentum * b; b = b + g / d; w = w - lr * b.

    Examples
    --------
    >>> import floatsim as fs
    >>> weight, gradient = {"w": fs.array([1.0], "fp32")}, {"w": fs.array([0.5], "fp32")}
    >>> fs.training.RMSProp(0.01).step(weight, gradient)["w"]
    FloatArray([0.900000036], FP32)
    """

    alpha: float = 0.99
    eps: float = 1e-8
    momentum: float = 0.0
    centered: bool = False
    _has_recipes: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        _share(self.alpha, "alpha")
        as_real(self.eps, "eps", 0.0)
        as_real(self.momentum, "momentum", 0.0)
        as_flag(self.centered, "centered")

    def _changed(self, name: str, weight: FloatArray, gradient: FloatArray, lr: float) -> FloatArray:
        g, lines = self._with_decay(gradient, weight), self._lines
        v = lines.scaled(self._moment(name, "squares", weight), self.alpha)
        v = self._keep(name, "squares", lines.add_product(v, g, g, 1 - self.alpha), weight, positive=True)
        variance = v
        if self.centered:
            m = lines.lerp(self._moment(name, "mean", weight), g, 1 - self.alpha)
            m = self._keep(name, "mean", m, weight)
            variance = lines.add_product(v, m, m, -1.0)
        d = lines.raised(lines.root(variance), self.eps)
        if not self.momentum:
            return self._add_quotient(name, weight, g, d, -lr)
        b = lines.scaled(self._moment(name, "momentum", weight), self.momentum)
        quotient = lines.quotient(g, d, 1.0, b.format)
        b = self._keep(name, "momentum", lines.added(b, quotient), weight)
        return self._add_scaled(name, weight, b, -lr)


@with_keyword_hints
@dataclass
class Adam(Optimizer):
    """Adam: the mean of the gradients divided by the root of the mean of their squares.

    Parameters
    ----------
    lr : float
        The learning rate.
    betas : tuple of float
        The shares of the old means in each step.
    eps : float
        Added to the root. With `rounding="operation"`, it is rounded to the format of the state: 1e-8 is 0 in FP16.
    weight_decay, weights, state, weight_rounding, rounding, kahan, seed, recipe, device, version, strict
        As in `fs.training.Optimizer`. Weight decay is added to the gradient.
    scalars : format, optional
        The format of the scalars, as in implementations that keep them beside the tensors: lr, the betas, eps and
        weight_decay are rounded to it, and so is each result of line 4 and each 1 - beta. Betas up to 1 are accepted
        then: 0.999 is 1.0 in BF16, no gradient changes v, and line 5 divides by zero. Default: float64, as in PyTorch.

    Notes
    -----
    The lines of `torch.optim.Adam` 2.13, where t is the number of steps in which the weight had a gradient, and the
    numbers of line 4 are float64:

    1. With weight decay: g = g + weight_decay * w; in AdamW w = (1 - lr * weight_decay) * w. AdamW with kahan=True has
       two compensated additions, of d = (-lr * weight_decay) * w and of line 6.
    2. m = m + (1 - beta1) * (g - m).
    3. v = beta2 * v; v = v + ((1 - beta2) * g) * g.
    4. s = lr / (1 - beta1**t); r = sqrt(1 - beta2**t).
    5. d = sqrt(v); d = d / r; d = d + eps.
    6. w = w + (-s * m) / d.

    With a recipe of a GPU, line 3 adds (1 - beta2) * (g * g), and line 6 is w + (-s) * (m / d) with one rounding of the
    sum. "cuda" multiplies by 1 / r in line 5. "cuda-fused" has the scalars in FP32; m = beta1 * m + (g - beta1 * g), v
    = beta2 * v + (g * g - beta2 * (g * g)) with one rounding of each sum, lines 5 and 6 as above, and in AdamW w = w -
    (lr * weight_decay) * w.

    With `scalars`, the operations on scalars are computed in float64 and rounded to the format, ties to even, one by
    one: beta1**t, 1 - beta1**t, s, beta2**t, 1 - beta2**t, r, 1 - beta1, 1 - beta2; in AdamW lr * weight_decay and one
    minus that.

    Examples
    --------
    The first step of Adam has the size of the learning rate, 0.001. In FP16, small gradients have squares of zero:

    >>> import floatsim as fs
    >>> for fmt in ("fp32", "bf16", "fp16"):
    ...     weight, gradient = {"w": fs.array([0.0], fmt)}, {"w": fs.array([1e-4], fmt)}
    ...     print(fs.training.Adam(1e-3).step(weight, gradient)["w"])
    FloatArray([-0.00099989993], FP32)
    FloatArray([-0.0009995], BF16)
    FloatArray([-inf], FP16)
    """

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    scalars: FormatLike | None = field(default=None, kw_only=True)
    decoupled = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.betas, tuple | list) or len(self.betas) != 2:
            raise ValueError(f"betas must be two numbers, such as (0.9, 0.999), not {self.betas!r}")
        of_recipe = RECIPES[self.recipe].scalars if self.recipe is not None else None
        self._scalars = _Scalars(of_recipe if self.scalars is None else as_format(self.scalars))
        for number, beta in enumerate(self.betas, 1):
            if self.scalars is None or beta != 1:
                _share(beta, f"beta{number}")
        as_real(self.eps, "eps", 0.0)

    def _facts(self) -> dict[str, Fact]:
        return {"betas": tuple(self.betas), "eps": self.eps}

    def _changed(self, name: str, weight: FloatArray, gradient: FloatArray, lr: float) -> FloatArray:
        lines, scalars, given = self._lines, self._scalars, weight
        beta1, beta2, eps, lr = (scalars.number(x) for x in (*self.betas, self.eps, lr))
        weight, base, g = self._decayed(name, given, gradient, lr)
        m = lines.mean(self._moment(name, "mean", weight), g, beta1, scalars.less(1, beta1))
        m = self._keep(name, "mean", m, weight)
        v = lines.mean_square(self._moment(name, "squares", weight), g, beta2, scalars.less(1, beta2))
        v = self._keep(name, "squares", v, weight, positive=True)
        t = self.weight_steps[name]
        size = scalars.quotient(lr, scalars.less(1, scalars.power(beta1, t)))
        root = scalars.power(scalars.less(1, scalars.power(beta2, t)), 0.5)
        d = lines.raised(lines.divided(lines.root(v), root), eps)
        stored = self._add_quotient(name, weight, m, d, -size, base)
        if self.updates is not None and weight is not given:  # the decay by a compensated addition
            self.updates[name] = self.updates[name] - scalars.product(lr, self._decay) * given.values
        return stored

    def _decayed(
        self, name: str, weight: FloatArray, gradient: FloatArray, lr: float
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the weight, the weight after the decay, and the gradient."""
        if not self.decoupled:
            return weight, weight, self._with_decay(gradient, weight)
        if not self.weight_decay:
            return weight, weight, gradient
        if self.kahan:
            weight = self._compensated(
                name, weight, self._lines.product(weight, -self._scalars.product(lr, self._decay), weight.format)
            )
            return weight, weight, gradient
        decay = self._scalars.product(lr, self._decay)
        return weight, self._of_weights.decayed(weight, decay, self._scalars.less(1, decay)), gradient

    @property
    def _decay(self) -> float:
        return self._scalars.number(self.weight_decay)


@with_keyword_hints
@dataclass
class AdamW(Adam):
    """Adam with decoupled weight decay: each step multiplies the weights by 1 - lr * weight_decay.

    Parameters
    ----------
    lr : float
        The learning rate.
    betas : tuple of float
        The shares of the old means in each step.
    eps : float
        Added to the root.
    weight_decay, weights, state, weight_rounding, rounding, kahan, seed, recipe, device, version, strict
        As in `fs.training.Optimizer`. The default of weight_decay is 0.01.
    scalars : format, optional
        The format of the scalars, as in `fs.training.Adam`.

    Notes
    -----
    The lines are in `fs.training.Adam`.

    Examples
    --------
    In BF16, a decay of less than 2**-9 of the weight is absorbed:

    >>> import floatsim as fs
    >>> weight, gradient = {"w": fs.array([1.5], "bf16")}, {"w": fs.array([0.0], "bf16")}
    >>> [fs.training.AdamW(lr, weight_decay=0.1).step(weight, gradient)["w"].item() for lr in (1e-2, 1e-1)]
    [1.5, 1.484375]
    """

    weight_decay: float = field(default=1e-2, kw_only=True)
    decoupled = True


OPTIMIZERS: dict[str, type[Optimizer]] = {"sgd": SGD, "rmsprop": RMSProp, "adam": Adam, "adamw": AdamW}
"""The optimizers by name.

>>> import floatsim as fs
>>> list(fs.training.OPTIMIZERS)
['sgd', 'rmsprop', 'adam', 'adamw']
"""


def as_optimizer(optimizer: str | Optimizer, lr: float = 1e-3, **options: Any) -> Optimizer:
    """Return an optimizer by its name, or the optimizer itself.

    Parameters
    ----------
    optimizer : str or Optimizer
        "sgd", "momentum" (SGD with momentum 0.9), "rmsprop", "adam" or "adamw".
    lr : float
        The learning rate of a named optimizer.
    **options
        Keywords of the optimizer.

    Returns
    -------
    Optimizer

    Raises
    ------
    ValueError
        For an unknown name, with the nearest match, and for a learning rate that is NaN, infinite or negative.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.training.as_optimizer("momentum", 0.1).momentum
    0.9
    """
    if isinstance(optimizer, Optimizer):
        return optimizer
    name = str(optimizer).strip().lower()
    if name == "momentum":
        name, options = "sgd", {"momentum": 0.9, **options}
    if name not in OPTIMIZERS:
        raise ValueError(f"optimizer {optimizer!r} is not known; {name_hint(name, [*OPTIMIZERS, 'momentum'])}")
    return OPTIMIZERS[name](lr, **options)
