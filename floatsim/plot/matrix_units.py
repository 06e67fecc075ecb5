"""Pictures of matrix units: one dot product on several architectures, and the part of a small term that each keeps.

The picture of a single trace is `Trace.plot`, in `floatsim.plot.traces`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from floatsim.formats import FormatLike
from floatsim.plot.style import CUSTOM_COLOUR, HEADING, Palette, new_axes, palette, titled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from floatsim.analysis.trace.trace import Trace

__all__ = ["side_by_side", "width_map"]

_MOST_PLACES = 44  # below the first bit; the text beside a row has the exact error


def side_by_side(traces: Mapping[str, Trace], *, ax: Axes | None = None, title: str | None = None) -> Axes:
    """Draw the results of several matrix units for one dot product, bit by bit, below the exact sum.

    Bits that differ from the exact sum's are black (white on a dark background); a wrong 0 has a frame. A dashed line
    marks the last place that the unit keeps of its terms, in the coarsest of its blocks.

    Parameters
    ----------
    traces : mapping of name to Trace
        Results of `fs.tensorcore.trace`, all with the same exact sum.
    ax : Axes, optional
        Axes to draw into. Default: a new figure.
    title : str, optional
        Title of the picture.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If there is no trace, or the exact sums differ, or the exact sum is zero, infinite or NaN.

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
            "traces must have one dot product; their exact sums are "
            + ", ".join(f"{name}: {'none' if t.exact is None else number(t.exact)}" for name, t in traces.items())
        )
    top, last = leading_bit(exact) if exact is not None else None, lowest_bit(exact) if exact is not None else None
    if exact is None or top is None or last is None:
        raise ValueError("the exact sum must be a number that is not zero; Trace.plot draws infinities and NaN")
    firsts = [place for t in traces.values() if (place := leading_bit(t.value)) is not None]
    top = max([top, *firsts])
    bottom = max(min(last, *(_cut(t, last) for t in traces.values())), top - _MOST_PLACES) - 1
    width = top - bottom + 1
    ax = new_axes(ax, figsize=(0.24 * width + 4.8, 0.36 * len(traces) + 1.9))

    colours = palette(ax)
    whole = colours.format(next(iter(traces.values())).formats[0])
    for place, bit in places_of(exact, top, max(last, bottom + 1)):
        draw_bit(ax, place, bit, 0, whole)
    _note(ax, 0, number(exact), colours, bold=True)
    for row, trace in enumerate(traces.values(), 1):
        tint = _tint(trace, colours)
        if isinstance(trace.value, Fraction):
            end = _last_place(trace, top)
            for place, bit in places_of(trace.value, top, max(end, bottom + 1)):
                if bit == int(abs(exact) // Fraction(2) ** place % 2):
                    draw_bit(ax, place, bit, row, tint)
                else:
                    _draw_wrong(ax, place, bit, row, colours)
        cut = _cut(trace, bottom + 1)
        if bottom < cut <= top and any(block.exponent is not None for block in trace.blocks):
            ax.plot([cut, cut], [row + 0.02, row + 0.98], color=colours.lost, lw=2, ls=(0, (2, 1)), zorder=4)
        error = trace.error
        off = "" if error is None else f"off by {float(error):+.1e}" if error else "exact"
        _note(ax, row, f"{number(trace.value):<15} {off}".rstrip(), colours)
    ax.axhline(1, color=colours.ink, lw=0.8)
    ax.set(xlim=(top + 1.5, bottom), ylim=(len(traces) + 1.05, -0.05))
    ax.set_yticks([row + 0.5 for row in range(len(traces) + 1)], ["exact", *traces])
    for label, trace in zip(ax.get_yticklabels()[1:], traces.values(), strict=True):
        label.set(color=_tint(trace, colours))
    ax.get_yticklabels()[0].set(fontweight="bold", color=whole)
    ax.tick_params(axis="y", length=0)
    number_places(ax, top, bottom)
    ax.set_xlabel(f"place of each bit ({colours.lost_name}: wrong; dashed: terms are truncated here)")
    ax.spines[["top", "right", "left"]].set_visible(False)
    return titled(ax, title, **HEADING)


def _draw_wrong(ax: Axes, place: int, bit: int, y: float, colours: Palette) -> None:
    """Draw a bit that differs from the exact sum's."""
    from matplotlib.patches import Rectangle

    face = colours.lost if bit else colours.background
    ax.add_patch(
        Rectangle((place + 0.09, y + 0.14), 0.82, 0.72, facecolor=face, edgecolor=colours.lost, linewidth=1.2, zorder=2)
    )
    ax.text(
        place + 0.5, y + 0.52, str(bit), ha="center", va="center", fontsize=7, family="monospace", zorder=3,
        color=colours.on(face),
    )  # fmt: skip


def _tint(trace: Trace, colours: Palette) -> str:
    """The colour of the format to which the unit rounds: FP32's, or that of its coarser internal format."""
    model = trace.instruction.fused
    fmt = trace.format if model is None else model.grid
    return CUSTOM_COLOUR if fmt.name == "FP64" else colours.format(fmt)


def _cut(trace: Trace, otherwise: int) -> int:
    """The exponent of the last place that the coarsest block keeps of its terms."""
    return max((block.quantum for block in trace.blocks if block.quantum is not None), default=otherwise)


def _last_place(trace: Trace, top: int) -> int:
    """The exponent of the last possible bit of D."""
    from floatsim.analysis.trace.steps import leading_bit

    model = trace.instruction.fused
    grid = trace.format if model is None else model.grid
    first = leading_bit(trace.value)
    return max(top if first is None else first, grid.emin) - grid.trailing_bits


def _note(ax: Axes, row: float, words: str, colours: Palette, bold: bool = False) -> None:
    ax.annotate(
        words, (1, row + 0.5), (6, 0), ("axes fraction", "data"), textcoords="offset points", va="center",
        fontsize="small", color=colours.ink, fontweight="bold" if bold else "normal", family="monospace",
    )  # fmt: skip


def width_map(
    shares: Mapping[str, Any],
    gaps: Sequence[int],
    *,
    ax: Axes | None = None,
    title: str | None = None,
    formats: Mapping[str, FormatLike] | None = None,
) -> Axes:
    """Draw the part of a small term that is left beside a large one: a row per accumulation, a column per gap.

    Solid: all of it. Paler, with the share in percent: bits were truncated, or the term was rounded up. Black (white on
    a dark background): nothing. Empty: the format has no products with this gap.

    Parameters
    ----------
    shares : mapping of name to array_like of numbers, (len(gaps),)
        The results of `fs.reveal_width`.
    gaps : sequence of int
        The powers of two between the two terms.
    ax : Axes, optional
        Axes to draw into. Default: a new figure.
    title : str, optional
        Title of the picture.
    formats : mapping of name to format, optional
        The format whose colour a row has. Default: the colour of text.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If there are no rows, or the length of a row is not the number of gaps.

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
    colours = palette(ax)
    tints = {name: colours.format(formats[name]) if formats and name in formats else colours.ink for name in rows}
    for y, (name, row) in enumerate(rows.items()):
        strong = tints[name]
        for x, share in enumerate(row.tolist()):
            if np.isnan(share):
                continue
            tint = colours.lost if share == 0 else strong if share == 1 else colours.paler(strong)
            height = 0.84 if share else 0.18
            ax.add_patch(Rectangle((x + 0.04, y + 0.5 - height / 2), 0.92, height, facecolor=tint, linewidth=0))
            if share not in (0, 1):
                ax.text(x + 0.5, y + 0.52, f"{100 * share:.0f}", ha="center", va="center", fontsize=7,
                        color=colours.on(tint))  # fmt: skip
    ax.set(xlim=(0, len(places)), ylim=(len(rows), 0))
    ax.set_yticks(np.arange(len(rows)) + 0.5, list(rows))
    for label, name in zip(ax.get_yticklabels(), rows, strict=True):
        label.set(color=tints[name])
    step = 1 if len(places) <= 16 else 2
    ax.set_xticks(np.arange(0, len(places), step) + 0.5, [f"{gap}" for gap in places[::step]])
    ax.tick_params(axis="y", length=0)
    ax.tick_params(axis="x", length=2)
    ax.set_xlabel(
        "the small term is this many powers of two below the large one\n"
        f"(solid: all of it is left; numbers: the part left, in %; {colours.lost_name}: nothing)"
    )
    ax.spines[["top", "right", "left"]].set_visible(False)
    return titled(ax, title, **HEADING)
