"""Spikes of the gradient norm, and the policy of skipping a batch."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from floatsim.formats._validation import as_index, as_real

__all__ = ["SpikePolicy", "SpikeState", "skipped_batches"]


@dataclass(frozen=True)
class SpikeState:
    """What a policy keeps between two steps.

    Attributes
    ----------
    norms : tuple of float
        The norms of the last accepted batches, the newest last.
    skipped : int
        The number of batches skipped since the last accepted one.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.training.SpikeState()
    SpikeState(norms=(), skipped=0)
    """

    norms: tuple[float, ...] = ()
    skipped: int = 0


@dataclass(frozen=True)
class SpikePolicy:
    """Skip a batch whose gradient norm is not finite, or far above the norms of the last batches.

    1. A norm that is NaN or infinite is skipped, always.
    2. With fewer than `window` accepted norms, the batch is accepted.
    3. The batch is skipped if its norm is above `factor` times the median of the last `window` accepted norms.
    4. After `limit` skipped batches in a row, a finite norm is accepted, and the window starts again with it.

    Parameters
    ----------
    factor : float
        The factor, at least 1.
    window : int
        The number of norms in the median.
    limit : int
        The number of batches skipped in a row after which a finite norm is accepted. Batches with a norm that is NaN or
        infinite count, too.

    Notes
    -----
    The rule is ours. Practitioners use several: a threshold on the norm, a rewind to a checkpoint (PaLM), clipping.

    Examples
    --------
    >>> import floatsim as fs
    >>> policy, state = fs.training.SpikePolicy(factor=4, window=2), fs.training.SpikeState()
    >>> for norm in (1.0, 1.2, 40.0, 1.1):
    ...     skip, state = policy.step(norm, state)
    ...     print(norm, skip)
    1.0 False
    1.2 False
    40.0 True
    1.1 False
    """

    factor: float = 8.0
    window: int = 16
    limit: int = 8

    def __post_init__(self) -> None:
        as_real(self.factor, "factor", 1.0)
        as_index(self.window, "window", 1, 1 << 31)
        as_index(self.limit, "limit", 1, 1 << 31)

    def step(self, norm: float, state: SpikeState) -> tuple[bool, SpikeState]:
        """Return whether the batch with this gradient norm is skipped, and the new state."""
        if not math.isfinite(norm):
            return True, SpikeState(state.norms, state.skipped + 1)
        known = state.norms[-self.window :]
        spike = len(known) == self.window and norm > self.factor * statistics.median(known)
        if spike and state.skipped < self.limit:
            return True, SpikeState(known, state.skipped + 1)
        kept = () if spike else known
        return False, SpikeState((*kept, float(norm))[-self.window :], 0)


def skipped_batches(norms: Iterable[float], policy: SpikePolicy | None = None) -> list[bool]:
    """Return for each gradient norm of a run whether its batch is skipped.

    Parameters
    ----------
    norms : iterable of float
        The gradient norms, in order.
    policy : SpikePolicy, optional
        Default: `SpikePolicy()`.

    Returns
    -------
    list of bool

    Examples
    --------
    >>> import floatsim as fs
    >>> policy = fs.training.SpikePolicy(window=3)
    >>> fs.training.skipped_batches([1, 1, 1, 100, float("nan"), 2], policy)
    [False, False, False, True, True, False]
    """
    chosen, state, found = policy or SpikePolicy(), SpikeState(), []
    for norm in norms:
        skip, state = chosen.step(norm, state)
        found.append(skip)
    return found
