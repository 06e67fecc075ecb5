"""The engine: it carries out the steps of one call of an operator, each with one floatsim function.

An operator is written once, against a `Computation`. Each step is one call of a public function with the format of the
step, so no operator has rounding code of its own. `Float64Computation` evaluates the same steps with NumPy in float64.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, ParamSpec, TypeAlias, TypedDict, TypeVar

import numpy as np

from floatsim.accumulation import (
    Accumulation,
    AccumulationLike,
    Blocked,
    Composite,
    Sequential,
    Welford,
    as_accumulation,
    parse,
)
from floatsim.accumulation.evidence import Compared, Fact, check_compared, optional_version
from floatsim.accumulation.libraries import library_sum
from floatsim.accumulation.library_rules import NotDescribedError, Regions
from floatsim.arrays.array.conversion import array, convert, read_floats
from floatsim.arrays.array.float_array import FloatArray, wrap
from floatsim.arrays.array.interop import stays_on_device
from floatsim.arrays.call.options import Context, context, get_context, spell_out
from floatsim.arrays.call.random_sources import RandomGenerator
from floatsim.arrays.call.random_stream import RandomStream
from floatsim.arrays.elementwise import arithmetic, functions
from floatsim.arrays.events.record import recording, scope
from floatsim.arrays.sums.products import matmul
from floatsim.arrays.sums.reductions import moments as moments_of
from floatsim.arrays.sums.reductions import sum as sum_of
from floatsim.emulator.elementwise.operations import OPERATIONS
from floatsim.formats import BF16, FP16, FP32, FP64, FloatFormat, FormatLike, as_format
from floatsim.formats._hashing import IdentityCache
from floatsim.formats._validation import as_flag, every_name_hint, name_hint
from floatsim.operators.device_functions import DeviceFunction
from floatsim.operators.evidence import EVIDENCE
from floatsim.operators.recipes import FLOAT64, RECIPES, SAME, LibrarySum, Recipe, RecipeLike, SumLike, as_recipe
from floatsim.operators.steps import operator_steps

__all__ = ["Array", "Computation", "RecipeKeywords", "computation", "count", "operator"]

P = ParamSpec("P")
R = TypeVar("R")

Array: TypeAlias = Any
"""An intermediate: a FloatArray, or a float64 array in a `Float64Computation`."""


class RecipeKeywords(TypedDict, total=False):
    """The keywords of every operator.

    recipe : Recipe or str, optional
        The format of every intermediate and the accumulation of every sum: "fp32-inside" (default), "all-fp16",
        "all-bf16", "all-fp32", "pytorch-cpu", "pytorch-cuda", "transformers", "flash-attention-2", "cudnn-attention",
        "efficient-attention", "math", "float64", or a
        `fs.operators.Recipe`. `fs.operators.RECIPES` has the named recipes.
    variant : str, optional
        The order of computation. Default: the recipe's, or the first one.
    formats : mapping, optional
        Step to format: replaces entries of the recipe.
    accumulations : mapping, optional
        Sum to accumulation: replaces entries of the recipe.
    device : str, optional
        "h200": recipes that were not compared with this device are refused.
    version : str, optional
        The version of torch on the device, such as "2.11.0". Other versions are refused.
    strict : bool, optional
        Whether calls are refused that were not compared with the device: other shapes, formats and options than those
        of `floatsim.operators.evidence.EVIDENCE`. Default: False, the rules of the recipe apply to them.

    Returns
    -------
    FloatArray or ndarray
        An ndarray if the first operand is one and the format of the step "output" has a dtype.

    Raises
    ------
    TypeError
        For operands without a float format, and for unknown keywords.
    ValueError
        For unknown recipes, variants and steps, with the nearest match, and for shapes that do not fit.
    NotDescribedError
        A ValueError: for devices and versions that were not recorded, and with `strict` for calls that were not. The
        message has the recorded ones.
    """

    recipe: RecipeLike
    variant: str | None
    formats: Mapping[str, FormatLike] | None
    accumulations: Mapping[str, AccumulationLike] | None
    device: str | None
    version: str | None
    strict: bool


def operator(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a public operator: fill in its docstring, and return tensors of torch and CuPy for such operands."""
    return stays_on_device(spell_out(RecipeKeywords)(function))


