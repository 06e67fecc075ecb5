"""Matrices of a million numbers, and digests of their NVFP4 codes and scales, made with published reference code.

`python tests/quantization/nvfp4_vectors.py FOLDER` writes nvfp4_digests.json. FOLDER has the sources of the commits in
`COMMITS`: TransformerEngine, fouroversix, ao and Model-Optimizer. Only their PyTorch code for the CPU runs. Modules
that need a GPU or other packages are left out.
"""

from __future__ import annotations

import hashlib
import importlib
import itertools
import json
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np

FILE = Path(__file__).parent / "nvfp4_digests.json"
COMMITS = {
    "TransformerEngine": "d0067d0da6cb01811b8072a7d304f0e00344ce2b",
    "fouroversix": "dadfad6901d473a734fe71e0b082e70ee993e23a",
    "ao": "36027d82d1ad9949597ea16002ff4940374b1b94",
    "Model-Optimizer": "a2fbac7bad8ab446d3f8783dadb0c3366eb0ad73",
}
SIDES = 256, 1024
MATRICES = ("magnitudes", "outlier", "calibrated")
CALIBRATED = 1.5
"""The largest magnitude that a calibration is said to have found; that of the matrix is 8."""


def matrix(name: str, side: int) -> np.ndarray:
    """A square matrix, made of random bits, so that it is the same in every version of NumPy; no zero is negative.

    "magnitudes": rows of many magnitudes, ties, blocks of zeros. "outlier": one element of 3e4. "calibrated": elements
    up to 8, a block of zeros and a NaN; the scale of the tensor comes from `CALIBRATED`.
    """
    bits = np.frombuffer(hashlib.shake_128(f"nvfp4 {name}".encode()).digest(side * side * 4), "<u4")
    u = (bits >> 8).astype(np.float32).reshape(side, side) * np.float32(2**-23) - np.float32(1)  # -1 to 1
    x = u * u * u * np.float32(8)
    if name == "magnitudes":
        x *= np.ldexp(np.float32(1), np.arange(side).reshape(-1, 1) % 7 - 6).astype(np.float32)
        x[1], x[2:4, :64], x[16:32, 32:48] = 0, 0, 0
        x[5] = np.round(x[5] * 8) / 8  # ties
    elif name == "outlier":
        x[7, 100] = 3e4
        x[32:48, 64:80] = 0
    else:
        x[2, 16:32], x[64:80, :16] = 0, 0
        x[9, 40] = np.nan
    x[x == 0] = 0
    return x


def codes_of(packed: Any) -> np.ndarray:
    """The codes of bytes with two of them, the first in the low bits."""
    array = packed.numpy().astype(np.uint8)
    return np.stack([array & 15, array >> 4], axis=-1).reshape(array.shape[0], -1)


def digest(codes: np.ndarray, scales: np.ndarray) -> str:
    """The digest of the codes and of the E4M3 bytes of the scales, one for each block.

    All NaNs count as one, and the codes of blocks with a NaN as 0: what NaN becomes in E2M1 differs.
    """
    scales = np.where(scales & 0x7F == 0x7F, 0x7F, scales).astype(np.uint8)
    height, width = (a // b for a, b in zip(codes.shape, scales.shape, strict=True))
    nan = np.repeat(np.repeat(scales == 0x7F, height, axis=0), width, axis=1)
    kept = np.where(nan, 0, codes).astype(np.uint8)
    return hashlib.sha256(kept.tobytes() + scales.tobytes()).hexdigest()


# The key is the matrix, the scheme of floatsim, and the keywords; the value says how the reference is called.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "nvfp4": ("TransformerEngine", {}),
    "nvfp4_weight": ("TransformerEngine", {"tile": 16}),
    "nvfp4_row": ("TransformerEngine", {"row": True}),
    "nvfp4_4over6": ("TransformerEngine", {"error": "MAE", "largest": 256}),
    "nvfp4_4over6 448": ("TransformerEngine", {"error": "MAE", "largest": 448}),
    "nvfp4_4over6_mse": ("TransformerEngine", {"error": "MSE", "largest": 256}),
    "nvfp4_4over6_mse 448": ("TransformerEngine", {"error": "MSE", "largest": 448}),
    "nvfp4_4over6_weight": ("TransformerEngine", {"error": "MAE", "largest": 256, "tile": 16}),
    "nvfp4_4over6 row": ("TransformerEngine", {"error": "MAE", "largest": 256, "row": True}),
    "fouroversix": ("fouroversix", {"rule": "mse"}),
    "fouroversix_mae": ("fouroversix", {"rule": "mae"}),
    "fouroversix absmax": ("fouroversix", {"rule": "abs_max"}),
    "fouroversix weight": ("fouroversix", {"rule": "mse", "tile": 16}),
    "nvfp4_torchao": ("ao", {}),
    "nvfp4_modelopt": ("Model-Optimizer", {}),
}
KEYWORDS: dict[str, tuple[str, dict[str, Any]]] = {
    "nvfp4_4over6 448": ("nvfp4_4over6", {"scale_max": 448}),
    "nvfp4_4over6_mse 448": ("nvfp4_4over6_mse", {"scale_max": 448}),
    "nvfp4_4over6 row": ("nvfp4_4over6", {"outer": "row"}),
    "fouroversix absmax": ("fouroversix", {"rule": "fouroversix_absmax"}),
    "fouroversix weight": ("fouroversix", {"block": (16, 16)}),
}
"""The scheme and keywords of `fs.quantize_blocks`, where the key is no scheme."""


