"""How other libraries do the same jobs. `job(...)` gives a `Job`, or says in words why there is none.

A job is what a user of that library would write, on its own array types; what only feeds or reads those arrays
(wrapping a tensor, taking a view) is outside the timed call.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import floatsim as fs

Call = Callable[[], Any]
ALL = 1 << 62


@dataclass(frozen=True)
class Job:
    """A call, how its result is read as an array of values, and whether it draws at random."""

    call: Call
    read: Callable[[Any], np.ndarray]
    random: bool = False


@dataclass(frozen=True)
class Peer:
    """A library: its distribution's name, the module, the largest array it is given, and what it can do."""

    distribution: str
    module: str
    largest: int
    quantize: Callable[..., Job | None]
    convert: Callable[..., Job | None]
    operate: Callable[..., Job | None]
    multiply: Callable[..., Job | None]

    @property
    def version(self) -> str | None:
        try:
            importlib.import_module(self.module)
            return importlib.metadata.version(self.distribution)
        except ImportError:
            return None


def _plain(result: Any) -> np.ndarray:
    return np.asarray(result)


def _nothing(*_: Any, **__: Any) -> None:
    return None


# -- NumPy and ml_dtypes: arrays with a dtype ----------------------------------------------------------------------

_UFUNCS = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide, "sqrt": np.sqrt}


def _is_numpy(fmt: fs.FloatFormat) -> bool:
    return fmt in (fs.FP16, fs.FP32, fs.FP64)


def _dtype(fmt: fs.FloatFormat, numpy: bool) -> np.dtype | None:
    return fmt.dtype if _is_numpy(fmt) == numpy else None


def _dtype_quantize(numpy: bool, x: np.ndarray, fmt: fs.FloatFormat, rounding: str) -> Job | None:
    dtype = _dtype(fmt, numpy)
    if dtype is None or rounding != "ties_to_even":
        return None
    return Job(lambda: x.astype(dtype).astype(x.dtype), _plain)


def _dtype_convert(numpy: bool, x: np.ndarray, fmt: fs.FloatFormat) -> Job | None:
    dtype = _dtype(fmt, numpy)
    return None if dtype is None else Job(lambda: x.astype(dtype), _plain)


def _dtype_operate(numpy: bool, operation: str, operands: list[np.ndarray], fmt: fs.FloatFormat) -> Job | None:
    dtype = _dtype(fmt, numpy)
    if dtype is None or operation not in _UFUNCS:
        return None
    ufunc, arrays = _UFUNCS[operation], [codes.view(dtype) for codes in operands]
    return Job(lambda: ufunc(*arrays), _plain)


def _dtype_multiply(numpy: bool, operands: list[np.ndarray], fmt: fs.FloatFormat) -> Job | None:
    dtype = _dtype(fmt, numpy)
    if dtype is None:
        return None
    a, b = (codes.view(dtype) for codes in operands)

    def loop() -> np.ndarray:
        total, product = np.zeros((2, len(a), b.shape[1]), dtype)
        for k in range(len(b)):
            np.multiply(a[:, k, None], b[k], out=product)
            np.add(total, product, out=total)
        return total

    return Job(loop, _plain)


def _arrays(distribution: str, numpy: bool) -> Peer:
    functions = (_dtype_quantize, _dtype_convert, _dtype_operate, _dtype_multiply)
    jobs = (functools.partial(job, numpy) for job in functions)
    return Peer(distribution, distribution, ALL, *jobs)


# -- torch ---------------------------------------------------------------------------------------------------------

_TORCH = {fs.FP16: "float16", fs.BF16: "bfloat16", fs.E4M3: "float8_e4m3fn", fs.E5M2: "float8_e5m2"}


def _torch(fmt: fs.FloatFormat) -> Any:
    import torch

    torch.set_num_threads(1)
    name = _TORCH.get(fmt)
    return torch, getattr(torch, name, None) if name else None


def _torch_values(tensor: Any) -> np.ndarray:
    return tensor.double().numpy()


