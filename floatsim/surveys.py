"""The main job: multiply real matrices in every format and accumulator, and say what happened."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from floatsim.accumulation import (
    Accumulation,
    AccumulationLike,
    Exact,
    TensorCore,
    as_accumulation,
    fitted,
    parse,
    tensor_cores,
)
from floatsim.formats import BF16, E4M3, E5M2, FP16, FP32, FP64, FloatFormat, FormatLike, as_format
from floatsim.recording import Counts, record
from floatsim.tensorcore.architectures import ARCHITECTURES

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from floatsim.arrays import FloatArray

__all__ = [
    "ACCUMULATORS", "EVENT_COLUMNS", "FORMATS", "UNITS", "Product", "SurveyReport", "SurveyRow", "TensorRow", "survey",
]  # fmt: skip

FORMATS = (FP32, FP16, BF16, E4M3, E5M2)
"""The formats of a survey that names none."""

ACCUMULATORS = ("same", "sequential(same, fused)", "fp16", "bf16", "fp32", "exact(fp32)")
"""The accumulators of a survey that names none; `same` stands for the format of the inputs."""

EVENT_COLUMNS = (
    ("products", "underflow"), ("products", "flushed"), ("products", "subnormal"), ("products", "overflow"),
    ("sums", "underflow"), ("sums", "flushed"), ("sums", "subnormal"), ("sums", "overflow"), ("sums", "absorbed"),
)  # fmt: skip
"""What the table counts: the rounding, and what happened there."""

UNITS = "tensorcore"
"""The accumulator that stands for every matrix unit that takes the inputs, the oldest of each maker first."""

MEASURES = ("max_ulps", "mean_ulps", "relative_error", "nonfinite", "differs")

_DIGITS = {
    "forward pass": "activations @ weights",
    "gradient of the weights": "activations.T @ gradients",
    "second moments": "activations.T @ activations",
}
_LIMIT = 1 << 22

Progress: TypeAlias = Callable[[Sequence[Any]], Iterable[Any]]


@dataclass(frozen=True)
class TensorRow:
    """What rounding one tensor to one format did; shares are of its finite non-zero numbers (`nonzero` many)."""

    tensor: str
    format: FloatFormat
    counts: Counts
    nonzero: int

    def share(self, event: str) -> float:
        """Share of the finite non-zero numbers to which `event` ("flushed", "subnormal", ...) happened."""
        return float(getattr(self.counts, event)) / self.nonzero


@dataclass(frozen=True, eq=False)
class Product:
    """A product of the survey: its name, and what of it was computed.

    `shape` is (M, K, N); `used` is how much of each was computed: rows and columns evenly spaced, the first terms.
    """

    name: str
    expression: str
    shape: tuple[int, int, int]
    used: tuple[int, int, int]
    a: NDArray[np.float64] = field(repr=False)
    b: NDArray[np.float64] = field(repr=False)

    @property
    def results(self) -> int:
        """How many results were computed."""
        return self.used[0] * self.used[2]

    @property
    def nonfinite_exactly(self) -> int:
        """How many of them no arithmetic could make finite: an input of theirs is NaN or infinite."""
        import numpy as np

        rows, columns = np.isfinite(self.a).all(axis=1), np.isfinite(self.b).all(axis=0)
        return self.results - int(rows.sum()) * int(columns.sum())


@dataclass(frozen=True)
class SurveyRow:
    """One product in one format with one accumulator.

    `products` counts the roundings of the products (None where there are none: fused and exact sums), `sums` those of
    the sums. `nonfinite` is the share of the results that are infinite or NaN though the exact product of the given
    inputs (rounded to FP64) is finite: what the format or the accumulator lost. Errors are over the results of which
    both are finite, and NaN where there is none. `max_ulps` and `mean_ulps`: distance to the exact product of the
    *rounded* inputs, in ulps of that product in the accumulator's format (Goldberg's; where it is not zero), so what
    the arithmetic did.
    `relative_error`: distance to the exact product of the *given* inputs over that product, both in the Frobenius
    norm, so what everything did. `differs`: of sums by matrix units, the share of the results whose bits are not those
    of the unit in the row before (two NaN are alike); None where that is none.
    """

    product: str
    format: FloatFormat
    accumulator: Accumulation
    products: Counts | None
    sums: Counts
    nonfinite: float
    max_ulps: float
    mean_ulps: float
    relative_error: float
    differs: float | None = None

    def share(self, stage: str, event: str) -> float | None:
        """Share of the roundings of "products" or "sums" to which `event` happened; None where there are none."""
        counts: Counts | None = getattr(self, stage)
        return None if counts is None else float(getattr(counts, event)) / max(1, counts.elements)


@dataclass(frozen=True)
class SurveyReport:
    """What a survey found. Prints as tables in terminals and notebooks; `floatsim.plot.survey_figure` draws it."""

    title: str
    formats: tuple[FloatFormat, ...]
    accumulators: tuple[Accumulation | str, ...]
    tensors: Mapping[str, NDArray[np.float64]] = field(repr=False)
    tensor_rows: tuple[TensorRow, ...]
    products: tuple[Product, ...]
    rows: tuple[SurveyRow, ...]

    def table(self, measure: str = "relative_error", product: str | None = None) -> dict[str, dict[str, float | None]]:
        """{format: {accumulator as asked for: number}} of one product; None where it was not computed.

        Parameters
        ----------
        measure : str
            "relative_error", "max_ulps", "mean_ulps", "nonfinite" or "differs".
        product : str, optional
            Which one; the first by default.

        Raises
        ------
        ValueError
            If there is no such measure or product.
        """
        if measure not in MEASURES:
            raise ValueError(f"measure must be one of {', '.join(MEASURES)}, not {measure!r}")
        names = [p.name for p in self.products]
        if product is not None and product not in names:
            raise ValueError(f"product must be one of {', '.join(names)}, not {product!r}")
        product = product or names[0]
        found = {(r.format, r.accumulator): getattr(r, measure) for r in self.rows if r.product == product}
        return {
            fmt.name: {str(how): found.get((fmt, _resolve(how, fmt))) for how in self.accumulators}
            for fmt in self.formats
        }

    def records(self) -> list[dict[str, Any]]:
        """One flat record a row, shares as fractions: the tidy table."""
        return [
            {
                "product": r.product, "format": r.format.name, "accumulator": str(r.accumulator),
                **{f"{stage}_{event}": r.share(stage, event) for stage, event in EVENT_COLUMNS},
                **{measure: getattr(r, measure) for measure in MEASURES},
            }
            for r in self.rows
        ]  # fmt: skip

    def to_pandas(self) -> Any:
        """`records` as a DataFrame. Raises ImportError with advice where pandas is not installed."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError("to_pandas() needs pandas: pip install pandas") from error
        return pandas.DataFrame(self.records())

    def to_dict(self) -> dict[str, Any]:
        """Everything but the tensors' numbers, as JSON has it: counts as integers, errors as floats or None."""
        return {
            "title": self.title,
            "formats": [fmt.name for fmt in self.formats],
            "accumulators": [str(how) for how in self.accumulators],
            "tensors": [
                {"tensor": r.tensor, "shape": list(self.tensors[r.tensor].shape), "format": r.format.name,
                 "nonzero": r.nonzero, **_nonfinite(self.tensors[r.tensor]), **_events(r.counts)}
                for r in self.tensor_rows
            ],
            "products": [
                {"product": p.name, "expression": p.expression, "shape": list(p.shape), "used": list(p.used),
                 "nonfinite_exactly": p.nonfinite_exactly}
                for p in self.products
            ],
            "rows": [
                {"product": r.product, "format": r.format.name, "accumulator": str(r.accumulator),
                 "products": None if r.products is None else _events(r.products), "sums": _events(r.sums),
                 **{measure: _json_number(getattr(r, measure)) for measure in MEASURES}}
                for r in self.rows
            ],
        }  # fmt: skip

    def nonfinite_in_words(self, tensor: str) -> str:
        """How many numbers of a tensor are NaN or infinite: "2 NaN and 1 infinity"; empty if none is."""
        nans, infinities = _nonfinite(self.tensors[tensor]).values()
        words = [f"{nans} NaN"] if nans else []
        words += [f"{infinities} {'infinity' if infinities == 1 else 'infinities'}"] if infinities else []
        return " and ".join(words)

    # -- shows -------------------------------------------------------------------------------------------
    def _tensor_cells(self) -> tuple[list[str], list[list[str]]]:
        """The table of the inputs: a row a tensor and format."""
        head = ["tensor", "format", "flushed", "subnormal", "overflow"]
        return head, [
            [r.tensor, r.format.name, *(_percent(r.share(event)) for event in head[2:])] for r in self.tensor_rows
        ]

    def _cells(self, product: Product) -> tuple[list[str], list[list[str]]]:
        """The table of one product: a row a format and accumulator."""
        head = ["format", "accumulator", *(f"{_SHORT[stage]}\n{_SHORT[event]}" for stage, event in EVENT_COLUMNS),
                "lost to\ninf/NaN", "max\nulps", "mean\nulps", "relative\nerror"]  # fmt: skip
        cells = [
            [r.format.name, _short(str(r.accumulator)),
             *(_percent(r.share(stage, event)) for stage, event in EVENT_COLUMNS),
             _percent(r.nonfinite), _number(r.max_ulps), _number(r.mean_ulps), _number(r.relative_error, ".1e"),
             _percent(r.differs)]
            for r in self.rows if r.product == product.name
        ]  # fmt: skip
        return (head, [row[:-1] for row in cells]) if self._has_no_neighbours else ([*head, "unlike\nabove"], cells)

    @property
    def _has_no_neighbours(self) -> bool:
        return all(r.differs is None for r in self.rows)

    def _input_caption(self) -> str:
        """What the numbers mean; and which inputs are no numbers, if any."""
        notes = [f" {name} also holds {words}." for name in self.tensors if (words := self.nonfinite_in_words(name))]
        return _INPUT_CAPTION + "".join(notes)

    def _caption(self) -> str:
        units = any(tensor_cores(row.accumulator) for row in self.rows)
        notes = [_CAPTION, *([_BLOCKS] if units else []), *([] if self._has_no_neighbours else [_UNLIKE])]
        return " ".join(notes)

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        from rich.text import Text

        yield Text(f"{self.title}: the inputs, rounded", "bold")
        yield _rich_table(*self._tensor_cells())
        yield Text(self._input_caption(), "dim")
        for product in self.products:
            head, rows = self._cells(product)
            whole = _rich_table(head, rows)
            yield Text(f"\n{_heading(product)}", "bold")
            if whole.__rich_measure__(console, options).maximum <= options.max_width:
                yield whole
            else:  # too narrow for one table: events first, then errors
                errors = head.index("lost to\ninf/NaN")
                yield _rich_table(head[:errors], [row[:errors] for row in rows])
                yield ""
                yield _rich_table(head[:2] + head[errors:], [row[:2] + row[errors:] for row in rows])
            if note := _note(product):
                yield Text(note, "bold")
        yield Text(f"\n{self._caption()}", "dim")

    def __str__(self) -> str:
        import io

        from rich.console import Console

        console = Console(file=io.StringIO(), width=120, color_system=None)
        console.print(self)
        text: str = console.file.getvalue()  # type: ignore[attr-defined]
        return "\n".join(line.rstrip() for line in text.splitlines())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from html import escape

        def table(title: str, head: list[str], rows: list[list[str]]) -> str:
            top = "".join(f"<th>{escape(name).replace(chr(10), '<br>')}</th>" for name in head)
            body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
            return f"<table><caption>{escape(title)}</caption><tr>{top}</tr>{body}</table>"

        parts = [table(f"{self.title}: the inputs, rounded", *self._tensor_cells()),
                 f"<p>{escape(self._input_caption())}</p>"]  # fmt: skip
        for product in self.products:
            parts.append(table(_heading(product), *self._cells(product)))
            parts += [f"<p>{escape(note)}</p>"] if (note := _note(product)) else []
        return "<div>" + "".join(parts) + f"<p>{escape(self._caption())}</p></div>"


