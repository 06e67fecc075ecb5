"""`check_twin`: compute a recorded training run again on a CPU, and find the first bits that differ."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from floatsim.formats._validation import name_hint, with_keyword_hints
from floatsim.torch.emulation import emulate
from floatsim.torch.run import Unverified
from floatsim.torch.twin.causes import KINDS, Cause, cause_in_operations, cause_in_optimizer, in_dtype
from floatsim.torch.twin.definition import Definition
from floatsim.torch.twin.operations import Operation, OperationLog, without_modes
from floatsim.torch.twin.record import facts_of_optimizer, policy_of
from floatsim.torch.twin.recording import DESCRIBED, Place, Recording, sha256_of
from floatsim.torch.twin.stepping import AUTOCAST, Stepper, flat_tensors, with_settings
from floatsim.training.policies.named import PolicyLike

__all__ = ["Counted", "Difference", "TwinReport", "check_twin"]

_DIRECTIONS = {
    "initial": "initial weights", "input": "input", "forward": "forward", "loss": "loss", "gradient": "gradient",
    "weight_gradient": "gradient", "updated": "weights after the optimizer",
}  # fmt: skip
"""The directions of the parts, as a report names them."""


class Counted(NamedTuple):
    """The compared codes of one part of one step.

    Attributes
    ----------
    step : int
        The step; -1 for initial weights.
    part : str
        "initial", "input", "forward", "loss", "gradient", "weight_gradient" or "updated".
    codes, differing : int
        The codes that were compared, and those that differ. A tensor that is kept as a hash counts as one difference.
    """

    step: int
    part: str
    codes: int
    differing: int


@dataclass(frozen=True)
class Difference:
    """The first tensor of a run whose bits differ.

    Attributes
    ----------
    place : Place
        The step, the part and the name of the tensor.
    module : str
        The module that computed it; "" outside of modules. The gradient of the result of a module is computed by the
        backward pass of a later module.
    direction : str
        "initial weights", "input", "forward", "loss", "gradient" or "weights after the optimizer".
    codes : int
        The codes of the tensor.
    differing : int or None
        Those that differ. None if the recording has only the hash.
    index : tuple of int
        The index of the first that differs.
    found, recorded : int or None
        Its codes, here and in the recording.
    kind : str
        The likeliest cause: a name of `ft.KINDS`.
    why : str
        What was found about the cause.
    operation : str
        The ATen operation that made the tensor, or the optimizer, if it is known.

    Examples
    --------
    >>> place = Place(2, "output", "0")
    >>> print(Difference(place, "0", "forward", 64, 3, (0, 5), 0x3F80, 0x3F81, "order", "equal in two parts"))
    first difference: step 2, forward, module 0 (step2/output/0)
      3 of 64 codes differ, the first at [0, 5]: 0x3f80 here, 0x3f81 in the recording
      likeliest cause: another order of a sum (order)
      equal in two parts
    """

    place: Place
    module: str
    direction: str
    codes: int
    differing: int | None
    index: tuple[int, ...]
    found: int | None
    recorded: int | None
    kind: str
    why: str
    operation: str = ""

    def __str__(self) -> str:
        where = f"module {self.module}" if self.module else "outside of modules"
        step = "" if self.place.step < 0 else f"step {self.place.step}, "
        number = "its hash differs" if self.differing is None else f"{self.differing} of {self.codes} codes differ"
        first = ""
        if self.found is not None and self.recorded is not None:
            first = f", the first at {list(self.index)}: {self.found:#x} here, {self.recorded:#x} in the recording"
        return (
            f"first difference: {step}{self.direction}, {where} ({self.place})\n  {number}{first}\n"
            f"  likeliest cause: {KINDS[self.kind]} ({self.kind})\n  {self.why}"
        )


@dataclass
class TwinReport:
    """The comparison of a run with its recording. `bool` is whether all bits are equal.

    Attributes
    ----------
    device : str
        The emulated device, or "cpu".
    steps : int
        The number of steps.
    rows : list of Counted
        The counts of each part of each step, in order.
    first : Difference or None
        The first tensor that differs.
    unverified : dict of Unverified to int
        The operations that are not known to have the bits of the device, with their calls.
    notes : list of str
        Versions, optimizers and settings that differ from what was recorded or described.

    Examples
    --------
    >>> report = TwinReport("h200", 1, [Counted(0, "output", 64, 0), Counted(0, "loss", 1, 0)])
    >>> bool(report), report.codes, report.differing
    (True, 65, 0)
    """

    device: str
    steps: int
    rows: list[Counted] = field(default_factory=list)
    first: Difference | None = None
    unverified: dict[Unverified, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def codes(self) -> int:
        """The number of codes that were compared."""
        return sum(row.codes for row in self.rows)

    @property
    def differing(self) -> int:
        """The number of codes that differ."""
        return sum(row.differing for row in self.rows)

    def __bool__(self) -> bool:
        return self.first is None

    def by_step(self) -> list[tuple[int, int, int]]:
        """Return the step, the compared codes and the differing codes of each step.

        >>> TwinReport("h200", 1, [Counted(0, "forward", 8, 0), Counted(0, "loss", 1, 1)]).by_step()
        [(0, 9, 1)]
        """
        found: dict[int, list[int]] = {}
        for row in self.rows:
            counts = found.setdefault(row.step, [0, 0])
            counts[0] += row.codes
            counts[1] += row.differing
        return [(step, *counts) for step, counts in sorted(found.items())]  # type: ignore[misc]

    def __str__(self) -> str:
        lines = []
        for step, codes, differing in self.by_step():
            name = "initial weights" if step < 0 else f"step {step}"
            lines.append(f"{name}: {codes} codes, {differing} differ")
        lines += [str(self.first)] if self.first else []
        lines += [f"not compared with the device: {each}" for each in self.unverified]
        lines += [f"note: {each}" for each in self.notes]
        verdict = "all are equal" if self else f"{self.differing} differ"
        return "\n".join([*lines, f"{self.codes} codes in {self.steps} steps on {self.device}: {verdict}"])

    def to_dict(self) -> dict[str, Any]:
        """Return the report as dicts, lists, texts and numbers, for JSON.

        >>> TwinReport("h200", 1).to_dict()["equal"]
        True
        """
        first = None
        if self.first is not None:
            first = {**vars(self.first), "place": str(self.first.place), "step": self.first.place.step,
                     "index": list(self.first.index)}  # fmt: skip
        return {
            "equal": bool(self), "device": self.device, "steps": self.steps, "codes": self.codes,
            "differing": self.differing, "first": first, "rows": [row._asdict() for row in self.rows],
            "unverified": [str(each) for each in self.unverified], "notes": self.notes,
        }  # fmt: skip


@dataclass
class _Found:
    """The first difference while the run goes on: the tensor, and what is needed to look for its cause."""

    place: Place
    tensor: torch.Tensor
    differing: int | None
    index: tuple[int, ...]
    found: int | None
    recorded: int | None
    operations: list[Operation]
    since: int


@dataclass
class _Update:
    """The optimizer and the weights before a step."""

    state: dict[str, Any]
    weights: dict[str, tuple[torch.Tensor, torch.Tensor | None]]


class _Comparison:
    """Compares the tensors of a run with its recording, in the order in which the run makes them."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.log: OperationLog | None = None
        self.seen: set[Place] = set()
        self.counts: dict[tuple[int, str], list[int]] = {}
        self.first: _Found | None = None
        self.differences = 0
        self._equal_until = 0

    def keep(self, place: Place, x: torch.Tensor) -> None:
        """Compare a tensor of the run."""
        entry = self.recording.entries.get(place)
        if entry is None or place in self.seen:
            return
        self.seen.add(place)
        with without_modes():
            tensor = x.detach().clone()
            if tuple(tensor.shape) != entry.shape:
                raise ValueError(f"{place} has shape {tuple(tensor.shape)} here, and {entry.shape} in the recording")
            try:
                codes = in_dtype(tensor, entry.dtype)
            except ValueError as error:
                raise ValueError(f"{place} {error}") from None
        recorded = self.recording.codes.get(place)
        index: tuple[int, ...] = ()
        if recorded is None:
            differing = int(sha256_of(codes) != entry.sha256)
        else:
            differs = codes != recorded
            differing = int(differs.sum())
            index = tuple(int(n) for n in np.argwhere(differs)[0]) if differing else ()
        counts = self.counts.setdefault((place.step, place.part), [0, 0])
        counts[0] += codes.size
        counts[1] += differing
        self.differences += differing > 0
        done = 0 if self.log is None else len(self.log.operations)
        if differing and self.first is None:
            operations = [] if self.log is None else list(self.log.operations)
            known = recorded is not None
            self.first = _Found(
                place, tensor, differing if known else None, index, int(codes[index]) if known else None,
                None if recorded is None else int(recorded[index]), operations, self._equal_until,
            )  # fmt: skip
        if self.first is not None and self.log is not None:
            self.log.active = False
        self._equal_until = done

    def begin_step(self) -> None:
        """Forget the operations of the step before."""
        if self.log is not None:
            self.log.operations = []
        self._equal_until = 0

    def tensor(self, place: Place, like: torch.Tensor) -> torch.Tensor | None:
        """Return a recorded tensor in the dtype of another one, or None if its codes are not there."""
        codes = self.recording.codes.get(place)
        if codes is None:
            return None
        integers = torch.from_numpy(np.ascontiguousarray(codes).view(f"int{8 * codes.itemsize}"))
        dtype = getattr(torch, self.recording.entries[place].dtype)
        return (integers.to(torch.uint8) if codes.itemsize == 1 else integers).view(dtype).to(like.dtype)

    def rows(self) -> list[Counted]:
        """Return the counts of each part."""
        return [Counted(*key, *counts) for key, counts in self.counts.items()]


