"""What a format's codes are worth, written out a second time, and the formats that the tests take."""

from __future__ import annotations

import functools
import os
import subprocess
from bisect import bisect_right
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

import floatsim as fs
from floatsim import Overflow, Rounding, Tininess
from floatsim.formats import Specials

INEXACT, UNDERFLOW, OVERFLOW, DIVIDE_BY_ZERO, INVALID = 1, 2, 4, 8, 16
FLUSHED, SUBNORMAL, ABSORBED = 32, 64, 128

DETERMINISTIC = tuple(m for m in Rounding if m is not Rounding.STOCHASTIC)
POLICIES = tuple(Overflow)
TININESS = tuple(Tininess)

NAMED = fs.named_formats()
ARITHMETIC = tuple(f for f in NAMED if not f.is_scale)
CUSTOM = (
    fs.FloatFormat.ieee(2, 1, "smallest"),
    fs.FloatFormat.ieee(6, 9, "DLFloat"),
    fs.FloatFormat.ieee(8, 15, "PXR24"),
    fs.FloatFormat("no subnormals", 4, 0, Specials.FN),
    fs.FloatFormat("below one", 3, 2, Specials.FINITE, 9),
    fs.FloatFormat("above one", 3, 3, Specials.FNUZ, -3),
    fs.FloatFormat("one exponent", 1, 4, Specials.FINITE),
    fs.FloatFormat("wide range", 9, 4),
    fs.FloatFormat("wide FN", 5, 6, Specials.FN, 20),
    fs.p3109(6, 3),
)
SMALL = tuple(f for f in (*ARITHMETIC, *CUSTOM) if f.bits <= 8)
UP_TO_16 = tuple(f for f in (*ARITHMETIC, *CUSTOM) if f.bits <= 16)
VECTOR = tuple(f for f in (*ARITHMETIC, *CUSTOM) if f.precision <= 24)


def test_seed() -> int:
    """The seed of this run's samples: FLOATSIM_TEST_SEED, else the commit's hash, else a fixed number."""
    if text := os.environ.get("FLOATSIM_TEST_SEED"):
        return int(text, 0)
    try:
        commit = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True, check=True
        ).stdout
        return int(commit[:8], 16)
    except (OSError, ValueError, subprocess.CalledProcessError):
        return 20261121


test_seed.__test__ = False  # type: ignore[attr-defined]  # a helper, not a test


def rng(*salt: object) -> np.random.Generator:
    """A generator for one test: the run's seed and whatever tells this test from others."""
    text = "/".join(f"{s}" for s in salt)
    return np.random.default_rng([test_seed(), *text.encode()])


# -- one code at a time ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Value:
    """What a code stands for: kind is "finite", "infinite", "nan" or "snan"; magnitude is exact."""

    kind: str
    sign: int
    magnitude: Fraction = Fraction(0)

    @property
    def is_nan(self) -> bool:
        return self.kind in ("nan", "snan")

    @property
    def is_zero(self) -> bool:
        return self.kind == "finite" and self.magnitude == 0


class Layout:
    """A format's codes, from its parameters alone."""

    def __init__(self, w: int, t: int, bias: int, specials: str) -> None:
        self.w, self.t, self.bias, self.specials = w, t, bias, specials
        unsigned = specials in ("scale", "unsigned_extended", "unsigned_finite")
        self.sign_bit = 0 if unsigned else 1 << (w + t)
        self.bits = w + t + (not unsigned)
        self.signed_zero = specials not in ("fnuz", "extended")
        all_ones = (1 << (w + t)) - 1
        self.inf: int | None = None
        if specials == "ieee":
            self.inf = ((1 << w) - 1) << t
            self.largest, self.nan = self.inf - 1, self.inf + (1 << (t - 1))
        elif specials == "extended":
            self.largest, self.inf, self.nan = all_ones - 1, all_ones, self.sign_bit
        elif specials == "unsigned_extended":
            self.largest, self.inf, self.nan = all_ones - 2, all_ones - 1, all_ones
        elif specials in ("fn", "scale", "unsigned_finite"):
            self.largest, self.nan = all_ones - 1, all_ones
        elif specials == "fnuz":
            self.largest, self.nan = all_ones, self.sign_bit
        else:
            self.largest, self.nan = all_ones, None
        self.max = self.worth(self.largest)
        self.beyond = self.worth(self.largest + 1)  # what the next number would be with more exponents
        first_normal = 0 if specials == "scale" else 1 << t
        self.least_normal = self.worth(first_normal)
        # the largest number of p bits below the normal range, were there more exponents
        self.below_normal = self.least_normal * Fraction((1 << (t + 1)) - 1, 1 << (t + 1))

    def parts(self, magnitude: int) -> tuple[int, int]:
        """The integers s and e of the value s * 2**e of a code without its sign, special or beyond the last or not."""
        field, trailing = divmod(magnitude, 1 << self.t)
        if field == 0 and self.specials != "scale":
            return trailing, 1 - self.bias - self.t
        return trailing + (1 << self.t), field - self.bias - self.t

    def worth(self, magnitude: int) -> Fraction:
        """The value of a code without its sign, special or beyond the last or not."""
        significand, exponent = self.parts(magnitude)
        return Fraction(significand << exponent) if exponent >= 0 else Fraction(significand, 1 << -exponent)

    def decode(self, code: int, daz: bool = False) -> Value:
        if code == self.nan:
            return Value("nan", 0)
        sign, magnitude = divmod(code, self.sign_bit) if self.sign_bit else (0, code)
        if self.inf is not None and magnitude >= self.inf:
            if magnitude == self.inf:
                return Value("infinite", sign)
            return Value("snan" if magnitude < self.nan else "nan", sign)
        if magnitude > self.largest:
            return Value("nan", sign)
        if daz and self.specials != "scale" and magnitude < 1 << self.t:
            magnitude = 0
        return Value("finite", sign, self.worth(magnitude))

    def neighbour_below(self, x: Fraction) -> int:
        """The largest magnitude whose worth is at most x; x must be below `beyond`."""
        numerator, denominator = x.numerator, x.denominator

        def is_above(magnitude: int) -> bool:  # worth(magnitude) > x, on integers: fractions take ten times as long
            significand, exponent = self.parts(magnitude)
            if exponent >= 0:
                return (significand << exponent) * denominator > numerator
            return significand * denominator > numerator << -exponent

        return bisect_right(range(self.largest + 1), False, key=is_above) - 1

    def zero(self, sign: int) -> int:
        return sign * self.sign_bit if self.signed_zero else 0

    def odd(self, magnitude: int) -> bool:
        """Whether the significand, hidden bit included, is odd."""
        return magnitude % 2 == 1 if self.t else magnitude > 0

    def infinity(self, sign: int) -> int:
        if self.inf is not None:
            return sign * self.sign_bit + self.inf
        return sign * self.sign_bit + self.largest if self.nan is None else self.nan


@functools.cache
def layout(fmt: fs.FloatFormat) -> Layout:
    return Layout(fmt.exponent_bits, fmt.trailing_bits, fmt.bias, fmt.specials.value)
