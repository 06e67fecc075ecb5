"""`emulate`: every floating-point ATen operation under a policy, forward and backward."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from floatsim.arrays.conversion import convert
from floatsim.arrays.events import record
from floatsim.arrays.float_array import FloatArray
from floatsim.arrays.options import context
from floatsim.arrays.random_stream import RandomStream
from floatsim.formats import FP32, FP64, FloatFormat
from floatsim.formats._validation import as_flag, as_index
from floatsim.formats.rounding import Rounding
from floatsim.formats.value_sets import contains
from floatsim.torch.call import Call, complex_of, floats_of
from floatsim.torch.decisions import Resolved, line, resolve
from floatsim.torch.grad_scaler import LossScaler, scaler_patches
from floatsim.torch.modules import Modules
from floatsim.torch.run import EVENTS, Run
from floatsim.torch.scaling import start_scaling
from floatsim.torch.storage import Storage
from floatsim.torch.table import Entry, entry_of
from floatsim.torch.tensors import Tag, format_of_dtype, is_float, read, tag_of, tensor_of, write_tag
from floatsim.training.policies import POLICIES, PolicyLike, as_policy
from floatsim.training.policy import Decision, Policy, widest

__all__ = ["emulate"]

_ACTIVE: list[Any] = []
"""The emulation at work. There is at most one: emulations do not nest."""

_WITHOUT_REFERENCE = {
    "_scaled_dot_product_flash_attention_for_cpu_backward", "mkldnn_rnn_layer_backward", "native_batch_norm_backward",
}  # fmt: skip
"""Operations whose error is not known: PyTorch's own read what its forward pass keeps, which the emulation does not."""

_OF_FIRST_OPERAND = {
    "native_layer_norm", "native_group_norm", "native_batch_norm", "_native_batch_norm_legit",
    "_native_batch_norm_legit_no_training", "_batch_norm_with_update",
}  # fmt: skip
"""Operations whose result has the dtype of the first operand, also beside weights in FP32."""

_FIRST_GRADIENT = ("torch::autograd::AccumulateGrad",)
"""The names of nodes that add to the gradient of a weight."""


