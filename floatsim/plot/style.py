"""What all pictures share: one colour per format everywhere, the `ax=` convention, and small words and shapes.

The colours are safe for colour-blind readers and differ in lightness, so that a print in grey can be read too.
matplotlib is imported when something is drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from floatsim.formats import (
    BF16,
    E2M1,
    E2M3,
    E3M2,
    E3M4,
    E4M3,
    E4M3B11FNUZ,
    E4M3FNUZ,
    E4M3IEEE,
    E5M2,
    E5M2FNUZ,
    E8M0,
    FP16,
    FP32,
    FP64,
    TF32,
    FloatFormat,
    FormatLike,
    as_format,
)  # fmt: skip

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "COLOURS",
    "CUSTOM_COLOUR",
    "FIVE",
    "HEADING",
    "INK",
    "LOST_COLOUR",
    "PALE",
    "cell",
    "colour",
    "colour_of_name",
    "in_percent",
    "is_dark",
    "name_rows",
    "new_axes",
    "paler",
    "powers_of_two",
    "several",
    "titled",
]

COLOURS: dict[FloatFormat, str] = {
    # Okabe and Ito's colour-blind-safe palette for the formats that meet most often; kin in shades of the same hue.
    FP64: "#000000", FP32: "#5f6b75", TF32: "#56b4e9", FP16: "#0072b2", BF16: "#009e73",
    E4M3: "#d55e00", E4M3FNUZ: "#b34f00", E4M3IEEE: "#8f3f00", E4M3B11FNUZ: "#ee9a55", E3M4: "#6b2f00",
    E5M2: "#cc79a7", E5M2FNUZ: "#a3507f",
    E3M2: "#e69f00", E2M3: "#b87f00", E2M1: "#8a7a00", E8M0: "#999999",
}  # fmt: skip
"""The colour of each named format."""

CUSTOM_COLOUR = "#7d6bb3"
"""The colour of every format without a name of its own."""

LOST_COLOUR = "#1a1a1a"
"""What did not survive a rounding."""

FIVE = (FP32, FP16, BF16, E4M3, E5M2)
"""The formats that are drawn where none are named."""

INK, PALE = "#222222", "#f1f1f1"
"""Of words; and of what is there but says nothing."""

HEADING: dict[str, Any] = {"loc": "left", "fontweight": "bold"}
"""How titles look above pictures of sums and of matrix units."""


def colour(fmt: FormatLike) -> str:
    """The colour in which `fmt` is drawn, as "#rrggbb".

    >>> from floatsim import plot
    >>> plot.colour("fp16")
    '#0072b2'
    """
    return COLOURS.get(as_format(fmt), CUSTOM_COLOUR)


def several(formats: Iterable[FormatLike] | FormatLike) -> list[FloatFormat]:
    """The formats of an argument that may be one, or many; a ValueError if it names none."""
    if isinstance(formats, str) or not isinstance(formats, Iterable):
        formats = [formats]
    found = [as_format(fmt) for fmt in formats]
    if not found:
        raise ValueError("formats must name at least one format, such as ['fp16', 'bf16']; got none")
    return found


def new_axes(ax: Axes | None, **figure: Any) -> Axes:
    """`ax`, or the Axes of a new figure."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    drawn: Axes = plt.subplots(layout="constrained", **figure)[1]
    return drawn


def titled(ax: Axes, title: str | None, **looks: Any) -> Axes:
    """`ax`, with a title if there is one."""
    if title is not None:
        ax.set_title(title, **looks)
    return ax


def in_percent(fraction: float) -> str:
    """A share for a reader: "0", "< 0.1 %", "2.3 %", "41 %"; "100 %" only where it is all."""
    percent = 100 * fraction
    if percent in (0, 100):
        return f"{percent:.0f} %"
    if percent < 0.1:
        return "< 0.1 %"
    return f"{min(percent, 99.9):.1f} %" if percent < 10 or percent > 99 else f"{percent:.0f} %"


# -- words and shapes ----------------------------------------------------------------------------------------------


def name_rows(ax: Axes, formats: Sequence[FloatFormat], places: Iterable[float]) -> None:
    """The formats' names at the left of their rows, each in its colour."""
    ax.set_yticks(list(places), [fmt.name for fmt in formats])
    for label, fmt in zip(ax.get_yticklabels(), formats, strict=True):
        label.set(color=colour(fmt), fontweight="bold")
    ax.tick_params(axis="y", length=0)


def powers_of_two(ax: Axes) -> None:
    """Exponents along the x axis, written as powers of two."""
    ax.xaxis.set_major_formatter(lambda e, _: f"$2^{{{e:.0f}}}$")


def is_dark(tint: Any) -> bool:
    """Whether white words can be read on it better than black ones."""
    from matplotlib.colors import to_rgb

    red, green, blue = (part**2.2 for part in to_rgb(tint))
    return bool(0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.3)


def paler(tint: str) -> tuple[float, ...]:
    """The same hue, nearer to white."""
    from matplotlib.colors import to_rgb

    return tuple(1 - 0.35 * (1 - part) for part in to_rgb(tint))


def cell(column: float, row: float, tint: Any) -> Any:
    """A square of a grid, with a white border."""
    from matplotlib.patches import Rectangle

    return Rectangle((column, row), 1, 1, facecolor=tint, edgecolor="white", linewidth=2)


def colour_of_name(name: str) -> str:
    """A format's colour, and ink for every other word."""
    try:
        return colour(name)
    except ValueError:
        return INK
