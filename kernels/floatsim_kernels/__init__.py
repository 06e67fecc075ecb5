"""Numba kernels on plain arrays of codes and plain numbers. Knows no format by name; imports nothing from floatsim."""
