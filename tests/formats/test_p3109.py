"""The formats of the IEEE draft P3109: every value, every projection, and what unsigned formats refuse.

The expected values follow from the definitions of the draft (interim report 4.0), written out here a second time with
fractions. gfloat is compared where it is installed: `pip install gfloat array-api-compat`.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from fractions import Fraction

import numpy as np
import pytest

import floatsim as fs
from floatsim.formats.rounding import RoundingAttributes
from floatsim.reference import NAN, convert, decode

INFINITY = math.inf
FAMILY = [
    (k, p, signed, extended)
    for k in range(3, 9)
    for signed in (True, False)
    for p in range(1, k + (not signed))
    for extended in (True, False)
]
MODES = [mode for mode in fs.Rounding if mode is not fs.Rounding.STOCHASTIC]
POLICIES = list(fs.Overflow)


class Draft:
    """One format of the draft: its codes in words of the draft, without floatsim."""

    def __init__(self, k: int, p: int, signed: bool, extended: bool) -> None:
        self.k, self.p, self.signed, self.extended = k, p, signed, extended
        self.bias = 2 ** (k - p - 1) if signed else 2 ** (k - p)
        self.nan = 2 ** (k - 1) if signed else 2**k - 1
        self.top = (2 ** (k - 1) - 1 if signed else 2**k - 2) - extended  # the largest finite code
        self.numbers = [self._worth(code) for code in range(self.top + 2)]
        self.largest = self.numbers[self.top]

    def worth(self, code: int) -> Fraction:
        """The value of a code without sign, up to the one after the largest."""
        return self.numbers[code]

    def _worth(self, code: int) -> Fraction:
        field, trailing = divmod(code, 2 ** (self.p - 1))
        if field == 0:
            return trailing * Fraction(2) ** (2 - self.p - self.bias)
        return (1 + trailing * Fraction(2) ** (1 - self.p)) * Fraction(2) ** (field - self.bias)

    def value(self, code: int) -> float | None:
        """The value, None for NaN."""
        if code == self.nan:
            return None
        if self.signed and code > self.nan:
            return -self.value(code - self.nan)
        return float(self.worth(code)) if code <= self.top else INFINITY

    def code(self, rounded: int, negative: bool) -> int:
        return self.nan + rounded if negative and rounded else rounded

    def project(self, x: Fraction, mode: fs.Rounding, policy: fs.Overflow) -> int:
        """The code of a finite number, by the draft's table of saturation."""
        below = bisect_right(self.numbers, abs(x)) - 1
        v = Fraction(0)  # beyond the number after the largest, every rounding overflows
        if below <= self.top:
            v = (abs(x) - self.numbers[below]) / (self.numbers[below + 1] - self.numbers[below])
        half, odd, R = Fraction(1, 2), below % 2 == 1, fs.Rounding
        rounded = below + {
            R.TIES_TO_EVEN: v > half or (v == half and odd), R.TIES_TO_AWAY: v >= half, R.TOWARD_ZERO: False,
            R.TOWARD_POSITIVE: v > 0 and x > 0, R.TOWARD_NEGATIVE: v > 0 and x < 0, R.TO_ODD: v > 0 and not odd,
        }[mode]  # fmt: skip
        negative, none = x < 0 and rounded > 0, policy is fs.Overflow.INFINITY
        if negative and not self.signed:
            return self.nan if none and mode not in (R.TOWARD_ZERO, R.TOWARD_POSITIVE) else 0
        if rounded <= self.top:
            return self.code(rounded, negative)
        inward = {R.TOWARD_ZERO, R.TOWARD_POSITIVE if negative else R.TOWARD_NEGATIVE}
        if not self.signed:
            inward.add(R.TO_ODD)
        infinite = none and self.extended and mode not in inward
        return self.code(self.top + infinite, negative)


def made(k: int, p: int, signed: bool, extended: bool) -> fs.FloatFormat:
    return fs.p3109(k, p, signed=signed, extended=extended)


def test_the_number_of_formats():
    assert len(FAMILY) == len({made(*row) for row in FAMILY}) == 2 * (sum(range(2, 8)) + sum(range(3, 9)))


