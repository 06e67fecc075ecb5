"""The versions of Triton whose interpreter was tested, and the check before anything is patched."""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["TESTED_VERSIONS", "check_triton"]

TESTED_VERSIONS = ("3.8.0", "3.9.0")
"""The versions of Triton whose interpreter `interpret` accepts.

>>> import floatsim.triton as ftl
>>> "3.9.0" in ftl.TESTED_VERSIONS
True
"""


def check_triton() -> None:
    """Raise an error for a version that was not tested, and for a Triton that was imported without the interpreter."""
    found = triton.__version__.partition("+")[0]
    if found not in TESTED_VERSIONS:
        raise RuntimeError(
            f"floatsim.triton was tested with the interpreter of Triton {' and '.join(TESTED_VERSIONS)}; the installed "
            f"version is {triton.__version__}: pip install 'triton=={TESTED_VERSIONS[-1]}'"
        )
    from triton.runtime.interpreter import InterpretedFunction

    if not isinstance(tl.zeros, InterpretedFunction):
        raise RuntimeError(
            "Triton was imported to compile kernels: set TRITON_INTERPRET=1 in the environment before the first import "
            "of triton and torch"
        )
