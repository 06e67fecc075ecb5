"""The theorems under which a fast kernel returns the bits of the definition, each stated once.

Each function decides one hypothesis. Its docstring gives the hypothesis, the claim, the source and the test that tries
to break it. `python -m tests.exhaustive 'paths-*'` walks both sides of every bound with custom formats. Notation: p and
P are the precisions of a format and of a carrier, q and Q the exponents of their smallest subnormals.
"""

from __future__ import annotations

from collections.abc import Sequence

from floatsim_kernels.functions import enclosures as ends

from floatsim.formats import BF16, FP16, FP32, FP64, FloatFormat
from floatsim.formats.rounding import Overflow, Rounding, RoundingAttributes
from floatsim.formats.value_sets import TermRange, contains, quantum

__all__ = [
    "FLOAT64_EXPONENTS",
    "counted_in_float32",
    "divisions_may_be_lifted",
    "double_rounding_is_innocuous",
    "enclosed_in_float64",
    "events_follow_from_results",
    "exponents_bound_operands",
    "float32_code_carries",
    "float64_rounds_single_stochastically",
    "nearest_then_nearest",
    "odd_float32_rounds_once",
    "odd_float64_rounds_once",
    "on_grid",
    "packed_float32_rounds_once",
    "product_rounds_once",
    "products_are_not_rounded",
    "reciprocals_of_powers_are_exact",
    "rounds_by_addition",
    "rounds_in_float64",
    "short_products_round_in_float64",
    "sums_are_exact",
    "sums_with_terms_round_once",
    "terms_fit_float64",
    "two_floats_hold_blocks",
]  # fmt: skip

FLOAT64_EXPONENTS = 900
"""Largest magnitude of exponents that the float64 kernels take. Their constants are at most 2**60 times larger or
smaller than the numbers they round, so that they stay inside float64's normal range, 2**-1022 to 2**1023."""


def double_rounding_is_innocuous(fmt: FloatFormat, carrier: FloatFormat = FP32) -> bool:
    """Return whether a sum or a product of two values of a format may be rounded to the carrier first, ties to even.

    Hypothesis: 2 p + 2 <= P. Claim: rounding to P bits, then to p bits, equals rounding to p bits. Below 2**emin sums
    of two values are exact.
    Source: S. A. Figueroa, "When is double rounding innocuous?", ACM SIGNUM Newsletter 30(3), 1995, theorem for +, *.
    Test: paths-double_rounding_innocuous.
    """
    return 2 * fmt.precision + 2 <= carrier.precision


def rounds_by_addition(fmt: FloatFormat, carrier: FloatFormat = FP32) -> bool:
    """Return whether (x + C) - C with C = 2**(e + P - p) rounds a carrier value x of exponent e to the format.

    Hypothesis: p < P, every finite value of the format is one of the carrier's, 2**emin is a normal carrier number, and
    C is a carrier number for every e up to emax + 1. Claim: x + C lies in the binade of C, whose quantum is that of p
    bits at exponent e, in each direction of the hardware. For p = P there is no such C: x + 2**e may lie in the binade
    above. The kernels read e from the exponent field, which has no exponent of the carrier's subnormal numbers.
    Source: T. J. Dekker, "A floating-point technique for extending the available precision", 1971, section 5.
    Test: paths-directed_roundings_nest, paths-veltkamp_rounds; tests/emulator/test_repaired.py.
    """
    return (
        fmt.precision < carrier.precision
        and contains(carrier, fmt, specials=False)
        and fmt.emin >= carrier.emin
        and fmt.emax + 1 + carrier.precision - fmt.precision <= carrier.emax
    )


def products_are_not_rounded(product: FloatFormat | None, terms: TermRange) -> bool:
    """Return whether the terms of a sum enter exactly, because none is rounded or because rounding changes none.

    Hypothesis: there is no product format, the terms are values, or every product (infinite, NaN and -0 too) is a value
    of the product format. Without the specials an infinite product would stay infinite where it has to become max.
    Test: paths-zeros_and_specials, paths-terms_in_format; tests/emulator/test_repaired.py.
    """
    return product is None or terms.b is None or contains(product, terms)


