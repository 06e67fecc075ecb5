"""Test the documentation: run its Python, compare the output of its commands, resolve its links.

Every ```python block of a page is executed, in order, in one namespace a page; where a block is written with
`>>>`, the output shown is compared (doctest). A block "```python torch" is executed where torch is installed. Of the
```console blocks, each line `$ floatsim ...` is run; where output is shown below it, that is compared too; "..."
stands for any text of its line. `python tests/test_docs.py` rewrites the README's tables.
"""

from __future__ import annotations

import dataclasses
import doctest
import functools
import itertools
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import floatsim as fs
from floatsim import accumulation
from floatsim.hardware.compile.runtime import why_unavailable
from tests.marks import cases

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.py"))
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "notebooks/README.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]

FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
BEGIN, END = "<!-- {}: begin (python tests/test_docs.py) -->", "<!-- {}: end -->"

NAMED = {"ids": lambda path: path.relative_to(ROOT).as_posix()}
QUICK_PAGES = [ROOT / name for name in ("README.md", "docs/formats.md", "docs/interop.md")]
page = pytest.mark.parametrize("page", PAGES, **NAMED)


def blocks(path: Path, language: str, libraries: str = "") -> list[tuple[int, str]]:
    """(number of the block's first line, its text) of each fenced block in that language.

    A block that needs libraries names them after the language; it is left out unless they are among `libraries`.
    """
    text, here = path.read_text(encoding="utf-8"), set(libraries.split())
    return [
        (text.count("\n", 0, m.start(3)) + 1, m[3])
        for m in FENCE.finditer(text)
        if m[1] == language and set(m[2].split()) <= here
    ]


LIBRARIES = sorted(
    {(path, m[2].strip()) for path in PAGES for m in FENCE.finditer(path.read_text(encoding="utf-8")) if m[2].strip()}
)


@pytest.mark.parametrize("page", cases(quick=QUICK_PAGES, full=PAGES), **NAMED)
def test_python(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_blocks(page)


@pytest.mark.parametrize(
    ("page", "libraries"), [pytest.param(page, names, id=f"{page.stem}-{names}") for page, names in LIBRARIES]
)
def test_python_with_libraries(page, libraries, tmp_path, monkeypatch):
    for library in libraries.split():
        if library == "cupy" and (missing := why_unavailable()):
            assert os.environ.get("FLOATSIM_REQUIRE_GPU", "0") in ("", "0"), missing
            pytest.skip(missing)
        pytest.importorskip(library, reason=f"{page.name} has examples for {library}")
    if "triton" in libraries.split() and os.environ.get("TRITON_INTERPRET") != "1":
        run_in_interpreter(page, libraries)
        return
    monkeypatch.chdir(tmp_path)
    run_blocks(page, libraries)


def run_in_interpreter(page: Path, libraries: str) -> None:
    """Run the Python of a page in a process in which Triton's first import finds TRITON_INTERPRET=1."""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "kernels"), str(ROOT / "tests")])
    code = f"from pathlib import Path; import test_docs; test_docs.run_blocks(Path({str(page)!r}), {libraries!r})"
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": paths}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def run_blocks(page: Path, libraries: str = "") -> None:
    """Run the Python of a page."""
    namespace = {"__name__": f"docs_{page.stem}"}
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    for line, text in blocks(page, "python", libraries):
        if text.lstrip().startswith(">>>"):
            report: list[str] = []
            test = doctest.DocTestParser().get_doctest(text, namespace, page.name, str(page), line - 1)
            runner.run(test, out=report.append, clear_globs=False)
            assert not report, "".join(report)
            namespace |= test.globs
        else:
            exec(compile("\n" * (line - 1) + text, str(page), "exec"), namespace)


