"""Loss scales of single layers."""

from __future__ import annotations

from collections.abc import Mapping

from floatsim.arrays.array.float_array import FloatArray
from floatsim.training.policies.operations import matches
from floatsim.training.scaling.loss_scaling import Gradients, LossScaler, StaticLossScaler

__all__ = ["LayerLossScales"]


def _scaler_of(value: float | LossScaler) -> LossScaler:
    return value if isinstance(value, LossScaler) else StaticLossScaler(value)


class LayerLossScales:
    """A loss scale for each layer: the gradient is multiplied by the ratio of two scales between two layers.

    Parameters
    ----------
    scales : mapping of str to float or LossScaler
        The scale of the layers whose path fits the key: a name, a pattern, or alternatives. The first key that fits
        decides.
    default : float or LossScaler
        The scale of the other layers.

    Raises
    ------
    ValueError
        For a scale of zero.

    Examples
    --------
    >>> import floatsim as fs
    >>> scales = fs.training.LayerLossScales({"layer0": 4096.0, "head": 64.0})
    >>> [scales.of(layer) for layer in ("layer0", "layer1", "head")]
    [4096.0, 1.0, 64.0]
    """

    def __init__(self, scales: Mapping[str, float | LossScaler], default: float | LossScaler = 1.0) -> None:
        self._scalers = {pattern: _scaler_of(value) for pattern, value in scales.items()}
        self._default = _scaler_of(default)

    def _scaler(self, layer: str) -> LossScaler:
        return next((s for pattern, s in self._scalers.items() if matches(pattern, [layer])), self._default)

    def of(self, layer: str) -> float:
        """Return the scale of a layer."""
        return self._scaler(layer).scale

    def unscale(self, gradients: Gradients) -> tuple[dict[str, FloatArray], bool]:
        """Return the gradients without their scales, and whether one has NaN or infinity. Each scaler is updated.

        The name of a gradient is the path of its layer, a point, and the name of the parameter.
        """
        groups: dict[int, tuple[LossScaler, dict[str, FloatArray]]] = {}
        for name, gradient in gradients.items():
            scaler = self._scaler(name.rpartition(".")[0])
            groups.setdefault(id(scaler), (scaler, {}))[1][name] = gradient
        unscaled: dict[str, FloatArray] = {}
        for scaler, group in groups.values():
            unscaled |= scaler.unscale(group)
        skipped = [scaler.update() for scaler, _ in groups.values()]
        return {name: unscaled[name] for name in gradients}, any(skipped)
