"""What `fs.hardware` offers about the card in this machine: hold it against the emulator, probe it, record what it
answers, see how fast it is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from floatsim.accumulation import AccumulationLike, as_accumulation
from floatsim.arrays.linalg import matmul
from floatsim.arrays.options import one_call
from floatsim.formats import FloatFormat, FormatLike
from floatsim.hardware.captures.capture_file import Recording, one_recording
from floatsim.hardware.captures.write import capture as record
from floatsim.hardware.comparison import FIRST, Comparison, compare_products
from floatsim.hardware.probing.probe import Probe
from floatsim.hardware.protocol import Dots
from floatsim.hardware.session import probe_card, questions
from floatsim.hardware.throughput import REPEATS, Rates, Timed, measure, tasks
from floatsim.hardware.vendor_gemm import library_matmul
from floatsim.testing.inputs import ROWS

__all__ = ["bench", "capture", "compare", "probe"]


def _card(device: Dots | None) -> Dots:
    from floatsim.hardware.device import Device

    return Device() if device is None else device


def probe(instructions: Sequence[str] | str = (), *, device: Dots | None = None) -> tuple[Probe, ...]:
    """Infer the models of a card's matrix instructions from what it answers, each held against the table's row.

    Parameters
    ----------
    instructions : texts
        Only these, with * for anything: "wgmma.*", "mma.m16n8k16 bf16 *". Default: all.
    device : Dots, optional
        What is asked; default: the card in this machine.

    Returns
    -------
    tuple of Probe
        Each prints as a table, and has `equal`, `different`, `model`.

    Raises
    ------
    UnavailableError
        Without CuPy or a card.
    ValueError
        If no instruction fits; the message lists what there is.

    See Also
    --------
    probe_dots : for anything else that multiplies.

    Examples
    --------
    >>> from floatsim.hardware.session import emulated_card
    >>> probe("wgmma.k16 fp16 fp16 fp16", device=emulated_card("hopper"))[0].model
    'FusedBlocks(terms=16, fraction_bits=25, floor=-21, grid=FP16, rounding=TIES_TO_EVEN)'
    """
    return tuple(probe_card(questions(_card(device), _texts(instructions))))


@one_call()
def compare(
    a: Any = None, b: Any = None, c: Any = None, *, accumulate: AccumulationLike | None = None, against: Any = None,
    format: FormatLike | None = None, scale_a: Any = None, scale_b: Any = None, first: int = FIRST,
    library: str | None = None, compute: str | None = None, **how: Any,
) -> Comparison:  # fmt: skip
    """A matrix product, emulated and by silicon, bit by bit.

    Parameters
    ----------
    a, b : array_like of floats, (..., M, K) and (..., K, N)
        As for `fs.matmul`. None of them where a recording is replayed: it has its own.
    c : array_like, optional
        The accumulator at the start, of the result's shape or one that is broadcast to it.
    accumulate : accumulation or text
        The sum: "hopper", "blocked(hopper, 128, fp32)". Of a recording: its instruction's, if none is named.
    against : optional
        None: the card in this machine (`backend="hardware"`). A path: a recording, as `floatsim capture` writes them
        and `floatsim check-silicon` reads them. An array of the result's shape: what anything else computed, as floats
        or a FloatArray.
    format, scale_a, scale_b, **how
        As for `fs.matmul`.
    first : int
        How many mismatches to keep with their inputs and a trace.
    library, compute : str, optional
        In place of the card's own instructions what a library computes on it: "cublas", "cupy", "nvmath", and its
        compute type; see `library_matmul`. It multiplies two matrices, and takes neither c nor scales.

    Returns
    -------
    Comparison
        `equal`, `share_equal`, `histogram`, `first`, `plot()`, `to_json()`.

    Raises
    ------
    TypeError
        If `against` has another format than the result, operands are missing, or there is both `against` and a
        library.
    ValueError
        If it has another shape; and whatever `fs.matmul` and `library_matmul` raise.

    Examples
    --------
    >>> import numpy as np
    >>> import floatsim as fs
    >>> a, b = (fs.array(np.ones(shape) / 3, "bf16") for shape in ((1, 64), (64, 1)))
    >>> kernel = fs.matmul(a, b, accumulate="fp32")  # of one's own
    >>> print(compare(a, b, accumulate="blackwell", against=kernel))
    tensorcore(blackwell), against the array given
    all 1 results are equal, bit for bit
    """
    if library is not None and any(x is not None for x in (against, c, scale_a, scale_b)):
        raise TypeError(f"library={library!r} multiplies a and b alone: neither c nor scales, and no against")
    if compute is not None and library is None:
        raise TypeError(f"compute={compute!r} is a library's: name it, as in library='cublas'")
    if isinstance(against, str | Path):
        if any(x is not None for x in (a, b, c)):
            raise TypeError("a recording has operands of its own; give a, b and c, or against=FILE, not both")
        return one_recording(Path(against)).compare(accumulate, first)
    missing = [name for name, x in (("a", a), ("b", b), ("accumulate", accumulate)) if x is None]
    if missing:
        raise TypeError(f"compare needs {' and '.join(missing)}; only with against='FILE' it does not")
    assert accumulate is not None
    summed, source = as_accumulation(accumulate), "the array given"
    common = {"format": format, "scale_a": scale_a, "scale_b": scale_b, **how}

    def answer(fmt: FloatFormat) -> Any:
        if library is not None:
            return library_matmul(a, b, library=library, compute=compute, format=fmt)
        return matmul(a, b, c, accumulate=summed, backend="hardware", **common) if against is None else against

    if library is not None:
        source = " ".join(filter(None, [library, compute]))
    elif against is None:
        source = "the card"
    return compare_products(a, b, c, summed, answer, source, first, **common)


def capture(
    out: Path | str, instructions: Sequence[str] | str = (), *, rows: int = ROWS, seed: int = 0,
    with_inputs: bool = False, device: Dots | None = None,
) -> tuple[Recording, ...]:  # fmt: skip
    """Record what a card's matrix instructions answer: a file for each, in a folder of the card's name.

    Parameters
    ----------
    out : path
        Where the card's folder is to be.
    instructions, device
        As for `probe`.
    rows : int
        Dot products of each instruction; at least 10.
    seed : int
        Of the inputs, which are the same for all cards.
    with_inputs : bool
        Whether files hold their inputs, too.

    Returns
    -------
    tuple of Recording

    Raises
    ------
    UnavailableError
        Without CuPy or a card.
    ValueError
        If no instruction fits; the message lists what there is.

    Examples
    --------
    >>> import tempfile
    >>> from floatsim.hardware.session import emulated_card
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     files = capture(folder, "mma.m8n8k4", rows=100, device=emulated_card("volta"))
    ...     [each.path.name for each in files]
    ['mma.m8n8k4-fp16-fp16-fp32.npz', 'mma.m8n8k4-fp16-fp16-fp16.npz']
    """
    asked = questions(_card(device), _texts(instructions))
    return tuple(record(asked, out, rows=rows, seed=seed, with_inputs=with_inputs, command="fs.hardware.capture"))


def bench(
    instructions: Sequence[str] | str = (), *, repeats: int = REPEATS, libraries: bool = True,
    device: Timed | None = None,
) -> Rates:  # fmt: skip
    """How fast a card's matrix instructions and libraries are, in TFLOP/s, against its data sheet.

    Parameters
    ----------
    instructions : texts
        Only these, with * for anything: "wgmma.*", "cublas *", "* e4m3 *". Default: all whose A and B have one format.
    repeats : int
        Of each measurement, by CUDA events; the median counts.
    libraries : bool
        Whether to time cuBLAS, and nvmath where it is installed, too.
    device : Timed, optional
        What is timed; default: the card in this machine.

    Returns
    -------
    Rates
        `rates`, each with `tflops`, `sheet`, `share`; prints as a table.

    Raises
    ------
    UnavailableError
        Without CuPy or a card.
    ValueError
        If nothing fits, the message lists what there is; or if repeats is less than 1.

    Notes
    -----
    A rate by instructions is what the unit can: they are issued back to back, from registers or shared memory. Nothing
    of it has been measured on a card of our own yet.

    Examples
    --------
    >>> bench(repeats=0)  # with a card: print(bench("wgmma.*"))
    Traceback (most recent call last):
        ...
    ValueError: repeats must be at least 1, not 0
    """
    if repeats < 1:
        raise ValueError(f"repeats must be at least 1, not {repeats}")
    if device is None:
        from floatsim.hardware.device import Device

        device = Device()
    return Rates(device.card, tuple(measure(device, tasks(device, _texts(instructions), libraries), repeats)))


def _texts(instructions: Sequence[str] | str) -> Sequence[str]:
    return (instructions,) if isinstance(instructions, str) else instructions
