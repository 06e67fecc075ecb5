"""A GPU through the CUDA driver alone, by ctypes: used where CuPy is not installed.

It has the methods of `floatsim.hardware.compile.cupy_runtime.Cuda`. Arrays of the GPU are `Memory`.

Source: NVIDIA, "CUDA Driver API" (initialization, device, primary context, module, memory, execution and events).
"""

from __future__ import annotations

import ctypes
import math
import sys
import weakref
from collections.abc import Callable
from ctypes import POINTER, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from floatsim.hardware.compile.cupy_runtime import UnavailableError, cuda_version, driver_version
from floatsim.hardware.protocol import DeviceIdentity

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

__all__ = ["ARGUMENTS", "DriverCuda", "DriverError", "Memory", "load_driver"]

_MULTIPROCESSORS, _MAJOR, _MINOR = 16, 75, 76  # CUdevice_attribute

_DIMENSIONS = [c_uint] * 3
ARGUMENTS: dict[str, list[Any]] = {
    "cuInit": [c_uint],
    "cuDriverGetVersion": [POINTER(c_int)],
    "cuGetErrorName": [c_int, POINTER(c_char_p)],
    "cuGetErrorString": [c_int, POINTER(c_char_p)],
    "cuDeviceGetCount": [POINTER(c_int)],
    "cuDeviceGet": [POINTER(c_int), c_int],
    "cuDeviceGetName": [c_char_p, c_int, c_int],
    "cuDeviceGetAttribute": [POINTER(c_int), c_int, c_int],
    "cuDevicePrimaryCtxRetain": [POINTER(c_void_p), c_int],
    "cuCtxSetCurrent": [c_void_p],
    "cuModuleLoadData": [POINTER(c_void_p), c_char_p],
    "cuModuleGetFunction": [POINTER(c_void_p), c_void_p, c_char_p],
    "cuMemAlloc_v2": [POINTER(c_uint64), c_size_t],
    "cuMemFree_v2": [c_uint64],
    "cuMemcpyHtoD_v2": [c_uint64, c_void_p, c_size_t],
    "cuMemcpyDtoH_v2": [c_void_p, c_uint64, c_size_t],
    # function, grid, block, bytes of shared memory, stream, pointers to the arguments, extra options
    "cuLaunchKernel": [c_void_p, *_DIMENSIONS, *_DIMENSIONS, c_uint, c_void_p, POINTER(c_void_p), POINTER(c_void_p)],
    "cuEventCreate": [POINTER(c_void_p), c_uint],
    "cuEventRecord": [c_void_p, c_void_p],
    "cuEventSynchronize": [c_void_p],
    "cuEventElapsedTime": [POINTER(c_float), c_void_p, c_void_p],
    "cuEventDestroy_v2": [c_void_p],
}
"""The functions of the driver with the types of their arguments. Each returns an error code, or 0."""


class DriverError(RuntimeError):
    """A function of the driver failed. The message contains the function, the error's name and its description."""


def load_driver() -> Any:
    """Load the library of the CUDA driver. Raise UnavailableError if there is none."""
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        library = ctypes.CDLL(name)
        for function, arguments in ARGUMENTS.items():
            getattr(library, function).argtypes = arguments
    except (OSError, AttributeError) as error:
        raise UnavailableError(f"the CUDA driver cannot be loaded: {error}") from None
    return library


