"""Passes over rows of float64, eight columns at a time: Python functions that run once, when a kernel is compiled.

They work on objects that stand for LLVM vectors, and emit vector instructions. Loops that LLVM vectorises by itself use
half the width of 512-bit registers, and cannot be told to round in a direction. Here one operation is one instruction
with 512-bit registers, two with 256 bits, and so on: LLVM splits vectors to the width of the processor.

`F64x8` is eight float64, `U64x8` their bits, `Mask` the results of comparisons, and `U32x16` sixteen uint32, for random
numbers. The right operand of an operator may be a Python number.

The functions `multiply_add...` take products that are exact in float64: the sum is rounded once, in a direction of its
own. With AVX-512 that is one instruction, elsewhere a TwoSum (D. E. Knuth) and the sign of its error.
"""

from typing import NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .cpu import has_directed_fma, has_fma
from .jit import check
from .numba_compat import disable_unrolling

LANES = 8

_I32, _I64 = ir.IntType(32), ir.IntType(64)


class Vector:
    """An LLVM vector, and the builder that emits operations on it."""

    def __init__(self, builder, value):
        self.builder, self.value = builder, value

    @classmethod
    def llvm(cls):
        return ir.VectorType(cls.element, cls.lanes)

    @classmethod
    def spread(cls, builder, x):
        """A vector unchanged; a Python number or an LLVM scalar in every lane."""
        if isinstance(x, Vector):
            return x
        if not isinstance(x, ir.Value):
            return cls(builder, ir.Constant(cls.llvm(), [x] * cls.lanes))
        nothing, lanes = (
            ir.Constant(cls.llvm(), ir.Undefined),
            ir.Constant(ir.VectorType(_I32, cls.lanes), [0] * cls.lanes),
        )
        first = builder.insert_element(nothing, x, ir.Constant(_I32, 0))
        return cls(builder, builder.shuffle_vector(first, nothing, lanes))

    def _emit(self, instruction, other):
        emit = getattr(self.builder, instruction)
        return type(self)(self.builder, emit(self.value, self.spread(self.builder, other).value))

    def _compare(self, instruction, how, other):
        emit = getattr(self.builder, instruction)
        return Mask(self.builder, emit(how, self.value, self.spread(self.builder, other).value))


class Mask(Vector):
    """Eight booleans."""

    element, lanes = ir.IntType(1), LANES

    def __and__(self, other):
        return self._emit("and_", other)

    def __or__(self, other):
        return self._emit("or_", other)


class U64x8(Vector):
    """Eight uint64."""

    element, lanes = _I64, LANES

    def __add__(self, other):
        return self._emit("add", other)

    def __sub__(self, other):
        return self._emit("sub", other)

    def __and__(self, other):
        return self._emit("and_", other)

    def __or__(self, other):
        return self._emit("or_", other)

    def __xor__(self, other):
        return self._emit("xor", other)

    def __lshift__(self, other):
        return self._emit("shl", other)

    def __rshift__(self, other):
        return self._emit("lshr", other)

    def __gt__(self, other):
        return self._compare("icmp_unsigned", ">", other)

    def __ne__(self, other):
        return self._compare("icmp_unsigned", "!=", other)

    @property
    def as_f64(self):
        return F64x8(self.builder, self.builder.bitcast(self.value, F64x8.llvm()))


class F64x8(Vector):
    """Eight float64. Comparisons are false for NaN."""

    element, lanes = ir.DoubleType(), LANES

    def __add__(self, other):
        return self._emit("fadd", other)

    def __sub__(self, other):
        return self._emit("fsub", other)

    def __mul__(self, other):
        return self._emit("fmul", other)

    def __neg__(self):
        return (self.bits ^ SIGN).as_f64

    def __abs__(self):
        return (self.bits & MAGNITUDE).as_f64

    def __gt__(self, other):
        return self._compare("fcmp_ordered", ">", other)

    def __ge__(self, other):
        return self._compare("fcmp_ordered", ">=", other)

    def __lt__(self, other):
        return self._compare("fcmp_ordered", "<", other)

    def __eq__(self, other):
        return self._compare("fcmp_ordered", "==", other)

    def __ne__(self, other):
        return self._compare("fcmp_ordered", "!=", other)

    @property
    def bits(self):
        return U64x8(self.builder, self.builder.bitcast(self.value, U64x8.llvm()))


