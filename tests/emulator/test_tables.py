"""Tables hold what the integer kernels or the kernels of functions compute, and are read where the calls are long."""

import itertools

import numpy as np
import pytest

import floatsim as fs
from floatsim.arrays.options import resolve
from floatsim.emulator import elementwise, pieces, tables

TWO = ("add", "subtract", "multiply", "divide", "remainder", "fmod", "minimum", "maximum_number")
ONE = ("sqrt", "rint", "floor", "ceil", "trunc")
OPTIONS = ({}, {"rounding": "RTP", "daz": True}, {"rounding": "to_odd", "ftz": True}, {"overflow": "saturate_finite"})


@pytest.fixture
def reads(monkeypatch):
    """Count the calls that read tables."""
    found = []
    reader = tables.reader
    monkeypatch.setattr(tables, "reader", lambda *args: (found.append(args[1]), reader(*args))[1])
    return found


def drawn(rng, fmt, size):
    codes = rng.choice(fmt.codes(), size)
    return fs.from_codes(codes, fmt)


def check(name, operands, keywords, fmt=None):
    pairs, fmt, options = [(x.codes, x.format) for x in operands], fmt or operands[0].format, resolve(keywords)
    want, events = elementwise.by_integers(name, pairs, operands[0].shape, fmt, options)
    for want_events in False, True:
        got, happened = elementwise.elementwise(name, pairs, fmt, options, want_events)
        assert np.array_equal(got, want), (name, keywords)
        assert happened is None if not want_events else np.array_equal(happened, events), (name, keywords)


@pytest.mark.parametrize("keywords", OPTIONS, ids=str)
@pytest.mark.parametrize("fmt", [fs.E4M3, fs.E5M2FNUZ, fs.E2M1, fs.FloatFormat.ieee(3, 1)], ids=lambda f: f.name)
def test_operations_of_small_formats(fmt, keywords, reads):
    rng = np.random.default_rng(1)
    operands = drawn(rng, fmt, (150, 200)), drawn(rng, fmt, (150, 200))
    for name in TWO:
        check(name, operands, keywords)
    for name in ONE:
        check(name, operands[:1], keywords)
    assert len(reads) >= 2 * (len(TWO) - 2 + len(ONE))


def test_mixed_formats_and_one_operand_of_16_bits(reads):
    rng = np.random.default_rng(2)
    check("add", (drawn(rng, fs.E4M3, 1 << 14), drawn(rng, fs.E5M2, 1 << 14)), {}, fs.FP16)
    check("sqrt", (drawn(rng, fs.FP16, 1 << 14),), {"daz": True})
    assert reads == ["add"] * 2 + ["sqrt"] * 2


@pytest.mark.parametrize("size", [(1 << 14) - 1, 1 << 14])
def test_a_table_is_made_for_a_fourth_of_its_entries(size, reads):
    rng = np.random.default_rng(3)
    check("divide", (drawn(rng, fs.E4M3, size), drawn(rng, fs.E4M3, size)), {})
    assert len(reads) == (2 if size == 1 << 14 else 0)


def test_draws_are_not_read_from_tables(reads):
    rng = np.random.default_rng(4)
    x = drawn(rng, fs.E4M3, 1 << 15)
    fs.add(x, x, rounding="stochastic", seed=1)
    fs.exp(x, rounding="stochastic", seed=1)
    assert not reads


def test_functions_of_one_and_two_operands(reads):
    x, y = np.meshgrid(fs.E4M3.codes(), fs.E4M3.codes())
    x, y = fs.from_codes(x, "e4m3"), fs.from_codes(y, "e4m3")
    for name, operands in (("exp", (x,)), ("hypot", (x, y))):
        reads.clear()
        got, flags = getattr(fs, name)(*operands, return_flags=True)
        assert reads[0] == name
        for row in range(0, 256, 51):
            some, of_some = getattr(fs, name)(*(z[row, :63] for z in operands), return_flags=True)
            assert np.array_equal(some.codes, got.codes[row, :63])
            assert np.array_equal(of_some, flags[row, :63])
        assert reads.count(name) == 1


def test_pieces_of_long_reads(monkeypatch):
    rng = np.random.default_rng(5)
    x, y = drawn(rng, fs.E4M3, 1 << 15), drawn(rng, fs.E4M3, 1 << 15)
    whole = fs.add(x, y, return_flags=True)
    for name, length in itertools.product(("_PIECE", "_LONG_PIECE"), (999, 1 << 14)):
        monkeypatch.setattr(pieces, name, length)
        part = fs.add(x, y, return_flags=True)
        assert np.array_equal(part[0].codes, whole[0].codes)
        assert np.array_equal(part[1], whole[1])
        assert np.array_equal(fs.add(x, y).codes, whole[0].codes)
