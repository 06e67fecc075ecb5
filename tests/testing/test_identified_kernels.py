"""`fs.identify` on kernels of a GPU's libraries: those that were tried on an H200, and others of their kinds.

The kernels are composed here of parts that are not the description under test: NumPy's additions and conversions, bits
of integers, and units that go on from the `c` of the part before. No GPU is needed.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import floatsim as fs
from floatsim.testing.identify.sum_forms import sum_form

pytestmark = pytest.mark.full

Kernel = Callable[..., Any]


# -- parts of kernels --------------------------------------------------------------------------------------------------


def chain(a, b, cuts, unit="hopper", c=None):
    """Parts of K on one accumulator, which the unit reads as c and returns as D."""
    for start, stop in itertools.pairwise(cuts):
        c = fs.matmul(a[:, start:stop], b[start:stop], c, accumulate=unit, format="fp32")
    return np.asarray(c)


def whole(a, b, unit="hopper"):
    """One accumulator over all terms, which is passed on every 128 terms."""
    k = a.shape[1]
    return chain(a, b, [*range(0, k, 128), k], unit)


def residue_first(a, b, tile=64, unit="hopper"):
    k = a.shape[1]
    return chain(a, b, sorted({0, k % tile, k}), unit)


def in_order(parts):
    """The sum in FP32, from +0."""
    total = np.zeros_like(parts[0])
    with np.errstate(all="ignore"):
        for part in parts:
            total = total + part
    return total


def blocks(a, b, every, unit="hopper"):
    return in_order([whole(a[:, i : i + every], b[i : i + every], unit) for i in range(0, a.shape[1], every)])


def split(a, b, parts, tile, unit="hopper", stored=None):
    """Parts of whole tiles; their results may be stored in 16 bits."""
    k = a.shape[1]
    shortest = -(-k // parts)
    length = -(-shortest // tile) * tile
    sums = [whole(a[:, i : i + length], b[i : i + length], unit) for i in range(0, k, length)]
    return in_order([rounded(each, stored).astype(np.float32) if stored else each for each in sums])


def dealt(a, b, parts, tile, unit="sequential(fp32, fused)"):
    """Tile t belongs to part t % parts."""
    number = np.arange(a.shape[1]) // tile % parts
    used = range(min(parts, number.max() + 1))
    return in_order([whole(a[:, number == part], b[number == part], unit) for part in used])


def rounded(x, fmt):
    with np.errstate(all="ignore"):
        return x.astype(fs.as_format(fmt).dtype)


def to_tf32(x, how="even"):
    """FP32 numbers with 10 fraction bits, by their bits: rounded to nearest, or cut off."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    add = {"even": np.uint32(0xFFF) + (bits >> 13 & 1), "away": np.uint32(0x1000), "cut": np.uint32(0)}[how]
    finite = (bits >> 23 & 0xFF) < 0xFF
    return fs.array(np.where(finite, bits + add & np.uint32(0xFFFFE000), bits).view(np.float32), "tf32")


def tf32x3(a, b, every=32):
    """Triton's three products for each block of K, on one accumulator from zero."""
    big = [to_tf32(x, "away") for x in (a, b)]
    with np.errstate(all="ignore"):
        small = [to_tf32(x - y.values.astype(np.float32), "cut") for x, y in zip((a, b), big, strict=True)]
    sums = []
    for i in range(0, a.shape[1], every):
        left, right = slice(None), slice(i, i + every)
        c = None
        for x, y in ((small[0], big[1]), (big[0], small[1]), (big[0], big[1])):
            c = fs.matmul(x[left, right], y[right], c, accumulate="hopper", format="fp32")
        sums.append(np.asarray(c))
    return in_order(sums)


def row_sums(a, b):
    """(a[:, None] * b.T[None]).sum(-1) of less than 128 terms: a warp of 32 threads, halved."""
    with np.errstate(all="ignore"):
        x = a[:, None] * b.T[None]
        lanes = [in_order([x[..., k] for k in range(lane, x.shape[-1], 32)]) for lane in range(min(32, x.shape[-1]))]
        return halved(lanes)


