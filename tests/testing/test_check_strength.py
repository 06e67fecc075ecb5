"""The strength of checks: what the published tolerances catch and miss."""

from __future__ import annotations

import json

import numpy as np
import pytest

import floatsim as fs

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def operands():
    return fs.testing.hard_inputs((64, 160, 64), "bf16", "normal")


def test_equal_bits_catch_everything(operands):
    found = fs.testing.strength(fs.testing.assert_bit_equal, *operands, format="bf16")
    assert found.share == 1
    assert not found.rejects_correct
    assert not found.missed
    names = {mutation.name for mutation in fs.testing.MUTATIONS} - {"the scales of a are swapped"}
    assert set(found.caught) | set(found.unchanged) == names


def test_a_check_that_accepts_everything_catches_nothing(operands):
    found = fs.testing.strength(lambda x, y: None, *operands)
    assert found.share == 0 and not found.caught
    assert fs.testing.strength(lambda x, y: True, *operands).missed == found.missed
    assert fs.testing.strength(lambda x, y: np.bool_(False), *operands).rejects_correct


def test_mutants_without_a_changed_bit_are_apart():
    a, b = fs.testing.hard_inputs((64, 160, 64), "bf16", "integers", result="bf16")
    found = fs.testing.strength(fs.testing.assert_bit_equal, a, b, format="bf16")
    assert {"the result is truncated", "the order of the parts is reversed"} <= set(found.unchanged)
    assert "one product is dropped" in found.caught


def test_calc_diff_misses_small_faults(operands):
    found = fs.testing.strength(lambda x, y: fs.testing.calc_diff(x, y) < 0.001, *operands, reference="exact")
    assert {"the output is zero", "the last K tile is dropped"} <= set(found.caught)
    assert {"one bit of one element is flipped", "the accumulator is FP16"} <= set(found.missed)
    assert "the result is truncated" in found.unchanged  # it is the accumulator
    assert json.loads(found.to_json())["missed"] == list(found.missed)
    assert "bugs caught" in str(found)


def test_scales_are_swapped():
    a, b = fs.testing.hard_inputs((32, 64, 32), "e2m1", "normal")
    scale_a, scale_b = (fs.array(2.0 ** np.arange(2) * np.ones((32, 2)), "e8m0") for _ in range(2))
    found = fs.testing.strength(
        fs.testing.assert_bit_equal, a, b, accumulate="blackwell", scale_a=scale_a, scale_b=scale_b.T
    )
    assert "the scales of a are swapped" in found.caught


def test_an_unknown_reference():
    with pytest.raises(ValueError, match="reference must be 'exact' or an array"):
        fs.testing.strength(lambda x, y: None, np.ones((2, 2), np.float32), np.ones((2, 2), np.float32), reference="e")


def test_a_check_is_a_function():
    with pytest.raises(TypeError, match="check must be a function of the result and the reference, not 3"):
        fs.testing.strength(3, np.ones((2, 2), np.float32), np.ones((2, 2), np.float32))
