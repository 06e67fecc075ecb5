"""Identify a kernel: find the description of its sums that reproduces its bits."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from floatsim.accumulation import Accumulation, AccumulationLike, as_accumulation, has_epilogue
from floatsim.arrays.array.conversion import as_float_array, convert
from floatsim.arrays.array.float_array import FloatArray, wrap
from floatsim.arrays.array.torch_jax import to_jax, to_torch
from floatsim.formats import BF16, FP16, FP32, FP64, FloatFormat
from floatsim.formats._validation import as_index
from floatsim.testing.compare.descriptions import brief, stepping_units, vocabulary
from floatsim.testing.compare.location import locate
from floatsim.testing.compare.product import Product, product_of
from floatsim.testing.identify.addends import with_addend
from floatsim.testing.identify.candidates import orders_with_tree, variants
from floatsim.testing.identify.fused_terms import fused_terms
from floatsim.testing.identify.gpu_sums import (
    architecture_of,
    epilogues,
    of_each_architecture,
    on_architecture,
    unit_sums,
)
from floatsim.testing.identify.order_trees import same_sum
from floatsim.testing.identify.orders_of_parts import alternatives
from floatsim.testing.identify.sum_forms import sum_form
from floatsim.testing.identify.tree_search import (
    Meetings,
    find_meetings,
    normal_probe_for,
    probe_for,
    reads_as_zero,
    widest_probe_for,
)
from floatsim.testing.vectors.product_inputs import hard_inputs

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
_LEAST_NEAR = 1 / 4  # the share of equal elements of a near miss: unlike sums agree on a tenth of hard elements
_STEPS = (*range(1, 17), *range(20, 68, 4))  # of other numbers of terms, one of which separates descriptions
_WINDOW = 96  # terms of a window that cancels
_RULES = 12  # rules for the parts of K that are separated at a time
_OTHER_KS = 6  # other numbers of terms that a kernel is called with
_SIDE = 24  # rows and columns of products that tell descriptions apart
_LEAST_FITTED = 8  # elements that a factor of the product is fitted to
_BESIDE = 0.1  # the largest share of the results that a factor leaves: FP8 and long sums in FP16 leave a few hundredths
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
        Inputs on which the descriptions of `names` differ, if some were found: a and b, and c if the kernel takes one.
    one_function : bool
        Whether all `names` are one function for this K: their bits are equal on every input. The matrix units of
        several architectures are one, for some operands.

    Examples
    --------
    >>> import floatsim as fs
    >>> a, b = fs.testing.hard_inputs((8, 32, 8), "bf16")
    >>> found = fs.testing.identify(lambda x, y: fs.matmul(x, y, accumulate="pairwise(fp32)", format="bf16"), a, b)
    >>> found.names, found.format.name
    (('pairwise(fp32)',), 'BF16')
    """

    names: tuple[str, ...]
    format: FloatFormat
    near: tuple[tuple[str, float], ...] = ()
    regions: tuple[Region, ...] = ()
    notes: tuple[str, ...] = ()
    separating: Any = None
    one_function: bool = False

    @property
    def name(self) -> str | None:
        """The one description that reproduces all bits; None if there is no such or several."""
        return self.names[0] if len(self.names) == 1 else None

    def __str__(self) -> str:
        lines = []
        if self.names:
            lines.append(f"{_listed(self.names, self.one_function)}, result in {self.format.name}")
        if len(self.names) > 1:
            lines.append(
                "inputs that separate them: .separating" if self.separating is not None
                else "they are one function: equal on every input; device= names one of them" if self.one_function
                else "no inputs were found that separate them"
            )  # fmt: skip
        if not self.names and not self.regions:
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
            "notes": list(self.notes), "one_function": self.one_function,
        }  # fmt: skip

    def to_json(self) -> str:
        """Return `to_dict` as JSON text."""
        return json.dumps(self.to_dict(), indent=2)


def _listed(names: Sequence[str], one_function: bool = False) -> str:
    """Return descriptions for the text of a result, without the middle of a long tree, and the first of many."""
    short = [
        name if len(name) <= _LONG else f"{name[: _LONG // 2]} ... {name[-_LONG // 4 :]} (in full: .names)"
        for name in names[:_SHOWN]
    ]
    more = [f"{len(names) - _SHOWN} more"] if len(names) > _SHOWN else []
    return "ambiguous: " * (len(names) > 1 and not one_function) + " or ".join([*short, *more])


