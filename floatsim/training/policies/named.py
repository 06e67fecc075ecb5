"""The named policies: what PyTorch, apex, TransformerEngine and DeepSeek compute in which format, as rows of data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeAlias

from floatsim.formats._validation import name_hint
from floatsim.quantization.integer import INT4
from floatsim.quantization.scheme import Scheme
from floatsim.training.policies.policy import Policy
from floatsim.training.policies.rules import WIDEST, Gemm, Op

__all__ = ["POLICIES", "POLICY_ALIASES", "POLICY_MODIFIERS", "PolicyLike", "as_policy"]

# -- PyTorch's autocast and apex ---------------------------------------------------------------------------------------

_AUTOCAST_HALF = (
    "__matmul__ addbmm addmm addmv addr baddbmm bmm multi_dot conv1d conv2d conv3d conv_transpose1d conv_transpose2d "
    "conv_transpose3d GRUCell linear LSTMCell matmul mm mv RNNCell _convolution convolution conv_tbc einsum "
    "linalg_vecdot chain_matmul scaled_dot_product_attention"
)
_AUTOCAST_FLOAT32 = (
    "__pow__ __rdiv__ __rpow__ __rtruediv__ acos asin binary_cross_entropy_with_logits cosh cosine_embedding_loss "
    "cdist cosine_similarity cross_entropy cumprod cumsum dist erfinv exp expm1 group_norm hinge_embedding_loss "
    "kl_div l1_loss layer_norm log log_softmax log10 log1p log2 margin_ranking_loss mse_loss multilabel_margin_loss "
    "multi_margin_loss nll_loss norm normalize pdist poisson_nll_loss pow prod reciprocal rsqrt sinh smooth_l1_loss "
    "soft_margin_loss softmax softmin softplus sum renorm tan triplet_margin_loss"
)
_AUTOCAST_WIDEST = "addcdiv addcmul atan2 bilinear cross dot grid_sample index_put scatter_add tensordot cat stack"
_APEX_HALF = (
    "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d conv_tbc addmm addmv addr matmul mm mv "
    "linear addbmm baddbmm bmm"
)
_APEX_FLOAT32 = (
    "acos asin cosh erfinv exp expm1 log log10 log2 reciprocal rsqrt sinh tan pow cumprod cumsum dist norm prod std "
    "sum var renorm interpolate softplus softmin log_softmax softmax layer_norm group_norm local_response_norm "
    "normalize cosine_similarity cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss kl_div poisson_nll_loss "
    "cosine_embedding_loss hinge_embedding_loss margin_ranking_loss multi_margin_loss multilabel_margin_loss "
    "soft_margin_loss triplet_margin_loss binary_cross_entropy_with_logits"
)
_APEX_WIDEST = "add div mul addcdiv addcmul atan2 cross bilinear dot eq cat stack"


def _alternatives(names: str) -> str:
    return "|".join(names.split())


_PROMOTED = Op(WIDEST, inside="fp32")
"""Operations of PyTorch in no list: operands by type promotion, FP32 inside, one rounding of the result."""


def _lists(half: str, float32: str, promoted: str, fmt: str) -> dict[str, Any]:
    """Return the rules of three lists. PReLU is on the half list, and is no matrix product."""
    return {
        _alternatives(half): Gemm(fmt, accumulate="fp32", result=fmt),
        "prelu": Op(fmt, inside="fp32"),
        _alternatives(float32): Op("fp32"),
        _alternatives(promoted): _PROMOTED,
    }


_AUTOCAST_SOURCE = (
    "PyTorch, docs/source/amp.md, the op lists of autocast for CUDA, which are the same for float16 and bfloat16. "
    "Operations in no list run in the format of their operands. Products add in FP32"
)
_LISTS = "The lists were read in the source. The order of sums inside a GPU is not modelled: sums are in order."
_H200 = "PyTorch 2.11.0 with CUDA 13.0 on an NVIDIA H200"
_RECORDED = "Training runs of an H200. run.unverified lists the operations that were not compared with it."
_APEX_SOURCE = "NVIDIA apex, apex.amp, optimization level"
_IN_HALF: dict[str, Any] = {
    "default": Op("fp16", inside="fp32"),
    "accumulate": "fp32",
    "weights_at_use": {"_BatchNorm.*": None, "*": "fp16"},
    "activations": "fp16",
}

# -- FP8 and FP4 -------------------------------------------------------------------------------------------------------

_BF16_BESIDE: dict[str, Any] = {
    "bmm|attention|conv2d|rnn_cell|lstm_cell|gru_cell": Gemm("bf16", accumulate="fp32", result="bf16"),
    "softmax|log_softmax|cross_entropy": Op("fp32", result="fp32"),
    "layer_norm|rms_norm|batch_norm|group_norm": Op("bf16", inside="fp32"),
}
"""The operations beside the linear layers in a network with FP8 or FP4: BF16 with FP32 inside."""


def _beside_linear(name: str, linear: Gemm, source: str, **fields: Any) -> Policy:
    """Return a policy with this record for linear layers, and BF16 beside them. Masters and moments are in FP32."""
    return Policy(
        Op("bf16", inside="fp32"), accumulate="fp32", rules={"linear": linear, **_BF16_BESIDE}, name=name,
        source=source, evidence=_METHODS, **fields,
    )  # fmt: skip


_METHODS = "The formats were read in the source. The scaling methods have tests of their own."
_TE = "TransformerEngine, recipe"
_HOPPER_SPLIT = "blocked(hopper, 128, fp32)"
_HYBRID = Gemm(
    "e4m3", backward="e5m2", accumulate="hopper", backward_accumulate=_HOPPER_SPLIT, scaling="delayed", result="bf16"
)

_BESIDE_INTEGERS = "Everything else as in the policy native, for inference: backward products are in FP32"


def _integer_products(name: str, linear: Gemm, source: str) -> Policy:
    """Return a policy with integer products in linear layers, and the formats of the tensors beside them."""
    return Policy(_PROMOTED, accumulate="fp32", rules={"linear": linear}, name=name, evidence=_METHODS,
                  source=f"{source}. {_BESIDE_INTEGERS}")  # fmt: skip


_NAMED = (
    Policy(Op("fp32"), accumulate="fp32", name="fp32", source="Every operation, tensor and sum in FP32",
           evidence="By definition."),
    Policy(Op("bf16"), accumulate="fp32", weights="bf16", activations="bf16", name="bf16",
           source="Every operation and tensor in BF16, the weights and moments included. Sums in FP32",
           evidence="By definition."),
    Policy(Op("fp16"), accumulate="fp16", weights="fp16", activations="fp16", update="operation", name="fp16",
           source="Every operation, tensor and sum in FP16, the weights and moments included",
           evidence="By definition."),
    Policy(_PROMOTED, accumulate="fp32", name="native",
           source="The formats of the tensors as they are given, FP32 inside and in sums, as PyTorch without autocast",
           evidence="By definition."),
    Policy(_PROMOTED, accumulate="fp32", name="h200", device="h200", source=f"{_H200} without autocast, for ft.emulate",
           evidence=_RECORDED),
    *(
        Policy(_PROMOTED, accumulate="fp32", name=f"h200-autocast-{fmt}", device="h200", evidence=_RECORDED,
               source=f"{_H200} with autocast, for ft.emulate. {_AUTOCAST_SOURCE}", casts_fp64=False,
               rules=_lists(_AUTOCAST_HALF, _AUTOCAST_FLOAT32, _AUTOCAST_WIDEST, fmt), loss_scale=scale)
        for fmt, scale in (("fp16", "dynamic"), ("bf16", 1.0))
    ),
    *(
        Policy(_PROMOTED, accumulate="fp32", name=f"autocast-{fmt}", source=_AUTOCAST_SOURCE, evidence=_LISTS,
               casts_fp64=False,
               rules=_lists(_AUTOCAST_HALF, _AUTOCAST_FLOAT32, _AUTOCAST_WIDEST, fmt), loss_scale=scale)
        for fmt, scale in (("fp16", "dynamic"), ("bf16", 1.0))
    ),
    Policy(Op("fp32"), accumulate="fp32", name="apex-o0", source=f"{_APEX_SOURCE} O0: FP32", evidence=_LISTS),
    Policy(_PROMOTED, accumulate="fp32", name="apex-o1", loss_scale="dynamic",
           rules=_lists(_APEX_HALF, _APEX_FLOAT32, _APEX_WIDEST, "fp16"),
           source=f"{_APEX_SOURCE} O1: functions are patched by lists, weights are in FP32", evidence=_LISTS),
    Policy(**_IN_HALF, weights="fp32", name="apex-o2", loss_scale="dynamic", evidence=_LISTS,
           rules={"batch_norm": Op("fp32", result="fp16"), "cross_entropy|mse_loss": Op("fp32", result="fp32")},
           source=f"{_APEX_SOURCE} O2: the model in FP16 except batch norm, FP32 master weights"),
    Policy(**_IN_HALF, weights="fp16", name="apex-o3", evidence=_LISTS,
           source=f"{_APEX_SOURCE} O3: the model in FP16, without master weights"),
    _beside_linear("te-fp8", _HYBRID, f"{_TE} DelayedScaling: E4M3 forward, E5M2 for gradients"),
    _beside_linear("te-fp8-current", replace(_HYBRID, scaling="current"), f"{_TE} Float8CurrentScaling"),
    _beside_linear("te-fp8-block", Gemm("e4m3", accumulate="hopper", scaling="te_block", result="bf16"),
                   f"{_TE} Float8BlockScaling: E4M3 for all, 1 x 128 and 128 x 128 blocks, scales of powers of two"),
    _beside_linear("deepseek", Gemm("e4m3", accumulate="hopper", scaling="deepseek", result="bf16"),
                   "DeepSeek-V3: E4M3 for all, 1 x 128 activations, 128 x 128 weights, promotion to FP32 every 128 "
                   "products; moments in BF16; embedding and head in BF16",
                   state="bf16", modules={"embedding|head|lm_head": Op("bf16", inside="fp32")}),
    _beside_linear("mxfp8", Gemm("e4m3", accumulate="blackwell", scaling="mx", result="bf16"),
                   "OCP Microscaling (MX): E4M3 with an E8M0 scale for 32 elements"),
    _beside_linear("mxfp8-te", Gemm("e4m3", accumulate="blackwell", scaling="te_mx", result="bf16"),
                   f"{_TE} MXFP8BlockScaling: as mxfp8, with scales that are rounded up"),
    _beside_linear("mxfp6", Gemm("e3m2", accumulate="blackwell", scaling="mx", result="bf16"),
                   "OCP Microscaling (MX): E3M2 with an E8M0 scale for 32 elements"),
    _beside_linear("mxfp4", Gemm("e2m1", accumulate="blackwell", scaling="mx", result="bf16"),
                   "OCP Microscaling (MX): E2M1 with an E8M0 scale for 32 elements"),
    _beside_linear("nvfp4", Gemm("e2m1", accumulate="blackwell", scaling="nvfp4", result="bf16"),
                   f"{_TE} NVFP4BlockScaling: E2M1 with an E4M3 scale for 16 elements, a random Hadamard transform, "
                   "and stochastic rounding of gradients"),
    _integer_products("w8a8", Gemm("int8", scaling="row"),
                      "INT8 products: one scale for each row of the input, and for each output of the weight"),
    _integer_products("w8a8-smoothquant", Gemm("int8", scaling="smoothquant"),
                      "SmoothQuant (arXiv 2211.10438) with alpha 0.5, then INT8 products as in w8a8"),
    _integer_products("w4a8", Gemm("int8", weight="int4", scaling="row"),
                      "INT8 inputs with one scale for each row, INT4 weights with one for each output"),
    _integer_products("w4a8-smoothquant", Gemm("int8", weight="int4", scaling="smoothquant"),
                      "SmoothQuant (arXiv 2211.10438) with alpha 0.5, then products as in w4a8"),
    Policy(_PROMOTED, accumulate="fp32", weights_at_use=Scheme(INT4, 128), name="w4a16", evidence=_METHODS,
           source="INT4 weights of linear and convolution layers in blocks of 128 with FP32 scales. "
                  f"{_BESIDE_INTEGERS}"),
)  # fmt: skip

POLICIES: Mapping[str, Policy] = MappingProxyType({policy.name: policy for policy in _NAMED})
"""The named policies.

