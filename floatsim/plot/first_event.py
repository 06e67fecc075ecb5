"""The first event along K for each element of a product."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from floatsim.plot.style import HEADING, in_percent, new_axes, palette, titled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["first_map"]


def first_map(
    first: Any,
    terms: int,
    *,
    ax: Axes | None = None,
    title: str | None = None,
    event: str = "event",
) -> Axes:
    """Draw the first k at which an event occurred in the sum of each element of a product.

    Parameters
    ----------
    first : array of integers, (M, N) or (N,)
        The least k of the event, -1 where it did not occur: `log.first["overflow"]` of `fs.record`.
    terms : int
        K, the number of terms of each sum.
    ax : Axes, optional
        Axes to draw into. Default: a new figure.
    title : str, optional
        Title of the picture. Default: the event, and the number of elements with it.
    event : str
        Name of the event, for the default title.

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
    from matplotlib.patches import Patch

    k = np.asarray(first)
    if k.ndim == 1:
        k = k[None, :]
    if k.ndim != 2 or not k.size or k.dtype.kind not in "iu":
        raise ValueError(
            f"first must be a matrix of integers, such as log.first[...]; got {k.dtype} of shape {k.shape}"
        )
    if k.min() < -1 or k.max() >= terms:
        raise ValueError(f"first holds {int(k.min())} to {int(k.max())}; with terms={terms} it is -1 to {terms - 1}")
    ax = new_axes(ax, figsize=(5.4, 4.2))
    colours = palette(ax)
    scale = colours.scale("viridis", colours.pale)
    drawn = ax.imshow(np.ma.masked_less(k, 0), cmap=scale, vmin=0, vmax=terms - 1, interpolation="nearest",
                      aspect="auto")  # fmt: skip
    count = int((k >= 0).sum())
    ax.set_xlabel("column")
    ax.set_ylabel("row")
    ax.tick_params(length=2)
    ax.figure.colorbar(drawn, ax=ax, label=f"first k (of {terms})")
    if count < k.size:
        never = Patch(facecolor=colours.pale, edgecolor=colours.ink, linewidth=0.6, label="never")
        ax.legend(handles=[never], loc="upper left", bbox_to_anchor=(1.0, -0.02), frameon=False, fontsize="small",
                  handlelength=1, handleheight=1)  # fmt: skip
    counted = f"{event}: {count} of {k.size} elements ({in_percent(count / k.size)})"
    return titled(ax, counted if title is None else title, **HEADING)
