"""A priori bounds of rounding errors: how far a correct kernel can be from the exact result.

Deterministic bounds hold for every input. A rounding r to a format has a unit roundoff u_r, and where it can underflow
an absolute error t_r: the format's quantum, or its smallest normal number if tiny values are flushed to zero. With the
roundings on the longest path from a product to the result, and T the sum of all t_r, the error of a sum is at most
(prod(1 + u_r) - 1) * (sum |a_k * b_k| + T) + T. With n equal roundings and T = 0 the factor is below n*u / (1 - n*u)
(N. Higham, "Accuracy and Stability of Numerical Algorithms", 2nd edition, 2002, Lemma 3.1, section 3.1 and section 4.2
for trees). All intermediate results are below prod(1 + u_r) * (sum |a_k * b_k| + T). Where this is beyond the largest
number of one of the formats, a correct kernel may overflow.

Compensated sums (`compensated_bounds`) count as one rounding with the relative error of the whole sum.

Probabilistic bounds replace the sum of the u_r by lambda * sqrt(sum of u_r^2). They hold with a given probability, if
the rounding errors have mean 0 and are independent (N. Higham and T. Mary, "A new approach to probabilistic rounding
error analysis", SIAM J. Sci. Comput. 41(5), 2019, Theorems 2.4 and 3.1).
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from floatsim.accumulation import (
    Accumulation,
    AccumulationLike,
    Composite,
    Converted,
    Epilogue,
    Exact,
    Kahan,
    Leaf,
    Neumaier,
    Parts,
    Permuted,
    ProductLeaf,
    Residue,
    SplitK,
    Strided,
    TensorCore,
    Tf32x3,
    TreeLeaf,
    fitted,
    leaves,
    settled,
)
from floatsim.accumulation.partition import count, partition
from floatsim.accumulation.trees import program
from floatsim.arrays.array.conversion import as_float_array, convert
from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.elementwise.arithmetic import subtract
from floatsim.arrays.elementwise.comparison import issubnormal
from floatsim.formats import FP32, FP64, TF32, FloatFormat, FormatLike, as_format
from floatsim.formats._validation import as_real
from floatsim.formats.rounding import Rounding, RoundingAttributes, RoundingLike, as_member
from floatsim.formats.value_sets import TermRange, contains
from floatsim.tensorcore.instructions import (
    EvenAndOdd,
    ExactBlocks,
    FlushedTree,
    FmaChain,
    FusedBlocks,
    Instruction,
    LateAccumulator,
    RoundedSteps,
    TwoHalves,
)
from floatsim.testing.bounds.compensated import (
    KAHAN,
    NEUMAIER,
    kahan_growth,
    neumaier_growth,
    sequential_growth,
)
from floatsim.testing.compare.descriptions import brief
from floatsim.testing.compare.product import Product, product_of

__all__ = [
    "DETERMINISTIC", "PROBABILISTIC", "ErrorBound", "Path", "error_bound", "growth", "path_of", "spread", "step",
]  # fmt: skip

DETERMINISTIC = "Higham 2002, Lemma 3.1 and section 4.2"
PROBABILISTIC = "Higham and Mary 2019, Theorems 2.4 and 3.1"

_NEAREST = (Rounding.TIES_TO_EVEN, Rounding.TIES_TO_AWAY)


class Path(NamedTuple):
    """The roundings on the longest path from a product to a sum.

    Attributes
    ----------
    roundings : tuple of (float, int)
        Unit roundoffs, and the number of roundings with each.
    underflow : float
        The largest absolute error of all underflows together, those beside the path included.
    centred : bool
        Whether the rounding errors can have mean 0: all roundings are to nearest.
    largest : float
        The largest number of the narrowest format.
    """

    roundings: tuple[tuple[float, int], ...] = ()
    underflow: float = 0.0
    centred: bool = True
    largest: float = math.inf

    def then(self, other: Path) -> Path:
        """Return the path that goes on with another one."""
        return Path(
            self.roundings + other.roundings, self.underflow + other.underflow, self.centred and other.centred,
            min(self.largest, other.largest),
        )  # fmt: skip

    def beside(self, other: Path) -> Path:
        """Return a path that is not shorter than either of two parallel ones."""
        return self.then(other)._replace(roundings=tuple((self._counted() | other._counted()).items()))

    def _counted(self) -> Counter[float]:
        counts: Counter[float] = Counter()
        for u, n in self.roundings:
            counts[u] += n
        return counts

    @property
    def steps(self) -> int:
        """The number of roundings."""
        return sum(n for _, n in self.roundings)


@dataclass(frozen=True)
class ErrorBound:
    """A bound of the error of each element of a result. Prints as a sentence.

    Attributes
    ----------
    bound : float64 array
        The largest error |computed - exact| of each element; infinity where a correct kernel may overflow.
    exact : float64 array
        The exact results, rounded to FP64.
    roundings : int
        The number of roundings on the longest path, the rounding of the result included.
    factor : float
        The relative part: bound = factor * (magnitude + underflow) + underflow, before the rounding of the result.
    theorem : str
        The source of the bound.
    probability : float or None
        The probability with which all elements meet the bound; None if they always do.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> a, b = fs.array(np.ones((2, 8)), "bf16"), fs.array(np.ones((8, 2)), "bf16")
    >>> bound = fs.testing.error_bound(a, b)
    >>> bound.roundings, bound.exact.tolist()
    (9, [[8.0, 8.0], [8.0, 8.0]])
    """

    bound: Any
    exact: Any
    roundings: int
    factor: float
    theorem: str
    probability: float | None = None

    def __str__(self) -> str:
        holds = "always" if self.probability is None else f"with probability {self.probability:.6g}"
        return (
            f"|error| <= {self.factor:.3g} * magnitude, {holds}: {self.roundings} roundings on the longest path "
            f"({self.theorem})"
        )

    __repr__ = __str__


# -- paths -------------------------------------------------------------------------------------------------------------


def step(fmt: FloatFormat, rounding: Rounding | None = None) -> float:
    """Return the largest relative error of one rounding: 2**-p to nearest, 2**(1-p) in other modes."""
    return fmt.unit_roundoff if rounding is None or rounding in _NEAREST else fmt.eps


def _rounded(
    fmt: FloatFormat, times: int, underflows: int, mode: Rounding = Rounding.TIES_TO_EVEN, ftz: bool = False
) -> Path:
    """Return the path of `times` roundings to a format. In all, this number of roundings can underflow."""
    tiny = fmt.smallest_normal if ftz else fmt.smallest_subnormal
    return Path(((step(fmt, mode), times),), underflows * tiny, mode in _NEAREST, fmt.max)


def path_of(
    accumulation: Accumulation, n: int, terms: TermRange, *, with_c: bool = False,
    rounding: Rounding = Rounding.TIES_TO_EVEN,
) -> Path:  # fmt: skip
    """Return the longest path of a sum of n terms: products of two formats, or values of one format."""
    if isinstance(accumulation, TensorCore):
        if terms.b is None:
            raise ValueError(f"{accumulation} multiplies matrices; it cannot add the exponentials of a softmax")
        return _unit_path(accumulation.row(terms.a, terms.b), n, with_c)
    if isinstance(accumulation, Permuted):
        return path_of(accumulation.inner, n, terms, with_c=with_c, rounding=rounding)
    if isinstance(accumulation, Parts):
        return _path_of_parts(accumulation, terms, with_c, rounding)
    if isinstance(accumulation, Composite):
        return _composite_path(accumulation, n, terms, with_c, rounding)
    if isinstance(accumulation, Converted):
        return _converted_path(accumulation, n, terms, with_c, rounding)
    if isinstance(accumulation, Residue | Tf32x3):
        return _chains_path(accumulation, n, terms, with_c)
    if isinstance(accumulation, Epilogue):
        return _epilogue_path(accumulation, n, terms, with_c, rounding)
    assert isinstance(accumulation, Leaf)
    return _leaf_path(accumulation, n, terms, with_c, RoundingAttributes(rounding))


def _composite_path(
    accumulation: Composite, n: int, terms: TermRange, with_c: bool, rounding: Rounding
) -> Path:  # fmt: skip
    """Return the path through a part and through the sum of the parts' results."""
    lengths = count(partition(accumulation, np.array([[0, n, 1]]).tobytes()).parts).tolist()
    inner = Path()
    for length, parts in Counter(lengths).items():  # a shorter tree can be higher
        each = path_of(accumulation.inner, length, terms, rounding=rounding)
        inner = inner.beside(each._replace(underflow=parts * each.underflow))
    results, parts = TermRange(_result_format(accumulation.inner, terms)), len(lengths)
    last = with_c and isinstance(accumulation, Strided)
    outer = path_of(accumulation.outer, parts, results, with_c=with_c and not last, rounding=rounding)
    path = inner.then(outer)
    through = accumulation.through if isinstance(accumulation, SplitK) else None
    if through is None and not last:
        return path
    leaf = _outermost(accumulation)
    assert isinstance(leaf, Leaf)
    own = settled(leaf, RoundingAttributes(rounding))[0]
    if through is not None:  # the running sum is rounded after each part
        path = path.then(_rounded(through, parts, parts, own.rounding, own.ftz))
    if last:
        path = path.then(_rounded(leaf.format, 1, 1, own.rounding, own.ftz))
    reads = (parts if through is not None else 0) + last
    return path._replace(underflow=path.underflow + own.daz * reads * leaf.format.smallest_normal)


