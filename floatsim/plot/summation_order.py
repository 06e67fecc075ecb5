"""The fingerprint of a summation order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from floatsim.plot.style import HEADING, new_axes, palette, titled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["order_map"]


def order_map(survivors: Any, *, ax: Axes | None = None, title: str | None = None, colorbar: bool = True) -> Axes:
    """Draw the fingerprint of a summation order: the number of other terms that survive when terms i and j cancel.

    Parameters
    ----------
    survivors : array of integers, (k, k)
        The result of `fs.reveal_order`.
    ax : Axes, optional
        Axes to draw into. Default: a new figure.
    title : str, optional
        Title of the picture.
    colorbar : bool
        Whether to draw a colour bar.

    Returns
    -------
    Axes
        Light: i and j meet early, and all terms added later survive. Dark: they meet late.

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
        raise ValueError(
            f"survivors must be a square matrix, such as the result of fs.reveal_order; got shape {counts.shape}"
        )
    k = len(counts)
    ax = new_axes(ax, figsize=(3.6, 3.2))
    _lay_out_squares(ax)
    colours = palette(ax)
    nothing = colours.background  # the diagonal: no pair of terms
    scale = colours.scale("cividis", nothing) if colours.dark else colormaps["cividis"].with_extremes(bad=nothing)
    drawn = ax.imshow(np.ma.masked_less(counts, 0), cmap=scale, vmin=0, vmax=k - 2, interpolation="nearest")
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


def _lay_out_squares(ax: Axes) -> None:
    """Let a constrained layout of the figure move square Axes together.

    Without this, the layout takes the free space beside squares for space above and below them. Titles then overlap the
    labels of the row above.
    """
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = ax.figure.figure
    engine = figure.get_layout_engine()
    if isinstance(engine, ConstrainedLayoutEngine):
        figure.set_layout_engine("compressed", **engine.get())
