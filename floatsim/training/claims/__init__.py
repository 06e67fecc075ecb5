"""Common claims about low-precision training, computed: one module for each topic, and `run` for all of them."""
