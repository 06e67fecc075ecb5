"""Bad input raises one clear error each. Unusual input, such as arrays of every memory layout, works."""

from decimal import Decimal
from fractions import Fraction

import ml_dtypes
import numpy as np
import oracles as o
import pytest

import floatsim as fs

X = np.array([1.0, 0.1, -3.5, 1e6])
A = fs.array(X, "fp16")

INTO_A_FORMAT = {
    "encode": lambda x: fs.encode(x, "fp16"),
    "convert": lambda x: fs.convert(x, "fp16"),
    "array": lambda x: fs.array(x, "fp16"),
}
ARITHMETIC = {
    "add": lambda x: fs.add(x, A[:1]),
    "add, second": lambda x: fs.add(A[:1], x),
    "fma": lambda x: fs.fma(A[:1], A[:1], x),
    "sqrt": fs.sqrt,
    "rint": fs.rint,
    "equal": lambda x: fs.equal(x, A[:1]),
    "isnan": fs.isnan,
    "next_up": fs.next_up,
    "to_integer": lambda x: fs.to_integer(x, np.int32),
    "quantize": lambda x: fs.quantize(x, "e4m3"),
    "scalb": lambda x: fs.scalb(x, 1),
    "classify": fs.classify,
    "total_order": lambda x: fs.total_order(x, A[:1]),
    "negative": fs.negative,
}
NO_NUMBERS = {
    "complex array": (np.array([1j]), TypeError, "complex"),
    "complex": (1j, TypeError, "complex"),
    "object array": (np.array([1.0, None]), TypeError, "object"),
    "object array of floats": (np.array([1.0], object), TypeError, "object"),
    "bool array": (np.array([True]), TypeError, "bool"),
    "bool": (True, TypeError, "bool"),
    "None": (None, TypeError, "None"),
    "dict": ({}, TypeError, "dict"),
    "datetime": (np.array(["2026-01-01"], "M8[D]"), TypeError, "datetime"),
    "structured": (np.zeros(2, [("a", "f4")]), TypeError, "a"),
    "bytes": (np.array([b"1.0"]), TypeError, ""),
    "ragged list": ([[1.0], [1.0, 2.0]], ValueError, "ragged"),
    "list with None": ([1.0, None], TypeError, "None"),
    "set": ({1.0}, TypeError, "set"),
}


@pytest.mark.parametrize("what", NO_NUMBERS)
@pytest.mark.parametrize("call", {**INTO_A_FORMAT, **ARITHMETIC})
def test_what_is_no_number(call, what):
    x, error, text = NO_NUMBERS[what]
    with pytest.raises(error) as caught:
        {**INTO_A_FORMAT, **ARITHMETIC}[call](x)
    message = str(caught.value)
    assert text in message or call not in INTO_A_FORMAT
    assert message
    assert "\n" not in message
    assert "_" * 30 not in message


@pytest.mark.parametrize("call", ARITHMETIC)
def test_integer_arrays_have_no_format(call):
    """An integer array could mean values or codes: the error says what to write."""
    with pytest.raises(TypeError, match=r"int|format"):
        ARITHMETIC[call](np.arange(3))


EXACT = [("0.1", "text"), (["0.1"], "text"), (np.array(["1"]), "text"),
         ([3**70], "an integer that is no float64 number"), ([0.5, Fraction(1, 3)], "a Fraction")]  # fmt: skip


@pytest.mark.parametrize("call", ARITHMETIC)
@pytest.mark.parametrize(("x", "what"), EXACT, ids=str)
def test_exact_numbers_have_no_format(call, x, what):
    """Functions that have no format argument accept no texts and fractions."""
    advice = r"fs\.array\(\w+, format\) rounds it to a format, and fs\.encode"
    with pytest.raises(TypeError, match=f"holds {what}, which has no format; {advice}"):
        ARITHMETIC[call](x)


@pytest.mark.parametrize("text", ["one", "", "0x", "1,5", "1..2"])
@pytest.mark.parametrize("call", INTO_A_FORMAT)
def test_texts_that_are_no_numbers(call, text):
    with pytest.raises(ValueError, match="not a number"):
        INTO_A_FORMAT[call](text)
    with pytest.raises(ValueError, match="not a number"):
        INTO_A_FORMAT[call]([0.1, text] if text else ["1", text])


def test_integers_are_due():
    for bad in (np.array([1.5]), 1.5, "1", np.array([np.nan]), [None], [1.0], True):
        with pytest.raises(TypeError):
            fs.from_integer(bad, "fp16")
    for bad in (np.array([1.5]), [np.nan], "12", np.array([1.0], np.float16), np.array([True])):
        with pytest.raises(TypeError, match="integers"):
            fs.from_codes(bad, "fp16")
        with pytest.raises(TypeError, match="integers"):
            fs.decode(bad, "fp16")
    with pytest.raises(TypeError, match="integer"):
        fs.scalb(A, 1.5)
    with pytest.raises(TypeError, match="integer dtype"):
        fs.to_integer(A, np.float32)
    with pytest.raises(TypeError, match="codes"):
        fs.from_codes(A, "bf16")


