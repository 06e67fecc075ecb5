"""Every decomposition of PyTorch that `floatsim.torch` runs returns what PyTorch's own kernel returns, in FP64.

The calls are PyTorch's sample inputs of functions and modules, with their backward passes, and the same calls on
special values: zeros of both signs, infinities, NaN, and numbers at the bounds of piecewise functions.
"""

from __future__ import annotations

import functools
import warnings
from collections import Counter
from itertools import islice

import pytest

torch = pytest.importorskip("torch", reason="needs torch: the extra `torch`")
samples = pytest.importorskip("torch.testing._internal.common_methods_invocations", exc_type=ImportError)
modules = pytest.importorskip("torch.testing._internal.common_modules", exc_type=ImportError)

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves, tree_map_only  # noqa: E402

from floatsim.torch.table import entry_of  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.full]

entry_for = functools.cache(entry_of)
SAMPLES, TRIED = 10, 2
"""The largest numbers of sample inputs of a function or module: with decompositions, and without one so far."""
TOLERANCE = {"rtol": 1e-9, "atol": 1e-11, "equal_nan": True}
"""FP64 has an ulp of 1.1e-16. Sums and polynomials of a few hundred terms differ by less than 1e-12."""
_SPECIAL = [0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 6.0]
SPECIAL = torch.tensor(_SPECIAL, dtype=torch.float64)
OUTSIDE = {"binary_cross_entropy_backward.default"}
"""Decompositions that are compared on the sample inputs only: the forward kernel refuses operands outside of [0, 1]."""
# fmt: off
WITHOUT_SAMPLES = {
    "integers only, which are left alone": """
        __ilshift__.Scalar __ilshift__.Tensor __irshift__.Scalar __irshift__.Tensor bitwise_and.Scalar
        bitwise_and.Scalar_Tensor bitwise_and.Tensor bitwise_and_.Scalar bitwise_and_.Tensor
        bitwise_left_shift.Scalar_Tensor bitwise_left_shift.Tensor bitwise_left_shift.Tensor_Scalar
        bitwise_left_shift_.Tensor bitwise_left_shift_.Tensor_Scalar bitwise_not.default bitwise_not_.default
        bitwise_or.Scalar bitwise_or.Scalar_Tensor bitwise_or.Tensor bitwise_or_.Scalar bitwise_or_.Tensor
        bitwise_right_shift.Scalar_Tensor bitwise_right_shift.Tensor bitwise_right_shift.Tensor_Scalar
        bitwise_right_shift_.Tensor bitwise_right_shift_.Tensor_Scalar bitwise_xor.Scalar bitwise_xor.Scalar_Tensor
        bitwise_xor.Tensor bitwise_xor_.Scalar bitwise_xor_.Tensor gcd.default gcd_.default lcm.default lcm_.default""",
    "random numbers": """
        _fused_dropout.default native_dropout.default cauchy.default exponential.default geometric.default
        log_normal.default uniform.default""",
    "other devices": "cudnn_batch_norm.default cudnn_batch_norm_backward.default miopen_batch_norm_backward.default",
    "no floating-point operand": """
        hann_window.default hann_window.periodic logspace.default logspace.Scalar_Tensor logspace.Tensor_Scalar
        logspace.Tensor_Tensor affine_grid_generator.default""",
    "made by compilers only, or by no function of PyTorch": """
        _addmm_activation.default _batch_norm_no_update.default _batch_norm_with_update_functional.default
        _native_batch_norm_legit_functional.default _unsafe_index.Tensor _weight_norm_interface.default
        resize_as.default squeeze_copy.dims norm.Scalar norm.ScalarOpt_dtype norm.ScalarOpt_dim_dtype""",
}
# fmt: on
"""The decompositions that no sample input reaches, by reason."""


def tensors(value):
    return [x for x in tree_leaves(value) if isinstance(x, torch.Tensor)]


def copied(value):
    return tree_map_only(torch.Tensor, lambda x: x.detach().clone(), value)


