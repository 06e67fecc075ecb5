"""Caches of keys and values (KV caches), as data: how the keys and values of attention are stored, token by token."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from floatsim.arrays.array.conversion import as_float_array
from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.array.types import Floats
from floatsim.formats import FP32, FP64, FloatFormat, as_format
from floatsim.formats._validation import as_index, as_real, with_keyword_hints
from floatsim.quantization.blocks import quantize_blocks
from floatsim.quantization.gguf_types import GgufType
from floatsim.quantization.hadamard_transform import hadamard
from floatsim.quantization.scheme import SCHEMES, TENSOR_RULES, Scheme, SchemeLike, as_name
from floatsim.quantization.whole_model import NamedScheme, as_model_scheme
from floatsim.training.policies.conversions import nearest, plain

__all__ = ["PARTS", "Cache", "CacheLike", "as_cache"]

PARTS = ("keys", "values")
"""What a cache stores.

>>> PARTS
('keys', 'values')
"""

_AS_KEYS = "keys"


def _is_row_format(given: Any) -> bool:
    """Return whether `given` is a format of elements, or names one: it has no blocks of its own."""
    if isinstance(given, str):
        return given.strip().lower().replace("-", "_") not in SCHEMES
    return not isinstance(given, Scheme | GgufType)


def _stored_as(given: Any, argument: str, scale: float | None) -> FloatFormat | NamedScheme | None:
    """Return how a part is stored: a format, a scheme of one token, or None."""
    if given is None:
        if scale is not None:
            raise ValueError(f"{argument}=None are stored as they are, and take no scale, not {scale!r}")
        return None
    if (fmt := _float_format(given)) is not None:
        if fmt.is_scale:
            raise TypeError(f"{argument}: {fmt.name} is a scale format, which has no arithmetic")
        return fmt if scale is None else NamedScheme(fmt.name.lower(), Scheme(fmt))
    found = as_model_scheme(given, argument)
    if isinstance(found.of, GgufType):
        if scale is not None:
            raise ValueError(f"{argument}={found.text!r} has scales in its blocks, and takes no scale, not {scale!r}")
        return found
    scheme = found.of
    if scheme.block == "tensor" and scale is None and _is_row_format(given):
        scheme = Scheme(scheme.format, "row")
    _check_one_token(scheme, found.text, argument, scale)
    return NamedScheme(found.text, scheme)


def _float_format(given: Any) -> FloatFormat | None:
    if isinstance(given, str) and given.strip().lower().replace("-", "_") in SCHEMES:
        return None
    try:
        return as_format(given)
    except (TypeError, ValueError):
        return None


def _check_one_token(scheme: Scheme, text: str, argument: str, scale: float | None) -> None:
    """Raise a ValueError unless the numbers of a token follow from this token alone."""
    second = scheme.rule in TENSOR_RULES and scheme.outer == "tensor"
    if scale is not None:
        if scheme.block != "tensor" and not second:
            raise ValueError(
                f"{argument}={text!r} has scales of blocks; a scale is for one format, such as 'e4m3' or 'int8', and "
                "for the second scale of NVFP4"
            )
        return
    if scheme.block == "tensor":
        why = "has one scale for all tokens, and a cache gets them one after the other"
        use = (
            f"fs.quantization.Scheme({scheme.format.name.lower()!r}, block='row'), or give key_scale= and value_scale="
        )
    elif scheme.block[0] != 1:
        why = "has blocks of several tokens, and a cache gets them one after the other"
        use = "blocks in a row, such as 'mxfp8', 'w8a8' or fs.quantization.Scheme('int4', block=32)"
    elif second:
        why = "has a second scale for all tokens, and a cache gets them one after the other"
        use = "'nvfp4_row' or 'nvfp4_single', or give the calibrated second scale as key_scale= and value_scale="
    elif scheme.nested is not None:
        why = "has nested scales, whose mean is that of all tokens"
        use = "the scheme with nested=None, such as 'nf4'"
    else:
        return
    raise ValueError(f"{argument}={text!r} {why}; use {use}")


def _power_of_two(size: Any, argument: str) -> int:
    found = as_index(size, argument, 0, 1 << 16)
    if found & (found - 1):
        raise ValueError(f"{argument} must be 0 or a power of two, such as 64, not {found}")
    return found


@with_keyword_hints
@dataclass(frozen=True)
class Cache:
    """How the keys and values of attention are stored in a KV cache: each token by itself.

    The numbers of a token do not depend on other tokens. A prompt that is read at once has thus the same stored numbers
    as one that is read token by token.

    Parameters
    ----------
    keys : format, scheme or None
        How keys are stored. A floating-point format ("e4m3") is a cast, as `fs.quantize`. Another format of elements
        ("int8", "nf4") has one FP32 scale for each token of each head. A scheme, or its name, has blocks along the head
        size ("mxfp8", `Scheme("int4", block=32)`), and so have the types of GGUF files ("q8_0"). None: as they are.
    values : format, scheme or None
        How values are stored. Default: as keys.
    key_scale, value_scale : float, optional
        A calibrated scale, for one format: `fs.quantize_blocks(x, format, scale=...)`, which saturates. With a scheme
        of NVFP4 it is the second scale, `tensor_scale=`.
    rotate : int
        Keys and queries are rotated first: a Hadamard transform of blocks of so many elements along the head size, a
        power of two that divides it. The exact products of queries and keys stay. 0: no rotation.
    rotate_values : int
        The same for values; the output of attention is rotated back.
    signs : sequence of 1 and -1, optional
        The signs of both rotations, as in `fs.quantization.hadamard`.

    Raises
    ------
    TypeError, ValueError
        For unknown formats and schemes, with the nearest match; for schemes whose scales depend on several tokens, with
        those that can be used; for numbers out of range.

    Notes
    -----
    The arithmetic of rotations is in FP32, in FP64 for FP64 tensors: each sum of two elements and the last product are
    rounded. Roundings are to nearest, ties to even. Heads of keys that several heads of queries share are stored once.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> cache = fs.training.Cache("int8", values="e4m3", rotate=4)
    >>> x = np.float32([[8, 0, 0, 0], [1, 2, 3, 4]])
    >>> cache.stored(x, "values").format.name, cache.stored(x, "keys").values[0].tolist()
    ('E4M3', [4.0, 4.0, 4.0, 4.0])
    >>> fs.training.Cache("int8", key_scale=0.05, value_scale=0.05).stored(x, "keys").values[0, 0].round(2)
    np.float64(6.35)
    """

    keys: Any = None
    values: Any = _AS_KEYS
    key_scale: float | None = None
    value_scale: float | None = None
    rotate: int = 0
    rotate_values: int = 0
    signs: Any = None

    def __post_init__(self) -> None:
        as_keys = isinstance(self.values, str) and self.values == _AS_KEYS
        settled: dict[str, Any] = {"given": (self.keys, self.keys if as_keys else self.values)}
        for name in ("key_scale", "value_scale"):
            if (scale := getattr(self, name)) is not None and not 0 < as_real(scale, name) < math.inf:
                raise ValueError(f"{name} must be a finite number above 0, not {scale!r}")
        scales = (self.key_scale, self.value_scale)
        for part, given, scale in zip(PARTS, settled.pop("given"), scales, strict=True):
            settled[part] = _stored_as(given, part, scale)
        for name in ("rotate", "rotate_values"):
            settled[name] = _power_of_two(getattr(self, name), name)
        if self.signs is not None:
            sizes = {settled[name] for name in ("rotate", "rotate_values")} - {0}
            if not sizes:
                raise ValueError("signs are for rotate= or rotate_values=, which are both 0")
            if not isinstance(self.signs, Sequence | np.ndarray) or isinstance(self.signs, str):
                raise TypeError(f"signs must be a sequence of 1 and -1, not {self.signs!r}")
            settled["signs"] = tuple(self.signs)
            for size in sizes:
                hadamard(np.zeros(size, np.float32), size, signs=settled["signs"])
        if all(settled[name] in (None, 0) for name in (*PARTS, "rotate", "rotate_values")):
            raise ValueError("Cache() stores keys and values as they are; give keys=, such as 'e4m3' or 'int8'")
        for name, value in settled.items():
            object.__setattr__(self, name, value)

    def block_of(self, part: str) -> int:
        """Return the size of the blocks that are rotated, of "keys" or "values"; 0 for no rotation."""
        return self.rotate if as_name(part, PARTS, "part") == "keys" else self.rotate_values

    def rotated(self, x: Floats, part: str, *, inverse: bool = False) -> FloatArray:
        """Return x after the rotation of "keys" or "values" along the last axis, in FP32 or FP64.

        Parameters
        ----------
        x : array_like of floats
            Keys, values, queries, or an output of attention, (..., head size).
        part : str
            "keys" (also for queries) or "values" (also for outputs).
        inverse : bool
            Whether to rotate back.

        Raises
        ------
        ValueError
            If the blocks do not divide the head size.

        Examples
        --------
        >>> import floatsim as fs
        >>> fs.training.Cache("int4", rotate=2).rotated(fs.array([3.0, 3.0], "bf16"), "keys").format.name
        'FP32'
        """
        wide = _wide(_heads(x))
        size = self.block_of(part)
        if not size:
            return wide
        if wide.shape[-1] % size:
            name = "rotate" if part == "keys" else "rotate_values"
            last = wide.shape[-1]
            fits = ", ".join(str(1 << n) for n in range(1, 17) if last % (1 << n) == 0) or "none: use 0"
            raise ValueError(f"{name}={size} does not divide the head size {last}; powers of two that do: {fits}")
        with plain():
            return hadamard(wide, size, signs=self.signs, inverse=inverse)

    def stored(self, x: Floats, part: str) -> FloatArray:
        """Return the numbers that the cache holds for keys or values, after the rotation.

        Parameters
        ----------
        x : array_like of floats
            Keys or values, (..., tokens, head size).
        part : str
            "keys" or "values".

        Returns
        -------
        FloatArray
            In the format of the cast; the dequantized numbers of a scheme, in FP32. As it is given if the part is not
            quantized.

        Raises
        ------
        ValueError
            If a scheme or a rotation cannot act on the head size, if x has no axis, and for NaN and infinities in a
            format that has none.

        Examples
        --------
        >>> import floatsim as fs
        >>> fs.training.Cache("e4m3").stored([1.03, 300.0], "keys")
        FloatArray([1.0, 288.0], E4M3)
        """
        given = _heads(x)
        how: Any = getattr(self, as_name(part, PARTS, "part"))
        turned = self.rotated(given, part) if self.block_of(part) else given
        if how is None:
            return turned
        if isinstance(how, FloatFormat):
            return nearest(turned, how)
        if (why := how.refusal(tuple(turned.shape))) is not None:
            raise ValueError(f"{part}={how.text!r} cannot act on a head size of {turned.shape[-1]}: {why}")
        scale = self.key_scale if part == "keys" else self.value_scale
        with plain():
            try:
                found: Any
                if scale is None:
                    found = how.quantized(turned)[0]
                else:
                    given_scale: dict[str, Any] = {"tensor_scale" if how.of.rule in TENSOR_RULES else "scale": scale}
                    found = quantize_blocks(turned, how.of, **given_scale)
            except ValueError as error:
                raise ValueError(f"{part}={how.text!r}: {error}") from None
            return as_float_array(found.dequantize(), part)

    def __repr__(self) -> str:
        parts = [_text(self.keys)]
        parts += [f"values={_text(self.values)}"] * (self.values != self.keys)
        for name, default in (("key_scale", None), ("value_scale", None), ("rotate", 0), ("rotate_values", 0),
                              ("signs", None)):  # fmt: skip
            if (given := getattr(self, name)) != default:
                parts.append(f"{name}={given!r}")
        return f"Cache({', '.join(parts)})"


def _heads(x: Floats) -> FloatArray:
    """Return keys or values as a FloatArray. A ValueError for a single number, which has no head size."""
    given = as_float_array(x, "x")
    if not given.ndim:
        raise ValueError("x is a single number; keys and values have a last axis of the head size")
    return given


def _wide(x: FloatArray) -> FloatArray:
    return nearest(x, FP64 if x.format == FP64 else FP32)


def _text(how: Any) -> str:
    return how.text if isinstance(how, NamedScheme) else f"{how}"


CacheLike: TypeAlias = "Cache | SchemeLike"


def as_cache(given: Any, argument: str = "cache") -> Any:
    """Return a `Cache`, None, or a mapping of patterns to them.

    >>> as_cache("e4m3"), as_cache({"layers.0": None, "*": "int8"})["*"]
    (Cache(E4M3), Cache(int8))
    """
    if given is None or isinstance(given, Cache):
        return given
    if isinstance(given, Mapping):
        if not given:
            raise ValueError(f"{argument} is an empty mapping; give a pattern of modules, such as {{'*': 'e4m3'}}")
        return MappingProxyType({key: as_cache(each, f"{argument}[{key!r}]") for key, each in given.items()})
    try:
        return Cache(given)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{argument}: {error}") from None
