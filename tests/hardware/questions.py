"""The inputs on which models of Blackwell's FP8 `mma.sync` differ: data/silicon/blackwell-fp8-questions."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np

from floatsim.testing.vectors.dot_inputs import Inputs

__all__ = ["FOLDER", "asked", "maker"]

FOLDER = Path(__file__).parents[2] / "data" / "silicon" / "blackwell-fp8-questions"


def maker() -> ModuleType:
    """Return the module that writes the file and has the models."""
    spec = importlib.util.spec_from_file_location("make_questions", FOLDER / "make_questions.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def asked(pair: int) -> Inputs:
    """Return the inputs of a pair of formats."""
    rows = np.load(FOLDER / "questions.npy")
    rows = rows[rows["pair"] == pair]
    return Inputs(*(np.ascontiguousarray(rows[name]) for name in "abc"))
