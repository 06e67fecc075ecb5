"""Whether the bits of a row depend on the number of rows, their positions, the batch or the length of the sequence."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from floatsim.arrays.array.conversion import as_float_array
from floatsim.arrays.array.float_array import FloatArray
from floatsim.formats._validation import as_flag, as_index
from floatsim.testing.identify.identification import identify

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ShapeDifference", "ShapeInvariance", "assert_shape_invariant", "check_shape_invariant"]


@dataclass(frozen=True)
class ShapeDifference:
    """Two calls that return other bits for the same row.

    Attributes
    ----------
    kind : str
        What differs between the calls: "rows" (their number), "row position", "batch", "batch position" or "sequence"
        (its length).
    call, reference : str
        The two calls in words.
    row : tuple of int
        The first row with other bits: its index in the result of the reference call, without the last axis.
    rows : int
        The number of rows with other bits.
    elements : int
        The number of elements with other bits in the first of these rows.
    of : int
        The elements of a row.
    order, reference_order : str or None
        The orders of the sums of this row in both calls, as texts for `accumulate=`; None where none was identified.
    sizes : tuple of int
        The numbers of rows, batch entries or sequence entries of all calls of this kind with other bits. Empty for
        positions.

    Examples
    --------
    >>> import numpy as np
    >>> import floatsim as fs
    >>> def product(x, w):  # a library that splits K for few rows
    ...     return fs.matmul(x, w, accumulate="splitk(4, fp32, fp32)" if len(x) < 4 else "fp32")
    >>> rng = np.random.default_rng(0)
    >>> x, w = (rng.normal(size=shape).astype(np.float32) for shape in ((6, 64), (64, 8)))
    >>> found = fs.testing.check_shape_invariant(product, x, w, identify=False).differences[0]
    >>> found.kind, found.call, found.row, found.sizes
    ('rows', 'a call with 1 row', (0,), (1, 2, 3))
    """

    kind: str
    call: str
    reference: str
    row: tuple[int, ...]
    rows: int
    elements: int
    of: int
    order: str | None = None
    reference_order: str | None = None
    sizes: tuple[int, ...] = ()

    def __str__(self) -> str:
        row = self.row[0] if len(self.row) == 1 else self.row
        text = (
            f"{self.kind}: row {row} has other bits in {self.call} than in {self.reference}: {self.elements} of its "
            f"{self.of} elements, and {self.rows} row{'s' * (self.rows != 1)} in all"
        )
        if self.order is not None or self.reference_order is not None:
            text += f"\n  {self.call}: {self.order or 'no description was identified'}"
            text += f"\n  {self.reference}: {self.reference_order or 'no description was identified'}"
        if len(self.sizes) > 1:
            text += f"\n  all numbers with other bits: {', '.join(map(str, self.sizes))}"
        return text


@dataclass(frozen=True)
class ShapeInvariance:
    """The differences that a check found, one for each kind, and the number of calls. Prints as text.

    Attributes
    ----------
    differences : tuple of ShapeDifference
        The first difference of each kind. None: the bits of each row were equal in all calls.
    calls : int
        The calls that were compared with the reference call.
    kinds : tuple of str
        The kinds that were checked.

    Examples
    --------
    >>> import numpy as np
    >>> import floatsim as fs
    >>> x = np.random.default_rng(0).normal(size=(6, 64)).astype(np.float32)
    >>> fs.testing.check_shape_invariant(lambda x: fs.sum(x, axis=1, accumulate="fp32"), x)
    the bits of each row are equal in 8 calls: rows, row position
    """

    differences: tuple[ShapeDifference, ...]
    calls: int
    kinds: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether no row had other bits."""
        return not self.differences

    def __str__(self) -> str:
        if self.passed:
            return f"the bits of each row are equal in {self.calls} calls: {', '.join(self.kinds)}"
        return "\n".join(map(str, self.differences))

    __repr__ = __str__


@dataclass(frozen=True)
class _Call:
    """One call: for each operand, the indices that it takes on an axis; and the same for rows of the reference."""

    kind: str
    text: str
    axis: int
    indices: NDArray[np.int64]
    every_operand: bool = False


