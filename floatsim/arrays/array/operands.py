"""Read the operands of element-wise operations, and return their results."""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np

from floatsim._types import Codes, Operand
from floatsim.arrays.array.conversion import operand_codes, out_codes, read_floats, wants_events, with_flags
from floatsim.arrays.array.float_array import FloatArray, wrap
from floatsim.arrays.array.interop import stays_on_device
from floatsim.arrays.call import backends
from floatsim.arrays.call.options import RoundingOptions, resolve, spell_out
from floatsim.arrays.events import record as recording
from floatsim.emulator.elementwise.operations import OPERATIONS
from floatsim.formats import FP64, FloatFormat, FormatLike, as_format
from floatsim.formats._validation import name_hint
from floatsim.formats.call import CallOptions
from floatsim.formats.rounding import Rounding, as_member

if TYPE_CHECKING:
    from floatsim.emulator.planning import BasePlan

__all__ = ["check_shapes", "deliver", "no_scales", "operate", "operation", "plan_operation", "quiet", "read_operands"]

P = ParamSpec("P")
R = TypeVar("R")
_format_of = itemgetter(1)


def operation(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a public operation: fill in its docstring, and return tensors of torch and CuPy for such operands."""
    return stays_on_device(spell_out(RoundingOptions)(function))


def _is_weak(x: Any) -> bool:
    """Return whether x is a Python number, which takes the format of the arrays (as in NumPy, NEP 50)."""
    return type(x) in (int, float)


def read_operands(arguments: dict[str, Any], result: FloatFormat | None) -> tuple[list[Operand], bool]:
    """Return codes and formats of the operands, and whether one of them was a FloatArray."""
    arrays: list[Operand] = []
    for x in arguments.values():
        if not isinstance(x, FloatArray):
            break
        arrays.append((x.codes, x.format))
        if result is None and arrays[-1][1] != arrays[0][1]:
            break
    else:
        return arrays, True
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
    shape: tuple[int, ...] = operands[0][0].shape
    try:
        for codes, _ in operands:
            if codes.shape != shape:
                shape = np.broadcast_shapes(shape, codes.shape)
        return shape
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
    no_scales(operation, fmt, *map(_format_of, operands))
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


def plan_operation(
    name: str, arrays: list[Any], format: FormatLike | None, return_flags: bool, options: RoundingOptions
) -> BasePlan[Any]:
    """Return the emulator's plan of an element-wise operation on these operands."""
    known = {each.name: each.operands for each in OPERATIONS.values() if each.family is not None}
    if name not in known:
        raise ValueError(f"no plan is made for {name!r}; {name_hint(name, known)}")
    if len(arrays) != len(known[name]):
        raise TypeError(f"{name} takes {len(known[name])} operands, not {len(arrays)}")
    arguments = dict(zip(known[name], arrays, strict=True))
    call_options = resolve({**options, "return_flags": return_flags})
    named = None if format is None else as_format(format)
    operands, _ = read_operands(arguments, named)
    size, wanted = math.prod(check_shapes(arguments, operands)), wants_events(call_options)
    fmt, attributes = named or operands[0][1], call_options.attributes
    planned: BasePlan[Any] = backends.emulator().plan_elementwise(name, operands, fmt, attributes, wanted, size)
    return planned


def quiet(options: RoundingOptions) -> CallOptions:
    """Return the options of an operation that rounds nothing. Its keywords are checked, but it needs no seed."""
    if (rounding := options.get("rounding")) is not None:
        as_member(Rounding, rounding, "rounding")
    return resolve({**options, "rounding": Rounding.TIES_TO_EVEN})
