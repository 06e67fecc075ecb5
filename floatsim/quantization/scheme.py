"""How a tensor is quantized, as data: the format of the elements, the blocks, and the scales."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from floatsim.emulator.elementwise.block_scales import Blocks
from floatsim.formats import (
    E2M1,
    E3M2,
    E4M3,
    E5M2,
    E8M0,
    FP16,
    FP32,
    FP64,
    FloatFormat,
    FormatLike,
    Specials,
    as_format,
    named_formats,
)  # fmt: skip
from floatsim.formats._validation import as_index, every_name_hint
from floatsim.formats.value_sets import contains
from floatsim.quantization.integer import (
    INT8,
    INTEGER_FORMATS,
    MXINT8,
    UINT4,
    IntegerFormat,
    integer_format_of,
)
from floatsim.quantization.lookup import BNB_FP4, DYNAMIC8, LOOKUP_FORMATS, NF4, LookupFormat

__all__ = [
    "FACTORS", "FOUR_OVER_SIX", "RULES", "SCHEMES", "TENSOR_RULES", "UE5M3", "BlockLike", "ElementFormat",
    "ElementFormatLike", "FourOverSix", "Layout", "Scheme", "SchemeLike", "as_element_format", "as_name", "as_scheme",
    "carrier", "largest_number", "layout",
]  # fmt: skip

ElementFormat: TypeAlias = FloatFormat | IntegerFormat | LookupFormat
ElementFormatLike: TypeAlias = "ElementFormat | FormatLike"
BlockLike: TypeAlias = "str | int | tuple[int | None, int | None]"

_EVERY_FORMAT = (FloatFormat, IntegerFormat, LookupFormat)
_INTEGERS = (IntegerFormat,)
_FLOATS = (FloatFormat,)

RULES: dict[str, tuple[type, ...]] = {
    "absmax": _EVERY_FORMAT,
    "full_range": _INTEGERS,
    "no_clipping": _INTEGERS,
    "asymmetric": _INTEGERS,
    "floor": (FloatFormat, IntegerFormat),
    "rceil": (FloatFormat, IntegerFormat),
    "ceil": (FloatFormat, IntegerFormat),
    "even": _FLOATS,
    "nvfp4": _FLOATS,
    "nvfp4_torchao": _FLOATS,
    "nvfp4_modelopt": _FLOATS,
    "nvfp4_single": _FLOATS,
    "te_4over6_mae": _FLOATS,
    "te_4over6_mse": _FLOATS,
    "fouroversix_mae": _FLOATS,
    "fouroversix_mse": _FLOATS,
    "fouroversix_absmax": _FLOATS,
}
"""The rules of a scale, with the kinds of element formats that they are for. `quantize_blocks` documents them."""
_OF_INTEGERS = ("full_range", "no_clipping", "asymmetric")


class FourOverSix(NamedTuple):
    """A rule of 4over6: which error of a block is compared, and in which order its terms are added.

    "rows" (TransformerEngine): the errors of a row one after the other, then the rows in halves. "lanes"
    (fouroversix): as PyTorch adds on the CPU with vectors of 8 numbers.
    """

    error: str
    order: str
    clears: bool
    """Whether the codes of a block whose scale is zero are 0, and not +-6."""


FOUR_OVER_SIX: dict[str, FourOverSix] = {
    "te_4over6_mae": FourOverSix("mae", "rows", False),
    "te_4over6_mse": FourOverSix("mse", "rows", False),
    "fouroversix_mae": FourOverSix("mae", "lanes", True),
    "fouroversix_mse": FourOverSix("mse", "lanes", True),
    "fouroversix_absmax": FourOverSix("absmax", "lanes", True),
}
"""The rules that choose between the largest numbers 4 and 6 for each block."""
TENSOR_RULES = ("nvfp4", "nvfp4_torchao", "nvfp4_modelopt", *FOUR_OVER_SIX)
"""The rules whose scales also depend on the largest magnitude of the tensor."""
_NVFP4_RULES = (*TENSOR_RULES, "nvfp4_single")
OVERFLOWS = ("saturate", "nan")
"""What a block scale of NVFP4 beyond the largest number of E4M3 becomes."""
FACTORS = ("divide", "reciprocal", "multiplier")
"""How an element is scaled. `quantize_blocks` documents them."""

UE5M3 = FloatFormat("UE5M3", 5, 3, Specials.UNSIGNED_FINITE, 15)
"""Unsigned scales with 5 exponent bits and 3 trailing bits, from 2**-17 to 114688, and one NaN (arXiv 2601.19026).

