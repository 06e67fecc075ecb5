"""Pictures of formats, of rounding and of sums. Each function draws into `ax` (or a new figure) and returns the Axes.

A format has the same colour in every picture (`FloatFormat.colour`). Text, lines and lost values follow the background,
light or dark. matplotlib is imported when a picture is drawn.
"""

import functools
import importlib
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from floatsim.plot.bits import anatomy, bit_strip, code_grid
from floatsim.plot.equality import equality_matrix
from floatsim.plot.error_curve import error_curves
from floatsim.plot.first_event import first_map
from floatsim.plot.heatmaps import heatmap
from floatsim.plot.interactive import explore
from floatsim.plot.lines import number_line, spacing, worst_error
from floatsim.plot.losses import conversion_losses, scale_sweep
from floatsim.plot.mismatches import mismatch_map
from floatsim.plot.monitor_figure import monitor_figure
from floatsim.plot.monitors import (
    gradient_agreement,
    gradient_norms,
    loss_scale,
    non_finite_map,
    tensor_exponents,
    tensor_trace,
    update_ratios,
)
from floatsim.plot.questions import answer_chart
from floatsim.plot.ranges import exponent_histogram, format_ranges
from floatsim.plot.roundings import rounding_errors, staircase
from floatsim.plot.running_sum import running_sums
from floatsim.plot.slides import survey_figure
from floatsim.plot.style import COLOURS, CUSTOM_COLOUR, DEFAULT_FORMATS, LOST_COLOUR, colour
from floatsim.plot.summation_order import order_map
from floatsim.plot.training import training_accuracies, training_figure, training_losses
from floatsim.plot.units import side_by_side, width_map

__all__ = [
    "COLOURS",
    "CUSTOM_COLOUR",
    "DEFAULT_FORMATS",
    "LOST_COLOUR",
    "anatomy",
    "answer_chart",
    "bit_strip",
    "code_grid",
    "colour",
    "conversion_losses",
    "equality_matrix",
    "error_curves",
    "explore",
    "exponent_histogram",
    "first_map",
    "format_ranges",
    "gradient_agreement",
    "gradient_norms",
    "heatmap",
    "loss_scale",
    "mismatch_map",
    "monitor_figure",
    "non_finite_map",
    "number_line",
    "order_map",
    "rounding_errors",
    "running_sums",
    "scale_sweep",
    "side_by_side",
    "spacing",
    "staircase",
    "survey_figure",
    "tensor_exponents",
    "tensor_trace",
    "training_accuracies",
    "training_figure",
    "training_losses",
    "update_ratios",
    "width_map",
    "worst_error",
]


def _default_formats() -> Any:
    from floatsim.formats import as_format

    return tuple(map(as_format, DEFAULT_FORMATS))


def _from_analysis(module: str, name: str) -> Any:
    return getattr(importlib.import_module(f"floatsim.analysis.{module}"), name)


def _losses_without_options() -> Any:
    return functools.partial(_from_analysis("losses", "conversion_losses"), rounding="ties_to_even", ftz=False)


_DEPRECATED: dict[str, tuple[str, Callable[[], Any]]] = {
    "FIVE": ("plot.DEFAULT_FORMATS", _default_formats),
    "Fate": ("fs.ConversionLosses", functools.partial(_from_analysis, "losses", "ConversionLosses")),
    "fates": ("fs.conversion_losses", _losses_without_options),
    "equal_shares": ("fs.equal_shares", functools.partial(_from_analysis, "equality", "equal_shares")),
}
"""The deprecated names: the new name, and a function that returns the object."""


if not TYPE_CHECKING:  # for a type checker, `__getattr__` would make every name valid

    def __getattr__(name: str) -> Any:
        if name not in _DEPRECATED:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        new_name, load = _DEPRECATED[name]
        warnings.warn(f"plot.{name} is deprecated; use {new_name}", DeprecationWarning, stacklevel=2)
        return load()
