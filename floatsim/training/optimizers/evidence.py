"""For which steps of optimizers the weights of a recipe were compared with a GPU: the rows behind `strict=True`.

The learning rate, the weight decay and the momentum are factors of lines, and can have any value. Decay of zero leaves
out a line, so that it is an option of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from floatsim.accumulation.evidence import Compared

__all__ = ["EVIDENCE", "steps_table"]

_ALL, _SIXTEEN = ("FP32", "FP16", "BF16"), ("FP16", "BF16")
_CONTEXT: dict[str, Any] = {"context": ("default",)}


def _row(formats: tuple[str, ...], steps: int, decay: bool, **facts: Any) -> Compared:
    decays = ("positive",) if decay else ("none",)
    return Compared({"format": formats, "steps": range(1, steps + 1), **facts, "weight_decay": decays, **_CONTEXT})


_PLAIN: dict[str, Any] = {"dampening": (0.0,), "nesterov": (False,)}
_MOMENTUM: dict[str, Any] = {"momentum": ("positive",), **_PLAIN}
_ADAM: dict[str, Any] = {"betas": ((0.9, 0.999),), "eps": (1e-8,)}
_FIVE: dict[str, tuple[Compared, ...]] = {
    "SGD": (_row(_ALL, 5, True, **_MOMENTUM),),
    "Adam": (_row(_ALL, 5, False, **_ADAM),),
    "AdamW": (_row(_ALL, 5, True, **_ADAM),),
}
"""Five steps of 2,048 weights."""

EVIDENCE: Mapping[str, Mapping[str, tuple[Compared, ...]]] = MappingProxyType({
    "cuda": _FIVE,
    "cuda-foreach": {
        "SGD": (
            *_FIVE["SGD"],
            _row(_SIXTEEN, 20, False, momentum=("none",), **_PLAIN),
            _row(("BF16",), 20, True, **_MOMENTUM),
        ),
        "Adam": _FIVE["Adam"],
        "AdamW": (*_FIVE["AdamW"], _row(("BF16",), 20, True, **_ADAM), _row(("FP16",), 10, True, **_ADAM)),
    },
    "cuda-fused": {**_FIVE, "AdamW": (*_FIVE["AdamW"], _row(("BF16",), 20, True, **_ADAM))},
})  # fmt: skip
"""By recipe and optimizer: the steps that were compared; the longer ones are those of training runs."""


def steps_table() -> str:
    """Return the rows as a table in Markdown.

    >>> print(steps_table().splitlines()[0])
    | recipe | optimizer | compared |
    """
    lines = ["| recipe | optimizer | compared |", "| --- " * 3 + "|"]
    for recipe, optimizers in EVIDENCE.items():
        for optimizer, rows in optimizers.items():
            shown = (
                Compared({name: values for name, values in row.facts.items() if name not in _CONTEXT}) for row in rows
            )
            lines.append(f"| `{recipe}` | `{optimizer}` | {'; or '.join(map(str, shown))} |")
    return "\n".join(lines)
