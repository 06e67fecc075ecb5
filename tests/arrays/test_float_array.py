"""FloatArray under NumPy's protocols: operators, ufuncs, shape functions, indexing, saving."""

from __future__ import annotations

import copy
import io
import math
import pickle

import ml_dtypes
import numpy as np
import pytest

import floatsim as fs


@pytest.fixture
def x():
    return fs.array([1.5, 2.5, -3.0], "fp16")


def same(a, b):
    return a.format == b.format and np.array_equal(a.codes, b.codes)


# -- operators and ufuncs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "operation",
    [
        np.add, np.subtract, np.multiply, np.divide, np.fmod, np.remainder, np.minimum, np.maximum, np.fmin, np.fmax,
        np.copysign,
    ],
    ids=lambda f: f.__name__,
)  # fmt: skip
def test_binary_ufuncs_give_float16_s_values(operation):
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(500).astype(np.float16) for _ in range(2))
    got = operation(fs.array(a), fs.array(b))
    assert isinstance(got, fs.FloatArray) and got.format == fs.FP16
    assert np.array_equal(np.asarray(got), operation(a, b))


@pytest.mark.parametrize(
    "operation",
    [np.sqrt, np.rint, np.floor, np.ceil, np.trunc, np.negative, np.absolute, np.positive],
    ids=lambda f: f.__name__,
)
def test_unary_ufuncs_give_float16_s_values(operation):
    a = np.abs(np.random.default_rng(2).standard_normal(500)).astype(np.float16)
    assert np.array_equal(np.asarray(operation(fs.array(a))), operation(a))


