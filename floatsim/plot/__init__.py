"""Pictures of formats and of what rounding does. Each function draws into `ax` (or a new figure) and returns the Axes.

One colour per format everywhere, from the one table in `style`; matplotlib is imported when something is drawn.
"""

from floatsim.plot.bits import anatomy, bit_strip, code_grid
from floatsim.plot.heatmaps import heatmap
from floatsim.plot.interactive import explore
from floatsim.plot.lines import number_line, spacing, worst_error
from floatsim.plot.ranges import Fate, exponent_histogram, fates, format_ranges, scale_sweep
from floatsim.plot.roundings import rounding_errors, staircase
from floatsim.plot.slides import survey_figure
from floatsim.plot.style import COLOURS, CUSTOM_COLOUR, FIVE, LOST_COLOUR, colour
from floatsim.plot.sums import equal_shares, equality_matrix, error_curves, first_map, order_map, running_sums
from floatsim.plot.units import side_by_side, width_map

__all__ = [
    "COLOURS",
    "CUSTOM_COLOUR",
    "FIVE",
    "LOST_COLOUR",
    "Fate",
    "anatomy",
    "bit_strip",
    "code_grid",
    "colour",
    "equal_shares",
    "equality_matrix",
    "error_curves",
    "explore",
    "exponent_histogram",
    "fates",
    "first_map",
    "format_ranges",
    "heatmap",
    "number_line",
    "order_map",
    "rounding_errors",
    "running_sums",
    "scale_sweep",
    "side_by_side",
    "spacing",
    "staircase",
    "survey_figure",
    "width_map",
    "worst_error",
]
