"""The number line: the numbers of a format, the gaps between them, and the largest relative errors."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from floatsim.formats import FloatFormat, FormatLike, as_formats
from floatsim.plot.language import say
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
    import numpy as np
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

__all__ = ["interval", "number_line", "numbers_between", "spacing", "worst_error"]

_MOST_TICKS = 250  # per row; more would look like a solid band, and are drawn as one


def numbers_between(
    fmt: FloatFormat, low: float, high: float, ftz: bool = False
) -> tuple[NDArray[np.float64] | None, int]:
    """The format's numbers from low to high, in order, and their count; None in their place if there are very many.

    With `ftz`, subnormal numbers are left out.
    """
    import numpy as np

    from floatsim.arrays.array.conversion import decode, encode

    def sizes(least: float, most: float) -> tuple[NDArray[np.float64] | None, int]:
        """The numbers of one sign: codes increase with the magnitude."""
        if most < least or (low_code := int(encode(least, fmt, rounding="RTP", overflow="saturate_finite"))) > (
            high_code := int(encode(min(most, fmt.max), fmt, rounding="RTN"))
        ):
            return np.empty(0), 0
        count = high_code - low_code + 1
        if least > fmt.max:
            return np.empty(0), 0
        if count > 1 << 16:
            return None, count
        return decode(np.arange(low_code, high_code + 1).astype(fmt.code_dtype), fmt), count

    if low < 0 and not fmt.signed:
        low = 0.0
    tiny = fmt.smallest_subnormal if fmt.has_subnormals and not ftz else fmt.smallest_normal
    above, n_above = sizes(max(low, tiny), high)
    below, n_below = sizes(max(-high, tiny), -low) if fmt.signed else (np.empty(0), 0)
    zero = [0.0] if fmt.signed and low <= 0 <= high else []
    count = n_above + n_below + len(zero)
    if above is None or below is None:
        return None, count
    return np.concatenate([-below[::-1], zero, above]), count


def interval(limits: tuple[float, float]) -> tuple[float, float]:
    """The limits of a picture; a ValueError if they are not finite and in order."""
    low, high = map(float, limits)
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"limits must be two finite numbers, the smaller one first, such as (0, 4); got {limits!r}")
    return low, high


def number_line(
    formats: Iterable[FormatLike] | FormatLike = DEFAULT_FORMATS,
    *,
    limits: tuple[float, float] = (0.0, 4.0),
    mark: Any = None,
    ftz: bool = False,
    ax: Axes | None = None,
    title: str | None = None,
) -> Axes:
    """Draw the numbers of formats: one row per format, one tick per number. Subnormals have short ticks.

    Parameters
    ----------
    formats : format or iterable of format
        The rows, top to bottom.
    limits : (float, float)
        The ends of the line. A format with more than 250 numbers between them is drawn as a solid band with the count.
    mark : number or str, optional
        A number to mark by a line through all rows. A dot in each row marks the nearest number of the format (ties to
        even), with its value.
    ftz : bool
        Leave out the subnormals, as when results are flushed to zero.
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
        If no format is given, the limits are not two finite numbers in order, or `mark` is no number.

    Examples
    --------
    >>> from floatsim import plot
    >>> ax = plot.number_line(["e2m1", "fp32"], limits=(0, 8), mark="0.7")
    >>> [text.get_text() for text in ax.texts]
    ['0.5', '1,090,519,041 numbers', '0.7', '0.7']
    """
    from fractions import Fraction

    from matplotlib.patches import Rectangle

    from floatsim.arrays.array.conversion import decode, encode

    rows = as_formats(formats)
    low, high = interval(limits)
    ax = new_axes(ax, figsize=(10, 0.62 * len(rows) + 0.8))
    colours = palette(ax)
    for row, fmt in enumerate(rows):
        base, tint = len(rows) - 1 - row, colours.format(fmt)
        numbers, count = numbers_between(fmt, low, high, ftz)
        ax.axhline(base, color=tint, lw=0.8)
        if numbers is None or numbers.size > _MOST_TICKS:
            ax.add_patch(Rectangle((low, base), high - low, 0.62, color=tint, alpha=0.45, lw=0))
            ax.text(high, base + 0.31, say("{} numbers", f"{count:,}"), ha="right", va="center", color=colours.ink,
                    fontsize="small", bbox=_box(colours))  # fmt: skip
        else:
            small = abs(numbers) < (fmt.smallest_normal if fmt.has_subnormals else 0)
            full, short = numbers[~small | (numbers == 0)], numbers[small & (numbers != 0)]
            ax.vlines(full, base, base + 0.62, color=tint, lw=1.6)
            if short.size:
                ax.vlines(short, base, base + 0.36, color=tint, lw=1.1)
        if mark is not None:
            nearest = float(decode(encode(mark, fmt, ftz=ftz), fmt))
            if low <= nearest <= high:
                ax.plot([nearest], [base], "o", color=tint, ms=7, zorder=4, clip_on=False)
                _write_beside(ax, nearest, base, nearest < (low + high) / 2, f"{nearest:.7g}", colours)
    if mark is not None:
        place = float(Fraction(mark)) if isinstance(mark, str) else float(mark)
        ax.axvline(place, color=colours.ink, lw=1.2, ls=(0, (4, 2)), zorder=3)
        ax.annotate(str(mark), (place, 1), (0, 3), ("data", "axes fraction"), textcoords="offset points", ha="center",
                    fontweight="bold", color=colours.ink)  # fmt: skip
    name_rows(ax, rows, [len(rows) - 1 - row + 0.3 for row in range(len(rows))])
    ax.set(xlim=(low, high), ylim=(-0.15, len(rows) - 0.15))
    ax.spines[["top", "right", "left"]].set_visible(False)
    return titled(ax, title, pad=18 if mark is not None else None)


def _box(colours: Palette) -> dict[str, Any]:
    """A box of the background's colour behind text."""
    return {"boxstyle": "round,pad=0.25", "facecolor": colours.background, "edgecolor": "none", "alpha": 0.85}


