"""The public functions inside users' jitted code: the same bits and flags as outside, for all accepted arguments.

With records, formats at run time, one compiled function is tested on every format and every rounding option. Formats
and options that the compiler knows are tested on fewer.
"""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import functools
import importlib.metadata
import inspect
import os
import platform
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import oracles as o
import pytest
from numba import njit, vectorize
from numba.core.errors import TypingError
from oracles import OracleRounding

import floatsim as fs
from floatsim import Overflow, Rounding, Tininess
from floatsim.arrays.elementwise import functions as mathematical
from floatsim.reference import functions
from tests.marks import cases

pytestmark = [pytest.mark.formats, pytest.mark.versions]

ROOT = Path(__file__).parents[1]
ids = {"ids": lambda x: getattr(x, "name", str(x))}
FORMATS = (*o.ARITHMETIC, *o.CUSTOM)
TINY_FP16 = fs.FloatFormat("tiny", 3, 2, "finite")  # a global that is no name

ORACLE_ROUNDINGS = [
    *(OracleRounding(rounding) for rounding in o.DETERMINISTIC),
    OracleRounding(Rounding.TOWARD_POSITIVE, Overflow.SATURATE_FINITE, ftz=True),
    OracleRounding(Rounding.TIES_TO_EVEN, Overflow.SATURATE_PROPAGATE, daz=True),
    OracleRounding(Rounding.TIES_TO_AWAY, Overflow.SATURATE_FINITE, ftz=True, tininess=Tininess.BEFORE),
    OracleRounding(Rounding.TO_ODD, daz=True, ftz=True),
]

BINARY = (
    "add", "subtract", "multiply", "divide", "remainder", "fmod", "minimum", "maximum", "minimum_number",
    "maximum_number",
)  # fmt: skip
params = fs.njit.format_params
FUNCTIONS = [*functions.BINARY, *sorted(functions.UNARY)]
ARITY = dict.fromkeys(BINARY, 2) | {"sqrt": 1, "fma": 3, "quantize": 1}


def operands(fmt: fs.FloatFormat, arity: int, *salt: object) -> list[np.ndarray]:
    """float64: hard cases of the format, at and next to its values, hard cases of float64, and ordinary numbers."""
    r = o.rng("njit", fmt.name, arity, *salt)
    on_grid = [fs.decode(codes.astype(fmt.code_dtype), fmt) for codes in o.structured(fmt, arity, 300, r)]
    columns = []
    for values, hard in zip(on_grid, o.structured(fs.FP64, arity, 200, r), strict=True):
        near = values.view(np.uint64) + r.integers(0, 3, values.size).astype(np.uint64) - np.uint64(1)
        middling = r.normal(size=200) * 2.0 ** r.integers(fmt.emin - fmt.precision, fmt.emax + 1, 200).clip(-900, 900)
        columns.append(np.concatenate([values, near.view(np.float64), hard.view(np.float64), middling]))
    return columns


def outside(
    name: str, fmt: fs.FloatFormat, arrays: list[np.ndarray], **keywords: object
) -> tuple[np.ndarray, np.ndarray]:
    """The public function on arrays: (float64 values, flags)."""
    if name == "quantize":
        return fs.quantize(*arrays, fmt, return_flags=True, **keywords)
    result, flags = getattr(fs, name)(*arrays, format=fmt, return_flags=True, **keywords)
    codes = result.codes if isinstance(result, fs.FloatArray) else result.view(fmt.code_dtype)
    return fs.decode(codes, fmt), flags


def assert_same(got: np.ndarray, want: np.ndarray, *operands: np.ndarray) -> None:
    """Equal bits."""
    kind = f"u{want.itemsize}"
    differ = np.flatnonzero(got.astype(want.dtype, copy=False).view(kind) != want.view(kind))
    assert got.dtype == want.dtype
    assert not differ.size, ([x[differ[0]] for x in operands], got[differ[0]], want[differ[0]])


@functools.cache
def loop(name: str):
    """A jitted loop: values, values of a call with flags, and flags."""
    function, arity = getattr(fs, name), ARITY[name]
    if name == "quantize":

        @njit
        def run(a, params):
            values, again, flags = np.empty_like(a), np.empty_like(a), np.empty(a.size, np.uint8)
            for i in range(a.size):
                values[i] = function(a[i], params)
                again[i], flags[i] = function(a[i], params, return_flags=True)
            return values, again, flags

    elif arity == 1:

        @njit
        def run(a, params):
            values, again, flags = np.empty_like(a), np.empty_like(a), np.empty(a.size, np.uint8)
            for i in range(a.size):
                values[i] = function(a[i], format=params)
                again[i], flags[i] = function(a[i], format=params, return_flags=True)
            return values, again, flags

    elif arity == 2:

        @njit
        def run(a, b, params):
            values, again, flags = np.empty_like(a), np.empty_like(a), np.empty(a.size, np.uint8)
            for i in range(a.size):
                values[i] = function(a[i], b[i], format=params)
                again[i], flags[i] = function(a[i], b[i], format=params, return_flags=True)
            return values, again, flags

    else:

        @njit
        def run(a, b, c, params):
            values, again, flags = np.empty_like(a), np.empty_like(a), np.empty(a.size, np.uint8)
            for i in range(a.size):
                values[i] = function(a[i], b[i], c[i], format=params)
                again[i], flags[i] = function(a[i], b[i], c[i], format=params, return_flags=True)
            return values, again, flags

    return run


