"""The table of ATen operations: the operation of policies that each belongs to, and the handler that carries it out."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from floatsim.torch.composites import COMPOSITES
from floatsim.torch.convolutions import CONVOLUTIONS
from floatsim.torch.elementwise import ELEMENTWISE
from floatsim.torch.normalizations import NORMALIZATIONS
from floatsim.torch.optimizers import FUSED
from floatsim.torch.pools import POOLS
from floatsim.torch.products import PRODUCTS
from floatsim.torch.recurrent import RECURRENT
from floatsim.torch.reductions import REDUCTIONS
from floatsim.torch.scatter import SCATTER
from floatsim.torch.unrounded import UNROUNDED, VIEWS
from floatsim.training.policies.named import POLICIES
from floatsim.training.policies.operations import OPERATIONS, known_names, matches, operation_names, operation_of
from floatsim.training.policies.policy import Policy

__all__ = ["TABLE", "Entry", "base_name", "check_rules", "entry_of"]

TABLE: dict[str, tuple[str, Callable[..., Any]]] = {
    **ELEMENTWISE, **PRODUCTS, **CONVOLUTIONS, **POOLS, **NORMALIZATIONS, **REDUCTIONS, **RECURRENT, **SCATTER,
}  # fmt: skip
"""By the name of the ATen operation: the operation of policies, and the handler."""

_NAMES = {name.lower() for name in known_names()}


@dataclass(frozen=True, eq=False)
class Entry:
    """How an ATen operation is carried out.

    Attributes
    ----------
    name : str
        The name of the ATen operation, without the underscore of an operation in place.
    kind : str
        "view" or "unrounded" (PyTorch runs it), "handler", "each" (a list of tensors, each by the handler), "fused"
        (the handler stores its results), "composite" (written out), "decomposition", "implicit" (a decomposition of
        ATen itself), "own" (a building block of this package, which states its formats) or "native" (not covered).
    operation : str
        The operation of policies.
    run : callable, optional
        The handler, the composite or the decomposition.
    backward : bool
        Whether it belongs to a backward pass by its name.
    target : str
        Where the result is stored: "" (a new tensor), "first" (the first argument, in place), or "out".
    compared : bool
        Whether the operation was compared with the device of a policy that has one.
    """

    name: str
    kind: str
    operation: str = ""
    run: Callable[..., Any] | None = None
    backward: bool = False
    target: str = ""
    compared: bool = True


def base_name(name: str) -> str:
    """Return the name of an ATen operation without the underscore of an operation in place.

    >>> base_name("add_"), base_name("_foreach_add_"), base_name("__and__")
    ('add', '_foreach_add', '__and__')
    """
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name


@functools.cache
def _decompositions() -> dict[Any, Any]:
    return dict(torch._decomp.decomposition_table)


_COMPUTES_POSITIONS = {"upsample_bicubic2d", "grid_sampler_2d", "grid_sampler_3d"}
"""Operations whose decomposition computes positions, which a policy must not round. They are not covered."""

_SYNONYMS = {
    "_foreach_norm": "linalg_vector_norm", "square": "pow", "subtract": "sub", "multiply": "mul", "divide": "div",
    "true_divide": "div", "negative": "neg", "absolute": "abs", "clip": "clamp", "swish": "silu",
}  # fmt: skip


def _operation(name: str) -> str:
    """Return the operation of policies for a decomposed ATen operation; "" if it has none."""
    short = name.removesuffix("_backward").removesuffix("_forward")
    return short if short.lower() in _NAMES else ""


def _is_view(func: Any) -> bool:
    """Return whether all results share the memory of an operand that the operation does not write, by its schema."""
    notes = [result.alias_info for result in func._schema.returns]
    return bool(notes) and all(note is not None and not note.is_write for note in notes)


def _in_place(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a composite that stores its result in its first argument."""

    def run(x: Any, *args: Any, **kwargs: Any) -> Any:
        return x.copy_(function(x, *args, **kwargs))

    return run


