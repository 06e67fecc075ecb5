"""The steps of explained operations are compared with the element-wise operations, and with exact sums and products."""

import decimal
import itertools
import math
import os
import re
from fractions import Fraction

import matplotlib.pyplot as plt
import numpy as np
import oracles as o
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import same_color

import floatsim as fs
from floatsim import Rounding, plot
from floatsim.reference import Kind, decode

pytestmark = pytest.mark.formats

EXPLAIN = {"add": fs.explain_add, "multiply": fs.explain_multiply, "fma": fs.explain_fma}
FORMATS = [*o.ARITHMETIC, *o.CUSTOM]


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def compare(operation, codes, formats, fmt, **options):
    """Compare code, flags and every row of bits of each tuple of codes with the operation. Return the explanations."""
    arrays = [fs.from_codes(np.asarray(x, f.code_dtype), f) for x, f in zip(codes, formats, strict=True)]
    expected, flags = getattr(fs, operation)(*arrays, format=fmt, return_flags=True, **options)
    explained = []
    for i in range(len(expected)):
        # the draw of element i: `offset` is its index
        shown = EXPLAIN[operation](
            *(x[i] for x in arrays), fmt, **options, **{"offset": i} if "seed" in options else {}
        )
        assert (shown.code, shown.flags) == (int(expected.codes[i]), int(flags[i])), shown
        check_steps(shown, options.get("daz", False))
        explained.append(shown)
    return explained


def check_steps(shown, daz):
    """Rebuild the operands, the exact result and the rounded result from the rows of bits."""
    numbers = [decode(x.code, x.format, daz) for x in shown.operands]
    steps = {step.name: step for step in shown.steps}
    if any(x.kind is not Kind.FINITE for x in numbers):
        assert list(steps) == ["unpack", "special values", "result"]
        assert shown.exact is shown.aligned is shown.normalized is shown.rounding is None
        return
    values = [x.fraction for x in numbers]
    assert [row.value for row in steps["unpack"].rows] == values
    terms = values
    if shown.operation != "add":
        terms = [values[0] * values[1], *values[2:]]
        assert [row.value for row in steps["multiply"].rows] == terms[:1]
    assert shown.exact == sum(terms)
    assert ("align" in steps) == (shown.aligned is not None) == (len(terms) == 2 and all(terms))
    if "align" in steps:
        rows = steps["align"].rows
        assert [row.value for row in rows] == terms
        assert len({row.exponent for row in rows}) == 1
    if len(terms) == 2:
        assert [row.value for row in steps["add"].rows] == [*terms, shown.exact]
    if shown.exact == 0:
        assert list(steps)[-1] == "result"
        assert shown.rounding is shown.normalized is None
        return
    (row,) = steps["normalize"].rows
    assert (row.value, row.first) == (shown.exact, 0)
    assert row.bits[0] == "1" or row.exponent == shown.format.emin
    source = steps["add" if len(terms) == 2 else "multiply"].rows[-1]
    assert row.exponent == source.exponent + shown.normalized
    cut, rounded = steps["round"].rows
    assert cut.value == shown.exact
    assert cut.bits[: 1 + cut.kept] == shown.rounding.kept.replace(".", "")
    behind = cut.bits[1 + cut.kept :]
    assert shown.rounding.guard == int(behind[:1] or "0")
    assert shown.rounding.sticky == int("1" in behind[1:])
    assert abs(rounded.value - shown.exact) < Fraction(2) ** (rounded.exponent - cut.kept)
    assert (shown.rounding.code, shown.rounding.flags) == (shown.code, shown.flags)
    result = decode(shown.code, shown.format)
    assert [x.value for x in steps["result"].rows] == [result.fraction] * (result.kind is Kind.FINITE)
    if result.kind is Kind.FINITE:
        assert shown.value == result.fraction
        if not shown.flags & fs.OVERFLOW and result.fraction:
            assert rounded.value == result.fraction


def options_of(mode, r=None):
    """Return rounding options: of one mode, the others at random."""
    options = {"rounding": mode} | ({"seed": 5, "random_bits": 8} if mode is Rounding.STOCHASTIC else {})
    if r is None:
        return options
    return options | {
        "overflow": list(fs.Overflow)[r.integers(3)], "ftz": bool(r.integers(2)), "daz": bool(r.integers(2)),
        "tininess": list(fs.Tininess)[r.integers(2)],
    }  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("mode", list(Rounding), ids=lambda mode: mode.name.lower())
