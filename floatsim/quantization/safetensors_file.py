"""Read safetensors files: quantized weights with their schemes, and plain tensors, read when they are used."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from floatsim.arrays.array.float_array import FloatArray
from floatsim.emulator.elementwise.execute import convert
from floatsim.formats import E2M1, FP32, FloatFormat
from floatsim.formats.call import CallOptions
from floatsim.formats.rounding import RoundingAttributes
from floatsim.quantization.checkpoint_schemes import (
    CONFIG_KEYS,
    CheckpointScheme,
    Parts,
    Weight,
    missing_parts,
    recognized,
)
from floatsim.quantization.quantized import Quantized
from floatsim.quantization.safetensors_storage import StoredTensor, in_steps, read_index, read_json, read_storage
from floatsim.quantization.tensor_file import TensorFile

__all__ = ["SafetensorsFile", "SafetensorsTensor"]

Array: TypeAlias = NDArray[Any]

_NEAREST = CallOptions(RoundingAttributes())
_CONFIGS = ("config.json", "quantize_config.json", "quant_config.json", "hf_quant_config.json")
"""The files beside a checkpoint that describe its quantization, in the order in which they are looked up."""


class SafetensorsTensor:
    """A weight or a plain tensor of a safetensors file. Its bytes are read when they are used.

    Attributes
    ----------
    name : str
        The name: that of the stored tensor, or of the weight that several stored tensors are.
    parts : dict
        The stored tensors by name. Each has `shape`, `dtype` and `data`, the bytes.
    scheme : CheckpointScheme, optional
        The scheme of a quantized weight.

    Examples
    --------
    >>> import numpy as np, tempfile, pathlib
    >>> from floatsim.quantization import SafetensorsFile
    >>> header = b'{"w":{"dtype":"F16","shape":[3],"data_offsets":[0,6]}}'
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "model.safetensors"
    >>> _ = path.write_bytes(len(header).to_bytes(8, "little") + header + np.float16([1, 2, 3]).tobytes())
    >>> tensor = SafetensorsFile(path)["w"]
    >>> tensor.type, tensor.shape, tensor.values
    ('F16', (3,), array([1., 2., 3.]))
    """

    name: str
    parts: dict[str, StoredTensor]
    scheme: CheckpointScheme | None

    def __init__(
        self, name: str, stored: StoredTensor | Parts, scheme: CheckpointScheme | None = None, lacks: str = ""
    ) -> None:
        parts = stored.tensors.values() if isinstance(stored, Parts) else (stored,)
        self.name, self.scheme, self.parts = name, scheme, {part.name: part for part in parts}
        self._parts, self._lacks = stored if isinstance(stored, Parts) else None, lacks

    def __repr__(self) -> str:
        return f"SafetensorsTensor(name={self.name!r}, type={self.type!r}, {len(self.parts)} stored tensors)"

    @cached_property
    def _weight(self) -> Weight:
        if self.scheme is None or self._parts is None:
            raise ValueError(f"{self.name} is stored as {self.type}, without scales{self._lacks or '; use values'}")
        with self._named_errors():
            return self.scheme.decoded(self._parts)

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        """Add the name of the weight to errors that lack it."""
        try:
            yield
        except ValueError as error:
            text = str(error)
            raise ValueError(text if self.name in text else f"{self.name}: {text}") from None

    def _rows(self, start: int, stop: int) -> Quantized:
        with self._named_errors():
            return self._weight.rows(start, stop)

    @property
    def _stored(self) -> StoredTensor:
        return next(iter(self.parts.values()))

    @property
    def type(self) -> str:
        """The name of the scheme, or of the dtype."""
        return self._stored.dtype if self.scheme is None else self.scheme.name

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the weight.

        Raises
        ------
        ValueError
            If the parts of a quantized weight do not fit each other, or the configuration is needed and missing.
        """
        return self._stored.shape if self.scheme is None else self._weight.shape

    @property
    def note(self) -> str:
        """What the file or its configuration says about the scheme, as "zero points of version 1"."""
        return "" if self.scheme is None else self._weight.note

    @property
    def nbits(self) -> int:
        """The size in the file, in bits."""
        return 8 * sum(part.data.size for part in self.parts.values())

    @property
    def is_quantized(self) -> bool:
        """Whether the tensor has codes with scales."""
        return self.scheme is not None

    @property
    def columns(self) -> Array | None:
        """The column of the weight of each column of `quantized()`, for GPTQ with act-order. None: the same columns."""
        return None if self.scheme is None else self._weight.columns

    def quantized(self) -> Quantized:
        """Return codes, scales and zero points, in the shape of the weight.

        With GPTQ's act-order, the columns are in the order of the groups: `columns` has the places. If the blocks of
        bitsandbytes do not end with the rows, the shape is that of a vector.

        Raises
        ------
        ValueError
            If the tensor is stored as plain numbers, the parts do not fit each other, or the configuration is needed
            and missing.
        """
        weight = self._weight
        q = self._rows(0, weight.count)
        if not weight.is_flat:
            return q
        _, width = q.scheme.block
        if len(weight.shape) > 1 and weight.count and weight.shape[-1] % width == 0:
            grid = (*weight.shape[:-1], weight.shape[-1] // width)
            return replace(q, codes=q.codes.reshape(weight.shape), scales=q.scales.reshape(grid), nested=weight.nested)
        return replace(q, nested=weight.nested)

    def dequantize(self) -> FloatArray:
        """Return the numbers in the shape of the weight, in the format and with the bits of the package.

        Raises
        ------
        ValueError
            If the tensor holds integers or complex numbers, and for the errors of `quantized`.
        """
        if self.scheme is None:
            if not self._stored.is_float:
                raise ValueError(f"{self.name} is stored as {self.type}, not as real floats; use integers()")
            return self._stored.floats()
        weight = self._weight
        return self._numbers(self._rows(0, weight.count)).reshape(weight.shape)

    def _numbers(self, q: Quantized) -> FloatArray:
        """Return the numbers of some rows, with the columns of the weight."""
        weight = self._weight
        if not weight.has_negative_zero:
            q = replace(q, codes=np.where(q.codes == E2M1.sign_mask, E2M1.code_dtype.type(0), q.codes))
        x = q.dequantize(weight.format)
        if weight.columns is None:
            return x
        codes = np.empty_like(x.codes)
        codes[:, weight.columns] = x.codes
        return FloatArray(codes, x.format)

    def integers(self) -> Array:
        """Return the numbers of a plain tensor of integers or booleans. Raise ValueError for another tensor."""
        if self.scheme is not None:
            raise ValueError(f"{self.name} is stored as {self.type}, not as integers; use quantized() or dequantize()")
        return self._stored.integers()

    def pieces(self, size: int = 1 << 22) -> Iterator[Array]:
        """Yield the numbers in the order of memory, in one-dimensional arrays of about `size` elements.

        The arrays are float32 or float64, or integers. A tensor need not fit into memory.
        """
        if self.scheme is None:
            stored = self._stored
            for start, stop in in_steps(math.prod(stored.shape), max(8, size // 8 * 8)):
                part = stored.part(start, stop)
                yield _floats(part.floats()) if part.is_float else part.integers()
            return
        weight = self._weight
        each = 1 if weight.is_flat else math.prod(weight.shape[1:])
        step = max(1, size // max(each * weight.step, 1)) * weight.step
        for start, stop in in_steps(weight.count if each else 0, step):
            yield _floats(self._numbers(self._rows(start, stop))).reshape(-1)

    @property
    def values(self) -> Array:
        """The numbers, exact: float64, or integers."""
        is_integers = self.scheme is None and not self._stored.is_float
        return self.integers() if is_integers else self.dequantize().values


def _floats(x: FloatArray) -> Array:
    """Return numbers as float32, or float64 for FP64."""
    fmt: FloatFormat = x.format
    if fmt.bits > FP32.bits:
        return x.values
    codes = np.asarray(x.codes) if fmt == FP32 else convert(x.codes, fmt, FP32, _NEAREST, False)[0]
    return codes.view(np.float32)


class SafetensorsFile(TensorFile[SafetensorsTensor]):
    """The tensors of a safetensors file by name, with quantized weights recognized. No package but NumPy reads it.

    The stored tensors of a quantized weight, such as `layer.qweight`, `layer.qzeros` and `layer.scales`, are one
    tensor, `layer.weight`.

    Parameters
    ----------
    path : str or path
        The file, or the index of a checkpoint in several files, `model.safetensors.index.json`. Files are mapped into
        memory: a tensor is read when it is used.
    config : dict, optional
        The configuration of the quantization, or all of a `config.json` that has one. Default: `quantization_config`
        of `config.json`, or `quantize_config.json`, `quant_config.json` or `hf_quant_config.json` beside the file.

    Attributes
    ----------
    stored : dict
        All stored tensors by name, with `shape`, `dtype` and `data`.
    metadata : dict
        The texts in the header, by key.
    config : dict
        The configuration of the quantization; empty without one. Default: read when it is needed.

    Raises
    ------
    TypeError
        If config is no dictionary.
    ValueError
        If config has no key that a scheme reads.
        If the file is truncated, its header is longer than the file or no JSON, a dtype is not known, a name occurs
        twice, or bytes of tensors overlap, have gaps, or do not fit the shapes; if the index or a configuration is
        damaged.
    OSError
        If a file cannot be read.

    Examples
    --------
    >>> import json, numpy as np, tempfile, pathlib
    >>> from floatsim.quantization import SafetensorsFile
    >>> header = {"a.weight": {"dtype": "F8_E4M3", "shape": [1, 2], "data_offsets": [0, 2]},
    ...           "a.weight_scale": {"dtype": "F32", "shape": [1], "data_offsets": [2, 6]}}
    >>> text = json.dumps(header).encode()
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "model.safetensors"
    >>> _ = path.write_bytes(len(text).to_bytes(8, "little") + text + bytes([0x38, 0xC0]) + np.float32([0.5]).tobytes())
    >>> tensor = SafetensorsFile(path)["a.weight"]
    >>> tensor.type, tensor.values, tensor.quantized()
    ('float-quantized', array([[ 0.5, -1. ]]), Quantized((1, 2), E4M3, block=(1, 2), scales FP32 (1, 1)))
    """

    def __init__(self, path: str | os.PathLike[str], config: Mapping[str, Any] | None = None) -> None:
        if config is not None and not isinstance(config, Mapping):
            raise TypeError(f"config must be a dictionary, not {config!r:.60}")
        self.path = Path(path)
        is_index = self.path.name.endswith(".index.json")
        self.stored, self.metadata = (read_index if is_index else read_storage)(self.path)
        self._config = None if config is None else _given(config)
        self._tensors = self._found()

    @cached_property
    def config(self) -> dict[str, Any]:
        """The configuration of the quantization; empty without one."""
        return self._config if self._config is not None else _config_beside(self.path.parent)

    def _found(self) -> dict[str, SafetensorsTensor]:
        weights = recognized(self.stored, lambda: self.config, self.metadata)
        used = {part.name for _, parts in weights.values() for part in parts.tensors.values()}
        tensors: dict[str, SafetensorsTensor] = {}
        for name, stored in self.stored.items():
            if name in weights:
                scheme, parts = weights[name]
                found = SafetensorsTensor(parts.name, parts, scheme)
            elif name in used:
                continue
            else:
                found = SafetensorsTensor(name, stored, None, missing_parts(name, self.stored))
            if found.name in tensors:
                raise ValueError(f"{self.path}: {found.name!r:.80} is the name of two weights")
            tensors[found.name] = found
        return tensors


def _given(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of the quantization that a user passed, which may be inside that of a model."""
    found: Any = config
    for name in ("quantization_config", "compression_config", "quantization"):
        if isinstance(config.get(name), Mapping):
            found = {"quant_method": "modelopt"} | config[name] if name == "quantization" else config[name]
            break
    if found and not any(key in found for key in CONFIG_KEYS):
        raise ValueError(
            f"config has no key that a scheme reads, but {', '.join(map(repr, list(found)[:8]))}; known keys are "
            f"{', '.join(CONFIG_KEYS)}"
        )
    return dict(found)


def _config_beside(folder: Path) -> dict[str, Any]:
    """Return the configuration of the quantization in the files of a folder; empty without one."""
    for name in _CONFIGS:
        path = folder / name
        if not path.is_file():
            continue
        try:
            found = read_json(path.read_bytes(), "it", strict=False)
        except ValueError as error:
            raise ValueError(f"{path} cannot be read as a configuration: {error}") from None
        config: Any = found
        if name == "config.json":
            config = found.get("quantization_config", found.get("compression_config"))
        elif name == "hf_quant_config.json":
            config = found.get("quantization")
            config = config | {"quant_method": "modelopt"} if isinstance(config, dict) else config
        if isinstance(config, dict):
            return config
    return {}
