"""What is measured, as rows: operations, formats, data, contestants, and the targets that they have to meet."""

from __future__ import annotations

import fnmatch
import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import floatsim as fs
from floatsim.quantization import as_element_format

from . import peers

HAS_OUT = "out" in inspect.signature(fs.quantize).parameters
DATA = ("easy", "wide")
CUSTOM = fs.FloatFormat.ieee(6, 9)
QUANTIZED = (fs.FP16, fs.BF16, fs.E4M3, fs.E5M2, CUSTOM)
MODES = tuple(mode.name.lower() for mode in fs.Rounding)
DIRECTED = ("toward_zero", "toward_positive", "toward_negative")

COPYTO, COPY, SAME_BYTES = "np.copyto", "x.copy()", "np.copyto of as many bytes"
OURS, OURS_OUT = "floatsim", "floatsim, out="
BEST = OURS_OUT if HAS_OUT else OURS
FULL = {"conversion": 1 << 24, "arithmetic": 1 << 22, "flags": 1 << 18, "small": 64}
QUICK = {"conversion": 1 << 14, "arithmetic": 1 << 14, "flags": 1 << 12, "small": 64}


@dataclass(frozen=True)
class Requirement:
    """A target: the speed of one contestant, at least so many times that of another (or so many results a second)."""

    text: str
    at_least: float
    unit: str = "x"


REQUIREMENTS = {
    "quantize": Requirement("quantize float32, ties to even, `out=`, against `np.copyto`: into an existing array", 0.9),
    "quantize, new": Requirement("the same against `x.copy()`: into a new array", 0.9),
    "quantize, strict": Requirement("the same into a new array against `np.copyto` into an existing one", 0.9),
    "easy and wide": Requirement("the same on easy data against wide data: within 10 %", 1 / 1.1),
    "directed": Requirement("directed rounding modes against ties to even (at most 1.3 times its time)", 1 / 1.3),
    "float64": Requirement("quantize float64 against a float64 `np.copyto`", 0.8),
    "stochastic BF16": Requirement("stochastic rounding to BF16 against `np.copyto`", 0.8),
    "stochastic": Requirement("stochastic rounding to any format against `np.copyto`", 0.5),
    "encode, 16 bits": Requirement("encode float32 to 16 bits, `out=`, against a copy of as many bytes", 0.6),
    "encode": Requirement("encode float32 to 8 bits or a custom format, `out=`, against a copy of as many bytes", 0.5),
    "decode": Requirement("decode, `out=`, against a copy of as many bytes", 0.5),
    "convert": Requirement("convert float32 to packed codes, into a new array, against ml_dtypes", 1),
    "blocks": Requirement("quantize float32 in blocks with scales, scales included, against `np.copyto`", 0.3),
    "FP16": Requirement("FP16 add, multiply, divide, sqrt against NumPy's float16", 20),
    "BF16": Requirement("BF16 add, multiply, divide, sqrt against ml_dtypes", 5),
    "E4M3": Requirement("E4M3 add, multiply, divide, sqrt against ml_dtypes", 15),
    "beside add": Requirement("comparisons and operations that round little, 8 and 16 bits, against add", 1 / 2),
    "beside add, arithmetic": Requirement("multiply, divide, sqrt, 8 and 16 bits, against add", 1 / 3),
    "beside add, more work": Requirement("fma and stochastic rounding, 8 and 16 bits, against add", 1 / 5),
    "beside add, integers": Requirement("operations of integer kernels, 8 and 16 bits, against add", 1 / 200),
    "flags": Requirement("every operation but remainder with flags, in every rounding mode", 30, "M/s"),
    "flags, remainder": Requirement("remainder with flags, in every rounding mode", 2, "M/s"),
    "import": Requirement("`import floatsim` against `import numpy` (at most 1.3 times its time)", 1 / 1.3),
    "first call": Requirement("first call with a warm cache, Numba's import included, against 0.45 s", 1),
    "compile": Requirement("any one kernel compiled cold, against 1 s", 1),
    "first product": Requirement("first product of a description, compiled cold, against 2 s and 1.5 s a nesting", 1),
}


