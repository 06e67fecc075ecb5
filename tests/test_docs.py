"""The documentation is true: its Python runs, its commands print what it shows, its links lead somewhere.

Every ```python block of a page is executed, in order, in one namespace a page; where a block is written with
`>>>`, the output shown is compared (doctest). Of the ```console blocks, each line `$ floatsim ...` is run; where
output is shown below it, that is compared too. `python tests/test_docs.py` rewrites the README's table of formats.
"""

from __future__ import annotations

import doctest
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import floatsim as fs

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]

FENCE = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
BEGIN, END = "<!-- formats: begin (python tests/test_docs.py) -->", "<!-- formats: end -->"

page = pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())


def blocks(path: Path, language: str) -> list[tuple[int, str]]:
    """(number of the block's first line, its text) of each fenced block in that language."""
    text = path.read_text(encoding="utf-8")
    return [(text.count("\n", 0, m.start(2)) + 1, m[2]) for m in FENCE.finditer(text) if m[1] == language]


@page
def test_python(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": f"docs_{page.stem}"}
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    for line, text in blocks(page, "python"):
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
        assert strip == shown


@page
def test_links(page):
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if not re.match(r"[a-z]+:|#", target):
            assert (page.parent / target.partition("#")[0]).exists(), f"{page.name} links to {target}"


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
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def test_table_of_formats():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    table = text.partition(BEGIN)[2].partition(END)[0].strip()
    assert table == formats_table(), "run `python tests/test_docs.py` to rewrite the table"


if __name__ == "__main__":
    readme = ROOT / "README.md"
    before, _, rest = readme.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    readme.write_text(f"{before}{BEGIN}\n{formats_table()}\n{END}{after}", encoding="utf-8")
