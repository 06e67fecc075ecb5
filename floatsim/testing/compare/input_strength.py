"""The strength of inputs: which other descriptions of a sum give the same bits on them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from floatsim.accumulation import Accumulation, AccumulationLike, as_accumulation
from floatsim.arrays.array.float_array import FloatArray
from floatsim.testing.compare.descriptions import brief, neighbours
from floatsim.testing.compare.product import Product

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Strength", "described", "input_strength", "matching", "not_excluded", "strength_line"]

_SAMPLE = 48  # rows and columns: other descriptions differ there, or are evaluated on the whole product


@dataclass(frozen=True)
class Strength:
    """Which descriptions the inputs of a comparison tell from the given one. Prints as a sentence.

    Attributes
    ----------
    description : str
        The description of the comparison.
    same : tuple of str
        The other descriptions that give the same bits on these inputs.
    different : tuple of str
        The other descriptions that do not.
    """

    description: str
    same: tuple[str, ...]
    different: tuple[str, ...]

    def __str__(self) -> str:
        if not self.same:
            return f"these inputs tell {self.description} from all {len(self.different)} other descriptions tried"
        return f"these inputs cannot tell {self.description} from {', '.join(self.same)}"


def _sample(product: Product) -> Product:
    rows, columns = product.a.shape[-2], product.b.shape[-1]
    chosen = [np.unique(np.linspace(0, n - 1, min(n, _SAMPLE)).astype(int)) for n in (rows, columns)]
    return product.part(*chosen)


def matching(product: Product, result: FloatArray, descriptions: Sequence[Accumulation]) -> list[Accumulation]:
    """Return the descriptions that give the bits of `result`, which has the format of the product.

    All of them take the operands and options of the product. A description is evaluated on a sample of rows and columns
    first, and on the whole product only if it agrees there.
    """
    found = []
    stacked = product.a.ndim > 2 or product.b.ndim > 2
    small = product if stacked else _sample(product)
    expected = result.codes if stacked else _sample_of(result, product)
    whole = small.a.shape == product.a.shape and small.b.shape == product.b.shape
    for description in descriptions:
        if not np.array_equal(small.result(description, result.format).codes, expected):
            continue
        if whole or np.array_equal(product.result(description, result.format).codes, result.codes):
            found.append(description)
    return found


def _sample_of(result: FloatArray, product: Product) -> NDArray[np.unsignedinteger]:
    rows, columns = product.a.shape[-2], product.b.shape[-1]
    chosen = [np.unique(np.linspace(0, n - 1, min(n, _SAMPLE)).astype(int)) for n in (rows, columns)]
    sampled: NDArray[np.unsignedinteger] = result.codes[np.ix_(*chosen)]
    return sampled


def described(descriptions: AccumulationLike | Iterable[AccumulationLike], argument: str) -> list[Accumulation]:
    """Return one description or several as a list.

    >>> described("pairwise(fp32)", "unlike")
    [Pairwise(FP32)]
    """
    several = isinstance(descriptions, Iterable) and not isinstance(descriptions, str)
    given: list[Any] = list(descriptions) if several else [descriptions]  # type: ignore[arg-type]
    return [as_accumulation(each, argument) for each in given]


def input_strength(
    product: Product, result: FloatArray, unlike: AccumulationLike | Iterable[AccumulationLike] = ()
) -> Strength:
    """Return which other descriptions give the bits of `result`, the emulated product.

    >>> import numpy as np
    >>> import floatsim as fs
    >>> from floatsim.testing.compare.product import product_of
    >>> product = product_of(fs.array(np.ones((2, 8)), "bf16"), fs.array(np.ones((8, 2)), "bf16"), None, "fp32")
    >>> "pairwise(fp32)" in input_strength(product, product.result()).same
    True
    """
    given = described(unlike, "unlike")
    near = neighbours(product.accumulate, product.a.format, product.b.format, product.k, given)
    others = [each for each in near if product.takes(each)]
    same = set(matching(product, result, others))
    return Strength(
        brief(product.accumulate),
        tuple(brief(each) for each in others if each in same),
        tuple(brief(each) for each in others if each not in same),
    )


def not_excluded(strength: Strength, unlike: Sequence[Accumulation]) -> tuple[str, ...]:
    """Return the descriptions of `unlike` that the inputs do not tell from the description of the comparison.

    >>> not_excluded(Strength("fp32", ("pairwise(fp32)",), ("exact(fp32)",)), described(["pairwise(fp32)"], "unlike"))
    ('pairwise(fp32)',)
    """
    wanted = [brief(each) for each in unlike]
    return tuple(each for each in wanted if each in strength.same or each == strength.description)


def strength_line(strength: Strength | None, unlike: Sequence[str] = ()) -> str | None:
    """Return the line of a report about its inputs; `unlike` has the descriptions that they should exclude.

    >>> strength_line(Strength("fp32", ("pairwise(fp32)",), ("exact(fp32)",)), ("pairwise(fp32)",))
    'too weak: these inputs cannot tell fp32 from pairwise(fp32) (unlike=)'
    """
    if strength is None:
        return None
    if unlike:
        return f"too weak: these inputs cannot tell {strength.description} from {', '.join(unlike)} (unlike=)"
    return f"strength: {strength}"
