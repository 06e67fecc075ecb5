"""What the build adds to pyproject.toml: the README without links that only work in the repository, and the pages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
    from hatchling.metadata.plugin.interface import MetadataHookInterface
except ImportError:  # the tests of `readme` need no hatchling
    BuildHookInterface = MetadataHookInterface = object  # type: ignore[assignment, misc]

RELATIVE = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?!https?:)(?P<target>[^)\s]+)\)")


def readme(text: str, source: str | None) -> str:
    """Return the README for a package index, where a relative link leads nowhere.

    With the address of the repository, links become addresses in it. Without one, a link becomes its text, and pictures
    are left out.

    >>> readme("See [Sums](docs/sums.md#kahan).", "https://example.org/floatsim")
    'See [Sums](https://example.org/floatsim/blob/HEAD/docs/sums.md#kahan).'
    >>> readme("See [Sums](docs/sums.md#kahan).", None)
    'See Sums.'
    """

    def absolute(m: re.Match[str]) -> str:
        if source is None or m["target"].startswith("#"):
            return "" if m["image"] else m["text"]
        kind = "raw" if m["image"] else "blob"
        return f"{m['image']}[{m['text']}]({source.rstrip('/')}/{kind}/HEAD/{m['target']})"

    text = RELATIVE.sub(absolute, text)
    return re.sub(r"^\|(?: *\|)+\n", "", text, flags=re.MULTILINE)  # rows of pictures that were left out


class Readme(MetadataHookInterface):  # type: ignore[misc]
    """Sets the README. The address of the repository is `Source` of [project.urls], if there is one."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the field `readme`."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        source = metadata.get("urls", {}).get("Source")
        metadata["readme"] = {"content-type": "text/markdown", "text": readme(text, source)}


class Pages(BuildHookInterface):  # type: ignore[misc]
    """Adds the pages of docs/ to the wheel, for the command `floatsim docs`."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the files; an editable installation reads them where they are."""
        if version != "editable":
            folder = Path(self.root) / "docs"
            for path in sorted(folder.rglob("*.md")):
                build_data["force_include"][str(path)] = f"floatsim/data/docs/{path.relative_to(folder).as_posix()}"
