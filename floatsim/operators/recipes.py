"""Recipes: the format of every intermediate and the accumulation of every sum of the operators, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias

from floatsim.accumulation import AccumulationLike, as_accumulation, parse
from floatsim.formats import FP32, FP64, FormatLike, as_format
from floatsim.formats._validation import name_hint
from floatsim.operators.steps import OPERATORS, operator_steps

__all__ = ["EVERY", "FLOAT64", "RECIPES", "SAME", "LibrarySum", "Recipe", "RecipeLike", "SumLike", "as_recipe"]

EVERY = "*"
"""The key of a recipe's entries for all operators that have such a step."""
SAME = "same"
"""In a recipe, the format of an operand as it is given; of a step that is no operand, the format of the first operand.
In the accumulation of a sum, the format of the sum's step."""


@dataclass(frozen=True)
class LibrarySum:
    """In a recipe, the sum of a library's function, which depends on the shape and the format of the operand.

    Attributes
    ----------
    function : str
        A reduction that `fs.library_sum` describes on a device.
    device : str
        The device.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.operators.RECIPES["pytorch-cuda"].accumulation_of("softmax", "sum")
    LibrarySum(function='torch.softmax', device='h200')
    """

    function: str
    device: str


SumLike: TypeAlias = "AccumulationLike | LibrarySum"
"""The accumulation of a sum in a recipe."""


@dataclass(frozen=True)
class Recipe:
    """The format of every intermediate and the accumulation of every sum, for all operators.

    Attributes
    ----------
    name : str
        The name, for messages and tables.
    format : format
        The format of each step without an entry in `formats`; "same" stands for the format of the input.
    accumulate : description
        The accumulation of each sum without an entry in `accumulations`; "same" in a text stands for the format of the
        sum's step.
    formats : mapping
        By operator, or "*" for all operators: step to format.
    accumulations : mapping
        By operator, or "*": sum to accumulation, or to a `LibrarySum`.
    functions : str
        The definition of exp, log, rsqrt and other functions in FP32: "exact", rounded once, or "cuda", as CUDA's
        library computes them (keyword `functions` of `fs.exp`).
    variants : mapping
        By operator: the variant, that is the order of computation. Others have their first variant.
    operators : tuple of str
        The operators that the source describes. Empty: all. Others run in the default formats and order of the recipe:
        what the library computes for them is not part of the recipe. `describes` tests this.
    source : str
        Where the recipe comes from.
    evidence : str
        How the recipe was verified, and which bits can differ from the library.

    Raises
    ------
    ValueError
        For unknown operators, variants, steps and formats. The message has the nearest match.

    Examples
    --------
    >>> import floatsim as fs
    >>> mixed = fs.operators.Recipe("mixed", format="bf16", formats={"softmax": {"exp": "fp32", "sum": "fp32"}})
    >>> fs.operators.softmax(fs.array([1.0, 2.0, 3.0], "bf16"), recipe=mixed)
    FloatArray([0.08984, 0.2451, 0.6641], BF16)
    """

    name: str
    format: FormatLike = FP32
    accumulate: AccumulationLike = "sequential(same)"
    formats: Mapping[str, Mapping[str, FormatLike]] = field(default_factory=dict)
    accumulations: Mapping[str, Mapping[str, SumLike]] = field(default_factory=dict)
    functions: str = "exact"
    variants: Mapping[str, str] = field(default_factory=dict)
    operators: tuple[str, ...] = ()
    source: str = ""
    evidence: str = ""

    def __post_init__(self) -> None:
        _checked_format(self.format)
        _checked_accumulation(self.accumulate)
        for entries, sums in ((self.formats, False), (self.accumulations, True)):
            for operator, steps in entries.items():
                _checked_steps(self.name, operator, steps, sums)
        for operator in self.operators:
            operator_steps(operator)
        if self.functions not in _FUNCTIONS:
            hint = name_hint(self.functions, _FUNCTIONS)
            raise ValueError(f"recipe {self.name!r}: functions={self.functions!r} is not known; {hint}")
        for operator, variant in self.variants.items():
            known = operator_steps(operator).variants
            if variant not in known:
                raise ValueError(
                    f"recipe {self.name!r}: {operator} has no variant {variant!r}; {name_hint(variant, known)}"
                )

    def describes(self, operator: str) -> bool:
        """Return whether the source describes an operator.

        Examples
        --------
        >>> import floatsim as fs
        >>> [fs.operators.as_recipe("pytorch-cuda").describes(name) for name in ("softmax", "conv2d")]
        [True, False]
        """
        operator_steps(operator)
        return not self.operators or operator in self.operators

    def format_of(self, operator: str, step: str) -> FormatLike:
        """Return the format of a step, or "same"."""
        for key in (operator, EVERY):
            if step in self.formats.get(key, ()):
                return self.formats[key][step]
        return self.format

    def accumulation_of(self, operator: str, step: str) -> SumLike:
        """Return the accumulation of a sum; a text may contain "same"."""
        for key in (operator, EVERY):
            if step in self.accumulations.get(key, ()):
                return self.accumulations[key][step]
        return self.accumulate

    def variant_of(self, operator: str) -> str:
        """Return the variant of an operator."""
        return self.variants.get(operator, next(iter(operator_steps(operator).variants)))


