"""The choice of the kernel for a leaf: `candidates` has the list, the other modules one family of kernels each."""