def product_rounds_once(terms: TermRange, fmt: FloatFormat) -> bool:
    """Return whether a product rounded to float32, ties to even, and then to the format is rounded once.

    Hypothesis: the product's bits fit float32's precision, and one of: products are multiples of float32's quantum; the
    format's smallest midpoint is a normal float32, so that what float32 cannot hold is below it; products have at most
    16 bits and q >= BF16's, where those of at least the smallest midpoint, 2**-134, are multiples of 2**-149.
    Claim: the product is exact in float32, or both roundings give the same zero, smallest number or overflow.
    Test: paths-products_exact_in_carrier.
    """
    exact = terms.lowest >= quantum(FP32)
    lost = quantum(fmt) - 1 >= FP32.emin
    short = terms.precision <= 16 and quantum(fmt) >= quantum(BF16)
    return terms.precision <= FP32.precision and (exact or lost or short)


def on_grid(fmt: FloatFormat, terms: TermRange) -> bool:
    """Return whether finite terms are numbers of the format, its range aside."""
    return terms.precision <= fmt.precision and terms.lowest >= quantum(fmt)


def sums_are_exact(terms: TermRange, carrier: FloatFormat = FP32) -> bool:
    """Return whether the carrier holds the sum of every two terms, each a carrier number.

    Hypothesis: the sum's largest bit and the terms' lowest bit are fewer than P apart. A sum beyond the carrier's range
    overflows there as in every format inside it.
    Test: paths-sum_is_exact.
    """
    return terms.highest + 2 - terms.lowest <= carrier.precision


def sums_with_terms_round_once(fmt: FloatFormat, terms: TermRange, both_terms: bool) -> bool:
    """Return whether sums of a value of the format and an exact term may be rounded to float32 first, ties to even.

    Hypothesis: 2 p + 2 <= 24, terms are float32 numbers of at most p bits; if a sum may be of two terms (`both_terms`),
    they lie on the format's grid or their sums are exact in float32.
    Claim: the second rounding is innocuous. Above 2**emin this is Figueroa's theorem. Below it, a midpoint of the
    subnormals plus or minus a value of the format has at most 2 p + 1 bits and is exact; a smaller term stays away from
    midpoints. Of two terms off the grid one may be a midpoint and the other too small for float32 beside it.
    Test: tests/emulator/test_float32.py::test_two_terms_beside_a_midpoint_of_the_subnormals;
    paths-terms_in_format, paths-sum_is_exact.
    """
    return (
        double_rounding_is_innocuous(fmt)
        and terms.precision <= fmt.precision
        and contains(FP32, terms, specials=False)
        and (not both_terms or on_grid(fmt, terms) or sums_are_exact(terms))
    )


def terms_fit_float64(terms: TermRange) -> bool:
    """Return whether every finite term is a float64 number with room for the constants of the float64 kernels.

    Test: paths-unpack_range, paths-exact_levels.
    """
    return terms.precision <= FP64.precision and terms.lowest >= quantum(FP64) and terms.highest <= FLOAT64_EXPONENTS


def exponents_bound_operands(terms: TermRange) -> bool:
    """Return whether the exponent field of each finite operand, as float64, bounds its magnitude on both sides.

    Hypothesis: every operand that is not zero is a normal float64 number. The exact sums choose the levels of a product
    by the exponents of its factors.
    Test: tests/emulator/test_repaired.py; paths-exact_levels.
    """
    return all(quantum(factor) >= FP64.emin for factor in terms.factors)


