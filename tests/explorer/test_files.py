"""The file of the page, without a browser: its size, no address, equal texts in both languages, and the command."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import floatsim as fs
from floatsim.explorer import page_data, page_html
from floatsim.explorer.page import SECTIONS, STATE

FOLDER = Path(fs.__file__).parent / "explorer"
STRINGS = (FOLDER / "strings.js").read_text(encoding="utf-8")
SCRIPT = (FOLDER / "page.js").read_text(encoding="utf-8")
TEXT = r'"((?:[^"\\]|\\.)*)"'


def texts() -> dict[str, tuple[str, str]]:
    """The English and the Chinese text of each key."""
    pattern = r"(?<!\w)(\w+): \[\s*" + TEXT + r",\s*" + TEXT + r",?\s*\]"
    return {key: (en, zh) for key, en, zh in re.findall(pattern, STRINGS)}


def test_page_is_one_small_file():
    html = page_html("zh", "projector")
    assert len(html.encode()) <= 300_000
    assert '<html lang="zh" data-theme="projector">' in html
    assert not re.search(r"@[A-Z]+@", html)


def test_page_names_no_address():
    """The only address is the name of SVG; the policy of the page forbids all requests; the wheel has every part."""
    html = page_html()
    assert set(re.findall(r"https?://[^\s\"']+", html)) == {"http://www.w3.org/2000/svg"}
    assert "default-src 'none'" in html
    assert not re.search(r"<(?:link|img|script[^>]+src|iframe)\b|@import|url\(|fetch\(|XMLHttp|import\(", html)


def test_data_of_the_page_are_those_of_floatsim():
    data = page_data()
    assert [fmt["name"] for fmt in data["formats"]] == [fmt.name for fmt in fs.named_formats()]
    assert json.loads(json.dumps(data)) == data
    outputs = {(row["input"], row["output"]) for row in data["instructions"]}
    assert {("FP16", "FP32"), ("BF16", "FP32"), ("FP16", "FP16"), ("TF32", "FP32"), ("E4M3", "FP32")} <= outputs
    assert [scheme["block"] for scheme in data["schemes"]] == [None, 32, 32, 16]


def test_texts_in_both_languages():
    """Every text has both languages, with the same values filled in; Chinese texts are Chinese."""
    found = texts()
    assert len(found) == len(re.findall(r"(?<!\w)\w+: \[", STRINGS)) > 200
    for key, (en, zh) in found.items():
        assert set(re.findall(r"\{\w+\}", en)) == set(re.findall(r"\{\w+\}", zh)), key
    same = {key for key, (_, zh) in found.items() if not re.search(r"[\u4e00-\u9fff]", zh)}
    assert same == {"colon", "between", "semicolon", "comma", "percent", "language", "ftz", "daz", "nan", "kind_nan",
                    "kind_signaling_nan", "field_less", "field_more", "error_of", "terms_harmonic", "terms_alternating",
                    "products", "element_text"}  # fmt: skip
    for word in ("尾数", "指数", "次正规数", "舍入", "上溢", "下溢", "吞没", "粘滞位", "对阶", "规格化"):
        assert word in STRINGS
    for wrong in ("亚正常", "非正规化", "四舍五入", "溢流", "小数部分位", "浮动点", "尾随"):
        assert wrong not in STRINGS


def test_every_text_is_used_and_known():
    found = set(texts())
    used = set(re.findall(r"\bT\(\"(\w+)\"", SCRIPT))
    assert used <= found
    families = re.compile("special_|kind_|step_|say_|position_|row_|terms_|order_|example_|data_|task_|.*_help$")
    words = set(re.findall(r"\w+", SCRIPT)) | {*page_data()["roundings"], *page_data()["overflows"]}
    arithmetic = set(re.findall(r"\w+", (FOLDER / "arithmetic.js").read_text(encoding="utf-8")))
    assert not {key for key in found - words - arithmetic if not families.match(key)}


@pytest.mark.parametrize("extra", [[], ["--language", "zh", "--theme", "dark"]])
def test_command(run, tmp_path, extra):
    file = tmp_path / "explorer.html"
    code, out, err = run("explorer", "--out", file, *extra)
    assert (code, err) == (0, "")
    assert f"page: {file}" in out
    assert file.read_text(encoding="utf-8") == page_html(*extra[1::2])


def test_command_in_json(run, tmp_path):
    code, out, _ = run("explorer", "--out", tmp_path / "e.html", "--json")
    assert code == 0
    assert json.loads(out) == {"page": str(tmp_path / "e.html"), "bytes": (tmp_path / "e.html").stat().st_size}


@pytest.mark.parametrize(("arguments", "message"), [
    (["--language", "fr"], "language='fr' is not known; known are en, zh"),
    (["--theme", "blue"], "theme='blue' is not known; known are auto, light, dark, projector"),
    (["--out", "no/such/folder/e.html"], "cannot be written: No such file or directory"),
])  # fmt: skip
def test_bad_input_of_the_command(run, arguments, message):
    code, out, err = run("explorer", *arguments)
    assert (code, out) == (2, "")
    assert message in err


def test_widget(tmp_path):
    widget = fs.explorer("sums", n=100, language="zh", height=400)
    frame = widget._repr_html_()
    assert frame.startswith("<iframe ")
    assert "height:400px" in frame
    assert '"s": "sums", "n": "100"' in widget.html
    assert "<script" not in frame  # the page is escaped
    widget.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == widget.html
    assert set(SECTIONS) <= set(re.findall(r"\w+", SCRIPT))
    assert all(re.search(rf"\bstate\.{name}\b|\"{name}\"|\b{name}:", SCRIPT) for name in STATE)


@pytest.mark.parametrize(("arguments", "message"), [
    ({"section": "bit"}, "section='bit' is not known; did you mean 'bits'"),
    ({"language": "de"}, "language='de' is not known"),
    ({"theme": "drak"}, "did you mean 'dark'"), ({"height": 100}, "height must be an integer of at least 200 pixels"),
    ({"height": True}, "height must be an integer"),
])  # fmt: skip
def test_bad_arguments_of_the_widget(arguments, message):
    with pytest.raises(ValueError, match=message):
        fs.explorer(**arguments)


def test_unknown_state_of_the_widget():
    with pytest.raises(TypeError, match="explorer: unknown keyword 'fmt'; did you mean 'ftz'"):
        fs.explorer("bits", fmt="FP16")
