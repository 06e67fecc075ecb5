"""Rounding modes: the steps of the rounded value, and the distribution of the errors."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from floatsim.formats import FloatFormat, FormatLike, as_format
from floatsim.formats.rounding import Overflow, Rounding, as_member
from floatsim.plot.language import say
from floatsim.plot.number_line import interval, numbers_between
from floatsim.plot.style import Palette, new_axes, palette, titled

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

__all__ = ["rounding_errors", "staircase"]

_MOST_STEPS = 200
_MOST_TICKS = 16  # labels on an axis of a staircase
_BINS = 20  # bins per ulp, so that -1, -0.5, 0, 0.5 and 1 are edges
_ROUNDINGS = tuple(rounding.name.lower() for rounding in Rounding)


def in_words(member: Rounding | Overflow) -> str:
    """The member's name in words, such as "ties to even"."""
    return member.name.lower().replace("_", " ")


def staircase(
    format: FormatLike = "e2m1",
    *,
    rounding: Rounding | str = "ties_to_even",
    overflow: Overflow | str = "infinity",
    ftz: bool = False,
    limits: tuple[float, float] = (-3.0, 3.0),
    ax: Axes | None = None,
    title: str | None = None,
) -> Axes:
    """Draw the rounded value against the number: one step per number of the format.

    A dot marks the result at the number where it jumps: a tie, or in a directed mode, a number of the format. The
    dashed line is the number without rounding. The ticks are numbers of the format. Under stochastic rounding, both
    neighbours are drawn, and a more probable one is more opaque. Where the result is infinite or NaN, there is no step
    but a hatched area with a label.

    Parameters
    ----------
    format : format
        The target format.
    rounding : Rounding or str
        The rounding mode.
    overflow : Overflow or str
        The result for numbers beyond the largest.
    ftz : bool
        Flush subnormal results to zero.
    limits : (float, float)
        The ends of the x axis. At most 200 numbers of the format may lie between them.
    ax : Axes, optional
        Axes to draw into. Default: a new figure.
    title : str, optional
        Title of the picture. Default: the rounding mode.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If more than 200 numbers lie between the limits, or a name is not known.

    Examples
    --------
    >>> from floatsim import plot
    >>> ax = plot.staircase("e2m1", limits=(0, 1))
    >>> ax.collections[0].get_segments()[0].tolist(), ax.get_title()  # numbers below 0.25 are rounded to 0
    ([[0.0, 0.0], [0.25, 0.0]], 'ties to even')
    """
    import numpy as np
    from matplotlib.collections import LineCollection

    format, rounding, overflow = (
        as_format(format),
        as_member(Rounding, rounding, "rounding"),
        as_member(Overflow, overflow, "overflow"),
    )
    low, high = interval(limits)
    places = _places(format, low, high)
    ax = new_axes(ax, figsize=(4.4, 4.2))
    colours = palette(ax)
    tint = colours.format(format)
    ax.plot([low, high], [low, high], color=colours.ink, lw=0.8, ls=(0, (3, 3)), alpha=0.6, zorder=1)
    if rounding is Rounding.STOCHASTIC:
        _draw_chances(ax, format, places, tint)
    else:
        at, between = (_rounded(x, format, rounding, overflow, ftz) for x in (places, (places[:-1] + places[1:]) / 2))
        steps = [
            [(left, y), (right, y)]
            for (left, right), y in zip(itertools.pairwise(places.tolist()), between.tolist(), strict=True)
            if math.isfinite(y)
        ]
        ax.add_collection(LineCollection(steps, colors=tint, linewidths=2.4, zorder=2))
        jumps = [
            (x, y)
            for x, y, before, after in zip(places[1:-1], at[1:-1], between[:-1], between[1:], strict=True)
            if math.isfinite(y) and before != after
        ]
        ax.plot(*np.reshape(jumps, (-1, 2)).T, "o", color=tint, ms=5, zorder=3)
        _draw_lost(ax, places, between, colours)
    ax.set(xlim=(low, high), xlabel=say("number"), ylabel=say("rounded to {}", format.name))
    ax.margins(y=0.06)
    _tick_numbers(ax, format, low, high)
    ax.grid(alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)
    return titled(ax, in_words(rounding) if title is None else title)


