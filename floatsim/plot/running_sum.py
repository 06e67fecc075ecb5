"""Running sums: how sums of the same terms grow under several accumulations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from floatsim.plot.line_labels import DASHES, format_of, label_ends, line_colours
from floatsim.plot.style import HEADING, new_axes, palette, titled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["running_sums"]

_POINTS = 96  # of each line


def running_sums(
    terms: Any,
    accumulate: Iterable[Any],
    *,
    ax: Axes | None = None,
    title: str | None = None,
    seed: int = 0,
) -> Axes:
    """Draw the sum of the first n terms against n, for several accumulations. The dashed line is the exact sum.

    Parameters
    ----------
    terms : array_like of floats, (n,)
        A FloatArray, or an array whose dtype is a format.
    accumulate : iterable of accumulation or text
        The accumulations, with one line each in the colour of the format in which it adds. Several lines of one format
        have shades of its colour, from dark to light in the order given.
    ax : Axes, optional
        Axes to draw into. Default: a new figure.
    title : str, optional
        Title of the picture.
    seed : int
        The seed of accumulations that round stochastically.

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
    from floatsim.arrays.array.conversion import read_floats
    from floatsim.arrays.array.float_array import FloatArray
    from floatsim.arrays.sums.reductions import sum as total

    codes, fmt, _ = read_floats(terms, "terms")
    if codes.ndim != 1 or codes.size < 2:
        raise ValueError(f"terms must be a vector of at least two numbers, not of shape {codes.shape}")
    described = {f"{each}": as_accumulation(each) for each in accumulate}
    if not described:
        raise ValueError("accumulate must name at least one description, such as ['fp32', 'kahan(fp16)']")
    x = FloatArray(codes, fmt)
    counts = np.unique(np.linspace(1, codes.size, min(_POINTS, codes.size)).astype(int))

    def line(accumulation: Any) -> list[float]:
        sums = (total(x[:n], accumulate=accumulation, format="fp64", seed=seed) for n in counts.tolist())
        return [float(np.asarray(each).item()) for each in sums]

    ax = new_axes(ax, figsize=(7.5, 4.2))
    exact = line("exact(fp64)")
    colours = palette(ax)
    ax.plot(counts, exact, color=colours.ink, lw=1, ls=(0, (2, 2)), zorder=1.5)
    lines = [line(each) for each in described.values()]
    tints = line_colours([format_of(each) for each in described.values()], colours)
    for drawn, (tint, nth) in zip(lines, tints, strict=True):
        ax.plot(counts, drawn, color=tint, lw=2, ls=DASHES[nth % len(DASHES)])
    finite = [y for drawn in [*lines, exact] for y in drawn if np.isfinite(y)]
    low, high = min(0.0, *finite), max(0.0, *finite)
    margin = 0.04 * (high - low or 1.0)
    ax.set(xlim=(0, codes.size), ylim=(low - margin * (low < 0), high + margin))
    ax.set_xlabel("terms added")
    ax.set_ylabel("sum (dashed: exact)")
    ax.spines[["top", "right"]].set_visible(False)
    titled(ax, title, **HEADING)
    ends = [(codes.size, min(max(drawn[-1], low), high) if np.isfinite(drawn[-1]) else high) for drawn in lines]
    words = [f"{name}: {drawn[-1]:.9g}" for name, drawn in zip(described, lines, strict=True)]
    label_ends(ax, ends, words, [tint for tint, _ in tints])
    return ax
