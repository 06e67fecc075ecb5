# Written by tools/write_stubs.py. Do not edit.

from floatsim.training.arithmetic import Arithmetic
from floatsim.training.claims.claim import Claim, Verdict
from floatsim.training.claims.table import CLAIMS, ClaimTable, check_claims
from floatsim.training.collectives.averaging import (
    GradientReduction, MixedPrecision, REDUCTIONS, fsdp_divide_factors, reduce_gradients,
)
from floatsim.training.collectives.compression import (
    CompressionState, PowerSGD, RandomK, TopK, compressed_all_reduce, fp8_all_reduce,
)
from floatsim.training.collectives.ring import all_reduce, reduce_scatter, ring_chunks
from floatsim.training.data import Data, digits_data
from floatsim.training.execution import BadValue, Execution, TraceRow
from floatsim.training.gradients import (
    Clipped, accumulate_gradients, clip_by_global_norm, global_norm, shrink_embedding, shrink_gradient,
)
from floatsim.training.layer_loss_scales import LayerLossScales
from floatsim.training.loop import Comparison, Epoch, Event, Trainer, TrainingRun, compare_policies, train
from floatsim.training.loss_scaling import (
    ApexLossScaler, DeepSpeedLossScaler, GradScaler, KerasLossScaler, LossScaleStep, LossScaler, StaticLossScaler,
    as_loss_scaler, overflowed, replay,
)
from floatsim.training.memory import MemoryRow, MemoryTable, TransformerShape, memory_table
from floatsim.training.monitor import Monitor
from floatsim.training.monitors import (
    FirstNonFinite, GradientAgreement, TensorStatistics, UpdateStatistics, first_non_finite, gradient_agreement,
    tensor_statistics, update_statistics,
)
from floatsim.training.networks import Network, Pass, as_network, mlp, small_cnn, transformer_block
from floatsim.training.operations import OPERATIONS, Operation, operation_names
from floatsim.training.optimizers import Adam, AdamW, OPTIMIZERS, Optimizer, RMSProp, SGD, as_optimizer
from floatsim.training.policies import POLICIES, POLICY_ALIASES, POLICY_MODIFIERS, as_policy
from floatsim.training.policy import Decision, Policy
from floatsim.training.questions.question import Answer, Chart, Question
from floatsim.training.questions.table import QUESTIONS, answer_question, answer_questions
from floatsim.training.recommendation import Recommendation, recommend_format
from floatsim.training.records import Gemm, Op, SCALINGS, Scaler, Scaling
from floatsim.training.scaling import BlockScaling, MXScaling, NVFP4Scaling, SCALING_METHODS, as_scaling
from floatsim.training.spikes import SpikePolicy, SpikeState, skipped_batches
from floatsim.training.storage import DYNAMIC8, DYNAMIC8_UNSIGNED, as_storage
from floatsim.training.tensor_scaling import CurrentScaling, DelayedScaling, DelayedState, current_scale

__all__ = [
    "Adam", "AdamW", "Answer", "ApexLossScaler", "Arithmetic", "BadValue", "BlockScaling", "CLAIMS", "Chart", "Claim",
    "ClaimTable", "Clipped", "Comparison", "CompressionState", "CurrentScaling", "DYNAMIC8", "DYNAMIC8_UNSIGNED",
    "Data", "Decision", "DeepSpeedLossScaler", "DelayedScaling", "DelayedState", "Epoch", "Event", "Execution",
    "FirstNonFinite", "Gemm", "GradScaler", "GradientAgreement", "GradientReduction", "KerasLossScaler",
    "LayerLossScales", "LossScaleStep", "LossScaler", "MXScaling", "MemoryRow", "MemoryTable", "MixedPrecision",
    "Monitor", "NVFP4Scaling", "Network", "OPERATIONS", "OPTIMIZERS", "Op", "Operation", "Optimizer", "POLICIES",
    "POLICY_ALIASES", "POLICY_MODIFIERS", "Pass", "Policy", "PowerSGD", "QUESTIONS", "Question", "REDUCTIONS",
    "RMSProp", "RandomK", "Recommendation", "SCALINGS", "SCALING_METHODS", "SGD", "Scaler", "Scaling", "SpikePolicy",
    "SpikeState", "StaticLossScaler", "TensorStatistics", "TopK", "TraceRow", "Trainer", "TrainingRun",
    "TransformerShape", "UpdateStatistics", "Verdict", "accumulate_gradients", "all_reduce", "answer_question",
    "answer_questions", "as_loss_scaler", "as_network", "as_optimizer", "as_policy", "as_scaling", "as_storage",
    "check_claims", "clip_by_global_norm", "compare_policies", "compressed_all_reduce", "current_scale", "digits_data",
    "first_non_finite", "fp8_all_reduce", "fsdp_divide_factors", "global_norm", "gradient_agreement", "memory_table",
    "mlp", "operation_names", "overflowed", "recommend_format", "reduce_gradients", "reduce_scatter", "replay",
    "ring_chunks", "shrink_embedding", "shrink_gradient", "skipped_batches", "small_cnn", "tensor_statistics", "train",
    "transformer_block", "update_statistics",
]
