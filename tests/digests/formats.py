"""The formats of the digests, by short name: named ones, and custom ones one step beside the bounds of fast paths."""

from __future__ import annotations

import floatsim as fs

__all__ = ["ACCUMULATORS", "CUSTOM", "FORMATS", "NAMED", "OPERANDS", "find"]

NAMED = {fmt.name.lower(): fmt for fmt in fs.named_formats() if not fmt.is_scale}


def _custom(exponent_bits: int, trailing_bits: int, specials: str = "ieee", bias: int | None = None) -> fs.FloatFormat:
    suffix = "" if bias is None else f",bias={bias}"
    name = f"{specials}({exponent_bits},{trailing_bits}{suffix})"
    return fs.FloatFormat(name, exponent_bits, trailing_bits, specials, bias)


CUSTOM = {
    fmt.name: fmt
    for fmt in (
        _custom(4, 3), _custom(4, 10), _custom(5, 11), _custom(5, 12), _custom(6, 9), _custom(6, 22), _custom(7, 3),
        _custom(5, 22), _custom(5, 23), _custom(5, 24), _custom(8, 10), _custom(8, 11), _custom(8, 13), _custom(8, 15),
        _custom(8, 16), _custom(8, 22), _custom(8, 24), _custom(8, 25), _custom(9, 23), _custom(9, 7), _custom(10, 10),
        _custom(10, 49), _custom(10, 51), _custom(11, 51), _custom(11, 50), _custom(11, 20), _custom(8, 23, "fn"),
        _custom(4, 7, "fn"), _custom(6, 12, "fn"), _custom(5, 23, "fn", 15), _custom(7, 11, "fnuz"),
        _custom(5, 10, "fnuz"), _custom(8, 7, "fnuz", 127), _custom(8, 7, "fnuz"), _custom(8, 7, "fn", 128),
        _custom(6, 5, "finite"), _custom(7, 12, "finite"), _custom(5, 3, "finite", 20), _custom(8, 22, "finite", 126),
        _custom(5, 10, bias=5), _custom(5, 10, bias=28), _custom(8, 7, bias=126), _custom(8, 7, bias=100),
        _custom(8, 23, bias=126), _custom(5, 2, bias=30), _custom(10, 23, bias=900),
    )
}  # fmt: skip

FORMATS = {**NAMED, **CUSTOM}


def find(name: str) -> fs.FloatFormat:
    """Return the format of a short name."""
    return FORMATS[name]


_NAMED_ACCUMULATORS = (
    "fp32", "fp16", "bf16", "tf32", "fp64", "e5m2", "e4m3", "e4m3fnuz", "e5m2fnuz", "e3m2", "e2m3", "e2m1",
)  # fmt: skip
ACCUMULATORS = (*_NAMED_ACCUMULATORS, *CUSTOM)

OPERANDS = [
    tuple(pair.split())
    for pair in (
        "fp16 fp16", "bf16 bf16", "e4m3 e4m3", "fp32 fp32", "e5m2 e4m3", "fp16 bf16", "e2m1 e2m1", "tf32 tf32",
        "fp64 fp64", "e3m2 e2m3", "bf16 e5m2", "fp32 fp16", "e4m3fnuz e5m2fnuz", "ieee(5,11) ieee(5,11)",
        "ieee(8,10) fp16", "ieee(8,11) ieee(8,11)", "fn(4,7) fp16", "ieee(5,12) e4m3", "finite(6,5) finite(6,5)",
        "ieee(10,10) bf16", "ieee(6,22) fp32", "fnuz(5,10) e5m2", "ieee(5,10,bias=28) ieee(5,10,bias=5)", "fp64 fp16",
        "ieee(8,24) ieee(8,25)", "fp16 e4m3", "ieee(11,20) fp32", "e3m4 e4m3ieee", "e4m3b11fnuz bf16",
    )
]  # fmt: skip
"""Formats of a and b."""