class U32x16(Vector):
    """Sixteen uint32."""

    element, lanes = _I32, 2 * LANES

    def __add__(self, other):
        return self._emit("add", other)

    def __mul__(self, other):
        return self._emit("mul", other)

    def __and__(self, other):
        return self._emit("and_", other)

    def __xor__(self, other):
        return self._emit("xor", other)

    def __rshift__(self, other):
        return self._emit("lshr", other)

    @property
    def even_and_odd(self):
        """The even lanes and the odd lanes, as U64x8."""
        both = U64x8(self.builder, self.builder.bitcast(self.value, U64x8.llvm()))
        return both & 0xFFFFFFFF, both >> 32


SIGN, MAGNITUDE, EXPONENT = 1 << 63, (1 << 63) - 1, 0x7FF << 52


def choose(mask, x, y):
    """x where the mask is set, else y; one of them may be a Python number."""
    kind = type(x) if isinstance(x, Vector) else type(y)
    builder = mask.builder
    x, y = kind.spread(builder, x), kind.spread(builder, y)
    return kind(builder, builder.select(mask.value, x.value, y.value))


def maximum(x, y):
    """The larger; y if x is NaN."""
    return choose(x > y, x, y)


def minimum(x, y):
    """The smaller; y if x is NaN."""
    return choose(x < y, x, y)


# -- sums of exact products --------------------------------------------------------------------------------------------

_DOWN, _UP, _TOWARD_ZERO = (8 | direction for direction in (1, 2, 3))
"""The directions as immediates of AVX-512, without exceptions (Intel's manual, volume 2A, 2.7.4)."""


def _call(name, *args):
    """A call of an LLVM intrinsic that returns F64x8."""
    builder = args[0].builder
    values = [x.value if isinstance(x, Vector) else ir.Constant(_I32, x) for x in args]
    kind = ir.FunctionType(F64x8.llvm(), [x.type for x in values])
    function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    return F64x8(builder, builder.call(function, values))


def multiply_add(a, b, c):
    """a * b + c, to nearest."""
    return _call(f"llvm.fma.v{LANES}f64", a, b, c) if has_fma() else a * b + c


def _directed(a, b, c, direction):
    """a * b + c in a direction; only where `cpu.has_directed_fma()`."""
    return _call("llvm.x86.avx512.vfmadd.pd.512", a, b, c, direction)


def _two_sum(a, b, c):
    """(product, sum, error); the error of an infinite sum is NaN."""
    p = a * b
    s = p + c
    z = s - p
    return p, s, (p - (s - z)) + (c - z)


def _toward_zero_bits(s, error):
    """(The bits of the exact sum toward zero, whether it is inexact), from the sum to nearest and its error."""
    inexact = (error < 0.0) | (error > 0.0)
    return s.bits - choose(inexact, (s.bits ^ error.bits) >> 63, 0), inexact


def multiply_add_down(a, b, c):
    """a * b + c, toward negative."""
    if has_directed_fma():
        return _directed(a, b, c, _DOWN)
    p, s, error = _two_sum(a, b, c)
    one_down = U64x8.spread(s.builder, 1) - ((s.bits >> 63) << 1)  # a negative number's bits grow
    below = s.bits - choose(error < 0.0, one_down, 0)
    # an exact zero is negative unless both terms are positive zeros
    return choose(s == 0.0, s.bits | ((p.bits | c.bits) & SIGN), below).as_f64


