"""Pictures of formats and of what rounding does. Each function draws into `ax` (or a new figure) and returns the Axes.

One colour per format everywhere, from the one table below; matplotlib is imported when something is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from floatsim.formats import (
    BF16,
    E2M1,
    E2M3,
    E3M2,
    E3M4,
    E4M3,
    E4M3B11FNUZ,
    E4M3FNUZ,
    E4M3IEEE,
    E5M2,
    E5M2FNUZ,
    E8M0,
    FP16,
    FP32,
    FP64,
    TF32,
    FloatFormat,
    FormatLike,
    as_format,
)  # fmt: skip
from floatsim.rounding import OVERFLOW

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

__all__ = [
    "COLOURS", "Fate", "bit_strip", "colour", "exponent_histogram", "fates", "format_ranges", "heatmap",
    "survey_figure",
]  # fmt: skip

COLOURS: dict[FloatFormat, str] = {
    # Okabe and Ito's colour-blind-safe palette for the formats that meet most often; kin in shades of the same hue.
    FP64: "#000000", FP32: "#5f6b75", TF32: "#56b4e9", FP16: "#0072b2", BF16: "#009e73",
    E4M3: "#d55e00", E4M3FNUZ: "#b34f00", E4M3IEEE: "#8f3f00", E4M3B11FNUZ: "#ee9a55", E3M4: "#6b2f00",
    E5M2: "#cc79a7", E5M2FNUZ: "#a3507f",
    E3M2: "#e69f00", E2M3: "#b87f00", E2M1: "#8a7a00", E8M0: "#999999",
}  # fmt: skip
"""The colour of each named format."""

CUSTOM_COLOUR = "#7d6bb3"
"""The colour of every format without a name of its own."""

LOST_COLOUR = "#1a1a1a"
"""What did not survive a rounding."""

FIVE = (FP32, FP16, BF16, E4M3, E5M2)

_INK, _PALE = "#222222", "#f1f1f1"
_BAND = 0.6  # of a histogram's row; its words stand upon it, below a gap


def colour(fmt: FormatLike) -> str:
    """The colour in which `fmt` is drawn, as "#rrggbb".

    >>> from floatsim import plot
    >>> plot.colour("fp16")
    '#0072b2'
    """
    return COLOURS.get(as_format(fmt), CUSTOM_COLOUR)


def _several(formats: Iterable[FormatLike] | FormatLike) -> list[FloatFormat]:
    if isinstance(formats, str) or not isinstance(formats, Iterable):
        formats = [formats]
    return [as_format(fmt) for fmt in formats]


def _axes(ax: Axes | None, **figure: Any) -> Axes:
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    drawn: Axes = plt.subplots(layout="constrained", **figure)[1]
    return drawn


def _share(fraction: float) -> str:
    """A share for a reader: "0", "< 0.1 %", "2.3 %", "41 %"; "100 %" only where it is all."""
    percent = 100 * fraction
    if percent in (0, 100):
        return f"{percent:.0f} %"
    if percent < 0.1:
        return "< 0.1 %"
    return f"{min(percent, 99.9):.1f} %" if percent < 10 or percent > 99 else f"{percent:.0f} %"


# -- where the numbers of a tensor lie -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Fate:
    """What becomes of a tensor's non-zero numbers in one format, as shares of them."""

    flushed: float
    subnormal: float
    normal: float
    overflowed: float


def _fates(x: NDArray[np.float64], fmt: FloatFormat) -> NDArray[np.intp]:
    """0 flushed to zero, 1 subnormal, 2 normal, 3 overflowed, for each non-zero finite x; ties to even."""
    import numpy as np

    from floatsim.contexts import context
    from floatsim.conversion import decode, encode

    with context(daz=False, ftz=False):
        codes, flags = encode(x, fmt, rounding="ties_to_even", overflow="infinity", return_flags=True)
    size = np.abs(decode(codes, fmt))
    fate = np.where(size == 0, 0, np.where(size < fmt.smallest_normal, 1, 2))
    return np.where(flags & OVERFLOW, 3, fate)


