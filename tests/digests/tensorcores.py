"""Cases of the matrix units: every instruction of the table, with every pair of formats that it takes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import floatsim as fs

from .case import Case
from .inputs import bits, codes, pair, terms

__all__ = ["cases"]

_STYLES = ("spread", "specials", "low", "cancelling", "high", "edges", "easy", "ties", "wide", "bits")
_SHAPES = ((16, 24, 20), (3, 70, 5), (2, 33, 17), (1, 130, 1), (18, 64, 40))


def _output(row: Any) -> fs.FloatFormat | None:
    """What `TensorCore(output=)` takes: FP64 instructions have one output format."""
    return None if row.output == fs.FP64 else row.output


def _call(
    accumulation: fs.TensorCore, a: fs.FloatFormat, b: fs.FloatFormat, scales: Any, output: fs.FloatFormat,
    shape: tuple[int, int, int], style: str, addend: bool, batch: tuple[int, ...] = (),
) -> Callable[[str], Any]:  # fmt: skip
    m, k, n = shape

    def call(name: str) -> Any:
        x, y = pair(a, b, (*batch, m, k), (*batch, k, n), style, name)
        keywords = {}
        if scales is not None:
            parts = -(-k // scales.every)
            keywords = {
                side: codes(scales.format, (*batch, *size), "easy" if style != "bits" else "bits", f"{name}/{side}")
                for side, size in (("scale_a", (m, parts)), ("scale_b", (parts, n)))
            }
        c = codes(output, (m, n), "specials" if style == "specials" else "edges", f"{name}/c") if addend else None
        return fs.matmul(x, y, c, accumulate=accumulation, **keywords)

    return call


def _instructions() -> Iterator[Case]:
    shapes, addends = itertools.cycle(_SHAPES), itertools.cycle([False, True, True])
    for architecture in fs.tensorcore.ARCHITECTURES.values():
        for row in architecture.instructions:
            styles = itertools.cycle(_STYLES)
            formats = (*row.inputs, fs.FP32) if row.truncates else row.inputs
            pairs = [(a, b) for a in formats for b in formats if row.takes(a, b)]
            kinds = [(a, b, scales) for a, b in pairs for scales in row.scales or (None,)]
            repeats = 1 if len(kinds) > 4 else max(2, 4 // len(kinds))
            for (a, b, scales), _ in itertools.product(kinds, range(repeats)):
                shape, style, addend = next(shapes), next(styles), next(addends)
                accumulation = fs.TensorCore(architecture.name, row.name, _output(row))
                of = "" if scales is None else f"/scales-{scales.format}-{scales.every}"
                size = "x".join(map(str, shape)) + "+c" * addend
                name = f"tensorcore/{architecture.name}/{row.name}/{row.output}/{a}x{b}{of}/{size}/{style}".lower()
                yield Case(name, _call(accumulation, a, b, scales, row.output, shape, style, addend))


def _composite(accumulation: Any, a: str, b: str, style: str, keywords: dict[str, Any]) -> Callable[[str], Any]:
    def call(name: str) -> Any:
        x, y = pair(fs.as_format(a), fs.as_format(b), (9, 200), (200, 20), style, name)
        return fs.matmul(x, y, accumulate=accumulation, **keywords)

    return call


def _composites() -> Iterator[Case]:
    descriptions = {
        "blocked-128-fp32": lambda unit: fs.Blocked(unit, 128, "fp32"),
        "blocked-64-kahan": lambda unit: fs.Blocked(unit, 64, fs.Kahan("fp32")),
        "splitk-3-fp16": lambda unit: fs.SplitK(3, unit, "fp16"),
        "blocked-splitk": lambda unit: fs.Blocked(fs.SplitK(2, unit, "fp32"), 100, fs.Pairwise("fp64")),
    }
    units = [("ampere", "fp16", "fp16"), ("hopper", "e4m3", "e5m2"), ("blackwell", "e4m3", "e2m1"),
             ("cdna3", "e4m3fnuz", "e4m3fnuz"), ("cdna1", "bf16", "bf16"), ("hopper", "fp64", "fp64")]  # fmt: skip
    styles = itertools.cycle(_STYLES[:-1])
    for (architecture, a, b), (label, describe) in itertools.product(units, descriptions.items()):
        style = next(styles)
        name = f"tensorcore-composite/{label}/{architecture}/{a}x{b}/{style}"
        yield Case(name, _composite(describe(fs.TensorCore(architecture)), a, b, style, {}))
    results = [{"format": "fp16"}, {"format": "bf16", "result_rounding": "toward_zero"},
               {"format": "e4m3", "overflow": "saturate_finite"},
               {"format": "e5m2", "result_rounding": "stochastic", "seed": 9},
               {"rounding": "toward_negative", "ftz": True, "daz": True}]  # fmt: skip
    for (architecture, a, b), (number, keywords) in itertools.product(units[:5], enumerate(results)):
        style = next(styles)
        name = f"tensorcore-result/{architecture}/{a}x{b}/{number}/{style}"
        yield Case(name, _composite(architecture, a, b, style, keywords))


def _sum(architecture: str, fmt: str, shape: tuple[int, ...], axis: int | None, style: str) -> Callable[[str], Any]:
    def call(name: str) -> Any:
        x = terms(fs.as_format(fmt), shape, style, name)
        return fs.sum(x, axis, accumulate=architecture), fs.mean(x, axis, accumulate=architecture)

    return call


def _sums() -> Iterator[Case]:
    styles = itertools.cycle(_STYLES)
    for architecture, formats in {
        "volta": "fp16", "ampere": "fp16 bf16 tf32", "ada": "e4m3 fp16", "hopper": "e5m2 e4m3 fp16",
        "blackwell": "e2m1 bf16", "cdna1": "bf16 fp16", "cdna2": "fp16", "cdna3": "e5m2fnuz fp32",
    }.items():  # fmt: skip
        for fmt, (shape, axis) in itertools.product(formats.split(), (((5003,), None), ((40, 9), 0), ((40, 9), 1))):
            style = next(styles)
            size = "x".join(map(str, shape))
            name = f"tensorcore-sum/{architecture}/{fmt}/{size}-{axis}/{style}"
            yield Case(name, _sum(architecture, fmt, shape, axis, style))


def _scaled(alpha: float, beta: float) -> Callable[[str], Any]:
    def call(name: str) -> Any:
        x, y = pair(fs.E4M3, fs.E5M2, (2, 5, 70), (70, 18), "spread", name)
        c = codes(fs.FP32, (5, 18), "spread", f"{name}/c")
        return fs.matmul(x, y, c, alpha=alpha, beta=beta, accumulate="hopper")

    return call


def _tiny_c(name: str) -> Any:
    """Tiny c beside tiny products, where the fast path of FP8 has its own rule for zeros; positive c only."""
    x, y = pair(fs.E4M3, fs.E4M3, (8, 32), (32, 16), "low", name)
    c = fs.from_codes((bits(f"{name}/c", 128) & np.uint64(0x00FFFFFF)).astype(np.uint32).reshape(8, 16), fs.FP32)
    return fs.matmul(x, y, c, accumulate="ada"), fs.matmul(x, y, c, accumulate="hopper")


def cases() -> Iterator[Case]:
    """Yield every case."""
    yield from _instructions()
    yield from _composites()
    yield from _sums()
    for alpha, beta in ((0.3, 1), (1, 0.7), (-2.0, 0.1), (1, 0)):
        yield Case(f"tensorcore-scaled/alpha={alpha}/beta={beta}", _scaled(alpha, beta))
    yield Case("tensorcore-scaled/tiny-c", _tiny_c)
