"""Random blocks of each GGUF type, and the SHA-256 digests of their numbers, made with published packages.

`python tests/quantization/gguf_vectors.py` writes gguf_digests.json with the installed packages gguf and libgguf.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np

FILE = Path(__file__).parent / "gguf_digests.json"
COUNT = 512
QUANTIZED = (
    "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "TQ1_0", "TQ2_0", "MXFP4", "NVFP4",
    "Q1_0", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ1_S", "IQ1_M", "IQ4_NL", "IQ4_XS",
)  # fmt: skip
"""The types whose quantization is compared."""
NEED_WEIGHTS = ("IQ2_XXS", "IQ2_XS", "IQ1_S")
"""The types that ggml writes with weights only. Without weights, libgguf gives it sums of squares."""


def random_blocks(name: str, nbytes: int, count: int = COUNT, seed: int = 0) -> np.ndarray:
    """Random bytes, with NaN, infinite and negative scales, from a hash of the name: the same everywhere."""
    content = hashlib.shake_128(f"{name} {seed}".encode()).digest(count * nbytes)
    return np.frombuffer(content, np.uint8).reshape(count, nbytes)


def random_matrix(rows: int = 24, seed: int = 0, width: int = 1024) -> tuple[np.ndarray, np.ndarray]:
    """A matrix of many magnitudes with rows of special kinds, and the weights of its columns.

    The numbers are made of random bits, so that they are the same in every version of NumPy.
    """
    bits = np.frombuffer(hashlib.shake_128(f"matrix {seed}".encode()).digest(rows * width * 4), "<u4")
    u = (bits >> 8).astype(np.float32).reshape(rows, width) * np.float32(2**-23) - np.float32(1)  # -1 to 1
    x = u * u * u * np.ldexp(np.float32(1), np.arange(rows).reshape(-1, 1) % 17 - 8).astype(np.float32)
    x[1] = 0
    x[2, :256] = -0.0
    x[3], x[4] = np.abs(x[3]), -np.abs(x[4])
    x[5] = np.round(x[5] * 64) / 64  # ties
    x[6, :512] = 1.0
    x[7] *= np.abs(u[8]) < 0.1  # zeros of both signs
    x[9] *= np.float32(1e-18)  # groups that count as zeros
    x[10] *= np.float32(1e-38)  # subnormal numbers
    x[11] *= np.float32(1e6)  # scales beyond FP16
    # Products, not `**`: NumPy's power of FP32 numbers has other last bits on processors with AVX-512.
    weight = np.abs(u[12]).astype(np.float64)
    return x, (weight * weight * weight).astype(np.float32) * 10 + np.float32(1e-3)


def cases(name: str, weights: np.ndarray) -> list[np.ndarray | None]:
    """No weights, if the type allows it; the weights; and weights that are hard to fit.

    These are weights with groups of zeros and a range of 10**12; a few large ones, which make scales of groups
    negative; and tiny ones, whose products are zeros of both signs.
    """
    columns = np.arange(len(weights))
    sparse = np.where((columns % 3 == 0) & (columns // 32 % 5 > 0), weights * weights * np.float32(1e-6), np.float32(0))
    few = [np.where(columns % 37 == 0, np.float32(1e6), np.float32(other)) for other in (1e-6, 1e-3)]
    hard = [each.astype(np.float32) for each in (sparse, *few, weights * np.float32(1e-41))]
    return ([] if name in NEED_WEIGHTS else [None]) + [weights, *hard]


def digest(values: np.ndarray) -> str:
    """The digest of FP32 numbers; all NaNs count as one."""
    return hashlib.sha256(np.where(np.isnan(values), np.float32(np.nan), values).astype("<f4").tobytes()).hexdigest()


def by_package(name: str, blocks: np.ndarray) -> np.ndarray:
    """The numbers by the package gguf, and by libgguf where gguf has no such function."""
    import gguf

    kind = gguf.GGMLQuantizationType[name]
    with np.errstate(all="ignore"):
        try:
            return gguf.quants.dequantize(blocks, kind)
        except NotImplementedError:
            import libgguf

            size = gguf.GGML_QUANT_SIZES[kind][0]
            return np.asarray(libgguf.dequantize_rows(blocks, int(kind), n_per_row=size)).reshape(len(blocks), size)


def quantized_by_package(name: str, x: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """The blocks of a matrix by the package libgguf, (rows, bytes)."""
    import libgguf

    kind = libgguf.GGMLQuantizationType[name]
    return np.frombuffer(libgguf.quantize_rows(x, kind, imatrix=weights), np.uint8).reshape(len(x), -1)


def main() -> None:
    from importlib.metadata import version

    import gguf

    found = {}
    for kind, (size, nbytes) in gguf.GGML_QUANT_SIZES.items():
        if size > 1 and kind.name not in ("Q8_1", "Q8_K"):  # types of activations, which no package dequantizes
            found[kind.name] = digest(by_package(kind.name, random_blocks(kind.name, nbytes)))
    written = {}
    x, weights = random_matrix()
    for name in QUANTIZED:
        blocks = [quantized_by_package(name, x, each) for each in cases(name, weights)]
        written[name] = [hashlib.sha256(each.tobytes()).hexdigest() for each in blocks]
    made = {"gguf": version("gguf"), "libgguf": version("libgguf"), "dequantized": found, "quantized": written}
    FILE.write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
