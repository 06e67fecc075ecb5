"""`python -m benchmarks.practice`: training, collectives, the TestFloat pipe; one thread, the worst of several runs."""

from __future__ import annotations

import numpy as np

import floatsim as fs
from floatsim.testing.vectors.testfloat import as_testfloat
from floatsim.testing.vectors.testfloat_text import format_lines, parse_lines
from floatsim.training import Trainer, all_reduce, digits_data, train

from .targets import Row, program


def _pipe(name: str, count: int) -> Row:
    """Return the work of `floatsim testfloat` on lines without results: read, evaluate, write."""
    operation = as_testfloat(name)
    rng = np.random.default_rng(0)
    lines = format_lines([np.frombuffer(rng.bytes(count * bits // 8), f"u{bits // 8}") for bits in operation.operands])

    def run() -> bytes:
        columns = parse_lines(lines, operation.operands)
        return format_lines([*columns, *operation.evaluate(columns)])

    return Row(f"floatsim testfloat {name}, lines", run, count, rate=1e6)


def rows(size: int) -> list[Row]:
    """Return the calls. `size` is the number of thousands of lines, and of elements of each of 64 ranks."""
    data, trainer = digits_data(), Trainer("fp16", lr=0.1)
    x = trainer.inputs(data.x)[:32]
    gradients = fs.array(np.random.default_rng(0).normal(size=(64, 1000 * size)).astype(np.float32), "fp16")
    epochs = min(15, size)
    return [
        *(_pipe(name, 1000 * size) for name in ("f32_mul", "f64_add", "f16_sqrt")),
        Row("a step of digits in FP16, batches of 32", lambda: trainer.step(x, data.y[:32]), 32, seconds=0.005),
        Row(f"digits in FP16, {epochs} epochs", lambda: train("fp16", epochs=epochs, data=data), epochs, seconds=5.0),
        Row("all_reduce of 64 ranks, FP16", lambda: all_reduce(gradients), gradients.size, seconds=0.5),
    ]


if __name__ == "__main__":
    program("practice", __doc__, rows, quick=1, full=1000)
