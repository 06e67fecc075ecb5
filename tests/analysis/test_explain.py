"""The fields and the text of `explain_rounding` are compared with `encode`."""

import re
from decimal import Decimal
from fractions import Fraction

import numpy as np
import oracles as o
import pytest

import floatsim as fs
from floatsim import Rounding

pytestmark = pytest.mark.formats

FORMATS = [fs.FP64, fs.FP32, fs.FP16, fs.BF16, fs.TF32, fs.E4M3, fs.E5M2, fs.E4M3FNUZ, fs.E3M4, fs.E2M1, *o.CUSTOM]


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
def test_every_field_is_correct(fmt):
    """Code, flags and value equal those of encode. kept, guard and sticky rebuild the number."""
    r = o.rng("explain", fmt)
    at = o.layout(fmt)
    points = []
    for m in [0, 1, at.largest - 1, at.largest, *r.integers(0, at.largest + 1, 30).tolist()]:
        low, high = at.worth(m), at.worth(m + 1)
        points += [low + (high - low) * Fraction(k, 8) for k in range(8)] + [low + (high - low) / 3]
    for x in points:
        for sign in (1, -1):
            mode = list(Rounding)[int(r.integers(7))]
            keywords = {
                "rounding": mode,
                "seed": 3,
                "ftz": bool(r.integers(2)),
                "overflow": list(fs.Overflow)[r.integers(3)],
            }
            told = fs.explain_rounding(sign * x, fmt, **keywords)
            code, flags = fs.encode([sign * x], fmt, return_flags=True, **keywords)
            assert (told.code, told.flags) == (int(code[0]), int(flags[0])), (x, keywords)
            decoded = fs.decode(code, fmt)[0]
            assert (
                np.array(told.value).tobytes() == np.array(decoded).tobytes() or np.isnan([told.value, decoded]).all()
            )
            if x == 0:
                assert told.kept is None
                continue
            assert told.sign == (sign < 0)
            assert Fraction(2) ** told.exponent <= x < Fraction(2) ** (told.exponent + 1)
            scale = Fraction(2) ** (max(told.exponent, fmt.emin) - fmt.trailing_bits)
            kept = int(told.kept.replace(".", ""), 2)
            assert len(told.kept.replace(".", "")) == fmt.precision
            rest = x / scale - kept
            assert 0 <= rest < 1
            assert told.guard == (rest >= Fraction(1, 2))
            assert told.sticky == (rest not in (0, Fraction(1, 2)))
            text = str(told)
            assert f"0x{told.code:0{(fmt.bits + 3) // 4}X}" in text
            assert text.count("\n") == len(told.steps)


def test_decisions_in_words():
    exact, tie = fs.explain_rounding(1.5, "fp16"), fs.explain_rounding(1 + 2.0**-11, "fp16")
    assert exact.decision == "the value is exact"
    assert (tie.guard, tie.sticky) == (1, 0)
    assert "half way, so down" in tie.decision
    assert "so up" in fs.explain_rounding(1 + 3 * 2.0**-11, "fp16").decision
    assert "more than half way, so up" in fs.explain_rounding("0.1", "e4m3").decision
    assert "less than half way, so down" in fs.explain_rounding(1 + 2.0**-12, "fp16").decision
    assert "less than half way, so up" in fs.explain_rounding(1 + 2.0**-12, "fp16", rounding="RTP").decision
    stochastic = fs.explain_rounding(1 + 2.0**-12, "fp16", rounding="SR", seed=1, random_bits=8)
    draw = int(re.search(r"this draw is (\d+)", stochastic.decision)[1])
    told = f"64 of the 2^8 draws round up, those from 192 on; this draw is {draw}, so {'up' if draw >= 192 else 'down'}"
    assert stochastic.decision == told
    assert (draw >= 192) == (stochastic.value > 1)
    never = fs.explain_rounding(1 + 2.0**-25, "fp16", rounding="SR", seed=1, random_bits=8).decision
    assert never.startswith("0 of the 2^8 draws round up; this draw is")
    assert "beyond max" in str(fs.explain_rounding(1e6, "fp16"))
    assert "below the smallest normal" in str(fs.explain_rounding(1e-6, "fp16"))
    assert "ftz" in str(fs.explain_rounding(1e-6, "fp16", ftz=True))


