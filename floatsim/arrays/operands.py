"""Read the operands of element-wise operations, and return their results."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from floatsim.arrays import backends
from floatsim.arrays import events as recording
from floatsim.arrays.conversion import Codes, operand_codes, out_codes, read_floats, wants_events, with_flags
from floatsim.arrays.float_array import FloatArray, wrap
from floatsim.arrays.options import RoundingOptions, resolve
from floatsim.formats import FP64, FloatFormat, FormatLike, as_format
from floatsim.formats.call import CallOptions
from floatsim.formats.rounding import Rounding, as_member

__all__ = ["Operand", "check_shapes", "deliver", "no_scales", "operate", "quiet", "read_operands"]


Operand: TypeAlias = tuple[Codes, FloatFormat]


def _is_weak(x: Any) -> bool:
    """Return whether x is a Python number, which takes the format of the arrays (as in NumPy, NEP 50)."""
    return type(x) in (int, float)


def read_operands(arguments: dict[str, Any], result: FloatFormat | None) -> tuple[list[Operand], bool]:
    """Return codes and formats of the operands, and whether one of them was a FloatArray."""
    arrays = [x for x in arguments.values() if isinstance(x, FloatArray)]
    if len(arrays) == len(arguments) and (result is not None or len({x.format for x in arrays}) == 1):
        return [(x.codes, x.format) for x in arrays], True
    operands: dict[str, Operand] = {}
    float_array = False
    for name, x in arguments.items():
        if not _is_weak(x):
            codes, fmt, is_float_array = read_floats(x, name)
            float_array |= is_float_array
            operands[name] = codes, fmt
    formats = {fmt for _, fmt in operands.values()}
    if len(formats) > 1 and result is None:
        names = " and ".join(f"{name} is {fmt.name}" for name, (_, fmt) in operands.items())
        other = next(name for name in reversed(operands))
        raise TypeError(
            f"mixed formats: {names}; name the result's with format=, or convert one: "
            f"fs.array({other}, {operands[next(iter(operands))][1].name.lower()!r})"
        )
    weak = formats.pop() if len(formats) == 1 else result or FP64
    for name, x in arguments.items():
        if _is_weak(x):
            operands[name] = operand_codes(x, weak, name), weak
    return [operands[name] for name in arguments], float_array


def no_scales(operation: str, *formats: FloatFormat) -> None:
    """Raise a TypeError for scale formats."""
    for fmt in formats:
        if fmt.is_scale:
            raise TypeError(f"{operation}: {fmt.name} is a scale format, which has no arithmetic; fs.convert it first")


def check_shapes(arguments: dict[str, Any], operands: list[Operand]) -> tuple[int, ...]:
    """Return the common shape of the operands, or raise a ValueError that lists their shapes."""
    if len(found := {codes.shape for codes, _ in operands}) == 1:
        return found.pop()
    try:
        return np.broadcast_shapes(*(codes.shape for codes, _ in operands))
    except ValueError:
        shapes = ", ".join(f"{name} {codes.shape}" for name, (codes, _) in zip(arguments, operands, strict=True))
        raise ValueError(f"the shapes do not broadcast: {shapes}") from None


def deliver(codes: Codes, fmt: FloatFormat, float_array: bool, out: Any) -> Any:
    """Return the result as a FloatArray or ndarray, written into `out` if given."""
    if out is None:
        return wrap(codes, fmt, float_array)
    out_codes(out, fmt, codes.shape)[...] = codes
    return out


def operate(
    operation: str, arguments: dict[str, Any], format: FormatLike | None, out: Any, options: RoundingOptions,
    kind: str = "elementwise",
) -> Any:  # fmt: skip
    """Carry out one rounding operation: read the arguments, compute, record events, return the result.

    `kind` is the function of the backend that computes it.
    """
    call_options = resolve(options)
    named = None if format is None else as_format(format)
    operands, float_array = read_operands(arguments, named)
    fmt = named or operands[0][1]
    no_scales(operation, fmt, *(source for _, source in operands))
    shape = check_shapes(arguments, operands)
    wanted = wants_events(call_options)
    if out is None and not wanted and float_array:
        codes, _ = getattr(backends.current(), kind)(operation, operands, fmt, call_options, False, None)
        return wrap(codes, fmt, True)
    target = None if out is None else out_codes(out, fmt, shape)
    codes, events = getattr(backends.current(), kind)(operation, operands, fmt, call_options, wanted, target)
    if events is not None:  # before anything is written: out may be an operand
        recording.note(operation, events, operands, (codes, fmt), call_options.attributes.daz)
    if target is not None and codes is not target:
        target[...] = codes
    result = wrap(codes, fmt, float_array) if out is None else out
    return result if events is None else with_flags(result, events, call_options)


def quiet(options: RoundingOptions) -> CallOptions:
    """Return the options of an operation that rounds nothing. Its keywords are checked, but it needs no seed."""
    if (rounding := options.get("rounding")) is not None:
        as_member(Rounding, rounding, "rounding")
    return resolve({**options, "rounding": Rounding.TIES_TO_EVEN})
