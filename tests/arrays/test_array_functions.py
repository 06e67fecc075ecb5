"""NumPy's functions on FloatArrays: equal to NumPy on float16, or on the float64 values, for every format."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from fractions import Fraction
from multiprocessing import get_context

import ml_dtypes
import numpy as np
import pytest

import floatsim as fs

FORMATS = [fs.FP64, fs.FP32, fs.FP16, fs.BF16, fs.E4M3, fs.E5M2, fs.E4M3FNUZ, fs.E2M1, fs.E8M0,
           fs.FloatFormat("mine", 4, 5, "fnuz", 6), fs.FloatFormat("full", 5, 2, "finite")]  # fmt: skip


def sample(fmt, shape=(6, 20), nan=True):
    codes = np.random.default_rng(7).integers(0, 1 << min(fmt.bits, 63), shape).astype(fmt.code_dtype)
    if not nan and fmt.has_nan:
        codes[np.isnan(fs.decode(codes, fmt))] = fs.encode(1.0, fmt)
    if fmt.has_signed_zero:
        codes[0, :4] = [fmt.sign_mask, 0, fmt.sign_mask, 0]
    return fs.from_codes(codes, fmt)


def same(a, b):
    """Equal values: NaN equals NaN, and -0 differs from +0."""
    with np.errstate(invalid="ignore"):  # NumPy's casts of signalling NaN, on Arm
        a, b = (np.asarray(v.values if isinstance(v, fs.FloatArray) else v, np.float64) for v in (a, b))
    number = ~np.isnan(a)
    return np.array_equal(a, b, equal_nan=True) and np.array_equal(np.signbit(a)[number], np.signbit(b)[number])


# -- extremes and order ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nan", [False, True])
@pytest.mark.parametrize("fmt", FORMATS, ids=str)
def test_extremes_and_order_are_those_of_the_values(fmt, nan):
    x = sample(fmt, nan=nan)
    v = x.values
    for axis in None, 0, 1, -1, (0, 1):
        for function in np.max, np.min, np.amax, np.amin:
            for keepdims in False, True:
                got = function(x, axis=axis, keepdims=keepdims)
                assert got.format == fmt and np.array_equal(
                    got, function(v, axis=axis, keepdims=keepdims), equal_nan=True
                )
        if not isinstance(axis, tuple):
            for function in np.argmax, np.argmin:
                assert np.array_equal(function(x, axis=axis), function(v, axis=axis))
            assert np.array_equal(np.argsort(x, axis=axis), np.argsort(v, axis=axis, kind="stable"))
            assert same(np.sort(x, axis=axis), np.sort(v, axis=axis, kind="stable"))
    assert np.array_equal(np.searchsorted(np.sort(x.ravel()), x), np.searchsorted(np.sort(v.ravel()), v))
    assert np.array_equal(np.max(x, initial=x[0, 0], where=v != v[3, 3]).values,
                          np.max(v, initial=v[0, 0], where=v != v[3, 3]), equal_nan=True)  # fmt: skip


def test_extremes_of_zeros_and_nan():
    x = fs.array([[-0.0, 0.0], [0.0, -0.0], [np.nan, 1.0]], "fp16")
    assert np.signbit(np.max(x[:2], axis=1).values).tolist() == [False, False]
    assert np.signbit(np.min(x[:2], axis=1).values).tolist() == [True, True]
    assert np.isnan(np.max(x).values) and np.nanmax(x).item() == 1.0 and np.nanmin(x[2:]).item() == 1.0
    assert np.maximum.reduce(x).tolist()[1] == 1.0 and np.fmax.reduce(x).tolist() == [0.0, 1.0]
    assert np.argmax(x) == np.argmin(x) == 4 and np.nanargmax(x) == 5
    signed_nan = fs.from_codes([0xFE01, 0x3C00], "fp16")  # arithmetic returns the canonical NaN
    assert np.max(signed_nan).codes == np.min(signed_nan).codes == fs.FP16.canonical_nan
    fnuz = fs.from_codes([0x80, 0x01, 0x81], "e4m3fnuz")
    assert np.isnan(np.max(fnuz).values) and np.nanmin(fnuz).codes == 0x81
    assert np.argsort(fnuz).tolist() == [2, 1, 0]
    with pytest.raises(ValueError, match=r"np\.max of no elements needs initial="):
        np.max(x[:0])
    assert np.max(x[:0], initial=2.0).item() == 2.0
    out = fs.array(np.zeros(2), "fp16")
    assert np.max(x[:2], axis=0, out=out) is out and out.tolist() == [0.0, 0.0]
    assert np.ptp(fs.array([1.0, 5.5], "e4m3")).item() == 4.5
    assert x.max().format is x.min().format is fs.FP16 and x[:2].argmax() == x[:2].argmin() == 0


@pytest.mark.parametrize("fmt", fs.named_formats(), ids=str)
def test_extremes_by_codes_equal_those_by_values(fmt):
    """A mask of True selects the search by values."""
    if fmt.is_scale:
        pytest.skip("a scale format has no order of values")
    codes = np.random.default_rng(1).integers(0, 1 << min(fmt.bits, 63), (200, 5), dtype=np.uint64)
    x = fs.from_codes(codes.astype(fmt.code_dtype), fmt)
    everywhere = np.ones(x.shape, np.bool_)
    for function in np.max, np.min:
        for axis in (0, 1, None):
            expected = function(x, axis=axis, keepdims=True, where=everywhere)
            assert np.array_equal(function(x, axis=axis, keepdims=True).codes, expected.codes)


def test_sort_keeps_the_codes_of_equal_elements_in_order():
    x = fs.from_codes([0x7E01, 0x8000, 0x0000, 0xFE02, 0x8000, 0xBC00], "fp16")
    assert [hex(c) for c in np.sort(x).codes] == ["0xbc00", "0x8000", "0x0", "0x8000", "0x7e01", "0xfe02"]
    assert x.argsort().tolist() == [5, 1, 2, 4, 0, 3]


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
def test_unique(fmt):
    x = sample(fmt)
    for options in ({}, {"return_index": True}, {"return_inverse": True, "return_counts": True}, {"equal_nan": False}):
        got, want = np.unique(x, **options), np.unique(x.values, **options)
        got, want = ((v if isinstance(v, tuple) else (v,)) for v in (got, want))
        assert len(got) == len(want)
        assert np.array_equal(got[0].values, want[0], equal_nan=True)
        assert all(map(np.array_equal, got[1:], want[1:]))
    rows = fs.array([[1, 2], [1, 2], [0, 1]], "e4m3")
    assert np.unique(rows, axis=0).tolist() == [[0, 1], [1, 2]]


# -- comparisons and counts --------------------------------------------------------------------------------------------


def test_comparisons_are_exact():
    x = fs.array([1.0, np.nan, 448.0, 0.1], "e4m3")
    assert np.isclose(x, [1.0, np.nan, 448.4, 0.1]).tolist() == [True, False, False, False]
    assert np.isclose(x, x, equal_nan=True).all() and not np.allclose(x, x)
    assert np.allclose(x[:1], x[:1].astype("fp32"), rtol=0, atol=0)
    assert np.isclose(x, np.array([1, 2, 448, 0.1], ml_dtypes.float8_e4m3fn)).tolist() == [True, False, True, True]
    assert np.isin(x, [448.0, 0.1]).tolist() == [False, False, True, False]
    assert np.count_nonzero(x) == 4 and np.nonzero(x > 1)[0].tolist() == [2]
    assert np.digitize(x[[0, 3]], fs.array([0.5, 1.0], "fp16")).tolist() == [2, 0]
    assert np.any(x) and x.any() and np.all(x) and not np.all(fs.array([0.0, 1.0], "e4m3"))
    assert np.where(x)[0].tolist() == [0, 1, 2, 3]


def test_texts_and_kinds():
    x = fs.array([0.1, 2.0], "e4m3")
    assert np.array_repr(x) == repr(x) and np.array2string(x) == "[0.1015625 2.       ]"
    assert not np.iscomplexobj(x) and np.isrealobj(x)
    assert np.logical_not(fs.array([0.0, -0.0, np.nan], "fp16")).tolist() == [True, True, False]


def test_histogram():
    x = sample(fs.BF16, nan=False)
    x = x[np.abs(x.values) < 1e3]
    for bins in 5, "sturges", [-1.0, 0.0, 1.0], fs.array([-1.0, 0.0, 1.0], "fp16"):
        counts, edges = np.histogram(x, bins)
        want = np.histogram(x.values, bins.values if isinstance(bins, fs.FloatArray) else bins)
        assert np.array_equal(counts, want[0]) and np.array_equal(edges, want[1]) and edges.dtype == np.float64
    with pytest.raises(TypeError, match=r"weights=w\.values"):
        np.histogram(x, weights=x)


# -- functions that move elements --------------------------------------------------------------------------------------


def test_moving_functions_are_numpy_s_on_the_codes():
    x = sample(fs.E5M2)
    places = np.argsort(x.codes, axis=1)
    for call in (
        lambda a: np.take_along_axis(a, places, 1), lambda a: np.delete(a, [1, 2], 1), np.tril,
        lambda a: np.triu(a, 1), np.diag, np.flipud, lambda a: np.pad(a, 2, "reflect"),
        lambda a: np.pad(a, ((1, 0), (0, 2))), lambda a: np.compress([True, False, True], a, axis=0),
        lambda a: np.extract(places > 3, a), lambda a: np.resize(a, (3, 3)), lambda a: np.append(a, a, axis=0),
        lambda a: np.broadcast_arrays(a, a[:1])[1], lambda a: np.array_split(a, 4)[1],
        lambda a: np.insert(a, 1, a[0], 0),
        lambda a: np.select([places > 5, places > 3], [a, a[:1]], a[0, 0]),
    ):  # fmt: skip
        got = call(x)
        assert isinstance(got, fs.FloatArray) and got.format == fs.E5M2
        assert np.array_equal(got.codes, call(x.codes))


def test_functions_that_write():
    x = fs.array(np.zeros((2, 2)), "fp16")
    np.put_along_axis(x, np.array([[0], [1]]), 1.5, 1)
    assert x.tolist() == [[1.5, 0.0], [0.0, 1.5]]
    np.copyto(x, fs.array([2.0, 3.0], "fp16"), where=[True, False])
    assert x.tolist() == [[2.0, 0.0], [2.0, 1.5]]
    assert np.full_like(x, 0.1).tolist() == [[fs.quantize(0.1, "fp16")] * 2] * 2
    assert np.ones_like(x).tolist() == [[1.0, 1.0]] * 2
    assert np.nan_to_num(fs.array([np.nan, np.inf, -np.inf, 1], "fp16")).tolist() == [0.0, 65504.0, -65504.0, 1.0]
    with pytest.raises(TypeError, match="values is BF16, but must be FP16"):
        np.put_along_axis(x, np.array([[0], [1]]), fs.array(1.0, "bf16"), 1)


# -- functions that round ----------------------------------------------------------------------------------------------


def test_clip():
    x = sample(fs.FP16)
    v = np.asarray(x)
    for low, high in (-1.0, 2.0), (None, 0.5), (0.25, None):
        assert same(np.clip(x, low, high), np.clip(v, low, high))
    assert same(np.clip(x, x[0], x[1]), np.clip(v, v[0], v[1]))
    assert same(x.clip(-1, 1), np.clip(v, -1, 1)) and same(x.clip(max=1), np.clip(v, None, 1))
    assert np.clip(fs.array([448.0, 1.0], "e4m3"), -1e9, 1e9).tolist() == [448.0, 1.0]
    assert np.clip(fs.array([np.inf], "fp16"), None, 1e9).tolist() == [65504.0]
    assert np.clip(fs.array([np.inf], "fp16"), None, np.inf).tolist() == [np.inf]


def test_round_to_decimals_is_exact():
    x = fs.from_codes(np.arange(0, 1 << 16, 31, dtype=np.uint16), "fp16")
    for decimals in -2, 0, 1, 3:
        got = np.round(x, decimals).values
        assert np.array_equal(np.round(x, decimals).values, x.round(decimals).values, equal_nan=True)
        for i in np.random.default_rng(decimals + 5).integers(0, x.size, 200):
            v = x.values[i]
            if np.isfinite(v):
                want = fs.quantize(float(round(Fraction(v), decimals)), "fp16") if decimals <= 0 else None
                exact = fs.decode(fs.encode(round(Fraction(v), decimals), "fp16"), "fp16")
                assert got[i] == exact and np.signbit(got[i]) == np.signbit(v)
                assert want is None or want == exact
            else:
                assert same(got[i], v)
    with np.errstate(invalid="ignore"):
        assert same(np.round(x), np.round(np.asarray(x)))
    assert np.array_equal(np.round(fs.from_codes([0xFE01], "fp16"), 1).codes, [0xFE01])


def test_differences_and_products():
    x = fs.array([1.0, 4.0, 9.5, 200.0], "e4m3")
    assert np.diff(x).tolist() == fs.subtract(x[1:], x[:-1]).tolist()
    assert np.diff(x[None], n=2, axis=1).shape == (1, 2)
    assert np.square(x).codes.tolist() == fs.multiply(x, x).codes.tolist()
    assert np.reciprocal(x).codes.tolist() == fs.divide(1, x).codes.tolist()
    assert np.outer(x, x).codes.tolist() == fs.multiply(x[:, None], x[None]).codes.tolist()
    assert np.trace(np.outer(x, x)).codes == fs.sum(fs.multiply(x, x), format="e4m3").codes


EINSUMS = [
    "ij,jk->ik", "ij,jk", "bij,bjk->bik", "bij,bkj->kbi", "ij,ij->", "i,j->ji", "ij,ij->ij", "ii,ij->j", "ijk,k->ij",
    "...ij,...jk->...ik", "...i,i", "ab,cd->", "ij->", "ij->ji", "ii", "ii->i", "ijk->k", "i...->...", "ij,j->i",
]  # fmt: skip


@pytest.mark.parametrize("subscripts", EINSUMS)
def test_einsum_of_exact_sums_is_numpy_s(subscripts):
    """Small integers: no rounding happens, so every order gives NumPy's result."""
    rng = np.random.default_rng(3)
    inputs = subscripts.partition("->")[0].split(",")
    arrays = [rng.integers(-3, 4, (2,) * text.count("...") + (3,) * len(text.replace("...", ""))) for text in inputs]
    arrays = [x.astype(np.float32) for x in arrays]
    want = np.einsum(subscripts, *arrays)
    assert np.array_equal(fs.einsum(subscripts, *arrays, accumulate="fp32"), want)
    got = np.einsum(subscripts, *(fs.array(x, "bf16") for x in arrays))
    assert got.format == fs.BF16 and np.array_equal(got.values, fs.quantize(want, "bf16"))
    assert fs.einsum(subscripts, *(fs.array(x, "bf16") for x in arrays), format="fp32").format == fs.FP32


