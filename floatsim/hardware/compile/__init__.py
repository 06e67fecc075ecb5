"""Compilation and launch of CUDA sources."""