def two_floats_hold_blocks(terms: TermRange, products: int, output: FloatFormat) -> bool:
    """Return whether a float64 sum and the sum of its rounding errors hold the exact sum of c and some products.

    Hypothesis: at most 8 products, float64 numbers each, and a result of at most 51 bits. The kernel itself tests that
    all terms are multiples of 2**low and all sums below 2**high, with high - low <= 104.
    Claim: each error is a multiple of 2**low of at most 2**(high - 54), and so is every sum of 8 of them, of at most
    2**(high - 51): a float64 number. TwoSum of the sum and the errors, rounded to odd, keeps what the rounding to the
    output needs (S. Boldo and G. Melquiond, theorem 1; see `rounds_in_float64`). With high - low <= 52 there is no
    error. Sums in order grow by at most twice each product, because a rounding of acc + p errs by |p| at most.
    Source: D. E. Knuth, "The Art of Computer Programming", volume 2, section 4.2.2, theorem B (TwoSum).
    Test: tests/tensorcore/test_kernels.py::test_exact_blocks_on_both_sides_of_their_bounds.
    """
    return products <= 8 and terms_fit_float64(terms) and output.precision <= 51


def rounds_in_float64(fmt: FloatFormat, attributes: RoundingAttributes) -> bool:
    """Return whether the float64 kernels round a sum, taken to odd or toward zero in 53 bits, to the format.

    Hypothesis: p <= 50 (20 for stochastic rounding: 32 random bits below p), exponents up to 900, NaN exists, neither
    DAZ nor FTZ. Claim: rounding to odd in 53 bits, then in any way to 51 bits or fewer, is rounding once; so is a
    directed rounding after the same direction, and a stochastic one whose 32 bits are all kept.
    Source: S. Boldo and G. Melquiond, "Emulation of a FMA and correctly rounded sums: proved algorithms using
    rounding to odd", IEEE Trans. Computers 57(4), 2008, theorem 1.
    Test: tests/emulator/test_float64.py; paths-odd_rounding_suffices.
    """
    stochastic = attributes.rounding is Rounding.STOCHASTIC
    return (
        not (attributes.daz or attributes.ftz)
        and fmt.has_nan
        and fmt.precision <= (20 if stochastic else 50)
        and attributes.random_bits <= (32 if stochastic else 64)
        and quantum(fmt) >= -FLOAT64_EXPONENTS
        and fmt.emax <= FLOAT64_EXPONENTS
    )


def short_products_round_in_float64(product: FloatFormat, terms: TermRange, attributes: RoundingAttributes) -> bool:
    """Return whether products are rounded stochastically to FP32 as numbers of 20 bits with FP32's quantum.

    Hypothesis: products have at most 20 bits, and the conditions of `rounds_in_float64` for stochastic rounding but
    p <= 20. Claim: a product that is at least 2**-130 in magnitude is a number of FP32 and of 20 bits, so neither
    rounding changes it, up to overflow, which is decided with FP32's largest number. Below, both round to multiples of
    2**-149 with the same bits of the product and the draw.
    Test: tests/emulator/test_float64.py.
    """
    return (
        product == FP32
        and attributes.rounding is Rounding.STOCHASTIC
        and terms.precision <= 20
        and attributes.random_bits <= 32
        and not (attributes.daz or attributes.ftz)
    )


def nearest_then_nearest(fmt: FloatFormat, terms: TermRange, both_terms: bool) -> bool:
    """Return whether float64 sums may be rounded to nearest before they are rounded to the format.

    `both_terms`: a sum may be of two terms, not only of a value of the format and a term.

    Hypothesis: sums are exact in float64; or, for terms of B bits, B + p <= 50 and p <= 25, and a term cannot be a
    midpoint of the format beside a value too small for float64: B <= p, or q above e(term) - 53 for every term. Two
    terms have to lie on the format's grid.
    Claim: with x = s + t inexact in 53 bits, the last bit of the smaller lies far below the first bit of the larger.
    If s is the larger, |t| is less than an eighth of its quantum, and x and its rounding have s for nearest. If t is
    the larger, only a tie can go wrong: a midpoint m = t, because other midpoints are more than |s| away. x, rounded
    to 53 bits, is m only if |s| <= 2**(e(t) - 53). t is no midpoint if B <= p; s is larger if 2**q is. Beyond emax
    the sum overflows either way. This holds for both kinds of ties.
    Test: tests/emulator/test_float64.py::test_a_tie_far_from_what_breaks_it; paths-nearest_then_nearest.
    """
    p, bits, least = fmt.precision, terms.precision, quantum(fmt)
    lowest, highest = min(least, terms.lowest), max(fmt.emax + 1, terms.highest)
    if highest + 2 - lowest <= FP64.precision:
        return True
    if bits + p > 50 or p > 25:
        return False
    if both_terms:
        return on_grid(fmt, terms)
    return bits <= p or least > min(terms.highest, fmt.emax) - FP64.precision


