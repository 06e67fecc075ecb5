"""Types of arrays that several modules of the emulator name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Codes", "Floats", "Indices", "Seeds"]


Codes: TypeAlias = "NDArray[np.unsignedinteger[Any]]"
Floats: TypeAlias = "NDArray[np.floating[Any]]"
Indices: TypeAlias = "NDArray[np.int64]"
Seeds: TypeAlias = "NDArray[np.uint64]"
