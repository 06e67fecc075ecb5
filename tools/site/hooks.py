"""Hooks of MkDocs: the pages that are not in docs/, the links between the files of the repository, the navigation.

A page of the site comes from one file of the repository: docs/*.md, README.md, CONTRIBUTING.md, CHANGELOG.md, a
notebook, or a Chinese page. Their links are links between files, which also work in the repository. `relinked` changes
each to the page of the site, or to a copy of the file.
"""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
import tempfile
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]

from tools.site import api  # noqa: E402

NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
SHIM = "https://unpkg.com/iframe-worker/shim"
"""The script that Material loads from the network, for the search of pages that are opened from a disk."""
ASSETS = Path(__file__).parent / "assets"
CHINESE = "zh"
"""The folder of the Chinese pages, in docs/ and in the site."""

LINK = re.compile(
    r"(?P<code>^(?P<fence>```+).*?^(?P=fence)|`[^`\n]*`)|(?P<start>\]\()(?P<target>[^)\s]+)(?P<end>\))", re.M | re.S
)


# -- which file is which page ------------------------------------------------------------------------------------------


@functools.cache
def pages() -> dict[str, str]:
    """Return the path of a file of the repository to the path of its page in the site."""
    found = {path.relative_to(ROOT).as_posix(): path.relative_to(ROOT / "docs").as_posix()
             for path in sorted((ROOT / "docs").rglob("*.md"))}  # fmt: skip
    found |= {"README.md": "overview.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
    found["notebooks/README.md"] = "notebooks/index.md"
    for notebook in NOTEBOOKS:
        found[f"notebooks/{notebook.name}"] = f"notebooks/{notebook.stem}.md"
    if (ROOT / "README.zh-CN.md").exists():
        taken = {f"docs/{CHINESE}/README.md", f"docs/{CHINESE}/index.md"} & set(found)
        found["README.zh-CN.md"] = f"{CHINESE}/overview.md" if taken else f"{CHINESE}/index.md"
    for notebook in sorted((ROOT / "notebooks").glob(f"{CHINESE}/*.ipynb")):
        found[f"notebooks/{CHINESE}/{notebook.name}"] = f"{CHINESE}/notebooks/{notebook.stem}.md"
    return found


def relative(target: str, page: str) -> str:
    """Return a path of the site as seen from a page."""
    return os.path.relpath(target, os.path.dirname(page) or ".").replace(os.sep, "/")  # noqa: PTH120


def copied(path: str) -> str:
    """Return the path in the site of a file that is no page: text files end in .txt, so that browsers show them."""
    known = (".png", ".svg", ".html", ".txt", ".json")
    return f"files/{path}" + ("" if path.endswith(known) else ".txt")


def targets(text: str, source: str) -> Iterator[tuple[re.Match[str], str, str]]:
    """Yield (link, file of the repository, fragment) of the links to files."""
    for m in LINK.finditer(text):
        if m["target"] is None or re.match(r"[a-z]+:|/", m["target"]):
            continue
        name, _, fragment = m["target"].partition("#")
        path = os.path.normpath(os.path.join(os.path.dirname(source), name)).replace(os.sep, "/")  # noqa: PTH118, PTH120
        path = path if name else source
        if path.endswith(".ipynb"):  # Jupyter makes "A-kernel-differs:-order-or-bug?" of a heading
            fragment = api.slug(fragment.replace("-", " "))
        yield m, path, fragment


def relinked(text: str, source: str, page: str) -> str:
    """Return the text of a file with links between pages of the site. Folders have no page: their links are text."""
    parts, last = [], 0
    for m, path, fragment in targets(text, source):
        if path == source:
            new = ""
        elif path in pages():
            new = relative(pages()[path], page)
        elif path.startswith("docs/") and not path.endswith(".md") and (ROOT / path).is_file():
            new = relative(path.removeprefix("docs/"), page)
        elif (ROOT / path).is_file():
            new = relative(copied(path), page)
        else:
            continue
        parts += [text[last : m.start("target")], new + (f"#{fragment}" if fragment else "")]
        last = m.end("target")
    return "".join([*parts, text[last:]])


# -- Markdown of GitHub as Python-Markdown reads it --------------------------------------------------------------------


def adapted(text: str) -> str:
    """Return Markdown with the indentation and the empty lines that Python-Markdown needs around lists.

    GitHub nests lists by two or three spaces, and starts a list below a line of text. Python-Markdown nests by four.
    """
    lines, levels, before = [], [], ""
    fence, start = "", 0  # the marks of the code block around the line, and its indentation
    text = re.sub(r"^(```\w+) [^\n`]+$", r"\1", text, flags=re.MULTILINE)  # ```python torch
    for line in text.replace("<details>", '<details markdown="1">').splitlines():
        indent, body = len(line) - len(line.lstrip()), line.strip()
        if fence:
            lines.append(" " * 4 * len(levels) + line[min(indent, start) :] if levels else line)
            fence = "" if body.startswith(fence) and set(body) == set(fence) else fence
            continue
        item = re.match(r"([-*]|\d+\.) +", body)
        while levels and body and (indent < levels[-1][1] if not item else indent <= levels[-1][0]):
            levels.pop()
        if item:
            nested = bool(levels)
            if before and not nested and not re.match(r" *([-*]|\d+\.) ", before) and not lines_in_list(lines):
                lines.append("")
            lines.append(" " * 4 * len(levels) + body)
            levels.append((indent, indent + item.end()))
        elif levels and body:
            if re.match(r"```+", body) and before:
                lines.append("")
            rest = line[levels[-1][1] :]
            lines.append(" " * 4 * len(levels) + (rest if rest.startswith("    ") else rest.lstrip()))
        else:
            lines.append(line if not levels else body)
        if m := re.match(r"```+|~~~+", body):
            fence, start = m[0], indent
        before = body
    return "\n".join(lines) + "\n"


def lines_in_list(lines: list[str]) -> bool:
    """Return whether the last paragraph is part of a list."""
    for line in reversed(lines):
        if not line.strip():
            return False
        if re.match(r" *([-*]|\d+\.) ", line):
            return True
    return False


# -- notebooks ---------------------------------------------------------------------------------------------------------


def notebook(path: Path, page: str) -> tuple[str, dict[str, bytes]]:
    """Return a notebook as Markdown with its stored outputs, and its pictures by their paths in the site."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    parts, pictures = [], {}
    for cell in cells:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
            continue
        if cell["cell_type"] != "code":
            continue
        if not cell.get("metadata", {}).get("jupyter", {}).get("source_hidden"):
            parts.append(f"```python\n{text}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/png" in data:
                name = f"{Path(page).stem}-{len(pictures) + 1}.png"
                pictures[f"{Path(page).parent.as_posix()}/{name}"] = b64decode("".join(data["image/png"]))
                parts.append(f"![Picture {len(pictures)} of this notebook]({name})")
            elif "text/markdown" in data:
                parts.append("".join(data["text/markdown"]))
            elif "text/html" in data:
                parts.append(f'<div class="output">{"".join(data["text/html"])}</div>')
            elif "application/vnd.jupyter.widget-view+json" not in data:
                shown = "".join(data.get("text/plain", output.get("text", "")))
                if shown.strip() and not shown.startswith("<Figure"):
                    parts.append(f'<div class="output" markdown="1">\n\n```text\n{shown.rstrip()}\n```\n\n</div>')
    return "\n\n".join(parts) + "\n", pictures


# -- the explorer ------------------------------------------------------------------------------------------------------


EXPLORER = "explorer.html"


def explorer() -> bytes | None:
    """Return the page that `floatsim explorer` writes; None if this version has no such command.

    An error of the command is an error of the build.
    """
    from floatsim.cli.main import app

    commands = {
        command.name or command.callback.__name__.removesuffix("_command") for command in app.registered_commands
    }
    if "explorer" not in commands:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / EXPLORER
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "kernels")])}
        subprocess.run([sys.executable, "-m", "floatsim", "explorer", "--out", str(path)], check=True, env=environment)
        return path.read_bytes()


# -- the hooks ---------------------------------------------------------------------------------------------------------


@functools.cache
def made() -> dict[str, str | bytes]:
    """Return the contents of the files that are not in docs/, by their paths in the site."""
    found: dict[str, str | bytes] = {path.name: path.read_text("utf-8") for path in sorted(ASSETS.iterdir())}
    found["api/index.md"] = api.index()
    found |= {f"api/{page}.md": api.markdown(page) for page in api.PAGES}
    for source, page in pages().items():
        path = ROOT / source
        if path.suffix == ".ipynb":
            text, pictures = notebook(path, page)
            found |= pictures
        else:
            text = path.read_text(encoding="utf-8")
        for _, target, _ in targets(text, source):
            inside = target in pages() or target.startswith("docs/")
            if not inside and (ROOT / target).is_file():
                found[copied(target)] = (ROOT / target).read_bytes()
        if not source.startswith("docs/"):
            found[page] = finished(text, source, page)
    page = explorer()
    if page is not None:
        found[EXPLORER] = page
    return found


def finished(text: str, source: str, page: str) -> str:
    """Return the Markdown of a file as a page of the site."""
    return api.linked(adapted(relinked(text, source, page)), relative("api", page) + "/")


def on_config(config: Any) -> Any:
    """Complete the navigation: notebooks, public names, the explorer, the project, Chinese."""
    titles = {path: re.sub(r"[`*]", "", re.search(r"^# (.*)$", text, re.M)[1]) for path, text in made().items()
              if path.startswith("notebooks/") and path.endswith(".md") and isinstance(text, str)}  # fmt: skip
    books = [{title: path} for path, title in titles.items() if path != "notebooks/index.md"]
    config.nav += [
        {"Notebooks": ["notebooks/index.md", *books]},
        {"API": ["api/index.md", *({title: f"api/{page}.md"} for page, (title, _, _) in api.PAGES.items())]},
        {"Project": [{"Overview": "overview.md"}, {"Contributing": "contributing.md"}, {"Changelog": "changelog.md"}]},
    ]
    if EXPLORER in made():
        config.nav.insert(2, {"Explorer": EXPLORER})
    chinese = sorted(page for page in pages().values() if page.startswith(f"{CHINESE}/"))
    if chinese:
        first = next(page for name in ("index.md", "README.md", "") for page in chinese
                     if page == f"{CHINESE}/{name}" or not name)  # fmt: skip
        config.nav.append({"中文": [first, *(page for page in chinese if page != first)]})
        home = re.sub(r"(README|index)\.md$", "index.html", first).replace(".md", ".html")
        config.extra["alternate"] = [
            {"name": "English", "link": "./index.html", "lang": "en"},
            {"name": "中文", "link": f"./{home}", "lang": "zh"},
        ]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the files that are not in docs/."""
    from mkdocs.structure.files import File

    for path, content in made().items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Change the links of a page of docs/; the others are finished."""
    path = page.file.src_uri
    return markdown if path in made() else finished(markdown, f"docs/{path}", path)


def on_post_template(output_content: str, template_name: str, **_: Any) -> str:
    """Load no script from the network in the page of missing pages."""
    return output_content.replace(SHIM, "/file-worker.js")


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Load no script from the network, and set the language of Chinese pages, by which browsers choose fonts."""
    worker = relative("file-worker.js", page.file.dest_uri)
    output = output.replace(SHIM, worker)
    if page.file.src_uri.startswith(f"{CHINESE}/"):
        output = output.replace('<html lang="en"', '<html lang="zh-CN"')
    return output
