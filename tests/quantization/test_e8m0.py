"""PyTorch's conversion to E8M0: a table of its codes, its rule in exact numbers, and torch itself."""

import numpy as np
import pytest

import floatsim as fs
from floatsim.quantization import torch_e8m0

# FP32 bits, and the code of torch 2.13
CODES = {
    0x00000000: 0, 0x80000000: 0,  # zeros
    0x00000001: 0, 0x003FFFFF: 0, 0x00400000: 0, 0x80400000: 0,  # to 2^-127
    0x00400001: 1, 0x004B6593: 1, 0x00571F87: 1, 0x805EA90D: 1, 0x007FFFFF: 1,  # between 2^-127 and 2^-126
    0x00800000: 1, 0x00BFFFFF: 1, 0x00C00000: 2, 0x80C00000: 2,  # ties go up
    0x3F800000: 127, 0x3FBFFFFF: 127, 0x3FC00000: 128, 0x40400000: 129, 0xC0400000: 129,
    0x7F000000: 254, 0x7F3FFFFF: 254, 0x7F400000: 255, 0x7F7FFFFF: 255,  # 1.5 * 2^127 overflows
    0x7F800000: 255, 0xFF800000: 255, 0x7F800001: 255, 0x7FC00000: 255, 0xFFFFFFFF: 255,  # infinities and NaN
}  # fmt: skip


def fp32_bits() -> np.ndarray:
    """Bits of FP32: on both sides of every threshold, all of BF16, subnormal numbers, and random ones."""
    rng = np.random.default_rng(0)
    steps = np.uint32([0, 1, 0x3FFFFF, 0x400000, 0x400001, 0x7FFFFF])
    edges = ((np.arange(512, dtype=np.uint32) << 23)[:, None] + steps).ravel()
    parts = (edges, np.arange(1 << 16, dtype=np.uint32) << 16, rng.integers(0, 1 << 23, 200_000, np.uint32),
             rng.integers(0, 1 << 32, 1_000_000, np.uint32))  # fmt: skip
    return np.concatenate(parts)


def test_codes_of_torch():
    x = np.array(list(CODES), np.uint32)
    assert torch_e8m0(fs.from_codes(x, "fp32")).codes.tolist() == list(CODES.values())
    assert torch_e8m0(x.view(np.float32)[None]).shape == (1, len(CODES))


def test_normal_numbers_have_the_codes_of_encode():
    """The rule differs from `fs.encode` of the magnitude only below 2^-126."""
    x = fp32_bits().view(np.float32)
    size = np.abs(x)
    normal = ~(size < 2.0**-126)
    found = torch_e8m0(x)
    assert np.array_equal(found.codes[normal], fs.encode(size[normal], "e8m0"))
    assert np.array_equal(found.values[~normal], np.where(size[~normal] > 2.0**-127, 2.0**-126, 2.0**-127))


def test_other_formats_are_rounded_to_fp32_first():
    x = np.array([1.5 - 2.0**-40, -1.5, 2.0**-127 * (1 + 2.0**-40), 1e-300, 1e300])
    assert torch_e8m0(x).codes.tolist() == [128, 128, 0, 0, 255]
    assert torch_e8m0(np.float16([2.0**-24, -0.75, np.inf])).codes.tolist() == [103, 127, 255]
    with pytest.raises(TypeError, match="x"):
        torch_e8m0(np.array([1, 2]))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
def test_torch(dtype):
    """All 2^16 numbers of the 16-bit formats, and 1.3 million of FP32."""
    torch = pytest.importorskip("torch")
    if not hasattr(torch, "float8_e8m0fnu"):
        pytest.skip("this torch has no float8_e8m0fnu")
    if dtype in ("float32", "float64"):
        with np.errstate(invalid="ignore"):  # signaling NaN
            x = fp32_bits().view(np.float32).astype(dtype)
        if dtype == "float64":
            x = x * (1 + 2.0**-40)
        ours, theirs = x, torch.from_numpy(x)
    else:
        bits = np.arange(1 << 16, dtype=np.uint16)
        ours = fs.from_codes(bits, {"bfloat16": "bf16", "float16": "fp16"}[dtype])
        theirs = torch.from_numpy(bits.view(np.int16)).view(getattr(torch, dtype))
    expected = theirs.to(torch.float8_e8m0fnu).view(torch.uint8).numpy()
    assert np.array_equal(torch_e8m0(ours).codes, expected)
