"""Sequential products in float32 whose events are counted: each product and each sum is rounded, ties to even, to BF16
or to a format given by parameters.

Operands are finite, and their products are exact in float32 where they do not overflow. A rounded sum r of two numbers
x and y of one format is exact where r - x == y and r - y == x, because the difference from the larger number is exact
(T. J. Dekker, 1971). A tiny sum of two numbers of a format is exact, so it neither underflows nor is flushed.

The kernels take steps of whole rows. A step is first taken by the *fast path*: the style RNE of rounding/float32.py, on
scaled numbers. It counts the common events: inexact products, inexact sums and absorbed products. A row with a tiny or
a non-finite number may have other events, and the style RNE may be wrong for it. Such a step is repeated by the
*general path* on unscaled numbers, which writes an event word for each column. The kernel counts the events of these
words, and looks for their places, only if a word of the row has the event's bit. `tiny_products` counts underflow alone
and computes no sums.

a (M, K), b (K, N): float32. out (ranges, M, N): start values on entry, sums on exit. `counts` (len(EVENTS),), int64,
grows by the events. `first` (len(PLACES), M, N), int32, takes the least place of each event: where[k] for a product,
the largest `where` up to k for a sum. `params`: see COUNTING_FIELDS. `fast_params`: FAST_FIELDS of
rounding/float32.py, with a scale of 0 where that style is not for the format. The kernels need
`cpu.environment_is_default()`.
"""

import functools

import numba
import numpy as np

from ..rounding.float32 import (
    ALL,
    EXPONENT,
    FACTOR,
    MAGNITUDE,
    RNE,
    RNE_FIELDS,
    SCALE,
    SIGN,
    UNSCALE,
    fields_of,
    rounded_product,
    rounded_to_bf16,
    rounded_to_format,
    veltkamp_rne,
)
from ..runtime.intrinsics import add32, and32, bits_from_float, float_from_bits, or32, right32, wide_vectors, zero_array
from ..runtime.jit import inline, kernel_of

EVENTS = (
    "product inexact", "product underflow", "product overflow", "product flushed", "product subnormal", "product nan",
    "sum inexact", "sum overflow", "sum subnormal", "sum absorbed", "sum invalid", "sum nan",
)  # fmt: skip
"""The events of the bits of an event word."""
_NONE, _1 = np.uint32(0), np.uint32(1)
_P_INEXACT, _P_UNDERFLOW, _P_OVERFLOW, _P_FLUSHED, _P_SUBNORMAL, _P_NAN = (np.uint32(1 << i) for i in range(6))
_S_INEXACT, _S_OVERFLOW, _S_SUBNORMAL, _S_ABSORBED, _S_INVALID, _S_NAN = (np.uint32(1 << i) for i in range(6, 12))

PLACES = ("invalid", "nan", "overflow", "underflow", "flushed", "absorbed")
"""The events whose first place is kept."""
_PRODUCT_BITS = (_NONE, _P_NAN, _P_OVERFLOW, _P_UNDERFLOW, _P_FLUSHED, _NONE)
_SUM_BITS = (_S_INVALID, _S_NAN, _S_OVERFLOW, _NONE, _NONE, _S_ABSORBED)

COUNTING_FIELDS = (*RNE_FIELDS, "tiny", "smallest_normal")
"""Fields of RNE_FIELDS; then the least magnitude that is not tiny, and 2**emin, as bits of float32."""
_TINY, _SMALLEST_NORMAL = 5, 6
_INF, _ZERO, _LATE = np.float32(np.inf), np.float32(0), np.int32(2**31 - 1)


def _array(scalar, dimensions, readonly=True):
    return numba.types.Array(scalar, dimensions, "C", readonly=readonly)


_ARGUMENTS = (
    _array(numba.float32, 2), _array(numba.float32, 2), _array(numba.float32, 3, False), _array(numba.int64, 2),
    _array(numba.int64, 1), numba.uint32, _array(numba.int64, 1, False), _array(numba.int32, 3, False),
    _array(numba.uint32, 1), _array(numba.uint32, 1),
)  # fmt: skip


@inline
def bit(condition, value, word):
    """The word with the bits of `value` set if the condition holds."""
    return or32(word, value) if condition else word