def _nonzero(x: Any) -> NDArray[np.float64]:
    import numpy as np

    from floatsim.arrays import FloatArray

    values = x.values if isinstance(x, FloatArray) else np.asarray(x, np.float64)
    kept: NDArray[np.float64] = values[np.isfinite(values) & (values != 0)]
    if not kept.size:
        raise ValueError("x has no finite non-zero number to draw")
    return kept


def fates(x: Any, fmt: FormatLike) -> Fate:
    """What rounding to `fmt` (ties to even) does to the finite non-zero numbers of `x`.

    Parameters
    ----------
    x : array_like
        Real numbers, or a FloatArray.
    fmt : format
        Where to.

    Raises
    ------
    ValueError
        If `x` has no finite non-zero number.

    Examples
    --------
    >>> from floatsim import plot
    >>> plot.fates([1e-9, 1e-6, 1.0, 1e6], "fp16")
    Fate(flushed=0.25, subnormal=0.25, normal=0.25, overflowed=0.25)
    """
    import numpy as np

    values = _nonzero(x)
    counts = np.bincount(_fates(values, as_format(fmt)), minlength=4)
    return Fate(*(float(n) / values.size for n in counts))


def _in_words(fate: Fate) -> str:
    words = [
        f"{_share(share)} {what}"
        for what, share in (
            ("lost to zero", fate.flushed), ("overflow", fate.overflowed), ("subnormal", fate.subnormal),
        )
        if share
    ]  # fmt: skip
    return ", ".join(words) or "all normal"


def _draw_range(ax: Axes, fmt: FloatFormat, base: float) -> None:
    """The format's range as a band: normal numbers, and hatched the subnormals."""
    left, middle, right = fmt.emin - fmt.trailing_bits - 1, fmt.emin, fmt.emax + 1
    tint = colour(fmt)
    ax.barh(base, right - middle, _BAND, middle, align="edge", color=tint, alpha=0.16, lw=0)
    if fmt.has_subnormals:
        ax.barh(base, middle - left, _BAND, left, align="edge", fc="none", ec=tint, alpha=0.3, hatch="////", lw=0)


def _bar_styles(fmt: FloatFormat) -> dict[int, dict[str, Any]]:
    """How each fate is drawn, bottom to top."""
    tint = colour(fmt)
    return {
        2: {"color": tint},
        1: {"facecolor": "white", "edgecolor": tint, "hatch": "//////", "linewidth": 0.6},
        0: {"color": LOST_COLOUR},
        3: {"color": LOST_COLOUR},
    }