def _tick_numbers(ax: Axes, fmt: FloatFormat, low: float, high: float) -> None:
    """Put the ticks of both axes on numbers of the format; labels where there is room, round numbers first."""
    import numpy as np

    bottom, top = ax.get_ylim()
    for axis, ends in ((ax.xaxis, (low, high)), (ax.yaxis, (bottom, top))):
        numbers, _ = numbers_between(fmt, *ends)
        if numbers is None or not numbers.size:
            continue
        longest = max(len(f"{x:g}") for x in numbers.tolist())
        room = max(1 / _MOST_TICKS, 0.028 * longest) if axis is ax.xaxis else 1 / _MOST_TICKS
        labelled: list[float] = []
        for x in sorted(numbers.tolist(), key=_roundness):
            if all(abs(x - other) >= room * (ends[1] - ends[0]) for other in labelled):
                labelled.append(x)
        axis.set_ticks(sorted(labelled), [f"{x:g}".replace("-", "−") for x in sorted(labelled)])
        axis.set_ticks(np.setdiff1d(numbers, labelled), minor=True)
    ax.set(xlim=(low, high), ylim=(bottom, top))


def _roundness(x: float) -> tuple[int, float]:
    """A sort key: zero, then numbers with few significant bits, the larger first."""
    numerator = abs(x).as_integer_ratio()[0]
    return (numerator // (numerator & -numerator)).bit_length() if numerator else 0, -abs(x)


def _places(fmt: FloatFormat, low: float, high: float) -> NDArray[np.float64]:
    """The limits, and all places between them where a result can jump: numbers of the format, and midpoints."""
    import numpy as np

    numbers, count = numbers_between(fmt, low, high)
    if numbers is None or count > _MOST_STEPS:
        raise ValueError(
            f"limits must hold at most {_MOST_STEPS} numbers to be drawn as steps; "
            f"{(low, high)} hold {count:,} of {fmt.name}"
        )
    # One more number on either side; beyond the largest, the number that a larger exponent range would have next.
    full = fmt.max == math.ldexp(2 - 2.0 ** (1 - fmt.precision), fmt.emax)
    beyond = fmt.max + math.ldexp(1.0, fmt.emax - fmt.trailing_bits + (fmt.precision == 1 and full))
    ends = [
        _rounded(np.array([end]), fmt, direction, Overflow.SATURATE_FINITE, False)
        for end, direction in ((low, Rounding.TOWARD_NEGATIVE), (high, Rounding.TOWARD_POSITIVE))
    ]
    nearby = np.unique(np.concatenate([[-beyond] if fmt.signed else [], numbers, *ends, [beyond]]))
    halves = (nearby[:-1] + nearby[1:]) / 2
    inside = np.concatenate([numbers, halves])
    return np.unique(np.concatenate([[low, high], inside[(low < inside) & (inside < high)]]))


def _rounded(
    x: NDArray[np.float64], fmt: FloatFormat, rounding: Rounding, overflow: Overflow, ftz: bool
) -> NDArray[np.float64]:
    from floatsim.arrays.array.conversion import quantize

    values: NDArray[np.float64] = quantize(x, fmt, rounding=rounding, overflow=overflow, ftz=ftz, daz=False)
    return values


def _draw_chances(ax: Axes, fmt: FloatFormat, places: NDArray[np.float64], tint: str) -> None:
    """Draw both neighbours of each number, each as opaque as it is probable."""
    import numpy as np
    from matplotlib.collections import LineCollection
    from matplotlib.colors import to_rgb

    x = np.linspace(places[0], places[-1], 1201)
    middle = (x[:-1] + x[1:]) / 2
    down, up = (
        _rounded(middle, fmt, direction, Overflow.SATURATE_FINITE, False)
        for direction in (Rounding.TOWARD_NEGATIVE, Rounding.TOWARD_POSITIVE)
    )
    chance = np.divide(middle - down, up - down, out=np.ones_like(middle), where=up > down)
    for level, weight in ((down, 1 - chance), (up, chance)):
        segments = [[(a, y), (b, y)] for (a, b), y in zip(itertools.pairwise(x), level, strict=True)]
        colours = [(*to_rgb(tint), min(max(w, 0.0), 1.0)) for w in weight]
        ax.add_collection(LineCollection(segments, colors=colours, linewidths=2.4, zorder=2))


def _draw_lost(ax: Axes, places: NDArray[np.float64], between: NDArray[np.float64], colours: Palette) -> None:
    """Hatch the areas whose result is infinite or NaN, with a label."""
    import numpy as np

    box = {"boxstyle": "round,pad=0.25", "facecolor": colours.background, "edgecolor": "none"}
    words = ["" if math.isfinite(y) else "NaN" if math.isnan(y) else "+∞" if y > 0 else "−∞" for y in between]
    edges = np.flatnonzero([a != b for a, b in itertools.pairwise([None, *words, None])])
    for first, last in itertools.pairwise(edges.tolist()):
        if words[first]:
            left, right = float(places[first]), float(places[last])
            ax.axvspan(left, right, facecolor=colours.pale, edgecolor="#999999", hatch="////", lw=0, zorder=0)
            ax.text((left + right) / 2, 0.5, words[first], transform=ax.get_xaxis_transform(), ha="center", va="center",
                    fontweight="bold", color=colours.ink, zorder=4, bbox=box)  # fmt: skip


# -- errors --------------------------------------------------------------------------------------------------------


def rounding_errors(
    x: Any,
    format: FormatLike = "bf16",
    *,
    roundings: Iterable[Rounding | str] = _ROUNDINGS,
    seed: int = 0,
    ax: Axes | None = None,
    title: str | None = None,
) -> Axes:
    """Draw a histogram of the errors of rounding `x` for each rounding mode, with a line at their mean, the bias.

    Parameters
    ----------
    x : array_like
        Real numbers, or a FloatArray. Zeros, infinities, NaNs, and numbers that overflow are left out.
    format : format
        The target format.
    roundings : iterable of Rounding or str
        The rounding modes, top to bottom.
    seed : int
        The seed of stochastic rounding.
    ax : Axes, optional
        Axes to draw into. Default: a new figure.
    title : str, optional
        Title of the picture.

    Returns
    -------
    Axes
        The unit of the x axis is the ulp of the format (`fs.ulp`) at each number. Right: too large, left: too small. A
        bin ends at each twentieth of an ulp. Exact results have a thin bar of their own at 0.

    Raises
    ------
    ValueError
        If no number is left, no rounding mode is given, or a name is not known.

    Examples
    --------
    >>> from floatsim import plot
    >>> ax = plot.rounding_errors([1.25, 1.75], "e5m2", roundings=["RNE", "RTZ"])
    >>> [text.get_text() for text in ax.texts]
    ['mean 0.000 ulp', 'mean 0.000 ulp']
    """
    import numpy as np

    from floatsim.analysis.conversion_losses import finite_nonzero
    from floatsim.arrays.array.conversion import quantize
    from floatsim.arrays.elementwise.ulps import ulp

    format = as_format(format)
    rows = [as_member(Rounding, rounding, "roundings") for rounding in roundings]
    if not rows:
        raise ValueError("roundings must name at least one rounding mode, such as ['ties_to_even']; got none")
    values = finite_nonzero(x)
    values = values[(values <= format.max) & (values >= (-format.max if format.signed else 0))]
    if not values.size:
        raise ValueError(f"x has no number in the range of {format.name}: all are beyond {format.max:g}")
    unit = ulp(values, format)
    ax = new_axes(ax, figsize=(8, 0.62 * len(rows) + 1))
    colours = palette(ax)
    tint = colours.format(format)
    ks = np.arange(-_BINS, _BINS + 1)  # bin k > 0 is ((k - 1) / 20, k / 20], bin -k its mirror image, bin 0 is {0}
    left, width = np.where(ks == 0, -0.008, np.where(ks < 0, ks, ks - 1) / _BINS), np.where(ks == 0, 0.016, 1 / _BINS)
    for row, rounding in enumerate(rows):
        base = len(rows) - 1 - row
        errors = (quantize(values, format, rounding=rounding, seed=seed, ftz=False, daz=False) - values) / unit
        errors = errors[np.isfinite(errors)]
        bins = (np.sign(errors) * np.ceil(np.abs(errors) * _BINS)).astype(np.intp)
        heights = np.bincount(bins + _BINS, minlength=ks.size) / errors.size
        ax.bar(left, 0.62 * heights / heights.max(), width, base, align="edge", color=tint, alpha=0.55, lw=0)
        ax.axhline(base, color=tint, lw=0.8)
        mean = float(errors.mean())
        ax.vlines(mean, base, base + 0.72, color=colours.ink, lw=2.2)
        shift = f"{mean:+.3f}".replace("+0.000", "0.000").replace("-0.000", "0.000").replace("-", "−")
        ax.annotate(say("mean {} ulp", shift),
                    (1, base + 0.3), (6, 0), ("axes fraction", "data"), textcoords="offset points", va="center",
                    annotation_clip=False, color=colours.ink,
                    fontweight="bold" if abs(mean) > 0.1 else None)  # fmt: skip
    ax.set_yticks([len(rows) - 1 - row + 0.3 for row in range(len(rows))], [in_words(rounding) for rounding in rows])
    ax.tick_params(axis="y", length=0)
    ax.axvline(0, color=colours.ink, lw=0.8, ls=(0, (3, 3)), zorder=0)
    ax.set(xlim=(-1, 1), xticks=[-1, -0.5, 0, 0.5, 1], ylim=(-0.15, len(rows) - 0.1))
    ax.set_xlabel(say("error in ulps of {} (right: too large)", format.name))
    ax.spines[["top", "right", "left"]].set_visible(False)
    return titled(ax, title)
