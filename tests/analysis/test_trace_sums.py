"""Traces of IEEE sums, compared with `fs.dot` and the counts of `fs.record`, and each rounding with `encode`."""

from __future__ import annotations

import math
from fractions import Fraction

import matplotlib.pyplot as plt
import numpy as np
import oracles as o
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import same_color

import floatsim as fs
from floatsim import Rounding, plot
from tests.marks import cases

trace = fs.tensorcore.trace

ACCUMULATIONS = (
    "fp16", "sequential(bf16, fused)", "sequential(fp32, product=fp16)", "sequential(e5m2, rounding=rtz)",
    "pairwise(fp16)", "pairwise(bf16, tree=halving)", "pairwise(fp32, tree=numpy)", "kahan(fp16)", "neumaier(bf16)",
    "exact(fp16)", "strided(fp16, 4)", "strided(kahan(fp16), 3, fp32)", "blocked(fp16, 5, fp32)",
    "blocked(pairwise(fp16), 4, neumaier(fp32))", "splitk(3, fp16, fp32)", "splitk(2, blocked(bf16, 3, fp16), fp32)",
)  # fmt: skip
EVENTS = ("overflow", "underflow", "flushed", "absorbed", "invalid")


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def vectors(r, length, fmt):
    """Return vectors of which a few products are far larger than the others: terms are absorbed and cancel."""
    a, b = (r.normal(size=length) * 2.0 ** r.integers(-6, 6, length) for _ in range(2))
    return fs.array(a, fmt), fs.array(b, fmt)


def compare(a, b, c, accumulate, **options):
    """Compare a trace with the result and the recorded events of `fs.dot`. Return the trace."""
    found = trace(a, b, c, accumulate=accumulate, **options)
    with fs.record() as log:
        expected = fs.array(fs.dot(a, b, c, accumulate=accumulate, **options), found.format)
    assert found.format == expected.format
    assert found.code == int(expected.codes), found
    products = [each for each in found.roundings if each.operator == "*"]
    sums = [each for each in found.roundings if each.operator != "*" and each.name != "result"]
    for site, roundings in (("matmul.product", products), ("matmul.sum", sums)):
        if site not in log.counts:
            assert not roundings
            continue
        assert log[site].elements == len(roundings)
        for event in EVENTS:
            assert getattr(log[site], event) == sum(event in each.events for each in roundings), (site, event)
    assert found.code in {each.code for each in found.roundings}  # Kahan's last rounding is not its result
    return found


@pytest.mark.parametrize("accumulate", ACCUMULATIONS)
def test_the_result_and_the_events_equal_dot(accumulate):
    r = o.rng("trace sums", accumulate)
    for length in (1, 2, 3, 9, 17):
        for c in (None, 0.75, -1e4):
            a, b = vectors(r, length, fs.FP16)
            mode = list(Rounding)[int(r.integers(7))]
            options = {"rounding": mode, "ftz": bool(r.integers(2)), "daz": bool(r.integers(2))}
            compare(a, b, c, accumulate, **options, **({"seed": 7} if mode is Rounding.STOCHASTIC else {}))


QUICK_ACCUMULATIONS = [text for text in ACCUMULATIONS if not text.startswith("splitk")]


@pytest.mark.parametrize("accumulate", cases(quick=QUICK_ACCUMULATIONS, full=ACCUMULATIONS))
def test_every_rounding_rounds_its_exact_result(accumulate):
    """The exact result is the one of the operands, and its rounding by `fs.encode` gives the code."""
    r = o.rng("trace sums exactly", accumulate)
    a, b = vectors(r, 17, fs.FP16)
    found = compare(a, b, 0.1, accumulate)
    for each in found.roundings:
        first, *others = each.operands
        if each.operator == "*":
            assert each.exact == first * others[0]
        else:
            assert each.exact == (first - others[0] if each.operator == "-" else sum(each.operands))
        mode = "RTZ" if "rounding=rtz" in accumulate else "RNE"
        if each.exact:
            assert int(fs.encode([each.exact], each.format, rounding=mode)[0]) == each.code
        assert each.value == Fraction(float(fs.decode(each.code, each.format)))
        assert each.rounded_off == each.exact - each.value
    products = sum(Fraction(float(x)) * Fraction(float(y)) for x, y in zip(a.values, b.values, strict=True))
    assert found.exact == products + Fraction(0.1)
    assert found.error == found.value - found.exact


def test_operands_of_other_formats_and_special_values():
    a, b = fs.array([1.0, 448.0, -0.5], "e4m3"), np.float32([3, 1e30, 2])
    compare(a, b, None, "kahan(fp32)")
    for x, y in ((math.inf, 1.0), (math.nan, 1.0), (math.inf, 0.0), (60000.0, 60000.0)):
        for accumulate in ("fp16", "neumaier(fp16)", "pairwise(fp16)", "exact(fp16)", "sequential(fp16, fused)"):
            found = compare(fs.array([1.0, x, 2.0], "fp16"), fs.array([1.0, y, -1.0], "fp16"), None, accumulate)
            if not math.isfinite(x):
                assert found.exact is found.error is None
    over = compare(fs.array([6e4, 6e4], "fp16"), fs.array([1.0, 1.0], "fp16"), None, "fp16", overflow="saturate_finite")
    assert (over.roundings[-1].name, over.value) == ("result", 65504)
    with fs.context(rounding="toward_zero"):
        assert compare(fs.array([1.0, 2**-12], "fp16"), fs.array([-1.0, 1.0], "fp16"), None, "fp16").value > -1


