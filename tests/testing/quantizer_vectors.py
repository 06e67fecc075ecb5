"""Small tensors quantized by published packages, for the tests of `fs.identify_quantizer`.

`python tests/testing/quantizer_vectors.py [gptqmodel sources]` writes quantizer_vectors.npz with the installed packages
torch, compressed-tensors, torchao, bitsandbytes, gguf and libgguf. GPTQModel compiles extensions when it is installed;
its quantizer and its packing are read from the sources of its sdist, and nothing else of it runs.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import json
import math
import sys
import types
from importlib import metadata
from pathlib import Path

import numpy as np

FILE = Path(__file__).parent / "quantizer_vectors.npz"
SHAPE = (32, 256)


def tensor(seed: int, bits: int = 24) -> np.ndarray:
    """A matrix of normal numbers of at most `bits` significant bits, the same in every version of NumPy.

    Half of the rows have numbers of few bits, so that some quotients lie halfway between two codes.
    """
    rows, columns = SHAPE
    raw = hashlib.shake_128(f"quantizers {seed}".encode()).digest(rows * columns * 16)
    u = np.frombuffer(raw, "<u4").astype(np.float64).reshape(4, rows, columns) * 2.0**-32 - 0.5
    x = u.sum(axis=0) * np.ldexp(1.0, np.arange(rows) % 5 - 3).reshape(-1, 1)
    x[::2] = np.rint(x[::2] * 512) / 512
    fraction, exponent = np.frexp(x)
    return np.ldexp(np.rint(np.ldexp(fraction, bits)), exponent - bits).astype(np.float32)


BF16 = 8


def parts(**arrays) -> dict[str, np.ndarray]:
    """Tensors and arrays as NumPy arrays; bfloat16 and float8 as their bytes."""
    import torch

    found = {}
    for name, given in arrays.items():
        x = given
        if x is None:
            continue
        if isinstance(x, torch.Tensor):
            x = x.detach().contiguous()
            if x.dtype == torch.bfloat16:
                x = x.view(torch.uint16)
            elif x.dtype in (torch.float8_e4m3fn, torch.float8_e8m0fnu, torch.float4_e2m1fn_x2):
                x = x.view(torch.uint8)
            x = x.numpy()
        found[name] = np.asarray(x)
    return found


def of_compressed_tensors():
    import torch
    from compressed_tensors.compressors.mx_utils import compress_mx_scale  # noqa: F401
    from compressed_tensors.compressors.nvfp4.helpers import pack_fp4_to_uint8
    from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32
    from compressed_tensors.quantization import QuantizationArgs
    from compressed_tensors.quantization.lifecycle.forward import quantize
    from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam

    def case(seed, packs, dtype=torch.float32, bits=24, two_levels=False, **options):
        x = torch.from_numpy(tensor(seed, bits)).to(dtype)
        args = QuantizationArgs(**options)
        width = {"channel": SHAPE[1], "tensor": x.numel()}.get(str(args.strategy), args.group_size)
        groups = x.reshape(-1) if width == x.numel() else x.reshape(SHAPE[0], -1, width)
        dims = {} if width == x.numel() else {"dim": -1}
        low, high = torch.aminmax(groups, **dims)
        whole = generate_gparam(x.min(), x.max()) if two_levels else None
        scales, zeros = calculate_qparams(low, high, args, global_scale=whole)
        codes = quantize(x, scales, zeros, args, dtype=packs[0], global_scale=whole)
        if len(packs) > 1:
            codes = packs[1](codes)
        return parts(codes=codes, scales=scales, zero_points=None if args.symmetric else zeros, tensor_scale=whole)

    int4 = (torch.int8, lambda codes: pack_to_int32(codes, 4))
    group = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128}
    mx = {"type": "float", "symmetric": True, "strategy": "group", "group_size": 32, "scale_dtype": torch.uint8,
          "zp_dtype": torch.uint8}  # fmt: skip

    def mx_case(seed, bits, packs):
        found = case(seed, packs, num_bits=bits, **mx)
        scales = found["scales"]
        if scales.dtype != np.uint8:
            scales = (np.log2(scales.astype(np.float64)) + 127).astype(np.uint8)
        return {**found, "scales": scales}

    fp4 = (None, pack_fp4_to_uint8)
    yield "int8, channels", case(1, (torch.int8,), num_bits=8, type="int", strategy="channel")
    yield "int4, groups, packed", case(2, int4, symmetric=True, **group)
    yield "int4, groups, asymmetric, packed", case(3, int4, symmetric=False, **group)
    yield "int4, groups, BF16, packed", case(4, int4, torch.bfloat16, BF16, symmetric=True, **group)
    yield "fp8, channels", case(5, (torch.float8_e4m3fn,), num_bits=8, type="float", strategy="channel")
    yield "mxfp4", mx_case(6, 4, fp4)
    yield "mxfp8", mx_case(7, 8, (torch.float8_e4m3fn,))
    yield "nvfp4", case(8, fp4, num_bits=4, type="float", strategy="tensor_group", group_size=16, two_levels=True,
                        scale_dtype=torch.float8_e4m3fn, zp_dtype=torch.float8_e4m3fn)  # fmt: skip


def of_torchao():
    import torch
    from torchao.prototype.mx_formats import mx_tensor as mx
    from torchao.prototype.mx_formats import nvfp4_tensor as nv
    from torchao.quantization import quant_primitives as ao

    for mode in ("FLOOR", "RCEIL", "CEIL", "EVEN"):
        for seed, kind in ((11, torch.float4_e2m1fn_x2), (12, torch.float8_e4m3fn)):
            x = torch.from_numpy(tensor(seed))
            scales, codes = mx.to_mx(x, kind, 32, mx.ScaleCalculationMode[mode])
            name = "mxfp4" if seed == 11 else "mxfp8"
            yield f"{name}, {mode}", parts(codes=codes, scales=scales)
    x = torch.from_numpy(tensor(13))
    whole = nv.per_tensor_amax_to_scale(x.abs().max())
    scales, codes = nv.nvfp4_quantize(x, 16, whole)
    yield "nvfp4, two levels", parts(codes=codes, scales=scales, tensor_scale=whole)
    scales, codes = nv.nvfp4_quantize(x, 16, None)
    yield "nvfp4, one level", parts(codes=codes, scales=scales)
    for seed, mapping, kind, low, high in (
        (14, "SYMMETRIC", torch.int8, -128, 127), (15, "ASYMMETRIC", torch.uint8, 0, 15),
        (16, "SYMMETRIC_NO_CLIPPING_ERR", torch.int8, -8, 7),
    ):  # fmt: skip
        x = torch.from_numpy(tensor(seed))
        scales, zeros = ao.choose_qparams_affine(x, ao.MappingType[mapping], (1, 128), kind, low, high)
        codes = ao.quantize_affine(x, (1, 128), scales, zeros, kind, low, high)
        zeros = zeros if mapping == "ASYMMETRIC" else None
        yield f"{mapping.lower()} {low} to {high}", parts(codes=codes, scales=scales, zero_points=zeros)


def of_bitsandbytes():
    import torch
    from bitsandbytes import functional

    for seed, kind in ((21, "nf4"), (22, "fp4")):
        packed, state = functional.quantize_4bit(torch.from_numpy(tensor(seed)), blocksize=64, quant_type=kind)
        yield kind, parts(codes=packed, scales=state.absmax)
    codes, state = functional.quantize_blockwise(torch.from_numpy(tensor(23)), blocksize=256)
    yield "dynamic8", parts(codes=codes, scales=state.absmax)
    codes, scales, _ = functional.int8_vectorwise_quant(torch.from_numpy(tensor(24, 11)).to(torch.float16))
    yield "int8", parts(codes=codes, scales=scales)


def source_of(path: Path, name: str) -> str:
    """The source of a function or method."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            node.decorator_list = []
            return ast.unparse(node)
    raise LookupError(name)


