"""`python -m benchmarks.gguf`: reading and writing the types of GGUF files beside a copy and the package libgguf.

One thread, the worst of several runs. libgguf has ggml's own C functions. Without the package its rows are left out.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np

from floatsim.quantization import from_gguf, to_gguf

from .targets import Row, program

WRITTEN = ("Q4_0", "Q8_0", "MXFP4", "IQ4_NL", "IQ4_XS", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ3_S", "TQ2_0")
"""The types whose writers need no weights."""
WIDTH = 1024


def rows(size: int) -> list[Row]:
    """Return the calls: matrices of 16 * size rows are copied and read, of size rows written."""
    x = np.random.default_rng(0).standard_normal((16 * size, WIDTH)).astype(np.float32)
    small = x[:size]
    found = [Row("copy of float32", x.copy, x.size)]
    blocks = {name: np.tile(to_gguf(small, name), (16, 1)) for name in WRITTEN}
    found += [Row(f"from_gguf, {name}", _call(_read, blocks[name], name), x.size) for name in WRITTEN]
    found += [Row(f"to_gguf, {name}", _call(to_gguf, small, name), small.size) for name in WRITTEN]
    if importlib.util.find_spec("libgguf"):
        import libgguf

        kinds = {name: libgguf.GGMLQuantizationType[name] for name in WRITTEN}
        found += [
            Row(f"libgguf reads {name}", _call(libgguf.dequantize_rows, blocks[name], int(kind), WIDTH), x.size)
            for name, kind in kinds.items()
        ]
        found += [
            Row(f"libgguf writes {name}", _call(libgguf.quantize_rows, small, kind), small.size)
            for name, kind in kinds.items()
        ]
    return found


def _call(function: Callable[..., Any], *operands: Any) -> Callable[[], Any]:
    return lambda: function(*operands)


def _read(blocks: Any, name: str) -> Any:
    return from_gguf(blocks, name).values


if __name__ == "__main__":
    program("gguf", __doc__, rows, quick=1, full=64)
