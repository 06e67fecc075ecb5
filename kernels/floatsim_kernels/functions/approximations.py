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
)
from ..runtime.jit import inline, kernel

COMPUTED, ARGUMENT = 1, 2
"""Entries of `special`: the computed result, and the argument itself. They are codes that no function returns."""

LEFT, RIGHT, FIRST = 0, 5, 10
"""The lowest bits of three fields of `layout`: the shifts of the significand, and the first segment. The upper nine bits
are what is added to the exponent field of the value."""

INTEGERS = ("leading", "negates", "whole", "quarter", "turns", "sign", "low_bits", "largest")
FLOATS = ("exponent_unit", "scale")

_0, _1, _5, _7, _8, _10, _23, _31, _127 = (np.uint32(n) for n in (0, 1, 5, 7, 8, 10, 23, 31, 127))
_TRAILING = np.uint32((1 << 23) - 1)
_LEADING = np.uint32(1 << 23)
_SIGN = np.uint32(1 << 31)
_COMPUTED, _ARGUMENT = np.uint32(COMPUTED), np.uint32(ARGUMENT)
_29 = np.uint64(29)
_BYTE = np.uint32(255)


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
    for i in range(codes.size):
        code = codes[i]
        top, trailing = right32(code, _23), and32(code, _TRAILING)
        at = layout[top]
        x = right32(left32(or32(trailing, leading), and32(at, _31)), and32(right32(at, _5), _31))
        negative = and32(subtract32(_0, right32(code, _31)), negates)
        carry = and32(negative, _1) if and32(x, _TRAILING) == _0 else _0
        x = add32(add32(xor32(x, negative), carry), quarter)
        odd = subtract32(_0, and32(right32(x, _23), turns))
        part = and32(xor32(x, odd), _TRAILING)
        segment = add32(and32(right32(at, _10), _BYTE), right32(part, low_bits))
        low = and32(part, low_mask)
        square = truncated_square(right32(low, dropped))
        value = rows[segment, 0] + rows[segment, 1] * np.float64(np.int32(low))
        value += rows[segment, 2] * np.float64(np.int32(square))
        value += np.float64(np.int32(subtract32(and32(top, _BYTE), _127))) * exponent_unit
        value = np.floor(value * scale)
        below = value < 0.0
        value = -1.0 - value if below else value
        bits = low32(np.int64(bits_from_double(value) >> _29))
        bits = add32(add32(bits, and32(at, np.uint32(0xFF800000))), and32(x, whole))
        field = np.int32(bits)
        result = _0 if field < np.int32(_LEADING) else bits
        result = largest if field > np.int32(largest) else result
        result = _0 if value == 0.0 else result
        signs = xor32(and32(code, sign), and32(left32(x, _7), left32(turns, _31)))
        signs = or32(signs, _SIGN if below else _0)
        result = or32(result, signs)
        entry = special[add32(left32(top, _1), _1 if trailing == _0 else _0)]
        result = result if entry == _COMPUTED else entry
        out[i] = code if entry == _ARGUMENT else result


@kernel
def turns(codes, factor, out):
    """Write codes of the arguments times an FP32 factor, truncated, subnormal numbers as zeros; infinities and NaN stay."""
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
