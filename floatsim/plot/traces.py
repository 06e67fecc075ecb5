"""The picture of a trace: the bits of every term on one axis of exponents, and the place where they are truncated."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from floatsim.analysis.trace.steps import TracedBlock, TracedDot, TracedTerm, Value, leading_bit, lowest_bit, power
from floatsim.analysis.trace.sums import SumTrace, TracedRounding
from floatsim.analysis.trace.text import heading, number, partial_name, rounding_text, sum_quantum
from floatsim.formats import FP64, FloatFormat
from floatsim.plot.style import CUSTOM_COLOUR, HEADING, Palette, new_axes, palette, titled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["MOST_DIGITS", "draw", "draw_bit", "draw_roundings", "number_places", "places_of", "tint_of"]

_MOST_ROWS, _MOST_COLUMNS, MOST_DIGITS = 48, 110, 56  # with more columns than the last, bits have no digits
_MOST_ROUNDINGS = 40
_BELOW = 14  # columns to the right of the last truncation


@dataclass(frozen=True)
class _Row:
    """A row of the picture: a number with its bits from `first` to `last`. Those below `cut` are drawn as lost."""

    label: str
    value: Value
    note: str
    format: FloatFormat
    first: int | None = None
    last: int | None = None
    cut: int | None = None
    ruled: bool = False


@dataclass(frozen=True)
class _Panel:
    """The rows of one block, and the exponents between which it keeps bits."""

    title: str
    rows: list[_Row]
    exponent: int | None
    quantum: int | None

    @property
    def head(self) -> float:
        """Space above the rows, in rows: for the title, and for the number of bits kept."""
        return 0.95 if self.quantum is None else 1.6


def draw(trace: TracedDot, ax: Axes | None, blocks: Any) -> Axes:
    """Draw a trace; see `Trace.plot`.

    >>> import floatsim as fs
    >>> trace = fs.tensorcore.trace([1.0], [1.0], accumulate="ampere")
    >>> trace.blocks[0].normalised, draw(trace, None, None).get_xlabel()
    (0, 'place of each bit')
    """
    panels = [_panel(trace, block) for block in _chosen(trace, blocks)]
    ax = _draw_panels(panels, ax)
    if len(panels) < len(trace.blocks):
        ax.set_xlabel(
            f"{ax.get_xlabel()} ({len(panels)} of {len(trace.blocks)} blocks drawn; choose others with blocks=)"
        )
    _title(ax, trace)
    ours, theirs = trace.formats[0], trace.format
    kinds = {f"{ours} products": ours, "accumulator, sum and D": theirs}
    _legend(ax, kinds, "truncated, or lost in a rounding")
    return ax


def draw_roundings(trace: SumTrace, ax: Axes | None) -> Axes:
    """Draw the trace of a sum; see `SumTrace.plot`.

    >>> import floatsim as fs
    >>> trace = fs.tensorcore.trace([1.0], [1.0], accumulate="exact(fp32)")
    >>> draw_roundings(trace, None).get_title(loc="left")
    'exact(fp32): 1'
    """
    chosen = trace.roundings[:_MOST_ROUNDINGS]
    if not chosen:
        raise ValueError("the trace has no rounding to draw: K is 0")
    ax = _draw_panels([_Panel("", list(map(_rounding_row, chosen)), None, None)], ax)
    if len(chosen) < len(trace.roundings):
        ax.set_xlabel(f"{ax.get_xlabel()} ({len(chosen)} of {len(trace.roundings)} roundings drawn)")
    titled(ax, f"{trace.accumulation}: {number(trace.value)}", **HEADING)
    formats = dict.fromkeys(each.format for each in chosen)
    _legend(ax, {f"exact result, rounded to {fmt}": fmt for fmt in formats}, "lost in the rounding")
    return ax


def _rounding_row(rounding: TracedRounding) -> _Row:
    fmt, exact = rounding.format, rounding.exact
    value: Value = rounding.value if exact is None else exact
    first = leading_bit(value)
    cut = None if first is None else max(first, fmt.emin) - fmt.trailing_bits
    part = f"{rounding.part}: " if rounding.part else ""
    note = ", ".join([number(rounding.value), *rounding.events])
    return _Row(f"{part}k = {rounding.k}: {rounding.name}", value, note, fmt, first, lowest_bit(value), cut)


def _draw_panels(panels: Sequence[_Panel], ax: Axes | None) -> Axes:
    """Draw panels below each other, on one axis of exponents."""
    top, bottom = _places(panels)
    height = sum(len(panel.rows) + panel.head for panel in panels)
    ax = new_axes(ax, figsize=(0.21 * (top - bottom + 1) + 4.6, 0.3 * height + 1.5))
    colours = palette(ax)
    y = 0.0
    ticks: dict[float, _Row] = {}
    for panel in panels:
        y += panel.head
        _draw_panel(ax, panel, y, top, bottom, colours)
        ticks |= {y + i + 0.5: row for i, row in enumerate(panel.rows)}
        y += len(panel.rows)
    ax.set(xlim=(top + 2, bottom), ylim=(y + 0.15, 0))
    ax.set_yticks(list(ticks), [row.label for row in ticks.values()])
    for label, row in zip(ax.get_yticklabels(), ticks.values(), strict=True):
        label.set(color=tint_of(row.format, colours), fontweight="bold" if row.ruled else "normal")
    ax.tick_params(axis="y", length=0)
    number_places(ax, top, bottom)
    ax.spines[["top", "right", "left"]].set_visible(False)
    return ax


def _chosen(trace: TracedDot, blocks: Any) -> list[TracedBlock]:
    """The chosen blocks, or the first ones that fit."""
    there = trace.blocks
    if not there:
        raise ValueError("the trace has no block to draw: K is 0")
    if blocks is not None:
        asked = [operator.index(i) for i in (blocks if isinstance(blocks, Iterable) else [blocks])]
        for i in asked:
            if not -len(there) <= i < len(there):
                raise ValueError(f"blocks={i}: the trace has {len(there)}, numbered from 0")
        return [there[i] for i in asked]
    rows = 0
    chosen: list[TracedBlock] = []
    for block in there:
        rows += len([term for term in block.terms if term.value != 0]) + 4
        if chosen and rows > _MOST_ROWS:
            break
        chosen.append(block)
    return chosen


# -- rows and panels -------------------------------------------------------------------------------------------------


def _panel(trace: TracedDot, block: TracedBlock) -> _Panel:
    ours, theirs = trace.formats[0], trace.format
    shown = [term for term in block.terms if term.value != 0]
    rows = [_term_row(term, theirs if term.k is None else ours) for term in shown]
    for ks, value in block.partials:
        if value != 0:
            rows.append(
                _Row(
                    partial_name(ks, trace.length), value, number(value), theirs, leading_bit(value), lowest_bit(value)
                )
            )
    if block.total is not None:
        last = lowest_bit(block.total) if block.quantum is None else sum_quantum(block)
        rows.append(
            _Row(
                "sum", block.total, number(block.total), theirs, block.normalised, last, _last_place(trace, block), True
            )
        )
    name, note = ("D", _result(trace)) if block is trace.blocks[-1] else ("acc", number(block.value))
    rows.append(_Row(name, block.value, note, theirs, leading_bit(block.value), _last_place(trace, block), ruled=True))
    zeros = len(block.terms) - len(shown) + block.padding
    title = heading(block, trace) + (f"  ({zeros} {'terms are' if zeros > 1 else 'term is'} zero)" if zeros else "")
    return _Panel(title, rows, block.exponent, block.quantum)


def tint_of(fmt: FloatFormat, colours: Palette) -> str:
    """The format's colour, except for FP64, because black marks lost bits here."""
    return CUSTOM_COLOUR if fmt == FP64 else colours.format(fmt)


