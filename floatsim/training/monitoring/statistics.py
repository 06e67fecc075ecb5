"""Statistics for monitors: tensors, updates against half an ulp, agreement of gradients, the first non-finite
operation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from floatsim.analysis.conversion_losses import ConversionLosses
from floatsim.analysis.exponent_histogram import ExponentHistogram, exponent_histogram
from floatsim.arrays.array.conversion import as_float_array
from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.array.types import Floats
from floatsim.arrays.elementwise.arithmetic import add
from floatsim.arrays.elementwise.ulps import ulp
from floatsim.arrays.events.log import Log
from floatsim.formats import FormatLike, as_formats

__all__ = [
    "DEFAULT_FORMATS", "FirstNonFinite", "GradientAgreement", "TensorStatistics", "UpdateStatistics",
    "first_non_finite", "gradient_agreement", "tensor_statistics", "update_statistics",
]  # fmt: skip

DEFAULT_FORMATS = ("fp16", "bf16", "e4m3", "e5m2")


# -- tensors -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class TensorStatistics:
    """The numbers of a tensor.

    Attributes
    ----------
    name : str
        The name of the tensor, such as "layer1.weight".
    size : int
        The number of elements.
    min, max, mean : float
        Of the finite elements, in float64; NaN if there are none.
    zeros : float
        The share of zeros.
    nans, infinities : int
        The number of NaNs and of infinities.
    histogram : ExponentHistogram or None
        The numbers in each power of two, and what conversions to formats do to them. None without a finite non-zero
        element.
    step : int
        The training step.

    Examples
    --------
    >>> import floatsim as fs
    >>> x = fs.training.tensor_statistics([1e-9, 0.0, 2.0, float("inf")], "fp16")
    >>> x.zeros, x.infinities, x.losses["FP16"].flushed
    (0.25, 1, 0.5)
    """

    name: str
    size: int
    min: float
    max: float
    mean: float
    zeros: float
    nans: int
    infinities: int
    histogram: ExponentHistogram | None
    step: int = 0

    @property
    def finite(self) -> bool:
        """Whether all elements are finite."""
        return not (self.nans or self.infinities)

    @property
    def losses(self) -> dict[str, ConversionLosses]:
        """The shares that a conversion to each format flushes, makes subnormal, and overflows."""
        if self.histogram is None:
            return {}
        formats = self.histogram.formats
        return {fmt.name: losses for fmt, losses in zip(formats, self.histogram.losses, strict=True)}


def tensor_statistics(
    x: Any, formats: Iterable[FormatLike] | FormatLike = DEFAULT_FORMATS, *, name: str = "", step: int = 0
) -> TensorStatistics:
    """Return the statistics of a tensor.

    Parameters
    ----------
    x : array_like
        Real numbers of any shape, or a FloatArray.
    formats : format or iterable of format
        The formats whose conversions are counted.
    name : str
        The name of the tensor.
    step : int
        The training step.

    Returns
    -------
    TensorStatistics

    Raises
    ------
    ValueError
        For unknown formats.

    Examples
    --------
    >>> import floatsim as fs
    >>> x = fs.training.tensor_statistics([-1.0, 3.0, 0.0], name="bias")
    >>> x.min, x.max, x.finite
    (-1.0, 3.0, True)
    """
    targets = as_formats(formats)
    values = x.values if isinstance(x, FloatArray) else np.asarray(x, np.float64)
    finite = values[np.isfinite(values)]
    low, high, mean = (finite.min(), finite.max(), finite.mean()) if finite.size else (np.nan,) * 3
    counted = exponent_histogram(finite, targets) if np.any(finite) else None
    return TensorStatistics(
        name, values.size, float(low), float(high), float(mean),
        float(np.mean(values == 0)) if values.size else 0.0, int(np.isnan(values).sum()),
        int(np.isinf(values).sum()), counted, step,
    )  # fmt: skip


# -- updates -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class UpdateStatistics:
    """The updates of a tensor of weights, against half an ulp of each weight.

    Attributes
    ----------
    name : str
        The name of the tensor.
    absorbed : float
        The share of the non-zero updates that leave their weight unchanged.
    below_half_ulp : float
        The share of the non-zero updates below half an ulp of their weight. To nearest, they are absorbed, unless the
        weight is a power of two and moves toward zero.
    ratio : float
        The median of |update| / |weight|, over the pairs without a zero; NaN without such a pair.
    exponents : int64 array
        floor(log2(|update| / (ulp / 2))) of the non-zero updates: consecutive integers.
    numbers : int64 array
        The number of updates of each exponent.
    step : int
        The training step.
    """

    name: str
    absorbed: float
    below_half_ulp: float
    ratio: float
    exponents: NDArray[np.int64]
    numbers: NDArray[np.int64]
    step: int = 0


def update_statistics(
    weights: Floats, updates: Floats, *, name: str = "", step: int = 0, stored: Floats | None = None, **options: Any
) -> UpdateStatistics:
    """Return which updates of weights are absorbed.

    Parameters
    ----------
    weights : array_like of floats
        The weights before the step, in the format in which they are stored.
    updates : array_like of floats
        The exact updates, added to the weights: in a wider format, or in that of the weights.
    name : str
        The name of the tensor.
    step : int
        The training step.
    stored : array_like of floats, optional
        The weights after the step. Default: the rounded sum of weights and updates.
    **options : rounding, overflow, daz, ftz, tininess, seed, random_bits
        Of the addition, as in `fs.add`.

    Returns
    -------
    UpdateStatistics

    Raises
    ------
    TypeError, ValueError
        For operands without a float format, and for shapes that differ.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> weights, updates = fs.array(np.ones(4), "bf16"), np.float32([0.0, -1e-3, 1e-3, 2e-2])
    >>> found = fs.training.update_statistics(weights, updates)
    >>> found.absorbed, found.exponents, found.numbers
    (0.6666666666666666, array([-2, -1,  0,  1,  2]), array([2, 0, 0, 0, 1]))
    """
    before, change = as_float_array(weights, "weights"), as_float_array(updates, "updates")
    if before.shape != change.shape:
        raise ValueError(f"weights {before.shape} and updates {change.shape} must have one shape")
    after = as_float_array(add(before, change, format=before.format, **options) if stored is None else stored, "stored")
    if after.shape != before.shape:
        raise ValueError(f"stored {after.shape} must have the shape of weights, {before.shape}")
    size, weight = np.abs(change.values), np.abs(before.values)
    moved = np.isfinite(size) & (size > 0) & np.isfinite(weight)
    if not moved.any():
        return UpdateStatistics(name, 0.0, 0.0, float("nan"), np.zeros(0, np.int64), np.zeros(0, np.int64), step)
    spacing = np.asarray(ulp(before)).astype(np.float64)[moved]  # a power of two
    absorbed = float(np.mean(after.values[moved] == before.values[moved]))
    both = moved & (weight > 0)
    with np.errstate(over="ignore", under="ignore"):
        ratio = float(np.median(size[both] / weight[both])) if both.any() else float("nan")
    exponents = np.frexp(size[moved])[1].astype(np.int64) - np.frexp(spacing)[1] + 1
    low = int(exponents.min())
    numbers = np.bincount(exponents - low).astype(np.int64)
    below = float(np.mean(exponents < 0))
    return UpdateStatistics(name, absorbed, below, ratio, low + np.arange(len(numbers)), numbers, step)


# -- gradients against a reference -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GradientAgreement:
    """Low-precision gradients compared with a reference.

    Attributes
    ----------
    name : str
        The name of the tensor.
    cosine : float
        The cosine of the angle between them; NaN if one is zero or not finite.
    flipped : float
        The share of the non-zero reference gradients with the opposite sign.
    zeroed : float
        The share of the non-zero reference gradients that are zero.
    relative_error : float
        The norm of the difference, divided by the norm of the reference.
    step : int
        The training step.
    """

    name: str
    cosine: float
    flipped: float
    zeroed: float
    relative_error: float
    step: int = 0


def _exponent(x: NDArray[np.float64]) -> int:
    """Return the exponent of the largest finite magnitude, as frexp; 0 without one."""
    return int(np.frexp(np.max(np.abs(x), where=np.isfinite(x), initial=0.0))[1])


def gradient_agreement(gradients: Any, reference: Any, *, name: str = "", step: int = 0) -> GradientAgreement:
    """Compare gradients with those of a reference run, such as FP32, in float64.

    Parameters
    ----------
    gradients, reference : array_like
        Of one shape: real numbers or FloatArrays. Divide scaled gradients by the loss scale before.
    name : str
        The name of the tensor.
    step : int
        The training step.

    Returns
    -------
    GradientAgreement

    Raises
    ------
    ValueError
        For shapes that differ.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.training.gradient_agreement([1.0, -1.0, 0.0, 0.0], [1.0, 1.0, 2.0, 0.0])
    GradientAgreement(name='', cosine=0.0, flipped=0.3333333333333333, zeroed=0.3333333333333333, \
relative_error=1.1547005383792517, step=0)
    """
    given, wanted = (x.values if isinstance(x, FloatArray) else np.asarray(x, np.float64) for x in
                     (gradients, reference))  # fmt: skip
    if given.shape != wanted.shape:
        raise ValueError(f"gradients {given.shape} and reference {wanted.shape} must have one shape")
    counted = wanted != 0
    number = max(int(counted.sum()), 1)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore", under="ignore"):
        a, b = (np.ldexp(x, -_exponent(x)) for x in (given, wanted))  # squares neither overflow nor underflow
        cosine = np.vdot(a, b) / (np.linalg.norm(a) * np.linalg.norm(b))
        together = -max(_exponent(given), _exponent(wanted))
        a, b = np.ldexp(given, together), np.ldexp(wanted, together)
        error = np.linalg.norm(a - b) / np.linalg.norm(b)
    flipped = int((np.sign(given) * np.sign(wanted) < 0).sum()) / number
    zeroed = int((counted & (given == 0)).sum()) / number
    return GradientAgreement(name, float(cosine), flipped, zeroed, float(error), step)


# -- the first non-finite operation ------------------------------------------------------------------------------------

_CAUSES = ("invalid", "divide_by_zero", "overflow")


@dataclass(frozen=True)
class FirstNonFinite:
    """The first operation of a recorded run that overflowed, divided by zero, or was invalid.

    Attributes
    ----------
    layer : str
        The path of `fs.scope`; "" outside of any scope.
    operation : str
        The operation and its rounding site, such as "matmul.sum".
    event : str
        "invalid", "divide_by_zero" or "overflow".
    number, elements : int
        The number of results with the event, and of all results of the operation.
    call : int
        The number of the call in the log.
    """

    layer: str
    operation: str
    event: str
    number: int
    elements: int
    call: int

    def __str__(self) -> str:
        layer = f"{self.layer}: " if self.layer else ""
        return (
            f"{layer}{self.operation} (call {self.call}), {self.event.replace('_', ' ')} in {self.number} of "
            f"{self.elements} results"
        )


def first_non_finite(log: Log) -> FirstNonFinite | None:
    """Return the first operation of a log that made a non-finite number out of finite ones, or None.

    Parameters
    ----------
    log : Log
        Of `fs.record`, with the events "overflow", "invalid" and "divide_by_zero", which are default.

    Returns
    -------
    FirstNonFinite or None
        Later operations only pass NaN and infinity on, or are "invalid" because of infinities that came before.

    Raises
    ------
    ValueError
        If the log has no calls.

    Notes
    -----
    An overflow counts under a saturating policy, too, although its result is finite.

    Examples
    --------
    >>> import floatsim as fs
    >>> x = fs.array([300.0, 2.0], "fp16")
    >>> with fs.record() as log:
    ...     with fs.scope("layer0"):
    ...         x = fs.multiply(x, 300.0)
    ...     with fs.scope("layer1"):
    ...         y = fs.subtract(x, x)
    >>> print(fs.training.first_non_finite(log))
    layer0: multiply (call 0), overflow in 1 of 2 results
    """
    for row in log.records():
        for event in _CAUSES:
            if row.get(event):
                return FirstNonFinite(
                    row["scope"], row["operation"], event, row[event], row["elements"], row["call"]
                )  # fmt: skip
    return None
