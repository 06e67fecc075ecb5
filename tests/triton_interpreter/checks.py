"""`floatsim.triton` in Triton's interpreter. test_run.py runs this file with TRITON_INTERPRET=1.

The oracles are ml_dtypes and torch (casts), `fs.matmul` (products, attention), the recordings of an H200 (dots),
Random123's vectors (random numbers).
"""

from __future__ import annotations

import re
import threading
import time

import ml_dtypes
import numpy as np
import pytest
import torch
import triton
from triton.runtime import interpreter

import floatsim as fs
import floatsim.triton as ftl
from tests.accumulation import recorded_products as recorded
from tests.accumulation import sample_calls
from tests.triton_interpreter import kernels

ML = {
    torch.bfloat16: ml_dtypes.bfloat16, torch.float16: np.float16, torch.float8_e5m2: ml_dtypes.float8_e5m2,
    torch.float8_e4m3fn: ml_dtypes.float8_e4m3fn, torch.float8_e5m2fnuz: ml_dtypes.float8_e5m2fnuz,
    torch.float8_e4m3fnuz: ml_dtypes.float8_e4m3fnuz, torch.float32: np.float32, torch.float64: np.float64,
}  # fmt: skip
NAMES = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32", torch.float8_e4m3fn: "e4m3",
         torch.float8_e5m2: "e5m2"}  # fmt: skip
DOTS = {torch.float16: "float16", torch.bfloat16: "bfloat16", torch.float32: "float32",
        torch.float8_e4m3fn: "float8_e4m3fn", torch.float8_e5m2: "float8_e5m2"}  # fmt: skip


def array_of(x: torch.Tensor) -> np.ndarray:
    """A tensor as an array of NumPy or ml_dtypes with the same codes."""
    return fs.array(x).codes.view(ML[x.dtype])


def differing(found: np.ndarray, expected: np.ndarray) -> int:
    """The number of different codes. All NaN are equal: torch, ml_dtypes and GPUs have different ones."""
    kind = f"u{found.dtype.itemsize}"
    with np.errstate(invalid="ignore"):
        both = np.isnan(found.astype(np.float64)) & np.isnan(expected.astype(np.float64))
    return int(np.count_nonzero((found.view(kind) != expected.view(kind)) & ~both))


def all_codes(dtype: torch.dtype) -> torch.Tensor:
    """All codes of a dtype; of FP32 2^20 random ones, the ends of its binades, and ties of narrower formats."""
    if dtype == torch.float32:
        rng = np.random.default_rng(48)
        codes = rng.integers(0, 1 << 32, 1 << 20, dtype=np.uint32)
        codes[: 1 << 18] &= np.uint32(0xFFFF0000)
        codes[: 1 << 17] |= np.uint32(0x8000)  # ties of BF16
        codes[1 << 18 : 1 << 19] = np.float32(2.0 ** rng.uniform(-20, 18, 1 << 18)).view(np.uint32) & np.uint32(
            0xFFF80000
        )
        return torch.from_numpy(codes.view(np.int32)).view(torch.float32)
    bits = 8 * torch.empty(0, dtype=dtype).element_size()
    kind = torch.uint8 if bits == 8 else torch.int16
    return torch.arange(1 << bits, dtype=torch.int32).to(kind).view(dtype)


# -- casts and arithmetic ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", [each for each in ML if each != torch.float64], ids=str)
def test_casts_of_all_codes(source):
    """All 65,536 codes of 16-bit formats, all codes of FP8, and 1,048,576 numbers of FP32: as ml_dtypes casts them."""
    x = all_codes(source)
    with ftl.interpret(), np.errstate(all="ignore"):
        for target, dtype in ML.items():
            if target == source:
                continue
            with np.errstate(all="ignore"):
                expected = array_of(x).astype(np.float32).astype(dtype)
            assert differing(array_of(kernels.cast(x, target)), expected) == 0, target


