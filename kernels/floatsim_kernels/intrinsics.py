"""Machine operations that Numba has no name for, as portable LLVM instructions."""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

_I64, _I128 = ir.IntType(64), ir.IntType(128)


@intrinsic
def leading_zeros(typingctx, x):
    """Number of leading zero bits of a uint64 (64 for zero), as int64."""

    def codegen(context, builder, signature, args):
        return builder.ctlz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), codegen


@intrinsic
def _multiply_high(typingctx, a, b):
    def codegen(context, builder, signature, args):
        wide = [builder.zext(x, _I128) for x in args]
        product = builder.mul(*wide)
        return builder.trunc(builder.lshr(product, ir.Constant(_I128, 64)), _I64)

    return types.uint64(types.uint64, types.uint64), codegen


multiply_high = _multiply_high
"""Upper 64 bits of the 128-bit product of two uint64."""


def _on_32_bits(name, instruction):
    """A two-operand instruction on uint32. Numba computes with 64 bits, which halves the lanes of a vector register."""

    def codegen(context, builder, signature, args):
        return getattr(builder, instruction)(*args)

    def typer(typingctx, a, b):
        return types.uint32(types.uint32, types.uint32), codegen

    typer.__name__ = name
    return intrinsic(typer)


add32 = _on_32_bits("add32", "add")
multiply32 = _on_32_bits("multiply32", "mul")
left32 = _on_32_bits("left32", "shl")
right32 = _on_32_bits("right32", "lshr")


@intrinsic
def low32(typingctx, x):
    """The low 32 bits of an int64."""

    def codegen(context, builder, signature, args):
        return builder.trunc(args[0], ir.IntType(32))

    return types.uint32(types.int64), codegen


def _bitcast(name, source, target, llvm_target):
    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], llvm_target)

    def typer(typingctx, x):
        return target(source), codegen

    typer.__name__ = name
    return intrinsic(typer)


float_from_bits = _bitcast("float_from_bits", types.uint32, types.float32, ir.FloatType())
bits_from_float = _bitcast("bits_from_float", types.float32, types.uint32, ir.IntType(32))
double_from_bits = _bitcast("double_from_bits", types.uint64, types.float64, ir.DoubleType())
bits_from_double = _bitcast("bits_from_double", types.float64, types.uint64, ir.IntType(64))


@intrinsic
def half_from_float(typingctx, x):
    """Code of the float16 nearest to a float32 (ties to even). Only where `machine.has_f16c()`: else it crashes."""

    def codegen(context, builder, signature, args):
        return builder.bitcast(builder.fptrunc(args[0], ir.HalfType()), ir.IntType(16))

    return types.uint16(types.float32), codegen


@intrinsic
def float_from_half(typingctx, x):
    """The float32 value of a float16 code. Only where `machine.has_f16c()`: else it crashes."""

    def codegen(context, builder, signature, args):
        return builder.fpext(builder.bitcast(args[0], ir.HalfType()), ir.FloatType())

    return types.float32(types.uint16), codegen