def exponent_histogram(
    x: Any,
    formats: Iterable[FormatLike] | FormatLike = FIVE,
    *,
    ax: Axes | None = None,
    title: str | None = None,
    limits: tuple[float, float] | None = None,
) -> Axes:
    """How a tensor's exponents lie in each format's range, what is lost drawn in black.

    One row a format. The bars are the same in each: the share of the finite non-zero numbers in each power of two.
    Solid: normal numbers. Hatched: subnormal, so rounded to fewer bits. Black: rounded to zero (left) or beyond the
    largest number (right). The band behind is the format's range.

    Parameters
    ----------
    x : array_like
        The tensor: real numbers of any shape, or a FloatArray.
    formats : format or iterable of format
        Top to bottom.
    ax : Axes, optional
        Where to draw; a new figure by default.
    title : str, optional
        Above the picture.
    limits : (float, float), optional
        Exponents at the ends of the axis. Default: the tensor's, and a little more.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If `x` has no finite non-zero number, or no format is given.

    Examples
    --------
    >>> from floatsim import plot
    >>> ax = plot.exponent_histogram([1e-9, 1e-6, 1.0, 1e6], ["fp16", "e4m3"])
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['FP16', 'E4M3']
    """
    import numpy as np

    rows = _several(formats)
    if not rows:
        raise ValueError("formats must name at least one format")
    values = _nonzero(x)
    exponents = np.frexp(values)[1] - 1
    lowest, bins = int(exponents.min()), int(np.ptp(exponents)) + 1
    ax = _axes(ax, figsize=(7, 0.75 * len(rows) + 1))
    peak = np.bincount(exponents - lowest).max() / values.size
    for row, fmt in enumerate(rows):
        base, fate, bottom = len(rows) - 1 - row, _fates(values, fmt), np.zeros(bins)
        _draw_range(ax, fmt, base)
        for kind, style in _bar_styles(fmt).items():
            height = _BAND * np.bincount(exponents[fate == kind] - lowest, minlength=bins) / values.size / peak
            if height.any():
                ax.bar(lowest + np.arange(bins), height, 0.9, base + bottom, align="edge", **style)
            bottom += height
        counts = np.bincount(fate, minlength=4) / values.size
        ax.annotate(
            _in_words(Fate(*map(float, counts))), (0, base + _BAND), (3, 1), ("axes fraction", "data"),
            textcoords="offset points", va="bottom", fontsize="small", color=_INK,
        )  # fmt: skip
        ax.axhline(base, color=colour(fmt), lw=0.8)
    ax.set_yticks([len(rows) - 1 - row + 0.5 for row in range(len(rows))], [fmt.name for fmt in rows])
    for label, fmt in zip(ax.get_yticklabels(), rows, strict=True):
        label.set(color=colour(fmt), fontweight="bold")
    ax.tick_params(axis="y", length=0)
    ax.set(xlim=limits or (lowest - 3, lowest + bins + 3), ylim=(0, len(rows)))
    ax.xaxis.set_major_formatter(lambda e, _: f"$2^{{{e:.0f}}}$")
    ax.set_xlabel("magnitude")
    ax.spines[["top", "right", "left"]].set_visible(False)
    if title is not None:
        ax.set_title(title)
    return ax


# -- how far off a result is ---------------------------------------------------------------------------------------


def _power(value: float) -> str:
    """A relative error in a cell: "3 %", or a power of ten below a thousandth."""
    if value == 0:
        return "0"
    if value >= 0.00095:
        return f"{100 * value:.2g} %" if value < 0.995 else f"{100 * value:.0f} %" if value < 10 else f"{value:.0e}"
    digits, exponent = f"{value:.0e}".split("e")
    return rf"${digits}\cdot10^{{{int(exponent)}}}$"


