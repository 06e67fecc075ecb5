"""Number formats as data.

A format is a *set of values and their codes*. Rounding is defined elsewhere (`floatsim.formats.rounding`).
A `FloatFormat` has a few parameters. All other properties follow from them.

Sources: IEEE 754-2019 clause 3 (binary interchange formats, precision p, emin, emax, bias); the OCP 8-bit
Floating Point Specification 1.0 (E4M3, E5M2); the OCP Microscaling Formats Specification 1.0 (E3M2, E2M3,
E2M1, E8M0); the "FNUZ" formats as AMD and ml_dtypes define them; the interim report of the IEEE working group P3109,
version 4.0 (June 2026, a draft), for Binary8p3se and its family.
"""

from __future__ import annotations

import functools
import math
import re
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from floatsim._literals import FormatName
from floatsim.formats._enums import NamedEnum
from floatsim.formats._hashing import hashed_once
from floatsim.formats._validation import nearest_name

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "BF16", "CUSTOM_COLOUR", "E2M1", "E2M3", "E3M2", "E3M4", "E4M3", "E4M3B11FNUZ", "E4M3FNUZ", "E4M3IEEE", "E5M2",
    "E5M2FNUZ", "E8M0", "FORMATS", "FP16", "FP32", "FP64", "TF32", "FloatFormat", "FormatLike", "FormatName",
    "Specials", "as_format", "as_formats", "html_name", "named_formats", "p3109",
]  # fmt: skip


# -- special codes, from the widths of the exponent field and of the trailing significand field ------------------------


def _all_ones(w: int, t: int) -> int:
    """Return the largest magnitude: all bits are set except the sign."""
    return (1 << w + t) - 1


def _below_all_ones(w: int, t: int) -> int:
    """Return the second largest magnitude."""
    return _all_ones(w, t) - 1


def _minus_zero(w: int, t: int) -> int:
    """Return the code of -0: only the sign is set."""
    return 1 << w + t


def _largest_exponent(w: int, t: int) -> int:
    """Return the code whose exponent field has all bits set, and whose trailing significand is 0."""
    return (1 << w) - 1 << t


def _quiet(w: int, t: int) -> int:
    """Return the largest exponent field with the first bit of the trailing significand."""
    return _largest_exponent(w, t) | 1 << t - 1


_Code: TypeAlias = "Callable[[int, int], int] | None"


class Specials(NamedEnum):
    """The kinds of special codes: infinities, NaNs and zeros.

    A member is its text, the code of +infinity, the canonical NaN, and whether codes have a sign bit. The two codes are
    functions of the field widths, or None. All other properties follow from them. Every magnitude from the smaller code
    on is special. A NaN with the code of -0 means that there is no -0.

    >>> import floatsim as fs
    >>> fs.E4M3.specials.name, fs.E4M3.max, fs.E4M3IEEE.specials.name, fs.E4M3IEEE.max
    ('FN', 448.0, 'IEEE', 240.0)
    """

    infinity: _Code
    nan: _Code
    signed: bool

    def __new__(cls, text: str, infinity: _Code = None, nan: _Code = None, signed: bool = True) -> Specials:
        member = object.__new__(cls)
        member._value_ = text
        member.infinity, member.nan, member.signed = infinity, nan, signed
        return member

    IEEE = "ieee", _largest_exponent, _quiet
    """The largest exponent field has the infinities (trailing significand 0) and the NaNs (IEEE 754-2019, 3.4)."""
    FN = "fn", None, _all_ones
    """No infinity. The magnitude with all bits set is NaN (OCP E4M3)."""
    FNUZ = "fnuz", None, _minus_zero
    """No infinity and no negative zero. The code of -0 is the only NaN (AMD's and Graphcore's FP8)."""
    FINITE = "finite"
    """Every code is a finite number (OCP FP6 and FP4)."""
    SCALE = "scale", None, _all_ones, False
    """Unsigned powers of two without a zero. The code with all bits set is NaN (OCP E8M0)."""
    EXTENDED = "extended", _all_ones, _minus_zero
    """The magnitude with all bits set is infinity. The code of -0 is the only NaN (P3109's signed extended formats)."""
    UNSIGNED_EXTENDED = "unsigned_extended", _below_all_ones, _all_ones, False
    """No sign. The largest code is NaN, and the code below it infinity (P3109's unsigned extended formats)."""
    UNSIGNED_FINITE = "unsigned_finite", None, _all_ones, False
    """No sign and no infinity. The largest code is NaN (P3109's unsigned finite formats)."""


