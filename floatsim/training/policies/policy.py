"""Policies: the format of each operation, tensor and sum of a training run, as immutable data.

A policy is resolved by one method, `Policy.decide(operation, module, backward)`. It returns a `Decision`: the formats
of the operands, of the intermediates and of the result, the accumulation of the sums, and the scaling method. Both
front ends, the networks of the laboratory and the emulation of PyTorch models, run what a decision says.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from floatsim.accumulation import AccumulationLike, as_accumulation, parse
from floatsim.accumulation.gpu_libraries import known_device
from floatsim.analysis.tables import fits
from floatsim.arrays.call.random_sources import RandomGenerator
from floatsim.arrays.call.random_stream import checked_seed
from floatsim.formats import FP32, FP64, FloatFormat, FormatLike, as_format
from floatsim.formats._validation import as_flag, name_hint
from floatsim.formats.rounding import Rounding, RoundingLike, as_member
from floatsim.formats.value_sets import contains
from floatsim.quantization.scheme import SchemeLike
from floatsim.training.policies.arithmetic import ROUNDINGS
from floatsim.training.policies.caches import Cache, CacheLike, as_cache
from floatsim.training.policies.operations import known_names, matches, operation_names, operation_of
from floatsim.training.policies.rules import (
    SAME,
    WIDEST,
    Gemm,
    Op,
    Record,
    RecordLike,
    ScalingLike,
    as_record,
    checked_accumulation,
    checked_format,
    set_fields,
)  # fmt: skip
from floatsim.training.policies.storage import Storage, as_storage

__all__ = ["Decision", "Policy", "widest"]

# -- the decision ------------------------------------------------------------------------------------------------------


def widest(formats: tuple[FloatFormat, ...]) -> FloatFormat:
    """Return the format of `formats` that contains all of them, else FP32, else FP64, as PyTorch promotes types.

    >>> import floatsim as fs
    >>> widest((fs.FP16, fs.FP32)).name, widest((fs.FP16, fs.BF16)).name
    ('FP32', 'FP32')
    """
    for candidate in (*formats, FP32):
        if all(each == candidate or contains(candidate, each) for each in formats):
            return candidate
    return FP64


@dataclass(frozen=True)
class Decision:
    """The formats of one operation, forward or backward.

    Attributes
    ----------
    operation : str
        The name of the operation.
    operands : FloatFormat or str
        The format of the operands; "same" or "widest".
    weight : FloatFormat or str
        The format of the second operand of a matrix product.
    gradient : FloatFormat or str
        The format of the gradient operand of a backward pass.
    inside : FloatFormat or str
        The format of the intermediates.
    accumulate : description
        The accumulation of every sum. In a text, "same" stands for `inside`, in matrix products for `operands`.
    result : FloatFormat or str
        The format of the result; in a backward pass that of the gradients by the operands.
    scaling : str, Scaling or None
        The scaling method of a matrix product.
    source : str
        The rule that decided.
    of_fp64 : Decision, optional
        The decision if an operand is in FP64, for policies that leave it as it is. Default: this one.
    """

    operation: str
    operands: FloatFormat | str
    weight: FloatFormat | str
    gradient: FloatFormat | str
    inside: FloatFormat | str
    accumulate: AccumulationLike
    result: FloatFormat | str
    scaling: ScalingLike | None
    source: str
    of_fp64: Decision | None = None

    def for_formats(self, *formats: FormatLike) -> Decision:
        """Return the decision for operands of these formats: `of_fp64` or this one.

        Examples
        --------
        >>> import floatsim as fs
        >>> decision = fs.training.as_policy("autocast-bf16").decide("mm")
        >>> decision.for_formats("fp32", "fp32").operands.name, decision.for_formats("fp64", "fp64").operands
        ('BF16', 'widest')
        """
        if self.of_fp64 is None or FP64 not in map(as_format, formats):
            return self
        return self.of_fp64

    def given(self, *formats: FormatLike) -> Decision:
        """Return the decision for operands of these formats, with a format in the place of "same" and "widest".

        Parameters
        ----------
        *formats : format
            The formats of the operands as they are given.

        Returns
        -------
        Decision

        Examples
        --------
        >>> import floatsim as fs
        >>> fs.training.as_policy("autocast-bf16").decide("residual_add").given("bf16", "fp32")
        Decision(residual_add: operands FP32, sums fp32, result FP32, by the default)
        """
        own = tuple(as_format(each) for each in formats)
        decision = self.for_formats(*own)
        named = {SAME: own[0], WIDEST: widest(own)}
        found: dict[str, Any] = {
            name: named.get(value, value) if isinstance(value, str) else value
            for name in ("operands", "weight", "gradient", "result", "inside")
            for value in [getattr(decision, name)]
        }
        return replace(decision, **found)

    def __repr__(self) -> str:
        parts = [f"operands {self.operands}"]
        parts += [f"weights {self.weight}"] if self.weight != self.operands else []
        parts += [f"gradients {self.gradient}"] if self.gradient != self.operands else []
        parts += [f"sums {self.accumulate}"]
        parts += [f"scaling {self.scaling}"] if self.scaling is not None else []
        return f"Decision({self.operation}: {', '.join(parts)}, result {self.result}, by {self.source})"


# -- the policy --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Policy:
    """The format of each operation, tensor and sum of a training run.

    Parameters
    ----------
    default : format or Op
        The formats of operations without a rule. A format stands for `Op(format)`.
    accumulate : description
        The accumulation of sums without a rule, such as "fp32". In a text, "same" stands for the format of the
        intermediates, in matrix products for that of the operands.
    rules : mapping of str to Op, Gemm or format
        The formats of operations. A key is a name of `fs.training.OPERATIONS` or of PyTorch, a pattern ("conv*"), or
        alternatives ("softmax|layer_norm"). A rule that has the operation's own name takes precedence, then the first
        rule that has a synonym.
    modules : mapping of str to Op, Gemm, format or Policy
        The formats of layers. A key is the path of a module, such as "lm_head", or a pattern, such as "*.attention". It
        holds for the modules inside, too. The first key that fits takes precedence over all rules. A `Gemm` is for the
        matrix products of the layer only.
    weights : format or scheme, optional
        How weights are stored. "fp32" with operations in FP16 are FP32 master weights. Default: as they are given.
    weights_at_use : format, scheme or mapping, optional
        Weights are rounded to it before each step. A format or a scheme is for the weights of linear and convolution
        layers. A mapping of patterns to formats, schemes or None (as stored) names parameters: a key is the path of a
        parameter, such as "blocks.*.up.weight", or the class of its layer with its name, such as "LayerNorm.*"; the
        first key that fits holds. A layer of `modules` is exempt, unless its value is a Policy with a `weights_at_use`
        of its own. Default: all as stored.
    activations : format, optional
        The format of the input of a network, and of the results of operations whose rule has no `result`.
    gradients : format, optional
        The format of the results of backward passes. Default: that of the result of the forward pass.
    weight_gradients : format, optional
        The format in which gradients of weights are kept, added and given to the optimizer. Default: that of the stored
        weights.
    state : format or scheme, optional
        How the optimizer's moments are stored. Default: as the weights.
    cache : format, scheme, Cache or mapping, optional
        How the keys and values of attention are stored before they are used, for `ft.emulate`: "e4m3", "int8", a scheme
        whose scales are those of one token, or a `Cache` with rotations or calibrated scales. A mapping of patterns to
        these or None names modules, the first key that fits holds. A Policy in `modules` has its own. Default: as they
        are.
    casts_fp64 : bool
        Whether `rules` round operands in FP64. PyTorch's autocast does not: with such an operand an operation runs as
        those without a rule.
    rounding : Rounding or str
        The rounding mode of operations: "ties_to_even", "stochastic" ...
    weight_rounding : Rounding or str
        The rounding mode of the update of stored weights.
    kahan : bool
        Whether the optimizer adds updates to stored weights by Kahan's compensated addition, with one more tensor in
        the format of each weight. For a `weight_rounding` to nearest and weights in a format.
    update : str
        Where the optimizer rounds: "line", "operation" or "step", as in
        `floatsim.training.policies.arithmetic.Arithmetic`.
    loss_scale : float or str
        The loss scaling that belongs to the policy: a number, or "dynamic".
    seed : int or generator
        The seed of all random draws: an integer, or `fs.Philox`, `fs.Threefry` or `fs.Lfsr`.
    device : str
        The GPU whose kernels carry out the operations, for `ft.emulate`: "h200". Their orders of sums, functions and
        casts replace `accumulate`. Default: none.
    name, source, evidence : str
        The name for tables; where the policy comes from; how it was verified.

    Raises
    ------
    TypeError, ValueError
        For unknown formats, operations, accumulations and rounding modes. The message has the nearest match.

    Examples
    --------
    >>> import floatsim as fs
    >>> from floatsim.training import Gemm, Op, Policy
    >>> policy = Policy(
    ...     "bf16", accumulate="fp32",
    ...     rules={"mm|bmm": Gemm("e4m3", backward="e5m2", accumulate="hopper"),
    ...            "softmax|layer_norm": Op("fp32", result="bf16")},
    ...     modules={"lm_head": "fp32"}, seed=1,
    ... )
    >>> policy.decide("linear")
    Decision(linear: operands E4M3, gradients E5M2, sums hopper, result BF16, by the rule of mm|bmm)
    >>> policy.decide("linear", "lm_head")
    Decision(linear: operands FP32, sums fp32, result FP32, by the rule of module lm_head)
    """

    default: RecordLike = "fp32"
    accumulate: AccumulationLike = "sequential(same)"
    rules: Mapping[str, RecordLike] = field(default_factory=dict)
    modules: Mapping[str, RecordLike | Policy] = field(default_factory=dict)
    weights: SchemeLike | None = None
    weights_at_use: SchemeLike | Mapping[str, SchemeLike | None] | None = None
    activations: FormatLike | None = None
    gradients: FormatLike | None = None
    weight_gradients: FormatLike | None = None
    state: SchemeLike | None = None
    cache: CacheLike | Mapping[str, CacheLike | None] | None = None
    casts_fp64: bool = True
    rounding: RoundingLike = "ties_to_even"
    weight_rounding: RoundingLike = "ties_to_even"
    kahan: bool = False
    update: str = "line"
    loss_scale: float | str = 1.0
    seed: int | RandomGenerator = 0
    device: str = ""
    name: str = ""
    source: str = ""
    evidence: str = ""

    def __post_init__(self) -> None:
        rules = {pattern: _rule(pattern, value) for pattern, value in self.rules.items()}
        modules = {
            _pattern(path): value if isinstance(value, Policy) else as_record(value, f"modules[{path!r}]")
            for path, value in self.modules.items()
        }
        set_fields(
            self,
            default=as_record(self.default, "default"),
            accumulate=checked_accumulation(self.accumulate, "accumulate"),
            rules=MappingProxyType(rules),
            modules=MappingProxyType(modules),
            rounding=as_member(Rounding, self.rounding, "rounding"),
            weight_rounding=as_member(Rounding, self.weight_rounding, "weight_rounding"),
            loss_scale=_loss_scale(self.loss_scale),
            seed=checked_seed(self.seed),
            device=self.device and known_device(self.device),
        )
        if self.update not in ROUNDINGS:
            raise ValueError(f"update={self.update!r} is not known; {name_hint(self.update, ROUNDINGS)}")
        for name in ("weights", "state"):
            set_fields(self, **{name: as_storage(getattr(self, name), name)})
        as_flag(self.casts_fp64, "casts_fp64")
        if as_flag(self.kahan, "kahan"):
            _check_kahan(self.weight_rounding, self.weights)
        set_fields(self, weights_at_use=_at_use(self.weights_at_use), cache=as_cache(self.cache))
        for pattern in self.cache if isinstance(self.cache, Mapping) else ():
            _pattern(pattern)
        for name in ("activations", "gradients", "weight_gradients"):
            given = getattr(self, name)
            set_fields(self, **{name: None if given is None else checked_format(given, name)})

    def decide(self, operation: str, module: str = "", backward: bool = False) -> Decision:
        """Return the formats of an operation.

        Parameters
        ----------
        operation : str
            A name of `fs.training.OPERATIONS`, or of PyTorch.
        module : str
            The path of the layer, such as "layers.0.linear".
        backward : bool
            Whether the decision is for the backward pass of the operation.

        Returns
        -------
        Decision

        Raises
        ------
        ValueError
            For an unknown operation. The message has the nearest match.

        Examples
        --------
        >>> import floatsim as fs
        >>> fs.training.as_policy("te-fp8").decide("linear", "layer0", backward=True).gradient.name
        'E5M2'
        """
        product = operation_of(operation).product
        for pattern, value in self.modules.items():
            if _inside(module, pattern) and (product or not isinstance(value, Gemm)):
                if isinstance(value, Policy):
                    return value.decide(operation, module, backward)
                return self._decision(operation, value, f"the rule of module {pattern}", backward, product)
        decision = self._decision(operation, *self._rule(operation, product), backward, product)
        if self.casts_fp64:
            return decision
        uncast = self._decision(operation, self.default, "the default, for FP64", backward, product)
        return replace(decision, of_fp64=uncast)

    def weight_at_use(self, paths: Sequence[str], kinds: Sequence[str]) -> Storage | None:
        """Return how a parameter is rounded before each step, by `weights_at_use`; None if it stays as stored.

        Parameters
        ----------
        paths : sequence of str
            The paths of the parameter. It has several if layers share it.
        kinds : sequence of str
            The classes of its layers, base classes included, each with the name of the parameter: "Linear.weight".

        Returns
        -------
        FloatFormat, Scheme or None

        Examples
        --------
        >>> import floatsim as fs
        >>> policy = fs.training.Policy("fp32", weights_at_use="int4")
        >>> policy.weight_at_use(["head.bias"], ["Linear.bias"]) is None
        True
        >>> policy.weight_at_use(["head.weight"], ["Linear.weight"]).format.name
        'INT4'
        """
        for pattern, value in self.modules.items():
            if any(_inside(path, pattern) for path in paths):
                return value.weight_at_use(paths, kinds) if isinstance(value, Policy) else None
        given: Any = self.weights_at_use
        rules = given if isinstance(given, Mapping) else {_NOT_AT_USE: None, _AT_USE: given}
        for pattern, storage in rules.items():
            if fits(pattern, (*paths, *kinds)):
                return storage  # type: ignore[no-any-return]
        return None

    def cache_of(self, module: str) -> Cache | None:
        """Return how the keys and values of attention in a module are stored; None if they stay as they are.

        Parameters
        ----------
        module : str
            The path of the module.

        Examples
        --------
        >>> import floatsim as fs
        >>> policy = fs.training.Policy(cache={"layers.0": None, "layers.*": "e4m3"})
        >>> policy.cache_of("layers.0.attention"), policy.cache_of("layers.1.attention")
        (None, Cache(E4M3))
        """
        for pattern, value in self.modules.items():
            if isinstance(value, Policy) and _inside(module, pattern):
                return value.cache_of(module)
        rules: Any = self.cache if isinstance(self.cache, Mapping) else {"*": self.cache}
        return next((cache for pattern, cache in rules.items() if _inside(module, pattern)), None)

    @property
    def has_cache(self) -> bool:
        """Whether keys and values are stored in another form in some module.

        >>> Policy(modules={"layers.0": Policy(cache="e4m3")}).has_cache
        True
        """
        inner = (each.has_cache for each in self.modules.values() if isinstance(each, Policy))
        own = self.cache.values() if isinstance(self.cache, Mapping) else [self.cache]
        return any(each is not None for each in own) or any(inner)

    def _rule(self, operation: str, product: bool) -> tuple[Any, str]:
        """Return the record for an operation outside the modules with a record, and the text of its rule."""
        names = operation_names(operation)
        for candidates in (names[:1], names[1:]):
            for pattern, value in self.rules.items():
                if matches(pattern, candidates) and (product or not isinstance(value, Gemm)):
                    return value, f"the rule of {pattern if len(pattern) < 30 else names[0]}"
        return self.default, "the default"

    def _decision(self, operation: str, record: Any, source: str, backward: bool, product: bool) -> Decision:
        operands: Any
        weight: Any
        gradient: Any
        result: Any
        inside: Any = None
        if isinstance(record, Gemm):
            operands, result, scaling = record.format, self._result_of_products(record.format), record.scaling
            weight, gradient = record.weight or operands, record.backward or operands
            accumulate = (record.backward_accumulate if backward else None) or record.accumulate
        else:
            weight = gradient = result = operands = record.compute
            inside, accumulate, scaling = record.inside, record.accumulate, None
        accumulate = accumulate or self.accumulate
        if inside is None:
            inside = _result_format(accumulate, operands) if product else operands
        result = record.result or self.activations or result
        if backward:
            result = self.gradients or result
        return Decision(operation, operands, weight, gradient, inside, accumulate, result, scaling, source)

    def _result_of_products(self, operands: Any) -> Any:
        """Return the format of the result of a `Gemm`: that of operations without a rule."""
        default: Any = self.default
        return (default.result or default.compute) if isinstance(default, Op) else operands

    def check_weights(self, names: Collection[str]) -> None:
        """Raise a ValueError for a key of the mapping `weights_at_use` that fits no parameter, with the nearest one.

        Parameters
        ----------
        names : collection of str
            The paths and kinds of all parameters, as in `weight_at_use`.

        Examples
        --------
        >>> import floatsim as fs
        >>> fs.training.Policy(weights_at_use={"haed.weight": "int4"}).check_weights(["head.weight", "head.bias"])
        Traceback (most recent call last):
        ValueError: weights_at_use: no parameter fits 'haed.weight'; did you mean 'head.weight'?
        """
        if isinstance(self.weights_at_use, Mapping):
            for pattern in self.weights_at_use:
                if not fits(pattern, names):
                    near = name_hint(pattern, list(dict.fromkeys(names)))
                    raise ValueError(f"weights_at_use: no parameter fits {pattern!r}; {near}")

    def check_modules(self, paths: Any) -> None:
        """Raise a ValueError for a key of `modules` or of the mapping `cache` that fits no path, with the nearest one.

        Parameters
        ----------
        paths : iterable of str
            The paths of all modules of a network.

        Examples
        --------
        >>> import floatsim as fs
        >>> fs.training.Policy(modules={"haed": "fp32"}).check_modules(["layer0", "head"])
        Traceback (most recent call last):
        ValueError: modules: no module fits 'haed'; did you mean 'head'?
        """
        known = list(paths)
        cache = self.cache if isinstance(self.cache, Mapping) else {}
        for name, patterns in (("modules", self.modules), ("cache", cache)):
            for pattern in patterns:
                if not any(_inside(path, pattern) for path in known):
                    raise ValueError(f"{name}: no module fits {pattern!r}; {name_hint(pattern, known)}")

    def __repr__(self) -> str:
        given = [f"{name}={getattr(self, name)}" for name in ("weights", "weights_at_use", "activations", "gradients",
                 "weight_gradients", "state", "cache") if getattr(self, name) is not None]  # fmt: skip
        parts = [repr(self.name)] if self.name else []
        parts += [f"default={self.default}", f"accumulate={self.accumulate}", *given]
        parts += [f"{len(each)} {what}" for what, each in (("rules", self.rules), ("modules", self.modules)) if each]
        return f"Policy({', '.join(parts)})"


_NOT_AT_USE = "Embedding.*|EmbeddingBag.*"
"""Parameters that `weights_at_use` leaves alone unless it names them, also where a linear layer shares them."""
_AT_USE = (
    "Linear.weight|Conv[123][dD].weight|ConvTranspose[123]d.weight|MultiheadAttention.*_proj_weight|Convolution.weight"
)
"""The weights of linear and convolution layers of PyTorch, and of the laboratory."""


def _at_use(given: Any) -> Any:
    """Return a format, a scheme, None, or a mapping of patterns to them."""
    if not isinstance(given, Mapping):
        return as_storage(given, "weights_at_use")
    rules = {_pattern(key): as_storage(each, f"weights_at_use[{key!r}]") for key, each in given.items()}
    return MappingProxyType(rules)


def _rule(pattern: str, value: RecordLike) -> Record:
    """Return the record of a rule. Raise a ValueError for names that are not known, and for a Gemm of no product."""
    record = as_record(value, f"rules[{pattern!r}]")
    for alternative in _pattern(pattern).split("|"):
        name = alternative.strip()
        if any(letter in name for letter in "*?["):
            if not matches(name, known_names()):
                raise ValueError(f"rules: no operation fits {name!r}; fs.training.OPERATIONS lists the names")
        elif isinstance(record, Gemm) and not operation_of(name).product:
            raise ValueError(f"rules: {name!r} is no matrix product; use Op(...) in the place of Gemm(...)")
        else:
            operation_of(name)
    return record


def _pattern(pattern: Any) -> str:
    if not isinstance(pattern, str) or not pattern.strip():
        raise TypeError(f"a key of rules, modules or weights_at_use must be a name or a pattern, not {pattern!r}")
    return pattern


def _inside(module: str, pattern: str) -> bool:
    """Return whether a pattern fits the path of a module, or of a module around it."""
    parts = module.split(".")
    around = [".".join(parts[: n + 1]) for n in range(len(parts))]
    return fits(pattern, around)


def _result_format(accumulate: AccumulationLike, operands: FloatFormat | str) -> FloatFormat | str:
    """Return the format of an accumulator; "same" or "widest" if it depends on operands that are not known."""
    if isinstance(operands, FloatFormat) or not isinstance(accumulate, str):
        found: FloatFormat = _parsed(accumulate, operands).result_format
        return found
    formats = {parse(accumulate, each).result_format for each in (FP32, FP64)}
    return operands if len(formats) > 1 else formats.pop()


def _parsed(accumulate: AccumulationLike, same: Any) -> Any:
    return parse(accumulate, same) if isinstance(accumulate, str) else as_accumulation(accumulate)


def _check_kahan(mode: Any, weights: Any) -> None:
    """Raise a ValueError for options with which an update cannot be compensated."""
    if mode is not Rounding.TIES_TO_EVEN:
        name = mode.name.lower()
        raise ValueError(f"kahan=True and weight_rounding={name!r} exclude each other; use 'ties_to_even'")
    if weights is not None and not isinstance(weights, FloatFormat):
        raise ValueError(f"kahan=True is for weights in a format, such as 'bf16', not in blocks: {weights}")


def _loss_scale(value: Any) -> float | str:
    """Return a loss scale that is a positive number or "dynamic"."""
    if isinstance(value, str):
        if value.strip().lower() == "dynamic":
            return "dynamic"
        raise ValueError(f'loss_scale must be a positive number or "dynamic", not {value!r}')
    number = float(value)
    if not 0 < number < float("inf"):
        raise ValueError(f'loss_scale must be a positive number or "dynamic", not {value!r}')
    return number