def heatmap(
    table: Mapping[str, Mapping[str, float | None]],
    *,
    ax: Axes | None = None,
    title: str | None = None,
    label: str = "relative error",
    notes: Mapping[tuple[str, str], str] | None = None,
    texts: Mapping[tuple[str, str], str] | None = None,
    limits: tuple[float, float] | None = None,
    colorbar: bool = True,
) -> Axes:
    """Errors as colours, on a logarithmic scale: light is good, dark is bad.

    Parameters
    ----------
    table : mapping of row to mapping of column to number
        Errors, 0 or more. None or a missing column: not computed, drawn empty. NaN: nothing to measure.
    ax : Axes, optional
        Where to draw; a new figure by default.
    title : str, optional
        Above the picture.
    label : str
        Of the colour bar.
    notes : mapping of (row, column) to str, optional
        Cells in which results were lost, and how many: the note stands on black, under the number.
    texts : mapping of (row, column) to str, optional
        What a cell says instead of its number.
    limits : (float, float), optional
        Errors at the ends of the colours. Default: the powers of ten around the table's.
    colorbar : bool
        Whether to draw one.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If the table is empty, or an error is negative.

    Examples
    --------
    >>> from floatsim import plot
    >>> ax = plot.heatmap({"FP16": {"FP16": 1e-3, "FP32": 1e-7}, "FP32": {"FP32": 1e-8}})
    >>> [text.get_text() for text in ax.texts]
    ['0.1 %', '$1\\\\cdot10^{-7}$', '-', '$1\\\\cdot10^{-8}$']
    """
    import numpy as np
    from matplotlib import colormaps
    from matplotlib.colors import LogNorm
    from matplotlib.patches import Rectangle

    rows, columns = list(table), list(dict.fromkeys(name for row in table.values() for name in row))
    if not columns:
        raise ValueError("table must have at least one row with one number")
    grid = [[table[row].get(column) for column in columns] for row in rows]
    numbers = np.array([[math.nan if value is None else value for value in row] for row in grid])
    if (numbers < 0).any():
        raise ValueError("table holds a negative error")
    sizes = numbers[np.isfinite(numbers) & (numbers > 0)]
    if limits is None:
        low, high = (sizes.min(), sizes.max()) if sizes.size else (0.1, 1.0)
        first = math.floor(math.log10(low))
        limits = 10.0**first, 10.0 ** max(math.ceil(math.log10(high)), first + 1)
    ax = _axes(ax, figsize=(1.2 * len(columns) + 2, 0.6 * len(rows) + 1))
    norm, palette = LogNorm(*limits, clip=True), colormaps["YlOrRd"]
    mesh = ax.pcolormesh(np.ma.masked_invalid(np.maximum(numbers, limits[0])), norm=norm, cmap=palette,
                         edgecolors="white", linewidth=2)  # fmt: skip
    for (i, j), value in np.ndenumerate(numbers):
        note = (notes or {}).get((rows[i], columns[j]))
        tint = palette(norm(max(value, limits[0]))) if math.isfinite(value) else _PALE
        tint = LOST_COLOUR if math.isinf(value) else tint
        text = "-" if math.isnan(value) else "∞" if math.isinf(value) else _power(value)
        text = (texts or {}).get((rows[i], columns[j]), text)
        if note is not None and not math.isfinite(value):  # nothing else to say
            tint, text, note = LOST_COLOUR, note, None
        ax.add_patch(_cell(j, i, tint))
        height = 1.0
        if note is not None:
            height = 0.56
            ax.add_patch(Rectangle((j + 0.015, i + height), 0.97, 0.96 - height, facecolor=LOST_COLOUR, linewidth=0))
            ax.text(j + 0.5, i + 0.76, note, ha="center", va="center", fontsize="small", color="white")
        ink = "white" if _is_dark(tint) else _INK
        ax.text(j + 0.5, i + height / 2 + 0.01, text, ha="center", va="center", color=ink)
    ax.set_xticks(np.arange(len(columns)) + 0.5, columns)
    ax.set_yticks(np.arange(len(rows)) + 0.5, rows)
    for tick in ax.get_yticklabels():
        tick.set(color=_colour_of_name(tick.get_text()), fontweight="bold")
    ax.tick_params(length=0)
    ax.invert_yaxis()
    ax.spines[:].set_visible(False)
    if title is not None:
        ax.set_title(title)
    if colorbar:
        ax.figure.colorbar(mesh, ax=ax, label=label)
    return ax


def _is_dark(tint: Any) -> bool:
    from matplotlib.colors import to_rgb

    red, green, blue = (part**2.2 for part in to_rgb(tint))
    return bool(0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.3)


def _paler(tint: str) -> tuple[float, ...]:
    from matplotlib.colors import to_rgb

    return tuple(1 - 0.35 * (1 - part) for part in to_rgb(tint))


def _cell(column: float, row: float, tint: Any) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((column, row), 1, 1, facecolor=tint, edgecolor="white", linewidth=2)


def _colour_of_name(name: str) -> str:
    try:
        return colour(name)
    except ValueError:
        return _INK


# -- formats -------------------------------------------------------------------------------------------------------


