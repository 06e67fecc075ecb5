"""The array models, with which the long run compares the kernels, compared with the reference: codes and events."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tensorcore.arrays import by_arrays, can_do
from tests.tensorcore.cases import STYLES, by_reference, distinct, operands

pytestmark = pytest.mark.full

CASES = [some[0] for some in distinct().values() if can_do(some[0].row)]
BY_ARCHITECTURE = {arch: [case for case in CASES if case.arch == arch] for arch in {case.arch: None for case in CASES}}


@pytest.mark.parametrize("arch", BY_ARCHITECTURE)
def test_equal_to_the_reference(arch):
    rng = np.random.default_rng(8)
    for n, case in enumerate(BY_ARCHITECTURE[arch]):
        for style in (STYLES[n % len(STYLES)], STYLES[(n + 3) % len(STYLES)]):
            k = int(rng.choice([case.row.k, 2 * case.row.k, case.row.k + case.row.k // 2 + 1]))
            given = operands(rng, case, 3, k, 4, style)
            (want, counts), (got, own_counts) = by_reference(case, *given), by_arrays(case, *given)
            assert np.array_equal(want, got), (str(case), style, want, got, given)
            assert own_counts is None or np.array_equal(counts, own_counts), (str(case), style, given)
