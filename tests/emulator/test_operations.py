"""The table of element-wise operations agrees with the kernels, the public functions, the reference and NumPy."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from floatsim_kernels.elementwise import loops, njit_entry, packed
from floatsim_kernels.functions import enclosures

import floatsim as fs
from floatsim import reference
from floatsim.arrays.elementwise import functions
from floatsim.emulator.elementwise.operations import FUNCTIONS, OPERATIONS, Family, arity
from floatsim.reference import functions as exact

PLANNED = [operation for operation in OPERATIONS.values() if operation.family is not None]
INTEGER = [operation for operation in PLANNED if operation.family not in (Family.FUNCTION, Family.QUANTIZATION)]
ids = {"ids": lambda operation: operation.name}


@pytest.mark.parametrize("operation", INTEGER, **ids)
def test_the_integer_loop_takes_the_operands_and_numbers(operation):
    """Two arguments for each operand and for the result, the numbers, the rounding, the draws and the events."""
    loop = getattr(loops, operation.loop)
    parameters = inspect.signature(getattr(loop, "py_func", loop)).parameters
    modes = 1 if operation.name == "rint" else 0  # the rounding mode of the call is one more number
    assert len(parameters) == 2 * len(operation.operands) + len(operation.numbers) + modes + 5


@pytest.mark.parametrize("operation", PLANNED, **ids)
def test_packed_numbers_are_those_of_the_name(operation):
    fast = operation.family in (Family.ARITHMETIC, Family.INTEGRAL)
    assert operation.packed == (operation.name.upper() if fast else "")
    assert not fast or isinstance(getattr(packed, operation.packed), int)


@pytest.mark.parametrize("operation", [x for x in OPERATIONS.values() if x.compiled is not None], **ids)
def test_compiled_entries_exist_for_public_functions(operation):
    assert callable(getattr(fs, operation.name))
    entry = operation.compiled.entry
    assert callable(getattr(njit_entry, entry, None)) or (entry == "function" and operation.name in FUNCTIONS)
    public = inspect.signature(getattr(fs, operation.name)).parameters
    assert [*public][: len(operation.operands)] == [*operation.operands] or operation.name == "nextafter"


def test_functions_are_those_of_the_reference():
    assert set(FUNCTIONS) == set(exact.FUNCTIONS) == {*functions.__all__, "gelu_tanh"}
    assert {name for name in FUNCTIONS if arity(name) == 2} == set(exact.BINARY)
    assert set(enclosures.INSIDE) <= set(FUNCTIONS)


@pytest.mark.parametrize("operation", [x for x in PLANNED if x.float64 is not None], **ids)
def test_float64_twins_compute_the_operation(operation):
    """NumPy rounds each step of a function or an fma: up to four last places. The others are rounded once, or exact."""
    columns = np.array([[0.5, 0.75, 0.25], [0.875, 0.25, 0.5], [0.625, 0.5, -0.75]]).T[: arity(operation.name)]
    twin = operation.float64(*columns)
    for i, row in enumerate(columns.T):
        codes = [int(np.float64(x).view(np.uint64)) for x in row]
        numbers = [reference.decode(code, fs.FP64) for code in codes]
        if operation.family is Family.FUNCTION:
            code, _ = exact.apply(operation.name, tuple(numbers), fs.FP64, reference.RoundingAttributes(), 0)
        else:
            code, _ = getattr(reference, operation.name)(*numbers, fs.FP64, reference.RoundingAttributes())
        want = float(np.uint64(code).view(np.float64))
        limit = 4 if operation.family is Family.FUNCTION or operation.name == "fma" else 0
        assert abs(twin[i] - want) <= limit * np.spacing(abs(want)), operation.name


def test_clauses_are_those_of_the_docstrings():
    """Each docstring that names a clause of IEEE 754-2019 for its operation names the table's."""
    for operation in PLANNED:
        public = getattr(fs, operation.name, None)
        summary = (inspect.getdoc(public) or "").split("\n\n")[0]
        if "IEEE 754-2019" in summary and operation.clause:
            assert operation.clause in summary, operation.name
