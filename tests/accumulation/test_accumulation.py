"""Descriptions of sums: their properties, the errors of bad arguments, and their text form."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import floatsim as fs
from floatsim.accumulation import Accumulation, base, fitted, leaves, parse, rounds_stochastically
from floatsim.accumulation import text as text_forms
from floatsim.formats._hashing import IdentityCache
from floatsim.tensorcore.architectures import ARCHITECTURES

FORMATS = st.sampled_from([fs.FP64, fs.FP32, fs.TF32, fs.FP16, fs.BF16, fs.E4M3, fs.E2M1, fs.FloatFormat.ieee(4, 7)])
KEYWORDS = {
    "rounding": st.sampled_from([None, *fs.Rounding]),
    "ftz": st.sampled_from([None, True, False]),
    "daz": st.sampled_from([None, True, False]),
    "overflow": st.sampled_from(fs.Overflow),
}


@st.composite
def product_leaves(draw):
    keywords = {name: draw(values) for name, values in KEYWORDS.items()}
    product = draw(st.one_of(st.just("same"), st.none(), FORMATS))
    keywords["product"] = product
    if product is not None:
        keywords["product_rounding"] = draw(st.sampled_from([None, *fs.Rounding]))
    kind = draw(st.sampled_from([fs.Sequential, fs.Pairwise, fs.Kahan, fs.Neumaier]))
    if kind is fs.Pairwise:
        keywords["tree"] = draw(st.sampled_from(["adjacent", "halving", "numpy"]))
    return kind(draw(FORMATS), **keywords)


LEAVES = st.one_of(product_leaves(), st.builds(fs.Exact, FORMATS, **KEYWORDS))
COUNTS = st.integers(1, 1 << 40)
LISTS = st.lists(COUNTS, min_size=1, max_size=4)
ORDERS = st.one_of(
    st.permutations(range(5)),
    st.sampled_from(["swapped", "reversed", "strided-3", "backwards-4x16", "conv-3x3x64", "conv-1x7x8-descending"]),
)  # fmt: skip
FORMAT_NAMES = st.sampled_from(["fp32", "bf16"])


@st.composite
def trees(draw):
    nodes = list(range(draw(st.integers(1, 9))))
    while len(nodes) > 1:
        at = [draw(st.integers(0, len(nodes) - 1 - i)) for i in range(draw(st.integers(2, min(3, len(nodes)))))]
        nodes.append(tuple(nodes.pop(i) for i in at))
    return fs.Tree(draw(FORMATS), nodes[0], **{name: draw(values) for name, values in KEYWORDS.items()})


@st.composite
def parts(draw, inner):
    lengths = draw(LISTS)
    leaf = st.builds(fs.Sequential, FORMAT_NAMES, st.booleans())
    inners = [fs.Sequential("fp32"), *(draw(leaf) for _ in lengths[1:])]
    return fs.Parts(inners, lengths, draw(inner))


ADDS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(fs.Strided, inner, COUNTS, st.one_of(st.none(), inner)),
        st.builds(fs.Blocked, inner, COUNTS, inner),
        st.builds(fs.SplitK, COUNTS, inner, inner),
    ),
    max_leaves=5,
)
RULES = st.sampled_from(["serial", "parallel", "universal", "dealt"])
DIRECTIONS = st.sampled_from([mode for mode in fs.Rounding if mode is not fs.Rounding.STOCHASTIC])
ORDERED = st.recursive(
    st.one_of(LEAVES, trees()),
    lambda inner: st.one_of(
        st.builds(fs.Blocked, inner, LISTS, inner),
        st.builds(fs.Blocked, inner, COUNTS, inner, st.sampled_from(["equal", "halve"]), COUNTS),
        st.builds(fs.SplitK, COUNTS, inner, inner, COUNTS, RULES),
        st.builds(fs.SplitK, COUNTS, inner, st.just("fp32"), COUNTS, through=st.sampled_from(["fp16", "bf16"])),
        st.builds(fs.Permuted, ORDERS, inner),
        st.builds(fs.Converted, FORMATS, inner, DIRECTIONS),
        st.builds(
            fs.Epilogue,
            inner,
            FORMATS,
            st.sampled_from(["sum", "c"]),
            st.one_of(st.none(), FORMATS),
            st.sampled_from([None, "relu"]),
        ),
        parts(inner),
    ),
    max_leaves=4,
)


@st.composite
def tensor_cores(draw):
    row = draw(st.sampled_from([(a.name, row) for a in ARCHITECTURES.values() for row in a.instructions]))
    arch, instruction = row
    name = draw(st.sampled_from([None, instruction.name]))
    return fs.TensorCore(arch, name, draw(st.sampled_from([None, instruction.output])))


UNITS = tensor_cores()
ANY = st.one_of(
    ADDS, UNITS, st.builds(fs.Blocked, UNITS, COUNTS, ADDS), st.builds(fs.SplitK, COUNTS, UNITS, ADDS),
    st.builds(fs.Residue, UNITS, COUNTS), st.builds(fs.Tf32x3, UNITS), st.builds(fs.Converted, FORMATS, UNITS),
)  # fmt: skip


@settings(deadline=None)
@given(ANY)
def test_the_text_form_and_the_repr_say_everything(accumulation):
    check_the_text_form(accumulation)


@pytest.mark.full
@settings(deadline=None)
@given(ORDERED)
def test_the_text_form_of_orders_and_lengths(accumulation):
    check_the_text_form(accumulation)


def check_the_text_form(accumulation):
    assert parse(str(accumulation)) == accumulation
    assert parse(str(accumulation).upper()) == accumulation
    names = {fmt.name: fmt for fmt in fs.named_formats()}
    assert eval(repr(accumulation), {**names, **{n: getattr(fs, n) for n in _CLASSES}}) == accumulation
    assert hash(parse(str(accumulation))) == hash(accumulation)
    assert pickle.loads(pickle.dumps(accumulation)) == accumulation
    if not fs.accumulation.tensor_cores(accumulation) and not fs.accumulation.has_epilogue(accumulation):
        assert accumulation.result_format == leaves(accumulation)[-1].format


_CLASSES = (
    "Sequential", "Pairwise", "Tree", "Kahan", "Neumaier", "Exact", "Strided", "Blocked", "SplitK", "Parts", "Permuted",
    "TensorCore", "Converted", "Residue", "Tf32x3", "Epilogue",
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "accumulation"),
    [
        ("fp16", fs.Sequential("fp16")),
        (" Sequential( FP16 , fused ) ", fs.Sequential("fp16", fused=True)),
        ("blocked(sequential(fp16), 128, sequential(fp32))", fs.Blocked("fp16", 128, "fp32")),
        ("splitk(4, kahan(bf16), exact(fp32))", fs.SplitK(4, fs.Kahan("bf16"), fs.Exact("fp32"))),
        ("strided(fp16, 32)", fs.Strided("fp16", 32, fs.Pairwise("fp16"))),
        ("pairwise(ieee(4,7), numpy)", fs.Pairwise(fs.FloatFormat.ieee(4, 7), tree="numpy")),
        ("sequential(fp16, ftz, daz=false)", fs.Sequential("fp16", ftz=True, daz=False)),
        ("sequential(fp32, product=none)", fs.Sequential("fp32", fused=True)),
        ("hopper", fs.TensorCore("hopper")),
        (" TensorCore( Blackwell-RTX )", fs.TensorCore("blackwell-rtx")),
        ("tensorcore(hopper, wgmma.k16, output=fp16)", fs.TensorCore("hopper", "wgmma.k16", "fp16")),
        ("tensorcore(ampere, instruction=mma.m16n8k8.tf32)", fs.TensorCore("ampere", "mma.m16n8k8.tf32")),
        ("blocked(tensorcore(hopper), 128, fp32)", fs.Blocked(fs.TensorCore("hopper"), 128, "fp32")),
        (
            "splitk(4, sequential(fp32, fused), fp32, tile=8, dealt)",
            fs.SplitK(4, fs.Sequential("fp32", fused=True), "fp32", 8, "dealt"),
        ),
        ("converted(tf32, hopper)", fs.Converted("tf32", "hopper")),
        ("converted(ieee(4,7), fp32, rounding=toward_zero)", fs.Converted(fs.FloatFormat.ieee(4, 7), "fp32", "RTZ")),
        ("splitk(3, hopper, converted(fp16, fp32), tile=64)", fs.SplitK(3, "hopper", fs.Converted("fp16", "fp32"), 64)),
        ("residue(tensorcore(hopper, output=fp32), 64)", fs.Residue(fs.TensorCore("hopper", output="fp32"), 64)),
        ("blocked(tf32x3(hopper), 32, fp32)", fs.Blocked(fs.Tf32x3("hopper"), 32, "fp32")),
        ("epilogue(hopper, fp32)", fs.Epilogue("hopper")),
        ("epilogue(fp32, fp32, fused=c, through=bf16, relu)", fs.Epilogue("fp32", "fp32", "c", "bf16", "relu")),
    ],
)
def test_written_by_hand(text, accumulation):
    assert parse(text) == accumulation == fs.as_accumulation(text)


def test_descriptions_are_values():
    assert fs.Sequential("fp16", fused=True) == fs.Sequential(fs.FP16, product=None)
    assert fs.Sequential("fp16", product="fp16") == fs.Sequential("fp16") != fs.Sequential("fp16", product="fp32")
    assert fs.Strided("fp16", 4).outer == fs.Pairwise("fp16")
    assert len({fs.Kahan("fp16"), fs.Kahan("fp16"), fs.Kahan("fp16", ftz=False)}) == 2
    with pytest.raises(AttributeError):
        fs.Sequential("fp16").format = fs.FP32
    assert not rounds_stochastically(fs.Blocked("fp16", 2, "fp32"))
    assert rounds_stochastically(fs.Strided(fs.Kahan("fp16", product_rounding="SR"), 2))


def test_formats_are_short_for_sequential():
    import ml_dtypes
    import numpy as np

    for short in ("bf16", fs.BF16, ml_dtypes.bfloat16, np.dtype(ml_dtypes.bfloat16)):
        assert fs.as_accumulation(short) == fs.Sequential(fs.BF16)


@pytest.mark.parametrize(
    ("build", "error", "says"),
    [
        (lambda: fs.Sequential("e8m0"), TypeError, "scale format"),
        (lambda: fs.Sequential("fp16", product="e8m0"), TypeError, "scale format"),
        (lambda: fs.Sequential(3), TypeError, "format must be a format"),
        (lambda: fs.Sequential("fp16", fused=True, product="fp32"), TypeError, "pass either fused=True or product="),
        (lambda: fs.Sequential("fp16", fused="yes"), TypeError, "fused must be True or False"),
        (lambda: fs.Sequential("fp16", product=None, product_rounding="RTZ"), ValueError, "no product_rounding"),
        (lambda: fs.Sequential("fp16", rounding="up"), ValueError, "rounding='up'"),
        (lambda: fs.Pairwise("fp16", tree="halfing"), ValueError, "did you mean 'halving'"),
        (lambda: fs.Blocked("fp16", 0, "fp32"), ValueError, "every must be at least 1, not 0"),
        (lambda: fs.Blocked("fp16", 1.5, "fp32"), TypeError, "every must be an integer"),
        (lambda: fs.Strided("fp16", -1), ValueError, "lanes must be at least 1, not -1"),
        (lambda: fs.SplitK(1 << 70, "fp16", "fp32"), ValueError, "parts must be 1 to 4611686018427387904"),
        (lambda: fs.SplitK(True, "fp16", "fp32"), TypeError, "parts must be an integer"),
        (lambda: fs.SplitK(2, 5, "fp32"), TypeError, "inner must be a description"),
        (lambda: fs.Blocked("fp16", 2, None), TypeError, "outer must be a description"),
        (lambda: fs.as_accumulation(1.5), TypeError, "accumulate must be a description"),
        (lambda: parse("kahn(fp16)"), ValueError, "unknown accumulation 'kahn\\(fp16\\)'"),
        (lambda: parse("sequential(fp16"), ValueError, "not complete"),
        (lambda: parse("pairwise"), ValueError, r"not complete; write pairwise\(format\) or pairwise\(format, tree\)$"),
        (lambda: parse("kahan(fp16, fused)"), ValueError, r": kahan has no 'fused'; write kahan\(format\)$"),
        (lambda: parse("sequential(fp16, halving)"), ValueError, "sequential has no 'halving'; write sequential"),
        (lambda: parse("strided(fused, 4)"), ValueError, "strided has no 'fused'"),
        (lambda: parse("sequential((fp16)"), ValueError, "not closed"),
        (lambda: parse("blocked(fp16, 2)"), ValueError, "missing 1 required positional argument: 'outer'"),
        (lambda: parse("blocked(fp16, 2, fp32, fp16, 1, 3)"), ValueError, "takes from 4 to 6 positional"),
        (lambda: parse("sequential(fp16, fusd=true)"), ValueError, "did you mean 'fused'|unknown argument 'fusd'"),
        (lambda: parse("sequential(fp16,, fused)"), ValueError, "an argument is missing"),
        (lambda: parse("sequential(fp16, ftz, ftz)"), ValueError, "ftz is given twice"),
        (lambda: parse("exact(fp16, fused)"), ValueError, "write exact"),
        (lambda: parse(""), ValueError, "unknown accumulation ''"),
        (lambda: fs.TensorCore("hoper"), ValueError, "did you mean 'hopper'"),
        (lambda: fs.TensorCore("ampere", "wgmma.k16"), ValueError, "hopper has it; there are mma.m16n8k16, "),
        (lambda: fs.TensorCore("hopper", "wgmma.k8.tf32", "fp16"), ValueError, "gives FP32, not FP16"),
        (lambda: fs.TensorCore("volta", output="fp64"), ValueError, "volta gives FP32 and FP16, not FP64"),
        (lambda: fs.TensorCore("hopper", rounding="RNE"), TypeError, "takes no rounding=; only arch, instruction"),
        (lambda: fs.TensorCore("hopper", 16), TypeError, "an instruction is named by a text"),
        (lambda: parse("tensorcore(hopper, rounding=rne)"), ValueError, "unknown argument 'rounding'"),
        (lambda: parse("tensorcore(hopper"), ValueError, "write tensorcore\\(arch\\)"),
        (lambda: fs.Blocked("fp16", 8, "hopper"), TypeError, "outer cannot be tensorcore\\(hopper\\)"),
        (lambda: fs.SplitK(8, "fp16", fs.Blocked("hopper", 8, "fp16")), TypeError, "not results of parts"),
        (lambda: fs.Strided("hopper", 8), TypeError, "take consecutive terms along K, not every `lanes`-th term"),
        (lambda: fs.Blocked("fp16", [], "fp32"), ValueError, "every must have at least one length"),
        (lambda: fs.Blocked("fp16", [2, 0], "fp32"), ValueError, "every must be at least 1, not 0"),
        (lambda: fs.Blocked("fp16", "3", "fp32"), TypeError, "every must be a list of lengths, not '3'"),
        (lambda: fs.Blocked("fp16", [2], "fp32", "equal"), TypeError, "pass neither rule= nor tile="),
        (lambda: fs.Blocked("fp16", 2, "fp32", tile=4), TypeError, "belongs to rule='equal' or 'halve'"),
        (lambda: fs.Blocked("fp16", 2, "fp32", "halv"), ValueError, "did you mean 'halve'"),
        (lambda: fs.SplitK(2, "fp16", "fp32", rule="cereal"), ValueError, "did you mean 'serial'"),
        (lambda: fs.SplitK(2, "fp16", "fp32", 0), ValueError, "tile must be at least 1, not 0"),
        (lambda: fs.SplitK(2, "fp16", "kahan(fp32)", through="fp16"), TypeError, "running sum of a Sequential"),
        (lambda: fs.SplitK(2, "fp16", "fp16", through="bf16"), ValueError, "through=BF16 has numbers that outer's"),
        (lambda: fs.SplitK(2, "fp16", "fp32", through="e8m0"), TypeError, "scale format"),
        (lambda: fs.Permuted([0, 2], "fp16"), ValueError, "each position from 0 to 1 once"),
        (lambda: fs.Permuted([], "fp16"), ValueError, "order must have each position"),
        (lambda: fs.Permuted("reverse", "fp16"), ValueError, "write a list of positions, or 'swapped'"),
        (lambda: fs.Permuted(3, "fp16"), TypeError, "order must be a list of positions"),
        (lambda: fs.Permuted([0.5], "fp16"), TypeError, "order must be an integer"),
        (lambda: parse("permuted(revers, fp16)"), ValueError, "order='revers' is not known"),
        (lambda: parse("blocked(fp16, [1, 2, fp32)"), ValueError, "a bracket is not closed"),
        (lambda: parse("blocked(fp16, 1], fp32)"), ValueError, "a bracket closes that was not opened"),
        (lambda: fs.Permuted("conv-3x3", "fp16"), ValueError, "'conv-RxSxC'"),
        (lambda: fs.Permuted("conv-3x3x0", "fp16"), ValueError, "'conv-RxSxC'"),
        (lambda: fs.Converted("e8m0", "fp32"), TypeError, "scale format"),
        (lambda: fs.Converted("tf32", "hopper", "SR"), ValueError, "has no random draws; name another mode"),
        (lambda: fs.Converted("tf32", 3), TypeError, "inner must be a description"),
        (lambda: fs.Residue("fp32", 64), TypeError, "inner must be a TensorCore, not sequential"),
        (lambda: fs.Residue("hopper", 0), ValueError, "tile must be at least 1, not 0"),
        (lambda: fs.Tf32x3("blocked(hopper, 8, fp32)"), TypeError, "inner must be a TensorCore, not blocked"),
        (lambda: fs.Epilogue("fp32", fused="sums"), ValueError, "fused='sums' is not known; did you mean 'sum'"),
        (
            lambda: fs.Epilogue("fp32", activation="gelu"),
            ValueError,
            "activation='gelu' is not described: it needs the bits of CUDA's own erff",
        ),
        (lambda: parse("epilogue(hopper, fp32, gelu)"), ValueError, "write epilogue"),
        (lambda: fitted(fs.Tf32x3("hopper"), fs.FP16, fs.FP16), ValueError, "splits FP32 operands"),
        (lambda: fs.Parts("fp16", [1], "fp32"), TypeError, "inners must be a list"),
        (lambda: fs.Parts(["fp16"], [1, 2], "fp32"), ValueError, "1 inners and 2 lengths"),
        (lambda: fs.Parts(["fp16", "bf16"], [1, 2], "fp32"), ValueError, "FP16, BF16; none of these"),
        (lambda: fs.Parts(["fp16"], [1], "hopper"), TypeError, "outer cannot be"),
        (lambda: fs.Tree("fp16", ()), ValueError, "a node without terms"),
        (lambda: fs.Tree("fp16", (0, (1, 1))), ValueError, "each of the terms 0 to 2 once; look at 1"),
        (lambda: fs.Tree("fp16", (0, 2)), ValueError, "look at 2"),
        (lambda: fs.Tree("fp16", (0, 1.5)), TypeError, "nested tuples of terms"),
        (lambda: fs.Tree("fp16", (0, True)), TypeError, "nested tuples of terms"),
        (lambda: fs.Tree("fp16", "((0, 1)"), ValueError, "is no tree; write nested terms"),
        (lambda: fs.Tree("fp16", "(0, 1))"), ValueError, "is no tree"),
        (lambda: fs.Tree("fp16", "adjacent"), ValueError, "is no tree"),
        (lambda: parse("tree(fp16, (0, 1), 4)"), ValueError, "product"),
    ],
)
def test_what_they_refuse(build, error, says):
    with pytest.raises(error, match=says):
        build()


def test_equal_descriptions_are_one_object(monkeypatch):
    """Written in two ways, as text, with the word same, copied or pickled; but not with another format's name."""
    monkeypatch.setattr(base, "_EQUAL", {})  # a full one is emptied
    monkeypatch.setattr(base, "_MADE", IdentityCache())
    monkeypatch.setattr(text_forms, "_PARSED", IdentityCache())
    one = fs.Blocked("fp16", 8, fs.Pairwise("fp32", tree="halving"))
    text = "blocked(fp16, 8, pairwise(fp32, halving))"
    assert fs.Blocked(fs.FP16, 8, outer=fs.Pairwise(fs.FP32, "halving")) is one
    assert parse(text) is parse(f" {text} ") is fs.as_accumulation(text) is one
    assert parse("sequential(same, fused)", fs.BF16) is fs.Sequential("bf16", True) is not parse("sequential(bf16)")
    assert parse("same", fs.FP16) is fs.as_accumulation(fs.FP16) is fs.as_accumulation("fp16") is one.inner
    assert replace(one, every=8) is one is not replace(one, every=9)
    for other in copy.deepcopy(one), pickle.loads(pickle.dumps(one)):
        assert other == one
        assert fs.as_accumulation(other) is one
    mine = fs.FloatFormat.ieee(5, 10, "mine")
    assert fs.Sequential(mine) == one.inner
    assert fs.Sequential(mine).format.name == parse("same", mine).format.name == "mine"
    assert fs.as_accumulation(fs.Sequential(mine)).format.name == "mine"
    assert fs.as_accumulation(mine).format.name == "mine"


