"""What a policy costs a model: the error of the output, and that of each part of the policy alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import torch

from floatsim.analysis.tables import data_frame, html_table, text_table
from floatsim.formats._validation import with_keyword_hints
from floatsim.plot import layer_errors
from floatsim.torch.layer_runs import Candidate, CandidateLike, LayerRuns, as_candidates
from floatsim.torch.layer_sensitivity import finite, number_text
from floatsim.training import POLICIES, Policy

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.axes import Axes

__all__ = ["Costs", "PolicyCost", "costs"]

_PARTS = {"weights": ("weights", "weights_at_use"), "cache": ("cache",)}
"""The parts of a policy beside its operations: the fields that state them."""


@dataclass(frozen=True)
class PolicyCost:
    """The error of a model under one policy. The error of a part that the policy does not have is NaN.

    Attributes
    ----------
    policy : str
        The name of the policy, format or scheme.
    whole : float
        The error of the whole model.
    operations : float
        The error with only the formats of operations, scaled products included.
    weights : float
        The error with only the formats of stored weights, `weights` and `weights_at_use`.
    cache : float
        The error with only the formats of stored keys and values.
    overflowed : bool
        Whether an operation overflowed in the run of the whole policy.

    Examples
    --------
    >>> import torch, floatsim.torch as ft
    >>> ft.costs(torch.nn.Linear(2, 2), torch.ones(1, 2), "bf16").rows[0].policy
    'bf16'
    """

    policy: str
    whole: float
    operations: float
    weights: float
    cache: float
    overflowed: bool


_COLUMNS = ("whole", "operations", "weights", "cache")


@dataclass
class Costs:
    """The table of `ft.costs`. Prints as text, and is an HTML table in a notebook.

    Attributes
    ----------
    rows : list of PolicyCost
        One for each policy, in the order of the call.
    label : str
        What the errors are.
    runs : int
        The runs of the model, without the one of the reference.

    Examples
    --------
    >>> import torch, floatsim.torch as ft
    >>> found = ft.costs(torch.nn.Linear(2, 2), torch.ones(1, 2), ["bf16", "w4a8"])
    >>> [row.policy for row in found.rows], found.runs
    (['bf16', 'w4a8'], 4)
    """

    rows: list[PolicyCost]
    label: str
    runs: int

    def __getitem__(self, policy: str) -> PolicyCost:
        """Return the row of a policy by its name."""
        for row in self.rows:
            if row.policy == policy:
                return row
        raise KeyError(f"{policy!r} was not measured; measured are {', '.join(row.policy for row in self.rows)}")

    def _cells(self) -> list[tuple[str, ...]]:
        used = [name for name in _COLUMNS if any(not math.isnan(getattr(row, name)) for row in self.rows)]
        head = [f"{name} alone" if name != "whole" else name for name in used]
        table = [("policy", *head)]
        for row in self.rows:
            first, *rest = (number_text(getattr(row, name)) for name in used)
            table.append((row.policy, first + "!" * row.overflowed, *rest))
        return table

    def _notes(self) -> list[str]:
        overflowed = ["! an operation overflowed"] * any(row.overflowed for row in self.rows)
        return [f"{self.label}; {self.runs} runs", *overflowed]

    def __str__(self) -> str:
        return "\n".join([text_table(self._cells()), *self._notes()])

    def _repr_html_(self) -> str:
        return html_table(self._cells(), self._notes())

    def to_dict(self) -> dict[str, Any]:
        """Return the table as dicts, lists, texts and numbers, for JSON. A number that is not finite is None."""
        rows = [{key: finite(x) for key, x in asdict(row).items()} for row in self.rows]
        return {"rows": rows, "label": self.label, "runs": self.runs}

    def to_pandas(self) -> Any:
        """Return the rows as a DataFrame. Raise an ImportError if pandas is not installed."""
        return data_frame([asdict(row) for row in self.rows], [each.name for each in fields(PolicyCost)])

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the errors, a row for each policy: a full mark for the whole policy, hollow ones for its parts alone.

        Return the Axes.

        Parameters
        ----------
        ax : Axes, optional
            Axes to draw into. Default: a new figure.
        """
        table: dict[str, dict[str, float | None]] = {row.policy: {} for row in self.rows}
        hollow = {}
        for row in self.rows:
            errors = {name: x for name in _COLUMNS if not math.isnan(x := getattr(row, name))}
            for name, x in errors.items():
                if name == "whole" or len(errors) > 2:  # one part is the whole
                    series = name if name == "whole" else f"{name} alone"
                    table[row.policy][series] = x
                    hollow[series] = name != "whole"
        notes = {row.policy: number_text(row.whole) for row in self.rows}
        return layer_errors(table, hollow=hollow, notes=notes, ax=ax, label=self.label, title="Cost of policies")


