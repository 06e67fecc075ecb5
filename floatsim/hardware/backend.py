"""The backend that runs on a card: the functions of `floatsim.emulator`, as far as the card has instructions for them.

What it has none for is an error that says what there is; nothing is emulated in its place. There are no flags and no
records: a card keeps neither. Codes of other formats are widened on the host where that is exact. NaNs that CUDA cores
return become the format's canonical one, as everywhere; those of matrix instructions stay as they are.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import numpy as np

from floatsim.accumulation import (
    Accumulation,
    Blocked,
    Leaf,
    Pairwise,
    Sequential,
    SplitK,
    Strided,
    TensorCore,
    leaves,
    settled,
)
from floatsim.accumulation.partition import partition
from floatsim.arrays import events as recording
from floatsim.emulator import elementwise as elements
from floatsim.emulator.accumulate import Sums
from floatsim.emulator.backend import __all__ as _operations
from floatsim.emulator.tensorcore_operands import BlockScales
from floatsim.formats import FP32, FP64, FloatFormat
from floatsim.formats.call import Manner
from floatsim.formats.rounding import Attributes, FloatClass, Overflow, Rounding
from floatsim.formats.value_sets import contains
from floatsim.hardware.device import Device
from floatsim.hardware.tables.compute_capability import architecture_of
from floatsim.hardware.tables.ptx_matrix import find
from floatsim.hardware.tables.ptx_scalar import find_scalar
from floatsim.reference.random import draws

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["accumulate", "convert", "device", "elementwise", "quantize"]

Codes: TypeAlias = "NDArray[np.unsignedinteger[Any]]"
Events: TypeAlias = "NDArray[np.uint8]"
Operand: TypeAlias = "tuple[Codes, FloatFormat]"
Indices: TypeAlias = "NDArray[np.int64]"

_EXACT = Manner(Attributes())


@functools.cache
def device() -> Device:
    """The card: the first one."""
    return Device()


def __getattr__(name: str) -> Any:
    """The emulator's other functions, which a card does not have: errors, when they are called."""
    if name not in _operations:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def missing(*_: Any, **__: Any) -> NoReturn:
        raise ValueError(
            f"backend='hardware' does not do {name.replace('_', ' ')}; it does convert, quantize, add, subtract, "
            "multiply, divide, sqrt, fma, matmul, dot and sum. backend='emulator' does all"
        )

    return missing


# -- what a card does not do -------------------------------------------------------------------------------------------


def _check_no_events(manner: Manner | None = None) -> None:
    if manner is not None and manner.return_flags:
        raise ValueError("return_flags=True: a card keeps no flags; backend='emulator' does")
    if recording.wanted():
        raise ValueError("fs.record() counts what happens, which a card does not tell; backend='emulator' does")


def _widened(codes: Codes, source: FloatFormat, fmt: FloatFormat, what: str) -> Codes:
    """The same numbers in another format, on the host; an error where that would round."""
    if source == fmt:
        return codes
    if not contains(fmt, source):
        raise ValueError(f"{what} {source} where a card computes in {fmt}, which does not hold all of its numbers")
    return elements.convert(codes, source, fmt, _EXACT)[0]


def _canonical(codes: Codes, fmt: FloatFormat) -> Codes:
    """With the format's own NaN."""
    is_nan = elements.classify(codes, fmt) <= FloatClass.QUIET_NAN
    if not is_nan.any():
        return codes
    found: Codes = np.where(is_nan, fmt.code_dtype.type(fmt.canonical_nan or 0), codes)
    return found


def _operand(x: Operand, fmt: FloatFormat, name: str, how: Attributes) -> Codes:
    """An operand in the result's format, in which a card computes: the same numbers, or an error.

    All numbers of a narrower format are there; of a wider one a single number may be, such as a factor of 2.
    """
    codes, source = x
    if source == fmt:
        return codes
    if how.daz:
        why = "with daz=True, as what is subnormal in one is not in the other"
    elif contains(fmt, source) or codes.size == 1:
        same, events = elements.convert(codes, source, fmt, _EXACT)
        if not events.any() or contains(fmt, source):
            return same
        why = "which does not hold it"
    else:
        why = "which does not hold all of its numbers"
    raise ValueError(f"{name} of {source} where a card computes in {fmt}, {why}; fs.convert it")


# -- element by element ------------------------------------------------------------------------------------------------


def elementwise(
    name: str, operands: list[Operand], fmt: FloatFormat, manner: Manner, want_events: bool = True,
    out: Codes | None = None,
) -> tuple[Codes, Events | None]:  # fmt: skip
    """As the emulator's: no events, or none that happened, as a card does not tell."""
    _check_no_events(manner)
    if name == "convert":
        ((_, source),) = operands
    else:
        operands, source = [(_operand(x, fmt, name, manner.attributes), fmt) for x in operands], fmt
    card = device()
    row = find_scalar(name, source, fmt, manner.attributes, card.card.capability)
    shape = np.broadcast_shapes(*(codes.shape for codes, _ in operands))
    flat = [np.ascontiguousarray(np.broadcast_to(codes, shape)).reshape(-1) for codes, _ in operands]
    if row.random_bits:
        flat.append(draws(manner.seed, manner.offset, flat[0].size, row.random_bits))
    found = _canonical(card.scalar(row, *flat), fmt).reshape(shape)
    return found, np.zeros(shape, np.uint8) if want_events else None


