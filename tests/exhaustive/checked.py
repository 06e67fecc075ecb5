"""Random calls in the checked build of the kernels (FLOATSIM_CHECKED=1), in a process of their own.

The build checks every access to memory; here only that is tested, not the results. The operands and descriptions are
those that sizes depend on: formats of every kind and width, no terms, one term, one row, one column, empty batches,
rows beside the widths of vectors and tiles, magnitudes at both ends of the range, and codes with bits that the format
does not have.

`python -m tests.exhaustive.checked GROUP SEED` prints one JSON line: (calls, violations, examples).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import floatsim as fs
from floatsim.tensorcore.architectures import ARCHITECTURES

ROOT = Path(__file__).parents[2]
CALLS, EXAMPLES = 60, 5

Codes = Any


# -- formats and operands ----------------------------------------------------------------------------------------------

NAMED = [f for f in fs.named_formats() if not f.is_scale]
WIDEST = [
    fs.FloatFormat.ieee(11, 52),
    fs.FloatFormat("w", 8, 51, specials="fn", bias=127),
    fs.FloatFormat("high", 11, 51, specials="finite", bias=1024),
    fs.FloatFormat("low", 10, 52, specials="fnuz", bias=1023),
    fs.FloatFormat("wide", 11, 0, specials="fn", bias=1024),
    fs.FloatFormat("fine", 1, 52, specials="finite", bias=0),
    fs.FloatFormat.ieee(8, 52),
    fs.FloatFormat.ieee(11, 1),
    fs.FloatFormat("narrow", 2, 0, specials="finite"),
    fs.FloatFormat("bit", 1, 1, specials="fn"),
]


def any_format(r: np.random.Generator) -> fs.FloatFormat:
    kind = r.random()
    if kind < 0.3:
        return NAMED[r.integers(len(NAMED))]
    if kind < 0.5:
        return WIDEST[r.integers(len(WIDEST))]
    while True:
        w, t = int(r.integers(1, 12)), int(r.integers(0, 53))
        if r.random() < 0.5:
            w, t = int(r.integers(2, 9)), int(r.integers(0, 26))
        specials = str(r.choice(["ieee", "fn", "fnuz", "finite"]))
        bias = None if r.random() < 0.6 else int(r.integers(-900, 1100))
        try:
            return fs.FloatFormat(f"e{w}m{t}", w, t, specials=specials, bias=bias)
        except ValueError:
            continue


def codes(r: np.random.Generator, fmt: fs.FloatFormat, shape: tuple[int, ...]) -> Codes:
    """Codes: any bits; next to 1; subnormal; next to max; both ends mixed; zeros and special values; unused bits."""
    t, mask = fmt.trailing_bits, (1 << fmt.bits) - 1
    x = r.integers(0, 1 << 64, shape, dtype=np.uint64, endpoint=False) & np.uint64(mask)
    sign = x & np.uint64(fmt.sign_mask)
    together = [shape, (*shape[:-1], 1)][r.integers(2)]  # each by itself, or the elements of a row alike
    low = (x & np.uint64((1 << t + 1) - 1)) >> r.integers(0, t + 2, together).astype(np.uint64)
    ends = (
        sign | np.minimum(low, np.uint64(fmt.max_code)),
        sign | (np.uint64(fmt.max_code) - np.minimum(low, np.uint64(fmt.max_code))),
        sign | np.minimum(np.uint64(max(0, fmt.bias) << t) + low, np.uint64(fmt.max_code)),
    )
    style = int(r.integers(7))
    if style < 3:
        found = ends[style]
    elif style == 3:
        found = np.where(r.random(together) < 0.5, ends[0], ends[1])
    elif style == 4:
        found = np.where(r.random(shape) < 0.9, np.uint64(0), x)
    elif style == 5 and fmt.bits < 8 * fmt.code_dtype.itemsize:
        found = x | r.integers(0, 1 << 64, shape, dtype=np.uint64, endpoint=False) << np.uint64(fmt.bits)
    else:
        found = x
    return found.astype(fmt.code_dtype)


def operand(r: np.random.Generator, fmt: fs.FloatFormat, shape: tuple[int, ...]) -> fs.FloatArray:
    x = fs.FloatArray(codes(r, fmt, shape), fmt)
    return x


# -- descriptions ------------------------------------------------------------------------------------------------------


def roundings(r: np.random.Generator) -> dict[str, Any]:
    """The call's keywords."""
    found: dict[str, Any] = {}
    if r.random() < 0.6:
        found["rounding"] = list(fs.Rounding)[r.integers(len(fs.Rounding))]
        found["seed"] = int(r.integers(1 << 63))
        found["random_bits"] = int(r.choice([1, 9, 24, 32, 33, 64]))
    if r.random() < 0.3:
        found["overflow"] = list(fs.Overflow)[r.integers(len(fs.Overflow))]
    for name in ("ftz", "daz"):
        if r.random() < 0.15:
            found[name] = True
    return found