def of_gptqmodel(sources: Path):
    """`Quantizer.find_params`, `Quantizer.quantize`, `pack_original` and the subtraction of version 1."""
    import torch

    class Log:
        def __getattr__(self, _):
            return lambda *arguments, **more: None

    package = "quantizer_source"
    stubs = {
        package: types.ModuleType(package), f"{package}.quantization": types.ModuleType("quantization"),
        f"{package}.utils": types.ModuleType("utils"), f"{package}.utils.logger": types.ModuleType("logger"),
        f"{package}.quantization.config": types.ModuleType("config"),
    }  # fmt: skip
    for module in stubs.values():
        module.__path__ = []
    stubs[f"{package}.utils.logger"].setup_logger = Log
    for name in ("BaseQuantizeConfig", "_normalize_quant_bits", "resolve_quant_format"):
        setattr(stubs[f"{package}.quantization.config"], name, object)
    sys.modules.update(stubs)
    text = (sources / "gptqmodel/quantization/quantizer.py").read_text(encoding="utf-8")
    space = {"__package__": f"{package}.quantization", "__name__": f"{package}.quantization.quantizer"}
    exec(compile(text, "quantizer.py", "exec"), space)
    transformers = types.SimpleNamespace(pytorch_utils=types.SimpleNamespace(Conv1D=type("Conv1D", (), {})))
    limits = types.SimpleNamespace(threadpool_limits=lambda _: contextlib.nullcontext())
    packing = {
        "t": torch, "nn": torch.nn, "np": np, "math": math, "transformers": transformers, "THREADPOOLCTL": limits,
        "_ConvNd": torch.nn.modules.conv._ConvNd,
    }  # fmt: skip
    file = sources / "gptqmodel/nn_modules/qlinear/__init__.py"
    exec("from __future__ import annotations\n" + source_of(file, "pack_original"), packing)

    def case(seed, symmetric, bits=4):
        x = torch.from_numpy(tensor(seed))
        scales, zeros, read_back = [], [], torch.empty_like(x)
        for start in range(0, SHAPE[1], 128):
            config = types.SimpleNamespace(bits=bits, sym=symmetric, mse=0.0)
            quantizer = space["Quantizer"](config)
            quantizer.configure(perchannel=True)
            part = x[:, start : start + 128]
            quantizer.find_params(part, weight=True)
            read_back[:, start : start + 128] = quantizer.quantize(part)
            scales.append(quantizer.scale)
            zeros.append(quantizer.zero)
        module = types.SimpleNamespace(
            bits=bits, maxq=2**bits - 1, pack_dtype_bits=32, pack_factor=32 // bits, planar=False,
            pack_np_math_dtype=np.uint32, pack_np_dtype=np.int32, pack_dtype=torch.int32,
        )  # fmt: skip
        module.register_buffer = lambda name, value: setattr(module, name, value)
        linear = torch.nn.Linear(SHAPE[1], SHAPE[0], bias=False)
        linear.weight.data = read_back
        order = torch.arange(SHAPE[1]) // 128
        packing["pack_original"](module, linear, torch.cat(scales, 1), torch.cat(zeros, 1), order)
        ones = sum(1 << shift for shift in range(0, 32, bits))
        version1 = (module.qzeros.numpy().view(np.uint32) - np.uint32(ones)).view(np.int32)
        first = parts(codes=module.qweight, scales=module.scales, zero_points=version1)
        return first, {**first, "zero_points": module.qzeros.numpy()}

    for name, found in (("symmetric", case(31, True)), ("asymmetric", case(32, False)), ("8 bits", case(33, True, 8))):
        yield f"{name}, version 1", found[0]
        yield f"{name}, version 2", found[1]


