"""Identify a kernel: find the description of its sums that reproduces its bits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from floatsim.accumulation import Accumulation, AccumulationLike, as_accumulation
from floatsim.arrays.array.conversion import as_float_array, convert
from floatsim.arrays.array.float_array import FloatArray, wrap
from floatsim.arrays.array.torch_jax import to_jax, to_torch
from floatsim.formats import BF16, FP16, FP32, FP64, FloatFormat
from floatsim.testing.compare.descriptions import brief, stepping_units, vocabulary
from floatsim.testing.compare.location import locate
from floatsim.testing.compare.product import Product, product_of
from floatsim.testing.identify.candidates import orders_with_tree, variants
from floatsim.testing.identify.fused_terms import fused_terms
from floatsim.testing.identify.order_trees import same_sum
from floatsim.testing.identify.tree_search import (
    Meetings,
    find_meetings,
    normal_probe_for,
    probe_for,
    reads_as_zero,
    widest_probe_for,
)
from floatsim.testing.vectors.product_inputs import HardInputs, hard_inputs

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Identification", "Region", "identify"]

_ELEMENTS = 48  # elements of each experiment that all candidates are compared with
_KINDS = ("cancelling", "normal", "subnormal", "flushed")
_LIMITS = {"overflow": "sums that overflow", "special": "infinities and NaNs", "zeros": "products that are all -0"}
_CONFIRMED = 4096  # elements of each trial that a candidate is compared with before it is named
_TRIALS = 4  # calls of the kernel for each kind of trial, if its results are small
_SEPARATING: tuple[tuple[str, FloatFormat], ...] = (
    ("cancelling", FP32), ("cancelling", FP64), ("double_rounding", FP32), ("double_rounding", FP64),
    ("subnormal", FP32), ("flushed", FP32), ("flushed", FP16), ("flushed", BF16), ("flushed", FP64), ("overflow", FP32),
    ("special", FP32), ("cancelling", FP16), ("normal", FP32),
)  # fmt: skip
_ROUNDS = 8  # experiments that separate the names of an ambiguous result
_REGIONS = 8  # parts of a result that are identified
_SHOWN = 6  # names of an ambiguous result that the text lists
_NEAR = 3  # near misses that are named
_SIDE = 24  # rows and columns of products that tell descriptions apart
_LONG = 160  # characters of a name that the text shows whole


@dataclass(frozen=True)
class Region:
    """A part of the result with its own order: where it is, and the descriptions that reproduce it.

    `separating` has inputs on which several names still differ there, if some were found.
    """

    text: str
    names: tuple[str, ...]
    separating: Any = None


@dataclass(frozen=True)
class Identification:
    """The descriptions that reproduce a kernel. Prints as text.

    Attributes
    ----------
    names : tuple of str
        The descriptions that reproduce all bits, as texts for `accumulate=`, the simplest first. Descriptions that
        are the same sum for this K are named once. Several: the experiments do not separate them. None: `near` has
        the closest ones.
    format : FloatFormat
        The format of the result.
    near : tuple of (str, float)
        The closest descriptions, with their shares of equal elements, if no description reproduces all bits.
    regions : tuple of Region
        The parts of the result, if they have different orders.
    notes : tuple of str
        What else was found.
    separating : HardInputs or None
        Inputs on which the descriptions of `names` differ, if some were found.
    """

    names: tuple[str, ...]
    format: FloatFormat
    near: tuple[tuple[str, float], ...] = ()
    regions: tuple[Region, ...] = ()
    notes: tuple[str, ...] = ()
    separating: Any = None

    @property
    def name(self) -> str | None:
        """The one description that reproduces all bits; None if there is no such or several."""
        return self.names[0] if len(self.names) == 1 else None

    def __str__(self) -> str:
        lines = []
        if len(self.names) == 1:
            lines.append(f"{_listed(self.names)}, result in {self.format.name}")
        elif self.names:
            lines.append(f"{_listed(self.names)}, result in {self.format.name}")
            lines.append(
                "inputs that separate them: .separating" if self.separating is not None
                else "no inputs were found that separate them"
            )  # fmt: skip
        elif not self.regions:
            lines.append("no description of the vocabulary reproduces these bits")
        lines += [
            f"near: {_listed([name])} ({100 * share:.4g} % of the elements are equal)" for name, share in self.near
        ]
        lines += [f"{region.text}: {_listed(region.names) or 'unknown'}" for region in self.regions]
        return "\n".join([*lines, *self.notes])

    __repr__ = __str__

    def to_dict(self) -> dict[str, Any]:
        """Return the names and notes in JSON types."""
        return {
            "names": list(self.names), "format": self.format.name, "near": [list(each) for each in self.near],
            "regions": [{"where": each.text, "names": list(each.names)} for each in self.regions],
            "notes": list(self.notes),
        }  # fmt: skip

    def to_json(self) -> str:
        """Return `to_dict` as JSON text."""
        return json.dumps(self.to_dict(), indent=2)


def _listed(names: Sequence[str]) -> str:
    """Return descriptions for the text of a result, without the middle of a long tree, and the first of many."""
    short = [
        name if len(name) <= _LONG else f"{name[: _LONG // 2]} ... {name[-_LONG // 4 :]} (in full: .names)"
        for name in names[:_SHOWN]
    ]
    more = [f"{len(names) - _SHOWN} more"] if len(names) > _SHOWN else []
    return "ambiguous: " * (len(names) > 1) + " or ".join([*short, *more])


@dataclass(frozen=True)
class _Experiment:
    """Elements of a product and the bits that the kernel returned for them."""

    product: Product
    result: FloatArray

    def share(self, description: Accumulation) -> float:
        """Return the share of the elements that a description reproduces; 0 if it cannot be evaluated.

        All NaNs are alike.
        """
        try:
            found = self.product.result(description, self.result.format)
        except (TypeError, ValueError):
            return 0.0
        return float(np.mean(_equal(found, self.result)))


def _bits(found: FloatArray) -> NDArray[np.unsignedinteger[Any]]:
    """Return the codes, with one code for all NaNs."""
    nan = found.codes.dtype.type(found.format.canonical_nan or 0)  # 0: the format has none
    return np.where(np.isnan(found.values), nan, found.codes)


def _equal(found: FloatArray, given: FloatArray) -> NDArray[np.bool_]:
    """Return which elements have equal bits. All NaNs are alike."""
    found = found.reshape(given.shape)
    equal: NDArray[np.bool_] = (found.codes == given.codes) | (np.isnan(found.values) & np.isnan(given.values))
    return equal


def identify(
    kernel: Any, a: Any, b: Any, c: Any = None, *, more: Sequence[AccumulationLike] = (), seed: int = 0
) -> Identification:
    """Return the description that reproduces the bits of a matrix product.

    Parameters
    ----------
    kernel : callable, or array_like of floats (M, N)
        A kernel, called as kernel(a, b) with matrices of the shapes, formats and library of `a` and `b`. It chooses its
        inputs itself. Or the result of a kernel for `a`, `b` and `c`.
    a, b : array_like of floats, (M, K) and (K, N)
        The operands. With a callable, their values are one more experiment.
    c : array_like, optional
        The accumulator at the start; not with a callable.
    more : sequence of accumulations or texts
        Descriptions to try beside the vocabulary, `floatsim.testing.compare.descriptions`.
    seed : int
        The seed of the chosen inputs.

    Returns
    -------
    Identification

    Raises
    ------
    ValueError
        If the kernel returns other bits for the same operands, or the shapes do not fit.
    TypeError
        If the result holds no floats, or `c` is given with a callable.

    Notes
    -----
    The summation tree of a callable is found as by FPRev (P. Xie et al., USENIX ATC 2025): all pairs of terms up to K =
    512, an adaptive search beyond. The first call compiles the emulator's kernels for the candidates.

    Examples
    --------
    >>> import numpy as np
    >>> import floatsim as fs
    >>> a, b = fs.testing.hard_inputs((24, 44, 24), "bf16")
    >>> identify(lambda x, y: fs.matmul(x, y, accumulate="blocked(fp32, 10, fp32)", format="bf16"), a, b)
    blocked(fp32, 10, fp32), result in BF16
    """
    if callable(kernel):
        if c is not None:
            raise TypeError("c cannot be given with a callable: add it inside the callable")
        return _of_callable(kernel, a, b, [as_accumulation(each, "more") for each in more], seed)
    product = product_of(a, b, c, "fp32")
    result = as_float_array(kernel, "kernel")
    expected = (*product.a.shape[:-1], product.b.shape[-1])
    if result.shape != expected:
        raise ValueError(f"kernel has the shape {result.shape}; the product of a and b has {expected}")
    if result.size == 0:
        raise ValueError(f"kernel has the shape {result.shape}: a result without elements identifies no description")
    every = [_sampled(product, result)]
    found = _named(_candidates(product, more), every, (), result.format)
    whole = [name for name in found.names if _whole(product, result, name)]
    return _separated(replace(found, names=tuple(whole)), product, seed)


def _candidates(product: Product, more: Sequence[AccumulationLike]) -> list[Accumulation]:
    given = [as_accumulation(each, "more") for each in more]
    return list(dict.fromkeys([*given, *vocabulary(product.a.format, product.b.format, product.k)]))


def _whole(product: Product, result: FloatArray, name: str) -> bool:
    return bool(_equal(product.result(name, result.format), result).all())


def _sampled(product: Product, result: FloatArray, where: Any = None, elements: int = _ELEMENTS) -> _Experiment:
    """Return some elements of a product, spread over the result or over the places `where`."""
    places = np.argwhere(np.ones(result.shape, bool) if where is None else where)
    chosen = places[np.unique(np.linspace(0, len(places) - 1, min(len(places), elements)).astype(int))]
    rows, columns = chosen.T
    return _Experiment(product.elements(rows, columns), FloatArray(result.codes[rows, columns], result.format))


def _sampled_all(pairs: Sequence[tuple[Product, FloatArray]], elements: int, where: Any = None) -> list[_Experiment]:
    return [_sampled(product, result, where, elements) for product, result in pairs]


def _named(
    candidates: Sequence[Accumulation], experiments: Sequence[_Experiment], trials: Sequence[_Experiment],
    fmt: FloatFormat,
) -> Identification:  # fmt: skip
    """Return the candidates that reproduce every experiment and then every trial, or the nearest ones."""
    found: list[Accumulation] = []
    shares: dict[str, float] = {}
    for candidate in candidates:
        share = _least_share(candidate, experiments)
        if share == 1:
            if any(same_sum(candidate, other, experiments[0].product.k) for other in found):
                continue
            share = _least_share(candidate, trials)
        if share == 1:
            found.append(candidate)
        else:
            shares[brief(candidate)] = share
    if found:
        return Identification(tuple(map(brief, found)), fmt)
    return Identification((), fmt, tuple(pair for pair in _nearest(shares.items()) if pair[1] > 0))


def _least_share(candidate: Accumulation, experiments: Sequence[_Experiment]) -> float:
    """Return the least share of elements that a candidate reproduces. It stops at an experiment below 1/8."""
    share = 1.0
    for experiment in experiments:
        share = min(share, experiment.share(candidate))
        if share < 1 / 8:
            break
    return share


def _separated(found: Identification, product: Product, seed: int, where: Any = None) -> Identification:
    """Return an ambiguous identification with inputs that separate its names at these places, if some are found."""
    if len(found.names) < 2:
        return found
    shape = product.a.shape[-2], product.k, product.b.shape[-1]
    for inputs, trial in _separating(shape, product.a.format, product.b.format, found.format, seed):
        results = (_bits(trial.result(name, found.format)) for name in found.names)
        if len({(codes if where is None else codes[where]).tobytes() for codes in results}) > 1:
            return replace(found, separating=inputs)
    return found


def _separating(
    shape: tuple[int, int, int], a: FloatFormat, b: FloatFormat, result: FloatFormat, seed: int
) -> Iterator[tuple[HardInputs, Product]]:
    """Yield the inputs of `_SEPARATING` that the formats have, and their products.

    Sums overflow around the largest number of the result, and of FP32: there single products overflow in FP16.
    """
    for kind, accumulator in _SEPARATING:
        for range_of in (result, FP32) if kind == "overflow" and result != FP32 else (result,):
            try:
                inputs = hard_inputs(shape, (a, b), kind, accumulator=accumulator, result=range_of, seed=seed)
            except ValueError:  # the formats have no such products
                continue
            yield inputs, product_of(inputs.a, inputs.b, None, "fp32")


def _nearest(shares: Iterable[tuple[str, float]]) -> tuple[tuple[str, float], ...]:
    """Return the names with the largest shares of equal elements."""
    return tuple(sorted(shares, key=lambda pair: -pair[1])[:_NEAR])


# -- callables ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Kernel:
    """A callable with operands of fixed shapes, formats and library."""

    function: Callable[[Any, Any], Any]
    shape: tuple[int, int, int]
    a: FloatFormat
    b: FloatFormat
    library: str

    def __call__(self, a: Any, b: Any) -> FloatArray:
        """Return the kernel's result for arrays of floats, which are numbers of the formats."""
        sides = [as_float_array(convert(x, fmt), "an operand") for x, fmt in ((a, self.a), (b, self.b))]
        with np.errstate(all="ignore"):  # the inputs are extreme, and NumPy would warn of overflow
            given = self.function(*(self._given(x) for x in sides))
        result = as_float_array(given, "the result of the kernel")
        if result.shape != (self.shape[0], self.shape[2]):
            raise ValueError(f"the kernel returned the shape {result.shape}, not {(self.shape[0], self.shape[2])}")
        return result

    def _given(self, x: FloatArray) -> Any:
        if self.library == "torch":
            return to_torch(x)
        return to_jax(x) if self.library in ("jax", "jaxlib") else wrap(x.codes.copy(), x.format, False)

    def values(self, a: Any, b: Any) -> NDArray[np.float64]:
        return np.asarray(self(a, b).values)


