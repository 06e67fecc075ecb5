"""Measure which bits of an H200 floatsim returns, and print the table of docs/gpu-known-bits.md.

`python tools/measure_known_bits.py` reads the folder of recordings that FLOATSIM_H200 names. It takes some minutes.
Gradients of cuDNN and of the memory-efficient attention are computed in the order of FlashAttention-2, and those of the
latter by the recipe "math", too: their own orders are not known.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import floatsim as fs
from floatsim import operators as ops
from floatsim import training
from floatsim.tensorcore.cuda_functions import CUDA_FUNCTIONS

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.operators import recorded_rows  # noqa: E402

FOLDER = Path(os.environ.get("FLOATSIM_H200", ""))
FORMATS = ("fp32", "fp16", "bf16")
BACKENDS = {
    "flash-attention-2": "FLASH_ATTENTION", "cudnn-attention": "CUDNN_ATTENTION",
    "efficient-attention": "EFFICIENT_ATTENTION", "math": "MATH",
}  # fmt: skip
SHAPES = ((64, 64), (128, 64), (200, 64), (512, 64), (64, 128), (128, 128), (200, 128))
NUMBERS = {
    "pow2.5": ("power", 2.5),
    "div3": ("divide", 3),
    "add_third": ("add", 1 / 3),
    "mul_third": ("multiply", 1 / 3),
}
SAME = {"softmax32": "softmax to FP32", "layer_norm_plain": "layer_norm"}

Found = tuple[str, str, int, int]
"""The operator, the format, and the numbers of equal and of all codes."""


def rows() -> Iterator[Found]:
    """Reductions, softmax, norms, losses, and their gradients."""
    archive = recorded_rows.everything()
    for key in archive:
        kind, operator, fmt, *_ = key.split("|")
        differ, codes = recorded_rows.differing(archive, key)
        yield f"{kind} `{SAME.get(operator, operator)}`", fmt, codes - differ, codes


def functions() -> Iterator[Found]:
    """CUDA's functions: all codes of 16 bits, and 65,536 of FP32."""
    wide, half = np.load(FOLDER / "unary32.npz"), np.load(FOLDER / "unary16.npz")
    for name in sorted({key.split("|")[0] for key in half.files if "|" in key}):
        function, number = NUMBERS.get(name, (name, None))
        fitted = " *" if CUDA_FUNCTIONS[function].fitted else ""
        for fmt in FORMATS:
            if fmt == "fp32" and not CUDA_FUNCTIONS[function].in_fp32:
                continue
            recorded = (wide if fmt == "fp32" else half)[f"{name}|{fmt}"]
            codes = wide["x"].view(np.uint32) if fmt == "fp32" else np.arange(1 << 16, dtype=np.uint16)
            found = fs.library_function(function, fs.from_codes(codes, fmt), number).codes
            equal = int((found == recorded.view(found.dtype)).sum())
            yield f"function `{name}`" + (fitted if fmt == "fp32" else ""), fmt, equal, codes.size


def optimizers() -> Iterator[Found]:
    """Weights after each of five steps."""
    made = {
        "sgd": lambda recipe: training.SGD(0.01, momentum=0.9, weight_decay=0.01, recipe=recipe),
        "adam": lambda recipe: training.Adam(1e-3, recipe=recipe),
        "adamw": lambda recipe: training.AdamW(1e-3, recipe=recipe),
    }
    recorded = np.load(FOLDER / "optimizers.npz")
    for recipe, name in (("cuda", "plain"), ("cuda-foreach", "foreach"), ("cuda-fused", "fused")):
        for kind, make in made.items():
            for fmt in FORMATS:
                rng, optimizer = np.random.default_rng(17), make(recipe)
                weights = {"w": fs.array(rng.standard_normal(2048).astype(np.float32), fmt)}
                for step in range(5):
                    gradient = rng.standard_normal(2048) * 10.0 ** rng.integers(-3, 1)
                    weights = optimizer.step(weights, {"w": fs.array(gradient.astype(np.float32), fmt)})
                    codes = recorded[f"{kind}|{name}|{fmt}|step{step}"]
                    yield f"{kind}, recipe `{recipe}`", fmt, int((weights["w"].codes == codes).sum()), codes.size


