"""The kernels, through the public functions, against the reference and against the vectorised oracle: bits and flags.

`make test` runs every pair of codes of each small format, every code of each format of at most 16 bits for operations
of one operand, and samples of the rest, seeded by the commit's hash. `tests/exhaustive` runs the whole.
"""

import itertools
from fractions import Fraction

import numpy as np
import oracles as o
import pytest
from oracles import DETERMINISTIC, POLICIES, OracleRounding

import floatsim as fs
from floatsim import Rounding, Tininess, reference
from floatsim.arrays.call.options import resolve
from floatsim.emulator import backend as emulator
from floatsim.emulator.elementwise.candidates import only
from floatsim.formats.rounding import FLAGS
from tests.marks import cases

pytestmark = pytest.mark.formats

FORMATS = (*o.ARITHMETIC, *o.CUSTOM)
ids = {"ids": lambda x: getattr(x, "name", str(x))}
EVERY_ROUNDING = o.every_rounding()
PAIR_OPERATIONS = ("add", "subtract", "multiply", "divide", "remainder", "fmod")
COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "unordered")


def run(
    operation: str, codes: tuple[np.ndarray, ...], fmt: fs.FloatFormat, rounding: OracleRounding
) -> tuple[np.ndarray, np.ndarray]:
    """A public function on FloatArrays: (codes, flags)."""
    arrays = [fs.from_codes(c.astype(fmt.code_dtype), fmt) for c in codes]
    result, flags = getattr(fs, operation)(*arrays, return_flags=True, **rounding.keywords)
    return result.codes, flags


def plain(operation: str, codes: tuple[np.ndarray, ...], fmt: fs.FloatFormat, rounding: OracleRounding) -> np.ndarray:
    """The same without flags, where another, faster kernel may run; as plain arrays where the dtype exists."""
    operands: list = [c.astype(fmt.code_dtype) for c in codes]
    if fmt.dtype is not None:
        return getattr(fs, operation)(*(c.view(fmt.dtype) for c in operands), **rounding.keywords).view(fmt.code_dtype)
    return getattr(fs, operation)(*(fs.from_codes(c, fmt) for c in operands), **rounding.keywords).codes


def events(operation: str, codes: tuple[np.ndarray, ...], fmt: fs.FloatFormat, rounding: OracleRounding) -> tuple:
    """The same one floor below, where the event bytes are whole."""
    operands = [(c.astype(fmt.code_dtype), fmt) for c in codes]
    return emulator.elementwise(operation, operands, fmt, resolve(rounding.keywords))


def by_integers(operation: str, codes: tuple[np.ndarray, ...], fmt: fs.FloatFormat, rounding: OracleRounding) -> tuple:
    """The same by the integer kernels."""
    operands = [(c.astype(fmt.code_dtype), fmt) for c in codes]
    with only("integers"):
        return emulator.elementwise(operation, operands, fmt, resolve(rounding.keywords))


def all_pairs(fmt: fs.FloatFormat) -> tuple[np.ndarray, np.ndarray]:
    every = np.arange(1 << fmt.bits, dtype=np.uint64)
    a, b = np.meshgrid(every, every, indexing="ij")
    return a.ravel(), b.ravel()


def varied(rounding: Rounding, policy: fs.Overflow, k: int) -> OracleRounding:
    """DAZ, FTZ and the tininess rule go through their combinations as k counts."""
    return OracleRounding(rounding, policy, bool(k & 1), bool(k & 2), Tininess.BEFORE if k & 4 else Tininess.AFTER)


@pytest.mark.full
@pytest.mark.parametrize("operation", PAIR_OPERATIONS)
@pytest.mark.parametrize("fmt", o.SMALL, **ids)
def test_every_pair_of_small_formats(fmt, operation):
    """Six modes, three overflow policies, all pairs; DAZ, FTZ and the tininess rules alternate on top of that."""
    codes = all_pairs(fmt)
    start = int(o.rng(fmt, operation).integers(8))
    before = {daz: o.unrounded(operation, codes, fmt, daz) for daz in (False, True)}
    for k, (rounding, policy) in enumerate(itertools.product(DETERMINISTIC, POLICIES)):
        for oracle_rounding in {OracleRounding(rounding, policy), varied(rounding, policy, start + k)}:
            want = o.round_operation(before[oracle_rounding.daz], oracle_rounding)
            visible = (want[0], want[1] & FLAGS)
            got = run(operation, codes, fmt, oracle_rounding)
            o.assert_equal_codes(operation, fmt, oracle_rounding, codes, got, visible)
            o.assert_equal_codes(
                operation, fmt, oracle_rounding, codes, (plain(operation, codes, fmt, oracle_rounding),), (want[0],)
            )
            exact, happened = by_integers(operation, codes, fmt, oracle_rounding)
            o.assert_equal_codes(operation, fmt, oracle_rounding, codes, (exact, happened & FLAGS), visible)


