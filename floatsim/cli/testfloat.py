"""`floatsim testfloat`: the pipe of Berkeley TestFloat, between testfloat_gen and testfloat_ver."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Annotated, Any

import typer

from floatsim.cli.console import BadInputError, Json, finish, one_line, print_json
from floatsim.testing.vectors.testfloat import ROUNDINGS, TestFloatOperation, as_testfloat, mismatches
from floatsim.testing.vectors.testfloat_text import blocks, columns_of, format_lines, parse_lines

__all__ = ["testfloat_command"]


class _Check:
    """The count of the lines with results, and the first lines that differ."""

    def __init__(self, errors: int) -> None:
        self.errors, self.lines, self.wrong = errors, 0, 0
        self.first: list[dict[str, Any]] = []

    def add(self, columns: list[Any], expected: tuple[Any, Any], where: Any) -> None:
        self.wrong += len(where)
        for i in where[: max(0, self.errors - len(self.first))].tolist():
            line = format_lines([x[i : i + 1] for x in columns]).decode().strip()
            wanted = format_lines([x[i : i + 1] for x in expected]).decode().strip()
            self.first.append({"line": self.lines + i + 1, "given": line, "expected": wanted})

    def report(self, as_json: bool) -> None:
        if as_json:
            print_json({"lines": self.lines, "mismatches": self.wrong, "first": self.first})
            return
        for row in self.first:
            print(f"line {row['line']}: {row['given']}: expected {row['expected']}")
        print(f"{self.lines} lines, {self.wrong or 'no'} mismatch{'es' * (self.wrong != 1)}")


def _columns(operation: TestFloatOperation, count: int) -> list[int]:
    """Return the bits of the columns: the operands, and for lines with results also the result and the flags."""
    operands = list(operation.operands)
    if count not in (len(operands), len(operands) + 2):
        raise ValueError(
            f"the first line has {count} columns; {operation.name} has {len(operands)} operands, "
            f"and with results {len(operands) + 2} columns"
        )
    return operands if count == len(operands) else [*operands, operation.result, 8]


def _run(
    operation: TestFloatOperation, source: IO[bytes], check: _Check, options: dict[str, Any], check_nans: bool,
    as_json: bool,
) -> bool:  # fmt: skip
    """Write or check all lines. Return whether they had results."""
    bits: list[int] = []
    operands = len(operation.operands)
    for block in blocks(source):
        bits = bits or _columns(operation, columns_of(block))
        if as_json and len(bits) == operands:
            raise ValueError("--json needs lines with results; for lines of operands, the output is lines")
        columns = parse_lines(block, bits, check.lines + 1)
        results, flags = operation.evaluate(columns[:operands], **options)
        if len(bits) == operands:
            sys.stdout.buffer.write(format_lines([*columns, results, flags]))
        else:
            given = columns[operands], columns[operands + 1]
            check.add(columns, (results, flags), mismatches(operation, (results, flags), given, check_nans))
        check.lines += len(columns[0])
    return len(bits) > operands


def testfloat_command(
    function: Annotated[str, typer.Argument(help="TestFloat's name: f32_add, f64_mulAdd, f16_to_i32, i64_to_f32 ...")],
    source: Annotated[
        str, typer.Option("--input", metavar="FILE", help="The lines of testfloat_gen. Default: stdin.")
    ] = "-",
    rounding: Annotated[str, typer.Option(help="near_even, near_maxMag, minMag, min, max or odd.")] = "near_even",
    tininess: Annotated[str, typer.Option(help="When results are tested for underflow: after or before.")] = "after",
    exact: Annotated[bool, typer.Option("--exact", help="Roundings to integers raise the inexact flag.")] = False,
    check_nans: Annotated[bool, typer.Option("--check-nans", help="Compare the bits of NaNs.")] = False,
    errors: Annotated[int, typer.Option(min=0, help="The number of mismatches to print.")] = 20,
    as_json: Json = False,
) -> None:
    """Speak the pipe of Berkeley TestFloat: write results and flags, or check lines that have them.

    testfloat_gen f32 2 | floatsim testfloat f32_mul | testfloat_ver f32_mul

    testfloat_gen f32_mul | floatsim testfloat f32_mul
    """
    if rounding not in ROUNDINGS:
        raise BadInputError(f"--rounding: {rounding!r} is not known; known are {', '.join(ROUNDINGS)}")
    if tininess not in ("after", "before"):
        raise BadInputError(f"--tininess: {tininess!r} is not known; known are after, before")
    options = {"rounding": rounding, "tininess": tininess, "exact": exact}
    check = _Check(errors)
    try:
        operation = as_testfloat(function)
        with ExitStack() as stack:
            file = sys.stdin.buffer if source == "-" else stack.enter_context(Path(source).open("rb"))
            compared = _run(operation, file, check, options, check_nans, as_json)
    except ValueError as error:
        raise BadInputError(one_line(error).replace("unknown function", "FUNCTION: unknown function")) from None
    except BrokenPipeError:
        raise
    except OSError as error:
        raise BadInputError(f"--input: {source} cannot be read: {error.strerror}") from None
    if compared:
        check.report(as_json)
    elif not check.lines:
        raise BadInputError(f"--input: there are no lines of {function}, such as those of testfloat_gen {function}")
    sys.stdout.flush()
    finish(differ=check.wrong > 0, failed=False)
