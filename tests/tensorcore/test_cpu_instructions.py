"""The dot instructions of CPUs against their manuals, and the values that tell their models apart."""

from __future__ import annotations

import numpy as np
import pytest
from oracles.cpu_units import UNITS

import floatsim as fs
from floatsim.tensorcore.architectures import ARCHITECTURES
from floatsim.testing.vectors.dot_inputs import input_set
from floatsim.testing.vectors.dot_unit import Unit, named_unit, units
from tests.marks import cases

CPUS = [name for name, arch in ARCHITECTURES.items() if arch.processor == "CPU"]


def test_every_unit_has_an_oracle():
    """E4M3 and mixed FP8 have the operations of E5M2, and its NaN is the only difference."""
    listed = {
        (u.arch, u.name, u.a.name, u.output.name) for arch in CPUS for u in units(arch) if u.a == u.b and u.a != fs.E4M3
    }
    assert listed == set(UNITS)


def unit_of(key: tuple[str, str, str, str]) -> Unit:
    arch, name, fmt, output = key
    return named_unit(arch, name, fs.as_format(fmt), fs.as_format(fmt), fs.as_format(output))


def differences(key: tuple[str, str, str, str], rows: int, seed: int) -> list[tuple]:
    unit = unit_of(key)
    x = input_set(unit, rows, seed)
    got = unit.dots(*x).tolist()
    sides = x.a.tolist(), x.b.tolist(), x.c.tolist()
    return [
        (a, b, c, hex(want), hex(d))
        for a, b, c, d in zip(*sides, got, strict=True)
        if (want := UNITS[key](a, b, c)) != d
    ]


QUICK_UNITS = ("avx512-bf16", "amx-bf16", "arm-bfdot")


@pytest.mark.parametrize("key", cases(quick=[key for key in UNITS if key[0] in QUICK_UNITS], full=UNITS), ids="-".join)
def test_equal_to_the_manual(key):
    assert differences(key, 20, 1) == []


