"""Claims 1 to 20: ranges, precision and conversions of formats."""

from __future__ import annotations

import math

import numpy as np

from floatsim import BF16, E4M3, E5M2, FP16, FP32, FloatFormat, as_format, convert, encode, from_codes, quantize
from studies.claims.claim import Claim, Finding, computed, decimal, exact_text, near

CLAIMS: dict[int, Claim] = {}


@computed(CLAIMS, 1, "BF16 ranges from 1.56e-5 to 3.39e38.", least=1.56e-5, largest=3.39e38)
def _range_of_bf16(least: float, largest: float) -> Finding:
    ends = near(least, BF16.smallest_normal) or near(least, BF16.smallest_subnormal)
    return Finding(ends and near(largest, BF16.max), exact_text(BF16))


@computed(
    CLAIMS, 2, "The least number of BF16, 1.56e-5, is above that of FP16, 5.96e-8.", bf16=1.56e-5, fp16=5.96e-8
)  # fmt: skip
def _order_of_the_least_numbers(bf16: float, fp16: float) -> Finding:
    ends = [(fmt.smallest_subnormal, fmt.smallest_normal) for fmt in (BF16, FP16)]
    claimed = any(near(bf16, a) and near(fp16, b) and a > b for a, b in zip(*ends, strict=True))
    return Finding(claimed, f"{exact_text(BF16)}; {exact_text(FP16)}")


@computed(CLAIMS, 3, "The least positive number of BF16 is 1.4e-45.", least=1.4e-45)
def _least_of_bf16(least: float) -> Finding:
    found = f"{decimal(BF16.smallest_subnormal)}; {decimal(FP32.smallest_subnormal)} is that of FP32"
    return Finding(near(least, BF16.smallest_subnormal), found)


@computed(CLAIMS, 4, "FP32 ranges from 1.18e-38 to 3.40e38.", least=1.18e-38, largest=3.40e38)
def _range_of_fp32(least: float, largest: float) -> Finding:
    return Finding(near(least, FP32.smallest_normal) and near(largest, FP32.max), exact_text(FP32))


@computed(CLAIMS, 5, "The least normal number of FP16 is 5.96e-8.", least=5.96e-8)
def _least_normal_of_fp16(least: float) -> Finding:
    return Finding(near(least, FP16.smallest_normal), exact_text(FP16))


@computed(CLAIMS, 6, "The least normal number of FP16 is 6.1e-5.", least=6.1e-5)
def _least_normal_of_fp16_again(least: float) -> Finding:
    return Finding(near(least, FP16.smallest_normal), exact_text(FP16))


@computed(CLAIMS, 7, "Gradients below 6.1e-5 become 0 in FP16.", limit=6.1e-5)
def _underflow_of_fp16(limit: float) -> Finding:
    below = np.float64(limit) * (1 - 1e-6)
    least = FP16.smallest_subnormal / 2
    text = (
        f"{decimal(below)} becomes {decimal(float(quantize(below, FP16)))}; 0 is for at most 2^-25 = {decimal(least)}"
    )
    return Finding(bool(quantize(below, FP16) == 0), text)


@computed(CLAIMS, 8, "FP16 can represent [6.1e-5, 65504].", least=6.1e-5, largest=65504.0)
def _range_of_fp16(least: float, largest: float) -> Finding:
    subnormal = 2**FP16.trailing_bits - 1
    holds = near(least, FP16.smallest_normal) and largest == FP16.max
    return Finding(holds, f"{exact_text(FP16)}; {subnormal} positive subnormal numbers are left out", subnormal > 0)


@computed(CLAIMS, 9, "A gradient of 1e-5 becomes 0 in FP16.", gradient=1e-5)
def _a_small_gradient(gradient: float) -> Finding:
    value = float(quantize(np.float64(gradient), FP16))
    error = abs(value / gradient - 1)
    return Finding(value == 0, f"{gradient:g} becomes {decimal(value)}, a relative error of {100 * error:.3f} %")


@computed(CLAIMS, 10, "FP16 has about 4 digits, so that 1e-5 is truncated to 0.", digits=4, number=1e-5)
def _digits_of_fp16(digits: float, number: float) -> Finding:
    have, value = math.log10(2**FP16.precision), float(quantize(np.float64(number), FP16))
    holds = abs(digits - have) < 1
    return Finding(holds, f"{have:.2f} digits; {number:g} becomes {decimal(value)}, not 0", value != 0)


@computed(CLAIMS, 11, "The largest number of FP16 is 65504.", largest=65504.0)
def _largest_of_fp16(largest: float) -> Finding:
    first = next(x for x in range(65504, 65600) if np.isinf(quantize(np.float64(x), FP16)))
    return Finding(largest == FP16.max, f"{FP16.max:g}; to nearest, overflow starts at {first}")


