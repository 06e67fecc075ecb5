"""Claims and questions about low-precision training, computed with the public names of floatsim."""