def test_remainder_of_every_sign_and_special():
    values = np.float16([0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 5.0, np.inf, -np.inf, np.nan, 65504, -65504])
    a, b = (v.ravel() for v in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        want = np.remainder(a, b)
    got = np.asarray(fs.array(a) % fs.array(b))
    assert np.array_equal(got, want, equal_nan=True)
    number = ~np.isnan(want)
    assert np.array_equal(np.signbit(got[number]), np.signbit(want[number]))


def test_remainder_records_what_its_results_did():
    with fs.record() as log:
        fs.array([1e-3, 60000.0], "fp16") % fs.array([3.0, 65504.0], "fp16")
    assert list(log.counts) == ["encode", "remainder"]
    assert log["remainder"].elements == 2 and log["remainder"].overflow == log["remainder"].inexact == 0


def test_operators_and_python_numbers(x):
    assert (1 / x).tolist() == [float(np.float16(1) / v) for v in np.float16([1.5, 2.5, -3.0])]
    assert (x * 2).tolist() == [3.0, 5.0, -6.0]
    assert (-x).tolist() == [-1.5, -2.5, 3.0]
    assert ((x < 2) == [True, False, True]).all()
    assert same(fs.copysign(1.0, x), fs.array([1.0, 1.0, -1.0], "fp16"))
    x += 1
    assert x.tolist() == [2.5, 3.5, -2.0]


def test_ufuncs_that_are_not_there_say_so(x):
    for wrong in (
        lambda: np.divide.reduce(x),
        lambda: np.add(x, x, where=[True] * 3),
    ):
        with pytest.raises(TypeError):
            wrong()


def test_ufunc_out(x):
    out = fs.array([0.0, 0.0, 0.0], "fp16")
    assert np.add(x, x, out=out) is out
    assert out.tolist() == [3.0, 5.0, -6.0]
    flags = np.zeros(3, bool)
    assert np.isnan(x, out=flags) is flags
    y = fs.array(np.float16([1, 2, 3, 4]))
    np.add(y[:-1], y[1:], out=y[1:])  # overlapping
    assert y.tolist() == [1.0, 3.0, 5.0, 7.0]


def test_truth():
    assert fs.array(0.5, "fp16") and not fs.array(-0.0, "fp16") and fs.array("nan", "e4m3fnuz")
    with pytest.raises(ValueError, match="no one truth value"):
        bool(fs.array([1.0, 2.0], "fp16"))


# -- moving elements ---------------------------------------------------------------------------------------------------


def test_indexing(x):
    assert x[1].item() == 2.5 and x[1].shape == ()
    assert x[::-1].tolist() == [-3.0, 2.5, 1.5]
    x[0] = 0.1
    assert x.codes[0] == fs.encode(0.1, "fp16")
    x[1:] = fs.array([1.0, 2.0], "fp16")
    assert x.tolist()[1:] == [1.0, 2.0]
    with pytest.raises(TypeError, match="value is BF16, but must be FP16"):
        x[0] = fs.array(1.0, "bf16")
    assert [v.item() for v in x][1:] == [1.0, 2.0]


def test_shapes(x):
    y = fs.array(np.arange(6.0).reshape(2, 3), "e5m2")
    assert (y.shape, y.ndim, y.size, len(y), y.nbytes) == ((2, 3), 2, 6, 2, 6)
    assert y.T.shape == np.transpose(y).shape == (3, 2)
    assert y.reshape(3, 2).shape == np.reshape(y, (3, -1)).shape == (3, 2)
    assert y.ravel().shape == y.flatten().shape == (6,)
    assert y[None].squeeze().shape == np.squeeze(y[None]).shape == (2, 3)
    assert np.broadcast_to(x, (4, 3)).shape == np.tile(x, (4, 1)).shape == (4, 3)
    assert np.take(x, [0, 0]).tolist() == np.repeat(x, [2, 0, 0]).tolist() == [1.5, 1.5]
    assert np.roll(x, 1).tolist() == np.flip(np.roll(np.flip(x), -1)).tolist()
    assert [part.tolist() for part in np.split(x, 3)] == [[1.5], [2.5], [-3.0]]
    assert np.shape(y) == (2, 3) and np.ndim(y) == 2 and np.size(y) == 6
    assert np.zeros_like(y).codes.sum() == 0
    with pytest.raises(TypeError, match="E8M0 has no zero"):
        np.zeros_like(fs.array([1.0], "e8m0"))


def test_joining(x):
    assert np.concatenate([x, x]).tolist() == x.tolist() * 2
    assert np.stack([x, x], axis=1).shape == np.column_stack([x, x]).shape == (3, 2)
    assert np.vstack([x, x]).shape == (2, 3) and np.hstack([x, x]).shape == (6,)
    assert np.concatenate([x, np.array([1.0], ">f2")]).tolist() == [1.5, 2.5, -3.0, 1.0]
    assert np.concatenate([x[None], x[None]], axis=1).shape == (1, 6)
    for other in fs.array([1.0], "bf16"), np.array([1, 2], np.uint16), np.array([1.0]), [1.0]:
        with pytest.raises(TypeError):
            np.concatenate([x, other])


def test_where_and_array_equal(x):
    assert np.where(x > 0, x, 0.0).tolist() == [1.5, 2.5, 0.0]
    assert np.where(fs.array([0.0, 1.0], "fp16"), 1, 2).tolist() == [2, 1]
    with pytest.raises(TypeError):
        np.where(x > 0, x, np.zeros(3))
    nan = fs.array([np.nan], "fp16")
    assert np.array_equal(x, x) and not np.array_equal(x, x[:2]) and not np.array_equal(nan, nan)
    assert np.array_equal(nan, nan, equal_nan=True)


# -- to and from NumPy, text and files ---------------------------------------------------------------------------------


def test_asarray(x):
    assert np.asarray(x).dtype == np.float16
    assert np.asarray(x).base is not None  # a view
    assert np.asarray(fs.array([1.0], "bf16")).dtype == ml_dtypes.bfloat16
    assert np.asarray(fs.array([1.2], "tf32")).tolist() == [1.2001953125]
    assert np.array(x, dtype=np.float32).dtype == np.float32
    with pytest.raises(ValueError, match="a copy is needed"):
        np.asarray(fs.array([1.2], "tf32"), copy=False)


def test_shows(x):
    assert repr(x) == "FloatArray([1.5, 2.5, -3.0], FP16)"
    assert "FP16" in x._repr_html_() and "2.5" in x._repr_html_()
    assert fs.FP16.colour in x._repr_html_()


@pytest.mark.parametrize("fmt", [*fs.named_formats(), fs.FloatFormat("mine", 4, 5, "fnuz", 6)], ids=str)
def test_save_and_load(fmt, tmp_path):
    codes = np.arange(min(1 << fmt.bits, 300)).astype(fmt.code_dtype).reshape(-1, 2)
    array = fs.from_codes(codes, fmt)
    fs.save(tmp_path / "a", array)
    loaded = fs.load(tmp_path / "a.npz")
    assert same(loaded, array) and loaded.format.name == fmt.name
    if fmt.dtype is not None:
        file = io.BytesIO()
        fs.save(file, codes.view(fmt.dtype))
        file.seek(0)
        assert same(fs.load(file), array)


def test_load_refuses_other_files(tmp_path):
    np.savez(tmp_path / "b.npz", a=[1])
    (tmp_path / "c.npz").write_text("nothing")
    for name in "b.npz", "c.npz":
        with pytest.raises(ValueError, match=r"was not written by fs\.save"):
            fs.load(tmp_path / name)


def test_load_of_a_damaged_file():
    """Every truncation and every changed byte gives the array or a ValueError."""
    file = io.BytesIO()
    fs.save(file, fs.array([1.5, -2.0], "e5m2"))
    whole = file.getvalue()
    damaged = [whole[:n] for n in range(len(whole))]
    places = ((n, mask) for n in range(len(whole)) for mask in (1, 64, 255))
    damaged += [whole[:n] + bytes([whole[n] ^ mask]) + whole[n + 1 :] for n, mask in places]
    refused = 0
    for contents in damaged:
        try:
            assert fs.load(io.BytesIO(contents)).tolist() == [1.5, -2.0]
        except ValueError:
            refused += 1
    assert refused > len(damaged) / 2


def test_copies(x):
    for other in pickle.loads(pickle.dumps(x)), copy.deepcopy(x), x.copy(), x.astype("fp32").astype("fp16"):
        assert same(other, x) and other is not x


def test_codes_in_lists_are_exact():
    assert fs.decode([0x3FF0000000000000, 0xBFF0000000000000], "fp64").tolist() == [1.0, -1.0]
    assert fs.from_codes(2**64 - 1, "fp64").codes == 2**64 - 1
    with pytest.raises(ValueError, match="does not fit"):
        fs.from_codes([0, 1 << 19], "tf32")


def test_keywords_that_do_not_matter_are_accepted(x):
    for function in fs.negative, fs.absolute, fs.next_up, fs.next_down, fs.logb:
        assert np.array_equal(function(x, rounding="SR", ftz=True), function(x))
        assert function(x, return_flags=True)[1].tolist() == [0, 0, 0]
    assert fs.less(x, x, rounding="RTZ", return_flags=True)[1].tolist() == [0, 0, 0]
    with pytest.raises(TypeError, match="unknown keyword"):
        fs.negative(x, rnd="RTZ")


@pytest.mark.parametrize("n", [3, np.uint8([3]), np.int64(3), [3], 3 * np.ones(1, np.uint64)])
def test_scalb_takes_any_integers(n):
    assert np.ravel(fs.scalb(fs.array([1.0], "fp16"), n).values)[0] == 8.0


def test_scalb_of_far_exponents():
    one = fs.array([1.0], "fp16")
    assert fs.scalb(one, 2**70).item() == np.inf and fs.scalb(one, -(2**70)).item() == 0.0
    with pytest.raises(TypeError, match="n must be integers"):
        fs.scalb(one, 1.5)


@pytest.mark.parametrize("name", ["e4m3", "e5m2", "e4m3fnuz", "e2m1", "fp16", "bf16"])
def test_nextafter(name):
    """Every 8-bit number, towards every number; samples of wider formats; NumPy's function where it has the format."""
    fmt = fs.as_format(name)
    codes = np.arange(2**fmt.bits) if fmt.bits <= 8 else np.random.default_rng(0).integers(0, 2**16, 300)
    x = fs.from_codes(codes.astype(fmt.code_dtype), fmt)
    a, b = np.repeat(codes, codes.size), np.tile(codes, codes.size)
    a, b = (fs.from_codes(each.astype(fmt.code_dtype), fmt) for each in (a, b))
    found = fs.nextafter(a, b)
    up, down = fs.next_up(a), fs.next_down(a)
    below, above = a.values < b.values, a.values > b.values
    assert np.array_equal(found.codes[below], up.codes[below]) and np.array_equal(found.codes[above], down.codes[above])
    equal = a.values == b.values
    assert np.array_equal(found.codes[equal], b.codes[equal])
    either = np.isnan(a.values) | np.isnan(b.values)
    assert np.array_equal(np.isnan(found.values)[~fs.isinf(found)], (either | np.isnan(up.values) & below
                          | np.isnan(down.values) & above)[~fs.isinf(found)])  # fmt: skip
    if name == "fp16":
        numbers = ~np.isnan(a.values) & ~np.isnan(b.values)
        expected = np.nextafter(np.asarray(a)[numbers], np.asarray(b)[numbers])
        assert np.array_equal(expected.view(np.uint16), found.codes[numbers])
    assert np.array_equal(np.nextafter(x, x).codes[~fs.isnan(x)], x.codes[~fs.isnan(x)])


def test_nextafter_compares_exact_directions():
    """The direction is not rounded: 500 and infinity are beyond E4M3, and 1.001 is no number of it."""
    x = fs.array([1.0, 1.0, 1.0, -1.0], "e4m3")
    assert fs.nextafter(x, [1.001, 500.0, math.inf, -math.inf]).tolist() == [1.125, 1.125, 1.125, -1.125]
    assert fs.nextafter(x[0], 1.0).item() == 1.0 and fs.nextafter(np.float16(1), np.float64(0)).dtype == np.float16
    assert fs.nextafter(fs.array([[1.0], [2.0]], "fp16"), fs.array([3.0, 0.0], "bf16")).shape == (2, 2)
    flags = fs.nextafter(fs.from_codes([0x7C01, 0x7BFF], "fp16"), math.inf, return_flags=True)[1]
    assert flags.tolist() == [fs.INVALID, 0]
    assert math.copysign(1, fs.nextafter(fs.array(0.0, "fp16"), -0.0).item()) == -1
    out = fs.array([0.0], "fp16")
    assert fs.nextafter(fs.array([1.0], "fp16"), [2.0], out=out) is out and out.tolist() == [1.0009765625]
    tiny = fs.array([2.0**-24], "fp16")
    assert fs.nextafter(tiny, 0.0, daz=True).tolist() == [0.0]