GGUF = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q6_K", "TQ2_0", "MXFP4", "NVFP4")


def of_gguf():
    import gguf
    import libgguf

    for n, kind in enumerate(GGUF):
        x = tensor(41 + n)
        number = gguf.GGMLQuantizationType[kind]
        try:
            data = gguf.quantize(x, number)
        except NotImplementedError:
            data = np.frombuffer(libgguf.quantize_rows(x, int(number), imatrix=None), np.uint8)
        yield kind, {"codes": np.asarray(data, np.uint8).reshape(SHAPE[0], -1)}


def main() -> None:
    """Write the arrays, and the versions of the packages."""
    groups = [
        ("compressed-tensors", of_compressed_tensors), ("torchao", of_torchao), ("bitsandbytes", of_bitsandbytes),
        ("gguf", of_gguf),
    ]  # fmt: skip
    arrays, versions = {}, {name: metadata.version(name) for name in ("torch", "libgguf", *(n for n, _ in groups))}
    if len(sys.argv) > 1:
        sources = Path(sys.argv[1])
        groups.append(("gptqmodel", lambda: of_gptqmodel(sources)))
        about = (sources / "PKG-INFO").read_text(encoding="utf-8")
        versions["gptqmodel"] = next(line[9:] for line in about.splitlines() if line.startswith("Version: "))
    for package, make in groups:
        for name, found in make():
            arrays |= {f"{package}: {name}/{key}": value for key, value in found.items()}
    np.savez_compressed(FILE, versions=np.array(json.dumps(versions)), **arrays)
    print(versions, len(arrays), FILE.stat().st_size)


if __name__ == "__main__":
    main()
