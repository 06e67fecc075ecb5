"""Pictures of training runs: the loss and the accuracy of each policy, with the steps that overflowed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from floatsim.plot.language import say
from floatsim.plot.line_labels import DASHES, format_in_name, label_ends, line_colours
from floatsim.plot.style import HEADING, Palette, new_axes, palette, titled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from floatsim.training.loop import TrainingRun

__all__ = ["training_accuracies", "training_figure", "training_losses"]


_FORMATS_OF_WORDS = {
    "fp8": "e4m3", "te": "e4m3", "deepseek": "e4m3", "mxfp8": "e4m3", "mxfp6": "e3m2", "mxfp4": "e2m1",
    "nvfp4": "e2m1", "o0": "fp32",
}  # fmt: skip


def _tints(runs: Sequence[TrainingRun], colours: Palette) -> list[tuple[str, int]]:
    """Return the colour and the number of each run: of the format in the name of its policy."""
    return line_colours([format_in_name(run.policy, _FORMATS_OF_WORDS) for run in runs], colours)


def _lines(runs: Sequence[TrainingRun], ax: Axes, name: str) -> None:
    """Draw one quantity of each epoch, with a label at the end of each line."""
    if not runs:
        raise ValueError("runs must have at least one run")
    tints = _tints(runs, palette(ax))
    ends, words = [], []
    for run, (tint, nth) in zip(runs, tints, strict=True):
        values = [getattr(epoch, name) for epoch in run.epochs]
        x = list(range(1, len(values) + 1))
        ax.plot(x, values, color=tint, lw=2, ls=DASHES[nth % len(DASHES)], marker="." if len(values) < 2 else None)
        finite = [(i, y) for i, y in zip(x, values, strict=True) if math.isfinite(y)]
        if run.diverged and finite:
            ax.plot(*finite[-1], "x", color=tint, ms=9, mew=2)
        ends.append(finite[-1] if finite else (x[-1] if x else 1, 0.0))
        words.append(say("{}: diverged", run.policy) if run.diverged else f"{run.policy}: {values[-1]:.3g}")
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_xlabel(say("epoch"))
    ax.set_xlim(1, max(2, *(len(run.epochs) for run in runs)))
    label_ends(ax, ends, words, [tint for tint, _ in tints])


def training_losses(runs: Sequence[TrainingRun], *, ax: Axes | None = None, title: str | None = None) -> Axes:
    """Draw the mean loss of each epoch, one line for each run. A cross marks a run that diverged.

    Parameters
    ----------
    runs : sequence of TrainingRun
        The results of `fs.training.train`.
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
        Without runs.

    Examples
    --------
    >>> import floatsim as fs
    >>> ax = fs.plot.training_losses([fs.training.train("fp32", epochs=1, batch=256)])
    >>> ax.get_ylabel()
    'loss'
    """
    ax = new_axes(ax, figsize=(7.5, 4.2))
    _lines(runs, ax, "loss")
    ax.set_ylabel(say("loss"))
    return titled(ax, title, **HEADING)


def training_accuracies(runs: Sequence[TrainingRun], *, ax: Axes | None = None, title: str | None = None) -> Axes:
    """Draw the accuracy on the test images after each epoch, one line for each run.

    Parameters
    ----------
    runs : sequence of TrainingRun
        The results of `fs.training.train`.
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
        Without runs.

    Examples
    --------
    >>> import floatsim as fs
    >>> ax = fs.plot.training_accuracies([fs.training.train("fp32", epochs=1, batch=256)])
    >>> ax.get_ylabel()
    'accuracy on test images'
    """
    ax = new_axes(ax, figsize=(7.5, 4.2))
    ax.set_ylim(0, 1.02)  # first: labels are placed by the limits
    _lines(runs, ax, "accuracy")
    ax.set_ylabel(say("accuracy on test images"))
    return titled(ax, title, **HEADING)


def _scales(runs: Sequence[TrainingRun], ax: Axes) -> None:
    """Draw the loss scale of each step, with a cross at each skipped step."""
    for run, (tint, nth) in zip(runs, _tints(runs, palette(ax)), strict=True):
        ax.plot(run.scales, color=tint, lw=1.5, ls=DASHES[nth % len(DASHES)], drawstyle="steps-post", label=run.policy)
        skipped = [event.step for event in run.events if event.kind == "skipped"]
        ax.plot(skipped, [run.scales[step] for step in skipped], "x", color=tint, ms=6)
    ax.set_yscale("log", base=2)
    ax.set(xlabel=say("step"), ylabel=say("loss scale (x: skipped)"))
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize="small")


def training_figure(runs: Sequence[TrainingRun]) -> Figure:
    """Draw loss and accuracy side by side, and below the loss scales if a run has one that is not 1.

    Parameters
    ----------
    runs : sequence of TrainingRun
        The results of `fs.training.train`.

    Returns
    -------
    Figure

    Raises
    ------
    ValueError
        Without runs.

    Examples
    --------
    >>> import floatsim as fs
    >>> figure = fs.plot.training_figure([fs.training.train("fp32", epochs=1, batch=256)])
    >>> len(figure.axes)
    2
    """
    from matplotlib.figure import Figure

    if not runs:
        raise ValueError("runs must have at least one run")
    scaled = [run for run in runs if any(scale != 1 for scale in run.scales)]
    figure: Any = Figure(figsize=(13, 7.5 if scaled else 4.4), dpi=120)
    grid = figure.add_gridspec(2 if scaled else 1, 2, wspace=0.75, hspace=0.35, left=0.06, right=0.84)
    first = runs[0]
    figure.suptitle(f"{first.network}, {first.optimizer}: digits", x=0.06, ha="left", fontweight="bold")
    training_losses(runs, ax=figure.add_subplot(grid[0, 0]))
    training_accuracies(runs, ax=figure.add_subplot(grid[0, 1]))
    if scaled:
        _scales(scaled, figure.add_subplot(grid[1, :]))
    return figure  # type: ignore[no-any-return]
