"""Eighty inputs that naive emulators get wrong, each a test with a name.

The first table holds operations with one right code and flags. It runs through the reference and through the public
functions. The rows that are more than that (ranges, probabilities, sums, what NumPy promises) are tests of their own
below. The numbers are those of the list they came from; `test_the_list_itself`, with FLOATSIM_TRAPS naming that file,
holds the two together.
"""

import os
import re
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import oracles as o
import pytest
from oracles import OracleRounding

import floatsim as fs
from floatsim import Overflow, Rounding, Tininess, reference
from floatsim.formats.rounding import FLAGS

pytestmark = pytest.mark.versions

RNE, RNA, RTZ, RTP, RTN, RTO = (
    Rounding.TIES_TO_EVEN, Rounding.TIES_TO_AWAY, Rounding.TOWARD_ZERO, Rounding.TOWARD_POSITIVE,
    Rounding.TOWARD_NEGATIVE, Rounding.TO_ODD,
)  # fmt: skip
SAT = Overflow.SATURATE_FINITE


@dataclass(frozen=True)
class Trap:
    number: int
    name: str
    operation: str
    fmt: str
    operands: tuple[int, ...]
    code: int
    flags: int
    rounding: Rounding = RNE
    source: str = ""  # of a conversion
    overflow: Overflow = Overflow.INFINITY
    tininess: Tininess = Tininess.AFTER

    @property
    def options(self) -> OracleRounding:
        return OracleRounding(self.rounding, self.overflow, tininess=self.tininess)


def cast(number, name, fmt, given, code, flags, rounding=RNE, source="fp64", overflow=Overflow.INFINITY):
    return Trap(number, name, "convert", fmt, (given,), code, flags, rounding, source, overflow)


def op(number, name, operation, fmt, operands, code, flags, rounding=RNE, tininess=Tininess.AFTER):
    return Trap(number, name, operation, fmt, operands, code, flags, rounding, tininess=tininess)


