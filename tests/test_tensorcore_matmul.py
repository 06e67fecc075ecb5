"""TensorCore as the accumulate= of matmul: the bits of the models, whole and as the inner sum of a composite."""

from __future__ import annotations

import numpy as np
import pytest

import floatsim as fs
from floatsim.tensorcore import reference

CASES = [
    ("hopper", fs.FP16, None), ("hopper", fs.E4M3, None), ("ampere", fs.BF16, None), ("volta", fs.FP16, "fp16"),
    ("blackwell", fs.E5M2, None), ("ada", fs.E4M3, "fp16"), ("cdna3", fs.FP16, None), ("hopper", fs.FP64, None),
]  # fmt: skip


def numbers(rng, fmt, shape):
    return fs.array(rng.standard_normal(shape) * 2.0 ** rng.integers(-4, 5, shape), fmt, overflow="saturate_finite")


def by_reference(how, a, b, c, output):
    """Codes of every element, by the table's row in exact integers."""
    row = how.row(a.format, b.format, output)
    out = np.empty((a.shape[0], b.shape[1]), row.output.code_dtype)
    for i, j in np.ndindex(out.shape):
        start, _ = reference.seeded(None if c is None else (int(c.codes[i, j]), c.format), row.output)
        x, y = a.codes[i].tolist(), b.codes[:, j].tolist()
        out[i, j] = reference.dot(row, x, y, a.format, b.format, start).code
    return out


@pytest.mark.parametrize(("arch", "fmt", "output"), CASES, ids=str)
def test_equals_the_model(arch, fmt, output):
    rng = np.random.default_rng(1)
    how = fs.TensorCore(arch, output=output)
    for k in 0, 1, 40:
        a, b, c = numbers(rng, fmt, (3, k)), numbers(rng, fmt, (k, 5)), numbers(rng, fs.FP32, (3, 5))
        for start in (None, c) if fmt != fs.FP64 else (None,):
            want = by_reference(how, a, b, start, None if output is None else fs.as_format(output))
            got = fs.matmul(a, b, start, accumulate=how)
            assert np.array_equal(got.codes, want)
            with fs.record() as log:
                assert np.array_equal(fs.matmul(a, b, start, accumulate=how).codes, want)
            if k == 40:
                assert log["matmul.sum"].elements > 0


def test_promotion_is_blocks_added_in_fp32():
    rng = np.random.default_rng(2)
    a, b = numbers(rng, fs.E4M3, (4, 300)), numbers(rng, fs.E4M3, (300, 6))
    got = fs.matmul(a, b, accumulate="blocked(hopper, 128, fp32)")
    acc = np.zeros((4, 6), np.float32)
    for k in range(0, 300, 128):
        acc = acc + np.asarray(fs.matmul(a[:, k : k + 128], b[k : k + 128], accumulate="hopper"))
    assert np.array_equal(np.asarray(got), acc)


def test_alpha_beta_and_the_format_of_the_result():
    a = fs.array(np.full((2, 16), 0.5), "fp16")
    c = fs.array(np.ones((2, 2)), "fp32")
    assert np.array_equal(np.asarray(fs.matmul(a, a.T, c, alpha=2, beta=3, accumulate="hopper")), np.full((2, 2), 11.0))
    assert fs.matmul(a, a.T, accumulate="hopper", format="fp16").format == fs.FP16
    assert fs.matmul(a, a.T, accumulate="hopper").format == fs.FP32


def test_what_it_refuses():
    a = fs.array(np.ones((2, 16)), "fp32")
    with pytest.raises(ValueError, match="tf32"):
        fs.matmul(a, a.T, accumulate="hopper")
    with pytest.raises(ValueError, match="volta"):
        fs.matmul(fs.array(np.ones((2, 16)), "e4m3"), fs.array(np.ones((16, 2)), "e4m3"), accumulate="volta")
