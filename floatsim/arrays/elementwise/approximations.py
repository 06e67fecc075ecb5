"""`fs.approx`: the approximations of functions that a GPU's special-function unit computes, to the bit.

They are the instructions `ex2.approx`, `rcp.approx` and so on of NVIDIA's PTX.
`floatsim.reference.special_functions` is the specification, and `floatsim.tensorcore.special_functions` has the tables.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from floatsim.arrays.array.conversion import out_codes
from floatsim.arrays.array.float_array import wrap
from floatsim.arrays.array.interop import stays_on_device
from floatsim.arrays.array.operands import check_shapes, read_operands
from floatsim.arrays.array.types import FloatResult, Floats, Out
from floatsim.emulator.elementwise import approximations
from floatsim.tensorcore.special_functions import as_form, as_unit

__all__ = ["cos", "div", "ex2", "lg2", "rcp", "rsqrt", "sin", "sqrt", "tanh"]

F = TypeVar("F", bound=Callable[..., Any])

_OPERAND = """Parameters
----------
{operands} : array_like of floats
    {formats}
"""
_OPTIONS = """device : str
    The GPU, its architecture or its compilation target. The unit of sm_90 (H200, H100) is known, and no other.
ftz : bool, optional
    The form with `.ftz`, which reads subnormal numbers as zeros of their sign, and returns such zeros. {ftz}
out : FloatArray or ndarray, optional
    Where to write the result.

Returns
-------
FloatArray or ndarray
    Results in the format of the operands. A NaN has the code whose bits below the sign are all ones.

Raises
------
TypeError
    For formats that the instruction does not have.