def _converted_path(
    accumulation: Converted, n: int, terms: TermRange, with_c: bool, rounding: Rounding
) -> Path:  # fmt: skip
    """Return the path of converted terms. Operands of products are converted before: see `_as_read`."""
    fmt = accumulation.format
    if terms.b is not None:
        return path_of(accumulation.inner, n, TermRange(fmt, fmt), with_c=with_c, rounding=rounding)
    path = path_of(accumulation.inner, n, TermRange(fmt), with_c=with_c, rounding=rounding)
    if contains(fmt, terms.a, specials=False):
        return path
    return _rounded(fmt, 1, n, accumulation.rounding).then(path)


def _chains_path(accumulation: Residue | Tf32x3, n: int, terms: TermRange, with_c: bool) -> Path:
    """Return the path of chains of one unit on one accumulator: each is filled up with zeros to whole blocks."""
    unit = accumulation.inner
    assert isinstance(unit, TensorCore)
    if isinstance(accumulation, Residue):
        row, lengths = unit.row(terms.a, _second(terms)), [length for length, _ in accumulation.runs(n)]
    else:
        row, lengths = unit.row(TF32, TF32), [n, n, n]
    block = row.k if isinstance(row.model, TwoHalves) else 1 if isinstance(row.model, FmaChain) else row.block
    return _unit_path(row, sum(-(-length // block) * block for length in lengths), with_c)


def _second(terms: TermRange) -> FloatFormat:
    assert terms.b is not None
    return terms.b


def _epilogue_path(accumulation: Epilogue, n: int, terms: TermRange, with_c: bool, rounding: Rounding) -> Path:
    """Return the path of a sum without c, its rounding to 16 bits, and the addition of c. The activation is exact."""
    path = path_of(accumulation.inner, n, terms, rounding=rounding)
    last = _result_format(accumulation.inner, terms)
    if accumulation.through is not None:
        path, last = path.then(_rounded(accumulation.through, 1, 1)), accumulation.through
    if with_c or not contains(accumulation.format, last, specials=False):
        path = path.then(_rounded(accumulation.format, 1, 1))
    return path


def _path_of_parts(accumulation: Parts, terms: TermRange, with_c: bool, rounding: Rounding) -> Path:
    """Return the path through any of the parts and through the sum of their results."""
    inner = Path()
    for each, length in zip(accumulation.inners, accumulation.lengths, strict=True):
        inner = inner.beside(path_of(each, length, terms, rounding=rounding))
    results = TermRange(accumulation.part_format)
    return inner.then(path_of(accumulation.outer, len(accumulation.lengths), results, with_c=with_c, rounding=rounding))


def _result_format(accumulation: Accumulation, terms: TermRange) -> FloatFormat:
    """Return the format of the results of a description, for operands of these formats."""
    if terms.b is not None:
        accumulation = fitted(accumulation, terms.a, terms.b)
    return accumulation.result_format


def _outermost(accumulation: Accumulation) -> Accumulation:
    """Return the leaf, the unit or the epilogue whose result is the description's. It reads c."""
    if isinstance(accumulation, Epilogue):
        return accumulation
    return _outermost(accumulation.children[-1]) if accumulation.children else accumulation


def _innermost(accumulation: Accumulation) -> Accumulation:
    """Return the leaf or the unit that reads the operands of a description; of `Parts`, that of the first part."""
    return _innermost(accumulation.children[0]) if accumulation.children else accumulation


def _leaf_path(leaf: Leaf, n: int, terms: TermRange, with_c: bool, call: RoundingAttributes) -> Path:
    """Return the path of a leaf.

    An addition of two numbers of the leaf's format underflows only with FTZ. With DAZ, every operand of an addition can
    be read as zero: each term, unless it is an exact product, and each sum.
    """
    own, of_products = settled(leaf, call)
    product = leaf.product if isinstance(leaf, ProductLeaf) else None
    term = terms.a if terms.b is None else product
    daz = own.daz * n * (term.smallest_normal if term is not None else 0.0)
    if isinstance(leaf, Exact):
        path = _rounded(leaf.format, 1, 1, own.rounding, own.ftz)
        return path._replace(underflow=path.underflow + daz)
    assert isinstance(leaf, ProductLeaf)
    fits = term is not None and contains(leaf.format, term, specials=False)
    path = Path()
    if terms.b is not None and product is not None:
        path = _rounded(product, 1, n, of_products.rounding, own.ftz)
    if with_c and not isinstance(leaf, TreeLeaf):  # c is rounded at the start
        path = path.beside(_rounded(leaf.format, 1, 1, own.rounding, own.ftz))
    if isinstance(leaf, Kahan | Neumaier):
        compensated = _compensated(leaf, n, own, fits)
        return path.then(compensated)._replace(underflow=path.underflow + compensated.underflow + daz)
    underflows = with_c if fits and not own.ftz else n + with_c
    additions = _rounded(leaf.format, _depth(leaf, n, with_c, fits), underflows, own.rounding, own.ftz)
    daz += own.daz * (n + with_c) * leaf.format.smallest_normal
    return path.then(additions)._replace(underflow=path.underflow + additions.underflow + daz)


def _compensated(leaf: Kahan | Neumaier, n: int, own: RoundingAttributes, fits: bool) -> Path:
    """Return the path of a compensated sum of n terms: one rounding with the relative error of the whole sum.

    A step has at most 5 roundings and 10 operands, which FTZ and DAZ change by less than the smallest normal number.
    With terms that the format does not have, one rounding can underflow. Later roundings let these errors grow by g.
    """
    u = step(leaf.format, own.rounding)
    g = sequential_growth(u, n + 1)
    if isinstance(leaf, Kahan):
        factor, beyond = kahan_growth(u, n), 4 * u
    else:
        exact = fits and own.rounding in _NEAREST and leaf.format.precision > 2
        factor, beyond = neumaier_growth(u, n, exact), 2 * g  # the sum without its correction
    tiny = 0.0 if fits else leaf.format.smallest_subnormal
    if own.ftz or own.daz:
        tiny = leaf.format.smallest_normal
    underflow = 16 * (n + 2) * tiny * (1 + g) if tiny else 0.0
    return Path(((factor, 1),), underflow, False, leaf.format.max / (1 + beyond))


def _depth(leaf: ProductLeaf, n: int, with_c: bool, fits: bool) -> int:
    """Return the number of additions on the longest path. `fits`: the leaf's format has all terms.

    The first addition of a `Sequential`, to 0, is then exact.
    """
    if not isinstance(leaf, TreeLeaf):
        return n if with_c or not fits else max(n, 1) - 1
    heights: list[int] = []
    for merges in program(leaf.tree, n).merges.tolist():
        heights.append(0)
        for _ in range(merges):
            top = heights.pop()
            heights[-1] = max(heights[-1], top) + 1
    height = heights[0] if heights else 0
    return max(height, int(not fits)) + with_c  # a single term is rounded


# -- matrix units ------------------------------------------------------------------------------------------------------


def _unit_path(row: Instruction, n: int, with_c: bool) -> Path:
    """Return the path of a matrix unit. c is rounded to the format of D, and then each block adds to it."""
    model, output = row.model, row.output
    start = _rounded(output, 1, 1) if with_c else Path()
    if isinstance(model, TwoHalves):
        instructions = -(-n // row.k)
        halves = _aligned(model.block, row, 2)
        added = _rounded(output, instructions, 0)
        return start.beside(halves._replace(underflow=instructions * halves.underflow)).then(added)
    blocks = -(-n // row.block)
    if isinstance(model, FusedBlocks | LateAccumulator):
        return start.then(_aligned(model, row, blocks))
    if isinstance(model, FmaChain):
        return start.then(_rounded(output, n, n))
    if isinstance(model, ExactBlocks):
        return start.then(_rounded(output, blocks, blocks))
    if isinstance(model, FlushedTree):
        height = (row.block - 1).bit_length()
        flushes = 2 * row.block * blocks + with_c  # c can be read as zero
        return start.beside(_rounded(output, 1 + height, 0)).then(_rounded(output, blocks, flushes, ftz=True))
    return start.then(_steps_path(model, row, blocks, with_c))


def _steps_path(model: RoundedSteps, row: Instruction, blocks: int, with_c: bool) -> Path:
    """Return the path of operations that round one after the other."""
    groups = row.block // model.group
    times = 0 if model.group == 1 else 1 if model.fused else 2  # the sum of a group
    times += -(-groups // model.lanes) + model.lanes - 1 + blocks if model.late else groups * blocks
    operations = 2 * (row.block + model.lanes) * blocks + with_c  # at most; c can be read as zero
    return _rounded(row.output, times, operations, model.rounding, model.flushes is not None)


def _aligned(model: FusedBlocks | LateAccumulator, row: Instruction, blocks: int) -> Path:
    """Return the path of blocks of terms that are aligned to the largest exponent e and cut below it.

    With F fraction bits, each cut has an error below 2**(e - F). The largest magnitude among the terms is at least
    2**e, unless they are subnormal (see `_magnitude`), or e is the least exponent or that of a subnormal c. So the cuts
    of a block act as a rounding with u = cuts * 2**-F. Then the sum is rounded.
    """
    output = row.output
    if isinstance(model, FusedBlocks):
        cuts, floor, more, lost = row.block + 1, max(model.floor, output.emin), 0.0, 0.0
        last = _rounded(model.grid, blocks, blocks, model.rounding)
    else:  # both sums of `EvenAndOdd` are cut once more; the sum of the products is cut below all other bits
        cuts, floor = row.block + (4 if isinstance(model, EvenAndOdd) else 2), output.emin
        more, lost = 2.0**-model.sum_bits, 2.0 ** (floor - model.sum_bits)
        last = _rounded(output, blocks, blocks)
    cut = cuts * 2.0**-model.fraction_bits
    least = cuts * 2.0 ** (floor - model.fraction_bits) + lost
    return Path(((cut, blocks), (more, blocks)) if more else ((cut, blocks),), blocks * least, False).then(last)


# -- bounds ------------------------------------------------------------------------------------------------------------


def growth(path: Path, elements: int, probability: float | None) -> float:
    """Return the factor prod(1 + u) - 1 of a path, or its probabilistic counterpart for this many elements at once."""
    if probability is None:
        return _expm1(sum(n * math.log1p(u) for u, n in path.roundings))
    if not path.centred:
        raise ValueError(
            "probability= needs rounding errors with mean 0: these sums truncate, and their errors add up, or are "
            "compensated; omit it for the deterministic bound"
        )
    largest = max((u for u, _ in path.roundings), default=0.0)
    failures = (1 - probability) / max(1, elements * path.steps)
    scale = math.sqrt(2 * math.log(2 / failures)) / (1 - largest)
    squares = sum(n * u * u for u, n in path.roundings)
    return _expm1(scale * math.sqrt(squares) + squares / (1 - largest))


def _expm1(x: float) -> float:
    return math.expm1(x) if x < 700 else math.inf  # exp(710) is beyond FP64


def spread(path: Path, magnitude: Any, probability: float | None = None, elements: int = 1) -> Any:
    """Return the largest errors of sums with these sums of magnitudes; infinity where a sum may overflow."""
    factor = growth(path, elements, probability)
    with np.errstate(invalid="ignore", over="ignore"):
        together = magnitude + path.underflow
        errors = factor * together + path.underflow
        return np.where(together + errors <= path.largest, errors, math.inf)


def as_probability(probability: float | None) -> float | None:
    """Return a probability between 0 and 1, or None, or raise an error that names the argument."""
    if probability is None:
        return None
    chance = as_real(probability, "probability")
    if not 0 < chance < 1:
        raise ValueError(f"probability must be between 0 and 1, as in 0.999, not {probability!r}")
    return chance


def error_bound(
    a: Any, b: Any, c: Any = None, *, accumulate: AccumulationLike = "fp32", format: FormatLike | None = None,
    rounding: RoundingLike = "ties_to_even", probability: float | None = None,
) -> ErrorBound:  # fmt: skip
    """Return the a priori error bound of each element of a matrix product.

    Parameters
    ----------
    a, b : array_like of floats, (..., M, K) and (..., K, N)
        The operands.
    c : array_like of floats, optional
        The accumulator at the start.
    accumulate : accumulation or text
        The description of the sums.
    format : format, optional
        The format of the result, whose rounding is included. Default: the accumulator's.
    rounding : Rounding or str
        The rounding mode of the sums and of the result.
    probability : float, optional
        The probability that all elements meet the bound. Default: the deterministic bound, which grows with K instead
        of sqrt(K).

    Returns
    -------
    ErrorBound
        `bound` and `exact` have the shape of the product. `exact` is the sum of the operands as the sums read them:
        subnormal ones count as zeros with DAZ, FP32 operands of an instruction for TF32 are cut, those of `Converted`
        are converted, and `Tf32x3` has the sum of its three products. With an `Epilogue`, it includes c and the
        activation. The bound is
        infinite where a sum may reach the end of a format's range, in the result or on the way to it. The
        description alone sets DAZ and FTZ.

    Raises
    ------
    ValueError
        For `Parts` inside other descriptions; for a scale format; for a probability outside (0, 1), or with sums that
        truncate or are compensated.

    Examples
    --------
    >>> import numpy as np
    >>> import floatsim as fs
    >>> a, b = fs.array(np.ones((2, 1024)), "bf16"), fs.array(np.ones((1024, 2)), "bf16")
    >>> error_bound(a, b, accumulate="fp32")
    |error| <= 6.1e-05 * magnitude, always: 1025 roundings on the longest path (Higham 2002, Lemma 3.1 and section 4.2)
    >>> error_bound(a, b, accumulate="fp32", probability=0.999).factor < 2e-5
    True
    """
    product = product_of(a, b, c, accumulate)
    mode, chance = as_member(Rounding, rounding, "rounding"), as_probability(probability)
    wanted = None if format is None else as_format(format)
    if wanted is not None and wanted.is_scale:
        raise ValueError(f"format={wanted.name} is a scale format, without a sign; name the format of a result")
    terms = TermRange(product.a.format, product.b.format)
    accumulation = fitted(product.accumulate, product.a.format, product.b.format)
    fmt = accumulation.result_format if wanted is None else wanted
    if any(_has_parts(each) for each in accumulation.children):
        raise ValueError(f"{brief(accumulation)} has no bound here: Parts stand inside another description")
    path = path_of(accumulation, product.k, terms, with_c=product.c is not None, rounding=mode)
    product = _as_read(replace(product, accumulate=accumulation))
    exact = np.asarray(product.result(_EXACT, FP64).values)
    if isinstance(accumulation, Epilogue) and accumulation.activation == "relu":
        exact = np.maximum(exact, 0.0)  # differences do not grow
    factor = growth(path, exact.size, chance)
    with np.errstate(all="ignore"):
        inner = spread(path, _magnitude(product), chance, exact.size)
        last = step(fmt, mode) * (np.abs(exact) + inner) + fmt.smallest_subnormal
        last += step(FP64) * np.abs(exact) + FP64.smallest_subnormal  # `exact` is rounded
        bound = (inner + last) * (1 + 1e-9)  # the bound itself is computed in FP64
        bound = np.where(np.abs(exact) + bound <= fmt.max, bound, math.inf)
    return ErrorBound(bound, exact, path.steps + 1, factor, _theorems(accumulation, chance), chance)


def _has_parts(accumulation: Accumulation) -> bool:
    return isinstance(accumulation, Parts) or any(_has_parts(each) for each in accumulation.children)


def _theorems(accumulation: Accumulation, probability: float | None) -> str:
    """Return the sources of the bound of a description."""
    ends = leaves(accumulation)
    kinds = {Kahan: KAHAN, Neumaier: NEUMAIER}
    found = [source for kind, source in kinds.items() if any(isinstance(leaf, kind) for leaf in ends)]
    if any(not isinstance(leaf, Kahan | Neumaier) for leaf in ends) or not found:
        found.insert(0, DETERMINISTIC if probability is None else PROBABILISTIC)
    return "; ".join(found)


_EXACT = Exact(FP64, rounding=Rounding.TIES_TO_EVEN, ftz=False, daz=False)  # the context has no effect


def _magnitude(product: Product) -> Any:
    """Return the sums of the magnitudes of all terms.

    A unit that aligns its terms does not normalise subnormal numbers: their exponent is that of the smallest normal
    number, which is their magnitude here.
    """
    if isinstance(product.accumulate, Parts):
        sizes = sum(_magnitude(each) for each in _parts(product))
        return sizes if product.c is None else sizes + np.abs(np.asarray(product.c.values))
    reader = _innermost(product.accumulate)
    model = reader.row(product.a.format, product.b.format).model if isinstance(reader, TensorCore) else None
    aligned = isinstance(model, FusedBlocks | TwoHalves | LateAccumulator)
    sides = []
    for x in (product.a, product.b):
        sizes = np.abs(np.asarray(x.values))
        sides.append(np.where(sizes > 0, np.maximum(sizes, x.format.smallest_normal), sizes) if aligned else sizes)
    magnitude = sides[0] @ sides[1]
    return magnitude if product.c is None else magnitude + np.abs(np.asarray(product.c.values))


def _as_read(product: Product) -> Product:
    """Return the product with the operands and the c that the sums read: subnormals flushed, or bits cut off."""
    reader, last = _innermost(product.accumulate), _outermost(product.accumulate)
    a, b, c = product.a, product.b, product.c
    inner = product.accumulate
    while inner.children:
        if isinstance(inner, Converted):
            a, b = (_float_array(convert(x, inner.format, rounding=inner.rounding, **_EXACTLY)) for x in (a, b))
        elif isinstance(inner, Tf32x3):
            a, b = _three_products(a, b)
        inner = inner.children[0]
    if isinstance(product.accumulate, Parts):
        read = [_as_read(each) for each in _parts(product)]
        a = FloatArray(np.concatenate([each.a.codes for each in read], axis=-1), a.format)
        b = FloatArray(np.concatenate([each.b.codes for each in read], axis=-2), b.format)
    elif isinstance(reader, TensorCore):
        row = reader.row(a.format, b.format)
        a, b = _read_by(row, a), _read_by(row, b)
    elif isinstance(reader, Leaf) and reader.daz:
        a, b = _flushed(a), _flushed(b)
    if c is not None and isinstance(last, Leaf) and last.daz:
        c = _flushed(c)
    return replace(product, a=a, b=b, c=c)


def _parts(product: Product) -> list[Product]:
    """Return the products of the parts of `Parts`, without c."""
    assert isinstance(product.accumulate, Parts)
    found, start = [], 0
    for inner, length in zip(product.accumulate.inners, product.accumulate.lengths, strict=True):
        a = FloatArray(product.a.codes[..., start : start + length], product.a.format)
        b = FloatArray(product.b.codes[..., start : start + length, :], product.b.format)
        found.append(replace(product, a=a, b=b, c=None, accumulate=inner))
        start += length
    return found


_EXACTLY: Any = {"overflow": "infinity", "daz": False, "ftz": False}  # the context has no effect


def _float_array(x: Any) -> FloatArray:
    return as_float_array(x, "an operand")


def _three_products(a: FloatArray, b: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the operands of the three products of `Tf32x3`, side by side: small and large parts in TF32."""

    def parts(x: FloatArray) -> tuple[FloatArray, FloatArray]:
        large = _float_array(convert(x, TF32, rounding=Rounding.TIES_TO_AWAY, **_EXACTLY))
        rest = subtract(x, large, format=FP32, rounding=Rounding.TIES_TO_EVEN, **_EXACTLY)
        return large, _float_array(convert(rest, TF32, rounding=Rounding.TOWARD_ZERO, **_EXACTLY))

    (large_a, small_a), (large_b, small_b) = parts(a), parts(b)
    left = np.concatenate([small_a.codes, large_a.codes, large_a.codes], axis=-1)
    right = np.concatenate([large_b.codes, small_b.codes, large_b.codes], axis=-2)
    return FloatArray(left, TF32), FloatArray(right, TF32)


def _read_by(row: Instruction, x: FloatArray) -> FloatArray:
    """Return an operand as an instruction reads it."""
    if row.truncates and x.format == FP32:
        cut = FP32.trailing_bits - TF32.trailing_bits
        return FloatArray(x.codes >> np.uint32(cut) << np.uint32(cut), FP32)
    if isinstance(row.model, FlushedTree):
        return _flushed(x)
    if isinstance(row.model, RoundedSteps) and row.model.flushes is not None:  # operands are widened first
        return _without(x, np.abs(np.asarray(x.values)) < row.output.smallest_normal)
    return x


def _flushed(x: FloatArray) -> FloatArray:
    return _without(x, np.asarray(issubnormal(x)))


def _without(x: FloatArray, where: Any) -> FloatArray:
    return FloatArray(np.where(where, x.codes.dtype.type(0), x.codes), x.format)