@hashed_once
@dataclass(frozen=True, repr=False)
class FloatFormat:
    """A binary floating-point format of at most 64 bits whose values are all float64 values.

    Two formats are equal if they have the same codes for the same values. Their names may differ.

    Parameters
    ----------
    name : str
        The name of the format in tables and messages.
    exponent_bits : int
        Width w of the exponent field, 1 to 11.
    trailing_bits : int
        Width t of the trailing significand field, 0 to 52. The precision is p = t + 1.
    specials : Specials
        The kind of special codes, as a member or a string: "ieee", "fn", "fnuz", "finite", "scale", "extended",
        "unsigned_extended" or "unsigned_finite".
    bias : int, optional
        Stored exponent = e + bias. Default: 2**(w-1) for FNUZ and the formats of P3109, else 2**(w-1) - 1.

    Raises
    ------
    ValueError
        If a parameter is out of range, or if the format has values that are no float64 values.
    TypeError
        If a parameter has a wrong type.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.FP16.max, fs.FP16.emin, fs.FP16.precision
    (65504.0, -14, 11)
    >>> fs.E4M3.max, fs.E4M3.has_infinity, hex(fs.E4M3.canonical_nan)
    (448.0, False, '0x7f')
    >>> fs.FloatFormat.ieee(5, 10) == fs.FP16
    True
    >>> fs.FloatFormat("tiny", 3, 2, specials="finite").max
    28.0
    """

    name: str = field(compare=False)
    exponent_bits: int
    trailing_bits: int
    specials: Specials = Specials.IEEE
    bias: int = None  # type: ignore[assignment]  # filled in by __post_init__

    def __post_init__(self) -> None:
        given: dict[str, Any] = vars(self)
        if not isinstance(given["name"], str):
            raise TypeError(f"name must be a text, not {self.name!r}; it comes first: fs.FloatFormat('e3m2', 3, 2)")
        widths = {what: given[what] for what in ("exponent_bits", "trailing_bits", "bias")}
        if widths["bias"] is None:
            del widths["bias"]
        for what, value in widths.items():
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"{what} must be an int, not {value!r}")
        try:
            object.__setattr__(self, "specials", Specials(given["specials"]))
        except ValueError:
            raise ValueError(
                f"specials must be one of {', '.join(s.value for s in Specials)}, not {self.specials!r}"
            ) from None
        w, t = self.exponent_bits, self.trailing_bits
        if not 1 <= w <= 11:
            raise ValueError(f"exponent_bits must be 1 to 11 (FP64 has 11), not {w}")
        if not 0 <= t <= 52:
            raise ValueError(f"trailing_bits must be 0 to 52 (FP64 has 52), not {t}")
        if self.specials is Specials.IEEE and (t < 1 or w < 2):
            raise ValueError(
                f"an IEEE format needs exponent_bits >= 2 and trailing_bits >= 1, to distinguish infinity, NaN "
                f"and numbers; got {w} and {t}. Specials.FN or FINITE need fewer bits"
            )
        if self.specials is Specials.SCALE and t != 0:
            raise ValueError(f"a scale format has trailing_bits = 0, not {t}")
        if "bias" not in widths:
            one_zero = self.has_zero and not self.has_signed_zero
            object.__setattr__(self, "bias", 2 ** (w - 1) - (0 if one_zero else 1))
        if self.max_code >> t < (1 if self.has_zero else 0):
            raise ValueError(f"{w} exponent and {t} trailing bits leave no normal number")
        if self.emax > 1023 or self.emin - t < -1074:
            raise ValueError(
                f"the values must be float64 values: with bias {self.bias} the largest exponent is "
                f"{self.emax} (at most 1023) and the smallest quantum 2**{self.emin - t} (at least 2**-1074)"
            )

    @classmethod
    def ieee(cls, exponent_bits: int, trailing_bits: int, name: str | None = None) -> FloatFormat:
        """Return the format of IEEE 754 with these field widths: infinities, NaNs, subnormals, bias 2**(w-1) - 1."""
        return cls(name or f"ieee({exponent_bits},{trailing_bits})", exponent_bits, trailing_bits)

    # -- layout ------------------------------------------------------------------------------------------
    @cached_property
    def is_scale(self) -> bool:
        """Return whether this is a scale format: unsigned, without arithmetic (E8M0, P3109's unsigned formats)."""
        return not self.signed

    @cached_property
    def signed(self) -> bool:
        """Return whether the format has a sign bit (all but scale formats)."""
        return self.specials.signed

    @cached_property
    def has_zero(self) -> bool:
        """Return whether the format has a zero (all but E8M0)."""
        return self.specials is not Specials.SCALE

    @cached_property
    def bits(self) -> int:
        """Width of a code in bits."""
        return self.signed + self.exponent_bits + self.trailing_bits

    @cached_property
    def precision(self) -> int:
        """Significand bits p, the hidden bit included."""
        return self.trailing_bits + 1

    @cached_property
    def sign_mask(self) -> int:
        """The sign bit of a code, as an integer; 0 for scale formats."""
        return 1 << (self.bits - 1) if self.signed else 0

    @cached_property
    def magnitude_mask(self) -> int:
        """All bits of a code except the sign."""
        return (1 << (self.exponent_bits + self.trailing_bits)) - 1

    # -- special codes -----------------------------------------------------------------------------------
    @cached_property
    def has_infinity(self) -> bool:
        """Whether the format has infinities."""
        return self.infinity_code is not None

    @cached_property
    def has_nan(self) -> bool:
        """Whether the format has a NaN."""
        return self.canonical_nan is not None

    @cached_property
    def has_signed_zero(self) -> bool:
        """Whether the format has -0."""
        return self.signed and self.canonical_nan != self.sign_mask

    @cached_property
    def has_subnormals(self) -> bool:
        """Whether the format has subnormal numbers."""
        return self.has_zero and self.trailing_bits > 0

    @cached_property
    def infinity_code(self) -> int | None:
        """Code of +infinity, or None."""
        code = self.specials.infinity
        return None if code is None else code(self.exponent_bits, self.trailing_bits)

    @cached_property
    def canonical_nan(self) -> int | None:
        """The code that arithmetic returns for NaN (positive, quiet, empty payload), or None."""
        code = self.specials.nan
        return None if code is None else code(self.exponent_bits, self.trailing_bits)

    @cached_property
    def quiet_bit(self) -> int:
        """The bit that is set in quiet NaNs and clear in signalling ones; 0 if every NaN is quiet."""
        return 1 << self.trailing_bits - 1 if self.specials is Specials.IEEE else 0

    @cached_property
    def max_code(self) -> int:
        """Code of the largest finite number: the magnitude below the special codes."""
        special = (self.infinity_code, self.canonical_nan, self.magnitude_mask + 1)
        return min(code for code in special if code is not None) - 1

    # -- range -------------------------------------------------------------------------------------------
    @cached_property
    def emin(self) -> int:
        """Exponent of the smallest normal number, significand in [1, 2)."""
        return (1 if self.has_zero else 0) - self.bias

    @cached_property
    def emax(self) -> int:
        """Exponent of the largest finite number, significand in [1, 2)."""
        return (self.max_code >> self.trailing_bits) - self.bias

    @cached_property
    def max(self) -> float:
        """The largest finite number."""
        trailing = self.max_code & ((1 << self.trailing_bits) - 1)
        return math.ldexp((1 << self.trailing_bits) + trailing, self.emax - self.trailing_bits)

    @cached_property
    def smallest_normal(self) -> float:
        """The smallest positive normal number, 2**emin."""
        return math.ldexp(1.0, self.emin)

    @cached_property
    def smallest_subnormal(self) -> float:
        """The smallest positive number, 2**(emin - p + 1): the quantum of the subnormals."""
        exponent = self.emin - self.trailing_bits
        bits = 1 << exponent + 1074 if exponent < -1022 else exponent + 1023 << 52  # no arithmetic that might flush
        smallest: float = struct.unpack("<d", struct.pack("<Q", bits))[0]
        return smallest

    @cached_property
    def eps(self) -> float:
        """Distance from 1 to the next larger number, 2**(1-p), the machine epsilon of NumPy's finfo."""
        return math.ldexp(1.0, -self.trailing_bits)

    @cached_property
    def unit_roundoff(self) -> float:
        """Largest relative error of rounding to nearest, 2**-p."""
        return math.ldexp(1.0, -self.precision)

    # -- NumPy -------------------------------------------------------------------------------------------
    @cached_property
    def dtype(self) -> np.dtype[Any] | None:
        """The NumPy or ml_dtypes dtype with exactly these codes, or None."""
        known = _NAMED.get(self)
        return None if known is None or known.dtype is None else _numpy_dtype(known.dtype)

    @cached_property
    def code_dtype(self) -> np.dtype[np.unsignedinteger[Any]]:
        """The smallest unsigned integer dtype with at least `bits` bits."""
        import numpy as np

        return np.dtype(f"u{next(n for n in (1, 2, 4, 8) if 8 * n >= self.bits)}")

    def codes(self) -> NDArray[np.unsignedinteger[Any]]:
        """Return every code of the format, in order, as an array of `code_dtype` (formats of at most 16 bits).

        >>> import floatsim as fs
        >>> fs.decode(fs.E2M1.codes(), fs.E2M1)[:8]
        array([0. , 0.5, 1. , 1.5, 2. , 3. , 4. , 6. ])
        """
        import numpy as np

        if self.bits > 16:
            raise ValueError(f"{self.name} has 2**{self.bits} codes; codes() lists formats of at most 16 bits")
        return np.arange(1 << self.bits, dtype=np.uint32).astype(self.code_dtype)

    # -- text --------------------------------------------------------------------------------------------
    @cached_property
    def layout(self) -> str:
        """The fields of a code, one letter for each bit: s sign, e exponent, t trailing significand.

        >>> import floatsim as fs
        >>> fs.E5M2.layout
        's eeeee tt'
        """
        return " ".join(
            letter * n
            for letter, n in (("s", int(self.signed)), ("e", self.exponent_bits), ("t", self.trailing_bits))
            if n
        )

    @property
    def colour(self) -> str:
        """The colour of the format in pictures and in HTML, as "#rrggbb".

        >>> import floatsim as fs
        >>> fs.FP16.colour
        '#0072b2'
        """
        known = _NAMED.get(self)
        return CUSTOM_COLOUR if known is None else known.colour

    def _facts(self) -> list[tuple[str, str]]:
        has = [
            "infinities" if self.has_infinity else "no infinity",
            f"NaN 0x{self.canonical_nan:0{(self.bits + 3) // 4}X}" if self.canonical_nan is not None else "no NaN",
            "signed zero" if self.has_signed_zero else "one zero" if self.has_zero else "no zero",
        ]
        ends = [("max", self.max), ("smallest normal", self.smallest_normal)]
        if self.has_subnormals:
            ends.append(("smallest subnormal", self.smallest_subnormal))
        return [
            ("layout", f"{self.layout}   ({self.bits} bits, p = {self.precision}, bias {self.bias})"),
            *((what, f"{value:.6g}") for what, value in ends),
            ("eps", f"{self.eps:.6g}"),
            ("exponents", f"{self.emin} to {self.emax}"),
            ("special", ", ".join(has)),
        ]

    def __repr__(self) -> str:
        facts = self._facts()
        width = max(len(what) for what, _ in facts)
        return "\n".join([f"FloatFormat {self.name}", *(f"  {what:<{width}}  {text}" for what, text in facts)])

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        """The name: f"{fs.FP16}" is "FP16", where `print(fs.FP16)` shows the parameters."""
        return format(self.name, spec)

    def _repr_html_(self) -> str:
        tint = {"s": "currentColor", "e": self.colour, "t": f"{self.colour}59"}  # 0x59 / 0xff = 35 % opaque
        cell = "display:inline-block;width:.7em;height:1.1em;margin:1px;outline:1px solid #8888;background:"
        strip = "".join(f'<span title="{b}" style="{cell}{tint[b]}"></span>' for b in self.layout.replace(" ", ""))
        rows = "".join(f"<tr><th>{what}</th><td>{text}</td></tr>" for what, text in self._facts())
        return f"<div>{html_name(self)}<br>{strip}<table>{rows}</table></div>"


