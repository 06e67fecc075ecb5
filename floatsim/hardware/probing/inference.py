"""The inference of an instruction's model from experiments, parameter by parameter."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from floatsim.formats import FloatFormat
from floatsim.formats.rounding import Rounding
from floatsim.hardware.comparison import UNKNOWN_NANS
from floatsim.hardware.probing import experiments
from floatsim.hardware.probing.experiments import Bench, C, Leaf, Tree
from floatsim.reference import Kind, decode

__all__ = ["Observation", "read_model", "text_of"]


@dataclass(frozen=True)
class Observation:
    """One parameter of a model: its measured value, or why it cannot be measured.

    Attributes
    ----------
    name : str
    value : object
        None if the parameter is not observable, or does not apply.
    why : str
        The reason; empty if there is a value.
    compared : bool
        Whether the value is compared with the table's. The bits of NaNs in `UNKNOWN_NANS` are not.
    """

    name: str
    value: Any
    why: str = ""
    compared: bool = True

    def __str__(self) -> str:
        return f"not observable: {self.why}" if self.value is None else text_of(self.value)


def text_of(value: Any) -> str:
    """Return a value as text.

    >>> text_of(Rounding.TOWARD_ZERO), text_of(False), text_of(25)
    ('toward zero', 'no', '25')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value.name.lower().replace("_", " ") if isinstance(value, Rounding) else str(value)


def read_model(bench: Bench) -> tuple[Observation, ...]:
    """Measure all parameters of the model of the callable under test.

    >>> import floatsim as fs
    >>> from floatsim.testing.vectors.dot_unit import named_unit
    >>> unit = named_unit("ampere", "mma.m16n8k16", fs.FP16, fs.FP16)
    >>> [str(each) for each in read_model(Bench(unit.dots, fs.FP16, fs.FP16, fs.FP32, 16))[:4]]
    ['repeat', '8', '0-7, 8-15', 'with the first block']
    """
    inference = _Inference(bench)
    parts = (
        (
            inference.repeatability, inference.order, inference.terms, inference.sums, inference.least_exponent,
            inference.operand, inference.specials,
        )
        if inference.blocks
        else (inference.repeatability, inference.tree_only, inference.sums, inference.specials)
    )  # fmt: skip
    return tuple(each if each.value is None else dataclasses.replace(each, why="") for part in parts for each in part())