@pytest.mark.full
@pytest.mark.parametrize("key", UNITS, ids="-".join)
def test_equal_to_the_manual_on_many_rows(key):
    assert differences(key, max(200, 4000 // unit_of(key).k), 2) == []


def power(n: int) -> float:
    return 2.0**n


ROWS = {  # a[0], b[0], a[1], b[1], c, then D of VDPBF16PS, of BFDOT with EBF = 0 and 1, and of TOP2BF16PS
    "two ties": ((1, power(-24), 1, power(-24), 1), (0x3F800000, 0x3F800001, 0x3F800001, 0x3F800001)),
    "odd first": ((-1, 1, 1, power(-25), 1), (0x00000000, 0x33800000, 0x00000000, 0x00000000)),
    "even first": ((1, power(-25), -1, 1, 1), (0x33000000, 0x33800000, 0x00000000, 0x00000000)),
    "tiny result": ((power(-100), power(-30), 0, 0, 0), (0, 0, 0x00080000, 0)),
    "subnormal c": ((power(-60), power(-66), 0, 0, power(-127)), (0x00800000, 0x00800000, 0x00C00000, 0x00800000)),
    "subnormal operand": ((power(-130), power(100), 0, 0, 0), (0, 0, 0x30800000, 0)),
    "flushed step": (
        ((1 + power(-7)) * power(-63), power(-63), -power(-73), power(-63), 0),
        (0x00810000, 0x00810000, 0x0080E000, 0x00810000),
    ),
    "overflowing terms": (
        (-(2 - power(-7)) * power(127), 2, (2 - power(-7)) * power(127), 2, 0),
        (0x7F800000, 0x7FC00000, 0x00000000, 0xFFC00000),
    ),
    "c and one term overflow": (
        (-power(127), 1, power(127), 1, float(np.finfo(np.float32).max)),
        (0x7F800000, 0x7F7FFFFF, 0x7F7FFFFF, 0x7F7FFFFF),
    ),
}
"""Rows of two products on which the models differ, with the results of exact rational arithmetic."""
MODELS = ("avx512-bf16", "tensorcore(arm-bfdot, bfdot)", "tensorcore(arm-bfdot, bfdot.ebf)", "ace")


@pytest.mark.full  # it compiles both fast kernels
@pytest.mark.parametrize("row", ROWS)
def test_rows_that_tell_the_models_apart(row):
    (a0, b0, a1, b1, c), wanted = ROWS[row]
    a, b = fs.array([[a0, a1]], "bf16"), fs.array([[b0], [b1]], "bf16")
    start = fs.array([[c]], "fp32")
    got = [int(fs.matmul(a, b, start, accumulate=model).codes[0, 0]) for model in MODELS]
    assert [hex(code) for code in got] == [hex(code) for code in wanted]


@pytest.mark.full
def test_vdpbf16ps_is_a_flushed_chain_of_swapped_pairs():
    """`Sequential` with flushing describes it too, over a K axis whose neighbours are swapped; NaNs aside."""
    rng = np.random.default_rng(5)
    a, b = (fs.array(rng.normal(size=shape) * 2.0**-62, "bf16") for shape in ((9, 40), (40, 8)))
    swapped = np.arange(40) ^ 1
    chain = fs.Sequential("fp32", fused=True, ftz=True, daz=True)
    got, want = fs.matmul(a, b, accumulate="avx512-bf16"), fs.matmul(a[:, swapped], b[swapped], accumulate=chain)
    assert np.array_equal(got.codes, want.codes)
    assert (got.values == 0).any(), "some results are flushed"


@pytest.mark.full
def test_an_odd_k_is_filled_with_a_zero():
    x = fs.array([1.5, 2.0, 4.0], "bf16")
    assert fs.dot(x, x, accumulate="avx512-bf16").item() == 2.25 + 4 + 16
    assert fs.dot(x, x, accumulate="amx-bf16").item() == 2.25 + 4 + 16


def test_the_nan_of_x86():
    """a[0], b[0], a[1], b[1], c: the first NaN in this order, quiet, with its payload; else the one with the sign."""
    one, nans = 0x3F80, [0x7F81, 0xFFC2, 0x7FC3, 0xFF84, 0xFFC00005]
    quiet = [0x7FC10000, 0xFFC20000, 0x7FC30000, 0xFFC40000, 0xFFC00005]
    x86, arm = (named_unit(arch, None, fs.BF16, fs.BF16) for arch in ("avx512-bf16", "arm-bfdot"))
    for first in range(5):
        codes = [nan if n >= first else one for n, nan in enumerate(nans)]
        a, b = np.array([[codes[0], codes[2]]], np.uint16), np.array([[codes[1], codes[3]]], np.uint16)
        c = np.array([codes[4]], np.uint32)
        assert x86.dots(a, b, c) == quiet[first]
        assert arm.dots(a, b, c) == 0x7FC00000
    infinite, zero = np.array([[0x7F80, 0]], np.uint16), np.zeros((1, 2), np.uint16)
    assert x86.dots(infinite, zero, np.zeros(1, np.uint32)) == 0xFFC00000


@pytest.mark.full
@pytest.mark.parametrize("name", CPUS)
def test_the_fast_kernels_bail_out_of_results_on_the_edge_of_tiny(name):
    """Products whose sum rounds up to the least normal number are tiny by the rule of x86, and not by Arm's."""
    arch = ARCHITECTURES[name]
    row = next((row for row in arch.instructions if row.inputs[0] == fs.BF16), None)
    if row is None:
        return
    edge = (2 - power(-7)) * power(-64), (2 - power(-7)) * power(-64)
    a, b = fs.array(np.full((2, 8), edge[0]), "bf16"), fs.array(np.full((8, 3), edge[1]), "bf16")
    b.codes[1:] = 0
    unit = named_unit(name, row.name, fs.BF16, fs.BF16)
    padded = [np.zeros((2, row.k), np.uint16) for _ in range(2)]
    padded[0][:, 0], padded[1][:, 0] = a.codes[:, 0], b.codes[0, 0]
    want = unit.dots(*padded, np.zeros(2, np.uint32))
    assert np.array_equal(fs.matmul(a, b, accumulate=fs.TensorCore(name, row.name)).codes[:, 0], want)
