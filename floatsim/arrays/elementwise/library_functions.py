"""Functions as a library computes them, by `functions="cuda"` and by `fs.library_function`.

`floatsim.tensorcore.cuda_functions` has the functions, and `floatsim.emulator.elementwise.cuda_functions` computes
them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, ParamSpec, SupportsFloat, TypeAlias, TypeVar

from floatsim.accumulation.evidence import Compared, check_compared, known_version
from floatsim.arrays.array.conversion import read_floats
from floatsim.arrays.array.interop import stays_on_device
from floatsim.arrays.array.operands import deliver
from floatsim.arrays.array.types import Floats, Out
from floatsim.arrays.call import backends
from floatsim.arrays.call.options import RoundingKeywords, RoundingOptions, spell_out
from floatsim.formats import FormatLike
from floatsim.formats._validation import as_flag
from floatsim.tensorcore.cuda_functions import as_cuda_function

__all__ = [
    "DEVICES", "FunctionKeywords", "FunctionLibrary", "FunctionOptions", "function", "library_call", "library_function",
    "taken",
]  # fmt: skip

P = ParamSpec("P")
R = TypeVar("R")

FunctionLibrary: TypeAlias = Literal["exact", "cuda"]
"""Who defines a function: the exact value, rounded once, or CUDA's library."""
_LIBRARIES: tuple[FunctionLibrary, ...] = ("exact", "cuda")
DEVICES = {"h200": "NVIDIA H200 (sm_90), CUDA 13.0, torch 2.11.0"}
"""The devices whose functions are known, and the versions that were recorded."""
_COMPARED = (
    Compared({"format": ("FP32",), "coefficients": ("none",)}), Compared({"format": ("FP16", "BF16")}),
)  # fmt: skip
"""What strict calls compute: all codes of 16 bits, and in FP32 functions without fitted coefficients."""


class FunctionKeywords(RoundingKeywords, total=False):
    """The rounding options of a mathematical function, and its library. `FunctionOptions` documents them."""

    functions: FunctionLibrary


class FunctionOptions(FunctionKeywords, total=False):
    return_flags: bool


FunctionOptions.__doc__ = (RoundingOptions.__doc__ or "").replace(
    "return_flags : bool, optional\n",
    'functions : {"exact", "cuda"}\n'
    '        "exact", the default: the exact value, rounded once. "cuda": what PyTorch computes on an NVIDIA H200\n'
    "        with CUDA 13.0, from FP32, FP16 and BF16, without other keywords: see `fs.library_function`.\n"
    "    return_flags : bool, optional\n",
)


def function(decorated: Callable[P, R]) -> Callable[P, R]:
    """Decorate a public mathematical function as `operands.operation` does, with the keyword `functions`."""
    return stays_on_device(spell_out(FunctionOptions)(decorated))


def taken(options: FunctionOptions) -> tuple[str, RoundingOptions]:
    """Return the library that a call names, and its other keywords."""
    rounding: Any = dict(options)
    library = rounding.pop("functions")
    if library not in _LIBRARIES:
        known = " or ".join(map(repr, _LIBRARIES))
        raise ValueError(f"functions must be {known}, not {library!r}")
    return library, rounding


def library_call(
    name: str, arguments: dict[str, Any], format: FormatLike | None, out: Any, options: RoundingOptions
) -> Any:
    """Carry out a call with `functions="cuda"`. A second operand must be a Python number."""
    if options or format is not None:
        given = "format" if format is not None else next(iter(options))
        raise TypeError(f"{name}: functions='cuda' has one rounding, and takes no {given}=")
    (first, x), *others = arguments.items()
    number = None
    for other, value in others:
        if type(value) not in (int, float):
            raise TypeError(f"{name}: functions='cuda' takes a Python number for {other}, not {type(value).__name__}")
        number = _as_number(value)
    return _applied(name, first, x, number, out)


def _as_number(value: Any) -> float:
    """Return a Python float, which may be infinite or NaN, or raise an error that names the argument."""
    if isinstance(value, bool | str) or not isinstance(value, SupportsFloat) or getattr(value, "ndim", 0) > 0:
        raise TypeError(f"number must be a Python number, not {value!r}")
    try:
        return float(value)
    except OverflowError:
        raise ValueError("number must be in the range of FP64; Python has no float for larger integers") from None


def _applied(name: str, argument: str, x: Any, number: float | None = None, out: Any = None) -> Any:
    codes, fmt, float_array = read_floats(x, argument)
    return deliver(backends.emulator().cuda_function(name, codes, fmt, number), fmt, float_array, out)


@stays_on_device
def library_function(
    name: str, x: Floats, number: float | None = None, *, device: str = "h200", version: str | None = None,
    strict: bool = False, out: Out = None,
) -> Any:  # fmt: skip
    """Return a function of x as PyTorch computes it on a GPU, to the bit.

    Parameters
    ----------
    name : str
        "exp", "exp2", "expm1", "sinh", "cosh", "tanh", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin",
        "atan", "erf", "sqrt", "rsqrt", "reciprocal", "square", "sigmoid", "silu", "softplus", "logsigmoid", "mish",
        "elu", "hardswish", "gelu", "gelu_tanh", "add", "divide", "multiply" or "power".
    x : array_like of floats
        A FloatArray, or an array whose dtype is FP32, FP16 or BF16.
    number : float, optional
        The second operand of add, divide, multiply and power: a Python number, which becomes FP32.
    device : str
        "h200": an NVIDIA H200 (sm_90) with CUDA 13.0 and torch 2.11.0.
    version : str, optional
        The version of torch on the device: "2.11.0".
    strict : bool
        Whether functions in FP32 are refused whose coefficients were fitted to recorded outputs: other arguments than
        the recorded ones can differ in the last bit. In 16 bits all codes were compared.
    out : FloatArray or ndarray, optional
        Where to write the result.

    Returns
    -------
    FloatArray or ndarray
        Of the kind, the format and the shape of x. Every NaN is the device's: 0x7FFFFFFF, 0x7FFF in 16 bits.

    Raises
    ------
    TypeError
        For other formats, for a missing number, for one that the function does not take, and for what is no number.
    ValueError
        For unknown names, and for integers beyond the range of FP64.
    NotDescribedError
        For unknown devices and versions, for a function in FP32 whose sequence of operations is not known, for an
        exponent that was not recorded, and with `strict`.

    Notes
    -----
    In 16 bits the result is that of FP32, rounded once. In FP32 it is a sequence of FP32 operations, fused
    multiply-adds and approximations of the GPU's special-function unit (`floatsim.reference.cuda_functions`). The
    options of `fs.context` do not apply, and `fs.record` counts no events. "Functions on GPUs" in the documentation has
    the evidence for each function.

    Examples
    --------
    >>> import floatsim as fs
    >>> x = fs.array([float("-inf"), -3.0, 1.0], "fp16")
    >>> fs.library_function("silu", x), fs.silu(x)
    (FloatArray([nan, -0.14233, 0.73096], FP16), FloatArray([-0.0, -0.14233, 0.73096], FP16))
    >>> five = fs.array([5.0], "fp32")
    >>> fs.library_function("divide", five, 3).codes - fs.divide(five, 3.0).codes
    array([1], dtype=uint32)
    """
    known_version(device, version)
    if as_flag(strict, "strict"):
        row, fmt = as_cuda_function(name), read_floats(x, "x")[1]
        fitted = "fitted" if row.fitted else "none"
        check_compared(f"{name} in {fmt.name}", {"format": fmt.name, "coefficients": fitted}, _COMPARED)
    return _applied(name, "x", x, None if number is None else _as_number(number), out)
