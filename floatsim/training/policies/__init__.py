"""Policies: the formats of each operation, tensor and sum of a training run."""
