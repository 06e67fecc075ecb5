"""Recorded calls of an H200 besides plain products: epilogues, convolutions, FP8 products with scales, Triton's dots.

`python -m tests.accumulation.sample_calls` writes data/silicon/nvidia-h200/library-calls.zip from the recordings in the
folder that FLOATSIM_H200 names. Each entry of `meta` says what was called; `replayed` makes the result again.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import floatsim as fs
from tests.accumulation import recorded_products as recorded
from tests.accumulation import test_gpu_libraries as libraries
from tests.accumulation.recorded_products import COLUMNS, DTYPES, ROWS, Call

SAMPLE = Path(__file__).parents[2] / "data" / "silicon" / "nvidia-h200" / "library-calls.zip"
_K, _N = "64x300x64", "32x64x128"
EPILOGUES = (
    f"linear|fp16|{_K}|cublas", f"linear|bf16|{_N}|cublas", f"linear|tf32|{_N}|cublas",
    "linear|bf16|64x4096x64|cublas", f"addmm-full|fp16|{_N}|cublas", f"addmm-full|bf16|{_K}|cublas",
    f"addmm-full|tf32|{_N}|cublas", f"addmm-ab|fp16|{_N}|cublas", f"addmm-ab|tf32|{_K}|cublas",
    f"addmm-ab|fp32|{_K}|cublas", "addmm-ab|fp16|64x4096x64|cublas", f"relu|fp16|{_K}|cublas",
    f"relu|bf16|{_N}|cublaslt", f"relu|tf32|{_N}|cublas", f"baddbmm|fp16|{_N}", f"baddbmm|fp32|{_N}",
    f"bmm4|bf16|{_N}",
)  # fmt: skip
PASSES = (
    "y|fp16|3x3b|cl=True", "dx|fp16|3x3b|cl=True", "y|fp32|3x3|cl=False", "y|fp32|3x3|cl=True", "dx|fp32|3x3|cl=False",
    "y|tf32|3x3b|cl=True", "dx|tf32|3x3b|cl=True", "y|fp32|rgb|cl=True",
)  # fmt: skip
SCALED = tuple(
    f"{kind}|128x512x128|fast={fast}|{out}"
    for kind, fast, out in (
        ("tensor-wise", True, "fp32"), ("tensor-wise", False, "bf16"), ("bias", False, "bf16"),
        ("rowwise", True, "bf16"), ("rowwise-bias", False, "bf16"), ("1x128,128x128", False, "fp32"),
    )
)  # fmt: skip
DOTS = tuple(
    f"{fmt}|M={m}|bk={block}|warps={warps}|imp={imprecise}|prec={precision}|how={how}|cancel"
    for fmt, m, block, warps, imprecise, precision, how in (
        ("fp16", 64, 64, 4, -1, 0, 0), ("fp32", 64, 32, 4, -1, 1, 0), ("fp32", 64, 32, 4, -1, 3, 0),
        ("e4m3", 64, 128, 4, 96, 0, 0), ("e4m3", 16, 64, 4, -1, 0, 0), ("e4m3", 64, 64, 4, -1, 0, 1),
        ("e4m3", 64, 128, 4, 0, 0, 0),
    )
)  # fmt: skip

Entry = tuple[str, dict[str, Any], dict[str, Any]]


def collected() -> Iterator[Entry]:
    """The key, the note and the arrays of each entry: FloatArrays of operands, and the codes of the result."""
    arrays, meta = recorded.recording("kernels/epilogues")
    for key in EPILOGUES:
        op, fmt, shape, *_ = key.split("|")
        m, k, n = map(int, shape.split("x"))
        call = Call(key, fmt, m, k, n, meta["kernels"][key])
        batch = {"bmm4": [4], "baddbmm": [4]}.get(op, [])
        a, b = recorded.operands(m, k, n, fmt)
        found: dict[str, Any] = {"a": a[:ROWS], "b": b[:, :COLUMNS], "result": arrays[key]}
        if op != "bmm4":
            found["c"] = libraries._added(op, fmt, m, k, n)
        note = {
            "call": "product", "function": libraries._EPILOGUES.get(op, ("torch.bmm",))[0], "format": fmt,
            "shape": [*batch, m, n, k], "kernels": call.names, "grid": call.grid,
            "factors": [0.7, 0.3] if op == "addmm-ab" else [1, 1],
        }  # fmt: skip
        yield f"product|{key}", note, found
    arrays, meta = recorded.recording("kernels/convs")
    for key in PASSES:
        what, fmt, tag, _ = key.split("|")
        others = "nchwToNhwc|nhwcToNchw|Padding"
        launched = [(n, g) for n, g, *_ in meta["kernels"][key] if g and not re.search(others, n)]
        function, shape, operands = libraries.convolution_operands(key)
        *_, stride, padding = libraries.CONVOLUTIONS[tag]
        note = {
            "call": "convolution", "function": function, "format": fmt, "shape": list(shape),
            "kernels": [launched[-1][0]], "grid": launched[-1][1], "stride": stride, "padding": padding,
        }  # fmt: skip
        if what == "y":
            operands.pop("g")
        else:
            operands.pop("x")
        yield f"convolution|{key}", note, {**operands, "result": arrays[key]}
    arrays, _ = recorded.recording("kernels/scaled2")
    for key in SCALED:
        kind, shape, fast, out = key.split("|")
        m, k, n = map(int, shape.split("x"))
        x, y = recorded.operands(m, k, n, "e4m3", kind="normal")
        rng = np.random.default_rng(9)
        rows, columns, bias, of_a, _, of_b = (
            fs.array(np.exp(rng.standard_normal(size)), "fp32")
            for size in ((m, 1), (1, n), n, (k // 128, m), (n, k // 128), (n // 128, k // 128))
        )
        one = [fs.array([[value]], "fp32") for value in (1.7, 0.3)]
        scales = {"rowwise": (rows, columns), "1x128,128x128": (of_a.T, of_b.T)}.get(kind.removesuffix("-bias"), one)
        note = {"call": "scaled", "result": out if "bias" not in kind and "row" not in kind else "bf16",
                "fast": fast == "fast=True" and "128" not in kind}  # fmt: skip
        found = {"a": x[:64], "b": y, "scale_a": scales[0][:64], "scale_b": scales[1], "result": arrays[key]}
        if "bias" in kind:
            found["bias"] = fs.array(bias, "bf16")
        yield f"scaled|{key}", note, found
    arrays, meta = recorded.recording("kernels/triton_more")
    for key in DOTS:
        fmt, *options, kind = key.split("|")
        given = {name: int(value) for name, value in (option.split("=") for option in options)}
        a, b = recorded.operands(given["M"], 256, 64, fmt, kind=kind)
        wgmma = any(each.startswith("wgmma") for each in meta[key]["instructions"])
        note = {"call": "dot", "format": fmt, "wgmma": wgmma, **given}
        yield f"dot|{key}", note, {"a": a[:ROWS], "b": b[:, :COLUMNS], "result": arrays[key]}


def written() -> bytes:
    """The archive of all entries. Operands that entries share are stored once."""
    notes, stored, numbers = {}, {}, {}
    for key, note, found in collected():
        named = {}
        for name, x in found.items():
            codes, fmt = (x.codes, x.format.name) if isinstance(x, fs.FloatArray) else (x, "")
            content = (codes.tobytes(), codes.shape, fmt)
            number = numbers.setdefault(content, len(numbers))
            stored[f"array{number}"] = codes
            named[name] = [f"array{number}", fmt]
        notes[key] = {**note, "arrays": named}
    stored["meta"] = np.array(json.dumps(notes))
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_LZMA) as archive:
        for name, x in stored.items():
            content = io.BytesIO()
            np.save(content, np.asarray(x, order="C"))
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), content.getvalue(), zipfile.ZIP_LZMA)
    return file.getvalue()


def shipped() -> Iterator[Entry]:
    """The entries of the archive, as `collected` yields them."""
    with np.load(SAMPLE) as arrays:
        notes = json.loads(str(arrays["meta"]))
        for key, note in notes.items():
            found = {
                name: fs.from_codes(arrays[place], fmt) if fmt else arrays[place]
                for name, (place, fmt) in note.pop("arrays").items()
            }
            yield key, note, found


def described(note: dict[str, Any]) -> fs.accumulation.Accumulation:
    """The description of a call, by the rules."""
    if note["call"] == "dot":
        return fs.hardware.triton_dot(
            DTYPES[note["format"]], note["bk"], input_precision="tf32x3" if note["prec"] == 3 else "tf32",
            max_num_imprecise_acc=None if note["imp"] < 0 or note["how"] == 1 else note["imp"], wgmma=note["wgmma"],
            fused=note["how"] == 0, terms=256,
        )  # fmt: skip
    (region,) = fs.library_sum(
        note["function"],
        DTYPES[note["format"]],
        note["shape"],
        device="h200",
        kernel=note["kernels"],
        grid=note["grid"],
    )
    return region.accumulate


def replayed(note: dict[str, Any], x: dict[str, Any]) -> np.ndarray:
    """The codes of a result, made again."""
    if note["call"] == "scaled":
        y = fs.scaled_mm(
            x["a"], x["b"], x["scale_a"], x["scale_b"], bias=x.get("bias"), format=note["result"],
            use_fast_accum=note["fast"],
        )  # fmt: skip
        return y.codes[:64, :64]
    accumulate = described(note)
    if note["call"] == "convolution":
        places = {"stride": note["stride"], "padding": note["padding"]}
        if "g" not in x:
            y = fs.operators.conv2d(x["x"], x["w"], **places, accumulations={"product": accumulate})
        else:  # the images have no effect on their gradient
            height = x["g"].shape[2] - 2 * note["padding"] + x["w"].shape[2] - 1
            images = fs.from_codes(
                np.zeros((len(x["g"]), x["w"].shape[1], height, height), x["g"].codes.dtype), x["g"].format
            )
            y = fs.operators.conv2d_backward(
                x["g"], images, x["w"], **places, accumulations={"input_gradient": accumulate}
            ).x
        return recorded.codes_of(y).reshape(-1)[: x["result"].size]
    alpha, beta = note.get("factors", (1, 1))
    c = x.get("c")
    factors = {"alpha": alpha, "beta": beta} if c is not None else {}
    fmt = "fp32" if note["call"] == "dot" else recorded.result_format(note["format"])
    return recorded.codes_of(fs.matmul(x["a"], x["b"], c, **factors, accumulate=accumulate, format=fmt))


if __name__ == "__main__":
    SAMPLE.write_bytes(written())
    print(f"{SAMPLE.name}: {SAMPLE.stat().st_size} bytes")