def leaf(r: np.random.Generator, formats: Callable[[], fs.FloatFormat], exact: bool = True) -> fs.Accumulation:
    fmt = formats()
    more = {} if r.random() < 0.5 else {"product": [None, formats()][r.integers(2)]}
    kind = int(r.integers(6))
    if kind == 0 and exact:
        return fs.Exact(fmt)
    if kind == 1:
        return fs.Pairwise(fmt, str(r.choice(["adjacent", "halving", "numpy"])), **more)
    if kind == 2:
        return fs.Kahan(fmt, **more)
    if kind == 3:
        return fs.Neumaier(fmt, **more)
    if kind == 4:
        return fs.Sequential(fmt, fused=True)
    return fs.Sequential(fmt, **more)


def description(r: np.random.Generator, formats: Callable[[], fs.FloatFormat]) -> fs.Accumulation:
    kind, parts = int(r.integers(8)), int(r.choice([1, 2, 3, 7, 8, 16, 31, 64, 200]))
    if kind == 0:
        return fs.Blocked(leaf(r, formats), parts, leaf(r, formats))
    if kind == 1:
        return fs.SplitK(parts, leaf(r, formats), leaf(r, formats))
    if kind == 2:
        return fs.Strided(leaf(r, formats), parts, [None, leaf(r, formats)][r.integers(2)])
    return leaf(r, formats)


LENGTHS = (0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 65, 127, 128, 129, 255, 257, 511, 513, 600, 1025, 4097)


def shape_of(r: np.random.Generator, most: int = 60_000) -> tuple[int, int, int]:
    """(M, K, N), at most so many products."""
    while True:
        m, k, n = (int(x) for x in r.choice(LENGTHS, 3))
        if r.random() < 0.4:
            m = int(r.integers(0, 3))
        if r.random() < 0.3:
            n = int(r.integers(0, 3))
        if m * k * n <= most and m * n <= 4100:
            return m, k, n


# -- calls -------------------------------------------------------------------------------------------------------------


def _formats(r: np.random.Generator) -> Callable[[], fs.FloatFormat]:
    """Formats of one call: often few, that fast kernels take."""
    some = [any_format(r) for _ in range(3)]
    return lambda: some[r.integers(3)]


def matmul(r: np.random.Generator) -> Any:
    formats = _formats(r)
    m, k, n = shape_of(r)
    batch = () if r.random() < 0.7 else (int(r.integers(0, 3)),)
    a, b = operand(r, formats(), (*batch, m, k)), operand(r, formats(), (*batch, k, n))
    if r.random() < 0.3:
        b = fs.FloatArray(np.swapaxes(np.swapaxes(b.codes, -1, -2).copy(), -1, -2), b.format)
    keywords = roundings(r)
    if r.random() < 0.3:
        keywords["c"] = operand(r, formats(), (*batch, m, n))
        if r.random() < 0.3:
            keywords["alpha"], keywords["beta"] = 2.0, -0.5
    accumulation = description(r, formats)
    return f"matmul {(*batch, m, k, n)} {a.format} {b.format} {accumulation!r} {keywords}", lambda: fs.matmul(
        a, b, accumulate=accumulation, **keywords
    )


