"""Independent oracles. Nothing in this package uses floatsim's reference or its kernels.

A format enters only through its five parameters; which codes are special, what a code is worth and how a value is
rounded are written out here a second time, in another way than in `floatsim.reference`:

* `Layout.neighbour_below` finds the two neighbours of an exact rational by bisection over the codes, comparing exact
  values; `goes_up` then picks one of them from the definitions. No sticky bits, no aligned significands.
* `mpfr_exact` lets MPFR evaluate an operation toward zero with 64 bits to spare and turns its ternary value into an
  exact rational that lies on the right side of everything.
* `vector_*` are the same definitions on NumPy arrays, with float64 and an exact error term; good for every format
  of precision at most 24 whose values float64 holds with room (all but FP64). For formats of at most 16 bits the
  neighbours come from a search in the sorted table of values.
"""

from .decode import (
    ABSORBED,
    ARITHMETIC,
    CUSTOM,
    DETERMINISTIC,
    DIVIDE_BY_ZERO,
    FLUSHED,
    INEXACT,
    INVALID,
    NAMED,
    OVERFLOW,
    POLICIES,
    SMALL,
    SUBNORMAL,
    TININESS,
    UNDERFLOW,
    UP_TO_16,
    VECTOR,
    Layout,
    Value,
    layout,
    rng,
    test_seed,
)
from .functions import FUNCTIONS, Function
from .mpfr import (
    ARITY,
    MPFR_OPERATIONS,
    Exact,
    integer_remainder,
    to_mpfr,
)
from .rounding import (
    OWN_DIRECTION,
    OracleRounding,
    Rounder,
    compare,
    convert,
    every_rounding,
    extremum,
    goes_up,
    integral,
    nan_of,
    order_key,
    to_integer,
    whole_number,
)
from .samples import (
    assert_equal_codes,
    near_codes,
    report,
    special_codes,
    structured,
)
from .vector import (
    Decoded,
    neighbours,
    round_operation,
    table_of_values,
    two_sum,
    unrounded,
    vector_convert,
    vector_decode,
    vector_integral,
    vector_operation,
    vector_round,
)

__all__ = [
    "ABSORBED", "ARITHMETIC", "ARITY", "CUSTOM", "DETERMINISTIC", "DIVIDE_BY_ZERO", "FLUSHED", "FUNCTIONS",
    "INEXACT", "INVALID", "MPFR_OPERATIONS", "NAMED", "OVERFLOW", "OWN_DIRECTION", "POLICIES", "SMALL", "SUBNORMAL",
    "TININESS", "UNDERFLOW", "UP_TO_16", "VECTOR", "Decoded", "Exact", "Function", "Layout", "OracleRounding",
    "Rounder", "Value", "assert_equal_codes", "compare", "convert", "every_rounding", "extremum", "goes_up",
    "integer_remainder", "integral", "layout", "nan_of", "near_codes", "neighbours", "order_key", "report", "rng",
    "round_operation", "special_codes", "structured", "table_of_values", "test_seed", "to_integer", "to_mpfr",
    "two_sum", "unrounded", "vector_convert", "vector_decode", "vector_integral", "vector_operation", "vector_round",
    "whole_number",
]  # fmt: skip