@pytest.mark.parametrize(
    ("codes", "fmt"),
    [([256], "e4m3"), ([-1], "e4m3"), ([64], "e3m2"), ([16], "fp4"), ([1 << 16], "fp16"), ([1 << 19], "tf32"),
     ([-1], "fp64"), (np.array([255, 16], np.uint8), "fp4")],
    ids=str,
)  # fmt: skip
def test_codes_that_do_not_fit(codes, fmt):
    with pytest.raises(ValueError, match="does not fit"):
        fs.from_codes(codes, fmt)
    with pytest.raises(ValueError, match="does not fit"):
        fs.decode(codes, fmt)


def test_mixed_formats_need_a_result_format():
    b = fs.array(X, "bf16")
    for call in (lambda: A + b, lambda: fs.add(A, b), lambda: np.multiply(A, b), lambda: fs.fma(A, A, b),
                 lambda: fs.add(A, X), lambda: fs.add(A, X.astype(np.float32)), lambda: fs.minimum(A, b)):  # fmt: skip
        with pytest.raises(TypeError, match=r"mixed formats.*format=.*fs\.array"):
            call()
    assert fs.add(A, b, format="fp32").format is fs.FP32


def test_scale_formats_have_no_arithmetic():
    s = fs.array([1.0, 2.0], "e8m0")
    for call in (lambda: s + s, lambda: fs.multiply(s, s), lambda: fs.sqrt(s), lambda: fs.rint(s),
                 lambda: fs.fma(s, s, s), lambda: fs.add(1.0, 1.0, format="e8m0"),
                 lambda: fs.scalb(s, 1), lambda: fs.logb(s), lambda: fs.remainder(s, s)):  # fmt: skip
        with pytest.raises(TypeError, match="scale format"):
            call()
    assert fs.equal(s, s).all()
    assert fs.less(s[0], s[1])
    assert fs.convert(s, "fp16").values.tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    "call",
    [fs.add, fs.equal, fs.minimum, fs.total_order, fs.copysign, lambda a, b: a * b, lambda a, b: fs.fma(a, b, b),
     lambda a, b: fs.scalb(a, np.ones(b.shape, int))],
)  # fmt: skip
def test_shapes_that_do_not_broadcast(call):
    a, b = fs.array(np.ones((2, 3)), "fp16"), fs.array(np.ones((4,)), "fp16")
    with pytest.raises(ValueError, match="broadcast"):
        call(a, b)


def test_out_of_the_wrong_kind():
    good = fs.array(np.zeros(4), "fp16")
    for out, error in (
        (np.zeros(4), ValueError), (np.zeros(4, np.float32), ValueError), (fs.array(np.zeros(4), "bf16"), ValueError),
        (fs.array(np.zeros(3), "fp16"), ValueError), (fs.array(np.zeros((4, 4)), "fp16"), ValueError),
        (np.zeros(4, np.int64), TypeError), ([0.0] * 4, TypeError), ("x", TypeError),
        (np.zeros(4, np.dtype(">f2")), ValueError),
    ):  # fmt: skip
        with pytest.raises(error):
            fs.add(A, A, out=out)
    frozen = np.zeros(4, np.float16)
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        fs.add(A, A, out=frozen)
    result = fs.add(A, A, out=good)
    assert result is good
    assert (good.codes == fs.add(A, A).codes).all()
    plain = np.zeros(4, np.float16)
    assert fs.add(A, A, out=plain) is plain
    assert (plain.view(np.uint16) == good.codes).all()


def test_out_may_be_strided_or_an_operand():
    for stride in (2, -1, -3):
        room = np.zeros(12, np.float16)
        out = room[::stride][:4]
        fs.multiply(A, A, out=out)
        assert (out.view(np.uint16) == fs.multiply(A, A).codes).all()
        assert np.count_nonzero(room) <= 4
    for operation in ("add", "multiply", "divide", "subtract"):
        x = A.copy()
        want = getattr(fs, operation)(x, A).codes.copy()
        assert (getattr(fs, operation)(x, A, out=x).codes == want).all()
    x = np.arange(1, 9, dtype=np.float16)  # an overlapping view as out
    want = fs.add(x[:-1], x[1:]).copy()
    fs.add(x[:-1], x[1:], out=x[1:])
    assert (x[1:] == want).all()


def test_quantize_into_a_carrier_that_cannot_hold_the_grid():
    for x, fmt in ((np.ones(2, np.float16), "bf16"), (np.ones(2, np.float32), "fp64"),
                   (np.ones(2, ml_dtypes.bfloat16), "fp16"), (np.ones(2, ml_dtypes.float8_e5m2), "e4m3")):  # fmt: skip
        with pytest.raises(TypeError, match="convert"):
            fs.quantize(x, fmt)


