"""The bits of numbers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from floatsim.formats import FormatLike
from floatsim.plot.style import FIVE, INK, cell, colour, is_dark, name_rows, new_axes, paler, several

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["bit_strip"]


def bit_strip(value: Any, formats: Iterable[FormatLike] | FormatLike = FIVE, *, ax: Axes | None = None) -> Axes:
    """The bits of one number in several formats: sign (black), exponent, trailing significand (pale), and the value.

    Parameters
    ----------
    value : number or str
        What to round (ties to even); a text such as "0.1" is rounded once, from its exact value.
    formats : format or iterable of format
        Top to bottom.
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If `value` is no number, or no format is given.

    Examples
    --------
    >>> from floatsim import plot
    >>> ax = plot.bit_strip("0.1", ["bf16"])
    >>> "".join(text.get_text() for text in ax.texts)
    '00111101110011010.1001'
    """
    from floatsim.conversion import decode, encode

    rows = several(formats)
    width = max(fmt.bits for fmt in rows)
    ax = new_axes(ax, figsize=(0.3 * width + 3, 0.5 * len(rows) + 0.8))
    for row, fmt in enumerate(rows):
        code = int(encode(value, fmt))
        letters = fmt.layout.replace(" ", "")
        for place, (letter, bit) in enumerate(zip(letters, f"{code:0{fmt.bits}b}", strict=True)):
            tint = {"s": INK, "e": colour(fmt), "t": paler(colour(fmt))}[letter]
            ax.add_patch(cell(place, row, tint))
            ax.text(place + 0.5, row + 0.5, bit, ha="center", va="center", family="monospace",
                    color="white" if is_dark(tint) else INK)  # fmt: skip
        shown = float(decode(code, fmt))
        ax.annotate(f"{shown:.{max(2, 3 + fmt.precision * 3 // 10)}g}", (fmt.bits, row + 0.5), (5, 0),
                    textcoords="offset points", va="center")  # fmt: skip
    ax.set(xlim=(0, width * 1.12), ylim=(len(rows), 0), xticks=[])
    name_rows(ax, rows, [row + 0.5 for row in range(len(rows))])
    ax.spines[:].set_visible(False)
    ax.set_title(f"{value}: sign, exponent, trailing significand")
    return ax
