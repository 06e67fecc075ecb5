"""Pictures of a training run: exponents of tensors, updates, loss scale, gradient norms, non-finite operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from floatsim.formats import FormatLike, as_format
from floatsim.plot.losses import losses_in_words
from floatsim.plot.style import Palette, in_percent, new_axes, palette, powers_of_two, titled, words_beside

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from floatsim.arrays.events.log import Log
    from floatsim.training.monitoring.statistics import GradientAgreement, TensorStatistics, UpdateStatistics

__all__ = [
    "gradient_agreement", "gradient_norms", "loss_scale", "non_finite_map", "tensor_exponents", "tensor_trace",
    "update_ratios",
]  # fmt: skip

_HEIGHT = 0.62  # of a histogram in its row; the words stand above it


def _rows(ax: Axes, names: Sequence[str], colours: Palette) -> None:
    """Name the rows from the top, and remove the frame."""
    ax.set_yticks([len(names) - 1 - row + _HEIGHT / 2 for row in range(len(names))], list(names))
    ax.tick_params(axis="y", length=0, labelcolor=colours.ink)
    ax.set_ylim(0, len(names))
    ax.spines[["top", "right", "left"]].set_visible(False)


def _words(ax: Axes, row: int, text: str, colours: Palette) -> None:
    ax.annotate(text, (0, row + _HEIGHT), (3, 1), ("axes fraction", "data"), textcoords="offset points", va="bottom",
                fontsize="small", color=colours.ink)  # fmt: skip


def tensor_exponents(
    statistics: Sequence[TensorStatistics],
    format: FormatLike | None = None,
    *,
    ax: Axes | None = None,
    title: str | None = None,
) -> Axes:
    """Draw the exponents of tensors against the range of one format, one row per tensor.

    Solid: normal numbers. Hatched: subnormal. Black (white on a dark background): flushed to zero or beyond the largest
    number. The words above a row are the shares. A tensor without a finite non-zero number has no bars.

    Parameters
    ----------
    statistics : sequence of TensorStatistics
        The results of `fs.training.tensor_statistics`.
    format : format, optional
        One of the formats of the statistics. Default: the first one.
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
        If there are no statistics, or they do not have the format.

    Examples
    --------
    >>> import floatsim as fs
    >>> tensors = {"weight": [0.1, 0.2], "gradient": [1e-9, 1e-6]}
    >>> found = [fs.training.tensor_statistics(x, "fp16", name=name) for name, x in tensors.items()]
    >>> [text.get_text() for text in fs.plot.tensor_exponents(found).texts]
    ['all normal', '50 % flushed to zero, 50 % subnormal']
    """
    import numpy as np

    if not statistics:
        raise ValueError("statistics must hold at least one result of fs.training.tensor_statistics")
    histograms = [each.histogram for each in statistics if each.histogram is not None]
    known = histograms[0].formats if histograms else ()
    chosen = as_format(format) if format is not None else known[0] if known else as_format("fp16")
    if known and chosen not in known:
        raise ValueError(
            f"format={chosen.name} is not in the statistics, which have {', '.join(f.name for f in known)}"
        )
    ax = new_axes(ax, figsize=(7.5, 0.6 * len(statistics) + 1))
    colours = palette(ax)
    tint = colours.format(chosen)
    low, high = chosen.emin - chosen.trailing_bits - 1, chosen.emax + 1
    ax.axvspan(chosen.emin, high, color=tint, alpha=0.12, lw=0)
    ax.axvspan(low, chosen.emin, fc="none", ec=tint, alpha=0.25, hatch="////", lw=0)
    ends = [low, high]
    for row, each in zip(reversed(range(len(statistics))), statistics, strict=True):
        found = each.histogram
        special = "" if each.finite else f"; {each.nans} NaN, {each.infinities} infinite"
        if found is None:
            _words(ax, row, f"no finite non-zero number{special}", colours)
            continue
        at, bottom = known.index(chosen), np.zeros(len(found.exponents))
        hatched: dict[str, Any] = {
            "facecolor": colours.background,
            "edgecolor": tint,
            "hatch": "//////",
            "linewidth": 0.6,
        }
        lost, parts = {"color": colours.lost}, (found.normal, found.subnormal, found.flushed, found.overflowed)
        for numbers, style in zip(parts, ({"color": tint}, hatched, lost, lost), strict=True):
            height = _HEIGHT * numbers[at] / found.numbers.max()
            ax.bar(found.exponents, height, 0.9, row + bottom, align="edge", **style)
            bottom += height
        _words(ax, row, losses_in_words(found.losses[at]) + special, colours)
        ends += [int(found.exponents[0]), int(found.exponents[-1]) + 1]
    _rows(ax, [each.name for each in statistics], colours)
    ax.set_xlim(max(min(ends), low - 40) - 1, min(max(ends), high + 40) + 1)
    powers_of_two(ax)
    ax.set_xlabel(f"magnitude; the band is the range of {chosen.name}, hatched where it is subnormal")
    return titled(ax, title)


def update_ratios(
    statistics: Sequence[UpdateStatistics], *, ax: Axes | None = None, title: str | None = None
) -> Axes:  # fmt: skip
    """Draw the sizes of updates in units of half an ulp of their weights, one row per tensor.

    To the left of the line at 1, updates are below half an ulp: to nearest, they are absorbed. Those bars are black
    (white on a dark background). The words are the absorbed shares.

    Parameters
    ----------
    statistics : sequence of UpdateStatistics
        The results of `fs.training.update_statistics`.
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
        If there are no statistics.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> found = fs.training.update_statistics(fs.array([1.0, 1.0], "bf16"), np.float32([1e-3, 1e-2]), name="w")
    >>> [text.get_text() for text in fs.plot.update_ratios([found]).texts]
    ['50 % absorbed']
    """
    if not statistics:
        raise ValueError("statistics must hold at least one result of fs.training.update_statistics")
    ax = new_axes(ax, figsize=(7.5, 0.6 * len(statistics) + 1))
    colours = palette(ax)
    for row, each in zip(reversed(range(len(statistics))), statistics, strict=True):
        if each.numbers.size:
            tints = [colours.lost if e < 0 else colours.format("bf16") for e in each.exponents]
            ax.bar(each.exponents, _HEIGHT * each.numbers / each.numbers.max(), 0.9, row, align="edge", color=tints)
        _words(ax, row, f"{in_percent(each.absorbed)} absorbed" if each.numbers.size else "no update", colours)
    ax.axvline(0, color=colours.ink, lw=1.2, ls=(0, (4, 2)))
    _rows(ax, [each.name for each in statistics], colours)
    powers_of_two(ax)
    ax.set_xlabel("|update| / (half an ulp of the weight)")
    return titled(ax, title)


def _marked(
    ax: Axes, steps: Sequence[int] | None, values: Sequence[float], marked: Sequence[bool] | None, colours: Palette,
    meaning: str = "skipped",
) -> list[int]:  # fmt: skip
    """Draw a mark below each marked step, and their number with the meaning. Return the steps."""
    numbers = list(range(len(values))) if steps is None else list(steps)
    flags = [False] * len(values) if marked is None else list(marked)
    if not len(numbers) == len(values) == len(flags) or not len(values):
        raise ValueError(
            f"needs as many steps and flags as values, and at least one: {len(numbers)}, {len(flags)}, {len(values)}"
        )
    marks = [step for step, flag in zip(numbers, flags, strict=True) if flag]
    ax.plot(marks, [0.02] * len(marks), "|", color=colours.lost, ms=9, mew=1.4, transform=ax.get_xaxis_transform())
    if marks:
        text = f"{len(marks)} {meaning}"
        ax.annotate(text, (1, 0.02), (4, 0), "axes fraction", textcoords="offset points", va="center", fontsize="small",
                    color=colours.ink, annotation_clip=False)  # fmt: skip
    return numbers


def _over_steps(ax: Axes, ylabel: str, title: str | None) -> Axes:
    """Name the axes of a quantity over the steps, and set the title."""
    ax.set(xlabel="step", ylabel=ylabel)
    ax.spines[["top", "right"]].set_visible(False)
    return titled(ax, title)


def loss_scale(
    scales: Sequence[float], skipped: Sequence[bool] | None = None, *, steps: Sequence[int] | None = None,
    ax: Axes | None = None, title: str | None = None,
) -> Axes:  # fmt: skip
    """Draw the loss scale of each step, on a logarithmic axis to base 2, with marks at skipped steps.

    Parameters
    ----------
    scales : sequence of float
        The scale of each step. A scale of zero or below is drawn at the lower end.
    skipped : sequence of bool, optional
        Whether the step was skipped because of an overflow.
    steps : sequence of int, optional
        The numbers of the steps. Default: from 0.
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
        If there is no step, or the lengths differ.

    Examples
    --------
    >>> from floatsim import plot
    >>> ax = plot.loss_scale([65536.0, 32768.0, 32768.0], [True, False, False])
    >>> [text.get_text() for text in ax.texts]
    ['1 skipped']
    """
    ax = new_axes(ax, figsize=(7.5, 2.8))
    colours = palette(ax)
    numbers = _marked(ax, steps, scales, skipped, colours)
    positive = [scale for scale in scales if scale > 0]
    least = min(positive, default=1.0)
    heights = [scale if scale > 0 else least / 2 for scale in scales]
    ax.step(numbers, heights, where="post", color=colours.format("fp16"))
    ax.set_yscale("log", base=2)
    ax.set_ylim(least / 4, 2 * max(positive, default=1.0))
    return _over_steps(ax, "loss scale", title)


def gradient_norms(
    norms: Sequence[float], skipped: Sequence[bool] | None = None, *, steps: Sequence[int] | None = None,
    ax: Axes | None = None, title: str | None = None,
) -> Axes:  # fmt: skip
    """Draw the gradient norm of each step on a logarithmic axis, with marks at skipped batches.

    Parameters
    ----------
    norms : sequence of float
        The norms. NaN and infinity leave a gap.
    skipped : sequence of bool, optional
        Whether the batch was skipped, as `fs.training.skipped_batches` returns it.
    steps : sequence of int, optional
        The numbers of the steps. Default: from 0.
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
        If there is no step, or the lengths differ.

    Examples
    --------
    >>> from floatsim import plot
    >>> ax = plot.gradient_norms([1.0, 90.0, 1.2], [False, True, False])
    >>> ax.get_ylabel()
    'gradient norm'
    """
    import math

    ax = new_axes(ax, figsize=(7.5, 2.8))
    colours = palette(ax)
    numbers = _marked(ax, steps, norms, skipped, colours)
    heights = [norm if math.isfinite(norm) and norm > 0 else math.nan for norm in norms]
    ax.plot(numbers, heights, color=colours.format("fp32"), lw=1.2)
    spikes = [(x, y) for x, y, flag in zip(numbers, heights, skipped or [False] * len(norms), strict=True) if flag]
    ax.plot([x for x, _ in spikes], [y for _, y in spikes], "o", ms=4, color=colours.lost)
    if any(math.isfinite(height) for height in heights):
        ax.set_yscale("log")
    return _over_steps(ax, "gradient norm", title)


def tensor_trace(
    statistics: Sequence[TensorStatistics], *, ax: Axes | None = None, title: str | None = None
) -> Axes:  # fmt: skip
    """Draw the minimum, the mean and the maximum of one tensor over the steps.

    Parameters
    ----------
    statistics : sequence of TensorStatistics
        Of one tensor, such as `monitor.tensors["layer0.weight"]`. Steps with NaN or infinity have a mark.
    ax : Axes, optional
        Axes to draw into. Default: a new figure.
    title : str, optional
        Title of the picture. Default: the name of the tensor.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If there are no statistics.

    Examples
    --------
    >>> import floatsim as fs
    >>> found = [fs.training.tensor_statistics([-1.0, float(n)], name="w", step=n) for n in range(3)]
    >>> [line.get_label() for line in fs.plot.tensor_trace(found).lines[:3]]
    ['min', 'mean', 'max']
    """
    if not statistics:
        raise ValueError("statistics must hold at least one result of fs.training.tensor_statistics")
    ax = new_axes(ax, figsize=(7.5, 2.8))
    colours, steps = palette(ax), [each.step for each in statistics]
    tint = colours.format("fp16")
    lows, means, highs = ([getattr(each, name) for each in statistics] for name in ("min", "mean", "max"))
    ax.fill_between(steps, lows, highs, color=tint, alpha=0.15, lw=0)
    for name, values, dashes in (("min", lows, (0, (4, 2))), ("mean", means, "-"), ("max", highs, (0, (1.2, 1.2)))):
        ax.plot(steps, values, color=tint, ls=dashes, label=name)
    _marked(ax, steps, lows, [not each.finite for each in statistics], colours, "with NaN or infinity")
    ax.legend(frameon=False, loc="best", labelcolor=colours.ink)
    return _over_steps(ax, "value", title if title is not None else statistics[0].name)


def gradient_agreement(
    agreements: Sequence[GradientAgreement], *, ax: Axes | None = None, title: str | None = None
) -> Axes:  # fmt: skip
    """Draw the cosine of gradients and reference gradients, and the shares of flipped signs: two bars per tensor.

    Parameters
    ----------
    agreements : sequence of GradientAgreement
        The results of `fs.training.gradient_agreement`.
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
        If there are no results.

    Examples
    --------
    >>> import floatsim as fs
    >>> found = fs.training.gradient_agreement([1.0, 0.0, -1.0, 2.0], [1.0, 1.0, 1.0, 2.0], name="layer0")
    >>> [text.get_text() for text in fs.plot.gradient_agreement([found]).texts]
    ['cosine 0.617, 25 % flipped, 25 % zero']
    """
    import math

    if not agreements:
        raise ValueError("agreements must hold at least one result of fs.training.gradient_agreement")
    ax = new_axes(ax, figsize=(7.5, 0.45 * len(agreements) + 1))
    colours = palette(ax)
    for row, each in enumerate(agreements):
        width = each.cosine if math.isfinite(each.cosine) else 0.0
        ax.barh(row - 0.15, width, 0.45, color=colours.format("fp16"))
        ax.barh(row + 0.25, each.flipped, 0.25, color=colours.lost)
        cosine = f"cosine {each.cosine:.3f}" if math.isfinite(each.cosine) else "no cosine"
        text = f"{cosine}, {in_percent(each.flipped)} flipped, {in_percent(each.zeroed)} zero"
        words_beside(ax, row, text, colours)
    ax.axvline(0, color=colours.ink, lw=0.8)
    ax.set_yticks(range(len(agreements)), [each.name for each in agreements])
    ax.set(
        xlim=(-1, 1), ylim=(len(agreements) - 0.5, -0.5), xlabel="upper bar: cosine; lower bar: share of flipped signs"
    )
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right", "left"]].set_visible(False)
    return titled(ax, title)


_CAUSES = ("overflow", "invalid", "divide_by_zero")


def non_finite_map(log: Log, *, ax: Axes | None = None, title: str | None = None) -> Axes:
    """Draw the calls of a log, by layer, and mark those that overflow, divide by zero or are invalid.

    The first one has a ring. The rows are the layers of `fs.scope` in order, the columns the calls.

    Parameters
    ----------
    log : Log
        Of `fs.record`.
    ax : Axes, optional
        Axes to draw into. Default: a new figure.
    title : str, optional
        Title of the picture. Default: the first call, in words.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If the log has no calls.

    Examples
    --------
    >>> import floatsim as fs
    >>> x = fs.array([300.0], "fp16")
    >>> with fs.record() as log, fs.scope("layer0"):
    ...     y = fs.multiply(x, x)
    >>> fs.plot.non_finite_map(log).get_title()
    'layer0: multiply (call 0), overflow in 1 of 1 results'
    """
    from floatsim.training.monitoring.statistics import first_non_finite

    records = log.records()
    if not records:
        raise ValueError("the log has no calls: run operations inside fs.record()")
    layers = list(dict.fromkeys(row["scope"] for row in records))
    ax = new_axes(ax, figsize=(7.5, 0.35 * len(layers) + 1.2))
    colours = palette(ax)
    bad = [row for row in records if any(row.get(event) for event in _CAUSES)]
    for rows, tint, size in ((records, colours.paler(colours.ink), 5), (bad, colours.lost, 8)):
        places = [layers.index(row["scope"]) for row in rows]
        ax.plot([row["call"] for row in rows], places, "s", mew=0, color=tint, ms=size)
    first = first_non_finite(log)
    if first is not None:
        ax.plot([first.call], [layers.index(first.layer)], "o", ms=16, mfc="none", mew=2, color=colours.format("e5m2"))
    ax.set_yticks(range(len(layers)), [layer or "(no scope)" for layer in layers])
    ax.set(ylim=(len(layers) - 0.5, -0.5), xlabel="call; black: overflow, invalid or division by zero")
    if colours.dark:
        ax.set_xlabel("call; white: overflow, invalid or division by zero")
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right", "left"]].set_visible(False)
    return titled(ax, title if title is not None else "no non-finite result" if first is None else str(first))
