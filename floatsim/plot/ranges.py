"""Where numbers lie: the ranges of formats, and a tensor's numbers against them, with what is lost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from floatsim.formats import FloatFormat, FormatLike, as_format
from floatsim.formats.rounding import OVERFLOW
from floatsim.plot.style import (
    FIVE,
    INK,
    LOST_COLOUR,
    colour,
    in_percent,
    name_rows,
    new_axes,
    powers_of_two,
    several,
    titled,
)

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

__all__ = ["Fate", "exponent_histogram", "fates", "format_ranges", "nonzero"]

_BAND = 0.6  # of a histogram's row; its words stand upon it, below a gap


@dataclass(frozen=True)
class Fate:
    """What becomes of a tensor's non-zero numbers in one format, as shares of them."""

    flushed: float
    subnormal: float
    normal: float
    overflowed: float


def _fates(x: NDArray[np.float64], fmt: FloatFormat) -> NDArray[np.intp]:
    """0 flushed to zero, 1 subnormal, 2 normal, 3 overflowed, for each non-zero finite x; ties to even."""
    import numpy as np

    from floatsim.arrays.conversion import decode, encode
    from floatsim.arrays.options import context

    with context(daz=False, ftz=False):
        codes, flags = encode(x, fmt, rounding="ties_to_even", overflow="infinity", return_flags=True)
    size = np.abs(decode(codes, fmt))
    fate = np.where(size == 0, 0, np.where(size < fmt.smallest_normal, 1, 2))
    return np.where(flags & OVERFLOW, 3, fate)


def nonzero(x: Any) -> NDArray[np.float64]:
    """The finite numbers of x other than 0, or a ValueError if there is none."""
    import numpy as np

    from floatsim.arrays.float_array import FloatArray

    values = x.values if isinstance(x, FloatArray) else np.asarray(x, np.float64)
    kept: NDArray[np.float64] = values[np.isfinite(values) & (values != 0)]
    if not kept.size:
        raise ValueError("x has no finite non-zero number to draw")
    return kept


def fates(x: Any, fmt: FormatLike) -> Fate:
    """What rounding to `fmt` (ties to even) does to the finite non-zero numbers of `x`.

    Parameters
    ----------
    x : array_like
        Real numbers, or a FloatArray.
    fmt : format
        Where to.

    Raises
    ------
    ValueError
        If `x` has no finite non-zero number.

    Examples
    --------
    >>> from floatsim import plot
    >>> plot.fates([1e-9, 1e-6, 1.0, 1e6], "fp16")
    Fate(flushed=0.25, subnormal=0.25, normal=0.25, overflowed=0.25)
    """
    import numpy as np

    values = nonzero(x)
    counts = np.bincount(_fates(values, as_format(fmt)), minlength=4)
    return Fate(*(float(n) / values.size for n in counts))


def _in_words(fate: Fate) -> str:
    words = [
        f"{in_percent(share)} {what}"
        for what, share in (
            ("lost to zero", fate.flushed), ("overflow", fate.overflowed), ("subnormal", fate.subnormal),
        )
        if share
    ]  # fmt: skip
    return ", ".join(words) or "all normal"


def _draw_range(ax: Axes, fmt: FloatFormat, base: float) -> None:
    """The format's range as a band: normal numbers, and hatched the subnormals."""
    left, middle, right = fmt.emin - fmt.trailing_bits - 1, fmt.emin, fmt.emax + 1
    tint = colour(fmt)
    ax.barh(base, right - middle, _BAND, middle, align="edge", color=tint, alpha=0.16, lw=0)
    if fmt.has_subnormals:
        ax.barh(base, middle - left, _BAND, left, align="edge", fc="none", ec=tint, alpha=0.3, hatch="////", lw=0)


