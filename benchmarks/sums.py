"""Matrix products and sums as rows: operands, accumulation, baseline and targets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import floatsim as fs
from floatsim.accumulation import leaves
from floatsim.arrays.events.counts import DEFAULT

from . import peers
from .cases import CUSTOM, DIRECTED

OURS, SGEMM, NUMPY_SUM, NUMPY_ACCUMULATE = "floatsim", "sgemm", "np.sum float32", "np.add.accumulate"
MMASIM = "mmasim"
SLOWER, FASTER, MICROSECONDS = "x slower", "x faster", "us"


@dataclass(frozen=True)
class Target:
    """At most so many times slower than the other (or microseconds), or at least so many times faster."""

    text: str
    must: float
    aim: float
    unit: str = SLOWER


TARGETS = {
    "FP16": Target("FP16 sequential, products and sums rounded, against NumPy's sgemm", 8, 6),
    "BF16": Target("BF16 sequential", 7, 5.5),
    "any": Target("any format sequential", 15, 10),
    "fused": Target("FP16 fused, and BF16 fused on data whose exponents allow the fast path", 12, 10),
    "fused, wide": Target("BF16 fused on data whose exponents do not allow it", 30, 20),
    "directed": Target("FP16 and BF16, directed rounding modes against ties to even", 1.3, 1.05),
    "directed, any": Target("any format, directed rounding modes against ties to even", 1.6, 1.05),
    "stochastic BF16": Target("BF16 stochastic against sgemm", 14, 11),
    "stochastic": Target("any format stochastic against sgemm", 35, 25),
    "composed": Target("Blocked, SplitK, Pairwise, Strided against Sequential", 1.5, 1.1),
    "Kahan": Target("Kahan against sgemm", 40, 25),
    "Exact, narrow": Target("Exact of FP16 and FP8 inputs against sgemm", 60, 30),
    "Exact, wide": Target("Exact of BF16 and FP32 inputs against sgemm", 200, 80),
    "recording": Target("recording overflow, underflow and NaN, against the same without recording", 4, 2.5),
    "recording all": Target("recording everything, with the first k, against the same without recording", 10, 6),
    "recording units": Target("recording overflow, underflow and NaN on the Hopper model, against without", 5, 3),
    "recording units, all": Target("recording everything on the Hopper model, against without", 10, 5),
    "large": Target("a product of 4096 x 4096 x 4096 against one of 512 x 512 x 512, per term", 1.2, 1.05),
    "Hopper": Target("FP16 with the Hopper model, blocks of 16 products, against sgemm", 14, 11),
    "Ampere": Target("FP16 with the Ampere model, blocks of 8", 18, 14),
    "Volta": Target("FP16 with the Volta model, blocks of 4", 25, 20),
    "FP8 units": Target("FP8 with the Hopper model, promoted to FP32 or not, against FP16", 1.3, 1.0),
    "scaled units": Target("block-scaled FP8 and FP4 with the Blackwell model, against sgemm", 25, 15),
    "AMD": Target("the models of CDNA 1, 2 and 3, against sgemm", 40, 25),
    "GPU kernels": Target("parts of GPU kernels against the same unit and operands without them", 1.5, 1.1),
    "tf32x3": Target("three products of TF32 parts against one product", 4.5, 3.3),
    "Arm FP8": Target("the exact sums of Arm's FP8 instructions, against sgemm", 40, 25),
    "mmasim": Target("FP16 with the Hopper model against mmasim", 100, 180, FASTER),
    "APyTypes": Target("FP16 against APyTypes", 50, 70, FASTER),
    "gfloat": Target("FP16 against a loop over k with gfloat", 400, 600, FASTER),
    "pychop": Target("FP16 against a loop over k with pychop", 5000, 7000, FASTER),
    "torch": Target("FP16 against a loop over k in torch's own float16", 1.5, 2.5, FASTER),
    "strided sum": Target("FP16 strided sum of 16 M against np.sum of float32", 1.3, 1.0),
    "pairwise sum": Target("FP16 pairwise sum of 16 M against np.sum of float32", 1.6, 1.25),
    "sequential sum": Target("FP16 sequential sum of 16 M against np.add.accumulate of float16", 5, 10, FASTER),
    "permuted sum": Target("sums of 16 M swapped, reversed or by a list of positions, against in order", 1.2, 1.05),
    "threads": Target("two threads against one thread", 1.7, 1.95, FASTER),
    "edges": Target("a format at the bound of a fast path against the next format, beyond the bound", 1.2, 2, FASTER),
    "small": Target("a product of 16 x 16 x 16, after the first call", 100, 50, MICROSECONDS),
}


@dataclass(frozen=True)
class Call:
    """What is timed. `shape` is (M, N, K) of a product, or the length of a sum; longer calls get less: see `races`.

    `scale` is the format of the scales of block-scaled operands. `patience` multiplies the longest time of a call.
    """

    fmt: fs.FloatFormat
    accumulation: str | fs.Accumulation = ""
    shape: tuple[int, ...] = (512, 512, 512)
    who: str = OURS
    data: str = "easy"
    mode: str = "ties_to_even"
    events: tuple[str, ...] = ()
    threads: int = 1
    scale: str = ""
    patience: float = 1

    @property
    def keywords(self) -> dict[str, Any]:
        return {"rounding": self.mode} | ({"seed": 1} if self.mode == "stochastic" else {})

    def __str__(self) -> str:
        if self.who != OURS:
            return self.who
        said = [str(self.accumulation)]
        if self.fmt not in {leaf.format for leaf in leaves(fs.as_accumulation(self.accumulation))}:
            said.append(f"of {self.fmt.name}")
        said += [f"scales of {self.scale.upper()}"] * bool(self.scale)
        said += [f"{self.data} data"] * (self.data != "easy")
        said += [self.mode.replace("_", " ")] * (self.mode != "ties_to_even")
        said += [f"recording {'everything' if self.events == _ALL else ', '.join(self.events)}"] * bool(self.events)
        said += [f"{self.threads} threads"] * (self.threads > 1)
        return ", ".join(said)


@dataclass(frozen=True)
class Row:
    """`work` has to meet a target against another call (None: alone). A group's calls run in the same rounds."""

    group: str
    work: Call
    against: Call | None = None
    target: str | None = None

    @property
    def name(self) -> str:
        other = f", against {self.against}" if self.against else ""
        return f"{self.group}: {self.work}{other}"