def p3109(width: int, precision: int, *, signed: bool = True, extended: bool = True) -> FloatFormat:
    """Return a format of the IEEE draft P3109: Binary{K}p{P}, followed by s or u, and e or f.

    Parameters
    ----------
    width : int
        K, the bits of a code, at least 3.
    precision : int
        P, the bits of the significand with the hidden bit: 1 to K - 1, or to K for unsigned formats.
    signed : bool
        Whether codes have a sign bit (s, u). Unsigned formats have conversions and comparisons, but no arithmetic.
    extended : bool
        Whether the format has infinities (e) or only finite numbers and one NaN (f).

    Returns
    -------
    FloatFormat
        Its bias is 2**(K-P-1), or 2**(K-P) without sign: 1.0 is the middle of the positive codes. There is one zero.

    Raises
    ------
    TypeError
        If a width is no integer.
    ValueError
        If the draft has no such format, or if its values are no float64 values.

    Notes
    -----
    Source: IEEE working group P3109, interim report 4.0 (June 2026, a draft), clauses 3 and 4.7. `fs.project` rounds by
    the rules of the draft. All other functions round by IEEE 754's; they differ for overflow and precision 1.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.p3109(8, 3).name, fs.p3109(8, 3).max, hex(fs.p3109(8, 3).canonical_nan)
    ('Binary8p3se', 49152.0, '0x80')
    >>> fs.p3109(8, 4, extended=False) == fs.E4M3FNUZ, fs.as_format("binary8p1uf").max == 2.0**126
    (True, True)
    """
    for what, value in (("width", width), ("precision", precision)):
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{what} must be an int, not {value!r}")
    name = f"Binary{width}p{precision}{'s' if signed else 'u'}{'e' if extended else 'f'}"
    most = width - 1 if signed else width
    if width < 3 or not 1 <= precision <= most:
        raise ValueError(f"P3109 has no {name}: width must be at least 3, and precision 1 to {most}")
    finite, infinite = (
        (Specials.FNUZ, Specials.EXTENDED) if signed else (Specials.UNSIGNED_FINITE, Specials.UNSIGNED_EXTENDED)
    )
    return FloatFormat(name, width - precision + (not signed), precision - 1, infinite if extended else finite)


