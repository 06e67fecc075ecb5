"""Published outputs of real GPUs: their files, their layout, and the instructions that computed them.

The source is F. A. Khattak and M. Mikaitis, "Accurate Models of NVIDIA Tensor Cores": github.com/
north-numerical-computing/MATLAB-tensor-core, folder `model_validation/` (BSD-2-Clause). Each folder `<GPU>/<format>/`
has these files:

- `a_<GPU>_<format>.txt` and `b_<GPU>_<format>.txt`, with K hexadecimal FP32 words on a line for each dot product;
- `c_<GPU>_fp32.txt`, and `d_<GPU>_fp32.txt` or `d_<GPU>_fp16.txt`, with 32 binary digits on a line for each, also FP32.

Results in FP16 are stored as FP32, and c was rounded to FP16 for them. If a set has fewer results than inputs, the
results belong to the first inputs.

The same data as uint32 arrays is read from `<GPU>_<format>.npz`: `a` and `b` (rows, K), `c_fp32`, `d_fp32` and `d_fp16`
(rows,).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from floatsim._types import Codes
from floatsim.arrays.array.conversion import decode, encode
from floatsim.formats import BF16, E4M3, E5M2, FP16, FP32, TF32, FloatFormat
from floatsim.testing.vectors.dot_inputs import Inputs
from floatsim.testing.vectors.dot_unit import Unit, named_unit

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["FORMATS", "GPUS", "KEYS", "Published", "is_published", "published_unit", "read_folder", "read_npz"]

Words: TypeAlias = "NDArray[np.uint32]"


class PublishedDevice(NamedTuple):
    """A GPU's name in the table, its architecture, and the instruction of its FP16 and BF16 outputs."""

    name: str
    arch: str
    half: str


GPUS = {
    "V100": PublishedDevice("V100", "volta", "mma.m8n8k4"),
    "A100": PublishedDevice("A100", "ampere", "mma.m16n8k8"),
    "A2": PublishedDevice("A2", "ampere", "mma.m16n8k8"),
    "Ada": PublishedDevice("RTX 1000", "ada", "mma.m16n8k8"),
    "L40S": PublishedDevice("L40S", "ada", "mma.m16n8k8"),
    "H100": PublishedDevice("H100", "hopper", "mma.m16n8k16"),
    "H200": PublishedDevice("H200", "hopper", "mma.m16n8k16"),
    "B200": PublishedDevice("B200", "blackwell", "mma.m16n8k16"),
}
FORMATS = {"fp16": FP16, "bf16": BF16, "tf32": TF32, "E4M3": E4M3, "E5M2": E5M2}
KEYS = {"d_fp32": FP32, "d_fp16": FP16}


class Published(NamedTuple):
    """One set: a GPU, an instruction, its inputs, and its outputs."""

    gpu: str
    unit: Unit
    inputs: Inputs
    d: Codes


def published_unit(gpu: str, fmt: FloatFormat, key: str) -> Unit:
    """Return the instruction that computed a set. TF32 rows have K = 4; the instruction is filled up with zeros.

    >>> str(published_unit("H100", E4M3, "d_fp32"))
    'hopper wgmma.k32: E4M3 x E4M3 to FP32'
    """
    _, arch, half = GPUS[gpu]
    if fmt == TF32:
        name = "mma.m16n8k8.tf32"
    elif fmt.bits == 8:
        name = "wgmma.k32" if arch == "hopper" and key == "d_fp32" else "mma.m16n8k32"
    else:
        name = half
    return named_unit(arch, name, fmt, fmt, KEYS[key])


def _sets(path: Path, gpu: str, name: str, words: Mapping[str, Words]) -> Iterator[Published]:
    fmt = FORMATS[name]
    for key in KEYS:
        if key not in words:
            continue
        try:
            unit = published_unit(gpu, fmt, key)
        except ValueError as error:
            raise ValueError(f"{path} belongs to an unknown instruction: {error}") from None
        rows = len(words[key])
        _check_depth(path, words["a"].shape[1], unit)
        values = {side: words[source][:rows] for side, source in (("a", "a"), ("b", "b"), ("c", "c_fp32"), ("d", key))}
        # The outputs of wgmma are for c = 0: model_validation/Validate_TC_models.m:74 of the repository (65 or 69 in
        # other versions). The file of c belongs to the other set.
        if unit.name == "wgmma.k32":
            values["c"] = np.zeros_like(values["d"])
        codes = {side: _codes(path, side, x, unit.output if side in "cd" else fmt) for side, x in values.items()}
        yield Published(gpu, unit, Inputs(codes["a"], codes["b"], codes["c"]), codes["d"])


def _check_depth(path: Path, depth: int, unit: Unit) -> None:
    """Raise ValueError unless a row fits in one instruction, possibly filled up with zeros."""
    if not 1 <= depth <= unit.k:
        raise ValueError(f"{path} has {depth} products in a row; {unit} takes {unit.k}")