def packed_float32_rounds_once(fmt: FloatFormat) -> bool:
    """Return whether + - * / and sqrt of two values of a format may be rounded to float32 first, ties to even.

    Hypothesis: 2 p + 2 <= 24, products and quotients of the largest and smallest numbers are normal float32 numbers.
    Claim: the second rounding is innocuous, below 2**emin too: no result is subnormal in float32.
    Source: Figueroa (see `double_rounding_is_innocuous`), for + - * / and sqrt.
    Test: tests/emulator/test_elementwise_fast.py; `python -m tests.exhaustive 'pairs-*'`.
    """
    lowest, highest = quantum(fmt), fmt.emax + 1
    return (
        double_rounding_is_innocuous(fmt)
        and min(2 * lowest, lowest - highest) >= FP32.emin
        and max(2 * highest, highest - lowest) <= FP32.emax
        and not fmt.is_scale
    )


def odd_float64_rounds_once(fmt: FloatFormat, rounding: Rounding, random_bits: int) -> bool:
    """Return whether + - * /, sqrt and fma of values of a format may be rounded to odd in float64 first.

    Hypothesis: 2 p <= 53, so that products are exact, p <= 51 (20 for stochastic rounding: 32 random bits below p), and
    exponents up to 250, so that no operand, result or error term is beyond float64's normal range.
    Claim: the float64 result and the sign of its error give the exact result rounded to odd: the error of a sum is a
    float64 number (D. E. Knuth's TwoSum), and the remainders x - (x / y) y and x - sqrt(x)**2 are, too. Rounding this
    in any mode to p bits is rounding once (S. Boldo and G. Melquiond, theorem 1; see `rounds_in_float64`).
    Test: tests/emulator/test_elementwise_fast.py; `python -m tests.exhaustive 'pairs-*'`.
    """
    stochastic = rounding is Rounding.STOCHASTIC
    return (
        fmt.precision <= (20 if stochastic else 26)
        and (random_bits <= 32 or not stochastic)
        and quantum(fmt) >= -250
        and fmt.emax <= 250
        and not fmt.is_scale
    )


def odd_float32_rounds_once(fmt: FloatFormat, name: str, rounding: Rounding) -> bool:
    """Return whether an operation of `odd_float64_rounds_once` may be computed in float32 instead.

    Hypothesis: 2 p <= 24, so that products are exact; the last bits of products, and of the remainders x - (x / y) y,
    are normal float32 numbers, and twice the largest product and quotient are below float32's largest number.
    Claim: as in float64, the error of a sum and the remainders are float32 numbers, so the result is rounded to odd in
    24 >= p + 2 bits.
    With stochastic rounding only sums, products and FMA, whose error e is known exactly, and quanta >= 2**-32. With t
    the result toward zero in float32 and r its multiple of the quantum q, (t - r) 2**32 / q is an integer: t is a
    multiple of its own last bit >= 2**-24 q, or of 2**(2 log2 q) where q is the least quantum. So its sum with the
    integer part of what t lacks, times 2**32 / q, is the first 32 bits of the discarded fraction.
    Test: tests/emulator/test_elementwise_fast.py; `python -m tests.exhaustive 'pairs-*'`.
    """
    lowest, highest = quantum(fmt), fmt.emax + 1
    if rounding is Rounding.STOCHASTIC and (name in ("divide", "sqrt") or lowest < -32):
        return False
    return (
        2 * fmt.precision <= FP32.precision
        and min(2 * lowest, 2 * lowest - highest - FP32.trailing_bits) >= FP32.emin
        and max(2 * highest, highest - lowest) + 1 <= FP32.emax
    )


