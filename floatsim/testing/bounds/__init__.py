"""Bounds of the error of sums, products and operators."""
