"""Compare kernels with the emulator: assertions, hard inputs, the strength of tests, and test vectors for GPUs.

`assert_bit_equal` and `assert_max_ulp` compare arrays. `assert_product` and `assert_within_bound` compare a matrix
product with a description of its sums. `floatsim docs cross-check` is the guide.
"""

from __future__ import annotations

from floatsim._lazy import lazy_exports

_HOMES = {
    ".answers": "AnswerReport answer_digest check_answers",
    ".assertions": "assert_bit_equal assert_max_ulp assert_product assert_within_bound compare_arrays compare_product",
    ".bounds.bound_report": "BoundReport check_bound",
    ".bounds.bounds": "ErrorBound error_bound",
    ".strength.check_strength": "CheckStrength strength",
    ".compare.conversions": "assert_conversion compare_conversion",
    ".strength.each_k": "EachK check_each_k",
    ".identify.identification": "Identification identify",
    ".vectors.hardware_unit": "HardwareUnit VectorComparison hardware_unit",
    ".mismatch": "Mismatch mismatch_of",
    ".shape_invariance": "ShapeDifference ShapeInvariance assert_shape_invariant check_shape_invariant",
    ".vectors.product_inputs": "HardInputs hard_inputs",
    ".strength.mutations": "MUTATIONS Mutation",
    ".compare.metrics": "calc_diff error_ratio",
    ".bounds.operators": "attention_bound softmax_bound",
    ".quantizers.identification": "QuantizerIdentification QuantizerRow identify_quantizer",
    ".compare.report": "Report",
    ".compare.ulps": "UlpStats ulp_stats",
}
__getattr__, __dir__, __all__ = lazy_exports(__name__, _HOMES)
