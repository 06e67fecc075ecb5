"""Quantization: integers, lookup formats and floating-point formats with scales, calibration, integer products.

`fs.quantize_blocks` quantizes a tensor, by the name of a format or of a scheme of `SCHEMES`.
"""

from __future__ import annotations

from floatsim._lazy import lazy_exports

_HOMES = {
    ".integer": (
        "INT2 INT3 INT4 INT5 INT6 INT7 INT8 MXINT8 TERNARY UINT2 UINT3 UINT4 UINT5 UINT6 UINT7 UINT8 IntegerFormat"
    ),
    ".lookup": "BINARY BNB_FP4 DYNAMIC8 DYNAMIC8_UNSIGNED NF4 LookupFormat",
    ".scheme": "SCHEMES UE5M3 Scheme as_element_format as_scheme",
    ".quantized": "Quantized",
    ".gguf_file": "GgufFile GgufTensor",
    ".gguf_quantizers": "to_gguf",
    ".gguf_types": "GGUF_TYPES GgufType from_gguf",
    ".safetensors_file": "SafetensorsFile SafetensorsTensor",
    ".checkpoint_schemes": "CHECKPOINT_SCHEMES CheckpointScheme",
    ".packing": "PACKED_LAYOUTS PackedLayout pack unpack",
    ".blocks": "dequantize_blocks quantize_blocks",
    ".p3109": "P3109Block block_dot block_product block_sum project_block",
    ".calibration": "best_scale",
    ".whole_model": "QuantizedModel TensorReport quantize_model",
    ".searches": "ChannelFactors SignRounded awq_factors best_range sign_round smoothquant_factors",
    ".e8m0": "torch_e8m0",
    ".hadamard_transform": "NVFP4_SIGNS hadamard",
    ".products": "integer_matmul llm_int8_matmul quantize_multiplier requantize scaled_matmul",
}
__getattr__, __dir__, __all__ = lazy_exports(__name__, _HOMES)
