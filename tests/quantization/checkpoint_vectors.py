"""Small safetensors files that published packages made, and the SHA-256 digests of the numbers that they decode.

`python tests/quantization/checkpoint_vectors.py` writes the folder `checkpoints` with the installed packages
compressed-tensors, bitsandbytes, torchao, nvidia-modelopt, auto-gptq, gptqmodel, autoawq and transformers. Some of them
import packages of GPUs: then only the modules that are named here are imported.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import logging
import sys
import types
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

FOLDER = Path(__file__).parent / "checkpoints"
DIGESTS = FOLDER / "digests.json"


class Made(NamedTuple):
    """A file: the stored tensors, what the packages decode from them, and its configuration and metadata."""

    tensors: dict[str, Any]
    decoded: dict[str, Any]
    config: dict[str, Any]
    metadata: dict[str, str]
    packages: tuple[str, ...]


def digest(values: np.ndarray) -> str:
    """The digest of FP32 numbers; all NaNs count as one."""
    return hashlib.sha256(np.where(np.isnan(values), np.float32(np.nan), values).astype("<f4").tobytes()).hexdigest()


def matrix(rows: int, columns: int, seed: int) -> Any:
    """Rows of several magnitudes, with zeros and large numbers."""
    import torch

    rng = np.random.default_rng(seed)
    x = rng.standard_t(4, (rows, columns)) * np.exp2(rng.integers(-4, 3, (rows, 1)) - 5.0)
    x[:, ::17] = 0
    return torch.from_numpy(x.astype(np.float32))


def module(name: str, *others: str) -> Any:
    """Import a module without the packages above it and without `others`, whose imports may need a GPU."""
    root, *below = name.split(".")
    packages = [".".join([root, *below[:depth]]) for depth in range(len(below))]
    spec = importlib.util.find_spec(root) if root not in sys.modules else None
    for package in (*packages, *others) if spec is not None else ():
        found = types.ModuleType(package)
        folders = spec.submodule_search_locations or ()
        found.__path__ = [str(Path(folder).joinpath(*package.split(".")[1:])) for folder in folders]
        sys.modules.setdefault(package, found)
    return importlib.import_module(name)


# -- GPTQ and AWQ ------------------------------------------------------------------------------------------------------


def _asymmetric(x: Any, bits: int, size: int, least: int) -> tuple[Any, Any]:
    """Scales and zero points of groups, (rows, groups), as FP32."""
    import torch

    groups = x.reshape(x.shape[0], -1, size)
    low, high = groups.amin(-1).clamp(max=0), groups.amax(-1).clamp(min=0)
    scales = ((high - low) / (2**bits - 1)).clamp(min=1e-5).half().float()
    return scales, torch.round(-low / scales).clamp(least, 2**bits - 1)


def gptq(rows: int, columns: int, seed: int, kind: int) -> Made:
    """Zero points of version 1, packed and decoded by AutoGPTQ; of version 2, decoded by GPTQModel."""
    import torch

    linear_type = module("auto_gptq.nn_modules.qlinear.qlinear_cuda").QuantLinear
    tensors, decoded = {}, {}
    for bits, act_order in ((2, False), (3, False), (4, False), (8, False), (4, True), (3, True)):
        name, size = f"layer{bits}{'act' if act_order else ''}", 32
        x = matrix(rows, columns, seed + bits)
        scales, zeros = _asymmetric(x, bits, size, 1)
        order = np.random.default_rng(seed).permutation(columns) if act_order else np.arange(columns)
        g_idx = torch.from_numpy((np.argsort(order) // size).astype(np.int32))
        scales_of, zeros_of = scales[:, g_idx.long()], zeros[:, g_idx.long()]
        codes = (torch.round(x / scales_of) + zeros_of).clamp(0, 2**bits - 1)
        linear = torch.nn.Linear(columns, rows, bias=False, dtype=torch.float32)
        linear.weight.data = (codes - zeros_of) * scales_of
        packed = linear_type(bits, size, columns, rows, False)
        packed.pack(linear, scales.clone(), zeros.clone(), g_idx)
        packed.scales = packed.scales.half()
        for part in ("qweight", "qzeros", "scales", "g_idx"):
            tensors[f"{name}.{part}"] = getattr(packed, part).contiguous()
        decoded[f"{name}.weight"] = packed(torch.eye(columns, dtype=torch.float16)).T
    config: dict[str, Any] = {"quant_method": "gptq", "bits": 4, "group_size": 32}
    others = {"dynamic": {f"layer{bits}": {"bits": bits} for bits in (2, 3, 8)}}
    if kind == 1:
        return Made(tensors, decoded, config | others, {}, ("auto-gptq",))
    for name, attribute, value in (("logger", "setup_logger", logging.getLogger), ("torch", "HAS_NPU", False)):
        stub = types.ModuleType(f"gptqmodel.utils.{name}")
        setattr(stub, attribute, value)
        sys.modules.setdefault(stub.__name__, stub)
    gptqmodel = module("gptqmodel.utils.model_dequant", "gptqmodel.quantization")
    for name in [name for name in tensors if name.endswith(".qzeros")]:
        bits = int(name[5])
        tensors[name] = gptqmodel._correct_gptq_v1_qzeros(tensors[name], bits)
        decoded |= _by_gptqmodel(gptqmodel, tensors, name[: -len(".qzeros")], config | {"bits": bits})
    config |= others | {"checkpoint_format": "gptq_v2"}
    return Made(tensors, decoded, config, {}, ("auto-gptq", "gptqmodel"))


def _by_gptqmodel(gptqmodel: Any, tensors: dict[str, Any], layer: str, config: dict[str, Any]) -> dict[str, Any]:
    import tempfile

    import torch
    from safetensors.torch import save_file

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        save_file({name: x for name, x in tensors.items() if name.startswith(f"{layer}.")}, str(path))
        settings = config | {"checkpoint_format": "gptq_v2"}
        return gptqmodel.convert_gptq_file(path, torch.float16, settings, "cpu")


def awq(rows: int, columns: int, seed: int) -> Made:
    """Packed and decoded by AutoAWQ."""
    import torch

    sys.modules.setdefault("awq_ext", None)
    linear_type = module("awq.modules.linear.gemm").WQLinear_GEMM
    unpacked = module("awq.utils.packing_utils")
    x = matrix(rows, columns, seed)
    scales, zeros = _asymmetric(x, 4, 64, 0)
    linear = torch.nn.Linear(columns, rows, bias=False)
    linear.weight.data = x
    packed = linear_type.from_linear(linear, 4, 64, False, scales.T.contiguous(), zeros.T.contiguous())
    tensors = {f"layer.{part}": getattr(packed, part) for part in ("qweight", "qzeros", "scales")}
    found = unpacked.dequantize_gemm(packed.qweight, packed.qzeros, packed.scales, 4, 64)
    config = {"quant_method": "awq", "bits": 4, "group_size": 64, "version": "gemm", "zero_point": True}
    return Made(tensors, {"layer.weight": found.T}, config, {}, ("autoawq",))


# -- compressed-tensors and ModelOpt -----------------------------------------------------------------------------------

_CT = {
    "int4": ("pack-quantized", {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}, "bfloat16"),
    "int4zero": ("pack-quantized", {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32,
                                    "symmetric": False}, "float16"),
    "int3zero": ("pack-quantized", {"num_bits": 3, "type": "int", "strategy": "channel", "symmetric": False},
                 "float32"),
    "int5": ("pack-quantized", {"num_bits": 5, "type": "int", "strategy": "channel"}, "bfloat16"),
    "int8": ("pack-quantized", {"num_bits": 8, "type": "int", "strategy": "group", "group_size": 64}, "float32"),
    "nvfp4": ("nvfp4-pack-quantized", {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16},
              "bfloat16"),
    "mxfp4": ("mxfp4-pack-quantized", {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32},
              "bfloat16"),
    "fp8row": ("float-quantized", {"num_bits": 8, "type": "float", "strategy": "channel"}, "bfloat16"),
    "fp8": ("float-quantized", {"num_bits": 8, "type": "float", "strategy": "tensor"}, "float32"),
    "fp8block": ("float-quantized", {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [16, 64]},
                 "float32"),
    "w8": ("int-quantized", {"num_bits": 8, "type": "int", "strategy": "channel"}, "bfloat16"),
    "w8zero": ("int-quantized", {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": False}, "float32"),
}  # fmt: skip
"""The weights of compressed-tensors: the format, the arguments, and the dtype of the weight."""


def compressed_tensors(rows: int, columns: int, seed: int) -> Made:
    import torch
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam

    tensors, decoded = {}, {}
    for name, (kind, settings, dtype) in _CT.items():
        args = QuantizationArgs(**settings)
        scheme = QuantizationScheme(targets=["Linear"], weights=args, format=kind)
        x = matrix(rows, columns, seed + len(name)).to(getattr(torch, dtype))
        height, width = {"tensor": (rows, columns), "channel": (1, columns)}.get(
            args.strategy, (1, args.group_size or columns)
        )
        if args.strategy == "block":
            height, width = args.block_structure
        groups = x.reshape(rows // height, height, columns // width, width)
        low, high = groups.amin((1, 3)), groups.amax((1, 3))
        state = {"weight": x}
        whole = generate_gparam(x.float().min(), x.float().max()).reshape(1) if name == "nvfp4" else None
        scale, zero = calculate_qparams(low, high, args, global_scale=whole)
        if name == "nvfp4":
            state["weight_global_scale"] = whole
        if args.strategy == "tensor":
            scale, zero = scale.reshape(1), zero.reshape(1)
        state["weight_scale"] = scale if name == "nvfp4" else scale.to(x.dtype)
        if not args.symmetric:
            state["weight_zero_point"] = zero.to(torch.int8)
        compressor = BaseCompressor.get_value_from_registry(kind)
        stored = compressor.compress(state, scheme)
        for part, tensor in stored.items():
            tensors[f"{name}.{part}"] = tensor.detach().contiguous()
        decoded[f"{name}.weight"] = compressor.decompress(stored, scheme)["weight"]
    bits = {str(n): {"weights": settings} for n, (_, settings, _) in enumerate(_CT.values())}
    config = {"quant_method": "compressed-tensors", "format": "mixed-precision", "config_groups": bits}
    return Made(tensors, decoded, config, {}, ("compressed-tensors",))


def modelopt(rows: int, columns: int, seed: int) -> Made:
    import torch
    from modelopt.torch.quantization.qtensor import FP8QTensor, NVFP4QTensor

    x = matrix(rows, columns, seed)
    four, scale, whole = NVFP4QTensor.quantize(x, 16)
    eight, scale8 = FP8QTensor.quantize(x)
    tensors = {"a.weight": four._quantized_data, "a.weight_scale": scale, "a.weight_scale_2": whole,
               "b.weight": eight._quantized_data, "b.weight_scale": scale8.float().reshape(())}  # fmt: skip
    decoded = {
        "a.weight": four.dequantize(torch.float32, scale=scale, double_scale=whole, block_sizes={-1: 16}),
        "b.weight": eight.dequantize(torch.float32, scale=scale8),
    }
    return Made(tensors, decoded, {"quant_method": "modelopt"}, {}, ("nvidia-modelopt",))


# -- bitsandbytes, torchao, gpt-oss ------------------------------------------------------------------------------------


def bitsandbytes(rows: int, columns: int, seed: int) -> Made:
    import torch
    from bitsandbytes import functional

    tensors, decoded = {}, {}
    cases = [(kind, dtype, size, nested, (rows, columns)) for kind in ("nf4", "fp4") for dtype, size, nested in (
        ("float32", 64, False), ("float16", 64, True), ("bfloat16", 128, True), ("float32", 64, True))]  # fmt: skip
    cases.append(("nf4", "float32", 64, True, (rows - 1, columns // 2 - 6)))
    for n, (kind, dtype, size, nested, shape) in enumerate(cases):
        x = (matrix(*shape, seed + n) * 3).to(getattr(torch, dtype))
        packed, state = functional.quantize_4bit(x, blocksize=size, quant_type=kind, compress_statistics=nested)
        tensors[f"layer{n}.weight"] = packed
        for part, tensor in state.as_dict(packed=True).items():
            tensors[f"layer{n}.weight.{part}"] = tensor.clone()
        decoded[f"layer{n}.weight"] = functional.dequantize_4bit(packed, state)
    x = matrix(rows, columns, seed).half()
    codes, stats, _ = functional.int8_vectorwise_quant(x)
    tensors |= {"int8.weight": codes, "int8.SCB": stats, "int8.weight_format": torch.tensor(0, dtype=torch.uint8)}
    decoded["int8.weight"] = functional.int8_vectorwise_dequant(codes, stats)
    return Made(tensors, decoded, {"quant_method": "bitsandbytes"}, {}, ("bitsandbytes",))


def torchao(rows: int, columns: int, seed: int) -> Made:
    import torch
    from torchao.prototype.mx_formats.mx_tensor import MXTensor
    from torchao.prototype.mx_formats.nvfp4_tensor import NVFP4Tensor, per_tensor_amax_to_scale
    from torchao.prototype.safetensors.safetensors_support import flatten_tensor_state_dict
    from torchao.quantization import Float8Tensor, Int8Tensor, IntxUnpackedToInt8Tensor, MappingType, PerRow, PerTensor

    x = matrix(rows, columns, seed)
    half = x.bfloat16()
    whole = per_tensor_amax_to_scale(x.abs().max())
    weights = {
        "row8": Float8Tensor.from_hp(half, granularity=PerRow()),
        "whole8": Float8Tensor.from_hp(x, granularity=PerTensor()),
        "int8": Int8Tensor.from_hp(half, PerRow()),
        "int4": IntxUnpackedToInt8Tensor.from_hp(half, (1, 32), torch.int4, mapping_type=MappingType.ASYMMETRIC),
        "int3": IntxUnpackedToInt8Tensor.from_hp(x, (1, 64), torch.int3),
        "mx8": MXTensor.to_mx(half, torch.float8_e4m3fn, 32),
        "mx8wide": MXTensor.to_mx(x, torch.float8_e5m2, 32, is_swizzled_scales=True),
        "mx4": MXTensor.to_mx(half, torch.float4_e2m1fn_x2, 32),
        "nvfp4": NVFP4Tensor.to_nvfp4(half, per_tensor_scale=whole),
        "nvfp4tiles": NVFP4Tensor.to_nvfp4(x, is_swizzled_scales=True),
    }
    tensors, metadata = flatten_tensor_state_dict({f"{name}.weight": w for name, w in weights.items()})
    decoded = {f"{name}.weight": w.dequantize() for name, w in weights.items()}
    return Made({name: x.contiguous() for name, x in tensors.items()}, decoded, {"quant_method": "torchao"},
                metadata, ("torchao",))  # fmt: skip


def gpt_oss(rows: int, columns: int, seed: int) -> Made:
    import torch
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    rng = np.random.default_rng(seed)
    blocks = torch.from_numpy(rng.integers(0, 256, (2, rows // 2, columns // 32, 16), np.uint8))
    scales = torch.from_numpy(rng.integers(100, 140, (2, rows // 2, columns // 32), np.uint8))
    found = convert_moe_packed_tensors(blocks.clone(), scales.clone()).transpose(1, 2)
    return Made({"experts.up_blocks": blocks, "experts.up_scales": scales}, {"experts.up": found},
                {"quant_method": "mxfp4"}, {}, ("transformers",))  # fmt: skip


MAKERS: dict[str, Callable[[int, int, int], Made]] = {
    "gptq-v1": lambda *size: gptq(*size, 1),
    "gptq-v2": lambda *size: gptq(*size, 2),
    "awq": awq,
    "compressed-tensors": compressed_tensors,
    "modelopt": modelopt,
    "bitsandbytes": bitsandbytes,
    "torchao": torchao,
    "gpt-oss": gpt_oss,
}


def written(made: Made, path: Path) -> None:
    """Write a file."""
    from safetensors.torch import save_file

    save_file(made.tensors, str(path), made.metadata or None)


def numbers(x: Any) -> np.ndarray:
    """The numbers of a tensor as float32, exact."""
    return x.detach().float().contiguous().numpy()


def _version(package: str) -> str:
    try:
        return version(package)
    except importlib.metadata.PackageNotFoundError:
        return module(f"{package}.version").__version__


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    digests = {}
    for name, maker in MAKERS.items():
        made = maker(64, 128, 1)
        written(made, FOLDER / f"{name}.safetensors")
        weights = {key: [str(x.dtype).removeprefix("torch."), list(x.shape), digest(numbers(x))]
                   for key, x in made.decoded.items()}  # fmt: skip
        versions = {package: _version(package) for package in made.packages}
        digests[name] = {"packages": versions, "config": made.config, "weights": weights}
        print(name, (FOLDER / f"{name}.safetensors").stat().st_size, "bytes")
    DIGESTS.write_text(json.dumps(digests, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
