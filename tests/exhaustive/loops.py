"""Numba loops that verify results, written apart from the package: they share no code with it.

`cast32` rounds a float32 on integers. `verify_pairs` rounds nothing: it decides for each pair whether the given result
and flags are the right ones, by the inequalities that define a rounding mode (so much below, so much above), on exact
float64 values: a sum is x + error (TwoSum), a product is a float64, a quotient q is compared through q * b with a.
"""

# ruff: noqa: PLR1714, SIM109  # numba has no tuples of mixed kinds to look into
import numba
import numpy as np

EVEN, AWAY, ZERO, UP, DOWN, ODD = range(6)
INEXACT, UNDERFLOW, OVERFLOW, DIVIDE_BY_ZERO, INVALID = 1, 2, 4, 8, 16
ADD, SUBTRACT, MULTIPLY, DIVIDE = range(4)


@numba.njit
def _goes_up(mode, negative, odd, rest_vs_half):
    """rest_vs_half: -1, 0, 1; the rest is not zero."""
    if mode == EVEN:
        return rest_vs_half > 0 or (rest_vs_half == 0 and odd)
    if mode == AWAY:
        return rest_vs_half >= 0
    if mode == UP:
        return not negative
    if mode == DOWN:
        return negative
    if mode == ODD:
        return not odd
    return False


@numba.njit
def _split(m, s):
    """m = kept * 2**s + rest; (kept, rest is not zero, rest against half of 2**s)."""
    if s <= 0:
        return m << -s, False, -1
    if s > 40:
        return 0, m != 0, -1
    kept = m >> s
    rest, half = m - (kept << s), 1 << (s - 1)
    return kept, rest != 0, -1 if rest < half else (1 if rest > half else 0)


@numba.njit(nogil=True)
def cast32(source, t, emin, largest, infinity, nan, sign_bit, zero_keeps_sign, mode, policy, out, flags):
    """float32 codes to codes of a format with trailing bits t; tininess after rounding.

    infinity and nan are -1 where the format has none; policy 0 infinity, 1 saturate finite, 2 saturate propagate.
    """
    for i in range(source.size):
        code = np.int64(source[i])
        negative = code >> 31 != 0
        sign = sign_bit if negative else 0
        field, trailing = (code >> 23) & 255, code & 0x7FFFFF
        if field == 255:
            if trailing:
                out[i] = largest if nan < 0 else nan
                flags[i] = INVALID if nan < 0 or trailing >> 22 == 0 else 0
            else:
                flags[i] = 0
                if policy == 1 or (infinity < 0 and nan < 0):
                    out[i] = sign | largest
                else:
                    out[i] = nan if infinity < 0 else sign | infinity
            continue
        m = trailing | (0x800000 if field else 0)
        q = max(field, 1) - 150
        if m == 0:
            out[i] = sign if zero_keeps_sign else 0
            flags[i] = 0
            continue
        e = field - 127
        if field == 0:
            e, top = q - 1, m
            while top:
                top >>= 1
                e += 1
        unit = max(e, emin) - t
        kept, inexact, half = _split(m, unit - q)
        if inexact and _goes_up(mode, negative, kept & 1 == 1, half):
            kept += 1
        tiny = e < emin
        if e == emin - 1:
            short, rest, side = _split(m, e - t - q)
            tiny = short + (rest and _goes_up(mode, negative, short & 1 == 1, side)) < 2 << t
        magnitude = kept if e < emin else ((e - emin) << t) + kept
        if magnitude > largest:
            flags[i] = OVERFLOW | INEXACT
            stays = (
                policy != 0 or mode == ZERO or mode == ODD
                or (mode == UP and negative) or (mode == DOWN and not negative)
            )  # fmt: skip
            if stays or (infinity < 0 and nan < 0):
                out[i] = sign | largest
            else:
                out[i] = nan if infinity < 0 else sign | infinity
        else:
            out[i] = (sign if zero_keeps_sign else 0) if magnitude == 0 else sign | magnitude
            flags[i] = (INEXACT if inexact else 0) | (UNDERFLOW if inexact and tiny else 0)


