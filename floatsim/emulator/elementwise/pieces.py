"""Kernels that run on pieces of flat arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from floatsim._types import Seeds
from floatsim.emulator import parallel
from floatsim.formats.call import CallOptions

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["NO_DRAWS", "PIECE", "Array", "Arrays", "Events", "draws_of", "flattened", "in_pieces"]

Events: TypeAlias = "NDArray[np.uint8]"
Array: TypeAlias = "NDArray[Any]"
Arrays: TypeAlias = "list[NDArray[Any]]"

PIECE = 1 << 17  # elements. The slowest kernel takes 15 ms for so many (November 2026), so that Ctrl-C is quick
_LONG_PIECE = 1 << 22  # elements of a kernel that does 300 million a second or more; a piece costs 5 us
_WORTH_THREADS = 1 << 20  # elements; a thread takes 0.1 ms to start, in which the fastest kernels do 400,000

NO_DRAWS: Seeds = np.zeros(2, np.uint64)
"""The seed and the index of kernels that draw no random numbers."""


def flattened(array: Array, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return the array broadcast to `shape`, contiguous and one-dimensional."""
    if array.shape != shape:
        array = np.broadcast_to(array, shape)
    return np.ascontiguousarray(array, dtype=dtype).reshape(-1)


def draws_of(options: CallOptions) -> Seeds:
    """Return the seed of a call and the index of its first element."""
    return np.array([options.seed, options.offset], np.uint64)


def in_pieces(
    title: str, run: Callable[[Arrays, Array, Seeds], None], arrays: Arrays, out: Array, draws: Seeds,
    *, long: bool = False,
) -> None:  # fmt: skip
    """Run a kernel on flat arrays, piece by piece on all threads if they are long.

    `arrays` are the operands, and the events if the kernel writes them. `draws` is the seed, and the index of the first
    element. With `long` the pieces are long.
    """
    if out.size <= PIECE:
        run(arrays, out, draws)
        return
    threads = parallel.get_num_threads() if out.size > _WORTH_THREADS else 1
    length = _LONG_PIECE if long else PIECE
    if long and threads > 1:  # at least four pieces for each thread, so that no thread waits long for the last one
        length = min(length, max(1, out.size // (4 * threads * PIECE)) * PIECE)

    def work(start: int) -> None:
        piece = slice(start, start + length)
        run([x[piece] for x in arrays], out[piece], draws + np.array([0, start], np.uint64))  # modulo 2**64

    parallel.run(range(0, out.size, length), work, threads, title)
