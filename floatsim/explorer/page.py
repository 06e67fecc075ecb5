"""The page of the explorer, put together from its parts: one HTML file without any request to a network.

The parts are files beside this one: `template.html`, `style.css`, `arithmetic.js` (exact arithmetic, which also runs
in Node.js), `strings.js` (the texts in English and Chinese), and `page.js`. The formats, Hopper's instructions and the
schemes of block scales are data of floatsim: `page_data` writes them as JSON, so that the page repeats none of them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import Any

from floatsim.formats import FloatFormat, named_formats
from floatsim.formats._validation import as_word, name_hint
from floatsim.formats.rounding import Overflow, Rounding, Tininess
from floatsim.quantization.scheme import Scheme, as_scheme
from floatsim.tensorcore import ARCHITECTURES
from floatsim.tensorcore.instructions import FusedBlocks

__all__ = ["LANGUAGES", "SECTIONS", "STATE", "THEMES", "Explorer", "explorer", "format_data", "page_data", "page_html"]

LANGUAGES = ("en", "zh")
THEMES = ("auto", "light", "dark", "projector")

SECTIONS = ("bits", "operations", "sums", "hopper", "codes", "histogram", "blocks", "tasks")

STATE = {
    "s": "bits",  # the section
    "f": "FP16", "x": "0.1", "c": "",  # the format, and a number or a code
    "r": "ties_to_even", "o": "infinity", "ftz": "", "daz": "", "tin": "after", "d": "0.5",  # rounding options and draw
    "cw": "4", "ct": "2", "ck": "ieee", "cb": "",  # the custom format: widths, kind of special codes, bias
    "op": "add", "a": "1", "b": "0.1", "e": "0.25",  # the operation and its operands
    "tk": "constant", "tx": "1", "n": "4096", "tl": "1 2^-11 2^-11 2^-11 2^-11",  # the terms of a sum
    "or": "sequential", "acc": "FP16",  # its order and accumulator
    "u": "wgmma.k16/FP16/FP32", "hp": "small", "ha": "", "hb": "", "hc": "0",  # Hopper: instruction, example, a, b, c
    "g": "E4M3", "gc": "0x38",  # the format of the codes, and the selected code
    "hd": "gradients", "hl": "", "k": "0", "hf": "FP16",  # histogram: data, own list, loss scale, format
    "bo": "16", "bp": "20", "bl": "",  # blocks: the outlier's exponent and place, own list
    "task": "",
}  # fmt: skip
"""What a permalink can set, with the value at the start."""

_SCHEMES = {"tensor": "e4m3", "mxfp8": "mxfp8", "mxfp4": "mxfp4", "nvfp4": "nvfp4"}
"""The schemes of the page by their names there: per tensor, 1 x 32 (FP8 and FP4), and NVFP4."""


def format_data(fmt: FloatFormat) -> dict[str, Any]:
    return {
        "name": fmt.name, "exponentBits": fmt.exponent_bits, "trailingBits": fmt.trailing_bits,
        "specials": fmt.specials.value, "bias": fmt.bias, "colour": fmt.colour,
    }  # fmt: skip


def _instructions() -> list[dict[str, Any]]:
    """Return Hopper's `wgmma` instructions of one fused block, one for each format of the operands and of D."""
    return [
        {
            "name": row.name, "input": fmt.name, "output": row.output.name, "terms": row.model.terms,
            "fractionBits": row.model.fraction_bits, "floor": row.model.floor, "grid": format_data(row.model.grid),
            "rounding": row.model.rounding.name.lower(),
        }
        for row in ARCHITECTURES["hopper"].instructions
        if row.name.startswith("wgmma.") and isinstance(row.model, FusedBlocks)
        for fmt in row.inputs
    ]  # fmt: skip


def _scheme_data(name: str, scheme: Scheme) -> dict[str, Any]:
    assert isinstance(scheme.format, FloatFormat)
    return {
        "name": name, "format": scheme.format.name, "scaleFormat": scheme.scale_format.name, "rule": scheme.rule,
        "block": None if scheme.block == "tensor" else scheme.block[1], "factor": scheme.factor,
    }  # fmt: skip


def page_data() -> dict[str, Any]:
    """Return the data of the page, of JSON types: formats, options, Hopper's instructions, schemes of block scales.

    Returns
    -------
    dict of str

    Examples
    --------
    >>> from floatsim.explorer import page_data
    >>> data = page_data()
    >>> len(data["formats"]), data["formats"][3]["name"], data["instructions"][0]["fractionBits"]
    (16, 'FP16', 25)
    """
    import floatsim

    return {
        "version": floatsim.__version__,
        "state": STATE,
        "formats": [format_data(fmt) for fmt in named_formats()],
        "roundings": [member.name.lower() for member in Rounding],
        "overflows": [member.name.lower() for member in Overflow],
        "tininess": [member.name.lower() for member in Tininess],
        "instructions": _instructions(),
        "schemes": [_scheme_data(name, as_scheme(scheme)) for name, scheme in _SCHEMES.items()],
    }