@with_keyword_hints
def check_twin(
    path: str | Path | Recording, definition: Any = None, *, device: str | None = None, policy: PolicyLike | None = None
) -> TwinReport:
    """Compute a recorded training run again on this CPU, and compare all bits, module by module and step by step.

    Parameters
    ----------
    path : path or Recording
        A file of `ft.record_twin`.
    definition : path or object, optional
        The run, as in `ft.record_twin`. Default: the text of MODEL.py in the recording, which is run.
    device : str, optional
        "h200" or "cpu". Default: the device of the recording.
    policy : Policy or str, optional
        A policy in place of the device's, to see whether it has the recorded bits: one with another order in a module,
        for example. Default: the policy of the device.

    Returns
    -------
    TwinReport
        Its `first` is the first difference, with its likeliest cause. It is true if all bits are equal.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is no complete recording, the definition has other modules or shapes, or the device or the versions
        are not known. The message names each.

    Notes
    -----
    The run starts from its own initial weights, and draws its own batches. If they differ, this is the first
    difference, and the run goes on with the recorded ones. The cause of a difference is looked for by computing
    the operation in other ways: other orders of sums, exact functions, other roundings, and other constants of the
    optimizer. A cause without such a way is a guess by the kind of the operation, and its text says so.

    Running a definition runs its code: check recordings of people whose programs you would run.

    Examples
    --------
    >>> import floatsim.torch as ft, tempfile, torch
    >>> from types import SimpleNamespace
    >>> run = SimpleNamespace(
    ...     build=lambda: torch.nn.Linear(2, 1), batch=lambda step: (torch.ones(1, 2),),
    ...     loss=lambda output, batch: output.sum(), optimizer=lambda weights: torch.optim.SGD(weights, lr=0.5),
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = torch.manual_seed(0)
    ...     recording = ft.record_twin(run, f"{folder}/run.npz", device="cpu", steps=1)
    >>> _ = torch.manual_seed(1)
    >>> print(ft.check_twin(recording, run).first.kind)  # build() sets no seed
    weights
    """
    recording = path if isinstance(path, Recording) else Recording.read(path)
    facts = recording.facts
    device = _device_of(facts, device)
    steps, autocast = _steps_of(facts), facts.get("autocast")
    if autocast is not None and autocast not in AUTOCAST:
        raise ValueError(f"the recording has autocast={autocast!r}; {name_hint(str(autocast), AUTOCAST)}")
    functions = _definition_of(facts, definition)
    comparison = _Comparison(recording)
    stepper = Stepper(functions, comparison.keep)
    _check_structure(recording, stepper.model, functions.name)
    if policy is None and device in DESCRIBED:
        policy = policy_of(device, autocast)
    report = TwinReport(device, steps, notes=_notes(facts, device, stepper))
    stepper.initial()
    _load_recorded(comparison, stepper.model)
    update: _Update | None = None

    def before_update() -> None:
        nonlocal update
        if comparison.log is not None:
            comparison.log.active = False
        if comparison.first is None:
            with without_modes():
                update = _Update(
                    copy.deepcopy(stepper.optimizer.state_dict()),
                    {name: (x.detach().clone(), None if x.grad is None else x.grad.clone())
                     for name, x in stepper.model.named_parameters()},
                )  # fmt: skip

    with ExitStack() as stack:
        stack.enter_context(with_settings(facts.get("settings") or {}))
        run = None
        if policy is not None:
            run = stack.enter_context(emulate(policy, stepper.model, count=0))
        unverified: Counter[Unverified] = Counter() if run is None else run.unverified
        comparison.log = stack.enter_context(OperationLog(stepper.model, lambda: unverified))
        for step in range(steps):
            comparison.begin_step()
            batch = _batch(comparison, stepper, step)
            comparison.log.active = comparison.first is None
            stepper.run(step, batch, before_update=before_update)
            if step == 0:
                _check_places(comparison, functions.name)
    report.rows, report.unverified = comparison.rows(), dict(unverified)
    if comparison.first is not None:
        report.first = _difference(comparison, stepper, update, policy, autocast, report)
    return report