def multiply_add_toward_zero(a, b, c):
    """a * b + c, toward zero."""
    if has_directed_fma():
        return _directed(a, b, c, _TOWARD_ZERO)
    _, s, error = _two_sum(a, b, c)
    return _toward_zero_bits(s, error)[0].as_f64


def multiply_add_odd(a, b, c):
    """a * b + c, to odd: if it is inexact, the one of its two neighbours whose last bit is 1."""
    if has_directed_fma():
        down = _directed(a, b, c, _DOWN)
        return choose((down.bits & 1) != 0, down, _directed(a, b, c, _UP))
    _, s, error = _two_sum(a, b, c)
    toward_zero, inexact = _toward_zero_bits(s, error)
    return (toward_zero | choose(inexact, U64x8.spread(s.builder, 1), 0)).as_f64


def far_add_down(a, b, c):
    """a * b + c, toward negative, where |c| <= a * b."""
    if has_directed_fma():
        return _directed(a, b, c, _DOWN)
    s = multiply_add(a, b, c)
    above = multiply_add(a, -b, s) > c
    return (s.bits - choose(above, U64x8.spread(s.builder, 1), 0)).as_f64


def far_add_odd(a, b, c):
    """a * b + c, to odd, where |c| <= a * b."""
    if has_directed_fma():
        return multiply_add_odd(a, b, c)
    s = multiply_add(a, b, c)
    back, one = multiply_add(a, -b, s), U64x8.spread(s.builder, 1)
    return ((s.bits - choose(back > c, one, 0)) | choose((back > c) | (back < c), one, 0)).as_f64


# -- passes ------------------------------------------------------------------------------------------------------------


class Matrix:
    """A C-contiguous matrix of eight-byte elements in memory, whose rows are read and written."""

    def __init__(self, context, builder, kind, value):
        array = context.make_array(kind)(context, builder, value)
        self.context, self.builder, self.data = context, builder, array.data
        self.height, self.width = cgutils.unpack_tuple(builder, array.shape)

    def row(self, number):
        return Row(self, number, self.builder.gep(self.data, [self.builder.mul(number, self.width)]))


class Row(NamedTuple):
    """A row of a matrix: its number, and a pointer to its first element."""

    matrix: Matrix
    number: ir.Value
    start: ir.Value

    def check(self, what, column, count, per_element=1):
        """In the checked build: `count` values from a column on are in the row, with `per_element` in an element."""
        matrix = self.matrix
        builder, integer = matrix.builder, self.number.type
        last = builder.sub(matrix.height, integer(1))
        width = builder.mul(matrix.width, integer(per_element))
        stop = builder.add(column, count)
        pairs = (self.number, last), (column, width), (count, width), (stop, width)
        check(matrix.context, builder, what, *pairs)


class Columns:
    """The position of a pass: it reads and writes columns of rows from here."""

    def __init__(self, builder, column):
        self.builder, self.column = builder, column

    def below(self, row, n):
        """The n-th row after a row."""
        builder, n = self.builder, ir.Constant(_I64, n)
        return row._replace(
            number=builder.add(row.number, n), start=builder.gep(row.start, [builder.mul(row.matrix.width, n)])
        )

    def _place(self, what, row, skip):
        column = self.builder.add(self.column, ir.Constant(_I64, skip)) if skip else self.column
        row.check(what, column, ir.Constant(_I64, LANES))
        return self.builder.bitcast(self.builder.gep(row.start, [column]), ir.PointerType(F64x8.llvm()))

    def load(self, row, skip=0):
        return F64x8(self.builder, self.builder.load(self._place("a row that a pass reads", row, skip), align=8))

    def store(self, row, x, skip=0):
        self.builder.store(x.value, self._place("a row that a pass writes", row, skip), align=8)

    def load_u32(self, row):
        """Sixteen uint32 of a row of uint32."""
        builder = self.builder
        row.check("a row of uint32 that a pass reads", self.column, ir.Constant(_I64, U32x16.lanes), 2)
        place = builder.bitcast(row.start, ir.PointerType(_I32))
        place = builder.bitcast(builder.gep(place, [self.column]), ir.PointerType(U32x16.llvm()))
        return U32x16(builder, builder.load(place, align=8))


