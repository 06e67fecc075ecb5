"""The fast kernels equal the integer kernels on custom formats, and refuse the cases to which they do not apply."""

from __future__ import annotations

import itertools
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from floatsim_kernels.elementwise import quantize as quantize_loops
from floatsim_kernels.runtime import cpu as machine

import floatsim as fs
from floatsim import reference
from floatsim.arrays.call.options import resolve
from floatsim.emulator import backend as emulator
from floatsim.emulator import proofs
from floatsim.emulator.elementwise import pieces
from floatsim.emulator.elementwise.candidates import CANDIDATES, only
from floatsim.emulator.elementwise.operations import OPERATIONS as TABLE
from floatsim.emulator.elementwise.operations import Family, arity
from floatsim.emulator.elementwise.rounding import family, rounding_loop
from floatsim.emulator.params import unpack_params
from floatsim.emulator.planning import processor
from tests.emulator.planning import as_if_long, by_integers, elementwise_plan
from tests.marks import cases


@pytest.fixture(autouse=True)
def no_tables():
    """Leave out the tables, from which long calls on few codes are read."""
    with only(*{candidate.name for candidate in CANDIDATES} - {"table", "last table"}):
        yield


def random_format(rng):
    while True:
        width, trailing = int(rng.integers(1, 12)), int(rng.integers(0, 24))
        specials = str(rng.choice(["ieee", "fn", "fnuz", "finite"]))
        bias = None if rng.random() < 0.5 else int(rng.integers(-20, 2**width + 20))
        try:
            return fs.FloatFormat(f"random({width},{trailing},{specials},{bias})", width, trailing, specials, bias)
        except ValueError:
            continue


