"""The search for wrong fast paths: sums whose formats and terms lie at the edges of the fast paths' hypotheses.

A case is one public call: a matmul, a dot, a sum or a cumsum. Its formats come from a theme, one for each theorem
that a fast path relies on: precision, range, bias and special values lie one step on either side of the bound.
Its terms are ties, cancellations, ends of the range, midpoints of subnormals, zeros, special values and random codes.

Every element of every result is compared with tests/oracles/sums.py, which shares no code with floatsim. The call runs
once without records, once recorded, and once with every kernel that accepts it (`every_candidate`).
"""

from __future__ import annotations

import dataclasses
import functools
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from oracles import sums as oracle

import floatsim as fs
from floatsim.accumulation import fitted
from floatsim.emulator.dispatch.candidates import CANDIDATES, only
from floatsim.emulator.dispatch.kernel import Case as Planned
from floatsim.emulator.planning import processor
from floatsim.emulator.sums.plan import Plan, plan
from floatsim.formats.rounding import RoundingAttributes
from floatsim.formats.value_sets import TermRange

Outcome = tuple[int, int, list[str]]

CASES = 48
"""Calls in a chunk."""

MODES = ("TIES_TO_EVEN", "TIES_TO_AWAY", "TOWARD_ZERO", "TOWARD_POSITIVE", "TOWARD_NEGATIVE", "TO_ODD")
NEAREST, DIRECTED = MODES[:2], MODES[2:5]
POLICIES = ("INFINITY", "SATURATE_FINITE", "SATURATE_PROPAGATE")
SPECIALS = ("ieee", "fn", "fnuz", "finite", "extended")
LEAVES = ("sequential", "fused", "pairwise", "kahan", "neumaier", "exact")
CARRIERS = {24: (127, -149), 53: (1023, -1074)}
"""The precision of a hardware float: its largest exponent, and log2 of its least subnormal number."""


class Draw:
    """Random choices of one case."""

    def __init__(self, *seed: int | str) -> None:
        self.random = random.Random("/".join(map(str, seed))).random
        self.rng = np.random.default_rng([int(self.random() * 2**32) for _ in range(3)])

    def one(self, choices: Any) -> Any:
        return choices[int(self.random() * len(choices))]

    def integer(self, low: int, high: int) -> int:
        """Of low to high, both included."""
        return low + int(self.random() * (high - low + 1))

    def chance(self, share: float) -> bool:
        return self.random() < share

    def sign(self) -> int:
        return -1 if self.chance(0.5) else 1


# -- formats -----------------------------------------------------------------------------------------------------------


@functools.cache
def _format(w: int, t: int, specials: str, bias: int | None) -> fs.FloatFormat | None:
    """The format, or None where the parameters make none."""
    shown = "None" if bias is None else bias
    try:
        return fs.FloatFormat(f"e{w}m{t}-{specials}-{shown}", w, t, specials, bias)
    except ValueError:
        return None


def at_top(w: int, t: int, specials: str, emax: int) -> fs.FloatFormat | None:
    """The format with this largest exponent."""
    whole = specials in ("fnuz", "finite") or (specials in ("fn", "extended") and t > 0)
    return _format(w, t, specials, (1 << w) - (1 if whole else 2) - emax)


def at_bottom(w: int, t: int, specials: str, quantum: int) -> fs.FloatFormat | None:
    """The format whose least subnormal is 2**quantum."""
    return _format(w, t, specials, 1 - t - quantum)


def custom(d: Draw, precisions: Any, widths: Any = tuple(range(2, 12)), carrier: int | None = None,
           specials: Any = SPECIALS) -> fs.FloatFormat:  # fmt: skip
    """A format with one of these precisions; its range ends near the carrier's, or anywhere."""
    carrier = carrier or d.one((24, 53))
    top, bottom = CARRIERS[carrier]
    while True:
        w, t, kind = d.one(widths), d.one(precisions) - 1, d.one(specials)
        where = d.integer(0, 6)
        if where == 0:
            found = at_top(w, t, kind, top + d.integer(-2, 2))
        elif where == 1:
            found = at_bottom(w, t, kind, bottom + d.integer(-2, 2))
        elif where == 2:
            found = _format(w, t, kind, 1 - (bottom + carrier - 1 + d.integer(-3, 2)))  # emin near the carrier's
        elif where == 3:
            found = _format(w, t, kind, (1 << (w - 1)) + d.integer(-3, 3))
        else:
            found = _format(w, t, kind, None)
        if found is not None and not (w >= 10 and d.chance(0.5)):
            return found


NARROW = (fs.E4M3, fs.E5M2, fs.E4M3FNUZ, fs.E5M2FNUZ, fs.E4M3B11FNUZ, fs.E4M3IEEE, fs.E3M4, fs.E3M2, fs.E2M3, fs.E2M1)
WIDER = (fs.FP16, fs.BF16, fs.TF32, fs.FP32)


def p3109(d: Draw, signed: bool = True) -> fs.FloatFormat:
    """A format of the draft P3109, extended or finite."""
    while True:
        width = d.one((3, 4, 5, 6, 7, 8, 8, 8, d.integer(9, 16), d.integer(17, 32)))
        precision = d.integer(max(1, width - 10), width - signed)
        try:
            return fs.p3109(width, precision, signed=signed, extended=d.chance(0.5))
        except ValueError:  # values that are no float64 values
            continue


def operand(d: Draw) -> fs.FloatFormat:
    """A format of elements."""
    which = d.integer(0, 10)
    if which == 10:
        return p3109(d)
    if which < 4:
        return d.one(NARROW)
    if which < 7:
        return d.one(WIDER)
    if which == 7:
        return custom(d, (1, 2, 3, 4, 5, 6), (2, 3, 4, 5))
    if which == 8:
        return custom(d, range(1, 13), (5, 6, 7, 8))
    return custom(d, (11, 12, 13, 22, 23, 24, 25), (5, 7, 8, 9)) if d.chance(0.9) else fs.FP64


def pair_of_precisions(d: Draw, total: int) -> tuple[int, int]:
    """Two precisions of the given sum."""
    first = d.integer(max(1, total - 53), min(53, total - 1))
    if d.chance(0.6):
        first = total // 2
    return first, total - first


# -- a case ------------------------------------------------------------------------------------------------------------


@dataclass
class Setting:
    """What a theme asks for: formats, and lists to draw from."""

    a: fs.FloatFormat
    b: fs.FloatFormat
    accumulator: fs.FloatFormat
    product: Any = "same"
    modes: Any = MODES
    leaves: Any = LEAVES
    operations: Any = ("matmul", "matmul", "matmul", "sum", "sum", "dot", "cumsum")
    composites: float = 0.2
    unit: str = ""
    """A matrix unit, for descriptions of the parts of GPU kernels."""
    orders: bool = False
    """Whether every description has a reordering, a list of lengths, a rule or a tree of its own."""
    flush: float = 0.12
    policies: float = 0.2
    specials: float = 0.06
    scalars: float = 0.08
    long: float = 0.02
    patterns: Any = None
    events: tuple[str, ...] | None = None


