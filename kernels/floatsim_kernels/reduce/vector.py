"""Sums of one long vector in hardware floats, read from packed codes: ties to even, default overflow, no events.

A *source* gives the terms: packed codes, values, or the rounded products of two sources. An *accumulator* is the format
that sums are rounded to. Both are named tuples. The functions `term`, `to_carrier`, `rounded` and others are compiled
for their types, so that one loop here becomes a specialised loop for each pair. Sums are computed in float32 for the
accumulators FP16, BF16 and FP32, and in float64 for FP64.

Exactness. Terms have at most the precision of the accumulator and are multiples of its least quantum
(floatsim/emulator/dispatch/vector.py checks that). A float32 sum of two such numbers, rounded to FP16 (p = 11) or BF16
(p = 8), is their exact sum rounded once, because 24 >= 2p + 2 (S. A. Figueroa, "When is double rounding innocuous?",
1995), and sums below 2**emin are exact. Products: see elementwise/packed.py.

`sequential` adds many terms at once where the order does not change the result: see `sum_in_one_binade` and `shift_of`.

The kernels need `cpu.environment_is_default()`. FP16Codes and FP16Accumulator also need `cpu.has_half_conversion()`.
"""

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, overload

from ..rounding.float32 import rounded_to_bf16, rounded_to_fp16
from ..runtime.intrinsics import (
    add32,
    bits_from_float,
    float_from_bits,
    float_from_half,
    half_from_float,
    left32,
    right32,
    zero_array,
)
from ..runtime.jit import OPTIONS, check, inline, kernel

U = np.uint64
_INLINED = {"forceinline": True, "nogil": True, **OPTIONS}
_16, _LOW = np.uint32(16), np.uint32(0xFFFF)

# -- sources of terms --------------------------------------------------------------------------------------------------


class FP16Codes(NamedTuple):
    """FP16 codes."""

    codes: Any


class BF16Codes(NamedTuple):
    """BF16 codes."""

    codes: Any


class Values(NamedTuple):
    """Numbers in float32 or float64."""

    values: Any


class TableCodes(NamedTuple):
    """Codes of a small format, and the value of each code."""

    codes: Any
    values: Any


class Products(NamedTuple):
    """The products of the terms of two sources, each rounded to the format of an accumulator."""

    a: Any
    b: Any
    accumulator: Any


class Reordered(NamedTuple):
    """A source's terms in another order: term i is the source's term base + table[i]."""

    source: Any
    table: Any
    base: Any


class Backwards(NamedTuple):
    """The terms of a source from `last` down to 0."""

    source: Any
    last: Any


def term(source, i):
    """The i-th term. i is unsigned: a check for negative indices would keep loops scalar."""


@overload(term, jit_options=_INLINED)
def _term(source, i):
    kind = source.instance_class
    if kind is FP16Codes:
        return lambda source, i: float_from_half(source.codes[i])
    if kind is BF16Codes:
        return lambda source, i: float_from_bits(left32(np.uint32(source.codes[i]), _16))
    if kind is Values:
        return lambda source, i: source.values[i]
    if kind is TableCodes:
        return lambda source, i: source.values[source.codes[i]]
    if kind is Reordered:
        return lambda source, i: term(source.source, U(source.base + source.table[i]))
    if kind is Backwards:
        return lambda source, i: term(source.source, U(source.last) - i)
    return lambda source, i: rounded_product(
        source.accumulator,
        to_carrier(source.accumulator, term(source.a, i)),
        to_carrier(source.accumulator, term(source.b, i)),
    )


# -- accumulators ------------------------------------------------------------------------------------------------------


class FP16Accumulator(NamedTuple):
    """FP16. The exponent field of 2**emin in float32, the low bits of float32 that go, and max."""

    lowest: Any = np.uint32((127 - 14) << 23)
    spare: Any = np.uint32(13)
    largest: Any = np.float32(65504)


class BF16Accumulator(NamedTuple):
    """BF16, with the fields of FP16Accumulator."""

    lowest: Any = np.uint32((127 - 126) << 23)
    spare: Any = np.uint32(16)
    largest: Any = np.float32((2 - 2.0**-7) * 2.0**127)


class FP32Accumulator(NamedTuple):
    """FP32: the rounding of the hardware."""

    zero: Any = np.float32(0)


class FP64Accumulator(NamedTuple):
    """FP64: the rounding of the hardware."""

    zero: Any = np.float64(0)


