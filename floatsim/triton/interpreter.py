"""The block in which Triton's interpreter computes with floatsim's definitions."""

from __future__ import annotations

import contextvars
import functools
import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import triton.language as tl
from triton._C.libtriton import ir
from triton.runtime import interpreter
from triton.runtime.errors import InterpreterError

from floatsim.accumulation import AccumulationLike
from floatsim.accumulation.library_rules import NotDescribedError
from floatsim.formats._validation import as_index, name_hint
from floatsim.triton.arithmetic import FUNCTIONS, fused, high_product, in_numbers, of_function
from floatsim.triton.casts import CASTS, cast
from floatsim.triton.dots import PRECISIONS, DotCall, Dots
from floatsim.triton.errors import UndefinedOperationError
from floatsim.triton.handles import STORED_AS_INTEGERS, format_of, is_float
from floatsim.triton.launches import check_grid, check_operations
from floatsim.triton.reductions import Sums, extremes, scanned
from floatsim.triton.versions import check_triton

__all__ = ["interpret"]

_Method = Callable[..., Any]


@dataclass(frozen=True)
class _Definitions:
    """What a block computes with."""

    dots: Dots
    casts: str
    sums: Sums
    warps: int
    call: DotCall | None = None


_current: contextvars.ContextVar[_Definitions | None] = contextvars.ContextVar("floatsim.triton", default=None)


@contextmanager
def _set(found: _Definitions | None) -> Iterator[None]:
    token = _current.set(found)
    try:
        yield
    finally:
        _current.reset(token)


# -- the methods of the interpreter, with their definitions ------------------------------------------------------------
# Each takes the definitions of the block, the interpreter's own method, and the arguments.


def _launch(own: _Definitions, original: _Method, self: Any, *args: Any, **kwargs: Any) -> Any:
    """Check a launch, and run it with the number of warps that it names."""
    if callable(self.grid):
        signature = inspect.signature(self.fn)
        bound = signature.bind(*args, **{key: x for key, x in kwargs.items() if key in signature.parameters})
        bound.apply_defaults()
        check_grid(self.grid(bound.arguments))
    else:
        check_grid(self.grid)
    check_operations(self.fn)
    warps = kwargs.get("num_warps", own.warps)
    with _set(replace(own, warps=as_index(warps, "num_warps", 1, 64))):
        try:
            return original(self, *args, **kwargs)
        except InterpreterError as error:
            cause: BaseException | None = error
            while isinstance(cause, InterpreterError):
                cause = cause.__cause__
            if isinstance(cause, UndefinedOperationError | NotDescribedError):
                raise cause from None
            raise


def _semantic_dot(own: _Definitions, original: _Method, self: Any, a: Any, b: Any, acc: Any, *rest: Any) -> Any:
    precision, imprecise, *_ = rest
    if isinstance(precision, str) and precision.lower() not in PRECISIONS:
        raise UndefinedOperationError(f"input_precision={precision!r} has no definition; use {', '.join(PRECISIONS)}")
    with _set(replace(own, call=DotCall(acc is not None, imprecise, own.warps))):
        return original(self, a, b, acc, *rest)


def _semantic_dot_scaled(own: _Definitions, original: _Method, self: Any, *args: Any, **kwargs: Any) -> Any:
    with _set(replace(own, call=DotCall(True, None, own.warps))):
        return original(self, *args, **kwargs)


def _dot(own: _Definitions, original: _Method, self: Any, a: Any, b: Any, c: Any, precision: Any, most: Any) -> Any:
    if not is_float(a.dtype):
        return original(self, a, b, c, precision, most)
    assert own.call is not None
    return own.dots.dot(a, b, c, precision, own.call)


def _dot_scaled(
    own: _Definitions, original: _Method, self: Any, a: Any, scale_a: Any, kind_a: Any, b: Any, scale_b: Any,
    kind_b: Any, fast_math: bool, pack_a: bool, pack_b: bool, c: Any,
) -> Any:  # fmt: skip
    assert own.call is not None
    return own.dots.dot_scaled((a, scale_a, kind_a), (b, scale_b, kind_b), c, (pack_a, pack_b), own.call)


def _fadd(own: _Definitions, original: _Method, self: Any, a: Any, b: Any) -> Any:
    joined = own.dots.added(a, b)
    return original(self, a, b) if joined is None else joined


def _cast(own: _Definitions, original: _Method, self: Any, x: Any, dtype: Any, mode: Any = None) -> Any:
    found = cast(x, dtype, mode, own.casts)
    return original(self, x, dtype) if found is None else found


def _fp_to_fp(own: _Definitions, original: _Method, self: Any, x: Any, dtype: Any, mode: Any) -> Any:
    return cast(x, dtype, mode, own.casts)


def _binary(own: _Definitions, original: _Method, self: Any, a: Any, b: Any, op: Any) -> Any:
    return in_numbers(original, self, (a, b), (op,))


def _unary(own: _Definitions, original: _Method, self: Any, x: Any, op: Any) -> Any:
    return in_numbers(original, self, (x,), (op,))


