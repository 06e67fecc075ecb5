"""Matrix instructions as data: operands, number of terms, and the model of the sum.

A model defines how one instruction adds its products to c. Almost every NVIDIA instruction is a chain of fused blocks
(`FusedBlocks`). Instructions of CPUs are operations that round one by one (`RoundedSteps`). The modules `nvidia`, `amd`
and `cpu` of `floatsim.reference.tensorcore` define the models in exact integers. The kernels are tested equal to them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, TypeAlias

from floatsim.formats import FP32, FloatFormat, NamedEnum
from floatsim.formats._hashing import hashed_once
from floatsim.formats.rounding import Rounding, Tininess

__all__ = [
    "E8M13", "Architecture", "EvenAndOdd", "Evidence", "ExactBlocks", "FlushedTree", "FmaChain", "FusedBlocks",
    "GroupedBlocks", "Instruction", "LateAccumulator", "Model", "NanRule", "RoundedSteps", "Scales", "TwoHalves",
]  # fmt: skip

E8M13 = FloatFormat.ieee(8, 13, "E8M13")
"""FP32 with 13 fraction bits: the accumulator of FP8 on Ada and in Hopper's wgmma, also called FP22.

>>> import floatsim as fs
>>> fs.tensorcore.E8M13.bits, fs.tensorcore.E8M13.precision, fs.tensorcore.E8M13.max
(22, 14, 3.4026159773350432e+38)
"""


class Evidence(NamedEnum):
    """The evidence for a row of the table, the strongest first.

    >>> import floatsim as fs
    >>> fs.tensorcore.ARCHITECTURES["hopper"].instructions[0].evidence.name
    'PROJECT'
    """

    PROJECT = "project"
    """Equal to the instruction itself: this project ran it. A capture is in data/silicon."""
    SILICON = "silicon"
    """Equal to all published outputs of real GPUs (Khattak and Mikaitis, "Accurate Models of NVIDIA Tensor Cores")."""
    ASSERTED = "asserted"
    """Reported by the authors of the source: their model equals the GPU, special values included. Not repeated here."""
    MODEL = "model"
    """Equal to another model, mmasim 2.1.1, whose authors tested it on the GPU with random bits."""
    SPECIFIED = "specified"
    """Equal to the pseudo-code of a manual or to an emulator's source, which the tests have as a second implementation.
    Not compared with hardware."""
    NOTHING = "nothing"
    """Unverified: inferred by analogy."""


# -- models ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FusedBlocks:
    """Blocks of `terms` products and c, aligned to the largest exponent, truncated, summed at once, rounded once.

    Parameters
    ----------
    terms : int
        L, the products of a block. An instruction with more products chains blocks: D of a block is c of the next.
    fraction_bits : int
        F: terms are truncated toward zero to multiples of 2**(e_max - F).
    floor : int
        The least e_max, also used if all terms are zero.
    grid : FloatFormat
        The format that the sum is rounded to: the format of D, or a coarser one whose values D contains.
    rounding : Rounding
        The rounding mode. Overflow gives infinity, also toward zero.
    """

    terms: int
    fraction_bits: int
    floor: int
    grid: FloatFormat
    rounding: Rounding


@dataclass(frozen=True)
class GroupedBlocks(FusedBlocks):
    """Fused blocks of groups. A term is the exact sum of `group` products, times two scales.

    The exponent of a group is that of its scales, for every value of the sum.
    """

    group: int


@dataclass(frozen=True)
class TwoHalves:
    """FP8 computed with FP16: a block over k % 4 in {0, 1} from zero, a block over the other k, then c is added.

    This is not a hardware instruction. On GPUs that have only wgmma or tcgen05 for FP8, ptxas expands an FP8 `mma.sync`
    to conversions and FP16 products. Other versions of ptxas may expand it differently.
    """

    block: FusedBlocks


@dataclass(frozen=True)
class FmaChain:
    """acc = fma(a, b, acc) in the format of D, k ascending, ties to even."""

    terms: ClassVar[int] = 1


@dataclass(frozen=True)
class ExactBlocks:
    """Blocks of `terms` products and c, summed exactly and rounded once to the format of D, ties to even.

    Parameters
    ----------
    terms : int
        The products of a block.
    signed_zero : bool
        Whether a sum of negative zeros is -0. Otherwise a sum of zero is +0.
    """

    terms: int
    signed_zero: bool = False


@dataclass(frozen=True)
class FlushedTree:
    """Blocks of 2 or 4 products, added as neighbours in FP32, then to c. Subnormals are read and returned as zeros."""

    terms: int


@dataclass(frozen=True)
class LateAccumulator:
    """Products are aligned and truncated as in `FusedBlocks`, without c, which is added last.

    The sum of the products and c are rounded downward before their addition.

    Parameters
    ----------
    terms : int
        The products of a block.
    fraction_bits : int
        The fraction bits kept of each product and of c.
    sum_bits : int
        The fraction bits of the normalised sum, before ties-to-even rounding to FP32.
    """

    terms: int
    fraction_bits: int
    sum_bits: int


@dataclass(frozen=True)
class EvenAndOdd(LateAccumulator):
    """A `LateAccumulator` with separate sums of the even and odd products. A c below the kept bits is dropped."""


class NanRule(NamedEnum):
    """The NaN that an operation returns.

    >>> import floatsim as fs
    >>> [rule.name for rule in fs.tensorcore.NanRule]
    ['CANONICAL', 'FIRST_OPERAND']
    """

    CANONICAL = "canonical"
    """The format's canonical NaN."""
    FIRST_OPERAND = "first operand"
    """The first NaN operand: of a, b and the accumulator in a fused multiply-add, of the left and the right operand in
    an addition. It keeps its sign and its payload and becomes quiet. Without a NaN operand: the canonical NaN with the
    sign set. This is the rule of x86."""


