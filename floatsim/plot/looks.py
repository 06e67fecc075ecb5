"""Sizes and styles of pictures: for a slide, for print, on a dark background, and as SVG."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from floatsim.formats._validation import name_hint
from floatsim.plot.style import FIGURE_SIZE

__all__ = ["STYLES", "styled"]

_DARK, _LIGHT = "#16181d", "#eeeeee"

STYLES: dict[str, dict[str, Any]] = {
    "slide": {"figure.dpi": 192, "savefig.dpi": 192, "font.size": 14.0, "axes.linewidth": 1.2, "xtick.major.width": 1.2,
              "ytick.major.width": 1.2},
    "print": {"figure.dpi": 300, "savefig.dpi": 300, "font.size": 8.0, "axes.linewidth": 0.6, "xtick.major.width": 0.6,
              "ytick.major.width": 0.6, "figure.facecolor": "white", "axes.facecolor": "white"},
    "dark": {"figure.facecolor": _DARK, "axes.facecolor": _DARK, "savefig.facecolor": _DARK, "axes.edgecolor": _LIGHT,
             "text.color": _LIGHT, "axes.labelcolor": _LIGHT, "axes.titlecolor": _LIGHT, "xtick.color": _LIGHT,
             "ytick.color": _LIGHT, "grid.color": "#6b6f78", "legend.facecolor": _DARK, "legend.edgecolor": "#6b6f78"},
    "svg": {"svg.fonttype": "none", "svg.hashsalt": "floatsim"},
}  # fmt: skip
"""The matplotlib settings of each style. "slide" and "print" also set the size of new figures.

>>> import floatsim as fs
>>> fs.plot.STYLES["slide"]["font.size"], list(fs.plot.STYLES)
(14.0, ['slide', 'print', 'dark', 'svg'])
"""

_SIZES = {"slide": lambda width, height: (10.0, 5.625), "print": lambda width, height: (6.3, 6.3 * height / width)}


@contextmanager
def styled(*styles: str) -> Iterator[None]:
    """Draw the pictures of a `with` block in one style or several.

    Parameters
    ----------
    *styles : str
        "slide": 16:9, 1920 x 1080 pixels, larger text. "print": 6.3 inches wide, the text width of an A4 page, with 300
        dots per inch and text of 8 points. "dark": light text on a dark background. "svg": text stays text in a saved
        SVG file, so that it can be searched and edited; save inside the block. Several may be combined, such as
        "slide" and "dark", but not "slide" and "print".

    Raises
    ------
    ValueError
        For an unknown style, or both sizes.

    Notes
    -----
    Sizes are those of functions that draw one picture. They do not change Axes passed as `ax=`, and figures of several
    Axes (`survey_figure`, `training_figure`, `monitor_figure`), which keep their own size.

    Examples
    --------
    >>> from floatsim import plot
    >>> with plot.styled("slide", "dark"):
    ...     ax = plot.format_ranges(["fp16", "bf16"])
    >>> ax.figure.get_size_inches().tolist(), ax.get_facecolor()[0] < 0.1
    ([10.0, 5.625], True)
    """
    for style in styles:
        if style not in STYLES:
            raise ValueError(f"styles has {style!r}; {name_hint(style, STYLES)}")
    sizes = [style for style in styles if style in _SIZES]
    if len(set(sizes)) > 1:
        raise ValueError(f"styles has both {' and '.join(sizes)}; a picture has one size")
    from matplotlib import rc_context

    settings: dict[Any, Any] = {key: value for style in styles for key, value in STYLES[style].items()}
    before = FIGURE_SIZE.set(_SIZES[sizes[0]] if sizes else FIGURE_SIZE.get())
    try:
        with rc_context(settings):
            yield
    finally:
        FIGURE_SIZE.reset(before)
