"""The error of an expression over an interval of one variable."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from floatsim.analysis.explain_expression import expression_errors
from floatsim.arrays.array.conversion import quantize
from floatsim.formats import FormatLike, as_format
from floatsim.formats._validation import as_index, as_real
from floatsim.plot.line_labels import DASHES, label_ends, line_colours
from floatsim.plot.style import HEADING, new_axes, palette, titled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["expression_error"]

_RATIO = 100  # from this ratio of the ends on, the axis is logarithmic
_BESIDE = 40  # the longest expression, in characters, that stands beside its line


def expression_error(
    expression: str, format: FormatLike, variable: str, low: float, high: float, *, points: int = 200,
    ax: Axes | None = None, title: str | None = None, **values: Any,
) -> Axes:  # fmt: skip
    """Draw the error of an expression and of its stable forms over an interval of one variable, in ulps.

    The points are numbers of the format. Errors of 0 are left out, because the scale is logarithmic. The errors are
    exact for the values of `fs.explain`. Each expression stands beside its line; if one is longer than 40 characters,
    all are in a legend below the axes.

    Parameters
    ----------
    expression : str
        As for `fs.explain`.
    format : format
        The format of all operations.
    variable : str
        The name of the variable on the horizontal axis.
    low, high : float
        The interval. The axis is logarithmic if high is 100 times low or more.
    points : int
        The number of points, at most: the numbers of a narrow format may be fewer.
    ax : Axes, optional
        Axes to draw into. Default: a new figure.
    title : str, optional
        Title of the picture.
    **values
        The values of the other variables.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If the interval is empty, the expression is outside the grammar, a variable has no value, or no form has a
        finite error above 0.

    Examples
    --------
    >>> from floatsim import plot
    >>> ax = plot.expression_error("log(1 + x)", "bf16", "x", 1e-4, 1, points=40)
    >>> [text.get_text() for text in ax.texts], ax.get_xscale(), ax.get_yscale()
    (['log(1 + x)', 'log1p(x)'], 'log', 'log')
    """
    fmt = as_format(format)
    low, high = as_real(low, "low"), as_real(high, "high")
    count = as_index(points, "points", 2, 100_000)
    if not (low < high and math.isfinite(low) and math.isfinite(high)):
        raise ValueError(f"low={low:g} and high={high:g} are no interval: low must be less than high")
    logarithmic = low > 0 and high >= _RATIO * low
    spread = np.geomspace(low, high, count) if logarithmic else np.linspace(low, high, count)
    x = np.unique(np.asarray(quantize(spread, fmt)))
    errors = expression_errors(expression, fmt, variable, x.tolist(), **values)
    lines = {name: np.abs(np.array(line)) for name, line in errors.items()}
    drawn = {name: np.isfinite(line) & (line > 0) for name, line in lines.items()}
    kept = [name for name, where in drawn.items() if where.any()]
    if not kept:
        raise ValueError(f"expression: no error between {low:g} and {high:g} is a finite number above 0")
    ax = new_axes(ax, figsize=(7.5, 4.2))
    colours = palette(ax)
    ax.set(xscale="log" if logarithmic else "linear", yscale="log")
    tints = line_colours([fmt] * len(kept), colours)
    for name, (tint, nth) in zip(kept, tints, strict=True):
        where = drawn[name]
        ax.plot(x[where], lines[name][where], color=tint, lw=1.4, ls=DASHES[nth % len(DASHES)], label=name)
    ax.axhline(0.5, color=colours.pale, lw=1, zorder=0)
    ax.set(xlabel=variable, ylabel=f"error, ulp of {fmt.name}")
    ax.spines[["top", "right"]].set_visible(False)
    titled(ax, title, **HEADING)
    if max(map(len, kept)) > _BESIDE:
        ax.legend(
            loc="upper left", bbox_to_anchor=(0, -0.14), frameon=False, fontsize="small", labelcolor="linecolor",
            handlelength=3, borderaxespad=0.2,
        )  # fmt: skip
        return ax
    ends = [(float(x[drawn[name]][-1]), float(lines[name][drawn[name]][-1])) for name in kept]
    label_ends(ax, ends, kept, [tint for tint, _ in tints])
    return ax