@dataclass(frozen=True)
class RoundedSteps:
    """Blocks of operations that round one after the other: the instructions of CPUs.

    The block's products form groups, and the groups form lanes. Group i belongs to lane i modulo `lanes`. A group of
    one product is a fused multiply-add onto its lane. The sum of a larger group is added to its lane. A single lane
    starts from c, unless `late`. Otherwise the lanes are joined in order and then added to c.

    Parameters
    ----------
    terms : int
        The products of a block. An instruction with more products chains blocks.
    group : int
        The number of products of a group, 1 or 2.
    fused : bool
        Whether the sum of a group's products is exact and rounded once. Otherwise each product is rounded, then their
        sum.
    lanes : int
        The number of lanes, 1 or 2.
    late : bool
        Whether c is added last.
    from_zero : bool
        Whether lanes start from +0 if `late`. Otherwise a lane starts with the sum of its first group.
    reverse : bool
        Whether the groups of a block are taken from the last to the first.
    rounding : Rounding
        The rounding mode of every operation. Overflow gives infinity, also when rounding to odd.
    flushes : Tininess, optional
        Whether subnormal operands of every operation are read as zeros, and tiny results are flushed to zero. The value
        selects how tininess is detected. Operands of a narrower format are widened first.
    nan : NanRule
        The NaN that an operation returns.

    Examples
    --------
    >>> import floatsim as fs
    >>> model = fs.tensorcore.RoundedSteps(terms=2, group=2, fused=False)
    >>> model.lanes, model.rounding.name
    (1, 'TIES_TO_EVEN')
    """

    terms: int
    group: int = 1
    fused: bool = True
    lanes: int = 1
    late: bool = False
    from_zero: bool = True
    reverse: bool = False
    rounding: Rounding = Rounding.TIES_TO_EVEN
    flushes: Tininess | None = None
    nan: NanRule = NanRule.CANONICAL


Model: TypeAlias = FusedBlocks | TwoHalves | FmaChain | ExactBlocks | FlushedTree | LateAccumulator | RoundedSteps


# -- instructions ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scales:
    """The block scales that an instruction takes: one for every `every` elements of a row of A and of a column of B.

    Parameters
    ----------
    every : int
        The number of elements that share a scale.
    format : FloatFormat
        The format of the scales.

    Examples
    --------
    >>> import floatsim as fs
    >>> scales = fs.tensorcore.Scales(32, fs.E8M0)
    >>> scales.every, scales.format.name
    (32, 'E8M0')
    """

    every: int
    format: FloatFormat