# -- the recording and the definition ----------------------------------------------------------------------------------


def _device_of(facts: Mapping[str, Any], wanted: str | None) -> str:
    known = ("cpu", *DESCRIBED)
    if wanted is not None and wanted not in known:
        raise ValueError(f"device={wanted!r} is not described; {name_hint(wanted, known)}")
    device: str = facts["device"] if wanted is None else wanted
    if device not in known:
        raise ValueError(
            f"the recording is of the device {device!r}, which is not described; described are {', '.join(known)}"
        )
    versions = facts["versions"]
    if not isinstance(versions.get("torch"), str):
        raise ValueError("the recording has no version of torch: versions must have the key 'torch'")
    return device


def _steps_of(facts: Mapping[str, Any]) -> int:
    steps: int = facts["steps"]
    if steps < 1:
        raise ValueError(f"the recording has steps={steps}; it must be 1 or more")
    return steps


def _definition_of(facts: Mapping[str, Any], given: Any) -> Definition:
    if given is not None:
        return Definition.of(given)
    model = facts.get("model")
    source = model.get("source") if isinstance(model, Mapping) else None
    if not isinstance(model, Mapping) or not isinstance(source, str) or not source:
        raise ValueError("the recording has no text of MODEL.py; give the definition")
    return Definition.from_source(source, str(model.get("name") or "model.py"))


