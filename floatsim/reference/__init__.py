"""The readable specification: slow and simple, with one rounding wherever a definition has one.

`scalar` defines operations on numbers, `sums` sums, `tensorcore` matrix units, and `random` the bits of stochastic
rounding.
"""

from __future__ import annotations

from floatsim.reference.random import (
    GOLDEN,
    MIX,
    draw,
    draw_key,
    draw_word,
    draws,
    split_seed,
)
from floatsim.reference.scalar import (
    NAN,
    Kind,
    Number,
    Result,
    RoundingAttributes,
    add,
    below_zero,
    ceil,
    classify,
    compare,
    convert,
    decode,
    divide,
    exact_dot,
    floor,
    fma,
    fmod,
    from_fraction,
    from_text,
    infinite_result,
    integral,
    logb,
    maximum,
    maximum_number,
    minimum,
    minimum_number,
    multiply,
    nan_result,
    next_down,
    next_up,
    ordinal,
    remainder,
    rint,
    round_pack,
    round_significand,
    scalb,
    sqrt,
    subtract,
    to_integer,
    total_order,
    trunc,
)

__all__ = [
    "GOLDEN", "MIX", "NAN", "Kind", "Number", "Result", "RoundingAttributes", "add", "below_zero", "ceil", "classify",
    "compare", "convert", "decode", "divide", "draw", "draw_key", "draw_word", "draws", "exact_dot", "floor", "fma",
    "fmod", "from_fraction", "from_text", "infinite_result", "integral", "logb", "maximum", "maximum_number", "minimum",
    "minimum_number", "multiply", "nan_result", "next_down", "next_up", "ordinal", "remainder", "rint", "round_pack",
    "round_significand", "scalb", "split_seed", "sqrt", "subtract", "to_integer", "total_order", "trunc",
]  # fmt: skip
