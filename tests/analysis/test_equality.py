"""The share of elements with equal bits, for every pair of results."""

from __future__ import annotations

import numpy as np
import pytest

import floatsim as fs

RESULTS = {
    "one": np.float32([[1, 2], [3, 0.0]]),
    "same": np.float32([[1, 2], [3, 0.0]]),
    "zero": np.float32([[1, 2], [3, -0.0]]),
    "far": np.float32([[9, 8], [7, 6]]),
}


def test_equal_shares_count_bits():
    expected = [[1, 1, 0.75, 0], [1, 1, 0.75, 0], [0.75, 0.75, 1, 0], [0, 0, 0, 1]]
    assert np.array_equal(fs.equal_shares(RESULTS), expected)
    nan = fs.from_codes([0x7FC00000, 0x7FC00001], "fp32")
    assert fs.equal_shares({"a": nan, "b": fs.from_codes([0x7FC00000, 0x7FC00000], "fp32")})[0, 1] == 0.5


@pytest.mark.parametrize(("results", "message"), [
    ({}, "at least one array"),
    ({"a": np.float32([])}, "no elements"),
    ({"a": np.float32([1]), "b": np.float16([1])}, "'a' is FP32.*'b' is FP16"),
    ({"a": np.float32([1]), "b": np.float32([1, 2])}, "one format and shape"),
])  # fmt: skip
def test_bad_input_is_named(results, message):
    with pytest.raises(ValueError, match=message):
        fs.equal_shares(results)
