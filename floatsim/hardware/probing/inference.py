"""What the experiments say of one instruction, parameter by parameter, or why they say nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from floatsim.formats import FloatFormat
from floatsim.formats.rounding import Rounding
from floatsim.hardware.probing import experiments as ask
from floatsim.hardware.probing.experiments import Bench, C, Leaf, Tree

__all__ = ["Observation", "read_model", "text_of"]


@dataclass(frozen=True)
class Observation:
    """One parameter: what was read, or why nothing could be.

    Attributes
    ----------
    name : str
    value : object
        None where it cannot be observed, or does not apply.
    why : str
        Why not; empty where there is a value.
    """

    name: str
    value: Any
    why: str = ""

    def __str__(self) -> str:
        return f"not observable: {self.why}" if self.value is None else text_of(self.value)


def text_of(value: Any) -> str:
    """A value in words.

    >>> text_of(Rounding.TOWARD_ZERO), text_of(False), text_of(25)
    ('toward zero', 'no', '25')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value.name.lower().replace("_", " ") if isinstance(value, Rounding) else str(value)


def read_model(bench: Bench) -> tuple[Observation, ...]:
    """All that can be read of what multiplies.

    >>> import floatsim as fs
    >>> from floatsim.testing.dot_unit import named_unit
    >>> unit = named_unit("ampere", "mma.m16n8k16", fs.FP16, fs.FP16)
    >>> [str(each) for each in read_model(Bench(unit.dots, fs.FP16, fs.FP16, fs.FP32, 16))[:4]]
    ['repeat', '8', '0-7, 8-15', 'with the first block']
    """
    reading = _Reading(bench)
    parts = (
        (reading.answers, reading.order, reading.terms, reading.sums, reading.least, reading.operand, reading.specials)
        if reading.blocks
        else (reading.answers, reading.tree_alone, reading.sums, reading.specials)
    )
    return tuple(
        each if each.value is None else Observation(each.name, each.value) for part in parts for each in part()
    )