def _bar_styles(fmt: FloatFormat) -> dict[int, dict[str, Any]]:
    """How each fate is drawn, bottom to top."""
    tint = colour(fmt)
    return {
        2: {"color": tint},
        1: {"facecolor": "white", "edgecolor": tint, "hatch": "//////", "linewidth": 0.6},
        0: {"color": LOST_COLOUR},
        3: {"color": LOST_COLOUR},
    }


def exponent_histogram(
    x: Any,
    formats: Iterable[FormatLike] | FormatLike = FIVE,
    *,
    ax: Axes | None = None,
    title: str | None = None,
    limits: tuple[float, float] | None = None,
) -> Axes:
    """How a tensor's exponents lie in each format's range, what is lost drawn in black.

    One row a format. The bars are the same in each: the share of the finite non-zero numbers in each power of two.
    Solid: normal numbers. Hatched: subnormal, so rounded to fewer bits. Black: rounded to zero (left) or beyond the
    largest number (right). The band behind is the format's range.

    Parameters
    ----------
    x : array_like
        The tensor: real numbers of any shape, or a FloatArray.
    formats : format or iterable of format
        Top to bottom.
    ax : Axes, optional
        Where to draw; a new figure by default.
    title : str, optional
        Above the picture.
    limits : (float, float), optional
        Exponents at the ends of the axis. Default: the tensor's, and a little more.

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

    rows = several(formats)
    values = nonzero(x)
    exponents = np.frexp(values)[1] - 1
    lowest, bins = int(exponents.min()), int(np.ptp(exponents)) + 1
    ax = new_axes(ax, figsize=(7, 0.75 * len(rows) + 1))
    peak = np.bincount(exponents - lowest).max() / values.size
    for row, fmt in enumerate(rows):
        base, fate, bottom = len(rows) - 1 - row, _fates(values, fmt), np.zeros(bins)
        _draw_range(ax, fmt, base)
        for kind, style in _bar_styles(fmt).items():
            height = _BAND * np.bincount(exponents[fate == kind] - lowest, minlength=bins) / values.size / peak
            if height.any():
                ax.bar(lowest + np.arange(bins), height, 0.9, base + bottom, align="edge", **style)
            bottom += height
        counts = np.bincount(fate, minlength=4) / values.size
        ax.annotate(
            _in_words(Fate(*map(float, counts))), (0, base + _BAND), (3, 1), ("axes fraction", "data"),
            textcoords="offset points", va="bottom", fontsize="small", color=INK,
        )  # fmt: skip
        ax.axhline(base, color=colour(fmt), lw=0.8)
    name_rows(ax, rows, [len(rows) - 1 - row + 0.5 for row in range(len(rows))])
    ax.set(xlim=limits or (lowest - 3, lowest + bins + 3), ylim=(0, len(rows)))
    powers_of_two(ax)
    ax.set_xlabel("magnitude")
    ax.spines[["top", "right", "left"]].set_visible(False)
    return titled(ax, title)


def format_ranges(
    formats: Iterable[FormatLike] | FormatLike = FIVE, *, ax: Axes | None = None, title: str | None = None
) -> Axes:
    """The ranges of formats side by side, hatched where they are subnormal, with the precision beside each.

    Parameters
    ----------
    formats : format or iterable of format
        Top to bottom.
    ax : Axes, optional
        Where to draw; a new figure by default.
    title : str, optional
        Above the picture.

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
    rows = several(formats)
    ax = new_axes(ax, figsize=(7, 0.45 * len(rows) + 1))
    for row, fmt in enumerate(rows):
        tint, left = colour(fmt), fmt.emin - fmt.trailing_bits
        ax.barh(row, fmt.emax + 1 - fmt.emin, 0.6, fmt.emin, color=tint)
        if fmt.has_subnormals:
            ax.barh(row, fmt.emin - left, 0.6, left, facecolor="white", edgecolor=tint, hatch="//////")
        bits = "1 bit" if fmt.precision == 1 else f"{fmt.precision} bits"
        ax.annotate(bits, (fmt.emax + 1, row), (4, 0), textcoords="offset points", va="center")
    name_rows(ax, rows, range(len(rows)))
    ax.use_sticky_edges = False
    ax.margins(x=0.12)
    ax.invert_yaxis()
    powers_of_two(ax)
    ax.set_xlabel("magnitude (solid: normal, hatched: subnormal); precision in bits")
    ax.spines[["top", "right", "left"]].set_visible(False)
    return titled(ax, title)


