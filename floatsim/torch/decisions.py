"""Decisions of a policy, resolved for the operands at hand: formats, accumulations and recipes."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from floatsim.accumulation import Accumulation, AccumulationLike, as_accumulation, parse
from floatsim.formats import FP32, FP64, FloatFormat
from floatsim.formats.value_sets import contains
from floatsim.operators.recipes import EVERY, Recipe
from floatsim.operators.steps import OPERATORS
from floatsim.training.policies.operations import operation_of
from floatsim.training.policies.policy import Decision, Policy, widest

__all__ = ["Resolved", "line", "recipe_of", "resolve"]


@dataclass(frozen=True, eq=False)
class Resolved:
    """The formats of one operation, without "same" and "widest".

    Attributes
    ----------
    operation : str
        The name in the policy.
    operands, weight, gradient, inside, out : FloatFormat
        As in the decision of `fs.training.Policy.decide`.
    accumulate : Accumulation
        The accumulation of every sum of an operation, of the products in a matrix product.
    sums : Accumulation
        The accumulation of sums that are no product: the policy's own in matrix products.
    scaling : str, Scaling or None
        The scaling method of a matrix product.
    source : str
        The rule that decided.
    """

    operation: str
    operands: FloatFormat
    weight: FloatFormat
    gradient: FloatFormat
    inside: FloatFormat
    accumulate: Accumulation
    sums: Accumulation
    out: FloatFormat
    scaling: Any
    source: str

    @functools.cached_property
    def recipe(self) -> Recipe:
        """The recipe of the operators of `floatsim.operators`."""
        return recipe_of(self)


def resolve(policy: Policy, decision: Decision, formats: tuple[FloatFormat, ...]) -> Resolved:
    """Return a decision for operands of these formats.

    Parameters
    ----------
    policy : Policy
        The policy. Its `accumulate` is for the sums in matrix products that are no product.
    decision : Decision
        What `policy.decide` returned.
    formats : tuple of FloatFormat
        The formats of the operands as they are given.

    Returns
    -------
    Resolved
        Operands whose format the policy leaves open have intermediates at least as wide.

    Examples
    --------
    >>> import floatsim as fs
    >>> policy = fs.training.as_policy("autocast-fp16")
    >>> found = resolve(policy, policy.decide("residual_add"), (fs.FP16, fs.FP16))
    >>> found.operands.name, found.inside.name, found.out.name
    ('FP16', 'FP32', 'FP16')
    """
    decision = decision.for_formats(*formats)
    known = decision.given(*(formats or (FP32,)))
    operands: Any = known.operands
    inside: Any = known.inside
    if isinstance(decision.operands, str) and not contains(inside, operands):
        inside = widest((inside, operands))
    product = operation_of(decision.operation).product
    accumulate = _parsed(known.accumulate, operands if product else inside)
    sums = _parsed(policy.accumulate, inside) if product else accumulate
    if isinstance(decision.operands, str) and inside == FP64:
        accumulate, sums = _in_fp64(known.accumulate, accumulate), _in_fp64(policy.accumulate, sums)
    return Resolved(
        known.operation, operands, known.weight, known.gradient, inside, accumulate, sums, known.result,  # type: ignore[arg-type]
        known.scaling, known.source,
    )  # fmt: skip


@functools.cache
def line(inside: FloatFormat, out: FloatFormat) -> Resolved:
    """Return the formats of a line of an optimizer: one format inside, and that of the tensor for the result.

    >>> import floatsim as fs
    >>> line(fs.FP32, fs.BF16).source
    'the optimizer'
    """
    sums = as_accumulation(inside)
    return Resolved("other", inside, inside, inside, inside, sums, sums, out, None, "the optimizer")


def _parsed(accumulate: AccumulationLike, same: FloatFormat) -> Accumulation:
    return parse(accumulate, same) if isinstance(accumulate, str) else as_accumulation(accumulate)


def _in_fp64(text: AccumulationLike, accumulate: Accumulation) -> Accumulation:
    """Return an accumulation in FP64 for one in FP32, if operands in FP64 are left as they are given."""
    return as_accumulation("fp64") if text in ("fp32", FP32) else accumulate


_PRODUCTS = (
    "product", "scores", "window_gradient", "input_product", "hidden_product", "input_gradient", "hidden_gradient",
    "weight_gradient", "weight_ih_gradient", "weight_hh_gradient", "value_gradient", "probability_gradient",
    "query_gradient", "key_gradient",
)  # fmt: skip
"""The sums of operators that are matrix products."""
_SUMS = frozenset(step for operator in OPERATORS.values() for step in operator.sums)
_OPERANDS = frozenset(step for operator in OPERATORS.values() for step in operator.operands)


def recipe_of(decision: Resolved) -> Recipe:
    """Return the recipe of the operators of `floatsim.operators` for a decision.

    Parameters
    ----------
    decision : Resolved

    Returns
    -------
    Recipe
        Operands of products have the formats of the decision, weights and gradients included, also the operands that
        are intermediates: the probabilities of attention, and their gradient. All other intermediates have the format
        `inside`, results have `out`.

    Examples
    --------
    >>> import floatsim as fs
    >>> policy = fs.training.as_policy("fp16")
    >>> recipe_of(resolve(policy, policy.decide("softmax"), ())).format_of("softmax", "exp").name
    'FP16'
    """
    product = operation_of(decision.operation).product
    weights = decision.weight if product else decision.operands
    formats: dict[str, Any] = dict.fromkeys(_OPERANDS, decision.operands)
    formats |= dict.fromkeys(("weight", "weight_ih", "weight_hh"), weights)
    formats |= dict.fromkeys(("gradient", "cell_gradient"), decision.gradient)
    formats |= dict.fromkeys(("output", "updated_cell"), decision.out)
    formats |= dict.fromkeys(("running_mean", "running_var", "updated_mean", "updated_var"), "same")
    accumulations: dict[str, Any] = dict.fromkeys(_SUMS, decision.sums)
    if product:
        formats["cell"] = decision.inside
        formats |= {"probabilities": decision.operands, "scaled_result": decision.gradient}
        accumulations |= dict.fromkeys(_PRODUCTS, decision.accumulate)
    return Recipe(
        f"policy for {decision.operation}", format=decision.inside, accumulate=decision.sums,
        formats={EVERY: formats}, accumulations={EVERY: accumulations},
    )  # fmt: skip