@pytest.mark.parametrize("k", [3, 4, 5, *(pytest.param(k, marks=pytest.mark.full) for k in (6, 7, 8))])
def test_every_value_of_every_format(k):
    for row in (row for row in FAMILY if row[0] == k):
        fmt, draft = made(*row), Draft(*row)
        values = fs.decode(fmt.codes(), fmt)
        assert fmt.bits == len(fmt.codes()).bit_length() - 1 == draft.k
        for code, value in enumerate(values.tolist()):
            expected = draft.value(code)
            assert math.isnan(value) if expected is None else value == expected, (fmt.name, code)
            if value == 0:
                assert code == 0 and math.copysign(1, value) == 1
            number = decode(code, fmt)
            assert number == NAN if expected is None else number.is_infinite or number.fraction == Fraction(expected)
        assert np.count_nonzero(np.isfinite(values)) == 2**draft.k - 1 - (draft.extended << draft.signed)
        assert fmt.max == draft.largest and fmt.bias == draft.bias and fmt.canonical_nan == draft.nan
        assert fs.project(-0.0, fmt).codes == 0 and values[2 ** (draft.k - 1 - draft.signed)] == 1.0


# Largest numbers of the extended and of the finite format, least positive number, largest subnormal, smallest normal.
TABLE = {
    "8p1s": (2.0**62, 2.0**63, 2.0**-63, None, 2.0**-63), "8p1u": (2.0**125, 2.0**126, 2.0**-127, None, 2.0**-127),
    "8p2s": (2.0**31, 3 * 2.0**30, 2.0**-32, 2.0**-32, 2.0**-31),
    "8p3s": (49152, 57344, 2.0**-17, 3 * 2.0**-17, 2.0**-15), "8p4s": (224, 240, 2.0**-10, 7 * 2.0**-10, 2.0**-7),
    "8p4u": (53248, 57344, 2.0**-18, 7 * 2.0**-18, 2.0**-15), "8p5s": (15, 15.5, 2.0**-7, 15 * 2.0**-7, 0.125),
    "8p8u": (253 / 128, 127 / 64, 2.0**-7, 127 * 2.0**-7, 1), "6p3s": (12, 14, 2.0**-5, 3 * 2.0**-5, 0.125),
    "4p2s": (2, 3, 0.25, 0.25, 0.5), "4p2u": (6, 8, 2.0**-4, 2.0**-4, 2.0**-3), "3p1s": (1, 2, 0.5, None, 0.5),
    "3p3u": (1.25, 1.5, 0.25, 0.75, 1),
}  # fmt: skip


def test_the_ends_of_the_draft():
    for name, (extended, finite, least, subnormal, normal) in TABLE.items():
        fmt = fs.as_format(f"binary{name}e")
        assert (fmt.max, fs.as_format(f"binary{name}f").max) == (extended, finite)
        assert (fmt.smallest_subnormal, fmt.smallest_normal, fmt.has_subnormals) == (least, normal, bool(subnormal))
        if subnormal:
            assert fs.decode(2**fmt.trailing_bits - 1, fmt) == subnormal


def test_names():
    assert fs.as_format("Binary8p3se") == fs.as_format("p3109_k8p3se") == fs.as_format("binary8p3") == fs.p3109(8, 3)
    assert fs.p3109(8, 4, extended=False) == fs.E4M3FNUZ and fs.p3109(8, 3, extended=False) == fs.E5M2FNUZ
    assert fs.p3109(8, 1, signed=False, extended=False) != fs.E8M0
    for bad in ((8, 8), (8, 0), (2, 1)):
        with pytest.raises(
            ValueError, match=r"P3109 has no Binary\dp\dse: width must be at least 3, and precision 1 to"
        ):
            fs.p3109(*bad)
    with pytest.raises(ValueError, match="exponent_bits must be 1 to 11"):
        fs.p3109(16, 1)
    with pytest.raises(TypeError, match=r"precision must be an int, not 2\.5"):
        fs.p3109(8, 2.5)


def hard_numbers(draft: Draft, every: int = 1) -> list[Fraction]:
    """Numbers, ties, their neighbours, and numbers beyond the largest."""
    codes = [*range(0, draft.top + 1, every), draft.top]
    tiny = Fraction(1, 2**20)
    found = [Fraction(0), draft.largest * 4]
    for low in codes:
        a, b = draft.worth(low), draft.worth(low + 1)
        found += [a, (a + b) / 2, (a + b) / 2 + (b - a) * tiny, (a + b) / 2 - (b - a) * tiny, b - (b - a) * tiny]
    return [sign * x for x in found for sign in (1, -1)]


def check_projection(row: tuple[int, int, bool, bool], every: int) -> int:
    fmt, draft = made(*row), Draft(*row)
    numbers = hard_numbers(draft, every)
    for mode, policy in itertools.product(MODES, POLICIES):
        ours = fs.project([float(x) for x in numbers], fmt, rounding=mode, overflow=policy).codes
        expected = [draft.project(x, mode, policy) for x in numbers]
        wrong = [(x, a, b) for x, a, b in zip(numbers, ours.tolist(), expected, strict=True) if a != b]
        assert not wrong, (fmt.name, mode, policy, wrong[:3])
    return len(numbers)


