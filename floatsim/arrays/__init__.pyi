# Written by tools/write_stubs.py. Do not edit.

from floatsim import array, convert, decode, dot, encode, from_integer, matmul, quantize, to_integer
from floatsim.arrays.array.float_array import FloatArray, from_codes, implements, load, save, wrap
from floatsim.arrays.call.options import Context, bind_context, context, get_context
from floatsim.arrays.call.random_sources import Lfsr, PHILOX_ARRANGEMENTS, Philox, RandomGenerator, Threefry
from floatsim.arrays.call.random_stream import RandomStream
from floatsim.arrays.events.record import record, scope
from floatsim.arrays.sums.products import explain_plan

__all__ = [
    "Context", "FloatArray", "Lfsr", "PHILOX_ARRANGEMENTS", "Philox", "RandomGenerator", "RandomStream", "Threefry",
    "array", "bind_context", "context", "convert", "decode", "dot", "encode", "explain_plan", "from_codes",
    "from_integer", "get_context", "implements", "load", "matmul", "quantize", "record", "save", "scope", "to_integer",
    "wrap",
]
