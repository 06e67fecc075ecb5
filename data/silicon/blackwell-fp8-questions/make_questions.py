"""Write questions.npy: inputs of FP8 `mma.m16n8k32` to FP32 on which models of Blackwell's `mma.sync` differ.

    python data/silicon/blackwell-fp8-questions/make_questions.py

README.md describes the models and the file. Two runs write the same file.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import floatsim as fs
from floatsim.testing.vectors.dot_inputs import Inputs, input_set
from floatsim.testing.vectors.dot_unit import Unit, named_unit

HERE = Path(__file__).parent
PAIRS = (("E4M3", "E4M3"), ("E4M3", "E5M2"), ("E5M2", "E4M3"), ("E5M2", "E5M2"))
ROWS = 256
"""The rows of each pair of formats."""
DRAWN = 40_000
"""The rows that are drawn for each pair of formats; one in twenty or less is kept."""
ROW = np.dtype([("pair", "u1"), ("a", "u1", 32), ("b", "u1", 32), ("c", "<u4")])


def unit(arch: str, pair: int) -> Unit:
    """Return the instruction of an architecture for a pair of formats."""
    a, b = PAIRS[pair]
    return named_unit(arch, "mma.m16n8k32", fs.as_format(a), fs.as_format(b), fs.FP32)


def two_halves(pair: int, x: Inputs) -> np.ndarray:
    """Return the results of floatsim's model of B200: two blocks of FP16 products, then c."""
    return unit("blackwell", pair).dots(*x)


def one_block_then_c(pair: int, x: Inputs) -> np.ndarray:
    """Return the results of one block of 32 products, to which c is added with ties to even."""
    products = unit("blackwell-rtx", pair).dots(x.a, x.b, np.zeros_like(x.c)).view(np.float32)
    with np.errstate(all="ignore"):
        return (products + x.c.view(np.float32)).view(np.uint32)


def one_block(pair: int, x: Inputs) -> np.ndarray:
    """Return the results of floatsim's model of RTX Blackwell: one block of 32 products and c."""
    return unit("blackwell-rtx", pair).dots(*x)


MODELS = (two_halves, one_block_then_c, one_block)


def questions() -> np.ndarray:
    """Return the rows of the file: those on which the first two models differ, three different results first."""
    found = np.zeros(len(PAIRS) * ROWS, ROW)
    for pair in range(len(PAIRS)):
        x = input_set(unit("blackwell", pair), DRAWN, seed=pair)
        d = np.stack([model(pair, x) for model in MODELS])
        finite = np.isfinite(d.view(np.float32)).all(axis=0)
        differ = finite & (d[0] != d[1])
        all_three = differ & (d[2] != d[0]) & (d[2] != d[1])
        order = np.argsort(np.where(all_three, 0, np.where(differ, 1, 2)), kind="stable")
        assert differ[order[ROWS - 1]], f"only {differ.sum()} of {DRAWN} rows of {PAIRS[pair]} differ"
        kept = found[pair * ROWS : (pair + 1) * ROWS]
        kept["pair"], kept["a"], kept["b"], kept["c"] = pair, *(each[order[:ROWS]] for each in x[:3])
    return found


if __name__ == "__main__":
    np.save(HERE / "questions.npy", questions())
