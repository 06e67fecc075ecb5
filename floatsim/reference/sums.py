"""The readable specification of sums: every description of `floatsim.accumulation`, one result element at a time.

Like `floatsim.reference.scalar`, whose operations it uses, this module is slow and simple: exact integers, and one
rounding wherever a definition has one. The kernels are tested equal to it, in codes, counts of events, and the first k
of each event.

The draw of a stochastic rounding depends on (seed, element, site). Inside a leaf site = 8*step + r: `step` counts the
terms from 0, and r numbers the roundings of one step. Roundings outside of a leaf's terms, and every part of a
composite, have seeds of their own, split from the description's.

>>> import floatsim as fs
>>> from floatsim.formats.call import CallOptions
>>> from floatsim.formats.rounding import RoundingAttributes
>>> from floatsim.reference import sums as reference_sums
>>> one, options = reference_sums.Code(0x3C00, fs.FP16), CallOptions(RoundingAttributes())
>>> sum4096 = reference_sums.accumulate(fs.Sequential("fp16"), [(one, one)] * 4096, options)
>>> reference_sums.decode(sum4096.code, fs.FP16).fraction, sum4096.first["absorbed"]
(Fraction(2048, 1), 2048)
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias, TypeVar

from floatsim.accumulation import (
    Accumulation,
    Blocked,
    Converted,
    Epilogue,
    Exact,
    Kahan,
    Leaf,
    Neumaier,
    Pairwise,
    Parts,
    Permuted,
    ProductLeaf,
    Residue,
    Sequential,
    SplitK,
    Strided,
    TensorCore,
    Tf32x3,
    Threads,
    Tree,
    TreeLeaf,
    fitted,
    leaves,
)
from floatsim.accumulation.tree_shape import TreeShape
from floatsim.formats import FP32, TF32, FloatFormat
from floatsim.formats.call import CallOptions
from floatsim.formats.rounding import ABSORBED, FLUSHED, INVALID, OVERFLOW, UNDERFLOW, Rounding, RoundingAttributes
from floatsim.reference.random import Site, split_seed
from floatsim.reference.random_sources import source_draw
from floatsim.reference.scalar import (
    Kind,
    Number,
    Result,
    add,
    compare,
    convert,
    decode,
    exact_dot,
    fma,
    multiply,
    subtract,
)
from floatsim.reference.tensorcore.dot import Scaled, dot
from floatsim.tensorcore.instructions import TwoHalves

__all__ = [
    "EVENTS",
    "NAN",
    "ONE",
    "TREES",
    "Code",
    "Operand",
    "Rounded",
    "Sum",
    "accumulate",
    "product",
    "scaled",
    "shared_terms",
]

NAN = 8
"""A new NaN: the accumulator before it was not NaN. It has the bit of DIVIDE_BY_ZERO, which sums cannot raise."""

EVENTS = {
    "invalid": INVALID, "nan": NAN, "overflow": OVERFLOW, "underflow": UNDERFLOW, "flushed": FLUSHED,
    "absorbed": ABSORBED,
}  # fmt: skip
"""The events whose first k a sum returns."""

ONE = Number(Kind.FINITE, 0, 1)
_QUIET_NAN = Number(Kind.QUIET_NAN, 0)


class Code(NamedTuple):
    """A code and its format, which DAZ may read as a zero. A `Number` in its place is already decoded."""

    code: int
    format: FloatFormat


Operand: TypeAlias = Code | Number


class Sum(NamedTuple):
    """The code of a result element, the number of roundings by site and event byte, and the least k of each event."""

    code: int
    counts: dict[str, Counter[int]]
    first: dict[str, int | None]


class Rounded(NamedTuple):
    """One rounding of a leaf, for traces: its operands as DAZ reads them, and its result."""

    part: tuple[int | str, ...]
    """The indices of the parts that contain it, from the outermost; "outer" for the sum of the parts."""
    name: str
    """The operation, such as "acc + x"; "product" for a product."""
    operator: str
    """"*", "-" or "+"; "+" also for one operand alone."""
    operands: tuple[Number, ...]
    code: int
    format: FloatFormat
    events: int
    k: int
    """The largest original index of its terms."""


def accumulate(
    accumulation: Accumulation, terms: Sequence[tuple[Operand, Operand | None]], options: CallOptions, index: int = 0,
    start: Operand | None = None, scales: Scaled | None = None, log: list[Rounded] | None = None,
) -> Sum:  # fmt: skip
    """Return one element of a sum as `accumulation` describes it.

    Parameters
    ----------
    accumulation : Accumulation
    terms : (a, b) or (a, None) each
        Products a*b, or values. Product roundings do not apply to values.
    options : CallOptions
        The seed and the rounding attributes of the call. Leaves may override the attributes.
    index : int
        The element's flat index in the whole result.
    start : operand, optional
        The c of `a @ b + c`, not yet rounded.
    scales : Scaled, optional
        The block scales of the terms, for a TensorCore. Its terms are products of codes.
    log : list of Rounded, optional
        A list to which every rounding is appended in the order of the computation, those of matrix units excepted.
    """
    call = _Call(options.attributes, index, scales, log=log)
    numbered = [_Term(a, b, k) for k, (a, b) in enumerate(terms)]
    result = _evaluate(accumulation, numbered, options.seed, start, call)
    return Sum(result.code, call.counts, call.first)


def scaled(
    accumulation: Accumulation,
    terms: Sequence[tuple[Operand, Operand | None]],
    options: CallOptions,
    alpha: Operand,
    beta: Operand,
    index: int = 0,
    c: Operand | None = None,
    scales: Scaled | None = None,
) -> Sum:
    """Return alpha * sum + beta * c: t = round(alpha*acc), then round(t + round(beta*c)).

    These roundings have the attributes of the outermost leaf.

    With alpha = beta = 1, c is the `start` of `accumulate`. With beta = 0, c is not read, and t is the result. The
    roundings are counted as "scale" and have no k.

    An `Epilogue` has its own definition. Its roundings are counted as "epilogue".
    """
    if isinstance(accumulation, Epilogue):
        return _epilogue(accumulation, terms, options, alpha, beta, index, c, scales)
    if _is_one(alpha) and (c is None or _is_one(beta)):
        return accumulate(accumulation, terms, options, index, c, scales)
    if c is not None and _is_zero(beta):
        return scaled(accumulation, terms, options, alpha, beta, index, None, scales)
    total = accumulate(accumulation, terms, options, index, None, scales)
    call = _Call(options.attributes if leaves(accumulation) else _DEFAULT_ATTRIBUTES, index)  # a unit has no attributes
    first, second, third = (
        _Run(_outermost(accumulation), split_seed(options.seed, Site.ALPHA + n), call) for n in range(3)
    )
    result = first.round(multiply, alpha, Code(total.code, accumulation.result_format), step=0, r=0)
    if c is not None:
        addend = second.round(multiply, beta, c, step=0, r=0)
        result = third.round(add, result, addend, step=0, r=0)
    return Sum(result.code, {**total.counts, "scale": call.counts["sum"]}, total.first)


def _epilogue(
    epilogue: Epilogue, terms: Sequence[tuple[Operand, Operand | None]], options: CallOptions, alpha: Operand,
    beta: Operand, index: int, c: Operand | None, scales: Scaled | None,
) -> Sum:  # fmt: skip
    """Return alpha * sum + beta * c as an `Epilogue` describes it."""
    total = accumulate(epilogue.inner, terms, options, index, None, scales)
    counts: Counter[int] = Counter()

    def rounded(operation: Callable[..., Result], *operands: Operand, fmt: FloatFormat = epilogue.format) -> Code:
        code, events = operation(*map(_read, operands), fmt, _DEFAULT_ATTRIBUTES, 0)
        counts[events & ~ABSORBED] += 1
        return Code(code, fmt)

    acc = Code(total.code, epilogue.inner.result_format)
    if epilogue.through is not None:
        acc = rounded(convert, acc, fmt=epilogue.through)
    alpha, beta = (
        Code(convert(_read(x), epilogue.format, _DEFAULT_ATTRIBUTES)[0], epilogue.format) for x in (alpha, beta)
    )
    if c is None or _is_zero(beta):
        acc = rounded(convert, acc) if _is_one(alpha) else rounded(multiply, alpha, acc)
    elif _is_one(alpha) and _is_one(beta):
        acc = rounded(add, acc, c)
    elif epilogue.fused == "sum":
        acc = rounded(fma, alpha, acc, rounded(multiply, beta, c))
    else:
        acc = rounded(fma, beta, c, rounded(multiply, alpha, acc))
    if epilogue.activation == "relu":
        number = _read(acc)
        if number.sign and not number.is_nan:
            acc = Code(0, epilogue.format)
    return Sum(acc.code, {**total.counts, "epilogue": counts}, total.first)


def product(
    accumulation: Sequential | Pairwise, factors: Sequence[Operand], options: CallOptions, index: int = 0,
    start: Operand | None = None,
) -> Sum:  # fmt: skip
    """Return the product of many factors. Its roundings are counted as "product".

    Sequential: acc = 1, or `start` rounded to the format; acc = round(acc * x). Pairwise: the tree of the sum, with
    products; then round(product * start). Without factors the result is 1, or `start`, rounded. The sites are those of
    the sums.
    """
    call = _Call(options.attributes, index)
    run = _Run(accumulation, options.seed, call)
    seed, last = (replace(run, seed=split_seed(run.seed, number)) for number in (Site.START, Site.LAST))
    k = itertools.count()
    if not factors or isinstance(accumulation, Sequential):
        acc: Operand = ONE
        if start is not None:
            acc = seed.round(multiply, ONE, start, step=0, r=1)
        elif not factors:
            acc = _Run(accumulation, options.seed, _Call(options.attributes, index)).round(
                multiply, ONE, ONE, step=0, r=1
            )
        for step, x in enumerate(factors):
            acc = run.round(multiply, acc, x, step=step, r=1, k=step, old=acc)
    else:

        def evaluate(tree: _Tree) -> _Node:
            if isinstance(tree, int):
                return _Node(factors[tree], False, tree)
            left, right = evaluate(tree[0]), evaluate(tree[1])
            where = max(left.where, right.where)
            nan_before = any(node.is_sum and run.read(node.value).is_nan for node in (left, right))
            old = _QUIET_NAN if nan_before else ONE
            return _Node(run.round(multiply, left.value, right.value, step=next(k), r=1, k=where, old=old), True, where)

        root = evaluate(TREES[accumulation.tree](list(range(len(factors)))))
        acc = root.value if root.is_sum else run.round(multiply, root.value, ONE, step=0, r=1)
        if start is not None:
            acc = last.round(multiply, acc, start, step=0, r=1, k=len(factors) - 1, old=acc)
    assert isinstance(acc, Code)
    return Sum(acc.code, {"product": call.counts["sum"]}, call.first)


def _is_one(x: Operand) -> bool:
    number = _read(x)
    return number.kind is Kind.FINITE and number.fraction == 1


def _is_zero(x: Operand) -> bool:
    return _read(x).is_zero


# -- composites ----------------------------------------------------------------------------------------------------


class _Term(NamedTuple):
    """A product, or a value (b is None), and its largest original index."""

    a: Operand
    b: Operand | None
    where: int


_Terms: TypeAlias = Sequence[_Term]
Shared = TypeVar("Shared")


def _evaluate(accumulation: Accumulation, terms: _Terms, seed: int, start: Operand | None, call: _Call) -> Code:
    """Evaluate a description: leaves add terms; composites add parts by `inner` and their results by `outer`."""
    if isinstance(accumulation, Leaf):
        return _leaf(_Run(accumulation, seed, call), terms, start)
    if isinstance(accumulation, TensorCore):
        return _matrix_unit(accumulation, [terms], seed, start, call)
    if isinstance(accumulation, Residue):
        assert isinstance(accumulation.inner, TensorCore)
        first = len(terms) % accumulation.tile
        return _matrix_unit(accumulation.inner, [terms[:first], terms[first:]], seed, start, call)
    if isinstance(accumulation, Tf32x3):
        assert isinstance(accumulation.inner, TensorCore)
        large, small = (
            [_Term(part(term.a), None if term.b is None else part(term.b), term.where) for term in terms]
            for part in (_large_part, _small_part)
        )
        chains = [_mixed(small, large), _mixed(large, small), large]
        return _matrix_unit(accumulation.inner, chains, seed, start, call)
    if isinstance(accumulation, Converted):
        return _evaluate(accumulation.inner, [_as_read(accumulation, term) for term in terms], seed, start, call)
    if isinstance(accumulation, Permuted):
        return _evaluate(accumulation.inner, _permuted(accumulation, terms), seed, start, call)
    assert isinstance(accumulation, Strided | Blocked | SplitK | Parts | Threads)
    partials = []
    for t, part in enumerate(_parts(accumulation, terms)):
        inner = accumulation.inners[t] if isinstance(accumulation, Parts) else accumulation.inner
        value = _evaluate(inner, part, split_seed(seed, Site.PARTS + t), None, call.inside(t))
        if isinstance(accumulation, Parts):
            value = _converted(value, accumulation.part_format)
        partials.append(_Term(value, None, _largest(part)))
    if isinstance(accumulation, SplitK) and accumulation.through is not None:
        return _through_memory(accumulation, partials, split_seed(seed, Site.OUTER), start, call.inside("outer"))
    if isinstance(accumulation, Strided) and start is not None and partials:
        result = _evaluate(accumulation.outer, partials, split_seed(seed, Site.OUTER), None, call.inside("outer"))
        return _add_last(_Run(_outermost(accumulation), seed, call), result, terms, start)
    return _evaluate(accumulation.outer, partials, split_seed(seed, Site.OUTER), start, call.inside("outer"))


def _as_read(accumulation: Converted, term: _Term) -> _Term:
    """Return the term with its factors converted."""
    attributes = RoundingAttributes(accumulation.rounding)

    def converted(x: Operand) -> Code:
        return Code(convert(_read(x), accumulation.format, attributes)[0], accumulation.format)

    return _Term(converted(term.a), None if term.b is None else converted(term.b), term.where)


def _large_part(x: Operand) -> Code:
    """Return an FP32 number rounded to TF32, ties away from zero."""
    return Code(convert(_read(x), TF32, RoundingAttributes(Rounding.TIES_TO_AWAY))[0], TF32)


def _small_part(x: Operand) -> Code:
    """Return the difference of an FP32 number and its large part, cut off to TF32."""
    difference, _ = subtract(_read(x), _read(_large_part(x)), FP32, _DEFAULT_ATTRIBUTES)
    return Code(convert(decode(difference, FP32), TF32, RoundingAttributes(Rounding.TOWARD_ZERO))[0], TF32)


def _mixed(left: _Terms, right: _Terms) -> _Terms:
    """Return the products of the first factors of some terms and the second factors of others."""
    return [_Term(x.a, y.b, x.where) for x, y in zip(left, right, strict=True)]


def _permuted(accumulation: Permuted, terms: _Terms) -> _Terms:
    """Return the terms in the new order."""
    if accumulation.group is not None:
        n = len(accumulation.group)
        groups = [terms[i : i + n] for i in range(0, len(terms), n)]
        moved = [[group[i] for i in accumulation.group] if len(group) == n else group for group in groups]
        return list(itertools.chain.from_iterable(moved))
    if accumulation.lanes is not None:
        return [term for lane in range(accumulation.lanes) for term in terms[lane :: accumulation.lanes]]
    return terms[::-1]


def shared_terms(accumulation: Threads, terms: Sequence[Shared]) -> list[list[Shared]]:
    """Return the terms of each accumulator of each thread; an accumulator may have none."""
    found: list[list[Shared]] = [[] for _ in range(accumulation.threads * accumulation.accumulators)]
    each, n = accumulation.accumulators, len(terms)
    head = min(accumulation.block - accumulation.shift, n) if accumulation.shift else 0
    for i, term in enumerate(terms[:head]):
        found[(accumulation.shift + i) * each].append(term)
    loaded = [0] * accumulation.threads
    at, vector = head, 0
    while at < n:
        left = n - at
        if accumulation.rest == "threads" and left < accumulation.width:
            break
        new_round = vector % accumulation.threads == 0
        if accumulation.rest == "rounds" and new_round and left < accumulation.width * accumulation.threads:
            break
        thread = vector % accumulation.threads
        for term in terms[at : at + accumulation.width]:
            found[thread * each + loaded[thread] % each].append(term)
            loaded[thread] += 1
        at, vector = at + accumulation.width, vector + 1
    for i, term in enumerate(terms[at:]):
        found[i % accumulation.threads * each].append(term)
    return found


def _parts(accumulation: Strided | Blocked | SplitK | Parts | Threads, terms: _Terms) -> list[_Terms]:
    """Return the parts, in order. Only the accumulators of `Threads` may have no term."""
    if isinstance(accumulation, Threads):
        return list(shared_terms(accumulation, terms))
    if isinstance(accumulation, Strided):
        return [terms[lane :: accumulation.lanes] for lane in range(min(accumulation.lanes, len(terms)))]
    if isinstance(accumulation, SplitK) and accumulation.rule == "dealt":
        tiles = [terms[i : i + accumulation.tile] for i in range(0, len(terms), accumulation.tile)]
        dealt = [tiles[part :: accumulation.parts] for part in range(min(accumulation.parts, len(tiles)))]
        return [list(itertools.chain.from_iterable(part)) for part in dealt]
    found, at = [], 0
    for length, number in accumulation.runs(len(terms)):
        for _ in range(number):
            found.append(terms[at : at + length])
            at += length
    return found


def _through_memory(
    accumulation: SplitK, partials: _Terms, seed: int, start: Operand | None, call: _Call
) -> Code:  # fmt: skip
    """Return the running sum of the parts' results, rounded to the format in memory after each part.

    It starts from +0, or from c rounded to outer's format, and is returned in outer's format. Part t has its own seed.
    """
    outer = accumulation.outer
    assert isinstance(outer, Sequential) and accumulation.through is not None
    memory = Sequential(
        accumulation.through, True, rounding=outer.rounding, ftz=outer.ftz, daz=outer.daz, overflow=outer.overflow
    )
    if not partials:
        return _leaf(_Run(outer, seed, call), partials, start)
    acc = _Run(outer, seed, call).seeded(start, partials)
    for t, term in enumerate(partials):
        run = _Run(outer, split_seed(seed, Site.PARTS + t), call)
        k = _largest(partials[: t + 1])
        acc = run.round(_add_to_accumulator, acc, term.a, step=0, r=1, k=k, old=acc, name="acc + x")
        store = replace(run, leaf=memory, seed=split_seed(run.seed, Site.RESULT))
        acc = _converted(store.round(_round_alone, acc, step=0, r=1, k=k, name="to memory"), outer.format)
    return acc


def _converted(value: Code, fmt: FloatFormat) -> Code:
    """Return a value in a format that has it: without a rounding."""
    code, _ = _round_alone(_read(value), fmt, _DEFAULT_ATTRIBUTES, 0)
    return Code(code, fmt)


def _outermost(accumulation: Accumulation) -> Leaf:
    """Return the leaf whose result is the description's."""
    if accumulation.children:
        return _outermost(accumulation.children[-1])
    if isinstance(accumulation, TensorCore):
        return Sequential(accumulation.result_format)
    assert isinstance(accumulation, Leaf)
    return accumulation


