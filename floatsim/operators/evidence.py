"""For which calls of operators the results of a recipe were compared with a GPU: the rows behind `strict=True`.

A range of rows or columns has recorded sizes at both of its ends, and recorded sizes between them. Inside of it the
rule of the recipe applies. `floatsim docs gpu-known-bits` has the shares of equal bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from floatsim.accumulation.evidence import Compared

__all__ = ["EVIDENCE", "evidence_table"]

_ALL, _SIXTEEN, _WIDE = ("FP32", "FP16", "BF16"), ("FP16", "BF16"), ("FP32", "FP16")
_AS_NAMED: dict[str, Any] = {"changes": ("none",), "context": ("default",)}
"""The recipe without changes, and no options of `fs.context`."""
_LAST = {"axis": ("last",)}


def _row(formats: tuple[str, ...], **facts: Any) -> Compared:
    return Compared(
        {"format": formats, **facts, **{key: value for key, value in _AS_NAMED.items() if key not in facts}}
    )


def _upto(least: int, most: int) -> range:
    return range(least, most + 1)


_FOUR = _upto(1, 4)
_SCORES = _row(_SIXTEEN, rows=_upto(1, 256), columns=(32,), **_LAST)
"""The scores of a transformer: 2 x 4 heads of 32 queries and keys."""

_BOTH, _WEIGHT = {"parameters": ("weight and bias",)}, {"parameters": ("weight",)}
_NETWORKS = {"rows": _upto(32, 128), "columns": _upto(64, 256)}
"""LayerNorm in training runs: 32 to 128 rows of 64 to 256 columns."""

_ROWS: dict[str, tuple[Compared, ...]] = {
    "softmax": (
        _row(_WIDE, rows=_FOUR, columns=_upto(5, 50_257), **_LAST),
        _row(("BF16",), rows=_FOUR, columns=_upto(5, 8192), **_LAST),
        _row(_ALL, rows=_FOUR, columns=_upto(5, 8192), changes=("output in FP32",), **_LAST),
        _SCORES,
    ),
    "log_softmax": (_row(_ALL, rows=_FOUR, columns=_upto(5, 8192), **_LAST),),
    "cross_entropy": (
        _row(_WIDE, rows=(1,), columns=_upto(5, 50_257)),
        _row(("BF16",), rows=(1,), columns=_upto(5, 8192)),
        _row(("FP32",), rows=_upto(32, 64), columns=_upto(10, 32)),
    ),
    "layer_norm": (
        _row(_WIDE, rows=_FOUR, columns=_upto(5, 50_257), **_BOTH),
        _row(("BF16",), rows=_FOUR, columns=_upto(5, 8192), **_BOTH),
        _row(_ALL, rows=_FOUR, columns=_upto(5, 8192), parameters=("none",)),
        _row(_SIXTEEN, **_NETWORKS, **_BOTH),
    ),
    "rms_norm": (
        _row(_WIDE, rows=_FOUR, columns=_upto(5, 50_257), **_WEIGHT),
        _row(("BF16",), rows=_FOUR, columns=_upto(5, 8192), **_WEIGHT),
    ),
    "gelu": (_row(_SIXTEEN),),
    "softmax_backward": (_row(_ALL, rows=_FOUR, columns=_upto(5, 4096), **_LAST), _SCORES),
    "log_softmax_backward": (_row(_ALL, rows=_FOUR, columns=_upto(5, 4096), **_LAST),),
    "cross_entropy_backward": (_row(("FP32",), rows=_upto(32, 64), columns=_upto(10, 32)),),
    "layer_norm_backward": (
        _row(_ALL, rows=_FOUR, columns=_upto(5, 4096), **_WEIGHT),
        _row(_SIXTEEN, **_NETWORKS, **_WEIGHT),
    ),
    "rms_norm_backward": (_row(_ALL, rows=_FOUR, columns=_upto(5, 4096), **_WEIGHT),),
}


def _attention(keys: tuple[int, ...], d: int, heads: int = 2, *masks: str) -> Compared:
    return _row(
        _SIXTEEN, heads=(heads,), keys=keys, d=(d,), shapes=("of one length",), mask=masks or ("none", "causal"),
        options=("default",),
    )  # fmt: skip


_64, _128 = _attention((64, 128, 200, 512), 64), _attention((64, 128, 200), 128)
_GRADIENTS = _attention((64, 128, 200), 64)
_TRANSFORMER = _attention((32,), 16, 8, "none")

EVIDENCE: Mapping[str, Mapping[str, tuple[Compared, ...]]] = MappingProxyType({
    "pytorch-cuda": _ROWS,
    "flash-attention-2": {"attention": (_64, _128), "attention_backward": (_GRADIENTS,)},
    "cudnn-attention": {"attention": (_64, _128), "attention_backward": (_attention((64,), 64),)},
    "efficient-attention": {"attention": (_64, _128)},
    "math": {"attention": (_64, _128, _TRANSFORMER), "attention_backward": (_GRADIENTS, _TRANSFORMER)},
})  # fmt: skip
"""By recipe and operator: the calls that were compared. Operators without an entry were not."""


def evidence_table() -> str:
    """Return the rows as a table in Markdown.

    >>> print(evidence_table().splitlines()[0])
    | recipe | operator | compared |
    """
    lines = ["| recipe | operator | compared |", "| --- " * 3 + "|"]
    for recipe, operators in EVIDENCE.items():
        for operator, rows in operators.items():
            shown = (
                Compared({key: values for key, values in row.facts.items() if values != _AS_NAMED.get(key)})
                for row in rows
            )
            lines.append(f"| `{recipe}` | `{operator}` | {'; or '.join(map(str, shown))} |")
    return "\n".join(lines)
