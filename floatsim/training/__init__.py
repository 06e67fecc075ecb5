"""The low-precision training laboratory: policies, loss scaling, optimizers and networks, with exact roundings.

A *policy* names the format of each operation, tensor and sum of a training run, as data.

>>> import floatsim as fs
>>> policy = fs.training.as_policy("autocast-fp16")
>>> policy.decide("linear")
Decision(linear: operands FP16, sums fp32, result FP16, by the rule of linear)
>>> policy.decide("softmax")
Decision(softmax: operands FP32, sums fp32, result FP32, by the rule of softmax)
"""

from __future__ import annotations

from floatsim._lazy import lazy_exports

_HOMES = {
    ".policies.arithmetic": "Arithmetic",
    ".networks.data": "Data digits_data",
    ".networks.execution": "Execution",
    ".optimizers.gradients": "accumulate_gradients clip_by_global_norm global_norm shrink_embedding shrink_gradient",
    ".scaling.layer_loss_scales": "LayerLossScales",
    ".loop": "Trainer compare_policies train",
    ".scaling.loss_scaling": (
        "ApexLossScaler DeepSpeedLossScaler GradScaler KerasLossScaler LossScaler StaticLossScaler as_loss_scaler "
        "overflowed replay"
    ),
    ".networks.networks": "Network as_network mlp small_cnn transformer_block",
    ".policies.operations": "OPERATIONS operation_names",
    ".optimizers.optimizers": "Adam AdamW OPTIMIZERS Optimizer RMSProp SGD as_optimizer",
    ".policies.storage": "DYNAMIC8 DYNAMIC8_UNSIGNED as_storage",
    ".policies.caches": "Cache",
    ".policies.policy": "Policy",
    ".policies.rules": "Gemm Op SCALINGS Scaler Scaling",
    ".policies.named": "POLICIES POLICY_ALIASES POLICY_MODIFIERS as_policy",
    ".collectives.ring": "all_reduce reduce_scatter ring_chunks",
    ".collectives.averaging": "REDUCTIONS GradientReduction MixedPrecision fsdp_divide_factors reduce_gradients",
    ".collectives.compression": "PowerSGD RandomK TopK compressed_all_reduce fp8_all_reduce",
    ".scaling.tensor_scaling": "CurrentScaling DelayedScaling current_scale",
    ".scaling.methods": "SCALING_METHODS BlockScaling MXScaling NVFP4Scaling as_scaling",
    ".scaling.schemes": "ProductScheme SchemeScaling",
    ".memory": "TransformerShape memory_table",
    ".monitoring.monitor": "Monitor",
    ".monitoring.statistics": "first_non_finite gradient_agreement tensor_statistics update_statistics",
    ".scaling.recommendation": "recommend_format",
    ".monitoring.spikes": "SpikePolicy SpikeState skipped_batches",
}
__getattr__, __dir__, __all__ = lazy_exports(__name__, _HOMES)
