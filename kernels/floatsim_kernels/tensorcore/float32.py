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
"""

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..runtime.cpu import has_f16c
from ..runtime.intrinsics import bits_from_float, float_from_bits
from ..runtime.jit import check, inline, kernel_of
from ..runtime.numba_compat import prefer_wide_vectors

WIDTH = 32
"""Columns of a tile."""
_LANES, _UNROLL = 16, 4

TO_FP32, TO_FP16 = range(2)

_I1, _I16, _I32, _I64, _FLOAT = ir.IntType(1), ir.IntType(16), ir.IntType(32), ir.IntType(64), ir.FloatType()
_FLOATS, _INTS = ir.VectorType(_FLOAT, _LANES), ir.VectorType(_I32, _LANES)
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


class _Row:
    """Emits blocks of one row of a and WIDTH columns of b, and holds their accumulators."""

    def __init__(self, shared, va, xa, acc):
        self.shared, self.builder, self.va, self.xa, self.acc = shared, shared.builder, va, xa, acc
        self.c = [_Variable(self.builder, self._start(part)) for part in (0, 1)]

    def _held(self, part):
        return _load(self.builder, self.acc, ir.Constant(_I64, part * _LANES), _FLOATS)

    def _start(self, part):
        """c, or zero where c is added in the end."""
        return self.builder.select(self.shared.apart, _constant(_FLOATS, 0.0), self._held(part))

    def emit(self, base):
        """Emit the block of the terms from `base` on."""
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

        def add_to(side):
            def add(k):
                at = builder.add(base, k)
                x = _spread(builder, builder.load(builder.gep(self.va, [at])), _FLOATS)
                place = builder.mul(at, ir.Constant(_I64, WIDTH))
                for part in (0, 1):
                    y = _load(builder, shared.vb, builder.add(place, ir.Constant(_I64, part * _LANES)), _FLOATS)
                    scaled = builder.fmul(builder.fmul(x, y), ends[part].scale)
                    into = sums[side][part]
                    into.set(builder.add(into.get(), builder.fptosi(scaled, _INTS)))

            return add

        shared.each(ir.Constant(_I64, 0), shared.first_half, add_to(0))
        shared.each(shared.first_half, shared.fours, add_to(1))
        for part in (0, 1):
            shared.observe_field(ends[part].field)
            self.c[part].set(ends[part].result(sums[0][part].get(), sums[1][part].get()))

    def epilogue(self):
        for part in (0, 1):
            c = self.c[part].get()
            total = self.builder.fadd(self._held(part), c)
            if self.shared.output == TO_FP16:  # 24 >= 2 * 11 + 2: the rounding to float32 is innocuous
                total = _through_halves(self.builder, total)
            c = self.builder.select(self.shared.apart, total, c)
            place = self.builder.gep(self.acc, [ir.Constant(_I64, part * _LANES)])
            self.builder.store(c, self.builder.bitcast(place, ir.PointerType(_FLOATS)), align=4)
            self.shared.observe_field(_field(self.builder, self.builder.bitcast(c, _INTS)))


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


def _field(builder, bits):
    return builder.and_(builder.lshr(bits, _constant(_INTS, 23)), _constant(_INTS, 0xFF))


class _BlockEnd:
    """The end of a block in sixteen columns: adds c and rounds the sum."""

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

    def result(self, first, second):
        builder = self.builder
        second = builder.add(second, builder.fptosi(builder.fmul(self.c, self.scale), _INTS))
        total = builder.add(first, second)
        # the sign of an overflowed sum is wrong
        overflowed = builder.and_(builder.xor(first, total), builder.xor(second, total))
        sign = builder.ashr(builder.xor(total, overflowed), _constant(_INTS, 31))
        magnitude = builder.sub(builder.xor(total, sign), sign)
        nearest = builder.uitofp(magnitude, _FLOATS)
        back = builder.fptoui(nearest, _INTS)
        one_less = builder.sext(builder.icmp_unsigned(">", back, magnitude), _INTS)
        cut = builder.bitcast(builder.add(builder.bitcast(nearest, _INTS), one_less), _FLOATS)
        if self.blocks.output == TO_FP16:
            return self._to_half(cut, builder.icmp_unsigned("!=", back, magnitude), sign)
        # without products, c stays
        value = builder.bitcast(builder.fmul(cut, self.unscale), _INTS)
        value = builder.or_(value, builder.and_(sign, _constant(_INTS, -(1 << 31))))
        nothing = builder.icmp_signed("<", self.products, _constant(_INTS, 0))
        value = builder.and_(builder.select(nothing, self.bits, value), self.blocks.kept)
        # a zero is positive, also if all bits of a tiny c are truncated
        is_zero = builder.icmp_unsigned("==", builder.and_(value, _constant(_INTS, (1 << 31) - 1)), _constant(_INTS, 0))
        return builder.bitcast(builder.select(is_zero, _constant(_INTS, 0), value), _FLOATS)

    def _to_half(self, cut, inexact, sign):
        builder = self.builder
        bits = builder.or_(builder.bitcast(cut, _INTS), builder.zext(inexact, _INTS))
        value = builder.fmul(builder.bitcast(bits, _FLOATS), self.unscale)
        value = _through_halves(builder, value)
        bits = builder.or_(builder.bitcast(value, _INTS), builder.and_(sign, _constant(_INTS, -(1 << 31))))
        # a zero is positive
        nothing = builder.fcmp_ordered("==", value, _constant(_FLOATS, 0.0))
        return builder.bitcast(builder.select(nothing, _constant(_INTS, 0), bits), _FLOATS)


@intrinsic
def _blocks(typingctx, output, va, xa, vb, xb, acc, i, first, blocks, params):
    """Compute blocks of rows i and i + 1 of va, xa (rows, K), from term `first` on, with vb, xb (K, WIDTH), into acc
    (rows, WIDTH). Return whether acc is correct.

    `params` is (terms, fraction bits, floor, kept, apart): with `apart`, blocks start from zero, and c is added in the
    end, to nearest.
    """
    if not isinstance(output, types.Literal):
        return None

    def codegen(context, builder, sig, args):
        kind = output.literal_value
        if kind == TO_FP16 and not has_f16c():
            return ir.Constant(_I1, 0)
        prefer_wide_vectors(builder)
        arrays = [context.make_array(sig.args[n])(context, builder, args[n]) for n in range(1, 6)]
        shapes = [cgutils.unpack_tuple(builder, x.shape) for x in arrays]
        length = shapes[0][1]
        terms, *others = cgutils.unpack_tuple(builder, args[9])
        count = builder.mul(args[8], terms)
        last_row, last_term = builder.add(args[6], ir.Constant(_I64, _ROWS)), builder.add(args[7], count)
        for height, width in (shapes[0], shapes[1], shapes[4]):
            check(context, builder, "a row of a", (args[6], height), (last_row, height))
        for height, width in shapes[:2]:
            pairs = (args[7], width), (count, width), (last_term, width), (length, width)
            check(context, builder, "a term of a", *pairs)
        for height, width in shapes[2:4]:
            check(context, builder, "a term of b", (count, height))
        for height, width in shapes[2:]:
            check(context, builder, "a column", (ir.Constant(_I64, WIDTH), width), (width, ir.Constant(_I64, WIDTH)))
        shared = _Blocks(builder, kind, arrays[2].data, arrays[3].data, terms, *others)
        rows = []
        for n in range(_ROWS):
            at = builder.add(args[6], ir.Constant(_I64, n))
            place = builder.add(builder.mul(at, length), args[7])
            acc = builder.gep(arrays[4].data, [builder.mul(at, ir.Constant(_I64, WIDTH))])
            rows.append(_Row(shared, *(builder.gep(x.data, [place]) for x in arrays[:2]), acc))
        one = ir.Constant(_I64, 1)
        with cgutils.for_range_slice(builder, ir.Constant(_I64, 0), args[8], one, inc=True) as (block, _):
            for each in rows:
                each.emit(builder.mul(block, terms))
        for each in rows:
            each.epilogue()
        return context.cast(builder, shared.in_range(), types.boolean, types.boolean)

    wanted = types.boolean(output, va, xa, vb, xb, acc, *[types.int64] * 3, params)
    return wanted, codegen


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


@kernel_of(
    (
        numba.int64, _matrix(numba.float32, True), _matrix(numba.float32, True), types.Array(numba.float32, 3, "C"),
        _matrix(numba.int64, True), types.Array(numba.int64, 1, "C", readonly=True), types.Array(numba.boolean, 3, "C"),
        _matrix(numba.int16, True), _matrix(numba.int16, True), _matrix(numba.float32), _matrix(numba.int32),
        _matrix(numba.float32), _matrix(numba.int16), _matrix(numba.float32), _matrix(numba.boolean),
    )
)  # fmt: skip
def fused(output, a, b, out, ranges, params, bailed_out, scales_a, scales_b, va, xa, vb, xb, acc, rows_in_range):
    """Sums over each range (start, stop) into out (ranges, M, N), numbers of D's format, c on entry.

    `bailed_out` (ranges, M, groups of WIDTH columns) marks the rows that are unchanged. Scales are exponents of powers
    of two, scales_a (M, parts) and scales_b (parts, N), or have no columns. The other arguments are scratch: va, xa (M
    even, all terms, filled up), vb, xb (DEPTH, WIDTH), acc (M even, WIDTH), rows_in_range (2, M even).
    """
    rows, columns = out.shape[1], out.shape[2]
    even = acc.shape[0]
    model = params[TERMS], params[FRACTION], params[FLOOR], params[KEPT], params[HALVES]
    step = params[K] if params[HALVES] else np.int64(DEPTH)
    for part in range(out.shape[0]):
        start, stop = ranges[part, 0], ranges[part, 1]
        length = -(-(stop - start) // params[K]) * params[K]
        if length <= 0:
            continue
        for i in range(even):
            n = min(i, rows - 1)
            rows_in_range[0, i] = prepare_row(a[n], start, stop, params, scales_a[n], va[i, :length], xa[i, :length])
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
            for first in range(0, length, step):
                depth = min(step, length - first)
                finite = prepare_panel(b, start, stop, first, depth, j0, width, params, scales_b, vb, xb)
                for i in range(0, even, _ROWS):
                    if output == TO_FP32:
                        in_range = _blocks(TO_FP32, va, xa, vb, xb, acc, i, first, depth // params[TERMS], model)
                    else:
                        in_range = _blocks(TO_FP16, va, xa, vb, xb, acc, i, first, depth // params[TERMS], model)
                    rows_in_range[1, i] &= in_range and finite
                    rows_in_range[1, i + 1] &= in_range and finite
            for i in range(rows):
                bailed_out[part, i, group] = not rows_in_range[1, i]
                if rows_in_range[1, i]:
                    for j in range(width):
                        out[part, i, j0 + j] = acc[i, j]
