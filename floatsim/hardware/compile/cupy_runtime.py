"""CuPy: which card there is, memory, kernels loaded from machine code, and how long they take."""

from __future__ import annotations

import importlib
import re
import tempfile
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from floatsim.hardware.protocol import Card

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Cuda", "UnavailableError"]

_NO_CUPY = (
    "backend='hardware' needs CuPy, which is not installed: pip install '.[cuda13x]' in a checkout of floatsim "
    "('.[cuda12x]' for a CUDA 12 driver)"
)


class UnavailableError(RuntimeError):
    """There is no card, or no CuPy to reach it by; the message says which, and what to do."""


def _cupy() -> Any:
    try:
        return importlib.import_module("cupy")
    except ImportError as error:
        cause = "" if isinstance(error, ModuleNotFoundError) and error.name == "cupy" else f" (import cupy: {error})"
        raise UnavailableError(_NO_CUPY + cause) from None


def _version(number: int) -> str:
    """As CUDA counts: 13020 is 13.2."""
    return f"{number // 1000}.{number % 1000 // 10}"


def _driver() -> str | None:
    """The driver's own version, on Linux."""
    try:
        found = re.search(r"Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)\s", Path("/proc/driver/nvidia/version").read_text())
    except OSError:
        return None
    return found[1] if found else None


class Cuda:
    """A card, by its number.

    Raises UnavailableError without CuPy, and where CuPy finds no such card.
    """

    def __init__(self, number: int = 0) -> None:
        self._cupy, self._number = _cupy(), number
        runtime = self._cupy.cuda.runtime
        try:
            count = runtime.getDeviceCount()
        except Exception as error:  # CuPy's own kinds of errors: no driver, no card, a driver that is too old
            hint = "is there a card, and is its driver new enough for this CuPy?"
            raise UnavailableError(f"CuPy finds no NVIDIA GPU: {error}; {hint}") from None
        if number >= count:
            raise UnavailableError(f"there is no GPU number {number}: CuPy finds {count}, counted from 0")
        self.newest = runtime.driverGetVersion() // 1000
        """The major version of CUDA that the driver is for."""

    @cached_property
    def card(self) -> Card:
        """Which it is."""
        runtime = self._cupy.cuda.runtime
        found = runtime.getDeviceProperties(self._number)
        name = found["name"]
        driver = _driver() or f"for CUDA {_version(runtime.driverGetVersion())}"
        return Card(
            name.decode() if isinstance(name, bytes) else str(name), (found["major"], found["minor"]), driver,
            _version(runtime.runtimeGetVersion()),
        )  # fmt: skip

    @cached_property
    def multiprocessors(self) -> int:
        """How many it has."""
        return int(self._cupy.cuda.runtime.getDeviceProperties(self._number)["multiProcessorCount"])

    @cached_property
    def _folder(self) -> Any:
        """Where machine code lies while the process runs: CuPy takes it from files."""
        return tempfile.TemporaryDirectory(prefix="floatsim-")

    def kernel(self, code: bytes, name: str) -> Callable[..., None]:
        """A kernel of a cubin, as a function of (grid, block, *arguments)."""
        with tempfile.NamedTemporaryFile(dir=self._folder.name, suffix=".cubin", delete=False) as file:
            file.write(code)
        with self._cupy.cuda.Device(self._number):
            function = self._cupy.RawModule(path=file.name).get_function(name)

        def launch(grid: int, block: int, *arguments: Any) -> None:
            with self._cupy.cuda.Device(self._number):
                function((grid,), (block,), tuple(_null if a is None else a for a in arguments))

        return launch

    def send(self, x: NDArray[Any]) -> Any:
        """An array on the card."""
        with self._cupy.cuda.Device(self._number):
            return self._cupy.asarray(np.ascontiguousarray(x))

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """An array on the card that holds nothing yet."""
        with self._cupy.cuda.Device(self._number):
            return self._cupy.empty(shape, dtype)

    def receive(self, x: Any) -> NDArray[Any]:
        """An array from the card."""
        with self._cupy.cuda.Device(self._number):
            array: NDArray[Any] = self._cupy.asnumpy(x)
            return array

    def timed(self, call: Callable[[], Any], repeats: int) -> list[float]:
        """How long a call keeps the card busy, in milliseconds by CUDA events; one more before that is not counted."""
        cupy, found = self._cupy, []
        with cupy.cuda.Device(self._number):
            call()
            for _ in range(repeats):
                first, last = cupy.cuda.Event(), cupy.cuda.Event()
                first.record()
                call()
                last.record()
                last.synchronize()
                found.append(float(cupy.cuda.get_elapsed_time(first, last)))
        return found


_null = np.uint64(0)  # a pointer to nothing
