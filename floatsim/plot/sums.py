"""Pictures of sums: how they grow, what their orders look like, which of them agree, and where along K they fail."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from floatsim.formats import FloatFormat, FormatLike, as_format
from floatsim.plot.style import (
    HEADING,
    INK,
    PALE,
    colour,
    in_percent,
    is_dark,
    new_axes,
    titled,
)

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

__all__ = ["equal_shares", "equality_matrix", "error_curves", "first_map", "order_map", "running_sums"]

_MARKERS = "os^Dv<>Pp*X"
_DASHES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (5, 1.5, 1.2, 1.5)), (0, (8, 1.5, 1.2, 1.5, 1.2, 1.5)))
_POINTS = 96  # of a running sum


def _format_of(how: Any) -> FloatFormat | None:
    """The format in which a description adds, of its innermost leaf; None where the text is no description."""
    from floatsim.accumulation import Leaf, as_accumulation, leaves

    try:
        summed = as_accumulation(how)
    except (TypeError, ValueError):
        return None
    inner: list[Leaf] = leaves(summed)
    return inner[0].format if inner else summed.result_format


def _tint(fmt: FloatFormat | None) -> str:
    return INK if fmt is None else colour(fmt)


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


def _label_ends(ax: Axes, ends: Sequence[tuple[float, float]], words: Sequence[str], tints: Sequence[str]) -> None:
    """Each line's name beside its end, moved apart where they would overlap; in the order of the lines."""
    ax.figure.canvas.draw()  # for the transforms
    to_axes = (ax.transData + ax.transAxes.inverted()).transform
    heights = [float(to_axes(end)[1]) for end in ends]
    inches = ax.get_window_extent().height / ax.figure.dpi
    placed = _apart(heights, 0.16 / max(inches, 0.5), 0.0, 1.03)
    for end, height, word, tint in zip(ends, placed, words, tints, strict=True):
        ax.annotate(
            word, end, (1.045, height), "data", "axes fraction", va="center", color=tint, fontsize="small",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": tint, "lw": 0.6, "shrinkA": 0, "shrinkB": 0, "relpos": (0, 0.5)},
        )  # fmt: skip


# -- how a sum grows -------------------------------------------------------------------------------------------------


def running_sums(
    terms: Any,
    accumulate: Iterable[Any],
    *,
    ax: Axes | None = None,
    title: str | None = None,
    seed: int = 0,
) -> Axes:
    """The sum of the first n terms against n, for several ways to add; dashed: the exact sum.

    Parameters
    ----------
    terms : array_like of floats, (n,)
        A FloatArray, or an array whose dtype is a format.
    accumulate : iterable of accumulation or text
        One line each, in the colour of the format in which it adds.
    ax : Axes, optional
        Where to draw; a new figure by default.
    title : str, optional
        Above the picture.
    seed : int
        Of descriptions that round stochastically.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If there are fewer than two terms, or no description.

    Examples
    --------
    >>> import numpy as np
    >>> from floatsim import plot
    >>> ax = plot.running_sums(np.ones(1000, np.float32), ["fp32", "bf16"])
    >>> [text.get_text() for text in ax.texts]
    ['fp32: 1000', 'bf16: 256']
    """
    import numpy as np

    from floatsim.accumulation import as_accumulation
    from floatsim.arrays.conversion import read_floats
    from floatsim.arrays.float_array import FloatArray
    from floatsim.arrays.options import context
    from floatsim.arrays.reductions import sum as total

    codes, fmt, _ = read_floats(terms, "terms")
    if codes.ndim != 1 or codes.size < 2:
        raise ValueError(f"terms must be a vector of at least two numbers, not of shape {codes.shape}")
    ways = {how if isinstance(how, str) else str(how): as_accumulation(how) for how in accumulate}
    if not ways:
        raise ValueError("accumulate must name at least one description, such as ['fp32', 'kahan(fp16)']")
    x = FloatArray(codes, fmt)
    counts = np.unique(np.linspace(1, codes.size, min(_POINTS, codes.size)).astype(int))

    def line(how: Any) -> list[float]:
        return [float(np.asarray(total(x[:n], accumulate=how, format="fp64")).item()) for n in counts.tolist()]

    ax = new_axes(ax, figsize=(7.5, 4.2))
    exact = line("exact(fp64)")
    ax.plot(counts, exact, color=INK, lw=1, ls=(0, (2, 2)), zorder=1.5)
    with context(seed=seed):
        lines = [line(how) for how in ways.values()]
    tints = [_tint(_format_of(how)) for how in ways.values()]
    seen: dict[str, int] = {}
    for drawn, tint in zip(lines, tints, strict=True):
        nth = seen[tint] = seen.get(tint, -1) + 1
        ax.plot(counts, drawn, color=tint, lw=2, ls=_DASHES[nth % len(_DASHES)])
    finite = [y for drawn in [*lines, exact] for y in drawn if np.isfinite(y)]
    low, high = min(0.0, *finite), max(0.0, *finite)
    margin = 0.04 * (high - low or 1.0)
    ax.set(xlim=(0, codes.size), ylim=(low - margin * (low < 0), high + margin))
    ax.set_xlabel("terms added")
    ax.set_ylabel("sum (dashed: exact)")
    ax.spines[["top", "right"]].set_visible(False)
    titled(ax, title, **HEADING)
    ends = [(codes.size, min(max(drawn[-1], low), high) if np.isfinite(drawn[-1]) else high) for drawn in lines]
    words = [f"{how}: {drawn[-1]:.9g}" for how, drawn in zip(ways, lines, strict=True)]
    _label_ends(ax, ends, words, tints)
    return ax


