"""The description of running sums by a network of additions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from floatsim.accumulation.base import MOST, Accumulation, accumulator_format, value_text
from floatsim.formats import FloatFormat, FormatLike
from floatsim.formats._hashing import hashed_once
from floatsim.formats._validation import as_index

__all__ = ["Sklansky"]


@hashed_once
@dataclass(frozen=True, repr=False, init=False)
class Sklansky(Accumulation):
    """Running sums in tiles of 2 * threads elements, by Sklansky's network. Each addition is rounded to the format.

    The elements are converted to the format first. The last sum of the tile before, or +0, is added to the first
    element of a tile. Then for d = 1, 2, 4, ... up to threads: in each group of 2 * d elements, element d - 1 is added
    to each of the last d elements.
    PyTorch's `cumsum` of rows on a GPU adds so (aten/src/ATen/native/cuda/ScanUtils.cuh).

    J. Sklansky, "Conditional-Sum Addition Logic", IRE Transactions on Electronic Computers EC-9(2), 1960.

    Parameters
    ----------
    format : format
        The format of every sum.
    threads : int
        A power of two: half the elements of a tile.

    Raises
    ------
    TypeError
        If the format is a scale format.
    ValueError
        If a name is unknown, or `threads` is no power of two.

    Examples
    --------
    >>> import floatsim as fs
    >>> print(fs.Sklansky("fp16", 16))
    sklansky(fp16, 16)
    >>> x = fs.array([2048.0, 1.0, 1.0, 1.0], "fp16")
    >>> [fs.cumsum(x, accumulate=text).tolist()[-1] for text in ("fp16", "sklansky(fp16, 2)")]
    [2048.0, 2050.0]
    """

    text_form: ClassVar[str] = "sklansky(format, threads)"

    format: FloatFormat
    threads: int

    def __init__(self, format: FormatLike, threads: int) -> None:
        object.__setattr__(self, "format", accumulator_format(format))
        object.__setattr__(self, "threads", as_index(threads, "threads", 1, MOST))
        if self.threads & (self.threads - 1):
            raise ValueError(f"threads must be a power of two, not {self.threads}")

    @property
    def result_format(self) -> FloatFormat:
        return self.format

    def _texts(self, show: Any) -> list[str]:
        return [value_text(self.format, show), str(self.threads)]