@dataclass(frozen=True)
class Row:
    """A contestant: a limit, floatsim called with keywords, or a peer. It does the operation of its case or its own."""

    label: str
    kind: str
    options: dict[str, Any] = field(default_factory=dict)
    out: bool = False
    operation: str = ""


@dataclass(frozen=True)
class Check:
    """`row` has to meet a requirement against another row; against None: the other data, or results a second."""

    requirement: str
    row: str
    against: str | None = None


@dataclass(frozen=True)
class Case:
    """Contestants that do the same job on the same data, in the same rounds."""

    group: str
    title: str
    operation: str
    fmt: Any
    size_class: str
    rows: tuple[Row, ...]
    checks: tuple[Check, ...]
    source: str = ""

    @property
    def name(self) -> str:
        return f"{self.group}: {self.title}"


def _peers(options: dict[str, Any] | None = None) -> tuple[Row, ...]:
    return tuple(Row(name, "peer", options or {}) for name in peers.PEERS)


_LIMITS = (Row(COPYTO, "limit"), Row(COPY, "limit"))
_SEED = {"seed": 1}


def _mode(mode: str) -> dict[str, Any]:
    return {"rounding": mode} | (_SEED if mode == "stochastic" else {})


def _conversions() -> Iterator[Case]:
    for fmt in QUANTIZED:
        ours = (Row(OURS, "floatsim"), Row(OURS_OUT, "floatsim", out=True))
        checks = (
            Check("quantize", OURS_OUT, COPYTO), Check("quantize, new", OURS, COPY),
            Check("quantize, strict", OURS, COPYTO), Check("easy and wide", BEST),
        )  # fmt: skip
        yield Case("quantize float32", fmt.name, "quantize", fmt, "conversion", _LIMITS + ours + _peers(), checks,
                   "float32")  # fmt: skip
    for fmt in QUANTIZED:
        rows = tuple(Row(mode, "floatsim", _mode(mode), out=HAS_OUT) for mode in MODES if mode != "stochastic")
        checks = tuple(Check("directed", mode, "ties_to_even") for mode in DIRECTED)
        yield Case("quantize float32, directed", fmt.name, "quantize", fmt, "conversion", rows, checks, "float32")
    for fmt in QUANTIZED:
        rows = (*_LIMITS, Row(OURS, "floatsim"), Row(OURS_OUT, "floatsim", out=True))
        checks = (Check("float64", BEST, COPYTO),)
        yield Case("quantize float64", fmt.name, "quantize", fmt, "conversion", rows, checks, "float64")
    for fmt in QUANTIZED:
        options = _mode("stochastic")
        ours = (Row(OURS, "floatsim", options), Row(OURS_OUT, "floatsim", options, out=True))
        rows = (*_LIMITS, *ours, *_peers(options))
        requirement = "stochastic BF16" if fmt is fs.BF16 else "stochastic"
        checks = (Check(requirement, BEST, COPYTO),)
        yield Case("quantize float32, stochastic", fmt.name, "quantize", fmt, "conversion", rows, checks, "float32")
    for operation in ("encode", "decode"):
        for fmt in QUANTIZED:
            requirement = "encode, 16 bits" if operation == "encode" and fmt in (fs.FP16, fs.BF16) else operation
            rows = (Row(SAME_BYTES, "limit"), Row(OURS, "floatsim"), Row(OURS_OUT, "floatsim", out=True))
            yield Case(f"{operation}, `out=`", fmt.name, operation, fmt, "conversion", rows,
                       (Check(requirement, OURS_OUT, SAME_BYTES),), "float32")  # fmt: skip
    for fmt in QUANTIZED:
        rows = tuple(Row(mode, "floatsim", _mode(mode), out=True) for mode in MODES if mode != "stochastic")
        checks = tuple(Check("directed", mode, "ties_to_even") for mode in DIRECTED)
        yield Case("encode float32, directed, `out=`", fmt.name, "encode", fmt, "conversion", rows, checks, "float32")
    for fmt in (fs.FP16, fs.BF16, fs.E4M3, fs.E5M2):
        yield Case("convert float32 to packed codes", fmt.name, "convert", fmt, "conversion",
                   (Row(OURS, "floatsim"), *_peers()), (Check("convert", OURS, "ml_dtypes"),), "float32")  # fmt: skip


