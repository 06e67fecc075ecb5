"""Conversion losses, compared with the reference."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

import floatsim as fs
from floatsim import reference

X = np.array([1e-9, 1e-6, 1.0, 1e6, 0.0, np.nan, np.inf])  # FP16: zero, subnormal, normal, overflow; three left out


def losses_of_reference(x, fmt, attributes):
    counts = {"flushed": 0, "subnormal": 0, "normal": 0, "overflowed": 0}
    for value in x:
        code, events = reference.round_pack(reference.from_text(float(value).hex()), fmt, attributes)
        result = reference.decode(code, fmt)
        if events & fs.OVERFLOW:
            counts["overflowed"] += 1
        elif result.is_zero:
            counts["flushed"] += 1
        else:
            counts["subnormal" if result.fraction < fmt.smallest_normal else "normal"] += 1
    return fs.ConversionLosses(**{name: n / x.size for name, n in counts.items()})


@pytest.mark.parametrize("ftz", [False, True])
@pytest.mark.parametrize("rounding", [r for r in fs.Rounding if r is not fs.Rounding.STOCHASTIC], ids=lambda r: r.name)
@pytest.mark.parametrize("fmt", [fs.FP16, fs.E4M3, fs.E5M2, fs.E2M1, fs.E4M3FNUZ], ids=str)
def test_losses_equal_the_reference(fmt, rounding, ftz):
    edges = [
        fmt.smallest_subnormal / 2,
        fmt.smallest_subnormal,
        fmt.smallest_normal,
        fmt.max,
        fmt.max * 1.03,
        fmt.max * 1.2,
    ]
    x = np.array([np.nextafter(edge, side) for edge in edges for side in (0, np.inf)] + edges)
    expected = losses_of_reference(x, fmt, reference.RoundingAttributes(rounding=rounding, ftz=ftz))
    assert fs.conversion_losses(x, fmt, rounding=rounding, ftz=ftz) == expected


def test_keywords_win_over_the_context():
    nearest = fs.ConversionLosses(0.25, 0.25, 0.25, 0.25)
    assert fs.conversion_losses(X, "fp16") == nearest
    with fs.context(rounding="toward_positive", overflow="saturate_finite"):
        assert fs.conversion_losses(X, "fp16") == fs.ConversionLosses(0, 0.5, 0.25, 0.25)
        assert fs.conversion_losses(X, "fp16", rounding="ties_to_even") == nearest
    with fs.context(ftz=True):
        assert fs.conversion_losses(X, "fp16") == fs.ConversionLosses(0.5, 0, 0.25, 0.25)
        assert fs.conversion_losses(X, "fp16", ftz=False) == nearest


def test_stochastic_rounding_keeps_some_of_the_small_values():
    x = np.full(4000, fs.FP16.smallest_subnormal / 4)
    assert fs.conversion_losses(x, "fp16").flushed == 1
    losses = fs.conversion_losses(x, "fp16", rounding="stochastic", seed=1)
    assert losses.flushed == pytest.approx(0.75, abs=0.03)
    assert losses.flushed + losses.subnormal == 1


def test_negative_values_overflow_a_format_without_sign():
    assert fs.conversion_losses([-1.0, 2.0], "e8m0") == fs.ConversionLosses(0, 0, 0.5, 0.5)


def test_float_arrays_and_shapes():
    x = fs.array(np.full((2, 2), 1000.0), "bf16")
    assert fs.conversion_losses(x, "e4m3").overflowed == 1


@pytest.mark.parametrize("empty", [[0.0, np.nan], [0.0], [np.inf]])
def test_no_value_is_an_error(empty):
    with pytest.raises(ValueError, match="no finite non-zero number"):
        fs.conversion_losses(empty, "fp16")


@pytest.mark.parametrize("shape", [(0,), (0, 3), (4, 0)])
def test_an_array_without_elements_has_no_shares(shape):
    """Such as the batch of an expert without tokens. It differs from an array of zeros, which is an error."""
    x = np.zeros(shape, np.float32)
    for losses in (
        fs.conversion_losses(x, "e4m3"), fs.conversion_losses(fs.array(x, "fp32"), "bf16"),
        fs.conversion_losses(x, fs.quantize_blocks(x, "int8")),
    ):  # fmt: skip
        assert all(math.isnan(share) for share in dataclasses.astuple(losses))
    ax = fs.plot.conversion_losses({"E4M3": losses})
    assert [text.get_text() for text in ax.texts] == ["no finite non-zero number"]
    histogram = fs.exponent_histogram(x, ["fp16", "e4m3"])
    assert histogram.exponents.size == histogram.numbers.size == 0 and histogram.flushed.shape == (2, 0)
    assert all(math.isnan(losses.normal) for losses in histogram.losses)
    with pytest.raises(ValueError, match="no finite non-zero number"):
        fs.plot.exponent_histogram(x, ["fp16"])