def to_carrier(accumulator, x):
    """A term as a float32 or float64, as the accumulator needs."""


@overload(to_carrier, jit_options=_INLINED)
def _to_carrier(accumulator, x):
    if accumulator.instance_class is FP64Accumulator:
        return lambda accumulator, x: np.float64(x)
    return lambda accumulator, x: np.float32(x)


def rounded(accumulator, x):
    """A sum of two numbers of the accumulator's format, rounded to it."""


@overload(rounded, jit_options=_INLINED)
def _rounded(accumulator, x):
    if accumulator.instance_class is FP16Accumulator:
        return lambda accumulator, x: rounded_to_fp16(x)
    if accumulator.instance_class is BF16Accumulator:
        return lambda accumulator, x: rounded_to_bf16(x)
    return lambda accumulator, x: x


_NAN = np.float32(np.nan)


@inline
def bf16_product(x):
    """A float32 product in BF16. A NaN product may have low bits, whose rounding would carry into the sign."""
    return rounded_to_bf16(x) if x == x else _NAN


def rounded_product(accumulator, x, y):
    """x * y, rounded to the accumulator's format."""


@overload(rounded_product, jit_options=_INLINED)
def _rounded_product(accumulator, x, y):
    if accumulator.instance_class is FP16Accumulator:
        return lambda accumulator, x, y: rounded_to_fp16(x * y)
    if accumulator.instance_class is BF16Accumulator:
        return lambda accumulator, x, y: bf16_product(x * y)
    return lambda accumulator, x, y: x * y


@inline
def rounded_add(accumulator, source, acc, i):
    """The sum of an accumulator value and the i-th term."""
    return rounded(accumulator, acc + to_carrier(accumulator, term(source, i)))


@inline
def pair_sum(accumulator, source, i, j):
    """The sum of the terms i and j."""
    return rounded(accumulator, to_carrier(accumulator, term(source, i)) + to_carrier(accumulator, term(source, j)))


# -- lanes -------------------------------------------------------------------------------------------------------------

_TILE = 2048  # lanes whose sums stay in the first-level cache


@kernel
def lanes(source, accumulator, n, every, out):
    """Sum blocks of `every` terms in lanes: lane l adds the terms l, l + lanes, ... to out[block, l], which holds
    +0."""
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
                    s = rounded_add(accumulator, source, here[j], base + U(j))
                    s = rounded_add(accumulator, source, s, second + U(j))
                    s = rounded_add(accumulator, source, s, third + U(j))
                    here[j] = rounded_add(accumulator, source, s, fourth + U(j))
            for r in range(rows - rows % 4, rows):
                base = start + U(r) * width + U(first)
                for j in range(here.size):
                    here[j] = rounded_add(accumulator, source, here[j], base + U(j))
        base = start + U(rows) * width
        tail = acc[: length - rows * acc.size]
        for j in range(tail.size):
            tail[j] = rounded_add(accumulator, source, tail[j], base + U(j))


# -- trees -------------------------------------------------------------------------------------------------------------


def packed(accumulator, x):
    """A number of the accumulator's format as a code of half the width, for formats of 16 bits."""


@overload(packed, jit_options=_INLINED)
def _packed(accumulator, x):
    if accumulator.instance_class is FP16Accumulator:
        return lambda accumulator, x: half_from_float(x)
    if accumulator.instance_class is BF16Accumulator:
        return lambda accumulator, x: np.uint16(right32(bits_from_float(x), _16))
    return lambda accumulator, x: x


def unpacked(accumulator, code):
    """The number of a packed code."""


@overload(unpacked, jit_options=_INLINED)
def _unpacked(accumulator, code):
    if accumulator.instance_class is FP16Accumulator:
        return lambda accumulator, code: float_from_half(code)
    if accumulator.instance_class is BF16Accumulator:
        return lambda accumulator, code: float_from_bits(left32(np.uint32(code), _16))
    return lambda accumulator, code: code


def add_neighbours(accumulator, now, pairs, later):
    """later[i] = now[2i] + now[2i + 1], packed. `pairs` is `now`, read as two codes in one number."""


@overload(add_neighbours, jit_options=_INLINED)
def _add_neighbours(accumulator, now, pairs, later):
    if accumulator.instance_class in (FP16Accumulator, BF16Accumulator):
        return add_code_pairs
    return add_float_pairs


