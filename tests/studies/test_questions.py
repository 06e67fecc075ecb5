"""The questions: order and size of each effect."""

from __future__ import annotations

import json
import math
import re
from inspect import signature

import pytest

import floatsim as fs
from floatsim import plot
from studies.questions import __main__ as command
from studies.questions.chart import answer_chart
from studies.questions.question import Answer, Chart
from studies.questions.table import QUESTIONS, answer_question, answer_questions
from tests.marks import cases


def numbers(name, **options):
    found = answer_question(name, **options)
    assert found.sentence.endswith(".")
    assert all(isinstance(value, float | int) and math.isfinite(value) for value in found.numbers.values())
    return found.numbers


# -- the effects -------------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_weights_of_inference_and_of_training():
    """INT8 per row: relative RMS error 0.0087, INT4 0.157. Inference keeps the accuracy, stored weights ruin it."""
    found = numbers("stored-weights")
    assert found["INT8 relative error of N(0, 1)"] == pytest.approx(0.0087, rel=0.02)
    assert found["INT4 relative error of N(0, 1)"] == pytest.approx(0.157, rel=0.02)
    assert found["INT8 inference"] == pytest.approx(found["FP32"], abs=0.02)
    assert found["INT4 inference"] == pytest.approx(found["FP32"], abs=0.05)
    assert found["INT8 stored in training"] < found["FP32"] - 0.2
    assert found["INT4 stored in training"] < 0.2
    for fmt in ("INT8", "INT4"):
        assert found[f"{fmt} stored, stochastic rounding"] == pytest.approx(found["FP32"], abs=0.1)


@pytest.mark.full
def test_straight_through_estimator():
    found = numbers("straight-through", epochs=4)
    assert found["INT8 after training"] == pytest.approx(found["FP32"], abs=0.01)
    assert found["INT2 after training"] < found["FP32"] - 0.1
    assert found["INT2 straight-through"] > found["INT2 after training"] + 0.05
    assert found["INT3 straight-through"] > found["FP32"] - 0.03


@pytest.mark.full
def test_absorbed_weight_decay():
    """In BF16, a decay of at most 2^-9 of a weight is absorbed. FP16 and FP32 have 3 and 16 bits more."""
    found = numbers("weight-decay", weights=2000)
    limits = [found[f"{fmt}: log2 of the largest decay absorbed by all weights"] for fmt in ("BF16", "FP16", "FP32")]
    assert limits == [-9, -12, -25]
    assert found["BF16: share absorbed at lr * decay = 2^-13"] == 1


@pytest.mark.full
def test_scientific_computing():
    """Orbits depart after log(1 / u) / 0.906 time units, by the Lyapunov exponent; p bits more: p log 2 / 0.906."""
    found = numbers("scientific", epochs=2)
    least = [found[f"{fmt}: least residual of conjugate gradients"] for fmt in ("FP64", "FP32", "FP16", "BF16")]
    assert least[0] < 1e-12
    assert 1e-7 < least[1] < 1e-4
    assert 1e-3 < least[2] < least[3]
    times = [found[f"{fmt}: time to depart from the Lorenz orbit"] for fmt in ("FP32", "FP16", "BF16")]
    assert times[0] - times[1] == pytest.approx(13 * math.log(2) / 0.906, rel=0.3)
    assert times[1] > times[2]
    learned = [found[f"{fmt}: accuracy on the digits"] for fmt in ("FP32", "FP16", "BF16")]
    assert max(learned) - min(learned) < 0.02
    assert min(learned) > 0.85


@pytest.mark.full
def test_rounding_error_against_the_noise_of_batches():
    found = numbers("batch-noise", batches=8)
    for layer in ("layer0.weight", "layer0.bias", "head.weight", "head.bias"):
        fp16, bf16, e5m2 = (found[f"{fmt} {layer}"] for fmt in ("FP16", "BF16", "E5M2"))
        assert fp16 < bf16 < 0.1
        assert bf16 < e5m2 < 1
    assert found["BF16 head.weight"] == pytest.approx(8 * found["FP16 head.weight"], rel=0.3)


