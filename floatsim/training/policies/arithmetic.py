"""The arithmetic of optimizers: where a line of the update is rounded."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from floatsim.arrays.array.conversion import convert
from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.elementwise.arithmetic import add, divide, fma, multiply, sqrt, subtract
from floatsim.formats import FloatFormat
from floatsim.training.policies.conversions import inside_format, nearest_number

__all__ = ["ROUNDINGS", "Arithmetic", "CudaArithmetic", "FusedArithmetic"]

ROUNDINGS = ("line", "operation", "step")
"""Where an optimizer rounds to the format of a tensor: after each line, after each operation, or at the end."""


@lru_cache(maxsize=4096)
def _rounded(value: float, sign: float, format: FloatFormat) -> FloatArray:
    """Return a number in a format, whatever the context. The sign keeps 0.0 and -0.0 apart."""
    return nearest_number(value, format)


@dataclass(frozen=True)
class Arithmetic:
    """The lines of an update, each one function.

    Attributes
    ----------
    every : str
        "line": a line is computed in FP32 (FP64 if the tensor is FP64), and its result is rounded to the format of the
        tensor, as PyTorch's kernels do. "operation": every operation is rounded to the format of the tensor. "step":
        every operation is in FP32, and tensors are rounded when they are stored, as in fused kernels.

    Notes
    -----
    Numbers such as beta2 are rounded to the format of the operation, FP32 in "line" and "step". In "line", those of
    `add_scaled` (-lr, weight_decay) and `raised` (eps) are rounded to the format of the tensor, as in PyTorch's kernels
    for CPUs. In "line" and "step", a product that is added is not rounded by itself (fused multiply-add), as in these
    kernels. In "operation", it is. Verified against PyTorch 2.13 and 2.15 on a CPU.

    Examples
    --------
    >>> import floatsim as fs
    >>> x, y = fs.array([1.0], "bf16"), fs.array([3.0], "bf16")
    >>> [Arithmetic(every).add_scaled(x, y, 0.1) for every in ROUNDINGS]
    [FloatArray([1.297], BF16), FloatArray([1.297], BF16), FloatArray([1.29999995], FP32)]
    """

    every: str = "line"

    def inside(self, format: FloatFormat) -> FloatFormat:
        """Return the format of operations on a tensor of this format."""
        return format if self.every == "operation" else inside_format(format)

    def _line(self, value: Any, format: FloatFormat) -> FloatArray:
        """Return the result of a line that assigns a tensor of this format."""
        rounded: FloatArray = convert(value, format) if self.every == "line" and value.format != format else value
        return rounded

    def _number(self, value: float, format: FloatFormat) -> FloatArray:
        return _rounded(value, math.copysign(1.0, value), format)

    def _addend(self, value: float, format: FloatFormat) -> FloatArray:
        """Return the number of a sum: in lines, it is rounded to the format of the tensor."""
        return self._number(value, format if self.every == "line" else self.inside(format))

    def scaled(self, x: FloatArray, factor: float) -> FloatArray:
        """Return x * factor."""
        inside = self.inside(x.format)
        return self._line(multiply(x, self._number(factor, inside), format=inside), x.format)

    def divided(self, x: FloatArray, divisor: float) -> FloatArray:
        """Return x / divisor."""
        inside = self.inside(x.format)
        return self._line(divide(x, self._number(divisor, inside), format=inside), x.format)

    def raised(self, x: FloatArray, number: float) -> FloatArray:
        """Return x + number."""
        inside = self.inside(x.format)
        return self._line(add(x, self._addend(number, x.format), format=inside), x.format)

    def root(self, x: FloatArray) -> FloatArray:
        """Return the square root of x."""
        return self._line(sqrt(x, format=self.inside(x.format)), x.format)

    def add_scaled(self, x: FloatArray, y: FloatArray, factor: float) -> FloatArray:
        """Return x + factor * y."""
        inside = self.inside(x.format)
        return self._line(self._fma(self._addend(factor, x.format), y, x, inside), x.format)

    def lerp(self, x: FloatArray, end: FloatArray, weight: float) -> FloatArray:
        """Return x + weight * (end - x); for a rounded weight from 0.5 up, end + (weight - 1) * (end - x)."""
        inside = self.inside(x.format)
        difference = subtract(end, x, format=inside)
        share = self._number(weight, inside)
        small = abs(share.item()) < 0.5
        factor = share if small else subtract(share, self._number(1.0, inside), format=inside)
        return self._line(self._fma(factor, difference, x if small else end, inside), x.format)

    def add_product(self, x: FloatArray, a: FloatArray, b: FloatArray, factor: float) -> FloatArray:
        """Return x + (factor * a) * b."""
        inside = self.inside(x.format)
        scaled = multiply(self._number(factor, inside), a, format=inside)
        return self._line(self._fma(scaled, b, x, inside), x.format)

    def mean(self, m: FloatArray, x: FloatArray, share: float, rest: float) -> FloatArray:
        """Return the running mean share * m + rest * x, as `lerp`."""
        return self.lerp(m, x, rest)

    def mean_square(self, v: FloatArray, x: FloatArray, share: float, rest: float) -> FloatArray:
        """Return the running mean of squares: v = share * v; v + (rest * x) * x."""
        return self.add_product(self.scaled(v, share), x, x, rest)

    def decayed(self, x: FloatArray, decay: float, rest: float) -> FloatArray:
        """Return x - decay * x, as rest * x, where rest is 1 - decay."""
        return self.scaled(x, rest)

    def quotient(self, a: FloatArray, b: FloatArray, factor: float, format: FloatFormat) -> FloatArray:
        """Return (factor * a) / b, in the format of operations on a tensor of format `format`."""
        inside = self.inside(format)
        return divide(multiply(self._number(factor, inside), a, format=inside), b, format=inside)  # type: ignore[no-any-return]

    def add_quotient(
        self, x: FloatArray, a: FloatArray, b: FloatArray, factor: float, format: FloatFormat,
        last: AbstractContextManager[Any],
    ) -> FloatArray:  # fmt: skip
        """Return x + (factor * a) / b, for a tensor of format `format`. `last` is the context of the last operation."""
        change = self.quotient(a, b, factor, format)
        with last:
            return self.added(x, change)

    def product(self, x: FloatArray, factor: float, format: FloatFormat) -> FloatArray:
        """Return factor * x, in the format of operations on a tensor of format `format`."""
        inside = self.inside(format)
        return multiply(self._number(factor, inside), x, format=inside)  # type: ignore[no-any-return]

    def added(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """Return x + y."""
        inside = self.inside(x.format)
        return self._line(add(x, y, format=inside), x.format)

    def _fma(self, a: FloatArray, b: FloatArray, c: FloatArray, inside: FloatFormat) -> Any:
        if self.every == "operation":
            return add(multiply(a, b, format=inside), c, format=inside)
        return fma(a, b, c, format=inside)


@dataclass(frozen=True)
class FusedArithmetic(Arithmetic):
    """The lines of PyTorch's fused optimizers on a GPU: FP32 inside, and a rounding when a tensor is stored.

    Attributes
    ----------
    every : str
        "step", as in `Arithmetic`.

    Notes
    -----
    A running mean is share * m + (x - share * x), with one rounding of each of the two parts. The source is PyTorch,
    aten/src/ATen/native/cuda/fused_adam_utils.cuh.

    Examples
    --------
    >>> import floatsim as fs
    >>> zero, one = fs.array([0.0], "fp32"), fs.array([1.0], "fp32")
    >>> Arithmetic().mean(zero, one, 0.9, 1 - 0.9), FusedArithmetic().mean(zero, one, 0.9, 1 - 0.9)
    (FloatArray([0.100000001], FP32), FloatArray([0.100000024], FP32))
    """

    every: str = "step"

    def mean(self, m: FloatArray, x: FloatArray, share: float, rest: float) -> FloatArray:
        """Return share * m + (x - share * x), where both sums have one rounding."""
        inside = self.inside(m.format)
        number, negative = self._number(share, inside), self._number(-share, inside)
        return fma(number, m, fma(negative, x, x, format=inside), format=inside)  # type: ignore[no-any-return]

    def mean_square(self, v: FloatArray, x: FloatArray, share: float, rest: float) -> FloatArray:
        """Return share * v + (x * x - share * (x * x)), where x * x is rounded and both sums have one rounding."""
        return self.mean(v, multiply(x, x, format=self.inside(v.format)), share, rest)

    def decayed(self, x: FloatArray, decay: float, rest: float) -> FloatArray:
        """Return x - decay * x, with one rounding."""
        return self.add_scaled(x, x, -decay)


@dataclass(frozen=True)
class CudaArithmetic(Arithmetic):
    """The lines of an update as PyTorch's kernels of single operations for CUDA compute them.

    Attributes
    ----------
    every : str
        "line", as in `Arithmetic`.
    reciprocal_division : bool
        Whether a division of a tensor by a number is a product by the rounded reciprocal of the number.

    Notes
    -----
    Every number is rounded to the format of the operation, FP32, also -lr, weight_decay and eps. `add_product` is
    x + factor * (a * b), with a rounded a * b, and `add_quotient` is x + factor * (a / b), with a rounded a / b. Both
    have one rounding of the rest (fused multiply-add), as in addcmul and addcdiv.

    Examples
    --------
    >>> import floatsim as fs
    >>> x, y = fs.array([1.0], "fp32"), fs.array([3.0], "fp32")
    >>> CudaArithmetic().divided(y, 3.0), CudaArithmetic(reciprocal_division=True).divided(y, 3.0)
    (FloatArray([1.0], FP32), FloatArray([1.0], FP32))
    """

    reciprocal_division: bool = False

    def _addend(self, value: float, format: FloatFormat) -> FloatArray:
        return self._number(value, self.inside(format))

    def divided(self, x: FloatArray, divisor: float) -> FloatArray:
        """Return x / divisor."""
        if not self.reciprocal_division:
            return super().divided(x, divisor)
        inside = self.inside(x.format)
        return self._line(multiply(x, self._number(1.0 / divisor, inside), format=inside), x.format)

    def add_product(self, x: FloatArray, a: FloatArray, b: FloatArray, factor: float) -> FloatArray:
        """Return x + factor * (a * b)."""
        inside = self.inside(x.format)
        return self._line(self._fma(self._number(factor, inside), multiply(a, b, format=inside), x, inside), x.format)

    def add_quotient(
        self, x: FloatArray, a: FloatArray, b: FloatArray, factor: float, format: FloatFormat,
        last: AbstractContextManager[Any],
    ) -> FloatArray:  # fmt: skip
        """Return x + factor * (a / b), for a tensor of format `format`. `last` is the context of the last operation."""
        inside = self.inside(format)
        quotient = divide(a, b, format=inside)
        with last:
            return self._line(self._fma(self._number(factor, inside), quotient, x, inside), x.format)
