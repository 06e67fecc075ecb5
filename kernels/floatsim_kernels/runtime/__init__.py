"""The base of the kernels: compilation, CPU features, intrinsics, 128-bit integers, vectors."""
