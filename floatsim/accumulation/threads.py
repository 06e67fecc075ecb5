"""The description of a sum that the threads of a GPU share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from floatsim.accumulation.base import MOST, Accumulation, Composite
from floatsim.accumulation.composites import _member, _without_tensor_core
from floatsim.accumulation.text import AccumulationLike
from floatsim.formats._hashing import hashed_once
from floatsim.formats._validation import as_index

__all__ = ["Threads"]

_RESTS = ("vector", "threads", "rounds")


@hashed_once
@dataclass(frozen=True, repr=False, init=False)
class Threads(Composite):
    """Threads load vectors of neighbouring terms in turn; each adds its terms to its accumulators by `inner`.

    Vector v goes to thread v % threads. The i-th term that a thread loads in vectors goes to its accumulator i %
    accumulators. `outer` adds the accumulators of all threads: those of thread 0, then those of thread 1, and so on. An
    accumulator without a term is +0, so `outer` always has threads * accumulators terms. `c` seeds outer.

    Parameters
    ----------
    inner : description, format or text
        The sum of an accumulator.
    threads : int
        The number of threads, at least 1.
    outer : description, format or text
        The sum of the accumulators.
    width : int
        The terms of a vector, at least 1.
    accumulators : int
        The accumulators of a thread, at least 1.
    shift : int
        The position of the first term in its aligned block, if it is not aligned: the terms before the next block are
        the *head*. Term i of the head goes to accumulator 0 of thread shift + i, and the vectors follow it. A block is
        a vector, or with rest="rounds" a term for each thread. Default: 0, no head.
    rest : str
        The terms that fill no whole vector, or no whole round:

        - "vector": the last vector is short.
        - "threads": the terms after the last whole vector go to accumulator 0 of the threads 0, 1, ..., one each.
        - "rounds": the terms after the last whole round of vectors, one for each thread, go to accumulator 0 of the
          threads 0, 1, ..., 0, 1, ... in turn.

    Raises
    ------
    TypeError
        If `inner` or `outer` is no description, or a TensorCore.
    ValueError
        If a number is below 1, or `shift` not below the length of a block, or a text is unknown.

    Examples
    --------
    A row of 128 or more terms in `torch.sum` on a GPU, whose first term is at position 3 of a vector of 4:

    >>> import floatsim as fs
    >>> outer = "blocked(fp32, 4, pairwise(fp32, halving))"
    >>> row = fs.Threads("fp32", 32, outer, width=4, accumulators=4, shift=3, rest="threads")
    >>> print(row)
    threads(sequential(fp32), 32, blocked(sequential(fp32), 4, pairwise(fp32, halving)), width=4, accumulators=4, \
shift=3, threads)
    >>> x = fs.array([2048.0, 1.0, 0.0, 1.0], "fp16")  # (2048 + 1) + (0 + 1), then (2048 + 0) + (1 + 1)
    >>> [fs.sum(x, accumulate=f"threads(fp16, 2, fp16, width={n})").item() for n in (2, 1)]
    [2048.0, 2050.0]
    """

    text_form = "threads(inner, threads, outer)"
    text_words: ClassVar = {rest: {"rest": rest} for rest in _RESTS}

    inner: Accumulation
    threads: int
    outer: Accumulation
    width: int = 1
    accumulators: int = 1
    shift: int = 0
    rest: str = "vector"

    def __init__(
        self, inner: AccumulationLike, threads: int, outer: AccumulationLike, width: int = 1, accumulators: int = 1,
        shift: int = 0, rest: str = "vector",
    ) -> None:  # fmt: skip
        why = "a TensorCore adds products of matrices, not the terms of a thread"
        object.__setattr__(self, "inner", _without_tensor_core(inner, "inner", why))
        object.__setattr__(self, "threads", as_index(threads, "threads", 1, MOST))
        object.__setattr__(self, "outer", _without_tensor_core(outer, "outer", why))
        object.__setattr__(self, "width", as_index(width, "width", 1, MOST))
        object.__setattr__(self, "accumulators", as_index(accumulators, "accumulators", 1, MOST))
        object.__setattr__(self, "rest", _member(rest, "rest", _RESTS))
        object.__setattr__(self, "shift", as_index(shift, "shift", 0, self.block - 1))
        if self.shift and self.block > self.threads:
            raise ValueError(
                f"the head of a vector of {self.block} terms needs {self.block} threads; threads is {self.threads}"
            )

    @property
    def block(self) -> int:
        """The number of terms of an aligned block, which `shift` refers to."""
        return self.threads if self.rest == "rounds" else self.width

    def head(self, n: int) -> int:
        """Return the number of terms of n that come before the first vector.

        >>> import floatsim as fs
        >>> [fs.Threads("fp32", 8, "fp32", width=4, shift=shift).head(100) for shift in range(4)]
        [0, 3, 2, 1]
        """
        return min(self.block - self.shift, n) if self.shift else 0

    def whole(self, n: int) -> int:
        """Return the number of terms that threads load in vectors, of n terms after the head.

        >>> import floatsim as fs
        >>> [fs.Threads("fp32", 8, "fp32", width=4, rest=rest).whole(99) for rest in ("vector", "threads", "rounds")]
        [99, 96, 96]
        """
        unit = {"vector": 1, "threads": self.width, "rounds": self.width * self.threads}[self.rest]
        return n - n % unit

    def _texts(self, show: Any) -> list[str]:
        texts = [show(self.inner), str(self.threads), show(self.outer)]
        for name, default in (("width", 1), ("accumulators", 1), ("shift", 0)):
            if (value := getattr(self, name)) != default:
                texts.append(f"{name}={value}")
        if self.rest != "vector":
            texts.append(f"rest={self.rest!r}" if show is repr else self.rest)
        return texts