@with_keyword_hints
def costs(
    model: torch.nn.Module,
    inputs: Any,
    policies: CandidateLike | list[CandidateLike] | Mapping[str, CandidateLike],
    *,
    error: str | Callable[[Any, Any], Any] = "norm",
) -> Costs:
    """Measure what policies cost a model: the error of the output, and that of each part of a policy alone.

    Parameters
    ----------
    model : torch.nn.Module
        The model. It is left as it was.
    inputs : tensor, tuple, mapping, function or list
        A batch, or a list of batches, as in `ft.sensitivity`.
    policies : policy, format or scheme, list or mapping
        What the model runs in, as in `ft.sensitivity`: a policy or its name, such as "w4a8-smoothquant+fp8-cache", a
        format, or a scheme for the weights. A list has several, a mapping names them.
    error : str or function
        "norm", "kl", or a function of an output and a reference output, as in `ft.sensitivity`. The reference is
        PyTorch's own run.

    Returns
    -------
    Costs
        Prints as a table. `plot()` draws it.

    Raises
    ------
    TypeError, ValueError
        For other arguments, with what would work; for a scheme that cannot act on a layer; for a `cache` without
        attention.

    Notes
    -----
    The parts of a policy are its operations, its stored weights, and its cache. If a policy has several, each also runs
    alone, with everything else as in the policy "native". Errors of parts do not add up: a part changes what the
    others see.

    Examples
    --------
    >>> import torch, floatsim.torch as ft
    >>> _ = torch.manual_seed(0)
    >>> layer = torch.nn.Linear(64, 8)
    >>> found = ft.costs(layer, torch.randn(4, 64), ["w8a8", "w4a8"])
    >>> found["w8a8"].whole < 0.02 < found["w4a8"].whole < 0.2
    True
    """
    runs = LayerRuns(model, inputs, None, error)
    candidates = as_candidates(policies, "policies")
    for each in candidates:
        runs.check(each, False)
    rows = [_cost(runs, each) for each in candidates]
    return Costs(rows, runs.label, runs.runs)


def _cost(runs: LayerRuns, each: Candidate) -> PolicyCost:
    whole = runs.whole(each)
    found = dict.fromkeys(_COLUMNS[1:], math.nan)
    parts = {} if each.policy is None else _parts(each.policy)
    for name, policy in parts.items():
        found[name] = whole.error if len(parts) == 1 else runs.whole(Candidate(each.name, policy)).error
    return PolicyCost(each.name, whole.error, overflowed=whole.overflowed, **found)


def _parts(policy: Policy) -> dict[str, Policy]:
    """Return policies with one part each: the operations, the stored weights, the cache."""
    found = {}
    operations = _only(policy, tuple(name for names in _PARTS.values() for name in names), keeps=False)
    if _operations(operations) != _operations(POLICIES["native"]):
        found["operations"] = operations
    for part, names in _PARTS.items():
        if _has(policy, names):
            found[part] = _only(policy, names, keeps=True)
    return found


def _operations(policy: Policy) -> tuple[Any, ...]:
    """Return what a policy states about operations."""
    inner = {key: _operations(x) if isinstance(x, Policy) else x for key, x in policy.modules.items()}
    names = ("default", "accumulate", "rules", "activations", "rounding", "device")
    return (*(getattr(policy, name) for name in names), inner)


def _has(policy: Policy, names: tuple[str, ...]) -> bool:
    inner = (x for x in policy.modules.values() if isinstance(x, Policy))
    return any(getattr(policy, name) is not None for name in names) or any(_has(x, names) for x in inner)


def _only(policy: Policy, names: tuple[str, ...], keeps: bool) -> Policy:
    """Return a policy with only these fields, the rest as in "native", or with all fields except these."""
    inner = {key: _only(x, names, keeps) if isinstance(x, Policy) else x for key, x in policy.modules.items()}
    if not keeps:
        removed: dict[str, Any] = dict.fromkeys(names)
        return replace(policy, **removed, modules=inner, name="")
    inner = {key: x for key, x in inner.items() if isinstance(x, Policy)}
    kept: dict[str, Any] = {name: getattr(policy, name) for name in names}
    return replace(POLICIES["native"], **kept, modules=inner, seed=policy.seed, name="")
