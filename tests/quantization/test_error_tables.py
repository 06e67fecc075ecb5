"""Relative errors of quantized data that are quoted elsewhere, computed again.

`python tests/quantization/test_error_tables.py` writes the table of GGUF types in docs/checkpoints.md.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import floatsim as fs
from floatsim.quantization import GGUF_TYPES, from_gguf, to_gguf
from floatsim.quantization.gguf_quantizers import QUANTIZED_TYPES
from tests.marks import cases


def normal(shape: tuple[int, int] = (256, 4096), seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def relative_rms(x: np.ndarray, approximation: np.ndarray) -> float:
    wide = x.astype(np.float64)
    return float(np.linalg.norm(approximation - wide) / np.linalg.norm(wide))


@pytest.mark.parametrize(("scheme", "keywords", "error"), [
    ("int8", {"block": "row"}, 0.0087), ("int4", {"block": "row"}, 0.157), ("int4", {"block": 128}, 0.117),
    ("nf4", {}, 0.092), ("e4m3", {}, 0.026), ("bf16", {"scale": 1.0}, 0.0017), ("fp16", {"scale": 1.0}, 0.00021),
])  # fmt: skip
def test_errors_of_normal_weights(scheme, keywords, error):
    """N(0, 1) in rows of 4096: relative RMS errors, to the printed digits."""
    x = normal()
    found = relative_rms(x, fs.quantize_blocks(x, scheme, **keywords).values)
    assert found == pytest.approx(error, rel=0.03)


@pytest.mark.parametrize(("fmt", "error"), [("e4m3", 0.026), ("e5m2", 0.053)])
def test_per_tensor_scaling(fmt, error):
    """The scale that maps amax to the largest number."""
    x = normal()
    assert relative_rms(x, fs.quantize_blocks(x, fmt).values) == pytest.approx(error, rel=0.03)


OUTLIERS = [
    ("e4m3", "tensor", 1e4, 0.027), ("e4m3", "tensor", 1e5, 0.128), ("e4m3", "tensor", 1e6, 0.96),
    ("e4m3", 128, 1e4, 0.026), ("e4m3", 128, 1e5, 0.034), ("e4m3", 128, 1e6, 0.169),
]  # fmt: skip


@pytest.mark.parametrize(("fmt", "block", "outlier", "error"), OUTLIERS)
def test_outliers_hurt_the_elements_that_share_their_scale(fmt, block, outlier, error):
    """The relative RMS error of the other elements, if 1 in 4096 is an outlier."""
    x = normal()
    x[:, 0] = outlier
    rest = np.s_[:, 1:]
    found = relative_rms(x[rest], fs.quantize_blocks(x, fmt, block=block).values[rest])
    assert found == pytest.approx(error, rel=0.06)


def test_int8_with_one_scale_loses_everything_beside_an_outlier():
    x = normal()
    x[:, 0] = 1e3
    assert relative_rms(x[:, 1:], fs.quantize_blocks(x, "int8").values[:, 1:]) > 0.9


def test_floor_saturates_and_rceil_does_not():
    """The share of blocks of 32 of N(0, 1) whose largest element, scaled, is beyond 448: 16.6 % by the rule "floor"."""
    x = normal()
    amax = np.abs(x).reshape(256, 128, 32).max(axis=2)
    shares = [
        np.mean(amax > 448 * fs.quantize_blocks(x, "mxfp8", rule=rule).scales.values) for rule in ("floor", "rceil")
    ]
    assert shares[0] == pytest.approx(0.166, abs=0.01)
    assert shares[1] == 0


PAGE = Path(__file__).parents[2] / "docs" / "checkpoints.md"
BEGIN, END = "<!-- errors: begin (python tests/quantization/test_error_tables.py) -->", "<!-- errors: end -->"
WRITTEN = sorted(QUANTIZED_TYPES, key=lambda name: (GGUF_TYPES[name].bits, name))


def gguf_errors(name: str) -> tuple[float | None, float]:
    """Weighted relative errors of 64 rows of Student's t, four degrees of freedom: without weights, and with them."""
    w = np.random.default_rng(1).standard_t(4, (64, 1024)).astype(np.float32)
    square = np.square(np.random.default_rng(2).random(1024).astype(np.float32))
    importance = square * square  # not `** 4`: NumPy's power has other last bits on processors with AVX-512

    def error(weights: np.ndarray | None) -> float:
        rest = from_gguf(to_gguf(w, name, weights=weights), name).values - w
        return float(np.sqrt((importance * rest**2).sum() / (importance * w**2).sum()))

    return None if QUANTIZED_TYPES[name].needs_weights else error(None), error(importance)


def gguf_row(name: str) -> str:
    errors = ("" if error is None else f"{error:.4f}" for error in gguf_errors(name))
    return f"| `{name}` | {GGUF_TYPES[name].bits:.4g} | {' | '.join(errors)} |"


@pytest.mark.parametrize("name", cases(quick=["Q4_0", "Q3_K", "IQ2_S", "IQ4_XS"], full=WRITTEN))
def test_rows_of_the_table_of_gguf_types(name):
    """Of docs/checkpoints.md; `python tests/quantization/test_error_tables.py` writes the table."""
    assert gguf_row(name) in PAGE.read_text(encoding="utf-8").splitlines()


def test_the_table_has_every_gguf_type():
    table = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    assert re.findall(r"^\| `(\w+)`", table, re.MULTILINE) == WRITTEN


def write_table() -> None:
    rows = ["| type | bits | error | with weights |", "| --- | ---: | ---: | ---: |", *map(gguf_row, WRITTEN)]
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    table = "\n".join(rows)
    PAGE.write_text(f"{before}{BEGIN}\n{table}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    write_table()