TRAPS = [
    cast(1, "double to bfloat16 is rounded once, not through float", "bf16", 0x3FF0100000001000, 0x3F81, 1),
    cast(2, "double to E4M3 is rounded once, upward error", "e4m3", 0x3FF2FFFFFFFFF000, 0x39, 1),
    cast(3, "double to a half subnormal is rounded once", "fp16", 0x3E60000000020000, 0x0001, 3),
    cast(4, "just above half of E4M3's smallest number", "e4m3", 0x3F50000000000080, 0x01, 3),
    op(7, "product below float's range still rounds up", "multiply", "bf16", (0x0D80, 0x0D80), 0x0001, 3, RTP),
    op(8, "product below float's range raises underflow", "multiply", "bf16", (0x0D80, 0x0D80), 0x0000, 3),
    op(9, "half 1 + 2^-24 rounds up", "add", "fp16", (0x3C00, 0x0001), 0x3C01, 1, RTP),
    op(10, "float 1 + 2^-149 rounds up", "add", "fp32", (0x3F800000, 1), 0x3F800001, 1, RTP),
    op(11, "float 1 - 2^-149 truncates", "subtract", "fp32", (0x3F800000, 1), 0x3F7FFFFF, 1, RTZ),
    op(12, "float fma is not double's sum rounded", "fma", "fp32", (0xD4F697F0, 0x5EE80000, 0x3E17FFFF), 0xF45F79B1, 1),
    op(13, "float fma just below a tie", "fma", "fp32", (0x3F800001, 0x3F7FFFFE, 0x4B800001), 0x4B800001, 1),
    op(14, "bfloat16 fma: a tie and a tiny addend, float", "fma", "bf16", (0x40E0, 0x4214, 0xB580), 0x4381, 1),
    op(15, "bfloat16 fma: a tie and a tiny addend, double", "fma", "bf16", (0x59E0, 0x4214, 0x8D80), 0x5C81, 1),
    op(16, "E5M2 fma: a tie and 2^-16", "fma", "e5m2", (0x5A, 0x5A, 0x01), 0x79, 1),
    op(17, "fma whose product alone would overflow", "fma", "fp16", (0x7BFF, 0x4000, 0xFBFF), 0x7BFF, 0),
    op(18, "inf * 0 + NaN is invalid", "fma", "fp32", (0x7F800000, 0, 0x7FC00000), 0x7FC00000, 16),
    op(19, "fma's exact zero is -0 when rounding down", "fma", "fp16", (0x3C00, 0x3C00, 0xBC00), 0x8000, 0, RTN),
    cast(20, "E4M3: 464 ties to 448, no overflow", "e4m3", 0x407D000000000000, 0x7E, 1),
    cast(21, "E4M3: just above 464 overflows", "e4m3", 0x407D000000000001, 0x7F, 5),
    cast(22, "E4M3: 465 saturates", "e4m3", 0x407D100000000000, 0x7E, 5, overflow=SAT),
    cast(23, "E4M3: 464 ties away, to NaN", "e4m3", 0x407D000000000000, 0x7F, 5, RNA),
    cast(24, "E4M3: 449 upward overflows", "e4m3", 0x407C100000000000, 0x7F, 5, RTP),
    cast(25, "E4M3: truncation stays finite", "e4m3", 0x412E848000000000, 0x7E, 5, RTZ),
    cast(26, "E4M3: infinity becomes NaN", "e4m3", 0x7FF0000000000000, 0x7F, 0),
    cast(27, "E4M3: -infinity saturates", "e4m3", 0xFFF0000000000000, 0xFE, 0, overflow=SAT),
    op(28, "E4M3: the top exponent is finite", "multiply", "e4m3", (0x78, 0x38), 0x78, 0),
    op(29, "E4M3: 1/0 is NaN, divide by zero", "divide", "e4m3", (0x38, 0x00), 0x7F, 8),
    cast(30, "E5M2: 61440 ties to infinity", "e5m2", 0x40EE000000000000, 0x7C, 5),
    cast(31, "half: 65520 ties to infinity", "fp16", 0x40EFFE0000000000, 0x7C00, 5),
    op(32, "max + max truncates to max", "add", "fp16", (0x7BFF, 0x7BFF), 0x7BFF, 5, RTZ),
    op(33, "-max - max upward is -max", "add", "fp16", (0xFBFF, 0xFBFF), 0xFBFF, 5, RTP),
    cast(34, "E4M3FNUZ: 248 ties to NaN", "e4m3fnuz", 0x406F000000000000, 0x80, 5),
    cast(35, "E4M3FNUZ: a small negative becomes the only zero", "e4m3fnuz", 0xBEB0000000000000, 0x00, 3),
    cast(36, "FP4: 5 ties to 4", "e2m1", 0x4014000000000000, 0x6, 1),
    op(37, "x - x downward is -0", "subtract", "fp16", (0x3C00, 0x3C00), 0x8000, 0, RTN),
    op(38, "+0 + -0 downward is -0", "add", "fp32", (0, 0x80000000), 0x80000000, 0, RTN),
    op(39, "-0 + -0 is -0", "add", "fp32", (0x80000000, 0x80000000), 0x80000000, 0),
    op(40, "a negative underflow keeps its sign", "multiply", "fp16", (0x8001, 0x0001), 0x8000, 3),
    op(41, "a negative underflow downward", "multiply", "fp16", (0x8001, 0x0001), 0x8001, 3, RTN),
    op(42, "rint(-0.3) is -0", "rint", "fp16", (0xB4CD,), 0x8000, 1),
    op(43, "rint(-0.5) upward is -0", "rint", "fp32", (0xBF000000,), 0x80000000, 1, RTP),
    op(44, "tiny after rounding: not this one", "multiply", "fp16", (0x03FF, 0x3C01), 0x0400, 1),
    op(45, "tiny before rounding: this one", "multiply", "fp16", (0x03FF, 0x3C01), 0x0400, 3, RNE, Tininess.BEFORE),
    op(46, "tiny although the result is normal", "multiply", "fp16", (0x0411, 0x3BDE), 0x0400, 3),
    op(47, "an exact subnormal raises nothing", "multiply", "fp16", (0x0400, 0x3800), 0x0200, 0),
    op(48, "0/0 is invalid", "divide", "fp32", (0, 0), 0x7FC00000, 16),
    op(49, "infinity/0 raises nothing", "divide", "fp32", (0x7F800000, 0x80000000), 0xFF800000, 0),
    op(50, "sqrt(-0) is -0", "sqrt", "fp32", (0x80000000,), 0x80000000, 0),
    op(51, "sqrt of a negative subnormal is invalid", "sqrt", "fp32", (0x80000001,), 0x7FC00000, 16),
    op(52, "remainder(5, 3) is -1", "remainder", "fp32", (0x40A00000, 0x40400000), 0xBF800000, 0),
    op(53, "remainder(3, 2): the quotient ties to even", "remainder", "fp32", (0x40400000, 0x40000000), 0xBF800000, 0),
    op(54, "remainder(-6, 3) is -0", "remainder", "fp32", (0xC0C00000, 0x40400000), 0x80000000, 0),
    op(55, "remainder(x, infinity) is x", "remainder", "fp32", (0xC0A00000, 0x7F800000), 0xC0A00000, 0),
    op(56, "remainder across 275 binades", "remainder", "fp32", (0x7F7FFFFF, 0x0000000B), 0x80000001, 0),
    op(57, "fmod(-6, 3) is -0", "fmod", "fp16", (0xC600, 0x4200), 0x8000, 0),
    cast(58, "NaN of all ones does not wrap to -0", "bf16", 0x7FFFFFFF, 0x7FC0, 0, source="fp32"),
    cast(59, "a signalling NaN truncated is no infinity", "bf16", 0x7F800001, 0x7FC0, 16, RTZ, source="fp32"),
    op(60, "a signalling NaN + 1 is invalid", "add", "fp32", (0x7F800001, 0x3F800000), 0x7FC00000, 16),
    op(61, "a quiet NaN + 1 raises nothing", "add", "fp32", (0x7FC12345, 0x3F800000), 0x7FC00000, 0),
    cast(62, "widening quiets a signalling NaN", "fp32", 0x7C01, 0x7FC00000, 16, source="fp16"),
    cast(63, "round-to-odd never overflows to infinity", "fp16", 0x41CDCD6500000000, 0x7BFF, 5, RTO),
    cast(64, "round-to-odd of the tiniest is odd", "fp16", 0x3E10000000000000, 0x0001, 3, RTO),
    cast(65, "round-to-odd leaves exact values", "fp16", 0x3FF0000000000000, 0x3C00, 0, RTO),
    op(80, "TF32 product does not fit a float carrier", "multiply", "tf32", (0x12BB7, 0x0C207), 0x0002F, 3),
]
OTHERS = {
    5: "test_005_integer_is_not_rounded_through_double",
    6: "test_006_decimal_text_is_not_rounded_through_double",
    66: "test_066_float_2_to_the_31_as_int32",
    67: "test_067_minus_one_half_as_uint8",
    68: "test_068_two_and_a_half_in_every_mode",
    69: "test_069_just_below_one_half_ties_away",
    70: "test_070_255_and_a_half_as_uint8",
    71: "test_071_minimum_orders_the_zeros",
    72: "test_072_minimum_number_prefers_the_number",
    73: "test_073_stochastic_below_the_smallest_subnormal",
    74: "test_074_stochastic_leaves_exact_values",
    75: "test_075_stochastic_resolution",
    76: "test_076_no_long_double_carrier",
    77: "test_077_sequential_half_sum",
    78: "test_078_python_scalars_are_weak",
    79: "test_079_error_of_a_sum",
}
named = {"ids": lambda t: f"{t.number:03d} {t.name}"}


