"""Matrix units: the table, and the known properties of their sums that one dot product can show."""

from __future__ import annotations

import functools
import math
import operator
import re

import numpy as np
import pytest

import floatsim as fs
from floatsim.formats.rounding import ABSORBED, FLUSHED, INEXACT, INVALID, OVERFLOW, UNDERFLOW, RoundingAttributes
from floatsim.reference import from_text
from floatsim.reference.tensorcore.dot import Dot, Scaled, dot
from floatsim.tensorcore import architectures
from floatsim.tensorcore.architectures import ARCHITECTURES, as_architecture, as_instruction_name, select
from floatsim.tensorcore.instructions import Evidence, FusedBlocks, GroupedBlocks, Scales, TwoHalves
from tests.tensorcore.cases import cases, codes

NVIDIA = [name for name, arch in ARCHITECTURES.items() if arch.title.startswith("NVIDIA")]
AMD = [name for name in ARCHITECTURES if name.startswith("cdna")]
NAN32, NAN16 = 0x7FFFFFFF, 0x7FFF


def code(x: float | str, fmt: fs.FloatFormat) -> int:
    """The code of a number that the format has."""
    text = x if isinstance(x, str) else float(x).hex() if math.isfinite(x) else str(x)
    number, events = fs.reference.convert(from_text(text), fmt, RoundingAttributes())
    assert not events & (INEXACT | OVERFLOW), f"{x} is no number of {fmt}"
    return number


def run(
    arch: str, a, b, fmt: fs.FloatFormat = fs.FP16, c=0.0, output: fs.FloatFormat | None = None,
    name: str | None = None, b_format: fs.FloatFormat | None = None,
) -> Dot:  # fmt: skip
    b_format = b_format or fmt
    row = select(as_architecture(arch), name, fmt, b_format, output)
    return dot(
        row, [code(x, fmt) for x in a], [code(x, b_format) for x in b], fmt, b_format, code(c, row.output)
    )  # fmt: skip


def value(result: Dot, fmt: fs.FloatFormat = fs.FP32) -> float:
    return float(fs.decode(result.code, fmt))


def events(result: Dot) -> int:
    """The events of all steps."""
    return functools.reduce(operator.or_, (step.events for step in result.steps), 0)


def power(n: int) -> float:
    return math.ldexp(1.0, n)


# -- what is known of NVIDIA's ---------------------------------------------------------------------------------------


def test_volta_loses_small_terms_and_the_others_keep_a_bit_more():
    """1 + 4 * 2**-24: each term is half of Volta's last bit, and one last bit of later generations."""
    quarter = ([power(-12)] * 4, [power(-12)] * 4)
    for arch in NVIDIA:
        expected = 1.0 if arch == "volta" else 1 + power(-22)
        assert value(run(arch, *quarter, c=1.0)) == expected, arch


def test_sums_are_not_monotonic_in_c():
    """1 - 2**-24 + 4 * 2**-24 is more on Volta than 1 + 4 * 2**-24: a smaller c lowers the common exponent."""
    quarter = ([power(-12)] * 4, [power(-12)] * 4)
    below, one = (value(run("volta", *quarter, c=c)) for c in (1 - power(-24), 1.0))
    assert below == 1 + power(-23) > one == 1.0


@pytest.mark.parametrize(
    ("arch", "bits"), [("volta", 23), ("turing", 24), ("ampere", 24), ("ada", 24), ("hopper", 25), ("blackwell", 25)]
)
def test_fraction_bits_of_a_block(arch, bits):
    """A term next to 2**14 - 2**14 is kept down to 2**(14 - F), as c or as a product."""
    for f, kept in ((bits, True), (bits + 1, False)):
        small = power(14 - f)
        assert value(run(arch, [128, 128], [128, -128], c=small)) == small * kept
        assert value(run(arch, [128, 128, small * 16], [128, -128, 0.0625])) == small * kept


@pytest.mark.parametrize("arch", NVIDIA)
def test_terms_are_cut_toward_zero(arch):
    """Next to large terms that cancel, a small term loses its fraction: 1.75 units are 1, and -1.75 are -1."""
    bits = select(as_architecture(arch), None, fs.FP16, fs.FP16).model.fraction_bits
    unit = power(14 - bits)
    for times, kept in ((0.25, 0), (0.5, 0), (0.75, 0), (1.5, 1), (1.75, 1)):
        for sign in (1, -1):
            result = run(arch, [128, 128], [128, -128], c=sign * times * unit)
            assert value(result) == sign * kept * unit
            assert bool(events(result) & ABSORBED) == (kept == 0)


