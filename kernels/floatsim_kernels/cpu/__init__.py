"""Matrix and dot instructions of the CPU, each as a compiled loop over arrays."""
