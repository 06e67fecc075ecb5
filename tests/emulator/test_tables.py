"""Tables hold what the integer kernels or the kernels of functions compute, and are read where the calls are long."""

import itertools

import numpy as np
import pytest

import floatsim as fs
from floatsim.arrays.call.options import resolve
from floatsim.emulator import backend as emulator
from floatsim.emulator.elementwise import pieces
from floatsim.emulator.elementwise.operations import OPERATIONS as TABLE
from floatsim.emulator.elementwise.operations import Family, arity
from tests.emulator.planning import by_integers

TWO = ("add", "subtract", "multiply", "divide", "remainder", "fmod", "minimum", "maximum_number")
ONE = ("sqrt", "rint", "floor", "ceil", "trunc")
OPTIONS = ({}, {"rounding": "RTP", "daz": True}, {"rounding": "to_odd", "ftz": True}, {"overflow": "saturate_finite"})


def reads(name, operands, **keywords):
    """Whether a call reads a table."""
    return "table" in fs.explain_plan(name, *operands, **keywords).candidate


def drawn(rng, fmt, size):
    codes = rng.choice(fmt.codes(), size)
    return fs.from_codes(codes, fmt)


def check(name, operands, keywords, fmt=None):
    pairs, fmt, options = [(x.codes, x.format) for x in operands], fmt or operands[0].format, resolve(keywords)
    want, events = by_integers(name, pairs, fmt, options)
    for want_events in False, True:
        got, happened = emulator.elementwise(name, pairs, fmt, options, want_events)
        assert np.array_equal(got, want), (name, keywords)
        assert happened is None if not want_events else np.array_equal(happened, events), (name, keywords)


@pytest.mark.parametrize("keywords", OPTIONS, ids=str)
@pytest.mark.parametrize("fmt", [fs.E4M3, fs.E5M2FNUZ, fs.E2M1, fs.FloatFormat.ieee(3, 1)], ids=lambda f: f.name)
def test_operations_of_small_formats(fmt, keywords):
    rng = np.random.default_rng(1)
    operands = drawn(rng, fmt, (150, 200)), drawn(rng, fmt, (150, 200))
    for name in TWO + ONE:
        given = operands[: arity(name)]
        check(name, given, keywords)
        for return_flags in (False, True):
            slow = TABLE[name].family is not Family.EXTREMUM
            assert reads(name, given, return_flags=return_flags, **keywords) or not slow


def test_mixed_formats_and_one_operand_of_16_bits():
    rng = np.random.default_rng(2)
    operands = drawn(rng, fs.E4M3, 1 << 14), drawn(rng, fs.E5M2, 1 << 14)
    check("add", operands, {}, fs.FP16)
    assert fs.explain_plan("add", *operands, format="fp16").candidate == "table"
    operands = (drawn(rng, fs.FP16, 1 << 14),)
    check("sqrt", operands, {"daz": True})
    for return_flags in False, True:
        assert fs.explain_plan("sqrt", *operands, daz=True, return_flags=return_flags).candidate == "last table"


@pytest.mark.parametrize("size", [(1 << 14) - 1, 1 << 14])
def test_a_table_is_made_for_a_fourth_of_its_entries(size):
    rng = np.random.default_rng(3)
    operands = drawn(rng, fs.E4M3, size), drawn(rng, fs.E4M3, size)
    check("divide", operands, {})
    assert reads("divide", operands) == (size == 1 << 14)
    assert reads("sqrt", [operands[0][:64]])
    assert not reads("sqrt", [operands[0][:63]])


def test_draws_are_not_read_from_tables():
    rng = np.random.default_rng(4)
    x = drawn(rng, fs.E4M3, 1 << 15)
    assert not reads("add", (x, x), rounding="stochastic", seed=1)
    assert not reads("exp", (x,), rounding="stochastic", seed=1)


def test_functions_of_one_and_two_operands():
    x, y = np.meshgrid(fs.E4M3.codes(), fs.E4M3.codes())
    x, y = fs.from_codes(x, "e4m3"), fs.from_codes(y, "e4m3")
    for name, operands in (("exp", (x,)), ("hypot", (x, y))):
        got, flags = getattr(fs, name)(*operands, return_flags=True)
        assert reads(name, operands, return_flags=True)
        for row in range(0, 256, 51):
            part = [z[row, :63] for z in operands]
            some, of_some = getattr(fs, name)(*part, return_flags=True)
            assert not reads(name, part, return_flags=True)
            assert np.array_equal(some.codes, got.codes[row, :63])
            assert np.array_equal(of_some, flags[row, :63])


def test_pieces_of_long_reads(monkeypatch):
    rng = np.random.default_rng(5)
    x, y = drawn(rng, fs.E4M3, 1 << 15), drawn(rng, fs.E4M3, 1 << 15)
    whole = fs.add(x, y, return_flags=True)
    for name, length in itertools.product(("PIECE", "_LONG_PIECE"), (999, 1 << 14)):
        monkeypatch.setattr(pieces, name, length)
        part = fs.add(x, y, return_flags=True)
        assert np.array_equal(part[0].codes, whole[0].codes)
        assert np.array_equal(part[1], whole[1])
        assert np.array_equal(fs.add(x, y).codes, whole[0].codes)
