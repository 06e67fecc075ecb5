"""The runtime of the CUDA driver on a driver in Python, which is called through C function pointers."""

from __future__ import annotations

import ctypes
import gc
import sys
from ctypes import POINTER, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p

import numpy as np
import pytest

import floatsim as fs
from floatsim.hardware.compile import driver_runtime, runtime
from floatsim.hardware.compile.driver_runtime import DriverCuda, DriverError, Memory

CONTEXT, MODULE, FUNCTION, EVENT = 0xC0FFEE00C0FFEE, 0xAB00000000, 0xCD00000000, 0xEF00000000
NULL = None

# cuda.h, CUDA 12 and 13, written down here again: a mistake in the runtime's own table gives wrong values below
HEADER = {
    "cuInit": (c_uint,),
    "cuDriverGetVersion": (POINTER(c_int),),
    "cuGetErrorName": (c_int, POINTER(c_char_p)),
    "cuGetErrorString": (c_int, POINTER(c_char_p)),
    "cuDeviceGetCount": (POINTER(c_int),),
    "cuDeviceGet": (POINTER(c_int), c_int),
    "cuDeviceGetName": (POINTER(ctypes.c_char), c_int, c_int),
    "cuDeviceGetAttribute": (POINTER(c_int), c_int, c_int),
    "cuDevicePrimaryCtxRetain": (POINTER(c_void_p), c_int),
    "cuCtxSetCurrent": (c_void_p,),
    "cuModuleLoadData": (POINTER(c_void_p), c_void_p),
    "cuModuleGetFunction": (POINTER(c_void_p), c_void_p, c_char_p),
    "cuMemAlloc_v2": (POINTER(c_uint64), c_size_t),
    "cuMemFree_v2": (c_uint64,),
    "cuMemcpyHtoD_v2": (c_uint64, c_void_p, c_size_t),
    "cuMemcpyDtoH_v2": (c_void_p, c_uint64, c_size_t),
    "cuLaunchKernel": (c_void_p, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_void_p,
                       POINTER(c_void_p), POINTER(c_void_p)),
    "cuEventCreate": (POINTER(c_void_p), c_uint),
    "cuEventRecord": (c_void_p, c_void_p),
    "cuEventSynchronize": (c_void_p,),
    "cuEventElapsedTime": (POINTER(c_float), c_void_p, c_void_p),
    "cuEventDestroy_v2": (c_void_p,),
}  # fmt: skip


class Driver:
    """A driver with one GPU, whose memory is host memory. `log` holds the calls, and `errors` what some of them return.

    A kernel named "add" gets (a, b, null, out, n as uint64): the float32 sums.
    """

    def __init__(self, count=1, **errors):
        self.count, self.errors, self.log = count, errors, []
        self.current, self.blocks, self.events, self.code = None, {}, [], b""
        self.faults = []  # failed assertions; the call returns 999
        for name, types in HEADER.items():
            setattr(self, name, ctypes.CFUNCTYPE(c_int, *types)(self.wrapped(name)))

    def wrapped(self, name):
        def call(*arguments):
            self.log.append(name)
            if name in self.errors:
                return self.errors[name]
            if name not in ("cuInit", "cuDriverGetVersion", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetAttribute",
                            "cuDeviceGetName", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuGetErrorName",
                            "cuGetErrorString") and self.current != CONTEXT:  # fmt: skip
                return 201  # CUDA_ERROR_INVALID_CONTEXT
            try:
                return getattr(self, f"do_{name}")(*arguments) or 0
            except BaseException as error:  # an exception does not leave a C function pointer
                self.faults.append(f"{name}: {error!r}")
                return 999

        return call

    def do_cuInit(self, flags):
        assert flags == 0

    def do_cuDriverGetVersion(self, version):
        version[0] = 12090

    def do_cuDeviceGetCount(self, count):
        count[0] = self.count

    def do_cuDeviceGet(self, device, ordinal):
        assert ordinal < self.count
        device[0] = ordinal + 40

    def do_cuDeviceGetName(self, name, size, device):
        assert device == 40
        ctypes.memmove(name, b"a GPU of Python\0", min(size, 16))

    def do_cuDeviceGetAttribute(self, value, attribute, device):
        assert device == 40
        value[0] = {16: 132, 75: 9, 76: 0}[attribute]

    def do_cuDevicePrimaryCtxRetain(self, context, device):
        assert device == 40
        context[0] = CONTEXT

    def do_cuCtxSetCurrent(self, context):
        self.current = context

    def do_cuModuleLoadData(self, module, image):
        self.code = ctypes.string_at(image, 8)
        module[0] = MODULE

    def do_cuModuleGetFunction(self, function, module, name):
        assert module == MODULE
        if name != b"add":
            return 500  # CUDA_ERROR_NOT_FOUND
        function[0] = FUNCTION
        return 0

    def do_cuMemAlloc_v2(self, pointer, size):
        if size == 0:
            return 1  # CUDA_ERROR_INVALID_VALUE
        block = ctypes.create_string_buffer(b"\x5a" * size, size)
        pointer[0] = ctypes.addressof(block)
        self.blocks[pointer[0]] = block
        return 0

    def do_cuMemFree_v2(self, pointer):
        del self.blocks[pointer]

    def do_cuMemcpyHtoD_v2(self, to, source, size):
        assert len(self.blocks[to]) >= size
        ctypes.memmove(to, source, size)

    def do_cuMemcpyDtoH_v2(self, to, source, size):
        assert len(self.blocks[source]) >= size
        ctypes.memmove(to, source, size)

    def do_cuLaunchKernel(self, function, gx, gy, gz, bx, by, bz, shared, stream, arguments, extra):
        assert (function, gy, gz, by, bz, shared, stream) == (FUNCTION, 1, 1, 1, 1, 0, NULL)
        assert not extra
        a, b, null, out, n = (ctypes.cast(arguments[i], POINTER(c_uint64))[0] for i in range(5))
        assert null == 0
        assert gx * bx >= n > (gx - 1) * bx
        x, y, z = (np.ctypeslib.as_array(ctypes.cast(p, POINTER(c_float)), (n,)) for p in (a, b, out))
        z[...] = x + y

    def do_cuEventCreate(self, event, flags):
        assert flags == 0
        self.events.append(EVENT + len(self.events))
        event[0] = self.events[-1]

    def do_cuEventRecord(self, event, stream):
        assert event in self.events
        assert stream is NULL

    def do_cuEventSynchronize(self, event):
        assert event == self.events[1]

    def do_cuEventElapsedTime(self, milliseconds, first, last):
        assert [first, last] == self.events
        milliseconds[0] = 1.5

    def do_cuEventDestroy_v2(self, event):
        assert event in self.events

    def do_cuGetErrorName(self, error, text):
        return self.told(error, text, {700: b"CUDA_ERROR_ILLEGAL_ADDRESS", 100: b"CUDA_ERROR_NO_DEVICE"})

    def do_cuGetErrorString(self, error, text):
        return self.told(error, text, {700: b"an illegal memory access was encountered"})

    def told(self, error, text, texts):
        text[0] = texts.get(error)
        return 0 if error in texts else 1


