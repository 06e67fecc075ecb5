"""The functions of a GPU's special-function unit: one loop, whose tables and numbers select the function.

floatsim/reference/special_functions.py is the readable definition. The arithmetic here is exact: integers, and float64
numbers below 2**53. So the processor's rounding direction and its treatment of subnormals change nothing.
"""

import numpy as np

from ..runtime.intrinsics import (
    add32,
    and32,
    bits_from_double,
    left32,
    low32,
    multiply32,
    or32,
    right32,
    subtract32,
    wide_vectors,
    xor32,
    zero_array,
)
from ..runtime.jit import inline, kernel

COMPUTED, ARGUMENT = 1, 2
"""Entries of `special`: the computed result, and the argument itself. They are codes that no function returns."""

LEFT, RIGHT, FIRST = 0, 5, 10
"""The lowest bits of three fields of `layout`: the shifts of the significand, and the first segment. The upper nine
bits are what is added to the exponent field of the value."""

INTEGERS = ("leading", "negates", "whole", "quarter", "turns", "sign", "low_bits", "largest")
FLOATS = ("exponent_unit", "scale")

_0, _1, _5, _7, _8, _10, _23, _31, _127 = (np.uint32(n) for n in (0, 1, 5, 7, 8, 10, 23, 31, 127))
_TRAILING = np.uint32((1 << 23) - 1)
_LEADING = np.uint32(1 << 23)
_SIGN = np.uint32(1 << 31)
_COMPUTED, _ARGUMENT = np.uint32(COMPUTED), np.uint32(ARGUMENT)
_UPPER = np.uint32(0xFF800000)
_29 = np.uint64(29)
_BYTE = np.uint32(255)

_CHUNK = 512
_AT, _ENTRY, _X, _SEGMENT, _LOW, _SQUARE = range(6)
"""The rows of the words of a chunk. Loops that read tables are apart from the others, which are vectorized."""


@inline
def truncated_square(y):
    """The partial products of a 15-bit number times itself whose weight is at least 2**15, in units of 2**15.

    With y = 2**8 high + low these are high * high, and bit i of high times low >> 6 - i. low * low is left out.
    """
    high, low = right32(y, _8), and32(y, _BYTE)
    total = left32(multiply32(high, high), _1)
    for i in range(7):
        bit = and32(right32(high, np.uint32(i)), _1)
        total = add32(total, multiply32(bit, right32(low, np.uint32(6 - i))))
    return total


@kernel
def approximate(codes, layout, special, rows, integers, floats, out):
    """Write the codes of a function of FP32 codes.

    `layout` has an entry for each sign and exponent field, `special` two: for other trailing significands and for 0.
    `rows` holds the coefficients of the segments, (segments, 3), with their shifts and the constant. `integers` and
    `floats` are the numbers of INTEGERS and FLOATS:

    - leading: the leading bit of the significand if the argument is read as fixed point, else 0;
    - negates: all ones if negative arguments are negated, else 0;
    - whole: the bits of the fixed-point argument that are added to the exponent;
    - quarter, turns: the quarter turns that are added, and 1 for functions of turns;
    - sign: the sign bit if the result has the sign of the argument, else 0;
    - low_bits: the number of bits of the operand;
    - largest: the largest result;
    - exponent_unit: what 1 of the exponent adds to the polynomial; scale: the unit of the sum, a power of two.
    """
    wide_vectors()
    leading, negates, whole, quarter = integers[0], integers[1], integers[2], integers[3]
    turns, sign, low_bits, largest = integers[4], integers[5], integers[6], integers[7]
    exponent_unit, scale = floats[0], floats[1]
    low_mask, dropped = subtract32(left32(_1, low_bits), _1), subtract32(low_bits, np.uint32(15))
    words, numbers = zero_array((6, _CHUNK), np.uint32), zero_array((3, _CHUNK), np.float64)
    for start in range(0, codes.size, _CHUNK):
        arguments, results = codes[start : start + _CHUNK], out[start : start + _CHUNK]
        for i in range(arguments.size):
            top = right32(arguments[i], _23)
            words[_AT, i] = layout[top]
            words[_ENTRY, i] = special[add32(left32(top, _1), _1 if and32(arguments[i], _TRAILING) == _0 else _0)]
        for i in range(arguments.size):
            code, at = arguments[i], words[_AT, i]
            x = or32(and32(code, _TRAILING), leading)
            x = right32(left32(x, and32(at, _31)), and32(right32(at, _5), _31))
            negative = and32(subtract32(_0, right32(code, _31)), negates)
            carry = and32(negative, _1) if and32(x, _TRAILING) == _0 else _0
            x = add32(add32(xor32(x, negative), carry), quarter)
            odd = subtract32(_0, and32(right32(x, _23), turns))
            part = and32(xor32(x, odd), _TRAILING)
            low = and32(part, low_mask)
            words[_X, i] = x
            words[_SEGMENT, i] = add32(and32(right32(at, _10), _BYTE), right32(part, low_bits))
            words[_LOW, i] = low
            words[_SQUARE, i] = truncated_square(right32(low, dropped))
        for i in range(arguments.size):
            segment = words[_SEGMENT, i]
            numbers[0, i] = rows[segment, 0]
            numbers[1, i] = rows[segment, 1]
            numbers[2, i] = rows[segment, 2]
        for i in range(arguments.size):
            code, at, x, entry = arguments[i], words[_AT, i], words[_X, i], words[_ENTRY, i]
            value = numbers[0, i] + numbers[1, i] * np.float64(np.int32(words[_LOW, i]))
            value += numbers[2, i] * np.float64(np.int32(words[_SQUARE, i]))
            exponent = np.int32(subtract32(and32(right32(code, _23), _BYTE), _127))
            value = np.floor((value + np.float64(exponent) * exponent_unit) * scale)
            below = value < 0.0
            value = -1.0 - value if below else value
            bits = low32(np.int64(bits_from_double(value) >> _29))
            bits = add32(add32(bits, and32(at, _UPPER)), and32(x, whole))
            result = _0 if np.int32(bits) < np.int32(_LEADING) else bits
            result = largest if np.int32(bits) > np.int32(largest) else result
            result = _0 if value == 0.0 else result
            signs = xor32(and32(code, sign), and32(left32(x, _7), left32(turns, _31)))
            result = or32(or32(result, signs), _SIGN if below else _0)
            result = result if entry == _COMPUTED else entry
            results[i] = code if entry == _ARGUMENT else result


@kernel
def turns(codes, factor, out):
    """Write codes of arguments times an FP32 factor, truncated, subnormals as zeros. Infinities and NaN stay."""
    wide_vectors()
    significand = np.float64(np.int32(or32(and32(factor, _TRAILING), _LEADING)))
    exponent = subtract32(right32(factor, _23), _127)
    for i in range(codes.size):
        code = codes[i]
        field = and32(right32(code, _23), _BYTE)
        product = np.float64(np.int32(or32(and32(code, _TRAILING), _LEADING))) * significand
        bits = low32(np.int64(bits_from_double(product) >> _29))
        moved = subtract32(add32(field, exponent), np.uint32(1023 + 46))
        result = add32(bits, left32(moved, _23))
        result = _0 if np.int32(result) < np.int32(_LEADING) else result
        result = _0 if field == _0 else result
        result = or32(result, and32(code, _SIGN))
        out[i] = code if field == _BYTE else result
