"""`floatsim operators`: the error and the events of operators under recipes, on real activations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from floatsim.cli.console import (
    BadInputError,
    Json,
    named_format,
    one_line,
    print_json,
    renamed,
    rich_console,
    split,
    track,
)
from floatsim.formats._validation import name_hint
from floatsim.operators import OPERATORS, RECIPES, RecipeTable, operator_steps, recipe_table

__all__ = ["operators_command"]


def operators_command(
    operators: Annotated[
        list[str] | None, typer.Argument(help="Operators, as softmax or layer_norm. Default: all.", show_default=False)
    ] = None,
    recipe: Annotated[
        list[str] | None,
        typer.Option("--recipe", "-r", help="A recipe, as all-fp16 or fp32-inside. Repeat it, or use commas."),
    ] = None,
    fmt: Annotated[
        str | None, typer.Option("--operands", help="Round the operands to this format. Default: fp16.")
    ] = None,
    former: Annotated[str | None, typer.Option("--format", "-f", hidden=True)] = None,
    scale: Annotated[float, typer.Option(help="Factor of the operands. Large factors make FP16 overflow.")] = 1.0,
    model: Annotated[
        bool, typer.Option("--model", help="Run a real sentence encoder, MiniLM-L6, under many formats. Needs PyTorch.")
    ] = False,
    weights: Annotated[Path | None, typer.Option(help="With --model: the file model.safetensors.")] = None,
    rank: Annotated[
        str, typer.Option(help="With --model: the configuration whose layers are ranked by error.")
    ] = "E4M3 1x128",
    as_json: Json = False,
) -> None:
    """Run operators under recipes on activations of a real network. Print the errors and the events."""
    if model:
        _print_encoder(weights, rank, as_json)
        return
    if weights is not None:
        raise BadInputError("--weights needs --model")
    chosen = named_format(renamed(fmt, former, "--operands", "--format") or "fp16", "--operands")
    try:
        names = [name for text in operators or [] for name in split(text)] or None
        for name in names or ():
            operator_steps(name)
        recipes = [name for text in recipe or [] for name in split(text)] or None
        tables = [
            recipe_table([name], recipes, format=chosen, scale=scale)
            for name in track(names or list(OPERATORS), "running")
        ]
    except (ValueError, TypeError) as error:
        raise BadInputError(one_line(error)) from None
    table = RecipeTable(chosen.name, scale, tuple(row for each in tables for row in each.rows))
    if as_json:
        listed = [name for name in RECIPES if any(row.recipe == name for row in table.rows)]
        evidence = {name: {"source": RECIPES[name].source, "evidence": RECIPES[name].evidence} for name in listed}
        print_json({**table.to_dict(), "recipes": evidence})
        return
    console = rich_console()
    console.print(str(table), soft_wrap=True)
    console.print("error: against float64, relative, in the Euclidean norm", style="dim")
    console.print("described: whether the source of the recipe describes the operator", style="dim")


def _print_encoder(weights: Path | None, rank: str, as_json: bool) -> None:
    """Run the sentence encoder under all configurations, and print the table."""
    try:
        from floatsim.torch import encoder
    except ImportError as error:
        raise BadInputError(f"--model needs PyTorch: pip install 'floatsim[torch]' ({error})") from None
    names = [policy.name for policy in encoder.CONFIGURATIONS]
    if rank not in names:
        raise BadInputError(f"--rank {rank!r} is not known; {name_hint(rank, names)}")
    try:
        file = encoder.weights_file(weights)
        network = encoder.load(file)
        tokens, mask = encoder.tokens_of(encoder.SENTENCES, file)
    except (FileNotFoundError, ImportError) as error:
        raise BadInputError(one_line(error)) from None
    policies = track(encoder.CONFIGURATIONS, "running")
    rows = list(encoder.compare(network, tokens, mask, policies, ranked=rank))
    if as_json:
        print_json([row.to_dict() for row in rows])
        return
    rich_console().print(_encoder_table(rows), soft_wrap=True, markup=False, highlight=False)


def _encoder_table(rows: list[Any]) -> str:
    """Return the table, the ranking of layers, and what overflowed, as text."""
    width = max(len(row.name) for row in rows)
    lines = [f"{'format':{width}}  least cosine  seconds"]
    lines += [f"{row.name:{width}}  {min(row.cosines):12.6f}  {row.seconds:7.1f}" for row in rows]
    for row in rows:
        if row.report is not None:
            lines.append(f"layers by error, {row.name}:")
            lines += [f"  {module or '(outside)'}: {error:.2e}" for module, error in row.report.by_module()[:10]]
    overflows = [f"{row.name}: {row.overflow}" for row in rows if row.overflow]
    return "\n".join([*lines, *(overflows or ["nothing overflowed"])])
