"""The results of a survey: rows, tables, and their JSON form."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from floatsim._extras import install_command
from floatsim.accumulation import Accumulation, AccumulationLike, as_accumulation, parse, tensor_cores
from floatsim.arrays.events.counts import Counts
from floatsim.formats import FloatFormat

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["EVENT_COLUMNS", "MEASURES", "Product", "SurveyReport", "SurveyRow", "TensorRow", "resolve_accumulator"]


EVENT_COLUMNS = (
    ("products", "underflow"), ("products", "flushed"), ("products", "subnormal"), ("products", "overflow"),
    ("sums", "underflow"), ("sums", "flushed"), ("sums", "subnormal"), ("sums", "overflow"), ("sums", "absorbed"),
)  # fmt: skip
"""The counted events, each as (stage of rounding, event)."""
MEASURES = ("max_ulps", "mean_ulps", "relative_error", "nonfinite", "differs")


@dataclass(frozen=True)
class TensorRow:
    """The events of rounding one tensor to one format. Shares refer to its `nonzero` finite non-zero numbers."""

    tensor: str
    format: FloatFormat
    counts: Counts
    nonzero: int

    def share(self, event: str) -> float:
        """Return the share of the finite non-zero numbers with the event "flushed", "subnormal" or another."""
        return float(getattr(self.counts, event)) / self.nonzero


@dataclass(frozen=True, eq=False)
class Product:
    """A product of the survey: its name, and the part of it that was computed.

    `shape` is (M, K, N). `used` is the computed part of each: evenly spaced rows and columns, and the first terms.
    """

    name: str
    expression: str
    shape: tuple[int, int, int]
    used: tuple[int, int, int]
    a: NDArray[np.float64] = field(repr=False)
    b: NDArray[np.float64] = field(repr=False)

    @property
    def results(self) -> int:
        """The number of computed results."""
        return self.used[0] * self.used[2]

    @property
    def nonfinite_exactly(self) -> int:
        """The number of results that cannot be finite: one of their inputs is NaN or infinite."""
        import numpy as np

        rows, columns = np.isfinite(self.a).all(axis=1), np.isfinite(self.b).all(axis=0)
        return self.results - int(rows.sum()) * int(columns.sum())


@dataclass(frozen=True)
class SurveyRow:
    """One product in one format with one accumulator.

    Attributes
    ----------
    product : str
        The product's name.
    format : FloatFormat
        The format of the inputs.
    accumulator : Accumulation
    products, sums : Counts
        The events in the roundings of the products and of the sums. `products` is None for fused and exact sums, which
        do not round products.
    nonfinite : float
        The share of the results that are infinite or NaN although the exact product of the given inputs (rounded to
        FP64) is finite. The format or the accumulator caused these. They are excluded from the errors below, which are
        NaN if no pair of finite results is left.
    max_ulps, mean_ulps : float
        The distance to the exact product of the *rounded* inputs, in ulps (Goldberg) of that product in the
        accumulator's format, without zeros. It is the error of the arithmetic alone.
    relative_error : float
        The distance to the exact product of the *given* inputs over that product, both in the Frobenius norm. It is the
        error of input rounding and arithmetic together.
    differs : float or None
        For matrix units: the share of the results whose bits differ from the unit in the row before (two NaNs count as
        equal). None if the row before has no matrix unit.
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
        """Return the share of the roundings of a stage with an event; None if there are no such roundings."""
        counts: Counts | None = getattr(self, stage)
        return None if counts is None else float(getattr(counts, event)) / max(1, counts.elements)


