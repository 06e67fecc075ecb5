"""The reference compared with MPFR, NumPy's arithmetic and ml_dtypes. The page "Conventions" says where each is used.

MPFR evaluates once, toward zero, with at least 64 more bits. Its ternary value is the sticky bit, and the rational
rounding of `oracles` rounds the result. Where IEEE 754 and MPFR define the same operation (formats with infinities,
ties to even and the directed modes), MPFR also rounds to the format with `subnormalize`.
"""

from fractions import Fraction

import gmpy2
import ml_dtypes
import numpy as np
import oracles as o
import pytest
from oracles import OracleRounding

import floatsim as fs
from floatsim import Overflow, Rounding, Tininess, reference

pytestmark = pytest.mark.full

FORMATS = (*o.ARITHMETIC, *o.CUSTOM)
ids = {"ids": lambda x: getattr(x, "name", str(x))}
EVERY_ROUNDING = o.every_rounding()


@pytest.mark.parametrize("fmt", FORMATS, **ids)
@pytest.mark.parametrize("operation", o.ARITY)
def test_operation_equals_mpfr(operation, fmt):
    """Codes, flags and events. Every mode, policy, tininess rule, DAZ and FTZ occurs many times."""
    r = o.rng("mpfr", operation, fmt)
    codes = o.structured(fmt, o.ARITY[operation], 110, r)
    function = getattr(reference, operation)
    roundings = {daz: [h for h in EVERY_ROUNDING if h.daz is daz] for daz in (False, True)}
    for operands in zip(*(c.tolist() for c in codes), strict=True):
        for daz in (False, True):
            values = tuple(o.layout(fmt).decode(c, daz) for c in operands)
            numbers = [reference.decode(c, fmt, daz) for c in operands]
            exact = None if operation in ("remainder", "fmod") else o.Exact(operation, values, fmt)
            for k in r.integers(0, len(EVERY_ROUNDING) // 2, 5):
                rounding = roundings[daz][k]
                want = exact(rounding) if exact else o.integer_remainder(operation, *values, fmt, rounding)
                got = function(*numbers, fmt, rounding.attributes)
                assert got == want, o.report(operation, fmt, rounding, operands, got, want)


@pytest.mark.parametrize("fmt", FORMATS, **ids)
def test_special_values_of_every_operation(fmt):
    """All pairs (and some triples) of zeros, subnormals, ones, ends of the range, infinities and NaNs."""
    special = o.special_codes(fmt)
    at = o.layout(fmt)
    decoded = {c: (at.decode(c), reference.decode(c, fmt)) for c in special.tolist()}
    r = o.rng("special", fmt)
    plain = [h for h in EVERY_ROUNDING if not h.daz]
    for operation, arity in o.ARITY.items():
        grids = np.meshgrid(*[special] * min(arity, 2), indexing="ij")
        columns = [g.ravel() for g in grids]
        if arity == 3:
            columns.append(r.choice(special, len(columns[0])))
        for operands in zip(*(c.tolist() for c in columns), strict=True):
            values = tuple(decoded[c][0] for c in operands)
            exact = None if operation in ("remainder", "fmod") else o.Exact(operation, values, fmt)
            for k in r.integers(0, len(plain), 1):
                options = plain[k]
                want = exact(options) if exact else o.integer_remainder(operation, *values, fmt, options)
                got = getattr(reference, operation)(*(decoded[c][1] for c in operands), fmt, options.attributes)
                assert got == want, o.report(operation, fmt, options, operands, got, want)


# The range of these formats is one that MPFR can be given: their largest number has all bits set.
MPFR_RANGES = [
    f for f in FORMATS if f.has_infinity and o.layout(f).max == (2 - Fraction(f.eps)) * Fraction(2) ** f.emax
]


@pytest.mark.parametrize("fmt", MPFR_RANGES, **ids)
def test_mpfr_rounding_by_itself(fmt):
    """`subnormalize` with the format's exponent range: values, inexact, overflow, divide by zero, invalid."""
    modes = {
        Rounding.TIES_TO_EVEN: gmpy2.RoundToNearest, Rounding.TOWARD_ZERO: gmpy2.RoundToZero,
        Rounding.TOWARD_POSITIVE: gmpy2.RoundUp, Rounding.TOWARD_NEGATIVE: gmpy2.RoundDown,
    }  # fmt: skip
    at = o.layout(fmt)
    r = o.rng("subnormalize", fmt)
    precision = fmt.precision
    for operation, f in o.MPFR_OPERATIONS.items():
        for operands in zip(*(c.tolist() for c in o.structured(fmt, o.ARITY[operation], 200, r)), strict=True):
            values = [at.decode(c) for c in operands]
            numbers = [o.to_mpfr(v) for v in values]
            if any(v.kind == "snan" for v in values):
                continue  # MPFR has none
            for mode, direction in modes.items():
                rounding = OracleRounding(mode)
                context = gmpy2.context(
                    precision=precision, emin=fmt.emin - precision + 2, emax=fmt.emax + 1, round=direction,
                    subnormalize=True,
                )  # fmt: skip
                x = f(context, *numbers)
                got, flags = reference.__dict__[operation](
                    *(reference.decode(c, fmt) for c in operands), fmt, rounding.attributes
                )
                result = at.decode(got)
                again = o.to_mpfr(result)
                same = (gmpy2.is_nan(x) and result.is_nan) or (x == again and gmpy2.is_signed(x) == bool(result.sign))
                assert same, o.report(operation, fmt, rounding, operands, (got, flags), x)
                if any(v.is_nan for v in values):
                    continue  # MPFR's NaN flag means "the result is NaN"
                theirs = (
                    o.INEXACT * context.inexact | o.OVERFLOW * context.overflow
                    | o.DIVIDE_BY_ZERO * context.divzero | o.INVALID * context.invalid
                )  # fmt: skip
                ours = flags & (o.INEXACT | o.OVERFLOW | o.DIVIDE_BY_ZERO | o.INVALID)
                assert ours == theirs, o.report(operation, fmt, rounding, operands, (got, flags), theirs)


NUMPY = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide, "sqrt": np.sqrt,
    "fmod": np.fmod,
}  # fmt: skip