@hashed_once
@dataclass(frozen=True)
class Instruction:
    """One matrix instruction with one format of D: a row of the table.

    Parameters
    ----------
    name : str
        family.shape, with the type if the inputs do not determine it: "mma.m16n8k16", "mma.m16n8k8.tf32", "wgmma.k32".
    inputs : formats
        The formats of A and of B.
    k : int
        The number of products. Longer sums chain instructions: D of one is c of the next. The last one is filled up
        with zeros.
    model : Model
        The model of the sum.
    output : FloatFormat
        The format of c and D.
    evidence : Evidence
        What the row has been verified against.
    gpus : str
        The GPUs or CPUs of the evidence.
    mixes : bool
        Whether A and B may have different formats, both of `inputs`.
    scales : Scales
        The block scales that the instruction takes, if any.
    truncates : bool
        Whether FP32 operands are accepted and read as TF32, without their low 13 bits.
    note : str
        A remark for the table.
    published : str
        The GPUs whose published outputs equal the row. They are also `gpus`, if the evidence is `SILICON`.

    Examples
    --------
    >>> import floatsim as fs
    >>> row = fs.tensorcore.ARCHITECTURES["hopper"].instructions[0]
    >>> row.name, row.k, [fmt.name for fmt in row.inputs], row.output.name
    ('wgmma.k16', 16, ['FP16', 'BF16'], 'FP32')
    """

    name: str
    inputs: tuple[FloatFormat, ...]
    k: int
    model: Model
    output: FloatFormat = None  # type: ignore[assignment]  # filled in by __post_init__
    evidence: Evidence = Evidence.MODEL
    gpus: str = ""
    mixes: bool = False
    scales: tuple[Scales, ...] = ()
    truncates: bool = False
    note: str = ""
    published: str = ""

    def __post_init__(self) -> None:
        if vars(self)["output"] is None:
            object.__setattr__(self, "output", FP32)
        if self.evidence is Evidence.SILICON:
            object.__setattr__(self, "published", self.gpus)

    def takes(self, a: FloatFormat, b: FloatFormat) -> bool:
        """Return whether the instruction takes operands of these formats."""
        if self.truncates and a == b == FP32:
            return True
        return a in self.inputs and b in self.inputs and (self.mixes or a == b)

    @property
    def fused(self) -> FusedBlocks | None:
        """The fused blocks of the instruction, or None."""
        model = self.model.block if isinstance(self.model, TwoHalves) else self.model
        return model if isinstance(model, FusedBlocks) else None

    @property
    def block(self) -> int:
        """The number of products that are summed at once."""
        model = self.model.block if isinstance(self.model, TwoHalves) else self.model
        return min(model.terms, self.k)

    @property
    def roundings(self) -> int:
        """The number of roundings of D: one for each block. Two halves have a third one, where c is added."""
        return self.k // self.block + isinstance(self.model, TwoHalves)

    @property
    def group(self) -> int:
        """The number of products of one term."""
        return self.model.group if isinstance(self.model, GroupedBlocks) else 1


@dataclass(frozen=True)
class Architecture:
    """A generation of matrix units, or an instruction set of CPUs: its names and its instructions.

    The default instruction is the first one that takes the operands.

    Attributes
    ----------
    name : str
        The name in `fs.tensorcore.ARCHITECTURES`, such as "hopper".
    title : str
        The manufacturer's name.
    instructions : tuple of Instruction
        The matrix instructions.
    processor : str
        "GPU" or "CPU".
    assumed : tuple of str
        GPUs that are modelled in the same way, unverified: nothing is published about their arithmetic.
    aliases : tuple of str
        Other names, without spaces and hyphens: GPUs and compilation targets.

    Examples
    --------
    >>> import floatsim as fs
    >>> hopper = fs.tensorcore.ARCHITECTURES["hopper"]
    >>> hopper.title, hopper.processor, hopper.instructions[0].name
    ('NVIDIA Hopper (sm_90)', 'GPU', 'wgmma.k16')
    """

    name: str
    title: str
    instructions: tuple[Instruction, ...]
    assumed: tuple[str, ...] = ()
    processor: str = "GPU"
    aliases: tuple[str, ...] = ()

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the instructions, each once, in the order of the table."""
        return tuple(dict.fromkeys(row.name for row in self.instructions))