def test_a_kernel_reads_arrays_numbers_and_the_null_pointer():
    driver = Driver()
    gpu = DriverCuda(0, driver)
    code = b"\x7fELF\0\0\x01\x02"
    add = gpu.kernel(code, "add")
    assert driver.code == code
    x = np.arange(300, dtype=np.float32)
    a, b = gpu.send(x), gpu.send(x[::-1])
    out = gpu.empty((3, 100), np.float32)
    assert (out.shape, out.size, out.nbytes, out.dtype) == ((3, 100), 300, 1200, np.float32)
    assert (gpu.receive(out).view(np.uint8) == 0x5A).all()
    driver.current = None  # as after calls of another library
    add(2, 256, a, b, None, out, np.uint64(300))
    found = gpu.receive(out)
    assert found.shape == (3, 100)
    assert (found == 299).all()


def test_arguments_keep_their_widths():
    driver, words = Driver(), []

    def launch(*arguments):
        cells = arguments[9]
        words.extend(ctypes.string_at(cells[i], width) for i, width in enumerate((4, 8, 1, 8)))

    driver.do_cuLaunchKernel = launch
    gpu = DriverCuda(0, driver)
    memory = gpu.empty((2,), np.uint16)
    gpu.kernel(b"", "add")(1, 32, np.int32(-2), np.int64(-3), np.uint8(200), memory)
    assert not driver.faults
    assert words == [b"\xfe\xff\xff\xff", b"\xfd" + b"\xff" * 7, b"\xc8", memory.pointer.to_bytes(8, "little")]
    with pytest.raises(TypeError, match="arrays of the GPU and NumPy numbers, not 5"):
        gpu.kernel(b"", "add")(1, 32, 5)


def test_the_identity():
    gpu = DriverCuda(0, Driver())
    identity = gpu.identity
    assert (identity.name, identity.capability, identity.runtime) == ("a GPU of Python", (9, 0), "the driver API")
    assert (identity.cuda, identity.driver_cuda, gpu.newest, gpu.multiprocessors) == ("12.9", "12.9", 12, 132)


def test_memory_is_freed_with_its_array():
    driver = Driver()
    gpu = DriverCuda(0, driver)
    kept, gone = gpu.send(np.ones(5)), gpu.send(np.ones(7))
    assert len(driver.blocks) == 2
    driver.current = None
    del gone
    gc.collect()
    assert list(driver.blocks) == [kept.pointer]
    assert not driver.faults


