"""One product at a time: dropped, repeated and misread k are found, in every format."""

from __future__ import annotations

import numpy as np
import pytest

import floatsim as fs
from tests.marks import cases


def numpy_kernel(change=lambda a, b: None, dtype=np.float32):
    """A kernel in float32 whose operands are changed first."""

    def kernel(a, b):
        x, y = np.array(a, dtype), np.array(b, dtype)
        change(x, y)
        return x @ y

    return kernel


@pytest.mark.parametrize("shape", cases(quick=[(16, 64, 8), (5, 64, 1)], full=[(64, 10, 3), (7, 300, 2), (1, 1, 1)]))
@pytest.mark.parametrize("fmt", cases(quick=["bf16"], full=["fp16", "e4m3", "fp32"]))
def test_a_correct_kernel_passes(shape, fmt):
    assert fs.testing.check_each_k(numpy_kernel(), shape, fmt).passed


def drop(x, y):
    x[:, 48:56] = 0


def swap(x, y):
    y[[3, 9]] = y[[9, 3]]


def twice(x, y):
    x[:, 63] *= 2


def only_some_columns(x, y):
    y[20, 4:] = 0


@pytest.mark.parametrize(("change", "lines"), [
    (drop, ["k = 48 to 55: the product is missing"]),
    (swap, ["k = 3: b is read from k = 9", "k = 9: b is read from k = 3"]),
    (twice, ["k = 63: the product is multiplied by 2"]),
    (only_some_columns, ["k = 20: the product is wrong in some columns"]),
])  # fmt: skip
@pytest.mark.parametrize("fmt", cases(quick=["bf16"], full=["e4m3"]))
def test_faults_are_named(change, lines, fmt):
    report = fs.testing.check_each_k(numpy_kernel(change), (16, 64, 8), fmt)
    assert not report.passed
    assert [line.strip() for line in str(report).splitlines()[1:]] == lines


def test_a_fault_in_one_row():
    def kernel(a, b):
        x = np.array(a, np.float32)
        x[3, 19] = 0
        return x @ np.array(b, np.float32)

    assert [each.k for each in fs.testing.check_each_k(kernel, (16, 64, 8), "bf16").wrong] == [19]


def test_a_wrong_shape():
    with pytest.raises(ValueError, match=r"returned the shape \(2, 2\), not \(4, 4\)"):
        fs.testing.check_each_k(lambda a, b: np.ones((2, 2), np.float32), (4, 4, 4), "bf16")


@pytest.mark.parametrize(("arguments", "error", "words"), [
    ((np.matmul, (4, 4), "bf16"), ValueError, r"shape must be three lengths \(M, K, N\)"),
    ((3, (4, 4, 4), "bf16"), TypeError, "kernel must be a function of a and b, not 3"),
    ((np.matmul, (4, 4, 4), ["bf16"] * 3), ValueError, "formats must be one format, or those of a and of b"),
    ((np.matmul, (4, 4, 4), "e8m0"), ValueError, "formats=E8M0 is a scale format"),
])  # fmt: skip
def test_bad_input_is_named(arguments, error, words):
    with pytest.raises(error, match=words):
        fs.testing.check_each_k(*arguments)
