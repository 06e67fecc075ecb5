"""An oracle for sums of rounded numbers: Python integers on a fixed-point grid.

The definition is docs/conventions.md and docs/sums.md, and nothing else: this module imports neither floatsim nor any
part of it. A format is four numbers and a kind of special values. A finite value is an integer multiple of 2**grid; the
grid is fine enough for every format and every product of a call. The other values are Python floats: NaN, the
infinities and -0.0 (+0 is the integer 0). So `type(x) is int` tells a finite value from a special one.

Of matrix units it has those that align blocks of terms (docs/tensor-cores.md).
Stochastic rounding is not supported.
"""

from __future__ import annotations

import ast
import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

NAN, INFINITY, MINUS_ZERO = math.nan, math.inf, -0.0
EVEN, AWAY, ZERO, POSITIVE, NEGATIVE, ODD = range(6)
MODES = ("ties_to_even", "ties_to_away", "toward_zero", "toward_positive", "toward_negative", "to_odd")
UNIT_NAN = float("nan")
"""The NaN of a matrix unit: all bits but the sign are set. The oracle compares it with `is`, as NaNs are not equal."""
SCALAR_BITS = 60
"""alpha and beta are multiples of 2**-60; the grid has so many more bits where they are used."""

Number = int | float


_ONE_ZERO = ("fnuz", "extended")
"""Special values whose NaN has the code of -0."""
_UNSIGNED = ("unsigned_extended", "unsigned_finite")
"""Special values of formats without a sign, whose NaN is the largest code. They are formats of results only."""


@dataclass(frozen=True)
class Format:
    """A number format: field widths, bias, and special values: "ieee", "fn", "fnuz", "finite", or those of P3109."""

    exponent_bits: int
    trailing_bits: int
    bias: int
    specials: str

    @cached_property
    def precision(self) -> int:
        return self.trailing_bits + 1

    @cached_property
    def quantum(self) -> int:
        """log2 of the spacing of the subnormals."""
        return 1 - self.bias - self.trailing_bits

    @cached_property
    def sign_bit(self) -> int:
        return 1 << (self.exponent_bits + self.trailing_bits)

    @cached_property
    def top(self) -> int:
        """The code with all bits below the sign set."""
        return self.sign_bit - 1

    @cached_property
    def has_infinity(self) -> bool:
        return self.specials in ("ieee", "extended", "unsigned_extended")

    @cached_property
    def unsigned(self) -> bool:
        return self.specials in _UNSIGNED

    @cached_property
    def has_nan(self) -> bool:
        return self.specials != "finite"

    @cached_property
    def minus_zero(self) -> Number:
        """What a negative zero becomes here."""
        return 0 if self.specials in _ONE_ZERO + _UNSIGNED else MINUS_ZERO

    @cached_property
    def infinity_code(self) -> int:
        if self.specials in ("extended", "unsigned_extended"):
            return self.top - self.unsigned
        return self.top - ((1 << self.trailing_bits) - 1)

    @cached_property
    def nan_code(self) -> int:
        if self.specials == "ieee":
            return self.infinity_code + (1 << (self.trailing_bits - 1))
        return self.sign_bit if self.specials in _ONE_ZERO else self.top

    @cached_property
    def largest_code(self) -> int:
        if self.has_infinity:
            return self.infinity_code - 1
        return self.top - (self.specials in ("fn", "unsigned_finite"))

    @cached_property
    def largest(self) -> int:
        """The largest finite number, in units of the quantum."""
        return self.units(self.largest_code)

    def units(self, magnitude: int) -> int:
        """The value of a finite code without its sign, in units of the quantum."""
        field, trailing = magnitude >> self.trailing_bits, magnitude & ((1 << self.trailing_bits) - 1)
        return trailing if field == 0 else ((1 << self.trailing_bits) | trailing) << (field - 1)

    def decode(self, code: int, shift: int = 0, daz: bool = False) -> Number:
        """The value of a code in units of 2**(quantum - shift)."""
        negative, magnitude = code & self.sign_bit != 0, code & self.top
        if magnitude == 0 and negative:
            return NAN if self.specials in _ONE_ZERO else MINUS_ZERO
        if self.has_infinity and magnitude >= self.infinity_code:
            return NAN if magnitude > self.infinity_code else -INFINITY if negative else INFINITY
        if self.specials == "fn" and magnitude == self.top:
            return NAN
        if daz and magnitude >> self.trailing_bits == 0:
            return MINUS_ZERO if negative else 0
        units = self.units(magnitude) << shift
        return -units if negative else units

    def encode(self, value: Number, shift: int = 0) -> int:
        """The code of a value of this format, given in units of 2**(quantum - shift)."""
        if type(value) is not int:
            if math.isnan(value):
                return self.top if value is UNIT_NAN else self.nan_code
            return (self.sign_bit if math.copysign(1, value) < 0 else 0) | (self.infinity_code if value else 0)
        magnitude = -value if value < 0 else value
        low = max(shift, magnitude.bit_length() - self.precision)
        code = ((low - shift) << self.trailing_bits) + (magnitude >> low)
        if magnitude >> low << low != magnitude or code > self.largest_code:
            raise ValueError(f"{value} * 2**{self.quantum - shift} is no number of {self}")
        return code | self.sign_bit if value < 0 else code


