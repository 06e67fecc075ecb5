"""Rounding attributes: rounding mode, overflow policy, tininess rule; and the exception flags.

Names follow IEEE 754-2019 clauses 4.3 (rounding-direction attributes) and 7 (exceptions).
"""

from __future__ import annotations

import enum
import functools
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar

from floatsim.formats._enums import NamedEnum
from floatsim.formats._hashing import hashed_once
from floatsim.formats._validation import name_hint
from floatsim.formats.random_source import RandomSource

__all__ = [
    "ABSORBED", "DIVIDE_BY_ZERO", "EVENT_BITS", "FLAGS", "FLUSHED", "INEXACT", "INVALID", "OVERFLOW", "SUBNORMAL",
    "UNDERFLOW",
    "FloatClass", "Overflow", "OverflowLike", "OverflowName", "Rounding", "RoundingAttributes", "RoundingLike",
    "RoundingName", "Tininess", "TininessLike", "TininessName", "as_member",
]  # fmt: skip

INVALID = 16
"""No usefully definable result: 0/0, inf - inf, a signalling NaN (IEEE 754-2019, 7.2).

>>> import floatsim as fs
>>> int(fs.divide(0.0, 0.0, format="fp16", return_flags=True)[1]) == fs.INVALID
True
"""
DIVIDE_BY_ZERO = 8
"""An exact infinity from finite operands: 1/0, logb(0) (7.3).

>>> import floatsim as fs
>>> int(fs.divide(1.0, 0.0, format="fp16", return_flags=True)[1]) == fs.DIVIDE_BY_ZERO
True
"""
OVERFLOW = 4
"""The rounded result is beyond the largest finite number (7.4).

>>> import floatsim as fs
>>> int(fs.encode(1e6, "fp16", return_flags=True)[1]) == fs.OVERFLOW | fs.INEXACT
True
"""
UNDERFLOW = 2
"""The result is tiny and inexact (7.5).

>>> import floatsim as fs
>>> int(fs.encode(1e-9, "fp16", return_flags=True)[1]) == fs.UNDERFLOW | fs.INEXACT
True
"""
INEXACT = 1
"""The result differs from the exact one (7.6).

>>> import floatsim as fs
>>> int(fs.encode(0.1, "fp16", return_flags=True)[1]) == fs.INEXACT
True
"""
FLAGS = INVALID | DIVIDE_BY_ZERO | OVERFLOW | UNDERFLOW | INEXACT

# Three more events share the byte with the flags inside floatsim, for `record`. They are no IEEE exceptions.
FLUSHED = 32
"""A non-zero exact value became zero, by rounding or by FTZ."""
SUBNORMAL = 64
"""The result is a subnormal number."""
ABSORBED = 128
"""A non-zero addend left the finite sum unchanged."""

EVENT_BITS = {
    "invalid": INVALID, "divide_by_zero": DIVIDE_BY_ZERO, "overflow": OVERFLOW, "underflow": UNDERFLOW,
    "flushed": FLUSHED, "subnormal": SUBNORMAL, "inexact": INEXACT, "absorbed": ABSORBED,
}  # fmt: skip
"""The counted events, and their bits in the kernels' event bytes."""


class Rounding(NamedEnum):
    """Rounding modes. Functions also accept their names, such as "toward_zero", or "RTZ".

    >>> import floatsim as fs
    >>> for mode in "ties_to_even", "toward_zero", fs.Rounding.TOWARD_POSITIVE, "RTN":
    ...     print(fs.quantize(0.1, "e4m3", rounding=mode))
    0.1015625
    0.09375
    0.1015625
    0.09375
    """

    TIES_TO_EVEN = 0
    """To the nearest; a tie goes to the neighbour with an even significand (IEEE's default; RNE)."""
    TIES_TO_AWAY = 1
    """To the nearest; a tie goes to the neighbour of larger magnitude (RNA)."""
    TOWARD_ZERO = 2
    """To the neighbour of smaller magnitude: truncation (RTZ)."""
    TOWARD_POSITIVE = 3
    """To the larger neighbour: up (RTP)."""
    TOWARD_NEGATIVE = 4
    """To the smaller neighbour: down (RTN; not "round to nearest")."""
    TO_ODD = 5
    """Inexact results go to the neighbour with an odd significand (von Neumann's jamming; RTO)."""
    STOCHASTIC = 6
    """Up or down at random, with the discarded fraction as the probability; needs a seed (SR)."""


class Overflow(NamedEnum):
    """Overflow policies: the result if the rounded magnitude is beyond the largest finite number.

    >>> import floatsim as fs
    >>> for policy in fs.Overflow:
    ...     print(policy.name, fs.quantize([1e6, float("inf")], "e5m2", overflow=policy))
    INFINITY [inf inf]
    SATURATE_FINITE [57344. 57344.]
    SATURATE_PROPAGATE [57344.    inf]
    """

    INFINITY = 0
    """As IEEE 754: infinity or the largest finite number, by rounding mode; NaN in formats without infinity."""
    SATURATE_FINITE = 1
    """The largest finite number; infinite operands of a conversion too (NVIDIA's satfinite)."""
    SATURATE_PROPAGATE = 2
    """The largest finite number; infinities stay infinite (NaN where the format has none)."""


class Tininess(NamedEnum):
    """The rules for when a non-zero result counts as tiny (IEEE 754-2019, 7.5); both rules are conforming.

    >>> import floatsim as fs
    >>> x = fs.FP16.smallest_normal * (1 - 2**-12)  # rounds up to the smallest normal number
    >>> for rule in fs.Tininess:
    ...     _, flags = fs.encode(x, "fp16", tininess=rule, return_flags=True)
    ...     print(rule.name, bool(flags & fs.UNDERFLOW))
    AFTER False
    BEFORE True
    """

    AFTER = 0
    """The result rounded to p bits with unbounded exponent is below 2**emin (x86, RISC-V, NVIDIA)."""
    BEFORE = 1
    """The exact result is below 2**emin (Arm)."""