@dataclass(frozen=True)
class _Experiment:
    """Elements of a product and the bits that the kernel returned for them."""

    product: Product
    result: FloatArray
    shares: dict[Accumulation, float] = field(default_factory=dict, compare=False)

    def share(self, description: Accumulation) -> float:
        """Return the share of the elements that a description reproduces; 0 if it cannot be evaluated.

        All NaNs are alike.
        """
        if description not in self.shares:
            try:
                found = self.product.result(description, self.result.format)
                self.shares[description] = float(np.mean(_equal(found, self.result)))
            except (TypeError, ValueError):
                self.shares[description] = 0.0
        return self.shares[description]


def _bits(found: FloatArray) -> NDArray[np.unsignedinteger[Any]]:
    """Return the codes, with one code for all NaNs."""
    nan = found.codes.dtype.type(found.format.canonical_nan or 0)  # 0: the format has none
    return np.where(np.isnan(found.values), nan, found.codes)


def _equal(found: FloatArray, given: FloatArray) -> NDArray[np.bool_]:
    """Return which elements have equal bits. All NaNs are alike."""
    found = found.reshape(given.shape)
    equal: NDArray[np.bool_] = (found.codes == given.codes) | (np.isnan(found.values) & np.isnan(given.values))
    return equal


@dataclass(frozen=True)
class _Search:
    """What a search takes beside the kernel and its operands: the arguments of `identify`."""

    more: tuple[Accumulation, ...]
    architecture: str | None
    other_k: int
    """0: no other K. 1: any. Otherwise other K are its multiples."""
    seed: int