_NAN = ("overflow", "underflow", "nan")
_INVALID = ("overflow", "underflow", "invalid")
_ALL = tuple(sorted(DEFAULT))
_SGEMM = Call(fs.FP32, who=SGEMM)
_FORMATS = ((fs.FP16, "FP16"), (fs.BF16, "BF16"), (fs.E5M2, "any"), (CUSTOM, "any"))
_COMPOSED = (
    "blocked({0}, 128, fp32)", "blocked({0}, 32, {0})", "splitk(4, {0}, fp32)", "strided({0}, 32)",
)  # fmt: skip
_TREES = ("adjacent", "halving", "numpy")


def _sequential(fmt: fs.FloatFormat, fused: bool = False) -> str:
    return f"sequential({fmt.name.lower()}{', fused' * fused})"


def _products() -> Iterator[Row]:
    """The rows on matrices of 512 x 512: for each format, everything in the same rounds as sgemm."""
    for fmt, target in _FORMATS:
        group, plain = f"product {fmt.name}", Call(fmt, _sequential(fmt))
        narrow = target != "any"
        for data in "easy", "wide":
            yield Row(group, replace(plain, data=data), _SGEMM, target)
        if narrow:
            fused = Call(fmt, _sequential(fmt, fused=True))
            wide = "fused, wide" if fmt is fs.BF16 else "fused"
            yield Row(group, fused, _SGEMM, "fused")
            yield Row(group, replace(fused, data="wide"), _SGEMM, wide)
        for mode in DIRECTED:
            yield Row(group, replace(plain, mode=mode), plain, "directed" if narrow else "directed, any")
        stochastic = "stochastic BF16" if fmt is fs.BF16 else "stochastic"
        yield Row(group, replace(plain, mode="stochastic"), _SGEMM, stochastic)
        for inner in (plain, fused) if narrow else (plain,):
            for text in _COMPOSED:
                yield Row(group, replace(plain, accumulation=text.format(inner.accumulation)), inner, "composed")
            for tree in _TREES:
                exact = ", product=none" if inner is not plain else ""
                yield Row(group, Call(fmt, f"pairwise({fmt.name.lower()}, {tree}{exact})"), inner, "composed")
        yield Row(group, Call(fmt, f"kahan({fmt.name.lower()})"), _SGEMM, "Kahan")


