"""What a card is asked, one instruction after the other: which it has, and what the table says they compute.

A card is whatever answers as `floatsim.hardware.device.Dots` says; the tests have some that are not there.
"""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from floatsim.hardware.comparison import FIRST, Comparison, compare_dots
from floatsim.hardware.probing.probe import Probe, probe_dots, rows_alike
from floatsim.hardware.protocol import Card, Dots
from floatsim.hardware.tables.compute_capability import PLAIN, architecture_of, capability_of
from floatsim.hardware.tables.ptx_matrix import Variant, variants
from floatsim.tensorcore.architectures import as_architecture
from floatsim.testing.dot_unit import Codes, ScaleCodes, Unit, named_unit
from floatsim.testing.inputs import ROWS, Inputs, input_set

__all__ = ["Emulated", "Question", "compare_card", "emulated_card", "fits", "probe_card", "questions"]


@dataclass(frozen=True)
class Question:
    """An instruction of a card, and what the table says it computes. Its `dots` are the card's."""

    card: Dots
    variant: Variant
    unit: Unit

    def dots(self, a: Codes, b: Codes, c: Codes, scales: ScaleCodes | None = None) -> Codes:
        """What the card answers: shapes and dtypes as those of `Unit.dots`, K being the instruction's."""
        return self.card.dots(self.variant, a, b, c, scales)

    def input_set(self, rows: int = ROWS, seed: int = 0) -> Inputs:
        """What it is asked when it is recorded."""
        return input_set(self.unit, rows, seed)


def questions(card: Dots, only: Sequence[str] = ()) -> list[Question]:
    """The instructions that a card has and the table knows.

    Parameters
    ----------
    card : Dots
    only : texts
        Those alone whose text, as "mma.m16n8k16 fp16 fp16 fp32", fits one of these, with * for anything: "wgmma.*",
        "* bf16 *". Default: all.

    Returns
    -------
    list of Question

    Raises
    ------
    ValueError
        If none is left; the message lists what the card has.
    """
    found = []
    arch = architecture_of(card.card.capability)
    for variant in variants():
        row = variant.model(card.card.capability)
        if row is not None and arch is not None and card.can_run(variant):
            found.append(Question(card, variant, Unit(arch, row, variant.a, variant.b, variant.scales)))
    if not found:
        major, minor = card.card.capability
        raise ValueError(
            f"{card.card.name} has compute capability {major}.{minor}, of which no instruction is in the table"
        )
    return _chosen(found, only, card.card.name)


def emulated_card(arch: str) -> Emulated:
    """A card that is not there, and for which the emulator answers: to see what probing says, and to test it.

    Raises
    ------
    ValueError
        For an architecture whose instructions cannot be issued here.

    Examples
    --------
    >>> [str(q.variant) for q in questions(emulated_card("volta"))]
    ['mma.m8n8k4 fp16 fp16 fp32', 'mma.m8n8k4 fp16 fp16 fp16']
    """
    name = as_architecture(arch).name
    capability = next((c for c in map(capability_of, PLAIN) if architecture_of(c) == name), None)
    if capability is None:
        raise ValueError(f"{name} has no instructions that can be issued here; NVIDIA's architectures have")
    return Emulated(Card(f"the emulator of {name}", capability, "", ""))


@dataclass(frozen=True)
class Emulated:
    """What answers as a card would by the table."""

    card: Card

    def can_run(self, variant: Variant) -> bool:
        """Whether such a card has the instruction."""
        return variant.kernel.runs_on(self.card.capability)

    def dots(self, variant: Variant, a: Codes, b: Codes, c: Codes, scales: tuple[Codes, Codes] | None = None) -> Codes:
        """What the emulator computes."""
        arch = architecture_of(self.card.capability)
        assert arch is not None
        unit = named_unit(arch, variant.name, variant.a, variant.b, variant.output, variant.scales)
        return unit.dots(a, b, c, None if scales is None else ScaleCodes(*scales))


def _chosen(found: list[Question], only: Sequence[str], card: str) -> list[Question]:
    """Those that fit, each once; where there are several ways to issue one, the first."""
    chosen = [q for q in found if not only or any(fits(str(q.variant), text) for text in only)]
    if not chosen:
        names = ", ".join(dict.fromkeys(q.variant.name for q in found))
        raise ValueError(f"only={', '.join(only)!r} fits no instruction of {card}; it has {names}")
    return list({str(q.variant): q for q in reversed(chosen)}.values())[::-1]


def fits(text: str, pattern: str) -> bool:
    """Whether a text, or its first word, is what a pattern with * means.

    >>> fits("wgmma.k16 fp16 fp16 fp32", "wgmma.k16"), fits("wgmma.k16 fp16 fp16 fp32", "* BF16 *")
    (True, False)
    """
    text, pattern = text.lower(), pattern.lower()
    return fnmatch.fnmatchcase(text, pattern) or fnmatch.fnmatchcase(text.partition(" ")[0], pattern)


def probe_card(asked: Iterable[Question]) -> Iterator[Probe]:
    """The models of instructions, as a card's answers have them, each against the table's row."""
    for q in asked:
        u = q.unit
        found = probe_dots(q.dots, u.a, u.b, k=u.k, output=u.output, scales=u.scales, against=u)
        yield found if found.equal else dataclasses.replace(found, alike=rows_alike(found, u))


def compare_card(
    asked: Iterable[Question], rows: int = ROWS, seed: int = 0, first: int = FIRST
) -> Iterator[Comparison]:
    """The answers of a card to the fixed set of inputs, each instruction's against the emulator's."""
    for q in asked:
        inputs = q.input_set(rows, seed)
        yield compare_dots(q.unit, inputs, q.dots(*inputs), q.card.card.name, first)