def check(run, name: str, fmt: fs.FloatFormat, arrays: list[np.ndarray], rounding: OracleRounding) -> None:
    values, again, flags = run(*arrays, fs.njit.format_params(fmt, **rounding.keywords))
    want, raised = outside(name, fmt, arrays, **rounding.keywords)
    assert_same(values, want, *arrays)
    assert_same(again, want, *arrays)
    assert_same(flags, raised, *arrays)


# -- every format and rounding, by parameters ---------------------------------------------------------------------


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
@pytest.mark.parametrize("name", cases(quick=["add"], full=ARITY))
def test_every_format_and_rounding(name, fmt):
    arrays = operands(fmt, ARITY[name], name)
    for rounding in ORACLE_ROUNDINGS:
        check(loop(name), name, fmt, arrays, rounding)


def test_every_rounding_to_a_scale_format():
    for rounding in ORACLE_ROUNDINGS:
        check(loop("quantize"), "quantize", fs.E8M0, operands(fs.FP32, 1), rounding)


@pytest.mark.parametrize("name", ["add", "multiply", "divide"])
def test_every_pair_of_fp8(name):
    run = loop(name)
    for k, fmt in enumerate((fs.E4M3, fs.E5M2, fs.E4M3FNUZ)):
        values = fs.decode(fmt.codes(), fmt)
        pairs = [x.ravel() for x in np.meshgrid(values, values, indexing="ij")]
        for keywords in (ORACLE_ROUNDINGS[0], ORACLE_ROUNDINGS[k + 1], ORACLE_ROUNDINGS[-1 - k]):
            check(run, name, fmt, pairs, keywords)


def test_float32():
    """float32 is a carrier if it contains the format. The result is float32, or float64 with a float64 operand."""
    run, add = loop("quantize"), loop("add")
    for fmt in (fs.FP32, fs.TF32, fs.FP16, fs.BF16, fs.E4M3, fs.E2M1, fs.E5M2FNUZ):
        x, y = (fs.convert(v, "fp32") for v in operands(fmt, 2))
        hard = [codes.astype(np.uint32).view(np.float32) for codes in o.structured(fs.FP32, 2, 400, o.rng("f32", fmt))]
        x, y = np.concatenate([x, hard[0]]), np.concatenate([y, hard[1]])
        for keywords in ORACLE_ROUNDINGS:
            parameters = fs.njit.format_params(fmt, **keywords.keywords)
            values, again, flags = run(x, parameters)
            want, raised = fs.quantize(x, fmt, return_flags=True, **keywords.keywords)
            for got in (values, again):
                assert_same(got, want, x)
            assert_same(flags, raised, x)
            values, again, flags = add(x, y, parameters)
            want, raised = outside("add", fmt, [x, y], **keywords.keywords)
            for got in (values, again):
                assert_same(got, want.astype(np.float32), x, y)
            assert_same(flags, raised, x, y)

    @njit
    def widths(x, y):
        return fs.add(x, x), fs.add(x, y, format="fp16"), fs.add(y, y), fs.quantize(x, "fp16"), fs.negative(x)

    results = widths(np.float32(1 + 2**-23), 1.0)
    assert results == (np.float32(2 + 2**-22), 2.0, 2.0, 1.0, -np.float32(1 + 2**-23))


# -- what the compiler sees ----------------------------------------------------------------------------------------


def test_ways_of_naming_a_format():
    local = fs.FloatFormat.ieee(4, 5)

    @njit
    def run(x, argument):
        return (
            fs.quantize(x, "e4m3"),
            fs.quantize(x, fs.E4M3),
            fs.quantize(format="float8_e4m3fn", x=x),
            fs.quantize(x, TINY_FP16),
            fs.quantize(x, local),
            fs.quantize(x, "ieee(4, 5)"),
            fs.quantize(x, argument),
        )

    for x in (0.0, -0.1, 464.0, 465.0, 1e9, -np.inf, np.nan):
        for argument in (
            fs.BF16,
            fs.E3M2,
            fs.FloatFormat("other", 4, 3, "fnuz"),
            fs.njit.format_params("e5m2", ftz=True),
        ):
            name = "e5m2" if isinstance(argument, fs.njit.FormatParams) else argument
            ways = ["e4m3"] * 3 + [TINY_FP16, local, local, name]
            assert_same(np.array(run(x, argument)), np.array([fs.quantize(x, way) for way in ways]))


def test_defaults_of_users_functions():
    @njit
    def run(x, fmt="e4m3", rounding="toward_zero", seed=3):
        return fs.quantize(x, fmt, rounding=rounding), fs.quantize(x, fmt, rounding="SR", seed=seed)

    want = fs.quantize(0.9, "e4m3", rounding="toward_zero"), fs.quantize(0.9, "e4m3", rounding="SR", seed=3)
    assert run(0.9) == want