@dataclass
class Case:
    """One call. `codes` holds the operands by name: a, b and c, or x, initial and the mask `where`."""

    operation: str
    codes: dict[str, np.ndarray]
    formats: dict[str, fs.FloatFormat]
    accumulation: fs.accumulation.Accumulation
    keywords: dict[str, Any]
    axis: int | tuple[int, ...] | None = None
    events: tuple[str, ...] | None = None
    at: str = ""
    expected: np.ndarray = field(default_factory=lambda: np.zeros(0, np.uint64))

    def call(self) -> np.ndarray:
        """The codes that floatsim returns."""
        x = {name: fs.from_codes(self.codes[name], fmt) for name, fmt in self.formats.items()}
        keywords = {"accumulate": self.accumulation, **self.keywords}
        if self.operation in ("matmul", "dot"):
            result = getattr(fs, self.operation)(x["a"], x["b"], x.get("c"), **keywords)
        elif self.operation == "sum":
            where = self.codes.get("where")
            result = fs.sum(x["x"], self.axis, where=where, initial=x.get("initial"), **keywords)
        else:
            result = fs.cumsum(x["x"], self.axis, **keywords)
        return _codes(result, self.result_format)

    @property
    def result_format(self) -> fs.FloatFormat:
        return self.keywords.get("format") or self.accumulation.result_format


def _codes(result: Any, fmt: fs.FloatFormat) -> np.ndarray:
    if isinstance(result, fs.FloatArray):
        assert result.format == fmt
        return result.codes
    return np.asarray(result).view(fmt.code_dtype)


# -- what a case should give -------------------------------------------------------------------------------------------


def expected(case: Case) -> np.ndarray:
    """The result's codes by the oracle."""
    k = case.keywords
    call_style = [fs.Rounding[k.get("rounding", "TIES_TO_EVEN")], bool(k.get("ftz")), bool(k.get("daz")),
                  k.get("tininess") == "before"]  # fmt: skip
    factors = [case.formats[name] for name in "ab" if name in case.formats]
    rounding = fs.Rounding[k["result_rounding"]] if "result_rounding" in k else call_style[0]
    result_style = oracle.style_of(rounding, fs.Overflow[k.get("overflow", "INFINITY")], *call_style[1:])
    call = oracle.Call(oracle.description_of(case.accumulation, *call_style, factors),
                       oracle.format_of(case.result_format), result_style,
                       k.get("alpha", 1.0), k.get("beta", 1.0))  # fmt: skip
    formats = {name: oracle.format_of(fmt) for name, fmt in case.formats.items()}
    if case.operation in ("matmul", "dot"):
        return _expected_product(case, call, formats)
    x = case.codes["x"]
    if case.operation == "sum":
        terms, kept = (_terms(y, case.axis) for y in (x, case.codes.get("where", np.ones(x.shape, bool))))
        shape = () if case.axis is None else terms.shape[:-1]
        initial = case.codes.get("initial")
        flat = None if initial is None else np.broadcast_to(initial, shape).ravel().tolist()
        rows = [row[mask].tolist() for row, mask in zip(_flat(terms), _flat(kept), strict=True)]
        return np.array(oracle.sums(call, rows, formats["x"], flat, formats.get("initial")), np.uint64).reshape(shape)
    rows = x.reshape(1, -1) if case.axis is None else np.moveaxis(x, case.axis, -1)
    found = [oracle.running_sums(call, row.tolist(), formats["x"]) for row in _flat(rows)]
    sums = np.array(found, np.uint64).reshape(rows.shape)
    return sums.ravel() if case.axis is None else np.moveaxis(sums, -1, case.axis)


def _terms(x: np.ndarray, axis: int | tuple[int, ...] | None) -> np.ndarray:
    """The terms of each result along the last axis."""
    if axis is None:
        return x.reshape(1, -1)
    axes = axis if isinstance(axis, tuple) else (axis,)
    moved = np.moveaxis(x, axes, range(-len(axes), 0))
    return moved.reshape(*moved.shape[: x.ndim - len(axes)], int(np.prod(moved.shape[x.ndim - len(axes) :], dtype=int)))


def _flat(rows: np.ndarray) -> np.ndarray:
    """All rows as a matrix."""
    return rows.reshape(int(np.prod(rows.shape[:-1], dtype=int)), rows.shape[-1])


def _expected_product(case: Case, call: oracle.Call, formats: dict[str, oracle.Format]) -> np.ndarray:
    a, b, c = case.codes["a"], case.codes["b"], case.codes.get("c")
    left, right = np.atleast_2d(a), b[:, None] if b.ndim == 1 else b
    batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    count = int(np.prod(batch, dtype=int))
    left = np.broadcast_to(left, (*batch, *left.shape[-2:])).reshape(count, *left.shape[-2:])
    right = np.broadcast_to(right, (*batch, *right.shape[-2:])).reshape(count, *right.shape[-2:])
    shape = (*batch, left.shape[-2], right.shape[-1])
    final = (*batch, *((left.shape[-2],) if a.ndim > 1 else ()), *((right.shape[-1],) if b.ndim > 1 else ()))
    start = None if c is None else np.broadcast_to(c, final).reshape(count, *shape[-2:])
    found = [
        oracle.matmul(call, x.tolist(), y.T.tolist(), formats["a"], formats["b"],
                      None if start is None else start[i].tolist(), formats.get("c"))
        for i, (x, y) in enumerate(zip(left, right, strict=True))
    ]  # fmt: skip
    return np.array(found, np.uint64).reshape(final)


# -- terms -------------------------------------------------------------------------------------------------------------

Value = tuple[int, int]  # m * 2**e


def code_of(fmt: fs.FloatFormat, value: Value) -> int:
    """The code of the number of the format next to a value, toward zero, at most the largest."""
    m, e = value
    magnitude, quantum = abs(m), fmt.emin - fmt.trailing_bits
    units = magnitude << (e - quantum) if e >= quantum else magnitude >> (quantum - e)
    extra = max(0, units.bit_length() - fmt.precision)
    code = min((extra << fmt.trailing_bits) + (units >> extra), fmt.max_code)
    return code | fmt.sign_mask if m < 0 and (code or fmt.has_signed_zero) else code


def _significand(d: Draw, p: int) -> int:
    """An integer of p bits."""
    low, high = 1 << (p - 1), (1 << p) - 1
    kind = d.integer(0, 4)
    if kind == 0:
        return high - d.integer(0, min(2, p - 1))
    if kind == 1:
        return min(high, low + d.integer(0, 3))
    if kind == 2 and p > 2:
        return low | 1 << d.integer(0, p - 2) | 1
    return low | d.integer(0, low - 1)


def _exponent(d: Draw, fmt: fs.FloatFormat) -> int:
    """Of the largest term of a row: near the ends of a range, near 0, or anywhere."""
    kind = d.integer(0, 9)
    if kind < 2:
        return fmt.emax + d.integer(-2, 1)
    if kind < 4:
        return fmt.emin + d.integer(-fmt.trailing_bits - 2, 2)
    if kind == 4:
        return d.one((127, 126, 128, -126, -127, -149, -148, -150, -125))
    if kind == 5:
        return d.integer(fmt.emin - 2, fmt.emax)
    middle = min(max(0, fmt.emin), fmt.emax)
    return middle + d.integer(-3, 3)


