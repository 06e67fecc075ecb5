"""The commands for GPUs and CPUs: probe, compare, capture, check-silicon, bench-hardware.

Each row is printed as it is made. The error of one row does not stop the others. With `--json`, the rows are printed as
text on stderr, and the JSON on stdout at the end: if the process is killed, the rows are there.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from floatsim.cli.console import (
    BadInputError,
    Json,
    bad_input,
    finish,
    named_format,
    one_line,
    print_json,
    rich_console,
    split,
    track,
)
from floatsim.cli.matrix_files import READABLE, load_all

if TYPE_CHECKING:
    from floatsim.hardware.captures.capture_file import AnyCapture
    from floatsim.hardware.comparison import Comparison
    from floatsim.hardware.device import Device
    from floatsim.hardware.protocol import Dots
    from floatsim.hardware.questions import Operation, Question

__all__ = ["bench_hardware", "capture", "check_silicon", "compare", "local_device", "probe"]

Only = Annotated[
    list[str] | None,
    typer.Option("--instruction", "-i", help="Instructions, with * as a wildcard: 'wgmma.*', 'mma.m16n8k16 bf16*'."),
]
OnlyToCapture = Annotated[
    list[str] | None,
    typer.Option("--instruction", "-i", help="Instructions, with * as a wildcard: 'wgmma.*', 'convert fp32 to *'."),
]
OnCpu = Annotated[
    bool, typer.Option("--cpu", help="Use the dot and matrix instructions of this CPU. No GPU is needed.")
]
Rows = Annotated[int, typer.Option(min=10, help="Number of dot products of each matrix instruction.")]
Seed = Annotated[int, typer.Option(help="Seed of the inputs.")]
Accumulate = Annotated[
    str | None,
    typer.Option("--accumulate", "-a", help="The emulated sum: hopper, 'tensorcore(ada, mma.m16n8k32)', fp32."),
]

_WITHOUT_DEVICE = (
    "without a GPU, `floatsim compare --against FILE` and `floatsim check-silicon PATH` compare the emulator with "
    "captured outputs of real GPUs"
)


# -- the device ------------------------------------------------------------------------------------------------------


def local_device() -> Device:
    """Return the GPU of this machine. Raise a `BadInputError` that names the missing part."""
    from floatsim.hardware.device import Device

    try:
        return Device()
    except (RuntimeError, ImportError) as error:
        raise BadInputError(f"{one_line(error)}; {_WITHOUT_DEVICE}") from None


def _this_cpu() -> Dots:
    """Return this CPU. Raise a `BadInputError` if floatsim can issue none of its instructions."""
    from floatsim.hardware.cpu.device import Cpu

    cpu = Cpu()
    if not any(True for _ in cpu.units()):
        raise BadInputError(f"--cpu: floatsim can issue no instruction of {cpu.identity.name}")
    return cpu


def _questions(device: Dots, only: Sequence[str] | None) -> list[Question]:
    from floatsim.hardware.questions import questions

    try:
        return questions(device, only or ())
    except ValueError as error:
        raise _no_instruction(error) from None


def _to_capture(device: Dots, only: Sequence[str] | None) -> list[Question | Operation]:
    from floatsim.hardware.questions import to_capture

    try:
        return to_capture(device, only or ())
    except ValueError as error:
        raise _no_instruction(error) from None


def _no_instruction(error: ValueError) -> BadInputError:
    return BadInputError(one_line(error).replace("only=", "--instruction "))


def _tracked(tasks: Sequence[Any]) -> Iterator[Any]:
    return track(tasks, "running")


def _not_run(failed: int) -> str:
    """Return the number of rows that could not run as the end of a sentence."""
    return f", {failed} could not run" if failed else ""


# -- floatsim probe --------------------------------------------------------------------------------------------------


def probe(
    only: Only = None,
    emulated: Annotated[
        str | None, typer.Option(help="Probe the emulator of this architecture. No GPU is needed.")
    ] = None,
    cpu: OnCpu = False,
    as_json: Json = False,
) -> None:
    """Infer the models of the matrix instructions of a GPU or CPU, and compare them with the table.

    With --cpu, the instructions that this CPU has are listed first. Each is also compared with the emulator.
    """
    from floatsim.hardware.questions import probe_device

    if cpu and emulated is not None:
        raise BadInputError("--cpu and --emulated exclude each other")
    if cpu:
        return _probe_cpu(only, as_json)
    selected = _questions(local_device() if emulated is None else _emulated(emulated), only)
    console, found = rich_console(error=as_json), []
    for each in probe_device(_tracked(selected)):
        found.append(each)
        console.print(f"{each}\n", soft_wrap=True)
    name, failed = selected[0].device.identity.name, sum(bool(each.error) for each in found)
    if as_json:
        print_json({"card": name, "probes": [each.to_dict() for each in found]})
    else:
        equal = sum(bool(each.equal) for each in found)
        console.print(f"{equal} of {len(found)} instructions of {name} equal the table{_not_run(failed)}")
    return finish(differ=any(each.equal is False for each in found), failed=failed > 0)


def _probe_cpu(only: Sequence[str] | None, as_json: bool) -> None:
    """List the instructions of this CPU, probe its dot and matrix instructions, and compare their results."""
    from floatsim.hardware.cpu.support import supported
    from floatsim.hardware.questions import compare_device, probe_device

    device = _this_cpu()
    selected, console = _questions(device, only), rich_console(error=as_json)
    console.print(device.identity.name, soft_wrap=True)
    for name, reason in supported().items():
        console.print(f"  {name}: {reason or 'yes'}", soft_wrap=True)
    console.print()
    probes, comparisons = list(probe_device(selected)), []
    for each, compared in zip(probes, compare_device(_tracked(selected)), strict=True):
        comparisons.append(compared)
        console.print(f"{each}\n{compared.line}\n", soft_wrap=True)
    rows: list[Any] = [*probes, *comparisons]
    failed = sum(bool(each.error) for each in rows)
    if as_json:
        print_json({
            "card": device.identity.name, "instructions": dict(supported()),
            "probes": [each.to_dict() for each in probes], "comparisons": [each.to_dict() for each in comparisons],
        })  # fmt: skip
    else:
        equal = sum(bool(p.equal and c.equal) for p, c in zip(probes, comparisons, strict=True))
        console.print(f"{equal} of {len(probes)} units of this CPU equal the table{_not_run(failed)}")
    finish(differ=any(each.equal is False for each in rows), failed=failed > 0)


def _emulated(arch: str) -> Dots:
    from floatsim.hardware.questions import emulated_device

    try:
        return emulated_device(arch)
    except ValueError as error:
        raise BadInputError(f"--emulated: {one_line(error)}") from None


# -- floatsim compare ------------------------------------------------------------------------------------------------


def compare(
    files: Annotated[
        list[str] | None,
        typer.Argument(help=f"Two matrices to multiply, a and b ({READABLE}). Default: a fixed set of inputs, for each "
                            "instruction of the GPU.", show_default=False),
    ] = None,
    accumulate: Accumulate = None,
    fmt: Annotated[str | None, typer.Option("--operands", help="Round both matrices to this format first.")] = None,
    against: Annotated[
        Path | None,
        typer.Option(help="Captured outputs to use instead of a GPU: a file of `floatsim capture` or of the published "
                          "outputs. With two matrices: a .npy file of their product."),
    ] = None,
    library: Annotated[
        str | None, typer.Option(help="Compare with a library on the GPU: cublas, cupy or nvmath.")
    ] = None,
    compute: Annotated[str | None, typer.Option(help="The library's compute type: 32f, 16f, 32f_fast_tf32.")] = None,
    unlike: Annotated[
        list[str] | None,
        typer.Option("--unlike", help="A description that two matrices must exclude. Repeat it, or use commas."),
    ] = None,
    only: Only = None,
    rows: Rows = 20_000,
    seed: Seed = 0,
    cpu: OnCpu = False,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Compare a GPU or this CPU with the emulator, bit by bit. NaN against NaN of FP64 counts as equal."""
    found: Iterable[Comparison]
    if files:
        excluded = [part for text in unlike or () for part in split(text)]
        found = [_product(files, accumulate, fmt, against, library, compute, cpu, excluded)]
    elif library is not None or compute is not None:
        raise BadInputError("--library and --compute need two matrices, and none are given")
    elif unlike:
        raise BadInputError("--unlike needs two matrices, and none are given")
    elif fmt is not None:
        raise BadInputError("--operands needs two matrices, and none are given")
    elif against is not None:
        found = _replayed(against, accumulate)
    elif accumulate is not None:
        raise BadInputError("--accumulate needs two matrices, or captured outputs: --against FILE")
    else:
        from floatsim.hardware.questions import compare_device

        device = _this_cpu() if cpu else local_device()
        found = compare_device(_tracked(_questions(device, only)), rows, seed)
    _report(found, as_json, in_full=bool(files))


