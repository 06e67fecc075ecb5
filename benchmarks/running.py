"""Running a case: contestants' jobs, their times in turn, their bits (floatsim's against those of reference.py)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

import floatsim as fs
from floatsim import reference
from floatsim.arrays.call.options import resolve
from floatsim.formats.rounding import FLAGS, Rounding

from . import cases
from .cases import Case, Row
from .peers import ALL, PEERS, Job
from .timing import interleave


@dataclass(frozen=True)
class Settings:
    """How much to measure."""

    sizes: dict[str, int]
    rounds: int
    budget: float
    sample: int


FULL = Settings(cases.FULL, rounds=15, budget=2.0, sample=1000)
QUICK = Settings(cases.QUICK, rounds=2, budget=0.2, sample=50)

_INTEGER = np.dtype(np.int32)


# -- operands and jobs ---------------------------------------------------------------------------------------------


def operands_of(case: Case, data: str, size: int) -> list[np.ndarray]:
    """The arrays that the operation takes: values for conversions, codes for the rest."""
    rng = np.random.default_rng(size)
    if case.operation == "from_integer":
        info = np.iinfo(np.int64)
        low, high = (-100, 100) if data == "easy" else (info.min, info.max)
        return [rng.integers(low, high, size)]
    if case.operation == "quantize_blocks":
        return [cases.matrix(data, case.fmt, size)]
    if count := cases.OPERANDS[case.operation]:
        arrays = cases.codes(data, case.fmt, size, count, case.operation == "sqrt")
        if case.operation == "scalb":
            arrays.append(rng.integers(-3, 4, size) if data == "easy" else rng.integers(-60, 61, size))
        return arrays
    return [cases.values(data, case.source, case.fmt, size)]


def _call(case: Case, row: Row, operands: list[np.ndarray]) -> Callable[[], Any]:
    """The public function as users call it."""
    operation = row.operation or case.operation
    function, keywords, count = getattr(fs, operation), dict(row.options), cases.OPERANDS[operation]
    if count == 0 or operation == "decode":
        arguments: list[Any] = [operands[0], case.fmt]
    else:
        arguments = [_array(codes, case.fmt) for codes in operands[:count]]
        if operation == "to_integer":
            arguments.append(_INTEGER)
        elif operation == "scalb":
            arguments.append(operands[count])
    if row.out:
        keywords["out"] = _result_of(case, operands[0])
    return functools.partial(function, *arguments, **keywords)


def _result_of(case: Case, x: np.ndarray) -> Any:
    """An array for the results."""
    if dtype := {"encode": case.fmt.code_dtype, "decode": np.dtype(np.float64)}.get(case.operation):
        return np.empty(x.shape, dtype)
    return np.empty_like(x) if cases.OPERANDS[case.operation] == 0 else _array(np.empty_like(x), case.fmt)


def _array(codes: np.ndarray, fmt: fs.FloatFormat) -> Any:
    return fs.from_codes(codes, fmt) if fmt.dtype is None else codes.view(fmt.dtype)


def values_of(result: Any) -> np.ndarray:
    return result.values if isinstance(result, fs.FloatArray) else np.asarray(result)


def job(case: Case, row: Row, operands: list[np.ndarray]) -> Job | str:
    """What a contestant runs, or why it does not."""
    if row.kind == "limit":
        (x,) = operands
        if row.label == cases.COPY:
            return Job(x.copy, values_of)
        if row.label == cases.SAME_BYTES:
            x = np.zeros((x.nbytes + _result_of(case, x).nbytes) // 2, np.uint8)
        return Job(functools.partial(np.copyto, np.empty_like(x), x), values_of)
    if row.kind == "floatsim":
        if row.out and case.operation == "quantize" and not cases.HAS_OUT:
            return "quantize has no out="
        return Job(_call(case, row, operands), values_of)
    peer = PEERS[row.label]
    if peer.version is None:
        return "not installed"
    if case.operation == "quantize":
        found = peer.quantize(operands[0], case.fmt, row.options.get("rounding", "ties_to_even"))
    elif case.operation == "convert":
        found = peer.convert(operands[0], case.fmt)
    else:
        found = peer.operate(case.operation, operands, case.fmt)
    return found or "does not offer it"


# -- bits ----------------------------------------------------------------------------------------------------------


def differing(expected: np.ndarray, got: np.ndarray) -> int:
    """How many values differ in a bit. The sign of zero counts; any NaN equals any NaN."""
    e, g = (np.ascontiguousarray(x, dtype=np.float64) for x in (expected, got))
    return int(np.count_nonzero((e.view(np.uint64) != g.view(np.uint64)) & ~(np.isnan(e) & np.isnan(g))))


_WITH_REFERENCE = {name for name, count in cases.OPERANDS.items() if count and hasattr(reference, name)} - {
    "scalb", "to_integer", "logb", "next_up", "next_down", "decode",
}  # fmt: skip
_WITHOUT_ATTRIBUTES_OF_DRAWS = ("floor", "ceil", "trunc")


def against_reference(case: Case, row: Row, operands: list[np.ndarray], result: Any, sample: int) -> list[int] | None:
    """[differing, compared] of a sample of floatsim's own results, and flags, against reference.py."""
    operation = row.operation or case.operation
    converts = operation in ("quantize", "convert", "encode")
    if not converts and operation not in _WITH_REFERENCE:
        return None
    source = fs.as_format(operands[0].dtype) if converts else case.fmt
    function = reference.convert if converts else getattr(reference, operation)
    operands = operands[: max(1, cases.OPERANDS[operation])]
    options = resolve(dict(row.options))
    size = operands[0].size
    picked = np.unique(np.random.default_rng(0).integers(0, size, sample))
    codes = [x[picked].view(source.code_dtype) for x in operands]
    expected, flags = np.empty(picked.size, case.fmt.code_dtype), np.empty(picked.size, np.uint8)
    for n, index in enumerate(picked):
        numbers = [reference.decode(int(x[n]), source) for x in codes]
        attributes = options.attributes
        draws = ()
        if attributes.rounding is Rounding.STOCHASTIC and operation not in _WITHOUT_ATTRIBUTES_OF_DRAWS:
            draws = (reference.draw(options.seed, int(index), attributes.random_bits),)
        code, events = function(*numbers, case.fmt, attributes, *draws)
        expected[n], flags[n] = code, events & FLAGS
    got, got_flags = result if options.return_flags else (result, flags)
    got = fs.decode(got[picked], case.fmt) if operation == "encode" else values_of(got[picked])
    wrong = differing(fs.decode(expected, case.fmt), got)
    wrong += int(np.count_nonzero(flags != (got_flags[picked] if options.return_flags else flags)))
    return [wrong, picked.size]