def test_ways_of_naming_a_rounding():
    toward_zero = fs.Rounding.TOWARD_ZERO

    @njit
    def literal(x, y):
        return (
            fs.add(x, y, format="fp16", rounding="RTZ"),
            fs.add(x, y, format="fp16", rounding="toward_positive", overflow="saturate_finite", ftz=True),
            fs.add(x, y, rounding=fs.Rounding.TO_ODD, format=fs.FP16, tininess="before", ftz=True, daz=False),
            fs.add(x, y, format="fp16", rounding=toward_zero, overflow=fs.Overflow.SATURATE_PROPAGATE),
            fs.add(x, y, format="fp16", rounding=None, daz=None, out=None),
        )

    @njit
    def at_run_time(x, y, rounding, overflow, tininess, flag):
        return fs.add(x, y, format="fp16", rounding=rounding, overflow=overflow, tininess=tininess, ftz=flag, daz=flag)

    x, y = operands(fs.FP16, 2)
    roundings = [
        OracleRounding(Rounding.TOWARD_ZERO),
        OracleRounding(Rounding.TOWARD_POSITIVE, Overflow.SATURATE_FINITE, ftz=True),
        OracleRounding(Rounding.TO_ODD, tininess=Tininess.BEFORE, ftz=True),
        OracleRounding(Rounding.TOWARD_ZERO, Overflow.SATURATE_PROPAGATE),
        OracleRounding(),
    ]
    got = np.array([literal(*pair) for pair in zip(x, y, strict=True)])
    for column, keywords in zip(got.T, roundings, strict=True):
        assert_same(column.copy(), outside("add", fs.FP16, [x, y], **keywords.keywords)[0], x, y)
    for keywords in ORACLE_ROUNDINGS:
        arguments = keywords.rounding, keywords.overflow, keywords.tininess, keywords.ftz
        got = np.array([at_run_time(*pair, *arguments) for pair in zip(x, y, strict=True)])
        assert_same(got, outside("add", fs.FP16, [x, y], **keywords.keywords | {"daz": keywords.ftz})[0], x, y)


def test_the_context_stays_outside_but_for_records():
    @njit
    def run(x, params):
        return fs.quantize(x, "fp16"), fs.quantize(x, params)

    with fs.context(rounding="toward_zero", overflow="saturate_finite"):
        assert run(1e6, fs.njit.format_params("e4m3")) == (np.inf, 448.0)
        assert run(1e6, fs.njit.format_params("e4m3", overflow="saturate_propagate")) == (np.inf, 448.0)


def test_records_among_records():
    bfloat = fs.njit.format_params("bf16")

    @njit
    def run(x, records):
        return [fs.quantize(x, params) for params in records], fs.quantize(x, bfloat)

    formats = (fs.FP16, fs.BF16, fs.E4M3)
    want = [fs.quantize(0.1, fmt) for fmt in formats]
    assert run(0.1, tuple(fs.njit.format_params(fmt) for fmt in formats)) == (want, want[1])


# -- stochastic rounding -------------------------------------------------------------------------------------------


def test_stochastic():
    """offset=i has the draw of element i of an array, for every number of bits."""

    @njit
    def run(x, params, seed, start):
        quantized, literal, sums = np.empty_like(x), np.empty_like(x), np.empty_like(x)
        for i in range(x.size):
            quantized[i] = fs.quantize(x[i], params, seed=seed, offset=start + i)
            literal[i] = fs.quantize(x[i], "bf16", rounding="SR", seed=seed, offset=start + i, random_bits=9)
            sums[i] = fs.add(x[i], 1.0, format=params, seed=seed, offset=start + i)
        return quantized, literal, sums

    for fmt in (fs.FP16, fs.BF16, fs.E4M3, fs.E2M1):
        (x,) = operands(fmt, 1)
        for bits in (1, 7, 32, 33, 64):
            keywords = {"rounding": "stochastic", "random_bits": bits}
            quantized, literal, sums = run(
                x, fs.njit.format_params(fmt, **keywords), np.uint64(2**63 + bits), np.int64(100)
            )
            keywords |= {"seed": 2**63 + bits, "offset": 100}
            assert_same(quantized, fs.quantize(x, fmt, **keywords), x)
            assert_same(literal, fs.quantize(x, "bf16", **keywords | {"random_bits": 9}), x)
            assert_same(sums, outside("add", fmt, [x, np.ones_like(x)], **keywords)[0], x)


def test_draw():
    @njit
    def run(seed, index, random_bits, site):
        return (
            fs.njit.draw(seed, index, random_bits, site),
            fs.njit.draw(seed, index),
            fs.njit.draw(seed, index, site=3),
        )

    for seed, index, bits, site in [(1, 5, 8, 0), (2**64 - 1, 2**40, 64, 9), (0, 0, 33, 1)]:
        want = [fs.reference.draw(seed, index, bits, site), fs.reference.draw(seed, index)]
        want.append(fs.reference.draw(seed, index, site=3))
        assert list(run(np.uint64(seed), np.uint64(index), bits, site)) == want
        assert [fs.njit.draw(seed, index, bits, site), fs.njit.draw(seed, index)] == want[:2]
    with pytest.raises(ValueError, match=r"random_bits must be 1 to 64"):
        run(1, 1, 65, 0)
    with pytest.raises(ValueError, match=r"seed, index and site"):
        run(-1, 1, 8, 0)
    with pytest.raises(ValueError, match=r"random_bits must be 1 to 64, not 0"):
        fs.njit.draw(1, 1, 0)