def add_code_pairs(accumulator, now, pairs, later):
    for i in range(later.size):
        low, high = np.uint16(pairs[i] & _LOW), np.uint16(right32(pairs[i], _16))
        later[i] = packed(accumulator, rounded(accumulator, unpacked(accumulator, low) + unpacked(accumulator, high)))


def add_float_pairs(accumulator, now, pairs, later):
    for i in range(later.size):
        later[i] = now[U(2) * U(i)] + now[U(2) * U(i) + U(1)]


@kernel
def adjacent(source, accumulator, n, every, out, scratch, pairs):
    """Sum blocks of `every` terms along the tree "adjacent".

    scratch: (2, every, rounded up to even), uint16 for accumulators of 16 bits. pairs: the same memory as numbers of
    twice the width.
    """
    for block in range(out.size):
        start = U(block) * U(every)
        length = min(every, n - block * every)
        now = 0
        terms = scratch[now, :length]
        for i in range(terms.size):
            terms[i] = packed(accumulator, to_carrier(accumulator, term(source, start + U(i))))
        while length > 1:
            half = length // 2
            add_neighbours(accumulator, scratch[now], pairs[now], scratch[1 - now, :half])
            if length & 1:
                scratch[1 - now, half] = scratch[now, length - 1]
            length -= half
            now = 1 - now
        out[block] = unpacked(accumulator, scratch[now, 0])