def count(n: int) -> FloatArray:
    """Return an exact integer, as FP64."""
    return FloatArray(np.array(n, np.float64).view(np.uint64), FP64)


_RECENT = IdentityCache()


_DTYPES = {FP32: "float32", FP16: "float16", BF16: "bfloat16"}
"""The dtypes of libraries by format. Operands of other formats are converted to FP32 first."""


def _steps_of(recipe: Recipe, operator: str, variant: str) -> tuple[dict[str, FormatLike], dict[str, SumLike]]:
    """Return the recipe's format of each step of a variant, and the accumulation of each sum.

    Only the named recipes are cached: a user may change the mappings of other recipes.
    """
    key = recipe, sys.intern(operator), sys.intern(variant)
    found: tuple[dict[str, FormatLike], dict[str, SumLike]] | None = _RECENT.find(key)
    if found is None:
        known = operator_steps(operator)
        steps = known.variants[variant]
        sums = [step for step in steps if step in known.sums]
        found = (
            {step: recipe.format_of(operator, step) for step in steps},
            {step: recipe.accumulation_of(operator, step) for step in sums},
        )
        if RECIPES.get(recipe.name) is recipe:
            _RECENT.keep(key, found)
    return found


def _compared_calls(recipe: Recipe, operator: str, keywords: RecipeKeywords) -> tuple[Compared, ...] | None:
    """Return the calls of an operator that were compared with a device, if a call is strict.

    A NotDescribedError says that none was.
    """
    strict = as_flag(keywords.get("strict", False), "strict")
    name = optional_version(keywords.get("device"), keywords.get("version"))
    rows = EVIDENCE.get(recipe.name, {}) if RECIPES.get(recipe.name) is recipe else {}
    devices = {row.device for each in rows.values() for row in each}
    if not rows or name not in (None, *devices):
        raise NotDescribedError(
            f"recipe {recipe.name!r} was not compared with {'a device' if name is None else name}; compared: "
            f"{', '.join(EVIDENCE)}"
        )
    if strict and operator not in rows:
        raise NotDescribedError(
            f"{operator} with recipe {recipe.name!r} was not compared with a device; compared: {', '.join(rows)}"
        )
    return rows[operator] if strict else None


