"""Accumulation, clipping and shrinking of gradients."""

from __future__ import annotations

import numpy as np
import pytest

import floatsim as fs
from floatsim.training import accumulate_gradients, clip_by_global_norm, global_norm, shrink_embedding, shrink_gradient


@pytest.mark.full
@pytest.mark.parametrize(("accumulate", "expected"), [("fp16", 0.0625), ("bf16", 0.0221), ("fp32", 0.316)])
def test_norm_of_many_small_gradients(accumulate, expected):
    gradients = {"w": fs.array(np.full(100_000, 1e-3), "fp32")}
    assert float(global_norm(gradients, accumulate=accumulate)) == pytest.approx(expected, rel=2e-3)


def test_accumulation_in_fp16():
    """64 gradients of 1e-8: each is zero in FP16, also with an FP32 buffer."""
    batches = [{"w": fs.array([1e-8], "fp16")}] * 64
    assert accumulate_gradients(batches)["w"].item() == 0.0
    assert accumulate_gradients(batches, "fp32")["w"].item() == 0.0
    in_fp32 = accumulate_gradients([{"w": fs.array([1e-8], "fp32")}] * 64)["w"].item()
    assert in_fp32 == pytest.approx(6.4e-7, rel=1e-5)


def test_accumulation_of_several_gradients():
    batches = [{"a": fs.array([1.0], "bf16"), "b": fs.array([n], "fp32")} for n in (1.0, 2.0)]
    found = accumulate_gradients(batches)
    assert (found["a"].item(), found["a"].format, found["b"].item()) == (2.0, fs.BF16, 3.0)
    with pytest.raises(ValueError, match=r"differ in names: \['b'\]"):
        accumulate_gradients([batches[0], {"a": fs.array([1.0], "bf16")}])
    with pytest.raises(ValueError, match="no gradients"):
        accumulate_gradients([])


def test_clipping():
    gradients = {
        "a": fs.array([3.0, 0.0], "fp16"),
        "b": fs.array([[4.0]], "fp32"),
        "embedding": fs.array([1e4], "fp16"),
    }
    clipped = clip_by_global_norm(gradients, 2.5, apart="embed*")
    assert clipped.norm.item() == 5.0
    assert clipped.coefficient.item() == pytest.approx(0.5, abs=1e-6)
    assert clipped.gradients["a"].tolist() == [1.5, 0.0]
    assert clipped.gradients["a"].format == fs.FP16
    assert clipped.gradients["embedding"].item() == 1e4
    assert clip_by_global_norm(gradients, 1e6).coefficient.item() == 1.0


def test_clipping_with_infinity_and_nan():
    infinite = clip_by_global_norm({"a": fs.array([np.inf, 1.0], "fp32")}, 1.0)
    assert infinite.coefficient.item() == 0.0
    assert np.isnan(infinite.gradients["a"].values[0])
    assert np.isnan(clip_by_global_norm({"a": fs.array([np.nan, 1.0], "fp32")}, 1.0).gradients["a"].values).all()


def test_fp64_is_not_narrowed():
    assert global_norm({"w": fs.array([1e30], "fp64")}).item() == 1e30
    clipped = clip_by_global_norm({"w": fs.array([1e30], "fp64")}, 0.1, eps=0.0)
    assert clipped.gradients["w"].item() == 1e30 * (1 / 1e30 * 0.1)
    assert shrink_gradient(fs.array([1.0], "fp64"), 0.1).item() == 0.1
    assert shrink_embedding(fs.array([1.0], "fp64"), 0.1).item() == 0.1 + 0.9


def test_norm_of_several_formats():
    """The narrowest format that holds all numbers, in any order of the gradients."""
    for names, expected in (("fp16 bf16", fs.FP32), ("bf16 fp16", fs.FP32), ("e4m3 fp16", fs.FP16)):
        gradients = {name: fs.array([1.0], name) for name in names.split()}
        assert global_norm(gradients).format == expected


@pytest.mark.parametrize("call", [
    lambda: global_norm({"w": [1.0]}), lambda: clip_by_global_norm({"w": [1.0]}, 1.0),
    lambda: accumulate_gradients([{"w": [1.0]}]), lambda: shrink_gradient([1.0], 0.5),
    lambda: shrink_embedding([1.0], 0.5), lambda: fs.training.StaticLossScaler(2.0).unscale({"w": [1.0]}),
    lambda: fs.training.GradScaler().unscale({"w": [1.0]}), lambda: fs.training.overflowed({"w": [1.0]}),
])  # fmt: skip
def test_gradients_that_are_no_float_arrays(call):
    with pytest.raises(TypeError, match=r"(gradients\['w'\]|batches\['w'\]|gradient|weight) must be a FloatArray"):
        call()


@pytest.mark.parametrize("other", [[1.0], [1.0, 2.0, 3.0]])
def test_accumulation_of_other_shapes(other):
    with pytest.raises(ValueError, match=r"differ in the shape of 'w': \(2,\) and"):
        accumulate_gradients([{"w": fs.array([1.0, 2.0], "fp32")}, {"w": fs.array(other, "fp32")}])


def test_shrinking():
    """GLM-130B: the ratio of gradients is the share, and the weights change in the last bit."""
    assert shrink_gradient(fs.array([8.0, 3.0], "fp32"), 0.125).tolist() == [1.0, 0.375]
    weight = fs.array(np.linspace(1, 2, 129), "bf16")
    changed = shrink_embedding(weight, 0.1).codes.astype(int) - weight.codes.astype(int)
    assert set(np.abs(changed)) == {0, 1}
    assert (shrink_embedding(weight, 0.5).codes == weight.codes).all()


@pytest.mark.parametrize(("call", "message"), [
    (lambda g: clip_by_global_norm(g, 0.0), "max_norm must be above 0"),
    (lambda g: clip_by_global_norm(g, 1.0, eps=float("nan")), "eps must be a finite number of at least 0, not nan"),
    (lambda g: clip_by_global_norm(g, 1.0, eps=-1), "eps must be a finite number of at least 0, not -1"),
    (lambda g: clip_by_global_norm(g, 1.0, apart="embeding"), "apart='embeding' fits no gradient; did you mean"),
    (lambda g: clip_by_global_norm(g, 1.0, apart="*"), "there are no gradients"),
    (lambda g: shrink_gradient(g["embedding"], 1.5), "alpha must be from 0 to 1"),
])  # fmt: skip
def test_bad_values(call, message):
    with pytest.raises(ValueError, match=message):
        call({"embedding": fs.array([1.0], "fp32")})
