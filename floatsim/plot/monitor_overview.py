"""The picture of a monitored training run: tensors, updates, gradient norms, loss scales and agreement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from floatsim.plot.monitors import gradient_agreement, gradient_norms, loss_scale, tensor_exponents, update_ratios

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from floatsim.training import Monitor

__all__ = ["monitor_figure"]


def _traced(draw: Any, monitor: Monitor, name: str, ax: Any) -> None:
    """Draw a number of each step, with marks at the skipped steps."""
    skipped = dict(zip(*monitor.trace("skipped"), strict=True))
    steps, values = monitor.trace(name)
    draw(values, [bool(skipped.get(step)) for step in steps], steps=steps, ax=ax)


def monitor_figure(monitor: Monitor, *, title: str | None = None) -> Figure:
    """Draw what a monitor kept: the exponents of all tensors on the left, and on the right updates, norms and scales.

    Tensors and updates are those of the last step that was kept.

    Parameters
    ----------
    monitor : Monitor
        The monitor of a run.
    title : str, optional
        Title of the figure.

    Returns
    -------
    Figure

    Raises
    ------
    ValueError
        If the monitor kept no tensor.

    Examples
    --------
    >>> import floatsim as fs
    >>> monitor = fs.training.Monitor("fp16", every=10)
    >>> run = fs.training.train("fp16", epochs=1, batch=256, monitor=monitor)
    >>> len(fs.plot.monitor_figure(monitor).axes)  # tensors, updates, gradient norms
    3
    """
    from matplotlib.figure import Figure

    if not monitor.tensors:
        raise ValueError("the monitor has no tensors: pass it to fs.training.train(..., monitor=monitor)")
    kept: Any = monitor.tensors, monitor.updates, monitor.agreements
    tensors, updates, agreements = ([found[-1] for found in each.values()] for each in kept)
    _, norms = monitor.trace("gradient_norm")
    _, scales = monitor.trace("loss_scale")
    panels: list[tuple[float, Any]] = [
        (0.6 * len(updates), lambda ax: update_ratios(updates, ax=ax)) if updates else (0, None),
        (2.4, lambda ax: _traced(gradient_norms, monitor, "gradient_norm", ax)) if norms else (0, None),
        (2.4, lambda ax: _traced(loss_scale, monitor, "loss_scale", ax)) if set(scales) - {1.0} else (0, None),
        (0.4 * len(agreements), lambda ax: gradient_agreement(agreements, ax=ax)) if agreements else (0, None),
    ]
    drawn = [(height, draw) for height, draw in panels if draw is not None]
    height = max(0.6 * len(tensors) + 1, sum(0.9 + each for each, _ in drawn))
    figure: Any = Figure(figsize=(17, height), dpi=100, layout="constrained")
    grid = figure.add_gridspec(max(len(drawn), 1), 2, height_ratios=[each for each, _ in drawn] or None)
    tensor_exponents(tensors, ax=figure.add_subplot(grid[:, 0]), title=f"step {tensors[0].step}")
    for row, (_, draw) in enumerate(drawn):
        draw(figure.add_subplot(grid[row, 1]))
    if title is not None:
        figure.suptitle(title, fontweight="bold")
    return figure  # type: ignore[no-any-return]