def test_descriptions_of_arguments_that_can_change():
    """The identity of a list says nothing about its elements."""
    order = [1, 0, 2]
    before = fs.Permuted(order, "fp16")
    order[:] = [2, 1, 0]
    assert fs.Permuted(order, "fp16") == fs.Permuted([2, 1, 0], "fp16") != before
    with pytest.raises(TypeError, match="fused must be True or False"):
        fs.Sequential("fp16", 1)
    assert fs.Sequential("fp16", True).fused
    with pytest.raises(TypeError, match="fused must be True or False"):
        fs.Sequential("fp16", 1)


def test_all_are_accumulations():
    assert all(issubclass(getattr(fs, name), Accumulation) for name in _CLASSES)


def test_what_a_tensor_core_is_for_some_operands():
    hopper = fs.TensorCore("hopper")
    assert fitted(hopper, fs.BF16, fs.BF16) == fs.TensorCore("hopper", "wgmma.k16", "fp32")
    assert fitted(hopper, fs.FP16, fs.FP16) == fs.TensorCore("hopper", "wgmma.k16", "fp32")
    assert fitted(fs.TensorCore("hopper", output="fp16"), fs.FP16, fs.FP16).output == fs.FP16
    assert fitted(hopper, fs.FP64, fs.FP64).result_format == fs.FP64
    assert fitted(fs.SplitK(2, hopper, "fp32"), fs.TF32, fs.TF32).inner.instruction == "wgmma.k8.tf32"
    assert fitted(fs.Sequential("fp16"), fs.BF16, fs.E4M3) == fs.Sequential("fp16")
    assert hopper.result_format == fs.FP32
    with pytest.raises(ValueError, match="does not multiply BF16 by FP16"):
        fitted(fs.Blocked(hopper, 128, "fp32"), fs.BF16, fs.FP16)


def test_equal_descriptions_are_one_object_after_a_table_was_emptied(monkeypatch):
    monkeypatch.setattr(base, "_EQUAL", equal := {})
    base._MADE.clear()
    first = fs.Kahan("fp16")
    equal.update(dict.fromkeys(range(1024)))  # the table is full, and the next description empties it
    fs.Kahan("bf16")
    assert len(equal) == 1
    assert fs.Kahan("fp16") is fs.Kahan(fs.FP16)
    assert fs.Kahan("fp16") == first
