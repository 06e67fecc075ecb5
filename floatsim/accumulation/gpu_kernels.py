"""Descriptions of the parts of GPU kernels: operands that are converted, K loops that begin with the residue of K,
three products of TF32 parts, and epilogues."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from floatsim.accumulation.base import MOST, Accumulation, accumulator_format, value_text
from floatsim.accumulation.tensor_core import TensorCore
from floatsim.accumulation.text import AccumulationLike, as_accumulation
from floatsim.formats import FP32, TF32, FloatFormat, FormatLike, as_format
from floatsim.formats._hashing import hashed_once
from floatsim.formats._validation import as_index, name_hint
from floatsim.formats.rounding import Rounding, RoundingLike, as_member

__all__ = ["Converted", "Epilogue", "Residue", "Tf32x3", "has_epilogue", "is_symmetric"]


class _Wrapper(Accumulation):
    """A description with one inner description."""

    inner: Accumulation

    @property
    def result_format(self) -> FloatFormat:
        return self.inner.result_format

    @property
    def children(self) -> tuple[Accumulation, ...]:
        return (self.inner,)

    @classmethod
    def is_word(cls, text: str) -> bool:
        return False


def _unit(inner: AccumulationLike, why: str) -> TensorCore:
    unit = as_accumulation(inner, "inner")
    if not isinstance(unit, TensorCore):
        raise TypeError(f"inner must be a TensorCore, not {unit}: {why}")
    return unit


@hashed_once
@dataclass(frozen=True, repr=False, init=False)
class Converted(_Wrapper):
    """The operands are converted to a format; `inner` sums the products of the results.

    cuBLAS rounds FP32 operands to TF32, ties to even, before a product in TF32. As an outer description it converts the
    results of the parts: `splitk(3, hopper, converted(fp16, fp32))` stores partial sums in FP16 and adds them in FP32.
    The terms of a sum are converted, too. `c` is not converted; it goes to inner.

    The conversions overflow to infinity, keep subnormal numbers, and are not counted by `fs.record`. The keywords of
    the call do not change them.

    Parameters
    ----------
    format : format
        The format that inner reads.
    inner : description, format or text
        The sum of the products.
    rounding : Rounding or str
        The rounding mode of the conversion: any but stochastic.

    Raises
    ------
    TypeError
        If `inner` is no description, or `format` a scale format.
    ValueError
        If a name is unknown, or `rounding` is stochastic.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> print(fs.Converted("tf32", "hopper"))
    converted(tf32, tensorcore(hopper))
    >>> a, b = np.float32([[1 + 1.5 * 2**-11]]), np.float32([[1.0]])  # TF32 has 10 fraction bits
    >>> texts = "converted(tf32, hopper)", "converted(tf32, hopper, rounding=toward_zero)"
    >>> [fs.matmul(a, b, accumulate=text).item() for text in texts]
    [1.0009765625, 1.0]
    """

    text_form = "converted(format, inner) or converted(format, inner, rounding=toward_zero)"

    format: FloatFormat
    inner: Accumulation
    rounding: Rounding = Rounding.TIES_TO_EVEN

    def __init__(
        self, format: FormatLike, inner: AccumulationLike, rounding: RoundingLike = "ties_to_even"
    ) -> None:  # fmt: skip
        object.__setattr__(self, "format", accumulator_format(format))
        object.__setattr__(self, "inner", as_accumulation(inner, "inner"))
        object.__setattr__(self, "rounding", as_member(Rounding, rounding, "rounding"))
        if self.rounding is Rounding.STOCHASTIC:
            raise ValueError("rounding='stochastic': the conversion of operands has no random draws; name another mode")

    def with_children(self, change: Callable[[Accumulation], Accumulation]) -> Accumulation:
        return Converted(self.format, change(self.inner), self.rounding)

    def operand_formats(self, a: FloatFormat, b: FloatFormat) -> tuple[FloatFormat, FloatFormat]:
        return self.format, self.format

    @classmethod
    def is_word(cls, text: str) -> bool:
        if "(" not in text:
            return True
        try:
            as_format(text)
        except ValueError:
            return False
        return True

    def _texts(self, show: Any) -> list[str]:
        texts = [value_text(self.format, show), show(self.inner)]
        if self.rounding is not Rounding.TIES_TO_EVEN:
            texts.append(f"rounding={value_text(self.rounding, show)}")
        return texts


@hashed_once
@dataclass(frozen=True, repr=False, init=False)
class Residue(_Wrapper):
    """The K loop of a CUTLASS kernel: the first K % tile terms, then the other terms, on one accumulator.

    A GEMM kernel loads K in tiles. If K is no multiple of the tile, CUTLASS loads the residue first, filled up with
    zeros, and then whole tiles (include/cutlass/transform/threadblock/predicated_tile_access_iterator.h). So
    the residue fills instructions of its own, and the instructions after it begin at K % tile. If K is a multiple of
    the tile or at most one tile, the sum is that of inner. `c` goes to inner.

    Parameters
    ----------
    inner : TensorCore or text
        The matrix unit. A sum term by term has no instructions to fill up, so that the residue changes nothing.
    tile : int
        The terms of a tile, at least 1: the K of the thread block's tile.

    Raises
    ------
    TypeError
        If `inner` is no TensorCore.
    ValueError
        If `tile` is below 1, or a text is unknown.

    Examples
    --------
    >>> import floatsim as fs
    >>> print(fs.Residue("hopper", 64))
    residue(tensorcore(hopper), 64)
    >>> fs.Residue("hopper", 64).runs(300)
    [(44, 1), (256, 1)]
    >>> a, b = fs.array([[1.0] * 21], "bf16"), fs.array([[2.0**26]] + [[4.0]] * 20, "bf16")
    >>> [fs.matmul(a, b, accumulate=text).item() - 2.0**26 for text in ("hopper", "residue(hopper, 16)")]
    [72.0, 80.0]
    """

    text_form = "residue(inner, tile)"

    inner: Accumulation
    tile: int

    def __init__(self, inner: AccumulationLike, tile: int) -> None:
        object.__setattr__(self, "inner", _unit(inner, "the residue of K fills instructions, which only a unit has"))
        object.__setattr__(self, "tile", as_index(tile, "tile", 1, MOST))

    def with_children(self, change: Callable[[Accumulation], Accumulation]) -> Accumulation:
        return Residue(change(self.inner), self.tile)

    def runs(self, n: int) -> list[tuple[int, int]]:
        """Return the lengths of the two parts of n terms, as (length, 1) each; a part without terms is left out."""
        return [(length, 1) for length in (n % self.tile, n - n % self.tile) if length]

    def _texts(self, show: Any) -> list[str]:
        return [show(self.inner), str(self.tile)]


@hashed_once
@dataclass(frozen=True, repr=False, init=False)
class Tf32x3(_Wrapper):
    """A product of FP32 operands by three products of TF32 numbers, on one accumulator: Triton's "tf32x3".

    Each operand x has a large part, x rounded to TF32 with ties away from zero, and a small part: x minus the large
    part, cut off to TF32. One chain of instructions adds the products a_small * b_large of all terms, then
    a_large * b_small, then a_large * b_large. `c` starts the chain. Triton's loop adds the chain of each block of K to
    an FP32 accumulator: `blocked(tf32x3(hopper), 32, fp32)`.

    Parameters
    ----------
    inner : TensorCore or text
        The matrix unit, with an instruction for TF32.

    Raises
    ------
    TypeError
        If `inner` is no TensorCore.
    ValueError
        If a text is unknown. In a product, for operands that are not FP32.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> print(fs.Tf32x3("hopper"))
    tf32x3(tensorcore(hopper))
    >>> a, b = np.float32([[1 + 2**-12]]), np.float32([[3.0]])
    >>> [fs.matmul(a, b, accumulate=text).item() for text in ("converted(tf32, hopper)", "tf32x3(hopper)")]
    [3.0, 3.000732421875]
    """

    text_form = "tf32x3(inner)"

    inner: Accumulation

    def __init__(self, inner: AccumulationLike) -> None:
        object.__setattr__(self, "inner", _unit(inner, "the three products are chains of instructions"))

    def with_children(self, change: Callable[[Accumulation], Accumulation]) -> Accumulation:
        return Tf32x3(change(self.inner))

    def operand_formats(self, a: FloatFormat, b: FloatFormat) -> tuple[FloatFormat, FloatFormat]:
        if (a, b) != (FP32, FP32):
            raise ValueError(f"{self} splits FP32 operands in two TF32 numbers; these are {a} and {b}")
        return TF32, TF32

    def _texts(self, show: Any) -> list[str]:
        return [show(self.inner)]


_FUSED = ("sum", "c")
_ACTIVATIONS = ("relu",)
_NOT_YET = {
    "gelu": "it needs the bits of CUDA's own erff, which floatsim does not have yet; compute it from the result of an "
    "epilogue without activation",
}
"""Activations of epilogues that are known and not described, with the reason."""


@hashed_once
@dataclass(frozen=True, repr=False, init=False)
class Epilogue(_Wrapper):
    """The last part of a GEMM kernel: alpha, beta and c (or a bias) after the sum, in one format, then an activation.

    The sum starts without c. The epilogue computes alpha * sum + beta * c in its format with ties to even, and the
    conversion to the result's format is one more rounding. alpha and beta are rounded to the format first.

    - alpha = beta = 1: round(sum + c); without c the sum itself.
    - `fused="sum"`: round(alpha * sum + t), t = round(beta * c).
    - `fused="c"`: round(beta * c + t), t = round(alpha * sum). So splitKreduce_kernel computes it.
    - beta = 0: c is not read; round(alpha * sum).

    An epilogue belongs to a matrix product and is the outermost description.

    Parameters
    ----------
    inner : description, format or text
        The sum.
    format : format
        The format in which the epilogue computes.
    fused : "sum" or "c"
        The product that is not rounded.
    through : format, optional
        The sum is rounded to this format first: cuBLAS's kernels with `_badd_` in their names round a sum to 16 bits
        before they add c. Default: no rounding.
    activation : "relu", optional
        The last operation, before the conversion to the result: max(x, +0). A NaN stays NaN.

    Raises
    ------
    TypeError
        If `inner` is no description, or `format` a scale format. In a call other than `fs.matmul` and `fs.dot`.
    ValueError
        If a name is unknown, and for "gelu", which needs CUDA's own erff.

    Examples
    --------
    >>> import floatsim as fs
    >>> linear = fs.Epilogue("hopper", "fp32")
    >>> print(linear)
    epilogue(tensorcore(hopper), fp32)
    >>> a, b = fs.array([[2048.0, 1.0]], "fp16"), fs.array([[1.0], [1.0]], "fp16")
    >>> bias = fs.array([1.0], "fp16")
    >>> rounded = fs.Epilogue("hopper", "fp32", through="fp16")
    >>> [fs.matmul(a, b, bias, accumulate=each, format="fp16").item() for each in (linear, rounded)]
    [2050.0, 2048.0]
    """

    text_form = "epilogue(inner, format) or epilogue(inner, format, fused=c, through=fp16, activation=relu)"
    text_words: ClassVar = {activation: {"activation": activation} for activation in (*_ACTIVATIONS, *_NOT_YET)}

    inner: Accumulation
    format: FloatFormat
    fused: str = "sum"
    through: FloatFormat | None = None
    activation: str | None = None

    def __init__(
        self, inner: AccumulationLike, format: FormatLike = "fp32", fused: str = "sum",
        through: FormatLike | None = None, activation: str | None = None,
    ) -> None:  # fmt: skip
        object.__setattr__(self, "inner", as_accumulation(inner, "inner"))
        object.__setattr__(self, "format", accumulator_format(format))
        object.__setattr__(self, "fused", _member(fused, "fused", _FUSED))
        object.__setattr__(self, "through", None if through is None else accumulator_format(through, "through"))
        known = None if activation is None else _member(activation, "activation", _ACTIVATIONS)
        object.__setattr__(self, "activation", known)

    @property
    def result_format(self) -> FloatFormat:
        return self.format

    def with_children(self, change: Callable[[Accumulation], Accumulation]) -> Accumulation:
        return Epilogue(change(self.inner), self.format, self.fused, self.through, self.activation)

    @classmethod
    def is_word(cls, text: str) -> bool:
        return Converted.is_word(text)

    def _texts(self, show: Any) -> list[str]:
        texts = [show(self.inner), value_text(self.format, show)]
        if self.fused != "sum":
            texts.append(f"fused={show(self.fused)}")
        if self.through is not None:
            texts.append(f"through={value_text(self.through, show)}")
        return texts if self.activation is None else [*texts, f"activation={show(self.activation)}"]


def _member(text: Any, argument: str, known: tuple[str, ...]) -> str:
    word = text.lower() if isinstance(text, str) else text
    if argument == "activation" and isinstance(word, str) and word in _NOT_YET:
        raise ValueError(f"activation={text!r} is not described: {_NOT_YET[word]}; described: {', '.join(known)}")
    if word not in known:
        raise ValueError(f"{argument}={text!r} is not known; {name_hint(str(text), known)}")
    return str(word)


def has_epilogue(accumulation: Accumulation) -> bool:
    """Return whether a description is an `Epilogue` or has one inside.

    >>> import floatsim as fs
    >>> has_epilogue(fs.as_accumulation("blocked(epilogue(hopper, fp32), 64, fp32)")), has_epilogue(fs.Exact("fp32"))
    (True, False)
    """
    return isinstance(accumulation, Epilogue) or any(map(has_epilogue, accumulation.children))


def is_symmetric(accumulation: Accumulation) -> bool:
    """Return whether a description of b.T @ a.T has the bits of a @ b.

    >>> import floatsim as fs
    >>> [is_symmetric(fs.as_accumulation(text)) for text in ("hopper", "blocked(tf32x3(hopper), 32, fp32)")]
    [True, False]
    """
    return not isinstance(accumulation, Tf32x3) and all(map(is_symmetric, accumulation.children))
