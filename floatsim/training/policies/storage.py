"""How tensors are stored between steps: in a format, or quantized in blocks, as the 8-bit moments of bitsandbytes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeAlias

from floatsim.arrays.array.conversion import convert
from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.call.random_stream import RandomStream
from floatsim.formats import FloatFormat
from floatsim.formats._validation import name_hint
from floatsim.formats.rounding import Rounding
from floatsim.quantization import lookup
from floatsim.quantization.blocks import quantize_blocks
from floatsim.quantization.lookup import LookupFormat
from floatsim.quantization.scheme import SCHEMES, Scheme, as_scheme
from floatsim.training.policies.rules import checked_format

__all__ = ["DYNAMIC8", "DYNAMIC8_UNSIGNED", "Storage", "as_storage", "store", "unsigned"]

Storage: TypeAlias = FloatFormat | Scheme
"""How a tensor is stored."""


DYNAMIC8 = SCHEMES["dynamic8"]
"""8-bit numbers in blocks of 256, for signed moments (Dettmers et al., 8-bit Optimizers, 2022).

>>> import floatsim as fs
>>> fs.training.DYNAMIC8.block, fs.training.DYNAMIC8.format
((1, 256), LookupFormat DYNAMIC8 (256 numbers))
"""
DYNAMIC8_UNSIGNED = replace(DYNAMIC8, format=lookup.DYNAMIC8_UNSIGNED)
"""8-bit numbers in blocks of 256, for moments that are not negative.

>>> import floatsim as fs
>>> fs.training.DYNAMIC8_UNSIGNED.format
LookupFormat DYNAMIC8_UNSIGNED (256 numbers)
"""

_NAMED = {"dynamic8": DYNAMIC8, "dynamic8-unsigned": DYNAMIC8_UNSIGNED}


def as_storage(storage: Any, argument: str = "storage") -> Storage | None:
    """Return how a tensor is stored: a format, a scheme, or None.

    Parameters
    ----------
    storage : format, Scheme or str
        A format of floating-point numbers; a scheme of quantization or its name, such as "int8"; "dynamic8", the 8-bit
        blocks of bitsandbytes.
    argument : str
        The name of the argument, for messages.

    Returns
    -------
    FloatFormat, Scheme or None

    Raises
    ------
    TypeError, ValueError
        For an unknown name. The message has the nearest match.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.training.as_storage("bf16").name, fs.training.as_storage("dynamic8").block
    ('BF16', (1, 256))
    """
    if storage is None or isinstance(storage, Scheme):
        return storage
    if isinstance(storage, str) and storage.strip().lower().replace("_", "-") in _NAMED:
        return _NAMED[storage.strip().lower().replace("_", "-")]
    try:
        return checked_format(storage, argument)  # type: ignore[return-value]
    except (TypeError, ValueError) as error:
        no_format = error
    try:
        return as_scheme(storage)
    except (TypeError, ValueError):
        hint = name_hint(str(storage).lower(), [*_NAMED, *SCHEMES])
        message = f"{argument}: unknown format or scheme {storage!r}; {hint}"
        raise (ValueError(message) if hint.startswith("did you mean") else no_format) from None


def unsigned(storage: Storage) -> Storage:
    """Return the storage of a moment that is never negative: another table for "dynamic8".

    >>> unsigned(DYNAMIC8).format.name
    'DYNAMIC8_UNSIGNED'
    """
    return DYNAMIC8_UNSIGNED if storage == DYNAMIC8 else storage


def store(
    x: FloatArray,
    storage: Storage | None,
    rounding: Rounding = Rounding.TIES_TO_EVEN,
    seed: RandomStream | None = None,
) -> FloatArray:
    """Return the numbers that are stored for x: rounded to a format, or quantized and read back in FP32.

    Parameters
    ----------
    x : FloatArray
        The tensor.
    storage : FloatFormat, Scheme or None
        How it is stored. None: as it is.
    rounding : Rounding
        The rounding mode to a format, and of the elements of a scheme.
    seed : RandomStream, optional
        The draws of stochastic rounding.

    Returns
    -------
    FloatArray

    Examples
    --------
    >>> import floatsim as fs
    >>> store(fs.array([1.03], "fp32"), fs.E4M3).item()
    1.0
    """
    if storage is None or storage == x.format:
        return x
    drawn: Any = {"rounding": rounding} | ({"seed": seed} if rounding is Rounding.STOCHASTIC else {})
    if isinstance(storage, FloatFormat):
        converted: FloatArray = convert(x, storage, **drawn)
        return converted
    if isinstance(storage.format, LookupFormat):
        drawn = {}
    flat = x.ndim < 2 or storage in _NAMED.values()
    return quantize_blocks(x.reshape(1, -1) if flat else x, storage, **drawn).dequantize().reshape(tuple(x.shape))