def _part(name: str) -> str:
    return files("floatsim.explorer").joinpath(name).read_text(encoding="utf-8")


def page_html(language: str = "en", theme: str = "auto") -> str:
    """Return the page as HTML text: the whole of the explorer, at most 300 KB, which loads nothing else.

    Parameters
    ----------
    language : {"en", "zh"}
        The language at the start: English or Chinese. The page has a button for the other one.
    theme : {"auto", "light", "dark", "projector"}
        The colours at the start. "auto" follows the settings of the browser; "projector" has large text and strong
        contrast.

    Returns
    -------
    str

    Raises
    ------
    ValueError
        For an unknown language or theme.

    Examples
    --------
    >>> from floatsim.explorer import page_html
    >>> html = page_html()
    >>> html.startswith("<!doctype html>"), len(html.encode()) < 300_000
    (True, True)
    """
    as_word(language, "language", LANGUAGES)
    as_word(theme, "theme", THEMES)
    data = json.dumps(page_data(), separators=(",", ":"))
    fillings = {
        "LANGUAGE": language,
        "THEME": theme,
        "STYLE": _part("style.css"),
        "DATA": data.replace("</", "<\\/"),
        "SCRIPTS": "\n".join(_part(f"{name}.js") for name in ("arithmetic", "strings", "page")),
    }
    html = _part("template.html")
    for name, text in fillings.items():
        html = html.replace(f"@{name}@", text)
    return html


@dataclass(frozen=True, repr=False)
class Explorer:
    """The explorer in a notebook: the last expression of a cell shows the page in a frame, without a network.

    Attributes
    ----------
    html : str
        The whole page.
    height : int
        The height of the frame in pixels.
    """

    html: str
    height: int

    def __repr__(self) -> str:
        return "floatsim explorer; a notebook shows it, and `save` writes it to a file"

    def _repr_html_(self) -> str:
        style = f"width:100%;height:{self.height}px;border:1px solid #8888"
        return f'<iframe title="floatsim explorer" style="{style}" srcdoc="{escape(self.html)}"></iframe>'

    def save(self, path: Any) -> None:
        """Write the page to a file, as the command `floatsim explorer` does.

        Parameters
        ----------
        path : str or Path
            The HTML file.

        Raises
        ------
        OSError
            If the file cannot be written.
        """
        from pathlib import Path

        Path(path).write_text(self.html, encoding="utf-8")


def explorer(
    section: str = "bits", *, language: str = "en", theme: str = "auto", height: int = 720, **state: Any
) -> Explorer:
    """Return the explorer, a page to click: bits, operations, sums, a Tensor Core's dot product, codes, scales.

    A notebook shows it in a frame, without a network. The page computes with exact integers in JavaScript, and is
    tested equal to floatsim. The command `floatsim explorer --out explorer.html` writes the same page to a file.

    Parameters
    ----------
    section : str
        The section to show: "bits", "operations", "sums", "hopper", "codes", "histogram", "blocks" or "tasks".
    language : {"en", "zh"}
        English or Chinese.
    theme : {"auto", "light", "dark", "projector"}
        The colours. "auto" follows the settings of the browser.
    height : int
        The height of the frame in pixels, 200 or more.
    **state
        What the section shows, with the names and values of a permalink of the page (`floatsim.explorer.page.STATE`
        lists them), such as f="FP16", x="0.1".

    Returns
    -------
    Explorer
        Its `save(path)` writes the page.

    Raises
    ------
    ValueError
        For an unknown section, language or theme, or a height below 200.
    TypeError
        For an unknown name of a state.

    Examples
    --------
    >>> import floatsim as fs
    >>> page = fs.explorer("bits", f="E4M3", x="0.1")
    >>> page
    floatsim explorer; a notebook shows it, and `save` writes it to a file
    >>> "srcdoc=" in page._repr_html_()
    True
    """
    as_word(section, "section", SECTIONS)
    if isinstance(height, bool) or not isinstance(height, int) or height < 200:
        raise ValueError(f"height must be an integer of at least 200 pixels, not {height!r}")
    known = ["section", "language", "theme", "height", *(name for name in STATE if name != "s")]
    for name in state:
        if name not in known:
            raise TypeError(f"explorer: unknown keyword {name!r}; {name_hint(name, known)}")
    start = json.dumps({"s": section, **{name: str(value) for name, value in state.items()}}).replace("</", "<\\/")
    return Explorer(page_html(language, theme).replace("/*START*/null", start), height)