def test_numbers_of_every_python_kind():
    want = fs.encode(0.1, "bf16")
    for x in (Fraction(1, 10), Decimal("0.1"), "0.1", np.float64(0.1), [0.1], ["0.1"], (Fraction(1, 10),)):
        assert np.all(fs.encode(x, "bf16") == want)
    assert int(fs.encode(10**400, "bf16")) == 0x7F80
    assert int(fs.encode(-(10**400), "e4m3", overflow="saturate_finite")) == 0xFE
    assert int(fs.encode(Decimal("-0"), "fp16")) == 0x8000
    assert int(fs.encode(Decimal("NaN"), "fp16")) == 0x7E00
    assert int(fs.encode(Decimal("sNaN"), "fp16")) == 0x7E00
    assert fs.encode([1, 2.5, "3", Fraction(1, 3)], "fp16").tolist() == [0x3C00, 0x4100, 0x4200, 0x3555]
    assert fs.encode([2**53 + 1, 1], "fp64").tolist() == [0x4340000000000000, 0x3FF0000000000000]
    assert fs.encode([2**63, -1], "fp32").tolist() == [0x5F000000, 0xBF800000]
    assert fs.encode([2**63 + 2**39 + 1, 0.5], "fp32").tolist() == [0x5F000001, 0x3F000000]


# -- layouts -------------------------------------------------------------------------------------------------------


def layouts(x: np.ndarray) -> dict[str, np.ndarray]:
    """The same 24 values in every memory layout of NumPy, and in several shapes."""
    spread = np.zeros(2 * x.size, x.dtype)
    spread[::2] = x
    unaligned = np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(x.dtype)
    frozen = x.copy()
    frozen.flags.writeable = False
    made = {
        "plain": x, "strided": spread[::2], "negative stride": x[::-1].copy()[::-1], "read-only": frozen,
        "unaligned": unaligned, "2-d": x.reshape(4, 6), "Fortran": np.asfortranarray(x.reshape(4, 6)),
        "transposed": np.ascontiguousarray(x.reshape(4, 6).T).T,
        "3-d view": np.repeat(x, 3).reshape(2, 4, 9)[:, :, ::3],
        "two negative strides": x[::-1].reshape(4, 6).copy()[::-1, ::-1],
    }  # fmt: skip
    if x.dtype.kind in "fiu" and x.dtype.itemsize > 1:
        made["byte-swapped"] = x.astype(x.dtype.newbyteorder())
    return made


@pytest.mark.full
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_every_layout_simply_works(dtype):
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    fmt = fs.as_format(kind)
    r = np.random.default_rng(3)
    with np.errstate(over="ignore"):
        x = (r.normal(size=24) * 2.0 ** r.integers(-12, 12, 24)).astype(kind)
    reference = fs.from_codes(x.view(fmt.code_dtype), fmt)
    unary = {
        "encode": lambda a: fs.encode(a, "e3m4", return_flags=True), "encode, no flags": lambda a: fs.encode(a, "e3m4"),
        "convert": lambda a: fs.convert(a, "fp32"), "sqrt": fs.sqrt, "rint": lambda a: fs.rint(a, return_flags=True),
        "add": lambda a: fs.add(a, a), "add, flags": lambda a: fs.add(a, a, return_flags=True),
        "multiply": lambda a: fs.multiply(a, 3.0), "fma": lambda a: fs.fma(a, a, a), "less": lambda a: fs.less(a, 1.0),
        "isnan": fs.isnan, "next_up": fs.next_up, "negative": fs.negative, "absolute": fs.absolute,
        "to_integer": lambda a: fs.to_integer(a, np.int16), "logb": fs.logb, "scalb": lambda a: fs.scalb(a, 2),
        "classify": fs.classify, "stochastic": lambda a: fs.encode(a, "e2m1", rounding="SR", seed=1),
        "minimum": lambda a: fs.minimum(a, 0.5), "copysign": lambda a: fs.copysign(a, -1.0),
    }  # fmt: skip
    if fmt.bits >= 16 and fmt is not fs.BF16:
        unary["quantize"] = lambda a: fs.quantize(a, "e2m3")
        unary["quantize, flags"] = lambda a: fs.quantize(a, "e2m3", return_flags=True)
    for name, call in unary.items():
        want = _bits(call(reference))
        for layout, a in layouts(x).items():
            for given in (a, fs.from_codes(_codes(a, fmt), fmt)):
                got = call(given)
                for mine, due in zip(_bits(got), want, strict=True):
                    assert mine.size == due.size
                    assert (mine.ravel() == due.ravel()).all(), (name, layout)
                assert _bits(got)[0].shape == a.shape, (name, layout)


