"""How fast a card multiplies: TFLOP/s of each instruction and library against the data sheet, by CUDA events.

An instruction's rate is measured by issuing it back to back from registers (mma) or shared memory (wgmma, tcgen05), on
all multiprocessors and with nothing else to do: what the unit can, not what a program reaches. Libraries multiply large
square matrices. Operands are normally distributed; a card that throttles is slower on those than on zeros.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from floatsim.arrays.conversion import encode
from floatsim.formats import BF16, FP16, FP32, TF32, FloatFormat
from floatsim.hardware.protocol import Card
from floatsim.hardware.session import fits
from floatsim.hardware.tables.datasheets import peak
from floatsim.hardware.tables.ptx_matrix import Variant
from floatsim.hardware.vendor_gemm import PRODUCTS, Product, installed, prepared

__all__ = ["REPEATS", "Rate", "Rates", "Timed", "measure", "tasks"]

REPEATS = 20
"""How often everything is timed; what counts is the median."""

_LONG = 10.0  # milliseconds that a repeat should take, so that starting it does not count
_SIZES = (1024, 2048, 4096, 8192)  # of libraries' matrices: the first that takes so long, or the last


class Timed(Protocol):
    """What can be asked how fast it is: a `floatsim.hardware.device.Device`, or something that stands in for one."""

    number: int

    @property
    def card(self) -> Card:
        """Which it is."""

    @property
    def variants(self) -> tuple[Variant, ...]:
        """Its matrix instructions."""

    def issue(self, variant: Variant, steps: int, repeats: int) -> tuple[int, list[float]]:
        """Operations of `steps` of an instruction, and the milliseconds of each repeat."""

    def timed(self, call: Callable[[], Any], repeats: int) -> list[float]:
        """The milliseconds of each repeat of a call."""


@dataclass(frozen=True)
class Rate:
    """How fast one thing was.

    Attributes
    ----------
    what : str
        The instruction with its formats, or the library's product.
    unit : str
        What carried it out: "mma", "wgmma", "tcgen05", or the library.
    operands, output : FloatFormat
        Of A and B; of D.
    operations : int
        Floating-point operations of a repeat: two for a product and its sum.
    milliseconds : tuple of float
        Of each repeat; none where a library refused.
    sheet : float or None
        TFLOP/s by the data sheet.
    source : str
        Which.
    error : str
        What the library said that refused.
    """

    what: str
    unit: str
    operands: FloatFormat
    output: FloatFormat
    operations: int
    milliseconds: tuple[float, ...]
    sheet: float | None = None
    source: str = ""
    error: str = ""

    @property
    def tflops(self) -> float | None:
        """10^12 operations a second, by the median; None where a library refused.

        >>> Rate("", "mma", BF16, FP32, 6 * 10**9, (1.0, 9.0, 3.0)).tflops
        2.0
        """
        return self.operations / statistics.median(self.milliseconds) / 1e9 if self.milliseconds else None

    @property
    def share(self) -> float | None:
        """Of the data sheet's rate."""
        return None if self.sheet is None or self.tflops is None else self.tflops / self.sheet

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "what": self.what, "unit": self.unit, "operands": self.operands.name, "output": self.output.name,
            "tflops": self.tflops, "data_sheet_tflops": self.sheet, "data_sheet": self.source or None,
            "share": self.share, "operations": self.operations, "milliseconds": list(self.milliseconds),
            "error": self.error or None,
        }  # fmt: skip


@dataclass(frozen=True)
class Rates:
    """What was measured on a card. Prints as a table.

    >>> def rate(name, operands, ms):
    ...     return Rate(name, "wgmma", operands, FP32, 10**12, (ms,), 989.5, "H100 data sheet")
    >>> from floatsim.formats import E4M3
    >>> found = Rates(Card("a card", (9, 0), "", ""), (rate("bf16", BF16, 1.25), rate("e4m3", E4M3, 0.625)))
    >>> found.of_bf16(found.rates[1])
    2.0
    """

    card: Card
    rates: tuple[Rate, ...]

    def of_bf16(self, rate: Rate) -> float | None:
        """How many times the rate of BF16 (FP16 where the card has none) by the same unit; None where there is none."""
        for fmt in (BF16, FP16):
            like = [r.tflops for r in self.rates if (r.unit, r.operands, r.output) == (rate.unit, fmt, FP32)]
            same = [tflops for tflops in like if tflops is not None]
            if same and rate.tflops is not None:
                return rate.tflops / max(same)
        return None

    def rows(self) -> list[tuple[str, ...]]:
        """Texts: what, TFLOP/s, the data sheet's, the share of it in percent, how many times BF16."""
        return [
            (
                rate.what + (f": {rate.error}" if rate.error else ""),
                "" if rate.tflops is None else f"{rate.tflops:.1f}", "" if rate.sheet is None else f"{rate.sheet:g}",
                "" if rate.share is None else f"{100 * rate.share:.0f} %", "" if times is None else f"{times:.2f}",
            )
            for rate in self.rates
            for times in [self.of_bf16(rate)]
        ]  # fmt: skip

    def __str__(self) -> str:
        heads = ("", "TFLOP/s", "data sheet", "share", "of BF16")
        lines = [heads, *self.rows()]
        widths = [max(len(line[i]) for line in lines) for i in range(len(heads))]
        first, *rest = (f"{{:<{widths[0]}}}", *(f"{{:>{width}}}" for width in widths[1:]))
        return "\n".join([self.card.name, *(" ".join([first, *rest]).format(*line).rstrip() for line in lines)])

    __repr__ = __str__

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        card = self.card
        return {
            "card": card.name, "compute_capability": ".".join(map(str, card.capability)), "driver": card.driver,
            "cuda": card.cuda, "rates": [each.to_dict() | {"of_bf16": self.of_bf16(each)} for each in self.rates],
        }  # fmt: skip


