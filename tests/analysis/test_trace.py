"""Traces of matrix units as data, as text and as pictures, compared with the computed results."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import same_color

import floatsim as fs
from floatsim import plot
from floatsim.reference import decode
from floatsim.tensorcore.instructions import FlushedTree, LateAccumulator
from tests.tensorcore.cases import Case, cases, codes

pytestmark = pytest.mark.full

CASES = list(cases())
trace = fs.tensorcore.trace


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def random_operands(case: Case, rng: np.random.Generator, length: int, style: str):
    """Return (a, b, c, keywords) of a case."""
    a, b = (
        fs.from_codes(codes(rng, fmt, (length,), style).astype(fmt.code_dtype), fmt) for fmt in (case.a, case.b)
    )  # fmt: skip
    c = fs.from_codes(codes(rng, case.row.output, (1,), style).astype(case.row.output.code_dtype), case.row.output)[0]
    keywords = {"accumulate": fs.TensorCore(case.arch, case.row.name, case.row.output)}
    if case.scales is not None:
        parts = -(-length // case.scales.every)
        for side in ("scale_a", "scale_b"):
            of = case.scales.format
            keywords[side] = fs.from_codes(codes(rng, of, (parts,), "near").astype(of.code_dtype), of)
    return a, b, c, keywords


def traced(case: Case, style: str, seed: int = 1):
    rng = np.random.default_rng(seed)
    a, b, c, keywords = random_operands(case, rng, case.row.k + case.row.k // 2 + 1, style)
    return trace(a, b, c, **keywords), (a, b, c, keywords)


# -- the data --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("style", ["near", "bits"])
def test_the_result_equals_matmul(style):
    for case in CASES[:: 5 if style == "near" else 7]:
        found, (a, b, c, keywords) = traced(case, style)
        result = fs.matmul(a, b, c, **keywords)
        assert found.code == int(np.asarray(result.codes).item()), str(case)
        assert found.format == result.format


@pytest.mark.parametrize("style", ["near", "tiny", "cancelling", "bits"])
def test_the_kept_and_the_lost_part_sum_to_the_term(style):
    aligned = 0
    for case in CASES[::4]:
        found, _ = traced(case, style)
        for block in found.blocks:
            if block.exponent is None:
                assert all(term.kept is None and term.shift is None and not term.bits_lost for term in block.terms)
                continue
            aligned += 1
            late = isinstance(case.row.model, LateAccumulator)  # c is cut downward there, or dropped; and the sum again
            for term in block.terms:
                unit = Fraction(2) ** term.quantum
                assert term.kept + term.lost == term.value
                assert (term.kept / unit).denominator == 1
                assert abs(term.lost) < unit
                assert term.lost * term.value >= 0 or (late and term.k is None and term.lost > 0)
                assert bool(term.bits_lost) == bool(term.lost)
                assert term.shift is None or term.shift == block.exponent - term.exponent >= 0
                assert term.lowest is None or term.bits_lost <= max(0, term.quantum - term.lowest)
                assert late or term.quantum == block.quantum
            assert late or sum(term.kept for term in block.terms) == block.total, "the missing ones are zeros"
    assert aligned > 50


def test_the_sum_rounds_to_d_and_d_is_carried():
    for case in CASES[::3]:
        found, _ = traced(case, "near")
        row = case.row
        whole = [b for b in found.blocks if b.total is not None]
        for block in whole:
            assert block.rounded_off == block.total - block.value
            if block.total:
                assert 2**block.normalised <= abs(block.total) < 2 ** (block.normalised + 1)
            else:
                assert block.normalised is None
        assert found.blocks[-1].code == found.code
        assert found.value == found.blocks[-1].value
        assert len(found.blocks) == 2 * row.roundings
        for i, (before, after) in enumerate(itertools.pairwise(found.blocks)):
            assert (before.instruction, before.number) == divmod(i, row.roundings)
            carried = [term.value for term in after.terms if term.name in ("acc", "sum")]
            assert carried == [before.value] or row.roundings == 3, str(case)
        assert found.c == next(term.value for block in found.blocks for term in block.terms if term.name == "c")


def test_every_product_appears_once_with_its_factors_and_the_exact_sum():
    for case in CASES[::3]:
        found, (a, b, c, _) = traced(case, "near")
        products = [term for block in found.blocks for term in block.terms if term.k is not None]
        if case.row.group == 1:
            assert sorted(term.k for term in products) == list(range(found.length))
        for term in products:
            if case.row.group > 1:
                assert term.factors is None
                continue
            x, y = (Fraction(side) for side in term.factors)
            if case.a != fs.FP32 or case.row.inputs == (fs.FP32,):
                assert term.factors == (float(a[term.k].item()), float(b[term.k].item()))
            assert case.scales is not None or term.value == x * y
        start = decode(int(c.codes.item()), case.row.output).fraction
        assert found.exact == sum((term.value for term in products), start)
        assert found.error == found.value - found.exact
        padding = sum(block.padding for block in found.blocks)
        assert padding == len([k for block in found.blocks for k in block.ks if k >= found.length])


def test_fourteen_bits():
    """FP8 on Hopper discards a term 14 places below the largest and keeps one 13 places below. mma.sync keeps both."""
    x, y = fs.array([128.0, 128.0, 1.0, 2.0], "e4m3"), fs.array([128.0, -128.0, 1.0, 1.0], "e4m3")
    (block,) = trace(x, y, accumulate="hopper").blocks
    assert (block.exponent, block.fraction_bits, block.quantum, block.padding) == (14, 13, 1, 28)
    one, two = block.terms[2:4]
    assert (one.name, one.shift, one.kept, one.lost, one.bits_lost) == ("a[2]*b[2]", 14, 0, 1, 1)
    assert (two.shift, two.kept, two.lost, two.bits_lost) == (13, 2, 0, 0)
    assert (block.total, block.value, block.normalised) == (2, 2, 1)
    assert trace(x, y, accumulate="tensorcore(hopper, mma.m16n8k32)").value == 3


def test_c_is_a_term_of_the_first_block_and_loses_its_low_bits():
    zero = fs.array([0.0], "e4m3")
    (block,) = trace(zero, zero, 1 + 2.0**-13 + 2.0**-23, accumulate="hopper").blocks
    c = block.terms[-1]
    assert (c.name, c.k, c.factors, c.kept) == ("c", None, None, 1 + Fraction(1, 2**13))
    assert (c.lost, c.bits_lost) == (Fraction(1, 2**23), 10)
    steps = trace(zero, zero, 2.0, accumulate="tensorcore(hopper, mma.m16n8k32)").blocks
    assert [[term.name for term in step.terms if term.k is None] for step in steps] == [["sum"], ["sum"], ["sum", "c"]]
    later = trace(fs.array(np.ones(40), "e4m3"), fs.array(np.ones(40), "e4m3"), accumulate="hopper").blocks
    assert [block.terms[-1].name for block in later] == ["c", "acc"]


def test_empty_operands_infinities_and_nan():
    none = trace(fs.array([], "fp16"), fs.array([], "fp16"), -0.0, accumulate="hopper")
    assert (none.blocks, none.code, none.value, none.exact) == ((), 0x80000000, 0, 0)
    assert "D = 0, 0x80000000" in str(none)
    for x, text in ((math.inf, "inf"), (math.nan, "nan")):
        found = trace(fs.array([x, 1.0], "fp16"), fs.array([1.0, 1.0], "fp16"), accumulate="ampere")
        assert (found.exact, found.error, found.blocks[0].total, found.blocks[0].rounded_off) == (None,) * 4
        assert str(found.value) == text
        assert f"D = {text}, 0x7F" in str(found)
        assert "exact" not in str(found)
        found.plot()


def test_accepted_arguments():
    assert trace([0.1], [1.0], accumulate="ampere").formats == (fs.FP64, fs.FP64)
    assert trace(np.float16([1]), np.float16([2]), 1, accumulate=fs.TensorCore("ada", output="fp16")).code == 0x4200
    tf32 = trace(np.float32([1 + 2**-20]), np.float32([1]), accumulate="tensorcore(ampere, mma.m16n8k8.tf32)")
    assert tf32.blocks[0].terms[0].factors == (1, 1), "as the instruction reads them"
    assert trace(fs.array([1.0], "e4m3"), fs.array([2.0], "e5m2"), accumulate="ada").value == 2
    assert trace(np.float16([1]), np.float16([2]), np.float64(0.1), accumulate="ada").c == Fraction(
        float(np.float32(0.1))
    )


ONE, MANY = fs.array([1.0], "fp16"), fs.array([1.0, 2.0], "fp16")


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda: trace(ONE, ONE, accumulate="hopper", rounding="RTZ", ftz=True), TypeError, "remove rounding and ftz"),
    (lambda: trace(ONE, ONE, accumulate="blocked(hopper, 8, fp32)"), TypeError, r"trace each part with .*core\(hopper"),
    (lambda: trace(ONE, ONE), TypeError, "accumulate"),
    (lambda: trace(ONE, MANY, accumulate="hopper"), ValueError, "a has 1 elements and b has 2"),
    (lambda: trace(np.ones((2, 2)), ONE, accumulate="hopper"), ValueError, r"a must be a vector \(K,\)"),
    (lambda: trace(ONE, ONE, MANY, accumulate="hopper"), ValueError, "c must be one number"),
    (lambda: trace(ONE, ONE, fs.from_codes([1], "e8m0"), accumulate="hopper"), ValueError, "c must be one number"),
    (lambda: trace(ONE, fs.array([1.0], "bf16"), accumulate="hopper"), ValueError, "does not multiply FP16 by BF16"),
    (lambda: trace(ONE, ONE, accumulate="hoper"), ValueError, "hopper"),
    (lambda: trace(np.arange(2), ONE, accumulate="hopper"), TypeError, "a has dtype int64"),
    (lambda: trace(ONE, ONE, accumulate="hopper", scale_a=ONE), ValueError, "scale_b is missing"),
    (lambda: trace(ONE, ONE, accumulate="hopper").plot(blocks=1), ValueError, "blocks=1: the trace has 1"),
    (lambda: trace([], [], accumulate="ampere").plot(), ValueError, "no block to draw"),
])  # fmt: skip
def test_bad_input_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


# -- as text ---------------------------------------------------------------------------------------------------------


def test_the_bits_equal_the_terms():
    """The last column starts at the highest exponent, with a bar behind the last bit that is kept."""
    x, y = fs.array([24.0, -1.25, 2.0**-9, 2.0**-6], "e4m3"), fs.array([16.0, 1.5, 0.625, 1.0], "e4m3")
    text = str(trace(x, y, 3.75, accumulate="hopper"))
    bits = {line.split()[0]: line.split()[-1] for line in text.splitlines() if "|" in line}
    assert bits["a[0]*b[0]"] == "11000000000000|"
    assert bits["a[1]*b[1]"] == "-........111100|"
    assert bits["a[2]*b[2]"] == "..............|....101"
    assert bits["a[3]*b[3]"] == "..............|1"
    assert bits["c"] == ".......1111000|"
    assert bits["sum"] == bits["D,"] == "11000000111100|"
    assert "largest exponent 8, and 13 bits below it are kept: down to 2^-5" in text
    assert "exact sum" in text
    assert repr(trace(x, y, 3.75, accumulate="hopper")) == text


def test_text_of_every_model():
    for case in CASES[::2]:
        found, _ = traced(case, "near")
        text = str(found)
        assert text.startswith(f"{case.arch} {case.row.name}: {case.a} x {case.b} to {case.row.output}, K = ")
        assert text.count("\n  term ") == len(found.blocks) or len(found.blocks) > 8
        assert all(line == line.rstrip() for line in text.splitlines())
        assert found._repr_html_().startswith("<pre>")
        if isinstance(case.row.model, FlushedTree):
            assert "  sum  " not in text  # of all terms: there is none, but of pairs
            assert "  sum of k = " in text or not found.blocks


def test_only_the_text_shortens_long_chains():
    ones = fs.array(np.ones(4096), "fp16")
    found = trace(ones, ones, accumulate="hopper")
    assert len(found.blocks) == 256
    assert "... 249 more blocks, in .blocks ..." in str(found)
    assert len(str(found).splitlines()) < 200


# -- the picture -----------------------------------------------------------------------------------------------------


def example():
    rng = np.random.default_rng(3)
    x, y = (fs.array(rng.normal(size=12) * scale, "e4m3") for scale in (2, 3))
    return trace(x, y, 1000.1, accumulate="hopper")


def cells(ax: Axes, tint: str):
    return [p for p in ax.patches if same_color(p.get_facecolor(), tint) and p.get_height() < 1]


def test_kept_and_lost_bits_are_drawn():
    found = example()
    ax = found.plot()
    (block,) = found.blocks
    ones = "".join(bin(abs(int(term.value / Fraction(2) ** term.lowest)))[2:] for term in block.terms if term.value)
    products, others = (cells(ax, plot.colour(fmt)) for fmt in (fs.E4M3, fs.FP32))
    lost = cells(ax, plot.LOST_COLOUR)
    of_sums = sum(int(bit) for x in (block.total, block.value) for bit in bin(int(x * 2**20))[2:])
    assert len(products) + len(lost) + len(others) == ones.count("1") + of_sums
    assert all(cell.get_x() < block.quantum for cell in lost)
    assert all(cell.get_x() > block.quantum for cell in (*products, *others))
    assert len(lost) == sum(
        bin(int(abs(term.lost) / Fraction(2) ** term.lowest)).count("1") for term in block.terms if term.lost
    )


def test_the_cut_is_drawn_behind_the_last_bit():
    found = example()
    ax = found.plot()
    (line,) = [line for line in ax.lines if line.get_linestyle() == "--"]
    assert list(line.get_xdata()) == [found.blocks[0].quantum] * 2
    words = [text.get_text() for text in ax.texts]
    assert "1 + 13 bits" in words
    assert "1000.09998: 9 bits lost" in words
    assert "1024.25  (exactly 1024.37537)" in words
    assert ax.get_title(loc="left") == "hopper wgmma.k32: E4M3, D in FP32 as E8M13, toward zero"
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels == [*(f"a[{k}]*b[{k}]" for k in range(12)), "c", "sum", "D"]


def test_axes_and_blocks_can_be_chosen():
    found = trace(fs.array(np.ones(16), "fp16"), fs.array(np.ones(16), "fp16"), accumulate="ampere")
    _, ax = plt.subplots()
    assert found.plot(ax) is ax
    titles = [text.get_text() for text in found.plot().texts if "instruction" in text.get_text()]
    assert titles == ["instruction 0, step 0: k = 0 to 7  (1 term is zero)", "instruction 0, step 1: k = 8 to 15"]
    last = [text.get_text() for text in found.plot(blocks=-1).texts if "instruction" in text.get_text()]
    assert last == titles[1:]
    assert [t.get_text() for t in found.plot(blocks=[1, 0]).texts if "instruction" in t.get_text()] == titles[::-1]
    ones = fs.array(np.ones(4096), "fp16")
    many = trace(ones, ones, accumulate="hopper").plot()
    assert len(many.get_yticks()) <= 48
    assert many.get_figure().get_figheight() < 25


@pytest.mark.parametrize("case", CASES[::74], ids=str)
@pytest.mark.parametrize("style", ["near", "bits"])
def test_pictures_are_readable(case, style):
    """No two texts overlap, and all lie inside the picture."""
    found, _ = traced(case, style, seed=5)
    ax = found.plot()
    figure = ax.get_figure()
    FigureCanvasAgg(figure).draw()
    texts = [ax._left_title, ax.xaxis.label, *ax.texts, *ax.get_yticklabels(), *ax.get_legend().get_texts()]
    low, high = sorted(ax.get_xlim())
    texts += [t for t in ax.get_xticklabels() if low <= t.get_position()[0] <= high]
    boxes = [(t.get_text(), t.get_window_extent()) for t in texts if t.get_text().strip()]
    for text, box in boxes:
        inside = figure.bbox
        assert inside.x0 - 1 <= box.x0 and box.x1 <= inside.x1 + 1, text
        assert inside.y0 - 1 <= box.y0 and box.y1 <= inside.y1 + 1, text
    for (one, box), (other, second) in itertools.combinations(boxes, 2):
        width = min(box.x1, second.x1) - max(box.x0, second.x0)
        height = min(box.y1, second.y1) - max(box.y0, second.y0)
        assert min(width, height) <= 1, f"{one!r} overlaps {other!r}"


def test_the_colours_of_kept_and_lost_differ():
    assert plot.colour(fs.E4M3) != plot.LOST_COLOUR
    assert plot.colour(fs.FP32) != plot.LOST_COLOUR
    ax = trace([0.1, 0.3], [1.1, 1.3], accumulate="ampere").plot()  # FP64 has black as its own
    assert cells(ax, plot.CUSTOM_COLOUR)
    assert not cells(ax, plot.colour(fs.FP64))


def test_a_picture_names_the_omitted_blocks():
    ones = fs.array(np.ones(80), "fp16")
    trace = fs.tensorcore.trace(ones, ones, accumulate="hopper")
    assert "of 5 blocks drawn" in trace.plot().get_xlabel()
    assert trace.plot(blocks=range(5)).get_xlabel() == "place of each bit"


# -- what is added or scaled inside ----------------------------------------------------------------------------------


def test_partial_sums_of_a_block_of_cdna2():
    """(p0 + p1) + (p2 + p3), each rounded to FP32."""
    rng = np.random.default_rng(5)
    a, b = (fs.array(rng.normal(size=8), "fp16") for _ in range(2))
    found = trace(a, b, 1.5, accumulate="cdna2")
    p = a.values.astype(np.float32) * b.values.astype(np.float32)
    for i, block in enumerate(found.blocks):
        pairs = [p[4 * i] + p[4 * i + 1], p[4 * i + 2] + p[4 * i + 3]]
        expected = [*pairs, pairs[0] + pairs[1]]
        assert [float(value) for _, value in block.partials] == expected
        assert [list(ks) for ks, _ in block.partials] == [
            [4 * i, 4 * i + 1], [4 * i + 2, 4 * i + 3], list(range(4 * i, 4 * i + 4))
        ]  # fmt: skip
        before = found.c if i == 0 else found.blocks[0].value
        assert float(block.value) == np.float32(float(before)) + expected[-1]
    lines = str(found).splitlines()
    assert sum(line.strip().startswith("sum of k = ") for line in lines) == 6
    assert any(line.strip().startswith("sum of k = 4, 5") for line in lines)
    drawn = [label.get_text() for label in found.plot().get_yticklabels()]
    assert drawn.index("sum of k = 0, 1") < drawn.index("sum of k = 0 to 3") < drawn.index("acc")


def test_other_units_have_no_partial_sums():
    one = fs.array([1.0] * 8, "fp16")
    assert all(
        not trace(one, one, accumulate=unit).blocks[0].partials for unit in ("ampere", "hopper", "cdna1", "cdna3")
    )


def test_scales_are_shown_separately():
    rng = np.random.default_rng(6)
    x, w = (fs.array(rng.normal(size=64), "e2m1") for _ in range(2))
    of_x, of_w = fs.array([1.5, -2.0, 0.5, 1.0], "e4m3"), fs.array([1.0, 3.0, 0.75, 0.0], "e4m3")
    found = trace(x, w, accumulate="blackwell", scale_a=of_x, scale_b=of_w)
    groups = found.blocks[0].terms[:4]
    assert [term.scales for term in groups] == [(1.5, 1.0), (2.0, 3.0), (0.5, 0.75), (1.0, 0.0)]  # signs do not count
    sums = (x.values * w.values).reshape(4, 16).sum(axis=1)
    assert [term.unscaled for term in groups] == [*map(Fraction, sums[:3]), None]
    assert found.blocks[0].terms[-1].scales is None
    text = str(found)
    assert f"sum {sums[0]:g}" in text and "2 * 3" in text
    wide = trace(
        fs.array([1.5, 3.0], "e4m3"), fs.array([2.0, 1.0], "e4m3"), accumulate="blackwell",
        scale_a=fs.array([4.0], "e8m0"), scale_b=fs.array([0.5], "e8m0"),
    )  # fmt: skip
    term = wide.blocks[0].terms[0]
    assert (term.factors, term.scales, term.unscaled, term.value) == ((1.5, 2.0), (4.0, 0.5), 3, 6)


def test_a_nan_scale_has_no_unscaled_product():
    one, nan = fs.array([1.0], "e4m3"), fs.from_codes([0xFF], "e8m0")
    term = trace(one, one, accumulate="blackwell", scale_a=nan, scale_b=fs.array([1.0], "e8m0")).blocks[0].terms[0]
    assert math.isnan(term.scales[0]) and math.isnan(term.value) and math.isnan(term.unscaled)
