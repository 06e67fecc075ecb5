"""Scales of losses and tensors."""