@pytest.mark.parametrize("generator", [fs.Philox(42), fs.Threefry(42), fs.Lfsr(16, (16, 14, 13, 11))])
def test_generators_of_libraries_are_refused(generator):
    """As an argument, as a global, made in the function, and in `draw`: the message says what works."""

    @njit
    def given(x, seed):
        return fs.quantize(x, "bf16", rounding="stochastic", seed=seed)

    @njit
    def known(x):
        return fs.quantize(x, "bf16", rounding="stochastic", seed=generator)

    @njit
    def made(x):
        return fs.quantize(x, "bf16", rounding="stochastic", seed=fs.Philox(42))

    @njit
    def drawn(x, seed):
        return fs.njit.draw(seed, 1)

    for function, arguments in (
        (given, (1.03, generator)),
        (known, (1.03,)),
        (made, (1.03,)),
        (drawn, (1.03, generator)),
    ):
        with pytest.raises(TypingError, match=r"seed is an integer in compiled code, .* round whole arrays outside"):
            function(*arguments)


# -- mathematical functions --------------------------------------------------------------------------------------------


@functools.cache
def function_loop(name: str):
    """A jitted loop of a mathematical function as in `loop`; element i has the draw of element i of an array."""
    function = getattr(fs, name.removesuffix("_tanh"))
    if name in functions.BINARY:

        @njit
        def run(a, b, params):
            values, again, flags = np.empty_like(a), np.empty_like(a), np.empty(a.size, np.uint8)
            for i in range(a.size):
                values[i] = function(a[i], b[i], format=params, seed=9, offset=i)
                again[i], flags[i] = function(a[i], b[i], format=params, seed=9, offset=i, return_flags=True)
            return values, again, flags

    elif name == "gelu_tanh":

        @njit
        def run(a, params):
            values, again, flags = np.empty_like(a), np.empty_like(a), np.empty(a.size, np.uint8)
            for i in range(a.size):
                values[i] = fs.gelu(a[i], approximate="tanh", format=params, seed=9, offset=i)
                again[i], flags[i] = fs.gelu(
                    a[i], approximate="tanh", format=params, seed=9, offset=i, return_flags=True
                )
            return values, again, flags

    else:

        @njit
        def run(a, params):
            values, again, flags = np.empty_like(a), np.empty_like(a), np.empty(a.size, np.uint8)
            for i in range(a.size):
                values[i] = function(a[i], format=params, seed=9, offset=i)
                again[i], flags[i] = function(a[i], format=params, seed=9, offset=i, return_flags=True)
            return values, again, flags

    return run


def function_operands(name: str, fmt: fs.FloatFormat) -> list[np.ndarray]:
    """float64: special values, exact cases, numbers beyond the bounds of the kernels, and numbers of the format."""
    r = o.rng("njit functions", name, fmt.name)
    signaling = np.array([0x7FF0000000000001], np.uint64).view(np.float64)[0]
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, signaling, 5e-324, -5e-324]
    exact = [1.0, -1.0, 4.0, 0.25, 3.0, -2.0, 0.5, 100.0, 2.0**-20, 2.0**-60, -(2.0**-60)]
    beyond = [2.0**-300, 2.0**-301, -(2.0**300), 2.0**299, 1 / 3, 1 + 2.0**-23, 1 + 2.0**-24, 1e300, 710.5]
    ordinary = fs.quantize(r.normal(size=12) * 10 ** r.uniform(-3, 2, 12), "fp16")
    codes = r.integers(0, 1 << fmt.bits, 12, dtype=np.uint64).astype(fmt.code_dtype)
    column = np.concatenate([special, exact, beyond, ordinary, fs.decode(codes, fmt)])
    return [column, r.permutation(column)] if name in functions.BINARY else [column]


def check_function(name: str, fmt: fs.FloatFormat, arrays: list[np.ndarray], **keywords: object) -> None:
    """The results equal those outside."""
    values, again, flags = function_loop(name)(*arrays, params(fmt, **keywords))
    keywords |= {"seed": 9} | ({"approximate": "tanh"} if name == "gelu_tanh" else {})
    wide = [x.astype(np.float64) for x in arrays]
    want, raised = outside(name.removesuffix("_tanh"), fmt, wide, **keywords)
    assert_same(values, want.astype(values.dtype), *arrays)
    assert_same(again, want.astype(values.dtype), *arrays)
    assert_same(flags, raised, *arrays)