@pytest.mark.parametrize("source", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("target", [torch.bfloat16, torch.float16, torch.float8_e5m2], ids=str)
def test_casts_equal_those_of_torch(source, target):
    if source == target:
        return
    x = all_codes(source)
    with ftl.interpret():
        assert differing(array_of(kernels.cast(x, target)), array_of(x.to(target))) == 0


def test_casts_of_hopper_saturate():
    infinity = float("inf")
    x = torch.tensor([448.0, 464.0, 465.0, 1e9, infinity, -infinity, float("nan"), 60000.0])
    with ftl.interpret(casts="hopper"):
        e4m3, e5m2 = (kernels.cast(x, each).float() for each in (torch.float8_e4m3fn, torch.float8_e5m2))
        assert kernels.cast(x, torch.float16)[3:6].tolist() == [infinity, infinity, -infinity]
    assert e4m3[:6].tolist() == [448.0] * 5 + [-448.0] and e4m3[6].isnan() and e4m3[7] == 448.0
    assert e5m2[3:6].tolist() == [57344.0] * 2 + [-57344.0] and e5m2[6].isnan() and e5m2[7] == 57344.0


def test_casts_toward_zero():
    x = all_codes(torch.float32)
    with ftl.interpret():
        for target, fmt in ((torch.bfloat16, "bf16"), (torch.float16, "fp16"), (torch.float8_e5m2, "e5m2")):
            found = array_of(kernels.cast(x, target, "rtz"))
            assert differing(found, fs.convert(array_of(x), fmt, rounding="toward_zero")) == 0


def test_casts_between_integers_and_numbers():
    n = torch.tensor([0, -1, 257, 258, 259, 2**31 - 1, -(2**31), 2**24 + 1], dtype=torch.int32)
    x = torch.tensor([0.5, -0.5, 2.9, -2.9, 3e9, -3e9, float("inf"), float("nan")])
    with ftl.interpret():
        assert kernels.cast(n, torch.bfloat16).tolist() == n.to(torch.bfloat16).tolist()
        assert kernels.cast(n, torch.float32).tolist() == n.float().tolist()
        for source in (torch.float32, torch.bfloat16):
            found = kernels.cast(x.to(source), torch.int32).tolist()
            assert found == [0, 0, 2, -2, 2**31 - 1, -(2**31), 2**31 - 1, 0]
        assert kernels.cast(torch.tensor([300.0, -1.0, 5.0, 0.0]), torch.uint8).tolist() == [255, 0, 5, 0]


def test_arithmetic_on_bf16():
    """All results are rounded once: fs on pairs of hard codes, subnormals and special values among them."""
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 1 << 16, (2, 1 << 16)).astype(np.uint16)
    codes[:, :4096] &= 0x83FF  # small exponents: subnormals
    x, y = (fs.from_codes(each, "bf16") for each in codes)
    out = torch.empty(8, 1 << 16, dtype=torch.bfloat16)
    with ftl.interpret():
        kernels.arithmetic_kernel[(1,)](fs.to_torch(x), fs.to_torch(y), out, 1 << 16)
    smaller = fs.from_codes(np.where(x.values < y.values, codes[0], codes[1]), "bf16")
    expected = [fs.add(x, y), fs.subtract(x, y), fs.multiply(x, y), fs.negative(x), fs.maximum_number(x, y), smaller,
                fs.fma(x, y, x), fs.absolute(x)]  # fmt: skip
    for row, each in zip(out, expected, strict=True):
        found = array_of(row)
        same_zero = (found == 0) & (each.values == 0)  # max of +0 and -0
        other = np.where(same_zero, found.view(np.uint16), each.codes).astype(np.uint16).view(ml_dtypes.bfloat16)
        assert differing(found, other) == 0


# -- dots --------------------------------------------------------------------------------------------------------------


def operands(m, k, n, dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(shape, generator=generator).to(dtype) for shape in ((m, k), (k, n)))