@numba.njit(nogil=True)
def cast32_to_scale(source, bias, largest, nan, mode, out, flags):
    """float32 codes to powers of two without a zero (E8M0), policy infinity: ties go up."""
    for i in range(source.size):
        code = np.int64(source[i])
        field, trailing = (code >> 23) & 255, code & 0x7FFFFF
        if field == 255:
            out[i] = nan
            flags[i] = INVALID if trailing != 0 and trailing >> 22 == 0 else 0
        elif code >> 31 != 0 or code == 0:
            out[i], flags[i] = nan, INVALID
        else:
            exponent = field - 127
            significand = trailing | 0x800000
            if field == 0:
                exponent, significand = -126, trailing
                while significand < 0x800000:
                    significand, exponent = significand << 1, exponent - 1
            inexact = significand != 0x800000
            if mode == UP:
                up = inexact
            else:
                up = (mode == EVEN or mode == AWAY) and significand >= 0xC00000
            stored = exponent + bias + (1 if up else 0)
            if exponent + bias < 0:
                out[i], flags[i] = 0, UNDERFLOW | INEXACT
            elif stored > largest:
                out[i], flags[i] = nan, OVERFLOW | INEXACT
            else:
                out[i], flags[i] = stored, INEXACT if inexact else 0


@numba.njit
def _side(operation, x, error, a, b, v):
    """The sign of (exact result - v), for the exact |result| and v >= 0. For quotients a and b are positive."""
    if operation == DIVIDE:
        p = v * b  # exact: at most 12 + 11 bits
        return 1 if a > p else (-1 if a < p else 0)
    if x != v:
        return 1 if x > v else -1
    return 1 if error > 0 else (-1 if error < 0 else 0)