@pytest.mark.parametrize("trap", TRAPS, **named)
def test_trap_in_the_reference(trap):
    fmt, attributes = fs.as_format(trap.fmt), trap.options.attributes
    source = fs.as_format(trap.source or trap.fmt)
    numbers = [reference.decode(c, source) for c in trap.operands]
    code, events = getattr(reference, trap.operation)(*numbers, fmt, attributes)
    assert (code, events & FLAGS) == (trap.code, trap.flags), o.report(
        trap.operation, fmt, trap.options, trap.operands, (code, events & FLAGS), (trap.code, trap.flags)
    )


@pytest.mark.full
@pytest.mark.parametrize("trap", [t for t in TRAPS if t.operation == "fma"], **named)
@pytest.mark.parametrize("steps", [1, 5])
def test_trap_inside_a_fused_product(trap, steps):
    """Every element of a product whose first term is the trap's; zeros follow. With flags, and by whatever is fast."""
    fmt = fs.as_format(trap.fmt)
    x, y, z = (np.uint64(code).astype(fmt.code_dtype) for code in trap.operands)
    a, b = np.zeros((3, steps), fmt.code_dtype), np.zeros((steps, 33), fmt.code_dtype)
    a[:, 0], b[0], c = x, y, np.full((3, 33), z)
    operands = [fs.from_codes(codes, fmt) for codes in (a, b, c)]
    keywords = trap.options.keywords | {"accumulate": fs.Sequential(fmt, fused=True)}
    with fs.record() as log:
        recorded = fs.matmul(*operands, **keywords)
    assert set(recorded.codes.ravel().tolist()) == {trap.code}
    assert set(fs.matmul(*operands, **keywords).codes.ravel().tolist()) == {trap.code}
    assert log["matmul.sum"].invalid == (3 * 33 if trap.flags & 16 else 0)


