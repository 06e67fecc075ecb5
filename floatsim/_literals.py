"""Literal names for type checkers and editors."""

# Written by tools/write_stubs.py. Do not edit.

from typing import Literal, TypeAlias

__all__ = ["AccumulationName", "ArrayAccumulationName", "ArrayFormatName", "FormatName"]

FormatName: TypeAlias = Literal[
    "fp64", "fp32", "tf32", "fp16", "bf16", "e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz", "e4m3b11fnuz", "e4m3ieee", "e3m4",
    "e3m2", "e2m3", "e2m1", "e8m0", "float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2",
    "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e4m3b11fnuz", "float8_e4m3", "float8_e3m4", "float6_e3m2fn",
    "float6_e2m3fn", "float4_e2m1fn", "float8_e8m0fnu",
]  # fmt: skip
"""The names of formats and of their dtypes."""

ArrayFormatName: TypeAlias = Literal[
    "fp64", "fp32", "fp16", "bf16", "e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz", "e4m3b11fnuz", "e4m3ieee", "e3m4", "e3m2",
    "e2m3", "e2m1", "e8m0", "float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2",
    "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e4m3b11fnuz", "float8_e4m3", "float8_e3m4", "float6_e3m2fn",
    "float6_e2m3fn", "float4_e2m1fn", "float8_e8m0fnu",
]  # fmt: skip
"""The names of the formats that have a NumPy or ml_dtypes dtype."""

AccumulationName: TypeAlias = Literal[
    "fp64", "fp32", "tf32", "fp16", "bf16", "e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz", "e4m3b11fnuz", "e4m3ieee", "e3m4",
    "e3m2", "e2m3", "e2m1", "e8m0", "volta", "turing", "ampere", "ada", "hopper", "blackwell", "blackwell-rtx", "cdna1",
    "cdna2", "cdna3", "avx512-bf16", "avx512-fp16", "fma3", "avx10.2", "amx-bf16", "amx-fp16", "amx-fp8", "ace",
    "arm-bfdot", "arm-bfmmla", "arm-bfmlal", "arm-fp16", "arm-fp8", "arm-fmmla", "apple-amx", "riscv-zvfbfwma",
]  # fmt: skip
"""The descriptions of sums that are one word."""

ArrayAccumulationName: TypeAlias = Literal[
    "fp64", "fp32", "fp16", "bf16", "e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz", "e4m3b11fnuz", "e4m3ieee", "e3m4", "e3m2",
    "e2m3", "e2m1", "e8m0", "float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2",
    "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e4m3b11fnuz", "float8_e4m3", "float8_e3m4", "float6_e3m2fn",
    "float6_e2m3fn", "float4_e2m1fn", "float8_e8m0fnu", "volta", "turing", "ampere", "ada", "hopper", "blackwell",
    "blackwell-rtx", "cdna1", "cdna2", "cdna3", "avx512-bf16", "avx512-fp16", "fma3", "avx10.2", "amx-bf16", "amx-fp16",
    "amx-fp8", "ace", "arm-bfdot", "arm-bfmmla", "arm-bfmlal", "arm-fp16", "arm-fp8", "arm-fmmla", "apple-amx",
    "riscv-zvfbfwma",
]  # fmt: skip
"""The descriptions of one word whose result has a dtype."""