def _check_structure(recording: Recording, model: torch.nn.Module, name: str) -> None:
    """Raise if the recorded weights have other names or shapes than those of the model."""
    recorded = recording.of_part("initial")
    own = {key: x for key, x in model.state_dict().items() if isinstance(x, torch.Tensor)}
    if not recorded:
        return
    if missing := sorted(own.keys() ^ recorded.keys()):
        raise ValueError(f"the weights {', '.join(missing[:5])} are only in one of the recording and {name}")
    for key, entry in recorded.items():
        x = own[key]
        dtype = str(x.dtype).removeprefix("torch.")
        if tuple(x.shape) != entry.shape or dtype != entry.dtype:
            raise ValueError(
                f"the weight {key} of {name} is {dtype} of shape {tuple(x.shape)}, and in the recording it is "
                f"{entry.dtype} of shape {entry.shape}"
            )


def _check_places(comparison: _Comparison, name: str) -> None:
    """Raise if the recording has tensors of the first step that the run did not make."""
    absent = [place for place in comparison.recording.entries if place.step == 0 and place not in comparison.seen]
    if absent:
        raise ValueError(f"the recording has {absent[0]}, which the run of {name} does not make")


def _load_recorded(comparison: _Comparison, model: torch.nn.Module) -> None:
    """Load recorded initial weights where they differ."""
    if comparison.first is None:
        return
    for name, x in model.state_dict().items():
        found = comparison.tensor(Place(-1, "initial", name), x)
        if found is not None:
            x.copy_(found)