# -- who agrees with whom --------------------------------------------------------------------------------------------


def equal_shares(results: Mapping[str, Any]) -> NDArray[np.float64]:
    """For every pair of results, the share of elements all of whose bits are equal.

    Parameters
    ----------
    results : mapping of name to array_like of floats
        Of one shape and one format: what descriptions gave, or kernels.

    Returns
    -------
    float64 array (n, n)
        In the order of the mapping; 1 on the diagonal. +0 and -0 differ, and so do NaNs of different bits.

    Raises
    ------
    ValueError
        If two of them differ in shape or format, or there is nothing to compare.

    Examples
    --------
    >>> import numpy as np
    >>> from floatsim import plot
    >>> plot.equal_shares({"one": np.float32([1, 2, 3, 4]), "other": np.float32([1, 2, 3, 5])}).tolist()
    [[1.0, 0.75], [0.75, 1.0]]
    """
    import numpy as np

    from floatsim.arrays.conversion import read_floats

    read = {name: read_floats(x, name)[:2] for name, x in results.items()}
    if not read:
        raise ValueError("results must hold at least one array")
    first, (codes, fmt) = next(iter(read.items()))
    for name, (other, of) in read.items():
        if of != fmt or other.shape != codes.shape:
            raise ValueError(
                f"results must be of one format and shape: {first!r} is {fmt.name} {codes.shape}, "
                f"{name!r} is {of.name} {other.shape}"
            )
    if not codes.size:
        raise ValueError(f"results hold no elements: they are of shape {codes.shape}")
    flat = [other.ravel() for other, _ in read.values()]
    return np.array([[np.count_nonzero(x == y) / codes.size for y in flat] for x in flat])