@pytest.mark.parametrize("trap", TRAPS, **named)
def test_trap_in_the_public_functions(trap):
    """As FloatArrays, and where the dtype exists as plain NumPy arrays; one element and many."""
    fmt, source = fs.as_format(trap.fmt), fs.as_format(trap.source or trap.fmt)
    for size in ((), (1,), (67,)):
        codes = [np.full(size, c, source.code_dtype) for c in trap.operands]
        arrays = [[fs.from_codes(c, source) for c in codes]]
        if source.dtype is not None:
            arrays.append([c.view(source.dtype) for c in codes])
        for operands in arrays:
            if trap.operation == "convert":
                got, flags = fs.encode(*operands, trap.fmt, return_flags=True, **trap.options.keywords)
            else:
                result, flags = getattr(fs, trap.operation)(*operands, return_flags=True, **trap.options.keywords)
                got = result.codes if isinstance(result, fs.FloatArray) else np.asarray(result).view(fmt.code_dtype)
            seen = {(int(c), int(f)) for c, f in zip(np.ravel(got), np.ravel(flags), strict=True)}
            assert seen == {(trap.code, trap.flags)}, o.report(
                trap.operation, fmt, trap.options, trap.operands, next(iter(seen)), (trap.code, trap.flags)
            )


def encoded(x, fmt, **keywords):
    code, flags = fs.encode(x, fmt, return_flags=True, **keywords)
    return int(np.ravel(code)[0]), int(np.ravel(flags)[0])


def test_005_integer_is_not_rounded_through_double():
    n = 2**60 + 2**36 + 1
    assert n == 1152921573326323713
    assert encoded(n, "fp32") == (0x5D800001, 1)
    assert encoded(np.int64(n), "fp32") == (0x5D800001, 1)
    assert encoded(np.array([n], np.uint64), "fp32") == (0x5D800001, 1)
    assert fs.from_integer(n, "fp32").view(np.uint32) == 0x5D800001


