"""`floatsim warmup`: compile the kernels of common calls, and keep them on disk."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated, Any

import numpy as np
import typer

import floatsim
from floatsim.accumulation import tensor_cores
from floatsim.cli.console import Json, bad_input, print_json, rich_console, split, track
from floatsim.emulator.elementwise.operations import arity
from floatsim.formats import BF16, E4M3, E5M2, FP16, FP32, FloatFormat

__all__ = ["COMMON", "warmup_command"]

COMMON = (
    "fp32", "fp16", "bf16", "kahan(fp16)", "pairwise(fp16)", "exact(fp32)", "ampere", "hopper",
    "blocked(hopper, 128, fp32)",
)  # fmt: skip
"""The accumulations that are compiled by default."""
_FORMATS = FP32, FP16, BF16, E4M3, E5M2
_ARITHMETIC = ("add", "subtract", "multiply", "divide", "sqrt", "maximum", "less")

Calls = Iterator[tuple[str, Callable[[], Any]]]


def _calls_of_formats() -> Calls:
    """Return conversions and arithmetic of the common formats."""
    single = np.ones(16, np.float32)
    for fmt in _FORMATS:
        x = floatsim.array(single, fmt)
        yield f"encode {fmt}", partial(floatsim.encode, single, fmt)
        yield f"quantize {fmt}", partial(floatsim.quantize, single, fmt)
        yield f"decode {fmt}", partial(floatsim.decode, x.codes, fmt)
        for name in _ARITHMETIC:
            yield f"{name} {fmt}", partial(getattr(floatsim, name), *[x] * arity(name))
    x = floatsim.array(single, FP16)
    yield "flags of add", partial(floatsim.add, x, x, return_flags=True)
    yield "flags of encode", partial(floatsim.encode, single, FP16, return_flags=True)


def _calls_of_sums(text: str, fmt: FloatFormat) -> Calls:
    """Return a product and a sum with an accumulation, for operands of one format."""
    a = floatsim.array(np.ones((32, 32)), fmt)
    yield f"matmul {text}", partial(floatsim.matmul, a, a, accumulate=text)
    if not tensor_cores(floatsim.as_accumulation(text)):
        yield f"sum {text}", partial(floatsim.sum, a, accumulate=text)


def warmup_command(
    accumulations: Annotated[
        list[str] | None,
        typer.Argument(help="Accumulations, as kahan(fp16). Default: common ones, and arithmetic.", show_default=False),
    ] = None,
    formats: Annotated[
        str | None, typer.Option("--operands", help="The formats of the operands of sums, with commas. Default: fp16.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compile kernels now, so that no later call waits for it. They are kept on disk, for this processor model."""
    chosen = [part for text in accumulations or () for part in split(text)]
    calls: list[tuple[str, Callable[[], Any]]] = [] if chosen else list(_calls_of_formats())
    try:
        for name in split(formats or "fp16"):
            for text in chosen or COMMON:
                calls += _calls_of_sums(text, floatsim.as_format(name))
    except (TypeError, ValueError) as error:
        raise bad_input(error) from None
    rows: list[dict[str, Any]] = []
    for name, call in track(calls, "compiling"):
        start = time.perf_counter()
        try:
            call()
        except (TypeError, ValueError) as error:
            raise bad_input(error) from None
        rows.append({"call": name, "seconds": round(time.perf_counter() - start, 3)})
    if as_json:
        print_json({"calls": rows})
        return
    console = rich_console()
    total, slow = sum(row["seconds"] for row in rows), [row for row in rows if row["seconds"] >= 1]
    for row in slow:
        console.print(f"{row['seconds']:6.1f} s  {row['call']}")
    console.print(f"Calls: {len(rows)}. Seconds: {total:.1f}. A second run reads the compiled kernels from disk.")
