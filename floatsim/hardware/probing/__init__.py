"""Inference of the model of a matrix unit from the results of small sums."""
