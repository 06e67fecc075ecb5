"""Sums of one long vector in hardware floats, straight from packed codes: ties to even, default overflow, no events.

A *source* gives the terms: packed codes, floats, or the rounded products of two sources. A *grid* is what an
accumulator rounds to. Both are named tuples, and `term`, `lifted`, `rounded` ... are compiled for their types, so that
one loop here is a specialised one for each pair. Accumulators are float32, on the grid of FP16 or BF16 or plain, or
plain float64.

Exactness. Terms have at most the grid's precision and are multiples of its least quantum
(`floatsim/emulator/dispatch/vector.py` sees to that). A float32 sum of two such numbers, rounded to FP16 (p = 11) or
BF16 (p = 8), is their exact sum rounded once: 24 >= 2p + 2 (S. A. Figueroa, "When is double rounding innocuous?",
1995), and sums below 2**emin are exact. Products: see `elementwise/packed.py`.

`sequential` adds many terms at once where the order cannot matter: see `together` and `shifted`.

Needs `machine.environment_is_default()`; Halves and HalfGrid need `machine.has_f16c()` too.
"""

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, overload

from ..rounding.float32 import on_bfloat_grid, on_half_grid
from ..runtime.intrinsics import (
    add32,
    bits_from_float,
    float_from_bits,
    float_from_half,
    half_from_float,
    left32,
    right32,
)
from ..runtime.jit import OPTIONS, check, inline, kernel

U = np.uint64
_INLINED = {"forceinline": True, "nogil": True, **OPTIONS}
_16, _LOW = np.uint32(16), np.uint32(0xFFFF)

# -- where terms come from ---------------------------------------------------------------------------------------------


class Halves(NamedTuple):
    """FP16 codes."""

    codes: Any


class Bfloats(NamedTuple):
    """BF16 codes."""

    codes: Any


class Floats(NamedTuple):
    """Numbers as they are: float32 or float64."""

    values: Any


class Listed(NamedTuple):
    """Codes of a small format, and the value of each code."""

    codes: Any
    values: Any


class Products(NamedTuple):
    """The products of two sources' terms, each rounded to a grid."""

    a: Any
    b: Any
    grid: Any


def term(source, i):
    """The i-th term; i is unsigned, as signed indices are checked for being negative, which keeps loops scalar."""


@overload(term, jit_options=_INLINED)
def _term(source, i):
    kind = source.instance_class
    if kind is Halves:
        return lambda source, i: float_from_half(source.codes[i])
    if kind is Bfloats:
        return lambda source, i: float_from_bits(left32(np.uint32(source.codes[i]), _16))
    if kind is Floats:
        return lambda source, i: source.values[i]
    if kind is Listed:
        return lambda source, i: source.values[source.codes[i]]
    return lambda source, i: rounded_product(
        source.grid, lifted(source.grid, term(source.a, i)), lifted(source.grid, term(source.b, i))
    )


# -- what accumulators round to ----------------------------------------------------------------------------------------


class HalfGrid(NamedTuple):
    """FP16. 2**emin's exponent field in float32, the number of bits that float32 has more, and max."""

    lowest: Any = np.uint32((127 - 14) << 23)
    spare: Any = np.uint32(13)
    largest: Any = np.float32(65504)


class BfloatGrid(NamedTuple):
    """BF16; of the same fields as HalfGrid."""

    lowest: Any = np.uint32((127 - 126) << 23)
    spare: Any = np.uint32(16)
    largest: Any = np.float32((2 - 2.0**-7) * 2.0**127)


class SingleGrid(NamedTuple):
    """FP32: the arithmetic's own rounding."""

    zero: Any = np.float32(0)


class DoubleGrid(NamedTuple):
    """FP64: the arithmetic's own rounding."""

    zero: Any = np.float64(0)


def lifted(grid, x):
    """A term as a float of the accumulator's width."""


