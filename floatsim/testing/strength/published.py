"""Published tolerances of kernel tests, as checks that `strength` rates.

The default tolerances of PyTorch, the rule of FlashAttention and the measure of DeepGEMM stand in the tests of these
projects as of 2026.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from floatsim.arrays.array.conversion import as_float_array
from floatsim.formats import FP32
from floatsim.testing.assertions import compare_arrays
from floatsim.testing.compare.metrics import calc_diff
from floatsim.testing.compare.product import product_of
from floatsim.testing.strength.check_strength import CheckStrength, strength
from floatsim.testing.vectors.product_inputs import hard_inputs

__all__ = ["PUBLISHED", "Rule", "rate"]


class Rule(NamedTuple):
    """A published rule: the project, the rule in words, the format of the result, and the check.

    The check gets the result, the exact product, and a plain product with a result in the same format.
    """

    project: str
    text: str
    format: str
    accepts: Callable[[Any, Any, Any], bool]


def _close(rtol: float, atol: float) -> Callable[[Any, Any, Any], bool]:
    def accepts(x: Any, exact: Any, plain: Any) -> bool:
        values = np.asarray(as_float_array(x, "x").values)
        return bool(np.allclose(values, exact, rtol=rtol, atol=atol))

    return accepts


def _twice(x: Any, exact: Any, plain: Any) -> bool:
    own, other = (np.abs(np.asarray(as_float_array(each, "x").values) - exact).max() for each in (x, plain))
    return bool(own <= 2 * other + 1e-5)


PUBLISHED = (
    Rule("PyTorch, FP32", "rtol 1.3e-6, atol 1e-5", "fp32", _close(1.3e-6, 1e-5)),
    Rule("PyTorch, BF16", "rtol 1.6e-2, atol 1e-5", "bf16", _close(1.6e-2, 1e-5)),
    Rule("PyTorch, FP16", "rtol 1e-3, atol 1e-5", "fp16", _close(1e-3, 1e-5)),
    Rule("TransformerEngine, E4M3", "rtol 0.125, atol 0.0675", "bf16", _close(0.125, 0.0675)),
    Rule("FlashAttention", "error at most twice the plain one, plus 1e-5", "bf16", _twice),
    Rule("DeepGEMM", "`calc_diff` below 0.001", "bf16", lambda x, e, p: calc_diff(x, e) < 0.001),
    Rule("floatsim", "1 ulp of the described sum", "bf16", lambda x, e, p: compare_arrays(x, p, 1).passed),
    Rule("floatsim", "equal bits", "bf16", lambda x, e, p: compare_arrays(x, p).passed),
)
"""The rules. The last two compare with the emulated product."""


def rate(rule: Rule, kind: str = "normal", shape: tuple[int, int, int] = (96, 512, 96)) -> CheckStrength:
    """Return what a published rule catches: BF16 operands of a kind of hard inputs, summed in order in FP32.

    >>> import floatsim as fs
    >>> rate(PUBLISHED[-1], shape=(64, 96, 64)).missed
    ()
    """
    a, b = hard_inputs(shape, "bf16", kind, result=rule.format)
    product = product_of(a, b, None, FP32, rule.format)
    exact, plain = np.asarray(product.result("exact(fp64)", "fp64").values), product.result()
    return strength(lambda x, _: rule.accepts(x, exact, plain), a, b, accumulate=FP32, format=rule.format)