@dataclass(frozen=True)
class _Part(_Kernel):
    """Rows and columns of a kernel, as a kernel of their shape. The other rows and columns are zeros."""

    whole: tuple[int, int, int]
    rows: NDArray[np.int64]
    columns: NDArray[np.int64]

    def __call__(self, a: Any, b: Any) -> FloatArray:
        sides = [as_float_array(convert(x, fmt), "an operand") for x, fmt in ((a, self.a), (b, self.b))]
        left, right = np.zeros(self.whole[:2], sides[0].codes.dtype), np.zeros(self.whole[1:], sides[1].codes.dtype)
        left[self.rows], right[:, self.columns] = sides[0].codes, sides[1].codes
        kernel = _Kernel(self.function, self.whole, self.a, self.b, self.library)
        result = kernel(FloatArray(left, self.a), FloatArray(right, self.b))
        return FloatArray(np.ascontiguousarray(result.codes[np.ix_(self.rows, self.columns)]), result.format)


_Pairs = list[tuple[Product, FloatArray]]


def _of_callable(function: Any, a: Any, b: Any, more: list[Accumulation], seed: int) -> Identification:
    given = product_of(a, b, None, "fp32")
    m, k, n = given.a.shape[-2], given.k, given.b.shape[-1]
    if min(m, k, n) < 1:
        raise ValueError(f"a and b must have at least one row, one column and one term; M, K, N are {m}, {k}, {n}")
    kernel = _Kernel(function, (m, k, n), given.a.format, given.b.format, type(a).__module__.partition(".")[0])
    pairs = _hard_pairs(kernel, given, seed)
    for product, result in pairs[:2]:
        if not np.array_equal(kernel(product.a, product.b).codes, result.codes):
            raise ValueError(
                "the kernel is not deterministic: for the same operands it returned other bits the second time"
            )
    places = _orders_by_place(kernel, seed)
    if len(places) > 1:
        return _by_region(kernel, places, pairs, more, seed)
    return _of_one_order(kernel, pairs, more, seed)


