"""Policies: the formats of each operation, and the named policies as data."""

from __future__ import annotations

import dataclasses
import re

import pytest

import floatsim as fs
from floatsim import training
from floatsim.training import OPERATIONS, POLICIES, Gemm, Op, Policy, as_policy
from floatsim.training.policies.named import POLICY_MODIFIERS
from floatsim.training.policies.policy import Decision, widest
from floatsim.training.policies.rules import SCALINGS, scaling_parts

AUTOCAST_FLOAT32 = "softmax layer_norm cross_entropy log_softmax sum norm pow exp group_norm cumsum mse_loss prod"
AUTOCAST_HALF = "linear mm bmm addmm matmul conv2d conv_transpose1d LSTMCell GRUCell RNNCell baddbmm prelu"


def formats(decision: Decision) -> tuple[str, str, str]:
    return f"{decision.operands}", f"{decision.inside}", f"{decision.result}"


# -- one policy --------------------------------------------------------------------------------------------------------


def test_default_and_rules():
    policy = Policy("bf16", accumulate="fp32", rules={"mm|bmm": "fp16", "layer_norm": Op("fp32", result="bf16")})
    assert formats(policy.decide("mm")) == ("FP16", "FP32", "FP16")
    assert formats(policy.decide("layer_norm")) == ("FP32", "FP32", "BF16")
    assert formats(policy.decide("gelu")) == ("BF16", "BF16", "BF16")
    assert policy.decide("gelu").source == "the default"


def test_rules_of_pytorch_hold_for_the_laboratory_and_the_other_way_round():
    policy = Policy("bf16", rules={"addmm": "fp16", "linear": "e4m3", "_softmax": "fp32"})
    assert policy.decide("addmm").operands == fs.FP16
    assert policy.decide("linear").operands == fs.E4M3
    assert policy.decide("mm").operands == fs.FP16  # the first rule with a synonym
    assert policy.decide("softmax").operands == fs.FP32
    assert policy.decide("bmm").operands == fs.BF16


def test_a_pattern_fits_names():
    policy = Policy("fp32", rules={"conv*": "fp16", "*norm*": "bf16"})
    assert [policy.decide(name).operands.name for name in ("conv2d", "_convolution", "rms_norm", "relu")] == [
        "FP16", "FP16", "BF16", "FP32",
    ]  # fmt: skip


def test_modules_take_precedence_over_rules():
    policy = Policy(
        "bf16", rules={"linear": Gemm("e4m3", accumulate="fp32")},
        modules={"lm_head": "fp32", "blocks.*.mlp": Gemm("fp16"), "special": as_policy("fp16")},
    )  # fmt: skip
    assert policy.decide("linear", "lm_head").operands == fs.FP32
    assert policy.decide("linear", "lm_head.projection").operands == fs.FP32
    assert policy.decide("linear", "blocks.3.mlp.up").operands == fs.FP16
    assert policy.decide("relu", "blocks.3.mlp").operands == fs.BF16  # the record is for products only
    assert policy.decide("linear", "special").accumulate == "fp16"
    assert policy.decide("linear", "blocks.3").operands == fs.E4M3


def test_formats_of_a_gemm():
    policy = Policy(
        "bf16", rules={"mm": Gemm("e4m3", backward="e5m2", accumulate="hopper", backward_accumulate="fp32")}
    )
    forward, backward = policy.decide("mm"), policy.decide("mm", backward=True)
    assert formats(forward) == ("E4M3", "FP32", "BF16")
    assert (forward.weight, forward.accumulate) == (fs.E4M3, "hopper")
    assert (backward.gradient, backward.operands, backward.accumulate) == (fs.E5M2, fs.E4M3, "fp32")


def test_results_and_gradients():
    policy = Policy("bf16", activations="fp16", gradients="fp32", rules={"relu": Op("bf16", result="e4m3")})
    assert policy.decide("gelu").result == fs.FP16
    assert policy.decide("gelu", backward=True).result == fs.FP32
    assert policy.decide("relu").result == fs.E4M3
    assert policy.decide("relu", backward=True).result == fs.FP32


def test_inside_is_the_accumulators_format_in_products():
    assert formats(Policy("fp16", accumulate="fp32").decide("linear")) == ("FP16", "FP32", "FP16")
    assert formats(Policy("fp16").decide("linear")) == ("FP16", "FP16", "FP16")
    assert formats(Policy("fp16", accumulate="fp32").decide("softmax")) == ("FP16", "FP16", "FP16")


