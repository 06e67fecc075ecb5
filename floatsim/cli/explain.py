"""`floatsim explain`: the steps of one operation, or every rounding of a whole expression."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import typer

import floatsim
from floatsim.analysis.explain import code_text, flag_names
from floatsim.analysis.explain_expression import ExplainedExpression, explain
from floatsim.analysis.explain_operation import ExplainedOperation
from floatsim.analysis.expression_tree import fpcore_named
from floatsim.cli.console import BadInputError, Json, bad_input, named_format, one_line, print_json
from floatsim.formats.rounding import DIVIDE_BY_ZERO

__all__ = ["explain_command"]

_OPERATIONS = {"add": 2, "multiply": 2, "fma": 3}
"""The operations, with the number of their operands."""
_CORES = ".fpcore"
_OPTION = re.compile(r"--([^\W\d]\w*)(?:=(.*))?", re.DOTALL)
_ASSIGNED = re.compile(r"([^\W\d]\w*)=(.*)", re.DOTALL)
_MOST_BYTES = 10_000_000
_DIGITS = 40


def explain_command(
    operation: Annotated[
        str,
        typer.Argument(metavar="EXPRESSION", help="A formula such as 'sqrt(x**2 + 1) - 1', a file of FPCores "
                                                  f"(*{_CORES}), or one operation: add, multiply or fma."),
    ],
    values: Annotated[
        list[str] | None,
        typer.Argument(metavar="[VALUES]...", help="The value of each variable: --x 1e-3, or x=1e-3. Of an operation, "
                                                   "two numbers; three for fma: 0.1, 1/3, -1e-3, 0x1.8p3, inf."),
    ] = None,
    fmt: Annotated[
        str, typer.Option("--format", "-f", help="The format of the operands and of every result.")
    ] = "fp32",
    rounding: Annotated[
        str | None, typer.Option(help="Rounding mode: RNE, RTZ, toward_positive, ... (fs.Rounding).")
    ] = None,
    overflow: Annotated[
        str | None, typer.Option(help="Overflow policy: infinity, saturate_finite or saturate_propagate.")
    ] = None,
    daz: Annotated[bool, typer.Option("--daz", help="Read subnormal operands as zeros.")] = False,
    ftz: Annotated[bool, typer.Option("--ftz", help="Flush tiny results to zero.")] = False,
    seed: Annotated[int | None, typer.Option(help="Seed of stochastic rounding, for one operation.")] = None,
    core: Annotated[
        str | None, typer.Option(help=f"The FPCore of a {_CORES} file: its name, or its number from 1.")
    ] = None,
    over: Annotated[
        tuple[str, float, float] | None,
        typer.Option(metavar="VARIABLE LOW HIGH", help="The interval of an expression's --picture: x 1e-4 1."),
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option(help="Write a picture (FILE.png, FILE.svg, FILE.pdf): the bits of all steps of an operation; the "
                          "errors of an expression over an interval (--over)."),
    ] = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Explain a whole formula: every rounding, how far its error reaches, and the stable form. Or one operation.

    floatsim explain "sqrt(x**2 + 1) - 1" --x 1e-3 --format bf16

    floatsim explain heron.fpcore --core 2 --a 9 --b 4.53125 --c 4.5

    floatsim explain add 1.5 0.1 --format e4m3
    """
    given = values or []
    chosen = named_format(fmt, "--format")
    options: Any = {"rounding": rounding, "overflow": overflow}  # checked by the functions
    options |= {name: True for name, wanted in (("daz", daz), ("ftz", ftz)) if wanted}
    text = operation.strip()
    numbers = [value.strip() for value in given if not (_OPTION.fullmatch(value) or _ASSIGNED.fullmatch(value))]
    told: ExplainedOperation | ExplainedExpression
    if text in _OPERATIONS or (text.isidentifier() and len(numbers) == len(given) > 0):
        for name, value in (("--core", core), ("--over", over)):
            if value is not None:
                raise BadInputError(f"{name} is for an expression, not for {text}")
        told = _operation(text, given, chosen, {**options, "seed": seed})
    else:
        if seed is not None:
            raise BadInputError("--seed: the steps of an expression have no random bits; it is for add, multiply, fma")
        told = _expression(_source(text, core), _variables(given), chosen, options)
    if picture is not None:
        _draw(told, picture, over)
    elif over is not None:
        raise BadInputError("--over is the interval of --picture: add --picture FILE.png")
    if as_json:
        print_json(_facts(told) if isinstance(told, ExplainedOperation) else _expression_facts(told))
    else:
        print(told)


def _operation(name: str, operands: Sequence[str], fmt: Any, options: Mapping[str, Any]) -> ExplainedOperation:
    if name not in _OPERATIONS:
        raise BadInputError(
            f"OPERATION: {name!r} is not known; known are {', '.join(_OPERATIONS)}. Write other operations as an "
            "expression: floatsim explain 'sqrt(x) / y' --x 2 --y 3"
        )
    unknown = next((text for text in operands if _OPTION.fullmatch(text)), None)
    if unknown is not None:
        raise BadInputError(f"no such option: {unknown}; see `floatsim explain --help`")
    if len(operands) != _OPERATIONS[name]:
        raise BadInputError(f"{name} needs {_OPERATIONS[name]} operands, not {len(operands)}")
    try:
        told: ExplainedOperation = getattr(floatsim, f"explain_{name}")(*(x.strip() for x in operands), fmt, **options)
    except (TypeError, ValueError) as error:
        raise bad_input(error) from None
    return told


