"""How a sum is carried out: descriptions, not code. A kernel or a backend carries them out.

Terms enter exactly, and there is one rounding for each add: acc = round(acc + term). Every description returns a value
of its own format. In a matrix product the terms are products; in a sum they are the elements, which no product rounding
touches.

*Leaves* add terms: `Sequential`, `Pairwise`, `Kahan`, `Neumaier`, `Exact`. *Composites* cut the terms into parts, add
each part by an inner description, and the parts' results, terms in their turn, by an outer one: `Strided`, `Blocked`,
`SplitK`. A `TensorCore` adds products as a matrix unit does, which is not by steps of IEEE arithmetic. Each is written
as a text, too: see `parse`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import functools
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias

from floatsim.checks import as_flag, as_index
from floatsim.formats import FP16, FP32, FloatFormat, FormatLike, as_format
from floatsim.hashing import hashed_once
from floatsim.rounding import Attributes, Overflow, OverflowLike, Rounding, RoundingLike, as_member
from floatsim.tensorcore.architectures import (
    ARCHITECTURES,
    Architecture,
    as_architecture,
    as_instruction_name,
    enumerated,
    is_architecture,
    nearest,
    select,
)
from floatsim.tensorcore.instructions import Instruction, Scales

__all__ = [
    "Accumulation", "AccumulationLike", "Blocked", "Exact", "Kahan", "Leaf", "Neumaier", "Pairwise", "Sequential",
    "SplitK", "Strided", "TensorCore", "as_accumulation", "fitted", "leaves", "parse", "rounds_stochastically",
    "settled", "tensor_cores",
]  # fmt: skip

TREES = ("adjacent", "halving", "numpy")
_MOST = 1 << 62  # of lanes, parts and block lengths

Same: TypeAlias = Literal["same"]


class Accumulation:
    """What all descriptions have in common: a format of their results, and a text form.

    >>> import floatsim as fs
    >>> isinstance(fs.Kahan("fp16"), fs.accumulation.Accumulation)
    True
    """

    @property
    def result_format(self) -> FloatFormat:
        """The format of the values that the description returns: of its outermost accumulator."""
        raise NotImplementedError

    def _texts(self, show: Any) -> list[str]:
        """The arguments as text, those left at their default not among them; `show` gives the text of a nested one."""
        raise NotImplementedError

    def __str__(self) -> str:
        return f"{type(self).__name__.lower()}({', '.join(self._texts(str))})"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self._texts(repr))})"


def _accumulator_format(fmt: FormatLike, argument: str = "format") -> FloatFormat:
    try:
        named = as_format(fmt)
    except TypeError:
        raise TypeError(f"{argument} must be a format or its name, not {fmt!r}") from None
    if named.is_scale:
        raise TypeError(f"{named.name} is a scale format and cannot accumulate")
    return named


@dataclass(frozen=True, repr=False)
class Leaf(Accumulation):
    """The manner of rounding that every leaf has of its own; None inherits the call's, then the context's.

    `overflow` is never inherited: accumulators give infinities (NaN without them) unless told to saturate.
    """

    format: FloatFormat
    rounding: Rounding | None = field(default=None, kw_only=True)
    ftz: bool | None = field(default=None, kw_only=True)
    daz: bool | None = field(default=None, kw_only=True)
    overflow: Overflow = field(default=Overflow.INFINITY, kw_only=True)

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _settle(
        self, format: FormatLike, rounding: RoundingLike | None, ftz: bool | None, daz: bool | None,
        overflow: OverflowLike,
    ) -> None:  # fmt: skip
        self._set(
            format=_accumulator_format(format),
            rounding=None if rounding is None else as_member(Rounding, rounding, "rounding"),
            ftz=None if ftz is None else as_flag(ftz, "ftz"),
            daz=None if daz is None else as_flag(daz, "daz"),
            overflow=as_member(Overflow, overflow, "overflow"),
        )

    @property
    def result_format(self) -> FloatFormat:
        return self.format

    def _manner_texts(self, show: Any) -> list[str]:
        given: dict[str, Any] = {"rounding": self.rounding, "ftz": self.ftz, "daz": self.daz}
        if self.overflow is not Overflow.INFINITY:
            given["overflow"] = self.overflow
        return [f"{name}={_value_text(value, show)}" for name, value in given.items() if value is not None]

    def _texts(self, show: Any) -> list[str]:
        return [_value_text(self.format, show), *self._manner_texts(show)]


def _value_text(value: Any, show: Any) -> str:
    if isinstance(value, Rounding | Overflow):
        text = value.name.lower()
        return repr(text) if show is repr else text
    if isinstance(value, FloatFormat):
        name = value.name if show is repr else value.name.lower()
        return repr(name) if show is repr and "(" in name else name
    if isinstance(value, str):
        return show(value)  # type: ignore[no-any-return]
    return str(value) if show is repr else str(value).lower()


@dataclass(frozen=True, repr=False)
class ProductLeaf(Leaf):
    """A leaf that may round products before it adds them."""

    product: FloatFormat | None = field(default=None, kw_only=True)
    product_rounding: Rounding | None = field(default=None, kw_only=True)

    def _settle_product(self, product: FormatLike | Same | None, product_rounding: RoundingLike | None) -> None:
        if product is None and product_rounding is not None:
            raise ValueError("product=None keeps the products exact: there is no product_rounding")
        fmt = self.format if isinstance(product, str) and product == "same" else product
        self._set(
            product=None if fmt is None else _accumulator_format(fmt, "product"),
            product_rounding=None
            if product_rounding is None
            else as_member(Rounding, product_rounding, "product_rounding"),
        )

    def _product_texts(self, show: Any) -> list[str]:
        texts = []
        if self.product is None:
            texts.append(f"product={'None' if show is repr else 'none'}")
        elif self.product != self.format:
            texts.append(f"product={_value_text(self.product, show)}")
        if self.product_rounding is not None:
            texts.append(f"product_rounding={_value_text(self.product_rounding, show)}")
        return texts

    def _texts(self, show: Any) -> list[str]:
        return [_value_text(self.format, show), *self._product_texts(show), *self._manner_texts(show)]


@hashed_once
@dataclass(frozen=True, repr=False, init=False)
class Sequential(ProductLeaf):
    """One accumulator, k ascending: acc = +0 (or c, rounded to the format); acc = round(acc + p), p = round(a*b).

    With `fused`, acc = round(a*b + acc): the product is not rounded, as in a chain of fused multiply-adds.
    A zero sum has IEEE's sign: +0 + -0 is +0, but -0 when rounding toward negative. A NaN term, inf*0 or inf - inf
    makes the accumulator NaN, for good.

    Parameters
    ----------
    format : format
        Of the accumulator.
    fused : bool
        Whether products enter unrounded: the same as product=None.
    product : format, "same" or None
        What products are rounded to before they are added; default: the accumulator's format. None keeps them exact.
    product_rounding : Rounding or str, optional
        Of the products; None means as the sums.
    rounding, ftz, daz : optional
        Of every rounding in here; None inherits the call's, then the context's.
    overflow : Overflow or str
        Of the accumulator and the rounded products; never inherited.

    Raises
    ------
    TypeError
        For a scale format (E8M0), and for `fused` together with `product`.
    ValueError
        For unknown names, and for `product_rounding` where products are not rounded.

    Examples
    --------
    >>> import floatsim as fs
    >>> print(fs.Sequential("bf16", fused=True))
    sequential(bf16, fused)
    >>> fs.Sequential("fp16", overflow="saturate_finite")
    Sequential(FP16, overflow='saturate_finite')
    """

    def __init__(
        self, format: FormatLike, fused: bool = False, product: FormatLike | Same | None = "same", *,
        product_rounding: RoundingLike | None = None, rounding: RoundingLike | None = None, ftz: bool | None = None,
        daz: bool | None = None, overflow: OverflowLike = Overflow.INFINITY,
    ) -> None:  # fmt: skip
        self._settle(format, rounding, ftz, daz, overflow)
        if as_flag(fused, "fused"):
            if not (product is None or (isinstance(product, str) and product == "same")):
                raise TypeError("fused=True rounds no product: leave product= out, or leave fused out")
            product = None
        self._settle_product(product, product_rounding)

    @property
    def fused(self) -> bool:
        """Whether products enter unrounded."""
        return self.product is None

    def _product_texts(self, show: Any) -> list[str]:
        if self.fused:
            return ["fused=True" if show is repr else "fused"]
        return super()._product_texts(show)


@hashed_once
@dataclass(frozen=True, repr=False, init=False)
class Pairwise(ProductLeaf):
    """A tree of adds: the terms are its leaves, and every inner node is one rounding of the sum of two.

    There is no seed: a lone term is itself, -0 too (rounded to the format); `c` is added last, in one rounding more.

    - "adjacent": neighbours (0,1) (2,3) ..., level by level; an odd last one is carried up unchanged.
    - "halving": i with i + ceil(n/2), level by level; an odd middle one is carried up unchanged. With 32 lanes this is
      CUDA's warp reduction by `__shfl_down_sync` with offsets 16, 8, 4, 2, 1 (CUDA C++ Programming Guide, warp shuffle
      functions).
    - "numpy": NumPy's pairwise sum of contiguous numbers (numpy/_core/src/umath/loops_utils.h.src, `pairwise_sum`):
      fewer than 8 terms one after the other; up to 128 in eight accumulators r[i] over every eighth term, joined as
      ((r0+r1)+(r2+r3))+((r4+r5)+(r6+r7)), the rest of up to seven after that one by one; more are cut in two, the first
      part n/2 less its remainder by 8. NumPy's own seed of fewer than 8 terms is -0 and takes no part here.

    Parameters
    ----------
    format : format
        Of every node.
    tree : str
        "adjacent", "halving" or "numpy".
    product, product_rounding, rounding, ftz, daz, overflow
        As of `Sequential`.

    Raises
    ------
    TypeError, ValueError
        For a scale format and unknown names.

    Examples
    --------
    >>> import floatsim as fs
    >>> print(fs.Pairwise("fp16", tree="halving"))
    pairwise(fp16, halving)
    """

    tree: str = "adjacent"

    def __init__(
        self, format: FormatLike, tree: str = "adjacent", product: FormatLike | Same | None = "same", *,
        product_rounding: RoundingLike | None = None, rounding: RoundingLike | None = None, ftz: bool | None = None,
        daz: bool | None = None, overflow: OverflowLike = Overflow.INFINITY,
    ) -> None:  # fmt: skip
        self._settle(format, rounding, ftz, daz, overflow)
        self._settle_product(product, product_rounding)
        if tree not in TREES:
            near = difflib.get_close_matches(str(tree), TREES, n=1)
            raise ValueError(f"tree={tree!r} is not known; " + (f"did you mean {near[0]!r}?" if near else _TREES_KNOWN))
        self._set(tree=str(tree))

    def _texts(self, show: Any) -> list[str]:
        fmt, *rest = super()._texts(show)
        if self.tree == "adjacent":
            return [fmt, *rest]
        return [fmt, f"tree={self.tree!r}" if show is repr else self.tree, *rest]


_TREES_KNOWN = f"known are {', '.join(TREES)}"


@hashed_once
@dataclass(frozen=True, repr=False, init=False)
class Kahan(ProductLeaf):
    """Kahan's compensated sum, every operation rounded to the format.

    s, comp = 0 (s = c, rounded to the format); for each term x, a rounded product: y = round(x - comp);
    t = round(s + y); comp = round(round(t - s) - y); s = t. Returns s. Once t is infinite or NaN comp stays 0.

    Kahan, "Pracniques: further remarks on reducing truncation errors", CACM 8(1), 1965.

    Parameters
    ----------
    format : format
        Of s and comp.
    product, product_rounding, rounding, ftz, daz, overflow
        As of `Sequential`.

    Raises
    ------
    TypeError, ValueError
        For a scale format and unknown names.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> ones = np.ones(4096, np.float16)
    >>> fs.matmul(ones, ones, accumulate=fs.Kahan("fp16")), fs.matmul(ones, ones, accumulate="fp16")
    (np.float16(4.096e+03), np.float16(2.048e+03))
    """

    def __init__(
        self, format: FormatLike, product: FormatLike | Same | None = "same", *,
        product_rounding: RoundingLike | None = None, rounding: RoundingLike | None = None, ftz: bool | None = None,
        daz: bool | None = None, overflow: OverflowLike = Overflow.INFINITY,
    ) -> None:  # fmt: skip
        self._settle(format, rounding, ftz, daz, overflow)
        self._settle_product(product, product_rounding)


@hashed_once
@dataclass(frozen=True, repr=False, init=False)
class Neumaier(ProductLeaf):
    """Neumaier's compensated sum (Kahan-Babuska), every operation rounded to the format.

    s, comp = 0 (s = c, rounded to the format); for each term x, a rounded product: t = round(s + x);
    if |s| >= |x|: comp = round(comp + round(round(s - t) + x)), else comp = round(comp + round(round(x - t) + s));
    s = t. Returns round(s + comp). An infinite or NaN t leaves comp alone.

    Neumaier, "Rundungsfehleranalyse einiger Verfahren zur Summation endlicher Summen", ZAMM 54, 1974.

    Parameters
    ----------
    format : format
        Of s and comp.
    product, product_rounding, rounding, ftz, daz, overflow
        As of `Sequential`.

    Raises
    ------
    TypeError, ValueError
        For a scale format and unknown names.

    Examples
    --------
    >>> import floatsim as fs
    >>> x, one = fs.array([1.0, 30000.0, 1.0, -30000.0], "fp16"), fs.array([1.0] * 4, "fp16")
    >>> [fs.matmul(x, one, accumulate=how).item() for how in ("fp16", "kahan(fp16)", "neumaier(fp16)")]
    [0.0, 0.0, 2.0]
    """

    def __init__(
        self, format: FormatLike, product: FormatLike | Same | None = "same", *,
        product_rounding: RoundingLike | None = None, rounding: RoundingLike | None = None, ftz: bool | None = None,
        daz: bool | None = None, overflow: OverflowLike = Overflow.INFINITY,
    ) -> None:  # fmt: skip
        self._settle(format, rounding, ftz, daz, overflow)
        self._settle_product(product, product_rounding)


@hashed_once
@dataclass(frozen=True, repr=False, init=False)
class Exact(Leaf):
    """The exact sum of the exact products, rounded once to the format; `c` is one more exact term.

    An exact zero: all terms +0 give +0, all -0 give -0, otherwise +0 (-0 when rounding toward negative). NaN, or
    infinities of both signs, give NaN; else an infinity wins. With `daz`, subnormal operands are zeros.

    Parameters
    ----------
    format : format
        What the sum is rounded to.
    rounding, ftz, daz, overflow
        As of `Sequential`.

    Raises
    ------
    TypeError, ValueError
        For a scale format and unknown names.

    Examples
    --------
    >>> import floatsim as fs
    >>> print(fs.Exact(fs.FP16))
    exact(fp16)
    """

    def __init__(
        self, format: FormatLike, *, rounding: RoundingLike | None = None, ftz: bool | None = None,
        daz: bool | None = None, overflow: OverflowLike = Overflow.INFINITY,
    ) -> None:  # fmt: skip
        self._settle(format, rounding, ftz, daz, overflow)


@hashed_once
@dataclass(frozen=True, repr=False, init=False)
class TensorCore(Accumulation):
    """The sum of a matrix unit, bit for bit: products are exact, and a block of them is added at once.

    The K loop is that of a GEMM kernel: an instruction takes k terms, and D, what it returns, is the accumulator c of
    the next one, in D's format. What the last instruction misses of its k is filled up with zeros, which changes no bit
    (but the sign of a zero in chains of IEEE additions: FP64, and AMD's). c is rounded to D's format first, ties to
    even, and without c the accumulator starts as +0.

    `fs.tensorcore` has the table of architectures and instructions, what each of them computes, and what that has been
    held against: outputs of real GPUs, another model, or nothing.

    Parameters
    ----------
    arch : str
        "volta", "turing", "ampere", "ada", "hopper", "blackwell", "blackwell-rtx", "cdna1", "cdna2" or "cdna3".
    instruction : str, optional
        "mma.m16n8k16", "wgmma.k32", "tcgen05.k16", "mfma.32x32x8", ...; default: the architecture's own one for the
        operands' formats: mma up to Ada, wgmma on Hopper, tcgen05 on Blackwell, mma on RTX Blackwell. FP32 operands
        are taken where the name ends in .tf32, and truncated.
    output : format, optional
        Of D: FP32 or FP16; FP64 for FP64 operands. Default: what is asked of the result where that is FP16 and the
        instruction has it, else FP32.

    Raises
    ------
    ValueError
        For an architecture or instruction that is not known, and an output that there is not; the message lists what
        there is.
    TypeError
        For keywords of rounding: silicon has none.

    Examples
    --------
    >>> import floatsim as fs
    >>> print(fs.TensorCore("Hopper", "wgmma.k16", output="fp16"))
    tensorcore(hopper, wgmma.k16, output=fp16)
    >>> fs.Blocked("hopper", 128, "fp32")
    Blocked(TensorCore('hopper'), 128, Sequential(FP32))
    """

    arch: str
    instruction: str | None = None
    output: FloatFormat | None = None

    def __init__(
        self, arch: str, instruction: str | None = None, output: FormatLike | None = None, **others: Any
    ) -> None:
        if others:
            names = ", ".join(f"{name}=" for name in others)
            raise TypeError(f"a TensorCore rounds as silicon does and takes no {names}; only arch, instruction, output")
        architecture = as_architecture(arch)
        name = None if instruction is None else as_instruction_name(architecture, instruction)
        fmt = None if output is None else _accumulator_format(output, "output")
        outputs = {row.output: None for row in architecture.instructions if name in (None, row.name)}
        if fmt is not None and fmt not in outputs:
            where = architecture.name if name is None else f"{name} on {architecture.name}"
            raise ValueError(f"{where} gives {enumerated(outputs)}, not {fmt}")
        object.__setattr__(self, "arch", architecture.name)
        object.__setattr__(self, "instruction", name)
        object.__setattr__(self, "output", fmt)

    @property
    def architecture(self) -> Architecture:
        """Its row in the table of architectures."""
        return ARCHITECTURES[self.arch]

    @property
    def result_format(self) -> FloatFormat:
        """The format of D; where none was chosen FP32, although it is FP64 for FP64 operands: see `fitted`."""
        return FP32 if self.output is None else self.output

    def row(
        self, a: FloatFormat, b: FloatFormat, format: FloatFormat | None = None, scales: Scales | None = None
    ) -> Instruction:
        """The instruction for operands of these formats, as the table has it; `format` is asked of the result.

        >>> import floatsim as fs
        >>> fs.TensorCore("ada").row(fs.E4M3, fs.E5M2).name
        'mma.m16n8k32'
        """
        return _row(self, a, b, format, scales)

    def _texts(self, show: Any) -> list[str]:
        texts = [show(self.arch)] if self.instruction is None else [show(self.arch), show(self.instruction)]
        return texts if self.output is None else [*texts, f"output={_value_text(self.output, show)}"]


@functools.lru_cache(maxsize=256)
def _row(
    unit: TensorCore, a: FloatFormat, b: FloatFormat, format: FloatFormat | None, scales: Scales | None
) -> Instruction:
    if unit.output is None and format == FP16:
        with contextlib.suppress(ValueError):
            return select(unit.architecture, unit.instruction, a, b, FP16, scales)
    return select(unit.architecture, unit.instruction, a, b, unit.output, scales)


class _Composite(Accumulation):
    outer: Accumulation

    @property
    def result_format(self) -> FloatFormat:
        return self.outer.result_format


@hashed_once
@dataclass(frozen=True, repr=False, init=False)
class Strided(_Composite):
    """Lane l sums the terms l, l + lanes, l + 2*lanes, ... by `inner`; `outer` joins the lanes in their order.

    Lanes without a term are skipped; `c` is added last, in one rounding more of outer's format. This is a loop with
    `lanes` accumulators (SIMD, or the threads of a CUDA block in a grid-stride loop).

    Parameters
    ----------
    inner : description, format or text
        How a lane sums.
    lanes : int
        How many, at least 1.
    outer : description, format or text, optional
        How the lanes' results are added; default: Pairwise of inner's format.

    Raises
    ------
    TypeError, ValueError
        For what is no description, and `lanes` below 1.

    Examples
    --------
    >>> import floatsim as fs
    >>> print(fs.Strided("fp16", 32, fs.Pairwise("fp16", tree="halving")))
    strided(sequential(fp16), 32, pairwise(fp16, halving))
    """

    inner: Accumulation
    lanes: int
    outer: Accumulation

    def __init__(self, inner: AccumulationLike, lanes: int, outer: AccumulationLike | None = None) -> None:
        object.__setattr__(self, "inner", _without_tensor_core(inner, "inner", _TAKES_NEIGHBOURS))
        object.__setattr__(self, "lanes", as_index(lanes, "lanes", 1, _MOST))
        given = Pairwise(self.inner.result_format) if outer is None else outer
        object.__setattr__(self, "outer", _without_tensor_core(given, "outer", _ADDS_PRODUCTS))

    def _texts(self, show: Any) -> list[str]:
        return [show(self.inner), str(self.lanes), show(self.outer)]


@hashed_once
@dataclass(frozen=True, repr=False, init=False)
class Blocked(_Composite):
    """Blocks of `every` terms (the last may be short), each summed by `inner` from its own zero; `outer` adds their
    results, values of inner's format, in order. `c` is the seed of outer.

    DeepSeek-V3's promotion (arXiv 2412.19437, 3.3.2) has this form: a narrow inner sum over 128 terms, added to an FP32
    accumulator.

    Parameters
    ----------
    inner, outer : description, format or text
        How a block sums, and how the blocks' results are added.
    every : int
        Terms of a block, at least 1.

    Raises
    ------
    TypeError, ValueError
        For what is no description, and `every` below 1.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.Blocked("fp16", 128, "fp32")
    Blocked(Sequential(FP16), 128, Sequential(FP32))
    """

    inner: Accumulation
    every: int
    outer: Accumulation

    def __init__(self, inner: AccumulationLike, every: int, outer: AccumulationLike) -> None:
        object.__setattr__(self, "inner", as_accumulation(inner, "inner"))
        object.__setattr__(self, "every", as_index(every, "every", 1, _MOST))
        object.__setattr__(self, "outer", _without_tensor_core(outer, "outer", _ADDS_PRODUCTS))

    def _texts(self, show: Any) -> list[str]:
        return [show(self.inner), str(self.every), show(self.outer)]


@hashed_once
@dataclass(frozen=True, repr=False, init=False)
class SplitK(_Composite):
    """K cut into `parts` of ceil(K / parts) terms each; otherwise as `Blocked`. Parts without a term are skipped.

    As CUTLASS's split-K kernels, which reduce the parts' results in a second pass.

    Parameters
    ----------
    parts : int
        How many, at least 1.
    inner, outer : description, format or text
        How a part sums, and how the parts' results are added.

    Raises
    ------
    TypeError, ValueError
        For what is no description, and `parts` below 1.

    Examples
    --------
    >>> import floatsim as fs
    >>> print(fs.SplitK(4, "fp32", "fp32"))
    splitk(4, sequential(fp32), sequential(fp32))
    """

    parts: int
    inner: Accumulation
    outer: Accumulation

    def __init__(self, parts: int, inner: AccumulationLike, outer: AccumulationLike) -> None:
        object.__setattr__(self, "parts", as_index(parts, "parts", 1, _MOST))
        object.__setattr__(self, "inner", as_accumulation(inner, "inner"))
        object.__setattr__(self, "outer", _without_tensor_core(outer, "outer", _ADDS_PRODUCTS))

    def _texts(self, show: Any) -> list[str]:
        return [str(self.parts), show(self.inner), show(self.outer)]


AccumulationLike: TypeAlias = "Accumulation | FormatLike"


def _without_tensor_core(x: AccumulationLike, argument: str, why: str) -> Accumulation:
    how = as_accumulation(x, argument)
    if tensor_cores(how):
        raise TypeError(f"{argument} cannot be {how}: {why}")
    return how


_ADDS_PRODUCTS = "a TensorCore adds products of matrices, not results of parts"
_TAKES_NEIGHBOURS = "the instructions of a TensorCore take neighbours along K, not terms that stand `lanes` apart"


def leaves(how: Accumulation) -> list[Leaf]:
    """The leaves of a description: inner before outer. A TensorCore is none.

    >>> leaves(parse("blocked(fp16, 128, fp32)"))
    [Sequential(FP16), Sequential(FP32)]
    """
    return [end for end in _ends(how) if isinstance(end, Leaf)]


def tensor_cores(how: Accumulation) -> list[TensorCore]:
    """The TensorCores in a description.

    >>> tensor_cores(parse("blocked(hopper, 128, fp32)"))
    [TensorCore('hopper')]
    """
    return [end for end in _ends(how) if isinstance(end, TensorCore)]


def _ends(how: Accumulation) -> list[Accumulation]:
    if isinstance(how, Strided | Blocked | SplitK):
        return _ends(how.inner) + _ends(how.outer)
    return [how]


def fitted(
    how: Accumulation, a: FloatFormat, b: FloatFormat, format: FloatFormat | None = None, scales: Scales | None = None
) -> Accumulation:
    """The description for operands of these formats: every TensorCore's instruction and output named.

    `format` is what is asked of the result. Only a TensorCore that is the whole description looks at it: the results of
    parts, which something else adds, are FP32 unless the description says otherwise. A ValueError lists what there is
    where the operands fit no instruction.

    >>> import floatsim as fs
    >>> fitted(parse("hopper"), fs.E4M3, fs.E4M3, fs.FP16)
    TensorCore('hopper', 'wgmma.k32', output=FP16)
    >>> fitted(parse("blocked(hopper, 128, fp32)"), fs.E4M3, fs.E4M3, fs.FP16)
    Blocked(TensorCore('hopper', 'wgmma.k32', output=FP32), 128, Sequential(FP32))
    """
    if isinstance(how, TensorCore):
        row = how.row(a, b, format, scales)
        return TensorCore(how.arch, row.name, row.output)
    if isinstance(how, Blocked | SplitK) and tensor_cores(how):
        return dataclasses.replace(how, inner=fitted(how.inner, a, b, None, scales))
    return how


@functools.lru_cache(maxsize=1024)
def settled(leaf: Leaf, call: Attributes) -> tuple[Attributes, Attributes]:
    """How the leaf rounds sums, and how products: what is not its own it inherits from the call.

    >>> [how.rounding.name for how in settled(parse("sequential(fp16, product_rounding=rtz)"), Attributes())]
    ['TIES_TO_EVEN', 'TOWARD_ZERO']
    """
    how = dataclasses.replace(
        call,
        rounding=call.rounding if leaf.rounding is None else leaf.rounding,
        ftz=call.ftz if leaf.ftz is None else leaf.ftz,
        daz=call.daz if leaf.daz is None else leaf.daz,
        overflow=leaf.overflow,
    )
    own = leaf.product_rounding if isinstance(leaf, ProductLeaf) else None
    return how, how if own is None else dataclasses.replace(how, rounding=own)


@functools.lru_cache(maxsize=1024)
def rounds_stochastically(how: Accumulation) -> bool:
    """Whether a leaf asks for stochastic rounding by itself, whatever the call says.

    >>> rounds_stochastically(parse("blocked(sequential(fp16, rounding=sr), 8, fp32)"))
    True
    """
    own = [(leaf.rounding, getattr(leaf, "product_rounding", None)) for leaf in leaves(how)]
    return any(Rounding.STOCHASTIC in pair for pair in own)


# -- the text form -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Form:
    """How a description is written: its class, its positional arguments, and its words that stand alone."""

    build: Any
    shape: str
    words: dict[str, dict[str, Any]] = field(default_factory=dict)
    _KEYWORDS: ClassVar[tuple[str, ...]] = ("product", "product_rounding", "rounding", "ftz", "daz", "overflow")

    @property
    def is_leaf(self) -> bool:
        return issubclass(self.build, Leaf)

    @property
    def is_composite(self) -> bool:
        return issubclass(self.build, _Composite)


_TREE_WORDS: dict[str, dict[str, Any]] = {tree: {"tree": tree} for tree in TREES}
_MANNER_WORDS: dict[str, dict[str, Any]] = {"ftz": {"ftz": True}, "daz": {"daz": True}}
_FORMS = {
    "sequential": _Form(Sequential, "sequential(fmt) or sequential(fmt, fused)", {"fused": {"fused": True}}),
    "pairwise": _Form(Pairwise, "pairwise(fmt) or pairwise(fmt, tree)", _TREE_WORDS),
    "kahan": _Form(Kahan, "kahan(fmt)"),
    "neumaier": _Form(Neumaier, "neumaier(fmt)"),
    "exact": _Form(Exact, "exact(fmt)"),
    "strided": _Form(Strided, "strided(inner, lanes) or strided(inner, lanes, outer)"),
    "blocked": _Form(Blocked, "blocked(inner, every, outer)"),
    "splitk": _Form(SplitK, "splitk(parts, inner, outer)"),
    "tensorcore": _Form(TensorCore, "tensorcore(arch) or tensorcore(arch, instruction, output=fp16)"),
}
_WORDS = {word for form in _FORMS.values() for word in form.words}
_VALUES: dict[str, Any] = {"true": True, "false": False, "none": None}


def _split(text: str) -> list[str]:
    """The arguments between commas that stand in no parentheses."""
    parts, depth = [""], 0
    for c in text:
        depth += (c == "(") - (c == ")")
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
        if depth < 0:
            raise ValueError("a parenthesis closes that was not opened")
    if depth:
        raise ValueError("a parenthesis is not closed")
    return [part.strip() for part in parts]


def _positional(form: _Form, text: str, same: FloatFormat | None) -> Any:
    if text.isdecimal():
        return int(text)
    if form.is_composite:
        return parse(text, same)
    return same if text.lower() == "same" and same is not None else text


def _arguments(form: _Form, body: str, same: FloatFormat | None) -> tuple[list[Any], dict[str, Any]]:
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    words = form.words | (_MANNER_WORDS if form.is_leaf else {})
    for text in _split(body):
        name, equals, value = (part.strip() for part in text.partition("="))
        name = name.lower()
        if not text:
            raise ValueError("an argument is missing")
        if equals and "(" not in name:
            known = dataclasses.fields(form.build)
            if name not in (names := [f.name for f in known]):
                near = difflib.get_close_matches(name, names, n=1)
                raise ValueError(f"unknown argument {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
            given = {name: _VALUES.get(value.lower(), int(value) if value.isdecimal() else value)}
        elif text.lower() in words:
            given = words[text.lower()]
        elif text.lower() in _WORDS:
            raise ValueError(f"{form.build.__name__.lower()} has no {text.lower()!r}")
        else:
            positional.append(_positional(form, text, same))
            continue
        if twice := keywords.keys() & given.keys():
            raise ValueError(f"{min(twice)} is given twice")
        keywords |= given
    return positional, keywords


def parse(text: str, same: FloatFormat | None = None) -> Accumulation:
    """An accumulation from its text form, as `str` of it prints.

    A description is written as its class in lower case with its arguments: `blocked(sequential(fp16), 128, fp32)`.
    A format alone is short for its Sequential, and an architecture for its TensorCore. `fused`, `ftz`, `daz` and the
    names of trees stand alone; the other arguments are written `name=value`:
    `sequential(fp16, product=fp32, rounding=rtz, overflow=saturate_finite)`.

    `same` is the format that the word "same" stands for, if there is one: `sequential(same, fused)`.

    Raises ValueError, naming the part that was not understood and the forms there are.

    >>> parse("fp16"), parse("sequential(bf16, fused)"), parse("exact(fp32)")
    (Sequential(FP16), Sequential(BF16, fused=True), Exact(FP32))
    >>> parse("strided(fp16, 32)"), parse("hopper")
    (Strided(Sequential(FP16), 32, Pairwise(FP16)), TensorCore('hopper'))
    """
    name, opened, rest = text.strip().partition("(")
    form = _FORMS.get(name.strip().lower())
    if form is None and same is not None and text.strip().lower() == "same":
        return Sequential(same)
    if form is None and is_architecture(text):
        return TensorCore(text)
    if form is None:
        try:
            return Sequential(as_format(text))
        except ValueError as error:
            forms = ", ".join([f.shape for f in _FORMS.values()] + [f"an architecture: {', '.join(ARCHITECTURES)}"])
            if (near := nearest(text)) is not None:
                raise ValueError(f"unknown accumulation {text!r}; did you mean {near!r}? Write {forms}") from None
            raise ValueError(f"unknown accumulation {text!r} ({error}); write a format, {forms}") from None
    if not opened or not rest.endswith(")"):
        raise ValueError(f"accumulation {text!r} is not complete; write {form.shape}")
    try:
        positional, keywords = _arguments(form, rest[:-1], same)
        built: Accumulation = form.build(*positional, **keywords)
    except (TypeError, ValueError) as error:
        message = str(error).split("__init__() ")[-1]
        raise ValueError(f"accumulation {text!r}: {message}; write {form.shape}") from None
    return built


_parsed = functools.lru_cache(maxsize=256)(parse)


def as_accumulation(x: Any, argument: str = "accumulate") -> Accumulation:
    """An accumulation as such or from its text form; a format is short for its Sequential.

    Parameters
    ----------
    x : description, format or text
        See `parse` for the text form.
    argument : str
        What errors call it.

    Raises
    ------
    TypeError, ValueError
        For what is no description, and texts that are not understood.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.as_accumulation("blocked(fp16, 128, fp32)")
    Blocked(Sequential(FP16), 128, Sequential(FP32))
    """
    if isinstance(x, Accumulation):
        return x
    if isinstance(x, str):
        return _parsed(x)
    try:
        return Sequential(as_format(x))
    except TypeError as error:
        if isinstance(x, FloatFormat):
            raise
        raise TypeError(
            f"{argument} must be a description such as fs.Sequential(fmt), a format, or text like 'sequential(fp16)', "
            f"not {x!r} ({error})"
        ) from None
