"""Published algorithms made of products and sums: JAX dot algorithms, sparse products, Ozaki scheme II, binned sums."""

from __future__ import annotations

from floatsim._lazy import lazy_exports

_HOMES = {
    ".dot_algorithms": "DOT_ALGORITHMS DotAlgorithm dot_algorithm",
    ".sparsity": "SPARSITIES SparseMatrix Sparsity compress prune sparse_matmul",
    ".binned": "binned_sum",
    ".ozaki": "OZAKI_MODULI ScaledIntegers ozaki2_matmul scaled_integers",
}
__getattr__, __dir__, __all__ = lazy_exports(__name__, _HOMES)