SMALLEST = [row for row in FAMILY if row[0] == 3]


def test_projection_of_the_smallest_formats():
    assert sum(check_projection(row, 1) for row in SMALLEST) > 300


@pytest.mark.full
@pytest.mark.parametrize("row", [row for row in FAMILY if row[0] > 3], ids=lambda row: made(*row).name)
def test_projection(row):
    assert check_projection(row, 1 if row[0] < 8 else 5) > 80


def test_projection_of_special_values():
    """Infinities and NaN, by the first rows of the draft's table of saturation."""
    for row in SMALLEST:
        fmt, draft = made(*row), Draft(*row)
        high, low = float(draft.largest), -float(draft.largest) if draft.signed else 0.0
        up = INFINITY if draft.extended else high
        down = {(True, True): -INFINITY, (True, False): low}.get((draft.signed, draft.extended), math.nan)
        expected = {"infinity": (up, down), "saturate_finite": (high, low),
                    "saturate_propagate": (up, down if draft.signed else 0.0)}  # fmt: skip
        for policy, ends in expected.items():
            for mode in MODES:
                got = fs.project([INFINITY, -INFINITY, math.nan], fmt, overflow=policy, rounding=mode).values
                assert np.array_equal(got, [*ends, math.nan], equal_nan=True), (fmt.name, policy, mode)


def test_stochastic_rules_with_four_bits():
    """How many of the 16 random numbers round away from 1, for five discarded fractions (the draft's three rules)."""
    x = 1 + np.array([1, 2, 3, 6, 62]) / 64 / 4
    away = {"A": [0, 0, 0, 1, 15], "B": [0, 1, 1, 2, 16], "C": [0, 0, 1, 2, 16]}
    for rule, counts in away.items():
        got = fs.project(x[:, None] * np.ones(16), "binary8p3se", rounding="SR", stochastic=rule, random_bits=4,
                         random=np.arange(16))  # fmt: skip
        assert (got.values > 1).sum(axis=1).tolist() == counts


@pytest.mark.full
def test_rule_a_is_the_rule_of_encode():
    x = np.linspace(-40000, 40000, 4001)
    ours = fs.project(x, "binary8p3se", rounding="SR", seed=3, random_bits=12)
    assert np.array_equal(ours.codes, fs.encode(x, "binary8p3se", rounding="SR", seed=3, random_bits=12))
    with pytest.raises(ValueError, match="seed"):
        fs.project(x, "binary8p3se", rounding="SR")
    with pytest.raises(ValueError, match="random must be integers from 0"):
        fs.project(x, "binary8p3se", rounding="SR", random=16, random_bits=4)
    with pytest.raises(ValueError, match="which does not broadcast to that of x"):
        fs.project(x, "binary8p3se", rounding="SR", random=[1, 2], random_bits=4)


def test_projection_is_of_the_exact_value_and_of_p3109_only():
    tie = "2.5000000000000000000000000001"  # float64 has only the tie
    assert fs.project([tie, 2.5], "binary5p2sf").values.tolist() == [3, 2]
    assert fs.project(Fraction(10) ** 400, "binary5p2se").values == INFINITY
    with pytest.raises(ValueError, match="format=E4M3 is no format of P3109"):
        fs.project(1.0, "e4m3")
    with pytest.raises(ValueError, match="stochastic must be one of A, B, C"):
        fs.project(1.0, "binary8p3", stochastic="D")


CONVERTED = ["binary5p2ue", "binary5p2uf", "binary5p1ue", "binary5p5uf", "binary5p3se", "binary8p4se"]


@pytest.mark.full
@pytest.mark.parametrize("name", CONVERTED)
def test_conversions_equal_the_reference(name):
    """The integer kernels, with results of negative numbers in unsigned formats, codes and flags."""
    fmt = fs.as_format(name)
    source = fs.FloatFormat.ieee(5, 4)
    x = fs.from_codes(source.codes(), source)
    for mode, policy in itertools.product(MODES, POLICIES):
        attributes = RoundingAttributes(mode, policy)
        expected = [convert(decode(int(code), source), fmt, attributes) for code in x.codes]
        codes, flags = fs.encode(x, fmt, rounding=mode, overflow=policy, return_flags=True)
        assert codes.tolist() == [c for c, _ in expected], (name, mode, policy)
        assert flags.tolist() == [e & 31 for _, e in expected], (name, mode, policy)
        fast = fs.encode(x.values, fmt, rounding=mode, overflow=policy)
        assert np.array_equal(fast, codes)
        kept = fs.quantize(x.values.astype(np.float32), fmt, rounding=mode, overflow=policy)
        assert np.array_equal(kept, fs.decode(codes, fmt).astype(np.float32), equal_nan=True)