def identify(
    kernel: Any, a: Any, b: Any, c: Any = None, *, more: Sequence[AccumulationLike] = (), device: str | None = None,
    other_k: bool | int = True, seed: int = 0,
) -> Identification:  # fmt: skip
    """Return the description that reproduces the bits of a matrix product.

    Parameters
    ----------
    kernel : callable, or array_like of floats (M, N)
        A kernel, called as kernel(a, b) with matrices of the shapes, formats and library of `a` and `b`, and with other
        K (see `other_k`). It chooses its inputs itself. Or the result of a kernel for `a`, `b` and `c`. The scales of
        its operands, alpha and beta must be 1: no description has a factor.
    a, b : array_like of floats, (M, K) and (K, N)
        The operands. With a callable, their values are one more experiment.
    c : array_like, broadcastable to (M, N), optional
        The accumulator at the start, or a matrix or bias that is added after the sum. A callable is then called as
        kernel(a, b, c) with addends of this shape and format, and `Epilogue` descriptions are searched, too.
    more : sequence of accumulations or texts
        Descriptions to try beside the vocabulary, `floatsim.testing.compare.descriptions`.
    device : str, optional
        The GPU or CPU that the kernel runs on, such as "h200": only its matrix unit is named. Default: all
        architectures of `fs.tensorcore.ARCHITECTURES` whose units have these bits.
    other_k : bool or int
        Whether a callable is also called with other K, to separate descriptions that are one sum for this K, such as
        blocks of 128 terms and four parts of K = 512. Pass False for a kernel that takes this shape only, and a number
        for a kernel that takes multiples of it: a kernel without masks reads beyond its operands for other K.
    seed : int
        The seed of the chosen inputs.

    Returns
    -------
    Identification

    Raises
    ------
    ValueError
        If the kernel returns other bits for the same operands, the shapes do not fit, or the device is unknown.
    TypeError
        If the result holds no floats.

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
    given = tuple(as_accumulation(each, "more") for each in more)
    search = _Search(given, architecture_of(device), as_index(+other_k, "other_k", 0, 1 << 20), seed)
    if callable(kernel):
        return _of_callable(kernel, product_of(a, b, c, "fp32"), type(a).__module__.partition(".")[0], c, search)
    product = product_of(a, b, c, "fp32")
    result = as_float_array(kernel, "kernel")
    expected = (*product.a.shape[:-1], product.b.shape[-1])
    if result.shape != expected:
        raise ValueError(f"kernel has the shape {result.shape}; the product of a and b has {expected}")
    if result.size == 0:
        raise ValueError(f"kernel has the shape {result.shape}: a result without elements identifies no description")
    every = [_sampled(product, result)]
    wrapped = _wrapped(_candidates(product, search), _after_sums(every, product.c is not None))
    found = _named(wrapped, every, (), result.format)
    whole = [name for name in found.names if _whole(product, result, name)]
    addend = None if product.c is None else functools.partial(_addend, product.c.format, product.c.shape, seed)
    notes = () if whole else _factor_notes([(product, result)])
    separated = _separated(replace(found, names=tuple(whole), notes=notes), product, seed, addend=addend)
    return _of_architectures(separated, product, search)


def _addend(fmt: FloatFormat, shape: tuple[int, ...], seed: int, product: Product) -> Product:
    return with_addend(product, fmt, shape, seed)


def _candidates(product: Product, search: _Search) -> list[Accumulation]:
    known = _distinct_vocabulary(product.a.format, product.b.format, product.k, search.architecture)
    return list(dict.fromkeys([*search.more, *known]))


@functools.lru_cache(maxsize=16)
def _distinct_vocabulary(
    a: FloatFormat, b: FloatFormat, k: int, architecture: str | None
) -> tuple[Accumulation, ...]:  # fmt: skip
    """Return one description of the vocabulary for each sum of k terms, with units of the architecture."""
    found: dict[Hashable, Accumulation] = {}
    for each in vocabulary(a, b, k):
        if on_architecture(each, architecture):
            found.setdefault(_form(each, a, b, k), each)
    return tuple(found.values())


def _form(description: Accumulation, a: FloatFormat, b: FloatFormat, k: int) -> Hashable:
    """Return the form of a sum; the description itself if it has none."""
    try:
        return sum_form(description, a, b, k)
    except (TypeError, ValueError):
        return description


_Wraps = Sequence[Callable[[Accumulation], Accumulation]]


def _wrapped(descriptions: Iterable[Accumulation], wraps: _Wraps) -> list[Accumulation]:
    """Return the descriptions with all that a kernel may do after the sum. One that has an epilogue stays."""
    return list(dict.fromkeys(
        each if has_epilogue(each) else wrap(each) for each in descriptions for wrap in wraps
    ))  # fmt: skip


def _after_sums(experiments: Sequence[_Experiment], with_c: bool) -> _Wraps:
    """Return what may come after the sum. An activation is tried if no result is negative."""
    negative = any((np.asarray(each.result.values) < 0).any() for each in experiments)
    return epilogues(experiments[0].result.format, with_c, not negative)


def _of_architectures(found: Identification, product: Product, search: _Search) -> Identification:
    """Return the identification with the names of all architectures that have the same function."""
    formats = product.a.format, product.b.format
    names: dict[str, None] = {}
    for name in found.names:
        for each in of_each_architecture(as_accumulation(name), *formats, search.architecture):
            names[brief(each)] = None
    return replace(found, names=tuple(names), one_function=len(found.names) == 1)


def _whole(product: Product, result: FloatArray, name: str) -> bool:
    return bool(_equal(product.result(name, result.format), result).all())


def _sampled(product: Product, result: FloatArray, where: Any = None, elements: int = _ELEMENTS) -> _Experiment:
    """Return some rows and columns of a product, or single elements spread over the places `where`."""
    if where is None:
        m, n = result.shape[-2:]
        width = min(n, max(math.isqrt(elements - 1) + 1, -(-elements // m)))
        rng = np.random.default_rng(0)
        rows = np.sort(rng.permutation(m)[: -(-elements // width)])
        columns = np.sort(rng.permutation(n)[:width])
        codes = np.ascontiguousarray(result.codes.reshape(-1, m, n)[0][np.ix_(rows, columns)])
        return _Experiment(product.part(rows, columns), FloatArray(codes, result.format))
    places = np.argwhere(where)
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
            if share < 1:  # the sample did not show it: such as the order of parts of K
                share = float(np.mean([trial.share(candidate) for trial in trials]))
        if share == 1:
            found.append(candidate)
        else:
            shares[brief(candidate)] = share
    if found:
        return Identification(tuple(map(brief, found)), fmt)
    return Identification((), fmt, _nearest(shares.items()))


def _least_share(candidate: Accumulation, experiments: Sequence[_Experiment]) -> float:
    """Return the least share of elements that a candidate reproduces. It stops at an experiment below 1/8."""
    share = 1.0
    for experiment in experiments:
        share = min(share, experiment.share(candidate))
        if share < 1 / 8:
            break
    return share


_Addend = Callable[[Product], Product]


def _separated(
    found: Identification, product: Product, seed: int, where: Any = None, addend: _Addend | None = None
) -> Identification:  # fmt: skip
    """Return an ambiguous identification with inputs that separate its names at these places, if some are found."""
    if len(found.names) < 2:
        return found
    shape = product.a.shape[-2], product.k, product.b.shape[-1]
    for inputs, trial in _separating(shape, product.a.format, product.b.format, found.format, seed, addend):
        results = (_bits(trial.result(name, found.format)) for name in found.names)
        if len({(codes if where is None else codes[where]).tobytes() for codes in results}) > 1:
            return replace(found, separating=inputs)
    return found


def _separating(
    shape: tuple[int, int, int], a: FloatFormat, b: FloatFormat, result: FloatFormat, seed: int,
    addend: _Addend | None = None,
) -> Iterator[tuple[Any, Product]]:  # fmt: skip
    """Yield the inputs of `_SEPARATING` that the formats have, and their products. `addend` gives them a c.

    Sums overflow around the largest number of the result, and of FP32: there single products overflow in FP16.
    """
    for kind, accumulator in _SEPARATING:
        for range_of in (result, FP32) if kind == "overflow" and result != FP32 else (result,):
            try:
                inputs = hard_inputs(shape, (a, b), kind, accumulator=accumulator, result=range_of, seed=seed)
            except ValueError:  # the formats have no such products
                continue
            product = product_of(inputs.a, inputs.b, None, "fp32")
            if addend is None:
                yield inputs, product
            else:
                added = addend(product)
                yield (*inputs, added.c), added


def _nearest(shares: Iterable[tuple[str, float]], least: float = _LEAST_NEAR) -> tuple[tuple[str, float], ...]:
    """Return the names with the largest shares of equal elements, by default as far as these are no chance."""
    near = sorted((pair for pair in shares if pair[1] >= least), key=lambda pair: -pair[1])
    return tuple(near[:_NEAR])


# -- callables ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Kernel:
    """A callable with operands of fixed shapes, formats and library. `c` is the format of its addend, if it has one."""

    function: Callable[..., Any]
    shape: tuple[int, int, int]
    a: FloatFormat
    b: FloatFormat
    library: str
    c: FloatFormat | None = None
    c_shape: tuple[int, ...] = ()

    def __call__(self, product: Product) -> FloatArray:
        """Return the kernel's result for the operands of a product."""
        sides = [self._given(convert(x, fmt)) for x, fmt in ((product.a, self.a), (product.b, self.b))]
        if self.c is not None:
            assert product.c is not None
            sides.append(self._given(product.c.reshape(self.c_shape)))
        with np.errstate(all="ignore"):  # the inputs are extreme, and NumPy would warn of overflow
            given = self.function(*sides)
        result = as_float_array(given, "the result of the kernel")
        if result.shape != (self.shape[0], self.shape[2]):
            raise ValueError(f"the kernel returned the shape {result.shape}, not {(self.shape[0], self.shape[2])}")
        return result

    def _given(self, x: Any) -> Any:
        array = as_float_array(x, "an operand")
        if self.library == "torch":
            return to_torch(array)
        return to_jax(array) if self.library in ("jax", "jaxlib") else wrap(array.codes.copy(), array.format, False)

    def product(self, a: Any, b: Any, seed: int | None = None) -> Product:
        """Return the product of operands, with random addends, or without a seed with zeros."""
        product = product_of(convert(a, self.a), convert(b, self.b), None, "fp32")
        if self.c is None:
            return product
        if seed is None:
            zeros = np.zeros(self.c_shape, self.c.code_dtype)
            return product_of(product.a, product.b, FloatArray(zeros, self.c), "fp32")
        return with_addend(product, self.c, self.c_shape, seed)

    def addend(self, seed: int) -> _Addend | None:
        """Return a function that gives a product an addend, or None."""
        return None if self.c is None else functools.partial(_addend, self.c, self.c_shape, seed)

    def values(self, a: Any, b: Any) -> NDArray[np.float64]:
        """Return the numbers of the result, with an addend of zeros."""
        return np.asarray(self(self.product(a, b)).values)

    def with_k(self, k: int) -> _Kernel:
        """Return the same callable for another number of terms."""
        return replace(self, shape=(self.shape[0], k, self.shape[2]))


