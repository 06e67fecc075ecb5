"""Bits and their meaning: of one number, and of every code of a small format."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from floatsim.formats import FloatFormat, FormatLike, as_format, as_formats
from floatsim.plot.language import say
from floatsim.plot.style import (
    DEFAULT_FORMATS,
    Palette,
    cell,
    fitting_size,
    name_rows,
    new_axes,
    palette,
    titled,
    width_in_points,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["anatomy", "bit_strip", "code_grid"]

_MOST_LETTERS = 7  # in a cell of `code_grid`, at the larger of its two sizes; at the smaller, a sign too


def bit_strip(
    value: Any, formats: Iterable[FormatLike] | FormatLike = DEFAULT_FORMATS, *, ax: Axes | None = None
) -> Axes:
    """Draw the bits of one number in several formats: sign (black), exponent, trailing significand (pale), and value.

    On a dark background, the sign is white.

    Parameters
    ----------
    value : number or str
        The number to round (ties to even). A str such as "0.1" is rounded once, from its exact value.
    formats : format or iterable of format
        The rows, top to bottom.
    ax : Axes, optional
        Axes to draw into. Default: a new figure.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If `value` is no number, or no format is given.

    Examples
    --------
    >>> from floatsim import plot
    >>> ax = plot.bit_strip("0.1", ["bf16"])
    >>> "".join(text.get_text() for text in ax.texts)
    '00111101110011010.1001'
    """
    from floatsim.arrays.array.conversion import decode, encode

    rows = as_formats(formats)
    width = max(fmt.bits for fmt in rows)
    ax = new_axes(ax, figsize=(0.3 * width + 3, 0.5 * len(rows) + 0.8))
    colours = palette(ax)
    for row, fmt in enumerate(rows):
        code = int(encode(value, fmt))
        _draw_bits(ax, fmt, code, row, colours)
        shown = float(decode(code, fmt))
        ax.annotate(f"{shown:.{max(2, 3 + fmt.precision * 3 // 10)}g}", (fmt.bits, row + 0.5), (5, 0),
                    textcoords="offset points", va="center", color=colours.ink)  # fmt: skip
    ax.set(xlim=(0, width * 1.12), ylim=(len(rows), 0), xticks=[])
    name_rows(ax, rows, [row + 0.5 for row in range(len(rows))])
    ax.spines[:].set_visible(False)
    return titled(ax, say("{}: sign, exponent, trailing significand", value))


def _draw_bits(ax: Axes, fmt: FloatFormat, code: int, row: float, colours: Palette) -> None:
    """Draw a cell for each bit, from x = 0: the sign in ink, the exponent in the format's colour, the rest paler."""
    strong = colours.format(fmt)
    tints = {"s": colours.ink, "e": strong, "t": colours.paler(strong)}
    letters = fmt.layout.replace(" ", "")
    for place, (letter, bit) in enumerate(zip(letters, f"{code:0{fmt.bits}b}", strict=True)):
        ax.add_patch(cell(place, row, tints[letter], colours.background))
        ax.text(place + 0.5, row + 0.5, bit, ha="center", va="center", family="monospace",
                color=colours.on(tints[letter]))  # fmt: skip


# -- the fields of one number ----------------------------------------------------------------------------------------


