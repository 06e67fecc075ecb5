# Written by tools/write_stubs.py. Do not edit.

from floatsim.testing.answers import AnswerReport, answer_digest, check_answers
from floatsim.testing.assertions import (
    assert_bit_equal, assert_max_ulp, assert_product, assert_within_bound, compare_arrays, compare_product,
)
from floatsim.testing.bounds.bound_report import BoundReport, check_bound
from floatsim.testing.bounds.bounds import ErrorBound, error_bound
from floatsim.testing.bounds.operators import attention_bound, softmax_bound
from floatsim.testing.compare.conversions import assert_conversion, compare_conversion
from floatsim.testing.compare.metrics import calc_diff, error_ratio
from floatsim.testing.compare.report import Report
from floatsim.testing.compare.ulps import UlpStats, ulp_stats
from floatsim.testing.identify.identification import Identification, identify
from floatsim.testing.mismatch import Mismatch, mismatch_of
from floatsim.testing.quantizers.identification import QuantizerIdentification, QuantizerRow, identify_quantizer
from floatsim.testing.shape_invariance import (
    ShapeDifference, ShapeInvariance, assert_shape_invariant, check_shape_invariant,
)
from floatsim.testing.strength.check_strength import CheckStrength, strength
from floatsim.testing.strength.each_k import EachK, check_each_k
from floatsim.testing.strength.mutations import MUTATIONS, Mutation
from floatsim.testing.vectors.hardware_unit import HardwareUnit, VectorComparison, hardware_unit
from floatsim.testing.vectors.product_inputs import HardInputs, hard_inputs

__all__ = [
    "AnswerReport", "BoundReport", "CheckStrength", "EachK", "ErrorBound", "HardInputs", "HardwareUnit",
    "Identification", "MUTATIONS", "Mismatch", "Mutation", "QuantizerIdentification", "QuantizerRow", "Report",
    "ShapeDifference", "ShapeInvariance", "UlpStats", "VectorComparison", "answer_digest", "assert_bit_equal",
    "assert_conversion", "assert_max_ulp", "assert_product", "assert_shape_invariant", "assert_within_bound",
    "attention_bound", "calc_diff", "check_answers", "check_bound", "check_each_k", "check_shape_invariant",
    "compare_arrays", "compare_conversion", "compare_product", "error_bound", "error_ratio", "hard_inputs",
    "hardware_unit", "identify", "identify_quantizer", "mismatch_of", "softmax_bound", "strength", "ulp_stats",
]