@dataclass(frozen=True)
class _Part(_Kernel):
    """Rows and columns of a kernel, as a kernel of their shape. The other rows and columns are zeros.

    `c` is passed to the whole kernel; `c_shape` is that of its part.
    """

    whole: _Kernel | None = None
    rows: Any = None
    columns: Any = None

    def __call__(self, product: Product) -> FloatArray:
        assert self.whole is not None
        m, k, n = self.whole.shape
        sides = [as_float_array(convert(x, fmt), "x") for x, fmt in ((product.a, self.a), (product.b, self.b))]
        left, right = np.zeros((m, k), sides[0].codes.dtype), np.zeros((k, n), sides[1].codes.dtype)
        left[self.rows], right[:, self.columns] = sides[0].codes, sides[1].codes
        c = None
        if self.c is not None:
            assert product.c is not None
            wide = (1,) * (2 - len(self.whole.c_shape)) + self.whole.c_shape
            codes = np.zeros(wide, product.c.codes.dtype)
            codes[np.ix_(*self._places(wide))] = product.c.codes
            c = FloatArray(codes, self.c)
        result = self.whole(replace(product, a=FloatArray(left, self.a), b=FloatArray(right, self.b), c=c))
        return FloatArray(np.ascontiguousarray(result.codes[np.ix_(self.rows, self.columns)]), result.format)

    def _places(self, wide: tuple[int, ...]) -> list[Any]:
        """Return the rows and columns of an addend of the whole kernel that belong to this part."""
        return [
            np.arange(1) if size == 1 else places for size, places in zip(wide, (self.rows, self.columns), strict=True)
        ]

    def with_k(self, k: int) -> _Kernel:
        assert self.whole is not None
        return replace(self, shape=(self.shape[0], k, self.shape[2]), whole=self.whole.with_k(k))


