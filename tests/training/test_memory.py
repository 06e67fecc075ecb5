"""The memory table: the 7B model of the notes, shards, schemes, activations."""

from __future__ import annotations

import pytest

import floatsim as fs
from floatsim.training import TransformerShape, memory_table

BILLIONS = 7e9


@pytest.mark.parametrize(("storage", "rows", "total"), [
    ({"weights": "fp32", "masters": None, "gradients": "fp32"}, {"weights": 28, "gradients": 28, "moments": 56}, 112),
    ({"weights": "fp16", "gradients": "fp16"}, {"weights": 14, "masters": 28, "gradients": 14, "moments": 56}, 112),
    ({"weights": "bf16", "masters": None, "gradients": "bf16", "moments": ("bf16", "bf16")},
     {"weights": 14, "gradients": 14, "moments": 28}, 56),
    ({"weights": "bf16", "gradients": "fp32"}, {"weights": 14, "masters": 28, "gradients": 28, "moments": 56}, 126),
])  # fmt: skip
def test_seven_billion_parameters(storage, rows, total):
    """In 10^9 bytes: FP32 112, mixed precision 112, all in 16 bits 56, FP32 gradients 126."""
    table = memory_table(BILLIONS, **storage)
    assert {row.name: row.bytes / 1e9 for row in table.rows} == rows
    assert table.total / 1e9 == total
    assert table.bytes_per_parameter == total / 7
    assert all(table[name] == gigabytes * 1e9 for name, gigabytes in rows.items())


def test_sixteen_bytes_are_104_gib():
    assert memory_table(BILLIONS).total / 2**30 == pytest.approx(104.3, abs=0.05)


@pytest.mark.parametrize(("sharding", "expected"), [
    ("none", 16), ("zero1", 4 + 12 / 8), ("zero2", 2 + 14 / 8), ("zero3", 16 / 8), ("fsdp", 14 / 8),
])  # fmt: skip
def test_shards(sharding, expected):
    table = memory_table(8e6, ranks=8, sharding=sharding)
    assert table.bytes_per_parameter == expected


def test_a_shard_is_rounded_up():
    table = memory_table(10, ranks=3, sharding="zero3")
    assert table["weights"] == 4 * 2
    assert memory_table(10, ranks=64, sharding="zero1")["moments"] == 8


def test_gathered_unit():
    table = memory_table(1000, ranks=10, sharding="fsdp", gathered_parameters=200)
    assert table["gathered weights"] == 400
    assert table["masters"] == 400
    with pytest.raises(ValueError, match="gathered_parameters is for"):
        memory_table(1000, gathered_parameters=200)


def test_scales_and_histories():
    table = memory_table(128 * 128, weights="deepseek_weight", gradients="deepseek", moments=("fp8_e4m3fn", "bf16"))
    assert table["weights"] == 128 * 128 + 4
    assert table["gradients"] == 128 * 128 * (1 + 4 / 128)  # 3.1 % more than FP8 alone
    assert table["moments"] == 128 * 128 * 3
    table = memory_table(1, weights="nvfp4", fp8_tensors=3, history_length=16)
    assert table["weights"] == 0.5 + 1 / 16
    assert table["amax histories"] == 3 * 4 * (16 + 2)
    assert memory_table(1, moments=()).bytes_per_parameter == 2 + 4 + 2


def test_activations():
    """s b h (34 + 5 a s / h) bytes of a layer in 16 bits (arXiv 2205.05198)."""
    layers, hidden, heads, sequence, batch = 3, 1024, 16, 512, 2
    shape = TransformerShape(layers, hidden, heads, sequence, batch)
    layer = sequence * batch * hidden * (34 + 5 * heads * sequence / hidden)
    assert shape.activation_bytes("fp16") == layers * layer
    assert shape.activation_bytes("fp16", "selective") == layers * sequence * batch * hidden * 34
    assert shape.activation_bytes("fp16", "full") == layers * sequence * batch * hidden * 2 + layer
    table = memory_table(1e6, shape=shape, activations="fp16", checkpointing="selective")
    assert table["activations"] == shape.activation_bytes("fp16", "selective")


def test_the_table_says_what_it_leaves_out():
    table = memory_table(BILLIONS)
    for word in ("buffers", "buckets", "fragmentation"):
        assert word in table.left_out
        assert word in str(table)
    assert table.to_dict()["rows"][0] == {"name": "weights", "bytes": 14e9, "storage": "bf16"}


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda: memory_table(0), ValueError, "parameters must be"),
    (lambda: memory_table(float("nan")), ValueError, "parameters must be"),
    (lambda: memory_table(10, ranks=0), ValueError, "ranks must be at least 1"),
    (lambda: memory_table(10, sharding="zero4"), ValueError, "did you mean 'zero"),
    (lambda: memory_table(10, weights="bf61"), ValueError, "weights: unknown"),
    (lambda: memory_table(10, weights="llm_int8"), ValueError, "a whole axis"),
    (lambda: memory_table(10, checkpointing="half"), ValueError, "checkpointing='half' is not known"),
    (lambda: memory_table(10, sharding="zero3", gathered_parameters=11), ValueError, "at most parameters=10, not 11"),
    (lambda: memory_table(10, moments="fp32"), TypeError, "sequence of formats"),
    (lambda: memory_table(10)["wieghts"], ValueError, "did you mean 'weights'"),
    (lambda: TransformerShape(1, 1, 1, 0, 1), ValueError, "sequence must be at least 1"),
    (lambda: TransformerShape(1, 1, 1, 1, 1).activation_bytes("fp16", "fulll"), ValueError, "did you mean 'full'"),
])  # fmt: skip
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_public():
    assert fs.training.memory_table is memory_table
