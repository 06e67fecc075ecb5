"""`python -m benchmarks.operators`: elements per second of operators, one thread, the worst of several runs."""

from __future__ import annotations

import numpy as np

import floatsim as fs
from floatsim import operators as ops

from .targets import Row, program


def rows(size: int) -> list[Row]:
    """Return the calls. `size` is the number of rows of 1024 features, and of keys of attention."""
    rng = np.random.default_rng(0)
    x, w = fs.array(rng.standard_normal((8 * size, 1024)), "fp16"), fs.array(np.ones(1024), "fp16")
    found = [
        Row(f"{name}, {recipe}", call, x.size, target)
        for recipe, target in (("all-fp16", 50e6), ("all-bf16", None), ("fp32-inside", None))
        for name, call in (
            ("softmax", lambda r=recipe: ops.softmax(x, recipe=r)),
            ("log_softmax", lambda r=recipe: ops.log_softmax(x, recipe=r)),
            ("layer_norm", lambda r=recipe: ops.layer_norm(x, w, w, recipe=r)),
            ("rms_norm", lambda r=recipe: ops.rms_norm(x, w, recipe=r)),
            ("gelu", lambda r=recipe: ops.gelu(x, recipe=r)),
        )
    ]
    found += [
        Row(f"{name}, pytorch-cuda", call, x.size, 30e6)
        for name, call in (
            ("softmax", lambda: ops.softmax(x, recipe="pytorch-cuda")),
            ("layer_norm", lambda: ops.layer_norm(x, w, w, recipe="pytorch-cuda")),
        )
    ]
    q, k, v = (fs.array(rng.standard_normal((8, size, 64)), "fp16") for _ in range(3))
    found += [
        Row(f"attention 8 x {size} x 64, {r}", lambda r=r: ops.attention(q, k, v, recipe=r), q.size, seconds=0.3)
        for r in ("all-fp16", "fp32-inside", "flash-attention-2")
    ]
    return found


if __name__ == "__main__":
    program("operators", __doc__, rows, quick=16, full=512)
