"""Codes to hardware floats and back: every code of the small formats, the hard ones of the others."""

from __future__ import annotations

import numpy as np
import pytest

import floatsim as fs
from floatsim.emulator import backend as emulator
from floatsim.emulator.unpack import pack, unpack
from floatsim.formats.call import CallOptions
from floatsim.formats.rounding import RoundingAttributes

CUSTOM = [fs.FloatFormat.ieee(6, 9), fs.FloatFormat.ieee(8, 17), fs.FloatFormat("fnuz(5,5)", 5, 5, "fnuz")]
CUSTOM += [fs.FloatFormat("far", 4, 3, bias=130), fs.FloatFormat("near", 4, 3, bias=-2), fs.FloatFormat.ieee(9, 5)]
FORMATS = [fmt for fmt in (*fs.named_formats(), *CUSTOM) if not fmt.is_scale]


@pytest.mark.parametrize("carrier", [fs.FP32, fs.FP64], ids=str)
@pytest.mark.parametrize("fmt", FORMATS, ids=str)
def test_there_and_back(fmt, carrier):
    if fmt.precision > carrier.precision or fmt.emax > carrier.emax or fmt.emin < carrier.emin - carrier.trailing_bits:
        return
    if fmt.emin - fmt.trailing_bits < carrier.emin - carrier.trailing_bits:
        return
    if fmt.bits <= 16:
        codes = fmt.codes()
    else:
        rng = np.random.default_rng(0)
        codes = rng.integers(0, 2**fmt.bits - 1, 1 << 16, dtype=np.uint64, endpoint=True)
        edges = [(k + d) % (1 << fmt.bits) for k in (0, fmt.max_code, fmt.sign_mask) for d in range(-3, 4)]
        codes = np.concatenate([codes, np.array(edges, np.uint64)]).astype(fmt.code_dtype)
    values = unpack(codes.reshape(-1, 1)[::-1], fmt, carrier)
    assert values.dtype == carrier.dtype and values.flags.c_contiguous
    exact = CallOptions(RoundingAttributes())
    want = emulator.convert(codes[::-1], fmt, carrier, exact)[0].view(carrier.dtype)
    nan = np.isnan(want)
    assert np.array_equal(np.isnan(values.ravel()), nan)
    assert np.array_equal(values.ravel()[~nan].view(carrier.code_dtype), want[~nan].view(carrier.code_dtype))
    back = pack(values, carrier, fmt).ravel()
    canonical = emulator.convert(codes[::-1], fmt, fmt, exact)[0]
    assert np.array_equal(back, canonical)
    if fmt.has_nan:
        negative_nan = np.array([np.nan, -np.nan], carrier.dtype)
        assert set(pack(negative_nan, carrier, fmt).tolist()) == {fmt.canonical_nan}
