"""The schemes of quantized weights in safetensors files: the names of their parts, and how they are decoded.

A row of `CHECKPOINT_SCHEMES` is recognized by the names and dtypes of its parts. Sources: the packages that the page
"Checkpoint files" of the documentation names, with their versions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from floatsim.arrays.array.float_array import FloatArray
from floatsim.formats import BF16, E2M1, E4M3, E5M2, E8M0, FP16, FP32, FloatFormat
from floatsim.quantization.integer import INTEGER_FORMATS, IntegerFormat
from floatsim.quantization.lookup import BNB_FP4, DYNAMIC8, NF4, LookupFormat
from floatsim.quantization.packing import PACKED_LAYOUTS, unpack
from floatsim.quantization.quantized import NestedScales, Quantized
from floatsim.quantization.safetensors_storage import StoredTensor, read_json
from floatsim.quantization.scales import number
from floatsim.quantization.scheme import ElementFormat, Scheme

__all__ = ["CHECKPOINT_SCHEMES", "CONFIG_KEYS", "CheckpointScheme", "Parts", "Weight", "missing_parts", "recognized"]

Array: TypeAlias = NDArray[Any]

_FORMATS = {fmt.name: fmt for fmt in INTEGER_FORMATS}
CONFIG_KEYS = (
    "bits", "w_bit", "group_size", "q_group_size", "desc_act", "dynamic", "checkpoint_format", "format", "quant_method",
    "quant_algo", "version", "config_groups", "weight_block_size",
)  # fmt: skip
"""The keys of a configuration that schemes read."""
_STEP = 32  # rows: whole words of packed zero points of 2 to 8 bits
_TORCH = {"float16": FP16, "bfloat16": BF16, "float32": FP32}
_SCALES = "F16 BF16 F32"
_ANY_INTEGER = "I8 U8 I16 U16 I32 U32 I64 U64"


@dataclass(frozen=True)
class Weight:
    """A weight whose parts were checked, and how its rows are decoded.

    Attributes
    ----------
    shape : tuple of int
        The shape of the weight.
    format : FloatFormat
        The format of the numbers that the package returns.
    rows : function
        It takes a start and a stop, and returns those rows as a Quantized. If `is_flat`, elements take the place of
        rows.
    step : int
        Rows of which a start is a multiple.
    columns : array, optional
        The column of the weight of each column of the Quantized, if the groups are not contiguous.
    note : str
        What the file or its configuration says about the scheme.
    is_flat : bool
        Whether the blocks are those of the elements in the order of memory, and do not end with a row.
    nested : NestedScales, optional
        The scales as they are stored, if they are quantized.
    has_negative_zero : bool
        Whether the package reads the code of E2M1's -0 as -0. ModelOpt reads it as +0.
    """

    shape: tuple[int, ...]
    format: FloatFormat
    rows: Callable[[int, int], Quantized]
    step: int = _STEP
    columns: Array | None = None
    note: str = ""
    is_flat: bool = False
    nested: NestedScales | None = None
    has_negative_zero: bool = True

    @property
    def count(self) -> int:
        """The number of rows, or of elements if the weight is flat."""
        return math.prod(self.shape) if self.is_flat else self.shape[0]


@dataclass(frozen=True)
class Parts:
    """The stored tensors of one weight, and the configuration of the checkpoint."""

    name: str
    tensors: dict[str, StoredTensor]
    config: Mapping[str, Any]
    metadata: Mapping[str, str]

    def __getitem__(self, part: str) -> StoredTensor:
        return self.tensors[part]

    def __contains__(self, part: str) -> bool:
        return part in self.tensors

    @property
    def method(self) -> Any:
        """The method that the configuration names, or None."""
        return self.config.get("quant_method")

    def error(self, text: str) -> ValueError:
        """Return an error about this weight."""
        return ValueError(f"{self.name}: {text}")

    def integers(self, part: str) -> Array:
        """Return a part of integers as int64."""
        x = self[part].integers()
        if x.dtype == np.uint64 and x.size and int(x.max()) >= 1 << 63:
            raise self.error(f"{part[1:]} has the number {x.max()}, which is too large")
        return x.astype(np.int64)

    def check_shape(self, part: str, shape: tuple[int, ...]) -> None:
        """Raise a ValueError if a part has another shape."""
        found = self[part].shape
        if found != shape:
            raise self.error(f"{part[1:]} has the shape {found}, and {shape} fits the other parts")

    def matrix(self, part: str) -> tuple[int, int]:
        """Return the shape of a part, which must be a matrix."""
        found = self[part].shape
        if len(found) != 2:
            raise self.error(f"{part[1:]} must be a matrix, not of shape {found}")
        return found[0], found[1]

    def scalar(self, part: str) -> FloatArray:
        """Return a part that is one number."""
        x = self[part].floats()
        if x.size != 1:
            raise self.error(f"{part[1:]} must be one number, not of shape {x.shape}")
        return x.reshape(())

    @cached_property
    def torchao(self) -> dict[str, Any]:
        """What the metadata of torchao say about this weight."""
        text = self.metadata.get(self.name)
        return {} if text is None else read_json(text.encode(), f"the metadata of {self.name}")


def _integers(bits: int, *, signed: bool) -> IntegerFormat:
    return _FORMATS[f"{'' if signed else 'U'}INT{bits}"]


def _part_of(x: FloatArray, index: Any) -> FloatArray:
    return FloatArray(np.ascontiguousarray(x.codes[index]), x.format)


def _transposed(x: FloatArray) -> FloatArray:
    return FloatArray(np.ascontiguousarray(x.codes.T), x.format)


def _blocks(parts: Parts, part: str, shape: tuple[int, int], settings: Settings = ()) -> tuple[int, int]:
    """Return the height and width of the blocks that settings give, or that the shape of the scales implies."""
    grid = parts[part].shape
    counts = (*grid, 1, 1)[:2] if len(grid) < 2 else grid
    if len(counts) != 2 or (counts != (1, 1) and (0 in counts or 0 in shape)):
        raise parts.error(f"{part[1:]} of shape {grid} fits no blocks of the weight {shape}")
    if counts == (1, 1):
        implied = [shape]
    else:
        usual = (128, 128)  # of FP8 with blocks, whose last blocks may be short
        divided = shape[0] // counts[0], shape[1] // counts[1]
        implied = [divided, usual] if counts[0] in (1, shape[0]) else [usual, divided]
        implied = [block for block in implied if _counts(shape, block) == counts]
    given = [_given_block(parts, each, shape) for each in settings]
    fitting = {block for _, block in given if block and _counts(shape, block) == counts}
    if len(fitting) == 1:
        return fitting.pop()
    if given and not fitting and all(block for _, block in given):
        found = " x ".join(map(str, implied[0])) if implied else f"the shape {grid}"
        raise parts.error(f"the configuration has {given[0][0]}, and {part[1:]} of shape {grid} has blocks of {found}")
    if not implied:
        raise parts.error(f"{part[1:]} of shape {grid} fits no blocks of the weight {shape}")
    if fitting and implied[0] not in fitting:
        raise parts.error(f"{part[1:]} of shape {grid} fits several blocks of the configuration: {sorted(fitting)}")
    return implied[0]


def _counts(shape: tuple[int, int], block: tuple[int, int]) -> tuple[int, int]:
    """Return the number of blocks in a column and in a row; 0 without blocks."""
    return tuple(-(-size // each) if each else 1 - bool(size) for size, each in zip(shape, block, strict=True))  # type: ignore[return-value]


def _grid(x: FloatArray | Array, shape: tuple[int, int], block: tuple[int, int]) -> Any:
    """Return scales or zero points as a matrix, one for each block."""
    return x.reshape(-(-shape[0] // block[0]), -(-shape[1] // block[1]))


def _in_rows(block: tuple[int, int], start: int, stop: int) -> slice:
    """Return the blocks of some rows."""
    return slice(start // block[0], -(-stop // block[0]))


def _scheme(fmt: ElementFormat, block: Any, scale_format: FloatFormat) -> Scheme:
    return Scheme(fmt, block, scale_format)


# -- settings: what a configuration says about a weight ----------------------------------------------------------------

Settings: TypeAlias = Sequence[Mapping[str, Any]]
"""A configuration may have several settings for several layers: a weight must fit one of them."""


def _is_integer(x: Any) -> bool:
    return isinstance(x, int) and not isinstance(x, bool)


def _pair(parts: Parts, key: str, value: Any) -> tuple[int, int]:
    """Return a height and a width of a configuration."""
    if not isinstance(value, list | tuple) or len(value) != 2 or not all(_is_integer(n) and n > 0 for n in value):
        raise parts.error(f"{key}={value!r:.40} must be a height and a width")
    return value[0], value[1]


def _given_block(
    parts: Parts, settings: Mapping[str, Any], shape: tuple[int, int]
) -> tuple[str, tuple[int, int] | None]:
    """Return the key of the size of blocks with its value, and the blocks, or None if the settings do not tell."""
    strategy, size = settings.get("strategy"), settings.get("group_size")
    named, whole = f"strategy={strategy!r:.40}", (1, shape[1])
    if strategy in ("tensor", "channel"):
        return named, shape if strategy == "tensor" else whole
    if settings.get("block_structure") is not None and strategy in ("block", None):
        height, width = _pair(parts, "block_structure", settings["block_structure"])
        return f"block_structure={[height, width]}", (min(height, shape[0]), min(width, shape[1]))
    if size is None or strategy not in ("group", "tensor_group", None):
        return named, None
    if not _is_integer(size) or size < -1 or size == 0:
        raise parts.error(f"group_size={size!r:.40} must be an integer of at least 1, or -1")
    return f"group_size={size}", whole if size == -1 else (1, min(size, shape[1]))


def _fitting(parts: Parts, settings: Settings, key: str, found: Any, fits: Callable[[Any], bool]) -> Settings:
    """Return the settings whose value of a key, if they have one, fits what the file has; one must."""
    kept = [each for each in settings if each.get(key) is None or fits(each[key])]
    if settings and not kept:
        values = ", ".join(dict.fromkeys(f"{key}={each[key]!r:.40}" for each in settings))
        raise parts.error(f"the configuration has {values}, and the file has {found}")
    return kept


def _fits_size(size: int, columns: int) -> Callable[[Any], bool]:
    """Return whether a group_size is that of groups: -1, and numbers beyond the columns, are whole rows."""
    return lambda n: _is_integer(n) and (min(n, columns) == size or (n == -1 and size == columns))


def _settings_of_weights(parts: Parts, kind: str) -> Settings:
    """Return the settings of weights in the groups of a configuration of compressed-tensors, of type int or float."""
    groups = parts.config.get("config_groups")
    each = list(groups.values()) if isinstance(groups, dict) else []
    if not all(isinstance(group, dict) for group in each):  # names of presets
        return []
    weights = [group["weights"] for group in each if isinstance(group.get("weights"), dict)]
    return _fitting(parts, weights, "type", repr(kind), lambda value: value == kind)


def _with_parts(parts: Parts, settings: Settings) -> Settings:
    """Return the settings whose zero points and groups of columns the file has; one must."""
    if ".weight_zero_point" not in parts:
        settings = _fitting(parts, settings, "symmetric", "no weight_zero_point", lambda value: value is not False)
    if ".weight_g_idx" not in parts:
        needs = (True, "group", "dynamic")
        settings = _fitting(parts, settings, "actorder", "no weight_g_idx", lambda value: value not in needs)
    return settings


def _settings_of_bits(parts: Parts, kind: str, bits: int, least: int) -> Settings:
    """Return those of the settings whose num_bits fit codes of 4 or 8 bits."""
    settings = _settings_of_weights(parts, kind)
    if kind == "int":
        settings = _with_parts(parts, settings)
    return _fitting(parts, settings, "num_bits", bits, lambda n: _is_integer(n) and least <= n <= bits)


def _settings_of_layers(parts: Parts) -> Settings:
    """Return the settings of all layers, and of those that GPTQModel's `dynamic` or AutoRound's `extra_config` has."""
    found = [parts.config]
    for key in ("dynamic", "extra_config"):
        more = parts.config.get(key)
        overrides = more.values() if isinstance(more, dict) else ()
        found += [{**parts.config, **each} for each in overrides if isinstance(each, dict)]
    return found


# -- groups of columns that are not contiguous (act-order, desc_act) ---------------------------------------------------


def _order(parts: Parts, part: str, groups: int, columns: int) -> tuple[int, Array | None]:
    """Return the size of the groups of g_idx, and the columns in the order of the groups if that is another one."""
    parts.check_shape(part, (columns,))
    group_of = parts.integers(part)
    if columns and (int(group_of.min()) < 0 or int(group_of.max()) >= groups):
        raise parts.error(f"{part[1:]} has groups {group_of.min()} to {group_of.max()}, and there are {groups}")
    sizes = np.bincount(group_of, minlength=groups)
    size = int(sizes[0]) if groups else 0
    if not size or np.any(sizes[:-1] != size) or not 1 <= sizes[-1] <= size:
        raise parts.error(f"{part[1:]} has groups of different sizes, {sizes[:4].tolist()}, ...")
    if np.all(group_of[1:] >= group_of[:-1]):
        return size, None
    return size, np.argsort(group_of, kind="stable")


# -- GPTQ and AWQ: words of int32, the weight transposed ---------------------------------------------------------------


def _is_gptq(parts: Parts) -> bool:
    return parts[".qweight"].shape[-1:] == parts[".scales"].shape[-1:]


def _is_awq(parts: Parts) -> bool:
    return not _is_gptq(parts)


def _zero_version(parts: Parts) -> int:
    """Return the version of GPTQ's zero points. The file alone does not tell it."""
    config = parts.config
    known = {"gptq": 1, "gptq_v2": 2}
    given = config.get("checkpoint_format", config.get("format"))
    if isinstance(given, str) and given in known:
        return known[given]
    if given is not None:
        raise parts.error(f"checkpoint_format={given!r:.40} is not supported; known are {', '.join(known)}")
    if config.get("quant_method") == "gptq" or "bits" in config:
        return 1  # before there was a version 2, no format was written
    raise parts.error(
        "the file does not tell the zero points of GPTQ version 1, which are stored less 1, from version 2; put "
        "quantize_config.json or config.json beside it, or pass config={'checkpoint_format': 'gptq'} or 'gptq_v2' "
        "(in the command line --config FILE)"
    )


