"""Cases whose results were wrong when the digests were first stored. A repair changes them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import floatsim as fs

from .case import Case
from .inputs import codes, pair

__all__ = ["cases"]


def _minus_zero_alpha(name: str) -> Any:
    """Both signs of a zero alpha, one after the other."""
    one = fs.array([[1.0]], "fp16")
    return tuple(fs.matmul(one, one, alpha=alpha) for alpha in (0.0, -0.0, 0.0))


def _of_24_bits(description: str, rounding: str) -> Callable[[str], Any]:
    def call(name: str) -> Any:
        found = [fs.sum(fs.array([1.5, -(2.0**-23)], "ieee(5,20)"), accumulate=description, rounding=rounding)]
        for fmt in ("fp16", "ieee(5,20)"):
            x = codes(fs.as_format(fmt), (40, 20), "easy", f"{name}/{fmt}")
            found.append(fs.sum(x, 0, accumulate=description, rounding=rounding))
        return tuple(found)

    return call


def _top_binade(fmt: fs.FloatFormat, description: str) -> Callable[[str], Any]:
    def call(name: str) -> Any:
        x, one = fs.array([fmt.max], fmt), fs.array([1.0], fmt)
        y, z = pair(fmt, fmt, (4, 24), (24, 20), "wide", name)
        accumulation = fs.as_accumulation(description)
        found = (
            fs.sum(x, accumulate=accumulation),
            fs.dot(x, one, accumulate=accumulation),
            fs.matmul(y, z, accumulate=accumulation),
        )
        a = fs.array(np.ones((4, 24)), "fp16")
        return (
            *found,
            fs.matmul(a, a.T, y[:, :4], accumulate=accumulation),
            fs.matmul(y, z, accumulate=fs.Sequential(fmt)),
        )

    return call


def _finite_product(kind: Any, acc: str, specials: str) -> Callable[[str], Any]:
    product = fs.FloatFormat("p", 6, 25, specials=specials)

    def call(name: str) -> Any:
        b = fs.array(np.ones((2, 17)), "e4m3ieee")
        found = []
        for value in (np.inf, np.nan):
            a = fs.array([[1.0, value]], "e4m3ieee")
            found.append(fs.matmul(a, b, accumulate=kind(acc, product=product)))
        x, y = pair(fs.E4M3IEEE, fs.E4M3IEEE, (4, 24), (24, 20), "specials", name)
        return *found, fs.matmul(x, y, accumulate=kind(acc, product=product))

    return call


def _infinite_product(exponent_bits: int, trailing_bits: int, rounding: str) -> Callable[[str], Any]:
    fmt = fs.FloatFormat("a", exponent_bits, trailing_bits, specials="finite")

    def call(name: str) -> Any:
        a, b = fs.array([[-4.0, np.inf]], "e5m2"), fs.array(np.ones((2, 17)), "e5m2")
        x, y = pair(fs.E5M2, fs.E5M2, (4, 24), (24, 20), "specials", name)
        accumulation = fs.Sequential(fmt, rounding=rounding)
        return fs.matmul(a, b, accumulate=accumulation), fs.matmul(x, y, accumulate=accumulation)

    return call


def _minus_zero_unit(architecture: str, instruction: str) -> Callable[[str], Any]:
    def call(name: str) -> Any:
        zeros, one = fs.from_codes(np.zeros((24, 1, 1), np.uint8), fs.E4M3), fs.array([[1.0]], "e4m3")
        tiny = np.uint32(1 << 31) + (np.uint32(1) << np.arange(24, dtype=np.uint32))
        results = [
            fs.matmul(
                z, one, fs.from_codes(c.reshape(1, 1), fs.FP32), accumulate=fs.TensorCore(architecture, instruction)
            )
            for z, c in zip(zeros, tiny, strict=True)
        ]
        return tuple(results)

    return call


def cases() -> Iterator[Case]:
    """Yield every case."""
    yield Case("known-wrong/alpha-minus-zero", _minus_zero_alpha)
    rounded = ("toward_zero", "toward_negative", "toward_positive")
    kinds = ("sequential(ieee(5,23))", "pairwise(ieee(5,23))", "sequential(ieee(6,23))", "sequential(ieee(7,23))")
    for description, rounding in itertools.product(kinds, rounded):
        yield Case(f"known-wrong/24-bits/{description}/{rounding}", _of_24_bits(description, rounding))
    for (specials, bias), description in itertools.product(
        (("fnuz", 128), ("fn", 128), ("fnuz", 140)), ("fp32", "bf16", "pairwise(bf16)", "kahan(tf32)", "fp64")
    ):
        fmt = fs.FloatFormat("w", 8, 7, specials=specials, bias=bias)
        yield Case(f"known-wrong/top-binade/{specials}-{bias}/{description}", _top_binade(fmt, description))
    for specials, kind, acc in itertools.product(
        ("finite", "fn"), (fs.Sequential, fs.Pairwise, fs.Kahan, fs.Neumaier), ("fp32", "fp64", "fp16")
    ):
        name = f"known-wrong/finite-product/{specials}/{kind.__name__.lower()}({acc})"
        yield Case(name, _finite_product(kind, acc, specials))
    for widths, rounding in itertools.product(((7, 12), (6, 13), (7, 20)), ("toward_zero", "toward_negative")):
        name = f"known-wrong/infinite-product/finite({widths[0]},{widths[1]})/{rounding}"
        yield Case(name, _infinite_product(*widths, rounding))
    for unit in (("ada", "mma.m16n8k32"), ("ada", "mma.m16n8k16"), ("hopper", "wgmma.k32")):
        yield Case(f"known-wrong/tensorcore-minus-zero/{unit[0]}-{unit[1]}", _minus_zero_unit(*unit))
