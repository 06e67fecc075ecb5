"""Throughput of a GPU: TFLOP/s of each matrix instruction and library, measured by CUDA events, beside the data sheet.

An instruction is issued back to back from registers (mma) or shared memory (wgmma, tcgen05), on all multiprocessors and
without other work. This is the limit of the unit, which programs do not reach. Libraries multiply large square
matrices. Operands are normally distributed. A GPU that throttles is slower on them than on zeros.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from floatsim.arrays.array.conversion import encode
from floatsim.formats import BF16, FP16, FP32, TF32, FloatFormat
from floatsim.hardware.protocol import DeviceIdentity, error_text
from floatsim.hardware.questions import fits
from floatsim.hardware.tables.datasheets import peak
from floatsim.hardware.tables.ptx_matrix import Variant
from floatsim.hardware.vendor_gemm import PRODUCTS, Product, installed, prepared

__all__ = ["NO_UNIT", "REPEATS", "Rate", "Rates", "Timed", "measure", "tasks"]

REPEATS = 20
"""The default number of measurements. Their median is reported."""

NO_UNIT = "no unit"
"""The unit of FP16 `mma.m8n8k4` from compute capability 8.0 on. Compilers turn it into a subroutine there, and its
throughput is estimated at 1 % of the data sheet."""

_LONG = 10.0  # milliseconds: the least time of a measurement, so that the launch has no effect
_SIZES = (1024, 2048, 4096, 8192)  # of libraries' matrices: the first that takes _LONG is used, or the last


class Timed(Protocol):
    """A device whose throughput can be measured: a `floatsim.hardware.device.Device`, or a replacement in tests."""

    number: int

    @property
    def identity(self) -> DeviceIdentity:
        """The identity of the device."""

    @property
    def variants(self) -> tuple[Variant, ...]:
        """The matrix instructions of the device."""

    def issue(self, variant: Variant, steps: int, repeats: int) -> tuple[int, list[float]]:
        """Return the operations of `steps` of an instruction, and the milliseconds of each measurement."""

    def timed(self, call: Callable[[], Any], repeats: int) -> list[float]:
        """Return the milliseconds of each measurement of a call."""


@dataclass(frozen=True)
class Rate:
    """The throughput of one instruction or library product.

    Attributes
    ----------
    what : str
        The instruction with its formats, or the library's product.
    unit : str
        "mma", "wgmma", "tcgen05", "no unit", or the library. "no unit" is an instruction that compilers turn into a
        subroutine on this GPU. It has no data sheet.
    operands, output : FloatFormat
        The format of A and B, and the format of D.
    operations : int
        The floating-point operations of a measurement. A product and its sum are two.
    milliseconds : tuple of float
        The time of each measurement; empty if the measurement could not run.
    sheet : float or None
        The TFLOP/s of the data sheet.
    source : str
        The name of the data sheet.
    error : str
        The type and the message of the error, if the measurement could not run.

    Examples
    --------
    >>> import floatsim as fs
    >>> rate = fs.hardware.Rate("bf16", "mma", (fs.BF16, fs.BF16), fs.FP32, 10**12, (2.0, 2.5))
    >>> rate.tflops
    444.44444444444446
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
        """10^12 operations per second, from the median time; None if the measurement could not run.

        >>> Rate("", "mma", BF16, FP32, 6 * 10**9, (1.0, 9.0, 3.0)).tflops
        2.0
        """
        return self.operations / statistics.median(self.milliseconds) / 1e9 if self.milliseconds else None

    @property
    def share(self) -> float | None:
        """The throughput as a share of the data sheet's."""
        return None if self.sheet is None or self.tflops is None else self.tflops / self.sheet

    def cells(self) -> tuple[str, str, str, str]:
        """Return the name, the TFLOP/s, the data sheet's TFLOP/s and the share in percent as text.

        >>> Rate("mma.m16n8k16 ...", "mma", FP16, FP32, 10**9, (2.0,), 1.0).cells()
        ('mma.m16n8k16 ...', '0.5', '1', '50 %')
        """
        sheet = NO_UNIT if self.unit == NO_UNIT else "" if self.sheet is None else f"{self.sheet:g}"
        return (
            self.what + (f": {self.error}" if self.error else ""), "" if self.tflops is None else f"{self.tflops:.1f}",
            sheet, "" if self.share is None else f"{100 * self.share:.0f} %",
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """Return the throughput in JSON types."""
        return {
            "what": self.what, "unit": self.unit, "operands": self.operands.name, "output": self.output.name,
            "tflops": self.tflops, "data_sheet_tflops": self.sheet, "data_sheet": self.source or None,
            "share": self.share, "operations": self.operations, "milliseconds": list(self.milliseconds),
            "error": self.error or None,
        }  # fmt: skip


@dataclass(frozen=True)
class Rates:
    """The measured throughput of a GPU. Prints as a table.

    Attributes
    ----------
    identity : DeviceIdentity
        The GPU and its software.
    rates : tuple of Rate
        One measurement for each instruction and library.

    >>> def rate(name, operands, ms):
    ...     return Rate(name, "wgmma", operands, FP32, 10**12, (ms,), 989.5, "H100 data sheet")
    >>> from floatsim.formats import E4M3
    >>> measured = (rate("bf16", BF16, 1.25), rate("e4m3", E4M3, 0.625))
    >>> found = Rates(DeviceIdentity("a GPU", (9, 0), "", ""), measured)
    >>> found.of_bf16(found.rates[1])
    2.0
    """

    identity: DeviceIdentity
    rates: tuple[Rate, ...]

    def of_bf16(self, rate: Rate) -> float | None:
        """Return the ratio to BF16 (FP16 if the GPU has no BF16) on the same unit; None if neither was measured."""
        if rate.unit == NO_UNIT:
            return None
        for fmt in (BF16, FP16):
            rates = [r.tflops for r in self.rates if (r.unit, r.operands, r.output) == (rate.unit, fmt, FP32)]
            known = [tflops for tflops in rates if tflops is not None]
            if known and rate.tflops is not None:
                return rate.tflops / max(known)
        return None

    def rows(self) -> list[tuple[str, ...]]:
        """Return rows of text: name, TFLOP/s, the data sheet's TFLOP/s, the share in percent, the ratio to BF16."""
        return [(*rate.cells(), "" if times is None else f"{times:.2f}")
                for rate in self.rates for times in [self.of_bf16(rate)]]  # fmt: skip

    def __str__(self) -> str:
        heads = ("", "TFLOP/s", "data sheet", "share", "of BF16")
        lines = [heads, *self.rows()]
        widths = [max(len(line[i]) for line in lines) for i in range(len(heads))]
        aligned = " ".join([f"{{:<{widths[0]}}}", *(f"{{:>{width}}}" for width in widths[1:])])
        return "\n".join([self.identity.name, *(aligned.format(*line).rstrip() for line in lines)])

    __repr__ = __str__

    def to_dict(self) -> dict[str, Any]:
        """Return the measured throughput in JSON types."""
        identity = self.identity
        return {
            "card": identity.name, "compute_capability": ".".join(map(str, identity.capability)),
            "driver": identity.driver, "driver_cuda": identity.driver_cuda, "cuda": identity.cuda,
            "rates": [each.to_dict() | {"of_bf16": self.of_bf16(each)} for each in self.rates],
        }  # fmt: skip


# -- measurements ------------------------------------------------------------------------------------------------------


def tasks(device: Timed, only: Sequence[str] = (), libraries: bool = True) -> list[Variant | Product]:
    """Return the instructions of a GPU, and the products of the installed libraries, with A and B in one format.

    Raises
    ------
    ValueError
        If none fits `only`. The message lists the available ones.
    """
    available: list[Variant | Product] = [v for v in device.variants if v.a == v.b != FP32]  # FP32 is TF32 in mma
    if libraries:
        names = [name for name in installed() if name != "cupy"]  # cupy.matmul is cuBLAS
        available += [
            p for p in PRODUCTS if p.library in names and p.a == p.b and device.identity.capability >= p.oldest
        ]
    selected = [task for task in available if not only or any(fits(str(task), text) for text in only)]
    if not selected:
        listed = ", ".join(dict.fromkeys(str(task).partition(" ")[0] for task in available)) or "nothing"
        raise ValueError(f"only={', '.join(only)!r} fits no measurement on {device.identity.name}; there is {listed}")
    return selected


def measure(device: Timed, selected: Iterable[Variant | Product], repeats: int = REPEATS) -> Iterator[Rate]:
    """Yield the throughput of each instruction and library product.

    The error of one measurement is its row, and the next measurement follows.
    """
    for task in selected:
        if isinstance(task, Variant):
            yield _of_instruction(device, task, repeats)
        else:
            yield _of_library(device, task, repeats)


def _of_instruction(device: Timed, variant: Variant, repeats: int) -> Rate:
    operations, milliseconds, failure, steps = 0, list[float](), "", 64
    try:
        while True:
            (shortest,) = device.issue(variant, steps, 1)[1]
            if shortest >= _LONG or steps >= 1 << 24:
                break
            steps = min(1 << 24, steps * max(2, min(64, round(1.2 * _LONG / max(shortest, 1e-6)))))
        operations, milliseconds = device.issue(variant, steps, repeats)
    except Exception as error:
        failure = error_text(error)
    subroutine = variant.kernel.shape == (8, 8, 4) and variant.a == FP16 and device.identity.capability >= (8, 0)
    sheet: tuple[float | None, str] = (None, "")
    if not subroutine:
        sheet = peak(device.identity.name, variant.a, variant.output, variant.scales is not None and variant.k == 64)
    unit = NO_UNIT if subroutine else variant.kernel.family.removesuffix("_scaled")
    return Rate(str(variant), unit, variant.a, variant.output, operations, tuple(milliseconds), *sheet, failure)


def _of_library(device: Timed, product: Product, repeats: int) -> Rate:
    normal = np.random.default_rng(0).standard_normal
    tiles = [encode(normal((_SIZES[0], _SIZES[0])), fmt) for fmt in (product.a, product.b)]
    size, milliseconds, failure = 0, list[float](), ""
    try:
        for size in _SIZES:
            a, b = (np.tile(tile, (size // _SIZES[0],) * 2) for tile in tiles)
            with prepared(product, a, b, device.number) as multiply:
                (shortest,) = device.timed(multiply, 1)
                if shortest >= _LONG or size == _SIZES[-1]:
                    milliseconds = device.timed(multiply, repeats)
                    break
    except Exception as error:
        failure = error_text(error)
    operands = _ROUNDED_TO.get(product.compute, product.a)
    sums = FP16 if product.compute.startswith("16f") else FP32
    sheet = peak(device.identity.name, operands, sums) if operands != FP32 else (None, "")
    times = tuple(milliseconds)
    return Rate(str(product), product.library, product.a, product.output, 2 * size**3, times, *sheet, failure)


# The format to which cuBLAS may round FP32 operands. With other compute types, CUDA cores multiply FP32: no data sheet.
_ROUNDED_TO = {"32f_fast_tf32": TF32, "32f_fast_16f": FP16, "32f_fast_16bf": BF16}