def _loop(builder, stop, step, emit):
    """Run `emit(j)` for j = 0, step, 2 * step, ... below `stop`, not unrolled: unrolling is slow to compile."""
    integer = stop.type
    before = builder.block
    again, after = builder.append_basic_block("columns"), builder.append_basic_block("done")
    builder.cbranch(builder.icmp_signed(">", stop, integer(0)), again, after)
    builder.position_at_end(again)
    j = builder.phi(integer)
    j.add_incoming(integer(0), before)
    emit(j)
    following = builder.add(j, integer(step))
    j.add_incoming(following, builder.block)  # `emit` may have started other blocks
    branch = builder.cbranch(builder.icmp_signed("<", following, stop), again, after)
    disable_unrolling(builder, branch, again)
    builder.position_at_end(after)


def _emit_loop(body, kind, checked, lanes, context, builder, matrix_type, args):
    """Emit the loop of a pass; `args`: work, width, rows, values, words, as LLVM values."""
    work, width, *tuples = args
    numbers, values, words = (cgutils.unpack_tuple(builder, x) for x in tuples)
    matrix = Matrix(context, builder, matrix_type, work)
    rows = [matrix.row(number) for number in numbers]
    values = [F64x8.spread(builder, x) for x in values]
    _loop(builder, width, lanes, lambda j: body(kind, checked, Columns(builder, j), rows, values, words))


def row_pass(body, lanes=lambda kind: LANES):
    """Return a function for kernels, f(kind, checked, work, width, rows, values, words): a loop over columns below
    `width`.

    `kind` and `checked` are constants, `work` is a C-contiguous float64 matrix, `rows` a tuple of row numbers, `values`
    one of float64 and `words` one of uint32. `body` gets kind, checked, Columns, the rows, the values as F64x8 and the
    words as LLVM scalars; it processes `lanes(kind)` columns.
    """

    def typer(typingctx, kind, checked, work, width, rows, values, words):
        if not (isinstance(kind, types.Literal) and isinstance(checked, types.Literal)):
            return None

        def codegen(context, builder, sig, args):
            constants = kind.literal_value, checked.literal_value, lanes(kind.literal_value)
            _emit_loop(body, *constants, context, builder, sig.args[2], args[2:])
            return context.get_dummy_value()

        return types.none(kind, checked, work, types.int64, rows, values, words), codegen

    typer.__name__ = body.__name__
    return intrinsic(prefer_literal=True)(typer)


def row_pass_of(body, variants, lanes=lambda kind: LANES):
    """Return a function like that of `row_pass`, with `kind` and `checked` known at run time: it branches to a loop.

    `variants` maps each kind to the values of `checked` it has loops for: (False,), (True,) or (False, True). A kind
    with one loop always takes that. For any other kind the function does nothing.
    """

    def typer(typingctx, kind, checked, work, width, rows, values, words):
        def codegen(context, builder, sig, args):
            def emit(constant, flag):
                _emit_loop(body, constant, flag, lanes(constant), context, builder, sig.args[2], args[2:])

            end = builder.append_basic_block("after passes")
            switch = builder.switch(args[0], end)
            for constant, flags in variants.items():
                block = builder.append_basic_block("pass")
                switch.add_case(args[0].type(constant), block)
                builder.position_at_end(block)
                if len(flags) == 1:
                    emit(constant, flags[0])
                else:
                    with builder.if_else(args[1]) as (then, otherwise):
                        with then:
                            emit(constant, True)
                        with otherwise:
                            emit(constant, False)
                builder.branch(end)
            builder.position_at_end(end)
            return context.get_dummy_value()

        return types.none(types.int64, types.boolean, work, types.int64, rows, values, words), codegen

    typer.__name__ = body.__name__
    return intrinsic(typer)


