# Written by tools/write_stubs.py. Do not edit.

from floatsim import array as array
from floatsim import convert as convert
from floatsim import decode as decode
from floatsim import dot as dot
from floatsim import encode as encode
from floatsim import from_integer as from_integer
from floatsim import matmul as matmul
from floatsim import quantize as quantize
from floatsim import to_integer as to_integer
from floatsim.arrays.events import record as record
from floatsim.arrays.float_array import FloatArray as FloatArray
from floatsim.arrays.float_array import from_codes as from_codes
from floatsim.arrays.float_array import implements as implements
from floatsim.arrays.float_array import load as load
from floatsim.arrays.float_array import save as save
from floatsim.arrays.float_array import wrap as wrap
from floatsim.arrays.linalg import explain_plan as explain_plan
from floatsim.arrays.options import Context as Context
from floatsim.arrays.options import bind_context as bind_context
from floatsim.arrays.options import context as context
from floatsim.arrays.options import get_context as get_context
from floatsim.arrays.random_stream import RandomStream as RandomStream

__all__: list[str]
