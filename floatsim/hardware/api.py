"""The functions of `fs.hardware` for a GPU or a CPU: probe it, compare it with the emulator, capture its outputs,
measure its throughput."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from floatsim.accumulation import Accumulation, AccumulationLike, as_accumulation, tensor_cores
from floatsim.arrays.call.options import BackendName, as_backend, one_call
from floatsim.arrays.sums.products import matmul
from floatsim.formats import FloatFormat, FormatLike
from floatsim.hardware.captures.capture_file import AnyCapture, read_single_capture
from floatsim.hardware.captures.write import capture as write_captures
from floatsim.hardware.comparison import FIRST, Comparison, compare_products
from floatsim.hardware.probing.probe import Probe
from floatsim.hardware.protocol import Dots
from floatsim.hardware.questions import probe_device, questions, to_capture
from floatsim.hardware.throughput import REPEATS, Rates, Timed, measure, tasks
from floatsim.hardware.vendor_gemm import library_matmul
from floatsim.testing.compare.input_strength import described
from floatsim.testing.vectors.dot_inputs import ROWS

__all__ = ["bench", "capture", "compare", "probe"]


DeviceLike: TypeAlias = Dots | BackendName


def _device(device: DeviceLike | None) -> Dots:
    """Return a device: the GPU of this machine for None and "hardware", this CPU for "native-cpu"."""
    if device is not None and not isinstance(device, str):
        return device
    if device is None or as_backend(device, "device") == "hardware":
        from floatsim.hardware.device import Device

        return Device()
    if device == "emulator":
        raise ValueError("device='emulator' has no instructions; known are 'hardware' (a GPU) and 'native-cpu'")
    from floatsim.hardware.cpu.device import Cpu

    return Cpu()


def probe(instructions: Sequence[str] | str = (), *, device: DeviceLike | None = None) -> tuple[Probe, ...]:
    """Infer the models of a device's matrix instructions from their results, and compare each with the table.

    Parameters
    ----------
    instructions : texts
        Patterns with * as a wildcard: "wgmma.*", "mma.m16n8k16 bf16 *". Default: all instructions.
    device : Dots or str, optional
        The device to probe: "native-cpu" for this CPU, or an object. Default: the GPU of this machine.

    Returns
    -------
    tuple of Probe
        Each prints as a table, and has the attributes `equal`, `different` and `model`. The error of one instruction
        does not stop the others: it is the text `error` of its row, whose `equal` is None.

    Raises
    ------
    UnavailableError
        Without CuPy or a GPU.
    ValueError
        If no instruction fits. The message lists the instructions of the device.

    See Also
    --------
    probe_dots : Infer the model of any callable that computes dot products.

    Examples
    --------
    >>> from floatsim.hardware.questions import emulated_device
    >>> probe("wgmma.k16 fp16 fp16 fp16", device=emulated_device("hopper"))[0].model
    'FusedBlocks(terms=16, fraction_bits=25, floor=-21, grid=FP16, rounding=TIES_TO_EVEN)'
    """
    return tuple(probe_device(questions(_device(device), _texts(instructions))))


@one_call()
def compare(
    a: Any = None, b: Any = None, c: Any = None, *, accumulate: AccumulationLike | None = None, against: Any = None,
    format: FormatLike | None = None, scale_a: Any = None, scale_b: Any = None, first: int = FIRST,
    library: str | None = None, compute: str | None = None, backend: BackendName | None = None,
    unlike: AccumulationLike | Iterable[AccumulationLike] = (), **options: Any,
) -> Comparison:  # fmt: skip
    """Compare an emulated matrix product bit by bit with a GPU, this CPU, a library, a capture or an array.

    If all bits are equal, the report lists the descriptions that these inputs cannot tell from the emulated one.

    Parameters
    ----------
    a, b : array_like of floats, (..., M, K) and (..., K, N)
        The operands: FloatArrays, or arrays whose dtype is a format. Omit them to replay a capture, which has its own.
    c : array_like, optional
        The accumulator at the start. It is broadcast to the shape of the result.
    accumulate : accumulation or text
        The emulated accumulation: "hopper", "blocked(hopper, 128, fp32)". Default for a capture: its instruction.
    against : optional
        The results to compare with. None: those of `backend`. A path: a capture that
        `floatsim capture` has written, or published outputs. An array of the result's shape: the results of any other
        program, as floats or a FloatArray.
    format : format, optional
        The format of the result. Default: the format of the outermost accumulator.
    scale_a, scale_b : array_like, optional
        The block scales of a and b.
    first : int
        The number of mismatches to keep with their inputs and a trace.
    library, compute : str, optional
        Compare with a library on the GPU: "cublas", "cupy" or "nvmath", and its compute type, as "32f" (see
        `library_matmul`). A library multiplies two matrices, and takes neither c nor scales.
    backend : str, optional
        "hardware" (the GPU of this machine) or "native-cpu" (this CPU). Default: "native-cpu" if the accumulation has
        a unit of CPUs, else "hardware".
    unlike : accumulation or text, or several
        Descriptions that the inputs must exclude. `passed` is False if one of them gives the same bits.
    **options
        The rounding options `rounding`, `ftz`, `daz`, `overflow`, `result_rounding` and `seed` of `fs.matmul`.

    Returns
    -------
    Comparison
        With `equal`, `passed`, `strength`, `share_equal`, `histogram`, `first`, `plot()` and `to_json()`.

    Raises
    ------
    TypeError
        If `against` has another format than the result, if operands are missing, if both `against` and a library are
        given, or if `unlike` is given for a capture.
    ValueError
        If `against` has another shape, and for the errors of `fs.matmul` and `library_matmul`.

    Examples
    --------
    >>> import numpy as np
    >>> import floatsim as fs
    >>> a, b = fs.testing.hard_inputs((16, 64, 16), "e4m3")
    >>> kernel = fs.matmul(a, b, accumulate="hopper")  # your own kernel
    >>> print(compare(a, b, accumulate="hopper", against=kernel, unlike=["blackwell"]))
    tensorcore(hopper), against the array given
    all 256 results are equal, bit for bit
    strength: these inputs tell hopper from all 11 other descriptions tried
    """
    if library is not None and any(x is not None for x in (against, c, scale_a, scale_b)):
        raise TypeError(f"library={library!r} multiplies only a and b; omit c, the scales and against")
    if compute is not None and library is None:
        raise TypeError(f"compute={compute!r} needs a library, as in library='cublas'")
    if isinstance(against, str | Path):
        if any(x is not None for x in (a, b, c)):
            raise TypeError("a capture has its own operands; give a, b and c, or against=FILE, not both")
        if described(unlike, "unlike"):
            raise TypeError("unlike= needs operands a and b; the inputs of a capture are fixed")
        return read_single_capture(Path(against)).compare(accumulate, first)
    missing = [name for name, x in (("a", a), ("b", b), ("accumulate", accumulate)) if x is None]
    if missing:
        raise TypeError(f"compare needs {' and '.join(missing)}, unless against is the path of a capture")
    assert accumulate is not None
    summed, source = as_accumulation(accumulate), "the array given"
    runs_on: Any = _backend(summed) if backend is None else as_backend(backend, "backend")
    common = {"format": format, "scale_a": scale_a, "scale_b": scale_b, **options}

    def result_of(fmt: FloatFormat) -> Any:
        if library is not None:
            return library_matmul(a, b, library=library, compute=compute, format=fmt)
        return matmul(a, b, c, accumulate=summed, backend=runs_on, **common) if against is None else against

    if library is not None:
        source = " ".join(filter(None, [library, compute]))
    elif against is None:
        source = {"hardware": "the GPU", "native-cpu": "this CPU"}.get(runs_on, "the emulator")
    return compare_products(a, b, c, summed, result_of, source, first, unlike=unlike, **common)


def _backend(accumulation: Accumulation) -> str:
    """Return the backend that has the units of an accumulation: the CPU's, or a GPU's."""
    units = tensor_cores(accumulation)
    return "native-cpu" if any(unit.architecture.processor == "CPU" for unit in units) else "hardware"


def capture(
    out: Path | str, instructions: Sequence[str] | str = (), *, rows: int = ROWS, seed: int = 0,
    with_inputs: bool = False, device: DeviceLike | None = None,
) -> tuple[AnyCapture, ...]:  # fmt: skip
    """Capture the outputs of a device's instructions: one file for each, in a folder of the device's name.

    Captured are the matrix instructions, and the conversions and the arithmetic of CUDA cores.

    Parameters
    ----------
    out : path
        The parent of the GPU's folder.
    instructions : texts
        Patterns with * as a wildcard: "wgmma.*", "mma.m16n8k16 bf16 *", "convert *". Default: all instructions.
    rows : int
        The number of dot products of each matrix instruction, at least 10. Operations of CUDA cores have a fixed
        number of operands.
    seed : int
        The seed of the inputs, which are the same for all GPUs.
    with_inputs : bool
        Whether the files also hold the inputs.
    device : Dots or str, optional
        The device: "native-cpu" for this CPU, or an object. Default: the GPU of this machine.

    Returns
    -------
    tuple of Capture and ScalarCapture
        One for each instruction, with `path`, `title`, `d` and `header`. A Capture has `unit` and `inputs`, a
        ScalarCapture has `row` and `operands`. The error of one instruction does not stop the others: it is the text
        `error` of its row, which has no file.

    Raises
    ------
    UnavailableError
        Without CuPy or a GPU.
    ValueError
        If no instruction fits. The message lists the instructions of the device.

    Examples
    --------
    >>> import tempfile
    >>> from floatsim.hardware.questions import emulated_device
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     files = capture(folder, "mma.m8n8k4", rows=100, device=emulated_device("volta"))
    ...     [each.path.name for each in files]
    ['mma.m8n8k4-fp16-fp16-fp32.npz', 'mma.m8n8k4-fp16-fp16-fp16.npz']
    """
    selected = to_capture(_device(device), _texts(instructions))
    return tuple(
        write_captures(selected, out, rows=rows, seed=seed, with_inputs=with_inputs, command="fs.hardware.capture")
    )


def bench(
    instructions: Sequence[str] | str = (), *, repeats: int = REPEATS, libraries: bool = True,
    device: Timed | None = None,
) -> Rates:  # fmt: skip
    """Measure the throughput of a GPU's matrix instructions and libraries in TFLOP/s, beside its data sheet.

    Parameters
    ----------
    instructions : texts
        Patterns with * as a wildcard: "wgmma.*", "cublas *", "* e4m3 *". Default: all whose A and B have one format.
    repeats : int
        The number of measurements by CUDA events. Their median is reported.
    libraries : bool
        Whether to measure cuBLAS, and nvmath if it is installed, too.
    device : Timed, optional
        The device. Default: the GPU of this machine.

    Returns
    -------
    Rates
        Its `rates` have `tflops`, `sheet` and `share`. It prints as a table. The error of one instruction or library
        does not stop the others: it is the text `error` of its row, whose `tflops` is None.

    Raises
    ------
    UnavailableError
        Without CuPy or a GPU.
    ValueError
        If no instruction fits (the message lists the instructions), or if repeats is less than 1.

    Notes
    -----
    The throughput of an instruction is the limit of the unit: instructions are issued back to back, with operands in
    registers or shared memory.

    Examples
    --------
    >>> bench(repeats=0)  # with a GPU: print(bench("wgmma.*"))
    Traceback (most recent call last):
        ...
    ValueError: repeats must be at least 1, not 0
    """
    if repeats < 1:
        raise ValueError(f"repeats must be at least 1, not {repeats}")
    if device is None:
        from floatsim.hardware.device import Device

        device = Device()
    return Rates(device.identity, tuple(measure(device, tasks(device, _texts(instructions), libraries), repeats)))


def _texts(instructions: Sequence[str] | str) -> Sequence[str]:
    return (instructions,) if isinstance(instructions, str) else instructions
