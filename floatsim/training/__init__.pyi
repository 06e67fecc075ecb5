# Written by tools/write_stubs.py. Do not edit.

from floatsim.training.collectives.averaging import (
    GradientReduction, MixedPrecision, REDUCTIONS, fsdp_divide_factors, reduce_gradients,
)
from floatsim.training.collectives.compression import PowerSGD, RandomK, TopK, compressed_all_reduce, fp8_all_reduce
from floatsim.training.collectives.ring import all_reduce, reduce_scatter, ring_chunks
from floatsim.training.loop import Trainer, compare_policies, train
from floatsim.training.memory import TransformerShape, memory_table
from floatsim.training.monitoring.monitor import Monitor
from floatsim.training.monitoring.spikes import SpikePolicy, SpikeState, skipped_batches
from floatsim.training.monitoring.statistics import (
    first_non_finite, gradient_agreement, tensor_statistics, update_statistics,
)
from floatsim.training.networks.data import Data, digits_data
from floatsim.training.networks.execution import Execution
from floatsim.training.networks.networks import Network, as_network, mlp, small_cnn, transformer_block
from floatsim.training.optimizers.gradients import (
    accumulate_gradients, clip_by_global_norm, global_norm, shrink_embedding, shrink_gradient,
)
from floatsim.training.optimizers.optimizers import Adam, AdamW, OPTIMIZERS, Optimizer, RMSProp, SGD, as_optimizer
from floatsim.training.policies.arithmetic import Arithmetic
from floatsim.training.policies.caches import Cache
from floatsim.training.policies.named import POLICIES, POLICY_ALIASES, POLICY_MODIFIERS, as_policy
from floatsim.training.policies.operations import OPERATIONS, operation_names
from floatsim.training.policies.policy import Policy
from floatsim.training.policies.rules import Gemm, Op, SCALINGS, Scaler, Scaling
from floatsim.training.policies.storage import DYNAMIC8, DYNAMIC8_UNSIGNED, as_storage
from floatsim.training.scaling.layer_loss_scales import LayerLossScales
from floatsim.training.scaling.loss_scaling import (
    ApexLossScaler, DeepSpeedLossScaler, GradScaler, KerasLossScaler, LossScaler, StaticLossScaler, as_loss_scaler,
    overflowed, replay,
)
from floatsim.training.scaling.methods import BlockScaling, MXScaling, NVFP4Scaling, SCALING_METHODS, as_scaling
from floatsim.training.scaling.recommendation import recommend_format
from floatsim.training.scaling.schemes import ProductScheme, SchemeScaling
from floatsim.training.scaling.tensor_scaling import CurrentScaling, DelayedScaling, current_scale

__all__ = [
    "Adam", "AdamW", "ApexLossScaler", "Arithmetic", "BlockScaling", "Cache", "CurrentScaling", "DYNAMIC8",
    "DYNAMIC8_UNSIGNED", "Data", "DeepSpeedLossScaler", "DelayedScaling", "Execution", "Gemm", "GradScaler",
    "GradientReduction", "KerasLossScaler", "LayerLossScales", "LossScaler", "MXScaling", "MixedPrecision", "Monitor",
    "NVFP4Scaling", "Network", "OPERATIONS", "OPTIMIZERS", "Op", "Optimizer", "POLICIES", "POLICY_ALIASES",
    "POLICY_MODIFIERS", "Policy", "PowerSGD", "ProductScheme", "REDUCTIONS", "RMSProp", "RandomK", "SCALINGS",
    "SCALING_METHODS", "SGD", "Scaler", "Scaling", "SchemeScaling", "SpikePolicy", "SpikeState", "StaticLossScaler",
    "TopK", "Trainer", "TransformerShape", "accumulate_gradients", "all_reduce", "as_loss_scaler", "as_network",
    "as_optimizer", "as_policy", "as_scaling", "as_storage", "clip_by_global_norm", "compare_policies",
    "compressed_all_reduce", "current_scale", "digits_data", "first_non_finite", "fp8_all_reduce",
    "fsdp_divide_factors", "global_norm", "gradient_agreement", "memory_table", "mlp", "operation_names", "overflowed",
    "recommend_format", "reduce_gradients", "reduce_scatter", "replay", "ring_chunks", "shrink_embedding",
    "shrink_gradient", "skipped_batches", "small_cnn", "tensor_statistics", "train", "transformer_block",
    "update_statistics",
]
