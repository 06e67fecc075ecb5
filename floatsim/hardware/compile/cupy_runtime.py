"""The CuPy runtime: the GPU's identity, memory, kernels from machine code, and their times."""

from __future__ import annotations

import importlib
import re
import shutil
import tempfile
import weakref
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from floatsim._extras import install_command
from floatsim.hardware.protocol import DeviceIdentity

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Cuda", "NoCuPyError", "UnavailableError", "cuda_version", "driver_version"]

_NO_CUPY = (
    f"backend='hardware' needs CuPy, which is not installed: {install_command('cuda13x')}, "
    f"or for a CUDA 12 driver {install_command('cuda12x')}"
)


class UnavailableError(RuntimeError):
    """CuPy or the GPU is missing. The message names the missing part, and how to install it.

    >>> import floatsim as fs
    >>> try:
    ...     device = fs.hardware.Device()
    ... except fs.hardware.UnavailableError as error:
    ...     assert str(error)  # names the missing part
    """


class NoCuPyError(UnavailableError):
    """CuPy cannot be imported."""


def _cupy() -> Any:
    try:
        return importlib.import_module("cupy")
    except Exception as error:  # a CuPy for another NumPy or CUDA can raise any error
        cause = "" if isinstance(error, ModuleNotFoundError) and error.name == "cupy" else f" (import cupy: {error})"
        raise NoCuPyError(_NO_CUPY + cause) from None


def cuda_version(number: int) -> str:
    """Return a CUDA version number as text: 13020 is 13.2."""
    return f"{number // 1000}.{number % 1000 // 10}"


def driver_version() -> str | None:
    """Return the version of the driver, on Linux."""
    try:
        version = re.search(
            r"Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)\s", Path("/proc/driver/nvidia/version").read_text(encoding="utf-8")
        )
    except OSError:
        return None
    return version[1] if version else None


class Cuda:
    """A GPU by its index.

    Raises
    ------
    UnavailableError
        Without CuPy, and if CuPy finds no such GPU.
    """

    def __init__(self, number: int = 0) -> None:
        self._cupy, self._number = _cupy(), number
        runtime = self._cupy.cuda.runtime
        try:
            count = runtime.getDeviceCount()
        except Exception as error:  # CuPy's own errors: no driver, no GPU, a driver that is too old
            hint = "check that a GPU is installed, and that its driver is new enough for this CuPy"
            raise UnavailableError(f"CuPy finds no NVIDIA GPU: {error}; {hint}") from None
        if number >= count:
            raise UnavailableError(f"there is no GPU number {number}: CuPy finds {count}, counted from 0")
        self.newest = runtime.driverGetVersion() // 1000
        """The major CUDA version of the driver."""

    @cached_property
    def identity(self) -> DeviceIdentity:
        """The name of the GPU, and the versions of its software."""
        runtime = self._cupy.cuda.runtime
        properties = runtime.getDeviceProperties(self._number)
        name = properties["name"]
        supported = cuda_version(runtime.driverGetVersion())
        return DeviceIdentity(
            name.decode() if isinstance(name, bytes) else str(name), (properties["major"], properties["minor"]),
            driver_version() or f"for CUDA {supported}", cuda_version(runtime.runtimeGetVersion()), supported,
            f"CuPy {self._cupy.__version__}",
        )  # fmt: skip

    @cached_property
    def multiprocessors(self) -> int:
        """The number of multiprocessors."""
        return int(self._cupy.cuda.runtime.getDeviceProperties(self._number)["multiProcessorCount"])

    @cached_property
    def _folder(self) -> str:
        """The folder of the machine code, from which CuPy loads it. It is removed with this object, or at the end.

        A `TemporaryDirectory` would warn when this object, or a kernel of it, is no longer used.
        """
        folder = tempfile.mkdtemp(prefix="floatsim-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        return folder

    def kernel(self, code: bytes, name: str) -> Callable[..., None]:
        """Return a kernel of a cubin as a function of (grid, block, *arguments)."""
        with tempfile.NamedTemporaryFile(dir=self._folder, suffix=".cubin", delete=False) as file:
            file.write(code)
        with self._cupy.cuda.Device(self._number):
            function = self._cupy.RawModule(path=file.name).get_function(name)

        def launch(grid: int, block: int, *arguments: Any) -> None:
            with self._cupy.cuda.Device(self._number):
                function((grid,), (block,), tuple(_null if a is None else a for a in arguments))

        return launch

    def send(self, x: NDArray[Any]) -> Any:
        """Copy an array to the GPU."""
        with self._cupy.cuda.Device(self._number):
            return self._cupy.asarray(np.ascontiguousarray(x))

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return an uninitialized array on the GPU."""
        with self._cupy.cuda.Device(self._number):
            return self._cupy.empty(shape, dtype)

    def receive(self, x: Any) -> NDArray[Any]:
        """Copy an array from the GPU."""
        with self._cupy.cuda.Device(self._number):
            array: NDArray[Any] = self._cupy.asnumpy(x)
            return array

    def timed(self, call: Callable[[], Any], repeats: int) -> list[float]:
        """Return the milliseconds of each call by CUDA events. One call before the first is not measured."""
        cupy, times = self._cupy, []
        with cupy.cuda.Device(self._number):
            call()
            for _ in range(repeats):
                first, last = cupy.cuda.Event(), cupy.cuda.Event()
                first.record()
                call()
                last.record()
                last.synchronize()
                times.append(float(cupy.cuda.get_elapsed_time(first, last)))
        return times


_null = np.uint64(0)  # the null pointer
