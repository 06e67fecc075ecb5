"""`fs.scaled_mm` against the package mmaemu 0.1.0, which models cuBLASLt's FP8 products on an H100 and an RTX 4060.

    pip download --no-deps --no-binary mmaemu mmaemu==0.1.0
    tar xzf mmaemu-0.1.0.tar.gz
    FLOATSIM_MMAEMU=mmaemu-0.1.0 python -m pytest -m mmaemu

The SHA-256 of the archive is 740b69ac7e10f0542399fbecbea216e638dfe7249ff70ec4c6474cf9a15a5a13. Those of the modules
that compute are pinned here. The package needs PyTorch.
"""

from __future__ import annotations

import hashlib
import os
import sys
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import floatsim as fs
from tests.arrays.split_products import TILE, split_on_ada

FOLDER = os.environ.get("FLOATSIM_MMAEMU")
pytestmark = [
    pytest.mark.mmaemu,
    pytest.mark.full,
    pytest.mark.skipif(
        not FOLDER, reason="FLOATSIM_MMAEMU names no folder mmaemu-0.1.0; the head of the file has more"
    ),
]
SHA256 = {
    "api.py": "165c0f754ae6103b84c945e9f77a1828d5cf9d22cbcc8ac41c7635837f75ce3f",
    "model/plan.py": "e3722ea48562a13bd3f3e01c1c2c6c7ab478ca275eefe8b180d0d48fd7f5970a",
    "model/chain.py": "192617cabcee096e7148d97d6f06530a6f559418e196e6031cbed4651de01bf4",
    "model/epilogue.py": "f5e46b186e34fb3e8d86dce6d4985e582d1cdaefba943c93a9ef3910f1c50220",
    "model/presets.py": "ababcd1f6382fbb28b915b21a677925cf843979263c55323fabf6c3696aec6c4",
}
DTYPES = {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2", "fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
CALLS = 500


def modules():
    """mmaemu and torch."""
    folder = Path(FOLDER) / "mmaemu"
    for name, due in SHA256.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == due, f"{name} is not that of mmaemu 0.1.0"
    torch = pytest.importorskip("torch", reason="mmaemu needs PyTorch")
    sys.path.insert(0, str(FOLDER))
    try:
        import mmaemu
    finally:
        sys.path.remove(str(FOLDER))
    return mmaemu, torch


def drawn(rng):
    """A random call: formats, shape, options, split, and the profile whose model computes it."""
    profile = ("ada", "hopper", "ada-te", "hopper-te", "ada-ws0", "hopper-ws0", "hopper-experimental")[rng.integers(7)]
    a, b = (("e4m3", "e4m3"), ("e4m3", "e5m2"), ("e5m2", "e4m3"))[rng.integers(3)]
    out = ("fp32", "bf16", "fp16", "e4m3", "e5m2")[rng.integers(4 if a == b else 5)]  # e5m2 needs a mix
    m, n = (int(rng.integers(1, 13)) for _ in range(2))
    n = -(-n // 16) * 16  # torch takes no others
    k = 16 * int(rng.integers(1, 60))
    parts = int(rng.choice([1, 1, 2, 3, 4, 5]))
    tiles = -(-k // (TILE if profile.startswith("ada") else 128))
    parts = min(parts, tiles)
    scheme = ("serial", "pairwise")[rng.integers(2)] if profile.startswith("ada") else "contiguous"
    return profile, a, b, out, (m, k, n), bool(rng.integers(2)), parts, scheme


def operands(rng, a, b, m, k, n):
    """Normal, wide, cancelling or random codes, NaN and infinity included."""
    kind = rng.integers(4)
    if kind == 3:
        return [
            fs.from_codes(rng.integers(0, 256, size).astype(np.uint8), fmt) for size, fmt in (((m, k), a), ((k, n), b))
        ]
    x, y = rng.standard_normal((m, k)), rng.standard_normal((k, n))
    if kind == 1:
        x, y = (z * np.exp2(rng.integers(-6, 7, z.shape)) for z in (x, y))
    if kind == 2 and k > 1:
        half = k // 2
        x[:, k - half :], y[k - half :] = -x[:, :half], y[:half]
    return fs.array(x, a), fs.array(y, b)


def emulated(x, y, scales, scale_result, call):
    profile, _, _, out, (_, k, _), fast, parts, scheme = call
    unit = "ada" if profile.startswith("ada") else "hopper"
    options = {"accumulate": unit, "use_fast_accum": fast}
    if parts > 1:
        inner = unit if fast else fs.Blocked(unit, 128, "fp32")
        split = fs.SplitK(parts, inner, "fp32", 128)
        options = {
            "accumulate": split_on_ada(k, parts, scheme, fast) if unit == "ada" else split,
            "use_fast_accum": True,
        }
    return fs.scaled_mm(x, y, *scales, scale_result=scale_result, format=out, **options).codes


@pytest.mark.parametrize("seed", range(5))
def test_random_calls(seed):
    """Every bit of 500 products: 7 profiles, 5 formats of results, split-K, scales, NaN and infinity."""
    mmaemu, torch = modules()
    rng = np.random.default_rng([41, seed])
    equal = Counter()
    for _ in range(CALLS // 5):
        call = drawn(rng)
        profile, a, b, out, shape, fast, parts, scheme = call
        x, y = operands(rng, a, b, *shape)
        scales = [np.float32(np.exp(rng.standard_normal() * 3)) for _ in range(2)]
        scale_result = (
            np.float32(np.exp(rng.standard_normal())) if out in ("e4m3", "e5m2") and rng.random() < 0.5 else None
        )
        left = torch.from_numpy(x.codes).view(getattr(torch, DTYPES[a]))
        right = torch.from_numpy(np.ascontiguousarray(y.codes.T)).view(getattr(torch, DTYPES[b])).t()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            due = mmaemu.scaled_mm(
                left, right, *map(torch.tensor, scales), out_dtype=getattr(torch, DTYPES[out]), use_fast_accum=fast,
                scale_result=None if scale_result is None else torch.tensor(scale_result), profile=profile,
                splitk=1 if parts == 1 else (parts, scheme), backend="reference",
            )  # fmt: skip
        found = emulated(x, y, scales, scale_result, call)
        words = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[due.element_size()]
        same = np.array_equal(due.view(words).numpy().view(found.dtype), found)
        equal[same] += 1
        assert same, (call, scales, scale_result)
    assert equal == {True: CALLS // 5}