def _largest(terms: _Terms) -> int:
    return max((term.where for term in terms), default=0)


# -- the roundings of a leaf ---------------------------------------------------------------------------------------


@dataclass
class _Call:
    """The shared data of all leaves of one element: attributes of the call, index, and recorded events."""

    attributes: RoundingAttributes
    index: int
    scales: Scaled | None = None
    counts: dict[str, Counter[int]] = field(default_factory=lambda: {"product": Counter(), "sum": Counter()})
    first: dict[str, int | None] = field(default_factory=lambda: dict.fromkeys(EVENTS))
    log: list[Rounded] | None = None
    part: tuple[int | str, ...] = ()

    def inside(self, part: int | str) -> _Call:
        """Return the call of one part of a composite, with the same counts and log."""
        return replace(self, part=(*self.part, part))

    def note(self, site: str, events: int, k: int) -> None:
        self.counts[site][events] += 1
        for name, bit in EVENTS.items():
            earliest = self.first[name]
            if events & bit and (earliest is None or k < earliest):
                self.first[name] = k


def _read(x: Operand, daz: bool = False) -> Number:
    return decode(x.code, x.format, daz) if isinstance(x, Code) else x


@dataclass
class _Run:
    """The evaluation of one leaf for one element: its operands, roundings, draws and counts."""

    leaf: Leaf
    seed: int
    call: _Call

    @property
    def attributes(self) -> RoundingAttributes:
        """The attributes of the leaf, else those of the call. Overflow is always the leaf's."""
        own = {"rounding": self.leaf.rounding, "ftz": self.leaf.ftz, "daz": self.leaf.daz}
        given = {name: value for name, value in own.items() if value is not None}
        return replace(self.call.attributes, overflow=self.leaf.overflow, **given)  # type: ignore[arg-type]

    def read(self, x: Operand) -> Number:
        return _read(x, self.attributes.daz)

    def random(self, attributes: RoundingAttributes, step: int, r: int) -> int:
        if attributes.rounding is not Rounding.STOCHASTIC:
            return 0
        return source_draw(attributes.source, self.seed, self.call.index, attributes.random_bits, site=8 * step + r)

    def round(
        self, operation: Callable[..., Result], *operands: Operand, step: int, r: int, k: int = 0,
        old: Operand = ONE, name: str = "",
    ) -> Code:  # fmt: skip
        """Round once: apply the operation to the operands as DAZ reads them, and count the events at k.

        `old` is the accumulator before the operation. A NaN is new if `old` is none. `name` is for traces.
        """
        attributes, fmt = self.attributes, self.leaf.format
        numbers = tuple(map(self.read, operands))
        code, events = operation(*numbers, fmt, attributes, self.random(attributes, step, r))
        events |= NAN * (decode(code, fmt).is_nan and not self.read(old).is_nan)
        self.call.note("sum", events, k)
        self.trace(name, "-" if operation is _minus else "+", numbers, Code(code, fmt), events, k)
        return Code(code, fmt)

    def trace(
        self, name: str, operator: str, operands: tuple[Number, ...], result: Code, events: int, k: int
    ) -> None:  # fmt: skip
        """Append a rounding to the log, if there is one."""
        if self.call.log is not None:
            rounded = Rounded(self.call.part, name, operator, operands, result.code, result.format, events, k)
            self.call.log.append(rounded)

    def enter(self, term: _Term, step: int) -> Operand:
        """Return the term of the sum: a value unchanged, a product exactly, or rounded first."""
        if term.b is None:
            return term.a
        a, b = self.read(term.a), self.read(term.b)
        if not isinstance(self.leaf, ProductLeaf) or self.leaf.product is None:
            return _product(a, b)
        attributes, fmt = self.attributes, self.leaf.product
        if self.leaf.product_rounding is not None:
            attributes = replace(attributes, rounding=self.leaf.product_rounding)
        code, events = multiply(a, b, fmt, attributes, self.random(attributes, step, 0))
        events |= NAN * decode(code, fmt).is_nan
        self.call.note("product", events, term.where)
        self.trace("product", "*", (a, b), Code(code, fmt), events, term.where)
        return Code(code, fmt)

    def seeded(self, start: Operand | None, terms: _Terms) -> Code:
        """Return the first value of the accumulator: +0, or c rounded to the format."""
        if start is None:
            return Code(0, self.leaf.format)
        run = replace(self, seed=split_seed(self.seed, Site.START))
        return run.round(_round_alone, start, step=0, r=1, k=terms[0].where if terms else 0, name="c")