def row_pass_with_least(name, body):
    """Return a function for kernels, f(work, width, rows, values): a loop over columns below `width`.

    The arguments are those of `row_pass`. `body` gets Columns, the rows and the values, processes LANES columns and
    returns an F64x8 of magnitudes. The function returns the code of the least of them, as uint64.
    """

    def typer(typingctx, work, width, rows, values):
        def codegen(context, builder, sig, args):
            matrix = Matrix(context, builder, sig.args[0], args[0])
            places = [matrix.row(number) for number in cgutils.unpack_tuple(builder, args[2])]
            numbers = [F64x8.spread(builder, x) for x in cgutils.unpack_tuple(builder, args[3])]
            least = cgutils.alloca_once_value(builder, ir.Constant(F64x8.llvm(), [float("inf")] * LANES))

            def step(j):
                x = body(Columns(builder, j), places, numbers)
                builder.store(minimum(x, F64x8(builder, builder.load(least))).value, least)

            _loop(builder, args[1], LANES, step)
            return _reduce(builder, "umin", F64x8(builder, builder.load(least)).bits.value)

        return types.uint64(work, types.int64, rows, values), codegen

    typer.__name__ = name
    return intrinsic(typer)


def row_extreme(name, body, reduce, neutral):
    """Return a function for kernels, f(work, width, row): the extreme of the uint64 that `body` makes of a row."""
    instruction = {"umax": ">", "umin": "<"}[reduce]

    def typer(typingctx, work, width, row):
        def codegen(context, builder, sig, args):
            place = Matrix(context, builder, sig.args[0], args[0]).row(args[2])
            start = ir.Constant(U64x8.llvm(), [neutral] * LANES)
            extreme = cgutils.alloca_once_value(builder, start)

            def step(j):
                x, y = body(Columns(builder, j).load(place)), U64x8(builder, builder.load(extreme))
                builder.store(choose(x._compare("icmp_unsigned", instruction, y), x, y).value, extreme)

            _loop(builder, args[1], LANES, step)
            return _reduce(builder, reduce, builder.load(extreme))

        return types.uint64(work, types.int64, types.int64), codegen

    typer.__name__ = name
    return intrinsic(typer)


largest_code = row_extreme("largest_code", lambda x: x.bits & MAGNITUDE, "umax", 0)
"""The code of the largest magnitude of a row, or of a NaN."""
least_code_less_1 = row_extreme("least_code_less_1", lambda x: (x.bits & MAGNITUDE) - 1, "umin", (1 << 64) - 1)
"""The code of the least non-zero magnitude of a row, less 1; all bits set if all are zeros."""


@intrinsic
def copy_columns(typingctx, target, i, j, source, k, l, n):  # noqa: E741
    """target[i, j : j + n] = source[k, l : l + n], of C-contiguous float64 matrices."""

    def codegen(context, builder, sig, args):
        to = Matrix(context, builder, sig.args[0], args[0]).row(args[1])
        place = Matrix(context, builder, sig.args[3], args[3]).row(args[4])
        to.check("a row that is copied to", args[2], args[6])
        place.check("a row that is copied", args[5], args[6])
        cgutils.raw_memcpy(builder, builder.gep(to.start, [args[2]]), builder.gep(place.start, [args[5]]), args[6], 8)
        return context.get_dummy_value()

    return types.none(target, types.int64, types.int64, source, types.int64, types.int64, types.int64), codegen


# -- elements of a flat array, many at a time --------------------------------------------------------------------------

SIXTEEN = 16
GROUP = 64
"""Elements whose comparisons fill the bits of a uint64."""


