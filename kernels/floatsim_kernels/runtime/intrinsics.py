"""Machine operations without a name in Numba, as portable LLVM instructions."""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .cpu import has_fma
from .numba_compat import new_array, prefer_wide_vectors

_I64, _I128 = ir.IntType(64), ir.IntType(128)


@intrinsic
def zero_array(typingctx, shape, dtype):
    """A new C-contiguous array of zeros: `np.zeros` of a number or a tuple of numbers, which must not be negative."""
    axes = len(shape) if isinstance(shape, types.BaseTuple) else 1
    kind = types.Array(dtype.dtype, axes, "C")

    def codegen(context, builder, signature, args):
        sizes = cgutils.unpack_tuple(builder, args[0]) if isinstance(shape, types.BaseTuple) else args[:1]
        return new_array(context, builder, kind, sizes)

    return kind(types.UniTuple(types.intp, axes) if isinstance(shape, types.BaseTuple) else types.intp, dtype), codegen


@intrinsic
def leading_zeros(typingctx, x):
    """Number of leading zero bits of a uint64 (64 for zero), as int64."""

    def codegen(context, builder, signature, args):
        return builder.ctlz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), codegen


@intrinsic
def trailing_zeros(typingctx, x):
    """Number of trailing zero bits of a uint64 (64 for zero), as int64."""

    def codegen(context, builder, signature, args):
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), codegen


@intrinsic
def ones(typingctx, x):
    """Number of one bits of a uint64, as int64."""

    def codegen(context, builder, signature, args):
        return builder.ctpop(args[0])

    return types.int64(types.uint64), codegen


@intrinsic
def bit_length(typingctx, x):
    """The number of bits of an unsigned integer without leading zeros, as uint8."""

    def codegen(context, builder, signature, args):
        kind, byte = args[0].type, ir.IntType(8)
        length = builder.sub(ir.Constant(kind, x.bitwidth), builder.ctlz(args[0], ir.Constant(ir.IntType(1), 0)))
        return length if kind == byte else builder.trunc(length, byte)

    return types.uint8(x), codegen


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
    """A two-operand instruction on uint32. Numba would compute with 64 bits, which halves the lanes of a vector."""

    def codegen(context, builder, signature, args):
        return getattr(builder, instruction)(*args)

    def typer(typingctx, a, b):
        return types.uint32(types.uint32, types.uint32), codegen

    typer.__name__ = name
    return intrinsic(typer)


add32 = _on_32_bits("add32", "add")
multiply32 = _on_32_bits("multiply32", "mul")
subtract32 = _on_32_bits("subtract32", "sub")
left32 = _on_32_bits("left32", "shl")
right32 = _on_32_bits("right32", "lshr")
and32 = _on_32_bits("and32", "and_")
or32 = _on_32_bits("or32", "or_")
xor32 = _on_32_bits("xor32", "xor")


@intrinsic
def shifted_right(typingctx, x, n):
    """x >> n for a uint32 and a uint32, or a uint64 and a uint64, in that type."""
    if x != n or x not in (types.uint32, types.uint64):
        return None

    def codegen(context, builder, signature, args):
        return builder.lshr(*args)

    return x(x, n), codegen


@intrinsic
def low32(typingctx, x):
    """The low 32 bits of an int64."""

    def codegen(context, builder, signature, args):
        return builder.trunc(args[0], ir.IntType(32))

    return types.uint32(types.int64), codegen


@intrinsic
def integer_part(typingctx, x):
    """The integer part of a float32 or a float64 in [0, 2**32), as uint32.

    Vector instructions convert float32 to uint32, but float64 only to int64.
    """
    if x not in (types.float32, types.float64):
        return None

    def codegen(context, builder, signature, args):
        if x == types.float32:
            return builder.fptoui(args[0], ir.IntType(32))
        return builder.trunc(builder.fptosi(args[0], _I64), ir.IntType(32))

    return types.uint32(x), codegen


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
def as_float(typingctx, code):
    """The number of a code: float32 of a uint32, float64 of a uint64."""
    if code not in (types.uint32, types.uint64):
        return None
    number, kind = {32: (types.float32, ir.FloatType()), 64: (types.float64, ir.DoubleType())}[code.bitwidth]

    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], kind)

    return number(code), codegen


@intrinsic
def as_bits(typingctx, x):
    """The code of a number: uint32 of a float32, uint64 of a float64."""
    if x not in (types.float32, types.float64):
        return None

    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], ir.IntType(x.bitwidth))

    return types.Integer.from_bitwidth(x.bitwidth, False)(x), codegen


@intrinsic
def contracted(typingctx, a, b, c):
    """a * b + c of float64 numbers, with one rounding where `cpu.has_fma()`, else with two."""

    def codegen(context, builder, signature, args):
        if has_fma():
            return builder.fma(*args)
        return builder.fadd(builder.fmul(args[0], args[1]), args[2])

    return types.float64(types.float64, types.float64, types.float64), codegen


@intrinsic
def half_from_float(typingctx, x):
    """The code of the float16 nearest to a float32, ties to even. It crashes without `cpu.has_half_conversion()`."""

    def codegen(context, builder, signature, args):
        return builder.bitcast(builder.fptrunc(args[0], ir.HalfType()), ir.IntType(16))

    return types.uint16(types.float32), codegen


@intrinsic
def float_from_half(typingctx, x):
    """The float32 value of a float16 code. It crashes without `cpu.has_half_conversion()`."""

    def codegen(context, builder, signature, args):
        return builder.fpext(builder.bitcast(args[0], ir.HalfType()), ir.FloatType())

    return types.float32(types.uint16), codegen


