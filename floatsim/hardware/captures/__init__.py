"""Outputs of GPUs in files: written, read, published by others, and compared again."""