@dataclass(frozen=True)
class SurveyReport:
    """The results of a survey. Prints as tables in terminals and notebooks; `floatsim.plot.survey_figure` draws it."""

    title: str
    formats: tuple[FloatFormat, ...]
    accumulators: tuple[Accumulation | str, ...]
    tensors: Mapping[str, NDArray[np.float64]] = field(repr=False)
    tensor_rows: tuple[TensorRow, ...]
    products: tuple[Product, ...]
    rows: tuple[SurveyRow, ...]

    def table(self, measure: str = "relative_error", product: str | None = None) -> dict[str, dict[str, float | None]]:
        """Return {format: {accumulator as given: number}} of one product; None for combinations that were not computed.

        Parameters
        ----------
        measure : str
            "relative_error", "max_ulps", "mean_ulps", "nonfinite" or "differs".
        product : str, optional
            The product's name. Default: the first product.

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
        values = {(r.format, r.accumulator): getattr(r, measure) for r in self.rows if r.product == product}
        return {
            fmt.name: {f"{each}": values.get((fmt, resolve_accumulator(each, fmt))) for each in self.accumulators}
            for fmt in self.formats
        }

    def records(self) -> list[dict[str, Any]]:
        """Return one flat record for each row, with shares as fractions: the tidy table."""
        return [
            {
                "product": r.product, "format": r.format.name, "accumulator": str(r.accumulator),
                **{f"{stage}_{event}": r.share(stage, event) for stage, event in EVENT_COLUMNS},
                **{measure: getattr(r, measure) for measure in MEASURES},
            }
            for r in self.rows
        ]  # fmt: skip

    def to_pandas(self) -> Any:
        """Return `records` as a DataFrame. Raises ImportError with advice if pandas is not installed."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError(f"to_pandas() needs pandas: {install_command('pandas')}") from error
        return pandas.DataFrame(self.records())

    def to_dict(self) -> dict[str, Any]:
        """Return everything except the tensors' values in JSON types: counts as integers, errors as floats or None."""
        return {
            "title": self.title,
            "formats": [fmt.name for fmt in self.formats],
            "accumulators": [f"{each}" for each in self.accumulators],
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
        """Return the number of NaNs and infinities of a tensor, as "2 NaN and 1 infinity"; empty if all are finite."""
        nans, infinities = _nonfinite(self.tensors[tensor]).values()
        words = [f"{nans} NaN"] if nans else []
        words += [f"{infinities} {'infinity' if infinities == 1 else 'infinities'}"] if infinities else []
        return " and ".join(words)

    # -- output ------------------------------------------------------------------------------------------
    def _tensor_cells(self) -> tuple[list[str], list[list[str]]]:
        """Return the table of the inputs, with a row for each tensor and format."""
        head = ["tensor", "format", "flushed", "subnormal", "overflow"]
        return head, [
            [r.tensor, r.format.name, *(_percent(r.share(event)) for event in head[2:])] for r in self.tensor_rows
        ]

    def _cells(self, product: Product) -> tuple[list[str], list[list[str]]]:
        """Return the table of one product, with a row for each format and accumulator."""
        head = ["format", "accumulator", *(f"{_SHORT[stage]}\n{_SHORT[event]}" for stage, event in EVENT_COLUMNS),
                "lost to\ninf/NaN", "max\nulps", "mean\nulps", "relative\nerror"]  # fmt: skip
        cells = [
            [r.format.name, _short(str(r.accumulator)),
             *(_percent(r.share(stage, event)) for stage, event in EVENT_COLUMNS),
             _percent(r.nonfinite), _number(r.max_ulps), _number(r.mean_ulps), _number(r.relative_error, ".1e"),
             _percent(r.differs)]
            for r in self.rows if r.product == product.name
        ]  # fmt: skip
        return (head, [row[:-1] for row in cells]) if self._has_no_neighbours else ([*head, "differs"], cells)

    @property
    def _has_no_neighbours(self) -> bool:
        return all(r.differs is None for r in self.rows)

    def _input_caption(self) -> str:
        """Return the meaning of the numbers, and the tensors with NaN or infinities."""
        notes = [f" {name} also holds {words}." for name in self.tensors if (words := self.nonfinite_in_words(name))]
        return _INPUT_CAPTION + "".join(notes)

    def _caption(self) -> str:
        units = any(tensor_cores(row.accumulator) for row in self.rows)
        notes = [_CAPTION, *([_BLOCKS] if units else []), *([] if self._has_no_neighbours else [_DIFFERS])]
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
            else:  # the terminal is too narrow for one table: print events first, then errors
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
    "Events: percent of all roundings of products and of sums ('.': none; '-': no such rounding). undfl: tiny and "
    "inexact; flush: became zero; subn: subnormal; ovfl: beyond the largest number; absrb: a non-zero product left the "
    "sum unchanged. lost to inf/NaN: percent of the results that are infinite or NaN although the exact product of the "
    "given inputs is finite; they are excluded from the errors. Ulps: of the accumulator's format, compared with the "
    "exact product of the rounded inputs. Relative error: compared with the exact product of the given inputs, in the "
    "Frobenius norm."
)


_BLOCKS = (
    "Sums of a matrix unit are counted by block, one for each rounding of its accumulator: absrb is the percent of "
    "blocks in which at least one non-zero term was discarded entirely, not the percent of such terms."
)
_DIFFERS = "differs: percent of the results whose bits differ from the matrix unit in the row above."


def _nonfinite(x: NDArray[np.float64]) -> dict[str, int]:
    import numpy as np

    return {"nan": int(np.isnan(x).sum()), "infinite": int(np.isinf(x).sum())}


def _note(product: Product) -> str:
    """Return a note on the results that are not finite because of the inputs; empty if there are none."""
    n = product.nonfinite_exactly
    why = "results have a NaN or infinite input: they are not counted as lost, and are excluded from the errors."
    return f"{n} of {product.results} {why}" if n else ""


def _rich_table(head: list[str], rows: list[list[str]]) -> Any:
    """Return a table without rules: two columns of names, then numbers. A blank line separates the first names."""
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
    """Return a label: `fp16, fused` for `sequential(fp16, fused)`, `hopper` for `tensorcore(hopper)`. Inside another
    accumulation, `sequential(fp16)` becomes `fp16`."""
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


def resolve_accumulator(accumulator: AccumulationLike, fmt: FloatFormat) -> Accumulation:
    """Return the accumulation for inputs of a format. `same` in a text stands for that format."""
    return (
        parse(accumulator, same=fmt) if isinstance(accumulator, str) else as_accumulation(accumulator, "accumulators")
    )