BLOCKS: dict[str, dict[str, Any]] = {
    "one scale": {},
    "blocks of 128": {"block": 128},
    "MX blocks of 32": {"block": 32, "rule": "floor", "scale_format": "e8m0"},
}
NVFP4 = {"block": 16, "rule": "nvfp4", "scale_format": "e4m3", "factor": "reciprocal"}
ASYMMETRIC = {"rule": "asymmetric"}
OTHER_BLOCKS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("e2m1", "NVFP4 blocks of 16", NVFP4),
    ("e2m1", "NVFP4 blocks of (16, 1)", NVFP4 | {"block": (16, 1)}),
    ("nf4", "blocks of 64", {"block": 64}),
    ("bnb_fp4", "blocks of 64", {"block": 64}),
    ("fp16", "blocks of 128", {"block": 128}),
    ("bf16", "blocks of 128", {"block": 128}),
    ("int8", "one scale", {}),
    ("int4", "blocks of 32", {"block": 32}),
    ("uint4", "asymmetric, blocks of 32", ASYMMETRIC | {"block": 32}),
    ("uint4", "asymmetric, blocks of 128", ASYMMETRIC | {"block": 128}),
    ("int4", "asymmetric, columns", ASYMMETRIC | {"block": "column"}),
)


def _blocks() -> Iterator[Case]:
    of_formats = [(name, title, options) for name in ("e4m3", "e2m1") for title, options in BLOCKS.items()]
    for name, title, options in (*of_formats, *OTHER_BLOCKS):
        fmt = as_element_format(name)
        rows = (*_LIMITS, Row(OURS, "floatsim", options))
        yield Case("quantize float32 in blocks", f"{fmt.name}, {title}", "quantize_blocks", fmt, "conversion", rows,
                   (Check("blocks", OURS, COPYTO),), "float32")  # fmt: skip


def _arithmetic() -> Iterator[Case]:
    for fmt, rival in (fs.FP16, "NumPy"), (fs.BF16, "ml_dtypes"), (fs.E4M3, "ml_dtypes"):
        for operation in "add", "multiply", "divide", "sqrt":
            rows = (Row(OURS, "floatsim"), Row(OURS_OUT, "floatsim", out=True), *_peers())
            checks = (Check(fmt.name, OURS, rival),)
            yield Case("arithmetic", f"{fmt.name} {operation}", operation, fmt, "arithmetic", rows, checks)


BESIDE_ADD = {
    "beside add": (
        "subtract", "minimum", "maximum", "minimum_number", "maximum_number", "equal",
        "not_equal", "less", "less_equal", "greater", "greater_equal", "unordered", "absolute", "negative", "copysign",
        "rint", "floor", "ceil", "trunc",
    ),
    "beside add, arithmetic": ("multiply", "divide", "sqrt"),
    "beside add, more work": ("fma", "add, stochastic", "multiply, stochastic"),
    "beside add, integers": (
        "remainder", "fmod", "logb", "next_up", "next_down", "scalb", "to_integer", "from_integer",
    ),
}  # fmt: skip
"""For each requirement the operations that have to meet it."""


def _beside_add() -> Iterator[Case]:
    for fmt in fs.FP16, fs.BF16, fs.E4M3, fs.E5M2:
        for requirement, labels in BESIDE_ADD.items():
            rows = [Row("add", "floatsim", operation="add")]
            for label in labels:
                operation, _, mode = label.partition(", ")
                rows.append(Row(label, "floatsim", _mode(mode) if mode else {}, operation=operation))
            checks = tuple(Check(requirement, label, "add") for label in labels)
            yield Case(requirement, fmt.name, "fma", fmt, "arithmetic", tuple(rows), checks)


def _small() -> Iterator[Case]:
    """64 elements: what a call costs before it does anything."""
    rows = (Row(OURS, "floatsim"), *_peers())
    yield Case("small arrays", "quantize to FP16", "quantize", fs.FP16, "small", rows, (), "float32")
    yield Case("small arrays", "FP16 add", "add", fs.FP16, "small", rows, ())
    yield Case("small arrays", "E4M3 add", "add", fs.E4M3, "small", rows, ())


