"""Writes jax_random_bits.json: `jax.random.bits` of some keys. Run it with JAX 0.10.2: `python -m tests.arrays.\
jax_random_bits`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["PATH", "bits_of"]

PATH = Path(__file__).with_suffix(".json")

SEEDS = (0, 42, 2**32 - 1)
COUNT = 33


def bits_of(jax: Any, seed: int, dtype: str, folded: int | None = None) -> list[int]:
    """Return the first random integers of a key, and with `folded` those of `jax.random.fold_in(key, folded)`."""
    key = jax.random.wrap_key_data(jax.numpy.array([seed >> 32, seed & 0xFFFFFFFF], "uint32"))
    if folded is not None:
        key = jax.random.fold_in(key, folded)
    drawn: list[int] = jax.random.bits(key, (COUNT,), dtype).tolist()
    return drawn


def main() -> None:
    """Write the file."""
    import jax

    jax.config.update("jax_enable_x64", True)  # for dtype uint64
    rows = [
        {"seed": seed, "folded": folded, "bits": int(dtype[4:]), "drawn": bits_of(jax, seed, dtype, folded)}
        for seed in (*SEEDS, 0x0123456789ABCDEF)
        for folded in (None, 9)
        for dtype in ("uint8", "uint16", "uint32", "uint64")
    ]
    text = ",\n".join(json.dumps(row) for row in rows)
    PATH.write_text(f'{{"jax": "{jax.__version__}", "rows": [\n{text}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