_SHORT = {
    "products": "prod.", "sums": "sum", "underflow": "undfl", "flushed": "flush", "subnormal": "subn",
    "overflow": "ovfl", "absorbed": "absrb",
}  # fmt: skip
_INPUT_CAPTION = "Percent of the finite non-zero numbers: flushed to zero, subnormal, beyond the largest number."
_CAPTION = (
    "Events: percent of all roundings of products and of sums ('.': never; '-': there is no such rounding). undfl: "
    "tiny and inexact; flush: became zero; subn: subnormal; ovfl: beyond the largest number; absrb: a non-zero "
    "product left the sum unchanged. lost to inf/NaN: percent of the results, infinite or NaN though the exact "
    "product of the given inputs is finite; left out of the errors. Ulps: of the accumulator's format, against the "
    "exact product of the rounded inputs. Relative error: against the exact product of the given inputs, in the "
    "Frobenius norm."
)


_BLOCKS = (
    "Of a matrix unit, sums are counted by the block, one for each time that its accumulator is rounded: absrb is the "
    "percent of blocks in which some non-zero term was cut off entirely, not the percent of such terms."
)
_UNLIKE = "unlike above: percent of the results whose bits are not those of the matrix unit in the row above."


def _nonfinite(x: NDArray[np.float64]) -> dict[str, int]:
    import numpy as np

    return {"nan": int(np.isnan(x).sum()), "infinite": int(np.isinf(x).sum())}


