"""Which layers of a model need precision: one layer at a time in a low format, and all layers but one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import torch

from floatsim.analysis.tables import data_frame, html_table, text_table
from floatsim.formats._validation import as_flag, with_keyword_hints
from floatsim.plot import layer_errors
from floatsim.torch.layer_runs import Candidate, CandidateLike, LayerRuns, as_candidates

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["LayerSensitivity", "Sensitivity", "finite", "number_text", "sensitivity"]


@dataclass(frozen=True)
class LayerSensitivity:
    """What a low format costs in one layer.

    Attributes
    ----------
    layer : str
        The path of the layer.
    kind : str
        Its class.
    weights : int
        The number of its weights.
    format : str
        The name of the format.
    alone : float
        The error of the model with only this layer in the format.
    others : float
        The error with all layers but this one in the format. NaN if it was not measured.
    overflowed : bool
        Whether an operation of the layer overflowed, in the run with only this layer.

    Examples
    --------
    >>> import torch, floatsim.torch as ft
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    >>> ft.sensitivity(model, torch.ones(1, 2), "bf16").rows[0].layer
    '0'
    """

    layer: str
    kind: str
    weights: int
    format: str
    alone: float
    others: float
    overflowed: bool


def number_text(x: float | None) -> str:
    """Return an error as a text of a table.

    >>> number_text(0.25), number_text(0.0), number_text(float("nan"))
    ('2.50e-01', '0', '-')
    """
    return "-" if x is None or math.isnan(x) else "0" if x == 0 else "inf" if math.isinf(x) else f"{x:.2e}"


@dataclass
class Sensitivity:
    """The table of `ft.sensitivity`. Prints as text, and is an HTML table in a notebook.

    Attributes
    ----------
    rows : list of LayerSensitivity
        The most sensitive layer of each format first.
    every : dict of str to float
        The error with all layers in a format, by its name.
    whole : dict of str to float
        The error with the whole model in a format, also what lies between the layers. For a scheme, which quantizes
        weights, it is that of all layers.
    label : str
        What the errors are.
    runs : int
        The runs of the model, without the one of the reference.

    Examples
    --------
    >>> import torch, floatsim.torch as ft
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    >>> found = ft.sensitivity(model, torch.ones(1, 2), ["bf16", "int8"])
    >>> list(found.whole), found.runs
    (['bf16', 'int8'], 7)
    """

    rows: list[LayerSensitivity]
    every: dict[str, float]
    whole: dict[str, float]
    label: str
    runs: int

    def ranking(self, format: str | None = None) -> list[str]:
        """Return the layers by their sensitivity, the most sensitive first.

        Parameters
        ----------
        format : str, optional
            The name of a format. Default: the first one.

        Raises
        ------
        ValueError
            For a format that was not measured.
        """
        name = next(iter(self.every)) if format is None else format
        if name not in self.every:
            raise ValueError(f"format={name!r} was not measured; measured are {', '.join(self.every)}")
        return [row.layer for row in self.rows if row.format == name]

    def _layers(self) -> list[str]:
        """Return the layers by the largest rank in any format."""
        ranks: dict[str, int] = {}
        for name in self.every:
            for rank, layer in enumerate(self.ranking(name)):
                ranks[layer] = min(ranks.get(layer, rank), rank)
        return sorted(ranks, key=lambda layer: ranks[layer])

    def _cells(self) -> list[tuple[str, ...]]:
        by_place = {(row.layer, row.format): row for row in self.rows}
        reverse = any(not math.isnan(row.others) for row in self.rows)
        head = ["layer", "kind", "weights"]
        for name in self.every:
            head += [f"{name} alone", *(["all but"] if reverse else [])]
        table = [tuple(head)]
        for layer in self._layers():
            found = [by_place.get((layer, name)) for name in self.every]
            first = next(row for row in found if row is not None)
            cells = [layer, first.kind, str(first.weights)]
            for row in found:
                alone = "-" if row is None else number_text(row.alone) + "!" * row.overflowed
                cells += [alone, *([number_text(None if row is None else row.others)] if reverse else [])]
            table.append(tuple(cells))
        for text, errors in (("all layers", self.every), ("whole model", self.whole)):
            cells = [text, "", ""]
            for name in self.every:
                cells += [number_text(errors[name]), *([""] if reverse else [])]
            table.append(tuple(cells))
        return table

    def _notes(self) -> list[str]:
        overflowed = ["! an operation of the layer overflowed"] * any(row.overflowed for row in self.rows)
        return [f"{self.label}; {self.runs} runs", *overflowed]

    def __str__(self) -> str:
        return "\n".join([text_table(self._cells(), 2), *self._notes()])

    def _repr_html_(self) -> str:
        return html_table(self._cells(), self._notes())

    def to_dict(self) -> dict[str, Any]:
        """Return the table as dicts, lists, texts and numbers, for JSON. A number that is not finite is None."""
        rows = [{key: finite(x) for key, x in asdict(row).items()} for row in self.rows]
        errors = {name: {key: finite(x) for key, x in getattr(self, name).items()} for name in ("every", "whole")}
        return {"rows": rows, **errors, "label": self.label, "runs": self.runs}

    def to_pandas(self) -> Any:
        """Return the rows as a DataFrame. Raise an ImportError if pandas is not installed."""
        return data_frame([asdict(row) for row in self.rows], [each.name for each in fields(LayerSensitivity)])

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the errors of each layer: a full mark for only this layer, a hollow one for all but this layer.

        Dashed lines are the whole model in each format. Return the Axes.

        Parameters
        ----------
        ax : Axes, optional
            Axes to draw into. Default: a new figure.
        """
        table: dict[str, dict[str, float | None]] = {layer: {} for layer in self._layers()}
        groups, hollow = {}, {}
        for row in self.rows:
            for word, x in (("alone", row.alone), ("all but", row.others)):
                if not math.isnan(x):
                    series = f"{row.format}, {word}"
                    table[row.layer][series] = x
                    groups[series], hollow[series] = row.format, word == "all but"
        levels = {f"{name}, whole model": x for name, x in self.whole.items()}
        return layer_errors(
            table, groups=groups | {f"{name}, whole model": name for name in self.whole}, hollow=hollow, levels=levels,
            ax=ax, label=self.label, title="Layers by sensitivity",
        )  # fmt: skip