def _elements(context, builder, kind, value, start, count):
    """A pointer to `count` elements of a flat C-contiguous array as one vector, its type, and an element's bytes."""
    array = context.make_array(kind)(context, builder, value)
    (length,) = cgutils.unpack_tuple(builder, array.shape)
    stop = builder.add(start, ir.Constant(_I64, count))
    check(context, builder, f"a part of {count} elements", (start, length), (stop, length))
    vector = ir.VectorType(context.get_data_type(kind.dtype), count)
    return builder.bitcast(builder.gep(array.data, [start]), ir.PointerType(vector)), vector, kind.dtype.bitwidth // 8


def _sixteen(context, builder, kind, value, start):
    return _elements(context, builder, kind, value, start, SIXTEEN)


def _in_all_lanes(builder, vector, x):
    nothing = ir.Constant(vector, ir.Undefined)
    lanes = ir.Constant(ir.VectorType(_I32, vector.count), [0] * vector.count)
    return builder.shuffle_vector(builder.insert_element(nothing, x, ir.Constant(_I32, 0)), nothing, lanes)


def _reduce(builder, operation, vector):
    """The sum ("add"), the largest ("umax") or the least ("umin") of the elements of a vector."""
    name = f"llvm.vector.reduce.{operation}.v{vector.type.count}i{vector.type.element.width}"
    kind = ir.FunctionType(vector.type.element, [vector.type])
    return builder.call(builder.module.globals.get(name) or ir.Function(builder.module, kind, name), [vector])


@intrinsic
def store_sixteen(typingctx, out, start, number):
    """out[start : start + 16] = number, of the dtype of a flat C-contiguous array."""

    def codegen(context, builder, sig, args):
        place, vector, size = _sixteen(context, builder, sig.args[0], *args[:2])
        builder.store(_in_all_lanes(builder, vector, args[2]), place, align=size)
        return context.get_dummy_value()

    return types.none(out, types.int64, out.dtype), codegen


@intrinsic
def load_word(typingctx, data, start):
    """Eight bytes of a flat C-contiguous array of uint8 from `start` on, as a uint64: the first one is the lowest."""

    def codegen(context, builder, sig, args):
        place, _, _ = _elements(context, builder, sig.args[0], *args, 8)
        return builder.load(builder.bitcast(place, ir.PointerType(_I64)), align=1)

    return types.uint64(data, types.int64), codegen


@intrinsic
def largest_of_sixteen(typingctx, codes, start, flip, keep, limit):
    """The largest (code ^ flip) & keep that is at most `limit`, or 0, of codes[start : start + 16].

    All are uint32 or uint64. LLVM does not make one vector of a loop over sixteen elements.
    """
    kind = codes.dtype

    def codegen(context, builder, sig, args):
        place, vector, size = _sixteen(context, builder, sig.args[0], *args[:2])
        others = [_in_all_lanes(builder, vector, x) for x in args[2:]]
        code = builder.and_(builder.xor(builder.load(place, align=size), others[0]), others[1])
        zero = ir.Constant(vector, [0] * SIXTEEN)
        code = builder.select(builder.icmp_unsigned("<=", code, others[2]), code, zero)
        return _reduce(builder, "umax", code)

    return kind(codes, types.int64, kind, kind, kind), codegen


def _comparison(name, operator):
    """A comparison of 64 unsigned integers of an array with a number. Bit i of the result is that of element i."""

    def typer(typingctx, array, start, value):
        kind = array.dtype

        def codegen(context, builder, sig, args):
            place, vector, size = _elements(context, builder, sig.args[0], *args[:2], GROUP)
            elements = builder.load(place, align=size)
            lanes = builder.icmp_unsigned(operator, elements, _in_all_lanes(builder, vector, args[2]))
            return builder.bitcast(lanes, _I64)

        return types.uint64(array, types.int64, kind), codegen

    typer.__name__ = name
    return intrinsic(typer)


