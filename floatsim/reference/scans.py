"""The readable specification of `Sklansky`: running sums of one row of numbers."""

from __future__ import annotations

from collections.abc import Sequence

from floatsim.accumulation import Sklansky
from floatsim.formats import FloatFormat
from floatsim.formats.rounding import RoundingAttributes
from floatsim.reference.scalar import add, convert, decode

__all__ = ["running_sums"]


def running_sums(
    order: Sklansky, codes: Sequence[int], fmt: FloatFormat, attributes: RoundingAttributes
) -> list[int]:  # fmt: skip
    """Return the codes of the sums of the first 1, 2, ... elements. `fmt` is the format of the elements.

    >>> import floatsim as fs
    >>> sums = running_sums(fs.Sklansky("fp32", 2), [0x3C00, 0x4000, 0x4200], fs.FP16, RoundingAttributes())
    >>> [float(decode(code, fs.FP32).fraction) for code in sums]
    [1.0, 3.0, 6.0]
    """
    own = order.format

    def plus(x: int, y: int) -> int:
        left, right = (decode(code, own, attributes.daz) for code in (x, y))
        return add(left, right, own, attributes)[0]

    converted = [convert(decode(code, fmt, attributes.daz), own, attributes)[0] for code in codes]
    found: list[int] = []
    for start in range(0, len(converted), 2 * order.threads):
        tile = converted[start : start + 2 * order.threads]
        tile[0] = plus(tile[0], found[-1] if found else 0)
        distance = 1
        while distance <= order.threads:
            for i in range(len(tile)):
                if i // distance % 2:
                    tile[i] = plus(tile[i], tile[i // (2 * distance) * 2 * distance + distance - 1])
            distance *= 2
        found += tile
    return found
