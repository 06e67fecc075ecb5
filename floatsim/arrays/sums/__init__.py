"""Sums and products of matrices."""
