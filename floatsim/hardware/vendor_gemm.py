"""Matrix products by NVIDIA's libraries, for bitwise comparison: cuBLAS, and cuBLASLt for FP8.

A library selects its kernel by shape, GPU and version, and with it the summation order. Only the compute type is fixed;
each row of the table states it. The results of a backend follow a description, so libraries are compared only.

Sources: NVIDIA, "cuBLAS": cublasGemmEx() and cublasLtMatmul(), the tables of supported types; CuPy 14; nvmath-python
1.0.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from floatsim._extras import install_command
from floatsim._types import Codes
from floatsim.arrays.array.conversion import read_floats
from floatsim.arrays.array.interop import as_numpy
from floatsim.arrays.array.operands import deliver
from floatsim.formats import BF16, E4M3, E5M2, FP16, FP32, FP64, TF32, FloatFormat, FormatLike, as_format
from floatsim.hardware.compile.cupy_runtime import UnavailableError
from floatsim.hardware.tables.compute_capability import Capability

__all__ = ["LIBRARIES", "PRODUCTS", "Product", "find_product", "installed", "library_matmul", "prepared"]


LIBRARIES = ("cublas", "cupy", "nvmath")
"""GemmEx of cuBLAS with a stated compute type, `cupy.matmul`, and cuBLASLt through nvmath-python."""


@dataclass(frozen=True)
class Product:
    """A supported product of a library: a row of the table.

    Parameters
    ----------
    library : str
        One of `LIBRARIES`.
    a, b, output : FloatFormat
        The formats of A, B and the result.
    compute : str
        The compute type of cuBLAS without CUBLAS_COMPUTE_. "32f_fast_accum" is 32F with the fast accumulation of FP8.
    oldest : Capability
        The least compute capability of the GPU.
    """

    library: str
    a: FloatFormat
    b: FloatFormat
    output: FloatFormat
    compute: str
    oldest: Capability = (7, 0)

    def __str__(self) -> str:
        return f"{self.library} {self.a} x {self.b} to {self.output}, compute {self.compute}"


def _products() -> Iterator[Product]:
    for fmt, output, computes in (
        (FP16, FP32, "32f 32f_pedantic"), (FP16, FP16, "32f 32f_pedantic 16f 16f_pedantic"),
        (FP32, FP32, "32f 32f_pedantic 32f_fast_16f"), (FP64, FP64, "64f 64f_pedantic"),
    ):  # fmt: skip
        for compute in computes.split():
            yield Product("cublas", fmt, fmt, output, compute)
    for fmt, output, computes in (
        (BF16, FP32, "32f 32f_pedantic"), (BF16, BF16, "32f 32f_pedantic"), (TF32, FP32, "32f_fast_tf32"),
        (FP32, FP32, "32f_fast_tf32 32f_fast_16bf"),
    ):  # fmt: skip
        for compute in computes.split():
            yield Product("cublas", fmt, fmt, output, compute, (8, 0))
    for fmt, compute, oldest in ((FP16, "32f", (7, 0)), (BF16, "32f", (8, 0)), (FP32, "32f", (7, 0)),
                                 (FP64, "64f", (7, 0))):  # fmt: skip
        yield Product("cupy", fmt, fmt, fmt, compute, oldest)
    for a, b in ((E4M3, E4M3), (E4M3, E5M2), (E5M2, E4M3)):  # cuBLASLt has no E5M2 x E5M2
        for output in (FP32, FP16, BF16):
            for compute in ("32f", "32f_fast_accum"):
                yield Product("nvmath", a, b, output, compute, (8, 9))


PRODUCTS = tuple(_products())
"""All supported products. The first of several compute types is the default."""


def find_product(
    library: str, a: FloatFormat, b: FloatFormat, output: FloatFormat | None = None, compute: str | None = None,
    capability: Capability | None = None,
) -> Product:  # fmt: skip
    """Return the row of the table for operands of these formats.

    Raises
    ------
    ValueError
        If there is none, or the GPU is too old. The message lists the supported ones.

    Examples
    --------
    >>> str(find_product("cublas", FP16, FP16)), str(find_product("nvmath", E4M3, E5M2, FP16))
    ('cublas FP16 x FP16 to FP32, compute 32f', 'nvmath E4M3 x E5M2 to FP16, compute 32f')
    """
    if library not in LIBRARIES:
        raise ValueError(f"library={library!r} is unknown; known libraries are {', '.join(map(repr, LIBRARIES))}")
    named = None if compute is None else compute.lower().removeprefix("cublas_compute_")
    rows = [row for row in PRODUCTS if (row.library, row.a, row.b) == (library, a, b)]
    if not rows:
        supported = dict.fromkeys(f"{row.a} x {row.b}" for row in PRODUCTS if row.library == library)
        raise ValueError(f"library={library!r} does not multiply {a} x {b}; it supports {', '.join(supported)}")
    fitting = [row for row in rows if output in (None, row.output) and named in (None, row.compute)]
    if not fitting:
        given = {"format": output and output.name, "compute": compute}
        options = " and ".join(f"{name}={value!r}" for name, value in given.items() if value is not None)
        raise ValueError(
            f"library={library!r} does not multiply {a} x {b} with {options}; there is {'; '.join(map(str, rows))}"
        )
    usable = [row for row in fitting if capability is None or capability >= row.oldest]
    if not usable:
        assert capability is not None
        oldest, actual = (".".join(map(str, x)) for x in (min(row.oldest for row in fitting), capability))
        raise ValueError(f"{fitting[0]} needs compute capability {oldest} or newer; this GPU has {actual}")
    return usable[0]


# -- packages ----------------------------------------------------------------------------------------------------------

_NEEDS = {
    "cupy": {"cupy": f"{install_command('cuda13x')}, or for a CUDA 12 driver {install_command('cuda12x')}"},
    "nvmath": {
        "nvmath.linalg.advanced": "pip install 'nvmath-python[cu13]' ('nvmath-python[cu12]' for CUDA 12)",
        "torch": "pip install torch: nvmath takes FP8 operands as torch tensors",
    },
}  # fmt: skip
_NEEDS["cublas"] = _NEEDS["cupy"] | {"cupy_backends.cuda.libs.cublas": _NEEDS["cupy"]["cupy"]}


def _modules(library: str) -> list[Any]:
    """Return the modules of a library. Raise an `UnavailableError` with the package to install if one is missing."""
    modules = []
    for name, install in _NEEDS[library].items():
        folder, _, last = name.rpartition(".")
        try:
            # This is `from folder import last`. CuPy then finds and loads the shared library that its module needs.
            modules.append(getattr(__import__(folder, fromlist=[last]), last) if folder else __import__(last))
        except Exception as error:  # a package for another CUDA or NumPy can raise any error
            raise UnavailableError(f"library={library!r} needs {name}, which is missing ({error}): {install}") from None
    return modules


def installed() -> tuple[str, ...]:
    """Return the members of `LIBRARIES` whose packages are installed."""

    def is_installed(library: str) -> bool:
        try:
            return bool(_modules(library))
        except UnavailableError:
            return False

    return tuple(filter(is_installed, LIBRARIES))


# -- multiplying -------------------------------------------------------------------------------------------------------


def library_matmul(
    a: Any, b: Any, *, library: str = "cublas", compute: str | None = None, format: FormatLike | None = None,
    number: int = 0,
) -> Any:  # fmt: skip
    """Multiply two matrices on the GPU with a library of NVIDIA.

    Parameters
    ----------
    a, b : array_like of floats, (M, K) and (K, N)
        FloatArrays, or arrays whose dtype is a format.
    library : str
        "cublas": GemmEx with the given compute type. "cupy": `cupy.matmul` with CuPy's compute type (32F, and 64F for
        FP64; CUPY_TF32=1 changes it for FP32). "nvmath": FP8 by cuBLASLt, with scales of 1. Sizes are filled up with
        zeros to multiples of 16, which cuBLASLt requires.
    compute : str, optional
        The compute type of cuBLAS: "32f", "16f", "32f_fast_tf32"; "32f_fast_accum" for FP8. Default: the first in the
        table.
    format : format, optional
        The format of the result. Default: the first in the table, which is FP32 if the library supports it.
    number : int
        The index of the GPU, from 0.

    Returns
    -------
    FloatArray or ndarray, (M, N)
        A FloatArray if an input is one or the format has no dtype.

    Raises
    ------
    UnavailableError
        Without the library, CuPy or a GPU. The message names the package to install.
    ValueError
        If the shapes do not fit, or the library or the GPU does not support the formats.

    Notes
    -----
    No library documents its summation order. The order may differ between shapes, GPUs and versions: compare it with
    `fs.hardware.compare(..., library=...)`.

    Examples
    --------
    >>> import floatsim as fs
    >>> x = fs.array(np.ones((16, 16)), "e5m2")
    >>> library_matmul(x, x, library="nvmath")
    Traceback (most recent call last):
        ...
    ValueError: library='nvmath' does not multiply E5M2 x E5M2; it supports E4M3 x E4M3, E4M3 x E5M2, E5M2 x E4M3
    """
    (x, x_format, x_float), (y, y_format, y_float) = read_floats(a, "a"), read_floats(b, "b")
    if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[0]:
        raise ValueError(f"a library multiplies (M, K) by (K, N), not {x.shape} by {y.shape}")
    from floatsim.hardware.compile.cupy_runtime import Cuda

    output = None if format is None else as_format(format)
    product = find_product(library, x_format, y_format, output, compute)
    _modules(library)
    product = find_product(library, x_format, y_format, output, compute, Cuda(number).identity.capability)
    codes = np.zeros((x.shape[0], y.shape[1]), product.output.code_dtype)
    if codes.size and x.shape[1]:
        with prepared(product, x, y, number) as multiply:
            host = as_numpy(multiply())
        assert host is not None
        codes = np.ascontiguousarray(host[: len(x), : y.shape[1]]).view(product.output.code_dtype)
    return deliver(codes, product.output, x_float or y_float, None)


@contextlib.contextmanager
def prepared(product: Product, a: Codes, b: Codes, number: int = 0) -> Iterator[Callable[[], Any]]:
    """Copy operands to the GPU, and yield a function that multiplies them there into an array of CuPy or torch."""
    with _PREPARED[product.library](product, a, b, number) as multiply:
        yield multiply


@contextlib.contextmanager
def _by_cupy(product: Product, a: Codes, b: Codes, number: int) -> Iterator[Callable[[], Any]]:
    (cupy,), dtype = _modules("cupy"), product.a.dtype
    assert dtype is not None
    with cupy.cuda.Device(number):
        x, y = (cupy.asarray(np.ascontiguousarray(codes).view(dtype)) for codes in (a, b))
        yield lambda: cupy.matmul(x, y)


_CUDA_TYPES = {FP16: "CUDA_R_16F", BF16: "CUDA_R_16BF", TF32: "CUDA_R_32F", FP32: "CUDA_R_32F", FP64: "CUDA_R_64F"}
_SCALES = {"16f": np.float16, "32f": np.float32, "64f": np.float64}  # the type of alpha and beta, by compute type


@contextlib.contextmanager
def _by_cublas(product: Product, a: Codes, b: Codes, number: int) -> Iterator[Callable[[], Any]]:
    """Yield a function that calls GemmEx on the addresses of the operands.

    GemmEx expects columns in consecutive memory. It computes b^T a^T, whose columns are the rows of a b. The type of
    TF32 operands is FP32.
    """
    cupy, cublas = _modules("cublas")
    compute = getattr(cublas, f"CUBLAS_COMPUTE_{product.compute.upper()}")
    type_a, type_b, type_d = (
        getattr(cupy.cuda.runtime, _CUDA_TYPES[f]) for f in (product.a, product.b, product.output)
    )
    alpha, beta = (np.array(x, _SCALES[product.compute.partition("_")[0]]) for x in (1, 0))
    (rows, depth), columns = a.shape, b.shape[1]
    with cupy.cuda.Device(number):
        shift = 13 if product.a == TF32 else 0
        x, y = (cupy.asarray(np.ascontiguousarray(codes) << shift) for codes in (a, b))
        out = cupy.empty((rows, columns), product.output.code_dtype)
        handle = cupy.cuda.device.get_cublas_handle()

        def multiply() -> Any:
            cublas.setPointerMode(handle, cublas.CUBLAS_POINTER_MODE_HOST)
            cublas.gemmEx(
                handle, cublas.CUBLAS_OP_N, cublas.CUBLAS_OP_N, columns, rows, depth, alpha.ctypes.data,
                y.data.ptr, type_b, columns, x.data.ptr, type_a, depth, beta.ctypes.data, out.data.ptr, type_d, columns,
                compute, cublas.CUBLAS_GEMM_DEFAULT,
            )  # fmt: skip
            return out

        yield multiply


_TORCH = {E4M3: "float8_e4m3fn", E5M2: "float8_e5m2"}


@contextlib.contextmanager
def _by_nvmath(product: Product, a: Codes, b: Codes, number: int) -> Iterator[Callable[[], Any]]:
    """Yield a function that calls cuBLASLt. K is contiguous in both operands, as cuBLASLt requires for FP8."""
    advanced, torch = _modules("nvmath")
    nvmath = importlib.import_module("nvmath")

    def sent(codes: Codes, fmt: FloatFormat) -> Any:
        filled = np.zeros([-(-n // 16) * 16 for n in codes.shape], np.uint8)
        filled[: codes.shape[0], : codes.shape[1]] = codes
        return torch.from_numpy(filled).to(f"cuda:{number}").view(getattr(torch, _TORCH[fmt]))

    x, y = sent(a, product.a), sent(np.ascontiguousarray(b.T), product.b).T
    options = {
        "result_type": getattr(nvmath.CudaDataType, _CUDA_TYPES[product.output]),
        "fast_accumulation": product.compute == "32f_fast_accum",
    }
    with advanced.Matmul(x, y, quantization_scales={"a": 1.0, "b": 1.0}, options=options) as matmul:
        matmul.plan()
        yield matmul.execute


_PREPARED = {"cupy": _by_cupy, "cublas": _by_cublas, "nvmath": _by_nvmath}
