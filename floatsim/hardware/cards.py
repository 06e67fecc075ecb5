"""What a card is asked, one instruction after the other: which it has, and what the table says they compute.

A card is whatever answers as `floatsim.hardware.device.Dots` says; the tests have some that are not there.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from floatsim.hardware.comparisons import FIRST, Comparison, compare_dots
from floatsim.hardware.device import Dots
from floatsim.hardware.inputs import ROWS, Inputs, input_set
from floatsim.hardware.instructions import Variant, variants
from floatsim.hardware.probes import Probe, probe
from floatsim.hardware.targets import architecture_of
from floatsim.hardware.units import Codes, ScaleCodes, Unit

__all__ = ["Question", "compare_card", "probe_card", "questions"]


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
    chosen = [q for q in found if not only or any(_fits(str(q.variant), text) for text in only)]
    if not chosen:
        names = ", ".join(dict.fromkeys(q.variant.name for q in found))
        raise ValueError(f"only={', '.join(only)!r} fits no instruction of {card.card.name}; it has {names}")
    return list({str(q.variant): q for q in reversed(chosen)}.values())[::-1]


def _fits(text: str, pattern: str) -> bool:
    pattern = pattern.lower()
    return fnmatch.fnmatchcase(text, pattern) or fnmatch.fnmatchcase(text.partition(" ")[0], pattern)


def probe_card(asked: Sequence[Question]) -> Iterator[Probe]:
    """The models of instructions, as a card's answers have them, each against the table's row."""
    for q in asked:
        u = q.unit
        yield probe(q.dots, u.a, u.b, k=u.k, output=u.output, scales=u.scales, against=u)


def compare_card(
    asked: Sequence[Question], rows: int = ROWS, seed: int = 0, first: int = FIRST
) -> Iterator[Comparison]:
    """The answers of a card to the fixed set of inputs, each instruction's against the emulator's."""
    for q in asked:
        inputs = q.input_set(rows, seed)
        yield compare_dots(q.unit, inputs, q.dots(*inputs), q.card.card.name, first)
