"""`floatsim twin`: record a training run on a GPU, and check the recording on a CPU, bit by bit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from floatsim.cli.console import BadInputError, Json, finish, one_line, print_json, rich_console

__all__ = ["TWIN_EXIT_CODES", "twin"]

TWIN_EXIT_CODES = "Exit codes: 0 all bits are equal, 1 some differ, 2 bad input or no GPU, 3 could not run."

twin = typer.Typer(
    help="Record a PyTorch training run on a GPU, and check its bits on a CPU.", no_args_is_help=False,
    pretty_exceptions_enable=False,
)  # fmt: skip


def _torch() -> Any:
    """Return floatsim.torch. Raise a `BadInputError` without PyTorch."""
    try:
        import floatsim.torch
    except ImportError as error:
        raise BadInputError(one_line(error)) from None
    return floatsim.torch


@twin.command("record", epilog=TWIN_EXIT_CODES)
def record_command(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL.py", help="A file with build(), batch(step), loss(output, batch), optimizer(parameters)."
        ),
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The file to write, such as run.npz.")],
    device: Annotated[
        str, typer.Option("--device", "-d", help="cuda, this GPU; h200, the emulation of one; or cpu.")
    ] = "cuda",
    steps: Annotated[int, typer.Option("--steps", "-n", min=1, help="Number of training steps.")] = 3,
    autocast: Annotated[str | None, typer.Option(help="bf16 or fp16: run under autocast.")] = None,
    largest: Annotated[
        int, typer.Option(min=0, help="Tensors with more elements are kept as hashes only.")
    ] = 1 << 22,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Record a training run: weights, batches, every module's output and gradient, and the kernels of the GPU."""
    ft = _torch()
    try:
        recording = ft.record_twin(model, out, device=device, steps=steps, autocast=autocast, largest=largest)
    except (ValueError, FileNotFoundError, RuntimeError) as error:
        raise BadInputError(_options(error)) from None
    except OSError as error:
        raise BadInputError(f"OUT: {out} cannot be written: {error.strerror}") from None
    facts = recording.facts
    codes = sum(each.size for each in recording.codes.values())
    found = {
        "file": str(out), "device": facts["device_name"], "emulated": facts["emulated"], "steps": steps,
        "tensors": len(recording.entries), "codes": codes, "kernels": len(facts["kernels"]),
        "unverified": facts.get("unverified", []),
    }  # fmt: skip
    if as_json:
        print_json(found)
        return
    console = rich_console()
    emulated = ", emulated" if facts["emulated"] else ""
    console.print(
        f"{out}: {steps} steps on {facts['device_name']}{emulated}, {len(recording.entries)} tensors, {codes} codes, "
        f"{len(facts['kernels'])} kernels", soft_wrap=True,
    )  # fmt: skip
    for each in found["unverified"]:
        console.print(f"not compared with the device: {each}", soft_wrap=True)


@twin.command("check", epilog=TWIN_EXIT_CODES)
def check_command(
    recording: Annotated[Path, typer.Argument(metavar="OUT", help="A file of `floatsim twin record`.")],
    model: Annotated[
        Path | None, typer.Option("--model", "-m", help="MODEL.py. Default: its text in the recording, which is run.")
    ] = None,
    device: Annotated[
        str | None, typer.Option("--device", "-d", help="h200 or cpu. Default: the device of the recording.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compute a recorded run on this CPU. Name the first module and step whose bits differ, and the likeliest cause."""
    ft = _torch()
    try:
        report = ft.check_twin(recording, model, device=device)
    except (ValueError, FileNotFoundError) as error:
        raise BadInputError(_options(error)) from None
    if as_json:
        print_json(report.to_dict())
    else:
        rich_console().print(str(report), soft_wrap=True)
    finish(differ=not report, failed=False)


def _options(error: Exception) -> str:
    """Return an error about arguments as an error about the options of the command."""
    text = one_line(error)
    for name in ("device", "autocast", "steps", "largest"):
        text = text.replace(f"{name}=", f"--{name} ")
    return text.replace("path=", "OUT: ").replace("give the definition", "add --model MODEL.py")
