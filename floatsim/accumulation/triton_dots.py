"""The sums of Triton's `tl.dot` on an H200, by its arguments."""

from __future__ import annotations

from floatsim.accumulation.base import Accumulation
from floatsim.accumulation.composites import Blocked
from floatsim.accumulation.gpu_kernels import Converted, Tf32x3
from floatsim.accumulation.leaves import Sequential
from floatsim.accumulation.library_rules import NotDescribedError
from floatsim.accumulation.permuted import Permuted
from floatsim.accumulation.tensor_core import TensorCore
from floatsim.formats import FP32
from floatsim.formats._validation import as_flag, as_index, name_hint
from floatsim.formats.rounding import Rounding

__all__ = ["triton_dot"]

_HOPPER, _MMA = TensorCore("hopper"), TensorCore("hopper", "mma.m16n8k16")
_HALVES = ("float16", "bfloat16")
_BYTES = ("float8_e4m3fn", "float8_e5m2")
_PRECISIONS = ("tf32", "ieee", "tf32x3")
_LANES = tuple(k for half in range(2) for k in range(32) if k // 2 % 2 == half)
"""FP8 operands as FP16: of each 32 terms those with k % 4 < 2 first, then the others."""


def triton_dot(
    dtype: str, block_k: int, *, input_precision: str = "tf32", max_num_imprecise_acc: int | None = None,
    wgmma: bool = True, fused: bool = True, terms: int | None = None,
) -> Accumulation:  # fmt: skip
    """Return how a Triton kernel with `tl.dot` in its loop over K adds, on an H200.

    Parameters
    ----------
    dtype : str
        The dtype of the operands: "float16", "bfloat16", "float32", "float8_e4m3fn" or "float8_e5m2".
    block_k : int
        The terms of K that one `tl.dot` takes. K is a multiple of it.
    input_precision : str
        "tf32", "ieee" or "tf32x3", for float32.
    max_num_imprecise_acc : int, optional
        The argument of `tl.dot` for FP8: the terms after which the sum is added to the accumulator in FP32. None:
        Triton's default.
    wgmma : bool
        Whether the kernel's PTX has `wgmma` instructions: from 64 rows and 4 warps on. Otherwise it has `mma.sync`,
        which changes the sums of FP8 operands only: Triton converts them to FP16.
    fused : bool
        True: `acc = tl.dot(x, y, acc)`. False: `acc += tl.dot(x, y)`, which adds each block in FP32, of FP8 operands.
        For 16-bit operands the compiler joins both to the same instructions.
    terms : int, optional
        K, for FP8 dots whose blocks have different lengths: `max_num_imprecise_acc=96` with `block_k=128`.

    Returns
    -------
    Accumulation
        A description for `fs.matmul`.

    Raises
    ------
    NotDescribedError
        A ValueError: for a combination that was not recorded. The message says why.
    ValueError
        For an unknown dtype or `input_precision`.

    Examples
    --------
    >>> import floatsim as fs
    >>> print(fs.hardware.triton_dot("float32", 32, input_precision="tf32x3"))
    blocked(tf32x3(tensorcore(hopper)), 32, sequential(fp32))
    >>> print(fs.hardware.triton_dot("float8_e4m3fn", 64, max_num_imprecise_acc=32))
    blocked(tensorcore(hopper), 32, sequential(fp32))
    """
    known = (*_HALVES, "float32", *_BYTES)
    if dtype not in known:
        raise ValueError(f"dtype={dtype!r} is not known; {name_hint(dtype, known)}")
    if input_precision not in _PRECISIONS:
        raise ValueError(f"input_precision={input_precision!r} is not known; {name_hint(input_precision, _PRECISIONS)}")
    every = as_index(block_k, "block_k", 16, 1 << 20)
    as_flag(wgmma, "wgmma")
    if dtype in _BYTES:
        return _of_bytes(every, max_num_imprecise_acc, wgmma, as_flag(fused, "fused"), terms)
    if max_num_imprecise_acc is not None:
        raise NotDescribedError(f"max_num_imprecise_acc of {dtype} was not recorded; it is for FP8")
    if dtype in _HALVES:
        return _HOPPER
    if not as_flag(fused, "fused"):
        raise NotDescribedError("acc += tl.dot(x, y) of float32 was not recorded; pass acc to tl.dot")
    if input_precision == "ieee":
        return Sequential(FP32, fused=True)
    if input_precision == "tf32x3":
        return Blocked(Tf32x3(_HOPPER), every, FP32)
    return Converted("tf32", _HOPPER, Rounding.TOWARD_ZERO)


def _of_bytes(block_k: int, imprecise: int | None, wgmma: bool, fused: bool, terms: int | None) -> Accumulation:
    """A block ends where instructions of 32 terms reach the number of imprecise ones, and at the end of a dot.

    The FP8 instructions of `wgmma` are not used for fewer imprecise terms than they take.
    """
    if imprecise is not None:
        as_index(imprecise, "max_num_imprecise_acc", 0, 1 << 30)
    if not wgmma and imprecise is not None and imprecise >= 32:
        raise NotDescribedError(f"max_num_imprecise_acc={imprecise} with mma.sync was not recorded")
    if not wgmma or (imprecise is not None and imprecise < 32):
        found: Accumulation = Converted("fp16", Permuted(_LANES, _MMA))
        return found if fused else Blocked(found, block_k, FP32)
    if imprecise is None:
        return _HOPPER if fused else Blocked(_HOPPER, block_k, FP32)
    if imprecise > block_k:
        raise NotDescribedError(f"max_num_imprecise_acc={imprecise} above block_k={block_k} does not compile")
    every = -(-imprecise // 32) * 32
    whole, rest = divmod(block_k, every)
    if not fused:
        if rest:
            raise NotDescribedError(f"max_num_imprecise_acc={imprecise} with acc += tl.dot(x, y) was not recorded")
        return Blocked(_HOPPER if whole == 1 else Blocked(_HOPPER, every, FP32), block_k, FP32)
    if not rest:
        return Blocked(_HOPPER, every, FP32)
    if terms is None or terms % block_k:
        raise NotDescribedError(f"blocks of {every} and {rest} terms need terms=K, a multiple of block_k={block_k}")
    return Blocked(_HOPPER, [*[every] * whole, rest] * (terms // block_k), FP32)