def format_ranges(
    formats: Iterable[FormatLike] | FormatLike = FIVE, *, ax: Axes | None = None, title: str | None = None
) -> Axes:
    """The ranges of formats side by side, hatched where they are subnormal, with the precision beside each.

    Parameters
    ----------
    formats : format or iterable of format
        Top to bottom.
    ax : Axes, optional
        Where to draw; a new figure by default.
    title : str, optional
        Above the picture.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If no format is given.

    Examples
    --------
    >>> from floatsim import plot
    >>> [text.get_text() for text in plot.format_ranges(["fp16", "bf16"]).texts]
    ['11 bits', '8 bits']
    """
    rows = _several(formats)
    if not rows:
        raise ValueError("formats must name at least one format")
    ax = _axes(ax, figsize=(7, 0.45 * len(rows) + 1))
    for row, fmt in enumerate(rows):
        tint, left = colour(fmt), fmt.emin - fmt.trailing_bits
        ax.barh(row, fmt.emax + 1 - fmt.emin, 0.6, fmt.emin, color=tint)
        if fmt.has_subnormals:
            ax.barh(row, fmt.emin - left, 0.6, left, facecolor="white", edgecolor=tint, hatch="//////")
        bits = "1 bit" if fmt.precision == 1 else f"{fmt.precision} bits"
        ax.annotate(bits, (fmt.emax + 1, row), (4, 0), textcoords="offset points", va="center")
    ax.set_yticks(range(len(rows)), [fmt.name for fmt in rows])
    for label, fmt in zip(ax.get_yticklabels(), rows, strict=True):
        label.set(color=colour(fmt), fontweight="bold")
    ax.tick_params(axis="y", length=0)
    ax.use_sticky_edges = False
    ax.margins(x=0.12)
    ax.invert_yaxis()
    ax.xaxis.set_major_formatter(lambda e, _: f"$2^{{{e:.0f}}}$")
    ax.set_xlabel("magnitude (solid: normal, hatched: subnormal); precision in bits")
    ax.spines[["top", "right", "left"]].set_visible(False)
    if title is not None:
        ax.set_title(title)
    return ax


def bit_strip(value: Any, formats: Iterable[FormatLike] | FormatLike = FIVE, *, ax: Axes | None = None) -> Axes:
    """The bits of one number in several formats: sign (black), exponent, trailing significand (pale), and the value.

    Parameters
    ----------
    value : number or str
        What to round (ties to even); a text such as "0.1" is rounded once, from its exact value.
    formats : format or iterable of format
        Top to bottom.
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If `value` is no number, or no format is given.

    Examples
    --------
    >>> from floatsim import plot
    >>> ax = plot.bit_strip("0.1", ["bf16"])
    >>> "".join(text.get_text() for text in ax.texts)
    '00111101110011010.1001'
    """
    from floatsim.conversion import decode, encode

    rows = _several(formats)
    if not rows:
        raise ValueError("formats must name at least one format")
    width = max(fmt.bits for fmt in rows)
    ax = _axes(ax, figsize=(0.3 * width + 3, 0.5 * len(rows) + 0.8))
    for row, fmt in enumerate(rows):
        code = int(encode(value, fmt))
        letters = fmt.layout.replace(" ", "")
        for place, (letter, bit) in enumerate(zip(letters, f"{code:0{fmt.bits}b}", strict=True)):
            tint = {"s": _INK, "e": colour(fmt), "t": _paler(colour(fmt))}[letter]
            ax.add_patch(_cell(place, row, tint))
            ax.text(place + 0.5, row + 0.5, bit, ha="center", va="center", family="monospace",
                    color="white" if _is_dark(tint) else _INK)  # fmt: skip
        shown = float(decode(code, fmt))
        ax.annotate(f"{shown:.{max(2, 3 + fmt.precision * 3 // 10)}g}", (fmt.bits, row + 0.5), (5, 0),
                    textcoords="offset points", va="center")  # fmt: skip
    ax.set(xlim=(0, width * 1.12), ylim=(len(rows), 0), xticks=[])
    ax.set_yticks([row + 0.5 for row in range(len(rows))], [fmt.name for fmt in rows])
    for label, fmt in zip(ax.get_yticklabels(), rows, strict=True):
        label.set(color=colour(fmt), fontweight="bold")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.set_title(f"{value}: sign, exponent, trailing significand")
    return ax