@pytest.mark.parametrize("x", [0.0, -0.0, float("inf"), float("-inf"), float("nan"), "0", "-inf", "nan"])
def test_specials(x):
    for fmt in ("fp16", "e4m3", "e4m3fnuz", "e2m1", "e8m0"):
        told = fs.explain_rounding(x, fmt)
        code, flags = fs.encode([x], fmt, return_flags=True)
        assert (told.code, told.flags) == (int(code[0]), int(flags[0]))
        assert told.kept is None
        assert str(told)


def test_numbers_of_every_kind():
    want = fs.explain_rounding("0.1", "bf16").code
    for x in (0.1, Fraction(1, 10), Decimal("0.1"), np.float64(0.1), np.array([0.1]), [0.1]):
        assert fs.explain_rounding(x, "bf16").code == want
    assert fs.explain_rounding(fs.array(1.5, "fp16"), "e2m1").code == 3
    assert fs.explain_rounding(2**70 + 1, "fp32").flags == fs.INEXACT
    # the sticky bit sees what float64 cannot
    assert fs.explain_rounding("1.0004882812500000000000000000001", "fp16").sticky == 1
    assert fs.explain_rounding(3, "e8m0").code == 129


def test_bad_input():
    with pytest.raises(ValueError, match="one number"):
        fs.explain_rounding([1.0, 2.0], "fp16")
    with pytest.raises(ValueError, match="one number"):
        fs.explain_rounding([], "fp16")
    with pytest.raises(ValueError, match="not a number"):
        fs.explain_rounding("one", "fp16")
    with pytest.raises(ValueError, match="unknown format"):
        fs.explain_rounding(1.0, "fp17")
    with pytest.raises(ValueError, match="seed"):
        fs.explain_rounding(0.1, "fp16", rounding="SR")
    with pytest.raises(TypeError):
        fs.explain_rounding(None, "fp16")


def test_html_and_text_have_the_same_content():
    told = fs.explain_rounding("0.1", "bf16")
    html = told._repr_html_()
    for step in told.steps:
        assert step in html
    assert re.sub("<[^>]+>", "", html)
    assert repr(told) == str(told)


@pytest.mark.parametrize(("x", "words"), [
    ("0.1", "the value is 1.6 x 2^-4"), (Decimal("0.3"), "the value is 1.2 x 2^-2"),
    (Fraction(1, 3), "the value is 1.333333333333333333333... x 2^-2"),
    ("1/3", "the value is 1.333333333333333333333... x 2^-2"),
    (0.1, "the value is 1.600000000000000088817... x 2^-4"),
    ("0x1.8000000000000000000000000000000000000000000000000000001p0", "the value is 1.500000000000000000000... x 2^0"),
])  # fmt: skip
def test_the_value_is_the_one_given(x, words):
    """The text shows the given number, also where the number read from it has fewer bits."""
    assert words in fs.explain_rounding(x, "bf16").steps[0]


def test_numbers_of_many_digits():
    """Python converts at most 4300 decimal digits at once."""
    above = Fraction(10**5000 + 1, 10**5000)
    explained = fs.explain_rounding(above, "fp16", rounding="toward_positive")
    assert "Fraction of about 5001 / 5001 digits" in str(explained) and explained.value > 1
    ones = "1" * 5000
    assert fs.encode(f"{ones}/{ones}", "fp16") == 0x3C00
    assert fs.encode(f"-{ones}2/{ones}1", "fp16", rounding="RTN") == fs.encode(-1.0009765625, "fp16")
    assert fs.encode(f"1/{ones}", "fp16", return_flags=True) == (0, fs.UNDERFLOW | fs.INEXACT)
    assert "(5002 characters)" in str(fs.explain_rounding(f"0.{ones}", "fp16"))
    for x, rounded in ((above, 1.0), (-above, -1.0), (10**5000, fs.FP32.max)):
        assert fs.encode(x, "fp32", rounding="RTZ") == fs.encode(rounded, "fp32")
