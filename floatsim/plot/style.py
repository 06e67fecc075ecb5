"""Shared code of all pictures: the colours of formats, the colours of a background, titles and axes.

The colours can be told apart by colour-blind readers and differ in lightness, so that they remain distinct in grey.
matplotlib is imported when a picture is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from floatsim.formats import CUSTOM_COLOUR, FP64, FloatFormat, FormatLike, as_format, named_formats

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "COLOURS",
    "CUSTOM_COLOUR",
    "DEFAULT_FORMATS",
    "FIGURE_SIZE",
    "HEADING",
    "INK",
    "LOST_COLOUR",
    "PALE",
    "Palette",
    "cell",
    "colour",
    "contrast",
    "fitting_size",
    "in_percent",
    "is_dark",
    "keep_beside",
    "mixed",
    "name_rows",
    "new_axes",
    "palette",
    "powers_of_two",
    "shrink",
    "text_extent",
    "titled",
    "width_in_points",
    "words_beside",
]

COLOURS: dict[FloatFormat, str] = {fmt: fmt.colour for fmt in named_formats()}
"""The colour of each named format.

>>> import floatsim as fs
>>> fs.plot.COLOURS[fs.BF16]
'#009e73'
"""

LOST_COLOUR = "#1a1a1a"
"""Values and bits lost in a rounding, on a light background.

>>> import floatsim as fs
>>> fs.plot.LOST_COLOUR
'#1a1a1a'
"""

DEFAULT_FORMATS = ("FP32", "FP16", "BF16", "E4M3", "E5M2")
"""The formats that a picture shows by default.

>>> import floatsim as fs
>>> fs.plot.DEFAULT_FORMATS
('FP32', 'FP16', 'BF16', 'E4M3', 'E5M2')
"""

INK, PALE = "#222222", "#f1f1f1"
"""Text and lines; areas without data: both on a light background."""

HEADING: dict[str, Any] = {"loc": "left", "fontweight": "bold"}
"""The style of titles above pictures of sums and of matrix units."""

FIGURE_SIZE: ContextVar[Callable[[float, float], tuple[float, float]] | None] = ContextVar("FIGURE_SIZE", default=None)
"""The size of a new figure from its usual width and height in inches, in a block of `styled`."""

_LEAST_CONTRAST = 4.5  # of a colour with a dark background, as WCAG 2 asks for text
_LEAST_ON_LIGHT = 3.0  # for labels of lines: the colours of most formats have less than 4.5 on white
_HIDDEN_PART = 0.4  # of a colour map: beyond it, the contrast with the background of `styled("dark")` is above 3
_PALE_PART = 0.3  # of a colour map: before it, the contrast with white is less than 2
_ON_DARK = {FP64: "#f5f5f5"}  # black would become the grey of FP32


def colour(format: FormatLike) -> str:
    """Return the colour of a format in every picture.

    Parameters
    ----------
    format : format
        Anything that `fs.as_format` takes.

    Returns
    -------
    str
        The colour as "#rrggbb". Where the settings of matplotlib have a dark background, such as in a block of
        `styled("dark")`, it is made lighter as far as it must be to be read on that background.

    Examples
    --------
    >>> from floatsim import plot
    >>> plot.colour("fp16")
    '#0072b2'
    >>> with plot.styled("dark"):
    ...     plot.colour("fp16")
    '#338ec1'
    """
    from matplotlib import rcParams

    return _palette_on(rcParams["axes.facecolor"], rcParams["figure.facecolor"]).format(format)


_LETTER = 0.64  # the width of a digit of DejaVu Sans, in font sizes
_MINUS = 0.4  # by which a minus sign is wider, in digits
_HAN = 0.6  # by which a Chinese character is wider, in digits


def fitting_size(text: str, points: float, size: str | float = "medium") -> float:
    """Return a font size in points, at most `size`, at which the longest line of a text is at most `points` wide.

    >>> fitting_size("0.125", 100.0, 10.0), round(fitting_size("0.125", 16.0, 10.0), 2)
    (10.0, 5.0)
    """
    from matplotlib import rcParams
    from matplotlib.font_manager import font_scalings

    wanted = rcParams["font.size"] * font_scalings[size] if isinstance(size, str) else size
    letters = max(map(_digits, text.splitlines()), default=0.0)
    return float(min(wanted, points / (_LETTER * max(letters, 1))))


def _digits(line: str) -> float:
    """The width of a line of text, in digits."""
    return len(line) + _MINUS * line.count("−") + _HAN * sum(letter > "\u2e80" for letter in line)


def width_in_points(ax: Axes) -> float:
    """Return the width of Axes in points."""
    return float(72 * ax.get_window_extent().width / ax.figure.dpi)


def text_extent(text: Any) -> Any:
    """Return the box of a text in pixels, without the line from an annotation to its point."""
    from matplotlib.text import Text

    text.get_window_extent()  # moves an annotation to its place
    return Text.get_window_extent(text)


def shrink(texts: Sequence[Any], room: float) -> None:
    """Make texts smaller, all by one factor, until the widest has at most `room` pixels."""
    for _ in range(8):  # hinting makes widths uneven in the size
        widest = max(text_extent(text).width for text in texts)
        if widest <= room:
            return
        for text in texts:
            text.set_fontsize(text.get_fontsize() * max(room / widest, 0.1))


def keep_beside(ax: Axes, texts: Sequence[Any], least: float = 0.4) -> None:
    """Make texts to the right of Axes end inside the figure, and before the next Axes to the right.

    They become smaller until `least` of the width remains for the Axes. Then the Axes become narrower, unless a layout
    engine moves them.

    >>> import matplotlib.pyplot as plt
    >>> figure, ax = plt.subplots()
    >>> text = ax.annotate("a long label of a line", (1.05, 0.5), xycoords="axes fraction")
    >>> keep_beside(ax, [text])
    >>> bool(text_extent(text).x1 < figure.bbox.x1)
    True
    """
    figure, texts = ax.figure, [text for text in texts if text.get_text()]
    if not texts:
        return
    for text in texts:
        text.set_in_layout(False)  # a layout engine would leave no room for the Axes
    figure.canvas.draw()  # for the extents
    frame, pad = ax.get_window_extent(), 8 * figure.dpi / 72
    beside = [other.get_tightbbox() for other in figure.axes if other.get_window_extent().x0 > frame.x1]
    rows = [box.x0 for box in beside if box is not None and box.y0 < frame.y1 and box.y1 > frame.y0]
    end = min([figure.bbox.x1, *rows]) - pad
    gap = max(text_extent(text).x0 for text in texts) - frame.x1
    shrink(texts, (1 - least) * (end - frame.x0) - gap)
    for text in texts:
        text.set_in_layout(True)
    beyond = max(text_extent(text).x1 for text in texts) - end
    if beyond > 0 and figure.get_layout_engine() is None:
        place = ax.get_position()
        ax.set_position((place.x0, place.y0, place.width - beyond / figure.bbox.width, place.height))
        ax.set_in_layout(True)  # set_position removes the Axes from bbox_inches="tight"


def new_axes(ax: Axes | None, **figure: Any) -> Axes:
    """Return `ax`, or the Axes of a new figure."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    if (size := FIGURE_SIZE.get()) is not None:
        figure["figsize"] = size(*figure.get("figsize", plt.rcParams["figure.figsize"]))
    drawn: Axes = plt.subplots(layout="constrained", **figure)[1]
    return drawn