def _hard_pairs(kernel: _Kernel, given: Product, seed: int) -> _Pairs:
    """Return the given operands and hard ones, with the kernel's results."""
    first = kernel(given.a, given.b)
    hard = [hard_inputs(kernel.shape, (kernel.a, kernel.b), kind, result=first.format, seed=seed) for kind in _KINDS]
    products = [product_of(x, y, None, "fp32") for x, y in hard]
    return [(given, first), *((product, kernel(product.a, product.b)) for product in products)]


def _of_one_order(kernel: _Kernel, pairs: _Pairs, more: list[Accumulation], seed: int) -> Identification:
    """Return the identification of a kernel whose elements all have one order."""
    given, first = pairs[0]
    trials = [*pairs, *_trials(kernel, first.format, seed)]
    meetings = _meetings(kernel, first.format)
    every, whole = _sampled_all(pairs, _ELEMENTS), _sampled_all(trials, _CONFIRMED)
    candidates: list[Accumulation] = []
    if meetings is not None:
        candidates = _with_tree(meetings, kernel, [*every, *whole], seed)
    found = _named([*more, *candidates], every, whole, first.format)
    if not found.names:
        rest = [each for each in _candidates(given, ()) if each not in candidates]
        wider = _named(rest, every, whole, first.format)
        found = wider if wider.names else replace(wider, near=_nearest({*found.near, *wider.near}))
    if not found.names:
        return replace(found, notes=_notes(meetings, kernel))
    found = _decided(_separated(found, given, seed), kernel, given, seed)
    names, notes = _to_the_limits(found.names, _at_limits(kernel, seed))
    separating = found.separating if len(names) > 1 else None
    return replace(found, names=names, notes=(*found.notes, *notes), separating=separating)