@pytest.mark.parametrize("name", cases(quick=["exp"], full=FUNCTIONS))
def test_mathematical_functions(name):
    """In formats with all kinds of special values, on both sides of the bounds of the kernels."""
    edges = fs.FloatFormat.ieee(8, 29), fs.FloatFormat.ieee(8, 30), fs.FloatFormat.ieee(11, 4)
    for k, fmt in enumerate((fs.FP16, fs.FP32, fs.E4M3, fs.E5M2FNUZ, fs.E2M1, fs.FP64, *edges)):
        arrays = function_operands(name, fmt)
        for rounding in ORACLE_ROUNDINGS if k == 0 else ORACLE_ROUNDINGS[k % 7 :: 7]:
            check_function(name, fmt, arrays, **rounding.keywords)
        check_function(name, fmt, arrays, rounding="stochastic", random_bits=11)


def test_mathematical_functions_of_float32():
    (x,) = function_operands("exp", fs.FP32)
    with np.errstate(all="ignore"):
        x = x.astype(np.float32)
    x = x[np.isfinite(x)]
    for fmt in (fs.FP32, fs.BF16):
        for rounding in ORACLE_ROUNDINGS[:3]:
            check_function("exp", fmt, [x], **rounding.keywords)
    tiny = np.array([1e-40, -1e-40], np.float32)
    for daz in (False, True):
        values, _, flags = function_loop("exp")(tiny, params("fp32", rounding="RTP", daz=daz))
        want, raised = fs.exp(tiny, rounding="RTP", daz=daz, return_flags=True)
        assert_same(values, want, tiny)
        assert_same(flags, raised, tiny)


@pytest.mark.full
def test_mathematical_functions_with_literals():
    @njit
    def run(x, y):
        return (
            fs.exp(x, format="e4m3", rounding="RTZ"), fs.exp(x), fs.hypot(x, y, format=fs.FP16, return_flags=True),
            fs.gelu(x, approximate="none", format="bf16"), fs.gelu(x, approximate="tanh", format="bf16"),
            fs.exp(np.float32(x)), fs.exp(x, format="fp16", rounding="SR", seed=3, offset=5),
        )  # fmt: skip

    for x in (0.5, 0.1, 3.0):
        a, b = np.float64(x), np.float64(4.0)
        hypot, flags = fs.hypot(a, b, format="fp16", return_flags=True)
        want = (
            float(fs.exp(a, format="e4m3", rounding="RTZ")), fs.exp(a), (float(hypot), flags),
            float(fs.gelu(a, format="bf16")), float(fs.gelu(a, approximate="tanh", format="bf16")),
            fs.exp(np.float32(x)), float(fs.exp(a, format="fp16", rounding="SR", seed=3, offset=5)),
        )  # fmt: skip
        assert run(x, 4.0) == want


@pytest.fixture
def calls(monkeypatch):
    """The names of the functions that compiled code leaves to the reference."""
    names, apply = [], functions.apply

    def counted(name, *arguments):
        names.append(name)
        return apply(name, *arguments)

    monkeypatch.setattr(functions, "apply", counted)
    return names


def test_few_results_call_python(calls):
    (x,) = fs.quantize(o.rng("few results").normal(size=(1, 300)), "fp16")
    parameters = params("fp16")
    function_loop("exp")(x, parameters)
    assert len(calls) < 3
    function_loop("exp")(np.full(4, 0.1), parameters)  # more than 24 significant bits
    assert calls[-8:] == ["exp"] * 8


# -- operations in the carrier's own format ------------------------------------------------------------------------


def flat(results) -> list[np.ndarray]:
    """The components of results, which may be (value, flags) pairs."""
    return [np.asarray(part) for item in results for part in (item if isinstance(item, tuple) else (item,))]


def assert_columns(run, want, *arrays: np.ndarray) -> None:
    """A jitted function of arrays and an index, against the results of public functions on the arrays."""
    columns = flat(want)
    rows = [flat(run(*arrays, i)) for i in range(arrays[0].size)]
    for got, column in zip(zip(*rows, strict=True), columns, strict=True):
        assert_same(np.array(got, column.dtype), column, *arrays)


@pytest.mark.full
def test_integral_operations_and_neighbours():
    @njit
    def run(x, n, y, i):
        v = x[i]
        return (
            fs.rint(v), fs.rint(v, rounding="RTP"), fs.floor(v), fs.ceil(v), fs.trunc(v), fs.scalb(v, n[i]),
            fs.next_up(v), fs.next_down(v), fs.floor(v, daz=True), fs.rint(v, return_flags=True),
            fs.scalb(v, n[i], return_flags=True, ftz=True), fs.next_up(v, daz=True),
            fs.nextafter(v, y[i]), fs.nextafter(v, y[i], daz=True), fs.nextafter(v, 0.5),
        )  # fmt: skip

    for fmt in (fs.FP64, fs.FP32):
        r = o.rng("integral", fmt.name)
        (codes,) = o.structured(fmt, 1, 600, r)
        x, n = codes.astype(fmt.code_dtype).view(fmt.dtype), r.integers(-200, 200, codes.size)
        y = np.where(r.random(x.size) < 0.2, x, r.permutation(x))
        want = (
            fs.rint(x), fs.rint(x, rounding="RTP"), fs.floor(x), fs.ceil(x), fs.trunc(x), fs.scalb(x, n),
            fs.next_up(x), fs.next_down(x), fs.floor(x, daz=True), fs.rint(x, return_flags=True),
            fs.scalb(x, n, return_flags=True, ftz=True), fs.next_up(x, daz=True),
            fs.nextafter(x, y), fs.nextafter(x, y, daz=True), fs.nextafter(x, 0.5),
        )  # fmt: skip
        assert_columns(run, want, x, n, y)