def _product(a: Number, b: Number) -> Number:
    """Return a * b, not rounded. inf * 0 is a signalling NaN: the operation that reads it raises INVALID."""
    invalid = (a.is_infinite and b.is_zero) or (a.is_zero and b.is_infinite)
    if invalid or Kind.SIGNALING_NAN in (a.kind, b.kind):
        return Number(Kind.SIGNALING_NAN, 0)
    if a.is_nan or b.is_nan:
        return _QUIET_NAN
    kind = Kind.INFINITE if a.is_infinite or b.is_infinite else Kind.FINITE
    return Number(kind, a.sign ^ b.sign, a.significand * b.significand, a.exponent + b.exponent)


def _add_last(run: _Run, result: Code, terms: _Terms, start: Operand) -> Code:
    """Return the sum of all terms, plus c."""
    last = replace(run, seed=split_seed(run.seed, Site.LAST))
    return last.round(
        _add_to_accumulator, result, start, step=0, r=1, k=_largest(terms), old=result, name="sum + c"
    )  # fmt: skip


def _plus(x: Number, y: Number, fmt: FloatFormat, attributes: RoundingAttributes, random: int) -> Result:
    """Return x + y, without the event ABSORBED."""
    code, events = add(x, y, fmt, attributes, random)
    return code, events & ~ABSORBED