@pytest.mark.parametrize("fmt", o.SMALL, **ids)
def test_every_pair_compared(fmt):
    a, b = all_pairs(fmt)
    for daz in (False, True):
        x, y = o.vector_decode(a, fmt, daz), o.vector_decode(b, fmt, daz)
        u, v = (np.where(n.infinite, np.where(n.negative, -np.inf, np.inf), n.value) for n in (x, y))
        nan, loud = x.nan | y.nan, x.signalling | y.signalling
        truth = {"equal": u == v, "not_equal": u != v, "less": u < v, "less_equal": u <= v, "greater": u > v,
                 "greater_equal": u >= v, "unordered": nan}  # fmt: skip
        for name in COMPARISONS:
            ordered = truth[name] & ~nan if name not in ("not_equal", "unordered") else truth[name] | nan
            quiet_by_default = name in ("equal", "not_equal", "unordered")
            for signaling in (None, False, True):
                keywords = {} if signaling is None else {"signaling": signaling}
                if name == "unordered" and signaling is not None:
                    continue
                result, flags = getattr(fs, name)(
                    fs.from_codes(a, fmt), fs.from_codes(b, fmt), daz=daz, return_flags=True, **keywords
                )
                is_loud = not quiet_by_default if signaling is None else signaling
                want = np.where(nan & (loud | is_loud), fs.INVALID, 0)
                o.assert_equal_codes(name, fmt, f"daz={daz} {keywords}", (a, b), (result, flags), (ordered, want))