@overload(lifted, jit_options=_INLINED)
def _lifted(grid, x):
    if grid.instance_class is DoubleGrid:
        return lambda grid, x: np.float64(x)
    return lambda grid, x: np.float32(x)


def rounded(grid, x):
    """A sum of two numbers of the grid, rounded to it."""


@overload(rounded, jit_options=_INLINED)
def _rounded(grid, x):
    if grid.instance_class is HalfGrid:
        return lambda grid, x: on_half_grid(x)
    if grid.instance_class is BfloatGrid:
        return lambda grid, x: on_bfloat_grid(x)
    return lambda grid, x: x


_NAN = np.float32(np.nan)


@inline
def not_carried(x):
    """NaN products have no low bits here, whose rounding would carry into the sign."""
    return on_bfloat_grid(x) if x == x else _NAN


def rounded_product(grid, x, y):
    """x * y, rounded to the grid."""


@overload(rounded_product, jit_options=_INLINED)
def _rounded_product(grid, x, y):
    if grid.instance_class is HalfGrid:
        return lambda grid, x, y: on_half_grid(x * y)
    if grid.instance_class is BfloatGrid:
        return lambda grid, x, y: not_carried(x * y)
    return lambda grid, x, y: x * y


@inline
def added(grid, source, acc, i):
    return rounded(grid, acc + lifted(grid, term(source, i)))


@inline
def pair(grid, source, i, j):
    return rounded(grid, lifted(grid, term(source, i)) + lifted(grid, term(source, j)))


# -- lanes -------------------------------------------------------------------------------------------------------------

_TILE = 2048  # lanes that stay in the cache


@kernel
def lanes(source, grid, n, every, out):
    """Of blocks of `every` terms: lane l adds the terms l, l + lanes, ... to out[block, l], which holds +0."""
    width = U(out.shape[1])
    for block in range(out.shape[0]):
        acc, start = out[block], U(block) * U(every)
        length = min(every, n - block * every)
        rows = length // acc.size
        for first in range(0, acc.size, _TILE):
            here = acc[first : first + _TILE]
            for r in range(0, rows - rows % 4, 4):
                base = start + U(r) * width + U(first)
                second, third, fourth = base + width, base + U(2) * width, base + U(3) * width
                for j in range(here.size):
                    s = added(grid, source, here[j], base + U(j))
                    s = added(grid, source, s, second + U(j))
                    s = added(grid, source, s, third + U(j))
                    here[j] = added(grid, source, s, fourth + U(j))
            for r in range(rows - rows % 4, rows):
                base = start + U(r) * width + U(first)
                for j in range(here.size):
                    here[j] = added(grid, source, here[j], base + U(j))
        base = start + U(rows) * width
        rest = acc[: length - rows * acc.size]
        for j in range(rest.size):
            rest[j] = added(grid, source, rest[j], base + U(j))


# -- trees -------------------------------------------------------------------------------------------------------------


def packed(grid, x):
    """A number of the grid as a code of half its width, where that makes pairs of neighbours cheap to take apart."""


@overload(packed, jit_options=_INLINED)
def _packed(grid, x):
    if grid.instance_class is HalfGrid:
        return lambda grid, x: half_from_float(x)
    if grid.instance_class is BfloatGrid:
        return lambda grid, x: np.uint16(right32(bits_from_float(x), _16))
    return lambda grid, x: x


def unpacked(grid, code):
    """A number that was packed."""


@overload(unpacked, jit_options=_INLINED)
def _unpacked(grid, code):
    if grid.instance_class is HalfGrid:
        return lambda grid, code: float_from_half(code)
    if grid.instance_class is BfloatGrid:
        return lambda grid, code: float_from_bits(left32(np.uint32(code), _16))
    return lambda grid, code: code


def join_neighbours(grid, now, pairs, later):
    """later[i] = now[2i] + now[2i + 1], packed; `pairs` is `now`, two codes in one number."""


@overload(join_neighbours, jit_options=_INLINED)
def _join_neighbours(grid, now, pairs, later):
    if grid.instance_class in (HalfGrid, BfloatGrid):
        return join_codes
    return join_floats


