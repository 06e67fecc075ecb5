"""`fs.tensorcore.convert_as`: a conversion as a named instruction of a CPU computes it."""

from __future__ import annotations

from typing import Any

from floatsim.arrays.array.conversion import read_floats
from floatsim.arrays.array.float_array import wrap
from floatsim.arrays.call import backends
from floatsim.arrays.call.options import BackendName
from floatsim.formats._validation import as_flag
from floatsim.formats.rounding import Rounding, RoundingLike, as_member
from floatsim.tensorcore.architectures import enumerated
from floatsim.tensorcore.conversions import as_conversion

__all__ = ["convert_as"]


def convert_as(
    instruction: str, x: Any, *, rounding: RoundingLike | None = None, daz: bool | None = None,
    backend: BackendName | None = None,
) -> Any:  # fmt: skip
    """Convert values as a named CPU instruction does, with its subnormals and its NaN.

    Parameters
    ----------
    instruction : str
        "vcvtneps2bf16" (FP32 to BF16), "vcvtps2ph" (FP32 to FP16) or "vcvtph2ps" (FP16 to FP32). The table is
        `fs.tensorcore.CONVERSIONS`.
    x : array_like of floats
        A FloatArray, or an array whose dtype is the instruction's source format.
    rounding : Rounding or str, optional
        The rounding mode, for an instruction that has several. Default: ties to even.
    daz : bool, optional
        MXCSR.DAZ, for an instruction that obeys it. Default: False.
    backend : str, optional
        "emulator", or "native-cpu" for the instruction itself. Default: the context's.

    Returns
    -------
    FloatArray or ndarray
        The results, of the kind of x. A NaN keeps its sign and the high bits of its payload, and becomes quiet.

    Raises
    ------
    TypeError
        If x has another format.
    ValueError
        For an unknown instruction, and for a rounding mode or `daz` that the instruction does not have.

    Notes
    -----
    The context's rounding options do not apply: an instruction has its own.

    Examples
    --------
    VCVTNEPS2BF16 reads subnormal numbers as zeros; `fs.convert` keeps them:

    >>> import floatsim as fs, numpy as np
    >>> x = fs.array([1.0, 2.0**-130], "fp32")
    >>> fs.tensorcore.convert_as("vcvtneps2bf16", x).values.tolist()
    [1.0, 0.0]
    >>> fs.convert(x, "bf16").values.tolist() == [1.0, 2.0**-130]
    True
    """
    conversion = as_conversion(instruction)
    codes, fmt, float_array = read_floats(x, "x")
    if fmt != conversion.source:
        raise TypeError(f"{conversion.name} converts {conversion.source}, and x is {fmt}; fs.convert it first")
    mode = conversion.roundings[0] if rounding is None else as_member(Rounding, rounding, "rounding")
    if mode not in conversion.roundings:
        known = enumerated(repr(each.name.lower()) for each in conversion.roundings)
        raise ValueError(f"rounding={rounding!r}: {conversion.name} has {known}")
    flag = bool(conversion.daz) if daz is None else as_flag(daz, "daz")
    if conversion.daz is not None and flag != conversion.daz:
        reads = "reads subnormals as zeros" if conversion.daz else "keeps subnormals"
        raise ValueError(f"daz={daz!r}: {conversion.name} always {reads}")
    return wrap(backends.current(backend).convert_as(conversion, codes, mode, flag), conversion.result, float_array)