@dataclass(frozen=True)
class Style:
    """Everything that one rounding needs besides its format; `daz` is of the operands."""

    mode: int = EVEN
    overflow: str = "infinity"
    ftz: bool = False
    daz: bool = False
    before: bool = False


@functools.lru_cache(maxsize=4096)
def rounder(fmt: Format, grid: int, style: Style) -> Callable[[int], Number]:
    """A function that rounds an integer other than 0, a multiple of 2**grid."""
    p, q, mode = fmt.precision, fmt.quantum - grid, style.mode
    if q < 0:
        raise ValueError(f"the grid 2**{grid} is too coarse for {fmt}")
    largest, normal = fmt.largest << q, 1 << (q + fmt.trailing_bits)
    unsigned = fmt.unsigned
    minus_zero, nearest, ftz, before = fmt.minus_zero, mode <= AWAY, style.ftz, style.before
    ties_to_even, away, odd, up, down = (mode == code for code in (EVEN, AWAY, ODD, POSITIVE, NEGATIVE))
    beyond, below = (overflowed(fmt, grid, style, sign) for sign in (1, -1))

    def goes_up(k: int, rest: int, half: int, positive: bool) -> bool:
        """Whether k plus a fraction, other than 0, goes to k + 1. The fraction is a half where rest is half."""
        if nearest:
            return rest > half or (rest == half and (away or k & 1 == 1))
        return k & 1 == 0 if odd else up if positive else down

    def tiny(m: int, positive: bool) -> bool:
        """Whether a magnitude below the least normal number stays there with p bits and an unbounded exponent."""
        s = m.bit_length() - p
        if before or s <= 0:
            return True
        k = m >> s
        rest = m - (k << s)
        return (k + (rest != 0 and goes_up(k, rest, 1 << s >> 1, positive))) << s < normal

    def function(n: int) -> Number:
        m = n if n > 0 else -n
        s = m.bit_length() - p
        if s < q:
            s = q
            if ftz and m < normal and tiny(m, n > 0):
                return 0 if n > 0 else minus_zero
        k = m >> s
        r = k << s
        if r != m:
            if ties_to_even:
                rest, half = m - r, 1 << s >> 1
                if rest > half or (rest == half and k & 1):
                    r += 1 << s
            elif goes_up(k, m - r, 1 << s >> 1, n > 0):
                r += 1 << s
        if r > largest or (unsigned and n < 0 and r):
            return beyond if n > 0 else below
        if n > 0:
            return r
        return -r if r else minus_zero

    return function


def overflowed(fmt: Format, grid: int, style: Style, sign: int) -> Number:
    """What becomes of a rounded magnitude beyond the largest number, or of a negative number without a sign."""
    largest = 0 if sign < 0 and fmt.unsigned else sign * (fmt.largest << (fmt.quantum - grid))
    inward = style.mode in (ZERO, ODD) or (style.mode == (NEGATIVE if sign > 0 else POSITIVE))
    if style.overflow != "infinity" or inward or not fmt.has_nan:
        return largest
    return sign * INFINITY if fmt.has_infinity and (sign > 0 or not fmt.unsigned) else NAN


def special(x: float, fmt: Format, grid: int, saturate: bool = False) -> Number:
    """A NaN or an infinity that goes into a format; `saturate` is for conversions that saturate infinities too."""
    largest = fmt.largest << (fmt.quantum - grid)
    if math.isnan(x):
        return NAN if fmt.has_nan else largest
    if saturate or not fmt.has_nan:
        return largest if x > 0 else 0 if fmt.unsigned else -largest
    return x if fmt.has_infinity and (x > 0 or not fmt.unsigned) else NAN


def negative(x: Number) -> Number:
    return -x if x or type(x) is not int else MINUS_ZERO  # -(-0.0) is the float 0.0: see `tidy`


def tidy(x: Number) -> Number:
    """The float 0.0 as the integer 0."""
    return x if type(x) is int or x or math.copysign(1, x) < 0 else 0


class Arithmetic:
    """Additions, products and conversions in one format with one style, on one grid."""

    def __init__(self, fmt: Format, grid: int, style: Style) -> None:
        self.format, self.grid, self.style = fmt, grid, style
        self.round = rounder(fmt, grid, style)
        self.zero_of_opposites = fmt.minus_zero if style.mode == NEGATIVE else 0
        self.normal = 1 << (fmt.quantum - grid + fmt.trailing_bits)

    def read(self, x: Number) -> Number:
        """A number of this format as an operand."""
        if self.style.daz and type(x) is int and -self.normal < x < self.normal and x:
            return 0 if x > 0 else MINUS_ZERO
        return x

    def add(self, x: Number, y: Number) -> Number:
        if type(x) is int and type(y) is int:
            n = x + y
            if n:
                return self.round(n)
            return self.zero_of_opposites if x else 0
        if x - x != 0 or y - y != 0:
            return special((x if type(x) is float else 0.0) + (y if type(y) is float else 0.0), self.format, self.grid)
        if type(x) is float and type(y) is float:
            return self.format.minus_zero
        n = int(x) or int(y)
        return self.round(n) if n else self.zero_of_opposites

    def subtract(self, x: Number, y: Number) -> Number:
        return self.add(x, tidy(negative(y)))

    def enter(self, x: Number, conversion: bool = False) -> Number:
        """An operand, read already, rounded to the format; a conversion may saturate infinities."""
        if type(x) is int:
            return self.round(x) if x else 0
        if x == 0:
            return self.format.minus_zero
        return special(x, self.format, self.grid, conversion and self.style.overflow == "saturate_finite")

    def product(self, x: Number, y: Number, down: int = 0) -> Number:
        """x * y rounded: the product of the integers is a multiple of 2**(grid - down)."""
        if type(x) is int and type(y) is int:
            n = x * y >> down
            if n:
                return self.round(n)
            return self.format.minus_zero if x < 0 or y < 0 else 0
        z = exact_product(x, y)
        if z == 0:
            return self.format.minus_zero if type(z) is float else 0
        return special(z, self.format, self.grid)


