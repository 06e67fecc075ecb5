"""`emulate`: every floating-point ATen operation under a policy, forward and backward."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch._ops import HigherOrderOperator
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from floatsim.arrays.array.conversion import convert, quantize
from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.call.options import context, get_context
from floatsim.arrays.call.random_stream import RandomStream
from floatsim.arrays.events.record import record, recording
from floatsim.emulator.compile_notice import one_line
from floatsim.formats import FP32, FP64, FloatFormat
from floatsim.formats._validation import as_flag, as_index, with_keyword_hints
from floatsim.formats.rounding import Rounding
from floatsim.formats.value_sets import contains
from floatsim.torch.caches import Caches
from floatsim.torch.call import Call, Rehearsal, floats_of, tensors_of
from floatsim.torch.decisions import Resolved, line, resolve
from floatsim.torch.devices import cast, choices_of, entry_on
from floatsim.torch.elementwise import ELEMENTWISE
from floatsim.torch.exported import followed
from floatsim.torch.grad_scaler import LossScaler, scaler_patches
from floatsim.torch.modules import Modules, parameter_names, paths
from floatsim.torch.run import EVENTS, Run, Site, Unverified
from floatsim.torch.scaling import start_scaling
from floatsim.torch.storage import OPTIMIZER, Storage
from floatsim.torch.table import Entry, check_rules, entry_of
from floatsim.torch.tensors import Tag, check_dense, format_of_dtype, is_float, read, tag_of, tensor_of, write_tag
from floatsim.torch.threads import threads_warn
from floatsim.torch.unrounded import FACTORIES
from floatsim.training.policies.conversions import with_cuda_nan
from floatsim.training.policies.named import POLICIES, PolicyLike, as_policy
from floatsim.training.policies.policy import Decision, Policy, widest

__all__ = ["emulate", "emulate_part"]

_ACTIVE: list[Any] = []
"""The emulation at work. There is at most one: emulations do not nest."""

_VERSION = 1
"""The version of what `run.state_dict()` returns."""

_WITHOUT_REFERENCE = {
    "_scaled_dot_product_flash_attention_for_cpu_backward", "mkldnn_rnn_layer_backward", "native_batch_norm_backward",
}  # fmt: skip
"""Operations whose error is not known: PyTorch's own read what its forward pass keeps, which the emulation does not."""

_OF_FIRST_OPERAND = {
    "native_layer_norm", "native_group_norm", "native_batch_norm", "_native_batch_norm_legit",
    "_native_batch_norm_legit_no_training", "_batch_norm_with_update",
}  # fmt: skip
"""Operations whose result has the dtype of the first operand, also beside weights in FP32."""

_COMPILES = (
    "floatsim: ft.emulate compiles kernels for the operations and formats of this model, which can take a minute. "
    "Later runs read them from disk. FLOATSIM_PROGRESS=0 turns this line off."
)

_CASTS = ("_to_copy", "copy_")
"""Operations that convert tensors to other dtypes."""

_DRAWS = (
    "bernoulli", "bernoulli_", "native_dropout", "rand_like", "randn_like", "randint_like", "normal", "poisson",
    "binomial", "multinomial", "exponential_", "geometric_", "cauchy_", "log_normal_",
)  # fmt: skip
"""Operations that draw random numbers in a model, such as dropout. A GPU draws others."""

_DRAWS_OF_MODULES = ("rand", "randn", "randint", "randperm", "normal_", "uniform_", "random_")
"""The same inside of a module's forward pass. Outside they make weights and batches, often on the CPU."""

_ON_DEVICE = (torch.float32, torch.float16, torch.bfloat16)
"""The dtypes that were compared with a device."""

_FIRST_GRADIENT = ("torch::autograd::AccumulateGrad",)
"""The names of nodes that add to the gradient of a weight."""