def _decided(found: Identification, kernel: _Kernel, given: Product, seed: int, where: Any = None) -> Identification:
    """Return the identification after the kernel itself has decided between its names, as far as inputs were found.

    `where` are the places that are identified; None for all.
    """
    for step in range(_ROUNDS):
        if found.separating is None:
            break
        x, y = found.separating
        trial = product_of(x, y, None, "fp32")
        try:
            result = kernel(trial.a, trial.b)
        except Exception as error:  # such as one for infinities: the names stay
            note = f"inputs that separate the names: the kernel raised {type(error).__name__}: {error}"
            return replace(found, notes=(*found.notes, note))
        experiment = _Experiment(trial, result) if where is None else _sampled(trial, result, where, _CONFIRMED)
        shares = {name: experiment.share(as_accumulation(name)) for name in found.names}
        kept = tuple(name for name, share in shares.items() if share == 1)
        if not kept:
            note = "several descriptions reproduced all trials; none of them reproduces the inputs that separate them"
            return replace(found, names=(), near=_nearest(shares.items()), notes=(note,), separating=None)
        found = _separated(replace(found, names=kept, separating=None), given, seed + step, where)
    return found


@dataclass(frozen=True)
class _Limit:
    """Products at a limit of the range with the kernel's results, or the error that the kernel raised."""

    words: str
    pairs: list[tuple[Product, FloatArray]]
    error: str = ""