def _part_of(kernel: _Kernel, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> _Part:
    part = _Part(
        kernel.function, (len(rows), kernel.shape[1], len(columns)), kernel.a, kernel.b, kernel.library, kernel.c, (),
        kernel, rows, columns,
    )  # fmt: skip
    if kernel.c is None:
        return part
    wide = (1,) * (2 - len(kernel.c_shape)) + kernel.c_shape
    return replace(part, c_shape=tuple(len(places) for places in part._places(wide)))


_Pairs = list[tuple[Product, FloatArray]]


def _of_callable(function: Any, given: Product, library: str, c: Any, search: _Search) -> Identification:
    m, k, n = given.a.shape[-2], given.k, given.b.shape[-1]
    if min(m, k, n) < 1:
        raise ValueError(f"a and b must have at least one row, one column and one term; M, K, N are {m}, {k}, {n}")
    c_format, c_shape = (None, ()) if given.c is None else (given.c.format, np.shape(c))
    kernel = _Kernel(function, (m, k, n), given.a.format, given.b.format, library, c_format, c_shape)
    pairs = _hard_pairs(kernel, given, search.seed)
    for product, result in pairs[:2]:
        if not np.array_equal(kernel(product).codes, result.codes):
            raise ValueError(
                "the kernel is not deterministic: for the same operands it returned other bits the second time"
            )
    places = _orders_by_place(kernel, search.seed)
    if len(places) > 1:
        return _by_region(kernel, places, pairs, search)
    return _of_one_order(kernel, pairs, search)


def _hard_pairs(kernel: _Kernel, given: Product, seed: int) -> _Pairs:
    """Return the given operands and hard ones, with the kernel's results."""
    first = kernel(given)
    hard = [hard_inputs(kernel.shape, (kernel.a, kernel.b), kind, result=first.format, seed=seed) for kind in _KINDS]
    products = [kernel.product(x, y, seed) for x, y in hard]
    return [(given, first), *((product, kernel(product)) for product in products)]


def _of_one_order(kernel: _Kernel, pairs: _Pairs, search: _Search) -> Identification:
    """Return the identification of a kernel whose elements all have one order."""
    given, first = pairs[0]
    seed = search.seed
    trials = [*pairs, *_trials(kernel, first.format, seed)]
    meetings = _meetings(kernel, first.format)
    every, whole = _sampled_all(pairs, _ELEMENTS), _sampled_all(trials, _CONFIRMED)
    wraps = _after_sums(whole, kernel.c is not None)
    candidates: list[Accumulation] = []
    if meetings is not None:
        candidates = _with_tree(meetings, kernel, [*every, *whole], wraps, search)
    found = _named([*_wrapped(search.more, wraps), *candidates], every, whole, first.format)
    if not found.names:
        rest = [each for each in _wrapped(_candidates(given, search), wraps) if each not in candidates]
        wider = _named(rest, every, whole, first.format)
        found = wider if wider.names else replace(wider, near=_nearest({*found.near, *wider.near}))
    if not found.names:
        return replace(found, notes=_factor_notes(pairs[: _KINDS.index("normal") + 2]) or _notes(meetings, kernel))
    separated = _separated(found, given, seed, addend=kernel.addend(seed))
    found = _decided(separated, kernel, given, seed)
    names, notes = _to_the_limits(found.names, _at_limits(kernel, seed))
    separating = found.separating if len(names) > 1 else None
    found = replace(found, names=names, notes=(*found.notes, *notes), separating=separating)
    if search.other_k and len(names) == 1:
        found = _by_other_k(found, kernel, search)
    return _of_architectures(found, given, search)


def _decided(found: Identification, kernel: _Kernel, given: Product, seed: int, where: Any = None) -> Identification:
    """Return the identification after the kernel itself has decided between its names, as far as inputs were found.

    `where` are the places that are identified; None for all.
    """
    for step in range(_ROUNDS):
        if found.separating is None:
            break
        x, y, *addend = found.separating
        trial = product_of(x, y, addend[0] if addend else None, "fp32")
        try:
            result = kernel(trial)
        except Exception as error:  # such as one for infinities: the names stay
            note = f"inputs that separate the names: the kernel raised {type(error).__name__}: {error}"
            return replace(found, notes=(*found.notes, note))
        experiment = _Experiment(trial, result) if where is None else _sampled(trial, result, where, _CONFIRMED)
        shares = {name: experiment.share(as_accumulation(name)) for name in found.names}
        kept = tuple(name for name, share in shares.items() if share == 1)
        if not kept:
            note = "several descriptions reproduced all trials; none of them reproduces the inputs that separate them"
            return replace(found, names=(), near=_nearest(shares.items(), 0), notes=(note,), separating=None)
        again = replace(found, names=kept, separating=None)
        found = _separated(again, given, seed + step, where, kernel.addend(seed + step))
    return found


# -- other numbers of terms --------------------------------------------------------------------------------------------


def _by_other_k(found: Identification, kernel: _Kernel, search: _Search) -> Identification:
    """Return the identification with the one of several rules for the parts of K that holds for other K, too."""
    given = as_accumulation(found.names[0])
    rules = alternatives(given, kernel.a, kernel.b, kernel.shape[1])
    left = [given, *(rule for rule in rules if rule != given)] if given not in rules else rules
    tried: list[int] = []
    while len(left) > 1 and len(tried) < _OTHER_KS:
        k = _separating_k(left, kernel, tried, search.other_k)
        if k is None:
            break
        tried.append(k)
        more = f" and {len(left) - 2} more" if len(left) > 2 else ""
        note = f"for K = {kernel.shape[1]}, {brief(left[0])} and {brief(left[1])}{more} are one sum; for K = {k}"
        try:
            pairs = _other_pairs(kernel.with_k(k), search.seed)
        except Exception as error:
            note += f", which separates them, the kernel raised {type(error).__name__}: {error}"
            return replace(found, notes=(*found.notes, note))
        experiments = _sampled_all(pairs, _CONFIRMED)
        kept = [rule for rule in left if _reproduces(rule, experiments)]
        if not kept:
            note += " the kernel has another sum than each of them"
            return replace(found, notes=(*found.notes, note))
        left = kept
    # forms that differ, and bits that do not
    if len(left) > 1 and _separating_k(left, kernel, (), search.other_k) is not None:
        more = f" and {len(left) - 2} more" if len(left) > 2 else ""
        note = f"for K = {kernel.shape[1]}, {brief(left[0])} and {brief(left[1])}{more} are one sum"
        found = replace(found, notes=(*found.notes, f"{note}; for K = {tried} the kernel has the bits of each of them"))
    return replace(found, names=(brief(left[0]),))


def _separating_k(rules: Sequence[Accumulation], kernel: _Kernel, tried: Sequence[int], multiple: int) -> int | None:
    """Return another number of terms, for which most of these rules differ; None if all are one sum for each.

    It is a little longer than K, and has its alignment, up to 16 terms, as kernels may need that.
    """
    k = kernel.shape[1]
    step = min(k & -k, 16) if multiple == 1 else multiple
    k -= k % step
    best, most = None, 1
    for other in (k + step * n for n in _STEPS):
        forms = {_form(rule, kernel.a, kernel.b, other) for rule in rules[:_RULES]}
        if other not in tried and len(forms) > most:
            best, most = other, len(forms)
        if most == len(rules[:_RULES]):
            break
    return best


def _other_pairs(kernel: _Kernel, seed: int) -> _Pairs:
    """Return products of another K: hard ones, and one of windows that cancel.

    Its parts are small, so that parts that are stored in 16 bits keep the rounding errors of their chains.
    """
    formats = kernel.a, kernel.b
    inputs = [hard_inputs(kernel.shape, formats, kind, seed=seed) for kind in ("cancelling", "normal")]
    m, k, n = kernel.shape
    widths = [min(_WINDOW, k - start) for start in range(0, k, _WINDOW)]
    windows = [hard_inputs((m, width, n), formats, seed=seed + i) for i, width in enumerate(widths)]
    sides = [
        np.concatenate([np.asarray(as_float_array(window[side], "x").values) for window in windows], 1 - side)
        for side in (0, 1)
    ]
    products = [kernel.product(x, y, seed) for x, y in (*inputs, sides)]
    return [(product, kernel(product)) for product in products]


# -- limits ------------------------------------------------------------------------------------------------------------


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
        product = kernel.product(a, b, seed + step)
        yield product, kernel(product)


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
    for kind, accumulator in (("double_rounding", FP32), ("cancelling", FP64), ("cancelling_parts", FP32)):
        wanted: dict[str, Any] = {"kind": kind, "accumulator": accumulator, "result": result}
        for step in range(_calls(kernel)):
            try:
                inputs = hard_inputs(kernel.shape, (kernel.a, kernel.b), **wanted, seed=seed + step + 1)
            except ValueError:  # the formats have no such products
                break
            product = kernel.product(inputs.a, inputs.b, seed + step)
            found.append((product, kernel(product)))
    return found


def _factor_notes(pairs: Sequence[tuple[Product, FloatArray]]) -> tuple[str, ...]:
    """Return a note if the results are a number times the product plus a number times c, and the numbers are not 1."""
    for product, result in pairs:
        a, b = (np.asarray(x.values, np.float64) for x in (product.a, product.b))
        with np.errstate(all="ignore"):
            parts = [np.matmul(a, b), *([] if product.c is None else [np.asarray(product.c.values, np.float64)])]
        actual = np.asarray(result.values, np.float64)
        columns = np.stack([np.broadcast_to(part, actual.shape).reshape(-1) for part in parts], -1)
        actual = actual.reshape(-1)
        usable = np.isfinite(columns).all(-1) & np.isfinite(actual)
        columns, actual = columns[usable], actual[usable]
        if len(actual) < _LEAST_FITTED or not actual.any() or not columns.any(0).all():
            continue
        sizes = np.abs(columns).max(0)
        factors = np.linalg.lstsq(columns / sizes, actual / np.abs(actual).max(), rcond=None)[0]
        factors = factors / sizes * np.abs(actual).max()
        beside = np.linalg.norm(actual - columns @ factors) / np.linalg.norm(actual)
        if np.abs(factors - 1).max() > max(4 * beside, 1e-6) and beside < _BESIDE:
            named = zip(factors, ("the product", "c"), strict=False)
            words = " plus ".join(f"{factor:.4g} times {name}" for factor, name in named)
            return (f"the results are about {words}: call the kernel with its scales, alpha and beta set to 1",)
    return ()


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
    meetings: Meetings, kernel: _Kernel, experiments: Sequence[_Experiment], wraps: _Wraps, search: _Search
) -> list[Accumulation]:  # fmt: skip
    """Return the descriptions with this tree that reproduce all bits, and for other orders and accumulators the first.

    Descriptions that no hard inputs tell from a simpler one are left out: FTZ, where no sum can be subnormal, is one.
    """
    found: list[Accumulation] = []
    others: list[Accumulation] = []
    k, result = kernel.shape[1], experiments[0].result.format

    def equal(tried: Iterable[Accumulation]) -> list[Accumulation]:
        return [each for each in _wrapped(tried, wraps) if _reproduces(each, experiments)]

    composed = unit_sums(meetings, k, kernel.a, kernel.b, result, search.architecture)
    if composed:  # several terms are added at once: no order of single additions has these meetings
        return [*_distinct(equal(composed), kernel, result, search.seed), *composed]
    stepping = (each for each in stepping_units(kernel.a, kernel.b, k) if on_architecture(each, search.architecture))
    units = equal(stepping)
    for order in orders_with_tree(meetings, k):
        for accumulator in (FP32, FP64, FP16, BF16):
            exact = _has_exact_products(kernel, accumulator)
            tried = variants(order, accumulator, exact)
            right = equal(tried)
            if not (right or found or units):  # a kernel that adds its sum to +0, as OpenBLAS does, has no results -0
                right = equal(variants(f"blocked({order}, {k}, same)", accumulator, exact))
            found += right
            others += tried[: not right]
    return [*_distinct([*found, *units], kernel, result, search.seed), *others]


