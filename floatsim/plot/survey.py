"""The picture of a survey, in the shape of a slide."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from floatsim.formats import FloatFormat
from floatsim.plot.heatmaps import heatmap
from floatsim.plot.ranges import exponent_histogram
from floatsim.plot.style import in_percent, palette

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["SurveyLike", "survey_figure"]


class SurveyLike(Protocol):
    """The attributes of a survey that `survey_figure` reads; `fs.survey` returns one."""

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
    """Limits of the exponents of all tensors, wide enough to show the range of the smallest formats."""
    import numpy as np

    from floatsim.analysis.conversion_losses import finite_nonzero

    exponents = [np.frexp(finite_nonzero(x))[1] - 1 for x in tensors.values()]
    return min(-12, *(int(e.min()) - 2 for e in exponents)), max(12, *(int(e.max()) + 3 for e in exponents))


def _column(accumulator: str) -> str:
    """An accumulation as the label of a narrow column."""
    if accumulator.startswith("tensorcore("):
        return accumulator.removeprefix("tensorcore(").removesuffix(")").replace(", ", "\n")
    inner = accumulator.removeprefix("sequential(").removesuffix(")") if accumulator[:4] == "sequ" else accumulator
    return inner.replace(", ", ",\n").replace("(", "\n(")


_MOST_LEVEL = 6  # more columns have slanted names


@dataclass(frozen=True)
class _Scene:
    """The lower half of a slide: the measure, the limits of its scale, the label of the scale, and a caption."""

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
    "≠: share of results whose bits differ from those of the column before (=: none);   -: not computed",
)  # fmt: skip


def _draw_products(figure: Any, report: SurveyLike) -> None:
    """Draw a row of heat maps with one colour bar: of errors or, for matrix units, of errors and differing bits."""
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
        notes = {cell: f"∞ {in_percent(share)}" for cell, share in lost.items() if share}
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
    """The numbers of a table that are not None, keyed by row and column as the heat map names them."""
    return {
        (row, _column(column)): value
        for row, cells in table.items()
        for column, value in cells.items()
        if value is not None
    }


def _unit_texts(
    ulps: Mapping[tuple[str, str], float], unlike: Mapping[tuple[str, str], float]
) -> dict[tuple[str, str], str]:
    """The mean error and, below it, the share of results that differ from the unit before; "=" if none does."""
    return {
        cell: f"{_short_number(error)}\n{_unlike(unlike[cell])}" if cell in unlike else _short_number(error)
        for cell, error in ulps.items()
    }


def _short_number(x: float) -> str:
    """A number in at most four letters."""
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
    """Draw a survey on one slide: above, the tensors against each format's range; below, the error of each product.

    Parameters
    ----------
    report : SurveyReport
        The result of `fs.survey`.

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
        colours, grey = palette(axes[0]), "#808080"
        kinds: dict[str, dict[str, Any]] = {
            "normal numbers": {"color": grey},
            "subnormal: fewer bits": {"facecolor": colours.background, "edgecolor": grey, "hatch": "//////"},
            "flushed to zero, or overflow": {"color": colours.lost},
            "band: the format's range": {"color": grey, "alpha": 0.2},
        }
        above.legend(handles=[Patch(**style, label=label) for label, style in kinds.items()],
                     loc="outside upper left", ncols=len(kinds), frameon=False, alignment="left",
                     title="Share of the non-zero numbers in each power of two, for each format")  # fmt: skip
        _draw_products(below, report)
    return figure
