"""Claims 48 to 75 about hardware, memory, recipes and libraries."""

from __future__ import annotations

import numpy as np

from floatsim import BF16, E4M3, FP16, FP32, as_format, matmul, quantize_blocks
from floatsim.quantization import SCHEMES
from floatsim.tensorcore import ARCHITECTURES
from floatsim.training import all_reduce, memory_table
from studies.claims.claim import Claim, Finding, computed, decimal, not_computed

CLAIMS: dict[int, Claim] = {}

_DATASHEET = "a number of a datasheet, for the SXM module and dense matrices; it is no computation"
for _number, _text in (
    (48, "V100: 125 TFLOPS in FP16, 15.7 in FP32, about 8 times as many."),
    (49, "A100: 312 TFLOPS in BF16 and FP16, 19.5 in FP32."),
    (50, "H100: about 1979 TFLOPS in FP8, 989 in BF16."),
):
    not_computed(CLAIMS, _number, _text, "TRUE", _DATASHEET)


@computed(
    CLAIMS, 51, "The Tensor Cores of V100 and later accelerate FP16 and BF16.",
    architecture="volta", formats=("fp16", "bf16"),
)  # fmt: skip
def _formats_of_volta(architecture: str, formats: tuple[str, ...]) -> Finding:
    def takes(name: str, fmt: str) -> bool:
        each = as_format(fmt)
        return any(row.takes(each, each) for row in ARCHITECTURES[name].instructions)

    found = {name: [fmt for fmt in ("fp16", "bf16") if takes(name, fmt)] for name in (architecture, "ampere")}
    text = "; ".join(f"{name} multiplies {', '.join(each)}" for name, each in found.items())
    return Finding(all(takes(architecture, fmt) for fmt in formats), text)


@computed(
    CLAIMS, 52, "Training 7B parameters with Adam takes 112 GB in FP32, 112 in mixed precision, 56 all in 16 bits.",
    parameters=7e9, fp32=112.0, mixed=112.0, half=56.0,
)  # fmt: skip
def _seven_billion(parameters: float, fp32: float, mixed: float, half: float) -> Finding:
    half_moments = ("bf16", "bf16")
    tables = [
        memory_table(parameters, weights="fp32", masters=None, gradients="fp32"),
        memory_table(parameters, weights="fp16", gradients="fp16"),
        memory_table(parameters, weights="bf16", masters=None, gradients="bf16", moments=half_moments),
    ]
    totals = [table.total / 1e9 for table in tables]
    wide = memory_table(parameters, gradients="fp32").total / 1e9
    text = f"{totals} GB of 10^9 bytes, without activations; {wide:g} with FP32 gradients"
    return Finding(totals == [fp32, mixed, half], text)


@computed(
    CLAIMS, 53, "Mixed precision saves memory of activations only, not of the state of the parameters.",
    masters="fp32",
)  # fmt: skip
def _saving(masters: str | None) -> Finding:
    plain = memory_table(1e9, weights="fp32", masters=None, gradients="fp32").bytes_per_parameter
    mixed = memory_table(1e9, weights="fp16", masters=masters, gradients="fp16").bytes_per_parameter
    return Finding(plain == mixed, f"{plain:g} bytes per parameter in FP32, {mixed:g} in mixed precision")


@computed(CLAIMS, 54, "Training in FP8 saves about 50 % of the memory of BF16.", saving=0.5, cached="e4m3")
def _saving_of_fp8(saving: float, cached: str) -> Finding:
    element = as_format(cached).bits / BF16.bits
    state = [memory_table(1e9, weights=fmt, gradients="bf16").bytes_per_parameter for fmt in ("bf16", cached)]
    text = f"{100 * (1 - element):.0f} % of a tensor that is kept in FP8 in the place of BF16; of the state of the "
    found = f"parameters {100 * (1 - state[1] / state[0]):.0f} %, because masters and moments stay"
    return Finding(abs(1 - element - saving) < 0.05, text + found, 1 - state[1] / state[0] < 0.9 * saving)


@computed(CLAIMS, 55, "FP16 halves the bandwidth of communication, FP8 saves 75 %.", fp16=0.5, fp8=0.75)
def _bandwidth(fp16: float, fp8: float) -> Finding:
    savings = [1 - fmt.bits / FP32.bits for fmt in (FP16, E4M3)]
    q = quantize_blocks(np.ones((128, 1280), np.float32), "deepseek")
    scales = q.nbits / (q.codes.size * E4M3.bits) - 1
    text = f"compared with FP32: {100 * savings[0]:.0f} % and {100 * savings[1]:.0f} %; "
    return Finding(savings == [fp16, fp8], f"{text}FP32 scales for 1 x 128 add {100 * scales:.1f} %")


not_computed(
    CLAIMS, 56, "FP8 is 30 to 50 % faster, with 0.1 to 0.3 % of loss; BERT takes 2.1 h in the place of 3 h.",
    "UNVERIFIED", "no source is known, and a run on a GPU would be needed",
)  # fmt: skip
not_computed(
    CLAIMS, 57, "LLaMA 3 was trained in FP8.", "FALSE",
    "the report of Llama 3 (Meta, 2024) describes BF16 with FP32 accumulation of gradients",
)  # fmt: skip


