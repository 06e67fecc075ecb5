"""Faults of block quantization: other rules of the scale, scales that are one step off, and codes in another order.

A fault is named only if the emulated quantization with it has the codes and the scales of `actual` in all blocks.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from floatsim._warnings import FloatsimWarning
from floatsim.arrays.array.float_array import FloatArray
from floatsim.formats import FloatFormat
from floatsim.formats.rounding import Rounding
from floatsim.quantization import IntegerFormat, LookupFormat, Quantized, Scheme, quantize_blocks
from floatsim.quantization.scheme import FACTORS, RULES, layout
from floatsim.testing.compare.conversion_faults import nibbles_swapped

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["BlockConversion", "explain_blocks"]

_LISTED = 3
_OPTIONS = ("rounding", "seed", "random_bits")


@dataclass(frozen=True)
class BlockConversion:
    """The quantization of x in blocks.

    Attributes
    ----------
    x : FloatArray
        The tensor.
    scheme : Scheme
        How it is quantized.
    options : dict
        The keywords of `quantize_blocks` that are no fields of the scheme.
    """

    x: FloatArray
    scheme: Scheme
    options: dict[str, Any]

    def result(self, *, options: dict[str, Any] | None = None, **changes: Any) -> Quantized:
        """Return the emulated quantization, with other fields of the scheme, or with more keywords."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FloatsimWarning)
            return quantize_blocks(self.x, replace(self.scheme, **changes), **{**self.options, **(options or {})})


def _equal(found: Quantized, actual: Quantized) -> bool:
    return (
        np.array_equal(found.codes, actual.codes)
        and np.array_equal(found.scales.codes, actual.scales.codes)
        and (found.zero_points is None or np.array_equal(found.zero_points, cast("Any", actual.zero_points)))
    )


def of_blocks(scheme: Scheme, shape: tuple[int, ...], scales: NDArray[Any]) -> NDArray[Any]:
    """Return one number for each element: that of its block."""
    if scheme.block == "tensor":
        return np.broadcast_to(scales, shape)
    height, width = scheme.block
    matrix = shape if len(shape) > 1 else (1, *shape)
    grid = scales.reshape((*matrix[:-2], *scales.shape[-2:])) if len(shape) > 1 else scales.reshape(1, -1)
    rows = np.arange(matrix[-2]) // (height or max(matrix[-2], 1))
    columns = np.arange(matrix[-1]) // (width or max(matrix[-1], 1))
    spread: NDArray[Any] = grid[..., rows, :][..., columns].reshape(shape)
    return spread


# -- candidates --------------------------------------------------------------------------------------------------------

Attempt = tuple[str, Callable[[], "Quantized | None"]]


def _other_schemes(x: BlockConversion) -> Iterator[Attempt]:
    """Yield other rules, factors, rounding modes and blocks. An attempt may raise a ValueError."""
    scheme = x.scheme
    if "scale" not in x.options:
        for rule, kinds in RULES.items():
            if isinstance(scheme.format, kinds) and rule != scheme.rule:
                yield f"the scales follow rule={rule!r}, not {scheme.rule!r}", partial(x.result, rule=rule)
    for factor in FACTORS:
        if factor != scheme.factor:
            text = f"the elements are scaled with factor={factor!r}, not {scheme.factor!r}"
            yield text, partial(x.result, factor=factor)
    if not isinstance(scheme.format, LookupFormat):
        given = x.options.get("rounding", Rounding.TIES_TO_EVEN)
        for mode in Rounding:
            if mode not in (given, Rounding.STOCHASTIC):
                text = f"the elements are rounded with rounding={mode.name.lower()!r}"
                kept = replace(x, options={k: v for k, v in x.options.items() if k not in _OPTIONS})
                yield text, partial(kept.result, options={"rounding": mode})
    yield "the blocks lie along the other axis", lambda: _transposed(x)


def _transposed(x: BlockConversion) -> Quantized | None:
    """Return the quantization along the other axis, if it has as many blocks."""
    shape = x.x.shape
    if len(shape) < 2 or "scale" in x.options or x.scheme.block == "tensor":
        return None
    found = replace(x, x=FloatArray(_turned(x.x.codes), x.x.format)).result()
    expected = layout(x.scheme, shape).scale_shape
    if found.scales.size != np.prod(expected):
        return None
    scales = FloatArray(_turned(found.scales.codes).reshape(expected), found.scales.format)
    return Quantized(_turned(found.codes), scales, x.scheme, arithmetic=found.arithmetic)