def _values(d: Draw, fmt: fs.FloatFormat, pattern: str, k: int) -> list[Value]:
    """k terms, hard for sums that are rounded to the format."""
    p, quantum = fmt.precision, fmt.emin - fmt.trailing_bits
    e = _exponent(d, fmt)
    u = max(e - p + 1, quantum)  # an ulp is 2**u
    x, s = _significand(d, p), d.sign()
    deep = d.one((1, 2, 3, p - 1, p, p + 1, 24, 25, 53, 54, 60, 100)) + 1
    small = (d.sign() * d.one((1, 1, 3)), u - max(2, deep))
    half = (d.sign() * d.one((1, 1, 1, 3)), u - 1)
    big = (s * x, u)
    if pattern == "tie":
        return [big, half, small]
    if pattern == "two ties":
        return [big, half, (-half[0], half[1]), small, half]
    if pattern == "early":
        return [small, big, half]
    if pattern == "near tie":
        n = d.integer(2, max(2, p))
        return [big, (d.sign() * ((1 << n) + d.one((-1, 1))), u - 1 - n)]
    if pattern == "cancel":
        return [big, (-s * (x + d.one((-1, 0, 0, 1))), u), small, half]
    if pattern == "top":
        most = (s * ((1 << p) - 1), fmt.emax - p + 1)
        return [most, (s * d.one((1, 1, 2, 3)), fmt.emax - p), (d.sign() * 1, fmt.emax - p - deep), (-most[0], most[1])]
    if pattern == "bottom":
        middle = (s * (2 * d.integer(0, 9) + 1), quantum - 1)
        return [middle, (d.sign(), quantum - 1 - deep), (d.sign() * d.integer(1, 5), quantum)]
    if pattern == "beyond":
        top, bottom = CARRIERS[d.one((24, 53))]
        return [(s, top + d.integer(-1, 1)), big, (d.sign(), bottom + d.integer(-2, 2))]
    if pattern == "walk":
        return [(d.sign() * _significand(d, p), u + d.integer(-p - 2, 2)) for _ in range(k)]
    return [(d.sign() * d.integer(0, 1), u) for _ in range(k)]  # "few": zeros of either sign


PATTERNS = ("tie", "tie", "two ties", "early", "near tie", "cancel", "top", "bottom", "beyond", "walk", "few")


def _random_codes(d: Draw, fmt: fs.FloatFormat, size: Any) -> np.ndarray:
    codes = d.rng.integers(0, 1 << 63, size, np.uint64) << np.uint64(1) | d.rng.integers(0, 2, size, np.uint64)
    return codes & np.uint64((1 << fmt.bits) - 1)


@functools.cache
def special_codes(fmt: fs.FloatFormat) -> np.ndarray:
    """Zeros, ends of the ranges, infinities and NaNs."""
    least_normal = 1 << fmt.trailing_bits
    found = [0, 1, least_normal - 1, least_normal, fmt.max_code, fmt.max_code - 1, fmt.magnitude_mask]
    found += [code for code in (fmt.infinity_code, fmt.canonical_nan) if code is not None]
    return np.array([code ^ sign for code in found for sign in (0, fmt.sign_mask)], np.uint64)


def _rows(d: Draw, setting: Setting, fmt: fs.FloatFormat, rows: int, k: int, scale: int) -> np.ndarray:
    """Rows of k codes of the format; the terms are 2**scale times as large."""
    codes = np.zeros((rows, k), np.uint64)
    targets = [setting.accumulator, setting.accumulator, fmt]
    if isinstance(setting.product, fs.FloatFormat):
        targets.append(setting.product)
    for row in codes:
        if d.chance(0.12):
            row[:] = _random_codes(d, fmt, k)
            continue
        values = _values(d, d.one(targets), d.one(setting.patterns or PATTERNS), k)[:k]
        shift = d.one((0, 0, 0, scale)) if d.chance(0.1) else scale
        terms = [code_of(fmt, (m, e - shift)) for m, e in values]
        terms += [0 if d.chance(0.7) else d.integer(0, (1 << fmt.bits) - 1) for _ in range(k - len(terms))]
        if d.chance(0.3):
            terms.sort(key=lambda _: d.random())
        row[:] = terms
    _spoil(d, setting, fmt, codes)
    return codes


def _spoil(d: Draw, setting: Setting, fmt: fs.FloatFormat, codes: np.ndarray) -> None:
    """Put special values into some places."""
    at = d.rng.random(codes.shape) < setting.specials / max(1, codes.shape[-1] ** 0.5)
    codes[at] = d.rng.choice(special_codes(fmt), int(at.sum()))


def _columns(d: Draw, setting: Setting, fmt: fs.FloatFormat, k: int, columns: int, scale: int) -> np.ndarray:
    """(k, columns): mostly powers of two near 2**scale with signs, so that products keep the terms' patterns."""
    codes = np.zeros((k, columns), np.uint64)
    for j in range(columns):
        kind = d.integer(0, 9)
        if kind == 0:
            codes[:, j] = _random_codes(d, fmt, k)
        elif kind == 1:
            codes[:, j] = [code_of(fmt, (d.sign() * _significand(d, fmt.precision), scale - fmt.trailing_bits))
                           for _ in range(k)]  # fmt: skip
        elif kind == 2:
            codes[:, j] = code_of(fmt, (d.sign() * _significand(d, fmt.precision), scale - fmt.trailing_bits))
        elif kind == 3:
            codes[:, j] = code_of(fmt, (d.sign(), scale + d.integer(-3, 3)))
        elif kind == 4:
            codes[:, j] = [code_of(fmt, (d.sign(), scale)) for _ in range(k)]
        else:
            codes[:, j] = code_of(fmt, (1, scale))
    _spoil(d, replace(setting, specials=setting.specials / 2), fmt, codes)
    return codes


# -- descriptions ------------------------------------------------------------------------------------------------------


def _leaf(d: Draw, setting: Setting, fmt: fs.FloatFormat, kinds: Any, product: Any) -> fs.accumulation.Accumulation:
    kind, keywords = d.one(kinds), {}
    if d.chance(0.15):
        keywords["rounding"] = d.one(setting.modes)
    if d.chance(setting.flush):
        keywords[d.one(("ftz", "daz"))] = d.chance(0.8)
    if d.chance(setting.policies):
        keywords["overflow"] = d.one(POLICIES)
    if kind == "exact":
        return fs.Exact(fmt, **keywords)
    if kind == "fused":
        return fs.Sequential(fmt, fused=True, **keywords)
    if not (isinstance(product, str) and product == "same"):
        keywords["product"] = product
    if product is not None and d.chance(0.12):
        keywords["product_rounding"] = d.one(MODES)
    if kind == "pairwise":
        return fs.Pairwise(fmt, d.one(("adjacent", "halving", "numpy")), **keywords)
    return {"sequential": fs.Sequential, "kahan": fs.Kahan, "neumaier": fs.Neumaier}[kind](fmt, **keywords)


def _permuted(d: Draw, inner: Any, k: int) -> fs.accumulation.Accumulation:
    kind = d.integer(0, 5)
    if kind == 0:
        n = d.integer(1, max(1, k + 2))
        return fs.Permuted(sorted(range(n), key=lambda _: d.random()), inner)
    conv = f"conv-{d.integer(1, 3)}x{d.integer(1, 2)}x{d.integer(1, 3)}{d.one(('', '-descending'))}"
    backwards = f"backwards-{d.integer(1, 4)}x{d.integer(1, 4)}"
    names = ("swapped", "reversed", f"strided-{d.integer(1, 5)}", backwards, conv)
    return fs.Permuted(d.one(names), inner)


def _tree(d: Draw, terms: int) -> Any:
    """A random tree; long ones lean to one side."""
    nodes: list[Any] = list(range(max(1, terms)))
    side = d.chance(0.3)
    while len(nodes) > 1:
        i = d.integer(0, len(nodes) - 1)
        x = nodes.pop(i)
        j = len(nodes) - 1 if side else d.integer(0, len(nodes) - 1)
        nodes.append((x, nodes.pop(j)))
    return nodes[0]


def _lengths(d: Draw, k: int) -> list[int]:
    """Lengths that add up to k, at least one."""
    if k == 0:
        return [d.integer(1, 9)]
    found = []
    while k:
        found.append(d.integer(1, k if d.chance(0.3) else min(k, 4)))
        k -= found[-1]
    return found


def _converted(d: Draw, setting: Setting, inner: Any) -> fs.accumulation.Accumulation:
    fmt = d.one((fs.FP16, fs.BF16, fs.TF32, fs.FP32, fs.E4M3, setting.accumulator, operand(d)))
    if fmt.is_scale:
        fmt = fs.TF32
    return fs.Converted(fmt, inner, d.one((MODES[0], MODES[0], *MODES)))