def html_name(format: FloatFormat) -> str:
    """Return the name of a format as HTML, with a bar in its colour. The text has the colour of the page.

    >>> html_name(FP16)
    '<b style="border-left:.4em solid #0072b2;padding-left:.3em">FP16</b>'
    """
    from html import escape

    return f'<b style="border-left:.4em solid {format.colour};padding-left:.3em">{escape(format.name)}</b>'


class _TorchDtype(Protocol):
    """A dtype of PyTorch, as a type checker sees it."""

    @property
    def is_floating_point(self) -> bool: ...
    @property
    def is_complex(self) -> bool: ...


FormatLike: TypeAlias = "FloatFormat | FormatName | str | np.dtype[Any] | type[Any] | _TorchDtype"
"""What `as_format` accepts: a FloatFormat, a name, or a dtype of NumPy, ml_dtypes, torch or JAX.

The literal names serve completion in editors.
"""

CUSTOM_COLOUR = "#7d6bb3"
"""The colour of formats without a name in floatsim.

>>> import floatsim as fs
>>> fs.FloatFormat("e3m0", 3, 0, specials="finite").colour == fs.plot.CUSTOM_COLOUR
True
"""


class _Named(NamedTuple):
    """The colour of a named format, the name of its NumPy or ml_dtypes dtype if there is one, and its other names."""

    colour: str
    dtype: str | None
    others: tuple[str, ...]


