"""Operands that distinguish the sums of matrix units, for the tests and for the long run in tests/exhaustive."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from floatsim.emulator.dispatch.kernel import FIRST_EVENTS, NEVER
from floatsim.emulator.dispatch.matrix_units import fast_kernels
from floatsim.emulator.dispatch.tensorcore_calls import Record, accumulate
from floatsim.emulator.dispatch.tensorcore_operands import BlockScales, Matrix
from floatsim.formats import FP32, FloatFormat
from floatsim.formats.rounding import EVENT_BITS
from floatsim.reference.tensorcore.dot import Scaled, dot
from floatsim.tensorcore.architectures import ARCHITECTURES
from floatsim.tensorcore.instructions import Instruction, Scales

STYLES = ("bits", "near", "tiny", "large", "sparse", "cancelling")


class Case(NamedTuple):
    """A row of the table with formats of its operands, and scales if it takes them."""

    arch: str
    row: Instruction
    a: FloatFormat
    b: FloatFormat
    scales: Scales | None

    def __str__(self) -> str:
        scales = f" {self.scales.format}/{self.scales.every}" if self.scales else ""
        return f"{self.arch} {self.row.name} {self.a} {self.b} {self.row.output}{scales}"


def cases() -> Iterator[Case]:
    for arch in ARCHITECTURES.values():
        for row in arch.instructions:
            formats = row.inputs if not row.truncates else (*row.inputs, FP32)
            pairs = [(x, y) for x in formats for y in formats if row.takes(x, y)]
            for a, b in pairs:
                for scales in row.scales or (None,):
                    yield Case(arch.name, row, a, b, scales)


def distinct() -> dict[tuple, list[Case]]:
    """The cases with different results: the same model on the same formats occurs once."""
    found: dict[tuple, list[Case]] = {}
    for case in cases():
        found.setdefault((case.row.model, case.row.k, case.row.output, case.a, case.b, case.scales), []).append(case)
    return found


def groups() -> dict[str, list[Case]]:
    """The cases of each instruction of each architecture, without instructions that compute the same as another one."""
    found: dict[tuple, list[Case]] = {}
    for case in cases():
        row = case.row
        found.setdefault((row.model, row.k, row.output, row.inputs, row.scales), []).append(case)
    return {_name(some): [case for case in some if (case.arch, case.row) == (some[0].arch, some[0].row)]
            for some in found.values()}  # fmt: skip


def _name(some: list[Case]) -> str:
    case = some[0]
    return f"{case.arch}-{case.row.name}-{'-'.join(fmt.name for fmt in case.row.inputs[:2])}-{case.row.output}"


def codes(rng: np.random.Generator, fmt: FloatFormat, shape: tuple[int, ...], style: str) -> np.ndarray:
    """Codes of a format as uint64: any bits; exponents near 0; subnormal and next to it; near max; mostly zeros."""
    x = rng.integers(0, 1 << 64, shape, dtype=np.uint64, endpoint=False) & np.uint64((1 << fmt.bits) - 1)
    if style == "bits":
        return x
    t = fmt.trailing_bits
    if style == "tiny":
        keep = np.uint64(fmt.sign_mask | (1 << t + 1) - 1)
        return x & keep
    if style == "large":
        return np.uint64(fmt.max_code) - (x & np.uint64((1 << t + 1) - 1)) | x & np.uint64(fmt.sign_mask)
    middle = fmt.bias
    spread = 1 if style == "cancelling" else 4
    field = np.clip(rng.integers(middle - spread, middle + spread + 1, shape), 0, (1 << fmt.exponent_bits) - 1)
    near = x & np.uint64(fmt.sign_mask | (1 << t) - 1) | field.astype(np.uint64) << np.uint64(t)
    return near * (rng.random(shape) < 0.3) if style == "sparse" else near


def operands(rng: np.random.Generator, case: Case, m: int, k: int, n: int, style: str):
    """(a (1, m, k), b (1, k, n), c (1, 1, m, n), scales) of a style."""
    a, b = codes(rng, case.a, (1, m, k), style), codes(rng, case.b, (1, k, n), style)
    if style == "cancelling":  # neighbours that sum to nothing, up to a last bit here and there
        h = k // 2
        if case.a.signed and h:
            a[:, :, h : 2 * h] = a[:, :, :h] ^ np.uint64(case.a.sign_mask)
            b[:, h : 2 * h] = b[:, :h] ^ (rng.random(b[:, :h].shape) < 0.1).astype(np.uint64)
    c = codes(rng, case.row.output, (1, 1, m, n), rng.choice([style, "sparse", "tiny"]))
    if case.scales is None:
        return a, b, c, None
    parts = -(-k // case.scales.every)
    kind = style if style in ("bits", "tiny", "large") else "near"
    left, right = (codes(rng, case.scales.format, s, kind) for s in ((1, m, parts), (1, parts, n)))
    return a, b, c, BlockScales(left, right, case.scales)


class Difference(NamedTuple):
    case: str
    style: str
    operands: tuple
    expected: int
    got: int


def by_reference(case: Case, a, b, c, scales):
    """(codes, counts of event bytes) of every element."""
    m, n = c.shape[2:]
    out, counts = np.zeros((m, n), np.uint64), np.zeros(256, np.int64)
    for i in range(m):
        for j in range(n):
            start = int(c[0, 0, i, j])
            factors = None if scales is None else Scaled(scales.a[0, i].tolist(), scales.b[0, :, j].tolist(), scales.of)
            result = dot(case.row, a[0, i].tolist(), b[0, :, j].tolist(), case.a, case.b, start, factors)
            out[i, j] = result.code
            for step in result.steps:
                counts[step.events] += 1
    return out, counts


def _record(m: int, k: int, n: int) -> Record:
    return Record(np.arange(k), np.zeros((2, 256), np.int64), np.full((6, 1, m, n), NEVER))


def _differences_of_events(
    case: Case, style: str, record: Record, counted: Record, names: frozenset[str]
) -> list[Difference]:
    """Return the differences of the fast kernels' events, or of their places, from those of the integer kernels."""
    found, bytes_ = [], np.arange(256)
    pairs = [(record.counts[1].sum(), counted.counts[1].sum())]
    pairs += [
        tuple(int(each.counts[1][bytes_ & EVENT_BITS[name] != 0].sum()) for each in (record, counted))
        for name in sorted(names & EVENT_BITS.keys() - {"divide_by_zero"})  # its bit marks new NaNs
    ]
    for n, (expected, got) in enumerate(pairs):
        if expected != got:
            found.append(Difference(str(case), f"{style}, fast events {n}", (), int(expected), int(got)))
    for event, name in enumerate(FIRST_EVENTS):
        if name in names:
            for i, j in np.argwhere(record.first[event, 0] != counted.first[event, 0]):
                where = int(record.first[event, 0, i, j]), int(counted.first[event, 0, i, j])
                found.append(Difference(str(case), f"{style}, first {name} of {(i, j)}", (), *where))
    return found