@computed(
    CLAIMS, 58, "DeepSeek scales activations in blocks of 1 x 128, weights of 128 x 128, by their own amax.",
    activations=(1, 128), weights=(128, 128),
)  # fmt: skip
def _blocks_of_deepseek(activations: tuple[int, int], weights: tuple[int, int]) -> Finding:
    blocks = [SCHEMES[name].block for name in ("deepseek", "deepseek_weight")]
    x = np.random.default_rng(0).normal(size=(128, 256)).astype(np.float32)
    x[0, 0] = 1e5
    errors = {}
    for scheme in ("te_current", "deepseek"):
        y = quantize_blocks(x, scheme).values
        errors[scheme] = float(np.linalg.norm((y - x)[:, 1:]) / np.linalg.norm(x[:, 1:]))
    text = f"blocks {blocks}; with one outlier of 1e5, the other elements have the error "
    found = f"{decimal(errors['deepseek'])}, and {decimal(errors['te_current'])} with one scale for the tensor"
    return Finding(blocks == [tuple(activations), tuple(weights)], text + found)


not_computed(
    CLAIMS, 59, "DeepSeek accumulates in FP32 and then converts the sums back to FP8.", "FALSE",
    "source of DeepGEMM: products are BF16 or FP32, and are quantized when they are the input of the next product",
)  # fmt: skip
not_computed(
    CLAIMS, 62, "FP8 training uses E4M3 in the forward pass and E5M2 in the backward pass.", "PARTLY TRUE",
    "the default of TransformerEngine's per-tensor recipes; its block and MX recipes and DeepSeek use E4M3 everywhere",
)  # fmt: skip
not_computed(
    CLAIMS, 63, "FP8 runs in `te.fp8_autocast`, with the backward pass inside.", "MISLEADING",
    "documentation of TransformerEngine: the name is now `te.autocast`, and the backward pass is outside",
)  # fmt: skip
not_computed(
    CLAIMS, 64, "PyTorch has no RMSNorm.", "OUTDATED", "a fact about a library: torch.nn.RMSNorm exists since 2.4"
)  # fmt: skip
not_computed(
    CLAIMS, 65, "cross_entropy takes FP32 inputs only.", "FALSE",
    "a fact about a library: autocast casts to FP32, and the operation itself takes FP16",
)  # fmt: skip


@computed(
    CLAIMS, 67, "The inputs of all_reduce and reduce_scatter must be in FP32.", ranks=64, tolerated=0.01
)  # fmt: skip
def _communication(ranks: int, tolerated: float) -> Finding:
    x = np.random.default_rng(0).normal(1e-3, 1e-3, (ranks, 5000)).astype(np.float32)
    exact = x.astype(np.float64).sum(axis=0)
    errors = {}
    for wire in ("fp32", "fp16", "bf16"):
        y = all_reduce(x, wire=wire).values
        errors[wire] = float(np.mean(np.abs(y - exact)) / np.mean(np.abs(exact)))
    text = ", ".join(f"{wire} {decimal(error)}" for wire, error in errors.items())
    usable = max(errors.values()) < tolerated
    return Finding(errors["fp32"] < min(errors["fp16"], errors["bf16"]), f"errors of a ring of {ranks}: {text}", usable)


not_computed(
    CLAIMS, 68, "Recurrent networks are sensitive to precision, the LSTM cell is not.", "UNSUPPORTED",
    "no data are known; PyTorch's autocast runs RNNCell, LSTMCell and GRUCell in FP16 alike",
)  # fmt: skip
not_computed(
    CLAIMS, 69, "Mixed precision is enabled by apex `amp.initialize`.", "OUTDATED",
    "source of apex: `apex.amp` does not exist any more; torch.amp replaces it",
)  # fmt: skip
not_computed(
    CLAIMS, 71, "Adam's moments, and the updates and shards of FSDP, are always in FP32.", "FALSE",
    "facts about systems: DeepSpeed has bf16_optimizer_states, DeepSeek-V3 keeps BF16 moments, and FSDP's shards keep "
    "the format of the module",
)  # fmt: skip
not_computed(
    CLAIMS, 73, "AMP optimizes the graph automatically, and is on by default.", "MISLEADING",
    "documentation of PyTorch: autocast works in the dispatcher, and has to be enabled",
)  # fmt: skip
not_computed(
    CLAIMS, 74, "AMP needs PyTorch 1.6 or TensorFlow 2.4.", "TRUE", "versions of libraries; not verified here"
)  # fmt: skip


@computed(
    CLAIMS, 75, "Weight gradients are computed in FP32, because FP16 loses their precision.", accumulate="fp32"
)  # fmt: skip
def _weight_gradient(accumulate: str) -> Finding:
    rng = np.random.default_rng(0)
    x, g = (rng.normal(size=(4096, 16)).astype(np.float16) for _ in range(2))
    exact = x.astype(np.float64).T @ g.astype(np.float64)
    errors = {}
    for name, sums in (("FP32", accumulate), ("FP16", "fp16")):
        y = np.asarray(matmul(x.T, g, accumulate=sums, format=FP16), np.float64)
        errors[name] = float(np.linalg.norm(y - exact) / np.linalg.norm(exact))
    text = ", ".join(f"{error:.1e} with sums in {name}" for name, error in errors.items())
    needed = errors["FP32"] < errors["FP16"] / 3
    return Finding(
        needed, f"errors of a weight gradient from FP16 operands: {text}; FP32 operands are not needed", True
    )