def _ordered(d: Draw, setting: Setting, k: int) -> fs.accumulation.Accumulation:
    """A description with an order of its own: reordered, of listed or ruled lengths, or a tree; or converted terms."""
    found = _ordered_terms(d, setting, k)
    return _converted(d, setting, found) if d.chance(0.15) else found


def _ordered_terms(d: Draw, setting: Setting, k: int) -> fs.accumulation.Accumulation:
    inner = _leaf(d, setting, setting.accumulator, setting.leaves, setting.product)
    outer_format = d.one((setting.accumulator, fs.FP32, fs.FP64, fs.BF16))
    outer = _leaf(d, setting, outer_format, LEAVES, "same")
    if d.chance(0.3):
        inner = _permuted(d, inner, k)
    if d.chance(0.2):
        outer = _permuted(d, outer, k)
    if d.chance(0.2):
        outer = _converted(d, setting, outer)
    count, tile, kind = d.integer(1, 8), d.integer(1, 5), d.integer(0, 7)
    if kind == 0:
        return _permuted(d, fs.Strided(inner, count, outer) if d.chance(0.5) else inner, k)
    if kind == 1:
        return fs.Blocked(inner, _lengths(d, k), outer)
    if kind == 2:
        return fs.Blocked(inner, count, outer, d.one(("equal", "halve")), tile)
    if kind == 3:
        through = outer_format if d.chance(0.2) else d.one((fs.FP16, fs.BF16, fs.E5M2))
        if d.chance(0.5) and through.precision <= outer_format.precision and outer_format in (fs.FP32, fs.FP64):
            outer = _leaf(d, setting, outer_format, ("sequential",), "same")
            return fs.SplitK(count, inner, outer, tile, through=through)
        return fs.SplitK(count, inner, outer, tile, d.one(("serial", "parallel", "universal", "dealt", "dealt")))
    if kind == 4:
        leaf = _leaf(d, setting, setting.accumulator, ("pairwise",), setting.product)
        fields = {f.name: getattr(leaf, f.name) for f in dataclasses.fields(leaf)}
        return fs.Tree(**{**fields, "tree": _tree(d, k)})
    if kind == 5:
        lanes = fs.Tree(outer_format, _tree(d, min(count, k)))
        return fs.Strided(inner, count, lanes)
    lengths = _lengths(d, k)
    wide = fs.FP64 if setting.accumulator.precision <= 53 and setting.accumulator.exponent_bits <= 8 else None
    leaves_of = [_leaf(d, setting, setting.accumulator, setting.leaves, setting.product) for _ in lengths]
    leaves_of = [replace(leaf, daz=leaves_of[0].daz) for leaf in leaves_of]
    if wide is not None and setting.accumulator.specials is fs.Specials.IEEE:
        leaves_of = [replace(leaf, format=wide) if d.chance(0.4) else leaf for leaf in leaves_of]
    return fs.Parts(leaves_of, lengths, outer)


def fixed_length(accumulation: fs.accumulation.Accumulation) -> bool:
    """Whether a description is for one number of terms."""
    if isinstance(accumulation, fs.Tree | fs.Parts) or isinstance(getattr(accumulation, "every", None), tuple):
        return True
    return any(map(fixed_length, accumulation.children))


