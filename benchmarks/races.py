"""Running the rows of `sums`: each group's calls in turn, and their bits."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

import floatsim as fs
from floatsim.arrays.call.options import resolve
from floatsim.reference import sums as reference_sums
from floatsim.reference.tensorcore.dot import Scaled
from floatsim.tensorcore.instructions import Scales

from . import peers, sums
from .peers import Job
from .running import differing, values_of
from .sums import Call, Row
from .timing import interleave


@dataclass(frozen=True)
class Settings:
    """How much to measure: no call longer than `longest` seconds, and `terms` of each checked with the reference."""

    longest: float
    rounds: int
    budget: float
    terms: int


FULL = Settings(longest=2.0, rounds=9, budget=2.0, terms=1 << 12)
QUICK = Settings(longest=0.01, rounds=2, budget=0.1, terms=1 << 7)
_SMALLEST = 16


# -- jobs ----------------------------------------------------------------------------------------------------------


def _ours(call: Call, operands: list[np.ndarray]) -> Job | str:
    function = getattr(fs, "sum" if len(operands) == 1 else "matmul", None)
    if function is None:
        return "floatsim has no sum yet"
    terms, scales = operands[:2], operands[2:]
    arrays = [fs.from_codes(x, call.fmt) if call.fmt.dtype is None else x.view(call.fmt.dtype) for x in terms]
    names = ("scale_a", "scale_b")
    of_blocks = {name: fs.from_codes(x, call.scale) for name, x in zip(names, scales, strict=False)}
    run = functools.partial(function, *arrays, accumulate=call.accumulation, **of_blocks, **call.keywords)

    def run_with_settings() -> Any:
        fs.set_num_threads(call.threads)
        try:
            with fs.record(events=call.events) if call.events else nullcontext():
                return run()
        finally:
            fs.set_num_threads(None)

    return Job(run if call.threads == 1 and not call.events else run_with_settings, values_of)


def _sgemm(_: Call, operands: list[np.ndarray]) -> Job:
    a, b = (x.view(np.float32) for x in operands)
    return Job(lambda: a @ b, np.asarray)


def _mmasim(call: Call, operands: list[np.ndarray]) -> Job | str:
    return peers.mmasim(operands) or "not installed"


def _numpy_sum(_: Call, operands: list[np.ndarray]) -> Job:
    x = operands[0].view(np.float16).astype(np.float32)
    return Job(lambda: np.sum(x), np.asarray)


def _numpy_accumulate(_: Call, operands: list[np.ndarray]) -> Job:
    x = operands[0].view(np.float16)
    return Job(lambda: np.add.accumulate(x), lambda y: y[-1:])


_KNOWN: dict[str, Callable[[Call, list[np.ndarray]], Job | str]] = {
    sums.OURS: _ours, sums.SGEMM: _sgemm, sums.MMASIM: _mmasim, sums.NUMPY_SUM: _numpy_sum,
    sums.NUMPY_ACCUMULATE: _numpy_accumulate,
}  # fmt: skip
_OTHER_SUMS = (sums.SGEMM, sums.NUMPY_SUM)  # not sums whose bits anybody else is to have


def job(call: Call, operands: list[np.ndarray]) -> Job | str:
    """What is timed, or why it is not."""
    if call.who in _KNOWN:
        return _KNOWN[call.who](call, operands)
    peer = peers.PEERS[call.who]
    if peer.version is None:
        return "not installed"
    return peer.multiply(operands, call.fmt) or "does not offer it"


# -- a call --------------------------------------------------------------------------------------------------------


@dataclass
class _Runner:
    """A call on data of the size that it can do in time."""

    shape: tuple[int, ...]
    operands: list[np.ndarray]
    job: Job


def _fitted(call: Call, longest: float) -> _Runner | str:
    """The call's own shape, or all its lengths halved as often as one call takes longer than `longest` seconds."""
    halvings = max(0, math.ceil(math.log2(max(call.shape) / _SMALLEST)))
    for n in range(halvings, -1, -1):
        shape = tuple(max(1, length >> n) for length in call.shape)
        operands = sums.codes(call, shape)
        found = job(call, operands)
        if isinstance(found, str):
            return found
        found.call()  # compile
        start = time.perf_counter()
        found.call()
        seconds = time.perf_counter() - start
        growth = math.prod(max(1, length >> max(n - 1, 0)) for length in call.shape) / math.prod(shape)
        if seconds * growth > longest:
            break
    return _Runner(shape, operands, found)


