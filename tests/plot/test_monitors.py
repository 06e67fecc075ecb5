"""Pictures of a training run: what is drawn, and with which words."""

from __future__ import annotations

import math

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import same_color

import floatsim as fs
from floatsim import plot
from floatsim import training as t

pytestmark = pytest.mark.full

BLACK = plot.LOST_COLOUR


def words(ax):
    return [text.get_text() for text in ax.texts]


def statistics():
    tensors = {"weight": [0.5, 1.0, 1e-6], "gradient": [1e-9, 1e9, 1.0], "empty": [0.0], "broken": [1.0, math.inf]}
    return [t.tensor_statistics(x, ["fp16", "e4m3"], name=name) for name, x in tensors.items()]


def test_tensor_exponents():
    ax = plot.tensor_exponents(statistics(), title="tensors")
    assert words(ax) == [
        "33 % subnormal", "33 % flushed to zero, 33 % overflow", "no finite non-zero number",
        "all normal; 0 NaN, 1 infinite",
    ]  # fmt: skip
    assert [label.get_text() for label in ax.get_yticklabels()] == ["weight", "gradient", "empty", "broken"]
    black = [p for p in ax.patches if p.get_height() > 0 and same_color(p.get_facecolor(), BLACK)]
    assert len(black) == 2
    assert {p.get_y() for p in black} == {2.0}  # the second row from the top
    assert ax.get_title() == "tensors"
    assert "E4M3" in plot.tensor_exponents(statistics(), "e4m3").get_xlabel()
    with pytest.raises(ValueError, match="FP16, E4M3"):
        plot.tensor_exponents(statistics(), "bf16")
    with pytest.raises(ValueError, match="at least one"):
        plot.tensor_exponents([])


def test_update_ratios():
    w = fs.array(np.ones(4), "bf16")
    found = [
        t.update_statistics(w, np.float32([1e-5, 1e-3, 0.1, 0]), name="a"),
        t.update_statistics(w, np.float32([0, 0, 0, 0]), name="b"),
    ]
    ax = plot.update_ratios(found)
    assert words(ax) == ["67 % absorbed", "no update"]
    for patch in ax.patches:
        assert same_color(patch.get_facecolor(), BLACK) == (patch.get_x() < 0)
    with pytest.raises(ValueError, match="at least one"):
        plot.update_ratios([])


def test_loss_scale():
    ax = plot.loss_scale([8.0, 4.0, 0.0], [True, False, True], steps=[5, 6, 7])
    marks, line = ax.lines
    assert list(marks.get_xdata()) == [5, 7]
    assert list(line.get_ydata()) == [8, 4, 2]
    assert line.get_drawstyle() == "steps-post"
    assert words(ax) == ["2 skipped"]
    for arguments in (([], []), ([1.0], [True, False])):
        with pytest.raises(ValueError, match="as many"):
            plot.loss_scale(*arguments)


def test_gradient_norms():
    ax = plot.gradient_norms([1.0, math.nan, 50.0], [False, True, True])
    assert list(ax.lines[0].get_xdata()) == [1, 2]
    assert np.isnan(ax.lines[1].get_ydata()[1])
    assert list(ax.lines[2].get_ydata())[1] == 50
    assert plot.gradient_norms([math.nan]).get_yscale() == "linear"


def test_tensor_trace():
    found = [t.tensor_statistics([-n, 2.0 * n, math.nan if n == 2 else 0], name="w", step=10 * n) for n in range(1, 4)]
    ax = plot.tensor_trace(found)
    lines = {line.get_label(): list(line.get_ydata()) for line in ax.lines}
    assert lines["min"] == [-1, -2, -3]
    assert lines["max"] == [2, 4, 6]
    assert list(ax.lines[0].get_xdata()) == [10, 20, 30]
    assert words(ax) == ["1 with NaN or infinity"]
    assert ax.get_title() == "w"


def test_gradient_agreement():
    found = [t.gradient_agreement([1.0, -1.0], [1.0, 1.0], name="a"), t.gradient_agreement([0.0], [1.0], name="b")]
    ax = plot.gradient_agreement(found)
    assert words(ax) == ["cosine 0.000, 50 % flipped, 0 % zero", "no cosine, 0 % flipped, 100 % zero"]
    assert [p.get_width() for p in ax.patches] == pytest.approx([0, 0.5, 0, 0])
    with pytest.raises(ValueError, match="at least one"):
        plot.gradient_agreement([])


def test_non_finite_map():
    x = fs.array([300.0], "fp16")
    with fs.record() as log:
        for name in ("layer0", "layer1"):
            with fs.scope(name):
                x = fs.multiply(x, 100.0)
    ax = plot.non_finite_map(log)
    assert ax.get_title() == "layer1: multiply (call 1), overflow in 1 of 1 results"
    assert [list(line.get_xdata()) for line in ax.lines] == [[0, 1], [1], [1]]
    with plt.style.context("dark_background"):
        assert "white" in plot.non_finite_map(log).get_xlabel()
    with fs.record() as log:
        fs.add(fs.array([1.0], "fp16"), 1.0)
    assert plot.non_finite_map(log, title="mine").get_title() == "mine"
    with fs.record() as log:
        pass
    with pytest.raises(ValueError, match="no calls"):
        plot.non_finite_map(log)


@pytest.mark.parametrize("kind", ["tensors", "updates", "loss_scale", "gradient_norm"])
def test_pictures_of_a_monitor(kind):
    monitor = t.Monitor("fp16")
    for step in range(3):
        monitor.tensor(step, "w", [1.0, step])
        monitor.update(step, "w", fs.array([1.0], "fp16"), np.float32([1e-4]))
        monitor.scalars(step, loss_scale=2.0**step, gradient_norm=1.0, skipped=step == 1)
    ax = monitor.plot(kind, title=kind)
    assert ax.get_title() == kind
    if kind in ("loss_scale", "gradient_norm"):
        assert list(ax.lines[0].get_xdata()) == [1]


@pytest.mark.parametrize("name", ["tensor_exponents", "update_ratios", "loss_scale", "gradient_norms"])
def test_pictures_draw_into_given_axes(name):
    ax = plt.figure().subplots()
    arguments = {
        "tensor_exponents": [statistics()], "loss_scale": [[1.0]], "gradient_norms": [[1.0]],
        "update_ratios": [[t.update_statistics(fs.array([1.0], "bf16"), np.float32([1.0]))]],
    }  # fmt: skip
    assert getattr(plot, name)(*arguments[name], ax=ax) is ax
