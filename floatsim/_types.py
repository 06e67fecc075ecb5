"""Types that several packages name. For type checkers only: nothing is imported."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from typing import Any

    import numpy as np
    from numpy.typing import NDArray

    from floatsim.formats import FloatFormat

__all__ = ["Codes", "Floats", "Indices", "Operand", "Seeds"]

Codes: TypeAlias = "NDArray[np.unsignedinteger[Any]]"
"""Codes of a format, as unsigned integers."""

Indices: TypeAlias = "NDArray[np.int64]"
"""Indices of elements."""

Operand: TypeAlias = "tuple[Codes, FloatFormat]"
"""Codes and their format."""

Floats: TypeAlias = "NDArray[np.floating[Any]]"
"""Values as floats of the hardware."""

Seeds: TypeAlias = "NDArray[np.uint64]"
"""Seeds of random draws."""
