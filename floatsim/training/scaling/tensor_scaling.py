"""One scale for each tensor: current scaling, and TransformerEngine's delayed scaling with a history of amax."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, SupportsFloat

import numpy as np
from numpy.typing import NDArray

from floatsim.accumulation import AccumulationLike
from floatsim.arrays.array.conversion import as_float_array
from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.call.random_sources import RandomGenerator
from floatsim.arrays.elementwise.arithmetic import divide, multiply
from floatsim.arrays.sums.products import matmul
from floatsim.formats import FP32, FloatFormat, FormatLike, as_format
from floatsim.formats._validation import as_flag, as_index, as_real, with_keyword_hints
from floatsim.quantization.quantized import Quantized
from floatsim.quantization.scales import number
from floatsim.quantization.scheme import Scheme, as_name
from floatsim.training.policies.conversions import nearest, plain
from floatsim.training.policies.rules import StatelessScaler, check_product, checked_format

__all__ = [
    "AMAX_ALGORITHMS", "CurrentScaling", "DelayedScaling", "DelayedState", "amax_of", "current_scale",
    "quantize_with_factor",
]  # fmt: skip

AMAX_ALGORITHMS = ("max", "most_recent")
"""Which amax of the history determines the scale."""

_FP32_MAX = np.float32(FP32.max)


def amax_of(x: FloatArray) -> np.float32:
    """Return the largest magnitude of a tensor in FP32, without its NaNs (as fmaxf); 0 for a tensor of NaNs.

    >>> import floatsim as fs
    >>> float(amax_of(fs.array([1.0, -3.0, float("nan")], "fp16")))
    3.0
    """
    values = np.abs(nearest(x, FP32).values)
    return np.float32(np.max(values[~np.isnan(values)], initial=0.0))


def _quotient(limit: np.float32, amax: np.float32) -> np.float32:
    """Return limit / amax, rounded once to FP32."""
    with np.errstate(over="ignore"):
        return np.float32(np.float32(limit) / np.float32(amax))


def _magnitude(amax: Any) -> float:
    """Return a number of at least 0, infinity or NaN, or raise an error."""
    if isinstance(amax, str) or not isinstance(amax, SupportsFloat):
        raise TypeError(f"amax must be a number, not {amax!r}")
    if float(amax) < 0:
        raise ValueError(f"amax must be at least 0, because it is a magnitude, not {amax!r}")
    return float(amax)


def current_scale(
    amax: float,
    format: FormatLike,
    *,
    epsilon: float = 0.0,
    power_of_two: bool = False,
    input_format: FormatLike = "fp32",
) -> float:
    """Return the factor by which a tensor is multiplied before its conversion to FP8, by its own amax.

    Parameters
    ----------
    amax : float
        The largest magnitude of the tensor, rounded to FP32. NaN for a tensor with NaN, if it shall count.
    format : format
        The format of the elements; max is its largest number.
    epsilon : float
        amax counts as at least this number.
    power_of_two : bool
        Whether the trailing significand bits of the factor are set to zero.
    input_format : format
        The format of the tensor before. Its largest number is the factor if max / amax overflows in FP32.

    Returns
    -------
    float
        An FP32 number: 1 if amax is 0, infinity or NaN; otherwise round(max / amax).

    Raises
    ------
    TypeError, ValueError
        For a negative amax, an epsilon that is negative or not finite, and for formats that are unknown or of scales.

    Notes
    -----
    TransformerEngine, recipe_common.cuh, compute_scale_from_amax: the rule of Float8CurrentScaling. Its Python
    reference returns 0 for an infinite amax with `power_of_two`; the kernel returns 1.

    Examples
    --------
    >>> import floatsim as fs
    >>> [fs.training.current_scale(amax, "e4m3") for amax in (7.0, 0.0, float("inf"), float("nan"))]
    [64.0, 1.0, 1.0, 1.0]
    >>> fs.training.current_scale(10.0, "e4m3"), fs.training.current_scale(10.0, "e4m3", power_of_two=True)
    (44.79999923706055, 32.0)
    """
    fmt: Any = checked_format(format, "format")
    given: Any = checked_format(input_format, "input_format")
    least = np.float32(as_real(epsilon, "epsilon", 0.0))
    largest = max(np.float32(_magnitude(amax)), least)  # NaN stays
    if np.isinf(largest) or largest == 0 or np.isnan(largest):
        return 1.0
    scale = _quotient(np.float32(fmt.max), largest)
    if np.isinf(scale):
        scale = np.float32(given.max)
    if as_flag(power_of_two, "power_of_two"):
        scale = (scale.view(np.uint32) & np.uint32(0xFF800000)).view(np.float32)
    return float(scale)


def quantize_with_factor(x: FloatArray, fmt: FloatFormat, factor: float) -> Quantized:
    """Return x times an FP32 factor, rounded to FP32, then to the format, saturating. The scale is round(1 / factor).

    Infinity becomes the largest number, and NaN stays, as in PTX (cvt.rn.satfinite).

    >>> import floatsim as fs
    >>> quantize_with_factor(fs.array([1.0, 8.0], "fp32"), fs.E4M3, 64.0).values
    array([1., 7.])
    """
    multiplier = number(factor, FP32)
    with plain():
        scaled = as_float_array(multiply(nearest(x, FP32), multiplier), "x")
        inverse = as_float_array(divide(number(1.0, FP32), multiplier), "scale")
    scheme = Scheme(fmt, "tensor", FP32, "absmax", "multiplier")
    return Quantized(nearest(scaled, fmt, saturate=True).codes, inverse, scheme)


def _scaled_product(a: Quantized, b: Quantized, accumulate: AccumulationLike | None) -> FloatArray:
    """Return the product in FP32: round(acc * round(scale_a * scale_b)). The order in cuBLASLt was not traced."""
    acc = as_float_array(matmul(a.elements, b.elements, accumulate=accumulate, format=FP32), "product")
    with plain():
        return as_float_array(multiply(acc, multiply(a.scales, b.scales)), "product")


@with_keyword_hints
@dataclass(frozen=True)
class CurrentScaling:
    """Per-tensor scaling by the tensor's own amax, as TransformerEngine's Float8CurrentScaling.

    amax is the largest magnitude without NaNs, as fmaxf computes it; the factor is that of `current_scale`. NaNs stay
    NaNs. A tensor of NaNs has an amax of 0, and the factor 1, as a tensor with an infinity.

    Parameters
    ----------
    epsilon : float
        amax counts as at least this number.
    power_of_two : bool
        Whether factors are rounded down to powers of two.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> method = fs.training.CurrentScaling()
    >>> x = fs.array(np.float32([[1, 2], [3, 400]]), "fp32")
    >>> scaler = method.start(seed=0)
    >>> scaler.matmul(x, x, formats=(fs.E4M3, fs.E4M3), roles=("input", "weight"), product="forward")
    FloatArray([[6.83842897, 805.589355],
                [1163.62903, 160005.828]], FP32)
    """

    epsilon: float = 0.0
    power_of_two: bool = False

    def start(self, seed: int | RandomGenerator = 0) -> CurrentScaler:
        """Return the state of a run. Current scaling has none."""
        return CurrentScaler(self)

    def quantize(self, x: FloatArray, format: FormatLike) -> Quantized:
        """Return a tensor quantized by its own amax."""
        factor = current_scale(
            float(amax_of(x)), format, epsilon=self.epsilon, power_of_two=self.power_of_two,
            input_format=x.format if x.format.bits <= FP32.bits else FP32,
        )  # fmt: skip
        return quantize_with_factor(x, as_format(format), factor)


class CurrentScaler(StatelessScaler):
    """Current scaling in one run."""

    def __init__(self, method: CurrentScaling) -> None:
        self.method = method

    def matmul(
        self, a: FloatArray, b: FloatArray, *, formats: tuple[FloatFormat, FloatFormat], roles: tuple[str, str],
        product: str, module: str = "", step: int = 0, accumulate: AccumulationLike | None = None,
    ) -> FloatArray:  # fmt: skip
        """Return a @ b in FP32. The keywords are those of the protocol `Scaler`."""
        check_product(roles, product)
        left, right = (self.method.quantize(x, fmt) for x, fmt in zip((a, b), formats, strict=True))
        return _scaled_product(left, right, accumulate)


# -- delayed scaling ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class DelayedState:
    """The history of amax and the factor of one tensor.

    Attributes
    ----------
    history : float32 array, (history_length,)
        history[0] is the amax of the current step, 0 before it is observed. The others are of the steps before.
    factor : float
        The FP32 factor of this step.
    """

    history: NDArray[np.float32]
    factor: float = 1.0

    def observe(self, amax: float) -> DelayedState:
        """Return the state with the larger one of history[0] and this amax in history[0]; NaN is the largest."""
        history = self.history.copy()
        history[0] = np.maximum(history[0], np.float32(amax))
        return DelayedState(history, self.factor)


@with_keyword_hints
@dataclass(frozen=True)
class DelayedScaling:
    """Per-tensor scaling by the amax of earlier steps, as TransformerEngine's DelayedScaling.

    Parameters
    ----------
    history_length : int
        The number of steps in the history.
    algorithm : str
        "max": the largest amax of the history. "most_recent": the amax of the last step.
    margin : float
        The factor is 2**-margin times smaller: the largest number is max * 2**-margin.

    Notes
    -----
    A step quantizes with the factor of the step before; the first one is 1. At the end of a step, with h the history:

    1. If h[0] is 0, the history stays as it is, and amax is 0. Otherwise amax is the largest entry, without NaNs, or
       h[0]. Then the history moves: h[i] = h[i + 1], h[last] = the former h[0], h[0] = 0.
    2. If amax is finite and above 0, factor = round(max 2**-margin / amax) in FP32, at most the largest FP32 number.
       Otherwise the factor stays.

    Conversions saturate. This is kernel_bulk of TransformerEngine's delayed_scaling.cu. Operands of one role in one
    module share a history.

    Examples
    --------
    >>> import floatsim as fs
    >>> method = fs.training.DelayedScaling(history_length=3)
    >>> state = method.initial()
    >>> for amax in (7.0, 0.875, 0.0, 1.75, 1.75, float("nan"), 14.0):
    ...     state = method.update(state.observe(amax), "e4m3")
    ...     print(amax, state.factor, state.history)
    7.0 64.0 [0. 0. 7.]
    0.875 64.0 [0.    7.    0.875]
    0.0 64.0 [0.    7.    0.875]
    1.75 64.0 [0.    0.875 1.75 ]
    1.75 256.0 [0.   1.75 1.75]
    nan 256.0 [0.   1.75  nan]
    14.0 32.0 [ 0. nan 14.]
    """

    history_length: int = 1024
    algorithm: str = "max"
    margin: float = 0.0

    def __post_init__(self) -> None:
        as_index(self.history_length, "history_length", 1, 1 << 31)
        object.__setattr__(self, "algorithm", as_name(self.algorithm, AMAX_ALGORITHMS, "algorithm"))
        as_real(self.margin, "margin")

    def initial(self) -> DelayedState:
        """Return the state before the first step: a history of zeros and the factor 1."""
        return DelayedState(np.zeros(self.history_length, np.float32))

    def update(self, state: DelayedState, format: FormatLike) -> DelayedState:
        """Return the state of the next step, of a tensor in this format."""
        history, last, amax = state.history, state.history[0], np.float32(0)
        if last != 0:
            amax = last if self.algorithm == "most_recent" else np.fmax.reduce(history)
            history = np.concatenate([[np.float32(0)], history[2:], [last]])[: len(history)].astype(np.float32)
        if not (np.isfinite(amax) and amax > 0):
            return DelayedState(history, state.factor)
        limit = np.float32(as_format(format).max) * np.float32(2.0**-self.margin)
        return DelayedState(history, float(np.minimum(_quotient(limit, amax), _FP32_MAX)))

    def start(self, seed: int | RandomGenerator = 0) -> DelayedScaler:
        """Return the state of a run, without any history."""
        return DelayedScaler(self)


class DelayedScaler:
    """Delayed scaling in one run: a `DelayedState` for each module and role.

    Attributes
    ----------
    states : dict
        (module, role, format) to the state of the tensor.
    """

    def __init__(self, method: DelayedScaling) -> None:
        self.method = method
        self.states: dict[tuple[str, str, FloatFormat], DelayedState] = {}

    def quantize(self, x: FloatArray, format: FormatLike, *, role: str, module: str = "") -> Quantized:
        """Return a tensor quantized with the factor of the step before, and observe its amax."""
        key = module, role, as_format(format)
        state = self.states.get(key, self.method.initial())
        self.states[key] = state.observe(float(amax_of(x)))
        return quantize_with_factor(x, key[2], state.factor)

    def matmul(
        self, a: FloatArray, b: FloatArray, *, formats: tuple[FloatFormat, FloatFormat], roles: tuple[str, str],
        product: str, module: str = "", step: int = 0, accumulate: AccumulationLike | None = None,
    ) -> FloatArray:  # fmt: skip
        """Return a @ b in FP32. The keywords are those of the protocol `Scaler`."""
        check_product(roles, product)
        left, right = (
            self.quantize(x, fmt, role=role, module=module) for x, fmt, role in zip((a, b), formats, roles, strict=True)
        )
        return _scaled_product(left, right, accumulate)

    def finish_step(self) -> None:
        """Update the factors of all tensors, and move the histories."""
        self.states = {key: self.method.update(state, key[2]) for key, state in self.states.items()}

    def state_dict(self) -> dict[str, Any]:
        """Return the histories and factors of all tensors, each with its module, role and format."""
        return {
            "states": [
                [module, role, _fields(fmt), state.history.tolist(), state.factor]
                for (module, role, fmt), state in self.states.items()
            ]
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue with these histories and factors."""
        self.states = {
            (module, role, FloatFormat(*fields)): DelayedState(np.array(history, np.float32), factor)
            for module, role, fields, history, factor in state["states"]
        }


def _fields(fmt: FloatFormat) -> list[Any]:
    """Return the arguments of a format."""
    return [fmt.name, fmt.exponent_bits, fmt.trailing_bits, fmt.specials.name.lower(), fmt.bias]