def _ternary(own: _Definitions, original: _Method, self: Any, a: Any, b: Any, c: Any, op: Any) -> Any:
    if op is np.where:
        return original(self, a, b, c, op)
    return in_numbers(original, self, (a, b, c), (op,))


def _fma(own: _Definitions, original: _Method, self: Any, a: Any, b: Any, c: Any) -> Any:
    return fused(a, b, c)


def _umulhi(own: _Definitions, original: _Method, self: Any, a: Any, b: Any) -> Any:
    return high_product(a, b)


def _function(name: str) -> _Method:
    def method(own: _Definitions, original: _Method, self: Any, x: Any) -> Any:
        return of_function(FUNCTIONS[name], x)

    return method


def _atomic(own: _Definitions, original: _Method, self: Any, op: Any, ptr: Any, x: Any, *rest: Any) -> Any:
    if op not in (ir.ATOMIC_OP.XCHG,) and is_float(x.dtype) and format_of(x.dtype) in STORED_AS_INTEGERS:
        raise UndefinedOperationError(f"atomic operations on {x.dtype.scalar} have no definition; use tl.float32")
    return original(self, op, ptr, x, *rest)


def _descriptor_load(own: _Definitions, original: _Method, self: Any, desc: Any, *rest: Any) -> Any:
    dtype = desc.base.dtype.element_ty
    stored = is_float(dtype) and format_of(dtype) in STORED_AS_INTEGERS
    if stored and desc.padding == ir.PADDING_OPTION.PAD_NAN:
        raise UndefinedOperationError(
            f"a descriptor of {dtype} with padding='nan' has no definition; use padding='zero'"
        )
    return original(self, desc, *rest)


def _sum(own: _Definitions, original: _Method, self: Any, x: Any) -> Any:
    found = own.sums.sum(x, self.axis, self.keep_dims)
    return original(self, x) if found is None else found


def _min_max(
    own: _Definitions, original: _Method, self: Any, x: Any, val_reduce_op: Any, idx_reduce_op: Any = None
) -> Any:
    each = x[0] if isinstance(x, tuple) else x
    smallest = val_reduce_op in (np.nanmin, np.min)
    found = extremes(each, self.axis, self.keep_dims, smallest, idx_reduce_op is not None)
    return original(self, x, val_reduce_op, idx_reduce_op) if found is None else found


def _get_bf16(own: _Definitions, original: _Method, self: Any, value: float) -> Any:
    return cast(self.get_fp64(value), tl.bfloat16, None, own.casts)


class _Checked:
    """A function that combines two values of a reduction, with a check of the dtypes that it returns."""

    def __init__(self, combine: Any) -> None:
        self._combine = combine

    def fn(self, *values: Any) -> Any:
        found = self._combine.fn(*values)
        for x, given in zip(found if isinstance(found, tuple) else (found,), values, strict=False):
            if isinstance(x, tl.tensor) and x.dtype != given.dtype:
                raise UndefinedOperationError(
                    f"the function of a reduction or scan returns {x.dtype} for {given.dtype}; cast its result, or the "
                    f"operand before it: x.to(tl.float32)"
                )
        return found


def _generic(own: _Definitions, original: _Method, self: Any, x: Any) -> Any:
    combine = self.combine_fn
    self.combine_fn = _Checked(combine)
    try:
        return original(self, x)
    finally:
        self.combine_fn = combine


def _scan(kind: str) -> _Method:
    def method(own: _Definitions, original: _Method, self: Any, x: Any) -> Any:
        found = scanned(x, self.axis, kind)
        if found is not None:
            return [found]
        with np.errstate(all="ignore"):
            return original(self, x)

    return method


_METHODS: tuple[tuple[Any, str, _Method], ...] = (
    (interpreter.GridExecutor, "__call__", _launch),
    (interpreter.TritonSemantic, "dot", _semantic_dot),
    (interpreter.TritonSemantic, "dot_scaled", _semantic_dot_scaled),
    (interpreter.InterpreterBuilder, "create_dot", _dot),
    (interpreter.InterpreterBuilder, "create_dot_scaled", _dot_scaled),
    (interpreter.InterpreterBuilder, "create_fadd", _fadd),
    (interpreter.InterpreterBuilder, "cast_impl", _cast),
    (interpreter.InterpreterBuilder, "create_fp_to_fp", _fp_to_fp),
    (interpreter.InterpreterBuilder, "binary_op", _binary),
    (interpreter.InterpreterBuilder, "unary_op", _unary),
    (interpreter.InterpreterBuilder, "ternary_op", _ternary),
    (interpreter.InterpreterBuilder, "create_fma", _fma),
    (interpreter.InterpreterBuilder, "create_umulhi", _umulhi),
    *((interpreter.InterpreterBuilder, name, _function(name)) for name in FUNCTIONS),
    (interpreter.InterpreterBuilder, "create_atomic_rmw", _atomic),
    (interpreter.InterpreterBuilder, "create_descriptor_load", _descriptor_load),
    (interpreter.InterpreterBuilder, "get_bf16", _get_bf16),
    (interpreter.ReduceOps, "generic_reduce", _generic),
    (interpreter.ScanOps, "generic_scan", _generic),
    (interpreter.ReduceOps, "sum", _sum),
    (interpreter.ReduceOps, "min_max", _min_max),
    (interpreter.ScanOps, "cumsum", _scan("cumsum")),
    (interpreter.ScanOps, "cumprod", _scan("cumprod")),
)
"""The methods of the interpreter that a block replaces: the class, the name, the definition."""