def test_einsum_adds_in_the_order_of_the_subscripts():
    rng = np.random.default_rng(4)
    a, b = (rng.standard_normal((4, 5, 6)).astype(np.float16) for _ in range(2))
    got = fs.einsum("ijk,ljk->il", a, b, accumulate="fp16")
    assert np.array_equal(got, fs.matmul(a.reshape(4, 30), b.reshape(4, 30).T, accumulate="fp16"))
    got = fs.einsum("ijk,lkj->il", a, b.transpose(0, 2, 1), accumulate="kahan(fp16)")
    assert np.array_equal(got, fs.matmul(a.reshape(4, 30), b.reshape(4, 30).T, accumulate="kahan(fp16)"))
    out = np.empty((4, 4), np.float16)
    assert fs.einsum("ijk,ljk->il", a, b, accumulate="fp16", out=out) is out
    assert np.array_equal(fs.einsum("ijk->i", a, accumulate="fp16"), fs.sum(a, (1, 2), accumulate="fp16"))
    x, y = fs.array(a), fs.array(b)
    assert np.array_equal(np.inner(x[0], y[0]), fs.matmul(x[0], y[0].T, format="fp16"))
    assert np.array_equal(np.tensordot(x, y, ((1, 2), (1, 2))), np.einsum("ijk,ljk->il", x, y))