def _result(trace: TracedDot) -> str:
    shown = number(trace.value)
    if trace.exact is None or not trace.error:
        return shown
    exactly = number(trace.exact)
    return f"{shown}  (exactly {exactly})" if exactly != shown else f"{shown}  (off by {number(trace.error)})"


def _term_row(term: TracedTerm, fmt: FloatFormat) -> _Row:
    note = number(term.value)
    if term.bits_lost:
        note += ": all lost" if not term.kept else f": {term.bits_lost} bit{'s' * (term.bits_lost > 1)} lost"
    return _Row(term.name, term.value, note, fmt, leading_bit(term.value), lowest_bit(term.value), term.quantum)


def _last_place(trace: TracedDot, block: TracedBlock) -> int | None:
    """The exponent of D's last bit."""
    model, fmt = trace.instruction.fused, trace.format
    grid: FloatFormat = fmt if model is None or not block.ks else model.grid
    first = leading_bit(block.value)
    return None if first is None else max(first, grid.emin) - grid.trailing_bits


def _places(panels: Sequence[_Panel]) -> tuple[int, int]:
    """The highest and the lowest place of the picture."""
    rows = [row for panel in panels for row in panel.rows]
    cuts = [panel.quantum for panel in panels if panel.quantum is not None]
    tops = [row.first for row in rows if row.first is not None] + [p.exponent for p in panels if p.exponent is not None]
    ends = [row.last for row in rows if row.last is not None and not row.ruled]
    top = max(tops, default=0)
    lowest = min([*ends, *cuts], default=top)
    if cuts:
        lowest = max(lowest, min(cuts) - _BELOW)
    return top, max(min(lowest - 1, top - 8), top - _MOST_COLUMNS)