def test_006_decimal_text_is_not_rounded_through_double():
    text = "1.000488281250000000000000001"
    assert encoded(text, "fp16") == (0x3C01, 1)
    assert encoded([text], "fp16") == (0x3C01, 1)
    number = reference.from_text(text)
    assert reference.round_pack(number, fs.FP16, reference.RoundingAttributes()) == (0x3C01, 1)


def whole(code, fmt, dtype, **keywords):
    n, flags = fs.to_integer(fs.from_codes(code, fmt), dtype, return_flags=True, **keywords)
    return int(n), int(flags)


def test_066_float_2_to_the_31_as_int32():
    n, flags = whole(0x4F000000, "fp32", np.int32)
    assert flags == fs.INVALID
    assert n == 2**31 - 1  # saturated, by our definition


def test_067_minus_one_half_as_uint8():
    for rounding, expected in {RNE: (0, 1), RTZ: (0, 1), RTP: (0, 1), RTN: (0, 16), RNA: (0, 16)}.items():
        assert whole(0xB800, "fp16", np.uint8, rounding=rounding) == expected, rounding


def test_068_two_and_a_half_in_every_mode():
    for rounding, expected in {RNE: 2, RNA: 3, RTZ: 2, RTP: 3, RTN: 2, RTO: 3}.items():
        for dtype in (np.int8, np.uint64, np.int32):
            assert whole(0x4100, "fp16", dtype, rounding=rounding) == (expected, 1), rounding


def test_069_just_below_one_half_ties_away():
    assert whole(0x3EFFFFFF, "fp32", np.int32, rounding=RNA) == (0, 1)


def test_070_255_and_a_half_as_uint8():
    assert whole(0x437F8000, "fp32", np.uint8) == (255, 16)
    assert whole(0x437F8000, "fp32", np.uint8, rounding=RTZ) == (255, 1)


def test_071_minimum_orders_the_zeros():
    plus, minus = fs.from_codes(0x0000, "fp16"), fs.from_codes(0x8000, "fp16")
    for a, b in ((plus, minus), (minus, plus)):
        assert (int(fs.minimum(a, b).codes), int(fs.maximum(a, b).codes)) == (0x8000, 0x0000)


def test_072_minimum_number_prefers_the_number():
    one, quiet, signalling = (fs.from_codes(c, "fp16") for c in (0x3C00, 0x7E00, 0x7C01))
    for a, b, invalid in ((quiet, one, 0), (one, quiet, 0), (signalling, one, 16), (one, signalling, 16)):
        result, flags = fs.minimum_number(a, b, return_flags=True)
        assert (int(result.codes), int(flags)) == (0x3C00, invalid)
        result, flags = fs.minimum(a, b, return_flags=True)
        assert (int(result.codes), int(flags)) == (0x7E00, invalid)


def test_073_stochastic_below_the_smallest_subnormal():
    """2^-26 is a quarter of FP16's smallest number: up for a quarter of all draws, exactly."""
    for sign, up, down in ((1, 0x0001, 0x0000), (-1, 0x8001, 0x8000)):
        number = reference.from_fraction(Fraction(sign, 2**26))
        rounding = OracleRounding(Rounding.STOCHASTIC, random_bits=8).attributes
        codes = [reference.round_pack(number, fs.FP16, rounding, r)[0] for r in range(256)]
        assert codes.count(up) == 64
        assert codes.count(down) == 192
        n = 1 << 20
        public = fs.encode(np.full(n, sign * 2.0**-26), "fp16", rounding="SR", seed=7)
        ups = np.count_nonzero(public == up)
        assert ups + np.count_nonzero(public == down) == n
        assert abs(ups - n / 4) < 5 * (n * 3 / 16) ** 0.5


def test_074_stochastic_leaves_exact_values():
    x = fs.from_codes(np.full(10_000, 0x3C01, np.uint16), "fp16")
    for bits in (1, 8, 32, 64):
        codes, flags = fs.encode(x, "fp16", rounding="SR", seed=bits, random_bits=bits, return_flags=True)
        assert (codes == 0x3C01).all()
        assert not flags.any()


