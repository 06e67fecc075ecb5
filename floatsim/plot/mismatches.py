"""A map of the elements that differ between two arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from floatsim.plot.style import HEADING, new_axes, palette, titled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["mismatch_map"]

_PIXELS = 512  # rows and columns of the picture: larger arrays are shown in blocks
_LARGEST = 16  # binary digits of the distance at the dark end of the colours


def mismatch_map(
    distances: Any, *, differs: Any = None, ax: Axes | None = None, title: str | None = None, colorbar: bool = True
) -> Axes:
    """Draw the distance of each element in ulps as a colour: light is near, dark is far.

    Parameters
    ----------
    distances : array of unsigned integers, (..., R, C)
        The distances in ulps, as `fs.ulp_distance` returns them. Leading axes are drawn below each other.
    differs : array of bool, optional
        The elements to draw. Default: those whose distance is not 0.
    ax : Axes, optional
        Axes to draw into. Default: a new figure.
    title : str, optional
        Title of the picture.
    colorbar : bool
        Whether to draw a colour bar.

    Returns
    -------
    Axes
        Elements that are equal have the colour of the background. In an array with more than 512 rows or columns, a
        pixel stands for a block and has the largest distance in it.

    Raises
    ------
    ValueError
        If there is no element to draw.

    Examples
    --------
    >>> import floatsim as fs
    >>> from floatsim import plot
    >>> x, y = fs.array([[1.0, 2.0]], "fp16"), fs.array([[1.0, 3.0]], "fp16")
    >>> plot.mismatch_map(fs.ulp_distance(x, y), title="1 differs").get_title(loc="left")
    '1 differs'
    """
    import numpy as np

    apart = np.asarray(distances)
    if not apart.size:
        raise ValueError(f"distances has no elements: its shape is {apart.shape}")
    shown = apart != 0 if differs is None else np.asarray(differs)
    flat = apart.reshape(-1, apart.shape[-1] if apart.ndim else 1)
    with np.errstate(divide="ignore"):
        size = np.where(shown.reshape(flat.shape), np.log2(np.maximum(flat, 1).astype(float)) + 1, 0.0)
    pixels = _blocks(np.minimum(size, _LARGEST))
    ax = new_axes(ax, figsize=(4.2, 3.6))
    colours = palette(ax)
    rows, columns = flat.shape
    drawn = ax.imshow(
        np.ma.masked_equal(pixels, 0), cmap=colours.scale("cividis", colours.background), vmin=1, vmax=_LARGEST,
        interpolation="nearest", aspect="auto", extent=(-0.5, columns - 0.5, rows - 0.5, -0.5),
    )  # fmt: skip
    ax.set_xlabel("column")
    ax.set_ylabel("row")
    titled(ax, title, **HEADING)
    if colorbar:
        bar = ax.figure.colorbar(drawn, ax=ax, label="distance in ulps")
        ticks = (1, 4, 8, 12, _LARGEST)
        bar.set_ticks(ticks, labels=[f"{'≥ ' if tick == _LARGEST else ''}{1 << tick - 1}" for tick in ticks])
    return ax


def _blocks(size: Any) -> Any:
    """Return the largest number of each block, so that at most 512 rows and columns remain."""
    import numpy as np

    for axis in (0, 1):
        step = -(-size.shape[axis] // _PIXELS)
        size = np.maximum.reduceat(size, np.arange(0, size.shape[axis], step), axis=axis)
    return size
