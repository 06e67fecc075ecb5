"""Cards that are not there: they answer with the emulator, and with faults where a test asks for them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from floatsim.hardware.device import Card
from floatsim.hardware.instructions import Variant
from floatsim.hardware.targets import architecture_of
from floatsim.hardware.units import ScaleCodes, Unit, named_unit

Fault = Callable[[Variant, np.ndarray], np.ndarray]


class FakeCard:
    """As a card, to whom asks it by `floatsim.hardware.device.Dots`. A fault changes what it answers."""

    def __init__(self, capability=(8, 9), fault: Fault | None = None) -> None:
        self.card = Card("a card that is not there", capability, "0.0", "0.0")
        self.fault = fault
        self.asked: list[str] = []

    def unit(self, variant: Variant) -> Unit:
        arch = architecture_of(self.card.capability)
        return named_unit(arch, variant.name, variant.a, variant.b, variant.output, variant.scales)

    def can_run(self, variant: Variant) -> bool:
        return variant.kernel.runs_on(self.card.capability) and variant.model(self.card.capability) is not None

    def dots(self, variant: Variant, a, b, c, scales=None):
        for x, fmt in ((a, variant.a), (b, variant.b), (c, variant.output)):
            assert x.dtype == fmt.code_dtype
        assert a.shape == b.shape == (len(c), variant.k)
        self.asked.append(str(variant))
        d = self.unit(variant).dots(a, b, c, None if scales is None else ScaleCodes(*scales))
        return d if self.fault is None else self.fault(variant, d)


def one_bit(row: int, bit: int = 0, of: str = "") -> Fault:
    """A bit of one row of D is wrong, in each batch that has the row, of the instructions whose text has `of`."""

    def fault(variant: Variant, d: np.ndarray) -> np.ndarray:
        if row < len(d) and of in str(variant):
            d[row] ^= d.dtype.type(1 << bit)
        return d

    return fault