def _exact() -> Iterator[Row]:
    narrow, wide = "Exact, narrow", "Exact, wide"
    for fmt, target in (fs.FP16, narrow), (fs.E4M3, narrow), (fs.E5M2, narrow), (fs.BF16, wide), (fs.FP32, wide):
        yield Row("exact", Call(fmt, "exact(fp32)"), _SGEMM, target)


def _recording() -> Iterator[Row]:
    for fmt in fs.FP16, fs.BF16, fs.E5M2:
        plain = Call(fmt, _sequential(fmt))
        for events, target in (_NAN, "recording"), (_INVALID, "recording"), (_ALL, "recording all"):
            yield Row(f"recording {fmt.name}", replace(plain, events=events), plain, target)

    for plain in Call(fs.FP16, "hopper"), Call(fs.E4M3, "hopper"), Call(fs.FP16, "tensorcore(hopper, output=fp16)"):
        for events, target in (_NAN, "recording units"), (_ALL, "recording units, all"):
            yield Row("recording units", replace(plain, events=events), plain, target)


def _large() -> Iterator[Row]:
    described = (
        (fs.FP16, _sequential(fs.FP16)), (fs.BF16, _sequential(fs.BF16)), (fs.FP16, "sequential(fp32, fused)"),
        (fs.FP16, "blocked(fp16, 128, fp16)"), (fs.FP16, "hopper"), (fs.E4M3, "hopper"),
    )  # fmt: skip
    for call in *(Call(*each) for each in described), _SGEMM:
        target = None if call is _SGEMM else "large"
        yield Row(f"large {call.accumulation or call.who}", replace(call, shape=(4096,) * 3, patience=8), call, target)


def _rivals() -> Iterator[Row]:
    ours = Call(fs.FP16, _sequential(fs.FP16), (256,) * 3)
    for peer in peers.PEERS:
        if peer != "ml_dtypes":  # it has no FP16
            yield Row("peers", ours, replace(ours, who=peer), peer if peer in TARGETS else None)


def _sums() -> Iterator[Row]:
    many = (1 << 24,)
    rivals = {who: Call(fs.FP16, shape=many, who=who) for who in (NUMPY_SUM, NUMPY_ACCUMULATE)}
    yield Row("sum", Call(fs.FP16, "strided(fp16, 1024)", many), rivals[NUMPY_SUM], "strided sum")
    for tree in _TREES:
        yield Row("sum", Call(fs.FP16, f"pairwise(fp16, {tree})", many), rivals[NUMPY_SUM], "pairwise sum")
    yield Row("sum", Call(fs.FP16, _sequential(fs.FP16), many), rivals[NUMPY_ACCUMULATE], "sequential sum")
    for fmt in fs.FP16, fs.FP32:  # in FP16, the time depends on the values in their order
        inner = "sequential(fp32)"
        for order in "swapped", "reversed", "backwards-4x4", [7, 2, 5, 0, 3, 6, 1, 4]:
            moved = Call(fmt, fs.Permuted(order, inner), many)
            yield Row("sum", moved, Call(fmt, inner, many), "permuted sum")


