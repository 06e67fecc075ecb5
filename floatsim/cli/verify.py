"""`floatsim verify`: compare truth tables with their digests, or write the digests."""

from __future__ import annotations

import fnmatch
from pathlib import Path
from typing import Annotated, Any

import typer

from floatsim.cli.console import BadInputError, Json, finish, one_line, print_json, track
from floatsim.formats._validation import name_hint
from floatsim.testing.vectors.truth_tables import (
    SOURCES,
    TRUTH_TABLES,
    digest,
    first_difference,
    stored_digests,
    table_bytes,
    write_digests,
)

__all__ = ["verify_command"]


def _selected(tables: list[str] | None) -> list[str]:
    found: dict[str, None] = {}
    for pattern in tables or ["*"]:
        names = fnmatch.filter(TRUTH_TABLES, pattern)
        if not names:
            raise BadInputError(f"TABLES: no table is named {pattern!r}; {name_hint(pattern, TRUTH_TABLES)}")
        found |= dict.fromkeys(names)
    return list(found)


def _content(path: Path) -> bytes:
    try:
        if not path.is_file() or path.stat().st_size > 1 << 24:
            raise BadInputError(f"--file: {path} is no file of one table; a table has at most a few 100 kB")
        return path.read_bytes()
    except OSError as error:
        raise BadInputError(f"--file: {path} cannot be read: {error.strerror}") from None


def verify_command(
    tables: Annotated[
        list[str] | None,
        typer.Argument(help="Tables, with * as a wildcard: add-e4m3, '*-fp16'. Default: all.", show_default=False),
    ] = None,
    source: Annotated[
        str, typer.Option("--with", help="What computes the tables: emulator (the kernels) or reference (minutes).")
    ] = "emulator",
    file: Annotated[
        Path | None, typer.Option(help="Compare the bytes of this file with one table, in place of --with.")
    ] = None,
    write: Annotated[Path | None, typer.Option(help="Write the digests to this JSON file.")] = None,
    export: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write the bytes of each table into this folder.")
    ] = None,
    digests: Annotated[
        Path | None, typer.Option(help="The file of digests. Default: the one that floatsim ships.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare whole truth tables with their SHA-256 digests: 8-bit pairs, 16-bit functions and conversions.

    A table has all result codes in little-endian order, then one byte of flags for each. The first operand varies
    slowest.
    """
    names = _selected(tables)
    if source not in SOURCES:
        raise BadInputError(f"--with: {source!r} is not known; known are {', '.join(SOURCES)}")
    if file is not None and (len(names) != 1 or write is not None or export is not None):
        raise BadInputError("--file needs the name of one table, and neither --write nor --export")
    try:
        if write is not None:
            write_digests(write, track(names, "computing"), source)
            print_json({"written": str(write), "tables": names}) if as_json else print(f"{write}: {len(names)} tables")
            return
        rows = _compared(names, source, file, export, stored_digests(digests))
    except ValueError as error:
        raise BadInputError(one_line(error)) from None
    except OSError as error:
        raise BadInputError(f"{error.filename}: {error.strerror}") from None
    if as_json:
        print_json({"equal": all(row["equal"] for row in rows), "tables": rows})
    else:
        for row in rows:
            print(f"{row['table']}: {'equal' if row['equal'] else row['difference']}")
        print(f"{sum(row['equal'] for row in rows)} of {len(rows)} tables have the stored digest")
    finish(differ=not all(row["equal"] for row in rows), failed=False)


def _compared(
    names: list[str], source: str, file: Path | None, export: Path | None, stored: dict[str, str]
) -> list[dict[str, Any]]:
    if missing := [name for name in names if name not in stored]:
        raise BadInputError(f"--digests: there is no digest of {', '.join(missing)}")
    if export is not None:
        export.mkdir(parents=True, exist_ok=True)
    rows = []
    for name in track(names, "computing"):
        content = table_bytes(name, source) if file is None else _content(file)
        if export is not None:
            (export / f"{name}.bin").write_bytes(content)
        found = digest(content)
        equal = found == stored[name]
        difference = None if equal else first_difference(name, content) or "the emulator has the same bytes"
        rows.append({"table": name, "equal": equal, "sha256": found, "difference": difference})
    return rows
