"""What roundings do: as staircases, and as errors."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from floatsim.formats import FloatFormat, FormatLike, as_format
from floatsim.formats.rounding import Overflow, Rounding, as_member
from floatsim.plot.lines import interval, numbers_between
from floatsim.plot.style import INK, LOST_COLOUR, PALE, colour, new_axes, titled

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

__all__ = ["rounding_errors", "staircase"]

_MOST_STEPS = 200
DIRECTIONS = tuple(Rounding)


def in_words(member: Rounding | Overflow) -> str:
    """ "ties to even", as a title says it."""
    return member.name.lower().replace("_", " ")


def staircase(
    fmt: FormatLike = "e2m1",
    *,
    rounding: Rounding | str = "ties_to_even",
    overflow: Overflow | str = "infinity",
    ftz: bool = False,
    limits: tuple[float, float] = (-3.0, 3.0),
    ax: Axes | None = None,
    title: str | None = None,
) -> Axes:
    """Every number between the limits and what it is rounded to: steps, a dot where a step begins or ends.

    A dot stands for the one number at which the result jumps: a tie, or where the direction is fixed, a number of the
    format itself. The dashed line is the number unrounded. Under stochastic rounding both neighbours are drawn, the
    darker the more probable. Where the result is infinite or NaN, no step is drawn but a hatched area that says so.

    Parameters
    ----------
    fmt : format
        Where to.
    rounding : Rounding or str
        The direction.
    overflow : Overflow or str
        What becomes of numbers beyond the largest.
    ftz : bool
        Flush subnormal results to zero.
    limits : (float, float)
        The ends of the x axis. At most 200 numbers of the format may lie between them.
    ax : Axes, optional
        Where to draw; a new figure by default.
    title : str, optional
        Above the picture. Default: the direction.

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
    >>> ax.collections[0].get_segments()[0].tolist(), ax.get_title()  # what lies below a quarter is rounded to 0
    ([[0.0, 0.0], [0.25, 0.0]], 'ties to even')
    """
    import numpy as np
    from matplotlib.collections import LineCollection

    fmt, rounding, overflow = (
        as_format(fmt),
        as_member(Rounding, rounding, "rounding"),
        as_member(Overflow, overflow, "overflow"),
    )
    low, high = interval(limits)
    places = _places(fmt, low, high)
    ax = new_axes(ax, figsize=(4.4, 4.2))
    tint = colour(fmt)
    ax.plot([low, high], [low, high], color=INK, lw=0.8, ls=(0, (3, 3)), alpha=0.6, zorder=1)
    if rounding is Rounding.STOCHASTIC:
        _draw_chances(ax, fmt, places)
    else:
        at, between = (_rounded(x, fmt, rounding, overflow, ftz) for x in (places, (places[:-1] + places[1:]) / 2))
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
        _draw_lost(ax, places, between)
    ax.set(xlim=(low, high), xlabel="number", ylabel=f"rounded to {fmt.name}")
    ax.margins(y=0.06)
    ax.grid(alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_title(in_words(rounding) if title is None else title)
    return ax


def _places(fmt: FloatFormat, low: float, high: float) -> NDArray[np.float64]:
    """The limits, and between them all at which a result can jump: numbers, and what lies half-way."""
    import numpy as np

    numbers, count = numbers_between(fmt, low, high)
    if numbers is None or count > _MOST_STEPS:
        held = f"{(low, high)} hold {count:,} of {fmt.name}"
        raise ValueError(f"limits must hold at most {_MOST_STEPS} numbers to be drawn as steps; {held}")
    # One more number on either side; beyond the largest, the one that would follow if there were more exponents.
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
    from floatsim.arrays.conversion import quantize

    values: NDArray[np.float64] = quantize(x, fmt, rounding=rounding, overflow=overflow, ftz=ftz, daz=False)
    return values


def _draw_chances(ax: Axes, fmt: FloatFormat, places: NDArray[np.float64]) -> None:
    """Both neighbours of each number between two, as dark as they are probable: the fraction of the way to them."""
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
    tint = to_rgb(colour(fmt))
    for level, weight in ((down, 1 - chance), (up, chance)):
        segments = [[(a, y), (b, y)] for (a, b), y in zip(itertools.pairwise(x), level, strict=True)]
        colours = [(*tint, min(max(w, 0.0), 1.0)) for w in weight]
        ax.add_collection(LineCollection(segments, colors=colours, linewidths=2.4, zorder=2))


def _draw_lost(ax: Axes, places: NDArray[np.float64], between: NDArray[np.float64]) -> None:
    """Where no step can be drawn: hatched, with the word."""
    import numpy as np

    words = ["" if math.isfinite(y) else "NaN" if math.isnan(y) else "+∞" if y > 0 else "−∞" for y in between]
    edges = np.flatnonzero([a != b for a, b in itertools.pairwise([None, *words, None])])
    for first, last in itertools.pairwise(edges.tolist()):
        if words[first]:
            left, right = float(places[first]), float(places[last])
            ax.axvspan(left, right, facecolor=PALE, edgecolor="#bbbbbb", hatch="////", lw=0, zorder=0)
            ax.text((left + right) / 2, 0.5, words[first], transform=ax.get_xaxis_transform(), ha="center", va="center",
                    fontweight="bold", color=LOST_COLOUR, zorder=4,
                    bbox={"boxstyle": "round,pad=0.25", "facecolor": "white", "edgecolor": "none"})  # fmt: skip


# -- errors --------------------------------------------------------------------------------------------------------


def rounding_errors(
    x: Any,
    fmt: FormatLike = "bf16",
    *,
    roundings: Iterable[Rounding | str] = DIRECTIONS,
    seed: int = 0,
    ax: Axes | None = None,
    title: str | None = None,
) -> Axes:
    """How the errors of rounding `x` are spread, one row a direction, and with a line their mean: the bias.

    Parameters
    ----------
    x : array_like
        Real numbers, or a FloatArray; those that are zero, infinite or NaN, and those that overflow, are left out.
    fmt : format
        Where to.
    roundings : iterable of Rounding or str
        Top to bottom.
    seed : int
        Of stochastic rounding.
    ax : Axes, optional
        Where to draw; a new figure by default.
    title : str, optional
        Above the picture.

    Returns
    -------
    Axes
        The x axis counts ulps of the format (`fs.ulp`) at each number; right is too large, left too small.

    Raises
    ------
    ValueError
        If no number is left, no direction is given, or a name is not known.

    Examples
    --------
    >>> from floatsim import plot
    >>> ax = plot.rounding_errors([1.25, 1.75], "e5m2", roundings=["RNE", "RTZ"])
    >>> [text.get_text() for text in ax.texts]
    ['mean 0.000 ulp', 'mean 0.000 ulp']
    """
    import numpy as np

    from floatsim.arrays.conversion import quantize
    from floatsim.arrays.ulps import ulp
    from floatsim.plot.ranges import nonzero

    fmt = as_format(fmt)
    rows = [as_member(Rounding, rounding, "roundings") for rounding in roundings]
    if not rows:
        raise ValueError("roundings must name at least one direction, such as ['ties_to_even']; got none")
    values = nonzero(x)
    values = values[abs(values) <= fmt.max]
    if not values.size:
        raise ValueError(f"x has no number that {fmt.name} can hold: all are beyond {fmt.max:g}")
    unit = ulp(values, fmt)
    ax = new_axes(ax, figsize=(8, 0.62 * len(rows) + 1))
    edges = np.linspace(-1, 1, 42)  # an odd number of bars, so that one stands around 0
    for row, rounding in enumerate(rows):
        base = len(rows) - 1 - row
        errors = (quantize(values, fmt, rounding=rounding, seed=seed, ftz=False, daz=False) - values) / unit
        errors = errors[np.isfinite(errors)]
        heights = np.histogram(errors, edges)[0] / errors.size
        ax.bar(edges[:-1], 0.62 * heights / heights.max(), np.diff(edges), base, align="edge", color=colour(fmt),
               alpha=0.55, lw=0)  # fmt: skip
        ax.axhline(base, color=colour(fmt), lw=0.8)
        mean = float(errors.mean())
        ax.vlines(mean, base, base + 0.72, color=LOST_COLOUR, lw=2.2)
        ax.annotate(f"mean {mean:+.3f} ulp".replace("+0.000", "0.000").replace("-0.000", "0.000").replace("-", "−"),
                    (1, base + 0.3), (6, 0), ("axes fraction", "data"), textcoords="offset points", va="center",
                    annotation_clip=False, fontweight="bold" if abs(mean) > 0.1 else None)  # fmt: skip
    ax.set_yticks([len(rows) - 1 - row + 0.3 for row in range(len(rows))], [in_words(rounding) for rounding in rows])
    ax.tick_params(axis="y", length=0)
    ax.axvline(0, color=INK, lw=0.8, ls=(0, (3, 3)), zorder=0)
    ax.set(xlim=(-1, 1), ylim=(-0.15, len(rows) - 0.1), xlabel=f"error in ulps of {fmt.name} (right: too large)")
    ax.spines[["top", "right", "left"]].set_visible(False)
    return titled(ax, title)