def check_shape_invariant(
    f: Callable[..., Any], *operands: Any, rows: int | None = None, batch: int | None = None,
    sequence: int | None = None, sizes: Iterable[int] | None = None, identify: bool = True,
) -> ShapeInvariance:  # fmt: skip
    """Compare the bits of each row of `f(*operands)` with those of calls of other shapes.

    Parameters
    ----------
    f : callable
        Called as f(x, *others) with arrays of the libraries and dtypes of `operands`. It returns an array of floats
        whose axes `rows`, `batch` and `sequence` are those of x. In exact arithmetic, no row depends on another.
    *operands : array_like of floats
        The first one, x, has the rows. The others, such as weights, stay the same; `sequence` is the exception.
    rows : int, optional
        The axis of x and of the result with the rows. Default: 0 for a matrix, and the axis before the last one if x
        has more axes.
    batch : int, optional
        The axis of x and of the result with the entries of the batch. Default: 0 if x has three or more axes, else
        none. Other operands with as many axes as x, and as many entries on this axis, are cut as x is.
    sequence : int, optional
        The axis of all operands, and of the result, that is a sequence. f must be causal: entry i of the result depends
        on the entries 0 to i alone. Calls with shorter sequences are compared. Default: none. The axis of the rows is
        not varied by itself then, if it is the same.
    sizes : iterable of int, optional
        The numbers of rows, batch entries and sequence entries to call f with. Rows and batch entries repeat where x
        has fewer. Default: 1, 2, 3, 4, 8, 16 and so on, the number in x minus 1, and twice that in x.
    identify : bool
        Whether the orders of both calls are identified where f is a product of x and one other operand. It calls f many
        times, and only if a difference was found.

    Returns
    -------
    ShapeInvariance

    Raises
    ------
    TypeError
        If f is no function, there is no operand, or the result holds no floats.
    ValueError
        If an axis or a size is outside its range, the result has another number of rows than x, or f returns other bits
        for the same operands.

    Notes
    -----
    Each call gets new, contiguous arrays. That no difference was found is no proof for other shapes and values: choose
    sizes on both sides of those at which a library changes its kernel.

    Examples
    --------
    >>> import numpy as np
    >>> import floatsim as fs
    >>> def product(x, w):  # a library that splits K for few rows
    ...     return fs.matmul(x, w, accumulate="splitk(4, fp32, fp32)" if len(x) < 4 else "fp32")
    >>> rng = np.random.default_rng(0)
    >>> x, w = (rng.normal(size=shape).astype(np.float32) for shape in ((6, 64), (64, 8)))
    >>> check_shape_invariant(product, x, w, identify=False)
    rows: row 0 has other bits in a call with 1 row than in the call with 6 rows: 6 of its 8 elements, and 1 row in all
      all numbers with other bits: 1, 2, 3
    """
    if not callable(f):
        raise TypeError(f"f must be a function of the operands, not {f!r}")
    if not operands:
        raise TypeError("f needs at least one operand: pass x behind f")
    name_orders = as_flag(identify, "identify")
    check = _Check(f, operands, rows, batch, sequence)
    wanted = None if sizes is None else [as_index(size, "a size", 1, 1 << 40) for size in sizes]
    found: dict[str, ShapeDifference] = {}
    differing: dict[str, list[int]] = {}
    calls = list(check.calls(wanted))
    for call in calls:
        difference = check.difference(call)
        if difference is None:
            continue
        differing.setdefault(call.kind, []).extend([] if call.kind.endswith("position") else [len(call.indices)])
        if call.kind not in found:
            found[call.kind] = check.named(difference, call) if name_orders else difference
    found = {kind: replace(difference, sizes=tuple(differing[kind])) for kind, difference in found.items()}
    return ShapeInvariance(tuple(found.values()), len(calls), tuple(dict.fromkeys(call.kind for call in calls)))


def assert_shape_invariant(
    f: Callable[..., Any], *operands: Any, rows: int | None = None, batch: int | None = None,
    sequence: int | None = None, sizes: Iterable[int] | None = None, identify: bool = True,
) -> ShapeInvariance:  # fmt: skip
    """Raise an AssertionError if the bits of a row depend on the shape of the call or on the row's place.

    Parameters
    ----------
    f, *operands, rows, batch, sequence, sizes, identify
        As of `check_shape_invariant`.

    Returns
    -------
    ShapeInvariance
        Without differences.

    Raises
    ------
    AssertionError
        Its text names what the bits depend on, the first row that differs, and the orders of both calls.
    TypeError, ValueError
        As `check_shape_invariant`.

    Examples
    --------
    >>> import numpy as np
    >>> import floatsim as fs
    >>> rng = np.random.default_rng(0)
    >>> x, w = (rng.normal(size=shape).astype(np.float32) for shape in ((6, 64), (64, 8)))
    >>> assert_shape_invariant(lambda x, w: fs.matmul(x, w, accumulate="splitk(4, fp32, fp32)"), x, w)
    the bits of each row are equal in 8 calls: rows, row position
    """
    __tracebackhide__ = True
    report = check_shape_invariant(
        f, *operands, rows=rows, batch=batch, sequence=sequence, sizes=sizes, identify=identify
    )
    if not report.passed:
        raise AssertionError(f"the bits of a row depend on the shape of the call\n{report}")
    return report