def test_sign_operations_keep_nans():
    @njit
    def run(x, y):
        for i in range(x.size):
            y[0, i], y[1, i], y[2, i] = fs.negative(x[i]), fs.absolute(x[i]), fs.copysign(x[i], -1.0)

    for fmt in (fs.FP64, fs.FP32):
        x = o.special_codes(fmt).astype(fmt.code_dtype).view(fmt.dtype)
        y = np.empty((3, x.size), x.dtype)
        run(x, y)
        for got, want in zip(y, (fs.negative(x), fs.absolute(x), fs.copysign(x, -1.0)), strict=True):
            assert_same(got, want, x)


@pytest.mark.full
def test_comparisons_and_classes():
    @njit
    def run(x, y, i):
        a, b = x[i], y[i]
        return (
            fs.equal(a, b), fs.not_equal(a, b), fs.less(a, b), fs.less_equal(a, b), fs.greater(a, b),
            fs.greater_equal(a, b), fs.unordered(a, b), fs.less(a, b, return_flags=True),
            fs.less(a, b, signaling=False, return_flags=True), fs.equal(a, b, daz=True), fs.classify(a), fs.isnan(a),
            fs.isinf(a), fs.isfinite(a), fs.issubnormal(a), fs.signbit(a), fs.total_order(a, b),
            fs.logb(a, return_flags=True), fs.logb(a),
        )  # fmt: skip

    for fmt in (fs.FP64, fs.FP32):
        special = o.special_codes(fmt).astype(fmt.code_dtype).view(fmt.dtype)
        a, b = (x.ravel() for x in np.meshgrid(special, special, indexing="ij"))
        want = (
            fs.equal(a, b), fs.not_equal(a, b), fs.less(a, b), fs.less_equal(a, b), fs.greater(a, b),
            fs.greater_equal(a, b), fs.unordered(a, b), fs.less(a, b, return_flags=True),
            fs.less(a, b, signaling=False, return_flags=True), fs.equal(a, b, daz=True), fs.classify(a), fs.isnan(a),
            fs.isinf(a), fs.isfinite(a), fs.issubnormal(a), fs.signbit(a), fs.total_order(a, b),
            fs.logb(a, return_flags=True), fs.logb(a),
        )  # fmt: skip
        assert_columns(run, want, a, b)


@pytest.mark.full
def test_codes_and_integers():
    @njit
    def run(x, params, i):
        return (
            fs.encode(x[i], "e4m3"), fs.encode(x[i], fs.FP16, rounding="RTZ"),
            fs.encode(x[i], params, return_flags=True), fs.to_integer(x[i], np.int32),
            fs.to_integer(x[i], np.uint8, rounding="RTP", return_flags=True), fs.to_integer(x[i], np.int64),
        )  # fmt: skip

    (x,) = operands(fs.FP16, 1)
    bf16 = fs.njit.format_params("bf16")
    want = (
        fs.encode(x, "e4m3"), fs.encode(x, "fp16", rounding="RTZ"), fs.encode(x, "bf16", return_flags=True),
        fs.to_integer(x, np.int32), fs.to_integer(x, np.uint8, rounding="RTP", return_flags=True),
        fs.to_integer(x, np.int64),
    )  # fmt: skip
    assert_columns(lambda x, i: run(x, bf16, i), want, x)

    @njit
    def back(codes, i):
        return fs.decode(codes[i], "fp16"), fs.decode(codes[i], bf16)

    codes = fs.FP16.codes()
    assert_columns(back, (fs.decode(codes, "fp16"), fs.decode(codes, "bf16")), codes)
    with pytest.raises(ValueError, match="codes do not fit the format"):
        back(np.array([1 << 16], np.uint32), 0)


# -- other users of Numba ------------------------------------------------------------------------------------------


def test_vectorize():
    @vectorize
    def both(x, y):
        return fs.multiply(x, y, format="bf16")

    x = np.linspace(-3, 3, 100)
    assert_same(both(x, x[::-1]), outside("multiply", fs.BF16, [x, x[::-1]])[0], x)


def python(code: str) -> str:
    settings = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "kernels")])}
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, env=settings, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip()


@pytest.mark.parametrize(
    "before",
    [pytest.param("", id="imported first"), pytest.param("first(1)", id="compiled first", marks=pytest.mark.full)],
)
def test_numba_finds_it_by_itself(before):
    """The entry point: a new process needs only `import floatsim`, before or after the first compilation."""
    points = importlib.metadata.entry_points(group="numba_extensions", name="init")
    assert "floatsim.njit:init" in {point.value for point in points}, "install the package again: pip install -e ."
    code = """
        from numba import njit

        @njit
        def first(x):
            return x + 1

        {}
        import floatsim as fs

        @njit
        def f(x):
            return fs.quantize(x, fs.E4M3), fs.add(x, x, format="fp16", rounding="RTZ")

        print(*f(0.1))
    """
    assert python(code.format(before)) == "0.1015625 0.199951171875"


