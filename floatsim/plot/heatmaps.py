"""Heat maps of errors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from floatsim.plot.style import LOST_COLOUR, cell, new_axes, palette, titled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["heatmap", "power"]


def power(value: float) -> str:
    """A relative error in a cell: "3 %", or a power of ten below a thousandth."""
    if value == 0:
        return "0"
    if value >= 0.00095:
        return f"{100 * value:.2g} %" if value < 0.995 else f"{100 * value:.0f} %" if value < 10 else f"{value:.0e}"
    digits, exponent = f"{value:.0e}".split("e")
    return rf"${digits}\cdot10^{{{int(exponent)}}}$"


def heatmap(
    table: Mapping[str, Mapping[str, float | None]],
    *,
    ax: Axes | None = None,
    title: str | None = None,
    label: str = "relative error",
    notes: Mapping[tuple[str, str], str] | None = None,
    texts: Mapping[tuple[str, str], str] | None = None,
    limits: tuple[float, float] | None = None,
    colorbar: bool = True,
) -> Axes:
    """Draw a table of errors as colours, on a logarithmic scale: light is small, dark is large.

    Parameters
    ----------
    table : mapping of row to mapping of column to number
        Errors, 0 or more. None, a missing column, or NaN: no error is known; the cell is pale.
    ax : Axes, optional
        Axes to draw into. Default: a new figure.
    title : str, optional
        Title of the picture.
    label : str
        Label of the colour bar.
    notes : mapping of (row, column) to str, optional
        Notes for cells with lost results, such as their share. A note is drawn on black, under the number.
    texts : mapping of (row, column) to str, optional
        Text to draw in a cell instead of its number.
    limits : (float, float), optional
        Errors at the ends of the colours. Default: the powers of ten around the table's.
    colorbar : bool
        Whether to draw a colour bar.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If the table is empty, or an error is negative.

    Examples
    --------
    >>> from floatsim import plot
    >>> ax = plot.heatmap({"FP16": {"FP16": 1e-3, "FP32": 1e-7}, "FP32": {"FP32": 1e-8}})
    >>> [text.get_text() for text in ax.texts]
    ['0.1 %', '$1\\\\cdot10^{-7}$', '-', '$1\\\\cdot10^{-8}$']
    """
    import numpy as np
    from matplotlib import colormaps
    from matplotlib.colors import LogNorm
    from matplotlib.patches import Rectangle

    rows, columns = list(table), list(dict.fromkeys(name for row in table.values() for name in row))
    if not columns:
        raise ValueError("table must have at least one row with one number")
    grid = [[table[row].get(column) for column in columns] for row in rows]
    numbers = np.array([[math.nan if value is None else value for value in row] for row in grid])
    if (numbers < 0).any():
        raise ValueError("table holds a negative error")
    sizes = numbers[np.isfinite(numbers) & (numbers > 0)]
    if limits is None:
        low, high = (sizes.min(), sizes.max()) if sizes.size else (0.1, 1.0)
        first = math.floor(math.log10(low))
        limits = 10.0**first, 10.0 ** max(math.ceil(math.log10(high)), first + 1)
    ax = new_axes(ax, figsize=(1.2 * len(columns) + 2, 0.6 * len(rows) + 1))
    colours = palette(ax)
    norm, scale = LogNorm(*limits, clip=True), colormaps["YlOrRd"]
    mesh = ax.pcolormesh(np.ma.masked_invalid(np.maximum(numbers, limits[0])), norm=norm, cmap=scale,
                         edgecolors=colours.background, linewidth=2)  # fmt: skip
    for (i, j), value in np.ndenumerate(numbers):
        note = (notes or {}).get((rows[i], columns[j]))
        tint = scale(norm(max(value, limits[0]))) if math.isfinite(value) else colours.pale
        tint = LOST_COLOUR if math.isinf(value) else tint
        text = "-" if math.isnan(value) else "∞" if math.isinf(value) else power(value)
        text = (texts or {}).get((rows[i], columns[j]), text)
        if note is not None and not math.isfinite(value):  # no number beside the note
            tint, text, note = LOST_COLOUR, note, None
        ax.add_patch(cell(j, i, tint, colours.background))
        height = 1.0
        if note is not None:
            height = 0.56
            ax.add_patch(Rectangle((j + 0.015, i + height), 0.97, 0.96 - height, facecolor=LOST_COLOUR, linewidth=0))
            ax.text(j + 0.5, i + 0.76, note, ha="center", va="center", fontsize="small", color="white")
        ax.text(j + 0.5, i + height / 2 + 0.01, text, ha="center", va="center", color=colours.on(tint))
    ax.set_xticks(np.arange(len(columns)) + 0.5, columns)
    ax.set_yticks(np.arange(len(rows)) + 0.5, rows)
    for tick in ax.get_yticklabels():
        tick.set(color=colours.name(tick.get_text()), fontweight="bold")
    ax.tick_params(length=0)
    ax.invert_yaxis()
    ax.spines[:].set_visible(False)
    titled(ax, title)
    if colorbar:
        ax.figure.colorbar(mesh, ax=ax, label=label)
    return ax