>>> import floatsim as fs
>>> fs.training.POLICIES["autocast-fp16"].name
'autocast-fp16'
"""

POLICY_ALIASES: Mapping[str, str] = {
    "o0": "apex-o0",
    "o1": "apex-o1",
    "o2": "apex-o2",
    "o3": "apex-o3",
    "fp8-delayed": "te-fp8",
    "fp8-current": "te-fp8-current",
    "fp8-block": "te-fp8-block",
}
"""Other names of policies.

>>> import floatsim as fs
>>> fs.training.POLICY_ALIASES["o2"]
'apex-o2'
"""

_SEVERAL = {
    "int8": "w8a8 w8a8-smoothquant", "int4": "w4a16 w4a8 w4a8-smoothquant", "w4a4": "w4a8 w4a8-smoothquant nvfp4",
    "smoothquant": "w8a8-smoothquant w4a8-smoothquant", "w8a16": "w4a16 w8a8",
    "awq": "w4a16", "gptq": "w4a16", "llm-int8": "w8a8",
    "fp8": "te-fp8 mxfp8 te-fp8-current te-fp8-block deepseek", "fp6": "mxfp6", "fp4": "nvfp4 mxfp4",
    "mx": "mxfp8 mxfp6 mxfp4", "te": "te-fp8 te-fp8-current te-fp8-block mxfp8-te",
    "amp": "autocast-fp16 autocast-bf16",
    "autocast": "autocast-fp16 autocast-bf16", "mixed": "autocast-fp16 autocast-bf16 apex-o2",
    "apex": "apex-o0 apex-o1 apex-o2 apex-o3", "half": "fp16 bf16 autocast-fp16",
}  # fmt: skip
"""Names that several policies might have: an error suggests these."""

POLICY_MODIFIERS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "scaling": {"loss_scale": "dynamic"},
        "masters": {"weights": "fp32", "state": "fp32"},
        "stochastic": {"weight_rounding": "stochastic"},
        "kahan": {"kahan": True},
        "fp8-cache": {"cache": "e4m3"},
        "int8-cache": {"cache": "int8"},
        "int4-cache": {"cache": "int4"},
    }
)
"""The fields of a policy that "+scaling", "+masters" and others after a name change.