>>> import floatsim as fs
>>> fs.quantization.UE5M3.bits, fs.quantization.UE5M3.max, fs.quantization.UE5M3.smallest_subnormal == 2**-17
(8, 114688.0, True)
"""
_SCALE_FORMATS = {"ue5m3": UE5M3, "e5m3": UE5M3, "ue4m3": E4M3}
"""Names of formats that only scales have. Scales are positive, so that UE4M3 has the codes of E4M3."""

_OTHER_NAMES: dict[str, ElementFormat] = {
    "normalfloat4": NF4, "normal_float4": NF4, "fp4_bnb": BNB_FP4, "bitsandbytes_fp4": BNB_FP4,
    **{f"i{fmt.bits}": fmt for fmt in INTEGER_FORMATS if fmt.name.startswith("INT")},
    **{f"u{fmt.bits}": fmt for fmt in INTEGER_FORMATS if fmt.name.startswith("UINT")},
}  # fmt: skip
_LOOKUP: dict[str, ElementFormat] = {
    **{fmt.name.lower(): fmt for fmt in (*INTEGER_FORMATS, *LOOKUP_FORMATS)}, **_OTHER_NAMES,
}  # fmt: skip


def as_name(x: Any, known: Iterable[str], argument: str) -> str:
    """Return a known name, or raise a ValueError with the nearest one."""
    names = list(known)
    if not isinstance(x, str):
        raise TypeError(f"{argument} must be one of {', '.join(names)}, not {x!r}")
    name = x.strip().lower().replace("-", "_")
    if name in names:
        return name
    raise ValueError(f"{argument}={x!r} is not known; {every_name_hint(name, names)}")


def as_element_format(x: ElementFormatLike) -> ElementFormat:
    """Return the format of elements that `x` is or names.

    Parameters
    ----------
    x : FloatFormat, IntegerFormat, LookupFormat or str
        A format, or its name in any case: "int4", "nf4", "binary", a name or dtype that `fs.as_format` takes, or an
        integer dtype of at most 8 bits, such as np.int8 or ml_dtypes.int4.

    Returns
    -------
    FloatFormat, IntegerFormat or LookupFormat

    Raises
    ------
    ValueError
        If the name is not known. The message has the nearest one.

    Examples
    --------
    >>> from floatsim.quantization import as_element_format
    >>> as_element_format("nf4"), as_element_format("int4").max
    (LookupFormat NF4 (16 numbers), 7)
    >>> as_element_format("nf5")
    Traceback (most recent call last):
    ValueError: unknown format 'nf5'; did you mean 'nf4'? known are nf4, ...
    """
    if isinstance(x, _EVERY_FORMAT):
        return x
    if (integers := integer_format_of(x)) is not None:
        return integers
    if isinstance(x, str):
        name = x.strip().lower().replace("-", "_")
        if name in _LOOKUP:
            return _LOOKUP[name]
        try:
            return as_format(x)
        except ValueError as error:
            raise _with_nearest(error, "format", x, name, _LOOKUP) from None
    return as_format(x)


def _with_nearest(error: ValueError, what: str, given: str, name: str, known: Iterable[str]) -> ValueError:
    """Return the error with all names, the nearest first. An error with a hint of its own for the name stays."""
    if not re.search("did you mean|known are", str(error)):
        return error
    names = dict.fromkeys([*known, *(fmt.name.lower() for fmt in named_formats())])
    return ValueError(f"unknown {what} {given!r}; {every_name_hint(name, names)}")


def largest_number(fmt: ElementFormat) -> float:
    """Return the number to which a scale maps the largest magnitude of a block."""
    return fmt.max if isinstance(fmt, FloatFormat) else fmt.largest


def _as_scale_format(x: FormatLike) -> FloatFormat:
    """Return the format of scales that `x` is or names."""
    name = x.strip().lower() if isinstance(x, str) else ""
    return _SCALE_FORMATS[name] if name in _SCALE_FORMATS else as_format(x)


_NAMED_BLOCKS: dict[str, tuple[int | None, int | None]] = {"row": (1, None), "column": (None, 1)}


def _as_block(x: BlockLike) -> str | tuple[int | None, int | None]:
    """Return "tensor", or the height and the width of a block; None is a whole axis."""
    if isinstance(x, str):
        name = as_name(x, ("tensor", *_NAMED_BLOCKS), "block")
        return _NAMED_BLOCKS.get(name, name)
    sides = x if isinstance(x, tuple | list) else (1, x)
    if len(sides) != 2:
        raise ValueError(f"block must be a width, or a height and a width, not {x!r}")
    named = zip(sides, ("the height of block", "the width of block"), strict=True)
    height, width = (None if side is None else as_index(side, what, 1, 1 << 62) for side, what in named)
    return height, width


@dataclass(frozen=True)
class Scheme:
    """How a tensor is quantized. Each field is also a keyword of `fs.quantize_blocks`, which documents them.

    Parameters
    ----------
    format : format
        The format of the elements: a FloatFormat, an IntegerFormat, a LookupFormat, or a name.
    block : str, int or tuple
        The elements that share a scale: "tensor", "row", "column", a width along the last axis, or (height, width).
    scale_format : format
        The format of the scales.
    rule : str
        How the scale follows from the elements of a block.
    factor : str
        How an element is scaled: "divide", "reciprocal" or "multiplier".
    least_amax : float
        The largest magnitude of a block counts as at least this number.
    nested : Scheme, str or None
        The scheme of the scales less their mean, which are quantized too, in the order of memory.
    outer : str or int
        The elements that share a second scale, for the rules with a scale of the tensor: "tensor", "row" or a width.
    scale_max : float, optional
        The largest block scale to which the second scale maps the largest magnitude, for the same rules.
    scale_overflow : str
        What a block scale beyond the largest number of its format becomes, for the rules of NVFP4: "saturate" or "nan".

    Raises
    ------
    ValueError
        For unknown names, with the nearest known one, and for a rule that is not for the format.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.quantization.Scheme("int4", block=128, scale_format="fp16")
    Scheme(INT4, block=(1, 128), scale_format=FP16, rule='absmax', factor='divide')
    """

    format: ElementFormat
    block: Any = "tensor"
    scale_format: FloatFormat = field(default_factory=lambda: FP32)
    rule: str = "absmax"
    factor: str = "divide"
    least_amax: float = 0.0
    nested: Any = None
    outer: Any = "tensor"
    scale_max: float | None = None
    scale_overflow: str = "saturate"

    def __post_init__(self) -> None:
        settled: dict[str, Any] = {
            "format": as_element_format(self.format),
            "block": _as_block(self.block),
            "scale_format": _as_scale_format(self.scale_format),
            "rule": as_name(self.rule, RULES, "rule"),
            "factor": as_name(self.factor, FACTORS, "factor"),
            "nested": self.nested if self.nested is None or isinstance(self.nested, Scheme) else as_scheme(self.nested),
            "scale_overflow": as_name(self.scale_overflow, OVERFLOWS, "scale_overflow"),
        }
        for name, value in settled.items():
            object.__setattr__(self, name, value)
        fmt, rule, scale_format = self.format, self.rule, self.scale_format
        if isinstance(fmt, FloatFormat) and (fmt.is_scale or fmt.precision >= FP32.precision):
            raise ValueError(f"{fmt.name} is no format of elements; use a format of fewer bits than FP32")
        if not isinstance(fmt, RULES[rule]):
            suitable = ", ".join(name for name, kinds in RULES.items() if isinstance(fmt, kinds))
            raise ValueError(f"rule={rule!r} is not for {fmt.name}; use {suitable}")
        if not contains(FP32, scale_format, specials=False):
            raise ValueError(f"scale_format={scale_format.name} has numbers that are no FP32 numbers; use FP32")
        if self.factor == "multiplier" and rule != "absmax":
            raise ValueError(f"factor='multiplier' is for rule='absmax', not for {rule!r}")
        self._check_nvfp4()
        if rule in _OF_INTEGERS and isinstance(fmt, IntegerFormat) and fmt.fraction_bits:
            raise ValueError(f"rule={rule!r} is for integers, not for the fixed-point numbers of {fmt.name}")
        if self.nested is not None and (self.nested.nested is not None or scale_format != FP32):
            raise ValueError("nested scales must be FP32 numbers, and the scheme of the scales has no nested scales")
        if not (isinstance(self.least_amax, int | float) and 0 <= self.least_amax < math.inf):
            raise ValueError(f"least_amax must be a number from 0 up, not {self.least_amax!r}")

    def _check_nvfp4(self) -> None:
        """Check what the rules of NVFP4 need, and the fields that only they have."""
        fmt, rule, scale_format, block = self.format, self.rule, self.scale_format, self.block
        if rule in _NVFP4_RULES and (fmt != E2M1 or scale_format != E4M3):
            raise ValueError(
                f"rule={rule!r} is for E2M1 with scales in E4M3, not {fmt.name} with {scale_format.name}; "
                "rule='absmax' takes other formats"
            )
        if rule in FOUR_OVER_SIX and block not in ((1, 16), (16, 16)):
            raise ValueError(f"rule={rule!r} is for the blocks (1, 16) and (16, 16), not {block!r}")
        if rule not in _NVFP4_RULES and self.scale_overflow != "saturate":
            raise ValueError(f"scale_overflow={self.scale_overflow!r} is for {', '.join(_NVFP4_RULES)}, not {rule!r}")
        if rule not in TENSOR_RULES:
            for name, default in (("outer", "tensor"), ("scale_max", None)):
                if (given := getattr(self, name)) != default:
                    raise ValueError(f"{name}={given!r} is for the rules {', '.join(TENSOR_RULES)}, not {rule!r}")
            return
        object.__setattr__(self, "outer", self._checked_outer())
        limit = self.scale_max
        if limit is not None and not (isinstance(limit, int | float) and 0 < limit <= scale_format.max):
            raise ValueError(
                f"scale_max must be above 0, and at most {scale_format.max:g}; use 448 or 256, not {limit!r}"
            )

    def _checked_outer(self) -> str | int:
        """Return "tensor", "row" or a width."""
        outer, block = self.outer, self.block
        named = isinstance(outer, str)
        name = as_name(outer, ("tensor", "row"), "outer") if named else as_index(outer, "outer", 1, 1 << 62)
        if name == "tensor":
            return name
        if block == "tensor" or block[0] != 1 or block[1] is None:
            raise ValueError(f"outer={outer!r} needs blocks within a row, such as 16, not block={block!r}")
        if isinstance(name, int) and name % block[1]:
            raise ValueError(f"outer={outer!r} must be a multiple of the width of a block, {block[1]}")
        return name

    @property
    def scale_limit(self) -> float:
        """The largest block scale to which the scale of the tensor maps the largest magnitude."""
        return self.scale_max or (256.0 if self.rule in FOUR_OVER_SIX else 448.0)

    @property
    def bits(self) -> float:
        """The bits of one element with its share of the scale, if no block is short; NaN if a block is a whole axis."""
        if self.block == "tensor":
            return float(self.format.bits)
        height, width = self.block
        of_scale = self.scale_format.bits if self.nested is None else self.nested.bits
        of_outer = FP32.bits / self.outer if isinstance(self.outer, int) else 0.0
        return math.nan if None in (height, width) else self.format.bits + of_scale / (height * width) + of_outer

    def __repr__(self) -> str:
        parts = [self.format.name, f"block={self.block!r}", f"scale_format={self.scale_format.name}",
                 f"rule={self.rule!r}", f"factor={self.factor!r}"]  # fmt: skip
        if self.least_amax:
            parts.append(f"least_amax={self.least_amax!r}")
        if self.nested is not None:
            parts.append(f"nested={self.nested!r}")
        for name, default in (("outer", "tensor"), ("scale_max", None), ("scale_overflow", "saturate")):
            if (given := getattr(self, name)) != default:
                parts.append(f"{name}={given!r}")
        return f"Scheme({', '.join(parts)})"


_DYNAMIC8 = Scheme(DYNAMIC8, (1, 256), FP32, "absmax", "reciprocal")
_NVFP4 = Scheme(E2M1, (1, 16), E4M3, "nvfp4", "reciprocal")

SCHEMES: dict[str, Scheme] = {
    "mxfp8": Scheme(E4M3, (1, 32), E8M0, "floor"),
    "mxfp8_e5m2": Scheme(E5M2, (1, 32), E8M0, "floor"),
    "mxfp6": Scheme(E3M2, (1, 32), E8M0, "floor"),
    "mxfp4": Scheme(E2M1, (1, 32), E8M0, "floor"),
    "mxint8": Scheme(MXINT8, (1, 32), E8M0, "floor"),
    "te_mxfp8": Scheme(E4M3, (1, 32), E8M0, "rceil"),
    "te_mxfp8_weight": Scheme(E4M3, (32, 32), E8M0, "rceil"),
    "mxfp8_2d": Scheme(E4M3, (32, 32), E8M0, "floor"),
    "nvfp4": _NVFP4,
    "nvfp4_torchao": Scheme(E2M1, (1, 16), E4M3, "nvfp4_torchao", "reciprocal"),
    "nvfp4_single": Scheme(E2M1, (1, 16), E4M3, "nvfp4_single", "reciprocal"),
    "nvfp4_modelopt": Scheme(E2M1, (1, 16), E4M3, "nvfp4_modelopt", "divide"),
    "nvfp4_weight": Scheme(E2M1, (16, 16), E4M3, "nvfp4", "reciprocal"),
    "nvfp4_row": Scheme(E2M1, (1, 16), E4M3, "nvfp4", "reciprocal", outer="row"),
    "nvfp4_1x64": Scheme(E2M1, (1, 16), E4M3, "nvfp4", "reciprocal", outer=64),
    "nvfp4_4over6": Scheme(E2M1, (1, 16), E4M3, "te_4over6_mae", "reciprocal"),
    "nvfp4_4over6_mse": Scheme(E2M1, (1, 16), E4M3, "te_4over6_mse", "reciprocal"),
    "nvfp4_4over6_weight": Scheme(E2M1, (16, 16), E4M3, "te_4over6_mae", "reciprocal"),
    "fouroversix": Scheme(E2M1, (1, 16), E4M3, "fouroversix_mse", "reciprocal"),
    "fouroversix_mae": Scheme(E2M1, (1, 16), E4M3, "fouroversix_mae", "reciprocal"),
    "nvfp4_e5m3": Scheme(E2M1, (1, 16), UE5M3, "absmax", "reciprocal"),
    "te_current": Scheme(E4M3, "tensor", FP32, "absmax", "multiplier"),
    "te_block": Scheme(E4M3, (1, 128), FP32, "rceil"),
    "te_block_weight": Scheme(E4M3, (128, 128), FP32, "rceil"),
    "deepseek": Scheme(E4M3, (1, 128), FP32, "absmax", "divide", 1e-4),
    "deepseek_weight": Scheme(E4M3, (128, 128), FP32, "absmax", "divide"),
    "deepgemm": Scheme(E4M3, (1, 128), FP32, "absmax", "reciprocal", 1e-4),
    "deepgemm_weight": Scheme(E4M3, (128, 128), FP32, "absmax", "reciprocal", 1e-4),
    "nf4": Scheme(NF4, (1, 64), FP32, "absmax", "reciprocal"),
    "bnb_fp4": Scheme(BNB_FP4, (1, 64), FP32, "absmax", "reciprocal"),
    "nf4_nested": Scheme(NF4, (1, 64), FP32, "absmax", "reciprocal", nested=_DYNAMIC8),
    "dynamic8": _DYNAMIC8,
    "llm_int8": Scheme(INT8, (1, None), FP32, "absmax", "multiplier"),
    "gptq": Scheme(UINT4, (1, 128), FP32, "full_range"),
    "awq": Scheme(UINT4, (1, 128), FP16, "asymmetric"),
    "w8a8": Scheme(INT8, (1, None), FP32, "absmax"),
}
"""Named schemes. The page "Quantization" of the documentation names their sources.

