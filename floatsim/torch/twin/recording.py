"""The file of a recorded training run: an .npz with the codes of all tensors, and their description as JSON."""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

__all__ = ["DESCRIBED", "PARTS", "Entry", "Place", "Recording", "codes_of", "dtype_name", "sha256_of"]

VERSION = 1
"""The version of the file."""

_JSON = "recording.json"

DESCRIBED: dict[str, dict[str, str]] = {
    "h200": {"name": "NVIDIA H200", "torch": "2.11.0", "cuda": "13.0"},
}
"""The devices that can be emulated: the name of the GPU, and the versions that were compared with it."""

PARTS = ("initial", "input", "forward", "loss", "gradient", "weight_gradient", "updated")
"""The parts of a run: initial weights; then in each step the batch, the results of modules, the loss, the gradients of
these results, the gradients of the weights, and the weights after the optimizer."""

_NAME = re.compile(r"(initial)/(.+)|step(\d+)/(input|forward|loss|gradient|weight_gradient|updated)(?:/(.+))?")
_BYTES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1, "int64": 8,
    "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1,
}  # fmt: skip
"""The dtypes of recorded tensors, and the bytes of an element."""


class Place(NamedTuple):
    """Where a tensor belongs in a run.

    Attributes
    ----------
    step : int
        The training step; -1 for initial weights.
    part : str
        A name of `PARTS`.
    name : str
        The path of the module or the name of the weight. "NAME#1" is a second result of a module, and "NAME@1" that of
        its second call in the step.

    Examples
    --------
    >>> Place.parse("step2/gradient/0.linear")
    Place(step=2, part='gradient', name='0.linear')
    >>> str(Place(-1, "initial", "0.weight"))
    'initial/0.weight'
    """

    step: int
    part: str
    name: str = ""

    def __str__(self) -> str:
        head = self.part if self.step < 0 else f"step{self.step}/{self.part}"
        return f"{head}/{self.name}" if self.name else head

    @classmethod
    def parse(cls, text: str) -> Place:
        """Return the place of a text, as `str` writes it.

        Raises
        ------
        ValueError
            For other texts.
        """
        found = _NAME.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} names no tensor of a run, such as step0/forward/0")
        if found[1]:
            return cls(-1, "initial", found[2])
        return cls(int(found[3]), found[4], found[5] or "")

    @property
    def module(self) -> str:
        """The path of the module, without the numbers of its call and of its result.

        >>> Place(0, "weight_gradient", "2.weight").module, Place(0, "forward", "encoder@1#0").module
        ('2', 'encoder')
        """
        if self.part in ("initial", "weight_gradient", "updated"):
            return self.name.rpartition(".")[0]
        return re.sub(r"(@\d+)?(#\d+)?$", "", self.name) if self.part != "input" else ""


class Entry(NamedTuple):
    """The description of a recorded tensor.

    Attributes
    ----------
    dtype : str
        The dtype of the tensor: "bfloat16", "int64", ...
    shape : tuple of int
        Its shape.
    sha256 : str
        The hash of the bytes of its codes, little-endian and in C order.
    stored : bool
        Whether the file has the codes. Without them, tensors are compared by the hash.
    """

    dtype: str
    shape: tuple[int, ...]
    sha256: str
    stored: bool = True


def dtype_name(dtype: torch.dtype) -> str:
    """Return the name of a dtype.

    Raises
    ------
    ValueError
        For a dtype that a recording cannot have.

    >>> dtype_name(torch.bfloat16)
    'bfloat16'
    """
    name = str(dtype).removeprefix("torch.")
    if name not in _BYTES:
        raise ValueError(f"a tensor of dtype {name} cannot be recorded; possible are {', '.join(_BYTES)}")
    return name


def codes_of(x: torch.Tensor) -> np.ndarray[Any, Any]:
    """Return the codes of a tensor as unsigned integers of its shape, in memory of their own.

    >>> codes_of(torch.tensor([1.0, -2.0], dtype=torch.bfloat16)).tolist() == [0x3F80, 0xC000]
    True
    """
    size = _BYTES[dtype_name(x.dtype)]
    kind = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}[size]
    numbers = x.detach().cpu().contiguous()
    found: np.ndarray[Any, Any] = numbers.view(kind).numpy().view(f"uint{8 * size}").copy()
    return found


def sha256_of(codes: np.ndarray[Any, Any]) -> str:
    """Return the hash of codes.

    >>> sha256_of(np.zeros(1, np.uint16))[:8]
    '96a296d2'
    """
    return hashlib.sha256(np.ascontiguousarray(codes).astype(codes.dtype.newbyteorder("<")).tobytes()).hexdigest()