def _codes(a, fmt):
    """Codes in the same layout as the values, if NumPy has the dtype."""
    if not a.dtype.isnative:
        return a.astype(a.dtype.newbyteorder("=")).view(fmt.code_dtype)
    return a.view(fmt.code_dtype)


def _bits(result):
    parts = result if isinstance(result, tuple) else (result,)
    return [
        np.asarray(p.codes if isinstance(p, fs.FloatArray) else np.asarray(p).view(f"u{np.asarray(p).itemsize}"))
        for p in parts
    ]


@pytest.mark.full
@pytest.mark.parametrize("fmt", ["fp16", "tf32", "e4m3", "fp64"])
def test_empty_and_zero_dimensional(fmt):
    for shape in ((0,), (3, 0), (0, 5, 2)):
        x = fs.array(np.zeros(shape), fmt)
        for result in (x + x, fs.sqrt(x), fs.fma(x, x, x), fs.convert(x, "bf16"), fs.rint(x), fs.next_up(x), -x):
            assert result.shape == shape
        codes, flags = fs.encode(np.zeros(shape), fmt, return_flags=True)
        assert codes.shape == flags.shape == shape
        assert fs.decode(codes, fmt).shape == shape
        assert fs.quantize(np.zeros(shape), fmt).shape == shape
        assert fs.to_integer(x, np.int8).shape == shape
        assert fs.less(x, x).shape == fs.isnan(x).shape == shape
    assert fs.encode([], fmt).shape == (0,)
    assert (fs.array(np.zeros((0, 3)), fmt) + fs.array(np.zeros((1, 3)), fmt)).shape == (0, 3)
    zero = fs.array(np.array(1.5), fmt)
    assert zero.shape == ()
    assert (zero + zero).shape == ()
    assert float(zero + 1.5) == 3.0
    result, flags = fs.divide(zero, 0.0, return_flags=True)
    assert np.shape(flags) == ()
    assert int(flags) == fs.DIVIDE_BY_ZERO
    assert (fs.array(np.ones((2, 2)), fmt) + zero).shape == (2, 2)


def test_broadcasting_is_numpys():
    r = np.random.default_rng(0)
    for shapes in (((4, 1), (1, 3)), ((), (5,)), ((2, 1, 3), (4, 1)), ((1,), (7, 1)), ((3, 4), (3, 1))):
        a, b = (fs.array(r.normal(size=s), "bf16") for s in shapes)
        full = np.broadcast_shapes(*shapes)
        wide = [fs.from_codes(np.broadcast_to(v.codes, full).copy(), "bf16") for v in (a, b)]
        for keywords in ({}, {"return_flags": True}):
            got, want = fs.multiply(a, b, **keywords), fs.multiply(*wide, **keywords)
            for x, y in zip(_bits(got), _bits(want), strict=True):
                assert x.shape == full
                assert (x == y).all()


def test_inputs_are_never_changed():
    x = np.array([0.1, np.nan, -0.0, 1e300, 5e-324])
    before = x.tobytes()
    for fmt in o.NAMED:
        fs.encode(x, fmt)
        fs.encode(x, fmt, return_flags=True, daz=True, ftz=True)
        fs.quantize(x, fmt)
    fs.sqrt(x)
    fs.add(x, x)
    fs.add(x, x, daz=True, return_flags=True)
    assert x.tobytes() == before
    a = fs.array(x, "fp16")
    codes = a.codes.copy()
    assert (fs.negative(a).codes != codes).any()
    fs.absolute(a)
    fs.next_up(a)
    fs.convert(a, "fp16")
    assert (a.codes == codes).all()


def test_large_arrays_of_odd_sizes():
    """Vector loops have heads and tails: every element of every length, for every start of the array."""
    r = np.random.default_rng(1)
    x = (r.normal(size=1200) * 2.0 ** r.integers(-20, 17, 1200)).astype(np.float32)
    want = {
        fmt: (fs.encode(x, fmt), fs.quantize(x, fmt).view(np.uint32)) for fmt in ("fp16", "bf16", "e4m3", "ieee(6,9)")
    }
    h, b = fs.encode(x, "fp16").view(np.float16), x.astype(ml_dtypes.bfloat16)
    sums = [fs.add(d, d).view(np.uint16) for d in (h, b)]
    for size in [*range(70), 127, 128, 129, 255, 257, 511, 513, 1000]:
        for start in (0, 1, 3):
            part = slice(start, start + size)
            for fmt, (codes, values) in want.items():
                assert (fs.encode(x[part], fmt) == codes[part]).all()
                assert (fs.quantize(x[part], fmt).view(np.uint32) == values[part]).all()
            for d, total in zip((h, b), sums, strict=True):
                assert (fs.add(d[part], d[part]).view(np.uint16) == total[part]).all()