# -- what there is to measure ------------------------------------------------------------------------------------------


def tasks(device: Timed, only: Sequence[str] = (), libraries: bool = True) -> list[Variant | Product]:
    """The instructions of a card, and what the libraries that are installed multiply; A and B in one format.

    Raises
    ------
    ValueError
        If none fits `only`; the message lists what there is.
    """
    found: list[Variant | Product] = [v for v in device.variants if v.a == v.b != FP32]  # which is TF32 in mma
    if libraries:
        there = [name for name in installed() if name != "cupy"]  # cupy.matmul is cuBLAS
        found += [p for p in PRODUCTS if p.library in there and p.a == p.b and device.card.capability >= p.oldest]
    chosen = [task for task in found if not only or any(fits(str(task), text) for text in only)]
    if not chosen:
        names = ", ".join(dict.fromkeys(str(task).partition(" ")[0] for task in found)) or "nothing"
        raise ValueError(f"only={', '.join(only)!r} fits nothing to time on {device.card.name}; there is {names}")
    return chosen


def measure(device: Timed, asked: Iterable[Variant | Product], repeats: int = REPEATS) -> Iterator[Rate]:
    """One rate after the other."""
    for task in asked:
        if isinstance(task, Variant):
            yield _of_instruction(device, task, repeats)
        else:
            yield _of_library(device, task, repeats)


def _of_instruction(device: Timed, variant: Variant, repeats: int) -> Rate:
    steps = 64
    while True:
        (shortest,) = device.issue(variant, steps, 1)[1]
        if shortest >= _LONG or steps >= 1 << 24:
            break
        steps = min(1 << 24, steps * max(2, min(64, round(1.2 * _LONG / max(shortest, 1e-6)))))
    operations, milliseconds = device.issue(variant, steps, repeats)
    sheet = peak(device.card.name, variant.a, variant.output, variant.scales is not None and variant.k == 64)
    unit = variant.kernel.family.removesuffix("_scaled")
    return Rate(str(variant), unit, variant.a, variant.output, operations, tuple(milliseconds), *sheet)


def _of_library(device: Timed, product: Product, repeats: int) -> Rate:
    normal = np.random.default_rng(0).standard_normal
    tiles = [encode(normal((_SIZES[0], _SIZES[0])), fmt) for fmt in (product.a, product.b)]
    size, milliseconds, refused = 0, list[float](), ""
    try:
        for size in _SIZES:
            a, b = (np.tile(tile, (size // _SIZES[0],) * 2) for tile in tiles)
            with prepared(product, a, b, device.number) as multiply:
                (shortest,) = device.timed(multiply, 1)
                if shortest >= _LONG or size == _SIZES[-1]:
                    milliseconds = device.timed(multiply, repeats)
                    break
    except Exception as error:  # whatever a library has against it is its row's, not the end of all others
        refused = f"{type(error).__name__}: {error}".splitlines()[0]
    operands = _ROUNDED_TO.get(product.compute, product.a)
    sums = FP16 if product.compute.startswith("16f") else FP32
    sheet = peak(device.card.name, operands, sums) if operands != FP32 else (None, "")
    times = tuple(milliseconds)
    return Rate(str(product), product.library, product.a, product.output, 2 * size**3, times, *sheet, refused)


# what cuBLAS may round FP32 operands to; with other compute types CUDA cores multiply them, which have no row
_ROUNDED_TO = {"32f_fast_tf32": TF32, "32f_fast_16f": FP16, "32f_fast_16bf": BF16}
