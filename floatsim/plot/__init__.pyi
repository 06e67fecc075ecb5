# Written by tools/write_stubs.py. Do not edit.

from floatsim.plot.approximations import approximation_error
from floatsim.plot.bits import anatomy, bit_strip, code_grid
from floatsim.plot.equality import equality_matrix
from floatsim.plot.error_curve import error_curves
from floatsim.plot.expressions import expression_error
from floatsim.plot.first_event import first_map
from floatsim.plot.heatmaps import heatmap
from floatsim.plot.interactive import explore
from floatsim.plot.language import use_language
from floatsim.plot.layers import layer_errors, search_steps
from floatsim.plot.looks import STYLES, styled
from floatsim.plot.losses import conversion_losses, scale_sweep
from floatsim.plot.matrix_units import side_by_side, width_map
from floatsim.plot.mismatches import mismatch_map
from floatsim.plot.monitor_overview import monitor_figure
from floatsim.plot.monitors import (
    gradient_agreement, gradient_norms, loss_scale, non_finite_map, tensor_exponents, tensor_trace, update_ratios,
)
from floatsim.plot.number_line import number_line, spacing, worst_error
from floatsim.plot.ranges import exponent_histogram, format_ranges
from floatsim.plot.roundings import rounding_errors, staircase
from floatsim.plot.running_sum import running_sums
from floatsim.plot.style import COLOURS, CUSTOM_COLOUR, DEFAULT_FORMATS, LOST_COLOUR, colour
from floatsim.plot.summation_order import order_map
from floatsim.plot.survey import survey_figure
from floatsim.plot.training import training_accuracies, training_figure, training_losses

__all__ = [
    "COLOURS", "CUSTOM_COLOUR", "DEFAULT_FORMATS", "LOST_COLOUR", "STYLES", "anatomy", "approximation_error",
    "bit_strip", "code_grid", "colour", "conversion_losses", "equality_matrix", "error_curves", "explore",
    "exponent_histogram", "expression_error", "first_map", "format_ranges", "gradient_agreement", "gradient_norms",
    "heatmap", "layer_errors", "loss_scale", "mismatch_map", "monitor_figure", "non_finite_map", "number_line",
    "order_map", "rounding_errors", "running_sums", "scale_sweep", "search_steps", "side_by_side", "spacing",
    "staircase", "styled", "survey_figure", "tensor_exponents", "tensor_trace", "training_accuracies",
    "training_figure", "training_losses", "update_ratios", "use_language", "width_map", "worst_error",
]