def titled(ax: Axes, title: str | None, **looks: Any) -> Axes:
    """Set the title if one is given, on several lines where it would leave the figure or reach a title beside it."""
    from functools import partial

    if title is not None:
        text: Any = ax.set_title(title, wrap=True, **looks)
        # matplotlib has no public width for wrapping. A partial, not a lambda: figures can be pickled.
        text._get_wrap_line_width = partial(_width_of_title, ax, text, _points_of_title(ax))
    return ax


def _points_of_title(ax: Axes) -> float:
    """The room for a title in points if other Axes are beside these: nine tenths of their width.

    A layout makes Axes narrower, for their labels. The room remains that of now, so that it does not change the lines.
    """
    frame = ax.get_window_extent()
    frames = [other.get_window_extent() for other in ax.figure.axes if other.get_label() != "<colorbar>"]
    beside = any(box.x0 >= frame.x1 or box.x1 <= frame.x0 for box in frames if box.y0 < frame.y1 and box.y1 > frame.y0)
    return 0.9 * width_in_points(ax) if beside else math.inf


def _width_of_title(ax: Axes, text: Any, points: float) -> float:
    """The pixels for a line of a title: `points`, or less where the figure ends."""
    pixels = ax.figure.dpi / 72
    return float(min(points * pixels, type(text)._get_wrap_line_width(text) - text.get_fontsize() * pixels))


def in_percent(fraction: float) -> str:
    """A share as text: "0 %", "< 0.1 %", "2.3 %", "41 %". "100 %" stands for all, and for nothing less."""
    percent = 100 * fraction
    if percent in (0, 100):
        return f"{percent:.0f} %"
    if percent < 0.1:
        return "< 0.1 %"
    return f"{min(percent, 99.9):.1f} %" if percent < 10 or percent > 99 else f"{percent:.0f} %"


# -- colours on a background -----------------------------------------------------------------------------------------


def _luminance(tint: Any) -> float:
    """The relative luminance of WCAG 2."""
    from matplotlib.colors import to_rgb

    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(tint))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: Any, other: Any) -> float:
    """The contrast ratio of WCAG 2, from 1 (the same lightness) to 21 (black and white).

    >>> contrast("white", "black")
    21.0
    """
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def is_dark(tint: Any) -> bool:
    """Return whether white text on this colour is easier to read than black text."""
    from matplotlib.colors import to_rgb

    red, green, blue = (part**2.2 for part in to_rgb(tint))
    return bool(0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.3)