def _torch_quantize(x: np.ndarray, fmt: fs.FloatFormat, rounding: str) -> Job | None:
    torch, dtype = _torch(fmt)
    if dtype is None or rounding != "ties_to_even":
        return None
    tensor = torch.from_numpy(x)
    return Job(lambda: tensor.to(dtype).to(tensor.dtype), _torch_values)


def _torch_convert(x: np.ndarray, fmt: fs.FloatFormat) -> Job | None:
    torch, dtype = _torch(fmt)
    if dtype is None:
        return None
    tensor = torch.from_numpy(x)
    return Job(lambda: tensor.to(dtype), _torch_values)


def _torch_operate(operation: str, operands: list[np.ndarray], fmt: fs.FloatFormat) -> Job | None:
    torch, dtype = _torch(fmt)
    if dtype is None:
        return None
    function = getattr(torch, operation)
    tensors = [torch.from_numpy(codes.view(f"i{codes.itemsize}")).view(dtype) for codes in operands]
    try:
        function(*(tensor[:1] for tensor in tensors))
    except NotImplementedError:
        return None
    return Job(lambda: function(*tensors), _torch_values)


def _torch_multiply(operands: list[np.ndarray], fmt: fs.FloatFormat) -> Job | None:
    torch, dtype = _torch(fmt)
    if fmt not in (fs.FP16, fs.BF16):
        return None
    a, b = (torch.from_numpy(codes.view(f"i{codes.itemsize}")).view(dtype) for codes in operands)

    def loop() -> Any:
        total, product = torch.zeros((2, len(a), b.shape[1]), dtype=dtype)
        for k in range(len(b)):
            torch.mul(a[:, k, None], b[k], out=product)
            total.add_(product)
        return total

    return Job(loop, _torch_values)


# -- gfloat --------------------------------------------------------------------------------------------------------


def _gfloat_format(fmt: fs.FloatFormat) -> Any:
    from gfloat import formats, types

    names = {fs.FP16: "binary16", fs.BF16: "bfloat16", fs.E4M3: "ocp_e4m3", fs.E5M2: "ocp_e5m2"}
    if fmt in names:
        return getattr(formats, f"format_info_{names[fmt]}")
    return types.FormatInfo(
        fmt.name, fmt.bits, fmt.precision, bias=fmt.bias, is_signed=True, domain=types.Domain.Extended, has_nz=True,
        num_high_nans=(1 << fmt.trailing_bits) - 1, has_subnormals=True, is_twos_complement=False,
    )  # fmt: skip


def _gfloat_quantize(x: np.ndarray, fmt: fs.FloatFormat, rounding: str) -> Job | None:
    import gfloat

    target = _gfloat_format(fmt)
    if rounding == "stochastic":
        rng = np.random.default_rng(0)
        mode = gfloat.RoundMode.Stochastic

        def draw_and_round() -> np.ndarray:
            draws = rng.integers(0, 1 << 32, x.shape, dtype=np.int64)
            return gfloat.round_ndarray(target, x, mode, False, draws, 32)

        return Job(draw_and_round, _plain, random=True)
    mode = {"ties_to_even": gfloat.RoundMode.TiesToEven}.get(rounding)
    return None if mode is None else Job(lambda: gfloat.round_ndarray(target, x, mode), _plain)


def _rounding_loop(operands: list[np.ndarray], fmt: fs.FloatFormat, quantize: Callable[[np.ndarray], Any]) -> Job:
    """The loop over k in float64, in which FP16's products and sums are exact before they are rounded."""
    a, b = (fs.decode(codes, fmt) for codes in operands)

    def loop() -> np.ndarray:
        total = np.zeros((len(a), b.shape[1]))
        for k in range(len(b)):
            total = quantize(total + quantize(a[:, k, None] * b[k]))
        return total

    return Job(loop, _plain)


def _gfloat_multiply(operands: list[np.ndarray], fmt: fs.FloatFormat) -> Job:
    import gfloat

    return _rounding_loop(operands, fmt, functools.partial(gfloat.round_ndarray, _gfloat_format(fmt)))