def test_075_stochastic_resolution():
    """1 + 2^-11 + 2^-40: with 40 random bits exactly 2^39 + 2^10 of the 2^40 draws round up; with 16, half of them."""
    number = reference.decode(0x3FF0020000001000, fs.FP64)

    def rounds_up(bits, r):
        rounding = OracleRounding(Rounding.STOCHASTIC, random_bits=bits).attributes
        return reference.round_pack(number, fs.FP16, rounding, r)[0] == 0x3C01

    first = 2**40 - (2**39 + 2**10)
    assert not rounds_up(40, first - 1)
    assert rounds_up(40, first)
    assert not rounds_up(16, 2**15 - 1)
    assert rounds_up(16, 2**15)


def test_076_no_long_double_carrier():
    a, b = (fs.from_codes(c, "fp64") for c in (0x3FF0000000000000, 0x3CA0000040000000))
    result, flags = fs.add(a, b, return_flags=True)
    assert (int(result.codes), int(flags)) == (0x3FF0000000000001, 1)


def test_077_sequential_half_sum():
    """2048 + 1 + 1 + ... stays 2048 when every add rounds to FP16."""
    terms = fs.array([2048.0] + [1.0] * 64, "fp16")
    total = fs.matmul(fs.array([[1.0] * 65], "fp16"), terms, accumulate=fs.Sequential("fp16"), format="fp16")
    code = total.codes if isinstance(total, fs.FloatArray) else total.view(np.uint16)
    assert int(np.ravel(code)[0]) == 0x6800
    accumulator = fs.array(2048.0, "fp16")
    for _ in range(64):
        accumulator = fs.add(accumulator, 1.0)
    assert int(accumulator.codes) == 0x6800


def test_078_python_scalars_are_weak():
    x = fs.array([1.0], "fp16")
    assert (x + 2.5).format is fs.FP16
    assert fs.add(np.float16([1.0]), 2.5).dtype == np.float16
    with pytest.raises(TypeError, match="format"):
        fs.add(x, np.float32([2.5]))


def test_079_error_of_a_sum():
    """TwoSum with 2^24 and 1: the error term is 1, and the sum is inexact."""
    a, b = (fs.from_codes(np.array([c]), "fp32") for c in (0x4B800000, 0x3F800000))
    s, flags = fs.add(a, b, return_flags=True)
    assert s.codes.tolist() == [0x4B800000]
    assert flags.tolist() == [1]
    back = fs.subtract(s, a)
    error = fs.add(fs.subtract(a, fs.subtract(s, back)), fs.subtract(b, back))
    assert error.codes.tolist() == [0x3F800000]


def test_the_table_is_whole():
    assert sorted({t.number for t in TRAPS} | set(OTHERS)) == list(range(1, 81))
    assert all(name in globals() for name in OTHERS.values())


def test_the_list_itself():
    """With FLOATSIM_TRAPS naming the list: every row is here, with the same bits."""
    path = os.environ.get("FLOATSIM_TRAPS")
    if not path:
        pytest.skip("FLOATSIM_TRAPS does not name the list of traps")
    mine = {t.number: t for t in TRAPS}
    numbers = []
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        cells = [c.strip() for c in line.strip("|").split("|")]
        if not cells[0].isdigit():
            continue
        number = int(cells[0])
        numbers.append(number)
        if number not in mine:
            assert number in OTHERS
            continue
        trap = mine[number]
        # a cell may hold "overflow|inexact", so count from what is sure: hexadecimal cells
        codes = [c for c in cells if re.fullmatch(r"(0x[0-9A-Fa-f]+\s*)+", c)]
        assert tuple(int(x, 16) for x in codes[0].split()) == trap.operands, line
        assert int(codes[1], 16) == trap.code, line
        assert int(cells[cells.index(codes[1], cells.index(codes[0]) + 1) + 1]) == trap.flags, line
    assert numbers == list(range(1, 81))