@numba.njit(nogil=True)
def verify_pairs(operation, a_codes, b_codes, got, flags, values, t, largest, infinity, nan, sign_bit, mode, wrong):
    """Marks in `wrong` the pairs (a_codes[i], b_codes[j]) whose result or flags (both (i, j)) break the definition.

    For formats with infinities, policy INFINITY, tininess after rounding. `values` are the float64 values of the
    magnitudes 0 .. largest + 1, the last one what the next number would be. Returns how many are wrong.
    """
    least = values[1 << t]
    below = least * (1.0 - 0.5 / (1 << t))  # the largest number of p bits below `least`, with unbounded exponent
    beyond = values[largest + 1]
    count = 0
    for i in range(a_codes.size):
        ma, sa = np.int64(a_codes[i]) & (sign_bit - 1), (np.int64(a_codes[i]) & sign_bit) != 0
        for j in range(b_codes.size):
            mb, sb = np.int64(b_codes[j]) & (sign_bit - 1), (np.int64(b_codes[j]) & sign_bit) != 0
            r, f = np.int64(got[i, j]), np.int64(flags[i, j])
            if operation == SUBTRACT:
                sb = not sb
            if ma > infinity or mb > infinity:  # NaNs; the quiet bit is the top trailing one
                loud = (ma > infinity and ma < nan) or (mb > infinity and mb < nan)
                good = r == nan and f == (INVALID if loud else 0)
                if not good:
                    wrong[i, j] = True
                    count += 1
                continue
            negative = sa != sb
            special = False
            want, want_flags = np.int64(0), np.int64(0)
            if operation <= SUBTRACT:
                if ma == infinity or mb == infinity:
                    special = True
                    if ma == infinity and mb == infinity and sa != sb:
                        want, want_flags = nan, INVALID
                    else:
                        want = infinity | (sign_bit if (sa if ma == infinity else sb) else 0)
            elif operation == MULTIPLY:
                if ma == infinity or mb == infinity:
                    special = True
                    if ma == 0 or mb == 0:
                        want, want_flags = nan, INVALID
                    else:
                        want = infinity | (sign_bit if negative else 0)
                elif ma == 0 or mb == 0:
                    special = True
                    want = sign_bit if negative else 0
            elif (ma == infinity and mb == infinity) or (ma == 0 and mb == 0):
                special, want, want_flags = True, nan, INVALID
            elif ma == infinity:
                special, want = True, infinity | (sign_bit if negative else 0)
            elif mb == 0:
                special, want, want_flags = True, infinity | (sign_bit if negative else 0), DIVIDE_BY_ZERO
            elif mb == infinity or ma == 0:
                special, want = True, sign_bit if negative else 0
            if special:
                if r != want or f != want_flags:
                    wrong[i, j] = True
                    count += 1
                continue
            a, b = values[ma], values[mb]
            x, error = 0.0, 0.0
            if operation <= SUBTRACT:
                u, v = -a if sa else a, -b if sb else b
                x = u + v
                z = x - u
                error = (u - (x - z)) + (v - z)
                if x == 0.0:
                    both = sa and sb and ma == 0 and mb == 0
                    none = not sa and not sb and ma == 0 and mb == 0
                    minus = both or (mode == DOWN and not none)
                    if r != (sign_bit if minus else 0) or f != 0:
                        wrong[i, j] = True
                        count += 1
                    continue
                negative = x < 0
                if negative:
                    x, error = -x, -error
            elif operation == MULTIPLY:
                x = a * b
            # from here on the exact result is not zero; compare its magnitude with the result's neighbours
            m = r & (sign_bit - 1)
            good = (r & sign_bit != 0) == negative and m <= infinity
            away = (mode == UP and not negative) or (mode == DOWN and negative)
            toward = mode == ZERO or (mode == UP and negative) or (mode == DOWN and not negative)
            over = False
            if good:
                at_m = _side(operation, x, error, a, b, values[m])
                up = _side(operation, x, error, a, b, beyond if m > largest else values[m + 1])
                exact = at_m == 0 and m <= largest
                if m > largest:  # infinity stands for everything from the number beyond max on
                    up = -1
                if mode == EVEN or mode == AWAY:
                    if m > 0:
                        middle = values[m - 1] + (values[m] - values[m - 1]) / 2
                        low = _side(operation, x, error, a, b, middle)
                        good = low > 0 or (low == 0 and (mode == AWAY or m & 1 == 0))
                    if good and m <= largest:
                        middle = values[m] + (values[m + 1] - values[m]) / 2
                        high = _side(operation, x, error, a, b, middle)
                        good = high < 0 or (high == 0 and mode == EVEN and m & 1 == 0)
                    over = m > largest
                elif toward:
                    good = at_m >= 0 and (up < 0 or m == largest) and m <= largest
                    over = m == largest and up >= 0
                elif away:
                    good = at_m <= 0 or m > largest
                    if good and m > 0:
                        good = _side(operation, x, error, a, b, values[m - 1]) > 0
                    over = m > largest
                else:  # to odd
                    good = m <= largest and (exact or m & 1 == 1)
                    if good and not exact and m > 0 and m < largest:
                        good = up < 0 and _side(operation, x, error, a, b, values[m - 1]) > 0
                    elif good and not exact:  # max is odd here
                        good = _side(operation, x, error, a, b, values[m - 1]) > 0
                    over = m == largest and up >= 0
                if good:
                    tiny = _side(operation, x, error, a, b, least) < 0
                    if tiny and (mode == EVEN or mode == AWAY):
                        tiny = _side(operation, x, error, a, b, below + (least - below) / 2) < 0
                    elif tiny and away:
                        tiny = _side(operation, x, error, a, b, below) <= 0
                    inexact = over or not exact
                    want_flags = (
                        (INEXACT if inexact else 0) | (OVERFLOW if over else 0) | (UNDERFLOW if tiny and inexact else 0)
                    )  # fmt: skip
                    good = f == want_flags
            if not good:
                wrong[i, j] = True
                count += 1
    return count


@numba.njit(nogil=True)
def weighted_sum(codes, results):
    """The sum of result * (code * 2654435761 | 1) modulo 2**64. The factors are odd: one other result changes it."""
    total = np.uint64(0)
    for i in range(codes.size):
        total += np.uint64(results[i]) * (np.uint64(codes[i]) * np.uint64(2654435761) | np.uint64(1))
    return total
