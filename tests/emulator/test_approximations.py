"""The kernel of approximations and the readable specification are equal."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import floatsim as fs
from floatsim.emulator.elementwise import pieces
from floatsim.reference import special_functions
from floatsim.tensorcore.special_functions import FORMS, as_unit
from tests.marks import cases

FORMS_OF_ONE = [(name, fmt, ftz) for name in FORMS if name != "div" for fmt in FORMS[name] for ftz in FORMS[name][fmt]]
QUICK = [form for n, form in enumerate(f for f in FORMS_OF_ONE if f[1] is fs.FP32) if n % 4 in (0, 3)]


def hard_codes(rng):
    """FP32 codes of every sign and exponent: powers of two, ends of segments and of octaves, 2 pi, and random ones."""
    ends = [k << 16 | low for k in (0, 1, 2, 63, 64, 126, 127) for low in (0, 1, 0xFFFE, 0xFFFF)]
    trailing = np.array([*ends, 0x490FDA, 0x490FDB, 0x490FDC, *rng.integers(0, 1 << 23, 13)], np.uint32)
    return (np.arange(512, dtype=np.uint32)[:, None] << np.uint32(23) | trailing).reshape(-1)


def in_range_of(name, rng, size):
    """Codes of arguments for which a function is interesting, and of arguments whose forms without .ftz are scaled."""
    magnitudes = rng.integers(0x3B000000, 0x41800000, size)
    scaled = np.concatenate([rng.integers(1, 1 << 23, size // 4), rng.integers(0x7E000000, 0x7F800000, size // 4)])
    both = np.concatenate([magnitudes, scaled])
    codes = both | rng.integers(0, 2, both.size) << 31
    return np.concatenate([codes, rng.integers(0xC2F00000, 0xC3180000, size // 4)]).astype(np.uint32)


@pytest.mark.parametrize(("name", "fmt", "ftz"), cases(
    quick=[pytest.param(*form, id=f"{form[0]}-{form[1].name}-{form[2]}") for form in QUICK],
    full=[pytest.param(*form, id=f"{form[0]}-{form[1].name}-{form[2]}") for form in FORMS_OF_ONE],
))  # fmt: skip
def test_functions(name, fmt, ftz):
    rng = np.random.default_rng([42, ftz, *name.encode()])
    codes = fmt.codes() if fmt.bits == 16 else np.concatenate([hard_codes(rng), in_range_of(name, rng, 4000)])
    got = getattr(fs.approx, name)(fs.from_codes(codes, fmt), ftz=ftz).codes
    want = [special_functions.approximate(name, code, fmt, ftz=ftz) for code in codes.tolist()]
    assert np.array_equal(got, np.array(want, fmt.code_dtype))


@pytest.mark.parametrize("ftz", [False, True])
def test_quotients(ftz):
    rng = np.random.default_rng(ftz)
    special = [0, 1, 0x7FFFFF, 0x800000, 0x3F800000, 0x7E800000, 0x7E800001, 0x7F7FFFFF, 0x7F800000, 0x7FC00000]
    signed = [code | sign for code in special for sign in (0, 1 << 31)]
    pairs = np.array(list(itertools.product(signed, signed)), np.uint32)
    drawn = rng.integers(0, 1 << 32, (4000, 2), np.uint32)
    a, b = np.concatenate([pairs, drawn, drawn + np.uint32([0, 1])]).T
    near = np.uint32(0x00800000) + rng.integers(-3, 4, 2000).astype(np.uint32)  # results at the least normal number
    a, b = (
        np.concatenate([a, near]),
        np.concatenate([b, np.uint32(0x3F800000) + rng.integers(0, 4, 2000).astype(np.uint32)]),
    )
    got = fs.approx.div(fs.from_codes(a, "fp32"), fs.from_codes(b, "fp32"), ftz=ftz).codes
    want = [special_functions.divide(*pair, ftz=ftz) for pair in zip(a.tolist(), b.tolist(), strict=True)]
    assert np.array_equal(got, np.array(want, np.uint32))


def test_pieces_of_every_length(monkeypatch):
    monkeypatch.setattr(pieces, "PIECE", 1000)
    codes = np.random.default_rng(3).integers(0, 1 << 32, 2600, np.uint32)
    for name in ("sin", "div", "ex2"):
        function = getattr(fs.approx, name)

        def call(x, function=function, arity=1 + (name == "div")):
            return function(*[fs.from_codes(x, "fp32")] * arity).codes

        for size in (0, 1, 511, 512, 513, 1000, 1001, 2600):
            assert np.array_equal(call(codes[:size]), call(codes)[:size]), (name, size)


def test_the_square_is_that_of_the_upper_15_bits():
    """The kernel squares 15 bits: the lower ones of longer operands have no partial product that is kept."""
    for bits in (16, 17):
        for x in np.random.default_rng(bits).integers(0, 1 << bits, 300).tolist():
            upper = x >> bits - 15
            assert special_functions.truncated_square(x, bits) == special_functions.truncated_square(upper, 15)
            assert 0 <= (x * x >> 2 * bits - 15) - special_functions.truncated_square(x, bits) <= 8


def test_coefficients_have_the_published_widths():
    """C0, C1 and C2 have at most 26, 17 and 11 bits, and each function at most one quadratic for each segment."""
    unit = as_unit("sm_90")
    assert {name: len(each.rows) for name, each in unit.interpolators.items()} == {
        "ex2": 64, "rcp": 128, "rsqrt": 128, "sqrt": 128, "lg2": 64, "sin": 64, "tanh": 51,
    }  # fmt: skip
    for name, each in unit.interpolators.items():
        assert not each.segments or sum(each.segments) == len(each.rows)
        if name != "tanh":  # its rows have units of 2**-24
            assert all(0 <= c0 < 1 << 26 and abs(c1) < 1 << 17 and abs(c2) < 1 << 11 for c0, c1, c2 in each.rows), name


@pytest.mark.parametrize("name", ["ex2", "rcp", "rsqrt", "sqrt", "lg2", "sin"])
def test_polynomials_meet_at_the_ends_of_segments(name):
    """Neighbouring polynomials differ by less than 3 * 2**-23 at their common end: no row is out of place."""
    table = as_unit("sm_90").interpolator(name)
    square = 2.0**15
    octaves = np.split(np.array(table.rows, float), 2) if name in ("rsqrt", "sqrt") else [np.array(table.rows, float)]
    for rows in octaves:
        c0, c1, c2 = rows.T
        ends = c0 * 2.0**table.c0_shift + c1 * 2.0**table.low_bits + c2 * 2.0**table.c2_shift * square
        jumps = (ends[:-1] - (c0 * 2.0**table.c0_shift)[1:]) / 2.0 ** (table.dropped_bits + table.fraction_bits - 23)
        assert np.abs(jumps).max() < 3
