"""`floatsim explain`: the steps of one addition, multiplication or fused multiply-add."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

import floatsim
from floatsim.analysis.explain import code_text, flag_names
from floatsim.analysis.explain_operation import ExplainedOperation
from floatsim.cli.console import BadInputError, Json, bad_input, named_format, print_json

__all__ = ["explain_command"]

_OPERATIONS = {"add": 2, "multiply": 2, "fma": 3}
"""The operations, with the number of their operands."""


def explain_command(
    operation: Annotated[str, typer.Argument(help="add, multiply or fma.")],
    operands: Annotated[list[str], typer.Argument(help="Two numbers; three for fma: 0.1, 1/3, -1e-3, 0x1.8p3, inf.")],
    fmt: Annotated[str, typer.Option("--format", "-f", help="The format of the operands and of the result.")] = "fp32",
    rounding: Annotated[
        str | None, typer.Option(help="Rounding mode: RNE, RTZ, toward_positive, ... (fs.Rounding).")
    ] = None,
    overflow: Annotated[
        str | None, typer.Option(help="Overflow policy: infinity, saturate_finite or saturate_propagate.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of stochastic rounding.")] = None,
    picture: Annotated[
        Path | None, typer.Option(help="Write the bits of all steps as a picture: FILE.png, FILE.svg or FILE.pdf.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Explain one operation step by step: align, add or multiply, normalize, round."""
    if operation not in _OPERATIONS:
        raise BadInputError(f"OPERATION: {operation!r} is not known; known are {', '.join(_OPERATIONS)}")
    count = _OPERATIONS[operation]
    if len(operands) != count:
        raise BadInputError(f"{operation} needs {count} operands, not {len(operands)}")
    chosen = named_format(fmt, "--format")
    options: Any = {"rounding": rounding, "overflow": overflow, "seed": seed}  # checked by the function
    explain = getattr(floatsim, f"explain_{operation}")
    try:
        told: ExplainedOperation = explain(*(text.strip() for text in operands), chosen, **options)
        if picture is not None:
            told.plot().figure.figure.savefig(picture)
    except (TypeError, ValueError) as error:
        raise bad_input(error) from None
    if as_json:
        print_json(_facts(told))
    else:
        print(told)


def _facts(told: ExplainedOperation) -> dict[str, Any]:
    """Return the explanation in JSON types. Exact numbers are texts."""
    return {
        "operation": told.operation,
        "format": told.format.name,
        "operands": [
            {**asdict(x), "format": x.format.name, "code": code_text(x.code, x.format)} for x in told.operands
        ],
        "exact": None if told.exact is None else str(told.exact),
        "aligned": told.aligned,
        "normalized": told.normalized,
        "steps": [asdict(step) for step in told.steps],
        "code": code_text(told.code, told.format),
        "value": told.value,
        "flags": flag_names(told.flags),
    }