@pytest.mark.parametrize("operation", ["add", "multiply"])
def test_pairs_of_e4m3(operation, mode):
    """Unordered pairs, each in one of its two orders: a quarter of them to nearest, a twelfth in the other modes.

    FLOATSIM_EXHAUSTIVE=1 takes all pairs in all modes, which takes two minutes.
    """
    every = 1 if os.environ.get("FLOATSIM_EXHAUSTIVE") == "1" else 4 if mode is Rounding.TIES_TO_EVEN else 12
    part = slice(list(Rounding).index(mode) % every, None, every)
    low, high = (side[part] for side in np.triu_indices(256))
    swapped = (low + high) % 2 == 1
    pairs = [np.where(swapped, high, low), np.where(swapped, low, high)]
    compare(operation, pairs, [fs.E4M3] * 2, fs.E4M3, **options_of(mode))


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
@pytest.mark.parametrize("operation", list(EXPLAIN))
def test_samples_of_every_format_in_every_mode(operation, fmt):
    """Special codes, near codes and random codes, under random options."""
    r = o.rng("explain operation", operation, fmt)
    special = o.special_codes(fmt)
    for mode in Rounding:
        codes = []
        for _ in range(3 if operation == "fma" else 2):
            anything = [int(x) for x in r.integers(0, 1 << fmt.bits, 12, dtype=np.uint64)]
            codes.append([*anything, *r.choice(special, 12).tolist()])
        near = [code ^ int(r.integers(4)) for code in codes[0][:6]]  # neighbours cancel
        codes = [[*codes[0], *codes[0][:6]], [*codes[1], *(x ^ fmt.sign_mask for x in near)],
                 *([*x, *x[:6]] for x in codes[2:])]  # fmt: skip
        compare(operation, codes, [fmt] * len(codes), fmt, **options_of(mode, r))


@pytest.mark.parametrize("operation", list(EXPLAIN))
def test_operands_of_other_formats(operation):
    r = o.rng("explain operation", operation)
    for formats, fmt in [((fs.FP32, fs.BF16, fs.E4M3), fs.FP16), ((fs.E5M2, fs.E2M1, fs.FP64), fs.E3M4)]:
        count = 3 if operation == "fma" else 2
        codes = [[int(x) for x in r.integers(0, 1 << f.bits, 20, dtype=np.uint64)] for f in formats[:count]]
        compare(operation, codes, formats[:count], fmt)
    x, y = fs.array(1.5, "e4m3"), fs.array(1.5, "e5m2")
    with pytest.raises(TypeError, match="mixed formats"):
        fs.explain_add(x, y)


def names(shown):
    return [step.name for step in shown.steps]


def words(shown, name):
    return next(step.words for step in shown.steps if step.name == name)


def test_the_steps_of_each_operation():
    assert names(fs.explain_add(1.5, 0.1, "e4m3")) == ["unpack", "align", "add", "normalize", "round", "result"]
    assert names(fs.explain_multiply(1.5, 0.1, "e4m3")) == ["unpack", "multiply", "normalize", "round", "result"]
    assert names(fs.explain_fma(1.5, 0.5, 0.1, "e4m3")) == [
        "unpack", "multiply", "align", "add", "normalize", "round", "result"
    ]  # fmt: skip


def test_alignment_normalization_and_carry():
    one = fs.explain_add(1.0, 2.0**-9, "fp16")
    assert (one.aligned, one.normalized) == (9, 0)
    carry = fs.explain_add(1.5, 1.5, "fp16")
    assert (carry.aligned, carry.normalized) == (0, 1)
    assert "shift right by 1 place, to the exponent 1, because the sum is 2 or more" in words(carry, "normalize")
    cancelled = fs.explain_add(1.0, -(1 - 2.0**-11), "fp16")
    assert (cancelled.aligned, cancelled.normalized) == (1, -11)
    assert "the leading 11 bits are 0" in words(cancelled, "normalize")
    far = fs.explain_add(1.0, 2.0**-20, "fp16")
    assert "all its bits are behind the last bit of a" in words(far, "align")
    assert (far.rounding.guard, far.rounding.sticky) == (0, 1)
    second = fs.explain_add(2047.0, 0.5, "fp16")  # 2047.5 is a tie, and the rounding carries into the next exponent
    assert second.value == 2048
    assert second.rounding.rounded == "10.0000000000"
    assert "the carry makes the exponent 11" in str(second)


