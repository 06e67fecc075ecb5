"""Pictures of formats, of rounding and of sums. Each function draws into `ax` (or a new figure) and returns the Axes.

A format has the same colour in every picture (`FloatFormat.colour`). Text, lines and lost values follow the background,
light or dark. matplotlib is imported when a picture is drawn.
"""

from __future__ import annotations

from floatsim._lazy import lazy_exports

_HOMES = {
    ".approximations": "approximation_error",
    ".bits": "anatomy bit_strip code_grid",
    ".equality": "equality_matrix",
    ".error_curve": "error_curves",
    ".expressions": "expression_error",
    ".first_event": "first_map",
    ".heatmaps": "heatmap",
    ".interactive": "explore",
    ".language": "use_language",
    ".number_line": "number_line spacing worst_error",
    ".layers": "layer_errors search_steps",
    ".looks": "STYLES styled",
    ".losses": "conversion_losses scale_sweep",
    ".mismatches": "mismatch_map",
    ".monitor_overview": "monitor_figure",
    ".monitors": (
        "gradient_agreement gradient_norms loss_scale non_finite_map tensor_exponents tensor_trace update_ratios"
    ),
    ".ranges": "exponent_histogram format_ranges",
    ".roundings": "rounding_errors staircase",
    ".running_sum": "running_sums",
    ".survey": "survey_figure",
    ".style": "COLOURS CUSTOM_COLOUR DEFAULT_FORMATS LOST_COLOUR colour",
    ".summation_order": "order_map",
    ".training": "training_accuracies training_figure training_losses",
    ".matrix_units": "side_by_side width_map",
}
__getattr__, __dir__, __all__ = lazy_exports(__name__, _HOMES)