@pytest.mark.full
def test_batch_size():
    """1e-4 / B is zero in FP16 for B above 3355."""
    found = numbers("batch-size", epochs=2)
    assert found["largest B for which 0.0001 / B is not 0 in FP16"] == 3355
    fp16 = [found[f"FP16: flushed at B = {size}"] for size in (32, 4096, 2**20)]
    assert fp16[0] <= fp16[1] <= fp16[2]
    assert fp16[2] > fp16[0] + 0.1
    assert found["BF16: flushed at B = 1048576"] == 0
    assert found["E5M2: flushed at B = 4096"] == fp16[2]  # its least number is 2^8 times that of FP16


@pytest.mark.full
def test_learning_rate_and_loss_scale():
    found = numbers("learning-rate", epochs=2)
    assert found["sgd, gradients / S"] == pytest.approx(found["sgd, lr / S"], abs=0.01)
    assert found["sgd, both"] < 0.5 * found["sgd, gradients / S"]
    assert found["adam, neither"] == pytest.approx(found["adam, gradients / S"], abs=0.02)
    assert found["adam, lr / S"] < 0.5 * found["adam, gradients / S"]


@pytest.mark.full
def test_depth():
    """The error grows as the square root of the depth, and as a power of the gain if layers amplify it."""
    found = numbers("depth")
    for fmt in ("FP16", "BF16"):
        assert found[f"{fmt}: exponent of the growth"] == pytest.approx(0.5, abs=0.1)
        assert found[f"{fmt}: error after 1 layer"] < getattr(fs, fmt).eps / 2
        assert found[f"{fmt}, gain 1.1: error after 100"] > 1000 * found[f"{fmt}: error after 100"]
    assert found["BF16: error after 100"] == pytest.approx(8 * found["FP16: error after 100"], rel=0.2)


@pytest.mark.full
def test_saturating_activations():
    """The gain is the derivative: of sigmoid at most 1/4, of ReLU 0 or 1."""
    found = numbers("saturation", values=1000)
    assert [found[f"relu at {region}"] for region in ("-4 to -3", "0 to 1", "4 to 5")] == [0, 1, 1]
    assert found["sigmoid at 0 to 1"] == pytest.approx(0.22, abs=0.03)
    assert found["sigmoid at 4 to 5"] < 0.02
    assert found["tanh at 4 to 5"] < 0.002
    assert found["gelu at 4 to 5"] == pytest.approx(1, abs=0.01)
    assert found["gelu at -4 to -3"] < 0.02


@pytest.mark.full
def test_warm_up():
    """BF16 absorbs the small updates of the warm-up. With master weights, nothing is absorbed."""
    found = numbers("warm-up", epochs=1)
    assert found["BF16 with warm-up, absorbed in step 0"] > found["BF16 without warm-up, absorbed in step 0"] + 0.2
    assert found["BF16 + masters with warm-up, absorbed in step 0"] < 0.01
    gains = [found[f"{name} with warm-up"] - found[f"{name} without warm-up"] for name in ("FP32", "BF16")]
    assert abs(gains[0] - gains[1]) < 0.1


@pytest.mark.full
def test_format_of_gradients():
    """log2|g| of N(-24, 6): FP16 flushes 43.5 %, and no loss scale reaches both ends."""
    found = numbers("fp16-or-bf16", epochs=1)
    assert found["log2|g| of N(-24, 6): flushed by FP16"] == pytest.approx(0.435, abs=0.01)
    names = ("digits, layer0", "log2|g| of N(-12, 2)", "log2|g| of N(-24, 3)", "log2|g| of N(-24, 6)")
    assert [found[f"{name}: bits of precision"] for name in names] == [11, 11, 11, 8]
    assert found["log2|g| of N(-24, 3): log2 of the loss scale"] > 10


