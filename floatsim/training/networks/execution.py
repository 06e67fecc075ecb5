"""The execution of operations under a policy: recipes of operators, scaled products, a trace, the first overflow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import numpy as np

from floatsim import operators
from floatsim.accumulation import AccumulationLike, parse
from floatsim.arrays.array.conversion import convert
from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.call.options import context
from floatsim.arrays.call.random_stream import RandomStream
from floatsim.arrays.elementwise.arithmetic import add
from floatsim.arrays.sums.reductions import sum as sum_of
from floatsim.formats import FP32, FloatFormat
from floatsim.formats.rounding import Rounding
from floatsim.operators.recipes import Recipe
from floatsim.operators.steps import operator_steps
from floatsim.training.policies.named import PolicyLike, as_policy
from floatsim.training.policies.operations import operation_of
from floatsim.training.policies.policy import Decision
from floatsim.training.policies.rules import Scaler
from floatsim.training.scaling.methods import as_scaling

__all__ = ["BadValue", "Execution", "TraceRow", "has_special_values", "recipe_of"]


class TraceRow(NamedTuple):
    """One operation of a trace.

    Attributes
    ----------
    module : str
        The path of the layer.
    operation : str
        The name of the operation.
    backward : bool
        Whether it is the backward pass.
    inputs : tuple of str
        The formats of the operands as they are given.
    compute : str
        The format of the operands in the operation.
    result : str
        The format of the result.
    """

    module: str
    operation: str
    backward: bool
    inputs: tuple[str, ...]
    compute: str
    result: str


class BadValue(NamedTuple):
    """An operation whose result has NaN or infinity.

    Attributes
    ----------
    module, operation : str
        The path of the layer, and the operation.
    backward : bool
        Whether it is the backward pass.
    step : int
        The number of the training step.
    kind : str
        "infinity", or "NaN" for a result with NaN and without infinity.
    """

    module: str
    operation: str
    backward: bool
    step: int
    kind: str

    def __str__(self) -> str:
        direction = "backward" if self.backward else "forward"
        return f"{self.kind} in {self.module}, {self.operation}, {direction}, step {self.step}"


def has_special_values(x: FloatArray) -> bool:
    """Return whether a tensor has NaN or infinity, by its codes.

    >>> import floatsim as fs
    >>> has_special_values(fs.array([1.0, float("inf")], "fp16")), has_special_values(fs.array([448.0], "e4m3"))
    (True, False)
    """
    if not x.size:
        return False
    fmt = x.format
    magnitudes = x.codes & fmt.code_dtype.type(fmt.sign_mask - 1 if fmt.signed else -1)
    return bool(magnitudes.max() > fmt.max_code)


def recipe_of(decision: Decision, operator: str, out: Any) -> Recipe:
    """Return the recipe of an operator for a decision without "same" and "widest".

    >>> import floatsim as fs
    >>> decision = fs.training.as_policy("autocast-fp16").decide("linear").given("fp32")
    >>> recipe = recipe_of(decision, "linear", decision.result)
    >>> [f"{recipe.format_of('linear', step)}" for step in ("input", "product", "output")]
    ['FP16', 'FP32', 'FP16']
    """
    steps = operator_steps(operator)
    formats: dict[str, Any] = dict.fromkeys(steps.operands, decision.operands)
    formats |= {"weight": decision.weight} if "weight" in steps.operands else {}
    formats |= {"gradient": decision.gradient} if "gradient" in steps.operands else {}
    formats |= {"probabilities": decision.operands} if "probabilities" in steps.names else {}
    sums: AccumulationLike = decision.accumulate
    if isinstance(sums, str):
        product = operation_of(decision.operation).product
        sums = parse(sums, decision.operands if product else decision.inside)  # type: ignore[arg-type]
    return Recipe(
        f"{decision.operation} by policy", format=decision.inside, accumulate=sums,
        formats={operator: {**formats, "output": out}},
    )  # fmt: skip


class Execution:
    """A policy in one training run: it carries out operations, and keeps the state of scaling methods.

    Parameters
    ----------
    policy : Policy or str
        The policy.
    tracing : bool
        Whether the formats of each operation are kept in `trace`.

    Attributes
    ----------
    step : int
        The number of the training step.
    trace : list of TraceRow
        The operations in order.
    bad : BadValue or None
        The first operation of this step whose result has NaN or infinity.
    watch : callable or None
        It is called with a name and a tensor for each result, "layer0.linear", and for each gradient by an activation,
        "layer0.linear.gradient".

    Examples
    --------
    >>> import floatsim as fs
    >>> execution = fs.training.Execution("autocast-fp16", tracing=True)
    >>> x = fs.array([[1.0, 2.0]], "fp32")
    >>> y = execution.forward("softmax", "layer0", execution.forward("relu", "layer0", x.astype("fp16")))
    >>> for row in execution.trace:
    ...     print(row.operation, row.inputs, row.compute, row.result)
    relu ('FP16',) FP16 FP16
    softmax ('FP16',) FP32 FP32
    """

    def __init__(self, policy: PolicyLike, *, tracing: bool = False) -> None:
        self.policy, self.tracing = as_policy(policy), tracing
        if self.policy.device:
            raise ValueError(
                f"policy {self.policy.name!r} computes as the kernels of a GPU ({self.policy.device}), for models of "
                "PyTorch: ft.emulate; these networks take policies without a device"
            )
        if self.policy.has_cache:
            raise ValueError(
                "cache= is for the attention of PyTorch models: ft.emulate; the networks of the laboratory keep no "
                "keys and values"
            )
        self.step, self.trace, self.bad = 0, list[TraceRow](), None
        self.watch: Callable[[str, FloatArray], None] | None = None
        self.stream = RandomStream(self.policy.seed)
        self._decisions: dict[Any, tuple[Decision, Recipe | None]] = {}
        self._scalers: dict[Any, Scaler] = {}

    @contextmanager
    def options(self) -> Iterator[None]:
        """Enter the rounding mode of the policy."""
        mode: Any = self.policy.rounding
        nearest = mode is Rounding.TIES_TO_EVEN
        with nullcontext() if nearest else context(rounding=mode, seed=self.stream):
            yield

    def start_step(self, step: int) -> None:
        """Begin a training step."""
        self.step, self.bad = step, None

    def finish_step(self) -> None:
        """End a training step: the histories of scaling methods advance."""
        for scaler in self._scalers.values():
            scaler.finish_step()

    def decision(
        self, operation: str, module: str, formats: tuple[FloatFormat, ...], backward: bool = False
    ) -> tuple[Decision, Recipe | None]:
        """Return the decision of the policy, and the recipe of the operator, without a recipe for scaled products."""
        key = operation, module, backward, tuple(fmt.name for fmt in formats)
        if key not in self._decisions:
            decision = self.policy.decide(operation, module, backward).given(*formats)
            operator = f"{operation}_backward" if backward else operation
            out = decision.inside if backward else decision.result
            recipe = None if decision.scaling is not None else recipe_of(decision, operator, out)
            self._decisions[key] = decision, recipe
        return self._decisions[key]

    def forward(self, operation: str, module: str, *operands: Any, **options: Any) -> Any:
        """Return the result of an operator of `fs.operators`. Operands that are no FloatArrays are passed on.

        Parameters
        ----------
        operation : str
            The name of the operator.
        module : str
            The path of the layer.
        *operands : FloatArray
            The operands.
        **options
            Keywords of the operator.

        Returns
        -------
        FloatArray
        """
        formats = tuple(x.format for x in operands if isinstance(x, FloatArray))
        decision, recipe = self.decision(operation, module, formats)
        if recipe is None:
            result = self._scaled_forward(decision, module, *operands)
        else:
            result = getattr(operators, operation)(*operands, recipe=recipe, **options)
        self._note(operation, module, False, formats, decision, [result], 1)
        return result

    def backward(self, operation: str, module: str, *operands: Any, **options: Any) -> Any:
        """Return the gradients that `fs.operators` has for the backward pass of an operator.

        The gradients by activations are in the format of the decision. Those by weights are in the format in which the
        policy keeps them.

        Parameters
        ----------
        operation : str
            The name of the operator, without "_backward".
        module : str
            The path of the layer.
        *operands : FloatArray
            The gradient, then the operands of the backward pass.
        **options
            Keywords of the operator.

        Returns
        -------
        FloatArray or tuple of FloatArray
        """
        formats = tuple(x.format for x in operands if isinstance(x, FloatArray))
        decision, recipe = self.decision(operation, module, formats, True)
        found: Any
        if recipe is None:
            found = self._scaled_backward(decision, module, *operands)
        else:
            found = getattr(operators, f"{operation}_backward")(*operands, recipe=recipe, **options)
        several = isinstance(found, tuple)
        gradients = list(found) if several else [found]
        # only attention and residual_add have more than one activation
        activations = len(gradients) if operation in ("attention", "residual_add") else 1
        activations = 0 if operation == "embedding" else activations
        result = [
            None if each is None else self._gradient(each, decision, n < activations)
            for n, each in enumerate(gradients)
        ]
        self._note(operation, module, True, formats, decision, result, activations)
        return tuple(result) if several else result[0]

    def _gradient(self, gradient: FloatArray, decision: Decision, activation: bool) -> FloatArray:
        """Return a gradient in the format of its kind."""
        kept: Any = self.policy.weight_gradients
        fmt = decision.result if activation or kept is None else kept
        return gradient if gradient.format == fmt else convert(gradient, fmt)

    # -- scaled products -----------------------------------------------------------------------------------------------

    def _product(self, decision: Decision, module: str, a: Any, b: Any, product: str, **roles: Any) -> FloatArray:
        scaling: Any = decision.scaling
        key = scaling if isinstance(scaling, str) else id(scaling)
        if key not in self._scalers:
            self._scalers[key] = as_scaling(scaling).start(self.policy.seed)
        formats = {"input": decision.operands, "weight": decision.weight, "gradient": decision.gradient}
        of_a, of_b = roles["roles"]
        return self._scalers[key].matmul(
            a, b, formats=(formats[of_a], formats[of_b]), roles=(of_a, of_b), product=product, module=module,  # type: ignore[arg-type]
            step=self.step, accumulate=decision.accumulate,
        )  # fmt: skip

    def _scaled_forward(self, decision: Decision, module: str, x: FloatArray, weight: FloatArray, bias: Any) -> Any:
        """Return a scaled linear layer: the product in FP32, plus the bias in FP32, rounded to the result's format."""
        rows = x.reshape(-1, x.shape[-1])
        y = self._product(decision, module, rows, np.transpose(weight), "forward", roles=("input", "weight"))
        total: Any = y if bias is None else add(y, bias, format=FP32)
        return convert(total, decision.result).reshape(*x.shape[:-1], weight.shape[0])

    def _scaled_backward(self, decision: Decision, module: str, g: Any, x: Any, weight: Any) -> tuple[Any, Any, Any]:
        """Return the gradients of a scaled linear layer in FP32."""
        rows, flat = x.reshape(-1, x.shape[-1]), g.reshape(-1, g.shape[-1])
        by_x = self._product(decision, module, flat, weight, "input_gradient", roles=("gradient", "weight"))
        turned = np.transpose(flat)
        by_weight = self._product(decision, module, turned, rows, "weight_gradient", roles=("gradient", "input"))
        by_bias = sum_of(flat, 0, accumulate="fp32", format=FP32)
        return by_x.reshape(*x.shape), by_weight, by_bias

    # -- trace and overflow --------------------------------------------------------------------------------------------

    def _note(
        self, operation: str, module: str, backward: bool, formats: tuple[FloatFormat, ...], decision: Decision,
        results: list[Any], activations: int,
    ) -> None:  # fmt: skip
        """Add a row to the trace, keep the first operation with NaN or infinity, and pass the activations on."""
        if self.watch is not None:
            for n, result in enumerate(results[:activations]):
                end = f".gradient{n or ''}" if backward else ""
                self.watch(f"{module}.{operation}{end}", result)
        if self.tracing:
            compute = decision.gradient if backward else decision.operands
            names = tuple(fmt.name for fmt in formats)
            self.trace.append(TraceRow(module, operation, backward, names, f"{compute}", f"{decision.result}"))
        if self.bad is None:
            for result in results:
                if result is not None and has_special_values(result):
                    kind = "infinity" if np.isinf(result.values).any() else "NaN"
                    self.bad = BadValue(module, operation, backward, self.step, kind)  # type: ignore[assignment]
                    return
