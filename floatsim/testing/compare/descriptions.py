"""The vocabulary: the descriptions of sums that comparisons try beside the given one, and that `identify` searches.

`ORDERS`, `PROMOTED`, `STORED` and `MATRIX_UNITS` are the only lists of descriptions in `floatsim.testing`. A new kind
of description is one more line here.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence

from floatsim.accumulation import (
    Accumulation,
    AccumulationLike,
    as_accumulation,
    fitted,
    leaves,
    parse,
    tensor_cores,
)
from floatsim.formats import BF16, FP16, FP32, FP64, FloatFormat
from floatsim.tensorcore.architectures import ARCHITECTURES
from floatsim.tensorcore.instructions import RoundedSteps

__all__ = [
    "ACCUMULATORS",
    "MATRIX_UNITS",
    "ORDERS",
    "PROMOTED",
    "STORED",
    "brief",
    "neighbours",
    "promoted_units",
    "stepping_units",
    "vocabulary",
]

ACCUMULATORS = (FP32, FP16, BF16, FP64)
"""The accumulators that are tried, the most frequent first."""

_BLOCKS = (4, 8, 16, 32, 64, 128, 256, 512)
_LANES = (2, 4, 8, 16, 32, 64)

ORDERS = (
    "same", "sequential(same, fused)", "pairwise(same)", "exact(same)",
    "pairwise(same, halving)", "pairwise(same, numpy)", "kahan(same)", "neumaier(same)",
    "sequential(same, rounding=toward_zero)", "sequential(same, fused, rounding=toward_zero)",
    "pairwise(same, rounding=toward_zero)",
    *(f"blocked(same, {n}, same)" for n in _BLOCKS),
    *(f"blocked(sequential(same, fused), {n}, same)" for n in _BLOCKS),
    *(f"blocked(pairwise(same), {n}, same)" for n in _BLOCKS),
    *(f"blocked(exact(same), {n}, same)" for n in _BLOCKS),
    *(f"splitk({n}, same, same)" for n in (2, 3, 4, 8, 16)),
    *(f"splitk({n}, sequential(same, fused), same)" for n in (2, 3, 4, 8, 16)),
    *(f"strided(same, {n})" for n in _LANES),
    *(f"strided(sequential(same, fused), {n})" for n in _LANES),
    *(f"strided(same, {n}, same)" for n in _LANES),
    *(f"strided(sequential(same, fused), {n}, same)" for n in _LANES),
    *(f"strided(same, {n}, pairwise(same, halving))" for n in _LANES),
    *(f"strided(sequential(same, fused), {n}, pairwise(same, halving))" for n in _LANES),
    *(f"permuted({order}, same)" for order in ("swapped", "reversed")),
    *(f"permuted({order}, sequential(same, fused))" for order in ("swapped", "reversed")),
    *(f"blocked(sequential(same, fused), {n}, same, halve, tile=16)" for n in (320, 384, 448)),
    *(f"splitk({n}, same, same, tile={tile})" for n in (2, 4) for tile in (32, 64)),
)  # fmt: skip
"""Orders in one accumulator, which is the word `same`. The first four are near every description."""

PROMOTED = (
    *(f"blocked(same, {n}, fp32)" for n in _BLOCKS),
    *(f"splitk({n}, same, fp32)" for n in (2, 4, 8)),
    *(f"splitk({n}, fp32, same)" for n in (2, 4, 8)),
    *(f"blocked(fp32, {n}, same)" for n in _BLOCKS),
)  # fmt: skip
"""Orders with two accumulators: the narrow one is the word `same`."""

STORED = tuple(f"splitk({n}, fp32, fp32, through={{stored}})" for n in (2, 4, 8))
"""Parts whose running sum is stored in a narrow format, {stored}, as split-K kernels do that add to D."""

MATRIX_UNITS = (
    "{unit}", *(f"blocked({{unit}}, {n}, fp32)" for n in (32, 64, 128, 256, 512)),
    *(f"splitk({n}, {{unit}}, fp32)" for n in (2, 4, 8)),
)  # fmt: skip
"""Sums of matrix units: {unit} is an architecture, or one of its instructions."""

_NEAR_ORDERS = 4  # the first of ORDERS
_NEAR_BLOCKS = ("blocked(same, 32, same)", "blocked(same, 128, same)", "splitk(2, same, same)", "strided(same, 4)")


_LONG = re.compile(r"\b(?:sequential|tensorcore)\(([\w-]+)\)")


def brief(accumulate: AccumulationLike) -> str:
    """Return the shortest text of a description: a format stands for its `sequential`, an architecture for its unit.

    >>> brief("strided(sequential(fp32), 4, pairwise(fp32))"), brief("blocked(tensorcore(hopper), 128, fp32)")
    ('strided(fp32, 4)', 'blocked(hopper, 128, fp32)')
    """
    description = as_accumulation(accumulate)
    text = str(description)
    for shorter in (_LONG.sub(r"\1", text), re.sub(r", pairwise\(\w+\)\)$", ")", _LONG.sub(r"\1", text))):
        try:
            if parse(shorter) == description:
                text = shorter
        except ValueError:
            continue
    return text


def _units() -> list[str]:
    names = list(ARCHITECTURES)
    rows = {
        f"tensorcore({arch.name}, {row.name})": None
        for arch in ARCHITECTURES.values()
        for row in arch.instructions
    }  # fmt: skip
    return [*names, *rows]


def _fitting(
    texts: Iterable[tuple[str, FloatFormat | None]], a: FloatFormat, b: FloatFormat, k: int
) -> list[Accumulation]:
    """Return the descriptions that take operands of these formats, each once.

    Other names of simpler descriptions are left out: blocks or lanes of at least k terms, and fused sums of products
    that the accumulator holds exactly.
    """
    found: dict[Accumulation, Accumulation] = {}
    for text, same in texts:
        if same is not None and "fused" in text and a.precision + b.precision <= same.precision:
            continue  # the products are exact in the accumulator, unless they underflow
        description = parse(text, same)
        sizes = [getattr(description, name, 0) for name in ("every", "lanes", "parts")]
        if max((size for size in sizes if isinstance(size, int)), default=0) >= k > 1:
            continue
        try:
            found.setdefault(fitted(description, a, b), description)
        except (TypeError, ValueError):  # the unit has no such instruction
            continue
    return list(found.values())


@functools.lru_cache(maxsize=64)
def vocabulary(a: FloatFormat, b: FloatFormat, k: int) -> tuple[Accumulation, ...]:
    """Return the descriptions to search for a product of K = k terms of these formats, the simplest first.

    >>> import floatsim as fs
    >>> [str(each) for each in vocabulary(fs.BF16, fs.BF16, 64)[:3]]
    ['sequential(fp32)', 'pairwise(fp32)', 'exact(fp32)']
    """
    widest = max(a.precision, b.precision)
    formats = [fmt for fmt in ACCUMULATORS if fmt in (FP32, FP64) or fmt.precision >= widest]
    texts: list[tuple[str, FloatFormat | None]] = [(text, FP32) for text in ORDERS]
    texts += [(text.format(unit=unit), None) for text in MATRIX_UNITS for unit in _units()]
    texts += [(text, fmt) for fmt in formats if fmt != FP32 for text in ORDERS]
    narrow = [fmt for fmt in formats if fmt not in (FP32, FP64)]
    texts += [(text, fmt) for fmt in narrow for text in PROMOTED]
    texts += [(text.format(stored=fmt.name.lower()), None) for fmt in narrow for text in STORED]
    return tuple(_fitting(texts, a, b, k))


def stepping_units(a: FloatFormat, b: FloatFormat, k: int) -> list[Accumulation]:
    """Return the descriptions of the vocabulary with units that add term by term, as instructions of CPUs do.

    >>> import floatsim as fs
    >>> [brief(each) for each in stepping_units(fs.BF16, fs.BF16, 64)[:2]]
    ['avx512-bf16', 'amx-bf16']
    """
    return [
        each for each in vocabulary(a, b, k)
        if any(isinstance(unit.row(a, b).model, RoundedSteps) for unit in tensor_cores(each))
    ]  # fmt: skip


def promoted_units(a: FloatFormat, b: FloatFormat, k: int) -> list[Accumulation]:
    """Return the sums of matrix units that are added in FP32 after some terms, as DeepGEMM does after 128.

    >>> import floatsim as fs
    >>> [brief(each) for each in promoted_units(fs.E4M3, fs.E4M3, 256)[:2]]
    ['blocked(ada, 32, fp32)', 'blocked(ada, 64, fp32)']
    """
    return _fitting(((text.format(unit=unit), None) for unit in ARCHITECTURES for text in MATRIX_UNITS[1:]), a, b, k)


def neighbours(
    accumulate: AccumulationLike, a: FloatFormat, b: FloatFormat, k: int, more: Sequence[AccumulationLike] = ()
) -> list[Accumulation]:
    """Return the descriptions beside a given one: other orders in its accumulators, and matrix units.

    Parameters
    ----------
    accumulate : accumulation or text
        The description; it is not in the result.
    a, b : FloatFormat
        The formats of the operands.
    k : int
        The number of terms.
    more : sequence of accumulations or texts
        Descriptions that are added.

    Examples
    --------
    >>> import floatsim as fs
    >>> [brief(each) for each in neighbours("fp32", fs.BF16, fs.BF16, 8)][:6]
    ['pairwise(fp32)', 'exact(fp32)', 'splitk(2, fp32, fp32)', 'strided(fp32, 4)', 'ampere', 'ada']
    """
    given = as_accumulation(accumulate)
    formats = list(dict.fromkeys(leaf.format for leaf in leaves(given))) or [FP32]
    wider = [FP32] if FP32 not in formats and tensor_cores(given) else []
    texts: list[tuple[str, FloatFormat | None]] = [
        (text, fmt) for fmt in [*formats, *wider] for text in (*ORDERS[:_NEAR_ORDERS], *_NEAR_BLOCKS)
    ]
    texts += [(arch, None) for arch in ARCHITECTURES]
    if tensor_cores(given):
        unit = str(tensor_cores(given)[0])
        texts += [(unit, None), (f"blocked({unit}, 128, fp32)", None)]
    found = [each for each in _fitting(texts, a, b, k) if each != given]
    return list(dict.fromkeys([*found, *(as_accumulation(each) for each in more)]))