def test_ampere_k16_is_two_chained_blocks_of_eight():
    """Large terms that cancel absorb small terms of their own block, not those of the other block."""
    for arch, name, blocks in (("ampere", "mma.m16n8k16", 2), ("ada", "mma.m16n8k16", 2), ("hopper", None, 1)):
        a, b = [power(-9)] * 16, [power(-9)] * 16
        a[0], b[0], a[1], b[1] = 128, 128, 128, -128
        alone = value(run(arch, a, b, name=name)) / power(-18)
        assert alone == (8 if blocks == 2 else 0)
        a, b = [power(-9)] * 16, [power(-9)] * 16
        a[0], b[0], a[8], b[8] = 128, 128, 128, -128
        assert value(run(arch, a, b, name=name)) == 0
        assert len(run(arch, a, b, name=name).steps) == blocks


def test_the_chain_is_rounded_to_d_in_between():
    """2048 + 1 and + 1 again in FP16: two ties, both to even. One block of sixteen adds both."""
    a, b = [1.0] * 16, [0.0] * 16
    b[0] = b[8] = 1.0
    assert value(run("ampere", a, b, c=2048.0, output=fs.FP16), fs.FP16) == 2048
    assert value(run("hopper", a, b, c=2048.0, output=fs.FP16), fs.FP16) == 2050


@pytest.mark.parametrize("arch", NVIDIA)
def test_products_are_not_normalised(arch):
    """1.5 * 1.5 = 2.25 has the exponent 0 and leaves other terms one more bit than 2.25 * 1 with the exponent 1."""
    bits = select(as_architecture(arch), None, fs.FP16, fs.FP16).model.fraction_bits
    va, vb = power(-12), power(14 - bits + 12)
    last = va * vb
    assert value(run(arch, [192, 192, va], [192, -192, vb])) == last
    assert value(run(arch, [288, 288, va], [128, -128, vb])) == 0


@pytest.mark.parametrize("arch", NVIDIA)
def test_subnormal_operands_keep_the_least_exponent(arch):
    """2**-15 in FP16 is 0.5 * 2**-14. Its products with 2**10 cancel with the exponent -4, like those of 2**-14."""
    bits = select(as_architecture(arch), None, fs.FP16, fs.FP16).model.fraction_bits
    for operand in (power(-14), power(-15)):
        for c, kept in ((power(-4 - bits), 1), (power(-5 - bits), 0)):
            assert value(run(arch, [operand, operand], [1024, -1024], c=c)) == c * kept


def test_exponents_of_products_have_no_end():
    """2**200 - 2**200 + 1 in BF16: there is no infinity, and the 1 is absorbed."""
    for arch in NVIDIA[2:]:
        big = power(100)
        assert value(run(arch, [big, big, 1], [big, -big, 1], fs.BF16)) == 0
        assert value(run(arch, [big, big, 1], [power(-100), -power(-100), 1], fs.BF16)) == 1


def test_infinity_in_the_first_block_stays():
    """An overflow of the first eight products stays infinite. One block of sixteen products does not overflow."""
    big = power(127)
    a, b = [big, big] + [0.0] * 6 + [big, big], [1.0, 1.0] + [0.0] * 6 + [-1.0, -1.0]
    assert value(run("ampere", a, b, fs.BF16)) == math.inf
    assert value(run("ampere", a[:2] + a[8:], b[:2] + b[8:], fs.BF16)) == 0
    assert value(run("hopper", a, b, fs.BF16)) == 0
    assert run("ampere", a, b, fs.BF16).steps[0].events & OVERFLOW


@pytest.mark.parametrize("arch", NVIDIA)
def test_nan_has_all_bits_but_the_sign(arch):
    for a, b, c in (
        ([math.nan], [1.0], 0.0), ([1.0], [1.0], math.nan), ([math.inf], [0.0], 0.0),
        ([math.inf, math.inf], [1.0, -1.0], 0.0), ([math.inf], [1.0], -math.inf), ([0.0], [math.inf], 0.0),
    ):  # fmt: skip
        result = run(arch, a, b, c=c)
        assert result.code == NAN32
        assert bool(events(result) & INVALID) == (not any(map(math.isnan, [*a, *b, c])))
        assert run(arch, a, b, c=c, output=fs.FP16).code == NAN16
    assert value(run(arch, [math.inf, 60000], [1.0, -60000], c=-1.0)) == math.inf
    assert value(run(arch, [-math.inf], [1.0], c=-math.inf)) == -math.inf


def test_e4m3_has_a_nan_and_no_infinity():
    for arch in ("ada", "hopper", "blackwell", "blackwell-rtx"):
        assert run(arch, [math.nan], [0.0], fs.E4M3).code == NAN32
        assert run(arch, [math.nan], [0.0], fs.E4M3, output=fs.FP16, b_format=fs.E5M2).code == NAN16


