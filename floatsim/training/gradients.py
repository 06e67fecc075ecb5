"""Gradients between the backward pass and the optimizer: accumulation, clipping by the global norm, shrinking."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from floatsim.accumulation import AccumulationLike
from floatsim.arrays.arithmetic import add, divide, minimum_number, multiply
from floatsim.arrays.conversion import array, convert
from floatsim.arrays.float_array import FloatArray
from floatsim.arrays.reductions import norm
from floatsim.formats import FP32, FormatLike, as_format
from floatsim.formats._validation import as_real, name_hint
from floatsim.training.loss_scaling import Gradients
from floatsim.training.operations import matches

__all__ = [
    "Clipped", "accumulate_gradients", "clip_by_global_norm", "global_norm", "shrink_embedding", "shrink_gradient",
]  # fmt: skip

NORM_OF_PYTORCH = "strided(sequential(fp32), 8, sequential(fp32))"
"""The sum of squares of `torch.linalg.vector_norm` on a CPU: 8 lanes, which are added in order. Equal to PyTorch 2.15
for lengths that are a multiple of 8 and below 32768, which one thread adds."""


def accumulate_gradients(micro_batches: Iterable[Gradients], format: FormatLike | None = None) -> dict[str, FloatArray]:
    """Return the sums of the gradients of micro-batches, one addition for each, rounded to a format.

    Parameters
    ----------
    micro_batches : iterable of mappings of str to FloatArray
        The gradients of each micro-batch, with the same names.
    format : format, optional
        The format of the buffer. Default: that of the first gradient of each name.

    Returns
    -------
    dict of str to FloatArray

    Raises
    ------
    ValueError
        Without micro-batches, and for names that differ.

    Notes
    -----
    The first gradient is converted to the format of the buffer. Each further one is added to it, in the order given.

    Examples
    --------
    A buffer in BF16 stops at 0.5, because a gradient of 0.001 is less than half an ulp of it:

    >>> import floatsim as fs
    >>> batches = [{"w": fs.array([1e-3], "bf16")}] * 800
    >>> [round(fs.training.accumulate_gradients(batches, fmt)["w"].item(), 3) for fmt in ("bf16", "fp32")]
    [0.5, 0.8]
    """
    total: dict[str, FloatArray] = {}
    for gradients in micro_batches:
        if total and set(gradients) != set(total):
            raise ValueError(f"the micro-batches differ in names: {sorted(set(gradients) ^ set(total))}")
        for name, gradient in gradients.items():
            fmt = gradient.format if format is None else as_format(format)
            total[name] = (
                add(total[name], gradient, format=total[name].format) if name in total else convert(gradient, fmt)
            )
    if not total:
        raise ValueError("micro_batches has no gradients")
    return total


def global_norm(
    gradients: Gradients, *, accumulate: AccumulationLike = NORM_OF_PYTORCH, format: FormatLike | None = None
) -> FloatArray:
    """Return the Euclidean norm of all gradients: the norm of their norms.

    Parameters
    ----------
    gradients : mapping of str to FloatArray
        The gradients.
    accumulate : description
        How the squares are added: "fp16" for FP16 in order. Default: as PyTorch on a CPU.
    format : format, optional
        The format of the norms. Default: that of each gradient.

    Returns
    -------
    FloatArray
        One number, in the widest of the formats, or in `format`.

    Raises
    ------
    ValueError
        Without gradients.

    Notes
    -----
    For each gradient, the sum of the squares, and its square root, rounded once, as `fs.norm`. Then the same of the
    norms. `torch.nn.utils.clip_grad_norm_` does this.

    Examples
    --------
    The true norm is 0.316. The sum of squares stalls in FP16, because each square is below half an ulp of the sum:

    >>> import floatsim as fs, numpy as np
    >>> gradients = {"w": fs.array(np.full(100_000, 1e-3), "fp16")}
    >>> [float(fs.training.global_norm(gradients, accumulate=a, format="fp32")) for a in ("fp16", "fp32")]
    [0.0625, 0.316...]
    """
    if not gradients:
        raise ValueError("there are no gradients")
    norms = [norm(g.reshape(-1), accumulate=accumulate, format=g.format if format is None else format)
             for g in gradients.values()]  # fmt: skip
    widest = max((each.format for each in norms), key=lambda fmt: fmt.bits)
    stacked = FloatArray(np.array([convert(each, widest).codes for each in norms]).reshape(-1), widest)
    return norm(stacked, accumulate=accumulate, format=widest)  # type: ignore[no-any-return]


class Clipped(NamedTuple):
    """The result of `clip_by_global_norm`.

    Attributes
    ----------
    gradients : dict of str to FloatArray
        The clipped gradients.
    norm : FloatArray
        The norm before.
    coefficient : FloatArray
        The factor of the gradients, at most 1.
    """

    gradients: dict[str, FloatArray]
    norm: FloatArray
    coefficient: FloatArray


def clip_by_global_norm(
    gradients: Gradients, max_norm: float, *, accumulate: AccumulationLike = NORM_OF_PYTORCH,
    format: FormatLike | None = None, apart: str = "", eps: float = 1e-6,
) -> Clipped:  # fmt: skip
    """Scale gradients so that their global norm is at most a given number.

    Parameters
    ----------
    gradients : mapping of str to FloatArray
        The gradients.
    max_norm : float
        The largest norm.
    accumulate, format
        As in `fs.training.global_norm`.
    apart : str
        Names or patterns, such as "embedding*|head*". Gradients with such names stay as they are, and do not enter the
        norm.
    eps : float
        Added to the norm.

    Returns
    -------
    Clipped

    Raises
    ------
    ValueError
        For a norm that is not positive, and if `apart` fits no name or every name.

    Notes
    -----
    The coefficient is min(round(round(1 / round(norm + eps)) * max_norm), 1), as in PyTorch, where a number divided by
    a tensor is the product of the number and the reciprocal. Each gradient is multiplied by the coefficient, also by
    1.0, and rounded to its format.

    Examples
    --------
    >>> import floatsim as fs
    >>> gradients = {"w": fs.array([3.0, 4.0], "fp32")}
    >>> found = fs.training.clip_by_global_norm(gradients, 1.0)
    >>> found.norm, found.gradients["w"]
    (FloatArray(5.0, FP32), FloatArray([0.599999905, 0.799999833], FP32))
    """
    if as_real(max_norm, "max_norm", 0.0) == 0:
        raise ValueError(f"max_norm must be above 0, not {max_norm!r}")
    kept = {name for name in gradients if apart and matches(apart, [name])}
    if apart and not kept:
        raise ValueError(f"apart={apart!r} fits no gradient; {name_hint(apart, gradients)}")
    scaled = {name: gradient for name, gradient in gradients.items() if name not in kept}
    total = global_norm(scaled, accumulate=accumulate, format=format)
    fmt = total.format
    inverse = divide(array(1.0, fmt), add(total, array(eps, FP32), format=fmt), format=fmt)
    coefficient = multiply(inverse, array(max_norm, FP32), format=fmt)
    coefficient = minimum_number(coefficient, array(1.0, fmt)) if not np.isnan(float(total)) else coefficient
    found = {
        name: gradient if name in kept else multiply(gradient, coefficient, format=gradient.format)
        for name, gradient in gradients.items()
    }
    return Clipped(found, total, coefficient)


def shrink_embedding(weight: FloatArray, alpha: float) -> FloatArray:
    """Return w * alpha + w * (1 - alpha), the embedding whose gradient is shrunk to the share alpha.

    Parameters
    ----------
    weight : FloatArray
        The weights of the embedding.
    alpha : float
        The share of the gradient, from 0 to 1.

    Returns
    -------
    FloatArray
        In the format of weight, with a rounding of both products and of the sum. It can differ from weight.

    Raises
    ------
    ValueError
        For a share that is not from 0 to 1.

    Notes
    -----
    GLM-130B (Zeng et al., 2022) writes embedding * alpha + embedding.detach() * (1 - alpha): the second product has no
    gradient. The gradient is `shrink_gradient`.

    Examples
    --------
    >>> import floatsim as fs
    >>> weight = fs.array([1.0, 1.2890625, 1.5], "bf16")
    >>> fs.training.shrink_embedding(weight, 0.1) == weight
    array([ True, False,  True])
    """
    share, fmt = _alpha(alpha), weight.format
    kept, fixed = (multiply(weight, array(x, FP32), format=fmt) for x in (share, 1 - share))
    return add(kept, fixed, format=fmt)  # type: ignore[no-any-return]


def shrink_gradient(gradient: FloatArray, alpha: float) -> FloatArray:
    """Return the gradient times alpha, rounded to its format: the gradient by the weight of `shrink_embedding`.

    Parameters
    ----------
    gradient : FloatArray
        The gradient by the result of `shrink_embedding`.
    alpha : float
        The share, from 0 to 1.

    Returns
    -------
    FloatArray

    Raises
    ------
    ValueError
        For a share that is not from 0 to 1.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.training.shrink_gradient(fs.array([2.0], "fp32"), 0.1)
    FloatArray([0.200000003], FP32)
    """
    return multiply(gradient, array(_alpha(alpha), FP32), format=gradient.format)  # type: ignore[no-any-return]


def _alpha(alpha: float) -> float:
    share = as_real(alpha, "alpha", 0.0)
    if share > 1:
        raise ValueError(f"alpha must be from 0 to 1, not {alpha!r}")
    return share