def _at_limits(kernel: _Kernel, seed: int) -> list[_Limit]:
    """Return products of `_LIMITS`, which a description may miss and still be the kernel's order."""
    found = []
    for kind, words in _LIMITS.items():
        try:
            found.append(_Limit(words, list(_limit(kernel, kind, seed))))
        except Exception as error:
            found.append(_Limit(words, [], f"{type(error).__name__}: {error}"))
    return found


def _limit(kernel: _Kernel, kind: str, seed: int) -> Iterator[tuple[Product, FloatArray]]:
    m, k, n = kernel.shape
    for step in range(_calls(kernel)):
        if kind != "zeros":
            a, b = hard_inputs(kernel.shape, (kernel.a, kernel.b), kind, seed=seed + step)
        elif step == 0 and kernel.a.has_signed_zero:
            a, b = np.full((m, k), -0.0), np.ones((k, n))
        else:
            return
        product = product_of(convert(a, kernel.a), convert(b, kernel.b), None, "fp32")
        yield product, kernel(product.a, product.b)


def _to_the_limits(
    names: tuple[str, ...], limits: Sequence[_Limit], where: Any = None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names that reproduce the limits, too, and a note for each limit that no name reproduces."""
    notes = []
    for limit in limits:
        if not (names and (limit.pairs or limit.error)):
            continue
        if limit.error:
            notes.append(f"{limit.words}: the kernel raised {limit.error}")
            continue
        experiments = _sampled_all(limit.pairs, _CONFIRMED, where)
        shares = {name: np.mean([each.share(as_accumulation(name)) for each in experiments]) for name in names}
        best = max(shares.values())
        if best < 1:
            which = "the description" if len(names) == 1 else "each of the descriptions"
            notes.append(f"{limit.words}: the kernel differs from {which} in {100 * (1 - best):.3g} % of the elements")
        else:
            names = tuple(name for name, share in shares.items() if share == 1)
    return names, tuple(notes)


def _calls(kernel: _Kernel) -> int:
    """Return how often a kernel is called for a kind of trial: more often if its results are small."""
    return min(_TRIALS, -(-_CONFIRMED // (kernel.shape[0] * kernel.shape[2])))


def _trials(kernel: _Kernel, result: FloatFormat, seed: int) -> list[tuple[Product, FloatArray]]:
    """Return further products and the kernel's results for them."""
    found = []
    for kind, accumulator in (("double_rounding", FP32), ("cancelling", FP64)):
        wanted: dict[str, Any] = {"kind": kind, "accumulator": accumulator, "result": result}
        for step in range(_calls(kernel)):
            try:
                inputs = hard_inputs(kernel.shape, (kernel.a, kernel.b), **wanted, seed=seed + step + 1)
            except ValueError:  # the formats have no such products
                break
            product = product_of(inputs.a, inputs.b, None, "fp32")
            found.append((product, kernel(product.a, product.b)))
    return found


def _notes(meetings: Meetings | None, kernel: _Kernel) -> tuple[str, ...]:
    k = kernel.shape[1]
    if meetings is None:
        return ("the summation tree was not found: the sums are no tree of one accumulator, or the range is too small",)
    if (meetings.sizes == 2).all():
        return ("no term is absorbed: the sums are exact, or in an accumulator wider than FP64",)
    first = meetings.i[meetings.sizes == meetings.sizes.min()][:4].tolist()
    note = f"the summation tree of the {k} terms was found, and is not in the vocabulary; first pairs at k = {first}"
    if len(meetings.i) < k * (k - 1) // 2:
        note += "; in sums of this length, no last terms in a wider accumulator and no tree of its own are tried"
    fused = fused_terms(kernel.values, meetings, kernel.shape, (kernel.a, kernel.b))
    if fused is None or fused.all() or not fused.any():
        return (note,)
    return note, (
        f"{np.count_nonzero(fused)} of the {k} products are fused, as at k = {np.flatnonzero(fused)[:4].tolist()},"
        " and the others are rounded first: a description of this tree takes all products fused, or none"
    )


def _meetings(kernel: _Kernel, result: FloatFormat) -> Meetings | None:
    """Return the tree, searched with the range of one accumulator after the other."""
    for accumulator in (FP32, FP64, FP16, BF16):
        for search in (probe_for, normal_probe_for, widest_probe_for):
            probe = search(kernel.a, kernel.b, accumulator, result, kernel.shape[1])
            if probe is None or reads_as_zero(kernel.values, probe, kernel.shape):
                continue
            found = find_meetings(kernel.values, probe, kernel.shape)
            if found is not None and not (found.sizes == 2).all():
                return found
            break
    return None


def _reproduces(description: Accumulation, experiments: Sequence[_Experiment]) -> bool:
    return all(experiment.share(description) == 1 for experiment in experiments)


def _has_exact_products(kernel: _Kernel, accumulator: FloatFormat) -> bool:
    """Return whether an accumulator holds all products of the operands, the least and the largest ones included."""
    least = sum(fmt.emin - fmt.trailing_bits for fmt in (kernel.a, kernel.b))
    fits = kernel.a.precision + kernel.b.precision <= accumulator.precision
    largest = kernel.a.max * kernel.b.max
    return fits and least >= accumulator.emin - accumulator.trailing_bits and largest <= accumulator.max


def _with_tree(
    meetings: Meetings, kernel: _Kernel, experiments: Sequence[_Experiment], seed: int
) -> list[Accumulation]:
    """Return the descriptions with this tree that reproduce all bits, and for other orders and accumulators the first.

    Descriptions that no hard inputs tell from a simpler one are left out: FTZ, where no sum can be subnormal, is one.
    """
    found: list[Accumulation] = []
    others: list[Accumulation] = []
    k = kernel.shape[1]
    units = [each for each in stepping_units(kernel.a, kernel.b, k) if _reproduces(each, experiments)]
    for order in orders_with_tree(meetings, k):
        for accumulator in (FP32, FP64, FP16, BF16):
            exact = _has_exact_products(kernel, accumulator)
            tried = variants(order, accumulator, exact)
            equal = [each for each in tried if _reproduces(each, experiments)]
            if not (equal or found or units):  # a kernel that adds its sum to +0, as OpenBLAS does, has no results -0
                added = variants(f"blocked({order}, {k}, same)", accumulator, exact)
                equal = [each for each in added if _reproduces(each, experiments)]
            found += equal
            others += tried[: not equal]
    return [*_distinct([*found, *units], kernel, experiments[0].result.format, seed), *others]


def _distinct(
    descriptions: Sequence[Accumulation], kernel: _Kernel, result: FloatFormat, seed: int
) -> list[Accumulation]:
    """Return the first of the descriptions that have the same results for all inputs of `_SEPARATING`."""
    if len(descriptions) < 2:
        return list(descriptions)
    bits: dict[Accumulation, bytes] = dict.fromkeys(descriptions, b"")
    shape = min(kernel.shape[0], _SIDE), kernel.shape[1], min(kernel.shape[2], _SIDE)
    for _, trial in _separating(shape, kernel.a, kernel.b, result, seed):
        for each in descriptions:
            bits[each] += _bits(trial.result(each, result)).tobytes()
    first = {seen: each for each, seen in reversed(bits.items())}
    return [each for each in descriptions if first[bits[each]] == each]


def _orders_by_place(kernel: _Kernel, seed: int) -> list[NDArray[np.bool_]]:
    """Return the places whose elements are alike if all rows of a and all columns of b are equal."""
    m, k, n = kernel.shape
    seen = []
    for step in range(3):
        a, b = hard_inputs((1, k, 1), (kernel.a, kernel.b), "cancelling", seed=seed + step)
        rows, columns = (np.asarray(as_float_array(x, "x").values) for x in (a, b))
        seen.append(kernel(np.repeat(rows, m, 0), np.repeat(columns, n, 1)).codes.astype(np.uint64))
    _, classes = np.unique(np.stack(seen, -1).reshape(m * n, -1), axis=0, return_inverse=True)
    grid = classes.reshape(m, n)
    return [grid == number for number in range(int(grid.max()) + 1)]


def _by_region(
    kernel: _Kernel, places: list[NDArray[np.bool_]], pairs: _Pairs, more: list[Accumulation], seed: int
) -> Identification:
    """Return the identification of each part of the result. Rows and columns are identified as a kernel of their own.

    The places of other parts are compared with the vocabulary.
    """
    regions, fmt = [], pairs[0][1].format
    notes = [f"the order depends on the place: {len(places)} orders, for equal rows and equal columns"]
    if len(places) > _REGIONS:
        notes.append(f"the first {_REGIONS} of the {len(places)} parts are listed")
    for where in places[:_REGIONS]:
        rows, columns = (np.flatnonzero(where.any(axis)) for axis in (1, 0))
        if where[np.ix_(rows, columns)].all():
            part = _Part(
                kernel.function, (len(rows), kernel.shape[1], len(columns)), kernel.a, kernel.b, kernel.library,
                kernel.shape, rows, columns,
            )  # fmt: skip
            found = _of_one_order(part, _hard_pairs(part, pairs[0][0].part(rows, columns), seed), more, seed)
        else:
            found = _at_places(kernel, where, pairs, more, seed)
        located = locate(where)
        others = f"{'the other ' if len(places) == 2 else ''}{np.count_nonzero(where)} elements"
        text = located[0].text if located else others
        regions.append(Region(text, found.names, found.separating))
        notes += [f"{text}: {note}" for note in found.notes]
    return Identification((), fmt, (), tuple(regions), tuple(notes))


def _at_places(
    kernel: _Kernel, where: NDArray[np.bool_], pairs: _Pairs, more: list[Accumulation], seed: int
) -> Identification:
    """Return the descriptions of the vocabulary that reproduce the elements at these places."""
    given, first = pairs[0]
    trials = [*pairs, *_trials(kernel, first.format, seed)]
    every, whole = _sampled_all(pairs, _ELEMENTS, where), _sampled_all(trials, _CONFIRMED, where)
    found = _named([*more, *_candidates(given, ())], every, whole, first.format)
    found = _decided(_separated(found, given, seed, where), kernel, given, seed, where)
    names, notes = _to_the_limits(found.names, _at_limits(kernel, seed), where)
    separating = found.separating if len(names) > 1 else None
    return replace(found, names=names, notes=(*found.notes, *notes), separating=separating)
