"""Base classes of all descriptions of sums."""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from floatsim.formats import FloatFormat, FormatLike, as_format
from floatsim.formats._hashing import IdentityCache
from floatsim.formats._validation import as_flag
from floatsim.formats.rounding import Overflow, OverflowLike, Rounding, RoundingLike, as_member

__all__ = [
    "MOST", "TEXT_FORMS", "TREES", "Accumulation", "Composite", "Leaf", "ProductLeaf", "Same", "TreeLeaf",
    "accumulator_format", "one_object", "value_text",
]  # fmt: skip

TREES = ("adjacent", "halving", "numpy")
MOST = 1 << 62  # the largest number of lanes or parts, and the largest block length
Same: TypeAlias = Literal["same"]

TEXT_FORMS: dict[str, type[Accumulation]] = {}
"""The classes that have a text form, by the name in it: the class's name in lower case."""


_MADE = IdentityCache()
"""The descriptions by the identities of their class and arguments, whose types are among the next ones."""
_IMMUTABLE = (str, int, type(None), enum.Enum, FloatFormat, type)
_EQUAL: dict[tuple[Accumulation, str], Accumulation] = {}


def one_object(description: Accumulation) -> Accumulation:
    """Return the one object of all equal descriptions whose formats have equal names: plans are cached by identity.

    The text of a description has the names of the formats, which `==` does not compare.

    >>> import copy, floatsim as fs
    >>> from floatsim.accumulation.base import one_object
    >>> one_object(copy.copy(fs.Kahan("fp16"))) is fs.Kahan(fs.FP16)
    True
    """
    if len(_EQUAL) >= 1024:
        _EQUAL.clear()
        _MADE.clear()  # else an object from before would stand beside a new one that is equal
    return _EQUAL.setdefault((description, repr(description)), description)


class _OneObject(type):
    """The type of descriptions: a call with the arguments of an earlier call returns its object."""

    if not TYPE_CHECKING:  # static checkers read the signatures of `__init__`

        def __call__(cls, *args, **keywords):
            arguments = [cls, *args]
            for name, value in keywords.items():
                arguments += name, value
            for i, argument in enumerate(arguments):
                if type(argument) is str:
                    arguments[i] = sys.intern(argument)
            key = tuple(arguments)
            found = _MADE.find(key)
            if found is None:
                found = super().__call__(*args, **keywords)
                if all(isinstance(argument, (*_IMMUTABLE, Accumulation)) for argument in key):
                    found = one_object(found)
                    _MADE.keep(key, found)
            return found


