"""`floatsim train`: train a small network on the digits under one policy, or under several side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from floatsim.cli.console import BadInputError, Json, one_line, print_json, rich_console, split
from floatsim.training import (
    POLICIES,
    POLICY_ALIASES,
    POLICY_MODIFIERS,
    Monitor,
    SpikePolicy,
    as_policy,
    train,
)
from floatsim.training.loop import Comparison, TrainingRun

__all__ = ["train_command"]


def train_command(
    policies: Annotated[
        list[str] | None,
        typer.Argument(help="Policies, as fp16 or fp16+masters+scaling. Default: fp32.", show_default=False),
    ] = None,
    policy: Annotated[
        list[str] | None, typer.Option("--policy", "-p", help="A policy. Repeat it, or use commas.")
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Compare the policies. It may stand before their names.")
    ] = False,
    network: Annotated[str, typer.Option(help="mlp (64-64-10), cnn or transformer.")] = "mlp",
    optimizer: Annotated[str, typer.Option(help="sgd, momentum, rmsprop, adam or adamw.")] = "sgd",
    lr: Annotated[float, typer.Option(help="Learning rate.")] = 0.1,
    epochs: Annotated[int, typer.Option(min=1, help="Number of epochs.")] = 15,
    batch: Annotated[int, typer.Option(min=1, help="Images of a batch.")] = 32,
    loss_scale: Annotated[
        str | None,
        typer.Option(help="A number, dynamic, apex, deepspeed or keras. Default: that of the policy."),
    ] = None,
    loss_factor: Annotated[float, typer.Option(help="A factor of the loss, which stays in the gradients.")] = 1.0,
    clip: Annotated[float | None, typer.Option(help="The largest norm of the gradients.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first weights and of the batches.")] = 0,
    out: Annotated[Path, typer.Option("--out", "-o", help="File of the picture (.png, .pdf, .svg).")] = Path(
        "floatsim-train.png"
    ),
    monitor: Annotated[
        bool, typer.Option("--monitor", help="Keep statistics of tensors, updates and gradients; print and draw them.")
    ] = False,
    every: Annotated[int, typer.Option(min=1, help="With --monitor: tensors of every n-th step are kept.")] = 45,
    reference: Annotated[
        str | None, typer.Option(help="With --monitor: compare gradients with those of this policy, as fp32.")
    ] = None,
    skip_spikes: Annotated[
        float | None, typer.Option(help="Skip a batch whose gradient norm is above this factor of the median.")
    ] = None,
    list_policies: Annotated[bool, typer.Option("--list", help="Print the policies and their sources.")] = False,
    as_json: Json = False,
) -> None:
    """Train a small network on the digits under policies. Print and draw loss, accuracy and events."""
    if list_policies:
        _print_policies(as_json)
        return
    if not out.parent.is_dir():
        raise BadInputError(f"--out: there is no folder {out.parent}")
    if out.suffix.lower() not in (".png", ".pdf", ".svg"):
        raise BadInputError(f"--out: {out} must end in .png, .pdf or .svg")
    named = [name for text in [*(policies or []), *(policy or [])] for name in split(text)] or ["fp32"]
    if compare and len(named) < 2:
        raise BadInputError("--compare needs two policies or more, such as `floatsim train --compare fp32 fp16`")
    options: dict[str, Any] = {
        "network": network, "optimizer": optimizer, "lr": lr, "epochs": epochs, "batch": batch, "seed": seed,
        "loss_scale": loss_scale, "loss_factor": loss_factor, "clip": clip,
    }  # fmt: skip
    try:
        chosen = [as_policy(name) for name in named]
        monitors = [_monitor(monitor, every, reference, skip_spikes) for _ in chosen]
        with _progress(len(chosen), epochs, batch) as report:
            runs = [
                train(each, **options, name=name, progress=report(name), monitor=kept)
                for name, each, kept in zip(named, chosen, monitors, strict=True)
            ]
    except (ValueError, TypeError) as error:
        raise BadInputError(one_line(error)) from None
    pictures = _draw(runs, out, monitor)
    if as_json:
        print_json({**Comparison(runs).to_dict(), "picture": str(out.resolve()), "pictures": pictures})
    else:
        _print(runs, pictures, monitor)


def _monitor(wanted: bool, every: int, reference: str | None, skip_spikes: float | None) -> Monitor | None:
    """Return a monitor for one run, or None if no option needs one."""
    if reference is not None and not wanted:
        raise BadInputError("--reference needs --monitor")
    if not wanted and skip_spikes is None:
        return None
    spikes = None if skip_spikes is None else SpikePolicy(factor=skip_spikes)
    return Monitor(every=every if wanted else 1 << 31, reference=reference, spikes=spikes)


def _draw(runs: list[TrainingRun], out: Path, monitor: bool) -> list[str]:
    """Write the pictures: of all runs, and with --monitor one of each run. Return their files."""
    from floatsim.plot import monitor_figure, training_figure

    figures = {out: training_figure(runs)}
    for run in runs if monitor else []:
        assert run.monitor is not None
        file = out.with_name(f"{out.stem}-monitor-{run.policy.replace('+', '-')}{out.suffix}")
        figures[file] = monitor_figure(run.monitor, title=run.policy)
    try:
        for file, figure in figures.items():
            figure.savefig(file)
    except OSError as error:
        raise BadInputError(f"--out: {file} cannot be written: {error.strerror}") from None
    return [str(file.resolve()) for file in figures]


@contextmanager
def _progress(runs: int, epochs: int, batch: int) -> Iterator[Callable[[str], Callable[[int], None]]]:
    """Yield a function that makes the callback of one run. It moves a progress bar on stderr if that is a terminal."""
    import sys

    from rich.progress import Progress

    stderr = rich_console(error=True)
    steps = epochs * math.ceil(1437 / batch)
    with Progress(
        console=stderr, transient=True, disable=not stderr.is_terminal, redirect_stdout=sys.stdout.isatty()
    ) as bar:
        task = bar.add_task("training", total=runs * steps)
        done = iter(range(runs))

        def start(name: str) -> Callable[[int], None]:
            before = next(done) * steps
            return lambda step: bar.update(task, completed=before + step, description=name)

        yield start


def _print(runs: list[TrainingRun], pictures: list[str], monitor: bool) -> None:
    console = rich_console()
    console.print(str(Comparison(runs)), soft_wrap=True)
    for run in runs:
        shown = run.events[:3]
        for event in shown:
            console.print(f"  {run.policy}, step {event.step}: {event.text}", style="dim", soft_wrap=True)
        if len(run.events) > len(shown):
            console.print(f"  {run.policy}: {len(run.events) - len(shown)} more events", style="dim")
    for run in runs:
        if run.diverged:
            console.print(run.report(), soft_wrap=True)
    for run in runs if monitor else []:
        console.print(f"\n{run.policy}\n{run.monitor}", soft_wrap=True)
    for n, picture in enumerate(pictures):
        console.print("" if n else "\n", f"picture: {picture}", sep="", soft_wrap=True)


def _print_policies(as_json: bool) -> None:
    rows: list[dict[str, Any]] = [
        {
            "name": name, "source": each.source, "evidence": each.evidence,
            "also": [other for other, target in POLICY_ALIASES.items() if target == name],
        }
        for name, each in POLICIES.items()
    ]  # fmt: skip
    if as_json:
        print_json(rows)
        return
    width = max(len(name) for name in POLICIES)
    for row in rows:
        also = f" (also {', '.join(row['also'])})" if row["also"] else ""
        rich_console().print(f"{row['name']:{width}}  {row['source']}{also}", soft_wrap=True)
    rich_console().print("\nModifiers after a name, as in fp16+scaling:", soft_wrap=True)
    for name, fields in POLICY_MODIFIERS.items():
        changes = ", ".join(f"{field}={value!r}" for field, value in fields.items())
        rich_console().print(f"{'+' + name:{width}}  {changes}", soft_wrap=True)
