"""Pictures of matrix units: architectures side by side on one dot product, and how much of a small term each keeps.

The picture of a single trace is `Trace.plot`, in `floatsim.plot.traces`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from floatsim.formats import FormatLike, as_format
from floatsim.plot.style import (
    CUSTOM_COLOUR,
    HEADING,
    INK,
    LOST_COLOUR,
    colour,
    is_dark,
    new_axes,
    paler,
    titled,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from floatsim.analysis.trace.trace import Trace

__all__ = ["side_by_side", "width_map"]

_MOST_PLACES = 44  # below the first bit; what lies deeper is told by the note


def side_by_side(traces: Mapping[str, Trace], *, ax: Axes | None = None, title: str | None = None) -> Axes:
    """One dot product by several matrix units: the exact sum bit by bit, and below it what each of them made of it.

    Bits of a result that are not the exact sum's are black, a wrong 0 in a black frame. A dashed line stands behind the
    last place that the unit keeps of its terms (of the coarsest of its blocks).

    Parameters
    ----------
    traces : mapping of name to Trace
        Of `fs.tensorcore.trace`; all of one exact sum.
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
        If there is no trace, or their exact sums differ or are no numbers or zero.

    Examples
    --------
    >>> import floatsim as fs
    >>> x, y = fs.array([3.0, 2.0**-10], "fp16"), fs.array([1.0, 2.0**-14], "fp16")
    >>> traces = {unit: fs.tensorcore.trace(x, y, accumulate=unit) for unit in ("volta", "hopper")}
    >>> ax = fs.plot.side_by_side(traces)
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['exact', 'volta', 'hopper']
    """
    from fractions import Fraction

    from floatsim.analysis.trace.steps import leading_bit, lowest_bit
    from floatsim.analysis.trace.text import number
    from floatsim.plot.traces import draw_bit, number_places, places_of

    if not traces:
        raise ValueError("traces must hold at least one trace")
    sums = {trace.exact for trace in traces.values()}
    exact = next(iter(sums))
    if len(sums) > 1:
        raise ValueError(
            "traces must be of one dot product; their exact sums are "
            + ", ".join(f"{name}: {'none' if t.exact is None else number(t.exact)}" for name, t in traces.items())
        )
    top, last = leading_bit(exact) if exact is not None else None, lowest_bit(exact) if exact is not None else None
    if exact is None or top is None or last is None:
        raise ValueError("the exact sum must be a number that is not zero; traces show what infinities and NaN do")
    firsts = [place for t in traces.values() if (place := leading_bit(t.value)) is not None]
    top = max([top, *firsts])
    bottom = max(min(last, *(_cut(t, last) for t in traces.values())), top - _MOST_PLACES) - 1
    width = top - bottom + 1
    ax = new_axes(ax, figsize=(0.24 * width + 4.8, 0.36 * len(traces) + 1.9))

    whole = colour(next(iter(traces.values())).formats[0])
    for place, bit in places_of(exact, top, max(last, bottom + 1)):
        draw_bit(ax, place, bit, 0, whole)
    _note(ax, 0, number(exact), bold=True)
    for row, trace in enumerate(traces.values(), 1):
        tint = _tint(trace)
        if isinstance(trace.value, Fraction):
            end = _last_place(trace, top)
            for place, bit in places_of(trace.value, top, max(end, bottom + 1)):
                if bit == int(abs(exact) // Fraction(2) ** place % 2):
                    draw_bit(ax, place, bit, row, tint)
                else:
                    _draw_wrong(ax, place, bit, row)
        cut = _cut(trace, bottom + 1)
        if bottom < cut <= top and any(block.exponent is not None for block in trace.blocks):
            ax.plot([cut, cut], [row + 0.02, row + 0.98], color=LOST_COLOUR, lw=2, ls=(0, (2, 1)), zorder=4)
        error = trace.error
        off = "" if error is None else f"off by {float(error):+.1e}" if error else "exact"
        _note(ax, row, f"{number(trace.value):<15} {off}".rstrip())
    ax.axhline(1, color=INK, lw=0.8)
    ax.set(xlim=(top + 1.5, bottom), ylim=(len(traces) + 1.05, -0.05))
    ax.set_yticks([row + 0.5 for row in range(len(traces) + 1)], ["exact", *traces])
    for label, trace in zip(ax.get_yticklabels()[1:], traces.values(), strict=True):
        label.set(color=_tint(trace))
    ax.get_yticklabels()[0].set(fontweight="bold", color=whole)
    ax.tick_params(axis="y", length=0)
    number_places(ax, top, bottom)
    ax.set_xlabel("place of each bit (black: wrong; dashed: terms are cut off here)")
    ax.spines[["top", "right", "left"]].set_visible(False)
    return titled(ax, title, **HEADING)


def _draw_wrong(ax: Axes, place: int, bit: int, y: float) -> None:
    """A bit that is not the exact sum's."""
    from matplotlib.patches import Rectangle

    face = LOST_COLOUR if bit else "white"
    ax.add_patch(
        Rectangle((place + 0.09, y + 0.14), 0.82, 0.72, facecolor=face, edgecolor=LOST_COLOUR, linewidth=1.2, zorder=2)
    )
    ax.text(
        place + 0.5, y + 0.52, str(bit), ha="center", va="center", fontsize=7, family="monospace", zorder=3,
        color="white" if bit else LOST_COLOUR,
    )  # fmt: skip