def _distinct(
    descriptions: Sequence[Accumulation], kernel: _Kernel, result: FloatFormat, seed: int
) -> list[Accumulation]:
    """Return the first of the descriptions that have the same results for all inputs of `_SEPARATING`."""
    if len(descriptions) < 2:
        return list(descriptions)
    bits: dict[Accumulation, bytes] = dict.fromkeys(descriptions, b"")
    shape = min(kernel.shape[0], _SIDE), kernel.shape[1], min(kernel.shape[2], _SIDE)
    small = replace(kernel, shape=shape, c_shape=tuple(min(size, _SIDE) for size in kernel.c_shape))
    for _, trial in _separating(shape, kernel.a, kernel.b, result, seed, small.addend(seed)):
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
        seen.append(kernel(kernel.product(np.repeat(rows, m, 0), np.repeat(columns, n, 1))).codes.astype(np.uint64))
    _, classes = np.unique(np.stack(seen, -1).reshape(m * n, -1), axis=0, return_inverse=True)
    grid = classes.reshape(m, n)
    return [grid == number for number in range(int(grid.max()) + 1)]


def _by_region(
    kernel: _Kernel, places: list[NDArray[np.bool_]], pairs: _Pairs, search: _Search
) -> Identification:  # fmt: skip
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
            part = _part_of(kernel, rows, columns)
            hard = _hard_pairs(part, _given_part(part, pairs[0][0]), search.seed)
            found = _of_one_order(part, hard, search)
        else:
            found = _at_places(kernel, where, pairs, search)
        located = locate(where)
        others = f"{'the other ' if len(places) == 2 else ''}{np.count_nonzero(where)} elements"
        text = located[0].text if located else others
        regions.append(Region(text, found.names, found.separating))
        notes += [f"{text}: {note}" for note in found.notes]
    return Identification((), fmt, (), tuple(regions), tuple(notes))