def compare(
    case: Case, rng: np.random.Generator, m: int, k: int, n: int, style: str, right=by_reference
) -> list[Difference]:
    """Return the differences of the kernels from `right`, in codes and, if `right` counts events, in counts."""
    a, b, c, scales = operands(rng, case, m, k, n, style)
    expected, counts = right(case, a, b, c, scales)
    fast = fast_kernels(case.row)
    record, counted = _record(m, k, n), _record(m, k, n) if fast else None
    found = []
    for recording, kernels in ((record, None), (None, fast), (counted, fast))[: 2 + bool(counted)]:
        got = c.copy()
        accumulate(case.row, Matrix(a, case.a), Matrix(b, case.b), got, np.array([[0, k]]), kernels, scales, recording)
        for i, j in np.argwhere(got[0, 0] != expected):
            terms = a[0, i], b[0, :, j], c[0, 0, i, j]
            found.append(Difference(str(case), style, terms, int(expected[i, j]), int(got[0, 0, i, j])))
    if counted:
        found += _differences_of_events(case, style, record, counted, fast.COUNTED)
    if counts is None:
        return found
    without_nan = np.zeros(256, np.int64)
    for byte, count in enumerate(record.counts[1]):
        without_nan[byte & ~8] += count
    for byte in np.flatnonzero(without_nan != counts):
        found.append(Difference(str(case), f"{style}, events {byte}", (), int(counts[byte]), int(without_nan[byte])))
    return found