class _Reading:
    """An instruction, and what has been found of it so far, which the next experiments need."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.tree = ask.tree_of(bench)
        self.blocks: list[tuple[Leaf, ...]] = ask.blocks_of(self.tree) or []

    @cached_property
    def products(self) -> list[list[int]]:
        """Which k make up each block."""
        blocks = [[k for k in block if isinstance(k, int)] for block in self.blocks]
        return [block for block in blocks if block] or [list(range(self.bench.k))]

    @property
    def at(self) -> list[int]:
        """The k of the first block, at which experiments are made."""
        return self.products[0]

    @property
    def joined(self) -> bool:
        """Whether c enters with the first block; taken to be so where no blocks are seen."""
        return not self.blocks or C in self.blocks[0]

    @cached_property
    def bits(self) -> int | None:
        """Kept of products, below the largest exponent."""
        enough = len(self.at) > 2 or (len(self.at) > 1 and self.bench.scale_blocks > 1)
        return ask.bits_of_products(self.bench, self.at) if enough else None

    @cached_property
    def bits_of_c(self) -> int | None:
        """Kept of c, where it enters with products."""
        return ask.bits_of_c(self.bench, self.at) if self.joined and len(self.at) > 1 else None

    @property
    def kept(self) -> int | None:
        """Kept of terms: read from products or, where these cannot tell, from c."""
        return self.bits_of_c if self.bits is None else self.bits

    @cached_property
    def trailing(self) -> int | None:
        """How many bits D has below its leading one."""
        return ask.kept_of_d(self.bench, self.at[0])

    @cached_property
    def rounding(self) -> Rounding | None:
        """How the sum of the first block is rounded."""
        if self.trailing is None or (not self.joined and len(self.at) < 3):
            return None
        return ask.rounding_of_d(self.bench, self.at, self.trailing, self.joined)

    # -- what is told ------------------------------------------------------------------------------------------

    def answers(self) -> Iterator[Observation]:
        again = ask.repeats(self.bench)
        yield Observation("answers", None if again is None else "repeat" if again else "DO NOT REPEAT", "too narrow")

    def tree_alone(self) -> Iterator[Observation]:
        """Of an order that is no chain of blocks."""
        yield Observation("order", None if self.tree is None else _order(self.tree), "nothing is seen of it")

    def order(self) -> Iterator[Observation]:
        yield Observation("terms", max(map(len, self.products)))
        yield Observation("chain", ", ".join(map(_runs, self.products)))
        number = next(i for i, block in enumerate(self.blocks) if C in block)
        last = {len(self.blocks) - 1: "after the last block"}
        yield Observation("c", (last | {0: "with the first block"}).get(number, f"with block {number}"))

    def terms(self) -> Iterator[Observation]:
        """How terms are aligned and cut; of blocks of one product, whether that is exact."""
        bench, at = self.bench, self.at
        narrow, nothing = "no two numbers of these formats are far enough apart", "nothing is seen to be cut"
        small = "products cannot be that small"
        if len(at) == 1:
            exact = ask.product_is_exact(bench, at[0])
            yield Observation("product", None if exact is None else "exact" if exact else "rounded to D", narrow)
            return
        yield Observation("fraction bits", self.bits, narrow)
        yield Observation("fraction bits of c", self.bits_of_c, narrow if self.joined else "c is in no block")
        kept, of_c = self.kept, self.bits_of_c
        by_scales = False
        if bench.scale_blocks > 1 and kept is not None:
            lower = ask.bits_of_c(bench, at, lower=2)  # the same below smaller products?
            by_scales = None not in (of_c, lower) and lower != of_c
            yield Observation("exponent of a term", "its scales'" if by_scales else "its product's")
            yield Observation("group", ask.group_of(bench, at, kept), "D shows nothing of it")
        cut = None if self.bits is None else ask.cut_of_products(bench, at, self.bits)
        yield Observation("cut", cut, nothing if self.bits is None else small)
        cut = None if of_c is None else ask.cut_of_c(bench, at, of_c)
        yield Observation("cut of c", cut, "c cannot be that small" if of_c else nothing)
        large = None if kept is None else ask.products_normalised(bench, at, kept, of_c is not None)
        yield Observation("products are normalised", large, nothing if kept is None else small)
        if by_scales or kept is None:
            why = "a term has its scales' exponent" if by_scales else nothing
            yield Observation("subnormals are normalised", None, why)
            return
        normalised = ask.subnormals_normalised(bench, at, kept, of_c is not None)
        yield Observation("subnormals are normalised", normalised, "D cannot be that small")

    def sums(self) -> Iterator[Observation]:
        """What becomes of the sum of a block, and where c is added apart."""
        bench, at, trailing = self.bench, self.at, self.trailing
        grid = None if trailing is None else ask.grid_of(bench.output, trailing).name
        yield Observation("D", grid, "not even 1 + 2 is 3")
        if trailing is None:
            return
        apart = "products cannot be that far apart"
        yield Observation("rounding", self.rounding, "no known one" if self.joined else apart)
        if not self.joined:
            yield Observation("rounding with c", ask.rounding_of_d(bench, at, trailing, True), "no known one")
        if self.joined and self.rounding is Rounding.TIES_TO_EVEN and self.kept is not None:
            sticky = ask.sticky_bits(bench, at, trailing)
            yield Observation("bits that decide ties", sticky, "products cannot be that small")
        if self.joined and len(self.products) > 1 and self.kept is not None:
            whole = ask.carried_whole(bench, self.products[0][0], self.products[1][0], trailing)
            yield Observation("carried between blocks", None if whole is None else "whole" if whole else "rounded to D")

    def least(self) -> Iterator[Observation]:
        """The exponent that is taken where all are smaller."""
        if len(self.at) == 1:
            return
        found, why = None, "nothing is seen to be cut"
        if self.kept is not None and self.trailing is not None:
            grid = ask.grid_of(self.bench.output, self.trailing)
            how = self.rounding or Rounding.TIES_TO_EVEN
            found = ask.least_exponent(self.bench, self.at, self.kept, how, grid.emin - grid.trailing_bits)
            why = f"no products are small enough: the smallest is 2^{self.bench.smallest}"
        yield Observation("least exponent", found, why)

    def operand(self) -> Iterator[Observation]:
        yield Observation("operand bits", ask.operand_bits(self.bench, self.at[0]), "D has too few bits")

    def specials(self) -> Iterator[Observation]:
        codes, fmt = ask.specials(self.bench, self.at), self.bench.output
        none = "no operand has it"
        yield Observation("NaN", _listed(_hex(codes[name], fmt) for name in _NANS if name in codes), none)
        infinite = {name: codes[name] for name in _INFINITE if name in codes}
        right = all(code == ask.exact_code(_INFINITE[name], fmt) for name, code in infinite.items())
        yield Observation("infinity", None if not infinite else "wins" if right else "is lost", none)
        zeros = {0: "+0", fmt.sign_mask: "-0"}
        yield Observation("zero", _listed(zeros.get(codes[n], _hex(codes[n], fmt)) for n in _ZEROS if n in codes), none)
        over = ask.overflow(self.bench, self.at)
        text = None if over is None else "infinite" if over == fmt.infinity_code else _hex(over, fmt)
        yield Observation("overflow", text, "no sum of such products is too large for D")


_NANS = ("NaN in a", "NaN in b", "NaN in c", "inf * 0", "inf - inf", "inf - inf, c's")
_INFINITE = {"inf": ask.INF, "-inf and a number": -ask.INF, "c = inf": ask.INF}
_ZEROS = ("-0 alone", "1 - 1")


def _hex(code: int, fmt: FloatFormat) -> str:
    return f"0x{code:0{-(-fmt.bits // 4)}X}"


def _listed(texts: Iterator[str]) -> str | None:
    return " or ".join(dict.fromkeys(texts)) or None


def _order(tree: Tree) -> str:
    if isinstance(tree, tuple):
        return f"({' + '.join(_order(child) for child in tree)})"
    return str(tree) if tree == C else f"p{tree}"


def _runs(block: Sequence[int]) -> str:
    """A block's k in words.

    >>> _runs([0, 1, 4, 5, 9])
    '0-1+4-5+9'
    """
    runs = [[block[0]]]
    for k in block[1:]:
        if k == runs[-1][-1] + 1:
            runs[-1].append(k)
        else:
            runs.append([k])
    return "+".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
