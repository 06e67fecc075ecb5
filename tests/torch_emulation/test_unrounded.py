"""Operations that round nothing return elements of their operands: PyTorch's own sample inputs decide."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
samples = pytest.importorskip("torch.testing._internal.common_methods_invocations", exc_type=ImportError)

from floatsim.torch import unrounded  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.full]

_CONSTANTS = {0.0, 1.0}
_CHECKED = unrounded.VIEWS | unrounded.MOVES | unrounded.SELECTIONS


def name_of(operation):
    """The name in the lists: that of the ATen operation."""
    return operation.aten_name or operation.name.rpartition(".")[2]


OPERATIONS = sorted(
    (op.full_name, op)
    for op in samples.op_db
    if name_of(op) in _CHECKED and op.supports_dtype(torch.float32, "cpu") and op.variant_test_name != "partial_views"
)


def numbers(value):
    """The magnitudes of all floating-point numbers in nested arguments or results."""
    if isinstance(value, torch.Tensor):
        if not value.is_floating_point():
            return set()
        return set(np.abs(value.detach().numpy().ravel()).tolist())
    if isinstance(value, float | int):
        return {abs(float(np.float32(value)))}
    if isinstance(value, dict):
        return numbers(list(value.values()))
    if isinstance(value, list | tuple):
        return set().union(*map(numbers, value))
    return set()


@pytest.mark.parametrize("operation", [op for _, op in OPERATIONS], ids=[name for name, _ in OPERATIONS])
def test_results_are_elements_of_operands(operation):
    seen = 0
    for sample in operation.sample_inputs("cpu", torch.float32):
        keywords = sample.kwargs
        if keywords.get("accumulate") or keywords.get("reduce") or any(x is True for x in sample.args):
            continue  # additions: operations of their own
        known = numbers([sample.input, list(sample.args), sample.kwargs]) | _CONSTANTS | {float("inf")}
        found = numbers(operation(sample.input, *sample.args, **sample.kwargs))
        limits = {float(np.finfo(np.float32).max)}
        assert {x for x in found if not np.isnan(x)} <= known | limits, operation.name
        seen += 1
    assert seen


def test_most_names_have_samples():
    """The others are variants in place, of shapes, or inside backward passes."""
    assert len({name_of(op) for _, op in OPERATIONS}) > 90