def cases(name: str) -> list[str]:
    """The cases of a matrix. fouroversix does not clip: beyond 7 its code is wrong, and so with a small scale."""
    return [case for case, (package, _) in CASES.items() if name != "calibrated" or package != "fouroversix"]


def given(case: str, name: str, side: int) -> dict[str, Any]:
    """The keywords with the calibrated scale of the tensor."""
    if name != "calibrated":
        return {}
    if case == "nvfp4_torchao":
        return {"tensor_scale": np.float32(CALIBRATED) / np.float32(2688)}
    return {"tensor_amax": np.full((side, 1) if case.endswith("row") else (), CALIBRATED, np.float32)}


# -- the references ----------------------------------------------------------------------------------------------------


def _module(name: str, path: Path | None = None, **names: Any) -> types.ModuleType:
    """Put a module into `sys.modules` in place of one that cannot be imported; with a path, a package."""
    module = types.ModuleType(name)
    if path is not None:
        module.__path__ = [str(path)]
    for key, value in names.items():
        setattr(module, key, value)
    sys.modules[name] = module
    return module


def transformer_engine(folder: Path) -> Any:
    root = folder / "TransformerEngine" / "transformer_engine" / "pytorch"
    _module("transformer_engine", root.parent)
    _module("transformer_engine.pytorch", root)
    _module("transformer_engine.pytorch.custom_recipes", root / "custom_recipes", gemm=None)
    _module("transformer_engine.pytorch.custom_recipes.gemm", MMParams=object, GEMMType=types.SimpleNamespace(FPROP=0))
    sys.modules["transformer_engine.pytorch.custom_recipes"].gemm = sys.modules[  # type: ignore[attr-defined]
        "transformer_engine.pytorch.custom_recipes.gemm"
    ]
    _module("transformer_engine.pytorch.quantized_tensor", QuantizedTensorStorage=object, Quantizer=object)
    return importlib.import_module("transformer_engine.pytorch.custom_recipes.reference_nvfp4").NVFP4QuantizerRef


def by_transformer_engine(quantizer: Any, x: Any, how: dict[str, Any], amax: Any) -> tuple[np.ndarray, np.ndarray]:
    import torch

    tile, row = how.get("tile", 1), how.get("row", False)
    if amax is None:
        amax = x.abs().amax(dim=1) if row else x.abs().max().view(1)
    else:
        amax = torch.full((len(x),) if row else (1,), amax)
    packed, scales = quantizer._quantize_blockwise_reference(
        x, amax, 16, tile, pow_2_scales=False, row_scaled_nvfp4=row, nvfp4_use_4over6="error" in how,
        nvfp4_e4m3_max=how.get("largest", 448), nvfp4_4over6_err_mode=how.get("error", "MAE"), eps=0.0,
    )  # fmt: skip
    return codes_of(packed), scales.view(torch.uint8).numpy()[::tile]