@pytest.mark.parametrize("block", [32, 64, 128])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, *(
    pytest.param(each, marks=pytest.mark.full) for each in (torch.float16, torch.float32, torch.float8_e5m2)
)], ids=str)  # fmt: skip
def test_a_tiled_product(block, dtype):
    """A kernel with tiles, groups and masks equals one call of `fs.matmul`, on the sums of an H200 and on FP32 sums."""
    a, b = operands(80, 256, 48, dtype)
    for dot, precision in (("hopper", "tf32"), ("hopper", "tf32x3"), ("fp32", "ieee")):
        by_device = fs.hardware.triton_dot(DOTS[dtype], block, input_precision=precision)
        accumulate = by_device if dot == "hopper" else dot
        with ftl.interpret(dot=dot):
            found = kernels.matmul(a, b, block=(64, 32, block), PRECISION=precision)
        expected = fs.matmul(fs.array(a), fs.array(b), accumulate=accumulate, format="fp32")
        assert np.array_equal(array_of(found), expected.codes.view(np.float32))


def test_terms_that_do_not_fill_a_block():
    a, b = operands(50, 200, 33, torch.bfloat16)
    with ftl.interpret():
        found = kernels.matmul(a, b, torch.bfloat16, block=(64, 64, 64))
    expected = fs.matmul(fs.array(a), fs.array(b), accumulate="hopper", format="bf16")
    assert differing(array_of(found), expected.codes.view(ml_dtypes.bfloat16)) == 0


def attention_by_hand(q, k, v, every, accumulate):
    """Attention in blocks of `every` keys, with the products of `fs.matmul`."""
    x, fmt = fs.array(q), fs.array(q).format
    scale = fs.array(np.float32(q.shape[1] ** -0.5 * 1.4426950408889634), "fp32")
    largest = fs.array(np.full((len(q), 1), -np.inf, np.float32))
    total, acc = fs.array(np.zeros((len(q), 1), np.float32)), fs.array(np.zeros(q.shape, np.float32))
    for start in range(0, len(k), every):
        keys, values = fs.array(k[start : start + every]), fs.array(v[start : start + every])
        scores = fs.multiply(fs.matmul(x, keys.T, accumulate=accumulate, format="fp32"), scale)
        above = fs.maximum_number(largest, np.max(scores, axis=1, keepdims=True))
        p = fs.exp2(fs.subtract(scores, above))
        factor = fs.exp2(fs.subtract(largest, above))
        added = fs.sum(p, 1, keepdims=True, accumulate="pairwise(fp32, halving)")
        total = fs.add(fs.multiply(total, factor), added)
        acc = fs.matmul(fs.convert(p, fmt), values, fs.multiply(acc, factor), accumulate=accumulate, format="fp32")
        largest = above
    return fs.convert(fs.divide(acc, total), fmt)


@pytest.mark.parametrize("block", [32, 64, 128])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_a_fused_attention(block, dtype):
    q, k = operands(64, 64, 256, dtype)
    k = k.T.contiguous()
    v = operands(256, 1, 64, dtype)[0] * k
    for dot in ("hopper", "fp32"):
        with ftl.interpret(dot=dot):
            found = kernels.attention(q, k, v, block=(64, block))
        expected = attention_by_hand(q, k, v, block, {"hopper": "hopper", "fp32": "fp32"}[dot])
        assert np.array_equal(fs.array(found).codes, expected.codes)


def recorded_result(a, b, note):
    """The result of a recorded dot, of the whole operands."""
    x, y = (fs.to_torch(each).contiguous() for each in (a, b))
    return kernels.recorded_dot(x, y, note["bk"], note["imp"], note["prec"], note["how"], note["warps"])