class Emulation(TorchDispatchMode):  # type: ignore[misc]
    """The dispatch mode of one emulation."""

    supports_higher_order_operators = True

    def __init__(self, policy: Policy, model: torch.nn.Module | None, strict: bool, count: int) -> None:
        super().__init__()
        self.policy, self.strict, self.count = policy, strict, count
        self.stream = RandomStream(policy.seed)
        self.run = Run(scaler=LossScaler(policy.loss_scale), _emulation=self)
        self.modules = Modules(self, model)
        self.storage = Storage(self, policy, model, self.stream)
        self.caches = Caches(self, model) if policy.has_cache else None
        self.bookkeeping = 0
        self.paused = False
        self._entries: dict[Any, Entry] = {}
        self._outer = ""
        self._scalers: dict[Any, Any] = {}
        self._saved_scalers: dict[str, Any] = {}
        self._rehearsed: set[Any] = set()
        self._kinds: dict[str, Callable[..., Any]] = {
            "unrounded": self._unrounded, "handler": self._handled, "each": self._each, "fused": self._fused,
            "composite": self._written_out, "decomposition": self._written_out, "implicit": self._implicit,
            "native": self._native, "own": self._own,
        }  # fmt: skip
        self._decided = functools.lru_cache(maxsize=None)(self._decide)
        self._resolved = functools.lru_cache(maxsize=None)(self._resolve)

    # -- what calls need -----------------------------------------------------------------------------------------------

    @property
    def step(self) -> int:
        """The number of optimizer steps so far."""
        return self.run.step

    @property
    def at_work(self) -> bool:
        """Whether the block is open and not paused."""
        return self in _ACTIVE

    def scaler(self, scaling: Any) -> Any:
        """Return the state of a scaling method in this run."""
        if scaling not in self._scalers:
            self._scalers[scaling] = start_scaling(scaling, self.policy.seed)
            if (saved := self._saved_scalers.pop(_text(scaling), None)) is not None:
                self._scalers[scaling].load_state_dict(saved)
        return self._scalers[scaling]

    def finish_step(self) -> None:
        """End a training step."""
        for scaler in self._scalers.values():
            scaler.finish_step()
        self.modules.finish_step()
        self.run.step += 1

    def unverified(self, operation: str, shapes: tuple[tuple[int, ...], ...], why: str) -> None:
        """Note that an operation is not known to have the bits of the policy's device. A strict run refuses it."""
        if self.paused:
            return
        found = Unverified(operation, shapes, why)
        if self.strict:
            raise NotImplementedError(f"{found}; strict=True refuses what was not compared with the device")
        self.run.unverified[found] += 1

    @contextmanager
    def as_part(self, operation: str) -> Iterator[None]:
        """Let the formats of an operation hold for its parts in a block."""
        outer, self._outer = self._outer, self._outer or operation
        try:
            yield
        finally:
            self._outer = outer

    # -- leaving, saving and resuming ----------------------------------------------------------------------------------

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Let PyTorch compute by itself in a block, with the stored weights."""
        if self.paused:
            raise RuntimeError("run.pause() does not nest: the emulation is paused already")
        if self not in _ACTIVE or self.storage.in_step:
            raise RuntimeError("run.pause() must be called in the block of its ft.emulate, between optimizer steps")
        self.storage.pause()
        self.paused = True
        _ACTIVE.remove(self)
        fast = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(True)
        try:
            yield
        finally:
            torch.backends.mha.set_fastpath_enabled(fast)
            _ACTIVE.append(self)
            self.paused = False
            self.storage.resume()

    def state_dict(self) -> dict[str, Any]:
        """Return what a run keeps beside the tensors of the model and of the optimizer."""
        scaling = {_text(key): scaler.state_dict() for key, scaler in self._scalers.items()}
        return {
            "version": _VERSION, "step": self.run.step, "seed": self.policy.seed, "draws": self.stream.calls,
            "loss_scaler": self.run.scaler.state_dict(), "scaling": {**self._saved_scalers, **scaling},
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue the run that returned this state."""
        if not isinstance(state, Mapping) or state.get("version") != _VERSION or set(state) != set(self.state_dict()):
            given = f"{state!r:.80}"
            raise ValueError(f"state must be what run.state_dict() returned in version {_VERSION}, not {given}")
        if state["seed"] != self.policy.seed:
            raise ValueError(f"state belongs to a policy with seed={state['seed']}, not seed={self.policy.seed}")
        loss_scaler = state["loss_scaler"]
        if bool(loss_scaler) != self.run.scaler.is_enabled():
            kinds = ("without", "with")
            raise ValueError(
                f"state belongs to a policy {kinds[bool(loss_scaler)]} loss scaling, not {kinds[not loss_scaler]} it"
            )
        if loss_scaler:
            self.run.scaler.load_state_dict(loss_scaler)
        self.run.step, self.stream.calls = state["step"], state["draws"]
        self.storage.take_weights_as_stored()
        self._scalers.clear()
        self._saved_scalers = dict(state["scaling"])

    # -- decisions -----------------------------------------------------------------------------------------------------

    def _decide(self, operation: str, module: str, backward: bool) -> Decision:
        return self.policy.decide(operation or "other", module, backward)

    def _resolve(self, operation: str, module: str, backward: bool, formats: tuple[FloatFormat, ...]) -> Resolved:
        return resolve(self.policy, self._decided(operation, module, backward), formats)

    def _place(self, entry: Entry) -> tuple[str, str, bool, bool]:
        """Return operation, module, whether it is a backward pass, and whether it adds to the gradient of a weight."""
        node = torch._C._current_autograd_node()
        if node is None or torch.is_grad_enabled():
            if not self.storage.in_step:
                self.modules.note(entry.operation)
            return entry.operation, self.modules.inside, entry.backward, False
        module, forward = self.modules.of_node(node)
        operation = entry.operation
        if operation == "sum" and forward and forward != "sum":
            operation = forward  # the gradient of a bias, or of an operand that was broadcast
        return operation, module, True, node.name() in _FIRST_GRADIENT

    def _format_of(self, x: torch.Tensor) -> FloatFormat:
        tag = tag_of(x, self)
        return format_of_dtype(x.dtype) if tag is None else tag.format

    # -- dispatch ------------------------------------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Carry out one ATen operation."""
        if self.paused:
            return func(*args, **(kwargs or {}))
        entry = self._entries.get(func)
        if entry is None:
            if isinstance(func, HigherOrderOperator):
                raise NotImplementedError(
                    f"{func.name()} takes functions, which ft.emulate cannot follow; call the operations themselves, "
                    "such as torch.nn.functional.scaled_dot_product_attention, or use run.pause()"
                )
            entry = self._entries[func] = entry_on(self.policy.device, entry_of(func))
        if entry.kind == "view":
            return func(*args, **(kwargs or {}))
        if not entry.compared and entry.kind not in ("handler", "each"):
            self.unverified(entry.name, _shapes(tensors_of(args)[0]), "the operation was not compared with the device")
        return self._kinds[entry.kind](entry, func, args, kwargs or {})

    def _unrounded(self, entry: Entry, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operation in PyTorch that rounds nothing. New tensors get the format and the role of an operand.

        New tensors of constants in a step of an optimizer are moments.
        """
        result = func(*args, **kwargs)
        if self.policy.device and entry.name in _CASTS:
            self._cast(entry, args, result)
        elif self.policy.device and entry.name in (*_DRAWS, *_DRAWS_OF_MODULES * bool(self.modules.inside)):
            self.unverified(entry.name, _shapes(floats_of(args)), "the random numbers are those of the CPU")
        made = [
            x for x in floats_of([result, *(result if isinstance(result, tuple) else ())]) if tag_of(x, self) is None
        ]
        if made and self.storage.in_step and entry.name in FACTORIES:
            for x in made:
                self.storage.begin_moment(x)
        elif made:
            operands = floats_of(args)
            tags = [tag for tag in (tag_of(x, self) for x in operands) if tag is not None]
            if tags:
                role = "state" if self.storage.in_step else tags[0].role if len(tags) == 1 else "value"
                for x in made:
                    write_tag(x, Tag(self, self._format_kept(x.dtype, operands), role))
        return result

    def _cast(self, entry: Entry, args: Any, result: Any) -> None:
        """Convert a tensor to another dtype as the device."""
        source = next((x for x in args[entry.name == "copy_" :] if is_float(x)), None)
        if source is not None and is_float(result) and source.dtype != result.dtype:
            cast(source.expand(result.shape) if source.shape != result.shape else source, result)

    def _format_kept(self, dtype: torch.dtype, operands: list[torch.Tensor]) -> FloatFormat:
        """Return the format of elements of the operands in a tensor of this dtype.

        An operand of the dtype keeps its format. An operand of another dtype was converted by the model, which asks for
        the dtype: its format is that of the dtype. Tensors without dimensions beside others count as numbers.
        """
        own = format_of_dtype(dtype)
        wide = [x for x in operands if x.ndim] or operands
        return widest(tuple(self._format_of(x) if x.dtype == dtype else own for x in wide))

    def _complex(self, entry: Entry, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operation with a complex operand in PyTorch."""
        if self.policy.device and (entry.compared or entry.kind in ("handler", "each")):
            self.unverified(entry.name, _shapes(tensors_of(args)[0]), "complex numbers, computed by PyTorch on the CPU")
        return func(*args, **kwargs)

    def _each(self, entry: Entry, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operation on lists of tensors, for each tensor."""
        tensors = floats_of(args)
        if self._is_bookkeeping(tensors, [tag_of(x, self) for x in tensors]):
            return func(*args, **kwargs)
        if tensors_of([*args, *kwargs.values()])[1]:
            return self._complex(entry, func, args, kwargs)
        n = len(args[0])
        results = []
        for i in range(n):
            one = tuple(each[i] if isinstance(each, list | tuple) else each for each in args)
            words = {key: each[i] if isinstance(each, list | tuple) else each for key, each in kwargs.items()}
            words = {"value" if key == "scalars" else key: each for key, each in words.items()}
            results.append(self._handled(entry, func, one, words))
        return None if entry.target else results

    def _fused(self, entry: Entry, func: Any, args: Any, kwargs: Any) -> None:
        """Run an operation that stores its results itself."""
        tensors = floats_of(args)
        self._check(entry, tensors)
        formats = self._by_storage(tensors[0], tensors)
        stored: list[torch.Tensor] = []
        lost = 0

        def store(x: torch.Tensor, value: FloatArray) -> None:
            nonlocal lost
            made = self._for_storage(x, value)
            lost += self._lost(Site(self.storage.place_of(x), entry.name, False, formats.source, True), [made], tensors)
            stored.append(x.copy_(made))

        assert entry.run is not None
        self.run.operations[entry.name] += 1
        if self._rehearses(entry, formats, tensors, (), None):
            with self._dropped_draws():
                entry.run(Rehearsal(self, formats, "", False), self._stored_nowhere, *args, **kwargs)
        with self._recorded() as log:
            call = Call(self, formats, "", False)
            call.subject = entry.name, _shapes(tensors)
            entry.run(call, store, *args, **kwargs)
        self._count(Site(OPTIMIZER, entry.name, False, formats.source, True), stored, log, lost)

    def _written_out(self, entry: Entry, func: Any, args: Any, kwargs: Any) -> Any:
        """Run a function of PyTorch operations, each of which is emulated, as parts of this operation."""
        assert entry.run is not None
        tensors, has_complex = tensors_of([*args, *kwargs.values()])
        if has_complex:
            return self._complex(entry, func, args, kwargs)
        if entry.kind == "decomposition" and not tensors:
            return self._unrounded(entry, func, args, kwargs)
        if torch.Tag.pointwise in func.tags:
            args = self._promoted(args)
        result = self._inside(entry, entry.run, args, kwargs)
        if entry.kind == "decomposition" and entry.operation and not entry.backward and is_float(result):
            return self._in_result_format(entry, result, tensors)
        return result

    def _promoted(self, args: Any) -> Any:
        """Return the operands of an element-wise operation in the dtype of its result, as PyTorch casts them first."""
        tensors = floats_of(args)
        wide = [x.dtype for x in tensors if x.ndim] or [x.dtype for x in tensors]
        if len({x.dtype for x in tensors}) < 2:
            return args
        dtype = functools.reduce(torch.promote_types, wide)

        def cast(x: Any) -> Any:
            if not is_float(x) or x.dtype == dtype:
                return x
            found = x.to(dtype)
            write_tag(found, Tag(self, format_of_dtype(dtype), "value"))
            return found

        return tuple(map(cast, args))

    def _in_result_format(self, entry: Entry, result: torch.Tensor, operands: list[torch.Tensor]) -> torch.Tensor:
        """Round the elements that a decomposition copied from an operand, such as those of leaky_relu above zero."""
        if torch._C._current_autograd_node() is not None:
            return result
        formats = tuple(map(self._format_of, operands))
        out = self._resolved(self._outer or entry.operation, self.modules.inside, False, formats).out
        own = format_of_dtype(result.dtype)
        if contains(out, own) or not contains(own, out):
            return result
        return self._tensor(convert(read(result), out), result.dtype, "value")

    def _implicit(self, entry: Entry, func: Any, args: Any, kwargs: Any) -> Any:
        return self._inside(entry, func.decompose, args, kwargs)

    def _inside(self, entry: Entry, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        with self.as_part(entry.operation), self:
            return function(*args, **kwargs)

    def _native(self, entry: Entry, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operation in PyTorch that is not covered, and round its results.

        A result that shares the memory of an operand, which the operation does not write, is rounded in new memory.
        """
        tensors, has_complex = tensors_of([*args, *kwargs.values()])
        result = func(*args, **kwargs)
        made = floats_of([result, *(result if isinstance(result, tuple) else ())])
        if not tensors and not made:
            return result
        if self.strict:
            raise NotImplementedError(f"{func} is not covered, and strict=True; run.uncovered lists such operations")
        self._check(entry, [*tensors, *made])
        self.run.uncovered[str(func)] += 1
        operation, module, backward, _ = self._place(entry)
        formats = tuple(map(self._format_of, tensors))
        out = self._resolved(self._outer or operation, module, backward, formats).out
        if has_complex:
            return result
        role = "gradient" if backward else "value"
        kept = set() if entry.target else {x.untyped_storage().data_ptr() for x in tensors}

        def rounded(x: Any) -> Any:
            if not is_float(x):
                return x
            own = format_of_dtype(x.dtype)
            fmt = out if contains(own, out) else own
            values = tensor_of(convert(read(x), fmt), x.dtype)
            found = x.copy_(values) if x.untyped_storage().data_ptr() not in kept else values
            write_tag(found, Tag(self, fmt, role))
            return found

        return tree_map_only(torch.Tensor, rounded, result)

    def _handled(self, entry: Entry, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operation by its handler."""
        tensors, has_complex = tensors_of([*args, *kwargs.values()] if kwargs else args)
        if has_complex:
            return self._complex(entry, func, args, kwargs)
        self._check(entry, tensors)
        out, given = None, (args, kwargs)
        if kwargs:
            args, kwargs = self._converted(entry, args, kwargs)
            if entry.target == "out":
                out, kwargs = kwargs["out"], {key: each for key, each in kwargs.items() if key != "out"}
            tensors = floats_of([*args, *kwargs.values()])
        target = args[0] if entry.target == "first" else out
        tags = [tag_of(x, self) for x in tensors]
        if not tensors or self._is_bookkeeping(tensors, tags):
            return func(*given[0], **given[1])
        if not tensors[0].numel() and not entry.target:
            empty = func(*given[0], **given[1])
            if not any(x.numel() for x in floats_of(empty if isinstance(empty, tuple) else [empty])):
                return empty
        operation, module, backward, first_gradient = self._place(entry)
        if self.caches is not None:
            self.caches.check(entry.name, tags)
        update = self.storage.in_step
        dimensions = [x.ndim for x in tensors]
        weak = 0 in dimensions and any(dimensions)
        if update or first_gradient:
            resolved = self._by_storage(target, tensors)
        else:
            formats = tuple(
                format_of_dtype(x.dtype) if tag is None else tag.format
                for x, tag, n in zip(tensors, tags, dimensions, strict=True)
                if n or not weak
            )
            resolved = self._resolved(self._outer or operation, module, backward, formats)
        call = Call(self, resolved, module, backward, weak, dict(zip(map(id, tensors), tags, strict=True)))
        if self.policy.device:
            call.subject = entry.name, _shapes(tensors)
            if any(x.dtype not in _ON_DEVICE for x in tensors):
                call.unverified("another dtype than float32, float16 and bfloat16")
        reference = _reference(entry, func, args, kwargs, out) if self._counts and not update else None
        with self._recorded() as log, self._rounding():
            assert entry.run is not None
            result = entry.run(call, *args, **kwargs)
            if result is not NotImplemented:
                made = self._made(entry, result, tensors, target, args, kwargs, backward)
        if result is NotImplemented:
            return self._fallback(entry, func, args, kwargs if out is None else {**kwargs, "out": out})
        if self._rehearses(entry, resolved, tensors, args, call):
            with self._dropped_draws():
                dropped = entry.run(Rehearsal(self, resolved, module, backward, weak, call.tags), *args, **kwargs)
                if target is not None and isinstance(dropped, FloatArray):
                    self._stored_nowhere(target, dropped)
        self.run.operations[entry.name] += 1
        first = made if isinstance(made, torch.Tensor) else next(x for x in made if x is not None)
        if self._looks_for_losses() and not _all_finite(first):
            weight = self.storage.place_of(tensors[0] if target is None else target) if update else module
            lost = self._lost(Site(weight, entry.name, backward, resolved.source, update), [first], tensors)
        else:
            lost = 0
        if log is not None:
            site = Site(OPTIMIZER if update else module, entry.name, backward, resolved.source, update)
            self._count(site, [first], log, lost, reference)
        if target is not None and isinstance(result, FloatArray):
            if entry.target == "first" and target.shape != first.shape:
                raise RuntimeError(
                    f"output with shape {list(target.shape)} doesn't match the broadcast shape {list(first.shape)}"
                )
            made = first = (target if target.shape == first.shape else target.resize_(first.shape)).copy_(first)
        if update and not first.ndim:
            self.storage.scalars.add(first.untyped_storage().data_ptr())
        return made

    def _rounding(self) -> AbstractContextManager[Any]:
        """Return a context with the rounding mode of the policy."""
        if self.policy.rounding is Rounding.TIES_TO_EVEN:
            return nullcontext()
        return context(rounding=self.policy.rounding, seed=self.stream)

    @property
    def _counts(self) -> bool:
        """Whether events are counted in this step."""
        return self.run.step < self.count

    def _recorded(self) -> AbstractContextManager[Any]:
        """Return a context that yields the log of the events; None in steps whose events are not counted."""
        return record(events=EVENTS, calls=False) if self._counts else nullcontext()

    # -- kernels of later steps ----------------------------------------------------------------------------------------

    def _rehearses(self, entry: Entry, formats: Resolved, tensors: list[torch.Tensor], args: Any, call: Any) -> bool:
        """Return whether an operation runs a second time without counting, and drops its results.

        Steps that count events and steps that do not have different kernels. In the last step that counts, each
        operation runs in both ways once for operands of the same shapes, so that later steps compile nothing.
        """
        if self.run.step != self.count - 1 or recording():
            return False
        operands = tuple((x.shape, x.dtype, None if call is None else call.role(x)) for x in tensors)
        others = repr([x for x in args if not tensors_of([x])[0]])
        key = entry, formats, operands, others
        if key in self._rehearsed:
            return False
        self._rehearsed.add(key)
        return True

    @contextmanager
    def _dropped_draws(self) -> Iterator[None]:
        """Set the rounding mode of the policy, and a stream of random numbers that no other call uses."""
        with self._rounding(), context(seed=RandomStream(0)):
            yield

    def _stored_nowhere(self, x: torch.Tensor, value: FloatArray) -> None:
        """Round a result as it would be stored."""
        self._for_storage(x, value, RandomStream(0))

    def _own(self, entry: Entry, func: Any, args: Any, kwargs: Any) -> Any:
        """Run a building block of this package, which states its formats itself."""
        tensors = floats_of(args)
        _, module, backward, _ = self._place(entry)
        with self._recorded() as log:
            result = func(*args, **kwargs)
        if self._rehearses(entry, line(FP32, FP32), tensors, args, None):
            with self._dropped_draws():
                func(*args, **kwargs)
        self.run.operations[entry.name] += 1
        write_tag(result, Tag(self, format_of_dtype(result.dtype), "gradient" if backward else "value"))
        site = Site(module, entry.name, backward, "the call")
        self._count(site, [result], log, self._lost(site, [result], tensors))
        return result

    def _converted(self, entry: Entry, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """Return the arguments of a reduction with `dtype=`, which converts its operand first, as in PyTorch."""
        dtype = kwargs.get("dtype")
        if dtype is None or not args or not is_float(args[0]) or not dtype.is_floating_point:
            return args, kwargs
        given = args[0]
        if given.dtype != dtype:
            if self.policy.device:
                self.unverified(entry.name, _shapes([given]), f"with dtype={dtype}, its operand is converted first")
            tag = tag_of(given, self)
            given = given.to(dtype)
            write_tag(given, Tag(self, format_of_dtype(dtype), "" if tag is None else tag.role))
        return (given, *args[1:]), {key: each for key, each in kwargs.items() if key != "dtype"}

    def _fallback(self, entry: Entry, func: Any, args: Any, kwargs: Any) -> Any:
        """Run what a handler does not take: by PyTorch's decomposition, or natively."""
        found = torch._decomp.decomposition_table.get(func)
        if found is not None and not entry.target:
            return self._inside(entry, found, args, kwargs)
        return self._native(entry, func, args, kwargs)

    def _is_bookkeeping(self, tensors: list[torch.Tensor], tags: list[Tag | None]) -> bool:
        """Return whether an operation is part of counting steps, or of the state of a loss scaler."""
        inside = self.storage.in_step or self.bookkeeping
        if inside and self.storage.counts_steps(tensors):
            return True
        return all(tag is not None and tag.role == "scale" for tag in tags)

    def _check(self, entry: Entry, tensors: list[torch.Tensor]) -> None:
        for x in tensors:
            check_dense(x, entry.name)

    # -- results -------------------------------------------------------------------------------------------------------

    def _by_storage(self, target: Any, tensors: list[torch.Tensor]) -> Resolved:
        """Return the formats of a line of an optimizer: FP32 inside, and the format of a new tensor for its result.

        A result that is stored in place is rounded once, by `_for_storage`.
        """
        inside = FP64 if any(x.dtype == torch.float64 for x in tensors) else FP32
        return line(inside, inside if target is not None else self._format_of(tensors[0]))

    def _for_storage(self, x: torch.Tensor, value: FloatArray, stream: RandomStream | None = None) -> torch.Tensor:
        """Return a value as it is stored in a tensor: rounded to the format of its storage, weights in their mode.

        Stochastic rounding draws from a stream, by default that of the run.
        """
        tag, own = tag_of(x, self), format_of_dtype(x.dtype)
        fmt = own if tag is None else tag.format
        if value.format == fmt:
            return tensor_of(with_cuda_nan(value) if self.policy.device else value, x.dtype)
        nearest, mode = Rounding.TIES_TO_EVEN, self.policy.weight_rounding
        drawn: dict[str, Any] = {}
        if tag is not None and tag.role == "weight" and not (mode is nearest is get_context().rounding):
            drawn["rounding"] = mode
            if mode is Rounding.STOCHASTIC:
                drawn["seed"] = self.stream if stream is None else stream
        if value.format == own and not drawn and not recording():
            value = quantize(value, fmt)  # one step instead of a conversion there and back
        else:
            value = convert(value, fmt, **drawn)
        return tensor_of(with_cuda_nan(value) if self.policy.device else value, x.dtype)

    def _made(
        self, entry: Entry, result: Any, tensors: list[torch.Tensor], target: Any, args: Any, kwargs: Any,
        backward: bool,
    ) -> Any:  # fmt: skip
        """Return the results as tensors. That of an operation in place is not yet stored."""
        if target is not None and isinstance(result, FloatArray):
            return self._for_storage(target, result)
        dtype = _result_dtype(entry, tensors, args, kwargs)
        if entry.name in _OF_FIRST_OPERAND and dtype != tensors[0].dtype:
            dtype = tensors[0].dtype
            own = format_of_dtype(dtype)
            result = tuple(convert(each, own) if isinstance(each, FloatArray) else each for each in result)
        role = "gradient" if backward else "value"
        if isinstance(result, FloatArray):
            return self._tensor(result, dtype, role)
        return tuple(self._tensor(each, dtype, role) if isinstance(each, FloatArray) else each for each in result)

    def _tensor(self, x: FloatArray, dtype: torch.dtype, role: str) -> torch.Tensor:
        if not contains(format_of_dtype(dtype), x.format):
            raise ValueError(
                f"the policy gives {x.format.name}, and the model computes in {dtype}: a format of the policy must be "
                "a subset of the model's dtype; use model.float(), or another policy"
            )
        tensor = tensor_of(with_cuda_nan(x) if self.policy.device else x, dtype)
        write_tag(tensor, Tag(self, x.format, role))
        return tensor

    # -- events --------------------------------------------------------------------------------------------------------

    def _looks_for_losses(self) -> bool:
        """Return whether overflows are looked for: in counted steps, and until the first of them."""
        return self._counts or self.run.first("overflow") is None

    def _lost(self, site: Site, results: list[torch.Tensor], operands: list[torch.Tensor]) -> int:
        """Return the number of infinities and NaNs among the results of finite operands, and keep the first of them.

        An element of an element-wise operation has its own operands. Other operations have all operands in common.
        Nothing is stored in place yet. Later steps look no further than the first.
        """
        if not self._looks_for_losses() or all(map(_all_finite, results)):
            return 0
        if all(map(_all_finite, operands)):
            number = sum(int((~torch.isfinite(x)).sum()) for x in results)
        elif site.operation in ELEMENTWISE:
            given = functools.reduce(torch.logical_and, map(torch.isfinite, operands))
            number = int((given & ~torch.isfinite(results[0])).sum())
        else:
            number = 0
        if number:
            self.run.happened("overflow", site)
        return number

    def _count(self, site: Site, results: list[torch.Tensor], log: Any, lost: int, reference: Any = None) -> None:
        """Count the events of a call, and keep the first of each kind."""
        if log is None:
            return
        row, total = self.run.row(site), log.total
        row.calls += 1
        row.elements += sum(x.numel() for x in results)
        numbers = {kind: getattr(total, kind) or 0 for kind in EVENTS}
        numbers["overflow"] = max(numbers["overflow"] - numbers["clipped"], lost)
        for kind, number in numbers.items():
            if number:
                setattr(row, kind, getattr(row, kind) + number)
                self.run.happened(kind, site)
        if reference is not None and reference.shape == results[0].shape:
            found, wanted = results[0].double(), reference.double()
            kept = torch.isfinite(found) & torch.isfinite(wanted)
            row.error += float((found - wanted)[kept].square().sum())
            row.reference += float(wanted[kept].square().sum())


def _shapes(tensors: list[torch.Tensor]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(x.shape) for x in tensors)


def _text(scaling: Any) -> str:
    """Return the name of a scaling method in a saved run."""
    return scaling if isinstance(scaling, str) else repr(scaling)


def _all_finite(x: torch.Tensor) -> bool:
    """Return whether all elements are finite. One product of the vector with itself decides most cases."""
    if x.dtype == torch.float32:
        flat = x.detach().reshape(-1)
        if math.isfinite(torch.dot(flat, flat).item()):
            return True
    return bool(torch.isfinite(x).all())


def _reference(entry: Entry, func: Any, args: Any, kwargs: Any, out: Any) -> torch.Tensor | None:
    """Return PyTorch's own result on copies of the operands, or None if PyTorch refuses them.

    PyTorch's backward passes refuse what an emulated forward pass keeps for them in another form.
    """
    if entry.kind != "handler" or out is not None or entry.name in _WITHOUT_REFERENCE:
        return None
    copies = [x.detach().clone() if isinstance(x, torch.Tensor) else x for x in args]
    try:
        found = func(*copies, **kwargs)
    except (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError):
        return None
    found = found[0] if isinstance(found, tuple) else found
    return found if is_float(found) else None


def _result_dtype(entry: Entry, tensors: list[torch.Tensor], args: Any, kwargs: Any) -> torch.dtype:
    """Return the dtype of a result, as PyTorch: a keyword, or the promoted dtype of the operands."""
    if entry.name in ("_softmax_backward_data", "_log_softmax_backward_data"):
        return args[3]
    if entry.name in ("_softmax", "_log_softmax") and args[2]:
        return torch.float32
    found = tensors[0].dtype
    if all(x.dtype is found for x in tensors):
        return found
    wide = [x for x in tensors if x.ndim] or tensors
    return functools.reduce(torch.promote_types, [x.dtype for x in wide])


# -- the public block --------------------------------------------------------------------------------------------------


@with_keyword_hints
def emulate(
    policy: PolicyLike, model: torch.nn.Module | None = None, *, strict: bool = False, count: int = 1
) -> AbstractContextManager[Run]:
    """Carry out every floating-point operation of PyTorch in a `with` block under a policy, forward and backward.

    Parameters
    ----------
    policy : Policy or str
        The formats of operations and tensors: a `ft.Policy`, or the name of one (`fs.training.POLICIES`).
    model : torch.nn.Module, optional
        The model whose weights the policy stores, and whose paths of modules its `modules` name. Without it, weights
        are stored as the policy says when an optimizer steps.
    strict : bool
        Whether an operation that is not covered raises a NotImplementedError. By default it runs in PyTorch, its
        results are rounded to the policy's format, and `run.uncovered` counts it.
    count : int
        The number of training steps, from the first on, in which all events and the errors against PyTorch's own
        results are counted. Later steps look for overflows only, and are faster.

    Yields
    ------
    Run
        `run.first("overflow")`, `run.report()`, `run.uncovered`, `run.scaler`.

    Raises
    ------
    TypeError
        For other arguments.
    ValueError
        For unknown policies, and if a key of `modules` or `cache` of your own policy fits no module of the model. The
        message has the nearest match. At the end of the block if the policy has a `cache`, operations ran, and no keys
        and values were stored. Also for tensors that are not dense in host memory, for a format that the dtype of a
        tensor does not contain, and for a policy with `kahan`.
    RuntimeError
        Inside another `emulate`.

    Notes
    -----
    Tensors keep their dtypes; their values lie in the policy's formats. Stored weights are rounded in place at the
    start if the policy has `weights`. Integer and complex tensors are left alone. PyTorch's fused path of
    `torch.nn.TransformerEncoderLayer` is switched off in the block, so that its layers have paths.

    Examples
    --------
    >>> import torch, floatsim.torch as ft
    >>> layer = torch.nn.Linear(2, 1, bias=False)
    >>> _ = layer.weight.data.fill_(300.0)
    >>> with ft.emulate(ft.Policy("fp16", accumulate="fp16"), layer) as run:
    ...     y = layer(torch.tensor([[200.0, 200.0]]))
    >>> y
    tensor([[inf]], grad_fn=<MmBackward0>)
    >>> print(run.first("overflow"))
    first overflow: Linear, mm, forward, step 0 (the default)
    """
    found = _checked(policy, model)
    as_flag(strict, "strict")
    as_index(count, "count", 0, 1 << 31)
    return _emulation(found, model, strict, count)


def emulate_part(policy: Policy, model: torch.nn.Module) -> AbstractContextManager[Run]:
    """Return `emulate` for a layer of a model, without counts. A `cache` may be without attention in the layer.

    >>> layer = torch.nn.Linear(2, 1)
    >>> with emulate_part(as_policy("bf16+fp8-cache"), layer):
    ...     _ = layer(torch.ones(1, 2))
    """
    return _emulation(_checked(policy, model), model, False, 0, whole=False)


def _checked(policy: PolicyLike, model: torch.nn.Module | None) -> Policy:
    """Return the policy by its name. Raise the errors of `emulate` about the policy and the model."""
    try:
        found = as_policy(policy)
    except (TypeError, ValueError) as error:
        listed = "" if "known are" in str(error) else f" (policies: {', '.join(POLICIES)}; or a ft.Policy of your own)"
        raise type(error)(f"{error}{listed}") from None
    if model is not None and not isinstance(model, torch.nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, not {type(model).__name__}")
    for name, parameter in () if model is None else model.named_parameters():
        if is_float(parameter) and not is_lazy(parameter):
            check_dense(parameter, f"model: {name}")
    if found.kahan:
        raise ValueError(
            "kahan=True is for the optimizers of fs.training: an optimizer of PyTorch adds its updates itself, in many "
            "ways; use weight_rounding='stochastic' ('+stochastic'), weights='fp32' ('+masters'), or an optimizer with "
            "compensated updates"
        )
    named = isinstance(policy, str) or any(found is each for each in POLICIES.values())
    if not named:
        check_rules(found)
        if model is not None:
            found.check_modules(path for path, _ in paths(model))
            found.check_weights([name for names in parameter_names(model).values() for part in names for name in part])
    return found


@contextmanager
def _emulation(
    policy: Policy, model: torch.nn.Module | None, strict: bool, count: int, whole: bool = True
) -> Iterator[Run]:
    """Enter an emulation, and leave it again. One of a whole model stores keys and values if its policy has a cache."""
    if _ACTIVE:
        raise RuntimeError("ft.emulate does not nest: an emulation is at work already; run.pause() interrupts it")
    mode = Emulation(policy, model, strict, count)
    with ExitStack() as stack:
        _ACTIVE.append(mode)
        stack.callback(_ACTIVE.remove, mode)
        stack.enter_context(scaler_patches(mode))
        mode.modules.start()
        stack.callback(mode.modules.stop)
        stack.callback(mode.storage.stop)
        mode.storage.start()
        stack.enter_context(followed(model, mode.modules))
        stack.enter_context(choices_of(policy.device, mode.unverified, mode.as_part))
        if mode.caches is not None:
            stack.enter_context(mode.caches.at_work())
        stack.callback(torch.backends.mha.set_fastpath_enabled, torch.backends.mha.get_fastpath_enabled())
        torch.backends.mha.set_fastpath_enabled(False)
        stack.enter_context(threads_warn(mode))
        stack.enter_context(one_line(_COMPILES))
        stack.enter_context(mode)
        yield mode.run
        if mode.caches is not None and whole:
            mode.caches.check_end()