@pytest.mark.parametrize("name", ["FP64", "FP32", "FP16"])
@pytest.mark.parametrize("operation", NUMPY)
def test_values_equal_numpy(operation, name):
    """The processor's arithmetic, ties to even: codes (any NaN counts as NaN)."""
    fmt = fs.as_format(name)
    r = o.rng("numpy", operation, name)
    codes = o.structured(fmt, o.ARITY[operation], 4000, r)
    with np.errstate(all="ignore"):
        hardware = NUMPY[operation](*(c.astype(fmt.code_dtype).view(fmt.dtype) for c in codes))
    theirs = hardware.view(fmt.code_dtype)
    nan = np.isnan(hardware)
    for i, operands in enumerate(zip(*(c.tolist() for c in codes), strict=True)):
        numbers = [reference.decode(c, fmt) for c in operands]
        got, flags = getattr(reference, operation)(*numbers, fmt, reference.RoundingAttributes())
        want = fmt.canonical_nan if nan[i] else int(theirs[i])
        assert got == want, o.report(operation, fmt, "ties_to_even", operands, (got, flags), hex(want))


def test_remainder_equals_python():
    """math.remainder is IEEE's on float64."""
    import math

    fmt = fs.FP64
    a, b = o.structured(fmt, 2, 4000, o.rng("math.remainder"))
    for x, y in zip(a, b, strict=True):
        u, v = float(x.view(np.float64)), float(y.view(np.float64))
        if math.isnan(u) or math.isnan(v) or math.isinf(u) or v == 0:
            continue
        want = np.float64(math.remainder(u, v)).view(np.uint64)
        got, flags = reference.remainder(
            reference.decode(int(x), fmt), reference.decode(int(y), fmt), fmt, reference.RoundingAttributes()
        )
        assert got == want, o.report("remainder", fmt, "", (x, y), (got, flags), hex(want))


@pytest.mark.parametrize("fmt", [f for f in o.NAMED if f.dtype is not None and f.bits <= 16], **ids)
def test_casts_from_float32_equal_ml_dtypes(fmt):
    """Ties to even, finite sources. ml_dtypes has its own rules for NaN and infinity into FP6 and FP4, and for E8M0."""
    source = fs.FP32
    r = o.rng("ml_dtypes", fmt)
    at = o.layout(fmt)
    codes = np.concatenate([*o.structured(source, 1, 3000, r), _around(fmt, r)])
    x = codes.astype(np.uint32).view(np.float32)
    x = x[np.isfinite(x)]
    if fmt.is_scale:
        x = x[(x >= np.finfo(np.float32).tiny) & (x < float(at.max))]
    with np.errstate(all="ignore"):
        theirs = x.astype(fmt.dtype)
    for value, want in zip(x, theirs.view(fmt.code_dtype).tolist(), strict=True):
        number = reference.decode(int(value.view(np.uint32)), source)
        got, flags = reference.convert(number, fmt, reference.RoundingAttributes())
        if at.decode(want).is_nan:
            assert got == fmt.canonical_nan, o.report("convert", source, fmt.name, (value.view(np.uint32),), got, "NaN")
            continue
        if fmt.specials.value == "finite" and want & ~fmt.sign_mask == 0 and want != got:
            assert got & ~fmt.sign_mask == 0  # ml_dtypes may drop the sign of a zero
            continue
        assert got == want, o.report("convert", source, fmt.name, (value.view(np.uint32),), (got, flags), hex(want))


