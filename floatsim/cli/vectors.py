"""`floatsim vectors`: test vectors for hardware and other languages, and the check of a simulation's results."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from floatsim.cli.console import BadInputError, Json, finish, one_line, print_json
from floatsim.testing.vectors.hardware_unit import HardwareUnit, VectorComparison, hardware_unit
from floatsim.testing.vectors.vector_files import FILE_TYPES, FileType, VectorWriter, as_file_type, read_results

__all__ = ["vectors_command"]

_OPTIONS = {
    "format": "--format", "to": "--to", "b": "--format-b", "accumulate": "--accumulate", "length": "--length",
    "scales": "--scales", "rounding": "--rounding", "overflow": "--overflow", "tininess": "--tininess",
    "count": "--count", "seed": "--seed", "width": "--width", "operation": "OPERATION",
}  # fmt: skip
"""The option of each argument, for errors."""


def vectors_command(
    operation: Annotated[
        str, typer.Argument(help="add, subtract, multiply, fma, divide, sqrt, exp, less ..., convert, or dot.")
    ],
    fmt: Annotated[str, typer.Option("--format", "-f", help="The operands' format: e4m3, bf16, ieee(4,3), int32 ...")],
    to: Annotated[str | None, typer.Option(help="The format of the result, or an integer type.")] = None,
    other: Annotated[str | None, typer.Option("--format-b", help="The format of the second operand of dot.")] = None,
    accumulate: Annotated[
        str | None, typer.Option("--accumulate", "-a", help="The sum of dot: hopper, 'sequential(fp32)' ...")
    ] = None,
    length: Annotated[int | None, typer.Option(help="The number of products of dot. Default: 8.")] = None,
    scales: Annotated[str | None, typer.Option(help="The scales of a block-scaled instruction: e8m0 or e4m3.")] = None,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="The number of vectors.")] = 10_000,
    every: Annotated[bool, typer.Option("--all", help="All operands, up to 24 bits together.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="The seed of the random operands.")] = 0,
    kind: Annotated[
        str | None, typer.Option("--as", help=f"The type of the file: {', '.join(FILE_TYPES)}. Default: by its name.")
    ] = None,
    out: Annotated[str, typer.Option("--out", "-o", metavar="FILE", help="Where to write. Default: stdout.")] = "-",
    width: Annotated[int | None, typer.Option(min=1, help="The bits of a word of readmemh.")] = None,
    check: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Check the results of a simulation instead of writing.")
    ] = None,
    check_nans: Annotated[bool, typer.Option("--check-nans", help="Compare the bits of NaNs.")] = False,
    rounding: Annotated[str | None, typer.Option(help="Rounding mode: RNE, RTZ, toward_positive, ...")] = None,
    overflow: Annotated[str | None, typer.Option(help="infinity, saturate_finite or saturate_propagate.")] = None,
    tininess: Annotated[str | None, typer.Option(help="Underflow is tested after or before rounding.")] = None,
    daz: Annotated[bool, typer.Option("--daz", help="Read subnormal operands as zeros.")] = False,
    ftz: Annotated[bool, typer.Option("--ftz", help="Flush tiny results to zero.")] = False,
    as_json: Json = False,
) -> None:
    """Write test vectors of a unit, corner cases first, or check a simulation's results and explain the first mismatch.

    floatsim vectors add -f e4m3 -n 10000 -o add.mem

    floatsim vectors add -f e4m3 -n 10000 --check results.mem
    """
    options: dict[str, Any] = {"rounding": rounding, "overflow": overflow, "tininess": tininess}
    options |= {name: True for name, chosen in (("daz", daz), ("ftz", ftz)) if chosen}
    try:
        unit = hardware_unit(
            operation, fmt, to, b=other, accumulate=accumulate, length=length, scales=scales, **options
        )
        file_type = as_file_type(kind, str(check) if check is not None else out)
        wanted = None if every else count
        if check is not None:
            _check(unit, file_type, wanted, seed, check, check_nans, as_json)
        else:
            _write(unit, file_type, wanted, seed, out, width, as_json)
    except (TypeError, ValueError) as error:
        raise BadInputError(_named(one_line(error))) from None


def _named(message: str) -> str:
    """Return an error about an argument as an error about the command's option."""
    for argument, option in _OPTIONS.items():
        for mark in (":", "="):
            if message.startswith(f"{argument}{mark}"):
                return f"{option}{mark.replace('=', ' ')}{message[len(argument) + 1 :]}"
    message = message.replace("too wide for width=", "too wide for --width ")
    return message.replace("unknown file type", "--as: unknown file type", 1)


def _write(
    unit: HardwareUnit, kind: FileType, count: int | None, seed: int, out: str, width: int | None, as_json: bool
) -> None:
    if out == "-":
        if as_json:
            raise BadInputError("--json: the vectors go to stdout; write them to a file with --out")
        unit.write(sys.stdout.buffer, kind, count, seed, width)
        sys.stdout.flush()
        return
    VectorWriter(kind, unit.columns, width)  # an error leaves no file
    try:
        with Path(out).open("wb") as file:
            written, sha256 = unit.write(file, kind, count, seed, width)
    except OSError as error:
        raise BadInputError(f"--out: {out} cannot be written: {error.strerror}") from None
    if as_json:
        columns = [{"name": x.name, "bits": x.bits, "count": x.count} for x in unit.columns]
        print_json({"unit": unit.title, "vectors": written, "seed": seed, "type": kind.name, "columns": columns,
                    "file": out, "sha256": sha256})  # fmt: skip
    else:
        print(f"{unit.title}: {written} vectors, seed {seed}, as {kind.name} in {out}\nsha256 {sha256}")
        print(_corners_only(unit, count), end="")


def _corners_only(unit: HardwareUnit, count: int | None) -> str:
    """Return a line that says so if all vectors are corner cases, and nothing otherwise."""
    if count is None or count > (corners := unit.corner_cases()):
        return ""
    return f"all are corner cases, which come first; a --count above {corners} adds hard cases and random operands\n"


def _check(
    unit: HardwareUnit, kind: FileType, count: int | None, seed: int, path: Path, check_nans: bool, as_json: bool
) -> None:
    try:
        with path.open("rb") as file:
            given = read_results(file, kind, unit.columns)
    except OSError as error:
        raise BadInputError(f"--check: {path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise BadInputError(f"--check: {path}: {one_line(error)}") from None
    if not given:
        raise BadInputError(f"--check: {path} has no results")
    columns = unit.vectors(count, seed)
    if len(columns[0]) != len(given[0]):
        how = "--all" if count is None else f"--count {count}"
        raise BadInputError(
            f"--check: {path} has {len(given[0])} results, and {how} gives {len(columns[0])} vectors; give the "
            "--count and --seed of the vectors"
        )
    flags = given[1] if len(given) > 1 else None
    found = unit.compare(columns[: len(unit.operands)], given[0], flags, check_nans)
    if as_json:
        print_json(_facts(found))
    else:
        print(found)
        print(_corners_only(unit, count), end="")
    finish(differ=not found, failed=False)


def _facts(found: VectorComparison) -> dict[str, Any]:
    return {
        "unit": found.unit, "vectors": found.vectors, "mismatches": found.mismatches, "first": found.first,
        "explanation": found.explanation, "causes": dict(found.causes),
        "unexplained": found.unexplained,
    }  # fmt: skip
