"""Fake GPUs, which run the emulator, with injected faults."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from floatsim.hardware.protocol import DeviceIdentity
from floatsim.hardware.questions import Emulated
from floatsim.hardware.tables.ptx_matrix import Variant
from floatsim.hardware.tables.ptx_scalar import Scalar

Fault = Callable[[Variant | Scalar, np.ndarray], np.ndarray]


class FakeDevice(Emulated):
    """An emulated device with the protocol `floatsim.hardware.protocol.Dots`. A fault changes its results."""

    def __init__(self, capability=(8, 9), fault: Fault | None = None) -> None:
        super().__init__(DeviceIdentity("a fake GPU", capability, "0.0", "0.0"))
        object.__setattr__(self, "fault", fault)

    def dots(self, variant: Variant, a, b, c, scales=None):
        for x, fmt in ((a, variant.a), (b, variant.b), (c, variant.output)):
            assert x.dtype == fmt.code_dtype
        assert a.shape == b.shape == (len(c), variant.k)
        d = super().dots(variant, a, b, c, scales)
        return d if self.fault is None else self.fault(variant, d)

    def scalar(self, row: Scalar, *operands):
        d = super().scalar(row, *operands)
        return d if self.fault is None else self.fault(row, d)


def one_bit(row: int, bit: int = 0, of: str = "") -> Fault:
    """Return a fault that flips a bit of one row of D in each batch, for instructions whose text contains `of`."""

    def fault(variant: Variant | Scalar, d: np.ndarray) -> np.ndarray:
        if row < len(d) and of in str(variant):
            d[row] ^= d.dtype.type(1 << bit)
        return d

    return fault


def an_error(of: str, then: Fault | None = None) -> Fault:
    """Return a fault that raises an error for instructions whose text contains `of`; for others, the fault `then`."""

    def fault(variant: Variant | Scalar, d: np.ndarray) -> np.ndarray:
        if of in str(variant):
            raise RuntimeError("CUDA_ERROR_ILLEGAL_ADDRESS:\nthe launch failed")
        return d if then is None else then(variant, d)

    return fault


ERROR = "RuntimeError: CUDA_ERROR_ILLEGAL_ADDRESS: the launch failed"
"""The text of the row of an instruction for which `an_error` raises."""


def other_nans(variant: Variant | Scalar, d: np.ndarray) -> np.ndarray:
    """A fault: all NaNs have all bits set."""
    fmt = variant.result if isinstance(variant, Scalar) else variant.output
    special = (d & d.dtype.type(fmt.magnitude_mask)) > d.dtype.type(fmt.infinity_code or fmt.max_code)
    return np.where(special, d.dtype.type(fmt.magnitude_mask | fmt.sign_mask), d)
