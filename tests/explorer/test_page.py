"""The page of the explorer in headless Chromium: click, type, keyboard, permalinks, tasks, and what it shows."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import floatsim as fs
from floatsim.explorer import page_html
from tests.explorer.chromium import CHROMIUM, browser

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="needs the program `chromium`, such as that of Debian's package"),
    pytest.mark.full,
]

SECTIONS = ("bits", "operations", "sums", "hopper", "codes", "histogram", "blocks", "tasks")


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    folder = tmp_path_factory.mktemp("explorer")
    (folder / "explorer.html").write_text(page_html(theme="light"), encoding="utf-8")
    with browser(folder / "profile") as found:
        found.address = (folder / "explorer.html").as_uri()
        found.size(1280, 900)
        yield found


@pytest.fixture
def page(tab):
    """Open the page with a permalink; in the end it has raised no error and asked for nothing but itself."""
    tab.errors.clear()
    tab.requests.clear()

    def opened(link=""):
        tab.open(f"{tab.address}#{link}")
        return tab

    yield opened
    assert not tab.errors
    assert {each.split("#")[0] for each in tab.requests} == {tab.address}


def shown(tab) -> str:
    return tab.text("#code")


# -- clicks, typing and keys -------------------------------------------------------------------------------------------


def test_click_flips_a_bit(page):
    tab = page("f=FP16&c=0x0000")
    for bit in (2, 3, 4, 5, 6):
        tab.click(f"#bit{bit}")
    assert shown(tab) == "0x3E00"
    assert tab.text("#number") == "1.5"
    assert tab.text("#row-FP32").split()[1:3] == ["1.5", "0x3FC00000"]


@pytest.mark.parametrize("text", ["0.1", "1/3", "-0x1.8p3", "1e5", "2^-24", "inf", "nan"])
def test_typed_number_in_every_format(page, text):
    """Every row of the table has the code and the flags of fs.encode."""
    tab = page()
    tab.type(text, "#number")
    exact = "0x1p-24" if text == "2^-24" else text
    for fmt in fs.named_formats():
        code, flags = fs.encode(exact, fmt, return_flags=True)
        row = tab.text(f"#row-{fmt.name}")
        assert f"0x{int(code):0{-(-fmt.bits // 4)}X}" in row.split()
        assert ("overflow" in row, "underflow" in row) == (bool(flags & fs.OVERFLOW), bool(flags & fs.UNDERFLOW))


def test_keyboard(page):
    """Arrows move along the bits and to the neighbours, space flips, digits change the section, l the language."""
    tab = page("f=E4M3&c=0x38")
    tab.run("document.querySelector('#bit0').focus()")
    tab.key("ArrowRight")
    assert tab.run("document.activeElement.id") == "bit1"
    tab.key("ArrowUp")
    assert (shown(tab), tab.run("document.activeElement.id")) == ("0x39", "bit1")
    tab.key("ArrowDown")
    tab.key("ArrowDown")
    assert shown(tab) == "0x37"
    tab.key(" ")
    assert shown(tab) == "0x77"
    tab.key("n")
    tab.type("448")
    assert shown(tab) == "0x7E"
    tab.key("Escape")
    for n, name in enumerate(SECTIONS, 1):
        tab.key(str(n))
        assert tab.run("document.querySelector('[aria-selected=true][role=tab]').id") == f"tab-{name}"
    tab.key("l")
    assert tab.run("document.documentElement.lang") == "zh"
    tab.key("?")
    assert tab.run("document.querySelector('#keys').open")
    tab.click("#keys-close")
    assert not tab.run("document.querySelector('#keys').open")


def test_typing_keeps_the_field_and_the_caret(page):
    tab = page()
    tab.type("12", "#number")
    tab.key("ArrowLeft")
    tab.type(".")
    assert (tab.text("#number"), tab.run("document.activeElement.selectionStart")) == ("1.2", 2)


@pytest.mark.parametrize(("link", "selector", "text", "message"), [
    ("", "#number", "abc", "is no number. Write 0.1"), ("", "#code", "0x1FFFF", "is no code of 16 bits"),
    ("f=custom", "#cw", "99", "must be an integer from 1 to 11"),
    ("f=custom", "#ct", "x", "must be an integer from 0 to 52"), ("f=custom", "#cb", "5000", "FP64 has at most 1023"),
    ("s=operations", "#operand-b", "1/0", "is no number"), ("s=sums", "#count", "0", "an integer from 1 to 20000"),
    ("s=hopper", "#unit-a", "1 x", "“x” is no number"), ("s=histogram", "#data", "0", "no finite non-zero number"),
    ("s=blocks", "#block", "1 inf", "must be finite"), ("s=codes", "#grid-code", "0x100", "is no code of 8 bits"),
])  # fmt: skip
def test_bad_input_has_a_message_beside_the_field(page, link, selector, text, message):
    tab = page(link)
    tab.type(text, selector)
    assert message in tab.text(f"{selector}-problem")
    assert tab.run(f"document.querySelector('{selector}').getAttribute('aria-invalid')") == "true"
    assert tab.text(selector) == text


# -- switches ----------------------------------------------------------------------------------------------------------


def test_switches_say_what_changed(page):
    tab = page("f=E4M3&x=1000")
    assert shown(tab) == "0x7F"
    tab.choose("#option-o", "saturate_finite")
    assert shown(tab) == "0x7E"
    changed = tab.run("[...document.querySelectorAll('tr.changed')].map((row) => row.id.slice(4))")
    wanted = [
        fmt.name for fmt in fs.named_formats()
        if fs.encode("1000", fmt) != fs.encode("1000", fmt, overflow="saturate_finite")
    ]  # fmt: skip
    assert [name for name in changed if name != "custom"] == wanted
    assert "NaN → 448" in tab.text("#changes")
    tab.choose("#option-r", "toward_zero")
    assert "RTZ" in tab.text("#changes")
    tab.type("1", "#number")
    assert tab.run("document.querySelector('#changes').hidden")
    tab.choose("#option-r", "toward_positive")
    assert "Nothing changes here" in tab.text("#changes")


def test_ftz_and_daz(page):
    tab = page("f=FP16&x=1e-7")
    tab.click("#option-ftz")
    assert shown(tab) == "0x0000"
    tab = page("s=operations&f=FP16&op=multiply&a=0x0001&b=2")
    assert "1.1920928955078125e-7" in tab.text("#outcome")
    tab.click("#option-daz")
    assert "0x0000" in tab.text("#outcome")
    assert "read as zero" in tab.text("#steps")


# -- sections against floatsim -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["add", "subtract", "multiply", "divide", "fma"])
def test_operation(page, operation):
    tab = page(f"s=operations&f=BF16&op={operation}&a=3.14&b=-0.001&e=1/3")
    operands = [fs.array(x, "bf16") for x in ("3.14", "-0.001", "1/3")][: 3 if operation == "fma" else 2]
    result, flags = getattr(fs, operation)(*operands, return_flags=True)
    outcome = tab.text("#outcome")
    assert f"0x{int(result.codes):04X}" in outcome
    assert ("inexact" in outcome) == bool(flags & fs.INEXACT)
    assert "." in tab.text("#steps")


def test_sum_that_stops_growing(page):
    tab = page("s=sums")
    assert "2048" in tab.text("#outcome")
    assert "stops growing at term 2048" in tab.text("#story")
    assert "2048 terms are absorbed" in tab.text("#story")
    tab.choose("#option-r", "stochastic")
    assert "does not stop growing" in tab.text("#story")
    assert "stochastic" in tab.text("#changes")
    tab.click("#reset")
    tab.click("#order-pairwise")
    assert "4096" in tab.text("#outcome")
    tab = page("s=sums&tk=harmonic&n=3000&f=FP32&acc=BF16")
    total = fs.sum(fs.array([f"1/{k}" for k in range(1, 3001)], "fp32"), accumulate="bf16")
    assert f"0x{int(total.codes):04X}" in tab.text("#outcome")


def test_hopper(page):
    tab = page("s=hopper")
    assert "15 terms lose bits; 15 are absorbed" in tab.text("#story")
    x = fs.array([1.0] + [2.0**-13] * 15, "fp16")
    assert float(tab.text("#outcome")) == float(fs.dot(x, x, accumulate="hopper").values) == 1.0
    tab.choose("#example", "random")
    a, b = ([float(x) for x in tab.text(f"#unit-{side}").split()] for side in "ab")
    wanted = fs.dot(fs.array(a, "fp16"), fs.array(b, "fp16"), accumulate="hopper")
    assert float(tab.text("#outcome")) == float(wanted.values)


def test_grid_of_codes(page):
    tab = page("s=codes&g=E4M3")
    shown_values = tab.run("[...document.querySelectorAll('#grid button')].map((cell) => cell.innerText)")
    values = fs.decode(fs.E4M3.codes(), "e4m3")
    assert len(shown_values) == 256
    for text, value in zip(shown_values, values, strict=True):
        number = float(text.replace("\N{MINUS SIGN}", "-"))
        assert np.isnan(number) if np.isnan(value) else number == pytest.approx(value, rel=1e-3)
    tab.click("#cell126")
    assert "0x7E = 448" in tab.text("#outcome")
    tab.key("ArrowRight")
    assert "NaN" in tab.text("#outcome")
    for name, count in (("E3M2", 64), ("E2M1", 16)):
        tab.choose("#grid-format", name)
        assert tab.run("document.querySelectorAll('#grid button').length") == count


def test_histogram_and_loss_scale(page):
    tab = page("s=histogram")
    x = np.array([float(each) for each in tab.text("#data").split()])
    for k in (0, 12, 40):
        tab.slide("#scale", k)
        for name in ("FP16", "E5M2"):
            row = fs.conversion_losses(x * 2.0**k, name)
            text = tab.run(f"document.querySelector('#loss-{name}').closest('tr').innerText")
            found = re.findall(r"([\d.]+) %", text)
            wanted = [row.overflowed, row.flushed, row.subnormal]
            assert [float(each) for each in found[:3]] == pytest.approx([100 * each for each in wanted], abs=0.06)
    tab.slide("#scale", 0)
    tab.type("1 1e6", "#data")
    assert "50.0 % overflow" in tab.text("#outcome")


def test_blocks_with_an_outlier(page):
    tab = page("s=blocks")
    x = np.float32([float(each) for each in tab.text("#block").split()])
    counts = tab.run("[...document.querySelectorAll('#schemes tbody tr')].map((row) => row.cells[1].innerText)")
    for name, count in zip(("e4m3", "mxfp8", "mxfp4", "nvfp4"), counts, strict=True):
        assert count == f"{np.sum(fs.quantize_blocks(x, name).values == 0)} / 64"


# -- permalinks and tasks ----------------------------------------------------------------------------------------------


def test_permalink_is_the_state(page):
    tab = page()
    tab.click("#tab-operations")
    tab.choose("#operation", "fma")
    tab.type("0.3", "#operand-c")
    tab.choose("#option-r", "toward_negative")
    outcome, link = tab.text("#outcome"), tab.run("location.hash")
    tab = page(link.removeprefix("#"))
    assert tab.text("#outcome") == outcome
    assert tab.run("location.hash") == link


def test_a_bad_link_says_so(page):
    tab = page("f=FP17&r=up")
    assert "unknown r “up”" in tab.text("#changes")
    assert tab.run("document.querySelector('#format').value") == "FP16"


SOLUTIONS = {
    1: [("click", "#bit2"), ("click", "#bit3"), ("click", "#bit4"), ("click", "#bit5"), ("click", "#bit6")],
    2: [("click", "#special2")], 3: [("click", "#special4")], 4: [("type", "100000", "#number")],
    5: [("choose", "#option-o", "saturate_finite")], 6: [("type", "2^-12", "#operand-b")],
    7: [("type", "1/16", "#operand-b")], 8: [("click", "#order-kahan")], 9: [("click", "#cell127")],
    10: [("slide", "#scale", 15)], 11: [("type", "1e30", "#unit-c")],
}  # fmt: skip


@pytest.mark.parametrize("number", SOLUTIONS)
def test_task(page, number):
    """Each task starts unsolved, and its solution is recognised."""
    tab = page("s=tasks")
    assert tab.run("document.querySelectorAll('.tasks li').length") == len(SOLUTIONS)
    tab.click(f"#task{number}")
    assert "Not solved yet" in tab.text("#task-state")
    for name, *arguments in SOLUTIONS[number]:
        getattr(tab, name)(*arguments)
    assert "Solved" in tab.text("#task-state")


# -- the bar -----------------------------------------------------------------------------------------------------------

THREE_CLICKS = {
    # what float.exposed does
    "type a number": ([("type", "0.1", "#number")], "0x2E66"),
    "type a code": ([("type", "0x7BFF", "#code")], "0x7BFF"),
    "flip a bit": ([("click", "#bit0")], "0xAE66"),
    "next larger number": ([("click", "#next")], "0x2E67"),
    "next smaller number": ([("click", "#previous")], "0x2E65"),
    "increase the exponent": ([("click", "#e-more")], "0x3266"),
    "decrease the significand": ([("click", "#t-less")], "0x2E65"),
    "show another format": ([("choose", "#format", "BF16")], "0x3DCD"),
    "a number in another format": ([("choose", "#format", "FP64"), ("type", "1e300", "#number")], "0x7E37E43C8800759C"),
    # what float-toy does
    "negate": ([("click", "#negate")], "0xAE66"),
    "flip a bit of FP32": ([("click", "#row-FP32 .mini button")], "0xBDCCCCCD"),
    "infinity": ([("click", "#special5")], "0x7C00"),
    "nan": ([("click", "#special6")], "0x7E00"),
    "smallest subnormal": ([("click", "#special4")], "0x0001"),
    # what fp-conv does
    "convert to FP8": ([("type", "300", "#number"), ("click", "#open-E4M3")], "0x79"),
    "convert to FP8, toward zero": (
        [("type", "300", "#number"), ("choose", "#option-r", "toward_zero"), ("click", "#open-E4M3")], "0x79"),
    "convert to FP8, saturating": (
        [("type", "1e6", "#number"), ("choose", "#option-o", "saturate_finite"), ("click", "#open-E5M2")], "0x7B"),
    "a code of BF16 in FP16": (
        [("choose", "#format", "BF16"), ("type", "0x3F80", "#code"), ("choose", "#format", "FP16")], "0x3C00"),
}  # fmt: skip
"""Tasks of three other pages, their actions here, and the code that is shown then."""


@pytest.mark.parametrize("name", THREE_CLICKS)
def test_three_clicks(page, name):
    actions, code = THREE_CLICKS[name]
    assert len(actions) <= 3
    tab = page("f=FP16&x=0.1")
    for action, *arguments in actions:
        getattr(tab, action)(*arguments)
    assert shown(tab) == code


# -- looks -------------------------------------------------------------------------------------------------------------

CONTRAST = """(() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgb = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const colour = rgb(getComputedStyle(e).backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return [255, 255, 255, 255];
  };
  const weak = [];
  for (const e of document.querySelectorAll('body *')) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    if (!own || e.closest('svg, dialog, noscript, script, style, .skip') || !e.getClientRects().length) continue;
    const [a, b] = [light(rgb(getComputedStyle(e).color)), light(behind(e))].sort((x, y) => y - x);
    const contrast = (a + 0.05) / (b + 0.05);
    if (contrast < 4.5) weak.push(`${e.tagName}.${e.className} ${e.innerText.slice(0, 20)} ${contrast.toFixed(2)}`);
  }
  return [...new Set(weak)].slice(0, 8);
})()"""


@pytest.mark.parametrize("theme", ["light", "dark", "projector"])
@pytest.mark.parametrize("width", [1440, 390])
def test_every_section_fits_and_has_contrast(page, tmp_path, theme, width):
    """No section is wider than the window, texts have the contrast 4.5 of WCAG AA, and there is a picture of each."""
    for language in ("en", "zh"):
        for section in SECTIONS:
            tab = page(f"s={section}&th={theme}&l={language}&task=1")
            tab.size(width, 900)
            assert tab.run("document.documentElement.scrollWidth <= innerWidth"), (section, language)
            assert tab.run(CONTRAST) == [], (section, language)
            picture = Path(tmp_path) / f"{section}.png"
            tab.screenshot(picture)
            assert picture.stat().st_size > 5_000
    tab.size(1280, 900)


def test_every_control_has_a_name(page):
    for section in SECTIONS:
        tab = page(f"s={section}")
        nameless = """[...document.querySelectorAll('button:not([aria-hidden]), input, select, textarea')]
            .filter((e) => !(e.innerText || '').trim() && !e.getAttribute('aria-label'))
            .filter((e) => !e.labels?.[0]?.innerText.trim()).map((e) => e.id)"""
        assert tab.run(nameless) == []


def test_notebook_frame(page, tab, tmp_path):
    """The widget shows the same page in a frame, with the state that it was given."""
    file = tmp_path / "cell.html"
    frame = fs.explorer("codes", g="E5M2")._repr_html_()
    file.write_text(f"<!doctype html><meta charset=utf-8>{frame}", encoding="utf-8")
    page()
    tab.open(file.as_uri())
    tab.run("new Promise((done) => setTimeout(done, 300))")
    inside = "document.querySelector('iframe').contentDocument.querySelector"
    assert tab.run(f"{inside}('[role=tab][aria-selected=true]').id") == "tab-codes"
    assert tab.run(f"{inside}('#grid-format').value") == "E5M2"
    tab.run(f"{inside}('#cell1').click()")
    assert "0x01" in tab.run(f"{inside}('#outcome').innerText")
    tab.requests = [each for each in tab.requests if each.startswith(tab.address)]


# -- numbers after an equals sign, and Chinese punctuation -------------------------------------------------------------


def test_a_number_after_an_equals_sign_is_exact(page):
    """All digits where they are few, and otherwise "≈": 0.2999267578125 has 13 digits."""
    tab = page("s=operations&f=FP16&op=add&a=0.1&b=0.2")
    steps = tab.text("#steps")
    assert "= 0.2999267578125" in steps
    for digits in re.findall(r"= \u2212?(\d+(?:\.\d+)?)(?!\S)", steps):
        assert Fraction(digits) == Fraction(float(digits)), digits
    tab = page("s=operations&f=FP32&op=multiply&a=1e-30&b=1")
    assert "≈ 1.0000000031" in tab.text("#steps")
    tab = page("f=FP16&x=0.1")
    assert re.search(r"2\^-14 = 0.00006103515625", tab.text("#facts"))
    assert "≈ \N{MINUS SIGN}0.4 ulp" in tab.text("#facts")
    assert "2^-149 ≈ 1.4012984643248" in page("f=FP32&c=0x00000001").text("#facts")


@pytest.mark.parametrize("section", SECTIONS)
def test_chinese_labels_have_chinese_punctuation(page, section):
    tab = page(f"l=zh&s={section}")
    text = tab.text("body")
    assert not re.findall(r"[\u4e00-\u9fff][:;,]|\d %", text)
    if section == "sums":
        assert re.search("各项的精确和\uff1a.*\uff1b相对误差\uff1a", text)