def test_einsum_refuses():
    x = np.ones((3, 3), np.float16)
    for subscripts, operands, options, text in (
        ("ij,jk,kl->il", (x, x, x), {}, "one or two operands, not 3"),
        ("ij,jk->ik", (x, x), {"c": x}, r"does not take c; use fs\.matmul"),
        ([0, 1], (x,), {}, "must be a text"),
    ):
        with pytest.raises(TypeError, match=text):
            fs.einsum(subscripts, *operands, **options)
    for subscripts, operands, text in (
        ("ij,jk->iz", (x, x), "names an index twice, or one that no operand has"),
        ("ijk,jk->i", (x, x), "do not fit operand 1"),
        ("ij,jk", (x,), "name 2 operands"),
        ("ij,jk->ik", (x, x[:2]), "index 'j' has the sizes 3 and 2"),
    ):
        with pytest.raises(ValueError, match=text):
            fs.einsum(subscripts, *operands)


# -- one element -------------------------------------------------------------------------------------------------------


def test_one_element():
    x = fs.array(2.71828, "fp16")
    for one in x, x.reshape(1), x.reshape(1, 1):
        assert float(one) == 2.71875 and int(one) == 2 and bool(one) and format(one, ".3f") == "2.719"
        assert round(one) == 3 and isinstance(round(one), int)
        assert round(one, 1).values.ravel().tolist() == [fs.quantize(2.7, "fp16")]
    assert f"{x:8.2f}" == "    2.72" and f"{x}" == str(x)
    two = fs.array([1.0, 2.0], "fp16")
    assert f"{two}" == str(two)
    with pytest.raises(TypeError, match=r"format '\.2f' is for one number"):
        f"{two:.2f}"
    for function in float, int, round:
        with pytest.raises(ValueError, match=r"shape \(2,\) is not one number"):
            function(two)


