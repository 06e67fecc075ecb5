"""Conversion instructions of CPUs as data: formats, rounding modes, subnormals and NaN.

Sources: Intel SDM (VCVTNEPS2BF16, VCVTPS2PH, VCVTPH2PS). All rows were compared with the instructions:
`floatsim docs hardware` has the counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from floatsim.formats import BF16, FP16, FP32, FloatFormat
from floatsim.formats._validation import nearest_name
from floatsim.formats.rounding import Rounding

__all__ = ["CONVERSIONS", "Conversion", "as_conversion"]


@dataclass(frozen=True)
class Conversion:
    """A conversion instruction. A NaN keeps its sign and the high bits of its payload, and becomes quiet.

    Attributes
    ----------
    name : str
        The name of the instruction.
    source, result : FloatFormat
        The formats of the operand and of the result.
    roundings : tuple of Rounding
        The rounding modes that the instruction has, the default first.
    daz : bool or None
        Whether subnormal operands are read as zeros. None: the mode of the thread decides, MXCSR.DAZ.
    note : str
        A remark.

    Examples
    --------
    >>> import floatsim as fs
    >>> row = fs.tensorcore.CONVERSIONS["vcvtps2ph"]
    >>> row.source.name, row.result.name, row.roundings[0].name
    ('FP32', 'FP16', 'TIES_TO_EVEN')
    """

    name: str
    source: FloatFormat
    result: FloatFormat
    roundings: tuple[Rounding, ...]
    daz: bool | None
    note: str = ""


_NEAREST = (Rounding.TIES_TO_EVEN,)
_FOUR = (*_NEAREST, Rounding.TOWARD_NEGATIVE, Rounding.TOWARD_POSITIVE, Rounding.TOWARD_ZERO)

CONVERSIONS = {
    row.name: row
    for row in (
        Conversion("vcvtneps2bf16", FP32, BF16, _NEAREST, True, "also VCVTNE2PS2BF16; MXCSR has no effect"),
        Conversion("vcvtps2ph", FP32, FP16, _FOUR, None, "keeps subnormal results, whatever MXCSR.FTZ is"),
        Conversion("vcvtph2ps", FP16, FP32, _NEAREST, False, "exact; reads subnormals, whatever MXCSR.DAZ is"),
    )
}
"""The conversion instructions by name.

>>> import floatsim as fs
>>> list(fs.tensorcore.CONVERSIONS)
['vcvtneps2bf16', 'vcvtps2ph', 'vcvtph2ps']
"""


def as_conversion(name: Any) -> Conversion:
    """Return the conversion of this name. The error lists all names.

    >>> as_conversion("VCVTPS2PH").result.name
    'FP16'
    """
    if not isinstance(name, str):
        raise TypeError(f"a conversion is named by a text such as 'vcvtps2ph', not {name!r}")
    key = name.strip().lower()
    if key in CONVERSIONS:
        return CONVERSIONS[key]
    near = nearest_name(key, CONVERSIONS)
    hint = f"did you mean {near!r}? " if near else ""
    raise ValueError(f"unknown conversion {name!r}; {hint}known are {', '.join(CONVERSIONS)}")
