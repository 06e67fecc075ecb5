"""CUDA sources compiled and launched."""