def join_codes(grid, now, pairs, later):
    for i in range(later.size):
        low, high = np.uint16(pairs[i] & _LOW), np.uint16(right32(pairs[i], _16))
        later[i] = packed(grid, rounded(grid, unpacked(grid, low) + unpacked(grid, high)))


def join_floats(grid, now, pairs, later):
    for i in range(later.size):
        later[i] = now[U(2) * U(i)] + now[U(2) * U(i) + U(1)]


@kernel
def adjacent(source, grid, n, every, out, scratch, pairs):
    """The trees "adjacent" of blocks of `every` terms. scratch: (2, every or one more, even), of codes of 16 bits for
    grids of 16 bits; pairs: the same memory as numbers of twice the width."""
    for block in range(out.size):
        start = U(block) * U(every)
        length = min(every, n - block * every)
        now = 0
        terms = scratch[now, :length]
        for i in range(terms.size):
            terms[i] = packed(grid, lifted(grid, term(source, start + U(i))))
        while length > 1:
            half = length // 2
            join_neighbours(grid, scratch[now], pairs[now], scratch[1 - now, :half])
            if length & 1:
                scratch[1 - now, half] = scratch[now, length - 1]
            length -= half
            now = 1 - now
        out[block] = unpacked(grid, scratch[now, 0])