def test_same_and_widest():
    policy = Policy(Op("widest", inside="fp32"), accumulate="sequential(same)", rules={"relu": "same"})
    assert formats(policy.decide("residual_add").given("fp16", "bf16")) == ("FP32", "FP32", "FP32")
    assert formats(policy.decide("residual_add").given("fp16", "fp16")) == ("FP16", "FP32", "FP16")
    assert formats(policy.decide("relu").given("bf16", "fp32")) == ("BF16", "BF16", "BF16")
    assert widest((fs.FP16, fs.FP64)) == fs.FP64
    assert widest((fs.E4M3, fs.BF16)) == fs.BF16


def test_storage():
    policy = Policy(weights="fp32", weights_at_use="nf4", state="int8")
    assert policy.weights == fs.FP32
    assert policy.weights_at_use == fs.quantization.SCHEMES["nf4"]
    assert policy.state.format.name == "INT8"
    assert Policy().weights is None


def test_a_policy_is_immutable_and_replaceable():
    policy = Policy("bf16", rules={"mm": "fp16"}, modules={"head": "fp32"})
    with pytest.raises(dataclasses.FrozenInstanceError):
        policy.seed = 3
    with pytest.raises(TypeError):
        policy.rules["mm"] = Op("fp32")
    assert dataclasses.replace(policy) == policy
    assert dataclasses.replace(policy, seed=7).seed == 7


def test_check_modules():
    policy = Policy(modules={"head": "fp32", "layer*": "fp16"})
    policy.check_modules(["layer0", "head"])
    with pytest.raises(ValueError, match=r"no module fits 'layer\*'"):
        policy.check_modules(["head"])


class Halves:
    """A scaling method."""

    def start(self, seed):
        return self


def test_scaling_methods():
    assert Gemm("e4m3", scaling="TE_block").scaling == "te_block"
    method = Halves()
    assert Policy("bf16", rules={"mm": Gemm("e4m3", scaling=method)}).decide("mm").scaling is method


