# Written by tools/write_stubs.py. Do not edit.

from floatsim.testing.assertions import (
    assert_bit_equal, assert_max_ulp, assert_product, assert_within_bound, compare_arrays, compare_product,
)
from floatsim.testing.bound_report import BoundReport, check_bound
from floatsim.testing.bounds import ErrorBound, error_bound
from floatsim.testing.check_strength import CheckStrength, strength
from floatsim.testing.conversions import assert_conversion, compare_conversion
from floatsim.testing.each_k import EachK, check_each_k
from floatsim.testing.identification import Identification, identify
from floatsim.testing.kernel_inputs import HardInputs, hard_inputs
from floatsim.testing.metrics import calc_diff, error_ratio
from floatsim.testing.mutations import MUTATIONS, Mutation
from floatsim.testing.operator_bounds import attention_bound, softmax_bound
from floatsim.testing.report import Report
from floatsim.testing.ulps import UlpStats, ulp_stats

__all__ = [
    "BoundReport", "CheckStrength", "EachK", "ErrorBound", "HardInputs", "Identification", "MUTATIONS", "Mutation",
    "Report", "UlpStats", "assert_bit_equal", "assert_conversion", "assert_max_ulp", "assert_product",
    "assert_within_bound", "attention_bound", "calc_diff", "check_bound", "check_each_k", "compare_arrays",
    "compare_conversion", "compare_product", "error_bound", "error_ratio", "hard_inputs", "identify", "softmax_bound",
    "strength", "ulp_stats",
]
