"""The dot and conversion instructions of this CPU, compared with the emulator. CPUs without them have no such jobs."""

from __future__ import annotations

import numpy as np

import floatsim as fs
from floatsim.emulator.dispatch.matrix_units import fast_kernels
from floatsim.emulator.dispatch.tensorcore_calls import accumulate
from floatsim.emulator.dispatch.tensorcore_operands import Matrix
from floatsim.hardware.cpu.device import Cpu
from floatsim.hardware.cpu.instructions import CONVERSIONS, DOTS, INTEGERS, CpuConversion, CpuDot, CpuInteger
from floatsim.hardware.cpu.loops import run_integers
from floatsim.hardware.cpu.support import supported
from floatsim.testing.vectors.dot_inputs import input_set
from floatsim.testing.vectors.dot_unit import Unit
from tests.tensorcore.cases import STYLES, Case, operands

TOTAL, ROWS, SIDE = 100_000_000, 250_000, 500
"""Dot products of an instruction; of a chunk; rows and columns of a chunk that is a matrix product."""
CODES = 1 << 22
"""Conversions of a chunk."""


def dots() -> list[CpuDot]:
    """The dot instructions that this CPU has."""
    return [dot for dot in DOTS if supported()[str(dot)] is None]


def conversions() -> list[CpuConversion]:
    """The conversions that this CPU has."""
    return [row for row in CONVERSIONS if supported()[str(row)] is None]


def integers() -> list[CpuInteger]:
    """The integer dot instructions that this CPU has."""
    return [dot for dot in INTEGERS if supported()[str(dot)] is None]


def compare(dot: CpuDot, chunk: int) -> tuple[int, int, list[str]]:
    """Test vectors by the integer kernels, or a matrix product of some style by the fast kernels."""
    if chunk % 2 == 0:
        unit = Unit(dot.arch, dot.row, dot.a, dot.b)
        x = input_set(unit, ROWS, chunk)
        a, b, c, want = x.a, x.b, x.c, unit.dots(*x)
    else:
        rng = np.random.default_rng(chunk)
        case = Case(dot.arch, dot.row, dot.a, dot.b, None)
        left, right, start, _ = operands(rng, case, SIDE, dot.k, SIDE, STYLES[chunk // 2 % len(STYLES)])
        out = start.copy()
        ranges = np.array([[0, dot.k]])
        accumulate(dot.row, Matrix(left, dot.a), Matrix(right, dot.b), out, ranges, fast_kernels(dot.row))
        a = np.repeat(left[0], SIDE, axis=0).astype(dot.a.code_dtype)
        b = np.tile(right[0].T, (SIDE, 1)).astype(dot.b.code_dtype)
        c, want = (codes.reshape(-1).astype(dot.output.code_dtype) for codes in (start, out))
    got = Cpu().dots(dot, a, b, c)
    wrong = np.flatnonzero(got != want)
    examples = [f"{dot}: a {a[i].tolist()} b {b[i].tolist()} c {c[i]}: CPU {got[i]}, emulator {want[i]}" for i in wrong]
    return len(want), len(wrong), examples[:5]


def compare_integers(dot: CpuInteger, chunk: int) -> tuple[int, int, list[str]]:
    """A matrix product of random and extreme integers, onto accumulators anywhere and next to both ends of int32."""
    rng = np.random.default_rng(chunk)
    sides = []
    for dtype in (dot.row.a, dot.row.b):
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        x, ends = rng.integers(low, high + 1, (SIDE, dot.k)), rng.choice([low, high], (SIDE, dot.k))
        sides.append(np.where(rng.random((SIDE, dot.k)) < rng.random(), ends, x))
    c = rng.integers(-(1 << 31), 1 << 31, (SIDE, SIDE))
    near = c % 1000
    c = np.choose(rng.integers(0, 3, c.shape), [c, (1 << 31) - 1 - near, near - (1 << 31)])
    want = fs.quantization.integer_matmul(sides[0], sides[1].T, c, instruction=dot.name).reshape(-1)
    got = run_integers(dot, np.repeat(sides[0], SIDE, axis=0), np.tile(sides[1], (SIDE, 1)), c.reshape(-1))
    wrong = np.flatnonzero(got != want)
    return len(want), len(wrong), [f"{dot}: row {i}: CPU {got[i]}, emulator {want[i]}" for i in wrong[:5]]


def convert(row: CpuConversion, chunk: int) -> tuple[int, int, list[str]]:
    """All codes of a chunk."""
    count = min(CODES, 1 << row.source.bits)
    codes = np.arange(chunk * count, (chunk + 1) * count, dtype=np.int64).astype(row.source.code_dtype)
    x = fs.from_codes(codes, row.source)
    got, want = (
        fs.tensorcore.convert_as(row.name, x, rounding=row.rounding, backend=backend).codes
        for backend in ("native-cpu", "emulator")
    )
    wrong = np.flatnonzero(got != want)
    return count, len(wrong), [f"{row}: {codes[i]:#x}: CPU {got[i]:#x}, emulator {want[i]:#x}" for i in wrong[:5]]
