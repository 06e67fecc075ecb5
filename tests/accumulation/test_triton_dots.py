"""`fs.hardware.triton_dot`: the sums of tl.dot by its arguments, and what an H200 returned."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest

import floatsim as fs
from tests.accumulation import recorded_products as recorded
from tests.accumulation.recorded_products import DTYPES, needs_recordings

triton_dot = fs.hardware.triton_dot
IN_HALVES = "converted(fp16, permuted([0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29, 2, 3, 6, 7, "


@pytest.mark.parametrize(("arguments", "keywords", "description"), [
    (("float16", 64), {}, "tensorcore(hopper)"),
    (("bfloat16", 64), {"fused": False, "wgmma": False}, "tensorcore(hopper)"),
    (("float32", 32), {}, "converted(tf32, tensorcore(hopper), rounding=toward_zero)"),
    (("float32", 32), {"input_precision": "ieee"}, "sequential(fp32, fused)"),
    (("float32", 64), {"input_precision": "tf32x3"}, "blocked(tf32x3(tensorcore(hopper)), 64, sequential(fp32))"),
    (("float8_e5m2", 64), {}, "tensorcore(hopper)"),
    (("float8_e4m3fn", 64), {"fused": False}, "blocked(tensorcore(hopper), 64, sequential(fp32))"),
    (("float8_e4m3fn", 128), {"max_num_imprecise_acc": 48}, "blocked(tensorcore(hopper), 64, sequential(fp32))"),
    (("float8_e4m3fn", 128), {"max_num_imprecise_acc": 96, "terms": 256},
     "blocked(tensorcore(hopper), [96, 32, 96, 32], sequential(fp32))"),
    (("float8_e4m3fn", 64), {"fused": False, "max_num_imprecise_acc": 32},
     "blocked(blocked(tensorcore(hopper), 32, sequential(fp32)), 64, sequential(fp32))"),
])  # fmt: skip
def test_descriptions(arguments, keywords, description):
    assert str(triton_dot(*arguments, **keywords)) == description


def test_fp8_as_fp16():
    for keywords in ({"max_num_imprecise_acc": 0}, {"max_num_imprecise_acc": 16}, {"wgmma": False}):
        assert str(triton_dot("float8_e4m3fn", 64, **keywords)).startswith(IN_HALVES)
    added = triton_dot("float8_e5m2", 64, wgmma=False, fused=False)
    assert isinstance(added, fs.Blocked) and added.every == 64 and isinstance(added.inner, fs.Converted)


@pytest.mark.parametrize(("arguments", "keywords", "says"), [
    (("float64", 64), {}, "dtype='float64' is not known"),
    (("float32", 64), {"input_precision": "bf16x3"}, "input_precision='bf16x3' is not known"),
    (("float16", 64), {"max_num_imprecise_acc": 32}, "it is for FP8"),
    (("float32", 64), {"fused": False}, "was not recorded"),
    (("float8_e4m3fn", 64), {"max_num_imprecise_acc": 128}, "above block_k=64 does not compile"),
    (("float8_e4m3fn", 128), {"max_num_imprecise_acc": 96}, "need terms=K"),
    (("float8_e4m3fn", 64), {"max_num_imprecise_acc": 32, "wgmma": False}, "with mma.sync was not recorded"),
    (("float16", 8), {}, "block_k must be"),
])  # fmt: skip
def test_what_is_refused(arguments, keywords, says):
    with pytest.raises(ValueError, match=says):
        triton_dot(*arguments, **keywords)


@needs_recordings
@pytest.mark.full
def test_recorded_dots():
    """triton_dots: FP16, BF16, FP8 with three numbers of imprecise terms, FP32 in three precisions."""
    arrays, _ = recorded.recording("triton_dots")
    equal = Counter()
    for key in (key for key in arrays.files if key.startswith("dot|")):
        _, fmt, k, kind, block, imprecise, precision = key.split("|")
        number = imprecise.partition("=")[2]
        accumulate = triton_dot(
            DTYPES[fmt], int(block[3:]), input_precision="tf32" if precision == "none" else precision,
            max_num_imprecise_acc=None if number == "None" else int(number),
        )  # fmt: skip
        a, b = recorded.operands(64, int(k), 64, fmt, kind=kind)
        found = fs.matmul(a, b, accumulate=accumulate, format="fp32")
        equal[fmt, precision, np.array_equal(recorded.codes_of(found), arrays[key])] += 1
    assert all(same for *_, same in equal) and sum(equal.values()) == 330, equal


@needs_recordings
@pytest.mark.full
def test_recorded_dots_of_other_warps_and_rows():
    """triton_more: the instructions are those of the PTX; bf16x3 and bf16x6 are not described."""
    arrays, meta = recorded.recording("kernels/triton_more")
    equal = Counter()
    for key in (key for key in arrays.files if key != "meta"):
        fmt, *options, kind = key.split("|")
        given = {name: int(value) for name, value in (option.split("=") for option in options)}
        if given["prec"] in (4, 5):
            continue
        found_in = meta[key.replace("|normal", "|cancel")]["instructions"]
        imprecise = given["imp"]
        try:
            accumulate = triton_dot(
                DTYPES[fmt], given["bk"], input_precision={0: "tf32", 1: "tf32", 3: "tf32x3"}[given["prec"]],
                max_num_imprecise_acc=None if imprecise < 0 or given["how"] == 1 else imprecise,
                wgmma=any(re.match("wgmma", each) for each in found_in), fused=given["how"] == 0, terms=256,
            )  # fmt: skip
        except fs.NotDescribedError:
            equal[fmt, "refused"] += 1
            continue
        a, b = recorded.operands(given["M"], 256, 64, fmt, kind=kind)
        found = fs.matmul(a[:16], b[:, :32], accumulate=accumulate, format="fp32")
        equal[fmt, np.array_equal(recorded.codes_of(found), arrays[key])] += 1
    assert not any(same is False for _, same in equal), equal