@dataclass
class Recording:
    """A recorded training run.

    Attributes
    ----------
    facts : dict
        The description of the run, without its tensors: device, versions, settings, steps, optimizer, kernels and the
        text of MODEL.py. `floatsim docs twin` describes each.
    entries : dict of Place to Entry
        The tensors in the order in which the run made them.
    codes : dict of Place to ndarray
        The codes of the tensors that are stored, as unsigned integers.

    Examples
    --------
    >>> x = torch.ones(2, dtype=torch.bfloat16)
    >>> recording = Recording({"device": "h200", "steps": 1})
    >>> recording.add(Place(0, "loss"), x)
    >>> recording.entries[Place(0, "loss")].shape, recording.changed()
    ((2,), [])
    """

    facts: dict[str, Any] = field(default_factory=dict)
    entries: dict[Place, Entry] = field(default_factory=dict)
    codes: dict[Place, np.ndarray[Any, Any]] = field(default_factory=dict)

    def add(self, place: Place, x: torch.Tensor, largest: int | None = None) -> None:
        """Add a tensor. One with more than `largest` elements is kept as its hash only.

        Parameters
        ----------
        place : Place
            Where it belongs.
        x : torch.Tensor
            The tensor, on any device.
        largest : int, optional
            The most elements of a stored tensor. Default: no limit.

        Raises
        ------
        ValueError
            For other dtypes, and for a place that has a tensor already.
        """
        if place in self.entries:
            raise ValueError(f"the recording has {place} already")
        codes, stored = codes_of(x), largest is None or x.numel() <= largest
        self.entries[place] = Entry(dtype_name(x.dtype), tuple(x.shape), sha256_of(codes), stored)
        if stored:
            self.codes[place] = codes

    def changed(self) -> list[Place]:
        """Return the tensors whose codes do not have the hash that was recorded with them."""
        return [place for place, codes in self.codes.items() if sha256_of(codes) != self.entries[place].sha256]

    # -- the file ------------------------------------------------------------------------------------------------------

    def write(self, path: str | Path) -> None:
        """Write the file.

        Parameters
        ----------
        path : str or Path
            Its name. NumPy reads it as .npz, whatever its name.

        Raises
        ------
        OSError
            If the file cannot be written.
        """
        tensors = [
            {"name": str(place), "dtype": each.dtype, "shape": list(each.shape), "sha256": each.sha256,
             "stored": each.stored} for place, each in self.entries.items()
        ]  # fmt: skip
        text = json.dumps({"floatsim_twin": VERSION, **self.facts, "tensors": tensors}, indent=1)
        with Path(path).open("wb") as file:
            np.savez_compressed(
                file, allow_pickle=False, **{_JSON: np.frombuffer(text.encode("utf-8"), np.uint8)},
                **{str(place): codes for place, codes in self.codes.items()},
            )  # fmt: skip

    @classmethod
    def read(cls, path: str | Path) -> Recording:
        """Read a file.

        Parameters
        ----------
        path : str or Path
            A file that `write` made.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        ValueError
            If the file is no recording, is truncated or damaged, has another version, or describes tensors that it does
            not have.
        """
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"there is no file {path}; `floatsim twin record` writes one")
        if not zipfile.is_zipfile(path):
            raise ValueError(f"{path.name} is no complete recording: it is no whole .npz file, which is a zip archive")
        try:
            with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
        except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, KeyError, OSError, AttributeError) as error:
            raise ValueError(f"{path.name} is no complete recording: {error}") from None
        if _JSON not in arrays:
            raise ValueError(f"{path.name} is no recording of floatsim twin: it has no {_JSON}")
        try:
            facts = json.loads(arrays.pop(_JSON).tobytes().decode("utf-8"))
        except ValueError as error:
            raise ValueError(f"{path.name}: {_JSON} is no JSON: {error}") from None
        return cls._from_parts(path.name, facts, arrays)

    @classmethod
    def _from_parts(cls, name: str, facts: Any, arrays: dict[str, np.ndarray[Any, Any]]) -> Recording:
        """Return the recording of the parts of a file, which are checked."""
        version = facts.pop("floatsim_twin", None) if isinstance(facts, dict) else None
        if version != VERSION:
            raise ValueError(f"{name} is a recording of version {version!r}; this floatsim reads version {VERSION}")
        for key, kind in (("device", str), ("steps", int), ("versions", dict), ("tensors", list)):
            if not isinstance(facts.get(key), kind) or isinstance(facts[key], bool):
                raise ValueError(f"{name}: {_JSON} has no {key!r}, or it is no {kind.__name__}")
        found = cls(facts)
        for row in facts.pop("tensors"):
            try:
                place = Place.parse(row["name"])
                entry = Entry(row["dtype"], tuple(map(int, row["shape"])), str(row["sha256"]), bool(row["stored"]))
                size = _BYTES[entry.dtype]
            except (KeyError, TypeError, ValueError) as error:
                raise ValueError(f"{name}: {_JSON} has a wrong row {row!r}: {error}") from None
            found.entries[place] = entry
            if not entry.stored:
                continue
            codes = arrays.pop(str(place), None)
            if codes is None:
                raise ValueError(f"{name} is no complete recording: the codes of {place} are missing")
            if codes.dtype != np.dtype(f"uint{8 * size}") or codes.shape != entry.shape:
                raise ValueError(
                    f"{name}: {place} must be an array of uint{8 * size} and of shape {entry.shape}, not of "
                    f"{codes.dtype} and of shape {codes.shape}"
                )
            found.codes[place] = codes
        if arrays:
            raise ValueError(f"{name} has arrays that {_JSON} does not describe: {', '.join(sorted(arrays)[:3])}")
        return found

    def of_part(self, part: str, step: int = -1) -> Mapping[str, Entry]:
        """Return the tensors of a part of a step by their names.

        >>> Recording(entries={Place(-1, "initial", "w"): Entry("float32", (1,), "")}).of_part("initial")
        {'w': Entry(dtype='float32', shape=(1,), sha256='', stored=True)}
        """
        return {place.name: each for place, each in self.entries.items() if place[:2] == (step, part)}
