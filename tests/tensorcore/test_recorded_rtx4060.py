"""Recordings of a GeForce RTX 4060 by others: FP8 `mma.sync` with c, chains of it, and whole products of cuBLASLt.

They are in the source distribution of the package mmaemu 0.1.0 (Apache-2.0), and not in floatsim:

    pip download --no-deps --no-binary mmaemu mmaemu==0.1.0
    tar xzf mmaemu-0.1.0.tar.gz
    FLOATSIM_MMAEMU=mmaemu-0.1.0 python -m pytest -m mmaemu

The SHA-256 of the archive is 740b69ac7e10f0542399fbecbea216e638dfe7249ff70ec4c6474cf9a15a5a13. That of its index is
pinned here, and the index has those of all arrays. Nothing of the package is imported. The marker `mmaemu` selects the
tests, which are skipped without the variable.

Whole products are compared with `fs.scaled_mm`, which `tests/arrays/test_mmaemu.py` compares with the package itself.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import floatsim as fs
from tests.arrays.split_products import split_on_ada

FOLDER = os.environ.get("FLOATSIM_MMAEMU")
INDEX_SHA256 = "5633bd1352c70a63a8e2164942ae88ecd826b4e11aac96065f9417c5f5571584"
pytestmark = [
    pytest.mark.mmaemu,
    pytest.mark.full,
    pytest.mark.skipif(
        not FOLDER, reason="FLOATSIM_MMAEMU names no folder mmaemu-0.1.0; the head of the file has more"
    ),
]
DATA = Path(FOLDER or ".") / "tests" / "data" / "hw_mini"

FORMATS = {
    "float32": fs.FP32, "bfloat16": fs.BF16, "float16": fs.FP16, "float8_e4m3fn": fs.E4M3, "float8_e5m2": fs.E5M2,
    "e4m3": fs.E4M3, "e5m2": fs.E5M2,
}  # fmt: skip


@functools.cache
def index() -> dict[str, Any]:
    text = (DATA / "index.json").read_bytes()
    assert hashlib.sha256(text).hexdigest() == INDEX_SHA256, "these are not the recordings of mmaemu 0.1.0"
    return json.loads(text)


@functools.cache
def shard(name: str) -> dict[str, np.ndarray]:
    content = (DATA / name).read_bytes()
    assert hashlib.sha256(content).hexdigest() == index()["shards"][name]["sha256"]
    with np.load(DATA / name, allow_pickle=False) as file:
        return {key: file[key] for key in file.files}


def array(reference: list[str]) -> np.ndarray:
    """Return an array by its shard and its name."""
    name, key = reference
    return shard(name)[key]


def bits(expect: dict[str, Any]) -> np.ndarray:
    """Return the codes of a recorded output."""
    found = array(expect["bits"])
    assert hashlib.sha256(np.ascontiguousarray(found).tobytes()).hexdigest() == expect["sha256"]
    return found.reshape(expect["shape"])


def cases(kind: str) -> list[dict[str, Any]]:
    return [case for case in index()["cases"] if case["kind"] == kind] if FOLDER else []


# -- single instructions and chains ------------------------------------------------------------------------------------


def mma(case: dict[str, Any]) -> np.ndarray:
    """Return the emulated codes of a recorded set: of one instruction, or of a chain of them for K over 32."""
    given, inputs = case["params"], case["inputs"]
    a, b, c = (array(inputs[name]) for name in "abc")
    if given["layout"] == "tile":  # (tiles, m, K), (tiles, n, K), (tiles, m, n)
        b = b.transpose(0, 2, 1)
    else:
        a, b, c = a[:, np.newaxis], b[:, :, np.newaxis], c.reshape(-1, 1, 1)
    left, right = fs.from_codes(a, FORMATS[given["fmt_a"]]), fs.from_codes(b, FORMATS[given["fmt_b"]])
    unit = fs.TensorCore("ada", "mma.m16n8k32", output="fp32")  # 16 products fill its first block
    return fs.matmul(left, right, fs.from_codes(c, "fp32"), accumulate=unit).codes.reshape(case["expect"]["shape"])


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in cases("mma")])
def test_instructions_with_c_and_chains(case):
    """Every bit, NaN included."""
    assert np.array_equal(mma(case), bits(case["expect"]))


def test_all_recorded_instructions_are_there():
    sets = cases("mma")
    assert len(sets) == 116
    assert sum(int(np.prod(case["expect"]["shape"])) for case in sets) == 616_077
    assert {case["params"]["K"] for case in sets} == {16, 32, 256, 2048}


# -- whole products ----------------------------------------------------------------------------------------------------


class Product(NamedTuple):
    """One output of `torch._scaled_mm`: codes of the operands, options, and the recorded codes."""

    a: np.ndarray
    b: np.ndarray
    formats: tuple[fs.FloatFormat, fs.FloatFormat]
    fast: bool
    output: fs.FloatFormat
    scales: tuple[np.float32, np.float32]
    scale_result: np.float32 | None
    diagonal: bool
    parts: int
    scheme: str
    expected: np.ndarray


def float32(code: int) -> np.float32:
    return np.uint32(code).view(np.float32)


def products(case: dict[str, Any]) -> Iterator[Product]:
    """Yield the outputs of a case. Recorded errors are left out."""
    for each in case.get("outputs", [case]):
        p, expect = case.get("params", {}) | each.get("params", {}), each["expect"]
        if "error" in expect:
            continue
        scaled = p.get("scale_result_bits")
        yield Product(
            array(case["inputs"]["a"]), array(case["inputs"]["b"]), (FORMATS[p["fmt_a"]], FORMATS[p["fmt_b"]]),
            p["fast"], FORMATS[p["out_dtype"]], (float32(p["scale_a_bits"]), float32(p["scale_b_bits"])),
            None if scaled is None else float32(scaled), p.get("out_select") == "diagonal", p["splitk"]["S"],
            p["splitk"]["scheme"], bits(expect),
        )  # fmt: skip


def merged(call: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return a call with changes; those of an operand are changes of its options."""
    return call | {
        name: {**(call.get(name) or {}), **value} if name in ("mat1", "mat2") else value
        for name, value in changes.items()
    }


