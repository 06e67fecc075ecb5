"""Descriptions that split the terms into parts, and the text form of every description."""

from __future__ import annotations

import dataclasses
import difflib
import functools
from dataclasses import dataclass
from typing import Any, TypeAlias

from floatsim._literals import AccumulationName
from floatsim.accumulation.base import MOST, TEXT_FORMS, Accumulation, Composite, Leaf
from floatsim.accumulation.leaves import Pairwise, Sequential
from floatsim.accumulation.queries import tensor_cores
from floatsim.accumulation.tensor_core import TensorCore
from floatsim.formats import FloatFormat, FormatLike, as_format
from floatsim.formats._hashing import hashed_once
from floatsim.formats._validation import as_index
from floatsim.tensorcore.architectures import ARCHITECTURES, is_architecture, nearest

__all__ = ["AccumulationLike", "Blocked", "SplitK", "Strided", "as_accumulation", "parse"]


@hashed_once
@dataclass(frozen=True, repr=False, init=False)
class Strided(Composite):
    """Lane l sums the terms l, l + lanes, l + 2*lanes, ... by `inner`; `outer` adds the lanes in order.

    Lanes without a term are skipped. `c` is added last, with one more rounding to the format of outer. This is a loop
    with `lanes` accumulators (SIMD, or the threads of a CUDA block in a grid-stride loop).

    Parameters
    ----------
    inner : description, format or text
        The sum of a lane.
    lanes : int
        The number of lanes, at least 1.
    outer : description, format or text, optional
        The sum of the lanes' results. Default: Pairwise of inner's format.

    Raises
    ------
    TypeError
        If `inner` or `outer` is no description, or a TensorCore.
    ValueError
        If `lanes` is below 1, or a text is no description.

    Examples
    --------
    >>> import floatsim as fs
    >>> print(fs.Strided("fp16", 32, fs.Pairwise("fp16", tree="halving")))
    strided(sequential(fp16), 32, pairwise(fp16, halving))
    """

    text_form = "strided(inner, lanes) or strided(inner, lanes, outer)"

    inner: Accumulation
    lanes: int
    outer: Accumulation

    def __init__(self, inner: AccumulationLike, lanes: int, outer: AccumulationLike | None = None) -> None:
        object.__setattr__(self, "inner", _without_tensor_core(inner, "inner", _TAKES_NEIGHBOURS))
        object.__setattr__(self, "lanes", as_index(lanes, "lanes", 1, MOST))
        given = Pairwise(self.inner.result_format) if outer is None else outer
        object.__setattr__(self, "outer", _without_tensor_core(given, "outer", _ADDS_PRODUCTS))

    def _texts(self, show: Any) -> list[str]:
        return [show(self.inner), str(self.lanes), show(self.outer)]


@hashed_once
@dataclass(frozen=True, repr=False, init=False)
class Blocked(Composite):
    """Blocks of `every` terms, each summed by `inner` from its own zero; `outer` adds their results in order.

    The last block may be short. The results have inner's format. `c` seeds outer.

    DeepSeek-V3's promotion (arXiv 2412.19437, 3.3.2) has this form: a narrow inner sum over 128 terms, added to an FP32
    accumulator.

    Parameters
    ----------
    inner, outer : description, format or text
        The sum of a block, and the sum of the blocks' results.
    every : int
        The number of terms of a block, at least 1.

    Raises
    ------
    TypeError
        If `inner` or `outer` is no description, or `outer` a TensorCore.
    ValueError
        If `every` is below 1, or a text is no description.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.Blocked("fp16", 128, "fp32")
    Blocked(Sequential(FP16), 128, Sequential(FP32))
    """

    text_form = "blocked(inner, every, outer)"

    inner: Accumulation
    every: int
    outer: Accumulation

    def __init__(self, inner: AccumulationLike, every: int, outer: AccumulationLike) -> None:
        object.__setattr__(self, "inner", as_accumulation(inner, "inner"))
        object.__setattr__(self, "every", as_index(every, "every", 1, MOST))
        object.__setattr__(self, "outer", _without_tensor_core(outer, "outer", _ADDS_PRODUCTS))

    def _texts(self, show: Any) -> list[str]:
        return [show(self.inner), str(self.every), show(self.outer)]


@hashed_once
@dataclass(frozen=True, repr=False, init=False)
class SplitK(Composite):
    """K split into `parts` of ceil(K / parts) terms each, summed as in `Blocked`. Parts without a term are skipped.

    A second pass adds the results of the parts. CUTLASS's split-K kernels split K at multiples of their tile, into
    parts of ceil(ceil(K / tile) / parts) * tile terms: with a tile of 32, K = 600 in 4 parts is 160, 160, 160, 120.
    Describe that as `Blocked` with `every=160`.

    Parameters
    ----------
    parts : int
        The number of parts, at least 1.
    inner, outer : description, format or text
        The sum of a part, and the sum of the parts' results.

    Raises
    ------
    TypeError
        If `inner` or `outer` is no description, or `outer` a TensorCore.
    ValueError
        If `parts` is below 1, or a text is no description.

    Examples
    --------
    >>> import floatsim as fs
    >>> print(fs.SplitK(4, "fp32", "fp32"))
    splitk(4, sequential(fp32), sequential(fp32))
    """

    text_form = "splitk(parts, inner, outer)"

    parts: int
    inner: Accumulation
    outer: Accumulation

    def __init__(self, parts: int, inner: AccumulationLike, outer: AccumulationLike) -> None:
        object.__setattr__(self, "parts", as_index(parts, "parts", 1, MOST))
        object.__setattr__(self, "inner", as_accumulation(inner, "inner"))
        object.__setattr__(self, "outer", _without_tensor_core(outer, "outer", _ADDS_PRODUCTS))

    def _texts(self, show: Any) -> list[str]:
        return [str(self.parts), show(self.inner), show(self.outer)]


