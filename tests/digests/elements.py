"""Cases of the operations on elements: arithmetic, comparison, conversion, integers, ulps."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np

import floatsim as fs

from .case import Case
from .formats import CUSTOM, FORMATS, NAMED, find
from .inputs import bits, codes, floats

__all__ = ["cases"]

ROUNDINGS = tuple(rounding.name.lower() for rounding in fs.Rounding)
_SIZE = 400
_STYLES = ("bits", "easy", "edges", "specials", "wide", "ties", "low", "high", "cancelling")
_OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {}, "ftz": {"ftz": True}, "daz": {"daz": True}, "before": {"tininess": "before"},
    "ftz-daz-before": {"ftz": True, "daz": True, "tininess": "before"}, "saturate": {"overflow": "saturate_finite"},
    "propagate": {"overflow": "saturate_propagate"},
}  # fmt: skip
_SOME_CUSTOM = [name for number, name in enumerate(CUSTOM) if number % 3 == 0 or "fn" in name or "finite" in name]


def _keywords(rounding: str, options: str) -> dict[str, Any]:
    found = {"rounding": rounding, **_OPTIONS[options]}
    if rounding == "stochastic":
        found |= {"seed": 97, "random_bits": {"ftz": 8, "daz": 64, "saturate": 1}.get(options, 32), "offset": 5}
    return found


def _operands(name: str, fmt: fs.FloatFormat, count: int) -> list[fs.FloatArray]:
    """Operands of all styles one after the other; the second of "cancelling" is nearly the opposite of the first."""
    found = []
    for number in range(count):
        parts = [codes(fmt, (_SIZE // len(_STYLES),), style, f"{name}/{number}/{style}").codes for style in _STYLES]
        found.append(np.concatenate(parts))
    if count > 1 and fmt.signed:
        part = len(parts[-1])
        found[1][-part:] = found[0][-part:] ^ fmt.code_dtype.type(fmt.sign_mask | 1)
        if not fmt.has_signed_zero:
            found[1][found[1] == fmt.sign_mask] = 0
    return [fs.from_codes(x, fmt) for x in found]


# -- operations that round ---------------------------------------------------------------------------------------------

_ARITHMETIC = {"add": 2, "subtract": 2, "multiply": 2, "divide": 2, "sqrt": 1, "fma": 3}


def _operation(operation: str, fmt: str, count: int, keywords: dict[str, Any]) -> Callable[[str], Any]:
    def call(name: str) -> Any:
        x = _operands(name, find(fmt), count)
        with_flags = getattr(fs, operation)(*x, **keywords, return_flags=True)
        return *with_flags, getattr(fs, operation)(*x, **keywords)

    return call


def _integral(fmt: str, keywords: dict[str, Any]) -> Callable[[str], Any]:
    """Remainders, and the operations that round to an integer of the format."""

    def call(name: str) -> Any:
        x, y = _operands(name, find(fmt), 2)
        found = [*fs.remainder(x, y, return_flags=True, **keywords), *fs.fmod(x, y, return_flags=True, **keywords)]
        for operation in (fs.rint, fs.floor, fs.ceil, fs.trunc):
            found += operation(x, return_flags=True, **keywords)
        return tuple(found)

    return call


def _arithmetic() -> Iterator[Case]:
    options = itertools.cycle(["plain", *_OPTIONS])
    for fmt, (operation, count) in itertools.product(NAMED, _ARITHMETIC.items()):
        for rounding in ROUNDINGS:
            option = next(options)
            name = f"elementwise/{operation}/{fmt}/{rounding}/{option}"
            yield Case(name, _operation(operation, fmt, count, _keywords(rounding, option)))
    roundings = itertools.cycle(ROUNDINGS)
    for fmt, (operation, count) in itertools.product(CUSTOM, _ARITHMETIC.items()):
        if operation == "subtract":
            continue
        rounding, option = next(roundings), next(options)
        name = f"elementwise/{operation}/{fmt}/{rounding}/{option}"
        yield Case(name, _operation(operation, fmt, count, _keywords(rounding, option)))
    for fmt, _ in itertools.product([*NAMED, *_SOME_CUSTOM], range(3)):
        rounding, option = next(roundings), next(options)
        yield Case(f"integral/{fmt}/{rounding}/{option}", _integral(fmt, _keywords(rounding, option)))


def _mixed(operation: str, a: str, b: str, to: str, keywords: dict[str, Any]) -> Callable[[str], Any]:
    def call(name: str) -> Any:
        x, y = _operands(f"{name}/a", find(a), 1)[0], _operands(f"{name}/b", find(b), 1)[0]
        more = (x,) if operation == "fma" else ()
        return getattr(fs, operation)(x, y, *more, format=find(to), return_flags=True, **keywords)

    return call


def _mixed_formats() -> Iterator[Case]:
    triples = [
        "fp16 bf16 fp32", "fp32 fp16 fp16", "e4m3 e5m2 bf16", "fp64 fp32 fp16", "bf16 bf16 fp32", "fp32 fp32 bf16",
        "tf32 fp16 ieee(8,13)", "ieee(5,11) e4m3 fp16", "fnuz(5,10) fp16 fn(4,7)", "e2m1 e3m2 e2m3",
        "ieee(10,51) fp64 fp32", "finite(7,12) fp32 ieee(5,23)",
    ]  # fmt: skip
    roundings, options = itertools.cycle(ROUNDINGS), itertools.cycle(["plain", *_OPTIONS])
    for triple, operation in itertools.product(triples, ("add", "multiply", "divide", "fma", "minimum")):
        a, b, to = triple.split()
        rounding, option = next(roundings), next(options)
        name = f"elementwise-mixed/{operation}/{a},{b}->{to}/{rounding}/{option}"
        yield Case(name, _mixed(operation, a, b, to, _keywords(rounding, option)))


# -- everything else of one format -------------------------------------------------------------------------------------


def _selections(fmt: str) -> Callable[[str], Any]:
    def call(name: str) -> Any:
        x, y = _operands(name, find(fmt), 2)
        names = ("minimum", "maximum", "minimum_number", "maximum_number")
        return *(out for op in names for out in getattr(fs, op)(x, y, return_flags=True)), fs.minimum(x, y, daz=True)

    return call


def _comparisons(fmt: str) -> Callable[[str], Any]:
    def call(name: str) -> Any:
        x, y = _operands(name, find(fmt), 2)
        names = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "unordered")
        found = [out for op in names for out in getattr(fs, op)(x, y, return_flags=True)]
        quiet = fs.less(x, y, signaling=False, daz=True, return_flags=True)
        return *found, *quiet, *fs.equal(x, x, signaling=True, return_flags=True), fs.total_order(x, y)

    return call


def _classes(fmt: str) -> Callable[[str], Any]:
    def call(name: str) -> Any:
        x, y = _operands(name, find(fmt), 2)
        names = ("isnan", "isinf", "isfinite", "issubnormal", "signbit", "negative", "absolute", "classify")
        return *(getattr(fs, op)(x) for op in names), fs.copysign(x, y)

    return call


def _exponents(fmt: str) -> Callable[[str], Any]:
    def call(name: str) -> Any:
        (x,) = _operands(name, find(fmt), 1)
        n = (bits(f"{name}/n", x.size) % np.uint64(61)).astype(np.int64) - 30
        found = [*fs.logb(x, return_flags=True), *fs.next_up(x, return_flags=True), *fs.next_down(x, return_flags=True)]
        for keywords in ({}, {"rounding": "toward_positive", "ftz": True}, {"rounding": "to_odd", "daz": True}):
            found += fs.scalb(x, n, return_flags=True, **keywords)
        return tuple(found)

    return call


def _ulps(fmt: str) -> Callable[[str], Any]:
    def call(name: str) -> Any:
        x, y = _operands(name, find(fmt), 2)
        kinds = [fs.ulp(x, kind=kind) for kind in ("goldberg", "kahan", "harrison")]
        distances = fs.ulp_distance(x, y), fs.ulp_distance(x, x, equal_nan=True)
        return *kinds, fs.ulp(floats(np.float64, (200,), "wide", name), find(fmt)), *distances

    return call


def _integers(fmt: str) -> Callable[[str], Any]:
    def call(name: str) -> Any:
        (x,) = _operands(name, find(fmt), 1)
        roundings = itertools.cycle(ROUNDINGS)
        found = []
        for dtype in (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64):
            found += fs.to_integer(x, dtype, return_flags=True, seed=4, rounding=next(roundings))
            n = (bits(f"{name}/{dtype.__name__}", 150) >> (bits(f"{name}/shift", 150) % np.uint64(64))).astype(dtype)
            found += fs.from_integer(n, find(fmt), return_flags=True, seed=4, rounding=next(roundings))
        return tuple(found)

    return call


def _of_one_format() -> Iterator[Case]:
    kinds = {
        "selections": _selections, "comparisons": _comparisons, "classes": _classes, "exponents": _exponents,
        "ulps": _ulps, "integers": _integers,
    }  # fmt: skip
    for fmt, (kind, make) in itertools.product([*NAMED, *_SOME_CUSTOM], kinds.items()):
        yield Case(f"{kind}/{fmt}", make(fmt))


# -- conversions -------------------------------------------------------------------------------------------------------


def _conversion(source: str, to: fs.FloatFormat, keywords: dict[str, Any]) -> Callable[[str], Any]:
    def call(name: str) -> Any:
        (x,) = _operands(name, find(source), 1)
        return *fs.convert(x, to, return_flags=True, **keywords), fs.quantize(x.values, to, **keywords)

    return call


def _quantized(dtype: type, to: str, keywords: dict[str, Any]) -> Callable[[str], Any]:
    def call(name: str) -> Any:
        parts = [
            floats(dtype, (_SIZE,), style, f"{name}/{style}")
            for style in ("easy", "spread", "edges", "specials", "wide")
        ]
        x = np.concatenate(parts)
        with np.errstate(over="ignore", under="ignore"):
            more = (floats(dtype, (_SIZE,), "easy", name).astype(np.float64) * find(to).max * 0.75).astype(dtype)
            tiny = (floats(dtype, (_SIZE,), "easy", name).astype(np.float64) * find(to).smallest_normal).astype(dtype)
        x = np.concatenate([x, more, tiny])
        found = fs.quantize(x, find(to), **keywords), fs.array(x, find(to), **keywords)
        return *found, *fs.encode(x, find(to), return_flags=True, **keywords)

    return call


def _holds(carrier: fs.FloatFormat, fmt: fs.FloatFormat) -> bool:
    """Whether an array of the carrier holds every number of a format."""
    lowest = fmt.emin - fmt.trailing_bits >= carrier.emin - carrier.trailing_bits
    return lowest and fmt.precision <= carrier.precision and fmt.emax <= carrier.emax


def _conversions() -> Iterator[Case]:
    roundings, options = itertools.cycle([*ROUNDINGS, "ties_to_even"]), itertools.cycle(["plain", *_OPTIONS])
    some = ["ieee(5,11)", "fn(4,7)", "finite(6,5)", "fnuz(8,7)", "ieee(8,24)", "ieee(5,10,bias=28)"]
    few = [*some, "fp32", "fp64", "fp16"]
    pairs = [*itertools.product(NAMED, NAMED), *itertools.product(some, few), *itertools.product(few[6:], some)]
    for source, to in pairs:
        rounding, option = next(roundings), next(options)
        call = _conversion(source, find(to), _keywords(rounding, option))
        yield Case(f"convert/{source}->{to}/{rounding}/{option}", call)
    pairs = [(np.float64, name) for name in FORMATS]
    pairs += [(np.float32, name) for name, fmt in FORMATS.items() if _holds(fs.FP32, fmt)]
    for dtype, to in pairs:
        rounding, option = next(roundings), next(options)
        name = f"quantize/{np.dtype(dtype).name}->{to}/{rounding}/{option}"
        yield Case(name, _quantized(dtype, to, _keywords(rounding, option)))
    for source, option in itertools.product(("fp32", "fp64", "bf16", "e5m2", "ieee(5,11)"), ("plain", "saturate")):
        keywords = _keywords("ties_to_even", option)
        yield Case(f"convert/{source}->e8m0/{option}", _conversion(source, fs.E8M0, keywords))


def _scales(name: str) -> Any:
    """Every code of E8M0."""
    x = fs.from_codes(np.arange(256, dtype=np.uint8), fs.E8M0)
    return fs.convert(x, "bf16"), fs.convert(x, "fp32"), fs.equal(x, x), fs.decode(x.codes, "e8m0")


def _decoded(fmt: str) -> Callable[[str], Any]:
    def call(name: str) -> Any:
        return fs.decode(codes(find(fmt), (500,), "bits", name).codes, find(fmt))

    return call


_NUMBERS = [
    Fraction(1, 3),
    Fraction(-2, 7),
    10**30,
    -(2**200),
    Fraction(1, 10**40),
    0,
    5,
    Fraction(3, 2**1074),
    2**24 + 1,
]


def _exact_numbers(rounding: str) -> Callable[[str], Any]:
    def call(name: str) -> Any:
        formats = ("fp32", "fp16", "bf16", "e4m3", "fp64", "e2m1", "ieee(8,24)", "fnuz(8,7)")
        keywords = {"rounding": rounding, "seed": 8, "return_flags": True}
        found = [fs.encode(_NUMBERS, find(fmt), **keywords) for fmt in formats]
        texts = [
            fs.encode(["0.1", "-1e-46", "0x1.8p-3", "inf", "nan", "3.5e38"], find(fmt), **keywords) for fmt in formats
        ]
        return tuple(x for pair in (*found, *texts) for x in pair)

    return call


def cases() -> Iterator[Case]:
    """Yield every case."""
    yield from _arithmetic()
    yield from _mixed_formats()
    yield from _of_one_format()
    yield from _conversions()
    yield Case("convert/e8m0", _scales)
    for fmt in FORMATS:
        yield Case(f"decode/{fmt}", _decoded(fmt), records=False)
    for rounding in ROUNDINGS:
        yield Case(f"encode-exact/{rounding}", _exact_numbers(rounding))