def _turned(codes: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(np.swapaxes(codes, -1, -2))


def _swapped(x: BlockConversion, desired: Quantized) -> Quantized | None:
    codes = nibbles_swapped(desired.codes, x.scheme.format.bits)
    return None if codes is None else replace(desired, codes=codes)


def _stepped(scales: FloatArray, step: int) -> FloatArray | None:
    """Return the scales one number of their format higher or lower."""
    codes = scales.codes.astype(np.int64) + step
    if (codes < 0).any() or (codes > scales.format.max_code).any():
        return None
    return FloatArray(codes.astype(scales.codes.dtype), scales.format)


def _scale_steps(x: BlockConversion, desired: Quantized, actual: Quantized) -> str | None:
    """Return a text if the scales of some blocks are one step off, in the codes, in what is stored, or in both."""
    if desired.nested is not None:
        return None
    found: dict[int, NDArray[np.bool_]] = {}
    stored_right = np.array_equal(actual.scales.codes, desired.scales.codes)
    codes_right = np.array_equal(actual.codes, desired.codes)
    for step in (1, -1):
        moved = _stepped(desired.scales, step)
        if moved is None:
            continue
        if codes_right:
            found[step] = np.asarray(actual.scales.codes == moved.codes)
            continue
        with_scale = _with_scale(x, desired, moved)
        if with_scale is None:
            continue
        of_codes = _whole_blocks(x.scheme, with_scale.codes == actual.codes, desired.scales)
        stored = np.asarray(actual.scales.codes == moved.codes)
        found[step] = of_codes & (stored if not stored_right else np.ones_like(stored))
    right = _whole_blocks(x.scheme, desired.codes == actual.codes, desired.scales)
    right &= np.asarray(actual.scales.codes == desired.scales.codes)
    if not found or not (right | np.any(list(found.values()), axis=0)).all():
        return None
    counts = {step: int((places & ~right).sum()) for step, places in found.items()}
    words = [
        f"{'every block' if n == right.size else f'{n} of {right.size} blocks'} one step of "
        f"{desired.scales.format.name} {'too large' if step > 0 else 'too small'}"
        for step, n in counts.items() if n
    ]  # fmt: skip
    what = (
        "the stored scale is" if codes_right else "the codes are computed with a scale that is" if stored_right
        else "the block scale is"
    )  # fmt: skip
    return f"{what} off by one step: in {' and in '.join(words)}" if words else None


def _with_scale(x: BlockConversion, desired: Quantized, scales: FloatArray) -> Quantized | None:
    keywords: dict[str, Any] = {"scale": scales}
    if desired.zero_points is not None:
        keywords["zero_point"] = desired.zero_points
    try:
        return x.result(options=keywords)
    except ValueError:  # two levels of scales, or a scale that is zero
        return None


def _whole_blocks(scheme: Scheme, equal: NDArray[np.bool_], scales: FloatArray) -> NDArray[np.bool_]:
    """Return which blocks have equal codes in all elements."""
    places = of_blocks(scheme, equal.shape, np.arange(scales.size).reshape(scales.shape))
    wrong = np.bincount(places[~equal].reshape(-1), minlength=max(scales.size, 1))[: scales.size]
    whole: NDArray[np.bool_] = (wrong == 0).reshape(scales.shape)
    return whole


def _code_faults(x: BlockConversion, desired: Quantized) -> Iterator[Attempt]:
    element = x.scheme.format
    yield "the codes of each byte are in the opposite order: the order of the nibbles", lambda: _swapped(x, desired)
    if isinstance(element, IntegerFormat) and element.min < 0:

        def without_end() -> Quantized:
            return replace(desired, codes=np.maximum(desired.codes, desired.codes.dtype.type(-element.max)))

        yield f"the code {element.min} is not used: the range is symmetric", without_end
    elif isinstance(element, FloatFormat):

        def inverted() -> Quantized:
            return replace(desired, codes=desired.codes ^ desired.codes.dtype.type(element.sign_mask))

        yield "the sign is inverted", inverted


def explain_blocks(
    x: BlockConversion, desired: Quantized, actual: Quantized, codes_only: bool = False
) -> str | None:  # fmt: skip
    """Return the fault that explains the mismatches of a quantization, or None.

    With `codes_only` the kernel returned no scales: those of `actual` are not compared.

    >>> import numpy as np
    >>> import floatsim as fs
    >>> from floatsim.quantization import SCHEMES
    >>> tensor = fs.array(np.random.default_rng(0).standard_normal((32, 256)), "fp32")
    >>> x = BlockConversion(tensor, SCHEMES["mxfp8"], {})
    >>> explain_blocks(x, x.result(), x.result(rule="rceil"))
    "the scales follow rule='rceil', not 'floor'"
    """
    texts = []
    for text, attempt in (*_code_faults(x, desired), *_other_schemes(x)):
        try:
            found = attempt()
        except ValueError:  # the rule is not for the formats of the scheme
            continue
        if found is not None and (np.array_equal(found.codes, actual.codes) if codes_only else _equal(found, actual)):
            texts.append(text)
    step = _scale_steps(x, desired, actual)
    if step is not None and (not texts or "every block" in step):  # another rule changes the scales of some blocks
        texts.append(step)
    if not texts:
        return None
    more = f"; or {len(texts) - _LISTED} more" if len(texts) > _LISTED else ""
    return "; or ".join(texts[:_LISTED]) + more