class Computation:
    """One call of an operator: the format of each step, and the accumulation of each sum."""

    def __init__(self, operator: str, x: Any, keywords: RecipeKeywords) -> None:
        for name in keywords:
            if name not in RecipeKeywords.__annotations__:
                raise TypeError(
                    f"{operator}: unknown keyword {name!r}; {every_name_hint(name, RecipeKeywords.__annotations__)}"
                )
        recipe, variant = as_recipe(keywords.get("recipe", "fp32-inside")), keywords.get("variant")
        known = operator_steps(operator)
        if variant is not None and variant not in known.variants:
            raise ValueError(f"{operator} has no variant {variant!r}; {name_hint(variant, known.variants)}")
        self.variant = recipe.variant_of(operator) if variant is None else variant
        self.steps = known.variants[self.variant]
        _, self.input_format, self._float_array = read_floats(x, "x")
        formats, accumulations = keywords.get("formats") or {}, keywords.get("accumulations") or {}
        of_recipe = _steps_of(recipe, operator, self.variant)
        for given, steps, kind in ((formats, self.steps, "step"), (accumulations, of_recipe[1], "sum")):
            for step in given:
                if step not in steps:
                    raise ValueError(
                        f"{operator} with variant {self.variant!r} has no {kind} {step!r}; {name_hint(step, steps)}"
                    )
        self.operator = operator
        self._formats = {**of_recipe[0], **formats}
        self._accumulations: dict[str, SumLike] = {**of_recipe[1], **accumulations}
        self._functions = recipe.functions
        self._operand_formats: dict[str, None] = {}
        self._compared: tuple[Compared, ...] | None = None
        if keywords.get("device") or keywords.get("version") or keywords.get("strict"):
            self._compared = _compared_calls(recipe, operator, keywords)
        if self._compared is not None:
            self._facts = self._facts_of_recipe(recipe, of_recipe[0], formats, accumulations)

    def format(self, step: str, same: FloatFormat | None = None) -> FloatFormat:
        """Return the format of a step. `same` is the format that "same" stands for, by default the input's."""
        named = self._formats[step]
        fmt = (same or self.input_format) if named == SAME else as_format(named)
        if fmt.is_scale:
            raise TypeError(f"{self.operator}: {fmt.name} is a scale format, which has no arithmetic")
        return fmt

    def accumulation(self, step: str) -> Accumulation:
        """Return the accumulation of a sum that does not depend on the shape."""
        accumulate = self._accumulations[step]
        assert not isinstance(accumulate, LibrarySum)
        return parse(accumulate, self.format(step)) if isinstance(accumulate, str) else as_accumulation(accumulate)

    def _regions(self, step: str, shape: tuple[int, ...], axis: int) -> Regions | None:
        """Return the regions of a library's sum of an array (rows, columns), or None for other accumulations."""
        accumulate = self._accumulations[step]
        if not isinstance(accumulate, LibrarySum):
            return None
        dtype = _DTYPES.get(self.input_format, "float32")
        wide = "float32" if "output" in self._formats and self.format("output") == FP32 else None
        return library_sum(accumulate.function, dtype, shape, axis=axis, device=accumulate.device, result=wide)

    def _facts_of_recipe(
        self,
        recipe: Recipe,
        named: Mapping[str, FormatLike],
        formats: Mapping[str, FormatLike],
        sums: Mapping[str, Any],
    ) -> dict[str, Fact]:
        """Return the facts of a strict call that do not depend on its shapes."""
        changes = [
            f"{step} in {as_format(fmt).name}" for step, fmt in formats.items() if fmt not in (named[step], SAME)
        ]
        changes += [
            f"{step} in the format of its operand" for step, fmt in formats.items() if fmt == SAME != named[step]
        ]
        changes += [f"another accumulation of {step}" for step in sums]
        if self.variant != recipe.variant_of(self.operator):
            changes.append(f"variant {self.variant}")
        changed = get_context() != Context()
        return {"changes": ", ".join(changes) or "none", "context": "changed" if changed else "default"}

    def must_be_compared(self, **facts: Fact) -> None:
        """Raise a NotDescribedError if the call is strict, and no such call was compared with a device.

        Parameters
        ----------
        **facts
            The sizes and options that `floatsim.operators.evidence` has for the operator.
        """
        if self._compared is not None:
            formats = " and ".join(self._operand_formats)
            check_compared(self.operator, {"format": formats, **facts, **self._facts}, self._compared)

    # -- steps ---------------------------------------------------------------------------------------------------------

    def operand(self, step: str, x: Any) -> Array:
        """Return an operand in the format of its step."""
        codes, fmt, _ = read_floats(x, step)
        self._operand_formats[fmt.name] = None
        return self._converted(step, FloatArray(codes, fmt), self.format(step, fmt))

    def operands(self, **given: Any) -> list[Array]:
        """Return operands of one shape, by the names of their steps."""
        converted = [self.operand(step, x) for step, x in given.items()]
        if len({x.shape for x in converted}) > 1:
            shapes = ", ".join(f"{step} {x.shape}" for step, x in zip(given, converted, strict=True))
            raise ValueError(f"the shapes differ: {shapes}")
        return converted

    def value(self, step: str, function: Callable[..., Any], *operands: Any, same: Array | None = None) -> Array:
        """Return one operation, rounded to the format of the step. `same` has the format that "same" stands for."""
        fmt = self.format(step, None if same is None else same.format)
        if self._functions != "exact" and _is_function(function) and all(x.format in _DTYPES for x in operands):
            found = self._library_value(function, operands)
            if found is not None:
                return self._converted(step, found, fmt)
        if not recording():
            return function(*operands, format=fmt)
        with scope(step):
            return function(*operands, format=fmt)

    def _library_value(self, function: Callable[..., Any], operands: tuple[Array, ...]) -> Array | None:
        """Return a library's function in FP32, or None.

        Where its operations are not known, the function rounded once is enough for 16-bit operators.
        """
        wide = [x if x.format == FP32 else convert(x, FP32) for x in operands]
        try:
            return function(*wide, functions=self._functions)
        except NotDescribedError:
            if self.input_format == FP32:
                raise
            return None

    def activation(self, step: str, function: Callable[..., Any], x: Array) -> Array:
        """Return a function of an operand that is the operator's result. A library rounds it once to 16 bits."""
        if self._functions != "exact" and x.format in (FP16, BF16) and self.format("output") == x.format:
            return self._converted(step, function(x, functions=self._functions), self.format(step))
        return self.value(step, function, x)

    def sum(self, step: str, x: Array, axis: Any = -1) -> Array:
        """Return the sums along an axis, which is kept with length one."""
        if isinstance(self._accumulations[step], LibrarySum):
            return self._by_region(step, x, axis, lambda part, order: sum_of(
                part, axis, keepdims=True, accumulate=order, format=self.format(step)
            ))  # fmt: skip
        with self._step(step):
            return sum_of(x, axis, keepdims=True, accumulate=self.accumulation(step), format=self.format(step))

    def dot(self, step: str, a: Array, b: Array, axis: int = -1) -> Array:
        """Return the sums of the products along the last axis or, of matrices, axis 0, which is kept with length one.

        b has the shape of a, or (rows, 1). A library's sum adds the products by fused multiply-adds.
        """
        if isinstance(self._accumulations[step], LibrarySum):
            rows = self._by_region(
                step, a, axis, lambda part, order, b=b: self._dot(step, part, b, axis, _fused(order)), b
            )  # fmt: skip
            return rows
        with self._step(step):
            return self._dot(step, a, b, axis, self.accumulation(step))

    def _dot(self, step: str, a: Array, b: Array, axis: int, order: Accumulation) -> Array:
        fmt = self.format(step)
        if axis == 0:
            return matmul(b.reshape(1, -1), a, accumulate=order, format=fmt)
        wide = FloatArray(np.broadcast_to(b.codes, a.shape), b.format)
        return matmul(a[..., np.newaxis, :], wide[..., np.newaxis], accumulate=order, format=fmt)[..., 0]

    def moments(self, mean: str, squares: str, x: Array) -> tuple[Array, Array]:
        """Return the means and the sums of squared differences along the last axis, by Welford's algorithm.

        The accumulation of the step `squares` is a Welford, or the order of one.
        """
        rows = x.reshape(-1, x.shape[-1])
        regions = self._regions(squares, rows.shape, -1)
        order = regions[0].accumulate if regions is not None else self.accumulation(squares)
        if not isinstance(order, Welford):
            order = Welford(order)
        with self._step(squares):
            found = moments_of(x, -1, keepdims=True, accumulate=order)
        return self._converted(mean, found.mean, self.format(mean)), self._converted(
            squares, found.squares, self.format(squares)
        )

    def square_sum(self, step: str, x: Array) -> tuple[Array | None, Array]:
        """Return None and the sums of the squares along the last axis; or, if the accumulation is a Welford, the means
        and the sums of squared differences."""
        regions = self._regions(step, x.reshape(-1, x.shape[-1]).shape, -1)
        order = regions[0].accumulate if regions is not None else self.accumulation(step)
        return self.moments(step, step, x) if isinstance(order, Welford) else (None, self.dot(step, x, x))

    def _by_region(
        self, step: str, x: Array, axis: int, reduce: Callable[..., Array], beside: Array | None = None
    ) -> Array:
        """Return the sums of a library, region by region. `reduce` takes rows, their description, and rows of
        `beside`."""
        if axis == 0:
            regions = self._regions(step, x.shape, 0)
            assert regions is not None
            with self._step(step):
                return reduce(x, regions[0].accumulate)
        rows = x.reshape(-1, x.shape[-1])
        regions = self._regions(step, rows.shape, -1)
        assert regions is not None
        others = None if beside is None else FloatArray(np.broadcast_to(beside.codes, x.shape), beside.format)
        others = None if others is None else others.reshape(rows.shape)
        fmt = self.format(step)
        found = np.empty((len(rows), 1), fmt.code_dtype)
        with self._step(step):
            for region in regions:
                more = {} if others is None else {"b": others[region.rows]}
                found[region.rows] = reduce(rows[region.rows], region.accumulate, **more).codes
        return FloatArray(found.reshape(*x.shape[:-1], 1), fmt)

    def product(self, step: str, a: Array, b: Array, c: Array | None = None) -> Array:
        """Return the matrix product a @ b + c, where c enters the sum as in `fs.matmul`."""
        with self._step(step):
            return matmul(a, b, c, accumulate=self.accumulation(step), format=self.format(step))

    def maximum(self, step: str, x: Array) -> Array:
        """Return the largest element along the last axis, converted to the format of the step."""
        return self._converted(step, np.max(x, axis=-1, keepdims=True), self.format(step))

    def larger(self, step: str, a: Array, b: Array) -> Array:
        """Return the larger of two arrays."""
        return self.value(step, arithmetic.maximum, a, b)

    def converted(self, step: str, x: Array, same: Array | None = None) -> Array:
        """Return x in the format of the step."""
        return self._converted(step, x, self.format(step, None if same is None else same.format))

    def finite_or_zero(self, x: Array) -> Array:
        """Return x, with 0 in the place of -infinity."""
        fmt = x.format
        if fmt.infinity_code is None:
            return x
        lowest = fmt.code_dtype.type(fmt.infinity_code | fmt.sign_mask)
        return FloatArray(np.where(x.codes == lowest, fmt.code_dtype.type(0), x.codes), fmt)

    def one_for_zero(self, x: Array) -> Array:
        """Return x, with 1 in the place of zero."""
        return self.select(self.nonzero(x), x, self.number(1.0, x))

    def moved(self, function: Callable[[Any], Any], x: Array) -> Array:
        """Return x after a function that moves, repeats or pads elements. It gets the codes; the code 0 is +0."""
        return FloatArray(function(x.codes), x.format)

    def number(self, value: float, like: Array) -> Array:
        """Return a number, rounded to the format of an intermediate."""
        return array(value, like.format)

    def number_of(self, value: float, like: Array) -> float:
        """Return a number, rounded to the format of an intermediate, as a float."""
        return float(self.number(value, like).item())

    def nonzero(self, x: Array) -> Any:
        """Return which elements are not zero."""
        return x.nonzero()

    def joined(self, parts: list[Array]) -> Array:
        """Return arrays of one format, joined along the last axis."""
        return FloatArray(np.concatenate([x.codes for x in parts], axis=-1), parts[0].format)

    def negative(self, x: Array) -> Array:
        """Return x with inverted signs."""
        return arithmetic.negative(x)

    def has_infinity(self, x: Array) -> bool:
        """Return whether the format of an intermediate has infinities."""
        return bool(x.format.has_infinity)

    def lowest(self, x: Array) -> Array:
        """Return -infinity in the format of x, or its lowest finite number in a format without infinity."""
        return self.number(-math.inf if x.format.has_infinity else -x.format.max, x)

    def select(self, condition: Any, x: Array, y: Any) -> Array:
        """Return the elements of x where the condition holds, else those of y, which has the format of x."""
        return FloatArray(np.where(condition, x.codes, y.codes), x.format)

    def result(self, x: Array, same: Array | None = None) -> Any:
        """Return a result to the caller: as a FloatArray, or as an ndarray if the first operand was one."""
        return wrap(x.codes, x.format, self._float_array)

    def _converted(self, step: str, x: FloatArray, fmt: FloatFormat) -> FloatArray:
        if x.format == fmt:
            return x
        with self._step(step):
            return convert(x, fmt)  # type: ignore[no-any-return]

    def _step(self, step: str) -> AbstractContextManager[Any]:
        return scope(step) if recording() else nullcontext()


