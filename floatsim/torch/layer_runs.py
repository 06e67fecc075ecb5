"""Runs of a model with some layers in a low format, and all other layers as they are in PyTorch.

A chosen layer runs in an emulation of its own, or with quantized weights. Its tensors and its inputs are those of the
model; no weight is changed when a run ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from torch.utils._pytree import tree_leaves

from floatsim.analysis.tables import fits
from floatsim.arrays.call.random_sources import RandomGenerator
from floatsim.formats import FloatFormat, as_format
from floatsim.formats._validation import name_hint, nearest_name
from floatsim.quantization.gguf_types import GgufType
from floatsim.quantization.integer import IntegerFormat
from floatsim.quantization.lookup import LookupFormat
from floatsim.quantization.scheme import Scheme
from floatsim.quantization.whole_model import NamedScheme, as_model_scheme, quantize_model
from floatsim.torch.emulation import emulate, emulate_part
from floatsim.torch.modules import parameter_names, paths
from floatsim.torch.tensors import is_float
from floatsim.training import POLICIES, Gemm, Op, Policy, as_policy

__all__ = ["MEASURES", "Candidate", "CandidateLike", "LayerRuns", "Outcome", "as_candidate", "as_candidates"]

CandidateLike: TypeAlias = "Policy | Op | Gemm | Scheme | GgufType | FloatFormat | IntegerFormat | LookupFormat | str"

# -- what a layer runs in ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Candidate:
    """What chosen layers run in: a policy for their operations, or a scheme for their weights.

    Parameters
    ----------
    name : str
        The name in tables.
    policy : Policy, optional
        The formats of operations and tensors.
    scheme : NamedScheme, optional
        The quantization of weights. The arithmetic is PyTorch's.
    """

    name: str
    policy: Policy | None = None
    scheme: NamedScheme | None = None


def as_candidate(x: CandidateLike, name: str = "", argument: str = "formats") -> Candidate:
    """Return what `x` is or names, for the layers of a model.

    Parameters
    ----------
    x : Policy, Op, Gemm, format, Scheme, GgufType or str
        As in `ft.sensitivity`.
    name : str
        The name in tables. Default: that of x.
    argument : str
        The name of the argument, for messages.

    Returns
    -------
    Candidate

    Raises
    ------
    TypeError, ValueError
        For other objects and unknown names. The message has the nearest match.

    Examples
    --------
    >>> as_candidate("e4m3").policy.default, as_candidate("q4_k").scheme.text
    (Op(E4M3), 'q4_k')
    """
    native = POLICIES["native"]
    if isinstance(x, Policy):
        return Candidate(name or x.name or "policy", x)
    if isinstance(x, Op):
        return Candidate(name or str(x), replace(native, default=x, name=""))
    if isinstance(x, Gemm):
        return Candidate(name or str(x), replace(native, modules={"*": x}, name=""))
    if isinstance(x, str):
        if (policy := _named_policy(x)) is not None:
            return Candidate(name or x, policy)
        x = _named_format(x) or x
    if isinstance(x, FloatFormat):
        return Candidate(name or x.name, Policy(Op(x), accumulate="fp32"))
    try:
        scheme = as_model_scheme(x, argument)
    except ValueError as error:
        near = nearest_name(x, POLICIES)
        hint = f" Policies: did you mean {near!r}?" if near is not None else ""
        raise ValueError(f"{error}; policies are {', '.join(POLICIES)}.{hint}") from None
    return Candidate(name or scheme.text, scheme=scheme)


def _named_policy(name: str) -> Policy | None:
    try:
        return as_policy(name)
    except ValueError:
        if "+" in name:
            raise
        return None


def _named_format(name: str) -> FloatFormat | None:
    try:
        return as_format(name)
    except (TypeError, ValueError):
        return None


def as_candidates(given: Any, argument: str = "formats") -> list[Candidate]:
    """Return candidates as a list, from one, several, or a mapping of names to them. Names are unique."""
    if isinstance(given, Mapping):
        found = [as_candidate(x, str(name), f"{argument}[{name!r}]") for name, x in given.items()]
    elif isinstance(given, list | tuple):
        found = [as_candidate(x, argument=argument) for x in given]
    else:
        found = [as_candidate(given, argument=argument)]
    if not found:
        raise ValueError(
            f"{argument} is empty; give a format, a scheme or a policy, such as 'e4m3', 'int4' or 'te-fp8'"
        )
    names = [each.name for each in found]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"{argument}: two have the name {twice!r}; give a mapping of names to them")
    return found


# -- what a run costs --------------------------------------------------------------------------------------------------


def _tensors(output: Any) -> list[torch.Tensor]:
    return [x.detach() for x in tree_leaves(output) if isinstance(x, torch.Tensor) and x.is_floating_point()]


def _norm(outputs: list[Any], references: list[Any]) -> float:
    """Return the Euclidean norm of the difference of all outputs, relative to that of the references."""
    difference = signal = 0.0
    for output, reference in zip(outputs, references, strict=True):
        for x, exact in zip(_tensors(output), _tensors(reference), strict=True):
            wide = exact.double()
            difference += float(((x.double() - wide) ** 2).sum())
            signal += float((wide**2).sum())
    if not math.isfinite(difference):
        return math.inf
    return math.sqrt(difference / signal) if signal else math.inf if difference else 0.0


def _divergence(outputs: list[Any], references: list[Any]) -> float:
    """Return the mean Kullback-Leibler divergence of softmax(output) from softmax(reference), in nats."""
    total, count = 0.0, 0
    for output, reference in zip(outputs, references, strict=True):
        x, exact = _tensors(output)[0].double(), _tensors(reference)[0].double()
        p, q = torch.log_softmax(exact, -1), torch.log_softmax(x, -1)
        total += float((p.exp() * (p - q)).sum())
        count += exact.numel() // exact.shape[-1]
    return max(total / count, 0.0) if math.isfinite(total) else math.inf


MEASURES: dict[str, tuple[Callable[[list[Any], list[Any]], float], str]] = {
    "norm": (_norm, "relative error of the output"),
    "kl": (_divergence, "Kullback-Leibler divergence of the output, in nats"),
}
"""Name to function of outputs and reference outputs, and its label."""


def _measure(given: Any) -> tuple[Callable[[list[Any], list[Any]], float], str]:
    """Return the function that measures a run, and its label."""
    if isinstance(given, str):
        if given not in MEASURES:
            raise ValueError(f"error={given!r} is not known; {name_hint(given, MEASURES)}, or a function")
        return MEASURES[given]
    if not callable(given):
        raise TypeError(f"error must be a name or a function of output and reference output, not {given!r}")

    def mean(outputs: list[Any], references: list[Any]) -> float:
        found = [float(given(*both)) for both in zip(outputs, references, strict=True)]
        if any(x < 0 for x in found):
            raise ValueError(f"error returned {min(found)}; it must be 0 or more")
        value = float(np.mean(found))
        return math.inf if math.isnan(value) else value

    return mean, getattr(given, "__name__", "error").strip("<>").replace("_", " ")


@dataclass(frozen=True)
class Outcome:
    """One run: its error, and whether an operation overflowed.

    >>> Outcome(0.25, False).error
    0.25
    """

    error: float
    overflowed: bool


# -- runs --------------------------------------------------------------------------------------------------------------


def _batches(inputs: Any) -> list[Callable[[torch.nn.Module], Any]]:
    """Return functions that call a model with each batch of inputs."""
    listed = inputs if isinstance(inputs, list) else [inputs]
    if not listed:
        raise ValueError("inputs is an empty list; give a batch, or a list of batches")
    return [_call(each) for each in listed]


def _call(given: Any) -> Callable[[torch.nn.Module], Any]:
    if isinstance(given, torch.Tensor):
        return lambda model: model(given)
    if isinstance(given, tuple):
        return lambda model: model(*given)
    if isinstance(given, Mapping):
        return lambda model: model(**given)
    if callable(given):
        return given  # type: ignore[no-any-return]
    raise TypeError(
        "inputs must be a tensor, a tuple of arguments, a mapping of keywords, a function of the model, or a list of "
        f"these, not {type(given).__name__}"
    )


class LayerRuns:
    """A model, its layers, and runs with some of them in a low format.

    Parameters
    ----------
    model : torch.nn.Module
        The model.
    inputs : tensor, tuple, mapping, function or list
        One batch, or a list: the argument, the arguments, the keywords, or a function of the model.
    layers : str or iterable of str, optional
        Patterns of paths. A layer inside a chosen one belongs to it. The model itself is chosen by the name of its
        class only. Default: the modules with weights of their own.
    error : str or function
        "norm", "kl", or a function of an output and a reference output.

    Attributes
    ----------
    layers : dict of str to Module
        The chosen layers in the order of the model, only those that run.
    runs : int
        The runs so far, without the one of the reference.
    """

    def __init__(self, model: Any, inputs: Any, layers: Any = None, error: Any = "norm") -> None:
        if not isinstance(model, torch.nn.Module):
            raise TypeError(f"model must be a torch.nn.Module, not {type(model).__name__}")
        self.model, self.runs = model, 0
        self.measure, self.label = _measure(error)
        self._calls = _batches(inputs)
        self._made: dict[tuple[str, str], dict[str, torch.Tensor]] = {}
        chosen = self._chosen(layers)
        self._names = parameter_names(model)
        called: set[str] = set()
        self.reference = self._outputs({path: _noting(path, called) for path in chosen})
        if not any(_tensors(each) for each in self.reference):
            raise ValueError("the model returned no floating-point tensor for these inputs")
        idle = [path for path in chosen if path not in called]
        if layers is not None and idle:
            ran = ", ".join(path for path in chosen if path in called) or "none of the chosen ones"
            raise ValueError(f"layers: {', '.join(idle)} did not run for these inputs; those that ran: {ran}")
        self.layers = {path: layer for path, layer in chosen.items() if path in called}
        if not self.layers:
            raise ValueError("no layer with weights of its own ran for these inputs; layers= chooses others")

    def _chosen(self, layers: Any) -> dict[str, torch.nn.Module]:
        """Return the chosen layers, none of which is inside another one."""
        patterns = None if layers is None else [layers] if isinstance(layers, str) else list(layers)
        known = dict(paths(self.model))
        root = next(iter(known))
        for pattern in patterns or ():
            if not isinstance(pattern, str) or not fits(pattern, known):
                raise ValueError(f"layers: no module fits {pattern!r}; {name_hint(pattern, known)}")
        found: dict[str, torch.nn.Module] = {}
        for path, module in known.items():
            if any(outer == root or path.startswith(f"{outer}.") for outer in found):
                continue
            if patterns is None:
                wanted = any(is_float(each) for each in module.parameters(recurse=False))
            else:
                wanted = any(pattern == path or (path != root and fits(pattern, [path])) for pattern in patterns)
            if wanted:
                found[path] = module
        return found

    # -- one run -------------------------------------------------------------------------------------------------------

    def run(self, low: Collection[str], candidate: Candidate) -> Outcome:
        """Run the model with these layers in the low format, and compare with the reference.

        Parameters
        ----------
        low : collection of str
            The paths of layers.
        candidate : Candidate
            What they run in.
        """
        self.runs += 1
        overflowed: list[bool] = []
        order = list(self.layers)
        lowered = {path: self._lowering(path, candidate, order.index(path), overflowed) for path in low}
        outputs = self._outputs(lowered)
        return Outcome(self.measure(outputs, self.reference), any(overflowed))

    def whole(self, candidate: Candidate) -> Outcome:
        """Run the whole model in the low format, also what lies between the layers, and compare with the reference."""
        if candidate.policy is None:
            return self.run([path for path in self.layers if self.acts(path, candidate)], candidate)
        self.runs += 1
        overflowed: list[bool] = []
        with _kept_weights(self.model, candidate.policy):
            outputs = self._outputs({}, lambda: _emulated(candidate.policy, self.model, overflowed))
        return Outcome(self.measure(outputs, self.reference), any(overflowed))

    def acts(self, path: str, candidate: Candidate) -> bool:
        """Return whether a candidate changes a layer: a scheme needs weights with two axes."""
        return candidate.scheme is None or bool(self._matrices(path))

    def check(self, candidate: Candidate, given: bool) -> None:
        """Raise a ValueError if a candidate cannot act on a chosen layer, with the layers on which it can."""
        able = [path for path in self.layers if self.acts(path, candidate)]
        idle = [path for path in self.layers if path not in able]
        listed = ", ".join(able) or "none"
        if (given and idle) or not able:
            raise ValueError(
                f"formats: {candidate.name} quantizes weights with two axes, which {', '.join(idle)} lacks; layers "
                f"on which it can act: {listed}"
            )
        scheme = candidate.scheme
        for path in able if scheme is not None else ():
            for name, x in self._matrices(path).items():
                if scheme is not None and (why := scheme.refusal(tuple(x.shape))) is not None:
                    raise ValueError(f"formats: {candidate.name} cannot act on {path}.{name} {tuple(x.shape)}: {why}")

    def _matrices(self, path: str) -> dict[str, torch.Tensor]:
        parameters = self.layers[path].named_parameters()
        return {name: x for name, x in parameters if is_float(x) and x.ndim > 1}

    def _outputs(
        self, wrappers: Mapping[str, Callable[..., Any]], around: Callable[[], Any] | None = None
    ) -> list[Any]:
        """Return the outputs for all batches, with wrappers around the calls of some layers."""
        modules = dict(paths(self.model))
        state = {name: x.detach().clone() for name, x in self.model.named_buffers()}
        fast = torch.backends.mha.get_fastpath_enabled()
        with ExitStack() as stack:
            stack.callback(torch.backends.mha.set_fastpath_enabled, fast)
            torch.backends.mha.set_fastpath_enabled(False)  # it would call no layer
            stack.enter_context(torch.random.fork_rng(devices=[]))
            stack.enter_context(torch.no_grad())
            stack.callback(self._restore, state)
            for path, wrapper in wrappers.items():
                stack.enter_context(_wrapped(modules[path], wrapper))
            torch.manual_seed(0)  # dropout draws the same numbers in all runs
            if around is not None:
                stack.enter_context(around())
            return [call(self.model) for call in self._calls]

    def _restore(self, state: dict[str, torch.Tensor]) -> None:
        for name, x in self.model.named_buffers():
            if name in state and state[name].shape == x.shape:
                x.copy_(state[name])

    def _lowering(self, path: str, candidate: Candidate, index: int, overflowed: list[bool]) -> Callable[..., Any]:
        """Return a function that calls a layer in the low format."""
        layer = self.layers[path]
        if candidate.policy is None:
            assert candidate.scheme is not None
            matrices, scheme = self._matrices(path), candidate.scheme
            if (path, candidate.name) not in self._made:
                self._made[path, candidate.name] = quantize_model(matrices, scheme.of).state_dict()
            return _with(lambda: _swapped(matrices, self._made[path, candidate.name]))
        policy = self._local(candidate.policy, path, index)

        @contextmanager
        def context() -> Iterator[None]:
            with _kept_weights(layer, policy), _emulated(policy, layer, overflowed, whole=False):
                yield

        return _with(context)

    def _local(self, policy: Policy, path: str, index: int) -> Policy:
        """Return a policy for one layer: the keys of modules and weights are its paths inside of the layer."""
        layer = self.layers[path]
        root = "" if layer is self.model else f"{path}."
        inside = dict(self._inside(layer, path, root))
        modules = {
            local: self._local(value, path, index) if isinstance(value, Policy) else value
            for local, value in _localized(policy.modules, path, inside).items()
        }
        cache: Any = policy.cache
        if isinstance(cache, Mapping):
            cache = _localized(cache, path, inside) or None
        at_use: Any = policy.weights_at_use
        if isinstance(at_use, Mapping):
            mine = {name: self._names[id(x)] for name, x in layer.named_parameters()}
            at_use = {name: policy.weight_at_use(*names) for name, names in mine.items()}
        seed = _seed_of_layer(policy.seed, index)
        return replace(policy, modules=modules, weights_at_use=at_use, cache=cache, seed=seed, name="")

    @staticmethod
    def _inside(layer: torch.nn.Module, path: str, root: str) -> Iterable[tuple[str, str]]:
        for local, _ in layer.named_modules():
            yield (local or type(layer).__name__), (root + local if local else path)


def _localized(rules: Mapping[str, Any], path: str, inside: Mapping[str, str]) -> dict[str, Any]:
    """Return rules for modules by their paths inside of a layer, the first that fits, for rules of the whole model."""
    parts = path.split(".")
    around = [".".join(parts[: n + 1]) for n in range(len(parts))]
    found: dict[str, Any] = {}
    for pattern, value in rules.items():
        if fits(pattern, around):
            found.setdefault("*", value)
            break
        found |= {local: value for local, full in inside.items() if fits(pattern, [full]) and local not in found}
    return found


def _seed_of_layer(seed: int | RandomGenerator, index: int) -> int | RandomGenerator:
    """Return another seed for each layer. Zero, which a register never leaves, becomes one."""
    if isinstance(seed, RandomGenerator):
        generator: Any = seed  # a data class
        changed: RandomGenerator = replace(generator, seed=(seed.seed + index) % (1 << seed.source.width) or 1)
        return changed
    return (seed + index) & ((1 << 64) - 1)


def _with(context: Callable[[], Any]) -> Callable[..., Any]:
    """Return a wrapper that calls a layer in a context."""

    def wrapper(call: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
        with context():
            return call(*args, **keywords)

    return wrapper


def _noting(path: str, called: set[str]) -> Callable[..., Any]:
    """Return a wrapper that notes that a layer is called."""

    def wrapper(call: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
        called.add(path)
        return call(*args, **keywords)

    return wrapper


@contextmanager
def _wrapped(layer: torch.nn.Module, wrapper: Callable[..., Any]) -> Iterator[None]:
    """Let a wrapper call the layer in a block: its forward pass and its hooks."""

    def call(*args: Any, **keywords: Any) -> Any:
        return type(layer)._call_impl(layer, *args, **keywords)

    layer.__dict__["_call_impl"] = lambda *args, **keywords: wrapper(call, *args, **keywords)
    try:
        yield
    finally:
        del layer.__dict__["_call_impl"]


@contextmanager
def _emulated(policy: Any, module: torch.nn.Module, overflowed: list[bool], whole: bool = True) -> Iterator[None]:
    """Run a block under a policy, and note whether an operation overflowed."""
    with emulate(policy, module, count=0) if whole else emulate_part(policy, module) as run:
        yield
    overflowed.append(run.first("overflow") is not None)


@contextmanager
def _kept_weights(module: torch.nn.Module, policy: Policy) -> Iterator[None]:
    """Give a module its weights back after a block, if the policy stores them in another format."""
    kept = [] if policy.weights is None else [(x, x.detach().clone()) for x in module.parameters()]
    try:
        yield
    finally:
        with torch.no_grad():
            for x, before in kept:
                x.data.copy_(before)


@contextmanager
def _swapped(parameters: Mapping[str, torch.Tensor], made: Mapping[str, torch.Tensor]) -> Iterator[None]:
    """Put other numbers in the place of parameters in a block."""
    before = {name: x.data for name, x in parameters.items()}
    try:
        for name, x in parameters.items():
            x.data = made[name]
        yield
    finally:
        for name, x in parameters.items():
            x.data = before[name]
