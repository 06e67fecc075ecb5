"""Replays: compare the emulator with captures of `floatsim capture`, and with published outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from floatsim.accumulation import AccumulationLike
from floatsim.hardware.captures.capture_file import AnyCapture, ScalarCapture, capture_files, read_captures
from floatsim.hardware.comparison import FIRST, Comparison

__all__ = ["Checked", "check_silicon"]


class Checked(NamedTuple):
    """A capture, and its comparison with the emulator."""

    capture: AnyCapture
    comparison: Comparison


def check_silicon(
    path: Path | str, accumulate: AccumulationLike | None = None, first: int = FIRST,
    progress: Callable[[Sequence[Any]], Iterable[Any]] = iter,
) -> Iterator[Checked]:  # fmt: skip
    """Replay every capture in a file or a folder, and compare it with the emulator.

    Parameters
    ----------
    path : path
        A file of `floatsim capture`; a file `<GPU>_<format>.npz` of the published outputs; a clone of their repository;
        or a folder that contains such files at any depth. Other `.npz` files below a folder are left out.
    accumulate : accumulation or text, optional
        The emulated accumulation. Default: the instruction of each capture. With an accumulation, captures of
        operations of CUDA cores are left out.
    first : int
        The number of mismatches of each capture to keep with their inputs and a trace.
    progress : callable, optional
        Wraps the sequence of files, as `tqdm` does.

    Yields
    ------
    Checked
        Each with the attributes `capture` and `comparison`.

    Raises
    ------
    FileNotFoundError
        If there is no such path.
    ValueError
        If it holds no captures, or one of them cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> import floatsim as fs
    >>> from floatsim.hardware.questions import emulated_device
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     files = fs.hardware.capture(folder, "mma.m8n8k4", rows=20, device=emulated_device("volta"))
    ...     [checked.comparison.equal for checked in fs.hardware.check_silicon(folder)]
    [True, True]
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no file or folder {path}")
    files = capture_files(path)
    if not files:
        raise ValueError(
            f"{path} holds no captures: neither .npz files, as `floatsim capture` writes them, nor folders of the "
            "published outputs, such as H100/fp16 with d_H100_fp32.txt in it"
        )
    for file in progress(files):
        for capture in read_captures(file):
            if accumulate is None or not isinstance(capture, ScalarCapture):
                yield Checked(capture, capture.compare(accumulate, first))