def test_functions_without_a_meaning_name_one_that_has():
    x = fs.array([[1.0, 2.0], [3.0, 4.0]], "fp16")
    for call, text in (
        (lambda: np.std(x), r"np\.std does not take FloatArrays; use fs\.sqrt\(fs\.var\(x\)\)"),
        (lambda: np.sinc(x), r"np\.sinc\(x\.values\) computes in float64"),
        (lambda: np.float_power(x, 2), r"use fs\.power"),
        (lambda: np.nansum(x), r"fs\.sum\(x, where=~fs\.isnan\(x\)\)"),
        (lambda: np.linalg.inv(x), r"np\.linalg\.inv\(x\.values\)"),
        (lambda: np.spacing(x), r"use fs\.ulp"),
        (lambda: np.add(x, x, where=[True, False]), r"np\.add of FloatArrays takes no where"),
        (lambda: np.add.at(x, 0, 1), r"np\.add\.at"),
    ):
        with pytest.raises(TypeError, match=text):
            call()


def test_operators_of_other_classes_still_win():
    class Other:
        __array_ufunc__ = None

        def __radd__(self, x):
            return "other"

    assert fs.array([1.0], "fp16") + Other() == "other"


# -- copies and processes ----------------------------------------------------------------------------------------------

OBJECTS = [
    fs.array([1.5, -0.0], "e4m3"), fs.FP16, fs.FloatFormat("mine", 4, 5, "fnuz", 6),
    fs.as_accumulation("blocked(hopper, 128, kahan(bf16))"),
    fs.Sequential("bf16", overflow="saturate_finite", rounding="toward_zero"),
    fs.as_accumulation("splitk(3, strided(pairwise(fp16), 4), exact(fp32))"),
    fs.RandomStream(3), fs.Rounding.TO_ODD, fs.Specials.FNUZ, fs.Context(),
]  # fmt: skip