def _product(
    files: Sequence[str], accumulate: str | None, fmt: str | None, against: Path | None, library: str | None,
    compute: str | None, cpu: bool, unlike: Sequence[str],
) -> Comparison:  # fmt: skip
    import numpy as np

    import floatsim
    from floatsim.hardware.api import compare as compare_matrices
    from floatsim.hardware.compile.cupy_runtime import UnavailableError

    matrices: list[Any] = list(load_all(files).values())
    if len(matrices) != 2:
        raise BadInputError(f"FILES: compare multiplies two matrices, and there are {len(matrices)}")
    if accumulate is None:
        raise BadInputError("--accumulate must name the accumulation of the products, such as --accumulate hopper")
    if fmt is not None:
        chosen = named_format(fmt, "--operands")
        matrices = [floatsim.array(x, chosen) for x in matrices]
    other = None
    if against is None and not cpu:
        local_device()
    elif against is not None:
        try:
            with against.open("rb") as file:  # np.load leaves a file open that it cannot read
                other = np.load(file, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise BadInputError(f"--against: {against} cannot be read: {one_line(error)}") from None
        if not isinstance(other, np.ndarray):
            raise BadInputError(
                f"--against: {against} must be a .npy file of one array, the product of the two matrices"
            )
    try:
        return compare_matrices(
            *matrices, accumulate=accumulate, against=other, library=library, compute=compute,
            backend="native-cpu" if cpu else None, unlike=unlike,
        )  # fmt: skip
    except (ValueError, TypeError, UnavailableError) as error:
        if wrong := re.match(r"against is (.+), the result (.+?);", str(error)):
            raise _of_another_format(against, *wrong.groups()) from None
        raise bad_input(error) from None


def _of_another_format(against: Path | None, given: str, wanted: str) -> BadInputError:
    """Return the error for a file whose dtype is not the result's, with the way to convert it."""
    dtype = named_format(wanted, "--against").dtype
    if dtype is None or dtype.isbuiltin != 1:  # np.save does not keep the dtypes of ml_dtypes
        advice = f"{wanted}, which a .npy file does not hold; fs.hardware.compare takes it as an array"
    else:
        advice = f"{wanted}; save it as np.{dtype.name}, with .astype(np.{dtype.name}), if that changes no value"
    return BadInputError(f"--against: {against} is {given}, and the result {advice}")


def _replayed(path: Path, accumulate: str | None) -> Iterator[Comparison]:
    from floatsim.hardware.captures.replay import check_silicon as replay

    def progress(tasks: Sequence[Any]) -> Iterable[Any]:
        return track(tasks, "replaying")

    try:
        for checked in replay(path, accumulate, progress=progress):
            yield checked.comparison
    except (ValueError, TypeError, OSError) as error:
        raise bad_input(error) from None


def _report(found: Iterable[Comparison], as_json: bool, in_full: bool = False) -> None:
    """Print each comparison as it is made, in full if bits differ or with `in_full`, then a summary of several."""
    console, seen = rich_console(error=as_json), list[Any]()
    for each in found:
        seen.append(each)
        text = str(each) if in_full else each.line if each.equal or each.error else f"{each}\n"
        console.print(text, soft_wrap=True)
    failed = sum(bool(each.error) for each in seen)
    wrong = sum(not each.passed for each in seen) - failed
    if as_json:
        equal = all(each.equal for each in seen)
        rows = [each.to_dict() for each in seen]
        print_json({"equal": equal, "passed": not wrong and not failed, "comparisons": rows})
    elif len(seen) > 1:
        nans = sum(each.nan_other_bits for each in seen)
        console.print(
            f"\n{len(seen)} sets, {sum(each.count for each in seen)} rows: {_differing(wrong, failed)}"
            + (f"; NaN, other bits: {nans}" if nans else "")
        )
    finish(differ=wrong > 0, failed=failed > 0)


def _differing(wrong: int, failed: int) -> str:
    differ = f"{wrong} {'set differs' if wrong == 1 else 'sets differ'}" if wrong else "all equal"
    return differ if not failed else f"{differ if wrong else 'none differs'}{_not_run(failed)}"


# -- floatsim capture ------------------------------------------------------------------------------------------------


def capture(
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", metavar="FOLDER", help="The folder for the captures. It gets a folder of the GPU's name."
        ),
    ],
    only: OnlyToCapture = None,
    rows: Rows = 20_000,
    seed: Seed = 0,
    with_inputs: Annotated[
        bool, typer.Option("--with-inputs", help="Also write the inputs, which the seed reproduces.")
    ] = False,
    cpu: OnCpu = False,
    as_json: Json = False,
) -> None:
    """Capture the outputs of the instructions of the GPU or of this CPU in files, for comparison with models.

    Matrix instructions are captured, and conversions and arithmetic of CUDA cores.
    """
    from floatsim.hardware.captures.write import capture as write_captures

    command = shlex.join(["floatsim", *sys.argv[1:]])
    selected = _to_capture(_this_cpu() if cpu else local_device(), only)
    console, rows_of_json, failed = rich_console(error=as_json), [], 0
    tasks = _tracked(selected)
    try:
        for each in write_captures(tasks, out, rows=rows, seed=seed, with_inputs=with_inputs, command=command):
            failed += bool(each.error)
            rows_of_json.append(_captured_dict(each))
            console.print(_captured_line(each), soft_wrap=True)
    except OSError as error:
        raise BadInputError(f"--out: {out} cannot be written: {error.strerror}") from None
    if as_json:
        print_json({"recordings": rows_of_json})
    else:
        console.print(f"{len(selected) - failed} of {len(selected)} instructions captured{_not_run(failed)}")
    finish(differ=False, failed=failed > 0)