@pytest.mark.parametrize("arch", NVIDIA)
@pytest.mark.parametrize("output", [fs.FP32, fs.FP16])
def test_zero_is_always_positive(arch, output):
    for a, b, c in (([-0.0], [1.0], -0.0), ([-0.0] * 4, [1.0] * 4, -0.0), ([1.0, 1.0], [1.0, -1.0], -0.0)):
        assert run(arch, a, b, c=c, output=output).code == 0


def test_nothing_to_add_leaves_c_as_it_is():
    assert run("hopper", [], [], c=-0.0).code == 0x80000000
    assert run("hopper", [], []).steps == ()


def test_fp32_results_are_cut_toward_zero():
    for sign in (1, -1):
        assert value(run("hopper", [sign], [power(-24)], c=sign * 1.0)) == sign
        assert value(run("hopper", [sign], [1.5 * power(-23)], c=sign * 1.0)) == sign * (1 + power(-23))
        assert value(run("hopper", [sign] * 2, [1.0] * 2, c=sign * (2 - power(-23)))) == sign * (4 - power(-22))


def test_an_overflow_is_infinite_although_results_are_cut():
    top = math.ldexp(2 - power(-23), 127)
    assert value(run("ampere", [power(64)], [power(64)], fs.BF16)) == math.inf
    assert value(run("ampere", [power(64)], [power(64)], fs.BF16, c=-power(104))) == top
    assert value(run("ampere", [-power(64)], [power(64)], fs.BF16)) == -math.inf
    assert value(run("ampere", [power(52)], [power(51)], fs.BF16, c=top)) == top  # half of the last bit
    assert run("volta", [256], [256], output=fs.FP16).code == code(math.inf, fs.FP16)
    assert value(run("volta", [255.875], [256], output=fs.FP16), fs.FP16) == 65504


@pytest.mark.parametrize("arch", NVIDIA)
def test_fp16_results_are_rounded_once(arch):
    """1 + 2**-11 is a tie, and with 2**-F added it is above. A first rounding to FP32 would drop 2**-F if F > 23."""
    bits = select(as_architecture(arch), None, fs.FP16, fs.FP16, fs.FP16).model.fraction_bits
    for rest in range(12, bits + 1):
        terms = [1, 1, power(-12)], [1, power(-11), power(12 - rest)]
        assert value(run(arch, *terms, output=fs.FP16), fs.FP16) == 1 + power(-10)
    assert value(run(arch, [1, 1], [1, power(-11)], output=fs.FP16), fs.FP16) == 1
    assert value(run(arch, [1, 1], [1, power(-11)], output=fs.FP16, c=power(-10)), fs.FP16) == 1 + power(-9)


def test_subnormal_results():
    result = run("hopper", [power(-60)], [power(-80)], fs.BF16)
    assert value(result) == power(-140)
    assert not result.steps[0].events & INEXACT
    gone = run("hopper", [power(-75)], [-1.5 * power(-75)], fs.BF16)
    assert gone.code == 0, "and not -0"
    assert gone.steps[0].events & (FLUSHED | UNDERFLOW | INEXACT | ABSORBED) == FLUSHED | UNDERFLOW | INEXACT
    assert value(run("volta", [power(-12)], [power(-12)], output=fs.FP16), fs.FP16) == power(-24)


@pytest.mark.parametrize(("arch", "floor"), [("ampere", -132), ("ada", -132), ("hopper", -133), ("blackwell", -133)])
def test_tiny_terms_meet_the_least_exponent(arch, floor):
    """2**-149 minus one bit of the least exponent is cut to zero. Minus half of that bit, it stays."""
    bits = 24 if floor == -132 else 25
    for below, expected in ((floor - bits, 0.0), (floor - bits - 1, power(-149))):
        a, b = [power(-75), -power(below + 80)], [power(-74), power(-80)]
        result = run(arch, a, b, fs.BF16)
        assert value(result) == expected
        assert bool(result.steps[0].events & ABSORBED) == (expected > 0)