OPERANDS = {
    "add": 2, "subtract": 2, "multiply": 2, "divide": 2, "sqrt": 1, "fma": 3, "remainder": 2, "fmod": 2, "rint": 1,
    "floor": 1, "ceil": 1, "trunc": 1, "minimum": 2, "maximum": 2, "minimum_number": 2, "maximum_number": 2,
    "scalb": 1, "to_integer": 1, "from_integer": 0, "encode": 0, "quantize": 0, "convert": 0, "logb": 1, "next_up": 1,
    "next_down": 1, "equal": 2, "not_equal": 2, "less": 2, "less_equal": 2, "greater": 2, "greater_equal": 2,
    "unordered": 2, "quantize_blocks": 0, "decode": 1, "absolute": 1, "negative": 1, "copysign": 2,
}  # fmt: skip
"""How many arrays of codes each operation takes; 0 for those that take numbers of another kind."""

WITHOUT_MODE = (
    "logb", "next_up", "next_down", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "unordered",
    "absolute", "negative", "copysign",
)  # fmt: skip
WITHOUT_FLAGS = ("convert", "quantize_blocks", "decode", "absolute", "negative", "copysign")


def _flags() -> Iterator[Case]:
    for fmt in fs.FP16, fs.BF16, fs.E4M3, fs.FP32:
        for operation in OPERANDS:
            if operation in WITHOUT_FLAGS:  # `convert` is `encode`, with another dtype on its result
                continue
            modes = ("",) if operation in WITHOUT_MODE else MODES
            rows = tuple(
                Row(mode or OURS, "floatsim", (_mode(mode) if mode else {}) | {"return_flags": True}) for mode in modes
            )
            requirement = "flags, remainder" if operation == "remainder" else "flags"
            source = "float64" if fmt is fs.FP32 else "float32"
            yield Case("with flags", f"{fmt.name} {operation}", operation, fmt, "flags", rows,
                       tuple(Check(requirement, row.label) for row in rows), source)  # fmt: skip


def matches(name: str, pattern: str) -> bool:
    """Return whether a name contains a pattern of the shell, in any case of letters."""
    return fnmatch.fnmatch(name.lower(), f"*{pattern.lower()}*")


def cases() -> list[Case]:
    return [*_conversions(), *_blocks(), *_arithmetic(), *_beside_add(), *_small(), *_flags()]


# -- data ----------------------------------------------------------------------------------------------------------


def values(data: str, dtype: str, fmt: fs.FloatFormat, size: int) -> np.ndarray:
    """easy: N(0, 1). wide: uniform exponents from below the format's subnormals to beyond its max, and 1 % specials."""
    rng = np.random.default_rng(size)
    if data == "easy":
        return rng.standard_normal(size).astype(dtype)
    info = np.finfo(dtype)
    lowest = max(fmt.emin - fmt.precision - 2, info.minexp - info.nmant)
    exponents = rng.integers(lowest, min(fmt.emax + 3, info.maxexp - 1), size)
    x = np.ldexp(rng.uniform(1, 2, size) * rng.choice([-1, 1], size), exponents).astype(dtype)
    x[rng.integers(0, size, size // 100)] = rng.choice(np.array([0, -0.0, np.inf, -np.inf, np.nan], dtype), size // 100)
    return x


def matrix(data: str, fmt: Any, size: int) -> np.ndarray:
    """`values` of float32 for blocks, 4096 columns. Integers and lookup formats have no special values."""
    if isinstance(fmt, fs.FloatFormat):
        return values(data, "float32", fmt, size).reshape(-1, 4096)
    x = values(data, "float32", fs.FP16, size)
    x[~np.isfinite(x)] = 0
    return x.reshape(-1, 4096)


def codes(data: str, fmt: fs.FloatFormat, size: int, count: int, positive: bool) -> list[np.ndarray]:
    """easy: N(0, 1), or its magnitude, rounded to the format. wide: all codes, equally likely."""
    rng = np.random.default_rng(size)
    if data == "easy":
        normal = [rng.standard_normal(size) for _ in range(count)]
        return [fs.encode(np.abs(x) if positive else x, fmt) for x in normal]
    return [rng.integers(0, 1 << fmt.bits, size, dtype=fmt.code_dtype) for _ in range(count)]
