"""The public functions: arrays of numbers in any format, and every operation on them."""

from __future__ import annotations

from floatsim._lazy import lazy_exports

_HOMES = {
    ".array.float_array": "FloatArray from_codes implements load save wrap",
    ".array.conversion": "array convert decode encode from_integer quantize to_integer",
    ".sums.products": "dot explain_plan matmul",
    ".call.options": "Context bind_context context get_context",
    ".events.record": "record scope",
    ".call.random_stream": "RandomStream",
    ".call.random_sources": "PHILOX_ARRANGEMENTS Lfsr Philox RandomGenerator Threefry",
}
__getattr__, __dir__, __all__ = lazy_exports(__name__, _HOMES)
