"""The search of `identify_quantizer`: scales first, then codes, on longer and longer parts of the tensor."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from floatsim.arrays.array.conversion import encode
from floatsim.formats import BF16, E8M0, FP16, FP32, FP64, FloatFormat
from floatsim.quantization import GGUF_TYPES, IntegerFormat, LookupFormat, Scheme, from_gguf, quantize_blocks, to_gguf
from floatsim.quantization.gguf_quantizers import QUANTIZED_TYPES
from floatsim.quantization.scheme import largest_number
from floatsim.testing.quantizers.reading import Given, Reading
from floatsim.testing.quantizers.rules import (
    FORMS,
    PLACEMENTS,
    POWER_RULES,
    SCALE_LIMITS,
    SCALE_RULES,
    SCHEME_RULES,
    TENSOR_RULES,
    TWO_LEVEL_RULES,
    WHOLE_ROUNDINGS,
    ZERO_RULES,
    Arithmetic,
    Factors,
    Form,
    SchemeRule,
    Statistics,
    rounded_to,
    table_roundings,
)

__all__ = ["Codes", "Refused", "ScaleMatch", "Search", "zero_rules_of"]

Array: TypeAlias = NDArray[Any]

_STEPS = (1 << 10, 1 << 14, 1 << 18)  # elements after which rows that differ are dropped, then pieces of the last size
_MODES = ("ties_to_even", "ties_to_away", "toward_zero", "toward_positive", "toward_negative", "to_odd")
_MOST = 16  # rules of the scales whose codes are computed
ZERO_SIGNS = ("with the sign of x", "+0 where x is -0", "without sign")
SIGNED_NAN = "overflows to NaN with the sign of x"
STORED, UNROUNDED = "as stored", "before the rounding of the scales"
_NOT_RAISED, _ZEROS = "none", "none: some are zero"


class _TensorScale(NamedTuple):
    """What a second scale may be: its rule and the largest scale of a block that it counts with, p, and 1 / p."""

    text: str
    p: Any
    q: Any
    rule: str = ""
    limit: float | None = None


_NO_TENSOR_SCALE = _TensorScale("", None, None)


class Refused(NamedTuple):
    """A candidate that differs: the first mismatch, and how many of the first elements or blocks differ.

    `first` is the index of a block among the blocks, or of an element in x. `kind` is "block" or "element".
    """

    text: str
    first: tuple[int, ...]
    expected: float
    found: float
    mismatches: int
    compared: int
    kind: str = "element"

    def __str__(self) -> str:
        at = ", ".join(map(str, self.first))
        differ = "differs" if self.mismatches == 1 else "differ"
        if self.kind == "block":
            return (
                f"{self.text}: block [{at}]: stored {self.found:.9g}, rule {self.expected:.9g} "
                f"({self.mismatches} of {self.compared} blocks {differ})"
            )
        return (
            f"{self.text}: element [{at}]: stored code {self.found:.9g}, rule {self.expected:.9g} "
            f"({self.mismatches} of the first {self.compared} elements {differ})"
        )


@dataclass(frozen=True, eq=False)
class ScaleMatch:
    """A rule that has the scales of all blocks. `number` has the scales before their rounding, for all blocks.

    `least` says what replaces scales that would be subnormal; "" if there are none. `stored` says how the scales are
    stored, if not in `format`.
    """

    rule: str
    text: str
    stores: str
    rounding: str
    format: FloatFormat
    arithmetic: Arithmetic
    tensor: str = ""
    number: Any = None
    p: Any = None
    q: Any = None
    least: str = ""
    stored: str = ""

    @property
    def second(self) -> tuple[bytes, bytes]:
        """The bits of p and q, to compare two matches."""
        return np.asarray(self.p, np.float64).tobytes(), np.asarray(self.q, np.float64).tobytes()


class Codes(NamedTuple):
    """A row of the codes that has the bits of all elements."""

    scale: ScaleMatch
    arithmetic: Arithmetic
    form: Form
    used: str
    placement: str
    offset: int
    implied: int | None
    rounding: str
    clipping: str
    zeros: str


class _Tensor(NamedTuple):
    """What each element is scaled with, before codes are computed: a scale match, the arithmetic and the form."""

    match: ScaleMatch
    arithmetic: Arithmetic
    form: Form
    used: str


@dataclass
class Search:
    """The search in one reading of the arguments."""

    given: Given
    reading: Reading
    refused: list[Refused] = field(default_factory=list)

    @functools.cached_property
    def statistics(self) -> Statistics:
        """The extremes of each block. NaN and infinities of x count as zeros; `live` excludes their blocks."""
        x = np.where(np.isfinite(self.given.source), self.given.source, 0.0)
        blocks = self.reading.grid.blocks(x, np.nan)
        magnitudes = np.abs(blocks)
        place = np.argmax(np.where(np.isnan(magnitudes), -1.0, magnitudes), axis=1)
        signed = blocks[np.arange(len(blocks)), place]
        ends = np.fmax.reduce(blocks, axis=1), np.fmin.reduce(blocks, axis=1)
        return Statistics(np.abs(signed), *ends, signed, float(np.abs(x).max()))

    @functools.cached_property
    def finite(self) -> Array:
        """The blocks whose elements are all finite."""
        if np.isfinite(self.given.source).all():
            return np.ones(self.reading.scales.values.size, bool)
        return np.asarray(np.isfinite(self.reading.grid.blocks(self.given.source, 0.0)).all(axis=1))

    @functools.cached_property
    def live(self) -> Array:
        """The blocks that are compared: finite elements that are not all zero, and a finite scale that is not zero."""
        scales = self.reading.scales.values
        live: Array = self.finite & (self.statistics.amax > 0) & np.isfinite(scales) & (scales != 0)
        return live

    @functools.cached_property
    def _has_zeros(self) -> bool:
        """Whether a block that is not zero has the scale zero."""
        return bool(np.any(self.finite & (self.statistics.amax > 0) & (self.reading.scales.values == 0)))

    @functools.cached_property
    def arithmetics(self) -> tuple[Arithmetic, ...]:
        """The formats in which a quantizer may compute."""
        own = self.given.x.format
        formats = [FP32] if own != FP64 else [FP64]
        if own in (BF16, FP16):
            formats.append(own)
        if own == FP64:
            formats.insert(0, FP32)
        return tuple(Arithmetic(fmt) for fmt in formats)

    @functools.cached_property
    def _of_arithmetic(self) -> dict[FloatFormat, tuple[Array, Statistics]]:
        found: dict[FloatFormat, tuple[Array, Statistics]] = {}
        for a in self.arithmetics:
            if a.format in (self.given.x.format, FP64) or self.given.x.format != FP64:
                found[a.format] = self.given.source, self.statistics
            else:
                s = self.statistics
                found[a.format] = (
                    a(self.given.source),
                    Statistics(a(s.amax), a(s.largest), a(s.smallest), a(s.signed), float(a(s.whole))),
                )
        return found

    # -- scales --------------------------------------------------------------------------------------------------------

    def scales(self) -> list[ScaleMatch]:
        """Return the rules that have the scales of all live blocks."""
        if not self.live.any():
            return []
        found: list[ScaleMatch] = []
        for usual in (True, False):
            for fmt in self.reading.scales.formats:
                for a in self.arithmetics:
                    found += self._powers(fmt, a) if fmt == E8M0 else self._rounded(fmt, a, usual)
                if found:
                    break
            if found:
                break
        if self.given.tensor_scale is not None or not found:
            found += self._by_schemes()
        return found

    def _powers(self, fmt: FloatFormat, a: Arithmetic) -> Iterator[ScaleMatch]:
        if isinstance(self.reading.format, LookupFormat) or a is not self.arithmetics[0]:
            return
        x = self._of_arithmetic[a.format][1]
        part = x.part(self.live)
        for rule in POWER_RULES:
            exponents = rule.exponents(part, self.reading.format)
            if exponents is None:
                continue
            if self._has_scales(np.ldexp(1.0, np.clip(exponents, -127, 127)), f"scale {rule.text}") is not None:
                before = a.divide(x.amax, largest_number(self.reading.format))
                yield ScaleMatch(rule.name, rule.text, "scale", "", fmt, a, number=before)

    def _rounded(self, fmt: FloatFormat, a: Arithmetic, usual: bool) -> Iterator[ScaleMatch]:
        x = self._of_arithmetic[a.format][1]
        if self.given.tensor_scale is not None:
            if usual:
                yield from self._two_levels(fmt, a, x)
            return
        for rule in SCALE_RULES:
            if rule.usual != usual:
                continue
            with np.errstate(all="ignore"):
                number = rule.number(a, x, self.reading.format)
            if number is not None:
                for mode, least in self._rounding_modes(number, fmt, f"scale {rule.text}"):
                    yield ScaleMatch(rule.name, rule.text, rule.stores, mode, fmt, a, number=number, least=least)

    def _rounding_modes(self, number: Array, fmt: FloatFormat, text: str) -> Iterator[tuple[str, str]]:
        """Yield the rounding modes by which numbers become the stored scales, and the least scale.

        The mode is "" if nothing is rounded.
        """
        live = number[self.live]
        finite = np.isfinite(live)
        if not finite.all():
            live = np.where(finite, live, 0.0)
        for mode in _MODES:
            rounded = rounded_to(fmt, live, mode, "saturate_finite")
            exact = mode == _MODES[0] and np.array_equal(rounded, live)
            how = text if exact else f"{text}, rounded to {fmt.name} {mode}"
            least = self._has_scales(rounded, how, fmt)
            if least is not None:
                yield "" if exact else mode, least
            if exact:
                return

    def _has_scales(self, expected: Array, text: str, fmt: FloatFormat | None = None) -> str | None:
        """Return the least scale, which may replace tiny ones, or None if the live scales are others."""
        scales = self.reading.scales.values[self.live]
        differs = scales != expected
        least = _ZEROS if self._has_zeros else ""
        if fmt is not None and (tiny := np.abs(expected) < fmt.smallest_normal).any():
            found, rule = scales[tiny], expected[tiny]
            numbers = {
                _NOT_RAISED: 0.0, "the smallest subnormal number": fmt.smallest_subnormal,
                "the smallest normal number": fmt.smallest_normal, "eps": fmt.eps, "0.125": 0.125,
            }  # fmt: skip
            raised = (name for name, number in numbers.items() if np.array_equal(found, np.maximum(rule, number)))
            least = least or next(raised, "several")
            differs[tiny] &= ~np.isin(found, list(numbers.values()))
        wrong = int(np.count_nonzero(differs))
        if wrong:
            first = int(np.argmax(differs))
            place = int(np.flatnonzero(self.live)[first])
            self.refused.append(
                Refused(f"{self.reading.format.name}: {text}", self.place_of(place), float(expected[first]),
                        float(scales[first]), wrong, scales.size, "block")
            )  # fmt: skip
        return None if wrong else least

    def _by_schemes(self) -> Iterator[ScaleMatch]:
        """Yield the rules that depend on more than the extremes of a block, and have the scales of all live blocks."""
        grid = self.reading.grid
        for rule in SCHEME_RULES:
            two_levels = self.given.tensor_scale is not None
            if (
                self.reading.format in rule.formats and rule.scale_format in self.reading.scales.formats
                and two_levels == bool(rule.tensor_rule) and (two_levels or self.finite.all())
                and (not rule.blocks or (grid.height, grid.width) in rule.blocks)
            ):  # fmt: skip
                yield from self._of_scheme(rule)

    def _of_scheme(self, rule: SchemeRule) -> Iterator[ScaleMatch]:
        a, grid, fmt, outer = Arithmetic(FP32), self.reading.grid, rule.scale_format, self.reading.outer
        options: dict[str, Any] = {"rounding": "ties_to_even"} if isinstance(self.reading.format, FloatFormat) else {}
        scheme = {"block": (grid.height, grid.width), "scale_format": fmt, **rule.scheme}
        tensors: list[_TensorScale] = [_NO_TENSOR_SCALE]
        if rule.tensor_rule:
            scheme["outer"] = "tensor" if outer is None else "row" if outer.grid.text == "row" else outer.grid.width
            tensors = [each for each in self.tensor_numbers(a, fmt) if each.rule == rule.tensor_rule]
        for limit in dict.fromkeys(each.limit for each in tensors):
            whole = Scheme(self.reading.format, **scheme, scale_max=limit)
            with warnings.catch_warnings(action="ignore"):
                made = quantize_blocks(self.given.x.reshape(grid.shape), whole, **options)
            scales = np.asarray(made.scales.values, np.float64).reshape(-1)
            text = f"scale {rule.text}" + (f", in {rule.stored}" if rule.stored else "")
            if self._has_scales(scales[self.live], text) is None:
                continue
            before = None if rule.tensor_rule else a.divide(self.statistics.amax, largest_number(self.reading.format))
            for each in tensors:
                if each.limit == limit:
                    yield ScaleMatch(
                        rule.name, rule.text, "two levels" if rule.tensor_rule else "scale", rule.rounding, fmt, a,
                        each.text, before, each.p, each.q, stored=rule.stored,
                    )  # fmt: skip

    def place_of(self, block: int) -> tuple[int, ...]:
        """Return the index of a block, in as many dimensions as x has; one number if the blocks are parts of memory."""
        counts, shape = self.reading.grid.counts, self.given.x.shape
        if math.prod(self.reading.grid.shape[:2]) == 1:
            return (block,)
        return tuple(int(i) for i in np.unravel_index(block, (*shape[:-2], *counts[1:])))

    @functools.cached_property
    def _largest_of_outer(self) -> tuple[Array, Array]:
        """The largest magnitude of each part of the tensor with a second scale, and the parts that are compared."""
        outer = self.reading.outer
        if outer is None:
            return np.array([self.statistics.whole]), np.array([self.statistics.whole > 0])
        blocks = outer.grid.blocks(np.abs(self.given.source), 0.0).max(axis=1)
        return blocks, np.isfinite(blocks) & (blocks > 0)

    def tensor_numbers(self, a: Arithmetic, fmt: FloatFormat) -> list[_TensorScale]:
        """Return what the scale of the tensor may be, with p, which values are multiplied with, and its reciprocal."""
        assert self.given.tensor_scale is not None
        given, outer = np.asarray(self.given.tensor_scale).reshape(-1), self.reading.outer
        whole, live = self._largest_of_outer
        whole = a(whole)
        if not np.isfinite(given).all() or np.any(given == 0):
            return []
        found: list[_TensorScale] = []
        top = largest_number(self.reading.format)
        parts = "" if outer is None else f", {outer.text}"

        def of_blocks(numbers: Array) -> Any:
            return float(numbers[0]) if outer is None else numbers[outer.of_blocks]

        def add(rule: str, decode: bool, inverse: Array, limit: float | None = None) -> None:
            more = "" if limit in (None, fmt.max) else f", for scales up to {limit:g}"
            text = f"{rule or 'no rule'}, {'p' if decode else '1 / p, the reciprocal'}{more}{parts}"
            p, q = (given, inverse) if decode else (inverse, given)
            found.append(_TensorScale(text, of_blocks(p), of_blocks(q), rule, limit))

        for limit in SCALE_LIMITS.get(fmt, (fmt.max,)):
            for rule in TENSOR_RULES if live.any() else ():
                if np.array_equal(rule.number(a, whole, top, limit)[live], given[live]):
                    inverse = a.divide(1.0, given)
                    add(rule.name, rule.decode, inverse, limit)
                    exact = a.divide(top * limit, whole) if rule.decode else a.divide(whole, top * limit)
                    exact = np.where(live, exact, inverse)
                    if not np.array_equal(exact, inverse):
                        add(rule.name, rule.decode, exact, limit)
        if not found:
            for decode in (True, False):
                add("", decode, a.divide(1.0, given))
        return found

    def _two_levels(self, fmt: FloatFormat, a: Arithmetic, x: Statistics) -> Iterator[ScaleMatch]:
        top = largest_number(self.reading.format)
        for text, p, q, *_ in self.tensor_numbers(a, fmt):
            for rule in TWO_LEVEL_RULES:
                with np.errstate(all="ignore"):
                    number = rule.number(a, x.amax, top, p, q)
                for mode, least in self._rounding_modes(number, fmt, f"scale {rule.text}"):
                    yield ScaleMatch(rule.name, rule.text, "two levels", mode, fmt, a, text, number, p, q, least)

    # -- codes ---------------------------------------------------------------------------------------------------------

    def unnamed(self) -> list[ScaleMatch]:
        """Return the stored scales as a match without a rule."""
        fmt = self.reading.scales.formats[0]
        found = []
        for a in self.arithmetics:
            if self.given.tensor_scale is None:
                found.append(ScaleMatch("", "no rule", "scale", "", fmt, a))
                continue
            found += [
                ScaleMatch("", "no rule", "two levels", "", fmt, a, text, None, p, q)
                for text, p, q, *_ in self.tensor_numbers(a, fmt)
            ]
        return found

    def codes(self, matches: list[ScaleMatch]) -> list[Codes]:
        """Return the rows that have the codes of all elements in live blocks."""
        pending = {tensor: dict.fromkeys(self._variants(tensor)) for tensor in self._tensors(matches[:_MOST])}
        size, start = self.given.source.size, 0
        for stop in self._stops(size):
            for tensor, variants in list(pending.items()):
                self._compare(tensor, variants, start, stop)
                if not variants:
                    del pending[tensor]
            start = stop
            if not pending:
                break
        return [variant for variants in pending.values() for variant in variants]

    @staticmethod
    def _stops(size: int) -> Iterator[int]:
        yield from (n for n in _STEPS if n < size)
        yield from range(2 * _STEPS[-1], size, _STEPS[-1])
        yield size

    def _tensors(self, matches: list[ScaleMatch]) -> list[_Tensor]:
        found: dict[Any, _Tensor] = {}
        for match in matches:
            for form in FORMS:
                if form.stores != match.stores or (match.format == E8M0 and form.name == "x * (1 / scale)"):
                    continue
                if form.name == "x * (max / amax)" and (
                    match.rule not in ("absmax", "inverse_multiplier") or isinstance(self.reading.format, LookupFormat)
                ):
                    continue
                key = match.arithmetic.format, form.name, match.second
                found.setdefault((STORED, "", *key), _Tensor(match, match.arithmetic, form, STORED))
                unrounded = match.number is not None and (match.rounding or match.format == E8M0)
                if unrounded and form.name != "x * (max / amax)":
                    found.setdefault((UNROUNDED, match.rule, *key), _Tensor(match, match.arithmetic, form, UNROUNDED))
        return list(found.values())

    def _variants(self, tensor: _Tensor) -> Iterator[Codes]:
        fmt = self.reading.format
        first = tensor.match, tensor.arithmetic, tensor.form, tensor.used
        if isinstance(fmt, LookupFormat):
            for name in table_roundings(fmt):
                yield Codes(*first, "", 0, None, name, "", "")
        elif isinstance(fmt, FloatFormat):
            for mode in _MODES:
                for clipping in self._ends(fmt):
                    for zeros in ZERO_SIGNS:
                        yield Codes(*first, "", 0, None, mode, clipping, zeros)
        else:
            for placement, offset, implied in self._zero_points():
                if placement == PLACEMENTS[2] and tensor.form.name != "x / scale":
                    continue
                for mode in WHOLE_ROUNDINGS:
                    for clipping in self._clippings(fmt):
                        yield Codes(*first, placement, offset, implied, mode, clipping, "")

    def _zero_points(self) -> Iterator[tuple[str, int, int | None]]:
        """Yield where a zero point is added, what is added to the stored one, and the one of files without any."""
        fmt, stored = self.reading.format, self.reading.zero_points
        assert isinstance(fmt, IntegerFormat)
        if self.reading.offsets is not None:
            yield "", 0, 0
        elif stored is None:
            yield "", 0, 0
            middle = (fmt.max + fmt.min + 1) // 2
            if middle:
                for placement in PLACEMENTS:
                    yield placement, 0, middle
        else:
            for offset in (0, 1, -1):
                if not offset and not stored.any():
                    yield "", 0, None
                    continue
                for placement in PLACEMENTS:
                    yield placement, offset, None

    @staticmethod
    def _ends(fmt: FloatFormat) -> list[str]:
        """Return what can become of elements beyond the largest number."""
        signed_nan = [SIGNED_NAN] if fmt.has_nan and not fmt.has_infinity and fmt.sign_mask else []
        return ["saturates", *(["overflows"] if fmt.has_infinity or fmt.has_nan else []), *signed_nan]

    @staticmethod
    def _clippings(fmt: IntegerFormat) -> list[str]:
        return ["full range", *(["symmetric range"] if fmt.min < -fmt.max else []), "wraps"]

    def _compare(self, tensor: _Tensor, variants: dict[Codes, None], start: int, stop: int) -> None:
        """Drop the variants that differ in the elements from `start` to `stop`."""
        reading, a, fmt = self.reading, tensor.arithmetic, self.reading.format
        blocks = reading.grid.spread(start, stop)
        live = np.flatnonzero(self.live[blocks])
        if not live.size:
            return
        blocks, wanted = blocks[live], reading.codes[start:stop][live]
        numbers, statistics = self._of_arithmetic[a.format]
        x = numbers[start:stop][live]
        scales = reading.scales.values if tensor.used == STORED else tensor.match.number
        s = scales[blocks]
        if reading.offsets is not None:
            x = a.add(x, -reading.offsets[blocks])
        with np.errstate(all="ignore"):
            p, q = (n[blocks] if isinstance(n, np.ndarray) else n for n in (tensor.match.p, tensor.match.q))
            factors = Factors(s, statistics.amax[blocks], largest_number(fmt), p, q)
            t = tensor.form.number(a, x, factors)
        if not np.isfinite(t).all():  # a scale that is zero or infinite before its rounding
            t = np.where(np.isfinite(t), t, 0.0)

        def check(variant: Codes, found: Array) -> None:
            differs = found != wanted
            if differs.any():
                del variants[variant]
                at = int(np.argmax(differs))
                index = tuple(int(i) for i in np.unravel_index(start + int(live[at]), self.given.x.shape))
                self.refused.append(
                    Refused(f"{fmt.name}: {describe_codes(variant)}", index, float(found[at]), float(wanted[at]),
                            int(np.count_nonzero(differs)), stop)
                )  # fmt: skip

        if isinstance(fmt, LookupFormat):
            tables = table_roundings(fmt)
            for variant in list(variants):
                out = np.empty(t.size, np.uint8)
                tables[variant.rounding](np.ascontiguousarray(t, np.float32), out)
                check(variant, out)
        elif isinstance(fmt, FloatFormat):
            self._float_codes(t, fmt, variants, check)
        else:
            self._integer_codes(t, x, s, blocks, a, variants, check)

    @staticmethod
    def _float_codes(t: Array, fmt: FloatFormat, variants: dict[Codes, None], check: Any) -> None:
        policies = {"saturates": "saturate_finite", "overflows": "infinity", SIGNED_NAN: "infinity"}
        known: dict[tuple[str, str], Array] = {}
        for variant in list(variants):
            key = variant.rounding, variant.clipping
            if key not in known:
                options: dict[str, Any] = {"rounding": key[0], "overflow": policies[key[1]], "daz": False, "ftz": False}
                known[key] = np.asarray(encode(t, fmt, **options)).astype(np.int64)
                if key[1] == SIGNED_NAN:
                    known[key] |= np.where((known[key] == fmt.canonical_nan) & (t < 0), fmt.sign_mask, 0)
            codes = known[key]
            if variant.zeros != ZERO_SIGNS[0]:
                unsigned = codes == fmt.sign_mask
                codes = np.where(unsigned if variant.zeros == ZERO_SIGNS[2] else unsigned & (t == 0), 0, codes)
            check(variant, codes)

    def _integer_codes(
        self, t: Array, x: Array, s: Array, blocks: Array, a: Arithmetic, variants: dict[Codes, None], check: Any
    ) -> None:
        fmt = self.reading.format
        assert isinstance(fmt, IntegerFormat)
        known: dict[Any, Array] = {}
        t = t * 2.0**fmt.fraction_bits if fmt.fraction_bits else t
        for variant in list(variants):
            key = variant.placement, variant.offset, variant.implied, variant.rounding
            if key not in known:
                with np.errstate(all="ignore"):
                    known[key] = self._whole(variant, t, x, s, blocks, a)
            whole = known[key]
            if variant.clipping == "full range":
                codes = np.clip(whole, fmt.min, fmt.max)
            elif variant.clipping == "symmetric range":
                codes = np.clip(whole, -fmt.max, fmt.max)
            else:
                codes = np.mod(whole - fmt.min, 1 << fmt.bits) + fmt.min
            check(variant, codes)

    def _whole(self, row: Codes, t: Array, x: Array, s: Array, blocks: Array, a: Arithmetic) -> Array:
        """Return the integers before they are clipped, as float64."""
        rounds = WHOLE_ROUNDINGS[row.rounding]
        if not row.placement:
            return np.asarray(rounds(a, t) + (row.implied or 0))
        if row.implied is None:
            assert self.reading.zero_points is not None
            zero: Any = (self.reading.zero_points + row.offset)[blocks].astype(np.float64)
        else:
            zero = float(row.implied)
        if row.placement == PLACEMENTS[0]:
            return np.asarray(rounds(a, t) + zero)
        if row.placement == PLACEMENTS[1]:
            return rounds(a, a.add(t, zero))
        whole = rounds(a, a.divide(a.add(x, a.multiply(zero, s)), s))
        return np.where(np.isfinite(whole), whole, 0.0)

    # -- the quantizers of ggml ----------------------------------------------------------------------------------------

    def gguf(self) -> list[str]:
        """Return the types of GGUF whose quantizer, without weights, has these codes, scales and offsets.

        Without a live block there is none: every quantizer has the codes of zeros.
        """
        grid, x, found = self.reading.grid, self.given.x, []
        if not self.live.any():
            return []
        if grid.single or grid.height != 1 or not np.isfinite(self.given.source).all():
            return []
        if self.reading.zero_points is not None or self.given.tensor_scale is not None:
            return []
        for name in QUANTIZED_TYPES:
            kind = GGUF_TYPES[name]
            if kind.format != self.reading.format or kind.group != grid.width or x.shape[-1] % kind.size:
                continue
            q = from_gguf(to_gguf(x, name), name)
            offsets = None if q.offsets is None else q.offsets.values.reshape(-1)
            if (offsets is None) != (self.reading.offsets is None):
                continue
            if (
                np.array_equal(q.codes.reshape(-1), self.reading.codes)
                and np.array_equal(q.scales.values.reshape(-1), self.reading.scales.values)
                and (offsets is None or np.array_equal(offsets, self.reading.offsets))  # type: ignore[arg-type]
            ):
                found.append(name)
        return found


def describe_codes(row: Codes) -> str:
    """Return a row of the codes in words."""
    parts = [f"t = {row.form.name}"]
    if row.used != STORED:
        parts.append("with the scales before their rounding")
    if row.placement:
        zero = row.implied if row.implied is not None else "the zero point"
        more = {0: "", 1: " plus 1", -1: " less 1"}[row.offset]
        parts.append(f"{zero}{more} added {row.placement}")
    parts.append(f"rounded {row.rounding}" if row.rounding in _MODES else row.rounding)
    parts += [row.clipping] if row.clipping else []
    parts += [f"zeros {row.zeros}"] if row.zeros not in ("", ZERO_SIGNS[0]) else []
    return ", ".join(parts)


def zero_rules_of(search: Search, row: Codes) -> tuple[str, ...]:
    """Return the rules that have the zero points by which the codes were computed, clamped to the codes."""
    fmt, stored = search.reading.format, search.reading.zero_points
    if not isinstance(fmt, IntegerFormat) or stored is None or not search.live.any():
        return ()
    used = (stored + row.offset)[search.live]
    x = search._of_arithmetic[row.arithmetic.format][1].part(search.live)
    found: list[str] = []
    for rule in sorted(ZERO_RULES, key=lambda each: not each.usual):
        if found and not rule.usual:
            break
        for scales in (search.reading.scales.values, row.scale.number):
            if scales is None or rule.name in found:
                continue
            with np.errstate(all="ignore"):
                zeros = np.clip(rule.number(row.arithmetic, x, scales[search.live], fmt), fmt.min, fmt.max)
            if np.array_equal(zeros, used):
                found.append(rule.name)
    return tuple(found)
