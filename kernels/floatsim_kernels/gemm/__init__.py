"""Kernels that sum the products of two matrices."""