_NAMED: dict[FloatFormat, _Named] = {}


def _named(fmt: FloatFormat, colour: str = CUSTOM_COLOUR, dtype: str | None = None, others: str = "") -> FloatFormat:
    """Give a format its name in floatsim: a colour, the name of its dtype, and its other names."""
    _NAMED[fmt] = _Named(colour, dtype, tuple(others.split()))
    return fmt


# Okabe and Ito's colour-blind-safe palette for the common formats; related formats have shades of the same hue.
FP64 = _named(FloatFormat("FP64", 11, 52), "#000000", "float64", "binary64 double f64")
"""The double precision of IEEE 754 (binary64).

>>> import floatsim as fs
>>> fs.FP64.bits, fs.FP64.precision, fs.FP64.max
(64, 53, 1.7976931348623157e+308)
"""
FP32 = _named(FloatFormat("FP32", 8, 23), "#5f6b75", "float32", "binary32 single f32")
"""The single precision of IEEE 754 (binary32).

>>> import floatsim as fs
>>> fs.FP32.bits, fs.FP32.precision, fs.FP32.max
(32, 24, 3.4028234663852886e+38)
"""
TF32 = _named(FloatFormat("TF32", 8, 10), "#56b4e9", None, "tensorfloat32 tensorfloat_32")
"""TensorFloat-32: the exponents of FP32 and the precision of FP16, the inputs of NVIDIA's matrix units from Ampere on.

>>> import floatsim as fs
>>> fs.TF32.bits, fs.TF32.precision, fs.TF32.max
(19, 11, 3.4011621342146535e+38)
"""
FP16 = _named(FloatFormat("FP16", 5, 10), "#0072b2", "float16", "binary16 half f16")
"""The half precision of IEEE 754 (binary16).

>>> import floatsim as fs
>>> fs.FP16.bits, fs.FP16.precision, fs.FP16.max
(16, 11, 65504.0)
"""
BF16 = _named(FloatFormat("BF16", 8, 7), "#009e73", "bfloat16")
"""bfloat16: the exponents of FP32 with 8 bits of precision.

>>> import floatsim as fs
>>> fs.BF16.bits, fs.BF16.precision, fs.BF16.max
(16, 8, 3.3895313892515355e+38)
"""
E4M3 = _named(
    FloatFormat("E4M3", 4, 3, Specials.FN), "#d55e00", "float8_e4m3fn", "e4m3fn fp8_e4m3 fp8_e4m3fn ocp_e4m3 mx_e4m3"
)
"""The FP8 of OCP with 4 exponent bits: no infinity, one NaN of each sign, and the largest number 448.

>>> import floatsim as fs
>>> fs.E4M3.bits, fs.E4M3.precision, fs.E4M3.max
(8, 4, 448.0)
"""
E5M2 = _named(FloatFormat("E5M2", 5, 2), "#cc79a7", "float8_e5m2", "fp8_e5m2 ocp_e5m2 mx_e5m2")
"""The FP8 of OCP with 5 exponent bits: infinities and NaNs as in IEEE 754.

>>> import floatsim as fs
>>> fs.E5M2.bits, fs.E5M2.precision, fs.E5M2.max
(8, 3, 57344.0)
"""
E4M3FNUZ = _named(FloatFormat("E4M3FNUZ", 4, 3, Specials.FNUZ), "#b34f00", "float8_e4m3fnuz")
"""The E4M3 of AMD's CDNA 3: no infinity, no -0, and one NaN, with the code of -0.

>>> import floatsim as fs
>>> fs.E4M3FNUZ.bits, fs.E4M3FNUZ.precision, fs.E4M3FNUZ.max
(8, 4, 240.0)
"""
E5M2FNUZ = _named(FloatFormat("E5M2FNUZ", 5, 2, Specials.FNUZ), "#a3507f", "float8_e5m2fnuz")
"""The E5M2 of AMD's CDNA 3: no infinity, no -0, and one NaN, with the code of -0.

>>> import floatsim as fs
>>> fs.E5M2FNUZ.bits, fs.E5M2FNUZ.precision, fs.E5M2FNUZ.max
(8, 3, 57344.0)
"""
E4M3B11FNUZ = _named(FloatFormat("E4M3B11FNUZ", 4, 3, Specials.FNUZ, 11), "#ee9a55", "float8_e4m3b11fnuz")
"""An E4M3 with the bias 11: no infinity, no -0, and one NaN, with the code of -0.

>>> import floatsim as fs
>>> fs.E4M3B11FNUZ.bits, fs.E4M3B11FNUZ.precision, fs.E4M3B11FNUZ.max
(8, 4, 30.0)
"""
E4M3IEEE = _named(FloatFormat("E4M3IEEE", 4, 3), "#8f3f00", "float8_e4m3")
"""An E4M3 with the infinities and NaNs of IEEE 754: the largest number is 240.

>>> import floatsim as fs
>>> fs.E4M3IEEE.bits, fs.E4M3IEEE.precision, fs.E4M3IEEE.max
(8, 4, 240.0)
"""
E3M4 = _named(FloatFormat("E3M4", 3, 4), "#6b2f00", "float8_e3m4")
"""An 8-bit format with 3 exponent bits, with infinities and NaNs as in IEEE 754.

>>> import floatsim as fs
>>> fs.E3M4.bits, fs.E3M4.precision, fs.E3M4.max
(8, 5, 15.5)
"""
E3M2 = _named(FloatFormat("E3M2", 3, 2, Specials.FINITE), "#e69f00", "float6_e3m2fn", "e3m2fn fp6_e3m2 mx_e3m2")
"""The FP6 of OCP MX with 3 exponent bits: every code is a finite number.

>>> import floatsim as fs
>>> fs.E3M2.bits, fs.E3M2.precision, fs.E3M2.max
(6, 3, 28.0)
"""
E2M3 = _named(FloatFormat("E2M3", 2, 3, Specials.FINITE), "#b87f00", "float6_e2m3fn", "e2m3fn fp6_e2m3 mx_e2m3")
"""The FP6 of OCP MX with 2 exponent bits: every code is a finite number.

>>> import floatsim as fs
>>> fs.E2M3.bits, fs.E2M3.precision, fs.E2M3.max
(6, 4, 7.5)
"""
E2M1 = _named(FloatFormat("E2M1", 2, 1, Specials.FINITE), "#8a7a00", "float4_e2m1fn", "e2m1fn fp4 fp4_e2m1 mx_e2m1")
"""The FP4 of OCP MX: every code is a finite number.

>>> import floatsim as fs
>>> fs.E2M1.bits, fs.E2M1.precision, fs.E2M1.max
(4, 2, 6.0)
"""
E8M0 = _named(FloatFormat("E8M0", 8, 0, Specials.SCALE), "#999999", "float8_e8m0fnu", "e8m0fnu ue8m0 mx_e8m0")
"""The scales of OCP MX: powers of two from 2**-127 to 2**127, and one NaN; no sign and no zero.

>>> import floatsim as fs
>>> fs.decode([0, 127, 254], "e8m0").tolist()
[5.877471754111438e-39, 1.0, 1.7014118346046923e+38]
"""