class FloatClass(enum.IntEnum):
    """The ten classes of IEEE 754-2019, 5.7.2.

    >>> import floatsim as fs
    >>> fs.FloatClass(int(fs.classify(fs.array(-0.0, "fp16")))).name
    'NEGATIVE_ZERO'
    """

    SIGNALING_NAN = 0
    """A signalling NaN."""
    QUIET_NAN = 1
    """A quiet NaN."""
    NEGATIVE_INFINITY = 2
    """-infinity."""
    NEGATIVE_NORMAL = 3
    """A negative normal number."""
    NEGATIVE_SUBNORMAL = 4
    """A negative subnormal number."""
    NEGATIVE_ZERO = 5
    """-0."""
    POSITIVE_ZERO = 6
    """+0."""
    POSITIVE_SUBNORMAL = 7
    """A positive subnormal number."""
    POSITIVE_NORMAL = 8
    """A positive normal number."""
    POSITIVE_INFINITY = 9
    """+infinity."""


RoundingName: TypeAlias = Literal[
    "ties_to_even", "ties_to_away", "toward_zero", "toward_positive", "toward_negative", "to_odd", "stochastic",
    "RNE", "RNA", "RTZ", "RTP", "RTN", "RTO", "SR",
    "rne", "rna", "rtz", "rtp", "rtn", "rto", "sr",
]  # fmt: skip
"""The names of rounding modes, for type checkers. At run time, names in any case and with hyphens are accepted too."""
OverflowName: TypeAlias = Literal["infinity", "saturate_finite", "saturate_propagate"]
TininessName: TypeAlias = Literal["after", "before"]

RoundingLike: TypeAlias = Rounding | RoundingName
OverflowLike: TypeAlias = Overflow | OverflowName
TininessLike: TypeAlias = Tininess | TininessName

_ABBREVIATIONS: dict[str, enum.Enum] = {
    "rne": Rounding.TIES_TO_EVEN,
    "rna": Rounding.TIES_TO_AWAY,
    "rtz": Rounding.TOWARD_ZERO,
    "rtp": Rounding.TOWARD_POSITIVE,
    "rtn": Rounding.TOWARD_NEGATIVE,
    "rto": Rounding.TO_ODD,
    "sr": Rounding.STOCHASTIC,
}

_OTHER_WORDS: dict[enum.Enum, str] = {
    Rounding.TIES_TO_EVEN: "nearest nearest_even round round_nearest half_even ties_even even bankers rte",
    Rounding.TIES_TO_AWAY: "half_up half_away nearest_away ties_away away rha",
    Rounding.TOWARD_ZERO: "truncate truncated truncation trunc chop zero rz down_to_zero round_to_zero",
    Rounding.TOWARD_POSITIVE: "ceil ceiling up round_up rup ru positive_infinity",
    Rounding.TOWARD_NEGATIVE: "floor down round_down rdn rd negative_infinity",
    Rounding.TO_ODD: "odd round_to_odd jamming",
    Rounding.STOCHASTIC: "random stochastic_rounding stoch",
    Overflow.INFINITY: "inf ieee none overflow nan",
    Overflow.SATURATE_FINITE: "clip clamp saturate saturating sat satfinite saturation max",
}
"""Words of other libraries for a member, which are no names here: an error suggests the member."""
_NOTES: dict[type[enum.Enum], str] = {
    Rounding: 'Note: "RTN" is toward negative here, as in IEEE 754; the "round to nearest" that papers on quantization '
    'abbreviate RTN is "ties_to_even".',
}
"""What an error about an unknown name of a kind adds."""

E = TypeVar("E", bound=enum.Enum)


@functools.lru_cache(maxsize=16)
def _names(kind: type[E]) -> dict[str, E]:
    members = {m.name.lower(): m for m in kind}
    return members | {short: m for short, m in _ABBREVIATIONS.items() if isinstance(m, kind)}


def as_member(kind: type[E], x: Any, argument: str) -> E:
    """Return the member of an enum that `x` is or names, or raise an error that names `argument`."""
    if isinstance(x, kind):
        return x
    if isinstance(x, str):
        name = x.strip().lower().replace("-", "_")
        known: dict[str, E] = _names(kind)
        if name in known:
            return known[name]
        word = name.replace(" ", "_")
        meant = [m.name.lower() for m, words in _OTHER_WORDS.items() if isinstance(m, kind) and word in words.split()]
        hint = f"did you mean {meant[0]!r}?" if meant else name_hint(name, known)
        note = _NOTES.get(kind)
        raise ValueError(f"{argument}={x!r} is not known; {hint}{'' if note is None else f' {note}'}")
    raise TypeError(f"{argument} must be a {kind.__name__} or its name, not {x!r}")


@hashed_once
@dataclass(frozen=True)
class RoundingAttributes:
    """The attributes of one rounding besides its format (IEEE 754-2019, clause 4).

    >>> from floatsim import E4M3, reference
    >>> reference.RoundingAttributes().rounding.name, reference.RoundingAttributes().daz
    ('TIES_TO_EVEN', False)
    """

    rounding: Rounding = Rounding.TIES_TO_EVEN
    overflow: Overflow = Overflow.INFINITY
    daz: bool = False
    ftz: bool = False
    tininess: Tininess = Tininess.AFTER
    random_bits: int = 32
    source: RandomSource | None = None
    """The generator of the random bits; None is floatsim's own. Only stochastic roundings have another one."""
