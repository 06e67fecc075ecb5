"""Gradient averaging of data-parallel frameworks: the order of casts, divisions and the collective, as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from floatsim.arrays.array.conversion import as_float_array
from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.array.types import Floats
from floatsim.arrays.elementwise.arithmetic import divide, multiply
from floatsim.arrays.events.record import scope
from floatsim.formats import BF16, FP16, FP32, FP64, FloatFormat, FormatLike, as_format
from floatsim.formats._validation import as_flag, as_index, as_real
from floatsim.quantization.scales import number
from floatsim.quantization.scheme import as_name
from floatsim.training.collectives.ring import all_reduce
from floatsim.training.collectives.wire import as_messages, read_ranks
from floatsim.training.policies.conversions import nearest, plain

__all__ = [
    "DIVISIONS", "REDUCTIONS", "GradientReduction", "MixedPrecision", "as_reduction", "fsdp_divide_factors",
    "reduce_gradients",
]  # fmt: skip

DIVISIONS = ("reciprocal", "divide")
"""How a tensor is divided by a number. `reduce_gradients` documents them."""

Factors: TypeAlias = "Callable[[int], tuple[float, float]]"


def fsdp_divide_factors(ranks: int) -> tuple[float, float]:
    """Return the numbers by which FSDP1 divides gradients before and after the sum over N ranks.

    Parameters
    ----------
    ranks : int
        The number of ranks N, at least 1.

    Returns
    -------
    before, after : float
        before is about the square root of N: f = 1, doubled while N % f == 0 and N / f > f. after is N / before.

    Raises
    ------
    ValueError
        For a number below 1.

    Notes
    -----
    PyTorch, torch/distributed/algorithms/_comm_hooks/default_hooks.py (DefaultState).

    Examples
    --------
    >>> import floatsim as fs
    >>> [fs.training.fsdp_divide_factors(n) for n in (1, 3, 6, 12, 64)]
    [(1.0, 1.0), (2.0, 1.5), (4.0, 1.5), (4.0, 3.0), (8.0, 8.0)]
    """
    n = as_index(ranks, "ranks", 1, 1 << 31)
    before = 1
    while n % before == 0 and n / before > before:
        before *= 2
    return float(before), n / before


def _before(ranks: int) -> tuple[float, float]:
    return float(ranks), 1.0


def _after(ranks: int) -> tuple[float, float]:
    return 1.0, float(ranks)


@dataclass(frozen=True)
class GradientReduction:
    """How a framework averages gradients: cast, divide, sum over the ranks, divide, cast back.

    Parameters
    ----------
    name : str
        The name.
    factors : function
        The number of ranks to the divisors before and after the sum. A divisor of 1 is no operation.
    wire : format, optional
        The format of the messages and of the divisions. None: that of the gradients.
    average_formats : tuple of FloatFormat
        Formats of the wire for which the collective averages (`op="average"`), without divisions.
    source : str
        Where the order comes from.

    Examples
    --------
    >>> import floatsim as fs
    >>> reduction = fs.training.REDUCTIONS["ddp_fp16_hook"]
    >>> reduction.wire.name, reduction.factors(8)
    ('FP16', (8.0, 1.0))
    """

    name: str
    factors: Factors
    wire: FloatFormat | None = None
    average_formats: tuple[FloatFormat, ...] = ()
    source: str = ""


_HOOKS = "torch/distributed/algorithms/ddp_comm_hooks/default_hooks.py"
_NAMED = (
    GradientReduction("ddp", _before, source="PyTorch DDP without a hook: the bucket is divided by N, then summed"),
    GradientReduction("ddp_fp16_hook", _before, FP16, source=f"PyTorch, {_HOOKS}: fp16_compress_hook"),
    GradientReduction("ddp_bf16_hook", _before, BF16, source=f"PyTorch, {_HOOKS}: bf16_compress_hook"),
    GradientReduction(
        "ddp_fp16_hook_2021", _after, FP16, source=f"PyTorch before 1.9, {_HOOKS}: summed in FP16, then divided"
    ),
    GradientReduction("fsdp1", fsdp_divide_factors, source="PyTorch FullyShardedDataParallel, _comm_hooks"),
    GradientReduction(
        "fsdp2", fsdp_divide_factors, average_formats=(FP32, BF16),
        source="PyTorch fully_shard, _fsdp_collectives.py: ReduceOp.AVG in FP32 and BF16, divisions as FSDP1 otherwise",
    ),
    GradientReduction("deepspeed", _after, source="DeepSpeed, engine.py: postscale, predivide factor 1"),
    GradientReduction("deepspeed_prescale", _before, source="DeepSpeed, engine.py: prescale_gradients"),
    GradientReduction("zero12", _before, source="DeepSpeed ZeRO 1 and 2: average_tensor divides before the sum"),
    GradientReduction("zero3", _after, source="DeepSpeed ZeRO 3: divides after the reduce-scatter"),
)  # fmt: skip

REDUCTIONS: Mapping[str, GradientReduction] = MappingProxyType({each.name: each for each in _NAMED})
"""The named orders of data-parallel frameworks.