def special(value):
    """The same arguments with special values in floating-point tensors, shifted from one tensor to the next."""
    shift = iter(range(100))

    def filled(x):
        if not x.is_floating_point():
            return x
        repeated = SPECIAL.roll(5 * next(shift)).repeat(x.numel() // len(SPECIAL) + 1)
        return repeated[: x.numel()].view(x.shape).clone()

    return tree_map_only(torch.Tensor, filled, value)


class Compared(TorchDispatchMode):
    """Compares each decomposition with the kernel when it is called."""

    def __init__(self):
        super().__init__()
        self.seen, self.different = Counter(), {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs, entry = kwargs or {}, entry_for(func)
        if entry.kind == "implicit":
            with self:
                return func.decompose(*args, **kwargs)
        given = tensors((args, kwargs))
        floats = any(x.is_floating_point() for x in given) and not any(x.is_complex() for x in given)
        if entry.kind == "decomposition" and floats and torch.Tag.nondeterministic_seeded not in func.tags:
            self.compare(func, entry, args, kwargs)
        return func(*args, **kwargs)

    def compare(self, func, entry, args, kwargs):
        name = str(func).removeprefix("aten.")
        self.seen[name] += 1
        for values in ((args, kwargs), *([] if name in OUTSIDE else [special((args, kwargs))])):
            try:
                wanted = func(*copied(values[0]), **copied(values[1]))
            except (RuntimeError, IndexError):
                continue  # the kernel refuses special values, as binary_cross_entropy does
            found = entry.run(*copied(values[0]), **copied(values[1]))
            pairs = list(zip(tensors(found), tensors(wanted), strict=True))
            if not all(one.shape == two.shape and torch.allclose(one, two, **TOLERANCE) for one, two in pairs):
                self.different.setdefault(name, []).append((values, found, wanted))


def run(call, mode):
    """Run a call and its backward pass. Sample inputs that PyTorch refuses are left out."""
    with mode:
        try:
            results = [x for x in tensors(call()) if x.requires_grad and x.is_floating_point()]
            if results:
                torch.autograd.backward(results, [torch.ones_like(x) for x in results])
        except (RuntimeError, NotImplementedError):
            return


def in_place(op, sample):
    variant = op.inplace_variant
    return variant(sample.input.detach().clone(), *sample.args, **sample.kwargs)


def calls_of_overloads():
    """Overloads that no sample input reaches."""
    aten, x, y = torch.ops.aten, torch.linspace(-4, 4, 12, dtype=torch.float64), torch.rand(4, 3, dtype=torch.float64)
    yield lambda: torch.nn.functional.hardtanh(x.clone(), -0.7, 0.3, inplace=True)
    yield lambda: torch.nn.functional.hardswish(x.clone(), inplace=True)
    yield lambda: aten.floor_divide.Scalar(x, 0.7)
    yield lambda: aten.floor_divide_.Scalar(x.clone(), 0.7)
    yield lambda: aten._euclidean_dist(y, y + 1)
    for name in ("special_xlog1py", "special_zeta"):
        yield lambda name=name: getattr(aten, name).other_scalar(x, 2.5)
        yield lambda name=name: getattr(aten, name).self_scalar(2.5, x)


def run_all(calls, mode):
    """Run the first calls of an iterator, fewer if none reaches a decomposition."""
    before = mode.seen.total()
    for i, call in enumerate(islice(calls, SAMPLES)):
        if i >= TRIED and mode.seen.total() == before:
            return
        run(call, mode)


def calls_of_function(op):
    gradients = op.supports_autograd and torch.float64 in op.supported_backward_dtypes("cpu")
    for sample in op.sample_inputs_func(op, "cpu", torch.float64, gradients):
        yield lambda s=sample: op(s.input, *s.args, **s.kwargs)
        if op.inplace_variant is not None:
            yield lambda s=sample: in_place(op, s)


def calls_of_module(info):
    for sample in info.module_inputs_func(info, "cpu", torch.float64, True, True):
        made, given = sample.constructor_input, sample.forward_input
        if given is not None:
            yield lambda m=made, g=given: info.module_cls(*m.args, **m.kwargs).double()(*g.args, **g.kwargs)


@pytest.fixture(scope="module")
def compared():
    torch.manual_seed(0)
    mode = Compared()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of PyTorch's own sample inputs
        for op in samples.op_db:
            if op.supports_dtype(torch.float64, "cpu") and not op.name.startswith("jiterator"):
                run_all(calls_of_function(op), mode)
        run_all(calls_of_overloads(), mode)
        for info in modules.module_db:
            run_all(calls_of_module(info), mode)
    return mode


def test_decompositions_return_what_the_kernels_return(compared):
    assert not compared.different


def test_every_decomposition_was_compared(compared):
    used = {
        str(func).removeprefix("aten.")
        for func in torch._decomp.decomposition_table
        if isinstance(func, torch._ops.OpOverload) and entry_of(func).kind == "decomposition"
    }
    listed = {name for names in WITHOUT_SAMPLES.values() for name in names.split()}
    assert used - set(compared.seen) <= listed
