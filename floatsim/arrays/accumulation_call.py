"""One call of a sum: its description, context and seeds, resolved."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import ModuleType

from floatsim import reference
from floatsim.accumulation import Accumulation, AccumulationLike, Sequential, as_accumulation, rounds_stochastically
from floatsim.arrays import backends
from floatsim.arrays import events as recording
from floatsim.arrays.conversion import Codes
from floatsim.arrays.options import How, resolve
from floatsim.formats import FP32, FP64, FloatFormat, FormatLike, as_format
from floatsim.formats.call import Manner
from floatsim.formats.rounding import Overflow, Rounding, RoundingLike, as_member

__all__ = ["ALPHA", "BETA", "BOTH", "RESULT", "Summing", "finished", "settle"]


@dataclass(frozen=True)
class Summing:
    """A call's description of its sums, its manner, and what becomes of the results."""

    how: Accumulation
    manner: Manner
    result: Manner
    format: FloatFormat
    backend: ModuleType

    @property
    def converts(self) -> bool:
        """Whether the sums are rounded once more, to the result's format or its range."""
        saturates = self.result.attributes.overflow is Overflow.SATURATE_FINITE
        return self.format != self.how.result_format or saturates


def settle(
    accumulate: AccumulationLike | None, formats: set[FloatFormat], format: FormatLike | None,
    result_rounding: RoundingLike | None, backend: str | None, keywords: How,
) -> Summing:  # fmt: skip
    """Keywords, context and defaults, settled for inputs of these formats."""
    how = Sequential(FP64 if FP64 in formats else FP32) if accumulate is None else as_accumulation(accumulate)
    direction = None if result_rounding is None else as_member(Rounding, result_rounding, "result_rounding")
    manner = resolve(keywords)
    draws = direction is Rounding.STOCHASTIC or rounds_stochastically(how)
    if draws and manner.attributes.rounding is not Rounding.STOCHASTIC:
        # whoever draws needs the call's seed, though the call itself may round otherwise
        seeded = resolve({**keywords, "rounding": Rounding.STOCHASTIC})
        manner = replace(seeded, attributes=manner.attributes)
    final = manner.attributes if direction is None else replace(manner.attributes, rounding=direction)
    result = Manner(final, reference.split_seed(manner.seed, RESULT))
    fmt = how.result_format if format is None else as_format(format)
    return Summing(how, manner, result, fmt, backends.current(backend))


# seeds of the roundings after the sum: see `reference.split_seed`, and summation.py for those within
RESULT, ALPHA, BETA, BOTH = 1, 5, 6, 7


def finished(operation: str, codes: Codes, summing: Summing) -> Codes:
    """The sums, rounded to the result's format."""
    if not summing.converts:
        return codes
    source = summing.how.result_format
    converted, events = summing.backend.convert(codes, source, summing.format, summing.result)
    recording.note(f"{operation}.result", events, [(codes, source)], (converted, summing.format))
    result: Codes = converted
    return result
