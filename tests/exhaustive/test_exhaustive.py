"""The whole input spaces under pytest: `make test-exhaustive`. `python -m tests.exhaustive` runs parts of it."""

import pytest

from tests.exhaustive import runner

pytestmark = [pytest.mark.full, pytest.mark.exhaustive]


@pytest.mark.parametrize("name", runner.select(["*"]))
def test_whole_input_space(name):
    (result,) = runner.run([name])
    assert result.done == result.chunks
    assert result.mismatches == 0, "\n" + runner.report([result])
