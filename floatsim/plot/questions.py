"""The chart of an answer: lines, or groups of bars."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from floatsim.plot.labelled_lines import DASHES, format_in_name, line_colours
from floatsim.plot.style import HEADING, Palette, mixed, new_axes, palette, titled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from floatsim.training import Answer

__all__ = ["answer_chart"]


def _tints(names: list[str], colours: Palette) -> list[tuple[str, int]]:
    """Return the colour and the number of each series: of its format, or a shade of grey without one."""
    formats = [format_in_name(re.split("[, ]", name, maxsplit=1)[0]) for name in names]
    others = [name for name, fmt in zip(names, formats, strict=True) if fmt is None]
    greys = {name: (mixed(colours.ink, colours.background, 0.75 * n / len(others)), n) for n, name in enumerate(others)}
    return [greys.get(name, tint) for name, tint in zip(names, line_colours(formats, colours), strict=True)]


def _bars(ax: Axes, series: Any, tints: list[tuple[str, int]]) -> None:
    """Draw groups of bars, one group for each text of x."""
    groups = list(dict.fromkeys(x for xs, _ in series.values() for x in xs))
    width = 0.8 / len(series)
    members = {group: [name for name, (xs, _) in series.items() if group in xs] for group in groups}
    for (name, (xs, ys)), (tint, _) in zip(series.items(), tints, strict=True):
        places = [
            groups.index(x) + (members[x].index(name) - (len(members[x]) - 1) / 2) * width for x in xs
        ]  # centred, without gaps for absent bars
        bars = ax.bar(places, ys, 0.9 * width, color=tint, label=name)
        ax.bar_label(bars, [f"{y:.2g}" for y in ys], fontsize="x-small", color=palette(ax).ink)
    ax.set_xticks(range(len(groups)), groups)
    ax.tick_params(axis="x", length=0)


def _lines(ax: Axes, series: Any, tints: list[tuple[str, int]]) -> None:
    """Draw a line for each series."""
    for (name, (xs, ys)), (tint, nth) in zip(series.items(), tints, strict=True):
        ax.plot(xs, ys, color=tint, ls=DASHES[nth % len(DASHES)], lw=1.8, label=name)


def answer_chart(answer: Answer, *, ax: Axes | None = None, title: str | None = None) -> Axes:
    """Draw the chart of an answer: lines, or bars if the x values are texts.

    Parameters
    ----------
    answer : Answer
        The result of `fs.training.answer_question`.
    ax : Axes, optional
        Axes to draw into. Default: a new figure.
    title : str, optional
        Title of the picture. Default: the question.

    Returns
    -------
    Axes

    Examples
    --------
    >>> import floatsim as fs
    >>> ax = fs.plot.answer_chart(fs.training.answer_question("depth", layers=16))
    >>> [line.get_label() for line in ax.lines]
    ['FP16', 'FP16, gain 1.1', 'BF16', 'BF16, gain 1.1']
    """
    ax = new_axes(ax, figsize=(9, 4.2))
    chart = answer.chart
    tints = _tints(list(chart.series), palette(ax))
    texts = any(isinstance(x, str) for xs, _ in chart.series.values() for x in xs)
    (_bars if texts else _lines)(ax, chart.series, tints)
    if chart.log_x:
        ax.set_xscale("log", base=2)
    if chart.log_y:
        ax.set_yscale("log")
    ax.set(xlabel=chart.x, ylabel=chart.y)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize="small", labelcolor=palette(ax).ink, loc="upper left", bbox_to_anchor=(1.01, 1))
    return titled(ax, answer.question if title is None else title, **HEADING)
