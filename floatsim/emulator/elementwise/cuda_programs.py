"""The sequences of CUDA's functions as programs of a kernel, which runs them on chunks of numbers.

`program` runs a sequence of `floatsim.tensorcore.cuda_functions` once, on a machine that writes its operations down.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from floatsim_kernels.functions import cuda as loops

from floatsim._types import Codes
from floatsim.emulator.elementwise.approximations import tables
from floatsim.tensorcore.cuda_functions import CUDA_FUNCTIONS, payne_hanek_words

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Program", "program", "run"]

_UNIT = "sm_90"
_APPROXIMATIONS = ("ex2", "rcp", "rsqrt")
_NO_REGISTER = -1
_TWO_RESULTS = ("split", "reduce_large")


@dataclass(frozen=True, eq=False)
class _Value:
    """The result of an operation, or the argument, or a constant, on the machine that writes operations down."""

    machine: _Writer

    def __add__(self, other: _Value) -> _Value:
        return self.machine.write("add", self, other)

    def __sub__(self, other: _Value) -> _Value:
        return self.machine.write("subtract", self, other)

    def __mul__(self, other: _Value) -> _Value:
        return self.machine.write("multiply", self, other)

    def __truediv__(self, other: _Value) -> _Value:
        return self.machine.write("divide", self, other)

    def __neg__(self) -> _Value:
        return self.machine.write("negative", self)

    def __abs__(self) -> _Value:
        return self.machine.write("absolute", self)

    def __gt__(self, other: _Value) -> _Value:
        return self.machine.write("greater", self, other)

    def __ge__(self, other: _Value) -> _Value:
        return self.machine.write("greater_equal", self, other)

    def __lt__(self, other: _Value) -> _Value:
        return other > self

    def __le__(self, other: _Value) -> _Value:
        return other >= self

    def __and__(self, other: _Value) -> _Value:
        return self.machine.write("both", self, other)


class _Step(NamedTuple):
    operation: str
    results: tuple[_Value, ...]
    operands: tuple[_Value, ...]
    place: int
    """Of tables of an approximation, or of a constant."""


class _Writer:
    """The machine of `floatsim.tensorcore.cuda_functions` that writes operations down, each with its operands once."""

    def __init__(self) -> None:
        self.argument = _Value(self)
        self.constants: dict[int, _Value] = {}
        self.steps: list[_Step] = []
        self._written: dict[tuple[Any, ...], tuple[_Value, ...]] = {}

    def write(self, operation: str, *operands: _Value, place: int = _NO_REGISTER) -> _Value:
        """Return the first result of an operation."""
        return self._results(operation, *operands, place=place)[0]

    def _results(self, operation: str, *operands: _Value, place: int = _NO_REGISTER) -> tuple[_Value, ...]:
        key = operation, operands, place
        if key not in self._written:
            self._written[key] = tuple(_Value(self) for _ in range(1 + (operation in _TWO_RESULTS)))
            self.steps.append(_Step(operation, self._written[key], operands, place))
        return self._written[key]

    def number(self, value: float) -> _Value:
        with np.errstate(over="ignore"):
            code = int(np.float32(value).view(np.uint32))
        return self.constants.setdefault(code, _Value(self))

    def fma(self, a: _Value, b: _Value, c: _Value) -> _Value:
        return self.write("fma", a, b, c)

    def add_toward_zero(self, a: _Value, b: _Value) -> _Value:
        return self.write("add_toward_zero", a, b)

    def sqrt(self, a: _Value) -> _Value:
        return self.write("sqrt", a)

    def approximate(self, name: str, a: _Value) -> _Value:
        return self.write("approximate", a, place=_APPROXIMATIONS.index(name))

    def nearest(self, name: str, a: _Value) -> _Value:
        raise NotImplementedError(f"{name}, rounded once, is no operation of the kernel")

    def nearest_power(self, a: _Value, exponent: float) -> _Value:
        raise NotImplementedError("a power, rounded once, is no operation of the kernel")

    def select(self, condition: _Value, a: _Value, b: _Value) -> _Value:
        return self.write("select", condition, a, b)

    def truncate(self, a: _Value) -> _Value:
        return self.write("truncate", a)

    def power_of_two(self, n: _Value) -> _Value:
        return self.write("power_of_two", n)

    def split(self, a: _Value, least: float) -> tuple[_Value, _Value]:
        self.number(least)
        place = list(self.constants).index(int(np.float32(least).view(np.uint32)))
        n, fraction = self._results("split", a, place=place)
        return n, fraction

    def with_sign_of(self, a: _Value, b: _Value) -> _Value:
        return self.write("with_sign_of", a, b)

    def is_odd(self, n: _Value) -> _Value:
        return self.write("is_odd", n)

    def reduce_large(self, a: _Value) -> tuple[_Value, _Value]:
        rest, turns = self._results("reduce_large", a)
        return rest, turns


class Program(NamedTuple):
    """A sequence of operations on registers: see `floatsim_kernels.functions.cuda`."""

    steps: NDArray[np.int32]
    constants: NDArray[np.uint32]
    registers: int


@functools.lru_cache(maxsize=128)
def program(name: str, number: float | None, bits: str) -> Program | None:
    """Return the program of a function, or None if the kernel lacks one of its operations.

    `bits` tells numbers apart that are equal, such as the zeros.
    """
    machine = _Writer()
    numbers = () if number is None else (number,)
    try:
        result = CUDA_FUNCTIONS[name].steps(machine, machine.argument, *numbers)
    except NotImplementedError:
        return None
    steps = _needed(machine.steps, result)
    fixed = [machine.argument, *machine.constants.values()]
    registers = dict(zip(fixed, range(len(fixed)), strict=True))
    last_reader = {value: n for n, step in enumerate(steps) for value in step.operands}
    last_reader[result] = len(steps)
    free: list[int] = []
    count = len(fixed)
    rows = []
    for n, step in enumerate(steps):
        for value in step.results:  # never a register of an operand: the loops are vectorized
            registers[value] = free.pop() if free else count
            count = max(count, registers[value] + 1)
        rows.append(_row(step, registers))
        done = [*dict.fromkeys(step.operands), *step.results]
        free += [registers[v] for v in done if v not in fixed and last_reader.get(v, n) == n]
    return Program(np.array(rows, np.int32), np.array(list(machine.constants), np.uint32), count)


def _needed(steps: Sequence[_Step], result: _Value) -> list[_Step]:
    """Return the steps that a result depends on."""
    needed, kept = {result}, []
    for step in reversed(steps):
        if needed.intersection(step.results):
            needed.update(step.operands)
            kept.append(step)
    return kept[::-1]


def _row(step: _Step, registers: dict[_Value, int]) -> list[int]:
    operands = [registers[value] for value in step.operands]
    if step.place != _NO_REGISTER:
        operands.append(step.place)
    operands += [_NO_REGISTER] * (3 - len(operands))
    if len(step.results) == 2:
        operands[2] = registers[step.results[1]]
    return [loops.OPERATIONS.index(step.operation), registers[step.results[0]], *operands]


class _Tables(NamedTuple):
    """The tables of the approximations, function by function, and the words of 2/pi."""

    layouts: NDArray[np.uint32]
    specials: NDArray[np.uint32]
    rows: NDArray[np.float64]
    integers: NDArray[np.uint32]
    floats: NDArray[np.float64]
    words_of_pi: NDArray[np.uint64]


@functools.cache
def _all_tables() -> _Tables:
    each = [tables(name, _UNIT) for name in _APPROXIMATIONS]
    most = max(len(table.rows) for table in each)
    rows = np.zeros((len(each), most, 3))
    for at, table in enumerate(each):
        rows[at, : len(table.rows)] = table.rows
    words = [[word >> 32 * k & 0xFFFFFFFF for k in range(3)] for word in payne_hanek_words()]
    return _Tables(
        np.stack([table.layout for table in each]), np.stack([table.special for table in each]), rows,
        np.stack([table.integers for table in each]), np.stack([table.floats for table in each]),
        np.array(words, np.uint64),
    )  # fmt: skip


def run(found: Program, codes: Codes, out: Codes) -> None:
    """Write the results of a program. Every NaN is 0x7FFFFFFF.

    The processor must have fused multiply-adds, and its environment must be the default one.
    """
    words = np.empty((found.registers, loops.CHUNK), np.uint32)
    numbers = words.view(np.float32)
    loops.run(np.ascontiguousarray(codes), found.steps, found.constants, *_all_tables(), words, numbers, out)
