"""Formats as data: properties compared with the values of the codes, the table of names, and bad parameters."""

import itertools
import math
import re
from fractions import Fraction

import ml_dtypes
import numpy as np
import oracles as o
import pytest

import floatsim as fs
from floatsim.formats import Specials

pytestmark = [pytest.mark.formats, pytest.mark.versions]

ids = {"ids": lambda x: getattr(x, "name", str(x))}

TABLE = {  # bits, precision, emin, emax, max, smallest normal, smallest subnormal
    "FP64": (64, 53, -1022, 1023, 1.7976931348623157e308, 2.0**-1022, 5e-324),
    "FP32": (32, 24, -126, 127, 3.4028234663852886e38, 2.0**-126, 2.0**-149),
    "TF32": (19, 11, -126, 127, 3.4011621342146535e38, 2.0**-126, 2.0**-136),
    "FP16": (16, 11, -14, 15, 65504.0, 2.0**-14, 2.0**-24),
    "BF16": (16, 8, -126, 127, 3.3895313892515355e38, 2.0**-126, 2.0**-133),
    "E4M3": (8, 4, -6, 8, 448.0, 2.0**-6, 2.0**-9),
    "E5M2": (8, 3, -14, 15, 57344.0, 2.0**-14, 2.0**-16),
    "E4M3FNUZ": (8, 4, -7, 7, 240.0, 2.0**-7, 2.0**-10),
    "E5M2FNUZ": (8, 3, -15, 15, 57344.0, 2.0**-15, 2.0**-17),
    "E4M3B11FNUZ": (8, 4, -10, 4, 30.0, 2.0**-10, 2.0**-13),
    "E4M3IEEE": (8, 4, -6, 7, 240.0, 2.0**-6, 2.0**-9),
    "E3M4": (8, 5, -2, 3, 15.5, 2.0**-2, 2.0**-6),
    "E3M2": (6, 3, -2, 4, 28.0, 2.0**-2, 2.0**-4),
    "E2M3": (6, 4, 0, 2, 7.5, 1.0, 2.0**-3),
    "E2M1": (4, 2, 0, 2, 6.0, 1.0, 0.5),
    "E8M0": (8, 1, -127, 127, 2.0**127, 2.0**-127, 2.0**-127),
}
SPECIAL = {  # infinity, canonical NaN, signed zero
    "FP64": (0x7FF0000000000000, 0x7FF8000000000000, True), "FP32": (0x7F800000, 0x7FC00000, True),
    "TF32": (0x3FC00, 0x3FE00, True), "FP16": (0x7C00, 0x7E00, True), "BF16": (0x7F80, 0x7FC0, True),
    "E4M3": (None, 0x7F, True), "E5M2": (0x7C, 0x7E, True), "E4M3FNUZ": (None, 0x80, False),
    "E5M2FNUZ": (None, 0x80, False), "E4M3B11FNUZ": (None, 0x80, False), "E4M3IEEE": (0x78, 0x7C, True),
    "E3M4": (0x70, 0x78, True), "E3M2": (None, None, True), "E2M3": (None, None, True), "E2M1": (None, None, True),
    "E8M0": (None, 0xFF, False),
}  # fmt: skip


def test_the_tables_are_whole():
    assert [f.name for f in fs.named_formats()] == list(TABLE) == list(SPECIAL)
    assert all(getattr(fs, name) in fs.named_formats() for name in TABLE)


@pytest.mark.parametrize("name", TABLE)
def test_named_format(name):
    fmt = getattr(fs, name)
    facts = (fmt.bits, fmt.precision, fmt.emin, fmt.emax, fmt.max, fmt.smallest_normal, fmt.smallest_subnormal)
    assert facts == TABLE[name]
    assert (fmt.infinity_code, fmt.canonical_nan, fmt.has_signed_zero) == SPECIAL[name]
    assert fmt.name == f"{fmt}" == name
    assert fmt.eps == 2.0 ** (1 - fmt.precision)
    assert fmt.unit_roundoff == 2.0**-fmt.precision
    assert fmt.code_dtype == np.dtype(f"uint{max(8, 1 << (fmt.bits - 1).bit_length())}")