def mixed(tint: Any, other: Any, share: float) -> str:
    """The colour that lies between two others; `share` is that of the second one.

    >>> mixed("black", "white", 0.5)
    '#808080'
    """
    from matplotlib.colors import to_hex, to_rgb

    red, green, blue = ((1 - share) * a + share * b for a, b in zip(to_rgb(tint), to_rgb(other), strict=True))
    return to_hex((red, green, blue))


@dataclass(frozen=True)
class Palette:
    """The colours that can be read on one background."""

    background: str
    ink: str
    """Text and lines."""
    pale: str
    """Areas without data."""
    lost: str
    """Values and bits lost in a rounding."""
    dark: bool

    @property
    def lost_name(self) -> str:
        """The name of the colour of losses, for captions."""
        return "white" if self.dark else "black"

    def format(self, format: FormatLike) -> str:
        """The colour of a format, made lighter where a dark background would hide it."""
        tint: str = as_format(format).colour
        if not self.dark:
            return tint
        tint = _ON_DARK.get(as_format(format), tint)
        steps = (mixed(tint, "white", step / 20) for step in range(21))
        return next((each for each in steps if contrast(each, self.background) >= _LEAST_CONTRAST), tint)

    def name(self, text: str) -> str:
        """The colour of a format's name; ink for other text."""
        try:
            return self.format(text)
        except ValueError:
            return self.ink

    def paler(self, tint: Any, strength: float = 0.35) -> str:
        """The same hue, nearer to the background."""
        return mixed(self.background, tint, strength)

    def text(self, tint: Any) -> str:
        """The colour, nearer to ink where text of it could not be read on the background."""
        least = _LEAST_CONTRAST if self.dark else _LEAST_ON_LIGHT
        steps = (mixed(tint, self.ink, step / 20) for step in range(21))
        return next(each for each in steps if each == self.ink or contrast(each, self.background) >= least)

    def scale(self, name: str, nothing: Any) -> Any:
        """The named colour map of matplotlib from near the background to far from it; `nothing` is for masked cells.

        The named map goes from dark to light. A dark background takes its light part, and a light background its dark
        part, so that no number is hidden.
        """
        import numpy as np
        from matplotlib import colormaps
        from matplotlib.colors import ListedColormap

        near, far = (_HIDDEN_PART, 1.0) if self.dark else (1 - _PALE_PART, 0.0)
        return ListedColormap(colormaps[name](np.linspace(near, far, 256))).with_extremes(bad=nothing)

    def on(self, tint: Any) -> str:
        """The colour of text on a cell of that colour."""
        return "white" if is_dark(tint) else INK


def palette(ax: Axes) -> Palette:
    """The colours for the background of `ax`: that of the axes, or of the figure where the axes are transparent."""
    return _palette_on(ax.get_facecolor(), ax.figure.figure.get_facecolor())


def _palette_on(*faces: Any) -> Palette:
    """The colours for the first background that is opaque; without one, the text's colour decides."""
    from matplotlib import rcParams
    from matplotlib.colors import to_hex, to_rgba

    opaque = (to_hex(face) for face in map(to_rgba, faces) if face[3] > 0.5)
    background = next(opaque, "#ffffff" if is_dark(rcParams["text.color"]) else "#000000")
    if is_dark(background):
        return Palette(background, "#eeeeee", mixed(background, "white", 0.14), "#e8e8e8", dark=True)
    return Palette(background, INK, PALE, LOST_COLOUR, dark=False)


# -- text and shapes -------------------------------------------------------------------------------------------------


def name_rows(ax: Axes, formats: Sequence[FloatFormat], places: Iterable[float]) -> None:
    """Write the names of formats to the left of their rows, each in its colour."""
    colours = palette(ax)
    ax.set_yticks(list(places), [fmt.name for fmt in formats])
    for label, fmt in zip(ax.get_yticklabels(), formats, strict=True):
        label.set(color=colours.format(fmt), fontweight="bold")
    ax.tick_params(axis="y", length=0)


def powers_of_two(ax: Axes) -> None:
    """Write the exponents along the x axis as powers of two."""
    ax.xaxis.set_major_formatter(lambda e, _: f"$2^{{{e:.0f}}}$")


def words_beside(ax: Axes, row: float, text: str, colours: Palette) -> None:
    """Write small text to the right of the axes, at the height of a row."""
    ax.annotate(text, (1, row), (6, 0), ("axes fraction", "data"), textcoords="offset points", va="center",
                fontsize="small", color=colours.ink, annotation_clip=False)  # fmt: skip


def cell(column: float, row: float, tint: Any, edge: Any) -> Any:
    """A square of a grid, with a border."""
    from matplotlib.patches import Rectangle

    return Rectangle((column, row), 1, 1, facecolor=tint, edgecolor=edge, linewidth=2)
