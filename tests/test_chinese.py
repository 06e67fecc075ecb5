"""The Chinese pages and notebooks: equal to the English ones in code, headings and links, and in the right terms.

docs/zh/terms.tsv is the one source of the Chinese terms, and docs/zh/wrong-terms.tsv of the words that a machine
translates them to. docs/zh/glossary.md is made of both: `python tests/test_chinese.py` writes it.

Comments in the code of a page may be translated: they are not compared. All other code, and its output, is equal.
"""

from __future__ import annotations

import ast
import csv
import functools
import io
import re
import tokenize
from collections import Counter
from pathlib import Path

import pytest

from tests import test_docs as english
from tests.explorer.test_files import texts as explorer_texts

ROOT = english.ROOT
CHINESE = ROOT / "docs" / "zh"
GLOSSARY = CHINESE / "glossary.md"
PAGES = sorted(CHINESE.glob("*.md"))
TRANSLATED = [path for path in PAGES if path != GLOSSARY]
NOTEBOOKS = sorted((ROOT / "notebooks" / "zh").glob("[0-9][0-9]_*.py"))

each_page = pytest.mark.parametrize("page", TRANSLATED, **english.NAMED)
each_text = pytest.mark.parametrize("page", [*TRANSLATED, *NOTEBOOKS], **english.NAMED)


def original(path: Path) -> Path:
    """The English file of a Chinese one; other files are their own."""
    if path == CHINESE / "README.md":
        return ROOT / "README.md"
    return path.parent.parent / path.name if path.parent.name == "zh" else path


@functools.cache
def rows(name: str) -> tuple[tuple[str, ...], ...]:
    """The rows of a table of docs/zh, without its head."""
    with (CHINESE / name).open(encoding="utf-8", newline="") as file:
        found = [tuple(row) for row in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]
    return tuple(found[1:])


# -- the glossary --------------------------------------------------------------------------------------------------


def fragment(heading: str) -> str:
    return heading.lower().replace(" ", "-")


SECTIONS = {
    "Numbers and formats": "数与格式", "Rounding": "舍入", "Sums": "求和", "Matrix units": "矩阵单元",
    "Training": "训练", "Implementation": "实现",
}  # fmt: skip
INTRODUCTION = """# 术语表

每个英文术语只用一个中文词。精确的规则见[约定](conventions.md)与[求和](../sums.md)，较详细的英文解释见
[glossary](../glossary.md)。本页由 `terms.tsv` 和 `wrong-terms.tsv` 生成：`python tests/test_chinese.py`。
"""
AVOIDED = """## 不用的词

下列译法多出自机器翻译，或者一词多义。测试在中文页面和 notebook 中发现它们就会失败。

| 不用 | 改用 | 理由 |
| --- | --- | --- |
"""


def shown(pattern: str) -> str:
    """The words that a pattern of docs/zh/wrong-terms.tsv stands for, without its conditions."""
    return "、".join(re.sub(r"\(\?<?[!=][^)]*\)|\{[^}]*\}|[?.]", "", word) for word in alternatives(pattern))


def alternatives(pattern: str) -> list[str]:
    """The alternatives of a pattern, divided at each | outside parentheses."""
    return re.split(r"\|(?![^()]*\))", pattern)