def casts() -> Iterator[Found]:
    """Conversions with the NaN codes of the device."""
    recorded, wide = np.load(FOLDER / "casts.npz"), np.load(FOLDER / "unary32.npz")["x"].view(np.uint32)
    for key in (key for key in recorded.files if key.endswith("|cuda")):
        source, target = key.removesuffix("|cuda").split("->")
        fmt = fs.as_format(source)
        x = fs.from_codes(wide if source == "fp32" else np.arange(1 << fmt.bits).astype(fmt.code_dtype), source)
        found = fs.convert(x, target, nan="cuda").codes
        named = source if source in FORMATS else "fp32"
        yield (
            "conversions" if source in FORMATS else "conversions of FP8 to FP32 and BF16",
            named,
            int((found == recorded[key]).sum()),
            found.size,
        )


def attention() -> Iterator[Found]:
    """Outputs of the four backends, and gradients."""
    recorded = np.load(FOLDER / "attention.npz")
    for fmt in FORMATS[1:]:
        for keys, d in SHAPES:
            rng = np.random.default_rng([13, keys, d])
            q, k, v, g = (fs.array(rng.standard_normal((1, 2, keys, d)).astype(np.float32), fmt) for _ in range(4))
            for causal in (False, True):
                at = f"{fmt}|{keys}|{d}|causal={causal}"
                for recipe, name in BACKENDS.items():
                    found = ops.attention(q, k, v, causal=causal, recipe=recipe).codes
                    equal = int((found == recorded[f"{name}|{at}"]).sum())
                    yield f"attention, recipe `{recipe}`, d = {d}", fmt, equal, found.size
                if d != 64 or keys == 512:
                    continue
                block = None if keys == 64 else 128  # cuDNN: more than 64 queries or keys are computed with block= only
                orders: dict[str, Any] = {
                    order: ops.attention_backward(g, q, k, v, causal=causal, recipe=order, block=size)
                    for order, size in (("flash-attention-2", None), ("cudnn-attention", block), ("math", None))
                }
                for recipe, name in BACKENDS.items():
                    others = recipe == "efficient-attention"
                    for order in ("flash-attention-2", "math") if others else (recipe,):
                        named = f" in the order of `{order}`, not shipped" if others else ""
                        if recipe == "cudnn-attention":
                            named = ", 64 keys" if block is None else f" with `block={block}`, 128 and 200 keys"
                        for part, gradient in zip(("dq", "dk", "dv"), orders[order], strict=True):
                            equal = int((gradient.codes == recorded[f"{part}|{name}|{at}"]).sum())
                            yield f"gradient {part} of `{recipe}`{named}", fmt, equal, gradient.size


PARTS = (rows, functions, casts, optimizers, attention)


def table(parts: Iterable[Callable[[], Iterator[Found]]] = PARTS) -> str:
    """Return the shares as a table in Markdown."""
    equal: Counter[tuple[str, str]] = Counter()
    total: Counter[tuple[str, str]] = Counter()
    for part in parts:
        for operator, fmt, same, codes in part():
            equal[operator, fmt] += same
            total[operator, fmt] += codes
        print(f"{part.__name__}: {sum(equal.values()):,} of {sum(total.values()):,}", file=sys.stderr)
    lines = ["| operator | FP32 | FP16 | BF16 |", "| --- " * 4 + "|"]
    for operator in dict.fromkeys(name for name, _ in total):
        cells = [
            f"{share(equal[operator, fmt], total[operator, fmt])} of {total[operator, fmt]:,}"
            if total[operator, fmt] else ""
            for fmt in FORMATS
        ]  # fmt: skip
        lines.append(f"| {operator} | {' | '.join(cells)} |")
    return "\n".join(lines)


def share(equal: int, total: int) -> str:
    """Return a share in percent, which is 100 only if all are equal."""
    return "100 %" if equal == total else f"{int(equal * 10000 / total) / 100} %"


if __name__ == "__main__":
    print(table())
