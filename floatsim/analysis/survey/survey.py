"""The main job: multiply real matrices in every format and accumulator, and say what happened."""

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
from floatsim.arrays.events import record
from floatsim.arrays.options import one_call
from floatsim.formats import BF16, E4M3, E5M2, FP16, FP32, FP64, FloatFormat, FormatLike, as_format
from floatsim.tensorcore.architectures import ARCHITECTURES

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from floatsim.arrays.float_array import FloatArray

__all__ = [
    "ACCUMULATORS", "FORMATS", "UNITS", "survey",
]  # fmt: skip

FORMATS = (FP32, FP16, BF16, E4M3, E5M2)
"""The formats of a survey that names none."""

ACCUMULATORS = ("same", "sequential(same, fused)", "fp16", "bf16", "fp32", "exact(fp32)")
"""The accumulators of a survey that names none; `same` stands for the format of the inputs."""


UNITS = "tensorcore"
"""The accumulator that stands for every matrix unit that takes the inputs, the oldest of each maker first."""


_DIGITS = {
    "forward pass": "activations @ weights",
    "gradient of the weights": "activations.T @ gradients",
    "second moments": "activations.T @ activations",
}
_LIMIT = 1 << 22

Progress: TypeAlias = Callable[[Sequence[Any]], Iterable[Any]]


# -- what is asked for -----------------------------------------------------------------------------------------------


def _accumulations(asked: Iterable[Accumulation | str], fmt: FloatFormat, all_of_them: bool) -> list[Accumulation]:
    """Each accumulation once that takes the inputs; of the default ones those that are no less precise than these."""
    found = dict.fromkeys(resolve_accumulator(how, fmt) for how in asked)
    precise = [how for how in found if all_of_them or how.result_format.precision >= fmt.precision]
    return [how for how in precise if _refusal(how, fmt) is None]


def _refusal(how: Accumulation, fmt: FloatFormat) -> ValueError | None:
    """What a matrix unit says that does not take such inputs."""
    try:
        fitted(how, fmt, fmt)
    except ValueError as error:
        return error
    return None


def _asked(accumulators: Any, formats: Sequence[FloatFormat]) -> tuple[Accumulation | str, ...]:
    """The accumulators asked for, each once; all matrix units for UNITS. One that no format suits is an error."""
    found: dict[Accumulation | str, None] = {}
    for how in _one_or_more(accumulators):
        units = isinstance(how, str) and how.strip().lower() == UNITS
        some = [TensorCore(name) for name in ARCHITECTURES] if units else [how]
        refusals = [_refusal(resolve_accumulator(one, fmt), fmt) for one in some for fmt in formats]
        if refusals and all(refusals):
            why = f"no matrix unit multiplies {', '.join(fmt.name for fmt in formats)}" if units else refusals[0]
            raise ValueError(f"accumulators: {why}")
        found |= dict.fromkeys(some)
    return tuple(found)


def _matrix(x: Any, name: str) -> NDArray[np.float64]:
    """A tensor as float64, checked; the errors call it by its name."""
    import numpy as np

    from floatsim.arrays.conversion import decode, float_codes
    from floatsim.arrays.float_array import FloatArray

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
    """A list of what was given, one thing (a name is one) or several."""
    return [given] if isinstance(given, str) or not isinstance(given, Iterable) else list(given)


_LISTED = 12
"""How many tensors a message lists: a checkpoint has hundreds."""

_EXPRESSION = re.compile(r"\s*(.+?)(\.T)?\s*@\s*(.+?)(\.T)?\s*")


def _spaced(n: int, wanted: int) -> NDArray[np.intp]:
    """`wanted` of n indices, evenly spaced, the ends among them."""
    import numpy as np

    return np.linspace(0, n - 1, wanted).round().astype(np.intp)