def calls(case: dict[str, Any]) -> Iterator[Product]:
    """Yield the outputs of a case of exact calls, as `products` does. The layout in memory changes no bit."""
    defaults = index()["call_defaults"]
    for each in case["outputs"]:
        if isinstance(each["expect"], str):
            continue
        call = merged(merged(defaults, case["call"]), each.get("call_diff", {}))
        assert not call["bias"]
        scale_a, scale_b = (np.float32(call[name]["value"]) for name in ("scale_a", "scale_b"))
        result = call["scale_result"]
        first, second = (FORMATS[call[name]["dtype"]] for name in ("mat1", "mat2"))
        yield Product(
            array(case["inputs"]["a"]), array(case["inputs"]["b"]), (first, second), each["fast"],
            FORMATS[each["out_dtype"]], (scale_a, scale_b), None if result is None else np.float32(result["value"]),
            False, *(each.get("splitk") or (1, "none")), bits(each["expect"]),
        )  # fmt: skip


def emulated(x: Product) -> np.ndarray:
    """Return the emulated codes of a product, by `fs.scaled_mm`."""
    description = "ada"
    if x.parts > 1:
        description = split_on_ada(x.a.shape[1], x.parts, x.scheme, x.fast)
    found = fs.scaled_mm(
        fs.from_codes(x.a, x.formats[0]), fs.from_codes(x.b.T, x.formats[1]), *x.scales, scale_result=x.scale_result,
        format=x.output, use_fast_accum=x.fast or x.parts > 1, accumulate=description,
    ).codes  # fmt: skip
    return np.diagonal(found) if x.diagonal else found


WHOLE = [(case, products) for case in cases("gemm")] + [(case, calls) for case in cases("gemm_call")]


@pytest.mark.parametrize(
    ("case", "read"), [pytest.param(case, read, id=f"{case['id']}-{read.__name__}") for case, read in WHOLE]
)
def test_whole_products(case, read):
    """Every bit of every output, in five output formats, with scales, NaN included."""
    for product in read(case):
        assert np.array_equal(emulated(product).reshape(product.expected.shape), product.expected)


def test_all_recorded_products_are_there():
    """The outputs and their codes, and the outputs with split-K among them."""
    found = {
        read.__name__: [product for case, reader in WHOLE if reader is read for product in read(case)]
        for read in (products, calls)
    }
    assert {name: (len(each), sum(product.expected.size for product in each)) for name, each in found.items()} == {
        "products": (2_987, 2_359_056), "calls": (1_283, 149_600),
    }  # fmt: skip
    assert [sum(product.parts > 1 for product in each) for each in found.values()] == [1_056, 104]
