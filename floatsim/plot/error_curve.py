"""Errors against the length of sums."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from floatsim.formats import FormatLike, as_format
from floatsim.plot.line_labels import DASHES, format_of, label_ends, line_colours
from floatsim.plot.style import HEADING, new_axes, palette, titled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["error_curves"]

_MARKERS = "os^Dv<>Pp*X"
_NEAREST_LABELS = 0.035
"""Share of the axis between two labels at least."""


def error_curves(
    errors: Mapping[str, Mapping[float, float]],
    *,
    ax: Axes | None = None,
    title: str | None = None,
    xlabel: str = "K, terms of each sum",
    ylabel: str = "relative error",
    formats: Mapping[str, FormatLike] | None = None,
) -> Axes:
    """Draw errors against the length of the sums, on logarithmic scales, with a label at the end of each line.

    Parameters
    ----------
    errors : mapping of name to mapping of K to error
        The errors of each line. Errors of 0 are left out, because the scale is logarithmic.
    ax : Axes, optional
        Axes to draw into. Default: a new figure.
    title : str, optional
        Title of the picture.
    xlabel, ylabel : str
        Labels of the axes.
    formats : mapping of name to format, optional
        The format whose colour a line has. Default: for names that are accumulations, the format in which they add;
        otherwise the colour of text. Several lines of one format have shades of its colour.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If an error is negative, infinite or NaN, no error is above 0, or a length is not a finite number above 0.

    Examples
    --------
    >>> from floatsim import plot
    >>> ax = plot.error_curves({"fp16": {64: 1e-3, 1024: 2e-2}, "fp32": {64: 1e-7, 1024: 1e-6}})
    >>> [text.get_text() for text in ax.texts], ax.get_xscale(), ax.get_yscale()
    (['fp16', 'fp32'], 'log', 'log')
    """
    points = {name: sorted((x, y) for x, y in line.items() if y != 0) for name, line in errors.items()}
    for name, x, y in ((name, x, y) for name, line in errors.items() for x, y in line.items()):
        if not 0 < x < float("inf"):
            raise ValueError(f"errors[{name!r}] has the length {x!r}; lengths are finite numbers above 0")
        if not 0 <= y < float("inf"):
            raise ValueError(f"errors[{name!r}] holds {y!r}; errors are finite numbers, 0 or more")
    points = {name: line for name, line in points.items() if line}
    if not points:
        raise ValueError("errors must hold at least one number above 0")
    ax = new_axes(ax, figsize=(7.5, 4.2))
    ax.set(xscale="log", yscale="log")
    colours = palette(ax)
    owners = [as_format(formats[name]) if formats and name in formats else format_of(name) for name in points]
    tints = line_colours(owners, colours)
    for line, (tint, nth), marker in zip(points.values(), tints, itertools.cycle(_MARKERS), strict=False):
        ax.plot(*zip(*line, strict=True), color=tint, marker=marker, ms=4.5, lw=1.8, ls=DASHES[nth % len(DASHES)])
    every = sorted({x for line in points.values() for x, _ in line})
    ax.set_xticks(every, _tick_labels(every))
    ax.minorticks_off()
    ax.set_xlim(every[0] / 1.06, every[-1] * 1.06)
    ax.set_xlabel(xlabel)
    ax.set_ylabel(ylabel)
    ax.grid(axis="y", color=colours.pale, zorder=0)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    titled(ax, title, **HEADING)
    label_ends(ax, [line[-1] for line in points.values()], list(points), [tint for tint, _ in tints])
    return ax


def _tick_labels(every: list[float]) -> list[str]:
    """Return the labels of ticks on a logarithmic axis: none where the label before it is too near."""
    labels, last = [], -math.inf
    for x in every:
        at = math.log(x / every[0])
        free = at - last >= _NEAREST_LABELS * math.log(every[-1] / every[0])
        labels.append(f"{x:g}" if free else "")
        last = at if free else last
    return labels
