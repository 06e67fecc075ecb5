"""The names of operations that the rules of a policy may use, and their synonyms in PyTorch."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from floatsim.formats._validation import name_hint

__all__ = ["OPERATIONS", "Operation", "known_names", "matches", "operation_names", "operation_of"]


@dataclass(frozen=True)
class Operation:
    """An operation of the laboratory, and the names of the same operation in PyTorch.

    Attributes
    ----------
    name : str
        The name in the laboratory.
    product : bool
        Whether it is a matrix product or a sum of matrix products: its formats may be a `Gemm`.
    synonyms : tuple of str
        The names of functions of PyTorch and of ATen.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.training.OPERATIONS["softmax"].synonyms
    ('softmin', '_softmax', '_safe_softmax')
    """

    name: str
    product: bool
    synonyms: tuple[str, ...]


_PRODUCTS = {
    "linear": "addmm mm matmul __matmul__ mv addmv addr chain_matmul multi_dot",
    "bmm": "baddbmm addbmm einsum linalg_vecdot",
    "attention": (
        "sdpa scaled_dot_product_attention _scaled_dot_product_flash_attention "
        "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_efficient_attention "
        "_scaled_dot_product_attention_math _native_multi_head_attention multi_head_attention"
    ),
    "conv2d": (
        "conv1d conv3d conv_tbc convolution _convolution conv_transpose1d conv_transpose2d conv_transpose3d "
        "mkldnn_convolution"
    ),
    "rnn_cell": "RNNCell rnn_tanh rnn_relu",
    "lstm_cell": "LSTMCell lstm mkldnn_rnn_layer",
    "gru_cell": "GRUCell gru",
    "dot": "vdot inner",
    "bilinear": "",
    "tensordot": "",
}
_OTHERS = {
    "softmax": "softmin _softmax _safe_softmax",
    "log_softmax": "_log_softmax",
    "cross_entropy": "cross_entropy_loss nll_loss nll_loss_nd nll_loss_forward",
    "layer_norm": "native_layer_norm",
    "rms_norm": "_fused_rms_norm",
    "batch_norm": "native_batch_norm _native_batch_norm_legit cudnn_batch_norm",
    "group_norm": "native_group_norm",
    "instance_norm": "",
    "local_response_norm": "",
    "residual_add": "add add_ __add__",
    "sub": "subtract __sub__ rsub",
    "mul": "multiply __mul__",
    "div": "divide true_divide __truediv__",
    "relu": "relu_ threshold",
    "prelu": "leaky_relu rrelu _prelu_kernel",
    "gelu": "",
    "silu": "swish",
    "sigmoid": "logistic",
    "tanh": "",
    "softplus": "",
    "elu": "celu selu",
    "hardtanh": "relu6 hardswish hardsigmoid",
    "max_pool": (
        "max_pool1d max_pool2d max_pool3d max_pool2d_with_indices max_pool3d_with_indices adaptive_max_pool1d "
        "adaptive_max_pool2d adaptive_max_pool3d"
    ),
    "avg_pool": (
        "avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d "
        "_adaptive_avg_pool2d _adaptive_avg_pool3d"
    ),
    "embedding": "index_select",
    "dropout": "native_dropout",
    "sum": "nansum",
    "mean": "",
    "std": "var var_mean std_mean",
    "norm": "linalg_vector_norm renorm",
    "prod": "",
    "cumsum": "",
    "cumprod": "",
    "normalize": "",
    "interpolate": "upsample_nearest2d upsample_bilinear2d",
    "cat": "concat concatenate stack",
    "atan2": "",
    "addcdiv": "addcdiv_",
    "addcmul": "addcmul_",
    "lerp": "lerp_",
    "cross": "linalg_cross",
    "grid_sample": "grid_sampler",
    "index_put": "index_put_",
    "scatter_add": "scatter_add_",
    "maximum": "minimum",
    "clamp": "clamp_ clip nan_to_num",
    "eq": "ne lt le gt ge",
    "pow": "__pow__ __rpow__",
    "reciprocal": "__rdiv__ __rtruediv__",
    "sqrt": "",
    "rsqrt": "",
    "exp": "",
    "exp2": "",
    "expm1": "",
    "log": "",
    "log2": "",
    "log10": "",
    "log1p": "",
    "sin": "",
    "cos": "",
    "tan": "",
    "sinh": "",
    "cosh": "",
    "asin": "",
    "acos": "",
    "atan": "",
    "asinh": "",
    "acosh": "",
    "atanh": "",
    "erf": "erfc",
    "erfinv": "",
    "mse_loss": "",
    "l1_loss": "",
    "smooth_l1_loss": "huber_loss",
    "kl_div": "",
    "binary_cross_entropy": "",
    "binary_cross_entropy_with_logits": "",
    "cosine_embedding_loss": "",
    "cosine_similarity": "",
    "hinge_embedding_loss": "",
    "margin_ranking_loss": "",
    "multi_margin_loss": "",
    "multilabel_margin_loss": "",
    "poisson_nll_loss": "",
    "soft_margin_loss": "",
    "triplet_margin_loss": "",
    "floor": "ceil round trunc",
    "remainder": "fmod",
    "hypot": "",
    "neg": "abs",
    "mish": "",
    "softshrink": "hardshrink",
    "logsumexp": "",
    "other": "",
    "cdist": "",
    "dist": "",
    "pdist": "",
}


def _operations(table: dict[str, str], product: bool) -> dict[str, Operation]:
    return {name: Operation(name, product, tuple(synonyms.split())) for name, synonyms in table.items()}


OPERATIONS: dict[str, Operation] = {**_operations(_PRODUCTS, True), **_operations(_OTHERS, False)}
"""The operations by name. The names of PyTorch are those of its autocast lists, and of ATen. "other" stands for every
operation of PyTorch without a name here.

