"""Kernels that sum or scan one vector."""