def _captured_line(each: AnyCapture) -> str:
    return f"{each.title}: could not run: {each.error}" if each.error else f"{each.path}: {each.title}, {each.size}"


def _captured_dict(each: AnyCapture) -> dict[str, Any]:
    if each.error:
        return {"path": None, "instruction": each.title, "error": each.error}
    return {"path": str(each.path), **each.header, "error": None}


# -- floatsim check-silicon ------------------------------------------------------------------------------------------


def check_silicon(
    path: Annotated[Path, typer.Argument(help="A file of `floatsim capture` or of published outputs, or a folder.")],
    accumulate: Accumulate = None,
    as_json: Json = False,
) -> None:
    """Replay the captured outputs of real GPUs against the emulator.

    NaN against NaN counts as equal in FP64, and in operations of CUDA cores.
    """
    _report(_replayed(path, accumulate), as_json)


# -- floatsim bench-hardware -----------------------------------------------------------------------------------------


def bench_hardware(
    only: Only = None,
    repeats: Annotated[int, typer.Option(min=1, help="Number of measurements. Their median is reported.")] = 20,
    libraries: Annotated[bool, typer.Option(help="Also time cuBLAS, and nvmath if it is installed.")] = True,
    as_json: Json = False,
) -> None:
    """Measure the throughput of the GPU's matrix instructions and libraries in TFLOP/s, beside its data sheet."""
    from rich.table import Table

    from floatsim.hardware.throughput import Rates, measure, tasks

    device = local_device()
    try:
        selected = tasks(device, only or (), libraries)
    except ValueError as error:
        raise _no_instruction(error) from None
    console, rates = rich_console(error=as_json), []
    for rate in measure(device, track(selected, "timing"), repeats):
        rates.append(rate)
        name, tflops, *_ = rate.cells()
        console.print(f"{name}: {tflops} TFLOP/s" if tflops else name, soft_wrap=True)
    found, failed = Rates(device.identity, tuple(rates)), any(rate.error for rate in rates)
    if as_json:
        print_json(found.to_dict())
        return finish(differ=False, failed=failed)
    table = Table(box=None, padding=(0, 2, 0, 0))
    for head in ("", "TFLOP/s", "data sheet", "share", "of BF16"):
        table.add_column(head, justify="right" if head else "left")
    for row in found.rows():
        table.add_row(*row)
    console.print(f"\n{device.identity.name}")
    console.print(table)
    sources = ", ".join(dict.fromkeys(rate.source for rate in found.rates if rate.source))
    console.print(f"data sheet: {sources or 'none in the table for this GPU'}; dense matrices", style="dim")
    return finish(differ=False, failed=failed)
