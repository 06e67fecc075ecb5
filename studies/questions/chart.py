"""The chart of an answer: lines, or groups of bars."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from floatsim import as_format
from floatsim.plot import colour

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from studies.questions.question import Answer

DASHES = ("-", "--", ":", "-.")
GREYS = ("0.15", "0.45", "0.65", "0.8")


def _styles(names: list[str]) -> list[tuple[str, str, float]]:
    """Return the colour, the dashes and the opacity of each series: the colour of its format, or a grey without one."""
    seen: Counter[str] = Counter()
    styles = []
    for name in names:
        try:
            tint = colour(as_format(re.split("[, ]", name, maxsplit=1)[0]))
        except ValueError:
            tint = GREYS[sum(seen[grey] for grey in GREYS) % len(GREYS)]
        styles.append((tint, DASHES[seen[tint] % len(DASHES)], 1 - 0.4 * (seen[tint] > 0)))
        seen[tint] += 1
    return styles


def _bars(ax: Axes, series: Any) -> None:
    """Draw groups of bars, one group for each text of x."""
    groups = list(dict.fromkeys(x for xs, _ in series.values() for x in xs))
    width = 0.8 / len(series)
    members = {group: [name for name, (xs, _) in series.items() if group in xs] for group in groups}
    for (name, (xs, ys)), (tint, _, alpha) in zip(series.items(), _styles(list(series)), strict=True):
        places = [
            groups.index(x) + (members[x].index(name) - (len(members[x]) - 1) / 2) * width for x in xs
        ]  # centred, without gaps for absent bars
        bars = ax.bar(places, ys, 0.9 * width, color=tint, alpha=alpha, label=name)
        ax.bar_label(bars, [f"{y:.2g}" for y in ys], fontsize="x-small")
    ax.set_xticks(range(len(groups)), groups)
    ax.tick_params(axis="x", length=0)


def _lines(ax: Axes, series: Any) -> None:
    """Draw a line for each series."""
    for (name, (xs, ys)), (tint, dashes, alpha) in zip(series.items(), _styles(list(series)), strict=True):
        ax.plot(xs, ys, color=tint, ls=dashes, alpha=alpha, lw=1.8, label=name)


def answer_chart(answer: Answer, *, ax: Axes | None = None, title: str | None = None) -> Axes:
    """Draw the chart of an answer: lines, or bars if the x values are texts.

    Parameters
    ----------
    answer : Answer
        The result of `answer_question`.
    ax : Axes, optional
        Axes to draw into. Default: a new figure.
    title : str, optional
        Title of the picture. Default: the question.

    Returns
    -------
    Axes
    """
    if ax is None:
        import matplotlib.pyplot as plt

        _, ax = plt.subplots(figsize=(9, 4.2), layout="constrained")
    chart = answer.chart
    texts = any(isinstance(x, str) for xs, _ in chart.series.values() for x in xs)
    (_bars if texts else _lines)(ax, chart.series)
    if chart.log_x:
        ax.set_xscale("log", base=2)
    if chart.log_y:
        ax.set_yscale("log")
    ax.set(xlabel=chart.x, ylabel=chart.y)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(1.01, 1))
    ax.set_title(answer.question if title is None else title, loc="left", fontweight="bold")
    return ax