def _around(fmt, r):
    """float32 codes at, and one step beside, the format's numbers and the midpoints between them."""
    at = o.layout(fmt)
    magnitudes = r.integers(0, at.largest + 1, 1500)
    low = np.array([float(at.worth(int(m))) for m in magnitudes])
    high = np.array([float(at.worth(int(m) + 1)) for m in magnitudes])
    points = np.concatenate([low, (low + high) / 2]).astype(np.float32)
    points = np.concatenate([points, -points])
    codes = points.view(np.uint32).astype(np.int64)
    return np.concatenate([codes, np.maximum(codes - 1, 0), codes + 1]).astype(np.uint64)


@pytest.mark.parametrize("fmt", [*o.NAMED, *o.CUSTOM], **ids)
def test_conversion_between_all_formats(fmt):
    """From every named format, with all roundings, compared with the rational oracle."""
    r = o.rng("convert", fmt)
    for source in o.NAMED:
        at = o.layout(source)
        codes = o.structured(source, 1, 30, r)[0].tolist() if not source.is_scale else range(0, 256, 5)
        codes = [*codes, *(_around_in(source, fmt, r) if source.bits >= 16 else ())]
        for code in codes:
            for daz in (False, True):
                value, number = at.decode(code, daz), reference.decode(code, source, daz)
                rounder = o.Rounder(value.magnitude, value.sign, fmt) if value.kind == "finite" else None
                for k in r.integers(0, len(EVERY_ROUNDING), 4):
                    rounding = EVERY_ROUNDING[k]
                    want = rounder(rounding) if rounder else o.convert(value, fmt, rounding)
                    got = reference.convert(number, fmt, rounding.attributes)
                    assert got == want, o.report(f"convert to {fmt.name}", source, rounding, (code,), got, want)


def _around_in(source, fmt, r):
    """Codes of `source` at and beside numbers, midpoints and the ends of `fmt`."""
    at, here = o.layout(fmt), o.layout(source)
    magnitudes = [0, 1, at.largest, at.largest - 1, max((1 << at.t) - 1, 0), *r.integers(0, at.largest + 1, 6).tolist()]
    points = [at.worth(m) for m in magnitudes]
    points += [(at.worth(m) + at.worth(m + 1)) / 2 for m in magnitudes]
    points += [at.least_normal, (at.least_normal + at.below_normal) / 2, at.below_normal, at.beyond]
    codes = [here.neighbour_below(p) for p in points if p < here.beyond]
    near = [m for c in codes for m in range(max(c - 1, 0), min(c + 2, here.largest) + 1)]
    return [m + sign for m in near for sign in (0, here.sign_bit)]


@pytest.mark.parametrize("rounding", Rounding)
def test_one_value_in_all_ways(rounding):
    """A grid of values near 1/3 across FP16's range: every policy, tininess rule, DAZ and FTZ."""
    fmt = fs.FP16
    for exponent in (-27, -26, -25, -24, -15, -14, 0, 14, 15, 16):
        for numerator in (1023, 1024, 1025, 1026, 1365, 2046, 2047):
            for tail in (-1, 0, 1):
                x = (Fraction(numerator) + Fraction(tail, 2**70)) / 1024 * Fraction(2) ** exponent
                for sign in (0, 1):
                    rounder = o.Rounder(x, sign, fmt)
                    number = reference.from_fraction(-x if sign else x)
                    for policy in Overflow:
                        for tininess in Tininess:
                            for ftz in (False, True):
                                oracle_rounding = OracleRounding(rounding, policy, False, ftz, tininess)
                                for random in (0, 1 << 31, (1 << 32) - 1):
                                    got = reference.round_pack(number, fmt, oracle_rounding.attributes, random)
                                    want = rounder(oracle_rounding, random)
                                    assert got == want, o.report("round", fmt, oracle_rounding, (), got, want)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.float16])
def test_half_formats_through_float32(dtype):
    """float32 arithmetic, then one rounding: the values of FP16 and BF16 in ties-to-even (24 >= 2p + 2)."""
    fmt = fs.as_format(dtype)
    if fmt.bits > 16:
        pytest.skip("float32 is the carrier here")
    for operation in ("add", "subtract", "multiply", "divide"):
        a, b = o.structured(fmt, 2, 6000, o.rng("carrier", operation, dtype.__name__))
        x, y = (c.astype(np.uint16).view(dtype).astype(np.float32) for c in (a, b))
        with np.errstate(all="ignore"):
            wide = NUMPY[operation](x, y)
            theirs = wide.astype(dtype).view(np.uint16)
        for i in range(len(a)):
            got, flags = getattr(reference, operation)(
                reference.decode(int(a[i]), fmt), reference.decode(int(b[i]), fmt), fmt, reference.RoundingAttributes()
            )
            want = fmt.canonical_nan if np.isnan(wide[i]) else int(theirs[i])
            assert got == want, o.report(operation, fmt, "ties_to_even", (a[i], b[i]), (got, flags), hex(want))