def _axis(axis: int | None, default: int | None, dimensions: int, argument: str) -> int | None:
    if axis is None:
        return default
    found = as_index(axis, argument, -dimensions, dimensions - 1)
    return found % dimensions


class _Check:
    """A function, its operands, and the result of the reference call."""

    def __init__(
        self, f: Callable[..., Any], operands: tuple[Any, ...], rows: int | None, batch: int | None,
        sequence: int | None,
    ) -> None:  # fmt: skip
        self.f, self.operands = f, operands
        self.shape = _shape(operands[0])
        dimensions = len(self.shape)
        if not dimensions:
            raise ValueError("the first operand has no axis of rows")
        self.rows = _axis(rows, max(0, dimensions - 2), dimensions, "rows")
        self.batch = _axis(batch, 0 if dimensions > 2 else None, dimensions, "batch")
        self.sequence = _axis(sequence, None, dimensions, "sequence")
        if self.batch is not None and self.batch in (self.rows, self.sequence):
            raise ValueError(f"batch={self.batch} is also the axis of the rows or of the sequence")
        if min(self.shape) == 0:
            raise ValueError(f"the first operand has the shape {self.shape}: it holds no rows")
        if self.sequence is not None:
            self._check_sequence(self.sequence)
        self.reference = self._result(*map(_fresh, operands))
        for name, axis in (("rows", self.rows), ("batch", self.batch), ("sequence", self.sequence)):
            if axis is not None and self._length(self.reference, axis) != self.shape[axis]:
                raise ValueError(
                    f"the result of f has the shape {self.reference.shape}; its axis {axis} ({name}) must have "
                    f"{self.shape[axis]} entries, as x has"
                )
        if (self._result(*map(_fresh, operands)).codes != self.reference.codes).any():
            raise ValueError("f returns other bits for the same operands: it is not deterministic")

    def _check_sequence(self, axis: int) -> None:
        for i, operand in enumerate(self.operands):
            if len(_shape(operand)) <= axis or _shape(operand)[axis] != self.shape[axis]:
                raise ValueError(
                    f"operand {i} has the shape {_shape(operand)}; sequence={axis} must be an axis of all operands "
                    f"with {self.shape[axis]} entries"
                )

    @staticmethod
    def _length(result: FloatArray, axis: int) -> int | None:
        return result.shape[axis] if axis < len(result.shape) else None

    def _result(self, *operands: Any) -> FloatArray:
        return as_float_array(self.f(*operands), "the result of f").copy()

    def calls(self, sizes: list[int] | None) -> Iterator[_Call]:
        """Yield the calls to compare with the reference call."""
        for kind, axis in (("rows", self.rows), ("batch", self.batch)):
            if axis is None or axis == self.sequence:
                continue
            n = self.shape[axis]
            unit, units = ("row", "rows") if kind == "rows" else ("batch entry", "batch entries")
            for size in _sizes(n, sizes, 2 * n):
                text = f"a call with {size} {unit if size == 1 else units}"
                yield _Call(kind, text, axis, np.arange(size, dtype=np.int64) % n)
            if n > 1:
                order = np.arange(n, dtype=np.int64)
                yield _Call(f"{unit.split()[0]} position", f"a call with the {units} reversed", axis, order[::-1])
                text = f"a call with the {units} rotated by one"
                yield _Call(f"{unit.split()[0]} position", text, axis, np.roll(order, 1))
        if self.sequence is not None:
            n = self.shape[self.sequence]
            for size in _sizes(n, sizes, n):
                if size <= n:
                    indices = np.arange(size, dtype=np.int64)
                    yield _Call("sequence", f"a call with a sequence of {size}", self.sequence, indices, True)

    def _taken(self, call: _Call) -> list[Any]:
        n, cut = self.shape[call.axis], []
        for i, operand in enumerate(self.operands):
            shape = _shape(operand)
            shares = call.axis == self.batch and len(shape) == len(self.shape) and shape[call.axis] == n
            takes = i == 0 or call.every_operand or shares
            cut.append(_fresh(_take(operand, call.axis, call.indices)) if takes else _fresh(operand))
        return cut

    def difference(self, call: _Call) -> ShapeDifference | None:
        """Return the difference of a call, or None."""
        found = self._result(*self._taken(call))
        expected = np.take(self.reference.codes, call.indices, axis=call.axis)
        if found.shape != expected.shape or found.format != self.reference.format:
            raise ValueError(
                f"{call.text}: f returned {found.format.name} of shape {found.shape}, not "
                f"{self.reference.format.name} of shape {expected.shape}"
            )
        differs = found.codes != expected
        if not differs.any():
            return None
        last = differs.ndim - 1
        per_row = differs if last in (self.rows, self.batch) else differs.sum(axis=last)
        place = tuple(map(int, np.argwhere(per_row)[0]))
        row = tuple(int(call.indices[i]) if axis == call.axis else i for axis, i in enumerate(place))
        of = 1 if per_row is differs else differs.shape[last]
        return ShapeDifference(
            call.kind, call.text, self._reference_text(call), row, int((per_row != 0).sum()), int(per_row[place]), of
        )

    def _reference_text(self, call: _Call) -> str:
        n = self.shape[call.axis]
        if call.kind == "sequence":
            return f"the call with a sequence of {n}"
        if call.kind.endswith("position"):
            return "the call in order"
        unit = ("row" if n == 1 else "rows") if call.kind == "rows" else "batch entry" if n == 1 else "batch entries"
        return f"the call with {n} {unit}"

    # -- the orders ----------------------------------------------------------------------------------------------------

    def named(self, difference: ShapeDifference, call: _Call) -> ShapeDifference:
        """Return the difference with the orders of its row in both calls, where they are identified."""
        if len(self.operands) != 2 or call.every_operand or self.rows is None:
            return difference
        shape, other = self.shape, _shape(self.operands[1])
        if len(other) < 2 or other[-2] != shape[-1] or self.rows != len(shape) - 2:
            return difference
        changed = list(shape)
        changed[call.axis] = len(call.indices)
        at = np.flatnonzero(call.indices == difference.row[call.axis])[0]
        place = tuple(int(at) if axis == call.axis else i for axis, i in enumerate(difference.row))
        order, reference = (
            self._order(tuple(size), index) for size, index in ((changed, place), (shape, difference.row))
        )
        return ShapeDifference(**{**vars(difference), "order": order, "reference_order": reference})

    def _order(self, shape: tuple[int, ...], place: tuple[int, ...]) -> str | None:
        """Return the order of one row of a call of a shape: all its rows are this row."""
        x, w = self.operands
        batches = _shape(w)[:-2]

        def one_row(a: Any, b: Any) -> Any:
            several = _fresh(_filled(a, shape))
            weights = _filled_front(b, (shape[0], *batches[1:]) if batches else ())
            result = self.f(several, _fresh(weights))
            return result[(*place[:-1], slice(place[-1], place[-1] + 1))]

        row = x[(*[0] * (len(shape) - 2), slice(0, 1))]
        weights = w[(0,) * len(batches)] if batches else w
        try:
            found = identify(one_row, _fresh(row), _fresh(weights), other_k=False)
        except (TypeError, ValueError):
            return None
        return found.names[0] if found.names else None


