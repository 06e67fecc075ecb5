"""`floatsim kernel`: how a kernel of a GPU library adds, from its name."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

import floatsim
from floatsim.accumulation.gpu_libraries import DEVICES, FUNCTIONS, describe_kernel
from floatsim.cli.console import BadInputError, Json, bad_input, print_json

__all__ = ["kernel_command"]


def kernel_command(
    name: Annotated[str, typer.Argument(help="The kernel's name, as torch.profiler or Nsight Systems shows it.")],
    shape: Annotated[str | None, typer.Option(help="M,N,K of the product (M, K) by (K, N): 64,64,4096.")] = None,
    dtype: Annotated[str, typer.Option(help="The dtype of the operands: float16, bfloat16, float32, ...")] = "float16",
    grid: Annotated[str | None, typer.Option(help="The grid of the kernel: x,y,z.")] = None,
    also: Annotated[
        list[str] | None, typer.Option(help="The name of another kernel of the call. Repeat it.", show_default=False)
    ] = None,
    function: Annotated[str, typer.Option(help=f"The call: {', '.join(FUNCTIONS)}.")] = "torch.matmul",
    device: Annotated[str, typer.Option(help=f"The GPU: {', '.join(DEVICES)}.")] = "h200",
    as_json: Json = False,
) -> None:
    """Describe the sum of a kernel of cuBLAS or cuDNN; with --shape, print the description of a call."""
    sizes, blocks = _numbers(shape, "--shape"), _numbers(grid, "--grid")
    try:
        found = describe_kernel(name)
        facts: dict[str, Any] = {**asdict(found), "described": found.described}
        lines = [str(found)]
        if sizes is not None:
            names = [name, *(also or [])]
            (region,) = floatsim.library_sum(
                function, dtype, sizes, device=device, kernel=names, grid=blocks
            )  # fmt: skip
            facts |= {"accumulate": str(region.accumulate), "format": region.format.name}
            lines.append(f"call      accumulate={str(region.accumulate)!r}, format={region.format.name.lower()!r}")
    except (TypeError, ValueError) as error:
        raise bad_input(error) from None
    if as_json:
        print_json(facts)
    else:
        print("\n".join(lines))


def _numbers(text: str | None, option: str) -> list[int] | None:
    if text is None:
        return None
    try:
        return [int(part) for part in text.replace("x", ",").split(",")]
    except ValueError:
        raise BadInputError(f"{option}: {text!r} is no list of integers, such as 64,64,4096") from None