@pytest.mark.parametrize("key", sample_calls.DOTS)
def test_recorded_dots_of_the_sample(key):
    """The recordings that the project ships: FP16, TF32, tf32x3, and FP8 with and without wgmma."""
    note, arrays = next((note, arrays) for name, note, arrays in sample_calls.shipped() if name == f"dot|{key}")
    rows = np.resize(np.arange(len(arrays["a"])), note["M"])
    columns = np.resize(np.arange(arrays["b"].shape[1]), 64)
    with ftl.interpret("hopper"):
        found = recorded_result(arrays["a"][rows], arrays["b"][:, columns], note)
    assert np.array_equal(found.numpy().view(np.uint32)[:16, :32], arrays["result"])


@recorded.needs_recordings
@pytest.mark.full
@pytest.mark.parametrize("file", ["triton_dots", "kernels/triton_more"])
def test_recorded_dots(file):
    """All 450 dots of both recordings that have a description: FP16, BF16, TF32, tf32x3, IEEE, FP8."""
    arrays, _ = recorded.recording(file)
    counts = {True: 0, False: 0}
    for key in (key for key in arrays.files if key != "meta" and not re.search("prec=[45]", key)):
        if key.startswith("dot|"):
            _, fmt, k, kind, block, imprecise, precision = key.split("|")
            number = imprecise.partition("=")[2]
            note = {
                "M": 64, "bk": int(block[3:]), "imp": -1 if number == "None" else int(number), "how": 0, "warps": 4,
                "prec": {"none": 0, "tf32": 1, "ieee": 2, "tf32x3": 3}[precision],
            }  # fmt: skip
        else:
            fmt, *options, kind = key.split("|")
            note, k = {name: int(x) for name, x in (each.split("=") for each in options)}, 256
        a, b = recorded.operands(note["M"], int(k), 64, fmt, kind=kind)
        with ftl.interpret("hopper"):
            found = recorded_result(a, b, note).numpy().view(np.uint32)
        counts[np.array_equal(found[: len(arrays[key]), : arrays[key].shape[1]], arrays[key])] += 1
    assert counts == {True: {"triton_dots": 330}.get(file, 120), False: 0}


def test_a_sum_that_the_compiler_joins():
    """acc += tl.dot(x, y) of 16-bit operands is one chain of instructions; of FP32 it was not recorded."""
    a, b = operands(64, 256, 64, torch.bfloat16)
    with ftl.interpret():
        joined, passed = (kernels.recorded_dot(a, b, 64, -1, 0, how, 4) for how in (1, 0))
        assert torch.equal(joined, passed)
        with pytest.raises(ftl.UndefinedOperationError, match=r"pass the tensor to tl\.dot as acc"):
            kernels.recorded_dot(a.float(), b.float(), 64, -1, 0, 1, 4)
    with ftl.interpret(dot="fp32"):
        expected = fs.matmul(fs.array(a), fs.array(b), accumulate="blocked(fp32, 64, fp32)", format="fp32")
        assert np.array_equal(array_of(kernels.recorded_dot(a, b, 64, -1, 0, 1, 4)), expected.values)