@intrinsic
def differ(typingctx, a, b, start):
    """Whether any of 64 unsigned integers of an array differs from that of another array of its type."""

    def codegen(context, builder, sig, args):
        places = [_elements(context, builder, sig.args[n], args[n], args[2], GROUP) for n in (0, 1)]
        x, y = (builder.load(place, align=size) for place, _, size in places)
        return builder.icmp_unsigned("!=", builder.bitcast(builder.icmp_unsigned("!=", x, y), _I64), _I64(0))

    return types.boolean(a, b, types.int64), codegen


equal_to = _comparison("equal_to", "==")
less_than = _comparison("less_than", "<")


_BYTES = 32
"""Lanes of the loops over bytes: AVX2 compares them with one instruction, and the counts stay in vectors."""


def _parts(context, builder, kind, value, size):
    """Load the first `size` elements of an array of uint8, 32 at a time."""
    for start in range(0, size, _BYTES):
        place, _, _ = _elements(context, builder, kind, value, ir.Constant(_I64, start), _BYTES)
        yield builder.load(place, align=1)


def occurrences(size):
    """Return a function for kernels, f(array, x): how often x and x - 1 are in the first `size` elements of an array.

    `x` and the elements are uint8. `size` is at most 255 * 32: the counts of the lanes are bytes. The loop is unrolled.
    """

    def typer(typingctx, array, x):
        def codegen(context, builder, sig, args):
            lanes, wide = (ir.VectorType(ir.IntType(bits), _BYTES) for bits in (8, 16))
            wanted = [_in_all_lanes(builder, lanes, builder.sub(args[1], ir.IntType(8)(less))) for less in (0, 1)]
            counts = [ir.Constant(lanes, [0] * _BYTES)] * 2
            for part in _parts(context, builder, sig.args[0], args[0], size):
                equal = [builder.sext(builder.icmp_unsigned("==", part, w), lanes) for w in wanted]  # -1 where equal
                counts = [builder.sub(*both) for both in zip(counts, equal, strict=True)]
            sums = [_reduce(builder, "add", builder.zext(count, wide)) for count in counts]
            return context.make_tuple(builder, sig.return_type, [builder.zext(x, _I64) for x in sums])

        return types.UniTuple(types.int64, 2)(array, types.uint8), codegen

    typer.__name__ = "occurrences"
    return intrinsic(typer)


def largest(size):
    """Return a function for kernels, f(array): the largest of the first `size` elements of an array of uint8."""

    def typer(typingctx, array):
        def codegen(context, builder, sig, args):
            first, *others = _parts(context, builder, sig.args[0], args[0], size)
            for part in others:
                first = builder.select(builder.icmp_unsigned(">", first, part), first, part)
            return _reduce(builder, "umax", first)

        return types.uint8(array), codegen

    typer.__name__ = "largest"
    return intrinsic(typer)


_LINE = 64
"""The bytes of a cache line. Where lines are longer, some are requested twice."""


@intrinsic
def prefetch(typingctx, array, start, stop):
    """Request the elements from `start` to `stop` of a flat C-contiguous array for the second cache level.

    They may be outside the array: a processor ignores a request for memory that does not exist.
    """

    def codegen(context, builder, sig, args):
        data = context.make_array(sig.args[0])(context, builder, args[0]).data
        pointer, size = ir.PointerType(ir.IntType(8)), ir.Constant(_I64, sig.args[0].dtype.bitwidth // 8)
        start, stop = builder.mul(args[1], size), builder.mul(args[2], size)
        place, name = builder.bitcast(data, pointer), "llvm.prefetch.p0"
        kind = ir.FunctionType(ir.VoidType(), [pointer, _I32, _I32, _I32])
        request = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
        read, second_level, of_data = (ir.Constant(_I32, x) for x in (0, 2, 1))

        def emit(j):
            builder.call(request, [builder.gep(place, [builder.add(start, j)]), read, second_level, of_data])

        _loop(builder, builder.sub(stop, start), _LINE, emit)
        return context.get_dummy_value()

    return types.none(array, types.int64, types.int64), codegen
