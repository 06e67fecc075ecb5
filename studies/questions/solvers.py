"""What scientific computing asks that training does not: conjugate gradients and the Lorenz system in each format."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from floatsim import FloatArray, add, array, divide, dot, matmul, multiply, subtract
from floatsim.training import train
from studies.questions.question import Chart, Found, Question, asked

QUESTIONS: dict[str, Question] = {}


def _residuals(fmt: str, unknowns: int, iterations: int) -> list[float]:
    """Return ||b - A x|| / ||b|| of conjugate gradients, each operation in a format. A is the 1D Poisson matrix.

    The vectors and the sums are in the format. The residual is computed from x in FP64. It stops at a NaN or at r = 0.
    """
    exact = 2 * np.eye(unknowns) - np.eye(unknowns, k=1) - np.eye(unknowns, k=-1)
    right = np.random.default_rng(0).integers(1, 8, unknowns).astype(np.float64)
    sums: dict[str, Any] = {"accumulate": fmt.lower(), "format": fmt}
    matrix, r, x = array(exact, fmt), array(right, fmt), array(np.zeros(unknowns), fmt)
    p, rr, found = r, dot(r, r, **sums), [1.0]
    for _ in range(iterations):
        product = matmul(matrix, p, **sums)
        alpha = divide(rr, dot(p, product, **sums))
        x, r = add(x, multiply(alpha, p)), subtract(r, multiply(alpha, product))
        new = dot(r, r, **sums)
        residual = float(np.linalg.norm(right - exact @ x.values) / np.linalg.norm(right))
        if not np.isfinite(residual) or not float(new):
            break
        found.append(residual)
        p, rr = add(r, multiply(divide(new, rr), p)), new
    return found


def _slope(state: FloatArray, fmt: str) -> FloatArray:
    """Return (10 (y - x), x (28 - z) - y, x y - 8/3 z), each operation in a format."""
    x, y, z = state.codes
    ten, rho, ratio, zero = (np.full_like(x, code) for code in array([10.0, 28.0, 8 / 3, 0.0], fmt).codes)

    def row(*codes: Any) -> FloatArray:
        return FloatArray(np.stack(codes), state.format)

    differences = subtract(row(y, rho), row(x, z)).codes
    products = multiply(row(ten, x, x, ratio), row(*differences, y, z)).codes
    return subtract(row(*products[:3]), row(zero, y, products[3]))


def _orbits(fmt: str, steps: int, dt: float, starts: int = 16) -> NDArray[np.float64]:
    """Return orbits of the Lorenz system, (steps + 1, 3, starts), by the classical Runge-Kutta method in a format."""
    rng = np.random.default_rng(0)
    state = array(np.stack([*rng.integers(-8, 9, (2, starts)), rng.integers(16, 32, starts)]).astype(np.float64), fmt)
    half, full, sixth, two = (array(value, fmt) for value in (dt / 2, dt, dt / 6, 2.0))
    states = [state.values]
    for _ in range(steps):
        k1 = _slope(state, fmt)
        k2 = _slope(add(state, multiply(half, k1)), fmt)
        k3 = _slope(add(state, multiply(half, k2)), fmt)
        k4 = _slope(add(state, multiply(full, k3)), fmt)
        total = add(add(k1, k4), multiply(two, add(k2, k3)))
        state = add(state, multiply(sixth, total))
        states.append(state.values)
    return np.array(states)


def _departure(fmt: str, exact: NDArray[np.float64], dt: float, distance: float = 1.0) -> float:
    """Return the time after which orbits in a format are apart from those in FP64: the median over the starts."""
    apart = np.linalg.norm(_orbits(fmt, len(exact) - 1, dt) - exact, axis=1) > distance
    return float(np.median(np.where(apart.any(axis=0), np.argmax(apart, axis=0) * dt, np.inf)))


@asked(QUESTIONS, "scientific", "What does scientific computing ask of a format that training does not?")
def scientific(unknowns: int = 16, epochs: int = 4, rate: float = 0.1, dt: float = 0.02, time: float = 24.0) -> Found:
    """Conjugate gradients, the Lorenz system and the digits in each format."""
    formats, series, numbers = ("FP64", "FP32", "FP16", "BF16"), {}, {}
    exact = _orbits("FP64", round(time / dt), dt)
    for fmt in formats:
        residuals = _residuals(fmt, unknowns, 3 * unknowns)
        series[fmt] = (list(range(len(residuals))), residuals)
        numbers[f"{fmt}: least residual of conjugate gradients"] = min(residuals)
        if fmt != "FP64":
            numbers[f"{fmt}: time to depart from the Lorenz orbit"] = _departure(fmt, exact, dt)
            name = "fp32" if fmt == "FP32" else f"{fmt.lower()}+masters"
            numbers[f"{fmt}: accuracy on the digits"] = train(name, epochs=epochs, lr=rate).accuracy
    least = {fmt: min(ys) for fmt, (_, ys) in series.items()}
    apart = {fmt: numbers[f"{fmt}: time to depart from the Lorenz orbit"] for fmt in formats[1:]}
    known = [numbers[f"{fmt}: accuracy on the digits"] for fmt in formats[1:]]
    sentence = (
        f"It asks for many digits of one solution. Conjugate gradients reach a residual of {least['FP64']:.1g} in "
        f"FP64, {least['FP32']:.1g} in FP32, {least['FP16']:.1g} in FP16 and {least['BF16']:.1g} in BF16. Lorenz "
        f"orbits depart from those of FP64 after {apart['FP32']:.1f}, {apart['FP16']:.1f} and {apart['BF16']:.1f} "
        f"time units. The accuracy on the digits, after {epochs} epochs of SGD at a rate of {rate:g}, is "
        f"{known[0]:.3f}, {known[1]:.3f} and {known[2]:.3f}: many different weights solve the task."
    )
    return Found(sentence, numbers, Chart(series, "iteration of conjugate gradients", "relative residual", log_y=True))