# -- drawing ---------------------------------------------------------------------------------------------------------


def _draw_panel(ax: Axes, panel: _Panel, y: float, top: int, bottom: int, colours: Palette) -> None:
    digits = top - bottom <= MOST_DIGITS
    ax.annotate(
        panel.title, (0, y + 0.65 - panel.head), xycoords=("axes fraction", "data"), va="center", fontsize="small",
        color=colours.ink, fontweight="bold",
    )  # fmt: skip
    if panel.exponent is not None and panel.quantum is not None:
        _draw_cut(ax, panel, y, colours)
    for i, row in enumerate(panel.rows):
        tint = tint_of(row.format, colours)
        if row.ruled and not panel.rows[i - 1].ruled:
            ax.plot([top + 2, bottom], [y + i, y + i], color=colours.ink, lw=0.8, zorder=3)
        if row.first is not None and row.first > bottom and row.value < 0:
            ax.text(
                row.first + 1.4,
                y + i + 0.5,
                "\N{MINUS SIGN}",
                ha="center",
                va="center",
                color=tint,
                fontweight="bold",
            )
        for place, bit in _bits(row, bottom):
            lost = row.cut is not None and place < row.cut
            draw_bit(ax, place, bit, y + i, colours.lost if lost else tint, digits)
        if row.last is not None and row.last <= bottom and not row.ruled:
            ax.annotate("…", (bottom + 0.5, y + i + 0.5), ha="center", va="center", color=colours.lost)
        ax.annotate(
            row.note, (1, y + i + 0.5), (4, 0), ("axes fraction", "data"), textcoords="offset points", va="center",
            fontsize="small", color=colours.ink, fontweight="bold" if row.ruled else "normal",
        )  # fmt: skip


