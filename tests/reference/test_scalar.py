"""The reference compared with each sentence of the definitions, and with `oracles` on all values of small formats.

test_scalar_mpfr.py compares it with MPFR. test_traps.py has known traps.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
import oracles as o
import pytest
from oracles import DETERMINISTIC, POLICIES, TININESS, OracleRounding

import floatsim as fs
from floatsim import Overflow, Rounding, Tininess, reference
from floatsim.reference import RoundingAttributes

pytestmark = pytest.mark.formats

INF, SAT, PROP = POLICIES
INEXACT, UNDERFLOW, OVERFLOW = fs.INEXACT, fs.UNDERFLOW, fs.OVERFLOW
FLAGS = 31
ids = {"ids": lambda x: getattr(x, "name", str(x))}
EVERY_ROUNDING = o.every_rounding()


def rounded(x, fmt, rounding=Rounding.TIES_TO_EVEN, overflow=INF, **more):
    """(code, flags) of an exact number."""
    code, events = reference.round_pack(
        reference.from_fraction(Fraction(x)), fmt, RoundingAttributes(rounding, overflow, **more)
    )
    return code, events & FLAGS


def converted(code, source, fmt, rounding=Rounding.TIES_TO_EVEN, overflow=INF, **more):
    code, events = reference.convert(
        reference.decode(code, source), fmt, RoundingAttributes(rounding, overflow, **more)
    )
    return code, events & FLAGS


# -- overflow ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fmt", [*o.ARITHMETIC, *o.CUSTOM], **ids)
def test_overflow_in_every_policy_and_mode(fmt):
    """Far beyond max: OVERFLOW|INEXACT always. The test spells out the code of every case."""
    far = Fraction(fmt.max) * 4
    max_of = (fmt.max_code, fmt.sign_mask | fmt.max_code)
    if fmt.has_infinity:
        beyond = (fmt.infinity_code, fmt.sign_mask | fmt.infinity_code)
    elif fmt.has_nan:
        beyond = (fmt.canonical_nan, fmt.canonical_nan)
    else:
        beyond = max_of
    for sign, rounding in itertools.product((0, 1), DETERMINISTIC):
        x = -far if sign else far
        for policy in (SAT, PROP):
            assert rounded(x, fmt, rounding, policy) == (max_of[sign], OVERFLOW | INEXACT)
        stays = {
            Rounding.TIES_TO_EVEN: False, Rounding.TIES_TO_AWAY: False, Rounding.TOWARD_ZERO: True,
            Rounding.TO_ODD: True, Rounding.TOWARD_POSITIVE: sign == 1, Rounding.TOWARD_NEGATIVE: sign == 0,
        }[rounding]  # fmt: skip
        assert rounded(x, fmt, rounding) == ((max_of if stays else beyond)[sign], OVERFLOW | INEXACT)


def test_round_first_then_test():
    """A magnitude beyond max that rounds to max is no overflow, under every policy."""
    for policy in POLICIES:
        assert rounded(Fraction(65519), fs.FP16, overflow=policy) == (0x7BFF, INEXACT)
        assert rounded(Fraction(463), fs.E4M3, overflow=policy) == (0x7E, INEXACT)
        assert rounded(Fraction(464), fs.E4M3, overflow=policy) == (0x7E, INEXACT)
        assert rounded(Fraction(479), fs.E4M3, Rounding.TOWARD_ZERO, policy) == (0x7E, INEXACT)
        assert rounded(Fraction(480), fs.E4M3, Rounding.TOWARD_ZERO, policy) == (0x7E, INEXACT | OVERFLOW)


def test_e4m3_around_464():
    assert rounded(464, fs.E4M3) == (0x7E, INEXACT)
    assert rounded(Fraction(464) + Fraction(1, 2**200), fs.E4M3) == (0x7F, OVERFLOW | INEXACT)
    assert rounded(-464, fs.E4M3) == (0xFE, INEXACT)
    assert rounded(-465, fs.E4M3) == (0x7F, OVERFLOW | INEXACT)  # NaN is canonical: sign 0
    assert rounded(464, fs.E4M3, Rounding.TIES_TO_AWAY) == (0x7F, OVERFLOW | INEXACT)


def test_round_to_odd_beyond_max_gives_max_even_where_max_is_even():
    assert rounded(449, fs.E4M3, Rounding.TO_ODD) == (0x7E, OVERFLOW | INEXACT)
    assert rounded(-1000, fs.E4M3, Rounding.TO_ODD) == (0xFE, OVERFLOW | INEXACT)
    assert rounded(65505, fs.FP16, Rounding.TO_ODD) == (0x7BFF, INEXACT)  # max is odd here: no overflow below 65536
    assert rounded(65536, fs.FP16, Rounding.TO_ODD) == (0x7BFF, OVERFLOW | INEXACT)


INFINITE_OPERAND = [
    (fs.FP16, 0x7C00, 0x7BFF, 0x7C00), (fs.BF16, 0x7F80, 0x7F7F, 0x7F80), (fs.E5M2, 0x7C, 0x7B, 0x7C),
    (fs.E4M3, 0x7F, 0x7E, 0x7F), (fs.E4M3FNUZ, 0x80, 0x7F, 0x80), (fs.E4M3IEEE, 0x78, 0x77, 0x78),
    (fs.E3M2, 0x1F, 0x1F, 0x1F), (fs.E2M1, 0x7, 0x7, 0x7), (fs.E8M0, 0xFF, 0xFF, 0xFF),
]  # fmt: skip


@pytest.mark.parametrize(("fmt", "infinity", "finite", "propagate"), INFINITE_OPERAND, **ids)
def test_an_infinite_operand_raises_nothing(fmt, infinity, finite, propagate):
    for rounding in DETERMINISTIC:  # the direction does not matter: nothing is rounded
        assert converted(0x7F800000, fs.FP32, fmt, rounding, INF) == (infinity, 0)
        assert converted(0x7F800000, fs.FP32, fmt, rounding, SAT) == (finite, 0)
        assert converted(0x7F800000, fs.FP32, fmt, rounding, PROP) == (propagate, 0)
        if fmt.has_infinity:
            assert converted(0xFF800000, fs.FP32, fmt, rounding, INF) == (infinity | fmt.sign_mask, 0)
            assert converted(0xFF800000, fs.FP32, fmt, rounding, SAT) == (finite | fmt.sign_mask, 0)


def test_saturation_clamps_infinities_in_conversions_only():
    infinity, one = reference.decode(0x7C00, fs.FP16), reference.decode(0x3C00, fs.FP16)
    attributes = RoundingAttributes(overflow=SAT)
    assert reference.convert(infinity, fs.FP16, attributes) == (0x7BFF, 0)
    assert reference.add(infinity, one, fs.FP16, attributes) == (0x7C00, 0)
    assert reference.multiply(infinity, one, fs.FP16, attributes) == (0x7C00, 0)
    assert reference.divide(one, reference.decode(0, fs.FP16), fs.FP16, attributes) == (0x7C00, fs.DIVIDE_BY_ZERO)


@pytest.mark.parametrize("fmt", [fs.E3M2, fs.E2M3, fs.E2M1], **ids)
def test_finite_formats_saturate_in_every_policy(fmt):
    for policy, rounding in itertools.product(POLICIES, DETERMINISTIC):
        assert rounded(1000, fmt, rounding, policy) == (fmt.max_code, OVERFLOW | INEXACT)
        assert rounded(-1000, fmt, rounding, policy) == (fmt.sign_mask | fmt.max_code, OVERFLOW | INEXACT)
        assert converted(0x7FC00000, fs.FP32, fmt, rounding, policy) == (fmt.max_code, fs.INVALID)
        assert converted(0xFFC00000, fs.FP32, fmt, rounding, policy) == (fmt.max_code, fs.INVALID)
        assert converted(0x7F800001, fs.FP32, fmt, rounding, policy) == (fmt.max_code, fs.INVALID)
        zero = reference.decode(0, fmt)
        assert reference.divide(zero, zero, fmt, RoundingAttributes(rounding, policy)) == (fmt.max_code, fs.INVALID)


# -- tininess, FTZ, DAZ --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fmt", [fs.FP64, fs.FP32, fs.FP16, fs.BF16, fs.E4M3, fs.E5M2FNUZ, fs.E2M1, *o.CUSTOM], **ids)
def test_tininess_around_the_smallest_normal(fmt):
    """Between the largest p-bit number below 2^emin and 2^emin, every quarter and beside it."""
    at = o.layout(fmt)
    low, high = at.below_normal, at.least_normal
    for k in range(9):
        for nudge in (-1, 0, 1):
            x = low + (high - low) * (Fraction(k, 8) + Fraction(nudge, 2**100))
            for sign, rounding, tininess in itertools.product((0, 1), DETERMINISTIC, TININESS):
                oracle_rounding = OracleRounding(rounding, tininess=tininess)
                want = o.Rounder(x, sign, fmt)(oracle_rounding)
                number = reference.from_fraction(-x if sign else x)
                assert reference.round_pack(number, fmt, oracle_rounding.attributes) == want, o.report(
                    "", fmt, oracle_rounding, (), x, want
                )
    # and by hand: three quarters of the way rounds to 2^emin with unbounded exponent, a quarter does not
    quarter, three = low + (high - low) / 4, low + (high - low) * 3 / 4
    for x, tiny in ((quarter, True), (three, False), ((low + high) / 2, False)):
        assert bool(rounded(x, fmt)[1] & UNDERFLOW) == tiny
        assert rounded(x, fmt, tininess=Tininess.BEFORE)[1] & UNDERFLOW
    assert not rounded(high, fmt, tininess=Tininess.BEFORE)[1]


@pytest.mark.parametrize("fmt", [f for f in o.ARITHMETIC if f.bits <= 16], **ids)
def test_an_exact_subnormal_raises_nothing_and_ftz_flushes_it(fmt):
    for code in list(range(1, 1 << fmt.trailing_bits))[:: max(1, (1 << fmt.trailing_bits) // 40)]:
        for sign in (0, fmt.sign_mask):
            zero = sign if fmt.has_signed_zero else 0
            number = reference.decode(code | sign, fmt)
            for tininess in TININESS:
                for rounding in DETERMINISTIC:
                    plain = reference.convert(number, fmt, RoundingAttributes(rounding, tininess=tininess))
                    assert plain == (code | sign, o.SUBNORMAL)
                    flushed = reference.convert(number, fmt, RoundingAttributes(rounding, ftz=True, tininess=tininess))
                    assert flushed == (zero, UNDERFLOW | INEXACT | o.FLUSHED)
                    assert reference.convert(
                        reference.decode(code | sign, fmt, daz=True), fmt, RoundingAttributes()
                    ) == (
                        zero,
                        0,
                    )


def test_ftz_follows_the_chosen_tininess_rule():
    """FP16, three quarters of the last step below 2^-14: not tiny after rounding, tiny before."""
    x = Fraction(1, 2**14) - Fraction(1, 2**28)
    assert rounded(x, fs.FP16, ftz=True) == (0x0400, INEXACT)
    assert rounded(x, fs.FP16, ftz=True, tininess=Tininess.BEFORE) == (0, UNDERFLOW | INEXACT)
    assert rounded(-x, fs.FP16, ftz=True, tininess=Tininess.BEFORE) == (0x8000, UNDERFLOW | INEXACT)


def test_ftz_does_not_round_up_in_directed_modes():
    assert rounded(Fraction(1, 2**30), fs.FP16, Rounding.TOWARD_POSITIVE) == (1, UNDERFLOW | INEXACT)
    assert rounded(Fraction(1, 2**30), fs.FP16, Rounding.TOWARD_POSITIVE, ftz=True) == (0, UNDERFLOW | INEXACT)


def test_daz_reads_zeros_in_every_operation():
    tiny, one = reference.decode(0x8001, fs.FP16, daz=True), reference.decode(0x3C00, fs.FP16, daz=True)
    attributes = RoundingAttributes(daz=True)
    assert reference.add(tiny, tiny, fs.FP16, attributes) == (0x8000, 0)
    assert reference.divide(one, tiny, fs.FP16, attributes) == (0xFC00, fs.DIVIDE_BY_ZERO)
    assert reference.sqrt(tiny, fs.FP16, attributes) == (0x8000, 0)
    assert reference.compare(tiny, reference.decode(0, fs.FP16)) == (0, 0)
    assert reference.rint(tiny, fs.FP16, RoundingAttributes(Rounding.TOWARD_NEGATIVE)) == (0x8000, 0)


# -- special formats ------------------------------------------------------------------------------------------------


def test_fnuz_has_one_zero_and_one_nan():
    for fmt in (fs.E4M3FNUZ, fs.E5M2FNUZ, fs.E4M3B11FNUZ):
        assert converted(0x80000000, fs.FP32, fmt) == (0, 0)
        assert converted(0xFFC00000, fs.FP32, fmt) == (0x80, 0)
        assert reference.decode(0x80, fmt).is_nan
        tiny = reference.decode(0x81, fmt)
        assert reference.multiply(tiny, tiny, fmt, RoundingAttributes())[0] == 0
        assert reference.multiply(tiny, reference.decode(0x01, fmt), fmt, RoundingAttributes()) == (0, 3 | o.FLUSHED)
        assert reference.subtract(tiny, tiny, fmt, RoundingAttributes(Rounding.TOWARD_NEGATIVE)) == (0, 0)
        assert reference.add(reference.decode(0x80, fmt), tiny, fmt, RoundingAttributes()) == (0x80, 0)  # quiet


E8M0_CASES = [
    (0.0, 0xFF, 16), (-0.0, 0xFF, 16), (-1.0, 0xFF, 16), (math.inf, 0xFF, 0), (math.nan, 0xFF, 0),
    (1.0, 127, 0), (1.49, 127, 1), (1.5, 128, 1), (3.0, 129, 1), (2.0**-127, 0, 0), (2.0**-128, 0, 3),
    (1.9 * 2.0**-128, 0, 3), (2.0**127, 254, 0), (1.49 * 2.0**127, 254, 1), (1.5 * 2.0**127, 0xFF, 5),
    (2.0**128, 0xFF, 5), (5e-324, 0, 3), (1.7e308, 0xFF, 5),
]  # fmt: skip


@pytest.mark.parametrize(("x", "code", "flags"), E8M0_CASES, ids=str)
def test_e8m0(x, code, flags):
    given = int(np.float64(x).view(np.uint64))
    assert converted(given, fs.FP64, fs.E8M0) == (code, flags)
    for policy in (SAT, PROP):
        assert converted(given, fs.FP64, fs.E8M0, overflow=policy) == (254 if flags == 5 else code, flags)


def test_e8m0_directed():
    x = 1.25
    given = int(np.float64(x).view(np.uint64))
    up = {Rounding.TOWARD_POSITIVE}
    for rounding in DETERMINISTIC:
        assert converted(given, fs.FP64, fs.E8M0, rounding) == (127 + (rounding in up), 1)


def test_p_1_ties_go_to_the_even_significand():
    """Between 2^e (significand 1, odd) and 2^(e+1) (significand 2 of the same unit, even) a tie goes up."""
    fmt = fs.FloatFormat("powers", 4, 0, "fn")
    assert fmt.precision == 1
    one = fmt.bias
    assert rounded(Fraction(3, 2), fmt) == (one + 1, INEXACT)
    assert rounded(Fraction(3), fmt) == (one + 2, INEXACT)
    assert rounded(Fraction(fmt.smallest_normal) / 2, fmt) == (0, INEXACT | UNDERFLOW)  # 0 is even
    assert rounded(Fraction(3, 2), fmt, Rounding.TO_ODD) == (one, INEXACT)


# -- NaN ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fmt", [f for f in o.ARITHMETIC if f.has_nan], **ids)
def test_arithmetic_gives_the_canonical_nan(fmt):
    at = o.layout(fmt)
    nans = [c for c in o.special_codes(fmt).tolist() if at.decode(c).is_nan]
    assert nans
    one = reference.decode(fmt.bias << fmt.trailing_bits, fmt)
    for code in nans:
        invalid = fs.INVALID if at.decode(code).kind == "snan" else 0
        number = reference.decode(code, fmt)
        want = (fmt.canonical_nan, invalid)
        attributes = RoundingAttributes()
        for operation in (reference.add, reference.subtract, reference.multiply, reference.divide, reference.fmod,
                          reference.remainder, reference.minimum, reference.maximum):  # fmt: skip
            assert operation(number, one, fmt, attributes) == want
            assert operation(one, number, fmt, attributes) == want
        assert reference.sqrt(number, fmt, attributes) == want
        assert reference.rint(number, fmt, attributes) == want
        assert reference.next_up(code, fmt) == want
        assert reference.to_integer(number, -128, 127, attributes) == (0, fs.INVALID)
        assert reference.logb(number) == (-(2**31), fs.INVALID)
        for c in (0, 1, 2):
            operands = [one, one, one]
            operands[c] = number
            assert reference.fma(*operands, fmt, attributes) == want


def test_infinity_times_zero_plus_nan_is_invalid():
    infinity, zero, quiet = (reference.decode(c, fs.FP32) for c in (0x7F800000, 0, 0x7FC00000))
    for a, b in ((infinity, zero), (zero, infinity)):
        assert reference.fma(a, b, quiet, fs.FP32, RoundingAttributes()) == (0x7FC00000, fs.INVALID)


# -- events ---------------------------------------------------------------------------------------------------------


def test_absorbed():
    big, small, zero = (reference.decode(c, fs.FP16) for c in (0x6800, 0x3C00, 0))  # 2048, 1, 0
    attributes = RoundingAttributes()
    assert reference.add(big, small, fs.FP16, attributes)[1] & o.ABSORBED
    assert reference.add(small, big, fs.FP16, attributes)[1] & o.ABSORBED  # either operand may be the absorbed one
    assert not reference.add(big, zero, fs.FP16, attributes)[1] & o.ABSORBED
    assert not reference.add(big, small, fs.FP16, RoundingAttributes(Rounding.TOWARD_POSITIVE))[1] & o.ABSORBED
    largest, infinity = reference.decode(0x7BFF, fs.FP16), reference.decode(0x7C00, fs.FP16)
    assert reference.add(largest, small, fs.FP16, RoundingAttributes(Rounding.TOWARD_ZERO))[1] & o.ABSORBED
    assert not reference.add(infinity, small, fs.FP16, attributes)[1]  # an infinite sum absorbs nothing
    assert reference.fma(small, small, big, fs.FP16, attributes)[1] & o.ABSORBED
    assert (
        not reference.fma(big, small, small, fs.FP16, attributes)[1] & o.ABSORBED
    )  # the addend is lost, not the product
    tiny = reference.decode(0x0001, fs.FP16)
    flushed = reference.add(zero, tiny, fs.FP16, RoundingAttributes(ftz=True))
    assert flushed == (0, UNDERFLOW | INEXACT | o.FLUSHED | o.ABSORBED)


# -- operations on whole small formats ------------------------------------------------------------------------------


@pytest.mark.parametrize("fmt", [*o.SMALL, fs.E8M0], **ids)
def test_neighbours_are_those_of_the_sorted_values(fmt):
    at = o.layout(fmt)
    codes = range(1 << at.bits)
    finite = {c: v for c in codes if (v := at.decode(c)).kind == "finite"}
    ranked = sorted({o.order_key(v)[1] for v in finite.values()})
    for code, value in finite.items():
        place = ranked.index(o.order_key(value)[1])
        for step, function in ((1, reference.next_up), (-1, reference.next_down)):
            got, events = function(code, fmt)
            assert events == 0
            if 0 <= place + step < len(ranked):
                there = at.decode(got)
                assert there.kind == "finite"
                assert o.order_key(there)[1] == ranked[place + step], o.report("next", fmt, step, (code,), got, "")
                if there.magnitude == 0 and at.signed_zero and not fmt.is_scale:
                    assert there.sign == (step == 1)  # from below -0, from above +0
            elif fmt.is_scale:
                assert got == at.nan
            else:
                assert got == at.infinity(int(step == -1))
    if at.inf is not None:
        assert reference.next_down(at.inf, fmt) == (at.largest, 0)
        assert reference.next_up(at.inf, fmt) == (at.inf, 0)
        assert reference.next_up(at.inf | at.sign_bit, fmt) == (at.largest | at.sign_bit, 0)


@pytest.mark.full
@pytest.mark.parametrize("fmt", o.SMALL, **ids)
def test_comparison_and_order_of_all_pairs(fmt):
    at = o.layout(fmt)
    codes = range(1 << at.bits)
    decoded = [at.decode(c) for c in codes]
    numbers = [reference.decode(c, fmt) for c in codes]
    r = o.rng("compare", fmt)
    pairs = list(itertools.product(codes, codes)) if fmt.bits < 8 else r.integers(0, 256, (6000, 2)).tolist()
    for a, b in pairs:
        want = o.compare(decoded[a], decoded[b])
        loud = "snan" in (decoded[a].kind, decoded[b].kind)
        assert reference.compare(numbers[a], numbers[b]) == (want, fs.INVALID if want is None and loud else 0)
        signaling = reference.compare(numbers[a], numbers[b], signaling=True)
        assert signaling == (want, fs.INVALID if want is None else 0)

    def total_key(code):
        v = decoded[code]
        if v.is_nan:
            negative = at.signed_zero and code & at.sign_bit
            return (-2, -(code & ~at.sign_bit), 0) if negative else (2, code & ~at.sign_bit, 0)
        return o.order_key(v, zeros=True)

    for a, b in pairs:
        assert reference.total_order(a, b, fmt) == (total_key(a) <= total_key(b)), (fmt.name, hex(a), hex(b))


@pytest.mark.parametrize("fmt", [*o.SMALL, fs.E8M0], **ids)
def test_classes_of_all_codes(fmt):
    at = o.layout(fmt)
    for code in range(1 << at.bits):
        v = at.decode(code)
        if v.is_nan:
            want = "SIGNALING_NAN" if v.kind == "snan" else "QUIET_NAN"
        else:
            if v.kind == "infinite":
                kind = "INFINITY"
            elif v.magnitude == 0:
                kind = "ZERO"
            else:
                kind = "SUBNORMAL" if v.magnitude < at.least_normal else "NORMAL"
            want = ("NEGATIVE_" if v.sign else "POSITIVE_") + kind
        assert reference.classify(code, fmt).name == want, hex(code)


@pytest.mark.full
@pytest.mark.parametrize("fmt", [*o.SMALL, fs.FP16, fs.TF32], **ids)
def test_integral_operations(fmt):
    codes = range(1 << fmt.bits) if fmt.bits <= 8 else o.structured(fmt, 1, 900, o.rng("integral", fmt))[0].tolist()
    at = o.layout(fmt)
    r = o.rng("integral hows", fmt)
    for code in codes:
        for k in r.integers(0, len(EVERY_ROUNDING), 4):
            rounding = EVERY_ROUNDING[k]
            value, number = at.decode(code, rounding.daz), reference.decode(code, fmt, rounding.daz)
            for operation in ("rint", "floor", "ceil", "trunc"):
                want = o.integral(operation, value, fmt, rounding)
                got = getattr(reference, operation)(number, fmt, rounding.attributes)
                assert got == want, o.report(operation, fmt, rounding, (code,), got, want)
            for low, high in ((-128, 127), (0, 255), (-(2**31), 2**31 - 1), (0, 2**64 - 1)):
                want = o.to_integer(value, low, high, rounding)
                got = reference.to_integer(number, low, high, rounding.attributes)
                assert got == want, o.report("to_integer", fmt, rounding, (code,), got, want)


def test_only_rint_raises_inexact():
    x = reference.decode(0x3E00, fs.FP16)  # 1.5
    assert reference.rint(x, fs.FP16, RoundingAttributes()) == (0x4000, INEXACT)
    for operation in (reference.floor, reference.ceil, reference.trunc):
        assert operation(x, fs.FP16, RoundingAttributes())[1] == 0


def test_integral_results_beyond_max_follow_the_policy():
    fmt = fs.FloatFormat("below one", 3, 2, "finite", 9)  # max is 7/16
    largest = reference.decode(fmt.max_code, fmt)
    assert reference.ceil(largest, fmt, RoundingAttributes()) == (fmt.max_code, OVERFLOW | INEXACT)
    ieee = fs.FloatFormat("IEEE below one", 3, 2, "ieee", 8)
    largest = reference.decode(ieee.max_code, ieee)
    assert ieee.max < 1
    assert reference.ceil(largest, ieee, RoundingAttributes()) == (ieee.infinity_code, OVERFLOW | INEXACT)
    assert reference.ceil(largest, ieee, RoundingAttributes(overflow=SAT)) == (ieee.max_code, OVERFLOW | INEXACT)


def test_scalb_and_logb():
    one = reference.decode(0x3C00, fs.FP16)
    assert reference.scalb(one, -24, fs.FP16, RoundingAttributes()) == (1, o.SUBNORMAL)
    assert reference.scalb(one, -25, fs.FP16, RoundingAttributes()) == (0, 3 | o.FLUSHED)
    assert reference.scalb(one, 16, fs.FP16, RoundingAttributes()) == (0x7C00, 5)
    for n in (2**31 - 1, 2**63, 10**30):
        assert reference.scalb(one, n, fs.FP16, RoundingAttributes()) == (0x7C00, 5)
        assert reference.scalb(one, -n, fs.FP16, RoundingAttributes()) == (0, 3 | o.FLUSHED)
        assert reference.scalb(-one, -n, fs.FP64, RoundingAttributes(Rounding.TOWARD_NEGATIVE))[0] == 0x8000000000000001
    assert reference.logb(reference.decode(1, fs.FP16)) == (-24, 0)
    assert reference.logb(reference.decode(0x7BFF, fs.FP16)) == (15, 0)
    assert reference.logb(reference.decode(0, fs.FP16)) == (-(2**31), fs.DIVIDE_BY_ZERO)
    assert reference.logb(reference.decode(0xFC00, fs.FP16)) == (2**31 - 1, 0)


# -- text -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1), ("+1.5", Fraction(3, 2)), ("-.5", Fraction(-1, 2)), ("5.", 5), ("1e3", 1000),
        ("1E-3", Fraction(1, 1000)),
        ("1_000.5", Fraction(2001, 2)), ("0x1p4", 16), ("0x1.8p-1", Fraction(3, 4)), ("-0X.8P+1", -1), ("  7 ", 7),
        ("0.1", Fraction(1, 10)), ("123456789012345678901234567890", 123456789012345678901234567890),
    ],
)  # fmt: skip
def test_texts_mean_what_they_say(text, value):
    for fmt in (fs.FP64, fs.FP16, fs.E5M2):
        got = reference.round_pack(reference.from_text(text), fmt, RoundingAttributes())
        want = o.Rounder(abs(Fraction(value)), int(value < 0), fmt)(OracleRounding())
        assert got == want


@pytest.mark.parametrize(
    "text",
    ["", " ", "one", "1e", "e5", ".", "+", "--1", "+-1", "1.2.3", "0x", "0x1", "0xp1", "0x1.8", "1_", "_1", "1__0",
     "1 2",
     "nanx", "infin", "+-inf", "1e5.5", "0b1", "1f", "NaN(1)", "1,5"],
)  # fmt: skip
def test_other_texts_are_errors(text):
    with pytest.raises(ValueError, match="not a number"):
        reference.from_text(text)


def test_texts_of_infinity_nan_and_zero():
    for text in ("inf", "+Infinity", "INF"):
        assert reference.convert(reference.from_text(text), fs.FP16, RoundingAttributes()) == (0x7C00, 0)
    assert reference.convert(reference.from_text("-inf"), fs.FP16, RoundingAttributes()) == (0xFC00, 0)
    assert reference.convert(reference.from_text("-nan"), fs.FP16, RoundingAttributes()) == (0x7E00, 0)
    for text in ("-0", "-0.000", "-0e5", "-0x0p3", "-.0e-99999"):
        assert reference.convert(reference.from_text(text), fs.FP16, RoundingAttributes()) == (0x8000, 0), text


FAR_BELOW = ["1e-6000", "1e-99999999999", "0x1p-99999", "0x1p-99999999999999999999", "3e-400", "1e-4999"]


@pytest.mark.parametrize("text", FAR_BELOW)
def test_texts_far_below_every_format(text):
    number = reference.from_text(text)
    for fmt in (fs.FP64, fs.BF16, fs.E4M3, fs.E8M0):
        if fmt.is_scale:
            assert reference.convert(number, fmt, RoundingAttributes()) == (0, 3)
            continue
        for tininess in TININESS:
            assert reference.convert(number, fmt, RoundingAttributes(tininess=tininess)) == (0, 3 | o.FLUSHED)
            up = RoundingAttributes(Rounding.TOWARD_POSITIVE, tininess=tininess)
            assert reference.convert(number, fmt, up) == (1, 3 | (o.SUBNORMAL if fmt.has_subnormals else 0))
            assert reference.convert(-number, fmt, up)[0] == (fmt.sign_mask if fmt.has_signed_zero else 0)


FAR_ABOVE = ["1e400", "1e6000", "9" * 6000, "0x1p1025", "0x1p99999999999999999999", "1e99999999999999"]


@pytest.mark.parametrize("text", FAR_ABOVE)
def test_texts_far_above_every_format(text):
    number = reference.from_text(text)
    for fmt in (fs.FP64, fs.BF16, fs.E5M2):
        assert reference.convert(number, fmt, RoundingAttributes()) == (fmt.infinity_code, 5)
        assert reference.convert(number, fmt, RoundingAttributes(Rounding.TOWARD_ZERO)) == (fmt.max_code, 5)


def test_very_long_texts_are_exact():
    """A tie of FP64 with thousands of further digits: the last one decides."""
    half = Fraction(1) + Fraction(1, 2**53)
    digits = f"{half.numerator * 10**60 // half.denominator}"
    text = digits[0] + "." + digits[1:]
    assert Fraction(text) == half
    one, two = 0x3FF0000000000000, 0x3FF0000000000001
    for zeros in (0, 100, 3900, 3939, 3940, 3941, 5000, 20_000):
        above = text + "0" * zeros + "1"
        assert reference.convert(reference.from_text(text + "0" * zeros), fs.FP64, RoundingAttributes()) == (one, 1)
        assert reference.convert(reference.from_text(above), fs.FP64, RoundingAttributes()) == (two, 1), zeros


def test_texts_as_python_reads_them():
    r = o.rng("texts")
    for _ in range(3000):
        digits = "".join(map(str, r.integers(0, 10, int(r.integers(1, 40)))))
        cut = int(r.integers(0, len(digits) + 1))
        text = f"{'-' if r.integers(2) else ''}{digits[:cut]}.{digits[cut:]}e{int(r.integers(-340, 320))}"
        want = int(np.float64(float(text)).view(np.uint64))
        assert reference.convert(reference.from_text(text), fs.FP64, RoundingAttributes())[0] == want, text


def test_texts_of_fractions():
    for text, want in (
        ("1/3", Fraction(1, 3)),
        (" -22/7 ", Fraction(-22, 7)),
        ("+4/2", Fraction(2)),
        ("0/5", Fraction(0)),
    ):
        number = reference.from_text(text)
        assert reference.convert(number, fs.FP64, RoundingAttributes())[0] == int(
            np.float64(float(want)).view(np.uint64)
        )
        assert number == reference.from_fraction(want)
    assert reference.from_text("-0/5").sign == 1
    for text in ("1/0", "1/", "/3", "1/3/2", "1 / 3", "1/-3", "1.5/3", "nan/2"):
        with pytest.raises(ValueError, match=r"not a number: .*, a fraction \('1/3'\)"):
            reference.from_text(text)


def test_too_few_working_bits_are_an_error():
    """Not an assert, which `python -O` removes."""
    inexact = reference.Number(reference.Kind.FINITE, 0, 1 << 20, -20, True)
    for mode in (Rounding.TIES_TO_EVEN, Rounding.STOCHASTIC):
        with pytest.raises(ValueError, match="too few working bits"):
            reference.convert(inexact, fs.FP32, RoundingAttributes(mode))
    with pytest.raises(ValueError, match="too few working bits"):
        reference.convert(inexact, fs.FP16, RoundingAttributes(Rounding.STOCHASTIC))


# -- exact sums -----------------------------------------------------------------------------------------------------


def test_exact_dot_rounds_once():
    r = o.rng("exact_dot")
    for fmt in (fs.FP16, fs.E5M2, fs.FP32, fs.E4M3FNUZ):
        at = o.layout(fmt)
        for n in range(12):
            codes = [r.choice(o.structured(fmt, 1, 200, r)[0], n) for _ in "ab"]
            pairs = list(zip(*(c.tolist() for c in codes), strict=True))
            values = [(at.decode(x), at.decode(y)) for x, y in pairs]
            if any(v.kind != "finite" for pair in values for v in pair):
                continue
            terms = [(-1) ** (x.sign ^ y.sign) * x.magnitude * y.magnitude for x, y in values]
            total = sum(terms, Fraction(0))
            for rounding in EVERY_ROUNDING[::7]:
                got = reference.exact_dot([(reference.decode(x, fmt), reference.decode(y, fmt)) for x, y in pairs], fmt,
                                          rounding.attributes)  # fmt: skip
                if total:
                    assert got == o.Rounder(abs(total), int(total < 0), fmt)(rounding)


def test_exact_dot_of_zeros():
    plus, minus, one = (reference.decode(c, fs.FP16) for c in (0, 0x8000, 0x3C00))
    down = RoundingAttributes(Rounding.TOWARD_NEGATIVE)
    for attributes in (RoundingAttributes(), down):
        assert reference.exact_dot([], fs.FP16, attributes) == (0, 0)
        assert reference.exact_dot([(plus, one)] * 3, fs.FP16, attributes) == (0, 0)
        assert reference.exact_dot([(minus, one)] * 3, fs.FP16, attributes) == (0x8000, 0)
        mixed = reference.exact_dot([(minus, one), (plus, one)], fs.FP16, attributes)
        cancelled = reference.exact_dot([(one, one), (one, -one)], fs.FP16, attributes)
        assert mixed == cancelled == ((0x8000 if attributes is down else 0), 0)


def test_exact_dot_of_specials():
    codes = (0, 0x3C00, 0x7C00, 0x7E00, 0x7C01)
    zero, one, infinity, quiet, signalling = (reference.decode(c, fs.FP16) for c in codes)
    dot = lambda *pairs: reference.exact_dot(list(pairs), fs.FP16, RoundingAttributes())  # noqa: E731
    assert dot((infinity, one), (one, one)) == (0x7C00, 0)
    assert dot((infinity, -one)) == (0xFC00, 0)
    assert dot((infinity, one), (infinity, -one)) == (0x7E00, fs.INVALID)
    assert dot((infinity, zero)) == (0x7E00, fs.INVALID)
    assert dot((quiet, one), (infinity, one)) == (0x7E00, 0)
    assert dot((signalling, one)) == (0x7E00, fs.INVALID)


def test_every_enum_member_is_covered():
    assert set(DETERMINISTIC) | {Rounding.STOCHASTIC} == set(Rounding)
    assert set(POLICIES) == set(Overflow)