def _minus(x: Number, y: Number, fmt: FloatFormat, attributes: RoundingAttributes, random: int) -> Result:
    """Return x - y, without the event ABSORBED."""
    return _plus(x, -y, fmt, attributes, random)


def _add_to_accumulator(
    acc: Number, x: Number, fmt: FloatFormat, attributes: RoundingAttributes, random: int
) -> Result:
    """Return acc + x; ABSORBED if a finite acc keeps its value although x is not zero."""
    return fma(x, ONE, acc, fmt, attributes, random)


def _total(*arguments: Any) -> Result:
    *numbers, fmt, attributes, random = arguments
    return exact_dot([(x, ONE) for x in numbers], fmt, attributes, random)


def _round_alone(x: Number, fmt: FloatFormat, attributes: RoundingAttributes, random: int) -> Result:
    """Return x rounded as a sum of one term: an infinity stays infinite, although a conversion may clamp it."""
    return multiply(x, ONE, fmt, attributes, random)


# -- leaves --------------------------------------------------------------------------------------------------------


def _leaf(run: _Run, terms: _Terms, start: Operand | None) -> Code:
    """Evaluate a leaf. Without terms and c the result is +0, and nothing is counted."""
    if not terms and start is None:
        return Code(0, run.leaf.format)
    return _LEAVES[type(run.leaf)](run, terms, start)


