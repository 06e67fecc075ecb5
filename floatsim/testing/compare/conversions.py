"""Comparisons of a conversion with its emulation: casts to a format, and quantizations in blocks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np

from floatsim.arrays.array.conversion import as_float_array
from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.array.interop import widened
from floatsim.arrays.array.types import Floats
from floatsim.arrays.call.options import RoundingKeywords, resolve
from floatsim.arrays.call.random_sources import RandomGenerator
from floatsim.arrays.call.random_stream import RandomStream
from floatsim.formats import FloatFormat, FormatLike, as_format
from floatsim.formats._validation import as_flag
from floatsim.formats.rounding import OverflowLike, Rounding, RoundingLike, TininessLike
from floatsim.quantization import IntegerFormat, LookupFormat, Quantized, Scheme, as_scheme
from floatsim.quantization.scheme import SCHEMES, SchemeLike
from floatsim.testing.compare.block_faults import BlockConversion, explain_blocks, of_blocks
from floatsim.testing.compare.conversion_faults import Conversion, explain_conversion
from floatsim.testing.compare.listeners import checked
from floatsim.testing.compare.operands import in_format
from floatsim.testing.compare.patterns import OF_STORAGE, explain_arrays
from floatsim.testing.compare.report import Report, differing, report_of
from floatsim.testing.quantizers.identification import quantizer_by_rule

__all__ = ["assert_conversion", "compare_conversion"]

_UNKNOWN = "no known fault of a conversion gives these bits"
_OF_CASTS = ("overflow", "daz", "ftz", "tininess")


def compare_conversion(
    actual: Any, x: Floats, format: FormatLike | SchemeLike, *, rounding: RoundingLike | None = None,
    overflow: OverflowLike | None = None, daz: bool | None = None, ftz: bool | None = None,
    tininess: TininessLike | None = None, seed: int | RandomGenerator | None = None, random_bits: int | None = None,
    scale: Floats | None = None, zero_point: Any = None, equal_nan: bool = False,
) -> Report:  # fmt: skip
    """Return the report of a comparison of a cast, or of a quantization in blocks, with its emulation.

    The report names a fault where it finds one: another rounding mode, a format on the way (double rounding), another
    overflow policy, another rule for NaN and infinities, FTZ and DAZ, a wrong exponent bias or format of the codes, a
    wrong factor, a dropped carry, the order of nibbles or bytes; of blocks, another rule of the scale, a scale that is
    one step off, and any other quantizer that `fs.identify_quantizer` finds. A fault is named only if the emulated
    conversion with it has the bits of `actual` in all elements.
    Up to three faults with equal bits on these inputs are named, with "or" between them.

    Parameters
    ----------
    actual : array_like of floats, or Quantized
        The result of the kernel: a FloatArray, an array whose dtype is the format, or an array of unsigned integers
        that holds codes. Of a scheme: a `Quantized`, or the codes of the elements alone.
    x : array_like of floats, in the shape of `actual`
        The source of the conversion.
    format : format or Scheme
        The format of the result; or a scheme such as "mxfp8", or an integer or lookup format, as in
        `fs.quantize_blocks`.
    rounding : Rounding or str, optional
        The rounding mode of the kernel. Default: the context's.
    overflow, daz, ftz, tininess : optional
        The other keywords of `fs.convert`; not for schemes.
    seed : int or generator, optional
        Of stochastic rounding. With a generator, such as `fs.Philox(42)`, the draws are those of a kernel that has it.
    random_bits : int, optional
        Of stochastic rounding.
    scale, zero_point : array_like, optional
        The scales and zero points of a scheme, as in `fs.quantize_blocks`.
    equal_nan : bool
        Whether a NaN equals every NaN. Otherwise NaNs are equal if their bits are.

    Returns
    -------
    Report
        Of a scheme, with the values of codes and scales. An element differs if its code or its scale does.

    Raises
    ------
    TypeError
        If `actual` or x holds no floats, for codes of another width, for keywords that are not for the format, and
        for a seed that is a RandomStream.
    ValueError
        For unknown names, and for codes that the format does not have.
    AssertionError
        If the shape of `actual` is not that of x.

    Examples
    --------
    >>> import numpy as np
    >>> import floatsim as fs
    >>> x = np.random.default_rng(0).uniform(-448, 448, 4096).astype(np.float32)
    >>> kernel = fs.array(fs.convert(x, "fp16"), "e4m3")  # FP32 to E4M3 in two steps
    >>> print(fs.testing.compare_conversion(kernel, x, "e4m3").explanation)
    x is first rounded to FP16: two roundings; or x is first rounded to TF32: two roundings
    >>> x = np.random.default_rng(0).standard_normal((32, 256)).astype(np.float32)
    >>> q = fs.quantize_blocks(x, "te_mxfp8")
    >>> print(fs.testing.compare_conversion(q, x, "mxfp8").explanation)
    the scales follow rule='rceil', not 'floor'
    """
    same_nan = as_flag(equal_nan, "equal_nan")
    keywords = {
        "rounding": rounding, "overflow": overflow, "daz": daz, "ftz": ftz, "tininess": tininess, "seed": seed,
        "random_bits": random_bits,
    }  # fmt: skip
    given = {name: value for name, value in keywords.items() if value is not None}
    if isinstance(seed, RandomStream):
        raise TypeError(f"seed must be an integer, or a generator such as fs.Philox(42): they repeat the draws of the "
                        f"kernel, and {seed!r} does not")  # fmt: skip
    of_blocks_only = {
        name: value for name, value in (("scale", scale), ("zero_point", zero_point)) if value is not None
    }
    scheme = _scheme_of(format, bool(of_blocks_only))
    unsuitable = [name for name in given if name in _OF_CASTS] if scheme is not None else list(of_blocks_only)
    if unsuitable:
        kinds = ("a cast", "a scheme") if scheme is not None else ("a scheme", "a cast")
        raise TypeError(f"{unsuitable[0]} is a keyword of {kinds[0]}; format={format!r} is {kinds[1]}")
    if scheme is not None:
        return _compare_blocks(actual, BlockConversion(as_float_array(x, "x"), scheme, {**given, **of_blocks_only}))
    return _compare_cast(actual, x, as_format(cast("FormatLike", format)), given, same_nan)


def assert_conversion(actual: Any, x: Floats, format: FormatLike | SchemeLike, **options: Any) -> Report:
    """Assert that a cast, or a quantization in blocks, has the bits of its emulation.

    Parameters
    ----------
    actual : array_like of floats, or Quantized
        The result of the kernel.
    x : array_like of floats, in the shape of `actual`
        The source of the conversion.
    format : format or Scheme
        The format of the result, or a scheme such as "mxfp8".
    **options
        The keywords of `fs.testing.compare_conversion`.

    Returns
    -------
    Report

    Raises
    ------
    AssertionError
        If an element differs, or the shapes do. The message is the report of `compare_conversion`.
    TypeError, ValueError
        As `compare_conversion`.

    Examples
    --------
    >>> import numpy as np
    >>> import floatsim as fs
    >>> x = np.float32([0.1, 300.0])
    >>> assert_conversion(fs.encode(x, "e4m3"), x, "e4m3")
    all 2 elements of E4M3 pass: every bit is equal, against the conversion from FP32 to E4M3
    """
    __tracebackhide__ = True
    return checked(compare_conversion(actual, x, format, **options))


def _scheme_of(format: Any, with_scales: bool) -> Scheme | None:
    """Return the scheme that `format` is or names; None for a floating-point format."""
    if isinstance(format, Scheme | IntegerFormat | LookupFormat):
        return as_scheme(format)
    if isinstance(format, str):
        name = format.strip().lower().replace("-", "_").replace(".", "_")
        if name in SCHEMES or with_scales:
            return as_scheme(format)
        try:
            as_format(format)
        except ValueError:
            return as_scheme(format)
    return None


def _compare_cast(actual: Any, x: Any, fmt: Any, given: dict[str, Any], equal_nan: bool) -> Report:
    attributes = resolve(cast("RoundingKeywords", given)).attributes  # type: ignore[arg-type]
    options: dict[str, Any] = {
        "rounding": attributes.rounding, "overflow": attributes.overflow, "daz": attributes.daz, "ftz": attributes.ftz,
        "tininess": attributes.tininess,
    }  # fmt: skip
    if attributes.rounding is Rounding.STOCHASTIC:
        options |= {name: given[name] for name in ("seed", "random_bits") if name in given}
    source = as_float_array(x, "x")
    got = in_format(as_float_array(actual, "actual", fmt), fmt, "actual")
    if got.shape != source.shape:
        raise AssertionError(f"the shapes differ: actual {got.shape}, x {source.shape}")
    conversion = Conversion(source, fmt, options)
    desired = conversion.result
    alike = ", or both are NaN" if equal_nan else ""
    rule = f"every bit is equal{alike}, against the conversion from {source.format.name} to {fmt.name}"
    differs = differing(got, desired, equal_nan)
    why = _why(explain_conversion(conversion, got, differs), got, desired, differs) if differs.any() else None
    return report_of(rule, got, desired, differs, why)


def _why(fault: str | None, actual: FloatArray, desired: FloatArray, differs: Any) -> str:
    """Return a fault of the conversion, or a pattern of wrong storage, or that none is known."""
    return fault or explain_arrays(actual, desired, differs, OF_STORAGE) or _UNKNOWN


def _compare_blocks(actual: Any, x: BlockConversion) -> Report:
    desired = x.result()
    found = actual if isinstance(actual, Quantized) else _with_codes(actual, desired)
    if found.format != desired.format:
        raise TypeError(f"actual has elements of {found.format.name}, the scheme has {desired.format.name}")
    if found.shape != desired.shape or found.scales.shape != desired.scales.shape:
        raise AssertionError(
            f"the shapes differ: actual {found.shape} with scales {found.scales.shape}, the quantization "
            f"{desired.shape} with scales {desired.scales.shape}"
        )
    found = replace(found, scales=in_format(found.scales, desired.scales.format, "the scales of actual"))
    values = desired.dequantize(), found.dequantize(desired.arithmetic)
    scales = np.asarray(found.scales.codes != desired.scales.codes)
    if desired.zero_points is not None and found.zero_points is not None:
        scales = scales | (desired.zero_points != found.zero_points)
    differs = np.asarray(found.codes != desired.codes) | of_blocks(x.scheme, desired.shape, scales)
    rule = f"equal codes and scales, against the quantization to {x.scheme.format.name}, rule {x.scheme.rule!r}"
    if not differs.any():
        return report_of(rule, values[1], values[0], differs)
    fault = explain_blocks(x, desired, found, codes_only=not isinstance(actual, Quantized))
    if fault is None or "off by one step" in fault:  # another rule changes the scales by one step, too
        fault = "; or ".join(text for text in (fault, _other_quantizer(x, found)) if text) or None
    why = _why(fault, values[1], values[0], differs)
    return report_of(rule, values[1], values[0], differs, why)


_PROPERTIES = (
    "tensor_scale", "scale", "scale_rounding", "factor", "zero_point", "zero_point_added", "rounding", "clipping",
)  # fmt: skip
_USUAL = {
    "scale_rounding": {"", "ties_to_even"}, "rounding": {"", "ties_to_even"},
    "clipping": {"", "saturates", "full range"},
}  # fmt: skip
"""The values of these properties are named if the usual ones are not among them, also if the data leave several."""


def _other_quantizer(x: BlockConversion, found: Quantized) -> str | None:
    """Return the quantizer whose codes and scales the result has, as far as the data tell, or None."""
    if found.nested is not None or not x.x.size:
        return None
    other = quantizer_by_rule(found, x.x)
    if other is None:
        return None
    names = f"{' or '.join(other.names)}: " if other.names else ""
    found_values = {name: other.values(name) for name in _PROPERTIES}
    told = ", ".join(
        f"{name} = {' or '.join(map(repr, values))}" for name, values in found_values.items()
        if values != ("",) and (
            not _USUAL[name] & set(values) if name in _USUAL else len(values) == 1
        )
    )  # fmt: skip
    return f"another quantizer: {names}{'; '.join([told, *other.deviations])}"


def _with_codes(actual: Any, desired: Quantized) -> Quantized:
    """Return the codes of a kernel with the emulated scales."""
    fmt = desired.format
    if isinstance(fmt, FloatFormat):
        codes = in_format(as_float_array(actual, "actual", fmt), fmt, "actual").codes
    else:
        codes = widened(np.asarray(actual))
        if codes.dtype.kind not in "iu":
            raise TypeError(f"actual has dtype {codes.dtype}; codes of {fmt.name} are integers")
    if codes.shape != desired.shape:
        raise AssertionError(f"the shapes differ: actual {codes.shape}, x {desired.shape}")
    return replace(desired, codes=codes)