# (format, rounding, overflow, value, result of `project`)
CORNERS = [
    ("8p4se", "RNE", "infinity", 232, 224), ("8p4se", "RNE", "infinity", 232.0001, INFINITY),
    ("8p4se", "RNE", "saturate_finite", 1e9, 224), ("8p4se", "RNE", "saturate_propagate", INFINITY, INFINITY),
    ("8p4se", "RNE", "saturate_finite", INFINITY, 224), ("8p3sf", "RNE", "infinity", 1e9, 57344),
    ("8p3sf", "RNE", "infinity", INFINITY, 57344), ("8p4se", "RTO", "infinity", 225, INFINITY),
    ("8p4ue", "RTO", "infinity", 60000, 53248), ("8p4sf", "RTO", "infinity", 1e9, 240),
    ("8p2uf", "RNE", "infinity", -(2.0**-70), 0), ("8p2uf", "RNE", "infinity", -1, math.nan),
    ("8p2uf", "RNE", "saturate_finite", -1, 0), ("8p2uf", "RTZ", "infinity", -1, 0),
    ("8p2uf", "RTP", "infinity", -1, 0), ("8p1se", "RNE", "infinity", 3, 4), ("8p1se", "RNE", "infinity", 1.5, 1),
    ("8p1se", "RNE", "infinity", 0.75, 1), ("8p1se", "RNE", "infinity", 2.0**-64, 0),
    ("8p1se", "RNE", "infinity", 1.5 * 2.0**-64, 2.0**-63),
]  # fmt: skip


@pytest.mark.parametrize(("name", "rounding", "overflow", "x", "expected"), CORNERS)
def test_corners(name, rounding, overflow, x, expected):
    got = fs.project(float(x), f"binary{name}", rounding=rounding, overflow=overflow).values
    assert np.array_equal(got, expected, equal_nan=True)


UNSIGNED = pytest.mark.parametrize("name", ["binary4p2ue", "binary4p2uf"])


@pytest.mark.full
@UNSIGNED
def test_unsigned_formats_have_comparisons(name):
    fmt = fs.as_format(name)
    x = fs.from_codes(fmt.codes(), fmt)
    values = x.values
    with np.errstate(invalid="ignore"):
        assert np.array_equal(fs.less(x[:, None], x), values[:, None] < values)
        assert np.array_equal(x[:, None] == x, values[:, None] == values)
    assert fs.isnan(x).tolist() == [False] * 15 + [True]
    assert fs.isinf(x).tolist() == np.isinf(values).tolist()
    assert not fs.signbit(x).any() and x.nonzero().tolist() == [False] + [True] * 15
    after = [*values[1:15], values[14] if fmt.has_infinity else math.nan, math.nan]
    assert np.array_equal(fs.next_up(x).values, after, equal_nan=True)
    assert np.array_equal(fs.next_down(x).values, [math.nan, *values[:14], math.nan], equal_nan=True)
    assert math.isnan(fs.sum(np.float32([-1, -2]), format=fmt).item())
    assert fs.encode([-1, 3], fmt, return_flags=True)[1].tolist() == [fs.INVALID, 0]


@UNSIGNED
def test_unsigned_formats_have_no_arithmetic(name):
    fmt = fs.as_format(name)
    x = fs.from_codes(fmt.codes(), fmt)
    for operation in (fs.add, fs.multiply, fs.maximum, fs.divide):
        with pytest.raises(TypeError, match=f"{fmt.name} is a scale format, which has no arithmetic"):
            operation(x, x)
    refused = rf"{fmt.name}(, a| is a) scale format|{fmt.name} has no sign bit"
    for call in (fs.sqrt, fs.sum, fs.negative, lambda y: fs.matmul(y[None], y[:, None]), fs.ulp):
        with pytest.raises((TypeError, ValueError), match=refused):
            call(x)
    with pytest.raises(TypeError, match=f"{fmt.name} is a scale format and cannot accumulate"):
        fs.Sequential(fmt)
    with pytest.raises(TypeError, match="has no sign, and compiled code does not round to it"):
        fs.njit.format_params(fmt)
    assert "has no negative numbers" in str(fs.explain_rounding(-1, fmt))


