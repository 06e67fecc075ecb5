"""Survey matrix products: multiply real matrices in several formats and accumulators, count the events and errors."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from floatsim.accumulation import (
    Accumulation,
    Exact,
    TensorCore,
    fitted,
    tensor_cores,
)
from floatsim.analysis.survey.report import (
    Product,
    SurveyReport,
    SurveyRow,
    TensorRow,
    resolve_accumulator,
)
from floatsim.arrays.call.options import one_call
from floatsim.arrays.events.record import record
from floatsim.formats import BF16, E4M3, E5M2, FP16, FP32, FP64, FloatFormat, FormatLike, as_format
from floatsim.tensorcore.architectures import ARCHITECTURES

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from floatsim.arrays.array.float_array import FloatArray

__all__ = [
    "ACCUMULATORS", "FORMATS", "UNITS", "survey",
]  # fmt: skip

FORMATS = (FP32, FP16, BF16, E4M3, E5M2)
"""The default formats."""

ACCUMULATORS = ("same", "sequential(same, fused)", "fp16", "bf16", "fp32", "exact(fp32)")
"""The default accumulators. `same` stands for the format of the inputs."""


UNITS = "tensorcore"
"""The text that stands for all matrix units that take the inputs, the oldest of each maker first."""


_DIGITS = {
    "forward pass": "activations @ weights",
    "gradient of the weights": "activations.T @ gradients",
    "second moments": "activations.T @ activations",
}
_LIMIT = 1 << 22

Progress: TypeAlias = Callable[[Sequence[Any]], Iterable[Any]]


# -- arguments -------------------------------------------------------------------------------------------------------


def _accumulations(
    accumulators: Iterable[Accumulation | str], fmt: FloatFormat, keep_all: bool
) -> list[Accumulation]:  # fmt: skip
    """Return the distinct accumulations that take inputs of `fmt`. Without `keep_all`, omit less precise ones."""
    resolved = dict.fromkeys(resolve_accumulator(each, fmt) for each in accumulators)
    precise = [each for each in resolved if keep_all or each.result_format.precision >= fmt.precision]
    return [each for each in precise if _refusal(each, fmt) is None]


def _refusal(accumulation: Accumulation, fmt: FloatFormat) -> ValueError | None:
    """Return the error of a matrix unit that does not take inputs of a format, or None."""
    try:
        fitted(accumulation, fmt, fmt)
    except ValueError as error:
        return error
    return None


def _requested(accumulators: Any, formats: Sequence[FloatFormat]) -> tuple[Accumulation | str, ...]:
    """Return the distinct accumulators; UNITS becomes the matrix units of all GPUs.

    Raise ValueError if one suits no format.
    """
    requested: dict[Accumulation | str, None] = {}
    for given in _one_or_more(accumulators):
        units = isinstance(given, str) and given.strip().lower() == UNITS
        gpus = [name for name, architecture in ARCHITECTURES.items() if architecture.processor == "GPU"]
        expanded = [TensorCore(name) for name in gpus] if units else [given]
        refusals = [_refusal(resolve_accumulator(each, fmt), fmt) for each in expanded for fmt in formats]
        if refusals and all(refusals):
            why = f"no matrix unit multiplies {', '.join(fmt.name for fmt in formats)}" if units else refusals[0]
            raise ValueError(f"accumulators: {why}")
        requested |= dict.fromkeys(expanded)
    return tuple(requested)


def _matrix(x: Any, name: str) -> NDArray[np.float64]:
    """Return a tensor as a checked float64 matrix. Error messages use its name."""
    import numpy as np

    from floatsim.arrays.array.conversion import decode, float_codes
    from floatsim.arrays.array.float_array import FloatArray

    given = x if isinstance(x, FloatArray) else np.asarray(x)
    if isinstance(given, np.ndarray) and given.dtype.kind in "iu":
        values = given.astype(np.float64)
    else:
        values = np.asarray(decode(*float_codes(given, name)), np.float64)
    if values.ndim != 2:
        raise ValueError(f"{name} must be a matrix (2 dimensions), but its shape is {values.shape}")
    if not np.any(np.isfinite(values) & (values != 0)):
        raise ValueError(f"{name} has no finite non-zero number: there is nothing to survey")
    return values


def _one_or_more(given: Any) -> list[Any]:
    """Return a list of the given values: one value (a text is one) or several."""
    return [given] if isinstance(given, str) or not isinstance(given, Iterable) else list(given)


_LISTED = 12
"""The largest number of tensors that a message lists. A checkpoint has hundreds."""

_EXPRESSION = re.compile(r"\s*(.+?)(\.T)?\s*@\s*(.+?)(\.T)?\s*")


def _spaced(n: int, wanted: int) -> NDArray[np.intp]:
    """Return `wanted` of the n indices, evenly spaced, including both ends."""
    import numpy as np

    return np.linspace(0, n - 1, wanted).round().astype(np.intp)


def _part(m: int, k: int, n: int, limit: int) -> tuple[int, int, int]:
    """Return the largest part of an (m, k, n) product with at most `limit` multiply-adds. K is cut last."""
    k = min(k, limit)
    results = max(1, limit // k)
    columns = min(n, max(math.isqrt(results), results // m))
    return min(m, results // columns), k, columns


def _matching_product(x: str, y: str, tensors: Mapping[str, NDArray[np.float64]]) -> str | None:
    """Return the first product of two tensors whose shapes match, or None."""
    (m, n), (p, q) = tensors[x].shape, tensors[y].shape
    fits = {f"{x} @ {y}": n == p, f"{y} @ {x}": q == m, f"{x}.T @ {y}": m == p, f"{x} @ {y}.T": n == q}
    return next((expression for expression, fit in fits.items() if fit), None)


def _product_hint(x: str, y: str, tensors: Mapping[str, NDArray[np.float64]]) -> str:
    """Return advice for an error message: a product of two tensors whose shapes match."""
    product = _matching_product(x, y, tensors)
    return "" if product is None else f"; products='{product}' would fit"


def _product(name: str, expression: str, tensors: Mapping[str, NDArray[np.float64]], limit: int) -> Product:
    match = _EXPRESSION.fullmatch(expression)
    if match is None:
        raise ValueError(f"products: cannot read {expression!r}; write 'a @ b' or 'a.T @ b'")
    sides = []
    for tensor, transposed in ((match[1], match[2]), (match[3], match[4])):
        if tensor not in tensors:
            raise ValueError(f"products: {expression!r} names {tensor!r}, but there are {', '.join(tensors)}")
        sides.append(tensors[tensor].T if transposed else tensors[tensor])
    a, b = sides
    if a.shape[1] != b.shape[0]:
        raise ValueError(
            f"{expression}: the shapes {a.shape} and {b.shape} do not fit: {a.shape[1]} columns meet {b.shape[0]} rows"
            + _product_hint(match[1], match[3], tensors)
        )
    shape = (a.shape[0], a.shape[1], b.shape[1])
    used = _part(*shape, limit)
    rows, columns = _spaced(shape[0], used[0]), _spaced(shape[2], used[2])
    return Product(name, expression, shape, used, a[rows, : used[1]], b[: used[1], columns])


def _tensors(a: Any, b: Any) -> dict[str, Any]:
    """Return the tensors to multiply, by name."""
    if a is None:
        if b is not None:
            raise TypeError("b is given without a")
        from floatsim.datasets import digits

        return dict(digits())
    if not isinstance(a, Mapping):
        return {"a": a} if b is None else {"a": a, "b": b}
    if b is not None:
        raise TypeError("b must be omitted if a is a mapping of tensors")
    if not a:
        raise ValueError("a is an empty mapping; it must hold at least one tensor")
    return dict(a)


def _expressions(
    products: Mapping[str, str] | Iterable[str] | str | None, tensors: Mapping[str, NDArray[np.float64]]
) -> dict[str, str]:
    """Return {name of the product: expression}."""
    names = list(tensors)
    if products is not None:
        chosen = dict(products) if isinstance(products, Mapping) else {text: text for text in _one_or_more(products)}
        if not chosen:
            raise ValueError("products must name at least one product")
        return chosen
    if len(names) > 2:
        pairs = (_matching_product(x, y, tensors) for x, y in itertools.combinations(names, 2))
        example = next(filter(None, pairs), f"{names[0]}.T @ {names[0]}")  # the last matches for any shape
        listed = ", ".join(f"{name} {tensors[name].shape}" for name in names[:_LISTED])
        dots = f", ... ({len(names)} in all)" if len(names) > _LISTED else ""
        raise ValueError(f"products must name the tensors to multiply; there are {listed}{dots}; write '{example}'")
    expression = f"{names[0]} @ {names[1]}" if len(names) == 2 else f"{names[0]}.T @ {names[0]}"
    return {expression: expression}


# -- the survey ------------------------------------------------------------------------------------------------------


@one_call()
def survey(
    a: Any = None,
    b: Any = None,
    *,
    products: Mapping[str, str] | Iterable[str] | str | None = None,
    formats: Iterable[FormatLike] | FormatLike | None = None,
    accumulators: Iterable[Accumulation | str] | Accumulation | str | None = None,
    limit: int = _LIMIT,
    title: str | None = None,
    progress: Progress | None = None,
) -> SurveyReport:
    """Multiply matrices in several formats and accumulators, and count the events and errors.

    Each input is rounded to each format, and the products are computed with each accumulator. The current `fs.context`
    sets the rounding options.

    Parameters
    ----------
    a : matrix or mapping of str to matrix, optional
        The left matrix (M, K) of any float or integer dtype, or named tensors. Default: the activations, weights and
        late-training gradients of a network trained on the UCI digits (`floatsim.datasets.digits`).
    b : matrix, optional
        The right matrix (K, N). Without it, the product is the second moments a.T @ a.
    products : str, iterable of str, or mapping of name to str, optional
        The products, as "x @ y", "x.T @ y", "x @ y.T", with the tensors' names ("a" and "b" for the arguments).
    formats : format or iterable of format, optional
        The formats of the inputs. Default: FP32, FP16, BF16, E4M3, E5M2.
    accumulators : Accumulation or str, or iterable of them, optional
        In a text, `same` stands for the inputs' format, and `tensorcore` for every matrix unit (`fs.TensorCore`), the
        oldest of each maker first. Units that do not take the inputs are omitted. Default: same,
        sequential(same, fused), fp16, bf16, fp32 and exact(fp32), without those less precise than the inputs.
    limit : int
        The largest number of multiply-adds of each product. Of a larger product, evenly spaced rows and columns are
        computed.
    title : str, optional
        The title of the tables and of the picture.
    progress : callable, optional
        Wraps the sequence of tasks, as `tqdm` does.

    Returns
    -------
    SurveyReport

    Raises
    ------
    TypeError, ValueError
        For an argument that is not a real matrix, for shapes that do not match, and for unknown names.

    Notes
    -----
    A sum of two numbers of one format never underflows: if such a sum is tiny, it is exact. Sums underflow and are
    flushed only if they contain an unrounded product (fused, exact), or with FTZ.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> report = fs.survey(np.full((1, 512), 16.0), np.full((512, 1), 16.0), formats=["fp16"])
    >>> [(str(row.accumulator), row.sums.overflow) for row in report.rows]
    [('sequential(fp16)', 1), ('sequential(fp16, fused)', 1), ('sequential(fp32)', 0), ('exact(fp32)', 0)]
    """
    tensors = {str(name): _matrix(x, str(name)) for name, x in _tensors(a, b).items()}
    expressions = _expressions(_DIGITS if a is None and products is None else products, tensors)
    chosen = tuple(dict.fromkeys(as_format(fmt) for fmt in _one_or_more(FORMATS if formats is None else formats)))
    for fmt in chosen:
        if fmt.is_scale:
            raise ValueError(f"formats: {fmt.name} is a scale format, which has no arithmetic")
    requested = _requested(ACCUMULATORS if accumulators is None else accumulators, chosen)
    if not chosen or not requested:
        raise ValueError(f"{'accumulators' if chosen else 'formats'} must name at least one")
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise ValueError(f"limit must be a positive integer, not {limit!r}")
    planned = tuple(_product(name, expression, tensors, limit) for name, expression in expressions.items())
    tasks = [
        (product, fmt, accumulation)
        for product in planned
        for fmt in chosen
        for accumulation in _accumulations(requested, fmt, accumulators is not None)
    ]
    measured = _Measurement()
    rows = [measured.row(*task) for task in (progress(tasks) if progress else tasks)]
    default_title = "A network that reads digits, at the end of its training" if a is None else ", ".join(tensors)
    return SurveyReport(
        title or default_title, chosen, requested, tensors,
        tuple(_tensor_row(name, x, fmt) for name, x in tensors.items() for fmt in chosen),
        planned, tuple(rows),
    )  # fmt: skip


def _tensor_row(name: str, x: NDArray[np.float64], fmt: FloatFormat) -> TensorRow:
    import numpy as np

    from floatsim.arrays.array.conversion import encode

    with record() as log:
        encode(x[np.isfinite(x)], fmt)
    return TensorRow(name, fmt, log["encode"], int(np.count_nonzero(np.isfinite(x) & (x != 0))))


class _Measurement:
    """Computes the rows of a survey, and keeps the exact products for the next accumulator."""

    def __init__(self) -> None:
        self._cached: dict[tuple[int, FloatFormat | None], tuple[Any, Any, NDArray[np.float64]]] = {}
        self._previous: tuple[int, FloatFormat, FloatArray] | None = None  # the last result of a matrix unit

    def _exact(self, product: Product, fmt: FloatFormat | None) -> tuple[Any, Any, NDArray[np.float64]]:
        """Return (a, b, a @ b): inputs rounded to `fmt` (None: as given), their exact product rounded to FP64."""
        import numpy as np

        from floatsim.arrays.array.conversion import array
        from floatsim.arrays.call.options import context
        from floatsim.arrays.sums.products import matmul

        key = id(product), fmt
        if key not in self._cached:
            a, b = product.a, product.b
            if fmt is not None:
                a, b = array(a, fmt), array(b, fmt)  # with the options of the current context
            with context(rounding="ties_to_even", overflow="infinity", daz=False, ftz=False):
                self._cached[key] = a, b, np.asarray(matmul(a, b, accumulate=Exact(FP64)), np.float64)
        return self._cached[key]

    def row(self, product: Product, fmt: FloatFormat, accumulation: Accumulation) -> SurveyRow:
        """Multiply once, and return the counts of events and the errors."""
        import numpy as np

        from floatsim.arrays.sums.products import matmul

        a, b, exact = self._exact(product, fmt)
        *_, truth = self._exact(product, None)
        with record() as log:
            given = matmul(a, b, accumulate=accumulation)
        result = given.values
        finite = np.isfinite(result) & np.isfinite(truth)
        lost = float(np.mean(np.isfinite(truth) & ~np.isfinite(result)))
        rounds_products = "matmul.product" in log.counts
        return SurveyRow(
            product.name, fmt, accumulation, log["matmul.product"] if rounds_products else None, log["matmul.sum"],
            lost, *_ulps(result[finite], exact[finite], given.format), _relative(result[finite], truth[finite]),
            self._differs(product, fmt, accumulation, given),
        )  # fmt: skip

    def _differs(
        self, product: Product, fmt: FloatFormat, accumulation: Accumulation, result: FloatArray
    ) -> float | None:  # fmt: skip
        """Return the share of results that differ from the matrix unit before, on the same inputs; None without one."""
        import numpy as np

        before = self._previous
        self._previous = now = (id(product), fmt, result) if tensor_cores(accumulation) else None
        if before is None or now is None or before[:2] != now[:2] or before[2].format != result.format:
            return None
        equal = (before[2].codes == result.codes) | (np.isnan(before[2].values) & np.isnan(result.values))
        return float(np.mean(~equal))


def _ulps(result: NDArray[np.float64], exact: NDArray[np.float64], fmt: FloatFormat) -> tuple[float, float]:
    """Return the (max, mean) distance in ulps of the exact value in `fmt`, without zeros; NaN if all are zeros."""
    import numpy as np

    from floatsim.arrays.elementwise.ulps import ulp

    measured = np.isfinite(exact) & (exact != 0)
    if not measured.any():
        return math.nan, math.nan
    distance = np.abs(result[measured] - exact[measured]) / ulp(exact[measured], fmt)
    return float(distance.max()), float(distance.mean())


def _relative(result: NDArray[np.float64], truth: NDArray[np.float64]) -> float:
    """Return the Frobenius norm of the error over the norm of the truth. Scaling prevents overflow and underflow."""
    import numpy as np

    scale = np.max(np.abs(truth), initial=0.0)
    if not scale > 0:
        return math.nan
    return float(np.linalg.norm((result - truth) / scale) / np.linalg.norm(truth / scale))