class Emulation(TorchDispatchMode):  # type: ignore[misc]
    """The dispatch mode of one emulation."""

    def __init__(self, policy: Policy, model: torch.nn.Module | None, strict: bool, count: int) -> None:
        super().__init__()
        self.policy, self.strict, self.count = policy, strict, count
        self.stream = RandomStream(policy.seed)
        self.run = Run(scaler=LossScaler(policy.loss_scale))
        self.modules = Modules(model)
        self.storage = Storage(self, policy, model, self.stream)
        self.bookkeeping = 0
        self._entries: dict[Any, Entry] = {}
        self._outer = ""
        self._scalers: dict[Any, Any] = {}
        self._kinds: dict[str, Callable[..., Any]] = {
            "unrounded": self._unrounded, "handler": self._handled, "each": self._each, "fused": self._fused,
            "composite": self._written_out, "decomposition": self._written_out, "implicit": self._implicit,
            "native": self._native,
        }  # fmt: skip
        self._decided = functools.lru_cache(maxsize=None)(self._decide)
        self._resolved = functools.lru_cache(maxsize=None)(self._resolve)

    # -- what calls need -----------------------------------------------------------------------------------------------

    @property
    def step(self) -> int:
        """The number of optimizer steps so far."""
        return self.run.step

    def scaler(self, scaling: Any) -> Any:
        """Return the state of a scaling method in this run."""
        if scaling not in self._scalers:
            self._scalers[scaling] = start_scaling(scaling, self.policy.seed)
        return self._scalers[scaling]

    def finish_step(self) -> None:
        """End a training step."""
        for scaler in self._scalers.values():
            scaler.finish_step()
        self.modules.finish_step()
        self.run.step += 1

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
        entry = self._entries.get(func)
        if entry is None:
            entry = self._entries[func] = entry_of(func)
        if entry.kind == "view":
            return func(*args, **(kwargs or {}))
        return self._kinds[entry.kind](entry, func, args, kwargs or {})

    def _unrounded(self, entry: Entry, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operation in PyTorch that rounds nothing. New tensors get the format and the role of an operand."""
        result = func(*args, **kwargs)
        made = [
            x for x in floats_of([result, *(result if isinstance(result, tuple) else ())]) if tag_of(x, self) is None
        ]
        if made:
            operands = floats_of(args)
            tags = [tag for tag in (tag_of(x, self) for x in operands) if tag is not None]
            if tags:
                role = "state" if self.storage.in_step else tags[0].role if len(tags) == 1 else "value"
                for x in made:
                    write_tag(x, Tag(self, self._format_kept(x.dtype, operands), role))
        return result

    def _format_kept(self, dtype: torch.dtype, operands: list[torch.Tensor]) -> FloatFormat:
        """Return the format of elements of the operands in a tensor of this dtype.

        An operand of the dtype keeps its format. An operand of another dtype was converted by the model, which asks for
        the dtype: its format is that of the dtype. Tensors without dimensions beside others count as numbers.
        """
        own = format_of_dtype(dtype)
        wide = [x for x in operands if x.ndim] or operands
        return widest(tuple(self._format_of(x) if x.dtype == dtype else own for x in wide))

    def _each(self, entry: Entry, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operation on lists of tensors, for each tensor."""
        if self._is_bookkeeping(floats_of(args)):
            return func(*args, **kwargs)
        if complex_of([*args, *kwargs.values()]):
            return func(*args, **kwargs)
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
        inside = FP64 if any(x.dtype == torch.float64 for x in tensors) else FP32
        formats = line(inside, inside)

        def store(x: torch.Tensor, value: FloatArray) -> None:
            self._count(entry.name, "", False, [self._into(x, value)], "the optimizer", tensors)

        assert entry.run is not None
        self.run.operations[entry.name] += 1
        entry.run(Call(self, formats, "", False), store, *args, **kwargs)

    def _written_out(self, entry: Entry, func: Any, args: Any, kwargs: Any) -> Any:
        """Run a function of PyTorch operations, each of which is emulated, as parts of this operation."""
        assert entry.run is not None
        operands = [*args, *kwargs.values()]
        if complex_of(operands):
            return func(*args, **kwargs)
        if entry.kind == "decomposition" and not floats_of(operands):
            return self._unrounded(entry, func, args, kwargs)
        result = self._inside(entry, entry.run, args, kwargs)
        if entry.kind == "decomposition" and entry.operation and not entry.backward and is_float(result):
            return self._in_result_format(entry, result, floats_of(operands))
        return result

    def _in_result_format(self, entry: Entry, result: torch.Tensor, operands: list[torch.Tensor]) -> torch.Tensor:
        """Round the elements that a decomposition copied from an operand, such as those of leaky_relu above zero."""
        if torch._C._current_autograd_node() is not None:
            return result
        formats = tuple(map(self._format_of, operands))
        out = self._resolved(self._outer or entry.operation, self.modules.inside, False, formats).out
        if contains(out, format_of_dtype(result.dtype)):
            return result
        return self._tensor(convert(read(result), out), result.dtype, "value")

    def _implicit(self, entry: Entry, func: Any, args: Any, kwargs: Any) -> Any:
        return self._inside(entry, func.decompose, args, kwargs)

    def _inside(self, entry: Entry, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        outer, self._outer = self._outer, self._outer or entry.operation
        try:
            with self:
                return function(*args, **kwargs)
        finally:
            self._outer = outer

    def _native(self, entry: Entry, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operation in PyTorch that is not covered, and round its results.

        A result that shares the memory of an operand, which the operation does not write, is rounded in new memory.
        """
        operands = [*args, *kwargs.values()]
        tensors = floats_of(operands)
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
        if complex_of(operands):
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
        operands = [*args, *kwargs.values()]
        if complex_of(operands):
            return func(*args, **kwargs)
        args, kwargs = self._converted(args, kwargs)
        tensors = floats_of([*args, *kwargs.values()])
        self._check(entry, tensors)
        if not tensors or self._is_bookkeeping(tensors):
            return func(*args, **kwargs)
        if not tensors[0].numel() and not entry.target:
            empty = func(*args, **kwargs)
            if not any(x.numel() for x in floats_of(empty if isinstance(empty, tuple) else [empty])):
                return empty
        operation, module, backward, first_gradient = self._place(entry)
        out = kwargs.pop("out", None) if entry.target == "out" else None
        target = args[0] if entry.target == "first" else out
        if self.storage.in_step or first_gradient:
            resolved = self._by_storage(target, tensors)
        else:
            wide = [x for x in tensors if x.ndim] or tensors
            resolved = self._resolved(self._outer or operation, module, backward, tuple(map(self._format_of, wide)))
        weak = any(not x.ndim for x in tensors) and any(x.ndim for x in tensors)
        call = Call(self, resolved, module, backward, weak)
        counts = self.run.step < self.count and not self.storage.in_step
        reference = _reference(entry, func, args, kwargs, out) if counts else None
        with ExitStack() as stack:
            if self.policy.rounding is not Rounding.TIES_TO_EVEN:
                stack.enter_context(context(rounding=self.policy.rounding, seed=self.stream))
            log = stack.enter_context(record(events=EVENTS, calls=False)) if counts else None
            assert entry.run is not None
            result = entry.run(call, *args, **kwargs)
        if result is NotImplemented:
            return self._fallback(entry, func, args, kwargs if out is None else {**kwargs, "out": out})
        self.run.operations[entry.name] += 1
        made = self._delivered(entry, result, resolved, tensors, target, args, kwargs, backward)
        first = made if isinstance(made, torch.Tensor) else next(x for x in made if x is not None)
        if self.storage.in_step and not first.ndim:
            self.storage.scalars.add(first.untyped_storage().data_ptr())
        self._count(entry.name, module, backward, [first], resolved.source, tensors, log, reference)
        return made

    def _converted(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """Return the arguments of a reduction with `dtype=`, which converts its operand first, as in PyTorch."""
        dtype = kwargs.get("dtype")
        if dtype is None or not args or not is_float(args[0]) or not dtype.is_floating_point:
            return args, kwargs
        given = args[0]
        if given.dtype != dtype:
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

    def _is_bookkeeping(self, tensors: list[torch.Tensor]) -> bool:
        """Return whether an operation is part of counting steps, or of the state of a loss scaler."""
        inside = self.storage.in_step or self.bookkeeping
        if inside and self.storage.counts_steps(tensors):
            return True
        return all((tag := tag_of(x, self)) is not None and tag.role == "scale" for x in tensors)

    def _check(self, entry: Entry, tensors: list[torch.Tensor]) -> None:
        for x in tensors:
            if x.device.type != "cpu" or x.layout != torch.strided or type(x) not in (torch.Tensor, torch.nn.Parameter):
                # no TypeError: Python would try the reflected operator, and lose the message
                raise ValueError(
                    f"{entry.name}: an emulated tensor must be a dense tensor in host memory, not {type(x).__name__} "
                    f"with {x.layout} on {x.device}; move the model to the CPU"
                )

    # -- results -------------------------------------------------------------------------------------------------------

    def _by_storage(self, target: Any, tensors: list[torch.Tensor]) -> Resolved:
        """Return the formats of a line of an optimizer: FP32 inside, and the format of the tensor for its result."""
        inside = FP64 if any(x.dtype == torch.float64 for x in tensors) else FP32
        out = self._format_of(target if target is not None else tensors[0])
        return line(inside, out)

    def _into(self, x: torch.Tensor, value: FloatArray) -> torch.Tensor:
        """Store a value in a tensor, rounded to the format of its storage."""
        tag = tag_of(x, self)
        fmt = format_of_dtype(x.dtype) if tag is None else tag.format
        if value.format != fmt:
            drawn: dict[str, Any] = {}
            if tag is not None and tag.role == "weight" and self.policy.weight_rounding is Rounding.STOCHASTIC:
                drawn = {"rounding": Rounding.STOCHASTIC, "seed": self.stream}
            elif tag is not None and tag.role == "weight":
                drawn = {"rounding": self.policy.weight_rounding}
            value = convert(value, fmt, **drawn)
        return x.copy_(tensor_of(value, x.dtype))

    def _delivered(
        self, entry: Entry, result: Any, resolved: Resolved, tensors: list[torch.Tensor], target: Any, args: Any,
        kwargs: Any, backward: bool,
    ) -> Any:  # fmt: skip
        """Return the results as tensors, or store the result in place."""
        if target is not None and isinstance(result, FloatArray):
            if target.shape != result.shape:
                target.resize_(result.shape)
            return self._into(target, result)
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
        tensor = tensor_of(x, dtype)
        write_tag(tensor, Tag(self, x.format, role))
        return tensor

    # -- events --------------------------------------------------------------------------------------------------------

    def _count(
        self, name: str, module: str, backward: bool, results: list[torch.Tensor], rule: str,
        operands: list[torch.Tensor], log: Any = None, reference: Any = None,
    ) -> None:  # fmt: skip
        """Count the events of a call, and keep the first of each kind."""
        overflowed = not all(map(_all_finite, results)) and all(map(_all_finite, operands))
        if overflowed:
            self.run.happened("overflow", module, name, backward, rule)
        if log is None:
            return
        row, total = self.run.row(module, name, backward), log.total
        row.calls += 1
        row.elements += sum(x.numel() for x in results)
        for kind in EVENTS:
            if number := getattr(total, kind):
                setattr(row, kind, getattr(row, kind) + number)
                self.run.happened(kind, module, name, backward, rule)
        if reference is not None and reference.shape == results[0].shape:
            found, wanted = results[0].double(), reference.double()
            kept = torch.isfinite(found) & torch.isfinite(wanted)
            row.error += float((found - wanted)[kept].square().sum())
            row.reference += float(wanted[kept].square().sum())


def _all_finite(x: torch.Tensor) -> bool:
    """Return whether all elements are finite. One product of the vector with itself decides most cases."""
    if x.dtype == torch.float32:
        flat = x.detach().reshape(-1).numpy()
        with np.errstate(all="ignore"):
            if math.isfinite(np.dot(flat, flat)):
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
    wide = [x for x in tensors if x.ndim] or tensors
    found = wide[0].dtype
    for x in wide[1:]:
        found = torch.promote_types(found, x.dtype)
    return found


# -- the public block --------------------------------------------------------------------------------------------------


@contextmanager
def emulate(
    policy: PolicyLike, model: torch.nn.Module | None = None, *, strict: bool = False, count: int = 1
) -> Iterator[Run]:
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
        For unknown policies, and if a key of the `modules` of your own policy fits no module of the model. The message
        has the nearest match. Also for tensors that are not dense in host memory, and for a format that the dtype of a
        tensor does not contain.
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
    first overflow: outside of modules, mm, forward, step 0 (the default)
    """
    found = as_policy(policy)
    if model is not None and not isinstance(model, torch.nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, not {type(model).__name__}")
    as_flag(strict, "strict")
    as_index(count, "count", 0, 1 << 31)
    if _ACTIVE:
        raise RuntimeError("ft.emulate does not nest: an emulation is at work already")
    named = isinstance(policy, str) or any(found is each for each in POLICIES.values())
    if model is not None and not named:
        found.check_modules(path for path, _ in model.named_modules())
    mode = Emulation(found, model, strict, count)
    with ExitStack() as stack:
        _ACTIVE.append(mode)
        stack.callback(_ACTIVE.clear)
        fast = torch.backends.mha.get_fastpath_enabled()
        stack.callback(torch.backends.mha.set_fastpath_enabled, fast)
        torch.backends.mha.set_fastpath_enabled(False)
        stack.enter_context(scaler_patches(mode))
        mode.modules.start()
        stack.callback(mode.modules.stop)
        stack.callback(mode.storage.stop)
        mode.storage.start()
        stack.enter_context(mode)
        yield mode.run
