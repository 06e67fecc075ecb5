"""SGD, Adam and AdamW under the recipes of a GPU, against weights and moments that an H200 recorded (torch 2.11.0).

`data/silicon/nvidia-h200/optimizer-steps.zip` has every eighth of 2,048 weights, with the gradients. `FLOATSIM_H200`
names the folder of all of them, optimizers.npz and mufu/optimizers.npz; their inputs are made again by NumPy.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import floatsim as fs
from floatsim import training
from floatsim.training.optimizers.evidence import EVIDENCE, steps_table
from tests import marks

FOLDER = os.environ.get("FLOATSIM_H200")
SAMPLE = Path(__file__).parents[2] / "data" / "silicon" / "nvidia-h200" / "optimizer-steps.zip"
RECIPES = {"cuda": "plain", "cuda-foreach": "foreach", "cuda-fused": "fused"}
MOMENTS = {"mean": "exp_avg", "squares": "exp_avg_sq", "momentum": "momentum_buffer"}
OPTIMIZERS = {
    "sgd": lambda recipe: training.SGD(0.01, momentum=0.9, weight_decay=0.01, recipe=recipe),
    "adam": lambda recipe: training.Adam(1e-3, recipe=recipe),
    "adamw": lambda recipe: training.AdamW(1e-3, recipe=recipe),
}
recipes = pytest.mark.parametrize("recipe", RECIPES)
names = pytest.mark.parametrize("name", OPTIMIZERS)
formats = pytest.mark.parametrize("fmt", ["fp32", "bf16", "fp16"])


def steps_of(optimizer, weights, gradients):
    """The weights and the moments after each step."""
    found = []
    for gradient in gradients:
        weights = optimizer.step({"w": weights}, {"w": gradient})["w"]
        found.append((weights, dict(optimizer.moments["w"])))
    return found


@marks.needs_sample(SAMPLE)
@names
@recipes
@formats
def test_recorded_steps(name, recipe, fmt):
    with np.load(SAMPLE) as sample:
        weights, gradients = (
            fs.FloatArray(sample[f"{key}|{fmt}"], fs.as_format(fmt)) for key in ("weights", "gradients")
        )
        found = steps_of(OPTIMIZERS[name](recipe), weights, gradients)
        np.testing.assert_array_equal([w.codes for w, _ in found], sample[f"{name}|{recipe}|{fmt}|weights"])
        for key in found[0][1]:
            kept = sample[f"{name}|{recipe}|{fmt}|{key}"]
            np.testing.assert_array_equal([moments[key].codes for _, moments in found[: len(kept)]], kept)


@pytest.mark.skipif(FOLDER is None, reason="FLOATSIM_H200 names the folder of an H200's recordings")
@names
@recipes
@formats
def test_all_recorded_steps(name, recipe, fmt):
    assert FOLDER is not None
    rng = np.random.default_rng(17)
    weights = fs.array(rng.standard_normal(2048).astype(np.float32), fmt)
    gradients = [
        fs.array((rng.standard_normal(2048) * 10.0 ** rng.integers(-3, 1)).astype(np.float32), fmt) for _ in range(5)
    ]
    found = steps_of(OPTIMIZERS[name](recipe), weights, gradients)
    key = f"{name}|{RECIPES[recipe]}|{fmt}"
    with np.load(Path(FOLDER) / "optimizers.npz") as recorded:
        for n, (w, _) in enumerate(found):
            np.testing.assert_array_equal(w.codes, recorded[f"{key}|step{n}"])
    with np.load(Path(FOLDER) / "mufu" / "optimizers.npz") as recorded:
        for n, (_, moments) in enumerate(found[:3]):
            for moment, codes in moments.items():
                np.testing.assert_array_equal(codes.codes, recorded[f"{key}|{n}|{MOMENTS[moment]}"])


def test_nan_has_the_code_of_a_gpu():
    """The mean and the root are zero in FP16, and 0 / 0 is NaN."""
    zero = {"w": fs.array([0.0], "fp16")}
    for recipe in ("cuda", "cuda-foreach"):
        assert training.Adam(1e-3, recipe=recipe).step(zero, zero)["w"].codes.tolist() == [0x7FFF]
    infinite = {"w": fs.array([np.inf], "fp32")}
    for recipe in RECIPES:
        assert training.SGD(1.0, recipe=recipe).step(infinite, infinite)["w"].codes.tolist() == [0x7FFFFFFF]


@pytest.mark.parametrize("option", [
    {"rounding": "step"}, {"weights": "fp32"}, {"state": "bf16"}, {"kahan": True}, {"weight_rounding": "stochastic"},
    {"scalars": "fp32"},
], ids=str)  # fmt: skip
def test_a_recipe_fixes_options(option):
    key = next(iter(option))
    with pytest.raises(ValueError, match=f"recipe='cuda' fixes {key}; {key}=.* must not be given"):
        training.Adam(1e-3, recipe="cuda", **option)
    training.Adam(1e-3, recipe="cuda", weight_rounding=fs.Rounding.TIES_TO_EVEN)


def test_what_was_not_recorded_is_refused():
    with pytest.raises(ValueError, match="recipe='cuda-fuzed' is not known; did you mean 'cuda-fused'"):
        training.Adam(1e-3, recipe="cuda-fuzed")
    with pytest.raises(ValueError, match="RMSProp has no recipe"):
        training.RMSProp(1e-3, recipe="cuda")
    one = {fmt: fs.array([1.0], fmt) for fmt in ("fp64", "fp32", "bf16")}
    for weight, gradient in (("fp64", "fp64"), ("fp32", "bf16")):
        optimizer = training.SGD(0.1, recipe="cuda")
        with pytest.raises(ValueError, match=f"'w' has {weight.upper()} and a gradient in {gradient.upper()}"):
            optimizer.step({"w": one[weight]}, {"w": one[gradient]})
        assert optimizer.steps == 0


# -- strict ------------------------------------------------------------------------------------------------------------

KNOWN_STEPS = [(recipe, name) for recipe, optimizers in EVIDENCE.items() for name in optimizers]


def strict_optimizer(name, recipe, **changed):
    """An optimizer whose steps were compared, with other options."""
    options = {"weight_decay": 0.0 if name == "Adam" else 0.01, "recipe": recipe, "strict": True, "device": "h200"}
    options |= {"momentum": 0.9} if name == "SGD" else {}
    return getattr(training, name)(0.01, **options | changed)


def taken(optimizer, steps, fmt="fp32"):
    """The weight after steps."""
    weight, gradient = {"w": fs.array([1.0], fmt)}, {"w": fs.array([0.5], fmt)}
    for _ in range(steps):
        weight = optimizer.step(weight, gradient)
    return weight["w"].item()


@pytest.mark.parametrize(("recipe", "name"), KNOWN_STEPS)
def test_compared_steps_are_computed_and_others_refused(recipe, name):
    for fmt in ("fp32", "fp16", "bf16"):
        row = next(row for row in EVIDENCE[recipe][name] if fmt.upper() in row.facts["format"])
        assert row.facts["steps"] == range(1, 6)
        most = max(row.facts["steps"][-1] for row in EVIDENCE[recipe][name] if fmt.upper() in row.facts["format"])
        plain = most > 5 and name == "SGD" and fmt == "fp16"  # recorded without momentum
        changed = {"momentum": 0.0, "weight_decay": 0.0} if plain else {}
        optimizer = strict_optimizer(name, recipe, **changed)
        free = strict_optimizer(name, recipe, **changed, strict=False)
        assert taken(optimizer, most, fmt) == taken(free, most, fmt)
        with pytest.raises(fs.NotDescribedError, match=f"{name} with recipe '{recipe}' with steps {most + 1} was not"):
            taken(optimizer, 1, fmt)
        assert optimizer.steps == most


@pytest.mark.parametrize(("name", "changed", "named"), [
    ("SGD", {"nesterov": True}, "nesterov True"), ("SGD", {"dampening": 0.1}, "dampening 0.1"),
    ("SGD", {"momentum": 0.0}, "momentum none"), ("Adam", {"eps": 1e-6}, "eps 1e-06"),
    ("Adam", {"betas": (0.9, 0.99)}, r"betas \(0.9, 0.99\)"), ("Adam", {"weight_decay": 0.1}, "weight_decay positive"),
    ("AdamW", {"weight_decay": 0.0}, "weight_decay none"),
])  # fmt: skip
def test_options_that_were_not_compared(name, changed, named):
    with pytest.raises(fs.NotDescribedError, match=rf"with {named} was not compared with an NVIDIA H200.*compared: "):
        taken(strict_optimizer(name, "cuda", **changed), 1)
    taken(strict_optimizer(name, "cuda", **changed, strict=False), 6)


def test_strict_optimizers_outside_of_the_table():
    with fs.context(ftz=True), pytest.raises(fs.NotDescribedError, match="with context changed"):
        taken(strict_optimizer("Adam", "cuda"), 1)

    class Own(training.SGD):
        pass

    with pytest.raises(fs.NotDescribedError, match="Own with recipe 'cuda' was not compared with a device"):
        taken(Own(0.1, recipe="cuda", strict=True), 1)
    for keywords in ({"strict": True}, {"device": "h200"}):
        with pytest.raises(ValueError, match="pass recipe=, one of cuda, cuda-foreach, cuda-fused"):
            training.SGD(0.1, **keywords)
    for keywords in ({}, {"recipe": "cuda"}):
        with pytest.raises(TypeError, match="strict must be True or False, not 'no'"):
            training.SGD(0.1, strict="no", **keywords)
    with pytest.raises(fs.NotDescribedError, match="device='a100' is not described; described: h200"):
        training.SGD(0.1, recipe="cuda", device="a100")
    with pytest.raises(fs.NotDescribedError, match=r"version='2.12.0' .*described: 2.11.0"):
        training.SGD(0.1, recipe="cuda", device="h200", version="2.12.0")


def test_the_table_of_steps_is_in_the_documentation():
    assert steps_table() in (Path(__file__).parents[2] / "docs" / "gpu-known-bits.md").read_text()