@pytest.mark.parametrize(("kind_a", "kind_b"), [("e4m3", "e5m2"), ("e2m1", "e4m3"), ("bf16", "e2m1"), ("fp16", "e5m2")])
def test_scaled_dots(kind_a, kind_b):
    """On Hopper the scaled operands are rounded to BF16 or FP16; a unit for blocks takes the scales itself."""
    rng = np.random.default_rng(3)
    rows, columns, terms = 64, 32, 128
    x, y = (fs.array(rng.standard_normal(shape), kind) for shape, kind in (
        ((rows, terms), kind_a), ((columns, terms), kind_b),
    ))  # fmt: skip
    scales = [fs.from_codes(rng.integers(120, 134, (n, terms // 32)).astype(np.uint8), "e8m0") for n in (rows, columns)]

    def stored(z):
        if z.format != fs.E2M1:
            return fs.to_torch(z)
        return torch.from_numpy(z.codes[:, ::2] | (z.codes[:, 1::2] << 4))

    given = (stored(x), torch.from_numpy(scales[0].codes), stored(y).T.contiguous(), torch.from_numpy(scales[1].codes))
    sizes = rows, columns, terms, kind_a, kind_b, 1 + (kind_a == "e2m1"), 1 + (kind_b == "e2m1")
    out = torch.empty(rows, columns)
    with ftl.interpret("hopper"):
        kernels.scaled_kernel[(1,)](*given, out, *sizes)
    fmt = "fp16" if "fp16" in (kind_a, kind_b) else "bf16"
    scaled = [
        fs.multiply(fs.convert(z, fmt), np.repeat(fs.convert(s, fmt), 32, axis=1))
        for z, s in zip((x, y), scales, strict=True)
    ]
    expected = fs.matmul(scaled[0], scaled[1].T, accumulate="hopper", format="fp32")
    assert np.array_equal(out.numpy(), expected.values.astype(np.float32))
    if kind_a in ("e4m3", "e2m1") and kind_b != "e2m1":
        with ftl.interpret("blackwell"):
            kernels.scaled_kernel[(1,)](*given, out, *sizes)
        expected = fs.matmul(x, y.T, accumulate="blackwell", scale_a=scales[0], scale_b=scales[1].T, format="fp32")
        assert np.array_equal(out.numpy(), expected.values.astype(np.float32))


# -- reductions and random numbers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_reductions(dtype):
    """In the format of the operand; the interpreter adds codes of BF16."""
    x = operands(8, 64, 1, dtype)[0]
    x[0, 5], x[1, :2] = float("nan"), torch.tensor([-0.0, 0.0])
    x[1, 2:] = -1.0
    fmt, read = NAMES[dtype], fs.array(x)
    for sums, order in (
        ("halving", f"pairwise({fmt}, halving)"),
        ("sequential", fmt),
        ("adjacent", f"pairwise({fmt})"),
    ):
        total, largest = torch.empty(8, dtype=dtype), torch.empty(8, dtype=dtype)
        place, running = torch.empty(8, dtype=torch.int32), torch.empty_like(x)
        with ftl.interpret(sums=sums):
            kernels.reductions_kernel[(1,)](x, total, largest, place, running, 8, 64)
        assert differing(array_of(total), fs.sum(read, 1, accumulate=order, format=fmt).codes.view(ML[dtype])) == 0
        steps = "fp32" if fmt == "bf16" and triton.__version__ == "3.8.0" else fmt  # 3.8.0 scans BF16 in FP32
        by_steps = fs.cumsum(read, 1, accumulate=steps, format=fmt).values
        assert np.array_equal(array_of(running).astype(float), by_steps, equal_nan=True)
        assert torch.equal(largest, torch.from_numpy(np.nanmax(x.float().numpy(), 1)).to(dtype))
        assert not torch.signbit(largest[1])
        assert place.tolist() == np.nanargmax(x.float().numpy(), 1).tolist()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_sample_of_masks_and_constants(dtype):
    """Comparisons are booleans, Python's numbers are constants of the format, and zeros are ordered."""
    x, y = (
        torch.tensor(each).to(dtype) for each in ([3, 1, -2, 0.5, 9, -7, -0.0, 2.0], [3, 2, -2, 1, 10, -3, 0.0, -1])
    )
    out = torch.full((6, 8), -1.0).to(dtype)
    with ftl.interpret():
        kernels.masks_kernel[(1,)](x, y, out, 8, kernels.DTYPES[dtype])
    assert out[0].tolist() == [1.5, 0.5, 1.5, 0.25, 4.5, 1.5, 1.5, 1.5]
    assert out[1].tolist() == (x >= y).to(dtype).tolist()
    assert out[2].tolist() == [-1, 7, -1, 7, 7, 7, -1, 7]
    assert out[3:5].tolist() == [torch.maximum(x, y).tolist(), torch.minimum(x, y).tolist()]
    assert torch.signbit(out[3:5, 6]).tolist() == [False, True]
    assert out[5].tolist() == sorted(y.tolist())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_sample_of_functions_of_reductions(dtype):
    """A function of the user: one rounding for each step. One that returns another dtype is refused."""
    x = torch.tensor([256, 1, 1, -256, 3, 2.0**-8, 0.5, 7]).to(dtype)
    out = torch.empty(9, dtype=dtype)
    with ftl.interpret():
        kernels.combined_kernel[(1,)](x, out, 8, kernels.add)
    expected = fs.cumsum(fs.array(x), accumulate=NAMES[dtype], format=NAMES[dtype]).values
    assert array_of(out).astype(float).tolist() == [*expected, expected[-1]]
    if dtype != torch.float32:
        with (
            ftl.interpret(),
            pytest.raises(ftl.UndefinedOperationError, match="of a reduction or scan returns fp32 for"),
        ):
            kernels.combined_kernel[(1,)](x, out, 8, kernels.wide_add)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_sample_of_extremes_of_nan(dtype):
    """NaN is no extreme, also beside an infinity; of NaN alone the extreme is NaN, and the index 0."""
    nan, infinity = float("nan"), float("inf")
    x = torch.tensor([[nan] * 4, [nan, -infinity, nan, -infinity], [nan, infinity, 2, 1], [1, nan, 1, -0.0]]).to(dtype)
    values, places = torch.empty(2, 4), torch.empty(2, 4, dtype=torch.int32)
    with ftl.interpret():
        kernels.extremes_kernel[(1,)](x, values, places, 4, 4)
    assert values.isnan().tolist() == [[True, False, False, False]] * 2
    assert values[:, 1:].tolist() == [[-infinity, infinity, 1], [-infinity, 1, 0]]
    assert places.tolist() == [[0, 1, 1, 0], [0, 1, 3, 3]]


def test_random_numbers():
    """Philox 4x32-10 with Random123's vectors (kat_vectors), uniform and normal numbers by their definitions."""
    bits = torch.empty(4 * 64, dtype=torch.int32)
    uniform, normal = torch.empty(64), torch.empty(64)
    with ftl.interpret():
        kernels.random_kernel[(1,)](bits, uniform, normal, 0, 64)
    drawn = bits.numpy().view(np.uint32).reshape(64, 4)
    assert [hex(x) for x in drawn[0]] == ["0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8"]

    def uniform_of(column):
        n = drawn[:, column].view(np.int32)
        return np.where(n < 0, ~n, n).astype(np.float32) * np.float32(4.6566127342e-10)

    assert np.array_equal(uniform.numpy(), uniform_of(0))
    u, v = np.maximum(np.float32(1e-7), uniform_of(0)), uniform_of(1)
    radius = fs.sqrt(np.float32(-2) * fs.log(u))
    assert np.array_equal(normal.numpy(), radius * fs.cos(np.float32(6.283185307179586) * v))


# -- what a block leaves behind ----------------------------------------------------------------------------------------


def patched() -> dict:
    """The attributes that a block may change."""
    owners = (interpreter.InterpreterBuilder, interpreter.ReduceOps, interpreter.ScanOps, interpreter.GridExecutor,
              interpreter.TritonSemantic, interpreter)  # fmt: skip
    return {(owner, name): x for owner in owners for name, x in vars(owner).items()}


def wrong_sum() -> bool:
    """Whether the interpreter adds BF16 as integers, as Triton's own does."""
    x = torch.ones(1, 4, dtype=torch.bfloat16)
    out = [torch.empty(1, dtype=torch.bfloat16) for _ in range(2)]
    kernels.reductions_kernel[(1,)](x, *out, torch.empty(1, dtype=torch.int32), torch.empty_like(x), 1, 4)
    return bool(out[0] != 4)


def test_everything_is_restored():
    assert wrong_sum()  # and the first launch has set what Triton leaves behind
    before = patched()
    with ftl.interpret():
        assert not wrong_sum()
        with ftl.interpret(dot="fp32", sums="sequential"):
            assert not wrong_sum()
        assert not wrong_sum()
    assert patched() == before
    with pytest.raises(ZeroDivisionError), ftl.interpret():
        raise ZeroDivisionError
    assert patched() == before
    with pytest.raises(interpreter.InterpreterError, match="a fault of the kernel"), ftl.interpret():
        kernels.failing_kernel[(1,)](torch.ones(1))
    assert patched() == before
    assert wrong_sum()


def test_other_threads_keep_tritons_results():
    """Also while a block is open, and after the thread that opened it has left it first."""
    before, found = patched(), {}
    opened, done = threading.Event(), threading.Event()

    def other() -> None:
        opened.wait(10)
        found["in the other thread"] = wrong_sum()
        with ftl.interpret():
            found["in its own block"] = not wrong_sum()
            done.set()
            left.wait(10)
            found["after the first block"] = not wrong_sum()

    left = threading.Event()
    thread = threading.Thread(target=other)
    thread.start()
    with ftl.interpret():
        opened.set()
        assert done.wait(30)
        assert not wrong_sum()
    assert wrong_sum()
    left.set()
    thread.join(30)
    assert found == dict.fromkeys(("in the other thread", "in its own block", "after the first block"), True)
    assert patched() == before


# -- bad input ---------------------------------------------------------------------------------------------------------


def test_a_version_that_was_not_tested(monkeypatch):
    before = patched()
    monkeypatch.setattr(triton, "__version__", "3.4.0")
    with pytest.raises(RuntimeError, match=r"3\.8\.0 and 3\.9\.0; the installed version is 3\.4\.0"), ftl.interpret():
        pass
    assert patched() == before


@pytest.mark.parametrize(("keywords", "says"), [
    ({"dot": "hoper"}, "hopper"), ({"casts": "ieeee"}, "'ieee'"), ({"sums": "halvin"}, "sums"),
    ({"num_warps": 0}, "num_warps"), ({"casts": None}, "casts=None"),
])  # fmt: skip
def test_unknown_names(keywords, says):
    before = patched()
    with pytest.raises(ValueError, match=says), ftl.interpret(**keywords):
        pass
    assert patched() == before


@pytest.mark.parametrize(("grid", "says"), [
    ((1, 1, 1, 1), "has 4 dimensions"), ((), "has 0 dimensions"), ((1, 65536), "65536 programs along axis 1"),
    ((-1,), "-1 programs"), ((2**31,), "takes 0 to 2147483647"), ((1.5,), "1.5 programs"),
    (lambda meta: (1, 1, 70000), "70000 programs along axis 2"),
])  # fmt: skip
def test_grids_beyond_the_limits(grid, says):
    with ftl.interpret():
        before = patched()
        with pytest.raises(ValueError, match=says):
            kernels.failing_kernel[grid](torch.ones(1))
        assert patched() == before


def test_operations_without_a_definition():
    x = torch.zeros(1)
    with ftl.interpret():
        with pytest.raises(ftl.UndefinedOperationError, match=r"inline_asm_elementwise.*plus_one"):
            kernels.assembly_kernel[(1,)](x)
        assert x == 0
        with pytest.raises(ftl.UndefinedOperationError, match="arithmetic on fp8e4nv"):
            kernels.fp8_sum_kernel[(1,)](torch.ones(1).to(torch.float8_e4m3fn))
        a, b = operands(16, 32, 16, torch.float32)
        with pytest.raises(ftl.UndefinedOperationError, match="input_precision='bf16x3'"):
            kernels.matmul(a, b, block=(16, 16, 32), PRECISION="bf16x3")
        with pytest.raises(ftl.UndefinedOperationError, match="FP64 and FP64 was not recorded"):
            kernels.matmul(a.double(), b.double(), block=(16, 16, 32))
        with pytest.raises(
            ftl.UndefinedOperationError, match="FP32 with K = 8 was not recorded on an H200; use K >= 16"
        ):
            kernels.matmul(a, b, block=(16, 16, 8))
        x, y = (each.to(torch.float8_e4m3fn) for each in (a, b))
        with pytest.raises(fs.NotDescribedError, match=r"max_num_imprecise_acc=32 with mma\.sync was not recorded"):
            kernels.recorded_dot(x, y, 32, 32, 0, 0, 4)


# -- kernels as functions ----------------------------------------------------------------------------------------------


@pytest.mark.full
def test_identify_takes_a_kernel():
    """The kernel and the description that it computes have one name; compiling the candidates takes a minute."""
    a, b = (fs.array(x) for x in operands(16, 64, 16, torch.bfloat16))
    meta = {"BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 32}
    product = ftl.as_matmul(kernels.matmul_kernel, kernels.tiles, dot="fp32", **meta)
    found = fs.identify(product, a, b, other_k=False)
    assert found.name == fs.identify(lambda x, y: fs.matmul(x, y, accumulate="fp32"), a, b, other_k=False).name
    found = fs.identify(ftl.as_matmul(kernels.matmul_kernel, kernels.tiles, **meta), a, b, device="h200")
    assert found.names == ("hopper",)


def test_a_function_of_tensors_as_a_product():
    a, b = operands(32, 64, 32, torch.float16)
    product = ftl.as_matmul(lambda x, y: kernels.matmul(x, y, block=(32, 32, 32)))
    expected = fs.matmul(fs.array(a), fs.array(b), accumulate="hopper", format="fp32")
    assert np.array_equal(product(fs.array(a), fs.array(b)).codes, expected.codes)
    assert isinstance(product(a, b), torch.Tensor)
    with pytest.raises(TypeError, match="positional argument"):
        product(a, b, a)


@pytest.mark.parametrize(("arguments", "keywords", "says"), [
    ((kernels.matmul_kernel,), {}, "needs grid="), ((kernels.matmul,), {"BLOCK_K": 3}, "takes no grid and no BLOCK_K"),
    ((kernels.reductions_kernel, (1,)), {}, "parameter 'x' has no value"),
])  # fmt: skip
def test_kernels_that_are_no_products(arguments, keywords, says):
    with pytest.raises(TypeError, match=says):
        ftl.as_matmul(*arguments, **keywords)(*operands(16, 16, 16, torch.float16))


def test_a_planted_fault_is_found():
    """A kernel that loses one block of K, and an attention that does not rescale: both differ from the description."""
    a, b = operands(64, 256, 64, torch.bfloat16)
    expected = fs.matmul(fs.array(a), fs.array(b), accumulate="hopper", format="fp32")
    with ftl.interpret():
        for skip, same in ((-1, True), (2, False)):
            found = fs.array(kernels.matmul(a, b, block=(64, 64, 64), SKIP=skip))
            assert np.array_equal(found.codes, expected.codes) is same
        lost = fs.subtract(expected, found).values - a[:, 128:192].double().numpy() @ b[128:192].double().numpy()
        assert np.abs(lost).max() < 1e-4
        q, k = operands(64, 64, 128, torch.bfloat16)
        for rescale, same in ((True, True), (False, False)):
            found = fs.array(kernels.attention(q, k.T.contiguous(), k.T.contiguous(), block=(64, 64), rescale=rescale))
            by_hand = attention_by_hand(q, k.T.contiguous(), k.T.contiguous(), 64, "hopper")
            assert np.array_equal(found.codes, by_hand.codes) is same


def test_speed():
    """A product of 256 x 256 x 256 within 10 seconds of CPU time, compilation included: 0.9 s after it."""
    a, b = operands(256, 256, 256, torch.bfloat16)
    start = time.process_time()
    with ftl.interpret():
        kernels.matmul(a, b, block=(64, 64, 32))
    assert time.process_time() - start < 10