def _source(text: str, core: str | None) -> str:
    """Return the text of an expression. Of a file of FPCores, that of the chosen one, at its place in the file."""
    if not text.lower().endswith(_CORES):
        if core is not None:
            raise BadInputError(f"--core: {text!r} is no file of FPCores (*{_CORES})")
        return text
    try:
        with Path(text).open("rb") as file:
            content = file.read(_MOST_BYTES + 1).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise BadInputError(f"EXPRESSION: {text} cannot be read: {reason}") from None
    if len(content) > _MOST_BYTES:
        raise BadInputError(f"EXPRESSION: {text} has more than {_MOST_BYTES} bytes")
    try:
        return fpcore_named(content, core)
    except ValueError as error:
        message = re.sub(r"\bcore=(?=;)", "--core", one_line(error)).replace("core=", "--core ", 1)
        raise BadInputError(f"EXPRESSION: {text}: {message}") from None


def _variables(given: Sequence[str]) -> dict[str, str]:
    """Return the values of `--x 1e-3`, `--x=1e-3` and `x=1e-3` by name."""
    found: dict[str, str] = {}
    left = list(given)
    while left:
        text = left.pop(0)
        match = _OPTION.fullmatch(text) or _ASSIGNED.fullmatch(text)
        if match is None:
            raise BadInputError(f"{text.strip()!r} belongs to no variable; write --x {text.strip()}")
        name, value = match.groups()
        if value is None:
            if not left or _OPTION.fullmatch(left[0]):
                raise BadInputError(f"--{name} needs a value: --{name} 1.5")
            value = left.pop(0)
        if name in found:
            raise BadInputError(f"--{name} is given twice: {found[name]} and {value.strip()}")
        found[name] = value.strip()
    return found


def _expression(text: str, values: Mapping[str, str], fmt: Any, options: Mapping[str, Any]) -> ExplainedExpression:
    reserved = [name for name in values if name in ("expression", "format", *options, "tininess", "daz", "ftz")]
    if reserved:
        raise BadInputError(f"{reserved[0]}={values[reserved[0]]}: {reserved[0]} is an option, and no variable")
    try:
        named: Any = values
        return explain(text, fmt, **options, **named)
    except (TypeError, ValueError) as error:
        message = re.sub(r"write fs\.explain\(\.\.\., (\w+)=1\.5\)", r"add --\1 1.5", one_line(error))
        message = re.sub(r"^'(\w+)' is no variable", r"--\1: no option, and no variable", message)
        message = re.sub(rf"^({'|'.join(map(re.escape, values)) or '^'}) is not", r"--\1: not", message)
        raise BadInputError(message) from None


def _draw(told: ExplainedOperation | ExplainedExpression, picture: Path, over: tuple[str, float, float] | None) -> None:
    try:
        if isinstance(told, ExplainedOperation):
            told.plot().figure.figure.savefig(picture)
            return
        if over is None:
            raise BadInputError("--picture: the picture of an expression needs an interval: --over x 1e-4 1")
        told.plot(*over).figure.figure.savefig(picture)
    except (TypeError, ValueError) as error:
        message = re.sub(r"^(variable|low|high)(?==)", r"--over: \1", one_line(error))
        raise bad_input(ValueError(message)) from None
    except OSError as error:
        raise BadInputError(f"--picture: {picture} cannot be written: {error.strerror}") from None


# -- JSON --------------------------------------------------------------------------------------------------------------


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


def _expression_facts(told: ExplainedExpression) -> dict[str, Any]:
    """Return the explanation of an expression in JSON types. Exact numbers are texts of 40 digits."""
    steps = [
        {
            "name": x.name, "operation": x.operation, "code": code_text(x.code, told.format), "value": x.value,
            "exact": _decimal(x.exact), "rounding_error": x.rounding_error, "error": x.error,
            "amplification": x.amplification, "reach": x.reach,
            "flags": flag_names(x.flags) + ["divide_by_zero"] * bool(x.flags & DIVIDE_BY_ZERO),
        }
        for x in told.steps
    ]  # fmt: skip
    facts = {
        "expression": told.expression, "format": told.format.name, "steps": steps,
        "code": code_text(told.code, told.format), "value": told.value, "exact": _decimal(told.exact),
        "error": told.error, "ulps": told.ulps,
    }  # fmt: skip
    if told.avoids:
        return facts | {"avoids": told.avoids}
    return facts | {"stable": [_expression_facts(each) for each in told.stable]}


def _decimal(x: Fraction | None) -> str | None:
    if x is None:
        return None
    context = Context(prec=_DIGITS, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[])
    return str(context.normalize(context.divide(Decimal(x.numerator), Decimal(x.denominator))))
