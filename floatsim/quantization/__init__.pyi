# Written by tools/write_stubs.py. Do not edit.

from floatsim.quantization.blocks import dequantize_blocks, quantize_blocks
from floatsim.quantization.calibration import best_scale
from floatsim.quantization.checkpoint_schemes import CHECKPOINT_SCHEMES, CheckpointScheme
from floatsim.quantization.e8m0 import torch_e8m0
from floatsim.quantization.gguf_file import GgufFile, GgufTensor
from floatsim.quantization.gguf_quantizers import to_gguf
from floatsim.quantization.gguf_types import GGUF_TYPES, GgufType, from_gguf
from floatsim.quantization.hadamard_transform import NVFP4_SIGNS, hadamard
from floatsim.quantization.integer import (
    INT2, INT3, INT4, INT5, INT6, INT7, INT8, IntegerFormat, MXINT8, TERNARY, UINT2, UINT3, UINT4, UINT5, UINT6, UINT7,
    UINT8,
)
from floatsim.quantization.lookup import BINARY, BNB_FP4, DYNAMIC8, DYNAMIC8_UNSIGNED, LookupFormat, NF4
from floatsim.quantization.p3109 import P3109Block, block_dot, block_product, block_sum, project_block
from floatsim.quantization.packing import PACKED_LAYOUTS, PackedLayout, pack, unpack
from floatsim.quantization.products import (
    integer_matmul, llm_int8_matmul, quantize_multiplier, requantize, scaled_matmul,
)
from floatsim.quantization.quantized import Quantized
from floatsim.quantization.safetensors_file import SafetensorsFile, SafetensorsTensor
from floatsim.quantization.scheme import SCHEMES, Scheme, UE5M3, as_element_format, as_scheme
from floatsim.quantization.searches import (
    ChannelFactors, SignRounded, awq_factors, best_range, sign_round, smoothquant_factors,
)
from floatsim.quantization.whole_model import QuantizedModel, TensorReport, quantize_model

__all__ = [
    "BINARY", "BNB_FP4", "CHECKPOINT_SCHEMES", "ChannelFactors", "CheckpointScheme", "DYNAMIC8", "DYNAMIC8_UNSIGNED",
    "GGUF_TYPES", "GgufFile", "GgufTensor", "GgufType", "INT2", "INT3", "INT4", "INT5", "INT6", "INT7", "INT8",
    "IntegerFormat", "LookupFormat", "MXINT8", "NF4", "NVFP4_SIGNS", "P3109Block", "PACKED_LAYOUTS", "PackedLayout",
    "Quantized", "QuantizedModel", "SCHEMES", "SafetensorsFile", "SafetensorsTensor", "Scheme", "SignRounded",
    "TERNARY", "TensorReport", "UE5M3", "UINT2", "UINT3", "UINT4", "UINT5", "UINT6", "UINT7", "UINT8",
    "as_element_format", "as_scheme", "awq_factors", "best_range", "best_scale", "block_dot", "block_product",
    "block_sum", "dequantize_blocks", "from_gguf", "hadamard", "integer_matmul", "llm_int8_matmul", "pack",
    "project_block", "quantize_blocks", "quantize_model", "quantize_multiplier", "requantize", "scaled_matmul",
    "sign_round", "smoothquant_factors", "to_gguf", "torch_e8m0", "unpack",
]