@kernel
def halving(source, accumulator, n, every, out, scratch):
    """Sum blocks of `every` terms along the tree "halving". scratch: every // 2 + 1."""
    for block in range(out.size):
        start = U(block) * U(every)
        length = min(every, n - block * every)
        half = length - length // 2
        now = scratch[:half]
        for i in range(length // 2):
            now[i] = pair_sum(accumulator, source, start + U(i), start + U(half) + U(i))
        if length & 1:
            now[half - 1] = to_carrier(accumulator, term(source, start + U(half - 1)))
        while half > 1:
            length, half = half, half - half // 2
            upper = now[half:length]
            for i in range(upper.size):
                now[i] = rounded(accumulator, now[i] + upper[i])
        out[block] = now[0]


_NO_TERM = -0.0  # the neutral element of addition


@kernel
def halving_columns(source, accumulator, offsets, limits, whole, out, stack):
    """Compute the nodes of one level of the tree "halving": each is the sum of the terms node + offsets[leaf] in the
    order of the tree.

    A node has only the leaves with node < limits[leaf]; the first `whole` nodes have all of them. stack: (levels, nodes
    computed at once).
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
                    top[i] = pair_sum(accumulator, source, a + U(i), b + U(i))
            elif first < limits[leaf]:
                top[0] = to_carrier(accumulator, term(source, a))
            else:
                top[0] = _NO_TERM
            depth += 1
            ends = leaf >> 1
            while ends & 1:
                depth -= 1
                left, right = stack[depth - 1, :width], stack[depth, :width]
                for i in range(left.size):
                    left[i] = rounded(accumulator, left[i] + right[i])
                ends >>= 1
        for i in range(width):
            out[first + i] = stack[0, i]
        first += width


_LANES, _LEAVES = 8, 128
_I32 = ir.IntType(32)


def _spread(x, number):
    return ir.Constant(ir.VectorType(_I32, x.type.count), [number] * x.type.count)


def _fp16_vector(builder, x):
    return builder.fpext(builder.fptrunc(x, ir.VectorType(ir.HalfType(), x.type.count)), x.type)


def _without_low_bits(builder, x, spare):
    """Round float32 codes at their `spare` low bits, ties to even; correct for sums that do not overflow."""
    u = builder.bitcast(x, _spread(x, 0).type)
    odd = builder.and_(builder.lshr(u, _spread(x, spare)), _spread(x, 1))
    up = builder.add(builder.add(u, _spread(x, (1 << (spare - 1)) - 1)), odd)
    return builder.bitcast(builder.and_(up, _spread(x, 0x1_0000_0000 - (1 << spare))), x.type)


def _bf16_vector(builder, x):
    return _without_low_bits(builder, x, 16)


def _fp16_without_overflow(builder, x):
    """Round as `_fp16_vector` does, in half the time, if no sum overflows."""
    return _without_low_bits(builder, x, 13)


_VECTOR_ROUNDINGS = {FP16Accumulator: _fp16_vector, BF16Accumulator: _bf16_vector}
_HALF_MAX = int(np.float32(65504).view(np.uint32))


def _neighbours(builder, x):
    """(Elements 0, 2, 4, ..., elements 1, 3, 5, ...) of a vector."""
    places = (range(start, x.type.count, 2) for start in (0, 1))
    indices = (ir.Constant(ir.VectorType(_I32, x.type.count // 2), list(p)) for p in places)
    return (builder.shuffle_vector(x, x, index) for index in indices)


@intrinsic
def eight_lanes(typingctx, accumulator, values, counts):
    """Return ((r0+r1)+(r2+r3))+((r4+r5)+(r6+r7)) for each of the counts, where rn sums lane n of so many rows of eight
    numbers: of the first rows, of the rows behind them, and so on.

    Each sum depends on the previous one, so that several in parallel hide the latency. No count is below the first.
    (Numba does not run LLVM's vectoriser of straight-line code, so that loops of eight would stay scalar.)
    """
    round_vector = _VECTOR_ROUNDINGS.get(accumulator.instance_class, lambda builder, x: x)

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

        if accumulator.instance_class is FP16Accumulator:
            none_beyond = ir.Constant(ir.VectorType(ir.IntType(1), _LANES), [0] * _LANES)
            beyond = cgutils.alloca_once_value(builder, none_beyond)

            def look(x):
                magnitude = builder.and_(builder.bitcast(x, _spread(x, 0).type), _spread(x, 0x7FFFFFFF))
                over = builder.icmp_unsigned(">", magnitude, _spread(x, _HALF_MAX))
                builder.store(builder.or_(builder.load(beyond), over), beyond)

            builder.store(none_beyond, beyond)
            add_rows(_fp16_without_overflow, look)
            any_beyond = builder.bitcast(builder.load(beyond), ir.IntType(_LANES))
            with builder.if_then(
                builder.icmp_unsigned("!=", any_beyond, ir.Constant(any_beyond.type, 0)), likely=False
            ):
                add_rows(round_vector, lambda x: None)
        else:
            add_rows(round_vector, lambda x: None)
        lane_sums = [builder.load(acc) for acc in sums]
        while lane_sums[0].type.count > 1:
            lane_sums = [round_vector(builder, builder.fadd(*_neighbours(builder, x))) for x in lane_sums]
        first = ir.Constant(_I32, 0)
        return context.make_tuple(
            builder, signature.return_type, [builder.extract_element(x, first) for x in lane_sums]
        )

    return types.UniTuple(values.dtype, len(counts))(accumulator, values, counts), codegen


@inline
def cut_of(n):
    """The number of terms of the left half of a node of the tree "numpy"."""
    return n // 2 - n // 2 % _LANES


@inline
def leaves_of(n):
    """The number of leaves of the tree "numpy" of n terms if that is 1, 2 or 4, else 0."""
    left = cut_of(n)
    right = n - left
    if n <= _LEAVES:
        return 1
    if right <= _LEAVES:
        return 2
    return 4 if left > _LEAVES and right - cut_of(right) <= _LEAVES else 0


@inline
def numpy_leaves(accumulator, values):
    """The sum along the tree "numpy" of at most four leaves."""
    n, leaves = values.size, leaves_of(values.size)
    if n < _LANES:
        acc = values[0]
        for i in range(1, n):
            acc = rounded(accumulator, acc + values[i])
        return acc
    left, rows, done = cut_of(n), n // _LANES, n - n % _LANES
    a = b = c = values[0]
    if leaves == 1:
        (d,) = eight_lanes(accumulator, values, (rows,))
    elif leaves == 2:
        c, d = eight_lanes(accumulator, values, (left // _LANES, rows - left // _LANES))
    else:
        first, third = cut_of(left) // _LANES, cut_of(n - left) // _LANES
        second = left // _LANES - first
        a, b, c, d = eight_lanes(accumulator, values, (first, second, third, rows - first - second - third))
    for i in range(done, n):
        d = rounded(accumulator, d + values[i])
    if leaves == 1:
        return d
    right = rounded(accumulator, c + d)
    return right if leaves == 2 else rounded(accumulator, rounded(accumulator, a + b) + right)


@kernel
def numpy_tree(source, accumulator, n, every, out, scratch):
    """Sum blocks of `every` terms along the tree "numpy". scratch: 576."""
    lefts, terms = scratch[:64], scratch[64:]
    sizes, has_left = zero_array(64, np.int64), zero_array(64, np.bool_)
    for block in range(out.size):
        start = block * every
        depth = 0
        sizes[0], has_left[0] = min(every, n - start), False
        descends = True
        while descends:
            while leaves_of(sizes[depth]) == 0:
                depth += 1
                sizes[depth], has_left[depth] = cut_of(sizes[depth - 1]), False
            here = terms[: sizes[depth]]
            for i in range(here.size):
                here[i] = to_carrier(accumulator, term(source, U(start) + U(i)))
            start += here.size
            acc = numpy_leaves(accumulator, here)
            descends = False
            while depth > 0 and not descends:
                depth -= 1
                if has_left[depth]:
                    acc = rounded(accumulator, lefts[depth] + acc)
                else:
                    lefts[depth], has_left[depth] = acc, True
                    depth += 1
                    sizes[depth], has_left[depth] = sizes[depth - 1] - cut_of(sizes[depth - 1]), False
                    descends = True
        out[block] = acc


# -- sequential sums ---------------------------------------------------------------------------------------------------

_BLOCK = 256  # terms of one try of `sum_in_one_binade`
_RESTARTS = 8  # of the fast path in one block, before the rest is summed step by step
_MAGNITUDE, _EXPONENT, _SIGN = np.uint32(0x7FFFFFFF), np.uint32(0x7F800000), np.uint32(0x80000000)
_MIDDLE, _UNIT_BIAS, _23, _0, _1 = np.uint32(0x400000), np.uint32(1 << 21), np.uint32(23), np.uint32(0), np.uint32(1)
_NEXT_BINADE, _FINITE = np.uint32(1 << 23), np.uint32(253 << 23)
_TWO_TO_MINUS_23 = np.float32(2.0**-23)


@inline
def shift_of(accumulator, acc):
    """1.5 * 2**23 * q, where q is the quantum of the format at acc; infinity where float32 does not hold that."""
    e = max(np.uint32(bits_from_float(acc) & _EXPONENT), accumulator.lowest)
    bits = np.uint32(add32(e, left32(accumulator.spare, _23)) | _MIDDLE)
    return float_from_bits(bits if bits < _FINITE else _EXPONENT)


@inline
def range_of(accumulator, acc):
    """(low, high): the range around acc in which the quantum is that of acc."""
    e = np.uint32(bits_from_float(acc) & _EXPONENT)
    if e <= accumulator.lowest:
        bound = float_from_bits(add32(accumulator.lowest, _NEXT_BINADE))
        return -bound, bound
    near, far = float_from_bits(e), min(float_from_bits(add32(e, _NEXT_BINADE)), accumulator.largest)
    return (near, far) if acc > 0 else (-far, -near)


@inline
def away_from_zero(xs, shift, acc):
    """Whether a term is rounded to a multiple of q away from zero: in the direction of the sign of acc."""
    away = _0
    for i in range(xs.size):
        residue = xs[i] - ((xs[i] + shift) - shift)
        away |= _1 if (residue < 0 if acc > 0 else residue > 0) else _0
    return away != _0


@inline
def sum_in_one_binade(accumulator, xs, acc):
    """(sum, whether it is correct) of acc and all terms at once.

    Hypothesis. Let r(x) be the multiple of q nearest to x, an even one in a tie. No sum on the way leaves the range of
    acc; and no term is half-way between two multiples of q, or acc and all r(x) are even multiples.

    Claim. The sequential sum is acc + r(x0) + r(x1) + ..., in any order. Proof: where acc + x lies in the range of acc,
    and x is not half-way or acc is even, round(acc + x) = acc + r(x).

    The sum of acc and all positive r, and of acc and all negative r, bound the sums on the way. A sum that rounds to
    the far end of the range is correct too. At the end next to zero the quantum halves: a sum may arrive there if no
    term is rounded away from zero.
    """
    shift = shift_of(accumulator, acc)
    base = bits_from_float(shift)
    total, up, units, largest_residue = _0, _0, _0, _0
    for i in range(xs.size):
        moved = xs[i] + shift
        r = np.uint32(bits_from_float(moved) - base)  # in units of q, where `units` stays small
        total, units = add32(total, r), np.uint32(units | add32(r, _UNIT_BIAS))
        up = add32(up, r if r < _SIGN else _0)
        largest_residue = max(largest_residue, np.uint32(bits_from_float(xs[i] - (moved - shift)) & _MAGNITUDE))
    q = float_from_bits(np.uint32(base ^ _MIDDLE)) * _TWO_TO_MINUS_23
    odd = np.uint32(np.uint32(units | bits_from_float(acc + shift)) & _1) != _0
    if units >= np.uint32(2 * _UNIT_BIAS) or (float_from_bits(largest_residue) * 2 >= q and odd):
        return acc, False
    low, high = range_of(accumulator, acc)
    risen = acc + np.float32(np.int32(up)) * q
    fallen = acc + np.float32(np.int32(total) - np.int32(up)) * q
    right = low <= fallen and risen <= high
    if right and (fallen == low if acc > 0 else risen == high) and -low != high:
        right = not away_from_zero(xs, shift, acc)
    return acc + np.float32(np.int32(total)) * q, right


@inline
def needs_no_rounding(accumulator, x):
    """Whether a sum is a number of the format; numbers beyond max are not."""
    low = np.uint32(left32(_1, accumulator.spare) - _1)
    return np.uint32(bits_from_float(x) & low) == _0 and abs(x) <= accumulator.largest


@inline
def sum_unrounded(acc, xs):
    """The sum of an infinity or NaN and the terms, which is never rounded."""
    for i in range(xs.size):
        acc += xs[i]
    return acc


@inline
def sum_with_fallback(accumulator, source, size, acc):
    """The sum of acc and the first `size` float32 numbers of a source, in order, with as few operations as give each
    sum.

    A sum that needs no rounding is float32's. The other sums are computed with 1.5 * 2**23 * q added to acc: there the
    quantum of float32 is q, and even multiples of q are even. This holds until a sum leaves the range of acc (see
    `sum_in_one_binade` for its ends).
    """
    i = restarts = 0
    while i < size and restarts < _RESTARTS:
        s = acc
        while i < size:
            s = acc + term(source, U(i))
            if not needs_no_rounding(accumulator, s):
                break
            acc = s
            i += 1
        shift = shift_of(accumulator, acc)
        low, high = range_of(accumulator, acc)
        low, high, old = low + shift, high + shift, shift + acc
        while i < size and shift < np.inf:
            s = old + term(source, U(i))
            if not low < s < high:
                x = term(source, U(i))
                at_end = (s == low or s == high) and (s - old <= x if acc > 0 else s - old >= x)
                if not at_end:
                    break
            old = s
            i += 1
        acc = old - shift if shift < np.inf else acc
        if i < size:
            acc = rounded(accumulator, acc + term(source, U(i)))
            i += 1
        restarts += 1
    while i < size:
        acc = rounded(accumulator, acc + term(source, U(i)))
        i += 1
    return acc


def add_block(source, accumulator, start, terms, acc):
    """The sum of acc and `terms.size` terms from `start` on, in order."""


@overload(add_block, jit_options=_INLINED)
def _add_block(source, accumulator, start, terms, acc):
    return (
        add_block_speculatively
        if accumulator.instance_class in (FP16Accumulator, BF16Accumulator)
        else add_block_natively
    )


def add_block_natively(source, accumulator, start, terms, acc):
    for i in range(terms.size):
        acc += to_carrier(accumulator, term(source, U(start) + U(i)))
    return acc


def add_block_speculatively(source, accumulator, start, terms, acc):
    for i in range(terms.size):
        terms[i] = to_carrier(accumulator, term(source, U(start) + U(i)))
    if not abs(acc) <= accumulator.largest:
        return sum_unrounded(acc, terms)
    s, right = sum_in_one_binade(accumulator, terms, acc)
    return s if right else sum_with_fallback(accumulator, Values(terms), terms.size, acc)


@kernel
def sequential(source, accumulator, n, every, out, scratch):
    """Sum blocks of `every` terms in order, each from +0. scratch: 256."""
    for block in range(out.size):
        acc = to_carrier(accumulator, np.float32(0))
        start, stop = block * every, min(n, (block + 1) * every)
        for first in range(start, stop, _BLOCK):
            acc = add_block(source, accumulator, first, scratch[: min(_BLOCK, stop - first)], acc)
        out[block] = acc


def take(source, base, table, buffer):
    """Write the terms base + table of a source into `buffer`, a source of the same type."""


@overload(take, jit_options=_INLINED)
def _take(source, base, table, buffer):
    kind = source.instance_class
    if kind is Products:
        return take_pairs
    if kind is Values:
        return lambda source, base, table, buffer: take_elements(source.values, base, table, buffer.values)
    return lambda source, base, table, buffer: take_elements(source.codes, base, table, buffer.codes)


def take_pairs(source, base, table, buffer):
    take(source.a, base, table, buffer.a)
    take(source.b, base, table, buffer.b)


@inline
def take_elements(x, base, table, out):
    """out[i] = x[base + table[i]]."""
    for i in range(table.size):
        out[U(i)] = x[U(base + table[U(i)])]


def add_reordered(source, accumulator, base, table, first, own, buffer, terms, acc):
    """The sum of acc and the terms base + table, in this order. `own`: they are the terms from `first` on."""


@overload(add_reordered, jit_options=_INLINED)
def _add_reordered(source, accumulator, base, table, first, own, buffer, terms, acc):
    return (
        add_reordered_speculatively
        if accumulator.instance_class in (FP16Accumulator, BF16Accumulator)
        else add_reordered_natively
    )


def add_reordered_natively(source, accumulator, base, table, first, own, buffer, terms, acc):
    return add_block(Reordered(source, table, base), accumulator, 0, terms, acc)


def add_reordered_speculatively(source, accumulator, base, table, first, own, buffer, terms, acc):
    if not own:
        take(source, base, table, buffer)
        return add_block(buffer, accumulator, 0, terms, acc)
    for i in range(terms.size):
        terms[i] = to_carrier(accumulator, term(source, U(first) + U(i)))
    if not abs(acc) <= accumulator.largest:
        return sum_unrounded(acc, terms)
    s, right = sum_in_one_binade(accumulator, terms, acc)  # which holds for any order
    return (
        s if right else sum_with_fallback(accumulator, Reordered(Values(terms), table, base - first), terms.size, acc)
    )


@kernel
def reordered(source, accumulator, pieces, table, every, own, buffer, out, scratch):
    """Sum all terms in another order, from +0, to out[0].

    pieces (P, 3): base, start and stop of each piece, whose terms are base + table[start:stop]. They are added in
    blocks of `every` terms, at most 256. own: each block has the terms of its own place, in another order. buffer: a
    source like `source`, of 256 terms. scratch: 256.
    """
    acc = to_carrier(accumulator, np.float32(0))
    for p in range(pieces.shape[0]):
        base, start, stop = pieces[p, 0], pieces[p, 1], pieces[p, 2]
        for at in range(start, stop, every):
            here, first = table[at : min(at + every, stop)], base + at - start
            acc = add_reordered(source, accumulator, base, here, first, own, buffer, scratch[: here.size], acc)
    out[0] = acc


@kernel
def rearrange(x, pieces, table, out):
    """Write rows of x in another order. pieces and table are those of `reordered`, for one row."""
    for row in range(out.shape[0]):
        done = 0
        for p in range(pieces.shape[0]):
            base, start, stop = pieces[p, 0], pieces[p, 1], pieces[p, 2]
            take_elements(x[row], base, table[start:stop], out[row, done : done + stop - start])
            done += stop - start


_ROWS, _COLUMNS = 32, 64


@kernel
def sequential_blocks(source, accumulator, every, out, rows):
    """Sum many whole blocks as `sequential` does, `_COLUMNS` blocks at once. rows: (_ROWS, _COLUMNS)."""
    for first in range(0, out.size, _COLUMNS):
        sums = out[first : first + _COLUMNS]
        for block in range(sums.size):
            sums[block] = 0
        for k in range(0, every, _ROWS):
            height = min(_ROWS, every - k)
            for block in range(sums.size):
                base = U(first + block) * U(every) + U(k)
                for row in range(height):
                    rows[row, block] = to_carrier(accumulator, term(source, base + U(row)))
            for row in range(height):
                terms = rows[row]
                for block in range(sums.size):
                    sums[block] = rounded(accumulator, sums[block] + terms[block])


@kernel
def running(source, accumulator, acc, out):
    """Sums of the first 1, 2, ... rows in every column of out. acc holds zeros, and the last row on exit."""
    width = U(acc.size)
    if acc.size == 1:
        s = acc[0]
        for k in range(out.size):
            s = rounded_add(accumulator, source, s, U(k))
            out[k, 0] = s
        return
    for k in range(out.shape[0]):
        row, base = out[k], U(k) * width
        for j in range(acc.size):
            acc[j] = rounded_add(accumulator, source, acc[j], base + U(j))
            row[j] = acc[j]