# -- scaling before rounding ---------------------------------------------------------------------------------------


def scale_sweep(
    x: Any,
    fmt: FormatLike = "e4m3",
    *,
    exponents: tuple[int, int] = (-4, 32),
    mark: int | None = None,
    ax: Axes | None = None,
    title: str | None = None,
) -> Axes:
    """What becomes of a tensor that is multiplied by a power of two before it is rounded, for each power.

    The finite non-zero numbers are stacked as shares: black at the bottom those that become zero, hatched the subnormal
    ones, in the format's colour the normal ones, black at the top those beyond the largest number.

    Parameters
    ----------
    x : array_like
        The tensor: real numbers of any shape, or a FloatArray.
    fmt : format
        Where to.
    exponents : (int, int)
        The first and the last k of the scales 2**k.
    mark : int, optional
        A k to draw a line at.
    ax : Axes, optional
        Where to draw; a new figure by default.
    title : str, optional
        Above the picture.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If `x` has no finite non-zero number, or the exponents are not in order.

    Examples
    --------
    >>> from floatsim import plot
    >>> ax = plot.scale_sweep([1e-6, 1e-3], "e4m3", exponents=(0, 24))
    >>> [text.get_text() for text in ax.texts]
    ['lost to zero', 'subnormal', 'normal', 'overflow']
    """
    import numpy as np

    fmt, values = as_format(fmt), nonzero(x)
    first, last = exponents
    if not first < last:
        raise ValueError(f"exponents must be two integers, the smaller one first, such as (-4, 32); got {exponents!r}")
    scales = np.arange(first, last + 1)
    found = [fates(np.ldexp(values, k), fmt) for k in scales]
    layers = np.array([[f.flushed, f.subnormal, f.normal, f.overflowed] for f in found]).T
    tops = layers.cumsum(axis=0)
    ax = new_axes(ax, figsize=(8, 3.8))
    tint = colour(fmt)
    styles: list[dict[str, Any]] = [
        {"color": LOST_COLOUR}, {"facecolor": "white", "edgecolor": tint, "hatch": "//////"}, {"color": tint},
        {"color": LOST_COLOUR},
    ]  # fmt: skip
    words = ("lost to zero", "subnormal", "normal", "overflow")
    for layer, top, style, word in zip(layers, tops, styles, words, strict=True):
        ax.bar(scales, layer, 1.0, top - layer, lw=0, **style)
        inner = layer[2:-2] if layer.size > 6 else layer  # where a word has room to its left and right
        if inner.size and inner.max() > 0.12:
            at = int(np.median(np.flatnonzero(inner >= 0.9 * inner.max()))) + (layer.size - inner.size) // 2
            on_white = "hatch" in style
            box = {"boxstyle": "round,pad=0.2", "facecolor": "white", "edgecolor": "none"} if on_white else None
            ax.text(scales[at], float((top - layer / 2)[at]), word, ha="center", va="center", bbox=box,
                    color=INK if on_white else "white")  # fmt: skip
    if mark is not None:
        ax.axvline(mark, color=INK, lw=1.2, ls=(0, (4, 2)))
    ax.set(xlim=(first - 0.5, last + 0.5), ylim=(0, 1), xlabel="multiplied by", ylabel="share of the non-zero numbers")
    powers_of_two(ax)
    ax.yaxis.set_major_formatter(lambda part, _: f"{100 * part:.0f} %")
    ax.spines[["top", "right"]].set_visible(False)
    return titled(ax, title)
