"""`python -m benchmarks.encoder` with a small random model whose file has the layout of all-MiniLM-L6-v2."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch", reason="needs torch: the extra `torch`")
safetensors = pytest.importorskip("safetensors.torch", reason="needs safetensors")
tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from benchmarks import encoder  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.full]
WORDS, WIDTH, INNER, LAYERS, POSITIONS = 40, 48, 96, 2, 24


def tensors():
    """The weights by the names of the file."""
    r = torch.Generator().manual_seed(1)

    def normal(*shape):
        return torch.randn(*shape, generator=r) * 0.3

    found = {
        "embeddings.word_embeddings.weight": normal(WORDS, WIDTH),
        "embeddings.position_embeddings.weight": normal(POSITIONS, WIDTH),
        "embeddings.token_type_embeddings.weight": normal(2, WIDTH),
        "embeddings.LayerNorm.weight": 1 + normal(WIDTH), "embeddings.LayerNorm.bias": normal(WIDTH),
        "pooler.dense.weight": normal(WIDTH, WIDTH),
    }  # fmt: skip
    square = ["attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"]
    shapes = {
        **dict.fromkeys(square, (WIDTH, WIDTH)),
        "intermediate.dense": (INNER, WIDTH), "output.dense": (WIDTH, INNER),
    }  # fmt: skip
    for n in range(LAYERS):
        for name, shape in shapes.items():
            found[f"encoder.layer.{n}.{name}.weight"] = normal(*shape)
            found[f"encoder.layer.{n}.{name}.bias"] = normal(shape[0])
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            found[f"encoder.layer.{n}.{name}.weight"] = 1 + normal(WIDTH)
            found[f"encoder.layer.{n}.{name}.bias"] = normal(WIDTH)
    return found


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """The file of the weights, with a tokenizer that knows the first words of the sentences."""
    folder = tmp_path_factory.mktemp("model")
    words = sorted({word for sentence in encoder.SENTENCES for word in sentence.split()})[: WORDS - 1]
    vocabulary = {"[UNK]": 0, **{word: n for n, word in enumerate(words, 1)}}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    safetensors.save_file(tensors(), str(folder / "model.safetensors"))
    return folder / "model.safetensors"


@pytest.fixture
def run(capsys):
    """Return a function that runs the command: its exit code, its output and its errors."""

    def runs(*arguments):
        code = encoder.main([*map(str, arguments)])
        done = capsys.readouterr()
        return code, done.out, done.err

    return runs


def test_the_encoder_equals_layers_of_torch(weights):
    model, x = encoder.load(weights), tensors()
    tokens, mask = encoder.tokens_of(encoder.SENTENCES, weights)
    assert mask.sum(1).tolist() == [len(sentence.split()) for sentence in encoder.SENTENCES]

    def norm(y, name):
        return F.layer_norm(y, (WIDTH,), x[f"{name}.weight"], x[f"{name}.bias"], 1e-12)

    y = x["embeddings.word_embeddings.weight"][tokens] + x["embeddings.token_type_embeddings.weight"][0]
    y = norm(y + x["embeddings.position_embeddings.weight"][: tokens.shape[1]], "embeddings.LayerNorm")
    for n in range(LAYERS):
        layer = nn.TransformerEncoderLayer(WIDTH, 12, INNER, 0.0, "gelu", 1e-12, batch_first=True)
        old = f"encoder.layer.{n}."
        attention = [f"{old}attention.self.{part}" for part in ("query", "key", "value")]
        state = {
            "self_attn.in_proj_weight": torch.cat([x[f"{name}.weight"] for name in attention]),
            "self_attn.in_proj_bias": torch.cat([x[f"{name}.bias"] for name in attention]),
        }
        for new, name in {
            "self_attn.out_proj": "attention.output.dense", "linear1": "intermediate.dense", "linear2": "output.dense",
            "norm1": "attention.output.LayerNorm", "norm2": "output.LayerNorm",
        }.items():  # fmt: skip
            state |= {f"{new}.{kind}": x[f"{old}{name}.{kind}"] for kind in ("weight", "bias")}
        layer.load_state_dict(state)
        y = layer(y, src_key_padding_mask=~mask.bool())
    wanted = F.normalize((y * mask[..., None]).sum(1) / mask.sum(1, keepdim=True), dim=-1)
    torch.testing.assert_close(model(tokens, mask), wanted, rtol=1e-4, atol=1e-5)


def test_the_table(weights, run):
    code, output, errors = run("--weights", weights, "--rank", "FP16")
    assert code == 0, errors
    lines = {line[:20].strip(): line.split()[-2] for line in output.splitlines()[1:14]}
    assert set(lines) == {policy.name for policy in encoder.CONFIGURATIONS}
    assert float(lines["FP32"]) == 1
    assert 0.99 < float(lines["BF16"]) <= float(lines["FP16"])
    assert "layers by error, FP16:" in output
    assert "  layers.0." in output
    assert "nothing overflowed" in output


def test_json_and_what_overflowed(weights, tmp_path, run):
    large = tensors() | {"encoder.layer.1.output.dense.bias": torch.full((WIDTH,), 3e38)}
    safetensors.save_file(large, str(tmp_path / "model.safetensors"))
    (tmp_path / "tokenizer.json").write_bytes((weights.parent / "tokenizer.json").read_bytes())
    code, output, errors = run("--weights", tmp_path / "model.safetensors", "--json")
    assert code == 0, errors
    rows = {row["name"]: row for row in json.loads(output)}
    assert "layers.1" in rows["FP16"]["overflow"]
    assert [len(row["ranking"]) > 5 for row in rows.values()] == [name == "E4M3 1x128" for name in rows]


def test_missing_files(weights, tmp_path, monkeypatch, run):
    def message(*arguments):
        code, _, errors = run(*arguments)
        assert code == 2
        return errors

    with monkeypatch.context() as patch:
        patch.setattr(encoder, "PACKAGE", "no_package_of_this_name")
        assert "there are no weights; name a file with --weights model.safetensors" in message()
    assert "there is no file" in message("--weights", tmp_path / "none.safetensors")
    (tmp_path / "model.safetensors").write_bytes(weights.read_bytes())
    assert "the tokenizer must be beside the weights" in message("--weights", tmp_path / "model.safetensors")
    with pytest.raises(SystemExit):
        run("--weights", weights, "--rank", "FP61")
