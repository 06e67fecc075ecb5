"""Significant digits of results of stochastic arithmetic, with the confidence intervals of Sohier et al. (2021)."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from floatsim.arrays.array.conversion import read_floats
from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.call.options import context
from floatsim.arrays.call.random_stream import RandomStream
from floatsim.formats import FormatLike, as_format
from floatsim.formats._validation import as_index, as_word, with_keyword_hints

__all__ = ["significant_digits", "stochastic_samples"]

Values: TypeAlias = NDArray[np.float64]

_METHODS = ("cnh", "general")
_ERRORS = ("relative", "absolute")
_TERMS = 10_000  # of the series below; it has about 10 sqrt(n) terms for n samples


@with_keyword_hints
def stochastic_samples(function: Callable[[], Any], runs: int = 16, *, seed: int = 0) -> Values:
    """Call a function several times under stochastic rounding, with other random numbers each time.

    Parameters
    ----------
    function : callable
        A function without arguments that computes with floatsim, and returns a number or an array. Operations with a
        `rounding=` of their own keep it.
    runs : int
        The number of calls, at least 2.
    seed : int
        The seed of all random numbers.

    Returns
    -------
    ndarray of float64
        The results, one after the other along a new first axis.

    Raises
    ------
    ValueError
        For fewer than 2 runs.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.stochastic_samples(lambda: fs.add(fs.array(1.0, "bf16"), fs.array(0.001, "bf16")), 8).tolist()
    [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0078125, 1.0]
    """
    count = as_index(runs, "runs", 2, 1 << 31)
    first = as_index(seed, "seed", 0, (1 << 63) - 1)
    results = []
    for i in range(count):
        with context(rounding="stochastic", seed=RandomStream(first * count + i)):
            results.append(_values(function(), "the result of function"))
    return np.stack(results)


def _values(x: Any, argument: str) -> Values:
    codes, fmt, _ = read_floats(x, argument)
    return np.asarray(FloatArray(codes, fmt).values, np.float64)


@with_keyword_hints
def significant_digits(
    samples: Any,
    reference: Any = None,
    *,
    axis: int = 0,
    error: str = "relative",
    method: str = "cnh",
    probability: float = 0.95,
    confidence: float = 0.95,
    base: float = 2.0,
    format: FormatLike = "fp64",
) -> Values:
    """Return how many digits of a result are significant, from several runs with stochastic rounding.

    Parameters
    ----------
    samples : array_like of floats
        Results of independent runs along `axis`, such as those of `fs.stochastic_samples`.
    reference : array_like of floats, optional
        The exact result, in the shape of one sample, or a number. Default: the mean of the samples. Then digits are
        those that the runs share, and a bias of all runs is not seen.
    axis : int
        The axis of the runs.
    error : str
        "relative": Z = sample / reference - 1. "absolute": Z = sample - reference, and digits count from the exponent
        of the reference.
    method : str
        "cnh": Z is normally distributed around 0 (centered normality hypothesis). "general": any distribution; the
        digits are integers.
    probability, confidence : float
        With this confidence, a run has at least these digits with this probability. For "cnh" only. With "general", n
        runs show a probability of (1 - confidence) ** (1 / n).
    base : float
        The base of the digits: 2 for bits, 10 for decimal digits.
    format : format
        The format of the results. Runs that all are equal to the reference have its trailing significand bits.

    Returns
    -------
    ndarray of float64
        The digits, in the shape of one sample. They may be negative, with "cnh".

    Raises
    ------
    ValueError
        For fewer than two runs, unknown words, and numbers out of range.

    Notes
    -----
    Both methods are those of Sohier, de Oliveira Castro, Fevotte, Lathuiliere, Petit and Jamond, Confidence Intervals
    for Stochastic Arithmetic, ACM TOMS 47(2), 2021. "cnh" is the lower bound

    -log2(std(Z)) - [0.5 log2((n - 1) / chi2) + log2(F((probability + 1) / 2))]

    where chi2 is the quantile (1 - confidence) / 2 of the chi-squared distribution with n - 1 degrees of freedom, F is
    that of the normal distribution, and std divides by n. "general" is the largest k from 0 to the bits of the format
    with |Z| <= 2**-k for all runs. Tested equal to the package significantdigits 0.6.0.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> x = fs.array(np.full(4096, 0.1), "fp16")
    >>> runs = fs.stochastic_samples(lambda: fs.sum(x, accumulate="sequential(fp16)"), 16)
    >>> bits = fs.significant_digits(runs, float(x.values.sum()), format="fp16")
    >>> bool(4 < bits < 8)
    True
    """
    as_word(error, "error", _ERRORS)
    as_word(method, "method", _METHODS)
    for name, share in (("probability", probability), ("confidence", confidence)):
        if not 0 < share < 1:
            raise ValueError(f"{name} must lie between 0 and 1, not {share!r}")
    if not (1 < base < math.inf):
        raise ValueError(f"base must be above 1, not {base!r}")
    x = _values(samples, "samples")
    if x.ndim == 0 or not -x.ndim <= axis < x.ndim:
        raise ValueError(f"samples {x.shape} has no axis {axis!r}; axis is that of the runs")
    x = np.moveaxis(x, axis, 0)
    if len(x) < 2:
        raise ValueError(f"samples {x.shape} has {len(x)} runs; at least 2 are needed")
    exact = x.mean(axis=0) if reference is None else _values(reference, "reference")
    if exact.shape not in ((), x.shape[1:]):
        raise ValueError(f"reference {exact.shape} must have the shape of one run, {x.shape[1:]}, or be a number")
    bits = as_format(format).precision - 1
    with np.errstate(divide="ignore", invalid="ignore"):
        z, exponent = _distances(x, np.broadcast_to(exact, x.shape[1:]), error)
        found = _normal(z, probability, confidence, bits) if method == "cnh" else _bernoulli(z, exponent, bits)
        if method == "cnh":
            found = np.where(z.any(axis=0) | np.isnan(z).any(axis=0), found + exponent, found)
    return np.asarray(found * (math.log(2) / math.log(base)), np.float64)


def _distances(x: Values, exact: Values, error: str) -> tuple[Values, Values]:
    """Return Z, and the exponent from which digits count."""
    if error == "relative":
        return x / exact - 1, np.zeros(exact.shape)
    size = np.abs(exact)
    return x - exact, np.where(size == 0, 0.0, np.floor(np.log2(np.where(size == 0, 1.0, size))))


def _normal(z: Values, probability: float, confidence: float, bits: int) -> Values:
    """Return the digits if Z is normal around 0. Runs without any distance have all bits."""
    n = len(z)
    lost = 0.5 * math.log2((n - 1) / _chi2_quantile((1 - confidence) / 2, n - 1))
    lost += math.log2(NormalDist().inv_cdf((probability + 1) / 2))
    spread = z.std(axis=0)
    spread = np.where(spread == 0, np.abs(z).max(axis=0), spread)
    return np.where(spread == 0, float(bits), -np.log2(np.where(spread == 0, 1.0, spread))) - lost


def _bernoulli(z: Values, exponent: Values, bits: int) -> Values:
    """Return the largest k with |Z| <= 2**(exponent - k) in all runs, 0 if there is none."""
    largest = np.abs(z).max(axis=0)
    found = np.zeros(largest.shape)
    fits = np.ones(largest.shape, bool)
    for k in range(bits + 1):
        fits &= largest <= np.ldexp(1.0, (exponent - k).astype(np.int64))
        found = np.where(fits, k, found)
    return found


def _chi2_quantile(probability: float, degrees: int) -> float:
    """Return the quantile of a chi-squared distribution, for a probability below 1/2, by bisection.

    >>> round(_chi2_quantile(0.025, 15), 6)  # tables of the distribution: 6.262
    6.262138
    """
    a, low, high = degrees / 2, 0.0, float(degrees)  # the median is below the mean
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if _lower_gamma(a, middle / 2) < probability else (low, middle)
    return (low + high) / 2


def _lower_gamma(a: float, x: float) -> float:
    """Return the regularized lower incomplete gamma function, by its series."""
    if x == 0:
        return 0.0
    term = total = 1 / a
    for k in range(1, _TERMS):
        term *= x / (a + k)
        total += term
        if term <= total * 2.0**-60:
            break
    return total * math.exp(a * math.log(x) - x - math.lgamma(a))
