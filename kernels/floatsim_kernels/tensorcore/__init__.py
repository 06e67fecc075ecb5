"""Kernels that compute as matrix units do."""