@inline
def product_events(x, p, g):
    """The events of the exact product x of finite factors, rounded to p."""
    size, tiny = abs(x), float_from_bits(g[_TINY])
    over, inexact = not abs(p) < _INF, p != x
    word = bit(inexact | over, _P_INEXACT, _NONE)
    word = bit(inexact & (size < tiny), _P_UNDERFLOW, word)
    word = bit(over, _P_OVERFLOW, word)
    word = bit(inexact & (p == _ZERO), _P_FLUSHED, word)
    word = bit(p != p, _P_NAN, word)
    return bit((p != _ZERO) & (abs(p) < float_from_bits(g[_SMALLEST_NORMAL])), _P_SUBNORMAL, word)


@inline
def sum_events(acc, p, r, g, word):
    """The events of acc + p, rounded to r, added to the word."""
    finite = (abs(acc) < _INF) & (abs(p) < _INF)
    new = (r != r) & (acc == acc)
    word = bit(finite & ((r - acc != p) | (r - p != acc)), _S_INEXACT, word)
    word = bit(finite & (not abs(r) < _INF), _S_OVERFLOW, word)
    word = bit(finite & (r == acc) & (p != _ZERO), _S_ABSORBED, word)
    word = bit(new, _S_NAN, word)
    word = bit(new & (p == p) & (not finite), _S_INVALID, word)
    return bit((r != _ZERO) & (abs(r) < float_from_bits(g[_SMALLEST_NORMAL])), _S_SUBNORMAL, word)


@inline
def general_step(bfloat, x, bs, before, row, words, scale, unscale, g, wanted):
    """Take the step from `before` to `row`, and write its event words. Return the union of the words."""
    seen = _NONE
    for j in range(row.size):
        acc, exact = before[j] * unscale, x * bs[j]
        p = rounded_to_bf16(exact) if bfloat else rounded_to_format(exact, g)
        r = rounded_to_bf16(acc + p) if bfloat else rounded_to_format(acc + p, g)
        row[j] = r * scale
        word = and32(sum_events(acc, p, r, g, product_events(exact, p, g)), wanted)
        words[j] = word
        seen = or32(seen, word)
    return seen


@inline
def fast_step(products, x, bs, before, row, absorbed, k, g, tally):
    """Take the step from `row`, which is kept in `before`.

    Return (least magnitude of products and sums, less 1; largest magnitude of sums), as codes.
    """
    factor = float_from_bits(g[FACTOR])
    low, high = ALL, _NONE
    inexact_products, inexact_sums, absorbed_sums = np.int32(0), np.int32(0), np.int32(0)
    for j in range(row.size):
        acc, y = row[j], bs[j]
        exact = x * y
        p = rounded_product(RNE, products, x, y, g)
        r = veltkamp_rne(acc + p, factor)
        before[j] = acc
        row[j] = r
        inexact_products += np.int32(exact != p)
        inexact_sums += np.int32((r - acc != p) | (r - p != acc))
        m = and32(bits_from_float(r), MAGNITUDE)
        is_absorbed = (r == acc) & (p != _ZERO) & (m < EXPONENT)
        absorbed_sums += np.int32(is_absorbed)
        absorbed[j] = min(absorbed[j], k) if is_absorbed else absorbed[j]
        low = min(low, min(add32(and32(bits_from_float(exact), MAGNITUDE), ALL), add32(m, ALL)))
        high = max(high, m)
    tally[0], tally[1], tally[2] = inexact_products, inexact_sums, absorbed_sums
    return low, high


@inline
def count(words, seen, counts):
    """Add the events of a row's words to `counts`."""
    for event in range(counts.size):
        shift = np.uint32(event)
        if right32(seen, shift) & _1:
            happened = _NONE
            for j in range(words.size):
                happened = add32(happened, and32(right32(words[j], shift), _1))
            counts[event] += happened


@inline
def locate(words, seen, bits, k, places):
    """Write k to `places` where an event of the row, one of the bits of each place, has no earlier place."""
    for event in range(len(PLACES)):
        mask = bits[event]
        if seen & mask:
            earliest = places[event]
            for j in range(words.size):
                earliest[j] = min(earliest[j], k) if and32(words[j], mask) != _NONE else earliest[j]


@inline
def step_products(bfloat, x, bs, words, g, wanted):
    """Write the event words of a row of products. Return the union of the words."""
    seen = _NONE
    for j in range(bs.size):
        exact = x * bs[j]
        p = rounded_to_bf16(exact) if bfloat else rounded_to_format(exact, g)
        words[j] = and32(product_events(exact, p, g), wanted)
        seen = or32(seen, words[j])
    return seen


@inline
def copy_row(source, target):
    """Copy a row. Numba needs seconds to compile `target[:] = source`: it can raise an error that names the shapes."""
    for j in range(target.size):
        target[j] = source[j]