def _gpu_kernel(d: Draw, setting: Setting, k: int) -> fs.accumulation.Accumulation:
    """A description with parts of GPU kernels. The lengths of parts are next to K and to those of instructions."""
    kind, three = d.integer(0, 9), setting.a == fs.FP32
    bound = d.one((k, k // 2, 8, 16, 32))
    tile = max(1, bound + d.integer(-1, 1)) if d.chance(0.7) else d.integer(1, 9)
    unit = fs.as_accumulation(setting.unit)
    inner: Any = fs.Residue(unit, tile) if kind in (0, 1, 2, 3) else unit
    if three and kind in (0, 4, 5):
        inner = fs.Tf32x3(unit)
    outer = _leaf(d, setting, d.one((fs.FP32, fs.FP32, fs.FP16, fs.BF16, fs.FP64)), LEAVES, "same")
    if d.chance(0.25):
        outer = _converted(d, setting, outer)
    parts = d.integer(1, 5)
    found = inner
    if kind in (1, 5):
        found = fs.SplitK(parts, inner, outer, max(1, tile - d.integer(0, 1)), d.one(("serial", "dealt", "dealt")))
    elif kind in (2, 6):
        found = fs.Blocked(inner, tile, outer)
    elif kind == 7:
        found = fs.Strided(_leaf(d, setting, setting.accumulator, LEAVES, "same"), parts, outer)
    elif kind == 8:
        found = _leaf(d, setting, setting.accumulator, LEAVES, "same")
    elif kind == 9:
        found = _permuted(d, inner, k)
    if three and "tf32x3" not in str(found):
        found = fs.Converted(fs.TF32, found, d.one(MODES))
    if not d.chance(0.4):
        return found
    through = d.one((None, None, fs.FP16, fs.BF16, fs.E5M2))
    to = d.one((fs.FP32, fs.FP32, fs.FP16, fs.BF16, fs.FP64))
    return fs.Epilogue(found, to, d.one(("sum", "c")), through, d.one((None, "relu")))


def _description(d: Draw, setting: Setting, k: int, kinds: Any = None) -> fs.accumulation.Accumulation:
    if setting.unit:
        return _gpu_kernel(d, setting, k)
    if setting.orders:
        return _ordered(d, setting, k)
    kinds = kinds or setting.leaves
    inner = _leaf(d, setting, setting.accumulator, kinds, setting.product)
    if kinds is not setting.leaves or not d.chance(setting.composites):
        return inner
    outer_format = d.one((setting.accumulator, setting.accumulator, fs.FP32, fs.FP64, fs.BF16, fs.FP16))
    outer = _leaf(d, setting, outer_format, LEAVES, "same")
    count = d.one((1, 2, 3, 4, 7, 8)) if k < 40 else d.one((2, 4, 8, 32, 64))
    kind = d.integer(0, 2)
    if kind == 0:
        return fs.Strided(inner, count, outer if d.chance(0.6) else None)
    return fs.Blocked(inner, count, outer) if kind == 1 else fs.SplitK(count, inner, outer)


def _keywords(d: Draw, setting: Setting) -> dict[str, Any]:
    found: dict[str, Any] = {"rounding": d.one(setting.modes)}
    for name in ("ftz", "daz"):
        if d.chance(setting.flush):
            found[name] = True
    if d.chance(0.3):
        found["tininess"] = "before"
    if d.chance(setting.policies):
        found["overflow"] = d.one(POLICIES)
    if d.chance(0.25):
        found["format"] = d.one(
            (fs.FP32, fs.FP16, fs.BF16, fs.E4M3, setting.a, operand(d), fs.FP64, p3109(d, signed=d.chance(0.3)))
        )
        if d.chance(0.4):
            found["result_rounding"] = d.one(MODES)
    return found


def _length(d: Draw, setting: Setting) -> int:
    if d.chance(setting.long):
        return d.one((127, 128, 129, 255, 256, 257, 300, 511, 513, 600))
    return d.one((0, 1, 1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 5, 5, 6, 7, 8, 9, 12, 16, 17) if d.chance(0.9) else (20, 31, 33))


def _scale(d: Draw, setting: Setting) -> int:
    """log2 of the typical entry of b: what brings terms of a within the accumulator's range."""
    b = setting.b
    wanted = d.one((0, 0, setting.accumulator.emax - setting.a.emax, setting.accumulator.emin - setting.a.emin,
                    d.integer(b.emin - b.trailing_bits, b.emax)))  # fmt: skip
    return min(max(wanted, b.emin - b.trailing_bits), b.emax)


def _as(fmt: fs.FloatFormat, codes: np.ndarray) -> np.ndarray:
    return codes.astype(fmt.code_dtype)


def make(d: Draw, setting: Setting) -> Case:
    """A case of the setting."""
    operation, k = d.one(setting.operations), _length(d, setting)
    if operation == "cumsum":
        return _cumsum(d, setting, min(k, 40))
    options, keywords = _description(d, setting, k), _keywords(d, setting)
    if operation == "sum":
        return _sum(d, setting, k, options, keywords)
    few = max(1, min(24, 2400 // max(1, k)))
    scale = _scale(d, setting)
    rows = d.integer(1, few)
    columns = min(d.one((1, 3, 8, 15, 16, 17, 20, 33, 40)), max(1, 2 * few))
    batch = (d.integer(1, 3),) if d.chance(0.1) else ()
    a = _rows(d, setting, setting.a, rows * int(np.prod(batch, dtype=int)), k, scale).reshape(*batch, rows, k)
    b = _columns(d, setting, setting.b, k, columns, scale)
    if operation == "matmul" and k <= 8 and not batch and d.chance(0.01):  # more than one tile
        a, b = a[d.rng.integers(0, rows, d.integer(60, 150))], b[:, d.rng.integers(0, columns, d.integer(60, 150))]
    if operation == "dot":
        b = b[:, 0] if d.chance(0.7) else b
        if d.chance(0.2):
            a = a[(0,) * (a.ndim - 1)]
    formats = {"a": setting.a, "b": setting.b}
    codes = {"a": _as(setting.a, a), "b": _as(setting.b, b)}
    shape = (*a.shape[:-1], *b.shape[1:])
    if d.chance(0.3) or (d.chance(setting.scalars) and d.chance(0.7)):
        fmt = d.one((setting.accumulator, setting.accumulator, setting.a, fs.FP32))
        c = _rows(d, setting, fmt, 1, int(np.prod(shape, dtype=int)), 0)[0]
        c = np.where(d.rng.random(c.size) < 0.5, c, _rows(d, setting, fmt, c.size, 1, 0)[:, 0]).reshape(shape)
        if c.ndim and d.chance(0.2):  # the same in all rows, or in all columns
            c = c[..., :1] if d.chance(0.5) else c[:1] if c.ndim == 2 else c[0]
        formats["c"], codes["c"] = fmt, _as(fmt, c)
    if d.chance(setting.scalars):
        keywords["alpha"] = d.one((1.0, 2.0, -1.0, 0.5, 1.5, 0.1, 3.0, 0.0, -0.0))
        if "c" in codes:
            keywords["beta"] = d.one((1.0, 2.0, -1.0, 0.5, 0.1, 0.0, -0.0))
    return Case(operation, codes, formats, options, keywords, events=setting.events)


def _sum(d: Draw, setting: Setting, k: int, accumulation: Any, keywords: dict[str, Any]) -> Case:
    rows = d.integer(1, max(1, min(160, 8000 // max(1, k))))
    x = _rows(d, setting, setting.a, rows, k, 0)
    axis = d.one((-1, 0, 1, 1, (0, 2), None))
    if axis is None:
        x = x[0]
    elif axis == 0:
        x = x.T
    elif axis == 1 and d.chance(0.5):
        x = np.stack([x.T, x.T[:, ::-1]])
    elif axis == (0, 2):
        x = np.stack([x, x[::-1]])
    formats, codes = {"x": setting.a}, {"x": _as(setting.a, x)}
    terms = x.shape[axis] if isinstance(axis, int) else x.size if axis is None else x.shape[0] * x.shape[2]
    if fixed_length(accumulation) and terms != k:
        x, axis = x.reshape(-1)[:k], None
        codes["x"] = _as(setting.a, x)
    if d.chance(0.1) and not fixed_length(accumulation):
        codes["where"] = d.rng.random(x.shape) < d.one((0.2, 0.7))
    if d.chance(0.2):
        fmt = d.one((setting.accumulator, setting.a, fs.FP32))
        out = () if axis is None else tuple(np.delete(x.shape, axis))
        initial = _rows(d, setting, fmt, int(np.prod(out, dtype=int)), 1, 0).reshape(out)
        formats["initial"], codes["initial"] = fmt, _as(fmt, initial)
    return Case("sum", codes, formats, accumulation, keywords, axis, setting.events)


def _cumsum(d: Draw, setting: Setting, k: int) -> Case:
    kinds = [x for x in setting.leaves if x in ("sequential", "fused", "kahan", "neumaier")] or ["sequential"]
    accumulation = _description(d, setting, k, kinds)
    rows = d.integer(1, max(1, min(40, 800 // max(1, k * k))))
    x = _rows(d, setting, setting.a, rows, k, 0)
    axis = d.one((0, 1, -1, None))
    x = x.T if axis == 0 else x[0] if axis is None else x
    return Case(
        "cumsum", {"x": _as(setting.a, x)}, {"x": setting.a}, accumulation, _keywords(d, setting), axis, setting.events
    )


# -- themes ------------------------------------------------------------------------------------------------------------

Theme = Callable[[Draw], Setting]


def double_rounding_innocuous(d: Draw) -> Setting:
    """A carrier of 2p + 2 bits, ties: p of 11 and 25, one and two more."""
    p, carrier = d.one(((10, 24), (11, 24), (12, 24), (13, 24), (24, 53), (25, 53), (26, 53), (27, 53)))
    acc = custom(d, (p,), (4, 5, 6, 7, 8, 9) if carrier == 24 else (5, 7, 8, 9, 10, 11), carrier)
    acc = d.one((acc, acc, acc, fs.FP16, fs.BF16))
    own = d.chance(0.4)
    return Setting(acc if own else operand(d), acc if own else operand(d), acc, modes=NEAREST)


def directed_roundings_nest(d: Draw) -> Setting:
    """A directed rounding to more bits, then the same to fewer: any p up to the carrier's."""
    acc = custom(d, (3, 8, 11, 12, 13, 22, 23, 24, 25, 51, 52, 53))
    return Setting(operand(d), operand(d), acc, modes=DIRECTED)


def odd_rounding_suffices(d: Draw) -> Setting:
    """Round to odd with p + 2 bits, then to p: p of 20 to 24, 49 to 53, exact products."""
    acc = custom(d, (11, 12, 13, 20, 21, 22, 23, 24, 25, 49, 50, 51, 52, 53))
    a, b = (custom(d, (p,)) for p in pair_of_precisions(d, d.one((22, 24, 26, 48, 50, 51, 52, 53))))
    if d.chance(0.5):
        a, b = operand(d), operand(d)
    return Setting(a, b, acc, product=d.one((None, None, "same")))


def nearest_then_nearest(d: Draw) -> Setting:
    """float64 sums to nearest, then to the accumulator: p of 23 to 27 and 51 to 53."""
    acc = custom(d, (23, 24, 25, 26, 27, 51, 52, 53), carrier=53) if d.chance(0.8) else fs.FP32
    wide = d.chance(0.4)
    a = custom(d, (22, 24, 26, 27, 28), (8, 9, 10)) if wide else operand(d)
    return Setting(a, a if d.chance(0.5) else operand(d), acc, product=d.one(("same", None)), modes=NEAREST)


def veltkamp_rounds(d: Draw) -> Setting:
    """Rounding by a multiplication and two subtractions: overflow near the top, and subnormals."""
    acc = custom(d, (1, 2, 3, 4, 5, 8, 10, 11, 12, 13, 21, 22, 23), (4, 5, 6, 7, 8, 9), 24)
    own = d.chance(0.4)
    patterns = ("top", "top", "bottom", "bottom", "tie", "near tie", "beyond", "walk")
    return Setting(acc if own else operand(d), operand(d), acc, patterns=patterns)


def sum_is_exact(d: Draw) -> Setting:
    """Narrow terms whose sums need 24 or 53 bits, one less, one more."""
    a, b = custom(d, (1, 2, 3, 4), (2, 3, 4, 5)), custom(d, (1, 2, 3, 4), (2, 3, 4))
    acc = d.one((fs.FP32, fs.FP64, custom(d, (22, 23, 24, 25, 52, 53))))
    return Setting(d.one((a, d.one(NARROW))), d.one((b, d.one(NARROW))), acc, product=d.one(("same", None)))


def terms_in_format(d: Draw) -> Setting:
    """Products of pa + pb bits in accumulators of as many, one less, one more; ranges one step apart."""
    pa, pb = d.one(((4, 4), (3, 3), (8, 8), (11, 11), (3, 8), (12, 12), (11, 13), (1, 4), (24, 24)))
    a, b = custom(d, (pa,), (3, 4, 5, 6, 8)), custom(d, (pb,), (3, 4, 5, 6, 8))
    a, b = d.one(((a, b), (a, b), (fs.E4M3, fs.E5M2), (fs.FP16, fs.FP16), (fs.BF16, fs.BF16)))
    p = min(53, a.precision + b.precision + d.integer(-1, 1))
    bottom = a.emin - a.trailing_bits + b.emin - b.trailing_bits
    top = a.emax + b.emax
    acc = None
    for _ in range(20):  # there is none where the products leave float64's range
        t, kind, w = p - 1, d.one(SPECIALS), d.one((5, 6, 7, 8, 9, 10, 11))
        acc = d.one((at_bottom(w, t, kind, bottom + d.integer(-1, 1)), at_top(w, t, kind, top + d.integer(-1, 2))))
        if acc is not None:
            break
    acc = acc or custom(d, (p,))
    product: Any = "same"
    if d.chance(0.4):
        product, acc = acc, d.one((fs.FP32, fs.FP16, fs.BF16, fs.FP64, acc))
    return Setting(a, b, acc, product=product)


def products_exact_in_carrier(d: Draw) -> Setting:
    """Products of 23 to 25 and 52 to 54 bits, ranges at the ends of the carrier's."""
    total = d.one((23, 24, 25, 52, 53, 54))
    carrier = 24 if total < 30 else 53
    pa, pb = pair_of_precisions(d, total)
    top, bottom = CARRIERS[carrier]
    while True:
        a = custom(d, (pa,), (4, 5, 7, 8) if carrier == 24 else (7, 8, 9, 10))
        w, kind = d.one((3, 4, 5, 6, 7, 8) if carrier == 24 else (6, 7, 8, 9, 10)), d.one(SPECIALS)
        if d.chance(0.5):
            b = at_bottom(w, pb - 1, kind, bottom - (a.emin - a.trailing_bits) + d.integer(-1, 1))
        else:
            b = at_top(w, pb - 1, kind, top - a.emax + d.integer(-2, 1))
        b = d.one((b, _format(w, pb - 1, kind, None)))
        if b is not None:
            break
    acc = d.one((fs.FP32, fs.FP64, fs.FP16, fs.BF16, custom(d, (8, 11, 12, 23, 24, 25, 53))))
    product = d.one(("same", None, fs.FP32, custom(d, (min(53, total), min(53, total + 1)), (8, 9, 10, 11))))
    return Setting(a, b, acc, product=product, flush=0.06)


def exact_levels(d: Draw) -> Setting:
    """Exact sums of wide ranges: the number of levels at its maximum."""
    pa, pb = pair_of_precisions(d, d.one((2, 8, 16, 22, 24, 25, 46, 48, 52, 53, 54, 55, 64, 75, 106)))
    a, b = custom(d, (pa,)), custom(d, (pb,))
    if d.chance(0.4):
        a, b = d.one((fs.FP32, fs.FP16, fs.BF16, fs.TF32, fs.E5M2)), d.one((fs.FP32, fs.FP16, fs.BF16, fs.E4M3))
    acc = d.one((fs.FP32, fs.FP64, fs.FP16, operand(d), custom(d, (1, 8, 11, 24, 25, 53))))
    return Setting(a, b, acc, leaves=("exact",), operations=("matmul", "matmul", "sum", "dot"), long=0.03)


def unpack_range(d: Draw) -> Setting:
    """Formats of 8 exponent bits, or 5, or 11, whose top field is finite, with any bias."""

    def wide() -> fs.FloatFormat:
        while True:
            w = d.one((8, 8, 8, 8, 5, 11, 9, 7))
            usual = (1 << (w - 1)) - 1
            bias = usual + d.one((0, 1, 2, -1, 3, 13, -13, d.integer(-40, 40)))
            fmt = _format(w, d.one((0, 1, 2, 3, 7, 10, 15, 22, 23)), d.one(SPECIALS), bias)
            if fmt is not None:
                return fmt

    a, b = wide(), d.one((fs.E4M3, fs.E5M2, fs.FP16, fs.BF16, wide()))
    acc = d.one((fs.FP32, fs.BF16, fs.TF32, fs.FP16, fs.FP64, a, wide()))
    patterns = ("top", "top", "beyond", "tie", "walk", "bottom", "cancel")
    return Setting(*d.one(((a, b), (b, a))), acc, patterns=patterns, product=d.one(("same", "same", None)))


def vector_blocks(d: Draw) -> Setting:
    """Long vectors: lanes, blocks and their remainders."""
    acc = d.one((fs.FP32, fs.FP64, fs.FP16, fs.BF16, fs.E4M3, custom(d, (11, 12, 23, 24, 25, 53))))
    return Setting(operand(d), operand(d), acc, long=0.3, operations=("sum", "sum", "dot", "matmul", "cumsum"),
                   composites=0.4, modes=("TIES_TO_EVEN", "TIES_TO_EVEN", *MODES))  # fmt: skip


EVENTS = ("overflow", "absorbed", "flushed", "underflow", "subnormal", "nan", "invalid", "inexact")


def counting(d: Draw) -> Setting:
    """Recorded with few events: their counts and first k are those of a record of all events."""
    events = d.one((("overflow",), ("absorbed",), ("flushed",), ("overflow", "absorbed"), ("nan",),
                    tuple(sorted({d.one(EVENTS) for _ in range(3)}))))  # fmt: skip
    base = d.one(tuple(THEMES.values()))(d) if d.chance(0.6) else double_rounding_innocuous(d)
    return replace(base, events=events)


def zeros_and_specials(d: Draw) -> Setting:
    """Infinities, NaNs and zeros of either sign through formats that lack some of them."""
    without = custom(d, (2, 8, 11, 12, 13, 20, 23, 24), (5, 6, 7, 8), specials=SPECIALS[1:])
    acc = d.one(
        (fs.FP32, fs.FP16, fs.BF16, fs.FP64, d.one(NARROW), without, without, custom(d, (1, 3, 11, 24, 25, 53)))
    )
    product = d.one(("same", "same", None, custom(d, (6, 8, 11, 24, 26), (5, 6, 8, 9)), without, fs.E4M3, fs.FP32))
    patterns = ("few", "few", "cancel", "top", "bottom", "tie", "walk")
    return Setting(d.one((operand(d), fs.E5M2, fs.FP16)), operand(d), acc, product=product, specials=0.4,
                   patterns=patterns, policies=0.3, scalars=0.2, flush=0.2)  # fmt: skip


def mixed(d: Draw) -> Setting:
    """Anything with anything."""
    acc = d.one((operand(d), custom(d, range(1, 54))))
    product = d.one(("same", "same", None, operand(d), custom(d, range(1, 54))))
    return Setting(operand(d), operand(d), acc, product=product)


THEMES: dict[str, Theme] = {
    theme.__name__: theme
    for theme in (
        double_rounding_innocuous, directed_roundings_nest, odd_rounding_suffices, nearest_then_nearest,
        veltkamp_rounds, sum_is_exact, terms_in_format, products_exact_in_carrier, exact_levels, unpack_range,
        vector_blocks, zeros_and_specials, mixed,
    )
}  # fmt: skip


def orders(d: Draw) -> Setting:
    """Terms in another order, parts of other lengths and trees, at the edges of every theorem."""
    base = d.one(tuple(THEMES.values()))(d)
    operations = [x for x in base.operations if x != "cumsum"] or ["matmul"]
    events = d.one((None, None, ("overflow", "absorbed"), ("inexact",)))
    return replace(base, orders=True, operations=operations, events=events)


UNITS = (
    (fs.FP16, "hopper"), (fs.FP16, "tensorcore(hopper, mma.m16n8k8)"), (fs.FP16, "tensorcore(hopper, output=fp16)"),
    (fs.FP16, "volta"), (fs.FP16, "tensorcore(volta, output=fp16)"), (fs.BF16, "hopper"), (fs.BF16, "ampere"),
    (fs.TF32, "hopper"), (fs.TF32, "ampere"), (fs.E4M3, "hopper"), (fs.E5M2, "ada"), (fs.E4M3, "blackwell"),
    (fs.FP32, "hopper"), (fs.FP32, "ampere"),
)  # fmt: skip
"""Formats of operands and matrix units. FP32 operands are split, or converted to TF32."""


def gpu_kernels(d: Draw) -> Setting:
    """The parts of GPU kernels: residues of K, dealt tiles, conversions, three products, epilogues; units of NVIDIA."""
    fmt, unit = d.one(UNITS)
    accumulator = fs.FP16 if "output=fp16" in unit else d.one((fs.FP32, fs.FP32, fs.FP16))
    return Setting(
        fmt, fmt, accumulator, unit=unit, operations=("matmul", "matmul", "matmul", "dot"), scalars=0.3, long=0.1
    )  # fmt: skip


JOBS: dict[str, Theme] = {**THEMES, "counting": counting, "orders": orders, "gpu_kernels": gpu_kernels}


# -- one call, every way -----------------------------------------------------------------------------------------------


def every_candidate(case: Case) -> Iterator[tuple[str, Callable[[], np.ndarray]]]:
    """The ways to run a case: a name, and a function that returns codes.

    Each kernel candidate that takes a part of the case runs alone, with the integer kernels for the other parts.
    """
    yield "default", case.call
    for name in accepting(case):
        yield name, functools.partial(_by, case, name)
    yield "recorded", functools.partial(_recorded, case, None)
    if _other_zeros(case) is not None:
        yield "after the other zero", functools.partial(_after_the_other_zero, case)
    if case.events is not None:
        yield "recorded with few events", functools.partial(_recorded, case, case.events)


_WRAPPERS = {"permuted", "parts", "converted", "residue", "tf32x3"}
"""The candidates that carry out a description by the kernels of inner ones."""


def accepting(case: Case) -> list[str]:
    """The candidates that carry out a part of the case when they alone are allowed."""
    formats = case.formats["a" if "a" in case.formats else "x"], case.formats.get("b")
    addend = case.formats.get("c", case.formats.get("initial"))
    k = case.keywords
    rounding = RoundingAttributes(
        fs.Rounding[k.get("rounding", "TIES_TO_EVEN")], daz=bool(k.get("daz")), ftz=bool(k.get("ftz")),
        tininess=fs.Tininess[k.get("tininess", "after").upper()],
    )  # fmt: skip
    described = case.accumulation
    if isinstance(described, fs.Epilogue):  # it runs element by element
        described, addend = described.inner, None
    if formats[1] is not None:
        described = fitted(described, *formats)
    planned = Planned(described, TermRange(*formats), rounding, processor(True), addend)
    found = ["integer"]
    for candidate in CANDIDATES:
        with only(candidate.name):
            if candidate.name in _names(plan(planned)) - _WRAPPERS - {"integer"}:
                found.append(candidate.name)
    return found


def _names(planned: Plan) -> set[str]:
    return {planned.candidate}.union(*(_names(part) for part in planned.parts))


def _by(case: Case, name: str) -> np.ndarray:
    with only(name):
        return case.call()


def _other_zeros(case: Case) -> dict[str, Any] | None:
    """The keywords with every zero of alpha and beta negated, or None where there is no zero."""
    zeros = {name: -case.keywords[name] for name in ("alpha", "beta") if case.keywords.get(name) == 0}
    return case.keywords | zeros if zeros else None


def _after_the_other_zero(case: Case) -> np.ndarray:
    """The case, after a call that differs in the sign of a zero: 0.0 == -0.0, which a cache must not rely on."""
    replace(case, keywords=_other_zeros(case)).call()
    return case.call()


def _recorded(case: Case, events: tuple[str, ...] | None) -> np.ndarray:
    with fs.record(events=events):
        return case.call()


def _counts(case: Case, events: tuple[str, ...] | None) -> tuple[np.ndarray, dict[str, Any], dict[str, Any]]:
    with fs.record(events=events) as log:
        codes = case.call()
    kept = {
        name: {event: getattr(counts, event, None) for event in (events or EVENTS)}
        for name, counts in log.counts.items()
    }
    return codes, kept, log.first


def wrong_counts(case: Case) -> str | None:
    """What a record of few events counts other than a record of all, or None."""
    assert case.events is not None
    _, few, first = _counts(case, case.events)
    _, every, first_of_all = _counts(case, None)
    for name, counts in few.items():
        for event, count in counts.items():
            if count is not None and count != every[name][event]:
                return f"{name}.{event}: {count}, but {every[name][event]} in a record of all events"
    for event in case.events:
        if event in first and not np.array_equal(first[event], first_of_all[event]):
            few_text, all_text = (np.ravel(kept[event])[:8] for kept in (first, first_of_all))
            return f"first {event}: {few_text}, but {all_text} in a record of all events"
    return None


# -- reports -----------------------------------------------------------------------------------------------------------


def _source(fmt: fs.FloatFormat) -> str:
    return f'fs.FloatFormat("{fmt.name}", {fmt.exponent_bits}, {fmt.trailing_bits}, "{fmt.specials.value}", {fmt.bias})'


def _described(attributes: Any) -> str:
    """A description as the Python that makes it."""
    if isinstance(attributes, fs.Permuted):
        return f"fs.Permuted({attributes.order!r}, {_described(attributes.inner)})"
    if isinstance(attributes, fs.TensorCore | fs.Residue | fs.Tf32x3):
        return f'fs.as_accumulation("{attributes}")'
    if isinstance(attributes, fs.Epilogue):
        through = None if attributes.through is None else _source(attributes.through)
        rest = f"{_source(attributes.format)}, {attributes.fused!r}, {through}, {attributes.activation!r}"
        return f"fs.Epilogue({_described(attributes.inner)}, {rest})"
    if isinstance(attributes, fs.Converted):
        mode = attributes.rounding.name.lower()
        return f"fs.Converted({_source(attributes.format)}, {_described(attributes.inner)}, {mode!r})"
    if isinstance(attributes, fs.Parts):
        inners = ", ".join(map(_described, attributes.inners))
        return f"fs.Parts([{inners}], {attributes.lengths}, {_described(attributes.outer)})"
    if isinstance(attributes, fs.Strided):
        return f"fs.Strided({_described(attributes.inner)}, {attributes.lanes}, {_described(attributes.outer)})"
    if isinstance(attributes, fs.Blocked):
        rule = "" if isinstance(attributes.every, tuple) else f", {attributes.rule!r}, {attributes.tile}"
        rule = "" if attributes.rule == "full" else rule
        return f"fs.Blocked({_described(attributes.inner)}, {attributes.every}, {_described(attributes.outer)}{rule})"
    if isinstance(attributes, fs.SplitK):
        through = None if attributes.through is None else _source(attributes.through)
        rule = f"{attributes.tile}, {attributes.rule!r}, {through}"
        return f"fs.SplitK({attributes.parts}, {_described(attributes.inner)}, {_described(attributes.outer)}, {rule})"
    parts = [_source(attributes.format)]
    if isinstance(attributes, fs.Pairwise | fs.Tree):
        parts.append(repr(str(attributes.tree)))
    if hasattr(attributes, "product") and attributes.product != attributes.format:
        parts.append("product=" + ("None" if attributes.product is None else _source(attributes.product)))
    for name in ("rounding", "product_rounding"):
        if (value := getattr(attributes, name, None)) is not None:
            parts.append(f'{name}="{value.name.lower()}"')
    parts += [f"{name}={getattr(attributes, name)}" for name in ("ftz", "daz") if getattr(attributes, name) is not None]
    if attributes.overflow is not fs.Overflow.INFINITY:
        parts.append(f'overflow="{attributes.overflow.name.lower()}"')
    return f"fs.{type(attributes).__name__}({', '.join(parts)})"


def reproduction(case: Case, way: str, expected_code: Any, got: Any) -> str:
    """Python that shows a mismatch, on its own."""
    lines = ["import numpy as np, floatsim as fs"]
    for name, codes in case.codes.items():
        listed = f"np.array({_hexadecimal(codes.tolist())}, np.{codes.dtype}).reshape({codes.shape})"
        fmt = case.formats.get(name)
        lines.append(f"{name} = {listed if fmt is None else f'fs.from_codes({listed}, {_source(fmt)})'}")
    lines.append(f"accumulation = {_described(case.accumulation)}")
    if case.operation in ("matmul", "dot"):
        operands = ", ".join(name for name in ("a", "b", "c") if name in case.codes)
    else:
        operands = f"x, {case.axis}" + "".join(f", {n}={n}" for n in ("where", "initial") if n in case.codes)
    call = f"fs.{case.operation}({operands}, accumulate=accumulation{_written(case.keywords)})"
    if way == "after the other zero":
        lines.append(f"fs.{case.operation}({operands}, accumulate=accumulation{_written(_other_zeros(case) or {})})")
    block = {"recorded": "fs.record()", "recorded with few events": f"fs.record(events={case.events})"}.get(way)
    if way in {candidate.name for candidate in CANDIDATES}:
        lines[0] += "\nfrom floatsim.emulator.dispatch.candidates import only"
        block = f"only({way!r})"
    lines.append(f"r = {call}" if block is None else f"with {block}: r = {call}")
    lines.append(f"# {case.at}, {way}: expected {_hexadecimal(expected_code)}, got {_hexadecimal(got)}")
    return "\n".join(lines)


def _written(keywords: dict[str, Any]) -> str:
    return "".join(
        f", {name}={_source(value) if isinstance(value, fs.FloatFormat) else repr(value)}"
        for name, value in keywords.items()
    )


def _hexadecimal(codes: Any) -> str:
    return f"[{', '.join(map(_hexadecimal, codes))}]" if isinstance(codes, list) else hex(codes)


def _differs(case: Case, run: Callable[[], np.ndarray]) -> np.ndarray:
    return run().astype(np.uint64) != case.expected


def smaller(case: Case, way: str) -> Case:
    """The case with fewer rows, columns and terms, as long as the way still differs from the oracle."""

    def fails(candidate: Case) -> bool:
        try:
            candidate.expected = expected(candidate)
        except (ValueError, IndexError):  # a description for one number of terms
            return False
        runs = dict(every_candidate(candidate))
        return way in runs and bool(_differs(candidate, runs[way]).any())

    best = case
    moved = True
    while moved:
        moved = False
        for candidate in _parts_of(best):
            if fails(candidate):
                best, moved = candidate, True
                break
    return best


def _parts_of(case: Case) -> Iterator[Case]:
    """Cases with a part of the rows, columns or terms."""
    for axes in _axes(case):
        (name, axis), *_ = axes
        for kept in _subsets(case.codes[name].shape[axis]):
            yield replace(case, codes=case.codes | {n: np.take(case.codes[n], kept, at) for n, at in axes})


def _axes(case: Case) -> Iterator[list[tuple[str, int]]]:
    """Groups of axes that have the same length, each an operand and its axis."""
    ranks = {name: codes.ndim for name, codes in case.codes.items()}
    if "x" in ranks:
        axes = range(ranks["x"])
        reduced = axes if case.axis is None else np.ravel(case.axis) % ranks["x"]
        for axis in axes:
            group = [("x", axis), ("where", axis)]
            if axis not in reduced:
                group.append(("initial", axis - sum(axis > other for other in reduced)))
            yield [pair for pair in group if pair[0] in ranks]
        return
    rows = ranks["a"] - 1
    yield [("a", -1), ("b", 0)]
    lengths = (*case.codes["a"].shape[:-1], *case.codes["b"].shape[1:])
    c = case.codes.get("c", np.zeros(()))
    for place, length in enumerate(lengths):
        axis = place - len(lengths)  # from the end, as shapes broadcast
        group = [("a", place) if place < rows else ("b", place - rows + 1)]
        yield group + [("c", axis)] * (-axis <= c.ndim and c.shape[axis] == length > 1)


def _subsets(n: int) -> Iterator[list[int]]:
    if n > 4:
        yield list(range(n // 2))
        yield list(range(n // 2, n))
    if 1 < n <= 40:
        yield from ([j for j in range(n) if j != i] for i in range(n))


# -- jobs --------------------------------------------------------------------------------------------------------------

EXAMPLES = 2


def cases_of(job: str, chunk: int, count: int = CASES) -> Iterator[Case]:
    """The cases of a chunk."""
    for i in range(count):
        d = Draw(20261122, chunk, i, job)
        case = make(d, JOBS[job](d))
        case.at = f"paths-{job}, chunk {chunk}, case {i}"
        yield case


def check(case: Case) -> tuple[int, list[tuple[str, int]]]:
    """The number of elements, and for each way that differs how many elements do."""
    case.expected = expected(case)
    found = []
    for way, run in every_candidate(case):
        if wrong := int(_differs(case, run).sum()):
            found.append((way, wrong))
    return case.expected.size, found


def run(job: str, chunk: int, count: int = CASES) -> Outcome:
    """One chunk of a job: elements, mismatches, and scripts that show some of them."""
    elements, mismatches, examples = 0, 0, []
    for case in cases_of(job, chunk, count):
        size, found = check(case)
        elements += size
        mismatches += sum(wrong for _, wrong in found)
        for way, _ in found:
            if len(examples) < EXAMPLES:
                examples.append(_example(case, way))
        if case.events is not None and size and (text := wrong_counts(case)) is not None:
            mismatches += 1
            examples.append(f"{reproduction(case, 'default', [], [])}\n# events {case.events}: {text}")
    return elements, mismatches, examples


def _example(case: Case, way: str) -> str:
    small = smaller(case, way)
    got = dict(every_candidate(small))[way]()
    return reproduction(small, way, small.expected.tolist(), got.tolist())
