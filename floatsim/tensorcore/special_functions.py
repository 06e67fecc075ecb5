"""The special-function unit of GPUs as data: the coefficients of its polynomials, and the forms of its instructions.

The unit is a quadratic interpolator as S. Oberman and M. Siu describe one: "A High-Performance Area-Efficient
Multifunction Interpolator", 17th IEEE Symposium on Computer Arithmetic, 2005. The upper bits of the argument select a
segment, and the lower bits are the operand of the segment's polynomial. `sm_90.json` has the polynomials of an NVIDIA
H200. They are integers that were fitted to recorded outputs of that GPU. `floatsim.reference.special_functions` is the
specification that reads them.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from floatsim.formats import BF16, FP16, FP32, FloatFormat
from floatsim.formats._validation import as_flag
from floatsim.tensorcore.architectures import as_architecture, enumerated

__all__ = ["FORMS", "SCALINGS", "Interpolator", "Scaling", "SpecialFunctionUnit", "as_form", "as_unit"]


@dataclass(frozen=True)
class Interpolator:
    """The polynomials of one function. x is the operand, and square(x) its truncated square, of 15 bits:

        value = ((c0 << c0_shift) + c1 x + ((c2 square(x)) << c2_shift) + constant) >> dropped_bits

    Attributes
    ----------
    low_bits : int
        The number of bits of x.
    c0_shift, c2_shift, constant, dropped_bits : int
        The constants of the formula.
    fraction_bits : int
        The value is in units of 2**-fraction_bits. Where it is 23, the value is the trailing significand of the result.
    segments : tuple of int
        The number of segments for each exponent of the argument, from 2**-8 upward; empty if all have the same number.
    rows : tuple of (int, int, int)
        c0, c1 and c2 of each segment.
    """

    low_bits: int
    c0_shift: int
    c2_shift: int
    constant: int
    dropped_bits: int
    fraction_bits: int
    segments: tuple[int, ...]
    rows: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class SpecialFunctionUnit:
    """The special-function unit of an architecture: the interpolators of its functions, by name.

    `cos` reads the polynomials of `sin`.
    """

    name: str
    interpolators: dict[str, Interpolator]

    def interpolator(self, function: str) -> Interpolator:
        return self.interpolators["sin" if function == "cos" else function]


@dataclass(frozen=True)
class Scaling:
    """A scaled evaluation, of forms without `.ftz`, for arguments near the ends of FP32.

    The result of an argument x with `first <= code & mask <= last` is that of x * factor, after an operation with
    `operand`, each rounded to nearest: "multiply", "subtract", or "square" without an operand.
    """

    mask: int
    first: int
    last: int
    factor: float
    operation: str
    operand: float = 0.0


_MAGNITUDE = 0x7FFFFFFF
_SUBNORMAL = _MAGNITUDE, 1, 0x7FFFFF
_FROM_2_126 = _MAGNITUDE, 0x7E800000, 0x7F7FFFFF
_BELOW_MINUS_126 = 0xFFFFFFFF, 0xC2FC0001, 0xFF800000

SCALINGS: dict[str, tuple[Scaling, ...]] = {
    "ex2": (Scaling(*_BELOW_MINUS_126, 0.5, "square"),),
    "rcp": (
        Scaling(*_SUBNORMAL, 2.0**24, "multiply", 2.0**24),
        Scaling(*_FROM_2_126, 2.0**-24, "multiply", 2.0**-24),
    ),
    "rsqrt": (Scaling(*_SUBNORMAL, 2.0**24, "multiply", 2.0**12),),
    "sqrt": (Scaling(*_SUBNORMAL, 2.0**24, "multiply", 2.0**-12),),
    "lg2": (Scaling(*_SUBNORMAL, 2.0**24, "subtract", 24.0),),
}
"""The forms without `.ftz`. Those of ex2, rcp, rsqrt and lg2 were compared with an H200 on 65,536 codes each.

That of sqrt is inferred. sin and cos need none: they read the argument to 2**-25 turns. div.approx scales subnormal
divisors as rcp does, which was not measured, and returns 0 for divisors above 2**126, as NVIDIA's description says.
"""

_BOTH, _KEPT, _FLUSHED = (False, True), (False,), (True,)

FORMS: dict[str, dict[FloatFormat, tuple[bool, ...]]] = {
    "ex2": {FP32: _BOTH, FP16: _KEPT, BF16: _FLUSHED},
    "rcp": {FP32: _BOTH},
    "rsqrt": {FP32: _BOTH},
    "sqrt": {FP32: _BOTH},
    "lg2": {FP32: _BOTH},
    "sin": {FP32: _BOTH},
    "cos": {FP32: _BOTH},
    "tanh": {FP32: _KEPT, FP16: _KEPT, BF16: _KEPT},
    "div": {FP32: _BOTH},
}
"""The instructions `function.approx`: their formats, and for each whether there are forms with and without `.ftz`.

The default comes first. Source: NVIDIA, "Parallel Thread Execution ISA", the pages of the instructions.
"""

_MEASURED = {"hopper": "sm_90"}
"""The architectures whose units were measured, and the names of their files."""


def as_form(function: str, argument: str, fmt: FloatFormat, ftz: bool | None, unit: SpecialFunctionUnit) -> bool:
    """Return whether the form of an instruction for operands of this format flushes subnormals, by `ftz` if given.

    >>> as_form("ex2", "a", BF16, None, as_unit("sm_90")), as_form("ex2", "a", FP16, None, as_unit("sm_90"))
    (True, False)
    """
    forms = FORMS[function]
    if fmt not in forms:
        names = enumerated(known.name for known in forms) if len(forms) > 1 else FP32.name
        raise TypeError(
            f"{function}: {argument} is {fmt.name}, but {unit.name} has {function}.approx for {names}; convert it: "
            f"fs.array({argument}, 'fp32')"
        )
    if ftz is None:
        return forms[fmt][0]
    wanted = as_flag(ftz, "ftz")
    if wanted not in forms[fmt]:
        raise ValueError(
            f"{function}: ftz={wanted} is not a form of {function}.approx for {fmt.name}, which has only the form "
            f"{'with' if forms[fmt][0] else 'without'} .ftz; omit ftz, or pass {forms[fmt][0]}"
        )
    return wanted


def as_unit(device: Any) -> SpecialFunctionUnit:
    """Return the unit of a GPU, an architecture or a compilation target. The error names the known ones.

    >>> as_unit("H200").name, len(as_unit("sm_90").interpolator("rcp").rows)
    ('sm_90', 128)
    """
    known = "known are " + ", ".join(f"{target!r} ({name}: h200, h100)" for name, target in _MEASURED.items())
    if not isinstance(device, str):
        raise TypeError(f"device={device!r} is not a text; {known}")
    try:
        architecture = as_architecture(device)
    except ValueError:
        raise ValueError(f"device={device!r} is not known; {known}") from None
    if architecture.name not in _MEASURED:
        raise ValueError(f"device={device!r}: the unit of {architecture.title} was not measured; {known}")
    return _read(_MEASURED[architecture.name])


@functools.cache
def _read(target: str) -> SpecialFunctionUnit:
    stored = json.loads(Path(__file__).with_name(f"{target}.json").read_text(encoding="utf-8"))
    interpolators = {}
    for name, fields in stored.items():
        rows, segments = tuple(map(tuple, fields.pop("rows"))), tuple(fields.pop("segments"))
        interpolators[name] = Interpolator(rows=rows, segments=segments, **fields)
    return SpecialFunctionUnit(target, interpolators)