def probing(rng, fmt, carrier, size):
    """Carrier codes: random, and close to the format's numbers and to the midpoints between them."""
    unsigned = carrier.code_dtype
    codes = rng.integers(0, 2**carrier.bits - 1, size, dtype=np.uint64, endpoint=True).astype(unsigned)
    grid = rng.integers(0, fmt.max_code, size // 2, dtype=np.uint64, endpoint=True)
    with np.errstate(all="ignore"):
        a, b = (fs.decode(np.minimum(grid + np.uint64(step), fmt.max_code), fmt) for step in (0, 1))
        near = np.concatenate([a, a / 2 + b / 2])[:size].astype(carrier.dtype).view(unsigned)
    codes[: near.size // 2 * 2 : 2] = near[: near.size // 2] + rng.integers(-1, 2, near.size // 2).astype(unsigned)
    codes[1] = fs.encode(fmt.max, carrier)
    return codes


@pytest.mark.parametrize("carrier", [fs.FP32, fs.FP64], ids=str)
def test_quantize(carrier):
    rng = np.random.default_rng(1)
    fast = 0
    for _ in range(120):
        fmt, rounding = random_format(rng), fs.Rounding(int(rng.integers(7)))
        keywords = {"rounding": rounding, "overflow": fs.Overflow(int(rng.integers(3))), "seed": 7,
               "offset": 2**32 - 100, "random_bits": int(rng.integers(1, 40))}  # fmt: skip
        x = probing(rng, fmt, carrier, 400).view(carrier.dtype)
        try:
            got = fs.quantize(x, fmt, **keywords)
        except TypeError:  # the carrier does not hold the format
            continue
        want, _ = fs.quantize(x, fmt, return_flags=True, **keywords)
        assert np.array_equal(got.view(carrier.code_dtype), want.view(carrier.code_dtype)), (fmt.name, keywords)
        fast += family(carrier, fmt) is not None
    assert fast > 20


FAST = {Family.ARITHMETIC, Family.INTEGRAL, Family.EXTREMUM}
OPERATIONS = {name: arity(name) for name, operation in TABLE.items() if operation.family in FAST}
"""The operations with fast kernels, and their numbers of operands."""
ARITHMETIC = ("add", "subtract", "multiply", "divide", "sqrt", "fma")
COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "unordered")


def drawn_options(rng):
    return {"rounding": fs.Rounding(int(rng.integers(7))), "overflow": fs.Overflow(int(rng.integers(3))), "seed": 7,
            "offset": 2**32 - 100, "random_bits": int(rng.integers(1, 33))}  # fmt: skip


def hard_codes(rng, fmt, shape):
    """Codes of one format: any, ordinary numbers that cancel, equal and opposite ones, and the ends."""
    anything = rng.integers(0, 2**fmt.bits - 1, shape, dtype=np.uint64, endpoint=True)
    middle = min(max(0, fmt.emin), fmt.emax)
    scale = np.exp2(rng.integers(max(middle - 6, fmt.emin - 3), min(middle + 6, fmt.emax + 1), shape, endpoint=True))
    codes = np.where(rng.random(shape) < 0.4, anything, fs.encode(rng.normal(size=shape) * scale, fmt))
    edges = [0, 1, fmt.max_code, fmt.max_code - 1, fmt.magnitude_mask, 1 << fmt.trailing_bits]
    edges += [x | fmt.sign_mask for x in edges]
    codes = np.where(rng.random(shape) < 0.15, rng.choice(np.array(edges, np.uint64), shape), codes)
    codes[1:, : shape[1] // 8] = codes[0, : shape[1] // 8]
    codes[1, : shape[1] // 16] ^= np.uint64(fmt.sign_mask)
    return codes.astype(fmt.code_dtype)


def check_events(name, operands, fmt, keywords):
    """Compare results and events with those of the integer kernels, which find the events of short arrays otherwise."""
    pairs, options = [(x.codes, x.format) for x in operands], resolve(keywords)
    want = by_integers(name, pairs, fmt, options)
    got = as_if_long(name, pairs, fmt, options)
    different = np.flatnonzero((got[0] != want[0]) | (got[1] != want[1]))
    if different.size:
        i = different[0]
        shown, of = [int(x.codes[i]) for x in operands], [[int(x[i]) for x in y] for y in (got, want)]
        raise AssertionError(f"{fmt.name} {name}{shown} {keywords}: {of[0]}, not {of[1]}")
    return want[0]


def check_operation(name, operands, fmt, keywords):
    """Compare with the integer kernels, with and without events. Return whether fast kernels ran for both."""
    want = check_events(name, operands, fmt, keywords)
    got = getattr(fs, name)(*operands, **keywords)
    different = np.flatnonzero(got.codes != want)
    if different.size:
        i = different[0]
        shown = [int(x.codes[i]) for x in operands]
        raise AssertionError(f"{fmt.name} {name}{shown} {keywords}: {got.codes[i]}, not {want[i]}")
    sources, stochastic = (fmt,) * len(operands), resolve(keywords).attributes.rounding is fs.Rounding.STOCHASTIC
    ran = is_fast(name, sources, fmt, keywords)
    events = is_fast(name, sources, fmt, keywords, events=True)
    assert events or not ran or stochastic or not is_read_as_float32(fmt), name
    return ran


def is_fast(name, sources, fmt, keywords, events=False):
    """Whether fast kernels carry out a case, with or without its events."""
    given = {key: value for key, value in keywords.items() if key != "offset"}
    return elementwise_plan(name, sources, fmt, events=events, **given).candidate != "integers"


def is_read_as_float32(fmt):
    """Whether codes of the format are read as float32 numbers."""
    return unpack_params(fmt) is not None


@pytest.mark.full
@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_on_codes(name):
    rng = np.random.default_rng([2, *name.encode()])
    fast = refused = 0
    while fast < 12:
        fmt, keywords = random_format(rng), drawn_options(rng)
        if fast % 3 == 0:  # else one in seven
            keywords["rounding"] = fs.Rounding.TIES_TO_EVEN
        operands = [fs.from_codes(codes, fmt) for codes in hard_codes(rng, fmt, (3, 1500))[: OPERATIONS[name]]]
        ran = check_operation(name, operands, fmt, keywords)
        fast, refused = fast + ran, refused + (not ran)
    assert refused or name in ("minimum", "maximum", "minimum_number", "maximum_number")


@pytest.mark.parametrize(
    "rounding", cases(quick=[fs.Rounding.TIES_TO_EVEN], full=fs.Rounding), ids=lambda r: r.name.lower()
)
@pytest.mark.parametrize("fmt", cases(quick=[fs.BF16], full=[fs.FP16, fs.E4M3, fs.TF32]), ids=lambda f: f.name)
def test_arithmetic_of_the_named_formats(fmt, rounding):
    rng = np.random.default_rng(5)
    for overflow in fs.Overflow:
        for name in ARITHMETIC:
            operands = [fs.from_codes(codes, fmt) for codes in hard_codes(rng, fmt, (3, 3000))[: OPERATIONS[name]]]
            keywords = {"rounding": rounding, "overflow": overflow, "seed": 3, "random_bits": 32}
            assert check_operation(name, operands, fmt, keywords) or not machine.has_fma()


@pytest.mark.parametrize("fmt", cases(quick=[fs.E3M2], full=[fs.E4M3, fs.E5M2, fs.E4M3FNUZ]), ids=lambda f: f.name)
def test_every_pair_of_small_formats(fmt):
    x = fs.from_codes(np.repeat(fmt.codes(), len(fmt.codes())), fmt)
    y = fs.from_codes(np.tile(fmt.codes(), len(fmt.codes())), fmt)
    for rounding, name in itertools.product(fs.Rounding, ("add", "subtract", "multiply", "divide")):
        keywords = {"rounding": rounding, "seed": 1}
        assert check_operation(name, [x, y], fmt, keywords) or not machine.has_fma()


@pytest.mark.full
@pytest.mark.parametrize("precision", [19, 20, 21, 22, 23, 24, 25, 26])
def test_precisions_beside_the_bounds(precision):
    """Up to 22 bits the odd results are float32 numbers, beyond float64 numbers; stochastic rounding takes 20 bits.

    Codes of more than 24 bits of precision are not unpacked to float32.
    """
    fmt = fs.FloatFormat.ieee(6, precision - 1)
    rng = np.random.default_rng(precision)
    for rounding, name in itertools.product(fs.Rounding, ("add", "multiply", "divide", "fma")):
        operands = [fs.from_codes(codes, fmt) for codes in hard_codes(rng, fmt, (3, 2000))[: OPERATIONS[name]]]
        ran = check_operation(name, operands, fmt, {"rounding": rounding, "seed": 3})
        assert ran == (machine.has_fma() and precision <= (20 if rounding is fs.Rounding.STOCHASTIC else 24))


@pytest.mark.full
@pytest.mark.parametrize("rounding", fs.Rounding, ids=lambda r: r.name.lower())
@pytest.mark.parametrize("within, beyond", [
    ((5, 11, 15), (5, 12, 15)),  # 2 p = 24, 26
    ((6, 4, 34), (6, 4, 35)),  # last bits of remainders: 2**-126, 2**-127
    ((3, 4, 60), (3, 4, 61)),  # last bits of products: 2**-126, 2**-128
    ((3, 4, 60), (3, 4, 90)),  # products below 2**-149, the least float32 number
    ((6, 4, 0), (6, 4, -1)),  # numbers below 2**63, 2**64
    ((6, 4, 29), (6, 4, 30)),  # quanta from 2**-32, 2**-33: beyond the bound of stochastic rounding only
])  # fmt: skip
def test_formats_beside_the_bounds_of_float32(within, beyond, rounding):
    applies, stochastic = [], rounding is fs.Rounding.STOCHASTIC
    for width, trailing, bias in within, beyond:
        fmt = fs.FloatFormat(f"({width},{trailing},{bias})", width, trailing, "ieee", bias)
        rng = np.random.default_rng([width, trailing, bias + 1])
        applies.append(proofs.odd_float32_rounds_once(fmt, "fma", rounding))
        for name in ARITHMETIC:
            operands = [fs.from_codes(codes, fmt) for codes in hard_codes(rng, fmt, (3, 3000))[: OPERATIONS[name]]]
            check_operation(name, operands, fmt, {"rounding": rounding, "seed": 3})
    assert applies == [not (stochastic and within in ((6, 4, 34), (3, 4, 60))), not stochastic and beyond == (6, 4, 30)]


@pytest.mark.parametrize("name", ["add", "subtract", "multiply"])
@pytest.mark.parametrize("fmt", cases(quick=[fs.BF16], full=[fs.FP16]), ids=lambda f: f.name)
def test_stochastic_results_beside_every_code(fmt, name):
    """Operands of every distance: what float32 lacks of a sum may be anything below its last bit."""
    few = [0, 1, 2, 3, 1 << fmt.trailing_bits, fmt.infinity_code, fmt.max_code, fmt.canonical_nan, fs.encode(1.0, fmt)]
    few += np.random.default_rng(4).integers(0, 1 << 15, 12).tolist()
    codes = np.array(few, np.uint16)
    x = np.concatenate([codes, codes | np.uint16(1 << 15)])
    y = fmt.codes()
    options = resolve({"rounding": "stochastic", "seed": 11})
    pairs = [(each.ravel(), fmt) for each in np.broadcast_arrays(x[:, None], y[None, :])]
    want, _ = by_integers(name, pairs, fmt, options)
    got, _ = emulator.elementwise(name, pairs, fmt, options, want_events=False)
    np.testing.assert_array_equal(got, want)


@pytest.mark.full
@pytest.mark.parametrize("random_bits", [1, 8, 31, 32, 33])
@pytest.mark.parametrize("name", ARITHMETIC)
def test_stochastic_rounding_to_fp32(name, random_bits):
    rng = np.random.default_rng([3, *name.encode()])
    for overflow, sources in itertools.product(fs.Overflow, ((fs.FP32,) * 3, (fs.BF16, fs.FP32, fs.E4M3))):
        codes = (hard_codes(rng, source, (3, 5000))[i] for i, source in enumerate(sources[: OPERATIONS[name]]))
        operands = [fs.from_codes(x, source) for x, source in zip(codes, sources, strict=False)]
        keywords = {"rounding": "stochastic", "seed": 3, "offset": 2**32 - 2500, "random_bits": random_bits}
        options = resolve(keywords | {"overflow": overflow})
        pairs = [(x.codes, x.format) for x in operands]
        want, _ = by_integers(name, pairs, fs.FP32, options)
        got = getattr(fs, name)(*operands, format="fp32", overflow=overflow, **keywords)
        np.testing.assert_array_equal(got.codes, want)
        fast = is_fast(name, tuple(x.format for x in operands), fs.FP32, keywords | {"overflow": overflow})
        assert fast == (machine.has_fma() and random_bits <= 32)


def test_draws_that_29_bits_do_not_decide():
    """1 + fraction * 2**-23 with fraction + draw beside 2**32: three bits of the sum are not in float64."""
    size = 1 << 16
    words = np.array([fs.reference.draw(7, i, 32) for i in range(size)], np.int64)
    near = np.flatnonzero(words >= 2**32 - 2**20)
    assert near.size > 5
    marked = 0
    for beside in range(-16, 9):
        y = np.zeros(size)
        y[near] = np.maximum(2**32 + beside - words[near], 1) * 2.0**-55
        x, y = np.ones(size, np.float32), y.astype(np.float32)
        pairs = [(each.view(np.uint32), fs.FP32) for each in (x, y)]
        options = resolve({"rounding": "stochastic", "seed": 7})
        want, _ = by_integers("add", pairs, fs.FP32, options)
        got = fs.add(x, y, rounding="stochastic", seed=7).view(np.uint32)
        np.testing.assert_array_equal(got, want)
        planned = elementwise_plan("add", (fs.FP32,) * 2, fs.FP32, rounding="stochastic")
        if planned.candidate == "single stochastic":
            marked += blocks_by_integers(planned, [codes for codes, _ in pairs])
    assert marked or not machine.has_fma()


def blocks_by_integers(planned, codes):
    """The number of blocks that the kernel of a plan leaves to the integer kernels."""
    blocks = []
    counting = SimpleNamespace(kernel=SimpleNamespace(run=lambda *_: blocks.append(1)))
    (candidate,) = (each for each in CANDIDATES if each.name == planned.candidate)
    kernel = candidate.kernel(planned.case, lambda part, *names: counting)
    kernel.run(codes, np.empty(codes[0].size, np.uint32), None, np.array([7, 0], np.uint64))
    return len(blocks)


@pytest.mark.parametrize("exponent", cases(quick=[250], full=[249, 251, 252]))
def test_exponents_beside_the_bounds(exponent):
    """Exponents up to 250 in magnitude, of max and of the smallest subnormal number."""
    rng = np.random.default_rng(exponent)
    high = fs.FloatFormat(f"to 2**{exponent}", 9, 3, "ieee", 510 - exponent)
    low = fs.FloatFormat(f"from 2**-{exponent}", 9, 3, "ieee", exponent - 2)
    assert high.emax == exponent and low.emin - low.trailing_bits == -exponent
    for fmt, name in itertools.product((high, low), ("add", "multiply", "divide", "fma")):
        operands = [fs.from_codes(codes, fmt) for codes in hard_codes(rng, fmt, (3, 2000))[: OPERATIONS[name]]]
        check_operation(name, operands, fmt, {"rounding": "toward_negative"})


@pytest.mark.full
def test_conversions_between_random_formats():
    rng = np.random.default_rng(3)
    fast = 0
    for _ in range(150):
        source, fmt, keywords = random_format(rng), random_format(rng), drawn_options(rng)
        source = fs.as_format(rng.choice(["fp32", "fp64"])) if rng.random() < 0.3 else source
        x = fs.from_codes(hard_codes(rng, source, (2, 400)), source)
        want = check_events("convert", [x], fmt, keywords)
        assert np.array_equal(fs.convert(x, fmt, **keywords).codes, want), (source.name, fmt.name, keywords)
        fast += is_fast("convert", (source,), fmt, keywords)
    assert fast > 60


@pytest.mark.parametrize("carrier", cases(quick=[fs.FP32], full=[fs.FP64]), ids=lambda f: f.name)
def test_encode(carrier):
    rng = np.random.default_rng(4)
    for _ in range(60):
        fmt, keywords = random_format(rng), drawn_options(rng)
        x = probing(rng, fmt, carrier, 400).view(carrier.dtype)
        want, _ = fs.encode(x, fmt, return_flags=True, **keywords)
        out = np.empty(x.shape, fmt.code_dtype)
        assert np.array_equal(fs.encode(x, fmt, **keywords), want), (fmt.name, keywords)
        assert fs.encode(x, fmt, out=out, **keywords) is out and np.array_equal(out, want)


def test_kinds_of_codes():
    """Each kind of code that `encode` writes, by the reference, for custom formats with every kind of specials."""
    rng, kinds = np.random.default_rng(12), Counter()
    for _ in range(400):
        fmt, options = random_format(rng), drawn_options(rng) if rng.random() < 0.6 else {}
        attributes = resolve(options).attributes
        loop = rounding_loop(fs.FP32, fmt, attributes, True)
        if loop is None or attributes.rounding is fs.Rounding.STOCHASTIC:
            continue
        kinds[loop.results] += 1
        special = np.uint32([0, 1, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF])
        codes = np.concatenate([probing(rng, fmt, fs.FP32, 40), special, special | np.uint32(1 << 31)])
        given = {key: value for key, value in options.items() if key != "offset"}
        found = elementwise_plan("convert", (fs.FP32,), fmt, **given)
        assert found.candidate == "rounded"
        out = np.empty(codes.size, fmt.code_dtype)
        found.kernel.run([codes], out, None, pieces.NO_DRAWS)
        want = [reference.convert(reference.decode(int(code), fs.FP32), fmt, attributes)[0] for code in codes]
        assert out.tolist() == want, (fmt, attributes)
    assert all(kinds[kind] > 5 for kind in range(quantize_loops.CODES, quantize_loops.UNIFORM_CODES + 1)), kinds


def test_out_of_encode_and_decode():
    x = np.float32([[1.5, -2], [np.inf, 0]])
    for out in (np.zeros((4, 2), np.uint16)[::2], np.zeros((2, 2), np.uint16, order="F"), np.zeros((2, 2), np.uint16)):
        assert fs.encode(x, "bf16", out=out) is out and np.array_equal(out, fs.encode(x, "bf16"))
        values = np.zeros((2, 4))[:, ::2]
        assert fs.decode(out, "bf16", out=values) is values and np.array_equal(values, x)
    integers = np.zeros(3, np.uint8)
    assert fs.encode([1, 2, 3], "e4m3", out=integers) is integers and integers.tolist() == [56, 64, 68]
    for wrong, error in ((np.zeros(4, np.uint16), ValueError), (np.zeros((2, 2)), TypeError), ([0] * 4, TypeError)):
        with pytest.raises(error, match="out"):
            fs.encode(x, "bf16", out=wrong)
    with pytest.raises(TypeError, match="out has dtype"):
        fs.decode(integers, "e4m3", out=np.zeros(3, np.float32))
    integers.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        fs.encode([1, 2, 3], "e4m3", out=integers)


def test_long_arrays_are_done_in_pieces(monkeypatch):
    """Pieces and threads change nothing, and draws belong to the index in the whole array."""
    rng = np.random.default_rng(6)
    x = fs.array(rng.normal(size=5000), "fp32")
    keywords = [
        {},
        {"rounding": "sr", "seed": 9, "offset": 2**32 - 700},
        {"rounding": "sr", "return_flags": True, "seed": 2},
    ]
    whole = [fs.convert(x, "e4m3", **k) for k in keywords]
    monkeypatch.setattr(pieces, "PIECE", 333)
    monkeypatch.setattr(pieces, "_LONG_PIECE", 777)
    monkeypatch.setattr(pieces, "_WORTH_THREADS", 1000)
    for k, want in zip(keywords, whole, strict=True):
        got = fs.convert(x, "e4m3", **k)
        for a, b in zip(*((y if isinstance(y, tuple) else (y,)) for y in (got, want)), strict=True):
            assert np.array_equal(getattr(a, "codes", a), getattr(b, "codes", b))
    assert np.array_equal(fs.less(x, 0.25), x.values < 0.25)
    assert np.array_equal(fs.decode(x.codes, "fp32"), x.values)


def test_comparisons_and_predicates_of_random_formats():
    rng = np.random.default_rng(7)
    for _ in range(25):
        fmt, other = random_format(rng), random_format(rng)
        x, y = (fs.from_codes(codes, fmt) for codes in hard_codes(rng, fmt, (2, 600)))
        z = fs.from_codes(hard_codes(rng, other, (2, 600))[0], other)
        for name, (a, b) in itertools.product(COMPARISONS, ((x, y), (x, z), (x, np.float64(0.75)))):
            want, _ = getattr(fs, name)(a, b, return_flags=True)
            assert np.array_equal(getattr(fs, name)(a, b), want), (fmt.name, name)
        classes = [fs.FloatClass(c).name for c in fs.classify(x)]
        for name, kinds in (("isnan", "NAN"), ("isinf", "INFINITY"), ("issubnormal", "SUBNORMAL")):
            assert getattr(fs, name)(x).tolist() == [c.endswith(kinds) for c in classes], (fmt.name, name)
        assert fs.isfinite(x).tolist() == [not c.endswith(("NAN", "INFINITY")) for c in classes], fmt.name
        if fmt.has_signed_zero:
            assert np.array_equal(fs.signbit(fs.copysign(x, y)), fs.signbit(y)), fmt.name
            assert np.array_equal(fs.absolute(fs.copysign(x, z)).codes, fs.absolute(x).codes), fmt.name


@pytest.mark.parametrize("fmt", [fs.FP32, fs.FP64], ids=str)
def test_native(fmt):
    """The processor's FP32 and FP64, on operands that they contain, with infinities, NaNs and subnormals."""
    rng = np.random.default_rng(3)

    def drawn(source, shape):
        codes = rng.integers(0, 1 << min(source.bits, 63), shape, dtype=np.uint64).astype(source.code_dtype)
        return fs.from_codes(
            np.where(rng.random(shape) < 0.5, codes, fs.encode(rng.normal(size=shape), source)), source
        )

    for source in (fmt, fs.FP16, fs.BF16, fs.E4M3, fs.E5M2FNUZ, fs.FP32):
        a, b = drawn(source, (40, 50)), drawn(fmt, (50,))
        for operation in fs.add, fs.subtract, fs.multiply, fs.divide:
            for keywords in ({}, {"overflow": "saturate_finite"}, {"ftz": True}, {"daz": True}, {"rounding": "rtz"}):
                want = operation(a, b, format=fmt, return_flags=True, **keywords)[0].codes
                assert np.array_equal(operation(a, b, format=fmt, **keywords).codes, want), (
                    source.name,
                    operation,
                    keywords,
                )
        assert np.array_equal(fs.sqrt(a, format=fmt).codes, fs.sqrt(a, format=fmt, return_flags=True)[0].codes)
    assert elementwise_plan("add", (fs.FP64, fmt), fs.FP32).candidate == "integers"
    assert fs.sqrt(drawn(fmt, ())).shape == ()
    x = drawn(fmt, (30,))
    out = fs.from_codes(x.codes.copy(), fmt)
    assert np.array_equal(fs.add(out, out, out=out).codes, fs.add(x, x).codes)


@pytest.mark.parametrize(
    "fmt", [fs.FloatFormat("low bias", 3, 2, bias=0), fs.FloatFormat("lower", 3, 2, bias=-1),
            fs.FloatFormat("one exponent", 1, 3, "finite")], ids=str,
)  # fmt: skip
def test_formats_whose_exponents_start_above_zero(fmt):
    x = fs.from_codes(fmt.codes(), fmt)
    for operation in fs.add, fs.multiply, fs.divide:
        assert np.array_equal(operation(x, x).codes, operation(x, x, return_flags=True)[0].codes)


@pytest.mark.parametrize("fmt", [fs.FloatFormat("p1", 8, 0, "fn")], ids=str)
@pytest.mark.parametrize("rounding", fs.Rounding, ids=lambda r: r.name.lower())
def test_one_bit_of_precision(fmt, rounding):
    x = np.float32([1.2, 1.5, 2.5, 3, 6, -3, 0.75, 1e38])
    got = fs.quantize(x, fmt, rounding=rounding, seed=1)
    assert np.array_equal(got, fs.decode(fs.encode(x, fmt, rounding=rounding, seed=1), fmt).astype(np.float32))


def test_the_environment_is_asked(monkeypatch):
    """Under flush-to-zero the integer kernels compute everything."""
    monkeypatch.setattr(machine, "environment_is_default", lambda: False)
    x = np.float32([1e-40, 1.0])
    flushing, pair = processor(False), (fs.FP16, fs.FP16)
    assert elementwise_plan("quantize", (fs.FP32,), fs.FP16, cpu=flushing).candidate == "two conversions"
    assert elementwise_plan("add", pair, fs.FP16, cpu=flushing).candidate == "integers"
    assert elementwise_plan("maximum", pair, fs.FP16, cpu=flushing).candidate == "ordered"  # in integers
    assert fs.quantize(x, "bf16").view(np.uint32)[0] == 0x10000


def test_roundings_of_one_stochastic_product_are_independent():
    """One product rounded to BF16, then to E4M3, goes up with probability 1/2 * 1/16. A shared draw would change it."""
    a = np.full((40000, 1), 1 + 2.0**-8, np.float32)
    c = fs.matmul(a, np.ones((1, 1), np.float32), accumulate="bf16", format="e4m3", rounding="SR", seed=11)
    ups = int((c.astype(np.float32) > 1).sum())
    assert abs(ups - 40000 / 32) < 5 * (40000 / 32) ** 0.5


def test_a_stream_advances_once_a_matmul():
    stream = fs.RandomStream(1)
    a = np.ones((2, 2), np.float32)
    fs.matmul(a, a, accumulate="bf16", format="e4m3", rounding="SR", result_rounding="SR", seed=stream)
    assert stream.calls == 1
    fs.matmul(a, a, accumulate="bf16", format="e4m3", result_rounding="SR", seed=stream)
    assert stream.calls == 2


def test_saturation_of_the_final_conversion_reaches_infinities():
    a = np.float16([[60000.0]])
    assert fs.matmul(a, a, accumulate="fp16")[0, 0] == np.inf
    assert fs.matmul(a, a, accumulate="fp16", overflow="saturate_finite")[0, 0] == 65504
