"""Fused blocks of matrix instructions in float32 and int32, sixteen columns at a time, for finite sums of ordinary
size.

floatsim/reference/tensorcore/nvidia.py defines the blocks. Here products a * b are exact in float32. The exponents by
which they are aligned are sums of int16, prepared once for every operand. With e the largest exponent of a block, a
product times 2**(F - e) is truncated to an int32 by the conversion of floats to integers. Half of the products are
added to one int32, and half, with c, to another, so that neither overflows; their sum is carried as a sign and a
uint32. It is truncated to 24 bits and scaled back: that is D in FP32. For FP16 the last of these bits is a sticky bit,
so that the rounding to FP16 is the only one.

The kernel bails out of rows, in groups of WIDTH columns, that contain infinities or NaNs, in which c comes near the
largest number of float32, or in which all products of a block are tiny (below 2**-100) or one is huge. `fused` reports
these rows, and the integer kernels compute them.

A second build of the kernel counts events, one bit for each column and block: see EVENTS. In the rows that it does not
bail out of no other event can happen: nothing overflows, and D in FP32 is not tiny, because a block has a product of at
least 2**-100 and at most 25 fraction bits. The sum of two halves is the exception: it can be subnormal. A c that is
subnormal in FP32 is left to the integer kernels.
"""

import functools

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..runtime.cpu import has_half_conversion
from ..runtime.intrinsics import bits_from_float, float_from_bits
from ..runtime.jit import check, inline, kernel_of
from ..runtime.numba_compat import prefer_wide_vectors

WIDTH = 32
"""Columns of a tile."""
_LANES, _UNROLL = 16, 4

TO_FP32, TO_FP16 = range(2)

EVENTS = ("inexact", "absorbed", "subnormal", "underflow", "flushed")
"""The events of a rounding of D that the counting build sees."""
PLACED = ("absorbed", "underflow", "flushed")
"""Those of which it keeps the first place."""

_I1, _I16, _I32, _I64, _FLOAT = ir.IntType(1), ir.IntType(16), ir.IntType(32), ir.IntType(64), ir.FloatType()
_FLOATS, _INTS = ir.VectorType(_FLOAT, _LANES), ir.VectorType(_I32, _LANES)
_MASK = ir.VectorType(_I1, _LANES)
_SHORTS = ir.VectorType(_I16, WIDTH)

NONE = -16000
"""The exponent of a zero. Exponents of operands are biased by 127, those of non-zero products by 254, so that they are
not negative."""
_BIAS, _LOWEST, _HIGHEST = 254, 154, 379  # of products; the least and the largest are 2**-100 and 2**125
_NEAR_MAX = 254  # the exponent field of float32 from which on c may overflow


# -- vectors -----------------------------------------------------------------------------------------------------------


def _constant(kind, x):
    return ir.Constant(kind, [x] * kind.count)


def _spread(builder, x, kind):
    """A scalar in every lane."""
    nothing = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(nothing, x, ir.Constant(_I32, 0))
    return builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(_I32, kind.count), [0] * kind.count))


