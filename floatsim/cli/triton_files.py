"""Kernels of Triton in `floatsim check` and `identify`: a function in a file launches one, in Triton's interpreter."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from floatsim.accumulation.library_rules import NotDescribedError
from floatsim.arrays.array.float_array import FloatArray
from floatsim.cli.console import BadInputError, one_line
from floatsim.formats._validation import name_hint

__all__ = ["triton_product"]


def _function(argument: str) -> Callable[..., Any]:
    """Return the function of FILE.py:NAME. The file runs."""
    path, separator, name = argument.rpartition(":")
    if not separator or not path.endswith(".py") or not name.isidentifier():
        raise BadInputError(f"--triton: {argument!r} is no FILE.py:NAME, such as kernels.py:matmul")
    file = Path(path)
    if not file.is_file():
        raise BadInputError(f"--triton: there is no file {file}")
    if "triton" not in sys.modules:
        os.environ["TRITON_INTERPRET"] = "1"
    try:
        import floatsim.triton
    except ImportError as error:
        raise BadInputError(f"--triton: {one_line(error)}") from None
    del floatsim
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(file.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise BadInputError(f"--triton: {file} cannot be run: {type(error).__name__}: {one_line(error)}") from None
    found = getattr(module, name, None)
    if not callable(found):
        known = [key for key, x in vars(module).items() if callable(x) and not key.startswith("_")]
        raise BadInputError(f"--triton: {file} has no function {name!r}; {name_hint(name, known)}")
    if hasattr(found, "arg_names"):
        raise BadInputError(f"--triton: {name} is a kernel; name a function of a and b that launches it")
    return found  # type: ignore[no-any-return]


def triton_product(argument: str, *, dot: str, casts: str) -> Callable[..., FloatArray]:
    """Return a function FILE.py:NAME of torch tensors, which launches a kernel, as a function of arrays.

    An error of the kernel itself is no bad input: it is raised.
    """
    function = _function(argument)
    from floatsim.triton import UndefinedOperationError, as_matmul, interpret

    try:
        with interpret(dot, casts):
            pass
    except (ValueError, RuntimeError) as error:
        raise BadInputError(f"--triton: {one_line(error)}") from None
    kernel = as_matmul(function, dot=dot, casts=casts)

    def product(*operands: FloatArray) -> FloatArray:
        try:
            found: FloatArray = kernel(*operands)
        except (UndefinedOperationError, NotDescribedError) as error:
            raise BadInputError(f"--triton: {one_line(error)}") from None
        return found

    return product