def _absent(name: str) -> _Method:
    """Return a method for one that this version of Triton lacks: `get_bf16` in 3.8.0."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    return method


def _dispatching(original: _Method, definition: _Method) -> _Method:
    """Return a method that uses a definition in the threads of a block, and the interpreter's own method elsewhere."""

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        own = _current.get()
        return original(self, *args, **kwargs) if own is None else definition(own, original, self, *args, **kwargs)

    return method


def _one_launch(original: _Method) -> _Method:
    """Return the method that launches, for one thread at a time: Triton patches its language for each launch."""

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        with _launching:
            return original(self, *args, **kwargs)

    return method


_launching = threading.RLock()
_patching = threading.Lock()
_blocks = 0
_originals: list[tuple[Any, str, _Method | None]] = []


def _enter() -> None:
    """Replace the methods for the first block of all threads."""
    global _blocks  # noqa: PLW0603
    with _patching:
        if _blocks == 0:
            _originals.extend((owner, name, vars(owner).get(name)) for owner, name, _ in _METHODS)
            for (owner, name, original), (_, _, definition) in zip(_originals, _METHODS, strict=True):
                method = _dispatching(original or _absent(name), definition)
                setattr(owner, name, _one_launch(method) if definition is _launch else method)
        _blocks += 1


def _leave() -> None:
    """Restore the methods after the last block of all threads."""
    global _blocks  # noqa: PLW0603
    with _patching:
        _blocks -= 1
        while _blocks == 0 and _originals:
            owner, name, original = _originals.pop()
            if original is None:
                delattr(owner, name)
            else:
                setattr(owner, name, original)


@contextmanager
def interpret(
    dot: AccumulationLike = "hopper", casts: str = "ieee", *, sums: AccumulationLike = "halving", num_warps: int = 4
) -> Iterator[None]:
    """Run kernels in Triton's interpreter with floatsim's definitions, in the block of a `with` statement.

    The block replaces casts, `tl.dot`, `tl.dot_scaled`, arithmetic on BF16, fused multiply-add, mathematical functions,
    reductions and scans. Random numbers of `tl.rand` and `tl.randn` follow from them. Set TRITON_INTERPRET=1 in the
    environment before the first import of triton.

    Parameters
    ----------
    dot : accumulation or text
        "hopper" or "h200": the sums of `fs.hardware.triton_dot`, by dtype, rows, `input_precision`, `num_warps` and
        `max_num_imprecise_acc`. Otherwise a description for every `tl.dot`, such as "fp32", "exact(fp32)" or
        "blocked(ampere, 32, fp32)". The accumulator of the kernel is its start value.
    casts : str
        "ieee": overflow becomes infinity, or NaN where the format has none, as in torch and ml_dtypes. "hopper": casts
        to FP8 saturate, as Triton compiles them for an NVIDIA GPU.
    sums : accumulation or text
        The order of `tl.sum`, in the format of the operand: "halving", "adjacent" or "sequential"; or a description. On
        a GPU the order depends on the layout that the compiler chooses.
    num_warps : int
        The warps of a launch that names none. With "hopper", dots of at least 64 rows and 4 warps use wgmma.

    Yields
    ------
    None
        The block holds for the thread that enters it. Other threads keep Triton's own results; while a block is open,
        their launches wait for each other. The methods are restored after the last block, also after an exception.

    Raises
    ------
    RuntimeError
        For a version of Triton that is not in TESTED_VERSIONS, and if Triton was imported to compile kernels.
    ValueError
        For unknown names. In the block: for a grid beyond the limits.
    UndefinedOperationError
        In the block, for a kernel with an operation that has no definition, before the kernel runs where the code names
        the operation.
    NotDescribedError
        A ValueError: in the block, for arguments of `tl.dot` that were not recorded.

    Examples
    --------
    >>> import torch, triton, triton.language as tl
    >>> import floatsim.triton as ftl
    >>> @triton.jit
    ... def dot(a, b, c, n: tl.constexpr):
    ...     i = tl.arange(0, n)[:, None] * n + tl.arange(0, n)[None, :]
    ...     tl.store(c + i, tl.dot(tl.load(a + i), tl.load(b + i)))
    >>> a, c = torch.eye(16, dtype=torch.bfloat16), torch.empty(16, 16)
    >>> with ftl.interpret(dot="hopper"):
    ...     dot[(1,)](a, a, c, 16)
    >>> torch.equal(c, torch.eye(16))
    True
    """
    check_triton()
    if casts not in CASTS:
        raise ValueError(f"casts={casts!r} is not known; {name_hint(casts, tuple(CASTS))}")
    found = _Definitions(Dots(dot), casts, Sums(sums), as_index(num_warps, "num_warps", 1, 64))
    _enter()
    try:
        with _set(found):
            yield
    finally:
        _leave()
