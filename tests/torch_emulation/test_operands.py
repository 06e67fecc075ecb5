"""Operands of every kind: converted tensors, numbers beside 16-bit tensors, complex tensors, views, grouped heads."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs torch: the extra `torch`")

import floatsim as fs  # noqa: E402
import floatsim.torch as ft  # noqa: E402
from floatsim.torch.emulation import _reference  # noqa: E402
from floatsim.torch.table import entry_of  # noqa: E402
from floatsim.torch.unrounded import MOVES  # noqa: E402
from tests.torch_emulation.by_hand import assert_equal, lies_in, rounded, tensor  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.full]
F = torch.nn.functional
BF16 = ft.Policy("bf16", accumulate="fp32")


def same(found, wanted):
    return found.dtype == wanted.dtype and torch.equal(found.nan_to_num(7), wanted.nan_to_num(7))


# -- conversions of dtypes ---------------------------------------------------------------------------------------------


def llama_norm(x):
    wide = x.to(torch.float32)
    return wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)


X = torch.tensor([300.0, 1.1, 2.3])
CONVERTED = {
    "a result": lambda: (X.half() * 1).float().square(),
    "a factor": lambda: (X.bfloat16() * 1).float() * 0.1,
    "an operand": lambda: X.half().float() * 0.1,
    "FP16 to BF16": lambda: (X.half() * 1.001).bfloat16() * 1.3,
    "the norm of Llama": lambda: llama_norm(X.bfloat16() * 1),
    "a copy into FP32": lambda: torch.zeros(3).copy_(X.bfloat16() * 1) * 0.1,
    "a part of a buffer": lambda: torch.cat([(X.bfloat16() * 1).float(), X]) * 0.1,
}


@pytest.mark.parametrize("name", CONVERTED)
def test_a_converted_tensor_has_the_format_of_its_dtype(name):
    wanted = CONVERTED[name]()
    with ft.emulate("native", strict=True):
        found = CONVERTED[name]()
    assert same(found, wanted) or fs.ulp_distance(found.numpy(), wanted.numpy()).max() <= 1
    assert found.dtype == torch.bfloat16 or not lies_in(found, "bf16")


def test_a_linear_layer_in_bf16_and_its_loss_in_fp32():
    torch.manual_seed(0)
    layer, x = torch.nn.Linear(4, 4).to(torch.bfloat16), torch.randn(8, 4, dtype=torch.bfloat16)
    with ft.emulate("native", layer, count=0):
        y = layer(x)
        found = y.float() ** 2
    assert torch.equal(found, y.detach().float() ** 2)


def test_a_policy_of_a_format_rounds_converted_tensors_too():
    """The format of a rule does not depend on the dtype: FP64 tensors of a BF16 policy hold BF16 numbers."""
    with ft.emulate(BF16):
        found = (tensor(50) * 1).double() * 0.3
    assert found.dtype == torch.float64
    assert lies_in(found.float(), "bf16")


def test_concatenated_tensors_have_the_widest_format():
    policy = ft.Policy("fp32", rules={"mul": "bf16", "add": ft.Op("widest")})
    x = tensor(40)
    with ft.emulate(policy):
        low, high = x * 1.3, x + 0.3
        joined, alone = torch.cat([low, high]) + 0.0, torch.cat([low, low]) + 0.0
    assert_equal(joined[40:], high)
    assert not lies_in(joined, "bf16")
    assert lies_in(alone, "bf16")


OF_DTYPE = {
    "sum": lambda x, k: x.sum(1, **k), "mean": lambda x, k: x.mean(1, **k), "prod": lambda x, k: x[:, :4].prod(1, **k),
    "cumsum": lambda x, k: x.cumsum(1, **k), "cumprod": lambda x, k: x[:, :4].cumprod(1, **k),
    "norm": lambda x, k: torch.linalg.vector_norm(x, dim=1, **k), "softmax": lambda x, k: torch.softmax(x, 1, **k),
    "log_softmax": lambda x, k: torch.log_softmax(x, 1, **k),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", OF_DTYPE)
def test_dtype_of_a_reduction_converts_its_operand_first(name, dtype):
    x, keywords = tensor(4, 50).to(dtype), {"dtype": torch.float32}
    with ft.emulate("native", strict=True):
        found, wide = OF_DTYPE[name](x, keywords), OF_DTYPE[name](x.float(), {})
    assert found.dtype == torch.float32
    assert_equal(found, wide)
    assert torch.allclose(found, OF_DTYPE[name](x, keywords), rtol=1e-5)
    assert not lies_in(found, "bf16")


def test_a_narrower_dtype_of_a_sum_rounds_its_operand():
    x = tensor(3, 20)
    with ft.emulate("native", strict=True):
        found = x.sum(1, dtype=torch.bfloat16)
    assert torch.equal(found, x.sum(1, dtype=torch.bfloat16))


# -- numbers -----------------------------------------------------------------------------------------------------------


def of_numbers(x, h):
    number = torch.tensor(0.1)
    return (
        x + 0.1, x - 0.1, 0.1 - x, x + number, number - x, x % 0.1, torch.fmod(x, 0.1), x * 0.1, x / 0.1, x * number,
        x / number, torch.mul(number, x), number / x, x**1.7, 0.3 ** x.abs(), h + 1e6, x.clamp(0.1, 0.3),
        torch.add(x, x, alpha=2),
    )  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_numbers_beside_tensors_are_rounded_as_pytorch_rounds_them(dtype):
    x, h = tensor(512, positive=True).to(dtype), torch.tensor([-torch.inf]).half()
    wanted = of_numbers(x, h)
    with ft.emulate("native", strict=True):
        found = of_numbers(x, h)
    powers = {13, 14} if dtype == torch.float32 else set()  # PyTorch's function differs by an ulp
    for i, (one, two) in enumerate(zip(found, wanted, strict=True)):
        assert same(one, two) or i in powers, i


def test_numbers_of_a_policy_are_rounded_to_the_format_of_the_operands():
    x = tensor(100)
    with ft.emulate(ft.Policy(ft.Op("bf16", inside="fp32")), strict=True):
        added, multiplied = x + 0.1, x * 0.1
    ten, low = fs.array(0.1, "bf16"), rounded(x, "bf16")
    assert_equal(added, fs.convert(fs.add(low, ten, format="fp32"), "bf16"))
    assert_equal(multiplied, fs.convert(fs.multiply(low, fs.array(0.1, "fp32"), format="fp32"), "bf16"))


def test_floor_division_does_not_round_up_to_the_next_integer():
    x, y = torch.tensor([1.0, 3.0]), torch.tensor([0.1, 0.1])
    with ft.emulate("native", strict=True):
        found = torch.div(x, y, rounding_mode="floor"), x // 0.1, torch.floor_divide(x.double(), 0.1)
    assert [each.tolist() for each in found] == [[9.0, 29.0]] * 3


def test_signs_of_zero_and_powers_of_minus_zero():
    z = torch.full((16,), -0.0)
    with ft.emulate("native", strict=True):
        found = [v[0].item() for v in (z.relu(), F.relu6(z), z.clamp(min=0.0), F.softshrink(z - 0.1), z.half() ** -0.5)]
    assert str(found) == "[-0.0, -0.0, -0.0, 0.0, inf]"


STEPS = {
    "x ** 3": lambda x, y: x**3, "x ** -2": lambda x, y: x**-2,
    "mse_loss": lambda x, y: F.mse_loss(x, y, reduction="none"), "xlogy": lambda x, y: torch.xlogy(x, y.abs()),
    "huber_loss": lambda x, y: F.huber_loss(x, y, reduction="none", delta=0.7),
    "smooth_l1_loss": lambda x, y: F.smooth_l1_loss(x, y, reduction="none"),
    "binary_cross_entropy": lambda x, y: F.binary_cross_entropy(x.sigmoid(), y.sigmoid(), reduction="none"),
    "soft_margin_loss": lambda x, y: F.soft_margin_loss(x, y, reduction="none"),
    "logit": lambda x, y: x.sigmoid().logit(), "logit with eps": lambda x, y: x.logit(0.1),
    "cross": lambda x, y: torch.linalg.cross(x[:999].view(-1, 3), y[:999].view(-1, 3)),
    "addr": lambda x, y: torch.addr(x[:16].outer(y[:16]), x[:16], y[:16], beta=0.3, alpha=0.7),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", STEPS)
def test_each_step_of_a_16_bit_kernel_is_rounded(name, dtype):
    x, y = tensor(1024).to(dtype), tensor(1024, seed=1).to(dtype)
    wanted = STEPS[name](x, y)
    with ft.emulate("native", strict=True):
        found = STEPS[name](x, y)
    assert same(found, wanted)


def test_composites_in_place_store_their_result():
    x = tensor(64).sigmoid()
    with ft.emulate("native", strict=True):
        found = x.clone()
        assert found.logit_() is found
        assert torch.equal(found, x.logit())
    assert torch.allclose(found, x.logit(), rtol=1e-5)


# -- complex tensors and views -----------------------------------------------------------------------------------------


def gradient(function):
    x = torch.tensor([1.0, 2.0, -3.0], requires_grad=True)
    function(x).sum().backward()
    return x.grad


Z = torch.complex(X, 2 * X)
COMPLEX = {
    "product": lambda: X * Z, "sum": lambda: X + Z, "division in place": lambda: Z.clone().div_(X),
    "abs": lambda: gradient(lambda a: torch.complex(a, 2 * a).abs()),
    "angle": lambda: gradient(lambda a: torch.complex(a, a * a).angle()),
    "fft": lambda: gradient(lambda a: torch.fft.rfft(a).abs()),
    "foreach": lambda: torch._foreach_mul([Z, Z + 1], 0.5)[1],
    "matrix product": lambda: torch.outer(Z, Z) @ Z,
}  # fmt: skip


@pytest.mark.parametrize("name", COMPLEX)
@pytest.mark.parametrize("policy", ["native", BF16], ids=["native", "bf16"])
def test_complex_operands_are_left_to_pytorch(name, policy):
    wanted = COMPLEX[name]()
    with ft.emulate(policy, count=1):
        found = COMPLEX[name]()
    assert found.dtype == wanted.dtype
    assert torch.allclose(found, wanted, rtol=1e-6 if policy == "native" else 0.02)
    if name in ("product", "sum"):
        assert torch.equal(found, wanted)


def test_a_view_of_a_conjugate_does_not_change_the_tensor():
    z = torch.complex(torch.full((3,), 0.1), torch.full((3,), 0.3))
    kept = z.clone()
    with ft.emulate(BF16, strict=True) as run:
        found = z.conj().imag
    assert torch.equal(found, -kept.imag)
    assert torch.equal(z, kept)
    assert not run.uncovered


def test_every_operation_whose_schema_returns_a_view_is_one():
    """By the alias annotations: all results share memory with an operand, and none is written."""
    views = {}
    for full in torch._C._dispatch_get_all_op_names():
        name, _, overload = full.removeprefix("aten::").partition(".")
        if not full.startswith("aten::") or not hasattr(torch.ops.aten, name):
            continue
        func = getattr(getattr(torch.ops.aten, name), overload or "default")
        notes = [each.alias_info for each in func._schema.returns]
        if notes and all(note is not None and not note.is_write for note in notes):
            views[str(func)] = entry_of(func).kind
    assert len(views) > 60
    assert {"aten._neg_view.default", "aten.view_as_complex.default", "aten.diagonal.default"} <= set(views)
    moved = {name for name, kind in views.items() if kind != "view"}
    assert {name.split(".")[1] for name in moved} <= MOVES | {"one_hot", "pin_memory"}  # copies, or the operand itself


@torch.library.custom_op("floatsim_tests::same_memory", mutates_args=())
def same_memory(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


def test_an_uncovered_operation_does_not_write_into_an_operand():
    """A result in the memory of an operand, which the schema does not say, is rounded in new memory."""
    x = tensor(20)
    kept = x.clone()
    entry, func = entry_of(torch.ops.aten.lgamma.default), lambda given: given[:10]
    with ft.emulate(BF16):
        mode = torch.utils._python_dispatch._get_current_dispatch_mode()
        found = mode._native(entry, func, (x,), {})
    assert torch.equal(x, kept)
    assert_equal(found, rounded(x[:10], "bf16"))


def test_an_uncovered_operation_of_a_library_is_rounded():
    x = tensor(20)
    with ft.emulate(BF16) as run:
        found = same_memory(x)
    assert_equal(found, rounded(x, "bf16"))
    assert sum(run.uncovered.values()) == 1


# -- references, losses, attention -------------------------------------------------------------------------------------

NORMS = {
    "LayerNorm": lambda: torch.nn.LayerNorm(16), "GroupNorm": lambda: torch.nn.GroupNorm(4, 16),
    "RMSNorm": lambda: torch.nn.RMSNorm(16), "BatchNorm1d": lambda: torch.nn.BatchNorm1d(16),
}  # fmt: skip


@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", NORMS)
def test_norms_in_16_bits_have_backward_passes(name, dtype, count):
    layer, x = NORMS[name]().to(dtype), tensor(4, 16).to(dtype)
    layer(x).float().square().sum().backward()
    wanted = layer.weight.grad.clone()
    layer.zero_grad()
    with ft.emulate("native", layer, count=count):
        layer(x).float().square().sum().backward()
    assert torch.allclose(layer.weight.grad, wanted, rtol=0.05, atol=0.05)


MIXED = {
    "layer_norm": lambda x, w, b: F.layer_norm(x, (16,), w, b), "group_norm": lambda x, w, b: F.group_norm(x, 4, w, b),
    "batch_norm": lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
    "batch_norm in inference": lambda x, w, b: F.batch_norm(x, torch.zeros(16), torch.ones(16), w, b),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", MIXED)
def test_norms_with_weights_in_fp32_return_the_dtype_of_their_operand(name, dtype):
    w, b = tensor(16, seed=1), tensor(16, seed=2)
    outcomes = []
    for policy in (None, "native"):
        x, weight = tensor(4, 16).to(dtype).requires_grad_(), w.clone().requires_grad_()
        with ft.emulate(policy, strict=True) if policy else torch.enable_grad():
            y = MIXED[name](x, weight, b)
            y.sum().backward()
        outcomes.append((y.detach(), x.grad, weight.grad))
    for wanted, found in zip(*outcomes, strict=True):
        assert found.dtype == wanted.dtype
        assert torch.allclose(found, wanted, rtol=0.02, atol=0.02)


def test_a_reference_that_pytorch_refuses_ends_no_run():
    """The error of the row is then not known."""

    def refuse(*_):
        raise RuntimeError("PyTorch refuses its operands")

    entry, operands = entry_of(torch.ops.aten.mul.Tensor), (torch.ones(2), torch.ones(2))
    assert _reference(entry, refuse, operands, {}, None) is None
    assert torch.equal(_reference(entry, torch.mul, operands, {}, None), torch.ones(2))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_the_loss_of_a_16_bit_classifier(dtype):
    x, classes = tensor(17, 5).to(dtype).requires_grad_(), torch.arange(17) % 5
    wanted = F.cross_entropy(x, classes)
    with ft.emulate("native", strict=True):
        found = F.cross_entropy(x, classes, weight=torch.ones(5, dtype=dtype))
        found.backward()
    assert found.dtype == dtype
    assert abs(found - wanted) <= 0.02 * wanted


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("rows", [1, 4, None])
def test_the_margin_loss_of_several_labels(rows, reduction):
    """The labels of a row end at the first -1."""
    shape = (3,) if rows is None else (rows, 3)
    x, target = tensor(*shape), torch.tensor([0, 2, -1]).expand(shape)
    outcomes = []
    for policy in (None, "native"):
        given = x.clone().requires_grad_()
        with ft.emulate(policy, strict=True) if policy else torch.enable_grad():
            loss = F.multilabel_margin_loss(given, target, reduction=reduction)
            loss.sum().backward()
        outcomes.append((loss.detach(), given.grad))
    (wanted, by_x), (found, found_by_x) = outcomes
    assert found.shape == wanted.shape
    assert torch.allclose(found, wanted, rtol=1e-6)
    assert torch.allclose(found_by_x, by_x, rtol=1e-6)


@pytest.mark.parametrize("policy", ["fp32", BF16, "mxfp8"], ids=["fp32", "bf16", "mxfp8"])
def test_grouped_heads_of_attention_are_repeated_keys_and_values(policy):
    """enable_gqa=True: a head of keys for several heads of queries. Its gradient is the sum of theirs, rounded once."""
    g = tensor(1, 4, 5, 32, seed=9)
    results = []
    for grouped in (True, False):
        q, k, v = (tensor(1, n, 5, 32, seed=i).requires_grad_() for i, n in enumerate((4, 2, 2)))
        keys, values = (k, v) if grouped else (x.repeat_interleave(2, 1) for x in (k, v))
        with ft.emulate(policy, strict=True):
            y = F.scaled_dot_product_attention(q, keys, values, enable_gqa=grouped)
            y.backward(g)
        results.append((y, q.grad, k.grad, v.grad))
    (y, by_q, *others), (wanted, wanted_by_q, *wanted_others) = results
    assert_equal(y, wanted)
    assert_equal(by_q, wanted_by_q)
    for one, two in zip(others, wanted_others, strict=True):
        assert torch.allclose(one, two, rtol=0.02, atol=0.02)
        assert one.shape == (1, 2, 5, 32)
        if policy == "fp32":
            assert_equal(one, two)


TWO_OPERANDS = ["atan2", "xlogy", "logaddexp", "logaddexp2", "hypot", "fmod", "ldexp"]


@pytest.mark.parametrize("other", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", TWO_OPERANDS)
def test_tensors_without_dimensions_are_cast_first_also_in_decompositions(name, other):
    """The result equals that of the number rounded beforehand, as in PyTorch."""
    x, number = tensor(640, positive=True).bfloat16(), torch.tensor(1.0035712718963623, dtype=other)
    function = getattr(torch, name)
    with ft.emulate("native", count=0):
        found, rounded_first = function(x, number), function(x, number.bfloat16())
    assert found.dtype == function(x, number).dtype
    assert torch.equal(found, rounded_first)


@pytest.mark.parametrize(("one", "two"), [(torch.bfloat16, torch.float16), (torch.float32, torch.bfloat16)])
@pytest.mark.parametrize("name", TWO_OPERANDS)
def test_operands_of_several_dtypes_are_promoted_first(name, one, two):
    x, y = tensor(256, positive=True).to(one), tensor(256, seed=1, positive=True).to(two)
    function = getattr(torch, name)
    with ft.emulate("native", count=0):
        found, wide = function(x, y), function(x.float(), y.float())
    assert found.dtype == torch.float32
    assert torch.equal(found, wide)


@pytest.mark.parametrize("mode", ["trunc", "floor"])
@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_divisors_of_one_element(mode, shape):
    x = tensor(256, scale=6.0).half()
    for number in (0.00067138671875, 0.0123, -1.7, 3.3):
        y = torch.full(shape, number, dtype=torch.float16)
        wanted = torch.div(x, y, rounding_mode=mode)
        with ft.emulate("native", count=0):
            assert torch.equal(torch.div(x, y, rounding_mode=mode), wanted)


def test_nansum_in_another_16_bit_format():
    x = tensor(64).bfloat16()
    with ft.emulate("native"):
        assert torch.equal(x.nansum(dtype=torch.float16), x.sum(dtype=torch.float16))