@computed(
    CLAIMS, 12, "FP16 has 5 exponent bits, BF16 and FP32 have 8; the trailing significands have 10, 7 and 23 bits.",
    fp16=(5, 10), bf16=(8, 7), fp32=(8, 23),
)  # fmt: skip
def _fields(fp16: tuple[int, int], bf16: tuple[int, int], fp32: tuple[int, int]) -> Finding:
    fields = {fmt: (fmt.exponent_bits, fmt.trailing_bits) for fmt in (FP16, BF16, FP32)}
    text = ", ".join(f"{fmt.name} 1+{e}+{t}" for fmt, (e, t) in fields.items())
    return Finding(list(fields.values()) == [tuple(fp16), tuple(bf16), tuple(fp32)], text)


@computed(
    CLAIMS, 13, "The largest number is (2 - 2^-m) 2^(2^(e-1) - 1), for e exponent bits and m trailing bits.",
    formats=("fp32", "fp16", "bf16", "e5m2"),
)  # fmt: skip
def _formula(formats: tuple[str, ...]) -> Finding:
    def largest(fmt: FloatFormat) -> float:
        return float((2 - 2.0**-fmt.trailing_bits) * 2.0 ** (2 ** (fmt.exponent_bits - 1) - 1))

    holds = all(largest(as_format(name)) == as_format(name).max for name in formats)
    text = f"right for {', '.join(formats)}; E4M3: {largest(E4M3):g} by the formula, {E4M3.max:g} in fact"
    return Finding(holds, text, largest(E4M3) != E4M3.max)


@computed(CLAIMS, 14, "E4M3: largest 448, least normal 0.015625.", largest=448.0, least=0.015625)
def _range_of_e4m3(largest: float, least: float) -> Finding:
    return Finding(largest == E4M3.max and least == E4M3.smallest_normal, exact_text(E4M3))


@computed(CLAIMS, 15, "E5M2: largest 57344, least normal 6.1e-5.", largest=57344.0, least=6.1e-5)
def _range_of_e5m2(largest: float, least: float) -> Finding:
    return Finding(largest == E5M2.max and near(least, E5M2.smallest_normal), exact_text(E5M2))


@computed(CLAIMS, 16, "BF16: largest 3.4e38, least normal 1.2e-38.", largest=3.4e38, least=1.2e-38)
def _range_of_bf16_again(largest: float, least: float) -> Finding:
    of_fp32 = float(quantize(np.float64(FP32.max), BF16))
    holds = near(largest, BF16.max, 0.03) and near(least, BF16.smallest_normal, 0.03)
    return Finding(holds, f"{exact_text(BF16)}; the largest number of FP32 becomes {of_fp32}")


@computed(CLAIMS, 17, "FP32 has about 7 digits, FP16 3, BF16 2.", fp32=7, fp16=3, bf16=2)
def _digits(fp32: float, fp16: float, bf16: float) -> Finding:
    digits = {fmt: math.log10(2**fmt.precision) for fmt in (FP32, FP16, BF16)}
    holds = all(math.floor(d) == claimed for d, claimed in zip(digits.values(), (fp32, fp16, bf16), strict=True))
    return Finding(holds, ", ".join(f"{fmt.name} {d:.2f}" for fmt, d in digits.items()))


@computed(CLAIMS, 18, "The precision of BF16 is 2^-7, which is 0.004.", exponent=-7, value=0.004)
def _precision_of_bf16(exponent: int, value: float) -> Finding:
    eps = BF16.eps
    holds = 2.0**exponent == eps and near(value, eps, 0.05)
    return Finding(holds, f"eps = 2^-7 = {eps}; {eps / 2:.4f} = 2^-8 is the unit roundoff")


@computed(CLAIMS, 19, "The conversion of FP32 to BF16 is a truncation of 16 bits, without a cost.", bits=16)
def _truncation(bits: int) -> Finding:
    x = np.random.default_rng(0).normal(size=100_000).astype(np.float32)
    truncated = (x.view(np.uint32) >> bits).astype(np.uint16)
    holds = np.array_equal(truncated, encode(x, BF16, rounding="toward_zero"))
    nearest = encode(x, BF16)
    values = from_codes(encode(x, BF16, rounding="toward_zero"), BF16).values
    bias = float(np.mean(np.abs(values) / np.abs(x.astype(np.float64)) - 1))
    differ = float(np.mean(truncated != nearest))
    text = f"{100 * differ:.1f} % of N(0, 1) differ from rounding to nearest; mean bias {100 * bias:.3f} %"
    nan = from_codes(np.array([0x7F800001 >> 16], np.uint16), BF16).values
    return Finding(bool(holds), f"{text}; the NaN 0x7F800001 becomes {nan[0]}", differ > 0.1)


@computed(CLAIMS, 20, "The conversion of FP32 to FP16 needs special handling: 1e5, 1e-5.", over=1e5, tiny=1e-5)
def _conversion_to_fp16(over: float, tiny: float) -> Finding:
    x = np.array([over, tiny], np.float32)
    to_fp16, to_bf16 = (convert(x, fmt) for fmt in (FP16, BF16))
    values = [np.asarray(y, np.float64) for y in (to_fp16, to_bf16)]
    overflows, subnormal = np.isinf(values[0][0]), 0 < values[0][1] < FP16.smallest_normal
    text = f"FP16 {values[0][0]}, {decimal(values[0][1])} (subnormal); BF16 {values[1][0]:g}, {decimal(values[1][1])}"
    return Finding(bool(overflows and subnormal), text)