@pytest.mark.full
@pytest.mark.parametrize("fmt", o.SMALL, **ids)
def test_every_pair_ordered_by_the_reference(fmt):
    """minimum, maximum and their twins, total_order: the reference once for each pair and way (a sample of pairs
    for 8-bit formats), the oracle of `oracles.extremum` likewise."""
    r = o.rng("ordered", fmt)
    a, b = all_pairs(fmt)
    chosen = np.unique(np.concatenate([r.integers(0, len(a), 1200), np.flatnonzero(a == b)[:256]]))
    a, b = a[chosen], b[chosen]
    at = o.layout(fmt)
    for operation in ("minimum", "maximum", "minimum_number", "maximum_number"):
        for rounding in (
            OracleRounding(),
            varied(Rounding.TOWARD_NEGATIVE, fs.Overflow.SATURATE_FINITE, int(r.integers(8))),
        ):
            got = run(operation, (a, b), fmt, rounding)
            for i, (x, y) in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
                want = o.extremum(operation, at.decode(x, rounding.daz), at.decode(y, rounding.daz), fmt, rounding)
                again = getattr(reference, operation)(
                    reference.decode(x, fmt, rounding.daz),
                    reference.decode(y, fmt, rounding.daz),
                    fmt,
                    rounding.attributes,
                )
                assert again == want, o.report(operation, fmt, rounding, (x, y), again, want)
                mine = (got[0][i], got[1][i])
                assert mine == (want[0], want[1] & FLAGS), o.report(operation, fmt, rounding, (x, y), mine, want)
    got = fs.total_order(fs.from_codes(a, fmt), fs.from_codes(b, fmt))
    want = [reference.total_order(x, y, fmt) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    o.assert_equal_codes("total_order", fmt, "", (a, b), (got,), (want,))


# -- one operand: every code ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("fmt", [*o.UP_TO_16, fs.E8M0], **ids)
def test_decode_of_every_code(fmt):
    codes = fmt.codes()
    x = o.vector_decode(codes, fmt)
    want = np.where(x.infinite, np.inf, np.abs(x.value))
    want = np.where(x.nan, np.nan, np.copysign(want, np.where(x.negative, -1.0, 1.0)))
    got = fs.decode(codes, fmt)
    assert got.dtype == np.float64
    same = (got.view(np.uint64) == want.view(np.uint64)) | (np.isnan(got) & np.isnan(want))
    assert same.all(), o.report("decode", fmt, "", (codes[~same][0],), got[~same][0], want[~same][0])
    assert (got.view(np.uint64)[np.isnan(got)] == fs.FP64.canonical_nan).all()


@pytest.mark.full
@pytest.mark.parametrize("fmt", o.UP_TO_16, **ids)
@pytest.mark.parametrize("operation", ["sqrt", "rint", "floor", "ceil", "trunc"])
def test_every_code_of_16_bits(operation, fmt):
    codes = fmt.codes().astype(np.uint64)
    start = int(o.rng(fmt, operation).integers(8))
    roots = {daz: o.unrounded("sqrt", (codes,), fmt, daz) for daz in (False, True) if operation == "sqrt"}
    for k, (rounding, policy) in enumerate(itertools.product(DETERMINISTIC, POLICIES)):
        for oracle_rounding in {OracleRounding(rounding, policy), varied(rounding, policy, start + k)}:
            if operation == "sqrt":
                want = o.round_operation(roots[oracle_rounding.daz], oracle_rounding)
            else:
                want = o.vector_integral(operation, codes, fmt, oracle_rounding)
            got = run(operation, (codes,), fmt, oracle_rounding)
            o.assert_equal_codes(operation, fmt, oracle_rounding, (codes,), got, (want[0], want[1] & FLAGS))
            o.assert_equal_codes(
                operation,
                fmt,
                oracle_rounding,
                (codes,),
                (plain(operation, (codes,), fmt, oracle_rounding),),
                (want[0],),
            )


@pytest.mark.parametrize("target", cases(quick=[fs.E4M3], full=[*o.NAMED, *o.CUSTOM]), **ids)
def test_every_code_of_16_bits_converted(target):
    """From every named format of at most 16 bits to every format."""
    sources = [f for f in o.NAMED if f.bits <= 16]
    r = o.rng("convert", target)
    hows = EVERY_ROUNDING if target.precision <= 24 else [h for h in EVERY_ROUNDING if h.rounding in DETERMINISTIC]
    for source in sources:
        codes = source.codes()
        for k in r.permutation(len(hows))[: 24 if source.bits <= 8 else 12]:
            keywords = hows[k]
            if target.precision > 24:  # FP64 holds them all
                x = o.vector_decode(codes, source, keywords.daz)
                got, flags = fs.convert(fs.from_codes(codes, source), target, return_flags=True, **keywords.keywords)
                want = np.where(x.nan, np.nan, np.where(x.infinite, np.where(x.negative, -np.inf, np.inf), x.value))
                if keywords.overflow is fs.Overflow.SATURATE_FINITE:
                    want = np.clip(want, -target.max, target.max)
                want = np.where(x.negative & (x.value == 0) & ~x.infinite, -0.0, want).view(np.uint64)
                want = np.where(x.nan, target.canonical_nan, want)
                o.assert_equal_codes(f"convert to {target.name}", source, keywords, (codes,), (got.codes, flags),
                                     (want, np.where(x.signalling, fs.INVALID, 0)))  # fmt: skip
                continue
            want = o.vector_convert(codes, source, target, keywords)
            got, flags = fs.convert(fs.from_codes(codes, source), target, return_flags=True, **keywords.keywords)
            o.assert_equal_codes(f"convert to {target.name}", source, keywords, (codes,), (got.codes, flags),
                                 (want[0], want[1] & FLAGS))  # fmt: skip


@pytest.mark.versions
@pytest.mark.parametrize("fmt", [*o.UP_TO_16, fs.E8M0], **ids)
def test_bits_of_every_code(fmt):
    """next_up, next_down, logb, classify, is..., sign operations: every code, against the reference."""
    codes = fmt.codes()
    stride = 1 if fmt.bits <= 12 else 7
    chosen = codes[int(o.rng("bits", fmt).integers(stride)) :: stride]
    x = fs.from_codes(chosen, fmt)
    for daz in (False, True):
        for name in ("next_up", "next_down"):
            result, flags = getattr(fs, name)(x, daz=daz, return_flags=True)
            want = [getattr(reference, name)(int(c), fmt, daz) for c in chosen]
            want = tuple(zip(*want, strict=True))
            o.assert_equal_codes(name, fmt, f"daz={daz}", (chosen,), (result.codes, flags), want)
        if not fmt.is_scale:
            result, flags = fs.logb(x, daz=daz, return_flags=True)
            want = [reference.logb(reference.decode(int(c), fmt, daz)) for c in chosen]
            want = tuple(zip(*want, strict=True))
            o.assert_equal_codes("logb", fmt, f"daz={daz}", (chosen,), (result, flags), want)
    want = [reference.classify(int(c), fmt) for c in chosen]
    o.assert_equal_codes("classify", fmt, "", (chosen,), (fs.classify(x),), (want,))
    d = o.vector_decode(codes, fmt)
    every = fs.from_codes(codes, fmt)
    at = o.layout(fmt)
    magnitude = codes.astype(np.int64) & ~at.sign_bit
    truths = {
        "isnan": d.nan, "isinf": d.infinite, "isfinite": ~d.nan & ~d.infinite,
        "issubnormal": ~d.nan & (magnitude > 0) & (magnitude < 1 << at.t) & (at.specials != "scale"),
    }  # fmt: skip
    for name, truth in truths.items():
        o.assert_equal_codes(name, fmt, "", (codes,), (getattr(fs, name)(every),), (truth,))
    signed_zero = at.signed_zero
    is_nan_pattern = d.nan if not signed_zero else np.zeros(len(codes), bool)
    keep = is_nan_pattern | ((not signed_zero) & (magnitude == 0) & (codes == 0)) | (at.specials == "scale")
    if not fmt.is_scale:
        flipped = np.where(keep, codes, codes.astype(np.int64) ^ at.sign_bit)
        o.assert_equal_codes("negative", fmt, "", (codes,), (fs.negative(every).codes,), (flipped,))
        bare = np.where(is_nan_pattern, codes, magnitude)
        o.assert_equal_codes("absolute", fmt, "", (codes,), (fs.absolute(every).codes,), (bare,))
        for sign_of in (0, at.sign_bit + 1):
            b = fs.from_codes(np.full(len(codes), sign_of, fmt.code_dtype), fmt)
            signed = np.where(keep, codes, magnitude | (at.sign_bit if sign_of else 0))
            o.assert_equal_codes("copysign", fmt, sign_of, (codes,), (fs.copysign(every, b).codes,), (signed,))


@pytest.mark.versions
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("fmt", [fs.FP64, fs.FP32, fs.FP16, fs.BF16, fs.E5M2, fs.E4M3FNUZ, fs.E2M1], **ids)
def test_to_integer(fmt, dtype):
    """Structured and random values around each integer range, every mode."""
    info = np.iinfo(dtype)
    r = o.rng("to_integer", fmt, dtype)
    codes = o.structured(fmt, 1, 200, r)[0]
    at = o.layout(fmt)
    near = [Fraction(info.max) + d for d in (-1, 0, 1)] + [-Fraction(info.min) + d for d in (-1, 0, 1)]
    near += [x + Fraction(1, 2) for x in near] + [Fraction(k, 4) for k in range(1, 14)]
    edge = [at.neighbour_below(abs(x)) + d for x in near if abs(x) < at.max for d in (0, 1)]
    edge += [c | at.sign_bit for c in edge]
    codes = np.concatenate([codes, np.array(edge, np.uint64)])
    for rounding in DETERMINISTIC:
        oracle_rounding = OracleRounding(rounding, daz=bool(r.integers(2)))
        got, flags = fs.to_integer(
            fs.from_codes(codes, fmt), dtype, rounding=rounding, daz=oracle_rounding.daz, return_flags=True
        )
        assert got.dtype == np.dtype(dtype)
        for i, code in enumerate(codes.tolist()):
            want = o.to_integer(at.decode(code, oracle_rounding.daz), int(info.min), int(info.max), oracle_rounding)
            again = reference.to_integer(
                reference.decode(code, fmt, oracle_rounding.daz),
                int(info.min),
                int(info.max),
                oracle_rounding.attributes,
            )
            assert again == want, o.report(f"to_integer {dtype}", fmt, oracle_rounding, (code,), again, want)
            mine = (int(got[i]), int(flags[i]))
            assert mine == want, o.report(f"to_integer {dtype}", fmt, oracle_rounding, (code,), mine, want)


@pytest.mark.parametrize("fmt", cases(quick=[fs.BF16, fs.E4M3], full=[*o.NAMED, *o.CUSTOM]), **ids)
def test_from_integer(fmt):
    """Integer arrays of all dtypes, and Python integers beyond them, in every mode."""
    r = o.rng("from_integer", fmt)
    powers = [1 << k for k in range(0, 63, 3)]
    for dtype in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", object):
        low, high = (-(1 << 300), 1 << 300) if dtype is object else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        numbers = [0, 1, low, low + 1, high, high - 1, *(-p for p in powers)]
        numbers += [p + d for p in powers for d in (-1, 0, 1)]
        numbers += [(a * b + c) << d for a, b, c, d in r.integers(0, 40, (40, 4)).tolist()]
        numbers += [int(x) for x in r.integers(-(2**63), 2**63 - 1, 30)]
        numbers = [int(n) for n in numbers if low <= n <= high]
        given = numbers if dtype is object else np.array(numbers, dtype)
        for k in r.integers(0, len(EVERY_ROUNDING), 4):
            rounding = EVERY_ROUNDING[k]
            got, flags = fs.from_integer(given, fmt, return_flags=True, **rounding.keywords)
            codes = got.codes if isinstance(got, fs.FloatArray) else got.view(fmt.code_dtype)
            for i, n in enumerate(numbers):
                want = o.Rounder(Fraction(abs(n)), int(n < 0), fmt)(rounding)
                mine = (int(codes[i]), int(flags[i]))
                assert mine == (want[0], want[1] & FLAGS), o.report(f"from_integer {n}", fmt, rounding, (), mine, want)


# -- pairs and triples of wide formats -----------------------------------------------------------------------------


@pytest.mark.versions
@pytest.mark.parametrize("operation", cases(quick=["add"], full=o.ARITY))
@pytest.mark.parametrize("fmt", cases(quick=[fs.FP16], full=o.VECTOR), **ids)
def test_structured_cases_and_their_events(fmt, operation):
    """Cancellation, ties, near-overflow, subnormal, exponent gaps, random bits: codes and whole event bytes."""
    r = o.rng("structured", fmt, operation)
    codes = o.structured(fmt, o.ARITY[operation], 24_000 if fmt.bits > 8 else 9_000, r)
    order = r.permutation(len(codes[0]))
    for part, k in zip(np.array_split(order, 16), r.permutation(len(EVERY_ROUNDING)), strict=False):
        rounding, operands = EVERY_ROUNDING[k], tuple(c[part] for c in codes)
        want = o.vector_operation(operation, operands, fmt, rounding)
        visible = (want[0], want[1] & FLAGS)
        o.assert_equal_codes(operation, fmt, rounding, operands, run(operation, operands, fmt, rounding), visible)
        o.assert_equal_codes(operation, fmt, rounding, operands, events(operation, operands, fmt, rounding), want)
        o.assert_equal_codes(
            operation, fmt, rounding, operands, (plain(operation, operands, fmt, rounding),), (want[0],)
        )
    default = OracleRounding()  # the way that has kernels of its own: all the cases once more
    want = o.vector_operation(operation, codes, fmt, default)
    o.assert_equal_codes(operation, fmt, default, codes, (plain(operation, codes, fmt, default),), (want[0],))


@pytest.mark.parametrize("fmt", cases(quick=[fs.FP32, fs.E4M3], full=FORMATS), **ids)
@pytest.mark.parametrize("operation", o.ARITY)
def test_kernel_equals_reference(fmt, operation):
    """The same kind of cases straight against the reference: codes and events, every format, FP64 too."""
    r = o.rng("reference", fmt, operation)
    codes = o.structured(fmt, o.ARITY[operation], 2000 if fmt is fs.FP64 else 400, r)
    order = r.permutation(len(codes[0]))
    for part, k in zip(np.array_split(order, 16), r.permutation(len(EVERY_ROUNDING)), strict=False):
        rounding, operands = EVERY_ROUNDING[k], tuple(c[part] for c in codes)
        got, happened = events(operation, operands, fmt, rounding)
        for i, row in enumerate(zip(*(c.tolist() for c in operands), strict=True)):
            numbers = [reference.decode(c, fmt, rounding.daz) for c in row]
            want = getattr(reference, operation)(*numbers, fmt, rounding.attributes)
            mine = (int(got[i]), int(happened[i]))
            assert mine == want, o.report(operation, fmt, rounding, row, mine, want)


@pytest.mark.full
@pytest.mark.parametrize("fmt", [f for f in FORMATS if f.bits > 16], **ids)
def test_wide_formats_one_operand(fmt):
    """rint, floor, ceil, trunc, next_up, next_down, logb, classify, total_order against the reference."""
    r = o.rng("wide", fmt)
    codes = o.structured(fmt, 1, 400, r)[0]
    whole = o.near_codes(r.integers(0, 5000, 200) / 4.0, fmt).astype(np.uint64)  # integers, halves and quarters
    codes = np.concatenate([codes, whole, whole | np.uint64(fmt.sign_mask)])
    x = fs.from_codes(codes, fmt)
    rows = codes.tolist()
    for operation in ("rint", "floor", "ceil", "trunc"):
        for k in r.permutation(len(EVERY_ROUNDING))[:3]:
            rounding = EVERY_ROUNDING[k]
            want = [
                getattr(reference, operation)(reference.decode(c, fmt, rounding.daz), fmt, rounding.attributes)
                for c in rows
            ]
            again = [o.integral(operation, o.layout(fmt).decode(c, rounding.daz), fmt, rounding) for c in rows]
            assert want == again
            got = (
                events(operation, (codes,), fmt, rounding)
                if operation != "rint"
                else run(operation, (codes,), fmt, rounding)
            )
            columns = [np.array(c, np.uint64) for c in zip(*want, strict=True)]
            columns[1] = columns[1] & np.uint64(255 if operation != "rint" else FLAGS)
            o.assert_equal_codes(operation, fmt, rounding, (codes,), got, tuple(columns))
    for daz in (False, True):
        for name in ("next_up", "next_down"):
            result, flags = getattr(fs, name)(x, daz=daz, return_flags=True)
            want = [getattr(reference, name)(c, fmt, daz) for c in rows]
            for i, c in enumerate(rows):
                mine = (int(result.codes[i]), int(flags[i]))
                assert mine == want[i], o.report(name, fmt, f"daz={daz}", (c,), mine, want[i])
        exponents, flags = fs.logb(x, daz=daz, return_flags=True)
        for i, c in enumerate(rows):
            want = reference.logb(reference.decode(c, fmt, daz))
            assert (int(exponents[i]), int(flags[i])) == want, o.report("logb", fmt, daz, (c,), exponents[i], want)
    assert fs.classify(x).tolist() == [int(reference.classify(c, fmt)) for c in rows]
    other = codes[r.permutation(len(codes))]
    order = fs.total_order(x, fs.from_codes(other, fmt))
    assert order.tolist() == [reference.total_order(a, b, fmt) for a, b in zip(rows, other.tolist(), strict=True)]


@pytest.mark.full
@pytest.mark.parametrize("fmt", [*o.NAMED, *o.CUSTOM], **ids)
def test_conversion_from_wide_formats(fmt):
    """From FP64, FP32 and TF32, around every kind of boundary of the target, against the rational oracle."""
    from tests.reference.test_scalar_mpfr import _around_in

    r = o.rng("wide conversion", fmt)
    for source in (fs.FP64, fs.FP32, fs.TF32, fs.FP16):
        at = o.layout(source)
        codes = np.concatenate([o.structured(source, 1, 250, r)[0], np.array(_around_in(source, fmt, r), np.uint64)])
        x = fs.from_codes(codes, source)
        for k in r.permutation(len(EVERY_ROUNDING))[:3]:
            rounding = EVERY_ROUNDING[k]
            got, flags = fs.convert(x, fmt, return_flags=True, **rounding.keywords)
            mine = zip(got.codes.tolist(), flags.tolist(), codes.tolist(), strict=True)
            for code, flag, given in mine:
                want = o.convert(at.decode(given, rounding.daz), fmt, rounding)
                assert (code, flag) == (want[0], want[1] & FLAGS), o.report(
                    f"convert to {fmt.name}", source, rounding, (given,), (code, flag), want
                )


@pytest.mark.parametrize("fmt", cases(quick=[fs.FP16, fs.E4M3], full=o.VECTOR), **ids)
def test_scalb(fmt):
    r = o.rng("scalb", fmt)
    codes = o.structured(fmt, 1, 300, r)[0]
    n = r.choice([*range(-40, 41), -300, 300, 5000, -5000, -(2**31), 2**31 - 1, 2**62, -(2**62)], len(codes))
    for k in r.permutation(len(EVERY_ROUNDING))[:8]:
        rounding = EVERY_ROUNDING[k]
        got, flags = fs.scalb(fs.from_codes(codes, fmt), n, return_flags=True, **rounding.keywords)
        for i, (c, shift) in enumerate(zip(codes.tolist(), n.tolist(), strict=True)):
            want = reference.scalb(reference.decode(c, fmt, rounding.daz), shift, fmt, rounding.attributes)
            mine = (int(got.codes[i]), int(flags[i]))
            assert mine == (want[0], want[1] & FLAGS), o.report(f"scalb {shift}", fmt, rounding, (c,), mine, want)
            value = o.layout(fmt).decode(c, rounding.daz)
            if value.kind == "finite" and abs(shift) < 1000:
                rounded = o.Rounder(value.magnitude * Fraction(2) ** shift, value.sign, fmt)(rounding)
                assert want == rounded, o.report(f"scalb {shift}", fmt, rounding, (c,), want, rounded)


@pytest.mark.full
def test_mixed_formats_with_a_named_result():
    """Operands and result of different formats: exact operands, one rounding to the result's."""
    r = o.rng("mixed")
    formats = [fs.FP64, fs.FP32, fs.FP16, fs.BF16, fs.E4M3, fs.E5M2FNUZ, fs.E2M1, fs.TF32]
    operations = ["add", "subtract", "multiply", "divide", "fma", "sqrt", "remainder", "fmod", "minimum"]
    for _ in range(40):
        operation = str(r.choice(operations))
        arity = o.ARITY.get(operation, 2)
        sources = [formats[k] for k in r.integers(0, len(formats), arity)]
        target = formats[r.integers(len(formats))]
        rounding = EVERY_ROUNDING[r.integers(len(EVERY_ROUNDING))]
        columns = [r.choice(o.structured(f, 1, 200, r)[0], 120) for f in sources]
        arrays = [fs.from_codes(c, f) for c, f in zip(columns, sources, strict=True)]
        got, flags = getattr(fs, operation)(*arrays, format=target, return_flags=True, **rounding.keywords)
        assert got.format == target
        for i, row in enumerate(zip(*(c.tolist() for c in columns), strict=True)):
            numbers = [reference.decode(c, f, rounding.daz) for c, f in zip(row, sources, strict=True)]
            want = getattr(reference, operation)(*numbers, target, rounding.attributes)
            mine = (int(got.codes[i]), int(flags[i]))
            names = " ".join(f.name for f in sources)
            assert mine == (want[0], want[1] & FLAGS), o.report(
                f"{operation} {names} ->", target, rounding, row, mine, want
            )


# -- quantize ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("carrier", cases(quick=["float32"], full=["float64", "float16"]))
@pytest.mark.parametrize("fmt", cases(quick=[fs.FP16, fs.E4M3], full=[*o.NAMED, *o.CUSTOM]), **ids)
def test_quantize_is_encode_then_decode(fmt, carrier):
    """The fast path for arrays of floats: same values, same flags, in the carrier's dtype."""
    source = fs.as_format(carrier)
    r = o.rng("quantize", fmt, carrier)
    grid = np.array([float(o.layout(fmt).worth(int(m))) for m in r.integers(0, o.layout(fmt).largest + 1, 500)])
    beside = [(o.near_codes(grid, source) + step).astype(np.uint64) for step in (0, 1)]
    codes = np.concatenate([o.structured(source, 1, 3000, r)[0], *beside])
    x = codes.astype(source.code_dtype).view(source.dtype)
    try:
        fs.quantize(x[:1], fmt)
    except TypeError as error:
        assert "convert" in str(error)  # the carrier cannot hold the grid
        return
    for k in r.permutation(len(EVERY_ROUNDING))[:12]:
        rounding = EVERY_ROUNDING[k]
        values, flags = fs.quantize(x, fmt, return_flags=True, **rounding.keywords)
        silent = fs.quantize(x, fmt, **rounding.keywords)
        assert values.dtype == x.dtype
        expected, happened = fs.encode(x, fmt, return_flags=True, **rounding.keywords)
        decoded = fs.decode(expected, fmt).astype(source.dtype)
        want = np.where(np.isnan(decoded), source.canonical_nan, decoded.view(source.code_dtype))
        what, loud, quiet = f"quantize to {fmt.name}", values.view(source.code_dtype), silent.view(source.code_dtype)
        o.assert_equal_codes(what, source, rounding, (codes,), (loud, flags), (want, happened))
        o.assert_equal_codes(what, source, rounding, (codes,), (quiet,), (want,))


# -- formats nobody has named ----------------------------------------------------------------------------------------


def any_format(r: np.random.Generator) -> fs.FloatFormat:
    """Some format of precision at most 24 and exponents that leave float64 room for products."""
    while True:
        kind = ("ieee", "fn", "fnuz", "finite")[r.integers(4)]
        w, t = int(r.integers(1, 10)), int(r.integers(0, 24 if r.integers(4) == 0 else 12))
        bias = None if r.integers(2) else int(r.integers(-60, 200))
        try:
            fmt = fs.FloatFormat(f"{kind}({w},{t},{bias})", w, t, kind, bias)
        except ValueError:
            continue
        if fmt.emin - t > -230 and fmt.emax < 230 and fmt.bits <= 32:
            return fmt


@pytest.mark.full
@pytest.mark.parametrize("k", range(50))
def test_any_format(k):
    """Fast kernels decide by a format's parameters whether they are exact for it: so try many formats. Conversions from
    float32 and float64 with and without flags, quantize, and the arithmetic, in all ways of rounding."""
    r = o.rng("any format", k)
    fmt = any_format(r)
    for source in (fs.FP32, fs.FP64, fs.FP16):
        grid = np.array([float(o.layout(fmt).worth(int(m))) for m in r.integers(0, o.layout(fmt).largest + 1, 60)])
        grid = np.concatenate([grid, grid * (1 + 2.0 ** -(fmt.precision + 1)), [float(o.layout(fmt).beyond)]])
        beside = [(o.near_codes(grid, source) + step).astype(np.uint64) for step in (-1, 0, 1)]
        beside = [
            np.minimum(c, np.uint64(source.max_code)) | np.uint64(s) for c in beside for s in (0, source.sign_mask)
        ]
        codes = np.concatenate([*beside, o.structured(source, 1, 300, r)[0]]).astype(source.code_dtype)
        x = codes.view(source.dtype)
        for rounding in [OracleRounding(m, p) for m in DETERMINISTIC for p in POLICIES] + [
            EVERY_ROUNDING[i] for i in r.integers(0, 144, 4)
        ]:
            want = o.vector_convert(codes, source, fmt, rounding)
            got = fs.encode(x, fmt, return_flags=True, **rounding.keywords)
            o.assert_equal_codes(f"encode as {fmt.name}", source, rounding, (codes,), got, (want[0], want[1] & FLAGS))
            got = fs.encode(x, fmt, **rounding.keywords)
            o.assert_equal_codes(f"encode as {fmt.name}", source, rounding, (codes,), (got,), (want[0],))
            try:
                values = fs.quantize(x, fmt, **rounding.keywords).view(source.code_dtype)
            except TypeError:
                continue
            d = o.vector_decode(want[0], fmt)
            exact = np.where(d.infinite, np.where(d.negative, -np.inf, np.inf), d.value)
            exact = np.where(d.negative & ~d.infinite & (d.value == 0), -0.0, exact).astype(source.dtype)
            exact = np.where(d.nan, source.canonical_nan, exact.view(source.code_dtype))
            o.assert_equal_codes(f"quantize to {fmt.name}", source, rounding, (codes,), (values,), (exact,))
    for operation in o.ARITY:
        codes = o.structured(fmt, o.ARITY[operation], 700, r)
        for rounding in [OracleRounding(m) for m in DETERMINISTIC] + [EVERY_ROUNDING[i] for i in r.integers(0, 144, 3)]:
            want = o.vector_operation(operation, codes, fmt, rounding)
            o.assert_equal_codes(operation, fmt, rounding, codes, events(operation, codes, fmt, rounding), want)
            o.assert_equal_codes(operation, fmt, rounding, codes, (plain(operation, codes, fmt, rounding),), (want[0],))