@pytest.mark.parametrize("fmt", [*o.NAMED, *o.CUSTOM], **ids)
def test_derived_properties_are_those_of_the_values(fmt):
    """Compare the properties with the values of the codes."""
    at = o.layout(fmt)
    assert fmt.bits == at.bits == fmt.exponent_bits + fmt.trailing_bits + (not fmt.is_scale)
    assert fmt.max_code == at.largest
    assert Fraction(fmt.max) == at.max
    assert Fraction(fmt.smallest_normal) == at.least_normal
    assert 2**fmt.emax <= at.max < 2 ** (fmt.emax + 1) if fmt.emax >= 0 else True
    assert fmt.infinity_code == at.inf
    assert fmt.canonical_nan == at.nan
    assert fmt.sign_mask | fmt.magnitude_mask == (1 << fmt.bits) - 1
    assert fmt.sign_mask & fmt.magnitude_mask == 0
    first = at.worth(0 if fmt.is_scale else 1)
    assert Fraction(fmt.smallest_subnormal) == first
    one = next((m for m in _some_codes(fmt) if at.worth(m) == 1), None)
    if one is not None and one < at.largest and not fmt.is_scale:
        assert at.worth(one + 1) - 1 == Fraction(max(fmt.eps, fmt.smallest_subnormal))
    if fmt.bits <= 16:
        kinds = [at.decode(c) for c in range(1 << fmt.bits)]
        assert fmt.has_infinity == any(v.kind == "infinite" for v in kinds)
        assert fmt.has_nan == any(v.is_nan for v in kinds)
        zeros = sum(v.is_zero for v in kinds)
        assert zeros == (0 if fmt.is_scale else 2 if fmt.has_signed_zero else 1)
        subnormal = [v for v in kinds if v.kind == "finite" and 0 < v.magnitude < at.least_normal]
        assert fmt.has_subnormals == bool(subnormal)
        codes = fmt.codes()
        assert codes.dtype == fmt.code_dtype
        assert codes.tolist() == list(range(1 << fmt.bits))
    else:
        with pytest.raises(ValueError, match="16 bits"):
            fmt.codes()


def _some_codes(fmt):
    return range(fmt.max_code + 1) if fmt.bits <= 16 else (fmt.bias << fmt.trailing_bits,)


@pytest.mark.parametrize("fmt", [f for f in o.NAMED if f.dtype is not None], **ids)
def test_the_dtype_has_the_same_values(fmt):
    """NumPy and ml_dtypes decode every code (or many) to the same number."""
    codes = fmt.codes() if fmt.bits <= 16 else o.structured(fmt, 1, 5000, o.rng("dtype", fmt))[0].astype(fmt.code_dtype)
    with np.errstate(invalid="ignore"):  # signalling NaNs among them
        theirs = codes.view(fmt.dtype).astype(np.float64 if fmt.bits > 16 else np.float32)
    d = o.vector_decode(codes, fmt)
    mine = np.where(d.infinite, np.where(d.negative, -np.inf, np.inf), d.value)
    assert (np.isnan(theirs) == d.nan).all()
    assert (theirs[~d.nan] == mine[~d.nan]).all()
    keep = ~d.nan & (fmt.has_signed_zero | (d.value != 0))
    assert (np.signbit(theirs[keep]) == d.negative[keep]).all()
    assert fmt.dtype.itemsize == fmt.code_dtype.itemsize
    if fmt.bits > 8:
        info = ml_dtypes.finfo(fmt.dtype)
        assert (float(info.max), float(info.tiny), float(info.eps)) == (fmt.max, fmt.smallest_normal, fmt.eps)
        assert (info.nmant, info.bits) == (fmt.trailing_bits, fmt.bits)