@pytest.mark.parametrize(("accumulate", "names"), [
    ("fp16", ["c", "a[0]*b[0]", "acc + x", "a[1]*b[1]", "acc + x"]),
    ("sequential(fp16, fused)", ["c", "acc + x", "acc + x"]),
    ("pairwise(fp16)", ["a[0]*b[0]", "a[1]*b[1]", "left + right", "sum + c"]),
    ("exact(fp16)", ["sum of all terms"]),
    ("kahan(fp32, product=none)", ["c", *["y = x - comp", "t = s + y", "t - s", "comp = (t - s) - y"] * 2]),
    ("neumaier(fp32, product=none)", [
        "c", "t = s + x", "x - t", "lost = (x - t) + s", "comp = comp + lost", "t = s + x", "s - t",
        "lost = (s - t) + x", "comp = comp + lost", "s + comp",
    ]),
])  # fmt: skip
def test_the_names_of_the_roundings(accumulate, names):
    found = trace(fs.array([2.0, 1.0], "fp16"), fs.array([3.0, 1.0], "fp16"), 1.0, accumulate=accumulate)
    assert [each.name for each in found.roundings] == names


def test_parts_of_composites():
    ones = fs.array(np.ones(4), "fp16")
    found = trace(ones, ones, accumulate="splitk(2, blocked(fp16, 1, fp32), fp32)")
    sums = [each for each in found.roundings if each.operator != "*"]
    parts = ["part 0, part 0", "part 0, part 1", "part 0, outer", "part 0, outer"]
    assert [each.part for each in sums] == [*parts, *(part.replace("part 0,", "part 1,") for part in parts), "outer",
                                            "outer"]  # fmt: skip
    assert [each.k for each in sums] == [0, 1, 0, 1, 2, 3, 2, 3, 1, 3]


def test_text():
    x, one = fs.array([2048.0, 1.0, 1.0], "fp16"), fs.array(np.ones(3), "fp16")
    text = str(trace(x, one, 0.5, accumulate="kahan(fp16)"))
    assert text.startswith("kahan(fp16): FP16 x FP16 to FP16, K = 3, c = 0.5\n")
    assert "1 - (-1)" in text
    assert text.count("absorbed") == 1
    assert text.endswith("result 2050, 0x6801\nexact sum 2050.5, error -0.5")
    assert all(line == line.rstrip() for line in text.splitlines())
    assert repr(trace(x, one, 0.5, accumulate="kahan(fp16)")) == text
    assert "3 terms" in str(trace(x, one, accumulate="exact(fp16)"))
    many = fs.array(np.ones(500), "fp16")
    long = trace(many, many, accumulate="fp16")
    assert len(long.roundings) == 1000
    assert "... 948 more roundings, in .roundings ..." in str(long)
    assert len(str(long).splitlines()) < 70
    none = trace(fs.array([], "fp16"), fs.array([], "fp16"), accumulate="fp16")
    assert (none.roundings, none.value) == ((), 0)
    assert "result 0, 0x0000" in str(none)
    assert trace(x, one, accumulate="fp16")._repr_html_().startswith("<pre>")


ONE = fs.array([1.0], "fp16")


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda: trace(ONE, ONE, accumulate="blocked(hopper, 16, fp32)"), TypeError, r"without matrix units.*core\(hopper"),
    (lambda: trace(ONE, [1.0, 2.0], accumulate="fp16"), ValueError, "a has 1 elements and b has 2"),
    (lambda: trace(ONE, ONE, [1.0, 2.0], accumulate="fp16"), ValueError, "c must be one number"),
    (lambda: trace(ONE, ONE, accumulate="fp16", scale_a=ONE, scale_b=ONE), ValueError, "are for a TensorCore"),
    (lambda: trace(ONE, ONE, accumulate="fp16", rounding="SR"), ValueError, "seed"),
    (lambda: trace(ONE, ONE, accumulate="fp16", offset=1), TypeError, "offset"),
    (lambda: trace(ONE, ONE, accumulate="kahn(fp16)"), ValueError, "kahan"),
    (lambda: trace(ONE, fs.from_codes([1], "e8m0"), accumulate="fp16"), TypeError, "b is E8M0, a scale format"),
    (lambda: trace([], [], accumulate="fp16").plot(), ValueError, "no rounding to draw"),
])  # fmt: skip
def test_bad_input_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_the_picture_shows_the_lost_bits():
    x, one = fs.array([2048.0, 1.0, 1.0], "fp16"), fs.array(np.ones(3), "fp16")
    found = trace(x, one, accumulate="kahan(fp16)")
    ax = found.plot()
    FigureCanvasAgg(ax.get_figure()).draw()
    lost = [p for p in ax.patches if same_color(p.get_facecolor(), plot.LOST_COLOUR)]
    assert len(lost) == sum(bool(each.rounded_off) for each in found.roundings) == 1
    assert [text.get_text() for text in ax.get_yticklabels()][:2] == ["k = 0: a[0]*b[0]", "k = 0: y = x - comp"]
    many = fs.array(np.ones(50), "fp16")
    label = trace(many, many, accumulate="sequential(fp16, fused)").plot().get_xlabel()
    assert label == "place of each bit (40 of 50 roundings drawn)"
    trace(fs.array([math.inf], "fp16"), one[:1], accumulate="fp16").plot()