_AMD = (
    ("cdna1", fs.FP16), ("cdna1", fs.BF16), ("cdna1", fs.FP32), ("cdna2", fs.FP16), ("cdna2", fs.BF16),
    ("cdna3", fs.FP16), ("cdna3", fs.TF32), ("cdna3", fs.E4M3FNUZ),
)  # fmt: skip

_GPU_KERNELS = (
    (fs.FP16, fs.FP16, "residue(hopper, 96)"), (fs.BF16, fs.BF16, "residue(hopper, 96)"),
    (fs.FP16, fs.FP16, "splitk(4, hopper, fp32, tile=64)"),
    (fs.FP16, fs.FP16, "splitk(4, hopper, fp32, tile=64, dealt)"),
    (fs.FP16, fs.FP16, "splitk(4, residue(hopper, 96), converted(fp16, fp32), tile=64)"),
    (fs.FP16, fs.FP16, "epilogue(hopper, fp32, through=fp16, activation=relu)"),
    (fs.FP16, fs.FP16, "permuted(conv-2x2x64, hopper)"),
    (fs.FP32, fs.TF32, "converted(tf32, hopper)"), (fs.FP32, fs.TF32, "converted(tf32, residue(hopper, 96))"),
    (fs.FP32, fs.TF32, "tf32x3(hopper)"), (fs.FP32, fs.TF32, "blocked(tf32x3(hopper), 32, fp32)"),
)  # fmt: skip
"""Formats of the operands and of those of the plain unit, and descriptions that GPU kernels need (K = 512)."""


def _matrix_units() -> Iterator[Row]:
    hopper = Call(fs.FP16, "hopper")
    yield Row("units", hopper, _SGEMM, "Hopper")
    yield Row("units", Call(fs.FP16, "ampere"), _SGEMM, "Ampere")
    yield Row("units", Call(fs.FP16, "volta"), _SGEMM, "Volta")
    for accumulation in "hopper", "blocked(hopper, 128, fp32)":
        yield Row("units", Call(fs.E4M3, accumulation), hopper, "FP8 units")
    for fmt, scale in (fs.E4M3, "e8m0"), (fs.E2M1, "e8m0"), (fs.E2M1, "e4m3"):
        yield Row("units", Call(fmt, "blackwell", scale=scale), _SGEMM, "scaled units")
    for accumulation, fmt in _AMD:
        yield Row("units", Call(fmt, accumulation), _SGEMM, "AMD")
    for fmt in fs.E4M3, fs.E5M2:
        yield Row("units", Call(fmt, "arm-fp8"), _SGEMM, "Arm FP8")
    for fmt, plain, accumulation in _GPU_KERNELS:
        target = "tf32x3" if "tf32x3" in accumulation else "GPU kernels"
        yield Row("units in GPU kernels", Call(fmt, accumulation), Call(plain, "hopper"), target)
    large = replace(hopper, shape=(1024,) * 3)
    yield Row("units", replace(large, threads=2), large, "threads")
    small = replace(hopper, shape=(128,) * 3)
    yield Row("units of mmasim", small, replace(small, who=MMASIM), "mmasim")


def _threads() -> Iterator[Row]:
    for fmt, _ in _FORMATS[:3]:
        one = Call(fmt, _sequential(fmt), (1024,) * 3)
        yield Row("threads", replace(one, threads=2), one, "threads")


def _small() -> Iterator[Row]:
    for accumulation in *(_sequential(fmt) for fmt, _ in _FORMATS[:3]), "blocked(fp16, 4, fp32)", "exact(fp32)":
        fmt = (
            fs.FP16
            if "(fp16" in accumulation or "exact" in accumulation
            else fs.as_accumulation(accumulation).result_format
        )
        yield Row("small", Call(fmt, accumulation, (16,) * 3), None, "small")


