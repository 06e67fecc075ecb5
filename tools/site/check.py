"""Check a built site: links between its pages and to headings, and that it loads nothing from the network.

    python -m tools.site.check build/site

Prints each fault, and returns 1 if there is one.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

__all__ = ["faults"]

LOADED = {"script": "src", "img": "src", "iframe": "src", "link": "href", "source": "src"}
"""The elements that load a file, and the attribute with its address."""


class Page(HTMLParser):
    """The links, the loaded files and the identifiers of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.ids |= {value for name in ("id", "name") if (value := values.get(name))}
        if tag == "a" and (target := values.get("href")):
            self.links.add(target)
        elif (
            tag in LOADED
            and (target := values.get(LOADED[tag]))
            and values.get("rel") not in ("canonical", "alternate")
        ):
            self.loaded.add(target)


def faults(site: Path) -> list[str]:
    """Return a line for each broken link, missing heading, and file that a page loads from the network."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        if path.name == "404.html":  # its addresses begin with /, as a server needs them
            continue
        name = path.relative_to(site).as_posix()
        for target in sorted(page.loaded):
            if urlsplit(target).scheme in ("http", "https") or target.startswith("//"):
                found.append(f"{name} loads {target} from the network")
        for target in sorted(page.links | page.loaded):
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            file = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if file.is_dir():
                file /= "index.html"
            if not file.is_file():
                found.append(f"{name} links to {target}, which does not exist")
            elif parts.fragment and file in pages and unquote(parts.fragment) not in pages[file].ids:
                found.append(f"{name} links to {target}, which has no such heading")
    return found


def main(arguments: list[str]) -> int:
    """Check the site in the folder that is given. Return the exit code."""
    site = Path(arguments[0]).resolve()
    found = faults(site)
    print("\n".join(found) or f"{len(list(site.rglob('*.html')))} pages: no broken link, nothing from the network")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