def halved(lanes):
    while len(lanes) > 1:
        half = -(-len(lanes) // 2)
        lanes = [x + lanes[i + half] if i + half < len(lanes) else x for i, x in enumerate(lanes[:half])]
    return lanes[0]


def long_row_sums(a, b):
    """The same of 128 terms or more: 32 threads with four accumulators each, for vectors of four numbers."""
    with np.errstate(all="ignore"):
        x = a[:, None] * b.T[None]
        lanes = [in_order([x[..., k] for k in range(lane, x.shape[-1], 128)]) for lane in range(128)]
        return halved([in_order(lanes[4 * thread : 4 * thread + 4]) for thread in range(32)])


def through_torch(a, b):
    """TF32 numbers in a kernel that takes tensors of float32."""
    torch = pytest.importorskip("torch", reason="needs torch: the extra `torch`")
    tensors = [fs.to_torch(x) for x in (a, b)]
    assert all(tensor.dtype == torch.float32 for tensor in tensors)
    return blocks(*(to_tf32(tensor.numpy()) for tensor in tensors), 32)


def convolution(a, b):
    """Filters of 3 x 3 and channels in blocks of 16: each block has the nine places, each place the channels."""
    order = np.arange(a.shape[1]).reshape(-1, 16, 9).transpose(0, 2, 1).reshape(-1)
    return whole(a[:, order], b[order])


TRITON = [k for half in (0, 1) for k in range(32) if k // 2 % 2 == half]


def as_fp16(a, b):
    """FP8 as FP16: of each four terms the first two, then the others."""
    order = np.concatenate([start + np.array(TRITON) for start in range(0, a.shape[1], 32)])
    return whole(fs.convert(a, "fp16")[:, order], fs.convert(b, "fp16")[order])


def in_16_bits(kernel: Kernel, fmt: str) -> Kernel:
    return lambda a, b: rounded(kernel(a, b), fmt)


def on_tf32(kernel: Kernel, how: str = "even") -> Kernel:
    return lambda a, b: kernel(to_tf32(a, how), to_tf32(b, how))


FMA = "sequential(fp32, fused)"

# -- the kernels that were tried on an H200 ----------------------------------------------------------------------------

TRIED = {
    **{
        f"mm {fmt} {k}": (in_16_bits(whole, fmt), fmt, shape, "hopper")
        for fmt in ("bf16", "fp16")
        for k, shape in ((64, (64, 64, 64)), (512, (128, 512, 128)), (1024, (64, 1024, 64)))
    },
    "mm bf16 300": (in_16_bits(residue_first, "bf16"), "bf16", (64, 300, 64), "residue(hopper, 64)"),
    "mm fp16 300": (in_16_bits(residue_first, "fp16"), "fp16", (64, 300, 64), "residue(hopper, 64)"),
    "mm fp32 64": (lambda a, b: whole(a, b, FMA), "fp32", (64, 64, 64), FMA),
    "mm fp32 300": (lambda a, b: blocks(a, b, 20, FMA), "fp32", (64, 300, 64), f"blocked({FMA}, 20, fp32)"),
    "mm fp32 512": (lambda a, b: blocks(a, b, 64, FMA), "fp32", (128, 512, 128), f"blocked({FMA}, 64, fp32)"),
    "mm tf32 64": (on_tf32(lambda a, b: blocks(a, b, 32)), "fp32", (64, 64, 64),
                   "converted(tf32, blocked(hopper, 32, fp32))"),
    "mm tf32 256": (on_tf32(whole), "fp32", (128, 256, 128), "converted(tf32, hopper)"),
    "mm tf32 of TF32 numbers": (through_torch, "tf32", (64, 64, 64), "blocked(hopper, 32, fp32)"),
    **{f"scaled_mm fast {shape[1]}": (whole, "e4m3", shape, "hopper")
       for shape in ((64, 64, 64), (128, 256, 128), (64, 512, 64))},
    "scaled_mm 64": (lambda a, b: blocks(a, b, 128), "e4m3", (64, 64, 64), "hopper"),
    "scaled_mm 256": (lambda a, b: blocks(a, b, 128), "e4m3", (128, 256, 128), "blocked(hopper, 128, fp32)"),
    "scaled_mm 512": (lambda a, b: blocks(a, b, 128), "e4m3", (64, 512, 64), "blocked(hopper, 128, fp32)"),
    "scaled_mm to bf16": (in_16_bits(whole, "bf16"), "e4m3", (64, 256, 64), "hopper"),
    "sum of rows": (row_sums, "fp32", (16, 100, 16), "strided(fp32, 32, pairwise(fp32, halving))"),
    "bmm bf16": (in_16_bits(whole, "bf16"), "bf16", (64, 128, 64), "hopper"),
    "einsum fp16": (in_16_bits(whole, "fp16"), "fp16", (32, 256, 32), "hopper"),
}  # fmt: skip
"""The kernels, the format of the operands, the shape, and the description."""

OTHERS = {
    "split-K": (in_16_bits(lambda a, b: split(a, b, 3, 64), "fp16"), "fp16", (32, 1024, 32),
                "splitk(3, hopper, fp32, tile=64)"),
    "split-K, stored": (in_16_bits(lambda a, b: split(a, b, 3, 64, stored="fp16"), "fp16"), "fp16", (32, 1024, 32),
                        "splitk(3, hopper, converted(fp16, fp32), tile=64)"),
    "dealt": (lambda a, b: dealt(a, b, 4, 8), "fp32", (32, 100, 32), f"splitk(4, {FMA}, fp32, tile=8, dealt)"),
    "dealt TF32": (on_tf32(lambda a, b: dealt(a, b, 4, 32, "hopper")), "fp32", (32, 256, 32),
                   "converted(tf32, splitk(4, hopper, fp32, tile=32, dealt))"),
    "residue of TF32": (on_tf32(lambda a, b: residue_first(a, b, 16)), "fp32", (32, 100, 32),
                        "converted(tf32, residue(hopper, 16))"),
    "cut off TF32": (on_tf32(whole, "cut"), "fp32", (32, 128, 32), "converted(tf32, hopper, rounding=toward_zero)"),
    "tf32x3": (tf32x3, "fp32", (32, 128, 32), "blocked(tf32x3(hopper), 32, fp32)"),
    "long sum of rows": (long_row_sums, "fp32", (8, 512, 8),
                         "strided(fp32, 128, blocked(fp32, 4, pairwise(fp32, halving)))"),
    "parts of K": (in_16_bits(lambda a, b: split(a, b, 4, 1), "bf16"), "bf16", (32, 512, 32),
                   "splitk(4, hopper, fp32)"),
    "convolution": (in_16_bits(convolution, "fp16"), "fp16", (32, 288, 32), "permuted(conv-3x3x16, hopper)"),
    "FP8 as FP16": (as_fp16, "e4m3", (32, 128, 32), f"converted(fp16, permuted({TRITON}, hopper))"),
}  # fmt: skip


@pytest.mark.parametrize("name", [*TRIED, *OTHERS])
def test_a_kernel_of_a_library_is_named(name):
    kernel, fmt, shape, expected = (TRIED | OTHERS)[name]
    a, b = fs.testing.hard_inputs(shape, fmt)
    found = fs.identify(kernel, a, b, device="h200")
    assert found.name == expected, str(found)
    assert not found.notes


def test_as_many_kernels_as_were_tried():
    assert len(TRIED) == 24


@pytest.mark.parametrize("name", ["mm bf16 64", "mm bf16 300", "scaled_mm 512", "mm tf32 64", "cut off TF32"])
def test_without_a_device_the_names_are_one_function(name):
    kernel, fmt, shape, expected = (TRIED | OTHERS)[name]
    found = fs.identify(kernel, *fs.testing.hard_inputs(shape, fmt))
    assert expected in found.names
    operand = fs.as_format(fmt)
    forms = {sum_form(fs.as_accumulation(each), operand, operand, shape[1]) for each in found.names}
    assert len(forms) == 1 and found.one_function
    assert len(found.names) == 1 or "they are one function" in str(found)


def test_the_unit_of_the_device_only():
    """Hopper, Blackwell and RTX Blackwell have one function for BF16; Ampere has another one."""
    a, b = fs.testing.hard_inputs((24, 64, 24), "bf16")
    names = {None: ("hopper", "blackwell", "blackwell-rtx"), "H200": ("hopper",), "sm_100": ("blackwell",)}
    for device, expected in names.items():
        assert fs.identify(in_16_bits(whole, "bf16"), a, b, device=device).names == expected
    found = fs.identify(in_16_bits(whole, "bf16"), a, b, device="a100")
    assert not found.names
    assert all("hopper" not in name for name, _ in found.near)
    with pytest.raises(ValueError, match="unknown architecture 'h2000'"):
        fs.identify(whole, a, b, device="h2000")


def test_no_chance_agreement_is_near():
    """A unit that no description has: results of other units agree in some elements by chance."""

    def kernel(a, b):
        return rounded(whole(a, b) * np.float32(1.5), "fp16")

    found = fs.identify(kernel, *fs.testing.hard_inputs((32, 256, 32), "fp16"))
    assert not found.names
    assert not found.near


# -- other numbers of terms --------------------------------------------------------------------------------------------


def test_a_kernel_for_one_shape_only():
    """Two rules that are one sum for K = 512: without another K the simpler one is named."""

    def kernel(a, b):
        if a.shape[1] != 512:
            raise ValueError("K must be 512")
        return split(a, b, 4, 1)

    a, b = fs.testing.hard_inputs((16, 512, 16), "e4m3")
    found = fs.identify(kernel, a, b, device="h200")
    assert found.name == "blocked(hopper, 128, fp32)"
    (note,) = found.notes
    assert note.startswith("for K = 512, blocked(hopper, 128, fp32) and splitk(4, hopper, fp32) and ")
    assert re.search(r"more are one sum; for K = \d+, which separates them, the kernel raised ValueError: K must", note)
    alone = fs.identify(kernel, a, b, device="h200", other_k=False)
    assert (alone.names, alone.notes) == (found.names, ())


def test_a_kernel_with_another_sum_for_another_k():
    def kernel(a, b):
        return split(a, b, 4, 1) if a.shape[1] == 512 else whole(a, b)

    found = fs.identify(kernel, *fs.testing.hard_inputs((16, 512, 16), "e4m3"), device="h200")
    assert found.name == "blocked(hopper, 128, fp32)"
    assert re.search(r"are one sum; for K = \d+ the kernel has another sum than each of them$", str(found))


# -- after the sum -----------------------------------------------------------------------------------------------------


def add(x, y):
    with np.errstate(all="ignore"):
        return x + y.astype(np.float32)


def relu(x):
    return np.where(x < 0, np.float32(0), x)


AFTER = {
    "c first": (lambda a, b, c: rounded(np.asarray(fs.matmul(a, b, c, accumulate="hopper")), "fp16"), (32,), "hopper"),
    "bias": (lambda a, b, c: rounded(add(whole(a, b), c), "fp16"), (32,), "epilogue(hopper, fp32)"),
    "matrix": (lambda a, b, c: rounded(add(whole(a, b), c), "fp16"), (32, 32), "epilogue(hopper, fp32)"),
    "rounded first": (lambda a, b, c: rounded(add(rounded(whole(a, b), "fp16").astype(np.float32), c), "fp16"),
                      (32, 32), "epilogue(hopper, fp32, through=fp16)"),
    "relu": (lambda a, b, c: rounded(relu(add(whole(a, b), c)), "fp16"), (32,),
             "epilogue(hopper, fp32, activation=relu)"),
    "residue": (lambda a, b, c: rounded(add(residue_first(a, b, 32), c), "fp16"), (32,),
                "epilogue(residue(hopper, 32), fp32)"),
}  # fmt: skip


@pytest.mark.parametrize("name", AFTER)
def test_what_a_kernel_does_with_c(name):
    kernel, shape, expected = AFTER[name]
    a, b = fs.testing.hard_inputs((32, 84, 32), "fp16")
    c = np.ones(shape, np.float16)
    seen = []

    def noted(a, b, c):
        seen.append((c.shape, c.dtype))
        return kernel(a, b, c)

    assert fs.identify(noted, a, b, c, device="h200").name == expected
    assert set(seen) == {(shape, np.dtype(np.float16))}


def test_an_activation_without_c():
    a, b = fs.testing.hard_inputs((32, 64, 32), "bf16")
    kernel = in_16_bits(lambda a, b: relu(whole(a, b)), "bf16")
    assert fs.identify(kernel, a, b, device="h200").name == "epilogue(hopper, fp32, activation=relu)"


def test_c_of_one_result():
    a, b = fs.testing.hard_inputs((32, 64, 32), "bf16")
    c = fs.testing.hard_inputs((32, 64, 32), "bf16", seed=1)[0][:, :32]
    result = rounded(add(whole(a, b), c), "bf16")
    found = fs.identify(result, a, b, c, device="h200")
    assert "epilogue(hopper, fp32)" in found.names
    assert "hopper" not in found.names


def test_orders_with_c_that_depend_on_the_place():
    def kernel(a, b, c):
        one, other = add(whole(a, b), c), add(blocks(a, b, 32), c)
        return np.concatenate([one[:, :16], other[:, 16:]], 1)

    a, b = fs.testing.hard_inputs((16, 64, 24), "bf16")
    found = fs.identify(kernel, a, b, np.ones(24, np.float32), device="h200")
    assert {region.names for region in found.regions} == {
        ("epilogue(hopper, fp32)",), ("epilogue(blocked(hopper, 32, fp32), fp32)",),
    }  # fmt: skip


# -- time --------------------------------------------------------------------------------------------------------------


def test_a_kernel_is_identified_in_ten_seconds():
    """128 x 512 x 128, after the first call, which compiles."""
    a, b = fs.testing.hard_inputs((128, 512, 128), "bf16")
    kernel = in_16_bits(lambda a, b: np.asarray(fs.matmul(a, b, accumulate="hopper", format="fp32")), "bf16")
    fs.identify(kernel, a, b)
    start = time.process_time()
    fs.identify(kernel, a, b)
    assert time.process_time() - start < 10