_FP8 = "FP8 is E4M3 or E5M2 (on AMD's CDNA 3 E4M3FNUZ or E5M2FNUZ)"
_FP6 = "FP6 is E3M2 or E2M3"
_FP4 = "FP4 is E2M1"
_MX = (
    "{} is no format of single numbers: {}; fs.matmul multiplies it with scale_a= and scale_b=, and fs.quantize_blocks "
    "quantizes to it"
)
_NF4 = (
    "NF4 is a table of 16 quantiles of the normal distribution, not a floating-point format; "
    "fs.quantize_blocks(x, 'nf4') quantizes to it. The floating-point format of 4 bits is E2M1"
)
_INTEGER = "{} is no floating-point format; fs.quantize_blocks(x, {!r}) quantizes to it, with a scale"
_TOO_WIDE = "formats here have at most 64 bits"

_AMBIGUOUS: dict[str, str] = {
    **dict.fromkeys(("fp8", "float8"), _FP8),
    **dict.fromkeys(("fp6", "float6"), _FP6),
    "float4": _FP4,
    "bf8": "BF8 is E5M2 (on AMD's CDNA 3 E5M2FNUZ)",
    "f8": f"NumPy's f8 is FP64; {_FP8}",
    "float": "float is FP32 in C, and FP64 in Python",
    "nvfp4": _MX.format("NVFP4", "its elements are E2M1, with a scale in E4M3 for every 16"),
    **dict.fromkeys(("nf4", "normalfloat4"), _NF4),
    **{name: _INTEGER.format(name.upper(), name) for n in range(2, 9) for name in (f"int{n}", f"uint{n}")},
    **{name: _INTEGER.format(name.upper(), name) for name in ("ternary", "binary")},
    "mxfp8": _MX.format("MXFP8", "its elements are E4M3 or E5M2, with a scale in E8M0 for every 32"),
    "mxfp6": _MX.format("MXFP6", "its elements are E3M2 or E2M3, with a scale in E8M0 for every 32"),
    "mxfp4": _MX.format("MXFP4", "its elements are E2M1, with a scale in E8M0 for every 32"),
    **dict.fromkeys(("fp128", "float128", "binary128", "quad", "fp80", "float80", "longdouble"), _TOO_WIDE),
}
"""Hints for well-known names that stand for several formats or for none. The nearest spelling would mislead."""