def _batch(comparison: _Comparison, stepper: Stepper, step: int) -> Any:
    """Return the batch of a step; where it differs, the recorded one."""
    batch = stepper.batch(step)
    before = comparison.differences
    names = flat_tensors(batch)
    for name, x in names:
        comparison.keep(Place(step, "input", name), x)
    if comparison.differences == before:
        return batch
    leaves, spec = tree_flatten(batch)
    recorded: Iterator[Any] = iter([comparison.tensor(Place(step, "input", name), x) for name, x in names])
    chosen = []
    for leaf in leaves:
        other = next(recorded) if isinstance(leaf, torch.Tensor) else None
        chosen.append(leaf if other is None else other)
    return tree_unflatten(chosen, spec)


def _notes(facts: Mapping[str, Any], device: str, stepper: Stepper) -> list[str]:
    """Return what differs from what was recorded or described."""
    notes = []
    described = dict(DESCRIBED.get(device, {"torch": torch.__version__}))
    described.pop("name", None)
    if not facts.get("emulated") and facts["device"] == device:
        for library, version in described.items():
            recorded = facts["versions"].get(library)
            if recorded is not None and str(recorded).partition("+")[0] != version.partition("+")[0]:
                notes.append(f"version: the recording is of {library} {recorded}, and {library} {version} was compared")
    recorded, own = facts.get("optimizer"), facts_of_optimizer(stepper.optimizer)
    if isinstance(recorded, Mapping):
        notes += [f"optimizer: {text}" for text in _changed_options(recorded, own)]
    return notes


def _changed_options(recorded: Mapping[str, Any], own: Mapping[str, Any]) -> list[str]:
    """Return the options of an optimizer that differ, as text."""
    if recorded.get("class") != own["class"]:
        return [f"{recorded.get('class')} in the recording, {own['class']} here"]
    found = []
    for number, (theirs, mine) in enumerate(zip(recorded.get("groups") or [], own["groups"], strict=False)):
        for key in sorted(theirs.keys() & mine.keys()):
            if theirs[key] != mine[key]:
                group = f" of group {number}" if len(own["groups"]) > 1 else ""
                found.append(f"{key}{group} is {theirs[key]!r} in the recording, and {mine[key]!r} here")
    return found


# -- the cause ---------------------------------------------------------------------------------------------------------