NAMES = {
    "fp16": fs.FP16, "FP16": fs.FP16, "float16": fs.FP16, "half": fs.FP16, "binary16": fs.FP16, "bf16": fs.BF16,
    "bfloat16": fs.BF16, "fp32": fs.FP32, "float32": fs.FP32, "single": fs.FP32, "double": fs.FP64, "float64": fs.FP64,
    "tf32": fs.TF32, "e4m3": fs.E4M3, "E4M3FN": fs.E4M3, "float8_e4m3fn": fs.E4M3, "float8_e4m3": fs.E4M3IEEE,
    "e4m3ieee": fs.E4M3IEEE, "float8_e5m2": fs.E5M2, "float8_e4m3fnuz": fs.E4M3FNUZ, "e4m3b11fnuz": fs.E4M3B11FNUZ,
    "float8_e5m2fnuz": fs.E5M2FNUZ, "float8_e3m4": fs.E3M4, "float6_e3m2fn": fs.E3M2, "float6_e2m3fn": fs.E2M3,
    "float4_e2m1fn": fs.E2M1, "fp4": fs.E2M1, "float8_e8m0fnu": fs.E8M0, "ue8m0": fs.E8M0, " bf16 ": fs.BF16,
    "fp8-e4m3": fs.E4M3, "ieee(5,10)": fs.FP16, "ieee( 8 , 7 )": fs.BF16,
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_as_format_by_name(name):
    assert fs.as_format(name) == NAMES[name]


def test_as_format_by_dtype():
    for fmt in o.NAMED:
        assert fs.as_format(fmt) is fmt
        assert fs.as_format(fmt.name) is fmt
        if fmt.dtype is not None:
            assert fs.as_format(fmt.dtype) is fmt
            assert fs.as_format(fmt.dtype.name) is fmt
            assert fs.as_format(fmt.dtype.type) is fmt
            assert np.dtype(fmt.dtype) == fmt.dtype
    assert fs.as_format(float) is fs.FP64
    assert fs.as_format(np.dtype(">f4")) is fs.FP32
    assert fs.E4M3.dtype == ml_dtypes.float8_e4m3fn
    assert fs.E4M3IEEE.dtype == ml_dtypes.float8_e4m3
    assert fs.TF32.dtype is None


@pytest.mark.parametrize(
    ("x", "error", "text"),
    [
        ("fp17", ValueError, "did you mean 'fp16'"), ("bfloat", ValueError, "bfloat16"),
        ("", ValueError, "unknown format"), ("e4m3fnz", ValueError, "e4m3fn"), ("ieee(5)", ValueError, "unknown"),
        ("zebra", ValueError, "known are FP64, FP32"), ("ieee(99,10)", ValueError, "exponent_bits"),
        (np.int32, ValueError, "int32"), (np.complex64, ValueError, "complex64"),
        (bool, ValueError, "bool"), (None, TypeError, "None"), (16, TypeError, "16"), (1.5, TypeError, "1.5"),
        (np.dtype("S4"), ValueError, "dtype"), ([], ValueError, "no format"), (object(), TypeError, "object"),
        ("fp8", ValueError, "FP8 is E4M3 or E5M2"), ("float8", ValueError, "FP8 is E4M3 or E5M2"),
        ("FP6", ValueError, "FP6 is E3M2 or E2M3"), ("float4", ValueError, "FP4 is E2M1"),
        ("nvfp4", ValueError, "E2M1, with a scale in E4M3 for every 16; fs.matmul multiplies it with scale_a="),
        ("mxfp4", ValueError, "E2M1, with a scale in E8M0 for every 32; fs.matmul multiplies it with scale_a="),
        ("MX-FP8", ValueError, "no format of single numbers"), ("mxfp8", ValueError, "E4M3 or E5M2, with a scale in"),
        ("float", ValueError, "FP32 in C, and FP64"), ("fp128", ValueError, "at most 64 bits"),
        ("e5m10", ValueError, "write 'FP16' or 'ieee(5,10)'"), ("e4m4", ValueError, "write 'ieee(4,4)', or fs.Float"),
        ("e3m0", ValueError, "write fs.FloatFormat('e3m0', 3, 0, 'finite')"), ("e12m3", ValueError, "exponent_bits"),
    ],
)  # fmt: skip
def test_what_names_no_format(x, error, text):
    with pytest.raises(error, match=re.escape(text)):
        fs.as_format(x)


def test_well_known_names_of_no_single_format():
    """The hints name existing formats, and none of the names is a format."""
    from floatsim.formats import format as formats

    assert not formats._AMBIGUOUS.keys() & formats._LOOKUP.keys()
    for says in formats._AMBIGUOUS.values():
        assert all(fs.as_format(name) for name in re.findall(r"\bE\dM\d\w*", says))


BAD = [
    ((0, 3), {}, "exponent_bits"), ((12, 3), {}, "exponent_bits"), ((5, -1), {}, "trailing_bits"),
    ((5, 53), {}, "trailing_bits"), ((5, 0), {}, "IEEE"), ((1, 3), {}, "IEEE"),
    ((8, 1), {"specials": "scale"}, "scale"),
    ((1, 0), {"specials": "fn"}, "no normal"), ((11, 3), {"specials": "fn"}, "float64"),
    ((8, 7), {"bias": 2000}, "float64"), ((8, 7), {"bias": -2000}, "float64"), ((11, 52), {"bias": 1024}, "float64"),
    ((5, 2), {"specials": "infinite"}, "specials"),
]  # fmt: skip


@pytest.mark.parametrize(("widths", "more", "text"), BAD, ids=str)
def test_parameters_that_make_no_format(widths, more, text):
    with pytest.raises(ValueError, match=text):
        fs.FloatFormat("bad", *widths, **more)


@pytest.mark.parametrize("value", [5.0, "5", None, True])
def test_parameters_of_the_wrong_type(value):
    with pytest.raises(TypeError, match="exponent_bits must be an int"):
        fs.FloatFormat("bad", value, 3)
    with pytest.raises(TypeError, match="trailing_bits must be an int"):
        fs.FloatFormat("bad", 3, value)
    with pytest.raises(TypeError, match=r"name must be a text, not 3; it comes first: fs\.FloatFormat\('e3m2', 3, 2\)"):
        fs.FloatFormat(3, 2, value)


def test_every_custom_format_has_consistent_ends():
    """All widths up to 6 and 5, all kinds: a clear error, or a format with correct largest and smallest numbers."""
    made = 0
    for w, t, specials in itertools.product(range(1, 7), range(6), Specials):
        try:
            fmt = fs.FloatFormat("any", w, t, specials)
        except ValueError:
            assert (specials is Specials.IEEE and (t == 0 or w == 1)) or (specials is Specials.SCALE and t) or (
                w == 1 and t <= (specials is Specials.UNSIGNED_EXTENDED)
            ), (w, t, specials)  # fmt: skip
            continue
        made += 1
        at = o.layout(fmt)
        finite = [v for c in range(1 << fmt.bits) if (v := at.decode(c)).kind == "finite"]
        assert max(v.magnitude for v in finite) == Fraction(fmt.max)
        assert min(v.magnitude for v in finite if v.magnitude) == Fraction(
            fmt.smallest_subnormal if t else fmt.smallest_normal
        )
        assert math.ldexp(1.0, fmt.emin) == fmt.smallest_normal
    assert made > 100


def test_equality_is_by_values_not_by_name():
    mine = fs.FloatFormat("mine", 5, 10)
    assert mine == fs.FP16
    assert hash(mine) == hash(fs.FP16)
    assert mine.name == "mine"
    assert fs.FloatFormat("x", 4, 3, "fn") == fs.E4M3 != fs.E4M3IEEE
    assert fs.FloatFormat("x", 4, 3, Specials.FNUZ, 11) == fs.E4M3B11FNUZ
    with pytest.raises(AttributeError):
        mine.bias = 3


def test_print_shows_the_parameters_and_text_the_name():
    fmt = fs.FloatFormat("mine", 3, 2, "finite")
    assert str(fmt) == repr(fmt)
    assert str(fmt).splitlines()[0] == "FloatFormat mine"
    assert (f"{fmt}", f"{fmt:>6}", "{}".format(fmt)) == ("mine", "  mine", "mine")  # noqa: UP032  # what it tests


@pytest.mark.parametrize("name", ["nf4", "NF4", "normalfloat4"])
def test_nf4_is_a_table_and_no_format(name):
    with pytest.raises(ValueError, match="table of 16 quantiles of the normal distribution, not a floating-point") as e:
        fs.as_format(name)
    assert "did you mean" not in str(e.value)


@pytest.mark.parametrize("fmt", o.NAMED, **ids)
def test_shows_the_layout_and_the_ends(fmt):
    text, html = repr(fmt), fmt._repr_html_()
    for part in (fmt.name, fmt.layout, f"{fmt.max:.6g}", f"{fmt.smallest_normal:.6g}"):
        assert part in text
    assert fmt.name in html
    assert html.count("<span title=") == fmt.bits
    assert html.count(f'background:{fmt.colour}"') == fmt.exponent_bits
    assert html.count(f'background:{fmt.colour}59"') == fmt.trailing_bits
    assert fmt.layout.count("e") == fmt.exponent_bits