>>> import floatsim as fs
>>> fs.quantization.SCHEMES["nvfp4"].format.name, len(fs.quantization.SCHEMES) > 10
('E2M1', True)
"""

SchemeLike: TypeAlias = "Scheme | ElementFormatLike"

_WEIGHTS_ONLY = "it names bits of weights and activations; the schemes of weights are 'awq', 'gptq' and 'nf4'"
_NO_SCHEMES: dict[str, str] = {
    r"i?q\d_.+|tq\d_.+": "it is a type of GGUF files; fs.quantization.to_gguf(x, {name!r}) quantizes to it",
    r"w4a16(_.+)?|w[2348]a(16|32)(_.+)?": _WEIGHTS_ONLY,
    r"w4a4|w4a8": "it names bits of weights and activations; quantize each with its scheme, such as 'int4' and 'w8a8'",
    r"smooth_?quant|llm_int8_.+": "it is a method for two operands; fs.training.Gemm('int8', scaling='row') multiplies "
    "with INT8 operands, and 'w8a8' is the scheme of each",
    r"hqq|quarot|spinquant|autoround|signround|qat": "it is a method that searches for scales or codes, no scheme; "
    "fs.best_scale searches for scales",
}
"""Names that users type for what is no scheme: a pattern, and what to use."""


def as_scheme(x: SchemeLike) -> Scheme:
    """Return the scheme that `x` is or names.

    Parameters
    ----------
    x : Scheme, format or str
        A scheme, a key of `SCHEMES` in any case, or a format of elements, with one scale for the tensor.

    Returns
    -------
    Scheme

    Raises
    ------
    ValueError
        If the name is not known. The message has the nearest one.

    Examples
    --------
    >>> from floatsim.quantization import as_scheme
    >>> as_scheme("mxfp8")
    Scheme(E4M3, block=(1, 32), scale_format=E8M0, rule='floor', factor='divide')
    >>> as_scheme("mxpf8")
    Traceback (most recent call last):
    ValueError: unknown scheme or format 'mxpf8'; did you mean 'mxfp8'? known are mxfp8, ...
    """
    if isinstance(x, Scheme):
        return x
    if isinstance(x, str):
        name = x.strip().lower().replace("-", "_").replace(".", "_")
        if name in SCHEMES:
            return SCHEMES[name]
        for pattern, hint in _NO_SCHEMES.items():
            if re.fullmatch(pattern, name):
                raise ValueError(f"{x!r} is no scheme: {hint.format(name=name)}")
        try:
            return Scheme(as_element_format(x))
        except ValueError as error:
            raise _with_nearest(error, "scheme or format", x, name, [*SCHEMES, *_LOOKUP]) from None
    return Scheme(as_element_format(x))


class Layout(NamedTuple):
    """The matrices and blocks of a tensor, and the shape of its scales."""

    blocks: Blocks
    scale_shape: tuple[int, ...]


def layout(scheme: Scheme, shape: tuple[int, ...]) -> Layout:
    """Return the blocks of a tensor of this shape. The last two axes are a matrix; blocks do not cross matrices.

    If all blocks are whole and lie one after the other in memory, they are the blocks of one row.
    """
    if scheme.block == "tensor":
        size = math.prod(shape)
        return Layout(Blocks((1, 1, size), 1, max(size, 1), single=True), ())
    if not shape:
        raise ValueError("x is one number, which has no blocks; use block='tensor'")
    *stack, rows, columns = shape if len(shape) > 1 else (1, *shape)
    height, width = scheme.block
    height, width = min(height or rows, max(rows, 1)), min(width or columns, max(columns, 1))
    down, across = -(-rows // max(height, 1)), -(-columns // max(width, 1))
    blocks = Blocks((math.prod(stack), rows, columns), max(height, 1), max(width, 1))
    return Layout(blocks.flattened, (*stack, down, across) if len(shape) > 1 else (across,))


def carrier(scheme: Scheme, fmt: FloatFormat) -> FloatFormat:
    """Return the format of the arithmetic: FP64 for FP64 input, except in the schemes that FP32 code defines."""
    in_fp32 = isinstance(scheme.format, LookupFormat) or scheme.rule in _NVFP4_RULES
    return FP64 if fmt == FP64 and not in_fp32 else FP32
