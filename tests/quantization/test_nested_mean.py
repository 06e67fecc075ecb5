"""The mean of nested scales, compared with the description of torch's sum and with torch."""

from __future__ import annotations

import numpy as np
import pytest

import floatsim as fs
from floatsim.quantization.nested_mean import torch_mean
from tests.marks import cases

SIZES = [1, 2, 7, 8, 31, 32, 33, 511, 512, 513, 1000, 2500]


def numbers(n: int) -> np.ndarray:
    return np.abs(np.random.default_rng(n).normal(size=n)).astype(np.float32)


@pytest.mark.parametrize("n", cases(quick=SIZES, full=[16383, 16416, 70001]))
def test_equals_the_description(n):
    (region,) = fs.library_sum("torch.sum", "float32", n)
    total = np.float32(fs.sum(numbers(n), accumulate=region.accumulate))
    assert torch_mean(numbers(n)) == np.float32(total / np.float32(n))


SMALL = [*range(1, 200), *np.random.default_rng(1).integers(1, 1 << 18, 10).tolist()]
LARGE = [32 * ((1 << 20) + step) for step in (-1, 0, 1)]  # from here on the blocks of the cascade grow


@pytest.mark.parametrize(
    "sizes", cases(quick=[pytest.param(SMALL, id="small")], full=[pytest.param(LARGE, id="large")])
)
def test_equals_torch_with_one_thread(sizes):
    torch = pytest.importorskip("torch", reason="compares with torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for n in sizes:
            assert torch_mean(numbers(n)) == np.float32(torch.from_numpy(numbers(n)).mean().item()), n
    finally:
        torch.set_num_threads(threads)


def test_no_numbers():
    assert torch_mean(np.float32([])) == 0
    assert fs.quantize_blocks(np.zeros((0, 64), np.float32), "nf4_nested").values.shape == (0, 64)
