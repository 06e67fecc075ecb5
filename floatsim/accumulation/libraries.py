"""The sums of named libraries, as ordinary descriptions: on CPUs, and on GPUs from the names of their kernels.

Each row of `ROWS` says what was compared with the library: versions, CPUs, threads and shapes. A description never
depends on the machine that asks: the version, the CPU and the number of threads are arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from floatsim.accumulation import library_rules as rules
from floatsim.accumulation.gpu_libraries import kernel_sum, release
from floatsim.accumulation.gpu_reductions import REDUCTIONS, reduction_sum
from floatsim.accumulation.library_rules import NotDescribedError, Region, Regions
from floatsim.accumulation.recorded_kernels import default_result, recorded_kernels
from floatsim.formats._validation import as_flag, as_index, nearest_name

__all__ = ["CPUS", "ROWS", "LibraryRow", "NotDescribedError", "Region", "library_sum", "library_table"]

CPUS = {
    "intel-amx": "Intel with AVX512_FP16 and AMX_BF16 (Sapphire Rapids and later)",
    "intel-avx512-bf16": "Intel with AVX512_BF16, without AVX512_FP16 and AMX (Cooper Lake)",
    "zen4": "AMD Zen 4",
}
"""The CPUs of the table, by name."""


@dataclass(frozen=True)
class LibraryRow:
    """A function of a library for some dtypes, and what its description was compared with.

    `dtypes` are the dtypes of the operands; `result` is the dtype of the result if it is another one. `threads` are the
    numbers of threads that were compared; None means that they have no effect on the described shapes.
    """

    function: str
    dtypes: tuple[str, ...]
    versions: tuple[str, ...]
    cpus: tuple[str, ...]
    threads: tuple[int, ...] | None
    shapes: str
    evidence: str
    rule: Callable[[str, tuple[int, ...], int], Regions]
    result: str | None = None


_HERE, _ANY_CPU = "intel-amx", tuple(CPUS)
_NUMPY, _TORCH, _JAX = ("2.4.6",), ("2.15.0",), ("0.10.2",)

ROWS = (
    LibraryRow(
        "numpy.matmul", ("float32", "float64"), _NUMPY, (_HERE, "zen4"), (1, 2),
        "M, N > 1; above M N K = 10^6, float64 needs N % 8 = 0, or N <= 192 with one thread",
        "OpenBLAS 0.3.31.188, kernel SkylakeX; on zen4: 8 shapes, without the last N % 16 columns",
        rules.openblas_gemm,
    ),
    LibraryRow(
        "numpy.matmul", ("float16",), _NUMPY, _ANY_CPU, None, "all",
        "compared on intel-amx and zen4; a loop without intrinsics", rules.in_float32,
    ),
    LibraryRow(
        "numpy.dot", ("float32", "float64"), _NUMPY, (_HERE, "zen4"), (1,),
        "(K,) up to 10,000; float32: K < 96 or K % 64 < 32; float64: K % 32 = 0",
        "OpenBLAS 0.3.31.188, kernel SkylakeX; on zen4: float32, 14 lengths", rules.openblas_dot,
    ),
    LibraryRow(
        "numpy.dot", ("float16",), _NUMPY, _ANY_CPU, None, "(K,)", "compared on intel-amx and zen4", rules.in_float32,
    ),
    LibraryRow(
        "numpy.sum", ("float32", "float64", "float16"), _NUMPY, _ANY_CPU, None, "(n,), contiguous",
        "numpy/_core/src/umath/loops_utils.h.src, pairwise_sum; compared on intel-amx", rules.numpy_sum,
    ),
    LibraryRow(
        "numpy.einsum", ("float32", "float64"), _NUMPY, _ANY_CPU, None,
        "(K,) for 'k,k->', K <= 8192; (M, N, K) for 'ik,kj->ij', M, N > 1",
        "numpy/_core/src/multiarray/einsum_sumprod.c.src, baseline X86_V2; compared on intel-amx", rules.numpy_einsum,
    ),
    LibraryRow(
        "torch.matmul", ("float32", "float64"), _TORCH, (_HERE,), (1, 2),
        "M, N > 1; float64: M > 2 or K <= 384; two threads: K <= 768",
        "MKL 2024.2", rules.mkl_gemm,
    ),
    LibraryRow(
        "torch.matmul", ("float32",), ("2.13.0",), ("zen4",), (1,), "M, N >= 16",
        "MKL 2024.2; 110 values of K from 193 to 383 and 15 shapes", rules.mkl_gemm_zen4,
    ),
    LibraryRow(
        "torch.matmul", ("bfloat16",), _TORCH, (_HERE,), (1,), "M, N > 1; K <= 2000", "oneDNN 3.13.3, AMX",
        rules.onednn_bfloat16_amx,
    ),
    LibraryRow(
        "torch.matmul", ("bfloat16",), (*_TORCH, "2.13.0"), ("intel-avx512-bf16", "zen4"), (1,),
        "M, N > 1; K <= 1024",
        "oneDNN 3.13.3 limited to avx512_core_bf16 on intel-amx; oneDNN 3.12 on zen4: 20 shapes",
        rules.onednn_bfloat16,
    ),
    LibraryRow(
        "torch.matmul", ("float16",), _TORCH, (_HERE,), (1,), "M, N > 1; K <= 1024", "oneDNN 3.13.3, avx512_core_fp16",
        rules.onednn_float16,
    ),
    LibraryRow(
        "torch.matmul", ("float16",), (*_TORCH, "2.13.0"), ("intel-avx512-bf16", "zen4"), (1,), "M, N > 1",
        "ATen's own loop; 2.15.0 with oneDNN limited to avx512_core_bf16 on intel-amx; 2.13.0 on zen4: 8 shapes",
        rules.aten_loop_rows,
    ),
    LibraryRow(
        "torch.sum", ("float32", "float64", "bfloat16", "float16"), _TORCH, (_HERE,), (1,), "(n,), contiguous",
        "aten/src/ATen/native/cpu/SumKernel.cpp, AVX2 vectors", rules.aten_sum,
    ),
    LibraryRow(
        "torch.sum", ("float32", "bfloat16"), ("2.13.0",), ("zen4",), (1,), "(n,), contiguous",
        "aten/src/ATen/native/cpu/SumKernel.cpp, AVX2 vectors; 456 vectors", rules.aten_sum,
    ),
    LibraryRow(
        "jax.numpy.matmul", ("float32", "bfloat16", "float16"), _JAX, (_HERE, "zen4"), None,
        "M > 1 and N = 64, or M >= 64 and N % 64 = 0", "XLA's CPU dot, under jit; jaxlib 0.10.2", rules.xla_gemm,
    ),
    LibraryRow(
        "jax.numpy.matmul", ("bfloat16",), _JAX, (_HERE,), None,
        "M = 16, 32, 48 or 64, N = 64; K % 32 = 0, K <= 1024",
        "XLA's CPU dot with preferred_element_type=float32, under jit; jaxlib 0.10.2", rules.xla_bfloat16_amx,
        result="float32",
    ),
    LibraryRow(
        "jax.numpy.matmul", ("bfloat16",), _JAX, ("zen4",), None,
        "M = 16, 32, 48 or 64, N = 64; K % 32 = 0, K <= 1024",
        "XLA's CPU dot with preferred_element_type=float32, under jit; jaxlib 0.10.2", rules.xla_bfloat16,
        result="float32",
    ),
)  # fmt: skip
"""What is described, and for what it was verified: all bits equal, with inputs whose products cancel."""


def library_sum(
    function: str, dtype: str, shape: int | Sequence[int], *, version: str | None = None, cpu: str | None = None,
    threads: int = 1, result: str | None = None, device: str | None = None, kernel: str | Sequence[str] | None = None,
    grid: Sequence[int] | None = None, layout: str | None = None, settings: Sequence[str] | None = None,
    workspace: str | None = None, axis: int | None = None, strict: bool = False,
) -> Regions:  # fmt: skip
    """Return how a function of a library adds, as descriptions for `fs.matmul`, `fs.dot` and `fs.sum`.

    The bits of a library depend on its version, the CPU, the shape and the number of threads, so these are arguments.
    `ROWS` of `floatsim.accumulation.libraries` and the page of `floatsim docs libraries` list the verified
    combinations. Every other combination is an error.

    On a GPU the bits follow from the name of the kernel, which a profiler shows: pass `device`, `kernel` and `grid`.
    `RULES` of `floatsim.accumulation.gpu_libraries` and the page of `floatsim docs gpu-libraries` list the kernels.
    Without `kernel`, its name and grid are those of the recorded call with this shape, if there is one
    (`fs.hardware.recorded_kernels`). The sums of reductions, softmax and norms follow from the shape alone:
    `REDUCTIONS` of `floatsim.accumulation.gpu_reductions` lists them.

    Parameters
    ----------
    function : str
        "numpy.matmul", "numpy.dot", "numpy.sum", "numpy.einsum", "torch.matmul", "torch.sum" or "jax.numpy.matmul". On
        a GPU also "torch.bmm", "torch.addmm", "torch.baddbmm", "torch.nn.functional.linear" (with a bias),
        "torch._addmm_activation" (relu), "torch._scaled_mm", "cupy.matmul", the convolutions
        "torch.nn.functional.conv2d" and "torch.nn.grad.conv2d_input", and the sums in "torch.sum", "torch.mean",
        "torch.prod", "torch.var", "torch.std", "torch.cumsum", "torch.logsumexp", "torch.linalg.vector_norm",
        "torch.softmax", "torch.log_softmax", "torch.native_layer_norm", "torch.rms_norm" and their backward functions.
    dtype : str
        The dtype of the operands: "float32", "float64", "float16" or "bfloat16"; on a GPU also "float8_e4m3fn" and
        "float8_e5m2". TF32 products have dtype "float32"; their kernels have names of their own.
    shape : int or sequence of int
        (M, N, K) of a product of C-contiguous matrices (M, K) and (K, N); (K,) or K of two vectors or of a sum. On a
        GPU the matrices may have any layout, and (batch, M, N, K) is a batch. A convolution has (M, N, channels, rows,
        columns): M places of the images, N results for each, and the channels that the sum reads, in filters of these
        rows and columns. Its terms have the order (channel, row, column), as in `operators.conv2d`, and the gradient of
        the input that of `operators.conv2d_backward`, with the rotated filter. A reduction on
        a GPU has the shape of its contiguous operand: (n,), or (rows, columns).
    version : str, optional
        The version of the library, without a local part ("+cpu"). It may be left out if one version was verified.
    cpu : str, optional
        "intel-amx", "intel-avx512-bf16" or "zen4". It may be left out if the sum is the same on all CPUs.
    threads : int
        The number of threads of the library.
    result : str, optional
        The dtype of the result. Default: that of the operands.
    device : str, optional
        "h200". Then `cpu` and `threads` have no meaning.
    kernel : str or sequence of str
        The name of the kernel, or the names of all kernels of the call in their order. A kernel that splits K needs
        all: a splitKreduce_kernel adds its parts, and a Memset before it means that it adds them itself. Default: the
        recorded kernels of the shape.
    grid : sequence of int
        The grid (x, y, z) of the kernel that multiplies. Needed for kernels that can split K.
    layout, settings, workspace : optional
        The recorded call, if `kernel` is not given: see `fs.hardware.recorded_kernels`.
    axis : int, optional
        The axis of a reduction on a GPU: -1 (default) or 0. The sums of `axis=0` are columns, such as the gradient of a
        bias.
    strict : bool
        Whether a reduction of more terms than were compared with the GPU is refused.

    Returns
    -------
    tuple of Region
        The regions cover the result. Each has the `rows` and `columns` of the result as slices, the description
        `accumulate`, and the `format` of the result. Rows of a reduction on a GPU that begin at different places of a
        vector have different orders, so that `rows` can have a step. `accumulate` is a `fs.Welford` for the functions
        that need a variance: `fs.var` and `fs.moments` take it.

    Raises
    ------
    NotDescribedError
        A ValueError: no row has this combination. The message says what is described. On a GPU: no rule knows the
        kernel, it is not deterministic, or the grid does not fit the shape. The message has the reason and the nearest
        recorded kernel.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> region, = fs.library_sum("numpy.matmul", "float16", (8, 8, 100))
    >>> print(region.accumulate, region.format.name)
    sequential(fp32) FP16
    >>> for region in fs.library_sum("numpy.matmul", "float32", (64, 64, 1000), cpu="zen4"):
    ...     print(region.rows, region.columns, region.accumulate)
    slice(0, 64, None) slice(0, 64, None) blocked(sequential(fp32, fused), [448, 288, 264], sequential(fp32))
    >>> try:
    ...     fs.library_sum("numpy.matmul", "float32", (1, 64, 1000), cpu="zen4")
    ... except fs.NotDescribedError as error:
    ...     print(error)
    numpy.matmul of float32, shape (1, 64, 1000): a product with a vector (M or N is 1) is not described

    On an H200:

    >>> name = "cutlass_80_wmma_tensorop_f16_s161616gemm_f16_32x32_128x2_nn_align2"
    >>> region, = fs.library_sum("torch.matmul", "float16", (64, 64, 300), device="h200", kernel=name, grid=(2, 2, 1))
    >>> print(region.accumulate, region.format.name)
    residue(tensorcore(hopper), 128) FP16
    >>> for region in fs.library_sum("torch.sum", "float32", (64, 130), device="h200")[:2]:
    ...     print(region.rows, str(region.accumulate).partition("halving)), ")[2])
    slice(0, 64, 2) width=4, accumulators=4, threads)
    slice(1, 64, 2) width=4, accumulators=4, shift=2, threads)

    A recorded shape needs no name:

    >>> region, = fs.library_sum("torch.matmul", "float32", (64, 64, 300), device="h200", settings=["allow_tf32"])
    >>> print(region.accumulate)
    converted(tf32, splitk(19, residue(tensorcore(hopper), 16), sequential(fp32), tile=4))
    """
    sizes = tuple(as_index(n, "shape", 0, 1 << 40) for n in (shape if isinstance(shape, Sequence) else (shape,)))
    if device is not None and kernel is None and function in {row.function for row in REDUCTIONS}:
        if cpu is not None or threads != 1 or grid is not None:
            raise TypeError(f"{function} on device={device!r} follows from the shape; leave out cpu=, threads=, grid=")
        where = -1 if axis is None else as_index(axis, "axis", -2, 1)
        return reduction_sum(function, dtype, sizes, where, device, version, result, as_flag(strict, "strict"))
    if axis is not None or strict:
        raise TypeError("axis= and strict= belong to reductions on a GPU: pass device=, such as 'h200'")
    if device is not None:
        if cpu is not None or threads != 1:
            raise TypeError("cpu= and threads= belong to a CPU; with device= pass kernel= and grid=")
        if kernel is not None and any(each is not None for each in (layout, settings, workspace)):
            raise TypeError("layout=, settings= and workspace= find the recorded kernels; omit them, or kernel=")
        if kernel is None:
            if grid is not None:
                raise TypeError("grid= belongs to a kernel: pass kernel=, or omit both for a recorded shape")
            chosen = {"layout": layout, "settings": settings, "workspace": workspace}
            given: dict[str, Any] = {name: value for name, value in chosen.items() if value is not None}
            found = recorded_kernels(function, dtype, sizes, device=device, version=version, result=result, **given)
            kernel, grid, result = found.names, found.grid, result or default_result(function, dtype)
        return kernel_sum(function, dtype, sizes, kernel, grid, device, version, result)
    if any(each is not None for each in (kernel, grid, layout, settings, workspace)):
        raise TypeError(
            "kernel=, grid=, layout=, settings= and workspace= belong to a GPU: pass device=, such as 'h200'"
        )
    rows = _of_function(function, dtype, result)
    rows = _with(rows, "version", release(version), lambda row: row.versions)
    rows = _with(rows, "cpu", cpu, lambda row: row.cpus)
    count = as_index(threads, "threads", 1, 1 << 40)
    taking = [row for row in rows if row.threads is None or count in row.threads]
    if not taking:
        known = sorted({n for row in rows for n in row.threads or ()})
        raise NotDescribedError(f"{function} of {dtype}: threads={count} is not described; described: {_listed(known)}")
    if len({row.rule for row in taking}) > 1:
        choices = _listed(dict.fromkeys(name for row in taking for name in row.cpus))
        raise NotDescribedError(f"{function} of {dtype} depends on the CPU; pass cpu=, one of {choices}")
    try:
        return taking[0].rule(dtype, sizes, count)
    except NotDescribedError as error:
        raise NotDescribedError(f"{function} of {dtype}, shape {sizes}: {error} is not described") from None


def _of_function(function: str, dtype: str, result: str | None) -> list[LibraryRow]:
    names = list(dict.fromkeys(row.function for row in ROWS))
    if function not in names:
        near = nearest_name(function, names)
        hint = f"did you mean {near!r}?" if near else f"described are {_listed(names)}"
        raise NotDescribedError(f"function={function!r} is not described; {hint}")
    same = None if result == dtype else result
    rows = [row for row in ROWS if row.function == function]
    found = [row for row in rows if dtype in row.dtypes and row.result == same]
    if not found:
        known = [f"{dtype}{f' to {row.result}' if row.result else ''}" for row in rows for dtype in row.dtypes]
        asked = f"dtype={dtype!r}" + (f" with result={result!r}" if same else "")
        raise NotDescribedError(f"{asked} of {function} is not described; described: {_listed(dict.fromkeys(known))}")
    return found


def _with(
    rows: list[LibraryRow], argument: str, value: str | None, of: Callable[[LibraryRow], tuple[str, ...]]
) -> list[LibraryRow]:
    """Return the rows with the value, or without one, all rows."""
    if value is None:
        return rows
    found = [row for row in rows if value in of(row)]
    if not found:
        known = dict.fromkeys(name for row in rows for name in of(row))
        raise NotDescribedError(
            f"{argument}={value!r} of {rows[0].function} is not described; described: {_listed(known)}"
        )
    return found


def _listed(names: object) -> str:
    return ", ".join(map(str, names))  # type: ignore[call-overload]


def library_table() -> str:
    """Return the rows as a table in Markdown.

    >>> print(library_table().splitlines()[0])
    | function | dtypes | versions | CPUs | threads | shapes | evidence |
    """
    lines = ["| function | dtypes | versions | CPUs | threads | shapes | evidence |", "| --- " * 7 + "|"]
    for row in ROWS:
        dtypes = ", ".join(row.dtypes) + (f" to {row.result}" if row.result else "")
        threads = "any" if row.threads is None else _listed(row.threads)
        cells = (
            f"`{row.function}`",
            dtypes,
            _listed(row.versions),
            _listed(row.cpus),
            threads,
            row.shapes,
            row.evidence,
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
