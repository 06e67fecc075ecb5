"""The text form of every description of a sum."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from floatsim._literals import AccumulationName
from floatsim.accumulation.base import TEXT_FORMS, Accumulation, Leaf, one_object
from floatsim.accumulation.leaves import Sequential
from floatsim.accumulation.tensor_core import TensorCore
from floatsim.formats import FloatFormat, FormatLike, as_format
from floatsim.formats._hashing import IdentityCache
from floatsim.formats._validation import nearest_name
from floatsim.tensorcore.architectures import ARCHITECTURES, is_architecture, nearest

__all__ = ["ACCUMULATIONS", "AccumulationLike", "as_accumulation", "parse"]

ACCUMULATIONS: Mapping[str, type[Accumulation]] = MappingProxyType(TEXT_FORMS)
"""The kinds of descriptions, by the names of their text forms: "sequential", "blocked" ...

>>> import floatsim as fs
>>> fs.ACCUMULATIONS["kahan"] is fs.Kahan
True
"""

AccumulationLike: TypeAlias = "Accumulation | AccumulationName | FormatLike"
"""What `as_accumulation` accepts. The literal names serve completion in editors."""


_OPTION_WORDS: dict[str, dict[str, Any]] = {"ftz": {"ftz": True}, "daz": {"daz": True}}
_VALUES: dict[str, Any] = {"true": True, "false": False, "none": None}


def _split(text: str) -> list[str]:
    """The arguments between commas that stand in no parentheses or brackets."""
    parts, depth, brackets = [""], 0, 0
    for c in text:
        depth += (c == "(") - (c == ")")
        brackets += (c == "[") - (c == "]")
        if c == "," and depth == brackets == 0:
            parts.append("")
        else:
            parts[-1] += c
        if depth < 0:
            raise ValueError("a parenthesis closes that was not opened")
        if brackets < 0:
            raise ValueError("a bracket closes that was not opened")
    if depth or brackets:
        raise ValueError(f"a {'parenthesis' if depth else 'bracket'} is not closed")
    return [part.strip() for part in parts]


def _positional(form: type[Accumulation], text: str, same: FloatFormat | None) -> Any:
    if text.isdecimal():
        return int(text)
    if text.startswith("[") and text.endswith("]"):
        return [_positional(form, item, same) for item in _split(text[1:-1])]
    if not form.is_word(text):
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
                near = nearest_name(name, names)
                raise ValueError(f"unknown argument {name!r}" + (f"; did you mean {near!r}?" if near else ""))
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
    key = sys.intern(str(text)), same
    found: Accumulation | None = _PARSED.find(key)
    if found is None:
        found = _parse(text, same)
        _PARSED.keep(key, found)
    return found


_PARSED = IdentityCache()


def _parse(text: str, same: FloatFormat | None) -> Accumulation:
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
        return one_object(x)
    if isinstance(x, str):
        return parse(x)
    try:
        return Sequential(as_format(x))
    except TypeError as error:
        if isinstance(x, FloatFormat):
            raise
        raise TypeError(
            f"{argument} must be a description such as fs.Sequential(fmt), a format, or text like 'sequential(fp16)', "
            f"not {x!r} ({error})"
        ) from None