def _shortened(call: Call, operands: list[np.ndarray], most: int) -> list[np.ndarray]:
    """Operands of a product with at most so many terms."""
    a, b, *scales = operands
    if scales:
        parts = -(-most // sums.EVERY[call.scale])
        scales = [scales[0][:, :parts], scales[1][:parts]]
    return [a[:, :most], b[:most], *scales]


def against_reference(call: Call, operands: list[np.ndarray], most: int) -> list[int]:
    """[differing, compared] of floatsim's results against `reference_sums`, of `most` terms altogether."""
    if len(operands) == 1:
        operands = [operands[0][:most]]  # the beginning of a sum is one, too
        columns = [[(code, None) for code in operands[0]]]
        picked = np.array([0])
    else:
        a, b, *scales = operands = _shortened(call, operands, most)
        size = a.shape[0] * b.shape[1]
        picked = np.random.default_rng(0).choice(size, min(size, max(1, most // a.shape[1])), replace=False)
        columns = [list(zip(a[n // b.shape[1]], b[:, n % b.shape[1]], strict=True)) for n in picked]
    accumulation, options = fs.as_accumulation(call.accumulation), resolve(dict(call.keywords))
    one = reference_sums.ONE

    def code(x: Any) -> reference_sums.Code | None:
        return None if x is None else reference_sums.Code(int(x), call.fmt)

    def scaled(n: int) -> Scaled | None:
        if not call.scale:
            return None
        i, j = divmod(n, b.shape[1])
        of = Scales(sums.EVERY[call.scale], fs.as_format(call.scale))
        return Scaled(scales[0][i].tolist(), scales[1][:, j].tolist(), of)

    expected = [
        reference_sums.scaled(
            accumulation, [(code(x), code(y)) for x, y in column], options, one, one, int(n), None, scaled(int(n))
        ).code
        for n, column in zip(picked, columns, strict=True)
    ]
    found = job(call, operands)
    assert isinstance(found, Job)
    fmt = accumulation.result_format
    results = np.atleast_1d(found.read(found.call())).reshape(-1)[picked]
    return [differing(fs.decode(np.array(expected, fmt.code_dtype), fmt), results), picked.size]


def _bits(call: Call, ours: Call | None, runner: _Runner, settings: Settings) -> list[int] | None:
    """[differing, compared]: floatsim's results against the reference, a peer's against floatsim's."""
    if call.who == sums.OURS:
        return against_reference(call, runner.operands, settings.terms)
    if ours is None or call.who in _OTHER_SUMS:
        return None
    own = job(ours, runner.operands)
    if isinstance(own, str):
        return None
    expected = np.atleast_1d(own.read(own.call()))
    return [differing(expected, runner.job.read(runner.job.call())), expected.size]


# -- groups of rows ------------------------------------------------------------------------------------------------


@np.errstate(all="ignore")
def run(group: list[Row], settings: Settings) -> list[dict[str, Any]]:
    """The rows of a group with times, bits, and whether their targets hold, as plain data."""
    partners = {row.against: row.work for row in group} | {row.work: None for row in group}
    calls = list(dict.fromkeys(call for row in group for call in (row.against, row.work) if call))
    runners = {call: _fitted(call, settings.longest * call.patience) for call in calls}
    results: dict[Call, dict[str, Any]] = {}
    running = {}
    for call, runner in runners.items():
        results[call] = {"what": str(call), "fmt": call.fmt.name, "who": call.who, "wanted": list(call.shape)}
        if isinstance(runner, str):
            results[call]["note"] = runner
        else:
            running[call] = runner
            results[call] |= {"shape": list(runner.shape), "bits": _bits(call, partners.get(call), runner, settings)}
    jobs = [(runner.job.call, math.prod(runner.shape)) for runner in running.values()]
    for call, timing in zip(running, interleave(jobs, settings.rounds, settings.budget), strict=True):
        results[call] |= asdict(timing)
    return [_row(row, results[row.work], results[row.against] if row.against else None) for row in group]


def _row(row: Row, work: dict[str, Any], against: dict[str, Any] | None) -> dict[str, Any]:
    """A row's verdict: by the medians, which decide, and by the fastest rounds."""
    target = sums.TARGETS.get(row.target or "")
    unit = target.unit if target else sums.FASTER
    measured = fastest = holds = reaches = None
    complete = not any("note" in call for call in (work, against or {}))
    if complete and (against or unit == sums.MICROSECONDS):
        measured, fastest = (_measured(unit, work, against, time) for time in ("median", "fastest"))
        if target:
            holds, reaches = (meets(unit, measured, limit) for limit in (target.must, target.aim))
    return {
        "name": row.name, "group": row.group, "target": row.target, "work": work, "against": against,
        "measured": measured, "fastest": fastest, "holds": holds, "reaches": reaches,
    }  # fmt: skip


def _measured(unit: str, work: dict[str, Any], against: dict[str, Any] | None, time: str) -> float:
    if against is None:
        return float(work[time]) * math.prod(work["shape"]) / 1e3
    ratio = float(work[time]) / float(against[time])
    return ratio if unit == sums.SLOWER else 1 / ratio


def meets(unit: str, measured: float, limit: float) -> bool:
    return measured >= limit if unit == sums.FASTER else measured <= limit


def groups(rows: Iterable[Row]) -> list[list[Row]]:
    """Rows by their group, in order."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.group, []).append(row)
    return list(found.values())
