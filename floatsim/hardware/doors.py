"""What `fs.hardware` offers about the card in this machine: probe it, record what it answers, see how fast it is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from floatsim.hardware.captures import capture as record
from floatsim.hardware.cards import probe_card, questions
from floatsim.hardware.inputs import ROWS
from floatsim.hardware.probes import Probe
from floatsim.hardware.protocol import Dots
from floatsim.hardware.rates import REPEATS, Rates, Timed, measure, tasks
from floatsim.hardware.recordings import Recording

__all__ = ["bench", "capture", "probe"]


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
    >>> from floatsim.hardware.cards import emulated_card
    >>> probe("wgmma.k16 fp16 fp16 fp16", device=emulated_card("hopper"))[0].model
    'FusedBlocks(terms=16, fraction_bits=25, floor=-21, grid=FP16, rounding=TIES_TO_EVEN)'
    """
    return tuple(probe_card(questions(_card(device), _texts(instructions))))


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
    >>> from floatsim.hardware.cards import emulated_card
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