def _given_part(part: _Part, given: Product) -> Product:
    """Return the given operands of a part, with an addend of its shape."""
    product = replace(given, c=None).part(part.rows, part.columns)
    if given.c is None:
        return product
    places = np.ix_(*part._places(given.c.shape[-2:]))
    return replace(product, c=FloatArray(np.ascontiguousarray(given.c.codes[places]), given.c.format))


def _at_places(kernel: _Kernel, where: NDArray[np.bool_], pairs: _Pairs, search: _Search) -> Identification:
    """Return the descriptions of the vocabulary that reproduce the elements at these places."""
    given, first = pairs[0]
    seed = search.seed
    trials = [*pairs, *_trials(kernel, first.format, seed)]
    every, whole = _sampled_all(pairs, _ELEMENTS, where), _sampled_all(trials, _CONFIRMED, where)
    wraps = _after_sums(whole, kernel.c is not None)
    found = _named(_wrapped(_candidates(given, search), wraps), every, whole, first.format)
    separated = _separated(found, given, seed, where, kernel.addend(seed))
    found = _decided(separated, kernel, given, seed, where)
    names, notes = _to_the_limits(found.names, _at_limits(kernel, seed), where)
    separating = found.separating if len(names) > 1 else None
    found = replace(found, names=names, notes=(*found.notes, *notes), separating=separating)
    return _of_architectures(found, given, search)