# -- the survey on one slide ---------------------------------------------------------------------------------------


class SurveyLike(Protocol):
    """What `survey_figure` draws; `floatsim.surveys.SurveyReport` is one."""

    @property
    def title(self) -> str: ...
    @property
    def formats(self) -> tuple[FloatFormat, ...]: ...
    @property
    def tensors(self) -> Mapping[str, Any]: ...
    @property
    def products(self) -> tuple[Any, ...]: ...
    def table(self, measure: str, product: str) -> dict[str, dict[str, float | None]]: ...
    def nonfinite_in_words(self, tensor: str) -> str: ...


_SLIDE: dict[Any, Any] = {
    "font.size": 12, "axes.titlesize": 13, "axes.titleweight": "bold", "axes.titlelocation": "left",
    "hatch.linewidth": 0.8,
}  # fmt: skip


def _common_limits(tensors: Mapping[str, Any]) -> tuple[float, float]:
    """Exponents that hold every tensor, with the smallest formats' range in sight."""
    import numpy as np

    exponents = [np.frexp(_nonzero(x))[1] - 1 for x in tensors.values()]
    return min(-12, *(int(e.min()) - 2 for e in exponents)), max(12, *(int(e.max()) + 3 for e in exponents))


def _column(accumulator: str) -> str:
    """An accumulation as the label of a narrow column."""
    if accumulator.startswith("tensorcore("):
        return accumulator.removeprefix("tensorcore(").removesuffix(")").replace(", ", "\n")
    inner = accumulator.removeprefix("sequential(").removesuffix(")") if accumulator[:4] == "sequ" else accumulator
    return inner.replace(", ", ",\n").replace("(", "\n(")


_MOST_LEVEL = 6  # columns whose names have room side by side


@dataclass(frozen=True)
class _Scene:
    """What the lower half of a slide shows: which measure, on which scale, and what is written beside it."""

    measure: str
    limits: tuple[float, float]
    label: str
    about: str


_ERRORS = _Scene(
    "relative_error", (1e-8, 1.0), "relative error (Frobenius norm)",
    "columns: the accumulator (same: the inputs' format); rows: the format of the inputs;   "
    "black: results infinite or NaN though the exact one is finite;   -: not computed",
)  # fmt: skip
_UNITS = _Scene(
    "mean_ulps", (1e-2, 1e4), "mean error (ulps of the result)",
    "columns: the accumulator; rows: the format of the inputs;   "
    "≠: so many results have other bits than in the matrix unit before (=: none);   -: not computed",
)  # fmt: skip