def _difference(
    comparison: _Comparison, stepper: Stepper, update: _Update | None, policy: PolicyLike | None,
    autocast: str | None, report: TwinReport,
) -> Difference:  # fmt: skip
    """Return the first difference with its likeliest cause."""
    found = comparison.first
    assert found is not None
    place = found.place
    cause = _cause(comparison, found, stepper, update, policy, autocast, report)
    inside = cause.operation and place.part in ("forward", "loss", "gradient", "weight_gradient")
    return Difference(
        place, cause.module if inside else place.module, _DIRECTIONS[place.part], found.tensor.numel(),
        found.differing, found.index, found.found, found.recorded, cause.kind, cause.why, cause.operation,
    )  # fmt: skip


def _cause(
    comparison: _Comparison, found: _Found, stepper: Stepper, update: _Update | None, policy: PolicyLike | None,
    autocast: str | None, report: TwinReport,
) -> Cause:  # fmt: skip
    place, recording = found.place, comparison.recording
    codes = recording.codes.get(place)
    if codes is not None and sha256_of(codes) != recording.entries[place].sha256:
        return Cause("recording", f"the codes of {place} do not have the hash that was recorded with them")
    if place.part == "initial":
        return Cause("weights", "build() must set the seed of its weights; the run went on with the recorded ones")
    if place.part == "input":
        return Cause("inputs", f"batch({place.step}) must return the same numbers; the run went on with the recorded")
    if place.part == "updated":
        cause = _cause_of_update(found, codes, stepper, update, policy, report)
    else:
        made = cause_in_operations(
            found.operations, found.since, found.tensor, codes, recording.entries[place].dtype, autocast
        )
        cause = made or Cause("function", "no operation was seen before this tensor")
    if cause.shown:
        return cause
    if _is_one_bit(comparison, found):
        return cause._replace(
            kind="recording", why=f"one bit of one code differs, which no rounding explains: a bit that changed in "
            f"memory or in the file; {cause.why}",
        )  # fmt: skip
    versions = [note for note in report.notes if note.startswith("version")]
    if versions and cause.kind != "unverified":
        return cause._replace(kind="version", why=f"{versions[0]}; {cause.why}")
    return cause


def _is_one_bit(comparison: _Comparison, found: _Found) -> bool:
    """Return whether one bit of one code differs, and no rounding explains it.

    A rounding can change the last bits. A weight that differs in its last bit differs in the next step, too, unless the
    recorded run went on with another weight.
    """
    if found.differing != 1 or found.found is None or found.recorded is None:
        return False
    changed = found.found ^ found.recorded
    last = found.place.step == comparison.recording.facts["steps"] - 1
    alone = found.place.part == "updated" and comparison.differences == 1 and not last
    return changed.bit_count() == 1 and (changed >= 4 or alone)


def _cause_of_update(
    found: _Found, codes: np.ndarray[Any, Any] | None, stepper: Stepper, update: _Update | None,
    policy: PolicyLike | None, report: TwinReport,
) -> Cause:  # fmt: skip
    """Return the likeliest cause of a difference after the optimizer."""
    changed = [note for note in report.notes if note.startswith("optimizer")]
    name = type(stepper.optimizer).__name__
    if changed:
        return Cause("optimizer", f"{changed[0]}; the gradient is equal", operation=name, shown=True)
    if update is None or stepper.scaler is not None or found.place.name not in update.weights:
        return Cause("optimizer", "the gradient is equal, and the weight after the optimizer is not", operation=name)
    names = [key for key, _ in stepper.model.named_parameters()]
    ids = {id(x): key for key, x in stepper.model.named_parameters()}
    order = [ids.get(id(x)) for group in stepper.optimizer.param_groups for x in group["params"]]
    number = order.index(found.place.name) if found.place.name in order else None
    if number is None or found.place.name not in names:
        return Cause("optimizer", "the weight is not in the optimizer", operation=name)
    group = next(each for each in update.state["param_groups"] if number in each["params"])
    before, gradient = update.weights[found.place.name]
    return cause_in_optimizer(
        stepper.definition.optimizer_of, group, update.state["state"].get(number, {}), before, gradient, found.tensor,
        codes, policy,
    )  # fmt: skip