def finite(x: Any) -> Any:
    """Return None for a number that is not finite, for JSON.

    >>> finite(float("inf")), finite(0.5), finite("head")
    (None, 0.5, 'head')
    """
    return None if isinstance(x, float) and not math.isfinite(x) else x


@with_keyword_hints
def sensitivity(
    model: torch.nn.Module,
    inputs: Any,
    formats: CandidateLike | list[CandidateLike] | Mapping[str, CandidateLike],
    *,
    layers: str | Iterable[str] | None = None,
    error: str | Callable[[Any, Any], Any] = "norm",
    reverse: bool = True,
) -> Sensitivity:
    """Measure what a low format costs in each layer of a model: alone, and what remains if all others have it.

    Parameters
    ----------
    model : torch.nn.Module
        The model. It is left as it was. Layers that are not in the low format run in PyTorch.
    inputs : tensor, tuple, mapping, function or list
        A batch: the argument of the model, a tuple of arguments, a mapping of keywords, or a function that calls the
        model and returns its output. A list has several batches.
    formats : format, scheme or policy, list or mapping
        What a layer runs in. A list has several, a mapping names them. Each is

        - a policy, or its name ("bf16", "te-fp8", "mxfp8", "w8a8"): as in `ft.emulate`. A `cache` acts in layers that
          contain attention, such as those of `layers="blocks.*"`, and in the whole model;
        - a floating-point format ("e4m3", "tf32"): every operation of the layer in this format, sums in FP32;
        - an `ft.Op`, or an `ft.Gemm` for the matrix products of the layer only;
        - a scheme of quantization or its name ("int4", "nf4", "q4_k", a Scheme): the weights with two axes or
          more are quantized as in `fs.quantization.quantize_model`, and the arithmetic is PyTorch's.

        Names are read in this order: "mxfp8" is the policy, and `fs.quantization.SCHEMES["mxfp8"]` the scheme.
    layers : str or iterable of str, optional
        Paths of modules or patterns, such as "blocks.*". A module inside a chosen one belongs to it. Default: the
        modules that have weights of their own.
    error : str or function
        What is measured. "norm": the Euclidean norm of the difference of all outputs, relative to the reference,
        PyTorch's own run. "kl": the mean Kullback-Leibler divergence of the softmax of the first output. Or a function
        of an output and the reference output that returns a number from 0 up; the mean over the batches counts.
    reverse : bool
        Whether to run the model also with all layers but one in the format.

    Returns
    -------
    Sensitivity
        Prints as a table, the most sensitive layer first. `plot()` draws it, `ranking()` returns the layers.

    Raises
    ------
    TypeError, ValueError
        For other arguments, with what would work; for a pattern that fits no module; for a scheme that cannot act on a
        layer, with the layers or schemes that can.

    Notes
    -----
    With n layers, a format takes 2 n + 2 runs of the model, n + 2 without `reverse`, and one less for a scheme. Only
    the layers in the format are emulated. Random numbers of the model, such as dropout, are the same in all runs; call
    `model.eval()` before to leave them out.

    Examples
    --------
    >>> import torch, floatsim.torch as ft
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(3)))
    >>> _ = model[2].weight.data.mul_(10000)  # 2: weights beyond the largest number of E4M3
    >>> found = ft.sensitivity(model, torch.randn(4, 8), "e4m3")
    >>> print(found)
    layer        kind    weights  E4M3 alone   all but
    2            Linear       72        inf!  4.29e-02
    1            Linear       72    3.73e-02       inf
    0            Linear       72    1.97e-02       inf
    all layers                           inf
    whole model                          inf
    relative error of the output; 8 runs
    ! an operation of the layer overflowed
    """
    as_flag(reverse, "reverse")
    candidates = as_candidates(formats)
    runs = LayerRuns(model, inputs, layers, error)
    for each in candidates:
        runs.check(each, layers is not None)
    rows: list[LayerSensitivity] = []
    every, whole = {}, {}
    for each in candidates:
        found, every[each.name], whole[each.name] = _of_one(runs, each, reverse)
        rows += found
    return Sensitivity(rows, every, whole, runs.label, runs.runs)


def _of_one(runs: LayerRuns, each: Candidate, reverse: bool) -> tuple[list[LayerSensitivity], float, float]:
    """Return the rows of one format, ranked, and its errors in all layers and in the whole model."""
    able = [path for path in runs.layers if runs.acts(path, each)]
    every = runs.run(able, each)
    rows = []
    for path in able:
        alone = runs.run([path], each)
        others = runs.run([other for other in able if other != path], each).error if reverse else math.nan
        layer = runs.layers[path]
        size = sum(x.numel() for x in layer.parameters())
        rows.append(
            LayerSensitivity(path, type(layer).__name__, size, each.name, alone.error, others, alone.overflowed)
        )
    rows.sort(key=lambda row: (-row.alone, row.others))
    whole = every if each.policy is None else runs.whole(each)
    return rows, every.error, whole.error