def test_empty_arrays_make_the_way_there_and_back():
    gpu = DriverCuda(0, Driver())
    sent = gpu.send(np.empty((0, 4), np.uint8))
    assert isinstance(sent, Memory)
    assert gpu.receive(sent).shape == (0, 4)


def test_times():
    driver = Driver()
    gpu = DriverCuda(0, driver)
    driver.log.clear()

    def call():
        driver.log.append("call")
        driver.current = None

    assert gpu.timed(call, 3) == [1.5] * 3
    assert [name.removeprefix("cuEvent") for name in driver.log if name != "cuCtxSetCurrent"] == [
        "Create", "Create", "call", *["Record", "call", "Record", "Synchronize", "ElapsedTime"] * 3,
        "Destroy_v2", "Destroy_v2",
    ]  # fmt: skip
    assert not driver.faults


def test_an_error_names_the_function_and_what_it_means():
    gpu = DriverCuda(0, Driver(cuMemcpyDtoH_v2=700))
    with pytest.raises(DriverError, match=r"^cuMemcpyDtoH_v2 returned 700: CUDA_ERROR_ILLEGAL_ADDRESS: an illegal mem"):
        gpu.receive(gpu.send(np.ones(3)))
    with pytest.raises(DriverError, match=r"^cuModuleGetFunction returned 500: unknown error"):
        gpu.kernel(b"", "multiply")


def test_after_a_fault_memory_goes_without_an_exception():
    driver = Driver()
    gpu = DriverCuda(0, driver)
    memory = gpu.send(np.ones(3))
    driver.errors |= {"cuCtxSetCurrent": 700, "cuMemFree_v2": 700}
    del memory
    gc.collect()
    assert driver.log[-2:] == ["cuCtxSetCurrent", "cuMemFree_v2"]


def test_without_a_gpu():
    with pytest.raises(fs.hardware.UnavailableError, match=r"finds no NVIDIA GPU: cuInit returned 100: CUDA_ERROR_NO_"):
        DriverCuda(0, Driver(cuInit=100))
    with pytest.raises(fs.hardware.UnavailableError, match="there is no GPU number 1: the CUDA driver finds 1"):
        DriverCuda(1, Driver())


# -- the choice --------------------------------------------------------------------------------------------------------


@pytest.fixture
def no_cupy(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)


def test_without_cupy_the_driver_is_used(no_cupy, monkeypatch):
    monkeypatch.setattr(driver_runtime, "load_driver", Driver)
    device = fs.hardware.Device()
    assert device.identity.runtime == "the driver API"
    assert fs.hardware.is_available()
    assert runtime.why_unavailable() is None


@pytest.mark.parametrize("error", ["ImportError('libnvrtc.so.12')", "ValueError('numpy.dtype size changed')"])
def test_with_a_broken_cupy_the_driver_is_used(tmp_path, monkeypatch, error):
    """CuPy may be built for another NumPy or CUDA."""
    (tmp_path / "cupy.py").write_text(f"raise {error}")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    monkeypatch.setattr(driver_runtime, "load_driver", Driver)
    assert fs.hardware.Device().identity.runtime == "the driver API"


def test_without_both_the_error_names_both(no_cupy, monkeypatch):
    def missing(name):
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(driver_runtime.ctypes, "CDLL", missing)
    with pytest.raises(fs.hardware.UnavailableError, match=r"needs CuPy.*; without CuPy, the CUDA driver can"):
        fs.hardware.Device()
    assert "cannot open shared object file" in runtime.why_unavailable()
    assert not fs.hardware.is_available()


def test_with_cupy_the_driver_is_not_used(monkeypatch):
    class CuPy:
        def __init__(self, number):
            self.number = number

    monkeypatch.setattr(runtime.cupy_runtime, "Cuda", CuPy)
    monkeypatch.setattr(driver_runtime, "load_driver", lambda: pytest.fail("the driver was loaded"))
    assert runtime.open_runtime(2).number == 2


def test_an_unusable_gpu_of_cupy_is_the_error(monkeypatch):
    def broken(number):
        raise fs.hardware.UnavailableError("CuPy finds no NVIDIA GPU: a driver that is too old")

    monkeypatch.setattr(runtime.cupy_runtime, "Cuda", broken)
    monkeypatch.setattr(driver_runtime, "load_driver", lambda: pytest.fail("the driver was loaded"))
    assert runtime.why_unavailable() == "CuPy finds no NVIDIA GPU: a driver that is too old"


def test_the_table_of_functions_is_that_of_the_header():
    for name, types in HEADER.items():
        own = driver_runtime.ARGUMENTS[name]
        assert len(own) == len(types)
        assert [ctypes.sizeof(x) for x in own] == [ctypes.sizeof(x) for x in types]
    assert set(driver_runtime.ARGUMENTS) == set(HEADER)