RecipeLike: TypeAlias = Recipe | str
_FUNCTIONS = ("exact", "cuda")


def _checked_format(fmt: FormatLike) -> None:
    if fmt != SAME and as_format(fmt).is_scale:
        raise ValueError(f"{as_format(fmt).name} is a scale format, which has no arithmetic")


def _checked_accumulation(accumulate: AccumulationLike) -> None:
    if isinstance(accumulate, str):
        parse(accumulate, FP32)
    else:
        as_accumulation(accumulate)


def _checked_steps(recipe: str, operator: str, steps: Mapping[str, Any], sums: bool) -> None:
    """Raise a ValueError for steps that the operator does not have, and for formats and accumulations not known."""
    each = OPERATORS.values() if operator == EVERY else [operator_steps(operator)]
    known = sorted({step for one in each for step in (one.sums if sums else one.names)})
    for step, value in steps.items():
        if step not in known:
            what = "sum" if sums else "step"
            of = "no operator" if operator == EVERY else operator
            has = "has a" if operator == EVERY else "has no"
            raise ValueError(f"recipe {recipe!r}: {of} {has} {what} {step!r}; {name_hint(step, known)}")
        if sums:
            if not isinstance(value, LibrarySum):
                _checked_accumulation(value)
        else:
            _checked_format(value)


# -- the named recipes -------------------------------------------------------------------------------------------------

_OPERANDS = sorted({operand for operator in OPERATORS.values() for operand in operator.operands})
_ENDS: dict[str, FormatLike] = dict.fromkeys(
    [*_OPERANDS, "updated_mean", "updated_var", "updated_cell", "output"], SAME
)
_SIXTEEN_LANES = "strided(sequential(fp32), 16, pairwise(fp32, tree=halving))"
_BATCH_MOMENTS: dict[str, FormatLike] = dict.fromkeys(("sum", "square", "square_sum", "variance"), FP64)


def _each_step_but_products(operator: str) -> dict[str, FormatLike]:
    """Return entries with the format of the input for all steps of a cell except the sums of products."""
    steps = OPERATORS[operator]
    return {step: SAME for step in steps.names if step not in steps.sums}


_ADJACENT = "tree(same, ((0, 1), (2, 3)))"
_CUDNN_SUMS = {"scores": "hopper", "product": "hopper", "block_sum": "sequential(same)", "sum": _ADJACENT}
_FMA = "sequential(same, fused)"
_WARP = "strided(sequential(same), 32, pairwise(same, tree=halving))"
_RECORDED = "Compared with outputs of an NVIDIA H200 (torch 2.11.0, CUDA 13.0, cuDNN 9.19), one batch, two heads:"
_NO_PACKAGE = "The order was read in the source. It was not compared with an installed library"

FLOAT64 = Recipe(
    "float64",
    format="fp64",
    source="NumPy's float64 functions, without a rounding to another format",
    evidence="A baseline for errors. The last bits depend on NumPy and on the machine.",
)