@pytest.mark.full
def test_users_functions_can_be_cached(tmp_path):
    source = """
        from numba import njit
        import floatsim as fs

        @njit(cache=True)
        def f(x, params, fmt):
            y = fs.exp(x, format=fmt), fs.exp(0.5, format=fmt)
            return y, fs.quantize(x, params), fs.fma(x, x, x, format="bf16"), fs.divide(x, 3.0, format=fmt)
    """
    (tmp_path / "mine.py").write_text(textwrap.dedent(source), encoding="utf-8")
    code = f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        import mine, floatsim as fs
        print(*mine.f(0.1, fs.njit.format_params("e4m3"), fs.FP16), sum(mine.f.stats.cache_hits.values()))
    """
    assert [python(code).split()[-1] for _ in "12"] == ["0", "1"]


@contextlib.contextmanager
def processor_state(extra: int):
    """Bits of MXCSR set in this thread: 0x8040 flushes subnormals, 0x2000, 0x4000, 0x6000 round down, up, to zero."""
    libm = ctypes.CDLL(ctypes.util.find_library("m"))
    environment, changed = (ctypes.c_uint32 * 8)(), (ctypes.c_uint32 * 8)()
    assert libm.fegetenv(environment) == 0
    changed[:] = environment[:]
    changed[7] |= extra
    assert libm.fesetenv(changed) == 0
    try:
        yield
    finally:
        libm.fesetenv(environment)


@pytest.mark.skipif(
    platform.machine() != "x86_64" or sys.platform != "linux", reason="the place of MXCSR is known for x86 Linux only"
)
@pytest.mark.parametrize("state", [0x8040, 0x2000, 0x4000, 0x6000, 0xE040], ids=hex)
def test_the_processors_state_changes_nothing(state):
    """Sums and products use the hardware if a check shows that they are exact there."""
    formats = (fs.FP16, fs.BF16, fs.E4M3, fs.FP32, fs.FP64)
    for name in ("quantize", "add", "subtract", "multiply", "fma"):
        run = loop(name)
        cases = [(operands(fmt, ARITY[name], state), fs.njit.format_params(fmt)) for fmt in formats]
        want = [run(*arrays, parameters) for arrays, parameters in cases]
        with processor_state(state):
            got = [run(*arrays, parameters) for arrays, parameters in cases]
        for (arrays, _), ours, theirs in zip(cases, got, want, strict=True):
            for a, b in zip(ours, theirs, strict=True):
                assert_same(a, b, *arrays)


@pytest.mark.skipif(
    platform.machine() != "x86_64" or sys.platform != "linux", reason="the place of MXCSR is known for x86 Linux only"
)
@pytest.mark.parametrize("state", [0x8040, 0x2000, 0x4000, 0x6000], ids=hex)
def test_the_processors_state_leaves_functions_to_the_reference(state, calls):
    x = fs.quantize(o.rng("state", state).normal(size=20), "fp16")
    run, parameters = function_loop("exp"), params("fp16", rounding="RTP")
    want = run(x, parameters)
    calls.clear()
    with processor_state(state):
        got = run(x, parameters)
    assert len(calls) == 40
    for ours, theirs in zip(got, want, strict=True):
        assert_same(ours, theirs, x)


# -- bad input -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "arguments", "message"),
    [
        (lambda x: fs.quantize(x, "fp61"), (1.0,), "unknown format 'fp61'; did you mean 'fp64'"),
        (lambda x: -fs.quantize(x), (1.0,), "quantize: missing a required argument: 'format'"),
        (lambda x, fmt: -fs.quantize(x, fmt), (1.0, "fp16"), "fmt must be a literal such as 'fp16'"),
        (lambda x, fmt: fs.add(x, x, format=fmt), (1.0, 3), "format must be a literal such as 'fp16'"),
        (lambda x, fmt: fs.add(x, x, format=fmt), (1.0, (1, 2)), "format must be a literal"),
        (lambda x: fs.quantize(x, "fp16"), (1,), r"x must be a float64 or float32 number, not int64; write float\(x\)"),
        (lambda x: fs.quantize(x, "fp16"), (np.ones(3),), "x must be a float64 or float32 number, not array"),
        (lambda x: fs.add(1.0, x), (1j,), "b must be a float64 or float32 number, not complex128"),
        (lambda x: fs.quantize(x, "fp64"), (np.float32(1),), "FP32 cannot hold all values of FP64"),
        (lambda x: fs.add(x, 1.0), (np.float32(1),), "name the result's format with format="),
        (lambda x: fs.add(x, x, format="e8m0"), (1.0,), "add: E8M0 is a scale format, which has no arithmetic"),
        (lambda x: fs.add(x, x, "fp16"), (1.0,), "add: too many positional arguments"),
        (lambda x: fs.add(x, x, roundin="RTZ"), (1.0,), "unknown keyword 'roundin'; did you mean 'rounding'"),
        (lambda x: fs.add(x, x, rounding="RTX"), (1.0,), "rounding='RTX' is not known"),
        (lambda x, r: fs.add(x, x, rounding=r), (1.0, "RTZ"), "rounding must be a literal string or a member of fs.R"),
        (lambda x, r: fs.add(x, x, rounding=r), (1.0, Overflow.INFINITY), "rounding must be a literal string or a mem"),
        (lambda x: fs.add(x, x, daz=1), (1.0,), "daz must be True or False, not 1"),
        (lambda x, d: fs.add(x, x, daz=d), (1.0, 1), "daz must be a bool, not int64"),
        (lambda x: fs.add(x, x, rounding="SR"), (1.0,), "stochastic rounding needs a seed: pass seed="),
        (lambda x: fs.add(x, x, rounding="SR", seed=-1), (1.0,), "seed must be at least 0, not -1"),
        (lambda x: fs.add(x, x, rounding="SR", seed=x), (1.0,), "seed must be an integer, not float64"),
        (lambda x: fs.add(x, x, rounding="SR", seed=1, random_bits=65), (1.0,), "random_bits must be 1 to 64, not 65"),
        (lambda x, n: fs.add(x, x, random_bits=n), (1.0, 8), "random_bits must be a literal integer"),
        (lambda x, f: fs.add(x, x, return_flags=f), (1.0, True), "return_flags must be a literal True or False"),
        (lambda x: fs.quantize(x, "fp16", out=x), (1.0,), "out= does not exist in compiled code"),
        (lambda x, r: fs.quantize(x, r, ftz=True), (1.0, params("fp16")), "ftz is part of the format parameters"),
        (lambda x, n: -fs.scalb(x, n), (1.0, np.uint64(1)), "n must be a signed integer, not uint64"),
        (lambda c: 1 + fs.decode(c, "fp16"), (1,), "codes must be unsigned, not int64"),
        (lambda x: fs.decode(-1, "fp16"), (1,), "codes must be at least 0, not -1"),
        (lambda x: fs.scalb(x, 1.5), (1.0,), "n must be an integer, not float64"),
        (lambda x: fs.to_integer(x, np.float32), (1.0,), "dtype must be an integer dtype such as np.int32"),
        (lambda x, y: not fs.total_order(x, y), (1.0, np.float32(1)), "a and b have different formats"),
        (lambda x: fs.exp(x, format="e8m0"), (1.0,), "exp: E8M0 is a scale format, which has no arithmetic"),
        (lambda x: fs.gelu(x, approximate="sigmoid"), (1.0,), r"approximate must be one of \['none', 'tanh'\] in"),
        (lambda x: fs.exp2(x, approximate="flash-attention-4"), (1.0,), r"approximate must be one of \['none'\] in"),
        (lambda x, y: fs.gelu(x, approximate=y), (1.0, "tanh"), "approximate must be a literal string in compiled"),
        (lambda x: fs.njit.draw(x, 1), (1.0,), "seed must be an integer, not float64"),
    ],
)  # fmt: skip
def test_errors_while_compiling(call, arguments, message):
    with pytest.raises(TypingError, match=message):
        njit(call)(*arguments)


@pytest.mark.parametrize(
    ("call", "arguments", "error", "message"),
    [
        (lambda x, r: fs.add(x, x, format=r), (1.0, params("e8m0")), TypeError, "a scale format has no arithm"),
        (lambda x, r: fs.add(x, x, format=r), (np.float32(1), params("fp64")), TypeError, "float32 cannot"),
        (lambda x, r: fs.add(x, x, format=r), (1.0, params("fp16", rounding="SR")), ValueError, "needs a seed"),
        (lambda x, m: fs.add(x, x, rounding=m), (1.0, Rounding.STOCHASTIC), ValueError, "needs a seed: pass seed="),
        (lambda x, s: fs.add(x, x, rounding="SR", seed=s), (1.0, -1), ValueError, "seed and offset must be 0 to 2"),
    ],
)  # fmt: skip
def test_errors_at_run_time(call, arguments, error, message):
    with pytest.raises(error, match=message):
        njit(call)(*arguments)


def test_format_params_are_the_rows():
    from floatsim_kernels.rounding.integer import FORMAT_FIELDS, ROUNDING_FIELDS

    assert (*FORMAT_FIELDS, *ROUNDING_FIELDS) == fs.njit.FormatParams._fields


def test_every_scalar_function_is_there():
    """Compiled code has the functions of arithmetic.py, comparison.py and functions.py for numbers."""
    from floatsim.arrays.elementwise import arithmetic, comparison
    from floatsim.emulator.elementwise.operations import OPERATIONS

    compiled = {name: operation for name, operation in OPERATIONS.items() if operation.compiled}
    assert {*arithmetic.__all__, *comparison.__all__, *mathematical.__all__} <= set(compiled)
    for name, operation in compiled.items():
        assert set(operation.operands) <= set(inspect.signature(getattr(fs, name)).parameters)
