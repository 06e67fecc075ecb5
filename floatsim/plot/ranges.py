"""The ranges of formats, and the exponents of a tensor against them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from floatsim.formats import FloatFormat, FormatLike, as_formats
from floatsim.plot.language import say
from floatsim.plot.losses import losses_in_words
from floatsim.plot.style import (
    DEFAULT_FORMATS,
    Palette,
    name_rows,
    new_axes,
    palette,
    powers_of_two,
    titled,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["exponent_histogram", "format_ranges"]

_BAND = 0.6  # height of a histogram in its row; the text stands above it, below a gap


def _draw_range(ax: Axes, fmt: FloatFormat, base: float, colours: Palette) -> None:
    """Draw the format's range as a band: normal numbers, and hatched the subnormals."""
    left, middle, right = fmt.emin - fmt.trailing_bits - 1, fmt.emin, fmt.emax + 1
    tint = colours.format(fmt)
    ax.barh(base, right - middle, _BAND, middle, align="edge", color=tint, alpha=0.16, lw=0)
    if fmt.has_subnormals:
        ax.barh(base, middle - left, _BAND, left, align="edge", fc="none", ec=tint, alpha=0.3, hatch="////", lw=0)


def exponent_histogram(
    x: Any,
    formats: Iterable[FormatLike] | FormatLike = DEFAULT_FORMATS,
    *,
    ax: Axes | None = None,
    title: str | None = None,
    limits: tuple[float, float] | None = None,
) -> Axes:
    """Draw the numbers of `fs.exponent_histogram`: a tensor's exponents against the range of each format.

    There is one row per format. The heights are the same in each: the share of the finite non-zero numbers in each
    power of two. Solid: normal numbers. Hatched: subnormal, so rounded to fewer bits. Black (white on a dark
    background): flushed to zero (left) or beyond the largest number (right). The band behind is the format's range.
    Rounding is ties to even.

    Parameters
    ----------
    x : array_like
        The tensor: real numbers of any shape, or a FloatArray.
    formats : format or iterable of format
        The rows, top to bottom.
    ax : Axes, optional
        Axes to draw into. Default: a new figure.
    title : str, optional
        Title of the picture.
    limits : (float, float), optional
        Exponents at the ends of the axis. Default: the tensor's, and three more on both sides.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If `x` has no finite non-zero number, or no format is given.

    Examples
    --------
    >>> from floatsim import plot
    >>> ax = plot.exponent_histogram([1e-9, 1e-6, 1.0, 1e6], ["fp16", "e4m3"])
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['FP16', 'E4M3']
    """
    import numpy as np

    from floatsim.analysis.exponent_histogram import exponent_histogram as count

    found = count(x, formats)
    if not found.numbers.size:
        raise ValueError("x has no finite non-zero number")
    rows, exponents = found.formats, found.exponents
    ax = new_axes(ax, figsize=(7, 0.75 * len(rows) + 1))
    colours = palette(ax)
    scale = _BAND / found.numbers.max()
    for row, (fmt, losses) in enumerate(zip(rows, found.losses, strict=True)):
        tint = colours.format(fmt)
        base, bottom = len(rows) - 1 - row, np.zeros(len(exponents))
        _draw_range(ax, fmt, base, colours)
        for numbers, style in (
            (found.normal, {"color": tint}),
            (
                found.subnormal,
                {"facecolor": colours.background, "edgecolor": tint, "hatch": "//////", "linewidth": 0.6},
            ),
            (found.flushed, {"color": colours.lost}),
            (found.overflowed, {"color": colours.lost}),
        ):
            height = scale * numbers[row]
            if height.any():
                ax.bar(exponents, height, 0.9, base + bottom, align="edge", **style)
            bottom += height
        ax.annotate(
            losses_in_words(losses), (0, base + _BAND), (3, 1), ("axes fraction", "data"),
            textcoords="offset points", va="bottom", fontsize="small", color=colours.ink,
        )  # fmt: skip
        ax.axhline(base, color=tint, lw=0.8)
    name_rows(ax, rows, [len(rows) - 1 - row + 0.5 for row in range(len(rows))])
    ax.set(xlim=limits or (exponents[0] - 3, exponents[-1] + 4), ylim=(0, len(rows)))
    powers_of_two(ax)
    ax.set_xlabel(say("magnitude"))
    ax.spines[["top", "right", "left"]].set_visible(False)
    return titled(ax, title)


def format_ranges(
    formats: Iterable[FormatLike] | FormatLike = DEFAULT_FORMATS, *, ax: Axes | None = None, title: str | None = None
) -> Axes:
    """Draw the ranges of formats side by side, hatched where they are subnormal, with the precision beside each.

    Parameters
    ----------
    formats : format or iterable of format
        The rows, top to bottom.
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
        If no format is given.

    Examples
    --------
    >>> from floatsim import plot
    >>> [text.get_text() for text in plot.format_ranges(["fp16", "bf16"]).texts]
    ['11 bits', '8 bits']
    """
    rows = as_formats(formats)
    ax = new_axes(ax, figsize=(7, 0.45 * len(rows) + 1))
    colours = palette(ax)
    for row, fmt in enumerate(rows):
        tint, left = colours.format(fmt), fmt.emin - fmt.trailing_bits
        ax.barh(row, fmt.emax + 1 - fmt.emin, 0.6, fmt.emin, color=tint)
        if fmt.has_subnormals:
            ax.barh(row, fmt.emin - left, 0.6, left, facecolor=colours.background, edgecolor=tint, hatch="//////")
        bits = "1 bit" if fmt.precision == 1 else f"{fmt.precision} bits"
        ax.annotate(bits, (fmt.emax + 1, row), (4, 0), textcoords="offset points", va="center", color=colours.ink)
    name_rows(ax, rows, range(len(rows)))
    ax.use_sticky_edges = False
    ax.margins(x=0.12)
    ax.invert_yaxis()
    powers_of_two(ax)
    ax.set_xlabel("magnitude (solid: normal, hatched: subnormal); precision in bits")
    ax.spines[["top", "right", "left"]].set_visible(False)
    return titled(ax, title)