>>> import floatsim as fs
>>> list(fs.training.POLICY_MODIFIERS)
['scaling', 'masters', 'stochastic', 'kahan', 'fp8-cache', 'int8-cache', 'int4-cache']
"""

PolicyLike: TypeAlias = Policy | str


def as_policy(policy: PolicyLike) -> Policy:
    """Return a policy by its name, or the policy itself.

    Parameters
    ----------
    policy : Policy or str
        A name of `fs.training.POLICIES` in any case, or "O0" to "O3", "fp8-delayed", "fp8-current", "fp8-block". After
        a "+", modifiers: "scaling" (dynamic loss scaling), "masters" (FP32 master weights and moments), "stochastic"
        (stochastic rounding of the update of weights), "kahan" (compensated updates), "fp8-cache", "int8-cache" and
        "int4-cache" (attention stores keys and values in E4M3, or in integers with a scale for each token and head).

    Returns
    -------
    Policy

    Raises
    ------
    TypeError
        If it is neither a Policy nor a text.
    ValueError
        For an unknown name or modifier. The message has the nearest match.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.training.as_policy("fp16+masters+scaling")
    Policy('fp16+masters+scaling', default=Op(FP16), accumulate=fp16, weights=FP32, activations=FP16, state=FP32)
    >>> fs.training.as_policy("autocast-fp61")
    Traceback (most recent call last):
    ValueError: policy 'autocast-fp61' is not known; did you mean 'autocast-fp16'?
    """
    if isinstance(policy, Policy):
        return policy
    if not isinstance(policy, str):
        raise TypeError(f"policy must be a Policy or the name of one, not {policy!r}")
    name, *modifiers = (part.strip().lower().replace("_", "-") for part in policy.split("+"))
    name = POLICY_ALIASES.get(name, name)
    if name not in POLICIES:
        several = ", ".join(map(repr, _SEVERAL.get(name, "").split()))
        hint = f"did you mean one of {several}?" if several else name_hint(name, [*POLICIES, *POLICY_ALIASES])
        raise ValueError(f"policy {policy!r} is not known; {hint}")
    found = POLICIES[name]
    for modifier in modifiers:
        if modifier not in POLICY_MODIFIERS:
            raise ValueError(f"policy {policy!r}: no modifier {modifier!r}; {name_hint(modifier, POLICY_MODIFIERS)}")
        found = replace(found, **POLICY_MODIFIERS[modifier], name=f"{found.name}+{modifier}")
    return found