_LOOKUP: dict[str, FloatFormat] = {
    alias: fmt
    for fmt, known in _NAMED.items()
    for alias in (fmt.name.lower(), known.dtype or fmt.name.lower(), *known.others)
}


FORMATS: Mapping[str, FloatFormat] = MappingProxyType({fmt.name.lower(): fmt for fmt in _NAMED})
"""The named formats by their names, as `as_format` takes them.

>>> import floatsim as fs
>>> fs.FORMATS["e4m3"] is fs.E4M3, len(fs.FORMATS)
(True, 16)
"""


def named_formats() -> tuple[FloatFormat, ...]:
    """Return the formats that have a name in floatsim.

    >>> import floatsim as fs
    >>> [fmt.name for fmt in fs.named_formats() if fmt.bits == 16]
    ['FP16', 'BF16']
    """
    return tuple(_NAMED)


@functools.cache
def _numpy_dtype(name: str) -> np.dtype[Any]:
    import numpy as np

    if hasattr(np, name):
        native: np.dtype[Any] = np.dtype(name)
        return native
    import ml_dtypes

    extended: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return extended


def as_format(x: FormatLike) -> FloatFormat:
    """Return the format that `x` names.

    Parameters
    ----------
    x : FloatFormat, str, dtype or scalar type
        A format; its name in any case ("FP16", "e4m3", "fp8-e4m3"); a dtype of NumPy, ml_dtypes, torch or JAX or its
        name ("float16", "bfloat16", "float8_e4m3fn"); "ieee(w,t)" for a custom one; or a name of the draft P3109,
        "binary8p3se" (also "binary8p3" and "p3109_k8p3se"). "e4m3" is OCP's format (max 448);
        the dtype *name* "float8_e4m3" is ml_dtypes' IEEE-like one (max 240), here `E4M3IEEE`.

    Returns
    -------
    FloatFormat

    Raises
    ------
    ValueError
        If a name or dtype is not known. The message lists the formats that an ambiguous name ("fp8") may mean, or the
        nearest match.
    TypeError
        If `x` cannot name a format.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> fs.as_format("bfloat16") is fs.BF16, fs.as_format(np.float16) is fs.FP16
    (True, True)
    >>> fs.as_format("fp61")
    Traceback (most recent call last):
    ValueError: unknown format 'fp61'; did you mean 'fp64'?
    """
    if isinstance(x, FloatFormat):
        return x
    if isinstance(x, str):
        name = x.strip().lower().replace("-", "_")
        if name in _LOOKUP:
            return _LOOKUP[name]
        if custom := re.fullmatch(r"ieee\(\s*(\d+)\s*,\s*(\d+)\s*\)", name):
            return FloatFormat.ieee(int(custom[1]), int(custom[2]))
        if draft := re.fullmatch(r"(?:binary|p3109_k)(\d+)p(\d+)(?:([su])([ef]))?", name):
            return p3109(int(draft[1]), int(draft[2]), signed=draft[3] != "u", extended=draft[4] != "f")
        raise ValueError(f"unknown format {x!r}; {_advice(name)}")
    if type(x).__module__ == "torch":
        return _of_torch(str(x).removeprefix("torch."))
    import numpy as np

    try:
        given: Any = x
        dtype = np.dtype(given) if given is not None else None
    except TypeError:
        dtype = None
    if dtype is None:
        raise TypeError(f"a format is a FloatFormat, a name or a dtype, not {x!r}")
    if (fmt := _of_dtype(dtype)) is not None:
        return fmt
    raise ValueError(f"no format has the dtype {dtype}; for integers and others name the format you want")