def fouroversix(folder: Path) -> Any:
    root = folder / "fouroversix" / "src" / "fouroversix"
    for name in ("", ".quantize", ".quantize.pytorch", ".kernels"):
        _module(f"fouroversix{name}", root / Path(*name.split(".")))
    return importlib.import_module("fouroversix.quantize.pytorch.reference")


def by_fouroversix(reference: Any, x: Any, how: dict[str, Any], amax: Any) -> tuple[np.ndarray, np.ndarray]:
    import torch

    tile = how.get("tile", 1)
    rule = sys.modules["fouroversix.utils"].ScaleRule(how["rule"])
    packed, scales, _ = reference.quantize(
        x, None if amax is None else torch.tensor(amax), scale_rule=rule, block_scale_2d=tile > 1,
        use_blackwell_scale_layout=False,
    )  # fmt: skip
    return codes_of(packed), scales.reshape(len(x), -1).contiguous().view(torch.uint8).numpy()[::tile]


def ao(folder: Path) -> Any:
    sys.path.insert(0, str(folder / "ao"))
    return importlib.import_module("torchao.prototype.mx_formats.nvfp4_tensor")


def by_ao(module: Any, x: Any, how: dict[str, Any], amax: Any) -> tuple[np.ndarray, np.ndarray]:
    import torch

    largest = x.abs().max() if amax is None else torch.tensor(amax)
    scales, packed = module.nvfp4_quantize(x, 16, module.per_tensor_amax_to_scale(largest))
    return codes_of(packed), scales.view(torch.uint8).numpy()


def model_optimizer(folder: Path) -> Any:
    import torch

    root = folder / "Model-Optimizer" / "modelopt" / "torch" / "quantization"
    for name in ("", ".torch"):
        _module(f"modelopt{name}", root)
    package = "modelopt.torch.quantization"
    _module(package, root)
    _module(f"{package}.backends", root / "backends")
    _module(f"{package}.backends.utils", fp4_compatible=lambda: False)
    _module(f"{package}.qtensor", root / "qtensor")

    class Base:
        def __init__(self, shape: Any, dtype: Any, data: Any) -> None:
            self._quantized_data = data

    _module(f"{package}.qtensor.base_qtensor", BaseQuantizedTensor=Base)

    def block_amax(x: Any, block_sizes: dict[int, int]) -> Any:
        return x.unflatten(-1, (-1, block_sizes[-1])).abs().amax(-1)

    _module(f"{package}.utils", root / "utils", reduce_amax=lambda x: x.abs().max(), reduce_block_amax=block_amax,
            reduce_block_padding=lambda x, block_sizes: x)  # fmt: skip
    found = importlib.import_module(f"{package}.qtensor.nvfp4_tensor").NVFP4QTensor
    assert torch.equal(found.get_e2m1_values("cpu")[:3], torch.tensor([0, 0.5, 1]))
    return found


def by_model_optimizer(tensor: Any, x: Any, how: dict[str, Any], amax: Any) -> tuple[np.ndarray, np.ndarray]:
    import torch

    second = None if amax is None else torch.tensor(amax) / 2688.0
    q, scales, _ = tensor.quantize(x.clone(), 16, weights_scaling_factor_2=second)
    return codes_of(q._quantized_data), scales.view(torch.uint8).numpy()


REFERENCES = {
    "TransformerEngine": (transformer_engine, by_transformer_engine), "fouroversix": (fouroversix, by_fouroversix),
    "ao": (ao, by_ao), "Model-Optimizer": (model_optimizer, by_model_optimizer),
}  # fmt: skip


def main() -> None:
    import torch

    folder = Path(sys.argv[1])
    loaded = {name: load(folder) for name, (load, _) in REFERENCES.items()}
    found: dict[str, dict[str, str]] = {}
    for name, side in itertools.product(MATRICES, SIDES):
        x, of_matrix = torch.from_numpy(matrix(name, side)), found.setdefault(f"{name} {side}", {})
        amax = CALIBRATED if name == "calibrated" else None
        for case in cases(name):
            package, how = CASES[case]
            of_matrix[case] = digest(*REFERENCES[package][1](loaded[package], x, how, amax))
    made = {"commits": COMMITS, "torch": torch.__version__, "digests": found}
    FILE.write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