@kernel
def halving(source, grid, n, every, out, scratch):
    """The trees "halving" of blocks of `every` terms; scratch: every // 2 + 1."""
    for block in range(out.size):
        start = U(block) * U(every)
        length = min(every, n - block * every)
        half = length - length // 2
        now = scratch[:half]
        for i in range(length // 2):
            now[i] = pair(grid, source, start + U(i), start + U(half) + U(i))
        if length & 1:
            now[half - 1] = lifted(grid, term(source, start + U(half - 1)))
        while half > 1:
            length, half = half, half - half // 2
            upper = now[half:length]
            for i in range(upper.size):
                now[i] = rounded(grid, now[i] + upper[i])
        out[block] = now[0]


_NO_TERM = -0.0  # leaves every other summand as it is


@kernel
def halving_columns(source, grid, offsets, limits, whole, out, stack):
    """The nodes of a level of the tree "halving", each the sum of the terms node + offsets[leaf] in the tree's order.

    A node has only the leaves with node < limits[leaf]; the first `whole` nodes have all. stack: (levels, nodes made at
    once).
    """
    first = 0
    while first < out.size:
        width = min(stack.shape[1], whole - first) if first < whole else 1
        depth = 0
        for leaf in range(0, offsets.size, 2):
            a, b = U(first + offsets[leaf]), U(first + offsets[leaf + 1])
            top = stack[depth, :width]
            if first < limits[leaf + 1]:
                for i in range(top.size):
                    top[i] = pair(grid, source, a + U(i), b + U(i))
            elif first < limits[leaf]:
                top[0] = lifted(grid, term(source, a))
            else:
                top[0] = _NO_TERM
            depth += 1
            ends = leaf >> 1
            while ends & 1:
                depth -= 1
                left, right = stack[depth - 1, :width], stack[depth, :width]
                for i in range(left.size):
                    left[i] = rounded(grid, left[i] + right[i])
                ends >>= 1
        for i in range(width):
            out[first + i] = stack[0, i]
        first += width


_LANES, _LEAVES = 8, 128
_I32 = ir.IntType(32)


def _spread(x, number):
    return ir.Constant(ir.VectorType(_I32, x.type.count), [number] * x.type.count)


def _half_vector(builder, x):
    return builder.fpext(builder.fptrunc(x, ir.VectorType(ir.HalfType(), x.type.count)), x.type)


def _without_low_bits(builder, x, spare):
    """Ties to even on float32's codes, of which `spare` low bits go: right for sums that do not overflow."""
    u = builder.bitcast(x, _spread(x, 0).type)
    odd = builder.and_(builder.lshr(u, _spread(x, spare)), _spread(x, 1))
    up = builder.add(builder.add(u, _spread(x, (1 << (spare - 1)) - 1)), odd)
    return builder.bitcast(builder.and_(up, _spread(x, 0x1_0000_0000 - (1 << spare))), x.type)


def _bfloat_vector(builder, x):
    return _without_low_bits(builder, x, 16)


def _soon_half_vector(builder, x):
    """As `_half_vector`, in half the time, but for overflow."""
    return _without_low_bits(builder, x, 13)


_VECTOR_ROUNDINGS = {HalfGrid: _half_vector, BfloatGrid: _bfloat_vector}
_HALF_MAX = int(np.float32(65504).view(np.uint32))


def _neighbours(builder, x):
    """(Every second element from the first on, those from the second on.)"""
    places = (range(start, x.type.count, 2) for start in (0, 1))
    indices = (ir.Constant(ir.VectorType(_I32, x.type.count // 2), list(p)) for p in places)
    return (builder.shuffle_vector(x, x, index) for index in indices)


@intrinsic
def eight_lanes(typingctx, grid, values, counts):
    """For each of the counts ((r0+r1)+(r2+r3))+((r4+r5)+(r6+r7)), r the sums of every eighth number of so many rows of
    eight, one row after the other, in one vector register: of the first rows, of those behind them, ...

    Each sum waits for the one before it; several at a time hide that. None has fewer rows than the first. (Numba leaves
    LLVM's vectoriser of straight-line code out, so that loops of eight would stay scalar.)
    """
    round_vector = _VECTOR_ROUNDINGS.get(grid.instance_class, lambda builder, x: x)

    def codegen(context, builder, signature, args):
        array = context.make_array(values)(context, builder, args[1])
        data, (size,) = array.data, cgutils.unpack_tuple(builder, array.shape)
        vector = ir.VectorType(context.get_value_type(values.dtype), _LANES)
        align, lengths = values.dtype.bitwidth // 8, cgutils.unpack_tuple(builder, args[2])
        stop = size.type(0)
        for length in lengths:
            stop = builder.add(stop, builder.mul(length, size.type(_LANES)))
            pairs = (size.type(1), lengths[0]), (lengths[0], length), (length, size), (stop, size)
            check(context, builder, "a vector of terms", *pairs)
        starts = [builder.bitcast(data, vector.as_pointer())]
        for length in lengths[:-1]:
            starts.append(builder.gep(starts[-1], [length]))
        sums = [cgutils.alloca_once(builder, vector) for _ in lengths]

        def add_row(start, acc, i, round_sum, look):
            x = builder.load(builder.gep(start, [i]), align=align)
            builder.store(round_sum(builder, builder.fadd(builder.load(acc), x)), acc)
            look(builder.load(acc))

        def add_rows(round_sum, look):
            for start, acc in zip(starts, sums, strict=True):
                builder.store(builder.load(start, align=align), acc)
            with cgutils.for_range(builder, lengths[0], start=ir.Constant(lengths[0].type, 1)) as loop:
                for start, acc in zip(starts, sums, strict=True):
                    add_row(start, acc, loop.index, round_sum, look)
            for start, acc, length in zip(starts[1:], sums[1:], lengths[1:], strict=True):
                with cgutils.for_range(builder, length, start=lengths[0]) as loop:
                    add_row(start, acc, loop.index, round_sum, look)

        if grid.instance_class is HalfGrid:
            marks = ir.Constant(ir.VectorType(ir.IntType(1), _LANES), [0] * _LANES)
            beyond = cgutils.alloca_once_value(builder, marks)

            def look(x):
                magnitude = builder.and_(builder.bitcast(x, _spread(x, 0).type), _spread(x, 0x7FFFFFFF))
                over = builder.icmp_unsigned(">", magnitude, _spread(x, _HALF_MAX))
                builder.store(builder.or_(builder.load(beyond), over), beyond)

            builder.store(marks, beyond)
            add_rows(_soon_half_vector, look)
            some = builder.bitcast(builder.load(beyond), ir.IntType(_LANES))
            with builder.if_then(builder.icmp_unsigned("!=", some, ir.Constant(some.type, 0)), likely=False):
                add_rows(round_vector, lambda x: None)
        else:
            add_rows(round_vector, lambda x: None)
        found = [builder.load(acc) for acc in sums]
        while found[0].type.count > 1:
            found = [round_vector(builder, builder.fadd(*_neighbours(builder, x))) for x in found]
        first = ir.Constant(_I32, 0)
        return context.make_tuple(builder, signature.return_type, [builder.extract_element(x, first) for x in found])

    return types.UniTuple(values.dtype, len(counts))(grid, values, counts), codegen


@inline
def cut_of(n):
    return n // 2 - n // 2 % _LANES


@inline
def leaves_of(n):
    """How many leaves the tree "numpy" of n terms has, if they are 1, 2 or 4; else 0."""
    left = cut_of(n)
    right = n - left
    if n <= _LEAVES:
        return 1
    if right <= _LEAVES:
        return 2
    return 4 if left > _LEAVES and right - cut_of(right) <= _LEAVES else 0


@inline
def numpy_leaves(grid, values):
    """The tree "numpy" of so many leaves."""
    n, leaves = values.size, leaves_of(values.size)
    if n < _LANES:
        acc = values[0]
        for i in range(1, n):
            acc = rounded(grid, acc + values[i])
        return acc
    left, rows, done = cut_of(n), n // _LANES, n - n % _LANES
    a = b = c = values[0]
    if leaves == 1:
        (d,) = eight_lanes(grid, values, (rows,))
    elif leaves == 2:
        c, d = eight_lanes(grid, values, (left // _LANES, rows - left // _LANES))
    else:
        first, third = cut_of(left) // _LANES, cut_of(n - left) // _LANES
        second = left // _LANES - first
        a, b, c, d = eight_lanes(grid, values, (first, second, third, rows - first - second - third))
    for i in range(done, n):
        d = rounded(grid, d + values[i])
    if leaves == 1:
        return d
    right = rounded(grid, c + d)
    return right if leaves == 2 else rounded(grid, rounded(grid, a + b) + right)


@kernel
def numpy_tree(source, grid, n, every, out, scratch):
    """The trees "numpy" of blocks of `every` terms; scratch: 576."""
    lefts, terms = scratch[:64], scratch[64:]
    sizes, has_left = np.empty(64, np.int64), np.empty(64, np.bool_)
    for block in range(out.size):
        start = block * every
        depth = 0
        sizes[0], has_left[0] = min(every, n - start), False
        going = True
        while going:
            while leaves_of(sizes[depth]) == 0:
                depth += 1
                sizes[depth], has_left[depth] = cut_of(sizes[depth - 1]), False
            here = terms[: sizes[depth]]
            for i in range(here.size):
                here[i] = lifted(grid, term(source, U(start) + U(i)))
            start += here.size
            acc = numpy_leaves(grid, here)
            going = False
            while depth > 0 and not going:
                depth -= 1
                if has_left[depth]:
                    acc = rounded(grid, lefts[depth] + acc)
                else:
                    lefts[depth], has_left[depth] = acc, True
                    depth += 1
                    sizes[depth], has_left[depth] = sizes[depth - 1] - cut_of(sizes[depth - 1]), False
                    going = True
        out[block] = acc


# -- one after the other -----------------------------------------------------------------------------------------------

_BLOCK = 256  # terms that are tried together
_RESTARTS = 8  # of shortcuts in one block, before it goes on without
_MAGNITUDE, _EXPONENT, _SIGN = np.uint32(0x7FFFFFFF), np.uint32(0x7F800000), np.uint32(0x80000000)
_MIDDLE, _FAR, _23, _0, _1 = np.uint32(0x400000), np.uint32(1 << 21), np.uint32(23), np.uint32(0), np.uint32(1)
_NEXT_BINADE, _FINITE = np.uint32(1 << 23), np.uint32(253 << 23)
_TWO_TO_MINUS_23 = np.float32(2.0**-23)


@inline
def shift_of(grid, acc):
    """1.5 * 2**23 * q, with q the distance of the grid's numbers around acc; or infinity where that is none."""
    e = max(np.uint32(bits_from_float(acc) & _EXPONENT), grid.lowest)
    bits = np.uint32(add32(e, left32(grid.spare, _23)) | _MIDDLE)
    return float_from_bits(bits if bits < _FINITE else _EXPONENT)


@inline
def range_of(grid, acc):
    """(low, high): from the one to the other the grid's numbers are q apart, as around acc."""
    e = np.uint32(bits_from_float(acc) & _EXPONENT)
    if e <= grid.lowest:
        bound = float_from_bits(add32(grid.lowest, _NEXT_BINADE))
        return -bound, bound
    near, far = float_from_bits(e), min(float_from_bits(add32(e, _NEXT_BINADE)), grid.largest)
    return (near, far) if acc > 0 else (-far, -near)


@inline
def away_from_zero(xs, shift, acc):
    """Whether a term is rounded to a multiple of q that is farther from zero, zero being where acc does not point."""
    found = _0
    for i in range(xs.size):
        rest = xs[i] - ((xs[i] + shift) - shift)
        found |= _1 if (rest < 0 if acc > 0 else rest > 0) else _0
    return found != _0


@inline
def together(grid, xs, acc):
    """(sum, whether it is right) of acc and all terms at once.

    Let r(x) be the multiple of q nearest to x, an even one where two are. Where acc + x lies in acc's range, and x is
    not half-way between two multiples of q or acc is an even one, round(acc + x) = acc + r(x). So the sum is
    acc + r(x0) + r(x1) + ..., in any order, if no term is half-way, or acc and all r are even; and if no sum on the way
    leaves the range: acc and all positive r, and acc and all negative r, bound them. A sum that rounds to the range's
    far end is right too. At the end next to zero the distance halves: a sum may arrive there if no term is rounded away
    from zero.
    """
    shift = shift_of(grid, acc)
    base = bits_from_float(shift)
    total, up, seen, rest = _0, _0, _0, _0
    for i in range(xs.size):
        moved = xs[i] + shift
        r = np.uint32(bits_from_float(moved) - base)  # in units of q, where seen stays small
        total, seen = add32(total, r), np.uint32(seen | add32(r, _FAR))
        up = add32(up, r if r < _SIGN else _0)
        rest = max(rest, np.uint32(bits_from_float(xs[i] - (moved - shift)) & _MAGNITUDE))
    q = float_from_bits(np.uint32(base ^ _MIDDLE)) * _TWO_TO_MINUS_23
    odd = np.uint32(np.uint32(seen | bits_from_float(acc + shift)) & _1) != _0
    if seen >= np.uint32(2 * _FAR) or (float_from_bits(rest) * 2 >= q and odd):
        return acc, False
    low, high = range_of(grid, acc)
    risen = acc + np.float32(np.int32(up)) * q
    fallen = acc + np.float32(np.int32(total) - np.int32(up)) * q
    right = low <= fallen and risen <= high
    if right and (fallen == low if acc > 0 else risen == high) and -low != high:
        right = not away_from_zero(xs, shift, acc)
    return acc + np.float32(np.int32(total)) * q, right


@inline
def on_grid_already(grid, x):
    """Whether a sum needs no rounding; what is beyond max does not count."""
    low = np.uint32(left32(_1, grid.spare) - _1)
    return np.uint32(bits_from_float(x) & low) == _0 and abs(x) <= grid.largest


@inline
def not_finite(acc, xs):
    """An infinity or NaN and the terms: nothing is ever rounded."""
    for i in range(xs.size):
        acc += xs[i]
    return acc


@inline
def carefully(grid, xs, acc):
    """acc and the terms in their order, in the fewest operations that give each sum.

    Sums that need no rounding are float32's. The others are right in float32 too, ties and all, if 1.5 * 2**23 * q is
    added to acc before and subtracted after: there the distance of float32's numbers is q, and even multiples of q are
    even. That holds until a sum leaves acc's range (see `together` for its ends).
    """
    i = restarts = 0
    while i < xs.size and restarts < _RESTARTS:
        s = acc
        while i < xs.size:
            s = acc + xs[i]
            if not on_grid_already(grid, s):
                break
            acc = s
            i += 1
        shift = shift_of(grid, acc)
        low, high = range_of(grid, acc)
        low, high, old = low + shift, high + shift, shift + acc
        while i < xs.size and shift < np.inf:
            s = old + xs[i]
            if not low < s < high:
                at_end = (s == low or s == high) and (s - old <= xs[i] if acc > 0 else s - old >= xs[i])
                if not at_end:
                    break
            old = s
            i += 1
        acc = old - shift if shift < np.inf else acc
        if i < xs.size:
            acc = rounded(grid, acc + xs[i])
            i += 1
        restarts += 1
    while i < xs.size:
        acc = rounded(grid, acc + xs[i])
        i += 1
    return acc


def chain(source, grid, start, terms, acc):
    """acc and `terms.size` terms from `start` on, one after the other."""


@overload(chain, jit_options=_INLINED)
def _chain(source, grid, start, terms, acc):
    return speculative_chain if grid.instance_class in (HalfGrid, BfloatGrid) else plain_chain


def plain_chain(source, grid, start, terms, acc):
    for i in range(terms.size):
        acc += lifted(grid, term(source, U(start) + U(i)))
    return acc


def speculative_chain(source, grid, start, terms, acc):
    for i in range(terms.size):
        terms[i] = lifted(grid, term(source, U(start) + U(i)))
    if not abs(acc) <= grid.largest:
        return not_finite(acc, terms)
    s, right = together(grid, terms, acc)
    return s if right else carefully(grid, terms, acc)


@kernel
def sequential(source, grid, n, every, out, scratch):
    """Blocks of `every` terms, each one after the other from +0; scratch: 256."""
    for block in range(out.size):
        acc = lifted(grid, np.float32(0))
        start, stop = block * every, min(n, (block + 1) * every)
        for first in range(start, stop, _BLOCK):
            acc = chain(source, grid, first, scratch[: min(_BLOCK, stop - first)], acc)
        out[block] = acc


_ROWS, _COLUMNS = 32, 64


@kernel
def sequential_blocks(source, grid, every, out, rows):
    """As `sequential`, for many whole blocks: `_COLUMNS` of them at once; rows: (_ROWS, _COLUMNS)."""
    for first in range(0, out.size, _COLUMNS):
        sums = out[first : first + _COLUMNS]
        for block in range(sums.size):
            sums[block] = 0
        for k in range(0, every, _ROWS):
            height = min(_ROWS, every - k)
            for block in range(sums.size):
                base = U(first + block) * U(every) + U(k)
                for row in range(height):
                    rows[row, block] = lifted(grid, term(source, base + U(row)))
            for row in range(height):
                terms = rows[row]
                for block in range(sums.size):
                    sums[block] = rounded(grid, sums[block] + terms[block])


@kernel
def running(source, grid, acc, out):
    """Sums of the first 1, 2, ... rows in every column, as many as out has; acc holds zeros, and then the last row."""
    width = U(acc.size)
    if acc.size == 1:
        s = acc[0]
        for k in range(out.size):
            s = added(grid, source, s, U(k))
            out[k, 0] = s
        return
    for k in range(out.shape[0]):
        row, base = out[k], U(k) * width
        for j in range(acc.size):
            acc[j] = added(grid, source, acc[j], base + U(j))
            row[j] = acc[j]
