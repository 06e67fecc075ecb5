"""The operations of Berkeley TestFloat, by its names, on codes of FP16, FP32 and FP64 and on integers.

Source: J. Hauser, "Berkeley TestFloat", release 3e, and IEEE 754-2019. An invalid conversion to an integer gives the
nearest end of the integer's range, and the largest integer for NaN, as SoftFloat does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from floatsim.arrays.array.conversion import convert, from_integer, to_integer
from floatsim.arrays.array.float_array import from_codes
from floatsim.arrays.elementwise import arithmetic, comparison
from floatsim.formats import FP16, FP32, FP64
from floatsim.formats._validation import name_hint
from floatsim.formats.rounding import FLAGS, INEXACT, INVALID

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ROUNDINGS", "TESTFLOAT", "TestFloatOperation", "as_testfloat", "mismatches"]

_FLOATS = {"f16": FP16, "f32": FP32, "f64": FP64}
_INTEGERS: dict[str, type[np.integer[Any]]] = {"i32": np.int32, "i64": np.int64, "ui32": np.uint32, "ui64": np.uint64}

ROUNDINGS = {
    "near_even": "ties_to_even", "near_maxMag": "ties_to_away", "minMag": "toward_zero", "min": "toward_negative",
    "max": "toward_positive", "odd": "to_odd",
}  # fmt: skip
"""TestFloat's names of the rounding modes, with the names in floatsim."""

_ARITHMETIC: dict[str, tuple[Callable[..., Any], int]] = {
    "add": (arithmetic.add, 2), "sub": (arithmetic.subtract, 2), "mul": (arithmetic.multiply, 2),
    "div": (arithmetic.divide, 2), "rem": (arithmetic.remainder, 2), "sqrt": (arithmetic.sqrt, 1),
    "mulAdd": (arithmetic.fma, 3),
}  # fmt: skip
_RELATIONS: dict[str, tuple[Callable[..., Any], bool]] = {
    "eq": (comparison.equal, False), "eq_signaling": (comparison.equal, True), "lt": (comparison.less, True),
    "lt_quiet": (comparison.less, False), "le": (comparison.less_equal, True),
    "le_quiet": (comparison.less_equal, False),
}  # fmt: skip


