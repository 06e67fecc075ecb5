"""A picture of equality: the share of equal elements for every pair of results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from floatsim.plot.style import HEADING, in_percent, new_axes, palette, titled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["equality_matrix"]


def equality_matrix(
    results: Mapping[str, Any],
    *,
    ax: Axes | None = None,
    title: str | None = None,
) -> Axes:
    """Draw the share of elements that are equal bit by bit, for every pair of results.

    Parameters
    ----------
    results : mapping of name to array_like of floats
        Results of accumulations or of kernels, with one shape and one format.
    ax : Axes, optional
        Axes to draw into. Default: a new figure.
    title : str, optional
        Title of the picture.

    Returns
    -------
    Axes
        The text "100 %" means that all bits of all elements are equal.

    Raises
    ------
    ValueError
        If two results differ in shape or format, or there is no element to compare.

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

    from floatsim.analysis.equality import equal_shares

    shares, names = equal_shares(results), list(results)
    n = len(names)
    ax = new_axes(ax, figsize=(0.62 * n + 3.2, 0.42 * n + 1.9))
    colours, scale = palette(ax), colormaps["Blues"]
    for (i, j), share in np.ndenumerate(shares):
        tint = colours.pale if i == j else scale(0.04 + 0.9 * share)
        ax.add_patch(Rectangle((j, i), 1, 1, facecolor=tint, edgecolor=colours.background, linewidth=1.5))
        if i != j:
            weight = "bold" if share == 1 else "normal"
            ax.text(j + 0.5, i + 0.52, in_percent(share), ha="center", va="center", fontsize="small",
                    color=colours.on(tint), fontweight=weight)  # fmt: skip
    ax.set(xlim=(0, n), ylim=(n, 0))
    ax.set_yticks(np.arange(n) + 0.5, names)
    ax.set_xticks(np.arange(n) + 0.5, names, rotation=40, ha="right", rotation_mode="anchor")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return titled(ax, title, **HEADING)