def _steps(terms: _Terms) -> Iterator[tuple[int, _Term, int]]:
    """Yield each term with its step and the largest original index so far."""
    so_far = itertools.accumulate((term.where for term in terms), max)
    return ((step, term, k) for (step, term), k in zip(enumerate(terms), so_far, strict=True))


def _sequential(run: _Run, terms: _Terms, start: Operand | None) -> Code:
    acc = run.seeded(start, terms)
    for step, term, k in _steps(terms):
        x = run.enter(term, step)
        acc = run.round(_add_to_accumulator, acc, x, step=step, r=1, k=k, old=acc, name="acc + x")
    return acc


def _kahan(run: _Run, terms: _Terms, start: Operand | None) -> Code:
    zero = Code(0, run.leaf.format)
    s, comp = run.seeded(start, terms), zero
    for step, term, k in _steps(terms):
        x = run.enter(term, step)
        y = run.round(_minus, x, comp, step=step, r=1, k=k, old=s, name="y = x - comp")
        t = run.round(_add_to_accumulator, s, y, step=step, r=2, k=k, old=s, name="t = s + y")
        if _is_finite(t):
            change = run.round(_minus, t, s, step=step, r=3, k=k, old=s, name="t - s")
            comp = run.round(_minus, change, y, step=step, r=4, k=k, old=s, name="comp = (t - s) - y")
        else:
            comp = zero
        s = t
    return s


