"""The picture of one operation step by step: the bits of every step, with the binary points in one column."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floatsim.analysis.explain_operation import BitRow, ExplainedOperation, OperationStep
from floatsim.plot.style import HEADING, fitting_size, keep_beside, new_axes, palette, shrink, titled, width_in_points
from floatsim.plot.traces import MOST_DIGITS, draw_bit, number_places, tint_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Annotation

__all__ = ["draw"]

_MOST_PLACES = 64  # behind the point; more are drawn as an ellipsis
_HEAD = 1.2  # space above the rows of a step, in rows
_MINUS = "\N{MINUS SIGN}"
_TEXT = 0.72  # the largest font size, in rows
_OUT = 38  # points from the beginning of a heading to the Axes


def draw(told: ExplainedOperation, ax: Axes | None) -> Axes:
    """Draw an operation; see `ExplainedOperation.plot`.

    >>> import floatsim as fs
    >>> draw(fs.explain_multiply(1.5, 1.75, "e4m3"), None).get_xlabel()
    'place of each bit, times the power of two of its row'
    """
    rows = [row for step in told.steps for row in step.rows]
    if not rows:
        raise ValueError(f"{told.equation} has no bits to draw: {told.steps[1].words}")
    top, places = max(row.first for row in rows), min(max(row.places for row in rows), _MOST_PLACES)
    height = sum(len(step.rows) + _HEAD for step in told.steps)
    from matplotlib import rcParams

    letters = rcParams["font.size"] / 10
    ax = new_axes(ax, figsize=(0.23 * (top + places + 1) + 5.6 * letters, 0.3 * height + 1.1 * letters))
    frame = ax.get_window_extent()
    row_size = _TEXT * 72 * frame.height / ax.figure.dpi / height
    size = min(fitting_size("", row_size, "small"), row_size)
    y, labels, headings, notes = 0.0, {}, [], []
    for number, step in enumerate(told.steps, 1):
        heading = ax.annotate(
            f"{number}. {step.name}: {_brief(step)}", (0, y + 0.65), (-_OUT, 0), ("axes fraction", "data"),
            textcoords="offset points", va="center", fontsize=size, color=palette(ax).ink, fontweight="bold",
        )  # fmt: skip
        heading.set_in_layout(False)  # it begins above the names of rows and ends above the notes
        headings.append(heading)
        y += _HEAD
        for row in step.rows:
            notes.append(_draw_row(ax, told, row, y, top, places, size))
            labels[y + 0.5] = row.name
            y += 1
    ax.set(xlim=(top + 2, -places), ylim=(y + 0.15, 0))
    ax.set_yticks(list(labels), list(labels.values()), fontsize=min(fitting_size("", row_size), row_size))
    ax.tick_params(axis="y", length=0)
    number_places(ax, top, -places - 1)
    ax.set_xlabel("place of each bit, times the power of two of its row", loc="left")
    ax.spines[["top", "right", "left"]].set_visible(False)
    keep_beside(ax, notes)
    titled(ax, f"{told.equation} in {told.format.name}", **HEADING)
    for sign in ax.texts:
        if sign.get_text() == _MINUS:
            sign.set_fontsize(min(sign.get_fontsize(), 0.6 * width_in_points(ax) / (top + places + 2)))
    shrink(headings, ax.figure.bbox.x1 - ax.get_window_extent().x0 + (_OUT - 4) * ax.figure.dpi / 72)
    return ax


def _brief(step: OperationStep) -> str:
    """The words of a step that fit above its rows."""
    return step.words if step.name == "result" else step.words.partition(";")[0]


def _draw_row(
    ax: Axes, told: ExplainedOperation, row: BitRow, y: float, top: int, places: int, size: float
) -> Annotation:
    """Draw one row: its sign, its bits, the binary point and the end of the kept bits. Return the note beside it."""
    colours = palette(ax)
    strong = tint_of(told.format, colours)
    digits = top + places <= MOST_DIGITS
    if row.sign:
        ax.text(
            row.first + 1.5, y + 0.5, _MINUS, ha="center", va="center", color=strong, fontweight="bold",
            fontsize=size,
        )  # fmt: skip
    for place, bit in zip(range(row.first, -places - 1, -1), row.bits, strict=False):
        lost = row.kept is not None and place < -row.kept
        draw_bit(ax, place, int(bit), y, colours.lost if lost else strong, digits)
    ax.plot([0], [y + 0.86], "o", ms=3, color=colours.ink, zorder=4)  # the binary point
    note = row.note
    if row.kept is not None:
        if told.rounding is not None:
            note = f"guard bit {told.rounding.guard}, sticky bit {told.rounding.sticky}"
        ax.plot([-row.kept, -row.kept], [y, y + 1], color=colours.lost, lw=2, ls=(0, (3, 1.5)), zorder=4)
    more = "… " if row.places > places else ""
    return ax.annotate(
        f"{more}$\\times\\ 2^{{{row.exponent}}}$   {note}", (1, y + 0.5), (4, 0), ("axes fraction", "data"),
        textcoords="offset points", va="center", fontsize=size, color=colours.ink,
    )  # fmt: skip
