"""Conversion losses: for several formats, and for every scale by which a tensor is multiplied before rounding."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from floatsim.formats import FormatLike, as_format
from floatsim.plot.language import say
from floatsim.plot.style import (
    Palette,
    fitting_size,
    in_percent,
    new_axes,
    palette,
    powers_of_two,
    titled,
    width_in_points,
    words_beside,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from floatsim.analysis.conversion_losses import ConversionLosses

__all__ = ["conversion_losses", "losses_in_words", "scale_sweep"]

_READABLE = 7.0  # points
_ATTRIBUTES = ("flushed", "subnormal", "normal", "overflowed")
_WORDS = ("flushed to zero", "subnormal", "normal", "overflow")


def losses_in_words(losses: ConversionLosses) -> str:
    """Return conversion losses as text: "39 % flushed to zero, 59 % subnormal", or say("all normal").

    >>> import floatsim as fs
    >>> losses_in_words(fs.conversion_losses([1e-9, 1.0], "fp16"))
    '50 % flushed to zero'
    """
    order = ("flushed", "overflowed", "subnormal")
    if math.isnan(losses.normal):  # of an array without elements
        return say("no finite non-zero number")
    shares = {what: getattr(losses, what) for what in order}
    words = [f"{in_percent(share)} {say(_WORDS[_ATTRIBUTES.index(what)])}" for what, share in shares.items() if share]
    return say(", ").join(words) or say("all normal")


def _styles(colours: Palette, tint: str) -> tuple[dict[str, Any], ...]:
    """Return the appearance of the bar of each kind, in the order of `_ATTRIBUTES`."""
    hatched = {"facecolor": colours.background, "edgecolor": tint, "hatch": "//////"}
    return {"color": colours.lost}, hatched, {"color": tint}, {"color": colours.lost}


def conversion_losses(
    losses: Mapping[str, ConversionLosses], *, ax: Axes | None = None, title: str | None = None
) -> Axes:
    """Draw conversion losses as stacked bars, one row per format.

    From the left: flushed to zero (black), subnormal (hatched), normal (solid), overflowed (black). On a dark
    background, white replaces black.

    Parameters
    ----------
    losses : mapping of str to ConversionLosses
        The results of `fs.conversion_losses`. A key that names a format has the format's colour.
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
        If the mapping is empty.

    Examples
    --------
    >>> import floatsim as fs
    >>> x = [1e-9, 1e-6, 1.0, 1e6]
    >>> ax = fs.plot.conversion_losses({fmt: fs.conversion_losses(x, fmt) for fmt in ("FP16", "FP32")})
    >>> [text.get_text() for text in ax.texts]
    ['25 % flushed to zero, 25 % overflow, 25 % subnormal', 'all normal']
    """
    if not losses:
        raise ValueError("losses must hold at least one result of fs.conversion_losses")
    ax = new_axes(ax, figsize=(9, 0.45 * len(losses) + 1))
    colours = palette(ax)
    for row, (name, each) in enumerate(losses.items()):
        left = 0.0
        for attribute, style in zip(_ATTRIBUTES, _styles(colours, colours.name(name)), strict=True):
            share = getattr(each, attribute)
            if not math.isnan(share):  # of an array without elements
                ax.barh(row, share, 0.7, left, lw=0, **style)
            left += share
        words_beside(ax, row, losses_in_words(each), colours)
    ax.set_yticks(range(len(losses)), list(losses))
    for label in ax.get_yticklabels():
        label.set(color=colours.name(label.get_text()), fontweight="bold")
    ax.set(xlim=(0, 1), ylim=(len(losses) - 0.5, -0.5), xlabel=say("share of the non-zero numbers"))
    ax.xaxis.set_major_formatter(lambda part, _: f"{100 * part:.0f} %")
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right", "left"]].set_visible(False)
    return titled(ax, title)


def scale_sweep(
    x: Any,
    format: FormatLike = "e4m3",
    *,
    exponents: tuple[int, int] = (-4, 32),
    mark: int | None = None,
    ax: Axes | None = None,
    title: str | None = None,
) -> Axes:
    """Draw the conversion losses of a tensor that is multiplied by 2**k before rounding, for each k.

    The shares of the finite non-zero numbers are stacked. From the bottom: flushed to zero (black), subnormal
    (hatched), normal (the format's colour), overflowed (black). On a dark background, white replaces black. Rounding is
    ties to even.

    Parameters
    ----------
    x : array_like
        The tensor: real numbers of any shape, or a FloatArray.
    format : format
        The target format.
    exponents : (int, int)
        The first and the last k of the scales 2**k.
    mark : int, optional
        A k to draw a line at.
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
        If `x` has no finite non-zero number, or the exponents are not in order.

    Examples
    --------
    >>> from floatsim import plot
    >>> ax = plot.scale_sweep([1e-6, 1e-3], "e4m3", exponents=(0, 24))
    >>> [text.get_text() for text in ax.texts], ax.get_xlabel()
    (['flushed to zero', 'subnormal', 'normal', 'overflow'], 'multiplied by, then rounded to E4M3')
    """
    import numpy as np

    from floatsim.analysis.conversion_losses import conversion_losses, finite_nonzero

    format, values = as_format(format), finite_nonzero(x)
    first, last = exponents
    if not first < last:
        raise ValueError(f"exponents must be two integers, the smaller one first, such as (-4, 32); got {exponents!r}")
    scales = np.arange(first, last + 1)
    found = [conversion_losses(np.ldexp(values, k), format, rounding="ties_to_even", ftz=False) for k in scales]
    layers = np.array([[getattr(each, what) for each in found] for what in _ATTRIBUTES])
    tops = layers.cumsum(axis=0)
    ax = new_axes(ax, figsize=(8, 3.8))
    colours = palette(ax)
    words = [say(word) for word in _WORDS]
    for layer, top, style, word in zip(layers, tops, _styles(colours, colours.format(format)), words, strict=True):
        ax.bar(scales, layer, 1.0, top - layer, lw=0, **style)
        inner = layer[2:-2] if layer.size > 6 else layer  # where a word has room to its left and right
        if inner.size and inner.max() > 0.12:
            at = int(np.median(np.flatnonzero(layer >= 0.5 * inner.max())))
            face = style.get("color", colours.background)
            box = {"boxstyle": "round,pad=0.2", "facecolor": face, "edgecolor": "none"}  # hides the line of `mark`
            room = 0.9 * np.count_nonzero(layer >= 0.5 * inner.max()) * width_in_points(ax) / layer.size
            room *= 1.5 if "hatch" in style else 1.0  # a word in a box may cover a part of its neighbours
            text = word if fitting_size(word, room) == fitting_size("", room) else word.replace(" ", "\n", 1)
            size = max(fitting_size(text, room), _READABLE)
            ax.text(scales[at], float((top - layer / 2)[at]), text, ha="center", va="center", zorder=4, size=size,
                    bbox=box, color=colours.on(face))  # fmt: skip
    if mark is not None:
        ax.axvline(mark, color=colours.background, lw=3)
        ax.axvline(mark, color=colours.ink, lw=1.2, ls=(0, (4, 2)))
    ax.set(xlim=(first - 0.5, last + 0.5), ylim=(0, 1), xlabel=say("multiplied by, then rounded to {}", format.name),
           ylabel=say("share of the non-zero numbers"))  # fmt: skip
    powers_of_two(ax)
    ax.yaxis.set_major_formatter(lambda part, _: f"{100 * part:.0f} %")
    ax.spines[["top", "right"]].set_visible(False)
    return titled(ax, title)