def _neumaier(run: _Run, terms: _Terms, start: Operand | None) -> Code:
    s, comp = run.seeded(start, terms), Code(0, run.leaf.format)
    for step, term, k in _steps(terms):
        x = run.enter(term, step)
        t = run.round(_add_to_accumulator, s, x, step=step, r=1, k=k, old=s, name="t = s + x")
        if _is_finite(t):
            s_first = _at_least(run.read(s), run.read(x))
            larger, smaller, names = (s, x, "sx") if s_first else (x, s, "xs")
            rest = run.round(_minus, larger, t, step=step, r=2, k=k, old=s, name=f"{names[0]} - t")
            lost = run.round(
                _plus, rest, smaller, step=step, r=3, k=k, old=s, name=f"lost = ({names[0]} - t) + {names[1]}"
            )
            comp = run.round(_plus, comp, lost, step=step, r=4, k=k, old=s, name="comp = comp + lost")
        s = t
    if not terms:
        return s
    return run.round(_plus, s, comp, step=len(terms), r=1, k=_largest(terms), old=s, name="s + comp")


def _is_finite(x: Operand) -> bool:
    return _read(x).kind is Kind.FINITE


def _at_least(s: Number, x: Number) -> bool:
    """Return whether |s| >= |x|; False for a NaN."""
    order, _ = compare(replace(s, sign=0), replace(x, sign=0))
    return order is not None and order >= 0