def float32_code_carries(fmt: FloatFormat, name: str, attributes: RoundingAttributes) -> bool:
    """Return whether a stochastic rounding of a float32 result is a carry into the bits that the format keeps.

    Hypothesis: sums of BF16 or FP16 numbers, or products of BF16 numbers; at most 32 random bits, neither DAZ nor FTZ,
    overflow gives infinity.
    Claim: let t be the result toward zero in float32. The discarded bits of t and the integer part of what t lacks,
    times 2**(32 - dropped) / ulp(t), are the first 32 bits of the discarded fraction: for BF16 the quantum is a fixed
    bit of the code, and an FP16 sum below 2**-14 is an FP16 number. A sum lacks nothing where float32 is subnormal, nor
    below 2**-110: it is a multiple of 2**-133. A product of 8-bit significands is exact in float32 down to 2**-134,
    because its last bit is at least 2**-149. Below 2**-126 it is computed as 2**83 |x| times 2**82 |y|, exactly: no
    operand is more than 2**7 there, because none is less than 2**-133. That is 2**16 times float32's code, and below
    2**-133 it is the fraction of BF16's least number times 2**32. Beyond float32 a result is at least 2**128, which
    overflows.
    Test: tests/emulator/test_elementwise_fast.py.
    """
    names = {BF16: ("add", "subtract", "multiply"), FP16: ("add", "subtract")}.get(fmt, ())
    plain = float64_rounds_single_stochastically(attributes)
    return name in names and plain and attributes.overflow is Overflow.INFINITY


def float64_rounds_single_stochastically(attributes: RoundingAttributes) -> bool:
    """Return whether + - * /, sqrt and fma of FP32 numbers, rounded stochastically to FP32, may use float64.

    Hypothesis: at most 32 random bits, neither DAZ nor FTZ. Claim: float64 to nearest and the sign of the exact error
    (see `odd_float64_rounds_once`: all operands, results and errors are normal float64 numbers or zero) give the exact
    result toward zero in 53 bits, so the first 29 bits that FP32 discards. With r the draw times 2**(32 - random_bits),
    the result is rounded up if 8 * fraction + r >= 2**32, is not if 8 * fraction + r < 2**32 - 7, and is undecided
    otherwise: three bits are unknown. Results that are subnormal in FP32, overflow or are no numbers are undecided too.
    The integer kernels compute blocks with undecided elements.
    Test: tests/emulator/test_elementwise_fast.py.
    """
    plain = not (attributes.daz or attributes.ftz)
    return attributes.rounding is Rounding.STOCHASTIC and attributes.random_bits <= 32 and plain


def counted_in_float32(fmt: FloatFormat) -> bool:
    """Return whether the counting kernels round sums and products of a format from float32, ties to even.

    Hypothesis: 2 p + 2 <= 24, rounding is by addition, the smallest midpoint is a normal float32, NaN and -0 exist.
    Claim: double rounding is innocuous, and each event is decided by the float32 result.
    Test: tests/emulator/test_counting.py; paths-counting.
    """
    return (
        double_rounding_is_innocuous(fmt)
        and rounds_by_addition(fmt)
        and quantum(fmt) - 1 >= FP32.emin
        and fmt.has_signed_zero
        and fmt.has_nan
        and not fmt.is_scale
    )


