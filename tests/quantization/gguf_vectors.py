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


def random_blocks(name: str, nbytes: int, count: int = COUNT, seed: int = 0) -> np.ndarray:
    """Random bytes, with NaN, infinite and negative scales, from a hash of the name: the same everywhere."""
    content = hashlib.shake_128(f"{name} {seed}".encode()).digest(count * nbytes)
    return np.frombuffer(content, np.uint8).reshape(count, nbytes)


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


def main() -> None:
    from importlib.metadata import version

    import gguf

    found = {}
    for kind, (size, nbytes) in gguf.GGML_QUANT_SIZES.items():
        if size > 1 and kind.name not in ("Q8_1", "Q8_K"):  # types of activations, which no package dequantizes
            found[kind.name] = digest(by_package(kind.name, random_blocks(kind.name, nbytes)))
    made = {"gguf": version("gguf"), "libgguf": version("libgguf"), "dequantized": found}
    FILE.write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
