"""Pictures with Chinese text: the font that has the characters."""

from __future__ import annotations

from floatsim._warnings import warn

__all__ = ["use_language"]

_LANGUAGES = ("en", "zh")
FONTS = (
    "Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC", "Source Han Sans CN", "PingFang SC", "Hiragino Sans GB",
    "Microsoft YaHei", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "Heiti SC", "STHeiti", "SimHei", "DengXian",
    "Sarasa UI SC", "LXGW WenKai", "Arial Unicode MS", "Droid Sans Fallback", "Noto Sans CJK JP", "Noto Serif CJK SC",
    "SimSun",
)  # fmt: skip
"""Fonts with Chinese characters of Linux, macOS and Windows, the preferred ones first."""

_appended: set[str] = set()
"""The fonts that `use_language` appended, and may remove."""


def use_language(language: str = "zh", *, font: str | None = None) -> str | None:
    """Let matplotlib draw Chinese text in titles and labels, those of your own included.

    matplotlib's own font has no Chinese characters, and draws a box for each. This function appends a font with them
    to `rcParams["font.family"]`. Latin letters and digits keep their font. Without such a font, a warning says what to
    install, and nothing changes.

    matplotlib draws a text that contains a formula in one font only: write "2ᵏ" beside Chinese characters, not "$2^k$".

    Parameters
    ----------
    language : {"zh", "en"}
        "zh" appends a font. "en" removes it again.
    font : str, optional
        The name of a font that matplotlib knows. Default: the first installed font of a list for Linux, macOS and
        Windows.

    Returns
    -------
    str or None
        The name of the font, or None without one.

    Raises
    ------
    ValueError
        If the language is not known, or `font` is not installed.

    Warns
    -----
    FloatsimWarning
        If no font with Chinese characters is installed.

    Examples
    --------
    >>> from floatsim import plot
    >>> plot.use_language("en")  # matplotlib's own fonts
    """
    from matplotlib import rcParams

    if language not in _LANGUAGES:
        raise ValueError(f"language={language!r} is not known; known are 'en' and 'zh'")
    families = [family for family in rcParams["font.family"] if family not in _appended]
    chosen = None if language == "en" else _installed(font)
    if chosen is not None and chosen not in families:
        families.append(chosen)
        _appended.add(chosen)
    rcParams["font.family"] = families
    return chosen


def _installed(font: str | None) -> str | None:
    """The font that is asked for, or the first one with Chinese characters; None, after a warning, if there is none."""
    from matplotlib import font_manager

    names = {entry.name for entry in font_manager.fontManager.ttflist}
    if font is not None and font not in names:
        close = sorted(names & set(FONTS))
        raise ValueError(
            f"font={font!r} is not among the fonts that matplotlib knows"
            + (f"; with Chinese characters it knows {', '.join(close)}" if close else "")
            + ". matplotlib.font_manager.fontManager.addfont(path) adds a file"
        )
    found = font if font is not None else next((name for name in FONTS if name in names), None)
    if found is None:
        warn(
            "no font with Chinese characters is installed, so Chinese text would be drawn as boxes: install one "
            "(Debian and Ubuntu: apt install fonts-noto-cjk), restart Python, or pass font= the name of another one"
        )
    return found