# -- the table, the picture, the command -------------------------------------------------------------------------------


def test_every_question():
    assert len(QUESTIONS) == 11
    for name, question in QUESTIONS.items():
        assert question.name == name
        assert question.text.endswith("?")
        assert question.compute.__doc__
        assert list(question.options) == list(signature(question.compute).parameters)


def test_an_answer():
    found = answer_question("Depth", layers=4, width=8)
    plain = json.loads(json.dumps(found.to_dict()))
    assert plain["numbers"] == found.numbers
    assert list(plain["series"]) == ["FP16", "FP16, gain 1.1", "BF16", "BF16, gain 1.1"]
    ax = found.plot()
    assert ax.get_title(loc="left") == found.question
    assert [line.get_label() for line in ax.lines] == list(plain["series"])
    assert [line.get_color() for line in ax.lines] == [plot.colour(name) for name in ("fp16", "fp16", "bf16", "bf16")]
    assert len({(line.get_color(), line.get_linestyle()) for line in ax.lines}) == 4
    with fs.context(rounding="toward_positive", ftz=True):
        assert answer_question("depth", layers=4, width=8).numbers == found.numbers


def test_bars():
    chart = Chart({"FP16": (["a", "b"], [1.0, 2.0]), "other": (["b"], [3.0])}, "x", "y")
    ax = answer_chart(Answer("n", "q?", "s.", {}, chart), title="title")
    assert [bar.get_height() for bar in ax.patches] == [1, 2, 3]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["a", "b"]
    assert ax.get_title(loc="left") == "title"


@pytest.mark.parametrize(("call", "message"), [
    (lambda: answer_question("dept"), "did you mean 'depth'"),
    (lambda: answer_questions(["depth", "warmup"]), "did you mean 'warm-up'"),
    (lambda: answer_question("depth", layer=3), "has no option 'layer'; did you mean 'layers'"),
])  # fmt: skip
def test_bad_values(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    "name",
    cases(quick=["straight-through"], full=["stored-weights", "learning-rate", "scientific", "warm-up"]),
)
def test_an_accuracy_in_fp32_comes_with_its_training(name):
    """The accuracies of one network in FP32 differ: by the epochs and the rate, which the sentence names."""
    options = {"epochs": 1} | ({"unknowns": 4, "time": 0.1} if name == "scientific" else {})
    sentence = answer_question(name, **options).sentence
    assert re.search(rf"after {options['epochs']} epochs (of \w+ )?at a rate of [\d.]+", sentence, re.IGNORECASE)


@pytest.fixture
def run(capsys):
    """Return a function that runs the command: its exit code, its output and its errors."""

    def runs(*arguments):
        try:
            command.main([*arguments])
        except SystemExit as done:
            return (done.code, *capsys.readouterr())
        return (0, *capsys.readouterr())

    return runs


def test_list_of_the_command(run):
    code, out, _ = run("--list")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == list(QUESTIONS)
    code, out, _ = run("--list", "--json")
    assert {row["name"] for row in json.loads(out)} == set(QUESTIONS)


@pytest.mark.full
def test_command(run, empty_folder):
    code, out, _ = run("weight-decay", "-o", ".")
    assert code == 0
    assert "In BF16, at lr * weight_decay = 2^-9 and below" in out
    assert "weight-decay.png" in out
    code, out, _ = run("weight-decay", "--json")
    assert [answer["name"] for answer in json.loads(out)["answers"]] == ["weight-decay"]


@pytest.mark.parametrize(("arguments", "message"), [
    (["wieght-decay"], "did you mean 'weight-decay'"), (["depth", "-o", "missing"], "there is no folder missing"),
])  # fmt: skip
def test_bad_input_of_the_command(run, arguments, message):
    code, out, error = run(*arguments)
    assert (code, out) == (2, "")
    assert message in error