def _write_beside(ax: Axes, x: float, y: float, right: bool, words: str, colours: Palette) -> None:
    ax.annotate(words, (x, y + 0.31), (5 if right else -5, 0), textcoords="offset points", va="center",
                color=colours.ink, ha="left" if right else "right", fontsize="small", zorder=5,
                bbox=_box(colours))  # fmt: skip


# -- gaps and errors ------------------------------------------------------------------------------------------------


def spacing(
    formats: Iterable[FormatLike] | FormatLike = DEFAULT_FORMATS,
    *,
    limits: tuple[int, int] = (-20, 20),
    ax: Axes | None = None,
    title: str | None = None,
) -> Axes:
    """Draw the gap between neighbouring numbers against their size. Both axes are logarithmic.

    Parameters
    ----------
    formats : format or iterable of format
        The formats to compare. A line ends at the format's largest number. It is flat where numbers are subnormal.
    limits : (int, int)
        The first and the last power of two.
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
        If no format is given, or the limits are not in order.

    Examples
    --------
    >>> from floatsim import plot
    >>> ax = plot.spacing(["fp16"], limits=(-2, 2))
    >>> ax.lines[0].get_ydata().tolist()  # log2 of the gap, in each power of two from 1/4 to 4
    [-12.0, -11.0, -10.0, -9.0, -9.0]
    """
    import numpy as np

    from floatsim.arrays.elementwise.ulps import ulp

    rows = as_formats(formats)
    low, high = map(int, interval(limits))
    ax = new_axes(ax, figsize=(8, 4.6))
    colours = palette(ax)
    for fmt in rows:
        first = max(low, fmt.emin - (fmt.trailing_bits if fmt.has_subnormals else 0))
        last = min(high, fmt.emax + 1)
        if first >= last:
            continue
        exponents = np.arange(first, last)
        gaps = np.log2(ulp(np.ldexp(1.0, exponents), fmt))
        ax.step([*exponents, last], [*gaps, gaps[-1]], where="post", color=colours.format(fmt), lw=2)
        ax.annotate(fmt.name, (last, gaps[-1]), (4, 0), textcoords="offset points", va="center",
                    color=colours.format(fmt), fontweight="bold", annotation_clip=False,
                    bbox=_box(colours))  # fmt: skip
    ax.set(xlim=(low, high), xlabel=say("size of the number"), ylabel=say("gap to the next number"))
    powers_of_two(ax)
    ax.yaxis.set_major_formatter(lambda e, _: f"$2^{{{e:.0f}}}$")
    ax.grid(alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)
    return titled(ax, title)


def worst_error(
    formats: Iterable[FormatLike] | FormatLike = DEFAULT_FORMATS,
    *,
    limits: tuple[int, int] = (-32, 18),
    ftz: bool = False,
    ax: Axes | None = None,
    title: str | None = None,
) -> Axes:
    """Draw the largest relative error of rounding (ties to even) in each power of two.

    The errors are those of 2048 float64 numbers, evenly spread in each power of two, so FP64 itself has no error. An
    error of 1 is a result of zero. Numbers that overflow are left out, so a line ends with the format's range.

    Parameters
    ----------
    formats : format or iterable of format
        The formats to compare.
    limits : (int, int)
        The first and the last power of two.
    ftz : bool
        Flush subnormal results to zero. The lines are then dashed.
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
        If no format is given, or the limits are not in order.

    Examples
    --------
    >>> from floatsim import plot
    >>> ax = plot.worst_error("fp16", limits=(-26, 3))
    >>> errors = dict(zip(*ax.lines[0].get_data()))
    >>> float(errors[-26]), float(errors[-24]) < 0.34, float(errors[0]) < 2**-11
    (1.0, True, True)
    """
    import numpy as np

    from floatsim.arrays.array.conversion import quantize

    rows = as_formats(formats)
    low, high = map(int, interval(limits))
    ax = new_axes(ax, figsize=(8, 4.2))
    colours = palette(ax)
    exponents = np.arange(low, high)
    significands = 1 + np.arange(1, 2049) * (math.sqrt(5) - 1) / 2 % 1  # spread evenly on every scale; in FP64 only
    for fmt in rows:
        x = np.ldexp(significands, exponents[:, None])
        errors = np.abs(quantize(x, fmt, overflow="infinity", ftz=ftz, daz=False, rounding="ties_to_even") - x) / x
        worst = np.where(np.isfinite(errors), errors, 0).max(axis=1)
        fits = worst > 0
        if not fits.any():
            continue
        places, heights = exponents[fits], worst[fits]
        ax.step([*places, places[-1] + 1], [*heights, heights[-1]], where="post", color=colours.format(fmt), lw=2,
                ls="--" if ftz else "-")  # fmt: skip
        ax.annotate(fmt.name, (places[-1] + 1, heights[-1]), (4, 0), textcoords="offset points", va="center",
                    color=colours.format(fmt), fontweight="bold", annotation_clip=False,
                    bbox=_box(colours))  # fmt: skip
    ax.set_yscale("log", base=2)
    ax.set(xlim=(low, high), xlabel=say("size of the number"), ylabel=say("largest relative error"))
    powers_of_two(ax)
    ax.grid(alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)
    return titled(ax, title)
