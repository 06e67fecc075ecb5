"""Reductions, softmax and norms that an NVIDIA H200 computed with torch 2.11.0, and the emulator's results for them.

Keys are "rows|operator|format|width", "columns|operator|format|MxN" and "sums|operator|format|rows|width". The inputs
are made again from their seeds. A sample is in data/silicon/nvidia-h200/library-reductions.zip. FLOATSIM_H200 names the
folder of all recordings.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

import numpy as np

import floatsim as fs
from floatsim import operators as ops

FOLDER = os.environ.get("FLOATSIM_H200")
SAMPLE = Path(__file__).parents[2] / "data" / "silicon" / "nvidia-h200" / "library-reductions.zip"
FILES = {"rows": "rows.npz", "columns": "training/rows.npz", "sums": "mufu/sums.npz"}


@functools.cache
def sample():
    return dict(np.load(SAMPLE))


@functools.cache
def everything():
    """All recordings by the keys of the sample."""
    found = {}
    for name, file in FILES.items():
        archive = np.load(Path(FOLDER) / file)
        found |= {f"{name}|{key}": archive[key] for key in archive.files if key != "meta"}
    return found


def rounded(x, fmt):
    return fs.array(np.asarray(x, np.float32), fmt)


def reduced(function, x, fmt, axis=-1):
    return fs.library_reduction(function, x, axis, device="h200", format=fmt)


# -- rows --------------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=4)
def row_inputs(width, fmt):
    """x, gradient, weight and bias."""
    draw = np.random.default_rng([11, width])
    shapes = (4, width), (4, width), (width,), (width,)
    x, *others = (draw.standard_normal(shape) for shape in shapes)
    return tuple(rounded(np.float32(each), fmt) for each in (np.float32(x * 2), *others))


REDUCTIONS = {
    "sum": "torch.sum", "mean": "torch.mean", "var": "torch.var", "std": "torch.std", "cumsum": "torch.cumsum",
    "norm": "torch.linalg.vector_norm", "logsumexp": "torch.logsumexp",
}  # fmt: skip
CUDA = {"recipe": "pytorch-cuda"}


def factors(x):
    """x * 0.3 + 1, each operation rounded to the format."""
    product = fs.multiply(x, fs.array(np.float32(0.3), "fp32"), format="fp32")
    total = fs.add(fs.convert(product, x.format), fs.array(1.0, "fp32"), format="fp32")
    return fs.convert(total, x.format)


def cross_entropies(x):
    width = x.shape[1]
    losses = [
        ops.cross_entropy(x[i : i + 1], [t], **CUDA) for i, t in enumerate((0, 1, width - 1, width // 2))
    ]  # fmt: skip
    return fs.FloatArray(np.array([loss.codes for loss in losses]), x.format)


def of_row(recorded, operator, fmt, width):
    """The emulator's result of an operator on rows."""
    x, g, w, b = row_inputs(width, fmt)
    if operator in REDUCTIONS:
        return reduced(REDUCTIONS[operator], x, fmt)
    if operator.endswith("softmax.dx"):
        name = operator.removesuffix(".dx")
        y = getattr(ops, name)(x, **CUDA)  # tested to be the recorded result
        return getattr(ops, f"{name}_backward")(g, y, **CUDA)
    norm, _, part = operator.partition(".")
    if part:
        gradients = getattr(ops, f"{norm}_backward")(g, x, w, **CUDA)
        return gradients[("dx", "dw", "db").index(part)]
    return {
        "prod": lambda: reduced("torch.prod", factors(x), fmt),
        "allsum": lambda: reduced("torch.sum", x, fmt, None),
        "colsum": lambda: reduced("torch.sum", x, fmt, 0),
        "rowsum_t": lambda: reduced("torch.sum", np.transpose(x).copy(), fmt, 0),
        "softmax": lambda: ops.softmax(x, **CUDA),
        "softmax32": lambda: ops.softmax(x, **CUDA, formats={"output": "fp32"}),
        "log_softmax": lambda: ops.log_softmax(x, **CUDA),
        "cross_entropy": lambda: cross_entropies(x),
        "layer_norm": lambda: ops.layer_norm(x, w, b, **CUDA),
        "layer_norm_plain": lambda: ops.layer_norm(x, **CUDA),
        "rms_norm": lambda: ops.rms_norm(x, w, **CUDA),
    }[operator]()


# -- columns, and sums in FP32 -----------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1)
def column_inputs(m, n, fmt):
    draw = np.random.default_rng([31, m, n])
    x = draw.standard_normal((m, n)).astype(np.float32)
    x[m - m // 2 :] = -x[: m // 2][draw.permutation(m // 2)]
    return rounded(x, fmt), rounded(draw.standard_normal((m, n)).astype(np.float32), fmt)


@functools.lru_cache(maxsize=1)
def column_gradients(m, n, fmt):
    x, h = column_inputs(m, n, fmt)
    return ops.layer_norm_backward(x, h, rounded(np.ones(n), fmt), **CUDA)


def of_columns(recorded, operator, fmt, shape):
    m, n = map(int, shape.split("x"))
    if operator.startswith("ln"):
        return column_gradients(m, n, fmt)[("ln-dx", "ln-dw", "ln-db").index(operator)][:128]
    return reduced("torch.sum", column_inputs(m, n, fmt)[0], "fp32" if operator == "sum0-fp32" else fmt, 0)[:128]


def of_sums(recorded, operator, fmt, rows, width):
    draw = np.random.default_rng([41, rows, width])
    x = draw.standard_normal((rows, width)) * 10.0 ** draw.integers(-3, 4, (rows, width))
    x = rounded(x.astype(np.float32), fmt)
    name, wide = {"sum": ("torch.sum", False), "sum32": ("torch.sum", True), "all32": ("torch.sum", True),
                  "col32": ("torch.sum", True), "mean32": ("torch.mean", True),
                  "norm32": ("torch.linalg.vector_norm", True)}[operator]  # fmt: skip
    axis = {"all32": None, "col32": 0}.get(operator, -1)
    return reduced(name, x, "fp32" if wide else fmt, axis)[..., :2048] if axis == 0 else reduced(
        name, x, "fp32" if wide else fmt, axis
    )  # fmt: skip


def differing(recorded, key):
    """The number of codes of a recording that differ from the emulator's, and the number of codes."""
    kind, operator, fmt, *sizes = key.split("|")
    if kind == "columns":
        found = of_columns(recorded, operator, fmt, *sizes)
    else:
        found = (of_row if kind == "rows" else of_sums)(recorded, operator, fmt, *map(int, sizes))
    expected = recorded[key]
    codes = found.codes[: len(expected)] if expected.ndim == 2 else found.codes  # of long rows, two were kept
    assert codes.size == expected.size, key
    return int(np.count_nonzero(codes.reshape(-1) != expected.reshape(-1))), expected.size