def exact_product(x: Number, y: Number) -> Number:
    if type(x) is int and type(y) is int:
        return x * y or (MINUS_ZERO if x < 0 or y < 0 else 0)
    if any(type(z) is float and math.isnan(z) for z in (x, y)):
        return NAN
    sign = math.copysign(1, _as_float(x)) * math.copysign(1, _as_float(y))
    if math.inf in (_magnitude(x), _magnitude(y)):
        return NAN if x == 0 or y == 0 else sign * INFINITY
    return 0 if sign > 0 else MINUS_ZERO


def _as_float(x: Number) -> float:
    return x if type(x) is float else float((x > 0) - (x < 0))


def _magnitude(x: Number) -> Number:
    return abs(x) if type(x) is float else 0


# -- descriptions ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Leaf:
    """`kind`: "sequential", "pairwise", "tree", "kahan", "neumaier" or "exact"; product None keeps products exact.

    `tree` is the name of a tree of "pairwise", or the nested terms of "tree" as text.
    """

    kind: str
    format: Format
    style: Style
    product: Format | None = None
    product_style: Style = Style()
    tree: str = "adjacent"


@dataclass(frozen=True)
class Composite:
    """`kind`: "strided" (count lanes), "blocked" (count terms a block), "splitk" (count parts) or "parts".

    `lengths` lists the lengths of all parts, if there is a list. Part n of "parts" is summed by inner n of `inners`.
    """

    kind: str
    inner: Description
    outer: Description
    count: int = 1
    inners: tuple[Description, ...] = ()
    lengths: tuple[int, ...] = ()
    rule: str = ""
    tile: int = 1
    through: Format | None = None


@dataclass(frozen=True)
class Permuted:
    """`order`: positions within a group of terms, or a name."""

    order: str | tuple[int, ...]
    inner: Description


@dataclass(frozen=True)
class Converted:
    """Terms, or the factors of products, that are converted to a format first. With factors it is the outermost."""

    format: Format
    style: Style
    inner: Description


@dataclass(frozen=True)
class Unit:
    """A matrix unit: each block adds `terms` products and the accumulator at once. An instruction has `k` terms.

    All of them are aligned to the largest exponent, which is at least `floor`, and cut off below 2**(exponent - bits).
    The sum is rounded once to `grid`, by `mode`; its numbers belong to `format`, that of the accumulator.
    """

    format: Format
    k: int
    terms: int
    bits: int
    floor: int
    grid: Format
    mode: int
    style: Style = Style()


@dataclass(frozen=True)
class Residue:
    """The first n % tile terms fill instructions of their own."""

    inner: Unit
    tile: int


@dataclass(frozen=True)
class Tf32x3:
    """Three products of the large and small parts of FP32 numbers, on one accumulator."""

    inner: Unit


@dataclass(frozen=True)
class Epilogue:
    """alpha * sum + beta * c in a format, `fused` "sum" or "c"; `through` rounds the sum first. The outermost one."""

    inner: Description
    format: Format
    fused: str = "sum"
    through: Format | None = None
    relu: bool = False
    style: Style = Style()


Description = Leaf | Composite | Permuted | Converted | Unit | Residue | Tf32x3 | Epilogue
Ending = Leaf | Unit | Epilogue


def outermost(description: Description) -> Ending:
    if isinstance(description, Permuted | Converted | Residue | Tf32x3):
        return outermost(description.inner)
    return outermost(description.outer) if isinstance(description, Composite) else description


def innermost(description: Description) -> Leaf | Unit:
    """The leaf that reads the operands."""
    return description if isinstance(description, Leaf | Unit) else innermost(description.inner)


def reads_flushed(description: Description) -> bool:
    """Whether the terms of a description are read with daz: by its first leaf, unless they are converted first."""
    if isinstance(description, Leaf | Unit):
        return description.style.daz
    return not isinstance(description, Converted) and reads_flushed(description.inner)


def formats(description: Description) -> list[Format]:
    if isinstance(description, Permuted | Residue):
        return formats(description.inner)
    if isinstance(description, Unit):  # one more for the place where its terms are cut off
        return [description.format, description.grid, Format(8, 0, 1 - description.floor + description.bits, "ieee")]
    if isinstance(description, Tf32x3):
        return [_TF32, *formats(description.inner)]
    if isinstance(description, Epilogue):
        within = [] if description.through is None else [description.through]
        return [description.format, *within, *formats(description.inner)]
    if isinstance(description, Converted):
        return [description.format, *formats(description.inner)]
    if isinstance(description, Composite):
        within = [] if description.through is None else [description.through]
        return within + [fmt for each in (description.inner, *description.inners, description.outer)
                         for fmt in formats(each)]  # fmt: skip
    return [description.format] + ([] if description.product is None else [description.product])


