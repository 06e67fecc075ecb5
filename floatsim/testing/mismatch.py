"""The mismatch of two computations of the same language model: log-probabilities, importance ratios, chosen tokens."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from floatsim.accumulation import AccumulationLike, as_accumulation
from floatsim.arrays.array.conversion import as_float_array
from floatsim.arrays.sums.products import matmul
from floatsim.formats import FormatLike, as_format
from floatsim.formats._validation import as_index, as_real

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Mismatch", "mismatch_of"]

LogitsLike: TypeAlias = "AccumulationLike | Callable[[Any, Any], Any]"


@dataclass(frozen=True)
class Mismatch:
    """The log-probabilities of the same tokens under two computations. Prints as text.

    Attributes
    ----------
    tokens : ndarray of int64, shape (T,)
        The tokens.
    rollout, training : ndarray of float64, shape (T,)
        Their log-probabilities under each computation.
    other_choices : int
        The positions at which the two computations have different largest logits: at temperature 0 they choose
        different tokens there.
    clip : float
        The importance ratios outside 1 - clip to 1 + clip are counted as clipped.

    Examples
    --------
    >>> import numpy as np
    >>> import floatsim as fs
    >>> rng = np.random.default_rng(0)
    >>> hidden, head = (rng.normal(size=shape).astype(np.float32) for shape in ((40, 64), (64, 100)))
    >>> found = fs.testing.mismatch_of("fp32", "pairwise(fp32)", hidden, head)
    >>> found.gaps.shape, bool(np.abs(found.gaps).max() < 1e-4), found.clipped
    ((40,), True, 0.0)
    """

    tokens: NDArray[np.int64]
    rollout: NDArray[np.float64]
    training: NDArray[np.float64]
    other_choices: int
    clip: float = 0.2

    @property
    def gaps(self) -> NDArray[np.float64]:
        """The log-probability of each token in training minus that in the rollout."""
        gaps: NDArray[np.float64] = self.training - self.rollout
        return gaps

    @property
    def ratios(self) -> NDArray[np.float64]:
        """The importance ratio of each token: its probability in training over that in the rollout."""
        ratios: NDArray[np.float64] = np.exp(self.gaps)
        return ratios

    @property
    def sequence_ratio(self) -> float:
        """The product of all ratios: the importance ratio of the sequence."""
        return math.exp(math.fsum(self.gaps.tolist()))

    @property
    def kl(self) -> float:
        """An estimate of the divergence KL(rollout, training): the mean of ratio - 1 - log(ratio) over the tokens."""
        return math.fsum((self.ratios - 1 - self.gaps).tolist()) / len(self.gaps)

    @property
    def clipped(self) -> float:
        """The share of the ratios outside 1 - clip to 1 + clip."""
        return float(np.mean(np.abs(self.ratios - 1) > self.clip))

    @property
    def first(self) -> int | None:
        """The first position whose log-probabilities differ, or None."""
        differs = np.flatnonzero(self.gaps)
        return int(differs[0]) if differs.size else None

    def __str__(self) -> str:
        n = len(self.tokens)
        if self.first is None:
            return f"the log-probabilities of {n} tokens are equal"
        return "\n".join([
            f"{np.count_nonzero(self.gaps)} of {n} log-probabilities differ, the first at position {self.first}; "
            f"largest gap {np.abs(self.gaps).max():.1e}, mean {np.abs(self.gaps).mean():.1e}",
            f"importance ratios: {self.ratios.min():.6g} to {self.ratios.max():.6g}; {self.clipped:.1%} outside "
            f"1 +- {self.clip:g}; of the whole sequence {self.sequence_ratio:.6g}",
            f"KL(rollout, training) about {self.kl:.1e} per token; the largest logit is another one at "
            f"{self.other_choices} positions",
        ])  # fmt: skip

    __repr__ = __str__


def mismatch_of(
    rollout: LogitsLike, training: LogitsLike, hidden: Any, head: Any, *, tokens: Any = None,
    temperature: float = 1.0, format: FormatLike | None = None, clip: float = 0.2, seed: int = 0,
) -> Mismatch:  # fmt: skip
    """Compare the log-probabilities of the computation that generated tokens with those of the one that trains on them.

    In reinforcement learning an inference engine generates the tokens (the rollout), and a training library computes
    their probabilities again. Both have the same weights. If their sums have other orders, the probabilities differ,
    and a policy gradient that treats them as equal is biased.

    Parameters
    ----------
    rollout, training : accumulation, str, or callable
        How each side computes the logits of `hidden` and `head`: a description of the sums of `fs.matmul`, or a
        function that is called as f(hidden, head), such as a library's product or a whole model.
    hidden : array_like of floats, (T, K)
        The last hidden states, one for each position.
    head : array_like of floats, (K, V)
        The weights of the V tokens.
    tokens : array_like of int, (T,), optional
        The generated tokens. Default: they are drawn from the rollout's probabilities, or at temperature 0 are those
        with its largest logit, the first one of equal ones.
    temperature : float
        By which logits are divided before the softmax. 0 chooses the largest logit; its log-probabilities are those of
        temperature 1.
    format : format, optional
        The format in which described products are stored. Default: that of the description.
    clip : float
        The half-width of the interval of ratios that count as not clipped, as in PPO.
    seed : int
        The seed of the drawn tokens.

    Returns
    -------
    Mismatch

    Raises
    ------
    TypeError
        If the operands or the results of a function hold no floats.
    ValueError
        If shapes do not fit, logits are NaN or infinite, tokens are outside 0 to V - 1, or temperature or clip is
        negative.

    Notes
    -----
    The softmax is computed in float64 from the logits of each side, so that all gaps come from the logits. To include
    the softmax of a library, pass a function that returns log-probabilities: their softmax has the same logarithms.

    Examples
    --------
    >>> import numpy as np
    >>> import floatsim as fs
    >>> rng = np.random.default_rng(0)
    >>> hidden, head = (fs.array(rng.normal(size=shape), "bf16") for shape in ((200, 256), (256, 100)))
    >>> found = mismatch_of("splitk(4, fp32, fp32)", "fp32", hidden, head)
    >>> found.first is not None, bool(found.ratios.max() > 1), found.tokens.shape
    (True, True, (200,))
    """
    degrees, width = as_real(temperature, "temperature", 0.0), as_real(clip, "clip", 0.0)
    fmt = None if format is None else as_format(format)
    shapes = [tuple(as_float_array(x, name).shape) for x, name in ((hidden, "hidden"), (head, "head"))]
    (t, k), (inner, v) = (_matrix(shape, name) for shape, name in zip(shapes, ("hidden", "head"), strict=True))
    if inner != k:
        raise ValueError(f"hidden has the shape {shapes[0]} and head {shapes[1]}; head must have {k} rows")
    logits = [
        _logits(side, hidden, head, fmt, (t, v), name) for side, name in ((rollout, "rollout"), (training, "training"))
    ]
    scaled = [x / (degrees or 1.0) for x in logits]
    chosen = [x.argmax(axis=1) for x in logits]
    if tokens is None:
        given = chosen[0] if degrees == 0 else _drawn(scaled[0], as_index(seed, "seed", 0, (1 << 64) - 1))
    else:
        given = _checked_tokens(tokens, t, v)
    at = np.arange(t)
    first, second = ((x - _log_sum_exp(x)[:, None])[at, given] for x in scaled)
    return Mismatch(given.astype(np.int64), first, second, int((chosen[0] != chosen[1]).sum()), width)


def _matrix(shape: tuple[int, ...], name: str) -> tuple[int, int]:
    if len(shape) != 2 or not min(shape):
        raise ValueError(f"{name} must be a matrix with at least one row and one column, not of shape {shape}")
    return shape[0], shape[1]


def _logits(
    side: Any, hidden: Any, head: Any, fmt: Any, shape: tuple[int, int], name: str
) -> NDArray[np.float64]:  # fmt: skip
    """Return the logits of one side as float64."""
    if callable(side):
        found = as_float_array(side(hidden, head), f"the result of {name}")
    else:
        try:
            description = as_accumulation(side, name)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        found = as_float_array(matmul(hidden, head, accumulate=description, format=fmt), name)
    if tuple(found.shape) != shape:
        raise ValueError(f"{name} returned logits of shape {found.shape}, not {shape}")
    values = np.asarray(found.values, np.float64)
    if not np.isfinite(values).all():
        raise ValueError(f"{name} returned logits that are NaN or infinite")
    return values


def _log_sum_exp(x: NDArray[np.float64]) -> NDArray[np.float64]:
    largest = x.max(axis=1)
    total: NDArray[np.float64] = largest + np.log(np.exp(x - largest[:, None]).sum(axis=1))
    return total


def _drawn(x: NDArray[np.float64], seed: int) -> NDArray[np.int64]:
    """Return one token of each row, drawn by the probabilities: the largest of the logits plus Gumbel noise."""
    noise = np.random.default_rng(seed).gumbel(size=x.shape)
    drawn: NDArray[np.int64] = (x + noise).argmax(axis=1)
    return drawn


def _checked_tokens(tokens: Any, t: int, v: int) -> NDArray[np.int64]:
    given = np.asarray(tokens)
    if given.dtype.kind not in "iu":
        raise TypeError(f"tokens must be integers, not {given.dtype}")
    if given.shape != (t,):
        raise ValueError(f"tokens has the shape {given.shape}; hidden has {t} positions")
    if given.size and not (given.min() >= 0 and given.max() < v):
        raise ValueError(f"tokens must be 0 to {v - 1}, not {given.min()} to {given.max()}")
    return given.astype(np.int64)
