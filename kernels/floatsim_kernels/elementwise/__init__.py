"""Kernels that take arrays element by element."""