@pytest.mark.full
def test_signed_extended_formats_have_arithmetic():
    """All pairs of Binary4p2se: the exact result of finite numbers, projected."""
    fmt = fs.p3109(4, 2)
    x = fs.from_codes(fmt.codes(), fmt)
    a, b = (y.ravel() for y in np.meshgrid(x.values, x.values))
    for ours, exact in ((fs.add, np.add), (fs.multiply, np.multiply)):
        with np.errstate(invalid="ignore"):
            expected = fs.project(exact(a, b), fmt)
        got = ours(fs.array(a, fmt), fs.array(b, fmt))
        assert np.array_equal(got.codes, expected.codes)


@pytest.mark.full
def test_blocks():
    q = fs.quantization
    x = [[0.3, -1.7, 5.0], [0.0, 0.0, 0.0], [math.nan, math.inf, 2.0]]
    block = q.project_block(x, "binary8p4se", "binary8p3ue")
    assert block.scale.values.tolist() == [5, 0, 2]
    elements = [fs.project([Fraction(y) / 5 for y in x[0]], "binary8p4se"), [0, 0, 0], [math.nan, math.inf, 1]]
    for row, expected in zip(block.elements, elements, strict=True):
        assert np.array_equal(row.values, np.asarray(expected, dtype=float), equal_nan=True)
    assert np.array_equal(block.values[2], [math.nan, math.inf, 2], equal_nan=True)
    exact = [Fraction(y) for y in block.values[0].tolist()]
    for reduce, total in ((q.block_sum, sum(exact)), (q.block_product, math.prod(exact))):
        got = reduce(block, "binary8p3se")
        assert got.shape == (3,) and got[0].item() == fs.project(total, "binary8p3se").item()
        assert got[1].item() == 0 and math.isnan(got[2].item())
    dot = q.block_dot(block, block, "binary8p3se", rounding="RTZ")
    assert dot[0].item() == fs.project(sum(y * y for y in exact), "binary8p3se", rounding="RTZ").item()
    assert math.isnan(q.project_block([math.nan], "binary8p3se", "binary8p3se").scale.item())
    with pytest.raises(ValueError, match="scale is infinite in Binary8p4se"):
        q.project_block([1e6], "binary8p4se", "binary8p4se")
    with pytest.raises(ValueError, match="one number for each block"):
        q.project_block([1.0], "binary8p4se", "binary8p4se", scale=[1, 2])


@pytest.mark.full
def test_an_infinite_element_wins_in_a_sum():
    q = fs.quantization
    block = q.project_block([math.inf, 1.0], "binary8p4se", "binary8p1uf")
    assert q.block_sum(block, "binary8p4se").item() == math.inf
    other = q.project_block([0.0, 1.0], "binary8p4se", "binary8p1uf")
    assert math.isnan(q.block_dot(block, other, "binary8p4se").item())


# -- gfloat ------------------------------------------------------------------------------------------------------------

MODE_NAMES = {"RNE": "TiesToEven", "RNA": "TiesToAway", "RTZ": "TowardZero", "RTP": "TowardPositive",
              "RTN": "TowardNegative"}  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("row", FAMILY, ids=lambda row: made(*row).name)
def test_gfloat(row):
    """Every value. Projections of positive numbers, where gfloat follows the same report.

    gfloat 0.5.2 follows report 3: without saturation, finite formats overflow to NaN there.
    """
    gfloat = pytest.importorskip("gfloat", reason="compares with gfloat")
    formats = pytest.importorskip("gfloat.formats", reason="compares with gfloat")
    kinds = pytest.importorskip("gfloat.types", reason="compares with gfloat")
    k, p, signed, extended = row
    fmt, draft = made(*row), Draft(*row)
    info = formats.format_info_p3109(
        k, p, kinds.Signedness.Signed if signed else kinds.Signedness.Unsigned,
        kinds.Domain.Extended if extended else kinds.Domain.Finite,
    )  # fmt: skip
    values = fs.decode(fmt.codes(), fmt).tolist()
    theirs = [gfloat.decode_float(info, code).fval for code in range(1 << k)]
    assert np.array_equal(values, theirs, equal_nan=True)
    numbers = [float(x) for x in hard_numbers(draft, 1 if k < 7 else 5) if signed or x >= 0]
    for ours, name in MODE_NAMES.items():
        for saturates in (True, False) if extended else (True,):
            policy = "saturate_finite" if saturates else "infinity"
            mode = kinds.RoundMode[name]
            expected = [gfloat.round_float(info, x, mode, saturates) for x in numbers]
            assert fs.project(numbers, fmt, rounding=ours, overflow=policy).values.tolist() == expected, (ours, policy)