# -- a case --------------------------------------------------------------------------------------------------------


@np.errstate(all="ignore")
def run(case: Case, settings: Settings) -> dict[str, Any]:
    """Times and bits of all contestants, and whether the case's checks hold, as plain data."""
    size = settings.sizes[case.size_class]
    results: list[dict[str, Any]] = [
        {"label": row.label, "kind": row.kind, "note": "", "easy": {}, "wide": {}} for row in case.rows
    ]
    jobs: list[tuple[dict[str, Any], str, Job, int]] = []
    for data in cases.DATA:
        operands = operands_of(case, data, size)
        expected = None
        for row, result in zip(case.rows, results, strict=True):
            largest = min(size, PEERS[row.label].largest if row.kind == "peer" else ALL)
            found = job(case, row, [x[:largest] for x in operands])
            if isinstance(found, str):
                result["note"] = found
                continue
            if row.kind == "floatsim":
                own = found.call()
                result[data]["differs"] = against_reference(case, row, operands, own, settings.sample)
                if expected is None and any(other.kind == "peer" for other in case.rows):
                    expected = found.read(own)
                del own
            elif row.kind == "peer" and not found.random:
                assert expected is not None, "floatsim's row stands before its peers'"
                result[data]["differs"] = [differing(expected[:largest], found.read(found.call())), largest]
            jobs.append((result, data, found, largest))
    timings = interleave([(found.call, n) for _, _, found, n in jobs], settings.rounds, settings.budget)
    for (result, data, _, n), timing in zip(jobs, timings, strict=True):
        result[data] |= asdict(timing) | {"size": n}
    return {
        "name": case.name, "group": case.group, "title": case.title, "size": size, "rows": results,
        "checks": checks(case, results),
    }  # fmt: skip


def checks(case: Case, results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each check with what was measured, the worse of easy and wide data; None where a contestant is missing."""
    by_label = {result["label"]: result for result in results}
    found = []
    for check in case.checks:
        row, other = by_label[check.row], by_label.get(check.against or "")
        measured = fastest = None
        if row["easy"] and (check.against is None or (other and other["easy"])):
            measured, fastest = (_measured(check, row, other, time) for time in ("median", "fastest"))
        result = outcome(check.requirement, f"{case.name}, {check.row}", measured, fastest)
        found.append(result | {"row": check.row, "against": check.against})
    return found


def _measured(check: cases.Check, row: dict[str, Any], other: dict[str, Any] | None, time: str) -> float:
    mine = [row[data][time] for data in cases.DATA]
    if other:
        return min(other[data][time] / ns for data, ns in zip(cases.DATA, mine, strict=True))
    return 1e3 / max(mine) if cases.REQUIREMENTS[check.requirement].unit == "M/s" else min(mine) / max(mine)


def outcome(requirement: str, what: str, measured: float | None, fastest: float | None) -> dict[str, Any]:
    """What a check found: by the medians, which decide, and by the fastest rounds, which a busy machine spoils less."""
    holds = None if measured is None else measured >= cases.REQUIREMENTS[requirement].at_least
    return {"requirement": requirement, "what": what, "measured": measured, "fastest": fastest, "holds": holds}