@dataclass(frozen=True)
class TestFloatOperation:
    """An operation of TestFloat.

    Attributes
    ----------
    name : str
        TestFloat's name: "f32_add", "f64_to_i32", "f16_roundToInt".
    operands : tuple of int
        The bits of each operand.
    result : int
        The bits of the result; 8 for a Boolean.
    """

    name: str
    operands: tuple[int, ...]
    result: int

    __test__ = False  # no test class of pytest

    @property
    def _parts(self) -> tuple[str, str]:
        kind, _, operation = self.name.partition("_")
        return kind, operation

    @property
    def _target(self) -> str:
        return self._parts[1].removeprefix("to_")

    def evaluate(
        self, operands: list[NDArray[Any]], rounding: str = "near_even", tininess: str = "after", exact: bool = False
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the results and the flags for columns of codes.

        Parameters
        ----------
        operands : list of arrays
            Codes, or two's complements of integers, as unsigned integers.
        rounding : str
            A name of `ROUNDINGS`. To an integer, "odd" rounds toward zero, as in SoftFloat.
        tininess : {"after", "before"}
            When a result is tested for underflow.
        exact : bool
            Whether a rounding to an integer raises the inexact flag.

        Returns
        -------
        results : array of unsigned integers
        flags : uint8 array
            inexact 1, underflow 2, overflow 4, divide by zero 8, invalid 16.

        Examples
        --------
        >>> results, flags = as_testfloat("f16_add").evaluate([np.array([0x3C00], "u2"), np.array([0x1000], "u2")])
        >>> hex(results[0]), int(flags[0])
        ('0x3c00', 1)
        """
        kind, operation = self._parts
        options: dict[str, Any] = {
            "rounding": ROUNDINGS[rounding], "tininess": tininess, "overflow": "infinity", "daz": False, "ftz": False,
            "return_flags": True,
        }  # fmt: skip
        if kind in _INTEGERS:
            signed = operands[0].view(_INTEGERS[kind])
            result, flags = from_integer(signed, _FLOATS[self._target], **options)
            return np.asarray(result).view(f"u{self.result // 8}"), flags & FLAGS
        floats = [from_codes(x, _FLOATS[kind]) for x in operands]
        if operation in _RELATIONS:
            relation, signaling = _RELATIONS[operation]
            holds, flags = relation(*floats, signaling=signaling, return_flags=True)
            return np.asarray(holds).astype(np.uint8), flags & FLAGS
        if operation in _ARITHMETIC:
            result, flags = _ARITHMETIC[operation][0](*floats, **options)
        elif self._target in _FLOATS:
            result, flags = convert(floats[0], _FLOATS[self._target], **options)
        else:
            return self._rounded(floats[0], options, exact)
        return result.codes, flags & FLAGS

    def _rounded(self, x: Any, options: dict[str, Any], exact: bool) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the results of roundToInt and of conversions to integers."""
        if options["rounding"] == "to_odd":
            options["rounding"] = "toward_zero"
        result: Any
        if self._parts[1] == "roundToInt":
            result, flags = arithmetic.rint(x, **options)
            codes = result.codes
        else:
            dtype = _INTEGERS[self._target]
            result, flags = to_integer(x, dtype, **options)
            result = np.where(np.asarray(comparison.isnan(x)), np.iinfo(dtype).max, result).astype(dtype)
            codes = result.view(f"u{self.result // 8}")
        return codes, flags & (FLAGS if exact else FLAGS & ~INEXACT)


def _operations() -> dict[str, TestFloatOperation]:
    found = []
    widths = {name: fmt.bits for name, fmt in _FLOATS.items()}
    widths |= {name: 8 * np.dtype(dtype).itemsize for name, dtype in _INTEGERS.items()}
    for kind, fmt in _FLOATS.items():
        bits = fmt.bits
        found += [TestFloatOperation(f"{kind}_{name}", (bits,) * n, bits) for name, (_, n) in _ARITHMETIC.items()]
        found += [TestFloatOperation(f"{kind}_{name}", (bits, bits), 8) for name in _RELATIONS]
        found.append(TestFloatOperation(f"{kind}_roundToInt", (bits,), bits))
        found += [TestFloatOperation(f"{kind}_to_{n}", (bits,), width) for n, width in widths.items() if n != kind]
    found += [
        TestFloatOperation(f"{name}_to_{kind}", (widths[name],), fmt.bits)
        for name in _INTEGERS
        for kind, fmt in _FLOATS.items()
    ]
    return {each.name: each for each in found}


TESTFLOAT = _operations()
"""The operations by name."""


def as_testfloat(name: str) -> TestFloatOperation:
    """Return the operation with TestFloat's name. Raise ValueError with the nearest name if there is none.

    >>> as_testfloat("f32_mulAdd").operands
    (32, 32, 32)
    """
    if name not in TESTFLOAT:
        raise ValueError(f"unknown function {name!r}; {name_hint(name, TESTFLOAT)}")
    return TESTFLOAT[name]


def mismatches(
    operation: TestFloatOperation, expected: tuple[NDArray[Any], NDArray[Any]],
    given: tuple[NDArray[Any], NDArray[Any]], check_nans: bool = False,
) -> NDArray[np.intp]:  # fmt: skip
    """Return the indices of the results or flags that differ, as testfloat_ver counts them.

    Parameters
    ----------
    operation : TestFloatOperation
    expected, given : tuple of (results, flags)
        The columns of two implementations.
    check_nans : bool
        Whether NaNs must have equal bits, and invalid conversions to integers equal results. Otherwise a NaN equals
        every NaN, and an invalid conversion may give either end of the range.

    Returns
    -------
    array of indices

    Examples
    --------
    >>> nan, other, flags = np.array([0x7E00], "u2"), np.array([0xFE01], "u2"), np.array([16], "u1")
    >>> add = as_testfloat("f16_add")
    >>> len(mismatches(add, (nan, flags), (other, flags))), len(mismatches(add, (nan, flags), (other, flags), True))
    (0, 1)
    """
    differs = expected[0] != given[0]
    if not check_nans and differs.any():
        differs &= ~_equivalent(operation, expected, given)
    found: NDArray[np.intp] = np.flatnonzero(differs | (expected[1] != given[1]))
    return found


def _equivalent(operation: TestFloatOperation, expected: Any, given: Any) -> NDArray[np.bool_]:
    """Return where both results are NaN, or both are ends of the range of an invalid conversion."""
    target = operation.name.rpartition("_to_")[2]
    if target in _INTEGERS:
        limits = np.iinfo(_INTEGERS[target])
        ends = np.array([limits.min, limits.max], _INTEGERS[target]).view(expected[0].dtype)
        invalid: NDArray[np.bool_] = (expected[1] == INVALID) & np.isin(given[0], ends)
        return invalid
    fmt = next((fmt for fmt in _FLOATS.values() if fmt.bits == operation.result), None)
    if fmt is None:
        return np.zeros(len(expected[0]), bool)
    nan = [np.asarray(comparison.isnan(from_codes(x, fmt))) for x in (expected[0], given[0])]
    both: NDArray[np.bool_] = nan[0] & nan[1]
    return both