@pytest.mark.parametrize(("arch", "floor"), [("volta", -19), ("ampere", -20), ("hopper", -21)])
def test_tiny_terms_of_fp16_sums_meet_a_higher_one(arch, floor):
    """Half of FP16's least number and a little more is above the tie if the little term is not absorbed."""
    bits = select(as_architecture(arch), None, fs.FP16, fs.FP16).model.fraction_bits
    for little, expected in ((floor - bits, power(-24)), (floor - bits - 1, 0.0)):
        a, b = [power(-12), power(little // 2)], [power(-13), power(little - little // 2)]
        assert value(run(arch, a, b, output=fs.FP16), fs.FP16) == expected


def test_tf32_operands_are_cut_not_rounded():
    row = select(as_architecture("ampere"), "mma.m16n8k8.tf32", fs.FP32, fs.FP32)
    one, almost, signalling = 0x3F800000, 0x3F801FFF, 0x7F800001
    assert dot(row, [almost], [one], fs.FP32, fs.FP32).code == one
    assert dot(row, [signalling], [one], fs.FP32, fs.FP32).code == code(math.inf, fs.FP32)
    assert dot(row, [0x7FC00000], [one], fs.FP32, fs.FP32).code == NAN32
    assert dot(row, [0x7F7FFFFF], [one], fs.FP32, fs.FP32).code == 0x7F7FE000
    assert dot(row, [0x00001FFF], [0x7F000000], fs.FP32, fs.FP32).code == 0
    assert dot(row, [code(1.5, fs.TF32)], [code(3.0, fs.TF32)], fs.TF32, fs.TF32).code == code(4.5, fs.FP32)


# -- FP8 -------------------------------------------------------------------------------------------------------------


def test_hopper_wgmma_drops_the_low_ten_bits_of_c_and_mma_sync_does_not():
    """A and B are zero: the result is c in 13 fraction bits ("FP22"), or c unchanged."""
    c = 1 + power(-13) + power(-14) + power(-23)
    for arch, name, expected in (
        ("hopper", "wgmma.k32", 1 + power(-13)), ("hopper", "mma.m16n8k32", c), ("ada", "mma.m16n8k32", 1 + power(-13)),
        ("blackwell", "tcgen05.k32", c), ("blackwell", "mma.m16n8k32", c), ("blackwell-rtx", "mma.m16n8k32", c),
    ):  # fmt: skip
        assert value(run(arch, [0.0], [0.0], fs.E4M3, c=c, name=name)) == expected, (arch, name)


def test_fourteen_bits_of_fp8_on_ada_and_in_wgmma():
    """Next to 2**14 - 2**14, a term is kept down to 2**(14 - 13): "around 14 bits" with the leading one."""
    for arch, name, bits in (("ada", None, 13), ("hopper", None, 13), ("blackwell", None, 25)):
        for f, kept in ((bits, True), (bits + 1, False)):
            small = power(14 - f)
            big = [128, 128, power(-6)] if bits == 25 else [128, 128, small / 2]
            rest = small / power(-6) if bits == 25 else 2
            fmt = fs.E5M2
            result = run(arch, big, [128, -128, rest], fmt, name=name)
            assert value(result) == small * kept, (arch, f)


def test_hopper_mma_sync_of_fp8_adds_two_halves_of_every_four():
    """Large terms that cancel within k % 4 in {0, 1} absorb the small terms there, not the small terms at 2 and 3."""
    a = b = [power(-6)] * 32
    for pair, left in (((0, 1), 16), ((2, 3), 16), ((0, 4), 16), ((0, 2), 0), ((1, 3), 0)):
        x, y = list(a), list(b)
        x[pair[0]] = x[pair[1]] = 256
        y[pair[0]], y[pair[1]] = 256, -256
        assert value(run("hopper", x, y, fs.E4M3, name="mma.m16n8k32")) / power(-12) == left, pair
    steps = run("blackwell", a, b, fs.E4M3, c=1.0, name="mma.m16n8k32").steps
    assert [step.code for step in steps[:2]] == [code(16 * power(-12), fs.FP32), code(32 * power(-12), fs.FP32)]
    assert value(run("blackwell", a, b, fs.E4M3, c=1.0, name="mma.m16n8k32")) == 1 + power(-7)


def test_hopper_mma_sync_of_sixteen_fp8_adds_two_halves_too():
    """ptxas expands it to two HMMA.1688, the first from zero, and adds c."""
    a = b = [power(-6)] * 16
    for pair, left in (((0, 1), 8), ((2, 3), 8), ((0, 4), 8), ((0, 2), 0), ((1, 3), 0)):
        x, y = list(a), list(b)
        x[pair[0]] = x[pair[1]] = 256
        y[pair[0]], y[pair[1]] = 256, -256
        assert value(run("hopper", x, y, fs.E4M3, name="mma.m16n8k16")) / power(-12) == left, pair
    assert value(run("blackwell", [0.75], [1.0], fs.E4M3, c=power(23), name="mma.m16n8k16")) == power(23) + 1


def test_mma_sync_of_fp8_rounds_c_to_nearest():
    """An ordinary instruction adds c last: ties to even, and half of the last bit plus more goes up."""
    c = power(23)
    assert value(run("hopper", [0.75], [1.0], fs.E4M3, c=c, name="mma.m16n8k32")) == c + 1
    assert value(run("hopper", [0.5], [1.0], fs.E4M3, c=c, name="mma.m16n8k32")) == c
    assert value(run("blackwell", [0.75], [1.0], fs.E4M3, c=c)) == c


def test_fp8_formats_mix():
    assert value(run("ada", [448], [57344], fs.E4M3, b_format=fs.E5M2)) == 448 * 57344
    assert value(run("blackwell", [6], [28], fs.E2M1, b_format=fs.E3M2)) == 168


# -- block scales ----------------------------------------------------------------------------------------------------


def scaled(arch: str, name: str, a, b, sa, sb, of: Scales, c: float = 0.0, fmt: fs.FloatFormat = fs.E2M1) -> Dot:
    row = select(as_architecture(arch), name, fmt, fmt, None, of)
    scale = [[code(x, of.format) for x in side] for side in (sa, sb)]
    operands = [[code(x, fmt) for x in side] for side in (a, b)]
    return dot(row, *operands, fmt, fmt, code(c, row.output), Scaled(*scale, of))


MX, NV = Scales(32, fs.E8M0), Scales(16, fs.E4M3)


def test_block_scales_multiply():
    assert value(scaled("blackwell", "tcgen05.k64.mxf4", [6] * 64, [1] * 64, [4, 0.5], [1, 2], MX)) == 6 * 32 * 5
    assert value(scaled("blackwell", "tcgen05.k64.nvf4", [6] * 64, [1] * 64, [1.5, 2, 448, 0], [1] * 4, NV)) == (
        6 * 16 * (1.5 + 2 + 448)
    )
    eight = scaled("blackwell-rtx", "mma.m16n8k32.mxf8f6f4", [448] * 32, [1] * 32, [4], [power(-127)], MX, 1.0, fs.E4M3)
    assert value(eight) == 1.0
    assert value(scaled("blackwell", "tcgen05.k32.mxf8f6f4", [1] * 3, [1] * 3, [4], [2], MX, 1.0, fs.E4M3)) == 25


def test_a_nan_scale_gives_nan():
    for which in (0, 1):
        scales = [[1.0, 1.0], [1.0, 1.0]]
        scales[which][1] = math.nan
        assert scaled("blackwell", "tcgen05.k64.mxf4", [0] * 64, [0] * 64, *scales, MX).code == NAN32
    assert scaled("blackwell", "tcgen05.k64.mxf4", [1] * 32, [1] * 32, [1.0], [1.0], MX).code == code(32.0, fs.FP32)


def test_the_sign_of_a_scale_is_ignored():
    assert value(scaled("blackwell", "tcgen05.k64.nvf4", [1] * 16, [1] * 16, [-2.0], [1.0], NV)) == 32


def test_groups_of_sixteen_are_summed_exactly_and_aligned_by_their_scales():
    """A group that cancels to zero keeps the exponent of its scales. A group of zeros has no exponent."""
    cancels, zeros = [6] * 8 + [-6] * 8, [0] * 16
    for group, scale, kept in ((cancels, 36, 0.0), (cancels, 35, 1.0), (zeros, 36, 1.0)):
        a = group + zeros + [1]
        assert value(scaled("blackwell", "tcgen05.k64.mxf4", a, [1] * 33, [power(scale), 1], [1, 1], MX)) == kept


# -- FP64, and AMD's -------------------------------------------------------------------------------------------------


def test_fp64_is_a_chain_of_fused_multiply_adds():
    for arch in ("ampere", "hopper", "blackwell", "cdna2", "cdna3"):
        x = 1 + power(-30)
        assert value(run(arch, [x, 1], [x, -1], fs.FP64), fs.FP64) == power(-29)
        assert value(run(arch, [1, x], [-1, x], fs.FP64), fs.FP64) == power(-29) + power(-60)


def test_cdna1_adds_exactly():
    a, b = [128, 128, power(-14), 0], [128, -128, power(-14), 0]
    assert value(run("cdna1", a, b)) == power(-28)
    assert value(run("cdna1", [1], [power(-24)], c=1.0)) == 1.0
    assert value(run("cdna1", [1, power(-12)], [power(-24), power(-12)], c=1.0)) == 1 + power(-23)
    assert len(run("cdna1", [1] * 8, [1] * 8, fs.BF16).steps) == 4


def test_cdna2_flushes_subnormals():
    assert value(run("cdna2", [power(-15)], [1024])) == 0
    assert value(run("cdna2", [power(-14)], [1024])) == power(-4)
    assert value(run("cdna2", [power(-70)], [power(-60)], fs.BF16)) == 0
    assert value(run("cdna2", [1], [1], fs.BF16, c=power(-140))) == 1
    # 2**24 and three ones: as neighbours, (2**24 + 1) + (1 + 1)
    ones = [4096, 1, 1, 1]
    assert value(run("cdna2", ones, ones)) == power(24) + 2


def test_cdna3_rounds_c_downward():
    """Next to products that cancel, with the exponent 14, c is cut to a multiple of 2**-10, toward negative."""
    for c, kept in (
        (power(-10), power(-10)),
        (power(-11), 0.0),
        (-power(-30), -power(-10)),
        (-power(-10), -power(-10)),
    ):
        assert value(run("cdna3", [128, 128], [128, -128], c=c)) == kept
    # of FP8 it is dropped where it lies below the bit under those that are kept
    for c, kept in ((-power(-11), -power(-10)), (-power(-12), 0.0)):
        assert value(run("cdna3", [128, 0, 128], [128, 0, -128], fs.E4M3FNUZ, c=c)) == kept


def test_cdna3_even_and_odd_products_are_added_apart():
    a, b = [0.0] * 16, [0.0] * 16
    a[0], b[0], a[2], b[2], a[1], b[1] = 128, 128, 128, -128, power(-7), power(-7)
    assert value(run("cdna3", a, b, fs.E4M3FNUZ)) == 0  # the even ones cancel, but their exponent counts
    assert select(as_architecture("cdna3"), None, fs.E4M3FNUZ, fs.E5M2FNUZ).mixes


# -- filling up with zeros ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", NVIDIA)
def test_zeros_behind_change_nothing(arch):
    for fmt in (fs.FP16, fs.BF16, fs.TF32, fs.E4M3):
        for row in ARCHITECTURES[arch].instructions:
            if row.takes(fmt, fmt) and not row.scales:
                terms = [code(x, fmt) for x in (1.5, -0.25, 1.0)], [code(x, fmt) for x in (3.0, 0.125, -1.0)]
                long = [side + [0] * (3 * row.k) for side in terms]
                short = dot(row, *terms, fmt, fmt, code(-3.0, row.output))
                assert dot(row, *long, fmt, fmt, code(-3.0, row.output)).code == short.code
                assert all(step.last == 2 for step in short.steps)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_zeros_behind_change_no_bit_but_the_sign_of_a_zero_in_ieee_additions(arch):
    """All operands, NaN, infinities and subnormals included: blocks of zeros return their c unchanged."""
    rng = np.random.default_rng(9)
    for case in cases():
        if case.arch != arch or case.scales is not None:
            continue
        row = case.row
        for style in ("bits", "near", "tiny"):
            a, b = (codes(rng, fmt, (int(rng.integers(1, row.k + 1)),), style).tolist() for fmt in (case.a, case.b))
            a, b = a[: min(len(a), len(b))], b[: min(len(a), len(b))]
            c = int(codes(rng, row.output, (1,), style)[0])
            zeros = [0] * (row.k - len(a) + 2 * row.k)
            short, long = (
                dot(row, x, y, case.a, case.b, c).code for x, y in ((a, b), (a + zeros, b + zeros))
            )  # fmt: skip
            unsigned = row.output.magnitude_mask if row.fused is None else -1
            assert short == long or (short & unsigned == long & unsigned == 0), (str(case), style, a, b, c)


# -- the table -------------------------------------------------------------------------------------------------------


def test_the_architectures():
    assert tuple(ARCHITECTURES) == (
        "volta", "turing", "ampere", "ada", "hopper", "blackwell", "blackwell-rtx", "cdna1", "cdna2", "cdna3",
        "avx512-bf16", "avx512-fp16", "fma3", "avx10.2", "amx-bf16", "amx-fp16", "amx-fp8", "ace", "arm-bfdot",
        "arm-bfmmla", "arm-bfmlal", "arm-fp16", "arm-fp8", "arm-fmmla", "apple-amx", "riscv-zvfbfwma",
    )  # fmt: skip
    for name, architecture in ARCHITECTURES.items():
        assert architecture.name == name
        for row in architecture.instructions:
            assert row.k % row.block == 0
            assert row.gpus or row.evidence in (Evidence.SPECIFIED, Evidence.NOTHING)
            keys = [(r.name, r.output) for r in architecture.instructions if r.takes(row.inputs[0], row.inputs[0])]
            assert len(keys) == len(set(keys)), "a name and a format choose one row"


@pytest.mark.parametrize(
    ("arch", "fmt", "native"),
    [
        ("volta", fs.FP16, "mma.m8n8k4"), ("turing", fs.FP16, "mma.m16n8k8"), ("ampere", fs.FP16, "mma.m16n8k16"),
        ("ampere", fs.BF16, "mma.m16n8k16"), ("ampere", fs.TF32, "mma.m16n8k8.tf32"), ("ampere", fs.FP64, "mma.m8n8k4"),
        ("ada", fs.E4M3, "mma.m16n8k32"), ("hopper", fs.BF16, "wgmma.k16"), ("hopper", fs.TF32, "wgmma.k8.tf32"),
        ("hopper", fs.E5M2, "wgmma.k32"), ("hopper", fs.FP64, "mma.m16n8k16"), ("blackwell", fs.FP16, "tcgen05.k16"),
        ("blackwell", fs.E2M1, "tcgen05.k32"), ("blackwell-rtx", fs.FP16, "mma.m16n8k16"),
        ("blackwell-rtx", fs.E2M3, "mma.m16n8k32"), ("cdna1", fs.FP16, "mfma.32x32x8"),
        ("cdna1", fs.BF16, "mfma.32x32x4"), ("cdna2", fs.BF16, "mfma.32x32x8"), ("cdna3", fs.FP32, "mfma.32x32x2"),
        ("cdna3", fs.E4M3FNUZ, "mfma.32x32x16"), ("cdna3", fs.TF32, "mfma.32x32x4.xf32"),
    ],
)  # fmt: skip
def test_the_architecture_s_own_instruction(arch, fmt, native):
    assert select(as_architecture(arch), None, fmt, fmt).name == native


def test_the_numbers_of_the_fused_units():
    fused = [row.model for arch in NVIDIA for row in ARCHITECTURES[arch].instructions]
    blocks = [m.block if isinstance(m, TwoHalves) else m for m in fused if isinstance(m, FusedBlocks | TwoHalves)]
    for model in blocks:
        assert (
            model.fraction_bits == 35 if isinstance(model, GroupedBlocks) else model.fraction_bits in (13, 23, 24, 25)
        )
        generation = model.fraction_bits if model.fraction_bits > 13 else 24 if model.terms == 16 else 25
        if not isinstance(model, GroupedBlocks):
            assert model.floor == (4 - generation if model.grid == fs.FP16 else -108 - generation)


@pytest.mark.parametrize(
    ("attempt", "says"),
    [
        (lambda: as_architecture("hoper"), "did you mean 'hopper'"),
        (lambda: as_architecture("pascal"), "known are volta, turing"),
        (lambda: as_instruction_name(as_architecture("ampere"), "wgmma.k16"), "hopper has it; there are mma.m16n8k16"),
        (lambda: as_instruction_name(as_architecture("ampere"), "mma.m16n8k61"), "did you mean 'mma.m16n8k16'"),
        (lambda: select(as_architecture("volta"), None, fs.BF16, fs.BF16), "it takes FP16 \\(mma.m8n8k4\\)"),
        (lambda: select(as_architecture("ampere"), None, fs.FP16, fs.BF16), "ampere does not multiply FP16 by BF16"),
        (lambda: select(as_architecture("ampere"), None, fs.FP32, fs.FP32), "is named: mma.m16n8k8.tf32"),
        (lambda: select(as_architecture("ampere"), "mma.m16n8k16", fs.E4M3, fs.E4M3), "does not multiply E4M3"),
        (lambda: select(as_architecture("ampere"), None, fs.BF16, fs.BF16, fs.FP16), "gives FP32 for BF16, not FP16"),
        (lambda: select(as_architecture("hopper"), None, fs.E4M3, fs.E4M3, None, MX), "hopper takes no scales"),
        (lambda: select(as_architecture("blackwell"), "tcgen05.k64.mxf4", fs.E2M1, fs.E2M1), "takes scales"),
        (
            lambda: select(as_architecture("blackwell"), "tcgen05.k64.mxf4", fs.E2M1, fs.E2M1, None, NV),
            "no scales of E4M3 for every 16 elements; there are E8M0 for every 32",
        ),
    ],
)
def test_errors_list_what_there_is(attempt, says):
    with pytest.raises(ValueError, match=says):
        attempt()


def test_names_are_texts():
    for attempt in (lambda: as_architecture(None), lambda: as_instruction_name(as_architecture("ada"), 16)):
        with pytest.raises(TypeError, match="named by a text"):
            attempt()


@pytest.mark.parametrize(("gpu", "architecture"), [
    ("H100", "hopper"), ("sm_90", "hopper"), ("sm_90a", "hopper"), ("mi300x", "cdna3"), ("SM100a", "blackwell"),
    ("rtx 4090", "ada"), ("NVIDIA GeForce RTX 4070 Ti SUPER", "ada"), ("RTX-3090", "ampere"), ("gb200", "blackwell"),
    ("AMD Instinct MI250X", "cdna2"), ("RTX 6000 Ada", "ada"), ("blackwell rtx", "blackwell-rtx"),
    ("NVIDIA H100 80GB HBM3", "hopper"), ("NVIDIA A100-SXM4-40GB", "ampere"), ("sm_100f", "blackwell"),
    ("b300", "blackwell"), ("sm_103a", "blackwell"), ("sm_120f", "blackwell-rtx"), ("GB10", "blackwell-rtx"),
    ("sm_87", "ampere"), ("Jetson Orin", "ampere"), ("A30", "ampere"),
])  # fmt: skip
def test_gpus_are_names_of_their_architecture(gpu, architecture):
    assert fs.TensorCore(gpu).arch == architecture
    assert fs.as_accumulation(gpu) == fs.TensorCore(architecture)


def test_names_of_gpus_in_nested_descriptions():
    promoted = fs.Blocked(fs.TensorCore("ada"), 128, fs.Sequential(fs.FP32))
    for gpu in ("rtx 4090", "sm_89", "tensorcore(rtx 4090)", "RTX 6000 Ada"):
        assert fs.as_accumulation(f"blocked({gpu}, 128, fp32)") == promoted
    unit = fs.TensorCore("hopper", "mma.m16n8k16", output="fp16")
    assert fs.as_accumulation("tensorcore(sm_90a, mma.m16n8k16, output=fp16)") == unit
    with pytest.raises(ValueError, match=r"'gfx950' is AMD CDNA 4 \(gfx950\), which is not modelled yet"):
        fs.as_accumulation("blocked(gfx950, 128, fp32)")


def test_gpus_without_published_arithmetic_are_marked():
    """Their units are those of an architecture, unverified."""
    for gpu, title in (("sm_87", "NVIDIA Jetson Orin (sm_87)"), ("b300", "NVIDIA B300 (sm_103)"),
                       ("gb10", "NVIDIA GB10 (sm_121)")):  # fmt: skip
        assert as_architecture(gpu).assumed == (title,)
        assert f"{fs.tensorcore.describe(gpu)}".endswith(f"\n\nalso used for {title}, unverified")
    assert as_architecture("h100").assumed == ()
    assert "unverified" not in f"{fs.tensorcore.describe('volta')}"


@pytest.mark.parametrize(
    ("name", "architecture"),
    [("7.0", "volta"), ("7.5", "turing"), ("8.7", "ampere"), ("8.9", "ada"), ("9.0", "hopper"), ("10.3", "blackwell"),
     ("12.1", "blackwell-rtx"), ("compute capability 9.0", "hopper"), ("cc 8.6", "ampere"), ("compute_90a", "hopper"),
     ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "blackwell-rtx"), ("NVIDIA L40S", "ada"),
     ("NVIDIA RTX 6000 Ada Generation", "ada"), ("NVIDIA H100 80GB HBM3", "hopper"), ("MI300", "cdna3")],
)  # fmt: skip
def test_compute_capabilities_and_names_of_the_driver(name, architecture):
    assert fs.TensorCore(name) == fs.as_accumulation(name) == fs.TensorCore(architecture)


@pytest.mark.parametrize("name", ["6.1", "9.9", "11", "8.75"])
def test_other_numbers_are_no_architecture(name):
    with pytest.raises(ValueError, match=f"unknown architecture {name!r}"):
        fs.TensorCore(name)


def test_what_was_probably_meant():
    with pytest.raises(ValueError, match="did you mean 'hopper'"):
        fs.as_accumulation("hoper")
    with pytest.raises(ValueError, match="unknown architecture 'cdna5'; known are"):  # another unit than CDNA 3's
        fs.TensorCore("cdna5")


@pytest.mark.parametrize(
    ("gpu", "title"),
    [("gfx950", "AMD CDNA 4 (gfx950)"), ("cdna4", "AMD CDNA 4 (gfx950)"), ("MI355X", "AMD CDNA 4 (gfx950)"),
     ("sm_110a", "NVIDIA Jetson Thor (sm_110)"), ("rdna3", "AMD RDNA 3 (gfx11)"), ("gfx1151", "AMD RDNA 3.5 (gfx115x)"),
     ("RDNA 3.5", "AMD RDNA 3.5 (gfx115x)"), ("AMD Radeon 890M", "AMD RDNA 3.5 (gfx115x)")],
)  # fmt: skip
def test_a_gpu_whose_units_are_not_in_the_table(gpu, title):
    says = re.escape(f"{gpu!r} is {title}, which is not modelled yet; known architectures are volta, ")
    for attempt in (fs.TensorCore, fs.as_accumulation):
        with pytest.raises(ValueError, match=says):
            attempt(gpu)


def test_other_names_are_of_one_architecture_each():
    """Written as `as_architecture` compares them, and none both in the table and missing from it."""
    assert set(architectures.GPUS.values()) == set(ARCHITECTURES)
    for name in [*architectures.GPUS, *architectures._MISSING]:
        assert architectures._key(name) == architectures.GPUS.get(name, name)
    assert not architectures.GPUS.keys() & architectures._MISSING.keys()