def equality_matrix(
    results: Mapping[str, Any],
    *,
    ax: Axes | None = None,
    title: str | None = None,
) -> Axes:
    """Who gives the same bits as whom: for every pair of results, the share of elements that are equal bit by bit.

    Parameters
    ----------
    results : mapping of name to array_like of floats
        Of one shape and one format: what descriptions gave, or kernels.
    ax : Axes, optional
        Where to draw; a new figure by default.
    title : str, optional
        Above the picture.

    Returns
    -------
    Axes
        "100 %" is written only where all bits of all elements are equal.

    Raises
    ------
    ValueError
        As for `equal_shares`, which gives the numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from floatsim import plot
    >>> ax = plot.equality_matrix({"one": np.float32([1, 2, 3, 4]), "other": np.float32([1, 2, 3, 5])})
    >>> [text.get_text() for text in ax.texts]
    ['75 %', '75 %']
    """
    import numpy as np
    from matplotlib import colormaps
    from matplotlib.patches import Rectangle

    shares, names = equal_shares(results), list(results)
    n = len(names)
    ax = new_axes(ax, figsize=(0.62 * n + 3.2, 0.42 * n + 1.9))
    palette = colormaps["Blues"]
    for (i, j), share in np.ndenumerate(shares):
        tint = PALE if i == j else palette(0.04 + 0.9 * share)
        ax.add_patch(Rectangle((j, i), 1, 1, facecolor=tint, edgecolor="white", linewidth=1.5))
        if i != j:
            ink = "white" if is_dark(tint) else INK
            weight = "bold" if share == 1 else "normal"
            ax.text(j + 0.5, i + 0.52, in_percent(share), ha="center", va="center", fontsize="small", color=ink,
                    fontweight=weight)  # fmt: skip
    ax.set(xlim=(0, n), ylim=(n, 0))
    ax.set_yticks(np.arange(n) + 0.5, names)
    ax.set_xticks(np.arange(n) + 0.5, names, rotation=40, ha="right", rotation_mode="anchor")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return titled(ax, title, **HEADING)


# -- along K ---------------------------------------------------------------------------------------------------------


def first_map(
    first: Any,
    terms: int,
    *,
    ax: Axes | None = None,
    title: str | None = None,
    event: str = "it happened",
) -> Axes:
    """At which k something first happened on the way to each element of a product; pale where it never did.

    Parameters
    ----------
    first : array of integers, (M, N) or (N,)
        `log.first["overflow"]` of `fs.record`: the least k, -1 where there is none.
    terms : int
        K; the end of the colours.
    ax : Axes, optional
        Where to draw; a new figure by default.
    title : str, optional
        Above the picture. Default: how many elements it happened to.
    event : str
        What happened, for the words of the picture.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If `first` is no matrix of numbers from -1 to terms - 1.

    Examples
    --------
    >>> from floatsim import plot
    >>> ax = plot.first_map([[-1, 7], [3, -1]], 16, event="overflow")
    >>> ax.get_title(loc="left")
    'overflow: 2 of 4 elements (50 %)'
    """
    import numpy as np
    from matplotlib import colormaps

    k = np.asarray(first)
    if k.ndim == 1:
        k = k[None, :]
    if k.ndim != 2 or not k.size or k.dtype.kind not in "iu":
        raise ValueError(f"first must be a matrix of integers, as log.first has them, not {k.dtype} of shape {k.shape}")
    if k.min() < -1 or k.max() >= terms:
        raise ValueError(f"first holds {int(k.min())} to {int(k.max())}; with terms={terms} it is -1 to {terms - 1}")
    ax = new_axes(ax, figsize=(5.4, 4.2))
    palette = colormaps["viridis_r"].with_extremes(bad=PALE)
    drawn = ax.imshow(np.ma.masked_less(k, 0), cmap=palette, vmin=0, vmax=terms - 1, interpolation="nearest",
                      aspect="auto")  # fmt: skip
    count = int((k >= 0).sum())
    ax.set_xlabel("column")
    ax.set_ylabel("row")
    ax.tick_params(length=2)
    ax.figure.colorbar(drawn, ax=ax, label=f"first k (of {terms}); pale: never")
    said = f"{event}: {count} of {k.size} elements ({in_percent(count / k.size)})"
    return titled(ax, said if title is None else title, **HEADING)


