"""Chinese text in pictures: every character is drawn, and a missing font is said."""

import re
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from matplotlib import font_manager, rcParams
from matplotlib.text import Text

import floatsim as fs
from floatsim import plot
from floatsim.plot import language
from tests.marks import cases

FONT = language._known() or language._added()
needs_font = pytest.mark.skipif(FONT is None, reason="no font with Chinese characters is installed")


@pytest.fixture(autouse=True)
def _settings():
    with plt.rc_context():
        yield
    plt.close("all")
    language._appended.clear()
    language._chosen.set("en")


def missing_glyphs(ax):
    """The warnings of matplotlib about characters that a font lacks."""
    with warnings.catch_warnings(record=True, action="always") as caught:
        ax.figure.canvas.draw()
    return [str(each.message) for each in caught if "missing from font" in str(each.message)]


@needs_font
def test_titles_and_labels_have_their_characters():
    def draw():
        return plot.exponent_histogram([1.0, 2.0], ["fp16"], title="次正规数、上溢与吞没")

    assert missing_glyphs(draw())  # the picture without this function
    plot.use_language("zh")
    ax = draw()
    ax.set_xlabel("损失乘以 2ᵏ")
    assert missing_glyphs(ax) == []


LABELLED = {
    "anatomy": lambda: plot.anatomy(6.5, "fp16"), "subnormal": lambda: plot.anatomy(1e-6, "fp16"),
    "bit_strip": lambda: plot.bit_strip("0.1"), "code_grid": lambda: plot.code_grid("e5m2"),
    "number_line": lambda: plot.number_line(["fp32"], limits=(0, 8)), "spacing": lambda: plot.spacing(limits=(-9, 9)),
    "worst_error": lambda: plot.worst_error(["fp16"], limits=(-9, 9)),
    "staircase": lambda: plot.staircase("e4m3", title="舍入"),
    "scale_sweep": lambda: plot.scale_sweep([1e-3, 1.0], "e4m3"),
    "histogram": lambda: plot.exponent_histogram([1e-9, 1.0, 1e6], ["fp16"]),
}  # fmt: skip


def english_words(ax):
    """The words of a picture in Latin letters, apart from names such as FP16, NaN and p."""
    missing_glyphs(ax)  # draws
    texts = [text.get_text() for text in ax.figure.findobj(Text) if text.get_visible()]
    return [word for text in texts for word in re.findall(r"(?<![\w$\\{])[a-z]{4,}", text)]


@needs_font
@pytest.mark.parametrize("name", cases(quick=["anatomy", "histogram"], full=LABELLED))
def test_labels_are_chinese_and_have_their_characters(name):
    assert english_words(LABELLED[name]()) or name == "code_grid"
    plot.use_language("zh")
    ax = LABELLED[name]()
    assert missing_glyphs(ax) == []
    assert english_words(ax) == []
    assert any(letter > "\u2e80" for text in ax.figure.findobj(Text) for letter in text.get_text())


def test_each_chinese_label_is_one_of_a_picture():
    folder = Path(language.__file__).parent
    code = "\n".join(path.read_text("utf-8") for path in folder.glob("*.py") if path.name != "language.py")
    assert [label for label in language.CHINESE if f'"{label}"' not in code and f"'{label}'" not in code] == []
    assert all(a.count("{}") == b.count("{}") for a, b in language.CHINESE.items())


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
    rcParams["font.family"] = [FONT]
    assert plot.use_language() == FONT
    plot.use_language("en")
    assert rcParams["font.family"] == [FONT]


def test_without_a_font_a_warning_says_what_to_install(monkeypatch):
    monkeypatch.setattr(language, "FONTS", ("No Such Font",))
    before, known = list(rcParams["font.family"]), list(font_manager.fontManager.ttflist)
    message = r"matplotlib knows no font with Chinese characters.*fonts-noto-cjk\) and restart Python.*font="
    with pytest.warns(fs.FloatsimWarning, match=message):
        assert plot.use_language("zh") is None
    assert rcParams["font.family"] == before
    assert font_manager.fontManager.ttflist == known


@pytest.fixture
def copied_font(tmp_path, monkeypatch):
    """A file that the list of matplotlib lacks. Its font is matplotlib's own, whose name stands for a Chinese one."""
    manager = font_manager.fontManager
    source = Path(font_manager.findfont("DejaVu Sans", fallback_to_default=False))
    stale = [entry for entry in manager.ttflist if entry.name not in {"DejaVu Sans", *language.FONTS}]
    monkeypatch.setattr(manager, "ttflist", stale)
    monkeypatch.setattr(language, "FONTS", ("Missing Font", "DejaVu Sans"))
    found = [tmp_path / name for name in ("NotoSansCJK-Regular.ttf", "wqy-zenhei.ttf", "Other.ttf")]
    for path in found[::2]:
        path.write_bytes(source.read_bytes())
    found[1].write_bytes(b"no font")
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: [str(path) for path in found])
    return found[0]


def test_a_font_that_is_newer_than_the_list_of_matplotlib_is_added(copied_font):
    assert plot.use_language("zh") == "DejaVu Sans"
    added = [entry.fname for entry in font_manager.fontManager.ttflist if entry.name == "DejaVu Sans"]
    assert added == [str(copied_font)]
    assert font_manager.findfont("DejaVu Sans", fallback_to_default=False) == str(copied_font)


@pytest.mark.skipif(not any("CJK" in path for path in font_manager.findSystemFonts()), reason="no Noto CJK font")
def test_the_chinese_font_of_the_system_is_found_with_a_stale_list(monkeypatch):
    manager = font_manager.fontManager
    monkeypatch.setattr(manager, "ttflist", [each for each in manager.ttflist if each.name not in language.FONTS])
    chosen = plot.use_language("zh")
    assert chosen in language.FONTS
    assert missing_glyphs(plot.exponent_histogram([1.0, 2.0], ["fp16"], title="次正规数、上溢与吞没")) == []


def test_a_font_can_be_named():
    assert plot.use_language(font="DejaVu Sans") == "DejaVu Sans"
    assert rcParams["font.family"][-1] == "DejaVu Sans"
    with pytest.raises(ValueError, match=r"font='Nosuch' is not among the fonts.*addfont\(path\)"):
        plot.use_language(font="Nosuch")


def test_an_unknown_language():
    with pytest.raises(ValueError, match="language='fr' is not known; known are 'en' and 'zh'"):
        plot.use_language("fr")
