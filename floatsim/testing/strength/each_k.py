"""Test a kernel with one product at a time: which k are dropped, repeated, or read from another place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from floatsim.arrays.array.conversion import as_float_array, encode
from floatsim.arrays.array.float_array import wrap
from floatsim.formats import FloatFormat, FormatLike
from floatsim.testing.compare.operands import as_operand_formats, as_shape

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["EachK", "WrongK", "check_each_k"]

_SHOWN = 20


@dataclass(frozen=True)
class WrongK:
    """One k whose product is wrong: the row that showed it, and the k of b that was read (None: no product)."""

    k: int
    row: int
    read: int | None
    text: str

    def following(self, row: int) -> WrongK:
        """Return the same fault of the next k."""
        return WrongK(self.k + 1, row, None if self.read is None else self.read + 1, self.text)


@dataclass(frozen=True)
class EachK:
    """The result of a test with one product at a time. Prints as text.

    Attributes
    ----------
    k : int
        The number of terms.
    wrong : tuple of WrongK
        The k whose products are wrong, in order.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> def kernel(a, b):
    ...     return fs.matmul(a[:, 1:], b[1:], accumulate="fp32", format="bf16")  # without k = 0
    >>> found = fs.testing.check_each_k(kernel, (4, 8, 4), "bf16")
    >>> found.k, [wrong.k for wrong in found.wrong]
    (8, [0])
    """

    k: int
    wrong: tuple[WrongK, ...]

    @property
    def passed(self) -> bool:
        """Return whether all products are right."""
        return not self.wrong

    def __str__(self) -> str:
        if self.passed:
            return f"each of the {self.k} products is there once"
        lines = list(self._lines())
        more = [f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
        return "\n".join([f"{len(self.wrong)} of {self.k} products are wrong", *lines[:_SHOWN], *more])

    __repr__ = __str__

    def _lines(self) -> Iterator[str]:
        """Yield one line for each run of neighbouring k with the same fault."""
        runs: list[list[WrongK]] = []
        for each in self.wrong:
            if runs and each == runs[-1][-1].following(each.row):
                runs[-1].append(each)
            else:
                runs.append([each])
        for run in runs:
            first, last = run[0], run[-1]
            name = f"k = {first.k}" if len(run) == 1 else f"k = {first.k} to {last.k}"
            where = "" if first.read is None else f" k = {first.read}" + (f" to {last.read}" if len(run) > 1 else "")
            yield f"  {name}: {first.text}{where}"


def _digits(k: int, fmt: FloatFormat, result: FloatFormat) -> tuple[int, int]:
    """Return a base whose digits plus 1 are exact in the formats, and one more than the number of digits of k - 1.

    The first digit is always 0. So a product with a factor is not mistaken for another k.
    """
    base = 1 << max(1, min(fmt.precision, result.precision) - 1)
    base = min(base, int(min(fmt.max, result.max)))
    digits = 1
    while base**digits < k:
        digits += 1
    return base, digits + 1


def check_each_k(
    kernel: Callable[[Any, Any], Any], shape: Sequence[int], formats: FormatLike | Sequence[FormatLike]
) -> EachK:
    """Test each product of a matrix product alone: a has one 1 in a row, and b has the digits of k.

    A dropped tile, a product that is added twice, and a wrong address (a swizzle) show at their k. All results are
    exact, in every order and in every accumulator.

    Parameters
    ----------
    kernel : callable
        Called as kernel(a, b) with matrices of the shape and the formats; the alpha of the product must be 1.
    shape : (int, int, int)
        M, K and N. The kernel is called about 2 * K / M times for each digit that N columns do not hold.
    formats : format, or two
        The formats of a and of b.

    Returns
    -------
    EachK

    Raises
    ------
    ValueError
        If the shape is not that of a product, a format is a scale format, or the kernel returns another shape.
    TypeError
        If `kernel` is no function.

    Examples
    --------
    >>> import numpy as np
    >>> import floatsim as fs
    >>> def kernel(a, b):
    ...     order = np.arange(64)
    ...     order[[40, 41]] = 41, 40  # a wrong address
    ...     b = b[order]
    ...     b[56:] = 0  # a tile that is not loaded
    ...     return fs.matmul(a, b, accumulate="fp32", format="bf16")
    >>> check_each_k(kernel, (16, 64, 8), "bf16")
    10 of 64 products are wrong
      k = 40: b is read from k = 41
      k = 41: b is read from k = 40
      k = 56 to 63: the product is missing
    """
    if not callable(kernel):
        raise TypeError(f"kernel must be a function of a and b, not {kernel!r}")
    m, k, n = as_shape(shape)
    left, right = as_operand_formats(formats)
    zero = kernel(_array(np.zeros((m, k)), left), _array(np.zeros((k, n)), right))
    result = as_float_array(zero, "the result of the kernel")
    if result.shape != (m, n):
        raise ValueError(f"the kernel returned the shape {result.shape}, not {(m, n)}")
    base, digits = _digits(k, right, result.format)
    wrong: dict[int, WrongK] = {}
    for start in range(0, k, m):
        for backwards in (False, True):  # a second row for each k
            rows = np.arange(min(m, k - start))
            at = start + (rows[::-1] if backwards else rows)
            seen = _seen(kernel, (m, k, n), (left, right), at, base, digits)
            for row, one in zip(rows.tolist(), at.tolist(), strict=True):
                if one not in wrong and (fault := _fault(seen[row], one, row, base, k)) is not None:
                    wrong[one] = fault
    return EachK(k, tuple(wrong[one] for one in sorted(wrong)))


def _array(x: NDArray[np.floating[Any]], fmt: FloatFormat) -> Any:
    return wrap(encode(x, fmt), fmt, False)


def _seen(
    kernel: Callable[[Any, Any], Any], shape: tuple[int, int, int], formats: tuple[FloatFormat, FloatFormat],
    at: NDArray[np.int64], base: int, digits: int,
) -> NDArray[np.float64]:  # fmt: skip
    """Return the results of the rows with one 1 each, at these k: (rows, columns, passes). Unused ones are NaN."""
    m, k, n = shape
    a = np.zeros((m, k))
    a[np.arange(len(at)), at] = 1
    passes = []
    for first in range(0, digits, n):
        of_column = first + np.arange(n) % min(n, digits - first)
        b = 1.0 + np.arange(k)[:, np.newaxis] // base**of_column % base
        result = as_float_array(kernel(_array(a, formats[0]), _array(b, formats[1])), "the result of the kernel")
        values = np.full((len(at), n, digits), np.nan)
        values[:, np.arange(n), of_column] = np.asarray(result.values)[: len(at)]
        passes.append(values)
    return np.concatenate(passes, axis=1)


def _fault(seen: NDArray[np.float64], k: int, row: int, base: int, length: int) -> WrongK | None:
    """Return the fault of one product, whose results are (columns, digits)."""
    expected = 1.0 + k // base ** np.arange(seen.shape[1]) % base
    used = ~np.isnan(seen)
    if np.array_equal(np.where(used, seen, 0), np.where(used, expected, 0)) and used.any(0).all():
        return None
    per_digit = [np.unique(seen[used[:, digit], digit]) for digit in range(seen.shape[1])]
    if not all(len(values) == 1 for values in per_digit):
        return WrongK(k, row, None, "the product is wrong in some columns")
    found = np.array([values[0] for values in per_digit])
    if (found == 0).all():
        return WrongK(k, row, None, "the product is missing")
    other = int(sum((found[n] - 1) * base**n for n in range(len(found))))
    digits_fit = ((found >= 1) & (found <= base) & (found == np.rint(found))).all()
    if digits_fit and 0 <= other < length:
        return WrongK(k, row, other, "b is read from")
    times = found / expected
    if (times == times[0]).all():
        return WrongK(k, row, None, f"the product is multiplied by {times[0]:g}")
    return WrongK(k, row, None, "the product is wrong")