@inline
def has_negative_zero(row):
    """Whether a row contains -0."""
    for x in row:
        if bits_from_float(x) == SIGN:
            return True
    return False


_FAST_EVENTS = tuple(EVENTS.index(name) for name in ("product inexact", "sum inexact", "sum absorbed"))
_ABSORBED = PLACES.index("absorbed")


@functools.cache
def counting(bfloat, products):
    """Return the kernel for BF16, or for a format given by parameters.

    `products` is ROUNDED, for factors and sums in BF16, or ROUNDED_SUBNORMAL. `wanted` is the mask of the events to
    count.
    """

    @kernel_of(_ARGUMENTS)
    def kernel(a, b, out, ranges, where, wanted, counts, first, params, fast_params):
        wide_vectors()
        g = (params[0], params[1], params[2], params[3], params[4], params[5], params[6])
        fast, scale, unscale = fields_of(fast_params), np.float32(1), np.float32(1)
        has_fast_path = float_from_bits(fast_params[SCALE]) != 0
        if has_fast_path:
            scale, unscale = float_from_bits(fast_params[SCALE]), float_from_bits(fast_params[UNSCALE])
        least = bits_from_float(float_from_bits(g[_SMALLEST_NORMAL]) * scale)
        words = zero_array(out.shape[2], np.uint32)
        before = zero_array(out.shape[2], np.float32)
        places = zero_array((first.shape[0], out.shape[2]), np.int32)
        tally = zero_array(3, np.int32)
        locates_absorbed = (wanted & _S_ABSORBED) != _NONE
        for part in range(ranges.shape[0]):
            for i in range(out.shape[1]):
                row = out[part, i]
                takes_general_step = not has_fast_path or has_negative_zero(row)
                for j in range(row.size):
                    row[j] *= scale
                for event in range(first.shape[0]):
                    copy_row(first[event, i], places[event])
                latest = np.int32(-1)
                for k in range(ranges[part, 0], ranges[part, 1], ranges[part, 2]):
                    latest = max(latest, np.int32(where[k]))
                    if not takes_general_step:
                        at = latest if locates_absorbed else _LATE
                        low, high = fast_step(
                            products, a[i, k] * scale, b[k], before, row, places[_ABSORBED], at, fast, tally
                        )
                        if low >= least and high < EXPONENT:
                            for n in range(3):
                                event = _FAST_EVENTS[n]
                                if right32(wanted, np.uint32(event)) & _1:
                                    counts[event] += tally[n]
                            continue
                    else:
                        copy_row(row, before)
                    seen = general_step(bfloat, a[i, k], b[k], before, row, words, scale, unscale, g, wanted)
                    if seen:
                        count(words, seen, counts)
                        locate(words, seen, _PRODUCT_BITS, np.int32(where[k]), places)
                        locate(words, seen, _SUM_BITS, latest, places)
                for j in range(row.size):
                    row[j] *= unscale
                for event in range(first.shape[0]):
                    copy_row(places[event], first[event, i])

    return kernel


@functools.cache
def tiny_products(bfloat):
    """Return the kernel that counts the events of products below the normal numbers.

    It computes only rows of b that can have such a product.
    """

    @kernel_of(_ARGUMENTS[:2] + _ARGUMENTS[3:9])
    def kernel(a, b, ranges, where, wanted, counts, first, params):
        wide_vectors()
        g = (params[0], params[1], params[2], params[3], params[4], params[5], params[6])
        tiny = np.float64(float_from_bits(g[_TINY]))
        smallest = zero_array(b.shape[0], np.float64)  # the least non-zero magnitude of each row of b
        for k in range(b.shape[0]):
            smallest[k] = np.inf
            for j in range(b.shape[1]):
                size = np.float64(abs(b[k, j]))
                smallest[k] = size if size < smallest[k] and size > 0 else smallest[k]
        words = zero_array(b.shape[1], np.uint32)
        places = zero_array((first.shape[0], b.shape[1]), np.int32)
        for part in range(ranges.shape[0]):
            for i in range(a.shape[0]):
                for event in range(first.shape[0]):
                    copy_row(first[event, i], places[event])
                for k in range(ranges[part, 0], ranges[part, 1], ranges[part, 2]):
                    x = a[i, k]
                    if x != 0 and np.float64(abs(x)) * smallest[k] < tiny:
                        seen = step_products(bfloat, x, b[k], words, g, wanted)
                        if seen:
                            count(words, seen, counts)
                            locate(words, seen, _PRODUCT_BITS, np.int32(where[k]), places)
                for event in range(first.shape[0]):
                    copy_row(places[event], first[event, i])

    return kernel
