"""The error of a GPU's approximations over one octave, and the polynomials of the segments."""

from __future__ import annotations

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

_FUNCTIONS: dict[str, Any] = {
    "ex2": np.exp2, "rcp": np.reciprocal, "rsqrt": lambda x: 1 / np.sqrt(x), "sqrt": np.sqrt,
}  # fmt: skip
"""The functions whose polynomials give the trailing significand of the result, and their exact values in float64."""
_ONE, _TRAILING = 0x3F800000, 23
_STEP = 251  # codes between two points: 33,421 points, and a prime, so that all low bits occur
_COLOURS = ("#0072b2", "#d55e00")
_CURVE_POINTS = 16  # in each segment


def approximation_error(
    function: str = "ex2", *, device: str = "sm_90", ax: Axes | None = None, title: str | None = None
) -> Axes:
    """Draw the error of an approximation for arguments from 1 to 2, and that of the polynomial of each segment.

    A point is the error of a result, in units in the last place. A line is the error of the polynomial of one segment
    before anything is truncated; neighbouring segments have different colours. The distance of the points from their line
    is what the truncations of the square and of the result add.

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
    if function not in _FUNCTIONS:
        raise ValueError(f"function={function!r} has no such picture; {name_hint(function, _FUNCTIONS)}")
    table, exact = as_unit(device).interpolator(function), _FUNCTIONS[function]
    trailing = np.arange(0, 1 << _TRAILING, _STEP, dtype=np.uint32)
    results = getattr(approximations, function)(from_codes(trailing | np.uint32(_ONE), FP32), device=device).values
    ax = new_axes(ax, figsize=(7.5, 4.2))
    colours = palette(ax)
    arguments = 1 + trailing / 2.0**_TRAILING
    points, _ = (
        ax.plot(
            arguments,
            _in_ulp(results - exact(arguments), exact(arguments)),
            ",",
            color=mixed(colours.ink, colours.background, 0.6),
        ),
        ax.axhline(0, color=colours.ink, lw=0.8),
    )
    for segment in range(1 << _TRAILING - table.low_bits):
        x = np.linspace(0, 1 << table.low_bits, _CURVE_POINTS)
        argument = 1 + (segment + x / (1 << table.low_bits)) / (1 << _TRAILING - table.low_bits)
        value = exact(argument)
        scale = 2.0 ** np.floor(np.log2(exact(arguments[len(arguments) // 2])))
        error = _polynomial(table, segment, x) * scale - value
        ax.plot(argument, _in_ulp(error, np.full_like(value, scale)), color=_COLOURS[segment % 2], lw=1.4)
    ax.set(xlim=(1, 2), xlabel="argument", ylabel="error, ulp")
    ax.grid(axis="y", color=colours.pale, zorder=0)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    return titled(ax, title, **HEADING)


def _in_ulp(error: NDArray[np.float64], value: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return errors in units in the last place of FP32 numbers of the size of the values."""
    return error / 2.0 ** (np.floor(np.log2(value)) - _TRAILING)


def _polynomial(table: Interpolator, segment: int, x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the significand, from 1 to 2, by the polynomial of a segment with the whole square and all bits."""
    c0, c1, c2 = table.rows[segment]
    square = x * x / 2.0 ** (2 * table.low_bits - 15)
    value = c0 * 2.0**table.c0_shift + c1 * x + c2 * 2.0**table.c2_shift * square + table.constant
    return 1 + value / 2.0 ** (table.dropped_bits + table.fraction_bits)
