"""What kernels are built on: compilation, CPU features, intrinsics, wide integers, vectors."""
