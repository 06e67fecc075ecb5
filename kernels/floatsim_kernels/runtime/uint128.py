"""128-bit integers as pairs (hi, lo) of uint64, without the branches that code on 64 bits would need."""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

_I64, _I128 = ir.IntType(64), ir.IntType(128)
_PAIR = types.UniTuple(types.uint64, 2)


def _join(builder, hi, lo):
    return builder.or_(builder.shl(builder.zext(hi, _I128), ir.Constant(_I128, 64)), builder.zext(lo, _I128))


def _halves(builder, x):
    return [builder.trunc(builder.lshr(x, ir.Constant(_I128, 64)), _I64), builder.trunc(x, _I64)]


def _count(builder, n):
    """A shift count, at most 127; negative counts become 127 too."""
    most = ir.Constant(_I64, 127)
    return builder.zext(builder.select(builder.icmp_unsigned("<", n, most), n, most), _I128)


def _shift_right(builder, x, n):
    """x >> n, and whether a bit was lost."""
    n = _count(builder, n)
    shifted = builder.lshr(x, n)
    return shifted, builder.icmp_unsigned("!=", builder.shl(shifted, n), x)


@intrinsic
def leading_zeros_wide(typingctx, hi, lo):
    """Number of leading zero bits (128 for zero), as int64."""

    def codegen(context, builder, signature, args):
        zeros = builder.ctlz(_join(builder, *args), ir.Constant(ir.IntType(1), 0))
        return builder.trunc(zeros, _I64)

    return types.int64(types.uint64, types.uint64), codegen


@intrinsic
def shift_left(typingctx, hi, lo, n):
    """(hi, lo) << n for n >= 0; for n of at least 127 a number below 2 loses all its bits."""

    def codegen(context, builder, signature, args):
        hi, lo, n = args
        return context.make_tuple(
            builder, _PAIR, _halves(builder, builder.shl(_join(builder, hi, lo), _count(builder, n)))
        )

    return _PAIR(types.uint64, types.uint64, types.int64), codegen


@intrinsic
def shift_right_jam(typingctx, hi, lo, n):
    """(hi, lo) >> n, n not negative and hi below 2**63, the last bit set if any bit was lost."""

    def codegen(context, builder, signature, args):
        hi, lo, n = args
        shifted, lost = _shift_right(builder, _join(builder, hi, lo), n)
        jammed = builder.or_(shifted, builder.zext(lost, _I128))
        return context.make_tuple(builder, _PAIR, _halves(builder, jammed))

    return _PAIR(types.uint64, types.uint64, types.int64), codegen


@intrinsic
def split(typingctx, hi, lo, n):
    """Cut n low bits off hi, for n >= 0 and hi below 2**63.

    Return (remaining bits of hi, the 64 bits below, 1 if any bit below those is set, else 0).
    """
    triple = types.UniTuple(types.uint64, 3)

    def codegen(context, builder, signature, args):
        hi, lo, n = args
        shifted, lost = _shift_right(builder, _join(builder, hi, lo), n)
        return context.make_tuple(builder, triple, [*_halves(builder, shifted), builder.zext(lost, _I64)])

    return triple(types.uint64, types.uint64, types.int64), codegen


@intrinsic
def add_signed_wide(typingctx, sa, ha, la, sb, hb, lb):
    """(sign, hi, lo) of the sum of two numbers with signs 0 or 1 and magnitudes below 2**126."""
    result = types.Tuple([types.int64, types.uint64, types.uint64])

    def codegen(context, builder, signature, args):
        zero = ir.Constant(_I128, 0)

        def signed(sign, hi, lo):
            x = _join(builder, hi, lo)
            return builder.select(builder.trunc(sign, ir.IntType(1)), builder.sub(zero, x), x)

        total = builder.add(signed(*args[:3]), signed(*args[3:]))
        negative = builder.icmp_signed("<", total, zero)
        magnitude = builder.select(negative, builder.sub(zero, total), total)
        return context.make_tuple(builder, result, [builder.zext(negative, _I64), *_halves(builder, magnitude)])

    return result(types.int64, types.uint64, types.uint64, types.int64, types.uint64, types.uint64), codegen
