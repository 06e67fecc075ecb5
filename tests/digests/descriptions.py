"""How the sums of the digests are described: label and description, for any accumulator format."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import floatsim as fs

__all__ = ["COMPOSITES", "LEAVES", "SCANS", "exact_products"]

Describe = Callable[[fs.FloatFormat], Any]

LEAVES: dict[str, Describe] = {
    "sequential": fs.Sequential,
    "fused": lambda f: fs.Sequential(f, fused=True),
    "pairwise": fs.Pairwise,
    "halving": lambda f: fs.Pairwise(f, tree="halving"),
    "numpy": lambda f: fs.Pairwise(f, tree="numpy"),
    "kahan": fs.Kahan,
    "neumaier": fs.Neumaier,
    "exact": fs.Exact,
    "pairwise-unrounded": lambda f: fs.Pairwise(f, product=None),
    "kahan-unrounded": lambda f: fs.Kahan(f, product=None),
    "neumaier-unrounded": lambda f: fs.Neumaier(f, product=None),
    "sequential-product-fp32": lambda f: fs.Sequential(f, product="fp32"),
    "sequential-product-fp16": lambda f: fs.Sequential(f, product="fp16"),
    "sequential-product-bf16": lambda f: fs.Sequential(f, product="bf16", product_rounding="toward_zero"),
    "pairwise-product-bf16": lambda f: fs.Pairwise(f, product="bf16"),
    "kahan-product-e5m2": lambda f: fs.Kahan(f, product="e5m2"),
    "sequential-product-fp64": lambda f: fs.Sequential(f, product="fp64"),
    "sequential-saturating": lambda f: fs.Sequential(f, overflow="saturate_finite"),
    "pairwise-propagating": lambda f: fs.Pairwise(f, overflow="saturate_propagate"),
    "sequential-ftz-daz": lambda f: fs.Sequential(f, ftz=True, daz=True),
    "fused-toward-zero": lambda f: fs.Sequential(f, fused=True, rounding="toward_zero"),
}

COMPOSITES: dict[str, Describe] = {
    "strided-4": lambda f: fs.Strided(f, 4),
    "strided-8-halving": lambda f: fs.Strided(fs.Sequential(f, fused=True), 8, fs.Pairwise(f, tree="halving")),
    "strided-3-kahan-fp32": lambda f: fs.Strided(fs.Kahan(f), 3, "fp32"),
    "blocked-16-fp32": lambda f: fs.Blocked(f, 16, "fp32"),
    "blocked-5-fused": lambda f: fs.Blocked(fs.Sequential(f, fused=True), 5, f),
    "blocked-8-pairwise-kahan": lambda f: fs.Blocked(fs.Pairwise(f), 8, fs.Kahan("fp32")),
    "blocked-fp32-4-same": lambda f: fs.Blocked("fp32", 4, f),
    "splitk-3-fp32": lambda f: fs.SplitK(3, f, "fp32"),
    "splitk-4-pairwise": lambda f: fs.SplitK(4, f, fs.Pairwise(f)),
    "blocked-7-exact": lambda f: fs.Blocked(fs.Exact(f), 7, fs.Neumaier(f)),
    "splitk-2-blocked-strided": lambda f: fs.SplitK(2, fs.Blocked(fs.Strided(f, 4), 8, f), fs.Sequential("fp64")),
    "strided-2-blocked-splitk": lambda f: fs.Strided(fs.Blocked(f, 4, f), 2, fs.SplitK(2, f, fs.Exact(f))),
}

SCANS = ("sequential", "kahan", "neumaier", "sequential-saturating", "sequential-ftz-daz")


def exact_products(label: str) -> bool:
    """Whether a description sums products exactly: the cases with wide products are `exact-wide/...`."""
    return label in ("exact", "blocked-7-exact")