ValueError
    For unknown devices, and for a form that the instruction does not have."""
_FP32_ONLY = "FP32: FloatArrays, or arrays of float32."
_THREE = "FP32, FP16 or BF16: FloatArrays, or arrays with such a dtype. 16-bit results are FP32 results, truncated."
_DEFAULT = "Default: False."


def _documented(formats: str = _FP32_ONLY, ftz: str = _DEFAULT) -> Callable[[F], F]:
    """Return a decorator that fills in the parameters of a docstring, and returns tensors for tensors."""

    def decorate(function: F) -> F:
        operands = [name for name in inspect.signature(function).parameters if name in ("a", "b")]
        if function.__doc__:  # python -OO removes it
            text = (_OPERAND + _OPTIONS).format(operands=", ".join(operands), formats=formats, ftz=ftz)
            function.__doc__ = inspect.cleandoc(function.__doc__).replace("{parameters}", text)
        return stays_on_device(function)  # type: ignore[return-value]

    return decorate


def _call(function: str, arguments: dict[str, Any], device: str, ftz: bool | None, out: Any) -> Any:
    unit = as_unit(device)
    operands, float_array = read_operands(arguments, None)
    fmt = operands[0][1]
    flush = as_form(function, next(iter(arguments)), fmt, ftz, unit)
    shape = check_shapes(arguments, operands)
    target = None if out is None else out_codes(out, fmt, shape)
    codes = [codes for codes, _ in operands]
    if function == "div":
        results = approximations.divide(codes[0], codes[1], flush, unit.name, target)
    else:
        results = approximations.approximate(function, codes[0], fmt, flush, unit.name, target)
    if target is None:
        return wrap(results, fmt, float_array)
    if results is not target:
        target[...] = results
    return out


@_documented(_THREE, "FP16 has the form without `.ftz`, BF16 the one with it. FP32 has both; the default is False.")
def ex2(a: Floats, *, device: str = "sm_90", ftz: bool | None = None, out: Out = None) -> FloatResult:
    """Return 2**a as `ex2.approx` computes it.

    The argument has 23 bits after the point; more are truncated. Whole numbers give exact powers of two. The error is
    below 1.4 ulp for positive a, and below 2.1 ulp for negative a, whose fraction is read 2**-23 too low.

    {parameters}

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> x = np.float32([0.5, -0.5])
    >>> fs.approx.ex2(x, device="sm_90") - fs.exp2(x)
    array([ 0.0000000e+00, -5.9604645e-08], dtype=float32)
    """
    return _call("ex2", {"a": a}, device, ftz, out)


@_documented()
def rcp(a: Floats, *, device: str = "sm_90", ftz: bool | None = None, out: Out = None) -> FloatResult:
    """Return 1 / a as `rcp.approx` computes it.

    The error is below 1 ulp, and 87 % of the results are correctly rounded. Powers of two give exact results.

    {parameters}

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> fs.approx.rcp(np.float32([4.0, 0.0, -0.0]))
    array([0.25,  inf, -inf], dtype=float32)
    """
    return _call("rcp", {"a": a}, device, ftz, out)


@_documented()
def rsqrt(a: Floats, *, device: str = "sm_90", ftz: bool | None = None, out: Out = None) -> FloatResult:
    """Return 1 / sqrt(a) as `rsqrt.approx` computes it.

    The error is below 1.6 ulp. Powers of 4 give exact results. Zeros give infinities of their sign, and numbers below
    zero NaN.

    {parameters}

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> fs.approx.rsqrt(np.float32([4.0, 0.0, -1.0]))
    array([0.5, inf, nan], dtype=float32)
    """
    return _call("rsqrt", {"a": a}, device, ftz, out)


@_documented()
def sqrt(a: Floats, *, device: str = "sm_90", ftz: bool | None = None, out: Out = None) -> FloatResult:
    """Return sqrt(a) as `sqrt.approx` computes it.

    The error is below 1 ulp. Powers of 4 give exact results.

    {parameters}

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> fs.approx.sqrt(np.float32([4.0, -0.0, -1.0]))
    array([ 2., -0., nan], dtype=float32)
    """
    return _call("sqrt", {"a": a}, device, ftz, out)


@_documented()
def lg2(a: Floats, *, device: str = "sm_90", ftz: bool | None = None, out: Out = None) -> FloatResult:
    """Return log2(a) as `lg2.approx` computes it.

    The absolute error is below 2**-22 for a from 1/2 to 2. lg2(1) is 0; lg2(1/2) is -1 + 2**-23.

    {parameters}

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> fs.approx.lg2(np.float32([1.0, 0.5, 0.0])).tolist()
    [0.0, -0.9999998807907104, -inf]
    """
    return _call("lg2", {"a": a}, device, ftz, out)


@_documented()
def sin(a: Floats, *, device: str = "sm_90", ftz: bool | None = None, out: Out = None) -> FloatResult:
    """Return sin(a) as `sin.approx` computes it.

    a is multiplied by 1 / (2 pi) in FP32, truncated, and then truncated to 2**-25 turns. So results near zero have a
    large relative error, and small arguments give 0. The absolute error is below 2**-21 for a from -1 to 1, and grows
    with a.

    {parameters}

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> fs.approx.sin(np.float32([1.0, 1e-8, np.inf]))
    array([0.8414709, 0.       ,       nan], dtype=float32)
    """
    return _call("sin", {"a": a}, device, ftz, out)


@_documented()
def cos(a: Floats, *, device: str = "sm_90", ftz: bool | None = None, out: Out = None) -> FloatResult:
    """Return cos(a) as `cos.approx` computes it: the argument is reduced as that of `fs.approx.sin`.

    The absolute error is below 2**-21 for a from -1 to 1.

    {parameters}

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> fs.approx.cos(np.float32([1.0, 0.0, np.inf]))
    array([0.54030234, 1.        ,        nan], dtype=float32)
    """
    return _call("cos", {"a": a}, device, ftz, out)


@_documented(_THREE, "No form of tanh.approx has it.")
def tanh(a: Floats, *, device: str = "sm_90", ftz: bool | None = None, out: Out = None) -> FloatResult:
    """Return tanh(a) as `tanh.approx` computes it.

    Numbers below 2**-8 are their own results, and from 8 on the result is 1. The relative error is below 2**-16.

    {parameters}

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> fs.approx.tanh(np.float32([0.001, 0.5, 8.0]))
    array([0.001    , 0.4621148, 1.       ], dtype=float32)
    """
    return _call("tanh", {"a": a}, device, ftz, out)


@_documented()
def div(a: Floats, b: Floats, *, device: str = "sm_90", ftz: bool | None = None, out: Out = None) -> FloatResult:
    """Return a / b as `div.approx` computes it: a times `fs.approx.rcp(b)`, rounded to nearest.

    The error is below 2 ulp. For b above 2**126 the result is 0, or NaN if a is infinite.

    {parameters}

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> fs.approx.div(np.float32([1.0, 3.0]), np.float32([3.0, 2.0]))
    array([0.33333334, 1.5       ], dtype=float32)
    """
    return _call("div", {"a": a, "b": b}, device, ftz, out)