EDGES = (
    ("2 p + 2 <= 24", False, "ties_to_even", (6, 10, 31), (6, 11, 31)),
    ("products above the subnormals", False, "ties_to_even", (7, 9, 117), (7, 9, 118)),
    ("the constants of directed rounding are finite", False, "toward_positive", (7, 10, 13), (7, 10, 12)),
    ("exact products of 53 bits", True, "ties_to_even", (6, 25, 31), (6, 26, 31)),
    ("exponents of products up to 900", True, "ties_to_even", (9, 10, 61), (9, 10, 60)),
)
"""Hypothesis of a fast path, fused or not, rounding mode, and two formats as (exponent bits, trailing bits, bias): the
last that the fast path takes, and the first that it refuses. `floatsim/emulator/proofs.py` has the bounds."""


def edges() -> Iterator[tuple[Call, Call]]:
    """The calls on both sides of each bound of EDGES."""
    for _, fused, mode, *sides in EDGES:
        formats = (fs.FloatFormat(f"ieee({w},{t}) of bias {bias}", w, t, "ieee", bias) for w, t, bias in sides)
        inside, outside = (Call(fmt, fs.Sequential(fmt, fused=fused), mode=mode) for fmt in formats)
        yield inside, outside


def _edges() -> Iterator[Row]:
    for inside, outside in edges():
        yield Row("edges", inside, outside, "edges")


_SHAPES = [(n, n, n) for n in (64, 128, 256, 512, 1024)] + [(64, 64, k) for k in (1 << 10, 1 << 13, 1 << 16)]
_THIN = [(1, 1, 1 << 20), (4096, 1, 4096), (1, 4096, 4096)]  # dot, matrix by vector, vector by matrix


def _rates() -> Iterator[Row]:
    """How fast, by shape: no targets."""
    for shape in _SHAPES + _THIN:
        group = f"rate {' x '.join(map(str, shape))}"
        yield Row(group, replace(_SGEMM, shape=shape))
        for accumulation in *(_sequential(fmt) for fmt, _ in _FORMATS[:3]), _sequential(fs.FP16, fused=True):
            yield Row(group, Call(fs.as_accumulation(accumulation).result_format, accumulation, shape))


def rows() -> list[Row]:
    return [
        *_products(), *_exact(), *_recording(), *_large(), *_matrix_units(), *_rivals(), *_sums(), *_threads(),
        *_small(), *_edges(), *_rates(),
    ]  # fmt: skip


# -- data ----------------------------------------------------------------------------------------------------------


EVERY = {"e8m0": 32, "e4m3": 16}
"""How many elements share a scale of these formats."""


def codes(call: Call, shape: tuple[int, ...]) -> list[np.ndarray]:
    """Codes of a (M, K) and b (K, N), and of their scales if they have some; or of the terms of a sum.

    easy: N(0, 1). wide: exponents spread evenly from the format's smallest subnormal to where 512 products do not yet
    overflow.
    """
    rng = np.random.default_rng(shape)
    sizes = [shape] if len(shape) == 1 else [(shape[0], shape[2]), (shape[2], shape[1])]
    fmt = call.fmt
    found = []
    for size in sizes:
        x = rng.standard_normal(size)
        if call.data == "wide":
            exponents = rng.integers(fmt.emin - fmt.trailing_bits, (fmt.emax - 10) // 2, size, endpoint=True)
            x = np.ldexp(np.copysign(rng.uniform(1, 2, size), x), exponents)
        found.append(fs.encode(x, fmt))
    if call.scale:
        parts = -(-shape[2] // EVERY[call.scale])
        found += [
            fs.encode(2.0 ** rng.integers(-3, 4, size), call.scale) for size in ((shape[0], parts), (parts, shape[1]))
        ]
    return found
