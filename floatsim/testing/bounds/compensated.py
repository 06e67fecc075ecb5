"""Relative errors of compensated sums, with all constants.

They hold for all rounding modes that return a neighbour of the exact result. u is the largest relative error of one
rounding, M the sum of the magnitudes of n terms, the start value included.

Kahan. With v = s - comp, the steps of the sum give v' = v + x + (x - comp) d1 - h, where e = t - (s + y) is the
rounding error of t, comp' = e + h and |h| <= u (2 + u) |e| + u (1 + u) |y|. Summed over all steps, with the largest
|t| = T and the largest |comp| = C, the error of v is at most

    E = u (1 + (1 + u)**2) (M + n C) + n u (2 + u) e,   e = u T / (1 - u),   T = M + E + C,
    C = (1 + u)**2 (e + u (M + C)).

The result is v + comp, so its error is below E + C: 4u + O(n u**2). Source of the argument: N. Higham, "Accuracy and
Stability of Numerical Algorithms", 2nd edition, 2002, section 4.3, equation (4.8), whose 2u + O(n u**2) hides the
constants and needs round to nearest.

Neumaier. The rounding errors e_k of a sum in order are at most g M together, g = (1 + u)**(n - 1) - 1. To nearest,
they are computed exactly and added in order: the error is at most u |sum| + g**2 M (1 + u). Source: T. Ogita, S. Rump
and S. Oishi, "Accurate sum and dot product", SIAM J. Sci. Comput. 26(6), 2005, Proposition 4.5. In other modes, and if
a term is no number of the format, each e_k has an error of at most u (2 + u) |e_k| + u (1 + u) |x_k|.
"""

from __future__ import annotations

import math

__all__ = ["KAHAN", "NEUMAIER", "kahan_growth", "neumaier_growth", "sequential_growth"]

KAHAN = "Higham 2002, section 4.3, equation (4.8), with constants"
NEUMAIER = "Ogita, Rump and Oishi 2005, Proposition 4.5"


def sequential_growth(u: float, n: int) -> float:
    """Return (1 + u)**n - 1, infinity beyond FP64."""
    x = n * math.log1p(u)
    return math.expm1(x) if x < 700 else math.inf


def kahan_growth(u: float, n: int) -> float:
    """Return the largest error of Kahan's sum of n terms, divided by the sum of their magnitudes.

    Infinity where n * u**2 is too large for the argument.

    >>> kahan_growth(2.0**-24, 1000) * 2**24 < 4.001
    True
    """
    square = (1 + u) ** 2
    if u * square >= 1:
        return math.inf
    # e = r T, C = p T + q, E = m (1 + n C) + n u (2 + u) e, T = 1 + E + C: one linear equation in T
    r, m = u / (1 - u), u * (1 + square)
    p, q = square * r / (1 - u * square), u * square / (1 - u * square)
    of_t = p + n * (m * p + u * (2 + u) * r)
    constant = 1 + q + m + n * m * q
    return constant / (1 - of_t) - 1 if of_t < 1 else math.inf


def neumaier_growth(u: float, n: int, exact: bool) -> float:
    """Return the largest error of Neumaier's sum of n terms, divided by the sum of their magnitudes.

    `exact`: the rounding errors of the sum are computed exactly.

    >>> neumaier_growth(2.0**-24, 1000, True) * 2**24 < 1.1
    True
    """
    g = sequential_growth(u, n)
    wrong = 0.0 if exact else u * (2 + u) * g + u * (1 + u)
    return (1 + u) * (1 + wrong + g * (g + wrong)) - 1