def console(path: Path) -> list[tuple[int, str, str]]:
    """(line, command, output shown) of each `$ floatsim ...` in the page's console blocks."""
    found = []
    for line, text in blocks(path, "console"):
        for m in re.finditer(r"^\$ (floatsim .*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE):
            found.append((line + text.count("\n", 0, m.start()), m[1], m[2].rstrip()))
    return found


@pytest.mark.full
@pytest.mark.parametrize(
    ("command", "shown"),
    [
        pytest.param(command, shown, id=f"{p.relative_to(ROOT).as_posix()}:{line}")
        for p in PAGES
        for line, command, shown in console(p)
    ],
)
def test_console(command, shown, tmp_path):
    environment = os.environ | {"COLUMNS": "110", "NO_COLOR": "1", "PYTHONUTF8": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "kernels")])
    done = subprocess.run(
        [sys.executable, "-m", *shlex.split(command)],
        capture_output=True, encoding="utf-8", env=environment, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    if shown:
        strip = "\n".join(text.rstrip() for text in done.stdout.splitlines()).strip("\n")
        pattern = re.escape(shown).replace(re.escape("..."), "[^\n]*")  # "..." stands for a folder
        assert re.fullmatch(pattern, strip), strip


def anchors(path: Path) -> set[str]:
    """The fragments that GitHub makes of a page's headings."""
    prose = FENCE.sub("", path.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.*)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", LINK.sub("", heading).lower()).replace(" ", "-") for heading in headings}


def text_of(path: Path) -> str:
    """The text of a page, or of the text cells of a notebook's source."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return text
    cells = [cell.partition("\n") for cell in re.split("^# %%", text, flags=re.MULTILINE)]
    return "\n".join(re.sub("^# ?", "", body, flags=re.MULTILINE) for head, _, body in cells if "[markdown]" in head)


def links(path: Path) -> set[tuple[Path, str]]:
    """(file, fragment) of each link of a page that leads to a file of the project."""
    targets = [target for target in LINK.findall(text_of(path)) if not re.match("[a-z]+:", target)]
    split = [target.partition("#") for target in targets]
    return {((path.parent / name).resolve() if name else path, fragment) for name, _, fragment in split}


@page
def test_links(page):
    for target, fragment in links(page):
        assert target.exists(), f"{page.name} links to {target}"
        if fragment:
            assert fragment in anchors(target), f"{page.name} links to {target.name}#{fragment}, which is no heading"


GLOSSARY = ROOT / "docs" / "glossary.md"


def entries() -> dict[str, str]:
    """The text of each entry of the glossary, by its fragment."""
    text = GLOSSARY.read_text(encoding="utf-8")
    found = re.findall(r"^### (.*)\n((?:(?!#).*\n)*)", text, re.MULTILINE)
    return {head.lower().replace(" ", "-"): body.strip() for head, body in found}


# The forms of a term on the pages, where they are more than the words of its heading and their plural.
FORMS = {
    "code": "(?<!exit )codes", "precision": "(?<!single )(?<!double )precision", "emin-and-emax": "emin|emax",
    "infinity": "infinit(y|ies)", "ties": "ties?", "round-to-odd": "to odd", "stochastic-rounding": "stochastic(ally)?",
    "overflow": "overflow(s|ed|ing)?", "saturation": "saturat(es?|ed|ing|ion)", "underflow": "underflow(s|ed|ing)?",
    "flush-to-zero": "flush(es|ed|ing)?( to zero)?|FTZ", "exception-flag": "(exception )?flags?",
    "clamping": "clamp(s|ed|ing)?", "leaf-and-composite": "leaf|composites?", "absorption": "absorb(s|ed)|absorption",
    "cancellation": "cancel(s|led|lation)?", "fused-multiply-add": "fused multiply-adds?|FMA",
    "compensated-summation": "compensated( sum(mation)?s?)?", "alignment": "align(s|ed|ment)",
    "quantization": "quantiz(es?|ed|ing|ation)", "bail-out": "bails? out", "pack-and-unpack": "(un)?pack(s|ed|ing)?",
}  # fmt: skip
OTHER_MEANINGS = {  # pages whose first uses of a term's word mean another thing, such as a `with` block
    "block": "conventions formats gpu-libraries how-to sums triton 03_ends 04_orders",
    "alignment": "gpu-libraries",
    "bias": "02_rounding pytorch triton",
    "term": "emulation-schemes", "reference": "04_orders 05_tensor_cores", "saturation": "questions",
}  # fmt: skip
OTHER_PHRASES = {  # words that mean another thing than the term on every page: they are no first uses, and never links
    "bias": "(no|an?|weight and) bias", "term": "lowest terms", "tile": "(to use|AMX) tiles?",
    "cancellation": "(the errors|of both signs( partly)?) cancel", "block": "(`?fs.context`?|`?with`?|code) block",
    "reference": "integer arithmetic as its reference|from a reference that adds in FP32",
}  # fmt: skip
NOT_PROSE = re.compile(
    r"^```.*?^```$|^\|[^\n]*$|^#[^\n]*$|^<!-- (\w+): begin.*?<!-- \1: end -->"  # code, tables, headings
    r"|`[^`]*`|!?\[(?:[^\]`]|`[^`]*`)*\]\([^)]*\)",
    re.MULTILINE | re.DOTALL,
)


@functools.cache
def prose_of(path: Path) -> str:
    """The text of a page, in which spaces replace everything that is not prose."""
    return NOT_PROSE.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text_of(path))


def phrases(fragment: str) -> str:
    """A regular expression of the phrases in which a term's word means another thing, also over the end of a line."""
    return rf"(?<![\w-])(?:{OTHER_PHRASES[fragment]})(?![\w-])".replace(" ", r"\s+")


def wrong_links(text: str) -> list[str]:
    """The links to the glossary inside phrases that mean another thing."""
    found = []
    for fragment in OTHER_PHRASES:
        plain, ends, last = "", [], 0
        for link in re.finditer(r"\[([^\]]*)\]\([^)#]*(#[\w-]+)?\)", text):
            plain += text[last : link.start()] + link[1]
            last = link.end()
            if link[2] == f"#{fragment}":
                ends.append(len(plain))
        plain += text[last:]
        uses = re.finditer(phrases(fragment), plain, re.IGNORECASE)
        found += [use[0] for use in uses if any(use.start() < end <= use.end() for end in ends)]
    return found


def first_use(path: Path, fragment: str) -> re.Match[str] | None:
    """Where the prose of a page has a term of the glossary for the first time; links are not counted."""
    prose = prose_of(path)
    if fragment in OTHER_PHRASES:
        prose = re.sub(phrases(fragment), lambda m: re.sub(r"[^\n]", " ", m[0]), prose, flags=re.IGNORECASE)
    form = FORMS.get(fragment, fragment.replace("-", "[ -]") + "s?")
    return re.search(rf"(?<![\w-])(?:{form})(?![\w-])", prose, re.IGNORECASE)


EXPLAINING = [ROOT / "README.md", *sorted({*(ROOT / "docs").glob("*.md")} - {GLOSSARY}), *NOTEBOOKS]


@pytest.mark.parametrize("page", EXPLAINING, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_first_uses_lead_to_the_glossary(page):
    """A page or notebook links each term of the glossary that its text uses, where it has the term first."""
    assert {fragment for target, fragment in links(page) if target == GLOSSARY} <= {"", *anchors(GLOSSARY)}
    assert not wrong_links(text_of(page)), "these words mean another thing than the term of the glossary"
    unlinked = []
    for fragment in entries():
        use, link = first_use(page, fragment), re.search(rf"glossary\.md#{fragment}\)", text_of(page))
        other = page.stem in OTHER_MEANINGS.get(fragment, "").split()
        if use and not other and not (link and link.start() < use.start()):
            unlinked.append((fragment, use.string[max(0, use.start() - 40) : use.end() + 20]))
    assert not unlinked, f"{page.name} does not link to the glossary where it first has {unlinked}"


@pytest.mark.parametrize(("text", "wrong"), [
    ("In lowest [terms](../docs/glossary.md#term), a", ["lowest terms"]), ("lowest\n[terms](glossary.md#term).", None),
    ("the errors\n[cancel](glossary.md#cancellation)", None), ("an [bias](glossary.md#bias)", ["an bias"]),
    ("In lowest terms; each [term](glossary.md#term)", []), ("[lowest terms](formats.md#terms)", []),
    ("the terms [cancel](glossary.md#cancellation)", []),
])  # fmt: skip
def test_links_of_words_that_mean_another_thing(text, wrong):
    """A link inside such a phrase is found, also over the end of a line; links of the term are not."""
    assert wrong_links(text) == wrong if wrong is not None else len(wrong_links(text)) == 1


@pytest.mark.parametrize("fragment", entries())
def test_glossary(fragment):
    """The entry is short, and another page links to it."""
    assert 40 < len(LINK.sub("", entries()[fragment])) < 400
    assert any((GLOSSARY, fragment) in links(path) for path in EXPLAINING)


def test_every_page_is_in_the_index():
    listed = set(LINK.findall((ROOT / "docs" / "README.md").read_text(encoding="utf-8")))
    assert listed >= {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}


def formats_table() -> str:
    head = ["format", "bits", "layout", "exponents", "max", "smallest normal", "smallest subnormal", "eps",
            "infinity", "NaN", "NumPy or ml_dtypes"]  # fmt: skip
    rows = [head, ["---"] * len(head)]
    for fmt in fs.named_formats():
        rows.append([
            f"`{fmt.name}`", str(fmt.bits), f"{int(fmt.signed)}+{fmt.exponent_bits}+{fmt.trailing_bits}",
            f"{fmt.emin} to {fmt.emax}", f"{fmt.max:.7g}", f"{fmt.smallest_normal:.7g}",
            f"{fmt.smallest_subnormal:.7g}" if fmt.has_subnormals else "none", f"{fmt.eps:.7g}",
            "yes" if fmt.has_infinity else "no", "yes" if fmt.has_nan else "no",
            f"`{fmt.dtype.name}`" if fmt.dtype else "none",
        ])  # fmt: skip
    return table(rows)


# Text form and definition. The table computes its other columns.
ACCUMULATIONS = {
    "bf16": "one accumulator, k ascending, each product rounded; short for `sequential(bf16)`",
    "sequential(bf16, fused)": "a chain of fused multiply-adds",
    "pairwise(bf16)": "a tree: neighbours, then their sums; other trees are `halving` and `numpy`",
    "kahan(bf16)": "compensated: the error of each addition is subtracted from the next term",
    "neumaier(bf16)": "compensated, also where the term is larger than the sum",
    "strided(bf16, 32)": "32 lanes, each sums every 32nd term; then a tree",
    "blocked(bf16, 128, fp32)": "blocks of 128 terms; their results are added in FP32",
    "splitk(4, bf16, fp32)": "four parts of K; their results are added in FP32",
    "strided(bf16, 4, tree(bf16, ((0, 2), (1, 3))))": "a tree given term by term, here of the results of four lanes",
    "permuted(reversed, bf16)": "the terms in another order, here the last first",
    "exact(bf16)": "the exact sum, rounded once",
    "fp32": "one FP32 accumulator: the default (for FP64 inputs `fp64`)",
    "hopper": "the sum of Hopper's matrix unit; short for `tensorcore(hopper)`",
    "blocked(volta, 128, fp32)": "blocks of 128 terms on Volta's matrix unit, added in FP32",
}


def accumulations_table() -> str:
    rng = np.random.default_rng(0)
    a, b = rng.random((16, 4096)).astype(np.float16), rng.random((4096, 16)).astype(np.float16)
    exact = fs.matmul(a, b, accumulate="exact(fp64)")
    ones = np.ones(1000, np.float16)
    rows = [["`accumulate=`", "definition", "1000 ones", "error"], ["---", "---", "---:", "---:"]]
    for text, what in ACCUMULATIONS.items():
        error = np.max(np.abs(fs.matmul(a, b, accumulate=text).astype(np.float64) - exact) / exact)
        rows.append([f"`{text}`", what, f"{fs.dot(ones, ones, accumulate=text).item():g}", f"{error:.1e}"])
    return table(rows)


def table(rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def notebooks_table() -> str:
    """Two a row: the question, which leads to the notebook, and its picture."""
    cells = []
    for path in NOTEBOOKS:
        question = re.search(r"^# # (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)[1]
        cells.append(
            (
                f"**[{question}](notebooks/{path.stem}.ipynb)**",
                f"![{question.partition('. ')[2]}](docs/pictures/{path.stem}.png)",
            )
        )
    pairs = itertools.zip_longest(cells[::2], cells[1::2], fillvalue=("", ""))
    rows = [list(cells) for pair in pairs for cells in zip(*pair, strict=True)]
    return table([rows[0], [":---:"] * 2, *rows[1:]])


TABLES = {"notebooks": notebooks_table, "formats": formats_table, "accumulations": accumulations_table}


@pytest.mark.parametrize("name", cases(quick=["notebooks", "formats"], full=TABLES))
def test_table_in_the_readme(name):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = text.partition(BEGIN.format(name))[2].partition(END.format(name))[0].strip()
    assert shown == TABLES[name](), "run `python tests/test_docs.py` to rewrite the tables"


def test_table_of_accumulations_has_every_kind():
    def kinds(each):
        parts = [getattr(each, field.name) for field in dataclasses.fields(each)]
        return {type(each)}.union(*(kinds(part) for part in parts if isinstance(part, accumulation.Accumulation)))

    shown = set().union(*(kinds(fs.as_accumulation(text)) for text in ACCUMULATIONS))
    public = {value for name in accumulation.__all__ if isinstance(value := getattr(accumulation, name), type)}
    # `Parts` is for one number of terms, and the table has two; docs/sums.md has the parts of GPU kernels
    others = {fs.Parts, fs.Converted, fs.Residue, fs.Tf32x3, fs.Epilogue, fs.Threads}
    no_sums = {fs.Welford, fs.Sklansky}
    page = (ROOT / "docs" / "sums.md").read_text(encoding="utf-8")
    assert all(f"`fs.{kind.__name__}(" in page for kind in others)
    assert shown | others | no_sums == {
        kind for kind in public if issubclass(kind, accumulation.Accumulation) and kind.__name__ in fs.__all__
    }


if __name__ == "__main__":
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    for name, make in TABLES.items():
        begin, end = BEGIN.format(name), END.format(name)
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}\n{make()}\n{end}{rest.partition(end)[2]}"
    readme.write_text(text, encoding="utf-8")