def _sizes(n: int, sizes: Sequence[int] | None, most: int) -> list[int]:
    if sizes is None:
        usual = {1, 2, 3, n - 1, most, *(1 << i for i in range(2, n.bit_length()))}
        sizes = sorted(size for size in usual if size > 0)
    return [size for size in dict.fromkeys(sizes) if size != n]


def _shape(x: Any) -> tuple[int, ...]:
    return tuple(int(n) for n in np.shape(x)) if not hasattr(x, "shape") else tuple(int(n) for n in x.shape)


def _fresh(x: Any) -> Any:
    """Return a contiguous copy in the array's library."""
    if isinstance(x, np.ndarray):
        return np.ascontiguousarray(x).copy()
    if hasattr(x, "contiguous"):  # torch
        return x.detach().clone().contiguous()
    return copy.deepcopy(x)


def _take(x: Any, axis: int, indices: NDArray[np.int64]) -> Any:
    return x[(*[slice(None)] * axis, indices.tolist())]


def _filled(row: Any, shape: tuple[int, ...]) -> Any:
    """Return an array of a shape whose rows are all one row (1, K)."""
    return _filled_front(row[[0] * shape[-2]], shape[:-2])


def _filled_front(matrix: Any, front: tuple[int, ...]) -> Any:
    """Return a matrix, repeated along new axes in front."""
    for n in reversed(front):
        matrix = matrix[None][[0] * n]
    return matrix
