"""Gradients between the backward pass and the optimizer: accumulation, clipping by the global norm, shrinking."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from floatsim.accumulation import AccumulationLike
from floatsim.arrays.array.conversion import array, convert
from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.elementwise.arithmetic import add, divide, fma, minimum_number, multiply, sqrt
from floatsim.arrays.sums.products import dot
from floatsim.arrays.sums.reductions import norm
from floatsim.formats import BF16, FP16, FP32, FP64, FloatFormat, FormatLike, as_format
from floatsim.formats._validation import as_real, name_hint
from floatsim.formats.value_sets import contains
from floatsim.training.policies.conversions import as_tensor, check_tensors, inside_format, nearest_number
from floatsim.training.policies.operations import matches
from floatsim.training.scaling.loss_scaling import Gradients, as_positive

__all__ = [
    "Clipped", "accumulate_gradients", "clip_by_global_norm", "global_norm", "shrink_embedding", "shrink_gradient",
]  # fmt: skip

_LANES = {FP64: (4, 4), FP16: (1, 1), BF16: (8, 16)}
"""The lanes of PyTorch's sum of squares on a CPU, and the elements of one step of its loop."""


def _norm(x: FloatArray, accumulate: AccumulationLike | None, fmt: FloatFormat) -> FloatArray:
    """Return the norm of a vector in a format: the root of the sum of the squares."""
    if accumulate is not None:
        return norm(x, accumulate=accumulate, format=fmt)  # type: ignore[no-any-return]
    wide, (lanes, step) = inside_format(x.format), _LANES.get(x.format, (8, 8))
    whole, text = x.size // step * step, wide.name.lower()
    order = f"strided(sequential({text}), {lanes}, sequential({text}))"
    total: Any = dot(x[:whole], x[:whole], accumulate=order, format=wide)
    rest = x[whole:]
    rounded = rest.size // 4 * 4
    for i in range(rest.size):
        term = rest[i]
        total = add(total, multiply(term, term, format=wide), format=wide) if i < rounded else fma(
            term, term, total, format=wide
        )  # fmt: skip
    return convert(sqrt(total, format=wide), fmt)  # type: ignore[no-any-return]


def _common_format(formats: Iterable[FloatFormat]) -> FloatFormat:
    """Return the narrowest of some formats that holds the numbers of all of them, or FP32 or FP64."""
    given = list(formats)
    candidates = [*sorted(given, key=lambda fmt: fmt.bits), FP32, FP64]
    return next(fmt for fmt in candidates if all(contains(fmt, each, specials=False) for each in given))


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
    TypeError, ValueError
        Without micro-batches, and for names or shapes that differ.

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
        check_tensors(gradients, "micro_batches")
        if total and set(gradients) != set(total):
            raise ValueError(f"the micro-batches differ in names: {sorted(set(gradients) ^ set(total))}")
        for name, gradient in gradients.items():
            if name in total and gradient.shape != total[name].shape:
                shapes = f"{total[name].shape} and {gradient.shape}"
                raise ValueError(f"the micro-batches differ in the shape of {name!r}: {shapes}")
            fmt = gradient.format if format is None else as_format(format)
            total[name] = (
                add(total[name], gradient, format=total[name].format) if name in total else convert(gradient, fmt)
            )
    if not total:
        raise ValueError("micro_batches has no gradients")
    return total


