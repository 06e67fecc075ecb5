"""Write the pictures of the notebooks as slides: one HTML file, which needs no network and no server.

    python notebooks/slides.py                          slides of all notebooks, in out/slides.html
    python notebooks/slides.py 01_bits 10_training      only these
    python notebooks/slides.py --out lecture.html

Each notebook has a slide with its question, one for each picture with the heading above it, and one with what to
remember if the notebook says so. Texts and pictures are those of the stored notebooks, so nothing runs. nbconvert's
slides load reveal.js from a server. This file has its few lines of style and script inside, and the pictures as data.

Keys: right, space or page down for the next slide, left or page up for the one before, Home and End. The printer makes
one page of each slide.
"""

from __future__ import annotations

import argparse
import html
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent

STYLE = """
html, body { margin: 0; height: 100%; background: #fff; color: #222; font-family: "DejaVu Sans", "Noto Sans CJK SC",
  "Noto Sans", Arial, sans-serif; }
section { display: none; box-sizing: border-box; width: 100vw; height: 100vh; padding: 4vh 5vw;
  flex-direction: column; }
section.shown { display: flex; }
section.question { justify-content: center; text-align: center; }
h1 { font-size: 6.5vh; margin: 0 0 3vh; text-wrap: balance; }
h2 { font-size: 4.6vh; margin: 0 0 2vh; }
p, li { font-size: 3.6vh; line-height: 1.45; }
li { margin-bottom: 1.5vh; }
code { font-family: "DejaVu Sans Mono", monospace; background: #f1f1f1; }
figure { flex: 1; min-height: 0; margin: 0; display: flex; justify-content: center; align-items: center; }
img { max-width: 100%; max-height: 100%; width: 100%; height: 100%; object-fit: contain; }
footer { position: fixed; right: 2vw; bottom: 1.5vh; font-size: 2.2vh; color: #777; }
@media print { @page { size: 297mm 167mm; margin: 0; } section { display: flex; break-after: page; height: 100vh; }
  footer { display: none; } }
"""

SCRIPT = """
const slides = [...document.querySelectorAll("section")], footer = document.querySelector("footer");
let at = Math.min(Math.max(parseInt(location.hash.slice(1)) || 1, 1), slides.length) - 1;
function show(n) {
  at = Math.min(Math.max(n, 0), slides.length - 1);
  slides.forEach((slide, i) => slide.classList.toggle("shown", i === at));
  footer.textContent = `${at + 1} / ${slides.length}`;
  history.replaceState(null, "", `#${at + 1}`);
}
addEventListener("keydown", event => {
  const to = {ArrowRight: at + 1, PageDown: at + 1, " ": at + 1, ArrowLeft: at - 1, PageUp: at - 1, Home: 0,
              End: slides.length - 1}[event.key];
  if (to !== undefined) { event.preventDefault(); show(to); }
});
addEventListener("click", event => show(at + (event.clientX < innerWidth / 4 ? -1 : 1)));
show(at);
"""


class Slide(NamedTuple):
    """A slide: its kind ("question", "picture" or "text"), its heading, and the HTML below the heading."""

    kind: str
    heading: str
    body: str


def inline(text: str) -> str:
    """A line of Markdown as HTML: code, bold and italic words; links become their text.

    >>> inline("see [**FP16**](x.md), `a < b`")
    'see <b>FP16</b>, <code>a &lt; b</code>'
    """
    text = html.escape(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text), quote=False)
    text = re.sub(r"`([^`]*)`", r"<code>\1</code>", text)
    text = re.sub(r"\*\*([^*]+)\*\*", r"<b>\1</b>", text)
    return re.sub(r"(?<![*\w])\*([^*]+)\*(?![*\w])", r"<i>\1</i>", text)


def _parts(text: str) -> Iterator[tuple[str, str]]:
    """The headings of a cell of text, each with the text below it; the text above the first one has none."""
    heading, start = "", 0
    for match in re.finditer(r"^#+ (.*)$", text, re.MULTILINE):
        yield heading, text[start : match.start()]
        heading, start = match[1], match.end()
    yield heading, text[start:]


def _bullets(text: str) -> str:
    items = re.findall(r"^- (.*(?:\n  .*)*)", text, re.MULTILINE)
    return "<ul>" + "".join(f"<li>{inline(' '.join(item.split()))}</li>" for item in items) + "</ul>"


def slides_of(notebook: dict[str, Any]) -> Iterator[Slide]:
    """The slides of a stored notebook, as JSON."""
    heading = ""
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            for title, text in _parts("".join(cell["source"])):
                if title.startswith(("Exercises", "Check of the answers")):
                    return
                if re.match(r"\d+\. .*\?$", title):
                    yield Slide("question", title.partition(". ")[2], "")
                elif title == "What to remember":
                    yield Slide("text", title, _bullets(text))
                heading = title or heading
            continue
        for output in cell["outputs"]:
            picture = output.get("data", {}).get("image/png")
            if picture is not None:
                data = "".join(picture).replace("\n", "")
                image = f'<img alt="{html.escape(heading)}" src="data:image/png;base64,{data}">'
                yield Slide("picture", heading, f"<figure>{image}</figure>")


def page(slides: list[Slide]) -> str:
    """The slides as one HTML document."""
    sections = []
    for kind, heading, body in slides:
        tag = "h1" if kind == "question" else "h2"
        sections.append(f'<section class="{kind}"><{tag}>{inline(heading)}</{tag}>{body}</section>')
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>floatsim</title>'
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}<style>{STYLE}</style></head>\n<body>\n'
        + "\n".join(sections)
        + f"\n<footer></footer><script>{SCRIPT}</script></body></html>\n"
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Write the pictures of the notebooks as slides, without a network.")
    parser.add_argument("names", nargs="*", help="such as 01_bits; default: all")
    parser.add_argument("--out", type=Path, default=Path("out/slides.html"), help="the file (default: out/slides.html)")
    options = parser.parse_args(arguments)
    known = {path.stem: path for path in sorted(HERE.glob("[0-9][0-9]_*.ipynb"))}
    if unknown := [name for name in options.names if name not in known]:
        parser.error(f"no notebook is called {', '.join(unknown)}; known are {', '.join(known)}")
    slides = [
        slide
        for name in options.names or known
        for slide in slides_of(json.loads(known[name].read_text(encoding="utf-8")))
    ]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(page(slides), encoding="utf-8")
    print(f"{len(slides)} slides: {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
