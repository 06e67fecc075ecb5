"""`fs.quantize_blocks` compared with stored tensors of published packages, bit for bit.

tests/testing/quantizer_vectors.py makes them, and has their versions. test_quantizer_packages.py compares more values,
where the packages are installed.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import floatsim as fs
from floatsim.quantization import SCHEMES, Scheme
from tests.testing.quantizer_vectors import FILE, tensor

SCHEME_OF = {
    "compressed-tensors: int8, channels": (1, Scheme("int8", "row", rule="full_range"), None),
    "compressed-tensors: int4, groups, packed": (2, Scheme("int4", 128, rule="full_range"), "compressed-tensors"),
    "compressed-tensors: fp8, channels": (5, Scheme("e4m3", "row"), None),
    "compressed-tensors: mxfp4": (6, replace(SCHEMES["mxfp4"], rule="even"), "low-nibble-first"),
    **{
        f"torchao: {name}, {rule.upper()}": (seed, replace(SCHEMES[name], rule=rule), layout)
        for name, seed, layout in (("mxfp4", 11, "low-nibble-first"), ("mxfp8", 12, None))
        for rule in ("floor", "rceil", "ceil", "even")
    },
    "torchao: nvfp4, two levels": (13, SCHEMES["nvfp4_torchao"], "low-nibble-first"),
    "torchao: nvfp4, one level": (13, SCHEMES["nvfp4_single"], "low-nibble-first"),
    "torchao: symmetric -128 to 127": (14, Scheme("int8", 128, rule="full_range", factor="reciprocal"), None),
    "torchao: asymmetric 0 to 15": (15, Scheme("uint4", 128, rule="asymmetric", factor="reciprocal"), None),
    "torchao: symmetric_no_clipping_err -8 to 7": (
        16, Scheme("int4", 128, rule="no_clipping", factor="reciprocal"), None
    ),
    "bitsandbytes: nf4": (21, SCHEMES["nf4"], "high-nibble-first"),
}  # fmt: skip


@pytest.mark.parametrize("case", SCHEME_OF)
def test_stored_tensors_of_packages(case):
    seed, scheme, layout = SCHEME_OF[case]
    with np.load(FILE) as file:
        codes, scales = file[f"{case}/codes"], file[f"{case}/scales"]
        zeros = file[f"{case}/zero_points"] if f"{case}/zero_points" in file.files else None
        whole = file[f"{case}/tensor_scale"] if f"{case}/tensor_scale" in file.files else None
    x = tensor(seed)
    q = fs.quantize_blocks(x, scheme)
    if layout is not None:
        shape = x.shape if codes.shape[0] == x.shape[0] else (x.size,)
        codes = fs.unpack(codes if len(shape) == 2 else codes.reshape(-1), layout, shape=shape).reshape(x.shape)
    # compressed-tensors adds a zero point of 0, or multiplies by the sign: -0 becomes +0
    own = np.where((x == 0) & np.signbit(x), 0, q.codes) if case.startswith("compressed") else q.codes
    assert np.array_equal(own, codes)
    assert np.array_equal(q.scales.codes if scales.dtype == np.uint8 else q.scales.values.reshape(scales.shape), scales)
    assert zeros is None or np.array_equal(q.zero_points, zeros)
    assert whole is None or q.tensor_scale.item() == whole
