"""The smallest set of layers whose precision matters, by delta debugging."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from floatsim.analysis.tables import html_table, text_table
from floatsim.formats._validation import as_real, with_keyword_hints
from floatsim.plot import search_steps
from floatsim.torch.layer_runs import CandidateLike, LayerRuns, as_candidate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Blame", "BlameStep", "blame"]


@dataclass(frozen=True)
class BlameStep:
    """One run of the search.

    Attributes
    ----------
    kept : tuple of str
        The layers that were kept in high precision.
    error : float
        The error of the model with all other layers in the low format.
    passed : bool
        Whether the error is at most the tolerance.

    Examples
    --------
    >>> BlameStep(("head",), 0.5, False).passed
    False
    """

    kept: tuple[str, ...]
    error: float
    passed: bool


@dataclass
class Blame:
    """The result of `ft.blame`. Prints as a table of the runs.

    Attributes
    ----------
    layers : list of str
        The layers that must stay in high precision, in the order of the model. No layer can be left out of this set.
    error : float
        The error with all other layers in the low format: at most `tolerance`.
    tolerance : float
        The largest error that is allowed.
    format : str
        The name of the low format.
    steps : list of BlameStep
        All runs, in their order. The first one has all layers in the low format.
    candidates : list of str
        The layers that were searched.
    label : str
        What the errors are.

    Examples
    --------
    >>> import torch, floatsim.torch as ft
    >>> found = ft.blame(torch.nn.Linear(2, 2), torch.ones(1, 2), "bf16", tolerance=0.1)
    >>> found.layers, found.runs
    ([], 1)
    """

    layers: list[str]
    error: float
    tolerance: float
    format: str
    steps: list[BlameStep]
    candidates: list[str]
    label: str

    @property
    def runs(self) -> int:
        """The runs of the model, without the one of the reference."""
        return len(self.steps)

    def _cells(self) -> list[tuple[str, ...]]:
        rows = [
            (
                str(n),
                "passed" if step.passed else "failed",
                f"{step.error:.2e}",
                _listed(step.kept, len(self.candidates)),
            )
            for n, step in enumerate(self.steps, 1)
        ]
        return [("run", "result", "error", "kept in high precision"), *rows]

    def _sum(self) -> str:
        if not self.layers:
            return f"no layer needs more than {self.format}: the error is {self.error:.2e}, {self.label}"
        of = f"{len(self.layers)} of {len(self.candidates)} layers need more than {self.format}"
        return (
            f"{of}: {', '.join(self.layers)}. With them the error is {self.error:.2e}, {self.label}; {self.runs} runs"
        )

    def __str__(self) -> str:
        return f"{text_table(self._cells(), 4)}\n{self._sum()}"

    def _repr_html_(self) -> str:
        return html_table(self._cells(), [self._sum()])

    def to_dict(self) -> dict[str, Any]:
        """Return the result as dicts, lists, texts and numbers, for JSON. An error that is not finite is None."""
        steps = [
            {"kept": list(step.kept), "error": step.error if step.error < float("inf") else None, "passed": step.passed}
            for step in self.steps
        ]
        return {
            "layers": self.layers, "error": self.error, "tolerance": self.tolerance, "format": self.format,
            "steps": steps, "candidates": self.candidates, "label": self.label,
        }  # fmt: skip

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw each run as a row: the layers that were kept in high precision, and the error. Return the Axes.

        Parameters
        ----------
        ax : Axes, optional
            Axes to draw into. Default: a new figure.
        """
        rows = [(step.kept, step.error, step.passed) for step in self.steps]
        return search_steps(
            self.candidates, rows, found=self.layers, ax=ax, title=f"Layers that need more than {self.format}"
        )


def _listed(kept: tuple[str, ...], of: int) -> str:
    """Return the names of layers, at most five."""
    if not kept:
        return "none"
    names = ", ".join(kept[:5]) + ", ..." * (len(kept) > 5)
    return f"{len(kept)} of {of}: {names}"


