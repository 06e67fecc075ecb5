"""KV caches under an emulation: the keys and values of attention are stored as `cache=` of the policy says.

Two places store keys and values. `torch.nn.functional.scaled_dot_product_attention` stores those that it is given.
A cache object of the protocol of Transformers, with a method `update(key, value, layer_idx)`, stores them earlier:
objects that a module gets as an argument store new tokens in the form of the cache while the emulation is at work.
The tag of a tensor says what is stored already, so nothing is stored twice.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn import functional
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.utils._python_dispatch import _disable_current_modes

from floatsim.arrays.array.float_array import FloatArray
from floatsim.formats.value_sets import contains
from floatsim.torch.run import Site
from floatsim.torch.storage import Detached
from floatsim.torch.tensors import Tag, format_of_dtype, is_float, read, tag_of, tensor_of, write_tag
from floatsim.training.policies.caches import PARTS, Cache
from floatsim.training.policies.conversions import nearest

__all__ = ["Caches"]

_ATTENTION = "_scaled_dot_product_flash_attention_for_cpu"
"""The operation of ATen that attention becomes on a CPU."""

_STORED, _TURNED = "stored", "turned"
"""The roles of tags of keys and values that are stored, and of those that are rotated, too."""


class _Replaced(torch.autograd.Function):  # type: ignore[misc]
    """Other numbers in the place of a tensor, with the gradient of the function `back`, or straight through."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, numbers: torch.Tensor, back: Callable[..., Any] | None) -> torch.Tensor:
        ctx.back = back
        return numbers

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        return (gradient if ctx.back is None else ctx.back(gradient)), None, None


@functools.cache
def _stores_tokens(kind: type) -> bool:
    """Return whether objects of a class have a method `update(key, value, layer_idx, ...)`."""
    update = getattr(kind, "update", None)
    if not callable(update):
        return False
    try:
        names = list(inspect.signature(update).parameters)
    except (TypeError, ValueError):
        return False
    return "layer_idx" in names[3:]