def described(x):
    if isinstance(x, fs.FloatArray):
        return x.format, x.format.name, x.codes.tolist()
    return (x.seed, x.calls) if isinstance(x, fs.RandomStream) else (x, repr(x))


@pytest.mark.parametrize("x", OBJECTS, ids=lambda x: type(x).__name__)
def test_pickle_and_copies(x):
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert described(pickle.loads(pickle.dumps(x, protocol))) == described(x)
    assert described(copy.copy(x)) == described(copy.deepcopy(x)) == described(x)


def test_copies_of_arrays_and_streams_are_independent():
    x = fs.array([1.0, 2.0], "fp16")
    y = copy.deepcopy(x)
    y[0] = 5
    assert x.tolist() == [1.0, 2.0]
    stream = fs.RandomStream(5)
    stream.next_seed()
    other = copy.copy(stream)
    assert [stream.next_seed() for _ in range(3)] == [other.next_seed() for _ in range(3)]
    assert stream.calls == other.calls == 4


def hashes_and_draws(objects):
    accumulation, fmt, stream, x = objects
    table = {fs.as_accumulation("blocked(hopper, 128, kahan(bf16))"): 1, fs.FP16: 2}
    return table[accumulation], table[fmt], stream.next_seed(), fs.convert(x, "fp32").tolist()


def test_objects_in_other_processes():
    """A new process has another hash seed."""
    stream = fs.RandomStream(9)
    objects = fs.as_accumulation("blocked(hopper, 128, kahan(bf16))"), fs.FP16, stream, fs.array([1.5], "e4m3")
    hash(objects[0]), hash(objects[1])
    with get_context("spawn").Pool(1) as pool:
        found = pool.apply(hashes_and_draws, (objects,))
    assert found == (1, 2, fs.RandomStream(9).next_seed(), [1.5])
    assert stream.calls == 0


def test_import_of_the_array_functions_is_lazy():
    code = "import floatsim as fs, sys; fs.array; assert 'floatsim.arrays.array_functions' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})


def test_extremes_of_arrays_without_elements():
    empty = fs.array(np.zeros((0, 3)), "fp16")
    assert np.max(empty, axis=-1).shape == (0,)
    assert np.min(empty, axis=1, keepdims=True).shape == (0, 1)
    assert fs.operators.softmax(empty).shape == (0, 3)
    with pytest.raises(ValueError, match="no elements needs initial="):
        np.max(empty)
