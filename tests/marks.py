"""Which cases of a test `make test` runs, which only `make test-full`, and which only a clone can run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

__all__ = ["cases", "needs_sample"]


def needs_sample(path: Path) -> pytest.MarkDecorator:
    """Skip a test without its recordings of a GPU, which the source distribution leaves out."""
    return pytest.mark.skipif(not path.exists(), reason=f"{path.name} is only in a clone, in data/silicon")


def cases(*, quick: Iterable[Any], full: Iterable[Any]) -> list[Any]:
    """Return the cases of a parametrised test: `make test` runs those of `quick`, `make test-full` all.

    Parameters
    ----------
    quick, full : iterables
        The values of one parameter. A case with several parameters is a `pytest.param`. `full` may repeat cases of
        `quick`: each case is returned once.

    >>> [case.values for case in cases(quick=["fp16"], full=["bf16", "fp16"])]
    [('fp16',), ('bf16',)]
    >>> [mark.name for case in cases(quick=["fp16"], full=["bf16", "fp16"]) for mark in case.marks]
    ['full']
    """
    first, others = ([_as_param(case) for case in some] for some in (quick, full))
    known = [(case.values, case.id) for case in first]
    later = [case for case in others if (case.values, case.id) not in known]
    return [*first, *(pytest.param(*case.values, id=case.id, marks=[*case.marks, pytest.mark.full]) for case in later)]


def _as_param(case: Any) -> Any:
    return case if isinstance(case, type(pytest.param())) else pytest.param(case)