def anatomy(value: Any, format: FormatLike = "fp16", *, ax: Axes | None = None) -> Axes:
    """Draw the fields of one number: the weight of each bit, the values of the three fields, and their product.

    Parameters
    ----------
    value : number or str
        The number to round to `format` (ties to even).
    format : format
        A format of at most 32 bits.
    ax : Axes, optional
        Axes to draw into. Default: a new figure.

    Returns
    -------
    Axes
        Its title is the value as an equation.

    Raises
    ------
    ValueError
        If the format has more than 32 bits, or `value` is no number.

    Examples
    --------
    >>> from floatsim import plot
    >>> plot.anatomy(6.5, "fp16").get_title()
    'FP16: + 1.625 × 2$^{2}$ = 6.5'
    """
    from floatsim.arrays.array.conversion import decode, encode

    format = as_format(format)
    if format.bits > 32:
        raise ValueError(
            f"format must have at most 32 bits to draw each of them, such as 'fp16'; {format.name} has {format.bits}"
        )
    code = int(encode(value, format))
    number = float(decode(code, format))
    ax = new_axes(ax, figsize=(max(6.0, min(0.62 * format.bits, 15.0)), 2.6))
    colours = palette(ax)
    _draw_bits(ax, format, code, 0, colours)
    signs, exponents, trailing = int(format.signed), format.exponent_bits, format.trailing_bits
    field = code >> trailing & ((1 << exponents) - 1)
    fields = _fields_in_words(format, number, field, code & ((1 << trailing) - 1))
    weights = [f"{1 << place}" for place in reversed(range(exponents))]
    weights += [f"1/{2 << place}" for place in range(trailing)]
    _write_weights(ax, signs, weights, colours.ink)
    ends = [0, signs, signs + exponents, format.bits]
    for (left, right), words in zip(itertools.pairwise(ends), fields, strict=True):
        if left < right:
            ax.plot(
                [left + 0.08, left + 0.08, right - 0.08, right - 0.08], [1.1, 1.22, 1.22, 1.1], color=colours.ink, lw=1
            )
            ax.text((left + right) / 2, 1.32, words, ha="center", va="top", color=colours.ink, linespacing=1.4)
    ax.set(xlim=(-0.4, format.bits), ylim=(2.45, -0.55), xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    return titled(ax, f"{format.name}: {_equation(format, number, field)}", fontsize="x-large")


def _write_weights(ax: Axes, first: int, weights: Sequence[str], ink: str) -> None:
    """Write the weight of each bit above its cell, as far as there is room; "…" stands for the rest."""
    from matplotlib import rcParams

    cell_points = 72 * ax.get_window_extent().width / ax.figure.dpi / (first + len(weights) + 0.4)
    width = 0.62 * min(max(map(len, weights)), 6)  # of "1/1024", in font sizes: a digit has 0.62
    size = min(0.8, max(0.5, 0.96 * cell_points / width / rcParams["font.size"])) * rcParams["font.size"]
    fits = [0.62 * size * len(weight) < cell_points for weight in weights]
    written = weights if all(fits) else [*weights[: fits.index(False)], "…"]
    for place, weight in enumerate(written, first):
        ax.text(place + 0.5, -0.12, weight, ha="center", va="bottom", fontsize=size, color=ink)


def _exponent_and_significand(fmt: FloatFormat, number: float, field: int) -> tuple[int, float]:
    """The values of the two fields. Subnormals have the smallest normal number's exponent and a significand below 1."""
    exponent = max(field, 1 if fmt.has_subnormals else 0) - fmt.bias
    return exponent, math.ldexp(abs(number), -exponent)


def _fields_in_words(fmt: FloatFormat, number: float, field: int, trailing: int) -> tuple[str, str, str]:
    """The values of sign, exponent and significand as text."""
    sign = say("sign") + "\n" + ("−" if number < 0 or str(number)[0] == "-" else "+")
    binary = f"{say('exponent')}\n{field:0{fmt.exponent_bits}b} = {field}"
    if not math.isfinite(number):
        return sign, f"{binary}", say("no number" if math.isnan(number) else "none: infinity")
    exponent, significand = _exponent_and_significand(fmt, number, field)
    hidden = 0 if fmt.has_subnormals and field == 0 else 1
    offset = f"{field if hidden else 1} − {fmt.bias} = {exponent}".replace("= -", "= −")
    binary += f"\n{offset}" if hidden else f": {say('subnormal')}\n{offset}"
    digits = f"{hidden}.{trailing:0{fmt.trailing_bits}b}" if fmt.trailing_bits else f"{hidden}"
    words = f"{say('significand')}\n{digits} = {significand!r}"
    note = say("(the {} before the point is not stored)", hidden)
    return sign, binary, words + f"\n{note}" * (fmt.trailing_bits > 4)


def _equation(fmt: FloatFormat, number: float, field: int) -> str:
    if math.isnan(number):
        return say("NaN, not a number")
    sign = "−" if str(number)[0] == "-" else "+"
    if not math.isfinite(number):
        return f"{sign} {say('infinity')}"
    exponent, significand = _exponent_and_significand(fmt, number, field)
    return f"{sign} {significand!r} × 2$^{{{exponent}}}$ = {number!r}".replace("= -", "= −")


# -- every code of a small format ----------------------------------------------------------------------------------


def code_grid(format: FormatLike = "e4m3", *, ax: Axes | None = None, title: str | None = None) -> Axes:
    """Draw every code of a small format. The first four bits choose the row, the last four the column.

    Numbers with the same exponent have the same tint, and two tints alternate. Hatched: subnormal. Framed: zero. Black
    (white on a dark background): infinities and NaN. Numbers are exact where they fit. Otherwise all numbers of that
    exponent are rounded to three digits, and inexact ones are in italics, with a note below the grid.

    Parameters
    ----------
    format : format
        A format of at most 8 bits.
    ax : Axes, optional
        Axes to draw into. Default: a new figure.
    title : str, optional
        Title of the picture. Default: the name of the format, and the number of codes of each kind.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If the format has more than 8 bits.

    Examples
    --------
    >>> from floatsim import plot
    >>> ax = plot.code_grid("e2m1")
    >>> [text.get_text() for text in ax.texts]
    ['0', '.5', '1', '1.5', '2', '3', '4', '6', '−0', '−.5', '−1', '−1.5', '−2', '−3', '−4', '−6']
    """
    import numpy as np
    from matplotlib.patches import Rectangle

    from floatsim.arrays.array.conversion import decode

    format = as_format(format)
    if format.bits > 8:
        raise ValueError(f"format must have at most 8 bits, such as 'e4m3'; {format.name} has {format.bits}")
    codes = format.codes()
    values = decode(codes, format)
    columns = min(16, codes.size)
    rows = codes.size // columns
    ax = new_axes(ax, figsize=(0.62 * columns + 0.8, 0.36 * rows + 1.1))
    colours = palette(ax)
    strong = colours.format(format)
    kinds = {"{} subnormal": 0, "{} infinities": 0, "{} NaN": 0}
    words = [each for stripe in values.reshape(-1, 1 << format.trailing_bits) for each in _in_cells(stripe.tolist())]
    room = 0.94 * width_in_points(ax) / columns
    for code, value in zip(codes.tolist(), values.tolist(), strict=True):
        row, column = divmod(code, columns)
        subnormal = 0 < abs(value) < format.smallest_normal
        lost = "" if math.isfinite(value) else "{} NaN" if math.isnan(value) else "{} infinities"
        if kind := "{} subnormal" if subnormal else lost:
            kinds[kind] += 1
        if lost or value == 0:
            tint = colours.lost if lost else colours.background
        else:
            odd = code >> format.trailing_bits & 1
            tint = colours.paler(strong, 0.35 if subnormal else 0.75 if odd else 0.5)
        ax.add_patch(cell(column, row, tint, colours.background))
        if subnormal:
            ax.add_patch(Rectangle((column + 0.04, row + 0.04), 0.92, 0.92, facecolor="none", hatch="////",
                                   edgecolor=colours.background, linewidth=0))  # fmt: skip
        if value == 0:
            ax.add_patch(
                Rectangle((column + 0.05, row + 0.05), 0.9, 0.9, facecolor="none", edgecolor=colours.ink, linewidth=0.8)
            )
        text, exact, size = words[code]
        ax.text(column + 0.5, row + 0.52, text, ha="center", va="center", style="normal" if exact else "italic",
                fontsize=fitting_size(text, room, size), color=colours.on(tint))  # fmt: skip
    ax.set(xlim=(0, columns), ylim=(rows, 0))
    ax.set_xticks(np.arange(columns) + 0.5, [f"{i:X}" for i in range(columns)])
    ax.set_yticks(np.arange(rows) + 0.5, [f"{i:X}" for i in range(rows)])
    ax.xaxis.tick_top()
    ax.tick_params(length=0)
    if not all(exact for _, exact, _ in words):
        ax.set_xlabel(say("in italics: rounded to three digits"), style="italic", fontsize="small")
    ax.spines[:].set_visible(False)
    if title is None:
        counted = [say(kind, n) for kind, n in {"{} codes": codes.size, **kinds}.items() if n]
        title = say("{}: {}", format.name, say(", ").join(counted))
    return titled(ax, title)


def _in_cells(stripe: Sequence[float]) -> list[tuple[str, bool, str]]:
    """The text of each number of one exponent, whether it is exact, and the font size of all.

    >>> _in_cells([1.125, -math.inf]), _in_cells([2.0**-9, 2.0**-16])
    ([('1.125', True, 'small'), ('−∞', True, 'small')], [('.00195', False, 'small'), ('1.53e-5', False, 'small')])
    """
    texts = [_all_digits(abs(x)) for x in stripe]
    if max(map(len, texts)) > _MOST_LETTERS:
        texts = [_three_digits(abs(x)) if math.isfinite(x) else text for x, text in zip(stripe, texts, strict=True)]
    signed = ["−" * (str(x)[0] == "-") + text for x, text in zip(stripe, texts, strict=True)]
    size = "small" if max(map(len, signed)) <= _MOST_LETTERS else "x-small"
    return [
        (text, not math.isfinite(x) or float(text.replace("−", "-")) == x, size)
        for text, x in zip(signed, stripe, strict=True)
    ]


def _all_digits(size: float) -> str:
    from decimal import Decimal

    if not math.isfinite(size):
        return "NaN" if math.isnan(size) else "∞"
    text = f"{Decimal(size):f}"
    return text.removeprefix("0") if 0 < size < 1 else text


def _three_digits(size: float) -> str:
    """Return a text of at most seven letters, such as ".0137", ".000122" or "1.53e-5"."""
    text = f"{size:.3g}"
    if "e" in text:
        digits, exponent = text.split("e")
        return f"{digits}e{int(exponent)}"
    return text.removeprefix("0") if 0 < size < 1 else text
