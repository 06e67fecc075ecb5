"""The steps of every operator: its named intermediates, in the order in which they are computed.

A step is an operand, a value or a sum. An *operand* is converted to the format of its step. A *value* is one operation,
rounded once to the format of its step. A *sum* has an accumulation, too. An operator with more than one order of
computation has variants. The docstring of the operator states what each step computes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from floatsim.formats._validation import name_hint

__all__ = ["OPERATORS", "OperatorSteps", "operator_steps"]


@dataclass(frozen=True)
class OperatorSteps:
    """The steps of one operator.

    Attributes
    ----------
    variants : mapping of str to tuple of str
        The steps of each variant, in order. The first variant is the default.
    operands : frozenset of str
        The steps that convert an operand.
    sums : frozenset of str
        The steps that are sums.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.operators.OPERATORS["softmax"].variants["naive"]
    ('input', 'exp', 'sum', 'quotient', 'output')
    """

    variants: Mapping[str, tuple[str, ...]]
    operands: frozenset[str]
    sums: frozenset[str]

    @property
    def names(self) -> tuple[str, ...]:
        """The steps of all variants, each once."""
        return tuple(dict.fromkeys(step for steps in self.variants.values() for step in steps))


def _operator(operands: str, sums: str, **variants: str) -> OperatorSteps:
    """Return the steps of an operator, from names separated by spaces. "_" in the name of a variant stands for "-"."""
    return OperatorSteps(
        {name.replace("_", "-"): (*operands.split(), *steps.split()) for name, steps in variants.items()},
        frozenset(operands.split()),
        frozenset(sums.split()),
    )


_ONLINE = "max difference factor rescaled shifted exp block_sum sum"
_ONCE = "activation output"
_PRODUCTS = "input_product input_biased hidden_product hidden_biased"
_CELL_SUMS = (
    "input_product hidden_product input_gradient hidden_gradient weight_ih_gradient weight_hh_gradient "
    "bias_ih_gradient bias_hh_gradient"
)
_WEIGHTS = "weight_ih_gradient weight_hh_gradient bias_ih_gradient bias_hh_gradient output"
_CELL = "input hidden weight_ih weight_hh bias_ih bias_hh"
_FUSED = "scores max scaled_max scaled_scores shifted exp probabilities"
_NORMALIZED = "rescaled_output product sum inverse normalized"
_AFFINE = "stabilized rsqrt normalized weighted biased output"
_THROUGH_ROOT = "weighted_gradient product product_sum normalized correction scaled_weight corrected"
_ROOT_ENDS = "share scaled_root result weight_product weight_gradient"

OPERATORS: dict[str, OperatorSteps] = {
    "softmax": _operator(
        "input",
        "sum block_sum",
        shifted="max shifted exp sum quotient output",
        reciprocal="max shifted exp sum inverse product output",
        naive="exp sum quotient output",
        online=f"{_ONLINE} quotient output",
    ),
    "log_softmax": _operator(
        "input",
        "sum",
        shifted="max shifted exp sum log result output",
        normalizer="max shifted exp sum log normalizer result output",
        naive="exp sum quotient result output",
    ),
    "cross_entropy": _operator(
        "input",
        "sum total",
        shifted="max shifted exp sum log result total mean output",
        normalizer="max shifted exp sum log normalizer result total mean output",
        naive="exp sum quotient result total mean output",
    ),
    "layer_norm": _operator(
        "input weight bias",
        "sum square_sum",
        two_pass=f"sum mean centred square square_sum variance {_AFFINE}",
        one_pass=f"sum mean square square_sum mean_square square_of_mean variance centred {_AFFINE}",
        welford=f"delta ratio mean remainder product moment variance centred {_AFFINE}",
        threads=f"mean square_sum variance centred {_AFFINE.replace('weighted ', '')}",
    ),
    "rms_norm": _operator(
        "input weight",
        "square_sum",
        standard="square square_sum mean_square stabilized rsqrt normalized weighted output",
        threads="square_sum mean_square stabilized rsqrt normalized weighted output",
    ),
    "batch_norm": _operator(
        "input running_mean running_var weight bias",
        "sum square_sum",
        inference=f"centred {_AFFINE}",
        training="sum mean centred square square_sum variance unbiased_variance kept_mean new_mean updated_mean "
        f"kept_var new_var updated_var {_AFFINE}",
    ),
    "linear": _operator(
        "input weight bias",
        "product",
        bias_last="product biased output",
        bias_first="product output",
    ),
    "residual_add": _operator("input residual", "", standard="total output"),
    "attention": _operator(
        "query key value",
        "scores sum product block_sum warp_sum weight_sum",
        scale_after="scores scaled masked max shifted exp sum quotient probabilities product output",
        scale_before="scaled scores masked max shifted exp sum quotient probabilities product output",
        scale_both="scaled scaled_key scores masked max shifted exp sum quotient probabilities product output",
        flash_attention_2="scores max difference scaled_difference factor rescaled scaled_max shifted exp block_sum "
        "sum probabilities rescaled_output product inverse normalized output",
        flash_kernel=f"{_FUSED} difference scaled_difference factor rescaled lanes {_NORMALIZED} log scaled_log "
        "logsumexp largest weight_shifted weight_exp weight_sum weight_log total weight_exponent part_weight combined "
        "output",
        cudnn_kernel=f"{_FUSED} scaled_previous difference factor block_sum lanes {_NORMALIZED} output",
        efficient_kernel=f"{_FUSED} scaled scaled_previous difference factor block_sum warp_sum rescaled {_NORMALIZED} "
        "output",
    ),
    "conv2d": _operator("input weight bias", "product", bias_last="product biased output", bias_first="product output"),
    "max_pool": _operator("input", "", standard="max output"),
    "avg_pool": _operator("input", "sum", standard="sum mean output"),
    "embedding": _operator("weight", "", standard="output"),
    "relu": _operator("input", "", standard=_ONCE),
    "tanh": _operator("input", "", standard=_ONCE),
    "sigmoid": _operator("input", "", once=_ONCE, composed="exp denominator inverse output"),
    "softplus": _operator("input", "", once=_ONCE, composed="exp result output"),
    "silu": _operator("input", "", once=_ONCE, composed="exp denominator quotient output"),
    "gelu": _operator(
        "input",
        "",
        once=_ONCE,
        erf="scaled erf shifted half product output",
        tanh="square cube cubic inner scaled tanh shifted half product output",
    ),
    "rnn_cell": _operator(_CELL, "input_product hidden_product", standard=f"{_PRODUCTS} total activation output"),
    "lstm_cell": _operator(
        f"{_CELL} cell",
        "input_product hidden_product",
        standard=f"{_PRODUCTS} gates input_gate forget_gate candidate output_gate kept new updated_cell tanh product "
        "output",
    ),
    "gru_cell": _operator(
        _CELL,
        "input_product hidden_product",
        standard=f"{_PRODUCTS} reset_sum reset update_sum update gated candidate_sum candidate difference weighted "
        "total output",
    ),
    "softmax_backward": _operator(
        "gradient result_of_forward",
        "sum",
        standard="product sum difference result output",
        fused="product sum result output",
    ),
    "log_softmax_backward": _operator(
        "gradient result_of_forward", "sum", standard="sum exp product result output", fused="sum exp result output"
    ),
    "cross_entropy_backward": _operator(
        "input",
        "sum",
        standard="max shifted exp sum quotient difference scaled mean output",
        from_log_softmax="max shifted exp sum log result target_gradient probability difference output",
    ),
    "linear_backward": _operator(
        "gradient input weight",
        "input_gradient weight_gradient bias_gradient",
        standard="input_gradient weight_gradient bias_gradient output",
    ),
    "layer_norm_backward": _operator(
        "gradient input weight",
        "sum square_sum product_sum gradient_sum weight_gradient bias_gradient",
        standard="sum mean centred square square_sum variance stabilized rsqrt normalized weighted_gradient product "
        "product_sum mean_product gradient_sum mean_gradient centred_gradient correction corrected result "
        "weight_product weight_gradient bias_gradient output",
        threads=f"mean square_sum variance stabilized rsqrt centred {_THROUGH_ROOT} gradient_sum centred_gradient "
        f"{_ROOT_ENDS} bias_gradient output",
    ),
    "rms_norm_backward": _operator(
        "gradient input weight",
        "square_sum product_sum weight_gradient",
        standard="square square_sum mean_square stabilized rsqrt normalized weighted_gradient product product_sum "
        "mean_product correction corrected result weight_product weight_gradient output",
        threads=f"square_sum mean_square stabilized rsqrt {_THROUGH_ROOT} {_ROOT_ENDS} output",
    ),
    "batch_norm_backward": _operator(
        "gradient input running_mean running_var weight",
        "sum square_sum product_sum gradient_sum weight_gradient bias_gradient",
        inference="centred stabilized rsqrt normalized weighted_gradient result weight_product weight_gradient "
        "bias_gradient output",
        training="sum mean centred square square_sum variance stabilized rsqrt normalized weighted_gradient product "
        "product_sum mean_product gradient_sum mean_gradient centred_gradient correction corrected result "
        "weight_product weight_gradient bias_gradient output",
    ),
    "residual_add_backward": _operator(
        "gradient", "input_gradient residual_gradient", standard="input_gradient residual_gradient output"
    ),
    "attention_backward": _operator(
        "gradient query key value",
        "scores sum sum_of_products value_gradient probability_gradient query_gradient key_gradient query_product "
        "key_product product block_sum delta",
        standard="scores scaled masked max shifted exp sum quotient probabilities value_gradient probability_gradient "
        "product sum_of_products difference result scaled_result query_gradient key_gradient output",
        scale_both="scaled scaled_key scores masked max shifted exp sum quotient probabilities value_gradient "
        "probability_gradient product sum_of_products result query_product query_gradient key_product key_gradient "
        "output",
        flash_kernel=f"{_FUSED} difference scaled_difference factor rescaled lanes {_NORMALIZED} log scaled_log "
        "logsumexp forward_output delta_lanes delta scaled_logsumexp power_shifted power rounded_power "
        "probability_gradient centred result rounded_result value_gradient query_product query_sum query_gradient "
        "key_product key_gradient output",
        cudnn_kernel=f"{_FUSED} scaled_previous difference factor block_sum lanes {_NORMALIZED} log natural_max "
        "logsumexp forward_output delta_pairs delta_lanes delta natural_scores power_shifted power_exponent power "
        "rounded_power probability_gradient centred result scaled_result rounded_result value_gradient query_product "
        "key_product output",
    ),
    "conv2d_backward": _operator(
        "gradient input weight",
        "input_gradient window_gradient weight_gradient bias_gradient",
        transposed="input_gradient weight_gradient bias_gradient output",
        columns="window_gradient input_gradient weight_gradient bias_gradient output",
    ),
    "max_pool_backward": _operator("gradient input", "sum", standard="sum output"),
    "avg_pool_backward": _operator("gradient", "sum", standard="share sum output"),
    "embedding_backward": _operator("gradient", "sum", standard="sum output"),
    "relu_backward": _operator("gradient input", "", standard="output"),
    "tanh_backward": _operator("gradient result_of_forward", "", standard="square slope result output"),
    "sigmoid_backward": _operator("gradient result_of_forward", "", standard="complement scaled result output"),
    "softplus_backward": _operator(
        "gradient input", "", once="slope result output", composed="exp denominator scaled result output"
    ),
    "silu_backward": _operator(
        "gradient input",
        "",
        once="sigmoid complement weighted shifted scaled result output",
        composed="exp denominator sigmoid complement weighted shifted scaled result output",
    ),
    "gelu_backward": _operator(
        "gradient input",
        "",
        erf="scaled erf shifted distribution square exponent exp density weighted slope result output",
        tanh="square cube cubic inner scaled tanh shifted distribution tanh_square tanh_slope half through_tanh "
        "tripled tripled_shifted inner_slope weighted slope result output",
    ),
    "rnn_cell_backward": _operator(
        f"gradient {_CELL}",
        _CELL_SUMS,
        standard=f"{_PRODUCTS} total activation square slope gate_gradient input_gradient hidden_gradient {_WEIGHTS}",
    ),
    "lstm_cell_backward": _operator(
        f"gradient cell_gradient {_CELL} cell",
        _CELL_SUMS,
        standard=f"{_PRODUCTS} gates input_gate forget_gate candidate output_gate kept new updated_cell tanh "
        "output_gate_gradient tanh_gradient square slope through_tanh total_cell_gradient input_gate_gradient "
        "forget_gate_gradient candidate_gradient memory_gradient complement scaled gate_gradient input_gradient "
        f"hidden_gradient {_WEIGHTS}",
    ),
    "gru_cell_backward": _operator(
        f"gradient {_CELL}",
        _CELL_SUMS,
        standard=f"{_PRODUCTS} reset_sum reset update_sum update gated candidate_sum candidate difference "
        "update_gradient difference_gradient candidate_gradient square slope gate_gradient reset_gradient "
        f"complement scaled input_gradient hidden_gradient total_hidden_gradient {_WEIGHTS}",
    ),
}
"""The operators by name.

>>> import floatsim as fs
>>> fs.operators.OPERATORS["softmax"].operands
frozenset({'input'})
"""


def operator_steps(name: str) -> OperatorSteps:
    """Return the steps of an operator.

    Parameters
    ----------
    name : str
        The name of the operator.

    Returns
    -------
    OperatorSteps

    Raises
    ------
    ValueError
        For an unknown name. The message has the nearest match.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.operators.operator_steps("residual_add").names
    ('input', 'residual', 'total', 'output')
    """
    if name not in OPERATORS:
        raise ValueError(f"operator {name!r} is not known; {name_hint(name, OPERATORS)}")
    return OPERATORS[name]