def _of_torch(name: str) -> FloatFormat:
    """Return the format of a torch dtype."""
    if name in _LOOKUP:
        return _LOOKUP[name]
    if name == "float4_e2m1fn_x2":
        raise ValueError(f"torch.{name} packs two E2M1 numbers into a byte; unpack them: fs.from_codes(codes, 'e2m1')")
    raise ValueError(f"no format has the dtype torch.{name}; for integers and others name the format you want")


def as_formats(formats: Iterable[FormatLike] | FormatLike) -> list[FloatFormat]:
    """Return the formats of the argument `formats`, one or several. Raise a ValueError if there is none."""
    if isinstance(formats, str) or not isinstance(formats, Iterable):
        formats = [formats]
    found = [as_format(fmt) for fmt in formats]
    if not found:
        raise ValueError("formats must name at least one format, such as ['fp16', 'bf16']; got none")
    return found


def _advice(name: str) -> str:
    """Return a hint for an unknown name."""
    if (says := _AMBIGUOUS.get(name.replace("_", ""))) is not None:
        return says
    if widths := re.fullmatch(r"e(\d+)m(\d+)", name):
        return _of_widths(int(widths[1]), int(widths[2]))
    near = nearest_name(name, _LOOKUP)
    return f"did you mean {near!r}?" if near else f"known are {', '.join(f.name for f in _NAMED)}"


def _of_widths(w: int, t: int) -> str:
    """Return a hint for a name that has only field widths, such as e5m9."""
    own = f"fs.FloatFormat('e{w}m{t}', {w}, {t}, 'finite')"
    try:
        ieee = FloatFormat.ieee(w, t)
    except ValueError:
        try:
            FloatFormat("", w, t, Specials.FINITE)
        except ValueError as error:
            return str(error)
        return f"write {own}"
    named = next((fmt.name for fmt in _NAMED if fmt == ieee), None)
    if named is not None:
        return f"write {named!r} or 'ieee({w},{t})'"
    return f"write 'ieee({w},{t})', or {own} for one without infinities and NaN"


@functools.lru_cache(maxsize=64)
def _of_dtype(dtype: np.dtype[Any]) -> FloatFormat | None:
    return _LOOKUP.get(dtype.name)
