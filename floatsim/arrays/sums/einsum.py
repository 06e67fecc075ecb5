"""Sums of products over named indices. Every one is a matrix product or a reduction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from string import ascii_letters
from typing import Any

import numpy as np

from floatsim._types import Codes
from floatsim.arrays.array.conversion import convert, read_floats
from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.array.interop import stays_on_device
from floatsim.arrays.array.operands import deliver
from floatsim.arrays.sums.products import matmul
from floatsim.arrays.sums.reductions import sum as sum_of

__all__ = ["einsum"]

_ELLIPSIS = "..."
_OF_MATMUL = ("c", "beta", "scale_a", "scale_b")


@stays_on_device
def einsum(subscripts: str, *operands: Any, out: Any = None, **options: Any) -> Any:
    """Return a sum of products over named indices, as np.einsum, for one or two operands.

    Two operands are one `fs.matmul`: each element of the result is the sum, over all indices that the result lacks, of
    the products. The terms are ordered by these indices in the order in which the subscripts first name them; the last
    one varies fastest. One operand is one `fs.sum` over the indices that the result lacks. Without such an index its
    elements only move.

    Parameters
    ----------
    subscripts : str
        As in np.einsum: "ij,jk->ik", "bhqd,bhkd->bhqk", "...ij,...jk", "ii->i". Without "->" the result has the
        indices that occur once, in alphabetical order.
    *operands : array_like of floats
        One or two FloatArrays or arrays whose dtype is a format. Their formats may differ.
    out : FloatArray or ndarray, optional
        The array that receives the result. It has the format and the shape of the result.
    **options : accumulate, format, backend, result_rounding and the rounding options
        As in `fs.matmul`, with alpha, for two operands; as in `fs.sum` for one.

    Returns
    -------
    FloatArray or ndarray
        A FloatArray if an input is one, or if the format of the result has no dtype.

    Raises
    ------
    TypeError
        For more than two operands, whose products have no order, and for c, beta, scale_a and scale_b.
    ValueError
        For subscripts that do not fit the operands.

    Notes
    -----
    Stochastic rounding draws for the flat index of the element in the shape (common indices, other indices of the
    first operand, other indices of the second), each group in the order of the subscripts.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> x = np.ones((1, 4096), np.float16)
    >>> fs.einsum("ik,jk->ij", x, x, accumulate="fp16").item(), fs.einsum("ik->", x, accumulate="fp32").item()
    (2048.0, 4096.0)
    """
    if not isinstance(subscripts, str):
        raise TypeError(f"subscripts must be a text such as 'ij,jk->ik', not {type(subscripts).__name__}")
    if len(operands) not in (1, 2):
        raise TypeError(
            f"fs.einsum takes one or two operands, not {len(operands)}; products of more have no order: multiply two, "
            "then their result with the next"
        )
    wrong = [name for name in _OF_MATMUL if options.get(name) is not None]
    if wrong:
        raise TypeError(f"fs.einsum does not take {', '.join(wrong)}; use fs.matmul")
    read = [read_floats(x, f"operand {i + 1}") for i, x in enumerate(operands)]
    float_array = any(is_float_array for _, _, is_float_array in read)
    inputs, result = _parse(subscripts, [codes.ndim for codes, _, _ in read])
    arrays = []
    for (codes, fmt, _), letters in zip(read, inputs, strict=True):
        once = "".join(dict.fromkeys(letters))
        diagonal = np.einsum(f"{letters}->{once}", codes) if once != letters else codes
        arrays.append((FloatArray(diagonal, fmt), once))
    first, *second = arrays
    found = _product(first, second[0], result, options) if second else _summed(*first, result, options)
    return deliver(found.codes, found.format, float_array, out)


def _parse(subscripts: str, ndims: Sequence[int]) -> tuple[list[str], str]:
    """Return the letters of the dimensions of each operand and of the result."""
    left, arrow, result = subscripts.replace(" ", "").partition("->")
    inputs = left.split(",")
    if len(inputs) != len(ndims):
        raise ValueError(f"subscripts {subscripts!r} name {len(inputs)} operands, but there are {len(ndims)}")
    unused = [x for x in ascii_letters if x not in subscripts]
    extra = [ndim - len(text.replace(_ELLIPSIS, "")) for text, ndim in zip(inputs, ndims, strict=True)]
    most = max((n for n, text in zip(extra, inputs, strict=True) if _ELLIPSIS in text), default=0)
    dots = "".join(unused[:most])
    expanded = []
    for i, (text, n) in enumerate(zip(inputs, extra, strict=True)):
        fits = n >= 0 if _ELLIPSIS in text else n == 0
        letters = text.replace(_ELLIPSIS, dots[most - n :] if n > 0 else "", 1)
        if not fits or not (letters == "" or (letters.isascii() and letters.isalpha())):
            raise ValueError(f"subscripts {text!r} do not fit operand {i + 1}, which has {ndims[i]} dimensions")
        expanded.append(letters)
    every = "".join(expanded)
    if not arrow:
        return expanded, dots + "".join(x for x in sorted(set(every) - set(dots)) if every.count(x) == 1)
    result = result.replace(_ELLIPSIS, dots, 1)
    if len(set(result)) != len(result) or not set(result) <= set(every):
        raise ValueError(f"the result of subscripts {subscripts!r} names an index twice, or one that no operand has")
    return expanded, result


def _summed(x: FloatArray, letters: str, result: str, options: dict[str, Any]) -> FloatArray:
    """Return the sums of one operand over the letters that the result lacks."""
    kept = [i for i, letter in enumerate(letters) if letter in result]
    if len(kept) == len(letters):
        fmt = options.get("format")
        moved = x if fmt is None else convert(x, fmt)
    else:
        moved = sum_of(x, axis=tuple(i for i in range(len(letters)) if i not in kept), **options)
    order = [letters[i] for i in kept]
    return FloatArray(np.asarray(moved.codes).transpose([order.index(letter) for letter in result]), moved.format)


def _product(
    a: tuple[FloatArray, str], b: tuple[FloatArray, str], result: str, options: dict[str, Any]
) -> FloatArray:  # fmt: skip
    """Return the matrix product of two operands, in the order of the result's letters."""
    sizes: dict[str, int] = {}
    for x, letters in (a, b):
        for letter, n in zip(letters, x.shape, strict=True):
            if sizes.setdefault(letter, n) != n:
                if 1 not in (n, sizes[letter]):
                    raise ValueError(f"index {letter!r} has the sizes {sizes[letter]} and {n}")
                sizes[letter] = max(n, sizes[letter]) if 0 not in (n, sizes[letter]) else 0
    summed = [x for x in dict.fromkeys(a[1] + b[1]) if x not in result]
    common = [x for x in a[1] if x in b[1] and x in result]
    rows = [x for x in a[1] if x in result and x not in common]
    columns = [x for x in b[1] if x in result and x not in common]
    groups = ([common] if common else [], rows, columns)

    def arranged(x: FloatArray, letters: str, *wanted: list[str]) -> FloatArray:
        order = [letter for group in wanted for letter in group]
        here = x.codes.transpose([letters.index(letter) for letter in order if letter in letters])
        gaps = tuple(i for i, letter in enumerate(order) if letter not in letters)
        spread: Codes = np.broadcast_to(np.expand_dims(here, gaps), [sizes[letter] for letter in order])
        return FloatArray(spread.reshape([math.prod(sizes[y] for y in group) for group in wanted]), x.format)

    found = matmul(arranged(*a, *groups[0], rows, summed), arranged(*b, *groups[0], summed, columns), **options)
    order = [*common, *rows, *columns]
    codes = found.codes.reshape([sizes[letter] for letter in order])
    return FloatArray(codes.transpose([order.index(letter) for letter in result]), found.format)