def _codes(path: Path, side: str, words: Words, fmt: FloatFormat) -> Codes:
    """Return FP32 bits as codes of a format. c is rounded; other values that the format does not hold are an error."""
    if fmt == FP32:
        return words
    values = words.view(np.float32)
    codes: Codes = encode(values, fmt)
    if side != "c":
        wrong = np.argwhere((decode(codes, fmt) != values) & ~np.isnan(values))
        if len(wrong):
            value = values[tuple(wrong[0])]
            raise ValueError(f"{path} is not of {fmt}: {side} has {value} in row {wrong[0][0]}")
    return codes


def _named(stem: str, path: Path, form: str) -> tuple[str, str]:
    gpu, _, name = stem.partition("_")
    if gpu not in GPUS or name not in FORMATS:
        raise ValueError(
            f"{path} is not named like published outputs: {form}, where the GPU is one of {', '.join(GPUS)}, and the "
            f"format one of {', '.join(FORMATS)}"
        )
    return gpu, name


def is_published(names: Any) -> bool:
    """Return whether a file with arrays of these names holds published outputs."""
    return {"a", "b", "c_fp32"} <= set(names) and any(key in names for key in KEYS)


def read_npz(path: Path) -> Iterator[Published]:
    """Yield the sets of `<GPU>_<format>.npz`."""
    gpu, name = _named(path.stem, path, "<GPU>_<format>.npz")
    with np.load(path, allow_pickle=False) as file:
        words = {key: file[key] for key in file.files if key in ("a", "b", "c_fp32", *KEYS)}
    for key, x in words.items():
        if x.dtype != np.uint32 or x.ndim != (2 if key in "ab" else 1):
            wanted = "(rows, K)" if key in "ab" else "(rows,)"
            raise ValueError(f"{path}: {key} must be {wanted} of uint32, bits of FP32, not {x.shape} of {x.dtype}")
    rows = max(len(words[key]) for key in KEYS if key in words)
    if words["a"].shape != words["b"].shape or min(len(words["a"]), len(words["c_fp32"])) < rows:
        given = ", ".join(f"{key} {x.shape}" for key, x in words.items())
        raise ValueError(
            f"{path}: a and b must have equal shapes, and a, b and c a row for each of {rows} results; they are {given}"
        )
    yield from _sets(path, gpu, name, words)


def read_folder(path: Path) -> Iterator[Published]:
    """Yield the sets of a folder `<GPU>/<format>/` in the repository's layout."""
    gpu, name = _named(f"{path.parent.name}_{path.name}", path, "a folder <GPU>/<format>")
    files = {
        "a": f"a_{gpu}_{name}", "b": f"b_{gpu}_{name}", "c_fp32": f"c_{gpu}_fp32",
        "d_fp32": f"d_{gpu}_fp32", "d_fp16": f"d_{gpu}_fp16",
    }  # fmt: skip
    words = {key: _words(path / f"{stem}.txt", 16 if key in "ab" else 2) for key, stem in files.items()
             if (path / f"{stem}.txt").is_file()}  # fmt: skip
    results = [len(words[key]) for key in KEYS if key in words]
    if not results:
        raise ValueError(f"{path} has no results: neither {files['d_fp32']}.txt nor {files['d_fp16']}.txt")
    words.setdefault("c_fp32", np.zeros((max(results), 1), np.uint32))
    for key in ("a", "b", "c_fp32"):
        if key not in words or len(words[key]) < max(results):
            raise ValueError(
                f"{path} lacks {files[key]}.txt, or the file has fewer lines than the {max(results)} results"
            )
    words |= {key: words[key][:, 0] for key in words if key not in "ab"}
    if words["a"].shape[1] != words["b"].shape[1]:
        raise ValueError(f"{path}: rows of {files['a']}.txt have {words['a'].shape[1]} words, and of "
                         f"{files['b']}.txt {words['b'].shape[1]}")  # fmt: skip
    yield from _sets(path, gpu, name, words)


def _words(file: Path, base: int) -> Words:
    """Return the numbers of a text file, (lines, words of a line)."""
    lines = [line.replace(",", " ").split() for line in file.read_text("ascii", "replace").splitlines() if line.strip()]
    digits = "(0[xX])?[0-9a-fA-F]{1,8}" if base == 16 else "[01]{32}"
    valid = all(re.fullmatch(digits, word) for line in lines for word in line)
    if not valid or len({len(line) for line in lines}) != 1 or (base == 2 and len(lines[0]) != 1):
        kind = "the same number of hexadecimal words on every line" if base == 16 else "32 binary digits on every line"
        raise ValueError(f"{file} must hold only {kind}")
    return np.array([[int(word, base) for word in line] for line in lines], np.uint32)