_NAMED = (
    *(
        Recipe(
            f"all-{name}",
            format=name,
            source=f"Every operand, intermediate and sum in {name.upper()}, in sequential order",
            evidence="By definition.",
        )
        for name in ("fp32", "fp16", "bf16")
    ),
    Recipe(
        "fp32-inside",
        formats={EVERY: _ENDS},
        source="Operands in their own format, every intermediate and sum in FP32 and in sequential order, one rounding "
        "of the result to the format of the input",
        evidence="By definition.",
    ),
    Recipe(
        "pytorch-cpu",
        formats={
            EVERY: _ENDS,
            "log_softmax": {"sum": SAME, "log": SAME},
            "cross_entropy": {"sum": SAME, "log": SAME, "result": SAME},
            "gelu": {"input": FP32},
            "gelu_backward": {"gradient": FP32, "input": FP32},
            "tanh_backward": {"square": FP64},
            "batch_norm": _BATCH_MOMENTS,
            "layer_norm_backward": {"mean": SAME, "rsqrt": SAME, "weight_gradient": SAME, "bias_gradient": SAME},
            "max_pool_backward": {"sum": SAME},
            "avg_pool_backward": {"share": SAME, "sum": SAME},
            "embedding_backward": {"sum": SAME},
            "attention": {"probabilities": SAME},
            **{name: _each_step_but_products(name) for name in OPERATORS if "_cell" in name},
        },
        accumulations={
            "softmax": {"sum": _SIXTEEN_LANES},
            "log_softmax": {"sum": _SIXTEEN_LANES},
            "cross_entropy": {"sum": _SIXTEEN_LANES},
            "rms_norm": {"square_sum": _SIXTEEN_LANES},
            "softmax_backward": {"sum": _SIXTEEN_LANES},
            "log_softmax_backward": {"sum": _SIXTEEN_LANES},
        },
        variants={
            "softmax": "reciprocal",
            "layer_norm": "welford",
            "silu": "composed",
            "gelu": "erf",
            "attention": "flash-attention-2",
        },
        operators=tuple(OPERATORS),
        source="PyTorch, aten/src/ATen/native/cpu/SoftMaxKernel.cpp and layer_norm_kernel.cpp, and results of "
        "PyTorch 2.13.0: FP32 inside; sums of softmax in 16 lanes, as with AVX-512; softmax multiplies by 1/sum; "
        "log_softmax rounds the sum and its logarithm to the format of the input, and subtracts the maximum, then the "
        "logarithm; layer_norm by Welford. From results only: the backward pass of layer_norm reads mean and rsqrt in "
        "the format of the input; the backward passes of layer_norm, pooling and embedding add in that format; "
        "tanh_backward fuses 1 - y * y; batch_norm takes its moments in FP64; cells and their backward passes round "
        "each step but the products to that format; attention rounds exp(score - max) to that format and divides at "
        "the end",
        evidence="Compared with PyTorch 2.13.0, one thread, on a processor with AVX-512; the documentation of "
        "operators has the table. Equal in FP32, FP16 and BF16: relu, residual_add, pooling, embedding, the backward "
        "operators of relu, tanh, pooling and embedding. In FP16 and BF16 at least 99.7 % of the results of most "
        "others are equal. FP32 results are within 4 units of 2**-24, relative to the norm (attention and cells 8, "
        "batch_norm_backward 16): the order of sums in matrix products and means, and exponentials, are PyTorch's "
        "own. One set of random operands for each operator; formats that are known from results only were chosen on "
        "such operands. The backward pass of attention has another order. Other processors have other lanes, and more "
        "threads another order of the gradients of weights of norms.",
    ),
    Recipe(
        "pytorch-cuda",
        formats={
            EVERY: _ENDS,
            "cross_entropy": {"result": SAME},
            "cross_entropy_backward": {"result": SAME, "target_gradient": SAME},
            "softmax_backward": {"product": SAME},
            "gelu": {"input": FP32},
            "gelu_backward": {"gradient": FP32, "input": FP32},
            "silu_backward": {"gradient": FP32, "input": FP32},
        },
        accumulations={
            "softmax": {"sum": LibrarySum("torch.softmax", "h200")},
            "log_softmax": {"sum": LibrarySum("torch.log_softmax", "h200")},
            "cross_entropy": {
                "sum": LibrarySum("torch.log_softmax", "h200"),
                "total": "threads(same, 32, pairwise(same, tree=halving))",
            },
            "layer_norm": {"square_sum": LibrarySum("torch.native_layer_norm", "h200")},
            "rms_norm": {"square_sum": LibrarySum("torch.rms_norm", "h200")},
            "softmax_backward": {"sum": LibrarySum("torch._softmax_backward_data", "h200")},
            "log_softmax_backward": {"sum": LibrarySum("torch._log_softmax_backward_data", "h200")},
            "cross_entropy_backward": {"sum": LibrarySum("torch.log_softmax", "h200")},
            **{
                operator: {
                    "square_sum": LibrarySum(f"torch.{norm}", "h200"),
                    **dict.fromkeys(sums.split(), LibrarySum("torch.native_layer_norm_backward", "h200")),
                }
                for operator, norm, sums in (
                    (
                        "layer_norm_backward",
                        "native_layer_norm",
                        "gradient_sum product_sum weight_gradient bias_gradient",
                    ),
                    ("rms_norm_backward", "rms_norm", "product_sum weight_gradient"),
                )
            },
            "linear_backward": {"bias_gradient": LibrarySum("torch.sum", "h200")},
        },
        functions="cuda",
        variants={
            "layer_norm": "threads",
            "rms_norm": "threads",
            "softmax_backward": "fused",
            "log_softmax_backward": "fused",
            "cross_entropy_backward": "from-log-softmax",
            "layer_norm_backward": "threads",
            "rms_norm_backward": "threads",
            "gelu_backward": "erf",
        },
        operators=(
            "softmax",
            "log_softmax",
            "cross_entropy",
            "layer_norm",
            "rms_norm",
            "gelu",
            "softmax_backward",
            "log_softmax_backward",
            "cross_entropy_backward",
            "layer_norm_backward",
            "rms_norm_backward",
            "gelu_backward",
        ),
        source="PyTorch 2.11.0 with CUDA 13.0, aten/src/ATen/native/cuda/SoftMax.cu, PersistentSoftmax.cuh, "
        "layer_norm_kernel.cu, Loss.cu and ActivationGeluKernel.cu: FP32 inside, with CUDA's functions. The orders of "
        "sums follow from the shape: `floatsim.accumulation.gpu_reductions`",
        evidence="Compared with an NVIDIA H200: `floatsim docs gpu-reductions` has the table.",
    ),
    Recipe(
        "transformers",
        formats={EVERY: _ENDS, "rms_norm": {"input": SAME, "weight": SAME, "normalized": SAME, "weighted": SAME}},
        operators=("rms_norm",),
        source="Hugging Face transformers, LlamaRMSNorm: x * rsqrt(mean(x^2) + eps) is rounded to the format of the "
        "input before the product with the weight",
        evidence=f"{_NO_PACKAGE}. The order of the mean is PyTorch's.",
    ),
    Recipe(
        "flash-attention-2",
        formats={
            EVERY: _ENDS,
            "attention": {"probabilities": SAME},
            "attention_backward": dict.fromkeys(
                ("probabilities", "forward_output", "rounded_power", "rounded_result"), SAME
            ),
        },
        accumulations={
            "attention": {
                "scores": "hopper",
                "product": "hopper",
                "sum": "pairwise(same, tree=halving)",
                "weight_sum": "pairwise(same, tree=halving)",
            },
            "attention_backward": {
                **dict.fromkeys(
                    ("scores", "product", "probability_gradient", "value_gradient", "query_product", "key_product"),
                    "hopper",
                ),
                **dict.fromkeys(("sum", "delta"), "pairwise(same, tree=halving)"),
            },
        },
        functions="cuda",
        variants={"attention": "flash-kernel", "attention_backward": "flash-kernel"},
        operators=("attention", "attention_backward"),
        source="FlashAttention-2 in PyTorch 2.11.0 on an H200 (SDPBackend.FLASH_ATTENTION), FP16 or BF16 operands: "
        "csrc/flash_attn/src/softmax.h, flash_fwd_kernel.h and flash_fwd_launch_template.h, and results. Key blocks "
        "from the last to the first, probabilities in the format of the operands, ex2.approx",
        evidence=f"{_RECORDED} d of 64 and 128, 64 to 512 keys, full and causal, keys in one part and in two: all "
        "bits. Other d and more than two parts are from the source. Gradients: d of 64, 64 to 200 keys: all bits.",
    ),
    Recipe(
        "cudnn-attention",
        formats={
            EVERY: _ENDS,
            "attention": {"probabilities": SAME},
            "attention_backward": dict.fromkeys(
                ("probabilities", "forward_output", "rounded_power", "rounded_result"), SAME
            ),
        },
        accumulations={
            "attention": _CUDNN_SUMS,
            "attention_backward": {
                **_CUDNN_SUMS,
                **dict.fromkeys(("probability_gradient", "value_gradient", "query_product", "key_product"), "hopper"),
                "delta": "pairwise(same, tree=halving)",
            },
        },
        variants={"attention": "cudnn-kernel", "attention_backward": "cudnn-kernel"},
        operators=("attention", "attention_backward"),
        source="cuDNN 9.19 in PyTorch 2.11.0 on an H200 (SDPBackend.CUDNN_ATTENTION), FP16 or BF16 operands, from "
        "results: key blocks from the first to the last, ex2.approx and rcp.approx",
        evidence=f"{_RECORDED} d of 64 and 128, 64 to 512 keys, full and causal: all bits; 2 x 4 heads with d of 16 "
        "and 32 keys, too. Gradients: d of 64 and 64 keys: all bits. Of more keys up to 0.5 % differ, and with d of 16 "
        "one bit of an intermediate.",
    ),
    Recipe(
        "efficient-attention",
        formats={EVERY: _ENDS, "attention": {"probabilities": SAME}},
        accumulations={
            "attention": {
                "scores": "tensorcore(hopper, mma.m16n8k8)",
                "product": "tensorcore(hopper, mma.m16n8k8)",
                "block_sum": "sequential(same)",
                "warp_sum": _ADJACENT,
            }
        },
        variants={"attention": "efficient-kernel"},
        operators=("attention",),
        source="The memory-efficient attention of PyTorch 2.11.0 on an H200 (SDPBackend.EFFICIENT_ATTENTION), FP16 or "
        "BF16 operands, from results: key blocks from the first to the last, ex2.approx",
        evidence=f"{_RECORDED} d of 64 and 128, 64 to 512 keys, full and causal: all bits.",
    ),
    Recipe(
        "math",
        formats={
            EVERY: _ENDS,
            "attention": dict.fromkeys(("query", "key", "value"), FP32),
            "attention_backward": dict.fromkeys(("gradient", "query", "key", "value"), FP32),
        },
        accumulations={
            "attention": {"scores": _FMA, "sum": _WARP, "product": _FMA},
            "attention_backward": {
                "scores": _FMA,
                "sum": _WARP,
                "sum_of_products": _WARP,
                "value_gradient": _FMA,
                "probability_gradient": _FMA,
                "query_product": _FMA,
                "key_product": _FMA,
            },
        },
        functions="cuda",
        variants={"attention": "scale-both", "attention_backward": "scale-both"},
        operators=("attention", "attention_backward"),
        source="PyTorch 2.11.0 on an H200, SDPBackend.MATH with FP16 or BF16 operands: "
        "aten/src/ATen/native/transformers/attention.cpp, _scaled_dot_product_attention_math; FP32 inside, both "
        "operands scaled by the root, products by a kernel of cuBLAS with one fused operation for each term, softmax "
        "of at most 1024 keys by 32 lanes, then a butterfly",
        evidence=f"{_RECORDED} d of 64 and 128, 64 to 512 keys, full and causal: all bits; gradients for d of 64, up "
        "to 200 keys, and 2 x 4 heads with d of 16 and 32 keys, too. cuBLAS chooses other kernels for other shapes: of "
        "one head with 64 and 128 keys, 6 of 20,480 bits differ.",
    ),
)

RECIPES: Mapping[str, Recipe] = MappingProxyType({recipe.name: recipe for recipe in (*_NAMED, FLOAT64)})
"""The named recipes.

>>> import floatsim as fs
>>> fs.operators.RECIPES["fp32-inside"].name, len(fs.operators.RECIPES) > 5
('fp32-inside', True)
"""


def as_recipe(recipe: RecipeLike) -> Recipe:
    """Return a recipe by its name, or the recipe itself.

    Parameters
    ----------
    recipe : Recipe or str
        A name, in upper or lower case.

    Returns
    -------
    Recipe

    Raises
    ------
    ValueError
        For an unknown name. The message has the nearest match.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.operators.as_recipe("all-fp16").format_of("softmax", "exp")
    'fp16'
    """
    if isinstance(recipe, Recipe):
        return recipe
    if not isinstance(recipe, str):
        raise TypeError(f"recipe must be a Recipe or the name of one, not {recipe!r}")
    name = recipe.strip().lower()
    if name not in RECIPES:
        raise ValueError(f"recipe {recipe!r} is not known; {name_hint(name, RECIPES)}")
    return RECIPES[name]
