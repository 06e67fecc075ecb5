"""Pictures of training runs."""

from __future__ import annotations

import pytest

from floatsim import plot
from floatsim.training.loop import Epoch, Event, TrainingRun


def run_of(policy, losses, diverged=False, scales=(1.0,)):
    epochs = [Epoch(loss, 1 - loss / 10, 0.0, scales[-1]) for loss in losses]
    events = [Event(0, "skipped", "overflow")] if scales[0] != 1 else []
    return TrainingRun(policy, "mlp", "sgd", epochs, events, list(losses), list(scales), diverged=diverged)


def test_losses_and_accuracies():
    runs = [run_of("fp32", [2.0, 1.0]), run_of("fp16", [2.0, float("nan")], diverged=True)]
    ax = plot.training_losses(runs, title="title")
    assert [text.get_text() for text in ax.texts] == ["fp32: 1", "fp16: diverged"]
    assert ax.get_title(loc="left") == "title"
    crosses = [line for line in ax.lines if line.get_marker() == "x"]
    assert [line.get_xdata()[0] for line in crosses] == [1]
    assert plot.training_accuracies(runs).texts[0].get_text() == "fp32: 0.9"


def test_colours_of_formats():
    ax = plot.training_losses([run_of(name, [1.0, 0.5]) for name in ("autocast-bf16", "fp16", "mine")])
    bf16, fp16, mine = (line.get_color() for line in ax.lines)
    assert (bf16, fp16) == (plot.colour("bf16"), plot.colour("fp16"))
    assert mine not in (bf16, fp16)


def test_figure_with_scales():
    plain, scaled = run_of("fp32", [1.0, 0.5]), run_of("fp16", [1.0, 0.5], scales=(4.0, 2.0))
    assert len(plot.training_figure([plain]).axes) == 2
    figure = plot.training_figure([plain, scaled])
    assert len(figure.axes) == 3
    assert [text.get_text() for text in figure.axes[2].get_legend().get_texts()] == ["fp16"]


def test_plot_methods():
    assert run_of("fp32", [1.0]).plot().get_ylabel() == "loss"


@pytest.mark.parametrize("function", [plot.training_losses, plot.training_accuracies, plot.training_figure])
def test_no_runs(function):
    with pytest.raises(ValueError, match="at least one run"):
        function([])


def test_accuracies_have_labels_at_the_ends_of_their_lines():
    """The limits of the axes are those of the labels: labels lie beside the last accuracy of their line."""
    runs = [
        TrainingRun(name, "mlp", "sgd", [Epoch(1.0, y, 0.0, 1.0)] * 3) for name, y in (("fp32", 0.9), ("fp16", 0.4))
    ]
    ax = plot.training_accuracies(runs)
    ax.figure.canvas.draw()
    assert ax.get_ylim() == (0, 1.02)
    for text, run in zip(ax.texts, runs, strict=True):
        box = text.get_window_extent().transformed(ax.transData.inverted())
        assert abs((box.y0 + box.y1) / 2 - run.accuracy) < 0.03
