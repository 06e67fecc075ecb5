"""Loops over blocks of a matrix that share a scale."""
