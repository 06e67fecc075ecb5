"""Pictures with Chinese text: the labels, and the font that has the characters."""

from __future__ import annotations

import re
from contextvars import ContextVar
from pathlib import Path

from floatsim._warnings import warn

__all__ = ["say", "use_language"]

_LANGUAGES = ("en", "zh")
FONTS = (
    "Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC", "Source Han Sans CN", "PingFang SC", "Hiragino Sans GB",
    "Microsoft YaHei", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "Heiti SC", "STHeiti", "SimHei", "DengXian",
    "Sarasa UI SC", "LXGW WenKai", "Arial Unicode MS", "Droid Sans Fallback", "Noto Sans CJK JP", "Noto Serif CJK SC",
    "Noto Serif CJK JP", "SimSun",
)  # fmt: skip
"""Fonts with Chinese characters on Linux, macOS and Windows, the preferred ones first."""

FONT_FILES = (
    "notosanscjk", "notosanssc", "notoserifcjk", "sourcehansans", "pingfang", "hiraginosansgb", "msyh", "wqymicrohei",
    "wqyzenhei", "stheiti", "simhei", "simsun", "deng", "sarasa", "lxgwwenkai", "arialunicode", "droidsansfallback",
)  # fmt: skip
"""How the names of their files begin, in small letters and digits only."""

CHINESE = {
    "sign": "符号", "exponent": "指数", "significand": "尾数", "subnormal": "次正规数",
    "no number": "非数", "none: infinity": "没有：无穷", "infinity": "无穷", "NaN, not a number": "NaN，非数",
    "(the {} before the point is not stored)": "（小数点前的 {} 不存放）", "{} codes": "{} 个编码",
    "{} subnormal": "{} 个次正规数",
    "{} infinities": "{} 个无穷", "{} NaN": "{} 个 NaN", "{}: {}": "{}：{}", ", ": "，",
    "{}: sign, exponent, trailing significand": "{}：符号、指数、尾数字段",
    "in italics: rounded to three digits": "斜体：舍入到三位数字", "magnitude": "绝对值", "{} numbers": "{} 个数",
    "flushed to zero": "清零", "normal": "正规数", "overflow": "上溢", "all normal": "全部是正规数",
    "no finite non-zero number": "没有有限的非零数", "share of the non-zero numbers": "占非零数的比例",
    "multiplied by, then rounded to {}": "所乘的因子，然后舍入到 {}", "number": "数", "rounded to {}": "舍入到 {}",
    "size of the number": "数的大小", "gap to the next number": "到下一个数的间距",
    "largest relative error": "最大相对误差", "epoch": "轮", "step": "步", "loss": "损失",
    "loss scale (x: skipped)": "损失缩放因子（×：跳过的步）", "accuracy on test images": "测试图像的准确率",
    "{}: diverged": "{}：发散", "error in ulps of {} (right: too large)": "误差，以 {} 的 ulp 计（右边：偏大）",
    "mean {} ulp": "平均 {} ulp",
}  # fmt: skip
"""The Chinese of most labels of pictures of formats, rounding, losses and training. Other labels stay English."""

_appended: set[str] = set()
"""The fonts that `use_language` appended, and may remove."""
_chosen = ContextVar("floatsim_plot_language", default="en")


def say(label: str, *values: object) -> str:
    """Return a label in the chosen language, with the values in place of its braces.

    >>> say("rounded to {}", "FP16")
    'rounded to FP16'
    """
    return (CHINESE.get(label, label) if _chosen.get() == "zh" else label).format(*values)


def use_language(language: str = "zh", *, font: str | None = None) -> str | None:
    """Choose the language of the labels, and let matplotlib draw Chinese text, that of your own titles included.

    Most labels of the pictures of formats, rounding, conversion losses and training have a Chinese text. All other
    labels and pictures stay English. matplotlib's own font has no Chinese characters, and draws a box for each. This
    function appends a font with them to `rcParams["font.family"]`. Latin letters and digits keep their font. Without
    such a font, a warning says what to install, and nothing changes.

    matplotlib draws a text that contains a formula in one font only: write "2ᵏ" beside Chinese characters, not "$2^k$".

    Parameters
    ----------
    language : {"zh", "en"}
        "zh" selects Chinese labels and appends a font. "en" selects English labels and removes the font again.
    font : str, optional
        The name of a font that matplotlib knows. Default: the first installed font of a list for Linux, macOS and
        Windows. A font that was installed after matplotlib stored its list of fonts is found too.

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
        If no font with Chinese characters is found.

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
    _chosen.set("en" if chosen is None else language)
    return chosen


def _installed(font: str | None) -> str | None:
    """The font that is asked for, or the first one with Chinese characters; None, after a warning, if there is none."""
    names = _names()
    if font is not None and font not in names:
        close = sorted(names & set(FONTS))
        raise ValueError(
            f"font={font!r} is not among the fonts that matplotlib knows"
            + (f"; with Chinese characters it knows {', '.join(close)}" if close else "")
            + ". matplotlib.font_manager.fontManager.addfont(path) adds a file"
        )
    if font is not None:
        return font
    found = _known() or _added()
    if found is None:
        warn(
            "matplotlib knows no font with Chinese characters, so Chinese text would be drawn as boxes: install one "
            "(Debian and Ubuntu: apt install fonts-noto-cjk) and restart Python, or pass font= the name of another one"
        )
    return found


def _names() -> set[str]:
    """The names of the fonts that matplotlib knows."""
    from matplotlib import font_manager

    return {entry.name for entry in font_manager.fontManager.ttflist}


def _known() -> str | None:
    """The first of `FONTS` that matplotlib knows."""
    names = _names()
    return next((name for name in FONTS if name in names), None)


def _added() -> str | None:
    """Add the files of the best of `FONTS` to the fonts of matplotlib, whose stored list can be older than they are."""
    from matplotlib import font_manager

    files: dict[str, list[str]] = {}
    for path in sorted(font_manager.findSystemFonts()):
        if not re.sub(r"[\W_]", "", Path(path).stem.lower()).startswith(FONT_FILES):
            continue
        try:
            files.setdefault(font_manager.get_font(path).family_name, []).append(path)
        except (OSError, RuntimeError):  # a file that cannot be read
            continue
    first = next((name for name in FONTS if name in files), None)
    for path in files[first] if first else []:
        font_manager.fontManager.addfont(path)  # of a collection, some versions add only the first font
    return _known()
