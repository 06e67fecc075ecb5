"""Triton's interpreter with floatsim's definitions. Needs the extra `triton`.

Set TRITON_INTERPRET=1 in the environment before the first import of triton and torch.

>>> import torch, triton, triton.language as tl
>>> import floatsim.triton as ftl
>>> @triton.jit
... def to_bf16(x, y):
...     tl.store(y, tl.load(x).to(tl.bfloat16))
>>> x, y = torch.tensor([1.0 + 2.0**-8 + 2.0**-9]), torch.empty(1, dtype=torch.bfloat16)
>>> to_bf16[(1,)](x, y)
>>> float(y)
1.0
>>> with ftl.interpret():
...     to_bf16[(1,)](x, y)
>>> float(y)
1.0078125
"""

from __future__ import annotations

from floatsim._extras import install_command

try:
    import triton as _triton  # noqa: F401
except ImportError as error:
    raise ImportError(f"floatsim.triton needs Triton: {install_command('triton')}") from error

from floatsim.triton.errors import UndefinedOperationError
from floatsim.triton.interpreter import interpret
from floatsim.triton.kernels import as_matmul
from floatsim.triton.versions import TESTED_VERSIONS

__all__ = ["TESTED_VERSIONS", "UndefinedOperationError", "as_matmul", "interpret"]