AccumulationLike: TypeAlias = "Accumulation | AccumulationName | FormatLike"
"""What `as_accumulation` accepts. The literal names serve completion in editors."""


def _without_tensor_core(x: AccumulationLike, argument: str, why: str) -> Accumulation:
    accumulation = as_accumulation(x, argument)
    if tensor_cores(accumulation):
        raise TypeError(f"{argument} cannot be {accumulation}: {why}")
    return accumulation


_ADDS_PRODUCTS = "a TensorCore adds products of matrices, not results of parts"
_TAKES_NEIGHBOURS = "the instructions of a TensorCore take consecutive terms along K, not every `lanes`-th term"


_OPTION_WORDS: dict[str, dict[str, Any]] = {"ftz": {"ftz": True}, "daz": {"daz": True}}
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


def _positional(form: type[Accumulation], text: str, same: FloatFormat | None) -> Any:
    if text.isdecimal():
        return int(text)
    if issubclass(form, Composite):
        return parse(text, same)
    return same if text.lower() == "same" and same is not None else text


def _arguments(form: type[Accumulation], body: str, same: FloatFormat | None) -> tuple[list[Any], dict[str, Any]]:
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    fields: Any = form  # the classes with a text form are dataclasses
    words = form.text_words | (_OPTION_WORDS if issubclass(form, Leaf) else {})
    for text in _split(body):
        name, equals, value = (part.strip() for part in text.partition("="))
        name = name.lower()
        if not text:
            raise ValueError("an argument is missing")
        if equals and "(" not in name:
            if name not in (names := [f.name for f in dataclasses.fields(fields)]):
                near = difflib.get_close_matches(name, names, n=1)
                raise ValueError(f"unknown argument {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
            given = {name: _VALUES.get(value.lower(), int(value) if value.isdecimal() else value)}
        elif text.lower() in words:
            given = words[text.lower()]
        elif any(text.lower() in other.text_words for other in TEXT_FORMS.values()):
            raise ValueError(f"{form.__name__.lower()} has no {text.lower()!r}")
        else:
            positional.append(_positional(form, text, same))
            continue
        if twice := keywords.keys() & given.keys():
            raise ValueError(f"{min(twice)} is given twice")
        keywords |= given
    return positional, keywords


def parse(text: str, same: FloatFormat | None = None) -> Accumulation:
    """Return an accumulation from its text form, which `str` of an accumulation returns.

    The text of a description is its class in lower case with its arguments: `blocked(sequential(fp16), 128, fp32)`. A
    format alone means its Sequential, and an architecture its TensorCore. `fused`, `ftz`, `daz` and the names of trees
    need no name. The other arguments are written `name=value`: `sequential(fp16, product=fp32, rounding=rtz,
    overflow=saturate_finite)`.

    Parameters
    ----------
    text : str
    same : FloatFormat, optional
        The format that the word "same" stands for, as in `sequential(same, fused)`.

    Raises
    ------
    ValueError
        If the text is no description. The message names the wrong part and the accepted forms.

    Examples
    --------
    >>> parse("fp16"), parse("sequential(bf16, fused)"), parse("exact(fp32)")
    (Sequential(FP16), Sequential(BF16, fused=True), Exact(FP32))
    >>> parse("strided(fp16, 32)"), parse("hopper")
    (Strided(Sequential(FP16), 32, Pairwise(FP16)), TensorCore('hopper'))
    """
    name, opened, rest = text.strip().partition("(")
    form = TEXT_FORMS.get(name.strip().lower())
    if form is None and same is not None and text.strip().lower() == "same":
        return Sequential(same)
    if form is None and is_architecture(text):
        return TensorCore(text)
    if form is None:
        try:
            return Sequential(as_format(text))
        except ValueError as error:
            forms = ", ".join(
                [known.text_form for known in TEXT_FORMS.values()] + [f"an architecture: {', '.join(ARCHITECTURES)}"]
            )
            if (near := nearest(text)) is not None:
                raise ValueError(f"unknown accumulation {text!r}; did you mean {near!r}? Write {forms}") from None
            raise ValueError(f"unknown accumulation {text!r} ({error}); write a format, {forms}") from None
    if not opened or not rest.endswith(")"):
        raise ValueError(f"accumulation {text!r} is not complete; write {form.text_form}")
    try:
        positional, keywords = _arguments(form, rest[:-1], same)
        return form(*positional, **keywords)
    except (TypeError, ValueError) as error:
        message = str(error).split("__init__() ")[-1]
        raise ValueError(f"accumulation {text!r}: {message}; write {form.text_form}") from None


_parsed = functools.lru_cache(maxsize=256)(parse)


def as_accumulation(x: Any, argument: str = "accumulate") -> Accumulation:
    """Return an accumulation from a description or its text form. A format means its Sequential.

    Parameters
    ----------
    x : description, format or text
        See `parse` for the text form.
    argument : str
        The name of the argument in error messages.

    Returns
    -------
    Accumulation

    Raises
    ------
    TypeError
        If x is no description, format or text.
    ValueError
        If a text is no description.

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