def _is_function(function: Callable[..., Any]) -> bool:
    """Return whether a public function is a mathematical function, which libraries define in their own way."""
    return function.__name__ in functions.__all__


def _fused(order: Accumulation) -> Accumulation:
    """Return a library's sum with fused multiply-adds in the place of additions of terms."""
    if isinstance(order, Sequential):
        return Sequential(order.format, fused=True)
    assert isinstance(order, Composite) and not isinstance(order, Blocked)
    return order.with_children(lambda child: _fused(child) if child is order.inner else child)


class Float64Computation(Computation):
    """A call of an operator in float64: NumPy's functions, the same order of steps."""

    def operand(self, step: str, x: Any) -> Array:
        codes, fmt, _ = read_floats(x, step)
        return FloatArray(codes, fmt).values

    def value(self, step: str, function: Callable[..., Any], *operands: Any, same: Array | None = None) -> Array:
        numbers = [x.values if isinstance(x, FloatArray) else x for x in operands]
        with np.errstate(all="ignore"):
            named = function if isinstance(function, DeviceFunction) else OPERATIONS[function.__name__]
            assert named.float64 is not None, function
            return named.float64(*numbers)

    def activation(self, step: str, function: Callable[..., Any], x: Array) -> Array:
        return self.value(step, function, x)

    def sum(self, step: str, x: Array, axis: Any = -1) -> Array:
        return np.sum(x, axis=axis, keepdims=True)

    def dot(self, step: str, a: Array, b: Array, axis: int = -1) -> Array:
        return np.sum(a * b, axis=axis, keepdims=True)

    def moments(self, mean: str, squares: str, x: Array) -> tuple[Array, Array]:
        average = np.mean(x, axis=-1, keepdims=True)
        return average, np.sum((x - average) ** 2, axis=-1, keepdims=True)

    def square_sum(self, step: str, x: Array) -> tuple[Array | None, Array]:
        return None, np.sum(x * x, axis=-1, keepdims=True)

    def product(self, step: str, a: Array, b: Array, c: Array | None = None) -> Array:
        with np.errstate(all="ignore"):
            product = np.matmul(a, b)
        return product if c is None else product + c

    def maximum(self, step: str, x: Array) -> Array:
        return np.max(x, axis=-1, keepdims=True)

    def converted(self, step: str, x: Array, same: Array | None = None) -> Array:
        return x

    def finite_or_zero(self, x: Array) -> Array:
        return np.where(np.isneginf(x), 0.0, x)

    def one_for_zero(self, x: Array) -> Array:
        return np.where(x == 0, 1.0, x)

    def moved(self, function: Callable[[Any], Any], x: Array) -> Array:
        return function(x)

    def number(self, value: float, like: Array) -> Array:
        return value

    def number_of(self, value: float, like: Array) -> float:
        return value

    def nonzero(self, x: Array) -> Any:
        return x != 0

    def joined(self, parts: list[Array]) -> Array:
        return np.concatenate(parts, axis=-1)

    def negative(self, x: Array) -> Array:
        return -x

    def has_infinity(self, x: Array) -> bool:
        return True

    def lowest(self, x: Array) -> Array:
        return -np.inf

    def select(self, condition: Any, x: Array, y: Any) -> Array:
        return np.where(condition, x, y)

    def result(self, x: Array, same: Array | None = None) -> Any:
        return np.asarray(x)


@contextmanager
def computation(operator: str, x: Any, keywords: RecipeKeywords) -> Iterator[Computation]:
    """Yield the computation of one call. An integer seed of the context draws different numbers in each step."""
    kind = Float64Computation if as_recipe(keywords.get("recipe", "fp32-inside")) is FLOAT64 else Computation
    current = kind(operator, x, keywords)
    with ExitStack() as stack:
        if isinstance(seed := get_context().seed, int | RandomGenerator):
            stack.enter_context(context(seed=RandomStream(seed)))
        if recording():
            stack.enter_context(scope(operator))
        yield current