class Caches:
    """The stored keys and values of one emulation.

    Parameters
    ----------
    owner : object
        The emulation. While it is `paused`, nothing is stored.
    model : torch.nn.Module, optional
        The model whose modules get the cache objects. Without it, those of each module that is called.
    """

    def __init__(self, owner: Any, model: torch.nn.Module | None) -> None:
        self.owner, self.model = owner, model
        self.elsewhere: dict[str, None] = {}
        self._inside = False
        self._followed: set[int] = set()
        self._kept: list[Any] = []
        self._handles: list[Any] = []
        self._objects: dict[int, tuple[Any, Any]] = {}

    def __deepcopy__(self, memo: Any) -> Caches:
        """Return itself: a copied model keeps the hooks of this emulation."""
        return self

    def __reduce__(self) -> Any:
        """Pickle no emulation: the hooks of a model that is saved in a block do nothing when it is loaded."""
        return Detached, ()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Store keys and values in a block."""
        own = functional.scaled_dot_product_attention
        functional.scaled_dot_product_attention = functools.partial(self._attention, own)
        if self.model is not None:
            self._follow(self.model)
        else:
            self._handles.append(register_module_forward_pre_hook(lambda module, _: self._follow(module)))
        try:
            yield
        finally:
            functional.scaled_dot_product_attention = own
            for handle in self._handles:
                handle.remove()
            for cache, before in self._objects.values():
                if before is None:
                    del cache.update
                else:
                    cache.update = before
            self._objects.clear()

    def check_end(self) -> None:
        """Raise a ValueError if operations ran, and no keys and values were stored."""
        run = self.owner.run
        if not run.cached and run.operations:
            found = ", ".join(self.elsewhere)
            where = f"attention ran in {found}, which no key of cache= fits" if found else "no attention ran"
            raise ValueError(
                f"cache: nothing was stored: {where}. Keys and values are those of "
                "torch.nn.functional.scaled_dot_product_attention, called by this name, and of cache objects with a "
                "method update(key, value, layer_idx), which modules of the model get as an argument"
            )

    # -- cache objects -------------------------------------------------------------------------------------------------

    def _follow(self, root: torch.nn.Module) -> None:
        """Look at the arguments of the modules of a model."""
        for module in root.modules():
            if id(module) not in self._followed:
                self._followed.add(id(module))
                self._kept.append(module)
                self._handles.append(module.register_forward_pre_hook(self._look, with_kwargs=True))

    def _look(self, module: torch.nn.Module, args: tuple[Any, ...], words: dict[str, Any]) -> None:
        if not self.owner.paused and self.owner.at_work:
            for x in (*args, *words.values()):
                self._take(x)

    def _take(self, cache: Any) -> None:
        """Let a cache object store tokens in the form of the cache until the end of the emulation."""
        kind: Any = type(cache)
        if not _stores_tokens(kind) or id(cache) in self._objects:
            return
        held = getattr(cache, "__dict__", {})
        before = held.get("update")
        own, signature = cache.update, inspect.signature(cache.update)

        @functools.wraps(own)
        def update(*args: Any, **words: Any) -> Any:
            bound = signature.bind(*args, **words)
            spec = None if self.owner.paused else self._spec()
            if spec is None:
                return own(*args, **words)
            for part, name in zip(PARTS, signature.parameters, strict=False):
                bound.arguments[name] = self._stored(bound.arguments[name], spec, part)
            found = own(*bound.args, **bound.kwargs)
            for part, x in zip(PARTS, found, strict=False):
                self._note(x, spec, part)
            return found

        try:
            cache.update = update
        except AttributeError:
            raise TypeError(
                f"cache: {type(cache).__name__} takes no attribute `update`, so its tokens cannot be stored in another "
                "form; remove its __slots__"
            ) from None
        self._objects[id(cache)] = cache, before
        for inner in list(held.values()):
            if inner is not cache:
                self._take(inner)

    # -- attention -----------------------------------------------------------------------------------------------------

    def _spec(self) -> Cache | None:
        """Return how the module at work stores keys and values."""
        inside = self.owner.modules.inside
        spec: Cache | None = self.owner.policy.cache_of(inside)
        if spec is None:
            self.elsewhere[inside or "no module"] = None
        return spec

    def _attention(self, own: Callable[..., Any], query: Any, key: Any, value: Any, *args: Any, **words: Any) -> Any:
        """Return attention with stored keys and values."""
        spec = self._spec() if not self.owner.paused and all(map(is_float, (query, key, value))) else None
        outer, self._inside = self._inside, True
        try:
            if spec is None:
                return own(query, key, value, *args, **words)
            key, value = (self._stored(x, spec, part) for x, part in zip((key, value), PARTS, strict=True))
            if spec.rotate:
                query = self._turned(query, spec, "keys")
            found = own(query, key, value, *args, **words)
            return self._turned(found, spec, "values", inverse=True) if spec.rotate_values else found
        finally:
            self._inside = outer

    def check(self, name: str, tags: list[Tag | None]) -> None:
        """Raise an error for an operation whose operands are stored keys or values, and that does not treat them so.

        Parameters
        ----------
        name : str
            The operation of ATen.
        tags : list of Tag or None
            The tags of its operands.
        """
        roles = [None if tag is None else tag.role for tag in tags]
        if self._inside or torch._C._current_autograd_node() is not None:
            return
        if name == _ATTENTION and _STORED not in roles and self._spec() is not None:
            raise NotImplementedError(
                "cache: scaled_dot_product_attention was called by a name that was imported before; call "
                "torch.nn.functional.scaled_dot_product_attention"
            )
        if _TURNED in roles:
            raise NotImplementedError(
                f"cache: rotated keys and values are for scaled_dot_product_attention, which rotates the queries, too, "
                f"not for {name}; models of Transformers call it with attn_implementation='sdpa'. Or use rotate=0, "
                "rotate_values=0"
            )

    # -- tensors -------------------------------------------------------------------------------------------------------

    def _stored(self, x: torch.Tensor, spec: Cache, part: str) -> torch.Tensor:
        """Return keys or values as they are stored, or those that are stored already."""
        owner = self.owner
        if not is_float(x) or ((tag := tag_of(x, owner)) is not None and tag.role in (_STORED, _TURNED)):
            return x
        module, own = owner.modules.inside, format_of_dtype(x.dtype)
        turns = bool(spec.block_of(part))
        with _disable_current_modes():  # what this package computes is no operation of the model
            given = read(x)
            with owner._recorded() as log:
                numbers = spec.stored(given, part)
            made = tensor_of(numbers, x.dtype)
            owner.run.cached[module] += 1
            if log is not None:
                site = Site(module, f"cache_{part}", False, "the cache")
                exact = tensor_of(spec.rotated(given, part), x.dtype) if turns else x.detach()
                owner._count(site, [made], log, owner._lost(site, [made], [x.detach()]), exact)
        result = _Replaced.apply(x, made, functools.partial(self._back, spec, part) if turns else None)
        fmt = numbers.format if contains(own, numbers.format) else own
        write_tag(result, Tag(owner, fmt, _TURNED if turns else _STORED))
        return result

    def _note(self, x: Any, spec: Cache, part: str) -> None:
        """Write the tag of stored keys or values that a cache object returned."""
        if is_float(x):
            tag = tag_of(x, self.owner)
            fmt = format_of_dtype(x.dtype) if tag is None else tag.format
            write_tag(x, Tag(self.owner, fmt, _TURNED if spec.block_of(part) else _STORED))

    def _turned(self, x: torch.Tensor, spec: Cache, part: str, inverse: bool = False) -> torch.Tensor:
        """Return queries or outputs after the rotation, in the format they have."""
        tag, own = tag_of(x, self.owner), format_of_dtype(x.dtype)
        fmt, role = (own, "value") if tag is None else (tag.format, tag.role)

        def turned(x: torch.Tensor, inverse: bool) -> FloatArray:
            return nearest(spec.rotated(read(x), part, inverse=inverse), fmt)

        made = tensor_of(turned(x, inverse), x.dtype)
        result = _Replaced.apply(x, made, functools.partial(self._back, spec, part, inverse=not inverse))
        write_tag(result, Tag(self.owner, fmt, role))
        return result

    def _back(self, spec: Cache, part: str, gradient: torch.Tensor, inverse: bool = True) -> torch.Tensor:
        """Return the gradient by a tensor that was rotated."""
        tag, own = tag_of(gradient, self.owner), format_of_dtype(gradient.dtype)
        fmt = own if tag is None else tag.format
        found = tensor_of(nearest(spec.rotated(read(gradient), part, inverse=inverse), fmt), gradient.dtype)
        write_tag(found, Tag(self.owner, fmt, "gradient"))
        return found
