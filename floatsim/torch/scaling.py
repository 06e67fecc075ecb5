"""The scaling methods of policies, by the short names of this package, and their state in a run."""

from __future__ import annotations

from floatsim.arrays.call.random_sources import RandomGenerator
from floatsim.training.policies.rules import Scaler, ScalingLike
from floatsim.training.scaling.methods import as_scaling
from floatsim.training.scaling.tensor_scaling import DelayedScaling

__all__ = ["Delayed", "start_scaling"]

Delayed = DelayedScaling


def start_scaling(scaling: ScalingLike, seed: int | RandomGenerator) -> Scaler:
    """Return the state of a scaling method in a new run.

    Parameters
    ----------
    scaling : str or Scaling
        A name of `fs.training.SCALINGS`, or an object with the method `start`.
    seed : int
        The seed of random signs and of stochastic rounding.

    Returns
    -------
    Scaler

    Examples
    --------
    >>> start_scaling("current", 0).finish_step()
    """
    return as_scaling(scaling).start(seed)
