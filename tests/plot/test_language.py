"""Chinese text in pictures: every character is drawn, and a missing font is said."""

import warnings

import matplotlib.pyplot as plt
import pytest
from matplotlib import font_manager, rcParams

import floatsim as fs
from floatsim import plot
from floatsim.plot import language

INSTALLED = {entry.name for entry in font_manager.fontManager.ttflist}.intersection(language.FONTS)
needs_font = pytest.mark.skipif(not INSTALLED, reason="no font with Chinese characters is installed")


@pytest.fixture(autouse=True)
def _settings():
    with plt.rc_context():
        yield
    plt.close("all")
    language._appended.clear()


def missing_glyphs(ax):
    """The warnings of matplotlib about characters that a font lacks."""
    with warnings.catch_warnings(record=True, action="always") as caught:
        ax.figure.canvas.draw()
    return [str(each.message) for each in caught if "missing from font" in str(each.message)]


@needs_font
@pytest.mark.parametrize("draw", [
    lambda: plot.exponent_histogram([1.0, 2.0], ["fp16"], title="次正规数、上溢与吞没"),
    lambda: plot.staircase("e4m3", title="溢出策略：饱和"),
    lambda: plot.code_grid("e4m3", title="E4M3 的全部编码"),
], ids=["histogram", "staircase", "codes"])  # fmt: skip
def test_titles_and_labels_have_their_characters(draw):
    ax = draw()
    ax.set_xlabel("损失乘以 2ᵏ")
    assert missing_glyphs(ax)  # the picture of a page without this function
    plot.use_language("zh")
    ax = draw()
    ax.set_xlabel("损失乘以 2ᵏ")
    assert missing_glyphs(ax) == []


@needs_font
def test_the_font_is_appended_once_and_removed_again():
    before = list(rcParams["font.family"])
    chosen = plot.use_language()
    assert plot.use_language("zh") == chosen
    assert rcParams["font.family"] == [*before, chosen]
    assert plot.use_language("en") is None
    assert rcParams["font.family"] == before


@needs_font
def test_a_font_of_the_user_stays():
    chosen = next(name for name in language.FONTS if name in INSTALLED)
    rcParams["font.family"] = [chosen]
    assert plot.use_language() == chosen
    plot.use_language("en")
    assert rcParams["font.family"] == [chosen]


def test_without_a_font_a_warning_says_what_to_install(monkeypatch):
    monkeypatch.setattr(language, "FONTS", ("No Such Font",))
    before = list(rcParams["font.family"])
    with pytest.warns(fs.FloatsimWarning, match=r"no font with Chinese characters.*fonts-noto-cjk.*font="):
        assert plot.use_language("zh") is None
    assert rcParams["font.family"] == before


def test_a_font_can_be_named():
    assert plot.use_language(font="DejaVu Sans") == "DejaVu Sans"
    assert rcParams["font.family"][-1] == "DejaVu Sans"
    with pytest.raises(ValueError, match=r"font='Nosuch' is not among the fonts.*addfont\(path\)"):
        plot.use_language(font="Nosuch")


def test_an_unknown_language():
    with pytest.raises(ValueError, match="language='fr' is not known; known are 'en' and 'zh'"):
        plot.use_language("fr")
