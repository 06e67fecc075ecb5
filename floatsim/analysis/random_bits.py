"""The bias of stochastic rounding with few random bits, as exact fractions."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from floatsim.formats import FormatLike, as_format
from floatsim.formats._validation import as_index
from floatsim.formats.value_sets import contains

__all__ = ["RandomBitsBias", "random_bits_bias"]


@dataclass(frozen=True)
class RandomBitsBias:
    """The expected error of stochastic conversions from a format to a narrower one, in ulps of the narrower one.

    A value with the discarded fraction f, in ulps, is rounded away from zero by floor(f * 2**N) of the 2**N draws of N
    random bits. So its expected result is too small by f - floor(f * 2**N) / 2**N.

    Attributes
    ----------
    discarded_bits : int
        The bits of the source that the conversion of a normal number discards.
    random_bits : int
        N, the random bits of a draw.
    mean : Fraction
        The mean of the expected errors over all discarded fractions: 0 or negative, which is toward zero.
    worst : Fraction
        The expected error that is largest in magnitude.
    never_up : Fraction
        The share of the discarded fractions, that of exact values left out, which no draw rounds away from zero.

    Examples
    --------
    >>> import floatsim as fs
    >>> bias = fs.random_bits_bias("bf16", 8)
    >>> bias.mean, bias.worst, bias.never_up
    (Fraction(-255, 131072), Fraction(-255, 65536), Fraction(1, 257))
    """

    discarded_bits: int
    random_bits: int
    mean: Fraction
    worst: Fraction
    never_up: Fraction


def random_bits_bias(format: FormatLike, random_bits: int, *, source: FormatLike = "fp32") -> RandomBitsBias:
    """Return the bias of stochastic rounding with a number of random bits.

    Parameters
    ----------
    format : format
        The format of the results.
    random_bits : int
        The random bits of a draw, 1 to 64.
    source : format
        The format of the values before the conversion. All their discarded fractions count as equally frequent.

    Returns
    -------
    RandomBitsBias
        It holds for numbers that are normal in both formats. With as many random bits as discarded bits it is 0.

    Raises
    ------
    ValueError
        If `source` does not hold every number of `format`, or `random_bits` is outside its range.

    Notes
    -----
    A sum of n additions, each rounded, drifts by n times the mean on average, relative to the exact sum. floatsim's
    rule is that of conversion instructions which add the random bits to the discarded ones, such as NVIDIA's `cvt.rs`.

    Examples
    --------
    >>> import floatsim as fs
    >>> [float(fs.random_bits_bias("fp16", n).mean) for n in (8, 13, 16)]
    [-0.00189208984375, 0.0, 0.0]
    """
    target, given = as_format(format), as_format(source)
    bits = as_index(random_bits, "random_bits", 1, 64)
    if target.is_scale or given.is_scale or not contains(given, target, specials=False):
        raise ValueError(f"source={given.name} does not hold every number of format={target.name}; use a wider source")
    discarded = given.precision - target.precision
    unused = 1 << max(0, discarded - bits)  # the discarded fractions between two multiples of 2**-bits
    fractions = 1 << discarded
    never = Fraction(unused - 1, fractions - 1) if fractions > 1 else Fraction(0)
    return RandomBitsBias(discarded, bits, Fraction(1 - unused, 2 * fractions), Fraction(1 - unused, fractions), never)