>>> import floatsim as fs
>>> fs.training.REDUCTIONS["zero3"].source
'DeepSpeed ZeRO 3: divides after the reduce-scatter'
"""


def as_reduction(reduction: GradientReduction | str) -> GradientReduction:
    """Return an order of averaging by its name, or the order itself.

    Raises a ValueError with the nearest match for an unknown name.

    >>> as_reduction("fsdp3")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: reduction='fsdp3' is not known; did you mean 'fsdp2'? known are fsdp1, fsdp2, ddp, ...
    """
    if isinstance(reduction, GradientReduction):
        return reduction
    return REDUCTIONS[as_name(reduction, REDUCTIONS, "reduction")]


def _divided(x: FloatArray, divisor: float, division: str) -> FloatArray:
    """Return x / divisor, in FP32 and then rounded to the format of x; in FP64 for FP64."""
    if divisor == 1:
        return x
    fmt = FP64 if x.format == FP64 else FP32
    wide, by = nearest(x, fmt), number(divisor, fmt)
    with plain():
        result = divide(wide, by) if division == "divide" else multiply(wide, divide(number(1.0, fmt), by))
    return nearest(as_float_array(result, "x"), x.format)


def reduce_gradients(
    x: Floats,
    reduction: GradientReduction | str = "ddp",
    *,
    wire: FormatLike | None = None,
    predivide: float | None = None,
    division: str = "reciprocal",
    algorithm: str = "ring",
    accumulate: FormatLike | None = None,
    chunk: int | None = None,
) -> FloatArray:
    """Return the gradients averaged over N ranks in the order of a framework.

    1. Each rank's gradients are rounded to the format of the wire.
    2. They are divided by the first divisor.
    3. They are summed by `fs.training.all_reduce`. Where the framework uses AVG, this is `op="average"`, and the steps
       2 and 4 are left out.
    4. The sums are divided by the second divisor.
    5. The result is rounded to the format of the gradients.

    Parameters
    ----------
    x : array_like of floats, (N, ...)
        The gradients of the ranks.
    reduction : GradientReduction or str
        A name of `fs.training.REDUCTIONS`: "ddp", "ddp_fp16_hook", "ddp_bf16_hook", "ddp_fp16_hook_2021", "fsdp1",
        "fsdp2", "deepspeed", "deepspeed_prescale", "zero12", "zero3".
    wire : format, optional
        The format of the messages: FSDP's reduce_dtype, DeepSpeed's communication_data_type. Default: the reduction's.
    predivide : float, optional
        DeepSpeed's gradient_predivide_factor f: the divisors are f and N / f.
    division : str
        How a tensor is divided by a number d. "reciprocal", as PyTorch on CUDA: the product with the FP32 number 1/d,
        in FP32. "divide", as PyTorch on the CPU: the quotient in FP32. Both are then rounded to the format.
    algorithm, accumulate, chunk : optional
        As in `fs.training.all_reduce`.

    Returns
    -------
    FloatArray, (...)
        In the format of x.

    Raises
    ------
    TypeError, ValueError
        As in `fs.training.all_reduce`, and for a predivide factor that is not positive.

    Examples
    --------
    A sum of 66 gradients overflows in FP16, unless it is divided before:

    >>> import floatsim as fs, numpy as np
    >>> x = np.full((66, 1), 1000, np.float32)
    >>> for name in ("ddp_fp16_hook_2021", "ddp_fp16_hook"):
    ...     print(name, fs.training.reduce_gradients(x, name))
    ddp_fp16_hook_2021 FloatArray([inf], FP32)
    ddp_fp16_hook FloatArray([996.5], FP32)
    """
    order = as_reduction(reduction)
    how = as_name(division, DIVISIONS, "division")
    given = as_messages(x)
    fmt = as_format(wire) if wire is not None else order.wire or given.format
    messages, shape = read_ranks(given, fmt)
    ranks = messages.shape[0]
    before, after = order.factors(ranks)
    average = fmt in order.average_formats
    if predivide is not None:
        before = as_real(predivide, "predivide")
        if before <= 0:
            raise ValueError(f"predivide must be a positive number, not {predivide!r}")
        after, average = ranks / before, False
    with scope("reduce_gradients"):
        if not average:
            messages = _divided(messages, before, how)
        op = "average" if average else "sum"
        total = all_reduce(messages, op, algorithm=algorithm, accumulate=accumulate, chunk=chunk)
        if not average:
            total = _divided(total, after, how)
        return nearest(total, given.format).reshape(shape)


@dataclass(frozen=True)
class MixedPrecision:
    """FSDP's MixedPrecision: the formats of parameters, of the reduction of gradients, and of buffers.

    Parameters
    ----------
    param : format, optional
        The format of parameters and inputs in forward and backward passes. The shards, which the optimizer updates,
        keep their format. Default: no cast.
    reduce : format, optional
        The format in which gradients are summed over the ranks. Default: `param`.
    buffer : format, optional
        The format of buffers, which are cast once. FSDP excludes batch normalization by default. Default: no cast.
    keep_low_precision_grads : bool
        Whether the sums stay in the format of the reduction. Otherwise they are rounded to that of the shards.

    Notes
    -----
    PyTorch, torch/distributed/fsdp/api.py.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> policy = fs.training.MixedPrecision(param="bf16", reduce="fp32")
    >>> policy.cast_parameters(np.float32([0.1]))
    FloatArray([0.1001], BF16)
    >>> policy.reduce_gradients(fs.array([[0.1], [0.2], [0.3]], "bf16"), shards="fp32")
    FloatArray([0.200358078], FP32)
    """

    param: FormatLike | None = None
    reduce: FormatLike | None = None
    buffer: FormatLike | None = None
    keep_low_precision_grads: bool = False

    def __post_init__(self) -> None:
        for name in ("param", "reduce", "buffer"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, as_format(getattr(self, name)))
        as_flag(self.keep_low_precision_grads, "keep_low_precision_grads")

    def cast_parameters(self, x: Floats) -> FloatArray:
        """Return parameters, or the inputs of the model, as the forward and backward passes use them."""
        return self._cast(x, self.param)

    def cast_buffers(self, x: Floats) -> FloatArray:
        """Return buffers in their format."""
        return self._cast(x, self.buffer)

    @staticmethod
    def _cast(x: Floats, fmt: FormatLike | None) -> FloatArray:
        given = as_float_array(x, "x")
        return given if fmt is None else nearest(given, as_format(fmt))

    def reduce_gradients(self, x: Floats, shards: FormatLike = "fp32", *, version: int = 1) -> FloatArray:
        """Return the gradients averaged over the ranks, (N, ...) to (...), by FSDP1 or FSDP2.

        `shards` is the format of the shards of the parameters.
        """
        name = {1: "fsdp1", 2: "fsdp2"}[as_index(version, "version", 1, 2)]
        wire = self.reduce if self.reduce is not None else self.param
        fmt = as_format(wire) if wire is not None else as_messages(x).format
        messages, shape = read_ranks(x, fmt)
        result = reduce_gradients(messages, name).reshape(shape)
        return result if self.keep_low_precision_grads else nearest(result, as_format(shards))