def _note(product: Product) -> str:
    """How many results are not finite because of the inputs; empty if none is."""
    n = product.nonfinite_exactly
    why = "results have a NaN or infinite input: not counted as lost, and left out of the errors."
    return f"{n} of {product.results} {why}" if n else ""


def _rich_table(head: list[str], rows: list[list[str]]) -> Any:
    """A table without lines, two columns of names and then numbers; a blank line where the first name changes."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 1, 0, 0))
    for i, name in enumerate(head):
        table.add_column(name, justify="left" if i < 2 else "right", no_wrap=True, vertical="bottom")
    for i, row in enumerate(rows):
        repeated = i > 0 and rows[i - 1][0] == row[0]
        if i > 0 and not repeated:
            table.add_row()
        table.add_row(*(Text(cell) for cell in ("" if repeated else row[0], *row[1:])))
    return table


def _heading(product: Product) -> str:
    sizes = [f"{used} of {n}" if used != n else str(n) for used, n in zip(product.used, product.shape, strict=True)]
    name = "" if product.name == product.expression else f"{product.name}: "
    return f"{name}{product.expression}   (M = {sizes[0]}, K = {sizes[1]}, N = {sizes[2]})"


def _short(accumulator: str) -> str:
    """As a label: `fp16, fused` for `sequential(fp16, fused)`, `hopper` for `tensorcore(hopper)`; within another,
    `fp16` for `sequential(fp16)`."""
    if m := re.fullmatch(r"(?:sequential|tensorcore)\((.*)\)", accumulator):
        return m[1]
    return re.sub(r"sequential\(([^(),]*(\(\d+,\d+\))?)\)", r"\1", accumulator)


def _percent(share: float | None) -> str:
    if share is None:
        return "-"
    if share == 0:
        return "."
    percent = 100 * share
    if percent < 0.05:
        return "<0.1"
    if percent == 100:
        return "100"
    return f"{min(percent, 99.9):.1f}"


def _number(value: float, spec: str = ".2g") -> str:
    if math.isnan(value):
        return "-"
    if value == 0:
        return "0"
    if spec == ".2g" and 0.095 <= value < 9999.5:
        return f"{value:.0f}" if value >= 99.5 else f"{value:.1f}" if value >= 9.95 else f"{value:.2f}"
    return f"{value:.1e}"


def _json_number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _events(counts: Counts) -> dict[str, int]:
    kept = ("elements", "underflow", "flushed", "subnormal", "overflow", "inexact", "absorbed")
    return {name: int(getattr(counts, name)) for name in kept}


# -- what is asked for -----------------------------------------------------------------------------------------------


def _resolve(how: AccumulationLike, fmt: FloatFormat) -> Accumulation:
    """The accumulation that is meant for inputs of a format: `same` in a text is that format."""
    return parse(how, same=fmt) if isinstance(how, str) else as_accumulation(how, "accumulators")


def _accumulations(asked: Iterable[Accumulation | str], fmt: FloatFormat, all_of_them: bool) -> list[Accumulation]:
    """Each accumulation once that takes the inputs; of the default ones those that are no less precise than these."""
    found = dict.fromkeys(_resolve(how, fmt) for how in asked)
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
        refusals = [_refusal(_resolve(one, fmt), fmt) for one in some for fmt in formats]
        if refusals and all(refusals):
            why = f"no matrix unit multiplies {', '.join(map(str, formats))}" if units else refusals[0]
            raise ValueError(f"accumulators: {why}")
        found |= dict.fromkeys(some)
    return tuple(found)


def _matrix(x: Any, name: str) -> NDArray[np.float64]:
    """A tensor as float64, checked; the errors call it by its name."""
    import numpy as np

    from floatsim.arrays import FloatArray
    from floatsim.conversion import decode, float_codes

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

    from floatsim.conversion import encode

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

        from floatsim.contexts import context
        from floatsim.conversion import array
        from floatsim.linalg import matmul

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

        from floatsim.linalg import matmul

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

    from floatsim.ulps import ulp

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
