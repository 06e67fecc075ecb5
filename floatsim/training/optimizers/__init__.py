"""Optimizers, and operations on gradients."""