def test_zeros_subnormals_overflow_and_flags():
    assert names(fs.explain_add(1.0, -1.0, "fp16"))[-2:] == ["add", "result"]
    assert "the sum is +0" in words(fs.explain_add(1.0, -1.0, "fp16"), "add")
    assert "the sum is -0" in words(fs.explain_add(1.0, -1.0, "fp16", rounding="RTN"), "add")
    assert words(fs.explain_add(-0.0, -0.0, "fp16"), "add") == "both terms are zeros"
    assert "b is zero, so the sum is a" in words(fs.explain_add(1.0, 0.0, "fp16"), "add")
    assert "the product is zero" in words(fs.explain_multiply(0.0, -3.0, "fp16"), "multiply")
    tiny = fs.explain_multiply(2.0**-10, 1.5 * 2.0**-10, "fp16")
    assert "subnormal" in words(tiny, "normalize")
    assert tiny.normalized == 6
    assert "subnormal: 0 before the point" in str(fs.explain_add(2.0**-24, 1.0, "fp16"))
    assert "read as zero (daz)" in str(fs.explain_add(2.0**-24, 1.0, "fp16", daz=True))
    assert "beyond max" in words(fs.explain_multiply(300.0, 300.0, "fp16"), "result")
    assert "flags: overflow, inexact" in str(fs.explain_multiply(300.0, 300.0, "fp16"))
    assert "flush-to-zero" in str(fs.explain_multiply(2.0**-10, 2.0**-10, "fp16", ftz=True))


INF, NAN = math.inf, math.nan


@pytest.mark.parametrize(("shown", "text"), [
    (lambda: fs.explain_add(INF, -INF, "fp16"), "infinity minus infinity has no value"),
    (lambda: fs.explain_add(INF, 1.0, "fp16"), "an infinity decides the result: +infinity"),
    (lambda: fs.explain_add(1.0, -INF, "fp16"), "an infinity decides the result: -infinity"),
    (lambda: fs.explain_add(NAN, 1.0, "fp16"), "a is NaN, so the result is a NaN"),
    (lambda: fs.explain_add(NAN, NAN, "fp16"), "a and b are NaN"),
    (lambda: fs.explain_add(fs.from_codes([0x7C01], "fp16"), 1.0), "a signalling NaN is invalid"),
    (lambda: fs.explain_multiply(INF, 0.0, "fp16"), "infinity times zero has no value"),
    (lambda: fs.explain_multiply(INF, -2.0, "fp16"), "-infinity, without rounding"),
    (lambda: fs.explain_fma(INF, 0.0, NAN, "fp16"), "infinity times zero has no value"),
    (lambda: fs.explain_fma(INF, 1.0, -INF, "fp16"), "infinity minus infinity"),
    (lambda: fs.explain_fma(-INF, 1.0, 3.0, "fp16"), "-infinity, without rounding"),
    (lambda: fs.explain_fma(1.0, 1.0, INF, "fp16"), "+infinity, without rounding"),
    (lambda: fs.explain_add(fs.array(INF, "fp16"), 1.0, "e4m3"), "E4M3 has no infinity"),
    (lambda: fs.explain_add(fs.array(NAN, "fp16"), 1.0, "e2m1"), "because E2M1 has no NaN"),
])  # fmt: skip
def test_special_values_in_words(shown, text):
    shown = shown()
    assert text in words(shown, "special values")
    assert text in str(shown)
    with pytest.raises(ValueError, match="no bits to draw"):
        shown.plot()


def test_numbers_of_every_kind():
    shown = fs.explain_add("0.1", Fraction(1, 10), "bf16")
    assert [x.code for x in shown.operands] == [0x3DCD, 0x3DCD]
    assert "0.1 rounded to BF16" in str(shown)
    assert "1/10 rounded to BF16" in str(shown)
    assert "rounded to BF16" not in str(fs.explain_add(1.5, 2, "bf16")).split("2. ")[0]
    assert fs.explain_add(np.float32(0.1), 1.0).format == fs.FP32
    assert fs.explain_add(1, 2).format == fs.FP64
    beside = fs.explain_add(fs.array([0.1], "fp32"), 0.1, "fp16")  # as in fs.add, a number takes the array's format
    assert beside.code == int(fs.add(fs.array(0.1, "fp32"), 0.1, format="fp16").codes)


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda: fs.explain_add([1.0, 2.0], 1.0, "fp16"), ValueError, "a must be one number"),
    (lambda: fs.explain_fma(1.0, 1.0, fs.array([], "fp16")), ValueError, "c must be one number"),
    (lambda: fs.explain_add("one", 1.0, "fp16"), ValueError, "not a number"),
    (lambda: fs.explain_add(1.0, 1.0, "fp17"), ValueError, "unknown format"),
    (lambda: fs.explain_multiply(1.0, 1.0, "e8m0"), TypeError, "scale format"),
    (lambda: fs.explain_multiply(1.0, 1.0, "fp16", rounding="SR"), ValueError, "seed"),
    (lambda: fs.explain_multiply(1.0, 1.0, "fp16", round="RTZ"), TypeError, "rounding"),
    (lambda: fs.explain_add(None, 1.0, "fp16"), TypeError, "a must be"),
])  # fmt: skip
def test_bad_input_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_the_text_aligns_the_points():
    for shown in (
        fs.explain_add(1.5, 0.1, "e4m3"),
        fs.explain_fma(1.9, 1.9, -0.3, "bf16"),
        fs.explain_multiply(0.1, 3),
    ):
        lines = [line for step in shown.steps for line in shown.bit_lines(step)]
        assert len({line.index(".") for line in lines}) == 1
        assert all(line == line.rstrip() for line in str(shown).splitlines())
        html = shown._repr_html_()
        assert html.count("<li>") == len(shown.steps)
        assert re.sub("<[^>]+>", "", html)
        assert repr(shown) == str(shown)
    far = str(fs.explain_add(1.0, 1e-300))
    assert max(map(len, far.splitlines())) < 220
    assert "..." in far


