"""Hold the emulator against what silicon has answered: recordings of `floatsim capture`, and published outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from floatsim.accumulation import AccumulationLike
from floatsim.hardware.captures.capture_file import Recording, read_recordings, recording_files
from floatsim.hardware.comparison import FIRST, Comparison

__all__ = ["Checked", "check_silicon"]


class Checked(NamedTuple):
    """A recording, and how the emulator compares with it."""

    recording: Recording
    comparison: Comparison


def check_silicon(
    path: Path | str, accumulate: AccumulationLike | None = None, first: int = FIRST,
    progress: Callable[[Sequence[Any]], Iterable[Any]] = iter,
) -> Iterator[Checked]:  # fmt: skip
    """Replay every recording in a file or a folder.

    Parameters
    ----------
    path : path
        A file of `floatsim capture`; a file `<GPU>_<format>.npz` of the published outputs; a clone of their repository;
        or a folder in which such files are, at any depth.
    accumulate : accumulation or text, optional
        Another sum than that of the recordings' own instructions.
    first : int
        How many mismatches to keep of each, with their inputs and a trace.
    progress : callable, optional
        Takes the sequence of files and yields them.

    Yields
    ------
    Checked

    Raises
    ------
    FileNotFoundError
        If there is no such path.
    ValueError
        If there are no recordings in it, or one of them cannot be read.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no file or folder {path}")
    files = recording_files(path)
    if not files:
        raise ValueError(
            f"{path} holds no recordings: neither .npz files, as `floatsim capture` writes them, nor folders of the "
            "published outputs, such as H100/fp16 with d_H100_fp32.txt in it"
        )
    for file in progress(files):
        for recording in read_recordings(file):
            yield Checked(recording, recording.compare(accumulate, first))