def _load(builder, pointer, index, kind):
    place = builder.bitcast(builder.gep(pointer, [index]), ir.PointerType(kind))
    return builder.load(place, align=kind.element.width // 8 if isinstance(kind.element, ir.IntType) else 4)


def _larger(builder, x, y):
    return builder.select(builder.icmp_signed(">", x, y), x, y)


def _half_of(builder, x, part):
    """Sixteen of thirty-two lanes, as int32."""
    lanes = ir.Constant(ir.VectorType(_I32, _LANES), [part * _LANES + i for i in range(_LANES)])
    return builder.sext(builder.shuffle_vector(x, ir.Constant(x.type, ir.Undefined), lanes), _INTS)


class _Variable:
    """A value that a loop changes."""

    def __init__(self, builder, x):
        self._builder, self._place = builder, cgutils.alloca_once(builder, x.type)
        self.set(x)

    def get(self):
        return self._builder.load(self._place)

    def set(self, x):
        self._builder.store(x, self._place)


# -- blocks of two rows ------------------------------------------------------------------------------------------------

_ROWS = 2  # at a time: the latencies of two rows overlap


class _Events:
    """Emits the count of the events of one row, and the least place of each; `places` are pointers, one for each of
    PLACED."""

    def __init__(self, builder, tally, places):
        self.builder, self._tally, self._places = builder, tally, dict(zip(PLACED, places, strict=True))
        self._counts = {name: _Variable(builder, ir.Constant(_I32, 0)) for name in EVENTS}
        self._first = {
            (name, part): _Variable(builder, _load(builder, places, ir.Constant(_I64, part * _LANES), _INTS))
            for name, places in self._places.items()
            for part in (0, 1)
        }

    def add(self, part, latest, **masks):
        """Count the lanes of each mask; `latest` is the place of the rounding, in every lane."""
        builder = self.builder
        for name, mask in masks.items():
            lanes = builder.zext(builder.bitcast(mask, _I16), _I32)
            count = self._counts[name]
            count.set(builder.add(count.get(), builder.ctpop(lanes)))
            if name in PLACED:
                place = self._first[name, part]
                earlier = builder.and_(mask, builder.icmp_signed("<", latest, place.get()))
                place.set(builder.select(earlier, latest, place.get()))

    def store(self):
        builder = self.builder
        for n, name in enumerate(EVENTS):
            place = builder.gep(self._tally, [ir.Constant(_I64, n)])
            builder.store(builder.add(builder.load(place), builder.zext(self._counts[name].get(), _I64)), place)
        for (name, part), first in self._first.items():
            place = builder.gep(self._places[name], [ir.Constant(_I64, part * _LANES)])
            builder.store(first.get(), builder.bitcast(place, ir.PointerType(_INTS)), align=4)


class _Lost:
    """Emits the bits that the terms of a block lose when they are truncated, in sixteen columns.

    inexact: a term lost bits. absorbed: a term that is not zero lost all of its bits. kept: a term has bits left.
    """

    def __init__(self, builder):
        self._builder = builder
        none = _constant(_MASK, 0)
        self.inexact, self.absorbed, self.kept = (_Variable(builder, none) for _ in range(3))

    def add(self, scaled, whole, nonzero):
        """Truncating `scaled` gave the integers `whole`. The product may be zero in float32 though it is not."""
        builder = self._builder
        kept = builder.icmp_signed("!=", whole, _constant(_INTS, 0))
        gone = builder.and_(nonzero, builder.not_(kept))
        cut = builder.fcmp_unordered("!=", builder.sitofp(whole, _FLOATS), scaled)
        self.inexact.set(builder.or_(self.inexact.get(), builder.or_(gone, builder.and_(nonzero, cut))))
        self.absorbed.set(builder.or_(self.absorbed.get(), gone))
        self.kept.set(builder.or_(self.kept.get(), kept))


class _Row:
    """Emits blocks of one row of a and WIDTH columns of b, and holds their accumulators."""

    def __init__(self, shared, va, xa, acc, events):
        self.shared, self.builder, self.va, self.xa, self.acc = shared, shared.builder, va, xa, acc
        self.c = [_Variable(self.builder, self._start(part)) for part in (0, 1)]
        self.events = events  # None in the build that does not count

    def _held(self, part):
        return _load(self.builder, self.acc, ir.Constant(_I64, part * _LANES), _FLOATS)

    def _start(self, part):
        """c, or zero where c is added in the end."""
        return self.builder.select(self.shared.apart, _constant(_FLOATS, 0.0), self._held(part))

    def emit(self, base, latest):
        """Emit the block of the terms from `base` on; `latest` is the place of its rounding."""
        shared, builder = self.shared, self.builder
        exponent = _Variable(builder, _spread(builder, shared.floor, _SHORTS))

        def align(k):
            at = builder.add(base, k)
            twice = _spread(builder, builder.load(builder.gep(self.xa, [at])), _INTS)
            column = _load(builder, shared.xb, builder.mul(at, ir.Constant(_I64, WIDTH)), _SHORTS)
            exponent.set(_larger(builder, exponent.get(), builder.add(builder.bitcast(twice, _SHORTS), column)))

        shared.each(ir.Constant(_I64, 0), shared.fours, align)
        e = exponent.get()
        shared.observe(e)
        ends = [_BlockEnd(shared, _half_of(builder, e, part), self.c[part].get()) for part in (0, 1)]
        sums = [[_Variable(builder, _constant(_INTS, 0)) for _ in (0, 1)] for _ in (0, 1)]
        lost = [_Lost(builder) if self.events else None for _ in (0, 1)]

        def add_to(side):
            def add(k):
                at = builder.add(base, k)
                x = _spread(builder, builder.load(builder.gep(self.va, [at])), _FLOATS)
                place = builder.mul(at, ir.Constant(_I64, WIDTH))
                for part in (0, 1):
                    y = _load(builder, shared.vb, builder.add(place, ir.Constant(_I64, part * _LANES)), _FLOATS)
                    scaled = builder.fmul(builder.fmul(x, y), ends[part].scale)
                    into, whole = sums[side][part], builder.fptosi(scaled, _INTS)
                    into.set(builder.add(into.get(), whole))
                    if self.events:
                        lost[part].add(scaled, whole, builder.and_(_nonzero(builder, x), _nonzero(builder, y)))

            return add

        shared.each(ir.Constant(_I64, 0), shared.first_half, add_to(0))
        shared.each(shared.first_half, shared.fours, add_to(1))
        for part in (0, 1):
            shared.observe_field(ends[part].field)
            self.c[part].set(ends[part].result(sums[0][part].get(), sums[1][part].get(), lost[part]))
            if self.events:
                self.events.add(part, latest, **ends[part].events)

    def epilogue(self, latest):
        for part in (0, 1):
            c, held = self.c[part].get(), self._held(part)
            total = self.builder.fadd(held, c)
            if self.shared.output == TO_FP16:  # 24 >= 2 * 11 + 2: the rounding to float32 is innocuous
                total = _through_halves(self.builder, total)
            if self.events:
                self.events.add(part, latest, **self._events_of_sum(held, c, total))
            c = self.builder.select(self.shared.apart, total, c)
            place = self.builder.gep(self.acc, [ir.Constant(_I64, part * _LANES)])
            self.builder.store(c, self.builder.bitcast(place, ir.PointerType(_FLOATS)), align=4)
            self.shared.observe_field(_field(self.builder, self.builder.bitcast(c, _INTS)))
        if self.events:
            self.events.store()

    def _events_of_sum(self, x, y, total):
        """The events of x + y, rounded to `total`, where an instruction adds c last. The sum is exact where total - x
        is y and total - y is x (Dekker, 1971)."""
        builder = self.builder
        apart = _spread(builder, self.shared.apart, _MASK)
        inexact, absorbed = (_constant(_MASK, 0) for _ in range(2))
        for one, other in ((x, y), (y, x)):
            differs = builder.fcmp_unordered("!=", builder.fsub(total, one), other)
            same = builder.fcmp_ordered("==", total, one)
            inexact = builder.or_(inexact, differs)
            absorbed = builder.or_(absorbed, builder.and_(same, _nonzero(builder, other)))
        events = {"inexact": inexact, "absorbed": absorbed, "subnormal": self.shared.subnormal(total)}
        return {name: builder.and_(apart, mask) for name, mask in events.items()}


class _Blocks:
    """The parameters that the rows share, and the extremes of their exponents."""

    def __init__(self, builder, output, vb, xb, terms, fraction_bits, floor, kept, apart):
        self.builder, self.output, self.vb, self.xb, self.terms = builder, output, vb, xb, terms
        self.apart = builder.icmp_signed("!=", apart, ir.Constant(_I64, 0))
        self.fours = builder.udiv(terms, ir.Constant(_I64, _UNROLL))
        self.first_half = builder.udiv(builder.add(self.fours, ir.Constant(_I64, 1)), ir.Constant(_I64, 2))
        self.fraction = builder.trunc(fraction_bits, _I32)
        self.floor = builder.trunc(floor, _I16)
        self.kept = _spread(builder, builder.trunc(kept, _I32), _INTS)
        self._lowest, self._highest = (_Variable(builder, _constant(_SHORTS, _BIAS)) for _ in (0, 1))
        self._largest = _Variable(builder, _constant(_INTS, 0))

    def each(self, start, stop, body):
        """Emit body(k) for the terms k of some groups of four."""
        builder = self.builder
        with cgutils.for_range_slice(builder, start, stop, ir.Constant(_I64, 1), inc=True) as (four, _):
            first = builder.mul(four, ir.Constant(_I64, _UNROLL))
            for n in range(_UNROLL):
                body(builder.add(first, ir.Constant(_I64, n)))

    def subnormal(self, x):
        """Whether a number of D's format is subnormal."""
        least = 2.0 ** (-14 if self.output == TO_FP16 else -126)
        return self.builder.and_(_nonzero(self.builder, x), _smaller(self.builder, x, least))

    def observe(self, e):
        builder, low = self.builder, self._lowest.get()
        self._highest.set(_larger(builder, self._highest.get(), e))
        self._lowest.set(builder.select(builder.icmp_unsigned("<", e, low), e, low))

    def observe_field(self, field):
        self._largest.set(_larger(self.builder, self._largest.get(), field))

    def in_range(self):
        """Whether all exponents were in the range of the kernel."""
        builder = self.builder
        violations = (
            builder.icmp_signed(">=", self._largest.get(), _constant(_INTS, _NEAR_MAX)),
            builder.icmp_unsigned("<", self._lowest.get(), _constant(_SHORTS, _LOWEST)),
            builder.icmp_signed(">", self._highest.get(), _constant(_SHORTS, _HIGHEST)),
        )
        total = ir.Constant(_I32, 0)
        for mask in violations:
            word = builder.bitcast(mask, ir.IntType(mask.type.count))
            total = builder.or_(total, builder.zext(word, _I32) if mask.type.count < 32 else word)
        return builder.icmp_unsigned("==", total, ir.Constant(_I32, 0))


def _through_halves(builder, x):
    """x rounded to float16, ties to even, as float32."""
    return builder.fpext(builder.fptrunc(x, ir.VectorType(ir.HalfType(), _LANES)), _FLOATS)


def _nonzero(builder, x):
    return builder.fcmp_unordered("!=", x, _constant(_FLOATS, 0.0))


def _smaller(builder, x, limit):
    """Whether |x| < limit."""
    magnitude = builder.and_(builder.bitcast(x, _INTS), _constant(_INTS, (1 << 31) - 1))
    return builder.fcmp_ordered("<", builder.bitcast(magnitude, _FLOATS), _constant(_FLOATS, limit))


def _field(builder, bits):
    return builder.and_(builder.lshr(bits, _constant(_INTS, 23)), _constant(_INTS, 0xFF))


_TINY_HALF = 2.0**-14 - 2.0**-26
"""Numbers below it are below FP16's normal numbers after a rounding to eleven bits, ties to even."""


class _BlockEnd:
    """The end of a block in sixteen columns: adds c and rounds the sum. `events` holds the masks of the events."""

    def __init__(self, blocks, products, c):
        builder = self.builder = blocks.builder
        self.blocks, self.products, self.c = blocks, products, c
        bits = self.bits = builder.bitcast(c, _INTS)
        self.field = _field(builder, bits)
        e = builder.sub(products, _constant(_INTS, 127))
        if blocks.output == TO_FP16:  # the exponent of c is at least that of FP16's subnormals
            is_zero = builder.icmp_signed("==", self.field, _constant(_INTS, 0))
            own = _larger(builder, self.field, _constant(_INTS, 127 - 14))
            e = builder.select(is_zero, e, _larger(builder, own, e))
        else:
            e = _larger(builder, e, self.field)
        f = blocks.fraction
        up = _spread(builder, builder.add(f, ir.Constant(_I32, 254)), _INTS)
        scale = builder.shl(builder.sub(up, e), _constant(_INTS, 23))
        self.scale = builder.bitcast(scale, _FLOATS)
        self.unscale = builder.bitcast(builder.sub(_constant(_INTS, 254 << 23), scale), _FLOATS)

    def result(self, first, second, lost):
        """D; `lost` is what the products lost, or None where no events are counted."""
        builder = self.builder
        scaled = builder.fmul(self.c, self.scale)
        whole = builder.fptosi(scaled, _INTS)
        nothing = builder.icmp_signed("<", self.products, _constant(_INTS, 0))
        if lost:
            lost.add(scaled, whole, _nonzero(builder, self.c))
            some = builder.not_(nothing)
            for mask in (lost.inexact, lost.absorbed, lost.kept):  # without products, the scale may be any number
                mask.set(builder.and_(mask.get(), some))
        second = builder.add(second, whole)
        total = builder.add(first, second)
        # the sign of an overflowed sum is wrong
        overflowed = builder.and_(builder.xor(first, total), builder.xor(second, total))
        sign = builder.ashr(builder.xor(total, overflowed), _constant(_INTS, 31))
        magnitude = builder.sub(builder.xor(total, sign), sign)
        nearest = builder.uitofp(magnitude, _FLOATS)
        back = builder.fptoui(nearest, _INTS)
        one_less = builder.sext(builder.icmp_unsigned(">", back, magnitude), _INTS)
        cut = builder.bitcast(builder.add(builder.bitcast(nearest, _INTS), one_less), _FLOATS)
        rounded = builder.icmp_unsigned("!=", back, magnitude)
        if self.blocks.output == TO_FP16:
            return self._to_half(cut, rounded, sign, lost)
        # without products, c stays
        value = builder.bitcast(builder.fmul(cut, self.unscale), _INTS)
        value = builder.or_(value, builder.and_(sign, _constant(_INTS, -(1 << 31))))
        value = builder.select(nothing, self.bits, value)
        if lost:
            cut_off = builder.icmp_signed(
                "!=", builder.and_(value, builder.not_(self.blocks.kept)), _constant(_INTS, 0)
            )
            inexact = builder.or_(builder.or_(lost.inexact.get(), cut_off), builder.and_(rounded, some))
            self.events = {"inexact": inexact, "absorbed": lost.absorbed.get()}
        value = builder.and_(value, self.blocks.kept)
        # a zero is positive, also if all bits of a tiny c are truncated
        is_zero = builder.icmp_unsigned("==", builder.and_(value, _constant(_INTS, (1 << 31) - 1)), _constant(_INTS, 0))
        return builder.bitcast(builder.select(is_zero, _constant(_INTS, 0), value), _FLOATS)

    def _to_half(self, cut, inexact, sign, lost):
        builder = self.builder
        bits = builder.or_(builder.bitcast(cut, _INTS), builder.zext(inexact, _INTS))
        exact = builder.fmul(builder.bitcast(bits, _FLOATS), self.unscale)
        value = _through_halves(builder, exact)
        if lost:
            self._set_half_events(exact, value, lost)
        bits = builder.or_(builder.bitcast(value, _INTS), builder.and_(sign, _constant(_INTS, -(1 << 31))))
        # a zero is positive
        nothing = builder.fcmp_ordered("==", value, _constant(_FLOATS, 0.0))
        return builder.bitcast(builder.select(nothing, _constant(_INTS, 0), bits), _FLOATS)

    def _set_half_events(self, exact, value, lost):
        """The events of a magnitude rounded to FP16; `exact` has a sticky bit."""
        builder = self.builder
        rounded = builder.fcmp_unordered("!=", exact, value)
        tiny = builder.and_(rounded, _smaller(builder, exact, _TINY_HALF))
        flushed = builder.and_(rounded, builder.not_(_nonzero(builder, value)))
        all_lost = builder.and_(lost.absorbed.get(), builder.not_(lost.kept.get()))
        self.events = {
            "inexact": builder.or_(lost.inexact.get(), rounded),
            "absorbed": lost.absorbed.get(),
            "subnormal": self.blocks.subnormal(value),
            "underflow": builder.or_(all_lost, tiny),
            "flushed": builder.or_(all_lost, flushed),
        }


@intrinsic
def _blocks(typingctx, output, counting, va, xa, vb, xb, acc, tally, places, latest, i, first, blocks, params):
    """Compute blocks of rows i and i + 1 of va, xa (rows, K), from term `first` on, with vb, xb (K, WIDTH), into acc
    (rows, WIDTH). Return whether acc is correct.

    `params` is (terms, fraction bits, floor, kept, apart): with `apart`, blocks start from zero, and c is added in the
    end, to nearest. If `counting`, `tally` (rows, EVENTS) grows by the events of each row, and `places` (PLACED, rows,
    WIDTH) takes the least place of each; latest[n] is the place of the n-th block of the K terms.
    """
    if not isinstance(output, types.Literal) or not isinstance(counting, types.Literal):
        return None

    def codegen(context, builder, sig, args):
        kind, counts = output.literal_value, counting.literal_value
        if kind == TO_FP16 and not has_half_conversion():
            return ir.Constant(_I1, 0)
        prefer_wide_vectors(builder)
        arrays = [context.make_array(sig.args[n])(context, builder, args[n]) for n in range(2, 10)]
        i, first, blocks, params = args[10:]
        shapes = [cgutils.unpack_tuple(builder, x.shape) for x in arrays]
        length = shapes[0][1]
        terms, *others = cgutils.unpack_tuple(builder, params)
        count = builder.mul(blocks, terms)
        last_row, last_term = builder.add(i, ir.Constant(_I64, _ROWS)), builder.add(first, count)
        first_block = builder.udiv(first, terms)
        for height, width in (shapes[0], shapes[1], shapes[4]):
            check(context, builder, "a row of a", (i, height), (last_row, height))
        for height, width in shapes[:2]:
            pairs = (first, width), (count, width), (last_term, width), (length, width)
            check(context, builder, "a term of a", *pairs)
        for height, width in shapes[2:4]:
            check(context, builder, "a term of b", (count, height))
        for height, width in shapes[2:5]:
            check(context, builder, "a column", (ir.Constant(_I64, WIDTH), width), (width, ir.Constant(_I64, WIDTH)))
        if counts:
            (rows, events), (placed, height, width), (places_of_blocks,) = shapes[5:]
            check(context, builder, "an event", (ir.Constant(_I64, len(EVENTS)), events), (last_row, rows))
            check(context, builder, "a place", (ir.Constant(_I64, len(PLACED)), placed), (last_row, height))
            check(context, builder, "a place", (ir.Constant(_I64, WIDTH), width))
            check(context, builder, "a block", (builder.add(first_block, blocks), places_of_blocks))
        shared = _Blocks(builder, kind, arrays[2].data, arrays[3].data, terms, *others)
        rows = []
        for n in range(_ROWS):
            at = builder.add(i, ir.Constant(_I64, n))
            place = builder.add(builder.mul(at, length), first)
            acc = builder.gep(arrays[4].data, [builder.mul(at, ir.Constant(_I64, WIDTH))])
            events = _events_of_row(builder, at, arrays, shapes) if counts else None
            rows.append(_Row(shared, *(builder.gep(x.data, [place]) for x in arrays[:2]), acc, events))

        def latest_of(block):
            return _spread(builder, builder.load(builder.gep(arrays[7].data, [block])), _INTS) if counts else None

        one = ir.Constant(_I64, 1)
        with cgutils.for_range_slice(builder, ir.Constant(_I64, 0), blocks, one, inc=True) as (block, _):
            for each in rows:
                each.emit(builder.mul(block, terms), latest_of(builder.add(first_block, block)))
        for each in rows:
            each.epilogue(latest_of(first_block))
        return context.cast(builder, shared.in_range(), types.boolean, types.boolean)

    arrays = va, xa, vb, xb, acc, tally, places, latest
    wanted = types.boolean(output, counting, *arrays, *[types.int64] * 3, params)
    return wanted, codegen


def _events_of_row(builder, row, arrays, shapes):
    """The events of a row, whose counts and places are at the row's place in the arrays."""
    tally, places = arrays[5].data, arrays[6].data
    _, rows, width = shapes[6]
    firsts = []
    for n in range(len(PLACED)):
        at = builder.add(builder.mul(ir.Constant(_I64, n), rows), row)
        firsts.append(builder.gep(places, [builder.mul(at, width)]))
    return _Events(builder, builder.gep(tally, [builder.mul(row, ir.Constant(_I64, len(EVENTS)))]), firsts)


# -- tiles -------------------------------------------------------------------------------------------------------------

BLOCK_FIELDS = ("terms", "k", "fraction_bits", "floor", "kept", "emin_a", "emin_b", "read", "halves", "every")
TERMS, K, FRACTION, FLOOR, KEPT, EMIN_A, EMIN_B, READ, HALVES, EVERY = range(10)
"""Terms of a block and of an instruction; F; the least exponent, biased, or NO_FLOOR; the mask of the bits of float32
that D has; emin of the operands' formats; the mask of the bits of operands that are read; whether an instruction is one
of two halves, to which c is added; log2 of the number of elements that share a scale."""
NO_FLOOR = 2 * NONE

DEPTH = 128
"""Terms of a panel of b, a multiple of every k. A panel has 128 * 32 * (4 + 2) bytes = 24 KiB, for the first-level
cache."""

_SCALED = 60
"""The largest exponent of a scale: operands of eight bits times 2**60 or 2**-60 stay in the range of float32."""

_MAGNITUDE, _TRAILING = np.uint32(0x7FFFFFFF), np.uint32(23)


@inline
def source_of(position, k, halves):
    """The term at a position: the two halves of an instruction are stored one after the other."""
    if not halves:
        return position
    q, half = position % k, k // 2
    return position - q + q % half // 2 * 4 + q // half * 2 + q % 2


@inline
def masked(x, read):
    """x with the bits of a mask."""
    return float_from_bits(np.uint32(bits_from_float(x) & read))


@inline
def exponent_of(x, emin):
    """The biased exponent of an operand; NONE for a zero; for infinities and NaNs above all others."""
    u = np.uint32(bits_from_float(x) & _MAGNITUDE)
    e = max(np.int32(u >> _TRAILING), np.int32(emin))
    return e if u else np.int32(NONE)


@inline
def power(n):
    """2**n, a normal number."""
    return float_from_bits(np.uint32((n + 127) << 23))


@inline
def prepare_row(x, start, stop, params, scales, values, exponents):
    """Prepare a row of a, with zeros behind it; return whether all numbers are finite.

    Each exponent is stored in both halves of an int32.
    """
    most, read, emin = np.int32(0), np.uint32(params[READ]), params[EMIN_A] + 127
    if params[HALVES]:
        for p in range(values.size):
            k = start + source_of(p, params[K], params[HALVES])
            values[p] = x[k] if k < stop else np.float32(0)
    else:
        terms = x[start:stop]
        for p in range(terms.size):
            values[p] = terms[p]
        for p in range(terms.size, values.size):
            values[p] = 0
    for p in range(values.size):
        values[p] = masked(values[p], read)
        e = exponent_of(values[p], emin)
        most = max(most, e)
        exponents[p] = (e << 16) | (e & 0xFFFF)
    if scales.size:
        for p in range(min(values.size, stop - start)):
            s = np.int32(scales[(start + p) >> params[EVERY]])
            most = max(most, abs(s) - _SCALED + 255)
            values[p] *= power(max(-_SCALED, min(s, _SCALED)))
            e = (exponents[p] >> 16) + s
            exponents[p] = (e << 16) | (e & 0xFFFF)
    return most < 255


@inline
def prepare_panel(b, start, stop, first, depth, j0, columns, params, scales, values, exponents):
    """Prepare a panel of WIDTH columns of b, filled with zeros; return whether all numbers are finite."""
    most, read, emin = np.int32(0), np.uint32(params[READ]), params[EMIN_B] + 127
    for p in range(depth):
        k = start + source_of(first + p, params[K], params[HALVES])
        source, target = b[min(k, stop - 1), j0 : j0 + columns], values[p]
        here = columns if k < stop else 0
        for j in range(here):  # LLVM compiles this loop to a copy of memory
            target[j] = source[j]
        for j in range(here, WIDTH):
            target[j] = 0
    for p in range(depth):
        source, target = values[p], exponents[p]
        for j in range(WIDTH):
            source[j] = masked(source[j], read)
            e = exponent_of(source[j], emin)
            most = max(most, e)
            target[j] = np.int16(e)
    if scales.shape[1]:
        for p in range(min(depth, stop - start - first)):
            target, shorts, scales_of_term = values[p], exponents[p], scales[(start + first + p) >> params[EVERY]]
            for j in range(columns):
                s = np.int32(scales_of_term[j0 + j])
                most = max(most, abs(s) - _SCALED + 255)
                target[j] *= power(max(-_SCALED, min(s, _SCALED)))
                shorts[j] = np.int16(shorts[j] + s)
    return most < 255


def _matrix(scalar, readonly=False):
    return types.Array(scalar, 2, "C", readonly=readonly)


_ARGUMENTS = (
    numba.int64, _matrix(numba.float32, True), _matrix(numba.float32, True), types.Array(numba.float32, 3, "C"),
    _matrix(numba.int64, True), types.Array(numba.int64, 1, "C", readonly=True), types.Array(numba.boolean, 3, "C"),
    _matrix(numba.int16, True), _matrix(numba.int16, True), _matrix(numba.float32), _matrix(numba.int32),
    _matrix(numba.float32), _matrix(numba.int16), _matrix(numba.float32), _matrix(numba.boolean),
    _matrix(numba.int32, True), types.Array(numba.int64, 1, "C"), types.Array(numba.int64, 3, "C"),
    _matrix(numba.int64), types.Array(numba.int32, 3, "C"),
)  # fmt: skip

_LATE = np.int32(2**31 - 1)
_LEAST_NORMAL = np.float32(2.0**-126)


@functools.cache
def fused(counting):
    """Return the kernel of fused blocks, for `counting` 0 or 1.

    Sums over each range (start, stop) into out (ranges, M, N), numbers of D's format, c on entry. `bailed_out` (ranges,
    M, groups of WIDTH columns) marks the rows that are unchanged. Scales are exponents of powers of two, scales_a (M,
    parts) and scales_b (parts, N), or have no columns.

    A kernel that counts adds the events of the other rows to `counts` (EVENTS,), and takes the least places into
    `first` (PLACED, M, N). `latest` (ranges, blocks) is the place of each block.

    The other arguments are scratch: va, xa (M even, all terms, filled up), vb, xb (DEPTH, WIDTH), acc (M even, WIDTH),
    rows_in_range (2, M even), tally (M even, EVENTS), places (PLACED, M even, WIDTH).
    """

    @kernel_of(_ARGUMENTS)
    def kernel(
        output, a, b, out, ranges, params, bailed_out, scales_a, scales_b, va, xa, vb, xb, acc, rows_in_range, latest,
        counts, first, tally, places,
    ):  # fmt: skip
        rows, columns = out.shape[1], out.shape[2]
        even = acc.shape[0]
        model = params[TERMS], params[FRACTION], params[FLOOR], params[KEPT], params[HALVES]
        step = params[K] if params[HALVES] else np.int64(DEPTH)
        for part in range(out.shape[0]):
            start, stop = ranges[part, 0], ranges[part, 1]
            length = -(-(stop - start) // params[K]) * params[K]
            if length <= 0:
                continue
            of_part = latest[part if counting else 0]
            for i in range(even):
                n = min(i, rows - 1)
                rows_in_range[0, i] = prepare_row(
                    a[n], start, stop, params, scales_a[n], va[i, :length], xa[i, :length]
                )
            for group in range(bailed_out.shape[2]):
                j0 = group * WIDTH
                width = min(WIDTH, columns - j0)
                for i in range(even):
                    rows_in_range[1, i] = rows_in_range[0, i]
                    for j in range(WIDTH):
                        acc[i, j] = 0
                    if i < rows:
                        for j in range(width):
                            acc[i, j] = out[part, i, j0 + j] + np.float32(0)  # -0 is +0
                        if counting:
                            start_row(acc[i], width, output, rows_in_range[1], i, tally, places)
                for k0 in range(0, length, step):
                    depth = min(step, length - k0)
                    finite = prepare_panel(b, start, stop, k0, depth, j0, width, params, scales_b, vb, xb)
                    blocks = depth // params[TERMS]
                    for i in range(0, even, _ROWS):
                        if output == TO_FP32:
                            in_range = _blocks(
                                TO_FP32, counting, va, xa, vb, xb, acc, tally, places, of_part, i, k0, blocks, model
                            )  # fmt: skip
                        else:
                            in_range = _blocks(
                                TO_FP16, counting, va, xa, vb, xb, acc, tally, places, of_part, i, k0, blocks, model
                            )  # fmt: skip
                        rows_in_range[1, i] &= in_range and finite
                        rows_in_range[1, i + 1] &= in_range and finite
                for i in range(rows):
                    bailed_out[part, i, group] = not rows_in_range[1, i]
                    if rows_in_range[1, i]:
                        for j in range(width):
                            out[part, i, j0 + j] = acc[i, j]
                        if counting:
                            add_events(tally, places, i, j0, width, counts, first)

    return kernel


@inline
def start_row(acc, width, output, in_range, i, tally, places):
    """No events so far. A row whose c is subnormal in FP32 is out of range."""
    for event in range(tally.shape[1]):
        tally[i, event] = 0
    for event in range(places.shape[0]):
        for j in range(WIDTH):
            places[event, i, j] = _LATE
    if output == TO_FP32:
        for j in range(width):
            if acc[j] != 0 and abs(acc[j]) < _LEAST_NORMAL:
                in_range[i] = False


@inline
def add_events(tally, places, i, j0, width, counts, first):
    """Add a row's events to the counts, and its places to `first`."""
    for event in range(tally.shape[1]):
        counts[event] += tally[i, event]
    for event in range(places.shape[0]):
        for j in range(width):
            if places[event, i, j] != _LATE:
                first[event, i, j0 + j] = min(first[event, i, j0 + j], np.int64(places[event, i, j]))