def tensorcore(r: np.random.Generator) -> Any:
    rows = [(arch, row) for arch in ARCHITECTURES.values() for row in arch.instructions]
    arch, row = rows[r.integers(len(rows))]
    pairs = [(x, y) for x in row.inputs for y in row.inputs if row.takes(x, y)]
    fa, fb = pairs[r.integers(len(pairs))]
    m, k, n = shape_of(r, 20_000)
    a, b = operand(r, fa, (m, k)), operand(r, fb, (k, n))
    accumulation: Any = fs.TensorCore(arch.name, row.name, row.output)
    if r.random() < 0.4:
        accumulation = [
            fs.Blocked(accumulation, int(r.choice([1, 16, 40, 128])), "fp32"),
            fs.SplitK(3, accumulation, "fp32"),
        ][r.integers(2)]
    keywords: dict[str, Any] = {"accumulate": accumulation}
    if r.random() < 0.5:
        keywords["c"] = operand(r, row.output, (m, n))
    if row.scales and r.random() < 0.9:
        scales = row.scales[r.integers(len(row.scales))]
        parts = -(-k // scales.every)
        keywords["scale_a"] = operand(r, scales.format, (m, parts))
        keywords["scale_b"] = operand(r, scales.format, (parts, n))
    return f"{arch.name} {row.name} {fa} {fb} {(m, k, n)} {accumulation!r}", lambda: fs.matmul(a, b, **keywords)


def sums(r: np.random.Generator) -> Any:
    formats = _formats(r)
    shape = tuple(int(x) for x in r.choice(LENGTHS[:-1], int(r.integers(1, 3))))
    while np.prod(shape, dtype=np.int64) > 60_000:
        shape = shape[:-1] if len(shape) > 1 else (600,)
    x = operand(r, formats(), shape)
    axis = [None, 0, len(shape) - 1][r.integers(3)]
    keywords = roundings(r)
    accumulation = description(r, formats)
    name = str(r.choice(["sum", "sum", "mean", "norm", "var", "prod", "cumsum", "dot", "vdot"]))
    if name in ("cumsum", "prod"):
        accumulation = fs.Sequential(formats())
        if name == "prod" and r.random() < 0.5:
            accumulation = fs.Pairwise(formats(), str(r.choice(["adjacent", "halving", "numpy"])))
        if name == "cumsum" and r.random() < 0.5:
            accumulation = [fs.Kahan, fs.Neumaier][r.integers(2)](formats())
        axis = axis if name == "prod" else 0
    keywords["accumulate"] = accumulation
    label = f"{name} {shape} axis {axis} {x.format} {accumulation!r} {keywords}"
    if name in ("dot", "vdot"):
        x = operand(r, x.format, shape[:1])
        y = operand(r, formats(), shape[:1])
        return f"{label} {y.format}", lambda: getattr(fs, name)(x, y, **keywords)
    if name == "sum" and r.random() < 0.2:
        keywords["initial"] = 1.0
    if name in ("sum", "mean") and r.random() < 0.2:
        keywords["where"] = r.random(shape) < 0.7
    return label, lambda: getattr(fs, name)(x, axis=axis, **keywords)


ARITY = {
    "add": 2, "subtract": 2, "multiply": 2, "divide": 2, "sqrt": 1, "fma": 3, "remainder": 2, "fmod": 2, "minimum": 2,
    "maximum_number": 2, "rint": 1, "floor": 1, "equal": 2, "less": 2, "next_up": 1, "logb": 1, "classify": 1,
    "total_order": 2, "ulp_distance": 2, "negative": 1,
}  # fmt: skip
_SAME_FORMAT = ("total_order", "ulp_distance")
_BARE = ("classify", "total_order", "ulp_distance", "negative")


def elements(r: np.random.Generator) -> Any:
    formats = _formats(r)
    n, keywords = int(r.choice(LENGTHS)), roundings(r)
    x = operand(r, formats(), (n,))
    name = str(r.choice([*ARITY, "convert", "quantize", "decode", "to_integer", "from_integer", "scalb", "encode"]))
    label = f"{name} {n} {x.format} {keywords}"
    if name in ARITY:
        fmt = formats()
        others = [operand(r, x.format if name in _SAME_FORMAT else formats(), (n,)) for _ in range(ARITY[name] - 1)]
        if name in ("add", "subtract", "multiply", "divide", "sqrt", "fma", "remainder", "fmod") and r.random() < 0.7:
            keywords["format"] = fmt
        else:
            others = [operand(r, x.format, (n,)) for _ in others]
        if name in _BARE:
            keywords = {}
        return f"{label} {[str(o.format) for o in others]}", lambda: getattr(fs, name)(x, *others, **keywords)
    if name == "convert":
        return label, lambda: fs.convert(x, formats(), **keywords)
    if name == "decode":
        return label, lambda: fs.decode(x)
    if name == "to_integer":
        kind = r.choice(["i1", "u1", "i4", "u4", "i8", "u8"])
        return label, lambda: fs.to_integer(x, np.dtype(kind), **keywords)
    if name == "from_integer":
        whole = r.integers(-(1 << 63), 1 << 63, n)
        return label, lambda: fs.from_integer(whole, x.format, **keywords)
    if name == "scalb":
        steps = r.integers(-(1 << 40), 1 << 40, n) >> r.integers(0, 40, n)
        return label, lambda: fs.scalb(x, steps, **keywords)
    values = r.standard_normal(n) * np.exp2(r.integers(-1000, 1000, n))
    if name == "quantize" and r.random() < 0.5:
        with np.errstate(over="ignore"):
            values = values.astype(np.float32)
    return label, lambda: getattr(fs, name)(values, x.format, **keywords)


GROUPS = {"matmul": matmul, "tensorcore": tensorcore, "sums": sums, "elements": elements}


# -- in the checked process --------------------------------------------------------------------------------------------


def calls(group: str, seed: int, count: int = CALLS) -> tuple[int, int, list[str]]:
    """(calls made, violations, examples of them). A call that the arguments do not allow is not counted."""
    r = np.random.default_rng([seed, list(GROUPS).index(group)])
    made, found = 0, []
    while made < count:
        label, call = GROUPS[group](r)
        records = r.random() < 0.3
        try:
            with np.errstate(all="ignore"):
                if records:
                    with fs.record(where=bool(r.random() < 0.5)):
                        call()
                else:
                    call()
        except IndexError as error:
            found.append(f"{label}{', recorded' if records else ''}: {error}")
        except (TypeError, ValueError):
            continue
        made += 1
    return made, len(found), found[:EXAMPLES]


def in_checked_process(group: str, seed: int) -> tuple[int, int, list[str]]:
    """`calls` in a new process with FLOATSIM_CHECKED=1."""
    command = [sys.executable, "-m", "tests.exhaustive.checked", group, str(seed)]
    paths = [str(ROOT), str(ROOT / "kernels"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "FLOATSIM_CHECKED": "1", "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        return 1, 1, [f"{group} {seed}: exit code {done.returncode}: {done.stderr[-500:]}"]
    made, wrong, examples = json.loads(done.stdout.splitlines()[-1])
    return made, wrong, examples


if __name__ == "__main__":
    print(json.dumps(calls(sys.argv[1], int(sys.argv[2]))))
