"""Checks of a launch before the interpreter runs it: the grid, and operations that have no definition."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from triton.runtime.interpreter import InterpretedFunction

from floatsim.triton.errors import UndefinedOperationError

__all__ = ["check_grid", "check_operations"]

_LIMITS = (2**31 - 1, 65535, 65535)
"""The largest grid that CUDA launches (CUDA C++ Programming Guide, compute capabilities), and int32 program ids."""

_UNDEFINED: Mapping[str, str] = {
    "inline_asm_elementwise": "instructions of a GPU are not interpreted",
    "extern_elementwise": "functions of a GPU's library are not interpreted; use those of tl.math",
    "libdevice": "functions of a GPU's library are not interpreted; use those of tl.math",
    "float8e4b15": "the format has no definition; use tl.float8e4nv or tl.float8e5",
}
"""Names in a kernel that have no definition, and why."""


def check_grid(grid: Any) -> None:
    """Raise a ValueError for a grid that the interpreter does not run."""
    sizes = tuple(grid) if isinstance(grid, tuple | list) else (grid,)
    if not 1 <= len(sizes) <= len(_LIMITS):
        raise ValueError(f"the grid {sizes} has {len(sizes)} dimensions; a grid has 1 to 3")
    for axis, (size, most) in enumerate(zip(sizes, _LIMITS, strict=False)):
        if isinstance(size, bool) or not hasattr(size, "__index__") or not 0 <= int(size.__index__()) <= most:
            raise ValueError(f"the grid {sizes} has {size!r} programs along axis {axis}; it takes 0 to {most}")


def _functions(fn: Any, seen: set[Any]) -> Iterator[Any]:
    """Yield a kernel and the functions of the same program that its code names."""
    if fn in seen:
        return
    seen.add(fn)
    yield fn
    for name in fn.__code__.co_names:
        called = fn.__globals__.get(name)
        if isinstance(called, InterpretedFunction) and not called.fn.__module__.startswith("triton."):
            yield from _functions(called.fn, seen)


def check_operations(fn: Any) -> None:
    """Raise an UndefinedOperationError for a kernel whose code names an operation without a definition."""
    for each in _functions(fn, set()):
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(each)))
        except (OSError, TypeError, SyntaxError):
            continue  # the operation itself raises an error
        for node in ast.walk(tree):
            if not isinstance(node, ast.Attribute | ast.Name):
                continue
            name = node.attr if isinstance(node, ast.Attribute) else node.id
            if name in _UNDEFINED:
                line = f"{each.__name__}, line {node.lineno}"
                raise UndefinedOperationError(f"{name} ({line}) has no definition: {_UNDEFINED[name]}")