# -- pychop and APyTypes: IEEE-like formats only -------------------------------------------------------------------


def _pychop_quantize(x: np.ndarray, fmt: fs.FloatFormat, rounding: str) -> Job | None:
    mode = {"ties_to_even": 1, "stochastic": 5}.get(rounding)
    if not fmt.has_infinity or mode is None:
        return None
    import pychop

    pychop.backend("numpy")
    chop = pychop.Chop(fmt.exponent_bits, fmt.trailing_bits, rmode=mode)
    return Job(lambda: chop(x), _plain, random=rounding == "stochastic")


def _pychop_multiply(operands: list[np.ndarray], fmt: fs.FloatFormat) -> Job | None:
    if not fmt.has_infinity:
        return None
    import pychop

    pychop.backend("numpy")
    return _rounding_loop(operands, fmt, pychop.Chop(fmt.exponent_bits, fmt.trailing_bits, rmode=1))


def _apy_quantize(x: np.ndarray, fmt: fs.FloatFormat, rounding: str) -> Job | None:
    if not fmt.has_infinity or rounding != "ties_to_even":
        return None
    from apytypes import APyFloatArray

    return Job(lambda: APyFloatArray.from_array(x, fmt.exponent_bits, fmt.trailing_bits).to_numpy(), _plain)


def _apy_values(array: Any) -> np.ndarray:
    return array.to_numpy()


def _apy_convert(x: np.ndarray, fmt: fs.FloatFormat) -> Job | None:
    if not fmt.has_infinity:
        return None
    from apytypes import APyFloatArray

    return Job(lambda: APyFloatArray.from_array(x, fmt.exponent_bits, fmt.trailing_bits), _apy_values)


def _apy_operate(operation: str, operands: list[np.ndarray], fmt: fs.FloatFormat) -> Job | None:
    import operator

    from apytypes import APyFloatArray

    functions = {"add": operator.add, "multiply": operator.mul, "divide": operator.truediv}
    if operation not in functions or not fmt.has_infinity:
        return None
    function = functions[operation]
    arrays = [APyFloatArray.from_bits(codes, fmt.exponent_bits, fmt.trailing_bits) for codes in operands]
    return Job(lambda: function(*arrays), _apy_values)


def _apy_multiply(operands: list[np.ndarray], fmt: fs.FloatFormat) -> Job | None:
    if not fmt.has_infinity:
        return None
    from apytypes import APyFloatArray

    a, b = (APyFloatArray.from_bits(codes, fmt.exponent_bits, fmt.trailing_bits) for codes in operands)
    return Job(lambda: a @ b, _apy_values)


PEERS = {
    "NumPy": _arrays("numpy", True),
    "ml_dtypes": _arrays("ml_dtypes", False),
    "torch": Peer("torch", "torch", ALL, _torch_quantize, _torch_convert, _torch_operate, _torch_multiply),
    "gfloat": Peer("gfloat", "gfloat", 1 << 20, _gfloat_quantize, _nothing, _nothing, _gfloat_multiply),
    "pychop": Peer("pychop", "pychop", 1 << 16, _pychop_quantize, _nothing, _nothing, _pychop_multiply),
    "APyTypes": Peer("apytypes", "apytypes", 1 << 20, _apy_quantize, _apy_convert, _apy_operate, _apy_multiply),
}


# -- mmasim: matrix units, and nothing else ------------------------------------------------------------------------


def mmasim(operands: list[np.ndarray]) -> Job | None:
    """FP16 products as Hopper's wgmma, of any size: mmasim does not hold the shape against the instruction's."""
    try:
        import torch
        from mmasim.nv_ptx import WGMMA
    except ImportError:
        return None
    torch.set_num_threads(1)
    unit = WGMMA("Hopper", "m64n8k16.f32.f16.f16")
    a, b = (torch.from_numpy(codes.view(np.int16)).view(torch.float16) for codes in operands)
    c = torch.zeros(len(a), b.shape[1])
    return Job(lambda: unit(a, b, c), _torch_values)
