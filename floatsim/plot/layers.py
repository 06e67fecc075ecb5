"""Errors by layer or by tensor: one row for each, one mark for each series."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from floatsim.plot.style import cell, new_axes, palette, titled, words_beside

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["layer_errors", "search_steps"]

_OTHERS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Colours of groups that are no formats (Okabe and Ito, 2008)."""


def layer_errors(
    table: Mapping[str, Mapping[str, float | None]],
    *,
    groups: Mapping[str, str] | None = None,
    hollow: Mapping[str, bool] | None = None,
    levels: Mapping[str, float] | None = None,
    notes: Mapping[str, str] | None = None,
    ax: Axes | None = None,
    title: str | None = None,
    label: str = "relative error",
) -> Axes:
    """Draw the error of each layer as marks in a row, on a logarithmic scale.

    Parameters
    ----------
    table : mapping of layer to mapping of series to number
        Errors, 0 or more, the first layer on top. None, a missing series or NaN: no mark. An error of 0 is drawn at
        the left end, an infinite one at the right end, as triangles.
    groups : mapping of series to str, optional
        The group of a series. The series of a group share a colour: that of the format whose name it is, else one of a
        list. Default: each series is a group.
    hollow : mapping of series to bool, optional
        The series with hollow marks.
    levels : mapping of str to number, optional
        Errors that are drawn as dashed vertical lines, with a name in the legend. A name that is a group, or has one
        in `groups`, has its colour.
    notes : mapping of layer to str, optional
        Small text to the right of a row.
    ax : Axes, optional
        Axes to draw into. Default: a new figure.
    title : str, optional
        Title of the picture.
    label : str
        Label of the errors.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If the table has no number, or an error is negative.

    Examples
    --------
    >>> from floatsim import plot
    >>> ax = plot.layer_errors({"head": {"E4M3": 0.1}, "0": {"E4M3": 0.001}}, levels={"all": 0.2})
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['E4M3', 'all']
    """
    series = list(dict.fromkeys(name for row in table.values() for name in row))
    found = {name: [row.get(name) for row in table.values()] for name in series}
    given = [x for column in found.values() for x in column if x is not None and not math.isnan(x)]
    if not given:
        raise ValueError("table must have at least one layer with one number")
    if any(x < 0 for x in given):
        raise ValueError("table holds a negative error")
    ax = new_axes(ax, figsize=(9, 0.3 * len(table) + 1.4))
    colours = palette(ax)
    of = {name: (groups or {}).get(name, name) for name in series}
    tints = _tints(list(dict.fromkeys(of.values())), colours)
    sizes = [x for x in (*given, *(levels or {}).values()) if 0 < x < math.inf] or [1.0]
    low, high = (10.0 ** end(math.log10(size)) for end, size in ((_below, min(sizes)), (_above, max(sizes))))
    ax.set_xscale("log")
    for name, column in found.items():
        tint = tints[of[name]]
        face = colours.background if (hollow or {}).get(name) else tint
        for marker, places in _marks(column, low, high).items():
            if places:
                ax.plot([x for x, _ in places], [y for _, y in places], marker, color=tint, markerfacecolor=face,
                        clip_on=False, zorder=3, label=name if marker == "o" else None)  # fmt: skip
        if name not in ax.get_legend_handles_labels()[1]:
            ax.plot([], [], "o", color=tint, markerfacecolor=face, label=name)
    for name, x in (levels or {}).items():
        if 0 < x < math.inf:
            ax.axvline(
                x,
                color=tints.get((groups or {}).get(name, name), colours.ink),
                linestyle="--",
                linewidth=1,
                label=name,
                zorder=1,
            )
    for row, name in enumerate(table):
        if (note := (notes or {}).get(name)) is not None:
            words_beside(ax, row, note, colours)
    ax.set_yticks(range(len(table)), list(table))
    ax.set(xlim=(low, high), ylim=(len(table) - 0.5, -0.5), xlabel=label)
    ax.grid(axis="y", color=colours.pale)
    ax.set_axisbelow(True)
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right", "left"]].set_visible(False)
    if len(series) + len(levels or {}) > 1:
        ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False, fontsize="small", borderaxespad=0.2)
    return titled(ax, title, loc="right")


def _below(exponent: float) -> int:
    """The power of ten at the left end: below the least error, so that its mark is no triangle at the end."""
    return math.floor(exponent - 0.1)


def _above(exponent: float) -> int:
    return math.ceil(exponent + 0.1)


def _marks(column: list[float | None], low: float, high: float) -> dict[str, list[tuple[float, int]]]:
    """Return the places of each kind of mark: circles, and triangles for 0 and infinity."""
    marks: dict[str, list[tuple[float, int]]] = {"o": [], "<": [], ">": []}
    for row, x in enumerate(column):
        if x is not None and not math.isnan(x):
            kind = "<" if x == 0 else ">" if math.isinf(x) else "o"
            marks[kind].append((min(max(x, low), high), row))
    return marks


def _tints(groups: list[str], colours: Any) -> dict[str, str]:
    """Return the colour of each group: that of a format, or the next one of the list."""
    others = iter(_OTHERS * (1 + len(groups) // len(_OTHERS)))
    tints: dict[str, str] = {}
    for name in groups:
        own = colours.name(name)
        tints[name] = next(others) if own == colours.ink or own in tints.values() else own
    return tints


def search_steps(
    layers: Sequence[str],
    steps: Sequence[tuple[Collection[str], float, bool]],
    *,
    found: Collection[str] = (),
    ax: Axes | None = None,
    title: str | None = None,
) -> Axes:
    """Draw the runs of a search for layers, one row for each, with a cell for each layer.

    Parameters
    ----------
    layers : sequence of str
        The layers, from left to right.
    steps : sequence of (collection of str, float, bool)
        Each run: the layers that it kept in high precision (dark cells), its error, and whether it passed.
    found : collection of str
        The layers that were found. Their cells and names are orange.
    ax : Axes, optional
        Axes to draw into. Default: a new figure.
    title : str, optional
        Title of the picture.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        Without layers or steps.

    Examples
    --------
    >>> from floatsim import plot
    >>> ax = plot.search_steps(["0", "1"], [((), 0.5, False), (("1",), 0.01, True)], found=["1"])
    >>> [text.get_text() for text in ax.texts]
    ['5.0e-01, failed', '1.0e-02, passed']
    """
    if not layers or not steps:
        raise ValueError("layers and steps must have at least one entry")
    ax = new_axes(ax, figsize=(0.32 * len(layers) + 3, 0.3 * len(steps) + 1.4))
    colours = palette(ax)
    strong = _OTHERS[1]
    for row, (kept, error, passed) in enumerate(steps):
        for column, name in enumerate(layers):
            tint = colours.pale if name not in kept else strong if name in found else colours.paler(colours.ink, 0.6)
            ax.add_patch(cell(column, row, tint, colours.background))
        ax.annotate(f"{error:.1e}, {'passed' if passed else 'failed'}", (len(layers), row + 0.5), (6, 0),
                    textcoords="offset points", va="center", fontsize="small", color=colours.ink,
                    fontweight="bold" if passed else "normal", annotation_clip=False)  # fmt: skip
    ax.set(xlim=(0, len(layers)), ylim=(len(steps), 0), ylabel="run")
    ax.set_xticks([column + 0.5 for column in range(len(layers))], layers, rotation=90)
    for label in ax.get_xticklabels():
        if label.get_text() in found:
            label.set(color=strong, fontweight="bold")
    ax.set_yticks([row + 0.5 for row in range(len(steps))], [str(row + 1) for row in range(len(steps))])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return titled(ax, title)