def convert(codes: Codes, source: FloatFormat, fmt: FloatFormat, manner: Manner) -> tuple[Codes, Events]:
    """As the emulator's; no events. What stays as it is needs no card."""
    how = manner.attributes
    clamps = how.overflow is Overflow.SATURATE_FINITE and fmt.has_infinity
    if source == fmt and not (how.daz or how.ftz or clamps):
        _check_no_events(manner)
        return _canonical(codes, fmt), np.zeros(codes.shape, np.uint8)
    found, events = elementwise("convert", [(codes, source)], fmt, manner)
    assert events is not None
    return found, events


def quantize(
    codes: Codes, carrier: FloatFormat, fmt: FloatFormat, manner: Manner, want_events: bool, out: Codes
) -> Events | None:
    """As the emulator's: rounded by the card, and widened back."""
    rounded, events = convert(codes, carrier, fmt, manner)
    out[...] = elements.convert(rounded, fmt, carrier, _EXACT)[0]
    return events if want_events else None


# -- sums --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Terms:
    """The products of a, (M, K), and b, (K, N); without a the values of b."""

    a: Operand | None
    b: Operand
    scales: BlockScales | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Of the results."""
        return 1 if self.a is None else len(self.a[0]), self.b[0].shape[1]

    @property
    def length(self) -> int:
        return len(self.b[0])


@dataclass(frozen=True)
class _Evaluation:
    """Descriptions as calls of a device. `call` is how the call rounds; results are (ranges, M, N) codes."""

    device: Device
    call: Attributes

    def evaluate(self, how: Accumulation, terms: _Terms, ranges: Indices, start: Operand | None = None) -> Codes:
        """The results of `how`; `start` is c, (M, N), for a single range."""
        if isinstance(how, Leaf):
            return self._leaf(how, terms, ranges, start)
        if isinstance(how, TensorCore):
            return self._matrix_unit(how, terms, ranges, start)
        assert isinstance(how, Blocked | SplitK | Strided)
        if isinstance(how, Blocked) and isinstance(how.inner, TensorCore) and self._is_promoted(how, terms, ranges):
            return self._matrix_unit(how.inner, terms, ranges, start, how.every)
        parts = partition(how, ranges.tobytes())
        inner = self.evaluate(how.inner, terms, parts.parts)
        cells = (1, terms.shape[0] * terms.shape[1])
        partials = np.ascontiguousarray(inner).reshape(len(parts.parts), cells[1])
        values = _Terms(None, (partials, how.inner.result_format))
        first = None if start is None else (start[0].reshape(cells), start[1])
        if isinstance(how, Strided) and terms.length:
            found = self._add_last(leaves(how)[-1], self.evaluate(how.outer, values, parts.groups), first)
        else:
            found = self.evaluate(how.outer, values, parts.groups, first)
        return found.reshape(len(ranges), *terms.shape)

    # -- leaves ------------------------------------------------------------------------------------------------

    def _leaf(self, leaf: Leaf, terms: _Terms, ranges: Indices, start: Operand | None) -> Codes:
        if not isinstance(leaf, Sequential | Pairwise):
            raise ValueError(
                f"backend='hardware' does not sum by {leaf}; it does Sequential, Pairwise, TensorCore, and Strided, "
                "Blocked and SplitK of these"
            )
        how, products = self._settled(leaf)
        fmt = leaf.format
        if how.daz or how.ftz:
            self._check_flushing(leaf, terms)
        b = _widened(*terms.b, fmt, "terms are" if terms.a is None else "b is")
        a, fused = None, False
        if terms.a is not None:
            a = _widened(*terms.a, fmt, "a is")
            if leaf.product not in (None, fmt):
                raise ValueError(
                    f"{leaf} rounds products to {leaf.product}; a card rounds them to {fmt}, or not (fused)"
                )
            fused = leaf.product is None
        if fused and isinstance(leaf, Pairwise):
            raise ValueError(
                f"{leaf} keeps products exact, which a card does only in a chain: fs.Sequential(fused=True)"
            )
        tree = leaf.tree if isinstance(leaf, Pairwise) else None
        seed = None
        if start is not None and (tree is None or not terms.length):
            seed = self._rounded(start, fmt, how)[np.newaxis]
        sums = self.device.sum(fmt, a, b, ranges, seed, how, products, fused, tree)
        found = _canonical(sums, fmt)
        return self._add_last(leaf, found, start) if tree is not None and terms.length else found

    def _settled(self, leaf: Leaf) -> tuple[Attributes, Attributes]:
        """How sums and products are rounded, after it is clear that a card does so."""
        how, products = settled(leaf, self.call)
        find_scalar("add", leaf.format, leaf.format, how, self.device.card.capability)
        return how, products

    def _check_flushing(self, leaf: Leaf, terms: _Terms) -> None:
        """Instructions flush what they read and return: no leaf carried up a tree, no subnormal that was widened."""
        if not isinstance(leaf, Sequential):
            raise ValueError(f"{leaf} with daz and ftz: a card flushes in a chain of sums alone, fs.Sequential")
        for x in (terms.a, terms.b):
            if x is not None and x[1] != leaf.format:
                raise ValueError(
                    f"daz reads subnormals of {x[1]} as zeros; a card adds in {leaf.format}, where they are none: "
                    "fs.convert the operands"
                )

    def _add_last(self, leaf: Leaf, sums: Codes, start: Operand | None) -> Codes:
        """round(sums + c), where there is a c."""
        if start is None:
            return sums
        how, _ = self._settled(leaf)
        fmt, addend = leaf.format, _widened(*start, leaf.format, "c is")
        row = find_scalar("add", fmt, fmt, how, self.device.card.capability)
        return _canonical(self.device.scalar(row, sums.reshape(-1), addend.reshape(-1)), fmt).reshape(sums.shape)

    def _rounded(self, x: Operand, fmt: FloatFormat, how: Attributes) -> Codes:
        codes, source = np.ascontiguousarray(x[0]), x[1]
        if contains(fmt, source) and not (how.daz or how.ftz):
            return _widened(codes, source, fmt, "c is")
        return _canonical(self.device.convert(codes, source, fmt, how), fmt)

    # -- matrix instructions -----------------------------------------------------------------------------------

    def _is_promoted(self, how: Blocked, terms: _Terms, ranges: Indices) -> bool:
        """Whether the kernel of products does it: blocks of whole instructions, added in the output's own format."""
        assert isinstance(how.inner, TensorCore)
        output = how.inner.result_format
        if not isinstance(how.outer, Sequential) or how.outer.format != output or output not in (FP32, FP64):
            return False
        to_even = self._settled(how.outer)[0].rounding is Rounding.TIES_TO_EVEN
        return to_even and len(ranges) == 1 and how.every % self._row(how.inner, terms).k == 0

    def _row(self, how: TensorCore, terms: _Terms) -> Any:
        assert terms.a is not None
        return how.row(terms.a[1], terms.b[1], how.output, terms.scales and terms.scales.of)

    def _matrix_unit(
        self, how: TensorCore, terms: _Terms, ranges: Indices, start: Operand | None, every: int = 0
    ) -> Codes:
        """Every range by a chain of instructions; c is rounded to D's format, ties to even."""
        assert terms.a is not None
        card = self.device.card
        if architecture_of(card.capability) != how.arch:
            is_a = (
                architecture_of(card.capability) or f"of compute capability {card.capability[0]}.{card.capability[1]}"
            )
            raise ValueError(f"{how} is the sum of {how.architecture.title}; this card, {card.name}, is {is_a}")
        row, scales = self._row(how, terms), terms.scales
        (a, a_format), (b, b_format) = terms.a, terms.b
        variant = find(row.name, a_format, b_format, row.output, scales and scales.of, card.capability)
        c = None if start is None else self._rounded(start, row.output, Attributes())
        found = np.zeros((len(ranges), *terms.shape), row.output.code_dtype)
        for n, (first, stop, _) in enumerate(ranges.tolist()):
            of_blocks = None
            if scales is not None:
                per = scales.of.every
                blocks = slice(first // per, -(-stop // per))
                of_blocks = scales.a[0][:, blocks], scales.b[0][blocks]
            found[n] = self.device.matmul(variant, a[:, first:stop], b[first:stop], c, of_blocks, every // row.k)
        return found


def accumulate(
    a: Operand, b: Operand | None, c: Operand | None, pairs: Indices, how: Accumulation, manner: Manner,
    wanted: frozenset[str], title: str, base: int = 0, scales: BlockScales | None = None,
) -> Sums:  # fmt: skip
    """Sums as described, as the emulator's `accumulate`."""
    _check_no_events()
    evaluation = _Evaluation(device(), manner.attributes)

    def one(terms: _Terms, start: Codes | None) -> Codes:
        first = None if start is None or c is None else (start, c[1])
        found: Codes = evaluation.evaluate(how, terms, np.array([[0, terms.length, 1]], np.int64), first)[0]
        return found

    if b is None:
        values = _Terms(None, (np.ascontiguousarray(a[0]), a[1]))
        return Sums(one(values, None if c is None else c[0][0])[np.newaxis], {}, {})
    out = np.zeros((len(pairs), a[0].shape[1], b[0].shape[2]), how.result_format.code_dtype)
    for n, (x, y) in enumerate(pairs.tolist()):
        own = None if scales is None else BlockScales(scales.a[x : x + 1], scales.b[y : y + 1], scales.of)
        terms = _Terms((np.ascontiguousarray(a[0][x]), a[1]), (np.ascontiguousarray(b[0][y]), b[1]), own)
        out[n] = one(terms, None if c is None else c[0][n])
    return Sums(out, {}, {})
