"""Types that several packages name. For type checkers only: nothing is imported."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from typing import Any

    import numpy as np
    from numpy.typing import NDArray

    from floatsim.formats import FloatFormat

__all__ = ["Codes", "Indices", "Operand"]

Codes: TypeAlias = "NDArray[np.unsignedinteger[Any]]"
"""Codes of a format, as unsigned integers."""

Indices: TypeAlias = "NDArray[np.int64]"
"""Indices of elements."""

Operand: TypeAlias = "tuple[Codes, FloatFormat]"
"""Codes and their format."""
