"""What a matrix instruction is: its operands, how many terms it takes, and the model of its sum. Data, not code.

A model says how one instruction adds its products to c. Every NVIDIA instruction but two kinds is a chain of fused
blocks (`FusedBlocks`); `floatsim.reference.tensorcore.nvidia` and `floatsim.reference.tensorcore.amd` carry the models
out in exact integers, as plainly as they can be said, and the kernels are held equal to them.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TypeAlias

from floatsim.formats import FP32, FloatFormat
from floatsim.formats.rounding import Rounding

__all__ = [
    "E8M13", "EvenAndOdd", "Evidence", "ExactBlocks", "FlushedTree", "FmaChain", "FusedBlocks", "GroupedBlocks",
    "Instruction", "LateAccumulator", "Model", "Scales", "TwoHalves",
]  # fmt: skip

E8M13 = FloatFormat.ieee(8, 13, "E8M13")
"""FP32 with 13 fraction bits: what FP8 accumulates in on Ada and in Hopper's wgmma. Some call it FP22."""


class Evidence(enum.Enum):
    """What a row of the table has been held against, the strongest first."""

    SILICON = "silicon"
    """Equal to all published outputs of real GPUs (Khattak and Mikaitis, "Accurate Models of NVIDIA Tensor Cores")."""
    ASSERTED = "asserted"
    """The authors of the source say that their model equals the card, specials included; not run again here."""
    MODEL = "model"
    """Read from another model, mmasim 2.1.1, whose authors tested it on the card with random bits."""
    NOTHING = "nothing"
    """By analogy. Nobody is known to have looked."""


# -- models ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FusedBlocks:
    """Blocks of `terms` products and c, aligned to the largest exponent, truncated, summed at once, rounded once.

    Parameters
    ----------
    terms : int
        L, products of a block. An instruction of more chains blocks: what a block returns is the next one's c.
    fraction_bits : int
        F: terms are cut toward zero to multiples of 2**(e_max - F).
    floor : int
        The least e_max, taken too where all terms are zero.
    grid : FloatFormat
        What the sum is rounded to: the format of D, or a coarser one within it.
    rounding : Rounding
        How. Beyond the grid's largest number it is an infinity, also toward zero.
    """

    terms: int
    fraction_bits: int
    floor: int
    grid: FloatFormat
    rounding: Rounding


@dataclass(frozen=True)
class GroupedBlocks(FusedBlocks):
    """Fused blocks of groups: `group` products are summed exactly, and that times its two scales is one term.

    A group's exponent is its scales'; how large the sum is does not count.
    """

    group: int


@dataclass(frozen=True)
class TwoHalves:
    """FP8 by way of FP16: one block over the k with k % 4 in {0, 1} from zero, one over the others, then c is added.

    No hardware but what ptxas makes of an FP8 `mma.sync` where there is only wgmma or tcgen05: products of FP8 numbers
    converted to FP16. Another version of it may do otherwise.
    """

    block: FusedBlocks


@dataclass(frozen=True)
class FmaChain:
    """acc = fma(a, b, acc) in the format of D, k ascending, ties to even."""


@dataclass(frozen=True)
class ExactBlocks:
    """Blocks of `terms` products and c, summed exactly and rounded once to FP32, ties to even."""

    terms: int


@dataclass(frozen=True)
class FlushedTree:
    """Blocks of 2 or 4 products, added as neighbours in FP32, then to c; subnormals are zeros, before and after."""

    terms: int


@dataclass(frozen=True)
class LateAccumulator:
    """Products are aligned and truncated as in `FusedBlocks`, without c; then c joins, and both are cut downward.

    Parameters
    ----------
    terms : int
        Products of a block.
    fraction_bits : int
        Kept of each product and of c.
    sum_bits : int
        Fraction bits of the normalised sum, before ties-to-even rounding to FP32.
    """

    terms: int
    fraction_bits: int
    sum_bits: int


@dataclass(frozen=True)
class EvenAndOdd(LateAccumulator):
    """As `LateAccumulator`, the even and the odd products apart; c is dropped where it lies below what is kept."""


Model: TypeAlias = FusedBlocks | TwoHalves | FmaChain | ExactBlocks | FlushedTree | LateAccumulator


# -- instructions ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scales:
    """What block-scaled operands take: a scale for every `every` elements of a row of A and of a column of B."""

    every: int
    format: FloatFormat


@dataclass(frozen=True)
class Instruction:
    """One matrix instruction with one format of D: a row of the table.

    Parameters
    ----------
    name : str
        family.shape, and the type where the inputs do not decide it: "mma.m16n8k16", "mma.m16n8k8.tf32", "wgmma.k32".
    inputs : formats
        Of A and of B.
    k : int
        Products that it takes. Longer sums chain instructions, D of one being c of the next; what is missing from
        the last is filled with zeros.
    model : Model
    output : FloatFormat
        Of c and D. Default: FP32.
    evidence : Evidence
    cards : str
        Those whose outputs are meant by the evidence.
    mixes : bool
        Whether A and B may be of different formats, both of `inputs`.
    scales : Scales
        The scales that it takes, if it does.
    truncates : bool
        Whether FP32 operands are taken, and read as TF32: the low 13 bits do not count.
    note : str
    """

    name: str
    inputs: tuple[FloatFormat, ...]
    k: int
    model: Model
    output: FloatFormat = None  # type: ignore[assignment]  # filled in by __post_init__
    evidence: Evidence = Evidence.MODEL
    cards: str = ""
    mixes: bool = False
    scales: tuple[Scales, ...] = ()
    truncates: bool = False
    note: str = ""

    def __post_init__(self) -> None:
        if vars(self)["output"] is None:
            object.__setattr__(self, "output", FP32)

    def takes(self, a: FloatFormat, b: FloatFormat) -> bool:
        """Whether operands of these formats are its."""
        if self.truncates and a == b == FP32:
            return True
        return a in self.inputs and b in self.inputs and (self.mixes or a == b)

    @property
    def fused(self) -> FusedBlocks | None:
        """The fused blocks that it is made of, if it is."""
        model = self.model.block if isinstance(self.model, TwoHalves) else self.model
        return model if isinstance(model, FusedBlocks) else None

    @property
    def block(self) -> int:
        """How many products are summed at once."""
        model = self.model.block if isinstance(self.model, TwoHalves) else self.model
        return min(1 if isinstance(model, FmaChain) else model.terms, self.k)

    @property
    def roundings(self) -> int:
        """How many times it rounds D: once a block; in two halves, a third time where c is added."""
        return self.k // self.block + isinstance(self.model, TwoHalves)

    @property
    def group(self) -> int:
        """How many products make one term."""
        return self.model.group if isinstance(self.model, GroupedBlocks) else 1