# -- the picture -----------------------------------------------------------------------------------------------------


def drawn(ax, tint):
    return [p for p in ax.patches if same_color(p.get_facecolor(), tint)]


def test_every_bit_is_drawn():
    shown = fs.explain_add(1.5, 0.1, "e4m3")
    ax = shown.plot()
    rows = [row for step in shown.steps for row in step.rows]
    assert len(ax.patches) == sum(len(row.bits) for row in rows)
    lost = "".join(row.bits[1 + row.kept :] for row in rows if row.kept is not None)
    assert len(drawn(ax, plot.LOST_COLOUR)) == lost.count("1") == 3
    ones = "".join(row.bits for row in rows).count("1")
    assert len(drawn(ax, plot.colour("e4m3"))) == ones - 3
    texts = [text.get_text() for text in ax.texts]
    assert any("guard bit 1, sticky bit 1" in text for text in texts)
    assert any(text.startswith("6. result: 1.625") and text.endswith("flags: inexact") for text in texts)
    assert ax.get_title(loc="left") == "1.5 + 0.1015625 in E4M3"
    given = plt.subplots()[1]
    assert shown.plot(given) is given


@pytest.mark.full
@pytest.mark.parametrize("shown", [
    lambda: fs.explain_add(1.5, 0.1, "e4m3"),
    lambda: fs.explain_fma(1.125, 1.125, -1.2, "bf16"),
    lambda: fs.explain_multiply(2.0**-10, 1.5 * 2.0**-10, "fp16"),
    lambda: fs.explain_add(1.0, -1e-6, "fp32"),
    lambda: fs.explain_add(1.0, 1e-300),
])  # fmt: skip
@pytest.mark.parametrize(("size", "layout"), [(10, "own"), (20, "own"), (16, None), (20, "constrained")])
def test_the_picture_has_no_overlapping_text(shown, size, layout):
    """Also with the large letters of slides, in a figure of its own and in Axes of the caller."""
    with plt.rc_context({"font.size": size}):
        ax = shown().plot(None if layout == "own" else plt.subplots(figsize=(10, 5.6), layout=layout)[1])
        figure = ax.get_figure()
        FigureCanvasAgg(figure).draw()
    plt.close(figure)
    boxes = [(t.get_text(), t.get_window_extent()) for t in (*ax.texts, *ax.get_yticklabels()) if t.get_text().strip()]
    for text, box in boxes:
        assert figure.bbox.x0 - 1 <= box.x0 and box.x1 <= figure.bbox.x1 + 1, text
    for (one, box), (other, second) in itertools.combinations(boxes, 2):
        width = min(box.x1, second.x1) - max(box.x0, second.x0)
        height = min(box.y1, second.y1) - max(box.y0, second.y0)
        assert min(width, height) <= 1, f"{one!r} overlaps {other!r}"


def test_the_callers_decimal_context_changes_nothing():
    """Neither its flags, which stay set until somebody clears them, nor its traps."""
    want, long = str(fs.explain_add(1.5, 0.1, "e4m3")), str(fs.explain_add(0.1, 0.2, "fp64"))
    with decimal.localcontext(prec=3) as context:
        context.flags[decimal.Inexact] = True
        assert str(fs.explain_add(1.5, 0.1, "e4m3")) == want
        context.traps[decimal.Inexact] = True
        assert str(fs.explain_add(0.1, 0.2, "fp64")) == long
    assert "exactly 1.6015625\n" in want