@pytest.mark.parametrize(("call", "message"), [
    (lambda: Policy("fp61"), "default: .*'fp61'"),
    (lambda: Policy(rules={"sotfmax": "fp32"}), "'sotfmax' is not known; did you mean 'softmax'"),
    (lambda: Policy(rules={"xyz*": "fp32"}), "no operation fits 'xyz"),
    (lambda: Policy(rules={"softmax": Gemm("fp16")}), "'softmax' is no matrix product; use Op"),
    (lambda: Policy(rules={"mm": "e4m33"}), r"rules\['mm'\]: .*e4m33"),
    (lambda: Policy(modules={"head": "pf32"}), r"modules\['head'\]: .*pf32"),
    (lambda: Policy(accumulate="sequentail(fp32)"), "accumulate: .*sequentail"),
    (lambda: Policy(loss_scale=0), "loss_scale must be a positive number or .dynamic., not 0"),
    (lambda: Policy(loss_scale=float("nan")), "loss_scale must be a positive number"),
    (lambda: Policy(loss_scale="dynamik"), "loss_scale must be a positive number"),
    (lambda: Policy(seed=-1), "seed must be at least 0"),
    (lambda: Policy(weight_rounding="stochastik"), "weight_rounding='stochastik' is not known; did you mean 'stoch"),
    (lambda: Policy(weights="fp23"), "weights: .*fp23"),
    (lambda: as_policy("bf16+stochastic+kahan"), "kahan=True and weight_rounding='stochastic' exclude each other"),
    (lambda: Policy(weights="int8", kahan=True), "kahan=True is for weights in a format, such as 'bf16', not"),
    (lambda: Policy().decide("sofmax"), "operation 'sofmax' is not known; did you mean 'softmax'"),
    (lambda: Op("fp32", result="bf61"), "result: .*bf61"),
    (lambda: Gemm("e4m3", backward="e5m22"), "backward: .*e5m22"),
    (lambda: Gemm("e4m3", scaling="delaid"), "scaling='delaid' is not known; did you mean 'delayed'"),
    (lambda: Gemm("same", scaling="delayed"), "needs a format of the operands"),
    (lambda: as_policy("autocast-fp61"), "did you mean 'autocast-fp16'"),
    (lambda: as_policy("fp16+scalling"), "no modifier 'scalling'; did you mean 'scaling'"),
])  # fmt: skip
def test_bad_values(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("call", [
    lambda: Policy("e8m0"), lambda: as_policy(3), lambda: Policy(rules={3: "fp32"}), lambda: Policy(seed=1.5),
    lambda: Gemm("e4m3", scaling=3), lambda: Policy().decide(3),
])  # fmt: skip
def test_bad_types(call):
    with pytest.raises(TypeError):
        call()


# -- the named policies ------------------------------------------------------------------------------------------------


def test_every_named_policy_decides_every_operation():
    for name, policy in POLICIES.items():
        assert policy.name == name
        assert policy.source
        assert policy.evidence
        for operation in OPERATIONS:
            for backward in (False, True):
                decision = policy.decide(operation, "layer0", backward).given("fp32", "fp32")
                assert all(
                    isinstance(each, fs.FloatFormat) for each in (decision.operands, decision.inside, decision.result)
                )
                assert not isinstance(decision.scaling, str) or scaling_parts(decision.scaling)[0] in SCALINGS


@pytest.mark.parametrize(("fmt", "scale"), [("fp16", "dynamic"), ("bf16", 1.0)])
def test_autocast_lists(fmt, scale):
    policy = as_policy(f"autocast-{fmt}")
    half = fs.as_format(fmt).name
    for name in AUTOCAST_HALF.split():
        assert formats(policy.decide(name).given("fp32", "fp32")) == (half, "FP32", half), name
    for name in AUTOCAST_FLOAT32.split():
        assert formats(policy.decide(name).given(fmt, fmt)) == ("FP32", "FP32", "FP32"), name
    for name in ("relu", "gelu", "mean", "batch_norm", "add"):  # in no list
        assert formats(policy.decide(name).given(fmt, fmt)) == (half, "FP32", half), name
    assert formats(policy.decide("addcmul").given(fmt, "fp32")) == ("FP32", "FP32", "FP32")
    assert (policy.weights, policy.loss_scale) == (None, scale)


def test_apex_levels():
    o0, o1, o2, o3 = (as_policy(f"O{n}") for n in range(4))
    assert [p.loss_scale for p in (o0, o1, o2, o3)] == [1.0, "dynamic", "dynamic", 1.0]
    assert [p.weights for p in (o0, o1, o2, o3)] == [None, None, fs.FP32, fs.FP16]
    assert formats(o1.decide("linear")) == ("FP16", "FP32", "FP16")
    assert formats(o1.decide("softmax")) == ("FP32", "FP32", "FP32")
    assert formats(o1.decide("var")) == ("FP32", "FP32", "FP32")  # on apex' list, not on PyTorch's
    assert formats(as_policy("autocast-fp16").decide("var").given("fp16")) == ("FP16", "FP32", "FP16")
    assert formats(o2.decide("batch_norm")) == ("FP32", "FP32", "FP16")
    assert formats(o3.decide("batch_norm")) == ("FP16", "FP32", "FP16")
    assert formats(o0.decide("linear")) == ("FP32", "FP32", "FP32")


def test_everything_fp16():
    policy = as_policy("fp16")
    for name in ("linear", "softmax", "layer_norm", "attention", "relu", "cross_entropy"):
        for backward in (False, True):
            decision = policy.decide(name, backward=backward)
            assert formats(decision) == ("FP16", "FP16", "FP16")
            assert decision.accumulate == "fp16"
    assert (policy.weights, policy.activations, policy.state) == (fs.FP16, fs.FP16, None)


def test_hybrid_fp8():
    policy = as_policy("te-fp8")
    assert policy.decide("linear") == as_policy("fp8-delayed").decide("linear")
    backward = policy.decide("linear", backward=True)
    assert (backward.gradient, backward.operands, backward.scaling) == (fs.E5M2, fs.E4M3, "delayed")
    assert (policy.decide("linear").accumulate, backward.accumulate) == ("hopper", "blocked(hopper, 128, fp32)")
    assert formats(policy.decide("bmm")) == ("BF16", "FP32", "BF16")


def test_deepseek():
    policy = as_policy("deepseek")
    assert policy.decide("linear", "layer0", backward=True).gradient == fs.E4M3
    assert policy.decide("linear", "head").operands == fs.BF16
    assert policy.state == fs.BF16


def test_modifiers():
    policy = as_policy("FP16 + scaling + masters")
    assert (policy.loss_scale, policy.weights, policy.state) == ("dynamic", fs.FP32, fs.FP32)
    assert policy.name == "fp16+scaling+masters"
    assert as_policy("bf16+stochastic").weight_rounding is fs.Rounding.STOCHASTIC
    assert as_policy("bf16+kahan").kahan
    assert as_policy("bf16+INT4-cache").cache.keys.of.format == fs.quantization.INT4
    caches = {"fp8-cache", "int8-cache", "int4-cache"}
    assert set(POLICY_MODIFIERS) == {"scaling", "masters", "stochastic", "kahan", *caches}


# -- names of operations -----------------------------------------------------------------------------------------------


def test_each_name_belongs_to_one_operation():
    names = [name.lower() for each in OPERATIONS.values() for name in (each.name, *each.synonyms)]
    assert len(names) == len(set(names))
    assert not [name for name in names if not re.fullmatch(r"\w+", name)]
    assert OPERATIONS["linear"].product
    assert not OPERATIONS["softmax"].product


def test_operation_names():
    assert training.operation_names("mm")[:3] == ("mm", "linear", "addmm")
    with pytest.raises(ValueError, match="OPERATIONS lists the names"):
        training.operation_names("qqqqqqq")
