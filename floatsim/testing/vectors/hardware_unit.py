"""Units of hardware under test: their test vectors, their files, and the comparison with results of a simulation.

A unit is one operation, one conversion, or one dot product. Its operands come from `corner_inputs` and `dot_inputs`,
its results from the emulator. A comparison explains the first mismatch, and names the options that return the given
results.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import IO, TYPE_CHECKING, Any

import numpy as np

import floatsim
from floatsim._types import Codes
from floatsim.accumulation import AccumulationLike, Exact, TensorCore, as_accumulation
from floatsim.analysis.explain import Explanation, code_text, explain_number, explain_rounding, flag_names
from floatsim.analysis.explain_operation import explain_add, explain_fma, explain_multiply
from floatsim.analysis.trace.trace import trace
from floatsim.arrays.array.conversion import convert, decode, encode, from_integer, to_integer
from floatsim.arrays.array.float_array import FloatArray, from_codes
from floatsim.arrays.call.options import resolve
from floatsim.arrays.elementwise import arithmetic, comparison, functions
from floatsim.arrays.elementwise.ulps import ulp_distance
from floatsim.arrays.events.record import record
from floatsim.arrays.sums.products import matmul
from floatsim.emulator.elementwise.operations import OPERATIONS, Family
from floatsim.formats import FloatFormat, FormatLike, as_format
from floatsim.formats._validation import as_index, name_hint
from floatsim.formats.rounding import FLAGS, Rounding
from floatsim.reference.scalar import from_fraction
from floatsim.testing.vectors.corner_inputs import BLOCK, corner_codes, draws, interleaved, operand_blocks
from floatsim.testing.vectors.dot_inputs import SHARES, digest_of, input_set
from floatsim.testing.vectors.dot_unit import ScaleCodes, Unit, named_unit, units
from floatsim.testing.vectors.vector_files import Column, FileType, VectorWriter

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["UNIT_OPERATIONS", "HardwareUnit", "VectorComparison", "hardware_unit"]

_LISTED = (Family.ARITHMETIC, Family.INTEGRAL, Family.EXTREMUM, Family.FUNCTION, Family.OTHER)
_RELATIONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "unordered")
_ALL_BITS = 24
"""Operands of at most so many bits together are listed completely: 2**24 vectors."""
_DOT_BLOCK = 1 << 12


def _home(name: str) -> Any:
    """Return the module with the public function of this name; None if there is none."""
    return next((module for module in (arithmetic, functions) if name in module.__all__), None)


UNIT_OPERATIONS = (
    "convert", "dot", *(name for name, row in OPERATIONS.items() if row.family in _LISTED and _home(name)),
    *_RELATIONS,
)  # fmt: skip
"""The operations of `hardware_unit`."""

_DEFAULTS: dict[str, Any] = {
    "rounding": "ties_to_even", "overflow": "infinity", "tininess": "after", "daz": False, "ftz": False,
}  # fmt: skip
_INTEGERS = {name: np.dtype(name) for name in
             ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")}  # fmt: skip

_CAUSES: dict[str, dict[str, Any]] = {
    **{f"rounding={mode.name.lower()!r}": {"rounding": mode.name.lower()}
       for mode in Rounding if mode is not Rounding.STOCHASTIC},
    **{f"overflow={word!r}": {"overflow": word} for word in ("infinity", "saturate_finite", "saturate_propagate")},
    "ftz=True (tiny results are flushed to zero)": {"ftz": True},
    "daz=True (subnormal operands are read as zeros)": {"daz": True},
    "daz=True and ftz=True": {"daz": True, "ftz": True},
    "daz=False and ftz=False": {"daz": False, "ftz": False},
    "tininess='before'": {"tininess": "before"}, "tininess='after'": {"tininess": "after"},
}  # fmt: skip
"""Options that a comparison tries for results that differ."""


@dataclass(frozen=True)
class VectorComparison:
    """The comparison of given results with those of a unit. Prints as text.

    Attributes
    ----------
    unit : str
        The unit's title.
    vectors : int
        The number of vectors.
    mismatches : int
        How many results or flags differ.
    first : int or None
        The index of the first mismatch, from 0.
    explanation : str
        The first mismatch: operands, given and expected result, and the steps of the operation.
    causes : dict of str to int
        Options or descriptions that return given results, with the number of mismatches that they explain.
    unexplained : str
        The first mismatch that the best cause does not explain, in the form of `explanation`, with its index; "" if
        there is none, or if the best cause explains less than half of the mismatches.

    Examples
    --------
    >>> import floatsim as fs
    >>> unit = fs.testing.hardware_unit("sqrt", "fp16")
    >>> x, result, flags = unit.vectors(200)
    >>> found = unit.compare([x], result, flags)
    >>> bool(found), print(found)
    sqrt of FP16: 200 vectors, no mismatches
    (True, None)
    """

    unit: str
    vectors: int
    mismatches: int
    first: int | None = None
    explanation: str = ""
    causes: Mapping[str, int] = field(default_factory=dict)
    unexplained: str = ""

    def __bool__(self) -> bool:
        return self.mismatches == 0

    def __str__(self) -> str:
        if self.first is None:
            return f"{self.unit}: {self.vectors} vectors, no mismatches"
        lines = [f"{self.unit}: {self.vectors} vectors, {self.mismatches} mismatch{'es' * (self.mismatches > 1)}"]
        lines.append(self.explanation)
        if self.causes:
            best = max(self.causes.values())
            words = " or ".join(name for name, count in self.causes.items() if count == best)
            whose = "all" if best == self.mismatches else f"{best} of {self.mismatches}"
            lines.append(f"{whose} mismatches are explained by {words}")
        if self.unexplained:
            lines.append(f"not explained: {self.unexplained}")
        return "\n".join(lines)

    __repr__ = __str__


class HardwareUnit:
    """An operation, a conversion or a dot product under test. `hardware_unit` returns one.

    Attributes
    ----------
    title : str
        The operation, the formats and the options.
    operands : tuple of Column
        The operands.
    columns : tuple of Column
        The operands, the result, and the flags if the unit has them.

    Examples
    --------
    >>> import floatsim as fs
    >>> unit = fs.testing.hardware_unit("add", "e4m3")
    >>> a, b, result, flags = unit.vectors(1000)
    >>> wrong = result.copy()
    >>> wrong[result == 0x08] = 0  # an adder without the smallest normal number
    >>> found = unit.compare((a, b), wrong)
    >>> found.mismatches, found.first
    (10, 6)
    """

    title: str
    operands: tuple[Column, ...]
    output: Column
    has_flags: bool

    @property
    def columns(self) -> tuple[Column, ...]:
        """The operands, the result, and the flags if the unit has them."""
        flags = (Column("flags", 5, note="invalid 16, divide by zero 8, overflow 4, underflow 2, inexact 1"),)
        return (*self.operands, self.output, *(flags if self.has_flags else ()))

    def evaluate(self, operands: Sequence[Codes]) -> tuple[Codes, NDArray[np.uint8] | None]:
        """Return the results and the flags for codes of the operands. The flags are None if the unit has none."""
        raise NotImplementedError

    def _operand_blocks(self, seed: int) -> Iterator[list[Codes]]:
        raise NotImplementedError

    def _steps(self, operands: Sequence[Any], result: int, given: int | None) -> str:
        """Return the steps of one vector, as text."""
        raise NotImplementedError

    def _alternatives(self) -> Iterator[tuple[str, HardwareUnit]]:
        """Yield other units, in words, that a faulty one may equal."""
        raise NotImplementedError

    def _is_nan(self, codes: Codes) -> NDArray[np.bool_]:
        return np.zeros(len(codes), bool)

    def corner_cases(self) -> int:
        """Return the number of corner cases, with which every set begins. A set that is not longer has nothing else.

        >>> import floatsim as fs
        >>> fs.testing.hardware_unit("fma", "bf16").corner_cases()
        2744
        """
        return len(next(self._operand_blocks(0))[0])

    def blocks(self, count: int | None = None, seed: int = 0) -> Iterator[list[NDArray[Any]]]:
        """Yield the vectors in blocks: the columns as arrays of unsigned integers.

        Parameters
        ----------
        count : int or None
            The number of vectors. None: all operands, if they have at most 24 bits together.
        seed : int
            The seed of the random operands. The first vectors of a larger count are those of a smaller one.

        Raises
        ------
        ValueError
            If the operands have more than 24 bits, and `count` is None.
        """
        source = self._every_operand() if count is None else self._operand_blocks(as_index(seed, "seed", 0, 1 << 31))
        left = count
        for operands in source:
            kept = operands if left is None else [x[:left] for x in operands]
            if len(kept[0]):
                results, flags = self.evaluate(kept)
                yield [*kept, results, *(() if flags is None else (flags,))]
            if left is not None and (left := left - len(kept[0])) <= 0:
                return

    def _every_operand(self) -> Iterator[list[Codes]]:
        bits = sum(x.bits * x.count for x in self.operands)
        if bits > _ALL_BITS:
            raise ValueError(
                f"count: the operands of {self.title} have {bits} bits; all operands are listed up to {_ALL_BITS} "
                "bits. Give a number of vectors"
            )
        for start in range(0, 1 << bits, BLOCK):
            words = np.arange(start, min(1 << bits, start + BLOCK), dtype=np.uint64)
            codes: list[Codes] = []
            for x in reversed(self.operands):
                parts = []
                for _ in range(x.count):
                    parts.append(words & np.uint64((1 << x.bits) - 1))
                    words = words >> np.uint64(x.bits)
                column = np.stack(parts[::-1], axis=1) if x.count > 1 else parts[0]
                codes.append(column.astype(f"u{x.storage // 8}"))
            yield codes[::-1]

    def vectors(self, count: int | None = None, seed: int = 0) -> list[NDArray[Any]]:
        """Return the vectors of `blocks` as one array for each column."""
        blocks = list(self.blocks(count, seed))
        return [np.concatenate(column) for column in zip(*blocks, strict=True)]

    def write(
        self, file: IO[bytes], kind: FileType, count: int | None = 1000, seed: int = 0, width: int | None = None
    ) -> tuple[int, str]:
        """Write the vectors to a binary file. Return their number, and the SHA-256 of all bytes.

        Parameters
        ----------
        file : binary file
            Where to write.
        kind : FileType
            The type of the file.
        count, seed : int
            As for `blocks`.
        width : int, optional
            The bits of a word of `$readmemh`.

        Raises
        ------
        ValueError
            If a vector is wider than a word.
        """
        writer, digest = VectorWriter(kind, self.columns, width), hashlib.sha256()
        total = 1 << sum(x.bits * x.count for x in self.operands) if count is None else count
        written = 0

        def put(text: bytes) -> None:
            digest.update(text)
            file.write(text)

        for block in self.blocks(count, seed):
            if not written:
                put(writer.head(self.title, total, seed, floatsim.__version__))
            put(writer.lines(block))
            written += len(block[0])
        put(writer.tail())
        return written, digest.hexdigest()

    def digest(self, count: int | None = None, seed: int = 0) -> str:
        """Return the SHA-256 of all columns as little-endian bytes, block by block, which no type of file changes."""
        total = hashlib.sha256()
        for block in self.blocks(count, seed):
            total.update(bytes.fromhex(digest_of(block)))
        return total.hexdigest()

    def compare(
        self, operands: Sequence[Codes], results: Any, flags: Any = None, check_nans: bool = False
    ) -> VectorComparison:
        """Compare given results with the unit's, explain the first mismatch, and look for the cause.

        Parameters
        ----------
        operands : sequence of arrays
            The codes of the operands: one array for each.
        results : array_like of int
            The given codes, one for each vector. None stands for an unknown value (`x` of a simulator).
        flags : array_like of int, optional
            The given flags. Default: they are not compared.
        check_nans : bool
            Whether NaNs must have equal bits. Otherwise a NaN equals every NaN.

        Returns
        -------
        VectorComparison

        Raises
        ------
        ValueError
            If the numbers of results and vectors differ, or flags are given for a unit that has none.
        """
        expected, wanted = self.evaluate(operands)
        given, unknown = _given(results, "results", len(expected))
        differs = self._differing(expected, given, check_nans) | unknown
        extra = None
        if flags is not None:
            if wanted is None:
                raise ValueError(f"flags: {self.title} has no flags")
            extra, strange = _given(flags, "flags", len(expected))
            differs |= (extra != wanted) | strange
        where = np.flatnonzero(differs)
        if not where.size:
            return VectorComparison(self.title, len(expected), 0)

        def words(i: int) -> str:
            got = None if unknown[i] else int(given[i])
            events = None if wanted is None or extra is None else (int(wanted[i]), int(extra[i]))
            return f"vector {i}: {self._in_words([x[i] for x in operands], int(expected[i]), got, events)}"

        explained = self._causes([x[where] for x in operands], given[where], unknown[where],
                                 None if extra is None else extra[where], check_nans)  # fmt: skip
        causes = {name: int(same.sum()) for name, same in explained.items()}
        best = next(iter(explained.values()), np.zeros(len(where), bool))
        left = where[~best] if 2 * best.sum() >= len(where) else where[:0]
        return VectorComparison(
            self.title, len(expected), len(where), int(where[0]), words(int(where[0])), causes,
            words(int(left[0])) if left.size else "",
        )  # fmt: skip

    def _differing(self, expected: Codes, given: NDArray[np.uint64], check_nans: bool) -> NDArray[np.bool_]:
        differs: NDArray[np.bool_] = expected.astype(np.uint64) != given
        if not check_nans:
            differs &= ~(self._is_nan(expected) & self._is_nan(given.astype(expected.dtype)))
        return differs

    def _causes(
        self, operands: Sequence[Codes], given: NDArray[np.uint64], unknown: NDArray[np.bool_], flags: Any,
        check_nans: bool,
    ) -> dict[str, NDArray[np.bool_]]:  # fmt: skip
        """Return where each alternative returns the given results, the best first."""
        found = {}
        for words, unit in self._alternatives():
            results, events = unit.evaluate(operands)
            same = ~self._differing(results, given, check_nans) & ~unknown
            if flags is not None and events is not None:
                same &= events == flags
            if same.any():
                found[words] = same
        return dict(sorted(found.items(), key=lambda item: -int(item[1].sum())))

    def _in_words(
        self, operands: Sequence[Any], expected: int, given: int | None, flags: tuple[int, int] | None
    ) -> str:
        got = "unknown (x or z)" if given is None else self._number(given, self.output)
        parts = ["; ".join(self._operand(x, code) for x, code in zip(self.operands, operands, strict=True))]
        parts.append(f"  given    {got}")
        parts.append(f"  expected {self._number(expected, self.output)}{self._distance(expected, given)}")
        if flags is not None and flags[0] != flags[1]:
            wanted, seen = (", ".join(flag_names(x) + ["divide_by_zero"] * bool(x & 8)) or "none" for x in flags)
            parts.append(f"  flags    given {seen}; expected {wanted}")
        steps = self._steps(operands, expected, given)
        return "\n".join([*parts, *(f"  {line}".rstrip() for line in steps.splitlines())])

    def _operand(self, column: Column, code: Any) -> str:
        if column.count == 1:
            return f"{column.name} = {self._number(int(code), column)}"
        texts = [self._number(int(x), column) for x in np.atleast_1d(code)]
        kept = texts if len(texts) <= 4 else [*texts[:4], "..."]
        return f"{column.name} = [{', '.join(kept)}]"

    def _number(self, code: int, column: Column) -> str:
        fmt = column.kind
        if not isinstance(fmt, FloatFormat):
            value = "" if fmt is None else f" ({np.array(code, f'u{fmt.itemsize}').view(fmt)})"
            return f"0x{code:0{column.digits}X}{value}"
        if code >> fmt.bits:
            return f"0x{code:X} (wider than {fmt.name})"
        return f"{code_text(code, fmt)} ({float(decode(np.array(code, fmt.code_dtype), fmt)):.9g})"

    def _distance(self, expected: int, given: int | None) -> str:
        fmt = self.output.kind
        if not isinstance(fmt, FloatFormat) or given is None or given >> fmt.bits or fmt.is_scale:
            return ""
        pair = [from_codes(np.array([code], fmt.code_dtype), fmt) for code in (expected, given)]
        if not all(np.isfinite(x.values[0]) for x in pair) or expected == given:
            return ""
        distance = int(np.asarray(ulp_distance(*pair))[0])
        return f", {distance} number{'s' * (distance != 1)} apart" if distance else ", another sign of zero"


def _column(name: str, kind: FloatFormat | np.dtype[Any], count: int = 1) -> Column:
    return Column(name, kind.bits if isinstance(kind, FloatFormat) else 8 * kind.itemsize, count, kind)


def _given(values: Any, argument: str, count: int) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """Return given codes, and where they are unknown."""
    items = values.tolist() if isinstance(values, np.ndarray) and values.dtype == object else values
    if isinstance(items, list | tuple):
        unknown = np.array([x is None for x in items], bool)
        codes = np.array([0 if x is None else int(x) for x in items], np.uint64)
    else:
        codes = np.asarray(values).astype(np.uint64)
        unknown = np.zeros(codes.shape, bool)
    if codes.shape != (count,):
        raise ValueError(f"{argument} has {codes.size} numbers; there are {count} vectors")
    return codes, unknown


# -- operations and conversions ----------------------------------------------------------------------------------------


class _ScalarUnit(HardwareUnit):
    def __init__(
        self, operation: str, sources: tuple[FloatFormat | np.dtype[Any], ...], result: FloatFormat | np.dtype[Any],
        options: dict[str, Any],
    ) -> None:  # fmt: skip
        self.operation, self.sources, self.result = operation, sources, result
        self.options = _DEFAULTS | options
        names = OPERATIONS[operation].operands
        self.operands = tuple(_column(name, kind) for name, kind in zip(names, sources, strict=True))
        self.output = (
            Column("result", 1, note="true 1, false 0") if operation in _RELATIONS else _column("result", result)
        )
        self.has_flags = True
        source = _name(sources[0])
        to = "" if result == sources[0] or operation in _RELATIONS else f" to {_name(result)}"
        changed = "".join(f", {key}={value!r}" for key, value in self.options.items() if value != _DEFAULTS[key])
        self.title = f"{operation} of {source}{to}{changed}"

    def _operand_blocks(self, seed: int) -> Iterator[list[Codes]]:
        if isinstance(self.sources[0], FloatFormat):
            result = self.result if isinstance(self.result, FloatFormat) else self.sources[0]
            sources = tuple(x for x in self.sources if isinstance(x, FloatFormat))
            name = "rint" if isinstance(self.result, np.dtype) and self.operation == "convert" else self.operation
            return operand_blocks(name, sources, result, seed)
        assert isinstance(self.result, FloatFormat)
        return _integer_blocks(self.sources[0], self.result, seed)

    def evaluate(self, operands: Sequence[Codes]) -> tuple[Codes, NDArray[np.uint8]]:
        options: dict[str, Any] = self.options | {"return_flags": True}
        result: Any
        if isinstance(self.sources[0], np.dtype):
            assert isinstance(self.result, FloatFormat)
            floats, flags = from_integer(operands[0].view(self.sources[0]), self.result, **options)
            codes = floats.codes if isinstance(floats, FloatArray) else np.asarray(floats).view(self.result.code_dtype)
            return codes, flags & FLAGS
        arrays = [from_codes(x, fmt) for x, fmt in zip(operands, self.sources, strict=True)
                  if isinstance(fmt, FloatFormat)]  # fmt: skip
        if self.operation in _RELATIONS:
            result, flags = getattr(comparison, self.operation)(
                *arrays, daz=self.options["daz"], return_flags=True
            )  # fmt: skip
            return np.asarray(result).astype(np.uint8), flags & FLAGS
        if self.operation == "convert" and isinstance(self.result, np.dtype):
            result, flags = to_integer(arrays[0], self.result, **options)
            return np.asarray(result).view(f"u{self.result.itemsize}"), flags & FLAGS
        if self.operation == "convert":
            assert isinstance(self.result, FloatFormat)
            result, flags = convert(arrays[0], self.result, **options)
        else:
            if self.result != self.sources[0]:
                options["format"] = self.result
            result, flags = getattr(_home(self.operation), self.operation)(*arrays, **options)
        return result.codes, flags & FLAGS

    def _is_nan(self, codes: Codes) -> NDArray[np.bool_]:
        if self.operation in _RELATIONS or not isinstance(self.result, FloatFormat):
            return np.zeros(len(codes), bool)
        valid = codes & codes.dtype.type((1 << self.result.bits) - 1)
        nan: NDArray[np.bool_] = np.asarray(comparison.isnan(from_codes(valid, self.result))) & (valid == codes)
        return nan

    def _alternatives(self) -> Iterator[tuple[str, HardwareUnit]]:
        for words, options in _CAUSES.items():
            if self.options | options != self.options and self.operation not in _RELATIONS:
                yield words, _ScalarUnit(self.operation, self.sources, self.result, self.options | options)
        if self.operation == "fma":
            yield "a product that is rounded before the sum", _Unfused("fma", self.sources, self.result, self.options)

    def _steps(self, operands: Sequence[Any], result: int, given: int | None) -> str:
        fmt = self.result
        if not isinstance(fmt, FloatFormat):
            return ""
        if isinstance(self.sources[0], np.dtype):
            return str(explain_rounding(int(operands[0].view(self.sources[0])), fmt, **self.options))
        numbers: list[Any] = [from_codes(np.array(code, source.code_dtype), source)
                              for code, source in zip(operands, self.sources, strict=True)
                              if isinstance(source, FloatFormat)]  # fmt: skip
        name, options = self.operation, self.options
        if name == "convert":
            return str(explain_rounding(numbers[0], fmt, **options))
        if name == "subtract" and fmt.signed and not np.isnan(numbers[1].item()):
            name, numbers = "add", [numbers[0], arithmetic.negative(numbers[1])]
        if name in _EXPLAINED:
            explain: Any = _EXPLAINED[name]
            return str(explain(*numbers, fmt, **options))
        return str(self._exact_steps(numbers) or "")

    def _exact_steps(self, numbers: Sequence[FloatArray]) -> Explanation | None:
        """Explain the rounding of the exact result; None for a function, and if an operand or the result is special."""
        if self.operation not in _EXACT or not isinstance(self.result, FloatFormat):
            return None
        if any(not np.isfinite(x.item()) or x.item() == 0 for x in numbers):
            return None
        if self.options["daz"] and any(comparison.issubnormal(x) for x in numbers):
            return None
        words, exact = _EXACT[self.operation]
        values = [Fraction(float(x.item())) for x in numbers]
        if (self.operation == "sqrt" and values[0] < 0) or not (value := exact(*values)):
            return None
        given = words.format(*(f"{float(x.item()):.9g}" for x in numbers))
        options: Any = self.options | {"daz": False}  # for the operands, which are normal here
        attributes = resolve(options).attributes
        number = replace(from_fraction(abs(value)), sign=int(value < 0))
        return explain_number(number, given, self.result, attributes, 0)


class _Unfused(_ScalarUnit):
    """A multiplication and an addition, each with a rounding."""

    def evaluate(self, operands: Sequence[Codes]) -> tuple[Codes, NDArray[np.uint8]]:
        product = _ScalarUnit("multiply", self.sources[:2], self.result, self.options)
        total = _ScalarUnit("add", self.sources[1:], self.result, self.options)
        codes, first = product.evaluate(operands[:2])
        codes, second = total.evaluate([codes, operands[2]])
        return codes, first | second


_EXPLAINED = {"add": explain_add, "multiply": explain_multiply, "fma": explain_fma}


def _root(x: Fraction) -> Fraction:
    """Return the square root, or, if it is irrational, a number that every format here rounds as it rounds the root.

    The root is truncated to 512 bits or more, and followed by a bit 1. Every format has 53 bits of precision at most.
    """
    radicand = x.numerator * x.denominator << 1024
    root = math.isqrt(radicand)
    return Fraction(2 * root + (root * root != radicand), x.denominator << 513)


_EXACT: Mapping[str, tuple[str, Callable[..., Fraction]]] = {
    "divide": ("{} / {}", lambda a, b: a / b),
    "reciprocal": ("1 / {}", lambda a: 1 / a),
    "sqrt": ("sqrt({})", _root),
    "remainder": ("remainder({}, {})", lambda a, b: a - b * round(a / b)),
    "fmod": ("fmod({}, {})", lambda a, b: a - b * math.trunc(a / b)),
}
"""The text and the exact value of each operation whose first step is the rounding of a rational number."""


def _name(kind: FloatFormat | np.dtype[Any]) -> str:
    return kind.name


def _integer_blocks(dtype: np.dtype[Any], result: FloatFormat, seed: int) -> Iterator[list[Codes]]:
    """Yield integers: first the ends, powers of two and their neighbours; then numbers of random length.

    Every third one of these is half way between two numbers of the result, or beside that, if there are such integers.
    """
    limits, code = np.iinfo(dtype), f"u{dtype.itemsize}"
    corners = [0, 1, -1, limits.max, limits.min, limits.max - 1, limits.min + 1]
    corners += [sign * ((1 << bit) + step) for bit in range(1, limits.bits) for step in (-1, 0, 1) for sign in (1, -1)]
    kept = list(dict.fromkeys(x for x in corners if limits.min <= x <= limits.max))
    yield [np.array(kept, dtype).view(code)]
    for block in itertools.count():
        draw = draws(seed, block)
        words = draw.words(BLOCK) >> (draw.below(limits.bits, BLOCK) + 64 - limits.bits).astype(np.uint64)
        signs = draw.below(2, BLOCK).astype(bool) & (limits.min < 0)
        free = limits.max.bit_length() - (result.precision + 1)
        if free >= 0:
            odd = draw.words(BLOCK) >> np.uint64(63 - result.precision) | np.uint64(1 << result.precision | 1)
            ties = odd << draw.below(free + 1, BLOCK).astype(np.uint64)
            ties += (draw.below(3, BLOCK) - 1).astype(np.uint64)
            words = np.where(np.arange(BLOCK) % 3 == 0, ties, words)
        yield [np.where(signs, ~words + np.uint64(1), words).astype(code)]


# -- dot products ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _DotShape:
    """The facts about a dot product that `input_set` reads."""

    a: FloatFormat
    b: FloatFormat
    output: FloatFormat
    k: int
    scales: None = None
    scale_blocks: int = 0


class _DotUnit(HardwareUnit):
    has_flags = False

    def __init__(self, shape: Unit | _DotShape, accumulate: Any, result: FloatFormat, options: dict[str, Any]) -> None:
        self.shape, self.accumulate, self.result, self.options = shape, accumulate, result, options
        scales = shape.scales
        sides = [_column("scale_a", scales.format, shape.scale_blocks),
                 _column("scale_b", scales.format, shape.scale_blocks)] if scales else []  # fmt: skip
        self.operands = (_column("a", shape.a, shape.k), _column("b", shape.b, shape.k),
                         _column("c", shape.output), *sides)  # fmt: skip
        self.output = _column("result", result)
        changed = "".join(f", {key}={value!r}" for key, value in options.items() if value != _DEFAULTS[key])
        whose = str(shape) if isinstance(shape, Unit) else f"{accumulate}: {shape.a} x {shape.b} to {result}"
        self.title = f"c + dot product of {shape.k}, {whose}{changed}"

    def _operand_blocks(self, seed: int) -> Iterator[list[Codes]]:
        shape: Any = self.shape
        yield self._corners()
        for block in itertools.count():
            inputs = input_set(shape, _DOT_BLOCK, seed * (1 << 20) + block)
            columns = [inputs.a, inputs.b, inputs.c, *(inputs.scales or ())]
            ends = [round(_DOT_BLOCK * share / 10) for share in np.cumsum(list(SHARES.values())).tolist()]
            parts: list[Any] = [[x[start:end] for x in columns] for start, end in itertools.pairwise([0, *ends])]
            yield [np.asarray(x) for x in interleaved(parts[::-1])]

    def _corners(self) -> list[Codes]:
        """Return rows with one product of corner codes, then rows whose products are all one corner code times 1.

        c is a corner code in turn, so that each kind of product meets each kind of c.
        """
        shape = self.shape
        pairs = np.array(list(itertools.product(corner_codes(shape.a), corner_codes(shape.b))), np.uint64)
        one_a, one_b = (int(encode(1.0, fmt)) for fmt in (shape.a, shape.b))
        ends = [[(code, one_b) for code in corner_codes(shape.a)], [(one_a, code) for code in corner_codes(shape.b)]]
        same = np.array([*ends[0], *ends[1], (shape.a.max_code, shape.b.max_code)], np.uint64)
        n = len(pairs) + len(same)
        sides = []
        for side, fmt in enumerate((shape.a, shape.b)):
            codes = np.zeros((n, shape.k), fmt.code_dtype)
            codes[: len(pairs), 0] = pairs[:, side]
            codes[len(pairs) :] = same[:, side : side + 1]
            sides.append(codes)
        of_c = np.array(corner_codes(shape.output), shape.output.code_dtype)
        columns = [*sides, of_c[np.arange(n) % len(of_c)]]
        if shape.scales:
            one = encode(np.ones((n, shape.scale_blocks)), shape.scales.format)
            columns += [one, one]
        return columns

    def evaluate(self, operands: Sequence[Codes]) -> tuple[Codes, None]:
        a, b, c = (np.asarray(x) for x in operands[:3])
        if isinstance(self.shape, Unit):
            a, b = a.reshape(len(c), -1), b.reshape(len(c), -1)
            scales = None
            if self.shape.scales:
                scales = ScaleCodes(*(np.asarray(x).reshape(len(c), -1) for x in operands[3:]))
            return self.shape.dots(a, b, c, scales), None
        shape = self.shape
        # The kernels that count events take the whole batch at once; the other ones take one product after the other.
        counted = nullcontext() if isinstance(self.accumulate, Exact) else record()
        with counted:
            products: Any = matmul(
                from_codes(a.reshape(len(c), 1, -1), shape.a), from_codes(b.reshape(len(c), -1, 1), shape.b),
                from_codes(c.reshape(len(c), 1, 1), shape.output), accumulate=self.accumulate, format=self.result,
                **(_DEFAULTS | self.options),
            )  # fmt: skip
        return products.codes.reshape(len(c)), None

    def _is_nan(self, codes: Codes) -> NDArray[np.bool_]:
        valid = codes & codes.dtype.type((1 << self.result.bits) - 1)
        nan: NDArray[np.bool_] = np.asarray(comparison.isnan(from_codes(valid, self.result))) & (valid == codes)
        return nan

    def _alternatives(self) -> Iterator[tuple[str, HardwareUnit]]:
        if isinstance(self.shape, Unit):
            seen = [self.shape.row.model]
            for other in units():
                same = (other.a, other.b, other.output, other.k, other.scales)
                if same == (self.shape.a, self.shape.b, self.shape.output, self.shape.k, self.shape.scales) and (
                    other.row.model not in seen
                ):
                    seen.append(other.row.model)
                    yield f"the unit {other.arch} {other.name}", _DotUnit(other, None, self.result, {})
            if self.shape.scales:
                return
        else:
            for words, options in _CAUSES.items():
                if _DEFAULTS | self.options | options != _DEFAULTS | self.options:
                    yield words, _DotUnit(self.shape, self.accumulate, self.result, self.options | options)
        shape = _DotShape(self.shape.a, self.shape.b, self.shape.output, self.shape.k)
        for text in ("exact", "sequential", "sequential({}, fused)", "pairwise"):
            name = text.format(shape.output.name) if "{" in text else f"{text}({shape.output.name})"
            accumulation = as_accumulation(name)
            if accumulation != self.accumulate:
                yield f"accumulate={name.lower()!r}", _DotUnit(shape, accumulation, self.result, self.options)

    def _steps(self, operands: Sequence[Any], result: int, given: int | None) -> str:
        a, b = (from_codes(np.atleast_1d(x), fmt) for x, fmt in zip(operands, (self.shape.a, self.shape.b),
                                                                    strict=False))  # fmt: skip
        c = from_codes(np.array(operands[2], self.shape.output.code_dtype), self.shape.output)
        if isinstance(self.shape, Unit):
            scales = {}
            if self.shape.scales:
                scales = {name: from_codes(np.atleast_1d(x), self.shape.scales.format)
                          for name, x in zip(("scale_a", "scale_b"), operands[3:], strict=True)}  # fmt: skip
            return str(trace(a, b, c, accumulate=self.shape.accumulation, **scales))
        return str(trace(a, b, c, accumulate=self.accumulate, **(_DEFAULTS | self.options)))


# -- the public function -----------------------------------------------------------------------------------------------


def _kind(name: FormatLike | str, argument: str) -> FloatFormat | np.dtype[Any]:
    if isinstance(name, str) and name.lower() in _INTEGERS:
        return _INTEGERS[name.lower()]
    try:
        return as_format(name)
    except ValueError as error:
        raise ValueError(f"{argument}: {error}") from None


def hardware_unit(
    operation: str, format: FormatLike | str, to: FormatLike | str | None = None, *, b: FormatLike | None = None,
    accumulate: AccumulationLike | None = None, length: int | None = None, scales: FormatLike | None = None,
    **options: Any,
) -> HardwareUnit:  # fmt: skip
    """Return a unit of hardware under test: its vectors, their files, and the comparison with given results.

    Parameters
    ----------
    operation : str
        "convert", "dot", or the name of an operation: "add", "fma", "divide", "exp", "less" ...
    format : format
        The format of the operands. For "convert" also an integer type, as "int32".
    to : format, optional
        The format of the result. Default: that of the operands; for "dot" that of the accumulator. For "convert" also
        an integer type.
    b : format, optional
        The format of the second operand of "dot". Default: `format`.
    accumulate : accumulation or text, optional
        Of "dot": a matrix unit ("hopper", "tensorcore(ada, mma.m16n8k32)"), or any description
        ("sequential(fp32)", "pairwise(bf16)").
    length : int, optional
        Of "dot": the number of products. A matrix unit has one of its own. Default: 8.
    scales : format, optional
        Of "dot" with a block-scaled instruction: the format of the scales, E8M0 or E4M3.
    **options
        The rounding options: `rounding`, `overflow`, `tininess`, `daz` and `ftz`. Default: to nearest, ties to even,
        overflow to infinity, tininess after rounding. The defaults of `fs.context` are not read, so that a file of
        vectors depends on its arguments alone.

    Returns
    -------
    HardwareUnit

    Raises
    ------
    ValueError
        If a name is unknown, the unit does not take the formats or options, or the rounding is stochastic.

    Examples
    --------
    >>> import floatsim as fs, io
    >>> from floatsim.testing.vectors.vector_files import FILE_TYPES
    >>> unit = fs.testing.hardware_unit("convert", "fp32", "e4m3", overflow="saturate_finite")
    >>> out = io.BytesIO()
    >>> count, sha256 = unit.write(out, FILE_TYPES["csv"], count=3)
    >>> print(out.getvalue().decode())
    x,result,flags
    0x00000000,0x00,0x00
    0x80000000,0x80,0x00
    0x7F7FFFFF,0x7E,0x05
    <BLANKLINE>
    >>> dots = fs.testing.hardware_unit("dot", "e4m3", accumulate="hopper")
    >>> dots.title
    'c + dot product of 32, hopper wgmma.k32: E4M3 x E4M3 to FP32'
    """
    if operation not in UNIT_OPERATIONS:
        raise ValueError(f"operation: unknown operation {operation!r}; {name_hint(operation, UNIT_OPERATIONS)}")
    unknown = [key for key in options if key not in _DEFAULTS]
    if unknown:
        raise ValueError(f"unknown option {unknown[0]!r}; {name_hint(unknown[0], _DEFAULTS)}")
    given = {key: value for key, value in options.items() if value is not None}
    every: Any = {"seed": 0} | _DEFAULTS | given
    attributes = resolve(every).attributes
    if attributes.rounding is Rounding.STOCHASTIC:
        raise ValueError("rounding: vectors with stochastic rounding depend on the unit's random bits; name another")
    source, target = _kind(format, "format"), None if to is None else _kind(to, "to")
    if operation == "dot":
        return _dot_unit(source, target, b, accumulate, length, scales, given)
    for name, value in (("b", b), ("accumulate", accumulate), ("length", length), ("scales", scales)):
        if value is not None:
            raise ValueError(f"{name}={value!r} is for dot products: write the operation dot, not {operation}")
    if operation == "convert":
        if target is None:
            raise ValueError("to: a conversion needs the format of the result, such as to='e4m3' or to='int32'")
        if isinstance(source, np.dtype) and isinstance(target, np.dtype):
            raise ValueError(f"to={to!r}: conversions between two integer types have no rounding; name a float format")
    elif isinstance(source, np.dtype) or isinstance(target, np.dtype):
        integer = source if isinstance(source, np.dtype) else target
        raise ValueError(f"{integer} is an integer type: only the operation convert takes one, not {operation}")
    elif operation in _RELATIONS and target is not None:
        raise ValueError(f"to={to!r}: the result of {operation} is one bit")
    return _ScalarUnit(operation, (source,) * len(OPERATIONS[operation].operands), target or source, given)


def _dot_unit(
    source: FloatFormat | np.dtype[Any], target: FloatFormat | np.dtype[Any] | None, b: FormatLike | None,
    accumulate: AccumulationLike | None, length: int | None, scales: FormatLike | None, options: dict[str, Any],
) -> HardwareUnit:  # fmt: skip
    left, right = source, source if b is None else _kind(b, "b")
    if not (isinstance(left, FloatFormat) and isinstance(right, FloatFormat)) or isinstance(target, np.dtype):
        raise ValueError("dot: the operands and the result are formats of floats, not integer types")
    if accumulate is None:
        raise ValueError(
            "accumulate: a dot product needs a description of its sum, such as 'hopper' or 'sequential(fp32)'"
        )
    accumulation = as_accumulation(accumulate)
    if isinstance(accumulation, TensorCore):
        for name in options:
            raise ValueError(f"{name}: a matrix unit has its own roundings; {name} is for other descriptions")
        unit = _matrix_unit(accumulation, left, right, target, scales)
        if length not in (None, unit.k):
            raise ValueError(f"length={length}: {unit.arch} {unit.name} takes {unit.k} products")
        return _DotUnit(unit, accumulation, unit.output, {})
    if scales is not None:
        raise ValueError(f"scales={scales!r}: only block-scaled instructions take scales, not {accumulation}")
    k = as_index(8 if length is None else length, "length", 1, 1 << 16)
    one = [from_codes(np.zeros((1, 1), fmt.code_dtype), fmt) for fmt in (left, right)]
    product: Any = matmul(*one, accumulate=accumulation)
    output = product.format if isinstance(product, FloatArray) else as_format(product.dtype)
    return _DotUnit(_DotShape(left, right, output, k), accumulation, target or output, options)


def _matrix_unit(
    accumulation: TensorCore, a: FloatFormat, b: FloatFormat, target: FloatFormat | None, scales: FormatLike | None
) -> Unit:
    output = target or accumulation.output
    if scales is None:
        return named_unit(accumulation.arch, accumulation.instruction, a, b, output)
    wanted = as_format(scales)
    for unit in units(accumulation.arch):
        fits = unit.scales is not None and unit.scales.format == wanted and (unit.a, unit.b) == (a, b)
        if fits and accumulation.instruction in (None, unit.name) and output in (None, unit.output):
            return unit
    raise ValueError(
        f"scales: {accumulation.arch} has no instruction for {a} x {b} with scales in {wanted}; see "
        f"fs.tensorcore.table({accumulation.arch!r})"
    )