def _exact(run: _Run, terms: _Terms, start: Operand | None) -> Code:
    entered = [run.enter(term, step) for step, term in enumerate(terms)]
    if start is not None:
        entered.append(start)
    return run.round(_total, *entered, step=0, r=1, k=_largest(terms), name="sum of all terms")


# -- matrix units --------------------------------------------------------------------------------------------------

_DEFAULT_ATTRIBUTES = RoundingAttributes()
"""The attributes of roundings of c, alpha and beta with a matrix unit. Those of the call have no effect."""


def _matrix_unit(
    accumulation: TensorCore, chains: Sequence[_Terms], seed: int, start: Operand | None, call: _Call
) -> Code:  # fmt: skip
    """Add chains of terms by the instructions of `floatsim.reference.tensorcore.dot`, after rounding c to D's format.

    The first instruction of each chain begins with the chain's first term. Its c is the D of the chain before.
    """
    terms = list(itertools.chain.from_iterable(chains))
    pairs = [(term.a, term.b) for term in terms]
    a, b = ([x for x in side if isinstance(x, Code)] for side in zip(*pairs, strict=True)) if pairs else ([], [])
    if not len(a) == len(b) == len(terms):
        raise TypeError("a matrix unit multiplies codes, not exact numbers")
    scales = _scales_from(call.scales, terms)
    if terms:
        fit = fitted(accumulation, a[0].format, b[0].format, scales and scales.of)
        assert isinstance(fit, TensorCore)
        accumulation = fit
    run = _Run(Sequential(accumulation.result_format), seed, replace(call, attributes=_DEFAULT_ATTRIBUTES))
    if not terms and start is None:
        return Code(0, accumulation.result_format)
    acc = run.seeded(start, terms)
    if not terms:
        return acc
    row = accumulation.row(a[0].format, b[0].format, scales and scales.of)
    codes_a, codes_b = ([x.code for x in side] for side in (a, b))
    at = 0
    for chain in chains:
        part = slice(at, at + len(chain))
        steps = dot(row, codes_a[part], codes_b[part], a[0].format, b[0].format, acc.code, scales).steps
        for n, step in enumerate(steps):
            if isinstance(row.model, TwoHalves) and n % 3 == 0:  # the first half starts from zero
                acc = Code(0, row.output)
            new_nan = decode(step.code, row.output).is_nan and not run.read(acc).is_nan
            call.note("sum", step.events | NAN * new_nan, chain[step.last].where)
            acc = Code(step.code, row.output)
        at += len(chain)
    return acc


