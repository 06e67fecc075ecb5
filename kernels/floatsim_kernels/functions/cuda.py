"""CUDA's functions in float32 as programs: one loop carries out any sequence of operations, without events.

A program has rows of an operation and of registers, whose numbers are float32 of a chunk of arguments. Each operation
is a vectorized loop over the chunk. floatsim/tensorcore/cuda_functions.py has the sequences, and
floatsim/emulator/elementwise/cuda_programs.py writes the programs. Arithmetic is the processor's, ties to even: the
kernel needs `cpu.environment_is_default()` and `cpu.has_fma()`.
"""

import numba
import numpy as np

from ..runtime.intrinsics import bits_from_float, multiply_add, wide_vectors
from ..runtime.jit import kernel_of
from .approximations import approximate

OPERATIONS = (
    "add", "subtract", "multiply", "divide", "fma", "add_toward_zero", "sqrt", "truncate", "negative", "absolute",
    "select", "greater", "greater_equal", "both", "is_odd", "power_of_two", "split", "with_sign_of", "reduce_large",
    "approximate",
)  # fmt: skip
"""The operations, by their numbers in a program. A row is (operation, result, a, b, c), with -1 for no register.

Conditions are 1 and 0 as codes. `split` and `reduce_large` have two results; the register of the second is c, and the
place of `least` of `split` is b. b of `approximate` is the place of its tables.
"""
(
    _ADD, _SUBTRACT, _MULTIPLY, _DIVIDE, _FMA, _ADD_TOWARD_ZERO, _SQRT, _TRUNCATE, _NEGATIVE, _ABSOLUTE, _SELECT,
    _GREATER, _GREATER_EQUAL, _BOTH, _IS_ODD, _POWER_OF_TWO, _SPLIT, _WITH_SIGN_OF, _REDUCE_LARGE, _APPROXIMATE,
) = range(20)  # fmt: skip

CHUNK = 512
"""The numbers of a register. Fewer take up to twice the time, and 1024 save nothing (AVX2, November 2026)."""

_0, _1, _23, _127, _255 = (np.uint32(n) for n in (0, 1, 23, 127, 255))
_SIGN, _MAGNITUDE, _INFINITY, _NAN = (np.uint32(n) for n in (0x80000000, 0x7FFFFFFF, 0x7F800000, 0x7FFFFFFF))
_LEADING, _TRAILING = np.uint32(1 << 23), np.uint32((1 << 23) - 1)
_LARGE = np.uint32(0x47CE4780)
"""The code of 105615: `reduce_large` of smaller numbers gives 0, because no sequence reads it."""
_32, _61, _62, _ONE, _THREE = np.uint64(32), np.int64(61), np.int64(62), np.int64(1), np.int64(3)
_LOW = np.uint64(0xFFFFFFFF)
_QUARTER_TURN = np.pi / 2 * 2.0**-62


def _array(dtype, dimensions, readonly=True):
    return numba.types.Array(dtype, dimensions, "C", readonly=readonly)