class Memory:
    """An array in the memory of the GPU, which is freed with the object."""

    def __init__(self, pointer: int, shape: tuple[int, ...], dtype: DTypeLike) -> None:
        self.pointer, self.shape, self.dtype = pointer, shape, np.dtype(dtype)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The number of bytes."""
        return self.size * self.dtype.itemsize


class DriverCuda:
    """A GPU by its index.

    Parameters
    ----------
    number : int
        The index of the GPU, from 0.
    library : optional
        The functions of the driver. Default: the installed driver.

    Raises
    ------
    UnavailableError
        Without a driver, and if the driver finds no such GPU.
    """

    def __init__(self, number: int = 0, library: Any = None) -> None:
        self._library = load_driver() if library is None else library
        try:
            self._call("cuInit", 0)
            count = self._value(c_int, "cuDeviceGetCount")
        except DriverError as error:
            raise UnavailableError(f"the CUDA driver finds no NVIDIA GPU: {error}") from None
        if number >= count:
            raise UnavailableError(f"there is no GPU number {number}: the CUDA driver finds {count}, counted from 0")
        self._device: int = self._value(c_int, "cuDeviceGet", number)
        self._context = self._value(c_void_p, "cuDevicePrimaryCtxRetain", self._device)
        self._version: int = self._value(c_int, "cuDriverGetVersion")
        self.newest = self._version // 1000
        """The major CUDA version of the driver."""

    def _call(self, function: str, *arguments: Any) -> None:
        status = getattr(self._library, function)(*arguments)
        if status:
            words = []
            for describe in ("cuGetErrorName", "cuGetErrorString"):
                text = c_char_p()
                getattr(self._library, describe)(status, ctypes.byref(text))
                words.append((text.value or b"unknown error").decode())
            raise DriverError(f"{function} returned {status}: {': '.join(words)}")

    def _value(self, kind: Any, function: str, *arguments: Any) -> Any:
        """Return the value that a function writes to its first argument."""
        result = kind()
        self._call(function, ctypes.byref(result), *arguments)
        return result.value

    def _current(self) -> None:
        """Make the context of this GPU the current one of the thread. Other code may have changed it."""
        self._call("cuCtxSetCurrent", self._context)

    @cached_property
    def identity(self) -> DeviceIdentity:
        """The name of the GPU, and the versions of its software."""
        name = ctypes.create_string_buffer(256)
        self._call("cuDeviceGetName", name, len(name), self._device)
        capability = self._attribute(_MAJOR), self._attribute(_MINOR)
        cuda = cuda_version(self._version)
        driver = driver_version() or f"for CUDA {cuda}"
        return DeviceIdentity(name.value.decode(), capability, driver, cuda, cuda, "the driver API")

    def _attribute(self, attribute: int) -> int:
        number: int = self._value(c_int, "cuDeviceGetAttribute", attribute, self._device)
        return number

    @cached_property
    def multiprocessors(self) -> int:
        """The number of multiprocessors."""
        return self._attribute(_MULTIPROCESSORS)

    def kernel(self, code: bytes, name: str) -> Callable[..., None]:
        """Return a kernel of a cubin as a function of (grid, block, *arguments)."""
        self._current()
        module = self._value(c_void_p, "cuModuleLoadData", code)
        function = self._value(c_void_p, "cuModuleGetFunction", module, name.encode())

        def launch(grid: int, block: int, *arguments: Any) -> None:
            cells = [np.array(_word(argument)) for argument in arguments]
            pointers = (c_void_p * len(cells))(*(cell.ctypes.data for cell in cells))
            self._current()
            self._call("cuLaunchKernel", function, grid, 1, 1, block, 1, 1, 0, None, pointers, None)

        return launch

    def send(self, x: NDArray[Any]) -> Memory:
        """Copy an array to the GPU."""
        contiguous = np.ascontiguousarray(x)
        memory = self.empty(x.shape, x.dtype)
        self._call("cuMemcpyHtoD_v2", memory.pointer, contiguous.ctypes.data, memory.nbytes)
        return memory

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> Memory:
        """Return an uninitialized array on the GPU."""
        memory = Memory(0, shape, dtype)
        self._current()
        memory.pointer = self._value(c_uint64, "cuMemAlloc_v2", max(memory.nbytes, 1))  # 0 bytes are an error
        weakref.finalize(memory, self._free, memory.pointer).atexit = False  # the driver may be gone by then
        return memory

    def _free(self, pointer: int) -> None:
        self._library.cuCtxSetCurrent(self._context)  # no exception: after an error of a kernel, both fail
        self._library.cuMemFree_v2(pointer)

    def receive(self, x: Memory) -> NDArray[Any]:
        """Copy an array from the GPU, after all kernels."""
        array: NDArray[Any] = np.empty(x.shape, x.dtype)
        self._current()
        self._call("cuMemcpyDtoH_v2", array.ctypes.data, x.pointer, x.nbytes)
        return array

    def timed(self, call: Callable[[], Any], repeats: int) -> list[float]:
        """Return the milliseconds of each call by CUDA events. One call before the first is not measured."""
        self._current()
        first, last = (self._value(c_void_p, "cuEventCreate", 0) for _ in range(2))
        times = []
        call()
        for _ in range(repeats):
            self._current()
            self._call("cuEventRecord", first, None)
            call()
            self._current()
            self._call("cuEventRecord", last, None)
            self._call("cuEventSynchronize", last)
            times.append(float(self._value(c_float, "cuEventElapsedTime", first, last)))
        for event in (first, last):
            self._call("cuEventDestroy_v2", event)
        return times


def _word(argument: Any) -> np.generic:
    """Return an argument of a kernel as a number: an array is its address, and None the null pointer."""
    if argument is None:
        return np.uint64(0)
    if isinstance(argument, Memory):
        return np.uint64(argument.pointer)
    if isinstance(argument, np.generic):
        return argument
    raise TypeError(f"a kernel takes arrays of the GPU and NumPy numbers, not {argument!r}")