def order_map(survivors: Any, *, ax: Axes | None = None, title: str | None = None, colorbar: bool = True) -> Axes:
    """The print of an order of additions: how many other terms survive where terms i and j cancel.

    Parameters
    ----------
    survivors : array of integers, (k, k)
        What `fs.reveal_order` gives.
    ax : Axes, optional
        Where to draw; a new figure by default.
    title : str, optional
        Above the picture.
    colorbar : bool
        Whether to draw one.

    Returns
    -------
    Axes
        Light: the two meet early, and all that is added later survives. Dark: they meet late.

    Raises
    ------
    ValueError
        If `survivors` is no square matrix.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.plot.order_map(fs.reveal_order("pairwise(fp32)", 8), title="pairs").get_title(loc="left")
    'pairs'
    """
    import numpy as np
    from matplotlib import colormaps

    counts = np.asarray(survivors)
    if counts.ndim != 2 or counts.shape[0] != counts.shape[1] or counts.shape[0] < 3:
        raise ValueError(f"survivors must be a square matrix, as fs.reveal_order gives it, not of shape {counts.shape}")
    k = len(counts)
    ax = new_axes(ax, figsize=(3.6, 3.2))
    palette = colormaps["cividis"].with_extremes(bad="white")
    drawn = ax.imshow(np.ma.masked_less(counts, 0), cmap=palette, vmin=0, vmax=k - 2, interpolation="nearest")
    step = max(1, 1 << (k - 1).bit_length() - 2)
    ax.set_xticks(range(0, k, step))
    ax.set_yticks(range(0, k, step))
    ax.tick_params(length=2)
    ax.set_xlabel("j")
    ax.set_ylabel("i", rotation=0, va="center")
    titled(ax, title, fontsize="medium", **HEADING)
    if colorbar:
        ax.figure.colorbar(drawn, ax=ax, label="terms that survive")
    return ax


# -- errors ----------------------------------------------------------------------------------------------------------


def error_curves(
    errors: Mapping[str, Mapping[float, float]],
    *,
    ax: Axes | None = None,
    title: str | None = None,
    xlabel: str = "K, terms of each sum",
    ylabel: str = "relative error",
    formats: Mapping[str, FormatLike] | None = None,
) -> Axes:
    """Errors against the length of the sums, both on logarithmic scales: a line for each way, named at its end.

    Parameters
    ----------
    errors : mapping of name to mapping of K to error
        Errors of 0 are left out: a logarithmic scale has no place for them.
    ax : Axes, optional
        Where to draw; a new figure by default.
    title : str, optional
        Above the picture.
    xlabel, ylabel : str
        Of the axes.
    formats : mapping of name to format, optional
        Whose colours the lines have. Default: of names that are descriptions, the format in which they add; ink else.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If an error is negative or no number, or there is none above 0.

    Examples
    --------
    >>> from floatsim import plot
    >>> ax = plot.error_curves({"fp16": {64: 1e-3, 1024: 2e-2}, "fp32": {64: 1e-7, 1024: 1e-6}})
    >>> [text.get_text() for text in ax.texts], ax.get_xscale(), ax.get_yscale()
    (['fp16', 'fp32'], 'log', 'log')
    """
    points = {name: sorted((x, y) for x, y in line.items() if y != 0) for name, line in errors.items()}
    given = [(name, y) for name, line in errors.items() for y in line.values()]
    for name, y in given:
        if not 0 <= y < float("inf"):
            raise ValueError(f"errors[{name!r}] holds {y!r}; errors are finite numbers, 0 or more")
    points = {name: line for name, line in points.items() if line}
    if not points:
        raise ValueError("errors must hold at least one number above 0")
    ax = new_axes(ax, figsize=(7.5, 4.2))
    ax.set(xscale="log", yscale="log")
    seen: dict[str, int] = {}
    tints: list[str] = []
    for name, line in points.items():
        fmt = as_format(formats[name]) if formats and name in formats else _format_of(name)
        tint = _tint(fmt)
        nth = seen[tint] = seen.get(tint, -1) + 1
        marker = _MARKERS[len(tints) % len(_MARKERS)]
        ax.plot(*zip(*line, strict=True), color=tint, marker=marker, ms=4.5, lw=1.8, ls=_DASHES[nth % len(_DASHES)])
        tints.append(tint)
    every = sorted({x for line in points.values() for x, _ in line})
    ax.set_xticks(every, [f"{x:g}" for x in every])
    ax.minorticks_off()
    ax.set_xlim(every[0] / 1.06, every[-1] * 1.06)
    ax.set_xlabel(xlabel)
    ax.set_ylabel(ylabel)
    ax.grid(axis="y", color=PALE, zorder=0)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    titled(ax, title, **HEADING)
    _label_ends(ax, [line[-1] for line in points.values()], list(points), tints)
    return ax
