"""Collectives of N simulated ranks in one process: rings, trees, gradient averaging, and compressed communication."""