def _part(m: int, k: int, n: int, limit: int) -> tuple[int, int, int]:
    """How much of an (m, k, n) product has at most `limit` multiply-adds: all of K before rows and columns."""
    k = min(k, limit)
    results = max(1, limit // k)
    columns = min(n, max(math.isqrt(results), results // m))
    return min(m, results // columns), k, columns


def _that_fits(x: str, y: str, tensors: Mapping[str, NDArray[np.float64]]) -> str | None:
    """The first product of two tensors whose shapes fit."""
    (m, n), (p, q) = tensors[x].shape, tensors[y].shape
    fits = {f"{x} @ {y}": n == p, f"{y} @ {x}": q == m, f"{x}.T @ {y}": m == p, f"{x} @ {y}.T": n == q}
    return next((expression for expression, fit in fits.items() if fit), None)


def _fitting(x: str, y: str, tensors: Mapping[str, NDArray[np.float64]]) -> str:
    """A product of two tensors whose shapes fit, as advice."""
    found = _that_fits(x, y, tensors)
    return "" if found is None else f"; products='{found}' would fit"


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
            + _fitting(match[1], match[3], tensors)
        )
    shape = (a.shape[0], a.shape[1], b.shape[1])
    used = _part(*shape, limit)
    rows, columns = _spaced(shape[0], used[0]), _spaced(shape[2], used[2])
    return Product(name, expression, shape, used, a[rows, : used[1]], b[: used[1], columns])


def _tensors(a: Any, b: Any) -> dict[str, Any]:
    """What is to be multiplied, by name."""
    if a is None:
        if b is not None:
            raise TypeError("b is given without a")
        from floatsim.datasets import digits

        return dict(digits())
    if not isinstance(a, Mapping):
        return {"a": a} if b is None else {"a": a, "b": b}
    if b is not None:
        raise TypeError("b must be left out where a is a mapping of tensors")
    if not a:
        raise ValueError("a is an empty mapping; it must hold at least one tensor")
    return dict(a)


def _expressions(
    products: Mapping[str, str] | Iterable[str] | str | None, tensors: Mapping[str, NDArray[np.float64]]
) -> dict[str, str]:
    """{product's name: expression}."""
    names = list(tensors)
    if products is not None:
        chosen = dict(products) if isinstance(products, Mapping) else {text: text for text in _one_or_more(products)}
        if not chosen:
            raise ValueError("products must name at least one product")
        return chosen
    if len(names) > 2:
        pairs = (_that_fits(x, y, tensors) for x, y in itertools.combinations(names, 2))
        fits = next(filter(None, pairs), f"{names[0]}.T @ {names[0]}")  # which fits whatever the shape
        listed = ", ".join(f"{name} {tensors[name].shape}" for name in names[:_LISTED])
        more = f", ... ({len(names)} in all)" if len(names) > _LISTED else ""
        raise ValueError(f"products must say what to multiply of {listed}{more}, as '{fits}'")
    expression = f"{names[0]} @ {names[1]}" if len(names) == 2 else f"{names[0]}.T @ {names[0]}"
    return {expression: expression}


# -- the job ---------------------------------------------------------------------------------------------------------


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
    """Multiply matrices in every format and accumulator, and say what happened.

    Inputs are rounded to each format, and multiplied with each accumulator; roundings follow the ambient `fs.context`.

    Parameters
    ----------
    a : matrix or mapping of str to matrix, optional
        The left matrix (M, K), any float or integer dtype; or named tensors. Default: the activations, weights and
        late-training gradients of a network trained on the UCI digits (`floatsim.datasets.digits`).
    b : matrix, optional
        The right matrix (K, N). Without it, the second moments a.T @ a are surveyed.
    products : str, iterable of str, or mapping of name to str, optional
        What to multiply, as "x @ y", "x.T @ y", "x @ y.T", by the tensors' names ("a" and "b" for the arguments).
    formats : format or iterable of format, optional
        Of the inputs. Default: FP32, FP16, BF16, E4M3, E5M2.
    accumulators : Accumulation or str, or iterable of them, optional
        `same` in a text stands for the inputs' format, and `tensorcore` for every matrix unit (`fs.TensorCore`), the
        oldest of each maker first. Units are left out where they do not take the inputs. Default: same,
        sequential(same, fused), fp16, bf16, fp32 and exact(fp32), leaving out those less precise than the inputs.
    limit : int
        At most so many multiply-adds of each product: of a larger one, evenly spaced rows and columns are taken.
    title : str, optional
        What the tables and the picture are headed.
    progress : callable, optional
        Wraps the sequence of tasks, as `tqdm` does.

    Returns
    -------
    SurveyReport

    Raises
    ------
    TypeError, ValueError
        For what is no real matrix, shapes that do not fit, and names that are not known; the message says which.

    Notes
    -----
    Sums of two numbers of one format never underflow: where such a sum is tiny, it is exact. Sums underflow, and are
    flushed, only where an unrounded product enters them (fused, exact), or under FTZ.

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
    asked = _asked(ACCUMULATORS if accumulators is None else accumulators, chosen)
    if not chosen or not asked:
        raise ValueError(f"{'accumulators' if chosen else 'formats'} must name at least one")
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise ValueError(f"limit must be a positive integer, not {limit!r}")
    planned = tuple(_product(name, expression, tensors, limit) for name, expression in expressions.items())
    tasks = [
        (product, fmt, how)
        for product in planned
        for fmt in chosen
        for how in _accumulations(asked, fmt, accumulators is not None)
    ]
    judge = _Judge()
    rows = [judge.row(*task) for task in (progress(tasks) if progress else tasks)]
    default_title = "A network that reads digits, at the end of its training" if a is None else ", ".join(tensors)
    return SurveyReport(
        title or default_title, chosen, asked, tensors,
        tuple(_tensor_row(name, x, fmt) for name, x in tensors.items() for fmt in chosen),
        planned, tuple(rows),
    )  # fmt: skip


def _tensor_row(name: str, x: NDArray[np.float64], fmt: FloatFormat) -> TensorRow:
    import numpy as np

    from floatsim.arrays.conversion import encode

    with record() as log:
        encode(x[np.isfinite(x)], fmt)
    return TensorRow(name, fmt, log["encode"], int(np.count_nonzero(np.isfinite(x) & (x != 0))))


class _Judge:
    """Computes rows; remembers the exact products from one accumulator to the next."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, FloatFormat | None], tuple[Any, Any, NDArray[np.float64]]] = {}
        self._unit: tuple[int, FloatFormat, FloatArray] | None = None  # what a matrix unit just made of a product

    def _exact(self, product: Product, fmt: FloatFormat | None) -> tuple[Any, Any, NDArray[np.float64]]:
        """(a, b, a @ b), the inputs rounded to `fmt` (None: as given), their product exact, then rounded to FP64."""
        import numpy as np

        from floatsim.arrays.conversion import array
        from floatsim.arrays.linalg import matmul
        from floatsim.arrays.options import context

        key = id(product), fmt
        if key not in self._known:
            a, b = product.a, product.b
            if fmt is not None:
                a, b = array(a, fmt), array(b, fmt)  # as the ambient context says
            with context(rounding="ties_to_even", overflow="infinity", daz=False, ftz=False):
                self._known[key] = a, b, np.asarray(matmul(a, b, accumulate=Exact(FP64)), np.float64)
        return self._known[key]

    def row(self, product: Product, fmt: FloatFormat, how: Accumulation) -> SurveyRow:
        """Multiply, count, and measure."""
        import numpy as np

        from floatsim.arrays.linalg import matmul

        a, b, exact = self._exact(product, fmt)
        *_, truth = self._exact(product, None)
        with record() as log:
            given = matmul(a, b, accumulate=how)
        result = given.values
        finite = np.isfinite(result) & np.isfinite(truth)
        lost = float(np.mean(np.isfinite(truth) & ~np.isfinite(result)))
        rounds_products = "matmul.product" in log.counts
        return SurveyRow(
            product.name, fmt, how, log["matmul.product"] if rounds_products else None, log["matmul.sum"], lost,
            *_ulps(result[finite], exact[finite], given.format), _relative(result[finite], truth[finite]),
            self._unlike(product, fmt, how, given),
        )  # fmt: skip

    def _unlike(self, product: Product, fmt: FloatFormat, how: Accumulation, result: FloatArray) -> float | None:
        """The share of the results that differ from those of the matrix unit just before, on the same inputs."""
        import numpy as np

        before, self._unit = self._unit, (id(product), fmt, result) if tensor_cores(how) else None
        if before is None or self._unit is None or before[:2] != self._unit[:2] or before[2].format != result.format:
            return None
        alike = (before[2].codes == result.codes) | (np.isnan(before[2].values) & np.isnan(result.values))
        return float(np.mean(~alike))


def _ulps(result: NDArray[np.float64], exact: NDArray[np.float64], fmt: FloatFormat) -> tuple[float, float]:
    """(max, mean) distance in ulps of the exact value in `fmt`, zeros left out; NaN if there are no others."""
    import numpy as np

    from floatsim.arrays.ulps import ulp

    measured = np.isfinite(exact) & (exact != 0)
    if not measured.any():
        return math.nan, math.nan
    distance = np.abs(result[measured] - exact[measured]) / ulp(exact[measured], fmt)
    return float(distance.max()), float(distance.mean())


def _relative(result: NDArray[np.float64], truth: NDArray[np.float64]) -> float:
    """Frobenius norm of the error over that of the truth; scaled, so that squares neither over- nor underflow."""
    import numpy as np

    scale = np.max(np.abs(truth), initial=0.0)
    if not scale > 0:
        return math.nan
    return float(np.linalg.norm((result - truth) / scale) / np.linalg.norm(truth / scale))
