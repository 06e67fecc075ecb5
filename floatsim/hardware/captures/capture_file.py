"""Captures: files with the outputs of GPUs, written by `floatsim capture` or published by others.

A capture is an `.npz` file of one instruction. `header` is a JSON text with the instruction, the inputs and the GPU.

The kind "dots" (also a header without `kind`) is a matrix instruction. `d` holds the codes of the results. `a`, `b`,
`c`, `scale_a` and `scale_b` optionally hold the codes of the inputs. The kind "scalar" is an operation of CUDA cores.
`d_steps` holds the differences of successive codes of the results, modulo 2^bits, which compress better. `x0`, `x1` and
`x2` optionally hold the operands.

Without inputs in the file, they are made again from the header's seed, and must have the header's SHA-256. The page
"Checking a GPU" of the documentation lists the header.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias
from zipfile import BadZipFile, ZipFile

import numpy as np

from floatsim._types import Codes
from floatsim.accumulation import AccumulationLike, TensorCore, as_accumulation
from floatsim.arrays.array.float_array import from_codes
from floatsim.formats import FloatFormat, as_format
from floatsim.hardware.captures import published
from floatsim.hardware.comparison import FIRST, Comparison, compare_codes, compare_dots, compare_products
from floatsim.hardware.scalar_vectors import expected_results, operands_of
from floatsim.hardware.tables.ptx_scalar import SCALARS, Scalar
from floatsim.tensorcore.instructions import Scales
from floatsim.testing.vectors.dot_inputs import GENERATOR, Inputs, digest_of, input_set
from floatsim.testing.vectors.dot_unit import ScaleCodes, Unit, named_unit
from floatsim.testing.vectors.scalar_inputs import ARITY, SCALAR_GENERATOR

__all__ = [
    "FORMAT", "AnyCapture", "Capture", "ScalarCapture", "capture_files", "read_captures", "read_single_capture",
    "scalar_header", "write_capture",
]  # fmt: skip

FORMAT = "floatsim silicon 1"
"""The name and version of the file format."""


@dataclass(frozen=True)
class Capture:
    """The outputs of one matrix instruction of one GPU.

    Attributes
    ----------
    path : Path
        The file that holds the capture.
    gpu : str
        The name of the GPU.
    unit : Unit
        The instruction with its formats.
    inputs : Inputs
        The codes of the inputs.
    d : (n,) codes
        The codes of the results.
    header : mapping
        The metadata: see "Checking a GPU" in the documentation. Empty for published outputs.
    error : str
        The type and the message of the error, if the instruction could not run. Then there is no file, and `d` and the
        header are empty.
    """

    path: Path
    gpu: str
    unit: Unit
    inputs: Inputs
    d: Codes
    header: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""

    @property
    def title(self) -> str:
        """The instruction with its formats, as text."""
        return str(self.unit)

    @property
    def size(self) -> str:
        """The number of results, as text."""
        return f"{len(self.d)} dot products"

    def compare(self, accumulate: AccumulationLike | None = None, first: int = FIRST) -> Comparison:
        """Compare the captured results with the emulator, for the capture's instruction or another accumulation.

        Parameters
        ----------
        accumulate : accumulation or text, optional
            The emulated accumulation. Default: the capture's instruction.
        first : int
            The number of mismatches to keep with their inputs and a trace.

        Raises
        ------
        ValueError
            If the accumulation does not take the operands, or gives another format.
        """
        source = f"{self.gpu}, {self.path.name}"
        if accumulate is None:
            return compare_dots(self.unit, self.inputs, self.d, source, first)
        accumulation, u = as_accumulation(accumulate), self.unit
        if isinstance(accumulation, TensorCore):
            arch, instruction, output = accumulation.arch, accumulation.instruction, accumulation.output
            other = named_unit(arch, instruction, u.a, u.b, output or u.output, u.scales)
            if other.output != u.output:
                raise ValueError(f"{accumulation} gives {other.output}, and the captured results are {u.output}")
            return compare_dots(other, self.inputs, self.d, source, first)
        if self.inputs.scales is not None:
            raise ValueError(f"{accumulation} takes no scales, and {u} has them; name a TensorCore")
        a, b = from_codes(self.inputs.a[:, np.newaxis], u.a), from_codes(self.inputs.b[:, :, np.newaxis], u.b)
        c, d = (from_codes(x[:, np.newaxis, np.newaxis], u.output) for x in (self.inputs.c, self.d))
        title = f"{accumulation} of the inputs of {u}"
        return compare_products(a, b, c, accumulation, lambda _: d, source, first, u.output, title=title)


@dataclass(frozen=True)
class ScalarCapture:
    """The outputs of one operation of the CUDA cores of one GPU.

    Attributes
    ----------
    path : Path
        The file that holds the capture.
    gpu : str
        The name of the GPU.
    row : Scalar
        The operation, with its formats and its rounding.
    operands : tuple of (n,) codes
        The codes of the operands. The last one is the random bits of a stochastic rounding.
    d : (n,) codes
        The codes of the results.
    header : mapping
        The metadata: see "Checking a GPU" in the documentation.
    error : str
        The type and the message of the error, if the operation could not run. Then there is no file, and `d` and the
        header are empty.
    """

    path: Path
    gpu: str
    row: Scalar
    operands: tuple[Codes, ...]
    d: Codes
    header: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""

    @property
    def title(self) -> str:
        """The operation with its formats and its rounding, as text."""
        return str(self.row)

    @property
    def size(self) -> str:
        """The number of results, as text."""
        return f"{len(self.d)} results"

    def compare(self, accumulate: AccumulationLike | None = None, first: int = FIRST) -> Comparison:
        """Compare the captured results with the emulator. NaN against NaN is equal.

        Parameters
        ----------
        accumulate : None
            An operation of CUDA cores has no accumulation.
        first : int
            The number of mismatches to keep with their operands.

        Raises
        ------
        ValueError
            If an accumulation is given.
        """
        if accumulate is not None:
            raise ValueError(f"accumulate={accumulate} cannot replace {self.row}, which is no sum of products")
        given = self.operands[:-1] if self.row.random_bits else self.operands
        floats = [from_codes(x, self.row.source) for x in given]
        expected = expected_results(self.row, floats, self.header["seed"])
        return compare_codes(self.title, expected, self.d, floats, f"{self.gpu}, {self.path.name}", first)


AnyCapture: TypeAlias = Capture | ScalarCapture

# -- writing -----------------------------------------------------------------------------------------------------------


def header_of(unit: Unit, inputs: Inputs, seed: int) -> dict[str, Any]:
    """Return the part of a header that describes the instruction and its inputs."""
    return {
        "format": FORMAT, "kind": "dots", "arch": unit.arch, "instruction": unit.name, "a": unit.a.name,
        "b": unit.b.name, "d": unit.output.name, "k": unit.k,
        "scales": None if unit.scales is None else {"every": unit.scales.every, "format": unit.scales.format.name},
        "rows": len(inputs.c), "seed": seed, "generator": GENERATOR, "inputs_sha256": inputs.digest,
    }  # fmt: skip


def scalar_header(row: Scalar, operands: Sequence[Codes], seed: int) -> dict[str, Any]:
    """Return the part of a header that describes an operation of CUDA cores and its operands."""
    return {
        "format": FORMAT, "kind": "scalar", "kernel": row.kernel, "operation": str(row), "source": row.source.name,
        "result": row.result.name, "rows": len(operands[0]), "seed": seed, "generator": SCALAR_GENERATOR,
        "inputs_sha256": digest_of(operands),
    }  # fmt: skip


def write_capture(capture: AnyCapture, with_inputs: bool = False) -> None:
    """Write a capture to its path. Missing folders are created. A file appears only when it is complete."""
    arrays: dict[str, Any] = {"header": np.array(json.dumps(dict(capture.header)))}
    if isinstance(capture, ScalarCapture):
        arrays["d_steps"] = np.diff(capture.d, prepend=capture.d.dtype.type(0))
        inputs: dict[str, Any] = {f"x{number}": x for number, x in enumerate(capture.operands)}
    else:
        x = capture.inputs
        arrays["d"], inputs = capture.d, {"a": x.a, "b": x.b, "c": x.c}
        if x.scales is not None:
            inputs |= {"scale_a": x.scales.a, "scale_b": x.scales.b}
    capture.path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = capture.path.with_suffix(".part")
    with unfinished.open("wb") as file:
        np.savez_compressed(file, **(arrays | inputs if with_inputs else arrays))
    unfinished.replace(capture.path)


# -- reading -----------------------------------------------------------------------------------------------------------


def capture_files(path: Path) -> list[Path]:
    """Return the captures of a path: the file itself, or all captures below a folder, in the order of their names.

    Captures are `.npz` files, and folders `<GPU>/<format>` of the published outputs. `.npz` files below a folder with
    other arrays are left out; damaged ones are not.
    """
    if path.is_file():
        return [path]
    files = [each for each in path.rglob("*.npz") if each.is_file() and not _has_other_arrays(each)]
    folders = (each for each in [path, *path.rglob("*")] if each.is_dir())
    files += [each for each in folders if each.name in published.FORMATS and any(each.glob("d_*.txt"))]
    return sorted(files)


def _has_other_arrays(path: Path) -> bool:
    """Return whether an .npz file has only arrays that no capture has, by their names."""
    try:
        with ZipFile(path) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist()]
    except (BadZipFile, OSError):
        return False
    return "header" not in names and not published.is_published(names)


def read_captures(path: Path) -> Iterator[AnyCapture]:
    """Yield the captures of one file or folder of `capture_files`.

    Raises
    ------
    ValueError
        If it is not a capture, is damaged, or has inputs that this version no longer makes.
    """
    path = path.resolve()
    if path.is_dir():
        sets = published.read_folder(path)
    else:
        arrays = _arrays(path)
        if "header" in arrays:
            header = _header(path, arrays["header"])
            yield (_read_scalar if header["kind"] == "scalar" else _read_capture)(path, arrays, header)
            return
        if not published.is_published(arrays):
            raise ValueError(
                f"{path} holds no capture: neither `header` and `d`, as `floatsim capture` writes them, nor `a`, "
                f"`b`, `c_fp32` and `d_...`; it has {', '.join(arrays) or 'no array'}"
            )
        sets = published.read_npz(path)
    for each in sets:
        yield Capture(path, each.gpu, each.unit, each.inputs, each.d)


_FORMS = {b"\x93NUMPY": "a .npy file of one array", b"": "empty"}


def _arrays(path: Path) -> dict[str, Any]:
    """Return the arrays of an .npz file."""
    try:
        with path.open("rb") as opened:  # np.load does not close a file that it cannot read
            start = opened.read(6)
            if start[:2] != b"PK":
                raise ValueError(
                    f"{path} is {_FORMS.get(start, 'not an .npz file')}; captures are .npz files, as `floatsim "
                    "capture` writes them, or published outputs: <GPU>_<format>.npz, or a folder <GPU>/<format> of "
                    "text files"
                )
            opened.seek(0)
            file = np.load(opened, allow_pickle=False)
            try:
                return {name: file[name] for name in file.files}
            except (ValueError, BadZipFile, EOFError, zlib.error):
                raise ValueError(f"{path} is damaged, or holds other data than arrays of numbers and text") from None
    except (BadZipFile, EOFError):
        raise ValueError(f"{path} is damaged: it begins as an .npz file, and ends too soon") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from None


def _read_scalar(path: Path, arrays: Mapping[str, Any], header: Mapping[str, Any]) -> ScalarCapture:
    row = next((row for row in SCALARS if row.kernel == header["kernel"]), None)
    if row is None:
        raise ValueError(f"{path}: its header names an unknown operation: {header['kernel']}")
    rows = (header["rows"],)
    _check_array(path, "d_steps", arrays.get("d_steps"), rows, row.result.code_dtype)
    names = [f"x{number}" for number in range(ARITY.get(row.operation, 2) + bool(row.random_bits))]
    if "x0" in arrays:
        for name in names:
            dtype = np.dtype(np.uint32) if row.random_bits and name == names[-1] else row.source.code_dtype
            _check_array(path, name, arrays.get(name), rows, dtype)
        operands = tuple(arrays[name] for name in names)
    else:
        operands = operands_of(row, header["seed"])
    _check_inputs(path, header, digest_of(operands), SCALAR_GENERATOR)
    d: Codes = np.cumsum(arrays["d_steps"], dtype=row.result.code_dtype)
    return ScalarCapture(path, str(header["card"]), row, operands, d, header)


def _read_capture(path: Path, arrays: Mapping[str, Any], header: Mapping[str, Any]) -> Capture:
    try:
        unit = _unit(header)
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path}: its header names an unknown instruction: {error}") from None
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
    _check_inputs(path, header, inputs.digest, GENERATOR)
    return Capture(path, str(header["card"]), unit, inputs, arrays["d"], header)


_COMMON = ("rows", "seed", "inputs_sha256", "card", "generator")
_KEYS = {"dots": ("arch", "instruction", "a", "b", "d", "scales"), "scalar": ("kernel",)}
"""The keys of a header that reading needs, by kind. The first captures were all of the kind "dots", and name none."""


def _check_inputs(path: Path, header: Mapping[str, Any], digest: str, generator: int) -> None:
    if digest != header["inputs_sha256"]:
        made = f"made by generator {header['generator']}; this version's is {generator}"
        raise ValueError(f"{path}: its inputs do not match its header ({made}); its results cannot be compared")


def _header(path: Path, text: Any) -> dict[str, Any]:
    """Return the header, with all keys that reading needs."""
    try:
        header = json.loads(str(text))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not a capture: its header is not JSON: {error}") from None
    if not isinstance(header, dict):
        raise ValueError(f"{path} is not a capture: its header must be a JSON object, not {str(text)[:40]}")
    kind = header.setdefault("kind", "dots")
    missing = [key for key in ("format", *_KEYS.get(kind, ()), *_COMMON) if key not in header]
    if missing:
        raise ValueError(f"{path} is not a capture: its header lacks {', '.join(map(repr, missing))}")
    if header["format"] != FORMAT:
        raise ValueError(f"{path} has the format {header['format']!r}; this version reads {FORMAT!r}")
    if kind not in _KEYS:
        raise ValueError(f"{path} has the kind {kind!r}; this version reads {', '.join(map(repr, _KEYS))}")
    for key, least in (("rows", 10), ("seed", 0)):
        if type(header[key]) is not int or header[key] < least:
            raise ValueError(f"{path}: {key} of its header must be an integer of at least {least}, not {header[key]!r}")
    return header


def _check_array(path: Path, name: str, x: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if x is None or x.shape != shape or x.dtype != dtype:
        given = "missing" if x is None else f"{x.shape} of {x.dtype}"
        raise ValueError(f"{path}: {name} must be {shape} of {dtype}, not {given}")


def _unit(header: Mapping[str, Any]) -> Unit:
    scales = header["scales"]
    a, b, d = (_format(header[key]) for key in ("a", "b", "d"))
    block_scales = None if scales is None else Scales(int(scales["every"]), _format(scales["format"]))
    return named_unit(header["arch"], header["instruction"], a, b, d, block_scales)


def _format(name: str) -> FloatFormat:
    return as_format(name)


def read_single_capture(path: Path) -> AnyCapture:
    """Return the capture of a file that holds exactly one.

    Raises
    ------
    ValueError
        If there is none, or more than one.
    """
    captures = [capture for file in capture_files(path) for capture in read_captures(file)]
    if len(captures) != 1:
        listed = "; ".join(each.title for each in captures[:5])
        raise ValueError(
            f"against={str(path)!r} must hold one capture, and has {len(captures)}{listed and ': '}{listed}"
        )
    return captures[0]
