"""Test vectors for operations of CUDA cores tell all rounding modes apart. The expected results are stated."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import floatsim as fs
from floatsim.hardware.scalar_vectors import expected_results, operands_of, scalar_keywords, scalar_results
from floatsim.hardware.tables.ptx_scalar import SCALARS
from floatsim.reference.random import draws
from floatsim.testing.vectors import scalar_inputs as inputs
from floatsim.testing.vectors.dot_inputs import digest_of

pytestmark = pytest.mark.full

ROUNDINGS = ("ties_to_even", "ties_to_away", "toward_zero", "toward_positive", "toward_negative", "to_odd")
ROUNDED = list({(r.operation, r.source, r.result, r.overflow, r.flushes): r for r in SCALARS if r.rounding}.values())


def arguments(row):
    """Return the operands of a row as FloatArrays, without random bits."""
    arity = inputs.ARITY.get(row.operation, 2)
    return [fs.from_codes(x, row.source) for x in operands_of(row)[:arity]]


def results(row, operands, rounding):
    keywords = {name: value for name, value in scalar_keywords(row).items() if name != "random_bits"}
    keywords["rounding"] = rounding
    if row.operation == "convert":
        return fs.convert(operands[0], row.result, **keywords).codes
    return getattr(fs, row.operation)(*operands, **keywords).codes


def cannot_differ(row):
    """Return the pairs of rounding modes that no input tells apart.

    No square root is negative, or a midpoint. A quotient is a midpoint only if it is subnormal.
    """
    nearest = ("ties_to_even", "ties_to_away")
    if row.operation == "divide" and row.flushes == ((True, True),):
        return {nearest}
    return {nearest, ("toward_zero", "toward_negative")} if row.operation == "sqrt" else set()


@pytest.mark.parametrize("row", ROUNDED, ids=str)
def test_inputs_tell_all_rounding_modes_apart(row):
    operands = arguments(row)
    of = {rounding: results(row, operands, rounding) for rounding in ROUNDINGS}
    for first, second in itertools.combinations(ROUNDINGS, 2):
        differ = int(np.count_nonzero(of[first] != of[second]))
        assert (differ == 0) is ((first, second) in cannot_differ(row)), (first, second, differ)


CONVERSIONS = list({(r.source, r.result): r for r in SCALARS if r.operation == "convert"}.values())
WIDE = [r for r in CONVERSIONS if r.source.bits > 16 and r.result.trailing_bits < r.source.trailing_bits]


@pytest.mark.parametrize("row", WIDE, ids=str)
def test_inputs_tell_nearest_modes_apart_in_every_binade(row):
    """Ties to even differs from ties to away at every second midpoint. Each is an input, and so are its neighbours."""
    (x,) = arguments(row)
    even, away, zero = (results(row, [x], rounding) for rounding in ("ties_to_even", "ties_to_away", "toward_zero"))
    fmt = row.result
    binades = set(range(fmt.max_code + 1 >> fmt.trailing_bits))
    finite = (zero & fmt.code_dtype.type(fmt.magnitude_mask)) <= fmt.max_code
    for differ in (even != away, even != zero, away != zero):
        codes = zero[differ & finite] & fmt.code_dtype.type(fmt.magnitude_mask)
        assert set((codes >> fmt.trailing_bits).tolist()) >= binades
    if fmt.max_code < 1 << 15 and row.source == fs.FP32:  # every midpoint, of both signs
        assert len(np.unique(zero[even != away])) == 2 * ((fmt.max_code + 1) // 2)


@pytest.mark.parametrize("row", [r for r in WIDE if r.source == fs.FP64 and r.result != fs.FP32], ids=str)
def test_inputs_tell_double_rounding_apart(row):
    """FP32 rounds some inputs to a midpoint. A conversion that goes through FP32 rounds them again."""
    (x,) = arguments(row)
    once = results(row, [x], "ties_to_even")
    twice = fs.convert(fs.convert(x, fs.FP32), row.result, overflow=row.overflow).codes
    assert np.count_nonzero(once != twice) > 5000


@pytest.mark.parametrize("row", CONVERSIONS, ids=str)
def test_inputs_have_all_codes_or_all_special_values(row):
    (x,) = operands_of(row)[:1]
    assert len(x) < 1.05 * 2**18
    if row.source.bits <= 16:
        assert np.array_equal(x, np.arange(1 << row.source.bits))
        return
    given, fmt = set(x.tolist()), row.source
    infinity, t = fmt.infinity_code, fmt.trailing_bits
    for sign in (0, fmt.sign_mask):
        assert {sign | code for code in (0, 1, (1 << t) - 1, 1 << t, fmt.max_code, infinity)} <= given
        assert {sign | 1 << i for i in range(t)} <= given  # subnormal numbers
        assert {sign | infinity | 1 << i for i in range(t)} <= given  # NaNs, also those whose set bits are all dropped
        assert sign | infinity | (1 << t) - 1 in given


def test_inputs_are_the_same_everywhere():
    """Captures store these digests. A change of a digest requires a change of `inputs.SCALAR_GENERATOR`."""
    assert inputs.SCALAR_GENERATOR == 1
    assert {key: digest_of(inputs.scalar_inputs(*key)) for key in DIGESTS} == DIGESTS
    assert digest_of(inputs.scalar_inputs("fma", fs.FP32, fs.FP32, seed=1)) not in DIGESTS.values()


DIGESTS = {
    ("convert", fs.FP32, fs.E4M3): "1907f77c8f160e9ce18af81500ed8d2f263dd82c0089c0c2d9d3a109150f285e",
    ("convert", fs.FP32, fs.TF32): "40d16c8f9c166ea40224eb6bdd422aa60c3c8dd3027b20aa2e49b1f175500500",
    ("convert", fs.FP64, fs.FP16): "74a34026ba5be79f13ea09311cbd070fbbf755c45e1052ec5625d847f51da6ec",
    ("convert", fs.FP32, fs.FP64): "a109c56c7f7caa745a014377b135dc7bfee9c70875631ac71e3bbabd0f13b3ab",
    ("fma", fs.FP32, fs.FP32): "f63c748f1b8daaaeebc1fb5b7ecd0efdbd0744f12c3cfd5329cd2831c4e00e79",
    ("divide", fs.FP64, fs.FP64): "db0caa0844bcaa889cfe9d452be69430d2791d5bcb8795f925e8d8255477816e",
    ("add", fs.BF16, fs.BF16): "b2ae9f215feea26a67c433ad898112dfabbcf6c75769004f47624a3c647d9dac",
    ("sqrt", fs.FP32, fs.FP32): "4430e3ed75ecd9d468bbdb510208faa4c71594fae938ec218fccf4eac7f41d99",
}


# -- expected results --------------------------------------------------------------------------------------------------


def test_nans_that_lose_all_their_bits_become_infinities():
    """The machine code of sm_80: FSETP |x| < inf, IADD 0x1000, LOP3 0xffffe000; FSETP |x| >= inf, IADD -0x2000."""
    rows = {r.overflow: r for r in SCALARS if (r.result, r.rounding) == (fs.TF32, fs.Rounding.TIES_TO_AWAY)}
    assert set(rows) == {fs.Overflow.INFINITY, fs.Overflow.SATURATE_FINITE}
    for policy, row in rows.items():
        (x,) = arguments(row)
        words = x.codes.astype(np.int64)
        finite = words & 0x7FFFFFFF < 0x7F800000
        wanted = np.where(finite, words + 0x1000, words) & 0xFFFFE000
        if policy is fs.Overflow.SATURATE_FINITE:
            wanted = np.where(wanted & 0x7FFFFFFF >= 0x7F800000, wanted - 0x2000, wanted)
        found = expected_results(row, [x])
        same = (found.codes == wanted >> 13) | fs.isnan(found) & fs.isnan(fs.from_codes((wanted >> 13), fs.TF32))
        assert same.all()
        emulated = results(row, [x], row.rounding)
        changed = np.isfinite(found.values) | np.isinf(found.values)
        assert np.count_nonzero(fs.isnan(fs.from_codes(emulated, fs.TF32)) & changed) > 20
    by_hand = {
        0x7F800001: ("inf", "max"),
        0xFF801FFF: ("-inf", "-max"),
        0x7F802000: ("nan", "inf"),
        0x7FC00000: ("nan", "nan"),
    }
    for code, texts in by_hand.items():
        for row, text in zip((rows[fs.Overflow.INFINITY], rows[fs.Overflow.SATURATE_FINITE]), texts, strict=True):
            value = float(expected_results(row, [fs.from_codes([code], fs.FP32)]).values[0])
            named = {fs.TF32.max: "max", -fs.TF32.max: "-max"}.get(value, str(value))
            assert named == text, hex(code)


@pytest.mark.parametrize("row", [r for r in SCALARS if r.random_bits], ids=str)
def test_stochastic_rounding_by_given_bits(row):
    """The emulated device adds the given bits to the discarded ones. `fs.convert` draws the same bits from the seed."""
    x, random = operands_of(row, seed=5)
    assert np.array_equal(random, draws(5, 0, len(x), row.random_bits))
    found = fs.from_codes(scalar_results(row, x, random), row.result)
    expected = expected_results(row, [fs.from_codes(x, row.source)], seed=5)
    same = (found.codes == expected.codes) | fs.isnan(found) & fs.isnan(expected)
    assert same.all()
    up, down = (scalar_results(row, x, np.full_like(random, bits)) for bits in (0, (1 << row.random_bits) - 1))
    assert np.count_nonzero(up != down) > 500


def test_options_can_be_replaced():
    row = next(r for r in SCALARS if r.flushes == ((True, False), (True, True)))
    operands = arguments(row)
    for daz, ftz in row.flushes:
        assert np.array_equal(
            expected_results(row, operands, daz=daz, ftz=ftz).codes, expected_results(row, operands).codes
        )