def _scales_from(scales: Scaled | None, terms: _Terms) -> Scaled | None:
    """Return the scales of consecutive terms. The first term must be the first of its block."""
    if scales is None or not terms:
        return None
    first = terms[0].where // scales.of.every
    return Scaled(scales.a[first:], scales.b[first:], scales.of)


# -- trees ---------------------------------------------------------------------------------------------------------

_Tree: TypeAlias = "int | tuple[_Tree, _Tree]"
"""The position of a term, or the two subtrees of a sum."""


def _adjacent(nodes: list[_Tree]) -> _Tree:
    while len(nodes) > 1:
        pairs: list[_Tree] = [(nodes[i], nodes[i + 1]) for i in range(0, len(nodes) - 1, 2)]
        nodes = pairs + nodes[2 * len(pairs) :]
    return nodes[0]


def _halving(nodes: list[_Tree]) -> _Tree:
    while len(nodes) > 1:
        half = (len(nodes) + 1) // 2
        pairs: list[_Tree] = [(nodes[i], nodes[i + half]) for i in range(len(nodes) - half)]
        nodes = pairs + nodes[len(pairs) : half]
    return nodes[0]


def _one_by_one(nodes: list[_Tree]) -> _Tree:
    tree = nodes[0]
    for node in nodes[1:]:
        tree = (tree, node)
    return tree


def _numpy(nodes: list[_Tree]) -> _Tree:
    """The tree of NumPy: numpy/_core/src/umath/loops_utils.h.src, pairwise_sum."""
    n = len(nodes)
    if n < 8:
        return _one_by_one(nodes)
    if n > 128:
        cut = n // 2 - n // 2 % 8
        return _numpy(nodes[:cut]), _numpy(nodes[cut:])
    whole = n - n % 8
    r = [_one_by_one(nodes[i:whole:8]) for i in range(8)]
    joined: _Tree = (((r[0], r[1]), (r[2], r[3])), ((r[4], r[5]), (r[6], r[7])))
    return _one_by_one([joined, *nodes[whole:]])


def _given(shape: TreeShape) -> _Tree:
    """The tree of a `Tree`."""
    stack: list[_Tree] = []
    for position, merges in zip(shape.order, shape.merges, strict=True):
        stack.append(position)
        for _ in range(merges):
            last = stack.pop()
            stack.append((stack.pop(), last))
    return stack[0]


def _post_order(tree: _Tree) -> Iterator[int | None]:
    """Yield the positions of the leaves, operands first, and None for each addition of the two latest values."""
    pending: list[_Tree | None] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, tuple):
            pending += [None, node[1], node[0]]
        else:
            yield node


TREES: dict[str, Callable[[list[_Tree]], _Tree]] = {"adjacent": _adjacent, "halving": _halving, "numpy": _numpy}
"""Functions from the positions of n terms, n > 0, to the tree of their sum, nested pairs."""


class _Node(NamedTuple):
    """The value of a subtree, whether it is a sum, and its largest original index."""

    value: Operand
    is_sum: bool
    where: int


def _pairwise(run: _Run, terms: _Terms, start: Operand | None) -> Code:
    assert isinstance(run.leaf, TreeLeaf)
    if not terms:
        return run.seeded(start, terms)
    shape = run.leaf.tree
    if isinstance(shape, TreeShape) and len(shape.order) != len(terms):
        raise ValueError(f"the Tree has {len(shape.order)} terms; this sum has {len(terms)}")
    tree = _given(shape) if isinstance(shape, TreeShape) else TREES[shape](list(range(len(terms))))
    entered = [run.enter(term, step) for step, term in enumerate(terms)]
    roundings = itertools.count()

    stack: list[_Node] = []
    for position in _post_order(tree):
        if position is not None:
            stack.append(_Node(entered[position], False, terms[position].where))
            continue
        right, left = stack.pop(), stack.pop()
        k = max(left.where, right.where)
        nan_before = any(node.is_sum and run.read(node.value).is_nan for node in (left, right))
        old = _QUIET_NAN if nan_before else ONE
        total = run.round(
            add, left.value, right.value, step=next(roundings), r=1, k=k, old=old, name="left + right"
        )  # fmt: skip
        stack.append(_Node(total, True, k))
    root = stack[0]
    result = root.value
    if not root.is_sum:
        result = run.round(_round_alone, result, step=next(roundings), r=1, k=root.where, name="one term")
    assert isinstance(result, Code)
    return result if start is None else _add_last(run, result, terms, start)


_LEAVES: dict[type[Leaf], Callable[[_Run, _Terms, Operand | None], Code]] = {
    Sequential: _sequential, Pairwise: _pairwise, Tree: _pairwise, Kahan: _kahan, Neumaier: _neumaier, Exact: _exact,
}  # fmt: skip