>>> import floatsim as fs
>>> fs.training.OPERATIONS["linear"].product
True
"""

_HOME = {name.lower(): each for each in OPERATIONS.values() for name in (each.name, *each.synonyms)}


def known_names() -> list[str]:
    """Return all names, synonyms included.

    >>> "baddbmm" in known_names()
    True
    """
    return [name for each in OPERATIONS.values() for name in (each.name, *each.synonyms)]


def operation_of(name: str) -> Operation:
    """Return the operation of a name or of a synonym. Raise a ValueError with the nearest name for others.

    >>> operation_of("mm").name
    'linear'
    """
    if not isinstance(name, str):
        raise TypeError(f"operation must be a name, such as 'linear', not {name!r}")
    found = _HOME.get(name.strip().lower())
    if found is None:
        near = name_hint(name.lower(), known_names())
        hint = near if near.startswith("did you mean") else "fs.training.OPERATIONS lists the names"
        raise ValueError(f"operation {name!r} is not known; {hint}")
    return found


def operation_names(name: str) -> tuple[str, ...]:
    """Return the name of an operation, then its synonyms.

    Parameters
    ----------
    name : str
        A name of the laboratory or of PyTorch.

    Returns
    -------
    tuple of str
        The given name first.

    Raises
    ------
    ValueError
        For an unknown name. The message has the nearest match.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.training.operation_names("baddbmm")
    ('baddbmm', 'bmm', 'addbmm', 'einsum', 'linalg_vecdot')
    """
    found = operation_of(name)
    own = name.strip()
    return (own, *(other for other in (found.name, *found.synonyms) if other.lower() != own.lower()))


def matches(pattern: str, names: Iterable[str]) -> bool:
    """Return whether one of the names fits one of the alternatives of a pattern: "mm|bmm", "conv*".

    >>> matches("mm|conv*", ["conv2d"]), matches("mm", ["bmm"])
    (True, False)
    """
    expression = _expression(pattern)
    return any(expression.fullmatch(name.lower()) for name in names)


@lru_cache(maxsize=1024)
def _expression(pattern: str) -> re.Pattern[str]:
    """Return the regular expression of the alternatives of a pattern."""
    return re.compile("|".join(fnmatch.translate(each.strip().lower()) for each in pattern.split("|")))
