"""What cards have answered, in files: those of `floatsim capture`, and the outputs that others have published.

A recording of `capture` is an `.npz` file of one instruction: `header`, a text in JSON that says which it is, what it
was asked and by which card it was answered; `d`, the codes of the results; and, if it was asked for, `a`, `b`, `c`,
`scale_a` and `scale_b`, the codes of the inputs. Without these they are made again from the header's seed, and must
have the header's SHA-256. The page "Checking a GPU" of the documentation lists the header.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from floatsim.accumulation import AccumulationLike, TensorCore, as_accumulation
from floatsim.arrays.float_array import from_codes
from floatsim.formats import FloatFormat, as_format
from floatsim.hardware.captures import published
from floatsim.hardware.comparison import FIRST, Comparison, compare_dots, compare_products
from floatsim.tensorcore.instructions import Scales
from floatsim.testing.dot_unit import Codes, ScaleCodes, Unit, named_unit
from floatsim.testing.inputs import GENERATOR, Inputs, input_set

__all__ = ["FORMAT", "Recording", "one_recording", "read_recordings", "recording_files", "write_recording"]

FORMAT = "floatsim silicon 1"
"""The name of the file format, and its version."""


@dataclass(frozen=True)
class Recording:
    """What one instruction of one card answered.

    Attributes
    ----------
    path : Path
        Where it is from.
    card : str
    unit : Unit
        The instruction, as the table has it.
    inputs : Inputs
    d : (n,) codes
    header : mapping
        Everything else that is known: see "Checking a GPU" in the documentation. Empty for published outputs.
    """

    path: Path
    card: str
    unit: Unit
    inputs: Inputs
    d: Codes
    header: Mapping[str, Any] = field(default_factory=dict)

    def compare(self, accumulate: AccumulationLike | None = None, first: int = FIRST) -> Comparison:
        """The recorded results and the emulated ones: of the recording's instruction, or of another sum.

        Raises
        ------
        ValueError
            If that sum does not take the operands, or gives another format.
        """
        source = f"{self.card}, {self.path.name}"
        if accumulate is None:
            return compare_dots(self.unit, self.inputs, self.d, source, first)
        how, u = as_accumulation(accumulate), self.unit
        if isinstance(how, TensorCore):
            other = named_unit(how.arch, how.instruction, u.a, u.b, how.output or u.output, u.scales)
            if other.output != u.output:
                raise ValueError(f"{how} gives {other.output}; recorded is {u.output}")
            return compare_dots(other, self.inputs, self.d, source, first)
        if self.inputs.scales is not None:
            raise ValueError(f"{how} takes no scales, and {u} has them; name a TensorCore")
        a, b = from_codes(self.inputs.a[:, np.newaxis], u.a), from_codes(self.inputs.b[:, :, np.newaxis], u.b)
        c, d = (from_codes(x[:, np.newaxis, np.newaxis], u.output) for x in (self.inputs.c, self.d))
        return compare_products(
            a, b, c, how, lambda _: d, source, first, u.output, title=f"{how} of what {u} was given"
        )


# -- writing -----------------------------------------------------------------------------------------------------------


def header_of(unit: Unit, inputs: Inputs, seed: int) -> dict[str, Any]:
    """What a header says of the instruction and of what it was asked."""
    return {
        "format": FORMAT, "arch": unit.arch, "instruction": unit.name, "a": unit.a.name, "b": unit.b.name,
        "d": unit.output.name, "k": unit.k,
        "scales": None if unit.scales is None else {"every": unit.scales.every, "format": unit.scales.format.name},
        "rows": len(inputs.c), "seed": seed, "generator": GENERATOR, "inputs_sha256": inputs.digest,
    }  # fmt: skip


def write_recording(recording: Recording, with_inputs: bool = False) -> None:
    """Write a recording to its path. Folders are made."""
    arrays: dict[str, Any] = {"header": np.array(json.dumps(dict(recording.header))), "d": recording.d}
    if with_inputs:
        x = recording.inputs
        arrays |= {"a": x.a, "b": x.b, "c": x.c}
        if x.scales is not None:
            arrays |= {"scale_a": x.scales.a, "scale_b": x.scales.b}
    recording.path.parent.mkdir(parents=True, exist_ok=True)
    with recording.path.open("wb") as file:
        np.savez_compressed(file, **arrays)


# -- reading -----------------------------------------------------------------------------------------------------------


def recording_files(path: Path) -> list[Path]:
    """The recordings in a path: itself, if it is one; else all below it, in the order of their names.

    Files are `.npz`; a folder `<GPU>/<format>` of the published outputs counts as one.
    """
    if path.is_file():
        return [path]
    found = [each for each in path.rglob("*.npz") if each.is_file()]
    folders = (each for each in [path, *path.rglob("*")] if each.is_dir())
    found += [each for each in folders if each.name in published.FORMATS and any(each.glob("d_*.txt"))]
    return sorted(found)


def read_recordings(path: Path) -> Iterator[Recording]:
    """The sets of one file or folder of `recording_files`.

    Raises
    ------
    ValueError
        If it is none, is damaged, or was asked what is no longer asked.
    """
    path = path.resolve()
    if path.is_dir():
        sets = published.read_folder(path)
    else:
        arrays = _arrays(path)
        if "header" in arrays:
            yield _captured(path, arrays)
            return
        if not published.is_published(arrays):
            raise ValueError(
                f"{path} holds no recording: neither `header` and `d`, as `floatsim capture` writes them, nor `a`, "
                f"`b`, `c_fp32` and `d_...`; it has {', '.join(arrays) or 'no array'}"
            )
        sets = published.read_npz(path)
    for each in sets:
        yield Recording(path, each.card, each.unit, each.inputs, each.d)


_FORMS = {b"\x93NUMPY": "a .npy file of one array", b"": "empty"}


def _arrays(path: Path) -> dict[str, Any]:
    """Those of an .npz file."""
    try:
        with path.open("rb") as opened:  # np.load leaves a file open that it cannot read
            start = opened.read(6)
            if start[:2] != b"PK":
                raise ValueError(
                    f"{path} is {_FORMS.get(start, 'no .npz file')}; recordings are .npz files, as `floatsim capture` "
                    "writes them, or published outputs: <GPU>_<format>.npz, or a folder <GPU>/<format> of text files"
                )
            opened.seek(0)
            file = np.load(opened, allow_pickle=False)
            try:
                return {name: file[name] for name in file.files}
            except (ValueError, BadZipFile, EOFError, zlib.error):
                raise ValueError(f"{path} is damaged, or holds other than arrays of numbers and text") from None
    except (BadZipFile, EOFError):
        raise ValueError(f"{path} is damaged: it begins as an .npz file does, and ends too soon") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from None


def _captured(path: Path, arrays: Mapping[str, Any]) -> Recording:
    header = _header(path, arrays["header"])
    try:
        unit = _unit(header)
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path}: its header names no instruction that is known here: {error}") from None
    rows = header["rows"]
    wanted = {"d": ((rows,), unit.output), "a": ((rows, unit.k), unit.a), "b": ((rows, unit.k), unit.b),
              "c": ((rows,), unit.output)}  # fmt: skip
    if unit.scales:
        wanted |= dict.fromkeys(("scale_a", "scale_b"), ((rows, unit.scale_blocks), unit.scales.format))
    for name, (shape, fmt) in wanted.items():
        if name == "d" or "a" in arrays:
            _check_array(path, name, arrays.get(name), shape, fmt.code_dtype)
    if "a" in arrays:
        scales = ScaleCodes(arrays["scale_a"], arrays["scale_b"]) if unit.scales else None
        inputs = Inputs(arrays["a"], arrays["b"], arrays["c"], scales)
    else:
        inputs = input_set(unit, rows, header["seed"])
    if inputs.digest != header["inputs_sha256"]:
        made = f"made by generator {header['generator']}; this version's is {GENERATOR}"
        raise ValueError(f"{path}: its inputs are not those of its header ({made}); so its results say nothing")
    return Recording(path, str(header["card"]), unit, inputs, arrays["d"], header)


_KEYS = ("format", "arch", "instruction", "a", "b", "d", "scales", "rows", "seed", "inputs_sha256", "card", "generator")


def _header(path: Path, text: Any) -> dict[str, Any]:
    """A header with all that reading needs."""
    try:
        header = json.loads(str(text))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is no recording: its header is no JSON: {error}") from None
    if not isinstance(header, dict):
        raise ValueError(f"{path} is no recording: its header must be a JSON object, not {str(text)[:40]}")
    missing = [key for key in _KEYS if key not in header]
    if missing:
        raise ValueError(f"{path} is no recording: its header lacks {', '.join(map(repr, missing))}")
    if header["format"] != FORMAT:
        raise ValueError(f"{path} has the format {header['format']!r}; this version reads {FORMAT!r}")
    for key, least in (("rows", 10), ("seed", 0)):
        if type(header[key]) is not int or header[key] < least:
            raise ValueError(f"{path}: {key} of its header must be an integer from {least} on, not {header[key]!r}")
    return header


def _check_array(path: Path, name: str, x: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if x is None or x.shape != shape or x.dtype != dtype:
        given = "missing" if x is None else f"{x.shape} of {x.dtype}"
        raise ValueError(f"{path}: {name} must be {shape} of {dtype}, not {given}")


def _unit(header: Mapping[str, Any]) -> Unit:
    scales = header["scales"]
    a, b, d = (_format(header[key]) for key in ("a", "b", "d"))
    of = None if scales is None else Scales(int(scales["every"]), _format(scales["format"]))
    return named_unit(header["arch"], header["instruction"], a, b, d, of)


def _format(name: str) -> FloatFormat:
    return as_format(name)


def one_recording(path: Path) -> Recording:
    """The recording in a file that has one.

    Raises
    ------
    ValueError
        If there is none, or more than one.
    """
    found = [recording for file in recording_files(path) for recording in read_recordings(file)]
    if len(found) != 1:
        listed = "; ".join(f"{each.unit}" for each in found[:5])
        raise ValueError(
            f"against={str(path)!r} must hold one recording, and has {len(found)}{listed and ': '}{listed}"
        )
    return found[0]