def entry_of(func: Any) -> Entry:
    """Return how an ATen operation is carried out.

    Parameters
    ----------
    func : torch._ops.OpOverload
        Such as `torch.ops.aten.add.Tensor`.

    Returns
    -------
    Entry

    Examples
    --------
    >>> import torch
    >>> entry_of(torch.ops.aten.add_.Tensor).target, entry_of(torch.ops.aten.view.default).kind
    ('first', 'view')
    """
    space, _, full = func._schema.name.partition("::")
    if space == "floatsim":
        return Entry(full, "own", backward=False)
    if full not in UNROUNDED and _is_view(func):
        return Entry(full, "view")
    if space not in ("aten", "prims"):
        return Entry(full, "unrounded" if space == "profiler" else "native")
    name = base_name(full)
    target = "out" if any(a.is_out for a in func._schema.arguments) else "first" if name != full else ""
    if full in VIEWS:
        return Entry(full, "view")
    if full in FUSED:
        return Entry(full, "fused", run=FUSED[full])
    if name in COMPOSITES and target != "out":
        function = COMPOSITES[name]
        run = _in_place(function) if target else function
        return Entry(name, "composite", _operation(name), run, "_backward" in name, target)
    if name == "index_put" or (name in TABLE and name not in UNROUNDED):
        operation, handler = TABLE[name]
        return Entry(name, "handler", operation, handler, "_backward" in name, target)
    if full in UNROUNDED or name in UNROUNDED:
        return Entry(full, "unrounded")
    if name.startswith("_foreach_"):
        single = _SYNONYMS.get(name, name.removeprefix("_foreach_"))
        if single in TABLE and single not in UNROUNDED:
            return Entry(single, "each", *TABLE[single], False, target)
        if single in UNROUNDED:
            return Entry(full, "unrounded")
    if func.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd):
        return Entry(name, "implicit", _operation(name))
    found = None if name in _COMPUTES_POSITIONS else _decompositions().get(func)
    if found is not None and target != "out":
        return Entry(name, "decomposition", _operation(name), found, "_backward" in name)
    return Entry(name, "native", _operation(name), None, "_backward" in name, target)


# -- rules -------------------------------------------------------------------------------------------------------------


@functools.cache
def _acting() -> frozenset[str]:
    """Return the operations of policies that an operation of ATen belongs to which rounds something."""
    found = {operation_of(operation).name for operation, _ in TABLE.values() if operation}
    for name in known_names():
        packet = getattr(torch.ops.aten, name, None)
        for overload in () if packet is None else packet.overloads():
            try:
                entry = entry_of(getattr(packet, overload))
            except RuntimeError:  # some names are there without an operator
                continue
            if entry.operation and entry.kind not in ("view", "unrounded", "implicit"):
                found.add(operation_of(entry.operation).name)
    return frozenset((*found, "other"))


_PUBLISHED = frozenset(pattern for policy in POLICIES.values() for pattern in policy.rules)
"""The keys of named policies. They are lists of PyTorch and others, which name operations without rounding, too."""


def check_rules(policy: Policy) -> None:
    """Raise a ValueError for a rule that acts on no operation of PyTorch.

    Such operations round nothing, or PyTorch takes them apart before the emulation sees them.

    Parameters
    ----------
    policy : Policy
        A policy, whose `modules` may contain others.

    Examples
    --------
    >>> import floatsim as fs
    >>> check_rules(fs.training.Policy(rules={"softmax|mm": "fp32"}))
    >>> check_rules(fs.training.Policy(rules={"cat": "e4m3"}))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: rules: 'cat' acts on no operation that rounds in PyTorch; rules act on linear, bmm, ...
    """
    for pattern in policy.rules.keys() - _PUBLISHED:
        for alternative in pattern.split("|"):
            if not any(matches(alternative, operation_names(name)) for name in _acting()):
                can = ", ".join(name for name in OPERATIONS if name in _acting())
                raise ValueError(
                    f"rules: {alternative.strip()!r} acts on no operation that rounds in PyTorch; rules act on {can}. "
                    "ft.quantize rounds a tensor explicitly"
                )
    for each in policy.modules.values():
        if isinstance(each, Policy):
            check_rules(each)