def _draw_cut(ax: Axes, panel: _Panel, y: float, colours: Palette) -> None:
    """Draw the range of the bits that are kept, their number, and a line at its lower end."""
    from matplotlib.patches import Rectangle

    assert panel.exponent is not None
    assert panel.quantum is not None
    first, last, rows = panel.exponent + 1, panel.quantum, len(panel.rows)
    ax.add_patch(Rectangle((last, y), first - last, rows, facecolor=colours.pale, linewidth=0, zorder=0))
    ax.plot([last, last], [y - 0.75, y + rows], color=colours.lost, lw=2, ls=(0, (3, 1.5)), zorder=4)
    ax.annotate(
        "", (first, y - 0.28), (last, y - 0.28), arrowprops={"arrowstyle": "<->", "color": colours.ink, "lw": 0.9}
    )
    ax.text(
        (first + last) / 2, y - 0.28, f"1 + {panel.exponent - panel.quantum} bits", ha="center", va="center",
        fontsize="small", color=colours.ink, bbox={"facecolor": colours.background, "edgecolor": "none", "pad": 1.5},
    )  # fmt: skip


def _bits(row: _Row, bottom: int) -> Iterator[tuple[int, int]]:
    """The drawn bits of a number, as (place, bit)."""
    if isinstance(row.value, Fraction) and row.first is not None and row.last is not None:
        yield from places_of(row.value, row.first, max(row.last, bottom + 1))


def places_of(value: Fraction, first: int, last: int) -> Iterator[tuple[int, int]]:
    """The bits of a magnitude from the place `first` down to `last`, as (place, bit).

    >>> list(places_of(Fraction(-5, 2), 1, -1))
    [(1, 1), (0, 0), (-1, 1)]
    """
    for place in range(first, last - 1, -1):
        yield place, int(abs(value) // power(place) % 2)


def draw_bit(ax: Axes, place: int, bit: int, y: float, strong: str, digits: bool = True) -> None:
    """Draw one bit as a square in the row that begins at `y`: in the colour `strong` if it is set, paler if not."""
    from matplotlib.patches import Rectangle

    colours = palette(ax)
    tint = strong if bit else colours.paler(strong, 0.28)
    ax.add_patch(Rectangle((place + 0.04, y + 0.1), 0.92, 0.8, facecolor=tint, linewidth=0, zorder=2))
    if digits:
        ax.text(
            place + 0.5, y + 0.52, str(bit), ha="center", va="center", fontsize=7, family="monospace",
            color=colours.on(tint), zorder=3,
        )  # fmt: skip


def number_places(ax: Axes, top: int, bottom: int) -> None:
    """Write powers of two below every fourth place, or every eighth where there are many."""
    step = 4 if top - bottom <= MOST_DIGITS else 8
    places = [place for place in range(bottom + 1, top + 1) if place % step == 0]
    ax.set_xticks([place + 0.5 for place in places], [f"$2^{{{place}}}$" for place in places])
    ax.tick_params(axis="x", length=2)
    ax.set_xlabel("place of each bit")


def _title(ax: Axes, trace: TracedDot) -> None:
    a, b = trace.formats
    inputs = a.name if a == b else f"{a} x {b}"
    grid, _, rounding = rounding_text(trace.instruction, trace.blocks[0]).partition(", ")
    kept = f" as {grid}" if grid != trace.format.name else ""
    model = f"{trace.accumulation.arch} {trace.instruction.name}"
    titled(ax, f"{model}: {inputs}, D in {trace.format}{kept}, {rounding}", **HEADING)


def _legend(ax: Axes, formats: Mapping[str, FloatFormat], lost: str) -> None:
    from matplotlib.patches import Patch
    from matplotlib.transforms import ScaledTranslation

    colours = palette(ax)
    kinds = {name: tint_of(fmt, colours) for name, fmt in formats.items()} | {lost: colours.lost}
    below = ScaledTranslation(0, -0.58, ax.figure.dpi_scale_trans)  # inches: below the axis and its label
    ax.legend(
        [Patch(color=tint) for tint in kinds.values()], list(kinds), loc="upper left", bbox_to_anchor=(0, 0),
        bbox_transform=ax.transAxes + below, ncols=3, frameon=False, fontsize="small", handlelength=1, borderaxespad=0,
    )  # fmt: skip
