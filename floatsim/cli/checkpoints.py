"""Checkpoint files in `floatsim show` and `floatsim survey`: the tensors of a file, their storage and their numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from floatsim.cli.console import BadInputError, one_line, print_columns, print_json, rich_console, track
from floatsim.formats._validation import near_or_first

if TYPE_CHECKING:
    from floatsim.quantization.gguf_file import GgufFile, GgufTensor
    from floatsim.quantization.safetensors_file import SafetensorsFile, SafetensorsTensor

    File: TypeAlias = "GgufFile | SafetensorsFile"
    Tensor: TypeAlias = "GgufTensor | SafetensorsTensor"

__all__ = ["READABLE_CHECKPOINTS", "SUFFIXES", "is_checkpoint", "show_checkpoint", "survey_checkpoint"]

SUFFIXES = {".gguf": "gguf_file:GgufFile", ".safetensors": "safetensors_file:SafetensorsFile",
            ".safetensors.index.json": "safetensors_file:SafetensorsFile"}  # fmt: skip
"""The ends of names of checkpoint files, and the modules and classes that read them."""
READABLE_CHECKPOINTS = ", ".join(SUFFIXES)
_ALSO_MATRICES = ".safetensors"
_LISTED = 12  # names in a message, and numbers of a tensor that are shown


def _suffix(argument: str) -> str | None:
    name = Path(argument.strip()).name.lower()
    return next((suffix for suffix in SUFFIXES if name.endswith(suffix)), None)


def is_checkpoint(argument: str | None, *, alone: bool = True) -> bool:
    """Return whether an argument is the name of a checkpoint file.

    A .safetensors file that is not `alone`, among other files or in a product, has matrices.
    """
    suffix = None if argument is None else _suffix(argument)
    return suffix is not None and (alone or suffix != _ALSO_MATRICES)


def _configuration(config: Path | None) -> dict[str, Any]:
    """Return the keywords of the reader: the configuration in a file of JSON, or none."""
    if config is None:
        return {}
    try:
        return {"config": json.loads(config.read_text(encoding="utf-8"))}
    except (ValueError, OSError) as error:
        raise BadInputError(f"--config: {config} cannot be read as JSON: {one_line(error)}") from None


def _opened(argument: str, option: str, config: Path | None) -> File:
    path = Path(argument.strip())
    if not path.exists():
        raise BadInputError(f"{option}: there is no file {path}")
    module, _, name = SUFFIXES[str(_suffix(argument))].partition(":")
    reader = getattr(import_module(f"floatsim.quantization.{module}"), name)
    if config is not None and name != "SafetensorsFile":
        raise BadInputError(f"--config: {path} needs no configuration; it is for .safetensors files")
    given = _configuration(config)
    with _bad_input("--config" if given else option):
        file: File = reader(path, **given)
        return file


@contextmanager
def _bad_input(option: str) -> Iterator[None]:
    """Raise the errors of a file as bad input."""
    try:
        yield
    except (ValueError, TypeError, OSError) as error:
        raise BadInputError(f"{option}: {one_line(error)}") from None


def _tensor(file: File, name: str) -> Tensor:
    if name in file:
        return file[name]
    raise BadInputError(f"--tensor: {file.path} has no tensor {name!r}; {near_or_first(name, file, _LISTED)}")


def _storage(tensor: Tensor) -> dict[str, Any]:
    """Return the name, type, shape and bits of a tensor, or its error if a configuration is missing or parts differ."""
    try:
        return _readable(tensor)
    except ValueError as error:
        return {"name": tensor.name, "type": tensor.type, "shape": None, "bits": None, "error": one_line(error)}


def _readable(tensor: Tensor) -> dict[str, Any]:
    count = math.prod(tensor.shape)
    return {"name": tensor.name, "type": tensor.type, "shape": list(tensor.shape),
            "bits": tensor.nbits / count if count else None}  # fmt: skip


# -- floatsim show -----------------------------------------------------------------------------------------------------


def _plain(x: Any) -> Any:
    """Return a number or a list for JSON, and the first entries of a long list."""
    return [*x[:_LISTED], "..."] if isinstance(x, list) and len(x) > _LISTED else x


def show_checkpoint(argument: str, name: str | None, config: Path | None = None, *, as_json: bool) -> None:
    """Print the tensors of a file, or one tensor: its storage, its scales and its first numbers.

    A tensor of the list that cannot be read has its error in the place of its shape.
    """
    file = _opened(argument, "FILE", config)
    if name is not None:
        with _bad_input("--tensor"):
            _show_tensor(_tensor(file, name), as_json=as_json)
        return
    with _bad_input("FILE"):
        rows = [_storage(tensor) for tensor in file.values()]
    if as_json:
        metadata = {key: _plain(value) for key, value in file.metadata.items()}
        print_json({"file": str(file.path), "metadata": metadata, "tensors": rows})
        return
    console = rich_console()
    for key, value in file.metadata.items():
        console.print(f"{key}: {_plain(value)!r:.100}", markup=False, soft_wrap=True)
    _print_rows(console, rows)


def _short(x: float | None) -> str:
    return "" if x is None else f"{x:.4g}"


def _print_rows(console: Any, rows: list[dict[str, Any]]) -> None:
    heads = [("tensor", "left"), ("type", "left"), ("shape", "right"), ("bits", "right")]
    print_columns(console, heads, [
        (row["name"], row["type"], _shape(row), _short(row["bits"]))
        for row in rows
    ])  # fmt: skip
    _print_errors(console, rows)


def _shape(row: dict[str, Any]) -> str:
    return "error" if "error" in row else "x".join(map(str, row["shape"]))


def _print_errors(console: Any, rows: list[dict[str, Any]]) -> None:
    """Print the errors of a list below it, each once with the names of its tensors."""
    of_error: dict[str, list[str]] = {}
    for row in rows:
        if "error" in row:
            of_error.setdefault(row["error"].removeprefix(f"{row['name']}: "), []).append(row["name"])
    for text, names in of_error.items():
        more = ", ..." if len(names) > _LISTED else ""
        console.print(f"\n{', '.join(names[:_LISTED])}{more}: {text}", markup=False, soft_wrap=True)


def _show_tensor(tensor: Tensor, *, as_json: bool) -> None:
    facts = _readable(tensor)
    scheme, note = getattr(tensor, "scheme", None), getattr(tensor, "note", "")
    if scheme is not None:
        facts |= {"package": scheme.package, "rule": scheme.rule} | ({"note": note} if note else {})
    if tensor.is_quantized:
        q = tensor.quantized()
        facts |= {"elements": q.format.name, "group": q.scheme.block[1], "scale_format": q.scales.format.name,
                  "scales": _first(q.scales.values), "codes": _first(q.codes)}  # fmt: skip
        for name in ("offsets", "zero_points", "tensor_scale"):
            numbers = getattr(q, name)
            if numbers is not None:
                facts[name] = _first(getattr(numbers, "values", numbers))
    facts["values"] = _first(next(iter(tensor.pieces(4096)), []))
    if as_json:
        print_json(facts)
        return
    console = rich_console()
    for key, value in facts.items():
        shown = ", ".join(f"{x:.6g}" for x in value) if isinstance(value, list) else value
        console.print(f"{key:13}{shown}", markup=False, soft_wrap=True)


def _first(x: Any) -> list[Any]:
    """Return the first numbers of an array."""
    import numpy as np

    found: list[Any] = np.asarray(x).reshape(-1)[:_LISTED].tolist()
    return found


# -- floatsim survey ---------------------------------------------------------------------------------------------------


def _measured(tensor: Tensor) -> dict[str, Any]:
    """Return the facts about the numbers of a tensor, which is read in pieces."""
    import numpy as np

    count = zeros = special = 0
    least, largest, squares = math.inf, 0.0, 0.0
    for piece in tensor.pieces():
        magnitudes = np.abs(piece if piece.dtype.kind == "f" else piece.astype(np.float64))
        if not np.isfinite(magnitudes.max(initial=0)):  # NaN and infinity are the largest
            magnitudes = magnitudes[np.isfinite(magnitudes)]
        special += piece.size - magnitudes.size
        zeros += magnitudes.size - int(np.count_nonzero(magnitudes))
        least = float(magnitudes.min(where=magnitudes > 0, initial=least))
        largest = float(magnitudes.max(initial=largest))
        squares += float(np.square(magnitudes, dtype=np.float64).sum())
        count += magnitudes.size
    return {"zeros": zeros, "not_finite": special, "smallest": least if largest else None,
            "largest": largest if count else None, "rms": math.sqrt(squares / count) if count else None}  # fmt: skip


def _surveyed(file: File) -> Iterator[dict[str, Any]]:
    for tensor in track(list(file.values()), "reading"):
        row = _storage(tensor)
        try:
            yield row if "error" in row else row | _measured(tensor)
        except ValueError as error:  # the shapes fit, and the contents do not
            yield row | {"error": one_line(error)}


def survey_checkpoint(argument: str, config: Path | None = None, *, as_json: bool) -> None:
    """Print one row for each tensor of a file: its storage and the range of its numbers.

    A tensor that cannot be read has its error in the place of its shape. It is left out of the sums.
    """
    file = _opened(argument, "FILES", config)
    with _bad_input("FILES"):
        rows = list(_surveyed(file))
    read = [file[row["name"]] for row in rows if "error" not in row]
    whole = sum(tensor.nbits for tensor in read)
    numbers = sum(math.prod(tensor.shape) for tensor in read)
    if as_json:
        print_json({"file": str(file.path), "numbers": numbers, "bits": whole / max(numbers, 1), "tensors": rows})
        return
    heads = [(head, "left" if head in ("tensor", "type") else "right") for head in (
        "tensor", "type", "shape", "bits", "zeros", "smallest", "largest", "rms", "NaN, inf")]  # fmt: skip
    console = rich_console()
    print_columns(console, heads, [
        (row["name"], row["type"], _shape(row),
         *(_short(row.get(key)) for key in ("bits", "zeros", "smallest", "largest", "rms")),
         str(row["not_finite"]) if row.get("not_finite") else "")
        for row in rows
    ])  # fmt: skip
    _print_errors(console, rows)
    console.print(f"\n{len(read)} tensors, {numbers} numbers, {whole / max(numbers, 1):.4g} bits for each")
