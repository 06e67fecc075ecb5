"""Fixtures and warning filters of all tests, including the examples in the docstrings."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent

# The examples in the docstrings of floatsim.torch need the extra `torch`.
collect_ignore_glob = (
    [] if importlib.util.find_spec("torch") else ["floatsim/torch/*.py", "tests/torch_emulation/by_hand.py"]
)

# Test files whose results can depend on the versions of Python and of the libraries: compilation by Numba, warnings,
# pictures, the command line, exchange with other libraries. The examples in the docstrings belong to them.
VERSION_TESTS = (
    "test_cli", "test_formats", "test_foreign", "test_hardware_capture", "test_matmul", "test_njit", "test_notebooks",
    "test_plot", "test_reductions", "test_stochastic", "test_tensorcore_matmul", "test_traps", "test_warnings",
)  # fmt: skip


# Test files that `make test` leaves to `make test-full`. They compile CUDA sources for every target, compile the
# kernels a second time or in new processes, run many processes or type checkers, evaluate MPFR at every special value,
# find the order of many sums, draw many pictures, or compare all test vectors. Single tests of other files have the
# mark themselves.
FULL_TESTS = (
    "test_backward", "test_benchmarks", "test_checked", "test_digests", "test_environment", "test_errors",
    "test_exhaustive", "test_hardware_build", "test_hardware_fragments", "test_hardware_libraries",
    "test_hardware_probe", "test_hardware_rates", "test_hardware_scalars", "test_notebook_silicon",
    "test_on_device", "test_operators", "test_oracles", "test_orders", "test_plot", "test_plot_bits",
    "test_plot_lines", "test_plot_losses", "test_plot_monitors", "test_plot_roundings", "test_plot_sums",
    "test_plot_units",
    "test_check_strength", "test_identify", "test_product_faults", "test_published", "test_pytest_plugin",
    "test_recipes", "test_reference_mpfr", "test_reference_sums", "test_surveys", "test_tensorcore_arrays",
    "test_tensorcore_mmasim", "test_tensorcore_silicon", "test_tensorcore_trace", "test_types", "test_warnings",
)  # fmt: skip

# Modules whose examples compile the kernels of many descriptions. `make test` leaves them to `make test-full`.
FULL_EXAMPLES = (
    "assertions", "check_strength", "discrimination", "faults", "identification", "published", "testfloat", "truth",
)  # fmt: skip

# Test files whose tests run for many formats. `make test` runs them for these formats, `make test-full` for all: one
# format of each width, one of each kind of special values, and the custom formats at the ends of what a format can be.
FORMAT_TESTS = (
    "test_explain", "test_explain_operation", "test_formats", "test_kernels", "test_njit", "test_reference",
    "test_ulps",
)  # fmt: skip
QUICK_FORMATS = {
    "FP32", "FP16", "BF16", "E4M3", "E5M2", "E2M1", "E8M0", "smallest", "no subnormals", "below one", "above one",
    "one exponent",
}  # fmt: skip

# Tests whose cases compile kernels of their own, or take long. `make test` runs the cases whose whole identifier
# matches this regular expression, `make test-full` runs all. "(?!)" matches none.
QUICK_CASES = {
    "test_assertions::test_statistics_equal_those_of_the_distances": "bf16",
    "test_bad_input::test_empty_and_zero_dimensional": "(?!)",
    "test_bad_input::test_every_layout_simply_works": "(?!)",
    "test_counting::test_equal_to_the_integer_kernels": "(?!)",
    "test_bounds::test_worst_cases_are_within_the_bound": r"(?!blocked\(tensorcore|splitk|tensorcore).*",
    "test_cpu_units::test_equal_to_the_manual": "(avx512-bf16|amx-bf16|arm-bfdot).*",
    "test_docs::test_python": "README.md|docs/(formats|interop).md",
    "test_docs::test_table_in_the_readme": "formats|notebooks",
    "test_each_k::test_a_correct_kernel_passes": "bf16-shape[01]",
    "test_each_k::test_faults_are_named": "bf16-.*",
    "test_elementwise_fast::test_arithmetic_of_the_named_formats": "BF16-ties_to_even",
    "test_elementwise_fast::test_exponents_beside_the_bounds": "250",
    "test_elementwise_fast::test_operations_on_codes": "(?!)",
    "test_explain_operation::test_the_picture_has_no_overlapping_text": "(?!)",
    "test_float32::test_equals_the_integer_kernels": "(?!)",
    "test_float32::test_stochastic_sums_whose_draws_tie": "(?!)",
    "test_functions::test_both_sides_of_the_kernels_bounds": "(exp|sin)-.*",
    "test_functions::test_function_equals_mpfr": "(exp|log2|tan|power|gelu)-E2M3|(exp|log|sin|power)-(FP32|FP16)",
    "test_functions::test_reference_equals_mpfr_in_float64": "(exp|log2|tan|power|gelu)",
    "test_functions::test_result_in_another_format": "(exp|log2|tan|power|gelu)",
    "test_functions::test_stochastic_rounding_equals_the_reference": "(exp|log2|tan|power|gelu)",
    "test_hardware_capture::test_every_operation_of_a_gpu_is_captured": "ampere",
    "test_hardware_capture::test_operations_that_are_written_are_read": "(?!)",
    "test_hardware_compare::test_dots_equal_the_reference": "hopper.*",
    "test_hardware_compare::test_through_the_registers_of_lanes": "(?!)",
    "test_hardware_device::test_products_equal_the_emulator": r"False-.*-(fp16-ampere|e5m2-blocked\(ada, 64).*",
    "test_hardware_silicon::test_recordings_are_replayed": "wgmma.*|convert-fp32-e[45].*",
    "test_kernel_inputs::test_operands_have_the_formats_and_the_seed": "bf16-(normal|cancelling|ties)",
    "test_kernels::test_any_format": "(?!)",
    "test_kernels::test_every_code_of_16_bits": "(?!)",
    "test_kernels::test_every_code_of_16_bits_converted": "E4M3",
    "test_kernels::test_every_pair_of_small_formats": "(?!)",
    "test_kernels::test_from_integer": "BF16|E4M3",
    "test_kernels::test_kernel_equals_reference": ".*-(FP32|E4M3)",
    "test_kernels::test_quantize_is_encode_then_decode": "(FP16|E4M3)-float32",
    "test_kernels::test_scalb": "FP16|E4M3",
    "test_kernels::test_structured_cases_and_their_events": "FP16-add",
    "test_matmul::test_equals_the_reference": "stochastic-0",
    "test_njit::test_every_format_and_rounding": "add-.*",
    "test_njit::test_mathematical_functions": "exp",
    "test_njit::test_numba_finds_it_by_itself": "imported first",
    "test_outcomes::test_scores_of_attention_overflow": "1-0-0",
    "test_outcomes::test_sums_of_squares": "4",
    "test_paths::test_a_sample_of_the_search": "(?!mixed|orders|sum_is_exact|double_rounding|veltkamp).*",
    "test_quantize_blocks::test_equals_the_definition": "int8|int4 asymmetric|mxfp4|nvfp4|deepseek|nf4|fp16",
    "test_quantize_blocks::test_every_rounding_mode": ".*-(TIES_TO_EVEN|TO_ODD)",
    "test_quantize_blocks::test_float64_input": "int8",
    "test_quantize_blocks::test_kernels_of_another_floating_point_environment": "int8",
    "test_recording::test_places_in_products": "(?!hopper).*",
    "test_reductions::test_quick_sums_equal_those_of_the_integer_kernels": "(?!)",
    "test_reductions::test_quotients_and_roots": ".*-(fp16|exact.*)",
    "test_reductions::test_sum": r"fp16|exact\(fp16\)",
    "test_repaired::test_a_zero_of_a_matrix_unit_is_positive": r"tensorcore\(hopper.*",
    "test_repaired::test_accumulators_about_the_precision_of_float32": r"ieee\(5,23\)-RNE",
    "test_repaired::test_accumulators_among_the_subnormal_numbers_of_float32": "(?!)",
    "test_repaired::test_formats_whose_largest_exponent_field_is_finite": "(?!)",
    "test_repaired::test_infinite_products_in_accumulators_without_infinity": "widths0-.*",
    "test_repaired::test_product_formats_that_hold_every_finite_product": "Sequential.*",
    "test_sharded_products::test_parts_equal_the_whole": "float32 sequential|exact|leaf|result",
    "test_sharded_products::test_parts_with_c": "scaled0-blocked.*",
    "test_stochastic::test_every_number_of_bits_against_the_oracle": "8|32",
    "test_tensorcore_kernels::test_kernels_equal_the_reference": "hopper|blackwell|cdna3|amx-bf16",
    "test_tensorcore_matmul::test_any_k_is_filled_up_with_zeros": "hopper|cdna2",
    "test_tensorcore_matmul::test_equals_the_reference": "(?!)",
    "test_tensorcore_matmul::test_long_vectors": "hopper",
    "test_tensorcore_matmul::test_sums_are_products_with_ones": "(hopper|tensorcore).*",
    "test_tiles::test_the_same_bits_in_every_piece_and_thread": "(?!)",
    "test_trace_sums::test_every_rounding_rounds_its_exact_result": "(?!splitk).*",
    "test_traps::test_trap_inside_a_fused_product": "(?!)",
    "test_truth_mpfr::test_two_oracles_agree": "remainder-e4m3|convert-(fp16-(e4m3|bf16)|bf16-e5m2)-infinity",
    "test_vector::test_as_the_general_kernels": "(?!)",
    "test_vector::test_dot_as_the_general_kernels": "(?!)",
    "test_vector::test_large_against_numpy": "(?!)",
}


def own_modules() -> str:
    """Return a regular expression, without a colon, that matches the names of floatsim's own modules.

    pytest imports most files of tests/ under the bare name of the file. The code of a page runs as `docs_page`.
    """
    tests = {path.stem for path in (ROOT / "tests").rglob("*.py")}
    names = {"floatsim", "floatsim_kernels", "benchmarks", "notebooks", "studies", "tests", "conftest"} | tests
    return rf"({'|'.join(map(re.escape, sorted(names)))}|docs_\w+)(\.|$)"


def warning_filters(*, strict: bool) -> list[str]:
    """Return the warning filters of a test run, in pytest's notation. Later lines take precedence.

    A warning that Python attributes to one of floatsim's own modules is an error. Deprecations are excepted: a new
    version of a dependency can add one at any time, and `stacklevel` attributes it to the caller, floatsim. A strict
    run makes every warning an error, deprecations and the warnings of third-party modules included. An exception that
    no code catches, in a thread or in `__del__`, reaches pytest as a warning, and is an error in both.
    """
    if strict:
        return ["error"]
    deprecations = ("DeprecationWarning", "PendingDeprecationWarning", "FutureWarning")
    uncaught = ("PytestUnraisableExceptionWarning", "PytestUnhandledThreadExceptionWarning")
    return [
        f"error:::{own_modules()}",
        *(f"error::pytest.{category}" for category in uncaught),
        *(f"default::{category}" for category in deprecations),
    ]


def pytest_configure(config: pytest.Config) -> None:
    """Set the warning filters: strict with FLOATSIM_STRICT_WARNINGS=1, which .ci/run sets for the newest versions."""
    for line in warning_filters(strict=os.environ.get("FLOATSIM_STRICT_WARNINGS", "0") not in ("", "0")):
        config.addinivalue_line("filterwarnings", line)


def formats_of(item: pytest.Item) -> set[str]:
    """Return the names of the formats among the parameters of a test."""
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return {x.name for x in parameters if type(x).__name__ == "FloatFormat"}


def is_full(item: pytest.Item) -> bool:
    """Return whether `make test` leaves a test to `make test-full`, by the tables above."""
    file = item.path.stem
    if isinstance(item, pytest.DoctestItem):
        return file in FULL_EXAMPLES
    if file in FULL_TESTS or (file in FORMAT_TESTS and not formats_of(item) <= QUICK_FORMATS):
        return True
    quick = QUICK_CASES.get(f"{file}::{getattr(item, 'originalname', '')}")
    return quick is not None and not re.fullmatch(quick, item.callspec.id)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that `make test` leaves to `make test-full`, and those that `make test-pythons` runs."""
    for item in items:
        if is_full(item):
            item.add_marker("full")
        if isinstance(item, pytest.DoctestItem) or item.path.stem in VERSION_TESTS:
            item.add_marker("versions")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Collect no file of `FULL_TESTS` in a run of the quick tests: that takes ten seconds."""
    quick = config.getoption("markexpr") == "not full"
    return True if quick and collection_path.stem in FULL_TESTS else None


@pytest.fixture(autouse=True)
def _no_figures_are_left():
    """Close all figures: pyplot keeps every figure until it is closed, and warns of many."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
