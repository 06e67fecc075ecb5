"""Memory of training: bytes of weights, masters, gradients, moments, scales and activations, for each rank."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from floatsim.formats import FormatLike, as_format
from floatsim.formats._validation import as_index, as_real
from floatsim.quantization.scheme import SchemeLike, as_name, as_scheme

__all__ = ["CHECKPOINTING", "SHARDINGS", "MemoryRow", "MemoryTable", "TransformerShape", "memory_table"]

_SHARDED: dict[str, frozenset[str]] = {
    "none": frozenset(),
    "zero1": frozenset({"masters", "moments"}),
    "zero2": frozenset({"masters", "moments", "gradients"}),
    "zero3": frozenset({"masters", "moments", "gradients", "weights"}),
    "fsdp": frozenset({"masters", "moments", "gradients", "weights"}),
}
SHARDINGS = tuple(_SHARDED)
"""How state is divided over the ranks. `memory_table` documents them."""
CHECKPOINTING = ("none", "selective", "full")
"""Which activations are kept. `TransformerShape` documents them."""

LEFT_OUT = "buffers, communication buckets, temporary memory of kernels, the device's context, fragmentation"


def _bytes_of(storage: SchemeLike, argument: str) -> float:
    """Return the bytes of an element, with its share of the scale of a full block."""
    try:
        return as_format(storage).bits / 8  # type: ignore[arg-type]
    except (TypeError, ValueError):
        pass
    try:
        bits = as_scheme(storage).bits
    except (TypeError, ValueError) as error:
        raise type(error)(f"{argument}: {error}") from None
    if math.isnan(bits):
        raise ValueError(f"{argument}={storage!r} has blocks of a whole axis, whose number is not known")
    return bits / 8


@dataclass(frozen=True)
class TransformerShape:
    """The sizes of a transformer of decoder layers, for the memory of its activations.

    Parameters
    ----------
    layers : int
        The number of layers L.
    hidden : int
        The width h of the model.
    heads : int
        The number of attention heads a.
    sequence : int
        The length s of a sequence.
    batch : int
        The number b of sequences in a micro-batch of one rank.

    Notes
    -----
    Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models" (arXiv 2205.05198), for an
    element of e bytes and dropout masks of one byte. A layer keeps s b h (16 e + 2) bytes, and a s^2 b (2 e + 1) bytes
    of attention scores. With e = 2 this is s b h (34 + 5 a s / h). Checkpointing "selective" recomputes the scores.
    "full" keeps the input of each layer, s b h e, and the activations of one layer. FlashAttention stores no scores, as
    "selective". Embedding and head are not included.

    Examples
    --------
    >>> import floatsim as fs
    >>> shape = fs.training.TransformerShape(layers=32, hidden=4096, heads=32, sequence=2048, batch=1)
    >>> [round(shape.activation_bytes("bf16", each) / 1e9, 2) for each in ("none", "selective", "full")]
    [30.6, 9.13, 1.49]
    """

    layers: int
    hidden: int
    heads: int
    sequence: int
    batch: int

    def __post_init__(self) -> None:
        for name in ("layers", "hidden", "heads", "sequence", "batch"):
            as_index(getattr(self, name), name, 1, 1 << 62)

    def activation_bytes(self, format: FormatLike = "bf16", checkpointing: str = "none") -> float:
        """Return the bytes of the activations of a micro-batch on one rank."""
        element = as_format(format).bits / 8
        kind = as_name(checkpointing, CHECKPOINTING, "checkpointing")
        tokens = self.sequence * self.batch
        linear = tokens * self.hidden * (16 * element + 2)
        scores = self.heads * self.sequence * tokens * (2 * element + 1)
        if kind == "full":
            return self.layers * tokens * self.hidden * element + linear + scores
        return self.layers * (linear + (scores if kind == "none" else 0))


@dataclass(frozen=True)
class MemoryRow:
    """One kind of memory.

    Attributes
    ----------
    name : str
        "weights", "masters", "gradients", "moments", "amax histories", "gathered weights" or "activations".
    bytes : float
        The bytes on one rank.
    storage : str
        How it is stored.
    """

    name: str
    bytes: float
    storage: str


@dataclass(frozen=True)
class MemoryTable:
    """The memory of training on one rank.

    Attributes
    ----------
    parameters : int
        The number of parameters of the whole model.
    ranks : int
        The number of ranks.
    sharding : str
        How state is divided over the ranks.
    rows : tuple of MemoryRow
        The kinds of memory.
    left_out : str
        What the table does not include.
    """

    parameters: int
    ranks: int
    sharding: str
    rows: tuple[MemoryRow, ...]
    left_out: str = LEFT_OUT

    def __getitem__(self, name: str) -> float:
        """Return the bytes of a row, by its name."""
        rows = {row.name: row.bytes for row in self.rows}
        return rows[as_name(name, rows, "name")] if name not in rows else rows[name]

    @property
    def total(self) -> float:
        """The bytes on one rank."""
        return sum(row.bytes for row in self.rows)

    @property
    def bytes_per_parameter(self) -> float:
        """The bytes on one rank for each parameter of the whole model."""
        return self.total / self.parameters

    def to_dict(self) -> dict[str, Any]:
        """Return the table as plain data."""
        rows = [{"name": row.name, "bytes": row.bytes, "storage": row.storage} for row in self.rows]
        return {
            "parameters": self.parameters, "ranks": self.ranks, "sharding": self.sharding, "rows": rows,
            "total": self.total, "bytes_per_parameter": self.bytes_per_parameter, "left_out": self.left_out,
        }  # fmt: skip

    def __str__(self) -> str:
        lines = [f"{'':18}{'GB':>9}  {'bytes per parameter':>19}  storage"]
        for row in self.rows:
            each = row.bytes / self.parameters
            lines.append(f"{row.name:18}{row.bytes / 1e9:9.3f}  {each:19.4f}  {row.storage}".rstrip())
        lines.append(f"{'total':18}{self.total / 1e9:9.3f}  {self.bytes_per_parameter:19.4f}")
        return "\n".join([*lines, "GB is 10^9 bytes on one rank. Not included:", self.left_out])


def memory_table(
    parameters: float,
    *,
    weights: SchemeLike = "bf16",
    masters: SchemeLike | None = "fp32",
    gradients: SchemeLike | None = "bf16",
    moments: Sequence[SchemeLike] = ("fp32", "fp32"),
    ranks: int = 1,
    sharding: str = "none",
    gathered_parameters: float = 0,
    fp8_tensors: int = 0,
    history_length: int = 1024,
    shape: TransformerShape | None = None,
    activations: FormatLike = "bf16",
    checkpointing: str = "none",
) -> MemoryTable:
    """Return the memory that training takes on one rank.

    Parameters
    ----------
    parameters : int or float
        The number of parameters, such as 7e9.
    weights : format or scheme
        The weights of the forward and backward passes. A scheme such as "deepseek_weight" includes its scales.
    masters : format or scheme, optional
        The weights that the optimizer updates. None: it updates the weights.
    gradients : format or scheme, optional
        The gradients of all parameters. None: no gradients are kept.
    moments : sequence of formats or schemes
        The optimizer's states: two for Adam, one for momentum, none for SGD.
    ranks : int
        The number of ranks.
    sharding : str
        "none"; "zero1": masters and moments are divided over the ranks; "zero2": gradients too; "zero3": weights too;
        "fsdp": as "zero3", FULL_SHARD. A shard has ceil(parameters / ranks) parameters. With "fsdp", the shards that
        the optimizer updates are `masters`, and `weights` exist in the gathered unit only.
    gathered_parameters : int or float
        The parameters of the largest unit that is gathered at a time, with "zero3" and "fsdp". At most `parameters`.
    fp8_tensors : int
        The number of tensors with delayed scaling: each has a history, a scale and its inverse, in FP32.
    history_length : int
        The length of a history.
    shape : TransformerShape, optional
        The sizes of the model, for the activations. Default: no activations.
    activations : format
        The format of the activations.
    checkpointing : str
        "none", "selective" or "full", as in `TransformerShape`.

    Returns
    -------
    MemoryTable

    Raises
    ------
    TypeError, ValueError
        For numbers below 1, unknown names of formats, schemes and shardings. The message has the nearest match.

    Notes
    -----
    The table is exact for what it includes. `left_out` lists what it does not include.

    Examples
    --------
    A model of 7B parameters with mixed precision and Adam, on one GPU, and with its state sharded over 64:

    >>> import floatsim as fs
    >>> print(fs.training.memory_table(7e9, weights="fp16", gradients="fp16"))
                             GB  bytes per parameter  storage
    weights              14.000               2.0000  fp16
    masters              28.000               4.0000  fp32
    gradients            14.000               2.0000  fp16
    moments              56.000               8.0000  fp32, fp32
    total               112.000              16.0000
    GB is 10^9 bytes on one rank. Not included:
    buffers, communication buckets, temporary memory of kernels, the device's context, fragmentation
    >>> [fs.training.memory_table(7e9, ranks=64, sharding=f"zero{n}").total / 1e9 for n in (1, 2, 3)]
    [29.3125, 15.53125, 1.75]
    """
    count = int(as_real(parameters, "parameters", 1))
    n = as_index(ranks, "ranks", 1, 1 << 31)
    kind = as_name(sharding, SHARDINGS, "sharding")
    gathered = int(as_real(gathered_parameters, "gathered_parameters", 0))
    if gathered and "weights" not in _SHARDED[kind]:
        raise ValueError(f"gathered_parameters is for sharding='zero3' and 'fsdp', not {kind!r}")
    if gathered > count:
        raise ValueError(f"gathered_parameters must be at most parameters={count}, not {gathered}")
    kept_activations = as_name(checkpointing, CHECKPOINTING, "checkpointing")
    if isinstance(moments, str):
        raise TypeError(f"moments must be a sequence of formats, such as ('fp32', 'fp32'), not {moments!r}")
    states: dict[str, list[SchemeLike]] = {
        "weights": [] if kind == "fsdp" and masters is not None else [weights],
        "masters": [] if masters is None else [masters],
        "gradients": [] if gradients is None else [gradients],
        "moments": list(moments),
    }
    rows = []
    for name, stored in states.items():
        held = -(-count // n) if name in _SHARDED[kind] else count
        each = sum(_bytes_of(storage, name) for storage in stored)
        if stored:
            rows.append(MemoryRow(name, held * each, ", ".join(str(storage) for storage in stored)))
    if gathered:
        rows.append(MemoryRow("gathered weights", gathered * _bytes_of(weights, "weights"), str(weights)))
    if tensors := as_index(fp8_tensors, "fp8_tensors", 0, 1 << 62):
        length = as_index(history_length, "history_length", 1, 1 << 31)
        rows.append(MemoryRow("amax histories", 4.0 * tensors * (length + 2), "fp32"))
    if shape is not None:
        kept = shape.activation_bytes(activations, kept_activations)
        rows.append(MemoryRow("activations", kept, f"{as_format(activations).name}, checkpointing {kept_activations}"))
    return MemoryTable(count, n, kind, tuple(rows))
