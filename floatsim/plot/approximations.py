"""The error of a GPU's approximations over one octave, and the polynomials of the segments."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from floatsim.arrays.array.float_array import from_codes
from floatsim.arrays.elementwise import approximations
from floatsim.formats import FP32
from floatsim.formats._validation import name_hint
from floatsim.plot.style import HEADING, mixed, new_axes, palette, titled
from floatsim.tensorcore.special_functions import Interpolator, as_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

__all__ = ["approximation_error"]

_EXACT: dict[str, Callable[[Any], Any]] = {
    "ex2": np.exp2, "rcp": np.reciprocal, "rsqrt": lambda x: 1 / np.sqrt(x), "sqrt": np.sqrt,
}  # fmt: skip
"""The functions whose polynomials give the trailing significand of the result, and their values in float64."""
_ONE, _TRAILING = 0x3F800000, 23
_STEP = 251  # codes between two points: 33,421 points. It is a prime, so that all low bits occur
_CURVE_POINTS = 17  # of each segment
_COLOURS = ("#0072b2", "#d55e00")


def approximation_error(
    function: str = "ex2", *, device: str = "sm_90", ax: Axes | None = None, title: str | None = None
) -> Axes:
    """Draw the error of an approximation for arguments from 1 to 2, and that of the polynomial of each segment.

    A point is the error of a result. A line is the error of the polynomial of one segment, with an exact square and
    before the truncation, which subtracts up to 1 ulp. Neighbouring segments have different colours.

    Parameters
    ----------
    function : {"ex2", "rcp", "rsqrt", "sqrt"}
        The function of `fs.approx`.
    device : str
        The GPU or its architecture, as in `fs.approx.ex2`.
    ax : Axes, optional
        Axes to draw into. Default: a new figure.
    title : str, optional
        Title of the picture.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        For another function, or an unknown device.

    Examples
    --------
    >>> from floatsim import plot
    >>> ax = plot.approximation_error("ex2")
    >>> len(ax.lines), ax.get_ylabel()
    (66, 'error, ulp')
    """
    if function not in _EXACT:
        raise ValueError(f"function={function!r} has no such picture; {name_hint(function, _EXACT)}")
    table, exact = as_unit(device).interpolator(function), _EXACT[function]
    trailing = np.arange(0, 1 << _TRAILING, _STEP, dtype=np.uint32)
    results = getattr(approximations, function)(from_codes(trailing | np.uint32(_ONE), FP32), device=device).values
    arguments = 1 + trailing / 2.0**_TRAILING
    ulp = 2.0 ** (np.floor(np.log2(exact(1.5))) - _TRAILING)  # of all results but that of 1 or 2
    ax = new_axes(ax, figsize=(7.5, 4.2))
    colours = palette(ax)
    ax.axhline(0, color=colours.ink, lw=0.8)
    ax.plot(arguments, (results - exact(arguments)) / ulp, ",", color=mixed(colours.ink, colours.background, 0.55))
    segments = 1 << _TRAILING - table.low_bits
    tints = [mixed(tint, "white", 0.4) if colours.dark else tint for tint in _COLOURS]
    for segment in range(segments):
        x = np.linspace(0, 1 << table.low_bits, _CURVE_POINTS)
        value = _significand(table, segment, x) * ulp * 2.0**_TRAILING
        argument = 1 + (segment + x / (1 << table.low_bits)) / segments
        ax.plot(argument, (value - exact(argument)) / ulp, color=tints[segment % 2], lw=1.4)
    ax.set(xlim=(1, 2), xlabel="argument", ylabel="error, ulp")
    ax.spines[["top", "right"]].set_visible(False)
    return titled(ax, title, **HEADING)


def _significand(table: Interpolator, segment: int, x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the significand, from 1 to 2, by the polynomial of a segment, with an exact square."""
    c0, c1, c2 = table.rows[segment]
    square = x * x / 2.0 ** (2 * table.low_bits - 15)
    value = c0 * 2.0**table.c0_shift + c1 * x + c2 * 2.0**table.c2_shift * square + table.constant
    return 1 + value / 2.0 ** (table.dropped_bits + table.fraction_bits)