# -- arithmetic on floats and on float16 codes -------------------------------------------------------------------------
# On float16 codes it uses the processor's instructions where `cpu.has_half_arithmetic()`; else LLVM uses float32.


def _as_floats(builder, args):
    return [builder.bitcast(x, ir.HalfType()) if x.type == ir.IntType(16) else x for x in args]


def _on_floats(name, emit, operands):
    """An operation on numbers of one type: float32, float64, or float16 codes (uint16)."""

    def codegen(context, builder, signature, args):
        return builder.bitcast(emit(builder, *_as_floats(builder, args)), args[0].type)

    def two(typingctx, a, b):
        return a(a, a), codegen

    def three(typingctx, a, b, c):
        return a(a, a, a), codegen

    typer = {2: two, 3: three}[operands]
    typer.__name__ = name
    return intrinsic(typer)


def _emit_multiply_add(builder, a, b, c):
    return builder.fma(a, b, c) if has_fma() else builder.fadd(builder.fmul(a, b), c)


add_floats = _on_floats("add_floats", lambda builder, a, b: builder.fadd(a, b), 2)
subtract_floats = _on_floats("subtract_floats", lambda builder, a, b: builder.fsub(a, b), 2)
multiply_floats = _on_floats("multiply_floats", lambda builder, a, b: builder.fmul(a, b), 2)
multiply_add = _on_floats("multiply_add", _emit_multiply_add, 3)
"""a * b + c, rounded once where `cpu.has_fma()` (float16: `has_half_arithmetic`); else the product is rounded too."""


def _on_codes(name, result, emit):
    """A test or function of the code of a float32, a float64 or a float16 (uint16)."""

    def typer(typingctx, x):
        size = {types.uint16: 16, types.float32: 32, types.float64: 64}[x]
        trailing = {16: 10, 32: 23, 64: 52}[size]
        infinity = (1 << size - 1) - (1 << trailing)

        def codegen(context, builder, signature, args):
            kind = ir.IntType(size)
            magnitude = builder.and_(builder.bitcast(args[0], kind), ir.Constant(kind, (1 << size - 1) - 1))
            return emit(builder, magnitude, ir.Constant(kind, infinity))

        return (result or types.Integer.from_bitwidth(size, False))(x), codegen

    typer.__name__ = name
    return intrinsic(typer)


magnitude_of = _on_codes("magnitude_of", None, lambda builder, magnitude, infinity: magnitude)
is_finite = _on_codes(
    "is_finite", types.boolean, lambda builder, magnitude, infinity: builder.icmp_unsigned("<", magnitude, infinity)
)


@intrinsic
def converted(typingctx, x, like):
    """x, a float or a float16 code, as a number of the type of `like`; to float16 with rounding."""

    def codegen(context, builder, signature, args):
        (value,), target = _as_floats(builder, args[:1]), ir.HalfType() if like == types.uint16 else args[1].type
        size = {ir.HalfType(): 2, ir.FloatType(): 4, ir.DoubleType(): 8}
        if size[target] < size[value.type]:
            value = builder.fptrunc(value, target)
        elif size[target] > size[value.type]:
            value = builder.fpext(value, target)
        return builder.bitcast(value, args[1].type)

    return like(x, like), codegen


# -- compilation and the rounding direction ----------------------------------------------------------------------------


@intrinsic
def wide_vectors(typingctx):
    """Let LLVM use the widest vector registers in the calling kernel; for Intel's 512 bits it prefers 256.

    Functions that are inlined take the setting of their kernel.
    """

    def codegen(context, builder, signature, args):
        prefer_wide_vectors(builder)
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def set_rounding(typingctx, direction):
    """Set this thread's hardware rounding: 0 toward zero, 1 ties to even, 2 toward positive, 3 toward negative.

    LLVM assumes ties to even. It may fold arithmetic on constants, and move arithmetic on registers across this call,
    but loads and stores stay on their side. So code that computes in a direction takes its operands from arrays and
    leaves its results in arrays. It allocates before this call, and sets ties to even again before anything can raise.
    """

    def codegen(context, builder, signature, args):
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(32)])
        name = "llvm.set.rounding"
        builder.call(builder.module.globals.get(name) or ir.Function(builder.module, kind, name), args)
        builder.asm(ir.FunctionType(ir.VoidType(), []), "", "~{memory}", [], True)
        return context.get_dummy_value()

    return types.void(types.int32), codegen


@intrinsic
def opaque(typingctx, x):
    """A float64 number that the compiler does not know: empty assembly stands between it and its use."""

    def codegen(context, builder, signature, args):
        bits = builder.bitcast(args[0], _I64)
        bits = builder.asm(ir.FunctionType(_I64, [_I64]), "", "=r,0", [bits], side_effect=True)
        return builder.bitcast(bits, ir.DoubleType())

    return types.float64(types.float64), codegen


def _of_one_type(name, build):
    """A two-operand function on uint32 or uint64 that keeps the type, in which Numba's own operators would widen."""

    def codegen(context, builder, signature, args):
        return build(builder, *args)

    def typer(typingctx, a, b):
        return (a(a, b), codegen) if a == b and a in (types.uint32, types.uint64) else None

    typer.__name__ = name
    return intrinsic(typer)


bits_of_both = _of_one_type("bits_of_both", lambda builder, a, b: builder.and_(a, b))
differing_bits = _of_one_type("differing_bits", lambda builder, a, b: builder.xor(a, b))
larger_integer = _of_one_type(
    "larger_integer", lambda builder, a, b: builder.select(builder.icmp_unsigned(">", a, b), a, b)
)
zero_beyond = _of_one_type(
    "zero_beyond", lambda builder, a, b: builder.select(builder.icmp_unsigned("<=", a, b), a, ir.Constant(a.type, 0))
)
"""a where it is at most b, else 0."""
