# Written by tools/write_stubs.py. Do not edit.

from floatsim.quantization.blocks import dequantize_blocks, quantize_blocks
from floatsim.quantization.calibration import best_scale
from floatsim.quantization.integer import (
    INT2, INT3, INT4, INT5, INT6, INT7, INT8, IntegerFormat, TERNARY, UINT2, UINT3, UINT4, UINT5, UINT6, UINT7, UINT8,
)
from floatsim.quantization.lookup import BINARY, BNB_FP4, LookupFormat, NF4
from floatsim.quantization.products import (
    integer_matmul, llm_int8_matmul, quantize_multiplier, requantize, scaled_matmul,
)
from floatsim.quantization.quantized import Quantized
from floatsim.quantization.scheme import SCHEMES, Scheme, as_element_format, as_scheme

__all__ = [
    "BINARY", "BNB_FP4", "INT2", "INT3", "INT4", "INT5", "INT6", "INT7", "INT8", "IntegerFormat", "LookupFormat", "NF4",
    "Quantized", "SCHEMES", "Scheme", "TERNARY", "UINT2", "UINT3", "UINT4", "UINT5", "UINT6", "UINT7", "UINT8",
    "as_element_format", "as_scheme", "best_scale", "dequantize_blocks", "integer_matmul", "llm_int8_matmul",
    "quantize_blocks", "quantize_multiplier", "requantize", "scaled_matmul",
]
