"""Rounding on integers and on float32, and the random bits of stochastic rounding."""