_FP32, _TF32 = Format(8, 23, 127, "ieee"), Format(8, 10, 127, "ieee")


class Sum:
    """A description on one grid, with its arithmetic looked up.

    Of products, `factors` has the formats of both factors, and the first factor is a multiple of 2**quantum. The second
    one is a multiple of 2**(grid - quantum).
    """

    def __init__(self, description: Description, grid: int, factors: Sequence[Format] = (), quantum: int = 0) -> None:
        self.description, self.factors, self.grid, self.quantum = description, factors, grid, quantum
        leaf = outermost(description)
        self.unit = _arithmetic(leaf.format, grid, leaf.style)
        if isinstance(description, Unit):
            self.round_block = rounder(description.grid, grid, Style(description.mode))
        elif isinstance(description, Permuted | Residue | Epilogue):
            self.inner = Sum(description.inner, grid, factors, quantum)
        elif isinstance(description, Tf32x3):
            self.inner = Sum(description.inner, grid, (_TF32, _TF32), quantum)
        elif isinstance(description, Converted):
            self.inner = Sum(description.inner, grid, factors, quantum)
            self.convert = _arithmetic(description.format, grid, description.style).enter
            self.read_term = _arithmetic(description.format, grid, innermost(description).style).read
        elif isinstance(description, Composite):
            self.inners = [Sum(inner, grid, factors, quantum) for inner in description.inners or (description.inner,)]
            self.outer = Sum(description.outer, grid)
            style = Style(daz=reads_flushed(description.outer))
            widest = max((inner.unit.format for inner in self.inners), key=lambda fmt: (fmt.precision, -fmt.quantum))
            self.read_part = _arithmetic(widest, grid, style).read
            if description.through is not None:
                self.store = _arithmetic(description.through, grid, leaf.style)
        elif description.product is not None:
            self.products = _arithmetic(description.product, grid, description.product_style)

    def __call__(self, x: Sequence[Number], y: Sequence[Number] | None, seed: Number | None) -> Number:
        """The sum of the terms x, or of the products of x and y: a number of the outermost leaf's format.

        The operands and `seed`, which is c or None, are read already.
        """
        description, unit = self.description, self.unit
        if isinstance(description, Leaf):
            return self._leaf(self._terms(x, y), seed)
        if isinstance(description, Unit):
            assert y is not None
            return self._chain(x, y, 0 if seed is None else unit.enter(seed))
        if isinstance(description, Residue):
            assert y is not None
            first = len(x) % description.tile
            acc = 0 if seed is None else unit.enter(seed)
            return self.inner._chain(x[first:], y[first:], self.inner._chain(x[:first], y[:first], acc))
        if isinstance(description, Tf32x3):
            assert y is not None
            acc = 0 if seed is None else unit.enter(seed)
            large_x, small_x = _two_parts(x, self.quantum)
            large_y, small_y = _two_parts(y, self.grid - self.quantum)
            for left, right in ((small_x, large_y), (large_x, small_y), (large_x, large_y)):
                acc = self.inner._chain(left, right, acc)
            return acc
        if isinstance(description, Converted):
            assert y is None
            return self.inner([self.read_term(self.convert(term, True)) for term in x], None, seed)
        if isinstance(description, Permuted):
            order = _order(description.order, len(x))
            return self.inner([x[k] for k in order], None if y is None else [y[k] for k in order], seed)
        if description.rule == "dealt":
            order = sorted(range(len(x)), key=lambda k: (k // description.tile % description.count, k))
            x, y = [x[k] for k in order], None if y is None else [y[k] for k in order]
        parts = [(x[part], None if y is None else y[part]) for part in _parts(description, len(x))]
        inners = self.inners if description.inners else self.inners * len(parts)
        found = [self.read_part(inner(u, v, None)) for inner, (u, v) in zip(inners, parts, strict=len(parts) > 0)]
        if description.through is not None and parts:
            acc = 0 if seed is None else unit.enter(seed)
            for part in found:
                acc = self.store.enter(unit.read(unit.add(unit.read(acc), part)))
            return acc
        if description.kind != "strided":
            return self.outer(found, None, seed)
        joined = self.outer(found, None, None)
        if seed is None:
            return joined
        return unit.add(unit.read(joined), seed) if parts else unit.enter(seed)

    def _chain(self, x: Sequence[Number], y: Sequence[Number], acc: Number) -> Number:
        """A chain of instructions over products; the last one is filled up with zeros."""
        unit = self.description
        assert isinstance(unit, Unit)
        fx, fy = self.factors
        of_x = self.quantum
        pairs = [(u, v) for u, v in zip(x, y, strict=True)]
        pairs += [(0, 0)] * (-len(pairs) % unit.k)
        for start in range(0, len(pairs), unit.terms):
            terms = []
            for u, v in pairs[start : start + unit.terms]:
                at = _exponent(u, of_x, fx) + _exponent(v, self.grid - of_x, fy)
                terms.append((exact_product(u, v), at))
            acc = self._block([*terms, (acc, _exponent(acc, self.grid, unit.format))])
        return acc

    def _block(self, terms: Sequence[tuple[Number, int]]) -> Number:
        """The terms, each with its exponent, aligned, cut off, added and rounded once."""
        unit = self.description
        specials = [x for x, _ in terms if type(x) is float and x - x != 0]
        if specials:
            return specials[0] if _one_sign(specials) else UNIT_NAN
        highest = max([unit.floor, *(at for x, at in terms if x)])
        cut = highest - unit.bits - self.grid
        total = sum((abs(x) >> cut << cut) * (1 if x > 0 else -1) for x, _ in terms if type(x) is int and x)
        if not total:
            return 0
        kept = max(abs(total).bit_length() - unit.grid.precision, 0)
        if unit.mode == ZERO and abs(total) >> kept << kept > unit.grid.largest << (unit.grid.quantum - self.grid):
            return INFINITY if total > 0 else -INFINITY
        return self.round_block(total) or 0

    def _terms(self, x: Sequence[Number], y: Sequence[Number] | None) -> Sequence[Number]:
        """The terms as the leaf reads them: products are rounded, or not."""
        if y is None:
            return x
        if self.description.product is None:
            return list(map(exact_product, x, y))
        round_, product = self.products.round, self.products.product
        found = [
            round_(n) if type(u) is int and type(v) is int and (n := u * v) else product(u, v)
            for u, v in zip(x, y, strict=True)
        ]
        return list(map(self.products.read, found)) if self.description.style.daz else found

    def _leaf(self, terms: Sequence[Number], seed: Number | None) -> Number:
        unit, kind = self.unit, self.description.kind
        if not terms:
            return 0 if seed is None else unit.enter(seed)
        if kind == "exact":
            return _exact(unit, terms if seed is None else [*terms, seed])
        if kind == "tree":
            root = _nested(unit, ast.literal_eval(self.description.tree), terms) if len(terms) > 1 else None
            root = unit.enter(terms[0]) if root is None else root
            return root if seed is None else unit.add(unit.read(root), seed)
        if kind == "pairwise":
            root = _TREES[self.description.tree](unit, terms) if len(terms) > 1 else unit.enter(terms[0])
            return root if seed is None else unit.add(unit.read(root), seed)
        return _CHAINS[kind](unit, terms, 0 if seed is None else unit.enter(seed))


def _exponent(x: Number, grid: int, fmt: Format) -> int:
    """The exponent of a number of a format, a multiple of 2**grid; a subnormal number has that of the normal ones."""
    return max(abs(x).bit_length() - 1 + grid if type(x) is int else fmt.quantum, fmt.quantum + fmt.trailing_bits)


def _two_parts(x: Sequence[Number], grid: int) -> tuple[list[Number], list[Number]]:
    """Numbers of FP32, multiples of 2**grid, rounded to TF32, ties away from zero; and the rest, cut off to TF32."""
    to_large, to_small = (_arithmetic(_TF32, grid, Style(mode)) for mode in (AWAY, ZERO))
    subtract = _arithmetic(_FP32, grid, Style()).subtract
    large = [to_large.enter(number) for number in x]
    return large, [to_small.enter(subtract(number, part)) for number, part in zip(x, large, strict=True)]


@functools.lru_cache(maxsize=4096)
def _arithmetic(fmt: Format, grid: int, style: Style) -> Arithmetic:
    return Arithmetic(fmt, grid, style)


def _parts(accumulation: Composite, n: int) -> list[slice]:
    if accumulation.kind == "strided":
        return [slice(lane, None, accumulation.count) for lane in range(min(accumulation.count, n))]
    found, at = [], 0
    while at < n:
        length = min(_length(accumulation, len(found), n, n - at), n - at)
        if length:
            found.append(slice(at, at + length))
        else:
            found.append(None)
        at += length
    return [part for part in found if part is not None]


def _length(accumulation: Composite, part: int, n: int, left: int) -> int:
    """The terms of a part, with so many terms left; the last part may have fewer."""
    count, tile, rule = accumulation.count, accumulation.tile, accumulation.rule
    if accumulation.lengths:
        return accumulation.lengths[part]
    if accumulation.kind == "splitk":
        tiles = n / tile
        if rule == "dealt":
            return sum(k // tile % count == part for k in range(n))
        if rule == "parallel":
            return left if part == count - 1 else int(tiles) // count * tile
        return math.ceil(math.ceil(tiles) / count) * tile
    if rule == "equal":
        blocks = math.ceil(n / count)
        return math.ceil(math.ceil(n / blocks) / tile) * tile
    if rule == "halve" and count < left < 2 * count:
        return (left // 2 + tile - 1) // tile * tile
    return count


def _order(order: str | tuple[int, ...], n: int) -> list[int]:
    """The term of each position."""
    if not isinstance(order, str):
        whole = n - n % len(order)
        return [k - k % len(order) + order[k % len(order)] if k < whole else k for k in range(n)]
    name, _, numbers = order.partition("-")
    if name == "swapped":
        return [k ^ 1 if k ^ 1 < n else k for k in range(n)]
    if name == "reversed":
        return list(range(n))[::-1]
    if name == "strided":
        return sorted(range(n), key=lambda k: (k % int(numbers), k))
    if name == "conv":
        size, _, descending = numbers.partition("-")
        rows, columns, channels = map(int, size.split("x"))
        places = rows * columns
        group = places * channels
        sign = -1 if descending else 1
        return sorted(range(n), key=lambda k: (k // group, *(
            (sign * (k % places), k % group // places) if k < n - n % group else (k,))))  # fmt: skip
    vectors, width = map(int, numbers.split("x"))
    whole = n - n % (vectors * width)
    return sorted(range(n), key=lambda k: (k // (vectors * width), -(k // width) if k < whole else 0, k))


def _nested(unit: Arithmetic, tree: Any, terms: Sequence[Number]) -> Number:
    """The sum of nested terms; a longer tuple is added from left to right. Terms are operands as they are."""
    acc: Number | None = None
    for node in tree:
        x = terms[node] if isinstance(node, int) else unit.read(_nested(unit, node, terms))
        acc = x if acc is None else unit.read(unit.add(acc, x)) if node is not tree[-1] else unit.add(acc, x)
    assert acc is not None
    return acc


def _sequential(unit: Arithmetic, terms: Sequence[Number], start: Number) -> Number:
    add, round_, acc = unit.add, unit.round, start
    if unit.style.daz:
        for x in terms:
            acc = add(unit.read(acc), x)
        return acc
    for x in terms:  # `add` written out where it is a plain sum
        acc = round_(n) if type(acc) is int and type(x) is int and (n := acc + x) else add(acc, x)
    return acc


def _kahan(unit: Arithmetic, terms: Sequence[Number], start: Number) -> Number:
    add, subtract, read = unit.add, unit.subtract, unit.read
    s, comp = start, 0
    for x in terms:
        y = read(subtract(x, read(comp)))
        t = add(read(s), y)
        comp = subtract(read(subtract(read(t), read(s))), y) if t - t == 0 else 0
        s = t
    return s


def _neumaier(unit: Arithmetic, terms: Sequence[Number], start: Number) -> Number:
    add, subtract, read = unit.add, unit.subtract, unit.read
    s, comp = start, 0
    for x in terms:
        t = add(read(s), x)
        if t - t == 0:
            large, small = (read(s), x) if abs(read(s)) >= abs(x) else (x, read(s))
            lost = add(read(subtract(large, read(t))), small)
            comp = add(read(comp), read(lost))
        s = t
    return add(read(s), read(comp))


def _exact(unit: Arithmetic, terms: Sequence[Number]) -> Number:
    floats = [x for x in terms if type(x) is float]
    if not all(x == 0 for x in floats):
        return special(math.fsum(x for x in floats if x - x != 0) if _one_sign(floats) else NAN, unit.format, unit.grid)
    n = sum(x for x in terms if type(x) is int)
    if n:
        return unit.round(n)
    if len(floats) == len(terms):
        return unit.format.minus_zero
    return unit.zero_of_opposites if floats or any(terms) else 0


def _one_sign(floats: Iterable[float]) -> bool:
    """Whether there is no NaN, and no infinity opposite to another."""
    return len({x for x in floats if x - x != 0}) == 1 and not any(map(math.isnan, floats))


def _adjacent(unit: Arithmetic, terms: Sequence[Number]) -> Number:
    level, root = list(terms), terms[0]
    while len(level) > 1:
        above = []
        for i in range(0, len(level) - 1, 2):
            root = unit.add(level[i], level[i + 1])
            above.append(unit.read(root))
        level = above + level[len(level) - len(level) % 2 :]
    return root


def _halving(unit: Arithmetic, terms: Sequence[Number]) -> Number:
    level, root = list(terms), terms[0]
    while len(level) > 1:
        half = -(-len(level) // 2)
        above = []
        for i in range(len(level) - half):
            root = unit.add(level[i], level[i + half])
            above.append(unit.read(root))
        level = above + level[len(level) - half : half]
    return root


def _numpy(unit: Arithmetic, terms: Sequence[Number]) -> Number:
    n, add, read = len(terms), unit.add, unit.read
    if n < 8:
        root = add(terms[0], terms[1])
        for x in terms[2:]:
            root = add(read(root), x)
        return root
    if n > 128:
        half = n // 2
        half -= half % 8
        return add(read(_numpy(unit, terms[:half])), read(_numpy(unit, terms[half:])))
    r = list(terms[:8])
    whole = n - n % 8
    for i in range(8, whole):
        r[i % 8] = read(add(r[i % 8], terms[i]))
    pairs = [read(add(r[i], r[i + 1])) for i in (0, 2, 4, 6)]
    root = add(read(add(pairs[0], pairs[1])), read(add(pairs[2], pairs[3])))
    for x in terms[whole:]:
        root = add(read(root), x)
    return root


_TREES = {"adjacent": _adjacent, "halving": _halving, "numpy": _numpy}
_CHAINS = {"sequential": _sequential, "kahan": _kahan, "neumaier": _neumaier}


# -- calls -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """A sum with everything that is said at the call: the result's format and the style of its conversion."""

    description: Description
    result: Format
    result_style: Style = Style()
    alpha: float = 1.0
    beta: float = 1.0

    @property
    def scaled(self) -> bool:
        return self.alpha != 1 or self.beta != 1


def grid_of(call: Call, *terms: Format, c: Format | None = None) -> int:
    """log2 of a unit in which every number of a call is an integer; `terms` are the factors' formats, or one."""
    of_terms = sum(fmt.quantum for fmt in terms)
    others = [fmt.quantum for fmt in (*formats(call.description), call.result, *([] if c is None else [c]))]
    return min(of_terms, *others) - (SCALAR_BITS if call.scaled else 0)


def _scaled(unit: Arithmetic, scalar: float, x: Number) -> Number:
    """round(scalar * x)."""
    n = scalar * 2.0**SCALAR_BITS
    if n != int(n):
        raise ValueError(f"{scalar} is no multiple of 2**-{SCALAR_BITS}")
    return unit.product(int(n) if scalar else tidy(scalar), x, SCALAR_BITS)


class _Run:
    """A call on one grid: from operands to codes."""

    def __init__(self, call: Call, terms: tuple[Format, ...], c: Format | None) -> None:
        self.call = call
        self.grid = grid = grid_of(call, *terms, c=c)
        leaf = outermost(call.description)
        self.sum = Sum(call.description, grid, terms, terms[0].quantum)
        self.unit = self.sum.unit
        style = call.result_style
        self.same, self.saturates = call.result == leaf.format, style.overflow == "saturate_finite"
        if self.same:  # only infinities change
            style = replace(style, daz=False, ftz=False)
        self.reads_result = _arithmetic(leaf.format, grid, Style(daz=style.daz)).read
        self.convert = functools.partial(_arithmetic(call.result, grid, style).enter, conversion=True)
        self.shift = call.result.quantum - grid
        self.daz = innermost(call.description).style.daz

    def start(self, code: int | None, fmt: Format | None) -> Number | None:
        """c as its reader reads it."""
        if code is None or fmt is None:
            return None
        return fmt.decode(code, fmt.quantum - self.grid, outermost(self.call.description).style.daz)

    def code(self, x: Sequence[Number], y: Sequence[Number] | None, c: Number | None) -> int:
        call, unit = self.call, self.unit
        if call.beta == 0:  # c is not read
            c = None
        if isinstance(call.description, Epilogue):
            acc = self._epilogue(call.description, self.sum.inner(x, y, None), c)
        elif call.alpha == 1 and (c is None or call.beta == 1):
            acc = self.sum(x, y, c)
        else:
            acc = _scaled(unit, call.alpha, unit.read(self.sum(x, y, None)))
            if c is not None:
                acc = unit.add(unit.read(acc), unit.read(_scaled(unit, call.beta, c)))
        if not self.same or self.saturates:
            acc = self.convert(self.reads_result(acc))
        return call.result.encode(acc, self.shift)

    def _epilogue(self, epilogue: Epilogue, acc: Number, c: Number | None) -> Number:
        unit = self.unit
        if epilogue.through is not None:
            acc = _arithmetic(epilogue.through, self.grid, Style()).enter(acc)
        alpha, beta = (_scalar(x, epilogue.format) for x in (self.call.alpha, self.call.beta))
        one = 1 << SCALAR_BITS

        def exact(scalar: Number, x: Number) -> Number:
            both = exact_product(scalar, x)
            return both >> SCALAR_BITS if type(both) is int else both

        if c is None or beta == 0:
            acc = unit.enter(acc if alpha == one else exact(alpha, acc))
        elif alpha == beta == one:
            acc = unit.add(acc, c)
        elif epilogue.fused == "sum":
            acc = unit.add(exact(alpha, acc), unit.enter(exact(beta, c)))
        else:
            acc = unit.add(exact(beta, c), unit.enter(exact(alpha, acc)))
        negative_zero = type(acc) is float and acc == 0
        return 0 if epilogue.relu and (acc < 0 or negative_zero) else acc


def _scalar(x: float, fmt: Format) -> Number:
    """alpha or beta rounded to a format, in units of 2**-SCALAR_BITS."""
    grid = min(fmt.quantum, -SCALAR_BITS)
    n = x * 2.0**SCALAR_BITS
    if n != int(n):
        raise ValueError(f"{x} is no multiple of 2**-{SCALAR_BITS}")
    rounded = _arithmetic(fmt, grid, Style()).enter(int(n) << (-SCALAR_BITS - grid) if x else tidy(x))
    return rounded >> (-SCALAR_BITS - grid) if type(rounded) is int else rounded


def _converted(to: Converted, rows: Sequence[Sequence[int]], fmt: Format) -> tuple[list[list[int]], Format]:
    """Codes in the format of a conversion, which reads and writes subnormal numbers."""
    grid = min(fmt.quantum, to.format.quantum)
    enter = _arithmetic(to.format, grid, to.style).enter
    found = [
        [to.format.encode(enter(fmt.decode(code, fmt.quantum - grid), True), to.format.quantum - grid) for code in row]
        for row in rows
    ]
    return found, to.format


def _of_operands(description: Description) -> tuple[Converted, Description] | None:
    """The outermost conversion of operands, and the description without it."""
    if isinstance(description, Converted):
        return description, description.inner
    if isinstance(description, Epilogue) and isinstance(description.inner, Converted):
        return description.inner, replace(description, inner=description.inner.inner)
    return None


def matmul(
    call: Call, a: Sequence[Sequence[int]], b: Sequence[Sequence[int]], fa: Format, fb: Format,
    c: Sequence[Sequence[int]] | None = None, fc: Format | None = None,
) -> list[list[int]]:  # fmt: skip
    """The codes of the product of a, rows of codes, and b, *columns* of codes."""
    while (found := _of_operands(call.description)) is not None:
        conversion, description = found
        a, fa, b, fb = *_converted(conversion, a, fa), *_converted(conversion, b, fb)
        call = replace(call, description=description)
    run = _Run(call, (fa, fb), fc)
    shift = fa.quantum + fb.quantum - run.grid
    left = [[fa.decode(code, 0, run.daz) for code in row] for row in a]
    right = [[fb.decode(code, shift, run.daz) for code in column] for column in b]
    return [
        [run.code(x, y, None if c is None else run.start(c[i][j], fc)) for j, y in enumerate(right)]
        for i, x in enumerate(left)
    ]


def sums(
    call: Call, rows: Sequence[Sequence[int]], fmt: Format, c: Sequence[int] | None = None, fc: Format | None = None
) -> list[int]:
    """The code of the sum of each row of codes; c has one start value a row."""
    while isinstance(call.description, Converted):
        rows, fmt = _converted(call.description, rows, fmt)
        call = replace(call, description=call.description.inner)
    run = _Run(call, (fmt,), fc)
    shift = fmt.quantum - run.grid
    terms = [[fmt.decode(code, shift, run.daz) for code in row] for row in rows]
    return [run.code(x, None, None if c is None else run.start(c[i], fc)) for i, x in enumerate(terms)]


def running_sums(call: Call, row: Sequence[int], fmt: Format) -> list[int]:
    """cumsum: element k is the sum of the elements 0 to k."""
    return sums(call, [row[: k + 1] for k in range(len(row))], fmt)


# -- from the public attributes of floatsim's descriptions -------------------------------------------------------------


@functools.lru_cache(maxsize=4096)
def format_of(fmt: Any) -> Format:
    """Of a FloatFormat, from its public attributes."""
    return Format(fmt.exponent_bits, fmt.trailing_bits, fmt.bias, fmt.specials.value)


_COUNTS = {"strided": "lanes", "blocked": "every", "splitk": "parts"}


def style_of(rounding: Any, overflow: Any, ftz: bool, daz: bool, before: bool) -> Style:
    return Style(MODES.index(rounding.name.lower()), overflow.name.lower(), ftz, daz, before)


def description_of(
    attributes: Any, rounding: Any, ftz: bool, daz: bool, before: bool, factors: Sequence[Any] = ()
) -> Description:  # fmt: skip
    """Of an accumulation, with the call's rounding attributes. `factors` are the formats of operands of products."""
    kind = type(attributes).__name__.lower()
    if factors and hasattr(attributes, "operand_formats"):
        factors = attributes.operand_formats(*factors)
    of = functools.partial(
        description_of, rounding=rounding, ftz=ftz, daz=daz, before=before, factors=factors
    )  # fmt: skip
    if kind == "tensorcore":
        row = attributes.row(*factors)
        block = row.model
        return Unit(
            format_of(row.output), row.k, block.terms, block.fraction_bits, block.floor, format_of(block.grid),
            MODES.index(block.rounding.name.lower()),
        )  # fmt: skip
    if kind == "residue":
        return Residue(of(attributes.inner), attributes.tile)
    if kind == "tf32x3":
        return Tf32x3(of(attributes.inner))
    if kind == "epilogue":
        through = None if attributes.through is None else format_of(attributes.through)
        relu = attributes.activation == "relu"
        return Epilogue(of(attributes.inner), format_of(attributes.format), attributes.fused, through, relu)
    if kind == "permuted":
        return Permuted(attributes.order, of(attributes.inner))
    if kind == "converted":
        style = Style(MODES.index(attributes.rounding.name.lower()))
        return Converted(format_of(attributes.format), style, of(attributes.inner))
    if kind == "parts":
        inners = tuple(map(of, attributes.inners))
        return Composite(kind, inners[0], of(attributes.outer), 1, inners, attributes.lengths)
    if kind in _COUNTS:
        count = getattr(attributes, _COUNTS[kind])
        listed = isinstance(count, tuple)
        through = getattr(attributes, "through", None)
        return Composite(
            kind, of(attributes.inner), of(attributes.outer), 1 if listed else count, (), count if listed else (),
            getattr(attributes, "rule", ""), getattr(attributes, "tile", 1),
            None if through is None else format_of(through),
        )  # fmt: skip
    mode = rounding if attributes.rounding is None else attributes.rounding
    own_ftz, own_daz = (
        ftz if attributes.ftz is None else attributes.ftz,
        daz if attributes.daz is None else attributes.daz,
    )
    style = style_of(mode, attributes.overflow, own_ftz, own_daz, before)
    product = getattr(attributes, "product", None)
    product_mode = getattr(attributes, "product_rounding", None)
    product_style = style_of(
        mode if product_mode is None else product_mode, attributes.overflow, own_ftz, own_daz, before
    )
    return Leaf(
        kind,
        format_of(attributes.format),
        style,
        None if product is None else format_of(product),
        product_style,
        str(getattr(attributes, "tree", "adjacent")),
    )