def _draw_products(figure: Any, report: SurveyLike) -> None:
    """A row of heat maps with one colour bar: of errors; of matrix units, how far off and how unlike they are."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LogNorm

    unlike = {p.name: _by_cell(report.table("differs", p.name)) for p in report.products}
    units = any(unlike.values())
    scene = _UNITS if units else _ERRORS
    axes = figure.subplots(1, len(report.products), squeeze=False)[0]
    for ax, product in zip(axes, report.products, strict=True):
        table = {
            row: {_column(column): value for column, value in cells.items()}
            for row, cells in report.table(scene.measure, product.name).items()
        }
        lost = _by_cell(report.table("nonfinite", product.name))
        notes = {cell: f"∞ {_share(share)}" for cell, share in lost.items() if share}
        title = "\n".join(dict.fromkeys([product.name, product.expression]))
        texts = (
            _unit_texts(_by_cell(report.table(scene.measure, product.name)), unlike[product.name]) if units else None
        )
        heatmap(table, ax=ax, title=title, notes=notes, texts=texts, limits=scene.limits, colorbar=False)
        if units:
            for text in ax.texts:
                text.set(fontsize=9, linespacing=1.3)
            for label in ax.get_xticklabels() if len(ax.get_xticks()) > _MOST_LEVEL else []:
                label.set(rotation=40, ha="right", rotation_mode="anchor", fontsize=10)
    mesh = ScalarMappable(LogNorm(*scene.limits), axes[0].collections[0].cmap)
    figure.colorbar(mesh, ax=list(axes), label=scene.label, pad=0.01, aspect=18)
    figure.supxlabel(scene.about, fontsize="medium")


def _by_cell(table: Mapping[str, Mapping[str, float | None]]) -> dict[tuple[str, str], float]:
    """The numbers that there are, by row and column as a heat map names them."""
    return {
        (row, _column(column)): value
        for row, cells in table.items()
        for column, value in cells.items()
        if value is not None
    }


def _unit_texts(
    ulps: Mapping[tuple[str, str], float], unlike: Mapping[tuple[str, str], float]
) -> dict[tuple[str, str], str]:
    """The mean error, and under it how many results the unit before does not share; "=" where it shares all."""
    return {
        cell: f"{_short_number(error)}\n{_unlike(unlike[cell])}" if cell in unlike else _short_number(error)
        for cell, error in ulps.items()
    }


def _short_number(x: float) -> str:
    """At most four letters."""
    if math.isnan(x):
        return "-"
    if x == 0 or 0.01 <= x < 9999.5:
        return f"{x:.0f}" if x == 0 or x >= 9.5 else f"{x:.1g}"
    return "<.01" if x < 0.01 else f"{x:.0e}".replace("e+0", "e").replace("e+", "e")


def _unlike(share: float) -> str:
    if share in (0, 1):
        return "≠100%" if share else "="
    return "≠<1%" if share < 0.01 else f"≠{min(100 * share, 99):.0f}%"


def survey_figure(report: SurveyLike) -> Figure:
    """A survey on one slide: above, the tensors against each format's range; below, the error of each product.

    Parameters
    ----------
    report : SurveyReport
        What `fs.survey` returned.

    Returns
    -------
    Figure
        16:9 for up to three tensors and products; save it with `figure.savefig(path)`.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> report = fs.survey(np.float32([[1, 2], [3, 4]]), np.float32([[1e-5, 1], [1, 1e5]]), formats=["fp16"])
    >>> figure = fs.plot.survey_figure(report)
    >>> [ax.get_title(loc="left") for ax in figure.axes][:3]
    ['a', 'b', 'a @ b']
    """
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.patches import Patch

    with matplotlib.rc_context(_SLIDE):
        wide = max(3, len(report.tensors), len(report.products))
        figure = Figure(figsize=(16 * wide / 3, 9), dpi=120, layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.06))
        figure.suptitle(report.title, fontsize=18, fontweight="bold", x=0.01, ha="left")
        grid = figure.add_gridspec(2, 1, height_ratios=[1.12, 1])
        above, below = (figure.add_subfigure(grid[row]) for row in range(2))
        limits = _common_limits(report.tensors)
        axes = above.subplots(1, len(report.tensors), squeeze=False)[0]
        for ax, (name, x) in zip(axes, report.tensors.items(), strict=True):
            without = f" (without {words})" if (words := report.nonfinite_in_words(name)) else ""
            exponent_histogram(x, report.formats, ax=ax, title=name + without, limits=limits)
        kinds: dict[str, dict[str, Any]] = {
            "normal numbers": {"color": "#666666"},
            "subnormal: fewer bits": {"facecolor": "white", "edgecolor": "#666666", "hatch": "//////"},
            "lost: rounded to zero, or overflow": {"color": LOST_COLOUR},
            "band: the format's range": {"color": "#666666", "alpha": 0.2},
        }
        above.legend(handles=[Patch(**style, label=label) for label, style in kinds.items()],
                     loc="outside upper left", ncols=len(kinds), frameon=False, alignment="left",
                     title="How many of the non-zero numbers lie in each power of two, format by format")  # fmt: skip
        _draw_products(below, report)
    return figure
