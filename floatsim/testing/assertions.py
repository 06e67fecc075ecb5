"""Assertions on results: equal bits, distances in ulps, and products with a description of their sums.

Every assertion returns its report, and raises an AssertionError with the text of the report.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from floatsim.accumulation import AccumulationLike
from floatsim.arrays.array.conversion import as_float_array
from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.elementwise.ulps import ulp_distance
from floatsim.formats import FormatLike, as_format
from floatsim.formats._validation import as_flag, as_index
from floatsim.formats.rounding import RoundingLike
from floatsim.testing.bounds.bound_report import BoundReport, check_bound
from floatsim.testing.bounds.bounds import error_bound
from floatsim.testing.compare.conversion_faults import Conversion, explain_conversion
from floatsim.testing.compare.descriptions import brief, neighbours, promoted_units
from floatsim.testing.compare.faults import explain_product
from floatsim.testing.compare.input_strength import described, input_strength, matching, not_excluded
from floatsim.testing.compare.listeners import checked
from floatsim.testing.compare.operands import in_format, read_pair
from floatsim.testing.compare.patterns import explain_arrays
from floatsim.testing.compare.product import Product, product_of
from floatsim.testing.compare.report import Report, differing, report_of

__all__ = [
    "assert_bit_equal", "assert_max_ulp", "assert_product", "assert_within_bound", "compare_arrays", "compare_product",
]  # fmt: skip

_BITS = "every bit is equal"


def _within(actual: FloatArray, desired: FloatArray, maxulp: int, equal_nan: bool) -> tuple[str, Any]:
    """Return the rule in words, and the elements that break it."""
    if maxulp == 0:
        return _BITS + (", or both are NaN" if equal_nan else ""), differing(actual, desired, equal_nan)
    far = differing(actual, desired, False)
    if far.any():
        far = np.asarray(ulp_distance(actual, desired, equal_nan=equal_nan)) > maxulp
        if not equal_nan:  # NaNs with equal bits are equal
            far &= actual.codes != desired.codes
    return f"at most {maxulp} ulp{'s' * (maxulp > 1)} of {actual.format.name}", far


def compare_arrays(
    actual: Any, desired: Any, maxulp: int = 0, format: FormatLike | None = None, *, equal_nan: bool = False
) -> Report:
    """Return the report of a comparison of two arrays, element by element.

    Parameters
    ----------
    actual, desired : array_like of floats, of one shape
        FloatArrays, or arrays of NumPy, ml_dtypes, torch, JAX or CuPy. Arrays of unsigned integers hold codes of
        `format`.
    maxulp : int
        The largest accepted distance in ulps; 0 compares all bits, also the signs of zeros.
    format : format, optional
        The format of the comparison. Default: the format of `actual`. All values must be numbers of it.
    equal_nan : bool
        Whether a NaN equals every NaN. Otherwise NaNs are equal if their bits are.

    Returns
    -------
    Report

    Raises
    ------
    TypeError
        If an array holds no floats, or values that are no numbers of the format.
    AssertionError
        If the shapes differ.

    Examples
    --------
    >>> import numpy as np
    >>> import floatsim as fs
    >>> actual, desired = fs.array(np.ones((64, 64)), "bf16"), fs.array(np.ones((64, 64)), "bf16")
    >>> actual[:, 17] = 0
    >>> print(compare_arrays(actual, desired))
    64 of 4096 elements (1.56 %) fail: every bit is equal
    64 of 4096 elements differ (98.4375 % are equal); ulps of BF16: max 16256, p99 16256; equal: 4032, 8193-16384: 64
    where: column 17: 64 of its 64 elements
      [0, 17] actual 0 = 0x0000, desired 1 = 0x3F80: 16256 ulps
      [1, 17] actual 0 = 0x0000, desired 1 = 0x3F80: 16256 ulps
      [2, 17] actual 0 = 0x0000, desired 1 = 0x3F80: 16256 ulps
      [3, 17] actual 0 = 0x0000, desired 1 = 0x3F80: 16256 ulps
      [4, 17] actual 0 = 0x0000, desired 1 = 0x3F80: 16256 ulps
    likeliest explanation: actual is 0 there: these elements were not written, or no product was added
    """
    most = as_index(maxulp, "maxulp", 0, 1 << 62)
    got, expected = read_pair(actual, desired, format)
    rule, differs = _within(got, expected, most, as_flag(equal_nan, "equal_nan"))
    return report_of(rule, got, expected, differs)


def assert_bit_equal(actual: Any, desired: Any, format: FormatLike | None = None, *, equal_nan: bool = False) -> Report:
    """Assert that two arrays are equal in every bit, the signs of zeros included.

    Parameters
    ----------
    actual, desired : array_like of floats, of one shape
        FloatArrays, or arrays of NumPy, ml_dtypes, torch, JAX or CuPy. Arrays of unsigned integers hold codes of
        `format`.
    format : format, optional
        The format of the comparison. Default: the format of `actual`. All values must be numbers of it.
    equal_nan : bool
        Whether a NaN equals every NaN. Otherwise NaNs are equal if their bits are.

    Returns
    -------
    Report

    Raises
    ------
    AssertionError
        If a bit or the shapes differ. The message has the number of mismatches, their place, the first ones with both
        values and codes, and the likeliest explanation.
    TypeError
        If an array holds no floats, or values that are no numbers of the format.

    Examples
    --------
    >>> import numpy as np
    >>> import floatsim as fs
    >>> assert_bit_equal(np.float32([1.0, 2.0]), np.float32([1.0, 2.0]))
    all 2 elements of FP32 pass: every bit is equal
    >>> assert_bit_equal(np.float16([0.0]), np.float16([-0.0]))
    Traceback (most recent call last):
    AssertionError: 1 of 1 elements (100 %) fail: every bit is equal
    1 of 1 elements differ (0 % are equal); ulps of FP16: max 0, p99 0; 0, other bits: 1
      [0] actual 0 = 0x0000, desired -0 = 0x8000: 0 ulps
    likeliest explanation: only the signs of zeros differ
    """
    __tracebackhide__ = True
    return checked(compare_arrays(actual, desired, 0, format, equal_nan=equal_nan))


def assert_max_ulp(
    actual: Any, desired: Any, maxulp: int = 1, format: FormatLike | None = None, *, equal_nan: bool = True
) -> Report:
    """Assert that two arrays differ by at most `maxulp` units in the last place, in any format.

    Parameters
    ----------
    actual, desired : array_like of floats, of one shape
        FloatArrays, or arrays of NumPy, ml_dtypes, torch, JAX or CuPy. Arrays of unsigned integers hold codes of
        `format`.
    maxulp : int
        The largest accepted distance: the number of steps between neighbouring numbers of the format. +0 and -0 are 0
        apart. A NaN and a number are too far apart for every `maxulp`.
    format : format, optional
        The format whose steps are counted. Default: the format of `actual`. All values must be numbers of it.
    equal_nan : bool
        Whether a NaN equals every NaN.

    Returns
    -------
    Report

    Raises
    ------
    AssertionError
        If an element is further away, or the shapes differ.
    TypeError
        If an array holds no floats, or values that are no numbers of the format.

    Examples
    --------
    >>> import floatsim as fs
    >>> assert_max_ulp(fs.array([1.0, 2.0], "bf16"), fs.array([1.0, 2.015625], "bf16"))
    all 2 elements of BF16 pass: at most 1 ulp of BF16
    """
    __tracebackhide__ = True
    return checked(compare_arrays(actual, desired, maxulp, format, equal_nan=equal_nan))


def compare_product(
    actual: Any, a: Any, b: Any, c: Any = None, *, accumulate: AccumulationLike, format: FormatLike | None = None,
    maxulp: int = 0, equal_nan: bool = False, unlike: AccumulationLike | Iterable[AccumulationLike] = (),
    **options: Any,
) -> Report:  # fmt: skip
    """Return the report of a comparison of a matrix product with its emulation.

    The report names a fault where it finds one: products of some k that are missing or read from a neighbour, or
    another description that gives the bits of `actual`. It also lists the descriptions that these inputs cannot tell
    from the given one.

    Parameters
    ----------
    actual : array_like of floats, (..., M, N)
        The result of the kernel. Its format is the format of the result, unless `format` is given.
    a, b : array_like of floats, (..., M, K) and (..., K, N)
        The operands, in their own formats.
    c : array_like of floats, optional
        The accumulator at the start, broadcast to the shape of the result.
    accumulate : accumulation or text
        The description of the sums: "fp32", "hopper", "blocked(hopper, 128, fp32)".
    format : format, optional
        The format of the result. Default: the format of `actual`.
    maxulp : int
        The largest accepted distance in ulps.
    equal_nan : bool
        Whether a NaN equals every NaN.
    unlike : accumulation or text, or several
        Descriptions that the inputs must exclude.
    **options
        Other keywords of `fs.matmul`, such as `rounding`, `overflow`, `result_rounding`, `scale_a`, `scale_b`.

    Returns
    -------
    Report

    Raises
    ------
    TypeError, ValueError
        For operands that `fs.matmul` does not take.
    AssertionError
        If the shape of `actual` is not that of the product.

    Examples
    --------
    >>> import numpy as np
    >>> import floatsim as fs
    >>> rng = np.random.default_rng(0)
    >>> a, b = fs.array(rng.standard_normal((16, 64)), "bf16"), fs.array(rng.standard_normal((64, 16)), "bf16")
    >>> report = compare_product(fs.matmul(a, b, accumulate="pairwise(fp32)"), a, b, accumulate="fp32")
    >>> report.explanation
    'actual has the bits of pairwise(fp32)'
    """
    product, excluded = product_of(a, b, c, accumulate, None, options), described(unlike, "unlike")
    got = as_float_array(actual, "actual", format)
    if format is not None:
        got = in_format(got, as_format(format), "actual")
    desired = product.result(format=got.format)
    if got.shape != desired.shape:
        raise AssertionError(f"actual has the shape {got.shape}, the product {desired.shape}")
    rule, differs = _within(got, desired, as_index(maxulp, "maxulp", 0, 1 << 62), as_flag(equal_nan, "equal_nan"))
    rule = f"{rule}, against {brief(product.accumulate)}"
    if differs.any():
        return report_of(rule, got, desired, differs, _explained(product, got, desired, differs))
    if desired.codes.size == 0:  # such as the batch of an expert without tokens: nothing tells descriptions apart
        return report_of(rule, got, desired, differs, unlike=tuple(map(brief, excluded)))
    strength = input_strength(product, desired, excluded)
    return report_of(rule, got, desired, differs, strength=strength, unlike=not_excluded(strength, excluded))


_TRIED = (
    "another rounding, or another order or width of the sums than those that were tried; fs.identify calls the kernel "
    "and searches for it"
)


def _explained(product: Product, actual: FloatArray, desired: FloatArray, differs: Any) -> str | None:
    """Return the explanation of mismatches: another description, a fault in some k, or what the two arrays show."""
    formats = product.a.format, product.b.format
    near = neighbours(product.accumulate, *formats, product.k)
    for descriptions in (near, promoted_units(*formats, product.k)):
        found = matching(product, actual, [each for each in descriptions if product.takes(each)])
        if found:
            return f"actual has the bits of {' or '.join(map(brief, found[:3]))}"
    return (
        explain_product(product, actual, differs)
        or _of_conversion(product, actual, desired, differs)
        or explain_arrays(actual, desired, differs, roundings=_TRIED)
    )


_OF_RESULT = ("overflow", "ftz", "daz", "tininess")  # keywords of `fs.matmul` and of the conversion of its result


def _of_conversion(product: Product, actual: FloatArray, desired: FloatArray, differs: Any) -> str | None:
    """Return a fault of the conversion of the described sums to the format of the result, or None."""
    sums, fmt = product.result(), actual.format
    if sums.format.bits <= fmt.bits or (np.asarray(ulp_distance(actual, desired, equal_nan=True))[differs] > 1).any():
        return None
    options = {name: product.options[name] for name in _OF_RESULT if name in product.options}
    rounding = product.options.get("result_rounding") or product.options.get("rounding")
    conversion = Conversion(sums, fmt, options if rounding is None else {**options, "rounding": rounding})
    if not np.array_equal(conversion.result.codes, desired.codes):  # the sum has one rounding, to the result
        return None
    fault = explain_conversion(conversion, actual, differs)
    return None if fault is None else f"the conversion of the sums from {sums.format.name} to {fmt.name}: {fault}"


def assert_product(
    actual: Any, a: Any, b: Any, c: Any = None, *, accumulate: AccumulationLike, format: FormatLike | None = None,
    maxulp: int = 0, equal_nan: bool = False, unlike: AccumulationLike | Iterable[AccumulationLike] = (),
    **options: Any,
) -> Report:  # fmt: skip
    """Assert that a matrix product has the bits of its emulation, on inputs that exclude other descriptions.

    Parameters
    ----------
    actual : array_like of floats, (..., M, N)
        The result of the kernel. Its format is the format of the result, unless `format` is given.
    a, b : array_like of floats, (..., M, K) and (..., K, N)
        The operands, in their own formats.
    c : array_like of floats, optional
        The accumulator at the start, broadcast to the shape of the result.
    accumulate : accumulation or text
        The description of the sums: "fp32", "hopper", "blocked(hopper, 128, fp32)".
    format : format, optional
        The format of the result. Default: the format of `actual`.
    maxulp : int
        The largest accepted distance in ulps.
    equal_nan : bool
        Whether a NaN equals every NaN.
    unlike : accumulation or text, or several
        Descriptions that the inputs must exclude. The assertion fails if one of them gives the same bits.
    **options
        Other keywords of `fs.matmul`, such as `rounding`, `overflow`, `result_rounding`, `scale_a`, `scale_b`.

    Returns
    -------
    Report
        `report.strength` lists the descriptions that the inputs do not exclude.

    Raises
    ------
    AssertionError
        If an element differs, or the inputs do not exclude a description of `unlike`.
    TypeError, ValueError
        For operands that `fs.matmul` does not take.

    Examples
    --------
    >>> import numpy as np
    >>> import floatsim as fs
    >>> a, b = fs.array(np.ones((4, 64)), "bf16"), fs.array(np.ones((64, 4)), "bf16")
    >>> kernel = fs.matmul(a, b, accumulate="pairwise(fp32)")
    >>> report = assert_product(kernel, a, b, accumulate="fp32")  # ones do not tell orders apart
    >>> "pairwise(fp32)" in report.strength.same
    True
    >>> assert_product(kernel, a, b, accumulate="fp32", unlike=["pairwise(fp32)"])
    Traceback (most recent call last):
    AssertionError: all 16 elements of FP32 pass: every bit is equal, against fp32
    too weak: these inputs cannot tell fp32 from pairwise(fp32) (unlike=)
    """
    __tracebackhide__ = True
    return checked(
        compare_product(
            actual, a, b, c, accumulate=accumulate, format=format, maxulp=maxulp, equal_nan=equal_nan, unlike=unlike,
            **options,
        )
    )  # fmt: skip


def assert_within_bound(
    actual: Any, a: Any, b: Any, c: Any = None, *, accumulate: AccumulationLike = "fp32",
    format: FormatLike | None = None, rounding: RoundingLike = "ties_to_even", probability: float | None = None,
) -> BoundReport:  # fmt: skip
    """Assert that a matrix product is as accurate as its description guarantees, whatever the order of its sums.

    Parameters
    ----------
    actual : array_like of floats, (..., M, N)
        The result of the kernel.
    a, b : array_like of floats, (..., M, K) and (..., K, N)
        The operands.
    c : array_like of floats, optional
        The accumulator at the start.
    accumulate : accumulation or text
        The description of the sums. "fp32" has the longest path of all orders in FP32.
    format : format, optional
        The format of codes, if `actual` holds codes.
    rounding : Rounding or str
        The rounding mode of the sums and of the result.
    probability : float, optional
        The probability that a correct kernel passes, for the bound that grows with sqrt(K). Default: it always does.

    Returns
    -------
    BoundReport

    Raises
    ------
    AssertionError
        If an element is further from the exact result than the bound.
    ValueError
        If the description has no bound (see `error_bound`).

    Examples
    --------
    >>> import numpy as np
    >>> import floatsim as fs
    >>> a, b = fs.array(np.ones((4, 64)), "bf16"), fs.array(np.ones((64, 4)), "bf16")
    >>> assert_within_bound(fs.matmul(a, b, accumulate="pairwise(fp32)"), a, b).passed
    True
    """
    __tracebackhide__ = True
    got = as_float_array(actual, "actual", format)
    bound = error_bound(a, b, c, accumulate=accumulate, format=got.format, rounding=rounding, probability=probability)
    return checked(check_bound(got, bound))
