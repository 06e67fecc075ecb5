"""Which kernel sums a leaf: `candidates` has the list, the other modules one family of kernels each."""
