"""Shared code for pictures with labelled lines: colours of lines with the same format, and labels at the ends."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from floatsim.formats import FloatFormat, as_format
from floatsim.plot.style import Palette, fitting_size, keep_beside, mixed, palette

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["DASHES", "format_in_name", "format_of", "label_ends", "line_colours"]

DASHES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (5, 1.5, 1.2, 1.5)), (0, (8, 1.5, 1.2, 1.5, 1.2, 1.5)))
"""Line styles, in the order in which lines of one format take them."""

_SHADES = {False: (-0.6, 0.5), True: (-0.3, 0.85)}
"""The ends of a format's shades, by whether the background is dark: the share of black, negative, and of white."""


_LINE = 1.35  # the distance of labels, in font sizes


def format_of(accumulation: Any) -> FloatFormat | None:
    """The format in which a description adds, of its innermost leaf; None where the text is no description."""
    from floatsim.accumulation import Leaf, as_accumulation, leaves

    try:
        summed = as_accumulation(accumulation)
    except (TypeError, ValueError):
        return None
    inner: list[Leaf] = leaves(summed)
    return inner[0].format if inner else summed.result_format


def format_in_name(name: str, stands_for: Mapping[str, str] | None = None) -> FloatFormat | None:
    """Return the first format among the words of a name. `stands_for` has the formats of other words."""
    for word in re.split(r"[-+, ]", name):
        try:
            return as_format((stands_for or {}).get(word, word))
        except (TypeError, ValueError):
            continue
    return None


def line_colours(formats: Sequence[FloatFormat | None], colours: Palette) -> list[tuple[str, int]]:
    """Return each line's colour and its number among the lines of its format; None is a line without a format.

    One line has the format's colour. Several lines of a format have shades of it, from dark to light, so that
    they differ in lightness for every reader.
    """
    counts, seen = Counter(formats), Counter[FloatFormat | None]()
    found = []
    for fmt in formats:
        tint, nth = colours.ink if fmt is None else colours.format(fmt), seen[fmt]
        seen[fmt] += 1
        span = min(1.0, (counts[fmt] + 1) / 6)  # two or three shades are less extreme than five
        dark, light = _SHADES[colours.dark]
        share = span * (dark + (light - dark) * nth / (counts[fmt] - 1)) if counts[fmt] > 1 else 0.0
        found.append((mixed(tint, "#000000" if share < 0 else "#ffffff", abs(share)), nth))
    return found


def _apart(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """The places, moved as little as leaves `gap` between neighbours, within the limits where they all fit."""
    order = sorted(range(len(places)), key=lambda i: places[i])
    moved = list(places)
    for _ in range(200):
        for below, above in itertools.pairwise(order):
            short = gap - (moved[above] - moved[below])
            if short > 1e-9:
                moved[below] -= short / 2
                moved[above] += short / 2
        for i in order:
            moved[i] = min(max(moved[i], low), high)
    return moved


def label_ends(ax: Axes, ends: Sequence[tuple[float, float]], words: Sequence[str], tints: Sequence[str]) -> None:
    """Write the label of each line beside its end; labels that would overlap are moved apart.

    A label has the colour of its line, or one that can be read better.
    """
    ax.figure.canvas.draw()  # for the transforms
    to_axes = (ax.transData + ax.transAxes.inverted()).transform
    heights = [float(to_axes(end)[1]) for end in ends]
    points = max(72 * ax.get_window_extent().height / ax.figure.dpi, 36)
    size = min(fitting_size("", points, "small"), points / (_LINE * len(ends)))
    placed = _apart(heights, _LINE * size / points, 0.0, 1.0 - size / 2 / points)  # below the title
    colours = palette(ax)
    labels = [
        ax.annotate(
            word, end, (1.045, height), "data", "axes fraction", va="center", color=colours.text(tint), fontsize=size,
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": tint, "lw": 0.6, "shrinkA": 0, "shrinkB": 0, "relpos": (0, 0.5)},
        )
        for end, height, word, tint in zip(ends, placed, words, tints, strict=True)
    ]  # fmt: skip
    keep_beside(ax, labels)