class Accumulation(metaclass=_OneObject):
    """Base class of all descriptions: they have a result format and a text form.

    Equal descriptions are one object.

    >>> import floatsim as fs
    >>> isinstance(fs.Kahan("fp16"), fs.accumulation.Accumulation), fs.Kahan("fp16") is fs.Kahan(fs.FP16)
    (True, True)
    """

    text_form: ClassVar[str]
    """The text form, as error messages show it. Every class that sets one can be written as text."""
    text_words: ClassVar[dict[str, dict[str, Any]]] = {}
    """The words of the text form that stand for keyword arguments."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "text_form" in vars(cls):
            TEXT_FORMS[cls.__name__.lower()] = cls

    @property
    def result_format(self) -> FloatFormat:
        """The format of the results: that of the outermost accumulator."""
        raise NotImplementedError

    @property
    def children(self) -> tuple[Accumulation, ...]:
        """The descriptions that this one is made of, in the order in which they add. A leaf has none."""
        return ()

    def with_children(self, change: Callable[[Accumulation], Accumulation]) -> Accumulation:
        """Return this description with each of its `children` changed by a function."""
        return self

    def operand_formats(self, a: FloatFormat, b: FloatFormat) -> tuple[FloatFormat, FloatFormat]:
        """Return the formats in which the `children` read operands of these formats."""
        return a, b

    @classmethod
    def is_word(cls, text: str) -> bool:
        """Return whether a positional argument of the text form is a word of its own, and not a description."""
        return True

    def _texts(self, show: Any) -> list[str]:
        """Return the arguments as text, without those that have their default. `show` is `str` or `repr`."""
        raise NotImplementedError

    def __str__(self) -> str:
        return f"{type(self).__name__.lower()}({', '.join(self._texts(str))})"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self._texts(repr))})"


def accumulator_format(format: FormatLike, argument: str = "format") -> FloatFormat:
    """Return the format of an accumulator, or raise a TypeError for scale formats."""
    try:
        named = as_format(format)
    except TypeError:
        raise TypeError(f"{argument} must be a format or its name, not {format!r}") from None
    if named.is_scale:
        raise TypeError(f"{named.name} is a scale format and cannot accumulate")
    return named


@dataclass(frozen=True, repr=False, init=False)
class Leaf(Accumulation):
    """An accumulation that adds terms, with rounding options of its own.

    An option that is None inherits the call's, then the context's. `overflow` is never inherited: accumulators overflow
    to infinity (NaN in formats without infinity) unless their description makes them saturate.
    """

    format: FloatFormat
    rounding: Rounding | None = field(default=None, kw_only=True)
    ftz: bool | None = field(default=None, kw_only=True)
    daz: bool | None = field(default=None, kw_only=True)
    overflow: Overflow = field(default=Overflow.INFINITY, kw_only=True)

    def __init__(
        self, format: FormatLike, *, rounding: RoundingLike | None = None, ftz: bool | None = None,
        daz: bool | None = None, overflow: OverflowLike = Overflow.INFINITY,
    ) -> None:  # fmt: skip
        self._set(
            format=accumulator_format(format),
            rounding=None if rounding is None else as_member(Rounding, rounding, "rounding"),
            ftz=None if ftz is None else as_flag(ftz, "ftz"),
            daz=None if daz is None else as_flag(daz, "daz"),
            overflow=as_member(Overflow, overflow, "overflow"),
        )

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def result_format(self) -> FloatFormat:
        return self.format

    def _option_texts(self, show: Any) -> list[str]:
        given: dict[str, Any] = {"rounding": self.rounding, "ftz": self.ftz, "daz": self.daz}
        if self.overflow is not Overflow.INFINITY:
            given["overflow"] = self.overflow
        return [f"{name}={value_text(value, show)}" for name, value in given.items() if value is not None]

    def _texts(self, show: Any) -> list[str]:
        return [value_text(self.format, show), *self._option_texts(show)]


def value_text(value: Any, show: Any) -> str:
    """Return an argument as text. `show` is `str` or `repr`."""
    if isinstance(value, Rounding | Overflow):
        text = value.name.lower()
        return repr(text) if show is repr else text
    if isinstance(value, FloatFormat):
        name = value.name if show is repr else value.name.lower()
        return repr(name) if show is repr and "(" in name else name
    if isinstance(value, str):
        return show(value)  # type: ignore[no-any-return]
    return str(value) if show is repr else str(value).lower()


@dataclass(frozen=True, repr=False, init=False)
class ProductLeaf(Leaf):
    """A leaf that may round products before it adds them."""

    product: FloatFormat | None = field(default=None, kw_only=True)
    product_rounding: Rounding | None = field(default=None, kw_only=True)

    def __init__(
        self, format: FormatLike, product: FormatLike | Same | None = "same", *,
        product_rounding: RoundingLike | None = None, rounding: RoundingLike | None = None, ftz: bool | None = None,
        daz: bool | None = None, overflow: OverflowLike = Overflow.INFINITY,
    ) -> None:  # fmt: skip
        super().__init__(format, rounding=rounding, ftz=ftz, daz=daz, overflow=overflow)
        if product is None and product_rounding is not None:
            raise ValueError("product=None keeps the products exact: there is no product_rounding")
        fmt = self.format if isinstance(product, str) and product == "same" else product
        direction = None if product_rounding is None else as_member(Rounding, product_rounding, "product_rounding")
        self._set(product=None if fmt is None else accumulator_format(fmt, "product"), product_rounding=direction)

    def _product_texts(self, show: Any) -> list[str]:
        texts = []
        if self.product is None:
            texts.append(f"product={'None' if show is repr else 'none'}")
        elif self.product != self.format:
            texts.append(f"product={value_text(self.product, show)}")
        if self.product_rounding is not None:
            texts.append(f"product_rounding={value_text(self.product_rounding, show)}")
        return texts

    def _texts(self, show: Any) -> list[str]:
        return [value_text(self.format, show), *self._product_texts(show), *self._option_texts(show)]


class TreeLeaf(ProductLeaf):
    """A leaf whose additions form a tree: a name of `TREES`, or a `TreeShape`."""

    tree: Any


class Composite(Accumulation):
    """A description with an inner description for the parts and an outer description for their results."""

    inner: Accumulation
    outer: Accumulation

    @property
    def result_format(self) -> FloatFormat:
        return self.outer.result_format

    @property
    def children(self) -> tuple[Accumulation, ...]:
        return self.inner, self.outer

    def with_children(self, change: Callable[[Accumulation], Accumulation]) -> Accumulation:
        fields: Any = {"inner": change(self.inner), "outer": change(self.outer)}
        return replace(self, **fields)  # type: ignore[type-var]  # every composite is a dataclass

    @classmethod
    def is_word(cls, text: str) -> bool:
        return False
