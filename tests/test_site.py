"""The documentation site: every public name has an entry with an example, and links between the files are kept."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import re
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import floatsim as fs
from tools.site import api, check, hooks

ROOT = Path(__file__).parents[1]

MODULES = [name for name in fs.__all__ if isinstance(getattr(fs, name), types.ModuleType)]


def public_names() -> set[str]:
    """The paths of all public names: those of floatsim, of its public modules, and of packages with a library."""
    names = {f"fs.{name}" for name in fs.__all__ if name not in MODULES}
    for module in MODULES:
        listed = getattr(fs, module).__all__
        names |= {
            f"fs.{module}.{name}"
            for name in listed
            if not isinstance(getattr(getattr(fs, module), name), types.ModuleType)
        }
    for package in api.FROM_SOURCE:
        source = (ROOT / package.replace(".", "/") / "__init__.py").read_text(encoding="utf-8")
        listed = re.search(r"^__all__ = (\[.*?\])", source, re.M | re.S)
        names |= {f"{package}.{name}" for name in re.findall(r'"(\w+)"', listed[1])}
    return names


def test_every_public_name_is_on_a_page():
    paths = [entry.path for entry in api.entries()]
    assert set(paths) == public_names()
    assert len(paths) == len(set(paths))
    for page in api.PAGES:
        text = api.markdown(page)
        missing = [entry.path for entry in api.entries() if entry.page == page and f"{{ #{entry.path} }}" not in text]
        assert not missing


def test_every_name_has_a_signature_a_sentence_and_an_example():
    faults = []
    for entry in api.entries():
        needed = {
            "a signature": entry.kind == "data" or entry.signature.startswith(entry.name),
            "a sentence": re.search(r"\w.*[.:]", api.sentence(entry.doc)),
            "an example": re.search(r"^>>> ", entry.examples, re.MULTILINE),
        }
        faults += [f"{entry.path}.{each.name} has no sentence" for each in entry.members if not each.doc.strip()]
        faults += [f"{entry.path} has no {what.partition(' ')[2]}" for what, present in needed.items() if not present]
    assert not faults


def test_the_sentence_of_a_name_is_its_own():
    """Two names have the same sentence only if they are the same object."""
    seen: dict[str, list[str]] = {}
    for entry in imported():
        seen.setdefault(api.sentence(entry.doc), []).append(entry.path)
    same = [names for names in seen.values() if len({id(value_of(name)) for name in names}) > 1]
    assert not same


def value_of(path: str) -> object:
    package, _, name = path.rpartition(".")
    home = importlib.import_module("floatsim" + package.removeprefix("fs") if package.startswith("fs") else package)
    return getattr(home, name)


def imported() -> list[api.Entry]:
    """The entries whose packages can be imported: without PyTorch not those of floatsim.torch."""
    missing = tuple(each for each in api.FROM_SOURCE if not importlib.util.find_spec(each.rpartition(".")[2]))
    return [entry for entry in api.entries() if not entry.path.startswith(missing)]


@pytest.mark.parametrize(
    "page", [page for page in api.PAGES if page not in ("torch", "triton", "approx", "njit", "datasets")]
)
def test_examples_of_data(page):
    """The strings below assignments are no docstrings: pytest does not run their examples."""
    for entry in api.entries():
        if entry.page == page and entry.kind == "data":
            test = doctest.DocTestParser().get_doctest(entry.examples, {"np": np}, entry.path, None, 0)
            report: list[str] = []
            doctest.DocTestRunner(verbose=False).run(test, out=report.append)
            assert not report, "".join(report)


def test_pytest_runs_the_examples_of_functions_and_classes():
    """doctest takes what a module defines: the entry is under its name in its module, with the same docstring."""
    finder = doctest.DocTestFinder(exclude_empty=True, recurse=False)
    lost = []
    for entry in imported():
        if entry.kind == "data" or entry.module.startswith(tuple(api.FROM_SOURCE)):
            continue
        value, module = value_of(entry.path), importlib.import_module(entry.module)
        name = value.__name__
        if vars(module).get(name) is not value or not finder.find(value, name, module):
            lost.append(entry.path)
    assert not lost


def test_sections_that_explain_a_name_exist():
    from test_docs import anchors

    for links in api.explained().values():
        for page, fragment, _ in links:
            assert fragment in anchors(ROOT / "docs" / page), f"{page}#{fragment}"
    assert "cross-check.md" in [page for page, *_ in api.explained()["fs.identify"]]


@pytest.mark.parametrize(("doc", "markdown"), [
    ("First\nsentence.\n\nMore, 2**3 and `a*b`.", ["More, 2\\*\\*3 and `a*b`."]),
    ("One.\n\nParameters\n----------\nx, y : float\n    Numbers.\n",
     ["**Parameters**", "`x, y`: *float*\n:   Numbers."]),
    ("One.\n\n>>> 1 + 1\n2\n\nThen.", ["```pycon\n>>> 1 + 1\n2\n```", "Then."]),
    ("One.\n\n- a\n- b", ["- a\n- b"]),
])  # fmt: skip
def test_markdown_of_a_docstring(doc, markdown):
    assert list(api._prose(doc)) == markdown


@pytest.mark.parametrize(("text", "expected"), [
    ("`fs.matmul` and `fs.no_such_name`", "[`fs.matmul`](api/sums.md#fs.matmul) and `fs.no_such_name`"),
    ("`fs.sum(x, accumulate=\"fp16\")`", "[`fs.sum(x, accumulate=\"fp16\")`](api/sums.md#fs.sum)"),
    ("[`fs.matmul`](x.md)", "[`fs.matmul`](x.md)"), ("```python\n`fs.matmul`\n```", "```python\n`fs.matmul`\n```"),
    ("# `fs.matmul`", "# `fs.matmul`"), ("`ft.emulate`", "[`ft.emulate`](api/torch.md#floatsim.torch.emulate)"),
    ("`ftl.interpret`", "[`ftl.interpret`](api/triton.md#floatsim.triton.interpret)"),
    ("`fs.FloatArray.item`", "[`fs.FloatArray.item`](api/numbers.md#fs.FloatArray.item)"),
])  # fmt: skip
def test_names_in_text_are_links(text, expected):
    assert api.linked(text, "api/") == expected


@pytest.mark.parametrize(("text", "source", "page", "expected"), [
    ("[a](docs/sums.md#kahan)", "README.md", "overview.md", "[a](sums.md#kahan)"),
    ("[a](../README.md)", "docs/tour.md", "tour.md", "[a](overview.md)"),
    ("[a](../notebooks/04_orders.ipynb#The-first-event:-where?)", "docs/sums.md", "sums.md",
     "[a](notebooks/04_orders.md#the-first-event-where)"),
    ("[a](#A-kernel-differs)", "notebooks/04_orders.ipynb", "notebooks/04_orders.md", "[a](#a-kernel-differs)"),
    ("![a](docs/trace.png)", "README.md", "overview.md", "![a](trace.png)"),
    ("[a](NOTICE)", "README.md", "overview.md", "[a](files/NOTICE.txt)"),
    ("[a](https://x.org)", "README.md", "overview.md", "[a](https://x.org)"),
    ("`[a](NOTICE)`", "README.md", "overview.md", "`[a](NOTICE)`"),
])  # fmt: skip
def test_links_between_files_become_links_between_pages(text, source, page, expected):
    assert hooks.relinked(text, source, page) == expected


@pytest.mark.parametrize(("text", "expected"), [
    ("text:\n- a\n- b\n", "text:\n\n- a\n- b\n"), ("- a\n  1. b\n  2. c\n", "- a\n    1. b\n    2. c\n"),
    ("- a\n  b\n\n  c\n", "- a\n    b\n\n    c\n"), ("```python torch\n- a\n```\n", "```python\n- a\n```\n"),
    ("<details>\n", '<details markdown="1">\n'),
    ("1. a\n\n    ```python\n    x\n    ```\n", "1. a\n\n    ```python\n    x\n    ```\n"),
])  # fmt: skip
def test_lists_have_the_indentation_of_python_markdown(text, expected):
    assert hooks.adapted(text) == expected


@pytest.mark.parametrize("path", hooks.NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_a_page_with_its_stored_outputs(path):
    text, pictures = hooks.notebook(path, f"notebooks/{path.stem}.md")
    assert text.startswith("# ")
    assert pictures
    assert all(data.startswith(b"\x89PNG") for data in pictures.values())
    assert all(f"]({name.rpartition('/')[2]})" in text for name in pictures)


def test_every_page_is_in_the_navigation():
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    nav = config[config.index("\nnav:") : config.index("\ntheme:")]
    listed = re.findall(r"[\w.-]+\.md", nav)
    assert sorted(listed) == sorted(path.name for path in (ROOT / "docs").glob("*.md"))


def test_faults_of_a_site(tmp_path):
    (tmp_path / "a.html").write_text('<p id="x"><a href="b.html#y">1</a><a href="c.html">2</a><a href="#x">3</a></p>')
    (tmp_path / "b.html").write_text('<script src="https://x.org/a.js"></script><a href="a.html#x">1</a>')
    assert check.faults(tmp_path) == [
        "a.html links to b.html#y, which has no such heading",
        "a.html links to c.html, which does not exist",
        "b.html loads https://x.org/a.js from the network",
    ]


@pytest.mark.full
def test_the_site_builds_without_a_warning(tmp_path):
    """`make docs`, into another folder. The search finds English and Chinese words."""
    for library in ("mkdocs", "material", "jieba"):
        pytest.importorskip(library, reason="the site needs the extra `docs`")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert check.faults(tmp_path / "site") == []
    assert "fs.matmul" in (tmp_path / "site" / "search" / "search_index.json").read_text(encoding="utf-8")


# -- outside of a clone ------------------------------------------------------------------------------------------------


def test_texts_of_the_package_name_pages_that_it_contains():
    """The package names a page of the documentation as `floatsim docs PAGE`, never by a path of the repository."""
    from floatsim.cli.docs import page_names

    named, paths = set(), []
    for path in sorted((ROOT / "floatsim").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        named |= set(re.findall(r"`floatsim docs ([\w/-]+)`", text))
        paths += [
            f"{path.name}: {found}"
            for found in re.findall(r"(?<![\w/])(?:docs|notebooks|data)/(?:zh/)?[\w-]+\.(?:md|ipynb)", text)
        ]
    assert named
    assert named <= set(page_names())
    assert not paths


def test_floatsim_docs(run):
    code, out, _ = run("docs")
    assert code == 0
    assert "gpu-libraries" in out
    code, out, _ = run("docs", "glossary")
    assert out == (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    code, out, _ = run("docs", "--json")
    assert '"tour": "The first ten minutes"' in out
    code, _, error = run("docs", "glosary")
    assert code == 2
    assert "PAGE='glosary' is not known; did you mean 'glossary'?" in error


@pytest.mark.parametrize(("text", "source", "expected"), [
    ("See [Sums](docs/sums.md#kahan).", None, "See Sums."), ("[a](https://x.org)", None, "[a](https://x.org)"),
    ("See [Sums](docs/sums.md).", "https://x.org/f/", "See [Sums](https://x.org/f/blob/HEAD/docs/sums.md)."),
    ("![p](docs/p.png)", "https://x.org/f", "![p](https://x.org/f/raw/HEAD/docs/p.png)"),
    ("| **[a](b.ipynb)** | c |\n| ![a](b.png) | ![c](d.png) |\n", None, "| **a** | c |\n"),
])  # fmt: skip
def test_readme_of_a_package_index(text, source, expected):
    """Its relative links become addresses in the repository, or text."""
    import hatch_build

    assert hatch_build.readme(text, source) == expected