class _Inference:
    """The experiments on one instruction, and the measured values that later experiments need."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.tree = experiments.measure_summation_tree(bench)
        self.blocks: list[tuple[Leaf, ...]] = experiments.chain_blocks(self.tree) or []

    @cached_property
    def products(self) -> list[list[int]]:
        """The k of each block."""
        blocks = [[k for k in block if isinstance(k, int)] for block in self.blocks]
        return [block for block in blocks if block] or [list(range(self.bench.k))]

    @property
    def first_block(self) -> list[int]:
        """The k of the first block, on which the experiments run."""
        return self.products[0]

    @property
    def c_is_in_first_block(self) -> bool:
        """Return whether c is added in the first block; True if no blocks are observable."""
        return not self.blocks or C in self.blocks[0]

    @cached_property
    def product_bits(self) -> int | None:
        """The bits of a product that are kept below the largest exponent."""
        ks = self.first_block
        enough = len(ks) > 2 or (len(ks) > 1 and self.bench.scale_blocks > 1)
        return experiments.measure_product_bits(self.bench, ks) if enough else None

    @cached_property
    def accumulator_bits(self) -> int | None:
        """The bits of c that are kept below the largest exponent, if c is added together with products."""
        measurable = self.c_is_in_first_block and len(self.first_block) > 1
        return experiments.measure_accumulator_bits(self.bench, self.first_block) if measurable else None

    @property
    def term_bits(self) -> int | None:
        """The bits of a term that are kept: measured with products, or with c if products cannot show them."""
        return self.accumulator_bits if self.product_bits is None else self.product_bits

    @cached_property
    def output_bits(self) -> int | None:
        """The number of bits that D has below its leading bit."""
        return experiments.measure_output_bits(self.bench, self.first_block[0])

    @cached_property
    def rounding(self) -> Rounding | None:
        """The rounding of the first block's sum."""
        if self.output_bits is None or (not self.c_is_in_first_block and len(self.first_block) < 3):
            return None
        return experiments.measure_output_rounding(
            self.bench, self.first_block, self.output_bits, self.c_is_in_first_block
        )

    # -- observations ------------------------------------------------------------------------------------------

    def repeatability(self) -> Iterator[Observation]:
        again = experiments.measure_repeatability(self.bench)
        yield Observation("results", None if again is None else "repeat" if again else "DO NOT REPEAT", "too narrow")

    def tree_only(self) -> Iterator[Observation]:
        """Yield the order of a tree that is not a chain of blocks."""
        yield Observation("order", None if self.tree is None else _order(self.tree), "no sum shows the order")

    def order(self) -> Iterator[Observation]:
        yield Observation("terms", max(map(len, self.products)))
        yield Observation("chain", ", ".join(map(_runs, self.products)))
        number = next(i for i, block in enumerate(self.blocks) if C in block)
        last = {len(self.blocks) - 1: "after the last block"}
        yield Observation("c", (last | {0: "with the first block"}).get(number, f"with block {number}"))

    def terms(self) -> Iterator[Observation]:
        """Yield how terms are aligned and truncated; of blocks with one product, whether the product is exact."""
        bench, ks = self.bench, self.first_block
        narrow, uncut = "no two numbers of these formats are far enough apart", "no truncation is observed"
        small = "products cannot be that small"
        if len(ks) == 1:
            exact = experiments.measure_product_exactness(bench, ks[0])
            yield Observation("product", None if exact is None else "exact" if exact else "rounded to D", narrow)
            return
        in_block = self.c_is_in_first_block
        yield Observation("fraction bits", self.product_bits, narrow)
        yield Observation("fraction bits of c", self.accumulator_bits, narrow if in_block else "c is in no block")
        kept, of_c = self.term_bits, self.accumulator_bits
        by_scales = False
        if bench.scale_blocks > 1 and kept is not None:
            lower = experiments.measure_accumulator_bits(bench, ks, lower=2)  # below smaller products
            by_scales = None not in (of_c, lower) and lower != of_c
            yield Observation("exponent of a term", "its scales'" if by_scales else "its product's")
            yield Observation("group", experiments.measure_group(bench, ks, kept), "D does not show it")
        bits = self.product_bits
        cut = None if bits is None else experiments.measure_product_truncation(bench, ks, bits)
        yield Observation("cut", cut, uncut if bits is None else small)
        cut = None if of_c is None else experiments.measure_accumulator_truncation(bench, ks, of_c)
        yield Observation("cut of c", cut, "c cannot be that small" if of_c else uncut)
        large = None if kept is None else experiments.measure_product_normalisation(bench, ks, kept, of_c is not None)
        yield Observation("products are normalised", large, uncut if kept is None else small)
        if by_scales or kept is None:
            why = "a term has its scales' exponent" if by_scales else uncut
            yield Observation("subnormals are normalised", None, why)
            return
        normalised = experiments.measure_subnormal_normalisation(bench, ks, kept, of_c is not None)
        yield Observation("subnormals are normalised", normalised, "D cannot be that small")

    def sums(self) -> Iterator[Observation]:
        """Yield how the sum of a block is rounded, and how c is added separately."""
        bench, ks, bits = self.bench, self.first_block, self.output_bits
        grid = None if bits is None else experiments.grid_format(bench.output, bits).name
        yield Observation("D", grid, "1 + 2 is not 3")
        if bits is None:
            return
        in_block, unknown = self.c_is_in_first_block, "no known rounding mode"
        yield Observation("rounding", self.rounding, unknown if in_block else "products cannot be that far apart")
        if not in_block:
            yield Observation("rounding with c", experiments.measure_output_rounding(bench, ks, bits, True), unknown)
        if in_block and self.rounding is Rounding.TIES_TO_EVEN and self.term_bits is not None:
            sticky = experiments.measure_sticky_bits(bench, ks, bits)
            yield Observation("bits that decide ties", sticky, "products cannot be that small")
        if in_block and len(self.products) > 1 and self.term_bits is not None:
            whole = experiments.measure_block_carry(bench, self.products[0][0], self.products[1][0], bits)
            yield Observation("carried between blocks", None if whole is None else "whole" if whole else "rounded to D")

    def least_exponent(self) -> Iterator[Observation]:
        """Yield the lower bound of the largest exponent."""
        if len(self.first_block) == 1:
            return
        exponent, why = None, "no truncation is observed"
        if self.term_bits is not None and self.output_bits is not None:
            grid = experiments.grid_format(self.bench.output, self.output_bits)
            rounding, lowest = self.rounding or Rounding.TIES_TO_EVEN, grid.emin - grid.trailing_bits
            exponent = experiments.measure_least_exponent(
                self.bench, self.first_block, self.term_bits, rounding, lowest
            )
            why = f"no products are small enough: the smallest is 2^{self.bench.smallest}"
        yield Observation("least exponent", exponent, why)

    def operand(self) -> Iterator[Observation]:
        bits = experiments.measure_operand_bits(self.bench, self.first_block[0])
        yield Observation("operand bits", bits, "D has too few bits")

    def specials(self) -> Iterator[Observation]:
        codes, fmt = experiments.measure_specials(self.bench, self.first_block), self.bench.output
        none = "no operand format has it"
        nans = [codes[name] for name in _NANS if name in codes]
        of_nan, unknown = _listed(_hex(code, fmt) for code in nans), fmt in UNKNOWN_NANS
        if unknown and nans:
            correct = all(decode(code, fmt).kind in (Kind.QUIET_NAN, Kind.SIGNALING_NAN) for code in nans)
            yield Observation("NaN", "NaN" if correct else of_nan)
        yield Observation("NaN bits" if unknown else "NaN", of_nan, none, compared=not unknown)
        infinite = {name: codes[name] for name in _INFINITE if name in codes}
        correct = all(code == experiments.exact_code(_INFINITE[name], fmt) for name, code in infinite.items())
        yield Observation("infinity", None if not infinite else "wins" if correct else "is lost", none)
        zeros = {0: "+0", fmt.sign_mask: "-0"}
        yield Observation("zero", _listed(zeros.get(codes[n], _hex(codes[n], fmt)) for n in _ZEROS if n in codes), none)
        over = experiments.measure_overflow(self.bench, self.first_block)
        text = None if over is None else "infinite" if over == fmt.infinity_code else _hex(over, fmt)
        yield Observation("overflow", text, "no sum of such products is too large for D")


_NANS = ("NaN in a", "NaN in b", "NaN in c", "inf * 0", "inf - inf", "inf - inf, c's")
_INFINITE = {"inf": experiments.INF, "-inf and a number": -experiments.INF, "c = inf": experiments.INF}
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
    """Return the k of a block as text.

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
