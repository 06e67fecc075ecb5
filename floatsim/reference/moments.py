"""The readable specification of `Welford`: the mean and the sum of squared differences of one row of numbers.

Every operation is exact, and rounded once, by the functions of `floatsim.reference.scalar`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from floatsim.accumulation import Accumulation, Blocked, Pairwise, Sequential, Threads, Welford
from floatsim.formats import FloatFormat
from floatsim.formats.rounding import RoundingAttributes
from floatsim.reference import sums
from floatsim.reference.scalar import Number, add, decode, divide, fma, multiply, subtract

__all__ = ["Moments", "moments"]


class Moments(NamedTuple):
    """The codes of the mean and of the sum of squared differences, and of the number of terms."""

    mean: int
    squares: int
    number: int


class _Arithmetic(NamedTuple):
    """Operations on codes of one format, each with one rounding."""

    format: FloatFormat
    attributes: RoundingAttributes

    def read(self, code: int) -> Number:
        return decode(code, self.format, self.attributes.daz)

    def add(self, a: int, b: int) -> int:
        return add(self.read(a), self.read(b), self.format, self.attributes)[0]

    def subtract(self, a: int, b: int) -> int:
        return subtract(self.read(a), self.read(b), self.format, self.attributes)[0]

    def multiply(self, a: int, b: int) -> int:
        return multiply(self.read(a), self.read(b), self.format, self.attributes)[0]

    def divide(self, a: int, b: int) -> int:
        return divide(self.read(a), self.read(b), self.format, self.attributes)[0]

    def fma(self, a: int, b: int, c: int) -> int:
        return fma(self.read(a), self.read(b), self.read(c), self.format, self.attributes)[0]

    def one(self) -> int:
        return multiply(sums.ONE, sums.ONE, self.format, self.attributes)[0]

    def entered(self, code: int, fmt: FloatFormat, mean: int) -> int:
        """Return term - mean."""
        term = decode(code, fmt, self.attributes.daz)
        return subtract(term, self.read(mean), self.format, self.attributes)[0]


def moments(
    order: Welford, codes: Sequence[int], fmt: FloatFormat, attributes: RoundingAttributes
) -> Moments:  # fmt: skip
    """Return the moments of a row of codes.

    >>> import floatsim as fs
    >>> order = fs.Welford("threads(fp32, 2, fp32)")
    >>> found = moments(order, fs.array([1.0, 2.0, 4.0], "fp16").codes.tolist(), fs.FP16, RoundingAttributes())
    >>> [round(float(decode(code, fs.FP32).fraction), 5) for code in found]
    [2.33333, 4.66667, 3.0]
    """
    run = _Arithmetic(order.format, attributes)
    shared = order.order
    if isinstance(shared, Sequential):
        return _accumulated(run, order.steps, codes, fmt)
    if isinstance(shared, Pairwise):
        return _combined(run, order.steps, shared, [_accumulated(run, order.steps, [code], fmt) for code in codes])
    assert isinstance(shared, Threads)
    lanes = [_accumulated(run, order.steps, lane, fmt) for lane in sums.shared_terms(shared, codes)]
    return _combined(run, order.steps, shared.outer, lanes)


def _accumulated(run: _Arithmetic, steps: str, codes: Sequence[int], fmt: FloatFormat) -> Moments:
    mean = squares = number = 0
    for code in codes:
        number = run.add(number, run.one())
        d = run.entered(code, fmt, mean)
        if steps == "reciprocal":
            mean = run.fma(d, run.divide(run.one(), number), mean)
        else:
            mean = run.add(mean, run.divide(d, number))
        squares = run.fma(d, run.entered(code, fmt, mean), squares)
    return Moments(mean, squares, number)


def _combined(run: _Arithmetic, steps: str, outer: Accumulation, lanes: Sequence[Moments]) -> Moments:
    """Combine accumulators in the order in which a description adds."""
    if isinstance(outer, Threads):
        shared = sums.shared_terms(outer, lanes)
        return _combined(run, steps, outer.outer, [_combined(run, steps, outer.inner, lane) for lane in shared])
    if isinstance(outer, Blocked):
        found, at = [], 0
        for length, number in outer.runs(len(lanes)):
            for _ in range(number):
                found.append(_combined(run, steps, outer.inner, lanes[at : at + length]))
                at += length
        return _combined(run, steps, outer.outer, found)
    if not lanes:
        return Moments(0, 0, 0)
    if isinstance(outer, Sequential):
        total = lanes[0]
        for lane in lanes[1:]:
            total = _pair(run, steps, total, lane)
        return total
    assert isinstance(outer, Pairwise)
    return _tree(run, steps, sums.TREES[outer.tree](list(range(len(lanes)))), lanes)


def _tree(run: _Arithmetic, steps: str, tree: object, lanes: Sequence[Moments]) -> Moments:
    if isinstance(tree, tuple):
        left, right = tree
        return _pair(run, steps, _tree(run, steps, left, lanes), _tree(run, steps, right, lanes))
    assert isinstance(tree, int)
    return lanes[tree]


def _pair(run: _Arithmetic, steps: str, a: Moments, b: Moments) -> Moments:
    """Combine two accumulators, a before b."""
    n = run.add(a.number, b.number)
    d = run.subtract(b.mean, a.mean)
    if steps == "reciprocal":
        if run.read(n).is_zero:
            return Moments(0, 0, 0)
        share = run.divide(run.one(), n)
        fa, fb = run.multiply(a.number, share), run.multiply(b.number, share)
        mean = run.fma(fb, b.mean, run.multiply(a.mean, fa))
        scaled = run.multiply(run.multiply(d, d), b.number)
        return Moments(mean, run.fma(scaled, fa, run.add(b.squares, a.squares)), n)
    if run.read(a.number).is_zero:
        return b
    if run.read(b.number).is_zero:
        return a
    share = run.divide(b.number, n)
    scaled = run.multiply(run.multiply(d, d), a.number)
    return Moments(run.fma(d, share, a.mean), run.fma(scaled, share, run.add(a.squares, b.squares)), n)
