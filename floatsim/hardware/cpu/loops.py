"""Compiled loops around CPU instructions, and their calls with arrays of codes."""

from __future__ import annotations

import functools
import sys
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
from floatsim_kernels.cpu import assembly, x86

from floatsim._types import Codes
from floatsim.hardware.cpu.instructions import (
    CONVERSIONS,
    DOTS,
    INTEGERS,
    AnyInstruction,
    CpuConversion,
    CpuDot,
    CpuInteger,
)
from floatsim.hardware.cpu.support import request_tiles

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["check", "run_child", "run_conversion", "run_dot", "run_integers", "text_of"]


_COMPILING = threading.Lock()
_TILE_ROWS, _TILE_COLUMNS = 16, 16


def text_of(instruction: AnyInstruction) -> str:
    """Return the LLVM IR of the loop around an instruction."""
    text: str
    if isinstance(instruction, CpuConversion):
        sizes = (instruction.lanes * fmt.bits // 8 for fmt in (instruction.source, instruction.result))
        text = x86.converting(instruction.assembly, *sizes)
    elif instruction.tiles:
        text = x86.tiles(instruction.assembly)
    else:
        text = x86.accumulating(instruction.assembly)
    return text


@functools.cache
def _compiled(instruction: AnyInstruction) -> assembly.Loop:
    with _COMPILING:
        return assembly.Loop(text_of(instruction), instruction.features)


def _state(mxcsr: int) -> NDArray[np.uint32]:
    """Return the memory of a loop's MXCSR: the value to set, and a place for the caller's own value."""
    return np.array([mxcsr, 0], np.uint32)


def run_dot(dot: CpuDot, a: Codes, b: Codes, c: Codes, mxcsr: int = x86.DEFAULT_MXCSR) -> Codes:
    """Run an instruction on independent dot products.

    Parameters
    ----------
    dot : CpuDot
        An instruction that this CPU has: else the process ends.
    a, b : (n, k)
        Codes of the operands.
    c : (n,)
        Codes of the output's format.
    mxcsr : int
        The control and status register under which the instruction runs.

    Returns
    -------
    (n,) codes of the output's format
    """
    return _run(dot, a.astype(dot.a.code_dtype), b.astype(dot.b.code_dtype), c.astype(dot.output.code_dtype), mxcsr)


def run_integers(dot: CpuInteger, a: NDArray[Any], b: NDArray[Any], c: NDArray[Any]) -> NDArray[np.int32]:
    """Run an integer instruction on independent dot products: a and b (n, k), c (n,). Return (n,) int32."""
    return _run(dot, a.astype(dot.row.a), b.astype(dot.row.b), c.astype(np.int32), x86.DEFAULT_MXCSR)


def _run(dot: CpuDot | CpuInteger, a: NDArray[Any], b: NDArray[Any], c: NDArray[Any], mxcsr: int) -> NDArray[Any]:
    rows = len(c)
    left, right, start = (_padded(x, -rows % dot.lanes) for x in (a, b, c))
    registers = len(start) // dot.lanes
    if not dot.tiles:
        out: NDArray[Any] = np.zeros_like(start)
        _compiled(dot)(left, right, start, out, registers, _state(mxcsr))
        return out[:rows]
    if reason := request_tiles():
        raise RuntimeError(reason)
    # row i of a tile of A meets column i of a tile of B, whose rows hold pairs of products
    columns = np.ascontiguousarray(right.view(np.uint32).reshape(registers, _TILE_COLUMNS, -1).transpose(0, 2, 1))
    whole = (registers, _TILE_ROWS, _TILE_COLUMNS)
    tiles = np.ascontiguousarray(np.broadcast_to(start.reshape(registers, _TILE_ROWS, 1), whole))
    results = np.zeros_like(tiles)
    config = np.frombuffer(x86.TILE_CONFIG, np.uint8).copy()
    _compiled(dot)(left, columns, tiles, results, config, registers, _state(mxcsr))
    diagonal: NDArray[Any] = np.diagonal(results, axis1=1, axis2=2).reshape(-1)[:rows]
    return diagonal


def run_conversion(conversion: CpuConversion, codes: Codes, mxcsr: int = x86.DEFAULT_MXCSR) -> Codes:
    """Run a conversion that this CPU has on codes of any shape. Return codes of the result's format."""
    flat = _padded(codes.reshape(-1).astype(conversion.source.code_dtype), -codes.size % conversion.lanes)
    out = np.zeros(len(flat), conversion.result.code_dtype)
    _compiled(conversion)(flat, out, len(flat) // conversion.lanes, _state(mxcsr))
    return out[: codes.size].reshape(codes.shape)


def _padded(x: NDArray[Any], rows: int) -> NDArray[Any]:
    """Return an array with rows of zeros appended, contiguous."""
    own: NDArray[Any] = np.ascontiguousarray(x)
    return np.concatenate([own, np.zeros((rows, *own.shape[1:]), own.dtype)]) if rows else own


def check(instruction: AnyInstruction) -> str:
    """Run an instruction on ones. Return an error as text, "" if the result is correct."""
    if isinstance(instruction, CpuConversion):
        ones = np.full(instruction.lanes, _one(instruction.source), instruction.source.code_dtype)
        right = run_conversion(instruction, ones) == _one(instruction.result)
        return "" if right.all() else "it does not convert 1 to 1"
    if instruction.tiles and (reason := request_tiles()):
        return reason
    shape = (instruction.lanes, instruction.k)
    if isinstance(instruction, CpuInteger):
        sums = run_integers(instruction, np.ones(shape), np.ones(shape), np.zeros(instruction.lanes, np.int32))
        return "" if (sums == instruction.k).all() else f"{instruction.k} products of ones are not {instruction.k}"
    a, b = (np.full(shape, _one(fmt), fmt.code_dtype) for fmt in (instruction.a, instruction.b))
    d = run_dot(instruction, a, b, np.zeros(instruction.lanes, instruction.output.code_dtype))
    exponent = instruction.k.bit_length() - 1  # k is a power of two
    wanted = _one(instruction.output) + (exponent << instruction.output.trailing_bits)
    return "" if (d == wanted).all() else f"{instruction.k} products of ones do not add up to {instruction.k}"


def _one(fmt: Any) -> int:
    code: int = fmt.bias << fmt.trailing_bits
    return code


def run_child() -> None:
    """Run the instructions that the command line names. Print the name of each, a tab, and the error if there is one.

    The parent, `support.supported`, reads the output up to the point at which the process ended.
    """
    instructions: tuple[AnyInstruction, ...] = (*DOTS, *CONVERSIONS, *INTEGERS)
    known = {str(each): each for each in instructions}
    for name in sys.argv[1:]:
        print(f"{name}\t{check(known[name])}", flush=True)