class _Search:
    """The search for a smallest passing set, with a memory of all runs."""

    def __init__(self, names: list[str], error_of: Callable[[tuple[str, ...]], float], tolerance: float) -> None:
        self.names, self.error_of, self.tolerance = names, error_of, tolerance
        self.steps: dict[tuple[str, ...], BlameStep] = {}

    def passes(self, kept: Iterable[str]) -> bool:
        """Return whether the model passes with these layers in high precision."""
        chosen = set(kept)
        key = tuple(name for name in self.names if name in chosen)
        if len(key) == len(self.names):
            return True  # the reference itself
        if key not in self.steps:
            error = self.error_of(key)
            self.steps[key] = BlameStep(key, error, error <= self.tolerance)
        return self.steps[key].passed

    def smallest(self) -> list[str]:
        """Return a passing set from which no layer can be left out.

        Halving finds the last layer of the shortest first part that passes together with the layers found so far. The
        search continues before it. Then each layer is left out once, until no smaller set passes.
        """
        found: list[str] = []
        pool = list(self.names)
        while not self.passes(found):
            low, high = 0, len(pool)  # found and pool[:low] fail, found and pool[:high] pass
            while high - low > 1:
                middle = (low + high) // 2
                if self.passes([*found, *pool[:middle]]):
                    high = middle
                else:
                    low = middle
            found.append(pool[high - 1])
            pool = pool[: high - 1]
        kept = found
        while smaller := next((rest for rest in _without_one(kept) if self.passes(rest)), None):
            kept = smaller
        return [name for name in self.names if name in kept]


def _without_one(kept: list[str]) -> Iterable[list[str]]:
    return ([*kept[:i], *kept[i + 1 :]] for i in range(len(kept))) if len(kept) > 1 else ()


@with_keyword_hints
def blame(
    model: torch.nn.Module,
    inputs: Any,
    format: CandidateLike,
    *,
    tolerance: float,
    layers: str | Iterable[str] | None = None,
    error: str | Callable[[Any, Any], Any] = "norm",
) -> Blame:
    """Find the smallest set of layers that must stay in high precision, by delta debugging.

    Parameters
    ----------
    model : torch.nn.Module
        The model. It is left as it was.
    inputs : tensor, tuple, mapping, function or list
        One batch or several, as in `ft.sensitivity`.
    format : format, scheme or policy
        What all other layers run in, as an entry of `formats` in `ft.sensitivity`.
    tolerance : float
        The largest error that is allowed.
    layers : str or iterable of str, optional
        Paths of modules or patterns. Default: the modules that have weights of their own.
    error : str or function
        What is measured: "norm", "kl", or a function of an output and the reference output, as in `ft.sensitivity`.

    Returns
    -------
    Blame
        `layers` must stay as they are in PyTorch. `runs` is the number of runs. `plot()` draws the search.

    Raises
    ------
    TypeError, ValueError
        As `ft.sensitivity`, and for a tolerance that is negative or no number.

    Notes
    -----
    The search is delta debugging (Zeller and Hildebrandt, Simplifying and isolating failure-inducing input, 2002) with
    halving: it finds the layers one by one, and then leaves out each of them once, as ddmin does at its finest
    granularity. For k layers of n it takes at most k (ceil(log2 n) + 2) runs, or one if k is 0, as long as more layers
    in high precision never turn a passing model into a failing one. Otherwise the result still passes, and no layer can
    be left out of it, but it may take more runs, and a smaller set may exist.

    Examples
    --------
    >>> import torch, floatsim.torch as ft
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(6)))
    >>> _ = model[5].weight.data.mul_(10000)  # 5: weights beyond the largest number of E4M3
    >>> found = ft.blame(model, torch.randn(4, 8), "e4m3", tolerance=0.5)
    >>> found.layers, found.runs
    (['5'], 5)
    """
    limit = as_real(tolerance, "tolerance", 0)
    candidate = as_candidate(format, argument="format")
    runs = LayerRuns(model, inputs, layers, error)
    runs.check(candidate, layers is not None)
    able = [path for path in runs.layers if runs.acts(path, candidate)]

    def error_of(kept: tuple[str, ...]) -> float:
        return runs.run([path for path in able if path not in kept], candidate).error

    search = _Search(able, error_of, limit)
    found = search.smallest()
    step = search.steps.get(tuple(found))
    return Blame(
        found, 0.0 if step is None else step.error, limit, candidate.name, list(search.steps.values()), able, runs.label
    )
