# Written by tools/write_stubs.py. Do not edit.

from floatsim.algorithms.binned import binned_sum
from floatsim.algorithms.dot_algorithms import DOT_ALGORITHMS, DotAlgorithm, dot_algorithm
from floatsim.algorithms.ozaki import OZAKI_MODULI, ScaledIntegers, ozaki2_matmul, scaled_integers
from floatsim.algorithms.sparsity import SPARSITIES, SparseMatrix, Sparsity, compress, prune, sparse_matmul

__all__ = [
    "DOT_ALGORITHMS", "DotAlgorithm", "OZAKI_MODULI", "SPARSITIES", "ScaledIntegers", "SparseMatrix", "Sparsity",
    "binned_sum", "compress", "dot_algorithm", "ozaki2_matmul", "prune", "scaled_integers", "sparse_matmul",
]