@kernel_of((
    _array(numba.uint32, 1), _array(numba.int32, 2), _array(numba.uint32, 1), _array(numba.uint32, 2),
    _array(numba.uint32, 2), _array(numba.float64, 3), _array(numba.uint32, 2), _array(numba.float64, 2),
    _array(numba.uint64, 2), _array(numba.uint32, 2, False), _array(numba.float32, 2, False),
    _array(numba.uint32, 1, False),
))  # fmt: skip
def run(codes, program, constants, layouts, specials, rows, integers, floats, words_of_pi, words, numbers, out):
    """Write the results of a program. Every NaN is 0x7FFFFFFF.

    The argument is in register 0, the constants in the next ones, and the result in that of the last row. `layouts` to
    `floats` are the tables of `approximate`, function by function, and `words_of_pi` those of Payne and Hanek, of 32
    bits each. `words` are the registers, and `numbers` is the same memory as float32.
    """
    wide_vectors()
    result = program[program.shape[0] - 1, 1]
    for register in range(constants.size):
        for i in range(min(CHUNK, codes.size)):
            words[register + 1, i] = constants[register]
    for start in range(0, codes.size, CHUNK):
        n = min(CHUNK, codes.size - start)
        for i in range(n):
            words[0, i] = codes[start + i]
        for step in range(program.shape[0]):
            operation, first = program[step, 0], program[step, 2]
            to, a = numbers[program[step, 1], :n], numbers[first, :n]
            b, c = numbers[max(program[step, 3], 0), :n], numbers[max(program[step, 4], 0), :n]
            to_words, a_words = words[program[step, 1], :n], words[first, :n]
            b_words, c_words = words[max(program[step, 3], 0), :n], words[max(program[step, 4], 0), :n]
            if operation == _FMA:
                for i in range(n):
                    to[i] = multiply_add(a[i], b[i], c[i])
            elif operation == _SELECT:
                for i in range(n):
                    to_words[i] = b_words[i] if a_words[i] != _0 else c_words[i]
            elif operation == _ADD:
                for i in range(n):
                    to[i] = a[i] + b[i]
            elif operation == _SUBTRACT:
                for i in range(n):
                    to[i] = a[i] - b[i]
            elif operation == _MULTIPLY:
                for i in range(n):
                    to[i] = a[i] * b[i]
            elif operation == _DIVIDE:
                for i in range(n):
                    to[i] = a[i] / b[i]
            elif operation == _GREATER:
                for i in range(n):
                    to_words[i] = _1 if a[i] > b[i] else _0
            elif operation == _GREATER_EQUAL:
                for i in range(n):
                    to_words[i] = _1 if a[i] >= b[i] else _0
            elif operation == _BOTH:
                for i in range(n):
                    to_words[i] = a_words[i] & b_words[i]
            elif operation == _NEGATIVE:
                for i in range(n):
                    to_words[i] = a_words[i] ^ _SIGN
            elif operation == _ABSOLUTE:
                for i in range(n):
                    to_words[i] = a_words[i] & _MAGNITUDE
            elif operation == _WITH_SIGN_OF:
                for i in range(n):
                    to_words[i] = a_words[i] & _MAGNITUDE | b_words[i] & _SIGN
            elif operation == _APPROXIMATE:
                at = program[step, 3]
                approximate(a_words, layouts[at], specials[at], rows[at], integers[at], floats[at], to_words)
            elif operation == _POWER_OF_TWO:
                for i in range(n):
                    to_words[i] = (np.uint32(np.int32(a[i])) + _127) << _23
            elif operation == _IS_ODD:
                for i in range(n):
                    whole = a[i] if abs(a[i]) < np.float32(1 << 24) else np.float32(0)  # NaN is even
                    to_words[i] = np.uint32(np.int32(whole)) & _1
            elif operation == _SPLIT:
                least = constants[program[step, 3]]
                for i in range(n):
                    moved = np.int32(a_words[i] - least) >> np.int32(23)
                    to[i] = np.float32(moved)
                    c_words[i] = a_words[i] - (np.uint32(moved) << _23)
            elif operation == _SQRT:
                for i in range(n):
                    to[i] = np.sqrt(a[i])
            elif operation == _TRUNCATE:
                for i in range(n):
                    to[i] = np.trunc(a[i])
            elif operation == _ADD_TOWARD_ZERO:
                for i in range(n):
                    # D. E. Knuth, TAOCP 2, 4.2.2, theorem B: total + error is a + b
                    total = a[i] + b[i]
                    back = total - a[i]
                    error = (a[i] - (total - back)) + (b[i] - back)
                    beyond = error < np.float32(0) if total > np.float32(0) else error > np.float32(0)
                    to_words[i] = bits_from_float(total) - (_1 if beyond and total != np.float32(0) else _0)
            else:
                for i in range(n):
                    code = a_words[i]
                    size = code & _MAGNITUDE
                    to_words[i], c_words[i] = _0, _0
                    if _LARGE <= size < _INFINITY:
                        word = np.int64((size >> _23) - _127)
                        significand = np.uint64(code & _TRAILING | _LEADING)
                        low = significand * words_of_pi[word, 0] >> _32
                        middle = significand * words_of_pi[word, 1] + low
                        high = significand * words_of_pi[word, 2] + (middle >> _32)
                        product = np.int64(high << _32 | middle & _LOW)
                        turns = (product >> _61) + _ONE >> _ONE
                        rest = np.float32(np.float64(product - (turns << _62)) * _QUARTER_TURN)
                        to_words[i] = bits_from_float(rest) ^ code & _SIGN
                        quarter = bits_from_float(np.float32(turns & _THREE))
                        c_words[i] = quarter ^ code & _SIGN if quarter != _0 else _0
        for i in range(n):
            code = words[result, i]
            out[start + i] = _NAN if code & _MAGNITUDE > _INFINITY else code