def _gptq(parts: Parts) -> Weight:
    words, out = parts.matrix(".qweight")
    groups, _ = parts.matrix(".scales")
    settings = _settings_of_layers(parts)
    if ".g_idx" in parts:
        columns = parts[".g_idx"].shape[0] if parts[".g_idx"].shape else 0
        bits = 32 * words // max(columns, 1)
        if bits not in PACKED_LAYOUTS["gptq"].bits or columns * bits != 32 * words:
            raise parts.error(f"qweight {(words, out)} holds no codes of 2, 3, 4 or 8 bits of {columns} columns")
        size, order = _order(parts, ".g_idx", groups, columns)
        settings = _fitting(parts, settings, "bits", bits, lambda n: _is_integer(n) and n == bits)
        _fitting(parts, settings, "group_size", size, _fits_size(size, columns))
    else:
        bits, columns, size = _contiguous(parts, settings, words, groups, out)
        order = None
    if out * bits % 32:
        raise parts.error(f"{out} rows have no whole words of zero points of {bits} bits")
    parts.check_shape(".qzeros", (groups, out * bits // 32))
    version, fmt, scales = _zero_version(parts), _integers(bits, signed=False), parts[".scales"].floats()
    stored, zeros_stored = parts[".qweight"].integers(), parts[".qzeros"].integers()

    def rows(start: int, stop: int) -> Quantized:
        codes = unpack(stored[:, start:stop], "gptq", bits=bits).T
        zeros = _gptq_zeros(zeros_stored[:, start * bits // 32 : stop * bits // 32], bits, version)
        scheme = _scheme(fmt, (1, size), scales.format)
        if order is not None:
            codes = codes[:, order]
        return Quantized(codes, _transposed(_part_of(scales, np.s_[:, start:stop])), scheme, zeros.T)

    # the rows of a part have whole words: 16 of 2 bits, 32 of 3 bits
    return Weight((out, columns), scales.format, rows, columns=order,
                  note=f"zero points of version {version}{', act-order' if order is not None else ''}")  # fmt: skip


def _contiguous(parts: Parts, settings: Settings, words: int, groups: int, out: int) -> tuple[int, int, int]:
    """Return the bits, columns and size of groups of GPTQ without g_idx."""
    if any(each.get("desc_act") for each in settings):
        raise parts.error("the configuration has desc_act=True, whose groups g_idx tells, and the file has no g_idx")
    given, known = parts.config.get("bits"), PACKED_LAYOUTS["gptq"].bits
    if not _is_integer(given) or given not in known:
        raise parts.error(f"a file without g_idx needs bits of 2, 3, 4 or 8 in its configuration, not {given!r:.40}")
    _, zero_words = parts.matrix(".qzeros")
    bits = 32 * zero_words // max(out, 1)
    if bits not in known or bits * out != 32 * zero_words:
        parts.check_shape(".qzeros", (groups, out * given // 32))
    settings = _fitting(parts, settings, "bits", bits, lambda n: _is_integer(n) and n == bits)
    columns, sizes = (
        32 * words // bits,
        [each.get("group_size", -1) for each in settings],
    )  # of 3 bits, words are threes
    if columns * bits != 32 * words:
        raise parts.error(f"qweight {(words, out)} holds no whole columns of {bits} bits")
    found = {columns if n == -1 else n for n in sizes if _is_integer(n) and (n == -1 or n > 0)}
    fitting = [n for n in found if n and -(-columns // n) == groups]
    if len(fitting) != 1:
        text = ", ".join(f"{n!r:.40}" for n in sizes)
        raise parts.error(f"group_size={text} does not fit {columns} columns and {groups} groups")
    return bits, columns, fitting[0]


def _gptq_zeros(words: Array, bits: int, version: int) -> Array:
    """Return zero points as GPTQModel reads them: it adds 1 to all zero points of a word at once, modulo 2**32.

    With 3 bits, whose zero points straddle words, it adds 1 to each, modulo 8.
    """
    if version == 1 and bits != 3:
        ones = np.uint32(sum(1 << shift for shift in range(0, 32, bits)))
        words = words.view(np.uint32) + ones
    zeros = unpack(words, "gptq-zeros-v2", bits=bits)
    return (zeros + 1) & 7 if version == 1 and bits == 3 else zeros


def _awq(parts: Parts) -> Weight:
    columns, words = parts.matrix(".qweight")
    groups, out = parts.matrix(".scales")
    version = str(parts.config.get("version", "gemm")).lower()
    if version != "gemm":
        raise parts.error(f"version={version!r:.40} of AWQ is not supported; only 'gemm' is")
    if 8 * words != out or not groups or columns % groups:
        raise parts.error(f"qweight {(columns, words)} and scales {(groups, out)} are no weight of AWQ with 4 bits")
    parts.check_shape(".qzeros", (groups, words))
    settings, size = _settings_of_layers(parts), columns // groups
    for key in ("bits", "w_bit"):
        settings = _fitting(parts, settings, key, 4, lambda n: _is_integer(n) and n == 4)
    for key in ("group_size", "q_group_size"):
        settings = _fitting(parts, settings, key, size, _fits_size(size, columns))
    scales, stored, zeros = (parts[".scales"].floats(), parts[".qweight"].integers(), parts[".qzeros"].integers())

    def rows(start: int, stop: int) -> Quantized:
        part = np.s_[:, start // 8 : stop // 8]
        scheme = _scheme(_FORMATS["UINT4"], (1, columns // groups), scales.format)
        return Quantized(unpack(stored[part], "awq").T, _transposed(_part_of(scales, np.s_[:, start:stop])), scheme,
                         unpack(zeros[part], "awq").T)  # fmt: skip

    return Weight((out, columns), scales.format, rows)


# -- compressed-tensors and ModelOpt -----------------------------------------------------------------------------------


def _packed_width(parts: Parts, columns: int, words: int) -> tuple[int, str, Settings]:
    """Return the bits and the layout of packed codes, by the number of words in a row, and the settings that fit."""
    found = set()
    for bits in range(2, 9):
        found |= {(bits, "compressed-tensors")} if -(-columns * bits // 32) == words else set()
        whole = 32 // bits
        if 32 % bits and -(-columns // whole) == words:
            found.add((bits, "compressed-tensors-words"))
    widths = sorted({bits for bits, _ in found})
    settings = _settings_of_weights(parts, "int")
    if found:
        settings = _fitting(parts, settings, "num_bits", " or ".join(map(str, widths)),
                            lambda n: _is_integer(n) and n in widths)  # fmt: skip
    given = [each.get("num_bits") for each in settings]
    if given and None not in given:
        found = {each for each in found if each[0] in given}
    if len(found) != 1:
        names = ", ".join(map(str, sorted({bits for bits, _ in found})))
        if not names:
            chosen = f" that config_groups names, {', '.join(map(str, sorted(given, key=str)))}" if given else ""
            raise parts.error(f"{words} words for {columns} codes fit no width from 2 to 8 bits{chosen}")
        weights = {"config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": max(found)[0]}}}}
        raise parts.error(
            f"{words} words for {columns} codes fit {names} bits; put config.json with num_bits beside the file, or "
            f"pass config={weights} (in the command line --config FILE)"
        )
    bits, layout = found.pop()
    return bits, layout, _with_parts(parts, [each for each in settings if each.get("num_bits") in (None, bits)])


def _pack_quantized(parts: Parts) -> Weight:
    out, words = parts.matrix(".weight_packed")
    parts.check_shape(".weight_shape", (2,))
    height, columns = (int(n) for n in parts[".weight_shape"].integers())
    if height != out or columns < 1:
        raise parts.error(f"weight_shape {(height, columns)} does not fit weight_packed {(out, words)}")
    bits, layout, settings = _packed_width(parts, columns, words)
    scales, order, shape = parts[".weight_scale"].floats(), None, (out, columns)
    block = _blocks(parts, ".weight_scale", shape, settings)
    if ".weight_g_idx" in parts and int(parts.integers(".weight_g_idx").max(initial=-1)) >= 0:
        size, order = _order(parts, ".weight_g_idx", -(-columns // block[1]), columns)
        _fitting(parts, settings, "group_size", size, _fits_size(size, columns))
        block = (block[0], size)
    scales, zeros = _grid(scales, shape, block), None
    packed, fmt = parts[".weight_packed"].integers(), _integers(bits, signed=True)
    if ".weight_zero_point" in parts:
        stored = parts[".weight_zero_point"]
        if stored.dtype == "I32":
            parts.check_shape(".weight_zero_point", (-(-scales.shape[0] * bits // 32), scales.shape[1]))
            turned = np.ascontiguousarray(stored.integers().T)
            zeros = unpack(turned, layout, bits=bits, shape=scales.shape[::-1]).T
        else:
            zeros = _zeros(parts, ".weight_zero_point", scales.shape)

    def rows(start: int, stop: int) -> Quantized:
        codes = unpack(packed[start:stop], layout, bits=bits, shape=(stop - start, columns))
        if order is not None:
            codes = codes[:, order]
        part = _in_rows(block, start, stop)
        return Quantized(codes, _part_of(scales, part), _scheme(fmt, block, scales.format),
                         None if zeros is None else zeros[part])  # fmt: skip

    return Weight(shape, scales.format, rows, _row_step(block), order, "act-order" if order is not None else "")


def _row_step(block: tuple[int, int]) -> int:
    return math.lcm(_STEP, max(block[0], 1)) if block[0] < 1 << 16 else block[0]


def _zeros(parts: Parts, part: str, shape: tuple[int, ...]) -> Array:
    stored = parts.integers(part)
    if stored.size != math.prod(shape):
        raise parts.error(f"{part[1:]} has the shape {stored.shape}, and the scales have {shape}")
    return stored.reshape(shape)


def _plain_codes(key: str, scale: str, zero_point: str = "", block_from: str = "") -> Callable[[Parts], Weight]:
    """Return a function that reads codes of 8 bits, which are not packed, with scales."""

    def read(parts: Parts) -> Weight:
        stored, shape = parts[key], parts.matrix(key)
        if block_from:
            block = _fixed_blocks(parts, scale, shape, block_from)
        else:
            kind, least = ("float", 8) if stored.is_float else ("int", 1)
            block = _blocks(parts, scale, shape, _settings_of_bits(parts, kind, 8, least))
        fmt = stored.format if stored.is_float else _FORMATS["INT8"]
        scales = _grid(parts[scale].floats(), shape, block)
        zeros = None
        if zero_point in parts and not stored.is_float:
            zeros = _zeros(parts, zero_point, scales.shape)
        codes = stored.floats().codes if stored.is_float else stored.integers()
        return Weight(shape, scales.format, _matrix_rows(codes, scales, fmt, block, zeros), _row_step(block))

    return read


def _fixed_blocks(parts: Parts, part: str, shape: tuple[int, int], key: str) -> tuple[int, int]:
    """Return the blocks that a configuration gives, 128 x 128 by default, or all of the weight if it gives null."""
    given = parts.config.get(key, (128, 128))
    if given is None:
        if math.prod(parts[part].shape) != 1:
            raise parts.error(f"{key}=None needs one scale, and {part[1:]} has the shape {parts[part].shape}")
        return shape
    height, width = _pair(parts, key, given)
    needed = _counts(shape, (height, width))
    if parts[part].shape != needed:
        raise parts.error(f"{part[1:]} has the shape {parts[part].shape}, and {key}={[height, width]} of the weight "
                          f"{shape} needs {needed}")  # fmt: skip
    return height, width


def _matrix_rows(
    codes: Array,
    scales: FloatArray,
    fmt: ElementFormat,
    block: tuple[int, int],
    zeros: Array | None = None,
    **more: Any,
) -> Callable[[int, int], Quantized]:
    def rows(start: int, stop: int) -> Quantized:
        part = _in_rows(block, start, stop)
        return Quantized(codes[start:stop], _part_of(scales, part), _scheme(fmt, block, scales.format),
                         None if zeros is None else zeros[part], **more)  # fmt: skip

    return rows


def _four_bits(
    key: str, scale: str, size: int, *, whole: str = "", rule: str = "multiply", fmt: FloatFormat = BF16, **more: Any
) -> Callable[[Parts], Weight]:
    """Return a function that reads pairs of E2M1 codes in bytes, with scales in E4M3 or E8M0 and a tensor scale."""

    def read(parts: Parts) -> Weight:
        out, pairs = parts.matrix(key)
        settings = _settings_of_bits(parts, "float", 4, 4)
        if str(parts.config.get("quant_algo")).startswith("NVFP4"):  # of ModelOpt
            settings = [*settings, parts.config]
        _fitting(parts, settings, "group_size", size, lambda n: _is_integer(n) and n == size)
        parts.check_shape(scale, (out, 2 * pairs // size))
        if 2 * pairs % size:
            raise parts.error(f"{2 * pairs} columns have no whole groups of {size}")
        stored = parts[scale]
        scales = stored.floats() if stored.is_float else FloatArray(stored.integers(), E8M0)
        tensor_scale = parts.scalar(whole) if whole in parts else None
        return replace(_pairs(parts, key, scales, size, fmt, tensor_scale, rule), **more)

    return read


def _pairs(
    parts: Parts, key: str, scales: FloatArray, size: int, fmt: FloatFormat, tensor_scale: FloatArray | None,
    rule: str = "multiply",
) -> Weight:  # fmt: skip
    out, pairs = parts.matrix(key)
    packed, scheme = parts[key].data.reshape(out, pairs), _scheme(E2M1, (1, size), scales.format)

    def rows(start: int, stop: int) -> Quantized:
        codes = unpack(packed[start:stop], "low-nibble-first", bits=4)
        return Quantized(codes, _part_of(scales, np.s_[start:stop]), scheme, tensor_scale=tensor_scale,
                         tensor_scale_rule=rule)  # fmt: skip

    return Weight((out, 2 * pairs), fmt, rows)


def _gpt_oss(parts: Parts) -> Weight:
    *stack, groups, nbytes = parts["_blocks"].shape
    parts.check_shape("_scales", (*stack, groups))
    if nbytes != 16 or not stack:
        raise parts.error(f"blocks of shape {parts['_blocks'].shape} must have 16 bytes in a block")
    packed = parts["_blocks"].data.reshape(*stack, groups * 16)
    scales = FloatArray(parts["_scales"].integers(), E8M0)

    def rows(start: int, stop: int) -> Quantized:
        codes = unpack(packed[start:stop], "low-nibble-first", bits=4)
        return Quantized(codes, _part_of(scales, np.s_[start:stop]), _scheme(E2M1, (1, 32), E8M0))

    return Weight((*stack, groups * 32), BF16, rows, 1)


# -- bitsandbytes ------------------------------------------------------------------------------------------------------


def _state_number(parts: Parts, state: Mapping[str, Any], key: str, low: int) -> int:
    value = state.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise parts.error(f"quant_state has {key}={value!r:.40}, which must be an integer of at least {low}")
    return value


def _bitsandbytes(element: LookupFormat, quant_type: str) -> Callable[[Parts], Weight]:
    """Return a function that reads blocks of 4-bit codes, the first in the high bits, with absmax as scales."""
    key = f".weight.quant_state.bitsandbytes__{quant_type}"

    def read(parts: Parts) -> Weight:
        state = read_json(parts[key].data.tobytes(), f"quant_state of {parts.name}")
        size, shape, dtype = _state_number(parts, state, "blocksize", 2), state.get("shape"), state.get("dtype")
        if not isinstance(shape, list) or not all(isinstance(n, int) and n >= 0 for n in shape):
            raise parts.error(f"quant_state has shape={shape!r:.60}, which is no list of sizes")
        if not isinstance(dtype, str) or dtype not in _TORCH or state.get("quant_type") != quant_type or size % 2:
            kind, known = state.get("quant_type"), ", ".join(_TORCH)
            raise parts.error(f"quant_state has dtype={dtype!r:.40}, quant_type={kind!r:.40} and blocksize={size}; "
                              f"known are {known}, {quant_type!r}, even sizes")  # fmt: skip
        count, data = math.prod(shape), parts[".weight"].data
        if data.size != -(-count // 2):
            raise parts.error(f"weight has {data.size} bytes, and the shape {tuple(shape)} has {-(-count // 2)}")
        blocks = -(-count // size)
        nested = _nested(parts, state, blocks) if parts[".weight.absmax"].dtype == "U8" else None
        if nested is None:
            parts.check_shape(".weight.absmax", (blocks,))
            if ".weight.nested_absmax" in parts:
                raise parts.error("the file has weight.nested_absmax, and weight.absmax has the dtype F32, not U8")
        absmax = parts[".weight.absmax"].floats() if nested is None else nested.restored((blocks,))
        scheme = Scheme(element, (1, size), FP32, "absmax", "reciprocal",
                        nested=None if nested is None else nested.quantized.scheme)  # fmt: skip

        def rows(start: int, stop: int) -> Quantized:
            codes = unpack(data[start // 2 : -(-stop // 2)], "high-nibble-first", bits=4, shape=(stop - start,))
            return Quantized(codes, _part_of(absmax, slice(start // size, -(-stop // size))), scheme)

        return Weight(tuple(shape), _TORCH[dtype], rows, size, is_flat=True, nested=nested,
                      note="nested absmax" if nested is not None else "")  # fmt: skip

    return read


def _nested(parts: Parts, state: Mapping[str, Any], blocks: int) -> NestedScales:
    missing = [part for part in (".weight.nested_absmax", ".weight.nested_quant_map") if part not in parts]
    if missing:
        raise parts.error(f"absmax is quantized, and the file has no {missing[0][1:]}")
    size, offset = _state_number(parts, state, "nested_blocksize", 1), state.get("nested_offset")
    if not isinstance(offset, int | float) or isinstance(offset, bool):
        raise parts.error(f"quant_state has nested_offset={offset!r:.40}, which is no number")
    parts.check_shape(".weight.absmax", (blocks,))
    parts.check_shape(".weight.nested_absmax", (-(-blocks // size),))
    parts.check_shape(".weight.nested_quant_map", (256,))
    table = tuple(parts[".weight.nested_quant_map"].floats().values.tolist())
    try:
        element = DYNAMIC8 if table == DYNAMIC8.values else LookupFormat("nested_quant_map", table)
    except ValueError as error:
        raise parts.error(f"nested_quant_map is no table: {error!s:.80}") from None
    scheme = Scheme(element, (1, size), FP32, "absmax", "reciprocal")
    codes, scales = parts[".weight.absmax"].integers(), parts[".weight.nested_absmax"].floats()
    return NestedScales(Quantized(codes, scales, scheme), number(offset, FP32))


_BY_127 = 0.007874015718698502
"""The number 1/127, rounded to FP32, in bitsandbytes' int8_vectorwise_dequant."""


def _llm_int8(parts: Parts) -> Weight:
    shape = parts.matrix(".weight")
    parts.check_shape(".SCB", (shape[0],))
    order = parts[".weight_format"].integers().reshape(-1).tolist() if ".weight_format" in parts else [0]
    if order != [0]:
        raise parts.error(f"weight_format {order} is not supported; 0, the order of rows, is")
    scales = parts[".SCB"].floats().reshape(shape[0], 1)
    rows = _matrix_rows(parts[".weight"].integers(), scales, _FORMATS["INT8"], (1, shape[1]),
                        tensor_scale=number(_BY_127, FP32), tensor_scale_rule="multiply_values")  # fmt: skip
    return Weight(shape, FP32, rows)


# -- torchao: the header's metadata name the class of a tensor ---------------------------------------------------------


def _is_torchao(kind: str) -> Callable[[Parts], bool]:
    return lambda parts: parts.torchao.get("_type") == kind


def _attributes(parts: Parts) -> dict[str, Any]:
    """Return the attributes of a tensor of torchao, with dtypes as their names."""
    data = parts.torchao.get("_data")
    if not isinstance(data, dict):
        raise parts.error("its metadata have no _data")
    return {key: value.get("_data") if isinstance(value, dict) and "_type" in value else value
            for key, value in data.items()}  # fmt: skip


def _torch_format(parts: Parts, name: Any) -> FloatFormat:
    if not isinstance(name, str) or name not in _TORCH:
        raise parts.error(f"its numbers have the dtype {name!r:.40}; known are {', '.join(_TORCH)}")
    return _TORCH[name]


_QDATA, _SCALE, _ZERO = "._weight_qdata", "._weight_scale", "._weight_zero_point"


def _torchao_plain(fixed: str | None) -> Callable[[Parts], Weight]:
    def read(parts: Parts) -> Weight:
        given, shape, stored = _attributes(parts), parts.matrix(_QDATA), parts[_QDATA]
        size = given.get("block_size")
        if not isinstance(size, list) or len(size) != 2 or not all(isinstance(n, int) and n > 0 for n in size):
            raise parts.error(f"block_size={size!r:.40} is no height and width")
        block = min(size[0], shape[0]), min(size[1], shape[1])
        count = -(-shape[0] // block[0]) * -(-shape[1] // block[1])
        if math.prod(parts[_SCALE].shape) != count:
            raise parts.error(f"scale has the shape {parts[_SCALE].shape}, and there are {count} blocks {block}")
        scales = _grid(parts[_SCALE].floats(), shape, block)
        fmt = stored.format if stored.is_float else _integer_dtype(parts, fixed or given.get("target_dtype"))
        zeros = _zeros(parts, _ZERO, scales.shape) if _ZERO in parts else None
        codes = stored.floats().codes if stored.is_float else stored.integers()
        rows = _matrix_rows(codes, scales, fmt, block, zeros)
        return Weight(shape, _torch_format(parts, given.get("dtype")), rows, _row_step(block))

    return read


def _integer_dtype(parts: Parts, name: Any) -> IntegerFormat:
    fmt = _FORMATS.get(str(name).upper())
    if fmt is None:
        raise parts.error(f"target_dtype={name!r:.40} is not known")
    return fmt


def _swizzled(parts: Parts, scales: FloatArray, shape: tuple[int, int], size: int, is_swizzled: bool) -> FloatArray:
    grid = (shape[0], shape[1] // size)
    if not is_swizzled:
        if scales.size != math.prod(grid) or shape[1] % size:
            raise parts.error(f"scale has the shape {scales.shape}, and {grid} fits the weight {shape}")
        return scales.reshape(grid)
    try:
        return FloatArray(unpack(scales.codes.reshape(-1), "cublas-128x4", shape=grid), scales.format)
    except ValueError as error:
        raise parts.error(f"swizzled scales do not fit: {error}") from None


def _torchao_mx(parts: Parts) -> Weight:
    given, stored = _attributes(parts), parts[_QDATA]
    size, fmt = given.get("block_size"), _torch_format(parts, given.get("orig_dtype"))
    if not isinstance(size, int) or size < 1:
        raise parts.error(f"block_size={size!r:.40} is no width")
    out, width = parts.matrix(_QDATA)
    if not (elements := _MX_DTYPES.get(str(given.get("elem_dtype")))):
        raise parts.error(f"elem_dtype={given.get('elem_dtype')!r:.40} is not supported; {', '.join(_MX_DTYPES)} are")
    kept = parts[_SCALE]
    scales = kept.floats() if kept.is_float else FloatArray(kept.integers(), E8M0)
    columns = 2 * width if elements is E2M1 else width
    scales = _swizzled(parts, scales, (out, columns), size, bool(given.get("is_swizzled_scales")))
    if elements is E2M1:
        return _pairs(parts, _QDATA, scales, size, fmt, None)
    codes = stored.data.reshape(out, width)
    return Weight((out, columns), fmt, _matrix_rows(codes, scales, elements, (1, size)))


_MX_DTYPES = {"float8_e4m3fn": E4M3, "float8_e5m2": E5M2, "float4_e2m1fn_x2": E2M1}


def _torchao_nvfp4(parts: Parts) -> Weight:
    given = _attributes(parts)
    out, pairs = parts.matrix(_QDATA)
    fmt, scales = _torch_format(parts, given.get("orig_dtype")), parts[_SCALE].floats()
    scales = _swizzled(parts, scales, (out, 2 * pairs), 16, bool(given.get("is_swizzled_scales")))
    whole = parts.scalar("._weight_per_tensor_scale") if "._weight_per_tensor_scale" in parts else None
    return _pairs(parts, _QDATA, scales, 16, fmt, whole)


# -- the table ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CheckpointScheme:
    """How a package stores a quantized weight. `fs.quantization.CHECKPOINT_SCHEMES` has the schemes by name.

    Attributes
    ----------
    name : str
        The name of the scheme.
    package : str
        The package that writes it.
    parts : dict
        The ends of the names of the stored tensors, and their dtypes. "" is any dtype.
    optional : dict
        The tensors that may be missing.
    rule : str
        How a number follows from its code, as text.
    read : function
        It takes the stored tensors of a weight, checks them, and returns how rows are decoded.
    layouts : str
        The layouts of `fs.quantization.PACKED_LAYOUTS` of the codes.
    fits : function, optional
        It takes the stored tensors, and returns whether they are of this scheme, if names and dtypes do not tell.
    weight : str
        What is added to the common part of the names, for the name of the weight.

    Examples
    --------
    >>> from floatsim.quantization import CHECKPOINT_SCHEMES
    >>> row = CHECKPOINT_SCHEMES["nvfp4-pack-quantized"]
    >>> row.package, list(row.parts), row.rule
    ('compressed-tensors', ['.weight_packed', '.weight_scale', '.weight_global_scale'], 'code * (scale / global scale)')
    """

    name: str
    package: str
    parts: Mapping[str, str]
    rule: str
    read: Callable[[Parts], Weight] = field(repr=False)
    optional: Mapping[str, str] = field(default_factory=dict)
    layouts: str = ""
    fits: Callable[[Parts], bool] | None = field(default=None, repr=False)
    weight: str = ".weight"

    def decoded(self, parts: Parts) -> Weight:
        """Check the dtypes of the parts, and return how rows are decoded.

        Raises
        ------
        ValueError
            If a part has a dtype that the scheme does not know, the parts do not fit each other or the configuration,
            or the file has a part of another scheme that changes the numbers.
        """
        known = {**self.parts, **self.optional}
        for part, dtypes in known.items():
            if part in parts and not _is_of(parts[part], dtypes):
                found, needed = parts[part].dtype, ", ".join(dtypes.split())
                raise parts.error(f"{part[1:]} has the dtype {found}, and the scheme {self.name} needs {needed}")
        weight = self.read(parts)
        for part, stored in parts.tensors.items():
            if part not in known and not _is_unset(stored, part):
                raise parts.error(f"the file has {part[1:]}, which is not supported in the scheme {self.name}")
        return weight


_INT8_SCALES = {".weight": "I8", ".weight_scale": _SCALES}
_FP8 = "F8_E4M3 F8_E5M2"
_PACKED_INT32 = {".qweight": "I32", ".qzeros": "I32", ".scales": _SCALES}
_OF_BNB = {".weight": "", ".weight.absmax": "F32 U8"}
_BNB_MORE = {".weight.quant_map": "F32", ".weight.nested_absmax": "F32", ".weight.nested_quant_map": "F32"}
_TORCHAO = {_QDATA: "", _SCALE: ""}
_PLAIN_RULE, _ZERO_RULE = "code * scale", "(code - zero point) * scale"

CHECKPOINT_SCHEMES: dict[str, CheckpointScheme] = {row.name: row for row in (
    CheckpointScheme("gptq", "GPTQModel", _PACKED_INT32, _ZERO_RULE, _gptq, {".g_idx": _ANY_INTEGER},
                     "gptq gptq-zeros-v1 gptq-zeros-v2", _is_gptq),
    CheckpointScheme("awq", "AutoAWQ", _PACKED_INT32, _ZERO_RULE, _awq, {}, "awq", _is_awq),
    CheckpointScheme("pack-quantized", "compressed-tensors",
                     {".weight_packed": "I32", ".weight_scale": _SCALES, ".weight_shape": "I32 I64"}, _ZERO_RULE,
                     _pack_quantized, {".weight_zero_point": _ANY_INTEGER, ".weight_g_idx": _ANY_INTEGER},
                     "compressed-tensors compressed-tensors-words"),
    CheckpointScheme("nvfp4-pack-quantized", "compressed-tensors",
                     {".weight_packed": "U8", ".weight_scale": "F8_E4M3", ".weight_global_scale": "F32"},
                     "code * (scale / global scale)",
                     _four_bits(".weight_packed", ".weight_scale", 16, whole=".weight_global_scale", rule="divide"),
                     layouts="low-nibble-first"),
    CheckpointScheme("mxfp4-pack-quantized", "compressed-tensors",
                     {".weight_packed": "U8", ".weight_scale": "U8 F8_E8M0"}, _PLAIN_RULE,
                     _four_bits(".weight_packed", ".weight_scale", 32), layouts="low-nibble-first"),
    CheckpointScheme("modelopt-nvfp4", "nvidia-modelopt",
                     {".weight": "U8", ".weight_scale": "F8_E4M3", ".weight_scale_2": "F32"},
                     "code * (scale * scale_2)",
                     _four_bits(".weight", ".weight_scale", 16, whole=".weight_scale_2", fmt=FP32,
                                has_negative_zero=False),
                     layouts="low-nibble-first"),
    CheckpointScheme("modelopt-fp8", "nvidia-modelopt", {".weight": _FP8, ".weight_scale": _SCALES}, _PLAIN_RULE,
                     _plain_codes(".weight", ".weight_scale"), fits=lambda parts: parts.method == "modelopt"),
    CheckpointScheme("float-quantized", "compressed-tensors", {".weight": _FP8, ".weight_scale": _SCALES}, _PLAIN_RULE,
                     _plain_codes(".weight", ".weight_scale")),
    CheckpointScheme("int-quantized", "compressed-tensors", _INT8_SCALES, _ZERO_RULE,
                     _plain_codes(".weight", ".weight_scale", ".weight_zero_point"),
                     {".weight_zero_point": _ANY_INTEGER}),
    CheckpointScheme("fp8-blocks", "DeepSeek-V3", {".weight": _FP8, ".weight_scale_inv": _SCALES}, _PLAIN_RULE,
                     _plain_codes(".weight", ".weight_scale_inv", block_from="weight_block_size")),
    CheckpointScheme("mxfp4-blocks", "gpt-oss", {"_blocks": "U8", "_scales": "U8"}, _PLAIN_RULE, _gpt_oss,
                     layouts="low-nibble-first", weight=""),
    *(CheckpointScheme(f"bitsandbytes-{kind}", "bitsandbytes",
                       {f".weight.quant_state.bitsandbytes__{kind}": "U8", **_OF_BNB}, "code * absmax",
                       _bitsandbytes(element, kind), _BNB_MORE, "high-nibble-first")
      for kind, element in (("nf4", NF4), ("fp4", BNB_FP4))),
    CheckpointScheme("llm-int8", "bitsandbytes", {".SCB": "F32", ".weight": "I8"}, "(code * SCB) * 1/127", _llm_int8,
                     {".weight_format": _ANY_INTEGER}),
    CheckpointScheme("torchao-float8", "torchao", _TORCHAO, _PLAIN_RULE, _torchao_plain(None),
                     fits=_is_torchao("Float8Tensor")),
    CheckpointScheme("torchao-int8", "torchao", _TORCHAO, _ZERO_RULE, _torchao_plain("int8"), {_ZERO: _ANY_INTEGER},
                     fits=_is_torchao("Int8Tensor")),
    CheckpointScheme("torchao-intx", "torchao", _TORCHAO, _ZERO_RULE, _torchao_plain(None), {_ZERO: _ANY_INTEGER},
                     fits=_is_torchao("IntxUnpackedToInt8Tensor")),
    CheckpointScheme("torchao-mx", "torchao", _TORCHAO, _PLAIN_RULE, _torchao_mx, {}, "low-nibble-first cublas-128x4",
                     _is_torchao("MXTensor")),
    CheckpointScheme("torchao-nvfp4", "torchao", _TORCHAO, "code * (scale * scale of the tensor)", _torchao_nvfp4,
                     {"._weight_per_tensor_scale": "F32"}, "low-nibble-first cublas-128x4",
                     _is_torchao("NVFP4Tensor")),
)}  # fmt: skip
"""The schemes of quantized weights in safetensors files, by name.

>>> import floatsim as fs
>>> fs.quantization.CHECKPOINT_SCHEMES["gptq"].rule
'(code - zero point) * scale'
"""


def _is_of(tensor: StoredTensor, dtypes: str) -> bool:
    return not dtypes or tensor.dtype in dtypes.split()


_BESIDE_SCALES = (".weight_zero_point", ".weight_g_idx", ".weight_global_scale", ".weight_scale_2")
_CHANGES = {
    ".weight_scale": _BESIDE_SCALES,
    ".weight_scale_inv": _BESIDE_SCALES,
    ".scales": (".g_idx",),
    _SCALE: (_ZERO, "._weight_per_tensor_scale"),
}
"""The parts that change the numbers of a weight with a part: its scheme reads them, or they are an error."""


def _is_unset(stored: StoredTensor, part: str) -> bool:
    """Return whether a part says nothing: zero points of 0, or g_idx of -1."""
    unset = {".weight_zero_point": 0, ".weight_g_idx": 0xFF}
    return part in unset and not np.any(stored.data != unset[part])


def _is_plain(stored: Mapping[str, StoredTensor], names: Mapping[str, str]) -> bool:
    """Return whether a weight with scales beside it is stored as numbers, as one of fake quantization."""
    return ".weight" in names and stored[names[".weight"]].dtype in ("F64", *_SCALES.split())


def recognized(
    stored: Mapping[str, StoredTensor], config: Callable[[], Mapping[str, Any]], metadata: Mapping[str, str]
) -> dict[str, tuple[CheckpointScheme, Parts]]:
    """Return the quantized weights by the name of their first part, with their schemes.

    Parameters
    ----------
    stored : mapping
        The stored tensors by name.
    config : function
        It returns the configuration. It is called if a weight is found.
    metadata : mapping
        The metadata of the file.
    """
    found: dict[str, tuple[CheckpointScheme, Parts]] = {}
    used: set[str] = set()
    for is_exact in (True, False):  # then parts with unknown dtypes: `decoded` is an error, no part is left out
        rows = CHECKPOINT_SCHEMES.values()
        for row in rows if is_exact else sorted(rows, key=lambda row: -len(row.parts)):
            key = next(iter(row.parts))
            for name in stored:
                if not name.endswith(key) or name in used:
                    continue
                base = name[: len(name) - len(key)]
                names = {part: base + part for part in row.parts}
                if any(other not in stored or other in used for other in names.values()):
                    continue
                matches = [_is_of(stored[names[part]], dtypes) for part, dtypes in row.parts.items()]
                if not (all(matches) if is_exact else any(matches) and not _is_plain(stored, names)):
                    continue
                others = [*row.optional, *(part for each in row.parts for part in _CHANGES.get(each, ()))]
                more = {part: base + part for part in others if part not in names and base + part in stored}
                parts = Parts(base + row.weight, {part: stored[each] for part, each in (names | more).items()},
                              config(), metadata)  # fmt: skip
                if row.fits is None or row.fits(parts):
                    found[name] = row, parts
                    used |= set(names.values()) | set(more.values())
    return found


def missing_parts(name: str, stored: Mapping[str, StoredTensor]) -> str:
    """Return the tensors that schemes need beside this one, and that the file lacks, as the end of a message."""
    found = []
    for row in CHECKPOINT_SCHEMES.values():
        key = next(iter(row.parts))
        if name.endswith(key) and key != ".weight" and _is_of(stored[name], row.parts[key]):
            base = name[: len(name) - len(key)]
            lacking = [base + part for part in row.parts if base + part not in stored]
            if lacking:
                found.append(f"{row.name} needs {', '.join(lacking)}")
    return f": {'; '.join(found)}, which the file lacks" if found else ""