def glossary_text() -> str:
    """The page docs/zh/glossary.md."""
    chinese = {head: (word, text) for head, word, text in rows("terms.tsv")}
    page = [INTRODUCTION]
    for section in re.split("^## ", english.GLOSSARY.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        title, _, rest = section.partition("\n")
        page += [f"## {SECTIONS[title]}\n", "| 中文 | English | 说明 |", "| --- | --- | --- |"]
        for head in re.findall("^### (.*)$", rest, re.MULTILINE):
            word, text = chinese[head]
            link = f"[{head}](../glossary.md#{fragment(head)})"
            page.append(f'| <a id="{fragment(head)}"></a>**{word}** | {link} | {text} |')
        page.append("")
    lines = [f"| {shown(wrong)} | {right} | {reason} |" for wrong, right, reason in rows("wrong-terms.tsv")]
    return "\n".join([*page, AVOIDED + "\n".join(lines)]) + "\n"


def test_the_glossary_is_made_of_the_tables():
    assert glossary_text() == GLOSSARY.read_text(encoding="utf-8"), "run `python tests/test_chinese.py`"


def test_each_term_has_one_row_in_the_order_of_the_english_glossary():
    heads = re.findall("^### (.*)$", english.GLOSSARY.read_text(encoding="utf-8"), re.MULTILINE)
    assert [head for head, _, _ in rows("terms.tsv")] == heads
    words = Counter(word for _, word, _ in rows("terms.tsv"))
    assert {word: n for word, n in words.items() if n > 1} == {}, "one word per concept"


def anchors(path: Path) -> set[str]:
    """The fragments of a page: its headings, and the rows of the glossary."""
    return english.anchors(path) | set(re.findall(r'<a id="([^"]+)"', path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("page", PAGES, **english.NAMED)
def test_links(page):
    for target, name in english.links(page):
        assert target.exists(), f"{page.name} links to {target}"
        assert not name or name in anchors(target), f"{page.name} links to {target.name}#{name}, which is no heading"


# -- the tables of the README --------------------------------------------------------------------------------------

README = CHINESE / "README.md"
TABLES = ("notebooks", "formats", "accumulations")
BEGIN = "<!-- {}: begin (python tests/test_chinese.py) -->"


def between(text: str, begin: str, end: str) -> str:
    return text.partition(begin)[2].partition(end)[0].strip()


def chinese_table(name: str) -> str:
    """A generated table of README.md with the texts of docs/zh/cells.tsv. A text that it lacks stays English."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    text = between(text, english.BEGIN.format(name), english.END.format(name))
    words = dict(rows("cells.tsv"))
    cells = [[words.get(cell, cell) for cell in line[2:-2].split(" | ")] for line in text.split("\n")]
    return re.sub(r"\[(\d+\. )?([^\]]*)\]\(([^)]*)\)", functools.partial(_moved, words), english.table(cells))


def _moved(words: dict[str, str], link: re.Match[str]) -> str:
    """A link to a notebook or its picture, to the Chinese one where there is one."""
    target = ROOT / link[3]
    other = target.parent / "zh" / target.name
    path = (other if other.exists() else target).relative_to(ROOT)
    text = (link[1] or "") + words.get(link[2], link[2])
    return f"[{text}](../{path.relative_to('docs')})" if path.parts[0] == "docs" else f"[{text}](../../{path})"


def with_tables(text: str) -> str:
    """The Chinese README with its tables."""
    for name in TABLES:
        begin, end = BEGIN.format(name), english.END.format(name)
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}\n{chinese_table(name)}\n{end}{rest.partition(end)[2]}"
    return text


def test_tables_of_the_readme():
    text = README.read_text(encoding="utf-8")
    assert with_tables(text) == text, "run `python tests/test_chinese.py`"


@each_text
def test_links_lead_to_chinese_pages_where_there_are_some(page):
    """Only the README's first line leads to the English page of the same content."""
    chinese = {original(path) for path in [*TRANSLATED, GLOSSARY]}
    chinese |= {original(path).with_suffix(".ipynb") for path in NOTEBOOKS}
    shortened = {"speed"}  # the section of the README whose table is not repeated
    wrong = {
        target.relative_to(ROOT).as_posix()
        for target, name in english.links(page)
        if target in chinese and target != original(page) and name not in shortened
    }
    assert not wrong


# -- equal to the English pages ------------------------------------------------------------------------------------


def without_comments(code: str) -> str:
    """Python code, or examples with prompts and their output, without comments.

    >>> without_comments(">>> 1 + 1  # two\\n2\\n")
    '>>> 1 + 1\\n2'
    >>> without_comments('print("# no comment")  # one')
    'print("# no comment")'
    """
    return "\n".join(_without_comment(line) for line in code.rstrip("\n").split("\n"))


def _without_comment(line: str) -> str:
    prompt = re.match(r"(>>> |\.\.\. )?", line)[0]
    try:
        for token in tokenize.generate_tokens(io.StringIO(line[len(prompt) :]).readline):
            if token.type == tokenize.COMMENT:
                return (prompt + line[len(prompt) :][: token.start[1]]).rstrip()
    except (tokenize.TokenError, IndentationError):
        pass  # a line of a longer statement, or of the output
    return line


def code_blocks(path: Path) -> list[tuple[str, str]]:
    """(language, code without comments) of each fenced block."""
    found = english.FENCE.finditer(english.text_of(path))
    return [
        (m[1] + m[2], without_comments(m[3]) if m[1] == "python" else re.sub(" *# .*$", "", m[3], flags=re.MULTILINE))
        for m in found
    ]


def tables(text: str) -> list[str]:
    """The generated tables of a page, without the texts of their head."""
    return re.findall(r"<!-- (\w+): begin", text)


@each_text
def test_code_blocks_are_equal(page):
    assert code_blocks(page) == code_blocks(original(page)), "`python tests/test_chinese.py` copies the code of pages"


def sections(path: Path) -> list[tuple[str, str]]:
    """(heading with its marks, text) of each section; the text before the first heading belongs to it."""
    text = english.FENCE.sub("", english.text_of(path))
    parts = re.split(r"^(#+ .*)$", text, flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2], strict=True))


def signature(heading: str) -> tuple[int, list[str]]:
    """The level of a heading, and the words that both languages share: numbers, code and names such as FP32."""
    marks, _, words = heading.partition(" ")
    shared = re.findall(r"(?<![\w.])(?:\d[\d.+]*|[A-Z]*\d[A-Z\d]*|`[^`]*`)(?!\w)", words)
    return len(marks), sorted(word.rstrip(".") for word in shared)


@each_text
def test_headings_are_in_the_same_order(page):
    mine, theirs = ([signature(head) for head, _ in sections(path)] for path in (page, original(page)))
    assert mine == theirs


def place(path: Path, name: str) -> int | str:
    """The number of the heading with this fragment; fragments of the glossary stay as they are."""
    if not name or path.name == "glossary.md":
        return name
    heads = [head for head, _ in sections(path)]
    plain = [re.sub(r"[^\w\- ]", "", english.LINK.sub("", head.lstrip("# ")).lower()) for head in heads]
    slugs = [words.replace(" ", "-") for words in plain]
    if path.suffix == ".py":  # Jupyter keeps the punctuation
        slugs = [head.lstrip("# ").replace(" ", "-") for head in heads]
    return slugs.index(name) if name in slugs else name


ONLY_CHINESE = {(ROOT / "docs" / "glossary.md", "")}  # "see the glossary" may be repeated
NOT_REPEATED = {ROOT / "docs" / "pictures"}


def targets(path: Path, text: str) -> set[tuple[Path, int | str]]:
    """(English file, place in it) of each link of a text."""
    found = set()
    for target in english.LINK.findall(text):
        if re.match("[a-z]+:", target):
            found.add((Path(target), ""))
            continue
        name, _, name_in = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        english_file = original(file)
        if "pictures" in file.parts:
            english_file = ROOT / "docs" / "pictures" / file.name
        found.add((english_file, place(file, name_in)))
    return found


@each_text
def test_each_section_has_the_links_of_the_english_one(page):
    """So no paragraph with a link is left out, and each term leads to the glossary where the English page does."""
    for (head, mine), (_, theirs) in zip(sections(page), sections(original(page)), strict=True):
        missing = targets(original(page), theirs) - targets(page, mine)
        missing -= {(CHINESE / "README.md", ""), (page, "")}
        assert not missing, f"{page.name}, {head}: no link to {sorted(map(str, missing))}"


@each_page
def test_tables_have_as_many_rows(page):
    for (head, mine), (_, theirs) in zip(sections(page), sections(original(page)), strict=True):
        count, wanted = (len(re.findall(r"^\|", text, re.MULTILINE)) for text in (mine, theirs))
        assert count == wanted or head in SHORTENED, f"{page.name}, {head}"


SHORTENED = {"## 速度"}  # the table of measured times is on the English page only


def with_code(page: Path) -> str:
    """The text of a page, in which each block whose code differs is replaced by the English one."""
    text, found = (
        page.read_text(encoding="utf-8"),
        [m[0] for m in english.FENCE.finditer(original(page).read_text("utf-8"))],
    )
    equal = [a == b for a, b in zip(code_blocks(page), code_blocks(original(page)), strict=True)]
    blocks = iter(zip(equal, found, strict=True))

    def kept(block: re.Match[str]) -> str:
        same, theirs = next(blocks)
        return block[0] if same else theirs

    return english.FENCE.sub(kept, text)


# -- the code of notebooks -----------------------------------------------------------------------------------------

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


@each_notebook
def test_the_code_of_a_notebook_is_the_english_code_with_translated_texts(path):
    pytest.importorskip("jupytext")
    from notebooks import run, translate

    mine, merged = run.jupytext.read(path), translate.merged(path)
    assert [cell.source for cell in mine.cells] == [cell.source for cell in merged.cells], (
        f"`python notebooks/run.py --update zh/{path.stem}` writes the code of the English notebook"
    )
    english_code = translate.original(path).read_text(encoding="utf-8")
    unused = [text for text, _ in translate.strings(path.stem) if text not in english_code]
    assert not unused, "these texts of notebooks/zh/strings.tsv are not in the English notebook"
    assert sum(translate.is_language(cell) for cell in mine.cells) == 1


@each_notebook
def test_leads_to_the_next_notebook(path):
    """With the title of the table in README.md, and to the Chinese notebook if there is one."""
    sources = sorted(original(path).parent.glob("[0-9][0-9]_*.py"))
    following = sources[sources.index(original(path)) + 1]
    number, question = re.search(r"^# # (\d+\. )(.*)$", following.read_text("utf-8"), re.MULTILINE).groups()
    title = number + dict(rows("cells.tsv"))[question]
    chinese = path.parent / following.name in NOTEBOOKS
    link = f"[{title}]({following.stem}.ipynb)" if chinese else f"[{title}](../{following.stem}.ipynb)（英文）"
    assert re.findall("^# 下一个：(.*)$", path.read_text("utf-8"), re.MULTILINE) == [link]


def skeleton(code: str) -> tuple[str, Counter[str]]:
    """Code with one placeholder for each text that is shown, and the expressions in these texts."""
    tree, inner = ast.parse(code), Counter[str]()

    class Hide(ast.NodeTransformer):
        def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
            parts = [ast.unparse(ast.JoinedStr([part])) for part in node.values if isinstance(part, ast.FormattedValue)]
            inner.update(re.sub(r"'[^']*'", "''", part) for part in parts)
            return ast.Constant("text")

        def visit_Constant(self, node: ast.Constant) -> ast.AST:
            return ast.Constant("text") if isinstance(node.value, str) else node

    return ast.unparse(Hide().visit(tree)), inner


@each_notebook
def test_the_translated_texts_change_no_code(path):
    """Apart from texts, the code is equal, and each expression in a text is there."""
    jupytext = pytest.importorskip("jupytext")
    from notebooks import translate

    def codes(cells):
        return [cell.source for cell in cells if cell.cell_type == "code" and not translate.is_language(cell)]

    pairs = zip(*(codes(jupytext.read(each).cells) for each in (path, translate.original(path))), strict=True)
    for chinese, english_code in pairs:
        assert skeleton(chinese) == skeleton(english_code)
    for text, words in translate.strings(path.stem):
        assert re.search("[\u4e00-\u9fff\uff00-\uffef]", words), f"{text} is not translated"
        assert re.search(r"[A-Za-z]{2}", text), text


def numbers(text: str) -> list[str]:
    """The numbers of a text. One digit is left out: a language may write "two", or the power of 2, as a word."""
    found = re.findall(r"\d(?:[\d.,]*\d)?(?:e[-+]\d+)?", text)
    return [number for number in found if len(number) > 1]


@each_notebook
def test_outputs_are_those_of_the_english_notebook(path):
    """Cells without a translated text print the same text, all others the same numbers."""
    pytest.importorskip("jupytext")
    from notebooks import run, translate

    notebooks = [
        run.nbformat.read(each.with_suffix(".ipynb"), as_version=4) for each in (path, translate.original(path))
    ]
    mine, theirs = (
        [c for c in each.cells if c.cell_type == "code" and not translate.is_language(c)] for each in notebooks
    )
    for chinese, english_cell in zip(mine, theirs, strict=True):
        printed, wanted = (
            "".join(text for texts in run.texts(run.nbformat.v4.new_notebook(cells=[cell])) for text in texts)
            for cell in (chinese, english_cell)
        )
        if chinese.source == english_cell.source:
            assert printed == wanted
        else:
            assert Counter(numbers(printed)) == Counter(numbers(wanted))


# -- words -----------------------------------------------------------------------------------------------------------


def prose(path: Path) -> str:
    """The text of a page without code, commands and the addresses of links."""
    text = english.FENCE.sub("", english.text_of(path))
    return re.sub(r"`[^`]*`|(?<=\])\([^)]*\)|<[^>]*>", "", text)


def wrong_words(text: str) -> list[str]:
    """The words of the text that docs/zh/wrong-terms.tsv refuses, each with the right term."""
    return [
        f"{found[0]}: {right} ({reason})"
        for pattern, right, reason in rows("wrong-terms.tsv")
        for found in re.finditer(pattern, text)
    ]


@each_text
def test_no_term_is_a_machine_translation(page):
    assert not wrong_words(prose(page))


def test_the_explorer_has_no_machine_translation():
    for key, (_, text) in explorer_texts().items():
        assert not wrong_words(text), key


def test_the_terms_of_the_glossary_are_not_refused():
    for head, word, text in rows("terms.tsv"):
        assert not wrong_words(word), head
        assert not wrong_words(re.sub("中文旧称非规格化数", "", text)), head
    for _, right, reason in rows("wrong-terms.tsv"):
        assert not wrong_words(right), reason


@pytest.mark.parametrize("pattern", [pattern for pattern, _, _ in rows("wrong-terms.tsv")])
def test_each_refused_word_is_found(pattern):
    for word in shown(pattern).split("、"):
        assert wrong_words(f"这个{word}。"), word


@pytest.mark.parametrize("text", [
    "结果上溢，得到无穷。", "普通数组", "一次就近舍入，中点取偶", "有效数字", "两个误差相互抵消", "正常数据",
    "旧称非规格化数的次正规数", "核对",
])  # fmt: skip
def test_right_words_are_not_refused(text):
    assert not wrong_words(text)


HAN = r"\u4e00-\u9fff"


@each_text
def test_punctuation_is_chinese(page):
    """Commas, colons and brackets beside Chinese are full-width, and a space divides Chinese from Latin words."""
    text = prose(page)
    half_width = re.findall(rf"[{HAN}][,;:?!]|[{HAN}]\.(?!\w)|[{HAN}]\([^\])]*[{HAN}]", text)
    assert not half_width
    assert not re.findall(r"\d %", text)
    plain = re.sub(r"[*_\[\]]", "", text)
    assert not re.findall(rf"[{HAN}][A-Za-z0-9]+|[A-Za-z0-9]+[{HAN}]", plain)


if __name__ == "__main__":
    for each in TRANSLATED:
        each.write_text(with_code(each), encoding="utf-8")
    GLOSSARY.write_text(glossary_text(), encoding="utf-8")
    README.write_text(with_tables(README.read_text(encoding="utf-8")), encoding="utf-8")