def global_norm(
    gradients: Gradients, *, accumulate: AccumulationLike | None = None, format: FormatLike | None = None
) -> FloatArray:
    """Return the Euclidean norm of all gradients: the norm of their norms.

    Parameters
    ----------
    gradients : mapping of str to FloatArray
        The gradients.
    accumulate : description, optional
        How the squares are added: "fp16" for FP16 in order. Default: as PyTorch on a CPU.
    format : format, optional
        The format of the norms. Default: that of each gradient.

    Returns
    -------
    FloatArray
        One number in `format`, or in the narrowest format of the gradients that holds the numbers of all of them; FP32
        if there is none, as for FP16 and BF16.

    Raises
    ------
    TypeError, ValueError
        Without gradients.

    Notes
    -----
    The norm of each gradient, then the norm of the norms, as `torch.nn.utils.clip_grad_norm_`. With `accumulate`, the
    square root of a sum is rounded once, as in `fs.norm`.

    The default order is that of `torch.linalg.vector_norm` in one thread, in FP32; for FP64 gradients in FP64. FP16 is
    added in order. FP32 has 8 lanes, whose sums are added in order. The elements that do not fill the lanes come then:
    four at a time with rounded squares, the last one to three by fused multiply-add. FP64 has 4 lanes. BF16 has 8
    lanes, which take 16 elements at a time. Other formats are added as FP32. The root is rounded to the format of the
    sum, then to that of the norm. Equal to PyTorch 2.13 on x86-64.

    Examples
    --------
    The true norm is 0.316. The sum of squares stalls in FP16, because each square is below half an ulp of the sum:

    >>> import floatsim as fs, numpy as np
    >>> gradients = {"w": fs.array(np.full(100_000, 1e-3), "fp16")}
    >>> [float(fs.training.global_norm(gradients, accumulate=a, format="fp32")) for a in ("fp16", "fp32")]
    [0.0625, 0.316...]
    """
    check_tensors(gradients, "gradients")
    if not gradients:
        raise ValueError("there are no gradients")
    norms = [_norm(g.reshape(-1), accumulate, g.format if format is None else as_format(format))
             for g in gradients.values()]  # fmt: skip
    fmt = _common_format(each.format for each in norms)
    return _norm(FloatArray(np.array([convert(each, fmt).codes for each in norms]).reshape(-1), fmt), accumulate, fmt)


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
    gradients: Gradients, max_norm: float, *, accumulate: AccumulationLike | None = None,
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
    TypeError, ValueError
        For a max_norm that is not positive, an eps that is negative or not finite, and if `apart` fits no name or every
        name.

    Notes
    -----
    The coefficient is min(round(round(1 / round(norm + eps)) * max_norm), 1), as in PyTorch, where a number divided by
    a tensor is the product of the number and the reciprocal. eps and max_norm are rounded to FP32, or to FP64 if the
    norm is in FP64. Each gradient is multiplied by the coefficient, also by
    1.0, and rounded to its format.

    Examples
    --------
    >>> import floatsim as fs
    >>> gradients = {"w": fs.array([3.0, 4.0], "fp32")}
    >>> found = fs.training.clip_by_global_norm(gradients, 1.0)
    >>> found.norm, found.gradients["w"]
    (FloatArray(5.0, FP32), FloatArray([0.599999905, 0.799999833], FP32))
    """
    largest, added = as_positive(max_norm, "max_norm"), as_real(eps, "eps", 0.0)
    check_tensors(gradients, "gradients")
    kept = {name for name in gradients if apart and matches(apart, [name])}
    if apart and not kept:
        raise ValueError(f"apart={apart!r} fits no gradient; {name_hint(apart, gradients)}")
    scaled = {name: gradient for name, gradient in gradients.items() if name not in kept}
    total = global_norm(scaled, accumulate=accumulate, format=format)
    fmt, wide = total.format, inside_format(total.format)
    inverse = divide(array(1.0, fmt), add(total, nearest_number(added, wide), format=fmt), format=fmt)
    coefficient = multiply(inverse, nearest_number(largest, wide), format=fmt)
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
        In the format of weight, with a rounding of both products and of the sum. It can differ from weight. alpha is
        rounded to FP32 first, or to FP64 if weight is in FP64.

    Raises
    ------
    TypeError, ValueError
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
    share, fmt = _alpha(alpha), as_tensor(weight, "weight").format
    kept, fixed = (multiply(weight, nearest_number(x, inside_format(fmt)), format=fmt) for x in (share, 1 - share))
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
    TypeError, ValueError
        For a share that is not from 0 to 1.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.training.shrink_gradient(fs.array([2.0], "fp32"), 0.1)
    FloatArray([0.200000003], FP32)
    """
    fmt = as_tensor(gradient, "gradient").format
    return multiply(gradient, nearest_number(_alpha(alpha), inside_format(fmt)), format=fmt)  # type: ignore[no-any-return]


def _alpha(alpha: float) -> float:
    share = as_real(alpha, "alpha", 0.0)
    if share > 1:
        raise ValueError(f"alpha must be from 0 to 1, not {alpha!r}")
    return share