def enclosed_in_float64(sources: Sequence[FloatFormat], fmt: FloatFormat) -> bool:
    """Return whether the kernels of mathematical functions enclose the values of arguments of some formats.

    Hypothesis: arguments of at most 24 bits and magnitudes from 2**-300 to 2**300; a result of at most 30 bits whose
    numbers are between 2**-900 and 2**900.
    Claim: the exact value lies between both ends (`floatsim_kernels.functions.enclosures`), and no end is beyond the
    range of float64. Rounding is monotonic: if both ends round to one code, the exact value does, too. Next to a number
    of at most 24 bits no number of 30 bits, and no midpoint of two such numbers, lies between that number and the end.
    Test: tests/emulator/test_functions.py; `python -m tests.exhaustive 'functions-*'`.
    """
    return (
        all(
            x.precision <= ends.ARGUMENT_BITS
            and quantum(x) >= -ends.ARGUMENT_EXPONENT
            and x.emax < ends.ARGUMENT_EXPONENT
            and not x.is_scale
            for x in sources
        )
        and fmt.precision <= ends.RESULT_BITS
        and quantum(fmt) >= -ends.RESULT_EXPONENT
        and fmt.emax < ends.RESULT_EXPONENT
        and not fmt.is_scale
    )


def one_float64_rounds_to_nearest(name: str) -> bool:
    """Return whether one float64 number y gives the results of a function in FP32, ties to even.

    Hypothesis: for the arguments of its row in `floatsim_kernels.functions.enclosures.INSIDE`, the kernel's error is at
    most 2**-47 |y|, and y is 0, then exactly, or in the range of the normal numbers of FP32.
    Claim: 64 last places of y are at least 2**-47 |y|. So if no midpoint of two FP32 numbers is at most 64 last places
    of y away, the exact value and y round to one number. The bits of y that FP32 lacks say whether there is one:
    midpoints have the bit of half a last place of FP32, and no bit below.
    Test: tests/emulator/test_functions.py, test_float64_numbers_far_from_midpoints_round_alike_in_float32 and
    test_ends_of_the_range_of_one_conversion; `python -m tests.exhaustive 'ends-fp32-*'`.
    """
    return name in ends.INSIDE


def events_follow_from_results(attributes: RoundingAttributes) -> bool:
    """Return whether a finite result, and whether it is exact, decide the events of an element-wise operation.

    Hypothesis: the rounding mode is deterministic, and subnormal numbers are neither read as zero nor flushed.
    Claim, with m the magnitude of the result, n = 2**emin and q the distance of subnormal numbers: an exact result has
    no event but SUBNORMAL, where 0 < m < n. An inexact one below the largest number did not overflow. If m > n, the
    exact result is at least n. If m < n, the exact result rounded to p bits is below n, too. To nearest, it is at most
    n - q / 2, which has p bits. In the other modes it does not round to n in either precision. So the result is tiny by
    both rules, and has UNDERFLOW. Only m = n and the largest number stay open.
    Test: tests/emulator/test_elementwise_fast.py; `python -m tests.exhaustive 'pairs-*'`.
    """
    return attributes.rounding is not Rounding.STOCHASTIC and not (attributes.daz or attributes.ftz)


def reciprocals_of_powers_are_exact(scales: FloatFormat, carrier: FloatFormat) -> bool:
    """Return whether x / s may be computed as x * (1 / s), for scales s that are powers of two in a format.

    Hypothesis: the reciprocals of the least and the largest power of two of the format are numbers of the carrier.
    Claim: x / s and x * (1 / s) are one real number, so they round alike.
    Source: the exact reciprocal of 2**e is 2**-e. Test: tests/quantization/test_block_kernels.py.
    """
    least, largest = scales.emin - scales.trailing_bits, scales.emax
    return -least <= carrier.emax and -largest >= carrier.emin - carrier.trailing_bits


def divisions_may_be_lifted(largest: float, power: float) -> bool:
    """Return whether x / d may be computed as (x * p) / (d * p), for 0 < d <= largest and a power of two p >= 1.

    Hypothesis: largest < p**-2. Claim: d * p < 1 / p is finite, so both products are exact, unless x * p is infinite.
    Then |x| >= 2**(emax + 1) / p, and x / d is infinite too: |x| / d >= 2**(emax + 1) / p * p**2.
    Test: tests/quantization/test_block_kernels.py.
    """
    return largest < power**-2
