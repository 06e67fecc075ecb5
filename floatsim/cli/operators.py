"""`floatsim operators`: the error and the events of operators under recipes, on real activations."""

from __future__ import annotations

from typing import Annotated

import typer

from floatsim.cli.console import (
    BadInputError,
    Json,
    named_format,
    one_line,
    print_json,
    rich_console,
    split,
    track,
)
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
    scale: Annotated[float, typer.Option(help="Factor of the operands. Large factors make FP16 overflow.")] = 1.0,
    as_json: Json = False,
) -> None:
    """Run operators under recipes on activations of a real network. Print the errors and the events."""
    chosen = named_format(fmt or "fp16", "--operands")
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
