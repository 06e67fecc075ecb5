"""One call of a sum: its accumulation, options and backend, resolved from keywords, context and defaults."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from types import ModuleType

import numpy as np

from floatsim._types import Codes
from floatsim.accumulation import (
    Accumulation,
    AccumulationLike,
    Sequential,
    Sklansky,
    Welford,
    as_accumulation,
    fitted,
    has_epilogue,
    rounds_stochastically,
)
from floatsim.arrays.call import backends
from floatsim.arrays.call.options import CURRENT_CONTEXT, RoundingOptions, resolve
from floatsim.arrays.events import record as recording
from floatsim.formats import FP32, FP64, FloatFormat, FormatLike, as_format
from floatsim.formats._hashing import IdentityCache
from floatsim.formats.call import CallOptions
from floatsim.formats.rounding import Overflow, Rounding, RoundingLike, as_member
from floatsim.reference.random import Site, split_seed
from floatsim.tensorcore.instructions import Scales

__all__ = ["AccumulationCall", "convert_result", "resolve_call"]


@dataclass(frozen=True)
class AccumulationCall:
    """The accumulation and options of one call, and the conversion of the sums to the format of the result."""

    accumulation: Accumulation
    options: CallOptions
    result: CallOptions
    """The options of the last rounding: the conversion to `format`, or the division or root that gives the result."""
    format: FloatFormat
    """The format of the result."""
    converts: bool
    """Whether the sums are rounded once more, to the format of the result or its range."""
    backend: ModuleType

    @property
    def draws(self) -> bool:
        """Return whether a rounding inside the sums is stochastic."""
        return rounds_stochastically(self.accumulation) or self.options.attributes.rounding is Rounding.STOCHASTIC


_RECENT = IdentityCache()


def resolve_call(
    accumulate: AccumulationLike | None, a: FloatFormat, b: FloatFormat, format: FormatLike | None,
    result_rounding: RoundingLike | None, backend: str | None, keywords: RoundingOptions, scales: Scales | None = None,
    matrices: bool = False, special: type[Accumulation] | None = None,
) -> AccumulationCall:  # fmt: skip
    """Return the call for operands of two formats, with the instruction of a TensorCore for them.

    Only products of `matrices` may have an epilogue. `special` is a description that is no sum, and that the caller
    takes. Calls without a seed are cached. The key is the identities of
    their arguments and of the context.
    """
    if keywords.get("seed") is not None:
        return _resolved(accumulate, a, b, format, result_rounding, backend, keywords, scales, matrices, special)
    arguments: list[object] = [accumulate, format, result_rounding, backend, matrices, special]
    for name, value in keywords.items():
        if value is not None:
            arguments += name, value
    for i, argument in enumerate(arguments):
        if type(argument) is str:
            arguments[i] = sys.intern(argument)
    key = (*arguments, a, b, scales, CURRENT_CONTEXT.get())
    found: AccumulationCall | None = _RECENT.find(key)
    if found is None:
        found = _resolved(accumulate, a, b, format, result_rounding, backend, keywords, scales, matrices, special)
        if not found.draws and found.result.attributes.rounding is not Rounding.STOCHASTIC:
            _RECENT.keep(key, found)
    return found


def _resolved(
    accumulate: AccumulationLike | None, a: FloatFormat, b: FloatFormat, format: FormatLike | None,
    result_rounding: RoundingLike | None, backend: str | None, keywords: RoundingOptions, scales: Scales | None,
    matrices: bool, special: type[Accumulation] | None,
) -> AccumulationCall:  # fmt: skip
    asked = None if format is None else as_format(format)
    accumulation = Sequential(FP64 if FP64 in (a, b) else FP32) if accumulate is None else as_accumulation(accumulate)
    if has_epilogue(accumulation) and (not matrices or any(map(has_epilogue, accumulation.children))):
        raise TypeError(f"accumulate={accumulation}: an epilogue is the outermost description of a matrix product")
    _check_sums(accumulation, special)
    accumulation = fitted(accumulation, a, b, scales)
    direction = None if result_rounding is None else as_member(Rounding, result_rounding, "result_rounding")
    options = resolve(keywords)
    draws = direction is Rounding.STOCHASTIC or rounds_stochastically(accumulation)
    if draws and options.attributes.rounding is not Rounding.STOCHASTIC:
        # the stochastic rounding needs a seed, even if the other roundings of the call are not stochastic
        seeded = resolve({**keywords, "rounding": Rounding.STOCHASTIC})
        options = replace(seeded, attributes=replace(options.attributes, source=seeded.attributes.source))
    final = options.attributes if direction is None else replace(options.attributes, rounding=direction)
    fmt = accumulation.result_format if asked is None else asked
    converts = fmt != accumulation.result_format or final.overflow is Overflow.SATURATE_FINITE
    result = CallOptions(final, split_seed(options.seed, Site.RESULT))
    return AccumulationCall(accumulation, options, result, fmt, converts, backends.current(backend))


_NO_SUMS: dict[type[Accumulation], str] = {
    Welford: "fs.var and fs.moments take it",
    Sklansky: "fs.cumsum takes it",
}
"""The descriptions that are no sums, and the functions that take them."""


def _check_sums(accumulation: Accumulation, special: type[Accumulation] | None) -> None:
    """Raise a TypeError for a description that is no sum, unless it is the outermost one and `special`."""
    for kind, takers in _NO_SUMS.items():
        if isinstance(accumulation, kind) and special is not kind:
            raise TypeError(f"accumulate={accumulation} is no sum; {takers}")
    for child in accumulation.children:
        _check_sums(child, None)


def convert_result(operation: str, codes: Codes, call: AccumulationCall, running: int | None = None) -> Codes:
    """Return the sums, rounded to the result's format.

    `running` is the axis of running sums, which all draw for the index of the whole sum.
    """
    if not call.converts:
        return codes
    source, options = call.accumulation.result_format, call.result
    if call.format == source:  # the sums are rounded already: only their infinities change
        options = replace(options, attributes=replace(options.attributes, daz=False, ftz=False))
    wanted = bool(recording.wanted())
    if running is not None and options.attributes.rounding is Rounding.STOCHASTIC and codes.size:
        along = np.moveaxis(codes, running, 0)
        steps = [call.backend.convert(step, source, call.format, options, wanted) for step in along]
        converted = np.stack([step for step, _ in steps], running)
        events = np.stack([happened for _, happened in steps], running) if wanted else None
    else:
        converted, events = call.backend.convert(codes, source, call.format, options, wanted)
    if events is not None:
        recording.note(f"{operation}.result", events, [(codes, source)], (converted, call.format))
    result: Codes = converted
    return result