def _tint(trace: Trace) -> str:
    """The colour of what the unit rounds to: FP32's, or that of the coarser grid within."""
    model = trace.instruction.fused
    fmt = trace.format if model is None else model.grid
    return CUSTOM_COLOUR if fmt.name == "FP64" else colour(fmt)


def _cut(trace: Trace, otherwise: int) -> int:
    """The exponent of the last place that is kept of the terms of the coarsest block."""
    return max((block.quantum for block in trace.blocks if block.quantum is not None), default=otherwise)


def _last_place(trace: Trace, top: int) -> int:
    """The exponent of the last bit that D can have."""
    from floatsim.analysis.trace.steps import leading_bit

    model = trace.instruction.fused
    grid = trace.format if model is None else model.grid
    first = leading_bit(trace.value)
    return max(top if first is None else first, grid.emin) - grid.trailing_bits


def _note(ax: Axes, row: float, words: str, bold: bool = False) -> None:
    ax.annotate(
        words, (1, row + 0.5), (6, 0), ("axes fraction", "data"), textcoords="offset points", va="center",
        fontsize="small", color=INK, fontweight="bold" if bold else "normal", family="monospace",
    )  # fmt: skip


def width_map(
    shares: Mapping[str, Any],
    gaps: Sequence[int],
    *,
    ax: Axes | None = None,
    title: str | None = None,
    formats: Mapping[str, FormatLike] | None = None,
) -> Axes:
    """How much of a small term is left beside a large one: a row for each way to add, a column for each gap.

    Solid: all of it. Paler, with the share in percent: bits were cut off, or it was rounded up. Black: nothing.
    Empty: the format has no products so far apart.

    Parameters
    ----------
    shares : mapping of name to array_like of numbers, (len(gaps),)
        What `fs.reveal_width` gives.
    gaps : sequence of int
        The powers of two between the two terms.
    ax : Axes, optional
        Where to draw; a new figure by default.
    title : str, optional
        Above the picture.
    formats : mapping of name to format, optional
        Whose colours the rows have; ink where none is given.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If there are no rows, or one has not as many numbers as there are gaps.

    Examples
    --------
    >>> import floatsim as fs
    >>> gaps = range(9, 16)
    >>> ax = fs.plot.width_map({"Hopper, FP8": fs.reveal_width("hopper", gaps, format="e4m3")}, gaps)
    >>> [text.get_text() for text in ax.texts]
    ['93', '80', '53']
    """
    import numpy as np
    from matplotlib.patches import Rectangle

    places = list(gaps)
    rows = {name: np.asarray(row, np.float64) for name, row in shares.items()}
    if not rows or not places:
        raise ValueError("shares must hold at least one row, and gaps one number")
    for name, row in rows.items():
        if row.shape != (len(places),):
            raise ValueError(f"shares[{name!r}] has the shape {row.shape}; there are {len(places)} gaps")
    ax = new_axes(ax, figsize=(0.3 * len(places) + 3.4, 0.36 * len(rows) + 1.9))
    for y, (name, row) in enumerate(rows.items()):
        strong = colour(as_format(formats[name])) if formats and name in formats else INK
        for x, share in enumerate(row.tolist()):
            if np.isnan(share):
                continue
            tint: Any = LOST_COLOUR if share == 0 else strong if share == 1 else paler(strong)
            height = 0.84 if share else 0.18
            ax.add_patch(Rectangle((x + 0.04, y + 0.5 - height / 2), 0.92, height, facecolor=tint, linewidth=0))
            if share not in (0, 1):
                ax.text(x + 0.5, y + 0.52, f"{100 * share:.0f}", ha="center", va="center", fontsize=7,
                        color="white" if is_dark(tint) else INK)  # fmt: skip
    ax.set(xlim=(0, len(places)), ylim=(len(rows), 0))
    ax.set_yticks(np.arange(len(rows)) + 0.5, list(rows))
    for label, name in zip(ax.get_yticklabels(), rows, strict=True):
        if formats and name in formats:
            label.set(color=colour(as_format(formats[name])))
    step = 1 if len(places) <= 16 else 2
    ax.set_xticks(np.arange(0, len(places), step) + 0.5, [f"{gap}" for gap in places[::step]])
    ax.tick_params(axis="y", length=0)
    ax.tick_params(axis="x", length=2)
    ax.set_xlabel("the small term lies this many powers of two below the large one\n"
                  "(solid: all of it is left; numbers: how much, in %; black: nothing)")  # fmt: skip
    ax.spines[["top", "right", "left"]].set_visible(False)
    return titled(ax, title, **HEADING)
